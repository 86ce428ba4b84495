//! The mark of keys that stay when memory is short: eviction passes them by. STICK is Dragonfly's.

use crate::error::CommandError;
use crate::spec::{Access, Arity, Command, KeyPart, flags};
use crate::{Args, Ctx};

const MARKS: Command = Command {
    since: "7.0.0",
    arity: Arity::AtLeast(2),
    keys: KeyPart::ALL_WRITE,
    access: Access::Write,
    flags: flags::FAST,
    complexity: "O(N) where N is the number of keys.",
    syntax: "key...",
    ..Command::BASE
};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "stick",
        summary: "Makes keys sticky, so that they are never evicted. They still expire.",
        run: |ctx, args| set_sticky_keys(ctx, args, true),
        ..MARKS
    },
    Command {
        name: "unstick",
        summary: "Makes keys no longer sticky.",
        run: |ctx, args| set_sticky_keys(ctx, args, false),
        ..MARKS
    },
];

/// Counts the keys that were not so before.
fn set_sticky_keys(ctx: &mut Ctx<'_>, args: Args<'_>, sticky: bool) -> Result<(), CommandError> {
    let changed = args.rest(1).iter().filter(|key| ctx.set_sticky(key, sticky)).count();
    ctx.out.count(changed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn the_mark_is_counted_once_and_can_be_taken() {
        let mut bench = Bench::new();
        bench.run("MSET a 1 b 2");
        bench.expect("STICK a none a", ":1");
        bench.expect("OBJECT STICKY a", ":1");
        bench.expect("OBJECT STICKY b", ":0");
        bench.expect("OBJECT STICKY none", "$-1");
        bench.expect("STICK a b", ":1");
        bench.expect("UNSTICK a none", ":1");
        bench.expect("UNSTICK a", ":0");
        let sticky = bench.partition.databases[0].sticky();
        assert_eq!((sticky.keys, 2 * sticky.bytes), (1, bench.partition.bytes()));
    }

    #[test]
    fn the_mark_belongs_to_the_key_until_another_takes_its_place() {
        let mut bench = Bench::new();
        for (line, kept) in [
            ("SET k 1", 1),
            ("APPEND k x", 1),
            ("SET k 1 NX", 1),
            ("EXPIRE k 100", 1),
            ("SET plain 1", 1),
            ("COPY k copied", 1),
            ("COPY plain k REPLACE", 0),
            ("SET k 1 EX 100 STICK GET", 1),
            ("RENAME plain k", 0),
            ("RENAME copied k", 1),
            ("MOVE k 3", -1),
            ("SET k 1", 0),
            ("SET k 1 XX STICK NX", 0),
            ("SET k 1 NX STICK", 0),
            ("SET k 1 STICK STICK", 1),
        ] {
            if line == "SET k 1" && kept == 1 {
                bench.run("SET k 0 STICK");
            }
            bench.run(line);
            let wanted = if kept < 0 { "$-1".to_owned() } else { format!(":{kept}") };
            assert_eq!(bench.run("OBJECT STICKY k"), wanted, "after {line}");
        }
        bench.db = 3;
        bench.expect("OBJECT STICKY k", ":1");
    }

    #[test]
    fn every_change_of_the_mark_can_be_taken_back() {
        let mut bench = Bench::new();
        bench.run("SET sticky 1 STICK");
        bench.run("SET plain 2");
        bench.check_roll_back(&["STICK plain", "UNSTICK sticky plain", "STICK sticky"]);
        bench.check_roll_back(&["RENAME sticky plain", "STICK plain", "DEL plain"]);
        bench.check_roll_back(&["COPY sticky plain REPLACE", "COPY plain sticky REPLACE", "SET new 1 STICK"]);
        bench.check_roll_back(&["SET plain 5 STICK", "INCR sticky", "UNSTICK sticky", "FLUSHDB"]);
        let before = bench.partition.databases[0].sticky();
        bench.check_roll_back(&["UNSTICK sticky", "DEL sticky", "SET sticky 3"]);
        assert_eq!(bench.partition.databases[0].sticky(), before);
    }
}
