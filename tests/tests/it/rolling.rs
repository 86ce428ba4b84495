//! Store nodes and gateways are stopped and started again one by one, as an upgrade does it, while clients go on:
//! nobody is told anything but to try again, and what was answered is there once.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tests::{Client, SetOnDrop, TestCluster, Value, wait_until};

/// Clients that write all the time.
const CLIENTS: usize = 4;
/// Requests of each client between two restarts.
const SOME: u64 = 20;

/// Adds one to keys on several nodes.
const SCRIPT: &str = "for _, key in ipairs(KEYS) do redis.call('INCR', key) end return 'done'";

/// Whether this says that nothing was done, and that it may be at another time.
fn is_to_ask_again(reported: &Value) -> bool {
    let starts = |text: &[u8], start: &str| text.starts_with(start.as_bytes());
    matches!(reported, Value::Error(text)
        if starts(text, "TRYAGAIN") || starts(text, "CLUSTERDOWN nothing was done"))
}

/// A client that connects to another gateway when its own is gone, and asks again when it is told to.
struct Restless<'a> {
    gateways: &'a [SocketAddr],
    at: usize,
    client: Option<Client>,
}

impl Restless<'_> {
    /// The reply to a request that was done, however often it had to be sent. Else what was wrong.
    fn ask(&mut self, args: &[&str]) -> Result<Value, String> {
        let mut reply = Err("nothing yet".to_owned());
        wait_until("the request is done", || {
            let Some(reported) = self.once(args) else { return false };
            let again = is_to_ask_again(&reported);
            if !again {
                reply = match reported {
                    Value::Error(text) => Err(String::from_utf8_lossy(&text).into_owned()),
                    value => Ok(value),
                };
            }
            !again
        });
        reply
    }

    /// The reply, unless the gateway is gone or has closed the connection without one: then it has done nothing.
    fn once(&mut self, args: &[&str]) -> Option<Value> {
        if self.client.is_none() {
            self.client = Client::try_connect(self.gateways[self.at]).ok();
        }
        let reported = self.client.as_mut().and_then(|client| {
            client.send_raw(&tests::client::encode(args)).ok()?;
            client.try_read().ok()?
        });
        if reported.is_none() {
            self.client = None;
            self.at = (self.at + 1) % self.gateways.len();
        }
        reported
    }
}

/// What a client has been told was done, and what else it was told.
#[derive(Default)]
struct ClientLog {
    done: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// A client's keys, one on each node.
fn keys(cluster: &TestCluster, client: usize) -> Vec<String> {
    (0..cluster.stores.len()).map(|store| cluster.key(store, &format!("client{client}"))).collect()
}

fn work(gateways: &[SocketAddr], client: usize, keys: &[String], reported: &ClientLog, over: &AtomicBool) {
    let mut restless = Restless { gateways, at: client % gateways.len(), client: None };
    let count = keys.len().to_string();
    while !over.load(Ordering::Relaxed) {
        // Each key gets one, by itself or together with the others.
        let mut done = keys.iter().map(|key| restless.ask(&["INCR", key])).collect::<Vec<_>>();
        let script = ["EVAL", SCRIPT, &count].into_iter().chain(keys.iter().map(String::as_str));
        done.push(restless.ask(&script.collect::<Vec<_>>()));
        match done.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(_) => drop(reported.done.fetch_add(1, Ordering::Relaxed)),
            Err(wrong) => return reported.wrong.lock().expect("no panic").push(wrong),
        }
        // Other tests need the processors, too.
        std::thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn a_rolling_restart_fails_nobody() {
    let mut cluster = TestCluster::start(3, 2, Some("periodic"));
    let gateways: Vec<SocketAddr> = cluster.gateways.iter().map(|gateway| gateway.address()).collect();
    let names: Vec<Vec<String>> = (0..CLIENTS).map(|client| keys(&cluster, client)).collect();
    let reported: Vec<ClientLog> = (0..CLIENTS).map(|_| ClientLog::default()).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (gateways, names, reported, over) = (&gateways, &names[client], &reported[client], &over);
            scope.spawn(move || work(gateways, client, names, reported, over));
        }
        let _ends = SetOnDrop(&over);
        let all_go_on = || {
            let before: Vec<u64> =
                reported.iter().map(|reported| reported.done.load(Ordering::Relaxed)).collect();
            wait_until("all clients go on", || {
                let went_on = |(reported, before): (&ClientLog, &u64)| {
                    let failed = !reported.wrong.lock().expect("no panic").is_empty();
                    failed || reported.done.load(Ordering::Relaxed) >= before + SOME
                };
                reported.iter().zip(&before).all(went_on)
            });
        };
        all_go_on();
        for store in 0..cluster.stores.len() {
            cluster.stores[store].stop();
            cluster.stores[store].start();
            cluster.wait();
            all_go_on();
        }
        for gateway in 0..cluster.gateways.len() {
            cluster.gateways[gateway].stop();
            cluster.gateways[gateway].start();
            cluster.wait();
            all_go_on();
        }
    });
    let wrong: Vec<String> =
        reported.iter().flat_map(|reported| reported.wrong.lock().expect("no panic").clone()).collect();
    assert!(wrong.is_empty(), "clients were told: {wrong:#?}");
    let mut client = cluster.client(0);
    for (names, reported) in names.iter().zip(&reported) {
        let rounds = reported.done.load(Ordering::Relaxed);
        for key in names {
            assert_eq!(
                client.call(["GET", key]).text().map(|text| String::from_utf8_lossy(text).into_owned()),
                Some((2 * rounds).to_string()),
                "{key}"
            );
        }
    }
}

#[test]
fn whoever_waits_at_a_node_that_ends_is_told_to_ask_again() {
    let mut cluster = TestCluster::start(1, 1, Some("periodic"));
    let mut client = cluster.client(0);
    client.send(["BLPOP", "queue", "0"]);
    wait_until("it waits", || cluster.gateways[0].server().info("blocked_clients") == 1);
    cluster.stores[0].stop();
    let reported = client.read();
    assert!(is_to_ask_again(&reported), "{reported:?}");
    cluster.stores[0].start();
    cluster.wait();
    assert_eq!(client.run("RPUSH queue a"), Value::Integer(1));
    let popped = client.run("BLPOP queue 0");
    assert!(matches!(&popped, Value::Array(found) if found.len() == 2), "{popped:?}");
}
