//! Which processes get the replicas of a group: those of different zones, with an even load.

use std::collections::BTreeMap;

use super::groups::{GroupInfo, ProcessInfo, ProcessState};

/// The processes that may have replicas, with their zones; a zone without a name is none.
pub(super) struct Able(BTreeMap<u64, String>);

impl Able {
    /// Those of all processes that stay.
    pub fn of(processes: &[ProcessInfo]) -> Able {
        let stays = |process: &&ProcessInfo| process.state == ProcessState::Active;
        let able = processes.iter().filter(stays);
        Able(able.map(|process| (process.id, process.zone.clone())).collect())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether the process is one of them.
    pub fn contains(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    /// How many other replicas are in the zone of a process.
    fn beside(&self, id: u64, replicas: &[u64]) -> usize {
        let zone = self.0.get(&id).filter(|zone| !zone.is_empty());
        let is_beside = |other: &&u64| **other != id && zone.is_some() && self.0.get(other) == zone;
        replicas.iter().filter(is_beside).count()
    }

    /// How many replicas each process has.
    fn loads(&self, groups: &[GroupInfo]) -> BTreeMap<u64, usize> {
        let load = |id| groups.iter().filter(|group| group.replicas.contains(&id)).count();
        self.0.keys().map(|id| (*id, load(*id))).collect()
    }

    /// Adds replicas to each group until it has as many as are wanted, or there is no other process.
    pub fn fill(&self, groups: &mut [GroupInfo], wanted: usize) {
        for at in 0..groups.len() {
            while groups[at].replicas.len() < wanted {
                let (loads, replicas) = (self.loads(groups), &groups[at].replicas);
                let free = loads.iter().filter(|(id, _)| !replicas.contains(id));
                let Some((id, _)) = free.min_by_key(|(id, load)| (self.beside(**id, replicas), **load))
                else {
                    break;
                };
                groups[at].replicas.push(*id);
            }
        }
    }

    /// Moves replicas of a group that are in one zone to zones that have none.
    pub fn separate(&self, groups: &mut [GroupInfo]) {
        for at in 0..groups.len() {
            while let Some((from, to)) = self.misplaced(&groups[at], &self.loads(groups)) {
                replace(&mut groups[at], from, to);
            }
        }
    }

    fn misplaced(&self, group: &GroupInfo, loads: &BTreeMap<u64, usize>) -> Option<(u64, u64)> {
        let replicas = &group.replicas;
        // The first one leads, and stays if it can.
        let from = *replicas.iter().rev().find(|id| self.beside(**id, replicas) > 0)?;
        let others: Vec<u64> = replicas.iter().copied().filter(|id| *id != from).collect();
        let free = loads.iter().filter(|(id, _)| !replicas.contains(id) && self.beside(**id, &others) == 0);
        free.min_by_key(|(_, load)| **load).map(|(to, _)| (from, *to))
    }

    /// Moves replicas from processes that have many to those that have few, as far as no zone gets two of a group by that.
    pub fn even_out(&self, groups: &mut [GroupInfo]) {
        while let Some((at, from, to)) = self.uneven(groups) {
            groups[at].replicas.retain(|replica| *replica != from);
            groups[at].replicas.push(to);
        }
    }

    fn uneven(&self, groups: &[GroupInfo]) -> Option<(usize, u64, u64)> {
        let mut loads: Vec<(u64, usize)> = self.loads(groups).into_iter().collect();
        loads.sort_by_key(|(_, load)| *load);
        loads.iter().rev().find_map(|(from, most)| {
            let lighter = loads.iter().take_while(|(_, least)| least + 2 <= *most);
            lighter.clone().find_map(|(to, _)| {
                let may_move = |group: &GroupInfo| {
                    let GroupInfo { replicas, .. } = group;
                    let others: Vec<u64> = replicas.iter().copied().filter(|id| id != from).collect();
                    replicas.contains(from)
                        && !replicas.contains(to)
                        && self.beside(*to, &others) <= self.beside(*from, &others)
                };
                groups.iter().position(may_move).map(|at| (at, *from, *to))
            })
        })
    }

    /// Lets each process lead as many groups as the others, as far as their replicas allow that.
    pub fn spread_leaders(&self, groups: &mut [GroupInfo]) {
        loop {
            let leads = |id| groups.iter().filter(|group| group.replicas.first() == Some(&id)).count();
            let leads: BTreeMap<u64, usize> = self.0.keys().map(|id| (*id, leads(*id))).collect();
            let busiest = |group: &&mut GroupInfo| {
                let first = leads.get(group.replicas.first()?)?;
                let other = group.replicas.iter().copied().min_by_key(|id| leads.get(id))?;
                (leads.get(&other)? + 1 < *first).then_some(other)
            };
            let found = groups.iter_mut().find_map(|group| {
                let other = busiest(&group)?;
                Some((group, other))
            });
            let Some((group, other)) = found else { return };
            lead_first(group, other);
        }
    }
}

/// Another process has the replica, in the same place.
fn replace(group: &mut GroupInfo, from: u64, to: u64) {
    if let Some(replica) = group.replicas.iter_mut().find(|replica| **replica == from) {
        *replica = to;
    }
}

/// This replica is to lead the group.
pub(super) fn lead_first(group: &mut GroupInfo, id: u64) {
    group.replicas.sort_by_key(|replica| *replica != id);
}
