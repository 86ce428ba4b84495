//! Commands on keys of any type.

pub mod dump;
pub mod expire;
pub mod keyspace;
pub mod memory;
pub mod object;
pub mod sticky;

use crate::cost::{Cost, Size};
use crate::error::{self, CommandError};
use crate::spec::{Access, Arity, Command, KeyPart, Routing, flags};
use crate::{Args, Ctx, DATABASES};

const FAST: Command = Command { flags: flags::FAST, ..Command::BASE };
const WRITES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..Command::BASE };
const TWO: &[KeyPart] = &[KeyPart::Range { first: 1, last: 2, step: 1, access: Access::Write }];
const FROM_TO: &[KeyPart] = &[KeyPart::one(1, Access::Read), KeyPart::one(2, Access::Write)];

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "copy",
        since: "6.2.0",
        arity: Arity::AtLeast(3),
        keys: FROM_TO,
        flags: flags::DENY_OOM,
        routing: Routing::ByKeyUnless(&["db"]),
        summary: "Copies the value of a key to a new key.",
        complexity: "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
        syntax: "source:key destination:key DB=destination-db:int? REPLACE?",
        run: copy,
        ..WRITES
    },
    Command {
        name: "del",
        arity: Arity::AtLeast(2),
        keys: KeyPart::ALL_WRITE,
        summary: "Deletes one or more keys.",
        complexity: "O(N) where N is the number of keys that will be removed.",
        syntax: "key...",
        run: del,
        ..WRITES
    },
    Command {
        name: "exists",
        arity: Arity::AtLeast(2),
        keys: KeyPart::ALL_READ,
        summary: "Determines whether one or more keys exist.",
        complexity: "O(N) where N is the number of keys to check.",
        syntax: "key...",
        cost: Cost::Constant,
        run: exists,
        ..FAST
    },
    Command {
        name: "move",
        arity: Arity::Exactly(3),
        flags: flags::FAST,
        // The same key of another database is no key of this call: nothing less than everything locks it.
        routing: Routing::Everywhere,
        summary: "Moves a key to another database.",
        syntax: "key db:int",
        cost: Cost::Constant,
        run: move_key,
        ..WRITES
    },
    Command {
        name: "rename",
        arity: Arity::Exactly(3),
        keys: TWO,
        summary: "Renames a key and overwrites the destination.",
        syntax: "key newkey:key",
        run: rename,
        ..WRITES
    },
    Command {
        name: "renamenx",
        arity: Arity::Exactly(3),
        keys: TWO,
        flags: flags::FAST,
        summary: "Renames a key only when the target key name doesn't exist.",
        syntax: "key newkey:key",
        cost: Cost::Constant,
        run: renamenx,
        ..WRITES
    },
    Command {
        name: "touch",
        since: "3.2.1",
        arity: Arity::AtLeast(2),
        keys: KeyPart::ALL_READ,
        summary: "Returns the number of existing keys out of those specified after updating the time they were last accessed.",
        complexity: "O(N) where N is the number of keys that will be touched.",
        syntax: "key...",
        cost: Cost::Constant,
        run: touch,
        ..FAST
    },
    Command { name: "type", summary: "Determines the type of value stored at a key.", run: type_of, ..FAST },
    Command {
        name: "unlink",
        since: "4.0.0",
        arity: Arity::AtLeast(2),
        keys: KeyPart::ALL_WRITE,
        flags: flags::FAST,
        summary: "Asynchronously deletes one or more keys.",
        complexity: "O(1) for each key removed regardless of its size.",
        syntax: "key...",
        cost: Cost::Values(1),
        run: del,
        ..WRITES
    },
];

fn del(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let removed = args.rest(1).iter().filter(|key| ctx.delete(key)).count();
    ctx.out.count(removed);
    Ok(())
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let found = args.rest(1).iter().filter(|key| ctx.peek_entry(key).is_some()).count();
    ctx.out.count(found);
    Ok(())
}

fn touch(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let found = args.rest(1).iter().filter(|key| ctx.entry(key).is_some()).count();
    ctx.out.count(found);
    Ok(())
}

fn type_of(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let name = ctx.peek_entry(args[1]).map_or("none", |entry| entry.value.type_name());
    ctx.out.status(name);
    Ok(())
}

fn rename(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if !ctx.exists(args[1]) {
        return Err(error::NO_SUCH_KEY);
    }
    if args[1] != args[2] {
        ctx.rename(args[1], ctx.db, args[2]);
    }
    ctx.out.ok();
    Ok(())
}

fn renamenx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if !ctx.exists(args[1]) {
        return Err(error::NO_SUCH_KEY);
    }
    let free = !ctx.exists(args[2]);
    if free {
        ctx.rename(args[1], ctx.db, args[2]);
    }
    ctx.out.integer(i64::from(free));
    Ok(())
}

/// Runs `work` with another database selected.
fn in_database<T>(ctx: &mut Ctx<'_>, db: usize, work: impl FnOnce(&mut Ctx<'_>) -> T) -> T {
    let selected = std::mem::replace(&mut ctx.db, db);
    let result = work(ctx);
    ctx.db = selected;
    result
}

fn database(number: i64) -> Result<usize, CommandError> {
    if i32::try_from(number).is_err() {
        return Err(CommandError::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let number = usize::try_from(number).ok().filter(|number| *number < DATABASES);
    number.ok_or(CommandError::new("ERR DB index is out of range"))
}

const SAME_OBJECT: CommandError = CommandError::new("ERR source and destination objects are the same");

fn copy(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (mut db, mut replace) = (ctx.db, false);
    let mut cursor = args.cursor(3);
    while !cursor.is_done() {
        if cursor.flag("REPLACE") {
            replace = true;
        } else if cursor.remaining() > 1 && cursor.flag("DB") {
            db = database(cursor.integer()?)?;
        } else {
            return Err(error::SYNTAX);
        }
    }
    let (work, from, to) = (ctx.work, args[1], args[2]);
    if from == to && db == ctx.db {
        return Err(SAME_OBJECT);
    }
    let wanted = ctx.entry(from).is_some() && (replace || !in_database(ctx, db, |ctx| ctx.exists(to)));
    let entry = if wanted { ctx.target(from) } else { None };
    let entry = entry.map(|entry| {
        let size = Size::of(&entry.value);
        work.step(size.steps(size.elements));
        entry.clone()
    });
    let copied = entry.is_some();
    if let Some(entry) = entry {
        in_database(ctx, db, |ctx| ctx.put_entry(to, entry));
    }
    ctx.out.integer(i64::from(copied));
    Ok(())
}

fn move_key(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = database(args.integer(2)?)?;
    if db == ctx.db {
        return Err(SAME_OBJECT);
    }
    let key = args[1];
    let moved = !in_database(ctx, db, |ctx| ctx.exists(key)) && ctx.rename(key, db, key);
    ctx.out.integer(i64::from(moved));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn keys_come_and_go() {
        let mut bench = Bench::new();
        bench.run("MSET a 1 b 2");
        bench.expect("EXISTS a b c a", ":3");
        bench.expect("TYPE a", "+string");
        bench.expect("TYPE none", "+none");
        bench.expect("DEL a c", ":1");
        bench.expect("UNLINK b", ":1");
        bench.expect("DBSIZE", ":0");
    }

    #[test]
    fn renaming_takes_the_expiry_along() {
        let mut bench = Bench::new();
        bench.run("SET a 1 EX 100");
        bench.expect("RENAME a b", "+OK");
        bench.expect("TTL b", ":100");
        bench.expect("RENAME a b", "-ERR no such key");
        bench.run("SET c 1");
        bench.expect("RENAMENX b c", ":0");
        bench.expect("RENAME c c", "+OK");
    }

    #[test]
    fn copies_and_moves() {
        let mut bench = Bench::new();
        bench.run("SET a 1");
        bench.expect("COPY a b", ":1");
        bench.expect("COPY a b", ":0");
        bench.expect("COPY a a", "-ERR source and destination objects are the same");
        bench.expect("COPY a a DB 3", ":1");
        bench.expect("COPY a a DB 16", "-ERR DB index is out of range");
        bench.expect("MOVE a 3", ":0");
        bench.expect("MOVE b 3", ":1");
        bench.db = 3;
        bench.expect("DBSIZE", ":2");
    }

    #[test]
    fn every_change_can_be_taken_back() {
        let mut bench = Bench::new();
        bench.run("MSET a 1 b 2 c 3");
        bench.run("PEXPIRE b 5000");
        bench.check_roll_back(&[
            "RENAME a x",
            "DEL b",
            "COPY c y",
            "COPY c c DB 2",
            "MOVE c 4",
            "EXPIRE x 10",
            "PERSIST x",
            "FLUSHDB",
            "SET z 1",
            "FLUSHALL",
        ]);
    }
}
