//! What has broken Redis and Valkey before, tried here over a connection: each test names the advisories it stands for.
//! After each of them the server serves as if nothing had happened.
//!
//! Elsewhere: what a script can see at all (CVE-2022-0543), byte by byte, in `gateway/script/tests/surface.rs`; patterns
//! (CVE-2022-36021, CVE-2024-31228) as a bound on steps in `store/engine/src/glob.rs`; connections of TLS that are killed
//! (CVE-2026-56684) in `tls.rs`; replies that are not read by those who have not said who they are (CVE-2025-21605) in
//! `strangers.rs`; malformed rules and selectors of users (CVE-2024-31227, CVE-2024-51741) in
//! `gateway/src/acl/random_tests.rs`; damaged payloads of streams (CVE-2026-25243, CVE-2026-63639) in the engine's tests.

use std::io::Write as _;

use tests::{Client, TestServer, Value, notation};

/// A server with one instance for scripts, so that each finds what the one before has left.
struct Server {
    server: TestServer,
    client: Client,
}

impl Server {
    fn start() -> Server {
        let flags = ["--threads", "1", "--script-concurrency", "1", "--script-memory", "8mb"];
        let server = TestServer::start(&[&flags[..], &["--script-timeout-ms", "20000"]].concat());
        let client = server.client();
        Server { server, client }
    }

    fn eval(&mut self, script: &str) -> Value {
        self.client.eval(script, &[], &[])
    }

    /// What the script says; it must not fail.
    fn says(&mut self, script: &str) -> String {
        let reply = self.eval(script);
        assert!(!matches!(reply, Value::Error(_)), "{script}: {reply:?}");
        notation::reply(&reply)
    }

    /// The error it ends with.
    fn fails(&mut self, script: &str) -> String {
        match self.eval(script) {
            Value::Error(text) => String::from_utf8_lossy(&text).into_owned(),
            reply => panic!("no error but {reply:?}"),
        }
    }

    /// Whether a client that was there before, and a new one, are served.
    fn is_well(&mut self) {
        assert_eq!(self.says("return redis.call('PING')"), "+PONG");
        assert_eq!(notation::reply(&self.server.client().run("PING")), "+PONG");
    }
}

/// CVE-2022-0543: whatever leads out of the sandbox.
#[test]
fn nothing_leads_out() {
    let mut server = Server::start();
    for name in
        ["package", "require", "io", "debug", "dofile", "loadfile", "os.execute", "os.exit", "os.remove"]
    {
        let look = format!("local _, found = pcall(function() return {name} end) return type(found)");
        let found = server.says(&look);
        // Of a global that is not there pcall gives an error, which is a text.
        assert!(["\"nil\"", "\"string\"", "\"table\""].contains(&&*found), "{name}: {found}");
        let calls = format!("return pcall(function() return {name}('x') end)");
        assert_eq!(server.says(&calls), "nil", "{name}");
    }
    // What has been compiled elsewhere is not run.
    assert!(server.fails("return loadstring('\\27Lua\\81\\0\\1\\4\\8\\4\\8\\0')()").contains("nil value"));
    server.is_well();
}

/// CVE-2022-24735 and CVE-2025-46818: what one script leaves for that of another user.
#[test]
fn nothing_is_left_for_the_next_script() {
    let mut server = Server::start();
    let traps = [
        "string.rep = function() return 'trapped' end",
        "rawset(string, 'rep', function() return 'trapped' end)",
        "redis.call = function() return 'trapped' end",
        "rawset(_G, 'tostring', function() return 'trapped' end)",
        "getmetatable('').__index = function() return 'trapped' end",
        "getmetatable('').__add = function() return 'trapped' end",
        "setmetatable(_G, {__index = function() return 'trapped' end})",
        "rawset(getmetatable(_G) or {}, '__index', function() return 'trapped' end)",
        "table.insert(KEYS, 'trapped') table.insert(ARGV, 'trapped')",
        "math.randomseed(1) cjson.encode_max_depth(1)",
        "local f = function() end setfenv(f, {}) setfenv(1, {})",
        "trapped = 'trapped'",
    ];
    let look = "local function try(f) local _, r = pcall(f) return tostring(r) end
        return {string.rep('a', 2), tostring(1), redis.call('ECHO', 'x'), #KEYS, #ARGV, cjson.encode({{{}}}),
            try(function() return ('x').trapped end), try(function() return trapped end),
            try(function() return 'a' + 'b' end)}";
    let pristine = server.says(look);
    for trap in traps {
        for end in ["", " error('end')", " while true do end"] {
            let limit = if end.contains("while") { "#!lua fuel=1000000\n" } else { "" };
            server.eval(&format!("{limit}{trap}{end}"));
            assert_eq!(server.says(look), pristine, "after {trap}{end}");
        }
    }
    server.is_well();
}

/// CVE-2022-24736, CVE-2025-46819 and CVE-2025-49844: texts that harm the parser, also while memory is short.
#[test]
fn texts_that_are_no_scripts_are_refused() {
    let mut server = Server::start();
    let many = |text: &str, count: usize| text.repeat(count);
    let level = many("=", 100_000);
    let texts: Vec<String> = vec![
        "\0".into(),
        "return \u{feff}".into(),
        "\"".into(),
        "[[".into(),
        format!("[{level}["),
        format!("return [{level}[x]{level}"),
        format!("return [{level}"),
        format!("--[{level}["),
        format!("return {}1{}", many("(", 100_000), many(")", 100_000)),
        format!("return {}{}", many("{", 100_000), many("}", 100_000)),
        format!("{}{}", many("do ", 100_000), many("end ", 100_000)),
        format!("return {}", many("-", 1_000_001)),
        format!("return {} 1", many("not ", 100_000)),
        format!("return '{}'", many("\\", 99_999)),
        format!("local {}x", many("x,", 100_000)),
        format!("return function() {} end", many("return function() ", 1000)),
        format!("goto {}", many("a", 1_000_000)),
        format!("return 0x{}", many("f", 1_000_000)),
        format!("x = {} 1", many("'a' ..", 100_000)),
    ];
    for text in &texts {
        for header in ["", "#!lua memory=2mb\n"] {
            if let Value::Error(error) = server.eval(&format!("{header}{text}")) {
                // It may quote the text, and nothing else.
                assert!(error.len() < text.len() + 200, "{}", error.escape_ascii());
            }
        }
        server.is_well();
    }
    // A collection at every moment of parsing: the less memory, the more of them.
    let long: String = (0..2000)
        .map(|n| format!("local function f{n}() return 'constant {n}' end f{n}() do end\n"))
        .collect();
    for memory in ["1mb", "2mb", "3mb"] {
        server.eval(&format!("#!lua memory={memory}\ndo {long} end"));
        server.is_well();
    }
}

/// CVE-2022-24834: numbers and depths that overflow the encoders.
#[test]
fn encoders_know_their_limits() {
    let mut server = Server::start();
    let deep = "local t = {} local at = t for i = 1, 100000 do at[1] = {} at = at[1] end ";
    let scripts = [
        format!("{deep} return cjson.encode(t)"),
        format!("{deep} return #cmsgpack.pack(t)"),
        "return cjson.encode({[2147483647] = 1})".into(),
        "return cjson.encode({[-1] = 1, [1e300] = 2})".into(),
        "return cjson.decode(string.rep('[', 100000))".into(),
        "return cjson.decode(string.rep('{\"a\":', 100000))".into(),
        "return cmsgpack.unpack(string.rep('\\145', 100000))".into(),
        "return cmsgpack.unpack('\\219\\255\\255\\255\\255')".into(),
        "return cmsgpack.unpack('\\221\\255\\255\\255\\255')".into(),
        "return cmsgpack.unpack('\\223\\255\\255\\255\\255')".into(),
        "return cmsgpack.unpack_limit('\\1', 2147483647, -2147483648)".into(),
        "return cmsgpack.unpack_one('\\1', 2147483647)".into(),
        "local s = string.rep('\\1', 3000000) return #cjson.encode({s, s, s})".into(),
        "local t = {} for i = 1, 300000 do t[i] = i end return #cmsgpack.pack(unpack(t, 1, 7000))".into(),
        "cjson.encode_keep_buffer(true) return cjson.encode_max_depth(2147483647)".into(),
        "return cjson.encode({0/0, 1/0})".into(),
    ];
    for script in &scripts {
        server.eval(script);
        server.is_well();
    }
}

/// CVE-2024-31449 and CVE-2025-46817: counts and sizes at the ends of their types.
#[test]
fn extreme_numbers_are_only_numbers() {
    let mut server = Server::start();
    // Some are counts of rounds of a loop, which Lua goes through as long as it may.
    server.client.run("CONFIG SET script-fuel 2000000000");
    let extremes =
        ["2147483647", "-2147483648", "4294967296", "9007199254740993", "1e300", "-1e300", "0/0", "1/0"];
    let calls = [
        "bit.tohex(1, N)",
        "bit.tohex(N, N)",
        "bit.lshift(1, N)",
        "bit.rol(N, N)",
        "bit.band(N, N)",
        "string.rep('ab', N)",
        "string.sub('abc', N, N)",
        "string.byte('abc', N, N)",
        "string.char(N)",
        "string.format('%' .. tostring(N) .. 'd', 1)",
        "string.format('%.99f', N)",
        "string.format('%d', N)",
        "string.find('abc', 'b', N)",
        "table.concat({1, 2}, ',', N, N)",
        "table.insert({}, N, 1)",
        "table.remove({1}, N)",
        "select(N, 1, 2)",
        "unpack({}, 1, N)",
        "unpack({}, N, N)",
        "unpack({}, N, 1)",
        "unpack({}, -2147483648, N)",
        "struct.pack('i' .. tostring(N), 1)",
        "struct.pack('>I4', N)",
        "struct.unpack('c' .. tostring(N), 'abc')",
        "struct.unpack('i4', 'abcdefgh', N)",
        "math.random(N)",
        "math.random(N, N)",
        "tonumber('1', N)",
        "collectgarbage('setpause', N)",
        "redis.setresp(N)",
        "redis.log(N, 'x')",
        "string.dump(function() end)",
        "os.date('%c', N)",
    ];
    for call in calls {
        for extreme in extremes {
            let script =
                format!("local ok, r = pcall(function() return {call} end) return tostring(r):sub(1, 50)",);
            server.eval(&script.replace('N', extreme));
        }
        server.is_well();
    }
    assert!(server.fails("return {unpack({}, 1, 2147483647)}").contains("too many results to unpack"));
}

/// CVE-2024-46981: what is collected while it is used.
#[test]
fn a_collection_at_any_moment_harms_nobody_else() {
    let mut server = Server::start();
    let scripts = [
        "for i = 1, 20000 do local t = setmetatable({}, {__gc = function() error('x') end, __mode = 'kv'}) t[t] = t
            if i % 1000 == 0 then collectgarbage() end end",
        "local p = newproxy and newproxy(true) if p then getmetatable(p).__gc = function() while true do end end end
            p = nil collectgarbage()",
        "local c = {} for i = 1, 2000 do c[i] = coroutine.wrap(function() coroutine.yield(i) end) c[i]()
            if i % 100 == 0 then c = {} collectgarbage('step', 1000) end end",
        "local t = {} while true do t[#t + 1] = {string.rep('x', 100)} collectgarbage('step') end",
        "local s = '' for i = 1, 5000 do s = s .. i collectgarbage('step', 1) end return #s",
    ];
    for script in scripts {
        server.eval(&format!("#!lua fuel=200000000 memory=2mb\n{script}"));
        server.is_well();
    }
}

/// CVE-2025-67733: line ends in what a script says become no reply of their own.
#[test]
fn a_reply_is_one_reply() {
    let mut server = Server::start();
    let injected = "X\\r\\n+OK\\r\\n$3\\r\\nabc\\r\\n\\0\\n:1\\r";
    let scripts = [
        "return redis.error_reply('INJ')",
        "return redis.status_reply('INJ')",
        "return {err = 'INJ'}",
        "return {ok = 'INJ'}",
        "error('INJ')",
        "error({err = 'INJ'})",
        "redis.log(redis.LOG_WARNING, 'INJ') return 1",
        "return 'INJ'",
        "return redis.call('INJ')",
        "return redis.pcall('GET', 'INJ', 'INJ')",
        "INJ",
        "return {1, {err = 'INJ'}, 'INJ'}",
        "redis.setresp(3) return {map = {INJ2 = 'INJ'}}",
        "redis.setresp(3) return {double = 'INJ'}",
        "redis.setresp(3) return {big_number = 'INJ'}",
        "redis.setresp(3) return {verbatim_string = {format = 'INJ', string = 'INJ'}}",
    ];
    for script in scripts {
        let script = script.replace("INJ2", "x").replace("INJ", injected);
        for protocol in tests::PROTOCOLS {
            let mut client = Client::connect(server.server.address(), protocol);
            client.send(["EVAL", &script, "0"]);
            client.send(["ECHO", "and this is the next one"]);
            client.read();
            assert_eq!(client.read().text(), Some(&b"and this is the next one"[..]), "{script}");
        }
    }
    server.is_well();
}

/// CVE-2026-23631: everything is taken away from under a script that waits in a call.
#[test]
fn a_script_survives_what_happens_while_it_waits() {
    let mut server = Server::start();
    server.client.run("CONFIG SET script-timeout-ms 60000");
    let mut holder = server.server.client();
    let script = "#!lua flags=disable-atomicity\nfor i = 1, 3000 do redis.call('SET', 'k' .. i % 10, i)
        redis.call('GET', 'k1') end return 'whole'";
    for change in [
        "FLUSHALL",
        "SCRIPT FLUSH",
        "FUNCTION FLUSH",
        "SWAPDB 0 1",
        "CONFIG SET maxmemory 1gb",
        "DEL k1 k2 k3",
    ] {
        holder.send(["EVAL", script, "0"]);
        for _ in 0..20 {
            server.client.run(change);
        }
        assert_eq!(holder.read().text(), Some(&b"whole"[..]), "{change}");
    }
    server.is_well();
}

/// CVE-2025-32023: a HyperLogLog that was written to as a string.
#[test]
fn a_damaged_hyperloglog_is_an_error() {
    let mut server = Server::start();
    for at in 0..40 {
        server.client.run("DEL h other");
        server.client.run("PFADD h a b c d e f");
        server.client.run("PFADD other x y z");
        server.client.call(["SETRANGE", "h", &at.to_string(), "\u{7f}\u{7f}\u{7f}\u{7f}"]);
        for command in
            ["PFCOUNT h", "PFCOUNT h other", "PFADD h new", "PFMERGE other h", "PFMERGE h other", "PFCOUNT h"]
        {
            server.client.run(command);
        }
    }
    // A sparse one whose runs are longer than there are registers.
    let runs = [&b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80"[..], &[0x7f, 0xff].repeat(40), &[0xff; 100]].concat();
    server.client.call([&b"SET"[..], b"h", &runs]);
    for command in ["PFCOUNT h", "PFMERGE m h"] {
        let reply = server.client.run(command);
        assert!(
            matches!(&reply, Value::Error(text) if text.starts_with(b"INVALIDOBJ")),
            "{command}: {reply:?}"
        );
    }
    server.is_well();
}

/// CVE-2025-48367, CVE-2026-21863 and CVE-2026-27623: floods of frames that are none, and frames with nothing in them.
#[test]
fn broken_frames_end_their_connection_alone() {
    let mut server = Server::start();
    let frames: [&[u8]; 14] = [
        b"*1\r\n$-1\r\n",
        b"*1\r\n$99999999999\r\n",
        b"*99999999999\r\n",
        b"*2147483647\r\n$1\r\nx\r\n",
        b"*-2147483648\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$4\r\nPINGxx",
        b"*1\r\n\r\n",
        b"$4\r\nPING\r\n",
        b"*\r\n",
        b"*1\r\n$\r\n",
        b"*x\r\n",
        b"\"unbalanced\r\n",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
    ];
    for _ in 0..50 {
        for frame in frames {
            let mut client = server.server.client();
            let _ = client.send_raw(frame);
            client.finish_sending();
            while let Ok(Some(_)) = client.try_read() {}
        }
    }
    // Nothing, many times, and something in between.
    let mut client = server.server.client();
    let nothing = [&b"*0\r\n"[..], b"*-1\r\n", b"\r\n", b"\n"].concat().repeat(5000);
    for _ in 0..3 {
        client.send_raw(&nothing).expect("it is taken");
        client.send_raw(b"*1\r\n$4\r\nPING\r\n").expect("it is taken");
        assert_eq!(notation::reply(&client.read()), "+PONG");
    }
    server.is_well();
}

/// CVE-2026-23479: who waits is killed at the moment in which it would be served.
#[test]
fn what_a_killed_client_waited_for_is_not_lost() {
    let mut server = Server::start();
    let mut other = server.server.client();
    let rounds = 200;
    let mut taken = 0;
    for round in 0..rounds {
        let mut waiting = server.server.client();
        let Value::Integer(id) = waiting.run("CLIENT ID") else { panic!("a number") };
        waiting.send(["BLMPOP", "0", "2", "list", "other", "LEFT"]);
        let mut push = other.stream().try_clone().expect("a second handle");
        let pushed =
            std::thread::spawn(move || push.write_all(b"*3\r\n$5\r\nRPUSH\r\n$4\r\nlist\r\n$1\r\nx\r\n"));
        server.client.call(["CLIENT", "KILL", "ID", &id.to_string()]);
        pushed.join().expect("no panic").expect("it is taken");
        assert!(matches!(other.read(), Value::Integer(_)), "round {round}");
        taken += usize::from(matches!(waiting.try_read(), Ok(Some(_))));
    }
    let Value::Integer(left) = server.client.run("LLEN list") else { panic!("a number") };
    let (left, reported) = (usize::try_from(left).expect("a length"), taken);
    // Served and then killed: the element is gone, as if the reply had been lost on the way.
    assert!(left + reported <= rounds, "{left} are left, {reported} were told of {rounds}");
    server.is_well();
}

/// CVE-2022-36021 and CVE-2024-31228: patterns that take ages.
#[test]
fn patterns_take_no_longer_than_they_are() {
    let mut server = Server::start();
    server.client.call(["SET", &"a".repeat(20_000), "x"]);
    let patterns = [
        "*a".repeat(5000) + "b",
        "*?".repeat(10_000) + "b",
        "a*".repeat(8000) + "b",
        "[".repeat(10_000),
        "\\".repeat(9999),
        "*".repeat(20_000) + "b",
        "[^a]*".repeat(3000),
        "[a-".repeat(5000),
        "?".repeat(20_001),
    ];
    for pattern in &patterns {
        for command in [
            ["KEYS", pattern, "", "", ""],
            ["SCAN", "0", "MATCH", pattern, ""],
            ["CONFIG", "GET", pattern, "", ""],
        ] {
            server.client.call(command.iter().filter(|arg| !arg.is_empty()));
        }
        server.client.call(["PSUBSCRIBE", pattern]);
        server.client.run("PUNSUBSCRIBE");
    }
    server.is_well();
}
