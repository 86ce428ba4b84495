-- KEYS[1]: the number of seats taken; ARGV[1]: the number of seats
local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL ' .. taken .. ' seats taken') end
return redis.call('INCR', KEYS[1])
