//! A transaction over nodes in other processes.
//!
//! Its keys are locked on their nodes. Small values come with the locks, and commands run on these copies; the commit sends
//! the nodes the new values. Values that are too large for that are changed on their node, by commands that are sent
//! there, in a transaction of that node. So a script that reads and writes small values costs two round trips, whatever it
//! does, and one that is rolled back has changed nothing but copies.
//!
//! If several nodes have something to change, all but one prepare it; that one decides, see `server/pending.rs`.

mod bundle;
mod calls;
mod commit;
mod locks;
mod piggyback;
mod savepoints;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::store::v1 as wire;
use smallvec::SmallVec;
use store_engine::effect::{Effect, Effects};
use store_engine::notifications::Notification;
use store_engine::{Partition, Partitions, Reply, UndoLog};
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::step::Finish;

use self::bundle::{Late, once_each};
use super::cluster::{Cluster, lost_error, unexpected};
use super::error::TransactionError;
use super::link::{Link, Pending};
use super::lost::Lost;
use crate::call::{self, Call};
use crate::invalidations::Origin;
use crate::lock::{LockRequest, Mode};
use crate::topology::NodeId;
use crate::txn::{Conflict, LimitReached, OnFull, TxnLimits};

/// Values up to this size come with their locks.
const COPIED_BYTES: u32 = 64 << 10;
/// Bytes of copies that a transaction may hold in any case: calls on keys of several nodes work on copies.
const COPIES_MAX_BYTES: usize = 256 << 20;
/// How long a node that was lost while it committed is asked what became of that.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is asked.
const OUTCOME_PAUSE: Duration = Duration::from_millis(50);

/// Where the truth about a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyLocation {
    /// Here, in the copy.
    Local,
    /// On its node.
    Remote,
}

/// Keys by database, with how they are locked.
type KeyLocations = HashMap<(usize, Box<[u8]>), (KeyLocation, Mode), foldhash::fast::RandomState>;

/// The part of a transaction that is on one node.
struct Participant {
    node: NodeId,
    link: Arc<Link>,
    /// The stream that it lives and dies with.
    stream: u64,
    /// Something was changed there.
    wrote: bool,
}

impl Participant {
    /// Does a step where the transaction has begun already.
    fn ask(&self, step: wire::Step) -> Pending {
        self.link.ask_on(self.stream, Ask::Step(Box::new(step)))
    }
}

/// A watch: its node, its number there, and the stream that it lives with.
#[derive(Clone, Copy, Debug)]
pub struct WatchId {
    /// The node.
    pub node: NodeId,
    /// Its number there.
    pub number: u64,
    /// The stream.
    pub stream: u64,
}

/// A transaction. Dropping it without [`DistributedTransaction::commit`] takes it back.
pub struct DistributedTransaction {
    cluster: Arc<Cluster>,
    number: u64,
    requests: Vec<LockRequest>,
    everything: bool,
    watches: Vec<WatchId>,
    begun: bool,
    /// Ascending by node.
    participants: SmallVec<[Participant; 2]>,
    /// Copies of what is Here.
    copies: Box<Partition>,
    locations: KeyLocations,
    undo: UndoLog,
    /// What was done before the present part began, and how many events there were.
    before: Option<(UndoLog, usize)>,
    /// What its calls have done on the copies, if that is to be published.
    events: Vec<Notification>,
    /// What calls see; 0 until the transaction has begun.
    now_ms: u64,
    /// That was said beforehand, or is known from its begin.
    keeps_time: bool,
    full: bool,
    limits: TxnLimits,
    ended: bool,
    /// For whom it is.
    client: u64,
    /// Calls that go with its end.
    late: Late,
}

impl DistributedTransaction {
    /// A transaction that will lock `requests`, or everything, when it is first used.
    ///
    /// Its calls see `now_ms` as the present time, or what the nodes say then. It fails if one of `watches` is broken
    /// when it begins.
    pub fn new(
        cluster: &Arc<Cluster>,
        requests: Vec<LockRequest>,
        everything: bool,
        now_ms: Option<u64>,
        watches: Vec<WatchId>,
    ) -> DistributedTransaction {
        let requests = once_each(requests);
        DistributedTransaction {
            number: cluster.next_transaction(),
            cluster: cluster.clone(),
            requests,
            everything,
            watches,
            begun: false,
            participants: SmallVec::new(),
            copies: Box::default(),
            locations: HashMap::default(),
            undo: UndoLog::default(),
            before: None,
            events: Vec::new(),
            now_ms: now_ms.unwrap_or(0),
            keeps_time: now_ms.is_some(),
            full: false,
            limits: TxnLimits::default(),
            ended: false,
            client: Origin::present().client,
            late: Late::default(),
        }
    }

    /// What its calls see as the present time: Unix time in milliseconds, 0 before it has begun.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The time of all its calls: that of the nodes, or of this clock if no node was asked.
    pub fn keep_time(&mut self, clock: impl FnOnce() -> u64) -> u64 {
        if self.now_ms == 0 {
            self.now_ms = clock();
        }
        self.keeps_time = true;
        self.now_ms
    }

    /// The keys that are locked one by one, or will be.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = &LockRequest> {
        self.requests.iter()
    }

    /// Sets the limits of all further calls.
    pub fn set_limits(&mut self, limits: TxnLimits) {
        self.limits = limits;
    }

    /// Whether memory was full on one of the nodes when it began.
    pub fn is_full(&self) -> bool {
        self.full
    }

    fn location_of(&self, db: usize, key: &[u8]) -> Option<(KeyLocation, Mode)> {
        // Few keys: looked at one by one, which needs no copy of the key.
        if self.locations.len() <= 8 {
            let mut locations = self.locations.iter();
            return locations
                .find(|((held_db, held), _)| *held_db == db && **held == *key)
                .map(|(_, location)| *location);
        }
        self.locations.get(&(db, Box::from(key))).copied()
    }

    /// Runs a call on the copies.
    fn run(&mut self, call: &Call<'_>, seed: &mut u64, out: &mut Reply) -> bool {
        let call = Call { now_ms: if self.now_ms == 0 { call.now_ms } else { self.now_ms }, ..*call };
        self.copies.databases[call.db].set_sparse_limit(self.cluster.sparse_limit());
        out.memory_limit = self.copies_max_bytes();
        match self.cluster.notify() {
            0 => call::run(&call, Partitions::One(&mut self.copies), seed, Some(&mut self.undo), None, out),
            classes => {
                let DistributedTransaction { copies, undo, events, .. } = self;
                call::run_noting(&call, copies, seed, undo, classes, events, out)
            }
        }
    }

    /// Bytes of copies that the transaction may hold.
    fn copies_max_bytes(&self) -> usize {
        self.limits.undo_bytes.max(COPIES_MAX_BYTES)
    }

    /// An error if rolling back, or the copies of values, would need more memory here than the transaction may hold.
    fn check_memory(&self) -> Result<(), Conflict> {
        let undo = self.undo.bytes() + self.before.as_ref().map_or(0, |(undo, _)| undo.bytes());
        let held = self.copies.bytes() > self.copies_max_bytes();
        match held || undo > self.limits.undo_bytes {
            true => Err(Conflict::Limit(LimitReached::Undo)),
            false => Ok(()),
        }
    }

    /// What became of changed keys whose truth is here, by node.
    fn changes(&self, wanted: impl Fn(usize, &[u8]) -> bool) -> HashMap<NodeId, Effects> {
        let mut changes: HashMap<NodeId, Effects> = HashMap::new();
        let mut seen = std::collections::HashSet::new();
        let logs = self.before.iter().map(|(undo, _)| undo).chain([&self.undo]);
        for (db, key) in logs.flat_map(UndoLog::keys) {
            if !wanted(db, key) || !seen.insert((db, key)) {
                continue;
            }
            // Where everything is locked, all that was fetched is here.
            if !matches!(self.location_of(db, key), Some((KeyLocation::Local, _))) {
                continue;
            }
            let effects = changes.entry(self.cluster.node_of(key)).or_default();
            // Time 0: what has expired is the node's business.
            match self.copies.databases[db].peek(key, 0) {
                Some(entry) => effects.put(db, key, entry),
                None => effects.push(db, key, Effect::Remove),
            }
        }
        changes
    }

    /// Its part on a node, which begins with what is asked there first.
    fn participant(&mut self, node: NodeId, wrote: bool) -> &mut Participant {
        let at = self.participants.partition_point(|held| held.node < node);
        if self.participants.get(at).is_none_or(|participant| participant.node != node) {
            let link = self.cluster.link(node);
            let stream = link.stream();
            self.participants.insert(at, Participant { node, link, stream, wrote: false });
        }
        let participant = &mut self.participants[at];
        participant.wrote |= wrote;
        participant
    }

    fn step(&self) -> wire::Step {
        let (txn, now_ms, client) = (self.number, self.now_ms, self.client);
        let TxnLimits { undo_bytes, on_full, slack_bytes } = self.limits;
        let on_full = match on_full {
            OnFull::Allow => wire::step::OnFull::Allow,
            OnFull::Refuse => wire::step::OnFull::Refuse,
            OnFull::RollBack => wire::step::OnFull::RollBack,
        };
        wire::Step {
            txn,
            now_ms,
            client,
            on_full: on_full.into(),
            memory_slack_bytes: slack_bytes as u64,
            undo_max_bytes: undo_bytes as u64,
            ..wire::Step::default()
        }
    }

    /// The good part of an answer; none if slots have moved.
    fn stepped(
        &self,
        answer: Result<Answer, Lost>,
        writes: bool,
    ) -> Result<Option<wire::StepResult>, TransactionError> {
        match answer {
            Ok(Answer::StepResult(stepped)) => Ok(Some(*stepped)),
            Ok(Answer::Refusal(refusal)) => match self.cluster.refused(refusal) {
                Some(error) => Err(TransactionError::Lost(error)),
                None => Ok(None),
            },
            Ok(_) => Err(TransactionError::Lost(unexpected())),
            // The transaction is taken back with the stream.
            Err(lost) => {
                let lost = Lost { maybe_done: lost.maybe_done && writes, ..lost };
                Err(self.lost(&lost, writes))
            }
        }
    }

    /// The error for a node that was lost.
    fn lost(&self, lost: &Lost, writes: bool) -> TransactionError {
        let error = lost_error(lost, writes);
        match self.cluster.has_groups() && !lost.maybe_done {
            true => TransactionError::LeaderLost(error),
            false => TransactionError::Lost(error),
        }
    }

    /// Sends a request that belongs to the transaction, whose number it is made of, to all participants. The link to each, the
    /// stream, the number and the answer.
    pub(super) fn ask_participants(
        &self,
        request: impl Fn(u64) -> Ask,
    ) -> Vec<(Arc<Link>, u64, u64, Pending)> {
        let ask = |Participant { link, stream, .. }: &Participant| {
            let pending = link.ask_on(*stream, request(self.number));
            (link.clone(), *stream, self.number, pending)
        };
        self.participants.iter().map(ask).collect()
    }

    /// Takes everything back.
    fn abort(&mut self) {
        for participant in &self.participants {
            // What another stream knew is gone with it.
            if participant.link.stream() == participant.stream {
                let finish = Finish::Abort.into();
                let step = wire::Step { txn: self.number, finish, ..wire::Step::default() };
                participant.link.send_oneway(Ask::Step(Box::new(step)));
            }
        }
    }
}

impl Drop for DistributedTransaction {
    fn drop(&mut self) {
        if !self.ended {
            self.abort();
        }
    }
}
