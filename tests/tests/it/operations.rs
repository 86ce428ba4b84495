//! The commands of the chapters on operations and security, run as they are, with a server and a cluster of their own.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::cluster::Member;
use tests::ports::fixed_port;
use tests::temp_dir::TempDir;
use tests::{TestCluster, process};

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

/// The fenced blocks of shell commands.
fn blocks(page: &str) -> Vec<&str> {
    let starts = page.split("\n```sh\n").skip(1);
    starts.map(|block| block.split("\n```").next().expect("a first part")).collect()
}

#[test]
fn the_commands_of_the_page_work() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let read = |page: &str| std::fs::read_to_string(root.join("docs/src").join(page)).expect("a page");
    let page = ["operations.md", "security.md"].map(read).concat();
    for tool in ["redis-cli", "curl"] {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
            // Not through print!, which the test harness would keep for itself.
            let line = format!(
                "\n***** {tool} is not installed: the commands of the documentation are SKIPPED *****\n"
            );
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            return;
        }
    }
    let dir = TempDir::made("operations");
    let programs = TempDir::made("operations-bin");
    std::os::unix::fs::symlink(process::binary(), programs.path().join("moonshard")).expect("a link");
    let (cluster, mut fourth) = (TestCluster::start(3, 1, None), Member::store(None, &[]));
    fourth.start();
    let http = format!("127.0.0.1:{}", fixed_port());

    let mut script = PRELUDE.to_owned();
    let all = blocks(&page);
    assert!(all.len() > 6, "the blocks of the page look different now");
    for block in all {
        // Told when it fails, as the last one that was told.
        let _ = writeln!(script, "echo '--- next:'; cat <<'BLOCK'\n{block}\nBLOCK\n{block}");
    }
    script.push_str(END);
    let data = dir.child("data");
    let mut places =
        vec![("127.0.0.1:8080".to_owned(), http.clone()), ("/var/lib/moonshard".to_owned(), data.clone())];
    // How long a script takes is the machine's matter.
    places.push((
        "script-timeout-ms 500 script-timeout-max-ms 2000".to_owned(),
        "script-timeout-ms 60000".to_owned(),
    ));
    let nodes = cluster.wires.iter().map(|wire| wire.address()).chain([fourth.address()]);
    places.extend(nodes.zip(1..).map(|(node, number)| (format!("10.0.0.{number}:7101"), node.to_string())));
    for (there, here) in places {
        assert!(script.contains(&there), "nothing is said of {there} any more");
        script = script.replace(&there, &here);
    }

    let path = std::env::var("PATH").expect("a PATH");
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MOONSHARD_"))
    {
        command.env_remove(name);
    }
    command
        .args(["-c", &script])
        .current_dir(dir.path())
        .env("PATH", format!("{}:{path}", programs.text()))
        .envs([("MOONSHARD_HTTP", http), ("RESP", fixed_port().to_string()), ("DATA", data)])
        .stdin(Stdio::null());
    let output = command.output().expect("bash starts");
    let reported = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n--- errors:\n{}", reported[0], reported[1]);
}
