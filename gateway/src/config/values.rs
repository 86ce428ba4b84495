//! The value of every parameter.

use std::path::PathBuf;

use script::{Compile, Instances};
use store::OnFull;
use store::journal::{Durability, Reads};
use store_engine::evict::Policy;
use tracing_subscriber::filter::LevelFilter;

use super::cell::{AddressCell, AddressesCell, DirCell, NamesCell, Number, OutputLimits, Secret, TextCell};
use super::choice::{
    AuthClients, AutoAsync, ChoiceCell, ClientGone, LogFormat, NewUserChannels, OnError, OtlpCompression,
    OtlpProtocol, UndeclaredKeys,
};

/// The value of every parameter. A field's meaning stands in the row of the same name in [`super::table::PARAMETERS`].
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
    pub data_dir: DirCell,
    pub stores: AddressesCell,
    pub cluster_token_file: DirCell,
    pub replicated: ChoiceCell<bool>,
    pub replica_copy_rate: Number,
    pub zone: TextCell,
    pub reads: ChoiceCell<Reads>,
    pub tls_cert_file: DirCell,
    pub tls_key_file: DirCell,
    pub tls_ca_cert_file: DirCell,
    pub tls_auth_clients: ChoiceCell<AuthClients>,
    pub tls_listeners: Number,
    pub tls_stores: ChoiceCell<bool>,
    pub cluster_enabled: ChoiceCell<bool>,
    pub cluster_announce: AddressCell,
    pub durability: ChoiceCell<Durability>,
    pub threads: Number,
    pub shards: Number,
    pub script_fuel: Number,
    pub script_timeout_ms: Number,
    pub script_memory: Number,
    pub script_fuel_max: Number,
    pub script_timeout_max_ms: Number,
    pub script_memory_max: Number,
    pub default_script_flags: Number,
    pub script_on_error: ChoiceCell<OnError>,
    pub undeclared_keys: ChoiceCell<UndeclaredKeys>,
    pub script_auto_async: ChoiceCell<AutoAsync>,
    pub script_queue_max: Number,
    pub script_client_gone: ChoiceCell<ClientGone>,
    pub script_reply_max: Number,
    pub script_cache_max: Number,
    pub script_cache_max_bytes: Number,
    pub transaction_memory_max: Number,
    pub maxmemory_transactions: ChoiceCell<OnFull>,
    pub library_memory_max: Number,
    pub script_concurrency: Number,
    pub script_fuel_slice: Number,
    pub script_instances: ChoiceCell<Instances>,
    pub script_compile: ChoiceCell<Compile>,
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
    pub maxmemory_policy: ChoiceCell<Option<Policy>>,
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
    pub requirepass_file: DirCell,
    pub aclfile: DirCell,
    pub acl_pubsub_default: ChoiceCell<NewUserChannels>,
    pub acllog_max_len: Number,
    pub audit_log: Number,
    pub protected_mode: ChoiceCell<bool>,
    pub migrate_hosts: NamesCell,
    /// Host and port, or empty: read it with `Config::primary`.
    pub(super) replicaof: TextCell,
    pub masteruser: TextCell,
    pub masterauth: Secret,
    pub tls_replication: ChoiceCell<bool>,
    pub repl_timeout: Number,
    pub latency_tracking: ChoiceCell<bool>,
    pub(super) latency_tracking_info_percentiles: TextCell,
    pub log_format: ChoiceCell<LogFormat>,
    pub log_level: ChoiceCell<LevelFilter>,
    pub otel_endpoint: TextCell,
    pub otel_protocol: ChoiceCell<OtlpProtocol>,
    pub otel_compression: ChoiceCell<OtlpCompression>,
    pub otel_ca_cert_file: DirCell,
    pub otel_service_name: TextCell,
    /// The bits of a floating point number.
    pub otel_sample_ratio: Number,
    pub otel_metrics_interval_ms: Number,
}
