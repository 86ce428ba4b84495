//! Messages of replicas to replicas in other processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use proto::store::v1 as wire;
use proto::store::v1::store_client::StoreClient;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::view::ClusterView;
use crate::client::PeerCredentials;
use crate::client::silence::{Direction, Signs};
use crate::client::way;
use crate::parts::MESSAGE_BYTES;
use crate::replication::{Driver, GroupId, Groups, ProcessInfo, Transport};

/// Messages to one process that were not sent yet: more are dropped, as a slow network would.
const MOST_WAITING: usize = 1024;
/// Frames that the network has not taken yet.
const MOST_FRAMES: usize = 8;
/// A frame is closed when it has so many bytes.
const FRAME_BYTES: usize = 4 << 20;
/// The pause between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);
/// The same after a refusal.
const REFUSED: Duration = Duration::from_millis(500);

/// A message on its way: the group, the replica that it is for, and its bytes.
type Message = (GroupId, u64, Bytes);

/// The ways to all other processes of the cluster.
pub struct ReplicaLinks {
    queues: RwLock<BTreeMap<u64, mpsc::Sender<Message>>>,
    view: Arc<ClusterView>,
    credentials: PeerCredentials,
    /// Set when there is one: processes that cannot be reached are reported to it.
    driver: Arc<Mutex<Weak<Driver>>>,
}

impl ReplicaLinks {
    /// Without any way.
    pub fn new(view: Arc<ClusterView>, credentials: PeerCredentials) -> ReplicaLinks {
        ReplicaLinks { queues: RwLock::default(), view, credentials, driver: Arc::default() }
    }

    /// Opens a way to each other process of this list, which is kept open until a list does not have the process any more. Needs a
    /// runtime.
    pub fn open(&self, groups: &Groups) {
        let me = self.view.me;
        // One that does not belong to the cluster any more has nothing to say to the others.
        let is_one = groups.process(me).is_some();
        let is_there = |process: &&ProcessInfo| is_one && process.id != me;
        let mut queues = self.queues.write();
        queues.retain(|id, _| groups.process(*id).as_ref().is_some_and(is_there));
        for process in groups.processes.iter().filter(is_there) {
            queues.entry(process.id).or_insert_with(|| {
                let (queue, waiting) = mpsc::channel(MOST_WAITING);
                let way = Way {
                    process: process.id,
                    address: process.address.clone(),
                    view: self.view.clone(),
                    credentials: self.credentials.clone(),
                    driver: self.driver.clone(),
                };
                tokio::spawn(way.keep_open(waiting));
                queue
            });
        }
    }

    /// Reports processes that cannot be reached to this driver.
    pub fn report_to(&self, driver: &Arc<Driver>) {
        *self.driver.lock() = Arc::downgrade(driver);
    }
}

impl Transport for ReplicaLinks {
    fn send(&self, group: GroupId, _: u64, to: u64, message: Bytes) {
        if let Some(queue) = self.queues.read().get(&to) {
            // Raft sends again what is lost.
            let _ = queue.try_send((group, to, message));
        }
    }
}

/// The way to one process.
struct Way {
    process: u64,
    address: String,
    view: Arc<ClusterView>,
    credentials: PeerCredentials,
    driver: Arc<Mutex<Weak<Driver>>>,
}

impl Way {
    async fn keep_open(self, mut waiting: mpsc::Receiver<Message>) {
        while !waiting.is_closed() {
            let mut pause = AGAIN;
            if let Some(refusal) = self.run(&mut waiting).await {
                if refusal.code() == Code::NotFound {
                    self.view.note_without_data(self.process);
                    pause = REFUSED;
                }
                if let Some(groups) = way::groups_of(&refusal) {
                    self.view.hear(&groups);
                    pause = REFUSED;
                }
            }
            if let Some(driver) = self.driver.lock().upgrade() {
                driver.unreachable(self.process);
            }
            // What waited is out of date.
            while waiting.try_recv().is_ok() {}
            sleep(pause).await;
        }
    }

    /// One stream, until it breaks, takes nothing any more, or no message comes any more; what the other process has against it.
    async fn run(&self, waiting: &mut mpsc::Receiver<Message>) -> Option<Status> {
        let signs = Signs::default();
        let tls = self.credentials.tls.as_ref();
        let channel = way::connect_counted(&self.address, tls, &signs).await.ok()?;
        let mut client = StoreClient::new(channel).max_encoding_message_size(MESSAGE_BYTES);
        let (frames, outgoing) = mpsc::channel(MOST_FRAMES);
        let mut groups = self.view.follow();
        let first = wire::ReplicaMessages {
            token: self.credentials.token.clone().unwrap_or_default(),
            cluster: self.view.cluster,
            from: self.view.me,
            zone: self.view.zone.clone(),
            messages: Vec::new(),
            groups: Some(groups.borrow_and_update().to_wire()),
        };
        frames.send(first).await.ok()?;
        let call = client.replicate(ReceiverStream::new(outgoing));
        let feed = async {
            loop {
                let frame = tokio::select! {
                    message = waiting.recv() => match message {
                        Some(message) => frame_of(message, waiting),
                        None => return,
                    },
                    // Its sender lives as long as this.
                    Ok(()) = groups.changed() => wire::ReplicaMessages {
                        groups: Some(groups.borrow_and_update().to_wire()),
                        ..wire::ReplicaMessages::default()
                    },
                };
                // Whatever became of the stream: one that takes nothing for seconds is of no use.
                let taken = signs.unless_silent(Direction::Out, frames.send(frame), || ()).await;
                if !matches!(taken, Some(Ok(()))) {
                    return;
                }
            }
        };
        tokio::select! {
            // It ends when it is refused or broken.
            ended = call => ended.err(),
            () = feed => None,
        }
    }
}

/// A frame with this message and others that wait.
fn frame_of(first: Message, waiting: &mut mpsc::Receiver<Message>) -> wire::ReplicaMessages {
    let mut bytes = first.2.len();
    let mut messages = vec![first];
    while bytes < FRAME_BYTES
        && let Ok(message) = waiting.try_recv()
    {
        bytes += message.2.len();
        messages.push(message);
    }
    let message = |(group, to, message): Message| wire::ReplicaMessage { group: group.0, to, message };
    let messages = messages.into_iter().map(message).collect();
    wire::ReplicaMessages { messages, ..wire::ReplicaMessages::default() }
}
