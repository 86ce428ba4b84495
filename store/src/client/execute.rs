//! Commands that are no part of a transaction, over nodes in other processes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use proto::store::v1 as wire;
use store_engine::spec::flags;
use store_engine::{CommandError, Partitions, Protocol, Reply, Routing};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::backoff::Backoff;
use super::cluster::{Cluster, lost_error, unexpected, wire_call};
use super::error::TransactionError;
use super::link::{Link, Pending};
use super::merge::{self, ScanProgress};
use super::transaction::{DistributedTransaction, WatchId};
use crate::call::{self, Call};
use crate::lock::{LockRequest, Mode};
use crate::parts;
use crate::topology::{NodeId, SlotMap};
use crate::txn::Conflict;

/// How often a transaction of one command is begun anew with more locks.
const MAX_ATTEMPTS: usize = 4;

impl SlotMap {
    /// The only node that a call concerns, which then is all that has to be asked.
    pub fn only_node(&self, call: &Call<'_>) -> Option<NodeId> {
        match call.command.routing.of(call.args) {
            Routing::ByKey => self.owner_of_all(call.keys().map(|(key, _)| key)),
            _ => None,
        }
    }
}

impl Cluster {
    /// The same, as far as is known.
    fn only_node(&self, call: &Call<'_>) -> Option<NodeId> {
        self.map().only_node(call)
    }

    /// Runs a call as a transaction of its own. Whether its reply is no error. Calls of one `sequence` to one node are run in
    /// their order.
    pub async fn execute(
        self: &Arc<Self>,
        call: &Call<'_>,
        sequence: u64,
        seed: &mut u64,
        out: &mut Reply,
    ) -> bool {
        let start = out.buf.len();
        match call.command.routing.of(call.args) {
            Routing::Anywhere => {
                let nothing = Partitions::Some { held: Vec::new(), total: 1 };
                return call::run(call, nothing, seed, None, None, out);
            }
            Routing::ByKey if self.only_node(call).is_some() => {
                self.execute_on_one(call, sequence, out).await
            }
            Routing::Paged => self.execute_page(call, sequence, out).await,
            _ => self.execute_alone(call, seed, out).await,
        }
        out.buf.get(start) != Some(&b'-')
    }

    /// Runs calls of which nobody reads more than errors, each as a transaction of its own: at the same time, but those of one
    /// node in their order, and one that needs several nodes after those before it and before those behind it. The
    /// numbers of those that failed, with their replies.
    pub async fn execute_all(
        self: &Arc<Self>,
        calls: &[Call<'_>],
        sequence: u64,
        seed: &mut u64,
    ) -> Vec<(usize, Vec<u8>)> {
        let (mut sent, mut failed) = (Vec::new(), Vec::new());
        // By one map, so that none overtakes another on the way to where their slot is now.
        let mut map = self.map();
        // Of each node the first one that is on its way.
        let mut first: HashMap<NodeId, u64> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            let pending = map.only_node(call).map(|node| {
                let since = first.get(&node).copied().unwrap_or_default();
                let pending = self.send(node, call, Protocol::Resp2, sequence, since);
                // Unless it was not even sent.
                if pending.id() > 0 {
                    first.entry(node).or_insert(pending.id());
                }
                pending
            });
            let goes_on = pending.is_some() && at + 1 < calls.len();
            sent.push((at, pending));
            if goes_on {
                continue;
            }
            first.clear();
            for (at, pending) in sent.drain(..) {
                let (call, mut out) = (&calls[at], Reply::new(Protocol::Resp2));
                let received = match pending {
                    Some(pending) => self.received(pending, call.command.is_write()).await,
                    None => None,
                };
                match received {
                    Some(Ok(reply)) if reply.first() != Some(&b'-') => continue,
                    Some(Ok(reply)) => out.buf.extend_from_slice(&reply),
                    Some(Err(error)) => out.error(&error),
                    // It needs several nodes, or has to be sent again.
                    None if self.execute(call, sequence, seed, &mut out).await => continue,
                    None => {}
                }
                failed.push((at, out.buf));
            }
            map = self.map();
        }
        failed
    }

    async fn execute_on_one(self: &Arc<Self>, call: &Call<'_>, sequence: u64, out: &mut Reply) {
        let mut backoff = Backoff::default();
        loop {
            // They may be several nodes' by now.
            let Some(node) = self.only_node(call) else {
                return Box::pin(self.execute_alone(call, &mut 0, out)).await;
            };
            let pending = self.send(node, call, out.protocol, sequence, 0);
            match self.received(pending, call.command.is_write()).await {
                Some(Ok(reply)) => return parts::relay(reply, out),
                Some(Err(error)) => return out.error(&error),
                None => {}
            }
            if let Err(error) = backoff.again().await {
                return out.error(&error);
            }
        }
    }

    /// A step of SCAN.
    async fn execute_page(self: &Arc<Self>, call: &Call<'_>, sequence: u64, out: &mut Reply) {
        // Read first: a map that changes in this moment ends the scan with another digest.
        let digest = self.map_digest();
        let mut scan = merge::Scan::new(call, self.map().owners(), digest);
        loop {
            let (node, args) = scan.next();
            let page_call = Call { args: store_engine::Args::new(&args), ..*call };
            let pending = self.send(node, &page_call, out.protocol, sequence, 0);
            match self.received(pending, false).await {
                Some(Ok(reply)) => match scan.take(&reply, out) {
                    ScanProgress::More => {}
                    ScanProgress::Over => return,
                    ScanProgress::Through => match self.newest_map().await {
                        Ok(digest) => return scan.finish(digest, out),
                        Err(error) => return out.error(&error),
                    },
                },
                Some(Err(error)) => return out.error(&error),
                None => return out.error(&unexpected()),
            }
        }
    }

    /// The digest of the map with all that nodes with slots know.
    async fn newest_map(self: &Arc<Self>) -> Result<u64, CommandError> {
        let (map_digest, invalidations) = (self.map_digest(), self.invalidations_enabled());
        let ask = |link: &Arc<Link>| link.ask(Ask::Heartbeat(wire::Heartbeat { map_digest, invalidations }));
        let pending: Vec<_> = self.owners().iter().map(ask).collect();
        for answer in pending {
            // The map in it is learnt before the answer arrives here.
            match answer.answer().await {
                Ok(Answer::Status(_)) => {}
                Ok(_) => return Err(unexpected()),
                Err(lost) => return Err(lost_error(&lost, false)),
            }
        }
        Ok(self.map_digest())
    }

    /// A transaction of one call.
    async fn execute_alone(self: &Arc<Self>, call: &Call<'_>, seed: &mut u64, out: &mut Reply) {
        let everything = call.command.routing.of(call.args) != Routing::ByKey;
        let request = |(key, mode): (&[u8], Mode)| LockRequest { db: call.db, key: key.into(), mode };
        let mut requests: Vec<LockRequest> = match everything {
            true => Vec::new(),
            false => call.keys().map(request).collect(),
        };
        let mut everything = everything;
        let start = out.buf.len();
        for _ in 0..MAX_ATTEMPTS {
            let mut txn = DistributedTransaction::new(self, requests.clone(), everything, None, Vec::new());
            let done = match txn.begin().await {
                Ok(()) if txn.is_full() && call.command.has(flags::DENY_OOM) => {
                    return out.error(&crate::txn::FULL);
                }
                Ok(()) => txn.execute(call, Mode::Exclusive, seed, out).await,
                Err(error) => Err(error),
            };
            match done {
                Ok(_) => {
                    if let Err(error) = txn.commit().await {
                        out.truncate(start);
                        out.error(&match error {
                            TransactionError::Lost(error) | TransactionError::LeaderLost(error) => error,
                            _ => unexpected(),
                        });
                    }
                    return;
                }
                Err(TransactionError::Conflict(Conflict::Key(request))) => requests.push(request),
                Err(TransactionError::Conflict(Conflict::Everything)) => everything = true,
                // A single call has no limits of a transaction.
                Err(TransactionError::Conflict(Conflict::Limit(_))) => return out.error(&unexpected()),
                Err(TransactionError::Lost(error) | TransactionError::LeaderLost(error)) => {
                    return out.error(&error);
                }
                Err(
                    TransactionError::WatchBroken
                    | TransactionError::NotBatched
                    | TransactionError::BatchFailed,
                ) => break,
            }
            out.truncate(start);
        }
        out.error(&CommandError::new("TRYAGAIN nothing was done: the keys were locked by other clients"));
    }

    /// Remembers on its node whether this key changes.
    pub async fn watch(self: &Arc<Self>, db: usize, key: &[u8]) -> Result<WatchId, CommandError> {
        let mut backoff = Backoff::default();
        loop {
            let node = self.node_of(key);
            let link = self.link(node);
            let (stream, number) = (link.stream(), self.next_transaction());
            let lock = wire::Lock { db: db as u32, key: key.to_vec().into(), shared: true };
            match link.ask(Ask::Watch(wire::Watch { watch: number, keys: vec![lock] })).answer().await {
                Ok(Answer::Done(_)) => return Ok(WatchId { node, number, stream }),
                Ok(Answer::Refusal(refusal)) => self.refused(refusal).map_or(Ok(()), Err)?,
                Ok(_) => return Err(unexpected()),
                Err(lost) => return Err(lost_error(&lost, false)),
            }
            backoff.again().await?;
        }
    }

    /// Takes a watch back.
    pub fn unwatch(&self, watch: WatchId) {
        let link = self.link(watch.node);
        if link.stream() == watch.stream {
            link.send_oneway(Ask::Unwatch(wire::Unwatch { watch: watch.number }));
        }
    }

    /// Records of the catalog whose names begin with `prefix`, without which they are given.
    pub async fn records(self: &Arc<Self>, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, CommandError> {
        let page_call = Ask::ReadRecords(wire::ReadRecords { prefix: prefix.to_vec().into() });
        match self.ask_catalog(page_call, false).await? {
            Answer::Records(records) => {
                Ok(records.records.into_iter().map(|record| (record.name, record.content)).collect())
            }
            _ => Err(unexpected()),
        }
    }

    /// Keeps records of the catalog and forgets those in `gone`; with `replace` all others with the prefix.
    pub async fn write_records(
        self: &Arc<Self>,
        prefix: &[u8],
        records: Vec<(Vec<u8>, Vec<u8>)>,
        gone: Vec<Vec<u8>>,
        replace: bool,
    ) -> Result<(), CommandError> {
        let record =
            |(name, content): (Vec<u8>, Vec<u8>)| wire::Record { name: name.into(), content: content.into() };
        let write = wire::WriteRecords {
            prefix: prefix.to_vec().into(),
            records: records.into_iter().map(record).collect(),
            gone: gone.into_iter().map(Bytes::from).collect(),
            replace,
        };
        match self.ask_catalog(Ask::WriteRecords(Box::new(write)), true).await? {
            Answer::Done(_) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Asks the node that keeps the catalog: the one that has slot 0.
    async fn ask_catalog(self: &Arc<Self>, ask: Ask, writes: bool) -> Result<Answer, CommandError> {
        let mut backoff = Backoff::default();
        loop {
            let home = self.link(self.map().owner(0));
            match home.ask(ask.clone()).answer().await {
                Ok(Answer::Refusal(refusal)) => self.refused(refusal).map_or(Ok(()), Err)?,
                Ok(answer) => return Ok(answer),
                Err(lost) => return Err(lost_error(&lost, writes)),
            }
            backoff.again().await?;
        }
    }

    /// Brings the data of all nodes to disk, with `checkpoint` into their checkpoints. Without it nodes that have no disk
    /// are an error.
    pub async fn save(self: &Arc<Self>, checkpoint: bool) -> Result<(), CommandError> {
        let links = self.owners();
        let pending: Vec<_> =
            links.iter().map(|link| link.ask(Ask::Save(wire::Save { checkpoint }))).collect();
        for answer in pending {
            match answer.answer().await {
                Ok(Answer::Done(_)) => {}
                Ok(Answer::Refusal(refusal)) if refusal.code() == Code::Invalid => {
                    return Err(CommandError::owned(refusal.reason));
                }
                Ok(Answer::Refusal(refusal)) => {
                    return Err(CommandError::owned(format!(
                        "MISCONF Errors writing to the journal: {}",
                        refusal.reason
                    )));
                }
                Ok(_) => return Err(unexpected()),
                Err(lost) => return Err(lost_error(&lost, true)),
            }
        }
        Ok(())
    }

    /// Changes parameters of all nodes, and with `reset_counts` begins to count anew what happens to keys.
    pub async fn configure(
        self: &Arc<Self>,
        settings: Vec<(String, String)>,
        reset_counts: bool,
    ) -> Result<(), CommandError> {
        if settings.is_empty() && !reset_counts {
            return Ok(());
        }
        let setting = |(name, value): (String, String)| wire::Setting { name, value };
        let settings: Vec<_> = settings.into_iter().map(setting).collect();
        let configure = wire::Configure { settings, reset_counts };
        let ask = |link: &Arc<Link>| link.ask(Ask::Configure(configure.clone()));
        // Those without slots are notified too, and need not be there.
        let (owners, all) = (self.map().owners(), self.links());
        let pending: Vec<_> =
            all.iter().enumerate().map(|(node, link)| (ask(link), owners.contains(&node))).collect();
        for (answer, is_owner) in pending {
            match answer.answer().await {
                Ok(Answer::Status(_)) => {}
                Err(_) if !is_owner => {}
                Ok(Answer::Refusal(refusal)) => return Err(self.refused(refusal).unwrap_or_else(unexpected)),
                Ok(_) => return Err(unexpected()),
                Err(lost) => return Err(lost_error(&lost, true)),
            }
        }
        Ok(())
    }

    /// Lets a blocking call wait on the nodes of its keys. With all on one node it is served there; otherwise it is
    /// told when something may have come.
    pub fn wait(&self, call: &Call<'_>, protocol: Protocol) -> Waits {
        let map = self.map();
        let nodes = match self.only_node(call) {
            Some(node) => vec![node],
            None => {
                let mut nodes: Vec<NodeId> = call.keys().map(|(key, _)| self.node_of(key)).collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        };
        let notify_only = nodes.len() > 1;
        let ask = |node: NodeId| {
            let link = self.link(node);
            let wait = wire::ExecuteBlocking { call: Some(wire_call(call, protocol)), notify_only };
            let pending = link.ask(Ask::ExecuteBlocking(wait));
            (link, pending)
        };
        let (links, pending): (Vec<_>, Vec<_>) = nodes.into_iter().map(ask).unzip();
        let numbers = links.into_iter().zip(&pending).map(|(link, pending)| (link, pending.id())).collect();
        Waits { notify_only, map, pending, cancel: Cancel { numbers } }
    }
}

/// A blocking call that waits.
pub struct Waits {
    /// It has to try for itself when it is notified.
    pub notify_only: bool,
    /// The map by which the nodes were chosen.
    pub map: Arc<SlotMap>,
    pending: Vec<Pending>,
    cancel: Cancel,
}

/// Ends the waiting, at the latest when it is dropped.
pub struct Cancel {
    numbers: Vec<(Arc<Link>, u64)>,
}

impl Cancel {
    /// The reply then comes soon: what was served last, or a null.
    pub fn cancel(&self) {
        for (link, id) in &self.numbers {
            link.send_oneway(Ask::Cancel(wire::Cancel { id: *id }));
        }
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Waits {
    /// The reply, or an empty one from the first node that says that something may have come; none if it has to wait
    /// elsewhere, as slots have moved. And what gives up waiting for it.
    pub fn reply(
        self,
        cluster: &Arc<Cluster>,
    ) -> (impl Future<Output = Result<Option<Bytes>, CommandError>> + Send + use<>, Cancel) {
        let mut pending: Vec<_> =
            self.pending.into_iter().map(|pending| Box::pin(pending.answer())).collect();
        let cluster = cluster.clone();
        let first = poll_fn(move |context| {
            let ready = pending.iter_mut().find_map(|answer| match answer.as_mut().poll(context) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        let reply = async move {
            match first.await {
                Ok(Answer::Reply(reply)) => Ok(Some(reply)),
                Ok(Answer::Refusal(refusal)) => cluster.refused(refusal).map_or(Ok(None), Err),
                Ok(_) => Err(unexpected()),
                Err(lost) => Err(lost_error(&lost, true)),
            }
        };
        (reply, self.cancel)
    }
}
