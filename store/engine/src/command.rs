//! The table of commands: every family's rows, found by name.

pub mod bitmap;
pub mod blocking;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod json;
mod lcs;
pub mod list;
pub mod sample;
pub mod scan;
pub mod set;
pub mod sort;
pub mod stream;
pub mod string;
pub mod zset;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::Args;
use crate::spec::Command;

/// All families, in the order of the manual.
pub static FAMILIES: &[&[Command]] = &[
    generic::COMMANDS,
    generic::dump::COMMANDS,
    generic::expire::COMMANDS,
    generic::keyspace::COMMANDS,
    generic::memory::COMMANDS,
    generic::object::COMMANDS,
    generic::sticky::COMMANDS,
    sort::COMMANDS,
    string::COMMANDS,
    string::bounded::COMMANDS,
    string::conditional::COMMANDS,
    bitmap::COMMANDS,
    bitmap::field::COMMANDS,
    hyperloglog::COMMANDS,
    geo::COMMANDS,
    geo::search::COMMANDS,
    list::COMMANDS,
    hash::COMMANDS,
    hash::expiry::COMMANDS,
    set::COMMANDS,
    zset::COMMANDS,
    zset::range::COMMANDS,
    zset::combine::COMMANDS,
    zset::pop::COMMANDS,
    blocking::COMMANDS,
    stream::COMMANDS,
    stream::group::COMMANDS,
    stream::info::COMMANDS,
    stream::pending::COMMANDS,
    stream::read::COMMANDS,
    stream::removal::COMMANDS,
    json::COMMANDS,
];

static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Command, foldhash::fast::RandomState>> =
    LazyLock::new(|| all().map(|command| (command.name.as_bytes(), command)).collect());

/// Every command of the engine.
pub fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The command called `name`, which must be in lower case.
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    BY_NAME.get(name).copied()
}

/// The subcommand of a container row that `args` calls; the row itself if it is no container, or is called alone.
pub fn resolve(command: &'static Command, args: Args<'_>) -> Option<&'static Command> {
    let alone = args.len() == 1 && command.arity.allows(1);
    if command.subcommands.is_empty() || alone {
        return Some(command);
    }
    let word = args.get(1)?;
    command.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Access, Arity, KeyPart, flags};

    #[test]
    fn names_are_unique_and_lower_case() {
        let mut names: Vec<_> = all().map(|command| command.name).collect();
        assert!(names.iter().all(|name| name.to_ascii_lowercase() == **name));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn rows_are_complete() {
        for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
            assert!(!command.summary.is_empty(), "{} has no summary", command.name);
            assert!(!command.complexity.is_empty(), "{} has no complexity", command.name);
        }
    }

    #[test]
    fn keys_lie_within_the_arity() {
        for command in all() {
            let (Arity::Exactly(least) | Arity::AtLeast(least)) = command.arity;
            for part in command.keys {
                let first = match *part {
                    // Any number of keys, which may be none.
                    KeyPart::Range { first, last: -1, .. } => first - 1,
                    KeyPart::Range { first, .. } | KeyPart::Counted { count_at: first, .. } => first,
                    KeyPart::After { .. } | KeyPart::Halved { .. } | KeyPart::Migrated { .. } => continue,
                };
                assert!(first < least, "{}: its first key lies behind its arity", command.name);
            }
        }
    }

    #[test]
    fn readers_write_no_key_and_need_no_memory() {
        for command in all().filter(|command| !command.is_write()) {
            assert!(!command.has(flags::DENY_OOM), "{}", command.name);
            for part in command.keys {
                let (KeyPart::Range { access, .. }
                | KeyPart::Counted { access, .. }
                | KeyPart::After { access, .. }
                | KeyPart::Halved { access }
                | KeyPart::Migrated { access }) = *part;
                assert_eq!(access, Access::Read, "{}", command.name);
            }
        }
    }
}
