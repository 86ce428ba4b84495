"""What programs do with redis-py: locks, scripts, pipelines, pub/sub, streams, documents, RESP3, asyncio.

Usage: redis_py.py HOST:PORT DB
"""

import asyncio
import sys
import threading

import redis
import redis.asyncio

# The client's own 5 seconds are short on a busy machine, and who is not answered in time asks again.
PATIENT = {"socket_timeout": 60, "socket_connect_timeout": 60}

# A counter that never passes its limit.
SEATS = """
local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
return redis.call('INCR', KEYS[1])
"""


def fails(error: type[Exception], text: str, call) -> None:
    """Holds that a call raises an error with a text."""
    try:
        call()
    except error as seen:
        assert text in str(seen), seen
    else:
        raise AssertionError(f"no error: {text}")


def scripts(r: redis.Redis) -> None:
    take = r.register_script(SEATS)
    assert [take(keys=["seats"], args=[2]) for _ in range(2)] == [1, 2]
    fails(redis.ResponseError, "FULL at 2", lambda: take(keys=["seats"], args=[2]))
    with r.pipeline() as pipe:
        take(keys=["other seats"], args=[9], client=pipe)
        take(keys=["other seats"], args=[9], client=pipe)
        assert pipe.execute() == [1, 2]
    assert r.eval("return {1, ARGV[1], false, {ok = 'fine'}}", 0, b"\xff\r\n") == [1, b"\xff\r\n", None, b"fine"]
    assert r.eval_ro("return redis.call('GET', KEYS[1])", 1, "seats") == b"2"
    fails(redis.ResponseError, "Write commands are not allowed", lambda: r.eval_ro("redis.call('DEL', 'x')", 0))
    fails(redis.exceptions.NoScriptError, "", lambda: r.evalsha("0" * 40, 0))
    code = "#!lua name=redispy\nredis.register_function('twice', function(keys, args) return args[1] * 2 end)"
    assert r.function_load(code, replace=True) == b"redispy"
    assert r.fcall("twice", 0, 21) == 42


def locks(r: redis.Redis) -> None:
    """Many threads raise a counter by reading and writing, one at a time by a lock."""
    r.set("guarded", 0)

    def work() -> None:
        for _ in range(5):
            with r.lock("the lock", timeout=60, sleep=0.002):
                r.set("guarded", int(r.get("guarded")) + 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.get("guarded") == b"40"
    lock = r.lock("the lock", timeout=60)
    assert lock.acquire(blocking=False) and not r.lock("the lock").acquire(blocking=False)
    assert lock.extend(60) and lock.reacquire() and 30 < r.ttl("the lock") <= 60
    lock.release()
    fails(redis.exceptions.LockError, "", lock.release)


def transactions(r: redis.Redis) -> None:
    with r.pipeline(transaction=False) as pipe:
        for index in range(500):
            pipe.set(f"p:{index}", index).incr("sum", index)
        replies = pipe.execute()
    assert replies[::2] == [True] * 500 and replies[-1] == 499 * 500 // 2
    with r.pipeline() as pipe:
        pipe.set("text", "x").incr("text").append("text", "y")
        replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and "not an integer" in str(replies[1]) and replies[2] == 2, replies

    def raise_by_one(pipe) -> None:
        seen = int(pipe.get("watched") or 0)
        if seen == 0:
            r.incr("watched")  # Somebody else, once.
        pipe.multi()
        pipe.set("watched", seen + 1)

    assert r.transaction(raise_by_one, "watched") == [True]
    assert r.get("watched") == b"2"


def values(r: redis.Redis) -> None:
    resp3 = r.connection_pool.connection_kwargs.get("protocol") == 3
    r.hset("h", mapping={"one": 1, "two": 2.5, "bytes": b"\x00\xff"})
    assert r.hgetall("h") == {b"one": b"1", b"two": b"2.5", b"bytes": b"\x00\xff"}
    assert r.zadd("z", {"a": 1, "b": 2.5, "c": float("inf")}) == 3
    pairs = [list(pair) for pair in r.zrange("z", 0, -1, withscores=True)]
    assert pairs == [[b"a", 1.0], [b"b", 2.5], [b"c", float("inf")]], pairs
    assert r.zscore("z", "b") == 2.5 and r.zincrby("z", 0.5, "b") == 3.0
    r.sadd("s", *range(300))
    assert r.smembers("s") == {str(index).encode() for index in range(300)}
    assert {int(member) for member in r.sscan_iter("s", count=10)} == set(range(300))
    assert len(list(r.scan_iter("p:4*", count=20))) == 111
    r.rpush("l", *range(10))
    assert r.lpop("l", 2) == [b"0", b"1"] and r.lpos("l", 5) == 3 and r.lrange("l", -2, -1) == [b"8", b"9"]
    assert r.blpop(["none", "l"], timeout=5) in ((b"l", b"2"), [b"l", b"2"])
    assert r.set("e", "x", ex=100, get=True) is None and 50 <= r.ttl("e") <= 100
    assert r.getex("e", persist=True) == b"x" and r.ttl("e") == -1
    assert r.bitfield("bits").set("u8", 0, 200).incrby("u8", 0, 100).execute() == [0, 44]
    r.pfadd("hll", *range(1000))
    assert 950 < r.pfcount("hll") < 1050
    r.geoadd("g", [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"])
    found = r.geosearch("g", longitude=15, latitude=37, radius=200, unit="km", sort="ASC", withdist=True)
    assert [place[0] for place in found] == [b"Catania", b"Palermo"] and 56 < float(found[0][1]) < 57
    assert r.sort("l", start=0, num=2, desc=True) == [b"9", b"8"]
    dump = r.dump("z")
    r.restore("z2", 0, dump)
    assert r.zrange("z2", 0, -1) == [b"a", b"b", b"c"]
    assert r.object("encoding", "e") in (b"embstr", "embstr")
    assert r.client_info()["resp"] == ("3" if resp3 else "2")
    assert r.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert r.info("server")["redis_mode"] and r.dbsize() > 100 and "get" in r.command()


def messages(r: redis.Redis) -> None:
    # Of each pass its own: who listened to another may still be counted there.
    kwargs = r.connection_pool.connection_kwargs
    channel = f"redis-py:{kwargs['db']}:{kwargs['protocol']}"
    with r.pubsub() as listener:
        listener.subscribe(channel)
        listener.psubscribe(f"{channel}*")
        for kind in ("subscribe", "psubscribe"):
            assert listener.get_message(timeout=60)["type"] == kind
        assert r.publish(channel, b"\xff") == 2
        seen = [listener.get_message(timeout=60) for _ in range(2)]
        assert [(message["type"], message["data"]) for message in seen] == [("message", b"\xff"), ("pmessage", b"\xff")]
        assert (channel.encode(), 1) in [tuple(pair) for pair in r.pubsub_numsub(channel)]
        listener.unsubscribe()
        assert listener.get_message(timeout=60)["type"] == "unsubscribe"
    with r.pubsub() as listener:
        listener.ssubscribe(channel)
        assert listener.get_message(timeout=60)["type"] == "ssubscribe"
        assert r.spublish(channel, "x") == 1
        assert listener.get_sharded_message(timeout=60)["data"] == b"x"
    heard = threading.Event()
    listener = r.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(**{channel: lambda message: heard.set()})
    thread = listener.run_in_thread(sleep_time=0.01)
    while not heard.is_set():
        r.publish(channel, "again")
        heard.wait(0.02)
    thread.stop()
    thread.join()


def streams(r: redis.Redis) -> None:
    ids = [r.xadd("stream", {"n": index}) for index in range(5)]
    assert [entry[0] for entry in r.xrange("stream", min=ids[1], max=ids[3])] == ids[1:4]
    assert r.xgroup_create("stream", "workers", id="0")
    fails(redis.ResponseError, "BUSYGROUP", lambda: r.xgroup_create("stream", "workers"))

    def entries(reply) -> list:
        """The entries of the one stream of a reply, which each protocol tells in its own way."""
        ((name, found),) = reply.items() if isinstance(reply, dict) else reply
        assert name == b"stream"
        return found[0] if len(found) == 1 and isinstance(found[0], list) and len(found[0]) > 1 else found

    mine = entries(r.xreadgroup("workers", "one", {"stream": ">"}, count=3))
    assert [entry[0] for entry in mine] == ids[:3] and mine[0][1] == {b"n": b"0"}
    assert r.xack("stream", "workers", ids[0]) == 1
    assert r.xpending("stream", "workers")["pending"] == 2
    assert [entry[0] for entry in r.xautoclaim("stream", "workers", "two", 0)[1]] == ids[1:3]
    assert r.xinfo_stream("stream")["length"] == 5 and len(r.xinfo_consumers("stream", "workers")) == 2
    assert r.xtrim("stream", maxlen=2, approximate=False) == 3


def documents(r: redis.Redis) -> None:
    json = r.json()
    assert json.set("doc", "$", {"n": 1, "inner": {"n": 2.5}, "list": [1, "x"], "on": True})
    assert json.get("doc", "$..n") == [1, 2.5] and json.get("doc", "n", "on") == {"n": 1, "on": True}
    assert json.numincrby("doc", "$..n", 2) == [3, 4.5]
    assert json.arrappend("doc", "$.list", {"k": None}) == [3]
    assert json.arrindex("doc", "$.list", "x") == [1] and json.arrpop("doc", "$.list", 0) == ["1"]
    assert json.toggle("doc", "$.on") == [0]
    assert json.merge("doc", "$", {"on": None, "new": {"list": []}})
    assert json.objkeys("doc", "$") == [[b"n", b"inner", b"list", b"new"]]
    assert json.mset([("doc2", "$", [7]), ("doc", "$.n", 0)])
    assert json.mget(["doc", "doc2", "none"], "$[0]") == [[], [7], None]
    assert json.delete("doc", "$..list") == 2
    assert json.get("doc") == {"n": 0, "inner": {"n": 4.5}, "new": {}}
    fails(redis.ResponseError, "new objects must be created at the root", lambda: json.set("none", "$.a", 1))


async def at_once(host: str, port: int, db: int) -> None:
    """Many tasks on one client of asyncio: commands, a lock, messages, what waits."""
    async with redis.asyncio.Redis(host=host, port=port, db=db, max_connections=20, protocol=3, **PATIENT) as r:
        await r.delete("n", "queue", "guarded")
        await asyncio.gather(*(r.incr("n") for _ in range(15)))
        assert await r.get("n") == b"15"
        popped = asyncio.create_task(r.blpop("queue", timeout=60))
        await r.rpush("queue", "job")
        assert tuple(await popped) == (b"queue", b"job")

        async def work() -> None:
            async with r.lock("async lock", timeout=60, sleep=0.002):
                await r.set("guarded", int(await r.get("guarded") or 0) + 1)

        await asyncio.gather(*(work() for _ in range(10)))
        assert await r.get("guarded") == b"10"
        async with r.pubsub() as listener:
            await listener.subscribe("async channel")
            assert (await listener.get_message(timeout=60))["type"] == "subscribe"
            await r.publish("async channel", "x")
            assert (await listener.get_message(timeout=60))["data"] == b"x"
        async with r.pipeline(transaction=True) as pipe:
            assert await pipe.set("a", 1).incr("a").execute() == [True, 2]


def main(address: str, db: str) -> None:
    host, port = address.rsplit(":", 1)
    for protocol in (2, 3):
        with redis.Redis(host=host, port=int(port), db=int(db), protocol=protocol, **PATIENT) as r:
            r.flushdb()
            for check in (scripts, locks, transactions, values, messages, streams, documents):
                check(r)
    asyncio.run(at_once(host, int(port), int(db)))
    print("redis-py is content")


if __name__ == "__main__":
    main(*sys.argv[1:])
