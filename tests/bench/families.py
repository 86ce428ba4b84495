#!/usr/bin/env python3
"""What commands of each family cost the server beside redis-server: CPU time per operation, 16 deep on 50 connections,
and memory per key. The two take turns, so that whatever else the machine does meets both; a ratio is the median of the
rounds. Wants redis-server and redis-benchmark on PATH, and nothing of Python but its library.

Usage: families.py PROGRAM [--rounds N] [--only WORD,WORD] [--keys N]
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

DEEP = 16
CONNECTIONS = 50
SUBSCRIBERS = 50
RANDOM = "__rand_int__"
# Enough for about a second of CPU time: /proc counts in hundredths.
OPERATIONS = 1_000_000
# Beyond this a line is marked.
MOST_CPU = 1.2
MOST_MEMORY = 1.3


def many(count, make):
    """Commands that fill `count` keys before the clock runs."""
    return lambda: (make(f"{index:012d}") for index in range(count))


def pairs(count):
    return [word for index in range(count) for word in (f"field:{index}", f"value:{index}")]


def scored(count):
    return [word for index in range(count) for word in (str(index), f"member:{index}")]


NOTHING = many(0, str)
LISTS = many(1000, lambda key: ["RPUSH", f"list:{key}", *(f"element:{index}" for index in range(100))])
HASHES = many(1000, lambda key: ["HSET", f"hash:{key}", *pairs(20)])
ZSETS = many(1000, lambda key: ["ZADD", f"zset:{key}", *scored(100)])
SETS = many(1000, lambda key: ["SADD", f"set:{key}", *(f"member:{index}" for index in range(20))])
STRINGS = many(1000, lambda key: ["SET", f"key:{key}", "x" * 100])
STREAMS = many(1000, lambda key: ["XADD", f"stream:{key}", "*", "field", "value"])
LONG_LISTS = many(
    1000, lambda key: ["RPUSH", f"list:{key}", *(f"element:{index}" for index in range(1000))]
)

# What a line is called, what there is before, what is measured, and how many of it as a part of OPERATIONS.
CASES = [
    ("GET", STRINGS, ["GET", f"key:{RANDOM}"], 1),
    ("SET", STRINGS, ["SET", f"key:{RANDOM}", "y" * 100], 1),
    ("INCR", NOTHING, ["INCR", f"n:{RANDOM}"], 1),
    ("LRANGE 100", LISTS, ["LRANGE", f"list:{RANDOM}", "0", "99"], 0.1),
    ("LRANGE 10 of 100", LISTS, ["LRANGE", f"list:{RANDOM}", "40", "49"], 0.5),
    ("LPUSH", NOTHING, ["LPUSH", f"list:{RANDOM}", f"element:{RANDOM}"], 1),
    ("RPOP", LONG_LISTS, ["RPOP", f"list:{RANDOM}"], 1),
    ("HSET", HASHES, ["HSET", f"hash:{RANDOM}", "field:7", f"value:{RANDOM}"], 1),
    ("HGET", HASHES, ["HGET", f"hash:{RANDOM}", "field:7"], 1),
    ("HGETALL 20", HASHES, ["HGETALL", f"hash:{RANDOM}"], 0.3),
    ("SADD", NOTHING, ["SADD", f"set:{RANDOM}", f"member:{RANDOM}"], 1),
    ("SISMEMBER", SETS, ["SISMEMBER", f"set:{RANDOM}", "member:7"], 1),
    ("SMEMBERS 20", SETS, ["SMEMBERS", f"set:{RANDOM}"], 0.3),
    ("ZADD", NOTHING, ["ZADD", f"zset:{RANDOM}", RANDOM, f"member:{RANDOM}"], 1),
    ("ZINCRBY", ZSETS, ["ZINCRBY", f"zset:{RANDOM}", "3", "member:7"], 1),
    ("ZRANGE 10", ZSETS, ["ZRANGE", f"zset:{RANDOM}", "40", "49"], 0.5),
    ("ZRANGE 100", ZSETS, ["ZRANGE", f"zset:{RANDOM}", "0", "-1", "WITHSCORES"], 0.1),
    ("ZRANGEBYSCORE 10", ZSETS, ["ZRANGEBYSCORE", f"zset:{RANDOM}", "40", "49"], 0.5),
    ("XADD", NOTHING, ["XADD", f"stream:{RANDOM}", "*", "field", f"value:{RANDOM}"], 1),
    ("XLEN", STREAMS, ["XLEN", f"stream:{RANDOM}"], 1),
    ("PUBLISH", NOTHING, ["PUBLISH", "channel", "x" * 32], 0.05),
]

# What a line is called, and the command that makes one key.
MEMORY = [
    ("a string", lambda key: ["SET", f"key:{key}", f"value:{key}"]),
    ("a hash of 5", lambda key: ["HSET", f"hash:{key}", *pairs(5)]),
    ("a sorted set of 10", lambda key: ["ZADD", f"zset:{key}", *scored(10)]),
]


def encode(command):
    """A command as its bytes."""
    words = [word.encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Server:
    """A server of its own, which ends with the block."""

    def __init__(self, command, folder, log):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words = [str(self.port) if word == "PORT" else word.replace("PORT", str(self.port)) for word in command]
        self.process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{words[0]} does not serve: see {log.name}")
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def run(self, commands):
        """Sends commands whose replies are one line each, and waits for all of them."""
        with self.connect() as connection:
            batch = []
            for command in commands:
                batch.append(encode(command))
                if len(batch) == 500:
                    finish(connection, batch)
            finish(connection, batch)

    def cpu_seconds(self):
        """Of its threads, which do not end: /proc/PID/stat counts in ticks of 10 ms."""
        nanoseconds = 0
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{self.process.pid}/task/{thread}/schedstat") as stat:
                nanoseconds += int(stat.read().split()[0])
        return nanoseconds / 1e9

    def memory_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def finish(connection, batch):
    """Sends a batch and reads its replies: simple ones, and the identifiers that XADD tells."""
    connection.sendall(b"".join(batch))
    replies, wanted = b"", len(batch)
    while True:
        lines = replies.count(b"\r\n") - replies.count(b"\n$") - replies.startswith(b"$")
        if lines >= wanted and replies.endswith(b"\r\n") or not wanted:
            break
        piece = connection.recv(1 << 16)
        if not piece:
            sys.exit("the server has hung up")
        replies += piece
    if replies.startswith(b"-") or b"\n-" in replies:
        sys.exit(f"an error among the replies: {replies[:200]!r}")
    batch.clear()


@contextlib.contextmanager
def subscribers(server):
    """Connections that read all that is published, by a thread of their own."""
    connections = [server.connect() for _ in range(SUBSCRIBERS)]
    for connection in connections:
        connection.sendall(encode(["SUBSCRIBE", "channel"]))
        wanted = b"*3\r\n$9\r\nsubscribe\r\n$7\r\nchannel\r\n:1\r\n"
        if connection.recv(len(wanted), socket.MSG_WAITALL) != wanted:
            sys.exit("no subscription")

    def read(connection):
        while connection.recv(1 << 18):
            pass

    threads = [threading.Thread(target=read, args=(connection,)) for connection in connections]
    for connection, thread in zip(connections, threads):
        connection.settimeout(None)
        thread.start()
    try:
        yield
    finally:
        for connection, thread in zip(connections, threads):
            connection.shutdown(socket.SHUT_RDWR)
            thread.join()
            connection.close()


def load(server, command, count):
    """CPU microseconds of the server for one of `count` commands."""
    before = server.cpu_seconds()
    done = subprocess.run(
        ["redis-benchmark", "-p", str(server.port), "-c", str(CONNECTIONS), "-P", str(DEEP), "-r", "1000"]
        + ["-n", str(count), "--csv", *command],
        capture_output=True,
        text=True,
    )
    if done.returncode or "ERR" in done.stdout + done.stderr:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return (server.cpu_seconds() - before) * 1e6 / count


def measure(server, case):
    name, prepare, command, part = case
    server.run([["FLUSHALL"]])
    server.run(prepare())
    with subscribers(server) if name == "PUBLISH" else contextlib.nullcontext():
        return load(server, command, int(OPERATIONS * part))


def report(name, ours, theirs, most, unit):
    ratios = [one / other for one, other in zip(ours, theirs)]
    ratio = statistics.median(ratios)
    figures = f"{statistics.median(ours):9.2f} {statistics.median(theirs):9.2f} {unit}"
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"{name:20} {ratio:5.2f} {spread:16} {figures}{'  *' if ratio > most else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the moonshard to be measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="parts of names of lines, with commas between")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys for the lines about memory; 0 for none")
    options = parser.parse_args()
    for tool in ("redis-server", "redis-benchmark"):
        if not shutil.which(tool):
            sys.exit(f"***** {tool} is not installed: there is nothing to compare with *****")
    wanted = [word.lower() for word in options.only.split(",") if word]

    def chosen(name):
        return not wanted or any(word in name.lower() for word in wanted)

    ours = [os.path.abspath(options.program), "--resp", "127.0.0.1:PORT", "--http", "off", "--grpc", "off"]
    programs = [
        [*ours, "--data-dir", "none"],
        ["redis-server", "--port", "PORT", "--save", "", "--appendonly", "no"],
    ]
    print(f"{'':20} ratio                  moonshard     redis")
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w") as log:
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(Server(program, folder, log)) for program in programs]
            for case in filter(lambda case: chosen(case[0]), CASES):
                rounds = [[measure(server, case) for server in servers] for _ in range(options.rounds)]
                report(case[0], *zip(*rounds), MOST_CPU, "us")
        for name, make in MEMORY if options.keys else []:
            if not chosen(name):
                continue
            grown = []
            for program in programs:
                with Server(program, folder, log) as server:
                    before = server.memory_bytes()
                    server.run(many(options.keys, make)())
                    grown.append([(server.memory_bytes() - before) / options.keys])
            report(name, *grown, MOST_MEMORY, "bytes")


if __name__ == "__main__":
    main()
