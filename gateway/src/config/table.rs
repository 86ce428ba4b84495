//! The parameters, one row each, and the struct of their values.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread::available_parallelism;

use script::Instances;

use super::cell::{
    AddressCell, AddressesCell, FolderCell, NamesCell, Number, OutputLimits, Secret, TextCell,
};
use super::kind::{Kind, Sort};
use super::{access, clients, telemetry};

/// Range of what Redis keeps in a C `int`.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// Smallest limit for things a single command needs, as in Redis.
pub(super) const MB: i64 = 1 << 20;

/// The value of every parameter. A field's meaning stands in the row of the same name in [`PARAMETERS`].
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the rows of PARAMETERS are the documentation")]
pub struct Config {
    /// Where values were read from, and `CONFIG REWRITE` writes to.
    pub(super) file: Option<PathBuf>,
    /// Names of parameters that some source had a value for.
    pub(super) given: Vec<&'static str>,
    pub resp: AddressCell,
    pub http: AddressCell,
    pub grpc: AddressCell,
    pub http_hosts: NamesCell,
    pub http_origins: NamesCell,
    pub http_body_max: Number,
    pub http_timeout_ms: Number,
    pub grpc_message_max: Number,
    pub data_dir: FolderCell,
    pub stores: AddressesCell,
    pub cluster_token_file: FolderCell,
    pub tls_cert_file: FolderCell,
    pub tls_key_file: FolderCell,
    pub tls_ca_cert_file: FolderCell,
    pub tls_auth_clients: Number,
    pub tls_faces: Number,
    pub tls_stores: Number,
    pub cluster_enabled: Number,
    pub cluster_announce: AddressCell,
    pub durability: Number,
    pub threads: Number,
    pub shards: Number,
    pub script_fuel: Number,
    pub script_timeout_ms: Number,
    pub script_memory: Number,
    pub script_fuel_max: Number,
    pub script_timeout_max_ms: Number,
    pub script_memory_max: Number,
    pub default_script_flags: Number,
    pub script_on_error: Number,
    pub undeclared_keys: Number,
    pub script_auto_async: Number,
    pub script_queue_max: Number,
    pub script_client_gone: Number,
    pub script_reply_max: Number,
    pub script_cache_max: Number,
    pub script_concurrency: Number,
    pub script_fuel_slice: Number,
    /// Read it with [`Config::instances`].
    script_instances: Number,
    pub proto_max_bulk_len: Number,
    pub client_query_buffer_limit: Number,
    pub client_output_buffer_limit: OutputLimits,
    pub maxclients: Number,
    /// Read it with `Config::limit_of_clients`.
    pub(super) maxmemory_clients: Number,
    pub timeout: Number,
    pub tcp_keepalive: Number,
    pub tcp_backlog: Number,
    pub hz: Number,
    pub active_expire_effort: Number,
    pub maxmemory: Number,
    /// Read it with `Config::policy`.
    pub maxmemory_policy: Number,
    pub maxmemory_samples: Number,
    pub maxmemory_eviction_tenacity: Number,
    pub lfu_log_factor: Number,
    pub lfu_decay_time: Number,
    pub hll_sparse_max_bytes: Number,
    pub notify_keyspace_events: Number,
    pub tracking_table_max_keys: Number,
    pub tracking_table_max_bytes: Number,
    pub slowlog_log_slower_than: Number,
    pub slowlog_max_len: Number,
    pub latency_monitor_threshold: Number,
    pub requirepass: Secret,
    pub requirepass_file: FolderCell,
    pub aclfile: FolderCell,
    pub acl_pubsub_default: Number,
    pub acllog_max_len: Number,
    pub audit_log: Number,
    pub protected_mode: Number,
    pub latency_tracking: Number,
    pub(super) latency_tracking_info_percentiles: TextCell,
    pub log_format: Number,
    pub log_level: Number,
    pub otel_endpoint: TextCell,
    pub otel_ca_cert_file: FolderCell,
    pub otel_service_name: TextCell,
    /// The bits of a floating point number.
    pub otel_sample_ratio: Number,
    pub otel_metrics_interval_ms: Number,
}

/// What a parameter is if nobody says otherwise.
pub enum Fallback {
    /// As it would stand in a file.
    Text(&'static str),
    /// Computed from rows before it; described in words.
    Computed(&'static str, fn(&Config) -> u64),
}

/// Parameters that hold where the data is: a gateway tells its store nodes of their change.
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

/// A row.
pub struct Parameter {
    /// Name, as in redis.conf where it has one.
    pub name: &'static str,
    /// Type, range and cell.
    pub kind: Kind,
    /// Value without any source.
    pub default: Fallback,
    /// Whether `CONFIG SET` may change it while the server runs.
    pub live: bool,
    /// One or two sentences.
    pub doc: &'static str,
}

/// The flags a script can have: those of Redis 7, then those of Dragonfly, then ours. Some say what is true of every script
/// here: there is no replica that could be stale, a script may touch any slot, and fractions of a result are cut
/// off as in Redis.
pub const SCRIPT_FLAGS: &str = "no-writes|allow-oom|allow-stale|no-cluster|allow-cross-slot-keys|\
                                disable-atomicity|allow-undeclared-keys|legacy-float|dry-run|trace";

/// The values of `maxmemory-policy`; `Config::policy` knows their order.
const POLICIES: &str = "volatile-lru|volatile-lfu|volatile-random|volatile-ttl|\
                        allkeys-lru|allkeys-lfu|allkeys-random|noeviction";

/// All parameters, in the order of the reference.
pub static PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "resp",
        kind: Kind::Address(false, |c| &c.resp),
        default: Fallback::Text("127.0.0.1:6379"),
        live: false,
        doc: "Where Redis clients connect.",
    },
    Parameter {
        name: "http",
        kind: Kind::Address(true, |c| &c.http),
        default: Fallback::Text("127.0.0.1:8080"),
        live: false,
        doc: "Where HTTP is served. A store node has only health and metrics there, and nothing unless it is told where.",
    },
    Parameter {
        name: "grpc",
        kind: Kind::Address(true, |c| &c.grpc),
        default: Fallback::Text("127.0.0.1:50051"),
        live: false,
        doc: "Where gRPC is served.",
    },
    Parameter {
        name: "http-hosts",
        kind: Kind::Names(Sort::Hosts, |c| &c.http_hosts),
        default: Fallback::Text("none"),
        live: false,
        doc: "Names that HTTP requests may call this server by, beside localhost, the one in http and the address they \
              came to. Others are refused, so that no web page can reach it by a name of its own.",
    },
    Parameter {
        name: "http-origins",
        kind: Kind::Names(Sort::Origins, |c| &c.http_origins),
        default: Fallback::Text("none"),
        live: false,
        doc: "Origins whose web pages may use the HTTP API, beside those that this server serves itself.",
    },
    Parameter {
        name: "http-body-max",
        kind: Kind::Bytes(1024..=4 << 30, |c| &c.http_body_max),
        default: Fallback::Text("64mb"),
        live: true,
        doc: "Largest body of an HTTP request.",
    },
    Parameter {
        name: "http-timeout-ms",
        kind: Kind::Integer(1..=86_400_000, |c| &c.http_timeout_ms),
        default: Fallback::Text("65000"),
        live: true,
        doc: "Milliseconds after which an HTTP request is answered with an error. What it waits for is ended, and its \
              script is undone.",
    },
    Parameter {
        name: "grpc-message-max",
        kind: Kind::Bytes(1024..=4 << 30, |c| &c.grpc_message_max),
        default: Fallback::Text("64mb"),
        live: true,
        doc: "Largest message of a gRPC client.",
    },
    Parameter {
        name: "data-dir",
        kind: Kind::Folder(|c| &c.data_dir),
        default: Fallback::Text("./data"),
        live: false,
        doc: "Folder that the data outlives the process in; it is made if it is not there. With none, data is kept \
              in memory only.",
    },
    Parameter {
        name: "durability",
        kind: Kind::Word("periodic|sync", |c| &c.durability),
        default: Fallback::Text("periodic"),
        live: false,
        doc: "When a change is told to be done: at once, so that a crash loses the last second at most, or when it \
              is on disk.",
    },
    Parameter {
        name: "stores",
        kind: Kind::Addresses(|c| &c.stores),
        default: Fallback::Text("none"),
        live: false,
        doc: "Store nodes that have the data, always in this order. With none it is in this process, and the \
              parameters about data hold here.",
    },
    Parameter {
        name: "cluster-token-file",
        kind: Kind::File(|c| &c.cluster_token_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "File with the word that gateways and store nodes of a cluster must know. A store node without one \
              listens on loopback addresses only, unless those who connect must have a certificate.",
    },
    Parameter {
        name: "tls-cert-file",
        kind: Kind::File(|c| &c.tls_cert_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "Certificate of this server, with those that lead to its root behind it, as PEM. This file and the next two \
              are read again when they change.",
    },
    Parameter {
        name: "tls-key-file",
        kind: Kind::File(|c| &c.tls_key_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "Key of that certificate, as PEM.",
    },
    Parameter {
        name: "tls-ca-cert-file",
        kind: Kind::File(|c| &c.tls_ca_cert_file),
        default: Fallback::Text("none"),
        live: false,
        doc: "Roots that the certificates of others must lead to, as PEM.",
    },
    Parameter {
        name: "tls-auth-clients",
        kind: Kind::Word("auto|yes|optional|no", |c| &c.tls_auth_clients),
        default: Fallback::Text("auto"),
        live: false,
        doc: "Whether those who connect over TLS must show a certificate; with optional, one that they show must be good. \
              auto means yes if there is a tls-ca-cert-file.",
    },
    Parameter {
        name: "tls-faces",
        kind: Kind::Words("resp|http|grpc", |c| &c.tls_faces),
        default: Fallback::Text("resp,http,grpc"),
        live: false,
        doc: "Where TLS, and nothing else, is spoken if there is a tls-cert-file. A store node has grpc, and with it TLS \
              to other nodes, and http, which asks nobody for a certificate.",
    },
    Parameter {
        name: "tls-stores",
        kind: Kind::Word("no|yes", |c| &c.tls_stores),
        default: Fallback::Text("no"),
        live: false,
        doc: "Whether a gateway speaks TLS to store nodes. Their certificates must name the hosts in stores.",
    },
    Parameter {
        // Clients ask CLUSTER SLOTS whatever INFO says; tools that see a cluster there want to talk to each node of it.
        name: "cluster-enabled",
        kind: Kind::Word("no|yes", |c| &c.cluster_enabled),
        default: Fallback::Text("no"),
        live: false,
        doc: "Whether INFO and HELLO call this a cluster. CLUSTER answers in either case, as one node with all slots.",
    },
    Parameter {
        name: "cluster-announce",
        kind: Kind::Address(true, |c| &c.cluster_announce),
        default: Fallback::Text("off"),
        live: false,
        doc: "Where CLUSTER tells clients to connect; off: where they have connected.",
    },
    Parameter {
        name: "threads",
        kind: Kind::Integer(1..=1024, |c| &c.threads),
        default: Fallback::Computed("one per core", |_| {
            available_parallelism().map_or(1, |cores| cores.get().min(1024) as u64)
        }),
        live: false,
        doc: "Threads that serve connections and run scripts.",
    },
    Parameter {
        name: "shards",
        kind: Kind::Integer(1..=1024, |c| &c.shards),
        default: Fallback::Computed("16 per thread, as a power of two", |c| {
            // With 4 for each, two threads that ran scripts which push much took 1.15 of the time: each spun while the
            // other held a part that it wanted.
            (16 * c.threads.get()).next_power_of_two().min(1024)
        }),
        live: false,
        doc: "Parts of the data that are locked one by one.",
    },
    Parameter {
        name: "script-fuel",
        kind: Kind::Integer(1..=i64::MAX, |c| &c.script_fuel),
        default: Fallback::Text("100000000000"),
        live: true,
        doc: "Fuel of one script run: about one unit per WebAssembly instruction, and what its calls cost.",
    },
    Parameter {
        name: "script-timeout-ms",
        kind: Kind::Integer(1..=86_400_000, |c| &c.script_timeout_ms),
        default: Fallback::Text("5000"),
        live: true,
        doc: "Milliseconds after which a script run is ended.",
    },
    Parameter {
        name: "script-memory",
        kind: Kind::Bytes(MB..=4 << 30, |c| &c.script_memory),
        default: Fallback::Text("64mb"),
        live: false,
        doc: "Memory of one script run.",
    },
    Parameter {
        name: "script-fuel-max",
        kind: Kind::Integer(1..=i64::MAX, |c| &c.script_fuel_max),
        default: Fallback::Text("200000000000"),
        live: true,
        doc: "Most fuel that a script's header may ask for.",
    },
    Parameter {
        name: "script-timeout-max-ms",
        kind: Kind::Integer(1..=86_400_000, |c| &c.script_timeout_max_ms),
        default: Fallback::Text("60000"),
        live: true,
        doc: "Longest timeout that a script's header may ask for.",
    },
    Parameter {
        name: "script-memory-max",
        kind: Kind::Bytes(MB..=4 << 30, |c| &c.script_memory_max),
        default: Fallback::Text("256mb"),
        live: false,
        doc: "Most memory that a script's header may ask for.",
    },
    Parameter {
        name: "default-script-flags",
        kind: Kind::Words(SCRIPT_FLAGS, |c| &c.default_script_flags),
        default: Fallback::Text("none"),
        live: true,
        doc: "Flags of every script, beside those of its header and of SCRIPT FLAGS.",
    },
    Parameter {
        name: "script-on-error",
        kind: Kind::Word("keep|rollback", |c| &c.script_on_error),
        default: Fallback::Text("keep"),
        live: true,
        doc: "What becomes of the writes of an atomic script that ends with an error of its own: kept as in \
              Redis, or undone.",
    },
    Parameter {
        name: "undeclared-keys",
        kind: Kind::Word("widen|reject", |c| &c.undeclared_keys),
        default: Fallback::Text("widen"),
        live: true,
        doc: "What happens when an atomic script comes to a key that is not among its KEYS: the key is locked \
              and the script runs again if it must, or the call fails.",
    },
    Parameter {
        name: "script-auto-async",
        kind: Kind::Word("never|async|always", |c| &c.script_auto_async),
        default: Fallback::Text("async"),
        live: true,
        doc: "Whose calls are collected and sent together if the script does not use their result: nobody's, those \
              of scripts without atomicity, or everybody's, which makes no sense while the store is in the same \
              process.",
    },
    Parameter {
        name: "script-queue-max",
        kind: Kind::Bytes(0..=1 << 30, |c| &c.script_queue_max),
        default: Fallback::Text("64kb"),
        live: true,
        doc: "Bytes of collected calls at which a script sends them.",
    },
    Parameter {
        name: "script-client-gone",
        kind: Kind::Word("undo|finish", |c| &c.script_client_gone),
        default: Fallback::Text("undo"),
        live: true,
        doc: "What becomes of a script whose client hangs up: it is ended and undone, or it runs to its end.",
    },
    Parameter {
        name: "script-reply-max",
        kind: Kind::Bytes(1024..=4 << 30, |c| &c.script_reply_max),
        default: Fallback::Text("64mb"),
        live: true,
        doc: "Largest reply of a script.",
    },
    Parameter {
        name: "script-cache-max",
        kind: Kind::Integer(1..=1_000_000, |c| &c.script_cache_max),
        default: Fallback::Text("1000"),
        live: true,
        doc: "Scripts remembered because EVAL ran them, beyond which the least recently used are forgotten. \
              Those of SCRIPT LOAD stay.",
    },
    Parameter {
        name: "script-instances",
        kind: Kind::Word("rewind|fresh", |c| &c.script_instances),
        default: Fallback::Text("rewind"),
        live: false,
        doc: "Where a run's sandbox comes from: a used one put back byte by byte, or a new one.",
    },
    Parameter {
        name: "script-concurrency",
        kind: Kind::Integer(1..=4096, |c| &c.script_concurrency),
        default: Fallback::Text("64"),
        live: false,
        doc: "Scripts that run at the same time, atomic ones and others counted apart. More wait for their turn.",
    },
    Parameter {
        name: "script-fuel-slice",
        kind: Kind::Integer(1000..=1_000_000_000, |c| &c.script_fuel_slice),
        default: Fallback::Text("2000000"),
        live: false,
        doc: "Fuel after which a running script lets others have its thread.",
    },
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
        kind: Kind::Integer(1..=500, |c| &c.hz),
        default: Fallback::Text("10"),
        live: true,
        doc: "How often a second expired keys are looked for.",
    },
    Parameter {
        name: "active-expire-effort",
        kind: Kind::Integer(1..=10, |c| &c.active_expire_effort),
        default: Fallback::Text("1"),
        live: true,
        doc: "How much of the time may be spent on removing expired keys that nobody asks for: from 25 to 43 % of \
              one CPU.",
    },
    Parameter {
        name: "maxmemory",
        kind: Kind::Bytes(0..=i64::MAX, |c| &c.maxmemory),
        default: Fallback::Text("0"),
        live: true,
        doc: "Bytes of keys and values, as INFO shows them in used_memory, beyond which keys are evicted and, if \
              none may be, commands that need memory are refused. 0 is no limit.",
    },
    Parameter {
        name: "maxmemory-policy",
        kind: Kind::Word(POLICIES, |c| &c.maxmemory_policy),
        default: Fallback::Text("noeviction"),
        live: true,
        doc: "Which keys are evicted, those with an expiry or all, and which of them first. Sticky keys never are.",
    },
    Parameter {
        name: "maxmemory-samples",
        kind: Kind::Integer(1..=INT_MAX, |c| &c.maxmemory_samples),
        default: Fallback::Text("5"),
        live: true,
        doc: "Keys looked at for each that is evicted.",
    },
    Parameter {
        name: "maxmemory-eviction-tenacity",
        kind: Kind::Integer(0..=100, |c| &c.maxmemory_eviction_tenacity),
        default: Fallback::Text("10"),
        live: true,
        doc: "How long a command that needs memory may evict keys: 50 microseconds each up to 10, then 15 % more \
              each, 100 is until the limit is kept. What is left is done in the background.",
    },
    Parameter {
        name: "lfu-log-factor",
        kind: Kind::Integer(0..=INT_MAX, |c| &c.lfu_log_factor),
        default: Fallback::Text("10"),
        live: true,
        doc: "The higher, the more accesses it takes to make a key one of the most frequently used.",
    },
    Parameter {
        name: "lfu-decay-time",
        kind: Kind::Integer(0..=INT_MAX, |c| &c.lfu_decay_time),
        default: Fallback::Text("1"),
        live: true,
        doc: "Minutes after which the count of accesses to an unused key falls by one. 0 is never.",
    },
    Parameter {
        name: "hll-sparse-max-bytes",
        kind: Kind::Bytes(0..=i64::MAX, |c| &c.hll_sparse_max_bytes),
        default: Fallback::Text("3000"),
        live: true,
        doc: "From how many bytes on a HyperLogLog has six bits for each of its registers, which takes 12 KB.",
    },
    Parameter {
        name: "notify-keyspace-events",
        kind: Kind::Events(|c| &c.notify_keyspace_events),
        default: Fallback::Text(""),
        live: true,
        doc: "What is told of keys on channels: K and E name the channels by key and by event, the others are classes \
              of events as in Redis, A most of them. Empty: nothing.",
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

    /// The row of this name.
    pub fn find(name: &str) -> Option<&'static Parameter> {
        PARAMETERS.iter().find(|row| row.name.eq_ignore_ascii_case(name))
    }
}

impl Config {
    /// All cells at zero.
    pub(super) fn empty() -> Config {
        Config::default()
    }

    /// The configuration of a server that is told nothing.
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

    /// Percentiles that INFO tells.
    pub fn percentiles(&self) -> Vec<f64> {
        let text = self.latency_tracking_info_percentiles.get();
        text.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
    }

    /// Whether some source had a value for the parameter of this name.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }

    /// Whether atomic scripts collect calls. Not by default: the store is a function call away, and a hundred
    /// INCR collected and sent together took 1.4 times the CPU time of a hundred INCR.
    pub fn collects_always(&self) -> bool {
        self.script_auto_async.get() == 2
    }

    /// Where the sandbox of a run comes from.
    pub fn instances(&self) -> Instances {
        match self.script_instances.get() {
            0 => Instances::Rewind,
            _ => Instances::Fresh,
        }
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
        let off = if matches!(row.kind, Kind::Address(true, _)) { " or off" } else { "" };
        let live = if row.live { "yes" } else { "no" };
        let (name, default, doc) = (row.name, row.default_text(), row.doc);
        writeln!(text, "| `{name}` | {expected}{off} | {default} | {live} | {doc} |").expect("a string");
    }
    text
}
