//! Every metric there is: name, type, unit, labels and meaning. The reference is made from this table.

use std::fmt::Write as _;

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum that only grows while the process lives.
    Counter,
    /// A state.
    Gauge,
    /// A distribution of times.
    Histogram,
}

impl MetricKind {
    /// As Prometheus calls it.
    pub fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Which process has it. A server with its data in the same process is a gateway, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Servers that clients connect to.
    Gateway,
    /// Gateways whose data is on store nodes.
    Cluster,
    /// Those that have data themselves.
    Data,
    /// Those whose data outlives the process.
    Journal,
    /// Store nodes.
    Node,
    /// Store processes with replicas of groups.
    Replicas,
    /// Every process.
    All,
}

impl Of {
    fn word(self) -> &'static str {
        match self {
            Of::Gateway => "gateway",
            Of::Cluster => "gateway with store nodes",
            Of::Data => "server or store node",
            Of::Node => "store node",
            Of::Replicas => "store process with replicas",
            Of::Journal => "server or store node with data-dir",
            Of::All => "all",
        }
    }
}

/// A row.
pub struct Metric {
    /// The whole name for Prometheus.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// As UCUM writes it, for OpenTelemetry.
    pub unit: &'static str,
    /// Names of labels.
    pub labels: &'static [&'static str],
    /// Which process has it.
    pub of: Of,
    /// What it is.
    pub help: &'static str,
}

const fn row(
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    labels: &'static [&'static str],
    of: Of,
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, of, help }
}

use MetricKind::{Counter, Gauge, Histogram};

/// All of them. The values of every label are bounded: none is taken from what clients send, but for code words of
/// errors, of which the first 128 are counted apart.
#[rustfmt::skip]
pub static METRICS: &[Metric] = &[
    row("moonshard_build_info", Gauge, "1", &["version"], Of::All, "Always 1; the label version is the version that runs."),
    row("process_start_time_seconds", Gauge, "s", &[], Of::All, "Unix time at which the process started to serve."),
    row("moonshard_ready", Gauge, "1", &[], Of::All, "1 if requests are accepted and can be answered, else 0: the process is shutting down, or no store node can be used."),
    row("process_resident_memory_bytes", Gauge, "By", &[], Of::All, "Resident memory of the process."),
    row("process_cpu_seconds_total", Counter, "s", &[], Of::All, "CPU time of the process, user and system."),
    row("process_open_fds", Gauge, "{file}", &[], Of::All, "Open file descriptors of the process."),
    row("process_max_fds", Gauge, "{file}", &[], Of::All, "Maximum number of open file descriptors of the process."),

    row("moonshard_commands_total", Counter, "{command}", &["command", "outcome"], Of::Gateway, "Calls by command, including those from scripts and transactions; outcome is ok, error, rejected (invalid, or not possible at the moment) or denied (no permission). All unknown commands are counted as unknown."),
    row("moonshard_command_duration_seconds", Histogram, "s", &["command"], Of::Gateway, "Duration of calls, including the wait for locks; without calls from scripts and transactions, and without the wait of blocking commands."),
    row("moonshard_requests_total", Counter, "{request}", &[], Of::Gateway, "Requests answered, over all protocols."),
    row("moonshard_errors_total", Counter, "{error}", &["code"], Of::Gateway, "Error replies by code word; after the first 128 code words, new ones are counted as OTHER."),
    row("moonshard_user_limits_total", Counter, "{call}", &["limit"], Of::Gateway, "Calls that a limit of their user refused, stopped or (scripts-at-once) delayed; limit is the name in the limit rule."),
    row("moonshard_slow_calls_total", Counter, "{command}", &[], Of::Gateway, "Calls that took longer than slowlog-log-slower-than."),

    row("moonshard_connections", Gauge, "{connection}", &["listener"], Of::Gateway, "Open connections; listener is resp, http or grpc."),
    row("moonshard_connections_total", Counter, "{connection}", &["listener"], Of::Gateway, "Connections accepted."),
    row("moonshard_connections_max", Gauge, "{connection}", &[], Of::Gateway, "Maximum number of connections: maxclients, or less if the limit of open files requires it."),
    row("moonshard_connections_refused_total", Counter, "{connection}", &[], Of::Gateway, "Connections refused because the maximum number was reached."),
    row("moonshard_slow_clients_disconnected_total", Counter, "{connection}", &[], Of::Gateway, "Connections closed because the client did not read its replies or messages."),
    row("moonshard_clients_evicted_total", Counter, "{connection}", &[], Of::Gateway, "Connections closed because all clients together held more than maxmemory-clients."),
    row("moonshard_client_memory_bytes", Gauge, "By", &[], Of::Gateway, "Memory held by clients: unread input, queued commands, watched keys, subscriptions and unread output."),
    row("moonshard_network_bytes_total", Counter, "By", &["direction"], Of::Gateway, "Bytes transferred on RESP connections; direction is in or out."),
    row("moonshard_blocked_clients", Gauge, "{client}", &[], Of::Gateway, "Clients blocked by a command that waits for a key."),
    row("moonshard_pubsub_subscriptions", Gauge, "{subscription}", &["kind"], Of::Gateway, "Names with at least one subscriber; kind is channel, pattern or shard_channel."),
    row("moonshard_monitors", Gauge, "{client}", &[], Of::Gateway, "Clients in MONITOR mode."),

    row("moonshard_script_runs_total", Counter, "{run}", &["outcome"], Of::Gateway, "Runs of scripts and functions; outcome is ok, error (an error of the script), limit, killed or trap."),
    row("moonshard_script_limits_total", Counter, "{run}", &["limit"], Of::Gateway, "Runs stopped by a limit; limit is fuel, time, memory or reply."),
    row("moonshard_script_duration_seconds", Histogram, "s", &[], Of::Gateway, "Time in the sandbox of the last attempt of each run."),
    row("moonshard_script_fuel_total", Counter, "{fuel}", &[], Of::Gateway, "Fuel used by runs and for compiling their scripts."),
    row("moonshard_script_calls_total", Counter, "{command}", &[], Of::Gateway, "Commands called by runs."),
    row("moonshard_named_script_runs_total", Counter, "{run}", &["script", "outcome"], Of::Gateway, "Runs by the name that a script declares (`#!lua name=…`) or that a function has; outcome is ok, error, limit (or trap) or killed. After the first 100 names, new ones are counted as other."),
    row("moonshard_named_script_duration_seconds", Histogram, "s", &["script"], Of::Gateway, "The same for the time in the sandbox of the last attempt of each run."),
    row("moonshard_named_script_fuel_total", Counter, "{fuel}", &["script"], Of::Gateway, "The same for the fuel used by runs and for compiling their scripts."),
    row("moonshard_named_script_calls_total", Counter, "{command}", &["script"], Of::Gateway, "The same for the commands called by runs."),
    row("moonshard_script_reruns_total", Counter, "{run}", &[], Of::Gateway, "Attempts of runs that were rolled back and repeated with more keys locked."),
    row("moonshard_script_undeclared_keys_total", Counter, "{key}", &[], Of::Gateway, "Keys that runs locked without declaring them."),
    row("moonshard_script_undeclared_refused_total", Counter, "{command}", &[], Of::Gateway, "Calls from runs that were refused because their key was not declared and undeclared-keys is reject."),
    row("moonshard_scripts_running", Gauge, "{run}", &[], Of::Gateway, "Runs in progress."),
    row("moonshard_scripts_waiting", Gauge, "{run}", &[], Of::Gateway, "Runs that wait for locks or for a permit of script-concurrency."),
    row("moonshard_script_queue_wait_seconds", Histogram, "s", &[], Of::Gateway, "Time that runs waited for a permit when script-concurrency was reached."),
    row("moonshard_lock_wait_seconds", Histogram, "s", &[], Of::Gateway, "Time that scripts and transactions waited for locks on keys, for each attempt."),
    row("moonshard_script_instances", Gauge, "{instance}", &[], Of::Gateway, "Idle sandboxes that are retained for the next runs."),
    row("moonshard_script_instances_created_total", Counter, "{instance}", &[], Of::Gateway, "Sandboxes created."),
    row("moonshard_script_compilations_total", Counter, "{script}", &["outcome"], Of::Gateway, "Scripts that used much CPU time and were to be compiled to machine code; outcome is compiled, unsuitable (nothing to gain, or too large), full (no memory left for machine code) or failed (a defect of the compiler)."),
    row("moonshard_script_compilation_seconds_total", Counter, "s", &[], Of::Gateway, "Time spent on compiling scripts to machine code."),
    row("moonshard_script_compilations_waiting", Gauge, "{script}", &[], Of::Gateway, "Scripts that wait to be compiled to machine code."),
    row("moonshard_script_machine_code_bytes", Gauge, "By", &[], Of::Gateway, "Memory used by machine code of scripts."),
    row("moonshard_script_compiled_runs_total", Counter, "{run}", &[], Of::Gateway, "Attempts of runs that used machine code."),
    row("moonshard_scripts_cached", Gauge, "{script}", &[], Of::Gateway, "Scripts in the cache."),
    row("moonshard_scripts_cached_bytes", Gauge, "By", &[], Of::Gateway, "Memory used by cached scripts."),
    row("moonshard_scripts_evicted_total", Counter, "{script}", &[], Of::Gateway, "Scripts evicted from the cache because of script-cache-max."),
    row("moonshard_functions", Gauge, "{function}", &[], Of::Gateway, "Functions in the loaded libraries."),

    row("moonshard_keys", Gauge, "{key}", &["db"], Of::All, "Keys by database; a gateway reports the sum over its store nodes."),
    row("moonshard_keys_expiring", Gauge, "{key}", &["db"], Of::All, "Keys with an expiry."),
    row("moonshard_keys_sticky", Gauge, "{key}", &["db"], Of::All, "Keys that are sticky (see STICK)."),
    row("moonshard_sticky_bytes", Gauge, "By", &["db"], Of::All, "Memory used by sticky keys."),
    row("moonshard_memory_used_bytes", Gauge, "By", &[], Of::All, "Memory used by all keys and values, which maxmemory limits."),
    row("moonshard_memory_max_bytes", Gauge, "By", &[], Of::All, "Value of maxmemory; 0 means no limit."),
    row("moonshard_keys_expired_total", Counter, "{key}", &[], Of::All, "Keys removed because they expired."),
    row("moonshard_hash_fields_expired_total", Counter, "{field}", &[], Of::All, "Fields of hashes removed because they expired."),
    row("moonshard_keys_evicted_total", Counter, "{key}", &[], Of::All, "Keys evicted because of maxmemory."),
    row("moonshard_keyspace_hits_total", Counter, "{lookup}", &[], Of::All, "Lookups that found their key."),
    row("moonshard_keyspace_misses_total", Counter, "{lookup}", &[], Of::All, "Lookups that did not find their key."),

    row("moonshard_memory_to_free_bytes", Gauge, "By", &[], Of::Data, "Memory of removed and replaced values that wait to be freed in the background; above 64 MB the calling thread frees them."),
    row("moonshard_shard_lock_wait_seconds", Histogram, "s", &[], Of::Data, "Time that calls, scripts and transactions waited for the lock of a shard; acquisitions without a wait are not counted."),

    row("moonshard_journal_records_total", Counter, "{record}", &[], Of::Journal, "Records committed since the data-dir was created."),
    row("moonshard_journal_waiting_bytes", Gauge, "By", &[], Of::Journal, "Bytes of records that the writer has not taken yet; above 64 MB clients that write wait, for records of 1 MB or more only those that commit such."),
    row("moonshard_journal_lag_records", Gauge, "{record}", &[], Of::Journal, "Committed records that are not on disk yet."),
    row("moonshard_journal_uncheckpointed_records", Gauge, "{record}", &[], Of::Journal, "Records that are not in the checkpoint yet."),
    row("moonshard_journal_bytes", Gauge, "By", &[], Of::Journal, "Bytes of the journal that are not in the checkpoint yet."),
    row("moonshard_journal_flushes_total", Counter, "{flush}", &[], Of::Journal, "Flushes to disk."),
    row("moonshard_journal_write_seconds", Histogram, "s", &[], Of::Journal, "Time to write and flush a batch."),
    row("moonshard_journal_round_seconds", Histogram, "s", &[], Of::Journal, "Duration of the writer's rounds that wrote something: collecting, checkpointing and writing."),
    row("moonshard_journal_failing", Gauge, "1", &[], Of::Journal, "1 if the disk cannot be written; writes are refused then."),
    row("moonshard_journal_behind", Gauge, "1", &[], Of::Journal, "1 if writes arrive faster than they can be checkpointed; writes are slowed down then."),
    row("moonshard_last_save_time_seconds", Gauge, "s", &[], Of::Journal, "Unix time of the last completed save that a command requested (SAVE, BGSAVE, SHUTDOWN)."),

    row("moonshard_node_topology_epoch", Gauge, "1", &[], Of::Node, "Epoch of the slot map of this store node; 0 means that it has none yet."),
    row("moonshard_node_streams", Gauge, "{stream}", &[], Of::Node, "Open streams from gateways and other nodes."),
    row("moonshard_node_requests_total", Counter, "{request}", &[], Of::Node, "Requests received from gateways and other nodes."),
    row("moonshard_node_decisions_contradicted_total", Counter, "{transaction}", &[], Of::Node, "Transactions whose coordinator, once it was back, had decided differently from the operator: a part of each is committed and a part is rolled back."),

    row("moonshard_topology_epoch", Gauge, "1", &[], Of::Cluster, "Epoch of the slot map of this gateway."),
    row("moonshard_store_up", Gauge, "1", &["node"], Of::Cluster, "1 if the store node can be reached."),
    row("moonshard_store_slots", Gauge, "{slot}", &["node"], Of::Cluster, "Slots of the store node."),
    row("moonshard_store_keys", Gauge, "{key}", &["node"], Of::Cluster, "Keys of the store node."),
    row("moonshard_store_memory_used_bytes", Gauge, "By", &["node"], Of::Cluster, "Memory used by the keys of the store node."),
    row("moonshard_store_journal_lag_records", Gauge, "{record}", &["node"], Of::Cluster, "Committed records of the store node that are not on its disk yet."),
    row("moonshard_store_transactions_prepared", Gauge, "{transaction}", &["node"], Of::Cluster, "Prepared transactions that wait for the decision of their coordinator."),
    row("moonshard_store_clock_offset_seconds", Gauge, "s", &["node"], Of::Cluster, "By how much the clock of the store node is ahead of the clock of the gateway. Nodes whose clocks differ by more than 500 ms take part in no transaction together."),
    row("moonshard_store_requests_total", Counter, "{request}", &["node"], Of::Cluster, "Requests sent to the store node."),
    row("moonshard_store_request_errors_total", Counter, "{request}", &["node"], Of::Cluster, "Requests that the store node refused, or that were lost with the connection."),
    row("moonshard_store_request_duration_seconds", Histogram, "s", &["node"], Of::Cluster, "Response time of the store node, including the wait for locks."),

    row("moonshard_replica_leads", Gauge, "1", &["group"], Of::Replicas, "1 if the replica of the group in this process leads the group."),
    row("moonshard_replica_leader_known", Gauge, "1", &["group"], Of::Replicas, "1 if the replica knows a leader of its group."),
    row("moonshard_replica_term", Gauge, "1", &["group"], Of::Replicas, "Newest term of the group that the replica knows. Each election begins one."),
    row("moonshard_replica_apply_lag_entries", Gauge, "{entry}", &["group"], Of::Replicas, "Entries of the replicated log that are committed and not applied to the data of the replica yet."),
    row("moonshard_replica_log_bytes", Gauge, "By", &["group"], Of::Replicas, "Size of the replicated log, which is in memory and on disk."),
    row("moonshard_replica_elections_total", Counter, "{election}", &["group"], Of::Replicas, "Leaders that the replica has seen since the process started."),
    row("moonshard_replica_copies_total", Counter, "{copy}", &["group"], Of::Replicas, "Copies of the data of the group that the replica has taken, because it lacked more than the log has."),
    row("moonshard_group_replicas_missing", Gauge, "{replica}", &["group"], Of::Replicas, "Of a group that this process leads: replicas that have not answered for a second or longer."),
    row("moonshard_group_commit_lag_entries", Gauge, "{entry}", &["group"], Of::Replicas, "Of a group that this process leads: committed entries that the replica that is farthest behind does not have on disk."),

    row("moonshard_log_lines_total", Counter, "{line}", &["level"], Of::All, "Log lines written; level is debug, info or warning."),
    row("moonshard_log_lines_dropped_total", Counter, "{line}", &[], Of::All, "Log lines dropped by the rate limit."),
    row("moonshard_otel_spans_total", Counter, "{span}", &["outcome"], Of::All, "Finished spans; outcome is sent, queue_full or failed (the collector did not accept them)."),
    row("moonshard_otel_exports_failed_total", Counter, "{export}", &["signal"], Of::All, "Exports that the collector did not accept; signal is traces or metrics."),
];

/// The table for people, as Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "| metric | type | unit | labels | reported by | meaning |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for Metric { name, kind, unit, labels, of, help } in METRICS {
        let (kind, labels, of) = (kind.word(), labels.join(", "), of.word());
        writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {of} | {help} |").expect("a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_prometheus_and_say_their_unit() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        for Metric { name, kind, unit, help, labels, .. } in METRICS {
            assert!(name.starts_with("moonshard_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert!(*unit != "s" || name.contains("_seconds"), "{name}");
            assert!(*unit != "By" || name.contains("_bytes"), "{name}");
            assert!(help.ends_with('.') && !help.contains(['|', '\n', '\\']), "{name}");
            assert!(labels.iter().all(|label| label.bytes().all(|byte| byte.is_ascii_lowercase())), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
