//! Processes and replicas of a cluster of replicated groups: how they are, and how that is changed.

use std::time::Duration;

use proto::store::v1 as wire;
use serde_json::{Value, json};
use store::client::members::change;
use store::client::{Directory, PeerCredentials, ReplicaView, Role, Survey};
use store::replication::{GroupInfo, ProcessInfo, ProcessState};
use tokio::time::sleep;
use wire::change_request::Change;

use super::errors::TopologyError;
use super::output::{print, table};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Show the processes, the groups and their replicas.
    Show {
        /// As JSON.
        json: bool,
    },
    /// Let a process without data join.
    Join {
        /// Its address.
        process: String,
        /// The address of the one that it replaces, if it does.
        replaces: Option<String>,
        /// It may belong to the cluster already.
        if_missing: bool,
    },
    /// Let others take over the replicas of a process.
    Leave {
        /// Its address.
        process: String,
    },
    /// Give each group so many replicas.
    Replicas {
        /// How many.
        count: usize,
    },
    /// Let another process lead a group.
    Transfer {
        /// The group's name.
        group: String,
        /// The process' address.
        to: String,
    },
}

/// How often it is looked how far a change is.
const LOOK: Duration = Duration::from_millis(200);
/// How long a process may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Does it with the cluster that one of these processes belongs to; waits until the groups are as they are to be.
pub(super) async fn run(
    stores: &[String],
    credentials: &PeerCredentials,
    task: &Task,
) -> Result<(), TopologyError> {
    let directory = Directory::default();
    let survey = Survey::take(stores, &directory, credentials, ANSWER).await?;
    let wanted = match task {
        Task::Show { json } => {
            print(&if *json { as_json(&survey) } else { as_tables(&survey) });
            return Ok(());
        }
        Task::Join { process, replaces, .. } => Change::Join(wire::Join {
            address: process.clone(),
            replaces: replaces.clone().unwrap_or_default(),
        }),
        Task::Leave { process } => Change::Leave(process.clone()),
        Task::Replicas { count } => Change::Replicas(u32::try_from(*count).unwrap_or(u32::MAX)),
        Task::Transfer { group, to } => {
            Change::Transfer(wire::Transfer { group: group.clone(), to: to.clone() })
        }
    };
    let is_done = matches!(task, Task::Join { process, if_missing: true, .. } if has(&survey, process));
    if !is_done {
        change(&directory, credentials, wanted).await?;
    }
    wait_until(stores, &directory, credentials, |survey| unfinished(survey, task)).await?;
    print(&match task {
        Task::Join { process, replaces: Some(replaced), .. } => {
            format!("{process} has replaced {replaced}, which can be stopped\n")
        }
        Task::Join { process, .. } => format!("{process} has joined the cluster\n"),
        Task::Leave { process } => format!("{process} has left the cluster and can be stopped\n"),
        Task::Replicas { count } => format!("each group has {count} replicas\n"),
        Task::Transfer { group, to } => format!("{to} leads the group {group}\n"),
        Task::Show { .. } => String::new(),
    });
    Ok(())
}

/// Waits until all groups have the members that they are to have, and a leader.
pub(super) async fn wait_for_all(
    stores: &[String],
    directory: &Directory,
    credentials: &PeerCredentials,
) -> Result<(), TopologyError> {
    wait_until(stores, directory, credentials, all_unfinished).await
}

/// Waits until nothing is unfinished any more; prints what is waited for.
async fn wait_until(
    stores: &[String],
    directory: &Directory,
    credentials: &PeerCredentials,
    unfinished: impl Fn(&Survey) -> Vec<String>,
) -> Result<(), TopologyError> {
    let mut before = String::new();
    loop {
        let survey = Survey::take(stores, directory, credentials, ANSWER).await?;
        let waiting = unfinished(&survey);
        if waiting.is_empty() {
            return Ok(());
        }
        let text = format!("waiting: {}\n", waiting.join("; "));
        if text != before {
            print(&text);
            before = text;
        }
        sleep(LOOK).await;
    }
}

/// Whether the process at this address belongs to the cluster, and is not leaving it.
fn has(survey: &Survey, address: &str) -> bool {
    let belongs = |process: &&ProcessInfo| process.state != ProcessState::Leaving;
    survey.groups().processes.iter().filter(belongs).any(|process| process.address == address)
}

/// The groups that are not as the task wants them, each with what is missing.
fn unfinished(survey: &Survey, task: &Task) -> Vec<String> {
    let groups = survey.groups();
    if let Task::Transfer { group, .. } = task {
        return groups.named(group).and_then(|group| other_leader(survey, group)).into_iter().collect();
    }
    all_unfinished(survey)
}

fn all_unfinished(survey: &Survey) -> Vec<String> {
    let groups = survey.groups();
    let joining = groups.processes.iter().filter(|process| process.state == ProcessState::Joining);
    let joining = joining.map(|process| format!("{} does not answer yet", process.address));
    joining.chain(groups.all().filter_map(|group| missing(survey, group))).collect()
}

fn missing(survey: &Survey, group: &GroupInfo) -> Option<String> {
    let name = &group.name;
    if survey.leader(group).is_none() {
        return Some(format!("{name} has no leader"));
    }
    let addresses = |processes: &[u64]| {
        let addresses: Vec<&str> = processes.iter().map(|id| survey.address(*id)).collect();
        addresses.join(", ")
    };
    let new = survey.new_members(group);
    if !new.is_empty() {
        return Some(format!("{name} gets a replica on {}", addresses(&new)));
    }
    (!group.former.is_empty()).then(|| format!("{name} leaves {}", addresses(&group.former)))
}

fn other_leader(survey: &Survey, group: &GroupInfo) -> Option<String> {
    let first = *group.replicas.first()?;
    let leads = survey.leader(group).is_some_and(|(leader, _)| leader == first);
    (!leads).then(|| format!("{} is to be led by {}", group.name, survey.address(first)))
}

fn state_of(process: &ProcessInfo) -> &'static str {
    match process.state {
        ProcessState::Active => "active",
        ProcessState::Joining => "joining",
        ProcessState::Leaving => "leaving",
        ProcessState::Lost => "lost its data",
    }
}

fn role_of(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Learner => "learner",
        Role::WaitsForCopy => "waits for a copy",
        Role::Missing => "missing",
    }
}

fn as_tables(survey: &Survey) -> String {
    let groups = survey.groups();
    let mut text = format!(
        "cluster {:016x}, list of groups {}, {} replicas wanted\n\n",
        groups.cluster, groups.version, groups.replicas
    );
    let mut rows = vec![["process", "address", "zone", "state", "reachable"].map(str::to_owned)];
    rows.extend(groups.processes.iter().map(|process| {
        let up = match survey.answer(process) {
            Err(error) => format!("no: {error}"),
            Ok(_) => "yes".to_owned(),
        };
        let (id, state) = (process.id.to_string(), state_of(process).to_owned());
        [id, process.address.clone(), process.zone.clone(), state, up]
    }));
    text.push_str(&table(&rows));
    text.push('\n');
    let mut rows = vec![["group", "replica on", "role", "term", "lag"].map(str::to_owned)];
    for group in groups.all() {
        for replica in survey.replicas(group) {
            let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
            let role = role_of(replica.role).to_owned();
            let (term, lag) = (number(replica.term), number(replica.lag));
            rows.push([group.name.clone(), replica.address.to_owned(), role, term, lag]);
        }
    }
    text.push_str(&table(&rows));
    text
}

fn as_json(survey: &Survey) -> String {
    let groups = survey.groups();
    let process = |process: &ProcessInfo| {
        let error = survey.answer(process).err().map(|error| error.to_string());
        json!({
            "id": process.id,
            "address": process.address,
            "zone": process.zone,
            "state": state_of(process),
            "reachable": error.is_none(),
            "error": error,
        })
    };
    let replica = |replica: ReplicaView<'_>| {
        json!({
            "process": replica.process,
            "address": replica.address,
            "role": role_of(replica.role),
            "lag_entries": replica.lag,
        })
    };
    let group = |group: &GroupInfo| {
        let replicas: Vec<Value> = survey.replicas(group).into_iter().map(replica).collect();
        json!({ "name": group.name, "replicas": replicas })
    };
    let all = json!({
        "cluster": format!("{:016x}", groups.cluster),
        "version": groups.version,
        "replicas": groups.replicas,
        "processes": groups.processes.iter().map(process).collect::<Vec<_>>(),
        "groups": groups.all().map(group).collect::<Vec<_>>(),
    });
    format!("{all}\n")
}
