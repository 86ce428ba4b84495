/* string.rep and table.concat in one piece. luaL_Buffer builds long text out of many strings, which costs several times its size in
   garbage. The edits make Lua's own functions check their arguments as before and then call these. */
#include <string.h>

#include "guest.h"
#include "lauxlib.h"
#include "ldo.h"
#include "lobject.h"
#include "lstate.h"
#include "ltable.h"

static char *block_of(lua_State *L, size_t total) {
    char *block = guest_realloc(NULL, 0, total);
    if (!block) luaD_throw(L, LUA_ERRMEM);
    return block;
}

/* Makes the string and gives the block back. If that fails memory is out: the block is lost, but so is the run. */
static void push_block(lua_State *L, char *block, size_t length, size_t total) {
    lua_pushlstring(L, block, length);
    guest_realloc(block, total, 0);
}

void guest_push_repeated(lua_State *L, const char *s, size_t l, int n) {
    if (n <= 0 || l == 0) {
        lua_pushliteral(L, "");
        return;
    }
    size_t total;
    if (__builtin_mul_overflow(l, (size_t)n, &total)) luaD_throw(L, LUA_ERRMEM);
    char *block = block_of(L, total);
    memcpy(block, s, l);
    for (size_t done = l; done < total;) {
        size_t part = done < total - done ? done : total - done;
        memcpy(block + done, block, part);
        done += part;
    }
    push_block(L, block, total, total);
}

/* Fields `i` to `last` of the table at index 1. All errors come from the first walk, before there is a block to lose. */
void guest_push_joined(lua_State *L, const char *separator, size_t length, int i, int last) {
    Table *t = hvalue(L->base);
    uint64_t total = 0;
    for (long long at = i; at <= last; at++) {
        const TValue *v = luaH_getnum(t, (int)at);
        if (ttisstring(v)) total += tsvalue(v)->len;
        else if (ttisnumber(v)) total += LUAI_MAXNUMBER2STR;
        else luaL_error(L, "invalid value (%s) at index %d in table for " LUA_QL("concat"), luaT_typenames[ttype(v)], (int)at);
        total += length;
        if (total > 0x70000000u) luaD_throw(L, LUA_ERRMEM);
    }
    if (!total) {
        lua_pushliteral(L, "");
        return;
    }
    char *block = block_of(L, (size_t)total), *end = block;
    for (long long at = i; at <= last; at++) {
        const TValue *v = luaH_getnum(t, (int)at);
        if (ttisstring(v)) {
            memcpy(end, svalue(v), tsvalue(v)->len);
            end += tsvalue(v)->len;
        } else {
            end += guest_number_text(end, nvalue(v), 14);
        }
        if (at < last) {
            memcpy(end, separator, length);
            end += length;
        }
    }
    push_block(L, block, (size_t)(end - block), (size_t)total);
}
