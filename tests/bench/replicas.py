#!/usr/bin/env python3
"""What replicas of store nodes cost and give, with three store nodes on this machine that flush each change (`sync`):

throughput  requests per second with three replicas, as a ratio to the same nodes without; the two take turns
kills       the leader of a group is killed, again and again, under load: how long requests to its group wait, how long
            others do, and whether an acknowledged write is lost
stops       all processes are stopped and started again in turn under load: the longest wait, and replies that are errors
disk        the data of a process is deleted: when its replicas are complete again, and how long requests wait meanwhile
idle        CPU time of a process without requests

Wants redis-benchmark on PATH, and nothing of Python but its library.

Usage: replicas.py PROGRAM [--only PART,PART] [--rounds N] [--kills N] [--turns N] [--megabytes N]
"""

import argparse
import contextlib
import itertools
import json
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
import urllib.request

from families import encode

STORES = 3
CONNECTIONS = 50
# What is measured, how many requests are in one go, and how many of them in a round.
INCREMENTS = "for i = 1, 100 do redis.call('INCR', KEYS[1]) end"
THROUGHPUT = [
    ("GET, 16 deep", ["GET", "key:__rand_int__"], 16, 400_000),
    ("SET, 16 deep", ["SET", "key:__rand_int__", "x" * 100], 16, 300_000),
    ("100 INCR by script", ["EVAL", INCREMENTS, "1", "n:__rand_int__"], 1, 10_000),
]
# Writers of each group, and the pause of each between two writes: the load generator must not be what is waited for.
WRITERS = 2
PAUSE_SECONDS = 0.002


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait(what, done, seconds=120):
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"not after {seconds} s: {what}")
        time.sleep(0.05)


def group_of(key):
    """The slots are divided among the groups in order. Slots are the CRC16 of the key."""
    crc = 0
    for byte in key.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % 16384 * STORES // 16384


class Cluster:
    """Store nodes and gateways with data below `folder`, which end with the block."""

    def __init__(self, program, folder, gateways=1, replicas=0):
        self.program, self.folder = program, folder
        os.mkdir(folder)
        self.stores = [f"127.0.0.1:{free_port()}" for _ in range(STORES)]
        self.ports = [free_port() for _ in range(gateways)]
        self.health = [free_port() for _ in range(STORES)]
        self.processes = {}
        for at in range(STORES):
            self.start(at)
        if replicas:
            self.topology("found", "--replicas", str(replicas))
        for at in range(gateways):
            self.start(STORES + at)
        if replicas:
            wait("a leader for each group where it belongs", lambda: self.leaders() == list(range(STORES)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, at):
        """Starts the store node or, behind these, the gateway of this number."""
        words = [self.program, "store", "--grpc", self.stores[at], "--durability", "sync"] if at < STORES else [
            self.program, "gateway", "--resp", f"127.0.0.1:{self.ports[at - STORES]}", "--http", "off", "--grpc", "off",
            "--stores", ",".join(self.stores)]
        if at < STORES:
            words += ["--data-dir", self.data_of(at), "--http", f"127.0.0.1:{self.health[at]}"]
        with open(f"{self.folder}/{at}.log", "a") as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        if not process.stdout.readline():
            sys.exit(f"{' '.join(words)} does not start: see {self.folder}/{at}.log")
        self.processes[at] = process

    def end(self, at, with_signal):
        process = self.processes.pop(at)
        process.send_signal(with_signal)
        status = process.wait()
        if with_signal == signal.SIGTERM and status:
            sys.exit(f"process {at} ended with {status}: see {self.folder}/{at}.log")

    def data_of(self, at):
        return f"{self.folder}/data-{at}"

    def topology(self, *words):
        command = [self.program, "topology", "--stores", ",".join(self.stores), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def leaders(self):
        """The number of the store node that leads each group, or None while a replica is missing or behind."""
        shown = json.loads(self.topology("groups", "--json") or "{}")
        if not shown or not all(process["reachable"] for process in shown["processes"]):
            return None
        leaders = {}
        for group in shown["groups"]:
            replicas = group["replicas"]
            leading = [replica["address"] for replica in replicas if replica["role"] == "leader"]
            # Entries that the next heartbeat brings are not a lack.
            complete = all((10**9 if it["lag_entries"] is None else it["lag_entries"]) < 100 for it in replicas)
            if len(replicas) != STORES or len(leading) != 1 or not complete:
                return None
            leaders[group["name"]] = self.stores.index(leading[0])
        return [leaders[f"g{at}"] for at in range(STORES)]

    def wait_until_whole(self):
        """As an upgrade does: before the next process is stopped all are ready."""
        wait("all replicas have caught up", lambda: self.leaders() is not None and self.are_ready(), 600)

    def are_ready(self):
        try:
            for port in self.health:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10).close()
            return True
        except OSError:
            return False

    def cpu_seconds(self, at):
        nanoseconds = 0
        for thread in os.listdir(f"/proc/{self.processes[at].pid}/task"):
            with contextlib.suppress(FileNotFoundError), open(
                f"/proc/{self.processes[at].pid}/task/{thread}/schedstat"
            ) as stat:
                nanoseconds += int(stat.read().split()[0])
        return nanoseconds / 1e9


class Client:
    """One connection to one of the gateways, to the next one when it is lost."""

    def __init__(self, ports):
        self.ports, self.at, self.connection = ports, 0, None

    def ask(self, *words):
        """The reply if it is one line, the content of a bulk string, or None if the connection is lost."""
        try:
            if self.connection is None:
                self.connection = socket.create_connection(("127.0.0.1", self.ports[self.at]), 60)
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.lines = self.connection.makefile("rb")
            self.connection.sendall(encode(words))
            line = self.line()
            return self.line() if line.startswith("$") and line != "$-1" else line
        except OSError:
            self.connection = None
            self.at = (self.at + 1) % len(self.ports)
            return None

    def line(self):
        line = self.lines.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the connection is closed")
        return line[:-2].decode()


class Writer(threading.Thread):
    """Sets a key of its own to one number after the other. Each request is repeated until it is done."""

    def __init__(self, ports, group, number):
        super().__init__(daemon=True)
        self.key = next(key for key in (f"writer:{number}:{at}" for at in range(10**6)) if group_of(key) == group)
        self.group, self.client = group, Client(ports)
        # When each was begun, and how long it took.
        self.waits, self.errors, self.written, self.ending = [], {}, 0, False

    def run(self):
        while not self.ending:
            begun = time.monotonic()
            while (reply := self.client.ask("SET", self.key, str(self.written + 1))) != "+OK":
                if reply is not None:
                    kind = reply.split(" ")[0]
                    self.errors[kind] = self.errors.get(kind, 0) + 1
                time.sleep(0.001)
            self.written += 1
            self.waits.append((begun, time.monotonic() - begun))
            time.sleep(PAUSE_SECONDS)

    def between(self, begin, end):
        """What requests waited that were under way in this time, the latest first."""
        latest = itertools.takewhile(lambda wait: sum(wait) > begin, reversed(list(self.waits)))
        return [waited for begun, waited in latest if begun < end]


@contextlib.contextmanager
def writers(cluster):
    """Under way while the block runs. Then what was acknowledged must be there."""
    all_of_them = [Writer(cluster.ports, at % STORES, at) for at in range(STORES * WRITERS)]
    for writer in all_of_them:
        writer.start()
    yield all_of_them
    for writer in all_of_them:
        writer.ending = True
    client = Client(cluster.ports)
    for writer in all_of_them:
        writer.join()
        found = client.ask("GET", writer.key)
        if found != str(writer.written):
            sys.exit(f"LOST: {writer.key} is {found}, acknowledged was {writer.written}")
    print(f"    {sum(writer.written for writer in all_of_them)} writes, none lost")


def wait_for_writes(load):
    """Until requests that were under way are done, to all groups."""
    counted = [writer.written for writer in load]
    wait("writes go on", lambda: all(writer.written > before + 5 for writer, before in zip(load, counted)))


def figures(seconds):
    """Median, 99 of 100, and longest, in milliseconds."""
    ordered = sorted(seconds)
    picked = [ordered[int((len(ordered) - 1) * part)] for part in (0.5, 0.99, 1)]
    return "p50 {:.1f}  p99 {:.1f}  max {:.1f} ms".format(*(one * 1000 for one in picked))


def rate(cluster, command, deep, count):
    """Requests per second."""
    done = subprocess.run(
        ["redis-benchmark", "-p", str(cluster.ports[0]), "-c", str(CONNECTIONS), "-P", str(deep), "-r", "10000"]
        + ["-n", str(count), "--csv", *command],
        capture_output=True,
        text=True,
    )
    if done.returncode or "ERR" in done.stdout + done.stderr:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return float(done.stdout.strip().splitlines()[-1].split('","')[1])


def throughput(options, folder):
    with Cluster(options.program, f"{folder}/with", replicas=3) as ours, Cluster(
        options.program, f"{folder}/without"
    ) as plain:
        for cluster in (ours, plain):
            rate(cluster, ["SET", "key:__rand_int__", "x" * 100], 16, 100_000)
        for name, command, deep, count in THROUGHPUT:
            ratios = []
            for _ in range(options.rounds):
                with_replicas, without = (rate(cluster, command, deep, count) for cluster in (ours, plain))
                ratios.append(with_replicas / without)
            print(f"{name:20} {statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def kills(options, folder):
    with Cluster(options.program, f"{folder}/kills", replicas=3) as cluster, writers(cluster) as load:
        hit, others = [], [0.0]
        for kill in range(options.kills):
            cluster.wait_until_whole()
            leaders = cluster.leaders() or sys.exit("a replica is lost")
            at = leaders[kill % STORES]
            begin = time.monotonic()
            cluster.end(at, signal.SIGKILL)
            wait_for_writes(load)
            end = time.monotonic()
            for writer in load:
                waits = writer.between(begin, end)
                if leaders[writer.group] == at:
                    hit.append(max(waits))
                else:
                    others += waits
            cluster.start(at)
        print(f"{options.kills} kills of a leader: pause of its group {figures(hit)}; others {figures(others)}")


def stops(options, folder):
    with Cluster(options.program, f"{folder}/stops", gateways=2, replicas=3) as cluster, writers(cluster) as load:
        begin = time.monotonic()
        for _ in range(options.turns):
            for at in range(STORES + 2):
                cluster.wait_until_whole()
                cluster.end(at, signal.SIGTERM)
                cluster.start(at)
        end = time.monotonic()
        waits = [wait for writer in load for wait in writer.between(begin, end)]
        errors = {kind: sum(it.errors.get(kind, 0) for it in load) for kind in {k for it in load for k in it.errors}}
        print(f"{options.turns} times all processes stopped in turn: {figures(waits)}; errors {errors or 'none'}")


def disk(options, folder):
    with Cluster(options.program, f"{folder}/disk", replicas=3) as cluster:
        fill(cluster, options.megabytes)
        cluster.wait_until_whole()
        with writers(cluster) as load:
            cluster.end(STORES - 1, signal.SIGKILL)
            shutil.rmtree(cluster.data_of(STORES - 1))
            wait_for_writes(load)
            begin = time.monotonic()
            cluster.start(STORES - 1)
            cluster.wait_until_whole()
            end = time.monotonic()
            waits = [wait for writer in load for wait in writer.between(begin, end)]
        print(f"{options.megabytes} MB deleted: complete after {end - begin:.1f} s; requests meanwhile {figures(waits)}")


def fill(cluster, megabytes):
    with socket.create_connection(("127.0.0.1", cluster.ports[0])) as connection:
        value = "x" * 10_000
        for at in range(megabytes):
            connection.sendall(b"".join(encode(["SET", f"filling:{at}:{part}", value]) for part in range(100)))
            left = 5 * 100
            while left:
                piece = connection.recv(left)
                if not piece or piece.startswith(b"-"):
                    sys.exit(f"filling: {piece!r}")
                left -= len(piece)


def idle(options, folder):
    with Cluster(options.program, f"{folder}/idle", replicas=3) as cluster:
        time.sleep(5)
        before = [cluster.cpu_seconds(at) for at in range(STORES)]
        time.sleep(60)
        shares = [(cluster.cpu_seconds(at) - before[at]) / 60 * 100 for at in range(STORES)]
        print("idle, four groups: " + ", ".join(f"{share:.2f}" for share in shares) + " % of a core")


PARTS = {"throughput": throughput, "kills": kills, "stops": stops, "disk": disk, "idle": idle}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the moonshard to be measured", type=os.path.abspath)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--rounds", type=int, default=5, help="of the throughput")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20, help="how often all processes are stopped")
    parser.add_argument("--megabytes", type=int, default=1000, help="of data that is deleted")
    options = parser.parse_args()
    if not shutil.which("redis-benchmark"):
        sys.exit("***** redis-benchmark is not installed: there is nothing that makes load *****")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(","):
            PARTS[name](options, folder)


if __name__ == "__main__":
    main()
