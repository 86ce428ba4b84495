#!/usr/bin/env bash
# Reports, one line each, what a build needs and this machine does not have. Runs before anything is fetched or compiled,
# and starts no other program than those it looks for.
#
# Usage: preflight.sh         everything; fails if the server cannot be built
#        preflight.sh node    whether the web console can be built, without a word
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/../.."

python=${PYTHON:-python3}
failed=0

# report WHAT DEBIAN FEDORA MACOS
report() {
    echo "***** $1. Debian: $2. Fedora: $3. macOS: $4. *****" >&2
}

require() {
    report "$@"
    failed=1
}

# at_least MAJOR.MINOR MAJOR.MINOR...
at_least() {
    local major=${1%%.*} rest=${1#*.}
    local minor=${rest%%.*}
    ((major > ${2%.*} || (major == ${2%.*} && minor >= ${2#*.})))
}

has_node() {
    local version
    command -v npm >/dev/null && version=$(node --version 2>/dev/null) && at_least "${version#v}" 20.19
}

if [[ ${1:-} == node ]]; then
    has_node
    exit
fi

rust_version() {
    local line
    while read -r line; do
        if [[ $line == 'rust-version = "'* ]]; then
            line=${line#*\"}
            echo "${line%\"}"
        fi
    done <Cargo.toml
}

rustup=("'apt install rustup' from Debian 13 on, or https://rustup.rs" "'dnf install rustup' and 'rustup-init'"
    "'brew install rustup'")
wanted=$(rust_version)
if ! command -v cargo >/dev/null; then
    require "cargo is missing, which builds the server" "${rustup[@]}"
elif ! version=$(cargo --version 2>/dev/null); then
    toolchain="'rustup toolchain install stable'"
    require "cargo has no toolchain, see 'cargo --version'" "$toolchain" "$toolchain" "$toolchain"
elif ! at_least "${version#cargo }" "$wanted"; then
    require "$version is older than $wanted" "${rustup[@]}"
fi

compiler=${CC:-cc}
compiler=${compiler%% *}
if ! command -v "$compiler" >/dev/null; then
    require "A C compiler and linker ($compiler) is missing" "'apt install build-essential'" "'dnf install gcc'" \
        "'xcode-select --install'"
fi

# Python fetches the C compiler for WebAssembly, unless that is already there.
if [[ -z ${MOONSHARD_ZIG:-} && $(zig version 2>/dev/null) != 0.17.* && ! .venv/ready -nt guest-lua/requirements.txt ]]; then
    if ! command -v "$python" >/dev/null; then
        require "Python 3 ($python) is missing, which fetches the compiler of the Lua guest" \
            "'apt install python3-venv'" "'dnf install python3'" "'brew install python'"
    elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        require "Python's venv is missing, into which the compiler of the Lua guest is fetched" \
            "'apt install python3-venv'" "'dnf install python3'" "'brew install python'"
    fi
fi

if ! has_node; then
    report "Node.js 20.19 with npm is missing: the server is built WITHOUT its web console" \
        "'apt install nodejs npm' from Debian 13 on, or https://nodejs.org" "'dnf install nodejs npm'" "'brew install node'"
fi

exit "$failed"
