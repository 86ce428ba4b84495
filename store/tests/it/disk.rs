//! The disk: what was flushed is there after a kill, what is damaged is noticed, and nothing makes it worse.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use store::journal::{Database, Disk, DiskError, Op};

/// A folder of its own for each test.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir =
            TempDir(std::env::temp_dir().join(format!("moonshard-disk-{}-{number}", std::process::id())));
        // Left by a process that was killed and had this one's number.
        let _ = fs::remove_dir_all(&dir.0);
        dir
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A test that fails early may not have made it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Batch `seq`: a journal record, some of two hundred others changed or deleted, the oldest journal record dropped.
fn batch(seq: u64) -> Vec<Op> {
    let journal = |seq: u64| [b"l".as_slice(), &seq.to_be_bytes()].concat();
    let value = |length: u64| seq.to_le_bytes().into_iter().cycle().take(length as usize).collect();
    let mut batch = vec![Op::Put(journal(seq), value(seq * 7919 % 5000))];
    for step in 0..4 {
        let number = (seq * 31 + step * 57) % 200;
        let key = format!("{}{number:03}", if number.is_multiple_of(2) { "h" } else { "f" }).into_bytes();
        batch.push(if (seq + step).is_multiple_of(5) {
            Op::Delete(key)
        } else {
            Op::Put(key, value(number))
        });
    }
    batch.extend(seq.checked_sub(20).map(|old| Op::Delete(journal(old))));
    batch
}

/// What must be there after batch `seq`.
fn records(seq: u64) -> Records {
    let mut records = Records::new();
    for op in (1..=seq).flat_map(batch) {
        match op {
            Op::Put(key, value) => records.insert(key, value),
            Op::Delete(key) => records.remove(&key),
        };
    }
    records
}

fn write(disk: &mut dyn Disk, to: u64) {
    for seq in disk.seq() + 1..=to {
        disk.apply(seq, &batch(seq)).expect("a sound disk");
        if seq.is_multiple_of(3) {
            disk.flush().expect("a sound disk");
        }
    }
    disk.flush().expect("a sound disk");
}

fn read(disk: &dyn Disk, prefix: &[u8]) -> Result<Records, DiskError> {
    let mut found = Records::new();
    disk.scan(prefix, &mut |key, value| {
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "a key came twice");
        Ok(())
    })?;
    Ok(found)
}

/// Opens a database and reads all of it.
fn open(dir: &Path) -> Result<(u64, Records), DiskError> {
    let disk = Database::open(dir)?;
    Ok((disk.seq(), read(&disk, b"")?))
}

/// All files below a folder with their content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let content = fs::read(&path).expect("a file");
            found.insert(path, content);
        }
    }
    found
}

/// Puts these files back, and only these.
fn restore(dir: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    fs::remove_dir_all(dir).expect("it is there");
    for (path, content) in files {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }
}

/// Starts one of the parts below, which are run by tests in a process of their own.
fn part(name: &str, dir: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("a running program has a path"))
        .args(["--ignored", "--exact", "--nocapture", &format!("{}::{name}", module())])
        .env("MOONSHARD_DISK_FOLDER", dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    (child, out)
}

/// What the names of tests in this file begin with.
fn module() -> &'static str {
    module_path!().split_once("::").map_or("", |(_, module)| module)
}

fn part_dir() -> PathBuf {
    std::env::var_os("MOONSHARD_DISK_FOLDER").expect("a part gets a folder").into()
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let dir = TempDir::new();
    for seq in [0, 1, 2, 50, 51, 300] {
        let mut disk = Database::open(&dir.0).unwrap();
        if seq > 0 {
            write(&mut disk, seq);
        }
        drop(disk);
        let disk = Database::open(&dir.0).unwrap();
        assert_eq!(disk.seq(), seq);
        assert_eq!(read(&disk, b"").unwrap(), records(seq));
        for prefix in [&b"l"[..], b"h", b"f1", b"f199", b"x", b"\xff"] {
            let mut wanted = records(seq);
            wanted.retain(|key, _| key.starts_with(prefix));
            assert_eq!(read(&disk, prefix).unwrap(), wanted);
        }
    }
}

#[test]
fn steps_of_a_batch_count_in_their_order() {
    let dir = TempDir::new();
    let mut disk = Database::open(&dir.0).unwrap();
    let put = |key: &str, value: &str| Op::Put(key.into(), value.into());
    let delete = |key: &str| Op::Delete(key.into());
    let batch = [put("a", "1"), delete("a"), put("b", "1"), put("b", "2"), delete("c"), put("c", "")];
    disk.apply(5, &batch).unwrap();
    drop(disk);
    let wanted: Records = [("b", "2"), ("c", "")].map(|(key, value)| (key.into(), value.into())).into();
    assert_eq!(open(&dir.0).unwrap(), (5, wanted));
}

#[test]
fn wrong_use_is_refused_and_harms_nothing() {
    let dir = TempDir::new();
    let mut disk = Database::open(&dir.0).unwrap();
    write(&mut disk, 7);
    let refused = |outcome| assert!(matches!(outcome, Err(DiskError::Refused(_))), "{outcome:?}");
    refused(disk.apply(6, &batch(8)));
    refused(disk.apply(8, &[Op::Put(Vec::new(), Vec::new())]));
    refused(disk.apply(8, &[Op::Delete(b"\xffmine".to_vec())]));
    refused(disk.scan(b"", &mut |_, _| Ok(())));
    write(&mut disk, 9);
    drop(disk);
    assert_eq!(open(&dir.0).unwrap(), (9, records(9)));
}

#[test]
fn a_scan_ends_with_the_error_of_its_caller() {
    let dir = TempDir::new();
    write(&mut Database::open(&dir.0).unwrap(), 9);
    let disk = Database::open(&dir.0).unwrap();
    let mut seen = 0;
    let outcome = disk.scan(b"", &mut |_, _| {
        seen += 1;
        Err(DiskError::Refused("enough".to_owned()))
    });
    assert_eq!(outcome.unwrap_err().to_string(), "enough");
    assert_eq!(seen, 1);
}

#[test]
#[ignore = "a part of the next test"]
fn part_writer() {
    let mut disk = Database::open(&part_dir()).unwrap();
    loop {
        let seq = disk.seq() + 1;
        disk.apply(seq, &batch(seq)).unwrap();
        if seq.is_multiple_of(3) {
            disk.flush().unwrap();
            // Not println, which a test harness may keep.
            writeln!(std::io::stdout(), "flushed {seq}.").unwrap();
        }
    }
}

#[test]
fn a_kill_loses_nothing_that_was_flushed_and_no_part_of_a_batch() {
    let dir = TempDir::new();
    let mut flushed = 0;
    for lines in [1, 0, 40, 0, 7, 0, 90] {
        let (mut child, mut out) = part("part_writer", &dir.0);
        let mut line = String::new();
        for _ in 0..lines {
            while !line.starts_with("flushed") {
                line.clear();
                assert!(out.read_line(&mut line).unwrap() > 0, "the writer ended");
            }
            flushed = line["flushed ".len()..].trim_end().trim_end_matches('.').parse().unwrap();
            line.clear();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it could still say counts too, if the kill did not cut it off.
        for line in out.lines().map_while(Result::ok) {
            let number = line.strip_prefix("flushed ").and_then(|line| line.strip_suffix('.'));
            flushed = number.map_or(flushed, |number| number.parse().unwrap());
        }
        let (seq, found) = open(&dir.0).unwrap();
        assert!(seq >= flushed, "{flushed} was flushed, {seq} is there");
        assert_eq!(found, records(seq));
    }
}

#[test]
fn damage_is_noticed_and_nothing_is_made_worse() {
    let dir = TempDir::new();
    write(&mut Database::open(&dir.0).unwrap(), 60);
    // Once more, so that there is a snapshot with something in it and a log after it.
    write(&mut Database::open(&dir.0).unwrap(), 100);
    let whole = files(&dir.0);
    let wanted = (100, records(100));
    let mut noticed: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, content) in &whole {
        let inside = path.strip_prefix(&dir.0).unwrap().to_string_lossy().into_owned();
        let kinds = ["durability_cookie", "snapshot", "log", "slabs", "flushed"];
        let Some(kind) = kinds.into_iter().find(|kind| inside.contains(kind)) else { continue };
        let step = (content.len() / 8).max(1);
        for at in (0..content.len()).step_by(step) {
            for damage in ["flip", "zero", "cut"] {
                let mut content = content.clone();
                match damage {
                    "flip" => content[at] ^= 0x10,
                    "zero" => content[at..].iter_mut().take(64).for_each(|byte| *byte = 0),
                    _ => content.truncate(at),
                }
                let unchanged = content == whole[path];
                let mut damaged = whole.clone();
                damaged.insert(path.clone(), content);
                restore(&dir.0, &damaged);
                match open(&dir.0) {
                    // A slot that is free, or the other one of the mark.
                    Ok(found) => assert!(found == wanted, "{inside}, {damage} at {at}: not what was written"),
                    Err(error) => {
                        assert!(!unchanged && error.is_loss(), "{inside}, {damage} at {at}: {error}");
                        let name = path.file_name().unwrap().to_string_lossy();
                        assert!(error.to_string().contains(&*name), "{inside}, {damage} at {at}: {error}");
                        *noticed.entry(kind).or_default() += 1;
                    }
                }
                assert!(files(&dir.0) == damaged, "{inside}, {damage} at {at}: files were changed");
            }
        }
    }
    for kind in ["durability_cookie", "snapshot", "log", "slabs", "flushed"] {
        assert!(
            noticed.get(kind).is_some_and(|count| *count > 0),
            "{kind}: nothing was noticed: {noticed:?}"
        );
    }
}

#[test]
fn a_missing_file_is_noticed() {
    let dir = TempDir::new();
    write(&mut Database::open(&dir.0).unwrap(), 60);
    write(&mut Database::open(&dir.0).unwrap(), 100);
    let whole = files(&dir.0);
    let mut used = 0;
    for (path, content) in &whole {
        // Those are not read: sled's warning to people, our lock, and slabs in which nothing is.
        let name = path.file_name().unwrap().to_string_lossy();
        if content.is_empty() || name == "lock" {
            continue;
        }
        let mut fewer = whole.clone();
        fewer.remove(path);
        restore(&dir.0, &fewer);
        match open(&dir.0) {
            Ok(found) => assert!(found == (100, records(100)) && path.to_string_lossy().contains("slabs")),
            Err(error) => {
                assert!(error.is_loss(), "without {name}: {error}");
                used += 1;
            }
        }
    }
    assert!(used >= 8, "only {used} files are used");
    restore(&dir.0, &whole);
    fs::remove_dir_all(dir.0.join("sled")).unwrap();
    let error = open(&dir.0).unwrap_err();
    assert!(matches!(error, DiskError::Lost { flushed: 100, found: 0, .. }), "{error}");
}

#[test]
fn an_older_database_is_not_taken_for_the_newest() {
    let dir = TempDir::new();
    write(&mut Database::open(&dir.0).unwrap(), 30);
    let older = files(&dir.0.join("sled"));
    write(&mut Database::open(&dir.0).unwrap(), 60);
    restore(&dir.0.join("sled"), &older);
    let error = open(&dir.0).unwrap_err();
    assert!(error.is_loss(), "{error}");
    assert!(error.to_string().contains("--accept-loss"), "{error}");

    let mut lost = Vec::new();
    let mut disk = Database::open_accepting_loss(&dir.0, &mut |error| lost.push(error)).unwrap();
    assert!(!lost.is_empty());
    // Numbers that were used are not used again.
    assert_eq!(disk.seq(), 60);
    assert_eq!(read(&disk, b"").unwrap(), records(30));
    disk.apply(61, &[Op::Put(b"h new".to_vec(), b"1".to_vec())]).unwrap();
    disk.flush().unwrap();
    drop(disk);
    let (seq, found) = open(&dir.0).unwrap();
    assert_eq!((seq, found.len()), (61, records(30).len() + 1));
}

#[test]
fn who_accepts_a_loss_keeps_the_rest_and_the_evidence() {
    let dir = TempDir::new();
    write(&mut Database::open(&dir.0).unwrap(), 100);
    let path = files(&dir.0.join("sled/slabs"))
        .into_iter()
        .max_by_key(|(_, content)| content.len())
        .map(|(path, _)| path)
        .unwrap();
    let mut content = fs::read(&path).unwrap();
    content.iter_mut().step_by(100).for_each(|byte| *byte ^= 1);
    fs::write(&path, &content).unwrap();
    let damaged = files(&dir.0);

    // Looking at it changes nothing.
    let (mut left, mut problems) = (Records::new(), Vec::new());
    let mut each = |key: &[u8], value: &[u8]| {
        left.insert(key.to_vec(), value.to_vec());
        Ok(())
    };
    let seq = Database::examine(&dir.0, &mut each, &mut |problem| problems.push(problem)).unwrap();
    assert_eq!(seq, 100);
    assert!(files(&dir.0) == damaged);
    assert!(!problems.is_empty() && problems.iter().all(DiskError::is_loss), "{problems:?}");
    let whole = records(100);
    assert!(!left.is_empty() && left.len() < whole.len());
    assert!(left.iter().all(|(key, value)| whole.get(key) == Some(value)));

    assert!(open(&dir.0).unwrap_err().is_loss());
    let mut reported = 0;
    drop(Database::open_accepting_loss(&dir.0, &mut |_| reported += 1).unwrap());
    assert_eq!(reported, problems.len());
    assert_eq!(open(&dir.0).unwrap(), (100, left));
    let kept = dir.0.join("sled.damaged-1/slabs").join(path.file_name().unwrap());
    assert!(fs::read(kept).unwrap() == content);
}

#[test]
fn accepting_a_loss_where_there_is_none_changes_nothing() {
    let dir = TempDir::new();
    write(&mut Database::open(&dir.0).unwrap(), 10);
    let before = files(&dir.0);
    let disk = Database::open_accepting_loss(&dir.0, &mut |error| panic!("{error}")).unwrap();
    assert_eq!(read(&disk, b"").unwrap(), records(10));
    assert!(files(&dir.0) == before);
}

#[test]
#[ignore = "a part of the next test"]
fn part_holder() {
    let mut disk = Database::open(&part_dir()).unwrap();
    write(&mut disk, 3);
    writeln!(std::io::stdout(), "open.").unwrap();
    // Until it is killed.
    std::io::stdin().lines().for_each(drop);
    loop {
        std::thread::park();
    }
}

#[test]
fn only_one_process_has_it_open() {
    let dir = TempDir::new();
    let (mut child, out) = part("part_holder", &dir.0);
    assert!(out.lines().map_while(Result::ok).any(|line| line.contains("open.")), "the other one opened it");
    let error = open(&dir.0).unwrap_err();
    assert!(matches!(error, DiskError::Busy(_)) && error.to_string().contains("in use"), "{error}");
    let examined = Database::examine(&dir.0, &mut |_, _| Ok(()), &mut |_| {});
    assert!(matches!(examined, Err(DiskError::Busy(_))));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(open(&dir.0).unwrap(), (3, records(3)));
}

#[test]
#[ignore = "a part of the next test"]
fn part_full() {
    let mut disk = Database::open(&part_dir()).unwrap();
    write(&mut disk, 30);
    // Files may not grow beyond this: an error like that of a full disk, without a disk to fill.
    limit_files(40_000);
    let mut flushed = disk.seq();
    let error = loop {
        let seq = disk.seq() + 1;
        if let Err(error) = disk.apply(seq, &batch(seq)).and_then(|()| disk.flush()) {
            break error;
        }
        flushed = seq;
    };
    assert!(matches!(error, DiskError::Io { .. }), "{error}");
    // From then on nothing is taken, not even what would fit.
    let next = disk.seq() + 1;
    assert!(matches!(disk.apply(next, &[]), Err(DiskError::Refused(_))));
    assert!(matches!(disk.flush(), Err(DiskError::Refused(_))));
    drop(disk);
    // With room again it goes on, in the same process.
    limit_files(libc::RLIM_INFINITY);
    let mut disk = Database::open(&part_dir()).unwrap();
    assert!(disk.seq() >= flushed);
    let next = disk.seq() + 1;
    write(&mut disk, next);
    drop(disk);
    writeln!(std::io::stdout(), "flushed {next}.").unwrap();
}

/// Lets no file of this process grow beyond so many bytes.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: both take plain values; the signal is ignored so that writing fails with an error instead.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing_that_was_flushed() {
    let dir = TempDir::new();
    let (mut child, out) = part("part_full", &dir.0);
    let lines: Vec<String> = out.lines().map_while(Result::ok).collect();
    assert!(child.wait().unwrap().success(), "{lines:?}");
    let number = |line: &String| line.split("flushed ").nth(1)?.trim_end_matches('.').parse().ok();
    let flushed: u64 = lines.iter().find_map(number).expect("its last words");
    let mut disk = Database::open(&dir.0).unwrap();
    let seq = disk.seq();
    assert!(seq >= flushed && seq >= 30, "{seq} {flushed}");
    assert_eq!(read(&disk, b"").unwrap(), records(seq));
    // With room again it goes on.
    write(&mut disk, seq + 40);
    drop(disk);
    assert_eq!(open(&dir.0).unwrap(), (seq + 40, records(seq + 40)));
}
