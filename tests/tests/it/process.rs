//! The server as a process: how it starts, how it ends, and what it says when it cannot start.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use tests::process::{command, refused};
use tests::temp_dir::TempDir;
use tests::{Client, Protocol, TestServer, Value, notation, wait_until};

const SIGNALS: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// A file of this test, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &[u8]) -> Scratch {
        let path = std::env::temp_dir().join(format!("moonshard-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the file can be written");
        Scratch(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_ready_line_names_every_address() {
    let flags = ["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let mut child = command(&flags).stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    child.kill().expect("it runs");
    child.wait().expect("a child");
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r":[1-9]\d*", ":<port>");
    settings.bind(|| insta::assert_snapshot!(line.trim_end(), @"moonshard ready resp=127.0.0.1:<port> http=127.0.0.1:<port> grpc=127.0.0.1:<port>"));
}

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    for line in ["--help", "config", "completions bash", "script definitions lua"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let words: Vec<&str> = line.split(' ').collect();
        let output = command(&words).stdout(writer).stderr(Stdio::piped()).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{line}: {errors}");
    }
}

#[test]
fn variables_that_set_nothing_are_logged() {
    let mut child = command(&["--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off"])
        .envs([("MOONSHARD_SCRIPT_TIMEOUT", "1"), ("MOONSHARD_PORT_6379_TCP", "tcp://10.0.0.1:6379")])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut String::new()).expect("it is ready");
    child.kill().expect("it runs");
    let output = child.wait_with_output().expect("a child");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("environment variable")).collect();
    let [warning] = warnings[..] else { panic!("{log}") };
    assert!(
        warning.contains("warning: environment variable MOONSHARD_SCRIPT_TIMEOUT has no effect"),
        "{log}"
    );
}

#[test]
fn a_service_manager_hears_of_the_start_and_the_end() {
    let directory = TempDir::made("notify");
    let path = directory.path().join("socket");
    let socket = UnixDatagram::bind(&path).expect("the directory is writable");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("it is not zero");
    let heard = || {
        let mut text = [0; 100];
        let length = socket.recv(&mut text).expect("the process notifies");
        String::from_utf8_lossy(&text[..length]).trim_end().to_owned()
    };
    let server = ["serve", "--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off"];
    for flags in [&server[..], &["store", "--grpc", "127.0.0.1:0"]] {
        let mut child =
            command(flags).env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).spawn().expect("it starts");
        assert_eq!(heard(), "READY=1");
        let pid = i32::try_from(child.id()).expect("a process");
        // SAFETY: it sends a signal to a process that is not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        assert_eq!(heard(), "STOPPING=1");
        assert_eq!(child.wait().expect("a child").code(), Some(0), "{flags:?}");
    }
}

#[test]
fn health_is_asked_over_resp_where_nothing_else_is_on() {
    let server = TestServer::start(&["--http", "off", "--grpc", "off"]);
    server.client().run("CONFIG SET requirepass secret");
    let check = |address: &str| {
        let flags = ["health", "--config", "/dev/null"];
        let environment = [("MOONSHARD_HTTP", "off"), ("MOONSHARD_GRPC", "off"), ("MOONSHARD_RESP", address)];
        let output = command(&flags).envs(environment).output().expect("it starts");
        (output.status.code(), [output.stdout, output.stderr].concat())
    };
    let address = server.address().to_string();
    // The check gives up after some seconds, which may pass without a turn on the processor.
    wait_until("the server is healthy", || check(&address).0 == Some(0));
    drop(server);
    let (code, text) = check(&address);
    let text = String::from_utf8_lossy(&text);
    assert!(code == Some(1) && text.contains("does not accept requests"), "{text}");
}

#[test]
fn a_signal_ends_it_while_connections_are_idle() {
    for signal in SIGNALS {
        let mut server = TestServer::start(&[]);
        let mut clients: Vec<Client> = (0..5).map(|_| server.client()).collect();
        for client in &mut clients {
            assert_eq!(notation::reply(&client.run("PING")), "+PONG");
        }
        clients[0].run("MULTI");
        clients[1].run("WATCH key");
        clients[2].send_raw(b"*2\r\n$4\r\nECHO\r\n$5\r\nhal").expect("the server accepts requests");
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "signal {signal}");
        assert!(clients.iter_mut().all(Client::is_closed));
    }
}

#[test]
fn a_signal_lets_running_requests_finish() {
    for signal in SIGNALS {
        let mut server =
            TestServer::start(&["--script-fuel", "1000000000000", "--script-timeout-ms", "60000"]);
        let mut client = server.client();
        // Long enough to be still running when the signal comes.
        let script = "for i = 1, 10000000 do end redis.call('SET', KEYS[1], 'done') return 'finished'";
        client.send(["EVAL", script, "1", "job"]);
        // Or has run already, on a machine that is busy with other things.
        wait_until("the script runs", || server.info("scripts_running") + server.info("scripts_run") > 0);
        server.signal(signal);
        assert_eq!(notation::reply(&client.read()), "\"finished\"", "signal {signal}");
        assert!(client.is_closed());
        assert_eq!(server.wait().code(), Some(0));
        wait_until("the log says so", || server.log().contains("shutting down: "));
    }
}

#[test]
fn new_connections_are_refused_while_it_drains() {
    let mut server = TestServer::start(&["--script-timeout-ms", "3000", "--script-fuel", "1000000000000000"]);
    let mut client = server.client();
    client.send(["EVAL", "while true do end", "0"]);
    // Or has run already, on a machine that is busy with other things.
    wait_until("the script runs", || server.info("scripts_running") + server.info("script_limit_time") > 0);
    server.signal(libc::SIGTERM);
    wait_until("it stops", || server.log().contains("shutting down: "));
    wait_until("nobody listens any more", || std::net::TcpStream::connect(server.address()).is_err());
    // The script's own limit ends it.
    let Value::Error(text) = client.read() else { panic!("an error") };
    assert!(text.starts_with(b"SCRIPTLIMIT time: "), "{}", text.escape_ascii());
    assert_eq!(server.wait().code(), Some(0));
}

/// What a refused start says: one line on standard error and nothing else.
fn complaint(output: &Output) -> String {
    assert!(matches!(output.status.code(), Some(1 | 2)), "ended with {}", output.status);
    assert_eq!(output.stdout, b"", "something on standard output");
    let text = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    text.trim_end().to_owned()
}

#[test]
fn a_taken_port_is_named() {
    let server = TestServer::start(&[]);
    let taken = server.address().to_string();
    for (flag, others) in [
        ("resp", ["--http", "off", "--grpc", "off"]),
        ("http", ["--resp", "127.0.0.1:0", "--grpc", "off"]),
        ("grpc", ["--resp", "127.0.0.1:0", "--http", "off"]),
    ] {
        let output = refused(&[&[&*format!("--{flag}"), &taken], &others[..]].concat());
        let reported = complaint(&output);
        assert!(
            reported.starts_with(&format!("moonshard: {flag}: cannot listen on {taken}: ")),
            "{reported}"
        );
        assert!(reported.contains("in use"), "{reported}");
    }
    let reported =
        complaint(&refused(&["--resp", "no.such.host.invalid:1", "--http", "off", "--grpc", "off"]));
    assert!(reported.starts_with("moonshard: resp: cannot listen on no.such.host.invalid:1: "), "{reported}");
}

#[test]
fn wrong_settings_are_named_with_their_source() {
    let bad = Scratch::new("bad.toml", b"hz = 10\nscript-memory = \"12 bananas\"\n");
    let unknown = Scratch::new("unknown.toml", b"script-fule = 5\n");
    let broken = Scratch::new("broken.toml", b"hz = = 10\n");
    let binary = Scratch::new("binary.toml", b"\xff\xfe\x00");
    let dir = std::env::temp_dir();
    let by_variable = |name: &str, value: &str| {
        complaint(&command(&[]).env(name, value).output().expect("the server starts"))
    };
    let reported = [
        complaint(&refused(&["--shards", "many"])),
        complaint(&refused(&["--script-memory", "1kb"])),
        complaint(&refused(&["--resp", "6379"])),
        complaint(&refused(&["--no-such-flag"])),
        by_variable("MOONSHARD_THREADS", "0"),
        by_variable("MOONSHARD_CLIENT_OUTPUT_BUFFER_LIMIT", "64mb"),
        by_variable("MOONSHARD_CONFIG", "/nowhere/moonshard.toml"),
        complaint(&refused(&["--config", bad.path()])),
        complaint(&refused(&["--config", unknown.path()])),
        complaint(&refused(&["--config", broken.path()])),
        complaint(&refused(&["--config", binary.path()])),
        complaint(&refused(&["--config", dir.to_str().expect("UTF-8")])),
    ];
    let mut settings = insta::Settings::clone_current();
    let scratch = regex_of(&dir.join(format!("moonshard-{}-", std::process::id())));
    settings.add_filter(&scratch, "");
    settings.add_filter(&regex_of(&dir), "<folder>");
    settings.bind(|| insta::assert_snapshot!(reported.join("\n"), @r#"
    moonshard: flag --shards: "many" is invalid, expected a whole number from 1 to 1024
    moonshard: flag --script-memory: "1kb" is invalid, expected a size from 1mb to 4gb, such as 64mb
    moonshard: flag --resp: "6379" is invalid, expected HOST:PORT with a port up to 65535
    moonshard: unexpected argument '--no-such-flag' found; see moonshard --help
    moonshard: environment variable MOONSHARD_THREADS: "0" is invalid, expected a whole number from 1 to 1024
    moonshard: environment variable MOONSHARD_CLIENT_OUTPUT_BUFFER_LIMIT: "64mb" is invalid, expected CLASS HARD SOFT SECONDS ..., such as normal 1gb 64mb 60
    moonshard: cannot read config file /nowhere/moonshard.toml: No such file or directory (os error 2)
    moonshard: bad.toml: script-memory: "12 bananas" is invalid, expected a size from 1mb to 4gb, such as 64mb
    moonshard: unknown.toml: unknown key "script-fule", the nearest known one is "script-fuel"
    moonshard: broken.toml: line 1: extra `=`, expected nothing
    moonshard: cannot read config file binary.toml: stream did not contain valid UTF-8
    moonshard: cannot read config file <folder>: Is a directory (os error 21)
    "#));
}

/// A path as a pattern that means just it.
fn regex_of(path: &std::path::Path) -> String {
    path.to_str().expect("UTF-8").chars().map(|letter| format!("[{letter}]")).collect()
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = Scratch::new("order.toml", b"timeout = 11\nhz = 12\nmaxclients = 13\n");
    let flags = ["serve", "--config", file.path(), "--resp", "127.0.0.1:0", "--http", "off", "--hz", "32"];
    let mut command = command(&flags);
    command.env("MOONSHARD_HZ", "22").env("MOONSHARD_MAXCLIENTS", "23").env("MOONSHARD_GRPC", "off");
    // Empty is as good as not there.
    command.env("MOONSHARD_TIMEOUT", "");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let address = line.trim_end().strip_prefix("moonshard ready resp=").expect("an address");
    let mut client = Client::connect(address.parse().expect("an address"), Protocol::Resp3);
    let is = ["hz", "maxclients", "timeout", "tcp-keepalive"].map(|name| {
        let reply = client.call(["CONFIG", "GET", name]);
        notation::reply(&reply)
    });
    child.kill().expect("it runs");
    child.wait().expect("a child");
    insta::assert_snapshot!(is.join("\n"), @r#"
    {"hz": "32"}
    {"maxclients": "23"}
    {"timeout": "11"}
    {"tcp-keepalive": "300"}
    "#);
}

#[test]
fn what_is_set_and_rewritten_is_there_after_a_restart() {
    let mut server = TestServer::start(&[]);
    let mut client = server.client();
    let refused = "-ERR The server is running without a config file";
    assert_eq!(notation::reply(&client.run("CONFIG REWRITE")), refused);
    assert_eq!(server.info_text("config_file"), "");

    let file = Scratch::new("rewritten.toml", b"# Ours.\nhz = 12 # often\n");
    let data = ["--config", file.path(), "--threads", "2"];
    server = TestServer::start(&data);
    client = server.client();
    assert_eq!(server.info_text("config_file"), file.path());
    for line in ["CONFIG SET hz 13 maxmemory 100mb maxclients 10000", "CONFIG REWRITE"] {
        assert_eq!(notation::reply(&client.run(line)), "+OK", "{line}");
    }
    let text = std::fs::read_to_string(file.path()).expect("a file");
    assert!(text.starts_with("# Ours.\nhz = 13 # often\n# Generated by CONFIG REWRITE\nresp = "), "{text}");
    assert!(text.contains("maxmemory = \"100mb\"\n") && !text.contains("maxclients"), "{text}");
    server.signal(libc::SIGTERM);
    server.wait();

    server = TestServer::start(&["--config", file.path()]);
    client = server.client();
    let is = ["hz", "maxmemory", "threads"]
        .map(|name| notation::reply(&client.run(&format!("CONFIG GET {name}"))));
    assert_eq!(is.join(" "), r#"["hz", "13"] ["maxmemory", "104857600"] ["threads", "2"]"#);

    // What cannot be read as a config file is not written over.
    std::fs::write(file.path(), "hz = = 1").expect("written");
    let refused = "-ERR Rewriting config file: extra `=`, expected nothing";
    assert_eq!(notation::reply(&client.run("CONFIG REWRITE")), refused);
    assert_eq!(std::fs::read_to_string(file.path()).expect("a file"), "hz = = 1");
    // Nobody can make a file where there is no folder.
    let dir = file.path().replace(".toml", "");
    let inner = format!("{dir}/moonshard.toml");
    std::fs::create_dir(&dir).expect("a folder");
    std::fs::write(&inner, "").expect("written");
    server = TestServer::start(&["--config", &inner]);
    std::fs::remove_dir_all(&dir).expect("removed");
    let refused = "-ERR Rewriting config file: No such file or directory";
    assert_eq!(notation::reply(&server.client().run("CONFIG REWRITE")), refused);
}

#[test]
fn a_name_in_the_config_file_stays_a_name() {
    let text = "resp = \"localhost:0\"\nhttp = 'off'\ngrpc = 'off'\ndata-dir = 'none' # in memory\n";
    let file = Scratch::new("name.toml", text.as_bytes());
    let mut child = command(&["--config", file.path()]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let address = line.trim_end().strip_prefix("moonshard ready resp=").expect("an address");
    let address: SocketAddr = address.parse().expect("an address");
    let mut client = Client::connect(address, Protocol::Resp2);
    let reported = ["CONFIG GET bind", "CONFIG REWRITE"].map(|line| notation::reply(&client.run(line)));
    child.kill().expect("it runs");
    child.wait().expect("a child");
    assert_eq!(reported, [r#"["bind", "localhost"]"#, "+OK"]);
    let kept = text.replace("localhost:0", &format!("localhost:{}", address.port()));
    assert_eq!(std::fs::read_to_string(file.path()).expect("a file"), kept);
}
