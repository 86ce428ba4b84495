//! What an operation costs between a gateway and its store nodes: which messages go to which node. The wires are
//! listened to, so nothing is hidden.

use tests::{Client, TestCluster, notation, wait_until};

/// The messages of gRPC in what a client of HTTP/2 has sent: those that are there as a whole.
fn messages(sent: &[u8]) -> Vec<Vec<u8>> {
    const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
    const DATA: u8 = 0;
    let mut frames = sent.get(PREFACE..).unwrap_or_default();
    let mut data = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = frames {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some(body) = rest.get(..length) else { break };
        if *kind == DATA {
            data.extend_from_slice(body);
        }
        frames = &rest[length..];
    }
    let mut data = &data[..];
    let mut messages = Vec::new();
    while let [0, a, b, c, d, rest @ ..] = data {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some(message) = rest.get(..length) else { break };
        messages.push(message.to_vec());
        data = &rest[length..];
    }
    messages
}

/// The fields of a message: numbers, each with its bytes or its value.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        match tag & 7 {
            0 => fields.push((tag >> 3, Vec::new(), varint(&mut message))),
            2 => {
                let length = varint(&mut message) as usize;
                let (bytes, rest) = message.split_at(length);
                fields.push((tag >> 3, bytes.to_vec(), 0));
                message = rest;
            }
            other => panic!("a field of type {other}"),
        }
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// A request in a word or two, after `store.proto`.
fn name(body: &(u64, Vec<u8>, u64)) -> String {
    match body.0 {
        4 => "execute".to_owned(),
        5 => {
            let mut words = Vec::new();
            for (field, _, value) in fields(&body.1) {
                match (field, value) {
                    (2, _) => words.push("begin"),
                    (3, _) => words.push("fetch"),
                    (6, _) => words.push("call"),
                    (7, 1) => words.push("prepare"),
                    (7, 2) => words.push("commit"),
                    (7, 3) => words.push("abort"),
                    _ => {}
                }
            }
            let calls = words.iter().filter(|word| **word == "call").count();
            words.dedup();
            let times = format!("call*{calls}");
            words.iter_mut().filter(|word| **word == "call" && calls > 1).for_each(|word| *word = &times);
            if words.is_empty() { "confirm".to_owned() } else { words.join(" ") }
        }
        12 => "outcome".to_owned(),
        other => format!("request {other}"),
    }
}

/// The requests in what was sent, but for what comes when it comes: the first of a stream, beats, reading the catalog,
/// and forgetting what was decided once the others have followed.
fn requests(sent: &[u8]) -> Vec<String> {
    let requests = messages(sent).into_iter().flat_map(|message| fields(&message));
    let body = |(_, request, _): (u64, Vec<u8>, u64)| fields(&request).into_iter().find(|field| field.0 > 1);
    let by_itself = |body: &(u64, Vec<u8>, u64)| [2, 3, 10, 14].contains(&body.0);
    requests.filter_map(body).filter(|body| !by_itself(body)).map(|body| name(&body)).collect()
}

struct Costs {
    cluster: TestCluster,
    client: Client,
    seen: Vec<usize>,
}

impl Costs {
    fn new() -> Costs {
        let cluster = TestCluster::start(3, 1, None);
        for wire in &cluster.wires {
            wire.record();
        }
        cluster.wait();
        let client = cluster.client(0);
        let mut costs = Costs { cluster, client, seen: vec![0; 3] };
        // A connection's first steps are not what is counted.
        costs.settle();
        costs
    }

    fn key(&self, store: usize, name: &str) -> String {
        self.cluster.key(store, name)
    }

    /// All that went to each node so far.
    fn all(&self) -> Vec<Vec<String>> {
        self.cluster.wires.iter().map(|wire| requests(&wire.recorded())).collect()
    }

    /// What went since the last time. A last request by each node, which comes after all others, ends it.
    fn settle(&mut self) -> Vec<Vec<String>> {
        let last: Vec<String> = (0..3).map(|store| self.key(store, "last")).collect();
        for key in &last {
            self.client.call(["EXISTS", key]);
        }
        let mut all = self.all();
        let is_last = |sent: &[String]| sent.last().is_some_and(|last| last == "execute");
        wait_until("the last request is there", || {
            all = self.all();
            all.iter().all(|sent| is_last(sent))
        });
        let news =
            all.iter().zip(&self.seen).map(|(sent, seen)| sent[*seen..sent.len() - 1].to_vec()).collect();
        self.seen = all.iter().map(Vec::len).collect();
        news
    }

    fn of(&mut self, call: &[&str]) -> [String; 3] {
        let reply = notation::reply(&self.client.call(call));
        assert!(!reply.starts_with('-'), "{reply}");
        let news = self.settle();
        [0, 1, 2].map(|store| news[store].join(", "))
    }
}

#[test]
fn every_operation_costs_what_it_should() {
    let mut costs = Costs::new();
    let [a, b, c] = [0, 1, 2].map(|store| costs.key(store, "key"));
    let beside = costs.key(0, "beside");

    assert_eq!(costs.of(&["GET", &a]), ["execute", "", ""]);
    assert_eq!(costs.of(&["MSET", &a, "1", &beside, "2"]), ["execute", "", ""]);

    // However many results are used on one node: the first call comes with the locks, the others are done on what that
    // brings.
    let several = "for _ = 1, 9 do redis.call('INCR', KEYS[1]) end return redis.call('GET', KEYS[1])";
    assert_eq!(costs.of(&["EVAL", several, "1", &a]), ["begin call*10, commit", "", ""]);
    let used = "local sum = 0 for _ = 1, 9 do sum = sum + redis.call('INCR', KEYS[1]) end return sum";
    assert_eq!(costs.of(&["EVAL", used, "1", &a]), ["begin call, commit", "", ""]);
    let reads = "return redis.call('GET', KEYS[1])";
    assert_eq!(costs.of(&["EVAL", reads, "1", &a]), ["begin call, abort", "", ""]);
    // No result that is used: everything at once. Keys that are not used cost nothing.
    let unused = "for at = 1, 9 do redis.call('SET', KEYS[1], at) end";
    assert_eq!(costs.of(&["EVAL", unused, "2", &a, &b]), ["begin call*9 commit", "", ""]);
    assert_eq!(costs.of(&["EVAL", "return 1", "2", &a, &b]), ["", "", ""]);
    // Keys that were not named: one step for each, if their results are used.
    let undeclared = "return redis.call('INCR', ARGV[1]) + redis.call('INCR', ARGV[2])";
    assert_eq!(costs.of(&["EVAL", undeclared, "0", &a, &beside]), ["begin call, begin, commit", "", ""]);
    let undeclared = "redis.call('INCR', ARGV[1]) redis.call('INCR', ARGV[2])";
    assert_eq!(costs.of(&["EVAL", undeclared, "0", &a, &beside]), ["begin call*2 commit", "", ""]);
    let behind = format!("local value = redis.call('GET', KEYS[1]) {undeclared} return value");
    let sent = costs.of(&["EVAL", &behind, "1", &a, &a, &beside]);
    assert_eq!(sent, ["begin call, begin call commit", "", ""]);

    // On two nodes: what was only read is confirmed, one round trip more than on one.
    let copies = "return redis.call('SET', KEYS[2], redis.call('GET', KEYS[1]) or '')";
    assert_eq!(costs.of(&["EVAL", copies, "2", &b, &a]), ["begin, commit", "begin call, confirm, abort", ""]);
    let looks = "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}";
    assert_eq!(
        costs.of(&["EVAL", looks, "2", &a, &b]),
        ["begin call, confirm, abort", "begin, confirm, abort", ""]
    );

    // A hundred writes whose results nobody uses, over three nodes: they go with the end.
    let hundred = "for at = 1, 100 do redis.call('SET', KEYS[at % 3 + 1], at) end";
    let end = |calls: usize| format!("begin call*{calls} prepare, commit");
    let three = ["begin call*33, commit".to_owned(), end(34), end(33)];
    assert_eq!(costs.of(&["EVAL", hundred, "3", &a, &b, &c]), three);

    // The same on values that are too large to be copied: no difference.
    for key in [&a, &b, &c] {
        costs.client.call(["SET", key, &"x".repeat(100 << 10)]);
    }
    costs.settle();
    let hundred = "for at = 1, 100 do redis.call('APPEND', KEYS[at % 3 + 1], at) end";
    assert_eq!(costs.of(&["EVAL", hundred, "3", &a, &b, &c]), three);
    // One step for each result of such a value that is used, the first of them with the locks; what follows it goes with
    // the end.
    let parts = "local n = 0 for _ = 1, 3 do n = n + #redis.call('GETRANGE', KEYS[1], 0, 9) end \
                 redis.call('APPEND', KEYS[1], 'x') redis.call('APPEND', KEYS[1], 'y') return n";
    assert_eq!(costs.of(&["EVAL", parts, "1", &a]), ["begin call, call, call, call*2 commit", "", ""]);
    let both = "local n = redis.call('APPEND', KEYS[1], 'x') return n + redis.call('APPEND', KEYS[2], 'x')";
    assert_eq!(
        costs.of(&["EVAL", both, "2", &a, &b]),
        ["begin call, commit", "begin, call, prepare, commit", ""]
    );
}

/// What cannot go together is done step by step, and answers the same.
#[test]
fn what_comes_to_nothing_at_once_is_done_step_by_step() {
    let mut costs = Costs::new();
    let [a, b] = [0, 1].map(|store| costs.key(store, "key"));
    let run = |costs: &mut Costs, call: &[&str]| notation::reply(&costs.client.call(call));
    run(&mut costs, &["SET", &a, "text"]);

    // An error of a call whose result is not used ends the script where the call stands: what is before it stays.
    let fails = "redis.call('SET', KEYS[2], 'before') redis.call('INCR', KEYS[1]) redis.call('SET', KEYS[2], 'behind')";
    let reply = run(&mut costs, &["EVAL", fails, "2", &a, &b]);
    assert!(reply.contains("not an integer"), "{reply}");
    assert_eq!(run(&mut costs, &["GET", &b]), "\"before\"");
    // That of pcall is nobody's business.
    let tolerates = "redis.pcall('INCR', KEYS[1]) redis.call('SET', KEYS[1], 'behind')";
    costs.settle();
    assert_eq!(costs.of(&["EVAL", tolerates, "1", &a]), ["begin call*2 commit", "", ""]);
    assert_eq!(run(&mut costs, &["GET", &a]), "\"behind\"");

    // Whoever wants to know the time first begins with that; the next run knows it.
    let time = "local now = redis.call('TIME') redis.call('SET', KEYS[1], now[1]) return now[1]";
    costs.settle();
    assert_eq!(costs.of(&["EVAL", time, "1", &a]), ["begin, commit", "", ""]);
    assert_eq!(costs.of(&["EVAL", time, "1", &a]), ["begin, commit", "", ""]);

    // Those who want the same key wait for each other before they run, and are not counted as repeated.
    let reruns = |costs: &Costs| costs.cluster.gateways[0].server().info("scripts_rerun");
    let before = reruns(&costs);
    run(&mut costs, &["SET", &a, "0"]);
    let adds = "local n = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], n + 1) return n";
    let mut clients: Vec<Client> = (0..4).map(|_| costs.cluster.client(0)).collect();
    for _ in 0..25 {
        clients.iter_mut().for_each(|client| client.send(["EVAL", adds, "1", &a]));
    }
    for client in &mut clients {
        for _ in 0..25 {
            let reply = notation::reply(&client.read());
            assert!(!reply.starts_with('-'), "{reply}");
        }
    }
    assert_eq!(run(&mut costs, &["GET", &a]), "\"100\"");
    assert_eq!(reruns(&costs), before);
}

/// Calls of a script without atomicity that it does not wait for have all arrived before one of them is answered.
#[test]
fn calls_without_atomicity_go_together() {
    let mut costs = Costs::new();
    let [a, b, c] = [0, 1, 2].map(|store| costs.key(store, "key"));
    let hundred = "--!df flags=disable-atomicity
        for at = 1, 100 do redis.call('SET', KEYS[at % 3 + 1], at) end";
    costs.cluster.wires.iter().for_each(|wire| wire.set_deaf(true));
    costs.client.send(["EVAL", hundred, "3", &a, &b, &c]);
    wait_until("all have arrived", || {
        let news = costs.all().into_iter().zip(&costs.seen).map(|(sent, seen)| sent.len() - seen);
        news.collect::<Vec<_>>() == [33, 34, 33]
    });
    costs.cluster.wires.iter().for_each(|wire| wire.set_deaf(false));
    assert_eq!(notation::reply(&costs.client.read()), "nil");
    let values = [a, b, c].map(|key| notation::reply(&costs.client.call(["GET", &key])));
    assert_eq!(values, ["\"99\"", "\"100\"", "\"98\""]);
}
