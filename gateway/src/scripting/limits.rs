//! What limits make of runs: they wait for their turn, their fuel is paid, and what ends them is told.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;

use script::Budget;
use store::LimitReached;
use tokio::sync::OwnedSemaphorePermit;

use super::script::{ScriptCall, fate, killed_error};
use super::turns::Pace;
use crate::acl::Account;
use crate::acl::limits::Limit;
use crate::admission;
use crate::server::Server;

/// Waits in the line of the user's scripts, if there is one. Nothing is locked yet. An error is the text that becomes
/// the reply.
pub(super) async fn take_turn(
    server: &Server,
    call: &ScriptCall<'_>,
) -> Result<Option<OwnedSemaphorePermit>, String> {
    let Some(account) = &call.account else { return Ok(None) };
    let waits = pin!(admission::turn(server, account));
    match server.runs.drive(|| call.who(), waits).await {
        Some(turn) => turn.map_err(|error| error.text().to_owned()),
        None => Err(killed_error(server, call)),
    }
}

/// What a run burns. It is paid also if nobody waits for the end of the run: then for each slice that it has begun.
pub(super) struct Burning {
    account: Arc<Account>,
    per_second: u64,
    slice_fuel: u64,
    pace: Option<Pace>,
    /// Fuel of the slices that it has begun.
    begun: u64,
    /// What the run may use at most.
    most: u64,
    /// What it has used, once that is known.
    used: Option<u64>,
}

impl Burning {
    /// Of a run of this user that may use so much, if the user's fuel is limited.
    /// Its slices are of the budget's size, or as its pace says.
    pub fn of(account: &Arc<Account>, budget: &Budget, pace: Option<Pace>) -> Option<Burning> {
        let account = account.clone();
        let per_second = account.user().limits().get(Limit::FuelPerSecond)?;
        let Budget { slice_fuel, fuel: most, .. } = *budget;
        Some(Burning { account, per_second, slice_fuel, pace, begun: 0, most, used: None })
    }

    /// Drives the run to its end. `used` finds out what it has burned.
    pub async fn watch<T>(
        mut self,
        mut run: Pin<&mut impl Future<Output = T>>,
        used: impl FnOnce(&T) -> u64,
    ) -> T {
        let ran = poll_fn(|context| {
            let slice = self.pace.as_ref().map_or(self.slice_fuel, Pace::slice_fuel);
            self.begun = self.begun.saturating_add(slice);
            run.as_mut().poll(context)
        })
        .await;
        self.used = Some(used(&ran));
        ran
    }
}

impl Drop for Burning {
    fn drop(&mut self) {
        let begun = self.begun.min(self.most);
        self.account.meter.burn(self.used.unwrap_or(begun), self.per_second);
    }
}

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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::{Context, Waker};

    use super::*;
    use crate::acl::{Acl, Commands};
    use crate::config::Config;

    #[test]
    fn what_nobody_waits_for_is_paid_by_slices() {
        let acl = Acl::new(Commands::new(std::iter::empty()), Arc::new(Config::defaults()));
        let user = acl.planned(b"u", [&b"limit:fuel-per-second=1"[..]].into_iter()).expect("right rules");
        let account = acl.put(b"u", user);
        let burning = Burning {
            account: account.clone(),
            per_second: 1,
            slice_fuel: 1000,
            pace: None,
            begun: 0,
            most: 2500,
            used: None,
        };
        let mut run = pin!(pending::<()>());
        let mut watched = Box::pin(burning.watch(run.as_mut(), |()| 0));
        for _ in 0..3 {
            assert!(watched.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(account.meter.has_fuel(), Ok(()));
        drop(watched);
        let wait = account.meter.has_fuel().expect_err("it is used up").as_secs();
        assert!((1000..=2500).contains(&wait), "{wait}");
    }
}
