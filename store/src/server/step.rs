//! What is asked of the node, done.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::store::v1 as wire;
use store_engine::error::REPLY_TOO_LARGE;
use store_engine::notifications::Notification;
use store_engine::spec::flags;
use store_engine::work::CANCELLED;
use store_engine::{DATABASES, Reply, Routing};
use wire::refusal::Code;
use wire::response::Body as Answer;
use wire::step::{Finish, Savepoint};
use wire::step_result::Outcome;

use super::admit::Admitted;
use super::host::Host;
use super::in_doubt::{is_in_the_way, unless_held_up};
use super::membership::Owned;
use super::outbox::Outbox;
use super::pending;
use super::refusal::refusal;
use super::registry::{Found, Roles};
use super::watches::Watches;
use crate::client::dry_run;
use crate::lock::{LockRequest, Mode};
use crate::spans::{self, Span, SpanKind};
use crate::topology::MOST_NODES;
use crate::txn::{self, Conflict, Executed, LimitReached, LocalTransaction, OnFull, TxnLimits};

/// Runs a call as a transaction of its own, if nothing is in its way.
pub(super) fn execute_now(host: &Host, call: &wire::Call) -> Option<Answer> {
    let now_ms = (host.clock)();
    let (admitted, mut out, _owned) = match admitted(host, call, now_ms) {
        Ok(admitted) => admitted,
        Err(answer) => return Some(*answer),
    };
    let mut seed = seed(host);
    let call = admitted.call(now_ms);
    let part = spans::Part::begin();
    host.node.try_execute(&call, &mut seed, &mut out)?;
    end_span(part, |span| on_shard(host, &admitted, span));
    Some(Answer::Reply(out.buf.into()))
}

/// The same, after the transactions that hold its locks.
pub(super) async fn execute(host: &Arc<Host>, call: &wire::Call, outbox: &Outbox) -> Answer {
    let (admitted, mut out) = match admitted(host, call, (host.clock)()) {
        Ok((admitted, out, _)) => (admitted, out),
        Err(answer) => return *answer,
    };
    let mut seed = seed(host);
    // A slot does not move while one of its keys is locked, but may have moved before.
    let call = admitted.call(0);
    let is_wanted = |txn: &LocalTransaction| match call.command.routing.of(call.args) {
        Routing::ByKey => call.keys().any(|(key, mode)| is_in_the_way(txn, call.db, key, mode)),
        _ => true,
    };
    let mut turn = None;
    let txn = loop {
        let begin = LocalTransaction::begin_for(&host.node, &call);
        let txn = match unless_held_up(host, is_wanted, begin).await {
            Ok(txn) => txn,
            Err(held_up) => return Answer::Refusal(held_up),
        };
        // Known only with the locks: values that another long call works on are not in their shards.
        if turn.is_some() || !txn.is_long(&call) {
            break txn;
        }
        // The keys must not stay locked while the peer does not read.
        drop(txn);
        turn = Some(outbox.turn().await);
    };
    if let Err(moved) = host.membership.owns(admitted.key_bytes()) {
        return Answer::Refusal(moved);
    }
    let call = admitted.call((host.clock)());
    let part = spans::Part::begin();
    txn.finish_with(&call, &mut seed, &mut out).await;
    end_span(part, |span| on_shard(host, &admitted, span));
    Answer::Reply(out.buf.into())
}

/// Ends the span of calls, if the request is traced.
fn end_span(part: Option<spans::Part>, attributes: impl FnOnce(Span) -> Span) {
    if let Some(part) = part {
        let span = attributes(part.span("work", SpanKind::Internal));
        part.end(span);
    }
}

/// Adds the shard of a call to its span, if it uses one.
fn on_shard(host: &Host, admitted: &Admitted<'_>, span: Span) -> Span {
    let mut shards = admitted.key_bytes().map(|key| host.node.shard_of(key));
    match shards.next() {
        Some(first) if shards.all(|shard| shard == first) => span.with("moonshard.shard", first),
        _ => span,
    }
}

/// A call that may be run, with its reply to be, for as long as the slots are this node's; otherwise the answer.
fn admitted<'a, 'h>(
    host: &'h Host,
    call: &'a wire::Call,
    now_ms: u64,
) -> Result<(Admitted<'a>, Reply, Owned<'h>), Box<Answer>> {
    let admitted = Admitted::new(call).map_err(|reason| Answer::Refusal(refusal(Code::Invalid, reason)))?;
    let owned =
        host.membership.owns(admitted.key_bytes()).map_err(|moved| Box::new(Answer::Refusal(moved)))?;
    let mut out = admitted.reply(0);
    match admitted.allowed(&host.node, now_ms) {
        Ok(()) => Ok((admitted, out, owned)),
        Err(error) => {
            out.error(&error);
            Err(Box::new(Answer::Reply(out.buf.into())))
        }
    }
}

/// Where the chance of a single command begins.
fn seed(host: &Host) -> u64 {
    host.node.next_txn().wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Ends a prepared transaction without a trace.
pub(super) async fn abort(host: Arc<Host>, number: u64) -> Answer {
    match pending::decided(&host, number, false).await {
        Ok(_) => Answer::Done(wire::Done {}),
        Err(reason) => Answer::Refusal(refusal(Code::Unavailable, &reason)),
    }
}

/// Does a step of a transaction. If the future is dropped the transaction is taken back.
pub(super) async fn step(host: Arc<Host>, session: u64, watches: Arc<Watches>, step: wire::Step) -> Answer {
    let number = step.txn;
    if step.finish() == Finish::Prepare && step.others.is_empty() {
        // It could never be decided.
        return Answer::Refusal(refusal(Code::Invalid, "a prepared transaction needs a coordinator"));
    }
    let held = match host.registry.take(number, session, step.begin.is_some()) {
        Found::New => None,
        Found::Open(txn) => Some(txn),
        Found::Prepared if step.finish() == Finish::Commit => {
            return match pending::decided(&host, number, true).await {
                Ok(true) => Answer::StepResult(Box::default()),
                Ok(false) => Answer::Refusal(refusal(Code::Unavailable, "the transaction is being finished")),
                Err(reason) => Answer::Refusal(refusal(Code::Unavailable, &reason)),
            };
        }
        Found::Prepared | Found::Missing => {
            return Answer::Refusal(refusal(Code::Invalid, "no such transaction is open"));
        }
    };
    let mut stepped = wire::StepResult::default();
    let done = work(&host, &watches, &step, held, &mut stepped).await;
    let txn = match done {
        Ok(Some(txn)) => txn,
        Ok(None) => {
            host.registry.forget(number);
            return Answer::StepResult(Box::new(stepped));
        }
        Err(refused) => {
            host.registry.forget(number);
            return Answer::Refusal(refused);
        }
    };
    if stepped.outcome() != Outcome::Ok {
        host.registry.put_back(number, txn);
        return Answer::StepResult(Box::new(stepped));
    }
    let finished = match step.finish() {
        Finish::Prepare => {
            let mut others = step.others.iter().cloned();
            let roles = Roles {
                coordinator: others.next().unwrap_or_default(),
                identity: step.coordinator_identity,
                siblings: others.take(MOST_NODES).collect(),
            };
            pending::prepare(&host, number, txn, roles, None).await
        }
        Finish::Commit => pending::commit(&host, number, txn, &step.others).await,
        Finish::Open | Finish::Abort => {
            host.registry.put_back(number, txn);
            Ok(())
        }
    };
    match finished {
        Ok(()) => Answer::StepResult(Box::new(stepped)),
        Err(error) => Answer::Refusal(refusal(error.code(), &error)),
    }
}

/// Everything in a step but its end. The transaction; none if it came to nothing.
async fn work(
    host: &Host,
    watches: &Watches,
    step: &wire::Step,
    held: Option<Box<LocalTransaction>>,
    stepped: &mut wire::StepResult,
) -> Result<Option<Box<LocalTransaction>>, wire::Refusal> {
    let invalid = |reason: &str| refusal(Code::Invalid, reason);
    let txn = match &step.begin {
        None => held,
        Some(begin) => begun(host, watches, begin, held, stepped).await?,
    };
    let Some(mut txn) = txn else { return Ok(None) };
    txn.set_limits(limits_of(step));
    if stepped.outcome() != Outcome::Ok {
        return Ok(Some(txn));
    }
    stepped.now_ms = (host.clock)();
    let now_ms = if step.now_ms == 0 { stepped.now_ms } else { step.now_ms };
    if !step.changes.is_empty() {
        host.node.refuse_while_failing().map_err(|error| refusal(Code::Unavailable, error.text()))?;
        txn.apply(&step.changes, now_ms).map_err(invalid)?;
        if let Err(conflict) = txn.check_data(now_ms) {
            report_conflict(conflict, stepped);
            return Ok(Some(txn));
        }
    }
    txn.note(step.events.iter().map(events_of));
    match step.savepoint() {
        Savepoint::None => {}
        Savepoint::Begin => txn.begin_part(),
        Savepoint::Release => txn.keep_part(),
        Savepoint::Rollback if step.report_keys > 0 => {
            stepped.rolled_back = Some(dry_run::to_wire(txn.dry_run_changes(step.report_keys as usize)));
        }
        Savepoint::Rollback => txn.undo_part(),
    }
    stepped.seed = step.seed;
    let mode = if step.shared { Mode::Shared } else { Mode::Exclusive };
    let lacks_memory = step.strict && !step.ignore_maxmemory && host.node.is_full(now_ms);
    let part = if step.calls.is_empty() { None } else { spans::Part::begin() };
    for call in &step.calls {
        let admitted = Admitted::new(call).map_err(invalid)?;
        drop(host.membership.owns(admitted.key_bytes())?);
        let mut out = admitted.reply(step.max_reply_bytes);
        // All of the transaction is refused, as a part of it would be done otherwise.
        if admitted.command.is_write() {
            host.node.refuse_while_failing().map_err(|error| refusal(Code::Unavailable, error.text()))?;
        }
        // Whether memory suffices was asked when the transaction began, or is now.
        let done = match txn.execute_any(&admitted.call(now_ms), mode, &mut stepped.seed, &mut out).await {
            // What a write has changed beside its reply cannot be taken back alone.
            Executed::Done(..) if out.is_over_limit() && admitted.command.is_write() => {
                return Err(refusal(Code::Unavailable, REPLY_TOO_LARGE.text()));
            }
            Executed::Done(same, fine) => {
                txn = same;
                Ok(fine)
            }
            Executed::Conflict(same, conflict) => {
                txn = same;
                Err(conflict)
            }
            Executed::Failed => return Err(refusal(Code::Unavailable, CANCELLED.text())),
        };
        match done {
            Ok(fine)
                if (step.strict && !fine && !call.may_fail)
                    || (lacks_memory && admitted.command.has(flags::DENY_OOM)) =>
            {
                stepped.set_outcome(Outcome::Rejected);
                return Ok(None);
            }
            Ok(_) => stepped.replies.push(out.buf.into()),
            Err(conflict) => {
                report_conflict(conflict, stepped);
                break;
            }
        }
    }
    end_span(part, |span| span.with("moonshard.step.calls", step.calls.len()));
    // Those that are to be copied as they are now.
    let most_bytes = step.begin.as_ref().map_or(0, |begin| begin.value_bytes as usize);
    let wanted = step.begin.iter().filter(|_| most_bytes > 0).flat_map(|begin| &begin.locks);
    let wanted = wanted.map(|lock| (lock, most_bytes));
    for (lock, most_bytes) in wanted.chain(step.fetch.iter().map(|lock| (lock, usize::MAX))) {
        let request = lock_request(lock)?;
        if !txn.holds(request.db, &request.key, Mode::Shared) {
            return Err(invalid("a requested value whose key is not locked"));
        }
        stepped.values.push(value(&txn, &request, most_bytes, now_ms));
    }
    stepped.memory_full = host.node.is_full(now_ms);
    Ok(Some(txn))
}

fn limits_of(step: &wire::Step) -> TxnLimits {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    TxnLimits {
        undo_bytes: if step.undo_max_bytes == 0 { usize::MAX } else { bytes(step.undo_max_bytes) },
        on_full: match step.on_full() {
            wire::step::OnFull::Allow => OnFull::Allow,
            wire::step::OnFull::Refuse => OnFull::Refuse,
            wire::step::OnFull::RollBack => OnFull::RollBack,
        },
        slack_bytes: bytes(step.memory_slack_bytes),
    }
}

fn events_of(event: &wire::KeyEvent) -> Notification {
    let wire::KeyEvent { class, name, db, key } = event;
    Notification { class: *class, name: name.clone().into(), db: *db as usize, key: key.to_vec().into() }
}

fn report_conflict(conflict: Conflict, stepped: &mut wire::StepResult) {
    match conflict {
        Conflict::Everything => stepped.set_outcome(Outcome::ConflictAll),
        Conflict::Limit(LimitReached::Data) => stepped.set_outcome(Outcome::LimitData),
        Conflict::Limit(LimitReached::Undo) => stepped.set_outcome(Outcome::LimitUndo),
        Conflict::Key(LockRequest { db, key, mode }) => {
            stepped.set_outcome(Outcome::Conflict);
            stepped.key =
                Some(wire::Lock { db: db as u32, key: key.into_vec().into(), shared: mode == Mode::Shared });
        }
    }
}

/// Takes the locks that a transaction begins with, or more of them. None if that was in vain.
async fn begun(
    host: &Host,
    watches: &Watches,
    begin: &wire::Begin,
    held: Option<Box<LocalTransaction>>,
    stepped: &mut wire::StepResult,
) -> Result<Option<Box<LocalTransaction>>, wire::Refusal> {
    let requests = begin.locks.iter().map(lock_request).collect::<Result<Vec<_>, _>>()?;
    let keys = || begin.locks.iter().map(|lock| &*lock.key);
    drop(host.membership.owns(keys())?);
    let txn = match held {
        Some(mut txn) => {
            // More of them; a transaction that holds some does not wait for others.
            let _owned = host.membership.owns(keys())?;
            if let Err(conflict) = txn.lock_free(&requests) {
                report_conflict(conflict, stepped);
            }
            return Ok(Some(txn));
        }
        None if begin.everything => {
            Some(unless_held_up(host, |_| true, LocalTransaction::begin_whole(&host.node)).await?)
        }
        None if begin.wait => {
            let wanted = requests.clone();
            let is_wanted = |txn: &LocalTransaction| {
                wanted.iter().any(|lock| is_in_the_way(txn, lock.db, &lock.key, lock.mode))
            };
            Some(unless_held_up(host, is_wanted, LocalTransaction::begin(&host.node, requests)).await?)
        }
        None => LocalTransaction::try_begin(&host.node, &requests),
    };
    let Some(txn) = txn else {
        stepped.set_outcome(Outcome::Busy);
        return Ok(None);
    };
    // A slot does not move while one of its keys is locked, but may have moved before.
    drop(host.membership.owns(keys())?);
    if begin.everything {
        stepped.map = host.membership.taken().map(|taken| taken.to_wire());
    }
    if watches_broken(host, watches, &begin.watches) {
        stepped.set_outcome(Outcome::WatchBroken);
        return Ok(None);
    }
    Ok(Some(txn))
}

/// Whether one of these watches is broken, or unknown.
fn watches_broken(host: &Host, watches: &Watches, numbers: &[u64]) -> bool {
    let watches = watches.lock();
    let now_ms = (host.clock)();
    numbers.iter().any(|number| {
        watches.get(number).is_none_or(|watched| {
            watched.iter().any(|watched| {
                // One that has expired counts. It is locked, so that it does not go by itself.
                host.node.refresh(watched.db, &watched.key, now_ms) || watched.changed.load(Ordering::Relaxed)
            })
        })
    })
}

fn lock_request(lock: &wire::Lock) -> Result<LockRequest, wire::Refusal> {
    let db = lock.db as usize;
    if db >= DATABASES {
        return Err(refusal(Code::Invalid, "an unknown database"));
    }
    let mode = if lock.shared { Mode::Shared } else { Mode::Exclusive };
    Ok(LockRequest { db, key: (&*lock.key).into(), mode })
}

/// A value as it travels.
fn value(txn: &LocalTransaction, request: &LockRequest, most_bytes: usize, now_ms: u64) -> bytes::Bytes {
    match txn.value(request.db, &request.key, most_bytes, now_ms) {
        txn::Found::Nothing => vec![0],
        txn::Found::TooLarge => vec![2],
        txn::Found::Entry(mut entry) => {
            entry.insert(0, 1);
            entry
        }
    }
    .into()
}
