//! The engine with all that it keeps account of.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use store_engine::command::{self, lookup};
use store_engine::effect::Effect;
use store_engine::keyspace::{ENTRY_OVERHEAD, Expired, Sticky};
use store_engine::size::allocated;
use store_engine::value::Str;
use store_engine::value::json::printed;
use store_engine::{
    Args, Ctx, DATABASES, Effects, Entry, Partition, Partitions, Protocol, Reply, UndoLog, Value, rdb,
};

use super::author::{KINDS, NOW_MS};

/// All commands can change, in three partitions.
pub struct Engine {
    pub partitions: Vec<Partition>,
    seed: u64,
    pub db: usize,
    pub now_ms: u64,
    /// Of all calls.
    pub effects: Effects,
}

/// Of each key its expiry, whether it is sticky, and its elements.
pub type Meaning = BTreeMap<(usize, Vec<u8>), (Option<NonZeroU64>, bool, Vec<Vec<u8>>)>;

/// What is seen of a key, as a text; the bytes of a string, which would take long to spell, are apart from it.
pub type Line = (String, Vec<u8>);

impl Engine {
    pub fn new() -> Engine {
        let partitions = (0..3).map(|_| Partition::default()).collect();
        Engine { partitions, seed: 1, db: 0, now_ms: NOW_MS, effects: Effects::default() }
    }

    pub fn all(&mut self) -> Partitions<'_> {
        let total = self.partitions.len();
        Partitions::Some { held: self.partitions.iter_mut().enumerate().collect(), total }
    }

    /// Runs a call; whether it succeeded.
    pub fn run(&mut self, words: &[String], undo: Option<&mut UndoLog>) -> bool {
        // A character is a byte, so that a payload is a word too.
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.chars().map(|c| c as u8).collect()).collect();
        let items: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        let args = Args::new(&items);
        let command = lookup(items[0]).and_then(|row| command::resolve(row, args));
        let Some(command) = command.filter(|command| command.arity.allows(args.len())) else { return false };
        let (mut seed, db, now_ms) = (self.seed, self.db, self.now_ms);
        let mut out = Reply::new(Protocol::Resp3);
        let mut kept = std::mem::take(&mut self.effects);
        let (partitions, effects) = (self.all(), Some(&mut kept));
        let work = store_engine::Work::unlimited();
        let mut ctx = Ctx {
            partitions,
            db,
            now_ms,
            seed: &mut seed,
            undo,
            effects,
            key_actions: None,
            work: &work,
            out: &mut out,
        };
        let done = ctx.watched(|ctx| (command.run)(ctx, args)).is_ok();
        (self.seed, self.effects) = (seed, kept);
        done
    }

    /// Everything there is, each thing at its place, and every account.
    pub fn contents(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for (number, partition) in self.partitions.iter().enumerate() {
            for (db, space) in partition.databases.iter().enumerate() {
                if !space.is_empty() {
                    let (bytes, expiring, sticky) = (space.bytes(), space.expiring(), space.sticky());
                    let line = format!("{number}/{db}: {bytes} bytes, {expiring} expiring, {sticky:?}");
                    lines.push((line, Vec::new()));
                }
                lines.extend((0..space.len()).filter_map(|at| {
                    let (key, entry) = space.pair_at(at)?;
                    let (shown, bytes) = seen(entry);
                    let size = entry.value.bytes();
                    Some((format!("{number}/{db} {} {shown} {size}", key.escape_ascii()), bytes))
                }));
            }
        }
        lines
    }

    /// The keys that have not expired, each with its database, value and expiry.
    pub fn alive(&self) -> BTreeMap<(usize, Vec<u8>), Line> {
        let spaces = self.partitions.iter().flat_map(|partition| partition.databases.iter().enumerate());
        let entries = spaces.flat_map(|(db, space)| {
            (0..space.len()).filter_map(|at| space.pair_at(at)).map(move |(key, entry)| (db, key, entry))
        });
        let alive = entries.filter(|(_, _, entry)| !entry.is_expired(self.now_ms));
        alive.filter_map(|(db, key, entry)| Some(((db, key.to_vec()), self.seen_now(entry)?))).collect()
    }

    /// [`seen`] without fields that have expired, if any is left.
    fn seen_now(&self, entry: &Entry) -> Option<Line> {
        let Value::Hash(hash) = &entry.value else { return Some(seen(entry)) };
        let live = hash.live(self.now_ms);
        let fields: Vec<_> = live.iter().map(|(field, value)| (field, value, hash.expiry(field))).collect();
        let shown = || format!("{:?} {} {fields:?}", entry.expire_at_ms, entry.sticky);
        (!fields.is_empty()).then(|| (shown(), Vec::new()))
    }

    /// The same as bytes, which tell nothing of how a value came to be what it is. Elements of sets and hashes,
    /// whose order means nothing, are put in order.
    pub fn meaning(&self) -> Meaning {
        let spaces = self.partitions.iter().flat_map(|partition| partition.databases.iter().enumerate());
        let entries = spaces.flat_map(|(db, space)| {
            (0..space.len()).filter_map(|at| space.pair_at(at)).map(move |(key, entry)| (db, key, entry))
        });
        let alive = entries.filter(|(_, _, entry)| !entry.is_expired(self.now_ms));
        let elements = |value: &Value| {
            let mut elements = vec![value.type_name().into()];
            match value {
                Value::String(text) => elements.push(text.as_bytes().into_owned()),
                Value::List(list) => elements.extend(list.iter_from(0).map(<[u8]>::to_vec)),
                Value::Hash(hash) => elements.extend(hash.iter().map(|(field, value)| {
                    let expiry = hash.expiry(field).map_or(0, NonZeroU64::get);
                    [&expiry.to_le_bytes()[..], field, b"=", value].concat()
                })),
                Value::Set(set) => elements.extend(set.iter().map(|member| member.to_vec())),
                Value::ZSet(zset) => elements.extend(
                    zset.iter_from(0).map(|(member, score)| [&score.to_le_bytes()[..], member].concat()),
                ),
                Value::Stream(stream) => elements.extend(
                    stream
                        .parts()
                        .map(|part| [part.encoded(), stream.part(part).unwrap_or_default()].concat()),
                ),
                Value::Json(json) => elements.push(printed(json.root()).into_bytes()),
            }
            if matches!(value, Value::Hash(_) | Value::Set(_)) {
                elements.sort_unstable();
            }
            elements
        };
        alive
            .map(|(db, key, entry)| {
                ((db, key.to_vec()), (entry.expire_at_ms, entry.sticky, elements(&entry.value)))
            })
            .collect()
    }

    /// What the effects of all calls make of nothing.
    pub fn repeated(&self) -> Engine {
        let mut engine = Engine::new();
        engine.now_ms = self.now_ms;
        for effect in Effects::read(self.effects.as_bytes()) {
            let (db, key, effect) = effect.expect("well formed");
            effect.apply(db, key, &mut engine.all()).expect("well formed");
        }
        engine
    }

    /// Watches every key that calls use; the flags are raised when they change.
    pub fn watch(&mut self) -> BTreeMap<(usize, Vec<u8>), Arc<AtomicBool>> {
        let mut flags = BTreeMap::new();
        for db in 0..DATABASES {
            for (kind, number) in KINDS.iter().flat_map(|kind| (0..3).map(move |number| (kind, number))) {
                let (key, flag) = (format!("{kind}{number}").into_bytes(), Arc::new(AtomicBool::new(false)));
                self.partitions.iter_mut().for_each(|part| part.watch(db, &key, flag.clone()));
                flags.insert((db, key), flag);
            }
        }
        flags
    }

    /// Sweeps until nothing may have expired, and checks that nothing has.
    pub fn sweep(&mut self) {
        let mut removed = Vec::new();
        for space in self.partitions.iter_mut().flat_map(|partition| &mut partition.databases) {
            while space.sweep(self.now_ms, |_| false, &mut removed) {}
            let mut entries = (0..space.len()).filter_map(|at| space.pair_at(at));
            assert!(entries.all(|(_, entry)| entry.next_expiry().is_none_or(|at| at.get() > self.now_ms)));
        }
        assert!(removed.iter().all(|(_, entry)| entry.is_expired(self.now_ms)));
    }

    /// From now on, what expires is kept for [`Engine::record_expired`].
    pub fn keep_expired(&mut self) {
        self.partitions
            .iter_mut()
            .flat_map(|partition| &mut partition.databases)
            .for_each(|space| space.keep_expired(&Arc::default()));
    }

    /// Adds what has expired to the effects, as a journal does.
    pub fn record_expired(&mut self) {
        for partition in &mut self.partitions {
            for (db, space) in partition.databases.iter_mut().enumerate() {
                for Expired { key, field, expire_at_ms } in space.take_expired() {
                    self.effects.push(
                        db,
                        &key,
                        match &field {
                            Some(field) => Effect::HashExpired(field, expire_at_ms),
                            None => Effect::Expired(expire_at_ms),
                        },
                    );
                }
            }
        }
    }

    /// Compares every account with a new count.
    pub fn recount(&self) {
        for space in self.partitions.iter().flat_map(|partition| &partition.databases) {
            let entries = || (0..space.len()).filter_map(|at| space.pair_at(at));
            let bytes =
                |key: &[u8], entry: &Entry| ENTRY_OVERHEAD + allocated(key.len()) + entry.value.bytes();
            assert_eq!(space.bytes(), entries().map(|(key, entry)| bytes(key, entry)).sum::<usize>());
            let sticky = || entries().filter(|(_, entry)| entry.sticky);
            let sticky = Sticky {
                keys: sticky().count(),
                bytes: sticky().map(|(key, entry)| bytes(key, entry)).sum(),
                expiring: sticky().filter(|(_, entry)| entry.expire_at_ms.is_some()).count(),
            };
            assert_eq!(space.sticky(), sticky);
            assert_eq!(space.expiring(), entries().filter(|(_, entry)| entry.expire_at_ms.is_some()).count());
            for (key, entry) in entries() {
                assert_eq!(entry.value.bytes(), bytes_of_copy(&entry.value), "{}", key.escape_ascii());
            }
        }
    }
}

/// What has to be restored of an entry: all but when it was used.
fn seen(entry: &Entry) -> Line {
    let Entry { value, expire_at_ms, stamp: _, sticky } = entry;
    match value {
        Value::String(Str::Raw(bytes)) => (format!("{expire_at_ms:?} {sticky} string"), bytes.clone()),
        value => (format!("{expire_at_ms:?} {sticky} {value:?}"), Vec::new()),
    }
}

/// What the same value takes when it is made anew, element by element.
fn bytes_of_copy(value: &Value) -> usize {
    let mut engine = Engine::new();
    let mut add = |name: &[u8], rest: &[&[u8]]| {
        let items = [&[name, &b"k"[..]], rest].concat();
        let (mut seed, mut out) = (1, Reply::new(Protocol::Resp2));
        let partitions = engine.all();
        let mut ctx = Ctx {
            partitions,
            db: 0,
            now_ms: 1,
            seed: &mut seed,
            undo: None,
            effects: None,
            key_actions: None,
            work: &store_engine::Work::unlimited(),
            out: &mut out,
        };
        let done = lookup(name).map(|command| (command.run)(&mut ctx, Args::new(&items)));
        assert_eq!(done, Some(Ok(())));
    };
    match value {
        Value::String(Str::Int(_)) => return 0,
        // Spare capacity counts, so a string's bytes are no matter of its content alone.
        Value::String(Str::Raw(bytes)) => return allocated(bytes.capacity()),
        Value::List(list) => list.iter_from(0).for_each(|element| add(b"rpush", &[element])),
        Value::Hash(hash) => hash.iter().for_each(|(field, value)| {
            add(b"hset", &[field, value]);
            if let Some(at) = hash.expiry(field) {
                add(b"hpexpireat", &[at.to_string().as_bytes(), b"FIELDS", b"1", field]);
            }
        }),
        Value::Set(set) => set.iter().for_each(|member| add(b"sadd", &[&member])),
        Value::Stream(_) | Value::Json(_) => {
            add(b"restore", &[b"0", &rdb::dump(value, rdb::Dialect::Valkey)])
        }
        Value::ZSet(zset) => {
            zset.iter_from(0)
                .for_each(|(member, score)| add(b"zadd", &[score.to_string().as_bytes(), member]));
        }
    }
    let spaces = engine.partitions.iter().map(|partition| &partition.databases[0]);
    spaces.filter_map(|space| space.pair_at(0)).map(|(_, entry)| entry.value.bytes()).sum()
}
