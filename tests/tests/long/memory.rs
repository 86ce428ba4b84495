//! The account of memory beside the memory of the process, and what happens when it is used up.
//!
//! `make eviction-quality` compares hit rates with those of Redis, for as many seconds as `MOONSHARD_EVICTION_SECONDS`
//! says: a clock of seconds needs some to tell keys apart.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tests::generate::Chance;
use tests::{Client, Oracle, Protocol, TestServer, Value, wait_until};

type Request = Vec<Vec<u8>>;

fn request<const N: usize>(words: [&str; N]) -> Request {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Sends requests in portions that leave the server's buffers small.
fn load(client: &mut Client, requests: impl Iterator<Item = Request>) {
    let (mut portion, mut bytes) = (Vec::new(), 0);
    for request in requests {
        bytes += request.iter().map(Vec::len).sum::<usize>();
        portion.push(request);
        if bytes > 30_000 {
            client.pipeline(&portion);
            portion.clear();
            bytes = 0;
        }
    }
    client.pipeline(&portion);
}

/// A call that fills a key of one of many kinds.
fn filling(number: usize, chance: &mut Chance) -> Request {
    let text = |chance: &mut Chance, len: usize| {
        let byte = b'a' + chance.below(26) as u8;
        vec![byte; len]
    };
    let many =
        |name: &str, count: usize, chance: &mut Chance, item: &dyn Fn(usize, Vec<u8>) -> Vec<Vec<u8>>| {
            let mut request =
                vec![name.as_bytes().to_vec(), format!("{}:{number}", name.to_lowercase()).into_bytes()];
            request.extend((0..count).flat_map(|at| {
                let len = 6 + chance.below(20);
                item(at, text(chance, len))
            }));
            request
        };
    let numbered = |at: usize, mut text: Vec<u8>| {
        text.extend_from_slice(at.to_string().as_bytes());
        text
    };
    let count = if chance.percent(3) { 150 } else { 5 };
    match chance.below(100) {
        0..30 => vec![b"SET".to_vec(), format!("text:{number}").into_bytes(), text(chance, 20)],
        30..45 => request(["SET", &format!("number:{number}"), &number.to_string()]),
        45..55 => {
            let len = 50 + chance.below(450);
            let mut request = vec![b"SET".to_vec(), format!("page:{number}").into_bytes(), text(chance, len)];
            request.extend([b"EX".to_vec(), b"10000".to_vec()]);
            request
        }
        55 if chance.percent(10) => {
            let len = 10_000 + chance.below(200_000);
            vec![b"SET".to_vec(), format!("large:{number}").into_bytes(), text(chance, len)]
        }
        55..70 => many("HSET", count, chance, &|at, text| vec![format!("field{at}").into_bytes(), text]),
        70..80 => many("RPUSH", count, chance, &|_, text| vec![text]),
        // Streams of some hundreds of entries.
        80..84 => {
            let mut request =
                request(["XADD", &format!("stream:{}", number % 100), "*", "name", "x", "text"]);
            request.push(text(chance, 20));
            request
        }
        84..90 => many("SADD", count, chance, &|at, text| vec![numbered(at, text)]),
        _ => many("ZADD", count, chance, &|at, text| vec![at.to_string().into_bytes(), numbered(at, text)]),
    }
}

/// A call that sets a document, or extends one.
fn document(number: usize, chance: &mut Chance) -> Request {
    if number % 4 == 3 {
        let more = format!("{{\"at\":{number},\"ratio\":{number}.5,\"text\":\"some words\"}}");
        return request(["JSON.ARRAPPEND", &format!("doc:{}", number - 1), "$.list", &more, "1", "null"]);
    }
    let many = if chance.percent(3) { 150 } else { 5 };
    let members: String =
        (0..many).map(|at| format!(",\"name{at}\":\"{}\"", "x".repeat(chance.below(40)))).collect();
    let numbers: String = (0..chance.below(20)).map(|at| format!(",{at}")).collect();
    let text = format!("{{\"id\":{number},\"list\":[true{numbers}],\"inner\":{{\"empty\":[]{members}}}}}");
    request(["JSON.SET", &format!("doc:{number}"), "$", &text])
}

/// Compares the account with the memory of the process, after so many calls.
fn compare_account(calls: usize, fill: fn(usize, &mut Chance) -> Request) {
    // Tables double: with that many keys in so many shards they are as full as they are on average.
    let server = TestServer::start(&["--shards", "8"]);
    let (mut client, mut chance) = (server.client(), Chance::new(1));
    // What any use of the server needs.
    load(&mut client, (0..2_000).map(|number| fill(number, &mut chance)));
    let (resident, used) = (server.resident_bytes(), server.info("used_memory"));
    load(&mut client, (2_000..calls).map(|number| fill(number, &mut chance)));
    let grown = server.resident_bytes() - resident;
    let counted = server.info("used_memory") - used;
    println!("{counted} bytes counted, {grown} taken");
    assert!(counted > 200_000_000, "the data is large enough to tell: {counted}");
    assert!(counted.abs_diff(grown) <= grown / 10, "{counted} bytes counted, {grown} taken");
}

#[test]
fn the_account_is_near_what_the_process_takes() {
    compare_account(600_000, filling);
}

#[test]
fn the_account_of_documents_is_near_what_the_process_takes() {
    compare_account(200_000, document);
}

#[test]
fn when_everything_is_sticky_nothing_is_lost() {
    let server = TestServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    let value = "v".repeat(1000);
    client.run(&format!("CONFIG SET maxmemory {}", 2 << 20));
    let mut kept = 0;
    let refused = loop {
        let key = format!("keep:{kept}");
        let script = "return redis.call('SET', KEYS[1], ARGV[1], 'STICK')";
        match client.eval(script, &[&key], &[&value]) {
            Value::Error(text) => break String::from_utf8_lossy(&text).into_owned(),
            _ => kept += 1,
        }
    };
    assert!(refused.starts_with("OOM command not allowed when used memory > 'maxmemory'."), "{refused}");
    assert!(kept > 1_000, "{kept}");
    let full = client.run("SET more 1");
    assert!(matches!(&full, Value::Error(text) if text.starts_with(b"OOM ")), "{full:?}");
    for number in 0..kept {
        assert_eq!(client.run(&format!("STRLEN keep:{number}")), Value::Integer(1000));
    }
    assert_eq!((server.info("evicted_keys"), server.info("sticky_keys")), (0, kept));
    // What is no longer sticky makes room.
    client.run("UNSTICK keep:0 keep:1 keep:2");
    assert_eq!(client.run("SET more 1"), Value::Status(b"OK".to_vec()));
    assert_eq!(client.run("EXISTS more"), Value::Integer(1));
}

#[test]
fn a_lower_limit_is_kept_without_a_command() {
    let server = TestServer::start(&["--maxmemory-policy", "allkeys-random"]);
    let mut client = server.client();
    load(&mut client, (0..50_000).map(|number| request(["SET", &format!("key:{number}"), "value"])));
    let limit = server.info("used_memory") / 10;
    client.run(&format!("CONFIG SET maxmemory {limit}"));
    wait_until("the data fits", || server.info("used_memory") <= limit);
    let Value::Integer(left) = client.run("DBSIZE") else { panic!("a number") };
    assert!(left > 4_000, "{left}");
    assert_eq!(server.info("evicted_keys"), 50_000 - left as u64);
    // Without a limit nobody has to go.
    client.run("CONFIG SET maxmemory 0");
    load(&mut client, (0..10_000).map(|number| request(["SET", &format!("more:{number}"), "value"])));
    assert_eq!(client.run("DBSIZE"), Value::Integer(left + 10_000));
}

#[test]
fn keys_that_expire_all_at_once_go_without_being_asked_for() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    let expiring = (0..100_000).map(|number| request(["SET", &format!("key:{number}"), "value", "PX", "1"]));
    load(&mut client, (0..1_000).map(|number| request(["SET", &format!("stays:{number}"), "value"])));
    load(&mut client, expiring);
    wait_until("all have gone", || client.run("DBSIZE") == Value::Integer(1_000));
    assert_eq!(server.info("expired_keys"), 100_000);
}

/// Asks for keys at a steady pace and stores what is missing; percent of hits in the second half.
fn hit_rate(address: SocketAddr, policy: &str, time: Duration) -> f64 {
    const KEYS: usize = 20_000;
    const PER_SECOND: u32 = 2_000;
    let mut client = Client::connect(address, Protocol::Resp2);
    let key = |number: usize| format!("key:{number:06}");
    client.run("CONFIG SET maxmemory 0");
    client.run("FLUSHALL");
    let used = |client: &mut Client| -> usize {
        let Value::Bulk(info) = client.run("INFO memory") else { panic!("INFO answers with text") };
        let info = String::from_utf8_lossy(&info).into_owned();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a line");
        line.parse().expect("a number")
    };
    // Room for a tenth of the keys, whatever a key takes there.
    let value = "v".repeat(200);
    let before = used(&mut client);
    load(&mut client, (0..KEYS / 10).map(|number| request(["SET", &key(number), &value])));
    let room = used(&mut client);
    assert!(room > before);
    client.run("FLUSHALL");
    client.run(&format!("CONFIG SET maxmemory-policy {policy}"));
    client.run(&format!("CONFIG SET maxmemory {room}"));
    let cumulated: Vec<f64> = (1..=KEYS)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        })
        .collect();
    let mut chance = Chance::new(7);
    let (began, mut asked, mut counted, mut hits) = (Instant::now(), 0, 0_u32, 0_u32);
    while began.elapsed() < time {
        let roll = chance.below(1 << 30) as f64 / f64::from(1 << 30) * cumulated[KEYS - 1];
        let key = key(cumulated.partition_point(|sum| *sum < roll) * 7919 % KEYS);
        let hit = client.call(["GET", &key]) != Value::Null;
        if !hit {
            client.call(["SET", &key, &value]);
        }
        if began.elapsed() > time / 2 {
            counted += 1;
            hits += u32::from(hit);
        }
        asked += 1;
        std::thread::sleep((Duration::from_secs(1) / PER_SECOND * asked).saturating_sub(began.elapsed()));
    }
    100.0 * f64::from(hits) / f64::from(counted)
}

#[test]
#[ignore = "takes minutes: make eviction-quality"]
fn hit_rates_are_those_of_redis_or_better() {
    let seconds = std::env::var("MOONSHARD_EVICTION_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(60));
    let oracle = Oracle::start().expect("a redis-server to compare with");
    let server = TestServer::start(&[]);
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let addresses = [server.address(), oracle.address()];
        let runs = addresses.map(|address| std::thread::spawn(move || hit_rate(address, policy, time)));
        let [ours, theirs] = runs.map(|run| run.join().expect("no panic"));
        println!("{policy}: {ours:.2} % hits, Redis {theirs:.2} %");
        // Chance moves either by some tenths.
        assert!(ours >= theirs - 0.5, "{policy}: {ours:.2} % hits, Redis {theirs:.2} %");
    }
}
