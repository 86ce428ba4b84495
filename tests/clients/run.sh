#!/usr/bin/env bash
# Runs clients that are not ours against servers of their own: programs of the Redis protocol in Python, JavaScript, Go and
# Java with their ordinary packages, on one process and on a gateway with store nodes; the examples of gRPC in Python and Go
# with stubs that the ordinary tools make of gateway.proto; those of HTTP in Python and TypeScript that two generators make of
# openapi.json, to which schemathesis holds the server; and the recipes and examples of the book.
#
# Usage: run.sh PROGRAM FOLDER, which is for what is fetched and made here; or run.sh fetch FOLDER, which does only that.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
proto=$here/../../proto
recipes=$here/../../docs/recipes
python=$folder/venv/bin/python
# A setting of the shell must not reach the servers.
unset "${!MOONSHARD_@}"

# What requirements.txt has is for these; Go builds the modules of go.mod with whatever it needs beyond itself.
if ! "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo '***** Python is older than 3.11: clients of others are SKIPPED *****'
    exit 0
fi

# The programs in Java run for a moment: optimising them, and collecting garbage in threads of its own, is lost work.
java=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC)
export MAVEN_OPTS="${MAVEN_OPTS:-} ${java[*]}"

# What runs beside the rest, each with a log that is shown when it is waited for.
declare -A running=()
beside() { # NAME COMMAND...
    local name=$1
    shift
    (set -e; "$@") >"$folder/$name.log" 2>&1 </dev/null &
    running[$name]=$!
}
wait_for() { # NAME...
    local name failed=0
    for name in "$@"; do
        if ! wait "${running[$name]}"; then
            echo "$name has failed:"
            failed=1
        fi
        unset "running[$name]"
        cat "$folder/$name.log"
    done
    return "$failed"
}

# Ends what was started, the last first: a gateway before its stores.
servers=()
end() {
    trap - EXIT
    for ((i = ${#servers[@]} - 1; i >= 0; i--)); do
        kill "${servers[i]}" 2>/dev/null || true
        wait "${servers[i]}" || true
    done
    for job in "${running[@]}"; do kill "$job" 2>/dev/null || true; done
}
trap end EXIT

serve() { # NAME READY ARGUMENTS...
    local name=$1 ready=$2
    shift 2
    # What a server of another time said is not for this one.
    rm -f "$folder/$name.out"
    # How long a script takes is the machine's matter.
    MOONSHARD_SCRIPT_TIMEOUT_MS=60000 "$program" "$@" --data-dir none >"$folder/$name.out" 2>"$folder/$name.log" </dev/null &
    servers+=("$!")
    until grep -qs "^$ready" "$folder/$name.out"; do
        kill -0 "${servers[-1]}" || { cat "$folder/$name.log"; exit 1; }
        sleep 0.1
    done
}
address() { sed -n "s/.* $2=\([^ ]*\).*/\1/p" "$folder/$1.out"; } # NAME FACE

fetch_python() {
    "${PYTHON:-python3}" -m venv --clear "$folder/venv"
    # What is imported is compiled then: that is a part of what there is.
    "$python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all: \
        --requirement "$here/requirements.txt"
    touch "$folder/ready"
}

fetch_node() {
    mkdir -p "$folder/node"
    rm -rf "$folder/node/recipes"
    cp "$here"/node/* "$folder/node"
    cp -r "$recipes" "$folder/node/recipes"
    cd "$folder/node"
    if [[ ! ready -nt $here/node/package-lock.json ]]; then
        # Not `npm ci`, which refuses a lock file without the optional packages of systems that a registry does not have.
        npm install --omit=optional --ignore-scripts --prefer-offline --no-audit --no-fund --loglevel=error
        touch ready
    fi
}

fetch_java() {
    mkdir -p "$folder/java"
    cd "$folder/java"
    if [[ ! ready -nt $here/java/SHA256SUMS ]]; then
        rm -rf jars
        mvn --quiet --batch-mode -Dstyle.color=never --file "$here/java/pom.xml" -DoutputDirectory="$PWD/jars" \
            org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
        (cd jars && sha256sum --quiet --check "$here/java/SHA256SUMS")
        touch ready
    fi
    javac "${java[@]/#/-J}" -cp 'jars/*' -d classes "$here"/java/*.java
}

make_go() {
    rm -rf "$folder/go"
    cp -r "$here/go" "$folder/go"
    cp -r "$recipes" "$folder/go/recipes"
    cd "$folder/go"
    # Not optimised, without symbols and without a C compiler: they are compiled more often than they run.
    export GOBIN=$folder/go/bin CGO_ENABLED=0 GOFLAGS="-mod=readonly '-ldflags=-s -w' '-gcflags=all=-N -l -dwarf=false'"
    go install tool
    PATH=$GOBIN:$PATH "$python" -m grpc_tools.protoc -I "$proto" --go_out=. --go_opt=module=moonshard.example \
        --go-grpc_out=. --go-grpc_opt=module=moonshard.example gateway/v1/gateway.proto
    go vet ./...
    go install . ./resp ./recipes/...
}

hold_to_openapi() {
    cd "$folder"
    if ! venv/bin/schemathesis --config-file "$here/schemathesis.toml" run --no-color \
        "http://$1/v1/openapi.json" >schemathesis.out 2>&1; then
        cat schemathesis.out
        return 1
    fi
    grep 'generated,' schemathesis.out
}

# Clients that two generators make of the description of the HTTP API, one after the other on one server.
use_openapi() { # HOST:PORT
    cd "$folder/python"
    "$folder/venv/bin/openapi-python-client" generate --url "http://$1/v1/openapi.json" --meta none --overwrite \
        --output-path http_client --config "$here/openapi-python-client.yml" --fail-on-warning
    PYTHONPATH=. "$python" "$here/python/openapi.py" "$1"
    if [[ $has_node ]]; then
        cd "$folder/node"
        OPENAPI_SERVER=$1 node_modules/.bin/openapi-ts
        "$program" script definitions typescript >redis.d.ts
        node_modules/.bin/tsc
        node out/openapi.js "$1"
    fi
}

if [[ ! $folder/ready -nt $here/requirements.txt ]]; then
    echo "Fetching clients into $folder"
    fetch_python
fi
has_node= has_java= has_go=
if command -v npm >/dev/null && node --eval 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then
    has_node=yes
    beside fetch-node fetch_node
else
    echo '***** Node.js 20 is not installed: ioredis, node-redis, BullMQ and Bottleneck are SKIPPED *****'
fi
if command -v mvn >/dev/null && javac -version 2>&1 | awk '{ exit !($2 + 0 >= 17) }'; then
    has_java=yes
    beside fetch-java fetch_java
else
    echo '***** Maven or a JDK of 17 is not installed: Jedis and Lettuce are SKIPPED *****'
fi
if command -v go >/dev/null; then
    has_go=yes
    beside make-go make_go
else
    echo '***** go is not installed: the example in Go, go-redis and asynq are SKIPPED *****'
fi
if [[ $program == fetch ]]; then
    wait_for "${!running[@]}"
    exit 0
fi

serve faces 'moonshard ready' --resp 127.0.0.1:0 --http 127.0.0.1:0 --grpc 127.0.0.1:0
serve process 'moonshard ready' --resp 127.0.0.1:0 --http off --grpc off
serve store-1 'moonshard store ready' store --grpc 127.0.0.1:0
serve store-2 'moonshard store ready' store --grpc 127.0.0.1:0
serve store-3 'moonshard store ready' store --grpc 127.0.0.1:0
stores=$(address store-1 grpc),$(address store-2 grpc),$(address store-3 grpc)
serve gateway 'moonshard ready' gateway --resp 127.0.0.1:0 --http off --grpc off --stores "$stores"
serve cluster 'moonshard ready' gateway --resp 127.0.0.1:0 --http off --grpc off --stores "$stores" --cluster-enabled yes

# It looks at all scripts that run, so nobody else is on its server.
mkdir -p "$folder/python"
"$python" -m grpc_tools.protoc -I "$proto" --python_out="$folder/python" --grpc_python_out="$folder/python" \
    gateway/v1/gateway.proto
PYTHONPATH=$folder/python "$python" "$here/python/example.py" "$(address faces grpc)"
PYTHONPATH=$folder/python MOONSHARD_GRPC=$(address faces grpc) "$python" "$here/../../docs/examples/eval.py" >/dev/null
beside schemathesis hold_to_openapi "$(address faces http)"

# Each program has a database for itself. Beside the gateway there is another one for clients of Redis Cluster.
programs=()
declare -A clusters=([process]='' [gateway]=$(address cluster resp))
start() { # NAME COMMAND...
    local name=$1 where
    shift
    for where in process gateway; do
        CLUSTER=${clusters[$where]} beside "$name-$where" \
            timeout 300 "$@" "$(address "$where" resp)" "$((${#programs[@]} / 2 + 1))"
        programs+=("$name-$where")
    done
}
start redis-py "$python" "$here/python/redis_py.py"
start celery "$python" "$here/python/celery_tasks.py"
start laravel "$python" "$here/python/laravel_queue.py"
start recipes-redis-py "$here/recipes.sh" "$recipes" "$python" redis_py.py
start recipes-concurrent "$python" "$here/python/recipes.py"
if [[ $has_node ]]; then
    wait_for fetch-node
    start ioredis node "$folder/node/ioredis.mjs"
    start node-redis node "$folder/node/node_redis.mjs"
    start bullmq node "$folder/node/bullmq.mjs"
    start bottleneck node "$folder/node/bottleneck.mjs"
    start recipes-ioredis "$here/recipes.sh" "$folder/node/recipes" node ioredis.mjs
fi
if [[ $has_java ]]; then
    wait_for fetch-java
    start java java "${java[@]}" -cp "$folder/java/jars/*:$folder/java/classes" Programs
    start recipes-jedis "$here/recipes.sh" "$recipes" java "${java[@]}" -cp "$folder/java/jars/*" Jedis.java
fi
if [[ $has_go ]]; then
    wait_for make-go
    start go-redis "$folder/go/bin/resp"
    start recipes-go-redis "$here/recipes.sh" "$recipes" "$folder/go/bin/{}"
fi
beside maintenance timeout 300 "$python" "$here/python/maintenance.py" "$program" "$stores"
programs+=(maintenance)
if command -v redis-cli >/dev/null; then
    # The examples are those of a server that nobody else uses.
    serve examples 'moonshard ready' --resp 127.0.0.1:0 --http 127.0.0.1:0 --grpc 127.0.0.1:0
    beside book "$python" "$here/python/book.py" "$program" "$(address examples resp)" "$(address examples http)" "$(address examples grpc)"
    programs+=(book)
else
    echo '***** redis-cli is not installed: the examples of the book are SKIPPED *****'
fi
serve http 'moonshard ready' --resp 127.0.0.1:0 --http 127.0.0.1:0 --grpc off
beside openapi use_openapi "$(address http http)"
wait_for schemathesis openapi "${programs[@]}"
if [[ $has_go ]]; then "$folder/go/bin/moonshard.example" "$(address faces grpc)"; fi
