//! Every command there is, engine rows and session rows, found by one lookup.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use foldhash::fast::RandomState;
use store_engine::{Args, Command, CommandError, Reply};

use crate::server::Server;
use crate::session::{Session, Touched};

/// A command about the connection or the server instead of keys.
pub struct SessionCommand {
    /// The same facts that engine rows have; its `run` is never called.
    pub facts: Command,
    /// What performs it.
    pub run: Handler,
}

/// What performs a session command.
#[derive(Clone, Copy)]
pub enum Handler {
    /// A function that answers at once.
    Inline(InlineFn),
    /// A function that may have to wait.
    Async(AsyncHandler),
    /// The script or function that the first argument names.
    Script {
        /// What the first argument is.
        source: ScriptSource,
        /// Only what writes nothing may be run.
        read_only: bool,
    },
    /// Publishes a message on the channel that the first argument names.
    Publish {
        /// It is a shard channel.
        shard: bool,
    },
}

/// What performs a command at once. With an error the reply is that, whatever was written before.
pub type InlineFn = fn(&Server, &mut Session, Args<'_>, &mut Reply) -> Result<(), CommandError>;

/// What performs a command that may have to wait.
pub type AsyncFn = for<'a> fn(&'a Arc<Server>, &'a mut Session, Args<'a>, &'a mut Reply) -> Handling<'a>;

/// A command that is being performed.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<(), CommandError>> + Send + 'a>>;

/// What the first argument of a command that runs a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptSource {
    /// The text of a script.
    Text,
    /// The digest of one.
    Digest,
    /// The name of a function.
    Function,
}

/// A command that may have to wait.
#[derive(Clone, Copy)]
pub struct AsyncHandler {
    /// What performs it.
    pub run: AsyncFn,
    /// What performs it for scripts, which may not wait while they hold locks.
    pub in_script: Option<InlineFn>,
    /// When EXEC performs it.
    pub in_exec: InExec,
    /// What it touches, at most,
    pub touches: Touched,
    /// but for these subcommands, which touch no data.
    pub untouching: &'static [&'static str],
    /// Whether it waits for something that may never come.
    pub blocks: bool,
    /// Whether the command is cancelled when its client disconnects, whatever the configuration says of scripts.
    pub ends_with_client: bool,
}

/// When EXEC performs a queued command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InExec {
    /// In its turn.
    InTurn,
    /// Before anything is locked, as it would wait for what EXEC locks.
    Beforehand,
    /// Never.
    Refused,
}

impl AsyncHandler {
    /// A command that changes something, in EXEC in its turn, and never in scripts.
    pub const fn new(run: AsyncFn) -> AsyncHandler {
        AsyncHandler {
            run,
            in_script: None,
            in_exec: InExec::InTurn,
            touches: Touched::Written,
            untouching: &[],
            blocks: false,
            ends_with_client: false,
        }
    }
}

impl Handler {
    /// What performs the command for scripts.
    pub fn in_script(self) -> Option<InlineFn> {
        match self {
            Handler::Inline(run) => Some(run),
            Handler::Async(handler) => handler.in_script,
            Handler::Script { .. } | Handler::Publish { .. } => None,
        }
    }

    /// What the command touches, or its subcommand of this name, at most.
    pub fn touches(self, name: &str) -> Touched {
        match self {
            Handler::Async(handler) if handler.untouching.contains(&name) => Touched::Nothing,
            Handler::Inline(_) | Handler::Publish { .. } => Touched::Nothing,
            Handler::Async(handler) => handler.touches,
            Handler::Script { read_only: true, .. } => Touched::Read,
            Handler::Script { read_only: false, .. } => Touched::Written,
        }
    }

    /// Whether it waits for something that may never come.
    pub fn blocks(self) -> bool {
        matches!(self, Handler::Async(AsyncHandler { blocks: true, .. }))
    }

    /// Whether the command may complete after its client has disconnected.
    pub fn outlives_client(self) -> bool {
        match self {
            Handler::Inline(_) | Handler::Publish { .. } => false,
            Handler::Async(handler) => !handler.ends_with_client,
            Handler::Script { .. } => true,
        }
    }
}

/// Runs a session function; an error takes the place of whatever it had written.
pub fn run_now(server: &Server, session: &mut Session, args: Args<'_>, run: InlineFn, out: &mut Reply) {
    let mark = out.buf.len();
    if let Err(error) = run(server, session, args, out) {
        out.buf.truncate(mark);
        out.error(&error);
    }
}

/// One row of either kind.
#[derive(Clone, Copy)]
pub enum Row {
    /// Performed by the engine.
    Engine(&'static Command),
    /// Performed by the gateway.
    Session(&'static SessionCommand),
}

impl Row {
    /// The row's facts.
    pub fn facts(self) -> &'static Command {
        match self {
            Row::Engine(command) => command,
            Row::Session(command) => &command.facts,
        }
    }
}

/// All rows by name.
pub struct Registry {
    /// Each with its number: that of the first of its subcommands is one more.
    rows: HashMap<&'static [u8], (Row, u16), RandomState>,
    names: Vec<&'static str>,
    /// All commands and subcommands by number.
    numbered: Vec<&'static Command>,
    /// The container of each, if it is a subcommand.
    containers: Vec<Option<&'static Command>>,
    /// The names of all for people, by number.
    shown: Vec<String>,
}

/// Longest name of a command, so that a name can be lower-cased on the stack.
const LONGEST_NAME: usize = 32;

impl Registry {
    /// The engine's commands and those of `families`.
    pub fn new(families: &[&'static [SessionCommand]]) -> Registry {
        let engine = store_engine::command::all().map(Row::Engine);
        let session = families.iter().flat_map(|family| family.iter()).map(Row::Session);
        let (mut numbered, mut containers) = (Vec::new(), Vec::new());
        let mut rows = HashMap::default();
        for row in engine.chain(session) {
            let facts = row.facts();
            let number = u16::try_from(numbered.len()).expect("there are some hundred commands");
            rows.insert(facts.name.as_bytes(), (row, number));
            numbered.push(facts);
            containers.push(None);
            numbered.extend(facts.subcommands);
            containers.extend(facts.subcommands.iter().map(|_| Some(facts)));
        }
        let names = rows.values().map(|(row, _)| row.facts().name);
        let mut names: Vec<_> = names.filter(|name| !name.contains('|')).collect();
        names.sort_unstable();
        let mut registry = Registry { rows, names, numbered, containers, shown: Vec::new() };
        let shown = |number| registry.name_of(number).replace('|', " ").to_uppercase();
        registry.shown = (0..registry.count()).map(shown).collect();
        registry
    }

    /// How many commands and subcommands there are.
    pub fn count(&self) -> usize {
        self.numbered.len()
    }

    /// The name of a command by its number; that of a subcommand has its container's before it, as in `config|get`.
    pub fn name_of(&self, number: usize) -> String {
        let name = self.numbered[number].name;
        match self.containers[number] {
            Some(container) => format!("{}|{name}", container.name),
            None => name.to_owned(),
        }
    }

    /// The same name for people, as in `CONFIG GET`.
    pub fn shown_name(&self, number: usize) -> &str {
        &self.shown[number]
    }

    /// The facts of a command by its number.
    pub fn facts_of(&self, number: usize) -> &'static Command {
        self.numbered[number]
    }

    /// The command called `name` in any case. Of a container that is the container's row.
    pub fn lookup(&self, name: &[u8]) -> Option<Row> {
        self.find(name).map(|(row, _)| row)
    }

    /// The same with its number.
    pub fn find(&self, name: &[u8]) -> Option<(Row, u16)> {
        let mut lower = [0; LONGEST_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.rows.get(&*lower).copied()
    }

    /// The session command that a call of the engine's container `row` means, if it is one: it has both names.
    pub fn inner(&self, row: Row, args: Args<'_>) -> Option<(Row, u16)> {
        let Row::Engine(Command { name, subcommands: [_, ..], .. }) = row else { return None };
        self.find(&[name.as_bytes(), b"|", args.get(1)?].concat())
    }

    /// All session commands of the engine's container of this name.
    pub fn inners(&self, container: &str) -> impl Iterator<Item = &'static Command> {
        let facts = self.rows.values().map(|(row, _)| row.facts());
        let mut inners: Vec<_> = facts
            .filter(|facts| facts.name.split_once('|').is_some_and(|(name, _)| name == container))
            .collect();
        inners.sort_unstable_by_key(|facts| facts.name);
        inners.into_iter()
    }

    /// All commands, each with those session commands that are subcommands of it.
    pub fn families(&self) -> impl Iterator<Item = (&'static Command, Vec<&'static Command>)> {
        let rows = self.names.iter().filter_map(|name| self.lookup(name.as_bytes()));
        rows.map(|row| (row.facts(), self.inners(row.facts().name).collect()))
    }

    /// All names, sorted.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }
}
