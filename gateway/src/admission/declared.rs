//! The keys that scripts declare: other keys are refused where a user, a script or the configuration says so.

use store_engine::{CommandError, Routing};

use super::origin::{Checked, Declared, NotAdmitted, Origin, Refuser};
use crate::acl::limits::Limit;
use crate::server::Server;
use crate::telemetry::counters::Counters;

impl Declared {
    /// Dragonfly's refusal of other keys, with what to do about it, which is counted.
    fn check(&self, server: &Server, call: &Checked<'_, '_>, db: usize) -> Result<(), CommandError> {
        let is_declared = |key: &[u8]| db == self.db && self.keys.iter().any(|declared| **declared == *key);
        let mut keys = call.keys().iter().map(|(at, _)| call.args()[*at]);
        let what = if let Some(key) = keys.find(|key| !is_declared(key)) {
            let key = String::from_utf8_lossy(&key[..key.len().min(128)]);
            format!("undeclared key, key: {key}; name it among the KEYS")
        } else if !call.keys().is_empty() && call.spec().routing.of(call.args()) == Routing::Everywhere {
            // Of another database, or named by a pattern.
            format!("keys that cannot be declared, command: {}; do not use this command", call.spec().name)
        } else {
            return Ok(());
        };
        let name = &self.name;
        let otherwise = match self.by {
            Refuser::User => format!(" of script {name}, as {} requires", Limit::UndeclaredKeys.rule()),
            Refuser::Script => format!(", or set undeclared-keys=widen in script {name}"),
            Refuser::Server => format!(", or set the flag allow-undeclared-keys for script {name}"),
        };
        Counters::add(&server.telemetry.counters.undeclared_refused, 1);
        if self.by == Refuser::User {
            server.acl.note_limit(Limit::UndeclaredKeys);
        }
        Err(CommandError::owned(format!("UNDECLARED script tried accessing {what}{otherwise}")))
    }
}

pub(super) fn refuse_undeclared(
    server: &Server,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    let Origin::Script(script) = origin else { return Ok(()) };
    let Some(declared) = script.declared else { return Ok(()) };
    Ok(declared.check(server, call, script.db)?)
}
