//! The keys that scripts declare: others are refused where somebody wants that, and counted where they are used.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use store::LockRequest;
use store_engine::{CommandError, Routing};
use tracing::info;

use crate::acl::limits::Limit;
use crate::admission::Admitted;
use crate::server::Server;
use crate::telemetry::counters::{Counters, unix_time};
use crate::telemetry::script_stats::Stats;

/// The keys that a script declared.
pub(super) struct Declared {
    pub db: usize,
    pub keys: Vec<Box<[u8]>>,
    pub name: String,
    pub by: Refuser,
}

/// Who wants other keys to be refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refuser {
    /// A limit of the user: no flag helps.
    User,
    /// The script's header, or what SCRIPT FLAGS said.
    Script,
    /// The configuration.
    Server,
}

impl Declared {
    /// Dragonfly's refusal of other keys, with what to do about it, which is counted.
    pub fn check(&self, server: &Server, admitted: &Admitted<'_>, db: usize) -> Result<(), CommandError> {
        let is_declared = |key: &[u8]| db == self.db && self.keys.iter().any(|declared| **declared == *key);
        let mut keys = admitted.keys.iter().map(|(at, _)| admitted.args[*at]);
        let what = if let Some(key) = keys.find(|key| !is_declared(key)) {
            let key = String::from_utf8_lossy(&key[..key.len().min(128)]);
            format!("undeclared key, key: {key}; name it among the KEYS")
        } else if !admitted.keys.is_empty() && admitted.spec.routing.of(admitted.args) == Routing::Everywhere
        {
            // Of another database, or named by a pattern.
            format!("keys that cannot be declared, command: {}; do not use this command", admitted.spec.name)
        } else {
            return Ok(());
        };
        let name = &self.name;
        let otherwise = match self.by {
            Refuser::User => format!(" of script {name}, as {} requires", Limit::UndeclaredKeys.rule()),
            Refuser::Script => format!(", or set undeclared-keys=widen in script {name}"),
            Refuser::Server => format!(", or set the flag allow-undeclared-keys for script {name}"),
        };
        Counters::add(&server.counters.undeclared_refused, 1);
        if self.by == Refuser::User {
            server.acl.note_limit(Limit::UndeclaredKeys);
        }
        Err(CommandError::owned(format!("UNDECLARED script tried accessing {what}{otherwise}")))
    }
}

/// Counts keys that a program has used and not declared, and tells its author of the first.
pub(super) fn note_undeclared<'k>(
    server: &Server,
    program: impl Display,
    stats: &Stats,
    mut used: impl Iterator<Item = &'k LockRequest>,
) {
    let Some(LockRequest { key: first, .. }) = used.next() else { return };
    let count = 1 + used.count() as u64;
    Counters::add(&server.counters.undeclared_keys, count);
    let is_new = stats.add_undeclared(count);
    // Clients that make up new texts all the time shall not fill the log.
    let second = unix_time().as_secs();
    if is_new && server.counters.undeclared_logged.swap(second, Ordering::Relaxed) != second {
        let key = String::from_utf8_lossy(&first[..first.len().min(128)]);
        info!(
            "{program} uses the key {key}, which is not among its KEYS; declared keys are locked once before \
             the script runs, undeclared keys can cause it to run again"
        );
    }
}
