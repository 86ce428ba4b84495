//! The limits that end runs, and who has set them.

use std::fmt;
use std::sync::Arc;

use script::Budget;

use super::call::ScriptCall;
use crate::acl::limits::Limit;
use crate::acl::{Account, Acl};

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
    pub fn of(acl: &Acl, account: Option<&Arc<Account>>, budget: &Budget, limit: script::Limit) -> Reached {
        let of_user = |limit: Limit, most: u64| {
            account?.user().limits().get(limit).filter(|own| *own == most)?;
            acl.note_limit(limit);
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

    /// By a run of this call.
    pub fn by_call(acl: &Acl, call: &ScriptCall<'_>, limit: script::Limit) -> Reached {
        let options = &call.options;
        let own = match limit {
            script::Limit::Fuel => options.fuel.is_some(),
            script::Limit::Time => options.timeout_ms.is_some(),
            script::Limit::Memory => options.memory_bytes.is_some(),
            script::Limit::Reply => false,
        };
        let reached = Reached::of(acl, call.account.as_ref(), &call.budget, limit);
        Reached {
            setting: if own { "the options of the script or of the request" } else { reached.setting },
            ..reached
        }
    }

    /// By the memory that rolling back this call would require.
    pub fn when_undone(acl: &Acl, call: &ScriptCall<'_>) -> Reached {
        let used_up = format!("rolling back requires more than {} bytes", call.budget.memory_bytes);
        Reached { used_up, ..Reached::by_call(acl, call, script::Limit::Memory) }
    }

    /// The error of what was ended; `what` says what that was.
    pub fn error(&self, what: impl fmt::Display) -> String {
        let Reached { limit, used_up, setting } = self;
        format!("SCRIPTLIMIT {}: {used_up} {what}; the limit is set by {setting}", limit.name())
    }
}
