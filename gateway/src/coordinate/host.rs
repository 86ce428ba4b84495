//! What the calls of an atomic script meet: the gate, then the transaction.

use std::sync::Arc;

use script::{CallFlags, Host, HostCall, LogLevel};
use store::{Call, Conflict, Mode, Transaction};
use store_engine::{Args, CommandError, DATABASES, Protocol, Reply, number};

use crate::gate::{self, Admitted, Origin, Recent};
use crate::server::Server;

/// Fuel that a call costs beside what its reply's bytes cost.
const CALL_FUEL: u64 = 100;

/// The circumstances of a unit, which every round sees alike.
#[derive(Clone, Copy)]
pub(super) struct Circumstances {
    pub now_ms: u64,
    pub clock_seconds: f64,
    pub seed: u64,
    pub db: usize,
    pub read_only: bool,
}

/// What a script's calls meet: the gate, then the transaction.
pub(super) struct ScriptHost {
    pub server: Arc<Server>,
    pub txn: Transaction,
    pub seen: Circumstances,
    pub conflict: Option<Conflict>,
    pub recent: Recent,
}

impl ScriptHost {
    fn answer(&mut self, args: Args<'_>, out: &mut Reply) -> Result<(), Stop> {
        let ScriptHost { server, txn, seen, conflict, recent } = self;
        let origin = Origin::Script { read_only: seen.read_only };
        let Admitted { facts, keys, .. } = match gate::admit_again(&server.registry, args, origin, recent) {
            Ok(admitted) => admitted,
            Err(error) => {
                match select(args) {
                    Some(Ok(db)) => {
                        seen.db = db;
                        out.ok();
                    }
                    Some(Err(error)) => out.error(&error),
                    None => out.error(&error),
                }
                return Ok(());
            }
        };
        let call = Call { command: facts, args, keys: &keys, db: seen.db, now_ms: seen.now_ms };
        let mode = if seen.read_only { Mode::Shared } else { Mode::Exclusive };
        txn.execute(&call, mode, &mut seen.seed, out).map(drop).map_err(|lacks| {
            *conflict = Some(lacks);
            Stop
        })
    }
}

/// The round must end.
struct Stop;

/// SELECT inside a script holds for the script only: the one session command that means something there.
fn select(args: Args<'_>) -> Option<Result<usize, CommandError>> {
    if !args.name().eq_ignore_ascii_case(b"select") || args.len() != 2 {
        return None;
    }
    let Some(db) = number::parse_i64(args[1]) else { return Some(Err(store_engine::error::NOT_AN_INTEGER)) };
    let db = usize::try_from(db).ok().filter(|db| *db < DATABASES);
    Some(db.ok_or(CommandError::new("ERR DB index is out of range")))
}

impl Host for ScriptHost {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        let args = Args::new(args);
        let protocol = if flags.resp3() { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut out = Reply { buf: std::mem::take(reply), protocol };
        let done = if flags.acl_check() {
            // Every user may run every command that exists.
            match self.server.registry.lookup(args.name()) {
                Some(_) => out.integer(1),
                None => out.error(&CommandError::new("ERR Invalid command passed to redis.acl_check_cmd()")),
            }
            Ok(())
        } else {
            self.answer(args, &mut out)
        };
        *reply = out.buf;
        match done {
            Ok(()) => HostCall::Done(CALL_FUEL + reply.len() as u64),
            Err(Stop) => HostCall::Stop,
        }
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        crate::log::script(level, text);
    }
}
