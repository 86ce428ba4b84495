//! What is told of runs that a limit ended.

use std::fmt;
use std::sync::Arc;

use script::Budget;
use store::LimitReached;

use super::call::ScriptCall;
use super::errors::fate;
use crate::acl::Account;
use crate::acl::limits::Limit;
use crate::server::Server;

/// A limit that ended something.
pub(super) struct Reached {
    limit: script::Limit,
    /// What was used up.
    used_up: String,
    /// What sets it.
    setting: &'static str,
}

impl Reached {
    /// With this budget, of this account. It is counted if it is one of the user's.
    pub fn of(
        server: &Server,
        account: Option<&Arc<Account>>,
        budget: &Budget,
        limit: script::Limit,
    ) -> Reached {
        let of_user = |limit: Limit, most: u64| {
            account?.user().limits().get(limit).filter(|own| *own == most)?;
            server.acl.note_limit(limit);
            Some(limit.rule())
        };
        let (used_up, setting) = match limit {
            script::Limit::Fuel => (
                format!("{} units used", budget.fuel),
                of_user(Limit::FuelPerSecond, budget.fuel).unwrap_or("script-fuel"),
            ),
            script::Limit::Time => {
                let millis = budget.time.as_millis() as u64;
                let setting = of_user(Limit::ScriptTimeoutMs, millis).unwrap_or("script-timeout-ms");
                (format!("{millis} ms used"), setting)
            }
            script::Limit::Memory => (
                format!("more than {} bytes requested", budget.memory_bytes),
                of_user(Limit::ScriptMemory, budget.memory_bytes as u64).unwrap_or("script-memory"),
            ),
            script::Limit::Reply => {
                (format!("reply of more than {} bytes", budget.reply_bytes), "script-reply-max")
            }
        };
        Reached { limit, used_up, setting }
    }

    /// The error of what was ended; `what` says what that was.
    pub fn error(&self, what: impl fmt::Display) -> String {
        let Reached { limit, used_up, setting } = self;
        format!("SCRIPTLIMIT {}: {used_up} {what}; the limit is set by {setting}", limit.name())
    }
}

/// What is told of a run that a limit ended.
pub(super) fn limit_error(server: &Server, call: &ScriptCall<'_>, limit: script::Limit) -> String {
    let mut reached = Reached::of(server, call.account.as_ref(), &call.budget, limit);
    let options = &call.options;
    let own = match limit {
        script::Limit::Fuel => options.fuel.is_some(),
        script::Limit::Time => options.timeout_ms.is_some(),
        script::Limit::Memory => options.memory_bytes.is_some(),
        script::Limit::Reply => false,
    };
    if own {
        reached.setting = "the script's own options";
    }
    reached.error(format_args!("by {}; {}", call.program, fate(call)))
}

/// The reply of an atomic script that memory ended.
pub(super) fn memory_error(server: &Server, call: &ScriptCall<'_>, limit: LimitReached) -> String {
    match limit {
        LimitReached::Data => {
            format!("{DATA_LIMIT}: {} was stopped; its writes were rolled back", call.program)
        }
        LimitReached::Undo if call.in_exec => exec_memory_error(server, limit),
        LimitReached::Undo => {
            let mut reached = Reached::of(server, call.account.as_ref(), &call.budget, script::Limit::Memory);
            reached.used_up = format!("rolling back requires more than {} bytes", call.budget.memory_bytes);
            if call.options.memory_bytes.is_some() {
                reached.setting = "the script's own options";
            }
            reached.error(format_args!("after the writes of {}, which were rolled back", call.program))
        }
    }
}

/// The reply of a MULTI transaction that memory ended.
pub(super) fn exec_memory_error(server: &Server, limit: LimitReached) -> String {
    match limit {
        LimitReached::Data => format!("{DATA_LIMIT}: the transaction was rolled back"),
        LimitReached::Undo => format!(
            "TXNLIMIT memory: rolling back requires more than {} bytes; the transaction was rolled back; \
             the limit is set by transaction-memory-max",
            server.config.transaction_memory_max.get()
        ),
    }
}

/// Redis' words for commands that need memory.
const DATA_LIMIT: &str = "OOM command not allowed when used memory > 'maxmemory'";
