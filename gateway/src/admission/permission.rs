//! What the rules of users refuse.

use store_engine::spec::flags;
use store_engine::{Args, Command, CommandError, Group};

use super::call::{Admitted, full_name};
use super::limits::refuse_too_many;
use crate::acl::log::{AclLogEntry, Context, Reason};
use crate::acl::{self, Account, Denied, Refused};
use crate::server::Server;
use crate::session::{ClientInfo, Session};
use crate::telemetry::arguments::cut;
use crate::telemetry::audit::{Caller, Denial};
use crate::telemetry::counters::unix_ms;

/// Where a call stands that a user wants to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A client makes it.
    Requested,
    /// It is to be queued.
    Queued,
    /// It was queued, and EXEC makes it.
    Executed,
    /// A script makes it.
    InScript,
}

/// Why a call is not made.
#[derive(Debug)]
pub enum NotAdmitted {
    /// The rules of its user deny it.
    Denied(CommandError),
    /// Something else.
    Rejected(CommandError),
}

impl NotAdmitted {
    /// The reply to the call.
    pub fn error(&self) -> &CommandError {
        let (NotAdmitted::Denied(error) | NotAdmitted::Rejected(error)) = self;
        error
    }
}

impl From<CommandError> for NotAdmitted {
    fn from(error: CommandError) -> NotAdmitted {
        NotAdmitted::Rejected(error)
    }
}

impl From<NotAdmitted> for CommandError {
    fn from(why: NotAdmitted) -> CommandError {
        let (NotAdmitted::Denied(error) | NotAdmitted::Rejected(error)) = why;
        error
    }
}

/// Refuses what a connection may not do: anything but being let in, or what its user may not do.
#[inline]
pub fn refuse_to_session(
    server: &Server,
    session: &Session,
    admitted: &Admitted<'_>,
) -> Result<(), NotAdmitted> {
    if session.authenticated && session.account.is_unlimited() {
        return Ok(());
    }
    if !server.acl.is_known() && !is_harmless(admitted.spec) {
        return Err(server.acl.why_unknown().into());
    }
    if session.needs_password(&server.acl) && !admitted.spec.has(flags::NO_AUTH) {
        return Err(acl::NOAUTH.into());
    }
    refuse_too_many(server, &session.account, admitted)?;
    let stage = if session.multi.is_some() { Stage::Queued } else { Stage::Requested };
    refuse_without_permission(server, &session.account, session.client.id, stage, admitted)
}

/// Whether a command shows no data of users, and changes nothing but the connection.
fn is_harmless(spec: &Command) -> bool {
    spec.has(flags::NO_AUTH)
        || spec.name == "info"
        || (spec.group == Group::Connection && !spec.has(flags::ADMIN))
}

/// Refuses what a user may not do, and notes it; `client` is the number of its connection.
#[inline]
pub fn refuse_without_permission(
    server: &Server,
    account: &Account,
    client: u64,
    stage: Stage,
    admitted: &Admitted<'_>,
) -> Result<(), NotAdmitted> {
    if account.is_unlimited() {
        return Ok(());
    }
    refuse_by_rules(server, account, client, stage, admitted)
}

#[cold]
fn refuse_by_rules(
    server: &Server,
    account: &Account,
    client: u64,
    stage: Stage,
    admitted: &Admitted<'_>,
) -> Result<(), NotAdmitted> {
    let Admitted { row, spec, args, .. } = *admitted;
    let denied = match server.acl.check(account, row.spec(), spec, args) {
        Ok(()) if stage != Stage::Queued => return Ok(refuse_hidden_keys(server, account, spec, args)?),
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
    let client = server.clients.lock().get(&client).cloned();
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
    server.audit.record_denial(&Denial {
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
    server: &Server,
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
            && !server.acl.reads_all_keys(account, spec, args)
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
