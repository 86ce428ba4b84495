/* Library `struct`: binary records from and to strings, by a format of one letter per field.
 *
 *   > < big and little endian     ! or !n  align fields to at most n (8) bytes      blank: nothing
 *   b B h H l L T  integers of 1, 2, 8, 8 bytes (capitals and T unsigned)    in In  integers of n (4) bytes, at most 32
 *   f d  floats    x  a zero byte    s  string that ends with a zero byte    cn  n (1) bytes; c0: the string's or last number's length
 *
 * The sizes are those of 64-bit systems and all positions have 64 bits, whatever this machine has. */
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "lua.h"

#include "lauxlib.h"
#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "lstring.h"
#include "lvm.h"

#include "bytes.h"
#include "number.h"

#define LONGEST_INTEGER 32
#define DEFAULT_ALIGN 8

typedef struct {
    const char *next; /* rest of the format */
    int big;
    uint32_t align;
} Format;

static Scratch packed;

static int is_digit(int c) {
    return c >= '0' && c <= '9';
}

static int is_alphanumeric(int c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static Format format_argument(lua_State *L) {
    Format f = {luaL_checkstring(L, 1), 0, 1};
    return f;
}

/* The number that follows in the format, or `otherwise`. */
static int count(lua_State *L, Format *f, int otherwise) {
    if (!is_digit(*f->next)) return otherwise;
    int n = 0;
    do {
        int digit = *f->next++ - '0';
        if (n > (INT_MAX - digit) / 10) luaL_error(L, "integral size overflow");
        n = n * 10 + digit;
    } while (is_digit(*f->next));
    return n;
}

/* Size of the field; 0 for those without a fixed one and for what is no field. */
static uint32_t field_size(lua_State *L, Format *f, int letter) {
    switch (letter) {
        case 'b': case 'B': case 'x': return 1;
        case 'h': case 'H': return 2;
        case 'f': return 4;
        case 'l': case 'L': case 'T': case 'd': return 8;
        case 'c': return (uint32_t)count(L, f, 1);
        case 'i': case 'I': {
            int size = count(L, f, 4);
            if (size > LONGEST_INTEGER)
                luaL_error(L, "integral size %d is larger than limit of %d", size, LONGEST_INTEGER);
            return (uint32_t)size;
        }
        default: return 0;
    }
}

/* Bytes to skip before a field at `position`. Sizes that are no power of two give what the bit mask gives; scripts rely on it. */
static uint32_t padding(const Format *f, uint64_t position, int letter, uint32_t size) {
    if (size == 0 || letter == 'c') return 0;
    if (size > f->align) size = f->align;
    return (size - ((uint32_t)position & (size - 1))) & (size - 1);
}

static void control(lua_State *L, Format *f, int letter) {
    switch (letter) {
        case ' ': break;
        case '>': f->big = 1; break;
        case '<': f->big = 0; break;
        case '!': {
            int align = count(L, f, DEFAULT_ALIGN);
            if (align <= 0 || (align & (align - 1))) luaL_error(L, "alignment %d is not a power of 2", align);
            f->align = (uint32_t)align;
            break;
        }
        default: luaL_argerror(L, 1, lua_pushfstring(L, "invalid format option '%c'", letter));
    }
}

/* The low `size` bytes of the value (zeros beyond its eighth) in the format's order. */
static void add_bytes(lua_State *L, const Format *f, uint64_t value, uint32_t size) {
    char *out = scratch_room(L, &packed, size);
    for (uint32_t i = 0; i < size; i++, value = i < 8 ? value >> 8 : 0) out[f->big ? size - 1 - i : i] = (char)value;
    packed.len += size;
}

/* The inverse; of more than eight bytes the last ones read count. */
static uint64_t get_bytes(const Format *f, const char *data, uint32_t size) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < size; i++) value = value << 8 | (unsigned char)data[f->big ? i : size - 1 - i];
    return value;
}

static uint64_t float_bits(double d) {
    float f = (float)d;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static uint64_t double_bits(double d) {
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* luaL_checknumber without its calls in the usual case. */
static double number_argument(lua_State *L, int index) {
    const TValue *o = L->base + (index - 1);
    return o < L->top && ttisnumber(o) ? nvalue(o) : luaL_checknumber(L, index);
}

static int struct_pack(lua_State *L) {
    Format f = format_argument(L);
    int arg = 2;
    lua_pushnil(L); /* a missing argument is "nil" in messages */
    packed.len = 0;
    while (*f.next) {
        int letter = (unsigned char)*f.next++;
        uint32_t size = field_size(L, &f, letter), pad = padding(&f, packed.len, letter, size);
        while (pad-- > 0) scratch_byte(L, &packed, 0);
        switch (letter) {
            case 'b': case 'B': case 'h': case 'H': case 'l': case 'L': case 'T': case 'i': case 'I': {
                lua_Number n = number_argument(L, arg++);
                add_bytes(L, &f, n < 0 ? (uint64_t)guest_d2ll(n) : guest_d2ull(n), size);
                break;
            }
            case 'x': scratch_byte(L, &packed, 0); break;
            case 'f': add_bytes(L, &f, float_bits(number_argument(L, arg++)), size); break;
            case 'd': add_bytes(L, &f, double_bits(number_argument(L, arg++)), size); break;
            case 'c': case 's': {
                size_t length, wanted = size;
                const char *text;
                if (lua_type(L, arg) == LUA_TNUMBER) luaV_tostring(L, L->base + (arg - 1)); /* unlike the API it never collects */
                text = luaL_checklstring(L, arg, &length);
                arg++;
                if (wanted == 0) wanted = length;
                luaL_argcheck(L, length >= wanted, arg, "string too short");
                scratch_add(L, &packed, text, wanted);
                if (letter == 's') scratch_byte(L, &packed, 0);
                break;
            }
            default: control(L, &f, letter);
        }
    }
    setsvalue2s(L, L->top, luaS_newlstr(L, packed.data ? packed.data : "", packed.len));
    L->top++;
    luaC_checkGC(L);
    return 1;
}

static float bits_float(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof f);
    return f;
}

static double bits_double(uint64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* Extends the sign of an integer of `size` bytes. The shift wraps at 64 for sizes beyond 8, as x86 has it and as scripts see it there. */
static lua_Number signed_value(uint64_t value, uint32_t size) {
    uint64_t mask = ~UINT64_C(0) << ((size * 8 - 1) & 63);
    if (value & mask) value |= mask;
    return (lua_Number)(int64_t)value;
}

static int struct_unpack(lua_State *L) {
    Format f = format_argument(L);
    size_t length;
    const char *data = luaL_checklstring(L, 2, &length);
    uint64_t position = lua_isnoneornil(L, 3) ? 1 : (uint64_t)guest_d2ll(luaL_checknumber(L, 3));
    int n = 0;
    luaL_argcheck(L, position > 0, 3, "offset must be 1 or greater");
    position--;
    while (*f.next) {
        int letter = (unsigned char)*f.next++;
        uint64_t size = field_size(L, &f, letter);
        position += padding(&f, position, letter, (uint32_t)size);
        luaL_argcheck(L, size <= length && position <= length - size, 2, "data string too short");
        const char *field = data + position;
        luaL_checkstack(L, 2, "too many results");
        switch (letter) {
            case 'b': case 'h': case 'l': case 'i':
                lua_pushnumber(L, signed_value(get_bytes(&f, field, (uint32_t)size), (uint32_t)size));
                n++;
                break;
            case 'B': case 'H': case 'L': case 'T': case 'I':
                lua_pushnumber(L, (lua_Number)get_bytes(&f, field, (uint32_t)size));
                n++;
                break;
            case 'x': break;
            case 'f':
                lua_pushnumber(L, bits_float(get_bytes(&f, field, 4)));
                n++;
                break;
            case 'd':
                lua_pushnumber(L, bits_double(get_bytes(&f, field, 8)));
                n++;
                break;
            case 'c':
                if (size == 0) {
                    if (n == 0 || !lua_isnumber(L, -1)) luaL_error(L, "format 'c0' needs a previous size");
                    size = guest_d2ull(lua_tonumber(L, -1));
                    lua_pop(L, 1);
                    n--;
                    luaL_argcheck(L, size <= length && position <= length - size, 2, "data string too short");
                }
                lua_pushlstring(L, field, (size_t)size);
                n++;
                break;
            case 's': {
                const char *end = memchr(field, '\0', length - (size_t)position);
                if (end == NULL) luaL_error(L, "unfinished string in data");
                size = (uint64_t)(end - field) + 1;
                lua_pushlstring(L, field, (size_t)size - 1);
                n++;
                break;
            }
            default: control(L, &f, letter);
        }
        position += size;
    }
    lua_pushnumber(L, (lua_Number)(int64_t)(position + 1));
    return n + 1;
}

static int struct_size(lua_State *L) {
    Format f = format_argument(L);
    uint64_t position = 0;
    while (*f.next) {
        int letter = (unsigned char)*f.next++;
        uint32_t size = field_size(L, &f, letter);
        position += padding(&f, position, letter, size);
        if (letter == 's') luaL_argerror(L, 1, "option 's' has no fixed size");
        if (letter == 'c' && size == 0) luaL_argerror(L, 1, "option 'c0' has no fixed size");
        if (!is_alphanumeric(letter)) control(L, &f, letter); /* letters that mean nothing have no size */
        position += size;
    }
    lua_pushnumber(L, (lua_Number)position);
    return 1;
}

static const luaL_Reg functions[] = {
    {"pack", struct_pack},
    {"unpack", struct_unpack},
    {"size", struct_size},
    {NULL, NULL},
};

int luaopen_struct(lua_State *L) {
    luaL_register(L, "struct", functions);
    return 1;
}
