//! What is called: the row, its number of arguments, and its keys.

use smallvec::SmallVec;
use store::ParsedCall;
use store_engine::bytes_eq::bytes_eq;
use store_engine::command::resolve;
use store_engine::keys::KeyAt;
use store_engine::{Args, Command, CommandError, error};

use crate::server::{Registry, Row};

/// A call whose command, number of arguments and keys are known.
#[derive(Clone)]
pub struct Parsed<'a> {
    /// The row that was called.
    pub row: Row,
    /// The number of what was called, as the registry counts.
    pub number: u16,
    pub(super) call: ParsedCall<'a>,
}

impl<'a> Parsed<'a> {
    /// The facts of the command; of a container the subcommand's.
    pub fn spec(&self) -> &'static Command {
        self.call.command()
    }

    /// Name and arguments.
    pub fn args(&self) -> Args<'a> {
        self.call.args()
    }

    /// The positions of the keys among the arguments, with what is done to each.
    pub fn keys(&self) -> &[KeyAt] {
        self.call.keys()
    }

    /// The same for the store.
    pub fn call(&self) -> &ParsedCall<'a> {
        &self.call
    }
}

/// Parses a call of a client, or of a script. Errors are those of Redis for either.
pub fn parse<'a>(registry: &Registry, args: Args<'a>, in_script: bool) -> Result<Parsed<'a>, CommandError> {
    let found = registry.find(args.name()).ok_or_else(|| unknown(args, in_script))?;
    let (row, number) = registry.inner(found.0, args).unwrap_or(found);
    let spec = resolve(row.spec(), args).ok_or_else(|| unknown_subcommand(row.spec(), args, in_script))?;
    let call = ParsedCall::new(spec, args).ok_or_else(|| wrong_arity(row.spec(), spec, in_script))?;
    Ok(Parsed { row, number: number + subcommand_index(row.spec(), spec), call })
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

/// The commands that a script called last, and that were admitted. Scripts call the same few over and over.
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

    /// Remembers a command that was admitted.
    pub(super) fn remember(&mut self, row: Row, number: u16, name: &[u8]) {
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

/// [`parse`] for the calls of one script, all of the same origin. Whether the script has called the command before: what
/// was checked of the command then holds.
#[inline(always)] // The result is large: moving it took 2 % of the time of a script of short calls.
pub(super) fn parse_again<'a>(
    registry: &Registry,
    args: Args<'a>,
    recent: &Recent,
) -> Result<(Parsed<'a>, bool), CommandError> {
    if let Some((row, number)) = recent.find(args.name())
        && let Some(call) = ParsedCall::new(row.spec(), args)
    {
        return Ok((Parsed { row, number, call }, true));
    }
    Ok((parse(registry, args, true)?, false))
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

fn unknown(args: Args<'_>, in_script: bool) -> CommandError {
    if in_script {
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

fn unknown_subcommand(container: &Command, args: Args<'_>, in_script: bool) -> CommandError {
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

fn wrong_arity(row: &Command, spec: &Command, in_script: bool) -> CommandError {
    if in_script { WRONG_ARITY_IN_SCRIPT } else { error::wrong_arity(&full_name(row, spec)) }
}
