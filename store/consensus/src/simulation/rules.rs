//! What must hold at every moment.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::service::{Command, Service};
use crate::{Committed, Position};

/// What was seen so far.
#[derive(Default)]
pub struct Rules {
    /// The leader of each term.
    leaders: BTreeMap<u64, u64>,
    /// What is committed, by the first entry of each proposal: where the last one stands, and the data.
    committed: BTreeMap<u64, (Position, Bytes)>,
    /// What all entries up to one make together; a founder's log begins behind the first.
    services: BTreeMap<u64, Service>,
    /// Numbers of acknowledged writes.
    acknowledged: BTreeSet<u64>,
}

/// The entry that no log has.
const BEFORE_ALL: u64 = 1;

impl Rules {
    /// A replica is the leader of a term: no term has two.
    pub fn leads(&mut self, replica: u64, term: u64) -> Result<(), String> {
        match *self.leaders.entry(term).or_insert(replica) {
            leader if leader == replica => Ok(()),
            leader => Err(format!("term {term} has the leaders {leader} and {replica}")),
        }
    }

    /// A replica has this entry as committed: all replicas have the same ones.
    pub fn commits(&mut self, replica: u64, entry: &Committed) -> Result<(), String> {
        let seen = (entry.position, entry.data.whole());
        let found = self.committed.entry(entry.first).or_insert_with(|| seen.clone());
        if *found != seen {
            return Err(format!("entry {} is {found:?} and, at replica {replica}, {seen:?}", entry.first));
        }
        self.carry_out()
    }

    /// Carries out what is committed: a key that a transaction holds is left alone until the transaction is decided.
    fn carry_out(&mut self) -> Result<(), String> {
        let (mut last, mut service) = match self.services.last_key_value() {
            Some((index, service)) => (*index, service.clone()),
            None => (BEFORE_ALL, Service::default()),
        };
        while let Some((position, data)) = self.committed.get(&(last + 1)) {
            if let Some(command) = Command::from_bytes(data) {
                service.apply(command)?;
            }
            last = position.index;
            self.services.insert(last, service.clone());
        }
        Ok(())
    }

    /// A replica has carried out all up to this entry: all replicas have the same then.
    pub fn has(&self, replica: u64, index: u64, service: &Service) -> Result<(), String> {
        match self.services.get(&index) {
            Some(known) if known != service => {
                Err(format!("replica {replica} has {service:?} after entry {index}, the others {known:?}"))
            }
            _ => Ok(()),
        }
    }

    /// The write of a client was acknowledged: it stays.
    pub fn acknowledge(&mut self, number: u64) {
        self.acknowledged.insert(number);
    }

    /// The newest acknowledged write.
    pub fn newest(&self) -> u64 {
        self.acknowledged.last().copied().unwrap_or_default()
    }

    /// At the end: all acknowledged writes are committed.
    pub fn all_is_kept(&self) -> Result<(), String> {
        let kept: BTreeSet<u64> = self.committed.values().filter_map(|(_, data)| number_of(data)).collect();
        match self.acknowledged.iter().find(|number| !kept.contains(number)) {
            None => Ok(()),
            Some(number) => Err(format!("write {number} was acknowledged and is lost")),
        }
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    pub fn elections(&self) -> u64 {
        self.leaders.len() as u64
    }
}

/// The number of a command; none in an entry of the consensus itself.
pub fn number_of(data: &[u8]) -> Option<u64> {
    Command::from_bytes(data).map(|command| command.number)
}
