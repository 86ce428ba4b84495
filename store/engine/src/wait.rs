//! What a blocking call waits for when it finds nothing.
//!
//! Its function makes one attempt, and answers null if there is nothing to take: that is all that happens in a
//! script or transaction. Whoever lets clients wait reads here what would end the waiting.

use std::ops::Range;

use smallvec::SmallVec;

use crate::command::stream::read::{MOST_AFTER_WAIT, Wanted};
use crate::spec::{Command, Group, KeyPart, flags};
pub use crate::timeout::{timeout_ms, whole_timeout_ms};
use crate::value::stream::Id;
use crate::{Args, CommandError, Value, number};

/// The wish of a blocking call whose arguments were found to be valid.
pub struct BlockingCall<'a> {
    args: Args<'a>,
    keys: Range<usize>,
    count_at: Option<usize>,
    /// If it reads streams: then its keys have IDs behind them.
    streams: Option<Wanted<'a>>,
}

impl<'a> BlockingCall<'a> {
    /// What `args` wait for: the keys of the first part of their row. Those of other parts are only written to.
    pub fn of(command: &Command, args: Args<'a>) -> BlockingCall<'a> {
        let mut streams = None;
        let (keys, count_at) = match command.keys.first() {
            Some(&KeyPart::Range { first, last, .. }) => {
                let end =
                    if last < 0 { args.len().saturating_sub(-last as usize - 1) } else { last as usize + 1 };
                (usize::from(first)..end, None)
            }
            Some(&KeyPart::Counted { count_at, first, .. }) => {
                let text = args.get(usize::from(count_at)).unwrap_or_default();
                let count = number::parse_i64(text).and_then(|count| usize::try_from(count).ok());
                let first = usize::from(first);
                (first..first.saturating_add(count.unwrap_or(0)), Some(usize::from(count_at)))
            }
            Some(KeyPart::Halved { .. }) => {
                streams = Wanted::parse(args).ok();
                let keys = streams.as_ref().map(|wanted| wanted.keys_at..wanted.keys_at + wanted.keys.len());
                (keys.unwrap_or_default(), None)
            }
            Some(KeyPart::After { .. } | KeyPart::Migrated { .. }) | None => (0..0, None),
        };
        BlockingCall { args, keys, count_at, streams }
    }

    /// Whether it waits at all.
    pub fn blocks(&self) -> bool {
        self.streams.as_ref().is_none_or(|wanted| wanted.block_ms.is_some())
    }

    /// Which of its items stand for the last ID of a stream as it is when the waiting begins, with the stream's key.
    pub fn dollars(&self) -> impl Iterator<Item = (usize, &'a [u8])> {
        self.streams.iter().flat_map(Wanted::dollars)
    }

    /// The keys, any of which will do.
    pub fn keys(&self) -> &'a [&'a [u8]] {
        self.args.items().get(self.keys.clone()).unwrap_or(&[])
    }

    /// The call as if it had named only this one of its keys.
    pub fn narrowed(&self, key: &'a [u8]) -> SmallVec<[&'a [u8]; 8]> {
        let items = self.args.items();
        let mut narrowed = SmallVec::from_slice(&items[..self.keys.start]);
        if let Some(at) = self.count_at {
            narrowed[at] = &b"1"[..];
        }
        let Some(wanted) = &self.streams else {
            narrowed.push(key);
            narrowed.extend_from_slice(self.args.rest(self.keys.end));
            return narrowed;
        };
        if wanted.count == 0 {
            let streams = narrowed.len() - 1;
            narrowed.insert_from_slice(streams, &[b"COUNT", MOST_AFTER_WAIT.as_bytes()]);
        }
        let at = wanted.keys.iter().position(|held| *held == key);
        let id = at.and_then(|at| self.args.get(self.keys.end + at));
        narrowed.extend([key].into_iter().chain(id));
        narrowed
    }

    /// For how long, in milliseconds, entries have to be pending that it claims, if it does.
    pub fn claim_ms(&self) -> Option<u64> {
        self.streams.as_ref().and_then(|wanted| wanted.claim_ms).map(i64::cast_unsigned)
    }

    /// How long, in milliseconds; 0: for ever.
    pub fn timeout_ms(&self) -> Result<u64, CommandError> {
        if let Some(wanted) = &self.streams {
            return Ok(wanted.block_ms.unwrap_or(0));
        }
        // In front of the number of keys, otherwise the last of all.
        timeout_ms(self.args[self.count_at.unwrap_or(self.args.len()) - 1])
    }
}

/// What becomes of one that waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It goes on waiting.
    Wait,
    /// Its call has something to return.
    Serve,
    /// It waits in vain.
    Refuse(CommandError),
}

/// Whether a call of `command` that waits for a key is served by this value; streams have a [`verdict`].
pub fn is_served_by(command: &Command, value: &Value) -> bool {
    matches!((command.group, value), (Group::List, Value::List(_)) | (Group::SortedSet, Value::ZSet(_)))
}

/// When the first entry of a stream that is pending can be claimed by a call that waits for it, in Unix milliseconds.
pub fn claimable_ms(narrowed: Args<'_>, value: Option<&Value>) -> Option<i64> {
    let Some(Value::Stream(stream)) = value else { return None };
    Wanted::parse(narrowed).ok()?.claimable_ms(stream)
}

/// What this value, or none, means to a call that waits for a stream, as if it had named only that.
pub fn verdict(narrowed: Args<'_>, value: Option<&Value>, now_ms: u64) -> Verdict {
    let wanted = match Wanted::parse(narrowed) {
        Ok(wanted) => wanted,
        Err(error) => return Verdict::Refuse(error),
    };
    let stream = match (value, wanted.group) {
        (Some(Value::Stream(stream)), _) => stream,
        (_, Some(_)) => {
            return Verdict::Refuse(CommandError::new("UNBLOCKED the stream key no longer exists"));
        }
        (_, None) => return Verdict::Wait,
    };
    let behind = match wanted.group {
        Some((name, _)) => match stream.group(name) {
            Some(group) => group.last_id,
            None => {
                return Verdict::Refuse(CommandError::new(
                    "NOGROUP the consumer group this client was blocked on no longer exists",
                ));
            }
        },
        None => wanted.behind(0, Some(stream)).unwrap_or(Id::MAX),
    };
    let is_claimable = || wanted.claimable_ms(stream).is_some_and(|at| at <= now_ms.cast_signed());
    if stream.top_id() > behind || is_claimable() { Verdict::Serve } else { Verdict::Wait }
}

/// What a script hears that lets a call of streams wait, as far as the call's words are right up to there.
pub fn refuse_in_script(command: &Command, args: Args<'_>) -> Result<(), CommandError> {
    if command.group != Group::Stream || !command.has(flags::BLOCKING) {
        return Ok(());
    }
    let mut cursor = args.cursor(1);
    loop {
        let more = cursor.remaining();
        if more > 1 && cursor.flag("BLOCK") {
            let name = String::from_utf8_lossy(args.name());
            return Err(CommandError::owned(format!(
                "ERR {name} command is not allowed with BLOCK option from scripts"
            )));
        }
        let goes_on = (more > 1 && cursor.flag("COUNT") && cursor.integer().is_ok())
            || (more > 2 && command.is_write() && cursor.flag("GROUP") && cursor.take(2).is_ok())
            || (more > 1 && command.is_write() && cursor.flag("CLAIM") && cursor.integer().is_ok())
            || (command.is_write() && cursor.flag("NOACK"));
        if !goes_on {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::lookup;

    fn with_call<T>(line: &str, see: impl FnOnce(BlockingCall<'_>) -> T) -> T {
        let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let args = Args::new(&items);
        let command = lookup(&args.name().to_ascii_lowercase()).expect("a command");
        see(BlockingCall::of(command, args))
    }

    #[test]
    fn a_call_is_narrowed_to_one_key() {
        for (line, keys, narrowed) in [
            ("BLPOP a b c 7", &["a", "b", "c"][..], "BLPOP k 7"),
            ("BZPOPMAX a 7", &["a"], "BZPOPMAX k 7"),
            ("BLMPOP 7 2 a b LEFT COUNT 3", &["a", "b"], "BLMPOP 7 1 k LEFT COUNT 3"),
            ("BZMPOP 7 1 a MIN", &["a"], "BZMPOP 7 1 k MIN"),
            ("BLMOVE a b LEFT RIGHT 7", &["a"], "BLMOVE k b LEFT RIGHT 7"),
            ("BRPOPLPUSH a b 7", &["a"], "BRPOPLPUSH k b 7"),
        ] {
            with_call(line, |call| {
                assert!(
                    call.keys().iter().eq(keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>().iter())
                );
                let words = call.narrowed(b"k").join(&b' ');
                assert_eq!(String::from_utf8_lossy(&words), narrowed);
                assert_eq!(call.timeout_ms(), Ok(7000), "{line}");
            });
        }
    }

    #[test]
    fn a_reader_of_streams_is_narrowed_to_one_with_its_id() {
        for (line, narrowed) in [
            ("XREAD BLOCK 7000 STREAMS j k l 1 2 3", "XREAD BLOCK 7000 COUNT 1000 STREAMS k 2"),
            ("XREAD COUNT 5 BLOCK 7000 STREAMS k 2", "XREAD COUNT 5 BLOCK 7000 STREAMS k 2"),
            ("XREAD COUNT 0 BLOCK 7000 STREAMS k k 2 3", "XREAD COUNT 0 BLOCK 7000 COUNT 1000 STREAMS k 2"),
            (
                "XREADGROUP GROUP streams c BLOCK 7000 NOACK STREAMS j k > >",
                "XREADGROUP GROUP streams c BLOCK 7000 NOACK COUNT 1000 STREAMS k >",
            ),
        ] {
            with_call(line, |call| {
                let words = call.narrowed(b"k").join(&b' ');
                assert_eq!(String::from_utf8_lossy(&words), narrowed);
                assert_eq!(call.timeout_ms(), Ok(7000), "{line}");
                assert!(call.blocks());
            });
        }
        with_call("XREAD STREAMS j k $ 0", |call| assert!(!call.blocks()));
        let dollars =
            |line| with_call(line, |call| call.dollars().map(|(at, key)| (at, key.to_vec())).collect());
        let found: Vec<(usize, Vec<u8>)> = dollars("XREAD BLOCK 1 STREAMS j $ l 1 $ $");
        assert_eq!(found, [(8, b"$".to_vec()), (9, b"l".to_vec())]);
    }

    #[test]
    fn what_a_stream_means_to_those_who_wait() {
        use crate::testing::Bench;
        let mut bench = Bench::new();
        for line in ["XADD s 5-1 a b", "XGROUP CREATE s read $", "XGROUP CREATE s behind 0", "SET t x"] {
            bench.run(line);
        }
        let verdict_of = |line: &str, key: &str| {
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let entry = bench.partition.databases[0].peek(key.as_bytes(), 0);
            verdict(Args::new(&items), entry.map(|entry| &entry.value), bench.now_ms)
        };
        let refuse = |text| Verdict::Refuse(CommandError::new(text));
        let gone = "UNBLOCKED the stream key no longer exists";
        for (line, key, wanted) in [
            ("XREAD BLOCK 0 STREAMS s 5-0", "s", Verdict::Serve),
            ("XREAD BLOCK 0 STREAMS s 5-1", "s", Verdict::Wait),
            ("XREAD BLOCK 0 STREAMS t 0", "t", Verdict::Wait),
            ("XREAD BLOCK 0 STREAMS n 0", "n", Verdict::Wait),
            ("XREADGROUP GROUP behind c BLOCK 0 STREAMS s >", "s", Verdict::Serve),
            ("XREADGROUP GROUP read c BLOCK 0 STREAMS s >", "s", Verdict::Wait),
            ("XREADGROUP GROUP read c BLOCK 0 STREAMS t >", "t", refuse(gone)),
            ("XREADGROUP GROUP read c BLOCK 0 STREAMS n >", "n", refuse(gone)),
            (
                "XREADGROUP GROUP none c BLOCK 0 STREAMS s >",
                "s",
                refuse("NOGROUP the consumer group this client was blocked on no longer exists"),
            ),
        ] {
            assert_eq!(verdict_of(line, key), wanted, "{line}");
        }
    }

    #[test]
    fn scripts_may_not_let_a_reader_wait() {
        let refused = |line: &str| {
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let args = Args::new(&items);
            let command = lookup(&args.name().to_ascii_lowercase()).expect("a command");
            refuse_in_script(command, args).is_err()
        };
        for line in
            ["XREAD BLOCK 0 STREAMS s $", "xread COUNT 1 block x", "XREADGROUP GROUP BLOCK c NOACK BLOCK 1"]
        {
            assert!(refused(line), "{line}");
        }
        for line in [
            "XREAD STREAMS BLOCK 0",
            "XREAD COUNT 1 STREAMS s 0",
            "XREAD COUNT BLOCK 1",
            "XREAD GROUP g c BLOCK 0",
            "XREADGROUP GROUP g BLOCK STREAMS s 0",
            "BLPOP BLOCK 0",
        ] {
            assert!(!refused(line), "{line}");
        }
    }
}
