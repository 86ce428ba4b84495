//! What one run of a script did, if its caller asked for that before the run.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use script::{LogLevel, ResourceUsage};

use crate::telemetry::script_stats::Ended;
use crate::telemetry::spans::SpanContext;

/// Steps that are kept of one run.
const MOST_STEPS: usize = 1000;
/// Bytes of arguments, replies and texts that are kept of one run.
const MOST_BYTES: usize = 1 << 20;
/// Bytes of what functions and variables were at the calls of one run.
const MOST_FRAMES_BYTES: usize = 2 << 20;
/// Calls of one run that become spans.
const MOST_BRIEF: usize = 256;
/// Waits that are kept of one run.
const MOST_PHASES: usize = 32;
/// Arguments that are kept of one call.
const MOST_ARGS: usize = 16;
/// Bytes that are kept of an argument or a text; of a longer reply the kind and length are kept.
pub const MOST_TEXT: usize = 256;

/// Shared between a run and its caller.
pub struct Trace {
    /// Whether steps are recorded.
    steps: bool,
    /// Whether calls become spans.
    spans: AtomicBool,
    dry: AtomicBool,
    wants_changes: bool,
    wants_variables: bool,
    snapshot: Mutex<RunState>,
}

/// What is known of a run so far.
#[derive(Default)]
pub struct RunState {
    /// How it ended. Nothing: it goes on, or never began.
    pub ended: Option<Ended>,
    /// What its last round used.
    pub usage: ResourceUsage,
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
    /// Calls among `steps` whose functions and variables were not kept.
    pub frames_omitted: u64,
    /// Of the next call, as [`script::frames::decode`] reads it.
    frames: Option<Box<[u8]>>,
    frames_bytes: usize,
    /// The calls of its last round, for spans.
    pub calls: Vec<BriefCall>,
    /// Calls that were not kept for that.
    pub calls_omitted: u64,
    /// What it changed as RESP3, and how many keys more, if that was wanted and it was kept.
    pub changes: Option<(Vec<u8>, usize)>,
    /// Its span, for its log lines.
    pub span: Option<SpanContext>,
    /// Where it waited: for its keys, for its turn, and until its changes were kept.
    pub phases: Vec<Phase>,
    /// When its last round began, if calls are recorded.
    began: Option<Instant>,
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
    /// The key that another transaction had locked, with its database.
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
    /// The command's number, if there is such a command.
    pub number: Option<u16>,
    /// The selected database.
    pub db: usize,
    /// Its first key, and the shard of that.
    pub key: Option<(&'a [u8], usize)>,
    /// When it was made.
    pub began: Instant,
    /// RESP; nothing if it was collected, or has to wait.
    pub reply: &'a [u8],
    /// Whether that is an error.
    pub is_error: bool,
}

/// A call of a run.
pub struct CallStep {
    /// The first arguments, the command's name among them, each cut.
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
    /// RESP. Nothing: the call was collected, and its reply is not read.
    pub reply: Vec<u8>,
    /// Bytes of the reply, all of which are in `reply` if they are few.
    pub reply_bytes: usize,
    /// Which functions led to it, as [`script::frames::decode`] reads it, if that was wanted and was kept.
    pub frames: Option<Box<[u8]>>,
}

/// A call as its span has it: neither its arguments nor its reply.
#[derive(Clone, Debug)]
pub struct BriefCall {
    /// The command's number, if there is such a command.
    pub number: Option<u16>,
    /// The selected database.
    pub db: usize,
    /// The shard of its first key, or the node.
    pub location: Option<usize>,
    /// When it began, and ended.
    pub times: Range<Instant>,
    /// Its reply, if that is an error.
    pub error: Option<Box<[u8]>>,
}

impl Trace {
    /// Of a run whose `steps` are to be recorded, or only their number and cost.
    pub fn new(steps: bool) -> Trace {
        Trace {
            steps,
            spans: AtomicBool::new(false),
            dry: AtomicBool::new(false),
            wants_changes: false,
            wants_variables: false,
            snapshot: Mutex::default(),
        }
    }

    /// The same of a run that is to report what it changed, if its mode allows that.
    pub fn with_changes(self, wants_changes: bool) -> Trace {
        Trace { wants_changes, ..self }
    }

    /// Whether it is.
    pub fn wants_changes(&self) -> bool {
        self.wants_changes
    }

    /// The same of a run that is to report its variables at each call, if its steps are recorded.
    pub fn with_variables(self, wants_variables: bool) -> Trace {
        Trace { wants_variables: wants_variables && self.steps, ..self }
    }

    /// Whether it is.
    pub fn wants_variables(&self) -> bool {
        self.wants_variables
    }

    /// Notes which functions lead to the next call, if there is room for that; whether there is room for more.
    pub fn frames(&self, description: &[u8]) -> bool {
        let mut snapshot = self.snapshot.lock();
        let fits = snapshot.frames_bytes + description.len() <= MOST_FRAMES_BYTES;
        let is_kept = self.wants_variables && snapshot.omitted == 0 && fits;
        snapshot.frames = is_kept.then(|| description.into());
        if !fits {
            // Also shorter ones: what is kept is the beginning of the run.
            snapshot.frames_bytes = MOST_FRAMES_BYTES;
        }
        is_kept
    }

    /// Notes what the run is about to change.
    pub fn set_changes(&self, changes: Vec<u8>, omitted: usize) {
        self.snapshot.lock().changes = Some((changes, omitted));
    }

    /// Whether single calls are to be recorded, in whatever form.
    pub fn has_calls(&self) -> bool {
        self.steps || self.wants_spans()
    }

    /// Calls become spans.
    pub fn want_spans(&self) {
        self.spans.store(true, Ordering::Relaxed);
    }

    fn wants_spans(&self) -> bool {
        self.spans.load(Ordering::Relaxed)
    }

    /// Notes a part of the run, beside its calls, that began then and is over.
    pub fn phase(&self, name: &'static str, began: Instant) {
        let mut snapshot = self.snapshot.lock();
        if snapshot.phases.len() < MOST_PHASES {
            snapshot.phases.push(Phase { name, began, took: began.elapsed() });
        }
    }

    /// What is known so far.
    pub fn snapshot(&self) -> MutexGuard<'_, RunState> {
        self.snapshot.lock()
    }

    /// Notes that the reply is that of a dry run, which has more than the script returned.
    pub fn set_dry(&self) {
        self.dry.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub fn is_dry(&self) -> bool {
        self.dry.load(Ordering::Relaxed)
    }

    /// A round begins; what the one before did never happened.
    pub fn begin_attempt(&self) {
        let mut snapshot = self.snapshot.lock();
        snapshot.steps.clear();
        snapshot.calls.clear();
        (snapshot.omitted, snapshot.calls_omitted, snapshot.bytes) = (0, 0, 0);
        (snapshot.frames, snapshot.frames_bytes, snapshot.frames_omitted) = (None, 0, 0);
        snapshot.began = Some(Instant::now());
    }

    /// Adds a call that is over, or goes on to wait.
    pub fn call(&self, call: &CallNow<'_>) {
        let times = call.began..Instant::now();
        let mut snapshot = self.snapshot.lock();
        if self.steps {
            snapshot.add_call(call, &times, self.wants_variables);
        }
        if self.wants_spans() {
            snapshot.add_brief(call, times);
        }
    }

    /// The newest call had to wait and has its reply now.
    pub fn answered(&self, reply: &[u8], is_error: bool, took: Duration) {
        let mut snapshot = self.snapshot.lock();
        if snapshot.omitted == 0
            && let Some(Step::Call(step)) = snapshot.steps.last_mut()
        {
            step.took += took;
            (step.reply, step.reply_bytes) = (cut(reply), reply.len());
        }
        if snapshot.calls_omitted == 0
            && let Some(call) = snapshot.calls.last_mut()
        {
            (call.times.end, call.error) = (Instant::now(), is_error.then(|| cut(reply).into()));
        }
    }

    /// Adds a line of `redis.log`.
    pub fn log(&self, level: LogLevel, text: &[u8]) {
        let text = cut(text);
        let bytes = text.len();
        self.snapshot.lock().add(Step::Log { level, text }, bytes);
    }
}

impl RunState {
    fn add_call(&mut self, call: &CallNow<'_>, times: &Range<Instant>, wants_variables: bool) {
        let frames = self.frames.take();
        let frames_bytes = frames.as_ref().map_or(0, |frames| frames.len());
        let lacks_frames = wants_variables && frames.is_none();
        let args: Vec<Vec<u8>> = call.args.iter().take(MOST_ARGS).map(|arg| cut(arg)).collect();
        let reply = cut(call.reply);
        let bytes = reply.len() + args.iter().map(Vec::len).sum::<usize>();
        let step = CallStep {
            args,
            arg_count: call.args.len(),
            db: call.db,
            key: call.key.map(|(key, location)| (cut(key), location)),
            at: self.began.map_or(Duration::ZERO, |began| times.start.saturating_duration_since(began)),
            took: times.end - times.start,
            reply,
            reply_bytes: call.reply.len(),
            frames,
        };
        if self.add(Step::Call(step), bytes) {
            self.frames_bytes += frames_bytes;
            self.frames_omitted += u64::from(lacks_frames);
        }
    }

    fn add_brief(&mut self, call: &CallNow<'_>, times: Range<Instant>) {
        if self.calls.len() >= MOST_BRIEF {
            self.calls_omitted += 1;
            return;
        }
        let CallNow { number, db, .. } = *call;
        let location = call.key.map(|(_, location)| location);
        let error = call.is_error.then(|| cut(call.reply).into());
        self.calls.push(BriefCall { number, db, location, times, error });
    }

    /// Whether it is kept.
    fn add(&mut self, step: Step, bytes: usize) -> bool {
        if self.omitted > 0 || self.steps.len() >= MOST_STEPS || self.bytes + bytes > MOST_BYTES {
            self.omitted += 1;
            return false;
        }
        self.bytes += bytes;
        self.steps.push(step);
        true
    }

    /// Bytes that were kept of its steps.
    pub fn bytes(&self) -> usize {
        self.bytes + self.frames_bytes
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
        trace.want_spans();
        trace.begin_attempt();
        let long = vec![b'x'; 10_000];
        for _ in 0..MOST_STEPS + 5 {
            let (args, reply) = (&[&long[..]; 40], &long[..]);
            let began = Instant::now();
            trace.call(&CallNow { args, number: None, db: 0, key: None, began, reply, is_error: false });
        }
        {
            let snapshot = trace.snapshot();
            let bytes = |step: &Step| match step {
                Step::Call(call) => {
                    assert_eq!((call.args.len(), call.arg_count, call.reply_bytes), (MOST_ARGS, 40, 10_000));
                    call.args.concat().len() + call.reply.len()
                }
                Step::Log { text, .. } => text.len(),
            };
            assert!(snapshot.steps.iter().map(bytes).sum::<usize>() <= MOST_BYTES);
            assert_eq!(snapshot.steps.len() as u64 + snapshot.omitted, MOST_STEPS as u64 + 5);
            assert!(snapshot.omitted > 5, "bytes are bounded too");
            assert_eq!(
                (snapshot.calls.len(), snapshot.calls_omitted),
                (MOST_BRIEF, (MOST_STEPS + 5 - MOST_BRIEF) as u64)
            );
        }
        trace.begin_attempt();
        let snapshot = trace.snapshot();
        assert!(snapshot.steps.is_empty() && snapshot.omitted == 0);
        assert!(snapshot.calls.is_empty() && snapshot.calls_omitted == 0);
    }

    #[test]
    fn frames_belong_to_the_call_behind_them_and_have_bounds() {
        let trace = Trace::new(true).with_variables(true);
        let call = || {
            let began = Instant::now();
            let args = &[&b"PING"[..]];
            trace.call(&CallNow { args, number: None, db: 0, key: None, began, reply: b"", is_error: false });
        };
        let frames_of = |at: usize| match &trace.snapshot().steps[at] {
            Step::Call(call) => call.frames.clone(),
            Step::Log { .. } => None,
        };
        trace.begin_attempt();
        assert!(trace.frames(b"of a call that is refused"));
        assert!(trace.frames(b"first"));
        call();
        call();
        assert_eq!((frames_of(0), frames_of(1)), (Some((*b"first").into()), None));
        assert_eq!(trace.snapshot().frames_omitted, 1);

        let long = vec![b'f'; 16 << 10];
        trace.begin_attempt();
        assert_eq!(trace.snapshot().frames_omitted, 0);
        let fitting = MOST_FRAMES_BYTES / long.len();
        for _ in 0..fitting {
            assert!(trace.frames(&long));
            call();
        }
        assert!(!trace.frames(&long));
        call();
        assert!(!trace.frames(b"short"), "the beginning of the run is kept");
        call();
        {
            let snapshot = trace.snapshot();
            assert_eq!((snapshot.steps.len(), snapshot.frames_omitted), (fitting + 2, 2));
        }
        assert!(!Trace::new(true).frames(b"not asked for"));
    }
}
