//! What COMMAND tells of a command must be what redis-server tells, for all that both have.

use std::collections::{BTreeMap, BTreeSet};

use tests::{Client, Oracle, Protocol, TestServer, Value, notation};

/// Flags about states that our server is never in, or that only Redis' own parts look at.
const NOT_OURS: [&str; 7] = [
    "loading",
    "stale",
    "allow_busy",
    "no_async_loading",
    "skip_monitor",
    "skip_slowlog",
    "no_mandatory_keys",
];

/// What is known to differ: the command, the fact, and why it stays so.
const KNOWN: &[(&str, &str, &str)] = &[
    ("zrank", "arity", "WITHSCORE is that of Redis 7.2"),
    ("zrevrank", "arity", "WITHSCORE is that of Redis 7.2"),
    ("client|kill", "arguments", "MAXAGE is that of Redis 7.4"),
    ("xreadgroup", "arguments", "CLAIM is that of Redis 8.4"),
    ("xadd", "arguments", "KEEPREF and its kin are those of Redis 8.2"),
    ("xtrim", "arguments", "KEEPREF and its kin are those of Redis 8.2"),
    ("sort", "keys", "where STORE stands is known here"),
    ("sort_ro", "keys", "Redis tells of keys that it finds while it runs"),
    ("script|kill", "arity", "it can be told which script"),
    ("script|kill", "arguments", "it can be told which script"),
    ("hello", "flags", "the protocol does not change between the replies of a transaction"),
    ("lastsave", "flags", "it is an administrator's, which Redis says in its categories only"),
    ("role", "flags", "it is an administrator's, which Redis says in its categories only"),
    ("function|delete", "flags", "libraries are no data of a database"),
    ("function|flush", "flags", "libraries are no data of a database"),
    ("function|load", "flags", "libraries are no data of a database"),
    ("function|restore", "flags", "libraries are no data of a database"),
    ("function|delete", "categories", "libraries are no data of a database"),
    ("function|flush", "categories", "libraries are no data of a database"),
    ("function|load", "categories", "libraries are no data of a database"),
    ("function|restore", "categories", "libraries are no data of a database"),
    ("replicaof", "flags", "a transaction does not wait for another server"),
    ("slaveof", "flags", "a transaction does not wait for another server"),
    ("migrate", "flags", "a transaction does not wait for another server"),
    ("restore-asking", "flags", "no slot of ours is ever asked for elsewhere"),
    ("lolwut", "flags", "the moon is no data"),
    ("pubsub|help", "categories", "Redis forgets it here only"),
    ("lolwut", "categories", "the moon is no data"),
];

/// The facts of a command by their names.
type Properties = BTreeMap<&'static str, String>;

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) | Value::Status(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

fn words(value: &Value) -> Vec<String> {
    let mut words: Vec<_> =
        items(value).iter().map(text).filter(|word| !NOT_OURS.contains(&&**word)).collect();
    words.sort_unstable();
    words
}

/// A description of keys without the notes for readers.
fn key_spec(value: &Value) -> String {
    let pairs = items(value).chunks_exact(2).filter(|pair| text(&pair[0]) != "notes");
    let shown = |pair: &[Value]| match &*text(&pair[0]) {
        "flags" => words(&pair[1]).join(" "),
        name => format!("{name} {:?}", pair[1]),
    };
    pairs.map(shown).collect::<Vec<_>>().join(", ")
}

fn add(row: &Value, properties: &mut BTreeMap<String, Properties>) {
    let row = items(row);
    let range: Vec<_> = row[3..6].iter().map(text).collect();
    let keys: Vec<_> = items(&row[8]).iter().map(key_spec).collect();
    let all = [
        ("arity", text(&row[1])),
        ("flags", words(&row[2]).join(" ")),
        ("range", range.join(" ")),
        ("categories", words(&row[6]).join(" ")),
        ("keys", keys.join("\n      ")),
        ("tips", words(&row[7]).join(" ")),
    ];
    properties.insert(text(&row[0]), all.into_iter().collect());
    items(&row[9]).iter().for_each(|sub| add(sub, properties));
}

/// Arguments that only ours have: its own, and those of later versions of Redis.
const OUR_ARGUMENTS: &[&str] =
    &["stick", "days", "withscore", "novalues", "ifeq-value", "ifne-value", "ifdeq-digest", "ifdne-digest"];

/// A line for each argument, those of others indented.
fn arguments(list: &Value) -> String {
    let shown = |argument: &Value| {
        let mut line = Vec::new();
        for property in items(argument).chunks_exact(2) {
            match (&*text(&property[0]), &property[1]) {
                ("arguments", inner) => line.push(arguments(inner).replace('\n', "\n  ")),
                ("flags", flags) => line.push(words(flags).join(",")),
                (name, value) => line.push(format!("{name}={}", text(value))),
            }
        }
        line.join(" ")
    };
    let ours = |argument: &&Value| OUR_ARGUMENTS.contains(&&*text(&items(argument)[1]));
    let lines = items(list)
        .iter()
        .filter(|argument| !ours(argument))
        .map(|argument| format!("\n  {}", shown(argument)));
    lines.collect()
}

/// Adds since when there are commands, which groups they belong to, and their arguments.
fn add_docs(docs: &Value, properties: &mut BTreeMap<String, Properties>) {
    for pair in items(docs).chunks_exact(2) {
        let Some(known) = properties.get_mut(&text(&pair[0])) else { continue };
        for property in items(&pair[1]).chunks_exact(2) {
            match &*text(&property[0]) {
                "since" => _ = known.insert("since", text(&property[1])),
                "group" => _ = known.insert("group", text(&property[1])),
                "arguments" => _ = known.insert("arguments", arguments(&property[1])),
                _ => {}
            }
        }
        let subcommands =
            items(&pair[1]).chunks_exact(2).find(|property| text(&property[0]) == "subcommands");
        if let Some(subcommands) = subcommands {
            add_docs(&subcommands[1], properties);
        }
    }
}

fn properties(client: &mut Client) -> BTreeMap<String, Properties> {
    let mut properties = BTreeMap::new();
    items(&client.call(["COMMAND"])).iter().for_each(|row| add(row, &mut properties));
    add_docs(&client.call(["COMMAND", "DOCS"]), &mut properties);
    properties
}

#[test]
fn commands_are_what_redis_says_of_them() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let ours = properties(&mut Client::connect(server.address(), Protocol::Resp2));
    let theirs = properties(&mut Client::connect(oracle.address(), Protocol::Resp2));
    assert!(ours.len() > 200 && ours.keys().filter(|name| theirs.contains_key(*name)).count() > 190);
    let mut wrong = Vec::new();
    for (name, ours) in &ours {
        let Some(theirs) = theirs.get(name) else { continue };
        let properties: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for property in properties {
            let reported = ours.get(property).map(String::as_str).unwrap_or_default();
            let known = KNOWN.iter().any(|(command, known, _)| command == name && *known == *property);
            let redis = theirs.get(property).map(String::as_str).unwrap_or_default();
            if reported != redis && !known {
                wrong.push(format!("{name}, {property}:\n  Redis {redis}\n  ours  {reported}"));
            }
        }
    }
    for (name, property, _) in KNOWN {
        assert!(
            ours[*name].get(property) != theirs[*name].get(property),
            "{name}, {property}: the same by now"
        );
    }
    assert!(wrong.is_empty(), "{} facts differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The names in a list of the reference, as COMMAND LIST writes them.
fn listed_under(heading: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/reference/commands.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, list) = page.split_once(&format!("## {heading}\n")).expect("the heading");
    let rows =
        list.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| `"));
    let name = |row: &str| row.split('`').nth(1).expect("a name").to_lowercase().replace(' ', "|");
    rows.map(name).collect()
}

#[test]
fn what_is_missing_is_known() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let ours = properties(&mut Client::connect(server.address(), Protocol::Resp2));
    let theirs = properties(&mut Client::connect(oracle.address(), Protocol::Resp2));
    let missing: Vec<&str> =
        theirs.keys().filter(|name| !ours.contains_key(*name)).map(String::as_str).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // The page has no rows for containers.
    let is_container = |name: &str| ours.keys().any(|inner| inner.starts_with(&format!("{name}|")));
    let added: Vec<&str> = ours.keys().map(String::as_str).collect();
    let added: Vec<&str> =
        added.into_iter().filter(|name| !theirs.contains_key(*name) && !is_container(name)).collect();
    assert_eq!(added, listed_under("Added"));
    let listed = |client: &mut Client| {
        let list = client.call(["COMMAND", "LIST"]);
        let mut names: Vec<String> = items(&list).iter().map(text).collect();
        names.sort_unstable();
        names
    };
    let mut client = Client::connect(server.address(), Protocol::Resp2);
    assert_eq!(listed(&mut client), ours.keys().cloned().collect::<Vec<_>>());
    for filter in ["PATTERN *|get*", "PATTERN XINFO*", "ACLCAT pubsub", "ACLCAT nonsense", "MODULE none"] {
        let ask = |client: &mut Client| {
            let list = client.run(&format!("COMMAND LIST FILTERBY {filter}"));
            let mut names: Vec<String> = items(&list).iter().map(text).collect();
            names.retain(|name| ours.contains_key(name) && theirs.contains_key(name));
            names.sort_unstable();
            names
        };
        let redis = ask(&mut Client::connect(oracle.address(), Protocol::Resp2));
        let known = |name: &String| {
            KNOWN.iter().any(|(known, property, _)| known == name && *property == "categories")
        };
        let wrong: Vec<String> = ask(&mut client)
            .iter()
            .chain(&redis)
            .filter(|name| !known(name))
            .filter(|name| redis.contains(name) != ask(&mut client).contains(name))
            .cloned()
            .collect();
        assert_eq!(wrong, Vec::<String>::new(), "{filter}");
    }
}

/// What HELP tells of each subcommand: its form, and all lines of it.
fn blocks(reply: &Value) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    for line in items(reply).iter().map(text) {
        match blocks.last_mut() {
            Some((_, lines)) if line.starts_with(' ') => lines.push_str(&format!("\n{line}")),
            _ => blocks.push((line.clone(), line)),
        }
    }
    blocks
}

/// Forms of subcommands with options of later versions, or without those that are not here.
const OUR_FORMS: [&str; 2] = ["DEBUG (YES|SYNC|NO)", "KILL <option> <value> [<option> <value> [...]]"];

#[test]
fn help_is_that_of_redis_and_tells_of_ours_besides() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let mut ours = Client::connect(server.address(), Protocol::Resp2);
    let mut theirs = Client::connect(oracle.address(), Protocol::Resp2);
    let containers = [
        "ACL", "CLIENT", "COMMAND", "CONFIG", "FUNCTION", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "SCRIPT",
        "SLOWLOG", "XGROUP", "XINFO",
    ];
    for container in containers {
        let reported = blocks(&ours.call([container, "HELP"]));
        let missing: Vec<_> = blocks(&theirs.call([container, "HELP"]))
            .into_iter()
            .filter(|block| !reported.contains(block) && !OUR_FORMS.contains(&&*block.0))
            .collect();
        assert_eq!(missing, [], "{container}");
        let form = |(form, _): &(String, String)| form.clone();
        assert_eq!(
            form(&reported[0]),
            format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
        );
        let reply = ours.call(["EVAL", &format!("return redis.call('{container}', 'help')"), "0"]);
        assert_eq!(blocks(&reply), reported, "{container} in a script");
    }
}

#[test]
fn keys_and_flags_of_calls() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let mut ours = Client::connect(server.address(), Protocol::Resp3);
    let mut theirs = Client::connect(oracle.address(), Protocol::Resp3);
    for line in [
        "set a b",
        "set a b get",
        "set a b nx get",
        "get a",
        "get",
        "lmove a b left right",
        "sort a store b",
        "sort a by b get c",
        "spublish a b",
        "xread count 1 streams a b 0 0",
        "xreadgroup group g c streams a b",
        "bitfield a get u8 0",
        "bitfield a set u8 0 1",
        "bitfield a incrby u8 0 1 get u8 0",
        "bitfield_ro a get u8 0",
        "mset a b c d",
        "eval x 2 a b",
        "eval x 0",
        "eval x y",
        "eval x 9 a",
        "evalsha x 1",
        "fcall f 0",
        "fcall f 1 a",
        "zunionstore d 2 a b",
        "zunion 0",
        "zunion x a",
        "zunion 5 a",
        "lmpop 0 left",
        "lmpop 1 a left",
        "script load x",
        "object encoding a",
        "object nope a",
        "xgroup create a b c",
        "xinfo stream s",
        "memory usage k",
        "client list a",
        "georadius k 1 1 1 m store d storedist e",
        "copy a b",
        "rename a b",
        "renamenx a b",
        "smove a b c",
        "pfcount a b",
        "pfmerge a b",
        "touch a b",
        "watch a b",
        "del a b",
        "exists a b",
        "nope a b",
        "ping a b",
        "geosearchstore a b frommember m byradius 1 m",
        "blpop a b 0",
        "bzmpop 0 1 a min",
        "zrangestore a b 0 1",
        "bitop and a b c",
        "restore a 0 b",
        "sinterstore a b c",
        "getex a persist",
        "getdel a b",
    ] {
        for how in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let call: Vec<&str> = ["COMMAND", how].into_iter().chain(line.split(' ')).collect();
            assert_eq!(ours.call(&call), theirs.call(&call), "{how} {line}");
        }
    }
    for line in [
        "COUNT x",
        "DOCS nope",
        "INFO nope get nope",
        "NOPE",
        "GETKEYS",
        "GETKEYSANDFLAGS get",
        "HELP x",
        "LIST x",
        "LIST FILTERBY",
        "LIST FILTERBY x",
        "LIST FILTERBY x y",
        "LIST FILTERBY MODULE x",
        "LIST FILTERBY PATTERN get*",
    ] {
        let call: Vec<&str> = ["COMMAND"].into_iter().chain(line.split(' ')).collect();
        // Of a list the order is anybody's.
        let of = |client: &mut Client| notation::unordered(&client.call(&call));
        assert_eq!(of(&mut ours), of(&mut theirs), "{line}");
    }
}
