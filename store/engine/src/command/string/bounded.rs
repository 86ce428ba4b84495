//! INCREX: a counter with bounds and an expiry, of Valkey 9.2 and Redis 8.8, from Valkey's `tests/unit/type/incr.tcl`.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::WRITES;
use super::options::{PendingExpiry, expiry_option};
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::long_double::LongDouble;
use crate::number;
use crate::spec::{Arity, Command, flags};
use crate::value::{Kind, Str};
use crate::{Args, Ctx, Reply, Value};

/// The row of this chapter.
pub static COMMANDS: &[Command] = &[Command {
    name: "increx",
    since: "8.8.0",
    arity: Arity::AtLeast(2),
    flags: flags::DENY_OOM | flags::FAST,
    summary: "Increments the number of a key within bounds and sets its expiration time. Uses 0 as initial value if \
              the key doesn't exist.",
    syntax: "key condition(NX | XX)? increment(BYINT=integer:int | BYFLOAT=float:double)? LBOUND=lowerbound? \
             UBOUND=upperbound? SATURATE? expiration(EX=seconds:int | PX=milliseconds:int | \
             EXAT=unix-time-seconds:time | PXAT=unix-time-milliseconds:time | PERSIST)? ENX?",
    run: increment_within,
    ..WRITES
}];

const PAST_BOUNDS: CommandError = CommandError::new("ERR LBOUND can't be greater than UBOUND");

/// What INCREX counts with.
trait Number: Copy {
    const LEAST: Self;
    const LARGEST: Self;
    const ZERO: Self;
    const ONE: Self;
    /// What is said of a text that is none, behind its name.
    const INVALID: &'static str;

    fn parse(text: &[u8]) -> Option<Self>;
    /// Whether it is too large for something that is counted with.
    fn is_infinite(self) -> bool;
    fn compare(self, other: Self) -> Ordering;
    /// The sum, or on which side it is beyond all numbers.
    fn sum(self, other: Self) -> Result<Self, Ordering>;
    /// What has to be added to `from` for this.
    fn difference(self, from: Self) -> Result<Self, CommandError>;
    fn text(self) -> String;
    fn write(self, out: &mut Reply);
}

impl Number for i64 {
    const LEAST: i64 = i64::MIN;
    const LARGEST: i64 = i64::MAX;
    const ZERO: i64 = 0;
    const ONE: i64 = 1;
    const INVALID: &'static str = "is not an integer or out of range";

    fn parse(text: &[u8]) -> Option<i64> {
        number::parse_i64(text)
    }

    fn is_infinite(self) -> bool {
        false
    }

    fn compare(self, other: i64) -> Ordering {
        self.cmp(&other)
    }

    fn sum(self, other: i64) -> Result<i64, Ordering> {
        self.checked_add(other).ok_or(other.cmp(&0))
    }

    fn difference(self, from: i64) -> Result<i64, CommandError> {
        self.checked_sub(from).ok_or(CommandError::new("ERR applied increment would overflow"))
    }

    fn text(self) -> String {
        self.to_string()
    }

    fn write(self, out: &mut Reply) {
        out.integer(self);
    }
}

impl Number for LongDouble {
    const LEAST: LongDouble = LongDouble::LEAST;
    const LARGEST: LongDouble = LongDouble::LARGEST;
    const ZERO: LongDouble = LongDouble::ZERO;
    const ONE: LongDouble = LongDouble::ONE;
    const INVALID: &'static str = "is not a valid float";

    fn parse(text: &[u8]) -> Option<LongDouble> {
        LongDouble::parse(text)
    }

    fn is_infinite(self) -> bool {
        LongDouble::is_infinite(self)
    }

    fn compare(self, other: LongDouble) -> Ordering {
        LongDouble::compare(self, other)
    }

    fn sum(self, other: LongDouble) -> Result<LongDouble, Ordering> {
        self.checked_add(other).ok_or(other.compare(LongDouble::ZERO))
    }

    fn difference(self, from: LongDouble) -> Result<LongDouble, CommandError> {
        let difference = self.checked_add(from.negated());
        difference.ok_or(CommandError::new("ERR applied increment would be Infinity"))
    }

    fn text(self) -> String {
        self.to_human()
    }

    fn write(self, out: &mut Reply) {
        out.spelled_double(&self.to_human());
    }
}

/// The options of a call.
#[derive(Default)]
struct Options<'a> {
    /// XX or, if false, NX.
    presence: Option<bool>,
    by: Option<&'a [u8]>,
    is_float: bool,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturates: bool,
    expiry: Option<PendingExpiry<'a>>,
    persists: bool,
    /// An expiry that is there stays: ENX.
    keeps_expiry: bool,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, CommandError> {
        let mut options = Options::default();
        let mut cursor = args.cursor(2);
        while !cursor.is_done() {
            let valued = cursor.remaining() > 1;
            if let Some(wanted) = [("NX", false), ("XX", true)]
                .into_iter()
                .find_map(|(word, wanted)| cursor.flag(word).then_some(wanted))
            {
                if options.presence.replace(wanted).is_some_and(|other| other != wanted) {
                    return Err(error::SYNTAX);
                }
            } else if valued
                && let Some(is_float) = [("BYINT", false), ("BYFLOAT", true)]
                    .into_iter()
                    .find_map(|(word, is_float)| cursor.flag(word).then_some(is_float))
            {
                options.is_float = is_float;
                if options.by.replace(cursor.bytes()?).is_some() {
                    return Err(error::SYNTAX);
                }
            } else if valued && cursor.flag("LBOUND") {
                options.lower = Some(cursor.bytes()?);
            } else if valued && cursor.flag("UBOUND") {
                options.upper = Some(cursor.bytes()?);
            } else if cursor.flag("SATURATE") {
                options.saturates = true;
            } else if cursor.flag("PERSIST") {
                options.persists = true;
            } else if cursor.flag("ENX") {
                options.keeps_expiry = true;
            } else {
                let option = expiry_option(&mut cursor).ok_or(error::SYNTAX)?;
                if !option.may_follow(&options.expiry) {
                    return Err(error::SYNTAX);
                }
                options.expiry = Some(option);
            }
            if options.persists && (options.expiry.is_some() || options.keeps_expiry) {
                return Err(error::SYNTAX);
            }
        }
        if options.keeps_expiry && options.expiry.is_none() {
            return Err(CommandError::new("ERR ENX flag requires an expiration"));
        }
        Ok(options)
    }
}

/// Reads a number that is called so.
fn named<N: Number>(text: &[u8], name: &str) -> Result<N, CommandError> {
    N::parse(text).ok_or_else(|| CommandError::owned(format!("ERR {name} {}", N::INVALID)))
}

fn increment_within(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let options = Options::parse(args)?;
    if options.is_float {
        count::<LongDouble>(ctx, args[1], &options)
    } else {
        count::<i64>(ctx, args[1], &options)
    }
}

fn count<N: Number>(ctx: &mut Ctx<'_>, key: &[u8], options: &Options<'_>) -> Result<(), CommandError> {
    let by = options.by.map_or(Ok(N::ONE), |text| named(text, "Increment"))?;
    if by.is_infinite() {
        return Err(CommandError::new("ERR BYFLOAT increment cannot be Infinity"));
    }
    let lower = options.lower.map_or(Ok(N::LEAST), |text| named(text, "LBOUND"))?;
    let upper = options.upper.map_or(Ok(N::LARGEST), |text| named(text, "UBOUND"))?;
    if lower.compare(upper).is_gt() {
        return Err(PAST_BOUNDS);
    }
    let expiry = options.expiry.as_ref().map(|expiry| expiry.resolve(ctx, "increx")).transpose()?;
    let (held, had_expiry) = match ctx.target(key) {
        None => (None, false),
        Some(entry) => {
            let text: Cow<'_, [u8]> = Str::of(&entry.value).ok_or(error::WRONG_TYPE)?.as_bytes();
            (Some(named::<N>(&text, "value")?), entry.expire_at_ms.is_some())
        }
    };
    let old = held.unwrap_or(N::ZERO);
    if old.is_infinite() {
        return Err(CommandError::new("ERR value cannot be Infinity"));
    }
    let is_wanted = options.presence.is_none_or(|wanted| wanted == held.is_some());
    let new = if is_wanted { within(old.sum(by), lower, upper, options.saturates) } else { None };
    // Without a number in the bounds all stays as it is.
    let Some(new) = new else {
        reply(ctx, old, N::ZERO);
        return Ok(());
    };
    let applied = new.difference(old)?;
    let expiry = expiry.filter(|_| !(options.keeps_expiry && had_expiry));
    if expiry.is_some_and(|at| at.get() <= ctx.now_ms) {
        ctx.delete(key);
    } else {
        let text = new.text();
        if let Some(mut string) = ctx.edit(key).existing::<Str>()? {
            match Str::integer_of(text.as_bytes()).filter(|_| !options.is_float) {
                Some(integer) => string.set_integer(integer),
                None => string.replace(text.as_bytes()),
            }
        } else {
            ctx.put(key, Value::string(text.as_bytes()), Expiry::Clear);
        }
        if expiry.is_some() || (options.persists && had_expiry) {
            ctx.set_expiry(key, expiry);
        }
    }
    reply(ctx, new, applied);
    Ok(())
}

/// The sum if it is within the bounds, or if it saturates the bound that it is beyond.
fn within<N: Number>(sum: Result<N, Ordering>, lower: N, upper: N, saturates: bool) -> Option<N> {
    let side = match sum {
        Ok(sum) if sum.compare(upper).is_gt() => Ordering::Greater,
        Ok(sum) if sum.compare(lower).is_lt() => Ordering::Less,
        Ok(sum) => return Some(sum),
        Err(side) => side,
    };
    saturates.then_some(if side.is_gt() { upper } else { lower })
}

fn reply<N: Number>(ctx: &mut Ctx<'_>, value: N, applied: N) {
    ctx.out.array(2);
    value.write(ctx.out);
    applied.write(ctx.out);
}

#[cfg(test)]
mod tests {
    use crate::Protocol;
    use crate::testing::Bench;

    /// From Valkey's tests: what is there before, the call, the reply, and what is there afterwards.
    const CASES: &[(&str, &str, &str, &str)] = &[
        ("", "INCREX k", "*2 :1 :1", "$1 1"),
        ("", "INCREX k NX BYINT 5", "*2 :5 :5", "$1 5"),
        ("1", "INCREX k NX", "*2 :1 :0", "$1 1"),
        ("", "INCREX k XX", "*2 :0 :0", "$-1"),
        ("10", "INCREX k XX", "*2 :11 :1", "$2 11"),
        ("", "INCREX k XX BYFLOAT 1.5", "*2 $1 0 $1 0", "$-1"),
        ("15", "INCREX k BYFLOAT -2.5", "*2 $4 12.5 $4 -2.5", "$4 12.5"),
        ("0.1", "INCREX k BYFLOAT 0.2", "*2 $3 0.3 $3 0.2", "$3 0.3"),
        ("10", "INCREX k BYINT 5 UBOUND 15", "*2 :15 :5", "$2 15"),
        ("10", "INCREX k BYINT 5 UBOUND 12", "*2 :10 :0", "$2 10"),
        ("10", "INCREX k BYINT -5 UBOUND 5", "*2 :5 :-5", "$1 5"),
        ("10", "INCREX k BYINT 5 LBOUND 20", "*2 :10 :0", "$2 10"),
        ("10", "INCREX k BYINT 5 UBOUND 12 SATURATE", "*2 :12 :2", "$2 12"),
        ("10", "INCREX k BYINT 5 UBOUND 5 SATURATE", "*2 :5 :-5", "$1 5"),
        ("10", "INCREX k BYINT -5 LBOUND 20 SATURATE", "*2 :20 :10", "$2 20"),
        ("9223372036854775807", "INCREX k", "*2 :9223372036854775807 :0", "$19 9223372036854775807"),
        (
            "9223372036854775800",
            "INCREX k BYINT 10 SATURATE",
            "*2 :9223372036854775807 :7",
            "$19 9223372036854775807",
        ),
        ("-10", "INCREX k BYINT -9223372036854775807 LBOUND -100 SATURATE", "*2 :-100 :-90", "$4 -100"),
        ("10", "INCREX k BYFLOAT 5.5 UBOUND 12.5", "*2 $2 10 $1 0", "$2 10"),
        ("10", "INCREX k BYFLOAT 5.5 UBOUND 12.5 SATURATE", "*2 $4 12.5 $3 2.5", "$4 12.5"),
        ("10", "INCREX k BYFLOAT 1e4932 UBOUND 100 SATURATE", "*2 $3 100 $2 90", "$3 100"),
        ("10", "INCREX k BYFLOAT -1e4932 LBOUND -100", "*2 $2 10 $1 0", "$2 10"),
        ("10", "INCREX k BYFLOAT 1.0 LBOUND inf UBOUND inf", "*2 $2 10 $1 0", "$2 10"),
        ("10", "INCREX k BYFLOAT 1.0 UBOUND inf", "*2 $2 11 $1 1", "$2 11"),
        ("", "INCREX k UBOUND 0", "*2 :0 :0", "$-1"),
        ("", "INCREX k UBOUND 0 SATURATE", "*2 :0 :0", "$1 0"),
        ("", "INCREX k LBOUND 5 SATURATE", "*2 :5 :5", "$1 5"),
        ("5", "INCREX k EXAT 1", "*2 :6 :1", "$-1"),
        ("", "INCREX k EXAT 1", "*2 :1 :1", "$-1"),
        ("10", "INCREX k EXAT 100 ENX", "*2 :11 :1", "$-1"),
    ];

    #[test]
    fn numbers_stay_within_their_bounds() {
        for (before, line, reply, after) in CASES {
            let mut bench = Bench::new();
            if !before.is_empty() {
                bench.run(&format!("SET k {before}"));
            }
            bench.expect(line, reply);
            bench.expect("GET k", after);
        }
        let mut bench = Bench::new();
        bench.protocol = Protocol::Resp3;
        bench.expect("INCREX k BYFLOAT 2.5", "*2 ,2.5 ,2.5");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let mut bench = Bench::new();
        let mut check = |before: &str, lines: &[&str], error: &str| {
            bench.run(&format!("SET k {before}"));
            for line in lines {
                bench.expect(line, error);
                bench.expect("GET k", &format!("${} {before}", before.len()));
            }
        };
        check(
            "10",
            &[
                "INCREX k NX XX",
                "INCREX k BYINT 1 BYFLOAT 1.0",
                "INCREX k BYINT",
                "INCREX k LBOUND",
                "INCREX k EX 10 PERSIST",
                "INCREX k PERSIST EX 10",
                "INCREX k ENX PERSIST",
                "INCREX k EX 1 PX 1",
                "INCREX k 5",
            ],
            "-ERR syntax error",
        );
        check("10", &["INCREX k ENX"], "-ERR ENX flag requires an expiration");
        check("10", &["INCREX k EX 0"], "-ERR invalid expire time in 'increx' command");
        check("10", &["INCREX k BYINT abc"], "-ERR Increment is not an integer or out of range");
        check(
            "10",
            &["INCREX k BYFLOAT abc", "INCREX k BYFLOAT nan", "INCREX k BYFLOAT 1e99999"],
            "-ERR Increment is not a valid float",
        );
        check("10", &["INCREX k BYFLOAT +inf"], "-ERR BYFLOAT increment cannot be Infinity");
        check("inf", &["INCREX k BYFLOAT 1"], "-ERR value cannot be Infinity");
        check("inf", &["INCREX k BYINT 1"], "-ERR value is not an integer or out of range");
        check("abc", &["INCREX k BYFLOAT 1"], "-ERR value is not a valid float");
        check(
            "10",
            &[
                "INCREX k LBOUND 20 UBOUND 0",
                "INCREX k BYFLOAT 1.0 UBOUND -inf",
                "INCREX k BYFLOAT 1.0 LBOUND inf",
            ],
            "-ERR LBOUND can't be greater than UBOUND",
        );
        check("10", &["INCREX k UBOUND inf"], "-ERR UBOUND is not an integer or out of range");
        check("10", &["INCREX k BYFLOAT 1 LBOUND abc"], "-ERR LBOUND is not a valid float");
        check(
            "9223372036854775807",
            &["INCREX k BYINT -5 UBOUND -9223372036854775808 SATURATE"],
            "-ERR applied increment would overflow",
        );
        check(
            "10",
            &["INCREX k BYFLOAT 1.0 LBOUND inf UBOUND inf SATURATE"],
            "-ERR applied increment would be Infinity",
        );
        bench.run("RPUSH l a");
        bench.expect("INCREX l EXAT 1", "-WRONGTYPE Operation against a key holding the wrong kind of value");
    }

    #[test]
    fn expiries_are_set_kept_and_removed() {
        let mut bench = Bench::new();
        for (before, line, seconds) in [
            ("", "INCREX k EX 100 BYFLOAT 2.5", 100),
            ("10", "INCREX k PX 100000", 100),
            ("10", "INCREX k EX 100 ENX", 100),
            ("10 EX 500", "INCREX k EX 100 ENX", 500),
            ("10 EX 500", "INCREX k EXAT 100 ENX", 500),
            ("10 EX 500", "INCREX k", 500),
            ("10 EX 500", "INCREX k UBOUND 5 EX 100", 500),
            ("10", "INCREX k UBOUND 5 EX 100", -1),
            ("10", "INCREX k UBOUND 10 SATURATE EX 100", 100),
            ("10 EX 500", "INCREX k PERSIST", -1),
            ("10 EX 500", "INCREX k UBOUND 5 PERSIST", 500),
            ("", "INCREX k PERSIST", -1),
        ] {
            bench.run("DEL k");
            if !before.is_empty() {
                bench.run(&format!("SET k {before}"));
            }
            bench.run(line);
            bench.expect("TTL k", &format!(":{seconds}"));
        }
        bench.check_roll_back(&[
            "INCREX k EX 5",
            "INCREX k BYFLOAT 0.5 PERSIST",
            "INCREX k EXAT 1",
            "INCREX k",
        ]);
    }
}
