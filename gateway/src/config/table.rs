//! The parameters, one row each.

use std::fmt::Write as _;
use std::thread::available_parallelism;

use store::OnFull;
use store::journal::{Durability, Reads};
use store_engine::evict::Policy;

use super::choice::{AuthClients, Choice};
use super::kind::{Form, ParameterKind, Sort};
use super::parameter::{Fallback, INT_MAX, Parameter};
use super::values::Config;
use super::{access, clients, replication, scripting, telemetry};

/// Parameters that hold where the data is: a gateway sends their changes to its store nodes.
pub const OF_DATA: &[&str] = &[
    "maxmemory",
    "maxmemory-policy",
    "maxmemory-samples",
    "maxmemory-eviction-tenacity",
    "lfu-log-factor",
    "lfu-decay-time",
    "hll-sparse-max-bytes",
    "active-expire-effort",
    "hz",
    "notify-keyspace-events",
];

/// All parameters, in the order of the reference.
pub static PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "resp",
        kind: ParameterKind::Address(false, |c| &c.resp),
        default: Fallback::Text("127.0.0.1:6379"),
        live: false,
        doc: "Address where Redis clients connect.",
    },
    Parameter {
        name: "http",
        kind: ParameterKind::Address(true, |c| &c.http),
        default: Fallback::Text("127.0.0.1:8080"),
        live: false,
        doc: "Address of the HTTP server. On a store node it serves only health checks and metrics, and it \
              is off by default.",
    },
    Parameter {
        name: "grpc",
        kind: ParameterKind::Address(true, |c| &c.grpc),
        default: Fallback::Text("127.0.0.1:50051"),
        live: false,
        doc: "Address of the gRPC server.",
    },
    Parameter {
        name: "http-hosts",
        kind: ParameterKind::Names(Sort::Hosts, |c| &c.http_hosts),
        default: Fallback::Text("none"),
        live: false,
        doc: "Host names that HTTP requests may use for this server, in addition to localhost, the host in \
              http and the address that the request arrived at. Requests with another Host header are \
              refused, which protects against DNS rebinding.",
    },
    Parameter {
        name: "http-origins",
        kind: ParameterKind::Names(Sort::Origins, |c| &c.http_origins),
        default: Fallback::Text("none"),
        live: false,
        doc: "Origins whose web pages may use the HTTP API, in addition to the pages of this server.",
    },
    Parameter {
        name: "http-body-max",
        kind: ParameterKind::Bytes(1024..=4 << 30, |c| &c.http_body_max),
        default: Fallback::Text("64mb"),
        live: true,
        doc: "Maximum size of the body of an HTTP request.",
    },
    Parameter {
        name: "http-timeout-ms",
        kind: ParameterKind::Integer(1..=86_400_000, |c| &c.http_timeout_ms),
        default: Fallback::Text("65000"),
        live: true,
        doc: "Milliseconds after which an HTTP request fails with an error. The command is cancelled, and \
              the writes of a script are rolled back.",
    },
    Parameter {
        name: "grpc-message-max",
        kind: ParameterKind::Bytes(1024..=4 << 30, |c| &c.grpc_message_max),
        default: Fallback::Text("64mb"),
        live: true,
        doc: "Maximum size of a message from a gRPC client.",
    },
    Parameter {
        name: "data-dir",
        kind: ParameterKind::Dir(|c| &c.data_dir),
        default: Fallback::Text("./data"),
        live: false,
        doc: "Directory where the data is persisted. It is created if it does not exist. With none, the data \
              is in memory only.",
    },
    Parameter {
        name: "durability",
        kind: ParameterKind::Word(Durability::WORDS, |c| &c.durability.place),
        default: Fallback::Text("periodic"),
        live: false,
        doc: "When a write is acknowledged: periodic acknowledges it immediately, and a crash can lose up to \
              one second of writes; sync acknowledges it when it is on disk.",
    },
    Parameter {
        name: "stores",
        kind: ParameterKind::Addresses(|c| &c.stores),
        default: Fallback::Text("none"),
        live: false,
        doc: "Store nodes that hold the data, always listed in the same order. With none, this process holds \
              the data, and the parameters about data apply to it.",
    },
    Parameter {
        name: "cluster-token-file",
        kind: ParameterKind::File(|c| &c.cluster_token_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "File with the secret token that gateways and store nodes of a cluster share. A store node \
              without one listens on loopback addresses only, unless it requires client certificates.",
    },
    Parameter {
        name: "replicated",
        kind: ParameterKind::Word(bool::WORDS, |c| &c.replicated.place),
        default: Fallback::Text("no"),
        live: false,
        doc: "Whether a store node without data waits for moonshard topology found or join, and refuses gateways until \
              then. Otherwise the first gateway makes it a node of a cluster without replicas.",
    },
    Parameter {
        name: "replica-copy-rate",
        kind: ParameterKind::Bytes(1 << 20..=1 << 40, |c| &c.replica_copy_rate),
        default: Fallback::Text("16mb"),
        live: true,
        doc: "Maximum number of bytes per second that a store process sends to another one to copy the data of a group \
              of replicas.",
    },
    Parameter {
        name: "zone",
        kind: ParameterKind::Text(Form::Word, |c| &c.zone),
        default: Fallback::Text("none"),
        live: false,
        doc: "Where the machine of a store process is, such as a rack or an availability zone. Replicas of a group are placed \
              in different zones, as far as there are enough.",
    },
    Parameter {
        name: "reads",
        kind: ParameterKind::Word(Reads::WORDS, |c| &c.reads.place),
        default: Fallback::Text("lease"),
        live: false,
        doc: "How the leader of a group of replicas knows that no other process leads when it answers: lease relies \
              on clocks that run at about the same speed; quorum asks the other replicas for all answers that wait, which \
              takes one more round trip.",
    },
    Parameter {
        name: "tls-cert-file",
        kind: ParameterKind::File(|c| &c.tls_cert_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "Certificate of this server, followed by the intermediate certificates of its chain, in PEM \
              format. This file, tls-key-file and tls-ca-cert-file are reloaded when they change.",
    },
    Parameter {
        name: "tls-key-file",
        kind: ParameterKind::File(|c| &c.tls_key_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "Private key of tls-cert-file, in PEM format.",
    },
    Parameter {
        name: "tls-ca-cert-file",
        kind: ParameterKind::File(|c| &c.tls_ca_cert_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "Certificate authorities that the certificates of clients and of other servers must be signed \
              by, in PEM format.",
    },
    Parameter {
        name: "tls-auth-clients",
        kind: ParameterKind::Word(AuthClients::WORDS, |c| &c.tls_auth_clients.place),
        default: Fallback::Text("auto"),
        live: false,
        doc: "Whether TLS clients must present a certificate. With optional, a client may have none, but a \
              certificate that it presents must be valid. auto means yes if tls-ca-cert-file is set.",
    },
    Parameter {
        name: "tls-listeners",
        kind: ParameterKind::Words("resp|http|grpc", |c| &c.tls_listeners),
        default: Fallback::Text("resp,http,grpc"),
        live: false,
        doc: "Listeners that accept only TLS connections if tls-cert-file is set. A store node has the \
              listeners grpc, whose setting also applies to its connections to other store nodes, and http, \
              which never asks for a client certificate.",
    },
    Parameter {
        name: "tls-stores",
        kind: ParameterKind::Word(bool::WORDS, |c| &c.tls_stores.place),
        default: Fallback::Text("no"),
        live: false,
        doc: "Whether a gateway connects to store nodes over TLS. Their certificates must name the hosts in \
              stores.",
    },
    Parameter {
        // Clients ask CLUSTER SLOTS whatever INFO says; tools that see a cluster there want to talk to each node of it.
        name: "cluster-enabled",
        kind: ParameterKind::Word(bool::WORDS, |c| &c.cluster_enabled.place),
        default: Fallback::Text("no"),
        live: false,
        doc: "Whether INFO and HELLO report cluster mode. CLUSTER answers in either case, as one node that \
              owns all slots.",
    },
    Parameter {
        name: "cluster-announce",
        kind: ParameterKind::Address(true, |c| &c.cluster_announce),
        default: Fallback::Text("off"),
        live: false,
        doc: "Address that CLUSTER announces to clients. With off, it is the address that the client is \
              connected to.",
    },
    Parameter {
        name: "threads",
        kind: ParameterKind::Integer(1..=1024, |c| &c.threads),
        default: Fallback::Computed("one per core", |_| {
            available_parallelism().map_or(1, |cores| cores.get().min(1024) as u64)
        }),
        live: false,
        doc: "Threads that serve connections and run scripts.",
    },
    Parameter {
        name: "shards",
        kind: ParameterKind::Integer(1..=1024, |c| &c.shards),
        default: Fallback::Computed("16 per thread, as a power of two", |c| {
            // With 4 for each, two threads that ran scripts which push much took 1.15 of the time: each spun while the
            // other held a part that it wanted.
            (16 * c.threads.get()).next_power_of_two().min(1024)
        }),
        live: false,
        doc: "Shards of the data, each with its own lock.",
    },
    scripting::SCRIPT_FUEL,
    scripting::SCRIPT_TIMEOUT_MS,
    scripting::SCRIPT_MEMORY,
    scripting::SCRIPT_FUEL_MAX,
    scripting::SCRIPT_TIMEOUT_MAX_MS,
    scripting::SCRIPT_MEMORY_MAX,
    scripting::DEFAULT_SCRIPT_FLAGS,
    scripting::SCRIPT_ON_ERROR,
    scripting::UNDECLARED_KEYS,
    scripting::SCRIPT_AUTO_ASYNC,
    scripting::SCRIPT_QUEUE_MAX,
    scripting::SCRIPT_CLIENT_GONE,
    scripting::SCRIPT_REPLY_MAX,
    scripting::SCRIPT_CACHE_MAX,
    scripting::SCRIPT_CACHE_MAX_BYTES,
    scripting::LIBRARY_MEMORY_MAX,
    scripting::TRANSACTION_MEMORY_MAX,
    Parameter {
        name: "maxmemory-transactions",
        kind: ParameterKind::Word(OnFull::WORDS, |c| &c.maxmemory_transactions.place),
        default: Fallback::Text("rollback"),
        live: true,
        doc: "What happens when the data exceeds maxmemory by more than the memory limit of a script or transaction that has \
              already written, and no key can be evicted: rollback rolls it back, refuse makes its commands that need memory \
              fail, allow lets it continue without a limit, as Redis does.",
    },
    scripting::SCRIPT_INSTANCES,
    scripting::SCRIPT_COMPILE,
    scripting::SCRIPT_CONCURRENCY,
    scripting::SCRIPT_FUEL_SLICE,
    clients::PROTO_MAX_BULK_LEN,
    clients::QUERY_BUFFER_LIMIT,
    clients::OUTPUT_BUFFER_LIMIT,
    clients::MAXCLIENTS,
    clients::MAXMEMORY_CLIENTS,
    clients::TIMEOUT,
    clients::TCP_KEEPALIVE,
    clients::TCP_BACKLOG,
    Parameter {
        name: "hz",
        kind: ParameterKind::Integer(1..=500, |c| &c.hz),
        default: Fallback::Text("10"),
        live: true,
        doc: "How many times per second expired keys are searched for and removed.",
    },
    Parameter {
        name: "active-expire-effort",
        kind: ParameterKind::Integer(1..=10, |c| &c.active_expire_effort),
        default: Fallback::Text("1"),
        live: true,
        doc: "How much CPU time the removal of expired keys may use, from 25 % (1) to 43 % (10) of one CPU.",
    },
    Parameter {
        name: "maxmemory",
        kind: ParameterKind::Bytes(0..=i64::MAX, |c| &c.maxmemory),
        default: Fallback::Text("0"),
        live: true,
        doc: "Maximum size of keys and values in bytes, as INFO reports it in used_memory. Above it keys are \
              evicted; if no key can be evicted, commands that need memory are refused. 0 means no limit.",
    },
    Parameter {
        name: "maxmemory-policy",
        kind: ParameterKind::Word(<Option<Policy>>::WORDS, |c| &c.maxmemory_policy.place),
        default: Fallback::Text("noeviction"),
        live: true,
        doc: "Which keys are evicted (all keys or only those with an expiry) and in which order. Sticky keys \
              are never evicted.",
    },
    Parameter {
        name: "maxmemory-samples",
        kind: ParameterKind::Integer(1..=INT_MAX, |c| &c.maxmemory_samples),
        default: Fallback::Text("5"),
        live: true,
        doc: "Number of keys that are sampled for each eviction.",
    },
    Parameter {
        name: "maxmemory-eviction-tenacity",
        kind: ParameterKind::Integer(0..=100, |c| &c.maxmemory_eviction_tenacity),
        default: Fallback::Text("10"),
        live: true,
        doc: "How long a command that needs memory may evict keys: 50 microseconds per unit up to 10, then \
              15 % more per unit; 100 means until memory is below the limit. The remaining evictions run in \
              the background.",
    },
    Parameter {
        name: "lfu-log-factor",
        kind: ParameterKind::Integer(0..=INT_MAX, |c| &c.lfu_log_factor),
        default: Fallback::Text("10"),
        live: true,
        doc: "Logarithm factor of the access counters of LFU: the higher it is, the more accesses a key \
              needs to reach the maximum.",
    },
    Parameter {
        name: "lfu-decay-time",
        kind: ParameterKind::Integer(0..=INT_MAX, |c| &c.lfu_decay_time),
        default: Fallback::Text("1"),
        live: true,
        doc: "Minutes after which the access counter of an unused key is decremented. 0 means never.",
    },
    Parameter {
        name: "hll-sparse-max-bytes",
        kind: ParameterKind::Bytes(0..=i64::MAX, |c| &c.hll_sparse_max_bytes),
        default: Fallback::Text("3000"),
        live: true,
        doc: "Size at which a HyperLogLog is converted from the sparse to the dense representation, which \
              takes 12 KB.",
    },
    Parameter {
        name: "notify-keyspace-events",
        kind: ParameterKind::Events(|c| &c.notify_keyspace_events),
        default: Fallback::Text(""),
        live: true,
        doc: "Keyspace notifications to publish: K and E select the channels by key and by event, the other \
              letters select classes of events as in Redis, A most of them. Empty disables notifications.",
    },
    clients::TRACKING_TABLE_MAX_KEYS,
    clients::TRACKING_TABLE_MAX_BYTES,
    telemetry::SLOWLOG_SLOWER_THAN,
    telemetry::SLOWLOG_MAX_LEN,
    telemetry::LATENCY_MONITOR,
    telemetry::LATENCY_TRACKING,
    telemetry::PERCENTILES,
    telemetry::LOG_FORMAT,
    telemetry::LOG_LEVEL,
    telemetry::OTEL_ENDPOINT,
    telemetry::OTEL_PROTOCOL,
    telemetry::OTEL_COMPRESSION,
    telemetry::OTEL_CA_CERT_FILE,
    telemetry::OTEL_SERVICE_NAME,
    telemetry::OTEL_SAMPLE_RATIO,
    telemetry::OTEL_METRICS_INTERVAL,
    access::REQUIREPASS,
    access::REQUIREPASS_FILE,
    access::ACLFILE,
    access::ACL_PUBSUB_DEFAULT,
    access::ACLLOG_MAX_LEN,
    access::AUDIT_LOG,
    access::PROTECTED_MODE,
    access::MIGRATE_HOSTS,
    replication::REPLICAOF,
    replication::MASTERUSER,
    replication::MASTERAUTH,
    replication::TLS_REPLICATION,
    replication::REPL_TIMEOUT,
];

impl Parameter {
    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("MOONSHARD_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// The default, for people.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            Fallback::Text(text) | Fallback::Computed(text, _) => text,
        }
    }

    /// The row of this name, or of this other name for it.
    pub fn find(name: &str) -> Option<&'static Parameter> {
        let alias = replication::ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        let name = alias.map_or(name, |(_, name)| name);
        PARAMETERS.iter().find(|row| row.name.eq_ignore_ascii_case(name))
    }
}

impl Config {
    /// All cells at zero.
    pub(super) fn empty() -> Config {
        Config::default()
    }

    /// The configuration of a server without any setting.
    #[cfg(test)]
    pub fn defaults() -> Config {
        let config = Config::empty();
        for row in PARAMETERS {
            config.reset(row);
        }
        config
    }

    /// Gives a row its default value. Rows it is computed from must have theirs.
    pub(super) fn reset(&self, row: &Parameter) {
        let value = match row.default {
            Fallback::Text(text) => row.kind.parse(text),
            Fallback::Computed(_, value) => row.kind.parse(&value(self).to_string()),
        };
        row.kind.store(self, value.expect("a test holds every default to its own range"));
    }

    /// Percentiles that INFO shows.
    pub fn percentiles(&self) -> Vec<f64> {
        let text = self.latency_tracking_info_percentiles.get();
        text.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
    }

    /// Whether some source had a value for the parameter of this name.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }
}

/// The reference, as a Markdown table.
pub fn reference() -> String {
    let mut text = String::from(
        "| parameter | value | default | CONFIG SET | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in PARAMETERS {
        let expected = row.kind.expected();
        let expected = expected.split(", such as").next().unwrap_or(&expected);
        let expected = expected.split(": ").next().unwrap_or(expected);
        let off = if matches!(row.kind, ParameterKind::Address(true, _)) { " or off" } else { "" };
        let live = if row.live { "yes" } else { "no" };
        let (name, default, doc) = (row.name, row.default_text(), row.doc);
        writeln!(text, "| `{name}` | {expected}{off} | {default} | {live} | {doc} |").expect("a string");
    }
    text
}
