//! Pops that wait: of lists and of sorted sets. Here each makes one attempt and answers null if there is nothing;
//! [`crate::wait`] says what ends the waiting.

use super::zset::pop::End;
use super::{list, zset};
use crate::cost::Cost;
use crate::error::CommandError;
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::timeout::timeout_ms;
use crate::value::ZSet;
use crate::{Args, Ctx};

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "blpop",
        summary: "Removes and returns the first element of a list. Blocks until there is one.",
        cost: Cost::Constant,
        run: |ctx, args| pop(ctx, args, true),
        ..POPS
    },
    Command {
        name: "brpop",
        summary: "Removes and returns the last element of a list. Blocks until there is one.",
        cost: Cost::Constant,
        run: |ctx, args| pop(ctx, args, false),
        ..POPS
    },
    Command {
        name: "blmove",
        since: "6.2.0",
        arity: Arity::Exactly(6),
        summary: "Moves an element from an end of a list to an end of another or the same list. Blocks until \
                  there is one.",
        syntax: "source:key destination:key wherefrom(LEFT | RIGHT) whereto(LEFT | RIGHT) timeout:double",
        cost: Cost::Constant,
        run: |ctx, args| {
            let (from, to) = (list::end_named(args[3])?, list::end_named(args[4])?);
            timeout_ms(args[5])?;
            list::move_element(ctx, args[1], args[2], from, to)
        },
        ..MOVES
    },
    Command {
        name: "brpoplpush",
        since: "2.2.0",
        arity: Arity::Exactly(4),
        summary: "Moves the last element of a list to the front of another or the same list. Blocks until there \
                  is one.",
        syntax: "source:key destination:key timeout:double",
        cost: Cost::Constant,
        run: |ctx, args| {
            timeout_ms(args[3])?;
            list::move_element(ctx, args[1], args[2], false, true)
        },
        ..MOVES
    },
    Command {
        name: "blmpop",
        summary: "Removes and returns elements of the first list that exists. Blocks until there is one.",
        complexity: "O(N+M) where N is the number of keys and M the number of elements returned.",
        syntax: "timeout:double numkeys:int key... where(LEFT | RIGHT) COUNT=count:int?",
        run: |ctx, args| {
            let call = list::MultiPop::parse(args, 2)?;
            timeout_ms(args[1])?;
            if !call.perform(ctx)? {
                ctx.out.null_array();
            }
            Ok(())
        },
        ..COUNTED
    },
    Command {
        name: "bzpopmax",
        summary: "Removes and returns the member with the highest score. Blocks until there is one.",
        cost: Cost::Constant,
        run: |ctx, args| pop_scored(ctx, args, End::Max),
        ..SCORED_POPS
    },
    Command {
        name: "bzpopmin",
        summary: "Removes and returns the member with the lowest score. Blocks until there is one.",
        cost: Cost::Constant,
        run: |ctx, args| pop_scored(ctx, args, End::Min),
        ..SCORED_POPS
    },
    Command {
        name: "bzmpop",
        group: Group::SortedSet,
        summary: "Removes and returns members from an end of the first sorted set that exists. Blocks until \
                  there is one.",
        complexity: "O(K)+O(M*log(N)) with K the number of keys, N the size of the sorted set and M the number of \
                     members removed.",
        syntax: "timeout:double numkeys:int key... where(MIN | MAX) COUNT=count:int?",
        run: |ctx, args| {
            let call = zset::pop::MultiPop::parse(args, 2)?;
            timeout_ms(args[1])?;
            call.perform(ctx)
        },
        ..COUNTED
    },
];

const POPS: Command = Command {
    since: "2.0.0",
    group: Group::List,
    arity: Arity::AtLeast(3),
    keys: &[KeyPart::Range { first: 1, last: -2, step: 1, access: Access::Write }],
    access: Access::Write,
    // Not for those with a number of keys: so it is in Redis 7.0.
    flags: flags::BLOCKING | flags::NO_SCRIPT,
    complexity: "O(N) where N is the number of keys.",
    syntax: "key... timeout:double",
    ..Command::BASE
};
const MOVES: Command = Command {
    keys: &[KeyPart::one(1, Access::Write), KeyPart::one(2, Access::Write)],
    flags: POPS.flags | flags::DENY_OOM,
    complexity: "O(1)",
    ..POPS
};
const SCORED_POPS: Command = Command {
    since: "5.0.0",
    group: Group::SortedSet,
    flags: POPS.flags | flags::FAST,
    complexity: "O(log(N)) with N the size of the sorted set.",
    ..POPS
};
const COUNTED: Command = Command {
    since: "7.0.0",
    arity: Arity::AtLeast(5),
    keys: &[KeyPart::Counted { count_at: 2, first: 3, step: 1, access: Access::Write }],
    flags: flags::BLOCKING | flags::MOVABLE_KEYS,
    ..POPS
};

/// The keys of a call that ends with its timeout, which must be valid.
fn keys<'a>(args: Args<'a>) -> Result<&'a [&'a [u8]], CommandError> {
    let last = args.len() - 1;
    timeout_ms(args[last])?;
    Ok(&args.items()[1..last])
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, front: bool) -> Result<(), CommandError> {
    for key in keys(args)? {
        let found = list::take(ctx, key, front, 1, |out, _| {
            out.array(2);
            out.bulk(key);
        })?;
        if found {
            return Ok(());
        }
    }
    ctx.out.null_array();
    Ok(())
}

fn pop_scored(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Result<(), CommandError> {
    for key in keys(args)? {
        if ctx.read::<ZSet>(key)?.is_some() {
            return zset::pop::take(ctx, key, end, 1, false, |out, _| {
                out.array(3);
                out.bulk(key);
            });
        }
    }
    ctx.out.null_array();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn an_attempt_takes_from_the_first_key_that_is_there() {
        let mut bench = Bench::new();
        bench.run("RPUSH l a b c d");
        bench.run("ZADD z 1 x 2 y 3 w");
        bench.expect("BLPOP none l 0", "*2 $1 l $1 a");
        bench.expect("BRPOP l none 0", "*2 $1 l $1 d");
        bench.expect("BLMOVE l m LEFT RIGHT 0", "$1 b");
        bench.expect("BLMPOP 0 2 none l LEFT COUNT 9", "*2 $1 l *1 $1 c");
        bench.expect("BRPOPLPUSH m l 0", "$1 b");
        bench.expect("BZPOPMIN none z 0", "*3 $1 z $1 x $1 1");
        bench.expect("BZPOPMAX z 0", "*3 $1 z $1 w $1 3");
        bench.expect("BZMPOP 0 1 z MAX", "*2 $1 z *1 *2 $1 y $1 2");
    }

    #[test]
    fn an_attempt_that_finds_nothing_answers_null() {
        let mut bench = Bench::new();
        bench.expect("BLPOP a b 0", "*-1");
        bench.expect("BLMOVE a b LEFT LEFT 0", "$-1");
        bench.expect("BRPOPLPUSH a b 0", "$-1");
        bench.expect("BLMPOP 0 1 a LEFT", "*-1");
        bench.expect("BZPOPMIN a 0", "*-1");
        bench.expect("BZMPOP 0 1 a MIN", "*-1");
    }

    #[test]
    fn what_is_wrong_is_named_in_the_order_of_redis() {
        let mut bench = Bench::new();
        bench.run("SET s v");
        let (not_a_float, syntax) = ("-ERR timeout is not a float or out of range", "-ERR syntax error");
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        for (line, wanted) in [
            ("BLPOP s x", not_a_float),
            ("BLPOP none s 0", wrong_type),
            ("BZPOPMIN s 0", wrong_type),
            ("BLMOVE s b UP LEFT x", syntax),
            ("BLMOVE s b LEFT LEFT x", not_a_float),
            ("BLMPOP x 0 a LEFT", "-ERR numkeys should be greater than 0"),
            ("BLMPOP x 1 a LEFT COUNT 0", "-ERR count should be greater than 0"),
            ("BLMPOP x 2 a LEFT", syntax),
            ("BLMPOP x 1 s LEFT", not_a_float),
            ("BZMPOP x 1 s LEFT", syntax),
            ("BZMPOP -1 1 s MIN", "-ERR timeout is negative"),
            ("BZMPOP 0 1 s MIN", wrong_type),
        ] {
            bench.expect(line, wanted);
        }
    }
}
