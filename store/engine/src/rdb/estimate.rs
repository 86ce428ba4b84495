//! How long it takes to load a payload, by the lengths in it: nothing is unpacked.

use super::codec::{Decoder, Fault};
use super::kind::*;
use super::lzf;
use crate::steps::{BYTES_PER_STEP, LONG_CALL_STEPS};

/// Bytes of an element in a listpack, from which many are estimated; the smallest have two.
const BYTES_PER_ELEMENT: u64 = 4;

/// About how many steps it takes to load what DUMP gave, at most. More than [`LONG_CALL_STEPS`] are not counted to the end.
pub fn steps_to_load(payload: &[u8]) -> u64 {
    // All of it is read for its checksum.
    let read = (payload.len() / BYTES_PER_STEP) as u64;
    if read > LONG_CALL_STEPS {
        return read;
    }
    let mut steps = 0;
    // A damaged payload is loaded up to the damage.
    let _ = count(&mut Decoder::new(payload), &mut steps);
    read + steps
}

fn count(from: &mut Decoder<&[u8]>, steps: &mut u64) -> Result<(), Fault> {
    let kind = from.byte()?;
    let bytes = from.source().len() as u64;
    *steps = match kind {
        STRING => from.string_size()?.1 / BYTES_PER_STEP as u64,
        // Each element is a string, which may be packed.
        LIST | SET | ZSET | ZSET_2 | HASH | HASH_2 | HASH_METADATA => {
            bytes / BYTES_PER_ELEMENT + lzf::MOST_BYTES_OF_ONE * bytes / BYTES_PER_STEP as u64
        }
        HASH_ZIPMAP | LIST_ZIPLIST | SET_INTSET | ZSET_ZIPLIST | HASH_ZIPLIST | HASH_LISTPACK
        | ZSET_LISTPACK | SET_LISTPACK => from.string_size()?.1 / BYTES_PER_ELEMENT,
        LIST_QUICKLIST | LIST_QUICKLIST_2 | STREAM_LISTPACKS | STREAM_LISTPACKS_2 | STREAM_LISTPACKS_3
        | STREAM_LISTPACKS_4 | STREAM_LISTPACKS_5 => return count_parts(kind, from, steps),
        // Of other kinds as if all of it was packed.
        _ => lzf::MOST_BYTES_OF_ONE * bytes / BYTES_PER_ELEMENT,
    };
    Ok(())
}

/// The same of a list or stream, whose parts are each a packed collection.
fn count_parts(kind: u8, from: &mut Decoder<&[u8]>, steps: &mut u64) -> Result<(), Fault> {
    for _ in 0..from.length()? {
        match kind {
            LIST_QUICKLIST => {}
            LIST_QUICKLIST_2 => drop(from.length()?),
            // Its ID.
            _ => from.skip_string()?,
        }
        let (bytes, unpacked) = from.string_size()?;
        *steps = steps.saturating_add(1 + bytes.max(unpacked) / BYTES_PER_ELEMENT);
        if *steps > LONG_CALL_STEPS {
            return Ok(());
        }
        from.skip(bytes)?;
    }
    // Groups of a stream.
    *steps += from.source().len() as u64 / BYTES_PER_ELEMENT;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::{self, Dialect};
    use crate::testing::Bench;

    /// The steps of the value that the call makes under the key `k`: estimated, and counted while it is loaded.
    fn steps(call: &[&[u8]]) -> (u64, u64) {
        let mut bench = Bench::new();
        bench.call(call);
        let entry = bench.partition.databases[0].peek(b"k", bench.now_ms).expect("a key");
        let payload = rdb::dump(&entry.value, Dialect::Redis);
        bench.call(&[b"RESTORE", b"copy", b"0", &payload]);
        (steps_to_load(&payload), bench.work.steps())
    }

    #[test]
    fn what_takes_long_to_load_is_known_before() {
        const MANY: u64 = 50_000;
        let words: Vec<String> = (0..2 * MANY).map(|at| at.to_string()).collect();
        let call = |name: &'static [u8]| -> Vec<&[u8]> {
            [name, b"k"].into_iter().chain(words.iter().map(|word| word.as_bytes())).collect()
        };
        for name in ["RPUSH", "SADD", "ZADD", "HSET"] {
            let (estimated, counted) = steps(&call(name.as_bytes()));
            assert!(counted >= MANY && estimated >= counted / 2, "{name}: {estimated}, {counted}");
        }
        let (estimated, counted) = steps(&[b"SETRANGE", b"k", b"3000000", b"x"]);
        assert!(counted > LONG_CALL_STEPS && estimated > LONG_CALL_STEPS, "{estimated}, {counted}");
        for call in [&[&b"SET"[..], b"k", &[b'x'; 5000]][..], &[b"RPUSH", b"k", b"a"]] {
            let (estimated, _) = steps(call);
            assert!(estimated < 100, "{estimated}");
        }
    }

    /// Ten times as many bytes as there may be at once are packed into 90 KB: `aaaa...`
    #[test]
    fn a_packed_payload_is_as_long_as_what_is_in_it() {
        let packed = [&b"\x00a"[..], &[0xe0, 0xff, 0x00].repeat(30_000)].concat();
        let len = 1 + 30_000 * 264_u64;
        let string = [
            &b"\xc3\x80"[..],
            &(packed.len() as u32).to_be_bytes(),
            &b"\x80"[..],
            &(len as u32).to_be_bytes(),
            &packed,
        ]
        .concat();
        let list = len / BYTES_PER_ELEMENT;
        for (start, wanted) in [
            (&[STRING][..], len / BYTES_PER_STEP as u64),
            (&[HASH_LISTPACK], list),
            (&[LIST_QUICKLIST, 1], list),
            (&[LIST_QUICKLIST_2, 1, 2], list),
            (&[STREAM_LISTPACKS, 1, 1, 0], list),
            (&[HASH_TEMPLATE_LISTPACK, 0], list),
        ] {
            let payload = [start, &string].concat();
            let steps = steps_to_load(&payload);
            assert!(steps >= wanted && wanted > LONG_CALL_STEPS, "{start:?}: {steps}, and not {wanted}");
        }
        assert!(steps_to_load(b"") == 0 && steps_to_load(b"\x12\x81\xff\xff\xff\xff\xff\xff\xff\xff") == 0);
    }
}
