import os
import pathlib

import redis

r = redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), decode_responses=True)
script = r.register_script(pathlib.Path(__file__).with_name("script.lua").read_text())
keys = [f"{{mail}}:{part}" for part in ["waiting", "working", "payloads", "last"]]

for name in ["ada", "bob"]:
    print("put", script(keys=keys, args=["put", f"welcome {name}"]))

# A worker has 30 seconds for a job.
id, payload, deadline = script(keys=keys, args=["take", 30_000])
print(f"job {id}: {payload}")
print("done:", str(script(keys=keys, args=["done", id, deadline]) == 1).lower())
print("done again:", str(script(keys=keys, args=["done", id, deadline]) == 1).lower())
id, payload, deadline = script(keys=keys, args=["take", 30_000])
print(f"job {id}: {payload}")
if script(keys=keys, args=["take", 30_000]) is None:
    print("no job")
