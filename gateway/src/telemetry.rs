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
