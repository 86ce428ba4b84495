//! Transactions that others have begun on a node, by their number, and where they stand.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::store::v1 as wire;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wire::refusal::Code;

use super::refusal::refusal;
use crate::client::link::Link;
use crate::topology::{InvalidMap, SlotMap};
use crate::txn::LocalTransaction;

/// How long outcomes of transactions are remembered: much longer than a gateway that has lost its coordinator asks for them.
pub(super) const REMEMBERED: Duration = Duration::from_secs(30);
/// More outcomes are not remembered, even if they are younger.
const MOST_REMEMBERED: usize = 1_000_000;

/// Numbers of transactions that are in doubt, and since when.
pub(super) type InDoubtSince = watch::Sender<BTreeMap<u64, Instant>>;

/// Where a transaction stands.
pub(super) enum TxnState {
    /// It waits for its next step.
    Open(Box<LocalTransaction>),
    /// A step is being done; if that has to wait, this ends it.
    Working(Option<AbortHandle>),
    /// It is being committed.
    Finishing,
    /// It is not for this node to say whether it is committed.
    Prepared(Box<Prepared>),
}

pub(super) struct Prepared {
    pub txn: Box<LocalTransaction>,
    pub roles: Roles,
    /// What is to be done yet, if it was prepared before the last start.
    pub rest: Option<Vec<u8>>,
    /// The slots that come with it.
    pub arrival: Option<Arrival>,
}

/// The other nodes of a prepared transaction.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Roles {
    /// `HOST:PORT`.
    pub coordinator: String,
    /// The number of the coordinator's directory; 0 if it is unknown, or there is none.
    pub identity: u64,
    /// The other participants, each `HOST:PORT`.
    pub siblings: Vec<String>,
}

impl Roles {
    /// Whether the node with this directory is the coordinator. One with another directory does not know what it decided.
    /// Earlier programs do not say which directory they have.
    pub fn is_coordinator(&self, identity: Option<u64>) -> bool {
        self.identity == 0 || identity.is_none_or(|identity| identity == self.identity)
    }
}

/// Slots that come to this node.
pub(super) struct Arrival {
    /// The map then.
    pub map: SlotMap,
    /// Names and contents of the catalog's records, if it comes too.
    pub records: Vec<(Bytes, Bytes)>,
}

impl Arrival {
    /// What the message says of it.
    pub fn of(receive: &wire::ReceiveSlots) -> Result<Arrival, InvalidMap> {
        let map = receive.map.as_ref().ok_or_else(|| InvalidMap("no map".to_owned()))?;
        let map = SlotMap::from_wire(map)?;
        let record = |record: &wire::Record| (record.name.clone(), record.content.clone());
        Ok(Arrival { map, records: receive.records.iter().map(record).collect() })
    }
}

pub(super) struct Entry {
    pub session: u64,
    pub state: TxnState,
}

/// All transactions of others on a node.
#[derive(Default)]
pub(crate) struct Registry {
    pub(super) live: Mutex<HashMap<u64, Entry>>,
    /// Those that are prepared and cannot find out how they end.
    pub(super) in_doubt_since: InDoubtSince,
    /// How many an operator has ended otherwise than their coordinator.
    pub contradicted: AtomicU64,
    /// Notified when one is committed, rolled back or forgotten.
    pub(super) ended: Notify,
    pub(super) committed: Mutex<Memory>,
    pub(super) refused: Mutex<Memory>,
    /// Held while the record of a decision is changed.
    pub(super) decisions: Mutex<()>,
    /// Decisions that all participants have acknowledged, and since when, oldest first.
    pub(super) acknowledged: Mutex<VecDeque<(u64, Instant)>>,
    /// The links to coordinators, while there is something to ask.
    pub(super) coordinators: Mutex<HashMap<String, Weak<Link>>>,
}

/// Numbers of transactions, each for a while.
pub(super) struct Memory {
    order: VecDeque<(u64, Instant)>,
    numbers: HashSet<u64>,
    /// All numbers that were added later are here.
    complete_since: Instant,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { order: VecDeque::new(), numbers: HashSet::new(), complete_since: Instant::now() }
    }
}

impl Memory {
    pub fn add(&mut self, number: u64) {
        self.add_at(number, Instant::now(), MOST_REMEMBERED);
    }

    fn add_at(&mut self, number: u64, now: Instant, most: usize) {
        if self.numbers.insert(number) {
            self.order.push_back((number, now));
        }
        while let Some((oldest, added)) = self.order.front().copied()
            && (self.order.len() > most || now.duration_since(added) > REMEMBERED)
        {
            self.order.pop_front();
            self.numbers.remove(&oldest);
            self.complete_since = added;
        }
    }

    /// How far back all numbers are known.
    pub fn reach(&self) -> Duration {
        self.complete_since.elapsed()
    }

    pub fn has(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }
}

/// What a step finds.
pub(crate) enum Found {
    /// Nothing yet: it begins.
    New,
    /// The transaction, which is the step's until it is given back.
    Open(Box<LocalTransaction>),
    /// It is prepared.
    Prepared,
    /// Nothing, and it may not begin; or a step is still being done.
    Missing,
}

impl Registry {
    /// Takes a transaction for a step.
    pub fn take(&self, number: u64, session: u64, begins: bool) -> Found {
        let mut live = self.live.lock();
        let Some(entry) = live.get_mut(&number) else {
            if !begins || self.refused.lock().has(number) || self.committed.lock().has(number) {
                return Found::Missing;
            }
            live.insert(number, Entry { session, state: TxnState::Working(None) });
            return Found::New;
        };
        if matches!(entry.state, TxnState::Prepared(_)) {
            return Found::Prepared;
        }
        if !matches!(entry.state, TxnState::Open(_)) || entry.session != session {
            return Found::Missing;
        }
        match std::mem::replace(&mut entry.state, TxnState::Working(None)) {
            TxnState::Open(txn) => Found::Open(txn),
            _ => Found::Missing,
        }
    }

    /// Runs a step that waits as a task. Ending the transaction ends the step, unless the step is committing.
    pub fn go_on(&self, number: u64, step: impl Future<Output = ()> + Send + 'static) {
        // Held until its handle is known, so that it does not end before.
        let mut live = self.live.lock();
        let task = tokio::spawn(step);
        match live.get_mut(&number) {
            Some(Entry { state: TxnState::Working(handle), .. }) => *handle = Some(task.abort_handle()),
            // Ended meanwhile.
            None => task.abort(),
            Some(_) => {}
        }
    }

    /// Puts a transaction back after a step; if it was ended meanwhile it is taken back.
    pub fn put_back(&self, number: u64, txn: Box<LocalTransaction>) {
        let mut live = self.live.lock();
        match live.get_mut(&number) {
            Some(entry) if matches!(entry.state, TxnState::Working(_)) => entry.state = TxnState::Open(txn),
            _ => {
                drop(live);
                drop(txn);
            }
        }
    }

    /// Marks that the step's transaction is being committed; whether it still may.
    pub fn finishes(&self, number: u64) -> bool {
        match self.live.lock().get_mut(&number) {
            Some(entry) if matches!(entry.state, TxnState::Working(_)) => {
                entry.state = TxnState::Finishing;
                true
            }
            _ => false,
        }
    }

    /// It is committed.
    pub fn finished(&self, number: u64) {
        self.committed.lock().add(number);
        self.forget(number);
    }

    /// It is rolled back.
    pub fn rolled_back(&self, number: u64) {
        self.refused.lock().add(number);
        self.forget(number);
    }

    /// Waits for a transaction that is being committed or rolled back.
    pub async fn await_end(&self, number: u64) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            let is_finishing = |entry: &Entry| matches!(entry.state, TxnState::Finishing);
            if !self.live.lock().get(&number).is_some_and(is_finishing) {
                return;
            }
            ended.await;
        }
    }

    /// Forgets a transaction that came to nothing during its step.
    pub fn forget(&self, number: u64) {
        self.live.lock().remove(&number);
        self.ended.notify_waiters();
    }

    /// Ends a transaction of this session that is not prepared, wherever it stands: what was done is taken back. Whether
    /// there was one.
    pub fn abort(&self, number: u64, session: u64) -> bool {
        let mut live = self.live.lock();
        let ends = |entry: &Entry| {
            entry.session == session && matches!(entry.state, TxnState::Open(_) | TxnState::Working(_))
        };
        let entry = if live.get(&number).is_some_and(ends) { live.remove(&number) } else { None };
        drop(live);
        let found = entry.is_some();
        self.end(entry);
        found
    }

    pub fn end(&self, entry: Option<Entry>) {
        if let Some(Entry { state: TxnState::Working(Some(handle)), .. }) = entry {
            handle.abort();
        }
    }

    /// A session is over: what it began and did not finish is taken back, but for what is prepared, whose numbers are
    /// returned.
    pub fn leave(&self, session: u64) -> Vec<u64> {
        let mut live = self.live.lock();
        let mine: Vec<u64> =
            live.iter().filter(|(_, entry)| entry.session == session).map(|(number, _)| *number).collect();
        let (mut ended, mut prepared) = (Vec::new(), Vec::new());
        for number in mine {
            match live.get(&number).map(|entry| &entry.state) {
                Some(TxnState::Prepared(_)) => prepared.push(number),
                // It is committed in this moment, whether the answer arrives or not.
                Some(TxnState::Finishing) | None => {}
                Some(_) => ended.extend(live.remove(&number)),
            }
        }
        drop(live);
        ended.into_iter().for_each(|entry| self.end(Some(entry)));
        prepared
    }

    /// How many are prepared.
    pub fn prepared(&self) -> usize {
        self.live.lock().values().filter(|entry| matches!(entry.state, TxnState::Prepared(_))).count()
    }

    pub fn take_prepared(&self, number: u64) -> Option<Box<Prepared>> {
        let mut live = self.live.lock();
        let entry = live.get_mut(&number)?;
        match std::mem::replace(&mut entry.state, TxnState::Finishing) {
            TxnState::Prepared(prepared) => {
                self.clear_in_doubt(number);
                Some(prepared)
            }
            other => {
                entry.state = other;
                None
            }
        }
    }

    /// The other nodes of a transaction, if it is prepared.
    pub fn roles(&self, number: u64) -> Option<Roles> {
        match self.live.lock().get(&number).map(|entry| &entry.state) {
            Some(TxnState::Prepared(prepared)) => Some(prepared.roles.clone()),
            _ => None,
        }
    }
}

impl Registry {
    /// From now on no client waits for what this transaction holds, if it is still prepared.
    pub fn set_in_doubt(&self, number: u64) {
        let live = self.live.lock();
        if live.get(&number).is_some_and(|entry| matches!(entry.state, TxnState::Prepared(_))) {
            self.in_doubt_since.send_modify(|in_doubt_since| {
                in_doubt_since.entry(number).or_insert_with(Instant::now);
            });
        }
    }

    /// It is known how this one ends.
    pub fn clear_in_doubt(&self, number: u64) {
        self.in_doubt_since.send_if_modified(|in_doubt_since| in_doubt_since.remove(&number).is_some());
    }

    /// Waits until a transaction in doubt holds a lock that `is_wanted` selects; returns the refusal for the request.
    pub async fn holds_up(&self, is_wanted: impl Fn(&LocalTransaction) -> bool) -> wire::Refusal {
        let mut in_doubt_since = self.in_doubt_since.subscribe();
        loop {
            let numbers: Vec<u64> = in_doubt_since.borrow_and_update().keys().copied().collect();
            let held = {
                let live = self.live.lock();
                numbers.iter().find_map(|number| match &live.get(number)?.state {
                    TxnState::Prepared(prepared) if is_wanted(&prepared.txn) => {
                        Some(prepared.roles.coordinator.clone())
                    }
                    _ => None,
                })
            };
            if let Some(coordinator) = held {
                let reason = format!(
                    "the key is locked by a transaction in doubt, whose coordinator {coordinator} cannot be \
                     reached; see moonshard topology transactions --in-doubt"
                );
                return refusal(Code::Unavailable, &reason);
            }
            if in_doubt_since.changed().await.is_err() {
                // There is no node any more.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_remembered_by_time_and_a_memory_that_is_full_says_so() {
        let mut memory = Memory::default();
        let began = memory.complete_since;
        let later = |seconds: u64| began + Duration::from_secs(seconds);
        (0..200_000).for_each(|number| memory.add_at(number, later(1), MOST_REMEMBERED));
        assert!(memory.has(0) && memory.has(199_999));
        memory.add_at(200_000, later(31), MOST_REMEMBERED);
        assert!(memory.has(0) && memory.complete_since == began);
        memory.add_at(200_001, later(40), MOST_REMEMBERED);
        assert!(!memory.has(0) && memory.has(200_000) && memory.complete_since == later(1));
        memory.add_at(200_002, later(41), 2);
        assert!(!memory.has(200_000) && memory.has(200_001) && memory.complete_since == later(31));
    }
}
