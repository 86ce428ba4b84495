//! Scores in few bytes: those of the number, the most significant first, without the zeros at the end. Small whole
//! numbers and halves take two or three.

/// Bytes that a score takes.
pub fn len(score: f64) -> usize {
    8 - score.to_bits().trailing_zeros().min(64) as usize / 8
}

/// The bytes of a score, of which the first [`len`] count.
pub fn bytes(score: f64) -> [u8; 8] {
    score.to_bits().to_be_bytes()
}

/// The score of at most eight bytes.
pub fn of(bytes: &[u8]) -> f64 {
    let bits = bytes.iter().rev().fold(0, |bits, byte| bits >> 8 | u64::from(*byte) << 56);
    f64::from_bits(bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_score_comes_back(score in prop_oneof![any::<f64>(), (-1000..1000i32).prop_map(f64::from)]) {
            prop_assert_eq!(of(&bytes(score)[..len(score)]).to_bits(), score.to_bits());
        }
    }

    #[test]
    fn whole_numbers_are_short() {
        for (score, wanted) in
            [(0.0, 0), (-0.0, 1), (1.0, 2), (-2.5, 2), (1000.0, 3), (65_535.0, 4), (0.1, 8)]
        {
            assert_eq!(len(score), wanted, "{score}");
        }
    }
}
