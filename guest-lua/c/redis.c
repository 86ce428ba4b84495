/* The table `redis`, which is called `server`, too. */
#include <string.h>

#include "guest.h"
#include "lauxlib.h"
#include "lobject.h"
#include "lstate.h"

/* What redis.setresp chose: 2 or 3. */
int redis_resp;

/* The arguments of nearly all commands lie where the reply comes, which is when they have been read; more go to a block that the
   garbage collector owns. */
#define FEW 64
#define NUMBER_TEXT 32
_Static_assert(FEW * (sizeof(Arg) + NUMBER_TEXT) <= REPLY_STATIC, "a few arguments fit where replies do");

void redis_push_error(lua_State *L, const char *text, size_t len) {
    const char *code = "ERR";
    size_t code_len = 3;
    if (len && *text == '-') {
        const char *space = memchr(text, ' ', len);
        text++;
        len--;
        if (space) {
            code = text;
            code_len = (size_t)(space - text);
            len -= code_len + 1;
            text = space + 1;
        }
    }
    while (len && (*text == '\r' || *text == '\n')) text++, len--;
    while (len && (text[len - 1] == '\r' || text[len - 1] == '\n')) len--;
    lua_createtable(L, 0, 2);
    lua_pushlstring(L, code, code_len);
    lua_pushlstring(L, " ", 1);
    lua_pushlstring(L, text, len);
    lua_concat(L, 3);
    lua_setfield(L, -2, "err");
}

static void push_message(lua_State *L, const char *text) { redis_push_error(L, text, strlen(text)); }

int redis_raise(lua_State *L, const char *text) {
    push_message(L, text);
    return lua_error(L);
}

/* Points the argument list at the arguments of the running C function. NULL: an argument has the wrong type. */
static const Arg *collect(lua_State *L, int argc) {
    Arg *args = (Arg *)reply_static;
    if (argc > FEW) args = lua_newuserdata(L, (size_t)argc * (sizeof(Arg) + NUMBER_TEXT));
    char *numbers = (char *)(args + argc);
    const TValue *value = L->base;
    for (int i = 0; i < argc; i++, value++) {
        if (ttisstring(value)) {
            args[i].ptr = (uint32_t)(uintptr_t)svalue(value);
            args[i].len = (uint32_t)tsvalue(value)->len;
        } else if (ttisnumber(value)) {
            args[i].ptr = (uint32_t)(uintptr_t)numbers;
            args[i].len = (uint32_t)guest_number_text(numbers, nvalue(value), 17);
            numbers += NUMBER_TEXT;
        } else {
            return NULL;
        }
    }
    return args;
}

static int generic(lua_State *L, uint32_t flags) {
    /* Before the arguments take the place of the description. */
    if (frames_wanted) frames_tell(L);
    int argc = (int)(L->top - L->base);
    const char *refused = "Please specify at least one argument for this redis lib call";
    const Arg *args = NULL;
    if (argc > 0) {
        args = collect(L, argc);
        refused = "Lua redis lib command arguments must be strings or integers";
    }
    if (!args) {
        push_message(L, refused);
        if (flags & CALL_PROTECTED) return 1;
        return lua_error(L);
    }
    if (redis_resp == 3) flags |= CALL_RESP3;
    if (L->ci->nresults == 0) flags |= CALL_UNUSED;
    char *reply = reply_static;
    int32_t len = host_call(args, (uint32_t)argc, reply, REPLY_STATIC, flags);
    /* negative: the host cannot answer without waiting, and only fetch may wait */
    if (len < 0) len = host_fetch(reply, REPLY_STATIC);
    if (len > (int32_t)REPLY_STATIC) {
        reply = guest_realloc(NULL, 0, (size_t)len);
        if (!reply) __builtin_trap();
        host_fetch(reply, (uint32_t)len);
    }
    int failed = len > 0 && *reply == '-';
    int wanted = failed ? !(flags & CALL_PROTECTED) || !(flags & (CALL_UNUSED | CALL_ASYNC)) : !(flags & (CALL_UNUSED | CALL_ASYNC));
    if (len > 0 && wanted) {
        luaL_checkstack(L, 4, "reply");
        reply_push(L, reply, redis_resp == 3);
    } else {
        lua_pushnil(L);
    }
    if (reply != reply_static) guest_realloc(reply, (size_t)len, 0);
    if (failed && !(flags & CALL_PROTECTED)) return lua_error(L);
    return 1;
}

static int redis_call(lua_State *L) { return generic(L, 0); }
static int redis_pcall(lua_State *L) { return generic(L, CALL_PROTECTED); }
static int redis_acall(lua_State *L) { return generic(L, CALL_ASYNC); }
static int redis_apcall(lua_State *L) { return generic(L, CALL_ASYNC | CALL_PROTECTED); }

static int redis_acl_check_cmd(lua_State *L) {
    generic(L, CALL_ACL_CHECK);
    lua_pushboolean(L, lua_tonumber(L, -1) != 0);
    return 1;
}

static int single_field(lua_State *L, const char *field) {
    if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TSTRING) {
        push_message(L, "wrong number or type of arguments");
        return 1;
    }
    if (*field == 'e') { /* the first word is the code, with or without a dash before it; text ends at NUL as in C */
        const char *text = lua_tostring(L, 1);
        lua_pushfstring(L, *text == '-' ? "%s" : "-%s", text);
        push_message(L, lua_tostring(L, -1));
        return 1;
    }
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, field);
    return 1;
}

static int redis_error_reply(lua_State *L) { return single_field(L, "err"); }
static int redis_status_reply(lua_State *L) { return single_field(L, "ok"); }

static int redis_sha1hex(lua_State *L) {
    if (lua_gettop(L) != 1) return redis_raise(L, "wrong number of arguments");
    size_t len = 0;
    const char *text = lua_tolstring(L, 1, &len);
    char hex[40];
    sha1_hex(hex, text ? text : "", text ? len : 0);
    lua_pushlstring(L, hex, sizeof hex);
    return 1;
}

static int redis_log(lua_State *L) {
    int argc = lua_gettop(L);
    if (argc < 2) return redis_raise(L, "redis.log() requires two arguments or more.");
    if (!lua_isnumber(L, 1)) return redis_raise(L, "First argument must be a number (log level).");
    int level = guest_d2i(lua_tonumber(L, 1));
    if (level < 0 || level > 3) return redis_raise(L, "Invalid debug level.");
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (int i = 2; i <= argc; i++) {
        size_t len;
        const char *part = lua_tolstring(L, i, &len);
        if (!part) continue;
        if (i > 2) luaL_addchar(&text, ' ');
        luaL_addlstring(&text, part, len);
    }
    luaL_pushresult(&text);
    size_t len;
    const char *all = lua_tolstring(L, -1, &len);
    host_log((uint32_t)level, all, (uint32_t)len);
    return 0;
}

static int redis_setresp(lua_State *L) {
    if (lua_gettop(L) != 1) return redis_raise(L, "redis.setresp() requires one argument.");
    int version = guest_d2i(lua_tonumber(L, 1));
    if (version != 2 && version != 3) return redis_raise(L, "RESP version must be 2 or 3.");
    redis_resp = version;
    return 0;
}

/* Effects are what is replicated here, so the choice has no meaning; only bad calls are told. */
static int redis_set_repl(lua_State *L) {
    if (lua_gettop(L) != 1) return redis_raise(L, "redis.set_repl() requires two arguments.");
    if (guest_d2i(lua_tonumber(L, 1)) & ~3) {
        return redis_raise(L, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
    }
    return 0;
}

static int redis_replicate_commands(lua_State *L) {
    lua_pushboolean(L, 1);
    return 1;
}

/* There is no debugger to stop in. */
static int redis_breakpoint(lua_State *L) {
    lua_pushboolean(L, 0);
    return 1;
}

static int redis_debug(lua_State *L) {
    (void)L;
    return 0;
}

int luaopen_redis(lua_State *L) {
    static const luaL_Reg functions[] = {{"call", redis_call},
                                         {"pcall", redis_pcall},
                                         {"acall", redis_acall},
                                         {"apcall", redis_apcall},
                                         {"acl_check_cmd", redis_acl_check_cmd},
                                         {"error_reply", redis_error_reply},
                                         {"status_reply", redis_status_reply},
                                         {"sha1hex", redis_sha1hex},
                                         {"log", redis_log},
                                         {"setresp", redis_setresp},
                                         {"set_repl", redis_set_repl},
                                         {"replicate_commands", redis_replicate_commands},
                                         {"breakpoint", redis_breakpoint},
                                         {"debug", redis_debug},
                                         {NULL, NULL}};
    static const struct {
        const char *name;
        int value;
    } numbers[] = {{"LOG_DEBUG", 0},    {"LOG_VERBOSE", 1}, {"LOG_NOTICE", 2}, {"LOG_WARNING", 3}, {"REPL_NONE", 0},
                   {"REPL_AOF", 1},     {"REPL_SLAVE", 2},  {"REPL_REPLICA", 2}, {"REPL_ALL", 3},  {"REDIS_VERSION_NUM", 0x0007000f}};
    luaL_register(L, "redis", functions);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        lua_pushnumber(L, numbers[i].value);
        lua_setfield(L, -2, numbers[i].name);
    }
    lua_pushliteral(L, "7.0.15");
    lua_setfield(L, -2, "REDIS_VERSION");
    /* As in Valkey. */
    lua_pushvalue(L, -1);
    lua_setglobal(L, "server");
    return 1;
}
