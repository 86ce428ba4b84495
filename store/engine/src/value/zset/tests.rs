use proptest::prelude::*;

use super::*;

/// A member gets a score or goes; many do, from it on.
type Op = (u8, Option<f64>, bool);

fn any_score() -> impl Strategy<Value = f64> {
    let special = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 1e-300, 0.5];
    prop_oneof![prop::sample::select(special), (-4..4i8).prop_map(f64::from), -1e6..1e6f64]
}

fn any_op() -> impl Strategy<Value = Op> {
    (any::<u8>(), prop::option::weighted(0.6, any_score()), prop::bool::weighted(0.15))
}

fn member(number: u8) -> Vec<u8> {
    let len = if number.is_multiple_of(32) { 1500 } else { usize::from(number) % 7 };
    [vec![b'm'; len], number.to_string().into_bytes()].concat()
}

/// The large form is compared with a model of its own; here it is the model of the small one.
fn same(zset: &ZSet, slab: &Slab) {
    let bits = |(member, score): (&[u8], f64)| (member.to_vec(), score.to_bits());
    assert_eq!((zset.len(), zset.is_empty()), (slab.len(), slab.is_empty()));
    assert!(zset.iter_from(0).map(bits).eq(slab.iter_from(0).map(bits)));
    let last = zset.len().wrapping_sub(1);
    assert!(zset.rev_iter_from(last).map(bits).eq(slab.rev_iter_from(last).map(bits)));
    for rank in [0, zset.len() / 2, last, zset.len()] {
        assert!(
            zset.iter_from(rank).eq(slab.iter_from(rank))
                && zset.rev_iter_from(rank).eq(slab.rev_iter_from(rank))
        );
        assert_eq!(
            (zset.iter_from(rank).len(), zset.select(rank)),
            (slab.iter_from(rank).len(), slab.select(rank))
        );
    }
    for number in 0..=u8::MAX {
        let member = member(number);
        assert_eq!((zset.score(&member), zset.rank(&member)), (slab.score(&member), slab.rank(&member)));
    }
    for score in [0.0, -1.0, 2.5, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(zset.count_below(score), slab.count_below(score));
        assert_eq!(zset.count_up_to(score), slab.count_up_to(score));
    }
    let scores: Vec<f64> = zset.iter_from(0).map(|pair| pair.1).collect();
    if scores.windows(2).all(|pair| pair[0] == pair[1]) {
        for bound in [&b""[..], b"1", b"m", b"mmm12", b"z"] {
            assert_eq!(zset.lex_count_below(bound), slab.lex_count_below(bound));
            assert_eq!(zset.lex_count_up_to(bound), slab.lex_count_up_to(bound));
        }
    }
    let mut copy = ZSet::new();
    zset.iter_from(0).for_each(|(member, score)| assert_eq!(copy.insert(member, score), None));
    assert_eq!((&copy, copy.bytes()), (zset, zset.bytes()));
    let (mut cursor, mut scanned) = (0, 0);
    loop {
        let (next, found) = zset.scan(cursor, 10);
        (cursor, scanned) = (next, scanned + found.len());
        if next == 0 {
            break;
        }
    }
    assert_eq!(scanned, zset.len());
    if let Form::Packed(row) = &zset.0 {
        assert!(LIMIT.allows(row.len(), row.room()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_small_set_equals_a_large_one(ops in prop::collection::vec(any_op(), 0..40)) {
        let (mut zset, mut slab) = (ZSet::new(), Slab::default());
        for (number, score, many) in ops {
            for number in if many { 0..=number } else { number..=number } {
                let member = member(number);
                match score {
                    Some(score) => prop_assert_eq!(zset.insert(&member, score), slab.insert(&member, score)),
                    None if number % 2 == 0 => prop_assert_eq!(zset.take(&member), slab.take(&member)),
                    None => {
                        let rank = usize::from(number) / 4;
                        prop_assert_eq!(zset.take_at(rank), slab.take_at(rank));
                    }
                }
            }
            same(&zset, &slab);
        }
    }

    #[test]
    fn equal_scores_are_ordered_by_bytes(numbers in prop::collection::vec(any::<u8>(), 0..200)) {
        let (mut zset, mut slab) = (ZSet::new(), Slab::default());
        for number in numbers {
            prop_assert_eq!(zset.insert(&member(number), 1.0), slab.insert(&member(number), 1.0));
        }
        same(&zset, &slab);
    }
}

#[test]
fn a_large_set_is_one_until_it_is_empty() {
    let mut zset = ZSet::new();
    let is_large = |zset: &ZSet| matches!(zset.0, Form::Large(_));
    (0..64u8).for_each(|member| assert_eq!(zset.insert(&[member], 1.5), None));
    let bytes = zset.bytes();
    // Giving a member another score needs no more room.
    assert_eq!((zset.insert(&[7], 2.5), is_large(&zset)), (Some(1.5), false));
    assert_eq!(zset.insert(b"one more", 1.5), None);
    assert!(is_large(&zset) && zset.bytes() > 2 * bytes);
    assert_eq!((zset.remove(b"one more"), zset.bytes()), (Some(1.5), bytes));
    (0..63u8).for_each(|member| assert!(is_large(&zset) && zset.remove(&[member]).is_some()));
    assert!(is_large(&zset) && zset.take(&[63]).is_some());
    assert!(!is_large(&zset) && zset.is_empty() && zset.bytes() == 0 && format!("{zset:?}") == "{}");
}
