//! Who belongs to a group, and how that changes.

use std::collections::BTreeSet;

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};

/// Who belongs to a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    /// Replicas whose majority decides, ascending.
    pub voters: Vec<u64>,
    /// The voters before a replacement that is not complete: their majority has to agree, too. Ascending; else empty.
    pub outgoing: Vec<u64>,
    /// Replicas that get all entries and have no vote, ascending.
    pub learners: Vec<u64>,
}

impl Members {
    /// Of a group with these voters.
    pub fn of_voters(voters: &[u64]) -> Members {
        Members { voters: voters.to_vec(), ..Members::default() }
    }

    pub(crate) fn of(state: &ConfState) -> Members {
        let ascending = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        Members {
            voters: ascending(&state.voters),
            outgoing: ascending(&state.voters_outgoing),
            learners: ascending(&state.learners),
        }
    }

    pub(crate) fn state(&self) -> ConfState {
        ConfState {
            voters: self.voters.clone(),
            voters_outgoing: self.outgoing.clone(),
            learners: self.learners.clone(),
            ..ConfState::default()
        }
    }

    /// Whether a group can have these members. The Raft implementation panics with others.
    pub(crate) fn are_valid(&self) -> bool {
        let set = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<u64>>();
        let (voters, outgoing, learners) = (set(&self.voters), set(&self.outgoing), set(&self.learners));
        let is_zero_or_twice =
            [(&voters, &self.voters), (&outgoing, &self.outgoing), (&learners, &self.learners)]
                .iter()
                .any(|(set, list)| set.contains(&0) || set.len() != list.len());
        let votes = |id: &u64| voters.contains(id) || outgoing.contains(id);
        !voters.is_empty() && !is_zero_or_twice && !learners.iter().any(votes)
    }

    /// Whether the replica belongs to the group.
    pub fn contain(&self, id: u64) -> bool {
        self.have_vote(id) || self.learners.contains(&id)
    }

    /// Whether the replica has a vote.
    pub fn have_vote(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.outgoing.contains(&id)
    }

    /// Whether those for whom `is_there` holds can decide.
    pub fn have_majority(&self, is_there: impl Fn(u64) -> bool) -> bool {
        let is_majority = |ids: &[u64]| ids.iter().filter(|id| is_there(**id)).count() * 2 > ids.len();
        is_majority(&self.voters) && (self.outgoing.is_empty() || is_majority(&self.outgoing))
    }
}

/// A change of the members of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberChange {
    /// A replica gets all entries from now on, and has no vote.
    AddLearner(u64),
    /// A learner gets a vote.
    Promote(u64),
    /// A learner gets the vote of another replica. Until [`MemberChange::LeaveJoint`] a decision needs the majority of the voters
    /// before and that of the voters after the change, so that at no time fewer failures are survived.
    Replace {
        /// The voter, which belongs to the group no more when the change is complete.
        old: u64,
        /// The learner.
        new: u64,
    },
    /// Completes a replacement: the voters before it do not count any more.
    LeaveJoint,
    /// A replica does not belong to the group any more.
    Remove(u64),
}

impl MemberChange {
    pub(crate) fn to_raft(self) -> ConfChangeV2 {
        use ConfChangeType::{AddLearnerNode, AddNode, RemoveNode};
        let changes = match self {
            MemberChange::AddLearner(id) => vec![(AddLearnerNode, id)],
            MemberChange::Promote(id) => vec![(AddNode, id)],
            MemberChange::Replace { old, new } => vec![(AddNode, new), (RemoveNode, old)],
            MemberChange::LeaveJoint => Vec::new(),
            MemberChange::Remove(id) => vec![(RemoveNode, id)],
        };
        let single = |(kind, id)| {
            let mut single = ConfChangeSingle { node_id: id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            single
        };
        let changes: Vec<ConfChangeSingle> = changes.into_iter().map(single).collect();
        let mut change = ConfChangeV2 { changes: changes.into(), ..ConfChangeV2::default() };
        if matches!(self, MemberChange::Replace { .. }) {
            // A leader that leaves the joint configuration by itself may be deposed before it does.
            change.set_transition(ConfChangeTransition::Explicit);
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_a_group_cannot_have_are_known() {
        let members = |voters: &[u64], outgoing: &[u64], learners: &[u64]| Members {
            voters: voters.to_vec(),
            outgoing: outgoing.to_vec(),
            learners: learners.to_vec(),
        };
        for right in [members(&[1], &[], &[]), members(&[1, 2, 4], &[1, 2, 3], &[5])] {
            assert!(right.are_valid(), "{right:?}");
        }
        let wrong = [
            members(&[], &[], &[1]),
            members(&[], &[1], &[]),
            members(&[0], &[], &[]),
            members(&[1], &[0], &[]),
            members(&[1], &[], &[0]),
            members(&[2, 2], &[], &[]),
            members(&[1], &[2, 2], &[]),
            members(&[1], &[], &[2, 2]),
            members(&[1], &[], &[1]),
            members(&[1], &[2], &[2]),
        ];
        for wrong in wrong {
            assert!(!wrong.are_valid(), "{wrong:?}");
        }
    }

    #[test]
    fn during_a_replacement_both_majorities_decide() {
        let joint = Members { outgoing: vec![1, 2, 3], ..Members::of_voters(&[1, 2, 4]) };
        let decide = |ids: &[u64]| joint.have_majority(|id| ids.contains(&id));
        assert!(decide(&[1, 2]) && decide(&[1, 3, 4]));
        assert!(!decide(&[1, 3]) && !decide(&[1, 4]) && !decide(&[3, 4]));
        let settled = Members::of_voters(&[1, 2, 3, 4]);
        assert!(!settled.have_majority(|id| id < 3) && settled.have_majority(|id| id < 4));
    }
}
