//! What a conversation cannot show of functions: limits and kills, and payloads that travel between our server and Redis.

use tests::{Client, Oracle, Topology, Value, notation, over_nodes, wait_until};

/// Fuel and time that no test here uses up unless it wants to.
const AMPLE: &[&str] = &[
    "--threads",
    "1",
    "--script-fuel",
    "1000000000000000",
    "--script-timeout-ms",
    "86400000",
    "--script-memory",
    "4mb",
    "--script-fuel-slice",
    "20000",
];

const LIBRARY: &str = "#!lua name=work
local half = 'fresh'
redis.register_function('endless', function(keys)
    redis.call('SET', keys[1], 'half done')
    half = 'spoilt'
    while true do end
end)
redis.register_function('greedy', function(keys)
    redis.call('SET', keys[1], 'half done')
    half = 'spoilt'
    local t = {}
    while true do t[#t + 1] = string.rep('x', 1000) .. #t end
end)
redis.register_function('long', function(keys)
    redis.call('SET', keys[1], 'half done')
    return string.rep('x', 2000)
end)
redis.register_function('half', function() return half end)";

fn load(client: &mut Client, text: &str) -> String {
    notation::reply(&client.call(["FUNCTION", "LOAD", "REPLACE", text]))
}

fn set(client: &mut Client, setting: &str, value: &str) {
    assert_eq!(notation::reply(&client.call(["CONFIG", "SET", setting, value])), "+OK", "{setting}");
}

fn error(reply: &Value) -> String {
    let Value::Error(text) = reply else { panic!("no error but {reply:?}") };
    String::from_utf8_lossy(text).into_owned()
}

fn a_limit_ends_the_function_and_undoes_it(on: Topology) {
    for instances in ["rewind", "fresh"] {
        let server = on.start(&[AMPLE, &["--script-instances", instances]].concat());
        let mut client = server.client();
        assert_eq!(load(&mut client, LIBRARY), "\"work\"");
        client.run("SET job before");
        let limits = [
            ("script-fuel", "3000000", AMPLE[3], "endless", "fuel"),
            ("script-timeout-ms", "20", AMPLE[5], "endless", "time"),
            ("script-timeout-ms", AMPLE[5], AMPLE[5], "greedy", "memory"),
            ("script-reply-max", "1kb", "64mb", "long", "reply"),
        ];
        for (setting, small, ample, function, name) in limits {
            set(&mut client, setting, small);
            let text = error(&client.call(["FCALL", function, "1", "job"]));
            assert!(text.starts_with(&format!("SCRIPTLIMIT {name}: ")), "{text}");
            assert!(
                text.contains(&format!(" by function {function}; its writes were rolled back")),
                "{text}"
            );
            set(&mut client, setting, ample);
            assert_eq!(notation::reply(&client.run("GET job")), "\"before\"", "{name}");
            assert_eq!(notation::reply(&client.run("FCALL half 0")), "\"fresh\"", "{name}");
            assert_eq!(server.info(&format!("script_limit_{name}")), 1);
        }
        assert_eq!(server.info("script_traps"), 0);
    }
}

fn loading_is_limited(on: Topology) {
    let server = on.start(AMPLE);
    let mut client = server.client();
    assert_eq!(load(&mut client, LIBRARY), "\"work\"");
    const TIMEOUT: &str = "-ERR Error registering functions: ERR FUNCTION LOAD timeout";
    for (setting, small, ample) in
        [("script-fuel", "100000", AMPLE[3]), ("script-timeout-ms", "20", AMPLE[5])]
    {
        set(&mut client, setting, small);
        assert_eq!(load(&mut client, "#!lua name=work\nwhile true do end"), TIMEOUT, "{setting}");
        set(&mut client, setting, ample);
    }
    let greedy = "#!lua name=work\nlocal t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end";
    let text = load(&mut client, greedy);
    assert_eq!(
        text,
        "-SCRIPTLIMIT memory: more than 4194304 bytes requested while the library was loaded; the limit is set by \
         script-memory"
    );
    // The library that was to be replaced is still there.
    assert_eq!(notation::reply(&client.run("FCALL half 0")), "\"fresh\"");
    assert_eq!((server.info("number_of_libraries"), server.info("number_of_functions")), (1, 4));
    assert_eq!(server.info("script_traps"), 0);
}

fn a_library_says_how_its_functions_are_run(on: Topology) {
    let server = on.start(&[AMPLE, &["--script-fuel-max", "2000000000000000"]].concat());
    let mut client = server.client();
    let body = "redis.register_function('endless', function(keys) redis.call('SET', keys[1], 1) while true do end end)
        redis.register_function('failing', function(keys) redis.call('SET', keys[1], 1) error('on purpose') end)
        redis.register_function('roaming', function() return redis.call('SET', 'else' .. 'where', 1) end)
        redis.register_function('greedy', function() local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end end)";
    let reported = |client: &mut Client, options: &str, call: &str| {
        assert_eq!(load(client, &format!("#!lua name=work {options}\n{body}")), "\"work\"");
        client.run("DEL job elsewhere");
        let reply = notation::reply(&client.run(call));
        format!("{reply} {}", notation::reply(&client.run("EXISTS job elsewhere")))
    };
    for (options, call, begins, left) in [
        ("fuel=100000", "FCALL endless 1 job", "-SCRIPTLIMIT fuel: ", " 0"),
        ("timeout=20", "FCALL endless 1 job", "-SCRIPTLIMIT time: ", " 0"),
        ("memory=2mb", "FCALL greedy 1 job", "-SCRIPTLIMIT memory: ", " 0"),
        ("on-error=rollback", "FCALL failing 1 job", "-", " 0"),
        ("on-error=keep", "FCALL failing 1 job", "-", " 1"),
        ("undeclared-keys=reject", "FCALL roaming 0", "-UNDECLARED ", " 0"),
        ("undeclared-keys=widen", "FCALL roaming 0", "+OK", " 1"),
    ] {
        let reported = reported(&mut client, options, call);
        assert!(reported.starts_with(begins) && reported.ends_with(left), "{options}: {reported}");
    }
    let too_much = load(&mut client, &format!("#!lua name=work fuel=3000000000000000\n{body}"));
    assert!(
        too_much.starts_with(
            "-ERR The script requests fuel=3000000000000000, but script-fuel-max allows at most"
        ),
        "{too_much}"
    );
    // Dumps have the line, too.
    let Value::Bulk(dump) = client.run("FUNCTION DUMP") else { panic!("a payload") };
    client.run("FUNCTION FLUSH");
    let restore = notation::reply(&client.call([&b"FUNCTION"[..], b"RESTORE", &dump]));
    assert_eq!(restore, "+OK");
    assert!(notation::reply(&client.run("FUNCTION LIST WITHCODE")).contains("undeclared-keys=widen"));
}

/// The name of the function that FUNCTION STATS says is running.
fn running(client: &mut Client) -> Option<String> {
    let Value::Array(stats) = client.run("FUNCTION STATS") else { panic!("an array") };
    assert_eq!(notation::reply(&stats[0]), "\"running_script\"");
    let Value::Array(fields) = &stats[1] else {
        assert_eq!(stats[1], Value::Null);
        return None;
    };
    let shown = fields.iter().map(notation::reply).collect::<Vec<_>>();
    assert_eq!([&*shown[0], &*shown[2], &*shown[4]], ["\"name\"", "\"command\"", "\"duration_ms\""]);
    assert!(matches!(fields[5], Value::Integer(0..)), "{shown:?}");
    Some(format!("{} {}", shown[1], shown[3]))
}

fn kill_ends_functions_or_scripts(on: Topology) {
    let server = on.start(AMPLE);
    let (mut function, mut script, mut other) = (server.client(), server.client(), server.client());
    assert_eq!(load(&mut other, LIBRARY), "\"work\"");
    other.run("MSET job before task before");
    assert_eq!(running(&mut other), None);
    function.send(["fcall", "Endless", "1", "job", "an argument"]);
    wait_until("the function is listed", || running(&mut other).is_some());
    let shown = r#""endless" ["fcall", "Endless", "1", "job", "an argument"]"#;
    assert_eq!(running(&mut other).as_deref(), Some(shown));
    assert_eq!(error(&other.run("SCRIPT KILL")), "NOTBUSY No scripts in execution right now.");
    // Libraries may go while one of their functions runs.
    assert_eq!(notation::reply(&other.run("FUNCTION FLUSH")), "+OK");
    wait_until("the function is killed", || notation::reply(&other.run("FUNCTION KILL")) == "+OK");
    let text = "KILLED function endless was stopped by FUNCTION KILL; its writes were rolled back";
    assert_eq!(error(&function.read()), text);
    assert_eq!(notation::reply(&other.run("GET job")), "\"before\"");
    wait_until("nothing is listed", || running(&mut other).is_none());

    script.send(["EVAL", "redis.call('SET', KEYS[1], 'half done') while true do end", "1", "task"]);
    wait_until("the script runs", || server.info("scripts_running") == 1);
    assert_eq!(error(&other.run("FUNCTION KILL")), "NOTBUSY No scripts in execution right now.");
    wait_until("the script is killed", || notation::reply(&other.run("SCRIPT KILL")) == "+OK");
    assert!(error(&script.read()).ends_with("was stopped by SCRIPT KILL; its writes were rolled back"));
    assert_eq!(notation::reply(&other.run("GET task")), "\"before\"");
}

/// A function that touches keys it has not named is undone and runs again, unseen.
fn keys_that_were_not_named_are_waited_for(on: Topology) {
    let server = on.start(AMPLE);
    let (mut busy, mut waiting, mut other) = (server.client(), server.client(), server.client());
    let text = "#!lua name=keys
redis.register_function('holds', function(keys)
    local _ = redis.call('INCR', keys[1])
    redis.log(redis.LOG_WARNING, 'it has the key')
    while true do end
end)
redis.register_function('adds', function(keys, args)
    redis.call('INCR', keys[1])
    for _, key in ipairs(args) do redis.call('INCR', key) end
    return redis.call('MGET', keys[1], unpack(args))
end)";
    assert_eq!(load(&mut other, text), "\"keys\"");
    busy.send(["FCALL", "holds", "1", "b"]);
    wait_until("it has the key", || server.log().contains("it has the key"));
    waiting.send(["FCALL", "adds", "1", "a", "b", "c"]);
    wait_until("it runs again", || server.info("scripts_rerun") >= 1);
    drop(busy);
    assert_eq!(notation::reply(&waiting.read()), r#"["1", "1", "1"]"#);
}

/// FUNCTION LIST WITHCODE, in an order of its own.
fn listed(client: &mut Client) -> String {
    notation::unordered(&client.run("FUNCTION LIST WITHCODE"))
}

fn payloads_travel_both_ways(on: Topology) {
    let Some(oracle) = Oracle::start() else { return };
    let server = on.start(&[]);
    let (mut ours, mut theirs) = (server.client(), oracle.client());
    // Lengths on both sides of where the form changes; what repeats itself is packed by Redis.
    let library = |name: &str, filler: String| {
        format!(
            "#!lua name={name}\nredis.register_function{{function_name='f_{name}', flags={{'no-writes'}}, \
             description='\\1\\255', callback=function() return '{name}' end}} -- {filler}"
        )
    };
    let noise = |length: usize| {
        let digits = (0..length).map(|at| char::from(b'a' + (at * at % 251 % 26) as u8));
        digits.collect::<String>()
    };
    let texts = [
        "#!lua name=s\nredis.register_function('s',redis.log)".to_owned(),
        library("plain", String::new()),
        library("medium", noise(300)),
        library("large", noise(40_000)),
        library("packed", "abc ".repeat(20_000)),
    ];
    for text in &texts {
        for client in [&mut ours, &mut theirs] {
            assert!(load(client, text).starts_with('"'), "{text:.40}");
        }
    }
    let wanted = listed(&mut ours);
    assert_eq!(wanted, listed(&mut theirs));
    let dump = |client: &mut Client| client.run("FUNCTION DUMP").text().expect("a string").to_vec();
    let (from_us, from_them) = (dump(&mut ours), dump(&mut theirs));
    assert!(from_them.len() < from_us.len(), "Redis packs strings");
    for client in [&mut ours, &mut theirs] {
        for payload in [&from_us, &from_them] {
            for policy in ["FLUSH", "REPLACE"] {
                let reply = client.call([&b"FUNCTION"[..], b"RESTORE", &payload[..], policy.as_bytes()]);
                assert_eq!(notation::reply(&reply), "+OK");
                assert_eq!(listed(client), wanted);
            }
            client.run("FUNCTION FLUSH");
            assert_eq!(notation::reply(&client.call([&b"FUNCTION"[..], b"RESTORE", &payload[..]])), "+OK");
            assert_eq!(notation::reply(&client.run("FCALL_RO f_packed 0")), "\"packed\"");
        }
    }
    // Whatever is cut off or changed is noticed by the checksum.
    for at in (0..from_them.len()).step_by(97) {
        let mut spoilt = from_them.clone();
        spoilt[at] ^= 0x10;
        for payload in [&from_them[..at], &spoilt] {
            let reply = error(&ours.call([&b"FUNCTION"[..], b"RESTORE", payload, b"FLUSH"]));
            assert_eq!(reply, "ERR DUMP payload version or checksum are wrong");
        }
    }
    assert_eq!(listed(&mut ours), wanted);
}

fn a_payload_is_restored_as_a_whole_or_not_at_all(on: Topology) {
    let server = on.start(&[]);
    let oracle = Oracle::start();
    let mut clients: Vec<Client> = vec![server.client()];
    clients.extend(oracle.as_ref().map(Oracle::client));
    let library = |name: &str, function: &str| {
        format!("#!lua name={name}\nredis.register_function('{function}', function() return '{name}' end)")
    };
    for client in &mut clients {
        // A payload of two libraries, then a server that has others.
        client.call(["FUNCTION", "LOAD", &library("one", "f")]);
        client.call(["FUNCTION", "LOAD", &library("two", "g")]);
        let payload = client.run("FUNCTION DUMP").text().expect("a string").to_vec();
        let mut restore = |present: &[(&str, &str)], policy: &str| {
            client.run("FUNCTION FLUSH");
            for (name, function) in present {
                assert!(load(client, &library(name, function)).starts_with('"'));
            }
            let before = listed(client);
            let reply = notation::reply(&client.call([
                &b"FUNCTION"[..],
                b"RESTORE",
                &payload[..],
                policy.as_bytes(),
            ]));
            if reply != "+OK" {
                assert_eq!(listed(client), before, "{reply}");
            }
            let called = ["FCALL f 0", "FCALL g 0"].map(|call| notation::reply(&client.run(call)));
            (reply, called.join(" "))
        };
        let (both, fine) = ("\"one\" \"two\"".to_owned(), "+OK".to_owned());
        assert_eq!(restore(&[], "APPEND"), (fine.clone(), both.clone()));
        assert_eq!(restore(&[("two", "f")], "REPLACE"), (fine.clone(), both.clone()));
        assert_eq!(restore(&[("three", "g")], "FLUSH"), (fine, both));
        let missing = "-ERR Function not found";
        let refused = restore(&[("two", "h")], "APPEND");
        assert_eq!(refused, ("-ERR Library two already exists".into(), format!("{missing} {missing}")));
        for policy in ["APPEND", "REPLACE"] {
            let refused = restore(&[("three", "G")], policy);
            assert_eq!(refused, ("-ERR Function g already exists".into(), format!("{missing} \"three\"")));
        }
    }
}

over_nodes! {
    a_limit_ends_the_function_and_undoes_it,
    loading_is_limited,
    a_library_says_how_its_functions_are_run,
    kill_ends_functions_or_scripts,
    keys_that_were_not_named_are_waited_for,
    payloads_travel_both_ways,
    a_payload_is_restored_as_a_whole_or_not_at_all,
}
