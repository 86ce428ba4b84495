--- bit operations
return {bit.band(12, 10), bit.bor(12, 10), bit.bxor(12, 10), bit.bnot(0), bit.lshift(1, 4), bit.rshift(256, 4), bit.arshift(-256, 4), bit.rol(0x12345678, 12), bit.ror(0x12345678, 12), bit.bswap(0x12345678), bit.tobit(0xffffffff)}
--- bit.tohex
return {bit.tohex(255), bit.tohex(255, 4), bit.tohex(255, -4), bit.tohex(-1), bit.tohex(0x12345678, 2), bit.tohex(1, 0)}
--- bit.tohex extremes
return {bit.tohex(65535, -2147483648), bit.tohex(65535, 2147483647), bit.tohex(1, -2147483647), bit.tohex(1, 2147483648), bit.tohex(1, 1e300)}
--- bit of extremes
return {bit.band(2^31), bit.band(-2^31), bit.band(2^32), bit.band(2^53), bit.tobit(1e300), bit.lshift(1, 31), bit.lshift(1, 32), bit.lshift(1, -1), bit.rshift(-1, 31), bit.arshift(-1, 63), bit.tobit(3.7), bit.tobit(-3.7), bit.tobit(2^31 + 0.5)}
--- bit errors
return {pcall(bit.band), pcall(bit.band, 'x'), pcall(bit.tohex), pcall(bit.lshift, 1)}
--- struct.pack
return {struct.pack('>I2', 258), struct.pack('<I4', 1), struct.pack('>i4', -2), struct.pack('b', -1), struct.pack('>d', 1.5), struct.pack('<f', 1.5), struct.pack('s', 'abc'), struct.pack('c3', 'abc'), struct.pack('>I1I2', 1, 2), struct.pack('>!4i1i4', 1, 2)}
--- struct.unpack
return {struct.unpack('>I2', '\1\2'), struct.unpack('<i4', '\255\255\255\255'), struct.unpack('s', 'abc\0rest'), struct.unpack('c3', 'abcdef'), struct.unpack('>I2', 'xx\1\2', 3), struct.unpack('bc0', '\3abcdef')}
--- struct.unpack of floats
return {tostring(struct.unpack('>d', struct.pack('>d', 0.1))), tostring(struct.unpack('<f', struct.pack('<f', 0.1)))}
--- struct.size
return {struct.size('>I2i4'), struct.size('!4bi4'), struct.size('c10'), pcall(struct.size, 's'), pcall(struct.size, 'c0')}
--- struct errors
return {pcall(struct.pack, 'y', 1), pcall(struct.unpack, '>I4', 'ab'), pcall(struct.pack, 'I100', 1), pcall(struct.unpack, 's', 'abc'), pcall(struct.pack, 'c5', 'abc'), pcall(struct.pack, '!3', 1)}
--- struct extremes
return {pcall(struct.unpack, 'c2147483647', 'abc'), pcall(struct.unpack, 'c4294967295', 'abc'), pcall(struct.unpack, 'I2', 'abcd', 2147483647), pcall(struct.unpack, 'I2', 'abcd', -1), pcall(struct.size, 'c2147483647c2147483647')}
--- struct large integers
return {struct.pack('>I8', 2^53), struct.pack('<i8', -1), tostring(struct.unpack('>I8', '\0\32\0\0\0\0\0\0'))}
--- cjson.encode
return {cjson.encode(1), cjson.encode('x'), cjson.encode(true), cjson.encode(cjson.null), cjson.encode({1, 2, 3}), cjson.encode({}), cjson.encode({a = 1}), cjson.encode({{}}), cjson.encode(1.5), cjson.encode(-0.1), cjson.encode(nil)}
--- cjson.encode of numbers
return {cjson.encode(2^53), cjson.encode(1e15), cjson.encode(1e14), cjson.encode(123456789012345), cjson.encode(1/3), cjson.encode(1e300), cjson.encode(100), cjson.encode(1e-10)}
--- cjson.encode of strings
return {cjson.encode('"\\/\b\f\n\r\t'), cjson.encode('\0\1\31\127'), cjson.encode('\195\164'), cjson.encode('\255')}
--- cjson.encode of sparse arrays
return {cjson.encode({1, nil, 3}), cjson.encode({[2] = 1}), pcall(cjson.encode, {[100] = 1}), pcall(cjson.encode, {1, [1000000] = 2})}
--- cjson.encode errors
return {pcall(cjson.encode, print), pcall(cjson.encode, {[{}] = 1}), pcall(cjson.encode, 1/0), pcall(cjson.encode, 0/0), pcall(cjson.encode), pcall(cjson.encode, {print})}
--- cjson.encode of mixed keys
return {cjson.encode({[1.5] = 'x'}), cjson.encode({[-1] = 'x'}), cjson.encode({[0] = 'x'})}
--- cjson.decode
local t = cjson.decode('{"a": [1, 2.5, "x", true, false, null, {}], "b": {"c": -1e3}}') return {#t.a, t.a[1], tostring(t.a[2]), t.a[3], tostring(t.a[4]), tostring(t.a[5]), tostring(t.a[6] == cjson.null), type(t.a[7]), t.b.c}
--- cjson.decode of plain values
return {cjson.decode('1'), cjson.decode('"x"'), cjson.decode(' [] ')}
--- cjson.decode of strings
return {cjson.decode('["\\u00e4\\n\\"\\\\\\/\\ud83d\\ude00", "\\u0000"]')}
--- cjson.decode of numbers
local t = cjson.decode('[0, -0, 1e2, 1E+2, 1.5e-3, 12345678901234567890, 0x10, 1e999]') for i = 1, #t do t[i] = tostring(t[i]) end return t
--- cjson.decode of invalid numbers
return {pcall(cjson.decode, '[01]'), pcall(cjson.decode, '[1.]'), pcall(cjson.decode, '[+1]'), pcall(cjson.decode, '[.5]'), pcall(cjson.decode, '[nan]'), pcall(cjson.decode, '[inf]')}
--- cjson.decode errors
return {pcall(cjson.decode, ''), pcall(cjson.decode, '{'), pcall(cjson.decode, '[1,]'), pcall(cjson.decode, '{"a"}'), pcall(cjson.decode, '{a:1}'), pcall(cjson.decode, '[1] x'), pcall(cjson.decode, '"\\ud800"'), pcall(cjson.decode, '"\\x"'), pcall(cjson.decode, 'nul'), pcall(cjson.decode)}
--- cjson.decode of control characters
return {pcall(cjson.decode, '"a\nb"'), pcall(cjson.decode, '"a\0b"'), pcall(cjson.decode, '["\\u12"]')}
--- cjson nesting
return {pcall(cjson.decode, ('['):rep(1001) .. (']'):rep(1001)), #cjson.encode(cjson.decode(('['):rep(1000) .. (']'):rep(1000)))}
--- cjson nesting of tables
local t = {} for i = 1, 1001 do t = {t} end return {pcall(cjson.encode, t)}
--- cjson cycle
local t = {} t[1] = t return {pcall(cjson.encode, t)}
--- cjson empty array comes back as object
return cjson.encode(cjson.decode('{"a":[],"b":{}}').a)
--- cjson settings
return {cjson.encode_keep_buffer(), cjson.encode_max_depth(), cjson.decode_max_depth(), cjson.encode_number_precision(), tostring(cjson.decode_invalid_numbers()), tostring(cjson.encode_invalid_numbers()), cjson.encode_sparse_array()}
--- cjson precision
cjson.encode_number_precision(3) return cjson.encode(3.14159)
--- cjson settings end with the script | ours
return cjson.encode(3.14159)
--- cjson names
return {cjson._NAME, cjson._VERSION, type(cjson.new)}
--- cjson null is light userdata
return type(cjson.null)
--- cmsgpack.pack
return {cmsgpack.pack(1), cmsgpack.pack(-1), cmsgpack.pack(127), cmsgpack.pack(128), cmsgpack.pack(65536), cmsgpack.pack(2^32), cmsgpack.pack(-129), cmsgpack.pack(-2^31 - 1), cmsgpack.pack('x'), cmsgpack.pack(true), cmsgpack.pack(nil), cmsgpack.pack({}), cmsgpack.pack({1, 2}), cmsgpack.pack({a = 1}), cmsgpack.pack(1.5), cmsgpack.pack(0.1)}
--- cmsgpack.pack of several
return {cmsgpack.pack(1, 'x', {2}), cmsgpack.unpack(cmsgpack.pack(1, 'x', 3))}
--- cmsgpack.pack of long strings
return {cmsgpack.pack(('x'):rep(31)):byte(1, 3), cmsgpack.pack(('x'):rep(32)):byte(1, 3), cmsgpack.pack(('x'):rep(256)):byte(1, 4), cmsgpack.pack(('x'):rep(65536)):byte(1, 5)}
--- cmsgpack round trip
local t = cmsgpack.unpack(cmsgpack.pack({1, 'x', {a = {1, 2}}, true, 1.5, -5})) return {t[1], t[2], t[3].a[2], tostring(t[4]), tostring(t[5]), t[6]}
--- cmsgpack of large integers
return {cmsgpack.pack(2^53), cmsgpack.pack(2^63), cmsgpack.pack(-2^63), cmsgpack.pack(1e300)}
--- cmsgpack nesting
local t = {'deep'} for i = 1, 20 do t = {t} end return cmsgpack.pack(t)
--- cmsgpack cycle
local t = {} t[1] = t return cmsgpack.pack(t)
--- cmsgpack errors
return {pcall(cmsgpack.unpack, ''), pcall(cmsgpack.unpack, '\220'), pcall(cmsgpack.unpack, '\193'), pcall(cmsgpack.unpack), pcall(cmsgpack.pack), pcall(cmsgpack.unpack, '\221\255\255\255\255'), pcall(cmsgpack.unpack, '\219\255\255\255\255x')}
--- cmsgpack of a function
return cmsgpack.pack(print)
--- cmsgpack.unpack_one
return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))}
--- cmsgpack.unpack_limit
return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}
--- cmsgpack.unpack_limit further on
return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2, 1), pcall(cmsgpack.unpack_one, 'x', 5), pcall(cmsgpack.unpack_one, 'x', -2)}
--- cmsgpack names
return {cmsgpack._NAME, cmsgpack._VERSION, cmsgpack._DESCRIPTION}
--- cmsgpack unpacks every kind
return {cmsgpack.unpack('\192\194\195\204\255\205\255\255\206\255\255\255\255\208\128\209\128\0\210\128\0\0\0')}
--- cmsgpack unpacks floats
return {tostring(cmsgpack.unpack('\202\63\128\0\0')), tostring(cmsgpack.unpack('\203\63\240\0\0\0\0\0\0'))}
