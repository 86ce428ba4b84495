//! What the replicas keep for clients: the values of some keys, and which of them a transaction holds that is not decided.

use std::collections::BTreeMap;

/// How many keys there are.
pub const KEYS: u64 = 6;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The value becomes another one.
    Write,
    /// A transaction holds the key until it is decided.
    Prepare,
    /// It is.
    Decide,
}

/// A change with its number, and the key that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    pub change: Change,
    pub number: u64,
    pub key: u64,
}

impl Command {
    /// As it is proposed.
    pub fn to_bytes(self) -> Vec<u8> {
        let kind = match self.change {
            Change::Write => 0,
            Change::Prepare => 1,
            Change::Decide => 2,
        };
        [&[kind][..], &self.number.to_be_bytes(), &self.key.to_be_bytes()].concat()
    }

    /// From what was proposed; none in an entry of the consensus itself.
    pub fn from_bytes(data: &[u8]) -> Option<Command> {
        let (kind, rest) = data.split_first()?;
        let (number, key) = rest.split_at_checked(8)?;
        let number_of = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
        let change = [Change::Write, Change::Prepare, Change::Decide].get(usize::from(*kind)).copied()?;
        Some(Command { change, number: number_of(number)?, key: number_of(key)? })
    }
}

/// What a replica has.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Service {
    /// Depend on all writes and on their order.
    values: BTreeMap<u64, u64>,
    /// The transaction that holds a key.
    pub held: BTreeMap<u64, u64>,
}

impl Service {
    /// Carries out a command. An error: the command must not have come, as a transaction holds the key.
    pub fn apply(&mut self, Command { change, number, key }: Command) -> Result<(), String> {
        let holder = self.held.get(&key).copied();
        match change {
            Change::Write => {
                let value = self.values.entry(key).or_default();
                *value = value.wrapping_mul(31).wrapping_add(number);
            }
            Change::Prepare => drop(self.held.insert(key, number)),
            Change::Decide => drop(self.held.remove(&key)),
        }
        match holder.filter(|_| change != Change::Decide) {
            None => Ok(()),
            Some(holder) => Err(format!("{change:?} {number} is about key {key}, which {holder} holds")),
        }
    }
}
