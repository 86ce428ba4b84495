//! What store nodes cost: the same calls to a server that has its data in its own process, and to a gateway with three
//! store nodes. CPU time of all processes per call, and how long a call takes; both sides take turns, so that whatever
//! else the machine does meets both.
//!
//! MOONSHARD_BIN=target/release/moonshard cargo run --package tests --example nodes [ROUNDS [CASE]]

use std::time::Instant;

use tests::client::encode;
use tests::cluster::key_on;
use tests::{Client, TestServer, Value};

const STORES: usize = 3;
const CONNECTIONS: usize = 50;
/// Keys that single commands read and write.
const KEYS: usize = 10_000;
/// Hashes that are read at once, and the fields of each.
const HASHES: (usize, usize) = (10_000, 8);
/// Members of the sorted set that is changed, and how many of them at once.
const MEMBERS: (usize, usize) = (50_992, 10_200);

/// Some calls, made again and again.
struct Case {
    name: &'static str,
    /// So many connections make them at the same time.
    connections: usize,
    /// What is sent in one go; each time the next one.
    goes: Vec<Vec<u8>>,
    /// Calls in a go.
    deep: usize,
    /// Goes of each connection in a round.
    times: usize,
}

/// A server, with whatever has its data.
struct Side {
    server: TestServer,
    stores: Vec<TestServer>,
    clients: Vec<Client>,
}

impl Side {
    fn new(stores: usize) -> Side {
        let stores: Vec<TestServer> = (0..stores).map(|_| TestServer::store(&[])).collect();
        let addresses: Vec<_> = stores.iter().map(TestServer::address).collect();
        let server = match stores.is_empty() {
            true => TestServer::start(&[]),
            false => TestServer::gateway(&addresses, &[]),
        };
        let clients = (0..CONNECTIONS).map(|_| server.client()).collect();
        Side { server, stores, clients }
    }

    fn fill(&mut self, requests: &[Vec<Vec<u8>>]) {
        for reply in self.clients[0].pipeline(requests) {
            assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
        }
    }

    fn cpu_nanos(&self) -> u64 {
        self.stores.iter().chain([&self.server]).map(TestServer::cpu_nanos).sum()
    }

    /// Microseconds per call: of CPU, and until it is answered with those beside it.
    fn measure(&mut self, case: &Case) -> [f64; 2] {
        let (cpu, began) = (self.cpu_nanos(), Instant::now());
        for time in 0..case.times {
            for (at, client) in self.clients[..case.connections].iter_mut().enumerate() {
                client.send_raw(&case.goes[(time + at) % case.goes.len()]).expect("it reads");
            }
            for client in &mut self.clients[..case.connections] {
                for _ in 0..case.deep {
                    let reply = client.read();
                    assert!(!matches!(reply, Value::Error(_)), "{}: {reply:?}", case.name);
                }
            }
        }
        let nanos = [(self.cpu_nanos() - cpu) as f64, began.elapsed().as_nanos() as f64];
        nanos.map(|nanos| nanos / 1000.0 / (case.times * case.connections * case.deep) as f64)
    }
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<Vec<u8>> {
    words.into_iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn eval<'a>(script: &'a str, keys: &'a [String], args: &'a [String]) -> Vec<u8> {
    let count = keys.len().to_string();
    let rest = keys.iter().chain(args).map(String::as_str);
    encode(["EVAL", script, &count].into_iter().chain(rest))
}

/// What all data begins with.
fn filling() -> Vec<Vec<Vec<u8>>> {
    let value = "x".repeat(100);
    let mut all: Vec<_> = (0..KEYS).map(|at| words(["SET", &format!("key:{at}"), &value])).collect();
    for at in 0..HASHES.0 {
        let fields = (0..HASHES.1).flat_map(|field| [format!("field{field}"), format!("value {at} {field}")]);
        let call: Vec<String> = ["HSET".to_owned(), format!("hash:{at}")].into_iter().chain(fields).collect();
        all.push(words(call.iter().map(String::as_str)));
    }
    let members: Vec<String> = members();
    for part in members.chunks(1000) {
        let scored = part.iter().flat_map(|member| ["0", member.as_str()]);
        all.push(words(["ZADD", "ranks"].into_iter().chain(scored)));
    }
    let large = "x".repeat(100 << 10);
    all.extend((0..CONNECTIONS).map(|at| words(["SET", &format!("large:{at}"), &large])));
    all
}

fn members() -> Vec<String> {
    (0..MEMBERS.0).map(|at| format!("m:{at:012}")).collect()
}

fn cases() -> Vec<Case> {
    // Any numbers will do that lie all over.
    let get = |at: usize| encode(["GET", &format!("key:{}", at.wrapping_mul(7919) % KEYS)]);
    // Each connection has keys of its own, of so many nodes: nobody waits for another.
    let own = |name: &str, at: usize, nodes: usize| -> Vec<String> {
        (0..nodes).map(|store| key_on(store, STORES, &format!("{name}:{at}"))).collect()
    };
    let scripts = |script: &str, keys: &dyn Fn(usize) -> Vec<String>, args: &dyn Fn(usize) -> Vec<String>| {
        (0..CONNECTIONS).map(|at| eval(script, &keys(at), &args(at))).collect::<Vec<_>>()
    };
    let one = |at: usize| own("counter", at, 1);
    let two = |at: usize| own("counter", at, 2);
    let large = |at: usize| vec![format!("large:{at}")];
    let none = |_: usize| Vec::new();
    let incr = "return redis.call('INCR', KEYS[1])";
    let five = "local sum = 0 for _ = 1, 5 do sum = sum + redis.call('INCR', KEYS[1]) end return sum";
    let spread = "return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])";
    let undeclared = "return redis.call('INCR', ARGV[1])";
    let range = "return redis.call('GETRANGE', KEYS[1], 0, 9) .. redis.call('GETRANGE', KEYS[1], 10, 19)";
    let gather = "local all = {} for _, key in ipairs(KEYS) do local flat = redis.call('HGETALL', key) local one = {} \
                  for at = 1, #flat, 2 do one[flat[at]] = flat[at + 1] end all[key] = one end return cmsgpack.pack(all)";
    let raise = "for _, member in pairs(ARGV) do redis.call('ZINCRBY', KEYS[1], 1, member) end";
    let hashes: Vec<String> = (0..HASHES.0).map(|at| format!("hash:{at}")).collect();
    let members = members();
    let case = |name, connections, goes, times| Case { name, connections, goes, deep: 1, times };
    vec![
        Case {
            name: "GET 16 deep",
            connections: CONNECTIONS,
            goes: (0..100).map(|go| (0..16).flat_map(|at| get(go * 16 + at)).collect()).collect(),
            deep: 16,
            times: 100,
        },
        case("GET", CONNECTIONS, (0..100).map(get).collect(), 200),
        case("script, an INCR", CONNECTIONS, scripts(incr, &one, &none), 100),
        case("script, an INCR, on one connection", 1, scripts(incr, &one, &none), 1000),
        case("script, an INCR that is not used", CONNECTIONS, scripts(&incr[7..], &one, &none), 100),
        case("script, five INCR of a key", CONNECTIONS, scripts(five, &one, &none), 100),
        case("script, two INCR on two nodes", CONNECTIONS, scripts(spread, &two, &none), 100),
        case("script, an INCR of a key not named", CONNECTIONS, scripts(undeclared, &none, &one), 100),
        case("script, two GETRANGE of 100 KB", CONNECTIONS, scripts(range, &large, &none), 100),
        case("script, 10,000 HGETALL", 1, vec![eval(gather, &hashes, &[])], 3),
        Case {
            name: "script, 10,200 ZINCRBY of 50,992",
            connections: 1,
            goes: members.chunks(MEMBERS.1).map(|part| eval(raise, &["ranks".to_owned()], part)).collect(),
            deep: 1,
            times: 5,
        },
    ]
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let rounds = args.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let wanted = args.next().unwrap_or_default();
    let mut sides = [Side::new(0), Side::new(STORES)];
    let filling = filling();
    sides.iter_mut().for_each(|side| side.fill(&filling));
    println!(
        "{:36} {:>30} {:>8} {:>30} {:>8}",
        "", "CPU: one process, nodes (us)", "ratio", "time (us)", "ratio"
    );
    for case in cases().iter().filter(|case| case.name.contains(&wanted)) {
        let mut spent = [const { Vec::new() }; 4];
        // The first round warms up.
        for round in 0..=rounds {
            let [here, there] = [0, 1].map(|side| sides[side].measure(case));
            let all = [here[0], there[0], here[1], there[1]];
            all.iter().zip(&mut spent).filter(|_| round > 0).for_each(|(micros, spent)| spent.push(*micros));
        }
        let [here, there, soon, late] = spent.map(median);
        let ratios = [there / here, late / soon];
        println!(
            "{:36} {here:14.2} {there:15.2} {:8.2} {soon:14.2} {late:15.2} {:8.2}",
            case.name, ratios[0], ratios[1]
        );
    }
}
