//! Users and what they may do: compared with Redis by random rules, and held to on every way in.

mod audit;
mod limits;

use tests::cluster::TestCluster;
use tests::generate::Chance;
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, Protocol, TestServer, Value, notation, wait_until};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn all(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, wanted) in lines {
        assert_eq!(say(client, line), *wanted, "{line}");
    }
}

/// Rules, right and wrong ones. Those that say `pw` have a number put behind it.
const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    "resetpass",
    "reset",
    ">pw",
    ">pw",
    "<pw",
    "#",
    "!abc",
    "sanitize-payload",
    "skip-sanitize-payload",
    "allkeys",
    "resetkeys",
    "~*",
    "~k*",
    "~k*",
    "~?:[ab]",
    "%R~r*",
    "%W~w*",
    "%RW~x",
    "%wr~x",
    "%R~k*",
    "%~x",
    "%X~x",
    "%RR~x",
    "%R",
    "~",
    "&*",
    "&c*",
    "&c1",
    "allchannels",
    "resetchannels",
    "allcommands",
    "nocommands",
    "+@all",
    "-@all",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@string",
    "-@hash",
    "+@pubsub",
    "+@dangerous",
    "-@dangerous",
    "+@transaction",
    "+@nosuch",
    "+get",
    "-get",
    "+GET",
    "+set",
    "-set",
    "+mget",
    "+del",
    "+config",
    "-config",
    "+config|get",
    "-config|set",
    "+config|nosuch",
    "+config|get|x",
    "+get|x",
    "+GET|K1",
    "-get|x",
    "+get|",
    "+nosuch",
    "-nosuch",
    "+object|encoding",
    "+publish",
    "+psubscribe",
    "+subscribe",
    "+eval",
    "+sort",
    "+bitfield",
    "+rename",
    "+zunionstore",
    "+multi",
    "-multi",
    "clearselectors",
    "(+get ~s*)",
    "(+@all %R~t* &d*)",
    "(+set (~x))",
    "(-@all +nosuch)",
    "(~a",
    "+get)",
    "()",
    "( +mget  ~m* )",
    "nonsense",
    "",
];

/// Calls that are tried with every set of rules.
const CALLS: &[&str] = &[
    "get k1",
    "get r1",
    "get w1",
    "get x",
    "get s1",
    "get t1",
    "get a:a",
    "set k1 v",
    "set k1 v get",
    "set w1 v",
    "set r1 v",
    "set w1 v get",
    "mget k1 k2",
    "mget m1 k1",
    "del k1 x",
    "exists w1 r1",
    "append w1 v",
    "rename k1 k2",
    "rename w1 w2",
    "copy r1 w1",
    "sort k1 store w1",
    "sort r1 by x get y",
    "bitfield w1 get u8 0",
    "bitfield r1 set u8 0 1",
    "zunionstore w1 2 r1 k1",
    "eval x 1 k1",
    "eval x 0",
    "eval_ro x 1 r1",
    "publish c1 v",
    "publish d1 v",
    "spublish c1 v",
    "subscribe c1 c2",
    "subscribe d1",
    "psubscribe c*",
    "psubscribe c1*",
    "ssubscribe c1",
    "unsubscribe zz",
    "config get x",
    "config set a b",
    "object encoding k1",
    "object help",
    "multi",
    "exec",
    "watch w1",
    "auth x",
    "hello",
    "ping",
    "keys *",
    "flushall",
    "xread count 1 streams k1 r1 0 0",
    "xreadgroup group a b streams w1 >",
    "lmpop 2 k1 w1 left",
    "blpop k1 0",
    "hset k1 a b",
    "hget w1 a",
    "script load x",
    "client list",
    "client id",
    "select 1",
    "lpush w1 x",
    "getdel w1",
    "type x",
    "mset k1 v w1 v",
    "msetnx k1 v x v",
    "geosearchstore w1 r1 frommember a byradius 1 m",
    "pfcount r1",
    "pfmerge w1 r1",
    "acl whoami",
    "acl list",
    "info",
    "dump r1",
    "restore w1 0 x",
    "zadd k1 1 a",
    "smove k1 w1 a",
    "bitop and w1 r1 k1",
];

/// What a reply tells of rules, but for how commands are summed up: Redis has others beside, and orders them by chance.
fn without_commands(reply: &str) -> String {
    let mut shown = String::new();
    let mut rest = reply;
    while let Some((before, after)) = rest.split_once("\"commands\"") {
        shown.push_str(before);
        // A comma in an array, a colon in a map; then a text in quotes.
        let quoted = after.splitn(3, '"').nth(2).expect("a quoted text");
        rest = quoted;
    }
    shown + rest
}

/// The rule with a letter more, less or other. Blanks and quotes are left out: what Redis shows of them it cannot read.
fn spoiled(chance: &mut Chance, rule: &str) -> String {
    let mut letters: Vec<char> = rule.chars().collect();
    let letter =
        chance.pick(&['(', ')', '|', '~', '%', '&', '@', '*', '+', '-', '#', '<', '>', '!', 'R', 'w', 'x']);
    match (chance.below(3), chance.below(letters.len() + 1)) {
        (0, at) if at < letters.len() => letters[at] = letter,
        (1, at) if at < letters.len() => drop(letters.remove(at)),
        (_, at) => letters.insert(at, letter),
    }
    letters.into_iter().collect()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

/// `MOONSHARD_ACL_SEED` starts elsewhere, `MOONSHARD_ACL_LISTS` tries more lists of rules.
#[test]
fn random_rules_mean_what_they_mean_to_redis() {
    let Some(oracle) = Oracle::start() else { return };
    let server = TestServer::start(&[]);
    let seed = setting("MOONSHARD_ACL_SEED", 7);
    let mut chance = Chance::new(seed);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut ours = Client::connect(server.address(), protocol);
        let mut theirs = Client::connect(oracle.address(), protocol);
        for _ in 0..setting("MOONSHARD_ACL_LISTS", 60) {
            let count = 1 + chance.below(7);
            let mut rules: Vec<String> = (0..count).map(|_| chance.pick(RULES).to_owned()).collect();
            if chance.percent(25) {
                let at = chance.below(count);
                rules[at] = spoiled(&mut chance, &rules[at]);
            }
            if chance.percent(30) {
                rules.insert(0, "reset".into());
            }
            let words = |rules: &[String]| {
                let start = ["ACL", "SETUSER", "somebody"].map(str::to_owned);
                [&start, rules].concat()
            };
            let said = words(&rules);
            let (mine, wanted) = (ours.call(&said), theirs.call(&said));
            assert_eq!(notation::reply(&mine), notation::reply(&wanted), "seed {seed}: {rules:?}");
            let shown = ["ACL", "GETUSER", "somebody"];
            let (mine, wanted) = (ours.call(shown), theirs.call(shown));
            let (mine, wanted) = (notation::reply(&mine), notation::reply(&wanted));
            assert_eq!(without_commands(&mine), without_commands(&wanted), "seed {seed}: {rules:?}");
            for call in CALLS {
                let line = format!("ACL DRYRUN somebody {call}");
                let (mine, wanted) = (say(&mut ours, &line), say(&mut theirs, &line));
                assert_eq!(mine, wanted, "seed {seed}: after {rules:?}, {line}; rules are {shown:?}");
            }
        }
    }
}

/// What is shown of a user makes the same user again.
#[test]
fn rules_that_are_shown_can_be_given() {
    let server = TestServer::start(&[]);
    let mut client = Client::connect(server.address(), Protocol::Resp2);
    let mut chance = Chance::new(11);
    for _ in 0..60 {
        for _ in 0..5 {
            client.call(["ACL", "SETUSER", "one", chance.pick(RULES)]);
        }
        let listed = |client: &mut Client, name: &str| {
            let Value::Array(list) = client.call(["ACL", "LIST"]) else { panic!("a list") };
            let lines = list.iter().filter_map(Value::text);
            let start = format!("user {name} ");
            let line = lines.map(|line| String::from_utf8_lossy(line).into_owned());
            line.filter_map(|line| line.strip_prefix(&start).map(str::to_owned)).next()
        };
        let Some(rules) = listed(&mut client, "one") else { continue };
        client.call(["ACL", "DELUSER", "two"]);
        let words: Vec<&str> = ["ACL", "SETUSER", "two"].into_iter().chain(rules.split(' ')).collect();
        assert_eq!(notation::reply(&client.call(&words)), "+OK", "{rules}");
        assert_eq!(listed(&mut client, "two"), Some(rules));
    }
}

#[test]
fn strangers_are_asked_for_a_password() {
    let dir = TempDir::made("acl-password");
    let file = dir.child("password");
    std::fs::write(&file, "secret\nno part of it\n").expect("written");
    let server = TestServer::start(&["--requirepass-file", &file]);
    let mut client = Client::connect(server.address(), Protocol::Resp2);
    all(
        &mut client,
        &[
            ("GET k", "-NOAUTH Authentication required."),
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            (
                "HELLO 3",
                "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            ),
            ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH default wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH secret", "+OK"),
            ("GET k", "nil"),
            ("CONFIG GET requirepass", "[\"requirepass\", \"\"]"),
            ("RESET", "+RESET"),
            ("GET k", "-NOAUTH Authentication required."),
            ("AUTH default secret", "+OK"),
            (
                r#"CONFIG SET requirepass "\xff\xfe""#,
                "-ERR CONFIG SET failed (possibly related to argument 'requirepass') - the value must be UTF-8",
            ),
            ("CONFIG SET requirepass other", "+OK"),
            ("CONFIG GET requirepass", "[\"requirepass\", \"other\"]"),
            ("GET k", "nil"),
        ],
    );
    let mut newer = Client::connect(server.address(), Protocol::Resp2);
    all(
        &mut newer,
        &[
            ("AUTH secret", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("HELLO 2 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'"),
            ("AUTH other", "+OK"),
            ("CONFIG SET requirepass \"\"", "+OK"),
        ],
    );
    all(&mut Client::connect(server.address(), Protocol::Resp2), &[("GET k", "nil")]);
    for secret in ["secret", "other"] {
        assert!(!server.log().contains(secret), "{}", server.log());
    }
}

/// So much may somebody send who is not let in yet, as in Redis.
#[test]
fn strangers_send_little() {
    let server = TestServer::start(&[]);
    let mut admin = Client::connect(server.address(), Protocol::Resp2);
    assert_eq!(say(&mut admin, "CONFIG SET requirepass secret"), "+OK");
    for (bytes, wanted) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length"),
    ] {
        let mut unauthenticated = Client::connect(server.address(), Protocol::Resp2);
        unauthenticated.send_raw(bytes.as_bytes()).expect("sent");
        assert_eq!(notation::reply(&unauthenticated.read()), wanted);
        assert!(unauthenticated.is_closed());
    }
    let mut known = Client::connect(server.address(), Protocol::Resp2);
    assert_eq!(say(&mut known, "AUTH secret"), "+OK");
    let many: Vec<String> =
        std::iter::once("DEL".to_owned()).chain((0..50).map(|at| at.to_string())).collect();
    assert_eq!(notation::reply(&known.call(&many)), "0");
}

#[test]
fn scripts_may_do_what_their_user_may() {
    let server = TestServer::start(&[]);
    let mut admin = Client::connect(server.address(), Protocol::Resp2);
    assert_eq!(say(&mut admin, "ACL SETUSER u on >pw +@all -flushall -select ~k* &c*"), "+OK");
    let mut user = Client::connect(server.address(), Protocol::Resp2);
    assert_eq!(say(&mut user, "AUTH u pw"), "+OK");
    let denied = "The user executing the script can't";
    for flags in ["", "#!lua flags=disable-atomicity,allow-undeclared-keys\n"] {
        for (call, wanted) in [
            ("'GET', 'k' .. 1", "nil".to_owned()),
            ("'SET', 'k1', 'v'", "+OK".into()),
            (
                "'GET', 'x' .. 1",
                format!("-ERR {denied} access at least one of the keys mentioned in the command arguments"),
            ),
            ("'FLUSHALL'", format!("-ERR {denied} run this command or subcommand")),
            ("'SELECT', '1'", format!("-ERR {denied} run this command or subcommand")),
            ("'PUBLISH', 'x', 'v'", format!("-ERR {denied} publish to the channel mentioned in the command")),
            ("'PUBLISH', 'c', 'v'", "0".into()),
            ("'DEL', 'k1'", "1".into()),
        ] {
            let reply = user.eval(&format!("{flags}return redis.pcall({call})"), &[], &[]);
            assert_eq!(notation::reply(&reply), wanted, "{flags}{call}");
        }
    }
    for (call, wanted) in
        [("'GET', 'k'", "1"), ("'GET', 'x'", "nil"), ("'CONFIG', 'GET', 'x'", "1"), ("'FLUSHALL'", "nil")]
    {
        let reply = user.eval(&format!("return redis.acl_check_cmd({call})"), &[], &[]);
        assert_eq!(notation::reply(&reply), wanted, "{call}");
    }
    all(
        &mut user,
        &[
            (
                "EVAL 'return 1' 1 x",
                "-NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
            ("MULTI", "+OK"),
            ("SET k1 v", "+QUEUED"),
            ("GET k1", "+QUEUED"),
        ],
    );
    assert_eq!(say(&mut admin, "ACL SETUSER u -set"), "+OK");
    let changed = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                   command is no longer allowed for the following reason: no permission to execute the command or \
                   subcommand";
    assert_eq!(say(&mut user, "EXEC"), format!("[-{changed}, nil]"));
    let log = say(&mut admin, "ACL LOG");
    for reported in ["\"lua\", \"object\", \"x1\"", "\"context\", \"multi\", \"object\", \"set\"", "user=u "]
    {
        assert!(log.contains(reported), "{reported}: {log}");
    }
}

#[test]
fn connections_end_with_what_they_were_allowed() {
    let server = TestServer::start(&[]);
    let mut admin = Client::connect(server.address(), Protocol::Resp2);
    assert_eq!(say(&mut admin, "ACL SETUSER u on nopass +@all ~* &c*"), "+OK");
    let connect = || {
        let mut user = Client::connect(server.address(), Protocol::Resp2);
        assert_eq!(say(&mut user, "AUTH u any"), "+OK");
        user
    };
    let (mut hears, mut hears_less, mut other) = (connect(), connect(), connect());
    assert_eq!(say(&mut hears, "SUBSCRIBE c1"), "[\"subscribe\", \"c1\", 1]");
    assert_eq!(say(&mut hears_less, "PSUBSCRIBE c*"), "[\"psubscribe\", \"c*\", 1]");
    assert_eq!(say(&mut admin, "ACL SETUSER u resetchannels &c1"), "+OK");
    assert!(hears_less.is_closed());
    all(&mut hears, &[("PING", "[\"pong\", \"\"]")]);
    all(&mut other, &[("ACL WHOAMI", "\"u\"")]);
    assert!(say(&mut admin, "CLIENT LIST").contains("user=u "));
    assert_eq!(say(&mut admin, "CLIENT KILL USER nobody"), "-ERR No such user 'nobody'");
    wait_until("the ended one is listed no more", || !say(&mut admin, "CLIENT LIST").contains(" psub=1 "));
    assert_eq!(say(&mut admin, "CLIENT KILL USER u"), "2");
    assert!(hears.is_closed() && other.is_closed());
    let mut last = connect();
    assert_eq!(say(&mut admin, "ACL DELUSER u default"), "-ERR The 'default' user cannot be removed");
    assert_eq!(say(&mut admin, "ACL DELUSER u nobody"), "1");
    assert!(last.is_closed());
    // Whoever removes itself is told so first.
    assert_eq!(say(&mut admin, "ACL SETUSER own on nopass +@all"), "+OK");
    let mut own = Client::connect(server.address(), Protocol::Resp2);
    all(&mut own, &[("AUTH own any", "+OK"), ("ACL DELUSER own", "1")]);
    assert!(own.is_closed());
}

#[test]
fn users_are_kept_beside_the_data_or_in_a_file() {
    let dir = TempDir::made("acl-kept");
    let data = dir.child("data");
    let flags = ["--data-dir", &data, "--durability", "sync"];
    let server = TestServer::start(&flags);
    let mut client = Client::connect(server.address(), Protocol::Resp2);
    all(
        &mut client,
        &[
            ("ACL SETUSER kept on >pw ~k* (+set ~s*) +get", "+OK"),
            ("ACL SETUSER gone on", "+OK"),
            ("ACL DELUSER gone", "1"),
        ],
    );
    let listed = say(&mut client, "ACL LIST");
    server.kill();
    let server = TestServer::start(&flags);
    let mut client = Client::connect(server.address(), Protocol::Resp2);
    assert_eq!(say(&mut client, "ACL LIST"), listed);
    all(&mut client, &[("AUTH kept pw", "+OK"), ("GET k", "nil"), ("SET s v", "+OK")]);
    server.kill();

    let file = dir.child("users.acl");
    std::fs::write(&file, "user default on nopass ~* &* +@all\n\nuser alice on >pw +get ~a*\n")
        .expect("written");
    let server = TestServer::start(&["--aclfile", &file]);
    let mut client = Client::connect(server.address(), Protocol::Resp2);
    let mut alice = Client::connect(server.address(), Protocol::Resp2);
    all(&mut alice, &[("AUTH alice pw", "+OK"), ("GET a", "nil")]);
    all(&mut client, &[("ACL SETUSER bob on nopass", "+OK"), ("ACL SAVE", "+OK")]);
    let saved = std::fs::read_to_string(&file).expect("saved");
    assert!(
        saved.lines().count() == 3 && saved.contains("user bob on nopass resetchannels -@all\n"),
        "{saved}"
    );
    std::fs::write(&file, "user bob on +nosuch\nuser bob on\nusr\n").expect("written");
    let error = say(&mut client, "ACL LOAD");
    let wanted = format!(
        "-ERR {file}:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. \
         WARNING: Duplicate user 'bob' found on line 2. {file}:3 should \
         start with user keyword followed by the username. WARNING: ACL errors detected, no change to the previously \
         active ACL rules was performed"
    );
    assert_eq!(error, wanted);
    all(&mut alice, &[("GET a", "nil")]);
    std::fs::write(&file, "user bob on nopass +@all\n").expect("written");
    all(&mut client, &[("ACL LOAD", "+OK"), ("ACL USERS", "[\"bob\", \"default\"]")]);
    assert!(alice.is_closed());
    assert!(TestServer::try_start(&["--aclfile", &dir.child("missing")], "").is_err_and(|log| {
        log.contains("Error loading ACLs, opening file") && log.contains("No such file")
    }));
}

#[test]
fn all_gateways_know_the_users() {
    let cluster = TestCluster::start(2, 2, None);
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    assert_eq!(say(&mut one, "ACL SETUSER u on >pw +get ~k*"), "+OK");
    wait_until("the user is known", || say(&mut other, "ACL USERS") == "[\"default\", \"u\"]");
    let mut user = cluster.client(1);
    all(
        &mut user,
        &[
            ("AUTH u pw", "+OK"),
            ("GET k", "nil"),
            ("GET x", "-NOPERM this user has no permissions to access one of the keys used as arguments"),
        ],
    );
    assert_eq!(say(&mut one, "ACL SETUSER u +set"), "+OK");
    wait_until("the rule is known", || say(&mut user, "SET k v") == "+OK");
    assert_eq!(say(&mut one, "ACL DELUSER u"), "1");
    assert!(user.is_closed());
    assert_eq!(say(&mut one, "ACL SETUSER default >secret"), "+OK");
    wait_until("the password is known", || {
        say(&mut cluster.client(1), "GET k") == "-NOAUTH Authentication required."
    });
}

#[test]
fn connections_from_elsewhere_need_a_password() {
    let Some(elsewhere) = own_address() else { return };
    let server = TestServer::start(&["--resp", "0.0.0.0:0", "--http", "0.0.0.0:0"]);
    let connect = |port: u16| std::net::TcpStream::connect((elsewhere, port)).expect("somebody listens");
    let port = server.address().port();
    let reported = |stream: std::net::TcpStream| {
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut &stream, &mut text);
        text
    };
    let text = reported(connect(port));
    assert!(text.starts_with("-DENIED Redis is running in protected mode because"), "{text}");
    let text = reported(connect(server.http_address().port()));
    assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("DENIED "), "{text}");
    let mut local = Client::connect(([127, 0, 0, 1], port).into(), Protocol::Resp2);
    assert_eq!(say(&mut local, "CONFIG SET requirepass secret"), "+OK");
    let mut remote = Client::connect((elsewhere, port).into(), Protocol::Resp2);
    assert_eq!(say(&mut remote, "AUTH secret"), "+OK");
    assert_eq!(say(&mut local, "CONFIG SET requirepass \"\" protected-mode no"), "+OK");
    let mut remote = Client::connect((elsewhere, port).into(), Protocol::Resp2);
    assert_eq!(say(&mut remote, "PING"), "+PONG");
}

/// An address of this machine that is not loopback, if it has one.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: only the route is looked up.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn http_has_the_users_too() {
    let server = TestServer::start(&["--http", "127.0.0.1:0"]);
    let mut admin = Client::connect(server.address(), Protocol::Resp2);
    all(
        &mut admin,
        &[("ACL SETUSER u on >pw +get +set ~k*", "+OK"), ("CONFIG SET requirepass secret", "+OK")],
    );
    let mut http = server.http();
    // u:pw
    let user = ("Authorization", "Basic dTpwdw==");
    let admin = ("Authorization", "Bearer secret");
    let json = ("Content-Type", "application/json");
    for (headers, method, path, body, status) in [
        (vec![json], "POST", "/v1/command", r#"{"args":["GET","k"]}"#, 401),
        (vec![json, user], "POST", "/v1/command", r#"{"args":["GET","k"]}"#, 200),
        (vec![json, user], "POST", "/v1/command", r#"{"args":["GET","x"]}"#, 403),
        (vec![json, user], "POST", "/v1/command", r#"{"args":["DEL","k"]}"#, 403),
        // The same connection, and nobody says who asks.
        (vec![json], "POST", "/v1/command", r#"{"args":["GET","k"]}"#, 401),
        (vec![user], "GET", "/v1/scripts", "", 403),
        (vec![], "GET", "/v1/scripts", "", 401),
        (vec![admin], "GET", "/v1/scripts", "", 200),
        (vec![user], "GET", "/v1/topology", "", 403),
        (vec![user], "GET", "/v1/events", "", 403),
        (vec![user], "GET", "/v1/key/k?db=1", "", 403),
        (vec![], "GET", "/healthz", "", 200),
    ] {
        let answer = http.send(method, path, &headers, body.as_bytes());
        assert_eq!(answer.status, status, "{method} {path} {body} {headers:?}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let server = TestServer::start(&["--slowlog-log-slower-than", "0"]);
    let mut client = Client::connect(server.address(), Protocol::Resp2);
    all(
        &mut client,
        &[
            ("ACL SETUSER hidden on >Xyzzy +@all", "+OK"),
            ("AUTH hidden Xyzzy", "+OK"),
            ("AUTH default x", "+OK"),
            ("CONFIG SET hz 10 requirepass Xyzzy", "+OK"),
            ("AUTH Xyzzy", "+OK"),
            ("ACL GETUSER nobody", "nil"),
            ("MIGRATE 127.0.0.1 1 k 0 9 COPY AUTH2 hidden Xyzzy AUTH Xyzzy", "+NOKEY"),
        ],
    );
    client.run("HELLO 2 SETNAME me AUTH hidden Xyzzy");
    assert_eq!(say(&mut client, "AUTH Xyzzy"), "+OK");
    let slow = say(&mut client, "SLOWLOG GET -1");
    assert!(!slow.contains("Xyzzy") && !slow.contains("hidden") && slow.contains("(redacted)"), "{slow}");
    let info = say(&mut client, "INFO everything");
    assert!(!info.contains("Xyzzy") && !server.log().contains("Xyzzy"));
}
