use proptest::prelude::*;

use super::*;

/// Fields with their values and, if they expire, times.
type Model = Vec<(Vec<u8>, Vec<u8>, Option<NonZeroU64>)>;

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![9 => 0..12usize, 1 => 1000..3000usize], any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
}

/// What is done to a field, or to many.
#[derive(Clone, Debug)]
enum Op {
    Set(Vec<u8>),
    Remove,
    /// It expires then, or not.
    Expire(Option<NonZeroU64>),
    /// All go whose time is over by then.
    TakeDue(u64),
}

fn any_op() -> impl Strategy<Value = (u8, Op, bool)> {
    let op = prop_oneof![
        6 => any_value().prop_map(Op::Set),
        4 => Just(Op::Remove),
        4 => (0..100u64).prop_map(|at| Op::Expire(NonZeroU64::new(at / 2))),
        1 => (0..60u64).prop_map(Op::TakeDue),
    ];
    (any::<u8>(), op, prop::bool::weighted(0.1))
}

fn same(hash: &Hash, model: &Model) {
    assert_eq!((hash.len(), hash.is_empty()), (model.len(), model.is_empty()));
    let held = || model.iter().map(|(field, value, _)| (&**field, &**value));
    assert!(hash.iter().eq(held()));
    for (at, (field, value)) in held().enumerate() {
        assert_eq!((hash.at(at), hash.find(field)), (Some((field, value)), Some((at, value))));
        assert_eq!((hash.get(field), hash.contains(field)), (Some(value), true));
    }
    assert_eq!((hash.at(model.len()), hash.find(b"nothing")), (None, None));
    let mut copy = Hash::default();
    held().for_each(|(field, value)| assert!(copy.insert(field, value)));
    for (field, _, at) in model {
        assert_eq!(hash.expiry(field), *at);
        copy.set_expiry(field, *at);
    }
    let times = || model.iter().filter_map(|(.., at)| *at);
    assert_eq!((hash.expiring(), hash.is_expiring()), (times().count(), times().next().is_some()));
    assert!(
        hash.first_expiry() <= times().min() && hash.first_expiry().is_some() == times().next().is_some()
    );
    for now_ms in [10, 40] {
        let live = || model.iter().filter(|(.., at)| at.is_none_or(|at| at.get() > now_ms));
        let seen = live().map(|(field, value, _)| (&**field, &**value));
        assert!(hash.live(now_ms).iter().eq(seen));
        assert_eq!(hash.live(now_ms).len(), live().count());
    }
    assert_eq!((&copy, copy.bytes()), (hash, hash.bytes()));
    if let Form::Packed(row) = &hash.0 {
        assert!(LIMIT.allows(row.len() / 2, row.room()));
    }
}

fn set(hash: &mut Hash, model: &mut Model, field: &[u8], value: &[u8]) {
    let held = model.iter_mut().find(|held| held.0 == field);
    assert_eq!(hash.insert(field, value), held.is_none());
    match held {
        Some(held) => (held.1, held.2) = (value.to_vec(), None),
        None => model.push((field.to_vec(), value.to_vec(), None)),
    }
}

/// A removal is taken back, to the place, and done again.
fn remove(hash: &mut Hash, model: &mut Model, field: &[u8]) {
    let Some(at) = model.iter().position(|held| held.0 == field) else {
        assert!(!hash.remove(field));
        return;
    };
    let before = model.clone();
    let few = model.len() <= ORDERED_UP_TO;
    let (_, value, expiry) = if few { model.remove(at) } else { model.swap_remove(at) };
    assert!(hash.remove(field));
    same(hash, model);
    hash.restore(at, field.into(), value.into());
    hash.set_expiry(field, expiry);
    same(hash, &before);
    assert!(hash.remove(field));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_hash_equals_the_model(ops in prop::collection::vec(any_op(), 0..40)) {
        let (mut hash, mut model) = (Hash::default(), Model::new());
        for (field, op, many) in ops {
            for field in if many { 0..=field } else { field..=field } {
                match &op {
                    Op::Set(value) => set(&mut hash, &mut model, &[field], value),
                    Op::Remove => remove(&mut hash, &mut model, &[field]),
                    Op::Expire(at) => {
                        if let Some(held) = model.iter_mut().find(|held| held.0 == [field]) {
                            held.2 = *at;
                            hash.set_expiry(&[field], *at);
                        }
                    }
                    Op::TakeDue(now_ms) => {
                        while let Some(taken) = hash.take_due(*now_ms) {
                            for (field, at) in taken {
                                let place = model.iter().position(|held| *held.0 == *field);
                                let place = place.expect("it was there");
                                let few = model.len() <= ORDERED_UP_TO;
                                let held = if few { model.remove(place) } else { model.swap_remove(place) };
                                assert!(held.2 == Some(at) && at.get() <= *now_ms);
                            }
                        }
                        assert!(model.iter().all(|(.., at)| at.is_none_or(|at| at.get() > *now_ms)));
                    }
                }
            }
            same(&hash, &model);
        }
    }
}

#[test]
fn a_hash_at_the_limit_keeps_its_form() {
    let mut hash = Hash::default();
    let is_large = |hash: &Hash| matches!(hash.0, Form::Large(_));
    (0..64u8).for_each(|field| assert!(hash.insert(&[field], b"value")));
    let bytes = hash.bytes();
    assert!(!is_large(&hash));
    assert!(hash.insert(b"one more", b"value"));
    assert!(is_large(&hash) && hash.bytes() > 2 * bytes);
    assert!(hash.remove(b"one more"));
    assert!(is_large(&hash));
    assert_eq!(hash.bytes(), bytes);
    (0..32u8).for_each(|field| assert!(is_large(&hash) && hash.remove(&[field])));
    assert!(!is_large(&hash));
}

#[test]
fn a_small_hash_that_expires_stays_small() {
    let mut hash = Hash::default();
    (0..3u8).for_each(|field| assert!(hash.insert(&[field], b"value")));
    let bytes = hash.bytes();
    (0..3u8).for_each(|field| hash.set_expiry(&[field], NonZeroU64::new(7)));
    assert!(hash.bytes() <= bytes + 200, "{} instead of {bytes}", hash.bytes());
    (0..3u8).for_each(|field| hash.set_expiry(&[field], None));
    assert_eq!(hash.bytes(), bytes);
}
