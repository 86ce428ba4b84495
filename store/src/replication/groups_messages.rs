//! The list of groups as a message, and as a record on disk.

use prost::Message;
use proto::disk::v1 as disk;
use proto::store::v1 as wire;

use super::group_id::GroupId;
use super::groups::{Founding, GroupInfo, Groups, GroupsError, ProcessInfo};

impl Groups {
    /// As a message.
    pub fn to_wire(&self) -> wire::Groups {
        let process = |process: &ProcessInfo| wire::Process {
            id: process.id,
            address: process.address.clone(),
            state: process.state.into(),
            replaces: process.replaces.unwrap_or_default(),
            zone: process.zone.clone(),
        };
        let group = |group: &GroupInfo| wire::Group {
            id: group.id.0,
            name: group.name.clone(),
            replicas: group.replicas.clone(),
            former: group.former.clone(),
            recovered_from: group.recovered_from.unwrap_or_default(),
        };
        wire::Groups {
            cluster: self.cluster,
            version: self.version,
            replicas: u32::try_from(self.replicas).unwrap_or_default(),
            processes: self.processes.iter().map(process).collect(),
            newest_process: self.newest_process,
            groups: self.groups.iter().map(group).collect(),
            meta: Some(group(&self.meta)),
            leaders: Vec::new(),
            former_clusters: self.former_clusters.clone(),
        }
    }

    /// From a message.
    pub fn from_wire(groups: &wire::Groups) -> Result<Groups, GroupsError> {
        let process = |process: &wire::Process| {
            let state = wire::ProcessState::try_from(process.state);
            Ok::<_, GroupsError>(ProcessInfo {
                id: process.id,
                address: process.address.clone(),
                state: state.map_err(|_| GroupsError::Invalid("the state of a process is unknown"))?,
                replaces: Some(process.replaces).filter(|id| *id != 0),
                zone: process.zone.clone(),
            })
        };
        let group = |group: &wire::Group| GroupInfo {
            id: GroupId(group.id),
            name: group.name.clone(),
            replicas: group.replicas.clone(),
            former: group.former.clone(),
            recovered_from: Some(group.recovered_from).filter(|id| *id != 0),
        };
        Groups {
            cluster: groups.cluster,
            version: groups.version,
            replicas: groups.replicas as usize,
            processes: groups.processes.iter().map(process).collect::<Result<_, _>>()?,
            newest_process: groups.newest_process,
            groups: groups.groups.iter().map(group).collect(),
            meta: group(&groups.meta.clone().unwrap_or_default()),
            former_clusters: groups.former_clusters.clone(),
        }
        .check()
    }

    fn to_disk(&self) -> disk::Groups {
        let wire::Groups {
            cluster,
            version,
            replicas,
            processes,
            newest_process,
            groups,
            meta,
            leaders: _,
            former_clusters,
        } = self.to_wire();
        let process = |wire::Process { id, address, state, replaces, zone }| disk::Process {
            id,
            address,
            state,
            replaces,
            zone,
        };
        let group = |wire::Group { id, name, replicas, former, recovered_from }| disk::Group {
            id,
            name,
            replicas,
            former,
            recovered_from,
        };
        disk::Groups {
            cluster,
            version,
            replicas,
            processes: processes.into_iter().map(process).collect(),
            newest_process,
            groups: groups.into_iter().map(group).collect(),
            meta: meta.map(group),
            former_clusters,
        }
    }

    fn from_disk(groups: disk::Groups) -> Result<Groups, GroupsError> {
        let disk::Groups {
            cluster,
            version,
            replicas,
            processes,
            newest_process,
            groups,
            meta,
            former_clusters,
        } = groups;
        let process = |disk::Process { id, address, state, replaces, zone }| wire::Process {
            id,
            address,
            state,
            replaces,
            zone,
        };
        let group = |disk::Group { id, name, replicas, former, recovered_from }| wire::Group {
            id,
            name,
            replicas,
            former,
            recovered_from,
        };
        Groups::from_wire(&wire::Groups {
            cluster,
            version,
            replicas,
            processes: processes.into_iter().map(process).collect(),
            newest_process,
            groups: groups.into_iter().map(group).collect(),
            meta: meta.map(group),
            leaders: Vec::new(),
            former_clusters,
        })
    }

    /// As the group that changes the list keeps it.
    pub fn to_record(&self) -> Vec<u8> {
        self.to_disk().encode_to_vec()
    }

    /// Reads what [`Groups::to_record`] wrote.
    pub fn from_record(record: &[u8]) -> Result<Groups, GroupsError> {
        let groups = disk::Groups::decode(record).map_err(|_| GroupsError::Invalid("it cannot be read"))?;
        Groups::from_disk(groups)
    }
}

impl Founding {
    /// As it is on disk.
    pub fn to_record(&self) -> Vec<u8> {
        let Founding { groups, process, is_recovering } = self;
        let (groups, process, is_recovering) = (Some(groups.to_disk()), *process, *is_recovering);
        disk::Founding { process, groups, is_recovering }.encode_to_vec()
    }

    /// Reads what [`Founding::to_record`] wrote.
    pub fn from_record(record: &[u8]) -> Result<Founding, GroupsError> {
        let record = disk::Founding::decode(record).map_err(|_| GroupsError::Invalid("it cannot be read"))?;
        let founding = Founding::new(Groups::from_disk(record.groups.unwrap_or_default())?, record.process)?;
        Ok(Founding { is_recovering: record.is_recovering, ..founding })
    }
}
