//! What those may cost who have not said who they are: few bytes, no waiting for what they announce, nothing kept that they
//! do not read (CVE-2025-21605), and no room that others need.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use tests::certificates::Authority;
use tests::http::http2_without_end;
use tests::{Http, TIMEOUT, TestServer, Value, notation, wait_until};
use tokio::net::TcpSocket;
use tokio::runtime::Builder;

const LISTENERS: &[&str] = &["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];

/// Without a password of the default user nobody is a stranger.
fn start(more: &[&str]) -> TestServer {
    let server = TestServer::start(&[LISTENERS, more].concat());
    assert_eq!(notation::reply(&server.client().run("CONFIG SET requirepass secret")), "+OK");
    server
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
    stream
}

/// Everything that comes until the server ends it.
fn reported(mut stream: TcpStream) -> String {
    let mut reported = Vec::new();
    // What it had not read when it ended makes the end a reset.
    let _ = stream.read_to_end(&mut reported);
    String::from_utf8_lossy(&reported).into_owned()
}

#[test]
fn bodies_of_strangers_are_not_read() {
    let server = start(&[]);
    for (said, code) in [("", "NOAUTH"), ("Authorization: Bearer wrong\r\n", "WRONGPASS")] {
        let mut stream = connect(server.http_address());
        let head = format!(
            "POST /v1/command HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{said}\
             Content-Length: 1000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("the server reads");
        // Nothing of the body ever comes.
        let reported = reported(stream);
        assert!(reported.starts_with("HTTP/1.1 401 ") && reported.contains(code), "{reported}");
    }
    let known = [("Authorization", "Bearer secret"), ("Content-Type", "application/json")];
    let mut http: Http = server.http();
    assert_eq!(http.send("POST", "/v1/command", &known, br#"{"args":["PING"]}"#).status, 200);
    assert_eq!(http.get("/healthz").status, 200, "it asks nobody");
}

#[test]
fn heads_are_short() {
    let server = start(&[]);
    for address in [server.http_address(), server.grpc_address()] {
        let mut stream = connect(address);
        let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: {}", "x".repeat(128 * 1024));
        // It may be over before everything is sent.
        let _ = stream.write_all(head.as_bytes());
        let reported = reported(stream);
        assert!(reported.is_empty() || reported.starts_with("HTTP/1.1 431 "), "{reported}");
    }
    assert_eq!(server.http().get("/healthz").status, 200);
}

#[test]
fn messages_of_strangers_are_not_read() {
    let server = start(&[]);
    const UNAUTHENTICATED: &str = "16";
    for method in ["Execute", "Eval", "LoadScript", "Pipeline"] {
        let path = format!("/moonshard.gateway.v1.Gateway/{method}");
        let answer = http2_without_end(server.grpc_address(), &path, &[("content-type", "application/grpc")]);
        assert_eq!(answer.header("grpc-status"), UNAUTHENTICATED, "{method}");
    }
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let answer = http2_without_end(server.grpc_address(), &path, &[("content-type", "application/grpc")]);
        assert_eq!(answer.header("grpc-status"), UNAUTHENTICATED, "{version}");
    }
}

/// A connection that the system takes little from unless somebody reads.
fn connect_deaf(address: SocketAddr) -> TcpStream {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a socket option");
        socket.connect(address).await.expect("a connection").into_std().expect("a socket")
    });
    stream.set_nonblocking(false).expect("a socket option");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a socket option");
    stream
}

/// Has some strangers ask over and over and read nothing, until all are cut off.
fn ask_unread(strangers: u64, address: SocketAddr, asked: &(impl Fn(u32) -> Vec<u8> + Sync)) {
    thread::scope(|scope| {
        for _ in 0..strangers {
            scope.spawn(|| {
                let mut stream = connect_deaf(address);
                let end = (0..).find_map(|number| stream.write_all(&asked(number)).err()).expect("an end");
                assert_ne!(end.kind(), std::io::ErrorKind::WouldBlock, "the server keeps it");
            });
        }
    });
}

/// What the server needs at most for each of many who read nothing.
fn unread(server: &TestServer, address: SocketAddr, asked: impl Fn(u32) -> Vec<u8> + Sync) -> u64 {
    const CONNECTIONS: u64 = 24;
    // Code that runs for the first time takes memory too, and is not what is asked here.
    ask_unread(4, address, &asked);
    let before = server.resident_bytes();
    let mut most = before;
    thread::scope(|scope| {
        let asking = scope.spawn(|| ask_unread(CONNECTIONS, address, &asked));
        // The system's own note of the most has pages of the program in it, which come and go.
        while !asking.is_finished() {
            most = most.max(server.resident_bytes());
            thread::sleep(Duration::from_millis(10));
        }
    });
    (most - before) / CONNECTIONS
}

/// Each needs up to 200 KB on a busy machine. With the buffers of a client that is known it would be 600 KB and more.
const HELD_BYTES: u64 = 400 * 1024;

/// The same by gRPC, where 200 calls of some 6 KB may come at once before the first is refused. Reflection took 60 KB for each
/// of them.
const HELD_BY_CALLS: u64 = 4 * 1024 * 1024;

#[test]
fn replies_that_strangers_do_not_read_are_not_kept() {
    let server = start(&["--timeout", "1"]);
    let held = unread(&server, server.address(), |_| b"x\r\n".repeat(1000));
    assert!(held < HELD_BYTES, "{held} bytes");
}

#[test]
fn pages_that_strangers_do_not_read_are_not_kept() {
    let server = start(&["--timeout", "1"]);
    let paths = ["/", "/v1/openapi.json", "/metrics"];
    let ask = |path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let asked = paths.map(ask).concat().into_bytes().repeat(10);
    let held = unread(&server, server.http_address(), |_| asked.clone());
    assert!(held < HELD_BYTES, "{held} bytes");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The beginning of a connection whose other side may send as much as it likes.
fn handshake() -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    let most = (i32::MAX as u32).to_be_bytes();
    let settings = frame(4, 0, 0, &[&INITIAL_WINDOW_SIZE[..], &most].concat());
    let window = frame(8, 0, 0, &(i32::MAX as u32 - 0xffff).to_be_bytes());
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &window].concat()
}

/// A call of gRPC with one message.
fn call(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    // POST by http, then names from the static table with their values: path, authority, content type.
    let head = [
        &[0x83, 0x86, 4][..],
        &text(path),
        &[1],
        &text("localhost"),
        &[0x0f, 0x10],
        &text("application/grpc"),
    ];
    let message = [&[0, 0, 0, 0, message.len() as u8], message].concat();
    [frame(1, 4, stream, &head.concat()), frame(0, 1, stream, &message)].concat()
}

#[test]
fn calls_that_strangers_do_not_read_are_not_kept() {
    let symbol = b"\x22\x1cmoonshard.gateway.v1.Gateway";
    for (path, message) in [
        ("/moonshard.gateway.v1.Gateway/Execute", &b""[..]),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", symbol),
        ("/grpc.health.v1.Health/Check", b""),
        ("/grpc.health.v1.Health/Watch", b""),
    ] {
        let asked = |number| match number {
            0 => handshake(),
            number => call(2 * number - 1, path, message),
        };
        let server = start(&["--timeout", "1"]);
        let held = unread(&server, server.grpc_address(), asked);
        assert!(held < HELD_BY_CALLS, "{path}: {held} bytes");
    }
}

#[test]
fn who_does_not_begin_is_not_waited_for() {
    let authority = Authority::new();
    let flags = authority.flags("server", &["localhost"]);
    let sealed: Vec<&str> = flags.iter().map(String::as_str).chain(["--tls-auth-clients", "no"]).collect();
    let sealed = [LISTENERS, &sealed, &["--timeout", "1"]].concat();
    // The head of a record with a greeting of 512 bytes, most of which never comes.
    const HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    let server = TestServer::start(&sealed);
    for address in [server.address(), server.http_address(), server.grpc_address()] {
        let mut stream = connect(address);
        stream.write_all(HELLO).expect("it is taken");
        assert!(reported(stream).len() < 64, "a farewell, if anything");
    }
    let server = start(&["--timeout", "1"]);
    for begun in ["", "PRI * HT", "GET /v1", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = connect(server.grpc_address());
        stream.write_all(begun.as_bytes()).expect("it is taken");
        let reported = reported(stream);
        assert!(reported.len() < 256, "{reported}");
    }
}

/// Whether the other side has ended it already.
fn is_over(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket option");
    let mut stream = stream;
    // What a server of HTTP/2 says first is of no interest.
    let mut some = [0; 1024];
    loop {
        match stream.read(&mut some) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn strangers_leave_room_on_store_nodes() {
    let store = TestServer::store(&[]);
    let gateway = TestServer::gateway(&[store.address()], &[]);
    let mut client = gateway.client();
    wait_until("it is reached", || client.run("DBSIZE") == Value::Integer(0));
    let strangers: Vec<TcpStream> = (0..600).map(|_| connect(store.address())).collect();
    wait_until("there is no room for some", || strangers.iter().any(is_over));
    assert!(!strangers.iter().all(is_over), "and for others there is");
    assert_eq!(notation::reply(&client.run("SET k v")), "+OK", "who is known stays");
    drop(strangers);
    let late = TestServer::gateway(&[store.address()], &[]);
    let mut client = late.client();
    wait_until("others find room again", || notation::reply(&client.run("GET k")) == "\"v\"");
}

#[test]
fn store_nodes_do_not_listen_long_to_strangers() {
    let store = TestServer::store(&[]);
    let mut stream = connect(store.address());
    stream.set_write_timeout(Some(TIMEOUT)).expect("a socket option");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it is taken");
    // Frames of a kind that nobody knows, which are to be ignored.
    let mut frame = vec![0, 0x40, 0, 0xee, 0, 0, 0, 0, 0];
    frame.resize(frame.len() + 0x4000, 0);
    let taken = (0..1000).take_while(|_| stream.write_all(&frame).is_ok()).count();
    assert!(taken < 1000, "16 MB of nothing");
}
