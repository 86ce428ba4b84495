//! Transactions over shards: what others see of them, and that they leave no trace when they are taken back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{Call, Change, Conflict, LocalTransaction, LockRequest, Mode, Node, ParsedCall, Preview};
use store_engine::{Args, Protocol, Reply, command};

/// When calls are made here, and when those keys have expired that expire.
const NOW_MS: u64 = 1_000_000;
const LATER_MS: u64 = NOW_MS + 1000;

/// The reply to `line` as a client's command, or `None` if it would have to wait.
fn execute(node: &Node, line: &str) -> Option<String> {
    execute_at(node, line, NOW_MS)
}

fn execute_at(node: &Node, line: &str, now_ms: u64) -> Option<String> {
    with_call_at(line, now_ms, |call| {
        let mut out = Reply::new(Protocol::Resp2);
        node.try_execute(call, &mut 1, &mut out)?;
        Some(String::from_utf8(out.buf).unwrap())
    })
}

/// The same inside a transaction.
fn execute_in(txn: &mut LocalTransaction, line: &str) -> Result<String, Conflict> {
    with_call(line, |call| {
        let mut out = Reply::new(Protocol::Resp2);
        txn.execute(call, Mode::Exclusive, &mut 1, &mut out)?;
        Ok(String::from_utf8(out.buf).unwrap())
    })
}

fn with_call<T>(line: &str, run: impl FnOnce(&Call<'_>) -> T) -> T {
    with_call_at(line, NOW_MS, run)
}

fn with_call_at<T>(line: &str, now_ms: u64, run: impl FnOnce(&Call<'_>) -> T) -> T {
    let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let args = Args::new(&items);
    let command = command::lookup(&args.name().to_ascii_lowercase()).unwrap();
    let call = ParsedCall::new(command, args).unwrap().of_server();
    run(&call.at(0, now_ms))
}

fn exclusive(keys: &[&str]) -> Vec<LockRequest> {
    let request = |key: &&str| LockRequest { db: 0, key: key.as_bytes().into(), mode: Mode::Exclusive };
    keys.iter().map(request).collect()
}

#[tokio::test]
async fn a_dropped_transaction_never_happened() {
    let node = Node::new(8);
    execute(&node, "SET a 1");
    execute(&node, "RPUSH l x y z");
    execute(&node, "ZADD z 1 m 2 n");
    let before = (node.usage(), execute(&node, "LRANGE l 0 -1"), execute(&node, "ZRANGE z 0 -1 WITHSCORES"));
    let mut txn = LocalTransaction::begin(&node, exclusive(&["a", "l", "z", "new"])).await;
    for line in
        ["INCR a", "LPOP l", "LPUSH l w", "ZADD z 9 m", "ZREM z n", "SET new 1", "DEL a", "LTRIM l 5 9"]
    {
        execute_in(&mut txn, line).unwrap();
    }
    drop(txn);
    assert_eq!(execute(&node, "GET a").unwrap(), "$1\r\n1\r\n");
    let after = (node.usage(), execute(&node, "LRANGE l 0 -1"), execute(&node, "ZRANGE z 0 -1 WITHSCORES"));
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_committed_one_stays_and_lets_its_keys_go() {
    let node = Node::new(8);
    let mut txn = LocalTransaction::begin(&node, exclusive(&["a", "b"])).await;
    execute_in(&mut txn, "SET a 1").unwrap();
    assert_eq!(execute(&node, "GET a"), None, "others wait");
    assert_eq!(execute(&node, "GET other").unwrap(), "$-1\r\n", "but not for other keys");
    assert_eq!(execute(&node, "DBSIZE"), None, "nor is the whole counted while half is done");
    txn.commit();
    assert_eq!(execute(&node, "GET a").unwrap(), "$1\r\n1\r\n");
}

#[tokio::test]
async fn an_undeclared_key_is_taken_if_it_is_free() {
    let node = Node::new(8);
    let mut first = LocalTransaction::begin(&node, exclusive(&["a"])).await;
    let mut second = LocalTransaction::begin(&node, exclusive(&["b"])).await;
    assert!(execute_in(&mut first, "SET c 1").is_ok());
    assert_eq!(execute_in(&mut second, "GET c"), Err(Conflict::Key(exclusive(&["c"]).remove(0))));
    assert_eq!(execute_in(&mut first, "DBSIZE"), Err(Conflict::Everything));
    drop(first);
    assert_eq!(execute_in(&mut second, "GET c").unwrap(), "$-1\r\n");
}

#[tokio::test]
async fn waiters_are_served_in_order_and_may_give_up() {
    let node = Node::new(4);
    let first = LocalTransaction::begin(&node, exclusive(&["k"])).await;
    let wait = |node: &Arc<Node>| {
        let node = node.clone();
        tokio::spawn(async move { LocalTransaction::begin(&node, exclusive(&["k"])).await })
    };
    let second = wait(&node);
    tokio::task::yield_now().await;
    let third = wait(&node);
    tokio::task::yield_now().await;
    second.abort();
    assert!(second.await.is_err());
    drop(first);
    drop(third.await.unwrap());
    assert_eq!(execute(&node, "SET k 1").unwrap(), "+OK\r\n");
}

#[tokio::test]
async fn the_whole_store_waits_for_everybody() {
    let node = Node::new(4);
    let mut txn = LocalTransaction::begin(&node, exclusive(&["a"])).await;
    let whole = {
        let node = node.clone();
        tokio::spawn(async move { LocalTransaction::begin_whole(&node).await })
    };
    tokio::task::yield_now().await;
    execute_in(&mut txn, "SET a 1").unwrap();
    txn.commit();
    let mut whole = whole.await.unwrap();
    assert_eq!(execute(&node, "GET b"), None);
    assert_eq!(execute_in(&mut whole, "DBSIZE").unwrap(), ":1\r\n");
    drop(whole);
    assert_eq!(execute(&node, "GET b").unwrap(), "$-1\r\n");
}

#[tokio::test]
async fn a_watch_leaves_alone_what_expires_while_it_is_locked() {
    let node = Node::new(4);
    execute(&node, "RPUSH l x");
    execute(&node, "PEXPIRE l 10");
    let mut txn = LocalTransaction::begin(&node, exclusive(&["l"])).await;
    execute_in(&mut txn, "RPUSH l y").unwrap();
    let changed = Arc::new(AtomicBool::new(false));
    node.watch(0, b"l", LATER_MS, &changed);
    assert_eq!(execute_in(&mut txn, "RPUSH l z").unwrap(), ":3\r\n", "its time stands still");
    drop(txn);
    assert!(!changed.load(Ordering::Relaxed), "it was taken back");
    node.watch(0, b"l", LATER_MS, &changed);
    assert_eq!(node.usage().keys[0], 0, "now it goes");
    assert!(changed.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_reader_leaves_alone_what_expires_while_another_reads_it() {
    let node = Node::new(4);
    execute(&node, "SET k v");
    execute(&node, "PEXPIRE k 10");
    let shared = vec![LockRequest { mode: Mode::Shared, ..exclusive(&["k"]).remove(0) }];
    let mut txn = LocalTransaction::begin(&node, shared.clone()).await;
    assert_eq!(execute_in(&mut txn, "GET k").unwrap(), "$1\r\nv\r\n");
    assert_eq!(execute_at(&node, "GET k", LATER_MS).unwrap(), "$-1\r\n", "for others it is gone");
    assert_eq!(execute_at(&node, "EXISTS k none", LATER_MS).unwrap(), ":0\r\n");
    assert_eq!(execute_at(&node, "SUNIONSTORE s k", LATER_MS).unwrap(), ":0\r\n");
    let mut later = LocalTransaction::begin(&node, shared).await;
    for (line, reply) in [("GET k", "$-1\r\n"), ("MGET k none", "*2\r\n$-1\r\n$-1\r\n")] {
        let done = with_call_at(line, LATER_MS, |call| {
            let mut out = Reply::new(Protocol::Resp2);
            later.execute(call, Mode::Shared, &mut 1, &mut out)?;
            Ok::<_, Conflict>(String::from_utf8(out.buf).unwrap())
        });
        assert_eq!(done.unwrap(), reply);
    }
    drop(later);
    assert_eq!(execute_in(&mut txn, "GET k").unwrap(), "$1\r\nv\r\n", "its time stands still");
    drop(txn);
    assert_eq!(node.usage().keys[0], 1);
    assert_eq!(execute_at(&node, "GET k", LATER_MS).unwrap(), "$-1\r\n");
    assert_eq!(node.usage().keys[0], 0, "now it goes");
}

#[tokio::test]
async fn what_is_taken_back_can_be_told() {
    let node = Node::new(8);
    execute(&node, "SET a 1");
    execute(&node, "RPUSH l x y z");
    let before = node.usage();
    let mut txn = LocalTransaction::begin(&node, exclusive(&["a", "l", "new", "gone"])).await;
    for line in ["INCR a", "LPUSH l w", "INCR a", "SADD new m", "PEXPIRE new 50", "SET gone 1", "DEL gone"] {
        execute_in(&mut txn, line).unwrap();
    }
    let (changes, omitted) = txn.undo_part_with_changes(3);
    assert_eq!(omitted, 1);
    let shown: Vec<_> = changes
        .iter()
        .map(|change| {
            let preview = |preview: &Option<Preview>| {
                preview
                    .as_ref()
                    .map(|it| (it.type_name.clone(), it.length, it.expire_at_ms, it.elements.concat()))
            };
            (change.key.as_deref(), preview(&change.before), preview(&change.after))
        })
        .collect();
    let string = |text: &[u8]| Some(("string".into(), text.len(), None, text.to_vec()));
    let list = |text: &[u8]| Some(("list".into(), text.len(), None, text.to_vec()));
    assert_eq!(
        shown,
        [
            (Some(&b"a"[..]), string(b"1"), string(b"3")),
            (Some(&b"l"[..]), list(b"xyz"), list(b"wxyz")),
            (Some(&b"new"[..]), None, Some(("set".into(), 1, Some(1_000_050), b"m".to_vec()))),
        ]
    );
    txn.commit();
    assert_eq!(node.usage(), before, "nothing of it is left");
    assert_eq!(execute(&node, "LRANGE l 0 -1").unwrap(), "*3\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\nz\r\n");

    let mut txn = LocalTransaction::begin_whole(&node).await;
    execute_in(&mut txn, "FLUSHALL").unwrap();
    let (changes, _) = txn.undo_part_with_changes(3);
    let [Change { before: Some(was), after: Some(is), .. }] = &changes[..] else {
        panic!("one change of a database: {changes:?}")
    };
    assert_eq!((was.length, is.length, &*is.type_name), (2, 0, "database"));
    drop(txn);
    assert_eq!(node.usage(), before);
}
