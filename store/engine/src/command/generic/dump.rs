//! DUMP, RESTORE and RESTORE-ASKING, which is RESTORE as a node of Redis Cluster sends it for MIGRATE: values in Redis' own
//! form, see [`crate::rdb`].

use std::io;
use std::num::NonZeroU64;

use crate::cost::Cost;
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::rdb::{self, Cause, Dialect, Fault, KeyMeta};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::work::{BYTES_PER_STEP, Work};
use crate::{Args, Ctx, Reply};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "dump",
        since: "2.6.0",
        summary: "Returns a serialized representation of the value stored at a key.",
        complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
        cost: Cost::Values(8),
        run: dump,
        ..Command::BASE
    },
    Command {
        name: "restore",
        since: "2.6.0",
        arity: Arity::AtLeast(4),
        keys: KeyPart::FIRST_WRITE,
        access: Access::Write,
        flags: flags::DENY_OOM | flags::DANGEROUS,
        cost: Cost::Arguments(|args, _| rdb::steps_to_load(args[3])),
        summary: "Creates a key from the serialized representation of a value.",
        complexity: RESTORE_COMPLEXITY,
        syntax: "key ttl:int serialized-value REPLACE@3.0.0? ABSTTL@5.0.0? IDLETIME=seconds:int@5.0.0? FREQ=frequency:int@5.0.0? STICK?",
        run: restore,
        ..Command::BASE
    },
    Command {
        name: "restore-asking",
        since: "3.0.0",
        group: Group::Server,
        arity: Arity::AtLeast(4),
        keys: KeyPart::FIRST_WRITE,
        access: Access::Write,
        flags: flags::DENY_OOM | flags::DANGEROUS,
        cost: Cost::Arguments(|args, _| rdb::steps_to_load(args[3])),
        summary: "An internal command for migrating keys in a cluster.",
        complexity: RESTORE_COMPLEXITY,
        syntax: "key ttl:int serialized-value REPLACE@3.0.0? ABSTTL@5.0.0? IDLETIME=seconds:int@5.0.0? FREQ=frequency:int@5.0.0?",
        run: restore,
        ..Command::BASE
    },
];

const RESTORE_COMPLEXITY: &str = "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).";

fn dump(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let work = ctx.work;
    ctx.reply_from_any(args[1], |value, out| {
        let Some(value) = value else { return out.null() };
        let mut unsealed = Unsealed { payload: Vec::new(), out, work };
        // Else the reply is of no use.
        if let Ok(version) = rdb::write_value(value, Dialect::Valkey, &mut unsealed) {
            let Unsealed { mut payload, out, .. } = unsealed;
            rdb::seal_as(version, &mut payload);
            out.bulk(&payload);
        }
    });
    Ok(())
}

/// A payload as it grows, until the work is cancelled or the reply over its limit.
struct Unsealed<'a> {
    payload: Vec<u8>,
    out: &'a mut Reply,
    work: &'a Work,
}

impl io::Write for Unsealed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let goes_on = self.work.step(1 + (bytes.len() / BYTES_PER_STEP) as u64);
        if !goes_on || !self.out.has_room(self.payload.len() + bytes.len()) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.payload.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    meta: KeyMeta,
}

impl RestoreOptions {
    fn parse(args: Args<'_>) -> Result<RestoreOptions, CommandError> {
        let mut options = RestoreOptions::default();
        let meta = &mut options.meta;
        let mut cursor = args.cursor(4);
        while !cursor.is_done() {
            let valued = cursor.remaining() > 1;
            if cursor.flag("REPLACE") {
                options.replace = true;
            } else if cursor.flag("ABSTTL") {
                options.absolute = true;
            } else if valued && meta.freq.is_none() && cursor.flag("IDLETIME") {
                let seconds = u64::try_from(cursor.integer()?).ok();
                meta.idle_s =
                    Some(seconds.ok_or(CommandError::new("ERR Invalid IDLETIME value, must be >= 0"))?);
            } else if valued && meta.idle_s.is_none() && cursor.flag("FREQ") {
                let freq = u8::try_from(cursor.integer()?).ok();
                meta.freq =
                    Some(freq.ok_or(CommandError::new("ERR Invalid FREQ value, must be >= 0 and <= 255"))?);
            } else if cursor.flag("STICK") {
                meta.sticky = true;
            } else {
                return Err(error::SYNTAX);
            }
        }
        Ok(options)
    }
}

fn restore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let options = RestoreOptions::parse(args)?;
    let key = args[1];
    if !options.replace && ctx.exists(key) {
        return Err(CommandError::new("BUSYKEY Target key name already exists."));
    }
    let ttl = args.integer(2)?;
    if ttl < 0 {
        return Err(CommandError::new("ERR Invalid TTL value, must be >= 0"));
    }
    ctx.work.step_bytes(args[3].len());
    let payload = rdb::unseal(args[3]).ok_or(rdb::WRONG_SEAL)?;
    let loaded = rdb::load(payload, ctx.work);
    if ctx.work.is_over_memory() {
        return Err(error::OUT_OF_MEMORY);
    }
    if ctx.work.is_cancelled() {
        return Ok(());
    }
    let value = loaded.map_err(bad_data)?;
    let expiry = match ttl {
        0 => Expiry::Clear,
        // Beyond the end of all time Redis starts again at the beginning: over long ago.
        _ => match ttl.checked_add(if options.absolute { 0 } else { ctx.now_ms as i64 }) {
            Some(at) if at as u64 > ctx.now_ms => {
                Expiry::At(NonZeroU64::new(at as u64).expect("it is later than another time"))
            }
            _ => {
                ctx.delete(key);
                ctx.out.ok();
                return Ok(());
            }
        },
    };
    ctx.put(key, value, expiry);
    ctx.set_sticky(key, options.meta.sticky);
    ctx.set_access_stats(key, options.meta.idle_s, options.meta.freq);
    ctx.out.ok();
    Ok(())
}

/// Redis says only that it is bad; that it may be right and is nothing of ours, we say.
fn bad_data(fault: Fault) -> CommandError {
    match fault.cause {
        Cause::Foreign(what) => CommandError::owned(format!("ERR Bad data format: {what} are not supported")),
        _ => CommandError::new("ERR Bad data format"),
    }
}

#[cfg(test)]
mod tests {
    use crate::rdb;
    use crate::steps::CancelFlag;
    use crate::testing::Bench;

    #[test]
    fn what_is_restored_can_be_taken_back() {
        let mut bench = Bench::new();
        let mut list = b"\x01\x02\x01a\x01b".to_vec();
        rdb::seal(&mut list);
        bench.run("SET k text PX 5000");
        assert_eq!(bench.call(&[b"RESTORE", b"k", b"0", &list]), "-BUSYKEY Target key name already exists.");
        let before = bench.contents();
        bench.undo = Some(crate::UndoLog::default());
        assert_eq!(bench.call(&[b"RESTORE", b"k", b"100", &list, b"REPLACE"]), "+OK");
        bench.expect("LRANGE k 0 -1", "*2 $1 a $1 b");
        bench.expect("PTTL k", ":100");
        assert_eq!(bench.call(&[b"RESTORE", b"new", b"0", &list, b"STICK"]), "+OK");
        assert_eq!(bench.call(&[b"RESTORE", b"k", b"1", &list, b"REPLACE", b"ABSTTL"]), "+OK");
        bench.expect("EXISTS k new", ":1");
        let mut log = bench.undo.take().expect("it was put there");
        log.roll_back(&mut crate::Partitions::One(&mut bench.partition));
        assert_eq!(bench.contents(), before);
    }

    /// A list that many elements are packed into, a few bytes long.
    fn packed_list(elements: usize) -> Vec<u8> {
        let mut pack = vec![0; 6];
        pack.extend(std::iter::repeat_n([0x01, 0x01], elements).flatten());
        pack.push(0xff);
        let size = pack.len() as u32;
        pack[..4].copy_from_slice(&size.to_le_bytes());
        pack[4..6].copy_from_slice(&[0xff; 2]);
        // Ten bytes as they are, runs of 264 that begin two bytes before, and the rest.
        let runs = (pack.len() - 11) / 264;
        let rest = pack.len() - 10 - 264 * runs;
        let mut packed = vec![9];
        packed.extend_from_slice(&pack[..10]);
        packed.extend(std::iter::repeat_n([0xe0, 0xff, 0x01], runs).flatten());
        for some in pack[pack.len() - rest..].chunks(32) {
            packed.push(some.len() as u8 - 1);
            packed.extend_from_slice(some);
        }
        let mut body = b"\x12\x01\x02\xc3\x80".to_vec();
        body.extend_from_slice(&(packed.len() as u32).to_be_bytes());
        body.push(0x80);
        body.extend_from_slice(&size.to_be_bytes());
        body.extend_from_slice(&packed);
        rdb::seal(&mut body);
        body
    }

    const OUT_OF_MEMORY: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

    #[test]
    fn a_value_that_is_larger_than_all_memory_is_not_restored() {
        let mut bench = Bench::new();
        let payload = packed_list(100_000);
        assert!(payload.len() < 3000, "{}", payload.len());
        assert_eq!(bench.call(&[b"RESTORE", b"list", b"0", &payload]), "+OK");
        bench.expect("LLEN list", ":100000");
        bench.expect("LINDEX list -1", "$1 1");
        let before = bench.contents();
        // Less than all elements take, but more than the listpack; then less than the listpack.
        for limit in [300_000, 100_000] {
            bench.memory_limit = limit;
            assert_eq!(bench.call(&[b"RESTORE", b"k", b"0", &payload]), OUT_OF_MEMORY, "{limit}");
            assert_eq!(bench.call(&[b"RESTORE", b"list", b"0", &payload, b"REPLACE"]), OUT_OF_MEMORY);
        }
        assert_eq!(bench.contents(), before);
    }

    #[test]
    fn to_restore_much_is_a_long_call() {
        let payload = packed_list(100_000);
        for name in [&b"restore"[..], b"restore-asking"] {
            let command = crate::command::lookup(name).expect("a command");
            let items = [name, b"k", b"0", &payload];
            let args = crate::Args::new(&items);
            let keys = crate::keys::keys_of(command, args).expect("a key");
            let steps = crate::work::estimate(command, args, &keys, |_| None, || 0);
            assert!(steps > crate::steps::LONG_CALL_STEPS, "{steps} steps");
        }
    }

    #[test]
    fn a_value_is_left_where_the_call_is_to_end() {
        let mut bench = Bench::new();
        let list = packed_list(100_000);
        let mut set = b"\x02\x80\x00\x00\xea\x60".to_vec();
        (0..60_000_u32).for_each(|at| {
            set.push(4);
            set.extend_from_slice(&at.to_be_bytes());
        });
        rdb::seal(&mut set);
        for payload in [list, set] {
            bench.cancel = Some(CancelFlag::new(true.into()));
            bench.call(&[b"RESTORE", b"k", b"0", &payload]);
            let steps = bench.work.steps();
            assert!(bench.work.is_cancelled() && steps < 10_000, "{steps} steps");
            bench.cancel = None;
            bench.expect("EXISTS k", ":0");
            assert_eq!(bench.call(&[b"RESTORE", b"k", b"0", &payload]), "+OK");
            bench.expect("DEL k", ":1");
        }
    }
}
