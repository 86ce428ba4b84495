use proptest::prelude::*;

use super::*;

fn number_of(member: &[u8]) -> i64 {
    Str::integer_of(member).expect("a number")
}

fn large(set: &Set) -> bool {
    matches!(set.view(), View::Table(_))
}

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
    assert!(set.iter().map(|member| member.to_vec()).eq(model.iter().cloned()));
    for (at, member) in model.iter().enumerate() {
        assert_eq!(set.at(at).as_deref(), Some(&**member));
        assert_eq!((set.find(member), set.contains(member)), (Some(at), true));
    }
    assert_eq!((set.at(model.len()), set.find(b"nothing"), set.contains(b"nothing")), (None, None, false));
    let numbers = model.iter().all(|member| Str::integer_of(member).is_some());
    assert_eq!(set.is_numbers(), numbers && (1..=MOST_NUMBERS).contains(&model.len()));
    let mut copy = Set::default();
    model.iter().for_each(|member| assert!(copy.insert(member)));
    assert_eq!((&copy, copy.bytes()), (set, set.bytes()));
    match set.view() {
        View::Numbers(numbers) => assert!(numbers.len() <= MOST_NUMBERS),
        View::Row(row) => assert!(!set.is_numbers() && LIMIT.allows(row.len(), row.room())),
        View::Table(table) => assert!(!set.is_numbers() || 2 * table.len() > MOST_NUMBERS),
    }
}

fn sort_if_ordered(set: &Set, model: &mut [Vec<u8>]) {
    if set.is_ordered() {
        model.sort_by_key(|member| number_of(member));
    }
}

/// A removal is taken back, to the place, and done again.
fn remove(set: &mut Set, model: &mut Vec<Vec<u8>>, member: &[u8]) {
    let Some(at) = model.iter().position(|held| held == member) else {
        assert!(!set.remove(member));
        return;
    };
    let (before, held, reorders) = (model.clone(), set.clone(), set.reorders(at));
    if model.len() <= ORDERED_UP_TO || set.is_ordered() {
        model.remove(at)
    } else {
        model.swap_remove(at)
    };
    assert_eq!(set.remove_at(at).as_deref(), Some(member));
    sort_if_ordered(set, model);
    same(set, model);
    if reorders {
        *set = held;
    } else {
        set.restore(at, member.into());
    }
    same(set, &before);
    assert!(set.remove(member));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_set_equals_the_model(numbers: bool, ops in prop::collection::vec(any_op(), 0..40)) {
        let (mut set, mut model) = (Set::default(), Vec::new());
        for (first, count, adds) in ops {
            for number in (0..count).map(|at| first.wrapping_add(at)) {
                let member = match number {
                    1.. if numbers => (i64::from(number) << (number % 8 * 8)).to_string().into_bytes(),
                    _ => member(number),
                };
                if !adds {
                    remove(&mut set, &mut model, &member);
                } else if set.insert(&member) {
                    model.push(member);
                    sort_if_ordered(&set, &mut model);
                } else {
                    assert!(model.contains(&member));
                }
            }
            same(&set, &model);
        }
    }
}

/// What is known of numbers is known beside texts that come and go.
#[test]
fn numbers_come_to_order_when_the_last_text_is_gone() {
    for count in [1, 40, 63, 64, 200, 256, 257, 511, 512, 513, 600_usize] {
        let (mut set, mut model) = (Set::default(), Vec::new());
        for number in (0..count as i64).rev() {
            let member = (number * number * number * 1000 - 7).to_string().into_bytes();
            assert!(set.insert(&member) && !set.insert(&member));
            model.push(member);
            sort_if_ordered(&set, &mut model);
        }
        assert_eq!(set.is_ordered(), count <= MOST_NUMBERS);
        same(&set, &model);
        let bytes = set.bytes();
        assert!(set.insert(b"text") && !set.is_numbers() && set.reorders(count) == (count <= 256));
        model.push(b"text".to_vec());
        same(&set, &model);
        remove(&mut set, &mut model, b"text");
        assert_eq!((set.is_ordered(), set.bytes()), (count <= 256, bytes));
        while let Some(last) = model.last().cloned() {
            remove(&mut set, &mut model, &last);
            assert_eq!(
                set.is_ordered(),
                (1..=256).contains(&model.len()) || count <= 256 && !model.is_empty()
            );
        }
    }
}

#[test]
fn a_set_at_the_limit_keeps_its_form() {
    let mut set = Set::default();
    (0..64u8).for_each(|member| assert!(set.insert(&[member])));
    let bytes = set.bytes();
    assert!(!large(&set) && set.insert(b"one more"));
    assert!(large(&set) && set.bytes() > 2 * bytes && set.remove(b"one more"));
    assert_eq!((large(&set), set.bytes()), (true, bytes));
    (0..32u8).for_each(|member| assert!(large(&set) && set.remove(&[member])));
    assert!(!large(&set));
}
