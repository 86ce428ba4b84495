//! HyperLogLog: how many different elements there were, about.

use crate::ctx::Expiry;
use crate::edit::Editor;
use crate::error::CommandError;
use crate::hyperloglog::{self as hll, CARD_AT, Corrupt, Encoding, REGISTERS};
use crate::spec::{Access, Arity, Command, Group, KeyPart, Routing, flags};
use crate::value::Str;
use crate::{Args, Ctx, Value};

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "pfadd",
        flags: flags::DENY_OOM | flags::FAST,
        summary: "Adds elements to a HyperLogLog. The key is created if it doesn't exist.",
        complexity: "O(1) for each element.",
        syntax: "key element...?",
        run: add,
        ..HYPERLOGLOG
    },
    Command {
        name: "pfcount",
        keys: KeyPart::ALL_WRITE,
        flags: flags::KEEPS_RESULT,
        summary: "Returns the approximate number of distinct elements of one HyperLogLog or of the union of several.",
        complexity: "O(1) for one key, O(N) for N keys, which takes longer.",
        syntax: "key...",
        run: count,
        ..HYPERLOGLOG
    },
    Command {
        name: "pfmerge",
        keys: &[
            KeyPart::one(1, Access::Write),
            KeyPart::Range { first: 2, last: -1, step: 1, access: Access::Read },
        ],
        flags: flags::DENY_OOM,
        summary: "Merges HyperLogLogs into one.",
        complexity: "O(N) for N HyperLogLogs, each of which takes long.",
        syntax: "destkey:key sourcekey:key...",
        run: merge,
        ..HYPERLOGLOG
    },
    Command {
        name: "pfdebug",
        arity: Arity::Exactly(3),
        keys: &[KeyPart::one(2, Access::Write)],
        flags: flags::DENY_OOM | flags::ADMIN | flags::DANGEROUS,
        summary: "Returns the internal representation of a HyperLogLog.",
        complexity: "O(N) where N is the number of registers.",
        syntax: "subcommand key",
        run: debug,
        ..HYPERLOGLOG
    },
    Command {
        name: "pfselftest",
        arity: Arity::Exactly(1),
        keys: KeyPart::NONE,
        access: Access::Read,
        flags: flags::ADMIN | flags::DANGEROUS,
        routing: Routing::Anywhere,
        summary: "Runs a self-test of HyperLogLogs.",
        complexity: "O(1)",
        syntax: "",
        run: self_test,
        ..HYPERLOGLOG
    },
];

const HYPERLOGLOG: Command = Command {
    group: Group::HyperLogLog,
    since: "2.8.9",
    arity: Arity::AtLeast(2),
    keys: KeyPart::FIRST_WRITE,
    access: Access::Write,
    ..Command::BASE
};

const NOT_ONE: CommandError = CommandError::new("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupt> for CommandError {
    fn from(Corrupt: Corrupt) -> CommandError {
        CommandError::new("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// The bytes of a HyperLogLog and their encoding.
fn known(text: &Str) -> Result<(&[u8], Encoding), CommandError> {
    let Str::Raw(bytes) = text else { return Err(NOT_ONE) };
    hll::encoding(bytes).map(|encoding| (&**bytes, encoding)).ok_or(NOT_ONE)
}

/// Makes a string another one, of which only what differs is recorded.
fn put_difference(text: &mut Editor<'_, Str>, new: &[u8]) {
    let old = text.as_bytes();
    let same =
        |pairs: &mut dyn Iterator<Item = (&u8, &u8)>| pairs.take_while(|(old, new)| old == new).count();
    let at = same(&mut old.iter().zip(new));
    let behind = match old.len() == new.len() {
        true => same(&mut old[at..].iter().rev().zip(new.iter().rev())),
        false => 0,
    };
    let shrinks = new.len() < old.len();
    drop(old);
    if shrinks {
        text.replace(new);
    } else if at + behind < new.len() {
        text.write_at(at, &new[at..new.len() - behind]);
    }
}

/// Says that the count which was last found holds no more.
fn make_stale(text: &mut [u8]) {
    let (at, byte) = hll::stale(text);
    text[at] = byte;
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let registers = args.rest(2).iter().map(|element| hll::register_of(element));
    let limit = ctx.keyspace(args[1]).sparse_limit();
    let raise_all = |text: &mut Vec<u8>, registers: &mut dyn Iterator<Item = (usize, u8)>| {
        let mut raised = false;
        for (register, value) in registers {
            raised |= hll::raise(text, register, value, limit)?;
        }
        Ok::<bool, Corrupt>(raised)
    };
    let Some(mut text) = ctx.edit(args[1]).existing::<Str>()? else {
        let mut new = hll::empty();
        raise_all(&mut new, &mut registers.into_iter())?;
        make_stale(&mut new);
        ctx.put(args[1], Value::String(Str::Raw(new)), Expiry::Clear);
        ctx.out.integer(1);
        return Ok(());
    };
    let (bytes, encoding) = known(&text)?;
    let mut raised = false;
    match encoding {
        Encoding::Sparse => {
            let mut new = bytes.to_vec();
            raised = raise_all(&mut new, &mut registers.into_iter())?;
            if raised {
                make_stale(&mut new);
                put_difference(&mut text, &new);
            }
        }
        Encoding::Dense => {
            for (register, value) in registers {
                let bytes = known(&text)?.0;
                if hll::dense(bytes, register) < value {
                    let (at, written, len) = hll::dense_with(bytes, register, value);
                    text.write_at(at, &written[..len]);
                    raised = true;
                }
            }
            let bytes = known(&text)?.0;
            if raised && hll::cached(bytes).is_some() {
                let (at, byte) = hll::stale(bytes);
                text.write_at(at, &[byte]);
            }
        }
    }
    drop(text);
    ctx.out.integer(raised.into());
    Ok(())
}

/// The registers of several keys, each as high as the highest, and whether one of them is dense.
fn union(ctx: &mut Ctx<'_>, keys: &[&[u8]]) -> Result<([u8; REGISTERS], bool), CommandError> {
    let (mut registers, mut some_dense) = ([0; REGISTERS], false);
    let work = ctx.work;
    for key in keys {
        work.step_bytes(REGISTERS);
        let Some(text) = ctx.read::<Str>(key)? else { continue };
        let (bytes, encoding) = known(text)?;
        some_dense |= encoding == Encoding::Dense;
        hll::merge(&mut registers, bytes)?;
    }
    Ok((registers, some_dense))
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let found = if args.len() > 2 {
        hll::count_registers(&union(ctx, args.rest(1))?.0)
    } else {
        let cached = match ctx.read::<Str>(args[1])? {
            None => Some(0),
            Some(text) => hll::cached(known(text)?.0),
        };
        match (cached, ctx.edit(args[1]).existing::<Str>()?) {
            (Some(found), _) => found,
            (None, None) => 0,
            (None, Some(mut text)) => {
                let found = hll::count(known(&text)?.0)?;
                text.write_at(CARD_AT, &found.to_le_bytes());
                found
            }
        }
    };
    ctx.out.integer(found.cast_signed());
    Ok(())
}

fn merge(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (registers, dense) = union(ctx, args.rest(1))?;
    let limit = ctx.keyspace(args[1]).sparse_limit();
    let mut new = match ctx.edit(args[1]).existing::<Str>()? {
        Some(text) => known(&text)?.0.to_vec(),
        None => hll::empty(),
    };
    if dense {
        hll::make_dense(&mut new)?;
    }
    for (register, value) in registers.into_iter().enumerate().filter(|(_, value)| *value > 0) {
        hll::raise(&mut new, register, value, limit)?;
    }
    make_stale(&mut new);
    if let Some(mut text) = ctx.edit(args[1]).existing::<Str>()? {
        // Told even if nothing is new, as by Redis.
        text.touch();
        put_difference(&mut text, &new);
    } else {
        ctx.put(args[1], Value::String(Str::Raw(new)), Expiry::Clear);
    }
    ctx.out.ok();
    Ok(())
}

fn debug(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let word = args[1].to_ascii_lowercase();
    let Some((mut text, out)) = ctx.edit(args[2]).existing_and_reply::<Str>()? else {
        return Err(CommandError::new("ERR The specified key does not exist"));
    };
    let (bytes, encoding) = known(&text)?;
    let mut dense = bytes.to_vec();
    match &*word {
        b"encoding" => out.status(if encoding == Encoding::Dense { "dense" } else { "sparse" }),
        b"decode" if encoding == Encoding::Sparse => {
            let spelled = |run: hll::RegisterRun| match (run.value, run.is_wide()) {
                (0, false) => format!("z:{}", run.len),
                (0, true) => format!("Z:{}", run.len),
                (value, _) => format!("v:{value},{}", run.len),
            };
            out.bulk(hll::runs(bytes).map(spelled).collect::<Vec<_>>().join(" ").as_bytes());
        }
        b"decode" => return Err(CommandError::new("ERR HLL encoding is not sparse")),
        b"getreg" | b"todense" => {
            hll::make_dense(&mut dense)?;
            if word == b"getreg" {
                out.array(REGISTERS);
                (0..REGISTERS).for_each(|register| out.integer(hll::dense(&dense, register).into()));
            } else {
                out.integer((encoding == Encoding::Sparse).into());
            }
            if encoding == Encoding::Sparse {
                put_difference(&mut text, &dense);
            }
        }
        _ => {
            let word = String::from_utf8_lossy(args[1]);
            return Err(CommandError::owned(format!("ERR Unknown PFDEBUG subcommand '{word}'")));
        }
    }
    Ok(())
}

/// Counts of sparse and dense ones agree, and are near what they should be.
fn self_test(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    const ELEMENTS: u64 = 20_000;
    let seed = ctx.random();
    let (mut sparse, mut dense) = (hll::empty(), hll::empty());
    hll::make_dense(&mut dense)?;
    for number in 1..=ELEMENTS {
        let (register, value) = hll::register_of(&(number ^ seed).to_le_bytes());
        hll::raise(&mut sparse, register, value, hll::SparseLimit::default())?;
        hll::raise(&mut dense, register, value, hll::SparseLimit::default())?;
        if !number.is_power_of_two() {
            continue;
        }
        let (one, other) = (hll::count(&sparse)?, hll::count(&dense)?);
        if one != other {
            return Err(CommandError::new("ERR TESTFAILED dense/sparse disagree"));
        }
        // Six times the error that is expected.
        let error = number.abs_diff(one);
        if error as f64 > (number as f64 * 6.0 * 1.04 / (REGISTERS as f64).sqrt()).ceil() + 1.0 {
            return Err(CommandError::owned(format!(
                "ERR TESTFAILED Too big error. card:{number} abserr:{error}"
            )));
        }
    }
    ctx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::hyperloglog::SparseLimit;
    use crate::testing::Bench;

    #[test]
    fn elements_are_counted_once() {
        let mut bench = Bench::new();
        bench.expect("PFADD h a b c", ":1");
        bench.expect("PFADD h a b c", ":0");
        bench.expect("PFCOUNT h", ":3");
        bench.expect("PFADD h d", ":1");
        bench.expect("PFCOUNT h", ":4");
        bench.expect("PFADD other", ":1");
        bench.expect("PFADD other", ":0");
        bench.expect("PFADD other d e", ":1");
        bench.expect("PFCOUNT h other none", ":5");
        bench.expect("PFMERGE both h other none", "+OK");
        bench.expect("PFCOUNT both", ":5");
        bench.expect("PFCOUNT none", ":0");
        bench.expect("STRLEN both", ":33");
        bench.expect("PFSELFTEST", "+OK");
    }

    #[test]
    fn a_sparse_one_becomes_dense() {
        let mut bench = Bench::new();
        for number in 0..50 {
            bench.run(&format!("PFADD h {number}"));
            bench.run(&format!("PFADD small {number}"));
        }
        bench.expect("PFDEBUG ENCODING h", "+sparse");
        bench.partition.databases[0].set_sparse_limit(SparseLimit(100));
        bench.run("PFADD h 100");
        bench.expect("PFDEBUG ENCODING h", "+dense");
        bench.expect("PFCOUNT h", ":51");
        bench.check_roll_back(&[
            "PFADD h x y z",
            "PFMERGE small h",
            "PFCOUNT h",
            "PFADD new a",
            "PFCOUNT new",
        ]);
        bench.check_roll_back(&[
            "PFADD small x y z",
            "PFDEBUG TODENSE small",
            "PFMERGE h small",
            "PFADD h q",
        ]);
        bench.partition.databases[0].set_sparse_limit(SparseLimit::default());
        bench.check_roll_back(&["PFADD small x y z", "PFCOUNT small", "PFMERGE small n"]);
        bench.expect("PFDEBUG TODENSE small", ":1");
        bench.expect("PFDEBUG TODENSE small", ":0");
        bench.expect("PFDEBUG DECODE small", "-ERR HLL encoding is not sparse");
        bench.expect("PFDEBUG DECODE none", "-ERR The specified key does not exist");
        bench.expect("PFDEBUG WHAT small", "-ERR Unknown PFDEBUG subcommand 'WHAT'");
        assert!(bench.run("PFDEBUG GETREG small").starts_with("*16384 :"));
    }

    #[test]
    fn what_only_looks_like_one_is_refused() {
        let mut bench = Bench::new();
        let (other, corrupt) = (
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
            "-INVALIDOBJ Corrupted HLL object detected",
        );
        let all = |bench: &mut Bench, wanted: &str| {
            let before = bench.contents();
            for line in
                ["PFADD k a", "PFCOUNT k", "PFCOUNT k none", "PFMERGE d k", "PFMERGE k d", "PFDEBUG GETREG k"]
            {
                bench.expect(line, wanted);
            }
            assert_eq!(bench.contents(), before);
        };
        for text in [
            &b"12"[..],
            b"text",
            b"1234567890123456",
            b"HYLL",
            b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0",
            &[b'H'; 12304],
        ] {
            bench.call(&[b"SET", b"k", text]);
            all(&mut bench, other);
        }
        // No register at all, and the count that is kept is void.
        let mut text = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
        bench.call(&[b"SET", b"k", &text]);
        all(&mut bench, corrupt);
        for end in [&b"\x40"[..], b"\x7f\xfe", b"\x7f\xff\x84"] {
            text.truncate(16);
            text.extend_from_slice(end);
            bench.call(&[b"SET", b"k", &text]);
            bench.expect("PFCOUNT k", corrupt);
            bench.expect("PFCOUNT k none", corrupt);
        }
        bench.run("DEL k");
        bench.run("LPUSH k a");
        bench.expect("PFADD k a", "-WRONGTYPE Operation against a key holding the wrong kind of value");
        bench.expect("PFCOUNT k", "-WRONGTYPE Operation against a key holding the wrong kind of value");
    }
}
