//! What a call of a script has to pass before it is performed, whichever mode the script runs in.

use std::sync::Arc;

use store_engine::command::resolve;
use store_engine::spec::flags;
use store_engine::{Args, CommandError, Reply};

use super::declared::Declared;
use crate::acl::Account;
use crate::admission::{self, Admitted, Origin, Recent, Stage};
use crate::server::Server;
use crate::server::memory;
use crate::telemetry::audit;

/// Who runs a script.
pub(super) struct Caller {
    /// The number of the connection.
    pub client: u64,
    /// The user, if there is something that it may not do.
    pub account: Option<Arc<Account>>,
}

impl Caller {
    /// Refuses what the user may not do, and reports administrative calls to the audit log.
    pub fn check(&self, server: &Server, admitted: &Admitted<'_>) -> Result<(), CommandError> {
        if let Some(account) = &self.account {
            admission::refuse_without_permission(server, account, self.client, Stage::InScript, admitted)?;
        }
        if server.audit.concerns(admitted.number)
            && let Some(client) = server.clients.lock().get(&self.client)
        {
            let account = client.account.lock().clone();
            let caller = audit::Caller { user: account.name(), addr: &client.addr };
            server.audit.record_call_of_script(caller, admitted.args);
        }
        Ok(())
    }

    /// `redis.acl_check_cmd`: whether the user may make a call.
    pub fn answer_whether(&self, server: &Server, args: Args<'_>, out: &mut Reply) {
        let row = server.registry.lookup(args.name());
        let row = row.map(|row| server.registry.inner(row, args).map_or(row, |(row, _)| row).spec());
        let Some((row, spec)) = row.and_then(|row| Some((row, resolve(row, args)?))) else {
            return out.error(&CommandError::new("ERR Invalid command passed to redis.acl_check_cmd()"));
        };
        match &self.account {
            Some(account) if server.acl.check(account, row, spec, args).is_err() => out.null(),
            _ => out.integer(1),
        }
    }
}

/// The script that calls.
pub(super) struct Calling<'h> {
    pub server: &'h Server,
    pub caller: &'h Caller,
    /// The only keys that it may touch, where that is the rule.
    pub declared: Option<&'h Declared>,
    /// It may not write.
    pub read_only: bool,
    /// The database that it has selected.
    pub db: usize,
}

/// Checks a call: the script, its user, the declared keys, the memory, of which `is_full` says whether there is none left for
/// the script, and the disk.
#[inline(always)] // What it returns is large: moving it took 2 % of the time of a script of short calls.
pub(super) fn admit<'a>(
    calling: Calling<'_>,
    args: Args<'a>,
    recent: &mut Recent,
    is_full: impl FnOnce() -> bool,
) -> Result<Admitted<'a>, CommandError> {
    let Calling { server, caller, declared, read_only, db } = calling;
    let admitted = admission::admit_again(&server.registry, args, Origin::Script { read_only }, recent)?;
    caller.check(server, &admitted)?;
    if let Some(declared) = declared {
        declared.check(server, &admitted, db)?;
    }
    if admitted.spec.has(flags::DENY_OOM) && is_full() {
        return Err(memory::FULL);
    }
    admission::refuse_what_cannot_be_kept(server, &admitted, None)?;
    Ok(admitted)
}
