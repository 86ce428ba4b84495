//! What the rules of users refuse.

use store_engine::spec::flags;
use store_engine::{Args, Command, CommandError, Group};

use super::origin::{Checked, NotAdmitted, Origin, ScriptOrigin};
use super::parse::full_name;
use crate::acl::log::{AclLogEntry, Context, Reason};
use crate::acl::{self, Account, Acl, Denied, Refused};
use crate::server::Server;
use crate::session::ClientInfo;
use crate::telemetry::arguments::cut;
use crate::telemetry::audit::{Caller, Denial};
use crate::telemetry::counters::unix_ms;

/// Refuses what needs users while the server does not know them.
pub(super) fn refuse_while_users_unknown(acl: &Acl, call: &Checked<'_, '_>) -> Result<(), NotAdmitted> {
    let is_refused = !acl.is_known() && !is_harmless(call.spec());
    if is_refused { Err(acl.why_unknown().into()) } else { Ok(()) }
}

/// Refuses an unauthenticated client, where a password is needed.
pub(super) fn refuse_unauthenticated(
    acl: &Acl,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    match origin {
        Origin::Client(session) if session.needs_password(acl) && !call.spec().has(flags::NO_AUTH) => {
            Err(acl::NOAUTH.into())
        }
        _ => Ok(()),
    }
}

/// Whether a command shows no data of users, and changes nothing but the connection.
fn is_harmless(spec: &Command) -> bool {
    spec.has(flags::NO_AUTH)
        || spec.name == "info"
        || (spec.group == Group::Connection && !spec.has(flags::ADMIN))
}

/// Where a call stands, for the error and ACL LOG.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Requested,
    Queued,
    Executed,
    InScript,
}

/// Refuses what a user may not do, and notes that.
#[cold]
pub(super) fn refuse_without_permission(
    server: &Server,
    origin: Origin<'_>,
    call: &Checked<'_, '_>,
) -> Result<(), NotAdmitted> {
    let (account, client, stage) = match origin {
        Origin::Client(session) if session.multi.is_some() => {
            (&session.account, session.client.id, Stage::Queued)
        }
        Origin::Client(session) => (&session.account, session.client.id, Stage::Requested),
        Origin::Exec(session) => (&session.account, session.client.id, Stage::Executed),
        Origin::Script(ScriptOrigin { caller, .. }) => {
            let Some(account) = &caller.account else { return Ok(()) };
            (account, caller.client, Stage::InScript)
        }
    };
    if account.is_unlimited() {
        return Ok(());
    }
    let (row, spec, args) = (call.row, call.spec(), call.args());
    let denied = match server.acl.check(account, row.spec(), spec, args) {
        Ok(()) if stage != Stage::Queued => return Ok(refuse_hidden_keys(&server.acl, account, spec, args)?),
        Ok(()) => return Ok(()),
        Err(Refused::Gone) => return Err(acl::NOAUTH.into()),
        Err(Refused::Denied(denied)) => denied,
    };
    let context = match stage {
        Stage::Requested => Context::Toplevel,
        Stage::Queued | Stage::Executed => Context::Multi,
        Stage::InScript => Context::Lua,
    };
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, full_name(row.spec(), spec).into_bytes()),
        Denied::Key(at) => (Reason::Key, cut(args[at], MOST_LOGGED_BYTES)),
        Denied::Channel(at) => (Reason::Channel, cut(args[at], MOST_LOGGED_BYTES)),
    };
    let client = server.sessions.client(client);
    note_refusal(server, reason, context, object, account.name(), client.as_deref());
    Err(NotAdmitted::Denied(refusal(stage, denied, row.spec(), spec)))
}

/// Bytes of a key, a channel or the name of a user that ACL LOG keeps.
const MOST_LOGGED_BYTES: usize = 1024;

/// Notes that a user was refused something.
pub fn note_refusal(
    server: &Server,
    reason: Reason,
    context: Context,
    object: Vec<u8>,
    user: &[u8],
    client: Option<&ClientInfo>,
) {
    let addr = client.map(|client| &*client.addr).unwrap_or_default();
    let client = client.map(|client| server.line_of(client)).unwrap_or_default();
    let user = cut(user, MOST_LOGGED_BYTES);
    let refusal = AclLogEntry { count: 1, reason, context, object, user, at_ms: unix_ms(), client };
    server.telemetry.audit.record_denial(&Denial {
        caller: Caller { user: &refusal.user, addr },
        at_ms: refusal.at_ms,
        reason: refusal.reason.word(),
        context: refusal.context.word(),
        object: &refusal.object,
    });
    server.acl.log.add(refusal, server.config.acllog_max_len.get_usize());
}

/// The words of Redis for what is refused.
fn refusal(stage: Stage, denied: Denied, row: &Command, spec: &Command) -> CommandError {
    let changed = |why: &str| {
        CommandError::owned(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {why}"
        ))
    };
    match (stage, denied) {
        (Stage::Requested | Stage::Queued, Denied::Command) => CommandError::owned(format!(
            "NOPERM this user has no permissions to run the '{}' command",
            full_name(row, spec)
        )),
        (Stage::Requested | Stage::Queued, Denied::Key(_)) => CommandError::new(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        ),
        (Stage::Requested | Stage::Queued, Denied::Channel(_)) => CommandError::new(
            "NOPERM this user has no permissions to access one of the channels used as arguments",
        ),
        (Stage::Executed, Denied::Command) => changed("no permission to execute the command or subcommand"),
        (Stage::Executed, Denied::Key(_)) => changed("no permission to touch the specified keys"),
        (Stage::Executed, Denied::Channel(_)) => {
            changed("no permission to access one of the channels used as arguments to the command")
        }
        (Stage::InScript, Denied::Command) => {
            CommandError::new("ERR The user executing the script can't run this command or subcommand")
        }
        (Stage::InScript, Denied::Key(_)) => CommandError::new(
            "ERR The user executing the script can't access at least one of the keys mentioned in the command \
             arguments",
        ),
        (Stage::InScript, Denied::Channel(_)) => CommandError::new(
            "ERR The user executing the script can't publish to the channel mentioned in the command",
        ),
    }
}

/// SORT reads keys that its patterns name while it runs: only those may say so who may read all.
fn refuse_hidden_keys(
    acl: &Acl,
    account: &Account,
    spec: &Command,
    args: Args<'_>,
) -> Result<(), CommandError> {
    if !matches!(spec.name, "sort" | "sort_ro") {
        return Ok(());
    }
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let option = match &*word.to_ascii_lowercase() {
            b"by" if args.get(at + 1).is_some_and(|pattern| pattern.contains(&b'*')) => Some("BY"),
            b"get" if args.len() > at + 1 => Some("GET"),
            _ => None,
        };
        if let Some(option) = option
            && !acl.reads_all_keys(account, spec, args)
        {
            let text = format!("ERR {option} option of SORT denied due to insufficient ACL permissions.");
            return Err(CommandError::owned(text));
        }
        at += match &*word.to_ascii_lowercase() {
            b"limit" => 3,
            b"by" | b"get" | b"store" => 2,
            _ => 1,
        };
    }
    Ok(())
}
