//! The leader of the group that changes the list of groups: it alone decides which processes and which replicas there are.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::view::ClusterView;
use crate::client::PeerCredentials;
use crate::client::members::{self, FoundError};
use crate::journal::Failure;
use crate::node::Node;
use crate::replication::{Change, ChangeError, Groups, GroupsError, ProcessInfo, ProcessState};

/// The record of the list in the catalog of the group's node.
const GROUPS: &[u8] = b"groups";
/// How often it is looked which processes have joined, have lost their data, or are in another zone.
const LOOK: Duration = Duration::from_millis(500);

/// How long a process that joins is asked whether it does, and how often.
const ANSWER: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);

/// The list of groups, for the one who may change it.
pub(super) struct Meta {
    view: Arc<ClusterView>,
    credentials: PeerCredentials,
    warn: fn(&str),
    node: Arc<Node>,
    groups: Mutex<Arc<Groups>>,
    /// Held while a request is carried out: the leadership is handed over between two.
    turn: Mutex<()>,
}

/// Why the list was not changed, or may not have been.
#[derive(Debug)]
pub(super) enum MetaError {
    /// It was not.
    Refused(ChangeError),
    /// The process at this address does not join.
    NotJoined(String, FoundError),
    /// It may have been: the group has another leader now.
    Unknown(Failure),
}

impl fmt::Display for MetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaError::Refused(error) => error.fmt(f),
            MetaError::NotJoined(address, error) => write!(f, "{address} does not join: {error}"),
            MetaError::Unknown(failure) => {
                write!(f, "it is unknown whether the list of groups was changed: {}", failure.detail)
            }
        }
    }
}

impl Meta {
    /// The list as the group has it; that of this process if the group has none yet.
    pub fn open(
        view: Arc<ClusterView>,
        credentials: PeerCredentials,
        warn: fn(&str),
        node: Arc<Node>,
    ) -> Result<Meta, GroupsError> {
        let mut groups = view.groups();
        if let Some((_, record)) = node.records(GROUPS).into_iter().next() {
            let kept = Groups::from_record(&record)?;
            if kept.replaces(&groups) {
                groups = Arc::new(kept);
                view.offer((*groups).clone());
            }
        }
        Ok(Meta { view, credentials, warn, node, groups: Mutex::new(groups), turn: Mutex::new(()) })
    }

    /// Changes the list; the new list, which all processes get to know.
    async fn change(&self, change: &Change) -> Result<Arc<Groups>, MetaError> {
        let mut groups = self.groups.lock().await;
        let changed = groups.changed(change).map_err(MetaError::Refused)?;
        if changed.version == groups.version {
            return Ok(groups.clone());
        }
        self.node.put_record(GROUPS, &changed.to_record());
        if let Some(journal) = self.node.journal() {
            journal.settle(true).await.map_err(MetaError::Unknown)?;
        }
        self.view.offer(changed.clone());
        *groups = Arc::new(changed);
        Ok(groups.clone())
    }

    /// Carries out a request to change the list.
    pub async fn carry_out(&self, change: &Change) -> Result<Arc<Groups>, MetaError> {
        let _turn = self.turn.lock().await;
        self.change(change).await
    }

    /// Waits until the requests are carried out that were taken.
    pub async fn drain(&self) {
        drop(self.turn.lock().await);
    }

    /// Lets a process without data join.
    pub async fn join(&self, address: String, replaces: Option<String>) -> Result<Arc<Groups>, MetaError> {
        let _turn = self.turn.lock().await;
        let groups = self.change(&Change::Join { address: address.clone(), replaces }).await?;
        let id = groups.newest_process;
        let since = Instant::now();
        let error = loop {
            match self.found(&groups, id, &address).await {
                Ok(()) => return self.change(&Change::Joined(id)).await,
                // It may know that it belongs to the cluster, and says so then.
                Err(FoundError::Unknown(_)) if since.elapsed() < ANSWER => sleep(AGAIN).await,
                Err(error) => break error,
            }
        };
        self.change(&Change::Withdrawn(id)).await?;
        Err(MetaError::NotJoined(address, error))
    }

    async fn found(&self, groups: &Groups, id: u64, address: &str) -> Result<(), FoundError> {
        members::found(address, id, groups, false, &self.credentials).await
    }

    /// Carries on with what other leaders have begun, and gives processes that have lost their data a new number. Ends when
    /// the list cannot be changed here any more.
    pub async fn look_after(&self) {
        let mut reported = BTreeSet::new();
        let mut warn = |text: String| {
            if reported.insert(text.clone()) {
                (self.warn)(&text);
            }
        };
        loop {
            sleep(LOOK).await;
            // A request that is being carried out knows what becomes of its process.
            let turn = self.turn.try_lock();
            let groups = self.groups.lock().await.clone();
            let mut changes = Vec::new();
            let is_left = |process: &&ProcessInfo| turn.is_ok() && process.state == ProcessState::Joining;
            for process in groups.processes.iter().filter(is_left) {
                match self.found(&groups, process.id, &process.address).await {
                    Ok(()) => changes.push(Change::Joined(process.id)),
                    Err(error @ FoundError::Refused(_)) => {
                        warn(format!("{} does not join the cluster: {error}", process.address));
                        changes.push(Change::Withdrawn(process.id));
                    }
                    // It may come.
                    Err(FoundError::Lost(_) | FoundError::Unknown(_)) => {}
                }
            }
            let zones = self.view.moved_zones(&groups).into_iter();
            changes.extend(zones.map(|(process, zone)| Change::Zone { process, zone }));
            changes.extend(self.view.without_data().into_iter().map(Change::Lost));
            for change in changes {
                match self.change(&change).await {
                    Ok(_) => {}
                    Err(MetaError::Unknown(_)) => return,
                    Err(error) => warn(error.to_string()),
                }
            }
        }
    }
}
