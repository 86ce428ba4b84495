//! Which keys go when memory is short. A sticky key never does.

use crate::entry::Entry;
use crate::keyspace::Keyspace;

/// Which keys may be evicted, and which of them first: `maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Only keys with an expiry.
    pub volatile: bool,
    /// Who goes first.
    pub order: Order,
}

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Whoever was not used for the longest time: LRU.
    Idle,
    /// Whoever is used most seldom: LFU.
    Rare,
    /// Whoever expires next.
    Soonest,
    /// Anybody.
    Random,
}

impl Policy {
    /// Whether this entry may be evicted.
    fn allows(self, entry: &Entry) -> bool {
        !entry.sticky && (!self.volatile || entry.expire_at_ms.is_some())
    }
}

impl Keyspace {
    /// Number of keys that may be evicted.
    pub fn evictable(&self, policy: Policy) -> usize {
        let sticky = self.sticky();
        if policy.volatile { self.expiring() - sticky.expiring } else { self.len() - sticky.keys }
    }

    /// The first position from `from` on, among the next `steps`, whose key may be evicted and `veto` lets go.
    pub fn seek_evictable(
        &self,
        from: usize,
        steps: usize,
        policy: Policy,
        veto: impl Fn(&[u8]) -> bool,
    ) -> Option<usize> {
        let end = self.len().min(from.saturating_add(steps));
        let mut at = from;
        while at < end {
            if policy.volatile && self.expires_nowhere_at(at) {
                at = (at / crate::expiry_index::SPAN + 1) * crate::expiry_index::SPAN;
                continue;
            }
            let (key, entry) = self.pair_at(at)?;
            if policy.allows(entry) && !veto(key) {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// How much the key at `at` deserves to be evicted; `None`: it may not be.
    pub fn merit(&self, at: usize, policy: Policy, now_ms: u64) -> Option<u64> {
        let entry = Some(self.at(at)).filter(|entry| policy.allows(entry))?;
        let aging = self.aging();
        Some(match policy.order {
            Order::Idle => aging.idle_seconds(entry.stamp, now_ms).map_or(0, u64::from),
            Order::Rare => aging.frequency(entry.stamp, now_ms).map_or(0, |count| u64::from(u8::MAX - count)),
            Order::Soonest => u64::MAX - entry.expire_at_ms.map_or(u64::MAX, |at| at.get()),
            Order::Random => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    const ALL: Policy = Policy { volatile: false, order: Order::Idle };
    const VOLATILE: Policy = Policy { volatile: true, order: Order::Soonest };

    fn found(bench: &Bench, policy: Policy, veto: &str) -> Vec<String> {
        let space = &bench.partition.databases[0];
        let mut names = Vec::new();
        let mut from = 0;
        while let Some(at) = space.seek_evictable(from, 10_000, policy, |key| key == veto.as_bytes()) {
            names.push(
                String::from_utf8_lossy(space.pair_at(at).map_or(&[][..], |(key, _)| key)).into_owned(),
            );
            from = at + 1;
        }
        names
    }

    #[test]
    fn sticky_and_lasting_keys_are_passed_by() {
        let mut bench = Bench::new();
        bench.run("MSET a 1 b 2 c 3");
        bench.run("SET d 1 EX 100");
        bench.run("SET e 1 EX 100 STICK");
        bench.run("STICK b");
        assert_eq!(found(&bench, ALL, "c"), ["a", "d"]);
        assert_eq!(found(&bench, VOLATILE, ""), ["d"]);
        let space = &bench.partition.databases[0];
        assert_eq!((space.evictable(ALL), space.evictable(VOLATILE)), (3, 1));
    }

    #[test]
    fn what_expires_is_found_among_many_that_do_not() {
        let mut bench = Bench::new();
        for number in 0..3_000 {
            let expiry = if number % 1000 == 999 { " EX 100" } else { "" };
            bench.run(&format!("SET key:{number} v{expiry}"));
        }
        assert_eq!(found(&bench, VOLATILE, ""), ["key:999", "key:1999", "key:2999"]);
        bench.run("PERSIST key:999");
        assert_eq!(found(&bench, VOLATILE, "key:1999"), ["key:2999"]);
    }

    #[test]
    fn merit_follows_the_order() {
        let mut bench = Bench::new();
        bench.run("SET old 1 PX 300000");
        bench.now_ms += 20_000;
        bench.run("SET new 1 EX 100");
        let space = &bench.partition.databases[0];
        let merits = |policy| [0, 1].map(|at| space.merit(at, policy, bench.now_ms));
        assert_eq!(merits(ALL), [Some(20), Some(0)]);
        let [old, new] = merits(VOLATILE);
        assert!(new > old);
    }
}
