--- integer
return 42
--- fraction is cut off
return 3.99
--- negative fraction
return -3.99
--- minus zero
return -0
--- minus zero as text
return tostring(-0)
--- two to the 53rd
return 2^53
--- two to the 53rd plus one
return 2^53 + 1
--- 1e300
return 1e300
--- minus 1e300
return -1e300
--- infinity
return 1/0
--- minus infinity
return -1/0
--- nan
return 0/0
--- two to the 63rd
return 2^63
--- minus two to the 63rd
return -2^63
--- below two to the 63rd
return 2^63 - 1024
--- true
return true
--- false
return false
--- nil
return nil
--- nothing
local x = 1
--- two values
return 1, 2
--- function
return print
--- string
return 'text'
--- empty string
return ''
--- string with zeros and line ends
return 'a\0b\r\nc\255'
--- empty table
return {}
--- array
return {1, 'two', 3.7, true, false}
--- nil ends an array
return {1, 2, nil, 4}
--- nil first
return {nil, 1}
--- fields of other names are not seen
return {1, 2, name = 'x'}
--- nested
return {1, {2, {3, {}}}, 'x'}
--- ok
return {ok = 'FINE'}
--- err
return {err = 'ERR broken'}
--- err without code
return {err = 'broken'}
--- err wins over ok
return {ok = 'a', err = 'b'}
--- ok within an array
return {{ok = 'FINE'}, {err = 'ERR broken'}}
--- ok that is no string
return {ok = 1}
--- ok that is a table
return {ok = {}}
--- err that is a number
return {err = 12}
--- line ends in ok
return {ok = 'a\r\nb\nc\rd'}
--- line ends in err
return {err = 'ERR a\r\nb\nc\rd'}
--- only line ends in ok
return {ok = '\r\n'}
--- double
return {double = 3.5}
--- double whole
return {double = 3}
--- big number that is none
return {big_number = 'abc'}
--- big number with line ends
return {big_number = '1\r\n2'}
--- double not a number
return {double = 0/0}
--- double infinite
return {double = 1/0}
--- double minus infinite
return {double = -1/0}
--- double large
return {double = 1e300}
--- double small
return {double = 1e-7}
--- double with all digits
return {double = 0.1 + 0.2}
--- double that is no number
return {double = 'x'}
--- map
return {map = {a = 1}}
--- map of one array
return {map = {a = {1, 2}}}
--- empty map
return {map = {}}
--- map that is none
return {map = 1}
--- set
return {set = {a = true}}
--- empty set
return {set = {}}
--- set that is none
return {set = 'x'}
--- big number
return {big_number = '1234567890123456789012345678901234567890'}
--- big number that is a number
return {big_number = 1}
--- verbatim string
return {verbatim_string = {format = 'txt', string = 'hello'}}
--- verbatim string with another format
return {verbatim_string = {format = 'mkd', string = '*hello*'}}
--- verbatim string without format
return {verbatim_string = {string = 'hello'}}
--- verbatim string with a long format
return {verbatim_string = {format = 'markdown', string = 'x'}}
--- nesting of 127
local t = {} for i = 1, 126 do t = {t} end return t
--- nesting of 128 | ours
local t = {} for i = 1, 127 do t = {t} end return t
--- array of many
local t = {} for i = 1, 300 do t[i] = i end return t
--- true in RESP3
redis.setresp(3) return true
--- false in RESP3
redis.setresp(3) return false
--- booleans in an array in RESP3
redis.setresp(3) return {true, false, 1}
--- nil in RESP3
redis.setresp(3) return nil
--- metatables are not asked
return setmetatable({}, {__index = function() return 'x' end, __len = function() return 3 end})
--- integers as arguments
return {redis.call('ECHO', 42), redis.call('ECHO', -7), redis.call('ECHO', 0)}
--- floats as arguments
return {redis.call('ECHO', 3.5), redis.call('ECHO', 0.1), redis.call('ECHO', 1/3), redis.call('ECHO', 1e300)}
--- large integers as arguments
return {redis.call('ECHO', 2^53), redis.call('ECHO', 2^53 - 1), redis.call('ECHO', 1e15), redis.call('ECHO', 123456789012345678)}
--- borders of number formats as arguments
return {redis.call('ECHO', 1e17), redis.call('ECHO', 1e18), redis.call('ECHO', 1e20), redis.call('ECHO', 2^63), redis.call('ECHO', -2^63), redis.call('ECHO', 1e-5), redis.call('ECHO', 1e21)}
--- odd numbers as arguments
return {redis.call('ECHO', 1/0), redis.call('ECHO', -1/0), redis.call('ECHO', -0)}
--- numbers as text
return {tostring(3.0), tostring(0.1), tostring(1/3), tostring(2^53), tostring(1e15), tostring(1e100), tostring(1/0)}
--- text as number
return {tonumber('0x10'), tonumber(' 12 '), tonumber('1e2'), tonumber('z', 36), tonumber('77', 8), tostring(tonumber('x')), tostring(tonumber(''))}
--- arrays as replies
redis.call('RPUSH', 'l', 'a', 'b') local r = redis.call('LRANGE', 'l', 0, -1) return {#r, r[1], type(r)}
--- status as reply
local r = redis.call('SET', 'k', 'v') return {type(r), r.ok}
--- error as reply
local r = redis.pcall('INCR', redis.call('SET', 'k', 'v') and 'k') return {type(r), r.err, r.source, r.line, tostring(r.ignore_error_stats_update)}
--- null as reply
local r = redis.call('GET', 'nokey') return {type(r), tostring(r)}
--- null array as reply
local r = redis.call('LPOP', 'nokey', 1) return {type(r), tostring(r)}
--- nulls in arrays as reply
redis.call('SET', 'a', 1) local r = redis.call('MGET', 'a', 'nokey', 'a') return {#r, type(r[2]), r}
--- score as reply
redis.call('ZADD', 'z', 1.5, 'm') local r = redis.call('ZSCORE', 'z', 'm') return {type(r), r}
--- hash as reply
redis.call('HSET', 'h', 'a', 1, 'b', 2) local r = redis.call('HGETALL', 'h') return {#r, r}
--- map as reply in RESP3
redis.setresp(3) redis.call('HSET', 'h', 'a', 1) local r = redis.call('HGETALL', 'h') return {type(r.map), r.map.a, #r}
--- map passed on in RESP3
redis.setresp(3) redis.call('HSET', 'h', 'a', 1) return redis.call('HGETALL', 'h')
--- set as reply in RESP3
redis.setresp(3) redis.call('SADD', 's', 'a') local r = redis.call('SMEMBERS', 's') return {type(r.set), tostring(r.set.a)}
--- set passed on in RESP3
redis.setresp(3) redis.call('SADD', 's', 'a') return redis.call('SMEMBERS', 's')
--- double as reply in RESP3
redis.setresp(3) redis.call('ZADD', 'z', 1.5, 'm') local r = redis.call('ZSCORE', 'z', 'm') return {type(r), type(r.double), tostring(r.double)}
--- double passed on in RESP3
redis.setresp(3) redis.call('ZADD', 'z', 1.5, 'm') return redis.call('ZSCORE', 'z', 'm')
--- scores passed on in RESP3
redis.setresp(3) redis.call('ZADD', 'z', 1, 'a', 2, 'b') return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')
--- null as reply in RESP3
redis.setresp(3) local r = redis.call('GET', 'nokey') return {type(r)}
--- nulls in arrays as reply in RESP3
redis.setresp(3) local r = redis.call('MGET', 'nokey', 'nokey') return {#r, type(r[1])}
--- back to RESP2
redis.setresp(3) redis.setresp(2) return type(redis.call('GET', 'nokey'))
--- setresp of something else
return redis.setresp(4)
--- setresp of nothing
return redis.setresp()
--- setresp of text
return redis.setresp('3')
--- setresp ends with the script
return type(redis.call('GET', 'nokey'))
--- keys and arguments | keys: a b c | args: 1 2 "x y"
return {KEYS[1], KEYS[3], #KEYS, ARGV[3], #ARGV, tostring(KEYS[4]), type(ARGV[1])}
--- binary keys and arguments | keys: "a\x00b" | args: "\r\n\xff"
return {KEYS[1], #KEYS[1], ARGV[1], #ARGV[1]}
--- numbers as arguments
local out = {} for i, n in ipairs({0, -0, 1, 9, 10, 11, 99, 100, 101, -1, -10, 0.5, 9.5, 99.5, 2^31, 2^53, 1e17, 1e300}) do out[i] = redis.call('ECHO', n) end return out
