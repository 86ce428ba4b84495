//! A user made by the recipe for tenants of the operations guide cannot hold the server up, nor have it take much memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tests::{Client, SetOnDrop, TestServer, Value, notation};

/// Pages of the project.
fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in
        std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path())
    {
        let name = entry.file_name().expect("a name").to_string_lossy().into_owned();
        if entry.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            pages(&entry, found);
        } else if name.ends_with(".md") {
            found.push(entry);
        }
    }
}

/// The calls of the recipe that make the user.
fn recipe() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = Vec::new();
    pages(root, &mut found);
    let texts = found.into_iter().map(|page| std::fs::read_to_string(page).expect("a page"));
    let calls: Vec<String> = texts
        .flat_map(|text| {
            let joined = text.replace("\\\n", " ");
            let lines = joined.lines().filter_map(|line| line.strip_prefix("redis-cli "));
            lines
                .filter(|line| line.starts_with("ACL SETUSER tenant "))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(calls.len() >= 4, "the recipe looks different now: {calls:?}");
    calls
}

/// A connection of the tenant.
fn tenant(server: &TestServer) -> Client {
    let mut client = server.client();
    assert_eq!(notation::reply(&client.run("AUTH tenant 'a long password'")), "+OK");
    client
}

/// A server with a tenant.
fn start(flags: &[&str]) -> TestServer {
    let server = TestServer::start(flags);
    let mut operator = server.client();
    for call in recipe() {
        assert_eq!(notation::reply(&operator.run(&call)), "+OK", "{call}");
    }
    server
}

/// Calls that are dear, in an endless loop, and what prepares them.
const LOOPS: [(&[&str], &str); 5] = [
    (&["SETRANGE tenant:1 33554431 x"], "redis.call('BITOP', 'NOT', KEYS[2], KEYS[1])"),
    (&["SETRANGE tenant:1 33554431 x"], "redis.call('BITCOUNT', KEYS[1])"),
    (&["SETRANGE tenant:1 33554431 x"], "redis.call('SETRANGE', KEYS[1], 1, 'y')"),
    (&["SADD tenant:1 a", "SADD tenant:1 b"], "redis.call('SRANDMEMBER', KEYS[1], -100000)"),
    (&[], "redis.call('APPEND', KEYS[1], ('x'):rep(1000000))"),
];

#[test]
fn a_tenant_holds_up_nobody() {
    let server = start(&["--script-timeout-ms", "200", "--script-fuel", "1000000000000"]);
    let mut client = tenant(&server);
    let (answered, ends) = (&AtomicU64::new(0), &AtomicBool::new(false));
    thread::scope(|scope| {
        let mut other = server.client();
        scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(notation::reply(&other.run("GET other:1")), "nil");
                answered.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let _ends = SetOnDrop(ends);
        for (before, body) in LOOPS {
            client.run("DEL tenant:1 tenant:2");
            before.iter().for_each(|call| assert!(!matches!(client.run(call), Value::Error(_)), "{call}"));
            // One may be answered as it begins and one as it ends; on a busy machine no more may get to ask.
            let is_answered = (0..20).any(|_| {
                let count = answered.load(Ordering::Relaxed);
                let reply = client.eval(&format!("while true do {body} end"), &["tenant:1", "tenant:2"], &[]);
                let reply = notation::reply(&reply);
                assert!(reply.starts_with("-SCRIPTLIMIT "), "{body}: {reply}");
                answered.load(Ordering::Relaxed) > count + 2
            });
            assert!(is_answered, "{body}");
        }
    });
}

#[test]
fn a_tenant_has_no_reply_built_that_is_too_large() {
    let server = start(&["--client-output-buffer-limit", "normal 32mb 32mb 60"]);
    let mut client = tenant(&server);
    let element = "e".repeat(1 << 20);
    client.call(["SADD", "tenant:set", &element]);
    client.call(["SET", "tenant:text", &element]);
    client.call(["ZADD", "tenant:zset", "1", &element]);
    client.call(["RPUSH", "tenant:list"].into_iter().chain(std::iter::repeat_n(&*element, 8)));
    let before = server.peak_bytes();
    let mget = format!("MGET{}", " tenant:text".repeat(5000));
    let calls = ["SRANDMEMBER tenant:set -100000", "ZRANDMEMBER tenant:zset -100000", &mget];
    for call in calls {
        let reply = notation::reply(&client.run(call));
        assert!(reply.starts_with("-REPLYLIMIT "), "{call:.40}: {reply:.100}");
        let words = notation::arguments(call).expect("balanced quotes");
        let reply = notation::reply(
            &client.call(
                [b"EVAL".as_slice(), b"return redis.call(unpack(ARGV))", b"1", &words[1]]
                    .into_iter()
                    .chain(words.iter().map(|word| &word[..])),
            ),
        );
        assert!(reply.starts_with("-SCRIPTLIMIT memory"), "{call:.40}: {reply:.100}");
    }
    client.run("MULTI");
    for _ in 0..3000 {
        client.run("GET tenant:text");
    }
    let reply = notation::reply(&client.run("EXEC"));
    assert!(reply.starts_with("-REPLYLIMIT "), "{reply:.100}");
    let grown = server.peak_bytes() - before;
    assert!(grown < 400 << 20, "{grown} bytes more at the peak");
}

/// What a tenant's scripts, libraries and writes occupy has limits, and is paid for.
#[test]
fn a_tenant_has_limited_memory() {
    let flags = ["--maxmemory", "64mb", "--script-cache-max-bytes", "1mb", "--library-memory-max", "1mb"];
    let server = start(&flags);
    let mut client = tenant(&server);
    let refused = |reply: &str| {
        ["-OOM ", "-SCRIPTLIMIT ", "-LIMIT ", "-NOPERM "].iter().any(|code| reply.starts_with(code))
    };
    // The data: what was written is rolled back.
    let writes = "for i = 1, #KEYS do redis.call('SETRANGE', KEYS[i], 8388607, 'x') end return 1";
    let keys: Vec<String> = (1..=40).map(|number| format!("tenant:{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for script in [writes.to_owned(), format!("#!lua flags=allow-oom\n{writes}")] {
        let reply = notation::reply(&client.eval(&script, &keys, &[]));
        assert!(reply.starts_with("-OOM "), "{reply}");
        assert_eq!(notation::reply(&server.client().run("DBSIZE")), "0");
    }
    // Texts and images of scripts.
    for number in 0..30 {
        let text = format!("local t = {{}} {} return {number}", "t[#t + 1] = 'x' ".repeat(5000));
        for _ in 0..2 {
            let reply = notation::reply(&client.call(["EVAL", &text, "0"]));
            assert!(refused(&reply) || reply == number.to_string(), "{reply}");
        }
    }
    let held = server.info("used_memory_scripts");
    assert!(held < 3 << 20, "{held} bytes of scripts");
    // The state of a library, which the tenant may call if an operator has loaded it.
    let library = "#!lua name=large\nlocal t = ('x'):rep(2000000)\n\
                   redis.register_function('size', function() return #t end)";
    let reply = notation::reply(&server.client().call(["FUNCTION", "LOAD", library]));
    assert!(reply.starts_with("-SCRIPTLIMIT memory: "), "{reply}");
    let reply = notation::reply(&client.call(["FUNCTION", "LOAD", library]));
    assert!(refused(&reply), "{reply}");
}
