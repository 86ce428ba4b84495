//! A transaction over nodes in other processes.
//!
//! Its keys are locked where they live. Small values come with the locks, and commands are run on these copies; when
//! it is committed the nodes are told what became of the keys. What is too large for that is changed where it is, by
//! commands that are sent there, in a transaction of that node. So a script that reads and writes small values costs
//! two round trips, whatever it does, and one that is taken back was never anywhere but here.
//!
//! If several nodes have something to change, all but one prepare it; that one decides, see `server/pending.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::store::v1 as wire;
use smallvec::SmallVec;
use store_engine::command::sort;
use store_engine::effect::{Effect, Effects, Put};
use store_engine::keys::KeyAt;
use store_engine::{Access, Args, CommandError, DATABASES, Partition, Partitions, Reply, Routing, UndoLog};
use tokio::time::{Instant, sleep};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::step::{Finish, Part};
use wire::stepped::How;

use super::cluster::{Cluster, lost_error, unexpected, wire_call};
use super::link::{Link, Lost};
use super::merge;
use super::patience::Patience;
use crate::lock::Mode;
use crate::node::{self, Call};
use crate::topology::NodeId;
use crate::txn::{Conflict, LockRequest};

/// Values up to this size come with their locks.
const COPIED_BYTES: u32 = 64 << 10;
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
    fn ask(&self, step: wire::Step) -> super::link::Pending {
        self.link.ask_on(self.stream, Ask::Step(step))
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
    /// What was done before the present part began.
    before: Option<UndoLog>,
    /// What calls see; 0 until the transaction has begun.
    now_ms: u64,
    /// That was said beforehand, or is known from its begin.
    keeps_time: bool,
    full: bool,
    ended: bool,
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
            now_ms: now_ms.unwrap_or(0),
            keeps_time: now_ms.is_some(),
            full: false,
            ended: false,
        }
    }

    /// What its calls see as the present time: Unix time in milliseconds, 0 before it has begun.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The keys that are locked one by one, or will be.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = &LockRequest> {
        self.requests.iter()
    }

    /// Whether memory was full on one of the nodes when it began.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Waits until everything is locked.
    pub async fn begin(&mut self) -> Result<(), Trouble> {
        if self.begun {
            return Ok(());
        }
        let mut patience = Patience::default();
        while !self.try_begin().await? {
            self.abort();
            self.number = self.cluster.next_transaction();
            self.shares.clear();
            self.places.clear();
            *self.copies = Partition::default();
            patience.again().await.map_err(Trouble::Lost)?;
        }
        (self.begun, self.keeps_time) = (true, self.now_ms > 0);
        Ok(())
    }

    /// Whether it has begun; not if slots had moved.
    async fn try_begin(&mut self) -> Result<bool, Trouble> {
        let nodes = self.nodes_wanted();
        if nodes.len() > 1 && !self.everything {
            // All at once, if nobody is in the way,
            let pending: Vec<_> =
                nodes.iter().map(|(node, locks)| self.ask_to_begin(*node, locks, false)).collect();
            let mut answers = Vec::new();
            for answer in pending {
                answers.push(answer.answer().await);
            }
            let is_busy = |answer: &Result<Answer, Lost>| matches!(answer, Ok(Answer::Stepped(stepped)) if stepped.how() == How::Busy);
            if !answers.iter().any(is_busy) {
                for (answer, (_, locks)) in answers.into_iter().zip(&nodes) {
                    if !self.granted(answer, locks)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            self.abort();
            self.number = self.cluster.next_transaction();
            self.shares.clear();
        }
        // otherwise in one order for all, so that nobody waits in a ring.
        for (node, locks) in &nodes {
            let answer = self.ask_to_begin(*node, locks, true).answer().await;
            if !self.granted(answer, locks)? {
                return Ok(false);
            }
        }
        // By now the map is known as it stays, and may have others.
        let has = |node: &NodeId| self.shares.iter().any(|share| share.node == *node);
        Ok(!self.everything || self.cluster.map().owners().iter().all(has))
    }

    /// The nodes that are needed, ascending, with what is to be locked there.
    fn nodes_wanted(&self) -> Vec<(NodeId, Vec<LockRequest>)> {
        let map = self.cluster.map();
        if self.everything {
            return map.owners().into_iter().map(|node| (node, Vec::new())).collect();
        }
        let mut by_node: std::collections::BTreeMap<NodeId, Vec<LockRequest>> = Default::default();
        for request in &self.requests {
            by_node.entry(map.owner_of(&request.key)).or_default().push(request.clone());
        }
        for watch in &self.watches {
            by_node.entry(watch.node).or_default();
        }
        by_node.into_iter().collect()
    }

    fn ask_to_begin(&mut self, node: NodeId, locks: &[LockRequest], wait: bool) -> super::link::Pending {
        let link = self.cluster.link(node);
        let (stream, boot) = (link.stream(), link.boot());
        let on_node = self.watches.iter().filter(|watch| watch.node == node);
        // A watch of another stream is unknown to the node: it is told 0, which is unknown to all.
        let watches = on_node.map(|watch| if watch.stream == stream { watch.number } else { 0 }).collect();
        let begin = wire::Begin {
            locks: locks.iter().map(wire_lock).collect(),
            everything: self.everything,
            wait,
            value_bytes: COPIED_BYTES,
            watches,
        };
        let step = wire::Step { begin: Some(begin), ..self.step() };
        let pending = link.ask_on(stream, Ask::Step(step));
        self.add_share(Share { node, link, stream, boot, wrote: false });
        pending
    }

    fn add_share(&mut self, share: Share) {
        let at = self.shares.partition_point(|held| held.node < share.node);
        self.shares.insert(at, share);
    }

    fn step(&self) -> wire::Step {
        wire::Step { txn: self.number, now_ms: self.now_ms, ..wire::Step::default() }
    }

    /// Takes the answer to a begin. Whether the locks are there; not if they are another node's.
    fn granted(&mut self, answer: Result<Answer, Lost>, locks: &[LockRequest]) -> Result<bool, Trouble> {
        let Some(stepped) = self.stepped(answer, false)? else { return Ok(false) };
        match stepped.how() {
            How::Well => {}
            How::Broken => return Err(Trouble::Broken),
            _ => return Err(conflict_of(&stepped, locks)),
        }
        if !self.keeps_time {
            self.now_ms = self.now_ms.max(stepped.now_ms);
        }
        self.full |= stepped.full;
        if let Some(map) = &stepped.map {
            self.cluster
                .learn(map)
                .map_err(|reason| Trouble::Lost(CommandError::owned(format!("ERR {reason}"))))?;
        }
        if stepped.values.len() < locks.len() {
            return Err(Trouble::Lost(unexpected()));
        }
        for (request, value) in locks.iter().zip(&stepped.values) {
            self.take_value(request, value)?;
        }
        Ok(true)
    }

    /// The good part of an answer; none if slots have moved.
    fn stepped(&self, answer: Result<Answer, Lost>, writes: bool) -> Result<Option<wire::Stepped>, Trouble> {
        match answer {
            Ok(Answer::Stepped(stepped)) => Ok(Some(stepped)),
            Ok(Answer::Refusal(refusal)) => match self.cluster.refused(refusal) {
                Some(error) => Err(Trouble::Lost(error)),
                None => Ok(None),
            },
            Ok(_) => Err(Trouble::Lost(unexpected())),
            // The transaction is taken back with the stream.
            Err(lost) => {
                let lost = Lost { maybe_done: lost.maybe_done && writes, ..lost };
                Err(Trouble::Lost(lost_error(&lost, writes)))
            }
        }
    }

    /// Keeps a copy of a value, if there is one.
    fn take_value(&mut self, request: &LockRequest, value: &[u8]) -> Result<(), Trouble> {
        let LockRequest { db, key, mode } = request;
        let space = &mut self.copies.databases[*db];
        let place = match value.split_first() {
            Some((0, _)) => {
                space.remove(key);
                Place::Here
            }
            Some((1, entry)) => {
                let entry = Put::encoded(entry).entry().map_err(|_| Trouble::Lost(unexpected()))?;
                space.insert(key, entry);
                Place::Here
            }
            _ => Place::There,
        };
        self.places.insert((*db, key.clone()), (place, *mode));
        Ok(())
    }

    /// Runs a call if that needs nobody else. Whether its reply is no error.
    pub fn execute_here(
        &mut self,
        call: &Call<'_>,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<Option<bool>, Conflict> {
        match call.command.routing.of(call.args) {
            Routing::Anywhere => return Ok(Some(self.run(call, seed, out))),
            Routing::ByKey if self.begun && !self.everything => {}
            _ => return Ok(None),
        }
        let mut here = true;
        for (key, need) in call.keys() {
            match self.place_of(call.db, key) {
                Some((_, mode)) if !mode.covers(need) => {
                    return Err(Conflict::Key(LockRequest { db: call.db, key: key.into(), mode: need }));
                }
                Some((Place::Here, _)) => {}
                _ => here = false,
            }
        }
        Ok(here.then(|| self.run(call, seed, out)))
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
        node::run(&call, Partitions::One(&mut self.copies), seed, Some(&mut self.undo), None, out)
    }

    /// Runs a call. `mode`: how keys are locked that were not named beforehand. Whether its reply is no error.
    pub async fn execute(
        &mut self,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Trouble> {
        self.begin().await?;
        match call.command.routing.of(call.args) {
            Routing::Anywhere => return Ok(self.run(call, seed, out)),
            Routing::ByKey => {}
            _ if self.everything => return self.execute_everywhere(call, seed, out).await,
            _ => return Err(Conflict::Everything.into()),
        }
        self.lock_more(call, mode).await?;
        if let Some(fine) = self.execute_here(call, seed, out)? {
            return Ok(fine);
        }
        let node = self.cluster.node_of_all(call.keys().map(|(key, _)| key));
        match node {
            Some(node) if self.before.is_none() || self.everything => {
                self.execute_there(node, call, mode, seed, out).await
            }
            // Of several nodes, or to be taken back alone: on copies, however large they are.
            _ => {
                self.fetch(call).await?;
                let fine = self.run(call, seed, out);
                if self.everything {
                    self.put_away().await?;
                }
                Ok(fine)
            }
        }
    }

    /// Locks the keys of a call that are not yet, if they are free.
    async fn lock_more(&mut self, call: &Call<'_>, mode: Mode) -> Result<(), Trouble> {
        if self.everything {
            return Ok(());
        }
        let mut by_node: std::collections::BTreeMap<NodeId, Vec<LockRequest>> = Default::default();
        for (key, need) in call.keys() {
            if self.place_of(call.db, key).is_none() {
                let mode = if mode.covers(need) { mode } else { need };
                let request = LockRequest { db: call.db, key: key.into(), mode };
                let wanted = by_node.entry(self.cluster.node_of(key)).or_default();
                match wanted.iter_mut().find(|held| held.key == request.key) {
                    Some(held) if held.mode == Mode::Shared => held.mode = request.mode,
                    Some(_) => {}
                    None => wanted.push(request),
                }
            }
        }
        let mut pending = Vec::new();
        for (node, locks) in by_node {
            let answer = match self.shares.iter().find(|share| share.node == node) {
                None => self.ask_to_begin(node, &locks, false),
                Some(share) => {
                    let locks = locks.iter().map(wire_lock).collect();
                    let begin = wire::Begin { locks, value_bytes: COPIED_BYTES, ..wire::Begin::default() };
                    share.ask(wire::Step { begin: Some(begin), ..self.step() })
                }
            };
            pending.push((answer, locks));
        }
        for (answer, locks) in pending {
            if !self.granted(answer.answer().await, &locks)? {
                // It begins again with these, wherever they are now.
                return Err(locks.first().cloned().map_or(Conflict::Everything, Conflict::Key).into());
            }
            self.requests.extend(locks);
        }
        Ok(())
    }

    /// Brings the keys of a call here that are not.
    async fn fetch(&mut self, call: &Call<'_>) -> Result<(), Trouble> {
        let mut by_node: std::collections::BTreeMap<NodeId, Vec<LockRequest>> = Default::default();
        for (key, need) in call.keys() {
            let place = self.place_of(call.db, key);
            if !matches!(place, Some((Place::Here, _))) {
                let mode = place.map_or(need, |(_, mode)| mode);
                let wanted = by_node.entry(self.cluster.node_of(key)).or_default();
                wanted.push(LockRequest { db: call.db, key: key.into(), mode });
            }
        }
        let ask = |(node, locks): (NodeId, Vec<LockRequest>)| {
            let fetch = locks.iter().map(wire_lock).collect();
            let share = self.shares.iter().find(|share| share.node == node);
            share.map(|share| (share.ask(wire::Step { fetch, ..self.step() }), locks))
        };
        let pending: Option<Vec<_>> = by_node.into_iter().map(ask).collect();
        for (answer, locks) in pending.ok_or_else(|| Trouble::Lost(unexpected()))? {
            let Some(stepped) = self.stepped(answer.answer().await, false)? else {
                return Err(Trouble::Lost(unexpected()));
            };
            if stepped.values.len() != locks.len() {
                return Err(Trouble::Lost(unexpected()));
            }
            for (request, value) in locks.iter().zip(&stepped.values) {
                self.take_value(request, value)?;
            }
        }
        Ok(())
    }

    /// Runs a call on the node that has all its keys.
    async fn execute_there(
        &mut self,
        node: NodeId,
        call: &Call<'_>,
        mode: Mode,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Trouble> {
        let keys: Vec<(usize, Box<[u8]>)> = call.keys().map(|(key, _)| (call.db, key.into())).collect();
        let changes = self.changes(|db, key| keys.iter().any(|(held, named)| *held == db && **named == *key));
        for key in keys {
            self.copies.databases[key.0].remove(&key.1);
            if let Some((place, _)) = self.places.get_mut(&key) {
                *place = Place::There;
            }
        }
        let changes = changes.into_values().next().unwrap_or_default();
        let step = wire::Step {
            changes: changes.as_bytes().to_vec().into(),
            calls: vec![wire_call(call, out.protocol)],
            seed: *seed,
            shared: mode == Mode::Shared,
            ..self.step()
        };
        let wrote = call.command.is_write() || !step.changes.is_empty();
        let mut replies = self.ask_all(&[node], step, wrote).await?;
        let (reply, next) = replies.pop().ok_or_else(|| Trouble::Lost(unexpected()))?;
        *seed = next;
        out.buf.extend_from_slice(&reply);
        Ok(reply.first() != Some(&b'-'))
    }

    /// Runs a call that concerns all nodes.
    async fn execute_everywhere(
        &mut self,
        call: &Call<'_>,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Trouble> {
        let nodes: Vec<NodeId> = self.shares.iter().map(|share| share.node).collect();
        if call.command.name == "scan" {
            let mut scan = merge::Scan::new(call, nodes);
            loop {
                let (node, args) = scan.next();
                let calls = vec![wire_call(&Call { args: Args::new(&args), ..*call }, out.protocol)];
                let step = wire::Step { calls, ..self.step() };
                let mut replies = self.ask_all(&[node], step, false).await?;
                let (reply, _) = replies.pop().ok_or_else(|| Trouble::Lost(unexpected()))?;
                if scan.take(&reply, out) {
                    return Ok(reply.first() != Some(&b'-'));
                }
            }
        }
        let plan = merge::plan(call, |key| self.cluster.node_of(key), seed);
        let targets = plan.nodes(&nodes);
        if targets.len() > 1 && call.keys().next().is_some() {
            return self.execute_on_copies(call, seed, out).await;
        }
        let calls = vec![wire_call(call, out.protocol)];
        let step = wire::Step { calls, seed: *seed, ..self.step() };
        let replies = self.ask_all(&targets, step, call.command.is_write()).await?;
        if let Some((_, next)) = replies.last() {
            *seed = *next;
        }
        let mark = out.buf.len();
        plan.merge(replies.into_iter().map(|(reply, _)| reply), out);
        Ok(out.buf.get(mark) != Some(&b'-'))
    }

    /// Runs a call that names keys of several nodes and needs more than these: COPY to another database, and SORT by
    /// or with other keys.
    async fn execute_on_copies(
        &mut self,
        call: &Call<'_>,
        seed: &mut u64,
        out: &mut Reply,
    ) -> Result<bool, Trouble> {
        self.fetch(call).await?;
        if let Some(db) = merge::other_database(call.args).filter(|db| *db < DATABASES) {
            self.fetch(&Call { db, ..*call }).await?;
        }
        let sorted = call.keys().next().filter(|_| call.command.name.starts_with("sort"));
        let entry = sorted.and_then(|(key, _)| self.copies.databases[call.db].peek(key, self.now_ms));
        let keys = entry.map_or_else(Vec::new, |entry| sort::other_keys(call.args, &entry.value));
        if !keys.is_empty() {
            let args: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
            let at: Vec<KeyAt> = (0..args.len()).map(|at| (at, Access::Read)).collect();
            self.fetch(&Call { args: Args::new(&args), keys: &at, ..*call }).await?;
        }
        let fine = self.run(call, seed, out);
        self.put_away().await?;
        Ok(fine)
    }

    /// Lets nodes do a step with one call. The reply of each and the state of its random source.
    async fn ask_all(
        &mut self,
        nodes: &[NodeId],
        step: wire::Step,
        wrote: bool,
    ) -> Result<Vec<(bytes::Bytes, u64)>, Trouble> {
        let mut pending = Vec::new();
        for share in self.shares.iter_mut().filter(|share| nodes.contains(&share.node)) {
            share.wrote |= wrote;
            pending.push(share.ask(step.clone()));
        }
        let mut replies = Vec::new();
        for answer in pending {
            let stepped = self.stepped(answer.answer().await, false)?;
            // A slot of which all is locked, and whose new node does not know of it yet: as if it had begun earlier.
            let mut stepped = stepped.ok_or(Conflict::Everything)?;
            if stepped.how() != How::Well {
                return Err(conflict_of(&stepped, &[]));
            }
            let reply = stepped.replies.pop().ok_or_else(|| Trouble::Lost(unexpected()))?;
            replies.push((reply, stepped.seed));
        }
        Ok(replies)
    }

    /// Where everything is locked: what was changed on copies goes to its nodes at once.
    async fn put_away(&mut self) -> Result<(), Trouble> {
        let changes = self.changes(|_, _| true);
        self.undo = UndoLog::default();
        self.places.clear();
        *self.copies = Partition::default();
        let mut pending = Vec::new();
        for share in &mut self.shares {
            if let Some(changes) = changes.get(&share.node) {
                share.wrote = true;
                let changes = changes.as_bytes().to_vec().into();
                let step =
                    wire::Step { txn: self.number, now_ms: self.now_ms, changes, ..wire::Step::default() };
                pending.push(share.ask(step));
            }
        }
        for answer in pending {
            self.stepped(answer.answer().await, false)?;
        }
        Ok(())
    }

    /// What became of changed keys whose truth is here, by node.
    fn changes(&self, wanted: impl Fn(usize, &[u8]) -> bool) -> HashMap<NodeId, Effects> {
        let mut changes: HashMap<NodeId, Effects> = HashMap::new();
        let mut seen = std::collections::HashSet::new();
        let logs = self.before.iter().chain([&self.undo]);
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
        self.before = Some(std::mem::take(&mut self.undo));
        self.part(Part::Begin).await
    }

    /// Makes the present part one with what was before.
    pub async fn keep_part(&mut self) -> Result<(), Trouble> {
        if let Some(mut whole) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
        self.part(Part::Keep).await
    }

    /// Takes the present part back.
    pub async fn undo_part(&mut self) -> Result<(), Trouble> {
        self.undo.roll_back(&mut Partitions::One(&mut self.copies));
        self.undo = self.before.take().unwrap_or_default();
        self.part(Part::Undo).await
    }

    /// Where everything is locked commands are run on the nodes, and parts are parts of their transactions.
    async fn part(&mut self, part: Part) -> Result<(), Trouble> {
        if !self.everything {
            return Ok(());
        }
        let ask = |share: &Share| share.ask(wire::Step { part: part.into(), ..self.step() });
        let pending: Vec<_> = self.shares.iter().map(ask).collect();
        for answer in pending {
            self.stepped(answer.answer().await, false)?;
        }
        Ok(())
    }

    /// Keeps all changes and lets the keys go. An error says whether nothing was done or nobody knows. Whoever does not
    /// wait for the end does not prevent it.
    pub async fn commit(self) -> Result<(), CommandError> {
        let lost = |_| Err(CommandError::new("UNKNOWN whether this was done: the commit has failed"));
        tokio::spawn(self.finish()).await.unwrap_or_else(lost)
    }

    async fn finish(mut self) -> Result<(), CommandError> {
        if let Some(mut whole) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
        let mut changes = self.changes(|_, _| true);
        let (number, now_ms) = (self.number, self.now_ms);
        let step = |changes: Effects, finish: Finish, others: Vec<String>| {
            Ask::Step(wire::Step {
                txn: number,
                now_ms,
                changes: changes.as_bytes().to_vec().into(),
                finish: finish.into(),
                others,
                ..wire::Step::default()
            })
        };
        let shares = std::mem::take(&mut self.shares);
        self.ended = true;
        let is_spread = shares.len() > 1;
        let (writers, readers): (Vec<Share>, Vec<Share>) =
            shares.into_iter().partition(|share| share.wrote || changes.contains_key(&share.node));
        // What was read on several nodes was there at one time only if it is still locked now that all was read.
        let confirmed: Vec<_> = readers
            .iter()
            .filter(|_| is_spread)
            .map(|share| share.link.ask_on(share.stream, step(Effects::default(), Finish::Open, Vec::new())))
            .collect();
        let mut writers = writers.into_iter();
        let decider = writers.next();
        let others: Vec<Share> = writers.collect();
        let names: Vec<String> = others.iter().map(|share| share.link.address().to_owned()).collect();

        let decides = decider.iter().map(|share| share.link.address().to_owned());
        let decides: Vec<String> = decides.collect();
        let prepared: Vec<_> = others
            .iter()
            .map(|share| {
                let changes = changes.remove(&share.node).unwrap_or_default();
                share.link.ask_on(share.stream, step(changes, Finish::Prepare, decides.clone()))
            })
            .collect();
        let mut refused = None;
        for answer in confirmed.into_iter().chain(prepared) {
            match self.stepped(answer.answer().await, false) {
                Ok(Some(_)) => {}
                Ok(None) => refused = Some(Trouble::Lost(unexpected())),
                Err(trouble) => refused = Some(trouble),
            }
        }
        for share in &readers {
            share.link.tell(step(Effects::default(), Finish::Abort, Vec::new()));
        }
        if let Some(trouble) = refused {
            for share in others.iter().chain(&decider) {
                share.link.tell(step(Effects::default(), Finish::Abort, Vec::new()));
            }
            return Err(match trouble {
                Trouble::Lost(error) => error,
                _ => unexpected(),
            });
        }
        let Some(decider) = decider else { return Ok(()) };

        crate::journal::fail_point::pass("work:prepared");
        let own = changes.remove(&decider.node).unwrap_or_default();
        let commit = decider.link.ask_on(decider.stream, step(own, Finish::Commit, names));
        let answer = commit.answer().await;
        let outcome = self.outcome(&decider, answer, !others.is_empty()).await;
        for share in others {
            match &outcome {
                Ok(()) => {
                    let committed = share.link.ask(step(Effects::default(), Finish::Commit, Vec::new()));
                    let (decider, node) = (decider.link.clone(), share.link.address().to_owned());
                    tokio::spawn(async move {
                        match committed.answer().await {
                            Ok(Answer::Stepped(_)) => {
                                decider.tell(Ask::Forget(wire::Forget { txn: number, node }));
                            }
                            // It asks the decider.
                            _ => share.link.tell(Ask::Resolve(wire::Resolve { txn: number })),
                        }
                    });
                }
                // Whoever has prepared asks the decider, for as long as it takes.
                Err(_) => share.link.tell(Ask::Resolve(wire::Resolve { txn: number })),
            }
        }
        outcome
    }

    /// What became of a commit.
    async fn outcome(
        &self,
        decider: &Share,
        answer: Result<Answer, Lost>,
        is_recorded: bool,
    ) -> Result<(), CommandError> {
        let lost = match answer {
            Ok(Answer::Stepped(_)) => return Ok(()),
            Ok(Answer::Refusal(refusal)) => {
                let code = refusal.code();
                let error = self.cluster.refused(refusal).unwrap_or_else(unexpected);
                return Err(match code {
                    // It may be done, but not on disk.
                    Code::Unavailable => {
                        CommandError::owned(format!("UNKNOWN whether this is kept: {}", error.text()))
                    }
                    _ => error,
                });
            }
            Ok(_) => return Err(unexpected()),
            Err(lost) => lost,
        };
        if !lost.maybe_done {
            return Err(lost_error(&lost, true));
        }
        let until = Instant::now() + OUTCOME_PATIENCE;
        while Instant::now() < until {
            sleep(OUTCOME_PAUSE).await;
            if let Ok(Answer::Decision(decision)) =
                decider.link.ask(Ask::Outcome(wire::Outcome { txn: self.number })).answer().await
            {
                if decision.committed {
                    return Ok(());
                }
                // A node that was started again remembers only what was recorded.
                if is_recorded || decider.link.boot() == decider.boot {
                    let reason = lost.reason.clone();
                    return Err(lost_error(&Lost { maybe_done: false, reason }, true));
                }
                break;
            }
        }
        Err(lost_error(&lost, true))
    }

    /// Takes everything back.
    fn abort(&mut self) {
        for share in &self.shares {
            // What another stream knew is gone with it.
            if share.link.stream() == share.stream {
                let step = wire::Step { txn: self.number, ..wire::Step::default() };
                share.link.tell(Ask::Step(wire::Step { finish: Finish::Abort.into(), ..step }));
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
fn conflict_of(stepped: &wire::Stepped, locks: &[LockRequest]) -> Trouble {
    let key = stepped.key.as_ref().map(|key| LockRequest {
        db: key.db as usize,
        key: (&*key.key).into(),
        mode: if key.shared { Mode::Shared } else { Mode::Exclusive },
    });
    match key.or_else(|| locks.first().cloned()) {
        Some(request) if stepped.how() != How::ConflictEverything => Conflict::Key(request).into(),
        _ => Conflict::Everything.into(),
    }
}
