//! Work on the data that no request does: expired keys are removed, and keys evicted when commands leave that undone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::observe::unix_ms;
use crate::server::Server;

/// How long expired keys are removed before others get the thread.
const TURN: Duration = Duration::from_millis(1);

/// Runs for as long as the server.
pub async fn run(server: Arc<Server>) {
    tokio::join!(remove_expired(&server), server.make_room());
}

/// Removes expired keys that nobody asks for. As in Redis this takes a bounded share of the time; nothing is looked
/// at that cannot have expired.
async fn remove_expired(server: &Server) {
    let mut shard = 0;
    loop {
        let tick = Duration::from_millis(1000 / server.config.hz.get().max(1));
        let percent = 23 + 2 * server.config.active_expire_effort.get();
        let spent = sweep(server, &mut shard, tick * u32::try_from(percent).unwrap_or(100) / 100).await;
        tokio::time::sleep(tick.saturating_sub(spent)).await;
    }
}

/// Sweeps all shards from `shard` on until nothing can have expired or the time is up. Returns how long that took.
async fn sweep(server: &Server, shard: &mut usize, time: Duration) -> Duration {
    let (began, now_ms) = (Instant::now(), unix_ms());
    let mut turn = began;
    for _ in 0..server.node.shards() {
        while server.node.sweep(*shard, now_ms) {
            if began.elapsed() >= time {
                return began.elapsed();
            }
            if turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        *shard = (*shard + 1) % server.node.shards();
    }
    began.elapsed()
}
