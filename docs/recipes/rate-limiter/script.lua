-- Token bucket.
-- KEYS[1]: the bucket. ARGV: capacity, tokens added per second, tokens wanted.
-- Returns {1, tokens left, 0}, or {0, tokens left, milliseconds until there are enough}.
local capacity, rate, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if wanted > capacity then return redis.error_reply('ERR the bucket never holds that many tokens') end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(bucket[1]) or capacity
local at = math.min(tonumber(bucket[2]) or now, now)
tokens = math.min(capacity, tokens + (now - at) * rate / 1000)

local allowed = tokens >= wanted
if allowed then tokens = tokens - wanted end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
-- A bucket that had the time to fill needs no key.
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate * 1000))
if allowed then return {1, math.floor(tokens), 0} end
return {0, math.floor(tokens), math.ceil((wanted - tokens) / rate * 1000)}
