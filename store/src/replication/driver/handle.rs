//! The way to the driver: a replica as the rest of the process sees it, and what the driver's thread is to look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::{ConsensusError, ELECTION_TICKS, Follower, Log, MemberChange, Role, Settings, TICK_MS};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{oneshot, watch};

use crate::journal::boot_ms;
use crate::node::Node;
use crate::replication::copy::Copied;
use crate::replication::group_id::GroupId;

/// What a replica is at present.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct GroupState {
    /// Its role.
    pub role: Role,
    /// Whether it leads, and knows all that was committed before.
    pub is_ready_to_lead: bool,
    /// Up to this entry all are committed.
    pub committed: u64,
    /// Whether the others do not have the entries any more that it lacks: it needs a copy of the data.
    pub awaits_copy: bool,
    /// Nothing more comes: the driver has ended.
    pub is_over: bool,
}

impl GroupState {
    /// Whether the replica leads in this term.
    pub fn leads_in(&self, term: u64) -> bool {
        !self.is_over && self.role.leads && self.role.term == term
    }
}

/// A replica as the rest of the process sees it.
#[derive(Clone)]
pub struct ReplicaHandle {
    /// Its group.
    pub group: GroupId,
    /// What the group has agreed on.
    pub log: Log,
    pub(super) state: watch::Receiver<GroupState>,
    pub(super) shown: Arc<Shown>,
    pub(super) inbox: Arc<Inbox>,
}

/// What is shown of a replica.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) followers: Mutex<Vec<Follower>>,
    /// The entry up to which the node has all.
    pub(super) applied: AtomicU64,
    /// How many leaders it has seen.
    pub(super) elections: AtomicU64,
    /// How many copies of the data it has taken.
    pub(super) copies: AtomicU64,
    /// Until when it knew a leader, by the time since the machine was started; the start of the replica if it has known none.
    pub(super) leader_until_ms: AtomicU64,
}

/// A replica, for those who watch it.
#[derive(Clone, Debug)]
pub struct ReplicaStatus {
    /// Its role.
    pub role: Role,
    /// Up to this entry all are committed, as far as it knows.
    pub committed: u64,
    /// Up to this entry all are applied to its node.
    pub applied: u64,
    /// How long the log is in memory.
    pub log_bytes: usize,
    /// How many leaders it has seen since the process has started.
    pub elections: u64,
    /// How many copies of the data it has taken since then.
    pub copies: u64,
    /// How long it has known no leader, if it knows none.
    pub without_leader_ms: Option<u64>,
    /// The other replicas, if this one leads.
    pub followers: Vec<Follower>,
}

impl ReplicaHandle {
    /// What the replica is, now and when it changes.
    pub fn state(&self) -> watch::Receiver<GroupState> {
        self.state.clone()
    }

    /// From now on what this node records is proposed, as long as the replica leads in this term.
    pub fn lead(&self, node: Arc<Node>, term: u64) {
        self.inbox.command(Command::Lead(self.group, node, term));
    }

    /// Whether the driver waits for its disk for so long that the replica leads no more, whatever its state says: that changes when
    /// the driver goes on.
    pub fn stands_still(&self) -> bool {
        self.inbox.stands_still(boot_ms())
    }

    /// There are records to be proposed.
    pub fn wake(&self) {
        let mut letters = self.inbox.letters.lock();
        if !letters.has_proposals {
            letters.has_proposals = true;
            self.inbox.arrived.notify_one();
        }
    }

    /// The node has all records up to this one on its own disk: the log is not needed to read them again.
    pub fn durable(&self, record: u64) {
        self.inbox.command(Command::Durable(self.group, record));
    }

    /// The replica leads no more, if it leads in this term.
    pub fn resign(&self, term: u64) {
        self.inbox.command(Command::Resign(self.group, term));
    }

    /// The replica takes part in its group no more, so that another one leads it.
    pub fn remove(&self) {
        self.inbox.command(Command::Remove(self.group));
    }

    /// The data of the node on disk is this copy now. Returns when the log knows that.
    pub async fn copied(&self, copied: Copied) {
        let (done, known) = oneshot::channel();
        self.inbox.command(Command::Copied(self.group, copied, done));
        // An error: there is no driver any more, which its state says.
        let _ = known.await;
    }

    /// Changes who belongs to the group, if this replica leads and no other change is under way.
    pub fn change_members(&self, change: MemberChange) {
        self.inbox.command(Command::Change(self.group, change));
    }

    /// The other replicas, as seen a moment ago; empty unless this one leads.
    pub fn followers(&self) -> Vec<Follower> {
        self.shown.followers.lock().clone()
    }

    /// The entry up to which the node of this replica has all; of a leader: up to which all are committed.
    pub fn applied(&self) -> u64 {
        self.shown.applied.load(Ordering::Relaxed)
    }

    /// The node has all entries up to this one.
    pub(in crate::replication) fn note_applied(&self, index: u64) {
        self.shown.applied.store(index, Ordering::Relaxed);
    }

    /// What there is to be seen of the replica.
    pub fn status(&self) -> ReplicaStatus {
        let state = *self.state.borrow();
        ReplicaStatus {
            role: state.role,
            committed: state.committed,
            applied: self.applied(),
            log_bytes: self.log.bytes(),
            elections: self.shown.elections.load(Ordering::Relaxed),
            copies: self.shown.copies.load(Ordering::Relaxed),
            without_leader_ms: state
                .role
                .leader
                .is_none()
                .then(|| boot_ms().saturating_sub(self.shown.leader_until_ms.load(Ordering::Relaxed))),
            followers: self.followers(),
        }
    }

    /// Hands the leadership over to this replica, if this one has it.
    pub fn transfer(&self, to: u64) {
        self.inbox.command(Command::Transfer(self.group, to));
    }
}

/// Messages that were not looked at may have so many bytes: the others are dropped.
const INBOX_BYTES: usize = 256 << 20;
/// A driver that has done nothing for so long, as its disk takes nothing, leads no group any more: the longest time until another
/// replica tries to lead.
const STANDSTILL_MS: u64 = 2 * TICK_MS * ELECTION_TICKS as u64;

/// What the thread is to look at.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) letters: Mutex<Letters>,
    pub(super) arrived: Condvar,
    /// When the thread looked at it last, by [`boot_ms`].
    pub(super) looked_ms: AtomicU64,
}

#[derive(Default)]
pub(super) struct Letters {
    pub(super) messages: Vec<(GroupId, Bytes)>,
    pub(super) message_bytes: usize,
    pub(super) commands: Vec<Command>,
    /// A leader has records to propose.
    pub(super) has_proposals: bool,
}

pub(super) enum Command {
    Add(GroupId, Box<Settings>, Opened),
    Lead(GroupId, Arc<Node>, u64),
    Durable(GroupId, u64),
    Copied(GroupId, Copied, oneshot::Sender<()>),
    Change(GroupId, MemberChange),
    Transfer(GroupId, u64),
    Resign(GroupId, u64),
    Unreachable(u64),
    Remove(GroupId),
    Forget(GroupId, oneshot::Sender<()>),
    Save(Vec<u8>, oneshot::Sender<()>),
    Stop,
}

/// Where the handle of a new replica goes.
pub(super) type Opened = std::sync::mpsc::Sender<Result<ReplicaHandle, ConsensusError>>;

impl Inbox {
    pub(super) fn command(&self, command: Command) {
        self.letters.lock().commands.push(command);
        self.arrived.notify_one();
    }

    pub(super) fn receive(&self, group: GroupId, message: Bytes) {
        let mut letters = self.letters.lock();
        if letters.message_bytes > INBOX_BYTES {
            return;
        }
        letters.message_bytes += message.len();
        letters.messages.push((group, message));
        self.arrived.notify_one();
    }

    /// Waits until there is something, or it is time for the next tick.
    pub(super) fn take(&self, until: Instant) -> Letters {
        let mut letters = self.letters.lock();
        if letters.messages.is_empty() && letters.commands.is_empty() && !letters.has_proposals {
            self.arrived.wait_until(&mut letters, until);
        }
        std::mem::take(&mut letters)
    }

    /// Whether the thread has not looked for so long that it leads no group any more.
    pub(super) fn stands_still(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.looked_ms.load(Ordering::Relaxed)) > STANDSTILL_MS
    }

    /// Waits; whether the driver is to end.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let (mut letters, until) = (self.letters.lock(), Instant::now() + time);
        let ends =
            |letters: &Letters| letters.commands.iter().any(|command| matches!(command, Command::Stop));
        while !ends(&letters) {
            if self.arrived.wait_until(&mut letters, until).timed_out() {
                break;
            }
        }
        ends(&letters)
    }
}
