import os
import pathlib

import redis

r = redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), decode_responses=True)
script = r.register_script(pathlib.Path(__file__).with_name("script.lua").read_text())


def save(id: int, email: str, city: str) -> None:
    script(keys=[f"user:{id}", "users:by-email", f"users:in:{city}"], args=[id, email, city])


def show(city: str) -> None:
    print(f"{city}:", *sorted(r.smembers(f"users:in:{city}")))


save(1, "a@example.com", "Oslo")
try:
    save(2, "a@example.com", "Oslo")
except redis.ResponseError as error:
    print(error)
save(2, "b@example.com", "Oslo")
show("Oslo")
save(1, "a@example.com", "Rome")
show("Oslo")
show("Rome")
print("b@example.com:", r.hget("users:by-email", "b@example.com"))
