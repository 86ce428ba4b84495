//! The only place that says yes to a call, for clients and scripts alike: a chain of small refusals.

mod limits;

use smallvec::SmallVec;
use store_engine::command::resolve;
use store_engine::keys::{Keys, keys_of};
use store_engine::same::same;
use store_engine::spec::flags;
use store_engine::wait;
use store_engine::{Args, Command, CommandError, Group, error};

use crate::acl::log::{Context, Reason, Refusal};
use crate::acl::{self, Account, Denied, Refused};
use crate::header::Header;
use crate::memory;
use crate::monitor::cut;
use crate::observe::unix_ms;
use crate::registry::{Handler, Registry, Row, ScriptSource, SessionCommand};
use crate::scripts::{parse_sha, sha_of};
use crate::server::Server;
use crate::session::{ClientInfo, Multi, Session};

pub use limits::{count_later, grant, turn};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A connection.
    Client,
    /// A script.
    Script {
        /// It may not write: EVAL_RO, or the flag `no-writes`.
        read_only: bool,
    },
}

/// Proof that the gate said yes; nothing else can be run.
pub struct Admitted<'a> {
    /// The row that was called.
    pub row: Row,
    /// Its facts; of a container the subcommand's.
    pub facts: &'static Command,
    /// The call.
    pub args: Args<'a>,
    /// Its keys.
    pub keys: Keys,
    /// The number of what was called, as the registry counts.
    pub number: u16,
}

/// Checks one call.
pub fn admit<'a>(registry: &Registry, args: Args<'a>, origin: Origin) -> Result<Admitted<'a>, CommandError> {
    let found = registry.find(args.name()).ok_or_else(|| unknown(args, origin))?;
    let (row, number) = registry.inner(found.0, args).unwrap_or(found);
    let facts = resolve(row.facts(), args).ok_or_else(|| unknown_subcommand(row.facts(), args, origin))?;
    refuse_wrong_arity(row.facts(), facts, args, origin)?;
    if let Origin::Script { read_only } = origin {
        refuse_outside_scripts(row, facts)?;
        refuse_writes(facts, read_only)?;
        wait::refuse_in_script(facts, args)?;
    }
    // Commands such as ZUNION and FCALL name a bad key count in words of their own, before they touch a key.
    let keys = keys_of(facts, args).unwrap_or_default();
    Ok(Admitted { row, facts, args, keys, number: number + place_in(row.facts(), facts) })
}

/// How far the number of a subcommand is behind that of its container `row`; 0 of the container itself.
fn place_in(row: &Command, facts: &Command) -> u16 {
    let place = row.subcommands.iter().position(|subcommand| std::ptr::eq(subcommand, facts));
    place.map_or(0, |place| place as u16 + 1)
}

/// The number of a call that was refused, of its container if the subcommand is unknown; nothing if there is no such
/// command.
pub fn number_of(registry: &Registry, args: Args<'_>) -> Option<u16> {
    let found = registry.find(args.name())?;
    let (row, number) = registry.inner(found.0, args).unwrap_or(found);
    let facts = resolve(row.facts(), args)?;
    Some(number + place_in(row.facts(), facts))
}

/// The name of a call's command for people: one of those that there are, or `unknown`.
pub fn shown_name<'a>(registry: &'a Registry, args: Args<'_>) -> &'a str {
    match number_of(registry, args) {
        Some(number) => registry.shown_name(usize::from(number)),
        None => "unknown",
    }
}

/// A command's name as a script spells it.
type Spelled = SmallVec<[u8; 16]>;

/// The commands a script called last. Scripts call the same few over and over; what the gate said of a command
/// holds for the next call of it, but for the number of arguments and the keys.
#[derive(Default)]
pub struct Recent {
    rows: SmallVec<[(Row, u16, Spelled); Recent::MOST]>,
    /// Which one makes room for the next.
    oldest: usize,
}

impl Recent {
    /// Two for the loop of most scripts, and as many again.
    const MOST: usize = 4;

    /// A command that was called by this name, spelled the same way.
    fn find(&self, name: &[u8]) -> Option<(Row, u16)> {
        let found = self.rows.iter().find(|(.., spelled)| same(spelled, name))?;
        Some((found.0, found.1))
    }

    fn remember(&mut self, row: Row, number: u16, name: &[u8]) {
        // Of a container the next call may mean another subcommand.
        if !row.facts().subcommands.is_empty() {
            return;
        }
        if self.rows.len() < Recent::MOST {
            return self.rows.push((row, number, Spelled::from_slice(name)));
        }
        self.rows[self.oldest] = (row, number, Spelled::from_slice(name));
        self.oldest = (self.oldest + 1) % Recent::MOST;
    }
}

/// [`admit`] for the calls of one script, all of the same origin.
#[inline(always)] // What it returns is large: moving it took 2 % of the time of a script of short calls.
pub fn admit_again<'a>(
    registry: &Registry,
    args: Args<'a>,
    origin: Origin,
    recent: &mut Recent,
) -> Result<Admitted<'a>, CommandError> {
    if let Some((row, number)) = recent.find(args.name())
        && row.facts().arity.allows(args.len())
        && wait::refuse_in_script(row.facts(), args).is_ok()
        && let Ok(keys) = keys_of(row.facts(), args)
    {
        return Ok(Admitted { row, facts: row.facts(), args, keys, number });
    }
    let admitted = admit(registry, args, origin)?;
    if recent.find(args.name()).is_none() {
        recent.remember(admitted.row, admitted.number, args.name());
    }
    Ok(admitted)
}

/// Where a call stands that a user wants to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A client makes it.
    Asked,
    /// It is to be queued.
    Queued,
    /// It was queued, and EXEC makes it.
    Executed,
    /// A script makes it.
    InScript,
}

/// Refuses what a connection may not do: anything but being let in, or what its user may not do.
#[inline]
pub fn refuse_to_session(
    server: &Server,
    session: &Session,
    admitted: &Admitted<'_>,
) -> Result<(), CommandError> {
    if session.authenticated && session.account.is_unlimited() {
        return Ok(());
    }
    if !server.acl.is_known() && !is_harmless(admitted.facts) {
        return Err(server.acl.why_unknown());
    }
    if session.needs_password(&server.acl) && !admitted.facts.has(flags::NO_AUTH) {
        return Err(acl::NOAUTH);
    }
    limits::refuse_too_many(server, &session.account, admitted)?;
    let stage = if session.multi.is_some() { Stage::Queued } else { Stage::Asked };
    refuse_without_permission(server, &session.account, session.client.id, stage, admitted)
}

/// Whether a command tells nothing that is anybody's, and changes nothing but the connection.
fn is_harmless(facts: &Command) -> bool {
    facts.has(flags::NO_AUTH)
        || facts.name == "info"
        || (facts.group == Group::Connection && !facts.has(flags::ADMIN))
}

/// Refuses what a user may not do, and notes it; `client` is the number of its connection.
#[inline]
pub fn refuse_without_permission(
    server: &Server,
    account: &Account,
    client: u64,
    stage: Stage,
    admitted: &Admitted<'_>,
) -> Result<(), CommandError> {
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
) -> Result<(), CommandError> {
    let Admitted { row, facts, args, .. } = *admitted;
    let denied = match server.acl.check(account, row.facts(), facts, args) {
        Ok(()) if stage != Stage::Queued => return refuse_hidden_keys(server, account, facts, args),
        Ok(()) => return Ok(()),
        Err(Refused::Gone) => return Err(acl::NOAUTH),
        Err(Refused::Denied(denied)) => denied,
    };
    let context = match stage {
        Stage::Asked => Context::Toplevel,
        Stage::Queued | Stage::Executed => Context::Multi,
        Stage::InScript => Context::Lua,
    };
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, full_name(row.facts(), facts).into_bytes()),
        Denied::Key(at) => (Reason::Key, cut(args[at], MOST_LOGGED_BYTES)),
        Denied::Channel(at) => (Reason::Channel, cut(args[at], MOST_LOGGED_BYTES)),
    };
    let client = server.clients.lock().get(&client).cloned();
    note_refusal(server, reason, context, object, account.name(), client.as_deref());
    Err(refusal(stage, denied, row.facts(), facts))
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
    let client = client.map(|client| server.line_of(client)).unwrap_or_default();
    let user = cut(user, MOST_LOGGED_BYTES);
    let refusal = Refusal { count: 1, reason, context, object, user, at_ms: unix_ms(), client };
    server.audit.refused(&refusal);
    server.acl.log.add(refusal, server.config.acllog_max_len.get_usize());
}

/// The words of Redis for what is refused.
fn refusal(stage: Stage, denied: Denied, row: &Command, facts: &Command) -> CommandError {
    let changed = |why: &str| {
        CommandError::owned(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {why}"
        ))
    };
    match (stage, denied) {
        (Stage::Asked | Stage::Queued, Denied::Command) => CommandError::owned(format!(
            "NOPERM this user has no permissions to run the '{}' command",
            full_name(row, facts)
        )),
        (Stage::Asked | Stage::Queued, Denied::Key(_)) => CommandError::new(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        ),
        (Stage::Asked | Stage::Queued, Denied::Channel(_)) => CommandError::new(
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
    facts: &Command,
    args: Args<'_>,
) -> Result<(), CommandError> {
    if !matches!(facts.name, "sort" | "sort_ro") {
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
            && !server.acl.reads_all_keys(account, facts, args)
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

/// A command's name, with the container's before a subcommand's.
pub fn full_name(row: &Command, facts: &Command) -> String {
    match std::ptr::eq(row, facts) {
        true => facts.name.to_owned(),
        false => format!("{}|{}", row.name, facts.name),
    }
}

/// Refuses a call of a client that needs memory when there is none: [`memory::FULL`]. `multi` is the transaction that
/// it will be a part of. What a script calls is refused where the script is run.
pub fn refuse_when_full(
    server: &Server,
    admitted: &Admitted<'_>,
    multi: Option<&Multi>,
) -> Result<(), CommandError> {
    if server.store.node().is_some() && server.config.maxmemory.get() == 0 {
        return Ok(());
    }
    let needs_memory = match (multi, admitted.facts.name) {
        (None, _) => needs_memory(server, admitted),
        (Some(_), "discard" | "quit" | "reset") => false,
        (Some(multi), "exec") => multi.queued.iter().any(|call| {
            let items: Vec<&[u8]> = call.iter().map(|item| &**item).collect();
            let queued = admit(&server.registry, Args::new(&items), Origin::Client);
            queued.is_ok_and(|queued| needs_memory(server, &queued))
        }),
        // The queue needs some.
        (Some(_), _) => true,
    };
    if needs_memory && server.memory_is_full() { Err(memory::FULL) } else { Ok(()) }
}

/// Refuses a call that changes something while the disk cannot be written: [`store::journal::misconf`].
/// `multi` is the transaction that it ends or belongs to.
pub fn refuse_what_cannot_be_kept(
    server: &Server,
    admitted: &Admitted<'_>,
    multi: Option<&Multi>,
) -> Result<(), CommandError> {
    let Some(node) = server.store.node() else { return Ok(()) };
    node.refuse_while_failing().or_else(|error| {
        let changes = match multi {
            Some(multi) if admitted.facts.name == "exec" => multi.queued.iter().any(|call| {
                let row = server.registry.lookup(&call[0]);
                row.is_some_and(|row| row.facts().is_write())
            }),
            _ => admitted.facts.is_write(),
        };
        if changes { Err(error) } else { Ok(()) }
    })
}

/// Whether a call needs memory as far as its row tells, or the header of its script.
fn needs_memory(server: &Server, admitted: &Admitted<'_>) -> bool {
    let Row::Session(SessionCommand { run: Handler::Script { source, .. }, .. }) = admitted.row else {
        return admitted.facts.has(flags::DENY_OOM);
    };
    let script = admitted.args[1];
    let known = match source {
        ScriptSource::Function => {
            let function = server.functions.get(script);
            return function.is_some_and(|function| !function.flags.spares_memory());
        }
        ScriptSource::Digest => parse_sha(script).and_then(|sha| server.scripts.get(&sha)),
        ScriptSource::Text => server.scripts.get(&sha_of(script)),
    };
    match known {
        Some(known) => known.header.shebang && !server.complete(known.options).flags.spares_memory(),
        None if *source == ScriptSource::Digest => false,
        None => Header::parse(script).is_ok_and(|(header, _)| {
            header.shebang && !server.complete(header.options).flags.spares_memory()
        }),
    }
}

const UNKNOWN_IN_SCRIPT: CommandError = CommandError::new("ERR Unknown Redis command called from script");
const WRONG_ARITY_IN_SCRIPT: CommandError =
    CommandError::new("ERR Wrong number of args calling Redis command from script");

fn unknown(args: Args<'_>, origin: Origin) -> CommandError {
    if origin != Origin::Client {
        return UNKNOWN_IN_SCRIPT;
    }
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(args.name()));
    for arg in args.rest(1) {
        if text.len() >= 128 + 50 {
            break;
        }
        text.push_str(&format!("'{}' ", shown(arg)));
    }
    CommandError::owned(text)
}

fn unknown_subcommand(container: &Command, args: Args<'_>, origin: Origin) -> CommandError {
    let in_script = origin != Origin::Client;
    let Some(word) = args.get(1) else {
        return if in_script { WRONG_ARITY_IN_SCRIPT } else { error::wrong_arity(container.name) };
    };
    if in_script {
        return UNKNOWN_IN_SCRIPT;
    }
    let word = String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    CommandError::owned(format!(
        "ERR unknown subcommand '{word}'. Try {} HELP.",
        container.name.to_uppercase()
    ))
}

fn refuse_wrong_arity(
    row: &Command,
    facts: &Command,
    args: Args<'_>,
    origin: Origin,
) -> Result<(), CommandError> {
    if facts.arity.allows(args.len()) {
        return Ok(());
    }
    if origin != Origin::Client {
        return Err(WRONG_ARITY_IN_SCRIPT);
    }
    if std::ptr::eq(row, facts) {
        return Err(error::wrong_arity(facts.name));
    }
    Err(error::wrong_arity(&format!("{}|{}", row.name, facts.name)))
}

/// What a script is told of a command that is not for scripts.
pub const NOT_IN_SCRIPT: CommandError =
    CommandError::new("ERR This Redis command is not allowed from script");

/// Whether scripts may call a command, as far as its row tells. HELP is for scripts, whatever its container is about. A
/// session command that may have to wait would do so while the script holds its locks, except commands about channels.
pub fn is_for_scripts(row: Row, facts: &Command) -> bool {
    let waits = matches!(row, Row::Session(command) if command.run.in_script().is_none());
    let refused = facts.has(flags::NO_SCRIPT) || (waits && !facts.has(flags::PUBSUB));
    !refused || facts.name == "help"
}

fn refuse_outside_scripts(row: Row, facts: &Command) -> Result<(), CommandError> {
    if is_for_scripts(row, facts) { Ok(()) } else { Err(NOT_IN_SCRIPT) }
}

fn refuse_writes(facts: &Command, read_only: bool) -> Result<(), CommandError> {
    if read_only && (facts.is_write() || facts.has(flags::PUBLISHES)) {
        return Err(CommandError::new("ERR Write commands are not allowed from read-only scripts."));
    }
    Ok(())
}
