//! Every metric there is: name, type, unit, labels and meaning. deploy/METRICS.md is made from this table.

use std::fmt::Write as _;

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sum that only grows while the process lives.
    Counter,
    /// A state.
    Gauge,
    /// A distribution of times.
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Who tells it. A server with its data in the same process is a gateway, too.
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
    pub kind: Kind,
    /// As UCUM writes it, for OpenTelemetry.
    pub unit: &'static str,
    /// Names of labels.
    pub labels: &'static [&'static str],
    /// Who tells it.
    pub of: Of,
    /// What it is.
    pub help: &'static str,
}

const fn row(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    labels: &'static [&'static str],
    of: Of,
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, of, help }
}

use Kind::{Counter, Gauge, Histogram};

/// All of them. The values of every label are bounded: none is taken from what clients send, but for code words of
/// errors, of which the first 128 are told apart.
#[rustfmt::skip]
pub static METRICS: &[Metric] = &[
    row("moonshard_build_info", Gauge, "1", &["version"], Of::All, "Always 1; the label says which version runs."),
    row("moonshard_start_time_seconds", Gauge, "s", &[], Of::All, "Unix time at which the process began to serve."),
    row("moonshard_uptime_seconds", Gauge, "s", &[], Of::All, "How long it has served."),
    row("moonshard_ready", Gauge, "1", &[], Of::All, "Whether requests are taken (1), or the process is about to end (0)."),
    row("moonshard_resident_memory_bytes", Gauge, "By", &[], Of::All, "Memory that the process occupies."),
    row("moonshard_cpu_seconds_total", Counter, "s", &["mode"], Of::All, "CPU time of the process; mode is user or system."),

    row("moonshard_commands_total", Counter, "{command}", &["command", "outcome"], Of::Gateway, "Calls by command, those of scripts and transactions included; outcome is ok, error, rejected (wrong, or not possible now) or denied (the user may not). Unknown commands are one command, unknown."),
    row("moonshard_command_duration_seconds", Histogram, "s", &["command"], Of::Gateway, "How long calls took, waiting for keys included; not those that are made within scripts and transactions, nor waits for something to come."),
    row("moonshard_requests_total", Counter, "{request}", &[], Of::Gateway, "Requests answered, whatever the face."),
    row("moonshard_errors_total", Counter, "{error}", &["code"], Of::Gateway, "Error replies by code word; the first 128 code words are told apart, the rest is OTHER."),
    row("moonshard_user_limits_total", Counter, "{call}", &["limit"], Of::Gateway, "Calls that a limit of their user refused or ended or, with scripts-at-once, made wait; limit is as in its rule."),
    row("moonshard_slow_calls_total", Counter, "{command}", &[], Of::Gateway, "Calls that took longer than slowlog-log-slower-than."),

    row("moonshard_connections", Gauge, "{connection}", &["face"], Of::Gateway, "Connections now; face is resp, http or grpc."),
    row("moonshard_connections_total", Counter, "{connection}", &["face"], Of::Gateway, "Connections that were let in."),
    row("moonshard_connections_max", Gauge, "{connection}", &[], Of::Gateway, "The parameter maxclients, or what the limit of open files has room for."),
    row("moonshard_connections_refused_total", Counter, "{connection}", &[], Of::Gateway, "Connections refused because of maxclients."),
    row("moonshard_slow_clients_cut_total", Counter, "{connection}", &[], Of::Gateway, "Connections cut off because their client did not read."),
    row("moonshard_clients_evicted_total", Counter, "{connection}", &[], Of::Gateway, "Connections ended because clients held more than maxmemory-clients together."),
    row("moonshard_client_memory_bytes", Gauge, "By", &[], Of::Gateway, "Memory that clients make the process hold: unread input, queued commands, watched keys, subscriptions and unread output."),
    row("moonshard_network_bytes_total", Counter, "By", &["direction"], Of::Gateway, "Bytes of Redis clients; direction is in or out."),
    row("moonshard_blocked_clients", Gauge, "{client}", &[], Of::Gateway, "Clients that wait for something to come to a key."),
    row("moonshard_pubsub_subscriptions", Gauge, "{subscription}", &["kind"], Of::Gateway, "Names that somebody has subscribed to; kind is channel, pattern or shard_channel."),
    row("moonshard_monitors", Gauge, "{client}", &[], Of::Gateway, "Clients that said MONITOR."),

    row("moonshard_script_runs_total", Counter, "{run}", &["outcome"], Of::Gateway, "Runs of scripts and functions; outcome is ok, error (an error of its own), limit, killed or trap."),
    row("moonshard_script_limits_total", Counter, "{run}", &["limit"], Of::Gateway, "Runs that a limit ended; limit is fuel, time, memory or reply."),
    row("moonshard_script_duration_seconds", Histogram, "s", &[], Of::Gateway, "How long the last round of runs took in the sandbox."),
    row("moonshard_script_fuel_total", Counter, "{fuel}", &[], Of::Gateway, "Fuel that runs used."),
    row("moonshard_script_calls_total", Counter, "{command}", &[], Of::Gateway, "Commands that runs called."),
    row("moonshard_script_reruns_total", Counter, "{run}", &[], Of::Gateway, "Rounds of runs that were undone and repeated with more keys locked."),
    row("moonshard_script_undeclared_keys_total", Counter, "{key}", &[], Of::Gateway, "Keys that runs locked without having declared them."),
    row("moonshard_script_undeclared_refused_total", Counter, "{command}", &[], Of::Gateway, "Calls of runs that were refused because their key was not declared and undeclared-keys is reject."),
    row("moonshard_scripts_running", Gauge, "{run}", &[], Of::Gateway, "Runs going on."),
    row("moonshard_scripts_waiting", Gauge, "{run}", &[], Of::Gateway, "Runs that wait for keys or for their turn."),
    row("moonshard_script_queue_wait_seconds", Histogram, "s", &[], Of::Gateway, "How long runs waited for their turn, if more were to run than script-concurrency."),
    row("moonshard_lock_wait_seconds", Histogram, "s", &[], Of::Gateway, "How long scripts and transactions waited for keys that others had, for each round."),
    row("moonshard_script_instances", Gauge, "{instance}", &[], Of::Gateway, "Sandboxes that are kept for the next run."),
    row("moonshard_script_instances_made_total", Counter, "{instance}", &[], Of::Gateway, "Sandboxes that were made."),
    row("moonshard_scripts_cached", Gauge, "{script}", &[], Of::Gateway, "Scripts that are known."),
    row("moonshard_scripts_cached_bytes", Gauge, "By", &[], Of::Gateway, "What these take in memory."),
    row("moonshard_scripts_evicted_total", Counter, "{script}", &[], Of::Gateway, "Scripts forgotten because of script-cache-max."),
    row("moonshard_functions", Gauge, "{function}", &[], Of::Gateway, "Functions of libraries that are loaded."),

    row("moonshard_keys", Gauge, "{key}", &["db"], Of::All, "Keys by database; a gateway tells the sum of its store nodes."),
    row("moonshard_keys_expiring", Gauge, "{key}", &["db"], Of::All, "Keys with an expiry."),
    row("moonshard_keys_sticky", Gauge, "{key}", &["db"], Of::All, "Keys with the mark of STICK."),
    row("moonshard_sticky_bytes", Gauge, "By", &["db"], Of::All, "What these take in memory."),
    row("moonshard_memory_used_bytes", Gauge, "By", &[], Of::All, "Bytes of all keys and values: what maxmemory limits."),
    row("moonshard_memory_max_bytes", Gauge, "By", &[], Of::All, "The parameter maxmemory; 0 is no limit."),
    row("moonshard_keys_expired_total", Counter, "{key}", &[], Of::All, "Keys removed because their time was over."),
    row("moonshard_keys_evicted_total", Counter, "{key}", &[], Of::All, "Keys removed because memory was short."),
    row("moonshard_keyspace_hits_total", Counter, "{lookup}", &[], Of::All, "Reads that found their key."),
    row("moonshard_keyspace_misses_total", Counter, "{lookup}", &[], Of::All, "Reads that did not."),

    row("moonshard_memory_to_free_bytes", Gauge, "By", &[], Of::Data, "Bytes of values that were removed or replaced and wait to be freed; beyond 64 MB whoever replaces one frees it."),
    row("moonshard_shard_lock_wait_seconds", Histogram, "s", &[], Of::Data, "How long calls, scripts and transactions waited for a lock of a shard that others held; a lock that is free is not waited for, and not counted."),

    row("moonshard_journal_records_total", Counter, "{record}", &[], Of::Journal, "Changes that were committed since the data-dir was made."),
    row("moonshard_journal_waiting_bytes", Gauge, "By", &[], Of::Journal, "Bytes of changes that the writer has not taken yet; beyond 64 MB whoever changes something waits."),
    row("moonshard_journal_lag_records", Gauge, "{record}", &[], Of::Journal, "Changes that are not on disk yet."),
    row("moonshard_journal_unfolded_records", Gauge, "{record}", &[], Of::Journal, "Changes that the checkpoint does not have yet."),
    row("moonshard_journal_bytes", Gauge, "By", &[], Of::Journal, "Bytes of the journal that are not in the checkpoint."),
    row("moonshard_journal_flushes_total", Counter, "{flush}", &[], Of::Journal, "Flushes of the disk."),
    row("moonshard_journal_write_seconds", Histogram, "s", &[], Of::Journal, "How long it took to write and flush a batch."),
    row("moonshard_journal_round_seconds", Histogram, "s", &[], Of::Journal, "How long rounds of the writer took in which something was written: collecting, folding and writing."),
    row("moonshard_journal_failing", Gauge, "1", &[], Of::Journal, "Whether the disk cannot be written (1): then changes are refused."),
    row("moonshard_journal_behind", Gauge, "1", &[], Of::Journal, "Whether changes come faster than they can be folded (1): then they are slowed down."),
    row("moonshard_last_save_time_seconds", Gauge, "s", &[], Of::Journal, "Unix time at which everything was folded last because somebody asked for it."),

    row("moonshard_node_topology_epoch", Gauge, "1", &[], Of::Node, "Epoch of the map of slots that this store node knows; 0: none yet."),
    row("moonshard_node_streams", Gauge, "{stream}", &[], Of::Node, "Streams of gateways and of other nodes that this store node answers."),
    row("moonshard_node_requests_total", Counter, "{request}", &[], Of::Node, "Requests that came by these."),
    row("moonshard_node_decisions_contradicted_total", Counter, "{transaction}", &[], Of::Node, "Transactions that an operator has decided otherwise than their decider, which is known once that is back: they are there by half."),

    row("moonshard_topology_epoch", Gauge, "1", &[], Of::Cluster, "Epoch of the map of slots that this gateway knows."),
    row("moonshard_store_up", Gauge, "1", &["node"], Of::Cluster, "Whether the store node is reached (1)."),
    row("moonshard_store_slots", Gauge, "{slot}", &["node"], Of::Cluster, "Slots of the store node."),
    row("moonshard_store_keys", Gauge, "{key}", &["node"], Of::Cluster, "Keys of the store node."),
    row("moonshard_store_memory_used_bytes", Gauge, "By", &["node"], Of::Cluster, "What these take in memory."),
    row("moonshard_store_journal_lag_records", Gauge, "{record}", &["node"], Of::Cluster, "Changes of the store node that are not on its disk yet."),
    row("moonshard_store_transactions_prepared", Gauge, "{transaction}", &["node"], Of::Cluster, "Transactions that wait for the decision of another node."),
    row("moonshard_store_requests_total", Counter, "{request}", &["node"], Of::Cluster, "Requests sent to the store node."),
    row("moonshard_store_request_errors_total", Counter, "{request}", &["node"], Of::Cluster, "Requests that the store node refused, or that were lost with the link."),
    row("moonshard_store_request_duration_seconds", Histogram, "s", &["node"], Of::Cluster, "How long answers of the store node took, waiting for keys included."),

    row("moonshard_log_lines_total", Counter, "{line}", &["level"], Of::All, "Lines written to the log; level is debug, info or warning."),
    row("moonshard_log_lines_dropped_total", Counter, "{line}", &[], Of::All, "Lines that were not written because there were too many."),
    row("moonshard_otel_spans_total", Counter, "{span}", &["outcome"], Of::All, "Spans that ended; outcome is sent, queue_full or failed (the collector did not take them)."),
    row("moonshard_otel_exports_failed_total", Counter, "{export}", &["signal"], Of::All, "Exports that the collector did not take; signal is traces or metrics."),
];

/// The table for people, as Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "| metric | type | unit | labels | told by | meaning |\n| --- | --- | --- | --- | --- | --- |\n",
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
            assert!(name.starts_with("moonshard_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(*unit != "s" || name.contains("_seconds"), "{name}");
            assert!(*unit != "By" || name.contains("_bytes"), "{name}");
            assert!(help.ends_with('.') && !help.contains(['|', '\n', '\\']), "{name}");
            assert!(labels.iter().all(|label| label.bytes().all(|byte| byte.is_ascii_lowercase())), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }

    #[test]
    fn the_page_is_this_table() {
        let page = include_str!("../../../deploy/METRICS.md");
        assert!(page.contains(&reference()), "deploy/METRICS.md is not what moonshard metrics prints");
    }
}
