//! What the journal of a replicated node waits for beside its own disk: until the other replicas of its group have a record
//! too, it may be lost with this machine, and until they confirm it nothing shows that this node still leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::queue::Drained;
use super::{Failure, boot_ms};

/// What an answer of a node says that does not lead its group any more. Whether a change was made is then known to the next
/// leader alone.
pub const LEADERSHIP_LOST: &str = "this node no longer leads its group";

/// How far the group has come, as its leader knows.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct GroupProgress {
    /// A majority has every record up to this number on disk.
    pub committed: u64,
    /// Until then no other node can lead the group; milliseconds of [`boot_ms`].
    pub lease_until_ms: u64,
    /// Up to this question of [`GroupCommit::questions`] a majority has confirmed that this node leads.
    pub confirmed: u64,
    /// The node does not lead any more, or is about to end: nothing is waited for.
    pub is_lost: bool,
}

/// How a leader knows that it still leads when it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reads {
    /// It has a lease: no other replica can lead until the lease is over.
    #[default]
    Lease,
    /// A majority has said so since the request came.
    Quorum,
}

/// The side of a journal that its group sees.
pub(crate) struct GroupCommit {
    progress: watch::Sender<GroupProgress>,
    /// The writer sleeps here until the group has what it is about to write.
    committed: Mutex<GroupProgress>,
    changed: Condvar,
    /// Whether the others are asked for each answer whether this node leads; else the lease is enough.
    asks: bool,
    /// How many answers have waited for that.
    questions: AtomicU64,
    /// Wakes who proposes records to the group.
    wake: Box<dyn Fn() + Send + Sync>,
    proposals: Mutex<Proposals>,
}

/// Records that the group has to agree on.
#[derive(Default)]
struct Proposals {
    /// Whether the node leads: otherwise its records come from the group.
    leads: bool,
    waiting: Vec<Arc<Drained>>,
}

impl GroupCommit {
    /// Of a node whose group has committed all that it has read from disk. `wake` is called when there are records to be
    /// proposed.
    pub fn new(newest: u64, reads: Reads, wake: Box<dyn Fn() + Send + Sync>) -> GroupCommit {
        let progress = GroupProgress { committed: newest, ..GroupProgress::default() };
        GroupCommit {
            progress: watch::Sender::new(progress),
            committed: Mutex::new(progress),
            changed: Condvar::new(),
            asks: reads == Reads::Quorum,
            questions: AtomicU64::new(0),
            wake,
            proposals: Mutex::default(),
        }
    }

    /// From now on the node leads: what it changes is proposed.
    pub fn lead(&self) {
        self.proposals.lock().leads = true;
    }

    /// There is a record that was not taken from the queue yet.
    pub fn wake(&self) {
        (self.wake)();
    }

    /// Records have left the queue.
    pub fn took(&self, drained: &Arc<Drained>) {
        let mut proposals = self.proposals.lock();
        if proposals.leads {
            proposals.waiting.push(drained.clone());
        }
    }

    /// The records that left the queue and were not proposed yet.
    pub fn take_proposals(&self) -> Vec<Arc<Drained>> {
        std::mem::take(&mut self.proposals.lock().waiting)
    }

    /// The group has come further.
    pub fn report(&self, change: impl FnOnce(&mut GroupProgress)) {
        let mut progress = self.committed.lock();
        change(&mut progress);
        self.progress.send_replace(*progress);
        self.changed.notify_all();
    }

    /// How far the group has come.
    pub fn progress(&self) -> GroupProgress {
        *self.progress.borrow()
    }

    /// Waits until the group has committed this record, and the node still leads. An error: it does not.
    pub async fn settle(&self, record: u64) -> Result<(), Failure> {
        let mut progress = self.progress.subscribe();
        let question = self.ask();
        let settled = |progress: &GroupProgress| {
            let leads = match question {
                Some(question) => progress.confirmed >= question,
                None => boot_ms() < progress.lease_until_ms,
            };
            progress.committed >= record && leads
        };
        let reached = progress.wait_for(|progress| progress.is_lost || settled(progress)).await;
        // The sender lives as long as this.
        match reached.is_ok_and(|progress| !progress.is_lost) {
            true => Ok(()),
            false => Err(LEADERSHIP_LOST.into()),
        }
    }

    /// Asks whether this node leads, if the lease is not enough; the number of the question.
    fn ask(&self) -> Option<u64> {
        if !self.asks {
            return None;
        }
        let question = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
        self.wake();
        Some(question)
    }

    /// How many questions there are so far.
    pub fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    /// Waits until the group has committed this record; for the writer. Whether it has.
    pub fn await_commit(&self, record: u64) -> bool {
        let mut progress = self.committed.lock();
        while progress.committed < record && !progress.is_lost {
            self.changed.wait(&mut progress);
        }
        progress.committed >= record
    }
}
