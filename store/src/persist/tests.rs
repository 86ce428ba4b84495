//! Whatever happens, a disk that is read again gives what was there at its last round.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use proptest::prelude::*;
use store_engine::Effects;
use store_engine::effect::{CATALOG, EntryMeta};
use store_engine::value::json::printed;
use store_engine::{Args, Protocol, Reply, Value, command};

use super::offline::{Contents as Filling, fill_disk};
use super::writer::{MOST_AWAITED, Writer};
use super::{load, prepare};
use crate::call::{Call, ParsedCall};
use crate::journal::disk::{Disk, DiskError, DiskRecord, Each, Op, Open};
use crate::journal::{Durability, record};
use crate::lock::{LockRequest, Mode};
use crate::node::Node;
use crate::txn::LocalTransaction;

/// What outlives a crash.
#[derive(Default)]
struct Platter {
    records: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    newest: AtomicU64,
    /// How many writes from now on one fails: 1 for the next one. Every second one that fails has worked.
    fault: AtomicU64,
    /// Happens when the writer looks for keys: between what it takes and what it folds.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

struct FakeDisk(Arc<Platter>);

impl Disk for FakeDisk {
    fn seq(&self) -> u64 {
        self.0.newest.load(Ordering::Relaxed)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        Ok(())
    }

    fn dir(&self) -> &Path {
        Path::new("platter")
    }

    fn keys(&mut self, prefix: &[u8], from: &[u8], most: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        if let Some(happen) = self.0.meanwhile.lock().take() {
            happen();
        }
        let records = self.0.records.lock();
        let found =
            records.range(from.to_vec()..).map(|(key, _)| key).take_while(|key| key.starts_with(prefix));
        Ok(found.take(most).cloned().collect())
    }

    fn records(&mut self, from: &[u8], most_bytes: usize) -> Result<Vec<DiskRecord>, DiskError> {
        let records = self.0.records.lock();
        let most = most_bytes.clamp(1, 3);
        Ok(records
            .range(from.to_vec()..)
            .take(most)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn apply(&mut self, number: u64, batch: &[Op]) -> Result<(), DiskError> {
        let fault = self.0.fault.load(Ordering::Relaxed);
        self.0.fault.store(fault.saturating_sub(1), Ordering::Relaxed);
        if fault != 1 || number.is_multiple_of(2) {
            let mut records = self.0.records.lock();
            for op in batch {
                match op.clone() {
                    Op::Put(key, value) => drop(records.insert(key, value)),
                    Op::Delete(key) => drop(records.remove(&key)),
                }
            }
            self.0.newest.store(number, Ordering::Relaxed);
        }
        if fault == 1 { Err(DiskError::Refused("it was told to fail".into())) } else { Ok(()) }
    }

    fn scan(&self, prefix: &[u8], each: &mut Each<'_>) -> Result<(), DiskError> {
        let records = self.0.records.lock().clone();
        let mut found = records.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
        found.try_for_each(|(key, value)| each(key, value))
    }
}

/// A node whose writer works only when a test calls it.
struct Rig {
    platter: Arc<Platter>,
    node: Arc<Node>,
    writer: Writer,
}

impl Rig {
    fn start(platter: Arc<Platter>) -> Rig {
        let held = platter.clone();
        let open: Open = Box::new(move || Ok(Box::new(FakeDisk(held.clone())) as Box<dyn Disk>));
        let disk = open().expect("it opens");
        let (node, mut writer) =
            prepare(disk, open, 3, Durability::Periodic, |_| None, &mut Err).expect("readable");
        writer.checkpoint.big_bytes = 600;
        writer.journal_bytes = 2_000;
        writer.data_share = 0;
        writer.checkpoint_bytes = 500;
        writer.slice_bytes = 1;
        Rig { platter, node, writer }
    }

    /// What a crash would leave.
    fn reread(&self) -> Contents {
        contents(&Rig::start(self.platter.clone()).node)
    }
}

type Contents = BTreeMap<(usize, Vec<u8>), (Option<NonZeroU64>, Vec<Vec<u8>>)>;

/// How the mark of a sticky key is shown.
const STICKY: &[u8] = b"sticky";

/// The keys in which both differ, and how many elements each has.
fn difference(one: &Contents, other: &Contents) -> Vec<String> {
    let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
    let shown = |held: Option<&(Option<NonZeroU64>, Vec<Vec<u8>>)>| match held {
        Some((expiry, elements)) => format!("{} elements, {expiry:?}", elements.len() - 1),
        None => "nothing".into(),
    };
    let differing = keys.filter(|key| one.get(*key) != other.get(*key));
    differing
        .map(|(db, key)| {
            let name = (*db, key.clone());
            format!(
                "{db}/{}: {} instead of {}",
                key.escape_ascii(),
                shown(one.get(&name)),
                shown(other.get(&name))
            )
        })
        .collect()
}

/// All keys with what they hold; where the order means nothing, it is sorted.
fn contents(node: &Node) -> Contents {
    let mut contents = Contents::new();
    for (_, shard) in node.lock_everything() {
        for (db, space) in shard.partition.databases.iter().enumerate() {
            for (key, entry) in (0..space.len()).filter_map(|at| space.pair_at(at)) {
                let mut elements = vec![entry.value.type_name().into()];
                match &entry.value {
                    Value::String(text) => elements.push(text.as_bytes().into_owned()),
                    Value::List(list) => elements.extend(list.iter_from(0).map(<[u8]>::to_vec)),
                    Value::Hash(hash) => {
                        let expiry = |field| hash.expiry(field).map_or(0, NonZeroU64::get).to_le_bytes();
                        elements.extend(
                            hash.iter()
                                .map(|(field, value)| [&expiry(field)[..], field, b"=", value].concat()),
                        );
                    }
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
                if matches!(entry.value, Value::Hash(_) | Value::Set(_)) {
                    elements.sort_unstable();
                }
                if entry.sticky {
                    elements.push(STICKY.to_vec());
                }
                contents.insert((db, key.to_vec()), (entry.expire_at_ms, elements));
            }
        }
    }
    let records = node.records(b"").into_iter();
    contents.extend(records.map(|(name, record)| ((CATALOG, name), (None, vec![record.to_vec()]))));
    contents
}

const NOW_MS: u64 = 1_000_000;

fn with_call<T>(line: &str, run: impl FnOnce(&Call<'_>) -> T) -> T {
    let items: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
    let args = Args::new(&items);
    let row = command::lookup(&args.name().to_ascii_lowercase()).expect("a command");
    let command = command::resolve(row, args).expect("a subcommand");
    let db = usize::from(line.ends_with('9'));
    let call = ParsedCall::new(command, args).unwrap_or_else(|| panic!("the arguments of {line}"));
    run(&call.of_server().at(db, NOW_MS))
}

const KINDS: [&str; 7] = ["list", "hash", "set", "zset", "string", "stream", "json"];

/// A call made from a number: mostly of collections that are big, or become so.
fn line_of(mut number: u64) -> String {
    let mut next = |bound: u64| {
        let digit = number % bound;
        number /= bound;
        digit
    };
    let (kind, key, a, b) = (next(45), next(3), next(40), next(40));
    let many = |word: &str| (0..a).map(|i| format!(" {word}{i}-{b}")).collect::<String>();
    let pairs = |word: &str| (0..=a).map(|i| format!(" {word}{} value-{b}", i + b)).collect::<String>();
    let fields = || (0..=a).map(|i| format!(" field{}", i + b)).collect::<String>();
    let scored = (0..=a).map(|i| format!(" {} member{}", i % 3, i + b)).collect::<String>();
    match kind {
        0 => format!("SET string{key} x{}", "x".repeat((a * b) as usize)),
        1 => format!("SET string{key} {a} EX {b}1"),
        2 => format!("APPEND string{key} {a}"),
        3 => format!("INCRBY counter{key} {a}"),
        4 => format!("RPUSH list{key} first{}", many("r")),
        5 => format!("LPUSH list{key} first{}", many("l")),
        6 => format!("LPOP list{key} {a}"),
        7 => format!("RPOP list{key} {a}"),
        8 => format!("LTRIM list{key} {} -{}", a / 3, b / 3 + 1),
        9 => format!("LSET list{key} {a} set{b}"),
        10 => format!("LINSERT list{key} BEFORE r1-{b} inserted{a}"),
        11 => format!("LREM list{key} 0 r1-{b}"),
        12 => format!("HSET hash{key}{}", pairs("field")),
        13 => {
            format!("HDEL hash{key} none{}", (0..a).map(|i| format!(" field{}", i + b)).collect::<String>())
        }
        14 => format!("SADD set{key} one{}", many("m")),
        15 => format!("SPOP set{key} {a}"),
        16 => format!("ZADD zset{key}{scored}"),
        17 => format!("ZREMRANGEBYRANK zset{key} {a} {}", a + b),
        18 => format!("EXPIRE {}{key} {b}00", KINDS[a as usize % 7]),
        19 => format!("DEL {}{key}", KINDS[a as usize % 7]),
        20 => format!("RENAME {0}{key} {0}{b}", KINDS[a as usize % 7]),
        24 => format!("STICK {}{key}", KINDS[a as usize % 7]),
        25 => format!("UNSTICK {}{key}", KINDS[a as usize % 7]),
        // New entries have the next IDs, as the time stands still.
        26 => format!("XADD stream{key} * field x{}", "x".repeat((a * b) as usize)),
        27 => format!("XADD stream{key} MAXLEN ~ {a} * field{a} value{}", pairs("field")),
        28 => format!("XDEL stream{key} {NOW_MS}-{a} {NOW_MS}-{b}"),
        29 => format!("XTRIM stream{key} MAXLEN {a}"),
        30 if b % 8 > 0 => format!("XGROUP CREATE stream{key} group{} 0 MKSTREAM", a % 2),
        30 => format!("XGROUP DESTROY stream{key} group{}", a % 2),
        31 => {
            let (group, consumer) = (a % 2, b % 3);
            format!("XREADGROUP GROUP group{group} c{consumer} COUNT {} STREAMS stream{key} >", b + 1)
        }
        32 => format!("XACK stream{key} group{} {NOW_MS}-{a} {NOW_MS}-{b}", a % 2),
        33 => format!("XGROUP DELCONSUMER stream{key} group{} c{}", a % 2, b % 3),
        // Numbers that need eight bytes each: enough of them are big, too, and they are kept in order without texts.
        34 | 35 => {
            format!(
                "SADD set{key}{}",
                (0..=a).map(|i| format!(" {}", (i * 41 + b) << 33)).collect::<String>()
            )
        }
        36 => format!("SREM set{key} one{}", many("m")),
        37 => format!("HPEXPIRE hash{key} {}0 FIELDS {}{}", a / 3, a + 1, fields()),
        38 => format!("HSETEX hash{key} EX {b} FIELDS {}{}", a + 1, pairs("field")),
        39 => format!("HPERSIST hash{key} FIELDS {}{}", a + 1, fields()),
        40 => format!("HINCRBY hash{key} field{a} {b}"),
        41 => format!("JSON.SET json{key} $ {{\"list\":[{a},[{b}]],\"map\":{{\"m{b}\":null}}}}"),
        42 => format!(
            "JSON.ARRAPPEND json{key} $..list{}",
            (0..=a).map(|i| format!(" {i}.5")).collect::<String>()
        ),
        43 if b % 2 > 0 => format!("JSON.DEL json{key} $.list[{}:{a}]", a / 2),
        43 => format!("JSON.ARRPOP json{key} $.list {a}"),
        44 => format!("JSON.MERGE json{key} $ {{\"map\":{{\"m{a}\":{{\"list\":[{b}]}},\"m{b}\":null}}}}"),
        21 if a == 0 => "FLUSHDB".into(),
        22 if a == 0 => format!("SWAPDB 0 {}", b % 2 + 1),
        _ => {
            format!("COPY {0}{key} {0}{b} REPLACE", KINDS[a as usize % 7])
        }
    }
}

fn execute(node: &Node, line: &str) {
    with_call(line, |call| {
        // Keys that a transaction has are left to it.
        node.try_execute(call, &mut 1, &mut Reply::new(Protocol::Resp2));
    });
}

/// A transaction over keys that no other transaction uses.
fn begin(node: &Arc<Node>, keys: &[&str]) -> Box<LocalTransaction> {
    let request = |key: &&str| LockRequest { db: 0, key: key.as_bytes().into(), mode: Mode::Exclusive };
    let requests = keys.iter().map(request).collect();
    let mut granting = Box::pin(LocalTransaction::begin(node, requests));
    match granting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(transaction) => transaction,
        Poll::Pending => unreachable!("nobody holds anything"),
    }
}

#[derive(Clone)]
enum Step {
    Call(u64),
    Round,
    /// A record of the catalog is put, or all are removed.
    Record(u8),
    /// Everything is folded, as far as possible.
    Checkpoint,
    /// One of the next rounds fails.
    TransactionError(u64),
    /// The process ends without a word, and another one begins.
    Crash,
    /// A transaction does these; it ends at the next of these, committed or not.
    LocalTransaction(Vec<u64>, bool),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = |number: &u64| line_of(*number).chars().take(40).collect::<String>();
        match self {
            Step::Call(call) => write!(f, "{}", label(call)),
            Step::Round => write!(f, "Round"),
            Step::Record(number) => write!(f, "Record {number}"),
            Step::Checkpoint => write!(f, "Checkpoint"),
            Step::TransactionError(when) => write!(f, "TransactionError {when}"),
            Step::Crash => write!(f, "Crash"),
            Step::LocalTransaction(calls, commits) => {
                write!(f, "LocalTransaction {commits} {:?}", calls.iter().map(label).collect::<Vec<_>>())
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any::<u64>().prop_map(Step::Call),
        4 => Just(Step::Round),
        1 => Just(Step::Checkpoint),
        1 => any::<u8>().prop_map(Step::Record),
        1 => (1u64..4).prop_map(Step::TransactionError),
        1 => Just(Step::Crash),
        1 => (prop::collection::vec(any::<u64>(), 1..6), any::<bool>()).prop_map(|(calls, ends)| Step::LocalTransaction(calls, ends)),
    ]
}

fn play(steps: &[Step]) {
    let mut rig = Rig::start(Arc::default());
    let mut open: Option<(Box<LocalTransaction>, bool)> = None;
    let end = |open: &mut Option<(Box<LocalTransaction>, bool)>| match open.take() {
        Some((transaction, true)) => transaction.commit(),
        Some((transaction, false)) => drop(transaction),
        None => {}
    };
    for step in steps {
        match step {
            Step::Call(number) => execute(&rig.node, &line_of(*number)),
            Step::LocalTransaction(calls, commits) => {
                end(&mut open);
                // The writer lets go what it has waited for.
                rig.writer.cycle(false);
                let keys: Vec<String> = KINDS.iter().map(|kind| format!("{kind}1")).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let mut transaction = begin(&rig.node, &keys);
                for number in calls {
                    with_call(&line_of(*number), |call| {
                        // What it would have to wait for it does without.
                        let _ = transaction.execute(
                            call,
                            Mode::Exclusive,
                            &mut 1,
                            &mut Reply::new(Protocol::Resp2),
                        );
                    });
                }
                open = Some((transaction, *commits));
            }
            Step::Record(0..30) => rig.node.set_records(b"r", [(&b"kept"[..], &b"x"[..])]),
            Step::Record(number) => drop(rig.node.put_record(&[b'r', number % 4], &[*number])),
            Step::TransactionError(when) => rig.platter.fault.store(*when, Ordering::Relaxed),
            Step::Round | Step::Checkpoint => {
                let all = matches!(step, Step::Checkpoint);
                for _ in 0..if all { 40 } else { 1 } {
                    rig.writer.cycle(all);
                }
                let journal = rig.node.journal().expect("it has one");
                let progress = journal.progress();
                if open.is_none() && progress.durable == journal.newest() {
                    assert_eq!(difference(&rig.reread(), &contents(&rig.node)), [""; 0]);
                }
            }
            Step::Crash => {
                end(&mut open);
                rig.writer.cycle(false);
                rig.writer.cycle(false);
                rig = Rig::start(rig.platter.clone());
            }
        }
    }
    end(&mut open);
    for _ in 0..200 {
        rig.writer.cycle(true);
    }
    let progress = rig.node.journal().expect("it has one").progress();
    assert_eq!(progress.checkpoint, progress.durable, "everything is folded in the end");
    assert_eq!(difference(&rig.reread(), &contents(&rig.node)), [""; 0]);
    let records = rig.platter.records.lock();
    let left: Vec<_> = records.keys().filter(|key| key[0] == record::LOG).collect();
    assert!(left.is_empty(), "the journal is cut off when everything is folded: {left:?}");
    assert_eq!(rig.writer.checkpoint.garbage.len(), 0);
}

/// Whatever records are missing or were cut off, the node goes on once the loss is accepted, and the disk is sound then.
fn lose(calls: &[u64], lost: &[(prop::sample::Index, Option<prop::sample::Index>)]) {
    let mut rig = Rig::start(Arc::default());
    for (at, number) in calls.iter().enumerate() {
        execute(&rig.node, &line_of(*number));
        rig.node.put_record(b"counter", &[at as u8]);
        rig.writer.cycle(at % 40 == 0);
    }
    let platter = rig.platter.clone();
    drop(rig);
    for (which, cut) in lost {
        let mut records = platter.records.lock();
        let Some(key) = records.keys().nth(which.index(records.len().max(1))).cloned() else { break };
        match (records.get_mut(&key), cut) {
            (Some(record), Some(cut)) if !record.is_empty() => record.truncate(cut.index(record.len())),
            _ => drop(records.remove(&key)),
        }
    }
    let held = platter.clone();
    let open: Open = Box::new(move || Ok(Box::new(FakeDisk(held.clone())) as Box<dyn Disk>));
    let disk = open().expect("it opens");
    let accepted = prepare(disk, open, 3, Durability::Periodic, |_| None, &mut |_| Ok(())).expect("accepted");
    let reread = contents(&Rig::start(platter).node);
    assert_eq!(difference(&reread, &contents(&accepted.0)), [""; 0]);
    let empty = reread.iter().find(|(_, (_, held))| held.len() == 1 && is_collection(&held[0]));
    assert!(empty.is_none(), "{empty:?}");
}

/// A new disk has what it was filled with; if that was interrupted, it is not taken for complete.
#[test]
fn a_disk_that_was_filled_is_whole_or_damaged() {
    let rig = Rig::start(Arc::default());
    (0..3000)
        .for_each(|number: u64| execute(&rig.node, &line_of(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))));
    rig.node.put_record(b"record", b"text");
    let filling = || {
        let mut filling = Filling::default();
        for (_, shard) in rig.node.lock_everything() {
            for (db, space) in shard.partition.databases.iter().enumerate() {
                for (key, entry) in (0..space.len()).filter_map(|at| space.pair_at(at)) {
                    assert!(filling.put(db, key, entry.clone()));
                }
            }
        }
        assert!(filling.put_record(b"record", b"text") && !filling.put_record(b"record", b"text"));
        filling
    };
    let fill = |fault| {
        let platter: Arc<Platter> = Arc::default();
        platter.fault.store(fault, Ordering::Relaxed);
        let held = platter.clone();
        let open: Open = Box::new(move || Ok(Box::new(FakeDisk(held.clone())) as Box<dyn Disk>));
        let filled = fill_disk(open, filling());
        (platter, filled)
    };
    let (platter, filled) = fill(0);
    assert!(filled.is_ok());
    assert_eq!(difference(&contents(&Rig::start(platter.clone()).node), &contents(&rig.node)), [""; 0]);
    let held = platter.clone();
    let again = fill_disk(Box::new(move || Ok(Box::new(FakeDisk(held.clone())))), filling());
    assert!(again.expect_err("refused").to_string().starts_with("platter already has data"));
    // The second write fails, and the first has just begun it.
    let (platter, filled) = fill(2);
    assert!(filled.is_err());
    let error = load::load(&FakeDisk(platter), 1, &mut Err).err().expect("it is not whole");
    assert!(error.is_loss() && error.to_string().contains("ends with record 0, but record 1 was written"));
}

fn is_collection(kind: &[u8]) -> bool {
    [&b"list"[..], b"hash", b"set", b"zset"].contains(&kind)
}

#[test]
fn a_key_that_was_waited_for_is_not_ahead_of_the_journal() {
    let mut rig = Rig::start(Arc::default());
    execute(&rig.node, "SET string1 old");
    execute(&rig.node, "SET string2 old");
    let mut transaction = begin(&rig.node, &["string1", "string2"]);
    // The writer waits for both.
    rig.writer.cycle(true);
    for line in ["SET string1 new", "SET string2 new"] {
        with_call(line, |call| {
            let mut out = Reply::new(Protocol::Resp2);
            let done = transaction.execute(call, Mode::Exclusive, &mut 1, &mut out);
            assert!(matches!(done, Ok(true)), "it holds its keys");
        });
    }
    rig.writer.checkpoint.garbage.push_back(u64::MAX);
    *rig.platter.meanwhile.lock() = Some(Box::new(move || transaction.commit()));
    rig.writer.cycle(false);
    assert!(rig.platter.meanwhile.lock().is_none(), "it came in between");
    assert_eq!(difference(&rig.reread(), &contents(&rig.node)), [""; 0]);
}

#[test]
fn the_writer_waits_for_few_keys_at_a_time() {
    let mut rig = Rig::start(Arc::default());
    let keys: Vec<String> = (0..200).map(|number| format!("string{number}")).collect();
    for key in &keys {
        execute(&rig.node, &format!("SET {key} old"));
    }
    let transaction = begin(&rig.node, &keys.iter().map(String::as_str).collect::<Vec<_>>());
    for _ in 0..5 {
        rig.writer.cycle(true);
        assert_eq!(rig.writer.granting.len(), MOST_AWAITED);
    }
    transaction.commit();
    while rig.writer.cycle(true) > 0 {}
    assert!(rig.writer.granting.is_empty() && rig.writer.dirty.since().is_none());
    assert_eq!(difference(&rig.reread(), &contents(&rig.node)), [""; 0]);
}

#[test]
fn a_key_that_is_renamed_before_it_is_folded_is_not_folded_alone() {
    for exchange in ["RENAME string1 string2", "SWAPDB 0 1"] {
        let mut rig = Rig::start(Arc::default());
        execute(&rig.node, "SET string2 old");
        execute(&rig.node, "SET string1 new");
        rig.writer.cycle(true);
        execute(&rig.node, "APPEND string1 er");
        rig.writer.checkpoint.garbage.push_back(u64::MAX);
        let node = rig.node.clone();
        *rig.platter.meanwhile.lock() = Some(Box::new(move || execute(&node, exchange)));
        rig.writer.cycle(true);
        assert!(rig.platter.meanwhile.lock().is_none(), "it came in between");
        assert_eq!(difference(&rig.reread(), &contents(&rig.node)), [""; 0], "{exchange}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_disk_gives_back_what_was_there(steps in prop::collection::vec(step(), 1..120)) {
        play(&steps);
    }

    #[test]
    fn what_is_left_of_a_damaged_disk_is_a_sound_one(
        calls in prop::collection::vec(any::<u64>(), 1..100),
        lost in prop::collection::vec(any::<(prop::sample::Index, Option<prop::sample::Index>)>(), 1..8),
    ) {
        lose(&calls, &lost);
    }
}

/// A checkpoint that is written while a transaction ends has neither its changes nor those of its records.
#[test]
fn a_record_changes_on_disk_together_with_its_transaction() {
    let mut rig = Rig::start(Arc::default());
    rig.node.put_record(b"prepared", b"effects");
    let requests = [LockRequest { db: 0, key: (*b"key").into(), mode: Mode::Exclusive }];
    let mut txn = LocalTransaction::try_begin(&rig.node, &requests).expect("the key is free");
    let mut changes = Effects::default();
    changes.put_string(0, b"key", b"value", EntryMeta::default());
    txn.apply(changes.as_bytes(), 1).expect("the key is locked");
    txn.records_mut().remove(b"prepared");
    rig.writer.cycle(true);
    let reread = Rig::start(rig.platter.clone()).node;
    assert_eq!((reread.records(b"prepared").len(), reread.usage().keys[0]), (1, 0), "half of it is done");
    txn.commit();
    rig.writer.cycle(true);
    let reread = Rig::start(rig.platter.clone()).node;
    assert_eq!((reread.records(b"prepared").len(), reread.usage().keys[0]), (0, 1));
}

#[test]
fn a_key_that_expired_by_a_clock_ahead_of_this_one_does_not_come_back() {
    let mut rig = Rig::start(Arc::default());
    // A line that ends with a 9 is for another database.
    let expiry = crate::journal::unix_ms() / 10 * 10 + 3_600_000;
    execute(&rig.node, &format!("SET gone v PXAT {expiry}"));
    execute(&rig.node, "SET stays v");
    rig.writer.cycle(true);
    let items: [&[u8]; 2] = [b"GET", b"gone"];
    let call = ParsedCall::new(command::lookup(b"get").expect("a command"), Args::new(&items));
    let mut out = Reply::new(Protocol::Resp2);
    // A transaction over several nodes sees the latest of their clocks.
    let call = call.expect("arguments").of_server();
    assert_eq!(rig.node.try_execute(&call.at(0, expiry + 1), &mut 1, &mut out), Some(true));
    assert!(out.is_null_from(0));
    rig.writer.cycle(true);
    let left: Vec<Vec<u8>> = rig.reread().into_keys().map(|(_, key)| key).collect();
    assert_eq!(left, [b"stays".to_vec()]);
}
