//! One replica of a group from its start to its end: the node is read from disk, follows the group, leads it, and is read
//! again if it has lost the leadership.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::copy::Copied;
use super::driver::{GroupState, ReplicaHandle};
use super::entry;
use crate::journal::{DiskError, Open, Reads, fail_point};
use crate::node::Node;
use crate::persist::Kept;

/// How much is applied before the node is left to others for a moment.
const APPLY_BYTES: usize = 1 << 20;
/// How often the log learns what the node has on disk.
const REPORT: Duration = Duration::from_secs(1);

/// The pause between two attempts to get a copy of the data.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a leader looks whether the driver stands still.
const STANDSTILL_CHECK: Duration = Duration::from_millis(500);

/// A copy of the data of a group that is on the disk of this process's node, or why there is none.
pub type Fetched = Pin<Box<dyn Future<Output = Result<Copied, String>> + Send>>;

/// Is given a node that was read into memory.
pub type Opened = Arc<dyn Fn(&Arc<Node>) + Send + Sync>;

/// What a replica needs of its process.
pub struct GroupSettings {
    /// Opens the disk of the node.
    pub open: Arc<dyn Fn() -> Open + Send + Sync>,
    /// Is given the node when it is in memory.
    pub opened: Opened,
    /// Gets a copy of the data from the leader, in place of what the disk of the node has.
    pub fetch: Arc<dyn Fn() -> Fetched + Send + Sync>,
    /// How many shards the node has.
    pub shards: usize,
    /// How it knows that it leads when it answers.
    pub reads: Reads,
    /// Logs what an operator has to know.
    pub warn: fn(&str),
}

/// A replica, as long as it takes part in its group.
pub struct Group {
    settings: GroupSettings,
    replica: ReplicaHandle,
    stop: watch::Receiver<bool>,
}

/// Why a replica takes part no more.
#[derive(Debug)]
pub enum GroupError {
    /// The node's disk.
    Disk(DiskError),
    /// An entry that the group has committed cannot be applied.
    Entry(u64),
    /// The node lacks this record, and the log begins later.
    Gap(u64),
    /// A thread has panicked.
    Panic,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Disk(error) => error.fmt(f),
            GroupError::Entry(index) => write!(f, "entry {index} of the replicated log cannot be applied"),
            GroupError::Gap(record) => {
                write!(f, "record {record} is missing, and the replicated log begins later")
            }
            GroupError::Panic => f.write_str("a thread has panicked"),
        }
    }
}

impl std::error::Error for GroupError {}

/// How a replica ended what it did.
enum Left {
    /// It leads now, in this term.
    Lead(u64),
    /// It needs a copy of the data.
    Copy,
    /// It is to end.
    Stop,
}

impl Group {
    /// A replica that takes part until `stop` says so.
    pub fn new(settings: GroupSettings, replica: ReplicaHandle, stop: watch::Receiver<bool>) -> Group {
        Group { settings, replica, stop }
    }

    /// Takes part in the group. While it leads, `serve` is done with the node; it is given what says when the node
    /// leads no more, and must end soon after that.
    pub async fn run<F>(mut self, serve: impl Fn(Arc<Node>, Leadership) -> F) -> Result<(), GroupError>
    where
        F: Future<Output = ()>,
    {
        loop {
            let kept = self.open().await?;
            let node = kept.node.clone();
            (self.settings.opened)(&node);
            let left = match self.follow(&node).await {
                // The data on disk is older than the log.
                Err(GroupError::Gap(_)) => Left::Copy,
                left => left?,
            };
            if let Left::Lead(term) = left {
                if let Some(journal) = node.journal() {
                    journal.lead();
                }
                self.replica.lead(node.clone(), term);
                let leadership = Leadership {
                    state: self.replica.state(),
                    stop: self.stop.clone(),
                    term,
                    replica: self.replica.clone(),
                };
                let reporting = report(self.replica.clone(), node.clone());
                tokio::select! {
                    () = serve(node.clone(), leadership) => {}
                    () = reporting => {}
                }
            }
            let is_whole = node
                .journal()
                .and_then(|journal| Some((journal.newest(), journal.group()?)))
                .is_some_and(|(newest, group)| group.progress().committed >= newest);
            if let Some(group) = node.journal().and_then(|journal| journal.group()) {
                group.report(|progress| progress.is_lost = true);
            }
            drop(node);
            let closed =
                spawn_blocking(move || kept.close(!is_whole)).await.map_err(|_| GroupError::Panic)?;
            if let Err(failure) = closed {
                (self.settings.warn)(&format!("group {}: {}", self.replica.group.0, failure.detail));
            }
            let now = *self.replica.state().borrow();
            if *self.stop.borrow() || now.is_over {
                return Ok(());
            }
            if matches!(left, Left::Copy) {
                self.copy().await;
            }
            // What it has proposed in this term may still be committed, and the next node would not have it.
            if let Left::Lead(term) = left
                && !is_whole
            {
                self.resign(term).await;
            }
        }
    }

    /// Leads no more in this term, or is to end.
    async fn resign(&mut self, term: u64) {
        self.replica.resign(term);
        let mut state = self.replica.state();
        tokio::select! {
            // An error: there is no driver any more.
            _ = state.wait_for(|state| !state.leads_in(term)) => {}
            _ = self.stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Gets a copy of the data from the leader, unless it is to end.
    async fn copy(&mut self) {
        let (state, group) = (self.replica.state(), self.replica.group.0);
        let mut before = String::new();
        for attempt in 0.. {
            // A leader that lacks data lets another replica lead, which has it.
            let others = self.replica.followers();
            if state.borrow().role.leads && !others.is_empty() {
                self.replica.transfer(others[attempt % others.len()].id);
            }
            let fetched = tokio::select! {
                fetched = (self.settings.fetch)() => fetched,
                _ = self.stop.wait_for(|stop| *stop) => return,
            };
            match fetched {
                Ok(copied) => return self.replica.copied(copied).await,
                Err(_) if state.borrow().is_over => return,
                Err(error) if error != before => {
                    (self.settings.warn)(&format!("group {group}: cannot copy the data: {error}"));
                    before = error;
                }
                Err(_) => {}
            }
            // An error: it has not stopped meanwhile.
            let _ = timeout(AGAIN, self.stop.wait_for(|stop| *stop)).await;
            if !state.borrow().awaits_copy {
                return;
            }
        }
    }

    async fn open(&self) -> Result<Kept, GroupError> {
        let GroupSettings { open, shards, reads, .. } = &self.settings;
        let (open, shards, reads, replica) = (open(), *shards, *reads, self.replica.clone());
        let wake = Box::new(move || replica.wake());
        let opened = spawn_blocking(move || Kept::open_replica(open, shards, reads, wake)).await;
        opened.map_err(|_| GroupError::Panic)?.map_err(GroupError::Disk)
    }

    /// Applies what the group commits until this replica leads.
    async fn follow(&mut self, node: &Arc<Node>) -> Result<Left, GroupError> {
        let mut state = self.replica.state();
        // Those that the node has are skipped by the numbers of their records.
        let mut next = self.replica.log.before().index + 1;
        loop {
            let seen = *state.borrow_and_update();
            if seen.is_over || *self.stop.borrow() {
                return Ok(Left::Stop);
            }
            if seen.awaits_copy {
                return Ok(Left::Copy);
            }
            loop {
                let (node, log, from) = (node.clone(), self.replica.log.clone(), next);
                let applied = spawn_blocking(move || {
                    fail_point::pass("applying");
                    apply(&node, &log, from)
                });
                let applied = applied.await;
                let after = applied.map_err(|_| GroupError::Panic)??;
                if after == next {
                    break;
                }
                next = after;
            }
            self.replica.note_applied(next - 1);
            self.report_durable(node);
            if seen.is_ready_to_lead && next > seen.committed {
                return Ok(Left::Lead(seen.role.term));
            }
            let changed = tokio::select! {
                changed = timeout(REPORT, state.changed()) => changed,
                _ = self.stop.changed() => Ok(Ok(())),
            };
            if matches!(changed, Ok(Err(_))) {
                // There is no driver any more.
                return Ok(Left::Stop);
            }
        }
    }

    fn report_durable(&self, node: &Node) {
        if let Some(journal) = node.journal() {
            self.replica.durable(journal.progress().durable);
        }
    }
}

/// While a node leads: says what the log is not needed for any more.
async fn report(replica: ReplicaHandle, node: Arc<Node>) {
    loop {
        sleep(REPORT).await;
        if let Some(journal) = node.journal() {
            replica.durable(journal.progress().durable);
        }
    }
}

/// Applies committed entries from this one on; which one is next.
fn apply(node: &Node, log: &consensus::Log, from: u64) -> Result<u64, GroupError> {
    let newest = || node.journal().map_or(0, |journal| journal.newest());
    // The log may have been shortened by what the node has.
    let (mut next, entries) = loop {
        let from = from.max(log.before().index + 1);
        if let Some(entries) = log.committed(from, APPLY_BYTES) {
            break (from, entries);
        }
    };
    for committed in entries {
        let damaged = |_| GroupError::Entry(committed.position.index);
        if let Some(entry) = entry::decode(&committed.data.whole()).map_err(damaged)? {
            if entry.first > newest() + 1 {
                return Err(GroupError::Gap(newest() + 1));
            }
            node.apply_committed(&entry).map_err(damaged)?;
        }
        next = committed.position.index + 1;
    }
    Ok(next)
}

/// That a node leads its group.
#[derive(Clone)]
pub struct Leadership {
    state: watch::Receiver<GroupState>,
    stop: watch::Receiver<bool>,
    term: u64,
    replica: ReplicaHandle,
}

impl Leadership {
    /// In which term it leads.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Done when the node leads no more. Whether it is to end, and still leads.
    pub async fn lost(&mut self) -> bool {
        let (term, replica) = (self.term, &self.replica);
        let stands_still = async {
            while !replica.stands_still() {
                sleep(STANDSTILL_CHECK).await;
            }
        };
        tokio::select! {
            // An error: there is no driver any more.
            _ = self.state.wait_for(|state| !state.leads_in(term)) => false,
            () = stands_still => false,
            _ = self.stop.wait_for(|stop| *stop) => true,
        }
    }

    /// The replicas that could lead in its place.
    pub fn successors(&self) -> Vec<u64> {
        let voters = self.replica.log.members().voters;
        let mut others = self.replica.followers();
        others.retain(|other| voters.contains(&other.id) && other.is_active);
        // Those that lack least first.
        others.sort_unstable_by_key(|other| std::cmp::Reverse(other.matched));
        others.into_iter().map(|other| other.id).collect()
    }

    /// Hands the leadership over to one of these replicas, and waits until it is gone, at most for `limit`.
    pub async fn hand_over(&mut self, others: &[u64], limit: Duration) {
        let term = self.term;
        let lost = |state: &GroupState| !state.leads_in(term);
        let share = limit / (others.len().max(1) as u32);
        for other in others {
            self.replica.transfer(*other);
            if timeout(share, self.state.wait_for(lost)).await.is_ok() {
                return;
            }
        }
    }
}
