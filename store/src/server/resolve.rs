//! How a prepared transaction ends whose gateway is lost: by its coordinator, the other participants, or an operator.

use std::pin::pin;
use std::sync::Arc;

use proto::store::v1 as wire;
use store_engine::effect::{CATALOG, Effect, Effects};
use tokio::time::{Instant, timeout};
use wire::ending::State;
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::endings::{self, as_siblings};
use super::host::Host;
use super::in_doubt::choose;
use super::pending::{ASK_AGAIN, decided, flush, in_doubt_after};
use super::records::{self, ACKNOWLEDGED, PREPARED, StartError, number_of};
use super::refusal::refusal;
use super::registry::{Entry, Prepared, Roles, TxnState};
use crate::client::link::Link;
use crate::lock::{LockRequest, Mode};
use crate::txn::LocalTransaction;

/// Sees to it that nothing of a prepared transaction is left to be decided here, and brings that to disk.
pub(super) async fn resolved(host: Arc<Host>, number: u64) -> Answer {
    resolve(host.clone(), number).await;
    let unavailable = |why: &str| Answer::Refusal(refusal(Code::Unavailable, why));
    // Asked before the flush, which then covers what another task has done.
    if host.registry.live.lock().contains_key(&number) {
        return unavailable("the transaction is being finished");
    }
    match flush(&host).await {
        // The coordinator has to remember the decision until then.
        Ok(()) if records::chosen(&host.node, number).is_some() => unavailable(
            "the decision of the transaction is being \
            verified",
        ),
        Ok(()) => Answer::Done(wire::Done {}),
        Err(reason) => Answer::Refusal(refusal(Code::Unavailable, &reason)),
    }
}

/// Finds out what became of a prepared transaction whose gateway is lost, however long that takes. If it is too
/// long, clients that wait for its keys get an error.
pub(super) async fn resolve(host: Arc<Host>, number: u64) {
    let Some(roles) = host.registry.roles(number) else { return };
    let mut asking = pin!(ask_coordinator(&host, number, roles));
    if timeout(in_doubt_after(), &mut asking).await.is_err() {
        host.registry.set_in_doubt(number);
        asking.await;
    }
}

/// Asks the coordinator of a prepared transaction, and where that has lost its data or cannot be reached the other
/// participants, until the transaction is ended.
pub(super) async fn ask_coordinator(host: &Arc<Host>, number: u64, roles: Roles) {
    let link = host.way_to(roles.coordinator.clone());
    let mut siblings: Option<Vec<Arc<Link>>> = None;
    while host.registry.roles(number).is_some() && !host.node.is_deposed() {
        match link.ask(Ask::GetDecision(wire::GetDecision { txn: number })).answer().await {
            Ok(Answer::Decision(decision))
                if decision.committed || roles.is_coordinator(decision.identity) =>
            {
                // A disk that cannot be written is reported where commands are refused.
                let ended = decided(host, number, decision.committed).await;
                if matches!(ended, Ok(true)) && decision.committed {
                    let node = host.membership.name().unwrap_or_default();
                    let _ =
                        link.ask(Ask::Acknowledge(wire::Acknowledge { txn: number, node })).answer().await;
                }
                return;
            }
            // That node will never know.
            Ok(Answer::Decision(_)) => host.registry.set_in_doubt(number),
            _ => {}
        }
        let siblings = siblings.get_or_insert_with(|| {
            roles.siblings.iter().map(|sibling| host.way_to(sibling.clone())).collect()
        });
        if as_siblings(host, number, siblings).await {
            return;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Takes up what was prepared when the data was last written.
pub(super) async fn recover(host: &Arc<Host>) -> Result<(), StartError> {
    let acknowledged = host.node.records(ACKNOWLEDGED).into_iter();
    let acknowledged = acknowledged.filter_map(|(name, _)| Some((number_of(&name)?, Instant::now())));
    host.registry.acknowledged.lock().extend(acknowledged);
    for (name, record) in host.node.records(PREPARED) {
        let damaged = || StartError::Prepared(name.clone());
        let number = number_of(&name).ok_or_else(damaged)?;
        let (roles, rest, arrival) = records::read_prepared(&record).ok_or_else(damaged)?;
        let txn = lock_again(host, &rest).await.ok_or_else(damaged)?;
        let prepared = Prepared { txn, roles, rest: Some(rest), arrival };
        let state = TxnState::Prepared(Box::new(prepared));
        host.registry.live.lock().insert(number, Entry { session: 0, state });
        tokio::spawn(resolve(host.clone(), number));
    }
    Ok(())
}

/// Locks what these effects are about.
async fn lock_again(host: &Host, effects: &[u8]) -> Option<Box<LocalTransaction>> {
    let mut requests = Vec::new();
    let lock = |db: usize, key: &[u8]| LockRequest { db, key: key.into(), mode: Mode::Exclusive };
    for effect in Effects::read(effects) {
        let (db, key, effect) = effect.ok()?;
        match effect {
            Effect::Flush | Effect::Swap(_) => return Some(LocalTransaction::begin_whole(&host.node).await),
            Effect::Rename(to_db, to) => requests.push(lock(to_db, to)),
            _ => {}
        }
        if db != CATALOG {
            requests.push(lock(db, key));
        }
    }
    Some(LocalTransaction::begin(&host.node, requests).await)
}

/// Waits until a prepared transaction is ended, or its coordinator has been unreachable for too long.
pub(super) async fn ended_or_in_doubt(host: &Arc<Host>, number: u64) {
    let Some(roles) = host.registry.roles(number) else { return };
    let is_in_doubt = host.registry.in_doubt_since.borrow().contains_key(&number);
    if is_in_doubt {
        let siblings: Vec<_> = roles.siblings.into_iter().map(|sibling| host.way_to(sibling)).collect();
        as_siblings(host, number, &siblings).await;
    } else if timeout(in_doubt_after(), ask_coordinator(host, number, roles)).await.is_err() {
        host.registry.set_in_doubt(number);
    }
}

/// Ends a prepared transaction as an operator has decided, unless the coordinator or another participant is reached before
/// it is in doubt. One that was ended differently is not changed.
pub(super) async fn decide(host: Arc<Host>, request: wire::Decide) -> Answer {
    let wire::Decide { txn: number, commit } = request;
    ended_or_in_doubt(&host, number).await;
    match choose(&host, number, commit).await {
        Ok(true) => return Answer::Done(wire::Done {}),
        Ok(false) => {}
        Err(reason) => return Answer::Refusal(refusal(Code::Unavailable, &reason)),
    }
    // Another participant may have heard of the decision sooner, and have ended it here.
    host.registry.await_end(number).await;
    let ending = endings::ending(&host, number);
    let is_committed = match ending.state() {
        State::Committed => true,
        State::Aborted => false,
        State::Prepared => {
            return Answer::Refusal(refusal(Code::Unavailable, "the transaction is being finished"));
        }
        State::Unknown => {
            return Answer::Refusal(refusal(Code::Invalid, "this transaction is not prepared here"));
        }
    };
    if is_committed == commit {
        return Answer::Done(wire::Done {});
    }
    let cause = if ending.by_operator { "an operator" } else { "its coordinator" };
    let reason = format!(
        "transaction {number:016x} was {} here, as {cause} has decided; decide the same on the other nodes",
        if is_committed { "committed" } else { "rolled back" },
    );
    Answer::Refusal(refusal(Code::Contradiction, &reason))
}
