//! How the members of a group become those that the list of groups wants.

use consensus::{Follower, MemberChange, Members};

/// What a leader does next for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It changes the members.
    Change(MemberChange),
    /// It lets this replica lead.
    HandOver(u64),
    /// It waits for a replica.
    Wait,
    /// Nothing: the members are those that are wanted.
    Settled,
}

/// What the leader `me` of a group with these members does, so that `wanted` become the voters. New replicas get a vote before
/// others lose theirs: at no time does the group survive fewer failures than before.
pub fn next_step(me: u64, wanted: &[u64], members: &Members, followers: &[Follower]) -> Step {
    let has_caught_up = |id: u64| {
        let is_ready = |follower: &Follower| follower.has_caught_up && follower.is_active;
        id == me || followers.iter().any(|follower| follower.id == id && is_ready(follower))
    };
    if let Some(new) = wanted.iter().find(|id| !members.contain(**id)) {
        return Step::Change(MemberChange::AddLearner(*new));
    }
    let ready = members.learners.iter().find(|id| wanted.contains(id) && has_caught_up(**id));
    if let Some(ready) = ready {
        return Step::Change(MemberChange::Promote(*ready));
    }
    if !wanted.iter().all(|id| members.voters.contains(id)) {
        return Step::Wait;
    }
    let surplus = members.learners.iter().chain(&members.voters).filter(|id| !wanted.contains(id));
    // Those that are gone first: without them fewer of the others are needed.
    let gone = surplus.filter(|id| **id != me).min_by_key(|id| has_caught_up(**id));
    if let Some(gone) = gone {
        return Step::Change(MemberChange::Remove(*gone));
    }
    match wanted.iter().find(|id| has_caught_up(**id)) {
        _ if wanted.contains(&me) => Step::Settled,
        Some(successor) => Step::HandOver(*successor),
        None => Step::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(id: u64, has_caught_up: bool) -> Follower {
        Follower { id, matched: 1, has_caught_up, needs_copy: !has_caught_up, is_active: true }
    }

    fn members(voters: &[u64], learners: &[u64]) -> Members {
        Members { voters: voters.to_vec(), learners: learners.to_vec() }
    }

    #[test]
    fn new_replicas_vote_before_others_go() {
        let wanted = [2, 3, 4];
        let before = members(&[1, 2, 3], &[]);
        let others = [follower(2, true), follower(3, true)];
        assert_eq!(next_step(1, &wanted, &before, &others), Step::Change(MemberChange::AddLearner(4)));
        let learning = members(&[1, 2, 3], &[4]);
        let behind = [follower(2, true), follower(3, true), follower(4, false)];
        assert_eq!(next_step(1, &wanted, &learning, &behind), Step::Wait);
        let all = [follower(2, true), follower(3, true), follower(4, true)];
        assert_eq!(next_step(1, &wanted, &learning, &all), Step::Change(MemberChange::Promote(4)));
        let voting = members(&[1, 2, 3, 4], &[]);
        assert_eq!(next_step(1, &wanted, &voting, &all), Step::HandOver(2));
        let others = [follower(1, true), follower(3, true), follower(4, true)];
        assert_eq!(next_step(2, &wanted, &voting, &others), Step::Change(MemberChange::Remove(1)));
        assert_eq!(next_step(2, &wanted, &members(&wanted, &[]), &others), Step::Settled);
    }

    #[test]
    fn a_replica_that_is_gone_is_removed_first() {
        let voting = members(&[1, 2, 3, 4, 5], &[6]);
        let others = [follower(2, true), follower(3, true), follower(4, false)];
        assert_eq!(next_step(1, &[1, 2, 5], &voting, &others), Step::Change(MemberChange::Remove(6)));
        let voting = members(&[1, 2, 3, 4], &[]);
        assert_eq!(next_step(1, &[1, 2], &voting, &others), Step::Change(MemberChange::Remove(4)));
        // Replica 1 leads, and no other one has caught up.
        assert_eq!(next_step(1, &[2], &members(&[1, 2], &[]), &[follower(2, false)]), Step::Wait);
    }
}
