//! One replica of a group.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType, Message, MessageType};
use raft::{Config, ProgressState, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use slog::{Discard, Logger, o};
use store_engine::random;

use crate::error::ConsensusError;
use crate::lease::{LEASE_MS, Lease};
use crate::log::{Log, LogChange, Saved, snapshot_of};
use crate::members::{MemberChange, Members};
use crate::message::{self, Outgoing};
use crate::parts::{self, Assembler, Committed, PART_BYTES};
use crate::position::Position;
use crate::timing::{ELECTION_TICKS, HEARTBEAT_TICKS};

/// Entries that are not committed yet may have so many bytes: what is proposed beyond that waits.
const UNCOMMITTED_BYTES: u64 = 16 << 20;
/// A message carries entries of about so many bytes.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Messages to one replica that are not answered yet.
const INFLIGHT_MESSAGES: usize = 256;
/// A replica that needs a copy of the data hears that again after so many ticks, as the message may have been lost.
const COPY_TICKS: usize = 20;
/// A replica that lacks fewer entries has caught up.
const NEAR: u64 = 1000;

/// Who a replica is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its number, which is never used for another one of the group; not 0.
    pub id: u64,
    /// The replicas of a new group, which includes this one; none if it joins a group that there is. Of a replica that has
    /// started before its log says who they are.
    pub voters: Vec<u64>,
    /// Replicas with different seeds wait differently long for a leader.
    pub seed: u64,
    /// The present time, see [`Replica::tick`].
    pub now_ms: u64,
    /// A proposal that is longer is divided.
    pub part_bytes: usize,
}

impl Settings {
    /// Of a replica with this number in a group of `voters`.
    pub fn new(id: u64, voters: &[u64], seed: u64, now_ms: u64) -> Settings {
        Settings { id, voters: voters.to_vec(), seed, now_ms, part_bytes: PART_BYTES }
    }
}

/// What a replica is in its group at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Role {
    /// The newest term that it knows.
    pub term: u64,
    /// The leader of the term, if it knows one.
    pub leader: Option<u64>,
    /// Whether it is the leader itself.
    pub leads: bool,
}

/// How far another replica is, as the leader knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Follower {
    /// Its number.
    pub id: u64,
    /// The last entry that it is known to have on disk.
    pub matched: u64,
    /// Whether it lacks so little that it may get a vote.
    pub has_caught_up: bool,
    /// Whether it waits for a copy of the data.
    pub needs_copy: bool,
    /// Whether it was heard within the shortest election time.
    pub is_active: bool,
}

/// What is to be done for a replica. What is not done in this order may lose data.
#[derive(Debug, Default)]
pub struct Round {
    /// For [`Replica::persisted`].
    pub number: u64,
    /// To be sent at once.
    pub send: Vec<Outgoing>,
    /// To be written to disk.
    pub changes: Vec<LogChange>,
    /// Whether the changes must be durable before the round is reported as persisted.
    pub must_flush: bool,
    /// To be sent when the changes are durable.
    pub send_after: Vec<Outgoing>,
    /// What is committed now, in order.
    pub committed: Vec<Committed>,
}

/// One replica of a group.
pub struct Replica {
    raw: RawNode<Log>,
    log: Log,
    id: u64,
    random: u64,
    /// How many ticks it waits for a leader, and the term and role for which that was drawn.
    timeout: (usize, u64, StateRole),
    pub(crate) lease: Lease,
    /// Until then it gives no vote: before its start it may have given a lease.
    deaf_until_ms: u64,
    ticks: usize,
    /// At which tick each other replica was heard last.
    heard: BTreeMap<u64, usize>,
    /// What a leader sent that does not have the entries any more that this replica lacks.
    awaits_copy: Option<Message>,
    /// The copy that was made, until the log begins with it.
    copy: Option<(Position, Members)>,
    /// A round that makes a copy the beginning of the log, and the entry that the copy is of.
    restored: Option<(u64, u64)>,
    part_bytes: usize,
    /// What is proposed and not in the log yet: parts with how many follow, and the term in which this replica leads.
    waiting: VecDeque<(Bytes, u32)>,
    waiting_term: u64,
    /// Of what is committed.
    assembler: Assembler,
}

impl Replica {
    /// The replica that the disk holds, or a new one if that is empty. Also returns what has to be on disk before anything
    /// else is done.
    pub fn open(settings: &Settings, saved: Saved) -> Result<(Replica, Vec<LogChange>), ConsensusError> {
        let is_new = saved.state.is_none() && saved.entries.is_empty();
        let log = if is_new { Log::new(&settings.voters) } else { Log::load(saved)? };
        let config = Config {
            id: settings.id,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: log.before().index,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: INFLIGHT_MESSAGES,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_uncommitted_size: UNCOMMITTED_BYTES,
            ..Config::new(settings.id)
        };
        let raw = RawNode::new(&config, log.clone(), &Logger::root(Discard, o!()))?;
        let mut replica = Replica {
            raw,
            log,
            id: settings.id,
            random: settings.seed,
            timeout: (0, 0, StateRole::Follower),
            lease: Lease::default(),
            deaf_until_ms: if is_new { 0 } else { settings.now_ms + LEASE_MS },
            ticks: 0,
            heard: BTreeMap::new(),
            awaits_copy: None,
            copy: None,
            restored: None,
            part_bytes: settings.part_bytes,
            waiting: VecDeque::new(),
            waiting_term: 0,
            assembler: Assembler::default(),
        };
        replica.log.publish(replica.raw.raft.raft_log.committed.min(replica.log.last_index()));
        replica.draw();
        let changes = if is_new { vec![replica.log.state()] } else { Vec::new() };
        Ok((replica, changes))
    }

    /// The log, to read what is committed.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What it is at present.
    pub fn role(&self) -> Role {
        let raft = &self.raw.raft;
        Role {
            term: raft.term,
            leader: Some(raft.leader_id).filter(|leader| *leader != raft::INVALID_ID),
            leads: raft.state == StateRole::Leader,
        }
    }

    /// Whether it is the leader, and knows all that was committed before.
    pub fn is_ready_to_lead(&self) -> bool {
        self.role().leads && self.raw.raft.commit_to_current_term()
    }

    /// Until when it may answer reads, by the clock of [`Replica::tick`]; 0 if it may not.
    pub fn lease_until_ms(&self) -> u64 {
        if self.role().leads { self.lease.until_ms() } else { 0 }
    }

    /// [`TICK_MS`](crate::TICK_MS) have passed. `now_ms` is read from a clock that is never set, and that also counts time in which the
    /// machine sleeps.
    pub fn tick(&mut self, now_ms: u64) {
        self.raw.tick();
        self.ticks += 1;
        if self.ticks.is_multiple_of(HEARTBEAT_TICKS) && self.role().leads {
            let _ = self.ask_for_lease(now_ms);
        }
        if self.ticks.is_multiple_of(COPY_TICKS) && self.role().leads {
            for Follower { id, .. } in self.followers().into_iter().filter(|follower| follower.needs_copy) {
                self.raw.report_snapshot(id, SnapshotStatus::Failure);
            }
        }
        self.draw();
    }

    /// Asks the other replicas whether this one still is the leader; a majority that says so renews its lease. The number of the
    /// question, unless this replica is not ready to lead.
    pub fn ask_for_lease(&mut self, now_ms: u64) -> Option<u64> {
        if !self.is_ready_to_lead() || self.raw.raft.lead_transferee.is_some() {
            return None;
        }
        let question = self.lease.ask(now_ms);
        self.raw.read_index(question.to_be_bytes().to_vec());
        Some(question)
    }

    /// The newest question of [`Replica::ask_for_lease`] that a majority has answered, and with it all before: this replica was the
    /// leader when it asked.
    pub fn answered(&self) -> u64 {
        self.lease.answered()
    }

    /// Another replica sent this message.
    pub fn step(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), ConsensusError> {
        let message = message::decode(bytes, self.id)?;
        if self.raw.raft.prs().get(message.from).is_some() {
            self.heard.insert(message.from, self.ticks);
        }
        if message.msg_type == MessageType::MsgSnapshot && self.lacks_entry_of(&message) {
            if message.term >= self.raw.raft.term {
                self.awaits_copy = Some(message);
                self.take_copy()?;
            }
            return Ok(());
        }
        let asks_for_vote =
            matches!(message.msg_type, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
        if asks_for_vote && now_ms < self.deaf_until_ms {
            return Ok(());
        }
        let last = self.raw.raft.raft_log.last_index();
        let counts_on_more = message.msg_type == MessageType::MsgHeartbeat && message.commit > last;
        if counts_on_more && message.term >= self.raw.raft.term {
            return Err(ConsensusError::LogLost { last, acknowledged: message.commit });
        }
        let done = self.raw.step(message);
        // Another leader may have had the entries.
        if self.awaits_copy.as_ref().is_some_and(|message| !self.lacks_entry_of(message)) {
            self.awaits_copy = None;
        }
        self.draw();
        match done {
            // It answers something that this replica does not ask any more.
            Err(raft::Error::StepPeerNotFound) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Proposes the bytes of these pieces, if this is the leader: they come into the log, in order, as soon as the others have
    /// taken what was proposed before, and may be lost until they are committed.
    pub fn propose(&mut self, pieces: Vec<Bytes>) -> Result<(), ConsensusError> {
        let Role { leads, term, .. } = self.role();
        if !leads {
            return Err(ConsensusError::NotLeader);
        }
        if self.waiting_term != term {
            self.waiting.clear();
            self.waiting_term = term;
        }
        self.waiting.append(&mut parts::divide(pieces, self.part_bytes));
        Ok(())
    }

    /// Appends what waits for that.
    fn append_waiting(&mut self) -> Result<(), ConsensusError> {
        let Role { leads, term, .. } = self.role();
        if !leads || self.waiting_term != term {
            self.waiting.clear();
        }
        // While the leadership is handed over nothing is appended.
        while self.raw.raft.lead_transferee.is_none()
            && let Some((data, following)) = self.waiting.front()
        {
            let entry = parts::entry_of(data.clone(), *following);
            let mut message = Message { from: self.id, entries: vec![entry].into(), ..Message::default() };
            message.set_msg_type(MessageType::MsgPropose);
            match self.raw.raft.step(message) {
                Ok(()) => drop(self.waiting.pop_front()),
                // The others have not taken enough of what was proposed before.
                Err(raft::Error::ProposalDropped) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Hands the leadership over to another replica, which becomes the leader once it has all entries. What is proposed meanwhile
    /// waits; if it takes longer than an election this replica goes on. Does nothing unless this replica leads.
    pub fn transfer(&mut self, to: u64) {
        if !self.role().leads {
            return;
        }
        // The other one is voted for although this one was heard.
        self.lease.end();
        self.raw.transfer_leader(to);
        self.draw();
    }

    /// Leads no more, as if no majority had been heard.
    pub fn resign(&mut self) {
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Leader {
            raft.become_follower(raft.term, raft::INVALID_ID);
            self.draw();
        }
    }

    /// Changes who belongs to the group, if this is the leader. There is one change at a time: an error while another one is not
    /// committed, or a replacement not complete. A leader cannot remove itself.
    pub fn change_members(&mut self, change: MemberChange) -> Result<(), ConsensusError> {
        let raft = &self.raw.raft;
        let members = Members::of(&raft.prs().conf().to_conf_state());
        let removes_itself = match change {
            MemberChange::Remove(id) => id == self.id,
            MemberChange::LeaveJoint => !members.voters.contains(&self.id),
            _ => false,
        };
        if !self.is_ready_to_lead() || raft.lead_transferee.is_some() || removes_itself {
            return Err(ConsensusError::NotLeader);
        }
        let is_joint = !members.outgoing.is_empty();
        if raft.has_pending_conf() || is_joint != (change == MemberChange::LeaveJoint) {
            return Err(ConsensusError::ChangePending);
        }
        Ok(self.raw.propose_conf_change(Vec::new(), change.to_raft())?)
    }

    /// The other replicas; empty unless this one leads.
    pub fn followers(&self) -> Vec<Follower> {
        if !self.role().leads {
            return Vec::new();
        }
        let committed = self.log.committed_index();
        let others = self.raw.raft.prs().iter().filter(|(id, _)| **id != self.id);
        let follower = |(id, progress): (&u64, &raft::Progress)| Follower {
            id: *id,
            matched: progress.matched,
            has_caught_up: progress.state != ProgressState::Snapshot
                && progress.matched > 0
                && progress.matched + NEAR > committed,
            needs_copy: progress.state == ProgressState::Snapshot,
            // The Raft implementation forgets at each election time who was heard before.
            is_active: self.heard.get(id).is_some_and(|tick| self.ticks - tick <= ELECTION_TICKS),
        };
        others.map(follower).collect()
    }

    /// Whether this replica lacks entries that the leader does not have any more: it needs a copy of the data.
    pub fn awaits_copy(&self) -> bool {
        self.awaits_copy.is_some()
    }

    /// Whether this replica needs a copy to have the entry up to which the leader has dropped its log. The leader may have asked before it
    /// heard that a former copy was taken.
    fn lacks_entry_of(&self, message: &Message) -> bool {
        let before = message.get_snapshot().get_metadata();
        let log = &self.raw.raft.raft_log;
        before.index >= log.committed && !log.match_term(before.index, before.term)
    }

    /// The data was copied, with all entries up to this one; as of it the members are these. The data is durable.
    pub fn copied(&mut self, position: Position, members: &Members) -> Result<(), ConsensusError> {
        let invalid = |what: &str| Err(ConsensusError::InvalidMessage(what.to_owned()));
        if position.index == 0 || position.term == 0 {
            return invalid("it has a copy of no entry");
        }
        if !members.are_valid() {
            return invalid("no group can have the members of its copy");
        }
        self.copy = self.awaits_copy.as_ref().map(|_| (position, members.clone()));
        self.take_copy()
    }

    /// Restores the log from the copy, if there is one. A copy of a later term than the leader's message is kept until a message of
    /// that term arrives.
    fn take_copy(&mut self) -> Result<(), ConsensusError> {
        let Some(mut message) = self.awaits_copy.take() else { return Ok(()) };
        match self.copy.take() {
            Some((position, members)) if position.term <= message.term => {
                message.set_snapshot(snapshot_of(position, &members));
                self.raw.step(message)?;
                self.draw();
            }
            Some(copy) => self.copy = Some(copy),
            None => self.awaits_copy = Some(message),
        }
        Ok(())
    }

    /// Another replica cannot be reached at present.
    pub fn report_unreachable(&mut self, id: u64) {
        self.raw.report_unreachable(id);
    }

    /// What is to be done now, if there is something.
    pub fn round(&mut self) -> Result<Option<Round>, ConsensusError> {
        self.append_waiting()?;
        if !self.raw.has_ready() {
            return Ok(None);
        }
        let mut ready = self.raw.ready();
        let mut round = Round {
            number: ready.number(),
            send: message::encode(ready.take_messages()),
            send_after: message::encode(ready.take_persisted_messages()),
            changes: Vec::new(),
            must_flush: ready.must_sync(),
            committed: Vec::new(),
        };
        let restored = (!ready.snapshot().is_empty()).then(|| {
            let metadata = ready.snapshot().get_metadata();
            let position = Position { index: metadata.index, term: metadata.term };
            round.changes.extend(self.log.restore(position, Members::of(metadata.get_conf_state())));
            round.must_flush = true;
            self.assembler = Assembler::default();
            metadata.index
        });
        round.changes.extend(self.log.store(ready.hs(), ready.entries())?);
        if let Some(state) = ready.ss()
            && state.raft_state != StateRole::Leader
        {
            self.lease.end();
        }
        for read in ready.take_read_states() {
            if let Ok(question) = read.request_ctx.try_into() {
                self.lease.confirmed(u64::from_be_bytes(question));
            }
        }
        let committed = ready.take_committed_entries();
        self.raw.advance_append_async(ready);
        self.restored = restored.map(|index| (round.number, index)).or(self.restored);
        if let Some(last) = committed.last() {
            let last = last.index;
            for entry in committed {
                self.take_committed(&entry)?;
                self.assembler.take(&entry, &mut round.committed);
            }
            self.raw.advance_apply_to(last);
            self.log.publish(last);
        }
        Ok(Some(round))
    }

    /// Changes the members, if it is an entry that does.
    fn take_committed(&mut self, entry: &Entry) -> Result<(), ConsensusError> {
        if entry.entry_type == EntryType::EntryNormal {
            return Ok(());
        }
        let change: ConfChangeV2 = protobuf::Message::parse_from_bytes(&entry.data)
            .map_err(|_| ConsensusError::Damaged(format!("entry {} cannot be read", entry.index)))?;
        let members = self.raw.apply_conf_change(&change)?;
        self.log.change_members(entry.index, &members);
        let raft = &mut self.raw.raft;
        if raft.state != StateRole::Follower && !Members::of(&members).have_vote(self.id) {
            // An earlier leader has removed it. The Raft implementation panics if it goes on to lead.
            raft.become_follower(raft.term, raft::INVALID_ID);
            self.lease.end();
        }
        Ok(())
    }

    /// The changes of this round, and of all before it, are durable.
    pub fn persisted(&mut self, round: u64) {
        self.raw.on_persist_ready(round);
        if let Some((_, index)) = self.restored.take_if(|(restored, _)| *restored <= round) {
            self.raw.advance_apply_to(index);
        }
        self.draw();
    }

    /// Drops entries up to this one, none of which is needed here any more, but none of a proposal that goes on behind it; returns what that changes on disk. Replicas that lack
    /// one of them need a copy of the data instead.
    pub fn shorten(&mut self, to: u64) -> Vec<LogChange> {
        self.log.shorten(to)
    }

    /// The last entry that all other replicas are known to have.
    pub fn matched_by_all(&self) -> u64 {
        let others = self.raw.raft.prs().iter().filter(|(id, _)| **id != self.id);
        others.map(|(_, progress)| progress.matched).min().unwrap_or(u64::MAX)
    }

    /// Sets how long this replica waits for a leader. The Raft implementation draws that itself, but not from a seed.
    fn draw(&mut self) {
        let raft = &mut self.raw.raft;
        let (ticks, term, state) = self.timeout;
        if ticks == 0 || term != raft.term || state != raft.state {
            let ticks = ELECTION_TICKS + random::below(&mut self.random, ELECTION_TICKS);
            self.timeout = (ticks, raft.term, raft.state);
        }
        raft.set_randomized_election_timeout(self.timeout.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogKey;
    use crate::timing::TICK_MS;
    use raft::eraftpb::Message;

    fn settings(id: u64, now_ms: u64) -> Settings {
        Settings::new(id, &[1, 2, 3], id, now_ms)
    }

    /// What a replica has on disk that has started once.
    fn saved(changes: Vec<LogChange>) -> Saved {
        let state = changes.into_iter().find_map(|change| match change {
            LogChange::Put(LogKey::State, record) => Some(record),
            _ => None,
        });
        Saved { state, entries: Vec::new() }
    }

    fn message(kind: MessageType, change: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message { from: 2, to: 1, term: 5, ..Message::default() };
        message.set_msg_type(kind);
        change(&mut message);
        protobuf::Message::write_to_bytes(&message).expect("it is small")
    }

    #[test]
    fn a_replica_that_may_have_given_a_lease_gives_no_vote() {
        let (_, changes) = Replica::open(&settings(1, 0), Saved::default()).expect("a new one");
        let (mut replica, _) = Replica::open(&settings(1, 1000), saved(changes)).expect("it is whole");
        let asks = message(MessageType::MsgRequestVote, |_| ());
        replica.step(&asks, 999 + LEASE_MS).expect("a message");
        assert!(replica.round().expect("it works").is_none(), "it has not even taken the term");
        replica.step(&asks, 1000 + LEASE_MS).expect("a message");
        let round = replica.round().expect("it works").expect("it votes");
        assert_eq!((replica.role().term, round.send_after.len(), round.must_flush), (5, 1, true));
    }

    #[test]
    fn a_lost_log_is_noticed() {
        let (mut replica, _) = Replica::open(&settings(1, 0), Saved::default()).expect("a new one");
        let heartbeat = message(MessageType::MsgHeartbeat, |message| message.commit = 7);
        let error = replica.step(&heartbeat, 0).expect_err("it has no entries").to_string();
        assert!(error.ends_with("it acknowledged entry 7, but ends with entry 1"), "{error}");
    }

    #[test]
    fn a_copy_that_the_raft_implementation_would_panic_at_is_refused() {
        let (mut replica, _) =
            Replica::open(&Settings::new(1, &[], 1, 0), Saved::default()).expect("a new one");
        let asks = asks_for_copy(7);
        replica.step(&asks, 0).expect("a message");
        assert!(replica.awaits_copy());
        let position = Position { index: 9, term: 5 };
        let members = Members { learners: vec![1], ..Members::of_voters(&[2]) };
        let wrong = Members { outgoing: vec![1], ..members.clone() };
        assert!(replica.copied(position, &wrong).is_err());
        assert!(replica.copied(Position::default(), &members).is_err());
        assert!(replica.awaits_copy(), "it still needs one");
        replica.copied(position, &members).expect("it is one");
        let round = replica.round().expect("it works").expect("the log begins anew");
        assert!(round.must_flush && !replica.awaits_copy());
        assert_eq!((replica.log().before(), replica.log().members()), (position, members));
        replica.step(&asks, 0).expect("a message");
        assert!(!replica.awaits_copy(), "the leader asked before it heard of the copy");
        replica.step(&asks_for_copy(9), 0).expect("a message");
        assert!(!replica.awaits_copy(), "the copy ends with this entry");
        replica.step(&asks_for_copy(10), 0).expect("a message");
        assert!(replica.awaits_copy(), "this entry came later");
    }

    #[test]
    fn entries_of_another_leader_make_a_copy_needless() {
        let (mut replica, _) = Replica::open(&settings(1, 0), Saved::default()).expect("a new one");
        replica.step(&asks_for_copy(2), 0).expect("a message");
        assert!(replica.awaits_copy());
        let position = replica.log().last();
        let append = message(MessageType::MsgAppend, |message| {
            (message.index, message.log_term, message.commit) = (position.index, position.term, 2);
            let mut entry = parts::entry_of(Bytes::new(), 0);
            (entry.index, entry.term) = (2, 5);
            message.entries = vec![entry].into();
        });
        replica.step(&append, 0).expect("a message");
        assert!(!replica.awaits_copy());
    }

    /// A leader asks the replica to get a copy with this entry.
    fn asks_for_copy(index: u64) -> Vec<u8> {
        let members = Members { learners: vec![1], ..Members::of_voters(&[2]) };
        let snapshot = snapshot_of(Position { index, term: 5 }, &members);
        message(MessageType::MsgSnapshot, |message| message.set_snapshot(snapshot))
    }

    #[test]
    fn only_a_leader_proposes() {
        let (mut replica, _) = Replica::open(&settings(1, 0), Saved::default()).expect("a new one");
        assert!(matches!(replica.propose(vec![Bytes::from_static(&[1])]), Err(ConsensusError::NotLeader)));
        let settings = Settings::new(1, &[1], 1, 0);
        let (mut alone, _) = Replica::open(&settings, Saved::default()).expect("a new one");
        let mut committed = Vec::new();
        for ticks in 1..30 {
            alone.tick(ticks * TICK_MS);
            while let Some(round) = alone.round().expect("it works") {
                alone.persisted(round.number);
                committed.extend(round.committed);
            }
        }
        assert!(alone.is_ready_to_lead() && alone.lease_until_ms() > 28 * TICK_MS);
        alone.propose(vec![Bytes::from_static(&[1])]).expect("it leads");
        while let Some(round) = alone.round().expect("it works") {
            alone.persisted(round.number);
            committed.extend(round.committed);
        }
        let data: Vec<Bytes> = committed.iter().map(|entry| entry.data.whole()).collect();
        assert_eq!(data, [&b""[..], &[1]]);
    }
}
