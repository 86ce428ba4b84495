//! What the limits of users refuse, and what they make wait.

use std::time::Duration;

use script::Budget;
use store_engine::spec::flags;
use store_engine::{Command, CommandError};
use tokio::sync::OwnedSemaphorePermit;

use super::origin::{Checked, NotAdmitted, Origin};
use crate::acl::limits::{Limit, UserLimits};
use crate::acl::{Account, Acl};
use crate::scripts::options::{Options, UndeclaredKeys};
use crate::session::Session;

/// Refuses a call of a user who makes too many. What changes the user of a connection, or ends it, is always done.
pub(super) fn refuse_too_many(
    acl: &Acl,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    let Origin::Client(session) = origin else { return Ok(()) };
    let account = &session.account;
    let Some(most) = calls_per_second(account, call.spec()) else { return Ok(()) };
    let done = account.meter.call(most).map_err(|wait| {
        let why = format!("has reached its limit of {most} calls per second; try again in {}", shown(wait));
        refusal(acl, account, Limit::CommandsPerSecond, &why)
    });
    Ok(done?)
}

/// Takes back that a call was counted which now has to wait, as its checks are repeated when it goes on.
pub fn count_later(account: &Account, spec: &Command) {
    if let Some(most) = calls_per_second(account, spec) {
        account.meter.take_back(most);
    }
}

/// How many calls such as this one a user may make in a second, if not any number.
fn calls_per_second(account: &Account, spec: &Command) -> Option<u64> {
    if spec.has(flags::NO_AUTH) {
        return None;
    }
    account.user().limits().get(Limit::CommandsPerSecond)
}

/// What a script may use that the user of this session runs, and what becomes of its options. `read_only`: it may not
/// write.
pub fn grant(
    acl: &Acl,
    session: &Session,
    options: &mut Options,
    read_only: bool,
) -> Result<Budget, CommandError> {
    let account = &session.account;
    if account.is_unlimited() {
        return acl.budget_for(options, &UserLimits::default());
    }
    let limits = *account.user().limits();
    let is_run_as = if session.in_exec { options.within_exec() } else { *options };
    let mode = is_run_as.mode(read_only);
    if !limits.allow_mode(mode) {
        let allowed = limits.shown(Limit::ScriptModes).unwrap_or_default();
        let why =
            format!("may only run scripts that are {allowed}, this one is {}; change its flags", mode.word());
        return Err(refusal(acl, account, Limit::ScriptModes, &why));
    }
    if limits.get(Limit::UndeclaredKeys).is_some() {
        options.undeclared_keys = Some(UndeclaredKeys::Reject);
    }
    acl.budget_for(options, &limits)
}

/// Waits until one more script of this user may run, which it may for as long as what is given is held. It is refused
/// if its fuel is used up.
pub async fn script_permit(
    acl: &Acl,
    account: &Account,
) -> Result<Option<OwnedSemaphorePermit>, CommandError> {
    let script_permit = account.meter.script_permit(|| acl.note_limit(Limit::ScriptsAtOnce)).await;
    // Only then: what those before it have used counts.
    if let Some(most) = account.user().limits().get(Limit::FuelPerSecond) {
        account.meter.has_fuel().map_err(|wait| {
            let why = format!(
                "has reached its limit of {most} units of fuel per second; try again in {}",
                shown(wait)
            );
            refusal(acl, account, Limit::FuelPerSecond, &why)
        })?;
    }
    Ok(script_permit)
}

fn shown(wait: Duration) -> String {
    format!("{} ms", wait.as_millis() + 1)
}

fn refusal(acl: &Acl, account: &Account, limit: Limit, why: &str) -> CommandError {
    acl.note_limit(limit);
    let user = String::from_utf8_lossy(account.name());
    CommandError::owned(format!("LIMIT {}: user '{user}' {why}", limit.name()))
}
