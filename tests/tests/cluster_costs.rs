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

    // However many results are used on one node: they are here already.
    let several = "for _ = 1, 9 do redis.call('INCR', KEYS[1]) end return redis.call('GET', KEYS[1])";
    assert_eq!(costs.of(&["EVAL", several, "1", &a]), ["begin, commit", "", ""]);
    let reads = "return redis.call('GET', KEYS[1])";
    assert_eq!(costs.of(&["EVAL", reads, "1", &a]), ["begin, abort", "", ""]);
    // Keys that were not named: one step for each.
    let undeclared = "return redis.call('INCR', ARGV[1]) + redis.call('INCR', ARGV[2])";
    assert_eq!(costs.of(&["EVAL", undeclared, "0", &a, &beside]), ["begin, begin, commit", "", ""]);

    // On two nodes: what was only read is confirmed, one round trip more than on one.
    let copies = "return redis.call('SET', KEYS[2], redis.call('GET', KEYS[1]) or '')";
    assert_eq!(costs.of(&["EVAL", copies, "2", &b, &a]), ["begin, commit", "begin, confirm, abort", ""]);
    let looks = "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}";
    assert_eq!(
        costs.of(&["EVAL", looks, "2", &a, &b]),
        ["begin, confirm, abort", "begin, confirm, abort", ""]
    );

    // A hundred writes whose results nobody uses, over three nodes: they go with the end.
    let hundred = "for at = 1, 100 do redis.call('SET', KEYS[at % 3 + 1], at) end";
    let end = "begin, prepare, commit";
    assert_eq!(costs.of(&["EVAL", hundred, "3", &a, &b, &c]), ["begin, commit", end, end]);

    // The same on values that are too large to be copied: one batch for each node.
    for key in [&a, &b, &c] {
        costs.client.call(["SET", key, &"x".repeat(100 << 10)]);
    }
    costs.settle();
    let hundred = "for at = 1, 100 do redis.call('APPEND', KEYS[at % 3 + 1], at) end";
    let sent = costs.of(&["EVAL", hundred, "3", &a, &b, &c]);
    let batch = |calls: usize| vec!["call"; calls].join(" ");
    let follows = |calls: usize| format!("begin, {}, prepare, commit", batch(calls));
    assert_eq!(sent, [format!("begin, {}, commit", batch(33)), follows(34), follows(33)]);
}
