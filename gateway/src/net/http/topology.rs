//! What the server is made of: this process, store nodes, and the processes and groups of a cluster with replicas.

use axum::response::Response;
use serde::Serialize;
use store::client::{Member, ReplicaView, Role, Survey};
use store::replication::{GroupInfo, ProcessInfo, ProcessState};

use super::extract::Ask;
use super::json;
use super::problem::Problem;
use crate::config::Address;

#[derive(Serialize)]
struct Topology<'a> {
    mode: &'static str,
    nodes: [NodeReport<'a>; 1],
    stores: Vec<String>,
    epoch: Option<u64>,
    members: Vec<MemberReport>,
    /// Nothing of these if nodes are not groups of replicas.
    replicas: Option<usize>,
    processes: Option<Vec<ProcessReport<'a>>>,
    groups: Option<Vec<GroupReport<'a>>>,
}

#[derive(Serialize)]
struct NodeReport<'a> {
    id: &'a str,
    version: &'static str,
    resp: String,
    shards: Option<usize>,
    threads: usize,
    keys: usize,
    bytes: usize,
}

/// A store node as this gateway sees it.
#[derive(Serialize)]
struct MemberReport {
    address: String,
    slots: String,
    slot_count: usize,
    keys: u64,
    bytes: u64,
    epoch: u64,
    lag: u64,
    reachable: bool,
    error: Option<String>,
}

impl MemberReport {
    fn of(member: Member) -> MemberReport {
        let Member { node: address, slots, count: slot_count, keys, bytes, epoch, lag, up, .. } = member;
        MemberReport {
            address,
            slots,
            slot_count,
            keys,
            bytes,
            epoch,
            lag,
            reachable: up.is_ok(),
            error: up.err().map(|why| why.to_string()),
        }
    }
}

#[derive(Serialize)]
struct ProcessReport<'a> {
    id: u64,
    address: &'a str,
    zone: &'a str,
    state: &'static str,
    answers: bool,
    error: Option<String>,
}

impl<'a> ProcessReport<'a> {
    fn of(survey: &Survey, process: &'a ProcessInfo) -> ProcessReport<'a> {
        let error = survey.answer(process).err().map(|why| why.to_string());
        ProcessReport {
            id: process.id,
            address: &process.address,
            zone: &process.zone,
            state: match process.state {
                ProcessState::Active => "active",
                ProcessState::Joining => "joining",
                ProcessState::Leaving => "leaving",
                ProcessState::Lost => "lost",
            },
            answers: error.is_none(),
            error,
        }
    }
}

#[derive(Serialize)]
struct GroupReport<'a> {
    name: &'a str,
    slots: String,
    leader: Option<&'a str>,
    term: Option<u64>,
    changing: bool,
    replicas: Vec<ReplicaReport<'a>>,
}

impl<'a> GroupReport<'a> {
    fn of(survey: &'a Survey, group: &'a GroupInfo, members: &[MemberReport]) -> GroupReport<'a> {
        let replicas = survey.replicas(group);
        let leader = replicas.iter().find(|replica| replica.role == Role::Leader);
        let slots = members.iter().find(|member| member.address == group.name);
        GroupReport {
            name: &group.name,
            slots: slots.map(|member| member.slots.clone()).unwrap_or_default(),
            leader: leader.map(|replica| replica.address),
            term: replicas.iter().filter_map(|replica| replica.term).max(),
            changing: survey.is_changing(group),
            replicas: replicas.into_iter().map(ReplicaReport::of).collect(),
        }
    }
}

#[derive(Serialize)]
struct ReplicaReport<'a> {
    process: u64,
    address: &'a str,
    state: &'static str,
    leads: bool,
    lag_entries: Option<u64>,
    answers: bool,
    leaves: bool,
}

impl<'a> ReplicaReport<'a> {
    fn of(replica: ReplicaView<'a>) -> ReplicaReport<'a> {
        let ReplicaView { process, address, role, lag: lag_entries, answers, leaves, .. } = replica;
        ReplicaReport {
            process,
            address,
            state: match role {
                Role::Leader => "leader",
                Role::Follower => "follower",
                Role::Learner => "learner",
                Role::WaitsForCopy => "waits_for_copy",
                Role::Missing => "missing",
            },
            leads: role == Role::Leader,
            lag_entries,
            answers,
            leaves,
        }
    }
}

/// This process, what it holds, and the store nodes or processes it uses if the data is not in it.
pub async fn topology(ask: Ask) -> Result<Response, Problem> {
    ask.work.check(&[b"INFO"])?;
    let server = ask.server();
    let usage = server.store.usage();
    let node = NodeReport {
        id: &server.process.run_id,
        version: env!("CARGO_PKG_VERSION"),
        resp: server.process.resp_addr.to_string(),
        shards: server.store.node().map(|node| node.shards()),
        threads: server.config.threads.get_usize(),
        keys: usage.keys.iter().sum(),
        bytes: usage.bytes,
    };
    let stores: Vec<String> = server.config.stores.get().iter().map(Address::to_string).collect();
    let mode = if server.store.node().is_some() { "embedded" } else { "distributed" };
    let cluster = server.store.cluster();
    let survey = match cluster {
        Some(cluster) => cluster.survey().await,
        None => None,
    };
    let survey = survey.as_deref();
    let epoch = cluster.map(|cluster| cluster.map().epoch());
    let members = cluster.map_or_else(Vec::new, |cluster| cluster.members());
    let members: Vec<MemberReport> = members.into_iter().map(MemberReport::of).collect();
    let groups = survey
        .map(|survey| survey.groups().all().map(|group| GroupReport::of(survey, group, &members)).collect());
    Ok(json::body(&Topology {
        mode,
        nodes: [node],
        stores,
        epoch,
        replicas: survey.map(|survey| survey.groups().replicas),
        processes: survey.map(|survey| {
            let all = survey.groups().processes.iter();
            all.map(|process| ProcessReport::of(survey, process)).collect()
        }),
        groups,
        members,
    }))
}
