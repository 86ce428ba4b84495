//! A transaction over nodes in other processes.
//!
//! Its keys are locked where they live. Small values come with the locks, and commands are run on these copies; when
//! it is committed the nodes are told what became of the keys. What is too large for that is changed where it is, by
//! commands that are sent there, in a transaction of that node. So a script that reads and writes small values costs
//! two round trips, whatever it does, and one that is taken back was never anywhere but here.
//!
//! If several nodes have something to change, all but one prepare it; that one decides, see `server/pending.rs`.

mod calls;
mod end;
mod locks;
mod together;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::store::v1 as wire;
use smallvec::SmallVec;
use store_engine::effect::{Effect, Effects};
use store_engine::notice::Event;
use store_engine::{CommandError, Partition, Partitions, Reply, UndoLog};
use wire::request::Body as Ask;
use wire::step::{Finish, Savepoint};
use wire::step_result::Outcome;

use self::together::Late;
use super::cluster::{Cluster, unexpected};
use super::link::{Link, Pending};
use super::rehearsal;
use crate::copies::Origin;
use crate::lock::Mode;
use crate::node::{self, Call};
use crate::topology::NodeId;
use crate::txn::{
    Change, Conflict, LimitReached, LockRequest, Preview, Rehearsed, TxnLimits, add_before, changed_keys,
    changes_of,
};

/// Values up to this size come with their locks.
const COPIED_BYTES: u32 = 64 << 10;
/// Bytes of copies that a transaction may hold in any case: calls on keys of several nodes work on copies.
const COPIES_MAX_BYTES: usize = 256 << 20;
/// How long a node that was lost while it committed is asked what became of that.
const OUTCOME_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked.
const OUTCOME_PAUSE: Duration = Duration::from_millis(50);

/// Why a call could not be run.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// It needs more locks: the transaction has to be begun again with them.
    Conflict(Conflict),
    /// The transaction is lost, and nothing was done.
    Lost(CommandError),
    /// A watched key has changed; nothing was done.
    Broken,
    /// Its begin or its end has to be done apart from calls that were to go with it; nothing was done.
    Apart,
    /// A call that was to go with its begin or its end has failed, or memory is full; nothing was done.
    Unfit,
}

impl From<Conflict> for Trouble {
    fn from(conflict: Conflict) -> Trouble {
        Trouble::Conflict(conflict)
    }
}

/// Where the truth about a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Here, in the copy.
    Here,
    /// On its node.
    There,
}

/// Keys by database, with how they are locked.
type Places = HashMap<(usize, Box<[u8]>), (Place, Mode), foldhash::fast::RandomState>;

/// The part of a transaction that is on one node.
struct Share {
    node: NodeId,
    link: Arc<Link>,
    /// The stream that it lives and dies with.
    stream: u64,
    boot: u64,
    /// Something was changed there.
    wrote: bool,
}

impl Share {
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

/// A transaction. Dropping it without [`Work::commit`] takes it back.
pub struct Work {
    cluster: Arc<Cluster>,
    number: u64,
    requests: Vec<LockRequest>,
    everything: bool,
    watches: Vec<WatchId>,
    begun: bool,
    /// Ascending by node.
    shares: SmallVec<[Share; 2]>,
    /// Copies of what is Here.
    copies: Box<Partition>,
    places: Places,
    undo: UndoLog,
    /// What was done before the present part began, and how many events there were.
    before: Option<(UndoLog, usize)>,
    /// What its calls have done on the copies, if somebody wants to hear of that.
    events: Vec<Event>,
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

impl Work {
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
    ) -> Work {
        let requests = once_each(requests);
        Work {
            number: cluster.next_transaction(),
            cluster: cluster.clone(),
            requests,
            everything,
            watches,
            begun: false,
            shares: SmallVec::new(),
            copies: Box::default(),
            places: HashMap::default(),
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

    /// The present time as it stays for all its calls: what the nodes have said, or what this clock tells if none was
    /// asked.
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

    fn place_of(&self, db: usize, key: &[u8]) -> Option<(Place, Mode)> {
        // Few keys: looked at one by one, which needs no copy of the key.
        if self.places.len() <= 8 {
            let mut places = self.places.iter();
            return places
                .find(|((held_db, held), _)| *held_db == db && **held == *key)
                .map(|(_, place)| *place);
        }
        self.places.get(&(db, Box::from(key))).copied()
    }

    /// Runs a call on the copies.
    fn run(&mut self, call: &Call<'_>, seed: &mut u64, out: &mut Reply) -> bool {
        let call = Call { now_ms: if self.now_ms == 0 { call.now_ms } else { self.now_ms }, ..*call };
        self.copies.databases[call.db].set_sparse_limit(self.cluster.sparse_limit());
        match self.cluster.notify() {
            0 => node::run(&call, Partitions::One(&mut self.copies), seed, Some(&mut self.undo), None, out),
            classes => {
                let Work { copies, undo, events, .. } = self;
                node::run_noting(&call, copies, seed, undo, classes, events, out)
            }
        }
    }

    /// An error if rolling back, or the copies of values, would need more memory here than the transaction may hold.
    fn check_memory(&self) -> Result<(), Conflict> {
        let undo = self.undo.bytes() + self.before.as_ref().map_or(0, |(undo, _)| undo.bytes());
        let held = self.copies.bytes() > self.limits.undo_bytes.max(COPIES_MAX_BYTES);
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
            if !matches!(self.place_of(db, key), Some((Place::Here, _))) {
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

    /// Begins a part that can be taken back alone, see [`crate::Transaction::begin_part`].
    pub async fn begin_part(&mut self) -> Result<(), Trouble> {
        self.begin().await?;
        self.before = Some((std::mem::take(&mut self.undo), self.events.len()));
        self.part(Savepoint::Begin).await
    }

    /// Makes the present part one with what was before.
    pub async fn keep_part(&mut self) -> Result<(), Trouble> {
        if let Some((mut whole, _)) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
        self.part(Savepoint::Release).await
    }

    /// Takes the present part back.
    pub async fn undo_part(&mut self) -> Result<(), Trouble> {
        self.undo.roll_back(&mut Partitions::One(&mut self.copies));
        let (undo, events) = self.before.take().unwrap_or_default();
        self.undo = undo;
        self.events.truncate(events);
        self.part(Savepoint::Rollback).await
    }

    /// Takes the present part back and tells what it had changed, see [`crate::Transaction::undo_part_telling`].
    pub async fn undo_part_telling(&mut self, most: usize) -> Result<(Vec<Change>, usize), Trouble> {
        let (keys, omitted) = changed_keys(&self.undo, most);
        let mut keys = changes_of(keys, |db, key| self.preview(db, key));
        self.undo.roll_back(&mut Partitions::One(&mut self.copies));
        let (undo, events) = self.before.take().unwrap_or_default();
        self.undo = undo;
        self.events.truncate(events);
        add_before(&mut keys, |db, key| self.preview(db, key));
        let mut rehearsed = Rehearsed { keys, omitted, databases: Vec::new() };
        if self.everything {
            let tell_keys = most.clamp(1, u32::MAX as usize) as u32;
            let step =
                wire::Step { savepoint: Savepoint::Rollback.into(), report_keys: tell_keys, ..self.step() };
            let pending: Vec<_> = self.shares.iter().map(|share| share.ask(step.clone())).collect();
            for answer in pending {
                let stepped = self.stepped(answer.answer().await, false)?;
                let told = stepped.and_then(|stepped| stepped.rolled_back);
                let told = told.ok_or_else(|| Trouble::Lost(unexpected()))?;
                rehearsed.add(rehearsal::from_wire(told), most);
            }
        }
        Ok(rehearsed.told())
    }

    /// What is under a key whose value is here.
    fn preview(&self, db: usize, key: &[u8]) -> Option<Preview> {
        self.copies.databases[db].peek(key, self.now_ms).map(Preview::of)
    }

    /// Where everything is locked commands are run on the nodes, and parts are parts of their transactions.
    async fn part(&mut self, part: Savepoint) -> Result<(), Trouble> {
        if !self.everything {
            return Ok(());
        }
        let ask = |share: &Share| share.ask(wire::Step { savepoint: part.into(), ..self.step() });
        let pending: Vec<_> = self.shares.iter().map(ask).collect();
        for answer in pending {
            self.stepped(answer.answer().await, false)?;
        }
        Ok(())
    }

    /// Takes everything back.
    fn abort(&mut self) {
        for share in &self.shares {
            // What another stream knew is gone with it.
            if share.link.stream() == share.stream {
                let finish = Finish::Abort.into();
                let step = wire::Step { txn: self.number, finish, ..wire::Step::default() };
                share.link.tell(Ask::Step(Box::new(step)));
            }
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.ended {
            self.abort();
        }
    }
}

/// One request for each key: of several the exclusive one.
fn once_each(mut requests: Vec<LockRequest>) -> Vec<LockRequest> {
    let is_shared = |request: &LockRequest| request.mode == Mode::Shared;
    requests.sort_unstable_by(|a, b| (a.db, &a.key, is_shared(a)).cmp(&(b.db, &b.key, is_shared(b))));
    requests.dedup_by(|b, a| a.db == b.db && a.key == b.key);
    requests
}

fn wire_lock(request: &LockRequest) -> wire::Lock {
    let shared = request.mode == Mode::Shared;
    wire::Lock { db: request.db as u32, key: request.key.to_vec().into(), shared }
}

/// What a node lacked; `locks` is what it was asked for.
fn conflict_of(stepped: &wire::StepResult, locks: &[LockRequest]) -> Trouble {
    match stepped.outcome() {
        Outcome::LimitData => return Conflict::Limit(LimitReached::Data).into(),
        Outcome::LimitUndo => return Conflict::Limit(LimitReached::Undo).into(),
        _ => {}
    }
    let key = stepped.key.as_ref().map(|key| LockRequest {
        db: key.db as usize,
        key: (&*key.key).into(),
        mode: if key.shared { Mode::Shared } else { Mode::Exclusive },
    });
    match key.or_else(|| locks.first().cloned()) {
        Some(request) if stepped.outcome() != Outcome::ConflictAll => Conflict::Key(request).into(),
        _ => Conflict::Everything.into(),
    }
}
