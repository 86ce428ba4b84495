-- Queue whose jobs are delivered again if a worker does not finish them in time.
-- KEYS: 1 waiting ids (list), 2 ids in work by deadline (sorted set), 3 payloads by id (hash), 4 the last id.
-- ARGV:
--   put PAYLOAD: returns the id of the new job
--   take MILLISECONDS: returns {id, payload, deadline}, or nil if no job waits
--   done ID DEADLINE: returns 1, or 0 if the job was given to another worker after its deadline
local waiting, working, payloads, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local operation = ARGV[1]
if operation == 'put' then
    local id = redis.call('INCR', last)
    redis.call('HSET', payloads, id, ARGV[2])
    redis.call('RPUSH', waiting, id)
    return id
end
if operation == 'take' then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    -- Jobs of workers that are late go first.
    for _, id in ipairs(redis.call('ZRANGE', working, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)) do
        redis.call('ZREM', working, id)
        redis.call('LPUSH', waiting, id)
    end
    local id = redis.call('LPOP', waiting)
    if not id then return nil end
    local deadline = now + tonumber(ARGV[2])
    redis.call('ZADD', working, deadline, id)
    return {tonumber(id), redis.call('HGET', payloads, id), deadline}
end
if operation == 'done' then
    -- A later worker has a later deadline.
    if tonumber(redis.call('ZSCORE', working, ARGV[2]) or 0) ~= tonumber(ARGV[3]) then return 0 end
    redis.call('ZREM', working, ARGV[2])
    return redis.call('HDEL', payloads, ARGV[2])
end
return redis.error_reply('ERR unknown operation ' .. operation)
