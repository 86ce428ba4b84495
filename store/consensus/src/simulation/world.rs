//! Replicas with their disks, the network between them, their clocks, and a client that writes and reads.

use std::collections::BTreeSet;

use bytes::Bytes;
use raft::Storage;
use store_engine::random;

use super::machine::{Bug, Machine};
use super::rules::{Rules, number_of};
use super::service::{Change, KEYS};
use crate::{
    LogChange, LogKey, MemberChange, Members, Outgoing, Position, Replica, Role, Round, Settings, Step,
    TICK_MS, next_step,
};

/// How long a run is, in virtual milliseconds.
const RUN_MS: u64 = 32_000;
/// The last part of a run, in which nothing fails: the group must recover, when the last slow messages have arrived, and perhaps
/// elect two leaders, as the first one may find that it was removed.
const CALM_MS: u64 = 8_000;
/// The end of that part, in which nothing is written any more.
const QUIET_MS: u64 = 2_000;
/// What one step of the world takes.
const STEP_MS: u64 = 10;
/// In the calm part this is the time between two steps towards the members that are wanted.
const PLAN_MS: u64 = 100;

struct Message {
    at: u64,
    from: u64,
    to: u64,
    bytes: Bytes,
}

pub struct World {
    random: u64,
    bug: Option<Bug>,
    now: u64,
    machines: Vec<Machine>,
    founders: Vec<u64>,
    /// The machines that are to belong to the group.
    wanted: Vec<u64>,
    /// The place in that list whose machine loses its disk. Of two at different places a group of three would lose data.
    unlucky: usize,
    messages: Vec<Message>,
    /// Pairs between which nothing comes through, in this direction.
    cut: BTreeSet<(u64, u64)>,
    /// The next write.
    number: u64,
    /// Nothing is written before.
    idle_until: u64,
    rules: Rules,
    pub restarts: u64,
    pub reads: u64,
    pub copies: u64,
    pub changes: u64,
    pub folds: u64,
    pub losses: u64,
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> World {
        let mut random = seed.wrapping_mul(0x1234_5678_9ABC_DEF1) ^ seed;
        let count = if random::below(&mut random, 3) == 0 { 5 } else { 3 };
        let unlucky = random::below(&mut random, count);
        let founders: Vec<u64> = (1..=count as u64).collect();
        let mut world = World {
            random,
            bug,
            now: 1,
            machines: Vec::new(),
            wanted: founders.clone(),
            founders,
            unlucky,
            messages: Vec::new(),
            cut: BTreeSet::new(),
            number: 0,
            idle_until: 0,
            rules: Rules::default(),
            restarts: 0,
            reads: 0,
            copies: 0,
            changes: 0,
            folds: 0,
            losses: 0,
        };
        for _ in 0..count {
            world.add_machine();
        }
        world
    }

    /// A machine that was never there before; its number.
    fn add_machine(&mut self) -> u64 {
        let (id, speed) = (self.machines.len() as u64 + 1, 970 + self.below(61));
        self.machines.push(Machine::new(id, speed));
        id
    }

    /// Runs to the end; an error says which rule was broken.
    pub fn run(&mut self) -> Result<(), String> {
        while self.now < RUN_MS {
            self.now += STEP_MS;
            if self.now < RUN_MS - CALM_MS {
                self.fail();
            } else {
                self.calm();
                if self.now % PLAN_MS < STEP_MS {
                    self.change_members();
                }
            }
            for at in 0..self.machines.len() {
                self.advance(at)?;
            }
            self.deliver()?;
            self.use_it()?;
        }
        self.rules.all_is_kept()?;
        let newest = self.rules.newest();
        let leader = self.leader().and_then(|at| self.machines[at].replica.as_ref());
        let members = leader.map(|leader| leader.log().members()).unwrap_or_default();
        self.wanted.sort_unstable();
        if members != Members::of_voters(&self.wanted) {
            return Err(format!("the group has {members:?}, and is to have {:?}", self.wanted));
        }
        let mut members = self.machines.iter().filter(|machine| self.wanted.contains(&machine.id));
        let behind = members.find(|machine| machine.data.newest < newest);
        match behind {
            None => Ok(()),
            Some(machine) => Err(format!("replica {} does not catch up", machine.id)),
        }
    }

    pub fn acknowledged(&self) -> u64 {
        self.rules.acknowledged()
    }

    pub fn elections(&self) -> u64 {
        self.rules.elections()
    }

    fn chance(&mut self, of: usize) -> bool {
        random::below(&mut self.random, of) == 0
    }

    fn below(&mut self, bound: u64) -> u64 {
        random::below(&mut self.random, bound as usize) as u64
    }

    /// Something may break, or be whole again.
    fn fail(&mut self) {
        let count = self.machines.len() as u64;
        if self.chance(150) {
            let at = self.below(count) as usize;
            self.crash(at);
        }
        if self.chance(600) {
            (0..self.machines.len()).for_each(|at| self.crash(at));
        }
        if self.chance(2000) {
            // As long as nothing is written the log of a replica that hears nothing is as good as that of the others.
            self.idle_until = self.now + self.below(4000);
        }
        if self.chance(200) {
            let (at, time) = (self.below(count) as usize, self.below(3000));
            self.machines[at].paused_until = self.now + time;
        }
        if self.chance(100) {
            self.cut.clear();
            match self.below(5) {
                0 => {}
                // One is alone, another one hears nothing.
                1 => {
                    let alone = 1 + self.below(count);
                    (1..=count).for_each(|other| self.cut.extend([(alone, other), (other, alone)]));
                }
                2 => {
                    let deaf = 1 + self.below(count);
                    self.cut.extend((1..=count).map(|other| (other, deaf)));
                }
                // One does not hear the leader, and hears the others.
                _ => {
                    let leader = self.leader().map_or(1, |at| self.machines[at].id);
                    let deaf = 1 + self.below(count);
                    self.cut.insert((leader, deaf));
                }
            }
        }
        if self.chance(100) {
            let at = self.below(count) as usize;
            self.shorten(at);
        }
        if self.chance(20)
            && let Some(at) = self.leader()
        {
            let is_ahead = self.machines[at].fold(self.bug);
            self.folds += u64::from(is_ahead);
        }
        if self.chance(60) {
            self.change_members();
        }
        if self.chance(1000) {
            let place = self.below(self.wanted.len() as u64) as usize;
            self.wanted[place] = self.add_machine();
        }
        if self.chance(1000) {
            self.lose_disk();
        }
        if self.chance(300)
            && let Some(at) = self.leader()
        {
            let to = self.below(count + 1);
            match &mut self.machines[at].replica {
                Some(replica) if to == 0 => replica.resign(),
                Some(replica) => replica.transfer(to),
                None => {}
            }
        }
    }

    /// A machine drops committed entries of its log, whose writes are in its data then.
    fn shorten(&mut self, at: usize) {
        let fewer = self.below(20);
        let (machine, bug) = (&mut self.machines[at], self.bug);
        if machine.replica.is_none() || machine.paused_until > self.now || !machine.flushing.is_empty() {
            return;
        }
        machine.fold(bug);
        // Its data is durable.
        let kept = machine.kept.index;
        let Some(replica) = &mut machine.replica else { return };
        let changes = replica.shorten(kept.min(replica.log().committed_index()).saturating_sub(fewer));
        machine.disk.write(changes);
    }

    /// A disk is lost with its machine, in whose place another one is to come.
    fn lose_disk(&mut self) {
        let at = self.wanted[self.unlucky] as usize - 1;
        self.crash(at);
        self.machines[at].is_lost = true;
        self.losses += 1;
        self.wanted[self.unlucky] = self.add_machine();
    }

    /// A step towards the members that are wanted.
    fn change_members(&mut self) {
        let Some(at) = self.leader() else { return };
        let lost = self.machines.iter().filter(|machine| machine.is_lost).map(|machine| machine.id);
        let lost: BTreeSet<u64> = lost.collect();
        let Some(leader) = &mut self.machines[at].replica else { return };
        let (me, members, followers) = (leader.id(), leader.log().members(), leader.followers());
        let step = next_step(me, &self.wanted, |id| lost.contains(&id), &members, &followers);
        match (step, self.bug) {
            (Step::Change(MemberChange::Replace { new, .. }), Some(Bug::VoteBeforeRemoval)) => {
                self.changes += u64::from(leader.change_members(MemberChange::Promote(new)).is_ok());
            }
            (Step::Change(change), _) => self.changes += u64::from(leader.change_members(change).is_ok()),
            (Step::HandOver(id), _) => leader.transfer(id),
            (Step::Wait | Step::Settled, _) => {}
        }
    }

    /// A machine that lacks what the others have dropped gets a copy of the leader's data, after a while.
    fn copy(&mut self, at: usize) -> Result<(), String> {
        let awaits = self.machines[at].replica.as_ref().is_some_and(Replica::awaits_copy);
        let due = match (awaits, self.machines[at].copied_at) {
            (false, _) => None,
            (true, None) => Some(self.now + self.below(1000)),
            (true, due) => due,
        };
        self.machines[at].copied_at = due;
        if due.is_none_or(|due| due > self.now) {
            return Ok(());
        }
        let Some(leader) = self.leader().filter(|leader| *leader != at) else { return Ok(()) };
        if self.machines[leader].paused_until > self.now {
            return Ok(());
        }
        let Some(replica) = &self.machines[leader].replica else { return Ok(()) };
        // What it has carried out.
        let copy = self.machines[leader].data.clone();
        let (log, index) = (replica.log(), copy.index);
        if index < log.before().index {
            return Ok(());
        }
        let Ok(term) = log.term(index) else { return Ok(()) };
        let position = Position { index, term };
        let Some(members) = log.members_at(position.index) else { return Ok(()) };
        let machine = &mut self.machines[at];
        let Some(replica) = &mut machine.replica else { return Ok(()) };
        // What it has vouched for must not be gone.
        if position.index < replica.log().before().index {
            return Ok(());
        }
        machine.kept = copy;
        machine.copied_at = None;
        self.copies += 1;
        replica.copied(position, &members).map_err(|error| format!("replica {}: {error}", machine.id))?;
        // Its log may have got further meanwhile.
        machine.read();
        self.rules.has(machine.id, machine.data.index, &machine.data.service)
    }

    fn calm(&mut self) {
        self.cut.clear();
        for machine in &mut self.machines {
            machine.paused_until = machine.paused_until.min(self.now);
            machine.up_at = machine.up_at.min(self.now);
        }
    }

    fn crash(&mut self, at: usize) {
        let unflushed = self.machines[at].disk.unflushed() as u64;
        // A process that is started again at once is back before the others miss it.
        let longest = if self.chance(2) { 200 } else { 2000 };
        let (kept, down) = (self.below(unflushed + 1) as usize, self.below(longest));
        let now = self.now;
        let machine = &mut self.machines[at];
        if machine.replica.take().is_some() {
            machine.disk.crash(kept);
            machine.flushing.clear();
            machine.proposed.clear();
            machine.leading = None;
            machine.up_at = now + down;
            self.restarts += 1;
        }
    }

    fn leader(&self) -> Option<usize> {
        self.machines
            .iter()
            .position(|machine| machine.replica.as_ref().is_some_and(|replica| replica.role().leads))
    }

    /// One machine does what is due.
    fn advance(&mut self, at: usize) -> Result<(), String> {
        if self.machines[at].paused_until > self.now || self.machines[at].is_lost {
            return Ok(());
        }
        if self.machines[at].replica.is_none() {
            if self.machines[at].up_at > self.now {
                return Ok(());
            }
            self.start(at)?;
        }
        let local = self.local(at);
        let machine = &mut self.machines[at];
        let Some(replica) = &mut machine.replica else { return Ok(()) };
        if local >= machine.next_tick {
            // After a standstill the ticks that were missed are skipped.
            machine.next_tick = local + TICK_MS;
            replica.tick(local);
        }
        let now = self.now;
        let due = machine.flushing.iter().take_while(|(at, ..)| *at <= now).count();
        if due > 0 {
            machine.disk.flush();
            for (_, number, send_after) in machine.flushing.drain(..due).collect::<Vec<_>>() {
                if let Some(replica) = &mut self.machines[at].replica {
                    replica.persisted(number);
                }
                self.send(at, send_after);
            }
        }
        self.copy(at)?;
        self.rounds(at)
    }

    fn start(&mut self, at: usize) -> Result<(), String> {
        let seed = random::next(&mut self.random);
        let local = self.local(at);
        let machine = &mut self.machines[at];
        let voters = if self.founders.contains(&machine.id) { self.founders.clone() } else { Vec::new() };
        // Each command has one or two parts.
        let part_bytes = 9 + 9 * (seed % 2) as usize;
        let settings = Settings { part_bytes, ..Settings::new(machine.id, &voters, seed, local) };
        let opened = Replica::open(&settings, machine.disk.read());
        let (mut replica, changes) = opened.map_err(|error| format!("replica {}: {error}", machine.id))?;
        if self.bug == Some(Bug::LongLease) {
            replica.lease.length_ms = 2 * TICK_MS * crate::ELECTION_TICKS as u64;
        }
        machine.disk.write(changes);
        machine.disk.flush();
        machine.role = Role::default();
        machine.replica = Some(replica);
        machine.read();
        self.rules.has(machine.id, machine.data.index, &machine.data.service)
    }

    /// The time of a machine by its own clock.
    fn local(&self, at: usize) -> u64 {
        10_000 + self.now * self.machines[at].speed / 1000
    }

    fn rounds(&mut self, at: usize) -> Result<(), String> {
        loop {
            let machine = &mut self.machines[at];
            let Some(replica) = &mut machine.replica else { return Ok(()) };
            let Some(round) = replica.round().map_err(|error| format!("replica {}: {error}", machine.id))?
            else {
                break;
            };
            self.take(at, round)?;
        }
        let machine = &mut self.machines[at];
        let Some(role) = machine.replica.as_ref().map(Replica::role) else { return Ok(()) };
        if role != machine.role {
            // What another leader has not committed is not answered.
            machine.proposed.clear();
            machine.role = role;
            if machine.leading.as_ref().is_some_and(|leading| !role.leads || leading.term != role.term) {
                // Nor is what it has kept in memory.
                machine.read();
                self.rules.has(machine.id, machine.data.index, &machine.data.service)?;
            }
        }
        if role.leads { self.rules.leads(machine.id, role.term) } else { Ok(()) }
    }

    fn take(&mut self, at: usize, round: Round) -> Result<(), String> {
        let Round { number, send, changes, must_flush, send_after, committed } = round;
        self.send(at, send);
        for entry in &committed {
            let id = self.machines[at].id;
            self.rules.commits(id, entry)?;
            let machine = &mut self.machines[at];
            machine.data.take(entry);
            machine.keep_committed(entry.position.term);
            self.rules.has(id, machine.data.index, &machine.data.service)?;
            if let Some(number) = number_of(&entry.data.whole())
                && machine.proposed.remove(&number)
            {
                self.rules.acknowledge(number);
            }
        }
        let votes = changes.iter().any(|change| matches!(change, LogChange::Put(LogKey::State, _)));
        let appends = changes.iter().any(|change| matches!(change, LogChange::Put(LogKey::Entry(_), _)));
        self.machines[at].disk.write(changes);
        let forgets = match self.bug {
            Some(Bug::VoteNotFlushed) => votes && !appends,
            Some(Bug::EntriesNotFlushed) => appends,
            _ => false,
        };
        // The moment after a promise is where a crash does most.
        if must_flush && self.now < RUN_MS - CALM_MS && self.chance(100) {
            if forgets {
                self.send(at, send_after);
            }
            self.crash(at);
            self.machines[at].up_at = self.now + self.below(300);
            return Ok(());
        }
        // Rounds are flushed in their order, some sooner and some later.
        let before = self.machines[at].flushing.last().map_or(0, |(at, ..)| *at);
        let took = if must_flush && !forgets { STEP_MS * self.below(4) } else { 0 };
        if forgets && self.machines[at].flushing.is_empty() {
            if let Some(replica) = &mut self.machines[at].replica {
                replica.persisted(number);
            }
            self.send(at, send_after);
            return Ok(());
        }
        self.machines[at].flushing.push((before.max(self.now + took), number, send_after));
        Ok(())
    }

    fn send(&mut self, at: usize, messages: Vec<Outgoing>) {
        let from = self.machines[at].id;
        for Outgoing { to, bytes } in messages {
            let slow = if self.now < RUN_MS - CALM_MS && self.chance(50) { 300 } else { 2 };
            let at = self.now + STEP_MS * self.below(slow);
            // Messages of one pair stay in order, as on a stream.
            let last = self.messages.iter().filter(|message| (message.from, message.to) == (from, to));
            let at = last.map(|message| message.at).max().unwrap_or_default().max(at);
            self.messages.push(Message { at, from, to, bytes });
        }
    }

    fn deliver(&mut self) -> Result<(), String> {
        let now = self.now;
        let (due, later) =
            std::mem::take(&mut self.messages).into_iter().partition(|message| message.at <= now);
        self.messages = later;
        for Message { from, to, bytes, .. } in due {
            let at = to as usize - 1;
            if self.cut.contains(&(from, to)) || self.machines[at].paused_until > now {
                continue;
            }
            let local = self.local(at);
            let Some(replica) = &mut self.machines[at].replica else { continue };
            replica.step(&bytes, local).map_err(|error| format!("replica {to}: {error}"))?;
            self.rounds(at)?;
        }
        Ok(())
    }

    /// A client writes and reads at whatever replica says that it leads.
    fn use_it(&mut self) -> Result<(), String> {
        for at in 0..self.machines.len() {
            if self.machines[at].paused_until > self.now {
                continue;
            }
            let local = self.local(at);
            // Acknowledged before the read.
            let newest = self.rules.newest();
            let (bug, now) = (self.bug, self.now);
            let (change, key) = (self.below(10), self.below(KEYS));
            let machine = &mut self.machines[at];
            if !machine.lead(bug) {
                continue;
            }
            let Some(replica) = &machine.replica else { continue };
            if local < replica.lease_until_ms() {
                self.reads += 1;
                if machine.data.newest < newest {
                    return Err(format!(
                        "replica {} reads {} after {newest}",
                        machine.id, machine.data.newest
                    ));
                }
            }
            if now > RUN_MS - QUIET_MS || now < self.idle_until {
                continue;
            }
            let change = match change {
                0 => Change::Prepare,
                1..=3 => Change::Decide,
                _ => Change::Write,
            };
            self.number += 1;
            if machine.propose(change, self.number, key) && bug == Some(Bug::AnswerBeforeCommit) {
                self.rules.acknowledge(self.number);
            }
            self.rounds(at)?;
        }
        Ok(())
    }
}
