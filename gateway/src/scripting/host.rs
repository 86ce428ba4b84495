//! The host of a script: what each call of the script passes, whichever way the script locks.

mod locked;
mod unlocked;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use script::{CallFlags, Finishing, Host, HostCall, LogLevel};
use store_engine::{Args, Protocol, Reply};

use super::answer::{CALL_FUEL, ended, protocol_of, reply_in};
use super::channels::{Asking, about_channels};
use super::inline;
use super::trace::report_call;
use crate::admission::{Admitted, Caller, Declared, Recent, ScriptMemory, ScriptOrigin, admit_in_script};
use crate::server::{Row, Server};
use crate::session::tracking::Reader;
use crate::telemetry::script_trace::Trace;

pub(super) use locked::Locked;
pub(super) use unlocked::Unlocked;

/// The host of a script whose calls are performed by `L`.
pub(super) struct ScriptHost<L> {
    pub common: Common,
    pub locking: L,
}

/// What the hosts of all scripts have.
pub(super) struct Common {
    pub server: Arc<Server>,
    /// Who runs the script.
    pub caller: Caller,
    /// The script may not write.
    pub read_only: bool,
    /// The database that the script has selected.
    pub db: usize,
    /// The commands that the script called last.
    pub recent: Recent,
    /// The only keys that the script may touch, where that is the rule.
    pub declared: Option<Declared>,
    /// Most bytes of a call's reply.
    pub reply_bytes: usize,
    /// The client that is notified when what the script reads changes.
    pub reader: Option<Reader>,
    /// Where the calls are recorded, if they are.
    pub trace: Option<Arc<Trace>>,
    /// A call about channels, which is to be answered by [`Host::finish`].
    asking: Option<Box<Asking>>,
    /// TIME has to be answered by [`Host::finish`], in this protocol.
    clock_requested: Option<Protocol>,
}

impl Common {
    /// For a run of a script that begins now.
    pub fn new(
        server: &Arc<Server>,
        caller: Caller,
        (db, read_only): (usize, bool),
        declared: Option<Declared>,
        reply_bytes: usize,
        (reader, trace): (Option<Reader>, Option<Arc<Trace>>),
    ) -> Common {
        Common {
            server: server.clone(),
            caller,
            read_only,
            db,
            recent: Recent::default(),
            declared,
            reply_bytes,
            reader,
            trace,
            asking: None,
            clock_requested: None,
        }
    }
}

/// How the calls of a script are performed: under locks that the script holds, or without.
pub(super) trait Locking: Send + 'static {
    /// Whether there is memory for calls that need some.
    fn memory(&self) -> ScriptMemory;

    /// The present time. `None`: it has to be asked for, by [`Locking::finish`].
    fn clock(&mut self) -> Option<Duration>;

    /// Publishes a message. A call that has to wait is returned, for [`Locking::finish`]; so is PUBSUB.
    fn publish(&mut self, common: &Common, asking: Asking, out: &mut Reply) -> Result<Performed, Asking>;

    /// Performs a call of the store.
    fn execute(
        &mut self,
        common: &Common,
        admitted: Admitted<'_>,
        flags: CallFlags,
        out: &mut Reply,
    ) -> Performed;

    /// Goes on with a call that waits, which is the one about channels if there is such a call.
    fn finish(
        &mut self,
        common: &Common,
        asking: Option<Asking>,
        out: &mut Reply,
    ) -> impl Future<Output = Result<(), HostCall>> + Send;

    /// Fuel after which the run lets others have its thread, if that changes.
    fn slice_fuel(&self) -> Option<u64>;
}

/// What became of a call.
pub(super) enum Performed {
    /// The reply is there.
    Answered {
        /// It is no error.
        fine: bool,
    },
    /// The reply is not read: the call is sent later, and has cost nothing but its fuel.
    Collected,
    /// [`Locking::finish`] goes on with the call.
    Waits,
    /// The script has to end.
    Stopped(HostCall),
}

impl<L: Locking> ScriptHost<L> {
    fn perform(&mut self, args: Args<'_>, flags: CallFlags, out: &mut Reply) -> HostCall {
        let ScriptHost { common, locking } = self;
        let server = &common.server;
        let origin = ScriptOrigin {
            caller: &common.caller,
            declared: common.declared.as_ref(),
            read_only: common.read_only,
            db: common.db,
            memory: locking.memory(),
        };
        let admitted = match admit_in_script(server, &origin, args, &mut common.recent) {
            Ok(admitted) => admitted,
            Err(why) => {
                out.error(why.error());
                return HostCall::Done(CALL_FUEL);
            }
        };
        if let Some(reader) = &common.reader {
            reader.note(&server.sessions.tracking, &server.sessions.pubsub, admitted.spec());
        }
        let number = admitted.number;
        let performed = match admitted.row {
            Row::Engine(_) => locking.execute(common, admitted, flags, out),
            Row::Session(_) => Self::perform_in_gateway(common, locking, &admitted, out),
        };
        let (failed, ends) = match performed {
            Performed::Answered { fine } => (!fine, ended(out)),
            Performed::Collected => (false, ended(out)),
            Performed::Waits => (false, HostCall::Later),
            Performed::Stopped(stopped) => return stopped,
        };
        common.server.script_call_performed(common.caller.client, number, args, failed);
        ends
    }

    /// Performs a call that is about no key.
    fn perform_in_gateway(
        common: &mut Common,
        locking: &mut L,
        admitted: &Admitted<'_>,
        out: &mut Reply,
    ) -> Performed {
        if let Some(asking) = about_channels(admitted, out.protocol) {
            return locking.publish(common, asking, out).unwrap_or_else(|asking| {
                common.asking = Some(Box::new(asking));
                Performed::Waits
            });
        }
        let clock = match admitted.spec().name {
            "time" => locking.clock(),
            _ => Some(Duration::ZERO),
        };
        let Some(clock) = clock else {
            common.clock_requested = Some(out.protocol);
            return Performed::Waits;
        };
        let start = out.buf.len();
        inline::answer(&common.server, &common.caller, admitted, &mut common.db, clock, out);
        Performed::Answered { fine: !out.is_error_from(start) }
    }
}

impl<L: Locking> Host for ScriptHost<L> {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        let args = Args::new(args);
        let common = &self.common;
        let mut out = reply_in(reply, protocol_of(flags), common.reply_bytes);
        let (began, db) = (common.trace.as_ref().map(|_| Instant::now()), common.db);
        let ended = if flags.acl_check() {
            inline::answer_whether_allowed(&common.server, &common.caller, args, &mut out);
            ended(&out)
        } else {
            if common.server.sessions.monitors.listen() {
                common.server.sessions.monitors.show(&common.server.sessions.pubsub, db, "lua", args);
            }
            self.perform(args, flags, &mut out)
        };
        if let (Some(trace), Some(began)) = (&self.common.trace, began) {
            report_call(&self.common.server, trace, began, db, args, &out);
        }
        *reply = out.buf;
        ended
    }

    fn finish<'a>(&'a mut self, reply: &'a mut Vec<u8>) -> Finishing<'a> {
        Box::pin(async move {
            let ScriptHost { common, locking } = self;
            reply.clear();
            let mut out = reply_in(reply, Protocol::Resp2, common.reply_bytes);
            let began = common.trace.as_ref().map(|_| Instant::now());
            let asking = common.asking.take().map(|asking| *asking);
            if let Err(stopped) = locking.finish(common, asking, &mut out).await {
                return stopped;
            }
            if let Some(protocol) = common.clock_requested.take() {
                out.protocol = protocol;
                inline::reply_time(locking.clock().unwrap_or_default(), &mut out);
            }
            let ended = ended(&out);
            if let (Some(trace), Some(began)) = (&common.trace, began) {
                trace.answered(&out.buf, out.is_error_from(0), began.elapsed());
            }
            *reply = out.buf;
            ended
        })
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        let trace = self.common.trace.as_ref();
        trace.iter().for_each(|trace| trace.log(level, text));
        let span = trace.and_then(|trace| trace.snapshot().span.clone());
        crate::telemetry::log::script(level, text, span);
    }

    fn frames(&mut self, description: &[u8]) -> bool {
        self.common.trace.as_ref().is_some_and(|trace| trace.frames(description))
    }

    fn slice_fuel(&self) -> Option<u64> {
        self.locking.slice_fuel()
    }
}
