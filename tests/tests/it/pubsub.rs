//! Channels: what conversations cannot show, as it takes time, bulk or several gateways.

use std::io::Read;

use store_engine::Protocol;
use tests::cluster::TestCluster;
use tests::{Client, Oracle, TestServer, Value, notation, wait_until};

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn hear(client: &mut Client) -> String {
    notation::reply(&client.read())
}

#[test]
fn whoever_hears_itself_does_so_before_the_reply() {
    let server = TestServer::start(&[]);
    let oracle = Oracle::start();
    for address in [Some(server.address()), oracle.as_ref().map(Oracle::address)].into_iter().flatten() {
        let mut client = Client::connect(address, Protocol::Resp3);
        assert_eq!(say(&mut client, "SUBSCRIBE ch"), ">[\"subscribe\", \"ch\", 1]");
        assert_eq!(say(&mut client, "PUBLISH ch x"), ">[\"message\", \"ch\", \"x\"]");
        assert_eq!(hear(&mut client), "1");
    }
}

#[test]
fn a_client_that_waits_for_a_list_hears_meanwhile() {
    let server = TestServer::start(&[]);
    let (mut waits, mut other) = (Client::connect(server.address(), Protocol::Resp3), server.client());
    say(&mut waits, "SUBSCRIBE ch");
    waits.send(["BLPOP", "list", "0"]);
    wait_until("it is blocked", || server.info("blocked_clients") == 1);
    let line = say(&mut other, "CLIENT LIST TYPE pubsub");
    assert!(line.contains("flags=Pb") && line.contains("sub=1 psub=0 ssub=0"), "{line}");
    assert!(!say(&mut other, "CLIENT LIST TYPE normal").contains("sub=1"));
    // Large enough that it is written in parts.
    let large = "x".repeat(8 << 20);
    assert_eq!(other.call(["PUBLISH", "ch", &large]), Value::Integer(1));
    say(&mut other, "PUBLISH ch small");
    say(&mut other, "RPUSH list a");
    let mut texts: Vec<String> = (0..3).map(|_| hear(&mut waits)).collect();
    // Only messages have an order among themselves.
    texts.sort();
    let messages = [&*large, "small"].map(|text| format!(">[\"message\", \"ch\", \"{text}\"]"));
    assert!(texts == [&messages[1], &messages[0], "[\"list\", \"a\"]"], "{:.100?}", texts);
}

#[test]
fn what_is_undone_is_not_heard() {
    let server = TestServer::start(&[]);
    let (mut hears, mut other) = (server.client(), server.client());
    say(&mut hears, "SUBSCRIBE ch");
    for script in [
        "#!lua on-error=rollback\nredis.call('PUBLISH', 'ch', 'undone') error('oops')",
        "#!lua timeout=300\nredis.call('PUBLISH', 'ch', 'undone') while true do end",
        "#!lua flags=dry-run\nreturn redis.call('PUBLISH', 'ch', 'undone')",
    ] {
        other.eval(script, &[], &[]);
    }
    // An atomic script is heard when it has ended, another at once.
    other.eval("#!lua flags=disable-atomicity\nredis.call('PUBLISH', 'ch', 'kept') error('oops')", &[], &[]);
    assert_eq!(hear(&mut hears), "[\"message\", \"ch\", \"kept\"]");

    let script = "for i = 1, 100 do redis.call('PUBLISH', 'ch', ARGV[1]) end";
    let refused = notation::reply(&other.eval(script, &[], &[&"x".repeat(1 << 20)]));
    assert!(refused.starts_with("-ERR a script or transaction can publish at most 64mb"), "{refused}");
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_holds_nobody_up() {
    let server = TestServer::start(&["--client-output-buffer-limit", "pubsub 16mb 1mb 1"]);
    let mut other = server.client();
    let text = "x".repeat(256 << 10);
    for (most, what) in [(120, "hard"), (60, "soft")] {
        let (mut slow, mut quick) = (server.client(), server.client());
        say(&mut slow, "SUBSCRIBE ch");
        say(&mut quick, "SUBSCRIBE ch");
        let before = server.info("client_output_buffer_limit_disconnections");
        for _ in 0..most {
            other.call(["PUBLISH", "ch", &text]);
            assert_eq!(hear(&mut quick).len(), text.len() + "[\"message\", \"ch\", \"\"]".len(), "{what}");
        }
        wait_until(what, || server.info("client_output_buffer_limit_disconnections") == before + 1);
        wait_until("its subscription has ended", || say(&mut other, "PUBSUB NUMSUB ch") == "[\"ch\", 1]");
        // What was already on its way still arrives.
        let mut arrived = 0;
        let mut bytes = vec![0; 1 << 20];
        let mut stream = slow.stream();
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            arrived += read;
        }
        assert!(arrived < most * text.len(), "{arrived} bytes, {what}");
    }
}

#[test]
fn many_hear_all_in_order() {
    let server = TestServer::start(&[]);
    let mut clients: Vec<Client> = (0..50)
        .map(|number| {
            let protocol = if number % 2 == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
            Client::connect(server.address(), protocol)
        })
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        say(client, if number % 3 == 0 { "PSUBSCRIBE c*" } else { "SUBSCRIBE ch" });
    }
    let mut other = server.client();
    for text in 0..100 {
        other.send(["PUBLISH", "ch", &text.to_string()]);
    }
    for client in &mut clients {
        for text in 0..100 {
            let heard = hear(client);
            assert!(heard.ends_with(&format!("\"ch\", \"{text}\"]")), "{heard}");
        }
    }
    assert_eq!(server.info("pubsub_channels"), 1);
    assert_eq!(server.info("pubsub_patterns"), 1);
    drop(clients);
    wait_until("nobody listens", || server.info("pubsub_channels") + server.info("pubsub_patterns") == 0);
}

/// Publishes until so many are counted who hear it, and returns how often that was: a gateway that does not say within
/// half a second how many listen there is left out of the sum, though they hear it.
fn counted(count: i64, mut publish: impl FnMut() -> Value) -> usize {
    let mut times = 0;
    wait_until("all are counted", || {
        times += 1;
        publish() == Value::Integer(count)
    });
    times
}

#[test]
fn gateways_are_one_server_to_those_who_listen() {
    let cluster = TestCluster::start(2, 3, None);
    let mut clients = [0, 1, 2].map(|gateway| cluster.client(gateway));
    say(&mut clients[0], "SUBSCRIBE ch");
    say(&mut clients[1], "PSUBSCRIBE c*");
    say(&mut clients[2], "SSUBSCRIBE ch");
    let mut other = cluster.client(2);
    let mut numbers = Vec::new();
    for number in 0..20 {
        let times = counted(2, || other.run(&format!("PUBLISH ch {number}")));
        numbers.extend(std::iter::repeat_n(number, times));
    }
    let shard = counted(1, || other.run("SPUBLISH ch shard"));
    for number in numbers {
        assert_eq!(hear(&mut clients[0]), format!("[\"message\", \"ch\", \"{number}\"]"));
        assert_eq!(hear(&mut clients[1]), format!("[\"pmessage\", \"c*\", \"ch\", \"{number}\"]"));
    }
    for _ in 0..shard {
        assert_eq!(hear(&mut clients[2]), "[\"smessage\", \"ch\", \"shard\"]");
    }

    say(&mut cluster.client(1), "PSUBSCRIBE c*");
    say(&mut clients[0], "SUBSCRIBE other");
    for (line, known) in [
        ("PUBSUB CHANNELS", "[\"ch\", \"other\"]"),
        ("PUBSUB NUMSUB ch other none", "[\"ch\", 1, \"other\", 1, \"none\", 0]"),
        ("PUBSUB SHARDNUMSUB ch", "[\"ch\", 1]"),
        ("PUBSUB NUMPAT", "1"),
    ] {
        wait_until(line, || say(&mut other, line) == known);
    }

    // Of scripts and transactions, on whatever node they write.
    for node in 0..2 {
        let key = cluster.key(node, "key");
        let atomic = "redis.call('SET', KEYS[1], 1) return redis.call('PUBLISH', 'other', KEYS[1])";
        let unlocked = format!("#!lua flags=disable-atomicity\n{atomic}");
        for script in [atomic, &unlocked] {
            for _ in 0..counted(1, || other.eval(script, &[&key], &[])) {
                assert!(hear(&mut clients[0]).ends_with(&format!("\"{key}\"]")));
            }
        }
        for line in ["MULTI", &format!("SET {key} 1"), "PUBLISH other x", "EXEC"] {
            say(&mut other, line);
        }
        assert_eq!(hear(&mut clients[0]), "[\"message\", \"other\", \"x\"]");
    }
}
