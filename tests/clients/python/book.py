"""Runs the examples of the book and compares what they print.

A block ```redis has lines for redis-cli after `> `, and what redis-cli prints. A block ```console has commands for the
shell after `$ `, which may go on in lines that end with a backslash, and what they print. `…` in what is printed stands
for any text, and for any lines if it is alone in a line. The examples of a page run in order, on an empty server. A block
```console that prints nothing lists commands for other machines or for the reader's own choice: it is not run.

Usage: book.py PROGRAM RESP HTTP GRPC, the last three as HOST:PORT
"""

import difflib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "src").rglob("*.md"))]
PROMPTS = {"redis": "> ", "console": "$ "}
PREPARE = "FLUSHALL\nSCRIPT FLUSH\nFUNCTION FLUSH\nCONFIG SET script-timeout-ms 5000\n"
# The addresses that the book uses.
ADDRESSES = ["127.0.0.1:6379", "127.0.0.1:8080", "127.0.0.1:50051"]


def examples(page: pathlib.Path) -> list[tuple[int, str, list[str]]]:
    """Line number, kind and lines of each example."""
    found, block = [], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if block is None and line in ["```redis", "```console"]:
            block = (number, line[3:], [])
        elif block is not None and line == "```":
            # Commands without a prompt are not run: they need what a test does not have.
            if block[2] and block[2][0].startswith(PROMPTS[block[1]]):
                found.append(block)
            block = None
        elif block is not None:
            block[2].append(line)
    assert block is None, f"{page}: an example has no end"
    return found


def split(kind: str, lines: list[str]) -> tuple[str, str]:
    """What is run, and what it prints."""
    commands, printed, continues = [], [], False
    for line in lines:
        if continues or line.startswith(PROMPTS[kind]):
            commands.append(line if continues else line[2:])
            continues = kind == "console" and line.endswith("\\")
        else:
            printed.append(line)
    return "\n".join(commands) + "\n", "\n".join(printed).strip()


def run(kind: str, commands: str, program: str, addresses: list[str]) -> str:
    for ours, theirs in zip(ADDRESSES, addresses):
        commands = commands.replace(ours, theirs)
    host, port = addresses[0].split(":")
    redis_cli = f"redis-cli -h {host} -p {port}"
    if kind == "redis":
        command, text = [*redis_cli.split(), "--no-raw"], commands
    else:
        names = f'redis-cli() {{ command {redis_cli} "$@"; }}\nmoonshard() {{ {program} "$@"; }}\n'
        command, text = ["bash", "-c", names + commands], ""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, cwd=ROOT)
    # redis-cli prints the duration of long commands.
    return re.sub(r"^\(\d+\.\d\ds\)\n", "", (done.stdout + done.stderr).lstrip(), flags=re.MULTILINE).rstrip()


def pattern(printed: str) -> str:
    lines = [r"(.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*") + r" *\n" for line in printed.split("\n")]
    return "".join(lines)


def main() -> None:
    program, *addresses = sys.argv[1:]
    wrong, count = 0, 0
    for page in PAGES:
        blocks = examples(page)
        if blocks:
            run("redis", PREPARE, program, addresses)
        for number, kind, lines in blocks:
            commands, printed = split(kind, lines)
            if kind == "console" and not printed:
                continue
            seen = run(kind, commands, program, addresses)
            for ours, theirs in zip(ADDRESSES, addresses):
                seen = seen.replace(theirs, ours)
            count += 1
            if not re.fullmatch(pattern(printed), seen + "\n"):
                wrong += 1
                print(f"{page.relative_to(ROOT)}:{number}:")
                print("\n".join(difflib.unified_diff(printed.split("\n"), seen.split("\n"), "book", "seen", lineterm="")))
    assert count > 0 and wrong == 0, f"{wrong} of {count} examples are wrong"
    print(f"{count} examples of the book do what it says")


main()
