"""What programs do with Celery: a worker of processes, results, groups, chords, chains, retries, delays, and its remote control.

Usage: celery_tasks.py HOST:PORT DB
"""

import multiprocessing
import os
import sys
import time

import celery
import redis

address, db = sys.argv[1:]
url = f"redis://{address}/{db}"
app = celery.Celery("moonshard", broker=url, backend=url)
app.conf.update(
    # The client's own times are short on a busy machine.
    redis_socket_timeout=120,
    redis_socket_connect_timeout=120,
    broker_connection_retry_on_startup=True,
    result_extended=True,
    task_acks_late=True,
    task_create_missing_queues=True,
    task_routes={"urgent": {"queue": "urgent"}},
    worker_hijack_root_logger=False,
)


@app.task(name="add")
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="urgent")
def urgent() -> int:
    return os.getpid()


@app.task(name="stubborn", bind=True, max_retries=3)
def stubborn(self) -> int:
    """Succeeds at the third attempt."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.01)
    return self.request.retries


@app.task(name="doomed", bind=True)
def doomed(self) -> None:
    self.update_state(state="STARTED", meta={"part": 1})
    raise KeyError("nothing to find")


@app.task(name="slow", bind=True)
def slow(self, seconds: float) -> str:
    self.update_state(state="SLOW", meta={"seconds": seconds})
    time.sleep(seconds)
    return self.request.delivery_info["routing_key"]


def until(what: str, holds) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def results() -> None:
    assert add.delay(2, 3).get(timeout=120) == 5
    sums = celery.group(add.s(number, number) for number in range(10))()
    assert sums.get(timeout=120) == [2 * number for number in range(10)]
    assert celery.chord((add.s(number, 1) for number in range(10)), total.s())().get(timeout=120) == 55
    chain = add.s(1, 2) | add.s(3) | celery.group(add.s(10), add.s(20)) | total.s()
    assert chain().get(timeout=120) == 42
    assert stubborn.delay().get(timeout=120) == 2
    assert urgent.delay().get(timeout=120) != os.getpid()
    failed = doomed.delay()
    try:
        failed.get(timeout=120)
    except KeyError as error:
        assert error.args == ("nothing to find",)
    else:
        raise AssertionError("it has not failed")
    assert failed.state == "FAILURE" and "nothing to find" in failed.traceback and failed.name == "doomed"
    failing = celery.chord([add.s(1, 1), doomed.s()], total.s())()
    error = failing.get(timeout=120, propagate=False)
    assert isinstance(error, celery.exceptions.ChordError) and "nothing to find" in str(error), error
    assert app.AsyncResult(failed.id).status == "FAILURE"
    failed.forget()
    assert app.AsyncResult(failed.id).status == "PENDING"


def delays() -> None:
    began = time.time()
    later = add.apply_async((1, 1), countdown=0.3)
    assert later.get(timeout=120) == 2 and time.time() - began >= 0.3
    expired = add.apply_async((1, 1), countdown=0.1, expires=0.05)
    try:
        expired.get(timeout=120)
    except celery.exceptions.TaskRevokedError:
        pass
    else:
        raise AssertionError("a task that has expired")


def control(r: redis.Redis) -> None:
    """Messages to all workers, and what they answer."""
    (name,) = app.control.inspect(timeout=120, limit=1).ping()
    assert {"add", "slow", "stubborn"} <= set(app.control.inspect([name], timeout=120, limit=1).registered()[name])
    revoked = add.apply_async((1, 1), countdown=3600)
    inspect = app.control.inspect([name], timeout=120, limit=1)
    until("a task waits in the worker", lambda: [task["request"]["id"] for task in inspect.scheduled()[name]] == [revoked.id])
    # It has not been acknowledged, so that another worker could take it.
    assert revoked.id in [task["id"] for task in inspect.query_task(revoked.id)[name].values() for task in task[1:]]
    assert r.hlen("unacked") == 1 and r.zcard("unacked_index") == 1
    app.control.revoke(revoked.id)
    until("it is revoked", lambda: revoked.id in inspect.revoked()[name])


def work() -> None:
    """Is a worker. What it reports when it starts and ends is dropped."""
    for output in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    app.worker_main(["--quiet", "worker", "--concurrency=2", "--queues=celery,urgent", "--loglevel=CRITICAL"])


def main() -> None:
    r = redis.Redis.from_url(url, socket_timeout=120)
    r.flushdb()
    # A process of its own, which has all imports already.
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    try:
        results()
        delays()
        control(r)
        last = slow.delay(0.5)
        until("it has begun", lambda: last.state == "SLOW")
    finally:
        # It ends when what it has begun is done.
        worker.terminate()
        worker.join(120)
    assert worker.exitcode == 0, worker.exitcode
    assert last.get(timeout=120) == "celery"
    # The task that was revoked goes back to its queue.
    assert r.hlen("unacked") == 0 and r.llen("celery") == 1 and r.llen("urgent") == 0
    r.flushdb()
    print("Celery is content", flush=True)
    # What is left of results would connect again while Python ends.
    os._exit(0)


if __name__ == "__main__":
    main()
