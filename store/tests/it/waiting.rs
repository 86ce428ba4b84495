//! Calls that wait for keys: whom a change serves, in which order, and that nobody who left is served.

use std::sync::Arc;

use store::{BlockedCall, Call, LocalTransaction, Mode, Node, ParsedCall};
use store_engine::{Args, Protocol, Reply, command};

const NOW_MS: u64 = 1_000_000;

fn with_call<T>(line: &str, run: impl FnOnce(&Call<'_>) -> T) -> T {
    let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let args = Args::new(&items);
    let command = command::lookup(&args.name().to_ascii_lowercase()).unwrap();
    run(&ParsedCall::new(command, args).unwrap().of_server().at(0, NOW_MS))
}

/// The reply to `line` as a client's command, or `None` if it has to be a transaction.
fn execute(node: &Node, line: &str) -> Option<String> {
    with_call(line, |call| {
        let mut out = Reply::new(Protocol::Resp2);
        node.try_execute(call, &mut 1, &mut out)?;
        Some(String::from_utf8(out.buf).unwrap())
    })
}

/// A transaction that has made these calls.
async fn transaction(node: &Arc<Node>, lines: &[&str]) -> Box<LocalTransaction> {
    let mut txn = LocalTransaction::begin(node, Vec::new()).await;
    for line in lines {
        let mut out = Reply::new(Protocol::Resp2);
        with_call(line, |call| txn.execute(call, Mode::Exclusive, &mut 1, &mut out)).unwrap();
    }
    txn
}

fn block(node: &Arc<Node>, line: &str) -> BlockedCall {
    with_call(line, |call| node.block(call, Protocol::Resp2))
}

async fn reply(mut blocked: BlockedCall) -> String {
    let reply = blocked.reply(|| NOW_MS).await.unwrap();
    String::from_utf8(reply).unwrap().replace("\r\n", " ").trim_end().to_owned()
}

#[tokio::test]
async fn only_what_may_serve_somebody_has_to_be_a_transaction() {
    let node = Node::new(8);
    let blocked = block(&node, "BLPOP k 0");
    assert_eq!(node.waiting(), 1);
    for line in ["RPUSH k a", "RENAME other k", "FLUSHALL", "BLPOP k 0"] {
        assert_eq!(execute(&node, line), None, "{line}");
    }
    for line in ["LLEN k", "RPUSH other a", "DBSIZE"] {
        assert!(execute(&node, line).is_some(), "{line}");
    }
    drop(blocked);
    assert_eq!(node.waiting(), 0);
    assert_eq!(execute(&node, "RPUSH k a").unwrap(), ":1\r\n");
}

#[tokio::test]
async fn what_came_before_the_place_in_the_queue_is_found() {
    let node = Node::new(8);
    execute(&node, "RPUSH k a");
    assert_eq!(reply(block(&node, "BLPOP none k 0")).await, "*2 $1 k $1 a");
    execute(&node, "ZADD z 1 m");
    assert_eq!(reply(block(&node, "BZMPOP 0 2 none z MIN")).await, "*2 $1 z *1 *2 $1 m $1 1");
}

#[tokio::test]
async fn a_commit_serves_in_the_order_of_coming() {
    let node = Node::new(8);
    let first = block(&node, "BLPOP k 0");
    let other_type = block(&node, "BZPOPMIN k 0");
    let second = block(&node, "BLPOP other k 0");
    transaction(&node, &["RPUSH k a b c"]).await.commit();
    // Before anybody else comes to the key.
    assert!(!first.waiter().is_waiting() && !second.waiter().is_waiting());
    assert_eq!(execute(&node, "LRANGE k 0 -1").unwrap(), "*1\r\n$1\r\nc\r\n");
    assert_eq!(reply(first).await, "*2 $1 k $1 a");
    assert_eq!(reply(second).await, "*2 $1 k $1 b");
    assert!(other_type.waiter().is_waiting());
}

#[tokio::test]
async fn who_has_left_or_was_answered_otherwise_is_passed_over() {
    let node = Node::new(8);
    let (gone, answered) = (block(&node, "BLPOP k 0"), block(&node, "BLPOP k 0"));
    let served = block(&node, "BLMPOP 0 1 k LEFT COUNT 2");
    drop(gone);
    assert!(answered.waiter().answer(b"$-1\r\n".to_vec()));
    assert!(!answered.waiter().answer(Vec::new()), "only once");
    assert_eq!(node.waiting(), 1);
    transaction(&node, &["RPUSH k a b"]).await.commit();
    assert_eq!(reply(served).await, "*2 $1 k *2 $1 a $1 b");
    assert_eq!(reply(answered).await, "$-1");
}

#[tokio::test]
async fn what_is_moved_serves_the_next() {
    let node = Node::new(8);
    let waiters = [block(&node, "BLMOVE a b LEFT LEFT 0"), block(&node, "BLMOVE b c LEFT LEFT 0")];
    let last = block(&node, "BRPOP c 0");
    transaction(&node, &["RPUSH a x"]).await.commit();
    for waiter in waiters {
        assert_eq!(reply(waiter).await, "$1 x");
    }
    assert_eq!(reply(last).await, "*2 $1 c $1 x");
    assert_eq!(node.usage().bytes, 0);
}

#[tokio::test]
async fn a_destination_in_use_is_waited_for() {
    let node = Node::new(8);
    let (mover, behind) = (block(&node, "BLMOVE k destination LEFT LEFT 0"), block(&node, "BLPOP k 0"));
    let user = transaction(&node, &["GET destination"]).await;
    transaction(&node, &["RPUSH k a b"]).await.commit();
    assert!(mover.waiter().is_waiting());
    assert_eq!(reply(behind).await, "*2 $1 k $1 a");
    let moving = tokio::spawn(reply(mover));
    tokio::task::yield_now().await;
    assert!(!moving.is_finished());
    drop(user);
    assert_eq!(moving.await.unwrap(), "$1 b");
}

#[tokio::test]
async fn what_is_taken_back_serves_nobody() {
    let node = Node::new(8);
    let blocked = block(&node, "BLPOP k 0");
    drop(transaction(&node, &["RPUSH k a"]).await);
    assert!(blocked.waiter().is_waiting());
    transaction(&node, &["RPUSH k b"]).await.commit();
    assert_eq!(reply(blocked).await, "*2 $1 k $1 b");
}
