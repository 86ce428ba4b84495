import os
import pathlib

import redis

r = redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
take = r.register_script(pathlib.Path(__file__).with_name("script.lua").read_text())


def allow(user: str) -> bool:
    """At most 3 requests at once, and 3 in a minute."""
    allowed, _left, _wait_ms = take(keys=[f"limit:{user}"], args=[3, 3 / 60, 1])
    return allowed == 1


for user in ["ada", "ada", "ada", "ada", "bob"]:
    print(f"{user}: {'allowed' if allow(user) else 'refused'}")
