/* The exports: create the state, compile the script or load the library, run it. */
#include <string.h>

#include "guest.h"
#include "lauxlib.h"
#include "lgc.h"
#include "lobject.h"
#include "lstate.h"

/* longjmp is a Wasm exception with this tag. */
__asm__(".globl __c_longjmp\n.tagtype __c_longjmp i32\n__c_longjmp:\n");

void __wasm_call_ctors(void);

static lua_State *state;
static int script; /* a reference; 0: none */

/* Lies where replies come later: it has been read by then, and a page less is written in each run. */
#define input_static reply_static
_Static_assert(INPUT_STATIC <= REPLY_STATIC, "inputs fit where replies do");
static char *input_large;
static uint32_t input_size;

static int panic(lua_State *L) {
    (void)L;
    __builtin_trap();
}

static int64_t pack(const char *data, size_t len) { return (int64_t)((uint64_t)(uintptr_t)data << 32 | (uint64_t)len); }

EXPORT("init") void guest_init(void) {
    __wasm_call_ctors();
    state = lua_newstate(guest_lua_alloc, NULL);
    if (!state) __builtin_trap();
    lua_atpanic(state, panic);
    reply_init(state);
    sandbox_open(state);
    lua_gc(state, LUA_GCCOLLECT, 0);
    guest_heap_settle();
}

EXPORT("state") lua_State *guest_state(void) { return state; }

static void drop_input(void) {
    if (input_large) guest_realloc(input_large, input_size, 0);
    input_large = NULL;
}

EXPORT("input") char *guest_input(uint32_t len) {
    drop_input();
    if (len <= INPUT_STATIC) return input_static;
    input_large = guest_realloc(NULL, 0, len);
    input_size = len;
    return input_large;
}

static const char *input(void) { return input_large ? input_large : input_static; }

/* Below this size a collection would mark every object, and so make the image larger than the garbage is. */
#define SETTLE_LEAST (256 * 1024)

/* Memory may be kept as an image now. What compiling and loading left behind is most of a large heap. */
static void settle(lua_State *L) {
    if (guest_heap_span() < SETTLE_LEAST) return;
    lua_gc(L, LUA_GCCOLLECT, 0);
    guest_heap_clear_free();
}

EXPORT("compile") int64_t guest_compile(uint32_t len) {
    lua_State *L = state;
    lua_settop(L, 0);
    int status = luaL_loadbuffer(L, input(), len, "@user_script");
    drop_input();
    if (status != 0) {
        size_t size;
        const char *message = lua_tolstring(L, -1, &size);
        return pack(message, size);
    }
    if (script) luaL_unref(L, LUA_REGISTRYINDEX, script);
    script = luaL_ref(L, LUA_REGISTRYINDEX);
    settle(L);
    return 0;
}

static uint32_t word(const char *p) {
    uint32_t value;
    memcpy(&value, p, 4);
    return value;
}

static const char *push_strings(lua_State *L, const char *p, uint32_t n) {
    lua_createtable(L, (int)n, 0);
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t len = word(p);
        lua_pushlstring(L, p + 4, len);
        lua_rawseti(L, -2, (int)i);
        p += 4 + len;
    }
    return p;
}

/* The text of a field of the error table, or NULL. Leaves it on the stack, so that it stays alive. */
static const char *field(lua_State *L, int table, const char *name) {
    lua_pushstring(L, name);
    lua_rawget(L, table);
    return lua_isstring(L, -1) ? lua_tostring(L, -1) : NULL;
}

static void add_failure(Buffer *out, lua_State *L, const char *name) {
    int top = lua_gettop(L);
    if (!lua_istable(L, top)) { /* an error in the handler, or memory is out: allocate nothing */
        const char *text = lua_type(L, top) == LUA_TSTRING ? lua_tostring(L, top) : "execution failure";
        char start[101];
        memcpy(start, text, strnlen(text, 100) + 1);
        start[100] = '\0';
        buffer_add(out, "-ERR Error running script ", 26);
        buffer_add_line(out, name, 0);
        buffer_add(out, ", ", 2);
        buffer_add_line(out, start, 1);
        buffer_add(out, "\r\n", 2);
        return;
    }
    const char *message = field(L, top, "err");
    const char *source = field(L, top, "source");
    const char *line = field(L, top, "line");
    /* Redis 7.0 crashes when `err` is missing; 7.2 says this. */
    lua_pushfstring(L, "-%s", message ? message : "ERR unknown error");
    if (source && line) {
        lua_pushfstring(L, " script: %s, on %s:%s.", name, source, line);
        lua_concat(L, 2);
    }
    buffer_add_line(out, lua_tostring(L, -1), 1);
    buffer_add(out, "\r\n", 2);
}

EXPORT("load") int64_t guest_load(uint32_t len) {
    lua_State *L = state;
    Buffer out = {reply_static, 0, REPLY_STATIC};
    lua_settop(L, 0);
    library_begin(L);
    const char *doing = "compiling function";
    int status = luaL_loadbuffer(L, input(), len, "@user_function");
    drop_input();
    if (status == 0) {
        doing = "registering functions";
        status = lua_pcall(L, 0, 0, 0);
        if (status != 0 && lua_type(L, -1) == LUA_TSTRING) {
            lua_pushliteral(L, "ERR ");
            lua_insert(L, -2);
            lua_concat(L, 2);
        }
    }
    if (status == 0) {
        library_end(L);
        settle(L);
        reply_write(&out, L, 0);
    } else {
        const char *message = lua_istable(L, -1) ? field(L, lua_gettop(L), "err") : lua_tostring(L, -1);
        lua_pushfstring(L, "-ERR Error %s: %s", doing, message ? message : "ERR unknown error");
        buffer_add_line(&out, lua_tostring(L, -1), 1);
        buffer_add(&out, "\r\n", 2);
    }
    lua_settop(L, 0);
    return pack(out.data, out.len);
}

EXPORT("run") int64_t guest_run(uint32_t len) {
    (void)len;
    lua_State *L = state;
    const char *in = input();
    uint32_t name_len = word(in + RUN_NAME_LEN), nkeys = word(in + RUN_NKEYS), nargs = word(in + RUN_NARGS);
    memcpy(&sandbox_clock, in + RUN_CLOCK, sizeof sandbox_clock);
    redis_resp = 2;
    random_seed((int32_t)word(in + RUN_SEED));
    lua_settop(L, 0);
    lua_pushlstring(L, in + RUN_DATA, name_len);
    lua_pushcfunction(L, sandbox_error_handler);
    int function = word(in + RUN_FLAGS) & RUN_FUNCTION;
    frames_wanted = word(in + RUN_FLAGS) & RUN_FRAMES;
    if (function) library_push_function(L, 1);
    else lua_rawgeti(L, LUA_REGISTRYINDEX, script);
    const char *p = push_strings(L, in + RUN_DATA + name_len, nkeys);
    if (!function) sandbox_set_global(L, "KEYS");
    push_strings(L, p, nargs);
    if (!function) sandbox_set_global(L, "ARGV");
    drop_input();

    Buffer out = {reply_static, 0, REPLY_STATIC};
    if (lua_pcall(L, function ? 2 : 0, 1, 2) == 0) reply_write(&out, L, redis_resp == 3);
    else add_failure(&out, L, lua_tostring(L, 1));
    return pack(out.data, out.len);
}
