//! The commands of the pages on clusters with replicas, run as they are, each page with five processes of its own.

use serde_json::Value;
use tests::cluster::key_on;
use tests::ports::fixed_port;
use tests::temp_dir::TempDir;

use super::shell_blocks::{have, page, run, script, split};

/// What stands in for five machines with a service of systemd each, and for a gateway. All of that ends with the script.
const PRELUDE: &str = r#"set -euo pipefail
declare -A address=([10.0.0.1]=10.0.0.1:7101 [10.0.0.2]=10.0.0.2:7101 [10.0.0.3]=10.0.0.3:7101
    [10.0.0.4]=10.0.0.4:7101 [10.0.0.5]=10.0.0.5:7101)
declare -A server=()
ssh() {
    local machine=$1 line="${*:2}" place=/var/lib/moonshard
    local data=$DATA/$machine
    mkdir -p "$data"
    eval "${line//$place/$data}"
}
systemctl() {
    case "$1 $2" in
        "start moonshard")
            moonshard store --grpc "${address[$machine]}" --data-dir "$DATA/$machine" --durability sync \
                >>"$machine.log" 2>&1 &
            server[$machine]=$!
            until moonshard health --grpc "${address[$machine]}" >/dev/null 2>&1; do
                kill -0 "${server[$machine]}" || { cat "$machine.log"; return 1; }
                sleep 0.05
            done ;;
        "stop moonshard")
            kill "${server[$machine]}" && wait "${server[$machine]}"
            unset "server[$machine]" ;;
        "restart moonshard") systemctl stop moonshard && systemctl start moonshard ;;
        *) echo "systemctl $*: not here"; return 1 ;;
    esac
}
redis-cli() { command redis-cli -e -p "$RESP" "$@"; }
trap 'kill -9 "${server[@]}" 2>/dev/null || true; wait' EXIT
for machine in 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5; do ssh "$machine" systemctl start moonshard; done
"#;

/// Of the page on operations: its cluster exists,
const FOUNDED: &str = r#"
moonshard topology found --stores 10.0.0.1:7101,10.0.0.2:7101,10.0.0.3:7101
"#;

/// and is in use. Without replicas the gateway makes it one.
const IN_USE: &str = r#"
moonshard gateway --resp "127.0.0.1:$RESP" --http "$HTTP" --grpc off --stores 10.0.0.1:7101,10.0.0.2:7101,10.0.0.3:7101 \
    >>gateway.log 2>&1 &
server[gateway]=$!
until redis-cli SET visits 41 2>/dev/null; do
    kill -0 "${server[gateway]}" || { cat gateway.log; exit 1; }
    sleep 0.05
done
"#;

const VISITS: &str = r#"
test "$(redis-cli GET visits)" = 41
"#;

/// The last line is the cluster as it is.
const END: &str = r#"
moonshard topology --stores 10.0.0.1:7101,10.0.0.2:7101,10.0.0.3:7101,10.0.0.4:7101 groups --json
"#;

/// Of the section on failures: a script over all nodes is in doubt, and its coordinator has lost its disk.
const IN_DOUBT: &str = r#"
mark() {
    redis-cli EVAL "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end" 3 $KEY1 $KEY2 $KEY3 $1
}
mark before
ssh 10.0.0.1 systemctl stop moonshard
FAIL_POINTS=commit:after-record@1=abort ssh 10.0.0.1 systemctl start moonshard
until redis-cli DBSIZE 2>/dev/null; do sleep 0.05; done
mark after && exit 1
in_doubt() { moonshard topology --stores 10.0.0.2:7101 transactions --in-doubt; }
until [[ $(in_doubt | grep -c 'in doubt') == 2 ]]; do sleep 0.05; done
ssh 10.0.0.1 'rm -rf /var/lib/moonshard/*'
"#;

/// It is decided, and the node serves without its data.
const DECIDED: &str = r#"
[[ $(in_doubt) == "no transactions" ]]
until redis-cli DBSIZE 2>/dev/null; do sleep 0.05; done
[[ $(redis-cli MGET $KEY1 $KEY2 $KEY3 | tr '\n' ' ') == " after after " ]]
mark again
"#;

/// Runs a script with five machines; the cluster as it is then.
fn cluster_after(script: String) -> Value {
    let (said, addresses) = said_by([&script, END].concat());
    let mut groups = said.lines().last().expect("it shows the groups").to_owned();
    for (there, here) in addresses {
        groups = groups.replace(&format!("\"{here}\""), &format!("\"{}\"", there.trim_end_matches(":7101")));
    }
    serde_json::from_str(&groups).expect("it is JSON")
}

/// Runs a script with five machines; what it says, and which addresses stand for those of the machines.
fn said_by(script: String) -> (String, Vec<(String, String)>) {
    let dir = TempDir::made("cluster-chapter");
    let mut places: Vec<(String, String)> = (1..=5)
        .map(|number| (format!("10.0.0.{number}:7101"), format!("127.0.0.1:{}", fixed_port())))
        .collect();
    let addresses = places.clone();
    let http = format!("127.0.0.1:{}", fixed_port());
    if script.contains("127.0.0.1:8080") {
        places.push(("127.0.0.1:8080".to_owned(), http.clone()));
    }
    let [first, second, third] = [0, 1, 2].map(|store| key_on(store, 3, "key"));
    let variables = [
        ("HTTP", http),
        ("RESP", fixed_port().to_string()),
        ("DATA", dir.child("data")),
        ("KEY1", first),
        ("KEY2", second),
        ("KEY3", third),
    ];
    (run([PRELUDE, &script].concat(), &dir, &places, &variables), addresses)
}

fn addresses(of: &Value) -> Vec<&str> {
    let all = of.as_array().expect("a list").iter();
    all.map(|one| one["address"].as_str().expect("an address")).collect()
}

/// Checks that these machines and no others are the cluster, and that each group has three replicas on them.
fn is_on(cluster: &Value, machines: &[&str]) {
    let mut processes = addresses(&cluster["processes"]);
    processes.sort_unstable();
    assert_eq!(processes, machines, "{cluster}");
    let groups = cluster["groups"].as_array().expect("a list");
    assert_eq!(groups.len(), 4, "{cluster}");
    for group in groups {
        let replicas = addresses(&group["replicas"]);
        let are_there = replicas.iter().all(|machine| machines.contains(machine));
        assert!(replicas.len() == 3 && are_there, "{group}");
    }
}

#[test]
fn the_commands_of_the_chapter_work() {
    let chapter = page("cluster.md");
    let (_, replicas) = split(&chapter, "## Replicas");
    let cluster = cluster_after(script(replicas));
    is_on(&cluster, &["10.0.0.1", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
    // The second machine was to lead it, and the fifth has taken its place.
    assert_eq!(cluster["groups"][0]["name"], "g0");
    assert_eq!(cluster["groups"][0]["replicas"][0]["address"], "10.0.0.5");
}

#[test]
fn what_the_page_on_operations_says_of_replicas_works() {
    if !have(&["redis-cli", "curl"]) {
        return;
    }
    let operations = page("operations.md");
    let (_, replicas) = split(&operations, "## Replicas");
    let cluster = cluster_after([FOUNDED, IN_USE, &script(replicas), VISITS].concat());
    is_on(&cluster, &["10.0.0.2", "10.0.0.4", "10.0.0.5"]);
    let processes = cluster["processes"].as_array().expect("a list");
    let lost_its_disk = processes.iter().find(|process| process["address"] == "10.0.0.2");
    assert_ne!(lost_its_disk.expect("it is one of them")["id"], 2, "it has a new number");
}

#[test]
fn nodes_get_replicas_as_the_chapter_says() {
    if !have(&["redis-cli"]) {
        return;
    }
    let chapter = page("cluster.md");
    let (_, section) = split(&chapter, "## From nodes to replicas");
    let cluster = cluster_after([IN_USE, &script(section), VISITS].concat());
    is_on(&cluster, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
}

#[test]
fn what_the_chapter_says_of_failures_works() {
    if !have(&["redis-cli"]) {
        return;
    }
    let chapter = page("cluster.md");
    let (_, failures) = split(&chapter, "## Failures");
    said_by([IN_USE, IN_DOUBT, &script(failures), DECIDED].concat());
}
