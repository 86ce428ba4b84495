//! The values of the metrics of a gateway.

use std::sync::atomic::{AtomicU64, Ordering};

use script::Compilation;
use store::Cluster;

use super::Gathered;
use super::node::{data, data_of, exports, of_process};
use crate::server::Server;
use crate::telemetry::counters::Counters;

/// All of it.
pub fn of_server(server: &Server, ready: bool) -> Gathered {
    let mut totals = Gathered::default();
    of_process(&mut totals, server.process.started, ready && server.store.is_reachable());
    calls(&mut totals, server);
    clients(&mut totals, server);
    scripts(&mut totals, server);
    data(&mut totals, &server.store.usage(), server.store.counts(), server.config.maxmemory.get());
    server.store.node().into_iter().for_each(|node| data_of(&mut totals, node));
    exports(&mut totals, &server.telemetry.spans);
    server.store.cluster().into_iter().for_each(|cluster| nodes(&mut totals, cluster));
    totals
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn calls(totals: &mut Gathered, server: &Server) {
    const CALLS: &str = "moonshard_commands_total";
    for (number, report) in server.telemetry.calls.all().into_iter().enumerate() {
        let name = server.registry.name_of(number);
        let fine = report.calls.saturating_sub(report.failed);
        for (outcome, count) in
            [("ok", fine), ("error", report.failed), ("rejected", report.rejected), ("denied", report.denied)]
        {
            if count > 0 {
                let labels = vec![name.clone().into(), outcome.into()];
                totals.push(CALLS, labels, super::Value::Number(count as f64));
            }
        }
        if report.spread.count() > 0 {
            let times = (report.spread.buckets(), report.spread.nanos);
            totals.times("moonshard_command_duration_seconds", vec![name.into()], times);
        }
    }
    let counters = &server.telemetry.counters;
    let unknown = vec!["unknown".into(), "rejected".into()];
    totals.push(CALLS, unknown, super::Value::Number(of(&counters.commands_unknown) as f64));
    totals.number("moonshard_requests_total", of(&counters.commands));
    for (code, count) in server.telemetry.errors.totals() {
        totals.labelled("moonshard_errors_total", String::from(code), count);
    }
    for (limit, count) in server.acl.limits_reached() {
        totals.labelled("moonshard_user_limits_total", limit.name(), count);
    }
    totals.number("moonshard_slow_calls_total", of(&counters.slow_calls));
}

fn clients(totals: &mut Gathered, server: &Server) {
    let counters = &server.telemetry.counters;
    for (listener, [now, ever]) in counters.listeners() {
        totals.labelled("moonshard_connections", listener, now);
        totals.labelled("moonshard_connections_total", listener, ever);
    }
    totals.number("moonshard_connections_max", server.most_connections() as u64);
    totals.number("moonshard_connections_refused_total", of(&counters.connections_refused));
    totals.number("moonshard_slow_clients_disconnected_total", of(&counters.slow_clients_cut));
    totals.number("moonshard_clients_evicted_total", of(&counters.clients_evicted));
    totals.number("moonshard_client_memory_bytes", server.sessions.client_bytes() as u64);
    totals.labelled("moonshard_network_bytes_total", "in", of(&counters.bytes_in));
    totals.labelled("moonshard_network_bytes_total", "out", of(&counters.bytes_out));
    totals.number("moonshard_blocked_clients", server.blocked_clients() as u64);
    let kinds = ["channel", "pattern", "shard_channel"];
    for (kind, count) in kinds.into_iter().zip(server.sessions.pubsub.sizes()) {
        totals.labelled("moonshard_pubsub_subscriptions", kind, count as u64);
    }
    totals.number("moonshard_monitors", server.sessions.monitors.len() as u64);
}

fn scripts(totals: &mut Gathered, server: &Server) {
    let Counters { lock_waits, queue_waits, .. } = &server.telemetry.counters;
    let runs = &server.telemetry.script_totals;
    let traps = of(&server.telemetry.counters.script_traps);
    for (outcome, count) in runs.outcomes() {
        // Those that broke are counted as ended by a limit there.
        let count = if outcome == "limit" { count.saturating_sub(traps) } else { count };
        totals.labelled("moonshard_script_runs_total", outcome, count);
    }
    totals.labelled("moonshard_script_runs_total", "trap", traps);
    for (limit, count) in server.scripting.runtime.limits_hit() {
        totals.labelled("moonshard_script_limits_total", limit.name(), count);
    }
    totals.times("moonshard_script_duration_seconds", Vec::new(), runs.times.totals());
    totals.number("moonshard_script_fuel_total", of(&runs.fuel));
    totals.number("moonshard_script_calls_total", of(&runs.calls));
    for (name, named) in server.telemetry.named_scripts.all() {
        for (outcome, count) in named.outcomes() {
            if count > 0 {
                let labels = vec![name.clone().into(), outcome.into()];
                totals.push("moonshard_named_script_runs_total", labels, super::Value::Number(count as f64));
            }
        }
        let times = named.times.totals();
        totals.times("moonshard_named_script_duration_seconds", vec![name.clone().into()], times);
        totals.labelled("moonshard_named_script_fuel_total", name.clone(), of(&named.fuel));
        totals.labelled("moonshard_named_script_calls_total", name, of(&named.calls));
    }
    totals.number("moonshard_script_reruns_total", of(&server.telemetry.counters.scripts_rerun));
    totals.number("moonshard_script_undeclared_keys_total", of(&server.telemetry.counters.undeclared_keys));
    totals.number(
        "moonshard_script_undeclared_refused_total",
        of(&server.telemetry.counters.undeclared_refused),
    );
    let running = server.scripting.runtime.active();
    totals.number("moonshard_scripts_running", running as u64);
    totals.number("moonshard_scripts_waiting", server.scripting.runs.len().saturating_sub(running) as u64);
    totals.times("moonshard_script_queue_wait_seconds", Vec::new(), queue_waits.totals());
    totals.times("moonshard_lock_wait_seconds", Vec::new(), lock_waits.totals());
    totals.number("moonshard_script_instances", server.scripting.runtime.instances_kept() as u64);
    totals.number("moonshard_script_instances_created_total", server.scripting.runtime.instances_made());
    let tier = server.scripting.runtime.tier_report();
    for (outcome, count) in Compilation::ALL.iter().zip(tier.outcomes) {
        totals.labelled("moonshard_script_compilations_total", outcome.name(), count);
    }
    totals.push(
        "moonshard_script_compilation_seconds_total",
        Vec::new(),
        super::Value::Number(tier.micros as f64 / 1e6),
    );
    totals.number("moonshard_script_compilations_waiting", tier.waiting as u64);
    totals.number("moonshard_script_machine_code_bytes", tier.code_bytes as u64);
    totals.number("moonshard_script_compiled_runs_total", tier.runs);
    let (known, bytes) = server.scripting.cache.usage();
    totals.number("moonshard_scripts_cached", known as u64);
    totals.number("moonshard_scripts_cached_bytes", bytes as u64);
    totals.number("moonshard_scripts_evicted_total", server.scripting.cache.evicted());
    totals.number("moonshard_functions", server.scripting.functions.libraries().counts().1 as u64);
}

fn nodes(totals: &mut Gathered, cluster: &Cluster) {
    totals.number("moonshard_topology_epoch", cluster.map().epoch());
    for member in cluster.members() {
        let node = || member.node.clone();
        totals.labelled("moonshard_store_up", node(), u64::from(member.up.is_ok()));
        totals.labelled("moonshard_store_slots", node(), member.count as u64);
        totals.labelled("moonshard_store_keys", node(), member.keys);
        totals.labelled("moonshard_store_memory_used_bytes", node(), member.bytes);
        totals.labelled("moonshard_store_journal_lag_records", node(), member.lag);
        totals.labelled("moonshard_store_transactions_prepared", node(), member.prepared);
        if let Some(clock) = member.clock {
            let ahead = clock.ahead_ms as f64 / 1000.0;
            totals.seconds("moonshard_store_clock_offset_seconds", vec![node().into()], ahead);
        }
    }
    for link in cluster.links() {
        let (node, traffic) = (|| link.address().to_owned(), link.traffic());
        totals.labelled("moonshard_store_requests_total", node(), of(&traffic.requests));
        totals.labelled("moonshard_store_request_errors_total", node(), of(&traffic.errors));
        let times = traffic.times.totals();
        totals.times("moonshard_store_request_duration_seconds", vec![node().into()], times);
    }
}
