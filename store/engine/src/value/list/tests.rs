use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Push(bool, Vec<u8>, usize),
    Pop(bool),
    Trim(bool, usize),
    Pick(Vec<usize>),
    Set(usize, Vec<u8>),
    Insert(usize, Vec<u8>),
    Remove(usize),
}

fn any_element() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![6 => 0..12usize, 1 => 1500..3000usize], any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<bool>(), any_element(), 1..3usize).prop_map(|(front, element, times)| Op::Push(front, element, times)),
        1 => (any::<bool>(), Just(b"many".to_vec()), 200..400usize)
            .prop_map(|(front, element, times)| Op::Push(front, element, times)),
        2 => any::<bool>().prop_map(Op::Pop),
        2 => (any::<bool>(), prop_oneof![0..5usize, 0..500usize]).prop_map(|(front, count)| Op::Trim(front, count)),
        2 => prop::collection::vec(any::<usize>(), 0..9).prop_map(Op::Pick),
        2 => (any::<usize>(), any_element()).prop_map(|(at, element)| Op::Set(at, element)),
        2 => (any::<usize>(), any_element()).prop_map(|(at, element)| Op::Insert(at, element)),
        1 => any::<usize>().prop_map(Op::Remove),
    ]
}

fn same(list: &List, model: &[Vec<u8>]) {
    assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
    assert!(list.iter_from(0).eq(model.iter()) && list.iter_from(0).rev().eq(model.iter().rev()));
    let at = model.len() / 3;
    assert!(list.iter_from(at).eq(&model[at..]));
    assert_eq!((list.get(at), list.get(model.len())), (model.get(at).map(|element| &**element), None));
    let mut copy = List::default();
    model.iter().for_each(|element| copy.push(false, element));
    assert_eq!((&copy, copy.bytes()), (list, list.bytes()));
    let room = model.iter().map(|element| room(element.len())).sum();
    match &list.0 {
        Form::Packed(row) => assert!(LIMIT.allows(row.len(), row.room())),
        Form::Large(ring) => assert_eq!(ring.weight.room, room),
    }
    assert!(LIMIT.allows(model.len(), room) || matches!(copy.0, Form::Large(_)));
}

/// What an operation takes away is put back, and taken away again.
fn apply(list: &mut List, model: &mut Vec<Vec<u8>>, op: Op) {
    let (before, len) = (model.clone(), model.len());
    match op {
        Op::Push(front, element, times) => {
            for _ in 0..times {
                list.push(front, &element);
                model.insert(if front { 0 } else { model.len() }, element.clone());
            }
        }
        Op::Pop(front) => {
            let element = (len > 0).then(|| model.remove(if front { 0 } else { len - 1 }));
            assert_eq!(list.pop(front).as_deref(), element.as_deref());
        }
        Op::Trim(front, count) => {
            let count = count.min(len);
            let taken = list.trim(front, count);
            let gone: Vec<_> =
                if front { model.drain(..count) } else { model.drain(len - count..) }.collect();
            assert!(taken.iter().map(|element| &**element).eq(gone.iter().map(|element| &**element)));
            list.untrim(front, taken);
            same(list, &before);
            list.trim(front, count);
        }
        Op::Pick(positions) if len > 0 => {
            let mut positions: Vec<_> = positions.into_iter().map(|at| at % len).collect();
            positions.sort_unstable();
            positions.dedup();
            let taken = list.remove_all(&positions);
            for (at, element) in taken.iter().rev() {
                assert_eq!(**element, *model.remove(*at));
            }
            list.unpick(taken);
            same(list, &before);
            list.remove_all(&positions);
        }
        Op::Set(at, element) if len > 0 => {
            let old = list.set(at % len, &element);
            assert_eq!(*old, *std::mem::replace(&mut model[at % len], element));
        }
        Op::Insert(at, element) => {
            list.insert(at % (len + 1), &element);
            model.insert(at % (len + 1), element);
        }
        Op::Remove(at) if len > 0 => {
            assert_eq!(list.remove(at % len).as_deref(), Some(&*model.remove(at % len)))
        }
        Op::Remove(at) => assert_eq!(list.remove(at), None),
        Op::Pick(_) | Op::Set(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_list_equals_the_model(ops in prop::collection::vec(any_op(), 0..50)) {
        let (mut list, mut model) = (List::default(), Vec::new());
        for op in ops {
            apply(&mut list, &mut model, op);
            same(&list, &model);
        }
    }
}

#[test]
fn a_list_at_the_limit_keeps_its_form() {
    let mut list = List::default();
    let is_large = |list: &List| matches!(list.0, Form::Large(_));
    (0..LIMIT.len).for_each(|_| list.push(true, b"element"));
    let bytes = list.bytes();
    assert!(!is_large(&list));
    list.push(true, b"element");
    assert!(is_large(&list) && list.bytes() > 2 * bytes);
    list.pop(false);
    assert!(is_large(&list));
    assert_eq!(list.bytes(), bytes);
    list.trim(false, LIMIT.len / 2 - 1);
    assert!(is_large(&list));
    list.pop(false);
    assert!(!is_large(&list));
}
