/* What scripts see as globals, and that they cannot change it. */
#include <string.h>

#include "guest.h"
#include "lauxlib.h"
#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "lstring.h"
#include "ltable.h"
#include "lualib.h"

double sandbox_clock;

int luaopen_cjson(lua_State *L);
int luaopen_cmsgpack(lua_State *L);
int luaopen_struct(lua_State *L);
int luaopen_bit(lua_State *L);

static int os_clock(lua_State *L) {
    lua_pushnumber(L, sandbox_clock);
    return 1;
}

/* pcall gives the message of an error made by redis.call, not the table that carries it: scripts older than Redis 7 expect text. */
static int protected_call(lua_State *L) {
    int argc = lua_gettop(L);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    if (lua_pcall(L, argc - 1, LUA_MULTRET, 0) == 0) return lua_gettop(L);
    lua_remove(L, 1);
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "err");
        if (lua_isstring(L, -1)) lua_replace(L, -2);
        else lua_pop(L, 1);
    }
    lua_pushboolean(L, 0);
    lua_insert(L, 1);
    return 2;
}

/* Makes a table of the error and notes where it was raised. Also a global of Redis, so scripts may call it themselves. */
int sandbox_error_handler(lua_State *L) {
    lua_Debug where;
    lua_settop(L, 1);
    int found = lua_getstack(L, 1, &where) && lua_getinfo(L, "Sl", &where);
    if (found && strcmp(where.what, "C") == 0) found = lua_getstack(L, 2, &where) && lua_getinfo(L, "Sl", &where);
    if (!lua_istable(L, 1)) {
        lua_createtable(L, 0, 3);
        lua_pushliteral(L, "ERR ");
        lua_getglobal(L, "tostring");
        lua_pushvalue(L, 1);
        lua_call(L, 1, 1);
        lua_concat(L, 2);
        lua_setfield(L, 2, "err");
        lua_replace(L, 1);
    }
    if (found) {
        lua_pushstring(L, where.source);
        lua_setfield(L, 1, "source");
        lua_pushinteger(L, where.currentline);
        lua_setfield(L, 1, "line");
    }
    return 1;
}

static int missing_global(lua_State *L) {
    if (lua_gettop(L) != 2) return luaL_error(L, "Wrong number of arguments to luaProtectedTableError");
    if (!lua_isstring(L, -1)) return luaL_error(L, "Second argument to luaProtectedTableError must be a string or number");
    return luaL_error(L, "Script attempted to access nonexistent global variable '%s'", lua_tostring(L, -1));
}

void sandbox_refuse_unknown(lua_State *L) {
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, missing_global);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
}

/* Ends at tables already marked. Recursion is as deep as our libraries nest. */
static void make_readonly(lua_State *L, Table *t) {
    if (isreadonly(t)) return;
    l_setbit(t->marked, READONLYBIT);
    if (t->metatable) make_readonly(L, t->metatable);
    for (int i = 0; i < t->sizearray; i++) {
        if (ttistable(&t->array[i])) make_readonly(L, hvalue(&t->array[i]));
    }
    for (int i = 0; i < sizenode(t); i++) {
        const TValue *value = gval(gnode(t, i));
        if (ttistable(value)) make_readonly(L, hvalue(value));
    }
}

void sandbox_make_readonly(lua_State *L) { make_readonly(L, hvalue(L->top - 1)); }

void sandbox_make_one_readonly(lua_State *L) { l_setbit(hvalue(L->top - 1)->marked, READONLYBIT); }

void sandbox_set_global(lua_State *L, const char *name) {
    Table *globals = hvalue(gt(L));
    setobj2t(L, luaH_setstr(L, globals, luaS_new(L, name)), L->top - 1);
    luaC_barriert(L, globals, L->top - 1);
    L->top--;
}

void sandbox_forget_scripts(lua_State *L) {
    static const char *const of_redis[] = {"breakpoint", "debug", "replicate_commands"};
    Table *redis = hvalue(luaH_getstr(hvalue(gt(L)), luaS_new(L, "redis")));
    for (size_t i = 0; i < sizeof of_redis / sizeof *of_redis; i++) {
        setnilvalue(luaH_setstr(L, redis, luaS_new(L, of_redis[i])));
    }
    lua_pushnil(L);
    sandbox_set_global(L, "__redis__err__handler");
}

void sandbox_open(lua_State *L) {
    static const luaL_Reg libraries[] = {{"", luaopen_base},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_MATHLIBNAME, luaopen_math},
#ifdef GUEST_HAS_CJSON
                                         {"cjson", luaopen_cjson},
#endif
#ifdef GUEST_HAS_STRUCT
                                         {"struct", luaopen_struct},
#endif
#ifdef GUEST_HAS_CMSGPACK
                                         {"cmsgpack", luaopen_cmsgpack},
#endif
#ifdef GUEST_HAS_BIT
                                         {"bit", luaopen_bit},
#endif
                                         {"redis", luaopen_redis}};
    static const char *const removed[] = {"newproxy", "getfenv", "setfenv"};
    static const luaL_Reg os[] = {{"clock", os_clock}, {NULL, NULL}};
    static const luaL_Reg globals[] = {{"pcall", protected_call}, {"__redis__err__handler", sandbox_error_handler}, {NULL, NULL}};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        lua_pushcfunction(L, libraries[i].func);
        lua_pushstring(L, libraries[i].name);
        lua_call(L, 1, 0);
    }
    random_open(L);
    luaL_register(L, "os", os);
    luaL_register(L, "_G", globals);
    lua_pop(L, 2);
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
        lua_pushnil(L);
        lua_setglobal(L, removed[i]);
    }
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    sandbox_refuse_unknown(L);
    sandbox_make_readonly(L);
    lua_pop(L, 1);
    for (int type = 0; type < NUM_TAGS; type++) {
        if (G(L)->mt[type]) make_readonly(L, G(L)->mt[type]);
    }
}
