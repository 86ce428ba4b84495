/* Library `bit`: operations on 32-bit integers, with numbers taken modulo 2^32 and signed results. */
#include <stdint.h>
#include <string.h>

#include "lua.h"

#include "lauxlib.h"
#include "lobject.h"
#include "lstate.h"

/* Adding 2^52 + 2^51 moves the integer part of any number below 2^51 into the low bits of the double, rounded to even. For larger ones
   the bits are what they are: scripts see the same on every machine. */
static uint32_t argument(lua_State *L, int index) {
    const TValue *o = L->base + (index - 1);
    double d = o < L->top && ttisnumber(o) ? nvalue(o) : luaL_checknumber(L, index);
    uint64_t bits;
    d += 6755399441055744.0;
    memcpy(&bits, &d, sizeof bits);
    return (uint32_t)bits;
}

static int result(lua_State *L, uint32_t value) {
    setnvalue(L->top, (lua_Number)(int32_t)value);
    L->top++; /* a C function has LUA_MINSTACK free slots */
    return 1;
}

static uint32_t rotate_left(uint32_t b, uint32_t n) {
    n &= 31;
    return n == 0 ? b : b << n | b >> (32 - n);
}

static int bit_tobit(lua_State *L) {
    return result(L, argument(L, 1));
}

static int bit_bnot(lua_State *L) {
    return result(L, ~argument(L, 1));
}

/* The first argument is checked first, the others from the last one: a wrong argument is named in that order. */
#define FOLD(name, op)                                                        \
    static int name(lua_State *L) {                                           \
        uint32_t b = argument(L, 1);                                          \
        for (int i = lua_gettop(L); i > 1; i--) b = b op argument(L, i);      \
        return result(L, b);                                                  \
    }
FOLD(bit_band, &)
FOLD(bit_bor, |)
FOLD(bit_bxor, ^)

/* Only the low five bits of a shift count. */
static int bit_lshift(lua_State *L) {
    uint32_t b = argument(L, 1);
    return result(L, b << (argument(L, 2) & 31));
}

static int bit_rshift(lua_State *L) {
    uint32_t b = argument(L, 1);
    return result(L, b >> (argument(L, 2) & 31));
}

static int bit_arshift(lua_State *L) {
    uint32_t b = argument(L, 1), n = argument(L, 2) & 31;
    uint32_t sign = b >> 31 ? ~(UINT32_MAX >> n) : 0;
    return result(L, b >> n | sign);
}

static int bit_rol(lua_State *L) {
    uint32_t b = argument(L, 1);
    return result(L, rotate_left(b, argument(L, 2)));
}

static int bit_ror(lua_State *L) {
    uint32_t b = argument(L, 1);
    return result(L, rotate_left(b, 0u - argument(L, 2)));
}

static int bit_bswap(lua_State *L) {
    return result(L, __builtin_bswap32(argument(L, 1)));
}

/* A negative number of digits asks for capitals; there are never more than 8 of them. */
static int bit_tohex(lua_State *L) {
    uint32_t b = argument(L, 1), count = 8;
    const char *digits = "0123456789abcdef";
    char text[8];
    if (lua_gettop(L) >= 2) {
        count = argument(L, 2);
        if (count >> 31) {
            count = 0 - count; /* unsigned, so that the smallest integer is no special case */
            digits = "0123456789ABCDEF";
        }
        if (count > 8) count = 8;
    }
    for (uint32_t i = count; i-- > 0; b >>= 4) text[i] = digits[b & 15];
    lua_pushlstring(L, text, count);
    return 1;
}

static const luaL_Reg functions[] = {
    {"tobit", bit_tobit},     {"bnot", bit_bnot},     {"band", bit_band},   {"bor", bit_bor},
    {"bxor", bit_bxor},       {"lshift", bit_lshift}, {"rshift", bit_rshift}, {"arshift", bit_arshift},
    {"rol", bit_rol},         {"ror", bit_ror},       {"bswap", bit_bswap}, {"tohex", bit_tohex},
    {NULL, NULL},
};

int luaopen_bit(lua_State *L) {
    luaL_register(L, "bit", functions);
    return 1;
}
