//! Slots that go from one node to another while both serve.
//!
//! Slots move in batches. Each batch is a transaction over both nodes, which the sending node begins and decides: no other call
//! uses the shard of the slots meanwhile. The receiver prepares their keys together with the map in which it owns the slots;
//! then one record of the sender's journal removes the keys, and has both the new map and the decision. If the
//! move is interrupted at any point, [`pending`] finds out how it ends.

use std::sync::Arc;
use std::time::Duration;

use proto::store::v1 as wire;
use store_engine::effect::Effects;
use tokio::time::{sleep, timeout};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::step::Finish;
use wire::step_result::Outcome;

use super::host::Host;
use super::in_doubt::unless_held_up;
use super::membership::Taken;
use super::pending;
use super::records::common_records;
use super::refusal::refusal;
use super::registry::{Arrival, Found, Roles};
use crate::client::silence::SILENCE;
use crate::journal::fail_point;
use crate::lock::{LockRequest, Mode};
use crate::parts::MESSAGE_BYTES;
use crate::random::random;
use crate::topology::{NodeId, SLOTS};
use crate::txn::{Cargo, LocalTransaction};

/// A batch takes no more slots than have so many bytes, unless it is one.
const BATCH_BYTES: usize = 8 << 20;
/// What a receiver that takes a batch does at least: a slot with one large key is a batch of up to a gigabyte.
const SLOWEST_BYTES_PER_SECOND: usize = 8 << 20;
/// How often a batch is begun whose receiver is busy, and how long that one is left alone.
const ATTEMPTS: (u32, Duration) = (200, Duration::from_millis(10));

/// Moves a batch to another node. It goes on if the caller stops waiting.
pub(super) async fn give(host: Arc<Host>, request: wire::MoveSlots) -> Answer {
    let gone = |_| Err(refusal(Code::Unavailable, "the move failed"));
    match tokio::spawn(async move { batch(&host, &request).await }).await.unwrap_or_else(gone) {
        Ok(moved) => Answer::SlotsMoved(moved),
        Err(refused) => Answer::Refusal(refused),
    }
}

async fn batch(host: &Arc<Host>, request: &wire::MoveSlots) -> Result<wire::SlotsMoved, wire::Refusal> {
    let _one_at_a_time = host.moving.lock().await;
    let (first, last, to) = (request.first as usize, request.last as usize, request.node as NodeId);
    for _ in 0..ATTEMPTS.0 {
        let taken = host.membership.taken().ok_or_else(|| {
            refusal(
                Code::Denied,
                "this node does not belong to a \
            cluster",
            )
        })?;
        if first > last || last >= SLOTS || to >= taken.map.nodes().len() {
            return Err(refusal(Code::Invalid, "invalid slots or node"));
        }
        let slots: Vec<u16> =
            (first as u16..=last as u16).filter(|slot| taken.map.owner(*slot) == taken.me).collect();
        if slots.is_empty() || to == taken.me {
            return Ok(wire::SlotsMoved {
                map: Some(Box::new(taken.to_wire())),
                ..wire::SlotsMoved::default()
            });
        }
        if let Some(cargo) = try_batch(host, &taken, &slots, to).await? {
            let map = host.membership.taken().map(|taken| Box::new(taken.to_wire()));
            return Ok(wire::SlotsMoved {
                slots: cargo.slots.len() as u32,
                keys: cargo.keys.len() as u64,
                bytes: cargo.bytes as u64,
                left: (slots.len() - cargo.slots.len()) as u32,
                map,
            });
        }
        sleep(ATTEMPTS.1).await;
    }
    Err(refusal(Code::Unavailable, "the destination is busy"))
}

/// Bytes of keys that a message may move, beside all that belongs to it.
fn most_bytes() -> usize {
    let most = MESSAGE_BYTES - (16 << 20);
    fail_point::number("move-bytes").map_or(most, |bytes| bytes as usize)
}

/// Moves a batch; none if the destination is busy.
async fn try_batch(
    host: &Arc<Host>,
    taken: &Taken,
    slots: &[u16],
    to: NodeId,
) -> Result<Option<Cargo>, wire::Refusal> {
    let unavailable = |reason: &str| refusal(Code::Unavailable, reason);
    host.node.refuse_while_failing().map_err(|error| unavailable(error.text()))?;
    let receiver = taken.map.nodes()[to].clone();
    let link = host.peer(&receiver);
    link.connected().await.map_err(|reason| unavailable(&format!("cannot reach {receiver}: {reason}")))?;

    let shard = |slot: u16| usize::from(slot) % host.node.shards();
    let of_shard: Vec<u16> = slots.iter().copied().filter(|slot| shard(*slot) == shard(slots[0])).collect();
    let begin = LocalTransaction::begin_shard(&host.node, shard(slots[0]));
    let mut txn = unless_held_up(host, |_| true, begin).await?;
    let cargo = txn.load(shard(slots[0]), &of_shard, BATCH_BYTES);
    let (size, most) = (cargo.effects.as_bytes().len(), most_bytes());
    if size > most {
        let slot = cargo.slots.first().copied().unwrap_or_default();
        let reason = format!(
            "slot {slot} has {size} bytes, and a move sends at most {most} bytes of a slot: delete or split its largest keys"
        );
        return Err(refusal(Code::Invalid, &reason));
    }
    let leaving = cargo.slots.first() == Some(&0);
    let _stays = leaving.then(|| Stay::new(host));
    let records = if leaving { catalog(host) } else { Vec::new() };
    let number = random();
    let map = taken.map.moved(&cargo.slots, to);
    let own_name = host.membership.name().unwrap_or_default();
    let receive = wire::ReceiveSlots {
        txn: number,
        map: Some(map.to_wire()),
        changes: cargo.effects.as_bytes().to_vec().into(),
        records: records.clone(),
        coordinator: own_name,
        coordinator_identity: host.membership.identity(),
    };
    // From here on the outcome of the transaction can be asked for.
    if !matches!(host.registry.take(number, 0, true), Found::New) {
        return Ok(None);
    }
    let finish = |finish: Finish| {
        Ask::Step(Box::new(wire::Step { txn: number, finish: finish.into(), ..wire::Step::default() }))
    };
    let time_limit = SILENCE + Duration::from_secs((size / SLOWEST_BYTES_PER_SECOND) as u64);
    let prepared = match timeout(time_limit, link.ask(Ask::ReceiveSlots(Box::new(receive))).answer()).await {
        Ok(Ok(Answer::StepResult(stepped))) if stepped.outcome() == Outcome::Ok => Ok(()),
        Ok(Ok(Answer::StepResult(_))) => Err(None),
        Ok(Ok(Answer::Refusal(refused))) => Err(Some(refused)),
        Ok(Ok(_)) => Err(Some(unavailable("unexpected type of answer"))),
        Ok(Err(lost)) => Err(Some(unavailable(&lost.reason.to_string()))),
        Err(_) => Err(Some(unavailable("no answer within the timeout"))),
    };
    if let Err(why) = prepared {
        host.registry.abort(number, 0);
        link.send_oneway(finish(Finish::Abort));
        return why.map_or(Ok(None), Err);
    }
    if !host.registry.finishes(number) {
        return Err(unavailable("the destination aborted the move"));
    }
    let names = [receiver.clone()];
    pending::decide(number, txn.records_mut(), &names);
    for record in &records {
        txn.records_mut().remove(&record.name);
    }
    txn.unload(&cargo);
    host.membership.change(&host.node, txn.parts_mut(), &map);
    txn.wake_slots_left(&cargo);
    txn.commit();
    if let Err(reason) = pending::seal(host, number).await {
        link.send_oneway(Ask::Resolve(wire::Resolve { txn: number }));
        return Err(unavailable(&reason.to_string()));
    }
    match link.ask(finish(Finish::Commit)).answer().await {
        Ok(Answer::StepResult(_)) => pending::forget_decision(host, number, &receiver),
        // It asks, for as long as it takes.
        _ => link.send_oneway(Ask::Resolve(wire::Resolve { txn: number })),
    }
    Ok(Some(cargo))
}

/// The catalog's records but those that are the node's own.
fn catalog(host: &Host) -> Vec<wire::Record> {
    common_records(host.node.records(b""))
}

/// As long as this lives the catalog does not change.
struct Stay<'a>(&'a Host);

impl<'a> Stay<'a> {
    fn new(host: &'a Host) -> Stay<'a> {
        host.membership.catalog_leaves(true);
        Stay(host)
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.membership.catalog_leaves(false);
    }
}

/// Prepares what another node gives.
pub(super) async fn receive(host: Arc<Host>, session: u64, request: wire::ReceiveSlots) -> Answer {
    match prepare(&host, session, request).await {
        Ok(how) => {
            let mut stepped = wire::StepResult::default();
            stepped.set_outcome(how);
            Answer::StepResult(Box::new(stepped))
        }
        Err(refused) => Answer::Refusal(refused),
    }
}

async fn prepare(host: &Host, session: u64, request: wire::ReceiveSlots) -> Result<Outcome, wire::Refusal> {
    let number = request.txn;
    let invalid = |reason: &str| refusal(Code::Invalid, reason);
    let unavailable = |reason: &str| refusal(Code::Unavailable, reason);
    let now_ms = (host.clock)();
    let arrival = Arrival::of(&request).map_err(|error| invalid(&error.0))?;
    let mine = host
        .membership
        .taken()
        .ok_or_else(|| refusal(Code::Denied, "this node does not belong to a cluster"))?;
    mine.map.merged(&arrival.map).map_err(|error| refusal(Code::Denied, &error.0))?;
    if host.node.is_full(now_ms) {
        return Err(unavailable("the memory of the destination is full"));
    }
    host.node.refuse_while_failing().map_err(|error| unavailable(error.text()))?;
    let mut requests = Vec::new();
    for change in Effects::read(&request.changes) {
        let (db, key, _) = change.map_err(|_| invalid("malformed changes"))?;
        requests.push(LockRequest { db, key: key.into(), mode: Mode::Exclusive });
    }
    if !matches!(host.registry.take(number, session, true), Found::New) {
        return Err(invalid("this transaction number was already used"));
    }
    // Waiting here could end in a ring with those who wait for the giver's shard.
    let Some(mut txn) = LocalTransaction::try_begin(&host.node, &requests) else {
        host.registry.forget(number);
        return Ok(Outcome::Busy);
    };
    if let Err(reason) = txn.apply(&request.changes, now_ms) {
        host.registry.forget(number);
        return Err(invalid(reason));
    }
    let (coordinator, identity) = (request.coordinator, request.coordinator_identity);
    let roles = Roles { coordinator, identity, siblings: Vec::new() };
    let prepared = pending::prepare(host, number, txn, roles, Some(arrival)).await;
    prepared.map(|()| Outcome::Ok).map_err(|error| refusal(Code::Unavailable, &error))
}
