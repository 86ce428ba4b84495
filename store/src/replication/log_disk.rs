//! The logs of all groups of a process in one directory, so that one flush is for all of them.
//!
//! They are read at the start only: a replica has its log in memory. So the directory has segments ([`segment`]) to which
//! records are appended. Each record replaces the one before it in the same place, which may be in an older segment; the
//! oldest segments are deleted once all of their records are replaced or deleted. A record that would hold up too many
//! of them, of a group without traffic, is appended again.

mod segment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use consensus::{LogChange, LogKey, Saved};
use proto::disk::v1 as disk;
use proto::disk::v1::log_record::Kind;

use self::segment::{Contents, Segment};
use super::group_id::GroupId;
use crate::journal::directory::{lock, sync};
use crate::journal::watermark::{self, Flushed, Watermark};
use crate::journal::{DiskError, fail_point};

/// A segment that is longer is followed by another one.
const SEGMENT_BYTES: u64 = 8 << 20;
/// Segments may be so many beside those that the valid records fill twice over.
const SPARE_SEGMENTS: u64 = 4;
/// Changes that need not be flushed wait in memory until there are so many bytes of them, or one that has to be flushed.
const WAITING_BYTES: usize = 1 << 20;

/// Which record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Founding,
    State(GroupId),
    Entry(GroupId, u64),
}

/// Where a valid record is.
struct Place {
    segment: u64,
    bytes: u64,
}

/// A directory with logs.
pub struct LogDisk {
    dir: PathBuf,
    watermark: Watermark,
    /// The number of the last frame.
    number: u64,
    /// How many valid records each segment has.
    segments: BTreeMap<u64, usize>,
    /// The last segment, once this process has written to it.
    last: Option<Segment>,
    places: BTreeMap<Key, Place>,
    valid_bytes: u64,
    waiting: Vec<disk::LogRecord>,
    waiting_bytes: usize,
    /// After an error: the segment that may have a part of a frame behind this length, or one that was not flushed.
    broken: Option<(u64, u64)>,
    segment_bytes: u64,
    /// As they were read, of groups without a replica yet.
    logs: BTreeMap<GroupId, Saved>,
    founding: Option<Vec<u8>>,
    /// Held as long as this lives.
    _lock: File,
}

impl LogDisk {
    /// Reads all logs of a directory, which is created if it does not exist.
    pub fn open(dir: &Path) -> Result<LogDisk, DiskError> {
        fs::create_dir_all(dir).map_err(DiskError::io("create", dir))?;
        dir.parent().map_or(Ok(()), sync)?;
        let lock = lock(dir, true)?;
        let flushed = watermark::read(dir)?;
        let Read { records, number, segments, unfinished } = read(dir)?;
        let mark = flushed.unwrap_or_default().seq;
        if number < mark {
            return Err(DiskError::Lost { dir: dir.to_owned(), flushed: mark, found: number });
        }
        if flushed.is_none() && number > 0 {
            return Err(watermark::missing(dir));
        }
        unfinished.map_or(Ok(()), |segment| segment::delete(dir, segment))?;
        segments.keys().try_for_each(|segment| segment::flush(dir, *segment))?;
        let mut disk = LogDisk {
            dir: dir.to_owned(),
            watermark: Watermark::open(dir, Flushed::default())?,
            number,
            segments,
            last: None,
            places: BTreeMap::new(),
            valid_bytes: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            broken: None,
            segment_bytes: SEGMENT_BYTES,
            logs: BTreeMap::new(),
            founding: None,
            _lock: lock,
        };
        for (key, (segment, content)) in records {
            disk.place(key, Some(Place { segment, bytes: content.len() as u64 }));
            match key {
                Key::Founding => disk.founding = Some(content.into()),
                Key::State(group) => disk.logs.entry(group).or_default().state = Some(content.into()),
                Key::Entry(group, index) => {
                    disk.logs.entry(group).or_default().entries.push((index, content.into()));
                }
            }
        }
        Ok(disk)
    }

    /// Which cluster the process belonged to when the logs were read, as [`Founding::to_record`] wrote it; none if to none.
    ///
    /// [`Founding::to_record`]: super::Founding::to_record
    pub fn founding(&self) -> Option<&[u8]> {
        self.founding.as_deref()
    }

    /// The process belongs to this cluster from now on, as soon as that is written.
    pub fn found(&mut self, record: Vec<u8>) {
        self.wait(Key::Founding, Some(record));
    }

    /// The groups whose logs were read and not taken.
    pub fn groups(&self) -> Vec<GroupId> {
        self.logs.keys().copied().collect()
    }

    /// Deletes a log that was read and not taken. Durable when this returns.
    pub fn forget(&mut self, group: GroupId) -> Result<(), DiskError> {
        let entries = self.take(group).entries;
        let keys = entries.into_iter().map(|(index, _)| LogKey::Entry(index)).chain([LogKey::State]);
        self.add(group, keys.map(LogChange::Delete).collect());
        self.write(true)
    }

    /// Takes the log of a group as it was read.
    pub(super) fn take(&mut self, group: GroupId) -> Saved {
        self.logs.remove(&group).unwrap_or_default()
    }

    /// Adds changes of a group's log to the next frame.
    pub(super) fn add(&mut self, group: GroupId, changes: Vec<LogChange>) {
        let key = |key| match key {
            LogKey::State => Key::State(group),
            LogKey::Entry(index) => Key::Entry(group, index),
        };
        for change in changes {
            match change {
                LogChange::Put(at, content) => self.wait(key(at), Some(content)),
                LogChange::Delete(at) => self.wait(key(at), None),
            }
        }
    }

    fn wait(&mut self, key: Key, content: Option<Vec<u8>>) {
        self.waiting_bytes += size_of::<disk::LogRecord>() + content.as_ref().map_or(0, Vec::len);
        self.waiting.push(record_of(key, content.map(Bytes::from)));
    }

    /// All changes are durable when this returns if it `must_flush`. Without that a crash may lose the newest ones. After an error
    /// nothing is lost: the next write has the changes of this one.
    pub fn write(&mut self, must_flush: bool) -> Result<(), DiskError> {
        if self.waiting.is_empty() || (!must_flush && self.waiting_bytes < WAITING_BYTES) {
            return Ok(());
        }
        let frame = disk::LogFrame { number: self.number + 1, records: std::mem::take(&mut self.waiting) };
        let appended = self.append(&frame);
        if appended.is_err() {
            self.waiting = frame.records;
            return appended;
        }
        self.waiting_bytes = 0;
        self.delete_replaced()?;
        let spare = SPARE_SEGMENTS + 2 * self.valid_bytes / self.segment_bytes;
        if self.segments.len() as u64 > spare {
            self.append_oldest_again()?;
            self.delete_replaced()?;
        }
        Ok(())
    }

    /// Appends a frame, which is durable when this returns. After an error it is not there.
    fn append(&mut self, frame: &disk::LogFrame) -> Result<(), DiskError> {
        if let Some((segment, length)) = self.broken {
            segment::shorten(&self.dir, segment, length)?;
            self.broken = None;
        }
        fail_point::reach("log")?;
        let last = match self.last.take() {
            Some(segment) if segment.length() < self.segment_bytes => segment,
            _ => {
                let number = self.segments.keys().last().map_or(1, |last| last + 1);
                let segment = Segment::create(&self.dir, number, frame.number)?;
                self.segments.insert(number, 0);
                segment
            }
        };
        let last = self.last.insert(last);
        let (log, before) = (last.number, last.length());
        if let Err(error) = last.append(frame) {
            // After a flush that failed the system may take for written what is not.
            (self.broken, self.last) = (Some((log, before)), None);
            return Err(error);
        }
        let length = last.length();
        self.number = frame.number;
        self.watermark.note(Flushed { seq: frame.number, log, length })?;
        for record in &frame.records {
            // Of our own records.
            let Some(key) = key_of(record) else { continue };
            let place = |content: &Bytes| Place { segment: log, bytes: content.len() as u64 };
            self.place(key, record.content.as_ref().map(place));
        }
        Ok(())
    }

    /// The valid record is there now.
    fn place(&mut self, key: Key, place: Option<Place>) {
        if let Some(Place { segment, bytes }) = &place {
            *self.segments.entry(*segment).or_default() += 1;
            self.valid_bytes += bytes;
        }
        let before = match place {
            Some(place) => self.places.insert(key, place),
            None => self.places.remove(&key),
        };
        if let Some(Place { segment, bytes }) = before {
            *self.segments.entry(segment).or_default() -= 1;
            self.valid_bytes -= bytes;
        }
    }

    /// Deletes segments from the oldest on, as long as they have no valid record: what deletes a record is never older than
    /// the record.
    fn delete_replaced(&mut self) -> Result<(), DiskError> {
        while let Some((&oldest, 0)) = self.segments.first_key_value()
            && self.last.as_ref().is_some_and(|last| last.number != oldest)
        {
            segment::delete(&self.dir, oldest)?;
            self.segments.remove(&oldest);
        }
        Ok(())
    }

    /// Appends the valid records of the oldest segment to the last one.
    fn append_oldest_again(&mut self) -> Result<(), DiskError> {
        let Some((&oldest, _)) = self.segments.first_key_value() else { return Ok(()) };
        let mut valid = BTreeMap::new();
        for frame in segment::read(&self.dir, oldest)?.into_iter().flat_map(Contents::frames) {
            for record in frame?.records {
                let is_there = |key: &Key| self.places.get(key).is_some_and(|place| place.segment == oldest);
                // The last one in the segment is the valid one.
                if let Some(key) = key_of(&record).filter(is_there) {
                    valid.insert(key, record);
                }
            }
        }
        let records = valid.into_values().collect();
        self.append(&disk::LogFrame { number: self.number + 1, records })
    }
}

/// What a directory has.
struct Read {
    /// The valid records, with the segments that have them.
    records: BTreeMap<Key, (u64, Bytes)>,
    /// The number of the last frame.
    number: u64,
    segments: BTreeMap<u64, usize>,
    /// The last segment, if it was not created whole.
    unfinished: Option<u64>,
}

fn read(dir: &Path) -> Result<Read, DiskError> {
    let mut read = Read { records: BTreeMap::new(), number: 0, segments: BTreeMap::new(), unfinished: None };
    for segment in segment::list(dir)? {
        if let Some(unfinished) = read.unfinished {
            return Err(damaged(dir, format!("segment {unfinished} has no header")));
        }
        let Some(contents) = segment::read(dir, segment)? else {
            read.unfinished = Some(segment);
            continue;
        };
        if read.segments.is_empty() {
            read.number = contents.first.saturating_sub(1);
        } else if contents.first != read.number + 1 {
            return Err(damaged(dir, format!("frame {} follows frame {}", contents.first, read.number)));
        }
        read.segments.insert(segment, 0);
        for frame in contents.frames() {
            let frame = frame?;
            if frame.number != read.number + 1 {
                return Err(damaged(dir, format!("frame {} follows frame {}", frame.number, read.number)));
            }
            read.number = frame.number;
            for record in frame.records {
                let unknown = || damaged(dir, format!("frame {} has an unknown record", frame.number));
                let key = key_of(&record).ok_or_else(unknown)?;
                match record.content {
                    Some(content) => read.records.insert(key, (segment, content)),
                    None => read.records.remove(&key),
                };
            }
        }
    }
    Ok(read)
}

fn record_of(key: Key, content: Option<Bytes>) -> disk::LogRecord {
    let (kind, group, index) = match key {
        Key::Founding => (Kind::Founding, GroupId(0), 0),
        Key::State(group) => (Kind::State, group, 0),
        Key::Entry(group, index) => (Kind::Entry, group, index),
    };
    disk::LogRecord { kind: kind.into(), group: group.0, index, content }
}

/// Which record it is; none if this program does not know its kind.
fn key_of(record: &disk::LogRecord) -> Option<Key> {
    let group = GroupId(record.group);
    Some(match Kind::try_from(record.kind).ok()? {
        Kind::Founding => Key::Founding,
        Kind::State => Key::State(group),
        Kind::Entry => Key::Entry(group, record.index),
    })
}

fn damaged(dir: &Path, what: String) -> DiskError {
    DiskError::Damaged { file: dir.to_owned(), location: "the replicated logs".to_owned(), what }
}
