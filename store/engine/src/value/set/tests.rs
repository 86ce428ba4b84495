use proptest::prelude::*;

use super::*;

/// Members are added or removed: numbers from the first on, as texts of some length.
type Op = (u8, u8, bool);

fn any_op() -> impl Strategy<Value = Op> {
    (any::<u8>(), prop_oneof![4 => Just(1), 1 => any::<u8>()], prop::bool::weighted(0.55))
}

fn member(number: u8) -> Vec<u8> {
    let len = if number.is_multiple_of(16) { 500 + usize::from(number) } else { usize::from(number) % 9 };
    [vec![b'm'; len], number.to_string().into_bytes()].concat()
}

fn same(set: &Set, model: &[Vec<u8>]) {
    assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
    assert!(set.iter().eq(model.iter()));
    for (at, member) in model.iter().enumerate() {
        assert_eq!((set.at(at), set.find(member), set.contains(member)), (Some(&**member), Some(at), true));
    }
    assert_eq!((set.at(model.len()), set.find(b"nothing"), set.contains(b"nothing")), (None, None, false));
    let mut copy = Set::default();
    model.iter().for_each(|member| assert!(copy.insert(member)));
    assert_eq!((&copy, copy.bytes()), (set, set.bytes()));
    if let Form::Packed(row) = &set.0 {
        assert!(LIMIT.allows(row.len(), row.room()));
    }
}

/// A removal is taken back, to the place, and done again.
fn remove(set: &mut Set, model: &mut Vec<Vec<u8>>, member: &[u8]) {
    let Some(at) = model.iter().position(|held| held == member) else {
        assert!(!set.remove(member));
        return;
    };
    let before = model.clone();
    if model.len() <= ORDERED_UP_TO {
        model.remove(at)
    } else {
        model.swap_remove(at)
    };
    assert_eq!(set.remove_at(at).as_deref(), Some(member));
    same(set, model);
    set.restore(at, member.into());
    same(set, &before);
    assert!(set.remove(member));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_set_equals_the_model(ops in prop::collection::vec(any_op(), 0..40)) {
        let (mut set, mut model) = (Set::default(), Vec::new());
        for (first, count, adds) in ops {
            for number in (0..count).map(|at| first.wrapping_add(at)) {
                let member = member(number);
                if !adds {
                    remove(&mut set, &mut model, &member);
                } else if set.insert(&member) {
                    model.push(member);
                } else {
                    assert!(model.contains(&member));
                }
            }
            same(&set, &model);
        }
    }
}

#[test]
fn a_set_at_the_limit_keeps_its_form() {
    let mut set = Set::default();
    let is_large = |set: &Set| matches!(set.0, Form::Large(_));
    (0..64u8).for_each(|member| assert!(set.insert(&[member])));
    let bytes = set.bytes();
    assert!(!is_large(&set) && set.insert(b"one more"));
    assert!(is_large(&set) && set.bytes() > 2 * bytes && set.remove(b"one more"));
    assert_eq!((is_large(&set), set.bytes()), (true, bytes));
    (0..32u8).for_each(|member| assert!(is_large(&set) && set.remove(&[member])));
    assert!(!is_large(&set));
}
