//! The limit of memory: how the store keeps it, and when commands are refused because it cannot.

use std::time::Duration;

use store::{Demand, Evicted};
use store_engine::evict::{Order, Policy};
use store_engine::{Aging, CommandError};

use crate::config::Config;
use crate::observe::unix_ms;
use crate::server::Server;

/// The refusal of a command that needs memory.
pub const FULL: CommandError = CommandError::new("OOM command not allowed when used memory > 'maxmemory'.");

/// How long the background evicts keys in a row.
const BACKGROUND: Duration = Duration::from_millis(1);

impl Config {
    /// Which keys are evicted when memory is short.
    fn policy(&self) -> Option<Policy> {
        // In the order of the words.
        let (volatile, order) = match self.maxmemory_policy.get() {
            0 => (true, Order::Idle),
            1 => (true, Order::Rare),
            2 => (true, Order::Random),
            3 => (true, Order::Soonest),
            4 => (false, Order::Idle),
            5 => (false, Order::Rare),
            6 => (false, Order::Random),
            _ => return None,
        };
        Some(Policy { volatile, order })
    }

    /// What is remembered of accesses to keys.
    fn aging(&self) -> Aging {
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        match self.policy().map(|policy| policy.order) {
            Some(Order::Rare) => Aging::Frequency {
                log_factor: small(self.lfu_log_factor.get()),
                decay_minutes: small(self.lfu_decay_time.get()),
            },
            _ => Aging::Recency,
        }
    }

    /// How long a command may evict keys.
    fn eviction_time(&self) -> Duration {
        match self.maxmemory_eviction_tenacity.get() {
            tenacity @ 0..=10 => Duration::from_micros(50 * tenacity),
            tenacity @ 11..100 => Duration::from_micros(500).mul_f64(1.15_f64.powf((tenacity - 10) as f64)),
            _ => Duration::from_secs(86_400),
        }
    }
}

impl Server {
    /// Tells the store what the configuration says about memory: at the start and after each `CONFIG SET`.
    pub fn apply_memory_settings(&self) {
        self.node.set_aging(self.config.aging());
        self.node.keep_account(self.config.maxmemory.get() > 0);
        self.memory_is_short.notify_one();
    }

    /// Whether commands that need memory have to be refused. Makes room first, if that is possible.
    pub fn memory_is_full(&self) -> bool {
        let limit = self.config.maxmemory.get_usize();
        if limit == 0 || self.node.accounted_bytes() <= limit {
            return false;
        }
        match self.evict(self.config.eviction_time()) {
            Evicted::Enough => false,
            Evicted::More => {
                self.memory_is_short.notify_one();
                false
            }
            Evicted::Nobody => true,
        }
    }

    fn evict(&self, time: Duration) -> Evicted {
        let limit = match self.config.maxmemory.get_usize() {
            0 => usize::MAX,
            limit => limit,
        };
        let samples = self.config.maxmemory_samples.get_usize();
        self.node.evict(&Demand { limit, policy: self.config.policy(), samples, time }, unix_ms())
    }

    /// Makes room for as long as the process lives, whenever a command has left that to be done.
    pub async fn make_room(&self) {
        loop {
            self.memory_is_short.notified().await;
            while self.evict(BACKGROUND) == Evicted::More {
                tokio::task::yield_now().await;
            }
        }
    }
}
