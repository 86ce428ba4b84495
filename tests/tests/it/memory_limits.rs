//! What scripts and transactions can make the server hold: data, memory to roll back, images of scripts and libraries.

use store_engine::rdb;
use tests::{Client, TestServer, Topology, notation, over_nodes, wait_until};

/// A server, or a gateway with store nodes, whose data may take 20 MB (of each node), with further arguments.
fn limited(on: Topology, arguments: &[&str]) -> (Vec<TestServer>, Client) {
    let limit = ["--maxmemory", "20mb"];
    // By which a script or transaction may exceed that.
    let slack: &[&str] =
        if arguments.contains(&"--script-memory") { &[] } else { &["--script-memory", "2mb"] };
    let arguments = &[slack, arguments].concat()[..];
    let policy = arguments.iter().position(|word| *word == "--maxmemory-policy");
    let policy = policy.map_or(&[][..], |at| &arguments[at..at + 2]);
    let servers = match on {
        Topology::Local => vec![TestServer::start(&[&limit, arguments].concat())],
        Topology::Nodes => {
            let mut servers: Vec<_> = (0..3).map(|_| TestServer::store(&[&limit, policy].concat())).collect();
            let addresses: Vec<_> = servers.iter().map(TestServer::address).collect();
            servers.insert(0, TestServer::gateway(&addresses, arguments));
            servers
        }
    };
    let client = servers[0].client();
    (servers, client)
}

fn reply(client: &mut Client, call: &str) -> String {
    notation::reply(&client.run(call))
}

const FULL: &str = "-OOM command not allowed when used memory > 'maxmemory'";

/// Writes 8 MB under each of 12 keys.
const FILL: &str =
    "for i = 1, 12 do redis.call('SETRANGE', 'k' .. i, 8388607, 'x') end return redis.call('DBSIZE')";

fn a_script_that_writes_too_much_is_rolled_back(on: Topology) {
    let (_server, mut client) = limited(on, &[]);
    let reported = reply(&mut client, &format!("EVAL \"{FILL}\" 0"));
    assert!(reported.starts_with(FULL) && reported.ends_with("its writes were rolled back"), "{reported}");
    assert_eq!(reply(&mut client, "DBSIZE"), "0");
    // Also where the error would be caught, and where no result is used.
    let caught = FILL.replace("redis.call('SETRANGE'", "redis.pcall('SETRANGE'");
    let reported = reply(&mut client, &format!("EVAL \"{caught}\" 0"));
    assert!(reported.starts_with(FULL), "{reported}");
    let copies = "redis.call('SETRANGE', KEYS[1], 4194303, 'x') \
                  for i = 1, 30 do redis.call('COPY', KEYS[1], KEYS[1] .. i) end";
    let reported = reply(&mut client, &format!("EVAL \"{copies}\" 1 k"));
    assert!(reported.starts_with(FULL), "{reported}");
    assert_eq!(reply(&mut client, "DBSIZE"), "0");
    // One that stays within the limit is run. Gateways know of the memory of store nodes as of a second ago.
    let fits = "EVAL \"for i = 1, 1000 do redis.call('SET', 'k' .. i, i) end return 1\" 0";
    wait_until("memory is there again", || reply(&mut client, fits) == "1");
}

fn what_exceeds_maxmemory_can_be_refused_or_allowed(on: Topology) {
    let (_server, mut client) = limited(on, &["--maxmemory-transactions", "refuse"]);
    let reported = reply(&mut client, &format!("EVAL \"{FILL}\" 0"));
    assert!(reported.starts_with(FULL) && reported.contains("script: "), "{reported}");
    let left: usize = reply(&mut client, "DBSIZE").parse().expect("a number");
    assert!((2..12).contains(&left), "{left} keys");
    client.run("FLUSHALL");
    client.run("CONFIG SET maxmemory-transactions allow");
    // Gateways know of the memory of store nodes as of a second ago.
    let fill = format!("EVAL \"{FILL}\" 0");
    wait_until("memory is there again", || reply(&mut client, &fill) == "12");
    client.run("FLUSHALL");
    client.run("CONFIG SET maxmemory-transactions rollback");
    // Neither may one with allow-oom.
    let flagged = format!("EVAL \"#!lua flags=allow-oom\n{FILL}\" 0");
    let reported = reply(&mut client, &flagged.replace("\n", "\\n"));
    assert!(reported.starts_with(FULL), "{reported}");
}

fn a_transaction_that_writes_too_much_is_rolled_back(on: Topology) {
    let (_server, mut client) = limited(on, &[]);
    client.run("MULTI");
    for number in 0..12 {
        client.run(&format!("SETRANGE k{number} 8388607 x"));
    }
    let reported = reply(&mut client, "EXEC");
    assert!(
        reported.starts_with(FULL) && reported.ends_with("the transaction was rolled back"),
        "{reported}"
    );
    assert_eq!(reply(&mut client, "DBSIZE"), "0");
}

fn keys_are_evicted_for_a_script(on: Topology) {
    let (_server, mut client) = limited(on, &["--maxmemory-policy", "allkeys-random"]);
    let fills = "for i = 1, 6 do redis.call('SETRANGE', KEYS[1] .. i, 2097151, 'x') end return 1";
    for number in 0..10 {
        // The keys of a script are not evicted while it runs; those of earlier ones are.
        assert_eq!(reply(&mut client, &format!("EVAL \"{fills}\" 1 k{number}:")), "1");
    }
}

fn memory_to_roll_back_counts_as_memory_of_the_script(on: Topology) {
    let server = on.start(&["--script-memory", "4mb"]);
    let mut client = server.client();
    client.run("SETRANGE {k}big 2097151 x");
    // Each result replaces the one before, which would have to come back.
    let replaces = "redis.call('SET', KEYS[2], 'before') for i = 1, 100 do \
                    redis.call('BITOP', 'NOT', KEYS[2], KEYS[1]) redis.call('BITOP', 'NOT', KEYS[3], KEYS[1]) end";
    client.run("SET {k}a old");
    let reported = reply(&mut client, &format!("EVAL \"{replaces}\" 3 {{k}}big {{k}}a {{k}}b"));
    assert!(
        reported.starts_with("-SCRIPTLIMIT memory: rolling back requires more than 4194304 bytes"),
        "{reported}"
    );
    assert!(reported.ends_with("which were rolled back; the limit is set by script-memory"), "{reported}");
    assert_eq!(reply(&mut client, "MGET {k}a {k}b"), "[\"old\", nil]");
    // What a script only removes or moves takes no more memory than before.
    client.run("SETRANGE {k}huge 33554431 x");
    let moves = "redis.call('RENAME', KEYS[1], KEYS[2]) redis.call('DEL', KEYS[2]) return redis.call('EXISTS', KEYS[1])";
    assert_eq!(reply(&mut client, &format!("EVAL \"{moves}\" 2 {{k}}huge {{k}}other")), "0");
}

fn memory_to_roll_back_a_transaction_is_limited(on: Topology) {
    let server = on.start(&["--transaction-memory-max", "4mb"]);
    let mut client = server.client();
    client.run("SETRANGE {k}big 2097151 x");
    client.run("MULTI");
    for _ in 0..20 {
        client.run("BITOP NOT {k}a {k}big");
        client.run("BITOP NOT {k}b {k}big");
    }
    let reported = reply(&mut client, "EXEC");
    assert!(reported.starts_with("-TXNLIMIT memory: "), "{reported}");
    assert_eq!(reply(&mut client, "EXISTS {k}a {k}b"), "0");
}

fn scripts_and_libraries_are_limited_in_bytes(on: Topology) {
    let server = on.start(&["--script-cache-max-bytes", "256kb", "--library-memory-max", "1mb"]);
    let mut client = server.client();
    for number in 0..100 {
        let text = format!("return {number} --{}", "x".repeat(20_000));
        assert_eq!(notation::reply(&client.call(["EVAL", &text, "0"])), number.to_string());
        let held = server.info("used_memory_scripts");
        assert!(held < 512 << 10, "{held} bytes");
    }
    let mut refused = None;
    for number in 0..20 {
        let text = format!("return 'loaded {number}' --{}", "x".repeat(20_000));
        let reported = notation::reply(&client.call(["SCRIPT", "LOAD", &text]));
        if reported.starts_with('-') {
            refused.get_or_insert(reported);
        }
    }
    let refused = refused.expect("one too many");
    assert!(refused.starts_with("-SCRIPTLIMIT cache: scripts of "), "{refused}");
    assert_eq!(reply(&mut client, "SCRIPT FLUSH"), "+OK");
    let library = |name: &str, bytes: usize| {
        format!(
            "#!lua name={name}\nlocal t = ('x'):rep({bytes})\n\
             redis.register_function('{name}', function() return #t end)"
        )
    };
    let reported = notation::reply(&client.call(["FUNCTION", "LOAD", &library("large", 2 << 20)]));
    assert!(reported.starts_with("-SCRIPTLIMIT memory: the library large occupies "), "{reported}");
    let reported = notation::reply(&client.call(["FUNCTION", "LOAD", &library("first", 150_000)]));
    assert_eq!(reported, "\"first\"");
    let reported = notation::reply(&client.call(["FUNCTION", "LOAD", &library("second", 150_000)]));
    assert!(reported.starts_with("-SCRIPTLIMIT cache: libraries would use "), "{reported}");
    assert_eq!(reply(&mut client, "FCALL first 0"), "150000");
}

/// A payload for RESTORE: a string of so many times 264 bytes and one more, packed into a hundredth.
fn packed_string(runs: usize) -> Vec<u8> {
    let packed = [&b"\x00a"[..], &[0xe0, 0xff, 0x00].repeat(runs)].concat();
    let mut payload = b"\x00\xc3".to_vec();
    for len in [packed.len(), 1 + 264 * runs] {
        payload.push(0x80);
        payload.extend_from_slice(&(len as u32).to_be_bytes());
    }
    payload.extend_from_slice(&packed);
    rdb::seal(&mut payload);
    payload
}

fn a_packed_value_that_is_larger_than_maxmemory_is_not_unpacked(on: Topology) {
    let (servers, mut client) = limited(on, &["--script-memory", "64mb"]);
    let peak_bytes = || servers.iter().map(TestServer::peak_bytes).sum::<u64>();
    let fits = packed_string(30_000);
    let reported = notation::reply(&client.call([&b"RESTORE"[..], b"fits", b"0", &fits]));
    assert_eq!(reported, "+OK");
    assert_eq!(reply(&mut client, "STRLEN fits"), "7920001");
    let payload = packed_string(800_000);
    let before = peak_bytes();
    for call in [&[&b"RESTORE"[..], b"k", b"0", &payload][..], &[b"RESTORE-ASKING", b"k", b"0", &payload]] {
        let reported = notation::reply(&client.call(call.iter()));
        assert_eq!(reported, format!("{FULL}."));
    }
    // The first call brings the key to a gateway, which then could do the second one by itself.
    let script =
        b"if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('RESTORE', KEYS[1], 0, ARGV[1]) end \
                   return redis.call('STRLEN', KEYS[1])";
    let reported = notation::reply(&client.call([&b"EVAL"[..], script, b"1", b"k", &payload]));
    assert!(reported.starts_with(FULL), "{reported}");
    let grown = peak_bytes() - before;
    assert!(grown < 128 << 20, "{grown} bytes for a payload of {}", payload.len());
    assert_eq!(reply(&mut client, "EXISTS k"), "0");
}

/// A user whose fuel is limited pays for the state of the libraries that it calls.
fn copies_of_libraries_are_paid_for(on: Topology) {
    let server = on.start(&[]);
    let mut admin = server.client();
    let text = "#!lua name=lib\nlocal t = ('x'):rep(4000000)\n\
                redis.register_function('size', function() return #t end)";
    assert_eq!(notation::reply(&admin.call(["FUNCTION", "LOAD", text])), "\"lib\"");
    assert_eq!(
        reply(&mut admin, "ACL SETUSER tenant on nopass ~* +@all limit:fuel-per-second=1000000"),
        "+OK"
    );
    let mut tenant = server.client();
    assert_eq!(reply(&mut tenant, "AUTH tenant x"), "+OK");
    let replies: Vec<String> = (0..20).map(|_| reply(&mut tenant, "FCALL size 0")).collect();
    assert_eq!(replies[0], "4000000");
    assert!(
        replies.iter().any(|reported| reported.starts_with("-SCRIPTLIMIT") || reported.contains("fuel")),
        "{replies:?}"
    );
    assert_eq!(reply(&mut admin, "FCALL size 0"), "4000000");
}

over_nodes! {
    a_packed_value_that_is_larger_than_maxmemory_is_not_unpacked,
    a_script_that_writes_too_much_is_rolled_back,
    a_transaction_that_writes_too_much_is_rolled_back,
    copies_of_libraries_are_paid_for,
    keys_are_evicted_for_a_script,
    memory_to_roll_back_a_transaction_is_limited,
    memory_to_roll_back_counts_as_memory_of_the_script,
    scripts_and_libraries_are_limited_in_bytes,
    what_exceeds_maxmemory_can_be_refused_or_allowed,
}
