--- format
return {string.format('%5d|%-5d|%05d|%+d', 42, 42, 42, 42), string.format('%x %X %o', 255, 255, 8), string.format('%c', 65), string.format('%q', 'a"b\n\0c'), string.format('%s %s', 'a', 12), string.format('%5.2f|%e|%g', 3.14159, 3.14159, 3.14159), string.format('%%')}
--- format of large numbers
return {string.format('%d', 2^53), string.format('%.0f', 1e300), string.format('%d', -2^63), string.format('%u', 42), string.format('%i', 7), string.format('%g', 1e300), string.format('%.3g', 0.0001234)}
--- format with precision
return {string.format('%.10s', 'abcdefghijklmnop'), string.format('%20s|', 'x'), string.format('%-20s|', 'x'), string.format('%.20f', 0.1), string.format('%.99f', 1/3)}
--- format with infinite numbers
return {string.format('%f', 1/0), string.format('%g', -1/0), string.format('%5.1f|', 1/0)}
--- format errors
return {pcall(string.format, '%d', 'x'), pcall(string.format, '%y', 1), pcall(string.format, '%d'), pcall(string.format, '%'), pcall(string.format, '%1000d', 1)}
--- hexadecimal floats
return {pcall(string.format, '%a', 1)}
--- byte and char
return {string.byte('abc', 1, -1), string.char(104, 105), string.byte(''), pcall(string.char, 256)}
--- sub
return {('hello'):sub(2, 3), ('hello'):sub(-3), ('hello'):sub(0), ('hello'):sub(10), ('hello'):sub(-100, 2), ('hello'):sub(2, -2)}
--- find
return {string.find('hello world', 'o w'), string.find('hello', 'l+'), string.find('a.b', '.', 1, true), string.find('hello', 'xyz'), string.find('', ''), string.find('abc', 'b', -1)}
--- find with captures
return {string.find('key = value', '(%w+)%s*=%s*(%w+)')}
--- match
return {string.match('2024-01-02', '(%d+)-(%d+)-(%d+)'), string.match('  trim  ', '^%s*(.-)%s*$'), string.match('abc', '()b()'), string.match('f(a(b)c)d', '%b()')}
--- frontier
return {string.find('THE (quick) fox', '%f[%a]%a+%f[%A]')}
--- gsub
return {string.gsub('hello world', 'o', '0'), string.gsub('hello', '', '-'), string.gsub('abc', '%w', '%0%0'), string.gsub('abc', 'b', {b = 'X'}), string.gsub('abc', '%w', function(c) if c == 'b' then return 'Y' end end), string.gsub('a a a', 'a', 'b', 2)}
--- gsub errors
return {pcall(string.gsub, 'x', 'x', '%2'), pcall(string.gsub, 'x', '(x', ''), pcall(string.gsub, 'x', '[x', ''), pcall(string.gsub, 'x', '%', ''), pcall(string.gsub, 'x', 'x', function() return {} end)}
--- gmatch
local t = {} for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do t[#t + 1] = k .. v end return t
--- rep and reverse
return {('ab'):rep(3), ('ab'):rep(0), ('ab'):rep(-1), ('abc'):reverse(), ('AbC'):lower(), ('AbC'):upper(), #('x'):rep(100000)}
--- upper of other bytes
return ('\228\246\252'):upper()
--- comparison
return {tostring('a' < 'b'), tostring('a' < 'B'), tostring('a\0b' < 'a\0c'), tostring('' < 'a'), tostring('Z' < 'a')}
--- arithmetic of strings
return {'10' + 5, '3' * '4', tostring('0x10' + 0), 10 .. 20}
--- arithmetic of texts
return 'abc' + 1
--- long brackets
return [==[
a
]]b]==]
--- escapes
return 'a\065\t\\\'\"\
b'
--- pattern too complex | ours
return pcall(string.find, ('a'):rep(300000), ('.-'):rep(300000) .. 'b')
--- pattern with many captures
return pcall(string.find, 'x', ('()'):rep(33))
--- tostring of a metatable
return tostring(setmetatable({}, {__tostring = function() return 'mine' end}))
--- unpack of a range
return {unpack({1, 2, 3}, 2, 3)}
--- unpack of 7999
local t = {} for i = 1, 7990 do t[i] = i end return select('#', unpack(t))
--- unpack of too many
local t = {} for i = 1, 10000 do t[i] = i end return {pcall(unpack, t)}
--- unpack of the widest range
return {pcall(unpack, {}, 0, 2147483647)}
--- unpack over the end of integers
return {pcall(unpack, {}, -2147483648, 2147483647)}
--- unpack of a small range at the end of integers
return {pcall(unpack, {}, 2147483646, 2147483647)}
--- unpack with a range of 1e8
return {pcall(unpack, {}, 1, 1e8)}
--- string.rep of huge numbers
return {pcall(string.rep, '', 1e9)}
