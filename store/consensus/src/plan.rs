//! How the members of a group become those that are wanted.

use crate::members::{MemberChange, Members};
use crate::replica::Follower;

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

/// What the leader `me` of a group with these members does, so that `wanted` become the voters. A new replica gets the vote of one that
/// goes in one change, those first that `is_lost` says never come back: at no time does the group survive fewer failures than before
/// and after.
pub fn next_step(
    me: u64,
    wanted: &[u64],
    is_lost: impl Fn(u64) -> bool,
    members: &Members,
    followers: &[Follower],
) -> Step {
    let has_caught_up = |id: u64| {
        let is_ready = |follower: &Follower| follower.has_caught_up && follower.is_active;
        id == me || followers.iter().any(|follower| follower.id == id && is_ready(follower))
    };
    let hand_over = || {
        let successor = members.voters.iter().find(|id| **id != me && has_caught_up(**id));
        successor.map_or(Step::Wait, |id| Step::HandOver(*id))
    };
    if !members.outgoing.is_empty() {
        return match members.voters.contains(&me) {
            true => Step::Change(MemberChange::LeaveJoint),
            false => hand_over(),
        };
    }
    if let Some(new) = wanted.iter().find(|id| !members.contain(**id)) {
        return Step::Change(MemberChange::AddLearner(*new));
    }
    // Those that are gone first: if they stay and a new replica is lost, too, the group survives no other failure. The leader last.
    let surplus = |ids: &[u64]| {
        let surplus = ids.iter().copied().filter(|id| !wanted.contains(id));
        surplus.min_by_key(|id| (*id == me, !is_lost(*id), has_caught_up(*id)))
    };
    let ready = members.learners.iter().copied().find(|id| wanted.contains(id) && has_caught_up(*id));
    if let Some(new) = ready {
        return Step::Change(match surplus(&members.voters) {
            Some(old) => MemberChange::Replace { old, new },
            None => MemberChange::Promote(new),
        });
    }
    if !wanted.iter().all(|id| members.voters.contains(id)) {
        return Step::Wait;
    }
    match surplus(&members.learners).or(surplus(&members.voters)) {
        None => Step::Settled,
        Some(leader) if leader == me => hand_over(),
        Some(gone) => Step::Change(MemberChange::Remove(gone)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(me: u64, wanted: &[u64], members: &Members, followers: &[Follower]) -> Step {
        next_step(me, wanted, |_| false, members, followers)
    }

    fn follower(id: u64, has_caught_up: bool) -> Follower {
        Follower { id, matched: 1, has_caught_up, needs_copy: !has_caught_up, is_active: true }
    }

    fn members(voters: &[u64], learners: &[u64]) -> Members {
        Members { learners: learners.to_vec(), ..Members::of_voters(voters) }
    }

    fn joint(voters: &[u64], outgoing: &[u64]) -> Members {
        Members { outgoing: outgoing.to_vec(), ..Members::of_voters(voters) }
    }

    #[test]
    fn a_new_replica_gets_the_vote_of_one_that_goes() {
        let wanted = [1, 2, 4];
        let all = [follower(2, true), follower(3, true), follower(4, true)];
        let behind = [follower(2, true), follower(3, true), follower(4, false)];
        assert_eq!(
            next(1, &wanted, &members(&[1, 2, 3], &[]), &all),
            Step::Change(MemberChange::AddLearner(4))
        );
        assert_eq!(next(1, &wanted, &members(&[1, 2, 3], &[4]), &behind), Step::Wait);
        let replace = MemberChange::Replace { old: 3, new: 4 };
        assert_eq!(next(1, &wanted, &members(&[1, 2, 3], &[4]), &all), Step::Change(replace));
        let entered = joint(&[1, 2, 4], &[1, 2, 3]);
        assert_eq!(next(1, &wanted, &entered, &behind), Step::Change(MemberChange::LeaveJoint));
        assert_eq!(next(1, &wanted, &members(&wanted, &[]), &all), Step::Settled);
    }

    #[test]
    fn a_leader_that_goes_lets_another_one_lead_first() {
        let wanted = [2, 3, 4];
        let all = [follower(2, true), follower(3, true), follower(4, true)];
        let replace = MemberChange::Replace { old: 1, new: 4 };
        assert_eq!(next(1, &wanted, &members(&[1, 2, 3], &[4]), &all), Step::Change(replace));
        let entered = joint(&wanted, &[1, 2, 3]);
        assert_eq!(next(1, &wanted, &entered, &all), Step::HandOver(2));
        assert_eq!(next(1, &wanted, &entered, &[follower(2, false)]), Step::Wait);
        let others = [follower(1, true), follower(3, true), follower(4, true)];
        assert_eq!(next(2, &wanted, &entered, &others), Step::Change(MemberChange::LeaveJoint));
        // Another one is wanted meanwhile: the change is completed first.
        assert_eq!(next(1, &[1], &joint(&[2], &[1]), &[follower(2, true)]), Step::HandOver(2));
        // Two of three go, one after the other.
        let learning = members(&[1, 2, 3], &[4, 5]);
        let all = [follower(2, true), follower(3, true), follower(4, true), follower(5, true)];
        let replace = MemberChange::Replace { old: 3, new: 4 };
        assert_eq!(next(1, &[2, 4, 5], &learning, &all), Step::Change(replace));
        // One of those that go never comes back.
        let gone = next_step(1, &[1, 4, 5], |id| id == 3, &learning, &all);
        assert_eq!(gone, Step::Change(replace));
        // A group with one replica moves.
        assert_eq!(
            next(1, &[2], &members(&[1], &[2]), &[follower(2, true)]),
            Step::Change(MemberChange::Replace { old: 1, new: 2 })
        );
    }

    #[test]
    fn a_group_gets_more_or_fewer_replicas() {
        let all = [follower(2, true), follower(3, true), follower(4, false)];
        let more = next(1, &[1, 2, 3], &members(&[1], &[2, 3]), &all);
        assert_eq!(more, Step::Change(MemberChange::Promote(2)));
        // Who is gone first, and learners before voters.
        let fewer = next(1, &[1, 2], &members(&[1, 2, 3, 4], &[]), &all);
        assert_eq!(fewer, Step::Change(MemberChange::Remove(4)));
        let fewer = next(1, &[1, 2, 5], &members(&[1, 2, 3, 4, 5], &[6]), &all);
        assert_eq!(fewer, Step::Change(MemberChange::Remove(6)));
        // The leader goes, and no other one has caught up.
        assert_eq!(next(1, &[2], &members(&[1, 2], &[]), &[follower(2, false)]), Step::Wait);
        assert_eq!(next(1, &[2], &members(&[1, 2], &[]), &[follower(2, true)]), Step::HandOver(2));
    }
}
