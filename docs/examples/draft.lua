local taken = redis.call('GTE', KEYS[1])
total = taken + 1
redis.call('SET', 'seats')
return redis.call('INCR', 'seats')
