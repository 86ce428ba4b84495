/* math.random with the sequence of Redis: the 48-bit generator of drand48. The host seeds each run, and repeats the seed when it repeats
   the run, so that the script makes the same choices. */
#include <math.h>

#include "guest.h"
#include "lauxlib.h"

static uint64_t state;

void random_seed(int32_t seed) { state = ((uint64_t)(uint32_t)seed << 16) + 0x330E; }

static int32_t next(void) {
    state = (state * 0x5DEECE66DULL + 0xB) & 0xFFFFFFFFFFFFULL;
    return (int32_t)(state >> 17);
}

static int math_random(lua_State *L) {
    double r = (double)(next() % INT32_MAX) / (double)INT32_MAX;
    int low = 1, high;
    switch (lua_gettop(L)) {
    case 0:
        lua_pushnumber(L, r);
        return 1;
    case 1:
        high = luaL_checkint(L, 1);
        luaL_argcheck(L, 1 <= high, 1, "interval is empty");
        lua_pushnumber(L, floor(r * high) + 1);
        return 1;
    case 2:
        low = luaL_checkint(L, 1);
        high = luaL_checkint(L, 2);
        luaL_argcheck(L, low <= high, 2, "interval is empty");
        /* the width wraps as an int does on Redis' side */
        lua_pushnumber(L, floor(r * (double)(int)((unsigned)high - (unsigned)low + 1u)) + low);
        return 1;
    default:
        return luaL_error(L, "wrong number of arguments");
    }
}

static int math_randomseed(lua_State *L) {
    random_seed((int32_t)luaL_checkint(L, 1));
    return 0;
}

void random_open(lua_State *L) {
    static const luaL_Reg functions[] = {{"random", math_random}, {"randomseed", math_randomseed}, {NULL, NULL}};
    luaL_register(L, "math", functions);
    lua_pop(L, 1);
    random_seed(0);
}
