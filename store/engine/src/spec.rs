//! What a command is: facts that every part of the server reads from one row.

use crate::cost::Cost;
use crate::{Args, CommandError, Ctx};

/// A command of the engine: its facts and the function that performs it.
pub struct Command {
    /// Lower-case name; of a subcommand only its own word.
    pub name: &'static str,
    /// First Redis version that had it.
    pub since: &'static str,
    /// The family it belongs to.
    pub group: Group,
    /// How many items a call has, the name included (for subcommands both words).
    pub arity: Arity,
    /// Where its keys stand.
    pub keys: &'static [KeyPart],
    /// Whether it can change the data.
    pub access: Access,
    /// Other properties, see [`flags`].
    pub flags: u32,
    /// Which partitions it needs.
    pub routing: Routing,
    /// How its work grows with the data.
    pub cost: Cost,
    /// One sentence for COMMAND DOCS.
    pub summary: &'static str,
    /// Cost in O notation, for COMMAND DOCS.
    pub complexity: &'static str,
    /// Arguments in the notation of [`crate::syntax`], such as `key value condition(NX | XX)?`.
    pub syntax: &'static str,
    /// Subcommands of a container such as OBJECT; such a row's own `run` is never called.
    pub subcommands: &'static [Command],
    /// What a container's HELP tells of its subcommands: lines with the form of each, and indented ones with its meaning.
    pub help: &'static str,
    /// Performs the call. May assume the arity. On `Err` nothing has been changed and whatever was written to
    /// the reply is taken back by the caller.
    pub run: CommandFn,
}

/// The shape of every command function.
pub type CommandFn = fn(&mut Ctx<'_>, Args<'_>) -> Result<(), CommandError>;

impl Command {
    /// What most rows have in common; rows say only what differs.
    pub const BASE: Command = Command {
        name: "",
        since: "1.0.0",
        group: Group::Generic,
        arity: Arity::Exactly(2),
        keys: KeyPart::FIRST_READ,
        access: Access::Read,
        flags: 0,
        routing: Routing::ByKey,
        cost: Cost::Inferred,
        summary: "",
        complexity: "O(1)",
        syntax: "key",
        subcommands: &[],
        help: "",
        run: |_, _| Err(CommandError::new("ERR a container command needs a subcommand")),
    };

    /// Whether `flag` (of [`flags`]) is set.
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it can change the data.
    pub const fn is_write(&self) -> bool {
        matches!(self.access, Access::Write)
    }

    /// Whether it only leads to its subcommands. COMMAND is an answer of its own besides.
    pub const fn is_container(&self) -> bool {
        !self.subcommands.is_empty() && !self.arity.allows(1)
    }
}

/// Families, as COMMAND DOCS and the ACL categories name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Works on keys of any type.
    Generic,
    /// Strings.
    String,
    /// Lists.
    List,
    /// Hashes.
    Hash,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Bitmaps.
    Bitmap,
    /// HyperLogLogs.
    HyperLogLog,
    /// Places.
    Geo,
    /// Streams.
    Stream,
    /// JSON documents.
    Json,
    /// About the connection.
    Connection,
    /// About the server.
    Server,
    /// About the commands: a part of the one before.
    Commands,
    /// Scripts and functions.
    Scripting,
    /// MULTI and friends.
    Transactions,
    /// Channels and messages.
    PubSub,
    /// About a cluster.
    Cluster,
}

impl Group {
    /// The group's name in COMMAND DOCS.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Hash => "hash",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
            Group::Stream => "stream",
            // Redis says so of the commands of all modules.
            Group::Json => "module",
            Group::Connection => "connection",
            Group::Server | Group::Commands => "server",
            Group::Scripting => "scripting",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
            Group::Cluster => "cluster",
        }
    }

    /// The ACL category of the group, if it has one.
    pub const fn category(self) -> Option<&'static str> {
        Some(match self {
            Group::Generic => "@keyspace",
            Group::String => "@string",
            Group::List => "@list",
            Group::Hash => "@hash",
            Group::Set => "@set",
            Group::SortedSet => "@sortedset",
            Group::Bitmap => "@bitmap",
            Group::HyperLogLog => "@hyperloglog",
            Group::Geo => "@geo",
            Group::Stream => "@stream",
            Group::Json => "@json",
            Group::Connection | Group::Commands => "@connection",
            Group::Server | Group::Cluster => return None,
            Group::Scripting => "@scripting",
            Group::Transactions => "@transaction",
            Group::PubSub => "@pubsub",
        })
    }
}

/// Number of items in a call, the name included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// That many.
    Exactly(u16),
    /// That many or more.
    AtLeast(u16),
}

impl Arity {
    /// Whether a call of `len` items is allowed.
    pub const fn allows(self, len: usize) -> bool {
        match self {
            Arity::Exactly(n) => len == n as usize,
            Arity::AtLeast(n) => len >= n as usize,
        }
    }

    /// As COMMAND INFO shows it: negative for "at least".
    pub const fn as_redis(self) -> i64 {
        match self {
            Arity::Exactly(n) => n as i64,
            Arity::AtLeast(n) => -(n as i64),
        }
    }
}

/// Read or write: of a command, and of each of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Changes nothing.
    Read,
    /// May change it.
    Write,
}

/// Keys stand in a call in one or more parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// Items `first`, `first + step`, … up to `last`, which counts from the end of the call when negative.
    Range {
        /// Index of the first key.
        first: u16,
        /// Index of the last possible key; negative from the end, -1 being the last item.
        last: i16,
        /// Distance between two keys.
        step: u16,
        /// What is done to them.
        access: Access,
    },
    /// Item `count_at` says how many keys stand at the items `first`, `first + step`, …; what lies between them up to the next
    /// step belongs to them.
    Counted {
        /// Index of the number.
        count_at: u16,
        /// Index of the first key.
        first: u16,
        /// Distance between two keys.
        step: u16,
        /// What is done to them.
        access: Access,
    },
    /// The item behind the last `word`, an option that may be missing.
    After {
        /// The option in capital letters.
        word: &'static str,
        /// Index of the first item that may be it.
        from: u16,
        /// What is done to the key.
        access: Access,
    },
    /// The first half of what stands behind `STREAMS`, after the options of XREAD.
    Halved {
        /// What is done to them.
        access: Access,
    },
    /// The key of MIGRATE, or all that stands behind `KEYS`, after its other options, if that key is empty.
    Migrated {
        /// What is done to them.
        access: Access,
    },
}

impl KeyPart {
    /// No keys.
    pub const NONE: &'static [KeyPart] = &[];
    /// The first argument, read.
    pub const FIRST_READ: &'static [KeyPart] = &[KeyPart::one(1, Access::Read)];
    /// The first argument, written.
    pub const FIRST_WRITE: &'static [KeyPart] = &[KeyPart::one(1, Access::Write)];
    /// Every argument, read.
    pub const ALL_READ: &'static [KeyPart] =
        &[KeyPart::Range { first: 1, last: -1, step: 1, access: Access::Read }];
    /// Every argument, written.
    pub const ALL_WRITE: &'static [KeyPart] =
        &[KeyPart::Range { first: 1, last: -1, step: 1, access: Access::Write }];

    /// Exactly item `at`.
    pub const fn one(at: u16, access: Access) -> KeyPart {
        KeyPart::Range { first: at, last: at as i16, step: 1, access }
    }
}

/// Which partitions a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Those of its keys.
    ByKey,
    /// None: it looks at no data.
    Anywhere,
    /// All of them.
    Everywhere,
    /// The one that [`crate::command::scan::page`] names if the step does not go beyond it, otherwise all of them.
    Paged,
    /// Those of its keys, unless one of these words stands behind the first key: it leads to data that no lock on
    /// these keys protects, and only all of them will do.
    ByKeyUnless(&'static [&'static str]),
}

impl Routing {
    /// What it means for this call: never [`Routing::ByKeyUnless`].
    pub fn of(self, args: Args<'_>) -> Routing {
        let Routing::ByKeyUnless(words) = self else { return self };
        let leads_away = |arg: &&[u8]| words.iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes()));
        if args.rest(2).iter().any(leads_away) { Routing::Everywhere } else { Routing::ByKey }
    }
}

/// Bits of [`Command::flags`].
pub mod flags {
    /// O(1) or O(log N): category `@fast`.
    pub const FAST: u32 = 1;
    /// May need memory: refused when the server is full.
    pub const DENY_OOM: u32 = 1 << 1;
    /// Not from scripts.
    pub const NO_SCRIPT: u32 = 1 << 2;
    /// For administrators.
    pub const ADMIN: u32 = 1 << 3;
    /// Reply order or choice is random.
    pub const RANDOM: u32 = 1 << 4;
    /// A null says that there was nothing to take: a client then waits, scripts and transactions do not.
    pub const BLOCKING: u32 = 1 << 5;
    /// Category `@dangerous`.
    pub const DANGEROUS: u32 = 1 << 6;
    /// Answered before authentication.
    pub const NO_AUTH: u32 = 1 << 7;
    /// Loads nothing, allowed at any time.
    pub const LOADING: u32 = 1 << 8;
    /// The keys can only be found by looking at the arguments.
    pub const MOVABLE_KEYS: u32 = 1 << 9;
    /// Publishes: refused by read-only scripts although it writes no key.
    pub const PUBLISHES: u32 = 1 << 10;
    /// Not inside MULTI.
    pub const NO_MULTI: u32 = 1 << 11;
    /// Reads, and writes only to keep what it has found out: clients are told that it reads.
    pub const KEEPS_RESULT: u32 = 1 << 12;
    /// About channels.
    pub const PUBSUB: u32 = 1 << 13;
}
