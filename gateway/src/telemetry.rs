//! What is recorded while requests are served: counters, times, spans, events and log lines.

pub mod arguments;
pub mod audit;
pub mod counters;
pub mod counts;
pub mod latency;
pub mod log;
pub mod rates;
pub mod script_events;
pub mod script_stats;
pub mod script_trace;
pub mod slow_log;
pub mod spans;

use std::sync::Arc;
use std::time::Duration;

use store_engine::CommandError;

use self::audit::Audit;
use self::counters::Counters;
use self::counts::{Calls, Errors, Refusal};
use self::latency::Latency;
use self::rates::RateSampler;
use self::script_events::Events;
use self::script_stats::{NamedTotals, Totals};
use self::slow_log::SlowLog;
use self::spans::Spans;
use crate::config::Config;

/// All that a gateway records.
pub struct Telemetry {
    config: Arc<Config>,
    /// Logs what administrators do, and what is refused.
    pub audit: Audit,
    /// Counters for INFO.
    pub counters: Counters,
    /// How fast they grow.
    pub rate_sampler: RateSampler,
    /// What is counted of each command, by its number in the registry.
    pub calls: Calls,
    /// Error replies by code word.
    pub errors: Errors,
    /// What took long.
    pub slow_log: SlowLog,
    /// When it took long.
    pub latency: Latency,
    /// Requests that are traced.
    pub spans: Spans,
    /// Where runs of scripts report their beginnings and ends.
    pub script_events: Arc<Events>,
    /// What all runs of scripts did together.
    pub script_totals: Totals,
    /// The same by the names of scripts and functions.
    pub named_scripts: NamedTotals,
}

impl Telemetry {
    /// Nothing is recorded yet. `commands` are the names of all commands, and whether each is for administrators.
    pub fn new(config: &Arc<Config>, commands: impl ExactSizeIterator<Item = (String, bool)>) -> Telemetry {
        Telemetry {
            config: config.clone(),
            // Those of connections, and as many that compute.
            calls: Calls::new(commands.len(), 2 * config.threads.get_usize()),
            audit: Audit::new(config.clone(), commands),
            counters: Counters::default(),
            rate_sampler: RateSampler::default(),
            errors: Errors::default(),
            slow_log: SlowLog::default(),
            latency: Latency::default(),
            spans: Spans::new(config.clone()),
            script_events: Arc::default(),
            script_totals: Totals::default(),
            named_scripts: NamedTotals::default(),
        }
    }

    /// Reports a call of a client that was not run. `number` is that of its command, if there is such a command.
    pub fn call_refused(&self, number: Option<u16>, why: Refusal, error: &CommandError) {
        self.errors.add(error.text().as_bytes());
        match number {
            Some(number) => self.calls.refuse(number, why),
            None => Counters::add(&self.counters.commands_unknown, 1),
        }
    }

    /// Whether calls are timed.
    pub fn takes_times(&self) -> bool {
        self.config.latency_tracking.get()
            || self.config.slowlog_log_slower_than.get() <= i64::MAX as u64
            || self.config.latency_monitor_threshold.get() > 0
    }

    /// Whether a call took longer than SLOWLOG or LATENCY accept.
    pub fn is_slow(&self, took: Duration) -> bool {
        self.exceeded_by(took) != (false, false)
    }

    /// Whether a call that took so long is for SLOWLOG, and for LATENCY. Every call comes here: nothing is divided.
    #[inline]
    pub fn exceeded_by(&self, took: Duration) -> (bool, bool) {
        // In nanoseconds; those of a call fit.
        let nanos = took.as_secs().wrapping_mul(1_000_000_000).wrapping_add(took.subsec_nanos().into());
        // Never is the largest number.
        let slow = self.config.slowlog_log_slower_than.get().saturating_mul(1000);
        let spike = self.config.latency_monitor_threshold.get();
        (nanos >= slow, spike > 0 && nanos >= spike.saturating_mul(1_000_000))
    }
}
