"""What Laravel's queues do: scripts with the keys of a queue that have no hash tag, called by many workers at the same time.

The scripts have the keys, arguments and replies of those of Illuminate\\Queue, and are written for this test.

Usage: laravel_queue.py HOST:PORT DB
"""

import collections
import json
import sys
import threading
import time

import redis

SIZE = "return redis.call('llen', KEYS[1]) + redis.call('zcard', KEYS[2]) + redis.call('zcard', KEYS[3])"

PUSH = """
redis.call('rpush', KEYS[1], ARGV[1])
return redis.call('rpush', KEYS[2], 1)
"""

POP = """
local payload = redis.call('lpop', KEYS[1])
if not payload then return {false, false} end
local job = cjson.decode(payload)
job.attempts = job.attempts + 1
local reserved = cjson.encode(job)
redis.call('zadd', KEYS[2], ARGV[1], reserved)
redis.call('lpop', KEYS[3])
return {payload, reserved}
"""

RELEASE = """
redis.call('zrem', KEYS[2], ARGV[1])
return redis.call('zadd', KEYS[1], ARGV[2], ARGV[1])
"""

MIGRATE = """
local due = redis.call('zrangebyscore', KEYS[1], '-inf', ARGV[1], 'limit', 0, ARGV[2])
if #due > 0 then
    redis.call('zremrangebyrank', KEYS[1], 0, #due - 1)
    for first = 1, #due, 100 do
        redis.call('rpush', KEYS[2], unpack(due, first, math.min(first + 99, #due)))
        for _ = first, math.min(first + 99, #due) do redis.call('rpush', KEYS[3], 1) end
    end
end
return due
"""

CLEAR = """
local size = redis.call('llen', KEYS[1]) + redis.call('zcard', KEYS[2]) + redis.call('zcard', KEYS[3])
redis.call('del', unpack(KEYS))
return size
"""


class Queue:
    """A queue with the calls of Laravel: `queues:NAME`, and `:delayed`, `:reserved` and `:notify` after that."""

    def __init__(self, r: redis.Redis, name: str) -> None:
        self.r = r
        self.ready = f"queues:{name}"
        self.delayed, self.reserved, self.notify = (f"{self.ready}:{part}" for part in ("delayed", "reserved", "notify"))

    def size(self) -> int:
        return self.r.eval(SIZE, 3, self.ready, self.delayed, self.reserved)

    def push(self, identity: int) -> None:
        job = {"id": identity, "job": "Job@handle", "data": [], "attempts": 0}
        self.r.eval(PUSH, 2, self.ready, self.notify, json.dumps(job))

    def later(self, identity: int, at: float) -> None:
        self.r.zadd(self.delayed, {json.dumps({"id": identity, "attempts": 0}): at})

    def migrate(self) -> list[bytes]:
        """Moves what is due back to the queue: delayed jobs, and those whose worker is late."""
        moved = []
        for source in (self.delayed, self.reserved):
            moved += self.r.eval(MIGRATE, 3, source, self.ready, self.notify, time.time(), -1)
        return moved

    def pop(self, retry_after: float) -> bytes | None:
        self.migrate()
        payload, reserved = self.r.eval(POP, 3, self.ready, self.reserved, self.notify, time.time() + retry_after)
        assert (payload is None) == (reserved is None)
        return reserved

    def delete(self, reserved: bytes) -> bool:
        return self.r.zrem(self.reserved, reserved) == 1

    def release(self, reserved: bytes, delay: float) -> None:
        self.r.eval(RELEASE, 2, self.delayed, self.reserved, reserved, time.time() + delay)


def work(queue: Queue, jobs: int) -> None:
    """Three workers take all jobs, each of which is done once; every third is released at its first attempt."""
    done = collections.Counter()
    lock = threading.Lock()

    def worker() -> None:
        while sum(done.values()) < jobs:
            if not (reserved := queue.pop(60)):
                queue.r.blpop([queue.notify], timeout=0.05)
                continue
            job = json.loads(reserved)
            if job["id"] % 3 == 0 and job["attempts"] == 1:
                queue.release(reserved, 0.01)
                continue
            assert job["attempts"] == (2 if job["id"] % 3 == 0 else 1), job
            assert queue.delete(reserved), job
            with lock:
                done[job["id"]] += 1

    threads = [threading.Thread(target=worker) for _ in range(3)]
    for thread in threads:
        thread.start()
    for identity in range(jobs // 2):
        queue.push(identity)
    for identity in range(jobs // 2, jobs):
        queue.later(identity, time.time() + 0.1)
    for thread in threads:
        thread.join()
    assert done == collections.Counter(range(jobs)), done
    assert queue.size() == 0


def details(queue: Queue) -> None:
    assert queue.pop(60) is None
    queue.push(1)
    queue.later(2, time.time() + 3600)
    assert queue.size() == 2 and queue.r.llen(queue.notify) == 1
    # A worker is lost: another one gets the job when it is late.
    assert json.loads(queue.pop(0)) == {"id": 1, "job": "Job@handle", "data": {}, "attempts": 1}
    assert queue.r.llen(queue.notify) == 0 and queue.size() == 2
    again = queue.pop(60)
    assert json.loads(again)["attempts"] == 2 and queue.r.zscore(queue.reserved, again) > time.time()
    # More than one call of `unpack` passes to RPUSH.
    queue.r.zadd(queue.delayed, {f"job-{index:03}": index for index in range(250)})
    assert queue.migrate() == [f"job-{index:03}".encode() for index in range(250)]
    assert queue.r.lrange(queue.ready, 0, -1) == [f"job-{index:03}".encode() for index in range(250)]
    assert queue.r.llen(queue.notify) == 250
    assert queue.r.eval(CLEAR, 4, queue.ready, queue.delayed, queue.reserved, queue.notify) == 252
    assert queue.size() == 0 and queue.r.exists(queue.notify) == 0


def main(address: str, db: str) -> None:
    with redis.Redis.from_url(f"redis://{address}/{db}", socket_timeout=60) as r:
        r.flushdb()
        details(Queue(r, "default"))
        work(Queue(r, "emails"), 30)
        r.flushdb()
    print("Laravel's scripts are content")


if __name__ == "__main__":
    main(*sys.argv[1:])
