//! The run of an atomic script: in rounds until its locks suffice.

use std::sync::Arc;

use script::Spent;
use store::Transaction;

use super::call::ScriptCall;
use super::circumstances::{Circumstances, Collects, Lack};
use super::dry;
use super::errors::ScriptError;
use super::host::ScriptHost;
use super::locks::LockSet;
use super::outcome::{append_reply, note_end};
use super::outgoing::Outgoing;
use super::round::{Round, run_once};
use crate::scripts::options::OnError;
use crate::server::Server;
use crate::telemetry::counters::{Counters, unix_ms};
use crate::telemetry::script_stats::Ended;

/// The rounds of an atomic script, whose locks grow.
pub(super) struct Rounds {
    locks: LockSet,
    collects: Collects,
    /// It begins with its first calls.
    opens: bool,
    /// Its last calls go with its end.
    leaves: bool,
    seen: Option<Circumstances>,
}

impl Rounds {
    pub fn new(server: &Server, call: &ScriptCall<'_>) -> Rounds {
        Rounds {
            locks: LockSet::of_keys(call.keys, call.db, call.lock_mode()),
            collects: Collects::at_first(server),
            // Whoever wants to know what the calls do is told that of each.
            opens: server.store.node().is_none() && call.trace.is_none() && call.program.stats().may_open(),
            leaves: call.trace.is_none(),
            seen: None,
        }
    }

    /// For the next round, after what this one `held` came to nothing.
    fn repeat(&mut self, server: &Server, call: &ScriptCall<'_>, held: Option<&Transaction>, lack: Lack) {
        match lack {
            Lack::Begin => call.program.stats().begin_apart(),
            _ => {
                Counters::add(&server.counters.scripts_rerun, 1);
                call.program.stats().add_rerun();
                call.tell_rerun(&lack);
            }
        }
        self.opens = false;
        self.collects = self.collects.after(&lack);
        self.locks.widen(held, lack.conflict());
    }

    /// For the next round, after what was to go with its end could not be done.
    pub fn again(&mut self, server: &Server, call: &ScriptCall<'_>, lack: Lack) {
        self.leaves = false;
        self.locks = LockSet::of_keys(call.keys, call.db, call.lock_mode());
        self.repeat(server, call, None, lack);
    }
}

/// What a script has come to that is to be kept.
pub(super) struct Kept {
    pub txn: Transaction,
    pub outgoing: Outgoing,
    pub failed: bool,
    pub spent: Spent,
}

/// What a script has come to.
pub(super) enum Ran {
    /// It is to be kept.
    Kept(Kept),
    /// Nothing of it is. Whether its reply is an error.
    Over { is_error: bool },
}

/// Runs a script until its locks suffice, and appends its reply to `out`.
pub(super) async fn run_atomic(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    rounds: &mut Rounds,
    out: &mut Vec<u8>,
) -> Result<Ran, ScriptError> {
    let tells = !call.is_dry() && call.trace.as_ref().is_some_and(|trace| trace.wants_changes());
    loop {
        let now_ms = rounds.seen.map(|seen| seen.now_ms).filter(|now_ms| *now_ms > 0);
        let began = call.phase();
        let opened = if rounds.opens { rounds.locks.open(server) } else { None };
        let mut txn = match opened {
            Some(txn) => txn,
            None => {
                let lock = rounds.locks.lock(server, now_ms, Vec::new());
                server.counters.lock_waits.of(lock).await?
            }
        };
        if call.is_dry() || tells {
            txn.begin_part().await?;
        }
        call.end_phase("lock", began);
        // Not before: those who wait for a key shall not keep others from running.
        let permit = server.counters.queue_waits.of(server.runtime.admit(false)).await;
        let time = match txn.is_open() {
            true => 0,
            false => txn.keep_time(unix_ms),
        };
        let seen = rounds.seen.get_or_insert_with(|| Circumstances {
            clock_seconds: call.clock_seconds(server),
            ..call.circumstances(0)
        });
        if seen.now_ms == 0 {
            (seen.now_ms, seen.full) = (time, seen.full || (txn.is_full() && !seen.spares_memory));
        }
        let (seen, collects) = (*seen, rounds.collects);
        let mut round = run_once(server, call, txn, seen, collects, rounds.leaves).await;
        // It may have learnt that only when it began.
        if let (Some(first), Some(host)) = (&mut rounds.seen, &round.host) {
            (first.now_ms, first.full) = (host.seen.now_ms, host.seen.full);
        }
        if tells {
            round = Box::pin(dry::note_changes(server, call, round, seen, collects)).await?;
        }
        drop(permit);
        let lack = round.lack();
        let Round { host, outcome, spent } = round;
        if let Some(Lack::Node(error)) = lack {
            call.note(server, Ended::WithError, &spent);
            return Err(ScriptError::NodeLost(error));
        }
        if let Some(Lack::Limit(limit)) = lack {
            call.note(server, Ended::ByLimit, &spent);
            return Err(ScriptError::memory(server, call, limit));
        }
        if let Some(lack) = lack {
            rounds.repeat(server, call, host.as_ref().map(|host| &host.txn), lack);
            // Taken back before the next round asks for its locks.
            drop(host);
            continue;
        }
        let mark = out.len();
        let failed = append_reply(server, call, outcome, &spent, out)?;
        if call.is_dry() {
            note_end(server, call, failed, &spent);
            if let Some(mut host) = host {
                Box::pin(dry::tell(call, &mut host.txn, failed, mark, out)).await?;
            }
            // It tells of the run, however that ended.
            return Ok(Ran::Over { is_error: false });
        }
        if let Some(ScriptHost { txn, outgoing, .. }) = host.map(|host| *host)
            && !(failed && call.options.on_error == Some(OnError::RollBack))
        {
            if txn.requests().count() > call.keys.len() {
                call.note_undeclared(server, txn.requests());
            }
            return Ok(Ran::Kept(Kept { txn, outgoing, failed, spent }));
        }
        note_end(server, call, failed, &spent);
        return Ok(Ran::Over { is_error: failed });
    }
}
