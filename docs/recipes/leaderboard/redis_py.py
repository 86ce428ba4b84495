import os
import pathlib

import redis

r = redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), decode_responses=True)
script = r.register_script(pathlib.Path(__file__).with_name("script.lua").read_text())


def add(player: str, points: int) -> list[str]:
    """The lines of the board around a player who has won some points."""
    first, board = script(keys=["board"], args=[player, points, 1])
    return [f"{first + at}. {name} {score}" for at, (name, score) in enumerate(zip(board[::2], board[1::2]))]


add("bob", 20)
add("cyd", 50)
print("\n".join(add("ada", 30)))
print("\n".join(add("bob", 50)))
