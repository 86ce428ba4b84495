#!/usr/bin/env bash
# Runs all tests side by side: what they need from registries is fetched while Rust is compiled, then the programs of Rust
# tests, the clients of others, the tests of deploy/, those of the web console, and last and least urgent the lints. The output
# of each part is shown in one piece when the part has ended; all of it is in TARGET/tests. A part that has passed with the same
# files, tools and settings is not run again.
#
# Usage: [FRESH=yes] run.sh TARGET        FRESH=yes runs all parts.
set -euo pipefail
# Each part has a process group of its own, which can be ended as a whole.
set -m

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1/tests"
target=$(cd "$1" && pwd)
logs=$target/tests
rm -f "$logs"/*
cd "$root"
# A setting of the shell must not choose other programs or longer runs by accident.
export INSTA_UPDATE=no COMPILED_GUEST=$target/debug/guest
# Files of tests are in memory where there is room, and programs can be executed there: tests kill processes and damage files,
# which needs no disk, and making, flushing and deleting files costs less CPU time. They stay if something fails.
memory=
if [[ -z "${TMPDIR:-}" && -w /dev/shm && $(df --output=avail --block-size=1G /dev/shm | tail -n 1) -ge 4 ]]; then
    memory=$(mktemp --directory /dev/shm/moonshard-tests-XXXXXX)
    if cp "$(type -P true)" "$memory" && "$memory/true"; then export TMPDIR=$memory; fi
fi

# As they are given: below some are added for the build.
settings=$(env | grep -E '^(MOONSHARD|PROPTEST|RUST|CARGO|KUBE)' | sort || true)
# All that the result of a part depends on: the files of the project, changed ones too, the tools, and the settings of tests.
state_of_all() {
    local tool
    {
        git ls-files --cached --others --exclude-standard -z | sort --zero-terminated | xargs --null sha256sum
        for tool in rustc cargo node python3 go java redis-server chromium; do
            type -P "$tool" && { "$tool" --version || "$tool" version; } 2>/dev/null
        done
        echo "$settings"
    } 2>&1 | sha256sum
}
passes=$target/passed
mkdir -p "$passes"
state=
if [[ "${FRESH:-}" != yes ]] && git rev-parse --is-inside-work-tree >/dev/null 2>&1; then state=$(state_of_all); fi

declare -A parts=()
failed=()
# The longest that all parts may take from the first test on: then the logs of those that go on show which test hangs.
most_seconds=2700
begin() { # NAME COMMAND...
    local name=$1
    shift
    if [[ -n "$state" && -e "$passes/$name" && "$(<"$passes/$name")" == "$state" ]]; then
        echo "===== $name: has passed with the same files, tools and settings (FRESH=yes runs it again)"
        return
    fi
    rm -f "$passes/$name"
    # The one that takes longest waits for nobody.
    (set -e; SECONDS=0; [[ $name == it ]] || renice -n 3 "$BASHPID" >/dev/null; "$@"; echo "$SECONDS" >"$logs/$name.seconds"; times >"$logs/$name.times") >"$logs/$name.log" 2>&1 </dev/null &
    parts[$!]=$name
}
# Lines about tests that passed, of Rust and of Node.js.
passed='^(test .* \.\.\. ok( <.*>)?|running [0-9]+ tests?|TAP version .*|1\.\..*|(# Subtest: |# moonshard: |ok ).*|  (---|duration_ms: .*|type: .*|\.\.\.)|)$'
# Waits for one part that ends, and shows what it wrote: tests that passed are not worth a line each.
finish() {
    local id status=0 name
    wait -n -p id "${!parts[@]}" ${watchdog:+"$watchdog"} || status=$?
    if [[ $id == "${watchdog:-}" ]]; then
        echo "***** A test hangs: not done after $most_seconds s *****"
        for id in "${!parts[@]}"; do kill -- "-$id" || true; done
        unset watchdog
        return
    fi
    name=${parts[$id]}
    unset "parts[$id]"
    if ((status == 0)); then
        echo "===== $name: passed in $(<"$logs/$name.seconds") s, CPU time: $(sed -n '2s/ / user, /p' "$logs/$name.times") system"
        grep -vE "$passed" "$logs/$name.log" || true
        # Files may have been changed meanwhile.
        if [[ -n "$state" && "$(state_of_all)" == "$state" ]]; then echo "$state" >"$passes/$name"; fi
    else
        echo "===== $name: FAILED"
        cat "$logs/$name.log"
        failed+=("$name")
    fi
}
end() {
    trap - EXIT
    for id in "${!parts[@]}" ${watchdog:+"$watchdog"}; do kill -- "-$id" 2>/dev/null || true; done
    if [[ -n $memory ]] && ((!${#failed[@]})); then rm -rf "$memory"; fi
}
trap end EXIT
trap 'exit 1' INT TERM

# Programs of Rust tests, "DIRECTORY PROGRAM" a line. The harness knows how long a test took, but says so only where
# unstable options are allowed; that is asked of the finished program, so nothing is compiled in another way.
rust() {
    local directory program timed status=0
    while read -r directory program; do
        timed=()
        if RUSTC_BOOTSTRAP=1 "$program" -Zunstable-options --report-time --list >/dev/null 2>&1; then
            timed=(-Zunstable-options --report-time)
        fi
        echo "----- ${program#"$target"/}"
        (cd "$directory" && RUSTC_BOOTSTRAP=1 CARGO_MANIFEST_DIR=$directory "$program" "${timed[@]}" </dev/null) || status=1
    done
    return "$status"
}
chosen() { # PATTERN, or -v PATTERN
    grep "$@" "$logs/programs" | rust
}

begin clients-fetch tests/clients/run.sh fetch "$target/clients"
begin deploy-fetch deploy/tests/run.sh fetch "$target/deploy"
make --no-print-directory zig console docs
# All at once, so that nothing is compiled twice with other features. The tests of the whole server start the program.
# Clippy compiles as rustc does, and lints on the way: a check of its own takes three minutes of CPU time more.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver
# Nothing was compiled yet that could be compiled again in part.
if [[ ! -d $target/debug/incremental ]]; then export CARGO_INCREMENTAL=0; fi
cargo build --locked --workspace --all-targets --message-format json-render-diagnostics \
    >"$logs/artifacts" 2> >(tee "$logs/warnings" >&2)
sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' "$logs/artifacts" \
    >"$logs/programs"
program=$target/debug/moonshard
# A start compiles the guest, which the first tests would all do at once otherwise.
exec {started}< <(exec "$program" serve --resp 127.0.0.1:0 --http off --grpc off --data-dir none 2>"$logs/guest.log")
read -r -u "$started" || true
kill $! && exec {started}<&-
echo "Testing"

sleep "$most_seconds" &
watchdog=$!
# Those that take longest first. Most tests of servers wait most of the time: one more at a time keeps all CPUs busy to the end.
servers() { RUST_TEST_THREADS=$(($(nproc) + 1)) chosen "^$root/tests .*/it-[0-9a-f]*$"; }
begin it servers
begin long chosen "^$root/tests .*/long-[0-9a-f]*$"
begin units chosen -vE "^$root/tests .*/(it|long)-[0-9a-f]*$"
while [[ " ${parts[*]} " == *-fetch* ]]; do finish; done
begin clients tests/clients/run.sh "$program" "$target/clients"
begin deploy deploy/tests/run.sh "$program" "$target/deploy"
if [[ -e web-console/dist/built ]]; then begin console npm run --silent --prefix web-console test; fi
lints() {
    nice make --no-print-directory style doctests
    if grep '^warning' -A 20 "$logs/warnings"; then return 1; fi
}
begin lints lints
while ((${#parts[@]})); do finish; done

echo '===== The slowest tests, in seconds'
sed -n 's/^test \(.*\) \.\.\. ok <\(.*\)s>$/\2 \1/p' "$logs"/*.log | sort -rn | awk 'NR <= 20 { printf "%8.1f  %s\n", $1, $2 }'
if ((${#failed[@]})); then
    echo "***** FAILED: ${failed[*]} *****"
    exit 1
fi
