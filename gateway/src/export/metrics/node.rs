//! What a process tells of the data it has, and of itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use store::Node;
use store::Usage;
use store::journal::Journal;
use store::server::Service;
use store_engine::DATABASES;
use store_engine::keyspace::Counts;

use super::Gathered;
use crate::telemetry::counters::{cpu_seconds, resident_bytes, unix_time};
use crate::telemetry::log;
use crate::telemetry::spans::{Outcomes, Spans};

/// What a store node tells, which began to serve then.
pub fn of_node(
    node: &Node,
    service: &Service,
    spans: &Spans,
    started: Instant,
    ready: bool,
    maxmemory: u64,
) -> Gathered {
    let mut told = Gathered::default();
    told.number("moonshard_node_topology_epoch", service.epoch());
    told.number("moonshard_node_streams", service.streams() as u64);
    told.number("moonshard_node_requests_total", service.requests());
    told.number("moonshard_node_decisions_contradicted_total", service.contradicted());
    process(&mut told, started, ready);
    data(&mut told, &node.usage(), node.counts(), maxmemory);
    data_of(&mut told, node);
    exports(&mut told, spans);
    told
}

/// What the collector has taken.
pub(super) fn exports(told: &mut Gathered, spans: &Spans) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Outcomes { sent, failed, dropped, exports_failed: [traces, metrics] } = &*spans.counts;
    for (outcome, count) in [("sent", of(sent)), ("queue_full", of(dropped)), ("failed", of(failed))] {
        told.labelled("moonshard_otel_spans_total", outcome, count);
    }
    for (signal, count) in [("traces", traces), ("metrics", metrics)] {
        told.labelled("moonshard_otel_exports_failed_total", signal, of(count));
    }
}

/// The process itself.
pub(super) fn process(told: &mut Gathered, started: Instant, ready: bool) {
    let uptime = started.elapsed();
    told.labelled("moonshard_build_info", env!("CARGO_PKG_VERSION"), 1);
    let since = unix_time().saturating_sub(uptime).as_secs_f64();
    told.seconds("moonshard_start_time_seconds", Vec::new(), since.round());
    told.seconds("moonshard_uptime_seconds", Vec::new(), uptime.as_secs_f64());
    told.number("moonshard_ready", u64::from(ready));
    told.number("moonshard_resident_memory_bytes", resident_bytes());
    let (user, system) = cpu_seconds();
    for (mode, seconds) in [("user", user), ("system", system)] {
        told.seconds("moonshard_cpu_seconds_total", vec![mode.into()], seconds);
    }
    for (level, lines) in log::lines() {
        told.labelled("moonshard_log_lines_total", level, lines);
    }
    told.number("moonshard_log_lines_dropped_total", log::dropped());
}

/// Keys and what they take.
pub(super) fn data(told: &mut Gathered, usage: &Usage, counts: Counts, maxmemory: u64) {
    for db in (0..DATABASES).filter(|db| *db == 0 || usage.keys[*db] > 0) {
        let name = db.to_string();
        told.labelled("moonshard_keys", name.clone(), usage.keys[db] as u64);
        told.labelled("moonshard_keys_expiring", name.clone(), usage.expiring[db] as u64);
        told.labelled("moonshard_keys_sticky", name.clone(), usage.sticky[db].keys as u64);
        told.labelled("moonshard_sticky_bytes", name, usage.sticky[db].bytes as u64);
    }
    told.number("moonshard_memory_used_bytes", usage.bytes as u64);
    told.number("moonshard_memory_max_bytes", maxmemory);
    told.number("moonshard_keys_expired_total", counts.expired);
    told.number("moonshard_keys_evicted_total", counts.evicted);
    told.number("moonshard_keyspace_hits_total", counts.hits);
    told.number("moonshard_keyspace_misses_total", counts.misses);
}

/// How far the disk has come.
fn durability(told: &mut Gathered, journal: &Journal) {
    let (progress, newest) = (journal.progress(), journal.newest());
    told.number("moonshard_journal_records_total", newest);
    told.number("moonshard_journal_waiting_bytes", journal.waiting_bytes() as u64);
    told.number("moonshard_journal_lag_records", newest.saturating_sub(progress.durable));
    told.number("moonshard_journal_uncheckpointed_records", newest.saturating_sub(progress.checkpoint));
    told.number("moonshard_journal_bytes", progress.journal_bytes);
    told.number("moonshard_journal_flushes_total", progress.flushes);
    told.times("moonshard_journal_write_seconds", Vec::new(), journal.pace().writes.told());
    told.times("moonshard_journal_round_seconds", Vec::new(), journal.pace().rounds.told());
    told.number("moonshard_journal_failing", u64::from(progress.failure.is_some()));
    told.number("moonshard_journal_behind", u64::from(progress.behind));
    told.number("moonshard_last_save_time_seconds", progress.saved_at);
}

/// Whoever has the data itself.
pub(super) fn data_of(told: &mut Gathered, node: &Node) {
    told.number("moonshard_memory_to_free_bytes", store_engine::discard::bytes_to_free() as u64);
    told.times("moonshard_shard_lock_wait_seconds", Vec::new(), node.lock_waits.told());
    node.journal().into_iter().for_each(|journal| durability(told, journal));
}
