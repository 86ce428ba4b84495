//! What clients may make the server hold, each alone and all together.

use std::io::Write;
use std::net::TcpStream;

use tests::client::encode;
use tests::{Client, Protocol, TestServer, Value, notation, wait_until};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

/// A number of a client's line in CLIENT LIST.
fn shown(client: &mut Client, id: i64, field: &str) -> i64 {
    let list = say(client, &format!("CLIENT LIST ID {id}"));
    let start = list.find(&format!(" {field}=")).expect("the field") + field.len() + 2;
    let digits: String =
        list[start..].chars().take_while(|char| *char == '-' || char.is_ascii_digit()).collect();
    digits.parse().expect("a number")
}

fn id_of(client: &mut Client) -> i64 {
    let Value::Integer(id) = client.run("CLIENT ID") else { panic!("a number") };
    id
}

/// Whether the connection still answers.
fn lives(client: &mut Client) -> bool {
    client.send_raw(b"PING\r\n").is_ok()
        && client.try_read().is_ok_and(|reply| reply.is_some_and(|reply| notation::reply(&reply) == "+PONG"))
}

const REFUSED: &str = "-ERR a connection may hold 1048576 bytes of queued commands, watched keys, subscriptions and \
                       prefixes of CLIENT TRACKING: see client-query-buffer-limit";

#[test]
fn a_transaction_that_is_too_large_is_aborted_and_freed() {
    let server = TestServer::start(&["--client-query-buffer-limit", "1mb"]);
    let (mut client, mut other) = (server.client(), server.client());
    let id = id_of(&mut client);
    let value = "v".repeat(100_000);
    assert_eq!(say(&mut client, "MULTI"), "+OK");
    let replies: Vec<String> = (0..12).map(|_| notation::reply(&client.call(["SET", "k", &value]))).collect();
    assert!(replies[..10].iter().all(|reply| reply == "+QUEUED"), "{:?}", &replies[..10]);
    assert_eq!(replies[10], REFUSED);
    // As in Redis what EXEC refuses anyway is not kept.
    assert_eq!(replies[11], "+QUEUED");
    assert_eq!(shown(&mut other, id, "multi-mem"), 0);
    assert_eq!(say(&mut client, "EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(say(&mut client, "EXISTS k"), "0");
    // One that is large, but not too large.
    assert_eq!(say(&mut client, "MULTI"), "+OK");
    (0..10).for_each(|_| assert_eq!(notation::reply(&client.call(["SET", "k", &value])), "+QUEUED"));
    assert!(shown(&mut other, id, "multi-mem") > 1_000_000);
    assert!(say(&mut client, "EXEC").starts_with("[+OK"));
    assert_eq!(shown(&mut other, id, "multi-mem"), 0);
}

#[test]
fn watched_keys_are_bounded_for_each_client() {
    let server = TestServer::start(&["--client-query-buffer-limit", "1mb"]);
    let (mut client, mut other) = (server.client(), server.client());
    let id = id_of(&mut client);
    let before = shown(&mut other, id, "tot-mem");
    assert_eq!(say(&mut client, "WATCH a"), "+OK");
    let keys = |first: usize| (first..first + 2).map(|number| format!("{number}{}", "k".repeat(200_000)));
    let watch = |client: &mut Client, first| {
        notation::reply(&client.call(["WATCH".to_owned()].into_iter().chain(keys(first))))
    };
    assert_eq!(watch(&mut client, 0), "+OK");
    assert_eq!(watch(&mut client, 2), REFUSED);
    // Nothing of it is watched, and what was watched before still is.
    assert!((800_000..900_000).contains(&(shown(&mut other, id, "tot-mem") - before)));
    assert!((800_000..900_000).contains(&shown(&mut other, id, "multi-mem")));
    assert_eq!(say(&mut other, "SET a 1"), "+OK");
    assert_eq!(say(&mut client, "MULTI"), "+OK");
    assert_eq!(say(&mut client, "EXEC"), "nil[]");
    assert_eq!(shown(&mut other, id, "multi-mem"), 0);
    assert_eq!(watch(&mut client, 2), "+OK");
    assert_eq!(say(&mut client, "UNWATCH"), "+OK");
    assert_eq!(shown(&mut other, id, "multi-mem"), 0);
}

#[test]
fn subscriptions_are_bounded_for_each_client() {
    let server = TestServer::start(&["--client-query-buffer-limit", "1mb"]);
    let (mut client, mut other) = (Client::connect(server.address(), Protocol::Resp3), server.client());
    let id = id_of(&mut client);
    let before = shown(&mut other, id, "tot-mem");
    let name = |number: usize| format!("{number}{}", "c".repeat(200_000));
    for (number, word) in ["SUBSCRIBE", "PSUBSCRIBE"].iter().enumerate() {
        client.send([*word, &name(number)]);
        assert!(matches!(client.read(), Value::Push(_)));
    }
    for word in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
        assert_eq!(notation::reply(&client.call([word, "short", &name(2)])), REFUSED, "{word}");
    }
    assert!((800_000..900_000).contains(&(shown(&mut other, id, "tot-mem") - before)));
    assert_eq!(say(&mut other, "PUBSUB CHANNELS short"), "[]");
    // One that is there no more makes room for another one.
    client.send(["UNSUBSCRIBE"]);
    client.read();
    client.send(["SSUBSCRIBE", &name(2)]);
    assert!(matches!(client.read(), Value::Push(_)));
    client.send(["PUNSUBSCRIBE"]);
    client.read();
    client.send(["SUNSUBSCRIBE"]);
    client.read();
    // A reply is in the buffer while the line is made.
    assert!(shown(&mut other, id, "tot-mem") - before < 40_000);
}

#[test]
fn prefixes_of_tracking_are_bounded_for_each_client() {
    let server = TestServer::start(&["--client-query-buffer-limit", "1mb"]);
    let (mut client, mut other) = (Client::connect(server.address(), Protocol::Resp3), server.client());
    let id = id_of(&mut client);
    let before = shown(&mut other, id, "tot-mem");
    let mut track = |prefixes: &mut dyn Iterator<Item = String>| {
        let prefixes = prefixes.flat_map(|prefix| ["PREFIX".to_owned(), prefix]);
        let call = ["CLIENT", "TRACKING", "ON", "BCAST"].map(str::to_owned);
        notation::reply(&client.call(call.into_iter().chain(prefixes)))
    };
    let long = |number: usize| format!("{number}{}", "p".repeat(200_000));
    assert_eq!(track(&mut [long(0)].into_iter()), "+OK");
    assert_eq!(track(&mut [long(1), long(2)].into_iter()), REFUSED);
    let many = track(&mut (0..20_000).map(|number| format!("{number:05}")));
    assert_eq!(many, "-ERR a connection may follow 10000 prefixes at the same time");
    assert!((600_000..650_000).contains(&(shown(&mut other, id, "tot-mem") - before)));
    assert_eq!(say(&mut client, "CLIENT TRACKING OFF"), "+OK");
    assert!(shown(&mut other, id, "tot-mem") - before < 40_000);
}

#[test]
fn names_are_short() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    let (fine, long) = ("n".repeat(1024), "n".repeat(1025));
    for (call, what) in [
        (vec!["CLIENT", "SETNAME"], "Client names"),
        (vec!["HELLO", "2", "SETNAME"], "Client names"),
        (vec!["CLIENT", "SETINFO", "LIB-NAME"], "LIB-NAME"),
        (vec!["CLIENT", "SETINFO", "lib-ver"], "lib-ver"),
    ] {
        let reply = notation::reply(&client.call(call.iter().copied().chain([&*long])));
        assert_eq!(reply, format!("-ERR {what} cannot be longer than 1024 bytes."));
        let reply = notation::reply(&client.call(call.into_iter().chain([&*fine])));
        assert!(!reply.starts_with('-'), "{reply}");
    }
}

/// ACL LOG holds the start of a key, a channel or a user's name.
#[test]
fn refusals_are_logged_in_short() {
    let server = TestServer::start(&[]);
    let (mut client, mut admin) = (server.client(), server.client());
    let long = "k".repeat(1 << 20);
    assert_eq!(say(&mut admin, "ACL SETUSER u on nopass +@all"), "+OK");
    assert_eq!(say(&mut client, "AUTH u any"), "+OK");
    assert!(notation::reply(&client.call(["GET", &long])).starts_with("-NOPERM "));
    assert!(notation::reply(&client.call(["PUBLISH", &long, "x"])).starts_with("-NOPERM "));
    assert!(notation::reply(&client.call(["AUTH", &long, "x"])).starts_with("-WRONGPASS "));
    let log = say(&mut admin, "ACL LOG");
    assert!(log.len() < 10_000, "{} bytes", log.len());
    assert_eq!(log.matches("k... (1047552 more bytes)").count(), 3, "{log}");
}

#[test]
fn the_limit_of_all_clients_is_set_in_the_words_of_redis() {
    let server = TestServer::start(&["--maxmemory-clients", "10%"]);
    let mut client = server.client();
    let set =
        |client: &mut Client, value: &str| say(client, &format!("CONFIG SET maxmemory-clients {value}"));
    let get = |client: &mut Client| say(client, "CONFIG GET maxmemory-clients");
    assert_eq!(get(&mut client), "[\"maxmemory-clients\", \"10%\"]");
    for (value, shown) in [("0%", "0"), ("20kb", "20480"), ("100%", "100%"), ("3%", "3%")] {
        assert_eq!(set(&mut client, value), "+OK");
        assert_eq!(get(&mut client), format!("[\"maxmemory-clients\", \"{shown}\"]"));
    }
    let failed = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - ";
    for value in ["05%", "-5%", "5.5%", "1mb%", "%", "x", "1x"] {
        assert_eq!(set(&mut client, value), format!("{failed}argument must be a memory or percent value"));
    }
    let reply = set(&mut client, "101%");
    assert_eq!(reply, format!("{failed}percentage argument must be less or equal to 100"));
    assert_eq!(get(&mut client), "[\"maxmemory-clients\", \"3%\"]");
}

#[test]
fn clients_that_hold_most_are_disconnected_first() {
    let server = TestServer::start(&["--maxmemory-clients", "20mb"]);
    let (mut small, mut admin) = (server.client(), server.client());
    let value = vec![b'v'; 1 << 20];
    let begin = |count: usize| {
        let mut client = server.client();
        assert_eq!(say(&mut client, "MULTI"), "+OK");
        let set = ["SET".as_bytes(), b"k", &value];
        (0..count).for_each(|_| assert_eq!(notation::reply(&client.call(set)), "+QUEUED"));
        client
    };
    let (mut some, mut more) = (begin(6), begin(10));
    assert!((16 << 20..17 << 20).contains(&server.info("mem_clients_normal")));
    let mut last = begin(1);
    let mut watching = server.client();
    assert_eq!(notation::reply(&watching.call(["WATCH".as_bytes(), &value, &[b'w'; 1 << 20]])), "+OK");
    wait_until("one is disconnected", || server.info("evicted_clients") == 1);
    wait_until("it holds nothing any more", || server.info("mem_clients_normal") < 12 << 20);
    assert!(more.is_closed());
    wait_until("the log has it", || server.log().contains("maxmemory-clients: disconnected id="));
    assert!(say(&mut some, "EXEC").starts_with("[+OK") && say(&mut last, "EXEC") == "[+OK]");
    assert!(lives(&mut small) && lives(&mut watching) && lives(&mut admin));
    // Percent of maxmemory, which may change.
    assert_eq!(say(&mut admin, "CONFIG SET maxmemory-clients 50% maxmemory 8mb"), "+OK");
    wait_until("one more is disconnected", || server.info("evicted_clients") == 2);
    assert!(watching.is_closed() && lives(&mut small));
    assert_eq!(say(&mut admin, "CONFIG RESETSTAT"), "+OK");
    assert_eq!(server.info("evicted_clients"), 0);
}

#[test]
fn clients_that_are_not_to_be_disconnected_are_not() {
    let server = TestServer::start(&["--maxmemory-clients", "1mb"]);
    let (mut idle, mut stays) = (server.client(), server.client());
    assert!(lives(&mut idle));
    assert_eq!(say(&mut stays, "CLIENT NO-EVICT on"), "+OK");
    assert_eq!(say(&mut stays, "MULTI"), "+OK");
    let value = vec![b'v'; 1 << 20];
    for _ in 0..4 {
        assert_eq!(notation::reply(&stays.call(["SET".as_bytes(), b"k", &value])), "+QUEUED");
    }
    // Those that hold something are, though it does not help.
    let mut goes = server.client();
    let _ = goes.send_raw(&encode(["WATCH".as_bytes(), &vec![b'w'; 200 << 10]]));
    wait_until("it is disconnected", || server.info("evicted_clients") > 0);
    assert!(say(&mut stays, "EXEC").starts_with("[+OK"));
    assert!(lives(&mut idle), "an idle client holds nothing that could be freed");
}

/// Each of these holds less than its own limit allows.
#[test]
fn what_is_not_read_is_bounded_in_sum() {
    let flags = ["--maxmemory-clients", "32mb", "--client-output-buffer-limit", "normal 0 0 0 pubsub 0 0 0"];
    let server = TestServer::start(&flags);
    let (mut admin, value) = (server.client(), vec![b'v'; 8 << 20]);
    admin.call(["SET".as_bytes(), b"large", &value]);
    let resident = server.resident_bytes();
    // Replies.
    let mut readers: Vec<Client> = (0..20).map(|_| server.client()).collect();
    readers.iter_mut().for_each(|reader| reader.send(["GET", "large"]));
    wait_until("some are disconnected", || server.info("evicted_clients") >= 16);
    wait_until("the rest fits", || server.info("mem_clients_normal") < 32 << 20);
    assert!(lives(&mut admin));
    drop(readers);
    // Messages.
    let before = server.info("evicted_clients");
    let mut hearers: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for (number, hearer) in hearers.iter_mut().enumerate() {
        assert!(say(hearer, &format!("SUBSCRIBE c{number}")).starts_with("[\"subscribe\""));
    }
    for number in 0..10 {
        // What the socket takes is held no more.
        for _ in 0..2 {
            assert_eq!(
                notation::reply(&admin.call(["PUBLISH".as_bytes(), format!("c{number}").as_bytes(), &value])),
                "1"
            );
        }
    }
    wait_until("some are disconnected", || server.info("evicted_clients") >= before + 6);
    wait_until("the rest fits", || server.info("mem_clients_normal") < 32 << 20);
    drop(hearers);
    // Requests that are not complete.
    let before = server.info("evicted_clients");
    let mut writers: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for writer in &mut writers {
        // May be disconnected while it is sending.
        let _ = writer.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$33554432\r\n");
        let _ = writer.send_raw(&value);
    }
    wait_until("some are disconnected", || server.info("evicted_clients") >= before + 5);
    wait_until("the rest fits", || server.info("mem_clients_normal") < 32 << 20);
    assert!(lives(&mut admin));
    let grown = server.resident_bytes().saturating_sub(resident);
    assert!(grown < 200 << 20, "{grown} bytes more");
}

/// Bodies of HTTP are input as any other.
#[test]
fn bodies_of_http_are_bounded_in_sum() {
    let server = TestServer::start(&["--maxmemory-clients", "32mb", "--http", "127.0.0.1:0"]);
    let head = b"POST /v1/command HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: 16777216\r\n\r\n";
    let body = vec![b' '; 8 << 20];
    let connections: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut stream =
                TcpStream::connect(server.http_address()).expect("the server accepts connections");
            // May be disconnected while it is sending.
            let _ = stream.write_all(head).and_then(|()| stream.write_all(&body));
            stream
        })
        .collect();
    wait_until("some are disconnected", || server.info("evicted_clients") >= 6);
    wait_until("the rest fits", || server.info("mem_clients_normal") < 32 << 20);
    assert_eq!(server.http().get("/healthz").status, 200);
    drop(connections);
    wait_until("they are gone", || server.info("mem_clients_normal") < 1 << 20);
}
