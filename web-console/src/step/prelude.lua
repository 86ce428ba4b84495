-- Makes Lua 5.4 look like what scripts find on the server, which is Lua 5.1. A call of the server is a yield: between
-- two of them the page may look at everything.
local emit = ...
local resume, yield, status = coroutine.resume, coroutine.yield, coroutine.status
local SOURCE <const> = '=user_script'
local HALT <const> = {}
local MOST_ITEMS <const>, MOST_DEPTH <const>, MOST_BYTES <const> = 50, 4, 500

-- JSON for the page. Bytes are letters of Latin-1, so that any string gets there as it is.
local function quote(text)
  return '"' .. text:gsub('[%c"\\\128-\255]', function(letter)
    return string.format('\\u%04x', letter:byte())
  end) .. '"'
end

local function number_text(number)
  if math.type(number) == 'integer' then return string.format('%d', number) end
  return (string.format('%.17g', number))
end

local function show(value, depth)
  local kind = type(value)
  if kind == 'number' then
    return '{"t":"number","v":' .. quote(string.format('%.14g', value)) .. '}'
  elseif kind == 'string' then
    return '{"t":"string","v":' .. quote(value:sub(1, MOST_BYTES)) .. ',"n":' .. #value .. '}'
  elseif kind == 'boolean' then
    return '{"t":"boolean","v":' .. quote(tostring(value)) .. '}'
  elseif kind == 'table' then
    local items, count = {}, 0
    for key, item in next, value do
      count = count + 1
      if depth < MOST_DEPTH and count <= MOST_ITEMS then
        items[count] = '[' .. show(key, MOST_DEPTH) .. ',' .. show(item, depth + 1) .. ']'
      end
    end
    return '{"t":"table","n":' .. count .. ',"items":[' .. table.concat(items, ',') .. ']}'
  end
  return '{"t":"' .. kind .. '"}'
end

-- Names and values that a function sees, the newest of each name.
local function seen(thread, level, info)
  local names, values = {}, {}
  local function add(name, value)
    if name == '_ENV' or name:sub(1, 1) == '(' then return end
    if not values[name] then names[#names + 1] = name end
    values[name] = show(value, 0)
  end
  for at = 1, info.nups do
    local name, value = debug.getupvalue(info.func, at)
    if name then add(name, value) end
  end
  local at = 1
  while true do
    local name, value = debug.getlocal(thread, level, at)
    if not name then break end
    add(name, value)
    at = at + 1
  end
  for index, name in ipairs(names) do names[index] = '[' .. quote(name) .. ',' .. values[name] .. ']' end
  return '[' .. table.concat(names, ',') .. ']'
end

local function frames(thread)
  local found, level = {}, 0
  while true do
    local info = debug.getinfo(thread, level, 'Slnfu')
    if not info then break end
    if info.source == SOURCE then
      local name = info.what == 'main' and 'script' or info.name or 'function'
      found[#found + 1] = string.format('{"name":%s,"line":%d,"locals":%s}', quote(name), info.currentline,
        seen(thread, level, info))
    end
    level = level + 1
  end
  return '[' .. table.concat(found, ',') .. ']'
end

-- What the server's library has.
local RESP = 2
local function caller(how)
  return function(...)
    local words = table.pack(...)
    if words.n == 0 then
      error({err = 'ERR Please specify at least one argument for this redis.call() call'}, 0)
    end
    for at = 1, words.n do
      local word = words[at]
      if type(word) == 'number' then
        words[at] = number_text(word)
      elseif type(word) ~= 'string' then
        error({err = 'ERR Lua redis lib command arguments must be strings or integers'}, 0)
      end
    end
    local reply = yield(HALT, how, words)
    if how == 'acall' or how == 'apcall' then
      if how == 'acall' and type(reply) == 'table' and reply.err then error(reply, 0) end
      return nil
    end
    if how == 'call' and type(reply) == 'table' and reply.err then error(reply, 0) end
    return reply
  end
end

local function sha1hex(text)
  local function left(x, n) return ((x << n) | (x >> (32 - n))) & 0xffffffff end
  local h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}
  local padded = text .. '\x80' .. ('\0'):rep((55 - #text) % 64) .. string.pack('>I8', #text * 8)
  for chunk = 1, #padded, 64 do
    local w = {string.unpack('>' .. ('I4'):rep(16), padded, chunk)}
    for i = 17, 80 do w[i] = left(w[i - 3] ~ w[i - 8] ~ w[i - 14] ~ w[i - 16], 1) end
    local a, b, c, d, e = table.unpack(h)
    for i = 1, 80 do
      local f, k
      if i <= 20 then f, k = (b & c) | (~b & d), 0x5a827999
      elseif i <= 40 then f, k = b ~ c ~ d, 0x6ed9eba1
      elseif i <= 60 then f, k = (b & c) | (b & d) | (c & d), 0x8f1bbcdc
      else f, k = b ~ c ~ d, 0xca62c1d6 end
      a, b, c, d, e = (left(a, 5) + (f & 0xffffffff) + e + k + w[i]) & 0xffffffff, a, left(b, 30), c, d
    end
    for i, part in ipairs({a, b, c, d, e}) do h[i] = (h[i] + part) & 0xffffffff end
  end
  return string.format('%08x%08x%08x%08x%08x', table.unpack(h))
end

local LEVELS <const> = {[0] = 'debug', 'verbose', 'notice', 'warning'}
local redis = {
  call = caller('call'), pcall = caller('pcall'), acall = caller('acall'), apcall = caller('apcall'),
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_ALL = 3, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_NONE = 0,
  REDIS_VERSION = '7.0.15', REDIS_VERSION_NUM = 0x0007000f,
  sha1hex = sha1hex,
  log = function(level, ...)
    emit('{"log":{"level":' .. quote(LEVELS[level] or 'notice') .. ',"text":' .. quote(table.concat({...}, ' ')) .. '}}')
  end,
  error_reply = function(text)
    return {err = text:find('^%u+ ') and text or text:find('^%-') and text:sub(2) or 'ERR ' .. text}
  end,
  status_reply = function(text) return {ok = text} end,
  setresp = function(version) RESP = version end,
  set_repl = function() end,
  replicate_commands = function() return true end,
  breakpoint = function() return false end,
  debug = function() end,
}

-- What Lua 5.1 has and 5.4 has not, and numbers as 5.1 spells them.
local function plain(value)
  return math.type(value) == 'float' and math.tointeger(value) or value
end
local function all_plain(...)
  local values = table.pack(...)
  for at = 1, values.n do values[at] = plain(values[at]) end
  return table.unpack(values, 1, values.n)
end

local text = {}
for name, value in pairs(string) do text[name] = value end
text.format = function(format, ...) return string.format(format, all_plain(...)) end
text.gfind = string.gmatch

local tables = {}
for name, value in pairs(table) do tables[name] = value end
tables.concat = function(list, between, from, to)
  local copy = {}
  for at = from or 1, to or #list do copy[#copy + 1] = plain(list[at]) end
  return table.concat(copy, between)
end
tables.getn = function(list) return #list end
tables.maxn = function(list)
  local most = 0
  for key in pairs(list) do if type(key) == 'number' and key > most then most = key end end
  return most
end
tables.unpack, tables.pack, tables.move = nil, nil, nil

local maths = {}
for name, value in pairs(math) do maths[name] = value end
maths.pow = function(a, b) return a ^ b end
maths.log10 = function(a) return math.log(a, 10) end
maths.ldexp = function(a, b) return a * 2.0 ^ b end
maths.mod = math.fmod

local function signed(number)
  number = number & 0xffffffff
  return number >= 0x80000000 and number - 0x100000000 or number
end
local function whole(number) return math.tointeger(number) or math.floor(tonumber(number) + 0.5) end
local function fold(operation)
  return function(first, ...)
    local result = whole(first)
    for _, other in ipairs({...}) do result = operation(result, whole(other)) end
    return signed(result)
  end
end
local function turn(number, count)
  number, count = whole(number) & 0xffffffff, count & 31
  return signed((number << count) | (number >> (32 - count)))
end
local bit = {
  tobit = function(a) return signed(whole(a)) end,
  tohex = function(a) return string.format('%08x', whole(a) & 0xffffffff) end,
  bnot = function(a) return signed(~whole(a)) end,
  band = fold(function(a, b) return a & b end),
  bor = fold(function(a, b) return a | b end),
  bxor = fold(function(a, b) return a ~ b end),
  lshift = function(a, n) return signed(whole(a) << (n & 31)) end,
  rshift = function(a, n) return signed((whole(a) & 0xffffffff) >> (n & 31)) end,
  arshift = function(a, n) return signed(signed(whole(a)) // (1 << (n & 31))) end,
  rol = turn,
  ror = function(a, n) return turn(a, -n) end,
  bswap = function(a) return signed((string.unpack('<I4', string.pack('>I4', whole(a) & 0xffffffff)))) end,
}

local function absent(library)
  return setmetatable({}, {__index = function(_, name)
    return function()
      error(library .. '.' .. name .. ' is not there while a script is stepped through in the browser', 2)
    end
  end})
end

-- Coroutines of the script hand its calls on.
local function relay(thread, ...)
  local function after(fine, first, ...)
    if fine and first == HALT then return after(resume(thread, yield(HALT, ...))) end
    return fine, first, ...
  end
  return after(resume(thread, ...))
end
local threads = {}
for name, value in pairs(coroutine) do threads[name] = value end
threads.resume = relay
-- The line that was last begun: a call that a function ends with leaves no frame behind that would tell it.
local last
local function watched(f)
  local thread = coroutine.create(f)
  debug.sethook(thread, function(_, line)
    if debug.getinfo(2, 'S').source == SOURCE then last = line end
  end, 'l')
  return thread
end
threads.create = watched
threads.wrap = function(f)
  local thread = watched(f)
  local function checked(fine, ...)
    if not fine then error((...), 0) end
    return ...
  end
  return function(...) return checked(relay(thread, ...)) end
end

local main
local function environment(keys, args, cjson)
  local known = {
    KEYS = keys, ARGV = args, redis = redis, server = redis, cjson = cjson, bit = bit,
    cmsgpack = absent('cmsgpack'), struct = absent('struct'),
    string = text, table = tables, math = maths, coroutine = threads,
    assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = pcall, xpcall = xpcall,
    rawequal = rawequal, rawget = rawget, rawset = rawset, select = select, tonumber = tonumber, type = type,
    getmetatable = getmetatable, setmetatable = setmetatable, unpack = table.unpack, _VERSION = 'Lua 5.1',
    tostring = function(value) return type(value) == 'number' and string.format('%.14g', value) or tostring(value) end,
  }
  known._G = known
  known.loadstring = function(source, name) return load(source, name, 't', known) end
  known.load = known.loadstring
  return setmetatable(known, {
    __index = function(_, name)
      error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
  })
end

local function failed(what)
  local message = type(what) == 'table' and what.err or what
  local line = frames(main):match('"line":(%d+)') or last or 'null'
  return '{"failed":{"message":' .. quote(tostring(message)) .. ',"line":' .. line .. '}}'
end

-- Goes on to the next halt or the end, and tells of it.
local function advance(...)
  local fine, first, how, words = resume(main, ...)
  if not fine then return failed(first) end
  if status(main) == 'dead' then return '{"done":' .. show(first, 0) .. '}' end
  if first ~= HALT then return failed('ERR attempt to yield from outside a coroutine') end
  local quoted = {}
  for at = 1, words.n do quoted[at] = quote(words[at]) end
  return string.format('{"halt":{"how":"%s","resp":%d,"line":%d,"words":[%s],"frames":%s}}', how, RESP, last or 0,
    table.concat(quoted, ','), frames(main))
end

local function literal(source) return assert(load('return ' .. source, '=reply', 't', {}))() end

return {
  begin = function(source, keys, args, cjson)
    main = coroutine.create(function() end)
    local known = environment(literal(keys), literal(args), cjson)
    local script, wrong = load(source:gsub('^#!', '--', 1), SOURCE, 't', known)
    if not script then
      local line = wrong:match('user_script:(%d+)') or 'null'
      return '{"failed":{"message":' .. quote('ERR Error compiling script (new function): ' .. wrong) .. ',"line":' .. line .. '}}'
    end
    last, main = nil, watched(script)
    return advance()
  end,
  answer = function(reply) return advance(literal(reply)) end,
}
