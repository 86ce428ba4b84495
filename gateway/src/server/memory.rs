//! The limit of memory, as the configuration has it. The store keeps it.

use std::time::Duration;

use store::{Limit, Node, Store, TxnLimits};
use store_engine::evict::Order;
use store_engine::hyperloglog::SparseLimit;
use store_engine::{Aging, CommandError};

use crate::config::Config;
use crate::telemetry::counters::unix_ms;

/// The refusal of a command that needs memory.
pub const FULL: CommandError = store::server::FULL;

impl Config {
    /// What is remembered of accesses to keys.
    fn aging(&self) -> Aging {
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        match self.maxmemory_policy.get().map(|policy| policy.order) {
            Some(Order::Rare) => Aging::Frequency {
                log_factor: small(self.lfu_log_factor.get()),
                decay_minutes: small(self.lfu_decay_time.get()),
            },
            _ => Aging::Recency,
        }
    }

    /// From how many bytes on a HyperLogLog is dense.
    pub fn sparse_limit(&self) -> SparseLimit {
        SparseLimit(self.hll_sparse_max_bytes.get_usize())
    }

    /// How long a command may evict keys.
    fn eviction_time(&self) -> Duration {
        match self.maxmemory_eviction_tenacity.get() {
            tenacity @ 0..=10 => Duration::from_micros(50 * tenacity),
            tenacity @ 11..100 => Duration::from_micros(500).mul_f64(1.15_f64.powf((tenacity - 10) as f64)),
            _ => Duration::from_secs(86_400),
        }
    }

    /// Tells the node what the configuration says about its data: at the start and after each `CONFIG SET`.
    pub fn apply_settings_of_data(&self, node: &Node) {
        node.set_aging(self.aging());
        node.set_sparse_limit(self.sparse_limit());
        node.set_limit(Limit {
            bytes: self.maxmemory.get_usize(),
            policy: self.maxmemory_policy.get(),
            samples: self.maxmemory_samples.get_usize(),
            time: self.eviction_time(),
        });
        node.notify(u32::try_from(self.notify_keyspace_events.get()).unwrap_or_default());
    }

    /// The limits of a transaction of commands.
    pub fn transaction_limits(&self) -> TxnLimits {
        TxnLimits {
            undo_bytes: self.transaction_memory_max.get_usize(),
            on_full: self.maxmemory_transactions.get(),
            // What Redis allows without a limit: commands of a script or transaction that has begun to write.
            slack_bytes: self.script_memory.get_usize(),
        }
    }
}

/// Whether the data exceeds its limit by more than `slack_bytes`, as [`is_full`] knows it.
pub fn exceeds_limit(store: &Store, slack_bytes: usize) -> bool {
    store.exceeds_limit(slack_bytes, unix_ms())
}

/// Whether commands that need memory have to be refused. Makes room first, if that is possible. Of nodes in
/// other processes it is known as of a second ago; they refuse what they have no room for.
pub fn is_full(store: &Store) -> bool {
    exceeds_limit(store, 0)
}
