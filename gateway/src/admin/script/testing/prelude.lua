-- The functions that tests have. Errors name the line of the caller, which is level 2.

local LONGEST = 1000
local failure

local function is_list(value)
    local count = 0
    for _ in pairs(value) do count = count + 1 end
    return count == #value
end

-- A value as it is written in Lua, with sorted keys.
local function show(value, depth)
    if type(value) == 'string' then
        local function escape(byte) return ('\\%03d'):format(byte:byte()) end
        return '"' .. value:gsub('[\\"]', '\\%0'):gsub('\n', '\\n'):gsub('\r', '\\r'):gsub('%c', escape) .. '"'
    end
    if type(value) ~= 'table' then return tostring(value) end
    if depth == 10 then return '{...}' end
    local shown = {}
    if is_list(value) then
        for index, item in ipairs(value) do shown[index] = show(item, depth + 1) end
    else
        for key, item in pairs(value) do
            local name = type(key) == 'string' and key:match('^[%a_][%w_]*$') or '[' .. show(key, depth + 1) .. ']'
            shown[#shown + 1] = name .. ' = ' .. show(item, depth + 1)
        end
        table.sort(shown)
    end
    return '{' .. table.concat(shown, ', ') .. '}'
end

local function brief(value)
    local text = show(value, 0)
    return #text > LONGEST and text:sub(1, LONGEST) .. '...' or text
end

local function same(a, b)
    if type(a) ~= 'table' or type(b) ~= 'table' then return a == b end
    for key, item in pairs(a) do
        if not same(item, b[key]) then return false end
    end
    for key in pairs(b) do
        if a[key] == nil then return false end
    end
    return true
end

local function assert_equal(expected, actual)
    if same(expected, actual) then return end
    failure = {brief(expected), brief(actual)}
    error('the values differ', 2)
end

local function text_of(problem)
    if type(problem) == 'table' and problem.err then return problem.err end
    return type(problem) == 'string' and problem or show(problem, 0)
end

local function assert_error(part, action, ...)
    local ok, problem = pcall(action, ...)
    if ok then error('there was no error', 2) end
    local text = text_of(problem)
    if text:find(part, 1, true) then return end
    failure = {'an error with ' .. brief(part), brief(text)}
    error('the error is another one', 2)
end

local function run(path, keys, args)
    local call = {'moonshard.run', path, #(keys or {})}
    for _, key in ipairs(keys or {}) do call[#call + 1] = key end
    for _, arg in ipairs(args or {}) do call[#call + 1] = arg end
    local reply = redis.pcall(unpack(call))
    if type(reply) == 'table' and reply.err then error(reply.err, 2) end
    return reply
end

-- Nothing if the test passed, else what failed, and the values that differ.
local function run_test(test)
    -- The handler of the server adds where an error was raised.
    local ok, problem = xpcall(test, __redis__err__handler)
    if ok then return {} end
    local text = text_of(problem):gsub('^ERR (user_script:)', '%1')
    if problem.line and not text:find('^user_script:%d') then
        text = ('%s:%d: %s'):format(problem.source:gsub('^@', ''), problem.line, text)
    end
    local expected, actual = unpack(failure or {})
    return {text, expected, actual}
end

return run, assert_equal, assert_error, run_test
