//! What memory costs: how the allocator rounds, and what containers grown one element at a time have allocated.
//!
//! Values report their size from this as a function of what they hold, so that the same value always counts the
//! same. A test of the whole server compares the sum with the memory of the process.

/// Bytes that the allocator takes for `bytes`: sixteens at first, then four sizes for each doubling (mimalloc).
pub const fn allocated(bytes: usize) -> usize {
    if bytes <= 64 {
        return bytes.next_multiple_of(16);
    }
    let step = 1 << ((bytes - 1).ilog2() - 2);
    (bytes + step - 1) & !(step - 1)
}

/// Bytes of an `IndexMap` or `IndexSet` of `len` entries that take `entry` bytes each, the kept hash included: the
/// entries, and a table of their positions that is filled to seven eighths at most.
pub const fn dense_table(len: usize, entry: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let buckets = match len {
        0..4 => 4,
        4..8 => 8,
        _ => (len * 8 / 7).next_power_of_two(),
    };
    let room = if buckets <= 8 { buckets - 1 } else { buckets / 8 * 7 };
    // A position and a byte for each, and one group of bytes more.
    allocated(room * entry) + allocated(buckets * (size_of::<usize>() + 1) + 16)
}

/// Bytes of a `VecDeque` or `Vec` of `len` elements.
pub const fn doubling(len: usize, element: usize) -> usize {
    match len {
        0 => 0,
        1..4 => allocated(4 * element),
        _ => allocated(len.next_power_of_two() * element),
    }
}

/// Bytes of a `BTreeMap` or `BTreeSet` of `len` entries that take `entry` bytes each, if they came in order: then leaves
/// have room for eleven and keep six, with a seventh above them. Those in disorder are a little better filled.
pub const fn tree(len: usize, entry: usize) -> usize {
    const EDGES: usize = 12;
    let leaf = 11 * entry + 16;
    if len <= 11 {
        return if len == 0 { 0 } else { allocated(leaf) };
    }
    let mut nodes = len.div_ceil(7);
    let mut bytes = nodes * allocated(leaf);
    while nodes > 1 {
        nodes = nodes.div_ceil(7);
        bytes += nodes * allocated(leaf + EDGES * size_of::<usize>());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use indexmap::IndexMap;
    use std::collections::VecDeque;

    #[test]
    fn sizes_have_four_steps_to_a_doubling() {
        for (wanted, takes) in [
            (0, 0),
            (1, 16),
            (16, 16),
            (17, 32),
            (64, 64),
            (65, 80),
            (80, 80),
            (128, 128),
            (129, 160),
            (161, 192),
            (1000, 1024),
            (1025, 1280),
            (100_000, 114_688),
        ] {
            assert_eq!(allocated(wanted), takes, "{wanted}");
        }
    }

    #[test]
    fn containers_have_the_room_that_is_counted() {
        let (mut map, mut ring) = (IndexMap::new(), VecDeque::new());
        for number in 0..5_000_usize {
            map.insert(number, ());
            ring.push_back(number);
            let len = number + 1;
            let room = map.capacity();
            let buckets = if room < 8 { room + 1 } else { room / 7 * 8 };
            assert_eq!(dense_table(len, 24), allocated(room * 24) + allocated(buckets * 9 + 16), "{len}");
            assert_eq!(doubling(len, 8), allocated(ring.capacity() * 8), "{len}");
        }
    }
}
