//! How the replicas of a process become those that the list of groups wants.

use std::fs;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::settings::{LOG, dir_name, group_dir, replicas_dir};
use super::state::{Replica, State};
use super::{copy, replica};
use crate::replication::{DriverError, Founding, GroupInfo, Groups};

impl State {
    /// Takes part in a group that begins with these `voters`; or joins it if there are none.
    pub fn begin(self: &Arc<Self>, group: &GroupInfo, voters: &[u64]) -> Result<(), DriverError> {
        let handle = self.driver.add(group.id, self.view.me, voters)?;
        let (ends, ended) = watch::channel(());
        let replica = Arc::new(Replica {
            id: group.id,
            name: group.name.clone(),
            handle,
            node: RwLock::default(),
            leading: RwLock::default(),
            stop: watch::Sender::new(*self.stop.borrow()),
            ended,
        });
        self.replicas.write().insert(group.id, replica.clone());
        let state = self.clone();
        self.tasks.lock().spawn(async move {
            replica::take_part(state, replica).await;
            drop(ends);
        });
        Ok(())
    }

    /// Follows the list of groups as it changes, until the process ends.
    pub fn follow_changes(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let (mut offers, mut stop) = (self.view.offers(), self.stop.subscribe());
        async move {
            loop {
                let groups = offers.borrow_and_update().clone();
                if groups.replaces(&self.view.groups()) {
                    self.adopt(groups).await;
                }
                tokio::select! {
                    // Their senders live as long as this.
                    _ = offers.changed() => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
            }
        }
    }

    /// Makes a newer list of groups the one of this process.
    async fn adopt(self: &Arc<Self>, groups: Arc<Groups>) {
        let (me, known) = (self.view.me, self.view.groups());
        let (was_one, is_one) = (known.process(me).is_some(), groups.process(me).is_some());
        let is_recovered = groups.cluster != known.cluster;
        let founding =
            Founding { groups: (*groups).clone(), process: me, is_recovering: is_recovered && is_one };
        if !self.driver.save(founding.to_record()).await {
            return;
        }
        if founding.is_recovering {
            self.recovered.send_replace(true);
            return;
        }
        self.view.take(groups.clone());
        // It is of the same cluster.
        let _ = self.directory.learn(&groups.to_wire());
        self.links.open(&groups);
        if is_recovered {
            return self.retire().await;
        }
        if was_one && !is_one {
            (self.settings.warn)(
                "this process does not belong to its cluster any more, and can be stopped: with an empty data-dir it can join \
                 again",
            );
        }
        let is_mine = |id| groups.numbered(id).is_some_and(|group| group.is_on(me));
        let gone: Vec<Arc<Replica>> =
            self.replicas.read().values().filter(|replica| !is_mine(replica.id)).cloned().collect();
        for replica in gone {
            self.delete(&replica).await;
        }
        for group in groups.all().filter(|group| group.replicas.contains(&me)) {
            if self.replicas.read().contains_key(&group.id) {
                continue;
            }
            let (state, of) = (self.clone(), group.clone());
            let begun = spawn_blocking(move || state.begin(&of, &[])).await;
            if let Ok(Err(error)) = begun {
                (self.settings.warn)(&format!("the group {} gets no replica here: {error}", group.name));
            }
        }
    }

    /// Ends a replica that the group does not have any more, and deletes its data.
    async fn delete(&self, replica: &Replica) {
        self.end_replica(replica).await;
        if !self.driver.forget(replica.id).await {
            return;
        }
        let dir = group_dir(&self.settings.dir, replica.id);
        let deleted = spawn_blocking(move || copy::delete(&dir)).await;
        if let Ok(Err(error)) = deleted {
            (self.settings.warn)(&format!("the data of the group {} is left: {error}", replica.name));
        }
    }

    pub(super) async fn end_replica(&self, replica: &Replica) {
        replica.stop.send_replace(true);
        let _ = replica.ended.clone().changed().await;
        self.replicas.write().remove(&replica.id);
    }

    /// Deletes the data of replicas that a process did not come to delete.
    pub fn delete_former_replicas(&self) {
        let groups = self.view.groups();
        let mine = groups.all().filter(|group| group.is_on(self.view.me));
        let mine: Vec<String> = mine.map(|group| dir_name(group.id)).collect();
        // The directory of the logs is there.
        for entry in fs::read_dir(replicas_dir(&self.settings.dir)).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if name != LOG
                && !mine.iter().any(|mine| mine == name)
                && let Err(error) = fs::remove_dir_all(&path)
            {
                (self.settings.warn)(&format!("the data of the group {name} is left: {error}"));
            }
        }
    }

    /// Hands over what this process leads, and ends all replicas.
    pub async fn end(&self) {
        self.stop.send_replace(true);
        self.replicas.read().values().for_each(|replica| _ = replica.stop.send_replace(true));
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}
