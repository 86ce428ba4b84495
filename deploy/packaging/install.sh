#!/usr/bin/env bash
# Installs a program that is already built, its sandbox compiled for this processor, its manual pages and its shell completions.
#
# Usage: install.sh PROGRAM PREFIX
set -euo pipefail
umask 022

program=$1
prefix=$2

mkdir -p "$prefix/bin"
install -m 755 "$program" "$prefix/bin/moonshard"
rm -f "$prefix/lib/moonshard"/*.guest
"$program" precompile "$prefix/lib/moonshard" >/dev/null
"$program" man "$prefix/share/man/man1"

# completions SHELL FILE
completions() {
    mkdir -p "$(dirname "$prefix/share/$2")"
    "$program" completions "$1" >"$prefix/share/$2"
}

completions bash bash-completion/completions/moonshard
completions zsh zsh/site-functions/_moonshard
completions fish fish/vendor_completions.d/moonshard.fish
