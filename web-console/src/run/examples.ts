/** Scripts of real uses. Each begins with a state of its own, which `prepare` makes, so that it shows something. */
import type { Draft } from "./state";
import { EMPTY } from "./state";

export interface Example {
  name: string;
  about: string;
  /** Commands that make something to look at. */
  prepare: (string | number)[][];
  draft: Draft;
}

const text = (...words: string[]) => words.map((word) => ({ kind: "text" as const, text: word }));
const numbers = (...words: number[]) =>
  words.map((word) => ({ kind: "number" as const, text: String(word) }));

function example(
  name: string,
  about: string,
  draft: Partial<Draft>,
  prepare: Example["prepare"] = [],
): Example {
  return { name, about, prepare, draft: { ...EMPTY, ...draft } };
}

export const EXAMPLES: Example[] = [
  example("Rate limiter", "A maximum number of requests in a sliding time window.", {
    script: `-- A sliding window: requests in a sorted set, scored by their time.
local window, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local used = redis.call('ZCARD', KEYS[1])
if used >= most then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return {'refused', 'retry in ms', oldest[2] + window - now}
end

redis.call('ZADD', KEYS[1], now, time[1] .. '.' .. time[2] .. '-' .. used)
redis.call('PEXPIRE', KEYS[1], window)
return {'allowed', 'left', most - used - 1}
`,
    keys: text("rate:{alice}"),
    args: numbers(10000, 5),
  }),
  example(
    "Reliable queue",
    "A worker takes a job; jobs that are not finished in time are queued again.",
    {
      script: `-- Jobs wait in a list. One that is taken has a lease for a while.
local waiting, leases = KEYS[1], KEYS[2]
local lease = tonumber(ARGV[1])
local now = tonumber(redis.call('TIME')[1])

-- What workers did not finish in time waits again.
local lost = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 100)
for _, job in ipairs(lost) do
  redis.call('ZREM', leases, job)
  redis.call('RPUSH', waiting, job)
end

local job = redis.call('LPOP', waiting)
if not job then
  return redis.status_reply('EMPTY')
end
redis.call('ZADD', leases, now + lease, job)
redis.log(redis.LOG_NOTICE, 'leased ' .. job .. ', ' .. #lost .. ' came back')
return {job, redis.call('LLEN', waiting)}
`,
      keys: text("{jobs}:waiting", "{jobs}:leases"),
      args: numbers(30),
    },
    [
      ["DEL", "{jobs}:waiting", "{jobs}:leases"],
      ["RPUSH", "{jobs}:waiting", "mail:17", "mail:18", "resize:4", "mail:19"],
      ["ZADD", "{jobs}:leases", 1000, "resize:3"],
    ],
  ),
  example("Message index", "Stores a message, indexes it by its words and counts it, atomically.", {
    script: `-- A hash for the message, a set for each word, a list of the newest:
-- all of it is written, or nothing.
local message = cjson.decode(ARGV[1])
local id = redis.call('INCR', KEYS[1])
local key = 'message:' .. id

redis.call('HSET', key, 'from', message.from, 'text', message.text)
local words = 0
for word in message.text:lower():gmatch('%w+') do
  if #word > 3 then
    words = words + redis.call('SADD', 'word:' .. word, id)
  end
end
redis.call('LPUSH', KEYS[2], id)
redis.call('LTRIM', KEYS[2], 0, 99)
return {id = id, words = words, cjson.encode({id = id, words = words})}
`,
    keys: text("message:last", "messages:newest"),
    args: [{ kind: "json", text: '{"from": "ada", "text": "The moon shards meet at nine tonight"}' }],
  }),
  example(
    "Payload from hashes",
    "Builds one JSON document from many hashes, in one round trip and from one consistent state.",
    {
      script: `#!lua name=payload flags=no-writes
-- An order, its customer and its items as one document.
local function hash(key)
  local flat, result = redis.call('HGETALL', key), {}
  for at = 1, #flat, 2 do
    result[flat[at]] = tonumber(flat[at + 1]) or flat[at + 1]
  end
  return result
end

local order = hash(KEYS[1])
order.customer = hash('customer:' .. order.customer)
order.items, order.total = {}, 0
for _, id in ipairs(redis.call('LRANGE', KEYS[1] .. ':items', 0, -1)) do
  local item = hash('item:' .. id)
  order.items[#order.items + 1] = item
  order.total = order.total + item.price
end
return cjson.encode(order)
`,
      keys: text("order:9"),
      mode: "read-only",
    },
    [
      ["HSET", "order:9", "customer", "4", "state", "paid"],
      ["HSET", "customer:4", "name", "Grace", "city", "Arlington"],
      ["DEL", "order:9:items"],
      ["RPUSH", "order:9:items", "a1", "b7"],
      ["HSET", "item:a1", "title", "Lamp", "price", 40],
      ["HSET", "item:b7", "title", "Desk", "price", 180],
    ],
  ),
  example(
    "Leaderboards over rooms",
    "The best players of all rooms: keys on many shards, one consistent state.",
    {
      script: `-- The rooms are on different shards; all are read at one moment.
local best = {}
for _, room in ipairs(KEYS) do
  local top = redis.call('ZREVRANGE', room, 0, ARGV[1] - 1, 'WITHSCORES')
  for at = 1, #top, 2 do
    best[#best + 1] = {name = top[at], score = tonumber(top[at + 1]), room = room}
  end
end
table.sort(best, function(a, b) return a.score > b.score end)

local reply = {}
for place = 1, math.min(#best, ARGV[1]) do
  local one = best[place]
  reply[place] = {one.name, one.score, one.room}
end
return reply
`,
      keys: text("room:east", "room:west", "room:north", "room:south"),
      args: numbers(5),
      mode: "read-only",
    },
    [
      ["ZADD", "room:east", 310, "ada", 120, "bob", 95, "cleo"],
      ["ZADD", "room:west", 280, "dan", 275, "eve"],
      ["ZADD", "room:north", 199, "fay", 420, "gus"],
      ["ZADD", "room:south", 305, "hal", 12, "ida"],
    ],
  ),
  example(
    "Metrics scan, without atomicity",
    "Sums up many hashes without blocking other clients: each call is executed separately.",
    {
      script: `-- In mode Async nothing is locked: a long scan blocks no other client, and
-- sees what others write meanwhile.
local cursor, hosts, sum = '0', 0, 0
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', 'metrics:*', 'COUNT', 100)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local load = redis.call('HGET', key, 'load')
    if load then
      hosts, sum = hosts + 1, sum + load
    end
  end
until cursor == '0'

-- The results of these calls are not used: they are sent together.
redis.call('HSET', KEYS[1], 'hosts', hosts)
redis.call('HSET', KEYS[1], 'load', sum)
return {hosts, string.format('%.2f', sum / math.max(hosts, 1))}
`,
      keys: text("summary"),
      mode: "async",
    },
    Array.from({ length: 12 }, (_, at) => ["HSET", `metrics:host${at + 1}`, "load", ((at * 37) % 100) / 10]),
  ),
  example("Sticky result", "An expensive result that is never evicted, even if memory is full.", {
    script: `-- Computed once. What has the mark of STICK is never evicted;
-- it expires all the same.
local known = redis.call('GET', KEYS[1])
if known then
  return {'from cache', known}
end

local primes, limit = 0, tonumber(ARGV[1])
local composite = {}
for n = 2, limit do
  if not composite[n] then
    primes = primes + 1
    for multiple = n * n, limit, n do
      composite[multiple] = true
    end
  end
end
redis.call('SET', KEYS[1], primes, 'EX', 60)
redis.call('STICK', KEYS[1])
return {'computed', primes}
`,
    keys: text("primes:below:20000"),
    args: numbers(20000),
  }),
];
