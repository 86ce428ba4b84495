//! HyperLogLog: how many different elements there were, in a string of at most 12 KB, byte by byte as Redis 7.0 has it.
//!
//! An element's hash chooses a register and says how rare it is; a register holds the rarest. While few registers are
//! set the string is sparse: runs of equal registers. Otherwise it is dense: six bits for each. Before the registers
//! come magic, encoding and the count that was last found.

/// What is read from strings that others may have written is no HyperLogLog inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// How a string holds its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Six bits for each.
    Dense,
    /// Runs of equal ones.
    Sparse,
}

/// From how many bytes on a sparse string becomes dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseLimit(pub usize);

impl Default for SparseLimit {
    fn default() -> SparseLimit {
        SparseLimit(3000)
    }
}

/// Number of registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// Where the count stands that was last found: eight bytes, the last of which has its highest bit set if it holds no
/// more.
pub const CARD_AT: usize = 8;

/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = 14;
/// Bits of a hash in which zeros are counted.
const RANK_BITS: usize = 50;
const HEADER: usize = 16;
const MAGIC: &[u8] = b"HYLL";
const DENSE_LEN: usize = HEADER + REGISTERS * 6 / 8;
const STALE: u8 = 0x80;

/// Most registers of a run of zeros in one byte.
const ZEROS_MOST: usize = 64;
/// Most registers of a run of one value.
const VALUES_MOST: usize = 4;
/// Highest value in a sparse string.
const VALUE_MOST: u8 = 32;

/// The encoding of a string, if it looks like a HyperLogLog from outside.
pub fn encoding(text: &[u8]) -> Option<Encoding> {
    if text.len() < HEADER || !text.starts_with(MAGIC) {
        return None;
    }
    match text[MAGIC.len()] {
        0 if text.len() == DENSE_LEN => Some(Encoding::Dense),
        1 => Some(Encoding::Sparse),
        _ => None,
    }
}

/// A sparse string without an element.
pub fn empty() -> Vec<u8> {
    let mut text = vec![0; HEADER];
    text[..MAGIC.len()].copy_from_slice(MAGIC);
    text[MAGIC.len()] = 1;
    push_zeros(&mut text, REGISTERS);
    text
}

/// The count that was last found, if it still holds.
pub fn cached(text: &[u8]) -> Option<u64> {
    let card = u64::from_le_bytes(*text[CARD_AT..].first_chunk()?);
    (card >> 63 == 0).then_some(card)
}

/// The last byte of a count that holds no more, and where it stands.
pub fn stale(text: &[u8]) -> (usize, u8) {
    let at = CARD_AT + 7;
    (at, text[at] | STALE)
}

/// Register and value of an element.
pub fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let rest = hash >> INDEX_BITS | 1 << RANK_BITS;
    (hash as usize % REGISTERS, rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash2 in the variant of 64 bits.
fn murmur(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xadc8_3b19;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> 47;
        hash = (hash ^ word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ hash >> 47
}

/// Byte of a dense register in the string, and its place in the two bytes from there.
fn byte_and_shift(register: usize) -> (usize, u32) {
    (HEADER + register * 6 / 8, (register * 6 % 8) as u32)
}

fn pair(text: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([text[at], text.get(at + 1).copied().unwrap_or(0)])
}

/// A register of a dense string.
pub fn dense(text: &[u8], register: usize) -> u8 {
    let (at, shift) = byte_and_shift(register);
    (pair(text, at) >> shift) as u8 & 63
}

/// The bytes that have to stand at an offset for a register of a dense string to have this value.
pub fn dense_with(text: &[u8], register: usize, value: u8) -> (usize, [u8; 2], usize) {
    let (at, shift) = byte_and_shift(register);
    let both = pair(text, at) & !(63 << shift) | u16::from(value) << shift;
    (at, both.to_le_bytes(), 2.min(text.len() - at))
}

fn set_dense(text: &mut [u8], register: usize, value: u8) {
    let (at, bytes, len) = dense_with(text, register, value);
    text[at..at + len].copy_from_slice(&bytes[..len]);
}

/// Registers in a row of a sparse string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterRun {
    /// What all of them have.
    pub value: u8,
    /// How many they are.
    pub len: usize,
    /// Bytes that tell it: two for many zeros.
    width: usize,
}

impl RegisterRun {
    /// Whether it is told in two bytes.
    pub fn is_wide(self) -> bool {
        self.width == 2
    }
}

/// The run at an offset of a sparse string, which has to be below its end.
fn run_at(text: &[u8], at: usize) -> RegisterRun {
    let first = usize::from(text[at]);
    match first >> 6 {
        0 => RegisterRun { value: 0, len: first + 1, width: 1 },
        1 => {
            // Beyond the end there is a zero, as C has it.
            let second = text.get(at + 1).copied().unwrap_or(0);
            RegisterRun { value: 0, len: ((first & 63) << 8 | usize::from(second)) + 1, width: 2 }
        }
        _ => RegisterRun { value: (first >> 2 & 31) as u8 + 1, len: (first & 3) + 1, width: 1 },
    }
}

fn push_zeros(text: &mut Vec<u8>, len: usize) {
    match len {
        0 => {}
        1..=ZEROS_MOST => text.push(len as u8 - 1),
        _ => text.extend_from_slice(&(0x4000 | (len - 1) as u16).to_be_bytes()),
    }
}

/// A run of at most four registers of a value that is not zero.
fn values(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | (len - 1) as u8
}

fn push_values(text: &mut Vec<u8>, value: u8, len: usize) {
    if len > 0 {
        text.push(values(value, len));
    }
}

/// The runs of a sparse string.
pub fn runs(text: &[u8]) -> impl Iterator<Item = RegisterRun> {
    let mut at = HEADER;
    std::iter::from_fn(move || {
        let run = (at < text.len()).then(|| run_at(text, at))?;
        at += run.width;
        Some(run)
    })
}

/// Makes `registers` at least what a string that [`encoding`] knows has.
pub fn merge(registers: &mut [u8; REGISTERS], text: &[u8]) -> Result<(), Corrupt> {
    if encoding(text) == Some(Encoding::Dense) {
        for (register, held) in registers.iter_mut().enumerate() {
            *held = dense(text, register).max(*held);
        }
        return Ok(());
    }
    let mut index = 0;
    for run in runs(text) {
        let end = index + run.len;
        let span = registers.get_mut(index..end).ok_or(Corrupt)?;
        span.iter_mut().for_each(|held| *held = run.value.max(*held));
        index = end;
    }
    if index == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// Makes a sparse string dense.
pub fn make_dense(text: &mut Vec<u8>) -> Result<(), Corrupt> {
    if encoding(text) == Some(Encoding::Dense) {
        return Ok(());
    }
    let mut registers = [0; REGISTERS];
    merge(&mut registers, text)?;
    text.truncate(HEADER);
    text[MAGIC.len()] = 0;
    text.resize(DENSE_LEN, 0);
    for (register, value) in registers.into_iter().enumerate().filter(|(_, value)| *value > 0) {
        set_dense(text, register, value);
    }
    Ok(())
}

/// Makes a register at least `value`; whether it was less.
pub fn raise(text: &mut Vec<u8>, register: usize, value: u8, limit: SparseLimit) -> Result<bool, Corrupt> {
    if encoding(text) == Some(Encoding::Sparse) {
        let raised = if value > VALUE_MOST { None } else { raise_sparse(text, register, value, limit)? };
        if let Some(raised) = raised {
            return Ok(raised);
        }
        make_dense(text)?;
    }
    let raised = value > dense(text, register);
    if raised {
        set_dense(text, register, value);
    }
    Ok(raised)
}

/// [`raise`] in a sparse string; `None` if it would become too long.
fn raise_sparse(
    text: &mut Vec<u8>,
    register: usize,
    value: u8,
    limit: SparseLimit,
) -> Result<Option<bool>, Corrupt> {
    let (mut at, mut first, mut before) = (HEADER, 0, HEADER);
    let run = loop {
        if at >= text.len() {
            return Err(Corrupt);
        }
        let run = run_at(text, at);
        if register < first + run.len {
            break run;
        }
        (before, at, first) = (at, at + run.width, first + run.len);
    };
    if at + run.width > text.len() {
        return Err(Corrupt);
    }
    if run.value >= value {
        return Ok(Some(false));
    }
    // The run in up to three: what is before the register, the register, and what is behind it.
    let mut parts = Vec::with_capacity(5);
    let (head, tail) = (register - first, first + run.len - 1 - register);
    let push = |parts: &mut Vec<u8>, len| match run.value {
        0 => push_zeros(parts, len),
        held => push_values(parts, held, len),
    };
    push(&mut parts, head);
    push_values(&mut parts, value, 1);
    push(&mut parts, tail);
    if parts.len() > run.width && text.len() + parts.len() - run.width > limit.0 {
        return Ok(None);
    }
    text.splice(at..at + run.width, parts);
    join_neighbours(text, before);
    Ok(Some(true))
}

/// Joins runs of one value around the one at `at`. It looks at as many as Redis does, which may leave some that could
/// be joined.
fn join_neighbours(text: &mut Vec<u8>, mut at: usize) {
    for _ in 0..5 {
        if at >= text.len() {
            return;
        }
        let run = run_at(text, at);
        if run.value > 0
            && at + 1 < text.len()
            && let next = run_at(text, at + 1)
            && next.value == run.value
            && run.len + next.len <= VALUES_MOST
        {
            text.remove(at);
            text[at] = values(run.value, run.len + next.len);
        } else {
            at += run.width;
        }
    }
}

/// How many registers have each value.
type Histogram = [usize; 64];

/// How many different elements a string has seen, about.
pub fn count(text: &[u8]) -> Result<u64, Corrupt> {
    let mut histogram: Histogram = [0; 64];
    if encoding(text) == Some(Encoding::Dense) {
        (0..REGISTERS).for_each(|register| histogram[usize::from(dense(text, register))] += 1);
        return Ok(estimate(&histogram));
    }
    let mut index = 0;
    for run in runs(text) {
        index += run.len;
        histogram[usize::from(run.value)] += run.len;
    }
    if index == REGISTERS { Ok(estimate(&histogram)) } else { Err(Corrupt) }
}

/// [`count`] of registers.
pub fn count_registers(registers: &[u8; REGISTERS]) -> u64 {
    let mut histogram: Histogram = [0; 64];
    registers.iter().for_each(|value| histogram[usize::from(value & 63)] += 1);
    estimate(&histogram)
}

/// The estimator of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017).
fn estimate(histogram: &Histogram) -> u64 {
    let all = REGISTERS as f64;
    let mut sum = all * tau((all - histogram[RANK_BITS + 1] as f64) / all);
    for held in histogram[1..=RANK_BITS].iter().rev() {
        sum = 0.5 * (sum + *held as f64);
    }
    sum += all * sigma(histogram[0] as f64 / all);
    let found = (0.5 / std::f64::consts::LN_2 * all * all / sum).round();
    // More than that is what C makes of infinity.
    if found < i64::MAX as f64 { found as u64 } else { 1 << 63 }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z, mut before) = (1.0, x, f64::NAN);
    while z != before {
        before = z;
        x *= x;
        z += x * y;
        y += y;
    }
    z
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z, mut before) = (1.0, 1.0 - x, f64::NAN);
    while z != before {
        before = z;
        x = x.sqrt();
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
    }
    z / 3.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(text: &mut Vec<u8>, element: &[u8], limit: SparseLimit) -> bool {
        let (register, value) = register_of(element);
        raise(text, register, value, limit).expect("it is sound")
    }

    #[test]
    fn hashes_of_all_lengths() {
        // As redis-server 7.0.15 has them: PFADD, then PFDEBUG DECODE.
        for (element, wanted) in [
            ("", (5938, 2)),
            ("a", (12711, 2)),
            ("1234567", (10327, 3)),
            ("12345678", (10579, 3)),
            ("a longer text", (14809, 2)),
        ] {
            assert_eq!(register_of(element.as_bytes()), wanted, "{element}");
        }
    }

    #[test]
    fn sparse_and_dense_find_the_same() {
        let (mut sparse, mut dense) = (empty(), empty());
        make_dense(&mut dense).expect("it is sound");
        assert_eq!((count(&sparse), count(&dense)), (Ok(0), Ok(0)));
        for number in 1..=100_000_u32 {
            let element = number.to_le_bytes();
            let added = add(&mut sparse, &element, SparseLimit::default());
            assert_eq!(add(&mut dense, &element, SparseLimit(0)), added);
            if number.is_power_of_two() {
                let found = count(&sparse).expect("it is sound");
                assert_eq!(Ok(found), count(&dense));
                let error = f64::from(number).mul_add(-1.0, found as f64).abs() / f64::from(number);
                assert!(error < 0.04, "{number} {found}");
                let mut registers = [0; REGISTERS];
                merge(&mut registers, &sparse).expect("it is sound");
                assert_eq!(count_registers(&registers), found);
            }
        }
        assert_eq!(sparse, dense);
    }

    proptest! {
        #[test]
        fn registers_are_what_was_put_there(
            sets in prop::collection::vec((0..200usize, 1..34u8), 0..300),
            limit in prop_oneof![Just(3000), Just(100)],
        ) {
            let (mut text, mut model) = (empty(), [0; REGISTERS]);
            for (register, value) in sets {
                let register = register * register % REGISTERS;
                prop_assert_eq!(raise(&mut text, register, value, SparseLimit(limit)), Ok(value > model[register]));
                model[register] = value.max(model[register]);
                prop_assert!(encoding(&text) == Some(Encoding::Dense) || text.len() <= limit);
            }
            let mut registers = [0; REGISTERS];
            prop_assert_eq!(merge(&mut registers, &text), Ok(()));
            prop_assert!(registers == model);
        }

        #[test]
        fn any_bytes_are_used_or_refused(body in prop::collection::vec(any::<u8>(), 0..60), register in 0..REGISTERS) {
            let mut text = empty();
            text.truncate(HEADER);
            text.extend_from_slice(&body);
            let _ = count(&text);
            let _ = make_dense(&mut text.clone());
            let _ = raise(&mut text, register, 7, SparseLimit::default());
        }
    }
}
