//! Prepared transactions whose coordinator cannot be reached. No other node knows the decision, so they hold their keys until
//! the coordinator is back, or until an operator decides. Clients that need these keys get an error instead of waiting.
//!
//! The decision of an operator is remembered until the coordinator can be asked: if the coordinator had decided otherwise,
//! only a part of the transaction was made, and the operator is warned.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::store::v1 as wire;
use tokio::time::sleep;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::host::Host;
use super::pending::{self, ask_after, in_doubt_after};
use super::records::{self, CHOSEN, Choice, named, number_of};
use super::registry::{Entry, TxnState};
use crate::journal::Failure;
use crate::lock::{LockRequest, Mode};
use crate::txn::LocalTransaction;

/// So many keys of one are listed.
const MOST_KEYS: usize = 20;

/// Waits for the locks that `begin` brings; an error if a transaction in doubt holds what `is_wanted` says.
pub(super) async fn unless_held_up<T>(
    host: &Host,
    is_wanted: impl Fn(&LocalTransaction) -> bool,
    begin: impl Future<Output = T>,
) -> Result<T, wire::Refusal> {
    tokio::select! {
        biased;
        begun = begin => Ok(begun),
        refused = host.registry.holds_up(is_wanted) => Err(refused),
    }
}

/// Whether a transaction is in the way of clients that want this key.
pub(super) fn is_in_the_way(txn: &LocalTransaction, db: usize, key: &[u8], mode: Mode) -> bool {
    txn.holds(db, key, if mode == Mode::Exclusive { Mode::Shared } else { Mode::Exclusive })
}

/// All prepared transactions, or only those in doubt, by number.
pub(super) fn list(host: &Host, in_doubt: bool) -> Vec<wire::PreparedTransaction> {
    let in_doubt_since = host.registry.in_doubt_since.borrow().clone();
    let live = host.registry.live.lock();
    let row = |(number, entry): (&u64, &Entry)| match &entry.state {
        TxnState::Prepared(prepared) if !in_doubt || in_doubt_since.contains_key(number) => {
            let lock = |request: &LockRequest| wire::Lock {
                db: request.db as u32,
                key: request.key.to_vec().into(),
                shared: request.mode == Mode::Shared,
            };
            Some(wire::PreparedTransaction {
                txn: *number,
                coordinator: prepared.roles.coordinator.clone(),
                in_doubt_ms: in_doubt_since
                    .get(number)
                    .map(|since| (since.elapsed() + in_doubt_after()).as_millis() as u64),
                locks: prepared.txn.requests().take(MOST_KEYS).map(lock).collect(),
                keys: prepared.txn.requests().len() as u64,
                everything: prepared.txn.holds_everything(),
                siblings: prepared.roles.siblings.clone(),
            })
        }
        _ => None,
    };
    let mut rows: Vec<wire::PreparedTransaction> = live.iter().filter_map(row).collect();
    rows.sort_unstable_by_key(|transaction| transaction.txn);
    rows
}

/// Ends a prepared transaction as an operator has decided in the place of its coordinator, which is asked when it is back. Whether
/// it was still prepared.
pub(super) async fn choose(host: &Arc<Host>, number: u64, committed: bool) -> Result<bool, Failure> {
    let ended = pending::end_prepared(host, number, committed, true).await?;
    if ended {
        tokio::spawn(compare(host.clone(), number));
    }
    Ok(ended)
}

/// Goes on with what the last start has not come to.
pub(super) fn compare_again(host: &Arc<Host>) {
    for (name, _) in host.node.records(CHOSEN) {
        if let Some(number) = number_of(&name) {
            tokio::spawn(compare(host.clone(), number));
        }
    }
}

/// Asks the coordinator for its decision on a transaction that an operator has ended, however long that takes, and warns if
/// they differ.
pub(super) async fn compare(host: Arc<Host>, number: u64) {
    while let Some(Choice { committed: chosen, roles }) = records::chosen(&host.node, number)
        && !host.node.is_deposed()
    {
        let coordinator = &roles.coordinator;
        let link = host.way_to(coordinator.clone());
        let request = link.ask(Ask::GetDecision(wire::GetDecision { txn: number })).answer().await;
        let Ok(Answer::Decision(wire::Decision { committed, identity, .. })) = request else {
            drop(link);
            sleep(ask_after()).await;
            continue;
        };
        if !committed && !roles.is_coordinator(identity) {
            (host.warn)(&format!(
                "the decision of an operator on transaction {number:016x} cannot be verified: its coordinator \
                 {coordinator} has lost its data"
            ));
        } else if committed != chosen {
            let how = |committed: bool| if committed { "committed" } else { "rolled back" };
            host.registry.contradicted.fetch_add(1, Ordering::Relaxed);
            (host.warn)(&format!(
                "transaction {number:016x} is partly committed: it was {} here by a decision of an operator, \
                 but {} by its coordinator {coordinator}; check and repair its keys",
                how(chosen),
                how(committed),
            ));
        }
        host.node.drop_record(&named(CHOSEN, number));
        if committed {
            let node = host.membership.name().unwrap_or_default();
            let _ = link.ask(Ask::Acknowledge(wire::Acknowledge { txn: number, node })).answer().await;
        }
    }
}
