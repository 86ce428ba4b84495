//! Fields of hashes that expire: the commands of Redis 7.4 and 8.0 as Valkey 9 has them, from its `src/t_hash.c` and
//! `tests/unit/hashexpire.tcl`.
//!
//! No command sees a field that has expired. The field is removed when a command sets it again, or by
//! [`crate::Keyspace::sweep`].

use std::num::NonZeroU64;

use super::{HASH, WRITES, announce_overdue, put};
use crate::command::generic::expire::Condition;
use crate::command::string::options::{PendingExpiry, expiry_option};
use crate::edit::Editor;
use crate::error::{self, CommandError, invalid_expire};
use crate::number;
use crate::spec::{Arity, Command, flags};
use crate::value::Hash;
use crate::{Args, Ctx};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "hexpire",
        summary: "Sets the expiration time of fields in seconds.",
        syntax: "key seconds:int condition(NX | XX | GT | LT)? FIELDS=fields(numfields:int field...)",
        run: |ctx, args| expire(ctx, args, "hexpire", 1000, false),
        ..SETS
    },
    Command {
        name: "hpexpire",
        summary: "Sets the expiration time of fields in milliseconds.",
        syntax: "key milliseconds:int condition(NX | XX | GT | LT)? FIELDS=fields(numfields:int field...)",
        run: |ctx, args| expire(ctx, args, "hpexpire", 1, false),
        ..SETS
    },
    Command {
        name: "hexpireat",
        summary: "Sets the expiration time of fields to a Unix timestamp.",
        syntax: "key unix-time-seconds:time condition(NX | XX | GT | LT)? FIELDS=fields(numfields:int field...)",
        run: |ctx, args| expire(ctx, args, "hexpireat", 1000, true),
        ..SETS
    },
    Command {
        name: "hpexpireat",
        summary: "Sets the expiration time of fields to a Unix milliseconds timestamp.",
        syntax: "key unix-time-milliseconds:time condition(NX | XX | GT | LT)? \
                 FIELDS=fields(numfields:int field...)",
        run: |ctx, args| expire(ctx, args, "hpexpireat", 1, true),
        ..SETS
    },
    Command {
        name: "httl",
        summary: "Returns the expiration time in seconds of fields.",
        run: |ctx, args| remaining(ctx, args, 1000, false),
        ..READS
    },
    Command {
        name: "hpttl",
        summary: "Returns the expiration time in milliseconds of fields.",
        run: |ctx, args| remaining(ctx, args, 1, false),
        ..READS
    },
    Command {
        name: "hexpiretime",
        summary: "Returns the expiration time of fields as Unix timestamps.",
        run: |ctx, args| remaining(ctx, args, 1000, true),
        ..READS
    },
    Command {
        name: "hpexpiretime",
        summary: "Returns the expiration time of fields as Unix milliseconds timestamps.",
        run: |ctx, args| remaining(ctx, args, 1, true),
        ..READS
    },
    Command {
        name: "hpersist",
        arity: Arity::AtLeast(5),
        summary: "Removes the expiration time of fields.",
        syntax: FIELDS,
        run: persist,
        ..SETS
    },
    Command {
        name: "hgetex",
        since: "8.0.0",
        arity: Arity::AtLeast(5),
        summary: "Returns the values of fields, after setting or removing their expiration time if that is wanted.",
        syntax: "key expiration(EX=seconds:int | PX=milliseconds:int | EXAT=unix-time-seconds:time | \
                 PXAT=unix-time-milliseconds:time | PERSIST)? FIELDS=fields(numfields:int field...)",
        run: get_and_expire,
        ..SETS
    },
    Command {
        name: "hgetdel",
        since: "8.0.0",
        arity: Arity::AtLeast(5),
        summary: "Returns the values of fields and removes the fields. The key is deleted with its last field.",
        syntax: FIELDS,
        run: get_and_remove,
        ..SETS
    },
    Command {
        name: "hsetex",
        since: "8.0.0",
        arity: Arity::AtLeast(6),
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Sets the values of fields on a condition, with one expiration time for all.",
        syntax: "key key-condition(NX | XX)? fields-condition(FNX | FXX)? expiration(EX=seconds:int | \
                 PX=milliseconds:int | EXAT=unix-time-seconds:time | PXAT=unix-time-milliseconds:time | KEEPTTL)? \
                 FIELDS=fields(numfields:int data(field value)...)",
        run: set_and_expire,
        ..SETS
    },
];

const FIELDS: &str = "key FIELDS=fields(numfields:int field...)";
const COMPLEXITY: &str = "O(N) where N is the number of specified fields.";
const READS: Command = Command {
    since: "7.4.0",
    arity: Arity::AtLeast(5),
    flags: flags::FAST,
    complexity: COMPLEXITY,
    syntax: FIELDS,
    ..HASH
};
const SETS: Command = Command {
    since: "7.4.0",
    arity: Arity::AtLeast(6),
    flags: flags::FAST,
    complexity: COMPLEXITY,
    ..WRITES
};

const NUMFIELDS: CommandError =
    CommandError::new("ERR numfields should be greater than 0 and match the provided number of fields");
/// As Redis says it; Valkey takes any word.
const NO_FIELDS: CommandError =
    CommandError::new("ERR Mandatory argument FIELDS is missing or not at the right position");

/// A call whose options stand between some items and the word FIELDS.
struct Options<'a> {
    /// All that stands before the word.
    items: Args<'a>,
    call: Args<'a>,
}

impl<'a> Options<'a> {
    /// Looks for the word from item `from` on. As in Valkey something has to follow.
    fn split(call: Args<'a>, from: usize) -> Result<Options<'a>, CommandError> {
        let items = call.items();
        let is_word = |at: &usize| items[*at].eq_ignore_ascii_case(b"FIELDS");
        let at = (from..items.len() - 1).find(is_word).ok_or(NUMFIELDS)?;
        Ok(Options { items: Args::new(&items[..at]), call })
    }

    /// The fields, each with so many items, of which there must be as many as is said.
    fn fields(&self, each: usize) -> Result<&'a [&'a [u8]], CommandError> {
        fields_at(self.call, self.items.len(), each, NUMFIELDS)
    }
}

/// The fields behind the word at item `at` and their number.
fn fields_at<'a>(
    call: Args<'a>,
    at: usize,
    each: usize,
    mismatch: CommandError,
) -> Result<&'a [&'a [u8]], CommandError> {
    let (count, fields) = (call.integer(at + 1)?, call.rest(at + 2));
    let items = usize::try_from(count).ok().and_then(|count| count.checked_mul(each));
    if count > 0 && items == Some(fields.len()) { Ok(fields) } else { Err(mismatch) }
}

/// The fields of a call without options.
fn fields_only<'a>(call: Args<'a>, mismatch: CommandError) -> Result<&'a [&'a [u8]], CommandError> {
    if !call[2].eq_ignore_ascii_case(b"FIELDS") {
        return Err(NO_FIELDS);
    }
    fields_at(call, 2, 1, mismatch)
}

/// A time as it was written, in Unix milliseconds. Unlike that of a key it may be over, but not negative.
fn time(ctx: &Ctx<'_>, amount: &[u8], unit_ms: i64, absolute: bool, name: &str) -> Result<i64, CommandError> {
    let amount = number::parse_i64(amount).ok_or(error::NOT_AN_INTEGER)?;
    let base = if absolute { 0 } else { ctx.now_ms.cast_signed() };
    let at = (amount >= 0).then(|| amount.checked_mul(unit_ms)?.checked_add(base)).flatten();
    at.ok_or_else(|| invalid_expire(name))
}

/// The same if it is not over.
fn still_to_come(at: i64, now_ms: u64) -> Option<NonZeroU64> {
    u64::try_from(at).ok().filter(|at| *at > now_ms).and_then(NonZeroU64::new)
}

/// HEXPIRE and its kin, `hexpireGenericCommand` in Valkey: -2 for a field that is not there, 0 if the condition does not
/// hold, 1 if it has the time now, 2 if that was over, which removes the field.
fn expire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &str,
    unit_ms: i64,
    absolute: bool,
) -> Result<(), CommandError> {
    let options = Options::split(args, 3)?;
    let condition = Condition::parse(options.items)?;
    let fields = options.fields(1)?;
    let at = time(ctx, args[2], unit_ms, absolute, name)?;
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    let Some((mut hash, out)) = ctx.edit(args[1]).existing_and_reply::<Hash>()? else {
        return missing(ctx, fields);
    };
    out.array(fields.len());
    let mut is_set = false;
    for field in work.over(fields) {
        out.integer(match hash.live(now_ms).expiry(field) {
            None => -2,
            Some(old) if !condition.allows(old, at) => 0,
            Some(_) => match still_to_come(at, now_ms) {
                Some(at) => {
                    hash.set_expiry(field, Some(at));
                    is_set = true;
                    1
                }
                None => {
                    expire_now(&mut hash, field);
                    2
                }
            },
        });
    }
    if is_set {
        hash.announce("hexpire");
    }
    Ok(())
}

/// Removes a field, if it is there, since it is given a time that is over.
fn expire_now(hash: &mut Editor<'_, Hash>, field: &[u8]) {
    if hash.remove(field) {
        hash.count_expired();
    }
}

/// What calls about fields answer if there is no key.
fn missing(ctx: &mut Ctx<'_>, fields: &[&[u8]]) -> Result<(), CommandError> {
    let work = ctx.work;
    ctx.out.array(fields.len());
    ctx.out.each(work, fields, |out, _| out.integer(-2));
    Ok(())
}

/// HTTL and its kin, `httlGenericCommand` in Valkey: -2 for a field that is not there, -1 for one that stays.
fn remaining(ctx: &mut Ctx<'_>, args: Args<'_>, unit_ms: u64, absolute: bool) -> Result<(), CommandError> {
    let fields = fields_only(args, error::SYNTAX)?;
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    let base = if absolute { 0 } else { now_ms };
    ctx.reply_from::<Hash>(args[1], |hash, out| {
        let hash = hash.map(|hash| hash.live(now_ms));
        out.array(fields.len());
        out.each(work, fields, |out, field| {
            out.integer(match hash.and_then(|hash| hash.expiry(field)) {
                None => -2,
                Some(None) => -1,
                Some(Some(at)) => {
                    let left = at.get() - base;
                    // Rounded to the nearest second.
                    (if unit_ms == 1 { left } else { left.saturating_add(500) / unit_ms }).cast_signed()
                }
            });
        });
    })
}

/// HPERSIST, as `hpersistCommand` in Valkey: -2 for a field that is not there, -1 for one that stays anyway, 1 for one
/// that stays now.
fn persist(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let fields = fields_only(args, NUMFIELDS)?;
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    let Some((mut hash, out)) = ctx.edit(args[1]).existing_and_reply::<Hash>()? else {
        return missing(ctx, fields);
    };
    out.array(fields.len());
    let mut any = false;
    for field in work.over(fields) {
        out.integer(match hash.live(now_ms).expiry(field) {
            None => -2,
            Some(None) => -1,
            Some(Some(_)) => {
                hash.set_expiry(field, None);
                any = true;
                1
            }
        });
    }
    if any {
        hash.announce("hpersist");
    }
    Ok(())
}

/// What HGETEX and HSETEX do to times.
enum Change<'a> {
    /// Nothing.
    None,
    /// They stay (KEEPTTL), or go (PERSIST).
    Word,
    /// They become this one.
    To(PendingExpiry<'a>),
}

impl<'a> Change<'a> {
    /// Takes the next option, which must be `word` or a time. Another than before is a syntax error.
    fn take(&mut self, cursor: &mut crate::Cursor<'a>, word: &str) -> Result<(), CommandError> {
        if cursor.flag(word) {
            let contradicts = matches!(self, Change::To(_));
            *self = Change::Word;
            return if contradicts { Err(error::SYNTAX) } else { Ok(()) };
        }
        let option = expiry_option(cursor).ok_or(error::SYNTAX)?;
        match self {
            Change::Word => return Err(error::SYNTAX),
            Change::To(earlier) if !option.may_follow(&Some(*earlier)) => return Err(error::SYNTAX),
            _ => *self = Change::To(option),
        }
        Ok(())
    }

    /// The time, if there is one.
    fn time(&self, ctx: &Ctx<'_>, name: &str) -> Result<Option<i64>, CommandError> {
        let Change::To(expiry) = self else { return Ok(None) };
        time(ctx, expiry.amount, expiry.unit_ms, expiry.absolute, name).map(Some)
    }
}

/// HGETEX, as `hgetexCommand` in Valkey: the values; then the fields have the time, or none, or are removed if it is over.
fn get_and_expire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let options = Options::split(args, 2)?;
    let (mut change, mut cursor) = (Change::None, options.items.cursor(2));
    while !cursor.is_done() {
        change.take(&mut cursor, "PERSIST")?;
    }
    let fields = options.fields(1)?;
    // A read for those who count them.
    let exists = ctx.read::<Hash>(args[1])?.is_some();
    let at = change.time(ctx, "hgetex")?;
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    if !exists {
        return nothing(ctx, fields);
    }
    let Some((mut hash, out)) = ctx.edit(args[1]).existing_and_reply::<Hash>()? else {
        return nothing(ctx, fields);
    };
    out.array(fields.len());
    let mut event = None;
    for field in work.over(fields) {
        let held = hash.live(now_ms);
        out.optional(held.get(field));
        let Some(old) = held.expiry(field) else { continue };
        match (&change, at) {
            (_, Some(at)) => match still_to_come(at, now_ms) {
                Some(at) => {
                    hash.set_expiry(field, Some(at));
                    event = Some("hexpire");
                }
                None => expire_now(&mut hash, field),
            },
            (Change::Word, None) if old.is_some() => {
                hash.set_expiry(field, None);
                event = Some("hpersist");
            }
            _ => {}
        }
    }
    event.into_iter().for_each(|event| hash.announce(event));
    Ok(())
}

/// What calls for values answer if there is no key.
fn nothing(ctx: &mut Ctx<'_>, fields: &[&[u8]]) -> Result<(), CommandError> {
    let work = ctx.work;
    ctx.out.array(fields.len());
    ctx.out.each(work, fields, |out, _| out.null());
    Ok(())
}

/// HGETDEL, as `hgetdelCommand` in Valkey 9.1.
fn get_and_remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let fields = fields_only(args, NUMFIELDS)?;
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    let Some((mut hash, out)) = ctx.edit(args[1]).existing_and_reply::<Hash>()? else {
        return nothing(ctx, fields);
    };
    out.array(fields.len());
    for field in work.over(fields) {
        let value = hash.live(now_ms).get(field);
        out.optional(value);
        if value.is_some() {
            hash.remove(field);
        }
    }
    Ok(())
}

/// HSETEX, as `hsetexCommand` in Valkey: 1 if the fields have been set, 0 if a condition does not hold. A time that is
/// over removes them instead.
fn set_and_expire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let options = Options::split(args, 2)?;
    let (mut change, mut cursor) = (Change::None, options.items.cursor(2));
    // Whether the key has to be there, and each of the fields.
    let (mut key, mut each) = (None, None);
    while !cursor.is_done() {
        let (held, wanted) = match () {
            () if cursor.flag("NX") => (&mut key, false),
            () if cursor.flag("XX") => (&mut key, true),
            () if cursor.flag("FNX") => (&mut each, false),
            () if cursor.flag("FXX") => (&mut each, true),
            () => {
                change.take(&mut cursor, "KEEPTTL")?;
                continue;
            }
        };
        if held.replace(wanted).is_some_and(|other| other != wanted) {
            return Err(error::SYNTAX);
        }
    }
    let pairs = options.fields(2)?.chunks_exact(2);
    let (work, now_ms) = (ctx.work, ctx.now_ms);
    let target = ctx.target(args[1]).map(|entry| &entry.value);
    let held = match target {
        None => None,
        Some(crate::Value::Hash(hash)) => Some(hash.live(now_ms)),
        Some(_) => return Err(error::WRONG_TYPE),
    };
    let is_there = |field| held.is_some_and(|hash| hash.contains(field));
    let holds = key.is_none_or(|wanted| held.is_some() == wanted)
        && each.is_none_or(|wanted| pairs.clone().all(|pair| is_there(pair[0]) == wanted));
    let at = change.time(ctx, "hsetex")?;
    if !holds {
        ctx.out.integer(0);
        return Ok(());
    }
    let mut hash = ctx.edit(args[1]).or_create::<Hash>()?;
    match at.map(|at| still_to_come(at, now_ms)) {
        // As in Valkey both events are published, although the fields were never visible.
        Some(None) => {
            hash.touch();
            hash.announce("hexpire");
            hash.announce("hexpired");
            work.over(pairs).for_each(|pair| expire_now(&mut hash, pair[0]));
        }
        expiry => {
            announce_overdue(&mut hash, pairs.clone().map(|pair| pair[0]), now_ms);
            let keeps = matches!(change, Change::Word);
            for pair in work.over(pairs) {
                set_pair(&mut hash, pair, expiry.flatten(), keeps, now_ms);
            }
            if expiry.is_some() {
                hash.announce("hexpire");
            }
        }
    }
    drop(hash);
    ctx.out.integer(1);
    Ok(())
}

fn set_pair(
    hash: &mut Editor<'_, Hash>,
    pair: &[&[u8]],
    expiry: Option<NonZeroU64>,
    keeps: bool,
    now_ms: u64,
) {
    if keeps && !hash.is_overdue(pair[0], now_ms) {
        hash.update(pair[0], pair[1]);
        return;
    }
    put(hash, pair[0], pair[1], now_ms);
    if expiry.is_some() {
        hash.set_expiry(pair[0], expiry);
    }
}

#[cfg(test)]
mod tests;
