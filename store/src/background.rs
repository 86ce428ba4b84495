//! Work on the data that no request does: expired keys are removed, and keys evicted when commands leave that undone.

use std::time::{Duration, Instant};

use crate::node::Node;

/// How much of the time goes into that.
#[derive(Clone, Copy, Debug)]
pub struct ExpiryPace {
    /// How often expired keys are looked for.
    pub tick: Duration,
    /// How much of that time may be spent on removing them; nothing: they are left alone.
    pub budget: Duration,
}

/// How long expired keys are removed before others get the thread.
const SLICE: Duration = Duration::from_millis(1);

/// Runs for as long as it is polled. `clock` returns the Unix time in milliseconds.
pub async fn run(node: &Node, pace: impl Fn() -> ExpiryPace, clock: impl Fn() -> u64) {
    tokio::join!(remove_expired(node, pace, &clock), node.make_room(&clock));
}

/// Removes expired keys that no client reads. As in Redis this takes a bounded share of the time; nothing is looked
/// at that cannot have expired.
async fn remove_expired(node: &Node, pace: impl Fn() -> ExpiryPace, clock: impl Fn() -> u64) {
    let mut shard = 0;
    loop {
        let ExpiryPace { tick, budget } = pace();
        let spent = match budget.is_zero() {
            true => Duration::ZERO,
            false => sweep(node, &mut shard, budget, clock()).await,
        };
        tokio::time::sleep(tick.saturating_sub(spent)).await;
    }
}

/// Sweeps all shards from `shard` on until nothing can have expired or the time is up. Returns how long that took.
async fn sweep(node: &Node, shard: &mut usize, time: Duration, now_ms: u64) -> Duration {
    let began = Instant::now();
    let mut slice = began;
    for _ in 0..node.shards() {
        while node.sweep(*shard, now_ms) {
            if began.elapsed() >= time {
                return began.elapsed();
            }
            if slice.elapsed() >= SLICE {
                tokio::task::yield_now().await;
                slice = Instant::now();
            }
        }
        *shard = (*shard + 1) % node.shards();
    }
    began.elapsed()
}
