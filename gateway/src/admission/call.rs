//! What is called: the row, its number of arguments, its keys, and whether scripts may call it.

use smallvec::SmallVec;
use store_engine::bytes_eq::bytes_eq;
use store_engine::command::resolve;
use store_engine::keys::{Keys, keys_of};
use store_engine::spec::flags;
use store_engine::wait;
use store_engine::{Args, Command, CommandError, error};

use crate::server::{Registry, Row};

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

/// A call whose command, number of arguments and place (client or script) were checked.
pub struct Admitted<'a> {
    /// The row that was called.
    pub row: Row,
    /// Its facts; of a container the subcommand's.
    pub spec: &'static Command,
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
    let spec = resolve(row.spec(), args).ok_or_else(|| unknown_subcommand(row.spec(), args, origin))?;
    refuse_wrong_arity(row.spec(), spec, args, origin)?;
    if let Origin::Script { read_only } = origin {
        refuse_outside_scripts(row, spec)?;
        refuse_writes(spec, read_only)?;
        wait::refuse_in_script(spec, args)?;
    }
    // Commands such as ZUNION and FCALL name a bad key count in words of their own, before they touch a key.
    let keys = keys_of(spec, args).unwrap_or_default();
    Ok(Admitted { row, spec, args, keys, number: number + subcommand_index(row.spec(), spec) })
}

/// How far the number of a subcommand is behind that of its container `row`; 0 of the container itself.
fn subcommand_index(row: &Command, spec: &Command) -> u16 {
    let index = row.subcommands.iter().position(|subcommand| std::ptr::eq(subcommand, spec));
    index.map_or(0, |index| index as u16 + 1)
}

/// The number of a call that was refused, of its container if the subcommand is unknown; nothing if there is no such
/// command.
pub fn number_of(registry: &Registry, args: Args<'_>) -> Option<u16> {
    let found = registry.find(args.name())?;
    let (row, number) = registry.inner(found.0, args).unwrap_or(found);
    let spec = resolve(row.spec(), args)?;
    Some(number + subcommand_index(row.spec(), spec))
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

/// The commands a script called last. Scripts call the same few over and over; what was checked of a command
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
        let found = self.rows.iter().find(|(.., spelled)| bytes_eq(spelled, name))?;
        Some((found.0, found.1))
    }

    fn remember(&mut self, row: Row, number: u16, name: &[u8]) {
        // Of a container the next call may mean another subcommand.
        if !row.spec().subcommands.is_empty() {
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
        && row.spec().arity.allows(args.len())
        && wait::refuse_in_script(row.spec(), args).is_ok()
        && let Ok(keys) = keys_of(row.spec(), args)
    {
        return Ok(Admitted { row, spec: row.spec(), args, keys, number });
    }
    let admitted = admit(registry, args, origin)?;
    if recent.find(args.name()).is_none() {
        recent.remember(admitted.row, admitted.number, args.name());
    }
    Ok(admitted)
}

/// A command's name, with the container's before a subcommand's.
pub fn full_name(row: &Command, spec: &Command) -> String {
    match std::ptr::eq(row, spec) {
        true => spec.name.to_owned(),
        false => format!("{}|{}", row.name, spec.name),
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
    spec: &Command,
    args: Args<'_>,
    origin: Origin,
) -> Result<(), CommandError> {
    if spec.arity.allows(args.len()) {
        return Ok(());
    }
    if origin != Origin::Client {
        return Err(WRONG_ARITY_IN_SCRIPT);
    }
    if std::ptr::eq(row, spec) {
        return Err(error::wrong_arity(spec.name));
    }
    Err(error::wrong_arity(&format!("{}|{}", row.name, spec.name)))
}

/// The error of a script that calls a command which is not for scripts.
pub const NOT_IN_SCRIPT: CommandError =
    CommandError::new("ERR This Redis command is not allowed from script");

/// Whether scripts may call a command, as far as its row tells. HELP is for scripts, whatever its container is about. A
/// session command that may have to wait would do so while the script holds its locks, except commands about channels.
pub fn is_for_scripts(row: Row, spec: &Command) -> bool {
    let waits = matches!(row, Row::Session(command) if command.run.in_script().is_none());
    let refused = spec.has(flags::NO_SCRIPT) || (waits && !spec.has(flags::PUBSUB));
    !refused || spec.name == "help"
}

fn refuse_outside_scripts(row: Row, spec: &Command) -> Result<(), CommandError> {
    if is_for_scripts(row, spec) { Ok(()) } else { Err(NOT_IN_SCRIPT) }
}

fn refuse_writes(spec: &Command, read_only: bool) -> Result<(), CommandError> {
    if read_only && (spec.is_write() || spec.has(flags::PUBLISHES)) {
        return Err(CommandError::new("ERR Write commands are not allowed from read-only scripts."));
    }
    Ok(())
}
