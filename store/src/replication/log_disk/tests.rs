//! Logs that are written, cut off, damaged and read again.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::journal::testing::TempDir;

/// Records of three groups: what the disk holds.
type Records = BTreeMap<(u32, LogKey), Vec<u8>>;

fn open(dir: &TempDir) -> Result<LogDisk, DiskError> {
    LogDisk::open(&dir.0).map(|disk| LogDisk { segment_bytes: 300, ..disk })
}

fn records(disk: &LogDisk) -> Records {
    let mut records = Records::new();
    for (group, saved) in &disk.logs {
        let state = saved.state.iter().map(|state| (LogKey::State, state.clone()));
        let entries = saved.entries.iter().map(|(index, entry)| (LogKey::Entry(*index), entry.clone()));
        records.extend(state.chain(entries).map(|(key, record)| ((group.0, key), record)));
    }
    records
}

fn files(dir: &TempDir) -> Vec<PathBuf> {
    segment::list(&dir.0).unwrap().into_iter().map(|number| segment::path_of(&dir.0, number)).collect()
}

/// The logs of a directory with several segments, and its disk.
fn written(dir: &TempDir) -> Records {
    let mut disk = open(dir).unwrap();
    disk.found(b"founding".to_vec());
    for index in 1..=20 {
        let record = vec![index as u8; 50];
        disk.add(GroupId(index as u32 % 3), vec![LogChange::Put(LogKey::Entry(index), record)]);
        disk.write(true).unwrap();
    }
    assert!(files(dir).len() > 3);
    drop(disk);
    records(&open(dir).unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    Change(u32, LogChange),
    Write {
        must_flush: bool,
    },
    /// The process ends, and what it has left has a part of a frame at its end.
    Reopen(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![Just(LogKey::State), (1..30_u64).prop_map(LogKey::Entry)];
    let change = (key, proptest::option::of(proptest::collection::vec(any::<u8>(), 0..100)));
    let change = (0..3_u32, change).prop_map(|(group, (key, record))| {
        Step::Change(group, record.map_or(LogChange::Delete(key), |record| LogChange::Put(key, record)))
    });
    prop_oneof![
        8 => change,
        4 => any::<bool>().prop_map(|must_flush| Step::Write { must_flush }),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_was_flushed_is_read_again(steps in proptest::collection::vec(step(), 1..200)) {
        let dir = TempDir::new("steps");
        let mut disk = open(&dir).unwrap();
        let (mut now, mut flushed) = (Records::new(), Records::new());
        for step in steps {
            match step {
                Step::Change(group, change) => {
                    match change.clone() {
                        LogChange::Put(key, record) => drop(now.insert((group, key), record)),
                        LogChange::Delete(key) => drop(now.remove(&(group, key))),
                    }
                    disk.add(GroupId(group), vec![change]);
                }
                Step::Write { must_flush } => {
                    disk.write(must_flush).unwrap();
                    if must_flush {
                        flushed = now.clone();
                    }
                    let valid: u64 = flushed.values().map(|record| record.len() as u64).sum();
                    prop_assert!(files(&dir).len() as u64 <= SPARE_SEGMENTS + 1 + 2 * valid / 300);
                }
                Step::Reopen(torn) => {
                    drop(disk);
                    if let Some(last) = files(&dir).last() {
                        let mut bytes = fs::read(last).unwrap();
                        bytes.extend(torn);
                        fs::write(last, bytes).unwrap();
                    }
                    disk = open(&dir).unwrap();
                    prop_assert_eq!(&records(&disk), &flushed);
                    now = flushed.clone();
                }
            }
        }
        drop(disk);
        prop_assert_eq!(records(&open(&dir).unwrap()), flushed);
    }
}

#[test]
fn no_damage_is_taken_for_the_end() {
    let dir = TempDir::new("damage");
    let expected = written(&dir);
    for file in files(&dir) {
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            fs::write(&file, &bytes).unwrap();
            match open(&dir) {
                Err(error) => assert!(error.is_loss() || matches!(error, DiskError::Newer { .. }), "{error}"),
                Ok(_) => panic!("{} with another byte {at} is read", file.display()),
            }
            fs::write(&file, &bytes[..at]).unwrap();
            assert!(open(&dir).is_err_and(|error| error.is_loss()), "{} without byte {at}", file.display());
        }
        fs::remove_file(&file).unwrap();
        let opened = open(&dir);
        // Of the oldest one all that is left is in the entries, which the replica looks at.
        assert!(
            opened.is_err_and(|error| error.is_loss()) || file == files(&dir)[0] || files(&dir)[0] > file
        );
        fs::write(&file, &whole).unwrap();
    }
    assert_eq!(records(&open(&dir).unwrap()), expected);
    let second = &files(&dir)[1];
    let whole = fs::read(second).unwrap();
    fs::remove_file(second).unwrap();
    assert!(open(&dir).is_err_and(|error| error.is_loss()), "without {}", second.display());
    fs::write(second, whole).unwrap();
    fs::remove_file(dir.0.join(watermark::NAME)).unwrap();
    assert!(open(&dir).is_err_and(|error| error.is_loss()));
}

#[test]
fn a_segment_that_was_not_created_whole_is_replaced() {
    let dir = TempDir::new("unfinished");
    let mut expected = written(&dir);
    let next = segment::list(&dir.0).unwrap().last().unwrap() + 1;
    for length in [0, 1, 19] {
        fs::write(segment::path_of(&dir.0, next), &b"moonlogs\x01\0\0\0\0\0\0\0\0\0\0"[..length]).unwrap();
        let mut disk = open(&dir).unwrap();
        assert_eq!(records(&disk), expected);
        assert!(!segment::path_of(&dir.0, next).exists());
        if length == 19 {
            disk.add(GroupId(1), vec![LogChange::Put(LogKey::State, b"state".to_vec())]);
            disk.write(true).unwrap();
            expected.insert((1, LogKey::State), b"state".to_vec());
        }
    }
    assert_eq!(records(&open(&dir).unwrap()), expected);
}

#[test]
fn a_directory_is_open_once() {
    let dir = TempDir::new("lock");
    let first = open(&dir).unwrap();
    assert!(matches!(open(&dir), Err(DiskError::Busy(_))));
    drop(first);
    open(&dir).unwrap();
}

#[test]
fn what_an_error_has_prevented_is_written_later() {
    let dir = TempDir::new("error");
    let mut disk = open(&dir).unwrap();
    fs::create_dir(segment::path_of(&dir.0, 1)).unwrap();
    disk.found(b"founding".to_vec());
    for _ in 0..2 {
        assert!(matches!(disk.write(true), Err(DiskError::Io { .. })));
    }
    fs::remove_dir(segment::path_of(&dir.0, 1)).unwrap();
    disk.write(true).unwrap();
    let state = |text: &[u8]| vec![LogChange::Put(LogKey::State, text.to_vec())];
    disk.add(GroupId(1), state(b"first"));
    disk.write(true).unwrap();
    // As after a frame of which the disk took the first half.
    let Some(last) = disk.last.take() else { panic!("it was written to") };
    disk.broken = Some((last.number, last.length()));
    let path = segment::path_of(&dir.0, last.number);
    fs::write(&path, [fs::read(&path).unwrap(), b"half".to_vec()].concat()).unwrap();
    disk.add(GroupId(1), state(b"second"));
    disk.write(true).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), last.length());
    drop(disk);
    let disk = open(&dir).unwrap();
    assert_eq!(disk.founding(), Some(&b"founding"[..]));
    assert_eq!(records(&disk), Records::from([((1, LogKey::State), b"second".to_vec())]));
}

#[test]
fn a_group_without_traffic_holds_up_few_segments() {
    let dir = TempDir::new("idle");
    let mut disk = open(&dir).unwrap();
    disk.add(GroupId(7), vec![LogChange::Put(LogKey::State, b"idle".to_vec())]);
    for round in 0..200_u8 {
        disk.add(GroupId(1), vec![LogChange::Put(LogKey::State, vec![round; 50])]);
        disk.write(true).unwrap();
        assert!(files(&dir).len() as u64 <= SPARE_SEGMENTS);
    }
    drop(disk);
    let found = records(&open(&dir).unwrap());
    assert_eq!(found[&(7, LogKey::State)], b"idle");
    assert_eq!(found[&(1, LogKey::State)], [199; 50]);
}
