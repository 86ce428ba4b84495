-- JSON as cjson of the server reads and writes it.
local null = setmetatable({}, {__tostring = function() return 'userdata: NULL' end})
local NAMES <const> = {b = '\b', f = '\f', n = '\n', r = '\r', t = '\t'}
local LETTERS <const> = {['"'] = '\\"', ['\\'] = '\\\\', ['/'] = '\\/', ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n',
  ['\r'] = '\\r', ['\t'] = '\\t'}
local DEEPEST <const> = 1000

local function quote(text)
  return '"' .. text:gsub('[%c"\\/\127]', function(letter)
    return LETTERS[letter] or string.format('\\u%04x', letter:byte())
  end) .. '"'
end

-- How many elements a list has; nil if it is none.
local function length(value)
  local most, count = 0, 0
  for key in next, value do
    if type(key) ~= 'number' or key < 1 or key % 1 ~= 0 then return nil end
    most, count = math.max(most, key), count + 1
  end
  if most > 10 and most > count * 2 then error('Cannot serialise table: excessively sparse array', 0) end
  return count > 0 and math.tointeger(most) or nil
end

local function encode(value, depth)
  local kind = type(value)
  if depth > DEEPEST then error('Cannot serialise, excessive depth (' .. depth .. ')', 0) end
  if value == null or value == nil then return 'null' end
  if kind == 'boolean' then return tostring(value) end
  if kind == 'string' then return quote(value) end
  if kind == 'number' then
    if value ~= value or value == math.huge or value == -math.huge then
      error('Cannot serialise number: must not be NaN or Inf', 0)
    end
    return string.format('%.14g', value)
  end
  if kind ~= 'table' then error('Cannot serialise ' .. kind .. ': type not supported', 0) end
  local parts, list = {}, length(value)
  if list then
    for at = 1, list do parts[at] = encode(value[at], depth + 1) end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  for key, item in next, value do
    if type(key) ~= 'string' and type(key) ~= 'number' then
      error('Cannot serialise ' .. type(key) .. ': table key must be a number or string', 0)
    end
    local name = type(key) == 'number' and string.format('%.14g', key) or key
    parts[#parts + 1] = quote(name) .. ':' .. encode(item, depth + 1)
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

local function decode(text)
  if type(text) ~= 'string' then text = tostring(text) end
  local at = 1
  local function fail(expected)
    error('Expected ' .. expected .. ' but found invalid token at character ' .. at, 0)
  end
  local function blank() at = text:find('[^ \t\r\n]', at) or #text + 1 end
  local function unicode(digits)
    local code = tonumber(digits, 16)
    if not code then fail('unicode escape') end
    return code
  end
  local function string_at()
    local parts = {}
    at = at + 1
    while true do
      local stop = text:find('["\\]', at)
      if not stop then fail('string end') end
      parts[#parts + 1] = text:sub(at, stop - 1)
      at = stop + 1
      if text:sub(stop, stop) == '"' then return table.concat(parts) end
      local letter = text:sub(at, at)
      at = at + 1
      if letter == 'u' then
        local code = unicode(text:sub(at, at + 3))
        at = at + 4
        if code >= 0xd800 and code < 0xdc00 and text:sub(at, at + 1) == '\\u' then
          code = 0x10000 + (code - 0xd800) * 0x400 + unicode(text:sub(at + 2, at + 5)) - 0xdc00
          at = at + 6
        end
        letter = utf8.char(code)
      end
      parts[#parts + 1] = NAMES[letter] or letter
    end
  end
  local value_at
  local function items(close, read)
    at = at + 1
    blank()
    if text:sub(at, at) == close then at = at + 1 return end
    while true do
      read()
      blank()
      local letter = text:sub(at, at)
      at = at + 1
      if letter == close then return end
      if letter ~= ',' then at = at - 1 fail('comma or ' .. close) end
    end
  end
  function value_at(depth)
    if depth > DEEPEST then error('Found too many nested data structures (' .. depth .. ')', 0) end
    blank()
    local letter = text:sub(at, at)
    if letter == '"' then return string_at() end
    local list = {}
    if letter == '[' then
      items(']', function() list[#list + 1] = value_at(depth + 1) end)
      return list
    elseif letter == '{' then
      items('}', function()
        blank()
        if text:sub(at, at) ~= '"' then fail('object key string') end
        local name = string_at()
        blank()
        if text:sub(at, at) ~= ':' then fail('colon') end
        at = at + 1
        list[name] = value_at(depth + 1)
      end)
      return list
    end
    for word, value in pairs({['true'] = true, ['false'] = false, ['null'] = null}) do
      if text:sub(at, at + #word - 1) == word then
        at = at + #word
        return value
      end
    end
    local number = text:match('^-?%d+%.?%d*[eE]?[+-]?%d*', at)
    local value = number and tonumber(number)
    if not value then fail('value') end
    at = at + #number
    return value
  end
  local value = value_at(1)
  blank()
  if at <= #text then fail('the end') end
  return value
end

local function nothing() end
return {
  null = null, _NAME = 'cjson', encode = function(value) return encode(value, 0) end, decode = decode,
  encode_sparse_array = nothing, encode_max_depth = nothing, decode_max_depth = nothing,
  encode_number_precision = nothing, encode_keep_buffer = nothing, encode_invalid_numbers = nothing,
  decode_invalid_numbers = nothing,
}
