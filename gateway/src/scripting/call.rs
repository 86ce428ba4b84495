//! A script or function that is to be run, and what it is called with.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use script::{Budget, ResourceUsage};
use store::spans::Part;
use store::{Conflict, LockRequest, Mode, TxnLimits};
use store_engine::Protocol;

use super::circumstances::{RetryReason, RunContext};
use super::undeclared::note_undeclared;
use crate::acl::Account;
use crate::acl::limits::Limit;
use crate::admission::{Caller, Declared, Refuser};
use crate::config::Config;
use crate::process::Process;
use crate::scripts::cache::Known;
use crate::scripts::functions::Function;
use crate::scripts::options::{Flags, Options, UndeclaredKeys};
use crate::scripts::running::Who;
use crate::session::tracking::Reader;
use crate::telemetry::Telemetry;
use crate::telemetry::counters::unix_time;
use crate::telemetry::script_events::Introduction;
use crate::telemetry::script_stats::{Ended, Stats};
use crate::telemetry::script_trace::{Rerun, Trace};

/// What a call runs.
pub enum Program {
    /// A script.
    Script(Arc<Known>),
    /// A function of a library.
    Function(Arc<Function>),
}

impl Program {
    pub(super) fn script(&self) -> &Arc<script::Script> {
        match self {
            Program::Script(known) => &known.script,
            Program::Function(function) => &function.script,
        }
    }

    /// How errors of Lua call it.
    pub(super) fn name(&self) -> &str {
        match self {
            Program::Script(known) => &known.sha,
            Program::Function(function) => &function.name,
        }
    }

    /// What its header calls it.
    pub(super) fn given_name(&self) -> Option<String> {
        match self {
            Program::Script(known) => known.header.name.clone(),
            Program::Function(_) => None,
        }
    }

    /// The name that the script has given itself, or that of the function.
    pub(super) fn declared_name(&self) -> Option<&str> {
        match self {
            Program::Script(known) => known.header.name.as_deref(),
            Program::Function(function) => Some(&function.name),
        }
    }

    pub(super) fn stats(&self) -> &Stats {
        match self {
            Program::Script(known) => &known.stats,
            Program::Function(function) => &function.stats,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Program::Script(_) => "script",
            Program::Function(_) => "function",
        }
    }
}

/// As our own errors call it.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// A script or function to be run, and what it is called with.
pub struct ScriptCall<'a> {
    /// What is run.
    pub program: Program,
    /// The whole call as it came.
    pub words: &'a [&'a [u8]],
    /// How it is to be run, the configuration's defaults included.
    pub options: Options,
    /// What it may use.
    pub budget: Budget,
    /// The keys: locked beforehand.
    pub keys: &'a [&'a [u8]],
    /// The other arguments.
    pub args: &'a [&'a [u8]],
    /// It may not write.
    pub read_only: bool,
    /// When it was called.
    pub since: Instant,
    /// The caller's database.
    pub db: usize,
    /// The caller's protocol.
    pub protocol: Protocol,
    /// Seed for commands with random results.
    pub seed: u64,
    /// The caller's connection.
    pub client: u64,
    /// Its calls are no use of their keys.
    pub no_touch: bool,
    /// The caller, if there is something that it may not do.
    pub account: Option<Arc<Account>>,
    /// It is part of a MULTI transaction.
    pub in_exec: bool,
    /// Memory was full when it was called, and nothing allows it to need more.
    pub full: bool,
    /// Where its steps are recorded, if they are.
    pub trace: Option<Arc<Trace>>,
    /// Its span, if the request that it is run for is traced.
    pub span: Option<Part>,
    /// Who hears when what it reads changes.
    pub reader: Option<Reader>,
}

impl ScriptCall<'_> {
    /// How strong the locks of its keys are.
    pub(super) fn lock_mode(&self) -> Mode {
        if self.read_only { Mode::Shared } else { Mode::Exclusive }
    }

    /// Whether it is rolled back when it has ended, and reports what it would have changed.
    pub(super) fn is_dry(&self) -> bool {
        self.options.flags.has(Flags::DRY_RUN)
    }

    /// How it is run, in a word.
    pub(super) fn mode(&self) -> &'static str {
        self.options.mode(self.read_only).word()
    }

    /// What `os.clock` answers, in seconds.
    pub(super) fn clock_seconds(&self, process: &Process) -> f64 {
        self.since.saturating_duration_since(process.started).as_secs_f64()
    }

    /// For those who watch events of runs.
    pub(super) fn introduction(&self, mode: &'static str) -> Introduction {
        let is_function = matches!(self.program, Program::Function(_));
        Introduction { name: self.program.name().to_owned(), is_function, mode, client: self.client }
    }

    /// Counts a run, and records its end where that was asked for.
    pub(super) fn note(&self, telemetry: &Telemetry, ended: Ended, usage: &ResourceUsage) {
        let stats = self.program.stats();
        stats.add(ended, usage);
        if let Some(name) = self.program.declared_name() {
            stats.add_named(&telemetry.named_scripts, name, ended, usage);
        }
        telemetry.script_totals.add(ended, usage);
        self.report_end(ended, usage);
    }

    /// Records how a run ended, where that was asked for.
    pub(super) fn report_end(&self, ended: Ended, usage: &ResourceUsage) {
        if let Some(trace) = &self.trace {
            let mut snapshot = trace.snapshot();
            snapshot.ended = Some(ended);
            snapshot.usage = *usage;
        }
    }

    /// Records why a round came to nothing, where that was asked for.
    pub(super) fn report_rerun(&self, retry: &RetryReason) {
        if let Some(trace) = &self.trace {
            let (why, key) = match retry {
                RetryReason::Lock(Conflict::Key(request)) => ("key", Some((request.db, request.key.clone()))),
                RetryReason::Lock(Conflict::Everything | Conflict::Limit(_)) => ("everything", None),
                RetryReason::Order => ("order", None),
                // Nothing was done that could be recorded.
                RetryReason::Begin
                | RetryReason::Limit(_)
                | RetryReason::Node(_)
                | RetryReason::Leader(_) => return,
            };
            trace.snapshot().reruns.push(Rerun { why, key });
        }
    }

    /// The limits of the transaction that it runs in. What rolling back needs counts as memory of the script, or of the
    /// MULTI transaction that it is part of.
    pub(super) fn txn_limits(&self, config: &Config) -> TxnLimits {
        let limits = config.transaction_limits();
        TxnLimits {
            undo_bytes: if self.in_exec { limits.undo_bytes } else { self.budget.memory_bytes },
            slack_bytes: self.budget.memory_bytes,
            ..limits
        }
    }

    /// Bytes by which it may exceed `maxmemory`.
    pub(super) fn oom_slack_bytes(&self) -> usize {
        if self.options.flags.has(Flags::ALLOW_OOM) { self.budget.memory_bytes } else { 0 }
    }

    /// The same call as a part of a transaction, which is atomic whatever its parts say.
    pub fn within_exec(mut self) -> Self {
        self.options = self.options.within_exec();
        self.in_exec = true;
        if self.is_dry() {
            self.trace = Some(Arc::new(Trace::new(false)));
        }
        self.report_spans();
        self
    }

    pub(super) fn who(&self) -> Who {
        let call = || self.words.iter().map(|word| (*word).into()).collect();
        let function = matches!(self.program, Program::Function(_)).then(call);
        Who { name: self.program.name().to_owned(), function, client: self.client }
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { client: self.client, no_touch: self.no_touch, account: self.account.clone() }
    }

    /// The only keys that it may touch, where that is the rule.
    pub(super) fn declared(&self) -> Option<Declared> {
        let limits_user =
            |account: &Arc<Account>| account.user().limits().get(Limit::UndeclaredKeys).is_some();
        let own = match &self.program {
            Program::Script(known) => known.options,
            Program::Function(function) => function.options,
        };
        let rejects = Some(UndeclaredKeys::Reject);
        (self.options.undeclared_keys == rejects).then(|| Declared {
            db: self.db,
            keys: self.keys.iter().map(|key| (*key).into()).collect(),
            name: self.program.name().to_owned(),
            by: match self.account.as_ref().is_some_and(limits_user) {
                true => Refuser::User,
                false if own.undeclared_keys == rejects => Refuser::Script,
                false => Refuser::Server,
            },
        })
    }

    /// Counts those of the `used` keys that it did not declare.
    pub(super) fn note_undeclared<'k>(
        &self,
        telemetry: &Telemetry,
        used: impl Iterator<Item = &'k LockRequest>,
    ) {
        let is_declared = |used: &LockRequest| used.db == self.db && self.keys.contains(&&*used.key);
        let undeclared = used.filter(|request| !is_declared(request));
        note_undeclared(telemetry, &self.program, self.program.stats(), undeclared);
    }

    /// What it sees of the world if it is run at this time.
    pub(super) fn circumstances(&self, now_ms: u64) -> RunContext {
        let ScriptCall { seed, db, read_only, full, .. } = *self;
        let spares_memory = self.options.flags.spares_memory();
        let micros = unix_time().subsec_micros() % 1000;
        RunContext { now_ms, micros, clock_seconds: 0.0, seed, db, read_only, full, spares_memory }
    }
}
