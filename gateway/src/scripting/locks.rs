//! What an atomic unit locks, and how that grows from round to round.

use store::{Conflict, LockRequest, Mode, ParsedCall, Store, Transaction, TransactionError, WatchId};
use store_engine::Routing;

/// Rounds with a growing lock set before everything is locked.
const MAX_ATTEMPTS: usize = 4;

/// What an atomic unit has to lock.
#[derive(Default)]
pub(super) struct LockSet {
    requests: Vec<LockRequest>,
    whole: bool,
    attempts: usize,
}

impl LockSet {
    /// The declared `keys` of a script.
    pub fn of_keys(keys: &[&[u8]], db: usize, mode: Mode) -> LockSet {
        LockSet::of(keys.iter().map(|key| LockRequest { db, key: (*key).into(), mode }).collect())
    }

    /// These locks.
    pub fn of(requests: Vec<LockRequest>) -> LockSet {
        LockSet { requests, ..LockSet::default() }
    }

    /// Waits for the locks. The set is empty then, until [`LockSet::widen`] fills it again. `now_ms` is what an
    /// earlier round saw as the present time.
    pub async fn lock(
        &mut self,
        store: &Store,
        now_ms: Option<u64>,
        watches: Vec<WatchId>,
    ) -> Result<Transaction, TransactionError> {
        let requests = if self.whole { Vec::new() } else { std::mem::take(&mut self.requests) };
        store.begin(requests, self.whole, now_ms, watches).await
    }

    /// The same for a transaction that locks with its first calls, where that saves anything.
    pub fn open(&mut self, store: &Store) -> Option<Transaction> {
        let opened = store.open(std::mem::take(&mut self.requests));
        opened.map_err(|requests| self.requests = requests).ok()
    }

    /// For the next round: what the last one held, with what it lacked.
    pub fn widen(&mut self, held: Option<&Transaction>, retry: Option<Conflict>) {
        self.attempts += usize::from(retry.is_some());
        self.requests.extend(held.into_iter().flat_map(Transaction::requests).cloned());
        match retry {
            Some(Conflict::Key(request)) if self.attempts < MAX_ATTEMPTS => self.requests.push(request),
            Some(_) => self.whole = true,
            None => {}
        }
    }

    /// Adds the keys of `other`.
    pub fn join(&mut self, other: LockSet) {
        self.requests.extend(other.requests);
        self.whole |= other.whole;
    }

    /// Adds what a call in database `db` needs.
    pub fn add(&mut self, call: &ParsedCall<'_>, db: usize) {
        self.whole |= matches!(call.command().routing.of(call.args()), Routing::Everywhere | Routing::Paged);
        let request = |(key, mode): (&[u8], Mode)| LockRequest { db, key: key.into(), mode };
        self.requests.extend(call.key_locks().map(request));
    }
}
