--- new global
x = 1
--- new global function
function f() end
--- change of a global
print = 1
--- change of a global function
tostring = nil
--- rawset of a global
rawset(_G, 'x', 1)
--- field of _G
_G.x = 1
--- metatable of _G
setmetatable(_G, {})
--- metatable of _G is readable
return type(getmetatable(_G))
--- change of the metatable of _G
getmetatable(_G).__index = nil
--- change of a library
string.format = nil
--- new field of a library
string.mine = 1
--- rawset in a library
rawset(string, 'mine', 1)
--- change of redis
redis.call = nil
--- new field of redis
redis.mine = 1
--- change of math
math.pi = 3
--- change of table
table.insert = nil
--- change of coroutine
coroutine.create = nil
--- change of os | ours
os.clock = nil
--- change of cjson
cjson.encode = nil
--- change of cmsgpack
cmsgpack.pack = nil
--- change of struct
struct.pack = nil
--- change of bit
bit.band = nil
--- table.insert into a library
table.insert(string, 'x')
--- table.remove from a library
return table.remove(string)
--- table.sort of a library
return table.sort(string)
--- metatable of a library
setmetatable(string, {})
--- metatable of strings
getmetatable('').__index = nil
--- new field in the metatable of strings
getmetatable('').__add = function() return 1 end
--- metatable of strings replaced
return pcall(setmetatable, 'x', {})
--- setmetatable on KEYS
setmetatable(KEYS, {}) return 'fine'
--- KEYS can be changed
KEYS[1] = 'x' return KEYS[1]
--- KEYS can not be replaced
KEYS = {} return 'fine'
--- ARGV can not be replaced
ARGV = nil return 'fine'
--- own tables have metatables
return setmetatable({}, {__index = {x = 5}}).x
--- no dofile
return dofile('x')
--- no loadfile
return loadfile('x')
--- no require
return require('x')
--- no package
return package.loaded
--- no io
return io.open('x')
--- no debug
return debug.getinfo(1)
--- no os.execute | ours
return tostring(os.execute)
--- no os.time | ours
return tostring(os.time)
--- no os.exit | ours
return os.exit()
--- os.clock is a number | ours
return type(os.clock())
--- no newproxy
return newproxy()
--- no setfenv
return setfenv(1, {})
--- no getfenv
return getfenv(1)
--- no print
print('x')
--- no module
module('x')
--- load from a function
local parts, i = {'return ', '7'}, 0 return load(function() i = i + 1 return parts[i] end)()
--- loadstring
return loadstring('return 1 + 1')()
--- loadstring can not make globals
loadstring('x = 1')()
--- _VERSION
return _VERSION
--- collectgarbage
return {type(collectgarbage('count')), collectgarbage('collect'), collectgarbage('step')}
--- gcinfo
return type(gcinfo())
--- collectgarbage with nonsense
return collectgarbage('nonsense')
--- pairs over redis is possible
local n = 0 for k, v in pairs(redis) do if type(v) == 'function' then n = n + 1 end end return n > 10
--- table.setn is obsolete
table.setn({}, 1)
--- table.getn
return table.getn({1, 2, 3})
--- table.maxn
return table.maxn({1, 2, [10] = 3})
--- table.foreach
local n = 0 table.foreach({1, 2}, function() n = n + 1 end) return n
--- string.gfind
return tostring(string.gfind == string.gmatch)
--- string.dump | ours
return string.dump(function() return 1 end)
--- select negative
return {select(-1, 'a', 'b')}
--- upvalues do not survive
local n = 0 local function f() n = n + 1 return n end f() return f()
--- err handler is reachable
return type(__redis__err__handler)
--- math.random with a seed
math.randomseed(42) local t = {} for i = 1, 8 do t[i] = math.random(1000000) end return t
--- math.random with another seed
math.randomseed(-1) return {math.random(1, 6), math.random(1, 6), math.random(-100, 100), tostring(math.random())}
--- math.random errors
return {pcall(math.random, 0), pcall(math.random, 2, 1), pcall(math.random, 1, 2, 3)}
--- math functions
return {math.floor(-3.5), math.ceil(-3.5), tostring(math.huge), math.max(1, 5, 3), math.fmod(7, 3), tostring(math.pow(2, 0.5)), tostring(math.log10(1000)), math.abs(-4), tostring(math.sqrt(2)), tostring(math.pi)}
--- math trigonometry
return {tostring(math.sin(1)), tostring(math.cos(1)), tostring(math.tan(1)), tostring(math.exp(1)), tostring(math.log(10)), tostring(math.atan2(1, 2)), tostring(math.sinh(1))}
--- math rest
return {math.mod(7, 3), tostring(math.modf(3.7)), tostring(math.frexp(10)), tostring(math.ldexp(0.5, 4)), math.deg(math.pi), tostring(math.rad(180))}
--- remainder of negative numbers
return {-7 % 3, 7 % -3, tostring(5.5 % 2), tostring(1 % 0)}
--- pairs with nil holes
local n = 0 for _ in ipairs({1, nil, 3}) do n = n + 1 end return n
--- ipairs over what grows and shrinks
local t, seen = {1, 2, 3}, {} for i, v in ipairs(t) do seen[#seen + 1] = i .. '=' .. v if i < 5 then t[i + 3] = i * 10 end if i == 6 then t[7] = nil end end return seen
--- ipairs over what was filled from behind
local t, sum = {}, 0 for i = 10, 1, -1 do t[i] = i * i end for i, v in ipairs(t) do sum = sum + i * v end return sum
--- ipairs with fewer and more variables
local t, out = {'a', 'b'}, {} for i in ipairs(t) do out[#out + 1] = i end for i, v, w, x in ipairs(t) do out[#out + 1] = i .. v .. tostring(w) .. tostring(x) end return out
--- ipairs with a changed variable
local out = {} for i, v in ipairs({'a', 'b', 'c'}) do i = i + 10 out[#out + 1] = i .. v end return out
--- ipairs and metatables
local n = 0 for _ in ipairs(setmetatable({}, {__index = function(_, i) return i < 3 and i or nil end})) do n = n + 1 end return n
--- the step of ipairs from elsewhere
local step, out = ipairs({}), {} for _, start in pairs({1, 0.5, -1, '1', 2^31 - 2}) do for i, v in step, {[0] = 'z', 'a', 'b'}, start do out[#out + 1] = start .. ':' .. i .. v end end return out
--- the step of ipairs over something else
return {pcall(function() for _ in ipairs({}), 'text', 0 do end end), pcall(function() for _ in ipairs({}), {}, 'x' do end end)}
--- the step of ipairs by hand
local step, t = ipairs({'a', 'b'}) return {step({'a', 'b'}, 0), step(t, 1), select('#', step(t, 2)), pcall(step, nil, 1)}
--- length with holes
return #{1, 2, nil, 4}
--- goto is no keyword
local goto = 1 return goto
--- integer division is unknown
return 7 // 2
--- sorting
local t = {5, 2, 8, 1} table.sort(t) return t
--- sorting with a comparison
local t = {5, 2, 8, 1} table.sort(t, function(a, b) return a > b end) return t
--- sorting with an invalid comparison
local t = {} for i = 1, 100 do t[i] = i % 7 end return {pcall(table.sort, t, function() return true end)}
--- concat
return {table.concat({1, 2, 3}, ','), table.concat({}, ','), table.concat({1, 2, 3}, ',', 2, 3)}
--- concat of a table
return table.concat({1, {}})
