use std::collections::BTreeSet;

use crate::testing::Bench;
use crate::{Protocol, UndoLog};

#[test]
fn fields() {
    let mut bench = Bench::new();
    bench.expect("HSET k a 1 b 2 a 3", ":2");
    bench.expect("HMGET k a x b", "*3 $1 3 $-1 $1 2");
    bench.expect("HSET k a 1 b", "-ERR wrong number of arguments for 'hset' command");
    bench.expect("HDEL k a a x", ":1");
    bench.expect("HSETNX k b 9", ":0");
    bench.protocol = Protocol::Resp3;
    bench.expect("HGETALL k", "%1 $1 b $1 2");
    bench.expect("HRANDFIELD k 5 WITHVALUES", "*1 *2 $1 b $1 2");
    bench.expect("HDEL k b", ":1");
    assert_eq!(bench.partition.bytes(), 0);
}

#[test]
fn counters() {
    let mut bench = Bench::new();
    bench.expect("HINCRBY k n -5", ":-5");
    bench.expect("HINCRBY k n -9223372036854775804", "-ERR increment or decrement would overflow");
    bench.expect("HINCRBYFLOAT k n 0.1", "$4 -4.9");
    bench.expect("HINCRBY k n 1", "-ERR hash value is not an integer");
    bench.expect("HINCRBYFLOAT k f 0.1", "$3 0.1");
    bench.expect("HINCRBYFLOAT k f 0.2", "$3 0.3");
    bench.expect("HINCRBYFLOAT k f inf", "-ERR value is NaN or Infinity");
}

#[test]
fn everything_can_be_taken_back_to_its_place() {
    let mut bench = Bench::new();
    for at in 0..70 {
        bench.run(&format!("HSET k f{at} {at}"));
    }
    let order = bench.run("HGETALL k");
    let removals: Vec<_> = (0..69).map(|at| format!("HDEL k f{}", at * 7 % 70)).collect();
    bench.check_roll_back(&removals.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(bench.run("HGETALL k"), order);
    bench.check_roll_back(&["HSET k f1 x new 1", "HINCRBY k f2 5", "HINCRBYFLOAT k f3 0.5", "HSETNX k y z"]);
    bench.check_roll_back(&["HDEL k f1", "HSET k f1 again", "HSET k f1 more", "HDEL k f1"]);
    assert_eq!(bench.run("HGETALL k"), order);
}

#[test]
fn a_scan_may_leave_values_out() {
    let mut bench = Bench::new();
    bench.run("HSET k a 1 b 2");
    bench.expect("HSCAN k 0 NOVALUES", "*2 $1 0 *2 $1 a $1 b");
    bench.expect("HSCAN k 0 novalues COUNT 5 MATCH b", "*2 $1 0 *1 $1 b");
    bench.expect("HSCAN k 0 COUNT NOVALUES", "-ERR value is not an integer or out of range");
    bench.run("SADD s a");
    bench.expect("SSCAN s 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN");
    bench.expect("SCAN 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN");
}

/// Names that a HSCAN reply of this bench shows, and its cursor.
fn step(bench: &mut Bench, cursor: &str, seen: &mut BTreeSet<String>) -> String {
    let reply = bench.run(&format!("HSCAN k {cursor}"));
    let words: Vec<&str> = reply.split(' ').collect();
    seen.extend(words.iter().filter(|word| word.starts_with('f')).map(|word| word.to_string()));
    words[2].to_owned()
}

#[test]
fn a_scan_misses_nothing_that_stays() {
    let mut bench = Bench::new();
    for at in 0..1_000 {
        bench.run(&format!("HSET k f{at} v"));
    }
    // All multiples of three go while the scan runs; some of that is taken back.
    let (mut seen, mut cursor, mut gone) = (BTreeSet::new(), "0".to_owned(), 0);
    loop {
        cursor = step(&mut bench, &cursor, &mut seen);
        if cursor == "0" {
            break;
        }
        bench.undo = Some(UndoLog::default());
        for at in (1..300).step_by(37) {
            bench.run(&format!("HDEL k f{at}"));
        }
        let mut log = bench.undo.take().unwrap();
        log.roll_back(&mut crate::Partitions::One(&mut bench.partition));
        for _ in 0..4 {
            bench.run(&format!("HDEL k f{gone}"));
            gone += 3;
        }
    }
    assert_eq!((0..1_000).filter(|at| at % 3 != 0 && !seen.contains(&format!("f{at}"))).count(), 0);
}
