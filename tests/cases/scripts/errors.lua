--- error with a string
error('broken')
--- error with a table
error({err = 'MY broken'})
--- error with a table without err | ours
error({1})
--- error with nil
error(nil)
--- error with a number
error(12)
--- error without position
error('broken', 0)
--- error with the caller's position
local function f() error('broken', 2) end
f()
--- error on line three
local x = 1
local y = 2
error('here')
--- error in a function
local function f()
  error('inside')
end
f()
--- error with line ends
error('a\r\nb\r\n+OK')
--- error with a zero
error('a\0b')
--- error text that begins with a dash
error('-MY text')
--- runtime error
return nil + 1
--- call of nil
local t = {} t.x()
--- index of nil
local t return t.x
--- comparison of two types
return 1 < 'x'
--- length of a number
return #1
--- concatenation of a table
return 'a' .. {}
--- unknown global
return nothere
--- unknown global as a call
nothere()
--- stack overflow is caught
local function f() return 1 + f() end
local ok = pcall(f) return tostring(ok)
--- assert
assert(false, 'asserted')
--- assert without text
assert(nil)
--- assert passes values through
return {assert(1, 2, 3)}
--- pcall with error string
return {pcall(error, 'x')}
--- pcall of a failing function
local ok, e = pcall(function() error('inside') end) return {tostring(ok), e}
--- pcall of a failing redis.call
local ok, e = pcall(redis.call, 'NOSUCH') return {tostring(ok), type(e), tostring(e)}
--- pcall of a wrong type
redis.call('LPUSH', 'l', 1) local ok, e = pcall(redis.call, 'GET', 'l') return {tostring(ok), type(e), tostring(e)}
--- pcall returns values
return {select('#', pcall(function() return 1, nil, 3 end))}
--- xpcall
local ok, e = xpcall(function() error('x', 0) end, function(m) return 'handled ' .. m end) return {tostring(ok), e}
--- error rethrown
local ok, e = pcall(redis.call, 'NOSUCH') error(e)
--- error table rethrown from redis.pcall
error(redis.pcall('NOSUCH'))
--- redis.pcall returned
return redis.pcall('NOSUCH')
--- redis.pcall with wrong arity
return redis.pcall('GET')
--- redis.pcall with no arguments
return redis.pcall()
--- redis.pcall with a table
return redis.pcall('SET', {}, 1)
--- redis.call with wrong type on line two
redis.call('LPUSH', 'l', 1)
redis.call('GET', 'l')
--- redis.call with a syntax error
redis.call('SET', 'k', 'v', 'NONSENSE')
--- error_reply with code
return redis.error_reply('MY text')
--- error_reply with one word
return redis.error_reply('oops')
--- error_reply with dash
return redis.error_reply('-MY text')
--- error_reply with dash and one word
return redis.error_reply('-MY')
--- error_reply of nothing
return redis.error_reply('')
--- error_reply with line ends
return redis.error_reply('MY a\r\n-b')
--- error_reply ending in line ends
return redis.error_reply('MY a\r\n')
--- error_reply with a number
return redis.error_reply(1)
--- error_reply without arguments
return redis.error_reply()
--- error_reply with two
return redis.error_reply('a', 'b')
--- error_reply is a table
local r = redis.error_reply('MY text') return {type(r), r.err}
--- error_reply thrown
error(redis.error_reply('MY text'))
--- status_reply
return redis.status_reply('FINE')
--- status_reply of nothing
return redis.status_reply('')
--- status_reply with line ends
return redis.status_reply('a\r\n+b')
--- status_reply without arguments
return redis.status_reply()
--- status_reply is a table
return redis.status_reply('FINE').ok
--- sha1hex without arguments
return redis.sha1hex()
--- sha1hex
return {redis.sha1hex(''), redis.sha1hex('a'), redis.sha1hex(12)}
--- log without arguments
return redis.log()
--- log with a wrong level
return redis.log(9, 'x')
--- log with a text as level
return redis.log('x', 'y')
--- log
return redis.log(redis.LOG_DEBUG, 'text')
--- set_repl without arguments
return redis.set_repl()
--- set_repl wrong
return redis.set_repl(99)
--- set_repl
return redis.set_repl(redis.REPL_ALL)
--- replicate_commands
return redis.replicate_commands()
--- acl_check_cmd
return {redis.acl_check_cmd('GET', 'k'), redis.acl_check_cmd('SET', 'k', 'v')}
--- acl_check_cmd of an unknown command
return redis.acl_check_cmd('NOSUCH')
--- acl_check_cmd without arguments
return redis.acl_check_cmd()
--- breakpoint
return redis.breakpoint()
--- debug
return redis.debug('x')
--- coroutine error
local co = coroutine.create(function() error('inside') end)
local ok, e = coroutine.resume(co) return {tostring(ok), e}
--- redis.call in a coroutine
local co = coroutine.wrap(function() coroutine.yield(redis.call('PING').ok) return 'done' end)
return {co(), co()}
--- error in a coroutine of wrap
local co = coroutine.wrap(function() redis.call('NOSUCH') end) co()
--- constants
return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING, redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL}
--- version
return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM}
--- syntax error in loadstring
return {loadstring('return (')}
--- chunk name of loadstring
return {pcall(loadstring('error("x")'))}
--- chunk name given to loadstring
return {pcall(loadstring('error("x")', '@mine'))}
--- loadstring of bytecode
return {tostring(loadstring('\27Lua'))}
