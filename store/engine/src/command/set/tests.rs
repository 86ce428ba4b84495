use crate::Protocol;
use crate::testing::Bench;

#[test]
fn members() {
    let mut bench = Bench::new();
    bench.expect("SADD k a b a", ":2");
    bench.expect("SMISMEMBER k a x", "*2 :1 :0");
    bench.expect("SREM k a a x", ":1");
    bench.expect("SMOVE k l b", ":1");
    bench.expect("SCARD k", ":0");
    bench.expect("SPOP l", "$1 b");
    assert_eq!(bench.partition.bytes(), 0);
}

#[test]
fn combinations() {
    let mut bench = Bench::new();
    bench.run("SADD a 1 2 3");
    bench.run("SADD b 2 3 4");
    bench.run("RPUSH list x");
    bench.expect("SINTERCARD 2 a b LIMIT 1", ":1");
    bench.expect("SINTER a none list", "-WRONGTYPE Operation against a key holding the wrong kind of value");
    bench.expect("SUNIONSTORE u a b none", ":4");
    bench.expect("SDIFFSTORE list a b", ":1");
    bench.protocol = Protocol::Resp3;
    bench.expect("SMEMBERS list", "~1 $1 1");
    bench.expect("SINTERSTORE list a none", ":0");
    bench.expect("SMEMBERS list", "~0");
}

#[test]
fn each_set_that_is_asked_for_a_member_is_work() {
    let mut bench = Bench::new();
    let numbers = |from: usize| (from..from + 50).map(|at| format!(" {at}")).collect::<String>();
    bench.run(&format!("SADD same{}", numbers(0)));
    bench.run(&format!("SADD other{}", numbers(50)));
    let (same, other) = (" same".repeat(100), " other".repeat(99));
    for call in [
        format!("SINTER{same}"),
        format!("SINTERSTORE d{same}"),
        format!("SINTERCARD 100{same}"),
        format!("SDIFF same{other}"),
    ] {
        bench.run(&call);
        assert!(bench.work.steps() >= 50 * 100, "{} steps of {call}", bench.work.steps());
    }
}

#[test]
fn chance_stays_within_bounds() {
    let mut bench = Bench::new();
    for at in 0..50 {
        bench.run(&format!("SADD k {at}"));
    }
    assert!(bench.run("SRANDMEMBER k 20").starts_with("*20 "));
    assert!(bench.run("SRANDMEMBER k -200").starts_with("*200 "));
    assert!(bench.run("SPOP k 20").starts_with("*20 "));
    bench.expect("SCARD k", ":30");
    assert!(bench.run("SPOP k 9223372036854775807").starts_with("*30 "));
    bench.expect("SRANDMEMBER k -9223372036854775807", "*0");
    bench.run("SADD k a");
    bench.expect("SRANDMEMBER k -9223372036854775807", "-ERR value is out of range");
}

#[test]
fn everything_can_be_taken_back_to_its_place() {
    let mut bench = Bench::new();
    for at in 0..30 {
        bench.run(&format!("SADD k {at}"));
    }
    bench.run("RPUSH list x");
    let order = bench.run("SMEMBERS k");
    bench.check_roll_back(&["SADD k 1 new", "SREM k 5 6", "SPOP k 10", "SMOVE k other 1", "SPOP k"]);
    bench.check_roll_back(&["SUNIONSTORE list k", "SINTERSTORE k k list", "SPOP k 100", "SADD k x"]);
    assert_eq!(bench.run("SMEMBERS k"), order);
}

#[test]
fn numbers_are_kept_in_order() {
    let mut bench = Bench::new();
    bench.run("SADD k 30 -1 70000 5 x");
    bench.expect("SMEMBERS k", "*5 $2 -1 $1 5 $2 30 $5 70000 $1 x");
    bench.expect("SREM k x 70000", ":2");
    bench.expect("SADD k 05 +5", ":2");
    bench.expect("SMISMEMBER k 5 05 -1 -01", "*4 :1 :1 :1 :0");
    bench.expect("SREM k 05 +5", ":2");
    bench.expect("SMEMBERS k", "*3 $2 -1 $1 5 $2 30");
    bench.expect("OBJECT ENCODING k", "$6 intset");
    bench.expect("SSCAN k 7 COUNT 1 MATCH *5", "*2 $1 0 *1 $1 5");
    for at in 0..300 {
        bench.run(&format!("SADD k {at} text"));
    }
    let order = bench.run("SMEMBERS k");
    bench.check_roll_back(&["SREM k text 7 8", "SADD k 7 a b", "SPOP k 250", "SREM k a b", "SPOP k 20"]);
    bench.check_roll_back(&["SPOP k 200", "SREM k text", "SADD k z", "SUNIONSTORE k k", "SREM k z"]);
    assert_eq!(bench.run("SMEMBERS k"), order);
}
