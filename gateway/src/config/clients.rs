//! Parameters about clients: how many there are, and what they may make the server hold.

use super::kind::{PERCENT, ParameterKind};
use super::parameter::{Fallback, INT_MAX, MB, Parameter};
use super::values::Config;

/// What one argument may be.
pub const PROTO_MAX_BULK_LEN: Parameter = Parameter {
    name: "proto-max-bulk-len",
    kind: ParameterKind::Bytes(MB..=i64::MAX, |c| &c.proto_max_bulk_len),
    default: Fallback::Text("512mb"),
    live: true,
    doc: "Maximum size of one argument of a command.",
};

/// What one command may be, and what commands may keep.
pub const QUERY_BUFFER_LIMIT: Parameter = Parameter {
    name: "client-query-buffer-limit",
    kind: ParameterKind::Bytes(MB..=i64::MAX, |c| &c.client_query_buffer_limit),
    default: Fallback::Text("1gb"),
    live: true,
    doc: "Maximum size of a command with all its arguments, and of what a connection may hold in queued commands, watched keys, \
          subscriptions and CLIENT TRACKING prefixes.",
};

/// What a client may leave unread.
pub const OUTPUT_BUFFER_LIMIT: Parameter = Parameter {
    name: "client-output-buffer-limit",
    kind: ParameterKind::OutputLimits(|c| &c.client_output_buffer_limit),
    default: Fallback::Text("normal 1gb 64mb 60 pubsub 32mb 8mb 60"),
    live: true,
    doc: "A client is disconnected when the replies (normal) or messages (pubsub) that it has not read \
          exceed the hard limit, or the soft limit for that many seconds. 0 means no limit.",
};

/// How many there may be.
pub const MAXCLIENTS: Parameter = Parameter {
    name: "maxclients",
    kind: ParameterKind::Integer(1..=u32::MAX as i64, |c| &c.maxclients),
    default: Fallback::Text("10000"),
    live: true,
    doc: "Maximum number of connections. It is lower if the limit of open files is less than 200 above \
          it.",
};

/// What they may make the server hold together.
pub const MAXMEMORY_CLIENTS: Parameter = Parameter {
    name: "maxmemory-clients",
    kind: ParameterKind::BytesOrPercent(|c| &c.maxmemory_clients),
    default: Fallback::Text("0"),
    live: true,
    doc: "Maximum memory, in bytes or in percent of maxmemory, that all clients together may hold: unread input, queued \
          commands, watched keys, subscriptions and unread output. Above it the clients that hold most are disconnected, \
          except those with CLIENT NO-EVICT. 0 means no limit; the minimum is 128kb.",
};

/// How long they may be idle.
pub const TIMEOUT: Parameter = Parameter {
    name: "timeout",
    kind: ParameterKind::Integer(0..=INT_MAX, |c| &c.timeout),
    default: Fallback::Text("0"),
    live: true,
    doc: "Seconds after which an idle RESP connection is closed; 0 means never. Idle HTTP connections, \
          gRPC connections without a call and incomplete TLS handshakes are closed after 60 seconds at \
          most.",
};

/// How dead ones are found.
pub const TCP_KEEPALIVE: Parameter = Parameter {
    name: "tcp-keepalive",
    kind: ParameterKind::Integer(0..=INT_MAX, |c| &c.tcp_keepalive),
    default: Fallback::Text("300"),
    live: true,
    doc: "Seconds between TCP keepalive probes, which detect dead connections. 0 disables them.",
};

/// How many wait to be accepted.
pub const TCP_BACKLOG: Parameter = Parameter {
    name: "tcp-backlog",
    kind: ParameterKind::Integer(1..=INT_MAX, |c| &c.tcp_backlog),
    default: Fallback::Text("511"),
    live: false,
    doc: "Maximum number of connections that wait to be accepted.",
};

/// How much is remembered of what they have read.
pub const TRACKING_TABLE_MAX_KEYS: Parameter = Parameter {
    name: "tracking-table-max-keys",
    kind: ParameterKind::Integer(0..=i64::MAX, |c| &c.tracking_table_max_keys),
    default: Fallback::Text("1000000"),
    live: true,
    doc: "Maximum number of keys in the invalidation table of client-side caching. Above it, another \
          key is invalidated. 0 means no limit.",
};

/// How much memory that takes.
pub const TRACKING_TABLE_MAX_BYTES: Parameter = Parameter {
    name: "tracking-table-max-bytes",
    kind: ParameterKind::Bytes(0..=i64::MAX, |c| &c.tracking_table_max_bytes),
    default: Fallback::Text("512mb"),
    live: true,
    doc: "Maximum memory of the invalidation table of client-side caching: names of keys and ids of clients. Above it, \
          other keys are invalidated. 0 means no limit.",
};

impl Config {
    /// The mode that clients see.
    pub fn mode(&self) -> &'static str {
        if self.cluster_enabled.get() { "cluster" } else { "standalone" }
    }

    /// How much clients may make the server hold together, if there is a limit.
    pub fn limit_of_clients(&self) -> Option<usize> {
        let bytes = match self.maxmemory_clients.get() {
            number if number & PERCENT != 0 => {
                let percent = u128::from(number & !PERCENT);
                (u128::from(self.maxmemory.get()) * percent / 100) as u64
            }
            number => number,
        };
        (bytes > 0).then(|| usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}
