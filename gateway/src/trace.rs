//! What one run of a script did, for whoever asked to be told before it began.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use script::{LogLevel, Spent};

use crate::stats::Ended;

/// Steps that are kept of one run.
const MOST_STEPS: usize = 1000;
/// Bytes of arguments, replies and texts that are kept of one run.
const MOST_BYTES: usize = 1 << 20;
/// Waits that are kept of one run.
const MOST_PHASES: usize = 32;
/// Arguments that are kept of one call.
const MOST_ARGS: usize = 16;
/// Bytes that are kept of an argument or a text; a longer reply is told of by its kind and length.
pub const MOST_TEXT: usize = 256;

/// Shared between a run and whoever asked about it.
pub struct Trace {
    calls: AtomicBool,
    /// Their arguments and replies, too.
    in_full: bool,
    dry: AtomicBool,
    wants_changes: bool,
    seen: Mutex<Seen>,
}

/// What is known of a run so far.
#[derive(Default)]
pub struct Seen {
    /// How it ended. Nothing: it goes on, or never began.
    pub ended: Option<Ended>,
    /// What its last round used.
    pub spent: Spent,
    /// How it was run: `atomic`, `async` or `read-only`.
    pub mode: &'static str,
    /// Its script's digest or its function's name.
    pub name: String,
    /// Why it was repeated, each time.
    pub reruns: Vec<Rerun>,
    /// What its last round did, in order.
    pub steps: Vec<Step>,
    /// Steps that were not kept.
    pub omitted: u64,
    /// What it changed as RESP3, and how many keys more, if that was wanted and it was kept.
    pub changes: Option<(Vec<u8>, usize)>,
    /// Trace and span that it belongs to, for its log lines.
    pub span: Option<(String, String)>,
    /// Where it waited: for its keys, for its turn, and until its changes were kept.
    pub phases: Vec<Phase>,
    /// When its last round began.
    pub began: Option<Instant>,
    bytes: usize,
}

/// A part of a run, beside its calls.
pub struct Phase {
    /// What it is.
    pub name: &'static str,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

/// Why a run was repeated.
#[derive(Clone, Debug)]
pub struct Rerun {
    /// In one word: `key`, `everything` or `order`.
    pub why: &'static str,
    /// The key that somebody else had locked, with its database.
    pub key: Option<(usize, Box<[u8]>)>,
}

/// One step of a run.
pub enum Step {
    /// `redis.call` and its relatives.
    Call(CallStep),
    /// `redis.log`
    Log {
        /// At which level.
        level: LogLevel,
        /// What was said, cut.
        text: Vec<u8>,
    },
}

/// A call as its host sees it.
pub struct CallNow<'a> {
    /// The command's name, and its arguments.
    pub args: &'a [&'a [u8]],
    /// The selected database.
    pub db: usize,
    /// Its first key, and the shard of that.
    pub key: Option<(&'a [u8], usize)>,
    /// When it was made.
    pub began: Instant,
    /// RESP; nothing if it was collected, or has to wait.
    pub reply: &'a [u8],
}

/// A call of a run.
pub struct CallStep {
    /// The first arguments, the command's name among them, each cut; of a call that is not told in full the name alone.
    pub args: Vec<Vec<u8>>,
    /// How many there were.
    pub arg_count: usize,
    /// The selected database.
    pub db: usize,
    /// Its first key, and the shard of that.
    pub key: Option<(Vec<u8>, usize)>,
    /// Since the round began.
    pub at: Duration,
    /// How long it took.
    pub took: Duration,
    /// RESP. Nothing: the call was collected, and nobody looks at its reply.
    pub reply: Vec<u8>,
    /// Bytes of the reply, all of which are in `reply` if they are few.
    pub reply_bytes: usize,
}

impl Trace {
    /// Of a run whose `calls` are to be told too, in full, or only their number and what they cost.
    pub fn new(calls: bool) -> Trace {
        Trace {
            calls: AtomicBool::new(calls),
            in_full: calls,
            dry: AtomicBool::new(false),
            wants_changes: false,
            seen: Mutex::default(),
        }
    }

    /// The same of a run that is to tell what it changed, too, if it is one that can.
    pub fn with_changes(self, wants_changes: bool) -> Trace {
        Trace { wants_changes, ..self }
    }

    /// Whether it is.
    pub fn wants_changes(&self) -> bool {
        self.wants_changes
    }

    /// Notes what the run is about to change.
    pub fn set_changes(&self, told: Vec<u8>, omitted: usize) {
        self.seen.lock().changes = Some((told, omitted));
    }

    /// Whether single calls are to be told.
    pub fn has_calls(&self) -> bool {
        self.calls.load(Ordering::Relaxed)
    }

    /// They are, for the spans of the run: what they are and take, but neither arguments nor replies other than errors.
    pub fn want_calls(&self) {
        self.calls.store(true, Ordering::Relaxed);
    }

    /// Notes a part of the run, beside its calls, that began then and is over.
    pub fn phase(&self, name: &'static str, began: Instant) {
        let mut seen = self.seen.lock();
        if seen.phases.len() < MOST_PHASES {
            seen.phases.push(Phase { name, began, took: began.elapsed() });
        }
    }

    /// What is known so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }

    /// Notes that the reply is that of a dry run, which tells of more than the script returned.
    pub fn set_dry(&self) {
        self.dry.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub fn is_dry(&self) -> bool {
        self.dry.load(Ordering::Relaxed)
    }

    /// A round begins; what the one before did never happened.
    pub fn begin_round(&self) {
        let mut seen = self.seen.lock();
        seen.steps.clear();
        (seen.omitted, seen.bytes) = (0, 0);
        seen.began = Some(Instant::now());
    }

    /// Adds a call that is over, or goes on to wait.
    pub fn call(&self, call: &CallNow<'_>) {
        let mut seen = self.seen.lock();
        let most = if self.in_full { MOST_ARGS } else { 1 };
        let args: Vec<Vec<u8>> = call.args.iter().take(most).map(|arg| cut(arg)).collect();
        let reply = self.kept(call.reply);
        let bytes = reply.len() + args.iter().map(Vec::len).sum::<usize>();
        let step = CallStep {
            args,
            arg_count: call.args.len(),
            db: call.db,
            key: call.key.map(|(key, shard)| (if self.in_full { cut(key) } else { Vec::new() }, shard)),
            at: seen.began.map_or(Duration::ZERO, |began| call.began.saturating_duration_since(began)),
            took: call.began.elapsed(),
            reply,
            reply_bytes: call.reply.len(),
        };
        seen.add(Step::Call(step), bytes);
    }

    /// The newest call had to wait and has its reply now.
    pub fn answered(&self, reply: &[u8], took: Duration) {
        let mut seen = self.seen.lock();
        if seen.omitted == 0
            && let Some(Step::Call(step)) = seen.steps.last_mut()
        {
            step.took += took;
            (step.reply, step.reply_bytes) = (self.kept(reply), reply.len());
        }
    }

    fn kept(&self, reply: &[u8]) -> Vec<u8> {
        if self.in_full || reply.starts_with(b"-") { cut(reply) } else { Vec::new() }
    }

    /// Adds a line of `redis.log`.
    pub fn log(&self, level: LogLevel, text: &[u8]) {
        let text = cut(text);
        let bytes = text.len();
        self.seen.lock().add(Step::Log { level, text }, bytes);
    }
}

impl Seen {
    fn add(&mut self, step: Step, bytes: usize) {
        if self.omitted > 0 || self.steps.len() >= MOST_STEPS || self.bytes + bytes > MOST_BYTES {
            self.omitted += 1;
            return;
        }
        self.bytes += bytes;
        self.steps.push(step);
    }
}

fn cut(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(MOST_TEXT)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_bounds() {
        let trace = Trace::new(true);
        trace.begin_round();
        let long = vec![b'x'; 10_000];
        for _ in 0..MOST_STEPS + 5 {
            let (args, reply) = (&[&long[..]; 40], &long[..]);
            trace.call(&CallNow { args, db: 0, key: None, began: Instant::now(), reply });
        }
        {
            let seen = trace.seen();
            let bytes = |step: &Step| match step {
                Step::Call(call) => {
                    assert_eq!((call.args.len(), call.arg_count, call.reply_bytes), (MOST_ARGS, 40, 10_000));
                    call.args.concat().len() + call.reply.len()
                }
                Step::Log { text, .. } => text.len(),
            };
            assert!(seen.steps.iter().map(bytes).sum::<usize>() <= MOST_BYTES);
            assert_eq!(seen.steps.len() as u64 + seen.omitted, MOST_STEPS as u64 + 5);
            assert!(seen.omitted > 5, "bytes are bounded too");
        }
        trace.begin_round();
        let seen = trace.seen();
        assert!(seen.steps.is_empty() && seen.omitted == 0);
    }
}
