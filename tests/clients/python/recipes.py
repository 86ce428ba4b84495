"""The scripts of the book's recipes under concurrency: many threads, one truth.

Usage: recipes.py HOST:PORT DB
"""

import json
import pathlib
import sys
import threading
import time

import redis

RECIPES = pathlib.Path(__file__).parents[3] / "docs" / "recipes"
THREADS = 8


def together(work) -> list:
    """What `work(number)` returns on each of the threads, which all have to end well."""
    results: list = [None] * THREADS

    def run(number: int) -> None:
        results[number] = (work(number),)

    threads = [threading.Thread(target=run, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in results, "a thread has failed"
    return [result[0] for result in results]


def rate_limiter(r: redis.Redis, script) -> None:
    # One token an hour, so that none is added meanwhile.
    def work(_number: int) -> int:
        return sum(script(keys=["limit"], args=[50, 1 / 3600, 1])[0] for _ in range(20))

    assert sum(together(work)) == 50
    allowed, left, wait = script(keys=["limit"], args=[50, 1 / 3600, 1])
    assert (allowed, left) == (0, 0) and 0 < wait <= 3_600_000, (allowed, left, wait)
    assert 0 < r.pttl("limit") <= 50 * 3_600_000, "the bucket is full by then"
    # A thousand tokens a second: there are enough again soon.
    assert script(keys=["fast"], args=[5, 1000, 5])[0] == 1
    while script(keys=["fast"], args=[5, 1000, 5])[0] == 0:
        pass
    try:
        script(keys=["fast"], args=[5, 1000, 6])
        raise AssertionError("more than the bucket holds")
    except redis.ResponseError as error:
        assert "never holds" in str(error)


def lock(r: redis.Redis, script) -> None:
    keys = ["lock", "token"]

    def work(number: int) -> list[int]:
        tokens = []
        for turn in range(3):
            owner = f"{number}-{turn}"
            while (token := script(keys=keys, args=["acquire", owner, 60_000])) is None:
                pass
            # Without the lock these two would lose updates.
            r.set("guarded", int(r.get("guarded") or 0) + 1)
            tokens.append(token)
            assert script(keys=keys, args=["extend", owner, 60_000]) == 1
            assert script(keys=keys, args=["release", owner]) == 1
            assert script(keys=keys, args=["release", owner]) == 0
        return tokens

    tokens = [token for some in together(work) for token in some]
    assert r.get("guarded") == str(THREADS * 3)
    assert sorted(tokens) == list(range(1, THREADS * 3 + 1)), "each token is given once"
    # A lock whose owner is gone ends by itself.
    script(keys=keys, args=["acquire", "gone", 1])
    while script(keys=keys, args=["acquire", "next", 60_000]) is None:
        pass
    assert script(keys=keys, args=["extend", "gone", 60_000]) == 0


def queue(r: redis.Redis, script) -> None:
    keys = ["waiting", "working", "payloads", "last"]

    def put(number: int) -> list[int]:
        return [script(keys=keys, args=["put", f"{number}-{at}"]) for at in range(25)]

    ids = [id for some in together(put) for id in some]
    assert sorted(ids) == list(range(1, THREADS * 25 + 1))

    def work(_number: int) -> list[str]:
        seen = []
        while (job := script(keys=keys, args=["take", 60_000])) is not None:
            assert script(keys=keys, args=["done", job[0], job[2]]) == 1
            seen.append(job[1])
        return seen

    seen = [payload for some in together(work) for payload in some]
    assert sorted(seen) == sorted(f"{number}-{at}" for number in range(THREADS) for at in range(25)), "each job once"
    assert r.exists("waiting", "working", "payloads") == 0, "nothing is left"
    # A job whose worker is late is given to another one, and the late worker does not end it.
    script(keys=keys, args=["put", "again"])
    late = script(keys=keys, args=["take", 1])
    while (next := script(keys=keys, args=["take", 60_000])) is None:
        pass
    assert next[:2] == late[:2] and next[2] > late[2]
    assert script(keys=keys, args=["done", late[0], late[2]]) == 0
    assert script(keys=keys, args=["done", next[0], next[2]]) == 1


def leaderboard(r: redis.Redis, script) -> None:
    def work(number: int) -> None:
        for at in range(25):
            player = f"player {(number + at) % 5}"
            first, board = script(keys=["board"], args=[player, at, 1])
            names, scores = board[::2], [float(score) for score in board[1::2]]
            assert player in names and len(names) <= 3 and first >= 1
            assert scores == sorted(scores, reverse=True)

    together(work)
    assert sum(score for _, score in r.zrange("board", 0, -1, withscores=True)) == THREADS * sum(range(25))


def secondary_index(r: redis.Redis, script) -> None:
    def work(number: int) -> None:
        for at in range(25):
            id, city = (number + at) % 4, f"city {(number * at) % 3}"
            email = f"{(number + 3 * at) % 6}@example.com"
            try:
                script(keys=[f"user:{id}", "users:by-email", f"users:in:{city}"], args=[id, email, city])
            except redis.ResponseError as error:
                assert str(error).startswith("TAKEN "), error

    together(work)
    users = {str(id): r.hgetall(f"user:{id}") for id in range(4)}
    users = {id: user for id, user in users.items() if user}
    assert r.hgetall("users:by-email") == {user["email"]: id for id, user in users.items()}
    for city in range(3):
        there = {id for id, user in users.items() if user["city"] == f"city {city}"}
        assert r.smembers(f"users:in:city {city}") == there


def payload_builder(r: redis.Redis, script) -> None:
    def work(number: int) -> None:
        for at in range(25):
            if number % 2:
                # A post and its place in the timeline change together.
                with r.pipeline() as pipe:
                    pipe.hset(f"post:{number}", mapping={"author": number, "text": f"{at}\n\"", "likes": at})
                    pipe.zadd("timeline", {str(number): at})
                    pipe.execute()
            else:
                posts = json.loads(script(keys=["timeline"], args=[0, 3]))
                assert len(posts) <= 3
                assert all(post["text"] == f"{post['likes']}\n\"" and post["author"] is None for post in posts)

    together(work)
    r.hset("user:1", "name", "Ada")
    r.delete("post:3")
    posts = json.loads(script(keys=["timeline"], args=[0, 10]))
    assert sorted((post["id"], post["author"]) for post in posts) == [(1, "Ada"), (5, None), (7, None)]


def main() -> None:
    host, port = sys.argv[1].split(":")
    options = {"host": host, "port": int(port), "db": int(sys.argv[2]), "decode_responses": True}
    for protocol in [2, 3]:
        r = redis.Redis(**options, protocol=protocol, socket_timeout=60)
        for recipe in [rate_limiter, lock, queue, leaderboard, secondary_index, payload_builder]:
            r.flushdb()
            text = (RECIPES / recipe.__name__.replace("_", "-") / "script.lua").read_text()
            started = time.monotonic()
            recipe(r, r.register_script(text))
            print(f"{recipe.__name__}: RESP{protocol}, {time.monotonic() - started:.1f} s")
        r.flushdb()


main()
