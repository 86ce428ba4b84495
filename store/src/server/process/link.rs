//! Messages of replicas to replicas in other processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::store::v1 as wire;
use proto::store::v1::store_client::StoreClient;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

use crate::client::PeerCredentials;
use crate::client::link::MESSAGE_BYTES;
use crate::client::way;
use crate::replication::{Driver, Founding, GroupId, Transport};

/// Messages to one process that were not sent yet: more are dropped, as a slow network would.
const MOST_WAITING: usize = 1024;
/// Frames that the network has not taken yet.
const MOST_FRAMES: usize = 8;
/// A frame is closed when it has so many bytes.
const FRAME_BYTES: usize = 4 << 20;
/// The pause between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);

/// A message on its way: the group, the replica that it is for, and its bytes.
type Message = (GroupId, u64, Bytes);

/// The ways to all other processes of the cluster.
pub struct ReplicaLinks {
    queues: BTreeMap<u64, mpsc::Sender<Message>>,
    /// Set when there is one: processes that cannot be reached are reported to it.
    driver: Arc<Mutex<Weak<Driver>>>,
}

impl ReplicaLinks {
    /// Opens a way to each other process, and keeps it open as long as this lives. Needs a runtime.
    pub fn open(founding: &Founding, credentials: &PeerCredentials) -> ReplicaLinks {
        let driver = Arc::<Mutex<Weak<Driver>>>::default();
        let others = founding.groups.processes.iter().filter(|(id, _)| *id != founding.process);
        let open = |(id, address): &(u64, String)| {
            let (queue, waiting) = mpsc::channel(MOST_WAITING);
            let way = Way {
                process: *id,
                address: address.clone(),
                cluster: founding.groups.cluster,
                credentials: credentials.clone(),
                groups: founding.groups.groups.iter().map(|group| group.id).collect(),
                driver: driver.clone(),
            };
            tokio::spawn(way.keep_open(waiting));
            (*id, queue)
        };
        ReplicaLinks { queues: others.map(open).collect(), driver }
    }

    /// Reports processes that cannot be reached to this driver.
    pub fn report_to(&self, driver: &Arc<Driver>) {
        *self.driver.lock() = Arc::downgrade(driver);
    }
}

impl Transport for ReplicaLinks {
    fn send(&self, group: GroupId, _: u64, to: u64, message: Bytes) {
        if let Some(queue) = self.queues.get(&to) {
            // Raft sends again what is lost.
            let _ = queue.try_send((group, to, message));
        }
    }
}

/// The way to one process.
struct Way {
    process: u64,
    address: String,
    cluster: u64,
    credentials: PeerCredentials,
    groups: Vec<GroupId>,
    driver: Arc<Mutex<Weak<Driver>>>,
}

impl Way {
    async fn keep_open(self, mut waiting: mpsc::Receiver<Message>) {
        while !waiting.is_closed() {
            self.run(&mut waiting).await;
            if let Some(driver) = self.driver.lock().upgrade() {
                self.groups.iter().for_each(|group| driver.unreachable(*group, self.process));
            }
            // What waited is out of date.
            while waiting.try_recv().is_ok() {}
            sleep(AGAIN).await;
        }
    }

    /// One stream, until it breaks or no message comes any more.
    async fn run(&self, waiting: &mut mpsc::Receiver<Message>) {
        let Ok(channel) = way::connect(&self.address, self.credentials.tls.as_ref()).await else { return };
        let mut client = StoreClient::new(channel).max_encoding_message_size(MESSAGE_BYTES);
        let (frames, outgoing) = mpsc::channel(MOST_FRAMES);
        let token = self.credentials.token.clone().unwrap_or_default();
        let first = wire::ReplicaMessages { token, cluster: self.cluster, messages: Vec::new() };
        if frames.send(first).await.is_err() {
            return;
        }
        let call = client.replicate(ReceiverStream::new(outgoing));
        let feed = async {
            while let Some(message) = waiting.recv().await {
                let mut bytes = message.2.len();
                let mut messages = vec![message];
                while bytes < FRAME_BYTES
                    && let Ok(message) = waiting.try_recv()
                {
                    bytes += message.2.len();
                    messages.push(message);
                }
                let message =
                    |(group, to, message): Message| wire::ReplicaMessage { group: group.0, to, message };
                let messages = messages.into_iter().map(message).collect();
                let frame = wire::ReplicaMessages { token: String::new(), cluster: 0, messages };
                if frames.send(frame).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            // It ends when it is refused or broken.
            _ = call => {}
            () = feed => {}
        }
    }
}
