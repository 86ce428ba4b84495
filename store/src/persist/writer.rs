//! The writer: one thread per node that owns the disk.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use store_engine::codec::put_bytes;
use store_engine::effect::{CATALOG, Effects, EntryMeta};
use store_engine::{Entry, Stamp, Value};

use crate::journal::checkpoint::{CheckpointBatch, Checkpointer};
use crate::journal::dirty::{DirtySet, Name, What};
use crate::journal::state::{Chunk, Sweep, WriterState, note};
use crate::journal::{
    Copying, Disk, DiskError, Drained, Failure, Journal, LARGE_RECORD_BYTES, Open, WriterRequest, fail_point,
    record, unix_ms,
};
use crate::lock::{LockRequest, Mode};
use crate::node::Node;
use crate::shard::{Guards, ShardState};
use crate::txn::LocalTransaction;

/// How long a change may be in memory only: a flush must fit into what is left of the promised second.
const CYCLE: Duration = Duration::from_millis(400);
/// Copies of the disk that are made at the same time: more than a group has replicas.
const MOST_COPIES: usize = 8;
/// The pause between two slices of a copy of the disk.
const COPY_PAUSE: Duration = Duration::from_millis(5);
/// How long the writer waits before it tries a disk again that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Journal records are put together up to this size. As many as are in a full leaf just fit into a slot of the database.
const CHUNK_BYTES: usize = 16 << 10;
/// While the journal is shorter than this, and than a quarter of the data, nothing is folded: keys that change often are
/// then folded seldom, and many that are neighbours on the disk at once. A longer one costs less time and more room.
const JOURNAL_BYTES: u64 = 32 << 20;
/// How many times longer the journal may become before clients that write wait.
const JOURNAL_SLACK: u64 = 2;
/// What a round folds at first; then as much as fits into [`CHECKPOINT_TIME`].
const CHECKPOINT_BYTES: usize = 1 << 20;
/// The most that a round folds.
const MAX_CHECKPOINT_BYTES: usize = 16 << 20;
/// How long a round may take because it folds: what came to the journal meanwhile waits for the next one.
const CHECKPOINT_TIME: Duration = Duration::from_millis(150);
/// How much of a large string is copied while its shard is locked: some 50 us.
const SLICE_BYTES: usize = 256 << 10;
/// A string of so many slices is large.
const MANY_SLICES: usize = 4;
/// Memory that is kept for what comes to the journal in a round.
const SPARE_BYTES: usize = 16 << 20;
/// Keys in use whose locks the writer waits for at the same time. A transaction may hold all keys, and for long: the others
/// are tried again in the next round.
pub(super) const MOST_AWAITED: usize = 64;
/// Records that a round looks at, at most, to sweep.
const SWEEP_RECORDS: usize = 20_000;

type Granting = Pin<Box<dyn Future<Output = Box<LocalTransaction>> + Send>>;

/// Takes records from the journal to the disk and folds changed keys.
pub struct Writer {
    node: Arc<Node>,
    disk: Option<Box<dyn Disk>>,
    open: Open,
    pub(super) dirty: DirtySet,
    pub(super) checkpoint: Checkpointer,
    chunks: VecDeque<Chunk>,
    /// Number of the newest record that [`Self::dirty`] knows of.
    noted: u64,
    batch: CheckpointBatch,
    /// What was taken and is not in the batch yet, and the number of the last record that is.
    taken: Vec<Arc<Drained>>,
    packed: u64,
    sweeps: VecDeque<Sweep>,
    /// Keys that are in use: the writer waits in their queues.
    pub(super) granting: Vec<(Vec<Name>, Granting)>,
    /// While the journal is shorter, nothing is folded ...
    pub(super) journal_bytes: u64,
    /// ... and while it is shorter than a quarter of the data, as many times.
    pub(super) data_share: u64,
    /// [`SLICE_BYTES`], unless a test has another number.
    pub(super) slice_bytes: usize,
    /// [`CYCLE`], unless a test has another time.
    cycle: Duration,
    checkpointed_at: Instant,
    /// What a round folds at most.
    pub(super) checkpoint_bytes: usize,
    waker: Waker,
    spare: Vec<u8>,
    /// Copies of the disk that are being made.
    copies: Vec<Copying>,
}

struct WakeWriter(Arc<Node>);

impl Wake for WakeWriter {
    fn wake(self: Arc<Self>) {
        if let Some(journal) = &self.0.journal {
            journal.ask(WriterRequest::Flush);
        }
    }
}

impl Writer {
    /// A writer that goes on from what was loaded.
    pub(super) fn new(node: Arc<Node>, disk: Box<dyn Disk>, open: Open, state: WriterState) -> Writer {
        let waker = Waker::from(Arc::new(WakeWriter(node.clone())));
        let WriterState { dirty, checkpoint, chunks, sweeps, newest } = state;
        Writer {
            node,
            disk: Some(disk),
            open,
            dirty,
            checkpoint,
            chunks,
            noted: newest,
            batch: CheckpointBatch::default(),
            taken: Vec::new(),
            packed: newest,
            sweeps,
            granting: Vec::new(),
            journal_bytes: fail_point::number("journal-bytes").unwrap_or(JOURNAL_BYTES),
            data_share: u64::from(fail_point::number("journal-bytes").is_none()),
            slice_bytes: SLICE_BYTES,
            cycle: fail_point::time("round-ms", CYCLE),
            checkpointed_at: Instant::now(),
            checkpoint_bytes: fail_point::number("fold-bytes")
                .map_or(CHECKPOINT_BYTES, |bytes| bytes as usize),
            waker,
            spare: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// Works until the journal is closed.
    pub(super) fn run(mut self) {
        let (mut checkpoint, mut written) = (None, 0);
        let mut next_cycle = Instant::now();
        loop {
            // Then clients wait for the writer.
            let behind = self.journal_is_long(JOURNAL_SLACK);
            let timeout = match self.disk {
                None => RETRY,
                Some(_) if (checkpoint.is_some() || behind) && written > 0 => Duration::ZERO,
                // What is left is in use.
                Some(_) if checkpoint.is_some() => self.cycle / 10,
                Some(_) => self.cycle,
            };
            let pause = if self.copies.is_empty() { timeout } else { timeout.min(COPY_PAUSE) };
            let request = journal_of(&self.node).sleep(pause);
            if request == WriterRequest::Abandon {
                return;
            }
            if request == WriterRequest::None && !self.copies.is_empty() && Instant::now() < next_cycle {
                if let Err(error) = self.copy_on() {
                    self.give_up(&error);
                }
                continue;
            }
            if request == WriterRequest::Checkpoint {
                checkpoint = Some(journal_of(&self.node).newest());
                journal_of(&self.node).report(|progress| progress.saving = true);
            }
            let began = Instant::now();
            written = self.cycle(checkpoint.is_some());
            self.pace(began.elapsed());
            if written > 0 {
                journal_of(&self.node).pace().cycles.add(began.elapsed());
            }
            next_cycle = Instant::now() + self.cycle;
            let progress = journal_of(&self.node).progress();
            if checkpoint.is_some_and(|newest| progress.checkpoint >= newest) {
                checkpoint = None;
                journal_of(&self.node).report(|progress| {
                    (progress.saving, progress.saved_at) = (false, unix_ms() / 1000);
                });
            }
            // The group of a replica may never commit what was recorded last.
            let is_over = self.disk.is_none() || journal_of(&self.node).is_deposed();
            if request == WriterRequest::Close
                && (progress.durable == journal_of(&self.node).newest() || is_over)
            {
                return;
            }
        }
    }

    /// Folds everything, before any other task has the node.
    pub(super) fn checkpoint_all(&mut self) -> Result<(), DiskError> {
        self.checkpoint_bytes = MAX_CHECKPOINT_BYTES;
        while self.try_cycle(true)? > 0 {}
        Ok(())
    }

    /// One round: what came is written, some of what changed is folded, what is folded is cut off the journal, all
    /// in one batch. `all`: the journal is to become empty. Returns how many operations that was.
    pub(super) fn cycle(&mut self, all: bool) -> usize {
        self.try_cycle(all).unwrap_or_else(|error| {
            self.give_up(&error);
            0
        })
    }

    /// The disk has failed.
    fn give_up(&mut self, error: &DiskError) {
        let broke = self.disk.take().is_some();
        // Without a disk no caller waits.
        self.granting.clear();
        self.copies.clear();
        let failure = Failure { detail: error.to_string().into(), cause: error.cause().into() };
        // That it does not open again is less to know than why it had to be.
        journal_of(&self.node).report(|progress| {
            if broke || progress.failure.is_none() {
                progress.failure = Some(failure);
            }
        });
    }

    /// Copies a slice of the disk for all who want a copy.
    fn copy_on(&mut self) -> Result<(), DiskError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        for mut copy in std::mem::take(&mut self.copies) {
            if copy.go_on(&mut **disk)? {
                self.copies.push(copy);
            }
        }
        Ok(())
    }

    fn try_cycle(&mut self, all: bool) -> Result<usize, DiskError> {
        if self.disk.is_none() {
            fail_point::reach("opening")?;
            self.disk = Some((self.open)()?);
        }
        // What a failed disk has not taken goes first.
        if self.batch.ops.is_empty() {
            self.node.record_expired();
            self.drain();
            self.pack();
            self.sweep()?;
            self.dirty.begin_cycle(all || self.journal_is_long(1));
            self.checkpoint_granted();
            if all || !journal_of(&self.node).is_awaited() || self.checkpointed_at.elapsed() >= self.cycle {
                self.checkpoint_some(self.batch.bytes + self.checkpoint_bytes);
                self.checkpointed_at = Instant::now();
            }
            // What was folded of the catalog may know of records that came meanwhile. These must not be missing.
            self.drain();
            self.pack();
            self.dirty.begin_cycle(false);
            fail_point::reach("folded")?;
            self.trim();
        }
        let written = self.batch.ops.len();
        if written > 0 {
            let Some(disk) = &mut self.disk else { return Ok(0) };
            fail_point::reach("collected")?;
            // What is folded has all records up to the newest one in it. If the group goes on without one of them, this
            // replica must not have it.
            if let Some(group) = journal_of(&self.node).group()
                && !group.await_commit(self.noted)
            {
                return Ok(0);
            }
            let began = Instant::now();
            disk.apply(self.noted, &self.batch.ops)?;
            fail_point::reach("applied")?;
            disk.flush()?;
            journal_of(&self.node).pace().writes.add(began.elapsed());
            fail_point::reach("flushed")?;
            self.copies.iter_mut().for_each(|copy| copy.note(&self.batch.ops));
            self.batch = CheckpointBatch::default();
        }
        self.copies.extend(journal_of(&self.node).take_copies());
        // Those beyond end without being complete, and are asked for again.
        self.copies.truncate(MOST_COPIES);
        self.copy_on()?;
        let checkpoint = self.kept_from() - 1;
        let journal_bytes = self.journal_length();
        let is_long = self.journal_is_long(JOURNAL_SLACK);
        let small_bytes = self
            .chunks
            .iter()
            .map(|chunk| chunk.bytes)
            .filter(|bytes| *bytes < LARGE_RECORD_BYTES as u64)
            .sum();
        let behind = self.is_long(small_bytes, JOURNAL_SLACK);
        let durable = self.noted;
        journal_of(&self.node).report(|progress| {
            progress.flushes += u64::from(progress.durable != durable);
            (progress.durable, progress.checkpoint, progress.journal_bytes) =
                (durable, checkpoint, journal_bytes);
            (progress.is_long, progress.behind) = (is_long, behind);
            progress.failure = None;
        });
        Ok(written)
    }

    fn journal_length(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Whether the journal is more than `times` as long as it should be.
    fn journal_is_long(&self, times: u64) -> bool {
        self.is_long(self.journal_length(), times)
    }

    fn is_long(&self, bytes: u64, times: u64) -> bool {
        let data_bytes = self.data_share * self.node.usage().bytes as u64 / 4;
        bytes > times * self.journal_bytes.max(data_bytes)
    }

    /// Folds more or less in the next round, by how long this one took.
    fn pace(&mut self, took: Duration) {
        let limit = match journal_of(&self.node).is_awaited() {
            false => CHECKPOINT_TIME,
            // Callers that wait for the next round wait for this one.
            true => CHECKPOINT_TIME / 10,
        };
        if took > limit {
            self.checkpoint_bytes = (self.checkpoint_bytes / 2).max(CHECKPOINT_BYTES / 16);
        } else if took < limit / 2 {
            self.checkpoint_bytes = (self.checkpoint_bytes * 2).min(MAX_CHECKPOINT_BYTES);
        }
    }

    /// Takes what came to the journal, and note of what it changed. Copies nothing: shards may be locked.
    fn drain(&mut self) {
        for drained in journal_of(&self.node).drain(&mut self.spare) {
            for record in drained.records() {
                self.noted += 1;
                // They come from memory: they are well formed.
                for effect in Effects::read(&record).flatten() {
                    note(&mut self.dirty, &self.checkpoint, &mut self.sweeps, self.noted, effect);
                }
            }
            debug_assert_eq!(self.noted, drained.newest);
            self.taken.push(drained);
        }
    }

    /// Puts what was taken into the batch, in chunks.
    fn pack(&mut self) {
        let (mut first, mut chunk) = (self.packed + 1, Vec::new());
        for drained in std::mem::take(&mut self.taken) {
            for record in drained.records() {
                if chunk.len() + record.len() > CHUNK_BYTES {
                    self.put_chunk(first, std::mem::take(&mut chunk));
                    first = self.packed + 1;
                }
                self.packed += 1;
                put_bytes(&record, &mut chunk);
            }
            if let Some(drained) = Arc::into_inner(drained).filter(|all| all.bytes.capacity() <= SPARE_BYTES)
            {
                self.spare = drained.bytes;
                self.spare.clear();
            }
        }
        self.put_chunk(first, chunk);
    }

    /// Puts the records from `first` to the last that was packed into the batch.
    fn put_chunk(&mut self, first: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.chunks.push_back(Chunk { first, last: self.packed, bytes: bytes.len() as u64 });
            self.batch.put(record::log_key(first), bytes);
        }
    }

    /// Folds changed keys, oldest first, until the batch has `limit` bytes.
    fn checkpoint_some(&mut self, limit: usize) {
        while self.batch.bytes < limit
            && self.sweeps.iter().all(|sweep| sweep.there.is_none())
            && let Some(name) = self.dirty.next()
        {
            self.checkpoint_key(name, limit, &[]);
        }
    }

    /// Folds a key, with those that must come with it. The writer holds the keys in `granted`.
    fn checkpoint_key(&mut self, name: Name, limit: usize, granted: &[Name]) {
        if name.db == CATALOG {
            return self.checkpoint_record(&name);
        }
        let node = self.node.clone();
        let mut group = self.dirty.group(name);
        let guards = loop {
            let mut shards: Vec<usize> = group.iter().map(|name| node.shard_of(&name.key)).collect();
            shards.sort_unstable();
            shards.dedup();
            let guards = node.lock_shards(&shards);
            if granted.is_empty()
                && let Some(busy) = group.iter().find(|name| is_written(&node, &guards, name))
            {
                let busy = busy.clone();
                drop(guards);
                return self.await_keys(&group[0], vec![busy]);
            }
            // What is written must be just what the noted records have made; they may tell of more keys that
            // took something over.
            self.drain();
            let grown = self.dirty.group(group[0].clone());
            if grown == group {
                break guards;
            }
            group = grown;
        };
        let is_held = group.iter().all(|name| granted.contains(name));
        if !(granted.is_empty() || is_held) || self.sweeps.iter().any(|sweep| sweep.there.is_some()) {
            return self.dirty.postpone(group[0].clone());
        }
        let limit = if group.len() == 1 { limit } else { usize::MAX };
        if group.iter().any(|name| self.is_large_string(&guards, name)) {
            drop(guards);
            return match is_held {
                true => group.iter().for_each(|name| self.checkpoint_held(name, limit)),
                false => self.await_keys(&group[0], group.clone()),
            };
        }
        for name in &group {
            self.checkpoint_locked(name, shard_in(&node, &guards, name), limit);
        }
    }

    /// Folds a key whose shard is locked.
    fn checkpoint_locked(&mut self, name: &Name, shard: &ShardState, limit: usize) {
        let Some(change) = self.dirty.take(name) else { return };
        let entry = shard.partition.databases[name.db].peek(&name.key, 0);
        if let Some(rest) =
            self.checkpoint.checkpoint(name, entry, change, self.noted, limit, &mut self.batch)
        {
            self.dirty.put_back(name.clone(), rest);
        }
    }

    /// Folds a key that the writer has locked, so that it is not changed.
    fn checkpoint_held(&mut self, name: &Name, limit: usize) {
        let node = self.node.clone();
        let guards = node.lock_shards(&[node.shard_of(&name.key)]);
        match self.is_large_string(&guards, name) {
            true => {
                drop(guards);
                self.checkpoint_string(name);
            }
            false => self.checkpoint_locked(name, shard_in(&node, &guards, name), limit),
        }
    }

    /// Whether it is a string that takes so long to be copied that others would notice.
    fn is_large_string(&self, guards: &Guards<'_>, name: &Name) -> bool {
        let large_bytes = MANY_SLICES * self.slice_bytes;
        let entry = shard_in(&self.node, guards, name).partition.databases[name.db].peek(&name.key, 0);
        matches!(entry, Some(Entry { value: Value::String(text), .. }) if text.len() >= large_bytes)
    }

    /// Folds a large string that the writer has locked. It is copied in slices, between which others have the shard.
    fn checkpoint_string(&mut self, name: &Name) {
        if self.dirty.take(name).is_none() {
            return;
        }
        let shard = self.node.shard(self.node.shard_of(&name.key));
        let mut out = Vec::new();
        let mut copied = 0;
        loop {
            let state = shard.lock();
            let entry = state.partition.databases[name.db].peek(&name.key, 0);
            let Some(Entry { value: Value::String(text), .. }) = entry else { break };
            let text = text.as_bytes();
            if copied == 0 {
                out = record::begin_string(
                    self.noted,
                    entry.map(EntryMeta::of).unwrap_or_default(),
                    text.len(),
                );
            }
            let end = text.len().min(copied + self.slice_bytes);
            out.extend_from_slice(&text[copied..end]);
            copied = end;
            if copied == text.len() {
                drop(state);
                return self.checkpoint.put_whole(name, out, &mut self.batch);
            }
        }
        // A transaction that holds a lock finds the old value.
        debug_assert!(false, "a locked string is gone");
        self.dirty.put_back(name.clone(), What::Whole);
    }

    /// Folds a record of the catalog.
    fn checkpoint_record(&mut self, name: &Name) {
        let catalog = self.node.catalog.lock();
        let newest = journal_of(&self.node).newest();
        self.dirty.take(name);
        let head = record::head_key(CATALOG, &name.key);
        match catalog.get(&*name.key) {
            None => self.batch.delete(head),
            Some(record) => {
                let entry = Entry::new(Value::string(record), Stamp::default());
                self.batch.put(head, record::whole(newest, &entry));
            }
        }
    }

    /// Waits in the queues of keys that are in use, or that take long to be copied; those who use them get done, those behind
    /// the writer wait for a moment.
    fn await_keys(&mut self, wanted: &Name, names: Vec<Name>) {
        self.dirty.postpone(wanted.clone());
        if self.granting.len() >= MOST_AWAITED || self.granting.iter().any(|(awaited, _)| *awaited == names) {
            return;
        }
        let request =
            |name: &Name| LockRequest { db: name.db, key: name.key.as_ref().into(), mode: Mode::Shared };
        let requests = names.iter().map(request).collect();
        let node = self.node.clone();
        self.granting.push((names, Box::pin(async move { LocalTransaction::begin(&node, requests).await })));
        self.checkpoint_granted();
    }

    /// Folds the keys that the writer waited for and holds now, and lets them go.
    fn checkpoint_granted(&mut self) {
        let mut granted = Vec::new();
        let waker = self.waker.clone();
        self.granting.retain_mut(|(names, granting)| {
            match granting.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(transaction) => {
                    granted.push((std::mem::take(names), transaction));
                    false
                }
                Poll::Pending => true,
            }
        });
        for (names, transaction) in granted {
            let first = names[0].clone();
            if self.dirty.group(first.clone()).iter().all(|name| names.contains(name)) {
                self.checkpoint_key(first, self.batch.bytes + self.checkpoint_bytes, &names);
            }
            drop(transaction);
        }
    }

    /// The oldest record that must stay.
    fn kept_from(&self) -> u64 {
        let sweeps = self.sweeps.iter().map(|sweep| sweep.since);
        sweeps.chain(self.dirty.since()).min().unwrap_or(self.noted + 1)
    }

    /// Cuts off the journal what the checkpoint has.
    fn trim(&mut self) {
        let kept_from = self.kept_from();
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.last < kept_from) {
            self.batch.delete(record::log_key(chunk.first));
        }
    }

    /// Looks for records that the checkpoint should not have. Exchanged databases at once, since whatever is
    /// folded takes each key for what it was; waste and the records of emptied ones by and by.
    fn sweep(&mut self) -> Result<(), DiskError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let mut left = SWEEP_RECORDS;
        while let Some(Sweep { db, there, since, from }) = self.sweeps.front_mut()
            && (left > 0 || there.is_some())
        {
            let prefix = record::head_key(*db, b"");
            let most = if there.is_some() { SWEEP_RECORDS } else { left };
            let keys = disk.keys(&prefix, from, most)?;
            for key in &keys {
                self.dirty.mark_exchanged_dirty(*since, *db, *there, &key[prefix.len()..]);
            }
            left = left.saturating_sub(keys.len());
            match keys.last() {
                Some(last) if keys.len() == most => *from = [last, &b"\0"[..]].concat(),
                _ => drop(self.sweeps.pop_front()),
            }
        }
        while left > 0
            && let Some(version) = self.checkpoint.garbage.front()
        {
            let mut is_all = true;
            for prefix in record::parts_prefixes(*version) {
                // Those of this round are gone when its batch is written: the next one looks again.
                let keys = disk.keys(&prefix, &prefix, left)?;
                is_all &= keys.len() < left;
                left -= keys.len();
                keys.into_iter().for_each(|key| self.batch.delete(key));
            }
            if is_all {
                self.checkpoint.garbage.pop_front();
            }
        }
        Ok(())
    }
}

/// The locked shard of a key.
fn shard_in<'a>(node: &Node, guards: &'a Guards<'_>, name: &Name) -> &'a ShardState {
    let number = node.shard_of(&name.key);
    let at = guards.iter().position(|(held, _)| *held == number);
    &guards[at.expect("the shards of the whole group are locked")].1
}

fn is_written(node: &Node, guards: &Guards<'_>, name: &Name) -> bool {
    shard_in(node, guards, name).locks.is_written(name.db, &name.key)
}

fn journal_of(node: &Node) -> &Journal {
    node.journal.as_ref().expect("a writer is made for a node with a journal")
}
