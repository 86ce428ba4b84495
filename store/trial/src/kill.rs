//! A writer is killed at random moments; what it said was flushed must be there, and batches only as wholes.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::check::{self, Outcome};
use crate::engine;
use crate::load::{self, Random};

/// Kills for `seconds`; returns whether nothing was wrong.
pub fn run(engine: &str, dir: &Path, seed: u64, seconds: u64) -> io::Result<bool> {
    let mut random = Random(seed);
    let (mut kills, mut bad, mut batches, mut surplus, mut early) = (0, 0, 0, 0, 0);
    let start = Instant::now();
    let path = dir.join(format!("kill-{}", engine.replace('/', "-")));
    while start.elapsed().as_secs() < seconds {
        let data = random.next();
        // Not there the first time.
        let _ = std::fs::remove_dir_all(&path);
        let mut flushed = 0;
        for round in 0..20 {
            // Every other kill comes while the database is being opened, or soon after.
            let most = if round % 2 == 0 { 20_000 } else { 150_000 };
            let delay = Duration::from_micros(random.below(most));
            let (acknowledged, before) = write_and_kill(engine, &path, data, delay)?;
            early += u64::from(before);
            flushed = flushed.max(acknowledged);
            kills += 1;
            match check::outcome(engine, &path, data, Duration::from_secs(60))? {
                Outcome::Whole(seq) if seq >= flushed => {
                    surplus += seq - flushed;
                    flushed = seq;
                }
                other => {
                    bad += 1;
                    println!("{engine}: data seed {data}, round {round}, flushed {flushed}: {other:?}");
                    break;
                }
            }
        }
        batches += flushed;
    }
    println!(
        "kill {engine}: {kills} kills ({early} before the writer was ready), {batches} batches, {bad} databases bad, \
         {surplus} batches more than was promised"
    );
    Ok(bad == 0)
}

/// The last number that the writer said was flushed, and whether it died before it began to write.
fn write_and_kill(engine: &str, path: &Path, seed: u64, delay: Duration) -> io::Result<(u64, bool)> {
    let path = path.to_str().expect("our own paths are text");
    let mut command = check::again(&["write", engine, path, &seed.to_string(), "0"]);
    let mut child = command.env("PATH", "").spawn()?;
    std::thread::sleep(delay);
    check::kill(&mut child);
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (mut last, mut ready) = (0, false);
    for line in lines.map_while(Result::ok) {
        ready = true;
        // The last line may be torn by the kill: only whole ones end in a dot.
        if let Some(seq) = line.strip_suffix('.') {
            last = seq.parse().map_err(|_| io::Error::other(format!("the writer said {line:?}")))?;
        }
    }
    child.wait()?;
    Ok((last, !ready))
}

/// The child: goes on with the batches of a database until it is killed, or until batch `last`.
pub fn writer(engine: &str, path: &Path, seed: u64, last: u64) -> io::Result<()> {
    let mut engine = engine::open(engine, path)?;
    let (mut seq, _) = check::contents(&*engine)?;
    let mut random = Random(seed ^ seq);
    let mut out = io::stdout();
    writeln!(out, "{seq}.")?;
    while last == 0 || seq < last {
        for _ in 0..=random.below(5) {
            seq += 1;
            let (puts, deletes) = load::batch(seed, seq);
            engine.apply(puts, deletes)?;
        }
        engine.flush()?;
        writeln!(out, "{seq}.")?;
    }
    out.flush()?;
    // As a kill leaves it: without the destructors, which tidy up.
    unsafe { libc::_exit(0) }
}
