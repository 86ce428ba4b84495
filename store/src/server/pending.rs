//! How transactions over several nodes are prepared and decided.
//!
//! A transaction over several nodes is prepared on all participants but one: they write their part into a record, and keep
//! their locks. The remaining one is the coordinator: its record of the commit decides for all. A participant that has
//! prepared and receives no decision asks the coordinator. A transaction that the coordinator does not know was not committed, and
//! cannot be committed from then on. That holds for the data directory for which the transaction was prepared: if the
//! coordinator has lost that directory, only the other participants may know the decision.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::store::v1 as wire;
use store_engine::effect::Effects;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::host::Host;
use super::records::{self, ACKNOWLEDGED, DECIDED, ENDED, Ending, PREPARED, named, number_of};
use super::registry::{Arrival, Prepared, REMEMBERED, Roles, TxnState};
use crate::catalog::CatalogChanges;
use crate::journal::{Failure, fail_point};
use crate::txn::LocalTransaction;

/// How old a decision becomes before the participants are asked that have not acknowledged it: an acknowledgement is lost if a
/// gateway was ended.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// The pause between two requests to the coordinator.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(200);

/// How long the coordinator is asked in vain until a transaction is in doubt: a node restarts in less time.
const IN_DOUBT_AFTER: Duration = Duration::from_secs(5);

/// [`ASK_AFTER`], unless a test has no time for that.
pub(super) fn ask_after() -> Duration {
    fail_point::time("ask-after-ms", ASK_AFTER)
}

/// [`IN_DOUBT_AFTER`], unless a test has no time for that.
pub(super) fn in_doubt_after() -> Duration {
    fail_point::time("in-doubt-ms", IN_DOUBT_AFTER)
}

/// Why a transaction is not prepared or committed.
#[derive(Debug)]
pub(super) enum FinishError {
    /// It was taken back meanwhile.
    Aborted,
    /// The disk does not take it.
    Disk(Failure),
}

impl FinishError {
    /// For the gateway: only what the disk refuses may be done nevertheless.
    pub fn code(&self) -> Code {
        match self {
            FinishError::Aborted => Code::Invalid,
            FinishError::Disk(_) => Code::Unavailable,
        }
    }
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FinishError::Aborted => f.write_str("the transaction was aborted"),
            FinishError::Disk(failure) => failure.fmt(f),
        }
    }
}

/// Keeps what a transaction has done for the case that it is committed, on disk too. Its locks stay.
pub(super) async fn prepare(
    host: &Host,
    number: u64,
    txn: Box<LocalTransaction>,
    roles: Roles,
    arrival: Option<Arrival>,
) -> Result<(), FinishError> {
    fail_point::pass("prepare:before-record");
    let mut trace = Trace { host, number, stays: false };
    if let Some(journal) = host.node.journal() {
        let record = records::prepared(&roles, txn.effects().as_bytes(), arrival.as_ref());
        host.node.put_record(&named(PREPARED, number), &record);
        if let Err(failure) = journal.flush().await {
            host.registry.forget(number);
            return Err(FinishError::Disk(failure));
        }
    }
    fail_point::pass("prepare:after-record");
    let mut live = host.registry.live.lock();
    match live.get_mut(&number) {
        Some(entry) if matches!(entry.state, TxnState::Working(_)) => {
            entry.state = TxnState::Prepared(Box::new(Prepared { txn, roles, rest: None, arrival }));
            trace.stays = true;
            Ok(())
        }
        _ => Err(FinishError::Aborted),
    }
}

/// Adds what comes to this node to what a transaction records.
fn arrive(host: &Host, arrival: &Arrival, (effects, records): (&mut Effects, &mut CatalogChanges)) {
    for (name, content) in &arrival.records {
        records.put(name, content);
    }
    host.membership.change(&host.node, (effects, records), &arrival.map);
}

/// The record of a transaction that is being prepared. It is removed if the preparation ends early, at whatever point.
struct Trace<'a> {
    host: &'a Host,
    number: u64,
    stays: bool,
}

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if !self.stays && self.host.node.journal().is_some() {
            self.host.node.drop_record(&named(PREPARED, self.number));
        }
    }
}

/// Commits a transaction here. If `others` have prepared it, this is what decides it.
pub(super) async fn commit(
    host: &Arc<Host>,
    number: u64,
    mut txn: Box<LocalTransaction>,
    others: &[String],
) -> Result<(), FinishError> {
    if !host.registry.finishes(number) {
        return Err(FinishError::Aborted);
    }
    if others.is_empty() {
        txn.commit();
        host.registry.finished(number);
        return Ok(());
    }
    fail_point::pass("commit:before-record");
    decide(number, txn.records_mut(), others);
    txn.commit();
    fail_point::pass("commit:before-flush");
    seal(host, number).await.map_err(FinishError::Disk)
}

/// Brings a decision to disk; only then it is known.
pub(super) async fn seal(host: &Arc<Host>, number: u64) -> Result<(), Failure> {
    // Until it is on disk no other node is notified: what follows from it could be on other disks, and this one without it.
    let flushed = flush(host).await;
    fail_point::pass("commit:after-record");
    match &flushed {
        Ok(()) => host.registry.finished(number),
        Err(_) => drop(tokio::spawn(finish_late(host.clone(), number))),
    }
    flushed
}

/// Brings everything so far to disk, if there is one.
pub(super) async fn flush(host: &Host) -> Result<(), Failure> {
    match host.node.journal() {
        Some(journal) => journal.flush().await,
        None => Ok(()),
    }
}

/// A decision that the disk has refused holds once the disk takes it. If it never does, no participant has followed it.
async fn finish_late(host: Arc<Host>, number: u64) {
    while flush(&host).await.is_err() {
        if host.node.is_deposed() {
            // The next leader knows whether it holds.
            return;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    host.registry.finished(number);
}

/// Adds the decision to commit to the records of a transaction; `others` are the participants that have prepared it.
pub(super) fn decide(number: u64, records: &mut CatalogChanges, others: &[String]) {
    records.put(&named(DECIDED, number), others.join(",").as_bytes());
}

/// How many decisions not all have followed.
pub(super) fn decisions(host: &Host) -> usize {
    host.node.records(DECIDED).len()
}

/// Ends a prepared transaction as it was decided. `false`: another task ends it, or has ended it. Then its effects may not
/// be on disk yet, and the decision must not be acknowledged.
pub(super) async fn decided(host: &Host, number: u64, committed: bool) -> Result<bool, Failure> {
    end_prepared(host, number, committed, false).await
}

/// The same; `is_choice`: an operator has decided, in the place of the node that should have.
pub(super) async fn end_prepared(
    host: &Host,
    number: u64,
    committed: bool,
    is_choice: bool,
) -> Result<bool, Failure> {
    let Some(prepared) = host.registry.take_prepared(number) else {
        return Ok(false);
    };
    fail_point::pass("decided:before");
    let Prepared { mut txn, roles, rest, arrival } = *prepared;
    let mut records = CatalogChanges::default();
    records.remove(&named(PREPARED, number));
    if is_choice {
        let (name, record) = records::choice(number, committed, &roles);
        records.put(&name, &record);
    }
    let ending = Ending { committed, by_operator: is_choice, siblings: roles.siblings };
    if !ending.siblings.is_empty() {
        records.put(&named(ENDED, number), &records::write_ending(&ending));
    }
    if committed {
        *txn.records_mut() = records;
        let mut repeated = rest.as_deref().map(Effects::from_bytes);
        if let Some(arrival) = arrival {
            let (effects, records) = txn.parts_mut();
            arrive(host, &arrival, (repeated.as_mut().unwrap_or(effects), records));
        }
        match (rest, repeated) {
            (Some(rest), Some(effects)) => txn.repeat(&rest, effects, (host.clock)()),
            _ => txn.commit(),
        }
    } else {
        drop(txn);
        host.node.record_with(&mut Effects::default(), records);
    }
    let flushed = flush(host).await;
    fail_point::pass("decided:after");
    match committed {
        true => host.registry.finished(number),
        false => host.registry.rolled_back(number),
    }
    flushed.map(|()| true)
}

/// What became of a transaction that this node decides. If that is open, it is ended now.
pub(super) async fn outcome(host: &Host, number: u64) -> bool {
    loop {
        let mut ended = pin!(host.registry.ended.notified());
        ended.as_mut().enable();
        if let Some(committed) = outcome_now(host, number) {
            return committed;
        }
        ended.await;
    }
}

/// The same; `None` while it is being committed.
fn outcome_now(host: &Host, number: u64) -> Option<bool> {
    let registry = &host.registry;
    let mut live = registry.live.lock();
    match live.get(&number).map(|entry| &entry.state) {
        Some(TxnState::Finishing) => None,
        Some(TxnState::Prepared(_)) => Some(false),
        Some(_) => {
            registry.refused.lock().add(number);
            let entry = live.remove(&number);
            drop(live);
            registry.end(entry);
            Some(false)
        }
        None => {
            let is_recorded = |prefix: &[u8]| !host.node.records(&named(prefix, number)).is_empty();
            let committed =
                registry.committed.lock().has(number) || is_recorded(DECIDED) || is_recorded(ACKNOWLEDGED);
            if !committed {
                registry.refused.lock().add(number);
            }
            Some(committed)
        }
    }
}

/// How far back it is certain that a transaction of which nothing is known was not committed: one of this node alone, and
/// one with participants.
pub(super) fn known_for(host: &Host) -> (Duration, Duration) {
    let single = host.registry.committed.lock().reach();
    // The records of a directory that has just been made are not older than the memory.
    let is_on_disk = host.node.journal().is_some() && !host.membership.is_new();
    (single, if is_on_disk { REMEMBERED.max(single) } else { single })
}

/// A participant has committed a transaction: once all have, none of them will ask any more. A gateway may, for a while.
pub(super) fn forget_decision(host: &Host, number: u64, who: &str) {
    let name = named(DECIDED, number);
    let _alone = host.registry.decisions.lock();
    let Some((_, record)) = host.node.records(&name).into_iter().next() else { return };
    let record = String::from_utf8_lossy(&record).into_owned();
    let left: Vec<&str> = record.split(',').filter(|other| *other != who).collect();
    if left.is_empty() {
        host.node.change_records(b"", &[(named(ACKNOWLEDGED, number), Vec::new())], &[name]);
        host.registry.acknowledged.lock().push_back((number, Instant::now()));
    } else {
        host.node.put_record(&name, left.join(",").as_bytes());
    }
}

/// Drops decisions that no gateway asks for any more.
fn drop_acknowledged(host: &Host) {
    let mut acknowledged = host.registry.acknowledged.lock();
    let old = acknowledged.partition_point(|(_, since)| since.elapsed() > REMEMBERED);
    let names: Vec<_> = acknowledged.drain(..old).map(|(number, _)| named(b"", number)).collect();
    drop(acknowledged);
    host.node.change_records(ACKNOWLEDGED, &[], &names);
}

/// Asks about decisions that stay, for as long as there is the node. They would stay for ever otherwise.
pub(super) async fn follow_decisions(host: Weak<Host>) {
    let mut before = HashSet::new();
    loop {
        tokio::time::sleep(ask_after()).await;
        let Some(host) = host.upgrade() else { return };
        drop_acknowledged(&host);
        let mut seen = HashSet::new();
        let mut by_node: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (name, record) in host.node.records(DECIDED) {
            let Some(number) = number_of(&name) else { continue };
            seen.insert(number);
            if before.contains(&number) {
                for node in String::from_utf8_lossy(&record).split(',') {
                    by_node.entry(node.to_owned()).or_default().push(number);
                }
            }
        }
        // All at once: a participant that does not answer holds up its own decisions only.
        let mut asked = JoinSet::new();
        by_node.into_iter().for_each(|(node, numbers)| {
            asked.spawn(acknowledged_by(host.clone(), node, numbers));
        });
        asked.join_all().await;
        before = seen;
    }
}

/// Asks a participant whether it has followed these decisions, up to the first one that it does not answer about.
async fn acknowledged_by(host: Arc<Host>, node: String, numbers: Vec<u64>) {
    let link = host.way_to(node.clone());
    for number in numbers {
        let request = link.ask(Ask::Resolve(wire::Resolve { txn: number }));
        match timeout(ask_after(), request.answer()).await {
            Ok(Ok(Answer::Done(_))) => forget_decision(&host, number, &node),
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
