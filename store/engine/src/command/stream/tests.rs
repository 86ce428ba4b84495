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
fn the_last_entry_is_read() {
    let mut bench = Bench::new();
    bench.expect("XREAD STREAMS s +", "*-1");
    for id in ["1-0", "1-1", "2-0"] {
        bench.run(&format!("XADD s {id} a {id}"));
    }
    bench.expect("XREAD COUNT 9 STREAMS s +", "*1 *2 $1 s *1 *2 $3 2-0 *2 $1 a $3 2-0");
    bench.run("XDEL s 2-0");
    bench.expect("XREAD STREAMS s +", "*1 *2 $1 s *1 *2 $3 1-1 *2 $1 a $3 1-1");
    bench.run("XTRIM s MAXLEN 0");
    bench.expect("XREAD STREAMS s +", "*-1");
    bench.run("XGROUP CREATE s g 0");
    assert!(bench.run("XREADGROUP GROUP g c STREAMS s +").starts_with("-ERR The + ID is meaningless"));
}

/// A stream of so many entries, which two groups have read.
fn read_by_two(bench: &mut Bench, entries: usize) {
    bench.run("DEL s");
    for number in 1..=entries {
        bench.run(&format!("XADD s {number}-0 a 1"));
    }
    for group in ["g", "h"] {
        bench.run(&format!("XGROUP CREATE s {group} 0"));
        bench.run(&format!("XREADGROUP GROUP {group} c STREAMS s >"));
    }
}

#[test]
fn entries_go_with_or_without_their_references() {
    const NONE: &str = "*4 :0 $-1 $-1 *-1";
    const BOTH: &str = "*4 :2 $3 1-0 $3 2-0 *1 *2 $1 c $1 2";
    let mut bench = Bench::new();
    for (lines, len, first, second) in [
        (
            &[("XACKDEL s g DELREF IDS 2 1-0 2-0", "*2 :1 :1"), ("XACKDEL s h IDS 1 1-0", "*1 :-1")][..],
            0,
            NONE,
            NONE,
        ),
        (&[("XACKDEL s g KEEPREF IDS 2 1-0 2-0", "*2 :1 :1")], 0, NONE, BOTH),
        (
            &[("XACKDEL s g IDS 2 1-0 2-0", "*2 :1 :1"), ("XACKDEL s h IDS 2 1-0 2-0", "*2 :1 :1")],
            0,
            NONE,
            NONE,
        ),
        (&[("XACKDEL s g ACKED IDS 2 1-0 2-0", "*2 :2 :2")], 2, NONE, BOTH),
        (
            &[
                ("XACKDEL s g IDS 2 1-0 2-0 ACKED", "*2 :2 :2"),
                ("XACKDEL s h ACKED IDS 2 1-0 2-0", "*2 :1 :1"),
            ],
            0,
            NONE,
            NONE,
        ),
        (&[("XACKDEL s none IDS 2 1-0 2-0", "*2 :-1 :-1")], 2, BOTH, BOTH),
        (&[("XDELEX s IDS 3 1-0 2-0 3-0", "*3 :1 :1 :-1")], 0, BOTH, BOTH),
        (&[("XDELEX s DELREF IDS 2 1-0 2-0", "*2 :1 :1")], 0, NONE, NONE),
        (&[("XDELEX s ACKED IDS 2 1-0 2-0", "*2 :2 :2"), ("XTRIM s MAXLEN 0 ACKED", ":0")], 2, BOTH, BOTH),
        (&[("XTRIM s MAXLEN = 0 DELREF", ":2")], 0, NONE, NONE),
        (&[("XTRIM s MINID 9 KEEPREF", ":2")], 0, BOTH, BOTH),
    ] {
        read_by_two(&mut bench, 2);
        lines.iter().for_each(|(line, wanted)| bench.expect(line, wanted));
        bench.expect("XLEN s", &format!(":{len}"));
        bench.expect("XPENDING s g", first);
        bench.expect("XPENDING s h", second);
    }
    // What a group has not read yet is referenced, too.
    bench.run("XADD s 9-0 a 1");
    bench.expect("XDELEX s ACKED IDS 1 9-0", "*1 :2");
}

#[test]
fn trimming_passes_over_what_is_not_acknowledged() {
    let mut bench = Bench::new();
    read_by_two(&mut bench, 250);
    for group in ["g", "h"] {
        bench.run(&format!("XACK s {group} 2-0 4-0 150-0"));
    }
    bench.expect("XTRIM s MINID 5 ACKED", ":2");
    assert!(bench.run("XINFO STREAM s").contains("max-deleted-entry-id $3 4-0"));
    bench.expect("XTRIM s MAXLEN ~ 240 ACKED", ":0");
    bench.expect("XTRIM s MAXLEN 247 ACKED", ":1");
    bench.expect("XRANGE s 149 151", "*2 *2 $5 149-0 *2 $1 a $1 1 *2 $5 151-0 *2 $1 a $1 1");
    bench.expect("XTRIM s MAXLEN ~ 100 DELREF LIMIT 150", ":98");
    bench.expect("XADD s DELREF MAXLEN 1 999-0 a 1", "$5 999-0");
    bench.expect("XPENDING s g", "*4 :0 $-1 $-1 *-1");
    bench.expect("XLEN s", ":1");
}

#[test]
fn words_behind_the_references() {
    let mut bench = Bench::new();
    bench.expect("XDELEX s IDS 2 1-1 2-2", "*2 :-1 :-1");
    bench.expect("XACKDEL s g IDS 2 1-1 2-2", "*2 :-1 :-1");
    bench.run("XADD s 1-0 a 1");
    for (words, wanted) in [
        ("IDS abc 1-1", "-ERR Number of IDs must be a positive integer"),
        ("IDS 0 1-1", "-ERR Number of IDs must be a positive integer"),
        ("IDS 3 1-1 2-2", "-ERR The `numids` parameter must match the number of arguments"),
        ("IDS 1 1-1 2-2", "-ERR syntax error"),
        ("KEEPREF DELREF IDS 1 1-1", "-ERR syntax error"),
        ("BOGUS IDS 1 1-1", "-ERR syntax error"),
        ("IDS 1 x", "-ERR Invalid stream ID specified as stream command argument"),
    ] {
        bench.expect(&format!("XDELEX s {words}"), wanted);
        bench.expect(&format!("XACKDEL s g {words}"), wanted);
    }
    bench.expect("XTRIM s MAXLEN 0 DELREF ACKED", "-ERR syntax error");
    bench.expect("XTRIM s ACKED", "-ERR wrong number of arguments for 'xtrim' command");
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
        &["XTRIM s MAXLEN 20 DELREF", "XADD s DELREF MAXLEN ~ 1 * a 1"],
        &["XACK s g 1-1 2-1 120-1", "XTRIM s MAXLEN 0 ACKED", "XTRIM s MINID 249 KEEPREF"],
        &["XDELEX s DELREF IDS 2 1-1 200-1", "XACKDEL s g KEEPREF IDS 2 1-1 2-1", "XACKDEL s g IDS 1 3-1"],
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

/// From `XREADGROUP CLAIM` in Redis' `tests/unit/type/stream-cgroups.tcl`.
#[test]
fn what_has_been_pending_for_long_is_delivered_again() {
    let mut bench = Bench::new();
    for line in ["XADD s 1-0 f v", "XADD s 2-0 f v", "XADD s 3-0 f v", "XGROUP CREATE s g 0"] {
        bench.run(line);
    }
    bench.expect(
        "XREADGROUP GROUP g c CLAIM 50 COUNT 1 STREAMS s >",
        "*1 *2 $1 s *1 *4 $3 1-0 *2 $1 f $1 v :0 :0",
    );
    bench.now_ms += 10;
    bench.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >");
    bench.now_ms += 45;
    bench.expect(
        "XREADGROUP GROUP g d CLAIM 50 COUNT 2 NOACK STREAMS s >",
        "*1 *2 $1 s *2 *4 $3 1-0 *2 $1 f $1 v :55 :1 *4 $3 3-0 *2 $1 f $1 v :0 :0",
    );
    bench.expect("XPENDING s g - + 9", "*2 *4 $3 1-0 $1 d :0 :2 *4 $3 2-0 $1 c :45 :1");
    bench.expect("XREADGROUP GROUP g d CLAIM 50 STREAMS s >", "*-1");
    bench.now_ms += 60;
    // The one that waits the longest comes first; of those that were deleted there is nothing to tell.
    bench.run("XADD s 4-0 f v");
    bench.expect(
        "XREADGROUP GROUP g e COUNT 2 CLAIM 50 STREAMS s >",
        "*1 *2 $1 s *2 *4 $3 2-0 *2 $1 f $1 v :105 :1 *4 $3 1-0 *2 $1 f $1 v :60 :2",
    );
    bench.run("XDEL s 1-0");
    bench.expect(
        "XREADGROUP GROUP g e CLAIM 0 STREAMS s >",
        "*1 *2 $1 s *2 *4 $3 2-0 *2 $1 f $1 v :0 :2 *4 $3 4-0 *2 $1 f $1 v :0 :0",
    );
    // CLAIM does not change what a consumer's own history contains.
    bench.expect(
        "XREADGROUP GROUP g e CLAIM 1000 COUNT 1 STREAMS s 1-0",
        "*1 *2 $1 s *1 *2 $3 2-0 *2 $1 f $1 v",
    );
    bench.check_roll_back(&["XREADGROUP GROUP g z CLAIM 0 STREAMS s >"]);
    for (words, wanted) in [
        ("CLAIM x", "-ERR min-idle-time is not an integer"),
        ("CLAIM -0", "-ERR min-idle-time is not an integer"),
        ("CLAIM -5", "-ERR min-idle-time must be a positive integer"),
        ("CLAIM", "-ERR min-idle-time is not an integer"),
    ] {
        bench.expect(&format!("XREADGROUP GROUP g e {words} STREAMS s >"), wanted);
    }
    bench.expect(
        "XREAD CLAIM 5 STREAMS s 0",
        "-ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
    );
}
