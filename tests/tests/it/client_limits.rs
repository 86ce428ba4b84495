//! What a client may do to the server by sending too much, reading too little, or talking nonsense.

use std::io::{Read, Write};
use std::net::Shutdown;

use tests::client::encode;
use tests::temp_dir::TempDir;
use tests::{Client, Oracle, TestServer, notation, wait_until};

/// All replies until the server closes the connection.
fn until_closed(client: &mut Client) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(reply) = client.try_read().expect("replies") {
        lines.push(notation::reply(&reply));
    }
    lines
}

#[test]
fn too_much_is_refused_in_the_words_of_redis() {
    let server = TestServer::start(&["--proto-max-bulk-len", "1mb", "--client-query-buffer-limit", "2mb"]);
    let announced = |bytes: &[u8]| {
        let mut client = server.client();
        client.send_raw(bytes).expect("the server accepts requests");
        until_closed(&mut client).join(", ")
    };
    // Refused when they are announced: nobody has to send them.
    insta::assert_snapshot!(
        [
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n".as_slice(),
            b"*2147483648\r\n",
            b"*99999999999999999999\r\n",
            b"*2\r\n$4\r\nECHO\r\n$-2\r\n",
            b"PING\r\n*two\r\n",
        ]
        .map(announced)
        .join("\n"),
        @r"
    -ERR Protocol error: invalid bulk length
    -ERR Protocol error: invalid multibulk length
    -ERR Protocol error: invalid multibulk length
    -ERR Protocol error: invalid bulk length
    +PONG, -ERR Protocol error: invalid multibulk length
    "
    );
    // Each argument is short enough, but not all together.
    let mut client = server.client();
    let many = encode(std::iter::once("DEL".to_owned()).chain((0..4).map(|_| "k".repeat(1 << 20))));
    // The server may close before it has taken everything.
    let _ = client.send_raw(&many);
    let reported = until_closed(&mut client).join(", ");
    assert!(["", "-ERR Protocol error: too big request"].contains(&&*reported), "{reported}");
    // An endless line.
    let mut client = server.client();
    let _ = client.send_raw(&[b'x'; 100 * 1024]);
    let reported = until_closed(&mut client).join(", ");
    assert!(["", "-ERR Protocol error: too big inline request"].contains(&&*reported), "{reported}");
    // All of which concerns nobody else.
    let mut client = server.client();
    assert_eq!(notation::reply(&client.call(["SET".as_bytes(), b"k", &[b'v'; 1 << 20]])), "+OK");
    assert_eq!(client.run("GET k").text().map(<[u8]>::len), Some(1 << 20));
    wait_until("the others are gone", || server.info("connected_clients") == 2);
}

/// Announcing much is not having it: no memory is taken for what was never sent.
#[test]
fn announcements_cost_nothing() {
    let server = TestServer::start(&[]);
    let before = server.resident_bytes();
    let clients: Vec<Client> = (0..50)
        .map(|number| {
            let mut client = server.client();
            let start = if number % 2 == 0 {
                b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nx".as_slice()
            } else {
                b"PING\r\n*2147483647\r\n$3\r\nDEL\r\n$536870912\r\nx"
            };
            client.send_raw(start).expect("the server accepts requests");
            assert_eq!(notation::reply(&client.read()), "+PONG");
            client
        })
        .collect();
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more for {} announcements", clients.len());
}

/// Sends many requests for a large value and reads none of the replies; until the server cuts it off.
fn ignore_replies(server: &TestServer, count: usize) -> Client {
    let mut reader = server.client();
    let cut_before = server.info("client_output_buffer_limit_disconnections");
    let requests = encode(["GET", "large"]).repeat(count);
    // May be cut off while it is still sending.
    let _ = reader.send_raw(&requests);
    wait_until("the client is cut off", || {
        server.info("client_output_buffer_limit_disconnections") == cut_before + 1
    });
    reader
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    // Of one byte: a reply that does not fit into the sockets may lack any number of bytes.
    let server = TestServer::start(&["--client-output-buffer-limit", "normal 16mb 1 1"]);
    let mut other = server.client();
    for (size, count) in [(12 << 20, 20), (100 * 1024, 5000)] {
        other.call(["SET".as_bytes(), b"large", &vec![b'v'; size]]);
        let before = server.resident_bytes();
        let reader = ignore_replies(&server, count);
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 3 * size as u64 + (24 << 20), "{grown} bytes for {count} times {size}");
        // What was already on its way still arrives, then the connection ends.
        let mut stream = reader.stream();
        let mut arrived = 0;
        let mut bytes = vec![0; 1 << 20];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            arrived += read;
        }
        assert!(arrived < count * size, "all of {arrived} bytes");
        assert_eq!(notation::reply(&other.run("PING")), "+PONG");
        wait_until("the connection is gone", || server.info("connected_clients") == 2);
    }
}

#[test]
fn a_hard_limit_needs_no_soft_limit() {
    const HARD_ONLY: &str = "normal 100000 0 0";
    let oracle = Oracle::start();
    let server = TestServer::start(&["--client-output-buffer-limit", HARD_ONLY]);
    let mut clients = vec![(server.client(), server.client())];
    clients.extend(oracle.iter().map(|oracle| {
        let mut client = oracle.client();
        client.call(["CONFIG", "SET", "client-output-buffer-limit", HARD_ONLY]);
        (client, oracle.client())
    }));
    for (mut other, mut reader) in clients {
        other.call(["SET".as_bytes(), b"large", &[b'v'; 90_000]]);
        assert_eq!(notation::reply(&reader.run("PING")), "+PONG");
        let mut is_alone = || notation::reply(&other.run("INFO clients")).contains("connected_clients:1\\r");
        assert!(!is_alone());
        // Two replies exceed the limit, and all 30 MB what the sockets take. It may be cut off while it sends.
        let _ = reader.send_raw(&encode(["GET", "large"]).repeat(333));
        wait_until("the client is cut off", is_alone);
    }
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    client.call(["SET".as_bytes(), b"large", &vec![b'v'; 100 * 1024]]);
    let before = server.resident_bytes();
    let count = 3000;
    client.send_raw(&encode(["GET", "large"]).repeat(count)).expect("the server accepts requests");
    // 300 MB of replies, of which the server may only have a few at a time.
    for number in 0..count {
        assert_eq!(client.read().text().map(<[u8]>::len), Some(100 * 1024));
        if number % 100 == 0 {
            let grown = server.resident_bytes().saturating_sub(before);
            assert!(grown < 64 << 20, "{grown} bytes for replies that the client has not read");
        }
    }
    assert_eq!(notation::reply(&client.run("PING")), "+PONG");
}

#[test]
fn a_script_lets_its_keys_go_whether_or_not_its_client_reads() {
    let server = TestServer::start(&[]);
    let (stuck, mut other) = (server.client(), server.client());
    other.call(["SET".as_bytes(), b"text", &vec![b'v'; 10_000]]);
    // It outlives its first slice, so that the reply before it is written while it runs.
    let script = "redis.call('INCR', KEYS[1]) for i = 1, 1e5 do end return redis.call('KEYS', '*')";
    let pair = [encode(["GET", "text"]), encode(["EVAL", script, "1", "key"])].concat();
    let mut stream = stuck.stream().try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || {
        // Ends when the connection does.
        while stream.write_all(&pair).is_ok() {}
    });
    stuck.stream().read_exact(&mut [0; 16]).expect("the start of the reply");
    // Replies fill the sockets, and nothing more is done. Whoever asks meanwhile is answered.
    let (mut last, mut same) = (String::new(), 0);
    while same < 300 {
        let now = notation::reply(&other.run("GET key"));
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    assert_eq!(notation::reply(&other.run("DBSIZE")), "2");
    stuck.stream().shutdown(Shutdown::Both).expect("an open connection");
    sender.join().expect("no panic");
}

#[test]
fn a_client_that_does_not_read_can_be_killed() {
    let server = TestServer::start(&[]);
    let (mut stuck, mut other) = (server.client(), server.client());
    other.call(["SET".as_bytes(), b"large", &vec![b'v'; 32 << 20]]);
    let tests::Value::Integer(id) = stuck.run("CLIENT ID") else { panic!("a number") };
    stuck.send(["GET", "large"]);
    // The reply has begun to arrive; all of it fits no socket's buffer, so the server waits for its client.
    stuck.stream().read_exact(&mut [0; 16]).expect("the start of the reply");
    assert_eq!(notation::reply(&other.run(&format!("CLIENT KILL ID {id}"))), "1");
    wait_until("it is gone", || server.info("connected_clients") == 2);
}

#[test]
fn more_clients_than_allowed_are_told_so() {
    let server = TestServer::start(&["--maxclients", "3"]);
    let mut first = server.client();
    assert_eq!(notation::reply(&first.run("PING")), "+PONG");
    let others: Vec<Client> = (0..2).map(|_| server.client()).collect();
    let mut surplus = server.client();
    assert_eq!(until_closed(&mut surplus).join(", "), "-ERR max number of clients reached");
    drop(others);
    wait_until("there is room again", || {
        let mut client = server.client();
        let _ = client.send_raw(b"PING\r\n");
        client.try_read().is_ok_and(|reply| reply.is_some_and(|reply| notation::reply(&reply) == "+PONG"))
    });
    wait_until("that one is gone", || {
        notation::reply(&first.run("INFO clients")).contains("connected_clients:1")
    });
    assert!(server.info("rejected_connections") > 0);
}

/// Each connection is an open file, of which the system may not let a process have as many as it wants.
#[test]
fn connections_leave_room_for_other_files() {
    // What is only usual is raised.
    let server = TestServer::start_under("-Sn 120", &[]);
    let mut clients: Vec<Client> = (0..200).map(|_| server.client()).collect();
    assert!(clients.iter_mut().all(|client| notation::reply(&client.run("PING")) == "+PONG"));
    assert!(!server.log().contains("ulimit"), "{}", server.log());

    let dir = TempDir::new("files");
    let server = TestServer::start_under("-n 260", &["--data-dir", dir.text(), "--durability", "sync"]);
    let reported = "maxclients: reduced from 10000 to 60 connections, because the limit of open files is 260; \
                raise `ulimit -n`";
    wait_until("it is told", || server.log().contains(reported));
    assert_eq!(server.info("maxclients"), 60);
    assert_eq!(notation::reply(&server.client().run("CONFIG GET maxclients")), r#"["maxclients", "60"]"#);
    wait_until("the limits are logged", || server.log().contains("no limit of memory, 60 clients; "));
    assert!(server.log().contains(&format!("warning: {reported}")), "{}", server.log());
    let mut clients: Vec<Client> = (0..100).map(|_| server.client()).collect();
    let mut reply = |client: &mut Client| {
        let _ = client.send_raw(&encode(["SET", "key", "value"]));
        client.try_read().ok().flatten().map_or_else(|| "closed".to_owned(), |reply| notation::reply(&reply))
    };
    let replies: Vec<String> = clients.iter_mut().map(&mut reply).collect();
    // Connections that are not needed any more may still be counted.
    assert!(replies[..50].iter().all(|reply| reply == "+OK"), "{replies:?}");
    assert!(replies.iter().filter(|reply| *reply == "+OK").count() <= 60, "{replies:?}");
    // A request that comes after the refusal may take it away.
    let known = ["+OK", "-ERR max number of clients reached", "closed"];
    assert!(replies.iter().all(|reply| known.contains(&&**reply)), "{replies:?}");
    assert_eq!(notation::reply(&clients[0].run("CONFIG SET maxclients 50")), "+OK");
    assert_eq!(notation::reply(&clients[0].run("CONFIG SET maxclients 70")), "+OK");
    wait_until("the reduction is logged again", || {
        server.log().contains("reduced from 70 to 60 connections")
    });
}

/// A web page can have a browser send a form to any port: its lines must not become commands.
#[test]
fn requests_of_web_pages_end_the_connection() {
    let server = TestServer::start(&[]);
    let attacks: [&[u8]; 4] = [
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\nEVAL \"redis.call('SET', 'k', 'v')\" 0\r\n",
        b"host: localhost\r\nSET k v\r\n",
        b"PING\r\npost /\r\nSET k v\r\n",
        b"*1\r\n$5\r\nHOST:\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
    ];
    for attack in attacks {
        let mut client = server.client();
        // The server may close before it has taken everything.
        let _ = client.send_raw(attack);
        let reported = until_closed(&mut client).join(", ");
        assert!(["", "+PONG"].contains(&&*reported), "{reported}");
    }
    assert_eq!(notation::reply(&server.client().run("EXISTS k")), "0");
    wait_until("it is logged", || server.log().contains("sent POST or Host: as a command"));
    // Elsewhere the words are as good as any.
    assert_eq!(notation::reply(&server.client().run("SET post host:")), "+OK");
}

/// What a call would answer is limited while it is made, not when it is there.
#[test]
fn replies_beyond_the_limit_are_never_built() {
    let server = TestServer::start(&["--client-output-buffer-limit", "normal 16mb 16mb 60"]);
    let mut client = server.client();
    client.call(["SET".as_bytes(), b"large", &vec![b'v'; 1 << 20]]);
    for (kind, add) in [("set", "SADD"), ("hash", "HSET"), ("zset", "ZADD")] {
        let call: Vec<&[u8]> = match add {
            "SADD" => vec![add.as_bytes(), kind.as_bytes()],
            "HSET" => vec![add.as_bytes(), kind.as_bytes(), b"field"],
            _ => vec![add.as_bytes(), kind.as_bytes(), b"1"],
        };
        let element = vec![b'e'; 1 << 20];
        assert_eq!(notation::reply(&client.call(call.into_iter().chain([&*element]))), "1");
    }
    let before = server.resident_bytes();
    let many = format!("MGET{}", " large".repeat(1000));
    for call in
        ["SRANDMEMBER set -100000", "HRANDFIELD hash -100000 WITHVALUES", "ZRANDMEMBER zset -100000", &many]
    {
        let reported = notation::reply(&client.run(call));
        assert!(reported.starts_with("-REPLYLIMIT "), "{call:.30}: {reported:.200}");
        assert_eq!(notation::reply(&client.run("PING")), "+PONG");
    }
    // What was taken out is still there.
    for call in ["SUNIONSTORE many set", "SRANDMEMBER many 1"] {
        client.run(call);
    }
    assert_eq!(notation::reply(&client.run("SCARD set")), "1");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes more");
    // In a script, the limit of its memory ends it.
    let reported =
        notation::reply(&client.run("EVAL \"return redis.call('SRANDMEMBER', 'set', -100000)\" 1 set"));
    assert!(reported.starts_with("-SCRIPTLIMIT ") || reported.contains("memory"), "{reported:.200}");
}
