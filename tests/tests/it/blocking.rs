//! Clients that wait for a list or a sorted set: whom a change serves, and what ends the waiting otherwise. What
//! Redis can be asked too stands in `cases/blocking.txt`.

use std::collections::BTreeSet;

use tests::client::encode;
use tests::{Client, TestServer, Topology, Value, notation, over_nodes, wait_until};

/// More threads than cores and many shards, whatever the machine is.
const FLAGS: &[&str] = &["--threads", "3", "--shards", "16"];

/// Pushes, and then goes on until it is stopped.
const PUSHES_FOR_EVER: &str = "local _ = redis.call('RPUSH', KEYS[1], 'never')
    redis.log(redis.LOG_WARNING, 'it has the key') while true do end";

fn wait_for_blocked(server: &TestServer, count: u64) {
    wait_until("so many clients are blocked", || server.info("blocked_clients") == count);
}

/// A client that has made this call and is blocked by it, as the `count`th one.
fn blocked(server: &TestServer, line: &str, count: u64) -> Client {
    let mut client = server.client();
    client.send(notation::arguments(line).expect("balanced quotes"));
    wait_for_blocked(server, count);
    client
}

fn id_of(client: &mut Client) -> i64 {
    let Value::Integer(id) = client.run("CLIENT ID") else { panic!("a number") };
    id
}

fn shown(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn a_thousand_waiters_are_served_once_each_and_in_order(on: Topology) {
    let server = on.start(FLAGS);
    let mut waiters: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(["BLPOP", "queue", "0"]);
        // In tens, whose own order nobody knows.
        if number % 10 == 9 {
            wait_for_blocked(&server, number as u64 + 1);
        }
    }
    let pushes: Vec<Vec<Vec<u8>>> = (0..1000)
        .map(|number: usize| vec![b"RPUSH".to_vec(), b"queue".to_vec(), number.to_string().into_bytes()])
        .collect();
    let lengths = server.client().pipeline(&pushes);
    assert!(lengths.iter().all(|length| *length == Value::Integer(1)), "nobody saw an element left over");
    for (ten, group) in waiters.chunks_mut(10).enumerate() {
        let got: BTreeSet<String> = group.iter_mut().map(|waiter| notation::reply(&waiter.read())).collect();
        let wanted = (10 * ten..10 * ten + 10).map(|number| format!("[\"queue\", \"{number}\"]")).collect();
        assert_eq!(got, wanted);
    }
    assert_eq!(shown(&mut server.client(), "EXISTS queue"), "0");
    wait_for_blocked(&server, 0);
}

fn nothing_is_lost_and_nothing_served_twice_when_all_come_at_once(on: Topology) {
    const EACH: usize = 200;
    let server = on.start(FLAGS);
    let taken: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    let take = move |client: &mut Client| match number % 3 {
                        0 => client.run("BLPOP one two three 0"),
                        1 => client.run("BLMPOP 0 2 three one LEFT"),
                        // Of a time that is over again and again.
                        _ => client.run("BRPOP two three 0.002"),
                    };
                    let mut taken = Vec::new();
                    loop {
                        let reply = take(&mut client);
                        let text = notation::reply(&reply);
                        if text.contains("end") {
                            return taken;
                        }
                        if !reply.is_null() {
                            taken.push(text.split('"').nth(3).expect("an element").to_owned());
                        }
                    }
                })
            })
            .collect();
        let pushers: Vec<_> = (0..4)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    for at in 0..EACH {
                        let key = ["one", "two", "three"][(number + at) % 3];
                        let element = format!("{number}:{at}");
                        match at % 3 {
                            0 => client.call(["RPUSH", key, &element]),
                            1 => client.eval(
                                "return redis.call('LPUSH', ARGV[1], ARGV[2])",
                                &[],
                                &[key, &element],
                            ),
                            _ => {
                                client.run("MULTI");
                                client.call(["RPUSH", key, &element]);
                                client.run("EXEC")
                            }
                        };
                    }
                })
            })
            .collect();
        pushers.into_iter().for_each(|pusher| pusher.join().expect("it pushed everything"));
        wait_until("everything is taken", || shown(&mut server.client(), "EXISTS one two three") == "0");
        // A worker ends with the first end it gets, so each gets one, on a key that it waits for.
        let mut client = server.client();
        while workers.iter().any(|worker| !worker.is_finished()) {
            for key in ["one", "two", "three"] {
                client.eval(
                    "return redis.call('EXISTS', KEYS[1]) == 1 or redis.call('RPUSH', KEYS[1], 'end')",
                    &[key],
                    &[],
                );
            }
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("it took its share")).collect()
    });
    assert_eq!(taken.len(), 4 * EACH);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 4 * EACH);
}

/// The IDs of entries that were read of one stream, in either protocol's form.
fn ids_in(reply: &Value) -> Vec<String> {
    let Value::Array(streams) = reply else { panic!("entries: {}", notation::reply(reply)) };
    let Value::Array(stream) = &streams[0] else { panic!("a stream with its entries") };
    let Value::Array(entries) = &stream[1] else { panic!("entries") };
    let id_of = |entry: &Value| match entry {
        Value::Array(parts) => String::from_utf8_lossy(parts[0].text().expect("an ID")).into_owned(),
        other => panic!("an entry: {}", notation::reply(other)),
    };
    entries.iter().map(id_of).collect()
}

fn every_reader_of_a_stream_gets_all_of_it_and_every_group_all_of_it_once(on: Topology) {
    const EACH: usize = 150;
    let server = on.start(FLAGS);
    let mut client = server.client();
    client.run("XGROUP CREATE stream group 0 MKSTREAM");
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut seen = vec!["0-0".to_owned()];
                    while seen.len() <= 4 * EACH {
                        let last = &seen[seen.len() - 1];
                        // With another stream beside it, into which nothing comes.
                        let found = match number {
                            0 => client.call(["XREAD", "BLOCK", "0", "STREAMS", "stream", last]),
                            _ => client.call(["XREAD", "BLOCK", "0", "STREAMS", "none", "stream", "$", last]),
                        };
                        seen.extend(ids_in(&found));
                    }
                    seen
                })
            })
            .collect();
        let consumers: Vec<_> = (0..3)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut taken = Vec::new();
                    loop {
                        let line =
                            format!("XREADGROUP GROUP group c{number} COUNT 7 BLOCK 0 STREAMS stream >");
                        let reply = client.run(&line);
                        if let Value::Error(text) = &reply {
                            return (taken, String::from_utf8_lossy(text).into_owned());
                        }
                        taken.extend(ids_in(&reply));
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..4)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    for at in 0..EACH {
                        match (at + number) % 3 {
                            0 => client.run("XADD stream * at once"),
                            1 => client.eval(
                                "return redis.call('XADD', ARGV[1], '*', 'by', 'script')",
                                &[],
                                &["stream"],
                            ),
                            _ => {
                                client.run("MULTI");
                                client.run("XADD stream * in transaction");
                                client.run("EXEC")
                            }
                        };
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("it added everything"));
        let all = client.run("XRANGE stream - +");
        let Value::Array(entries) = &all else { panic!("entries") };
        assert_eq!(entries.len(), 4 * EACH);
        let all: Vec<String> = ids_in(&Value::Array(vec![Value::Array(vec![Value::Null, all])]));
        for reader in readers {
            assert_eq!(reader.join().expect("it read everything")[1..], all, "in order, nothing twice");
        }
        wait_until("all is delivered", || {
            shown(&mut server.client(), "XPENDING stream group").starts_with(&format!("[{}, ", 4 * EACH))
        });
        wait_for_blocked(&server, 3);
        assert_eq!(shown(&mut client, "XGROUP DESTROY stream group"), "1");
        let mut taken = Vec::new();
        for consumer in consumers {
            let (part, end) = consumer.join().expect("it took its share");
            assert_eq!(end, "NOGROUP the consumer group this client was blocked on no longer exists");
            assert!(part.is_sorted_by_key(|id| all.iter().position(|held| held == id)), "in order");
            taken.extend(part);
        }
        assert_eq!(taken.len(), 4 * EACH);
        assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), all.into_iter().collect());
    });
    wait_for_blocked(&server, 0);
}

fn a_reader_of_an_expired_stream_is_told(on: Topology) {
    let server = on.start(FLAGS);
    let mut client = server.client();
    client.run("XGROUP CREATE stream group $ MKSTREAM");
    let mut waiter = blocked(&server, "XREADGROUP GROUP group a BLOCK 0 STREAMS stream >", 1);
    client.run("PEXPIRE stream 20");
    // Whoever comes first to see that it has expired.
    wait_until("it is gone", || shown(&mut client, "EXISTS stream") == "0");
    assert_eq!(notation::reply(&waiter.read()), "-UNBLOCKED the stream key no longer exists");
}

fn what_is_undone_serves_nobody(on: Topology) {
    let server = on.start(&["--script-fuel", "20000000"]);
    let mut client = server.client();
    let mut waiter = blocked(&server, "BLPOP queue 0", 1);
    let text = notation::reply(&client.eval(PUSHES_FOR_EVER, &["queue"], &[]));
    assert!(text.starts_with("-SCRIPTLIMIT fuel: "), "{text}");
    client.run("MULTI");
    client.run("RPUSH queue never");
    client.eval(PUSHES_FOR_EVER, &["other"], &[]);
    let text = notation::reply(&client.run("EXEC"));
    assert!(text.starts_with("-SCRIPTLIMIT fuel: "), "{text}");
    assert_eq!(server.info("blocked_clients"), 1);
    assert_eq!(shown(&mut client, "RPUSH queue now"), "1");
    assert_eq!(notation::reply(&waiter.read()), "[\"queue\", \"now\"]");
}

fn a_script_serves_when_it_has_ended(on: Topology) {
    let server = on.start(FLAGS);
    let mut client = server.client();
    let mut waiters = [blocked(&server, "BLPOP queue 0", 1), blocked(&server, "BLPOP queue 0", 2)];
    let script = "for i = 1, 3 do redis.call('RPUSH', 'queue', i) end \
                  local seen = redis.call('LLEN', 'queue') redis.call('LPOP', 'queue') return seen";
    // With and without knowing the key beforehand; both may run over several rounds.
    assert_eq!(client.eval(script, &[], &[]), Value::Integer(3));
    assert_eq!(notation::reply(&waiters[0].read()), "[\"queue\", \"2\"]");
    assert_eq!(notation::reply(&waiters[1].read()), "[\"queue\", \"3\"]");
    assert_eq!(client.eval(script, &["queue"], &[]), Value::Integer(3));
    assert_eq!(shown(&mut client, "LLEN queue"), "2");
}

fn a_key_in_use_makes_only_those_wait_who_need_it(on: Topology) {
    let server =
        on.start(&[FLAGS, &["--script-timeout-ms", "600000", "--script-fuel", "100000000000000"]].concat());
    let (mut busy, mut client) = (server.client(), server.client());
    // The first one's destination will be in use, so those behind it go first. The second one waits for two keys,
    // and is served by the one that is free.
    let mut mover = blocked(&server, "BLMOVE source destination LEFT LEFT 0", 1);
    let mut popper = blocked(&server, "BLPOP destination source 0", 2);
    busy.send(["EVAL", PUSHES_FOR_EVER, "1", "destination"]);
    wait_until("it has the key", || server.log().contains("it has the key"));
    assert_eq!(shown(&mut client, "RPUSH source a b"), "2");
    assert_eq!(notation::reply(&popper.read()), "[\"source\", \"a\"]");
    let mut last = server.client();
    last.send(["BLPOP", "destination", "0"]);
    wait_until("the script is killed", || shown(&mut server.client(), "SCRIPT KILL") == "+OK");
    assert!(notation::reply(&busy.read()).starts_with("-KILLED"));
    assert_eq!(notation::reply(&mover.read()), "\"b\"");
    assert_eq!(notation::reply(&last.read()), "[\"destination\", \"b\"]");
    assert_eq!(shown(&mut client, "EXISTS source destination"), "0");
}

fn unblock_ends_the_waiting(on: Topology) {
    let server = on.start(FLAGS);
    let (mut waiter, mut client) = (server.client(), server.client());
    let id = id_of(&mut waiter);
    let unblock = |reason: &[&str]| {
        let id = id.to_string();
        notation::reply(&server.client().call(["CLIENT", "UNBLOCK", &id].iter().chain(reason)))
    };
    for (reason, reply) in [
        (&[][..], "nil[]"),
        (&["TIMEOUT"], "nil[]"),
        (&["error"], "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        assert_eq!(unblock(reason), "0");
        waiter.send(["BLMOVE", "queue", "other", "LEFT", "LEFT", "0"]);
        wait_for_blocked(&server, 1);
        let list = shown(&mut client, &format!("CLIENT LIST ID {id}"));
        assert!(list.contains(" flags=b "), "{list}");
        assert_eq!(unblock(reason), "1");
        assert_eq!(server.info("blocked_clients"), 0);
        assert_eq!(notation::reply(&waiter.read()), reply);
        let list = shown(&mut client, &format!("CLIENT LIST ID {id}"));
        assert!(list.contains(" flags=N "), "{list}");
        // It has left the queue.
        assert_eq!(shown(&mut client, "RPUSH queue a"), "1");
        assert_eq!(shown(&mut client, "DEL queue other"), "1");
    }
}

fn who_is_gone_takes_nothing(on: Topology) {
    let server = on.start(FLAGS);
    let mut client = server.client();
    let killed = {
        let mut waiter = server.client();
        let id = id_of(&mut waiter);
        waiter.send(["BLPOP", "queue", "0"]);
        wait_for_blocked(&server, 1);
        assert_eq!(shown(&mut client, &format!("CLIENT KILL ID {id}")), "1");
        waiter
    };
    wait_for_blocked(&server, 0);
    drop(killed);
    drop(blocked(&server, "BLPOP queue 0", 1));
    wait_for_blocked(&server, 0);
    // One with requests behind it, that nobody will answer.
    let mut waiter = server.client();
    let requests = [encode(["BLPOP", "queue", "0"]), encode(["RPUSH", "queue", "b"])].concat();
    waiter.send_raw(&requests).expect("the server accepts requests");
    wait_for_blocked(&server, 1);
    drop(waiter);
    wait_for_blocked(&server, 0);
    drop(blocked(&server, "BZPOPMIN queue other 0", 1));
    wait_for_blocked(&server, 0);
    assert_eq!(shown(&mut client, "RPUSH queue a"), "1");
    assert_eq!(shown(&mut client, "LRANGE queue 0 -1"), "[\"a\"]");
    wait_until("they are gone", || server.info("connected_clients") == 2);
}

fn requests_wait_behind_a_blocked_one_and_replies_before_it_do_not(on: Topology) {
    let server = on.start(FLAGS);
    let (mut waiter, mut client) = (server.client(), server.client());
    let requests = [
        encode(["SET", "before", "1"]),
        encode(["BLPOP", "queue", "0"]),
        encode(["SET", "behind", "1"]),
        encode(["BLPOP", "queue", "0.01"]),
    ];
    waiter.send_raw(&requests.concat()).expect("the server accepts requests");
    assert_eq!(notation::reply(&waiter.read()), "+OK");
    wait_for_blocked(&server, 1);
    assert_eq!(shown(&mut client, "EXISTS before behind"), "1");
    assert_eq!(shown(&mut client, "RPUSH queue a"), "1");
    let replies: Vec<_> = (0..3).map(|_| notation::reply(&waiter.read())).collect();
    assert_eq!(replies, ["[\"queue\", \"a\"]", "+OK", "nil[]"]);
}

fn the_end_of_the_server_does_not_wait_for_them(on: Topology) {
    let mut server = on.start(FLAGS);
    let mut waiters = [blocked(&server, "BLPOP queue 0", 1), blocked(&server, "BZPOPMIN queue 600", 2)];
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.log().contains("cut off"), "{}", server.log());
    assert!(waiters.iter_mut().all(Client::is_closed));
}

over_nodes! {
    a_thousand_waiters_are_served_once_each_and_in_order,
    nothing_is_lost_and_nothing_served_twice_when_all_come_at_once,
    every_reader_of_a_stream_gets_all_of_it_and_every_group_all_of_it_once,
    a_reader_of_an_expired_stream_is_told,
    what_is_undone_serves_nobody,
    a_script_serves_when_it_has_ended,
    a_key_in_use_makes_only_those_wait_who_need_it,
    unblock_ends_the_waiting,
    who_is_gone_takes_nothing,
    requests_wait_behind_a_blocked_one_and_replies_before_it_do_not,
    the_end_of_the_server_does_not_wait_for_them,
}
