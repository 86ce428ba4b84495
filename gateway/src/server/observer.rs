//! What observes calls: counters, the audit log, SLOWLOG, LATENCY and spans. Every call is reported here once, where it ends.

use std::time::{Duration, Instant};

use store_engine::command::resolve;
use store_engine::spec::flags;
use store_engine::{Args, Reply};

use super::Server;
use crate::session::{ClientInfo, Session};
use crate::telemetry::Telemetry;
use crate::telemetry::audit::Caller;
use crate::telemetry::counters::{Counters, unix_ms};
use crate::telemetry::latency::Spike;
use crate::telemetry::spans::{AttributeValue, CLIENT, Open, Span};

/// A call of a client that has ended.
pub struct EndedCall<'c> {
    /// The number of its command.
    pub number: u16,
    /// The call, if it is at hand. Calls that are sent to other nodes are none that the audit log records.
    pub args: Option<Args<'c>>,
    /// How long the call took, if that was measured.
    pub took: Option<Duration>,
    /// The reply, if that is an error.
    pub error: Option<&'c [u8]>,
}

/// The reply from `start` on, if it is an error.
pub fn error_from(out: &Reply, start: usize) -> Option<&[u8]> {
    out.buf.get(start..).filter(|_| out.is_error_from(start))
}

impl Telemetry {
    /// Reports a call of a client that was run.
    #[inline]
    pub fn call_ended(&self, client: &ClientInfo, call: EndedCall<'_>) {
        let EndedCall { number, args, took, error } = call;
        match took {
            Some(took) => self.calls.add(number, took, error.is_some()),
            None => self.calls.add_untimed(number, error.is_some()),
        }
        if let Some(error) = error {
            self.errors.add(error);
        }
        if let Some(args) = args {
            self.audit_call(client, number, args, error);
        }
    }

    /// Reports a call of the engine that EXEC has run. EXEC itself is a call, too, whose end has a time.
    pub fn queued_call_ran(&self, number: u16, failed: bool) {
        self.calls.add_untimed(number, failed);
    }

    /// Writes a line of the audit log about a call, if the log records calls of its command. The reply is this `error`, if
    /// it is one.
    #[inline]
    pub fn audit_call(&self, client: &ClientInfo, number: u16, args: Args<'_>, error: Option<&[u8]>) {
        if self.audit.concerns(number) {
            let account = client.account.lock().clone();
            self.audit.record_call(Caller { user: account.name(), addr: &client.addr }, args, error);
        }
    }

    /// Ends the span of a request that was traced. `now` is the time, where that is known.
    #[cold]
    pub fn end_span(&self, session: &Session, open: Open, name: &str, now: Option<Instant>, reply: &[u8]) {
        let span = span_of(open, name, now)
            .with("db.namespace", AttributeValue::Digits(session.db as u64))
            .with_address(CLIENT, &session.client.addr);
        self.spans.end(span.with_reply(reply));
    }
}

impl Server {
    /// Reports a call of a script that the connection of this number runs.
    #[inline]
    pub fn script_call_performed(&self, client: u64, number: u16, args: Args<'_>, failed: bool) {
        self.telemetry.calls.add_untimed(number, failed);
        if self.telemetry.audit.concerns(number) {
            self.audit_script_call(client, args);
        }
    }

    #[cold]
    fn audit_script_call(&self, client: u64, args: Args<'_>) {
        if let Some(client) = self.sessions.clients.lock().get(&client) {
            let account = client.account.lock().clone();
            let caller = Caller { user: account.name(), addr: &client.addr };
            self.telemetry.audit.record_call_of_script(caller, args);
        }
    }

    /// Puts a call into SLOWLOG and LATENCY that took longer than these accept.
    pub fn note_slow(&self, client: &ClientInfo, args: Args<'_>, took: Duration) {
        let (is_slow, is_spike) = self.telemetry.exceeded_by(took);
        if is_slow {
            Counters::add(&self.telemetry.counters.slow_calls, 1);
            let name = client.details.lock().name.clone();
            let most = self.config.slowlog_max_len.get_usize();
            self.telemetry.slow_log.add(args, (&client.addr, &name), took, most);
        }
        if is_spike {
            let row = self.registry.lookup(args.name());
            let spec = row.and_then(|row| resolve(row.spec(), args));
            let is_fast = spec.is_some_and(|spec| spec.has(flags::FAST));
            let millis = took.as_millis() as u64;
            self.telemetry.latency.add(is_fast, Spike { at: unix_ms() / 1000, millis });
        }
    }

    /// Ends the span of a request that was sent to another node.
    #[cold]
    pub fn end_span_of_sent(&self, open: Open, number: u16, now: Option<Instant>, reply: &[u8]) {
        let span = span_of(open, self.registry.shown_name(usize::from(number)), now);
        self.telemetry.spans.end(span.with_reply(reply));
    }
}

/// The span of a request that ends `now`, where that is known.
fn span_of(open: Open, name: &str, now: Option<Instant>) -> Span {
    let span = open.end(name.to_owned(), now.unwrap_or_else(Instant::now));
    span.with("db.system.name", "redis").with("db.operation.name", AttributeValue::Text(name))
}
