//! The thread that drives the replicas of a process: it gives them ticks, messages and proposals, writes their logs, and
//! sends what they have to say.

mod handle;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::{ConsensusError, Outgoing, Replica, Role, Settings, TICK_MS};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use self::handle::{Command, Inbox, Letters, Shown};
pub use self::handle::{GroupState, ReplicaHandle, ReplicaStatus};
use super::entry;
use super::group_id::GroupId;
use super::log_disk::LogDisk;
use super::questions::Questions;
use crate::journal::{DiskError, GroupCommit, boot_ms, fail_point};
use crate::node::Node;
use crate::random::random;

/// How messages come to the other replicas of a group. A message that is lost is sent again.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message of a replica of this group to another one, without waiting.
    fn send(&self, group: GroupId, from: u64, to: u64, message: Bytes);
}

/// How soon a disk that has refused something is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How often logs are shortened.
const SHORTEN_TICKS: u64 = 10;
/// A log that is longer is shortened although another replica lacks some of it.
const LOG_BYTES: usize = 64 << 20;
/// How much of a log is looked at to find what can be dropped.
const LOOK_BYTES: usize = 8 << 20;

/// The thread, and the way to it.
pub struct Driver {
    inbox: Arc<Inbox>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why there is no driver or no replica.
#[derive(Debug)]
pub enum DriverError {
    /// The disk of the logs.
    Disk(DiskError),
    /// The replica.
    Consensus(ConsensusError),
    /// The thread cannot be started.
    Thread(io::Error),
    /// The thread has ended.
    Over,
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::Disk(error) => error.fmt(f),
            DriverError::Consensus(error) => error.fmt(f),
            DriverError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            DriverError::Over => f.write_str("the replicated log has failed"),
        }
    }
}

impl std::error::Error for DriverError {}

impl Driver {
    /// Drives replicas whose logs are on this disk. `warn` logs what an operator has to know.
    pub fn start(
        disk: LogDisk,
        transport: Arc<dyn Transport>,
        warn: fn(&str),
    ) -> Result<Driver, DriverError> {
        let inbox = Arc::<Inbox>::default();
        inbox.looked_ms.store(boot_ms(), Ordering::Relaxed);
        let mut driving = Driving {
            disk,
            replicas: BTreeMap::new(),
            transport,
            inbox: inbox.clone(),
            warn,
            ticks: 0,
            next_tick: Instant::now(),
            copied: Vec::new(),
        };
        let run = move || {
            // A message that the Raft implementation does not expect ends this process' part, not the process.
            if catch_unwind(AssertUnwindSafe(|| driving.run())).is_err() {
                (driving.warn)(
                    "this process takes part in no group any more: the replicated log has panicked",
                );
            }
            driving.replicas.values_mut().for_each(Driven::end);
        };
        let thread = std::thread::Builder::new().name("replication".into()).spawn(run);
        Ok(Driver { inbox, thread: Mutex::new(Some(thread.map_err(DriverError::Thread)?)) })
    }

    /// Adds a replica: number `id` of a group that begins with these `voters`, or joins the group if there are none.
    pub fn add(&self, group: GroupId, id: u64, voters: &[u64]) -> Result<ReplicaHandle, DriverError> {
        let (opened, result) = std::sync::mpsc::channel();
        let settings = Settings::new(id, voters, random(), boot_ms());
        self.inbox.command(Command::Add(group, Box::new(settings), opened));
        result.recv().map_err(|_| DriverError::Over)?.map_err(DriverError::Consensus)
    }

    /// A message of another replica of this group has come.
    pub fn receive(&self, group: GroupId, message: Bytes) {
        self.inbox.receive(group, message);
    }

    /// The process with these replicas cannot be reached at present.
    pub fn unreachable(&self, process: u64) {
        self.inbox.command(Command::Unreachable(process));
    }

    /// Keeps what the process remembers of its cluster. Whether it is on disk; if not the driver has ended.
    pub async fn save(&self, record: Vec<u8>) -> bool {
        let (done, saved) = oneshot::channel();
        self.inbox.command(Command::Save(record, done));
        saved.await.is_ok()
    }

    /// Ends the replica of this group, if there is one, and deletes its log. Whether it is gone; if not the driver has ended.
    pub async fn forget(&self, group: GroupId) -> bool {
        let (done, gone) = oneshot::channel();
        self.inbox.command(Command::Forget(group, done));
        gone.await.is_ok()
    }

    /// Ends all replicas, and closes the disk of their logs.
    pub fn stop(&self) {
        self.inbox.command(Command::Stop);
        // A panic has been reported where it happened.
        let _ = self.thread.lock().take().map(JoinHandle::join);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A replica as the thread has it.
struct Driven {
    replica: Replica,
    state: watch::Sender<GroupState>,
    shown: Arc<Shown>,
    /// The newest term whose leader was seen.
    term_of_leader: u64,
    /// While it leads: the node whose records it proposes, and since which term.
    leading: Option<(Arc<Node>, u64)>,
    /// The node has all records up to this one on its own disk.
    durable: u64,
    /// Of the node, whether it leads.
    questions: Questions,
}

struct Driving {
    disk: LogDisk,
    replicas: BTreeMap<GroupId, Driven>,
    transport: Arc<dyn Transport>,
    inbox: Arc<Inbox>,
    warn: fn(&str),
    ticks: u64,
    next_tick: Instant,
    /// Those who wait until the log knows of a copy.
    copied: Vec<oneshot::Sender<()>>,
}

impl Driving {
    fn run(&mut self) {
        loop {
            let letters = self.inbox.take(self.next_tick);
            match self.work(letters) {
                Ok(true) => {}
                Ok(false) => break,
                Err(DriverError::Over) => break,
                Err(error) => {
                    (self.warn)(&format!("this process takes part in no group any more: {error}"));
                    break;
                }
            }
        }
    }

    /// Writes the logs. While the disk refuses that, this process stands still: the others elect leaders for its groups. An error,
    /// [`DriverError::Over`], if it is to end meanwhile.
    fn write(&mut self, must_flush: bool) -> Result<(), DriverError> {
        let mut has_failed = false;
        while let Err(error) = self.disk.write(must_flush) {
            if !has_failed {
                (self.warn)(&format!(
                    "the replicas of this process stand still until their logs can be written: {error}"
                ));
                has_failed = true;
            }
            if self.inbox.ends_within(RETRY_INTERVAL) {
                return Err(DriverError::Over);
            }
        }
        if has_failed {
            (self.warn)("the replicated logs can be written again");
        }
        Ok(())
    }

    /// Leads no group any more after a standstill: nothing is answered since then.
    fn notice_standstill(&mut self, now_ms: u64) {
        if self.inbox.stands_still(now_ms) {
            self.replicas.values_mut().for_each(|driven| driven.replica.resign());
        }
        self.inbox.looked_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether the thread goes on.
    fn work(&mut self, letters: Letters) -> Result<bool, DriverError> {
        self.notice_standstill(boot_ms());
        for command in letters.commands {
            if matches!(command, Command::Stop) {
                return Ok(false);
            }
            self.obey(command)?;
        }
        let now_ms = boot_ms();
        for (group, message) in letters.messages {
            let Some(driven) = self.replicas.get_mut(&group) else { continue };
            match driven.replica.step(&message, now_ms) {
                Ok(()) => {}
                Err(error @ ConsensusError::InvalidMessage(_)) => {
                    (self.warn)(&format!("group {}: {error}", group.0))
                }
                Err(error) => return Err(DriverError::Consensus(error)),
            }
        }
        if Instant::now() >= self.next_tick {
            self.tick(now_ms);
        }
        for driven in self.replicas.values_mut() {
            driven.ask(now_ms);
            driven.propose()?;
        }
        while self.round()? {}
        for driven in self.replicas.values_mut() {
            driven.publish();
        }
        for done in self.copied.drain(..) {
            // Who waited may be gone.
            let _ = done.send(());
        }
        Ok(true)
    }

    fn obey(&mut self, command: Command) -> Result<(), DriverError> {
        match command {
            Command::Add(group, settings, opened) => {
                // `Driver::add` waits for the answer.
                let _ = opened.send(self.add(group, &settings));
            }
            Command::Lead(group, node, term) => {
                if let Some(driven) = self.replicas.get_mut(&group) {
                    (driven.leading, driven.questions) = (Some((node, term)), Questions::default());
                }
            }
            Command::Durable(group, record) => {
                if let Some(driven) = self.replicas.get_mut(&group) {
                    driven.durable = driven.durable.max(record);
                }
            }
            Command::Copied(group, copied, done) => {
                let driven = self.replicas.get_mut(&group);
                if let Some(driven) = &driven {
                    driven.shown.copies.fetch_add(1, Ordering::Relaxed);
                }
                let taken = driven.map(|driven| driven.replica.copied(copied.position, &copied.members));
                if let Some(Err(error)) = taken {
                    (self.warn)(&format!("group {}: a copy is of no use: {error}", group.0));
                }
                self.copied.push(done);
            }
            Command::Change(group, change) => {
                if let Some(driven) = self.replicas.get_mut(&group) {
                    // Who wants it asks again until it is done.
                    let _ = driven.replica.change_members(change);
                }
            }
            Command::Transfer(group, to) => {
                if let Some(driven) = self.replicas.get_mut(&group) {
                    driven.replica.transfer(to);
                }
            }
            Command::Resign(group, term) => {
                if let Some(driven) =
                    self.replicas.get_mut(&group).filter(|it| it.replica.role().term == term)
                {
                    driven.replica.resign();
                }
            }
            Command::Unreachable(process) => {
                self.replicas.values_mut().for_each(|driven| driven.replica.report_unreachable(process));
            }
            Command::Remove(group) => {
                if let Some(mut driven) = self.replicas.remove(&group) {
                    driven.end();
                }
            }
            Command::Forget(group, done) => {
                if let Some(mut driven) = self.replicas.remove(&group) {
                    driven.end();
                    self.disk.add(group, driven.replica.log().deleted());
                }
                self.write(true)?;
                // Who waited may be gone.
                let _ = done.send(());
            }
            Command::Save(record, done) => {
                self.disk.found(record);
                self.write(true)?;
                let _ = done.send(());
            }
            Command::Stop => {}
        }
        Ok(())
    }

    fn add(&mut self, group: GroupId, settings: &Settings) -> Result<ReplicaHandle, ConsensusError> {
        let (replica, changes) = Replica::open(settings, self.disk.take(group))?;
        // With the first vote, which is flushed.
        self.disk.add(group, changes);
        let (sender, state) = watch::channel(GroupState::default());
        let (log, shown) = (replica.log().clone(), Arc::<Shown>::default());
        shown.leader_until_ms.store(settings.now_ms, Ordering::Relaxed);
        let handle = ReplicaHandle { group, log, state, shown: shown.clone(), inbox: self.inbox.clone() };
        let driven = Driven {
            replica,
            state: sender,
            shown,
            term_of_leader: 0,
            leading: None,
            durable: 0,
            questions: Questions::default(),
        };
        self.replicas.insert(group, driven);
        Ok(handle)
    }

    fn tick(&mut self, now_ms: u64) {
        // Ticks that were missed are skipped: who stood still has heard nothing meanwhile, and has to listen first.
        self.next_tick = Instant::now() + Duration::from_millis(TICK_MS);
        self.ticks += 1;
        for (group, driven) in &mut self.replicas {
            driven.replica.tick(now_ms);
            *driven.shown.followers.lock() = driven.replica.followers();
            if driven.replica.role().leader.is_some() {
                driven.shown.leader_until_ms.store(now_ms, Ordering::Relaxed);
            }
            if self.ticks.is_multiple_of(SHORTEN_TICKS) {
                let changes = driven.shorten();
                self.disk.add(*group, changes);
            }
        }
    }

    /// Does what all replicas have to do now, with one write and one flush. Whether there was something.
    fn round(&mut self) -> Result<bool, DriverError> {
        let (mut rounds, mut must_flush) = (Vec::new(), false);
        for (group, driven) in &mut self.replicas {
            while let Some(round) = driven.replica.round().map_err(DriverError::Consensus)? {
                let from = driven.replica.id();
                send(&*self.transport, *group, from, round.send);
                self.disk.add(*group, round.changes);
                must_flush |= round.must_flush;
                driven.committed(&round.committed)?;
                rounds.push((*group, round.number, round.send_after));
            }
        }
        self.write(must_flush)?;
        let worked = !rounds.is_empty();
        for (group, number, send_after) in rounds {
            if let Some(driven) = self.replicas.get_mut(&group) {
                send(&*self.transport, group, driven.replica.id(), send_after);
                driven.replica.persisted(number);
            }
        }
        Ok(worked)
    }
}

fn send(transport: &dyn Transport, group: GroupId, from: u64, messages: Vec<Outgoing>) {
    for Outgoing { to, bytes } in messages {
        transport.send(group, from, to, bytes);
    }
}

impl Driven {
    /// The side of the leading node's journal that the group sees, and the term in which it leads.
    fn journal(&self) -> Option<(&GroupCommit, u64)> {
        let (node, term) = self.leading.as_ref()?;
        Some((node.journal()?.group()?, *term))
    }

    /// Asks the others whether it leads, if the node wants to know: once for all that wait.
    fn ask(&mut self, now_ms: u64) {
        let Some(newest) = self.journal().map(|(group, _)| group.questions()) else { return };
        if self.questions.are_new(newest)
            && let Some(number) = self.replica.ask_for_lease(now_ms)
        {
            self.questions.passed_on(newest, number);
        }
    }

    /// Proposes what the node has recorded, while the replica leads in the node's term; if it does not, `publish` says that.
    fn propose(&mut self) -> Result<(), DriverError> {
        let Role { leads, term, .. } = self.replica.role();
        let Some((node, _)) = self.leading.as_ref().filter(|(_, since)| leads && *since == term) else {
            return Ok(());
        };
        for drained in node.journal().map(|journal| journal.take_proposals()).unwrap_or_default() {
            self.replica.propose(entry::encode(&drained)).map_err(DriverError::Consensus)?;
        }
        Ok(())
    }

    /// The group has committed these: the node's clients may hear of them.
    fn committed(&mut self, entries: &[consensus::Committed]) -> Result<(), DriverError> {
        let Some((group, term)) = self.journal() else { return Ok(()) };
        let mine = entries.iter().rev().find(|entry| entry.position.term == term && !entry.data.is_empty());
        if let Some(mine) = mine {
            let damaged = |_| {
                let what = format!("entry {} cannot be read", mine.position.index);
                DriverError::Consensus(ConsensusError::Damaged(what))
            };
            if let Some(entry) = entry::decode(&mine.data.head()).map_err(damaged)? {
                group.report(|progress| progress.committed = progress.committed.max(entry.last()));
            }
        }
        Ok(())
    }

    /// Shows the rest of the process what the replica is.
    fn publish(&mut self) {
        let role = self.replica.role();
        if role.leader.is_some() && role.term != self.term_of_leader {
            self.term_of_leader = role.term;
            self.shown.elections.fetch_add(1, Ordering::Relaxed);
        }
        let confirmed = self.questions.answered(self.replica.answered());
        if let Some((group, term)) = self.journal() {
            if role.leads && role.term == term {
                // What is committed comes from its node.
                self.shown.applied.store(self.replica.log().committed_index(), Ordering::Relaxed);
                let until = self.replica.lease_until_ms();
                let known = group.progress();
                if known.lease_until_ms != until || known.confirmed != confirmed {
                    group.report(|progress| {
                        (progress.lease_until_ms, progress.confirmed) = (until, confirmed);
                    });
                }
            } else {
                self.resign();
            }
        }
        let state = GroupState {
            role,
            is_ready_to_lead: self.replica.is_ready_to_lead(),
            committed: self.replica.log().committed_index(),
            awaits_copy: self.replica.awaits_copy(),
            is_over: false,
        };
        self.state.send_if_modified(|held| std::mem::replace(held, state) != state);
    }

    /// Nothing more comes of the replica.
    fn end(&mut self) {
        self.resign();
        self.state.send_replace(GroupState { is_over: true, ..GroupState::default() });
    }

    /// The replica does not lead any more.
    fn resign(&mut self) {
        if let Some((group, _)) = self.journal() {
            group.report(|progress| progress.is_lost = true);
        }
        self.leading = None;
    }

    /// Drops entries that the node has on its own disk and all other replicas have, or all if they take too much room.
    fn shorten(&mut self) -> Vec<consensus::LogChange> {
        let log = self.replica.log();
        let log_bytes = fail_point::number("log-bytes").map_or(LOG_BYTES, |bytes| bytes as usize);
        let most = if log.bytes() > log_bytes { u64::MAX } else { self.replica.matched_by_all() };
        let first = log.before().index + 1;
        let held = log.committed(first, LOOK_BYTES).unwrap_or_default();
        let is_durable = |entry: &&consensus::Committed| {
            entry.position.index <= most
                && entry::decode(&entry.data.head())
                    .is_ok_and(|entry| entry.is_none_or(|entry| entry.last() <= self.durable))
        };
        match held.iter().take_while(is_durable).last() {
            Some(last) => self.replica.shorten(last.position.index),
            None => Vec::new(),
        }
    }
}
