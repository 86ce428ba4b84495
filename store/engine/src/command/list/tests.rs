use crate::testing::Bench;

#[test]
fn both_ends() {
    let mut bench = Bench::new();
    bench.expect("RPUSH k a b c", ":3");
    bench.expect("LPUSH k y z", ":5");
    bench.expect("LRANGE k 0 -1", "*5 $1 z $1 y $1 a $1 b $1 c");
    bench.expect("LPOP k", "$1 z");
    bench.expect("RPOP k 2", "*2 $1 c $1 b");
    bench.expect("LPOP k 9", "*2 $1 y $1 a");
    bench.expect("LPOP k", "$-1");
    bench.expect("LPOP k 1", "*-1");
    bench.expect("LPUSHX k a", ":0");
    bench.expect("LLEN k", ":0");
    assert_eq!(bench.partition.bytes(), 0);
}

#[test]
fn removal_takes_the_asked_side_first() {
    let mut bench = Bench::new();
    bench.run("RPUSH k a b a c a d a");
    bench.expect("LREM k -2 a", ":2");
    bench.expect("LRANGE k 0 -1", "*5 $1 a $1 b $1 a $1 c $1 d");
    bench.expect("LREM k 1 a", ":1");
    bench.expect("LRANGE k 0 -1", "*4 $1 b $1 a $1 c $1 d");
    bench.expect("LREM k -9223372036854775807 b", ":1");
    bench.expect("LPOS k a RANK -1 COUNT 0", "*1 :0");
}

#[test]
fn a_list_of_one_element_turns_around_and_keeps_its_expiry() {
    let mut bench = Bench::new();
    bench.run("RPUSH k a");
    let expiry = std::num::NonZeroU64::new(2_000_000);
    bench.partition.databases[0].set_expiry(0, expiry);
    bench.expect("RPOPLPUSH k k", "$1 a");
    assert_eq!(bench.partition.databases[0].at(0).expire_at_ms, expiry);
}

#[test]
fn everything_can_be_taken_back() {
    let mut bench = Bench::new();
    bench.run("RPUSH k a b a c a d a e f g");
    bench.run("RPUSH one x");
    for lines in [
        &["LPUSH k 1 2", "LPUSH k 3", "LTRIM k 2 6", "RPUSH k 4", "LTRIM k 1 -2"][..],
        &["LREM k 0 a", "LINSERT k BEFORE d x", "LSET k 0 y", "LREM k 1 x", "LREM k -2 a"],
        &["LPOP k 3", "RPOP k 3", "LPOP k", "RPOP k 100", "LPUSH k new", "DEL k"],
        &["LMOVE one k LEFT RIGHT", "LMOVE k k LEFT RIGHT", "RPOPLPUSH k new", "LTRIM k 5 1"],
        &["LMPOP 2 none k RIGHT COUNT 4", "LMPOP 1 one LEFT", "LREM k 0 a", "LTRIM k 9 0"],
    ] {
        bench.check_roll_back(lines);
    }
}

#[test]
fn adjacent_pushes_are_one_record() {
    let mut bench = Bench::new();
    bench.run("RPUSH k a");
    bench.undo = Some(crate::UndoLog::default());
    bench.run("LPUSH k b");
    let bytes = bench.undo.as_ref().map(crate::UndoLog::bytes);
    bench.run("LPUSH k c d e");
    assert_eq!(bench.undo.as_ref().map(crate::UndoLog::bytes), bytes);
}
