import json
import os
import pathlib

import redis

r = redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
script = r.register_script(pathlib.Path(__file__).with_name("script.lua").read_text())

r.hset("user:1", "name", "Ada")
r.hset("user:2", "name", "Bob")
r.hset("post:10", mapping={"author": 1, "text": "first", "likes": 7})
r.hset("post:11", mapping={"author": 2, "text": "second", "likes": 0})
r.zadd("timeline", {"10": 1000, "11": 2000, "12": 1500})


def page(skip: int) -> list[dict]:
    return json.loads(script(keys=["timeline"], args=[skip, 10]))


for post in page(0):
    print(f"{post['author']}: {post['text']} ({post['likes']} likes)")
print(len(page(10)), "posts")
