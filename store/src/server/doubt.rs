//! Prepared transactions whose decider stays away. Nobody else knows how they end, so they hold their keys until it is
//! back, or until an operator decides in its place. Whoever wants these keys is told so instead of being left to wait.
//!
//! What an operator has decided is remembered until the decider can be asked: if that had it otherwise, half of the
//! transaction is there, and somebody has to know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto::store::v1 as wire;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::Host;
use super::pending::{self, Entry, Registry, State, ask_after, named, number_of, way_to};
use super::place::refusal;
use crate::journal::fail_point;
use crate::lock::{LockRequest, Mode};
use crate::txn::Transaction;

/// How long who decides is asked in vain until a transaction is in doubt: a node that is started again is back before.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same, unless a test has no time for that.
pub(super) fn patience() -> Duration {
    fail_point::time("in-doubt-ms", PATIENCE)
}

/// Before a transaction's number: how somebody has ended it here, and who would have decided that.
const CHOSEN: &[u8] = b"chosen/";
/// So many keys of one are told.
const MOST_KEYS: usize = 20;

/// Numbers of transactions that are in doubt, and since when.
pub(super) type Doubts = watch::Sender<BTreeMap<u64, Instant>>;

impl Registry {
    /// From now on nobody waits for what this transaction holds, if it is still prepared.
    pub fn doubt(&self, number: u64) {
        let live = self.live.lock();
        if live.get(&number).is_some_and(|entry| matches!(entry.state, State::Prepared(_))) {
            self.doubts.send_modify(|doubts| {
                doubts.insert(number, Instant::now());
            });
        }
    }

    /// It is known how this one ends.
    pub fn no_doubt(&self, number: u64) {
        self.doubts.send_if_modified(|doubts| doubts.remove(&number).is_some());
    }

    /// Ready when one that is in doubt holds what `is_wanted` says: why it is not to be had.
    async fn holds_up(&self, is_wanted: impl Fn(&Transaction) -> bool) -> wire::Refusal {
        let mut doubts = self.doubts.subscribe();
        loop {
            let numbers: Vec<u64> = doubts.borrow_and_update().keys().copied().collect();
            let held = {
                let live = self.live.lock();
                numbers.iter().find_map(|number| match &live.get(number)?.state {
                    State::Prepared(prepared) if is_wanted(&prepared.txn) => Some(prepared.decider.clone()),
                    _ => None,
                })
            };
            if let Some(decider) = held {
                let reason = format!(
                    "the key is locked by a transaction in doubt, whose coordinator {decider} cannot be \
                     reached; see moonshard topology transactions --in-doubt"
                );
                return refusal(Code::Unavailable, &reason);
            }
            if doubts.changed().await.is_err() {
                // There is no node any more.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Waits for the locks that `begin` brings; an error if a transaction in doubt holds what `is_wanted` says.
pub(super) async fn unless_held_up<T>(
    host: &Host,
    is_wanted: impl Fn(&Transaction) -> bool,
    begin: impl Future<Output = T>,
) -> Result<T, wire::Refusal> {
    tokio::select! {
        biased;
        begun = begin => Ok(begun),
        refused = host.registry.holds_up(is_wanted) => Err(refused),
    }
}

/// Whether a transaction is in the way of whoever wants this key.
pub(super) fn is_in_the_way(txn: &Transaction, db: usize, key: &[u8], mode: Mode) -> bool {
    txn.holds(db, key, if mode == Mode::Exclusive { Mode::Shared } else { Mode::Exclusive })
}

/// All prepared transactions, or only those in doubt, by number.
pub(super) fn list(host: &Host, in_doubt: bool) -> Vec<wire::PreparedTransaction> {
    let doubts = host.registry.doubts.borrow().clone();
    let live = host.registry.live.lock();
    let row = |(number, entry): (&u64, &Entry)| match &entry.state {
        State::Prepared(prepared) if !in_doubt || doubts.contains_key(number) => {
            let lock = |request: &LockRequest| wire::Lock {
                db: request.db as u32,
                key: request.key.to_vec().into(),
                shared: request.mode == Mode::Shared,
            };
            Some(wire::PreparedTransaction {
                txn: *number,
                coordinator: prepared.decider.clone(),
                in_doubt_ms: doubts
                    .get(number)
                    .map(|since| (since.elapsed() + patience()).as_millis() as u64),
                locks: prepared.txn.requests().take(MOST_KEYS).map(lock).collect(),
                keys: prepared.txn.requests().len() as u64,
                everything: prepared.txn.holds_everything(),
            })
        }
        _ => None,
    };
    let mut rows: Vec<wire::PreparedTransaction> = live.iter().filter_map(row).collect();
    rows.sort_unstable_by_key(|transaction| transaction.txn);
    rows
}

/// Ends one as an operator has decided.
pub(super) async fn decide(host: Arc<Host>, asked: wire::Decide) -> Answer {
    if !host.registry.doubts.borrow().contains_key(&asked.txn) {
        return Answer::Refusal(refusal(Code::Invalid, "this transaction is not in doubt here"));
    }
    match pending::chosen(&host, asked.txn, asked.commit).await {
        Ok(true) => Answer::Done(wire::Done {}),
        Ok(false) => {
            Answer::Refusal(refusal(Code::Invalid, "the coordinator has just decided this transaction"))
        }
        Err(reason) => Answer::Refusal(refusal(Code::Unavailable, &reason)),
    }
}

/// The record that somebody has ended a transaction so: name and content.
pub(super) fn choice(number: u64, committed: bool, decider: &str) -> (Vec<u8>, Vec<u8>) {
    (named(CHOSEN, number), [&[u8::from(committed)], decider.as_bytes()].concat())
}

/// Whether somebody has ended this transaction here, and its decider was not asked since.
pub(super) fn was_chosen(host: &Host, number: u64) -> bool {
    chosen(host, number).is_some()
}

/// How somebody has ended it, and who would have decided that.
fn chosen(host: &Host, number: u64) -> Option<(bool, String)> {
    let (_, record) = host.node.records(&named(CHOSEN, number)).into_iter().next()?;
    let (committed, decider) = record.split_first()?;
    Some((*committed != 0, String::from_utf8_lossy(decider).into_owned()))
}

/// Goes on with what the last start has not come to.
pub(super) fn compare_again(host: &Arc<Host>) {
    for (name, _) in host.node.records(CHOSEN) {
        if let Some(number) = number_of(&name) {
            tokio::spawn(compare(host.clone(), number));
        }
    }
}

/// Asks who would have decided how this transaction should have ended, however long that takes, and warns if it was
/// otherwise.
pub(super) async fn compare(host: Arc<Host>, number: u64) {
    while let Some((chosen, decider)) = chosen(&host, number) {
        let link = way_to(&host, decider.clone());
        let asked = link.ask(Ask::GetDecision(wire::GetDecision { txn: number })).answer().await;
        let Ok(Answer::Decision(wire::Decision { committed })) = asked else {
            drop(link);
            sleep(ask_after()).await;
            continue;
        };
        if committed != chosen {
            let how = |committed: bool| if committed { "committed" } else { "rolled back" };
            host.registry.contradicted.fetch_add(1, Ordering::Relaxed);
            (host.warn)(&format!(
                "transaction {number:016x} is partly committed: it was {} here by a decision of an operator, \
                 but {} by its coordinator {decider}; check and repair its keys",
                how(chosen),
                how(committed),
            ));
        }
        host.node.drop_record(&named(CHOSEN, number));
        if committed {
            let node = host.place.name().unwrap_or_default();
            let _ = link.ask(Ask::Acknowledge(wire::Acknowledge { txn: number, node })).answer().await;
        }
    }
}
