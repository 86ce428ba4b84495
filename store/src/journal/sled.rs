//! The disk: sled, the only file that knows it.
//!
//! sled writes well and reads badly (`store/trial/README.md`), so it only writes: what there is is read by
//! [`image`] before sled is opened, which happens with the first batch. On top of what sled checks, every value has a
//! checksum of ours over key and value, the number of the last batch is in the database, and what was flushed last is in
//! a file apart from it ([`watermark`]).
//!
//! A batch is atomic because this is the only writer: what is written to sled between two flushes becomes durable with one
//! frame of its metadata. sled's own batches are not used, since what they delete leaves empty leaves for ever.

mod image;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use self::image::{Image, Judge, Metadata};
use super::directory::{LOCK_TIMEOUT, lock, rename, sync};
use super::disk::{Disk, DiskError, DiskRecord, Each, Op, Open};
use super::watermark::{self, Flushed, Watermark};

/// Records in a leaf, which is written whole when one of them changes. With 16 a fold of most keys takes longer and so does
/// a start, since each leaf is packed apart; with 64 an append of 4 KB costs twice as much.
const FANOUT: usize = 32;

/// zstd's; 3 takes more time for the same size, the levels below 1 save a fifth of the time for 1.4 times the space.
const LEVEL: i32 = 1;

/// The version of our records. Later ones are refused.
const FORMAT: u32 = 1;

/// The record with format and number of the last batch. The highest key shares its leaf with the newest records of the
/// journal, so that most flushes write one leaf and sync one file of leaves.
const HEAD: &[u8] = b"\xff";

/// What sled may keep in memory: it never lets go of a leaf that it wrote, so it is opened anew from time to time. A
/// quarter of the leaves stays in any case, and then opening costs little beside writing them.
const RESIDENT_BYTES: u64 = 48 << 20;

/// A leaf in memory without its records.
const LEAF_BYTES: u64 = 1100;

type Db = sled::Db<FANOUT>;

/// A directory with a database, our lock and the mark.
pub struct Database {
    dir: PathBuf,
    seq: u64,
    state: SledState,
    /// Held as long as this lives.
    _lock: File,
}

enum SledState {
    Reading(Image),
    Writing(Box<SledWriter>),
    /// Ended by an error, in words.
    Dead(String),
}

impl Database {
    /// Whether there is, or has been, a database in `dir`.
    pub fn is_in(dir: &Path) -> bool {
        home(dir).exists() || !matches!(watermark::read(dir), Ok(None))
    }

    /// Opens the database in `dir`, or makes one. Damage in what is read here or by `scan` is an error, and then
    /// nothing was changed.
    pub fn open(dir: &Path) -> Result<Database, DiskError> {
        fs::create_dir_all(dir).map_err(DiskError::io("create", dir))?;
        Database::open_locked(dir, lock(dir, true)?)
    }

    fn open_locked(dir: &Path, lock: File) -> Result<Database, DiskError> {
        let home = home(dir);
        let again = dir.join(AGAIN);
        if !home.exists() && again.exists() {
            rename(dir, &again, &home)?;
        }
        if !home.exists() {
            let flushed = watermark::read(dir)?.unwrap_or_default().seq;
            if flushed > 0 {
                return Err(DiskError::Lost { dir: dir.to_owned(), flushed, found: 0 });
            }
            make(dir, &home, |_| Ok(0))?;
        }
        let (image, seq) = read(dir, &mut Err)?;
        Ok(Database { dir: dir.to_owned(), seq, state: SledState::Reading(image), _lock: lock })
    }

    /// Opens it with what is left of it. What is missing is passed to `lost`; then the damaged files are kept as
    /// `sled.damaged-…`.
    pub fn open_accepting_loss(dir: &Path, lost: &mut dyn FnMut(DiskError)) -> Result<Database, DiskError> {
        let lock = lock(dir, true)?;
        let (home, rescued) = (home(dir), dir.join("sled.rescued"));
        if !home.exists() && rescued.exists() {
            // A crash came between the two renames below.
            rename(dir, &rescued, &home)?;
        }
        if !home.exists() {
            let flushed = watermark::read(dir).unwrap_or(None).unwrap_or_default().seq;
            lost(DiskError::Lost { dir: dir.to_owned(), flushed, found: 0 });
            Watermark::reset(dir, 0)?;
        } else if let Some(seq) = rescue(dir, &rescued, lost)? {
            let aside = (1..).map(|n| dir.join(format!("sled.damaged-{n}"))).find(|path| !path.exists());
            rename(dir, &home, &aside.expect("some number is free"))?;
            rename(dir, &rescued, &home)?;
            Watermark::reset(dir, seq)?;
        }
        Database::open_locked(dir, lock)
    }

    /// Reads a database that no process has open and changes nothing: all records that are whole go to `each`, all that is
    /// wrong goes to `problem`. Returns the number of the last batch.
    pub fn examine(
        dir: &Path,
        each: &mut Each,
        problem: &mut dyn FnMut(DiskError),
    ) -> Result<u64, DiskError> {
        // A copy of a directory may lack it.
        let _lock = if dir.join("lock").exists() { Some(lock(dir, false)?) } else { None };
        examine(dir, each, problem)
    }

    /// Ends this handle: sled must not be used after an error. It is not even dropped, since that flushes, and a flush
    /// after a failed one waits for ever. Its own lock stays, so only another process can open the directory again.
    fn end(&mut self, error: &DiskError) {
        if let SledState::Writing(writer) =
            std::mem::replace(&mut self.state, SledState::Dead(error.to_string()))
        {
            std::mem::forget(writer);
        }
    }

    /// The writer; sled is opened here if it was not.
    fn writer(&mut self) -> Result<&mut SledWriter, DiskError> {
        if let SledState::Reading(image) = &self.state {
            let writer = SledWriter::open(&self.dir, self.seq, image.leaves() as u64)?;
            self.state = SledState::Writing(Box::new(writer));
        }
        match &mut self.state {
            SledState::Writing(writer) => Ok(writer),
            SledState::Dead(why) => {
                Err(DiskError::Refused(format!("writes are disabled after an error: {why}")))
            }
            SledState::Reading(_) => unreachable!("just left"),
        }
    }

    /// Runs `act` with the writer; its error is the end.
    fn write(&mut self, act: impl FnOnce(&mut SledWriter) -> Result<(), DiskError>) -> Result<(), DiskError> {
        let outcome = self.writer().and_then(act);
        if let (Err(error), SledState::Reading(_) | SledState::Writing(_)) = (&outcome, &self.state) {
            self.end(error);
        }
        outcome
    }
}

impl Disk for Database {
    fn seq(&self) -> u64 {
        self.seq
    }

    fn apply(&mut self, seq: u64, batch: &[Op]) -> Result<(), DiskError> {
        if seq < self.seq {
            return Err(DiskError::Refused(format!("batch {seq} after batch {}", self.seq)));
        }
        let ours = |op: &Op| {
            let (Op::Put(key, _) | Op::Delete(key)) = op;
            key.first().is_none_or(|first| *first == HEAD[0])
        };
        if batch.iter().any(ours) {
            return Err(DiskError::Refused("a key is empty or begins with byte 255".to_owned()));
        }
        self.write(|writer| writer.apply(seq, batch))?;
        self.seq = seq;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let seq = self.seq;
        self.write(|writer| writer.flush(seq))
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn keys(&mut self, prefix: &[u8], from: &[u8], most: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        let mut keys = Vec::new();
        self.write(|writer| {
            keys = writer.keys(prefix, from, most)?;
            Ok(())
        })?;
        Ok(keys)
    }

    fn records(&mut self, from: &[u8], most_bytes: usize) -> Result<Vec<DiskRecord>, DiskError> {
        let mut records = Vec::new();
        self.write(|writer| {
            records = writer.records(from, most_bytes)?;
            Ok(())
        })?;
        Ok(records)
    }

    fn scan(&self, prefix: &[u8], each: &mut Each) -> Result<(), DiskError> {
        match &self.state {
            SledState::Reading(image) => scan(image, prefix, &mut Err, &mut |key, value| {
                if key == HEAD { Ok(()) } else { each(key, value) }
            }),
            SledState::Writing(_) => Err(DiskError::Refused("a scan after the first batch".to_owned())),
            SledState::Dead(why) => {
                Err(DiskError::Refused(format!("writes are disabled after an error: {why}")))
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // What was applied and not flushed becomes durable if that works; it was not acknowledged.
        if let SledState::Writing(writer) = &mut self.state
            && let Err(error) = writer.close()
        {
            self.end(&error);
        }
    }
}

/// sled while it is written to.
struct SledWriter {
    home: PathBuf,
    watermark: Watermark,
    /// Not there between closing and opening anew.
    db: Option<Db>,
    /// The newest of sled's logs that is known.
    log: u64,
    /// Leaves of the database when it was opened.
    leaves: u64,
    /// For the mean size of a record.
    puts: u64,
    put_bytes: u64,
    /// See [`RESIDENT_BYTES`].
    most_resident: u64,
}

impl SledWriter {
    fn open(dir: &Path, seq: u64, leaves: u64) -> Result<SledWriter, DiskError> {
        let home = home(dir);
        let db = match open_db(&home) {
            // This process holds the directory: the lock is of an own handle that ended with an error.
            Err(DiskError::Io { error, .. }) if error.kind() == io::ErrorKind::WouldBlock => {
                relink(dir, &home)?;
                Some(open_db(&home)?)
            }
            opened => Some(opened?),
        };
        let watermark = Watermark::open(dir, Flushed { seq, ..Flushed::default() })?;
        Ok(SledWriter {
            home,
            watermark,
            db,
            log: 0,
            leaves,
            puts: 0,
            put_bytes: 0,
            most_resident: RESIDENT_BYTES,
        })
    }

    fn db(&mut self) -> Result<&Db, DiskError> {
        if self.db.is_none() {
            self.db = Some(open_again(&self.home)?);
        }
        Ok(self.db.as_ref().expect("there by now"))
    }

    fn apply(&mut self, seq: u64, batch: &[Op]) -> Result<(), DiskError> {
        for op in batch {
            if let Op::Put(key, value) = op {
                self.puts += 1;
                self.put_bytes += (key.len() + value.len()) as u64;
            }
        }
        let home = self.home.clone();
        let db = self.db()?;
        attempt("write to", &home, || {
            for op in batch {
                match op {
                    Op::Put(key, value) => db.insert(key, sealed(key, value))?,
                    Op::Delete(key) => db.remove(key)?,
                };
            }
            db.insert(HEAD, sealed(HEAD, &head(seq)))
        })?;
        Ok(())
    }

    fn keys(&mut self, prefix: &[u8], from: &[u8], most: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        let home = self.home.clone();
        let db = self.db()?;
        attempt("read", &home, || {
            let found = db.range(from..).take_while(|item| match item {
                Ok((key, _)) => key.starts_with(prefix),
                Err(_) => true,
            });
            found.take(most).map(|item| item.map(|(key, _)| key.to_vec())).collect()
        })
    }

    fn records(&mut self, from: &[u8], most_bytes: usize) -> Result<Vec<DiskRecord>, DiskError> {
        let home = self.home.clone();
        let db = self.db()?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        let found = attempt("read", &home, || {
            for item in db.range(from..) {
                let (key, stored) = item?;
                if &*key == HEAD || (bytes > 0 && bytes + stored.len() > most_bytes) {
                    break;
                }
                bytes += key.len() + stored.len();
                records.push((key.to_vec(), stored.to_vec()));
            }
            Ok(())
        });
        found?;
        for (key, stored) in &mut records {
            let Some(len) = unsealed(key, stored).map(<[u8]>::len) else { return Err(mismatch(&home, key)) };
            stored.truncate(len);
        }
        Ok(records)
    }

    fn flush(&mut self, seq: u64) -> Result<(), DiskError> {
        if let Some(db) = &self.db {
            attempt("write to", &self.home, || db.flush())?;
            let (log, length) = self.newest_log()?;
            self.watermark.write(Flushed { seq, log, length })?;
            self.renew_if_large()?;
        }
        Ok(())
    }

    /// The last log that has anything in it, and its length. Logs are numbered without gaps.
    fn newest_log(&mut self) -> Result<(u64, u64), DiskError> {
        let path = |log| Metadata::log_path(&self.home, log);
        if !path(self.log).exists() {
            self.log = Metadata::list(&self.home)?.logs.last().copied().unwrap_or(0);
        }
        while path(self.log + 1).exists() {
            self.log += 1;
        }
        let path_of_newest = path(self.log);
        let data = fs::metadata(&path_of_newest).map_err(DiskError::io("look at", &path_of_newest))?;
        if data.len() > 0 || self.log == 0 {
            return Ok((self.log, data.len()));
        }
        // An empty one has just been made, and its name is not durable yet. The one before may be in a snapshot by now.
        let before = self.log - 1;
        Ok((before, fs::metadata(path(before)).map_or(0, |data| data.len())))
    }

    /// Closes sled once it keeps much in memory. With a large database that is a share of it, so that opening, which
    /// reads where all leaves are, stays rare.
    fn renew_if_large(&mut self) -> Result<(), DiskError> {
        let Some(db) = &self.db else { return Ok(()) };
        let cache = db.stats().cache;
        let (made, gone) = (cache.heap.allocator.objects_allocated, cache.heap.allocator.objects_freed);
        let resident = (cache.cache_misses + made).saturating_sub(gone);
        let leaf_bytes = LEAF_BYTES + FANOUT as u64 * self.put_bytes / self.puts.max(1);
        if resident * leaf_bytes < self.most_resident || resident < self.leaves / 4 {
            return Ok(());
        }
        self.leaves = (self.leaves + made).saturating_sub(gone);
        self.close()
    }

    fn close(&mut self) -> Result<(), DiskError> {
        self.db.take().map_or(Ok(()), |db| close_db(db, &self.home))
    }
}

/// The disk in a directory, which is created if it does not exist.
pub fn in_dir(dir: PathBuf) -> Open {
    Box::new(move || Ok(Box::new(Database::open(&dir)?)))
}

/// Prepares the process for databases in its directories: for the first lines of `main`.
///
/// sled looks for the program `sync` whenever it is opened, which would flush all disks of the machine and may take
/// seconds. Without `PATH` it finds none. What has to be durable is flushed by this module.
///
/// # Safety
///
/// There must be no other thread, as it could read the environment.
pub unsafe fn prepare_process() {
    // SAFETY: the caller promises that no thread reads the environment.
    unsafe { std::env::set_var("PATH", "") };
}

/// Whether a file or directory of this name, in a directory with a database, belongs to the database. The lock belongs to
/// the directory.
pub fn is_of_database(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name == watermark::NAME || name == "sled" || name.starts_with("sled.")
}

fn home(dir: &Path) -> PathBuf {
    dir.join("sled")
}

/// A value as it is stored: behind it the checksum over key and value.
fn sealed(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(value);
    [value, &crc.finalize().to_le_bytes()].concat()
}

/// The value of a stored one.
fn unsealed<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let value = &stored[..stored.len().checked_sub(4)?];
    (sealed(key, value) == stored).then_some(value)
}

fn head(seq: u64) -> Vec<u8> {
    [FORMAT.to_le_bytes().as_slice(), &seq.to_le_bytes()].concat()
}

/// Reads records and takes our checksums off.
fn scan(image: &Image, prefix: &[u8], judge: &mut Judge, each: &mut Each) -> Result<(), DiskError> {
    let mut wrong = Vec::new();
    image.scan(prefix, judge, &mut |key, stored| match unsealed(key, stored) {
        Some(value) => each(key, value),
        None => {
            wrong.push(key.to_vec());
            Ok(())
        }
    })?;
    wrong.into_iter().try_for_each(|key: Vec<u8>| judge(mismatch(image.dir(), &key)))
}

fn mismatch(file: &Path, key: &[u8]) -> DiskError {
    let what = "our checksum does not match".to_owned();
    DiskError::Damaged { file: file.to_owned(), location: format!("record \"{}\"", key.escape_ascii()), what }
}

/// Reads where everything is and the number of the last batch, and compares that with the mark.
fn read(dir: &Path, judge: &mut Judge) -> Result<(Image, u64), DiskError> {
    let home = home(dir);
    let watermark = watermark::read(dir).or_else(|error| judge(error).map(|()| Some(Flushed::default())))?;
    let image = Image::read(&home, FANOUT, judge)?;
    let Flushed { seq: flushed, log, length } = watermark.unwrap_or_default();
    image.holds(log, length).or_else(&mut *judge)?;
    let mut fields = None;
    scan(&image, HEAD, judge, &mut |_, value| {
        fields = parse_head(value);
        Ok(())
    })?;
    let Some((format, seq)) = fields else {
        let (location, what) = ("the number of the last batch".to_owned(), "it is missing".to_owned());
        judge(DiskError::Damaged { file: home, location, what })?;
        return Ok((image, 0));
    };
    if format > FORMAT {
        return Err(DiskError::Newer { dir: dir.to_owned(), found: format, known: FORMAT });
    }
    if seq < flushed {
        judge(DiskError::Lost { dir: dir.to_owned(), flushed, found: seq })?;
    }
    if watermark.is_none() && seq > 0 {
        judge(watermark::missing(dir))?;
    }
    Ok((image, seq))
}

/// Everything that is whole to `each`, everything that is not to `problem`.
fn examine(dir: &Path, each: &mut Each, problem: &mut dyn FnMut(DiskError)) -> Result<u64, DiskError> {
    let mut judge = |error| {
        problem(error);
        Ok(())
    };
    let (image, seq) = read(dir, &mut judge)?;
    scan(&image, b"", &mut judge, &mut |key, value| if key == HEAD { Ok(()) } else { each(key, value) })?;
    Ok(seq)
}

/// If anything is wrong with a database, copies what is left of it to `target` and returns the number of its last batch.
fn rescue(dir: &Path, target: &Path, lost: &mut dyn FnMut(DiskError)) -> Result<Option<u64>, DiskError> {
    let mut whole = true;
    examine(dir, &mut |_, _| Ok(()), &mut |error| {
        whole = false;
        lost(error);
    })?;
    if whole {
        return Ok(None);
    }
    // Of an attempt that a crash ended.
    let _ = fs::remove_dir_all(target);
    let flushed = watermark::read(dir).unwrap_or(None).unwrap_or_default().seq;
    let seq = make(dir, target, |put| Ok(examine(dir, put, &mut |_| {})?.max(flushed)))?;
    Ok(Some(seq))
}

/// Makes a database at `target`: it gets its name when it is complete. `fill` is given what puts a record and returns
/// the number of the last batch.
fn make(
    dir: &Path,
    target: &Path,
    fill: impl FnOnce(&mut Each) -> Result<u64, DiskError>,
) -> Result<u64, DiskError> {
    let unfinished = dir.join("sled.new");
    // Of an attempt that a crash ended.
    let _ = fs::remove_dir_all(&unfinished);
    // Never dropped on the way out of an error: see close_db.
    let db = ManuallyDrop::new(open_db(&unfinished)?);
    let mut put = |key: &[u8], value: &[u8]| {
        attempt("write to", &unfinished, || db.insert(key, sealed(key, value))).map(drop)
    };
    let seq = fill(&mut put)?;
    put(HEAD, &head(seq))?;
    close_db(ManuallyDrop::into_inner(db), &unfinished)?;
    rename(dir, &unfinished, target)?;
    Ok(seq)
}

fn parse_head(value: &[u8]) -> Option<(u32, u64)> {
    let (format, rest) = value.split_first_chunk()?;
    // A later format may have more behind the number.
    let (seq, _) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*format), u64::from_le_bytes(*seq)))
}

/// Gives the database another directory with the same files: sled's lock, which an ended handle keeps, is on the directory.
fn relink(dir: &Path, home: &Path) -> Result<(), DiskError> {
    let (again, dead) = (dir.join(AGAIN), dir.join("sled.dead"));
    // Of an attempt that a crash ended.
    let _ = fs::remove_dir_all(&again);
    let _ = fs::remove_dir_all(&dead);
    link_files(home, &again)?;
    rename(dir, home, &dead)?;
    rename(dir, &again, home)?;
    fs::remove_dir_all(&dead).map_err(DiskError::io("remove", &dead))
}

/// What becomes the database after a crash in [`relink`].
const AGAIN: &str = "sled.again";

fn link_files(from: &Path, to: &Path) -> Result<(), DiskError> {
    fs::create_dir(to).map_err(DiskError::io("create", to))?;
    for entry in fs::read_dir(from).map_err(DiskError::io("list", from))? {
        let source = entry.map_err(DiskError::io("list", from))?.path();
        let target = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            link_files(&source, &target)?;
        } else {
            fs::hard_link(&source, &target).map_err(DiskError::io("link", &source))?;
        }
    }
    sync(to)
}

fn open_db(path: &Path) -> Result<Db, DiskError> {
    mend(path)?;
    // No flusher of its own, which would flush between two steps of a batch, and abort the process on an error.
    let config = sled::Config::new().path(path).flush_every_ms(None).zstd_compression_level(LEVEL);
    attempt("open", path, || config.open())
}

/// The same for a database that was just closed: sled's lock is released with the last process that inherited it, such as a
/// child before its exec.
fn open_again(path: &Path) -> Result<Db, DiskError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match open_db(path) {
            Err(DiskError::Io { error, .. })
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until =>
            {
                thread::sleep(Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
}

/// Prepares for sled's opening what it would do harm to. A kill during an earlier one can leave a snapshot and no log:
/// then it would write the snapshot anew, under its own name, and delete that as the old one. An empty log prevents
/// that. And it would keep snapshots that are stale, to find them when the newest is gone, and the length that its files
/// once had.
fn mend(path: &Path) -> Result<(), DiskError> {
    let dir = path.join("metadata");
    if !dir.exists() {
        return Ok(());
    }
    let Metadata { snapshots, logs } = Metadata::list(path)?;
    let Some((newest, stale)) = snapshots.split_last() else { return Ok(()) };
    for number in stale {
        let path = Metadata::snapshot_path(path, *number);
        fs::remove_file(&path).map_err(DiskError::io("remove", &path))?;
    }
    shorten(path, &logs)?;
    if logs.last().is_none_or(|log| log <= newest) {
        let path = Metadata::log_path(path, newest + 1);
        File::create(&path).map_err(DiskError::io("create", &path))?;
    }
    sync(&dir)
}

/// Cuts off files of leaves what nothing is in. sled does that too, but only if it has made the file as long itself since
/// it was opened.
fn shorten(path: &Path, logs: &[u64]) -> Result<(), DiskError> {
    let too_long = |(slab, end): &(PathBuf, u64)| fs::metadata(slab).is_ok_and(|data| data.len() > *end);
    let slabs: Vec<_> = Image::read(path, FANOUT, &mut Err)?.used().filter(too_long).collect();
    if slabs.is_empty() {
        return Ok(());
    }
    // What was there before the last frames may not come back, and after a kill they may not be durable yet.
    for log in logs {
        sync(&Metadata::log_path(path, *log))?;
    }
    for (slab, end) in slabs {
        let file = File::options().write(true).open(&slab).map_err(DiskError::io("open", &slab))?;
        file.set_len(end).map_err(DiskError::io("shorten", &slab))?;
    }
    Ok(())
}

/// Closes sled. Dropping it flushes several times, and waits for ever if one of these fails: so it is flushed as often
/// as it has anything to write or to move, and then there is nothing that could fail.
fn close_db(db: Db, path: &Path) -> Result<(), DiskError> {
    let mut quiet = 0;
    while quiet < 3 {
        match attempt("write to", path, || db.flush()) {
            Ok(stats) if stats.objects_flushed == 0 => quiet += 1,
            Ok(_) => quiet = 0,
            Err(error) => {
                std::mem::forget(db);
                return Err(error);
            }
        }
    }
    attempt("close", path, || {
        drop(db);
        Ok(())
    })
}

/// Calls sled, whose panics become errors.
fn attempt<T>(doing: &'static str, path: &Path, act: impl FnOnce() -> io::Result<T>) -> Result<T, DiskError> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(outcome) => outcome.map_err(DiskError::io(doing, path)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let what = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
            Err(DiskError::Panic { doing, dir: path.to_owned(), what: what.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests;
