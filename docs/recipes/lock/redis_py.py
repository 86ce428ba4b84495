import os
import pathlib

import redis

r = redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
script = r.register_script(pathlib.Path(__file__).with_name("script.lua").read_text())
keys = ["{report}:lock", "{report}:token"]


def acquire(owner: str) -> None:
    token = script(keys=keys, args=["acquire", owner, 30_000])
    print(f"{owner}: {'held by another owner' if token is None else f'token {token}'}")


def release(owner: str) -> None:
    released = script(keys=keys, args=["release", owner])
    print(f"{owner}: {'released' if released else 'not the owner'}")


acquire("ada")
acquire("bob")
release("ada")
acquire("bob")
release("ada")
