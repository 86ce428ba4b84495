//! Whether the replicas in a process have caught up with their groups.
//!
//! A replica knows of no entry that it lacks: what its group has committed is asked of the leader. It has caught up when it has
//! applied what was committed when the leader was asked the time before last, since what was committed a moment ago may be on its
//! way. It counts in the majority of its group only with a vote, and for as long as a process that has lost its data has one, too,
//! fewer others may be stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

use super::state::{Committed, Replica, State};
use crate::client::members;
use crate::client::way;
use crate::replication::{GroupId, ProcessInfo, ProcessState};

/// How often leaders are asked,
const ASK: Duration = Duration::from_secs(1);
/// and how often as long as one of them has not answered.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(1);

/// Why a process is not ready: the replica of a group in it has not caught up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReady {
    /// The process has no replicas yet.
    Joining,
    /// The process has lost its data and joined again, and groups still have its former number as a member.
    Replacing(u64),
    /// The logs of the process cannot be written.
    DiskFails,
    /// The process has just been told to have a replica of this group.
    Missing(String),
    /// No process leads this group, as far as this one knows, or the replica takes part no more.
    NoLeader(String),
    /// The replica of this group does not count in its majority yet.
    NoVote(String),
    /// The majority of this group still counts a process that the cluster does not have any more.
    CountsGone {
        /// The group.
        group: String,
        /// The process.
        process: u64,
    },
    /// The replica of this group needs a copy of the data.
    NeedsCopy(String),
    /// The leader of this group has not said yet what is committed.
    Unknown(String),
    /// The replica of this group has not applied all entries.
    Behind {
        /// The group.
        group: String,
        /// How many entries it lacks.
        entries: u64,
    },
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::Joining => f.write_str("this process is joining its cluster"),
            NotReady::Replacing(process) => write!(
                f,
                "this process has lost its data and joined again, and process {process}, which it was before, still counts in its \
                 groups"
            ),
            NotReady::DiskFails => f.write_str("the replicated logs of this process cannot be written"),
            NotReady::Missing(group) => write!(f, "the replica of group {group} has not begun yet"),
            NotReady::NoLeader(group) => write!(f, "the replica of group {group} knows no leader"),
            NotReady::NoVote(group) => write!(f, "the replica of group {group} has no vote yet"),
            NotReady::CountsGone { group, process } => write!(
                f,
                "process {process}, which the cluster does not have any more, still counts in the majority of group {group}"
            ),
            NotReady::NeedsCopy(group) => write!(f, "the replica of group {group} needs a copy of the data"),
            NotReady::Unknown(group) => {
                write!(f, "the leader of group {group} has not said yet what is committed")
            }
            NotReady::Behind { group, entries } => {
                write!(f, "the replica of group {group} lacks {entries} entries of the log")
            }
        }
    }
}

impl std::error::Error for NotReady {}

impl State {
    /// Whether all replicas in this process have caught up; else which one has not.
    pub(super) fn readiness(&self) -> Result<(), NotReady> {
        let (me, groups) = (self.view.me, self.view.groups());
        if groups.process(me).is_some_and(|process| process.state == ProcessState::Joining) {
            return Err(NotReady::Joining);
        }
        for group in groups.all().filter(|group| group.replicas.contains(&me)) {
            let name = || group.name.clone();
            let replica = self.replicas.read().get(&group.id).cloned();
            let Some(replica) = replica else { return Err(NotReady::Missing(name())) };
            if replica.handle.stands_still() {
                return Err(NotReady::DiskFails);
            }
            // Before what is applied: that grows.
            let seen = *replica.handle.state().borrow();
            if seen.role.leader.is_none() || (seen.role.leads && !seen.is_ready_to_lead) {
                return Err(NotReady::NoLeader(name()));
            }
            if seen.awaits_copy {
                return Err(NotReady::NeedsCopy(name()));
            }
            let committed = match seen.role.leads {
                true => Committed::after(None, seen.committed),
                false => {
                    let said = self.committed.lock().get(&group.id).copied();
                    said.ok_or_else(|| NotReady::Unknown(name()))?
                }
            };
            let entries = committed.lag(replica.handle.applied());
            if entries > 0 {
                return Err(NotReady::Behind { group: name(), entries });
            }
            let members = replica.handle.log.members();
            if !members.voters.contains(&me) {
                return Err(NotReady::NoVote(name()));
            }
            let mut voters = members.voters.into_iter().chain(members.outgoing);
            if let Some(process) = voters.find(|id| groups.process(*id).is_none()) {
                return Err(NotReady::CountsGone { group: name(), process });
            }
        }
        let is_former =
            |process: &&ProcessInfo| process.id != me && Some(&*process.address) == groups.address(me);
        if let Some(former) = groups.processes.iter().find(is_former) {
            return Err(NotReady::Replacing(former.id));
        }
        Ok(())
    }

    /// Asks the leaders of the groups of which this process has replicas what they have committed, until the process ends.
    pub(super) fn ask_leaders(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        async move {
            let asking = async {
                let mut channels = BTreeMap::new();
                loop {
                    self.ask_each_leader(&mut channels).await;
                    let is_complete = {
                        let (replicas, known) = (self.replicas.read(), self.committed.lock());
                        replicas.iter().all(|(id, replica)| leads(replica) || known.contains_key(id))
                    };
                    sleep(if is_complete { ASK } else { ASK_AGAIN }).await;
                }
            };
            tokio::select! {
                () = asking => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
    }

    async fn ask_each_leader(&self, channels: &mut BTreeMap<String, Channel>) {
        let (mut leaders, mut followed) = (BTreeSet::new(), BTreeSet::new());
        for (id, replica) in &*self.replicas.read() {
            let leader = replica.handle.state().borrow().role.leader;
            if let Some(leader) = leader.filter(|leader| *leader != self.view.me) {
                leaders.insert(leader);
                followed.insert(*id);
            }
        }
        // Who was cut off does not know what was committed meanwhile.
        self.committed.lock().retain(|id, _| followed.contains(id));
        let groups = self.view.groups();
        for address in leaders.into_iter().filter_map(|leader| groups.address(leader)) {
            if timeout(ANSWER, self.ask_leader(address, channels)).await != Ok(true) {
                channels.remove(address);
            }
        }
    }

    /// Whether the process at this address answers.
    async fn ask_leader(&self, address: &str, channels: &mut BTreeMap<String, Channel>) -> bool {
        let credentials = &self.settings.credentials;
        let channel = match channels.get(address) {
            Some(channel) => channel.clone(),
            None => {
                let Ok(channel) = way::connect(address, credentials.tls.as_ref()).await else { return false };
                channels.entry(address.to_owned()).or_insert(channel).clone()
            }
        };
        let Ok(inspection) = members::inspect_by(channel, credentials).await else { return false };
        let mut committed = self.committed.lock();
        for report in inspection.replicas.iter().filter(|report| report.leads) {
            let id = GroupId(report.group);
            let said = Committed::after(committed.get(&id).copied(), report.committed);
            committed.insert(id, said);
        }
        true
    }
}

fn leads(replica: &Replica) -> bool {
    replica.handle.state().borrow().role.leads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_a_moment_ago_may_be_on_its_way() {
        let first = Committed::after(None, 100);
        assert_eq!((first.lag(99), first.lag(100), first.lag(120)), (1, 0, 0));
        let second = Committed::after(Some(first), 150);
        assert_eq!((second.lag(30), second.lag(99), second.lag(100)), (120, 51, 0));
        let third = Committed::after(Some(second), 150);
        assert_eq!((third.lag(100), third.lag(150)), (50, 0));
    }
}
