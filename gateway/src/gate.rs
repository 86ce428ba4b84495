//! The only place that says yes to a call, for clients and scripts alike: a chain of small refusals.

use smallvec::SmallVec;
use store_engine::command::resolve;
use store_engine::keys::{KeyAt, keys_of};
use store_engine::spec::flags;
use store_engine::wait;
use store_engine::{Args, Command, CommandError, error};

use crate::header::Header;
use crate::memory;
use crate::registry::{Later, Registry, Row, SessionCommand, SessionRun};
use crate::scripts::{parse_sha, sha_of};
use crate::server::Server;
use crate::session::Multi;

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
    pub keys: SmallVec<[KeyAt; 4]>,
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

/// The commands a script called last. Scripts call the same few over and over; what the gate said of a command
/// holds for the next call of it, but for the number of arguments and the keys.
#[derive(Default)]
pub struct Recent {
    rows: SmallVec<[(Row, u16); Recent::MOST]>,
    /// Which one makes room for the next.
    oldest: usize,
}

impl Recent {
    /// Two for the loop of most scripts, and as many again.
    const MOST: usize = 4;

    fn find(&self, name: &[u8]) -> Option<(Row, u16)> {
        let is_named = |(row, _): &&(Row, u16)| row.facts().name.as_bytes().eq_ignore_ascii_case(name);
        self.rows.iter().find(is_named).copied()
    }

    fn remember(&mut self, row: Row, number: u16) {
        // Of a container the next call may mean another subcommand.
        if !row.facts().subcommands.is_empty() {
            return;
        }
        if self.rows.len() < Recent::MOST {
            return self.rows.push((row, number));
        }
        self.rows[self.oldest] = (row, number);
        self.oldest = (self.oldest + 1) % Recent::MOST;
    }
}

/// [`admit`] for the calls of one script, all of the same origin.
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
        recent.remember(admitted.row, admitted.number);
    }
    Ok(admitted)
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
    let Row::Session(SessionCommand { run: SessionRun::Later(later), .. }) = admitted.row else {
        return admitted.facts.has(flags::DENY_OOM);
    };
    match later {
        Later::Eval { by_sha, .. } => {
            let sha = if *by_sha { parse_sha(admitted.args[1]) } else { Some(sha_of(admitted.args[1])) };
            match sha.and_then(|sha| server.scripts.get(&sha)) {
                Some(known) => known.header.shebang && !server.complete(known.options).flags.spares_memory(),
                None if *by_sha => false,
                None => Header::parse(admitted.args[1]).is_ok_and(|(header, _)| {
                    header.shebang && !server.complete(header.options).flags.spares_memory()
                }),
            }
        }
        Later::Fcall { .. } => {
            let function = server.functions.get(admitted.args[1]);
            function.is_some_and(|function| !function.flags.spares_memory())
        }
        _ => admitted.facts.has(flags::DENY_OOM),
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

/// Session commands act on a connection, and a script has none, but for those that publish; engine rows say
/// themselves.
fn refuse_outside_scripts(row: Row, facts: &Command) -> Result<(), CommandError> {
    let acts_on_connection = matches!(row, Row::Session(_)) && !facts.has(flags::PUBLISHES);
    let refused = facts.has(flags::NO_SCRIPT) || acts_on_connection;
    if refused { Err(CommandError::new("ERR This Redis command is not allowed from script")) } else { Ok(()) }
}

fn refuse_writes(facts: &Command, read_only: bool) -> Result<(), CommandError> {
    if read_only && (facts.is_write() || facts.has(flags::PUBLISHES)) {
        return Err(CommandError::new("ERR Write commands are not allowed from read-only scripts."));
    }
    Ok(())
}
