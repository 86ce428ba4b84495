//! Clients that count in keys of all groups of a cluster while something happens to it: nothing that was acknowledged is lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::TestCluster;
use crate::{Client, SetOnDrop, Value};

/// Counts in two keys of different groups, together.
const BOTH: &str =
    "for _, key in ipairs(KEYS) do redis.call('INCR', key) end return redis.call('GET', KEYS[1])";

/// What a client was told: the highest count of each key, and how often what went wrong.
#[derive(Default)]
pub struct Told {
    /// The highest count of each key.
    pub counts: BTreeMap<String, i64>,
    errors: BTreeMap<String, u64>,
}

impl Told {
    fn hear(&mut self, key: &str, reply: Value) {
        let count = match &reply {
            Value::Integer(count) => *count,
            Value::Error(text) => {
                let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
                *self.errors.entry(String::from_utf8_lossy(word).into_owned()).or_default() += 1;
                return;
            }
            other => String::from_utf8_lossy(other.text().expect("a count")).parse().expect("a number"),
        };
        let known = self.counts.entry(key.to_owned()).or_default();
        assert!(count > *known, "{key} was {known} and is {count}");
        *known = count;
    }

    /// Nothing else went wrong, and most went right.
    pub fn failed_only_with(&self, words: &[&str]) {
        assert!(self.errors.keys().all(|word| words.contains(&&**word)), "{:?}", self.errors);
        let (failed, done) = (self.errors.values().sum::<u64>(), self.counts.values().sum::<i64>());
        assert!(failed < 20 && done > 10, "{failed} of {done}: {:?}", self.errors);
    }

    /// Nothing that was acknowledged is lost.
    fn check(&self, client: &mut Client) {
        for (key, told) in &self.counts {
            let found = client.call(["GET", key]);
            let found: i64 =
                String::from_utf8_lossy(found.text().expect("it is there")).parse().expect("a number");
            assert!(found >= *told, "{key} is {found}, {told} was acknowledged");
        }
    }
}

/// Counts in keys of all groups until it is over.
fn count(mut client: Client, own: &[String], both: &[String], over: &AtomicBool) -> Told {
    let mut told = Told::default();
    while !over.load(Ordering::Relaxed) {
        for key in own {
            told.hear(key, client.call(["INCR", key]));
        }
        let keys: Vec<&str> = both.iter().map(String::as_str).collect();
        told.hear(&both[0], client.eval(BOTH, &keys, &[]));
        std::thread::sleep(Duration::from_millis(10));
    }
    told
}

/// Counts while something happens; what the clients were told.
pub fn counted(cluster: &mut TestCluster, name: &str, happens: impl FnOnce(&mut TestCluster)) -> Told {
    let keys = |what: &str| -> Vec<String> {
        (0..3).map(|store| cluster.key(store, &format!("{name}:{what}"))).collect()
    };
    let (own, both, over) = (keys("own"), keys("both"), AtomicBool::new(false));
    let client = cluster.client(0);
    let told = std::thread::scope(|scope| {
        let counting = scope.spawn(|| count(client, &own, &both, &over));
        // Also if what happens fails: the scope waits for the thread.
        let end = SetOnDrop(&over);
        happens(cluster);
        drop(end);
        counting.join().expect("it does not panic")
    });
    cluster.wait();
    told.check(&mut cluster.client(0));
    // A script over several groups is whole.
    let mut client = cluster.client(0);
    let values: Vec<Value> = both.iter().map(|key| client.call(["GET", key])).collect();
    assert!(values.iter().all(|value| *value == values[0]), "half of a script: {values:?}");
    told
}

/// Goes on for a while after all groups have a leader.
pub fn goes_on(cluster: &TestCluster) {
    cluster.wait();
    std::thread::sleep(Duration::from_millis(300));
}
