-- Programs that do the same in both tiers, each behind a line of dashes. What they return is compared, and what they call.
---- errors name variables, and lines, at every operation
local out, t, s, n = {}, {}, 'text', nil
local function note(...) out[#out + 1] = tostring((select(2, pcall(...)))) end
for i = 1, 3 do
  note(function() for j = 1, 2 do local x = n.field end end)
  note(function() for j = 1, 2 do local x = t.missing.field end end)
  note(function() for j = 1, 2 do local x = t[j].field end end)
  note(function() for j = 1, 2 do local x = t[j][j] end end)
  note(function() for j = 1, 2 do n[j] = j end end)
  note(function() for j = 1, 2 do local x = s + j end end)
  note(function() for j = 1, 2 do local x = j + t end end)
  note(function() for j = 1, 2 do local x = t.field * j end end)
  note(function() for j = 1, 2 do local x = -t end end)
  note(function() for j = 1, 2 do local x = j % {} end end)
  note(function() for j = 1, 2 do local x = j .. t end end)
  note(function() for j = 1, 2 do local x = j < s end end)
  note(function() for j = 1, 2 do local x = t <= j end end)
  note(function() for j = 1, 2 do if t < t then return j end end end)
  note(function() for j = 1, 2 do local x = #j end end)
  note(function() for j = 1, 2 do n() end end)
  note(function() for j = 1, 2 do t.method(j) end end)
  note(function() for j = 1, 2 do t:method(j) end end)
  note(function() for j = 1, 2 do missing(j) end end)
  note(function() for j = 1, 2 do local x = missing end end)
  note(function() for j = 1, 2 do missing = j end end)
  note(function() for j = 1, {} do end end)
  note(function() for j = {}, 1 do end end)
  note(function() for j = 1, 2, 'x' do end end)
  note(function() for j in n do end end)
  note(function() for j = 1, 2 do t[nil] = j end end)
  note(function() for j = 1, 2 do t[0 / 0] = j end end)
  note(function() for j = 1, 2 do error({}, j) end end)
  note(function() for j = 1, 2 do error('level', 2) end end)
  note(function() local function f(x) return x + n end for j = 1, 2 do f(j) end end)
  note(function() local function f(x) error('deep', 2) end for j = 1, 2 do f(j) end end)
  note(function() for j = 1, 2 do redis.call('SET', {}, j) end end)
end
return out
---- recursion to every depth around the limits
local function down(n) if n == 0 then return 0 end return 1 + down(n - 1) end
local out = {}
for _, n in ipairs({1, 50, 170, 175, 176, 177, 178, 179, 180, 181, 182, 185, 190, 199, 200, 201, 250, 1000, 5000}) do
  out[#out + 1] = down(n)
end
local function endless(n) return 1 + endless(n + 1) end
for i = 1, 3 do out[#out + 1] = tostring((select(2, pcall(endless, i)))) end
return out
---- recursion through functions of C
local out = {}
local function by_pcall(n) if n == 0 then return 0 end local ok, got = pcall(by_pcall, n - 1) return ok and 1 + got or got end
local function by_gsub(n) if n == 0 then return '0' end return (('x'):gsub('x', function() return by_gsub(n - 1) .. '1' end)) end
local function by_sort(n)
  if n == 0 then return 0 end
  local got = 0
  table.sort({2, 1}, function(a, b) got = by_sort(n - 1) return a < b end)
  return 1 + got
end
local meta = {}
meta.__index = function(t, n) if n == 0 then return 0 end local inner = setmetatable({}, meta) return 1 + inner[n - 1] end
meta.__add = function(a, n) if n == 0 then return 0 end local inner = setmetatable({}, meta) return (inner + (n - 1)) + 1 end
meta.__lt = function(a, b) if a.n <= 0 then return true end return setmetatable({n = a.n - 1}, meta) < b end
meta.__concat = function(a, n) if n == 0 then return 0 end return setmetatable({}, meta) .. (n - 1) end
local all = {
  by_pcall, by_gsub, by_sort, function(n) return setmetatable({}, meta)[n] end,
  function(n) return setmetatable({}, meta) + n end,
  function(n) return tostring(setmetatable({n = n}, meta) < setmetatable({n = 0}, meta)) end,
  function(n) return setmetatable({}, meta) .. n end,
}
for number, f in ipairs(all) do
  for _, n in ipairs({1, 10, 60, 90, 120, 180, 195, 250, 400}) do
    out[#out + 1] = number .. ' ' .. n .. ' ' .. tostring((select(2, pcall(f, n))))
  end
end
return out
---- coroutines
local out = {}
local function numbers(n) return coroutine.wrap(function() for i = 1, n do coroutine.yield(i * 2) end end) end
for i = 1, 5 do for x in numbers(i) do out[#out + 1] = x end end
local function sum(n) local s = 0 for i = 1, n do s = s + i if i == 3 then coroutine.yield(s) end end return s end
local co = coroutine.create(sum)
out[#out + 1] = select(2, coroutine.resume(co, 5))
out[#out + 1] = select(2, coroutine.resume(co))
out[#out + 1] = sum(2)
for i = 1, 3 do out[#out + 1] = tostring((select(2, pcall(sum, 4)))) end
local inner = coroutine.wrap(function() local t = {} for i = 1, 3 do t[i] = sum(2) + i end coroutine.yield(t) error('end') end)
for i = 1, 2 do local ok, t = pcall(inner) out[#out + 1] = ok and t[3] or t end
return out
---- numbers and what is taken for numbers
local out = {}
local function add(a, b) return a + b end
local function all(a, b) return a + b, a - b, a * b, a / b, a % b, a ^ 2, -a, a < b, a <= b, a == b end
local values = {0, -0, 1, -1, 0.5, -2.75, 1e15, 2 ^ 53, 2 ^ 63, -2 ^ 63, 1e308, 1 / 0, -1 / 0, 0 / 0}
for i = 1, #values do for j = 1, #values do
  local text = {}
  for _, value in ipairs({all(values[i], values[j])}) do text[#text + 1] = tostring(value) end
  out[#out + 1] = table.concat(text, ' ')
end end
for _, pair in ipairs({{'10', 1}, {1, '0x10'}, {' 7 ', '1e1'}, {'x', 1}, {{}, 1}, {nil, 1}, {true, 1}}) do
  for i = 1, 2 do out[#out + 1] = tostring((select(2, pcall(add, pair[1], pair[2])))) end
end
for i = '1', '3' do out[#out + 1] = i + 1 end
for i = 1, 2, 0.25 do out[#out + 1] = i end
for i = 3, 1, -1 do out[#out + 1] = i end
for i = 1e15, 1e15 + 2 do out[#out + 1] = i end
for i = 1, 0 / 0 do out[#out + 1] = 'nan' end
for i = -0, 0 do out[#out + 1] = tostring(1 / i) end
for i = 1, 3 do i = i * 2 out[#out + 1] = i end
return out
---- loops that end with loops
local function f(x, n)
  while x < 300 do
    x = x * 2
    while x % 7 ~= 0 do
      x = x + 1
      if x > n then while x > n do x = x - 3 end end
    end
  end
  return x
end
return {f(1, 400), f(5, 1000), f(3, 700)}
---- closures share variables
local out, kept = {}, {}
for i = 1, 5 do
  local x = i * 2
  kept[i] = {function() x = x + 1 return x + i end, function(v) x = v end}
  x = x + 0.5
  out[#out + 1] = kept[i][1]()
  x = x * 2
  kept[i][2]('10')
  out[#out + 1] = x + 1
end
for i = 1, 5 do out[#out + 1] = kept[i][1]() end
local total = 0
local function count(n) total = total + n if n > 0 then count(n - 1) end return total end
for i = 1, 4 do out[#out + 1] = count(i) end
return out
---- tables: arrays that grow and shrink, hashes, metatables that come and go
local out, t = {}, {}
for i = 1, 40 do t[i] = i * i end
for i = 40, 1, -3 do t[i] = nil end
for i = -2, 42 do out[#out + 1] = tostring(t[i]) end
local log = {}
local meta = {__index = function(_, k) log[#log + 1] = 'get ' .. tostring(k) return k end,
  __newindex = function(t, k, v) log[#log + 1] = 'set ' .. tostring(k) rawset(t, k, v) end}
for i = 1, 8 do
  if i == 3 then setmetatable(t, meta) end
  if i == 6 then setmetatable(t, nil) end
  out[#out + 1] = tostring(t[i + 38])
  t[i + 44] = i
  t[i / 2] = i
  t[1e10 * i] = i
  out[#out + 1] = tostring(t[i / 2]) .. tostring(t[1e10 * i]) .. tostring(t[i - 0.25])
end
for _, line in ipairs(log) do out[#out + 1] = line end
for i = 1, 3 do out[#out + 1] = tostring((select(2, pcall(function() for j = 1, 2 do string[j] = i end end)))) end
out[#out + 1] = #t
return out
---- garbage, and what dies of it
local out, weak = {}, setmetatable({}, {__mode = 'v'})
for i = 1, 3000 do
  weak[i] = {i}
  local s = ('x'):rep(i % 50) .. i
  if i % 500 == 0 then out[#out + 1] = collectgarbage('count') end
end
collectgarbage()
local left = 0
for _ in pairs(weak) do left = left + 1 end
out[#out + 1] = left
out[#out + 1] = collectgarbage('count')
return out
---- calls: more and fewer arguments than parameters, varargs, tail calls, many results
local out = {}
local function three(a, b, c) return a, b, c end
local function any(...) return select('#', ...), ... end
local function tail(n, ...) if n == 0 then return any(...) end return tail(n - 1, n, ...) end
for i = 1, 4 do
  local t = {three(i), three(i, 2), three(i, 2, 3, 4), any(three(i, nil, 5)), tail(i, 'x')}
  for j = 1, 12 do out[#out + 1] = tostring(t[j]) end
  out[#out + 1] = (three(i)) + select('#', three(1)) + select(2, 1, i)
  local a, b, c, d = three(1, i)
  out[#out + 1] = tostring(d) .. b
end
out[#out + 1] = (any(unpack({}, 1, 200)))
return out
---- calls of commands: errors, tables, and what is around them
local out = {}
for i = 1, 5 do
  out[#out + 1] = redis.call('INCRBY', KEYS[1], i * 2)
  out[#out + 1] = redis.pcall('SET', 'k' .. i, i / 2)
  local ok, err = pcall(redis.call, 'SET', nil)
  out[#out + 1] = type(err) == 'table' and err.err or tostring(err)
  if i > 3 then redis.log(redis.LOG_NOTICE, 'x') end
end
return out
