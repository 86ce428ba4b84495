//! What storing costs: CPU time, wall time, bytes written, bytes kept, memory.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::check;
use crate::engine::{self, Engine, Pair};
use crate::load::{self, Random};

/// What is compared unless told otherwise.
pub const ENGINES: &str =
    "plain old new8+care new16 new16+care new16/1+care new16/-5+care new64+care new256+care new1024+care";

/// Journal records that stay while others are appended.
const WINDOW: u64 = 512;

/// Measures everything about one engine, each in a process of its own.
pub fn run(engine: &str, dir: &Path, percent: u64) -> io::Result<()> {
    let path = dir.join(format!("cost-{}", engine.replace('/', "-")));
    let text = path.to_str().expect("our own paths are text");
    for what in ["append4k", "append64k", "small", "random", "read", "overwrite"] {
        if engine == "plain" && ["random", "read", "overwrite"].contains(&what) {
            continue;
        }
        // `read` and `overwrite` find what `random` left.
        if !["read", "overwrite"].contains(&what) {
            // Not there the first time.
            let _ = std::fs::remove_dir_all(&path);
        }
        let mut child = check::again(&["measure", what, engine, text, &percent.to_string()]);
        let status = child.env("PATH", "").stdout(std::process::Stdio::inherit()).status()?;
        if !status.success() {
            println!("cost {engine:15} {what:9} FAILED: {status}");
        }
    }
    std::fs::remove_dir_all(&path)
}

/// Time and bytes since a moment.
struct Meter {
    wall: Instant,
    cpu: Duration,
    written: u64,
}

impl Meter {
    fn start() -> Meter {
        Meter { wall: Instant::now(), cpu: cpu(), written: written() }
    }

    /// One line: what, per `count` of `unit`.
    fn say(&self, engine: &str, what: &str, count: u64, unit: &str, path: &Path) {
        let (wall, cpu) = (self.wall.elapsed(), cpu() - self.cpu);
        let per = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        println!(
            "cost {engine:15} {what:24} {:9.1} us CPU, {:9.1} us wall, {:9} bytes written per {unit}; \
             on disk {:7.1} MB, memory {:6.1} MB, together {:.2} s",
            per(cpu),
            per(wall),
            (written() - self.written) / count,
            size(path) as f64 / 1e6,
            resident() as f64 / 1e6,
            wall.as_secs_f64(),
        );
    }
}

/// One measurement, in a child.
pub fn measure(what: &str, name: &str, path: &Path, percent: u64) -> io::Result<()> {
    let share = |full: u64| (full * percent / 100).max(1);
    let meter = Meter::start();
    let mut engine = engine::open(name, path)?;
    match what {
        "append4k" => {
            append(&mut *engine, 4 << 10, share(6_000), 16, name, "4 KB, flush by 16", path)?;
            append(&mut *engine, 4 << 10, share(1_500), 1, name, "4 KB, flush each", path)?;
        }
        "append64k" => {
            append(&mut *engine, 64 << 10, share(1_600), 16, name, "64 KB, flush by 16", path)?;
            append(&mut *engine, 64 << 10, share(300), 1, name, "64 KB, flush each", path)?;
        }
        "small" => {
            append(&mut *engine, 200, share(4_000), 1, name, "200 B, flush each", path)?;
            append(&mut *engine, 200, share(400_000), 400, name, "200 B, flush by 400", path)?;
        }
        "random" => {
            let records = share(1_000_000);
            for start in (0..records).step_by(10_000) {
                engine.apply(
                    (start..records.min(start + 10_000)).map(|n| record(n, 0)).collect(),
                    Vec::new(),
                )?;
                if start % 100_000 == 0 {
                    engine.flush()?;
                }
            }
            engine.flush()?;
            meter.say(name, "load 100 B", records, "record", path);
        }
        "read" => {
            let mut count = 0;
            engine.scan(&mut |_, _| count += 1)?;
            meter.say(name, "open and read 100 B", count.max(1), "record", path);
        }
        "overwrite" => {
            let records = share(1_000_000);
            let mut random = Random(5);
            for (rounds, flushes) in [(1, 40), (2, 160)] {
                let meter = Meter::start();
                for _ in 0..flushes {
                    let puts = (0..1_000).map(|_| record(random.below(records), random.next())).collect();
                    engine.apply(puts, Vec::new())?;
                    engine.flush()?;
                }
                let what = format!("1,000 of a million ({rounds})");
                meter.say(name, &what, flushes * 1_000, "record", path);
            }
        }
        other => return Err(io::Error::other(format!("nothing is called {other}"))),
    }
    // Without the destructors, which flush again.
    unsafe { libc::_exit(0) }
}

/// Appends journal records, trims old ones, and flushes after every `group`.
fn append(
    engine: &mut dyn Engine,
    length: usize,
    count: u64,
    group: u64,
    name: &str,
    what: &str,
    path: &Path,
) -> io::Result<()> {
    let mut first = 0;
    engine.scan(&mut |key, _| {
        let number = key.get(1..9).and_then(|bytes| bytes.try_into().ok());
        first = number.map_or(first, |bytes| u64::from_be_bytes(bytes) + 1);
    })?;
    let meter = Meter::start();
    for seq in first..first + count {
        let old = seq.checked_sub(WINDOW).map(load::journal_key);
        // Another each time, or zstd would find the last one again.
        let value = load::bytes(seq, length);
        engine.apply(vec![(load::journal_key(seq), value)], old.into_iter().collect())?;
        if (seq + 1) % group == 0 {
            engine.flush()?;
        }
    }
    engine.flush()?;
    meter.say(name, what, count, "record", path);
    Ok(())
}

/// A checkpoint record of about a hundred bytes.
fn record(number: u64, version: u64) -> Pair {
    (format!("hkey:{number:012}").into_bytes(), load::bytes(number ^ version, 84))
}

fn cpu() -> Duration {
    // SAFETY: getrusage fills the struct it is given, and all zeros is one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// The number behind `field` in a file of /proc.
fn proc(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn written() -> u64 {
    proc("/proc/self/io", "wchar:")
}

fn resident() -> u64 {
    proc("/proc/self/status", "VmRSS:") * 1024
}

fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => size(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(of).sum()
}
