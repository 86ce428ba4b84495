//! What a process knows of its cluster, which others may know better.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::store::v1 as wire;
use tokio::sync::watch;

use crate::replication::{Founding, Groups};

/// A process has lost its data if it has said for this long that it belongs to no cluster. One that is just being founded, or
/// that has just joined and starts its replicas, says so for a moment, too.
const SURE: Duration = Duration::from_secs(3);
/// Processes are asked more often than this.
const RECENTLY: Duration = Duration::from_secs(2);

/// What a process knows of its cluster.
pub(super) struct ClusterView {
    /// Which of the processes it is.
    pub me: u64,
    /// The cluster.
    pub cluster: u64,
    /// Where its machine is.
    pub zone: String,
    /// Where the machines of the others are, as they say themselves.
    zones: Mutex<BTreeMap<u64, String>>,
    /// The list of groups that is on its disk.
    groups: watch::Sender<Arc<Groups>>,
    /// The newest list that it has heard of.
    offered: watch::Sender<Arc<Groups>>,
    /// Processes that say that they belong to no cluster: since when, and until when.
    without_data: Mutex<BTreeMap<u64, (Instant, Instant)>>,
}

impl ClusterView {
    pub fn new(founding: Founding, zone: String) -> ClusterView {
        let groups = Arc::new(founding.groups);
        ClusterView {
            me: founding.process,
            zones: Mutex::new(BTreeMap::from([(founding.process, zone.clone())])),
            zone,
            cluster: groups.cluster,
            offered: watch::Sender::new(groups.clone()),
            groups: watch::Sender::new(groups),
            without_data: Mutex::default(),
        }
    }

    /// The list of groups.
    pub fn groups(&self) -> Arc<Groups> {
        self.groups.borrow().clone()
    }

    /// The list of groups, now and when it changes.
    pub fn follow(&self) -> watch::Receiver<Arc<Groups>> {
        self.groups.subscribe()
    }

    /// Another process knows this list of groups. One that is none, or of another cluster, is not believed.
    pub fn hear(&self, groups: &wire::Groups) {
        let may_be_news = {
            let known = self.offered.borrow();
            groups.version > known.version || groups.cluster != known.cluster
        };
        if may_be_news && let Ok(groups) = Groups::from_wire(groups) {
            self.offer(groups);
        }
    }

    /// This list is to be taken, if it is newer.
    pub fn offer(&self, groups: Groups) {
        self.offered.send_if_modified(|known| {
            let is_newer = groups.replaces(known);
            if is_newer {
                *known = Arc::new(groups);
            }
            is_newer
        });
    }

    /// The newest list that there is, now and when there is a newer one.
    pub fn offers(&self) -> watch::Receiver<Arc<Groups>> {
        self.offered.subscribe()
    }

    /// The list is on disk.
    pub fn take(&self, groups: Arc<Groups>) {
        self.groups.send_replace(groups);
    }

    /// A process says where its machine is.
    pub fn note_zone(&self, process: u64, zone: String) {
        self.zones.lock().insert(process, zone);
    }

    /// The processes that are in another zone than the list says, with that zone.
    pub fn moved_zones(&self, groups: &Groups) -> Vec<(u64, String)> {
        let zones = self.zones.lock();
        let is_news =
            |(id, zone): &(&u64, &String)| groups.process(**id).is_some_and(|process| process.zone != **zone);
        zones.iter().filter(is_news).map(|(id, zone)| (*id, zone.clone())).collect()
    }

    /// A process says that it belongs to no cluster.
    pub fn note_without_data(&self, process: u64) {
        let mut without_data = self.without_data.lock();
        without_data.retain(|_, (_, last)| last.elapsed() < RECENTLY);
        let now = Instant::now();
        without_data.entry(process).or_insert((now, now)).1 = now;
    }

    /// The processes that say so.
    pub fn without_data(&self) -> Vec<u64> {
        let without_data = self.without_data.lock();
        let says_so = |(first, last): &(Instant, Instant)| last.elapsed() < RECENTLY && *last - *first > SURE;
        without_data.iter().filter(|(_, said)| says_so(said)).map(|(process, _)| *process).collect()
    }
}
