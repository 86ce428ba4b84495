//! Sorted sets as redis-server 7.0.15 answers; the wanted texts were taken from it.

use crate::Protocol;
use crate::testing::Bench;

fn bench(lines: &[&str]) -> Bench {
    let mut bench = Bench::new();
    for line in lines {
        assert!(!bench.run(line).starts_with('-'), "{line}");
    }
    bench
}

/// A bench whose key `z` holds a 1, b 2, c 3, d 4.
fn letters() -> Bench {
    bench(&["zadd z 1 a 2 b 3 c 4 d"])
}

#[test]
fn zadd_counts_what_is_new() {
    let mut bench = Bench::new();
    bench.expect("zadd z 1 a 2 b 1 a", ":2");
    bench.expect("zadd z ch 1 a 5 b 6 c", ":2");
    bench.expect("zadd z nx 9 a 9 d", ":1");
    bench.expect("zadd z xx 2 a 9 e", ":0");
    bench.expect("zadd z gt ch 1 a 3 d", ":0");
    bench.expect("zadd z lt ch 1 a 10 f", ":2");
    bench.expect("zrange z 0 -1 withscores", "*10 $1 a $1 1 $1 b $1 5 $1 c $1 6 $1 d $1 9 $1 f $2 10");
    bench.expect("zadd none xx 1 a", ":0");
    bench.expect("zcard none", ":0");
}

#[test]
fn zadd_with_incr_answers_the_score() {
    let mut bench = Bench::new();
    bench.expect("zadd z incr 1.5 a", "$3 1.5");
    bench.expect("zincrby z 2 a", "$3 3.5");
    bench.expect("zadd z incr nx 1 a", "$-1");
    bench.expect("zadd z incr gt -1 a", "$-1");
    bench.expect("zadd none incr xx 1 a", "$-1");
    bench.expect("zincrby z inf a", "$3 inf");
    bench.expect("zincrby z -inf a", "-ERR resulting score is not a number (NaN)");
    bench.expect("zscore z a", "$3 inf");
    bench.expect("zincrby z -0 new", "$2 -0");
    bench.expect("zscore z new", "$1 0");
    bench.protocol = Protocol::Resp3;
    bench.expect("zincrby z 1.5 new", ",1.5");
    bench.expect("zadd z incr nx 1 a", "_");
}

#[test]
fn zadd_refuses_before_it_adds() {
    let mut bench = Bench::new();
    bench.expect("zadd z 1", "-ERR wrong number of arguments for 'zadd' command");
    bench.expect("zadd z 1 a 2", "-ERR syntax error");
    bench.expect("zadd z nx ch", "-ERR syntax error");
    bench.expect("zadd z nx xx 1 a", "-ERR XX and NX options at the same time are not compatible");
    bench.expect("zadd z gt lt 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible");
    bench.expect("zadd z incr 1 a 2 b", "-ERR INCR option supports a single increment-element pair");
    bench.expect("zadd z 1 a x b", "-ERR value is not a valid float");
    bench.expect("zadd z nan a", "-ERR value is not a valid float");
    assert!(bench.contents().0.is_empty());
}

#[test]
fn members_are_found_and_removed() {
    let mut bench = letters();
    bench.expect("zscore z b", "$1 2");
    bench.expect("zscore z x", "$-1");
    bench.expect("zmscore z a x d", "*3 $1 1 $-1 $1 4");
    bench.expect("zmscore none a", "*1 $-1");
    bench.expect("zrank z c", ":2");
    bench.expect("zrevrank z c", ":1");
    bench.expect("zrank z x", "$-1");
    bench.expect("zrem z a x c a", ":2");
    bench.expect("zcard z", ":2");
    bench.expect("zrem z b d", ":2");
    assert!(bench.contents().0.is_empty());
}

#[test]
fn ranges_of_ranks() {
    let mut bench = letters();
    bench.expect("zrange z 1 2", "*2 $1 b $1 c");
    bench.expect("zrange z -2 100", "*2 $1 c $1 d");
    bench.expect("zrange z -9223372036854775808 9223372036854775807 rev", "*4 $1 d $1 c $1 b $1 a");
    bench.expect("zrevrange z 0 1 withscores", "*4 $1 d $1 4 $1 c $1 3");
    bench.expect("zrange z 3 1", "*0");
    bench.expect("zrange z 4 9", "*0");
    bench.expect("zrange z x 1", "-ERR value is not an integer or out of range");
    bench.expect(
        "zrange z 0 1 limit 0 1",
        "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
    );
    bench.protocol = Protocol::Resp3;
    bench.expect("zrange z 0 1 withscores", "*2 *2 $1 a ,1 *2 $1 b ,2");
}

#[test]
fn ranges_of_scores() {
    let mut bench = letters();
    bench.expect("zrangebyscore z (1 3", "*2 $1 b $1 c");
    bench.expect("zrange z +inf (2 byscore rev", "*2 $1 d $1 c");
    bench.expect("zrevrangebyscore z 4 1 limit 1 2", "*2 $1 c $1 b");
    bench.expect("zrangebyscore z 1 4 limit 1 -1", "*3 $1 b $1 c $1 d");
    bench.expect("zrangebyscore z 1 4 limit -1 5", "*0");
    bench.expect("zrangebyscore z 1 4 limit 9223372036854775807 9223372036854775807", "*0");
    bench.expect("zcount z \"\" 2", ":2");
    bench.expect("zcount z (2 (2", ":0");
    bench.expect("zcount z 3 1", ":0");
    bench.expect("zcount z 1e400 2", ":0");
    bench.expect("zcount z 1x 2", "-ERR min or max is not a float");
    bench.expect("zcount z nan 2", "-ERR min or max is not a float");
    bench.expect("zrange z 1 2 byscore byscore", "-ERR syntax error");
    bench.expect("zrange z 1 2 byscore limit 1", "-ERR syntax error");
}

#[test]
fn ranges_of_bytes() {
    let mut bench = bench(&["zadd z 0 a 0 aa 0 b 0 c"]);
    bench.expect("zrangebylex z - +", "*4 $1 a $2 aa $1 b $1 c");
    bench.expect("zrangebylex z (a [b", "*2 $2 aa $1 b");
    bench.expect("zrevrangebylex z + [aa limit 0 2", "*2 $1 c $1 b");
    bench.expect("zrange z [a (b bylex", "*2 $1 a $2 aa");
    bench.expect("zlexcount z + -", ":0");
    bench.expect("zlexcount z - -", ":0");
    bench.expect("zlexcount z a b", "-ERR min or max not valid string range item");
    bench.expect(
        "zrange z - + bylex withscores",
        "-ERR syntax error, WITHSCORES not supported in combination with BYLEX",
    );
    bench.expect("zremrangebylex z [aa [b", ":2");
    bench.expect("zlexcount z - +", ":2");
}

#[test]
fn ranges_are_stored_and_removed() {
    let mut bench = letters();
    bench.expect("zrangestore t z 0 1 rev", ":2");
    bench.expect("zrange t 0 -1 withscores", "*4 $1 c $1 3 $1 d $1 4");
    bench.expect("zrangestore t z 9 9 byscore", ":0");
    bench.expect("zcard t", ":0");
    bench.expect("zrangestore t z 0 1 withscores", "-ERR syntax error");
    bench.expect("zrangestore z z 1 -1", ":3");
    bench.expect("zremrangebyrank z -1 -1", ":1");
    bench.expect("zremrangebyscore z (2 inf", ":1");
    bench.expect("zrange z 0 -1", "*1 $1 b");
    bench.expect("zremrangebyrank z 0 -1", ":1");
    assert!(bench.contents().0.is_empty());
}

#[test]
fn combinations() {
    let mut bench = bench(&["zadd x 1 a 2 b 3 c", "zadd y 10 b 20 c 30 d"]);
    bench.expect("zunion 2 x y", "*4 $1 a $1 b $1 c $1 d");
    bench.expect("zinter 2 x y withscores", "*4 $1 b $2 12 $1 c $2 23");
    bench.expect("zinter 2 x y weights 2 1 aggregate min withscores", "*4 $1 b $1 4 $1 c $1 6");
    bench.expect(
        "zunion 3 x y none aggregate max withscores",
        "*8 $1 a $1 1 $1 b $2 10 $1 c $2 20 $1 d $2 30",
    );
    bench.expect("zdiff 2 x y withscores", "*2 $1 a $1 1");
    bench.expect("zintercard 2 x y", ":2");
    bench.expect("zintercard 2 x y limit 1", ":1");
    bench.expect("zunionstore x 2 x y", ":4");
    bench.expect("zscore x c", "$2 23");
    bench.expect("zinterstore x 2 x none", ":0");
    bench.expect("zcard x", ":0");
    bench.expect("zdiffstore t 1 y", ":3");
    bench.protocol = Protocol::Resp3;
    bench.expect("zdiff 1 y withscores", "*3 *2 $1 b ,10 *2 $1 c ,20 *2 $1 d ,30");
}

#[test]
fn infinities_that_meet_are_zero() {
    let mut bench = bench(&["zadd x inf a", "zadd y -inf a"]);
    bench.expect("zunion 2 x y withscores", "*2 $1 a $1 0");
    bench.expect("zinter 1 x weights 0 withscores", "*2 $1 a $1 0");
}

#[test]
fn combinations_refuse_in_order() {
    let mut bench = letters();
    bench.expect("zunion 0 z", "-ERR at least 1 input key is needed for 'zunion' command");
    bench.expect("zinterstore t -1 z", "-ERR at least 1 input key is needed for 'zinterstore' command");
    bench.expect("zunion 2 z", "-ERR syntax error");
    bench.expect("zunion 9223372036854775807 z", "-ERR syntax error");
    bench.expect("zunion x z", "-ERR value is not an integer or out of range");
    bench.expect("zunion 1 z weights x", "-ERR weight value is not a float");
    bench.expect("zunion 1 z aggregate avg", "-ERR syntax error");
    bench.expect("zunionstore t 1 z withscores", "-ERR syntax error");
    bench.expect("zdiff 1 z weights 1", "-ERR syntax error");
    bench.expect("zintercard 1 z limit -1", "-ERR LIMIT can't be negative");
    bench.expect("zintercard 1 z limit x", "-ERR LIMIT can't be negative");
}

#[test]
fn ends_are_popped() {
    let mut bench = letters();
    bench.expect("zpopmin z", "*2 $1 a $1 1");
    bench.expect("zpopmax z 2", "*4 $1 d $1 4 $1 c $1 3");
    bench.expect("zpopmin z 0", "*0");
    bench.expect("zpopmin z -1", "-ERR value is out of range, must be positive");
    bench.expect("zpopmin z 1 2", "-ERR syntax error");
    bench.expect("zpopmin none", "*0");
    bench.expect("zpopmin z 9223372036854775807", "*2 $1 b $1 2");
    assert!(bench.contents().0.is_empty());

    let mut bench = letters();
    bench.expect("zmpop 2 none z min", "*2 $1 z *1 *2 $1 a $1 1");
    bench.expect("zmpop 1 none max", "*-1");
    bench.expect("zmpop 0 z min", "-ERR numkeys should be greater than 0");
    bench.expect("zmpop 9223372036854775807 z min", "-ERR syntax error");
    bench.expect("zmpop 1 z mid", "-ERR syntax error");
    bench.expect("zmpop 1 z min count 0", "-ERR count should be greater than 0");
    bench.expect("zmpop 1 z min count 1 count 1", "-ERR syntax error");
    bench.protocol = Protocol::Resp3;
    bench.expect("zpopmin z", "*2 $1 b ,2");
    bench.expect("zpopmin z 1", "*1 *2 $1 c ,3");
    bench.expect("zmpop 1 z max count 5", "*2 $1 z *1 *2 $1 d ,4");
    bench.expect("zmpop 1 z max", "_");
}

#[test]
fn random_members() {
    let mut bench = letters();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        seen.insert(bench.run("zrandmember z"));
        let three = bench.run("zrandmember z 3");
        let mut members: Vec<&str> = three.split(' ').filter(|word| word.len() == 1).collect();
        members.sort_unstable();
        members.dedup();
        assert_eq!(members.len(), 3, "{three}");
    }
    assert_eq!(seen.len(), 4);
    bench.expect("zrandmember z 9", "*4 $1 a $1 b $1 c $1 d");
    assert!(bench.run("zrandmember z -9 withscores").starts_with("*18 "));
    bench.expect("zrandmember none", "$-1");
    bench.expect("zrandmember none 2", "*0");
    bench.expect("zrandmember z -9223372036854775807", "-ERR value is out of range");
    bench.expect("zrandmember z 4611686018427387904 withscores", "-ERR value is out of range");
    bench.expect("zrandmember z 1 withscore", "-ERR syntax error");
}

#[test]
fn scans_see_every_member() {
    let mut bench = letters();
    bench.expect("zscan z 0", "*2 $1 0 *8 $1 a $1 1 $1 b $1 2 $1 c $1 3 $1 d $1 4");
    bench.expect("zscan z 0 match [bc] count 1", "*2 $1 0 *4 $1 b $1 2 $1 c $1 3");
    bench.expect("zscan none 0 nonsense", "*2 $1 0 *0");
    bench.expect("zscan z x", "-ERR invalid cursor");
    for number in 0..500 {
        bench.run(&format!("zadd big {number}.5 m{number}"));
    }
    let (mut cursor, mut seen) = (String::from("0"), Vec::new());
    loop {
        let step = bench.run(&format!("zscan big {cursor} count 7"));
        let words: Vec<&str> = step.split(' ').collect();
        cursor = words[2].to_owned();
        seen.extend(words.iter().filter(|word| word.starts_with('m')).map(|word| (*word).to_owned()));
        if cursor == "0" {
            break;
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 500);
}

#[test]
fn other_types_are_refused_or_replaced() {
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut bench = bench(&["lpush l x", "sadd s a b", "zadd z 5 a"]);
    for line in ["zadd l 1 a", "zadd l xx 1 a", "zscore l a", "zrange l 0 -1", "zrem s a", "zpopmin l 0"] {
        bench.expect(line, WRONG);
    }
    bench.expect("zadd l x a", "-ERR value is not a valid float");
    bench.expect("zrangebyscore l x 1", "-ERR min or max is not a float");
    bench.expect("zmpop 3 none l z min", WRONG);
    bench.expect("zunion 2 z l nonsense", WRONG);
    bench.expect("zunion 2 z s withscores", "*4 $1 b $1 1 $1 a $1 6");
    bench.expect("zinter 2 s z weights 3 1 aggregate max withscores", "*2 $1 a $1 5");
    bench.check_roll_back(&["zunionstore l 2 z s", "zrangestore s z 9 9"]);
    bench.expect("zunionstore l 2 z s", ":2");
    bench.expect("zrangestore s z 9 9", ":0");
    bench.expect("scard s", ":0");
}

#[test]
fn a_rank_comes_with_its_score() {
    let mut bench = bench(&["zadd z 1 a 2.5 b"]);
    bench.expect("zrank z b withscore", "*2 :1 $3 2.5");
    bench.expect("zrevrank z b WITHSCORE", "*2 :0 $3 2.5");
    bench.expect("zrank z x withscore", "*-1");
    bench.expect("zrank z b withscores", "-ERR syntax error");
    bench.expect("zrank z b withscore x", "-ERR wrong number of arguments for 'zrank' command");
    bench.protocol = crate::Protocol::Resp3;
    bench.expect("zrank z b withscore", "*2 :1 ,2.5");
    bench.expect("zrank z x withscore", "_");
}

#[test]
fn everything_can_be_taken_back() {
    let mut bench = bench(&["zadd z 1 a 2 b 3 c 4 d", "zadd y 5 a 6 e"]);
    bench.check_roll_back(&["zadd z 5 a 6 e", "zincrby z 1 a", "zadd z ch 1 a", "zrem z b", "zadd z 9 b"]);
    bench.check_roll_back(&["zrem z a b c d", "zadd z 1 x", "zpopmin z"]);
    bench.check_roll_back(&["zpopmin z 2", "zpopmax z", "zmpop 1 z max count 9", "zincrby z 1 new"]);
    bench.check_roll_back(&["zremrangebyrank z 1 2", "zremrangebyscore z -inf inf"]);
    bench.check_roll_back(&["zunionstore z 2 z y", "zinterstore y 2 z y", "zdiffstore y 1 none"]);
    bench.check_roll_back(&["zrangestore y z 0 -1", "zadd y 7 a", "zrangestore z y 9 9"]);
    bench.check_roll_back(&["zadd new 1 a 2 b", "zrem new a", "zrem new b", "zadd new 3 c"]);
}

#[test]
fn each_set_that_is_asked_for_a_member_is_work() {
    let numbers = |from: usize| (from..from + 50).map(|at| format!(" {at} {at}")).collect::<String>();
    let mut bench = bench(&[&format!("ZADD same{}", numbers(0)), &format!("ZADD other{}", numbers(50))]);
    let (same, other) = (" same".repeat(100), " other".repeat(99));
    for call in [
        format!("ZINTER 100{same}"),
        format!("ZINTERSTORE d 100{same}"),
        format!("ZINTERCARD 100{same}"),
        format!("ZDIFF 100 same{other}"),
    ] {
        bench.run(&call);
        assert!(bench.work.steps() >= 50 * 100, "{} steps of {call}", bench.work.steps());
    }
}
