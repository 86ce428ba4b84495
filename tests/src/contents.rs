//! All that a server holds, in a form that two servers can be compared in.

use std::collections::BTreeMap;

use resp::Value;

use crate::generate::Call;
use crate::{Client, notation, workload};

/// What a server holds, by database and key. Loaded libraries and scripts are in it under names of their own.
pub type Contents = BTreeMap<(usize, Vec<u8>), Vec<String>>;

/// The database that libraries and scripts are shown in.
const NO_DATABASE: usize = usize::MAX;

/// Reads everything in the databases that chores use.
pub fn read(client: &mut Client) -> Contents {
    let mut contents = Contents::new();
    for db in [0].into_iter().chain(workload::OWN_DATABASES) {
        assert_eq!(notation::reply(&client.call(["SELECT", &db.to_string()])), "+OK");
        let keys = texts(client.run("KEYS *"));
        let types = client.pipeline(&keys.iter().map(|key| words(&[b"TYPE", key])).collect::<Vec<_>>());
        let mut requests = Vec::new();
        for (key, kind) in keys.iter().zip(&types) {
            requests.push(match &*notation::reply(kind) {
                "+list" => words(&[b"LRANGE", key, b"0", b"-1"]),
                "+hash" => words(&[b"HGETALL", key]),
                "+set" => words(&[b"SMEMBERS", key]),
                "+zset" => words(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]),
                "+stream" => words(&[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]),
                _ => words(&[b"GET", key]),
            });
            requests.push(words(&[b"PEXPIRETIME", key]));
            requests.push(words(&[b"OBJECT", b"STICKY", key]));
        }
        let replies = client.pipeline(&requests);
        for ((key, kind), replies) in keys.into_iter().zip(&types).zip(replies.chunks(3)) {
            let kind = notation::reply(kind);
            let mut reported = match (&*kind, &replies[0]) {
                ("+hash", Value::Array(items)) => {
                    items.chunks(2).map(|pair| format!("{:?} = {:?}", pair[0], pair[1])).collect()
                }
                (_, Value::Array(items)) => items.iter().map(notation::reply).collect(),
                (_, other) => vec![notation::reply(other)],
            };
            if matches!(&*kind, "+hash" | "+set") {
                reported.sort();
            }
            reported.push(format!("{kind}, expires {:?}, sticky {:?}", replies[1], replies[2]));
            contents.insert((db, key), reported);
        }
    }
    contents.extend(loaded(client).into_iter().map(|(name, what)| ((NO_DATABASE, name), vec![what])));
    contents
}

/// Libraries and scripts.
fn loaded(client: &mut Client) -> BTreeMap<Vec<u8>, String> {
    let mut loaded = BTreeMap::new();
    let Value::Array(libraries) = client.run("FUNCTION LIST WITHCODE") else { panic!("a list of libraries") };
    for library in libraries {
        let Value::Array(fields) = &library else { panic!("fields: {library:?}") };
        let name = fields[1].text().expect("a name");
        loaded.insert(name.to_vec(), notation::reply(&library));
    }
    for script in workload::scripts() {
        let sha = client.call(["EVAL", "return redis.sha1hex(ARGV[1])", "0", &script]);
        let exists = client.call([&b"SCRIPT"[..], b"EXISTS", sha.text().expect("a digest")]);
        loaded.insert(script.into_bytes(), notation::reply(&exists));
    }
    loaded
}

fn texts(reply: Value) -> Vec<Vec<u8>> {
    let Value::Array(items) = reply else { panic!("a list: {reply:?}") };
    items.iter().map(|item| item.text().expect("a string").to_vec()).collect()
}

fn words(words: &[&[u8]]) -> Call {
    words.iter().map(|word| word.to_vec()).collect()
}

/// The keys in which both differ, each with how.
pub fn difference(found: &Contents, expected: &Contents) -> BTreeMap<(usize, Vec<u8>), String> {
    let keys = found.keys().chain(expected.keys().filter(|key| !found.contains_key(*key)));
    let differing = keys.filter(|key| found.get(*key) != expected.get(*key));
    let shown = |key: &(usize, Vec<u8>)| {
        let held = [found, expected].map(|side| side.get(key).map_or(&[][..], Vec::as_slice));
        let at = (0..).find(|at| held[0].get(*at) != held[1].get(*at)).expect("they differ");
        let [found, expected] = held.map(|lines| {
            format!(
                "{} lines, of which line {at} is {:.80}",
                lines.len(),
                lines.get(at).map_or("", |line| line)
            )
        });
        format!("{} has {found}; expected: {expected}", key.1.escape_ascii())
    };
    differing.map(|key| (key.clone(), shown(key))).collect()
}
