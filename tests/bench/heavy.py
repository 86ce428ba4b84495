#!/usr/bin/env python3
"""How long other connections wait while one runs a heavy command, beside redis-server: the longest PING of three
connections, the time of the command, and the CPU time of the server for it. Several programs can be compared. The largest
PING of an idle server stands in the first line: what the machine adds. Wants redis-server on PATH, and nothing of Python
but its library.

Usage: heavy.py PROGRAM [PROGRAM ...] [--rounds N] [--only WORD,WORD] [--elements N] [--asked LINE] [--without-redis]
"""

import argparse
import contextlib
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time

from families import Server, encode

PINGERS = 3
# Behind the command whose reply may be of any size.
WRITES = "for i = 1, ARGV[1] do redis.call('SET', 'k:' .. i, i) end"
COPIES = "for i = 1, 5 do redis.call('COPY', KEYS[1], KEYS[2], 'REPLACE') end"
END = b"$12\r\nend of reply\r\n"
MB = 1 << 20
# Beyond this a line is marked.
MOST_PING_MS = 20


def chunks(count, size=1000):
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def many(name, key, count, words):
    """Calls that give `key` so many elements, `words` of each of them."""
    return lambda: ([name, key, *(word for at in part for word in words(at))] for part in chunks(count))


def one(*words):
    return lambda: iter([list(words)])


def both(*parts):
    return lambda: (command for part in parts for command in part())


def strings(count, value="{}"):
    return lambda: (["MSET", *(w for at in part for w in (f"k:{at}", value.format(at)))] for part in chunks(count))


def keys(count):
    return [f"k:{at}" for at in range(count)]


def cases(n):
    """Name, what there is before, and the calls that are measured, for values of `n` elements."""
    sets = both(
        many("SADD", "s1", n, lambda at: [f"one:{at}"]), many("SADD", "s2", n, lambda at: [f"two:{at}"])
    )
    zsets = both(
        many("ZADD", "z1", n, lambda at: [str(at), f"one:{at}"]),
        many("ZADD", "z2", n, lambda at: [str(at), f"two:{at}"]),
    )
    hashes = many("HSET", "h", n, lambda at: [f"field:{at}", f"value:{at}"])
    lists = many("RPUSH", "l", n, lambda at: [f"element:{at}"])
    streams = lambda: (["XADD", "x", f"{at + 1}-1", "field", f"value:{at}"] for at in range(n))
    weights = both(
        many("SADD", "s1", n // 4, lambda at: [str(at)]),
        lambda: (["MSET", *(w for at in part for w in (f"w_{at}", str(-at)))] for part in chunks(n // 4)),
    )
    nothing = lambda: iter([])

    def big(*sizes):
        return lambda: (["SETRANGE", f"b{at}", str(size - 1), "x"] for at, size in enumerate(sizes))

    body = "return 1 --" + "x" * (100 * n)
    return [
        ("SUNIONSTORE", sets, ["SUNIONSTORE", "d", "s1", "s2"]),
        ("SUNION", sets, ["SUNION", "s1", "s2"]),
        ("SDIFFSTORE", sets, ["SDIFFSTORE", "d", "s1", "s2"]),
        ("SINTERSTORE", sets, ["SINTERSTORE", "d", "s1", "s1"]),
        ("SMEMBERS", sets, ["SMEMBERS", "s1"]),
        ("SPOP", sets, ["SPOP", "s1", str(n - 10)]),
        ("SRANDMEMBER", sets, ["SRANDMEMBER", "s1", str(-6 * n)]),
        ("SMISMEMBER", sets, ["SMISMEMBER", "s1", *(f"one:{at}" for at in range(n))]),
        ("SADD", nothing, ["SADD", "s", *(f"one:{at}" for at in range(n))]),
        ("DEL set", sets, ["DEL", "s1"]),
        ("SORT BY GET", weights, ["SORT", "s1", "BY", "w_*", "GET", "w_*"]),
        ("SORT ALPHA", sets, ["SORT", "s1", "ALPHA"]),
        ("ZUNIONSTORE", zsets, ["ZUNIONSTORE", "d", "2", "z1", "z2"]),
        ("ZINTERSTORE", zsets, ["ZINTERSTORE", "d", "2", "z1", "z1"]),
        ("ZRANGESTORE", zsets, ["ZRANGESTORE", "d", "z1", "0", "-1"]),
        ("ZRANGE", zsets, ["ZRANGE", "z1", "0", "-1", "WITHSCORES"]),
        ("ZREMRANGEBYRANK", zsets, ["ZREMRANGEBYRANK", "z1", "0", "-1"]),
        ("ZADD", nothing, ["ZADD", "z", *(word for at in range(n) for word in (str(at), f"m:{at}"))]),
        ("ZRANDMEMBER", zsets, ["ZRANDMEMBER", "z1", str(-2 * n)]),
        ("HGETALL", hashes, ["HGETALL", "h"]),
        ("HDEL", hashes, ["HDEL", "h", *(f"field:{at}" for at in range(n))]),
        ("HSET", nothing, ["HSET", "h", *(word for at in range(n) for word in (f"f:{at}", "v"))]),
        ("LRANGE", lists, ["LRANGE", "l", "0", "-1"]),
        ("LREM", lists, ["LREM", "l", "0", "nothing"]),
        ("RPUSH", nothing, ["RPUSH", "l", *(f"element:{at}" for at in range(n))]),
        ("XRANGE", streams, ["XRANGE", "x", "-", "+"]),
        ("KEYS", strings(n), ["KEYS", "*"]),
        ("SCAN", strings(n), ["SCAN", "0", "COUNT", str(20 * n)]),
        ("MGET", strings(n), ["MGET", *keys(n)]),
        ("MSET", nothing, ["MSET", *(word for key in keys(n) for word in (key, "value"))]),
        ("EXISTS", strings(n), ["EXISTS", *keys(n)]),
        ("DEL", strings(n), ["DEL", *keys(n * 3 // 5)]),
        ("UNLINK", strings(n), ["UNLINK", *keys(n * 3 // 5)]),
        ("WATCH", strings(n), ["WATCH", *keys(n // 12)]),
        ("FLUSHALL SYNC", strings(n), ["FLUSHALL", "SYNC"]),
        ("BITCOUNT", big(1024 * n), ["BITCOUNT", "b0"]),
        ("BITPOS", big(1024 * n), ["BITPOS", "b0", "1"]),
        ("BITOP NOT", big(1024 * n), ["BITOP", "NOT", "d", "b0"]),
        ("BITOP XOR", big(128 * n, 128 * n), ["BITOP", "XOR", "d", "b0", "b1"]),
        ("APPEND", big(128 * n), ["APPEND", "b0", "y"]),
        ("SETRANGE", nothing, ["SETRANGE", "b0", str(1024 * n - 1), "x"]),
        ("SETBIT", big(128 * n), ["SETBIT", "b0", str(1024 * n), "1"]),
        ("GET", big(128 * n), ["GET", "b0"]),
        ("SET", nothing, ["SET", "b0", "x" * (128 * n)]),
        ("GETRANGE", big(128 * n), ["GETRANGE", "b0", "1", "-1"]),
        ("COPY", big(1024 * n), ["COPY", "b0", "d"]),
        ("COPY set", sets, ["COPY", "s1", "d"]),
        ("RENAME", sets, ["RENAME", "s1", "s2"]),
        ("DUMP", sets, ["DUMP", "s1"]),
        ("PFADD", nothing, ["PFADD", "p", *(f"element:{at}" for at in range(n))]),
        ("EVAL of text", nothing, ["EVAL", body, "0"]),
        ("EVAL of arguments", nothing, ["EVAL", "return #ARGV", "0", *keys(n // 10)]),
        ("EVAL of writes", nothing, ["EVAL", WRITES, "0", str(n // 2)]),
        ("EVAL undone", nothing, ["EVAL", "#!lua on-error=rollback\n" + WRITES + " error('undo')", "0", str(n // 2)]),
        ("EVAL of COPY", sets, ["EVAL", COPIES, "2", "s1", "d"]),
        ("EXEC", strings(n), ["MULTI"], *(["GET", key] for key in keys(n // 10)), ["EXEC"]),
        ("pipeline", strings(n), *(["GET", key] for key in keys(n))),
    ]


def ping(port, asked, pipe):
    """Sends what is `asked`, one at a time, until something comes through `pipe`; what the longest took in seconds."""
    import socket

    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        longest, last = 0, False
        pipe.send(True)
        while not last:
            last = pipe.poll(0.0005)
            began = time.monotonic()
            connection.sendall(asked)
            if connection.recv(64) not in (b"+PONG\r\n", b"$-1\r\n"):
                sys.exit("another answer than expected")
            longest = max(longest, time.monotonic() - began)
    pipe.send(longest)


@contextlib.contextmanager
def pinged(port, asked, longest):
    """Adds to `longest` what PINGs took during the block."""
    pipes = []
    for _ in range(PINGERS):
        pipe, other = multiprocessing.Pipe()
        process = multiprocessing.Process(target=ping, args=(port, asked, other), daemon=True)
        process.start()
        pipes.append((process, pipe))
    for _, pipe in pipes:
        pipe.recv()
    yield
    for process, pipe in pipes:
        pipe.send(True)
        longest.append(pipe.recv())
        process.join()


def call(server, bytes_out):
    """Sends calls and reads all their replies; the first bytes of these."""
    with server.connect() as connection:
        connection.settimeout(300)
        # Beside the reading, as either side may have to wait for the other.
        sending = threading.Thread(target=connection.sendall, args=(bytes_out + encode(["PING", "end of reply"]),))
        sending.start()
        first, tail = b"", b""
        while not tail.endswith(END):
            piece = connection.recv(1 << 20)
            if not piece:
                return b"-the server has hung up"
            first = first or piece[:100]
            tail = (tail + piece)[-len(END) :]
        sending.join()
        return first


def measure(server, asked, case):
    name, prepare, *calls = case
    server.run([["FLUSHALL"]])
    server.run(prepare())
    bytes_out = b"".join(encode(words) for words in calls)
    longest = []
    before = server.cpu_seconds()
    with pinged(server.port, asked, longest):
        began = time.monotonic()
        if calls:
            first = call(server, bytes_out)
            if first.startswith(b"-"):
                print(f"{name}: {first.decode(errors='replace').strip()}", file=sys.stderr)
        else:
            time.sleep(1)
        took = time.monotonic() - began
    return max(longest) * 1000, took * 1000, (server.cpu_seconds() - before) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", help="the moonshards to be measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="names of lines, or their beginnings, with commas between")
    parser.add_argument("--elements", type=int, default=500_000, help="how many elements large values have")
    parser.add_argument("--asked", default="PING", help="what others ask meanwhile: PING, or GET of a key that is not there")
    parser.add_argument("--without-redis", action="store_true")
    options = parser.parse_args()
    if not options.without_redis and not shutil.which("redis-server"):
        sys.exit("***** redis-server is not installed: there is nothing to compare with *****")
    asked = f"{options.asked}\r\n".encode()
    wanted = [word.lower() for word in options.only.split(",") if word]
    programs = {}
    for program in options.programs:
        ours = [os.path.abspath(program), "--resp", "127.0.0.1:PORT", "--http", "off", "--grpc", "off"]
        programs[program] = [*ours, "--data-dir", "none", "--client-query-buffer-limit", "1gb"]
    if not options.without_redis:
        programs["redis-server"] = ["redis-server", "--port", "PORT", "--save", "", "--appendonly", "no"]
    lines = [("nothing", lambda: iter([]))] + cases(options.elements)
    chosen = [line for line in lines if not wanted or any(line[0].lower().startswith(word) for word in wanted)]
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w") as log:
        for program in programs:
            print(f"{'':18} {program[-36:]:>36}", end="")
        print(f"\n{'':18}" + f" {'PING max':>12} {'took':>11} {'CPU ms':>11}" * len(programs))
        for case in chosen:
            print(f"{case[0]:18}", end="", flush=True)
            for command in programs.values():
                with Server(command, folder, log) as server:
                    rounds = [measure(server, asked, case) for _ in range(options.rounds)]
                longest, took, cpu = (statistics.median(figures) for figures in zip(*rounds))
                mark = "*" if longest > MOST_PING_MS else " "
                print(f" {longest:11.1f}{mark} {took:11.0f} {cpu:11.1f}", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
