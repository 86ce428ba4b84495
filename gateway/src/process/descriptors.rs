//! Open files: the system limits them, and each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::config::Config;

/// What is open beside connections: some 80 files of data, links to store nodes, what threads wait with, and connections
/// that are about to be refused.
const BESIDE: usize = 200;

/// Raises the limit of open files as far as this process may, as Redis does.
pub fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, fewer connections are let in.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The most files that the process may have open.
pub fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// How many files the process has open; 0 where the system does not say.
pub fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// How many connections the limit of open files has room for.
pub fn room_for_connections() -> usize {
    limit().saturating_sub(BESIDE).max(1)
}

/// Reduces `maxclients` to what there is room for, as Redis does at its start, and warns if that is less.
pub fn fit_clients(config: &Config) {
    let (wanted, room) = (config.maxclients.get_usize(), room_for_connections());
    if wanted > room {
        warn!(
            "maxclients: reduced from {wanted} to {room} connections, because the limit of open files is {}; \
             raise `ulimit -n`",
            limit()
        );
        config.maxclients.set(room as u64);
    }
}
