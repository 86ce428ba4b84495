//! What all rounds of an atomic unit see alike, and what one may lack, so that there is another.

use std::time::{Duration, Instant};

use store::{Conflict, LimitReached};
use store_engine::CommandError;
use tokio::time::sleep;

use crate::config::AutoAsync;
use crate::server::Server;

/// The circumstances of a unit, which every round sees alike.
#[derive(Clone, Copy)]
pub(super) struct RunContext {
    pub now_ms: u64,
    /// What TIME shows beside it: nothing else is that exact.
    pub micros: u32,
    pub clock_seconds: f64,
    pub seed: u64,
    pub db: usize,
    pub read_only: bool,
    /// Memory was full when the unit began: it may not begin to write with a call that needs some.
    pub full: bool,
    /// Which does not matter.
    pub spares_memory: bool,
}

impl RunContext {
    /// The present time, which stands still for a script.
    pub(super) fn clock(&self) -> Duration {
        Duration::from_millis(self.now_ms) + Duration::from_micros(self.micros.into())
    }
}

/// Which calls are sent later and together, of those whose results are not read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Collects {
    /// None.
    Nothing,
    /// Those that a node elsewhere has to do: each would cost a round trip.
    Away,
    /// All.
    All,
}

impl Collects {
    /// What is collected until a call fails that was.
    pub fn at_first(server: &Server) -> Collects {
        match (server.config.script_auto_async.get(), server.store.is_shared()) {
            (AutoAsync::Always, _) => Collects::All,
            (_, true) => Collects::Away,
            (_, false) => Collects::Nothing,
        }
    }

    /// What is collected after this was lacking.
    pub fn after(self, retry: &RetryReason) -> Collects {
        if matches!(retry, RetryReason::Order) { Collects::Nothing } else { self }
    }
}

/// What an atomic script lacked.
pub(super) enum RetryReason {
    /// Something that is not locked.
    Lock(Conflict),
    /// The error of a collected call, where the call stands in the script: nothing may be collected.
    Order,
    /// Its locks, before its first call.
    Begin,
    /// Memory that its writes, or rolling them back, would need: it cannot be repeated.
    Limit(LimitReached),
    /// A node that has part of the transaction: it cannot be repeated, and nothing was done.
    Node(CommandError),
    /// The leader of a group of replicas that has part of it: the next one may do it, unless that takes too long.
    Leader(CommandError),
}

/// How long a transaction is begun again because a group of replicas gets another leader.
#[derive(Default)]
pub(super) struct RetryWindow(Option<Instant>);

/// An election takes one to two seconds.
const RETRY_WINDOW: Duration = Duration::from_secs(5);
/// Between two attempts.
const LEADER_PAUSE: Duration = Duration::from_millis(20);

impl RetryWindow {
    /// Whether it may be begun once more, after a pause.
    pub async fn is_open(&mut self) -> bool {
        let is_open = self.0.get_or_insert_with(Instant::now).elapsed() < RETRY_WINDOW;
        if is_open {
            sleep(LEADER_PAUSE).await;
        }
        is_open
    }
}

impl From<Conflict> for RetryReason {
    fn from(conflict: Conflict) -> RetryReason {
        match conflict {
            Conflict::Limit(limit) => RetryReason::Limit(limit),
            conflict => RetryReason::Lock(conflict),
        }
    }
}

impl RetryReason {
    /// What has to be locked.
    pub fn conflict(self) -> Option<Conflict> {
        match self {
            RetryReason::Lock(conflict) => Some(conflict),
            RetryReason::Order
            | RetryReason::Begin
            | RetryReason::Limit(_)
            | RetryReason::Node(_)
            | RetryReason::Leader(_) => None,
        }
    }
}
