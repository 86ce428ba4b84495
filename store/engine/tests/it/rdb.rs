//! Values and files in Redis' form: what is written comes back, and nothing that is read can do harm.

use std::num::NonZeroU64;

use proptest::prelude::*;
use store_engine::rdb::file::{RdbItem, RdbReader, RdbWriter};
use store_engine::rdb::{self, Cause, Dialect, Fault, KeyMeta, Payload, Version};
use store_engine::{Args, Ctx, Entry, Partition, Partitions, Protocol, Reply, Value, Work, command};

fn load(payload: Payload<'_>) -> Result<Value, Fault> {
    rdb::load(payload, &Work::unlimited())
}

/// What good calls store under the key `k`.
fn made(calls: &[Vec<&[u8]>]) -> Value {
    let mut partition = Partition::default();
    let (mut seed, mut out) = (1, Reply::new(Protocol::Resp2));
    let partitions = Partitions::One(&mut partition);
    let mut ctx = Ctx {
        partitions,
        db: 0,
        now_ms: 1,
        seed: &mut seed,
        undo: None,
        effects: None,
        key_actions: None,
        work: &Work::unlimited(),
        out: &mut out,
    };
    for words in calls {
        let args = Args::new(words);
        let row = command::lookup(words[0]).and_then(|row| command::resolve(row, args)).expect("a command");
        (row.run)(&mut ctx, args).expect("a good call");
    }
    ctx.entry(b"k").expect("a key").value.clone()
}

fn made_of(name: &str, words: &[Vec<u8>]) -> Value {
    made(&[[name.as_bytes(), b"k"].into_iter().chain(words.iter().map(|word| &**word)).collect()])
}

/// A hash of these pairs, of whose fields every third one expires, sooner or later.
fn expiring(pairs: &[Vec<u8>]) -> Value {
    let set = [&b"hset"[..], b"k"].into_iter().chain(pairs.iter().map(|word| &**word)).collect();
    let times: Vec<String> =
        (0..pairs.len()).map(|at| (10_u64.pow(at as u32 % 18) + 5_000_000).to_string()).collect();
    let timed = pairs.chunks_exact(2).zip(&times).step_by(3);
    let expire = timed.map(|(pair, at)| -> Vec<&[u8]> {
        vec![b"hpexpireat", b"k", at.as_bytes(), b"FIELDS", b"1", &pair[0]]
    });
    made(&[set].into_iter().chain(expire).collect::<Vec<_>>())
}

/// A stream, to which entries were added, and then read by a group, acknowledged and removed here and there.
fn stream() -> impl Strategy<Value = Value> {
    let step = (0..7u8, 0..60u32, element(), element());
    prop::collection::vec(step, 1..60).prop_map(|steps| {
        let numbers: Vec<[String; 3]> = steps
            .iter()
            .map(|(_, number, ..)| [number.to_string(), format!("1-{number}"), format!("c{}", number % 3)])
            .collect();
        let mut calls: Vec<Vec<&[u8]>> = vec![vec![b"xgroup", b"CREATE", b"k", b"g", b"0", b"MKSTREAM"]];
        for ((kind, _, name, value), [number, id, consumer]) in steps.iter().zip(&numbers) {
            let [number, id, consumer] = [number, id, consumer].map(|text| text.as_bytes());
            calls.push(match kind {
                0..3 => vec![b"xadd", b"k", b"*", b"field", value],
                3 => vec![b"xadd", b"k", b"*", b"field", value, name, number],
                4 => {
                    vec![b"xreadgroup", b"GROUP", b"g", consumer, b"COUNT", number, b"STREAMS", b"k", b">"]
                }
                5 => vec![b"xdel", b"k", id],
                _ => vec![b"xack", b"k", b"g", id],
            });
        }
        made(&calls)
    })
}

/// Mostly short, often a number, sometimes long.
fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..12),
        3 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        3 => (-5000..5000i64).prop_map(|number| number.to_string().into_bytes()),
        1 => (0..20_000usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn integer() -> impl Strategy<Value = Vec<u8>> {
    let wide = (0..64u32, any::<i64>()).prop_map(|(bits, number)| number >> bits);
    wide.prop_map(|number| number.to_string().into_bytes())
}

fn score() -> impl Strategy<Value = Vec<u8>> {
    let float = any::<f64>().prop_filter("a score", |score| !score.is_nan());
    prop_oneof![float, (-9..9i32).prop_map(f64::from)].prop_map(|score| score.to_string().into_bytes())
}

/// Few elements, or more than fit into a packed form.
fn some<S: Strategy<Value = Vec<u8>>>(element: S) -> impl Strategy<Value = Vec<Vec<u8>>> {
    (prop::bool::weighted(0.2), prop::collection::vec(element, 1..40)).prop_map(|(many, mut elements)| {
        if many {
            elements.extend((0..600).map(|number: u32| number.to_string().into_bytes()));
        }
        elements
    })
}

fn pairs<S: Strategy<Value = Vec<u8>>>(first: S) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let few = prop::collection::vec((first, element()), 1..40);
    (prop::bool::weighted(0.2), few).prop_map(|(many, few)| {
        let more = (0..if many { 600 } else { 0u32 }).map(|number| {
            let number = number.to_string().into_bytes();
            (number.clone(), number)
        });
        few.into_iter().chain(more).flat_map(|(one, other)| [one, other]).collect()
    })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        element().prop_map(|text| Value::string(&text)),
        some(element()).prop_map(|words| made_of("rpush", &words)),
        some(element()).prop_map(|words| made_of("sadd", &words)),
        some(integer()).prop_map(|words| made_of("sadd", &words)),
        pairs(element()).prop_map(|words| made_of("hset", &words)),
        pairs(element()).prop_map(|words| expiring(&words)),
        pairs(score()).prop_map(|words| made_of("zadd", &words)),
        stream(),
    ]
}

fn event() -> impl Strategy<Value = RdbItem> {
    let meta = (any::<Option<u32>>(), any::<Option<u8>>(), any::<bool>());
    let meta =
        meta.prop_map(|(idle_s, freq, sticky)| KeyMeta { idle_s: idle_s.map(u64::from), freq, sticky });
    let key = (0..16usize, element(), value(), 0..5_000_000_000_000u64, meta);
    prop_oneof![
        4 => key.prop_map(|(db, key, value, at_ms, meta)| {
            let expire_at_ms = NonZeroU64::new(at_ms).filter(|at_ms| at_ms.get() % 2 == 0);
            RdbItem::Key { db, key, entry: Entry { expire_at_ms, ..Entry::new(value, Default::default()) }, meta }
        }),
        1 => (element(), element()).prop_map(|(name, value)| RdbItem::Aux { name, value }),
        1 => element().prop_map(RdbItem::Script),
        1 => element().prop_map(RdbItem::Library),
    ]
}

/// What is no longer written.
const OLD: [&[u8]; 10] = [
    b"\x00\xc3\x05\x0a\x00a\xe0\x00\x00",
    b"\x03\x03\x01a\x042.50\x01b\xff\x01c\xfe",
    b"\x09\x12\x02\x01a\x01\x001\x01b\x04\x03text...\xff",
    b"\x09\x0b\xfe\x01a\xfe\x01\0\0\0\x001\xff",
    b"\x0a\x14\x14\0\0\0\x0d\0\0\0\x02\0\0\x01a\xfe\x03\0\0\0\xf6\xff",
    b"\x0c\x11\x11\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xfe\xfb\xff",
    b"\x0d\x11\x11\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xfe\xfb\xff",
    b"\x0e\x01\x11\x11\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xfe\xfb\xff",
    b"\x14\x0c\x0c\0\0\0\x02\0\x81a\x02\x05\x01\xff",
    b"\x0f\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\x1c\x1c\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81a\x02\0\x01\
      \x02\x01\0\x01\0\x01\x01\x01\x04\x01\xff\x01\x05\x01\0",
];

/// What Redis since 8.6 writes and Redis 7.0 does not.
const NEW: [&[u8]; 7] = [
    // What a module says of the key, which may be ignored; then a string.
    b"\xf3\x01\x01\0\0\0\x02\x07\x05\x02xy\0\0\x01v",
    // A group with a consumer; a producer that has sent two entries.
    b"\x1a\0\0\x05\x01\0\0\x05\x01\x02\x01\x01g\x05\x01\x02\0\x01\x01c\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\
      \x40\x64\x40\x64\x01\x01p\x02\x01a\x05\0\x01b\x05\x01\x02\0",
    b"\x1b\0\0\x05\x01\0\0\x05\x01\x02\x01\x01g\x05\x01\x02\0\0\0\x40\x64\x40\x64\0\0\0",
    // Hashes with the names of their fields in a listpack and as strings, of Redis' own tests.
    b"\x1d\0\x17\x17\0\0\0\x02\0\x86field1\x07\x86field2\x07\xff\x0d\x0d\0\0\0\x03\0\0\x01\x01\x01\x02\x01\xff",
    b"\x1d\x01\x02\x06field1\x06field2\x0d\x0d\0\0\0\x03\0\0\x01\x01\x01\x02\x01\xff",
    b"\x1f\0\x17\x17\0\0\0\x02\0\x86field1\x07\x86field2\x07\xff\xc0\x01\xc0\x02",
    b"\x1f\x01\x02\x06field1\x06field2\xc0\x01\xc0\x02",
];

fn of_redis(body: &[u8]) -> Payload<'_> {
    Payload { body, dialect: Dialect::Redis }
}

#[test]
fn what_new_versions_write_is_read() {
    let hash = made_of("hset", &[&b"field1"[..], b"1", b"field2", b"2"].map(<[u8]>::to_vec));
    for (body, wanted) in NEW
        .iter()
        .zip([Some(Value::string(b"v")), None, None].into_iter().chain((0..4).map(|_| Some(hash.clone()))))
    {
        let value = load(of_redis(body)).unwrap_or_else(|fault| panic!("{fault}: {}", body.escape_ascii()));
        match (wanted, &value) {
            (Some(wanted), value) => assert_eq!(*value, wanted),
            (None, Value::Stream(stream)) => assert_eq!((stream.len(), stream.groups().len()), (0, 1)),
            other => panic!("{other:?}"),
        }
        // Every start of the file lacks something, and no other test writes the file.
        assert!((0..body.len()).all(|len| load(of_redis(&body[..len])).is_err()));
        assert!(load(Payload { body, dialect: Dialect::Valkey }).is_err());
    }
}

#[test]
fn what_new_versions_write_and_is_not_supported_is_named() {
    for (body, wanted) in [
        // A set of vectors.
        (
            &b"\x07\x81\xbd\xe7\x2d\xa2\xbb\x1e\xb4\x01\0"[..],
            "byte 10: not supported: values of the module type vectorset",
        ),
        // JSON documents of RedisJSON 1, and such that no JSON is in.
        (
            b"\x07\x81\x45\xe2\x52\x38\xdf\x91\x2c\0\x02\x20\0",
            "byte 10: not supported: JSON documents of encoding version 0",
        ),
        (b"\x1c\x01", "byte 1: not supported: arrays of Redis 8.8"),
        (b"\x21\x01", "byte 1: not supported: rate limiters (GCRA)"),
        (b"\x16\x01", "byte 1: not supported: hashes of a Redis before its release"),
        (
            b"\x1b\0\0\x05\x01\0\0\x05\x01\x02\x01\x01g\x05\x01\x02\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\
              \x05\0\0\0\0\0\0\0\x01\0\x01",
            "byte 44: not supported: pending entries that XNACK has released",
        ),
        // The number of a template means something in files only.
        (
            b"\x1e\x0d\x0d\0\0\0\x03\0\0\x01\x01\x01\x02\x01\xff",
            "byte 15: damaged data: a hash has the fields of an unknown template",
        ),
        (b"\x20\0\xc0\x01", "byte 2: damaged data: a hash has the fields of an unknown template"),
        (b"\x1f\x02\x01", "byte 2: damaged data: names of fields of unknown form"),
        (b"\x1f\x01\0", "byte 3: damaged data: an empty collection"),
        (b"\x1f\x01\x02\x01f\x01f\x01v\x01v", "byte 11: damaged data: a collection has an element twice"),
        // Redis' own tests have these: a value too few, none at all, no number.
        (
            b"\x1d\x01\x02\x06field1\x06field2\x0b\x0b\0\0\0\x02\0\0\x01\x01\x01\xff",
            "byte 29: damaged data: an element of a collection has no partner",
        ),
        (
            b"\x1d\x01\x02\x06field1\x06field2\x07\x07\0\0\0\0\0\xff",
            "byte 25: damaged data: a hash has the fields of an unknown template",
        ),
        (b"\x17\x01", "byte 1: not supported: hashes of a Redis before its release"),
        (b"\x22\x01", "byte 1: damaged data: a value of unknown type"),
    ] {
        let fault = load(of_redis(body)).expect_err("it is refused").to_string();
        assert_eq!(fault, wanted, "{}", body.escape_ascii());
    }
    let path_hash = load(Payload { body: b"\x17\x01", dialect: Dialect::Valkey });
    let fault = path_hash.expect_err("it is refused").to_string();
    assert_eq!(fault, "byte 1: not supported: path hashes of Valkey 9.2");
}

fn written(events: &[RdbItem], version: Version) -> Vec<u8> {
    let mut writer = RdbWriter::new(Vec::new(), version).expect("memory takes all");
    for event in events {
        match event {
            RdbItem::Aux { name, value } => writer.aux(name, value),
            RdbItem::Script(text) => writer.script(text),
            RdbItem::Library(text) => writer.function_library(text),
            RdbItem::Key { db, key, entry, meta } => {
                writer.database(*db, 1, 0).expect("memory takes all");
                writer.key(key, entry, *meta)
            }
        }
        .expect("memory takes all");
    }
    writer.finish().expect("memory takes all")
}

/// All events, and the fault that ended them.
fn read(bytes: &[u8]) -> (Vec<RdbItem>, Option<Fault>) {
    let mut events = Vec::new();
    let reader = match RdbReader::new(bytes) {
        Ok(reader) => reader,
        Err(fault) => return (events, Some(fault)),
    };
    for event in reader {
        match event {
            Ok(event) => events.push(event),
            Err(fault) => return (events, Some(fault)),
        }
    }
    (events, None)
}

/// Bytes of all values, for comparison with the bytes that they were read from.
fn held(events: &[RdbItem]) -> usize {
    let of = |event: &RdbItem| match event {
        RdbItem::Key { key, entry, .. } => key.len() + entry.value.bytes(),
        RdbItem::Aux { name, value } => name.len() + value.len(),
        RdbItem::Script(text) | RdbItem::Library(text) => text.len(),
    };
    events.iter().map(of).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_value_comes_back(value in value()) {
        let valkey = rdb::dump(&value, Dialect::Valkey);
        prop_assert_eq!(&load(rdb::unseal(&valkey).expect("sealed")).expect("a value"), &value);
        let payload = rdb::dump(&value, Dialect::Redis);
        let body = rdb::unseal(&payload).expect("sealed").body;
        let back = load(of_redis(body)).expect("a value");
        // Capacities do not count in strings; everything else has to be the same to the byte.
        if !matches!(value, Value::String(_)) {
            prop_assert_eq!(back.bytes(), value.bytes());
        }
        prop_assert_eq!(back, value);
        // Every start of it lacks something.
        for len in (0..body.len()).step_by(1 + body.len() / 50) {
            prop_assert!(load(of_redis(&body[..len])).is_err(), "{} of {} bytes", len, body.len());
        }
    }

    #[test]
    fn a_damaged_value_does_no_harm(
        value in value(), flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..4),
        reader in prop::sample::select(&[Dialect::Redis, Dialect::Valkey]),
    ) {
        let payload = rdb::dump(&value, reader);
        let mut body = rdb::unseal(&payload).expect("sealed").body.to_vec();
        for (at, change) in &flips {
            let at = at.index(body.len());
            body[at] ^= change;
        }
        // Nothing is known of what comes of it but that it ends, and that the result is a value like any other.
        if let Ok(value) = load(Payload { body: &body, dialect: reader }) {
            prop_assert!(!value.is_empty_collection());
            let again = rdb::dump(&value, reader);
            prop_assert_eq!(load(rdb::unseal(&again).expect("sealed")).expect("a value"), value);
        }
    }

    #[test]
    fn a_damaged_value_of_another_form_does_no_harm(
        which in 0..OLD.len() + NEW.len(), flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
    ) {
        let mut body = OLD.iter().chain(&NEW).nth(which).expect("it is one of them").to_vec();
        prop_assert!(load(of_redis(&body)).is_ok(), "undamaged");
        for (at, change) in &flips {
            let at = at.index(body.len());
            body[at] ^= change;
        }
        if let Ok(value) = load(of_redis(&body)) {
            prop_assert!(!value.is_empty_collection());
        }
    }

    #[test]
    fn anything_may_be_read(
        kind in prop_oneof![0..35u8, Just(243)], packed in any::<bool>(),
        dialect in prop::sample::select(&[Dialect::Redis, Dialect::Valkey]),
        mut body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if packed {
            // One string, whose size a packed collection says at its start.
            body.truncate(60);
            let size = body.len() as u32;
            if let Some(start) = body.first_chunk_mut() {
                *start = size.to_le_bytes();
            }
            if let Some(last) = body.last_mut() {
                *last = 0xff;
            }
            body.insert(0, size as u8);
        }
        body.insert(0, kind);
        if let Ok(value) = load(Payload { body: &body, dialect }) {
            prop_assert!(!value.is_empty_collection());
        }
    }

    #[test]
    fn any_file_may_be_read(
        header in prop::sample::select(&["REDIS0010", "REDIS0015", "VALKEY081"]),
        mark in prop_oneof![any::<u8>(), 242..=255u8],
        body in prop::collection::vec(any::<u8>(), 0..500),
    ) {
        let file = [header.as_bytes(), &[mark], &body].concat();
        let (events, _) = read(&file);
        prop_assert!(held(&events) <= 1000 * file.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_file_comes_back(
        events in prop::collection::vec(event(), 0..12), version in prop::sample::select(&Version::ALL),
    ) {
        let file = written(&events, version);
        let (back, fault) = read(&file);
        prop_assert!(fault.is_none(), "{:?}", fault);
        prop_assert_eq!(&back, &events);
    }

    #[test]
    fn every_damage_to_a_file_is_seen(
        events in prop::collection::vec(event(), 0..6), at in any::<prop::sample::Index>(), bit in 0..8u32,
    ) {
        let whole = written(&events, Version::default());
        let mut file = whole.clone();
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        let (found, fault) = read(&file);
        let fault = fault.expect("a flipped bit is seen");
        prop_assert!(fault.offset <= file.len() as u64);
        let place = format!("byte {}: ", fault.offset);
        prop_assert!(fault.to_string().starts_with(&place));
        prop_assert!(held(&found) <= 1000 * file.len());
        let (_, fault) = read(&whole[..at]);
        prop_assert!(matches!(fault.expect("too short").cause, Cause::Short));
    }
}
