//! What needs to look inside.

use super::*;
use crate::journal::testing::TempDir;

fn count(disk: &Database) -> usize {
    let mut count = 0;
    disk.scan(b"", &mut |_, _| {
        count += 1;
        Ok(())
    })
    .unwrap();
    count
}

#[test]
fn a_later_format_is_refused() {
    let dir = TempDir::new("format");
    drop(Database::open(&dir.0).unwrap());
    let db = open_again(&home(&dir.0)).unwrap();
    let later = [(FORMAT + 1).to_le_bytes().as_slice(), &7_u64.to_le_bytes(), b"more"].concat();
    db.insert(HEAD, sealed(HEAD, &later)).unwrap();
    close_db(db, &dir.0).unwrap();
    for outcome in [Database::open(&dir.0), Database::open_accepting_loss(&dir.0, &mut |_| {})] {
        let error = outcome.err().expect("it is not opened");
        assert!(matches!(error, DiskError::Newer { found: 2, known: FORMAT, .. }), "{error}");
    }
}

#[test]
fn a_record_with_a_wrong_checksum_is_refused_by_name() {
    let dir = TempDir::new("checksum");
    drop(Database::open(&dir.0).unwrap());
    let db = open_again(&home(&dir.0)).unwrap();
    db.insert("h good", sealed(b"h good", b"1")).unwrap();
    // A value that belongs to another key.
    db.insert("h bad", sealed(b"h good", b"1")).unwrap();
    close_db(db, &dir.0).unwrap();
    let disk = Database::open(&dir.0).unwrap();
    let error = disk.scan(b"", &mut |_, _| Ok(())).unwrap_err();
    assert!(error.is_loss() && error.to_string().contains("record \"h bad\""), "{error}");
}

#[test]
fn sled_opens_after_a_kill_between_its_snapshot_and_its_log() {
    let dir = TempDir::new("between");
    let mut disk = Database::open(&dir.0).unwrap();
    disk.apply(1, &[Op::Put(b"h".to_vec(), b"1".to_vec())]).unwrap();
    disk.flush().unwrap();
    drop(disk);
    let home = home(&dir.0);
    let Metadata { snapshots, .. } = Metadata::list(&home).unwrap();
    let stale = Metadata::snapshot_path(&home, snapshots[0]);
    let old = fs::read(&stale).unwrap();
    for round in 0..3 {
        // Opening makes the log that the kill prevented.
        close_db(open_again(&home).unwrap(), &home).unwrap();
        for log in Metadata::list(&home).unwrap().logs {
            fs::remove_file(Metadata::log_path(&home, log)).unwrap();
        }
        if round == 0 {
            fs::write(&stale, &old).unwrap();
        }
        let disk = Database::open(&dir.0).unwrap();
        assert_eq!((disk.seq(), count(&disk)), (1, 1));
    }
    assert!(!stale.exists());
}

#[test]
fn memory_is_given_back_and_nothing_is_lost_by_that() {
    let dir = TempDir::new("renew");
    let mut disk = Database::open(&dir.0).unwrap();
    let mut renewed = 0;
    for seq in 1..=300 {
        let op =
            |n: u64| Op::Put(format!("h{:05}", (seq * 977 + n * 613) % 5000).into_bytes(), vec![b'x'; 50]);
        disk.apply(seq, &(0..20).map(op).collect::<Vec<_>>()).unwrap();
        disk.writer().unwrap().most_resident = 100_000;
        disk.flush().unwrap();
        renewed += usize::from(disk.writer().unwrap().db.is_none());
    }
    drop(disk);
    assert!(renewed > 2, "{renewed}");
    let disk = Database::open(&dir.0).unwrap();
    let keys: std::collections::HashSet<u64> =
        (1..=300).flat_map(|seq| (0..20).map(move |n| (seq * 977 + n * 613) % 5000)).collect();
    assert_eq!((disk.seq(), count(&disk)), (300, keys.len()));
}

#[test]
fn leaves_that_became_empty_are_given_back() {
    let dir = TempDir::new("leaves");
    let mut disk = Database::open(&dir.0).unwrap();
    let key = |seq: u64| [b"l".as_slice(), &seq.to_be_bytes()].concat();
    for seq in 1..=2_000_u64 {
        let trimmed = seq.checked_sub(40).map(|old| Op::Delete(key(old)));
        let batch: Vec<Op> = [Op::Put(key(seq), vec![b'x'; 20])].into_iter().chain(trimmed).collect();
        disk.apply(seq, &batch).unwrap();
        if seq % 50 == 0 {
            disk.flush().unwrap();
        }
    }
    drop(disk);
    let (image, _) = read(&dir.0, &mut Err).unwrap();
    assert!(image.leaves() < 20, "{} leaves for 40 records", image.leaves());
}

#[test]
fn a_panic_is_an_error_and_the_end() {
    let dir = TempDir::new("panic");
    let mut disk = Database::open(&dir.0).unwrap();
    disk.apply(1, &[]).unwrap();
    disk.flush().unwrap();
    let home = home(&dir.0);
    let outcome = disk.write(|_| attempt("write to", &home, || panic!("out of {}", "luck")));
    assert!(outcome.unwrap_err().to_string().contains("out of luck"));
    for outcome in [disk.apply(2, &[]), disk.flush(), disk.scan(b"", &mut |_, _| Ok(()))] {
        assert!(
            outcome
                .unwrap_err()
                .to_string()
                .contains("writes are disabled after an error: could not write to")
        );
    }
}

/// Removes five hundred records and writes one; whether sled has left their room when it was closed in between.
fn empty_and_write(attempt: u32) -> bool {
    let dir = TempDir::new(&format!("room-{attempt}"));
    let room = || -> u64 {
        let slabs = fs::read_dir(home(&dir.0).join("slabs")).unwrap();
        slabs.map(|slab| slab.unwrap().metadata().unwrap().len()).sum()
    };
    let mut disk = Database::open(&dir.0).unwrap();
    // What cannot be compressed.
    let value =
        |n: u32| (0..1000).flat_map(move |at| crc32fast::hash(&(n * 1000 + at).to_le_bytes()).to_le_bytes());
    let put = |n: u32| Op::Put(format!("h{n:03}").into_bytes(), value(n).collect());
    disk.apply(1, &(0..500).map(put).collect::<Vec<_>>()).unwrap();
    disk.flush().unwrap();
    let delete = |n: u32| Op::Delete(format!("h{n:03}").into_bytes());
    disk.apply(2, &(0..500).map(delete).collect::<Vec<_>>()).unwrap();
    disk.flush().unwrap();
    drop(disk);
    let left = room();
    let mut disk = Database::open(&dir.0).unwrap();
    disk.apply(3, &[put(7)]).unwrap();
    disk.flush().unwrap();
    drop(disk);
    assert!(room() < 20_000, "{} bytes for one record", room());
    assert_eq!(count(&Database::open(&dir.0).unwrap()), 1);
    left > 2_000_000
}

#[test]
fn room_that_nothing_is_in_is_given_back() {
    // Now and then sled cuts it off by itself.
    assert!((0..10).any(empty_and_write), "sled always cuts off more by itself now");
}
