use std::collections::BTreeSet;
use std::sync::Arc;

use crate::rdb::{Dialect, Version};
use crate::testing::Bench;
use crate::{Effects, Partition, Partitions, Protocol, UndoLog};

const WRONG_NUMBER: &str = "-ERR numfields should be greater than 0 and match the provided number of fields";

/// A hash with `a` that expires in 5 s, `b` in 10 s, and `c`.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.run("HSET k a 1 b 2 c 3");
    bench.expect("HEXPIRE k 5 FIELDS 1 a", "*1 :1");
    bench.expect("HPEXPIRE k 10000 FIELDS 1 b", "*1 :1");
    bench
}

fn sweep(bench: &mut Bench) {
    while bench.partition.databases[0].sweep(bench.now_ms, |_| false, &mut Vec::new()) {}
}

#[test]
fn times_are_set_and_told() {
    let mut bench = bench();
    bench.expect("HTTL k FIELDS 4 a b c x", "*4 :5 :10 :-1 :-2");
    bench.expect("HPTTL k FIELDS 2 b x", "*2 :10000 :-2");
    bench.expect("HEXPIRETIME k FIELDS 2 a c", "*2 :1005 :-1");
    bench.expect("HPEXPIRETIME k FIELDS 1 a", "*1 :1005000");
    bench.expect("HEXPIREAT k 2000 FIELDS 1 a", "*1 :1");
    bench.expect("HPEXPIREAT k 2000001 FIELDS 2 b x", "*2 :1 :-2");
    bench.expect("HPEXPIRETIME k FIELDS 2 a b", "*2 :2000000 :2000001");
    bench.now_ms += 400;
    bench.expect("HTTL k FIELDS 1 a", "*1 :1000");
    bench.now_ms += 200;
    bench.expect("HTTL k FIELDS 1 a", "*1 :999");
    bench.expect("HPERSIST k FIELDS 3 a c x", "*3 :1 :-1 :-2");
    bench.expect("HTTL k FIELDS 1 a", "*1 :-1");
    for line in ["HTTL n FIELDS 2 a b", "HPERSIST n FIELDS 2 a b", "HEXPIRE n 5 FIELDS 2 a b"] {
        bench.expect(line, "*2 :-2 :-2");
    }
}

#[test]
fn conditions_are_those_of_keys() {
    let mut bench = bench();
    bench.expect("HEXPIRE k 7 NX FIELDS 2 a c", "*2 :0 :1");
    bench.expect("HPERSIST k FIELDS 1 c", "*1 :1");
    bench.expect("HEXPIRE k 7 XX FIELDS 2 a c", "*2 :1 :0");
    bench.expect("HEXPIRE k 8 GT FIELDS 3 a b c", "*3 :1 :0 :0");
    bench.expect("HEXPIRE k 9 LT FIELDS 3 a b c", "*3 :0 :1 :1");
    bench.expect("HTTL k FIELDS 3 a b c", "*3 :8 :9 :9");
    bench.expect(
        "HEXPIRE k 9 NX XX FIELDS 1 a",
        "-ERR NX and XX, GT or LT options at the same time are not compatible",
    );
    bench
        .expect("HEXPIRE k 9 GT LT FIELDS 1 a", "-ERR GT and LT options at the same time are not compatible");
    bench.expect("HEXPIRE k 9 ZZ FIELDS 1 a", "-ERR Unsupported option ZZ");
}

#[test]
fn a_time_that_is_over_removes_the_field() {
    let mut bench = bench();
    bench.expect("HEXPIRE k 0 FIELDS 2 a x", "*2 :2 :-2");
    bench.expect("HPEXPIREAT k 1000000 FIELDS 2 b b", "*2 :2 :-2");
    bench.expect("HEXPIRE k 0 XX FIELDS 1 c", "*1 :0");
    bench.expect("HGETEX k EXAT 1 FIELDS 1 c", "*1 $1 3");
    bench.expect("EXISTS k", ":0");
    assert_eq!(bench.partition.bytes(), 0);
    bench.expect("HSETEX k PXAT 5 FIELDS 1 a 1", ":1");
    bench.expect("EXISTS k", ":0");
}

#[test]
fn wrong_calls_are_refused_in_the_words_of_valkey() {
    let mut bench = bench();
    for line in [
        "HEXPIRE k 5 FIELDS 2 a",
        "HEXPIRE k 5 FIELDS 1 a b",
        "HEXPIRE k 5 FIELDS 0 a",
        "HEXPIRE k 5 FIELDS -1 a",
        "HEXPIRE k 5 1 a b",
        "HEXPIRE k 5 NX a FIELDS",
        "HPERSIST k FIELDS 2 a",
        "HGETDEL k FIELDS 9223372036854775807 a",
        "HGETEX k FIELDS 2 a",
        "HGETEX k EX 5 a",
        "HSETEX k FIELDS 2 a 1",
        "HSETEX k FIELDS 4611686018427387905 a 1",
        "HSETEX k FIELDS 1 a 1 b",
    ] {
        bench.expect(line, WRONG_NUMBER);
    }
    bench.expect("HEXPIRE k 5 FIELDS x a", "-ERR value is not an integer or out of range");
    bench.expect("HEXPIRE k x FIELDS 1 a", "-ERR value is not an integer or out of range");
    bench.expect("HTTL k FIELDS 2 a", "-ERR syntax error");
    let position = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    bench.expect("HTTL k FIELD 1 a", position);
    bench.expect("HGETDEL k FIELD 1 a", position);
    for (line, name) in [
        ("HEXPIRE k -1 FIELDS 1 a", "hexpire"),
        ("HPEXPIRE k 9223372036854775807 FIELDS 1 a", "hpexpire"),
        ("HEXPIREAT k 9223372036854775 FIELDS 1 x", ""),
        ("HEXPIREAT k 9223372036854776 FIELDS 1 a", "hexpireat"),
        ("HPEXPIREAT n -1 FIELDS 1 a", "hpexpireat"),
        ("HGETEX k PX -5 FIELDS 1 a", "hgetex"),
        ("HSETEX k EXAT -5 FIELDS 1 a 1", "hsetex"),
    ] {
        let refused = format!("-ERR invalid expire time in '{name}' command");
        bench.expect(line, if name.is_empty() { "*1 :-2" } else { &refused });
    }
    for line in [
        "HGETEX k EX FIELDS 1 a",
        "HGETEX k EX 5 PX 5 FIELDS 1 a",
        "HGETEX k PERSIST EX 5 FIELDS 1 a",
        "HGETEX k KEEPTTL FIELDS 1 a",
        "HSETEX k NX XX FIELDS 1 a 1",
        "HSETEX k FNX FXX FIELDS 1 a 1",
        "HSETEX k KEEPTTL EX 5 FIELDS 1 a 1",
        "HSETEX k EX 5 KEEPTTL FIELDS 1 a 1",
        "HSETEX k PERSIST FIELDS 1 a 1",
    ] {
        bench.expect(line, "-ERR syntax error");
    }
    bench.run("SET s text");
    for line in [
        "HEXPIRE s 5 FIELDS 1 a",
        "HTTL s FIELDS 1 a",
        "HPERSIST s FIELDS 1 a",
        "HGETEX s FIELDS 1 a",
        "HGETDEL s FIELDS 1 a",
        "HSETEX s FIELDS 1 a 1",
    ] {
        bench.expect(line, "-WRONGTYPE Operation against a key holding the wrong kind of value");
    }
    bench.expect("HTTL k FIELDS 3 a b c", "*3 :5 :10 :-1");
}

#[test]
fn values_are_set_with_times_and_conditions() {
    let mut bench = Bench::new();
    bench.expect("HSETEX k XX EX 5 FIELDS 1 a 1", ":0");
    bench.expect("HSETEX k FXX EX 5 FIELDS 1 a 1", ":0");
    bench.expect("HSETEX k NX FNX EX 5 FIELDS 2 a 1 b 2", ":1");
    bench.expect("HSETEX k NX FIELDS 1 c 3", ":0");
    bench.expect("HSETEX k FNX FIELDS 2 c 3 a 3", ":0");
    bench.expect("HSETEX k FXX FIELDS 2 c 3 a 3", ":0");
    bench.expect("HGETALL k", "*4 $1 a $1 1 $1 b $1 2");
    bench.expect("HSETEX k fxx keepttl fields 1 a 4", ":1");
    bench.expect("HSETEX k FIELDS 1 b 5", ":1");
    bench.expect("HTTL k FIELDS 2 a b", "*2 :5 :-1");
    bench.now_ms += 5_000;
    bench.expect("HSETEX k FXX KEEPTTL FIELDS 1 a 4", ":0");
    bench.expect("HSETEX k KEEPTTL FIELDS 1 a 6", ":1");
    bench.expect("HTTL k FIELDS 1 a", "*1 :-1");
    bench.expect("HMGET k a b", "*2 $1 6 $1 5");
}

#[test]
fn values_are_read_and_their_times_changed() {
    let mut bench = bench();
    bench.expect("HGETEX k FIELDS 3 a x c", "*3 $1 1 $-1 $1 3");
    bench.expect("HGETEX k EX 100 FIELDS 3 a x c", "*3 $1 1 $-1 $1 3");
    bench.expect("HTTL k FIELDS 3 a b c", "*3 :100 :10 :100");
    bench.expect("HGETEX k PERSIST FIELDS 2 a c", "*2 $1 1 $1 3");
    bench.expect("HTTL k FIELDS 3 a b c", "*3 :-1 :10 :-1");
    bench.expect("HGETEX n EX 5 FIELDS 2 a b", "*2 $-1 $-1");
    bench.expect("HGETDEL k FIELDS 3 a a x", "*3 $1 1 $-1 $-1");
    bench.expect("HGETDEL k FIELDS 2 b c", "*2 $1 2 $1 3");
    bench.expect("HGETDEL k FIELDS 1 b", "*1 $-1");
    assert_eq!(bench.partition.bytes(), 0);
}

#[test]
fn no_command_sees_a_field_that_has_expired() {
    let mut bench = bench();
    bench.run("RPUSH l x");
    bench.now_ms += 5_000;
    for (line, wanted) in [
        ("HGET k a", "$-1"),
        ("HMGET k a b", "*2 $-1 $1 2"),
        ("HGETALL k", "*4 $1 b $1 2 $1 c $1 3"),
        ("HKEYS k", "*2 $1 b $1 c"),
        ("HVALS k", "*2 $1 2 $1 3"),
        ("HEXISTS k a", ":0"),
        ("HSTRLEN k a", ":0"),
        ("HSCAN k 0", "*2 $1 0 *4 $1 b $1 2 $1 c $1 3"),
        ("HRANDFIELD k 10", "*2 $1 b $1 c"),
        ("HDEL k a", ":0"),
        ("HTTL k FIELDS 1 a", "*1 :-2"),
        ("HPERSIST k FIELDS 1 a", "*1 :-2"),
        ("HEXPIRE k 5 FIELDS 1 a", "*1 :-2"),
        ("HGETEX k EX 5 FIELDS 1 a", "*1 $-1"),
        ("HGETDEL k FIELDS 1 a", "*1 $-1"),
        ("SORT l BY nosort GET k->a", "*1 $-1"),
        // Until it is removed it counts, as in Valkey.
        ("HLEN k", ":3"),
    ] {
        bench.expect(line, wanted);
    }
    sweep(&mut bench);
    bench.expect("HLEN k", ":2");
    bench.protocol = Protocol::Resp3;
    bench.now_ms += 5_000;
    bench.expect("HGETALL k", "%1 $1 c $1 3");
    for _ in 0..20 {
        bench.expect("HRANDFIELD k", "$1 c");
        bench.expect("HRANDFIELD k 2 WITHVALUES", "*1 *2 $1 c $1 3");
        bench.expect("HRANDFIELD k -2", "*2 $1 c $1 c");
    }
    bench.run("HEXPIRE k 1 FIELDS 1 c");
    bench.now_ms += 1_000;
    bench.expect("HRANDFIELD k", "_");
    bench.expect("HRANDFIELD k -2", "*0");
    bench.expect("EXISTS k", ":1");
    sweep(&mut bench);
    bench.expect("EXISTS k", ":0");
}

#[test]
fn what_sets_a_field_ends_its_time_and_what_counts_does_not() {
    let mut bench = bench();
    bench.expect("HSET k a 9", ":0");
    bench.expect("HINCRBY k b 5", ":7");
    bench.expect("HINCRBYFLOAT k b 0.5", "$3 7.5");
    bench.expect("HTTL k FIELDS 2 a b", "*2 :-1 :10");
    bench.now_ms += 10_000;
    bench.expect("HINCRBY k b 1", ":1");
    bench.expect("HTTL k FIELDS 1 b", "*1 :-1");
    bench.run("HPEXPIRE k 1 FIELDS 3 a b c");
    bench.now_ms += 1;
    bench.expect("HSETNX k a x", ":1");
    bench.expect("HSET k b 1 d 1", ":2");
    bench.expect("HTTL k FIELDS 4 a b c d", "*4 :-1 :-1 :-2 :-1");
}

#[test]
fn times_go_with_the_key_and_with_copies() {
    let mut bench = bench();
    bench.expect("RENAME k r", "+OK");
    bench.expect("COPY r c", ":1");
    bench.expect("MOVE r 1", ":1");
    bench.expect("HTTL c FIELDS 3 a b c", "*3 :5 :10 :-1");
    bench.db = 1;
    bench.expect("HTTL r FIELDS 3 a b c", "*3 :5 :10 :-1");
    bench.now_ms += 5_000;
    for space in &mut bench.partition.databases {
        while space.sweep(bench.now_ms, |_| false, &mut Vec::new()) {}
    }
    bench.expect("HLEN r", ":2");
    bench.db = 0;
    bench.expect("HLEN c", ":2");
}

#[test]
fn everything_can_be_taken_back() {
    for fields in [3, 100] {
        let mut bench = Bench::new();
        for at in 0..fields {
            bench.run(&format!("HSETEX k EX {} FIELDS 1 f{at} v", 10 + at));
        }
        bench.run("HPERSIST k FIELDS 1 f1");
        bench.check_roll_back(&[
            "HSET k f0 x",
            "HINCRBY k n 1",
            "HEXPIRE k 5 FIELDS 2 n f1",
            "HDEL k f0 f2",
            "HPERSIST k FIELDS 2 f0 n",
            "HGETEX k PX 1 FIELDS 1 f0",
            "HSETEX k KEEPTTL FIELDS 2 f0 1 f2 3",
            "HGETDEL k FIELDS 1 f2",
        ]);
        bench.check_roll_back(&["HPERSIST k FIELDS 2 f0 f2", "HEXPIRE k 0 FIELDS 3 f0 f1 f2"]);
        bench.check_roll_back(&["DEL k", "HSETEX k EX 5 FIELDS 1 f0 v", "HEXPIRE k 0 FIELDS 1 f0"]);
    }
}

#[test]
fn times_that_came_back_are_swept() {
    let mut bench = bench();
    bench.undo = Some(UndoLog::default());
    bench.run("HPERSIST k FIELDS 2 a b");
    bench.run("HDEL k b");
    sweep(&mut bench);
    let mut log = bench.undo.take().unwrap();
    log.roll_back(&mut Partitions::One(&mut bench.partition));
    bench.now_ms += 10_000;
    sweep(&mut bench);
    bench.expect("HLEN k", ":1");
}

#[test]
fn sweeping_is_bounded_and_recorded() {
    let mut bench = Bench::new();
    bench.partition.databases[0].keep_expired(&Arc::default());
    bench.effects = Some(Effects::default());
    for at in 0..5_000 {
        bench.run(&format!("HSETEX k PX {} FIELDS 1 f{at} v", 1 + at % 100));
    }
    bench.run("HSET k stays v");
    bench.now_ms += 50;
    let space = &mut bench.partition.databases[0];
    assert!(space.sweep(bench.now_ms, |_| false, &mut Vec::new()));
    let left = space.pair_at(0).map(|(_, entry)| entry.value.clone());
    let Some(crate::Value::Hash(hash)) = left else { panic!("it is there") };
    assert!(hash.len() > 4_000);
    sweep(&mut bench);
    bench.expect("HLEN k", ":2501");
    let effects = bench.effects.take().unwrap();
    let mut repeated = Partition::default();
    for effect in Effects::read(effects.as_bytes()) {
        let (db, key, effect) = effect.expect("well formed");
        effect.apply(db, key, &mut Partitions::One(&mut repeated)).expect("well formed");
    }
    let expired = bench.partition.databases[0].take_expired();
    let fields: BTreeSet<_> = expired.iter().flat_map(|expired| expired.field.as_deref()).collect();
    assert_eq!(fields.len(), 2_500);
    for expired in &expired {
        let effect =
            crate::effect::Effect::HashExpired(expired.field.as_deref().unwrap(), expired.expire_at_ms);
        effect.apply(0, &expired.key, &mut Partitions::One(&mut repeated)).expect("well formed");
    }
    let value = |partition: &Partition| partition.databases[0].peek(b"k", 0).map(|entry| entry.value.clone());
    assert_eq!(value(&repeated), value(&bench.partition));
    assert_eq!(repeated.bytes(), bench.partition.bytes());
    bench.now_ms += 50;
    sweep(&mut bench);
    bench.run("HDEL k stays");
    assert_eq!(bench.partition.bytes(), 0);
}

#[test]
fn a_field_in_use_stays() {
    let mut bench = bench();
    bench.now_ms += 5_000;
    let space = &mut bench.partition.databases[0];
    while space.sweep(bench.now_ms, |_| true, &mut Vec::new()) {}
    bench.expect("HLEN k", ":3");
    bench.now_ms += 100;
    sweep(&mut bench);
    bench.expect("HLEN k", ":2");
}

fn payload_of(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut payload = [&[kind][..], body].concat();
    crate::rdb::seal(&mut payload);
    payload
}

#[test]
fn what_a_number_of_a_kind_means_is_said_by_the_version() {
    let mut bench = bench();
    let body = b"\x16\x01\x01f\x01v\x40\x42\x0f\0\0\0\0\0";
    let payload_as = |version| {
        let mut payload = body.to_vec();
        crate::rdb::seal_as(version, &mut payload);
        payload
    };
    bench.now_ms = 1_000;
    let valkey = payload_as(Version::Valkey9_0);
    assert_eq!(bench.call(&[b"RESTORE", b"v", b"0", &valkey]), "+OK");
    bench.expect("HPEXPIRETIME v FIELDS 1 f", "*1 :1000000");
    assert_eq!(
        bench.call(&[b"RESTORE", b"r", b"0", &payload_as(Version::Redis7_4)]),
        "-ERR Bad data format: hashes of a Redis before its release are not supported"
    );
    let hash = bench.partition.databases[0].peek(b"v", 0).map(|entry| entry.value.clone());
    let hash = hash.expect("it is there");
    let redis = crate::rdb::dump(&hash, Dialect::Redis);
    // HASH_METADATA of version 12, which Redis 7.4 reads.
    assert_eq!((redis[0], &redis[redis.len() - 10..redis.len() - 8]), (24, &[12, 0][..]));
    assert_eq!(bench.call(&[b"RESTORE", b"r", b"0", &redis]), "+OK");
    bench.expect("HPEXPIRETIME r FIELDS 1 f", "*1 :1000000");
}

#[test]
fn an_entry_loses_fields_whose_time_is_over() {
    let mut bench = bench();
    let entry = bench.partition.databases[0].peek(b"k", 0).cloned().expect("it is there");
    let fields = |now_ms| {
        let entry = entry.clone().living(now_ms)?;
        let crate::Value::Hash(hash) = entry.value else { panic!("a hash") };
        Some(hash.iter().map(|(field, _)| String::from_utf8_lossy(field).into_owned()).collect::<String>())
    };
    assert_eq!(fields(bench.now_ms).as_deref(), Some("abc"));
    assert_eq!(fields(bench.now_ms + 5_000).as_deref(), Some("bc"));
    assert_eq!(fields(bench.now_ms + 10_000).as_deref(), Some("c"));
    bench.run("HDEL k c");
    let entry = bench.partition.databases[0].peek(b"k", 0).cloned().expect("it is there");
    assert!(entry.clone().living(bench.now_ms + 9_999).is_some());
    assert_eq!(entry.living(bench.now_ms + 10_000), None);
}

#[test]
fn payloads_have_times_in_the_forms_of_valkey_and_redis() {
    let mut bench = bench();
    bench.expect("OBJECT ENCODING k", "$9 hashtable");
    let hash = bench.partition.databases[0].peek(b"k", 0).map(|entry| entry.value.clone());
    let payload = crate::rdb::dump(hash.as_ref().expect("it is there"), Dialect::Valkey);
    // HASH_2, three fields each with a time or -1, version 80.
    assert_eq!(payload[..2], [22, 3]);
    assert_eq!(payload[payload.len() - 10..payload.len() - 8], [80, 0]);
    assert_eq!(bench.call(&[b"RESTORE", b"r", b"0", &payload]), "+OK");
    bench.expect("HPEXPIRETIME r FIELDS 3 a b c", "*3 :1005000 :1010000 :-1");
    // HASH_METADATA: the first time, then how much later the others are plus one.
    let first = 1_005_000_u64.to_le_bytes();
    let body = [&first[..], b"\x02\x01\x01a\x011\0\x01b\x012"].concat();
    assert_eq!(bench.call(&[b"RESTORE", b"m", b"0", &payload_of(24, &body)]), "+OK");
    bench.expect("HPEXPIRETIME m FIELDS 2 a b", "*2 :1005000 :-1");
    // HASH_LISTPACK_EX: triples.
    let pack = b"\x14\0\0\0\x06\0\x81a\x02\x01\x01\xc4\x07\x02\x81b\x02\x02\x01\0\x01\xff";
    let mut pack = pack.to_vec();
    pack[0] = pack.len() as u8;
    let body = [&first[..], &[pack.len() as u8], &pack].concat();
    bench.now_ms = 1_000;
    assert_eq!(bench.call(&[b"RESTORE", b"l", b"0", &payload_of(25, &body)]), "+OK");
    bench.expect("HPEXPIRETIME l FIELDS 2 a b", "*2 :1031 :-1");
    let late = [&u64::MAX.to_le_bytes()[..], b"\x01\x02\x01a\x011"].concat();
    for (kind, body) in [(24, &late[..]), (24, &late[..9]), (22, b"\x01\x01a\x011"), (23, &late)] {
        assert!(bench.call(&[b"RESTORE", b"x", b"0", &payload_of(kind, body)]).starts_with('-'), "{kind}");
    }
}
