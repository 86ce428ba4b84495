//! Reads a database in a process of its own, since reading may panic, abort, or never end.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{engine, load};

/// How reading a database ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It holds exactly what its first so many batches made.
    Whole(u64),
    /// An error when it was opened.
    NoticedAtOpen(String),
    /// An error when it was read.
    NoticedAtRead(String),
    /// A panic.
    Panic(String),
    /// Ended by a signal.
    Abort(String),
    /// Nothing for so long that it counts as for ever.
    Hang,
    /// Read without complaint, but not what any number of batches made.
    Wrong(u64, String),
}

impl Outcome {
    /// A word for tables; `flushed` is what must be there.
    pub fn class(&self, flushed: u64) -> &'static str {
        match self {
            Outcome::Whole(seq) if *seq >= flushed => "harmless",
            Outcome::Whole(_) => "SILENT loss of the end",
            Outcome::NoticedAtOpen(_) => "error at open",
            Outcome::NoticedAtRead(_) => "error at read",
            Outcome::Panic(_) => "panic",
            Outcome::Abort(_) => "abort",
            Outcome::Hang => "hang",
            Outcome::Wrong(seq, _) if *seq >= flushed => "SILENT change, newest number",
            Outcome::Wrong(..) => "SILENT change, older number",
        }
    }
}

/// Ends a process that this one started.
pub fn kill(child: &mut Child) {
    // It may have ended by itself, which is as good.
    let _ = child.kill();
}

/// Starts this program again with other words.
pub fn again(words: &[&str]) -> Command {
    let me = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(me);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Reads the database at `path` in a child and says how that ended.
pub fn outcome(engine: &str, path: &Path, seed: u64, timeout: Duration) -> io::Result<Outcome> {
    let path = path.to_str().expect("our own paths are text");
    // Without `sync` on PATH sled goes on without it: a sync of the whole machine per case takes too long.
    let mut command = again(&["check", engine, path, &seed.to_string()]);
    let mut child = command.env("PATH", "").stderr(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    let out = std::thread::spawn(move || read_text(&mut stdout));
    let err = std::thread::spawn(move || read_text(&mut stderr));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > timeout {
            kill(&mut child);
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let out = out.join().expect("reading does not panic");
    let err = err.join().expect("reading does not panic");
    let Some(status) = status else { return Ok(Outcome::Hang) };
    let last = out.lines().last().unwrap_or_default().to_owned();
    let panicked = err.lines().find(|line| line.contains("panicked at")).unwrap_or_default().to_owned();
    if status.signal().is_some() {
        return Ok(Outcome::Abort(format!("{status} {panicked}")));
    }
    if status.code() == Some(101) {
        return Ok(Outcome::Panic(panicked));
    }
    if status.success() {
        let (seq, verdict) = last.split_once(' ').unwrap_or((&last, ""));
        let seq = seq.parse().map_err(|_| io::Error::other(format!("the check said {out:?} {err:?}")))?;
        return Ok(if verdict == "same" { Outcome::Whole(seq) } else { Outcome::Wrong(seq, verdict.into()) });
    }
    let opened = out.lines().any(|line| line == "opened");
    Ok(if opened { Outcome::NoticedAtRead(last) } else { Outcome::NoticedAtOpen(last) })
}

fn read_text(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read until then is what there is.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The child: prints `opened`, then the number of batches and how the content differs from theirs.
pub fn child(engine: &str, path: &Path, seed: u64) -> io::Result<()> {
    let found = engine::open(engine, path).and_then(|engine| {
        println!("opened");
        contents(&*engine)
    });
    let (seq, found) = match found {
        Ok(found) => found,
        Err(error) => {
            println!("{error}");
            io::stdout().flush()?;
            // Not through the destructors, which flush, and wait for ever after some errors.
            unsafe { libc::_exit(3) }
        }
    };
    let wanted = load::model(seed, seq);
    let gone = wanted.keys().filter(|key| !found.contains_key(*key)).count();
    let changed = wanted.iter().filter(|(key, sum)| found.get(*key).is_some_and(|is| is != *sum)).count();
    let extra = found.keys().filter(|key| !wanted.contains_key(*key)).count();
    if found == wanted {
        println!("{seq} same");
    } else {
        println!("{seq} gone {gone} changed {changed} extra {extra} of {}", wanted.len());
    }
    io::stdout().flush()?;
    unsafe { libc::_exit(0) }
}

/// The number of batches that a database says it has, and checksums of its values.
pub fn contents(engine: &dyn engine::Engine) -> io::Result<(u64, BTreeMap<Vec<u8>, u32>)> {
    let mut seq = 0;
    let mut found = BTreeMap::new();
    engine.scan(&mut |key, value| {
        if key == load::SEQ {
            seq = value.try_into().map_or(0, u64::from_be_bytes);
        }
        found.insert(key.to_vec(), crc32fast::hash(value));
    })?;
    Ok((seq, found))
}
