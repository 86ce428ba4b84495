//! A process moves to the cluster that its own was recovered as, or learns that it is not in it.
//!
//! It notes that on its disk first, and ends all that it does, so that no message of the former cluster comes to a replica of the
//! new one. When it starts again, it makes its logs those that the new cluster goes on with.

use std::path::Path;
use std::sync::Arc;

use proto::store::v1 as wire;
use tonic::Status;

use super::copy;
use super::settings::group_dir;
use super::state::{Replica, State};
use crate::replication::{DriverError, Founding, GroupInfo, Groups, LogDisk, recover_log};

/// Makes logs and data of the replicas in this process those that the recovered cluster goes on with. Interrupted, it is done
/// again.
pub(super) fn finish(dir: &Path, disk: &mut LogDisk, founding: Founding) -> Result<(), DriverError> {
    let me = founding.process;
    let from = |group: &GroupInfo| group.recovered_from.map(|from| (group.id, from));
    for (group, from) in founding.groups.all().filter_map(from) {
        let dir = group_dir(dir, group);
        if from != me || !disk.groups().contains(&group) {
            // Another replica is newer, or there is none: this one begins without data.
            copy::delete(&dir).map_err(DriverError::Disk)?;
        }
        match from == me {
            true => recover_log(disk, group, me)?,
            false => disk.forget(group).map_err(DriverError::Disk)?,
        }
    }
    let record = Founding { is_recovering: false, ..founding }.to_record();
    disk.found(record);
    disk.write(true).map_err(DriverError::Disk)
}

impl State {
    /// An operator recovers the cluster of this process as this one. Done when that is on disk: the process starts again then.
    pub async fn recover(&self, groups: &wire::Groups) -> Result<(), Status> {
        let invalid = |error| Status::invalid_argument(format!("{error}"));
        let groups = Groups::from_wire(groups).map_err(invalid)?;
        for replica in self.replicas.read().values() {
            let is_given_up = groups.numbered(replica.id).is_some_and(|group| group.recovered_from.is_some());
            let leader = replica.handle.state().borrow().role.leader;
            if let Some(leader) = leader.filter(|_| is_given_up) {
                let name = &replica.name;
                return Err(Status::failed_precondition(format!(
                    "nothing was done: process {leader} leads the group {name}, which has a majority then"
                )));
            }
        }
        let mut recovered = self.recovered.subscribe();
        self.view.offer(groups);
        // Its sender lives as long as this.
        let _ = recovered.wait_for(|recovered| *recovered).await;
        Ok(())
    }

    /// The cluster goes on without this process: it serves nothing any more. Its data may be what the cluster has lost, so it
    /// stays.
    pub(super) async fn retire(&self) {
        let replicas: Vec<Arc<Replica>> = self.replicas.read().values().cloned().collect();
        for replica in replicas {
            self.end_replica(&replica).await;
            replica.handle.remove();
        }
        (self.settings.warn)(&format!(
            "the cluster was recovered without this process: it serves nothing any more. Its data is kept in {}; with an empty \
             data-dir it can join again",
            self.settings.dir.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::settings::log_dir;
    use super::*;
    use crate::journal::testing::TempDir;
    use crate::replication::GroupId;

    fn log_disk(dir: &Path) -> LogDisk {
        LogDisk::open(&log_dir(dir)).expect("it is whole")
    }

    #[test]
    fn an_interrupted_recovery_is_finished() {
        let dir = TempDir::new("recovers");
        let dir = &*dir.0;
        let (own, others, whole, meta) = (GroupId(0), GroupId(1), GroupId(2), GroupId::META);
        let addresses: Vec<String> = (1..=3).map(|at| format!("store{at}:1")).collect();
        let mut groups = Groups::found(7, &addresses, 3).expect("enough processes");
        (groups.groups[0].recovered_from, groups.groups[1].recovered_from) = (Some(2), Some(1));
        groups.meta.recovered_from = Some(2);
        let founding = Founding { groups, process: 2, is_recovering: true };
        let mut disk = log_disk(dir);
        for group in [own, others, whole] {
            recover_log(&mut disk, group, 2).expect("there is room");
        }
        let has_data = |group| group_dir(dir, group).exists();
        let make = |group| fs::create_dir_all(group_dir(dir, group)).expect("there is room");
        [own, others, whole, meta].into_iter().for_each(make);
        for _ in 0..2 {
            drop(disk);
            disk = log_disk(dir);
            finish(dir, &mut disk, founding.clone()).expect("it works");
            // A group that got a new log has no data that is older than the log.
            if !has_data(meta) {
                make(meta);
            }
            drop(disk);
            disk = log_disk(dir);
            assert_eq!(disk.groups(), [own, whole, meta]);
            assert_eq!([own, others, whole, meta].map(has_data), [true, false, true, true]);
            let done = Founding::from_record(disk.founding().expect("it is there"));
            assert_eq!(done, Ok(Founding { is_recovering: false, ..founding.clone() }));
        }
    }
}
