//! MEMORY: what a key takes.

use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, Group, KeyPart};
use crate::{Args, Ctx, reply};

const BASE: Command =
    Command { group: Group::Server, since: "4.0.0", keys: KeyPart::NONE, syntax: "", ..Command::BASE };

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[Command {
    name: "memory",
    arity: Arity::AtLeast(2),
    summary: "A container for memory diagnostics commands.",
    complexity: "Depends on subcommand.",
    subcommands: SUBCOMMANDS,
    help: HELP,
    ..BASE
}];

static SUBCOMMANDS: &[Command] = &[
    Command {
        name: "help",
        routing: crate::Routing::Anywhere,
        summary: "Returns helpful text about the different subcommands.",
        run: help,
        ..BASE
    },
    Command {
        name: "usage",
        arity: Arity::AtLeast(3),
        keys: &[KeyPart::one(2, Access::Read)],
        summary: "Estimates the memory usage of a key.",
        syntax: "key SAMPLES=count:int?",
        run: usage,
        ..BASE
    },
];

/// The exact count, so the number of samples is only checked.
fn usage(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut cursor = args.cursor(3);
    while !cursor.is_done() {
        if cursor.remaining() < 2 || !cursor.flag("SAMPLES") {
            return Err(error::SYNTAX);
        }
        if cursor.integer()? < 0 {
            return Err(error::SYNTAX);
        }
    }
    let now_ms = ctx.now_ms;
    let space = ctx.keyspace(args[2]);
    match space.find(args[2], now_ms).map(|at| space.bytes_at(at)) {
        Some(bytes) => ctx.out.count(bytes),
        None => ctx.out.null(),
    }
    Ok(())
}

/// What MEMORY HELP tells.
const HELP: &str = "\
DOCTOR
    Return memory problems reports.
MALLOC-STATS
    Return internal statistics report from the memory allocator.
PURGE
    Attempt to purge dirty pages for reclamation by the allocator.
STATS
    Return information about the memory usage of the server.
USAGE <key> [SAMPLES <count>]
    Return memory in bytes used by <key> and its value. Nested values are
    sampled up to <count> times (default: 5, 0 means sample all).";

fn help(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<(), CommandError> {
    reply::help(ctx.out, "MEMORY", HELP);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn keys_take_what_the_account_says() {
        let mut bench = Bench::new();
        bench.run("RPUSH list a b c");
        let bytes = bench.partition.bytes();
        bench.expect("MEMORY USAGE list", &format!(":{bytes}"));
        bench.expect("MEMORY USAGE list SAMPLES 0", &format!(":{bytes}"));
        bench.expect("MEMORY USAGE none", "$-1");
        bench.expect("MEMORY USAGE list SAMPLES", "-ERR syntax error");
        bench.expect("MEMORY USAGE list SAMPLES -1", "-ERR syntax error");
        bench.expect("MEMORY USAGE list SAMPLES x", "-ERR value is not an integer or out of range");
    }
}
