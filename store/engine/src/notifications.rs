//! What others hear of a command: the events of keyspace notifications, by the names that Redis gives them.
//!
//! A command does not announce anything. What it does to keys is noted where it is done, and one table says what that
//! is called when this command does it.

use std::borrow::Cow;

pub use crate::key_actions::{KeyAction, KeyActions};
use crate::spec::{Command, flags};
use crate::{Access, Args};

/// Classes of events: bits of `notify-keyspace-events`.
pub mod class {
    /// On channels named by the key.
    pub const KEYSPACE: u32 = 1;
    /// On channels named by the event.
    pub const KEYEVENT: u32 = 1 << 1;
    /// Of any type.
    pub const GENERIC: u32 = 1 << 2;
    /// Strings.
    pub const STRING: u32 = 1 << 3;
    /// Lists.
    pub const LIST: u32 = 1 << 4;
    /// Sets.
    pub const SET: u32 = 1 << 5;
    /// Hashes.
    pub const HASH: u32 = 1 << 6;
    /// Sorted sets.
    pub const ZSET: u32 = 1 << 7;
    /// A key's time was over.
    pub const EXPIRED: u32 = 1 << 8;
    /// Memory was short.
    pub const EVICTED: u32 = 1 << 9;
    /// Streams.
    pub const STREAM: u32 = 1 << 10;
    /// Types of modules: JSON documents.
    pub const MODULE: u32 = 1 << 11;
    /// Somebody has read what is not there.
    pub const MISS: u32 = 1 << 12;
    /// A key has come.
    pub const NEW: u32 = 1 << 13;
    /// All that `A` means.
    pub const ALL: u32 = GENERIC | STRING | LIST | SET | HASH | ZSET | EXPIRED | EVICTED | STREAM | MODULE;
}

/// Letters of classes, in the order in which Redis shows them.
const LETTERS: &[(char, u32)] = &[
    ('g', class::GENERIC),
    ('$', class::STRING),
    ('l', class::LIST),
    ('s', class::SET),
    ('h', class::HASH),
    ('z', class::ZSET),
    ('x', class::EXPIRED),
    ('e', class::EVICTED),
    ('t', class::STREAM),
    ('d', class::MODULE),
    ('n', class::NEW),
    ('K', class::KEYSPACE),
    ('E', class::KEYEVENT),
    ('m', class::MISS),
];

/// Reads classes, such as `KEA`.
pub fn parse_classes(text: &str) -> Option<u32> {
    let bits = |letter: char| match letter {
        'A' => Some(class::ALL),
        _ => LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| *bit),
    };
    text.chars().try_fold(0, |classes, letter| Some(classes | bits(letter)?))
}

/// Classes as Redis shows them.
pub fn show_classes(classes: u32) -> String {
    let all = classes & class::ALL == class::ALL;
    // Beside A Redis does not show `n`, which is no part of it.
    let rest = LETTERS
        .iter()
        .filter(|(_, bit)| classes & bit != 0 && !(all && bit & (class::ALL | class::NEW) != 0));
    let letters = rest.map(|(letter, _)| *letter);
    if all { std::iter::once('A').chain(letters).collect() } else { letters.collect() }
}

/// Something that happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// One of [`class`].
    pub class: u32,
    /// What.
    pub name: Cow<'static, str>,
    /// The key's database.
    pub db: usize,
    /// The key.
    pub key: Box<[u8]>,
}

impl KeyActions {
    /// The events of these classes that a call of `command` has led to, after which nothing is noted any more.
    pub fn take_events(
        &mut self,
        command: &Command,
        args: Args<'_>,
        classes: u32,
        events: &mut Vec<Notification>,
    ) {
        let own = Names::of(command, args);
        if own.is_several {
            // A list element comes before it goes.
            let comes = |touch| matches!(touch, KeyAction::New | KeyAction::Edit("lpush" | "rpush"));
            let is_list = own.class == class::LIST;
            self.0.sort_by_key(|(.., touch)| is_list && !comes(*touch));
        }
        if command.has(flags::RANDOM) {
            // First how many elements there are, then which.
            self.0.dedup();
        }
        let mut edited: Option<(usize, Box<[u8]>, &'static str)> = None;
        for (db, key, touch) in self.0.drain(..) {
            let mut emit = |class: u32, name: &'static str| {
                if classes & class != 0 {
                    events.push(Notification { class, name: name.into(), db, key: key.clone() });
                }
            };
            match touch {
                KeyAction::New if own.is_copy => {}
                KeyAction::New => emit(class::NEW, "new"),
                KeyAction::Put(expires) => {
                    if own.is_copy {
                        emit(class::NEW, "new");
                    }
                    emit(own.class, own.change);
                    if expires && own.change == "set" {
                        emit(class::GENERIC, "expire");
                    }
                    edited = Some((db, key, own.change));
                }
                KeyAction::Edit(part) => {
                    let name = if own.is_several { part } else { own.change };
                    let again = edited.as_ref().is_some_and(|(last_db, last_key, last)| {
                        (*last_db, last_key, *last) == (db, &key, name)
                    });
                    if !again {
                        emit(own.class, name);
                    }
                    edited = Some((db, key, name));
                }
                KeyAction::Fields(name) => emit(class::HASH, name),
                KeyAction::Remove => {
                    let reported = edited
                        .as_ref()
                        .is_some_and(|(last_db, last_key, _)| (*last_db, last_key) == (db, &key));
                    if own.empties && !reported {
                        emit(own.class, own.change);
                    }
                    // Modules say themselves what they do.
                    if own.class != class::MODULE {
                        emit(class::GENERIC, "del");
                    }
                }
                KeyAction::Expiry(true) => emit(class::GENERIC, "expire"),
                KeyAction::Expiry(false) => emit(class::GENERIC, "persist"),
                KeyAction::Leave => emit(class::GENERIC, own.leave),
                KeyAction::Arrive => emit(class::GENERIC, own.arrive),
                KeyAction::Miss if own.misses => emit(class::MISS, "keymiss"),
                KeyAction::Miss => {}
            }
        }
    }
}

/// How events of one command are called.
struct Names {
    class: u32,
    change: &'static str,
    /// It does several things, which have names of their own.
    is_several: bool,
    /// It puts a key in the place of another, which is removed first.
    is_copy: bool,
    /// Who removes all there is in a key changes it first.
    empties: bool,
    leave: &'static str,
    arrive: &'static str,
    /// It looks for what it reads.
    misses: bool,
}

impl Names {
    fn of(command: &Command, args: Args<'_>) -> Names {
        let has =
            |word: &str| args.items().iter().skip(2).any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        let either = |word: &str, yes: &'static str, no: &'static str| if has(word) { yes } else { no };
        let change = match command.name {
            "mset" | "setnx" | "msetnx" | "msetex" | "getset" | "setex" | "psetex" | "bitop" => "set",
            "incr" | "decr" | "decrby" => "incrby",
            "increx" => either("byfloat", "incrbyfloat", "incrby"),
            "hmset" | "hsetnx" | "hsetex" => "hset",
            "hgetdel" => "hdel",
            // They remove fields whose time is over at once; that they are given times is said by themselves.
            "hexpire" | "hpexpire" | "hexpireat" | "hpexpireat" | "hgetex" => "hexpired",
            "lpushx" => "lpush",
            "rpushx" => "rpush",
            "blpop" => "lpop",
            "brpop" => "rpop",
            "lmpop" | "blmpop" => either("left", "lpop", "rpop"),
            "zadd" => either("incr", "zincr", "zadd"),
            "zincrby" => "zincr",
            "bzpopmin" => "zpopmin",
            "bzpopmax" => "zpopmax",
            "zmpop" | "bzmpop" => either("min", "zpopmin", "zpopmax"),
            "sort" => "sortstore",
            "copy" => "copy_to",
            "geoadd" => "zadd",
            "bitfield" => "setbit",
            "pfmerge" => "pfadd",
            "georadius" | "georadiusbymember" => "georadiusstore",
            "json.forget" => "json.del",
            other => other,
        };
        let class = match (change, command.group.name()) {
            ("sortstore", _) => class::LIST,
            (_, "string" | "bitmap" | "hyperloglog") => class::STRING,
            (_, "list") => class::LIST,
            (_, "set") => class::SET,
            (_, "hash") => class::HASH,
            (_, "sorted-set" | "geo") => class::ZSET,
            (_, "stream") => class::STREAM,
            (_, "module") => class::MODULE,
            _ => class::GENERIC,
        };
        let is_collection =
            class & (class::LIST | class::SET | class::HASH | class::ZSET | class::MODULE) != 0;
        let (leave, arrive) =
            if command.name == "move" { ("move_from", "move_to") } else { ("rename_from", "rename_to") };
        Names {
            class,
            change,
            is_several: class == class::STREAM
                || matches!(command.name, "lmove" | "blmove" | "rpoplpush" | "brpoplpush" | "smove"),
            is_copy: matches!(command.name, "copy" | "restore"),
            empties: is_collection && !change.ends_with("store"),
            leave,
            arrive,
            misses: match command.access {
                Access::Read => !matches!(command.name, "encoding" | "freq" | "idletime" | "refcount"),
                Access::Write => {
                    change.ends_with("store")
                        || matches!(
                            command.name,
                            "getset" | "getdel" | "getex" | "bitop" | "pfcount" | "pfmerge"
                        )
                        || (command.name == "bitfield" && !has("set") && !has("incrby"))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_and_shown() {
        for (text, shown) in
            [("", ""), ("KEA", "AKE"), ("AKE", "AKE"), ("Elg", "glE"), ("g$lshzxetd", "A"), ("KEAmn", "AKEm")]
        {
            assert_eq!(parse_classes(text).map(show_classes).as_deref(), Some(shown), "{text}");
        }
        assert_eq!(parse_classes("KEq"), None);
    }
}
