//! A machine with a replica: its disk, its clock, and what it keeps for clients.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::Disk;
use super::service::{Change, Command, KEYS, Service};
use crate::{Committed, Outgoing, Replica, Role};

/// A mistake that is put in to see whether it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A replica votes before the vote is durable.
    VoteNotFlushed,
    /// A replica acknowledges entries that are not durable.
    EntriesNotFlushed,
    /// The leader answers a write that it has only proposed.
    AnswerBeforeCommit,
    /// A lease is twice as long as the shortest election.
    LongLease,
    /// The leader's data on disk has what is not committed yet.
    FoldBeforeCommit,
    /// A new leader does not hold the keys that undecided transactions hold.
    PreparedNotLocked,
    /// A new replica gets a vote before the one that goes loses it.
    VoteBeforeRemoval,
}

impl Bug {
    pub const ALL: [Bug; 7] = [
        Bug::VoteNotFlushed,
        Bug::EntriesNotFlushed,
        Bug::AnswerBeforeCommit,
        Bug::LongLease,
        Bug::FoldBeforeCommit,
        Bug::PreparedNotLocked,
        Bug::VoteBeforeRemoval,
    ];
}

/// What a machine has of the service, up to an entry.
#[derive(Clone, Default)]
pub struct Data {
    pub index: u64,
    /// The greatest number of a command.
    pub newest: u64,
    pub service: Service,
}

impl Data {
    /// Carries out an entry, unless that was done. What must not have come is found by the rules.
    pub fn take(&mut self, entry: &Committed) {
        if entry.position.index > self.index {
            self.index = entry.position.index;
            if let Some(command) = Command::from_bytes(&entry.data.whole()) {
                self.carry_out(command);
            }
        }
    }

    fn carry_out(&mut self, command: Command) {
        self.newest = self.newest.max(command.number);
        let _ = self.service.apply(command);
    }
}

/// What a leader knows beyond what is committed.
pub struct Leading {
    pub term: u64,
    /// With all that it has proposed; the index is of no use.
    pub ahead: Data,
    /// The keys that it does not change for others: the transactions that hold them.
    locks: BTreeMap<u64, u64>,
    /// Is written to its data on disk when it is committed.
    folded: Option<Data>,
}

pub struct Machine {
    pub id: u64,
    pub disk: Disk,
    /// None while it is down.
    pub replica: Option<Replica>,
    pub up_at: u64,
    /// Its clock: thousandths of its speed, and when it ticks next by its own time.
    pub speed: u64,
    pub next_tick: u64,
    /// Rounds that are written and flushed later: when, their number, and what is sent then.
    pub flushing: Vec<(u64, u64, Vec<Outgoing>)>,
    /// It stands still until then.
    pub paused_until: u64,
    /// What is committed, as far as it knows.
    pub data: Data,
    /// The same on disk, which has what its log has dropped.
    pub kept: Data,
    /// While it leads.
    pub leading: Option<Leading>,
    /// Its disk is gone, and it with it.
    pub is_lost: bool,
    /// When the copy is there that it waits for.
    pub copied_at: Option<u64>,
    /// Commands that it proposed in this term and has not answered.
    pub proposed: BTreeSet<u64>,
    pub role: Role,
}

impl Machine {
    pub fn new(id: u64, speed: u64) -> Machine {
        Machine {
            id,
            disk: Disk::default(),
            replica: None,
            up_at: 0,
            speed,
            next_tick: 0,
            flushing: Vec::new(),
            paused_until: 0,
            data: Data::default(),
            kept: Data::default(),
            leading: None,
            is_lost: false,
            copied_at: None,
            proposed: BTreeSet::new(),
            role: Role::default(),
        }
    }

    /// Reads its data from disk, and carries out what its log has beyond that.
    pub fn read(&mut self) {
        self.data = self.kept.clone();
        self.leading = None;
        if let Some(replica) = &self.replica {
            let log = replica.log();
            let known = log.committed(log.before().index + 1, usize::MAX).unwrap_or_default();
            known.iter().for_each(|entry| self.data.take(entry));
        }
    }

    /// Whether it may serve clients: it leads, and has all that was committed before.
    pub fn lead(&mut self, bug: Option<Bug>) -> bool {
        let Some(replica) = &self.replica else { return false };
        let role = replica.role();
        if !role.leads || !replica.is_ready_to_lead() {
            return false;
        }
        if self.leading.as_ref().is_none_or(|leading| leading.term != role.term) {
            if self.data.index < replica.log().committed_index() {
                return false;
            }
            let locks = match bug {
                Some(Bug::PreparedNotLocked) => BTreeMap::new(),
                _ => self.data.service.held.clone(),
            };
            self.leading = Some(Leading { term: role.term, ahead: self.data.clone(), locks, folded: None });
        }
        true
    }

    /// A client asks for a change of a key. Whether it is proposed.
    pub fn propose(&mut self, change: Change, number: u64, key: u64) -> bool {
        let (Some(replica), Some(leading)) = (&mut self.replica, &mut self.leading) else { return false };
        let is_locked = leading.locks.contains_key(&key);
        if is_locked != (change == Change::Decide) {
            return false;
        }
        let command = Command { change, number, key: key % KEYS };
        if replica.propose(vec![command.to_bytes().into()]).is_err() {
            return false;
        }
        match change {
            Change::Write => {}
            Change::Prepare => drop(leading.locks.insert(key, number)),
            Change::Decide => drop(leading.locks.remove(&key)),
        }
        leading.ahead.carry_out(command);
        self.proposed.insert(number);
        true
    }

    /// Folds what it has into its data on disk. Whether that was ahead of what is committed.
    pub fn fold(&mut self, bug: Option<Bug>) -> bool {
        let last = self.replica.as_ref().map_or(0, |replica| replica.log().last_index());
        let Some(leading) = &mut self.leading else {
            self.kept = self.data.clone();
            return false;
        };
        let folded = leading.ahead.clone();
        let is_ahead = folded.newest > self.data.newest;
        match bug {
            Some(Bug::FoldBeforeCommit) => self.kept = Data { index: last, ..folded },
            _ => leading.folded = Some(folded),
        }
        let term = leading.term;
        self.keep_committed(term);
        is_ahead
    }

    /// What was folded is written when the last command in it is committed: by an entry of the term in which it leads, since other
    /// entries are those of another leader.
    pub fn keep_committed(&mut self, term: u64) {
        if let Some(leading) = &mut self.leading
            && leading.term == term
            && let Some(folded) = leading.folded.take_if(|folded| folded.newest <= self.data.newest)
        {
            self.kept = Data { index: self.data.index, ..folded };
        }
    }
}
