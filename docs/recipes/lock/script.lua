-- Lock with an owner, an expiry and a fencing token.
-- KEYS[1]: the lock. KEYS[2]: the last fencing token. ARGV: operation, owner, milliseconds (not for release).
--   acquire: returns a fencing token, or nil if the lock is held
--   extend, release: return 1, or 0 if the owner does not hold the lock any more
local operation, owner, milliseconds = ARGV[1], ARGV[2], ARGV[3]
local holder = redis.call('GET', KEYS[1])
if operation == 'acquire' then
    if holder then return nil end
    redis.call('SET', KEYS[1], owner, 'PX', milliseconds)
    return redis.call('INCR', KEYS[2])
end
if holder ~= owner then return 0 end
if operation == 'extend' then return redis.call('PEXPIRE', KEYS[1], milliseconds) end
if operation == 'release' then return redis.call('DEL', KEYS[1]) end
return redis.error_reply('ERR unknown operation ' .. operation)
