use crate::testing::Bench;

#[test]
fn ids_come_from_the_time_of_the_command() {
    let mut bench = Bench::new();
    bench.now_ms = 500;
    bench.expect("XADD s * a 1", "$5 500-0");
    bench.expect("XADD s * a 1", "$5 500-1");
    bench.now_ms = 400;
    bench.expect("XADD s * a 1", "$5 500-2");
    bench.now_ms = 501;
    bench.expect("XADD s * a 1", "$5 501-0");
    bench.run("XSETID s 501-18446744073709551615");
    bench.expect("XADD s * a 1", "$5 502-0");
}

#[test]
fn all_changes_of_a_stream_are_taken_back() {
    let mut bench = Bench::new();
    for number in 1..=250 {
        bench.run(&format!("XADD s {number}-1 a {number} b text"));
    }
    bench.run("XGROUP CREATE s g 0");
    bench.run("XREADGROUP GROUP g c COUNT 150 STREAMS s >");
    for lines in [
        &["XADD s * a 1", "XADD s * other 1", "XADD new * a 1"][..],
        &["XADD s MAXLEN 5 * a 1", "XADD s MAXLEN ~ 100 * a 1"],
        &["XTRIM s MINID 150", "XDEL s 151-1 152-1", "XADD s * a 1"],
        &["XDEL s 1-1 2-1 250-1", "XTRIM s MAXLEN 0", "XADD s * a 1"],
        &["XACK s g 1-1 2-1", "XREADGROUP GROUP g d STREAMS s >", "XREADGROUP GROUP g d STREAMS s 0"],
        &["XCLAIM s g e 0 1-1 200-1 FORCE", "XAUTOCLAIM s g f 0 0", "XGROUP DELCONSUMER s g c"],
        &["XGROUP DESTROY s g", "XGROUP CREATE s g $", "XGROUP CREATE s h 5"],
        &["XSETID s 999-1 ENTRIESADDED 500", "XGROUP SETID s g 7", "XGROUP CREATECONSUMER s g z"],
        &["DEL s", "XADD s 1-1 a b", "RENAME s t", "COPY t s"],
    ] {
        bench.check_roll_back(lines);
    }
}

#[test]
fn an_idle_time_is_that_of_the_command() {
    let mut bench = Bench::new();
    bench.now_ms = 1000;
    bench.run("XADD s 1-1 a 1");
    bench.run("XGROUP CREATE s g 0");
    bench.run("XREADGROUP GROUP g c STREAMS s >");
    bench.now_ms = 1600;
    bench.expect("XPENDING s g - + 9", "*1 *4 $3 1-1 $1 c :600 :1");
    bench.expect("XPENDING s g IDLE 601 - + 9", "*0");
    bench.expect("XCLAIM s g d 601 1-1", "*0");
    bench.expect("XINFO CONSUMERS s g", "*1 *6 $4 name $1 c $7 pending :1 $4 idle :600");
    bench.expect("XCLAIM s g d 600 1-1 IDLE 50", "*1 *2 $3 1-1 *2 $1 a $1 1");
    bench.expect("XPENDING s g - + 9", "*1 *4 $3 1-1 $1 d :50 :2");
    bench.expect("XAUTOCLAIM s g c 51 0", "*3 $3 0-0 *0 *0");
    bench.expect("XAUTOCLAIM s g c 50 0 JUSTID", "*3 $3 0-0 *1 $3 1-1 *0");
    bench.expect("XREADGROUP GROUP g c STREAMS s 0", "*1 *2 $1 s *1 *2 $3 1-1 *2 $1 a $1 1");
    bench.expect("XPENDING s g - + 9", "*1 *4 $3 1-1 $1 c :0 :3");
}

#[test]
fn a_radix_tree_of_redis_has_so_many_nodes() {
    let mut bench = Bench::new();
    let nodes = |bench: &mut Bench| {
        let info = bench.run("XINFO STREAM s");
        info.split("radix-tree-nodes :").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned)
    };
    bench.run("XGROUP CREATE s g $ MKSTREAM");
    assert_eq!(nodes(&mut bench).as_deref(), Some("1"));
    let large = "x".repeat(5000);
    // As redis-server 7.0.15 tells of the same.
    for (id, wanted) in [("1-1", "2"), ("1-2", "4"), ("2-1", "8"), ("258-1", "11"), ("258-2", "13")] {
        bench.run(&format!("XADD s {id} a {large}"));
        assert_eq!(nodes(&mut bench).as_deref(), Some(wanted), "{id}");
    }
}
