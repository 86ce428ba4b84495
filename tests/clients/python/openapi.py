"""Uses a client that openapi-python-client has made of openapi.json as package `http_client`.

Usage: openapi.py HOST:PORT
"""

import io
import sys

from http_client import Client
from http_client.api.data import command, delete_key, key, keys, pipeline, put_key
from http_client.api.scripts import eval_, evalsha, load_script
from http_client.api.server import topology
from http_client.models import (
    CallStep,
    CommandBody,
    EvalBody,
    EvalReply,
    EvalshaBody,
    Limits,
    LoadScriptBody,
    LogStep,
    PipelineBody,
    Problem,
    PutKeyJsonBody,
)
from http_client.types import File

COUNT = "redis.log(redis.LOG_NOTICE, 'counts') return redis.call('INCRBY', KEYS[1], ARGV[1])"


def keys_and_values(client: Client) -> None:
    assert command.sync(client=client, body=CommandBody(args=["FLUSHALL"])).reply == "OK"
    run = command.sync(client=client, body=CommandBody(args=["SET", "text", "value"]))
    assert run.reply == "OK", run
    refused = command.sync(client=client, body=CommandBody(args=["INCR", "text"]))
    assert isinstance(refused, Problem) and refused.code == "ERR", refused
    put_key.sync_detailed("bytes", client=client, body=File(payload=io.BytesIO(b"\xff\x00")), ttl_ms=60_000)
    found = key.sync("bytes", client=client)
    assert found.value == {"base64": "/wA="} and 0 < found.ttl_ms <= 60_000 and found.type_ == "string", found
    put_key.sync_detailed("text", client=client, body=PutKeyJsonBody(value="other", sticky=True))
    assert key.sync("text", client=client).sticky
    assert sorted(keys.sync(client=client, count=100).keys) == ["bytes", "text"]
    replies = pipeline.sync(
        client=client, body=PipelineBody(commands=[["APPEND", "text", 1], ["GET", "text"]], atomic=True)
    )
    assert replies.replies == [6, "other1"], replies
    delete_key.sync_detailed("text", client=client)
    missing = key.sync("text", client=client)
    assert isinstance(missing, Problem) and missing.status == 404, missing


def scripts(client: Client) -> None:
    body = EvalBody(script=COUNT, keys=["count"], args=[2], trace=True, dry_run=True)
    dry = eval_.sync(client=client, body=body)
    assert isinstance(dry, EvalReply) and dry.reply == 2 and dry.run.outcome == "ok", dry
    log, call = dry.trace.steps
    assert isinstance(log, LogStep) and log.log.level == "notice" and log.log.text == "counts", log
    assert isinstance(call, CallStep) and call.call.args == ["INCRBY", "count", "2"] and call.call.reply == 2, call
    (write,) = dry.writes
    assert write.key == "count" and write.before is None and write.after.elements == ["2"], write
    sha = load_script.sync(client=client, body=LoadScriptBody(script=COUNT)).sha
    assert evalsha.sync(sha, client=client, body=EvalshaBody(keys=["count"], args=[3])).reply == 3
    endless = EvalBody(script="while true do end", limits=Limits(fuel=1_000_000))
    limited = eval_.sync(client=client, body=endless)
    assert isinstance(limited, Problem) and limited.code == "SCRIPTLIMIT", limited
    assert limited.run.outcome == "limit", limited


def main(address: str) -> None:
    with Client(base_url=f"http://{address}", raise_on_unexpected_status=True) as client:
        keys_and_values(client)
        scripts(client)
        assert topology.sync(client=client).mode == "embedded"


main(sys.argv[1])
