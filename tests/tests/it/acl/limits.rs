//! How much users may use.

use tests::cluster::TestCluster;
use tests::temp_dir::TempDir;
use tests::{Client, TestServer, Value, notation, wait_until};

use super::{all, say};

/// Never ends.
const ENDLESS: &str = "while true do end";

/// A server with a user `u` of these rules, who may do everything else, and a connection of its own.
fn with(rules: &str) -> (TestServer, Client, Client) {
    // Those that wait for others are not to be ended by their own limits.
    let patient = ["--script-timeout-ms", "300000", "--script-fuel", "1000000000000"];
    let server = TestServer::start(&[&["--http", "127.0.0.1:0"], &patient[..]].concat());
    let mut admin = server.client();
    assert_eq!(say(&mut admin, &format!("ACL SETUSER u on >pw +@all ~* &* {rules}")), "+OK");
    let user = connect(&server);
    (server, admin, user)
}

fn connect(server: &TestServer) -> Client {
    let mut user = server.client();
    assert_eq!(say(&mut user, "AUTH u pw"), "+OK");
    user
}

fn reached(server: &TestServer, limit: &str) -> u64 {
    let text = server.http().get("/metrics").body;
    let text = String::from_utf8(text).expect("text");
    let start = format!("moonshard_user_limits_total{{limit=\"{limit}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {limit} in {text}")).parse().expect("a number")
}

/// The reply to a script of one key.
fn eval(client: &mut Client, script: &str) -> String {
    notation::reply(&client.eval(script, &["k"], &[]))
}

#[test]
fn limits_are_rules_of_users() {
    let dir = TempDir::made("acl-limits");
    let data = dir.child("data");
    let flags = ["--data-dir", &data, "--durability", "sync"];
    let server = TestServer::start(&flags);
    let mut client = server.client();
    let rules = "limit:commands-per-second=100 limit:script-memory=8388608 limit:script-modes=atomic,async";
    all(
        &mut client,
        &[
            ("ACL SETUSER u on nopass +get ~a (+set ~b) LIMIT:script-modes=async,atomic", "+OK"),
            ("ACL SETUSER u limit:script-memory=8mb limit:commands-per-second=100", "+OK"),
            ("ACL SETUSER u limit:scripts-at-once=3 limit:scripts-at-once=none", "+OK"),
            (
                "ACL SETUSER u limit:speed=3",
                "-ERR Error in ACL SETUSER modifier 'limit:speed=3': Unknown limit. The limits are \
                 commands-per-second, fuel-per-second, scripts-at-once, script-memory, script-timeout-ms, \
                 script-modes and undeclared-keys",
            ),
            (
                "ACL SETUSER u (limit:scripts-at-once=3)",
                "-ERR Error in ACL SETUSER modifier '(limit:scripts-at-once=3)': Syntax error",
            ),
            ("ACL DRYRUN u GET a", "+OK"),
            ("ACL SETUSER plain on", "+OK"),
            (
                "ACL GETUSER plain",
                "[\"flags\", [\"on\"], \"passwords\", [], \"commands\", \"-@all\", \"keys\", \"\", \
                 \"channels\", \"\", \"selectors\", []]",
            ),
        ],
    );
    let shown = say(&mut client, "ACL GETUSER u");
    assert!(shown.ends_with(&format!("\"limits\", \"{rules}\"]")), "{shown}");
    let line =
        format!("\"user u on nopass ~a resetchannels -@all +get (~b resetchannels -@all +set) {rules}\"");
    let listed = say(&mut client, "ACL LIST");
    assert!(listed.contains(&line), "{listed}");
    server.kill();
    let server = TestServer::start(&flags);
    let mut client = server.client();
    assert_eq!(say(&mut client, "ACL LIST"), listed);
    all(&mut client, &[("ACL SETUSER u reset", "+OK")]);
    let shown = say(&mut client, "ACL GETUSER u");
    assert!(!shown.contains("limit"), "{shown}");

    let file = dir.child("users.acl");
    let text = format!("user default on nopass ~* &* +@all\nuser u on nopass ~a &* -@all +get {rules}\n");
    std::fs::write(&file, &text).expect("written");
    let server = TestServer::start(&["--aclfile", &file]);
    let mut client = server.client();
    all(&mut client, &[("ACL SAVE", "+OK")]);
    assert_eq!(std::fs::read_to_string(&file).expect("saved"), text);
    std::fs::write(&file, text.replace("=100", "=many")).expect("written");
    let error = say(&mut client, "ACL LOAD");
    assert!(
        error.contains("users.acl:2: A limit must be a whole number of at least 1, or none. "),
        "{error}"
    );
}

#[test]
fn all_gateways_know_the_limits() {
    let cluster = TestCluster::start(1, 2, None);
    let mut one = cluster.client(0);
    assert_eq!(say(&mut one, "ACL SETUSER u on >pw +@all ~* limit:script-modes=async"), "+OK");
    let mut other = cluster.client(1);
    wait_until("the user is known", || say(&mut other, "AUTH u pw") == "+OK");
    let refused = eval(&mut other, "return 1");
    assert!(
        refused.starts_with("-LIMIT script-modes: user 'u' may only run scripts that are async"),
        "{refused}"
    );
}

#[test]
fn who_calls_too_often_is_refused() {
    let (server, mut admin, mut user) = with("limit:commands-per-second=2");
    let replies = |user: &mut Client, words: &[&str]| {
        let call: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        user.pipeline(&vec![call; 50]).iter().map(notation::reply).collect::<Vec<_>>()
    };
    let seen = replies(&mut user, &["GET", "k"]);
    let refused =
        "-LIMIT commands-per-second: user 'u' has reached its limit of 2 calls per second; try again in ";
    let count = seen.iter().filter(|reply| reply.starts_with(refused)).count();
    assert!(seen[0] == "nil" && count > 10, "{seen:?}");
    assert_eq!(reached(&server, "commands-per-second"), count as u64);
    // Others are not, and whoever is may become another one.
    assert!(replies(&mut admin, &["GET", "k"]).iter().all(|reply| reply == "nil"));
    all(&mut user, &[("AUTH u pw", "+OK")]);
    // What a transaction lacks is not done.
    wait_until("a transaction has begun", || say(&mut user, "MULTI") == "+OK");
    let queued = replies(&mut user, &["SET", "k", "v"]);
    assert!(queued.iter().any(|reply| reply.starts_with(refused)), "{queued:?}");
    let exec = say(&mut user, "EXEC");
    assert!(exec.starts_with("-EXECABORT Transaction discarded because of"), "{exec}");
    assert_eq!(say(&mut admin, "GET k"), "nil");
    assert_eq!(say(&mut admin, "ACL SETUSER u limit:commands-per-second=none"), "+OK");
    assert!(replies(&mut user, &["GET", "k"]).iter().all(|reply| reply == "nil"));
    // Calls of a script are counted by their fuel.
    assert_eq!(say(&mut admin, "ACL SETUSER u limit:commands-per-second=1"), "+OK");
    let script = "for i = 1, 100 do redis.call('INCR', KEYS[1]) end return 'all'";
    wait_until("it has its turn", || eval(&mut user, script) == "\"all\"");
}

#[test]
fn a_call_that_is_held_up_counts_once() {
    let (_server, mut admin, mut user) = with("limit:commands-per-second=1");
    all(&mut admin, &[("CLIENT PAUSE 1000000 WRITE", "+OK")]);
    user.send(["SET", "k", "v"]);
    wait_until("it is held up", || say(&mut admin, "INFO clients").contains("blocked_clients:1"));
    all(&mut admin, &[("CLIENT UNPAUSE", "+OK")]);
    assert_eq!(notation::reply(&user.read()), "+OK");
}

#[test]
fn http_tells_who_asks_too_often() {
    let (server, _admin, _user) = with("limit:commands-per-second=1");
    let mut http = server.http();
    // u:pw
    let headers = [("Content-Type", "application/json"), ("Authorization", "Basic dTpwdw==")];
    let mut send = || http.send("POST", "/v1/command", &headers, br#"{"args":["GET","k"]}"#);
    let mut last = send();
    wait_until("it is refused", || {
        last = send();
        last.status != 200
    });
    assert_eq!((last.status, last.json()["code"].as_str()), (429, Some("LIMIT")));
}

#[test]
fn fuel_is_what_a_second_gives() {
    let (server, mut admin, mut user) = with("limit:fuel-per-second=100000");
    let ended = eval(&mut user, ENDLESS);
    assert!(ended.starts_with("-SCRIPTLIMIT fuel: 100000 units used by script "), "{ended}");
    assert!(ended.ends_with("the limit is set by limit:fuel-per-second"), "{ended}");
    assert_eq!(
        eval(&mut user, "#!lua fuel=200000\nreturn 1"),
        "-ERR The script requests fuel=200000, but limit:fuel-per-second allows at most 100000"
    );
    let refused = "-LIMIT fuel-per-second: user 'u' has reached its limit of 100000 units of fuel per second; try again in ";
    wait_until("it is used up", || eval(&mut user, ENDLESS).starts_with(refused));
    assert!(reached(&server, "fuel-per-second") > 0);
    // A transaction is refused as a whole.
    wait_until("a transaction is refused", || {
        all(&mut user, &[("MULTI", "+OK"), ("SET k v", "+QUEUED")]);
        user.eval(ENDLESS, &["k"], &[]);
        say(&mut user, "EXEC").starts_with(refused)
    });
    assert_eq!(say(&mut admin, "GET k"), "nil");
    // Functions burn the same.
    let library = format!("#!lua name=l\nredis.register_function('f', function() {ENDLESS} end)");
    assert_eq!(notation::reply(&admin.call(["FUNCTION", "LOAD", &library])), "\"l\"");
    wait_until("a function is refused", || say(&mut user, "FCALL f 0").starts_with(refused));
    // So does the loading of a library.
    let endless = format!("#!lua name=m\n{ENDLESS}");
    wait_until("a library is refused", || {
        notation::reply(&user.call(["FUNCTION", "LOAD", &endless])).starts_with(refused)
    });
    assert_eq!(say(&mut admin, "ACL SETUSER u limit:fuel-per-second=1000000000000"), "+OK");
    wait_until("there is plenty", || eval(&mut user, "return 1") == "1");
}

/// How a script is compiled without being run: by RESP, in a transaction, and by HTTP.
const WAYS: [&str; 4] = ["SCRIPT LOAD", "EXEC", "/v1/scripts", "/v1/check"];

/// What the user `u` is told of the script that is compiled in this way.
fn compile(server: &TestServer, user: &mut Client, way: &str, text: &str) -> String {
    match way {
        "SCRIPT LOAD" => notation::reply(&user.call(["SCRIPT", "LOAD", text])),
        "EXEC" => {
            assert_eq!(say(user, "MULTI"), "+OK");
            assert_eq!(notation::reply(&user.call(["SCRIPT", "LOAD", text])), "+QUEUED");
            match user.run("EXEC") {
                Value::Array(replies) => notation::reply(&replies[0]),
                // A transaction is refused as a whole.
                refused => notation::reply(&refused),
            }
        }
        path => {
            // u:pw
            let headers = [("Content-Type", "application/json"), ("Authorization", "Basic dTpwdw==")];
            let body = serde_json::json!({ "script": text }).to_string();
            let answer = server.http().send("POST", path, &headers, body.as_bytes()).json();
            match answer["detail"].as_str() {
                Some(detail) => format!("-{detail}"),
                None => format!("{:?}", answer["sha"].as_str().expect("a digest")),
            }
        }
    }
}

/// What takes megabytes to compile, and more than 100000 units of fuel and a millisecond.
fn long_script() -> String {
    "x = x + 1\n".repeat(100_000)
}

#[test]
fn compiling_is_limited_like_running() {
    let (server, mut admin, mut user) = with("");
    let text = long_script();
    let sha = notation::reply(&admin.call(["SCRIPT", "LOAD", &text]));
    all(&mut admin, &[("SCRIPT FLUSH", "+OK")]);
    let rules = [
        ("memory", "more than 1048576 bytes requested", "limit:script-memory", "1mb"),
        ("time", "1 ms used", "limit:script-timeout-ms", "1"),
        ("fuel", "100000 units used", "limit:fuel-per-second", "100000"),
    ];
    for (limit, used_up, rule, value) in rules {
        assert_eq!(say(&mut admin, &format!("ACL SETUSER u {rule}={value}")), "+OK");
        let ended = format!(
            "-SCRIPTLIMIT {limit}: {used_up} while the script was compiled; the limit is set by {rule}"
        );
        let refused =
            "-LIMIT fuel-per-second: user 'u' has reached its limit of 100000 units of fuel per second";
        for way in WAYS {
            let before = reached(&server, &rule["limit:".len()..]);
            let mut reported = compile(&server, &mut user, way, &text);
            if limit == "fuel" {
                wait_until("there is fuel", || {
                    reported = compile(&server, &mut user, way, &text);
                    !reported.starts_with(refused)
                });
            }
            assert_eq!(reported, ended, "{way}");
            assert!(reached(&server, &rule["limit:".len()..]) > before, "{way} counts");
            if limit == "fuel" {
                wait_until("it is used up by this", || {
                    compile(&server, &mut user, way, &text).starts_with(refused)
                });
            }
        }
        assert_eq!(say(&mut admin, &format!("ACL SETUSER u {rule}=none")), "+OK");
    }
    let known = |admin: &mut Client| say(admin, &format!("SCRIPT EXISTS {sha}"));
    assert_eq!(known(&mut admin), "[0]");
    for way in WAYS {
        assert_eq!(compile(&server, &mut user, way, &text), sha, "{way}");
    }
    // What somebody else has loaded stays, whoever may not.
    all(&mut admin, &[("ACL SETUSER u limit:fuel-per-second=1", "+OK")]);
    wait_until("it is refused", || {
        // Both within the second for which there is no more fuel.
        ["return redis.call('GET', 'other')", &text].iter().all(|text| {
            compile(&server, &mut user, "SCRIPT LOAD", text).starts_with("-LIMIT fuel-per-second: ")
        })
    });
    assert_eq!(known(&mut admin), "[1]");
}

#[test]
fn scripts_wait_for_those_of_the_same_user() {
    const WAITS: &str = "--!df flags=disable-atomicity
        redis.call('INCR', 'begun')
        while redis.call('GET', 'go') ~= 'now' do end
        return 'done'";
    let (server, mut admin, mut user) = with("limit:scripts-at-once=1");
    let begin = || {
        let mut user = connect(&server);
        let id = say(&mut user, "CLIENT ID");
        user.send(["EVAL", WAITS, "0"]);
        (user, id)
    };
    let running = |count: usize| {
        wait_until(
            "so many run or wait",
            || matches!(server.client().run("SCRIPT RUNNING"), Value::Array(runs) if runs.len() == count),
        );
    };
    let (mut first, _) = begin();
    wait_until("the first one runs", || say(&mut admin, "GET begun") == "\"1\"");
    let ((second, _), (mut third, id), (mut fourth, _)) = (begin(), begin(), begin());
    all(&mut user, &[("MULTI", "+OK"), ("EVAL 'return 1' 0", "+QUEUED")]);
    user.send(["EXEC"]);
    wait_until("all others wait", || reached(&server, "scripts-at-once") == 4);
    running(5);
    // So does whoever loads one.
    let (mut loads, mut loads_later) = (connect(&server), connect(&server));
    loads.send(["SCRIPT", "LOAD", "return 'loaded'"]);
    all(&mut loads_later, &[("MULTI", "+OK"), ("SCRIPT LOAD 'return \"later\"'", "+QUEUED")]);
    loads_later.send(["EXEC"]);
    wait_until("they wait too", || reached(&server, "scripts-at-once") == 6);
    // Those of others do not, nor do commands.
    assert_eq!(eval(&mut admin, "return 1"), "1");
    assert_eq!(say(&mut connect(&server), "GET begun"), "\"1\"");
    // Who waits may hang up, and can be killed.
    drop(second);
    running(4);
    assert_eq!(say(&mut admin, &format!("SCRIPT KILL CLIENT {id}")), "+OK");
    let killed = notation::reply(&third.read());
    assert!(killed.starts_with("-KILLED "), "{killed}");
    // A longer line is there at once.
    assert_eq!(say(&mut admin, "ACL SETUSER u limit:scripts-at-once=2"), "+OK");
    wait_until("another one runs", || say(&mut admin, "GET begun") == "\"2\"");
    assert_eq!(say(&mut admin, "SET go now"), "+OK");
    for client in [&mut first, &mut fourth] {
        assert_eq!(notation::reply(&client.read()), "\"done\"");
    }
    for client in [&mut loads, &mut loads_later] {
        let sha = notation::reply(&client.read());
        assert!(sha.trim_matches(['[', ']', '"']).len() == 40, "{sha}");
    }
    assert_eq!(notation::reply(&user.read()), "[1]");
}

#[test]
fn scripts_have_what_their_user_may_have() {
    let (server, mut admin, mut user) = with("limit:script-memory=2mb limit:script-timeout-ms=50");
    let hungry = "local t = {} for i = 1, 1e7 do t[i] = {} end";
    let ended = eval(&mut user, hungry);
    assert!(
        ended.starts_with("-SCRIPTLIMIT ") && ended.contains("the limit is set by limit:script-"),
        "{ended}"
    );
    let ended = eval(&mut user, ENDLESS);
    assert!(
        ended.starts_with("-SCRIPTLIMIT time: 50 ms used by script ")
            && ended.ends_with("the limit is set by limit:script-timeout-ms"),
        "{ended}"
    );
    for (header, wanted) in [
        ("memory=4mb", "memory=4194304, but limit:script-memory allows at most 2097152"),
        ("timeout=51", "timeout=51, but limit:script-timeout-ms allows at most 50"),
    ] {
        let refused = eval(&mut user, &format!("#!lua {header}\nreturn 1"));
        assert_eq!(refused, format!("-ERR The script requests {wanted}"));
    }
    let refused = "-LIMIT script-modes: user 'u' may only run scripts that are";
    let asynchronous = "#!lua flags=disable-atomicity\nreturn 1";
    all(&mut admin, &[("ACL SETUSER u reset on nopass +@all ~* limit:script-modes=atomic", "+OK")]);
    assert_eq!(eval(&mut user, "return 1"), "1");
    assert_eq!(
        eval(&mut user, asynchronous),
        format!("{refused} atomic, this one is async; change its flags")
    );
    // In a transaction it is atomic.
    assert_eq!(say(&mut user, "MULTI"), "+OK");
    assert_eq!(eval(&mut user, asynchronous), "+QUEUED");
    assert_eq!(say(&mut user, "EXEC"), "[1]");
    all(&mut admin, &[("ACL SETUSER u limit:script-modes=read-only", "+OK")]);
    assert_eq!(
        eval(&mut user, "return 1"),
        format!("{refused} read-only, this one is atomic; change its flags")
    );
    assert_eq!(eval(&mut user, "#!lua flags=no-writes\nreturn 1"), "1");
    all(&mut admin, &[("ACL SETUSER u limit:script-modes=none limit:undeclared-keys=reject", "+OK")]);
    let script = "#!lua flags=allow-undeclared-keys\nreturn redis.call('GET', KEYS[1] .. ARGV[1])";
    let mut other = |part: &str| notation::reply(&user.eval(script, &["k"], &[part]));
    assert_eq!(other(""), "nil");
    let refused = other("x");
    assert!(refused.starts_with("-UNDECLARED script tried accessing undeclared key, key: kx"), "{refused}");
    assert!(refused.contains("as limit:undeclared-keys requires"), "{refused}");
    assert_eq!((reached(&server, "undeclared-keys"), server.info("undeclared_refused")), (1, 1));
    // Not without atomicity either, nor by what names more than its keys.
    let asynchronous = "#!lua flags=disable-atomicity\nreturn redis.call(unpack(ARGV))";
    let atomic = "return redis.call(unpack(ARGV))";
    for script in [atomic, asynchronous] {
        let mut call =
            |line: &str| notation::reply(&user.eval(script, &["k"], &line.split(' ').collect::<Vec<_>>()));
        assert_eq!(call("GET k"), "nil");
        assert!(
            call("SET other x").starts_with("-UNDECLARED script tried accessing undeclared key, key: other;")
        );
        for line in ["COPY k k DB 1", "MOVE k 1", "SORT k BY nosort GET other*"] {
            let refused = call(line);
            let reported = "-UNDECLARED script tried accessing keys that cannot be declared, command: ";
            assert!(
                refused.starts_with(reported) && refused.contains("limit:undeclared-keys requires"),
                "{refused}"
            );
        }
    }
    assert_eq!((reached(&server, "undeclared-keys"), server.info("undeclared_refused")), (9, 9));
}
