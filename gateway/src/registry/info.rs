//! What clients see of a row: flags, categories and keys, in the words of Redis 7.0.

use smallvec::SmallVec;
use store_engine::keys::add_keys_of;
use store_engine::spec::{Access, flags};
use store_engine::{Args, Command, CommandError, Group, KeyPart, Reply, Routing};

/// Commands about something that is no key and has a slot nevertheless: the last of them.
const SLOTTED: &[(&str, i16)] = &[("spublish", 1), ("ssubscribe", -1), ("sunsubscribe", -1)];

/// The keys of a command as clients see them.
fn key_parts(command: &Command) -> Vec<KeyPart> {
    match SLOTTED.iter().find(|(name, _)| *name == command.name) {
        Some((_, last)) => vec![KeyPart::Range { first: 1, last: *last, step: 1, access: Access::Read }],
        None => command.keys.iter().flat_map(shown_as).collect(),
    }
}

/// What clients see of a part: that of MIGRATE looks like two, of which the second is not always found.
fn shown_as(part: &KeyPart) -> Vec<KeyPart> {
    match *part {
        KeyPart::Migrated { access } => vec![KeyPart::one(3, access), *part],
        other => vec![other],
    }
}

/// First key, last key and step, as COMMAND INFO of old describes keys; 0 where the row's parts are not one range.
pub fn legacy_range(command: &Command) -> (i64, i64, i64) {
    let range = |part: &KeyPart| match *part {
        KeyPart::Range { first, last, step, .. } => {
            Some((i64::from(first), i64::from(last), i64::from(step)))
        }
        KeyPart::Counted { .. }
        | KeyPart::After { .. }
        | KeyPart::Halved { .. }
        | KeyPart::Migrated { .. } => None,
    };
    let ranges: Vec<_> = key_parts(command).iter().filter_map(range).collect();
    match ranges[..] {
        [] => (0, 0, 0),
        [one] => one,
        // Neighbouring single keys, such as the two of RENAME, are one range.
        [(first, ..), .., (_, last, step)] => (first, last, step),
    }
}

/// Whether clients see that it writes data, or that it reads some; none of both, if it is about something else.
fn writes(command: &Command) -> Option<bool> {
    let no_data = matches!(command.group, Group::Scripting | Group::Transactions);
    let everywhere = matches!(command.routing, Routing::Everywhere | Routing::Paged);
    let has_data = (!command.keys.is_empty() || everywhere) && !no_data;
    has_data.then(|| command.is_write() && !command.has(flags::KEEPS_RESULT))
}

/// A container itself does nothing, nor does its HELP.
fn is_idle(command: &Command) -> bool {
    command.is_container() || command.name == "help"
}

/// The flags of a command, as COMMAND INFO shows them. Those of Redis are left out that say what may be done while it
/// loads data, has lost its master or is busy with a script: here everything.
pub fn flag_names(command: &Command) -> Vec<&'static str> {
    let mut names = Vec::new();
    if is_idle(command) {
        return names;
    }
    let reads_in_script =
        command.group == Group::Scripting && !command.keys.is_empty() && !command.is_write();
    let writes = if reads_in_script { Some(false) } else { writes(command) };
    names.extend(writes.map(|writes| if writes { "write" } else { "readonly" }));
    if command.group == Group::Json {
        names.push("module");
    }
    for (flag, name) in [
        (flags::DENY_OOM, "denyoom"),
        (flags::ADMIN, "admin"),
        (flags::PUBSUB, "pubsub"),
        (flags::NO_SCRIPT, "noscript"),
        (flags::BLOCKING, "blocking"),
        (flags::LOADING, "loading"),
        (flags::FAST, "fast"),
        (flags::NO_AUTH, "no_auth"),
        (flags::MOVABLE_KEYS, "movablekeys"),
        (flags::NO_MULTI, "no_multi"),
    ] {
        if command.has(flag) {
            names.push(name);
        }
    }
    names
}

/// Commands that are in other categories than their group.
const CATEGORIES: &[(&str, &[&str])] = &[
    ("asking", &["@connection"]),
    ("dbsize", &["@keyspace"]),
    ("flushall", &["@keyspace"]),
    ("flushdb", &["@keyspace"]),
    ("readonly", &["@connection"]),
    ("readwrite", &["@connection"]),
    ("restore-asking", &["@keyspace"]),
    ("swapdb", &["@keyspace"]),
    ("wait", &["@connection"]),
    ("waitaof", &["@connection"]),
    ("sort", &["@set", "@sortedset", "@list", "@dangerous"]),
    ("sort_ro", &["@set", "@sortedset", "@list", "@dangerous"]),
];

/// The ACL categories of a command.
pub fn categories(command: &Command) -> Vec<String> {
    let mut names = Vec::new();
    let speed = if command.has(flags::FAST) && !is_idle(command) { "@fast" } else { "@slow" };
    if !command.is_container() {
        names.extend(writes(command).map(|writes| if writes { "@write" } else { "@read" }));
        match CATEGORIES.iter().find(|(name, _)| *name == command.name) {
            Some((_, others)) => names.extend_from_slice(others),
            None => names.extend(command.group.category()),
        }
    }
    names.push(speed);
    if !is_idle(command) {
        let is_admin = command.has(flags::ADMIN);
        let marks = [
            (is_admin, "@admin"),
            (command.has(flags::BLOCKING), "@blocking"),
            (is_admin || command.has(flags::DANGEROUS), "@dangerous"),
        ];
        names.extend(marks.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name));
    }
    names.into_iter().map(str::to_owned).collect()
}

/// What is done with keys, where it is not what their access says: first in Redis' words, then the commands. Of those
/// with several keys or rows of them, the number of the one that is meant stands behind the name.
const USES: &[(&str, &str)] = &[
    (
        "RW insert",
        "append blmove:1 brpoplpush:1 hsetex hsetnx linsert lmove:1 lpush lpushx pfadd rpoplpush:1 rpush rpushx sadd smove:1 \
         xgroup|create xgroup|createconsumer",
    ),
    ("RW access update variable_flags", "bitfield set"),
    (
        "OW update",
        "bitop:0 copy:1 georadius:1 georadius:2 georadiusbymember:1 georadiusbymember:2 geosearchstore:0 mset msetex psetex \
         rename:1 restore restore-asking sdiffstore:0 setex sort:1 sunionstore:0 zdiffstore:0 zinterstore:0 zrangestore:0 \
         zunionstore:0",
    ),
    (
        "RW access delete",
        "blmove:0 blmpop blpop brpop brpoplpush:0 bzmpop bzpopmax bzpopmin delex delifeq getdel hgetdel lmove:0 lmpop lpop migrate migrate:0 rename:0 \
         renamenx:0 rpop rpoplpush:0 smove:0 spop zmpop zpopmax zpopmin",
    ),
    ("RW access delete incomplete", "migrate:1"),
    ("RM delete", "del unlink"),
    (
        "RO",
        "exists hexists hlen hstrlen llen memory|usage object|encoding object|freq object|idletime object|refcount \
         scard sismember strlen touch type watch zcard xlen",
    ),
    (
        "RW update",
        "expire expireat geoadd hexpire hexpireat hmset hpersist hpexpire hpexpireat hset lset persist pexpire pexpireat setrange sinterstore:0 zadd xack xadd \
         xclaim xgroup|setid xsetid",
    ),
    (
        "RW delete",
        "hdel lrem ltrim srem zrem zremrangebylex zremrangebyrank zremrangebyscore xackdel xautoclaim xdel xdelex \
         xgroup|delconsumer xgroup|destroy xtrim",
    ),
    ("OW insert", "msetnx renamenx:1 setnx"),
    ("RO access", "xreadgroup"),
    ("RW access", "hgetex pfcount pfdebug"),
    ("not_key", "spublish ssubscribe sunsubscribe"),
    ("RW access insert", "pfmerge:0"),
];

/// What is done with the keys of a part, which is one of several or not.
fn uses(name: &str, part: &KeyPart, number: usize, several: bool) -> &'static str {
    let named = if several { format!("{name}:{number}") } else { name.to_owned() };
    let listed = USES.iter().find(|(_, commands)| commands.split(' ').any(|command| command == named));
    let (KeyPart::Range { access, .. }
    | KeyPart::Counted { access, .. }
    | KeyPart::After { access, .. }
    | KeyPart::Halved { access }
    | KeyPart::Migrated { access }) = *part;
    match (listed, access) {
        (Some((uses, _)), _) => uses,
        (None, Access::Read) => "RO access",
        (None, Access::Write) => "RW access update",
    }
}

/// A command's key parts, each with what is done with its keys in Redis' words.
fn used_parts(name: &str, all: impl IntoIterator<Item = KeyPart>) -> Vec<(KeyPart, &'static str)> {
    let mut parts = Vec::new();
    for part in all {
        match part {
            // Of two that are written, something else is done with each.
            KeyPart::Range { first, last, step: 1, access: Access::Write } if last > 0 => {
                parts.extend((first..=last.unsigned_abs()).map(|at| KeyPart::one(at, Access::Write)));
            }
            other => parts.push(other),
        }
    }
    let several = parts.len() > 1;
    let used = |(number, part): (usize, KeyPart)| (part, uses(name, &part, number, several));
    parts.into_iter().enumerate().map(used).collect()
}

/// Where the keys of a command stand, and what is done with them.
pub fn key_specs(command: &Command, name: &str, out: &mut Reply) {
    let parts = used_parts(name, key_parts(command));
    out.set(parts.len());
    parts.iter().for_each(|(part, uses)| key_spec(part, uses, out));
}

/// What a user must be allowed to do with a key.
pub mod need {
    /// To read it.
    pub const READ: u8 = 1;
    /// To change it.
    pub const WRITE: u8 = 2;
}

/// What a call does with the keys of one part.
#[derive(Clone, Copy)]
pub enum Use {
    /// It always needs this, of [`need`].
    Needs(u8),
    /// It reads only with `GET` behind the value, or if it compares.
    Set,
    /// It changes, unless all that follows reads.
    BitField,
}

impl Use {
    /// What this call needs, of [`need`].
    pub fn of(self, args: Args<'_>) -> u8 {
        let names = |from: usize, words: &[&str]| {
            let is_one = |arg: &&[u8]| words.iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes()));
            args.rest(from).iter().any(is_one)
        };
        match self {
            Use::Needs(needs) => needs,
            Use::Set if names(3, &["get", "ifeq", "ifne", "ifdeq", "ifdne"]) => need::READ | need::WRITE,
            Use::Set => need::WRITE,
            Use::BitField if bitfield_reads(args) => need::READ,
            Use::BitField => need::READ | need::WRITE,
        }
    }
}

/// Whether a BITFIELD has only what reads. Redis takes what it does not understand for a change.
fn bitfield_reads(args: Args<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let behind = args.len() - at - 1;
        at += match &*word.to_ascii_lowercase() {
            b"get" if behind >= 2 => 3,
            b"overflow" if behind >= 1 => 2,
            _ => return false,
        };
    }
    true
}

/// The keys of a call, each with what is done with it in Redis' words. `name` is the command's full name.
pub fn used_keys(
    command: &Command,
    name: &str,
    args: Args<'_>,
) -> Result<Vec<(usize, &'static str)>, CommandError> {
    let parts = used_parts(name, command.keys.iter().copied());
    let mut used = Vec::new();
    for ((part, said), (_, call)) in parts.into_iter().zip(needs(command, name)) {
        let mut found = SmallVec::new();
        add_keys_of(&part, args, &mut found)?;
        // Redis gives up where it looks for more keys and there are none, such as those that PFMERGE merges.
        let is_fixed = matches!(part, KeyPart::Range { .. } | KeyPart::Counted { .. });
        if is_fixed && found.is_empty() {
            return Ok(Vec::new());
        }
        let uses = match (call, call.of(args)) {
            (Use::Needs(_), _) => said,
            (_, need::WRITE) => "OW update",
            (_, need::READ) => "RO access",
            _ => "RW access update",
        };
        used.extend(found.into_iter().map(|(at, _)| (at, uses)));
    }
    Ok(used)
}

/// A command's key parts, each with what a user must be allowed to do with its keys. `name` is its full name.
pub fn needs(command: &Command, name: &str) -> Vec<(KeyPart, Use)> {
    let need = |uses: &str| {
        let has = |word| uses.split(' ').any(|is| is == word);
        let reads = if has("access") { need::READ } else { 0 };
        let writes = if ["insert", "delete", "update"].into_iter().any(has) { need::WRITE } else { 0 };
        reads | writes
    };
    let parts = used_parts(name, command.keys.iter().copied());
    let used = |(part, uses)| match name {
        "set" => (part, Use::Set),
        "bitfield" => (part, Use::BitField),
        _ => (part, Use::Needs(need(uses))),
    };
    parts.into_iter().map(used).collect()
}

fn key_spec(part: &KeyPart, uses: &str, out: &mut Reply) {
    let begin = match *part {
        KeyPart::Range { first, .. } => i64::from(first),
        // From the end on.
        KeyPart::Migrated { .. } => -2,
        KeyPart::Counted { count_at, .. } => i64::from(count_at),
        KeyPart::After { from, .. } => i64::from(from),
        // Behind the group and the consumer of the one that writes.
        KeyPart::Halved { access } => {
            if access == Access::Write {
                4
            } else {
                1
            }
        }
    };
    out.map(3);
    out.bulk(b"flags");
    let flags: Vec<&str> = uses.split(' ').collect();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.status(flag));
    out.bulk(b"begin_search");
    let kind = |kind: &str, fields, out: &mut Reply| {
        out.map(2);
        out.bulk(b"type");
        out.bulk(kind.as_bytes());
        out.bulk(b"spec");
        out.map(fields);
    };
    let keyword = match *part {
        KeyPart::After { word, .. } => Some(word),
        KeyPart::Halved { .. } => Some("STREAMS"),
        KeyPart::Migrated { .. } => Some("KEYS"),
        KeyPart::Range { .. } | KeyPart::Counted { .. } => None,
    };
    match keyword {
        Some(word) => {
            kind("keyword", 2, out);
            out.bulk(b"keyword");
            out.bulk(word.as_bytes());
            out.bulk(b"startfrom");
        }
        None => {
            kind("index", 1, out);
            out.bulk(b"index");
        }
    }
    out.integer(begin);
    out.bulk(b"find_keys");
    let (last_key, step, limit) = match *part {
        KeyPart::Counted { count_at, first, step, .. } => {
            kind("keynum", 3, out);
            out.bulk(b"keynumidx");
            out.integer(0);
            out.bulk(b"firstkey");
            out.integer(i64::from(first) - i64::from(count_at));
            out.bulk(b"keystep");
            return out.integer(i64::from(step));
        }
        // Relative to the first key, unless it counts from the end.
        KeyPart::Range { last, step, .. } if last < 0 => (i64::from(last), step, 0),
        KeyPart::Range { first, last, step, .. } => (i64::from(last) - i64::from(first), step, 0),
        KeyPart::After { .. } => (0, 1, 0),
        KeyPart::Halved { .. } => (-1, 1, 2),
        KeyPart::Migrated { .. } => (-1, 1, 0),
    };
    kind("range", 3, out);
    for (name, number) in [("lastkey", last_key), ("keystep", i64::from(step)), ("limit", limit)] {
        out.bulk(name.as_bytes());
        out.integer(number);
    }
}
