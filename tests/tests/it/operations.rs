//! The commands of the chapters on operations, security and slots that move, run as they are, with a server and a cluster of
//! their own. Those about replicas are in [`super::cluster_chapter`].

use tests::TestCluster;
use tests::cluster::Member;
use tests::ports::fixed_port;
use tests::temp_dir::TempDir;

use super::shell_blocks::{have, page, run, script, split};

/// What stands in for systemd and for the default ports. A command of Redis that fails is a failure.
const PRELUDE: &str = r#"set -euo pipefail
systemctl() {
    case "$1 $2" in
        "start moonshard")
            moonshard serve --resp "127.0.0.1:$RESP" --http "$MOONSHARD_HTTP" --grpc off --data-dir "$DATA" \
                >>server.log 2>&1 &
            server=$!
            until moonshard health >/dev/null 2>&1; do
                kill -0 "$server" || { cat server.log; return 1; }
                sleep 0.05
            done ;;
        "stop moonshard") kill "$server" && wait "$server" ;;
        "restart moonshard") systemctl stop moonshard && systemctl start moonshard ;;
        *) echo "systemctl $*: not here"; return 1 ;;
    esac
}
redis-cli() { command redis-cli -e -p "$RESP" "$@"; }
trap 'kill "$server" 2>/dev/null || true' EXIT
systemctl start moonshard
redis-cli SET visits 41
"#;

/// What must hold in the end: a backup was taken, restored, and has the data.
const END: &str = r#"
test "$(redis-cli GET visits)" = 41
told=$(redis-cli EVAL "redis.call('SET', KEYS[1], 'half') while true do end" 1 visits 2>&1 || true)
echo "$told" | grep -q '^SCRIPTLIMIT'
test "$(redis-cli GET visits)" = 41
systemctl stop moonshard
"#;

#[test]
fn the_commands_of_the_page_work() {
    if !have(&["redis-cli", "curl"]) {
        return;
    }
    let (operations, _) = split(&page("operations.md"), "## Replicas");
    let cluster_page = page("cluster.md");
    let (_, moving) = split(&cluster_page, "## Moving slots");
    let all = [&*operations, &page("security.md"), moving].map(script).concat();
    let dir = TempDir::made("operations");
    let (cluster, mut fourth) = (TestCluster::start(3, 1, None), Member::store(None, &[]));
    fourth.start();
    let http = format!("127.0.0.1:{}", fixed_port());
    let data = dir.child("data");
    let mut places =
        vec![("127.0.0.1:8080".to_owned(), http.clone()), ("/var/lib/moonshard".to_owned(), data.clone())];
    places.push(("redis://localhost:6379".to_owned(), "\"redis://127.0.0.1:$RESP\"".to_owned()));
    // How long a script takes is the machine's matter.
    places.push((
        "script-timeout-ms 500 script-timeout-max-ms 2000".to_owned(),
        "script-timeout-ms 60000".to_owned(),
    ));
    let nodes = cluster.wires.iter().map(|wire| wire.address()).chain([fourth.address()]);
    places.extend(nodes.zip(1..).map(|(node, number)| (format!("10.0.0.{number}:7101"), node.to_string())));
    let variables = [("MOONSHARD_HTTP", http), ("RESP", fixed_port().to_string()), ("DATA", data)];
    run([PRELUDE, &all, END].concat(), &dir, &places, &variables);
}
