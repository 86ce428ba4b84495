//! Keyspace events of a node that leads a group: they are sent when the group has committed what they tell of. A lost leader
//! would announce what never was.

use std::sync::{Arc, Weak};

use store_engine::notifications::Notification;
use tokio::sync::mpsc;

use super::host::Host;

/// Sends the events of the node to all gateways.
pub(super) fn send_events_of(host: &Arc<Host>) {
    let weak = Arc::downgrade(host);
    if host.node.journal().is_some_and(|journal| journal.group().is_some()) {
        let (events, published) = mpsc::unbounded_channel();
        tokio::spawn(send_when_committed(weak, published));
        // The receiver is gone when the node leads no more.
        host.node.set_audience(Box::new(move |classes, all| drop(events.send((classes, all)))));
    } else {
        host.node.set_audience(Box::new(move |classes, all| {
            if let Some(host) = weak.upgrade() {
                host.sessions.send_events(classes, all);
            }
        }));
    }
}

async fn send_when_committed(
    host: Weak<Host>,
    mut published: mpsc::UnboundedReceiver<(u32, Vec<Notification>)>,
) {
    while let Some(first) = published.recv().await {
        let mut batch = vec![first];
        while let Ok(next) = published.try_recv() {
            batch.push(next);
        }
        let Some(host) = host.upgrade() else { return };
        // Events of a shard are published before the shard is unlocked, and its journal has the change by then.
        (0..host.node.shards()).for_each(|shard| drop(host.node.shard(shard).lock()));
        if host.node.settle().await.is_err() {
            return;
        }
        for (classes, events) in batch {
            host.sessions.send_events(classes, events);
        }
    }
}
