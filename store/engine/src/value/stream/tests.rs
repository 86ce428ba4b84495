use proptest::prelude::*;

use super::*;
use crate::Work;
use crate::coding::put_bytes;
use crate::listpack;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn encoded(pairs: &Pairs) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in pairs {
        put_bytes(name, &mut bytes);
        put_bytes(value, &mut bytes);
    }
    bytes
}

fn decoded(entry: StreamEntry<'_>) -> (Id, Pairs) {
    (entry.id, entry.pairs().map(|(name, value)| (name.text().into(), value.text().into())).collect())
}

fn id(number: u64) -> Id {
    Id { ms: number / 8, seq: number % 8 }
}

#[derive(Clone, Debug)]
enum Step {
    /// So far behind the last one.
    Add(u64, Pairs),
    Delete(u64),
    /// The first node goes.
    Shorten,
}

fn step() -> impl Strategy<Value = Step> {
    let text = prop_oneof![
        6 => prop::sample::select(vec![&b"a"[..], b"b", b"-5", b"300", b"9223372036854775807", b""]).prop_map(Vec::from),
        1 => (0..3000_usize).prop_map(|len| vec![b'x'; len]),
    ];
    let pairs = prop::collection::vec((text.clone(), text), 1..4);
    prop_oneof![
        12 => (1..20_u64, pairs).prop_map(|(step, pairs)| Step::Add(step, pairs)),
        4 => any::<u64>().prop_map(Step::Delete),
        1 => Just(Step::Shorten),
    ]
}

/// Deletes as an editor does.
fn delete(stream: &mut Stream, id: Id) {
    let (own, node) = stream.node_of(id).expect("it has a node");
    if node.live() == 1 {
        stream.take_node(own);
    } else {
        stream.change_node(own, |node| node.mark(own, id));
    }
}

/// What the parts take when they are put together again.
fn copy(stream: &Stream) -> Stream {
    let mut copy = Stream::default();
    for part in stream.parts() {
        copy.put_part(part, &stream.part(part).expect("it is there")).expect("a good part");
    }
    copy
}

proptest! {
    #[test]
    fn a_stream_is_a_list_in_order(steps in prop::collection::vec(step(), 1..300), from in 0..4000_u64, to in 0..4000_u64) {
        let (mut stream, mut model, mut last) = (Stream::default(), Vec::<(Id, Pairs)>::new(), 0);
        for step in steps {
            match step {
                Step::Add(step, pairs) => {
                    last += step;
                    let bytes = encoded(&pairs);
                    let own = stream.node_for(id(last), Fields::encoded(&bytes));
                    stream.append(own, id(last), Fields::encoded(&bytes));
                    model.push((id(last), pairs));
                }
                Step::Delete(number) if !model.is_empty() => {
                    let (id, _) = model.remove(number as usize % model.len());
                    delete(&mut stream, id);
                    prop_assert!(stream.get(id).is_none());
                }
                Step::Shorten => {
                    let first = stream.nodes().next().map(|(own, node)| (own, node.live()));
                    if let Some((own, live)) = first {
                        stream.take_node(own);
                        model.drain(..live);
                    }
                }
                Step::Delete(_) => {}
            }
        }
        prop_assert_eq!(stream.len(), model.len());
        prop_assert_eq!(stream.range(Id::MIN, Id::MAX).map(decoded).collect::<Vec<_>>(), model.clone());
        let (from, to) = (id(from), id(to));
        let mut within: Vec<_> = model.iter().filter(|(id, _)| (from..=to).contains(id)).cloned().collect();
        prop_assert_eq!(stream.range(from, to).map(decoded).collect::<Vec<_>>(), within.clone());
        within.reverse();
        prop_assert_eq!(stream.range_back(from, to).map(decoded).collect::<Vec<_>>(), within);
        for (id, _) in &model {
            prop_assert_eq!(stream.get(*id).map(|entry| entry.id), Some(*id));
        }
        for (own, node) in stream.nodes() {
            prop_assert!(node.entry_count() <= NODE_ENTRIES);
            prop_assert_eq!(&Node::checked(own, node.as_bytes().to_vec(), &Work::unlimited()), &Ok(node.clone()));
        }
        let copy = copy(&stream);
        prop_assert_eq!(copy.bytes(), stream.bytes());
        prop_assert_eq!(&copy, &stream);
        prop_assert_eq!(stream.parts().count(), stream.part_count());
    }

    /// Reading trusts nothing.
    #[test]
    fn a_damaged_node_is_refused_or_whole(
        entries in prop::collection::vec(prop::sample::select(vec![&b"a"[..], b"12", b"-300"]), 1..20),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..4),
    ) {
        let mut stream = Stream::default();
        for (number, value) in entries.iter().enumerate() {
            let bytes = encoded(&vec![(b"name".to_vec(), value.to_vec())]);
            let id = id(5 + number as u64);
            stream.append(stream.node_for(id, Fields::encoded(&bytes)), id, Fields::encoded(&bytes));
        }
        let (own, node) = stream.nodes().next().expect("one");
        let mut pack = node.as_bytes().to_vec();
        for (at, change) in flips {
            let at = at.index(pack.len());
            pack[at] ^= change;
        }
        if let Ok(node) = Node::checked(own, pack, &Work::unlimited()) {
            let live = node.entries(own).filter(|entry| !entry.is_deleted()).count();
            prop_assert_eq!(live, node.live());
            prop_assert!(node.entries(own).all(|entry| entry.pairs().count() == entry.len()));
        }
    }
}

#[test]
fn nodes_are_full_as_those_of_redis() {
    let mut stream = Stream::default();
    let mut add = |number: u64, value: &[u8]| {
        let bytes = encoded(&vec![(b"f".to_vec(), value.to_vec())]);
        let id = id(number);
        stream.append(stream.node_for(id, Fields::encoded(&bytes)), id, Fields::encoded(&bytes));
        stream.node_count()
    };
    assert_eq!((1..=100).map(|number| add(number, b"v")).max(), Some(1));
    assert_eq!(add(101, b"v"), 2);
    assert_eq!(add(102, &[b'x'; 5000]), 3, "whatever is large gets a node");
    assert_eq!(add(103, b"v"), 4, "of its own");
}

#[test]
fn a_node_with_numbers_of_strange_forms_is_restored_to_the_byte() {
    // The counts take two bytes each, as nobody would write them.
    let (own, mut pack) = (id(9), vec![0; listpack::HEADER]);
    for text in [&b"\xc0\x01\x02"[..], b"\xc0\x00\x02", b"\x01\x01", b"\x81a\x02", b"\x00\x01"] {
        pack.extend_from_slice(text);
    }
    pack.extend_from_slice(b"\x02\x01\x00\x01\x00\x01\x05\x01\x04\x01\xff");
    let size = pack.len() as u32;
    pack[..4].copy_from_slice(&size.to_le_bytes());
    pack[4..6].copy_from_slice(&10_u16.to_le_bytes());
    let node = Node::checked(own, pack, &Work::unlimited()).expect("a node");
    assert_eq!((node.live(), node.entries(own).count()), (1, 1));
    assert_eq!(node.extent(), None, "an append changes more than the end");
    assert!(!node.can_unmark(own, own));
}

#[test]
fn groups_count_what_they_take() {
    let mut stream = Stream::default();
    stream.put_group(b"g", Group::new(Id::MIN, None));
    let empty = stream.bytes();
    for number in 0..300 {
        let consumer = [b"a", b"b", b"c"][number as usize % 3];
        stream.put_part(Part::Consumer(b"g", consumer), &Part::consumer_bytes(7)).expect("a group");
        let bytes = Part::pending_bytes(consumer, 7, 1);
        stream.put_part(Part::Pending(b"g", id(number)), &bytes).expect("a consumer");
    }
    assert!(stream.put_part(Part::Pending(b"g", id(5)), &Part::pending_bytes(b"nobody", 7, 1)).is_err());
    assert!(stream.put_part(Part::Consumer(b"none", b"a"), &Part::consumer_bytes(7)).is_err());
    // From one consumer to another.
    stream.put_part(Part::Pending(b"g", id(0)), &Part::pending_bytes(b"b", 8, 2)).expect("a consumer");
    let group = stream.group(b"g").expect("a group");
    assert_eq!(
        group.consumers().map(|(_, consumer)| consumer.pending_len()).collect::<Vec<_>>(),
        [99, 101, 100]
    );
    assert_eq!(copy(&stream), stream);
    assert_eq!(copy(&stream).bytes(), stream.bytes());
    stream.remove_part(Part::Consumer(b"g", b"b"));
    assert_eq!(stream.group(b"g").expect("a group").pending_len(), 199);
    for part in [Part::Consumer(b"g", b"a"), Part::Consumer(b"g", b"c")] {
        stream.remove_part(part);
    }
    assert_eq!(stream.bytes(), empty);
}
