//! Options of the commands that put strings: when their keys expire, and on which condition they are put.

use std::num::NonZeroU64;

use crate::ctx::Expiry;
use crate::error::{self, CommandError, invalid_expire};
use crate::value::{Kind, Str};
use crate::{Ctx, Cursor, number};

/// An expiry given as `amount` of `unit_ms` milliseconds, from now or absolute.
pub fn expiry(
    ctx: &Ctx<'_>,
    amount: i64,
    unit_ms: i64,
    absolute: bool,
    name: &str,
) -> Result<NonZeroU64, CommandError> {
    let base = if absolute { 0 } else { ctx.now_ms as i64 };
    let at = (amount > 0).then(|| amount.checked_mul(unit_ms)?.checked_add(base)).flatten();
    at.and_then(|at| NonZeroU64::new(at as u64)).ok_or_else(|| invalid_expire(name))
}

/// EX, PX, EXAT or PXAT with its number, if one of them comes next.
pub fn expiry_option<'a>(cursor: &mut Cursor<'a>) -> Option<PendingExpiry<'a>> {
    const OPTIONS: [(&str, i64, bool); 4] =
        [("EX", 1000, false), ("PX", 1, false), ("EXAT", 1000, true), ("PXAT", 1, true)];
    let (word, unit_ms, absolute) =
        OPTIONS.into_iter().find(|(word, ..)| cursor.remaining() > 1 && cursor.flag(word))?;
    cursor.bytes().ok().map(|amount| PendingExpiry { word, amount, unit_ms, absolute })
}

/// An expiry as it was written. Redis looks at its number after all options, and so do we.
#[derive(Clone, Copy)]
pub struct PendingExpiry<'a> {
    word: &'static str,
    /// Its number.
    pub amount: &'a [u8],
    /// Milliseconds of its unit.
    pub unit_ms: i64,
    /// Whether it is a Unix time, not one from now on.
    pub absolute: bool,
}

impl PendingExpiry<'_> {
    /// Whether it may follow `earlier`. The same option may be given again; the last one counts.
    pub fn may_follow(&self, earlier: &Option<PendingExpiry<'_>>) -> bool {
        earlier.as_ref().is_none_or(|earlier| earlier.word == self.word)
    }

    /// The time that is meant.
    pub fn resolve(&self, ctx: &Ctx<'_>, name: &str) -> Result<NonZeroU64, CommandError> {
        let amount = number::parse_i64(self.amount).ok_or(error::NOT_AN_INTEGER)?;
        expiry(ctx, amount, self.unit_ms, self.absolute, name)
    }
}

/// The options that SET and MSETEX have in common.
#[derive(Default)]
pub struct PutOptions<'a> {
    /// XX or, if false, NX: whether the key has to be there.
    pub presence: Option<bool>,
    keep_ttl: bool,
    pending: Option<PendingExpiry<'a>>,
}

impl<'a> PutOptions<'a> {
    /// Takes the next item, which must be one of them.
    pub fn take(&mut self, cursor: &mut Cursor<'a>) -> Result<(), CommandError> {
        let presence = if cursor.flag("NX") {
            false
        } else if cursor.flag("XX") {
            true
        } else if cursor.flag("KEEPTTL") {
            self.keep_ttl = true;
            return if self.pending.is_some() { Err(error::SYNTAX) } else { Ok(()) };
        } else {
            let option = expiry_option(cursor).ok_or(error::SYNTAX)?;
            if self.keep_ttl || !option.may_follow(&self.pending) {
                return Err(error::SYNTAX);
            }
            self.pending = Some(option);
            return Ok(());
        };
        match self.presence.replace(presence) {
            Some(other) if other != presence => Err(error::SYNTAX),
            _ => Ok(()),
        }
    }

    /// What becomes of the expiry; `name` is the command's.
    pub fn expiry(&self, ctx: &Ctx<'_>, name: &str) -> Result<Expiry, CommandError> {
        Ok(match &self.pending {
            Some(pending) => Expiry::At(pending.resolve(ctx, name)?),
            None if self.keep_ttl => Expiry::Keep,
            None => Expiry::Clear,
        })
    }
}

/// Hexadecimal digits of a digest.
const DIGEST_DIGITS: usize = 16;

/// The digest of a string as Redis 8.4 shows it: XXH3 of its bytes in 64 bits.
pub fn digest(text: &Str) -> String {
    format!("{:016x}", twox_hash::XxHash3_64::oneshot(&text.as_bytes()))
}

/// A condition on the string that is there: IFEQ as in Valkey 8.1, the others as in Redis 8.4.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    /// Its digest is compared, not itself.
    with_digest: bool,
    /// Whether it has to be the same.
    same: bool,
    operand: &'a [u8],
}

impl<'a> Comparison<'a> {
    /// The condition that this word means.
    pub fn new(word: &[u8], operand: &'a [u8]) -> Option<Comparison<'a>> {
        const WORDS: [(&[u8], bool, bool); 4] = [
            (b"IFEQ", false, true),
            (b"IFNE", false, false),
            (b"IFDEQ", true, true),
            (b"IFDNE", true, false),
        ];
        let (_, with_digest, same) =
            WORDS.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(word))?;
        Some(Comparison { with_digest, same, operand })
    }

    /// Takes a condition with its operand, if one comes next.
    pub fn next(cursor: &mut Cursor<'a>) -> Option<Comparison<'a>> {
        let mut ahead = *cursor;
        let comparison = Comparison::new(ahead.bytes().ok()?, ahead.bytes().ok()?)?;
        *cursor = ahead;
        Some(comparison)
    }

    /// Whether it is so of this key. A missing one is different from everything. As in Redis a digest is checked no
    /// further than for its length, and not at all if there is no key.
    pub fn holds_of(self, ctx: &mut Ctx<'_>, key: &[u8]) -> Result<bool, CommandError> {
        let held = match ctx.target(key) {
            None => return Ok(!self.same),
            Some(entry) => Str::of(&entry.value).ok_or(error::WRONG_TYPE)?,
        };
        if self.with_digest && self.operand.len() != DIGEST_DIGITS {
            return Err(CommandError::new("ERR must be exactly 16 hexadecimal characters"));
        }
        let is_same = match self.with_digest {
            true => digest(held).as_bytes().eq_ignore_ascii_case(self.operand),
            false => *held.as_bytes() == *self.operand,
        };
        Ok(is_same == self.same)
    }
}
