//! One replica in a process: it gets a copy of the data if it lacks some, serves the group while it leads, and makes the members
//! of the group those that the list of groups wants.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use consensus::{Step, next_step};
use proto::store::v1 as wire;
use tokio::time::{Instant, sleep};

use super::copy::{self, Source};
use super::meta::Meta;
use super::settings::group_dir;
use super::state::{Replica, State};
use crate::client::members;
use crate::journal::{Open, in_dir};
use crate::node::Node;
use crate::replication::{
    Change, Copied, Fetched, Group, GroupId, GroupInfo, GroupSettings, Leadership, ProcessState,
};
use crate::server::membership::renew_identity;
use crate::server::{Service, Setting};

/// How long peers have to finish what they have begun before a leadership is handed over.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the others have to take it.
const HAND_OVER: Duration = Duration::from_secs(2);
/// The pause before a leader tries again to serve its group.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a leader compares the members of its group with those that are wanted.
const COMPARE: Duration = Duration::from_millis(200);
/// How long a replica leads that is not the one that is to, unless the list of groups changes.
const SUBSTITUTE: Duration = Duration::from_secs(10);

/// Takes part in a group until it is to end.
pub(super) async fn take_part(state: Arc<State>, replica: Arc<Replica>) {
    let (settings, name) = (&state.settings, &replica.name);
    let dir = group_dir(&settings.dir, replica.id);
    let failed = |error: &dyn fmt::Display| {
        replica.handle.remove();
        (settings.warn)(&format!("the replica of group {name} in this process has ended: {error}"));
    };
    if let Err(error) = copy::recover(&dir) {
        return failed(&error);
    }
    let fetch = Arc::new({
        let (state, replica, dir) = (state.clone(), replica.clone(), dir.clone());
        move || -> Fetched { Box::pin(fetch(state.clone(), replica.clone(), dir.clone())) }
    });
    let opened = Arc::new({
        let replica = replica.clone();
        move |node: &Arc<Node>| *replica.node.write() = Arc::downgrade(node)
    });
    let open = Arc::new(move || -> Open { in_dir(dir.clone()) });
    // The list of groups is small.
    let shards = if replica.id == GroupId::META { 1 } else { settings.shards };
    let group_settings =
        GroupSettings { open, opened, fetch, shards, reads: settings.reads, warn: settings.warn };
    let group = Group::new(group_settings, replica.handle.clone(), replica.stop.subscribe());
    if let Err(error) = group.run(|node, leadership| lead(&state, &replica, node, leadership)).await {
        failed(&error);
    }
}

/// Gets a copy of the data of a group from its leader.
async fn fetch(state: Arc<State>, replica: Arc<Replica>, dir: PathBuf) -> Result<Copied, String> {
    let leader = replica.handle.state().borrow().role.leader.filter(|leader| *leader != state.view.me);
    let groups = state.view.groups();
    let address = leader.and_then(|leader| groups.address(leader));
    let Some(address) = address else { return Err("the group has no leader at present".to_owned()) };
    let credentials = state.settings.credentials.clone();
    let request = wire::CopyRequest {
        token: credentials.token.clone().unwrap_or_default(),
        cluster: groups.cluster,
        group: replica.id.0,
    };
    let source = Source {
        address: address.to_owned(),
        credentials,
        request,
        least: replica.handle.log.before().index,
    };
    let copied = copy::receive(source, dir).await?;
    (state.settings.warn)(&format!(
        "this process lacked data of the group {}: it was copied from {address}",
        replica.name
    ));
    Ok(copied)
}

/// Does what the leader of a group does for as long as this process leads the group.
async fn lead(state: &Arc<State>, replica: &Replica, node: Arc<Node>, mut leadership: Leadership) {
    let left = match replica.id {
        GroupId::META => lead_meta(state, replica, node, &mut leadership).await,
        _ => serve(state, replica, node, &mut leadership).await,
    };
    if let Left::Leading(successor) = left {
        let successors = successor.map_or_else(|| leadership.successors(), |successor| vec![successor]);
        leadership.hand_over(&successors, HAND_OVER).await;
    }
}

/// How a process has left what it led.
enum Left {
    /// Another process leads.
    Deposed,
    /// It still leads, and is to hand over: to this replica, or to any.
    Leading(Option<u64>),
}

/// Decides which processes and replicas there are, until this process leads no more, or is to hand over.
async fn lead_meta(
    state: &Arc<State>,
    replica: &Replica,
    node: Arc<Node>,
    leadership: &mut Leadership,
) -> Left {
    let settings = &state.settings;
    let meta = match Meta::open(state.view.clone(), settings.credentials.clone(), settings.warn, node) {
        Ok(meta) => Arc::new(meta),
        Err(error) => {
            (settings.warn)(&format!("the list of groups cannot be read: {error}"));
            sleep(AGAIN).await;
            return Left::Leading(None);
        }
    };
    *state.meta.write() = Some(meta.clone());
    let left = tokio::select! {
        left = until(leadership) => left,
        successor = keep_members(state, replica) => Left::Leading(Some(successor)),
        () = meta.look_after() => Left::Deposed,
    };
    *state.meta.write() = None;
    if matches!(left, Left::Leading(_)) {
        meta.drain().await;
    }
    left
}

/// Serves a group that has slots, until this process leads it no more, or is to hand over. Then no peer has a stream.
async fn serve(state: &Arc<State>, replica: &Replica, node: Arc<Node>, leadership: &mut Leadership) -> Left {
    let service = match service_of(state, replica, &node).await {
        Ok(service) => service,
        Err(_) if node.is_deposed() => return Left::Deposed,
        Err(error) => {
            (state.settings.warn)(&format!("the group {} cannot be served: {error}", replica.name));
            sleep(AGAIN).await;
            return Left::Leading(None);
        }
    };
    *replica.leading.write() = Some(service.clone());
    let left = tokio::select! {
        left = until(leadership) => left,
        successor = keep_members(state, replica) => Left::Leading(Some(successor)),
        () = state.settings.companion.background(node) => Left::Leading(None),
    };
    // From now on peers are sent elsewhere.
    *replica.leading.write() = None;
    if matches!(left, Left::Leading(_)) {
        service.end(false);
        let until = Instant::now() + DRAIN;
        while service.streams() > 0 && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }
    service.end(true);
    left
}

async fn service_of(state: &State, replica: &Replica, node: &Arc<Node>) -> Result<Service, String> {
    let (settings, groups) = (&state.settings, state.view.groups());
    if groups.numbered(replica.id).is_some_and(|group| group.recovered_from.is_some()) {
        renew_identity(node, groups.cluster, (settings.clock)());
    }
    let setting = Setting {
        credentials: settings.credentials.clone(),
        clock: settings.clock,
        configure: settings.companion.configure(node),
        sink: settings.sink.clone(),
        warn: settings.warn,
        directory: Some(state.directory.clone()),
    };
    let service = Service::with(node.clone(), setting).await.map_err(|error| error.to_string())?;
    let map = groups.slot_map().map_err(|error| error.to_string())?;
    let me = map.nodes().iter().position(|node| *node == replica.name).unwrap_or_default();
    let placed = service.take_place(map, me).and_then(|()| service.accept_renewed());
    placed.map_err(|error| error.to_string())?;
    Ok(service)
}

async fn until(leadership: &mut Leadership) -> Left {
    match leadership.lost().await {
        true => Left::Leading(None),
        false => Left::Deposed,
    }
}

/// Makes the members of the group those that the list of groups wants, until another replica is to lead: returns that.
async fn keep_members(state: &State, replica: &Replica) -> u64 {
    let (me, since, began_with) = (state.view.me, Instant::now(), state.view.groups().version);
    loop {
        sleep(COMPARE).await;
        let groups = state.view.groups();
        let Some(group) = groups.numbered(replica.id) else { continue };
        let (members, others) = (replica.handle.log.members(), replica.handle.followers());
        let is_lost = |id| groups.process(id).is_none_or(|process| process.state == ProcessState::Lost);
        match next_step(me, &group.replicas, is_lost, &members, &others) {
            Step::Change(change) => replica.handle.change_members(change),
            Step::HandOver(successor) => return successor,
            Step::Wait => {}
            Step::Settled => {
                if !group.former.is_empty() {
                    report_settled(state, group).await;
                }
                let first = others.iter().find(|other| group.replicas.first() == Some(&other.id));
                if let Some(first) = first
                    && first.has_caught_up
                    && first.is_active
                    && (since.elapsed() > SUBSTITUTE || groups.version > began_with)
                {
                    return first.id;
                }
            }
        }
    }
}

/// Reports that the group has the members that are wanted: data of former replicas can be deleted.
async fn report_settled(state: &State, group: &GroupInfo) {
    let here = state.meta.read().clone();
    // Reported again until the list of groups says so.
    if let Some(meta) = here {
        let settled = Change::Settled { group: group.id, replicas: group.replicas.clone() };
        let _ = meta.carry_out(&settled).await;
    } else {
        let settled = wire::Settled { group: group.id.0, replicas: group.replicas.clone() };
        let change = wire::change_request::Change::Settled(settled);
        let _ = members::change(&state.directory, &state.settings.credentials, change).await;
    }
}
