#!/usr/bin/env bash
# Runs clients that are not ours against a server of their own: the examples in Python and Go with stubs that the
# ordinary tools make of gateway.proto, and schemathesis, which holds the HTTP API to openapi.json.
#
# Usage: run.sh PROGRAM FOLDER, which is for what is fetched and made here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
proto=$here/../../proto
python=$folder/venv/bin/python

# What requirements.txt has is for these; Go builds the modules of go.mod with whatever it needs beyond itself.
if ! "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo '***** Python is older than 3.11: clients of others are SKIPPED *****'
    exit 0
fi
if [[ ! $folder/ready -nt $here/requirements.txt ]]; then
    echo "Fetching clients into $folder"
    "${PYTHON:-python3}" -m venv --clear "$folder/venv"
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        --requirement "$here/requirements.txt"
    touch "$folder/ready"
fi

"$program" --resp 127.0.0.1:0 --http 127.0.0.1:0 --grpc 127.0.0.1:0 --data-dir none \
    >"$folder/server.out" 2>"$folder/server.log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" || true' EXIT
until grep -q '^moonshard ready' "$folder/server.out"; do
    kill -0 "$server" || { cat "$folder/server.log"; exit 1; }
    sleep 0.1
done
address() { sed -n "s/.* $1=\([^ ]*\).*/\1/p" "$folder/server.out"; }

mkdir -p "$folder/python"
"$python" -m grpc_tools.protoc -I "$proto" --python_out="$folder/python" --grpc_python_out="$folder/python" \
    gateway/v1/gateway.proto
PYTHONPATH=$folder/python "$python" "$here/python/example.py" "$(address grpc)"

(
    cd "$folder"
    if ! venv/bin/schemathesis --config-file "$here/schemathesis.toml" run --no-color \
        "http://$(address http)/v1/openapi.json" >schemathesis.log 2>&1; then
        cat schemathesis.log
        exit 1
    fi
    grep 'generated,' schemathesis.log
)

if command -v go >/dev/null; then
    rm -rf "$folder/go"
    cp -r "$here/go" "$folder/go"
    (
        cd "$folder/go"
        export GOBIN=$folder/go/bin GOFLAGS=-mod=readonly
        go install tool
        PATH=$GOBIN:$PATH "$python" -m grpc_tools.protoc -I "$proto" --go_out=. --go_opt=module=moonshard.example \
            --go-grpc_out=. --go-grpc_opt=module=moonshard.example gateway/v1/gateway.proto
        go vet . ./gateway/v1
        go run . "$(address grpc)"
    )
else
    echo '***** go is not installed: the example in Go is SKIPPED *****'
fi
