import os

import grpc
from gateway.v1 import gateway_pb2 as v1
from gateway.v1 import gateway_pb2_grpc

channel = grpc.insecure_channel(os.environ.get("MOONSHARD_GRPC", "127.0.0.1:50051"))
gateway = gateway_pb2_grpc.GatewayStub(channel)

script = b"return redis.call('INCRBY', KEYS[1], ARGV[1])"
request = v1.EvalRequest(script=script, keys=[b"visits"], args=[b"3"], dry_run=True, trace=True)
answer = gateway.Eval(request, timeout=10)
print(answer.reply.integer, answer.run.fuel, answer.writes, answer.trace.steps)
