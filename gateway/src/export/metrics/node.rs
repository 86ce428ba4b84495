//! Metrics of a process and of its data.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use store::Node;
use store::Usage;
use store::journal::Journal;
use store::replication::ReplicaStatus;
use store::server::Service;
use store::server::process::Process;
use store_engine::DATABASES;
use store_engine::keyspace::Counts;

use super::Gathered;
use crate::process::descriptors;
use crate::telemetry::counters::{cpu_seconds, resident_bytes, unix_time};
use crate::telemetry::log;
use crate::telemetry::spans::{Outcomes, Spans};

/// What a store node reports that began to serve then.
pub fn of_node(
    node: &Node,
    service: &Service,
    spans: &Spans,
    started: Instant,
    ready: bool,
    maxmemory: u64,
) -> Gathered {
    let mut totals = Gathered::default();
    totals.number("moonshard_node_topology_epoch", service.epoch());
    totals.number("moonshard_node_streams", service.streams() as u64);
    totals.number("moonshard_node_requests_total", service.requests());
    totals.number("moonshard_node_decisions_contradicted_total", service.contradicted());
    of_process(&mut totals, started, ready);
    data(&mut totals, &node.usage(), node.counts(), maxmemory);
    data_of(&mut totals, node);
    exports(&mut totals, spans);
    totals
}

/// Of a process with replicas: of the process, and the sums over the groups that it leads.
pub fn of_replicas(
    process: &Process,
    spans: &Spans,
    started: Instant,
    ready: bool,
    maxmemory: u64,
) -> Gathered {
    let leading = process.leading();
    let mut totals = Gathered::default();
    replicas(&mut totals, process);
    let sum = |count: fn(&Service) -> u64| leading.iter().map(|(_, service)| count(service)).sum::<u64>();
    totals.number("moonshard_node_streams", sum(|service| service.streams() as u64));
    totals.number("moonshard_node_requests_total", sum(Service::requests));
    totals.number("moonshard_node_decisions_contradicted_total", sum(Service::contradicted));
    of_process(&mut totals, started, ready);
    let (mut usage, mut counts) = (Usage::default(), Counts::default());
    for (_, service) in &leading {
        usage += service.node().usage();
        counts += service.node().counts();
    }
    data(&mut totals, &usage, counts, maxmemory);
    exports(&mut totals, spans);
    totals
}

/// The replicas of groups in this process.
fn replicas(totals: &mut Gathered, process: &Process) {
    for (group, replica) in process.replicas() {
        let ReplicaStatus { role, committed, applied, log_bytes, elections, copies, followers, .. } = replica;
        let mut of = |name: &str, value: u64| totals.labelled(name, group.clone(), value);
        of("moonshard_replica_leads", u64::from(role.leads));
        of("moonshard_replica_leader_known", u64::from(role.leader.is_some()));
        of("moonshard_replica_term", role.term);
        of("moonshard_replica_apply_lag_entries", committed.saturating_sub(applied));
        of("moonshard_replica_log_bytes", log_bytes as u64);
        of("moonshard_replica_elections_total", elections);
        of("moonshard_replica_copies_total", copies);
        if role.leads {
            let missing = followers.iter().filter(|follower| !follower.is_active).count();
            of("moonshard_group_replicas_missing", missing as u64);
            let lag = followers.iter().map(|follower| committed.saturating_sub(follower.matched)).max();
            of("moonshard_group_commit_lag_entries", lag.unwrap_or_default());
        }
    }
}

/// What the collector has taken.
pub(super) fn exports(totals: &mut Gathered, spans: &Spans) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Outcomes { sent, failed, dropped, exports_failed: [traces, metrics] } = &*spans.counts;
    for (outcome, count) in [("sent", of(sent)), ("queue_full", of(dropped)), ("failed", of(failed))] {
        totals.labelled("moonshard_otel_spans_total", outcome, count);
    }
    for (signal, count) in [("traces", traces), ("metrics", metrics)] {
        totals.labelled("moonshard_otel_exports_failed_total", signal, of(count));
    }
}

/// The process itself.
pub(super) fn of_process(totals: &mut Gathered, started: Instant, ready: bool) {
    let uptime = started.elapsed();
    totals.labelled("moonshard_build_info", env!("CARGO_PKG_VERSION"), 1);
    let since = unix_time().saturating_sub(uptime).as_secs_f64();
    totals.seconds("process_start_time_seconds", Vec::new(), since.round());
    totals.number("moonshard_ready", u64::from(ready));
    totals.number("process_resident_memory_bytes", resident_bytes());
    let (user, system) = cpu_seconds();
    totals.seconds("process_cpu_seconds_total", Vec::new(), user + system);
    totals.number("process_open_fds", descriptors::open() as u64);
    totals.number("process_max_fds", descriptors::limit() as u64);
    for (level, lines) in log::lines() {
        totals.labelled("moonshard_log_lines_total", level, lines);
    }
    totals.number("moonshard_log_lines_dropped_total", log::dropped());
}

/// Keys and what they take.
pub(super) fn data(totals: &mut Gathered, usage: &Usage, counts: Counts, maxmemory: u64) {
    for db in (0..DATABASES).filter(|db| *db == 0 || usage.keys[*db] > 0) {
        let name = db.to_string();
        totals.labelled("moonshard_keys", name.clone(), usage.keys[db] as u64);
        totals.labelled("moonshard_keys_expiring", name.clone(), usage.expiring[db] as u64);
        totals.labelled("moonshard_keys_sticky", name.clone(), usage.sticky[db].keys as u64);
        totals.labelled("moonshard_sticky_bytes", name, usage.sticky[db].bytes as u64);
    }
    totals.number("moonshard_memory_used_bytes", usage.bytes as u64);
    totals.number("moonshard_memory_max_bytes", maxmemory);
    totals.number("moonshard_keys_expired_total", counts.expired);
    totals.number("moonshard_hash_fields_expired_total", counts.expired_fields);
    totals.number("moonshard_keys_evicted_total", counts.evicted);
    totals.number("moonshard_keyspace_hits_total", counts.hits);
    totals.number("moonshard_keyspace_misses_total", counts.misses);
}

/// How far the disk has come.
fn durability(totals: &mut Gathered, journal: &Journal) {
    let (progress, newest) = (journal.progress(), journal.newest());
    totals.number("moonshard_journal_records_total", newest);
    totals.number("moonshard_journal_waiting_bytes", journal.waiting_bytes() as u64);
    totals.number("moonshard_journal_lag_records", newest.saturating_sub(progress.durable));
    totals.number("moonshard_journal_uncheckpointed_records", newest.saturating_sub(progress.checkpoint));
    totals.number("moonshard_journal_bytes", progress.journal_bytes);
    totals.number("moonshard_journal_flushes_total", progress.flushes);
    totals.times("moonshard_journal_write_seconds", Vec::new(), journal.pace().writes.totals());
    totals.times("moonshard_journal_round_seconds", Vec::new(), journal.pace().cycles.totals());
    totals.number("moonshard_journal_failing", u64::from(progress.failure.is_some()));
    totals.number("moonshard_journal_behind", u64::from(progress.behind));
    totals.number("moonshard_last_save_time_seconds", progress.saved_at);
}

/// Metrics of a process that holds data: a store node, or a gateway with its store.
pub(super) fn data_of(totals: &mut Gathered, node: &Node) {
    totals.number("moonshard_memory_to_free_bytes", store_engine::discard::bytes_to_free() as u64);
    totals.times("moonshard_shard_lock_wait_seconds", Vec::new(), node.lock_waits.totals());
    node.journal().into_iter().for_each(|journal| durability(totals, journal));
}
