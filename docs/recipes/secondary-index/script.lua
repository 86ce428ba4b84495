-- Saves a user, with a unique index of e-mail addresses and a set of users for each city.
-- KEYS: 1 the user (hash), 2 ids by e-mail address (hash), 3 users of the city (set). ARGV: id, e-mail address, city.
-- The set of the user's former city is not among the KEYS: which one it is stands in the user.
local user, emails, members = KEYS[1], KEYS[2], KEYS[3]
local id, email, city = ARGV[1], ARGV[2], ARGV[3]
local owner = redis.call('HGET', emails, email)
if owner and owner ~= id then return redis.error_reply('TAKEN ' .. email .. ' is the address of user ' .. owner) end

local old = redis.call('HMGET', user, 'email', 'city')
if old[1] and old[1] ~= email then redis.call('HDEL', emails, old[1]) end
if old[2] and old[2] ~= city then redis.call('SREM', 'users:in:' .. old[2], id) end
redis.call('HSET', user, 'email', email, 'city', city)
redis.call('HSET', emails, email, id)
redis.call('SADD', members, id)
return redis.status_reply('OK')
