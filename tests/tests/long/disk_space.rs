//! The room that data takes on disk while it is overwritten again and again: hours of work, compressed.
//!
//! `make disk-space` does it for long: `MOONSHARD_DISK_MEGABYTES` says how much data, `MOONSHARD_DISK_TIMES` how many
//! times as much is written, and `MOONSHARD_DISK_SEED` starts elsewhere.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tests::contents;
use tests::generate::{Call, Chance};
use tests::temp_dir::TempDir;
use tests::{Client, SetOnDrop, TestServer, Value, permits, wait_until};

/// How many times the bytes of keys and values the folder may have ...
const SHARE: f64 = 3.0;
/// ... beside this many times the length that a journal of little data has: then the writer's patience ends.
const JOURNALS: u64 = 2;
/// That length, as in `store/src/persist/writer.rs`, and in a short run, as a share of the data.
const JOURNAL_BYTES: u64 = 32 << 20;
const SHORT_JOURNAL: u64 = 4;
/// ... and, as so much more data, what a round of the writer puts elsewhere before the old place is free.
const ROUND_BYTES: u64 = 16 << 20;
/// The folder's highest share of the data in the last quarter may be this many times that of the second.
const GROWTH: f64 = 1.15;
/// Before that many times the data was written, sizes are not what they stay.
const WARM: f64 = 2.0;

/// Bytes of all keys and values, scores counted as eight.
const PAYLOAD: &str = "
    local sum = 0
    for _, key in ipairs(redis.call('KEYS', '*')) do
        local kind = redis.call('TYPE', key).ok
        sum = sum + #key
        if kind == 'string' then
            sum = sum + redis.call('STRLEN', key)
        elseif kind == 'hash' then
            for _, text in ipairs(redis.call('HGETALL', key)) do sum = sum + #text end
        elseif kind == 'list' then
            for _, text in ipairs(redis.call('LRANGE', key, 0, -1)) do sum = sum + #text end
        elseif kind == 'zset' then
            for _, text in ipairs(redis.call('ZRANGE', key, 0, -1)) do sum = sum + #text + 8 end
        end
    end
    return sum";

fn payload(client: &mut Client) -> u64 {
    match client.eval(PAYLOAD, &[], &[]) {
        Value::Integer(bytes) => bytes.cast_unsigned(),
        other => panic!("the sum: {other:?}"),
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text} is no number")))
}

/// What clients do: mostly with strings, so many that all have about the bytes that are wanted, and with some big
/// collections.
struct Work {
    chance: Chance,
    /// Bytes by chance, and the same as text, which can be compressed.
    random: Vec<u8>,
    text: Vec<u8>,
    strings: usize,
    collections: usize,
}

impl Work {
    fn new(seed: u64, bytes: u64) -> Work {
        let mut chance = Chance::new(seed);
        let random: Vec<u8> = (0..1 << 20).map(|_| chance.below(256) as u8).collect();
        let text = random.iter().flat_map(|byte| format!("{byte:x}").into_bytes()).collect();
        let (strings, collections) = (bytes as usize / 600, 1 + bytes as usize / 4_000_000);
        Work { chance, random, text, strings, collections }
    }

    fn value(&mut self, most: usize) -> Vec<u8> {
        let len = 1 + self.chance.below(most);
        let source = if self.chance.percent(70) { &self.random } else { &self.text };
        let from = self.chance.below(source.len() - len);
        source[from..from + len].to_vec()
    }

    /// The next command.
    fn call(&mut self) -> Call {
        let string = format!("string:{}", self.chance.below(self.strings));
        let collection = self.chance.below(self.collections);
        let (part, much) = (self.chance.below(1500), self.chance.percent(4));
        let most = match self.chance.below(100) {
            0..30 => 100,
            30..70 => 400,
            70..90 => 1000,
            90..99 => 4000,
            _ => 20_000,
        };
        let short = self.value(300);
        let (name, words): (&str, Vec<Vec<u8>>) = match self.chance.below(100) {
            0..65 => ("SET", vec![string.into(), self.value(most)]),
            65..70 => ("APPEND", vec![string.into(), short]),
            70..74 => ("DEL", vec![string.into()]),
            74..79 => {
                let life = (1 + self.chance.below(3000)).to_string();
                ("SET", vec![format!("short:{part}").into(), short, "PX".into(), life.into()])
            }
            79..85 => {
                let field = format!("field{part}");
                ("HSET", vec![format!("hash:{collection}").into(), field.into(), short])
            }
            85..87 => ("HDEL", vec![format!("hash:{collection}").into(), format!("field{part}").into()]),
            87..92 => ("LPUSH", vec![format!("list:{collection}").into(), short.clone(), short]),
            92..95 => {
                let left = if much { 10 } else { 1000 + part };
                ("LTRIM", vec![format!("list:{collection}").into(), "0".into(), left.to_string().into()])
            }
            95..98 => {
                let member = format!("member{:0100}", part);
                ("ZADD", vec![format!("zset:{collection}").into(), part.to_string().into(), member.into()])
            }
            98 => {
                let upto = if much { 1000 } else { 10 };
                let words = [format!("zset:{collection}"), "0".to_owned(), upto.to_string()];
                ("ZREMRANGEBYRANK", words.map(String::into_bytes).into())
            }
            _ => {
                let kind = self.chance.pick(&["hash", "list", "zset"]);
                let key = if much { format!("{kind}:{collection}") } else { string };
                ("DEL", vec![key.into()])
            }
        };
        [name.as_bytes().to_vec()].into_iter().chain(words).collect()
    }
}

/// What was seen at a moment.
#[derive(Debug)]
struct Look {
    /// How many times the data had been written.
    times: f64,
    payload: u64,
    /// The most since the moment before.
    disk: u64,
}

/// Writes `times` times as much as there is.
fn overwrite(server: &TestServer, dir: &TempDir, work: &mut Work, bytes: u64, times: f64) -> Vec<Look> {
    let (ended, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(dir.disk_bytes(), Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        let _ends = SetOnDrop(&ended);
        let (mut client, mut looks, mut written) = (server.client(), Vec::new(), 0.0);
        let step = (times / 60.0).max(0.5);
        let mut next = step;
        while written < times {
            let calls: Vec<Call> = (0..300).map(|_| work.call()).collect();
            let sent: usize = calls.iter().flatten().map(Vec::len).sum();
            written += sent as f64 / bytes as f64;
            let wrong = client.pipeline(&calls).into_iter().find(|reply| matches!(reply, Value::Error(_)));
            assert!(wrong.is_none(), "{wrong:?}");
            if written < next {
                continue;
            }
            next += step;
            let look =
                Look { times: written, payload: payload(&mut client), disk: most.swap(0, Ordering::Relaxed) };
            println!(
                "{:4.0} s, written {:5.1} times: used {} MB, resident {} MB, payload {} MB, disk {} MB = {:.2}, journal {} MB",
                began.elapsed().as_secs_f64(),
                look.times,
                server.info("used_memory") >> 20,
                server.resident_bytes() >> 20,
                look.payload >> 20,
                look.disk >> 20,
                look.disk as f64 / look.payload as f64,
                server.info("aof_current_size") >> 20,
            );
            looks.push(look);
        }
        looks
    })
}

/// The highest share of the data that the folder had from one part of the run to another.
fn highest(looks: &[Look], from: f64, to: f64) -> f64 {
    let some = looks.iter().filter(|look| (from..=to).contains(&look.times));
    some.map(|look| look.disk as f64 / look.payload as f64).fold(0.0, f64::max)
}

#[test]
fn the_folder_is_bounded_by_the_data() {
    let _permit = permits::disk();
    let (long, seed) =
        (std::env::var_os("MOONSHARD_DISK_TIMES").is_some(), setting("MOONSHARD_DISK_SEED", 1));
    let bytes = setting("MOONSHARD_DISK_MEGABYTES", 6) << 20;
    let times = setting("MOONSHARD_DISK_TIMES", 12) as f64;
    println!("seed {seed}");
    let dir = TempDir::new("disk-space");
    let flags = ["--data-dir", dir.text(), "--script-timeout-ms", "60000"];
    // A short run has little data: the journal is made to fit, where a server can be told.
    let journal_bytes = if long || !cfg!(debug_assertions) { JOURNAL_BYTES } else { bytes / SHORT_JOURNAL };
    let fail_points = if long { String::new() } else { format!("journal-bytes={journal_bytes}") };
    let server = TestServer::start_failing(&flags, &fail_points);
    let mut work = Work::new(seed, bytes);
    let looks = overwrite(&server, &dir, &mut work, bytes, times);
    for look in looks.iter().filter(|look| look.times >= WARM) {
        let data = look.payload + ROUND_BYTES.min(look.payload);
        let bound = SHARE * data as f64 + (JOURNALS * journal_bytes) as f64;
        assert!(look.disk as f64 <= bound, "more than {} MB: {look:?}", bound as u64 >> 20);
    }
    let (second, last) =
        (highest(&looks, times * 0.25, times * 0.5), highest(&looks, times * 0.75, f64::MAX));
    println!("at most {second:.2} times the data in the second quarter, {last:.2} in the last");
    // In a short run a quarter is some rounds of the journal, more of which fall into one than into another.
    assert!(
        !long || last <= second * GROWTH,
        "the folder grows from {second:.2} to {last:.2} times the data"
    );
    let mut client = server.client();
    let short_lived = || client.run("KEYS short:*") == Value::Array(Vec::new());
    wait_until("what lives shortly has gone", short_lived);
    wait_until("all is kept", || server.info("journal_durable") == server.info("journal_newest"));
    let before = contents::read(&mut client);
    assert!(before.len() > work.strings / 2, "{} keys", before.len());
    server.kill();
    let server = TestServer::start(&flags);
    let differing = contents::difference(&contents::read(&mut server.client()), &before);
    assert!(differing.is_empty(), "{} keys differ: {:#?}", differing.len(), differing.values().next());
}
