//! What a conversation cannot show of transactions: time and chance of their scripts, what they do that is about no key,
//! and kills.

use tests::{Client, TestServer, Value, notation};

fn text(reply: &Value) -> String {
    notation::reply(reply)
}

fn array(reply: Value) -> Vec<Value> {
    match reply {
        Value::Array(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

/// The replies to the calls of a transaction.
fn transaction(client: &mut Client, calls: &[&[&str]]) -> Vec<Value> {
    client.run("MULTI");
    calls.iter().for_each(|call| assert_eq!(text(&client.call(*call)), "+QUEUED"));
    array(client.run("EXEC"))
}

#[test]
fn scripts_of_a_transaction_have_one_time_and_do_not_repeat_chance() {
    let server = TestServer::start(&[]);
    let mut client = server.client();
    (0..100).for_each(|member| drop(client.run(&format!("SADD set {member}"))));
    let look = "local time = redis.call('TIME')
        return {time[1] .. '.' .. time[2], tostring(os.clock()), redis.call('SRANDMEMBER', KEYS[1])}";
    let call = ["EVAL", look, "1", "set"];
    let seen: Vec<Vec<String>> = transaction(&mut client, &[&call[..]; 20])
        .into_iter()
        .map(|reply| array(reply).iter().map(text).collect())
        .collect();
    let are_alike = |at: usize| seen.iter().all(|other| other[at] == seen[0][at]);
    assert!(are_alike(0), "time stands still: {seen:?}");
    assert!(are_alike(1) && seen[0][1] != "\"0\"", "os.clock stands still, and is the server's: {seen:?}");
    assert!(!are_alike(2), "one draws behind the other: {seen:?}");
}
