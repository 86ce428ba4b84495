//! All commands and subcommands as rules know them: numbered, with their categories and the keys they need.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use store_engine::keys::add_keys_of;
use store_engine::spec::flags;
use store_engine::{Args, Command, KeyPart};

use crate::registry::info::{self, Use};

/// The categories, in Redis' order. The place of each is its number.
pub const CATEGORIES: [&str; 22] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    // In Redis 8 behind those of its own: a module brings it.
    "json",
];

/// The number of a category.
pub fn category(name: &[u8]) -> Option<usize> {
    CATEGORIES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Place of a command in [`Commands`].
pub type Id = usize;

/// A command or a subcommand.
pub struct CommandEntry {
    /// Full name, such as `config|get`.
    pub name: String,
    /// Its subcommands.
    pub subcommands: Vec<Id>,
    /// Whether it is one.
    pub is_inner: bool,
    /// Everybody may call it.
    pub for_everyone: bool,
    /// Its first argument that is a channel, and whether that is a pattern.
    channels: Option<(usize, Channels)>,
    keys: Vec<(KeyPart, Use)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Channels {
    One,
    All,
    Patterns,
}

/// The commands that act on channels in a way that needs permission.
const ON_CHANNELS: [(&str, Channels); 5] = [
    ("publish", Channels::One),
    ("spublish", Channels::One),
    ("subscribe", Channels::All),
    ("ssubscribe", Channels::All),
    ("psubscribe", Channels::Patterns),
];

/// The keys of a call, each with what must be allowed, of [`info::need`].
pub type Needs = SmallVec<[(usize, u8); 4]>;

impl CommandEntry {
    fn new(command: &Command, name: String, is_inner: bool) -> CommandEntry {
        let on_channels = ON_CHANNELS.iter().find(|(known, _)| *known == name);
        CommandEntry {
            subcommands: Vec::new(),
            is_inner,
            for_everyone: command.has(flags::NO_AUTH),
            channels: on_channels.map(|(_, channels)| (1, *channels)),
            keys: info::needs(command, &name),
            name,
        }
    }

    /// The keys of a call. None, if their count is wrong: then the command refuses it.
    pub fn keys(&self, args: Args<'_>) -> Needs {
        let mut needs = Needs::new();
        for (part, used) in &self.keys {
            let mut found = SmallVec::new();
            if add_keys_of(part, args, &mut found).is_err() {
                return Needs::new();
            }
            let need = used.of(args);
            needs.extend(found.into_iter().map(|(at, _)| (at, need)));
        }
        needs
    }

    /// Where its channels stand, and whether they are patterns.
    pub fn channels(&self, args: Args<'_>) -> Option<(std::ops::Range<usize>, bool)> {
        let (first, channels) = self.channels?;
        let end = if channels == Channels::One { first + 1 } else { args.len() };
        Some((first..end.min(args.len()), channels == Channels::Patterns))
    }
}

/// All commands.
pub struct Commands {
    entries: Vec<CommandEntry>,
    by_name: HashMap<String, Id, RandomState>,
    /// Those that are no subcommands, by name.
    outer: Vec<Id>,
    /// Those of each category, a container before its subcommands.
    of_category: [Vec<Id>; CATEGORIES.len()],
}

impl Commands {
    /// Of these commands, each with those subcommands that have rows of their own.
    pub fn new<'a>(rows: impl Iterator<Item = (&'a Command, Vec<&'a Command>)>) -> Commands {
        let mut all = Commands {
            entries: Vec::new(),
            by_name: HashMap::default(),
            outer: Vec::new(),
            of_category: Default::default(),
        };
        for (row, inners) in rows {
            let id = all.add(row, row.name.to_owned(), false);
            all.outer.push(id);
            let own = row.subcommands.iter().map(|sub| (sub, format!("{}|{}", row.name, sub.name)));
            for (sub, name) in own.chain(inners.into_iter().map(|sub| (sub, sub.name.to_owned()))) {
                let inner = all.add(sub, name, true);
                all.entries[id].subcommands.push(inner);
            }
        }
        all
    }

    fn add(&mut self, command: &Command, name: String, is_inner: bool) -> Id {
        let id = self.entries.len();
        for name in info::categories(command) {
            if let Some(at) = category(name.trim_start_matches('@').as_bytes()) {
                self.of_category[at].push(id);
            }
        }
        self.by_name.insert(name.clone(), id);
        self.entries.push(CommandEntry::new(command, name, is_inner));
        id
    }

    /// Those of a category.
    pub fn of_category(&self, category: usize) -> &[Id] {
        &self.of_category[category]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The command of this number.
    pub fn entry(&self, id: Id) -> &CommandEntry {
        &self.entries[id]
    }

    /// All of them, a container before its subcommands.
    pub fn all(&self) -> impl Iterator<Item = (Id, &CommandEntry)> {
        let with_inners = |id: &Id| std::iter::once(*id).chain(self.entries[*id].subcommands.iter().copied());
        self.outer.iter().flat_map(with_inners).map(|id| (id, &self.entries[id]))
    }

    /// The command of this full name, in any case.
    pub fn find(&self, name: &[u8]) -> Option<Id> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(&name).copied()
    }

    /// The command that a call means: its row, and of a container the subcommand's.
    pub fn of(&self, row: &Command, spec: &Command) -> Option<Id> {
        if std::ptr::eq(row, spec) || row.name == spec.name {
            return self.by_name.get(row.name).copied();
        }
        let outer = &self.entries[*self.by_name.get(row.name)?];
        let is_meant = |id: &Id| self.entries[*id].name[outer.name.len() + 1..] == *spec.name;
        outer.subcommands.iter().copied().find(is_meant)
    }
}

/// Which commands are allowed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Allowed(Vec<u64>);

impl Allowed {
    /// All of them, or none.
    pub fn every(commands: &Commands, allowed: bool) -> Allowed {
        Allowed(vec![if allowed { u64::MAX } else { 0 }; commands.len().div_ceil(64)])
    }

    /// Whether this one is.
    pub fn has(&self, id: Id) -> bool {
        self.0.get(id / 64).is_some_and(|word| word & (1 << (id % 64)) != 0)
    }

    /// Allows or forbids one, and nothing of its subcommands.
    pub fn set(&mut self, id: Id, allowed: bool) {
        let bit = 1 << (id % 64);
        match allowed {
            true => self.0[id / 64] |= bit,
            false => self.0[id / 64] &= !bit,
        }
    }

    /// Allows or forbids one with its subcommands.
    pub fn set_whole(&mut self, commands: &Commands, id: Id, allowed: bool) {
        self.set(id, allowed);
        commands.entry(id).subcommands.iter().for_each(|id| self.set(*id, allowed));
    }

    /// Allows or forbids all of a category.
    pub fn set_category(&mut self, commands: &Commands, category: usize, allowed: bool) {
        commands.of_category(category).iter().for_each(|id| self.set_whole(commands, *id, allowed));
    }

    /// How many of a category are allowed, and how many are not.
    pub fn count(&self, commands: &Commands, category: usize) -> (usize, usize) {
        let all = commands.of_category(category);
        let on = all.iter().filter(|id| self.has(**id)).count();
        (on, all.len() - on)
    }
}
