//! Reads sled's files without sled, and changes nothing.
//!
//! sled's own reading panics on damage, spins for ever where a leaf is not the one it looks for, ends a log at the
//! first bad frame without a word, and rewrites and deletes its metadata before a tool could look at it
//! (`store/trial/README.md` has the counts). This reader checks all checksums, names what is wrong where, and reads
//! what is left.
//!
//! The files: `durability_cookie` holds format and fanout; `metadata/` one snapshot and the logs after it, in frames
//! that say where which leaf is; `slabs/` the leaves, in slots of the size that names the file. A leaf holds the
//! records of a range of keys.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::ops::Bound::{Included, Unbounded};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::super::disk::{DiskError, Each};

/// sled's number for the tree that holds all our records.
const TREE: u64 = 1;

/// Of `durability_cookie`.
const COOKIE_BYTES: usize = 64;

/// sled's checksums are turned by this, so that nothing but zeros is wrong.
const CRC_TURN: u32 = 0xAF;

/// Called with a problem; an error from it ends the reading, `Ok` lets it go on without what is damaged.
pub(super) type Judge<'a> = dyn FnMut(DiskError) -> Result<(), DiskError> + 'a;

/// Where all leaves are.
pub(super) struct Image {
    dir: PathBuf,
    /// Slab and slot by the lowest key that belongs into the leaf.
    leaves: BTreeMap<Vec<u8>, (u8, u64)>,
    /// Where the last slot that is in use ends, of each slab that has one.
    ends: HashMap<u8, u64>,
    slabs: RefCell<HashMap<u8, File>>,
    /// Kept, since making one costs as much as unpacking a small leaf.
    decoder: RefCell<Option<Decoder<'static>>>,
    /// The newest snapshot has all logs up to its own number.
    snapshot: u64,
    /// How many bytes of each later log are whole.
    logs: BTreeMap<u64, u64>,
}

/// The metadata files there are.
pub(super) struct Metadata {
    pub snapshots: Vec<u64>,
    pub logs: Vec<u64>,
}

impl Metadata {
    /// Those of a database.
    pub fn list(sled: &Path) -> Result<Metadata, DiskError> {
        let dir = sled.join("metadata");
        let (mut snapshots, mut logs) = (Vec::new(), Vec::new());
        if !dir.exists() {
            return Err(damaged(&dir, "the whole directory", "it is missing"));
        }
        let entries = fs::read_dir(&dir).map_err(DiskError::io("list", &dir))?;
        for entry in entries {
            let path = entry.map_err(DiskError::io("list", &dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for (prefix, list) in [("snapshot", &mut snapshots), ("log", &mut logs)] {
                let Some(rest) = name.strip_prefix(prefix) else { continue };
                let number = rest.strip_prefix('_').filter(|number| number.len() == 16);
                match number.and_then(|number| u64::from_str_radix(number, 16).ok()) {
                    Some(number) => list.push(number),
                    // Unfinished by a crash; sled removes those.
                    None if rest.ends_with(".tmp") => {}
                    None => return Err(damaged(&path, "its name", "sled has no such file")),
                }
            }
        }
        snapshots.sort_unstable();
        logs.sort_unstable();
        Ok(Metadata { snapshots, logs })
    }

    pub fn snapshot_path(sled: &Path, number: u64) -> PathBuf {
        sled.join(format!("metadata/snapshot_{number:016x}"))
    }

    pub fn log_path(sled: &Path, number: u64) -> PathBuf {
        sled.join(format!("metadata/log_{number:016x}"))
    }
}

impl Image {
    /// Reads where everything is.
    pub fn read(sled: &Path, fanout: usize, judge: &mut Judge) -> Result<Image, DiskError> {
        if let Err(error) = check_cookie(&sled.join("durability_cookie"), fanout) {
            judge(error)?;
        }
        // Place, tree and lowest key by sled's number of the leaf.
        let mut leaves: HashMap<u64, Leaf> = HashMap::new();
        let mut image = Image {
            dir: sled.to_owned(),
            leaves: BTreeMap::new(),
            ends: HashMap::new(),
            slabs: RefCell::default(),
            decoder: RefCell::default(),
            snapshot: 0,
            logs: BTreeMap::new(),
        };
        let Metadata { snapshots, logs } = Metadata::list(sled)
            .or_else(|error| judge(error).map(|()| Metadata { snapshots: Vec::new(), logs: Vec::new() }))?;
        match snapshots.last() {
            Some(&number) => {
                image.snapshot = number;
                let path = Metadata::snapshot_path(sled, number);
                let (length, bad) = read_frames(&path, &mut leaves)?;
                let empty = || damaged(&path, "the whole file", "it is empty");
                if let Some(bad) = bad.or_else(|| (length == 0).then(empty)) {
                    judge(bad)?;
                }
            }
            None => judge(damaged(&sled.join("metadata"), "its snapshot", "there is none"))?,
        }
        // Older logs are in the snapshot already.
        let first = image.snapshot + 1;
        let mut next = first;
        let last = logs.last().copied();
        for number in logs.into_iter().filter(|number| *number >= first) {
            if number != next {
                let path = Metadata::log_path(sled, next);
                judge(damaged(&path, "the whole file", "it is missing, although there are later ones"))?;
            }
            next = number + 1;
            let (length, bad) = read_frames(&Metadata::log_path(sled, number), &mut leaves)?;
            image.logs.insert(number, length);
            // A crash cuts off what is being written, which is in the newest one; `holds` knows whether it did.
            if let Some(bad) = bad.filter(|_| Some(number) != last) {
                judge(bad)?;
            }
        }
        for (slab, slot) in leaves.values().map(|leaf| leaf.location) {
            let end = (slot + 1).saturating_mul(slot_bytes(slab) as u64);
            let known = image.ends.entry(slab).or_default();
            *known = end.max(*known);
        }
        for leaf in leaves.into_values().filter(|leaf| leaf.tree == TREE) {
            if let Some((slab, slot)) = image.leaves.insert(leaf.low_key.clone(), leaf.location) {
                let location = format!("slot {slot}, keys from \"{}\"", leaf.low_key.escape_ascii());
                judge(damaged(&image.slab_path(slab), &location, "another leaf has the same keys"))?;
            }
        }
        Ok(image)
    }

    /// The directory of the files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a log is there up to a length that it once had.
    pub fn holds(&self, log: u64, length: u64) -> Result<(), DiskError> {
        let path = Metadata::log_path(&self.dir, log);
        match self.logs.get(&log) {
            _ if log <= self.snapshot => Ok(()),
            Some(whole) if *whole >= length => Ok(()),
            Some(whole) => {
                let what = format!("its content does not match, although {length} bytes had been flushed");
                Err(damaged(&path, &format!("byte {whole}"), &what))
            }
            None => Err(damaged(&path, "the whole file", "it is missing, although it had been flushed")),
        }
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// The files of leaves, each with how much of it is in use.
    pub fn used(&self) -> impl Iterator<Item = (PathBuf, u64)> {
        (0..SLABS).map(|slab| (self.slab_path(slab), self.ends.get(&slab).copied().unwrap_or(0)))
    }

    /// Calls `each` with all records whose keys begin with `prefix`.
    pub fn scan(&self, prefix: &[u8], judge: &mut Judge, each: &mut Each) -> Result<(), DiskError> {
        let Some(lowest) = self.leaves.keys().next() else { return Ok(()) };
        if !lowest.is_empty() {
            let location = format!("keys before \"{}\"", lowest.escape_ascii());
            judge(damaged(&self.dir.join("metadata"), &location, "their location is not recorded"))?;
        }
        // The leaf that has the first of them begins at or before the prefix.
        let start = self.leaves.range::<[u8], _>((Unbounded, Included(prefix))).next_back();
        let start = start.map_or(lowest, |(low_key, _)| low_key);
        let mut leaves = self.leaves.range::<[u8], _>((Included(start.as_slice()), Unbounded)).peekable();
        while let Some((low_key, &location)) = leaves.next() {
            if low_key.as_slice() > prefix && !low_key.starts_with(prefix) {
                break;
            }
            let next = leaves.peek().map(|(low_key, _)| low_key.as_slice());
            let place_name = format!("slot {}, keys from \"{}\"", location.1, low_key.escape_ascii());
            let mut bad = |what: &str| judge(damaged(&self.slab_path(location.0), &place_name, what));
            let plain = match self.read_slot(location) {
                Ok(plain) => plain,
                Err(error) => {
                    bad(&error.to_string())?;
                    continue;
                }
            };
            let Some(leaf) = parse_leaf(&plain).filter(Content::is_ordered) else {
                bad("its parts are inconsistent")?;
                continue;
            };
            if leaf.low_key != low_key {
                bad(&format!("it holds keys from \"{}\"", leaf.low_key.escape_ascii()))?;
                continue;
            }
            if leaf.high_key != next {
                bad("the data after it is missing")?;
            }
            for (key, value) in leaf.records.iter().filter(|(key, _)| key.starts_with(prefix)) {
                each(key, value)?;
            }
        }
        Ok(())
    }

    fn slab_path(&self, slab: u8) -> PathBuf {
        self.dir.join(format!("slabs/{}", slot_bytes(slab)))
    }

    /// The content of a slot, unpacked.
    fn read_slot(&self, (slab, slot): (u8, u64)) -> Result<Vec<u8>, SlotError> {
        let size = slot_bytes(slab);
        let mut slabs = self.slabs.borrow_mut();
        if let std::collections::hash_map::Entry::Vacant(entry) = slabs.entry(slab) {
            entry.insert(File::open(self.slab_path(slab))?);
        }
        let file = &slabs[&slab];
        let length = file.metadata()?.len();
        let at = slot.checked_mul(size as u64).filter(|at| at + size as u64 <= length);
        let at = at.ok_or(SlotError::Missing { length })?;
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, at)?;
        let (bytes, crc) = bytes.split_at(size - 4);
        if (crc32fast::hash(bytes) ^ CRC_TURN).to_le_bytes() != *crc {
            return Err(SlotError::Checksum);
        }
        // The length has as many bytes as the size of a slot needs.
        let digits = match size {
            0..=0xFF => 1,
            0x100..=0xFFFF => 2,
            0x1_0000..=0xFFFF_FFFF => 4,
            _ => 8,
        };
        let mut length = [0; 8];
        length[..digits].copy_from_slice(&bytes[bytes.len() - digits..]);
        let packed = bytes.get(..usize::from_le_bytes(length)).ok_or(SlotError::Length)?;
        Ok(self.unpack(packed)?)
    }

    /// The content of a compressed frame.
    fn unpack(&self, packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut decoder = self.decoder.borrow_mut();
        let decoder = match &mut *decoder {
            // One that has failed is not whole without that.
            Some(decoder) => {
                decoder.reinit()?;
                decoder
            }
            none => none.insert(Decoder::new()?),
        };
        let mut plain = Vec::new();
        let mut input = InBuffer::around(packed);
        loop {
            plain.reserve((packed.len() * 2).max(4096));
            let from = plain.len();
            let wanted = decoder.run(&mut input, &mut OutBuffer::around_pos(&mut plain, from))?;
            let is_over = input.pos() == packed.len();
            match wanted {
                0 if is_over => return Ok(plain),
                0 => return Err(io::Error::other("there is data after its end")),
                _ if is_over && plain.len() < plain.capacity() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                _ => {}
            }
        }
    }
}

/// Why a slot cannot be read.
enum SlotError {
    /// The system refuses it, or its content cannot be unpacked.
    Io(io::Error),
    /// The file ends before it, after so many bytes.
    Missing { length: u64 },
    /// Its checksum is another one.
    Checksum,
    /// It cannot have as many bytes as it says.
    Length,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotError::Io(error) => error.fmt(f),
            SlotError::Missing { length } => write!(f, "the file ends at byte {length}, before it"),
            SlotError::Checksum => f.write_str("its checksum does not match"),
            SlotError::Length => f.write_str("its length does not match"),
        }
    }
}

impl From<io::Error> for SlotError {
    fn from(error: io::Error) -> SlotError {
        SlotError::Io(error)
    }
}

fn damaged(file: &Path, location: &str, what: &str) -> DiskError {
    DiskError::Damaged { file: file.to_owned(), location: location.to_owned(), what: what.to_owned() }
}

/// How many sizes of slots there are.
const SLABS: u8 = 78;

/// The size of a slab's slots: four steps between powers of two up to 128 KiB, then two.
fn slot_bytes(slab: u8) -> usize {
    let slab = usize::from(slab);
    match slab {
        0..=40 => (4 + (slab & 3)) << (4 + (slab >> 2)),
        41..=43 => (slab - 38) << 15,
        _ => (3 + (slab & 1)) << (16 + ((slab - 44) >> 1)),
    }
}

fn check_cookie(path: &Path, fanout: usize) -> Result<(), DiskError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged(path, "the whole file", "it is missing"));
        }
        read => read.map_err(DiskError::io("read", path))?,
    };
    let fits = bytes.len() == COOKIE_BYTES
        && (crc32fast::hash(&bytes[..60]) ^ CRC_TURN).to_le_bytes() == bytes[60..]
        && bytes[..2] == 1_u16.to_le_bytes()
        && bytes[2..10] == (fanout as u64).to_le_bytes();
    if fits {
        Ok(())
    } else {
        Err(damaged(path, "the whole file", "its content is not what this program wrote"))
    }
}

/// What the metadata say of a leaf.
struct Leaf {
    tree: u64,
    low_key: Vec<u8>,
    location: (u8, u64),
}

/// Applies a file's frames. Returns how many bytes of them are whole, and the problem of what comes then.
fn read_frames(path: &Path, leaves: &mut HashMap<u64, Leaf>) -> Result<(u64, Option<DiskError>), DiskError> {
    let bytes = fs::read(path).map_err(DiskError::io("read", path))?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let Some(updates) = read_frame(&mut rest) else {
            let location = format!("byte {at} of {}", bytes.len());
            return Ok((at as u64, Some(damaged(path, &location, "the frame there is incomplete"))));
        };
        for (number, leaf) in updates {
            match leaf {
                Some(leaf) => leaves.insert(number, leaf),
                None => leaves.remove(&number),
            };
        }
    }
    Ok((bytes.len() as u64, None))
}

/// One frame: length with checksum, compressed entries, checksum over both. `None` stands for a leaf that is gone.
fn read_frame(rest: &mut &[u8]) -> Option<Vec<(u64, Option<Leaf>)>> {
    let frame = *rest;
    let mut length: [u8; 8] = frame.get(..8)?.try_into().ok()?;
    if (crc32fast::hash(&length[..6]) as u16).to_le_bytes() != length[6..] {
        return None;
    }
    length[6..].fill(0);
    let end = usize::try_from(u64::from_le_bytes(length)).ok()?.checked_add(8)?;
    let crc = frame.get(end..end.checked_add(4)?)?;
    if (crc32fast::hash(&frame[..end]) ^ CRC_TURN).to_le_bytes() != *crc {
        return None;
    }
    let plain = zstd::stream::decode_all(&frame[8..end]).ok()?;
    let mut fields = plain.as_slice();
    let mut updates = Vec::new();
    while !fields.is_empty() {
        let number = take_number(&mut fields)?;
        let tree = take_number(&mut fields)?;
        let location = take_number(&mut fields)?.to_be_bytes();
        let low_key = take_bytes(&mut fields)?.to_vec();
        // The first byte is the slab plus one, the others are the slot.
        let slot = u64::from_be_bytes(location) & (u64::MAX >> 8);
        let leaf = location[0].checked_sub(1).map(|slab| Leaf { tree, low_key, location: (slab, slot) });
        if leaf.as_ref().is_some_and(|leaf| leaf.location.0 >= SLABS) {
            return None;
        }
        updates.push((number, leaf));
    }
    *rest = &frame[end + 4..];
    Some(updates)
}

/// A leaf's own words.
struct Content<'a> {
    low_key: &'a [u8],
    high_key: Option<&'a [u8]>,
    records: Vec<(&'a [u8], &'a [u8])>,
}

impl Content<'_> {
    fn is_ordered(&self) -> bool {
        let below = |key: &[u8]| self.high_key.is_none_or(|high_key| key < high_key);
        self.records.is_sorted_by(|a, b| a.0 < b.0)
            && self.records.iter().all(|(key, _)| *key >= self.low_key && below(key))
    }
}

/// The order of the fields of sled's `Leaf`, as bincode writes them.
fn parse_leaf(mut plain: &[u8]) -> Option<Content<'_>> {
    let fields = &mut plain;
    let low_key = take_bytes(fields)?;
    let high_key = match fields.split_off_first()? {
        0 => None,
        1 => Some(take_bytes(fields)?),
        _ => return None,
    };
    // Keys without a common prefix: sled has a field for that and never uses it.
    if take_number(fields)? != 0 {
        return None;
    }
    let count = take_number(fields)?;
    let mut records = Vec::new();
    for _ in 0..count {
        records.push((take_bytes(fields)?, take_bytes(fields)?));
    }
    // Its size in memory and how often it was changed.
    let _ = (take_number(fields)?, take_number(fields)?);
    fields.is_empty().then_some(Content { low_key, high_key, records })
}

fn take_number(fields: &mut &[u8]) -> Option<u64> {
    let bytes = fields.split_off(..8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn take_bytes<'a>(fields: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(fields)?).ok()?;
    fields.split_off(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_the_sizes_of_sled() {
        let sizes: Vec<usize> = (0..SLABS).map(slot_bytes).collect();
        assert_eq!(sizes[..8], [64, 80, 96, 112, 128, 160, 192, 224]);
        assert_eq!(
            sizes[36..46],
            [32768, 40960, 49152, 57344, 65536, 98304, 131_072, 163_840, 196_608, 262_144]
        );
        assert_eq!(sizes[77], 17_179_869_184);
    }
}
