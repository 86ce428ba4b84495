//! Random numbers (SplitMix64): the same state gives the same numbers, and any number of them can be skipped at once.

/// What the state grows by with each number.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The next number.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The next number, below `bound`, which must not be 0.
pub fn below(state: &mut u64, bound: usize) -> usize {
    ((u128::from(next(state)) * bound as u128) >> 64) as usize
}

/// Leaves out the next `count` numbers.
pub fn skip(state: &mut u64, count: usize) {
    *state = state.wrapping_add(STEP.wrapping_mul(count as u64));
}

#[cfg(test)]
mod tests {
    #[test]
    fn skipping_is_drawing_without_looking() {
        let (mut drawn, mut skipped) = (7, 7);
        (0..1000).for_each(|_| _ = super::next(&mut drawn));
        super::skip(&mut skipped, 1000);
        assert_eq!(super::next(&mut drawn), super::next(&mut skipped));
    }
}
