//! The versions of sled, and a plain file to compare them with, behind one interface.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// What the tests call: one writer, batches, flushes, and one scan at the start.
pub trait Engine {
    /// Applies puts and deletes as one atomic step.
    fn apply(&mut self, puts: Vec<Pair>, deletes: Vec<Vec<u8>>) -> io::Result<()>;
    /// Makes everything durable that was applied.
    fn flush(&mut self) -> io::Result<()>;
    /// Calls `each` with every record in the order of the keys.
    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()>;
}

/// Names of the engines for the command line: `plain`, `old`, `new<fanout>`, with `/<zstd level>` and with `+care`,
/// which walks around two bugs: no batches, and [`mend`].
pub fn open(name: &str, path: &Path) -> io::Result<Box<dyn Engine>> {
    let (name, careful) = name.strip_suffix("+care").map_or((name, false), |name| (name, true));
    let (name, level) = name.split_once('/').unwrap_or((name, "3"));
    let config = sled_new::Config::new()
        .path(path)
        .flush_every_ms(None)
        .zstd_compression_level(level.parse().map_err(io::Error::other)?);
    if careful {
        mend(&path.join("metadata"))?;
    }
    Ok(match name {
        "plain" => Box::new(Plain::open(path)?),
        "old" => Box::new(Old(sled_old::Config::new()
            .path(path)
            .flush_every_ms(None)
            .cache_capacity(64 << 20)
            .open()?)),
        "new8" => Box::new(New { db: config.open::<8>()?, careful }),
        "new16" => Box::new(New { db: config.open::<16>()?, careful }),
        "new64" => Box::new(New { db: config.open::<64>()?, careful }),
        "new256" => Box::new(New { db: config.open::<256>()?, careful }),
        "new1024" => Box::new(New { db: config.open::<1024>()?, careful }),
        _ => return Err(io::Error::other(format!("no engine is called {name}"))),
    })
}

struct Old(sled_old::Db);

impl Engine for Old {
    fn apply(&mut self, puts: Vec<Pair>, deletes: Vec<Vec<u8>>) -> io::Result<()> {
        let mut batch = sled_old::Batch::default();
        for (key, value) in puts {
            batch.insert(key, value);
        }
        for key in deletes {
            batch.remove(key);
        }
        Ok(self.0.apply_batch(batch)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        Ok(())
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        for pair in self.0.iter() {
            let (key, value) = pair?;
            each(&key, &value);
        }
        Ok(())
    }
}

struct New<const FANOUT: usize> {
    db: sled_new::Db<FANOUT>,
    /// Without batches: only a delete outside of one gives back a leaf that became empty.
    careful: bool,
}

impl<const FANOUT: usize> Engine for New<FANOUT> {
    fn apply(&mut self, puts: Vec<Pair>, deletes: Vec<Vec<u8>>) -> io::Result<()> {
        if self.careful {
            // As whole as a batch, since nobody else writes or flushes in between.
            for (key, value) in puts {
                self.db.insert(key, value)?;
            }
            for key in deletes {
                self.db.remove(key)?;
            }
            return Ok(());
        }
        let mut batch = sled_new::Batch::default();
        for (key, value) in puts {
            batch.insert(key, value);
        }
        for key in deletes {
            batch.remove(key);
        }
        self.db.apply_batch(batch)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.db.flush()?;
        Ok(())
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        for pair in self.db.iter() {
            let (key, value) = pair?;
            each(&key, &value);
        }
        Ok(())
    }
}

/// Opening with a snapshot and no log, as a kill during an earlier opening leaves them, deletes the snapshot: it is
/// written anew under its own name and then removed as the old one. An empty log prevents that.
fn mend(metadata: &Path) -> io::Result<()> {
    // Not there the first time.
    let Ok(entries) = std::fs::read_dir(metadata) else { return Ok(()) };
    let (mut snapshot, mut log) = (None, None);
    for entry in entries {
        let name = entry?.file_name().into_string().unwrap_or_default();
        let number = |prefix| u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok();
        snapshot = snapshot.max(number("snapshot_"));
        log = log.max(number("log_"));
    }
    if let Some(snapshot) = snapshot.filter(|snapshot| log.is_none_or(|log| log <= *snapshot)) {
        File::create(metadata.join(format!("log_{:016x}", snapshot + 1)))?;
    }
    Ok(())
}

/// What a disk costs without any database: append to a file, fsync.
struct Plain(File);

impl Plain {
    fn open(path: &Path) -> io::Result<Plain> {
        std::fs::create_dir_all(path)?;
        Ok(Plain(OpenOptions::new().create(true).append(true).open(path.join("log"))?))
    }
}

impl Engine for Plain {
    fn apply(&mut self, puts: Vec<Pair>, _deletes: Vec<Vec<u8>>) -> io::Result<()> {
        let bytes: Vec<u8> = puts.into_iter().flat_map(|(key, value)| [key, value].concat()).collect();
        let crc = crc32fast::hash(&bytes);
        self.0.write_all(&bytes)?;
        self.0.write_all(&crc.to_le_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn scan(&self, _each: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        Ok(())
    }
}
