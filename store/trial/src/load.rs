//! The load of the kill and damage tests: what batch n does follows from the seed, so whoever knows how many batches a
//! database has knows what must be in it.

use std::collections::BTreeMap;

use crate::engine::Pair;

/// Numbers that look random (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// One below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// How many journal records stay.
const JOURNAL: u64 = 64;

/// Different checkpoint keys.
const KEYS: u64 = 3_000;

/// Where a batch says its number.
pub const SEQ: &[u8] = b"a";

/// `length` bytes that follow from `seed`; half of them compress.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
        bytes.extend_from_slice(b"\0same\0\0\0");
    }
    bytes.truncate(length);
    bytes
}

/// The key of a journal record.
pub fn journal_key(seq: u64) -> Vec<u8> {
    [b"l".as_slice(), &seq.to_be_bytes()].concat()
}

/// A put whose value is told by its seed and length.
type Recipe = (Vec<u8>, u64, usize);

fn recipe(seed: u64, seq: u64) -> (Vec<Recipe>, Vec<Vec<u8>>) {
    let mut random = Random(seed ^ seq.wrapping_mul(0xD6E8_FEB8_6659_FD93));
    let length = if random.below(8) == 0 { random.below(64 << 10) } else { random.below(2_000) };
    let mut puts = vec![(journal_key(seq), random.next(), length as usize)];
    let mut deletes = Vec::new();
    for _ in 0..random.below(12) {
        let number = random.below(KEYS);
        let kind = if number.is_multiple_of(3) { "f" } else { "h" };
        let key = format!("{kind}{number:08}").into_bytes();
        // A key twice in one batch would make the outcome depend on how an engine orders a batch.
        if puts.iter().any(|(known, ..)| *known == key) || deletes.contains(&key) {
            continue;
        }
        if random.below(4) == 0 {
            deletes.push(key);
        } else {
            let most = if random.below(20) == 0 { 4_000 } else { 200 };
            puts.push((key, random.next(), random.below(most) as usize));
        }
    }
    if let Some(old) = seq.checked_sub(JOURNAL) {
        deletes.push(journal_key(old));
    }
    (puts, deletes)
}

/// What batch `seq` puts and deletes.
pub fn batch(seed: u64, seq: u64) -> (Vec<Pair>, Vec<Vec<u8>>) {
    let (puts, deletes) = recipe(seed, seq);
    let mut puts: Vec<Pair> =
        puts.into_iter().map(|(key, seed, length)| (key, bytes(seed, length))).collect();
    puts.push((SEQ.to_vec(), seq.to_be_bytes().to_vec()));
    (puts, deletes)
}

/// What must be there after batches 1 to `seq`: the checksum of each value by key.
pub fn model(seed: u64, seq: u64) -> BTreeMap<Vec<u8>, u32> {
    let mut recipes = BTreeMap::new();
    for seq in 1..=seq {
        let (puts, deletes) = recipe(seed, seq);
        recipes.extend(puts.into_iter().map(|(key, seed, length)| (key, (seed, length))));
        for key in deletes {
            recipes.remove(&key);
        }
    }
    let sum = |(key, (seed, length))| (key, crc32fast::hash(&bytes(seed, length)));
    let mut sums: BTreeMap<Vec<u8>, u32> = recipes.into_iter().map(sum).collect();
    if seq > 0 {
        sums.insert(SEQ.to_vec(), crc32fast::hash(&seq.to_be_bytes()));
    }
    sums
}
