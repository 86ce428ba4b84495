//! Processes and replicas of a cluster of replicated groups: how they are, and how that is changed.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::store::v1 as wire;
use serde_json::{Value, json};
use store::client::members::{change, inspect};
use store::client::{Directory, NodeError, PeerCredentials, TopologyError as ClusterError};
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

/// Does it with the cluster that one of these processes belongs to; waits until the groups are as they are to be.
pub(super) async fn run(
    stores: &[String],
    credentials: &PeerCredentials,
    task: &Task,
) -> Result<(), TopologyError> {
    let directory = Directory::default();
    let cluster = look(stores, &directory, credentials).await?;
    let wanted = match task {
        Task::Show { json } => {
            print(&if *json { as_json(&cluster) } else { as_tables(&cluster) });
            return Ok(());
        }
        Task::Join { process, replaces } => Change::Join(wire::Join {
            address: process.clone(),
            replaces: replaces.clone().unwrap_or_default(),
        }),
        Task::Leave { process } => Change::Leave(process.clone()),
        Task::Replicas { count } => Change::Replicas(u32::try_from(*count).unwrap_or(u32::MAX)),
        Task::Transfer { group, to } => {
            Change::Transfer(wire::Transfer { group: group.clone(), to: to.clone() })
        }
    };
    change(&directory, credentials, wanted).await?;
    let mut before = String::new();
    loop {
        let cluster = look(stores, &directory, credentials).await?;
        let waiting = cluster.unfinished(task);
        if waiting.is_empty() {
            break;
        }
        let text = format!("waiting: {}\n", waiting.join("; "));
        if text != before {
            print(&text);
            before = text;
        }
        sleep(LOOK).await;
    }
    print(&match task {
        Task::Join { process, replaces: Some(replaced) } => {
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

/// What the processes of a cluster say.
struct View {
    groups: wire::Groups,
    /// By number of the process.
    said: BTreeMap<u64, Result<wire::Inspection, NodeError>>,
}

/// Asks all processes of the cluster.
async fn look(
    stores: &[String],
    directory: &Directory,
    credentials: &PeerCredentials,
) -> Result<View, TopologyError> {
    let known = directory.groups().map(|groups| groups.to_wire().processes).unwrap_or_default();
    let named = stores.iter().cloned();
    let mut errors = Vec::new();
    for address in named.chain(known.into_iter().map(|process| process.address)) {
        match inspect(&address, credentials).await {
            Ok(inspection) => {
                let groups = inspection.groups.unwrap_or_default();
                directory.learn(&groups).map_err(ClusterError::from)?;
            }
            Err(error) => errors.push((address, error)),
        }
    }
    let Some(groups) = directory.groups() else {
        let Some((address, error)) = errors.into_iter().next() else {
            return Err(ClusterError::NoGroups.into());
        };
        return Err(ClusterError::Node(address, error).into());
    };
    let mut said = BTreeMap::new();
    for process in &groups.processes {
        said.insert(process.id, inspect(&process.address, credentials).await);
    }
    Ok(View { groups: groups.to_wire(), said })
}

impl View {
    fn all(&self) -> impl Iterator<Item = &wire::Group> {
        self.groups.groups.iter().chain(&self.groups.meta)
    }

    /// What a process says of its replica of a group.
    fn replica(&self, group: &wire::Group, process: u64) -> Option<&wire::ReplicaReport> {
        let inspection = self.said.get(&process)?.as_ref().ok()?;
        inspection.replicas.iter().find(|replica| replica.group == group.id)
    }

    /// The process that leads a group, and its replica.
    fn leader(&self, group: &wire::Group) -> Option<(u64, &wire::ReplicaReport)> {
        let replicas = self.said.keys().filter_map(|id| Some((*id, self.replica(group, *id)?)));
        // Who was cut off may not know of the next one.
        replicas.filter(|(_, replica)| replica.leads).max_by_key(|(_, replica)| replica.term)
    }

    fn address(&self, process: u64) -> &str {
        let found = self.groups.processes.iter().find(|known| known.id == process);
        found.map_or("unknown", |process| &process.address)
    }

    /// The groups that are not as the task wants them, each with what is missing.
    fn unfinished(&self, task: &Task) -> Vec<String> {
        if let Task::Transfer { group, .. } = task {
            let group = self.all().find(|known| known.name == *group);
            return group.and_then(|group| self.other_leader(group)).into_iter().collect();
        }
        let joining = |process: &&wire::Process| process.state() == wire::ProcessState::Joining;
        let joining = self.groups.processes.iter().filter(joining);
        let joining = joining.map(|process| format!("{} does not answer yet", process.address));
        joining.chain(self.all().filter_map(|group| self.missing(group))).collect()
    }

    fn missing(&self, group: &wire::Group) -> Option<String> {
        let name = &group.name;
        let Some((_, report)) = self.leader(group) else { return Some(format!("{name} has no leader")) };
        let new: Vec<&str> = group
            .replicas
            .iter()
            .filter(|id| !report.voters.contains(id))
            .map(|id| self.address(*id))
            .collect();
        if !new.is_empty() {
            return Some(format!("{name} gets a replica on {}", new.join(", ")));
        }
        if !group.former.is_empty() {
            let former: Vec<&str> = group.former.iter().map(|id| self.address(*id)).collect();
            return Some(format!("{name} leaves {}", former.join(", ")));
        }
        None
    }

    fn other_leader(&self, group: &wire::Group) -> Option<String> {
        let first = *group.replicas.first()?;
        let leads = self.leader(group).is_some_and(|(leader, _)| leader == first);
        (!leads).then(|| format!("{} is to be led by {}", group.name, self.address(first)))
    }

    fn role(&self, group: &wire::Group, process: u64) -> &'static str {
        let leader = self.leader(group);
        match self.replica(group, process) {
            None => "missing",
            Some(_) if leader.is_some_and(|(id, _)| id == process) => "leader",
            Some(replica) if replica.needs_copy => "waits for a copy",
            Some(_) if leader.is_some_and(|(_, report)| !report.voters.contains(&process)) => "learner",
            Some(_) => "follower",
        }
    }

    /// Each replica of each group: the process, what it is, and how many entries it lacks.
    fn replicas<'a>(
        &'a self,
        group: &'a wire::Group,
    ) -> impl Iterator<Item = (u64, &'static str, Option<u64>)> + 'a {
        let committed = self.leader(group).map(|(_, report)| report.committed);
        group.replicas.iter().chain(&group.former).map(move |id| {
            let replica = self.replica(group, *id);
            let lag =
                committed.zip(replica).map(|(committed, replica)| committed.saturating_sub(replica.applied));
            (*id, self.role(group, *id), lag)
        })
    }
}

fn state_of(process: &wire::Process) -> &'static str {
    match process.state() {
        wire::ProcessState::Active => "active",
        wire::ProcessState::Joining => "joining",
        wire::ProcessState::Leaving => "leaving",
        wire::ProcessState::Lost => "lost its data",
    }
}

fn as_tables(view: &View) -> String {
    let groups = &view.groups;
    let mut text = format!(
        "cluster {:016x}, list of groups {}, {} replicas wanted\n\n",
        groups.cluster, groups.version, groups.replicas
    );
    let mut rows = vec![["process", "address", "state", "reachable"].map(str::to_owned)];
    rows.extend(groups.processes.iter().map(|process| {
        let up = match view.said.get(&process.id) {
            Some(Err(error)) => format!("no: {error}"),
            _ => "yes".to_owned(),
        };
        [process.id.to_string(), process.address.clone(), state_of(process).to_owned(), up]
    }));
    text.push_str(&table(&rows));
    text.push('\n');
    let mut rows = vec![["group", "replica on", "role", "term", "lag"].map(str::to_owned)];
    for group in view.all() {
        for (process, role, lag) in view.replicas(group) {
            let term =
                view.replica(group, process).map_or_else(String::new, |replica| replica.term.to_string());
            let lag = lag.map_or_else(String::new, |lag| lag.to_string());
            rows.push([group.name.clone(), view.address(process).to_owned(), role.to_owned(), term, lag]);
        }
    }
    text.push_str(&table(&rows));
    text
}

fn as_json(view: &View) -> String {
    let process = |process: &wire::Process| {
        let error = view.said.get(&process.id).and_then(|said| said.as_ref().err()).map(NodeError::to_string);
        json!({
            "id": process.id,
            "address": process.address,
            "state": state_of(process),
            "reachable": error.is_none(),
            "error": error,
        })
    };
    let group = |group: &wire::Group| {
        let replicas: Vec<Value> = view
            .replicas(group)
            .map(|(process, role, lag)| {
                json!({ "process": process, "address": view.address(process), "role": role, "lag_entries": lag })
            })
            .collect();
        json!({ "name": group.name, "replicas": replicas })
    };
    let all = json!({
        "cluster": format!("{:016x}", view.groups.cluster),
        "version": view.groups.version,
        "replicas": view.groups.replicas,
        "processes": view.groups.processes.iter().map(process).collect::<Vec<_>>(),
        "groups": view.all().map(group).collect::<Vec<_>>(),
    });
    format!("{all}\n")
}
