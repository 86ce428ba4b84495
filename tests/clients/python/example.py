"""How a client in Python uses Moonshard by gRPC, with the stubs that grpcio-tools make of gateway.proto.

Usage: example.py HOST:PORT
"""

import sys

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from gateway.v1 import gateway_pb2 as v1
from gateway.v1 import gateway_pb2_grpc

# A counter that never passes its limit.
SEATS = b"""
local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
return redis.call('INCR', KEYS[1])
"""


def code_word(error: grpc.RpcError) -> str:
    """The code word of an error: NOSCRIPT, WRONGTYPE, or one that a script made up."""
    for detail in rpc_status.from_call(error).details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info.reason
    return ""


def command(*args: str | bytes) -> v1.Command:
    return v1.Command(args=[arg.encode() if isinstance(arg, str) else arg for arg in args])


def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        gateway = gateway_pb2_grpc.GatewayStub(channel)

        # One command. Keys and values are any bytes.
        gateway.Execute(v1.ExecuteRequest(args=[b"SET", b"name\xff", b"moon"]))
        reply = gateway.Execute(v1.ExecuteRequest(args=[b"GET", b"name\xff"])).reply
        assert reply.bulk == b"moon", reply
        gateway.Execute(v1.ExecuteRequest(args=[b"DEL", b"seats"]))

        # A script, first by its digest; what it would do, and what it does.
        sha = gateway.LoadScript(v1.LoadScriptRequest(script=SEATS)).sha
        seat = v1.EvalShaRequest(sha=sha, keys=[b"seats"], args=[b"2"])
        dry = gateway.EvalSha(v1.EvalShaRequest(sha=sha, keys=[b"seats"], args=[b"2"], dry_run=True, trace=True))
        assert dry.writes[0].after.elements == [b"1"] and not dry.writes[0].HasField("before"), dry
        assert [step.call.args[0] for step in dry.trace.steps] == [b"GET", b"INCR"], dry
        for wanted in (1, 2):
            assert gateway.EvalSha(seat, timeout=10).reply.integer == wanted
        try:
            gateway.EvalSha(seat)
            raise AssertionError("there is a third seat")
        except grpc.RpcError as error:
            assert code_word(error) == "FULL" and error.details() == "FULL at 2", error

        # A script that never ends, until its client loses patience. What it wrote is undone.
        endless = b"redis.call('SET', KEYS[1], 'half done') while true do end"
        try:
            gateway.Eval(v1.EvalRequest(script=endless, keys=[b"job"]), timeout=0.2)
            raise AssertionError("it has ended")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        job = gateway.Execute(v1.ExecuteRequest(args=[b"GET", b"job"])).reply
        assert job.WhichOneof("kind") == "null", job

        # Batches of commands. Errors are replies, and the stream goes on.
        batches = [
            v1.PipelineRequest(id=1, commands=[command("INCR", "n"), command("NOPE"), command("INCR", "n")]),
            v1.PipelineRequest(id=2, commands=[command("INCRBY", "n", "5"), command("DEL", "n")], atomic=True),
        ]
        first, second = gateway.Pipeline(iter(batches))
        assert (first.id, second.id) == (1, 2)
        assert first.replies[1].error.code == "ERR" and first.replies[2].integer == 2, first
        assert [reply.integer for reply in second.replies] == [7, 1], second

        # What happens to scripts, while it happens.
        events = gateway.Watch(v1.WatchRequest(), timeout=60)
        assert next(events).HasField("listening")
        gateway.Eval(v1.EvalRequest(script=b"return 1"))
        # Somebody else's script may end in between.
        began = next(event.began for event in events if event.HasField("began"))
        assert began.mode == "atomic"
        ended = next(event.ended for event in events if event.ended.run.run == began.run)
        assert ended.outcome == "ok"
        events.cancel()

        assert gateway.ScriptStats(v1.ScriptStatsRequest(sha=sha)).runs == 4
        assert sha in [script.sha for script in gateway.ListScripts(v1.ListScriptsRequest()).scripts]
    print("the Python client is content")


if __name__ == "__main__":
    main(*sys.argv[1:])
