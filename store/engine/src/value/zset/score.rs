//! Scores in few bytes, in front of their members: whole numbers up to 246 take one, others a byte that says how many
//! follow. These are those of the number, the most significant first, without the zeros at the end: other whole numbers
//! and halves take two or three.

/// What a first byte beyond this means is a whole number.
const MOST_BYTES: u8 = size_of::<f64>() as u8;
/// The byte of 0.
const ZERO: u8 = MOST_BYTES + 1;
/// Most bytes that a score takes.
pub const MOST_ROOM: usize = MOST_BYTES as usize + 1;

/// The byte of a small whole number.
fn whole(score: f64) -> Option<u8> {
    let number = score as u8;
    let same = f64::from(number).to_bits() == score.to_bits();
    if same { number.checked_add(ZERO) } else { None }
}

/// The bytes of a score, and how many of them count.
pub fn bytes(score: f64) -> ([u8; MOST_ROOM], usize) {
    let mut bytes = [0; MOST_ROOM];
    if let Some(byte) = whole(score) {
        bytes[0] = byte;
        return (bytes, 1);
    }
    let len = len(score);
    bytes[0] = len as u8 - 1;
    bytes[1..].copy_from_slice(&score.to_bits().to_be_bytes());
    (bytes, len)
}

/// How many bytes a score takes.
pub fn len(score: f64) -> usize {
    match whole(score) {
        Some(_) => 1,
        None => MOST_ROOM - score.to_bits().trailing_zeros().min(64) as usize / 8,
    }
}

/// The score in front of a member, and the member.
pub fn split(element: &[u8]) -> (f64, &[u8]) {
    let Some((&first, rest)) = element.split_first() else { return (0.0, element) };
    if first > MOST_BYTES {
        return (f64::from(first - ZERO), rest);
    }
    let (bytes, member) = rest.split_at(usize::from(first).min(rest.len()));
    let bits = bytes.iter().rev().fold(0, |bits, byte| bits >> 8 | u64::from(*byte) << 56);
    (f64::from_bits(bits), member)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_score_comes_back(score in prop_oneof![any::<f64>(), (-1000..1000i32).prop_map(f64::from)]) {
            let (bytes, len) = bytes(score);
            prop_assert_eq!(len, super::len(score));
            let element = [&bytes[..len], b"member"].concat();
            let (found, member) = split(&element);
            prop_assert_eq!((found.to_bits(), member), (score.to_bits(), &b"member"[..]));
        }
    }

    #[test]
    fn whole_numbers_are_short() {
        for (score, wanted) in [
            (0.0, 1),
            (-0.0, 2),
            (1.0, 1),
            (246.0, 1),
            (247.0, 4),
            (-2.5, 3),
            (1000.0, 4),
            (65_535.0, 5),
            (0.1, 9),
        ] {
            assert_eq!(len(score), wanted, "{score}");
        }
    }
}
