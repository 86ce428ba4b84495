use proptest::prelude::*;

use super::*;

type Model = Vec<(Vec<u8>, Vec<u8>)>;

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![9 => 0..12usize, 1 => 1000..3000usize], any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
}

/// A field is set or removed, or many are.
type Op = (u8, Option<Vec<u8>>, bool);

fn any_op() -> impl Strategy<Value = Op> {
    (any::<u8>(), prop::option::weighted(0.6, any_value()), prop::bool::weighted(0.1))
}

fn same(hash: &Hash, model: &Model) {
    assert_eq!((hash.len(), hash.is_empty()), (model.len(), model.is_empty()));
    let held = || model.iter().map(|(field, value)| (&**field, &**value));
    assert!(hash.iter().eq(held()));
    for (at, (field, value)) in held().enumerate() {
        assert_eq!((hash.at(at), hash.find(field)), (Some((field, value)), Some((at, value))));
        assert_eq!((hash.get(field), hash.contains(field)), (Some(value), true));
    }
    assert_eq!((hash.at(model.len()), hash.find(b"nothing")), (None, None));
    let mut copy = Hash::default();
    held().for_each(|(field, value)| assert!(copy.insert(field, value)));
    assert_eq!((&copy, copy.bytes()), (hash, hash.bytes()));
    if let Form::Packed(row) = &hash.0 {
        assert!(LIMIT.allows(row.len() / 2, row.room()));
    }
}

fn set(hash: &mut Hash, model: &mut Model, field: &[u8], value: &[u8]) {
    let held = model.iter_mut().find(|held| held.0 == field);
    assert_eq!(hash.insert(field, value), held.is_none());
    match held {
        Some(held) => held.1 = value.to_vec(),
        None => model.push((field.to_vec(), value.to_vec())),
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
    let (_, value) = if few { model.remove(at) } else { model.swap_remove(at) };
    assert!(hash.remove(field));
    same(hash, model);
    hash.restore(at, field.into(), value.into());
    same(hash, &before);
    assert!(hash.remove(field));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_hash_equals_the_model(ops in prop::collection::vec(any_op(), 0..40)) {
        let (mut hash, mut model) = (Hash::default(), Model::new());
        for (field, value, many) in ops {
            for field in if many { 0..=field } else { field..=field } {
                match &value {
                    Some(value) => set(&mut hash, &mut model, &[field], value),
                    None => remove(&mut hash, &mut model, &[field]),
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
