//! Every command there is, rows of the engine and session rows, found by one lookup. What performs a session row is
//! the type `H`, which the server defines.

pub mod info;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use store_engine::{Args, Command};

/// A command about the connection or the server instead of keys.
pub struct SessionCommand<H: 'static> {
    /// The same facts that engine rows have; its `run` is never called.
    pub spec: Command,
    /// What performs it.
    pub run: H,
}

/// One row of either kind.
#[derive(Clone, Copy)]
pub enum Row<H: 'static> {
    /// Performed by the engine.
    Engine(&'static Command),
    /// Performed by the gateway.
    Session(&'static SessionCommand<H>),
}

impl<H> Row<H> {
    /// The row's facts.
    pub fn spec(self) -> &'static Command {
        match self {
            Row::Engine(command) => command,
            Row::Session(command) => &command.spec,
        }
    }
}

/// All rows by name.
pub struct Registry<H: 'static> {
    /// Each with its number: that of the first of its subcommands is one more.
    rows: HashMap<&'static [u8], (Row<H>, u16), RandomState>,
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

impl<H: Copy> Registry<H> {
    /// The engine's commands and those of `families`.
    pub fn new(families: &[&'static [SessionCommand<H>]]) -> Registry<H> {
        let engine = store_engine::command::all().map(Row::Engine);
        let session = families.iter().flat_map(|family| family.iter()).map(Row::Session);
        let (mut numbered, mut containers) = (Vec::new(), Vec::new());
        let mut rows = HashMap::default();
        for row in engine.chain(session) {
            let spec = row.spec();
            let number = u16::try_from(numbered.len()).expect("there are some hundred commands");
            rows.insert(spec.name.as_bytes(), (row, number));
            numbered.push(spec);
            containers.push(None);
            numbered.extend(spec.subcommands);
            containers.extend(spec.subcommands.iter().map(|_| Some(spec)));
        }
        let names = rows.values().map(|(row, _)| row.spec().name);
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
    pub fn spec_of(&self, number: usize) -> &'static Command {
        self.numbered[number]
    }

    /// The command called `name` in any case. Of a container that is the container's row.
    pub fn lookup(&self, name: &[u8]) -> Option<Row<H>> {
        self.find(name).map(|(row, _)| row)
    }

    /// The same with its number.
    pub fn find(&self, name: &[u8]) -> Option<(Row<H>, u16)> {
        let mut lower = [0; LONGEST_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.rows.get(&*lower).copied()
    }

    /// The session command that a call of the engine's container `row` means, if it is one: it has both names.
    pub fn inner(&self, row: Row<H>, args: Args<'_>) -> Option<(Row<H>, u16)> {
        let Row::Engine(Command { name, subcommands: [_, ..], .. }) = row else { return None };
        self.find(&[name.as_bytes(), b"|", args.get(1)?].concat())
    }

    /// All session commands of the engine's container of this name.
    pub fn inners(&self, container: &str) -> impl Iterator<Item = &'static Command> {
        let spec = self.rows.values().map(|(row, _)| row.spec());
        let mut inners: Vec<_> = spec
            .filter(|spec| spec.name.split_once('|').is_some_and(|(name, _)| name == container))
            .collect();
        inners.sort_unstable_by_key(|spec| spec.name);
        inners.into_iter()
    }

    /// All commands, each with those session commands that are subcommands of it.
    pub fn families(&self) -> impl Iterator<Item = (&'static Command, Vec<&'static Command>)> {
        let rows = self.names.iter().filter_map(|name| self.lookup(name.as_bytes()));
        rows.map(|row| (row.spec(), self.inners(row.spec().name).collect()))
    }

    /// All names, sorted.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }
}
