//! Gateways of the same store nodes are one server to whoever ends something.

use tests::cluster::TestCluster;
use tests::{Client, Value, notation, wait_until};

const ENDLESS: &str = "redis.call('SET', KEYS[1], 'half') while true do end";
const NOBODY: &str = "-NOTBUSY No scripts in execution right now.";

fn say(client: &mut Client, line: &str) -> String {
    notation::reply(&client.run(line))
}

fn sha_of(client: &mut Client, script: &str) -> String {
    let sha = client.call(["SCRIPT", "LOAD", script]);
    String::from_utf8_lossy(sha.text().expect("a digest")).into_owned()
}

/// Ends something with `kill` once it has begun: until then there is nobody.
fn end(client: &mut Client, kill: &str) {
    wait_until("something to kill", || {
        let reply = say(client, kill);
        assert!([NOBODY, "+OK"].contains(&&*reply), "{reply}");
        reply == "+OK"
    });
}

#[test]
fn scripts_and_functions_are_ended_from_any_gateway() {
    let cluster = TestCluster::start(2, 3, None);
    let (mut caller, mut other) = (cluster.client(0), cluster.client(1));
    let key = cluster.key(1, "key");
    let sha = sha_of(&mut caller, ENDLESS);
    assert_eq!(say(&mut other, "SCRIPT KILL"), NOBODY);

    caller.send(["EVALSHA", &sha, "1", &key]);
    // A run of another one, and functions, are not meant.
    wait_until("the run", || say(&mut cluster.client(0), "SCRIPT RUNNING") != "[]");
    assert_eq!(say(&mut other, &format!("SCRIPT KILL {}", "0".repeat(40))), NOBODY);
    assert_eq!(say(&mut other, "FUNCTION KILL"), NOBODY);
    end(&mut other, &format!("SCRIPT KILL {sha}"));
    let ended = notation::reply(&caller.read());
    assert!(ended.starts_with("-KILLED "), "{ended}");

    // All of them, wherever they are.
    let mut callers = [0, 2].map(|gateway| {
        let mut caller = cluster.client(gateway);
        caller.send(["EVALSHA", &sha, "1", &cluster.key(gateway / 2, "another")]);
        wait_until("the run", || say(&mut cluster.client(gateway), "SCRIPT RUNNING") != "[]");
        caller
    });
    assert_eq!(say(&mut other, "SCRIPT KILL"), "+OK");
    for caller in &mut callers {
        let ended = notation::reply(&caller.read());
        assert!(ended.starts_with("-KILLED "), "{ended}");
    }

    let library = "#!lua name=lib\nredis.register_function('endless', function() while true do end end)";
    assert_eq!(notation::reply(&caller.call(["FUNCTION", "LOAD", library])), "\"lib\"");
    caller.send(["FCALL", "endless", "0"]);
    wait_until("the run", || say(&mut cluster.client(0), "FUNCTION STATS").contains("endless"));
    assert_eq!(say(&mut other, "SCRIPT KILL"), NOBODY);
    end(&mut other, "FUNCTION KILL");
    let ended = notation::reply(&caller.read());
    assert!(ended.starts_with("-KILLED "), "{ended}");

    assert_eq!(other.call(["GET", &key]), Value::Null);
    assert_eq!(say(&mut other, "SCRIPT KILL"), NOBODY);
}

#[test]
fn a_gateway_that_stands_still_holds_nobody_up() {
    let cluster = TestCluster::start(2, 3, None);
    let still = &cluster.gateways[2];
    still.freeze(true);
    let mut caller = cluster.client(0);
    caller.send(["EVAL", ENDLESS, "1", &cluster.key(0, "key")]);
    end(&mut cluster.client(1), "SCRIPT KILL");
    let ended = notation::reply(&caller.read());
    assert!(ended.starts_with("-KILLED "), "{ended}");
    still.freeze(false);
}

/// A message goes to all and waits for nobody: they have all been sent before the nodes give up one that stands still.
#[test]
fn a_message_does_not_wait_for_a_gateway_that_stands_still() {
    const MESSAGES: usize = 40;
    let cluster = TestCluster::start(2, 3, None);
    let (mut publishes, mut hears) = (cluster.client(0), cluster.client(2));
    say(&mut hears, "SUBSCRIBE ch");
    let mut round = 0;
    // On a machine that is busy for seconds one may be given up all the same.
    wait_until("all is heard by one that stood still", || {
        round += 1;
        cluster.gateways[2].freeze(true);
        for number in 0..MESSAGES {
            say(&mut publishes, &format!("PUBLISH ch {round}:{number}"));
        }
        cluster.gateways[2].freeze(false);
        wait_until("it hears again", || say(&mut publishes, &format!("PUBLISH ch end:{round}")) == "1");
        let end = format!("[\"message\", \"ch\", \"end:{round}\"]");
        let mut heard = Vec::new();
        while heard.last() != Some(&end) {
            heard.push(notation::reply(&hears.read()));
        }
        let wanted = (0..MESSAGES).map(|number| format!("[\"message\", \"ch\", \"{round}:{number}\"]"));
        let heard: Vec<String> =
            heard.into_iter().filter(|text| text.contains(&format!("\"{round}:"))).collect();
        wanted.eq(heard)
    });
}
