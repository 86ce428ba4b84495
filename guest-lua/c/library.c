/* Libraries of functions: a library's chunk runs once and registers functions by name, of which every later run calls one. */
#include <strings.h>

#include "guest.h"
#include "lauxlib.h"

/* Whose addresses are keys of the registry: the functions by name, and the list of what the host is told of them. */
static char functions_key, list_key;
/* A library's chunk is running. */
static int loading;

/* Places on the stack of redis.register_function, once its arguments are sorted. */
enum { NAME = 1, CALLBACK, DESCRIPTION };

static void push_kept(lua_State *L, char *key) {
    lua_pushlightuserdata(L, key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

/* Pops the value. */
static void keep(lua_State *L, char *key) {
    lua_pushlightuserdata(L, key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Reads the table of flags on top of the stack. Why it is refused, or NULL; as below. */
static const char *read_flags(lua_State *L, uint32_t *flags) {
    static const struct {
        const char *name;
        uint32_t bit;
    } known[] = {{"no-writes", FUNCTION_NO_WRITES},
                 {"allow-oom", FUNCTION_ALLOW_OOM},
                 {"allow-stale", FUNCTION_ALLOW_STALE},
                 {"no-cluster", FUNCTION_NO_CLUSTER},
                 {"allow-cross-slot-keys", FUNCTION_ALLOW_CROSS_SLOT_KEYS}};
    const size_t count = sizeof known / sizeof *known;
    *flags = 0;
    for (int i = 1;; i++) {
        lua_rawgeti(L, -1, i);
        if (lua_isnil(L, -1)) break;
        const char *flag = lua_tostring(L, -1);
        size_t at = 0;
        while (at < count && !(flag && strcasecmp(flag, known[at].name) == 0)) at++;
        if (at == count) return "unknown flag given";
        *flags |= known[at].bit;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return NULL;
}

static const char *read_named(lua_State *L, uint32_t *flags) {
    if (!lua_istable(L, 1)) {
        return "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).";
    }
    /* the table stays below the places until all of it is read */
    lua_settop(L, 1 + DESCRIPTION);
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        if (!lua_isstring(L, -2)) return "named argument key given to redis.register_function is not a string";
        const char *key = lua_tostring(L, -2);
        if (strcasecmp(key, "function_name") == 0) {
            if (!lua_tostring(L, -1)) return "function_name argument given to redis.register_function must be a string";
            lua_replace(L, 1 + NAME);
        } else if (strcasecmp(key, "description") == 0) {
            if (!lua_tostring(L, -1)) return "description argument given to redis.register_function must be a string";
            lua_replace(L, 1 + DESCRIPTION);
        } else if (strcasecmp(key, "callback") == 0) {
            if (!lua_isfunction(L, -1)) return "callback argument given to redis.register_function must be a function";
            lua_replace(L, 1 + CALLBACK);
        } else if (strcasecmp(key, "flags") == 0) {
            if (!lua_istable(L, -1)) {
                return "flags argument to redis.register_function must be a table representing function flags";
            }
            const char *refused = read_flags(L, flags);
            if (refused) return refused;
            lua_pop(L, 1);
        } else {
            return "unknown argument given to redis.register_function";
        }
    }
    if (lua_isnil(L, 1 + NAME)) return "redis.register_function must get a function name argument";
    if (lua_isnil(L, 1 + CALLBACK)) return "redis.register_function must get a callback argument";
    lua_remove(L, 1);
    return NULL;
}

static const char *read_positional(lua_State *L) {
    if (!lua_tostring(L, NAME)) return "first argument to redis.register_function must be a string";
    if (!lua_isfunction(L, CALLBACK)) return "second argument to redis.register_function must be a function";
    lua_settop(L, DESCRIPTION);
    return NULL;
}

static int is_name(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return 0;
    }
    return len > 0;
}

static const char *add(lua_State *L, uint32_t flags) {
    size_t len;
    const char *name = lua_tolstring(L, NAME, &len);
    if (!is_name(name, len)) { /* Redis speaks of libraries here too */
        return "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
    }
    push_kept(L, &functions_key);
    lua_pushvalue(L, NAME);
    lua_rawget(L, -2);
    if (!lua_isnil(L, -1)) return "Function already exists in the library";
    lua_pop(L, 1);
    lua_pushvalue(L, NAME);
    lua_pushvalue(L, CALLBACK);
    lua_rawset(L, -3);

    push_kept(L, &list_key);
    lua_createtable(L, 3, 0);
    lua_pushvalue(L, NAME);
    lua_rawseti(L, -2, 1);
    if (lua_isnil(L, DESCRIPTION)) lua_pushboolean(L, 0);
    else lua_pushvalue(L, DESCRIPTION);
    lua_rawseti(L, -2, 2);
    lua_pushnumber(L, flags);
    lua_rawseti(L, -2, 3);
    lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    return NULL;
}

static int register_function(lua_State *L) {
    if (!loading) return redis_raise(L, "redis.register_function can only be called on FUNCTION LOAD command");
    int argc = lua_gettop(L);
    uint32_t flags = 0;
    const char *refused = "wrong number of arguments to redis.register_function";
    if (argc == 1) refused = read_named(L, &flags);
    if (argc == 2) refused = read_positional(L);
    if (!refused) refused = add(L, flags);
    return refused ? redis_raise(L, refused) : 0;
}

/* Pushes what a chunk sees while it registers: `redis`, by both names, and nothing else, with what of it has a meaning then. */
static void push_loading_globals(lua_State *L) {
    static const char *const shared[] = {"log",         "LOG_DEBUG",     "LOG_VERBOSE",      "LOG_NOTICE",
                                         "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM"};
    lua_newtable(L);
    lua_newtable(L);
    lua_getglobal(L, "redis");
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        lua_getfield(L, -1, shared[i]);
        lua_setfield(L, -3, shared[i]);
    }
    lua_pop(L, 1);
    lua_pushcfunction(L, register_function);
    lua_setfield(L, -2, "register_function");
    sandbox_refuse_unknown(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "server");
    lua_setfield(L, -2, "redis");
    sandbox_refuse_unknown(L);
    sandbox_make_readonly(L);
}

/* Makes an empty table the globals of all code to come. What it shows is looked up in the table on top, which is popped. */
static void stand_in_for_globals(lua_State *L) {
    lua_newtable(L);
    lua_newtable(L);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    /* not what it shows, which is marked already or stays open to the host */
    sandbox_make_one_readonly(L);
    lua_replace(L, LUA_GLOBALSINDEX);
    lua_pop(L, 1);
}

void library_begin(lua_State *L) {
    sandbox_forget_scripts(L);
    lua_newtable(L);
    keep(L, &functions_key);
    lua_newtable(L);
    keep(L, &list_key);
    /* beneath the chunk, so that it lives on */
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    push_loading_globals(L);
    stand_in_for_globals(L);
    loading = 1;
}

void library_end(lua_State *L) {
    loading = 0;
    lua_getmetatable(L, LUA_GLOBALSINDEX);
    lua_insert(L, -2);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    push_kept(L, &list_key);
    lua_pushnil(L);
    keep(L, &list_key);
}

void library_push_function(lua_State *L, int name) {
    push_kept(L, &functions_key);
    lua_pushvalue(L, name);
    lua_rawget(L, -2);
    lua_remove(L, -2);
}
