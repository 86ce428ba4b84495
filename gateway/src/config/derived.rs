//! Settings of Redis that are none here: what is true of them.

use store::journal::Durability;
use store_engine::DATABASES;
use store_engine::value::set::MOST_NUMBERS;

use super::values::Config;

/// A read-only answer of `CONFIG GET` that is no parameter: what clients ask for by its name in redis.conf.
pub struct Derived {
    /// Name in redis.conf.
    pub name: &'static str,
    /// The truth about it.
    pub value: fn(&Config) -> String,
}

/// Rows that say how this server behaves in Redis' words. A feature that gets a parameter of its own leaves this table.
pub static DERIVED: &[Derived] = &[
    Derived { name: "bind", value: |c| c.resp.get().map_or(String::new(), |address| address.host) },
    Derived { name: "port", value: |c| if resp_is_tls(c) { 0 } else { resp_port(c) }.to_string() },
    Derived { name: "io-threads", value: |c| c.threads.get().to_string() },
    Derived { name: "databases", value: |_| DATABASES.to_string() },
    Derived { name: "save", value: |_| String::new() },
    Derived {
        name: "appendonly",
        value: |c| if c.data_dir.get().is_some() { "yes" } else { "no" }.to_owned(),
    },
    Derived {
        name: "appendfsync",
        value: |c| if c.durability.get() == Durability::Sync { "always" } else { "everysec" }.to_owned(),
    },
    Derived {
        name: "dir",
        value: |c| c.data_dir.get().map_or(String::new(), |dir| dir.display().to_string()),
    },
    Derived { name: "set-max-intset-entries", value: |_| MOST_NUMBERS.to_string() },
    // No script makes other clients wait, so there is no BUSY.
    Derived { name: "busy-reply-threshold", value: |_| "0".to_owned() },
    Derived { name: "lua-time-limit", value: |_| "0".to_owned() },
    Derived {
        name: "cluster-announce-ip",
        value: |c| c.cluster_announce.get().map_or(String::new(), |address| address.host),
    },
    Derived {
        name: "cluster-announce-port",
        value: |c| c.cluster_announce.get().map_or(0, |address| address.port).to_string(),
    },
    Derived { name: "replica-read-only", value: |_| "yes".to_owned() },
    // As far as there is all data of some moment.
    Derived { name: "replica-serve-stale-data", value: |_| "yes".to_owned() },
    Derived { name: "tls-port", value: |c| if resp_is_tls(c) { resp_port(c) } else { 0 }.to_string() },
    Derived { name: "unixsocket", value: |_| String::new() },
    Derived { name: "daemonize", value: |_| "no".to_owned() },
    Derived { name: "logfile", value: |_| String::new() },
];

fn resp_port(config: &Config) -> u16 {
    config.resp.get().map_or(0, |address| address.port)
}

/// Whether Redis clients speak TLS, the first of `tls-listeners`.
fn resp_is_tls(config: &Config) -> bool {
    config.tls_cert_file.get().is_some() && config.tls_listeners.get() & 1 != 0
}
