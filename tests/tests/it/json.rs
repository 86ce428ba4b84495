//! JSON documents, on one process and over store nodes.

use tests::temp_dir::TempDir;
use tests::{Client, PROTOCOLS, TestServer, Topology, Value, notation, over_nodes};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, wanted) in cases {
        assert_eq!(say(client, line), *wanted, "{line}");
    }
}

/// Calls whose replies are recorded in both protocols.
const TALK: &[&str] = &[
    r#"JSON.SET doc $ '{"name":"mug","price":8.5,"stock":{"here":3,"there":0},"tags":["blue","new"],"on":true}'"#,
    "TYPE doc",
    "OBJECT ENCODING doc",
    "JSON.GET doc",
    "JSON.GET doc $.stock.* .name",
    "JSON.GET doc INDENT '  ' NEWLINE '\n' SPACE ' ' .stock",
    "JSON.TYPE doc $.*",
    "JSON.TYPE doc .price",
    "JSON.NUMINCRBY doc $..here 2",
    "JSON.NUMINCRBY doc .price 1",
    "JSON.NUMMULTBY doc $.* 2",
    "JSON.STRAPPEND doc .name '\" cup\"'",
    "JSON.STRLEN doc $.name",
    "JSON.ARRAPPEND doc $.tags '\"big\"' '{\"a\":1}'",
    "JSON.ARRINDEX doc $.tags '\"new\"'",
    "JSON.ARRINSERT doc .tags 0 null",
    "JSON.ARRPOP doc $.tags -2",
    "JSON.ARRTRIM doc $.tags 1 -1",
    "JSON.ARRLEN doc .tags",
    "JSON.TOGGLE doc $.on",
    "JSON.TOGGLE doc .on",
    "JSON.OBJKEYS doc $.stock",
    "JSON.OBJLEN doc .",
    "JSON.RESP doc $.tags",
    "JSON.RESP doc",
    "JSON.MERGE doc $ '{\"stock\":{\"there\":null,\"far\":1}}'",
    "JSON.CLEAR doc $.tags",
    "JSON.DEL doc $.on",
    "JSON.MSET doc $.new 1 doc2 $ '[1,{\"new\":2}]'",
    "JSON.MGET doc doc2 none $..new",
    "JSON.GET doc $",
    "JSON.GET doc $[",
    "JSON.GET doc .none",
    "JSON.SET doc $ '{\"a\":}'",
    "JSON.SET none $.a 1",
    "JSON.GET none",
    "GET doc",
    "JSON.DEBUG HELP",
    "JSON.FORGET doc",
    "JSON.DEL doc2 .",
    "EXISTS doc doc2",
];

fn replies_are_those_of_redisjson(on: Topology) {
    let server = on.start(&[]);
    let mut shown = String::new();
    for protocol in PROTOCOLS {
        let mut client = Client::connect(server.address(), protocol);
        shown += &format!("{protocol:?}\n");
        for line in TALK {
            shown += &format!("> {}\n{}\n", line.replace('\n', "\\n"), say(&mut client, line));
        }
    }
    insta::assert_snapshot!("json_replies", shown);
}

/// What scripts do to documents is rolled back when they fail, is shown by a dry run, and is part of a transaction.
fn scripts_and_transactions(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let text = "redis.call('JSON.SET', KEYS[1], '$', '{\"n\":1,\"list\":[1,2]}')
        redis.call('JSON.NUMINCRBY', KEYS[1], '$.n', 41)
        redis.call('JSON.ARRAPPEND', KEYS[1], '$.list', '3')
        local read = cjson.decode(redis.call('JSON.GET', KEYS[1]))
        return {read.n, #read.list, redis.call('JSON.TYPE', KEYS[1], '.n'), redis.call('TYPE', KEYS[1])}";
    assert_eq!(notation::reply(&client.eval(text, &["doc"], &[])), r#"[42, 3, "integer", +ReJSON-RL]"#);
    let before = say(&mut client, "JSON.GET doc");
    for end in ["error('oops')", "while true do end"] {
        let text = format!(
            "#!lua on-error=rollback timeout=300\nredis.call('JSON.MERGE', KEYS[1], '$', '{{\"n\":null,\"m\":{{}}}}') \
             redis.call('JSON.ARRPOP', KEYS[1], '$.list', 0) redis.call('JSON.SET', KEYS[1], '$.list[*]', '[]') \
             redis.call('JSON.DEL', KEYS[1], '$.list') redis.call('JSON.DEL', KEYS[1]) \
             redis.call('JSON.SET', KEYS[1], '$', '1') {end}"
        );
        client.eval(&text, &["doc"], &[]);
        assert_eq!(say(&mut client, "JSON.GET doc"), before, "{end}");
    }
    let dry = "#!lua flags=dry-run\nredis.call('JSON.SET', KEYS[1], '$.n', '7') return 1";
    let shown = notation::reply(&client.eval(dry, &["doc"], &[]));
    assert!(shown.contains("ReJSON-RL") && shown.contains(r#"{\"n\":7,"#), "{shown}");
    assert_eq!(say(&mut client, "JSON.GET doc"), before);
    for line in ["MULTI", "JSON.SET doc $.n 2", "JSON.SET other $ '[true]'", "JSON.MGET doc other $[0]"] {
        client.run(line);
    }
    assert_eq!(say(&mut client, "EXEC"), r#"[+OK, +OK, ["[]", "[true]"]]"#);
    check(&mut client, &[("WATCH doc", "+OK"), ("JSON.NUMINCRBY doc .n 1", r#""3""#), ("MULTI", "+OK")]);
    check(&mut client, &[("JSON.DEL doc", "+QUEUED"), ("EXEC", "nil[]")]);
}

/// Several documents of a call may be on several nodes.
fn calls_with_several_keys(on: Topology) {
    let server = on.start(&[]);
    let mut client = server.client();
    let keys: Vec<String> = (0..30).map(|at| format!("doc:{at}")).collect();
    let triplets = keys.iter().enumerate();
    let triplets = triplets.flat_map(|(at, key)| [key.clone(), "$".into(), format!("{{\"at\":{at}}}")]);
    let words: Vec<String> = ["JSON.MSET".to_owned()].into_iter().chain(triplets).collect();
    assert_eq!(notation::reply(&client.call(&words)), "+OK");
    let words: Vec<String> = ["JSON.MGET".to_owned()]
        .into_iter()
        .chain(keys.iter().rev().cloned())
        .chain([".at".to_owned()])
        .collect();
    let wanted = (0..30).rev().map(|at: i64| Value::Bulk(at.to_string().into_bytes())).collect();
    assert_eq!(client.call(&words), Value::Array(wanted));
    // Nothing is set if something is wrong.
    check(
        &mut client,
        &[
            ("JSON.MSET doc:0 $.at 5 none $.at 6", "-ERR new objects must be created at the root"),
            ("JSON.GET doc:0", r#""{\"at\":0}""#),
            ("COPY doc:0 copy", "1"),
            ("RENAME doc:1 renamed", "+OK"),
            ("JSON.MGET copy renamed doc:1 .at", r#"["0", "1", nil]"#),
        ],
    );
    let Value::Bulk(payload) = client.run("DUMP renamed") else { panic!("no payload") };
    let restored = client.call([&b"RESTORE"[..], b"restored", b"0", &payload]);
    assert_eq!(notation::reply(&restored), "+OK");
    check(&mut client, &[("JSON.GET restored", r#""{\"at\":1}""#), ("DBSIZE", "32")]);
}

over_nodes! {
    replies_are_those_of_redisjson,
    scripts_and_transactions,
    calls_with_several_keys,
}

/// Calls, and the events of RedisJSON that they lead to.
const EVENTS: &[(&str, &[&str])] = &[
    (r#"JSON.SET k $ '{"a":1,"s":"x","l":[1],"b":true}'"#, &["new", "json.set"]),
    ("JSON.SET k $.a 2", &["json.set"]),
    ("JSON.SET k $.a.b 2", &[]),
    ("JSON.NUMINCRBY k $.a 2", &["json.numincrby"]),
    ("JSON.NUMINCRBY k $.s 2", &[]),
    ("JSON.NUMMULTBY k $.a 2", &["json.nummultby"]),
    ("JSON.STRAPPEND k $..* '\"y\"'", &["json.strappend"]),
    ("JSON.ARRAPPEND k $.l 2 3", &["json.arrappend"]),
    ("JSON.ARRINSERT k $.l 1 5", &["json.arrinsert"]),
    ("JSON.ARRPOP k $.l", &["json.arrpop"]),
    ("JSON.ARRTRIM k $.l 0 1", &["json.arrtrim"]),
    ("JSON.TOGGLE k $.b", &["json.toggle"]),
    ("JSON.CLEAR k $.l", &["json.clear"]),
    ("JSON.CLEAR k $.l", &[]),
    ("JSON.MERGE k $ '{\"a\":null,\"n\":1}'", &["json.merge"]),
    ("JSON.MSET k $.n 2", &["json.mset"]),
    ("JSON.FORGET k $.n", &["json.del"]),
    ("JSON.DEL k $.n", &[]),
    ("JSON.DEL k $.*", &["json.del"]),
    ("JSON.SET k $ 1", &["new", "json.set"]),
    ("JSON.DEL k", &["json.del"]),
    ("JSON.SET k $ 1", &["new", "json.set"]),
    ("DEL k", &["del"]),
];

#[test]
fn events_are_those_of_redisjson() {
    let server = TestServer::start(&["--notify-keyspace-events", "Egdn"]);
    let (mut client, mut hears) = (server.client(), server.client());
    hears.run("PSUBSCRIBE __key*");
    for (line, wanted) in EVENTS {
        client.run(line);
        client.run("PUBLISH __keyend done");
        let mut heard = Vec::new();
        loop {
            let message = notation::reply(&hears.read());
            if message.contains("__keyend") {
                break;
            }
            heard.push(message);
        }
        assert_eq!(heard.len(), wanted.len(), "{line}: {heard:?}");
        for (name, heard) in wanted.iter().zip(&heard) {
            assert!(heard.ends_with(&format!("\"__keyevent@0__:{name}\", \"k\"]")), "{line}: {heard}");
        }
    }
}

#[test]
fn documents_outlive_the_process() {
    let dir = TempDir::new("json");
    let flags = ["--data-dir", dir.text()];
    let mut server = TestServer::start(&flags);
    let mut client = server.client();
    let fill = "redis.call('JSON.SET', KEYS[1], '$', '{\"list\":[]}')
        for i = 1, 3000 do redis.call('JSON.ARRAPPEND', KEYS[1], '$.list', '{\"name\":\"value ' .. i .. '\"}') end";
    client.eval(fill, &["big"], &[]);
    check(&mut client, &[(r#"JSON.SET small $ '{"a":1,"b":[true]}'"#, "+OK"), ("SAVE", "+OK")]);
    // Changes of what the checkpoint has.
    check(
        &mut client,
        &[
            ("JSON.SET small $.b[0] 2.5", "+OK"),
            ("JSON.DEL small $.a", "1"),
            ("JSON.ARRPOP big $.list 0", r#"["{\"name\":\"value 1\"}"]"#),
            ("JSON.SET big $.list[0].name '\"changed\"'", "+OK"),
            ("PEXPIREAT small 4102444800000", "1"),
        ],
    );
    for saved in [false, true, false] {
        if saved {
            check(&mut client, &[("SAVE", "+OK")]);
        }
        server.signal(libc::SIGTERM);
        assert!(server.wait().success());
        server = TestServer::start(&flags);
        client = server.client();
        check(
            &mut client,
            &[
                ("JSON.GET small", r#""{\"b\":[2.5]}""#),
                ("PEXPIRETIME small", "4102444800000"),
                ("JSON.ARRLEN big .list", "2999"),
                ("JSON.GET big $.list[0,1,-1].name", r#""[\"changed\",\"value 3\",\"value 3000\"]""#),
            ],
        );
    }
}

#[test]
fn users_get_the_commands_by_their_category() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    check(&mut client, &[("ACL SETUSER anna on >pw ~doc* -@all +@json", "+OK")]);
    let list = say(&mut client, "ACL CAT json");
    for name in ["json.get", "json.set", "json.mset", "json.debug|memory"] {
        assert!(list.contains(&format!("\"{name}\"")), "{list}");
    }
    let mut anna = server.client();
    check(
        &mut anna,
        &[
            ("AUTH anna pw", "+OK"),
            ("JSON.SET doc $ 1", "+OK"),
            ("JSON.GET doc", r#""1""#),
            ("GET doc", "-NOPERM this user has no permissions to run the 'get' command"),
            (
                "JSON.MGET doc other $",
                "-NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
            (
                "JSON.MSET doc $ 1 other $ 2",
                "-NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
            (
                "JSON.DEBUG MEMORY other",
                "-NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
        ],
    );
    check(
        &mut client,
        &[
            ("COMMAND GETKEYS JSON.MGET a b $.c", r#"["a", "b"]"#),
            ("COMMAND GETKEYS JSON.MSET a $ 1 b $ 2", r#"["a", "b"]"#),
        ],
    );
}

/// The memory of documents counts, and they are evicted as other values.
#[test]
fn memory_of_documents_is_limited() {
    let server = TestServer::start(&["--maxmemory", "3mb"]);
    let mut client = server.client();
    let text = format!("[{}0]", "{\"a\":[1,2,3],\"text\":\"some words\"},".repeat(2000));
    assert_eq!(notation::reply(&client.call(["JSON.SET", "a", "$", &text])), "+OK");
    let bytes: i64 = say(&mut client, "MEMORY USAGE a").parse().expect("a number");
    assert!((200_000..1_000_000).contains(&bytes), "{bytes}");
    let used = server.info("used_memory");
    assert!(used >= bytes as u64, "{used}");
    for number in 0..20 {
        client.call(["JSON.SET", &format!("k{number}"), "$", &text]);
    }
    let refused = notation::reply(&client.call(["JSON.SET", "last", "$", &text]));
    assert!(refused.starts_with("-OOM "), "{refused}");
    let refused = notation::reply(&client.call(["JSON.ARRAPPEND", "a", "$", &text]));
    assert!(refused.starts_with("-OOM "), "{refused}");
    check(&mut client, &[("CONFIG SET maxmemory-policy allkeys-lru", "+OK")]);
    assert_eq!(notation::reply(&client.call(["JSON.SET", "last", "$", &text])), "+OK");
}

/// The HTTP API shows a document as its text.
#[test]
fn documents_over_http() {
    let server = TestServer::start(&["--http", "127.0.0.1:0"]);
    let mut http = server.http();
    let set = serde_json::json!({"args": ["JSON.SET", "doc", "$", "{\"a\":[1]}"]});
    assert_eq!(http.post("/v1/command", &set).status, 200);
    let shown = http.get("/v1/key/doc").json();
    let parts = [&shown["type"], &shown["value"], &shown["length"], &shown["cursor"]];
    let wanted = serde_json::json!(["ReJSON-RL", "{\"a\":[1]}", 9, null]);
    assert_eq!(serde_json::json!(parts), wanted, "{shown}");
    let found = http.get("/v1/keys?type=ReJSON-RL").json();
    assert_eq!(found["keys"].as_array().map(Vec::len), Some(1), "{found}");
}
