//! The replies of RedisJSON.

use crate::steps::CancelFlag;
use crate::testing::Bench;
use crate::{Protocol, UndoLog};

const DOCUMENT: &str = r#"JSON.SET d $ {"a":1,"b":{"a":[1,2],"s":"text"},"c":[true,null,2.5,"x"],"s":"é"}"#;

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.expect(DOCUMENT, "+OK");
    bench.expect("SET text x", "+OK");
    bench
}

/// Calls that change nothing, with their replies in RESP2.
#[test]
fn what_is_read() {
    let mut bench = bench();
    let before = bench.contents();
    for (call, wanted) in [
        ("TYPE d", "+ReJSON-RL"),
        ("OBJECT ENCODING d", "$3 raw"),
        ("JSON.GET d $.a", "$3 [1]"),
        ("JSON.GET d .a", "$1 1"),
        ("JSON.GET d a", "$1 1"),
        ("JSON.GET d $..a", "$9 [1,[1,2]]"),
        ("JSON.GET d $.none", "$2 []"),
        ("JSON.GET d .none", "-ERR Path '$.none' does not exist"),
        ("JSON.GET d $.a $.s", r#"$24 {"$.a":[1],"$.s":["é"]}"#),
        ("JSON.GET d .a .s .a", r#"$18 {".a":1,".s":"é"}"#),
        ("JSON.GET d .a $.none", r#"$22 {".a":[1],"$.none":[]}"#),
        ("JSON.GET d .a .none", "-ERR Path '$.none' does not exist"),
        ("JSON.GET d INDENT - NEWLINE | SPACE _ b", r#"$37 {|-"a":_[|--1,|--2|-],|-"s":_"text"|}"#),
        ("JSON.GET d INDENT", "-ERR syntax error"),
        ("JSON.GET d FORMAT EXPAND $", "-ERR the FORMAT argument is not supported"),
        (
            "JSON.GET d $[",
            "-ERR Error occurred on position 3, expected `*`, `?`, a position or a name in quotes",
        ),
        ("JSON.GET none $", "$-1"),
        ("JSON.GET text $", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GET d", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("JSON.MGET d none text $.a", "*3 $3 [1] $-1 $-1"),
        ("JSON.MGET d d .b.s", r#"*2 $6 "text" $6 "text""#),
        ("JSON.MGET d .none", "*1 $-1"),
        ("JSON.TYPE d", "$6 object"),
        ("JSON.TYPE d $.c[*]", "*4 $7 boolean $4 null $6 number $6 string"),
        ("JSON.TYPE d $..a", "*2 $7 integer $5 array"),
        ("JSON.TYPE d .none", "$-1"),
        ("JSON.TYPE d $.none", "*0"),
        ("JSON.TYPE none $", "$-1"),
        ("JSON.STRLEN d $..s", "*2 :2 :4"),
        ("JSON.STRLEN d $..a", "*2 $-1 $-1"),
        ("JSON.STRLEN d .s", ":2"),
        ("JSON.STRLEN d .a", "-WRONGTYPE wrong type of path value - expected string but found integer"),
        ("JSON.STRLEN d .none", "-ERR Path '$.none' does not exist"),
        ("JSON.STRLEN none", "$-1"),
        ("JSON.STRLEN none $", "-ERR could not perform this operation on a key that doesn't exist"),
        ("JSON.ARRLEN d $..a", "*2 $-1 :2"),
        ("JSON.ARRLEN d .c", ":4"),
        ("JSON.ARRLEN d .a", "-ERR Path '$.a' does not exist or not an array"),
        ("JSON.ARRLEN d .none", "-ERR Path '$.none' does not exist"),
        ("JSON.OBJLEN d", ":4"),
        ("JSON.OBJLEN d $.*", "*4 $-1 :2 $-1 $-1"),
        ("JSON.OBJLEN d .none", "$-1"),
        ("JSON.OBJLEN d .a", "-WRONGTYPE wrong type of path value - expected object but found integer"),
        ("JSON.OBJLEN none $", "-ERR Path '$' does not exist or not an object"),
        ("JSON.OBJKEYS d", "*4 $1 a $1 b $1 c $1 s"),
        ("JSON.OBJKEYS d $.*", "*4 $-1 *2 $1 a $1 s $-1 $-1"),
        ("JSON.OBJKEYS d .a", "-ERR Path '$.a' does not exist or not an object"),
        ("JSON.OBJKEYS none", "$-1"),
        ("JSON.ARRINDEX d $.c 2.5", "*1 :2"),
        ("JSON.ARRINDEX d $..a 2", "*2 $-1 :1"),
        ("JSON.ARRINDEX d .c null", ":1"),
        ("JSON.ARRINDEX d .c null 2", ":-1"),
        ("JSON.ARRINDEX d .c null 0 1", ":-1"),
        ("JSON.ARRINDEX d .c null -3 -1", ":1"),
        ("JSON.ARRINDEX d .c 2", ":-1"),
        ("JSON.ARRINDEX d .a 2", "-WRONGTYPE wrong type of path value - expected array but found integer"),
        ("JSON.ARRINDEX none . 2", "-ERR Path does not exist"),
        ("JSON.RESP d .c", "*5 +[ +true $-1 $3 2.5 $1 x"),
        ("JSON.RESP d $.b", "*1 *5 +{ $1 a *3 +[ :1 :2 $1 s $4 text"),
        ("JSON.RESP none", "$-1"),
        ("JSON.DEBUG MEMORY none", ":0"),
        ("JSON.DEBUG MEMORY none $", "*0"),
        ("JSON.DEBUG MEMORY d $.a", "*1 :24"),
        (
            "JSON.DEBUG HELP",
            "*2 +MEMORY <key> [path] - reports memory usage +HELP                - this message",
        ),
    ] {
        bench.expect(call, wanted);
    }
    assert_eq!(bench.contents(), before);
}

#[test]
fn replies_of_resp3() {
    let mut bench = bench();
    bench.protocol = Protocol::Resp3;
    for (call, wanted) in [
        ("JSON.GET d $.a", "$3 [1]"),
        ("JSON.TYPE d $.a", "*1 *1 $7 integer"),
        ("JSON.TYPE d .a", "*1 $7 integer"),
        ("JSON.TYPE none .a", "*1 _"),
        ("JSON.NUMINCRBY d $..a 1", "*2 :2 _"),
        ("JSON.NUMINCRBY d .a 0.5", "*1 ,2.5"),
        ("JSON.NUMMULTBY d $.a 2", "*1 ,5"),
        ("JSON.RESP d .c", "*5 +[ +true _ ,2.5 $1 x"),
        ("JSON.TOGGLE d $.c[0,1]", "*2 :0 _"),
    ] {
        bench.expect(call, wanted);
    }
}

/// Calls in turn, each with its reply and what then is the document.
const CHANGES: &[(&str, &str, &str)] = &[
    ("JSON.SET d $ {\"a\":1}", "+OK", r#"{"a":1}"#),
    ("JSON.SET d $.b 2 NX", "+OK", r#"{"a":1,"b":2}"#),
    ("JSON.SET d $.b 3 NX", "$-1", r#"{"a":1,"b":2}"#),
    ("JSON.SET d $.c 3 XX", "$-1", r#"{"a":1,"b":2}"#),
    ("JSON.SET d $.b 3 XX", "+OK", r#"{"a":1,"b":3}"#),
    ("JSON.SET d . [1] NX", "$-1", r#"{"a":1,"b":3}"#),
    ("JSON.SET d $.none.x 1", "$-1", r#"{"a":1,"b":3}"#),
    ("JSON.SET d $.a.x 1", "$-1", r#"{"a":1,"b":3}"#),
    ("JSON.SET d $..none 1", "-ERR wrong static path", r#"{"a":1,"b":3}"#),
    ("JSON.SET d $.a[0] 1", "-ERR array index out of range", r#"{"a":1,"b":3}"#),
    ("JSON.SET d $.a {", "-ERR EOF while parsing an object at line 1 column 1", r#"{"a":1,"b":3}"#),
    ("JSON.SET d $.a 1 NX XX", "-ERR syntax error", r#"{"a":1,"b":3}"#),
    ("JSON.SET d $.* {\"a\":0}", "+OK", r#"{"a":{"a":0},"b":{"a":0}}"#),
    ("JSON.SET d $..a 7", "+OK", r#"{"a":7,"b":{"a":7}}"#),
    ("JSON.NUMINCRBY d $..a 3", "$7 [10,10]", r#"{"a":10,"b":{"a":10}}"#),
    ("JSON.NUMINCRBY d .b.a -0.5", "$3 9.5", r#"{"a":10,"b":{"a":9.5}}"#),
    ("JSON.NUMMULTBY d $.* 2", "$9 [20,null]", r#"{"a":20,"b":{"a":9.5}}"#),
    ("JSON.NUMMULTBY d .a 9223372036854775807", "-ERR numeric overflow", r#"{"a":20,"b":{"a":9.5}}"#),
    ("JSON.NUMMULTBY d $..a 1e308", "-ERR result is not a number", r#"{"a":20,"b":{"a":9.5}}"#),
    (
        "JSON.NUMINCRBY d .b 1",
        "-ERR Path '$.b' does not exist or does not contains a number",
        r#"{"a":20,"b":{"a":9.5}}"#,
    ),
    ("JSON.NUMINCRBY d .a true", "-ERR bad input number", r#"{"a":20,"b":{"a":9.5}}"#),
    ("JSON.DEL d $..a", ":2", r#"{"b":{}}"#),
    ("JSON.SET d .b [1,[2,3],[4],true]", "+OK", r#"{"b":[1,[2,3],[4],true]}"#),
    ("JSON.ARRAPPEND d $.b[*] 9", "*4 $-1 :3 :2 $-1", r#"{"b":[1,[2,3,9],[4,9],true]}"#),
    ("JSON.ARRAPPEND d .b {} null", ":6", r#"{"b":[1,[2,3,9],[4,9],true,{},null]}"#),
    ("JSON.ARRINSERT d $.b 1 5 6", "*1 :8", r#"{"b":[1,5,6,[2,3,9],[4,9],true,{},null]}"#),
    ("JSON.ARRINSERT d .b -9 5", "-ERR index out of bounds", r#"{"b":[1,5,6,[2,3,9],[4,9],true,{},null]}"#),
    ("JSON.ARRINSERT d .b -8 0", ":9", r#"{"b":[0,1,5,6,[2,3,9],[4,9],true,{},null]}"#),
    ("JSON.ARRPOP d .b", "$4 null", r#"{"b":[0,1,5,6,[2,3,9],[4,9],true,{}]}"#),
    ("JSON.ARRPOP d $.b 4", "*1 $7 [2,3,9]", r#"{"b":[0,1,5,6,[4,9],true,{}]}"#),
    ("JSON.ARRPOP d $.b[*] 0", "*7 $-1 $-1 $-1 $-1 $1 4 $-1 $-1", r#"{"b":[0,1,5,6,[9],true,{}]}"#),
    ("JSON.ARRPOP d .a", "-ERR Path '$.a' does not exist or not an array", r#"{"b":[0,1,5,6,[9],true,{}]}"#),
    ("JSON.ARRTRIM d $.b 1 -2", "*1 :5", r#"{"b":[1,5,6,[9],true]}"#),
    ("JSON.ARRTRIM d .b 3 99", ":2", r#"{"b":[[9],true]}"#),
    ("JSON.ARRTRIM d $.b[0] 5 6", "*1 :0", r#"{"b":[[],true]}"#),
    ("JSON.ARRPOP d $.b[0]", "*1 $-1", r#"{"b":[[],true]}"#),
    ("JSON.TOGGLE d $.b[*]", "*2 $-1 :0", r#"{"b":[[],false]}"#),
    ("JSON.TOGGLE d .b[1]", "$4 true", r#"{"b":[[],true]}"#),
    ("JSON.TOGGLE d .b", "-ERR Path '$.b' does not exist or not a bool", r#"{"b":[[],true]}"#),
    ("JSON.SET d .s \"ab\"", "+OK", r#"{"b":[[],true],"s":"ab"}"#),
    ("JSON.STRAPPEND d .s \"é\"", ":4", r#"{"b":[[],true],"s":"abé"}"#),
    ("JSON.STRAPPEND d $.* \"c\"", "*2 $-1 :5", r#"{"b":[[],true],"s":"abéc"}"#),
    (
        "JSON.STRAPPEND d .b \"c\"",
        "-ERR Path '$.b' does not exist or not a string",
        r#"{"b":[[],true],"s":"abéc"}"#,
    ),
    (
        "JSON.STRAPPEND d .s 1",
        "-WRONGTYPE wrong type of path value - expected string but found integer",
        r#"{"b":[[],true],"s":"abéc"}"#,
    ),
    (
        "JSON.MERGE d $ {\"s\":null,\"b\":{\"x\":{\"y\":null,\"z\":1}},\"n\":null,\"m\":2}",
        "+OK",
        r#"{"b":{"x":{"z":1}},"m":2}"#,
    ),
    ("JSON.MERGE d $.b.x {\"z\":null,\"w\":[null]}", "+OK", r#"{"b":{"x":{"w":[null]}},"m":2}"#),
    ("JSON.MERGE d $.new {\"q\":1}", "+OK", r#"{"b":{"x":{"w":[null]}},"m":2,"new":{"q":1}}"#),
    ("JSON.MERGE d $.m.none 1", "$-1", r#"{"b":{"x":{"w":[null]}},"m":2,"new":{"q":1}}"#),
    (
        "JSON.MERGE d $.* {\"p\":0}",
        "+OK",
        r#"{"b":{"x":{"w":[null]},"p":0},"m":{"p":0},"new":{"q":1,"p":0}}"#,
    ),
    ("JSON.CLEAR d $..p", ":0", r#"{"b":{"x":{"w":[null]},"p":0},"m":{"p":0},"new":{"q":1,"p":0}}"#),
    ("JSON.CLEAR d $..x", ":1", r#"{"b":{"x":{},"p":0},"m":{"p":0},"new":{"q":1,"p":0}}"#),
    ("JSON.CLEAR d $.new.q", ":1", r#"{"b":{"x":{},"p":0},"m":{"p":0},"new":{"q":0,"p":0}}"#),
    ("JSON.DEL d $..p", ":3", r#"{"b":{"x":{}},"m":{},"new":{"q":0}}"#),
    ("JSON.DEL d $..none", ":0", r#"{"b":{"x":{}},"m":{},"new":{"q":0}}"#),
    ("JSON.FORGET d $.b", ":1", r#"{"m":{},"new":{"q":0}}"#),
    ("JSON.MSET d $.m 1 d $.new 2 e $ []", "+OK", r#"{"m":1,"new":2}"#),
    ("JSON.MSET d $.m 3 e $.a[1] 2", "-ERR array index out of range", r#"{"m":1,"new":2}"#),
    ("JSON.MSET d $.m 3 e", "-ERR wrong number of arguments for 'json.mset' command", r#"{"m":1,"new":2}"#),
    ("JSON.MSET d $.m 3 none $.a 2", "-ERR new objects must be created at the root", r#"{"m":1,"new":2}"#),
    ("JSON.CLEAR d", ":1", "{}"),
];

#[test]
fn what_is_changed() {
    let mut bench = Bench::new();
    for (call, reply, document) in CHANGES {
        bench.expect(call, reply);
        let wanted = format!("${} {document}", document.len());
        assert_eq!(bench.run("JSON.GET d"), wanted, "after {call}");
    }
}

#[test]
fn a_document_that_is_emptied_is_gone() {
    let mut bench = bench();
    for (call, wanted) in [
        ("JSON.DEL d $.*", ":4"),
        ("EXISTS d", ":0"),
        ("JSON.SET d $ [1]", "+OK"),
        ("JSON.DEL d", ":1"),
        ("EXISTS d", ":0"),
        ("JSON.DEL d", ":0"),
        ("JSON.SET d $.a 1", "-ERR new objects must be created at the root"),
        ("JSON.SET d $.a 1 XX", "$-1"),
        ("JSON.MERGE d $.a 1", "-ERR new objects must be created at the root"),
        ("JSON.MERGE d $ {\"a\":null}", "+OK"),
        ("JSON.GET d", r#"$10 {"a":null}"#),
        ("JSON.NUMINCRBY none $ 1", "-ERR could not perform this operation on a key that doesn't exist"),
        ("JSON.CLEAR none", "-ERR could not perform this operation on a key that doesn't exist"),
        ("JSON.DEL text", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("JSON.SET text $ 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ] {
        bench.expect(call, wanted);
    }
}

#[test]
fn the_expiry_stays_and_copies_are_equal() {
    let mut bench = bench();
    for (call, wanted) in [
        ("PEXPIRE d 5000", ":1"),
        ("JSON.SET d $ {\"a\":[1]}", "+OK"),
        ("PTTL d", ":5000"),
        ("COPY d e", ":1"),
        ("JSON.SET d $.a 2", "+OK"),
        ("JSON.GET e", r#"$9 {"a":[1]}"#),
        ("RENAME e f", "+OK"),
        ("JSON.GET f $.a[0]", "$3 [1]"),
        ("SCAN 0 TYPE rejson-rl COUNT 100", "*2 $1 0 *2 $1 f $1 d"),
    ] {
        bench.expect(call, wanted);
    }
}

#[test]
fn every_change_can_be_taken_back() {
    let mut bench = Bench::new();
    for (at, (call, ..)) in CHANGES.iter().enumerate() {
        bench.check_roll_back(&[call]);
        let rest: Vec<&str> = CHANGES[at..].iter().map(|(call, ..)| *call).collect();
        bench.check_roll_back(&rest);
        bench.run(call);
    }
}

/// The account of a document that was changed is that of one which was read.
#[test]
fn bytes_are_those_of_the_content() {
    let mut bench = Bench::new();
    for (call, _, document) in CHANGES {
        bench.run(call);
        bench.call(&[b"JSON.SET", b"again", b"$", document.as_bytes()]);
        assert_eq!(bench.run("MEMORY USAGE d"), {
            bench.run("DEL x");
            bench.run("RENAME again x");
            bench.run("MEMORY USAGE x")
        });
    }
    let many: Vec<String> = (0..2000).map(|at| format!("\"name{at}\":[{at}]")).collect();
    let before = bench.partition.bytes();
    bench.call(&[b"JSON.SET", b"d", b"$", format!("{{{}}}", many.join(",")).as_bytes()]);
    let bytes = bench.partition.bytes() - before;
    assert!((2000 * 100..2000 * 300).contains(&bytes), "{bytes}");
}

#[test]
fn documents_are_dumped_as_redisjson_does() {
    let mut bench = Bench::new();
    bench.expect("JSON.SET d $ [1]", "+OK");
    let entry = bench.partition.databases[0].peek(b"d", 0).expect("a key");
    let payload = crate::rdb::dump(&entry.value, crate::rdb::Dialect::Valkey);
    assert!(payload.starts_with(b"\x07\x81\x45\xe2\x52\x38\xdf\x91\x2c\x03\x05\x03[1]\x00"), "{payload:?}");
    assert_eq!(bench.call(&[b"RESTORE", b"e", b"0", &payload]), "+OK");
    bench.expect("JSON.GET e", "$3 [1]");
    let restore = |bench: &mut Bench, body: &[u8]| {
        let mut payload = body.to_vec();
        crate::rdb::seal(&mut payload);
        bench.call(&[b"RESTORE", b"f", b"0", &payload, b"REPLACE"])
    };
    // As version 2 of RedisJSON's encoding has it, behind the text: nothing of RediSearch.
    let older = b"\x07\x81\x45\xe2\x52\x38\xdf\x91\x2c\x02\x05\x03[2]\x02\x00\x00";
    assert_eq!(restore(&mut bench, older), "+OK");
    bench.expect("JSON.GET f", "$3 [2]");
    for (body, wanted) in [
        (
            &b"\x07\x81\x45\xe2\x52\x38\xdf\x91\x2c\x00\x02\x01\x00"[..],
            "-ERR Bad data format: JSON documents of encoding version 0 are not supported",
        ),
        (b"\x07\x81\x45\xe2\x52\x38\xdf\x91\x2c\x03\x05\x02[2\x00", "-ERR Bad data format"),
        (b"\x07\x81\x45\xe2\x52\x38\xdf\x91\x2c\x03\x02\x02\x00", "-ERR Bad data format"),
    ] {
        assert_eq!(restore(&mut bench, body), wanted);
    }
}

#[test]
fn nesting_is_bounded_wherever_a_value_is_put() {
    let mut bench = Bench::new();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let inner = "[0]".repeat(100);
    bench.expect(&format!("JSON.SET d $ {}", nested(101)), "+OK");
    bench.expect(&format!("JSON.ARRAPPEND d ${inner} {}", nested(27)), "*1 :1");
    bench.expect(&format!("JSON.SET d ${inner}[0] {}", nested(27)), "+OK");
    for call in [
        format!("JSON.ARRAPPEND d ${inner} {}", nested(28)),
        format!("JSON.ARRINSERT d ${inner} 0 {}", nested(28)),
        format!("JSON.SET d ${inner}[0] {}", nested(28)),
        format!("JSON.MERGE d ${inner}[0] {}", nested(28)),
    ] {
        bench.expect(&call, "-ERR recursion limit exceeded");
    }
    let error = "-ERR recursion limit exceeded at line 1 column 129";
    bench.expect(&format!("JSON.SET d $ {}", nested(129)), error);
}

#[test]
fn memory_is_bounded() {
    let mut bench = Bench::new();
    bench.expect(&format!("JSON.SET d $ [{}[]]", "[],".repeat(1000)), "+OK");
    let before = bench.contents();
    bench.memory_limit = 100_000;
    let text = "x".repeat(1000);
    for call in [
        format!("JSON.SET d $[*] \"{text}\""),
        format!("JSON.ARRAPPEND d $[*] \"{text}\""),
        format!("JSON.MERGE d $[*] {{\"a\":\"{text}\"}}"),
        format!("JSON.SET e $ [{}1]", "1,".repeat(10_000)),
    ] {
        bench.expect(&call, "-OOM command not allowed when used memory > 'maxmemory'.");
    }
    assert_eq!(bench.contents(), before);
}

/// Scripts pay for what a call has touched, and every command ends when it is cancelled.
#[test]
fn work_is_counted_and_ends() {
    const ELEMENTS: usize = 20_000;
    let mut bench = Bench::new();
    bench.expect(&format!("JSON.SET d $ [{}[true,1,\"x\"]]", "[true,1,\"x\"],".repeat(ELEMENTS)), "+OK");
    assert!(bench.work.steps() >= 4 * ELEMENTS as u64);
    for call in [
        "JSON.GET d",
        "JSON.GET d $..*",
        "JSON.MGET d d $[?(@[1]==2)]",
        "JSON.TYPE d $[*][0]",
        "JSON.STRLEN d $..[2]",
        "JSON.ARRLEN d $[*]",
        "JSON.OBJKEYS d $..*",
        "JSON.ARRINDEX d $ 7",
        "JSON.RESP d",
        "JSON.DEBUG MEMORY d $..*",
        "JSON.NUMINCRBY d $..* 1",
        "JSON.TOGGLE d $[*][0]",
        "JSON.STRAPPEND d $[*][2] \"y\"",
        "JSON.ARRAPPEND d $[*] 7",
        "JSON.ARRINSERT d $[*] 0 7",
        "JSON.ARRPOP d $[*]",
        "JSON.ARRTRIM d $[*] 0 1",
        "JSON.MERGE d $[*] {\"a\":1}",
        "JSON.SET d $[*] [1]",
        "JSON.CLEAR d $[*]",
        "JSON.DEL d $[*]",
    ] {
        bench.undo = Some(UndoLog::default());
        bench.run(call);
        let steps = bench.work.steps();
        assert!(steps >= ELEMENTS as u64, "{call}: {steps} steps");
        bench.cancel = Some(CancelFlag::new(true.into()));
        let mut log = bench.undo.take().unwrap_or_default();
        log.roll_back(&mut crate::Partitions::One(&mut bench.partition));
        bench.run(call);
        let steps = bench.work.steps();
        assert!(bench.work.is_cancelled() && steps < 3 * ELEMENTS as u64, "{call}: {steps} steps");
        bench.cancel = None;
    }
}
