//! The keys of a call, found from its row.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::spec::{Access, Command, KeyPart};
use crate::{Args, CommandError, number};

/// Index of a key within the call, and what is done to it.
pub type KeyAt = (usize, Access);

/// The keys of a call, in the order they stand.
#[derive(Clone, Debug, Default)]
pub struct Keys(KeyList);

#[derive(Clone, Debug)]
enum KeyList {
    /// The first argument, as in most calls. Written down once: to write and move a list of one for each call took 2 % of
    /// the time of a script of short calls.
    First(&'static [KeyAt; 1]),
    Listed(SmallVec<[KeyAt; 3]>),
}

impl Default for KeyList {
    fn default() -> Self {
        KeyList::Listed(SmallVec::new())
    }
}

impl Deref for Keys {
    type Target = [KeyAt];

    fn deref(&self) -> &[KeyAt] {
        match &self.0 {
            KeyList::First(first) => *first,
            KeyList::Listed(keys) => keys,
        }
    }
}

/// The keys of `args`.
///
/// Errors: a key count that is no number, negative, or larger than the call, with the texts EVAL gives.
#[inline]
pub fn keys_of(command: &Command, args: Args<'_>) -> Result<Keys, CommandError> {
    match *command.keys {
        [KeyPart::Range { first: 1, last: 1, access, .. }] if args.len() > 1 => {
            Ok(Keys(KeyList::First(match access {
                Access::Read => &[(1, Access::Read)],
                Access::Write => &[(1, Access::Write)],
            })))
        }
        _ => listed_keys_of(command, args),
    }
}

fn listed_keys_of(command: &Command, args: Args<'_>) -> Result<Keys, CommandError> {
    let mut found = SmallVec::new();
    for part in command.keys {
        add_keys_of(part, args, &mut found)?;
    }
    Ok(Keys(KeyList::Listed(found)))
}

/// Adds the keys of one part.
///
/// Errors: those of [`keys_of`].
pub fn add_keys_of(
    part: &KeyPart,
    args: Args<'_>,
    found: &mut SmallVec<[KeyAt; 3]>,
) -> Result<(), CommandError> {
    match *part {
        KeyPart::Range { first, last, step, access } => {
            let last = if last < 0 { args.len() as i64 + i64::from(last) } else { i64::from(last) };
            let end = usize::try_from(last + 1).unwrap_or_default().min(args.len());
            found.extend((usize::from(first)..end).step_by(usize::from(step)).map(|at| (at, access)));
        }
        KeyPart::Counted { count_at, first, step, access } => {
            let text = args.get(usize::from(count_at)).unwrap_or_default();
            let count = number::parse_i64(text).ok_or(crate::error::NOT_AN_INTEGER)?;
            let first = usize::from(first);
            if count < 0 {
                return Err(CommandError::new("ERR Number of keys can't be negative"));
            }
            let step = usize::from(step);
            if count as u64 > (args.len().saturating_sub(first) / step) as u64 {
                return Err(CommandError::new("ERR Number of keys can't be greater than number of args"));
            }
            found.extend((first..).step_by(step).take(count as usize).map(|at| (at, access)));
        }
        KeyPart::After { word, from, access } => {
            let named = |item: &&[u8]| item.eq_ignore_ascii_case(word.as_bytes());
            // What is behind the word may be the word itself.
            let options = args.rest(usize::from(from)).split_last().map(|(_, before)| before);
            let at = options.and_then(|options| options.iter().rposition(named));
            found.extend(at.map(|at| (usize::from(from) + at + 1, access)));
        }
        KeyPart::Halved { access } => found.extend(halved(args, access).map(|at| (at, access))),
        KeyPart::Migrated { access } => found.extend(migrated(args).map(|at| (at, access))),
    }
    Ok(())
}

/// Where the keys of XREAD stand. If its options are wrong it is refused before it looks at a key; COMMAND GETKEYS of
/// Redis goes by the word alone then.
fn halved(args: Args<'_>, access: Access) -> std::ops::Range<usize> {
    let mut at = 1;
    while let Some(word) = args.get(at) {
        at += match word.to_ascii_lowercase().as_slice() {
            b"block" | b"count" => 2,
            b"group" => 3,
            b"noack" => 1,
            _ => break,
        };
    }
    let is_word = |at: &usize| args.get(*at).is_some_and(|word| word.eq_ignore_ascii_case(b"STREAMS"));
    // Behind the group and the consumer.
    let first = if access == Access::Write { 4 } else { 1 };
    match Some(at).filter(is_word).or_else(|| (first..args.len()).find(is_word)) {
        // A word too many is refused too.
        Some(at) => at + 1..at + 1 + (args.len() - at - 1) / 2,
        None => 0..0,
    }
}

/// Where the keys of MIGRATE stand. None, if both a key and `KEYS` are given, which it refuses.
pub fn migrated(args: Args<'_>) -> std::ops::Range<usize> {
    const KEY: usize = 3;
    const FIRST_OPTION: usize = 6;
    let mut at = FIRST_OPTION;
    while let Some(word) = args.get(at) {
        at += match &*word.to_ascii_lowercase() {
            b"keys" if args[KEY].is_empty() => return at + 1..args.len(),
            b"keys" => return 0..0,
            b"auth" => 2,
            b"auth2" => 3,
            _ => 1,
        };
    }
    KEY..args.len().min(KEY + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::lookup;

    #[test]
    fn keys_behind_options() {
        for (line, wanted) in [
            ("sort l", "l"),
            ("sort l STORE d", "l d"),
            ("sort l STORE a store b", "l b"),
            ("sort l STORE STORE", "l STORE"),
            ("sort l ASC STORE", "l"),
            ("sort store", "store"),
            ("georadius g 1 1 1 m STORE a STOREDIST b", "g a b"),
            ("georadius g 1 1 1 m STORE a STOREDIST STORE", "g a STORE"),
            ("georadiusbymember g STORE 1 m", "g"),
            ("georadiusbymember g STORE 1 m STOREDIST d", "g d"),
            ("pfmerge d", "d"),
            ("pfmerge d a b", "d a b"),
            ("msetex 2 a 1 b 2 NX", "a b"),
        ] {
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let command = lookup(items[0]).expect("a command");
            let keys = keys_of(command, Args::new(&items)).expect("no counts");
            let keys: Vec<_> = keys.iter().map(|(at, _)| String::from_utf8_lossy(items[*at])).collect();
            assert_eq!(keys.join(" "), wanted, "{line}");
        }
    }

    #[test]
    fn keys_of_migrate() {
        for (line, wanted) in [
            ("migrate h 1 k 0 9", 3..4),
            ("migrate h 1 k 0 9 AUTH keys", 3..4),
            ("migrate h 1 k 0 9 AUTH2 keys keys REPLACE", 3..4),
            ("migrate h 1 k 0 9 KEYS a", 0..0),
            ("migrate h 1  0 9", 3..4),
            ("migrate h 1  0 9 keys", 7..7),
            ("migrate h 1  0 9 COPY auth keys keys a keys", 10..12),
        ] {
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(migrated(Args::new(&items)), wanted, "{line}");
        }
    }
}
