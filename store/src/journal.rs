//! The journal: what was committed, in the order of commits.
//!
//! A commit appends a record while what it changed is still locked; that costs a copy of its bytes. One writer per
//! node, in [`crate::persist`], takes what has come together, writes it to disk, folds changed keys into checkpoint
//! records at its leisure, and reports how far the disk has come. Memory is the truth for reads; the disk is read at
//! the start only ([`load`]).
//!
//! ```text
//! commit ──append──▶ Journal (queue) ──drain──▶ Writer ──one batch, one flush──▶ Disk
//!                                                 └─fold: reads keys under their shard's mutex
//! ```

pub(crate) mod checkpoint;
pub(crate) mod copying;
pub(crate) mod directory;
pub(crate) mod dirty;
pub mod disk;
pub(crate) mod fail_point;
pub(crate) mod group;
pub(crate) mod load;
mod queue;
pub(crate) mod record;
mod sled;
pub(crate) mod state;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod watermark;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use store_engine::{CommandError, Effects};
use tokio::sync::{mpsc, watch};

pub(crate) use self::copying::{CopyPiece, Copying};
pub use self::disk::{Disk, DiskError, Op, Open, WAY_OUT};
pub(crate) use self::group::GroupCommit;
pub use self::group::Reads;
use self::queue::Queue;
pub(crate) use self::queue::{Drained, LARGE_RECORD_BYTES, Record};
pub(crate) use self::sled::is_of_database;
pub use self::sled::{Database, in_dir, prepare_process};
use crate::latency::Times;
use crate::spans;

/// When a change is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once; the disk follows within a second.
    Periodic,
    /// When it is on disk. Changes that come at the same time share a flush.
    Sync,
}

/// Why the disk cannot be written.
#[derive(Clone, Debug)]
pub struct Failure {
    /// For the log and for operators.
    pub detail: Arc<str>,
    /// For clients, which must not see paths.
    pub cause: Arc<str>,
}

/// How far the disk has come.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Every record up to this number is on disk.
    pub durable: u64,
    /// How many flushes that took.
    pub flushes: u64,
    /// Why the disk cannot be written at present.
    pub failure: Option<Failure>,
    /// Every change up to this record is in the checkpoint.
    pub checkpoint: u64,
    /// Bytes of the records that are not in the checkpoint.
    pub journal_bytes: u64,
    /// Whether changes come faster than they can be folded, for long. Large records do not count.
    pub behind: bool,
    /// Whether that is so with large records, whose clients then wait.
    pub is_long: bool,
    /// Whether everything is being folded on request.
    pub saving: bool,
    /// When that was last done, or the writer began; seconds since 1970.
    pub saved_at: u64,
}

/// The reply to a change that the disk has not taken or could not take: Redis' code word.
pub fn misconf(failure: &Failure) -> CommandError {
    let cause = failure.cause.replace(['\r', '\n'], " ");
    CommandError::owned(format!("MISCONF Errors writing to the journal: {cause}"))
}

/// The reply to one who waits for the disk where no changes are written to any: Redis' text for WAITAOF.
pub const NO_JOURNAL: CommandError =
    CommandError::new("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");

/// Records that are not on disk yet may not use more memory than this: then clients that write wait.
const QUEUE_BYTES: usize = 64 << 20;

/// How many times as much memory large records may use before all clients wait: clients that add large records wait long
/// before, but each of them may add one.
const MOST_LARGE: usize = 16;

/// The queue between commits and the writer.
pub struct Journal {
    durability: Durability,
    incoming: Mutex<Incoming>,
    /// The writer sleeps here.
    wake: Condvar,
    progress: watch::Sender<Progress>,
    /// Whether [`Progress::failure`] is something; to be asked before each change.
    failing: AtomicBool,
    /// Whether [`Progress::behind`]; to be asked before each reply.
    behind: AtomicBool,
    pace: FlushTimes,
    /// [`QUEUE_BYTES`], unless a test has another number.
    queue_bytes: usize,
    /// Of a node that is one of several replicas: what makes a change durable is then the group.
    group: Option<GroupCommit>,
}

/// How long the writer takes.
#[derive(Default)]
pub struct FlushTimes {
    /// To write and flush a batch.
    pub writes: Times,
    /// For a whole round in which something was written.
    pub cycles: Times,
}

struct Incoming {
    queue: Queue,
    request: WriterRequest,
    /// What has left the queue and the writer has not fetched.
    taken: Vec<Arc<Drained>>,
    /// Copies of the disk that the writer is to begin.
    copies: Vec<Copying>,
}

/// What the writer is asked to do beside its rounds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriterRequest {
    #[default]
    None,
    /// To write now.
    Flush,
    /// To fold everything into the checkpoint.
    Checkpoint,
    /// To write what there is, and end.
    Close,
    /// To end without writing.
    Abandon,
}

/// As clients see it.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl From<&'static str> for Failure {
    fn from(cause: &'static str) -> Failure {
        Failure { detail: cause.into(), cause: cause.into() }
    }
}

impl Journal {
    /// A journal whose newest record has this number; 0 if there is none.
    pub(crate) fn new(durability: Durability, newest: u64, group: Option<GroupCommit>) -> Journal {
        let saved_at = unix_ms() / 1000;
        let progress = Progress { durable: newest, saved_at, ..Progress::default() };
        Journal {
            durability,
            incoming: Mutex::new(Incoming {
                queue: Queue::new(newest),
                request: WriterRequest::None,
                taken: Vec::new(),
                copies: Vec::new(),
            }),
            wake: Condvar::new(),
            progress: watch::Sender::new(progress),
            failing: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            pace: FlushTimes::default(),
            queue_bytes: fail_point::number("queue-bytes").map_or(QUEUE_BYTES, |bytes| bytes as usize),
            group,
        }
    }

    /// When changes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Adds a record, the effects of one transaction, and empties them. What they are about must still be locked.
    pub(crate) fn append(&self, effects: &mut Effects) {
        let mut incoming = self.incoming.lock();
        incoming.queue.append(effects);
        let bytes = incoming.queue.small_bytes();
        if bytes > self.queue_bytes || incoming.queue.large_bytes() > MOST_LARGE * self.queue_bytes {
            // Until the writer says that it has taken them.
            self.behind.store(true, Ordering::Relaxed);
        }
        let due = self.is_awaited() || incoming.queue.bytes() > self.queue_bytes / 8;
        if due && incoming.request < WriterRequest::Flush {
            incoming.request = WriterRequest::Flush;
            self.wake.notify_one();
        }
        drop(incoming);
        if let Some(group) = &self.group {
            group.wake();
        }
    }

    /// Adds a record that the group has committed. What it is about must still be locked.
    pub(crate) fn append_committed(&self, record: &[u8]) {
        let mut incoming = self.incoming.lock();
        incoming.queue.append_as_it_is(record);
        if incoming.queue.bytes() > self.queue_bytes / 8 && incoming.request < WriterRequest::Flush {
            incoming.request = WriterRequest::Flush;
            self.wake.notify_one();
        }
    }

    /// The side that the group of a replicated node sees.
    pub(crate) fn group(&self) -> Option<&GroupCommit> {
        self.group.as_ref()
    }

    /// From now on the node leads its group: what it changes is proposed, and not what came from the group before.
    pub(crate) fn lead(&self) {
        let mut incoming = self.incoming.lock();
        self.take(&mut incoming, &mut Vec::new());
        if let Some(group) = &self.group {
            group.lead();
        }
    }

    /// Whether this is the journal of a node that does not lead its group any more: nothing of it may be believed.
    pub fn is_deposed(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.progress().is_lost)
    }

    /// Whether clients wait for the writer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.durability == Durability::Sync && self.group.is_none()
    }

    /// Waits until the writer has taken most of the large records: for a client that has just added one. The others go on,
    /// so that a client with large values holds up only itself.
    pub async fn make_room(&self) {
        let mut progress = self.progress.subscribe();
        let is_there = |progress: &Progress| {
            progress.failure.is_some()
                || (!progress.is_long && self.incoming.lock().queue.large_bytes() <= self.queue_bytes)
        };
        // The sender lives in this journal.
        let _ = progress.wait_for(is_there).await;
    }

    /// Bytes of the records that the writer has not taken yet.
    pub fn waiting_bytes(&self) -> usize {
        self.incoming.lock().queue.bytes()
    }

    /// Number of the newest record.
    pub fn newest(&self) -> u64 {
        self.incoming.lock().queue.newest()
    }

    /// Why the disk cannot be written at present, if that is so: then nothing should be changed.
    pub fn failure(&self) -> Option<Failure> {
        if self.failing.load(Ordering::Relaxed) { self.progress.borrow().failure.clone() } else { None }
    }

    /// How long the writer takes.
    pub fn pace(&self) -> &FlushTimes {
        &self.pace
    }

    /// How far the disk has come.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Whether the disk is far behind: then a client that goes on to change something waits with [`Journal::catch_up`] first.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    /// Waits for as long as the disk is far behind. An error: it cannot be written.
    pub async fn catch_up(&self) -> Result<(), Failure> {
        match self.is_behind() {
            true => self.settle(true).await,
            false => Ok(()),
        }
    }

    /// Waits until a reply may be sent: with [`Durability::Sync`] until all that was changed so far is on disk, otherwise only if
    /// its client `wrote` and while the disk is far behind. An error: the disk cannot be written, what was changed may be
    /// lost.
    pub async fn settle(&self, wrote: bool) -> Result<(), Failure> {
        if let Some(group) = &self.group {
            return group.settle(self.newest()).await;
        }
        let behind = wrote && self.is_behind();
        if self.durability == Durability::Periodic && !behind {
            return self.failure().map_or(Ok(()), Err);
        }
        let newest = self.newest();
        self.reached(|progress| progress.durable >= newest && (!behind || !progress.behind)).await
    }

    /// Waits until everything that was appended so far is on disk.
    pub async fn flush(&self) -> Result<(), Failure> {
        let newest = match &self.group {
            Some(_) => self.newest(),
            None => self.ask(WriterRequest::Flush),
        };
        let reached = async {
            match &self.group {
                Some(group) => group.settle(newest).await,
                None => self.reached(|progress| progress.durable >= newest).await,
            }
        };
        spans::within("journal", |span| span.with("moonshard.journal.record", newest), reached).await
    }

    /// Whether everything that was appended so far is on disk.
    pub fn is_flushed(&self) -> bool {
        let newest = self.newest();
        self.progress.borrow().durable >= newest
    }

    /// Begins a copy of the disk, with all that was recorded so far; its pieces come from what this returns. If that ends
    /// without [`CopyPiece::End`], the disk cannot be read, or the writer has ended.
    pub(crate) fn copy(&self) -> mpsc::Receiver<CopyPiece> {
        let (copying, pieces) = Copying::new();
        self.incoming.lock().copies.push(copying);
        self.ask(WriterRequest::Flush);
        pieces
    }

    /// The copies that are to be begun.
    pub(crate) fn take_copies(&self) -> Vec<Copying> {
        std::mem::take(&mut self.incoming.lock().copies)
    }

    /// Begins to fold all changes into the checkpoint; returns the number of the newest record.
    pub fn begin_checkpoint(&self) -> u64 {
        self.ask(WriterRequest::Checkpoint)
    }

    /// Waits until all changes so far are in the checkpoint.
    pub async fn checkpoint(&self) -> Result<(), Failure> {
        let newest = self.begin_checkpoint();
        self.reached(|progress| progress.checkpoint >= newest).await
    }

    /// Ends the writer: after it has written everything, or at once if `abandon`.
    pub(crate) fn close(&self, abandon: bool) {
        self.ask(if abandon { WriterRequest::Abandon } else { WriterRequest::Close });
    }

    /// Waits until the disk begins to fail, or no longer does if `is_failing`. The failure, if there is one now.
    pub async fn failure_change(&self, is_failing: bool) -> Option<Failure> {
        let mut progress = self.progress.subscribe();
        let changed = progress.wait_for(|progress| progress.failure.is_some() != is_failing).await;
        // The sender lives in this journal.
        changed.ok().and_then(|progress| progress.failure.clone())
    }

    /// Publishes the progress of the disk.
    pub(crate) fn report(&self, change: impl FnOnce(&mut Progress)) {
        self.progress.send_modify(|progress| {
            change(progress);
            self.failing.store(progress.failure.is_some(), Ordering::Relaxed);
            self.behind.store(progress.behind, Ordering::Relaxed);
        });
    }

    pub(crate) fn ask(&self, request: WriterRequest) -> u64 {
        let mut incoming = self.incoming.lock();
        incoming.request = incoming.request.max(request);
        self.wake.notify_one();
        incoming.queue.newest()
    }

    async fn reached(&self, there: impl Fn(&Progress) -> bool) -> Result<(), Failure> {
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|progress| there(progress) || progress.failure.is_some()).await;
        match reached {
            Ok(progress) if there(&progress) => Ok(()),
            Ok(progress) => Err(progress.failure.clone().unwrap_or("the journal is closed".into())),
            // The sender lives in this journal.
            Err(_) => Err("the journal is closed".into()),
        }
    }

    /// Takes all records that the writer has not taken yet; `spare` is memory for those to come.
    pub(crate) fn drain(&self, spare: &mut Vec<u8>) -> Vec<Arc<Drained>> {
        let mut incoming = self.incoming.lock();
        self.take(&mut incoming, spare);
        std::mem::take(&mut incoming.taken)
    }

    /// Takes the records that the group has not seen yet, in order.
    pub(crate) fn take_proposals(&self) -> Vec<Arc<Drained>> {
        let Some(group) = &self.group else { return Vec::new() };
        self.take(&mut self.incoming.lock(), &mut Vec::new());
        group.take_proposals()
    }

    /// Takes records from the queue, for the writer and the group.
    fn take(&self, incoming: &mut Incoming, spare: &mut Vec<u8>) {
        if incoming.queue.bytes() == 0 {
            return;
        }
        let drained = Arc::new(incoming.queue.drain(std::mem::take(spare)));
        if let Some(group) = &self.group {
            group.took(&drained);
        }
        incoming.taken.push(drained);
    }

    /// Waits until something is to be done, at most for `timeout`; returns what, once.
    pub(crate) fn sleep(&self, timeout: Duration) -> WriterRequest {
        let mut incoming = self.incoming.lock();
        if incoming.request == WriterRequest::None {
            self.wake.wait_for(&mut incoming, timeout);
        }
        match incoming.request {
            // It stays true.
            last @ (WriterRequest::Close | WriterRequest::Abandon) => last,
            _ => std::mem::take(&mut incoming.request),
        }
    }
}

/// The clock that goes on while the machine sleeps: of this name on Linux, of the other one on macOS.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::Monotonic;

/// The time since the machine was started, in milliseconds. It is never set, and goes on while the machine sleeps.
pub(crate) fn boot_ms() -> u64 {
    let time = clock_gettime(BOOT_CLOCK);
    // Neither is negative.
    (time.tv_sec as u64) * 1000 + (time.tv_nsec as u64) / 1_000_000
}

/// The time, in milliseconds.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
