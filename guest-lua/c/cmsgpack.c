/* Library `cmsgpack`: MessagePack without its bin, ext and timestamp types (what Redis' library knows). */
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "lua.h"

#include "lauxlib.h"
#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "lstring.h"
#include "ltable.h"

#include "bytes.h"
#include "number.h"

#define MAX_NESTING 16 /* a table deeper than this is packed as nil */

static Scratch packed;

/* ---- packing ---- */

/* Writes the low `size` bytes of the value, high byte first. */
static char *put_big_endian(char *p, uint64_t value, int size) {
    if (size == 8) {
        value = __builtin_bswap64(value);
        memcpy(p, &value, 8);
        return p + 8;
    }
    while (size > 0) *p++ = (char)(value >> (8 * --size));
    return p;
}

static char *put_head(char *p, int head, uint64_t value, int size) {
    *p = (char)head;
    return put_big_endian(p + 1, value, size);
}

static char *put_integer(char *p, int64_t n) {
    if (n >= 0) {
        if (n <= 0x7f) return put_head(p, (int)n, 0, 0);
        if (n <= 0xff) return put_head(p, 0xcc, (uint64_t)n, 1);
        if (n <= 0xffff) return put_head(p, 0xcd, (uint64_t)n, 2);
        if (n <= 0xffffffff) return put_head(p, 0xce, (uint64_t)n, 4);
        return put_head(p, 0xcf, (uint64_t)n, 8);
    }
    if (n >= -32) return put_head(p, (int)n, 0, 0);
    if (n >= -128) return put_head(p, 0xd0, (uint64_t)n, 1);
    if (n >= -32768) return put_head(p, 0xd1, (uint64_t)n, 2);
    if (n >= INT32_MIN) return put_head(p, 0xd2, (uint64_t)n, 4);
    return put_head(p, 0xd3, (uint64_t)n, 8);
}

/* Whole numbers that int64 holds are integers; others are a float if that loses nothing, else a double. */
static void pack_number(lua_State *L, double d) {
    char *p = scratch_room(L, &packed, 9), *end;
    if (d >= -9223372036854775808.0 && d < 9223372036854775808.0 && (double)(int64_t)d == d) {
        end = put_integer(p, (int64_t)d);
    } else {
        float f = (float)d;
        if (d == (double)f) {
            uint32_t bits;
            memcpy(&bits, &f, sizeof bits);
            end = put_head(p, 0xca, bits, 4);
        } else {
            uint64_t bits;
            memcpy(&bits, &d, sizeof bits);
            end = put_head(p, 0xcb, bits, 8);
        }
    }
    packed.len += (size_t)(end - p);
}

static void pack_string(lua_State *L, const TString *s) {
    size_t n = s->tsv.len;
    if (n > BYTES_MOST - 5) luaM_toobig(L);
    char *p = scratch_room(L, &packed, n + 5), *text;
    if (n < 32) text = put_head(p, 0xa0 | (int)n, 0, 0);
    else if (n <= 0xff) text = put_head(p, 0xd9, n, 1);
    else if (n <= 0xffff) text = put_head(p, 0xda, n, 2);
    else text = put_head(p, 0xdb, n, 4);
    memcpy(text, getstr(s), n);
    packed.len += (size_t)(text - p) + n;
}

/* Head of an array (0x90, 0xdc) or map (0x80, 0xde) of n elements. */
static void pack_head(lua_State *L, int few, int many, uint32_t n) {
    char *p = scratch_room(L, &packed, 5), *end;
    if (n <= 15) end = put_head(p, few | (int)n, 0, 0);
    else if (n <= 0xffff) end = put_head(p, many, n, 2);
    else end = put_head(p, many + 1, n, 4);
    packed.len += (size_t)(end - p);
}

/* Whether the keys are exactly 1 ... n; *entries is the number of keys either way. */
static int is_array(const Table *t, int *entries) {
    int n = 0, largest = 0, array = 1;
    for (int i = 0; i < t->sizearray; i++) {
        if (ttisnil(&t->array[i])) continue;
        n++;
        largest = i + 1;
    }
    for (int i = 0; i < sizenode(t); i++) {
        const Node *node = gnode(t, i);
        if (ttisnil(gval(node))) continue;
        n++;
        if (!array) continue;
        const TValue *key = key2tval(node);
        array = 0;
        if (ttisnumber(key)) {
            double k = nvalue(key);
            if (k > 0 && k <= INT_MAX && (double)(int)k == k) {
                array = 1;
                if ((int)k > largest) largest = (int)k;
            }
        }
    }
    *entries = n;
    return array && largest == n;
}

/* Recursive, at most MAX_NESTING deep. Nothing here runs Lua code or collects, so the table stays as it is. */
static void pack_value(lua_State *L, const TValue *o, int level) {
    switch (ttype(o)) {
        case LUA_TSTRING: pack_string(L, rawtsvalue(o)); return;
        case LUA_TNUMBER: pack_number(L, nvalue(o)); return;
        case LUA_TBOOLEAN: scratch_byte(L, &packed, bvalue(o) ? 0xc3 : 0xc2); return;
        case LUA_TTABLE:
            if (level < MAX_NESTING) break;
            /* fall through */
        default: scratch_byte(L, &packed, 0xc0); return;
    }
    Table *t = hvalue(o);
    int n;
    if (is_array(t, &n)) {
        pack_head(L, 0x90, 0xdc, (uint32_t)n);
        for (int i = 1; i <= n; i++) pack_value(L, i <= t->sizearray ? &t->array[i - 1] : luaH_getnum(t, i), level + 1);
        return;
    }
    pack_head(L, 0x80, 0xde, (uint32_t)n);
    for (int i = 0; i < t->sizearray; i++) {
        if (ttisnil(&t->array[i])) continue;
        pack_number(L, i + 1);
        pack_value(L, &t->array[i], level + 1);
    }
    for (int i = 0; i < sizenode(t); i++) {
        Node *node = gnode(t, i);
        if (ttisnil(gval(node))) continue;
        pack_value(L, key2tval(node), level + 1);
        pack_value(L, gval(node), level + 1);
    }
}

static int cmsgpack_pack(lua_State *L) {
    int n = lua_gettop(L);
    if (n == 0) return luaL_argerror(L, 0, "MessagePack pack needs input.");
    if (2 * n > LUAI_MAXCSTACK) return luaL_argerror(L, 0, "Too many arguments for MessagePack pack.");
    packed.len = 0;
    for (int i = 0; i < n; i++) pack_value(L, L->base + i, 0);
    setsvalue2s(L, L->top, luaS_newlstr(L, packed.data, packed.len));
    L->top++;
    luaC_checkGC(L);
    return 1;
}

/* ---- unpacking ---- */

/* A table that is being read. Its finished elements wait in `values` (an array), or are in the table (a map). */
typedef struct {
    Table *map; /* NULL: an array */
    uint32_t left;
    int has_key;
    TValue key;
    size_t first; /* where its values begin in `values` */
} Open;

typedef struct {
    lua_State *L;
    const unsigned char *p;
    size_t left;
    int used; /* stack slots that the recursive original uses: it is what limits the depth */
} Input;

static Scratch open_tables, values;

static void need(Input *in, size_t n) {
    if (in->left < n) luaL_error(in->L, "Missing bytes in input.");
}

static uint64_t get_big_endian(const unsigned char *p, int size) {
    uint64_t value = 0;
    while (size-- > 0) value = value << 8 | *p++;
    return value;
}

/* Skips a head byte that has its argument in itself. */
static void skip_head(Input *in) {
    in->p++;
    in->left--;
}

/* The argument of a head byte: `size` bytes behind it. */
static uint64_t argument(Input *in, int size) {
    need(in, (size_t)size + 1);
    uint64_t value = get_big_endian(in->p + 1, size);
    in->p += size + 1;
    in->left -= (size_t)size + 1;
    return value;
}

static void read_string(Input *in, TValue *out, uint64_t n) {
    if (in->left < n) luaL_error(in->L, "Missing bytes in input.");
    setsvalue(in->L, out, luaS_newlstr(in->L, (const char *)in->p, (size_t)n));
    in->p += n;
    in->left -= (size_t)n;
}

static void check_depth(Input *in, const char *where) {
    if (in->used >= LUAI_MAXCSTACK) luaL_error(in->L, "stack overflow (%s)", where);
}

static void open_table(Input *in, int is_map, uint64_t n) {
    lua_State *L = in->L;
    in->used++;
    if (!is_map) {
        check_depth(in, "in function mp_decode_to_lua_array");
        in->used++; /* the index */
    }
    Open *o = scratch_push(L, &open_tables, Open);
    o->left = (uint32_t)n;
    o->has_key = 0;
    o->first = values.len;
    o->map = NULL; /* in case the next line throws */
    if (is_map) o->map = luaH_new(L, 0, 0);
}

/* Reads one value. 0: it was the head of a table, which is open now and comes later. */
static int read_value(Input *in, TValue *out) {
    lua_State *L = in->L;
    need(in, 1); /* before the depth: so the errors come in the original's order */
    check_depth(in, "too many return values at once; use unpack_one or unpack_limit instead.");
    int head = *in->p;
    if (head <= 0x7f) {
        skip_head(in);
        setnvalue(out, (lua_Number)head);
    } else if (head >= 0xe0) {
        skip_head(in);
        setnvalue(out, (lua_Number)(head - 256));
    } else if (head <= 0x8f) {
        skip_head(in);
        open_table(in, 1, (uint64_t)head & 15);
        return 0;
    } else if (head <= 0x9f) {
        skip_head(in);
        open_table(in, 0, (uint64_t)head & 15);
        return 0;
    } else if (head <= 0xbf) {
        skip_head(in);
        read_string(in, out, (uint64_t)head & 31);
    } else {
        switch (head) {
            case 0xc0: skip_head(in); setnilvalue(out); break;
            case 0xc2: skip_head(in); setbvalue(out, 0); break;
            case 0xc3: skip_head(in); setbvalue(out, 1); break;
            case 0xcc: setnvalue(out, (lua_Number)argument(in, 1)); break;
            case 0xcd: setnvalue(out, (lua_Number)argument(in, 2)); break;
            case 0xce: setnvalue(out, (lua_Number)argument(in, 4)); break;
            case 0xd0: setnvalue(out, (lua_Number)(int8_t)argument(in, 1)); break;
            case 0xd1: setnvalue(out, (lua_Number)(int16_t)argument(in, 2)); break;
            case 0xd2: setnvalue(out, (lua_Number)(int32_t)argument(in, 4)); break;
            case 0xcf: /* the original takes it as signed, too */
            case 0xd3: setnvalue(out, (lua_Number)(int64_t)argument(in, 8)); break;
            case 0xca: {
                uint32_t bits = (uint32_t)argument(in, 4);
                float f;
                memcpy(&f, &bits, sizeof f);
                setnvalue(out, (lua_Number)f);
                break;
            }
            case 0xcb: {
                uint64_t bits = argument(in, 8);
                double d;
                memcpy(&d, &bits, sizeof d);
                setnvalue(out, d);
                break;
            }
            case 0xd9: read_string(in, out, argument(in, 1)); break;
            case 0xda: read_string(in, out, argument(in, 2)); break;
            case 0xdb: read_string(in, out, argument(in, 4)); break;
            case 0xdc: open_table(in, 0, argument(in, 2)); return 0;
            case 0xdd: open_table(in, 0, argument(in, 4)); return 0;
            case 0xde: open_table(in, 1, argument(in, 2)); return 0;
            case 0xdf: open_table(in, 1, argument(in, 4)); return 0;
            default: luaL_error(L, "Bad data format in input.");
        }
    }
    return 1;
}

/* The waiting values as a table with the layout that assignments one by one would give. */
static Table *make_array(lua_State *L, size_t first) {
    const TValue *v = (const TValue *)(values.data + first);
    int n = (int)((values.len - first) / sizeof(TValue)), holes = 0;
    for (int i = 0; i < n; i++) holes |= ttisnil(&v[i]);
    if (n == 0) return luaH_new(L, 0, 0);
    Table *t;
    if (!holes) {
        t = luaH_new(L, array_part_size(n), 0);
        memcpy(t->array, v, (size_t)n * sizeof(TValue));
    } else {
        t = luaH_new(L, 0, 0);
        for (int i = 0; i < n; i++) setobj2t(L, luaH_setnum(L, t, i + 1), &v[i]);
    }
    values.len = first;
    return t;
}

/* Reads one value with all that is in it. An explicit stack: input may nest thousands deep. */
static void read_whole(Input *in, TValue *out) {
    lua_State *L = in->L;
    open_tables.len = values.len = 0;
    for (;;) {
        int complete = read_value(in, out);
        for (;;) {
            if (complete) {
                /* the value goes into the innermost table, or is the result */
                if (open_tables.len == 0) return;
                Open *o = scratch_top(&open_tables, Open);
                if (o->map == NULL) {
                    *scratch_push(L, &values, TValue) = *out;
                    o->left--;
                } else if (!o->has_key) {
                    o->key = *out;
                    o->has_key = 1;
                    in->used++;
                } else {
                    TValue *place = luaH_set(L, o->map, &o->key); /* an error for nil and NaN */
                    setobj2t(L, place, out);
                    o->has_key = 0;
                    o->left--;
                    in->used--;
                }
            }
            Open *o = scratch_top(&open_tables, Open);
            if (o->left > 0) break;
            if (o->map == NULL) {
                sethvalue(L, out, make_array(L, o->first));
                in->used -= 2;
            } else {
                sethvalue(L, out, o->map);
                in->used--;
            }
            scratch_pop(&open_tables, Open);
            complete = 1;
        }
    }
}

/* limit and offset 0: everything, without an offset among the results. They have 64 bits; messages show the low 32. */
static int unpack_some(lua_State *L, int64_t limit, int64_t offset) {
    size_t length;
    int all = limit == 0 && offset == 0, n;
    const char *text = luaL_checklstring(L, 1, &length);
    if (offset < 0 || limit < 0)
        return luaL_error(L, "Invalid request to unpack with offset of %d and limit of %d.", (int)offset, (int)length);
    if ((uint64_t)offset > length)
        return luaL_error(L, "Start offset %d greater than input length %d.", (int)offset, (int)length);
    if (all) limit = INT_MAX;
    Input in = {L, (const unsigned char *)text + offset, length - (size_t)offset, 0};
    for (n = 0; in.left > 0 && n < limit; n++) {
        TValue value;
        in.used = lua_gettop(L);
        read_whole(&in, &value);
        luaL_checkstack(L, 1, "too many return values at once; use unpack_one or unpack_limit instead.");
        setobj2s(L, L->top, &value);
        L->top++;
        luaC_checkGC(L);
    }
    if (all) return n;
    luaL_checkstack(L, 1, "in function mp_unpack_full");
    lua_pushnumber(L, in.left == 0 ? -1 : (lua_Number)(length - in.left));
    lua_insert(L, 2);
    return n + 1;
}

/* An integer argument as 64-bit systems convert it. */
static int64_t integer_argument(lua_State *L, int index) {
    return guest_d2ll(luaL_checknumber(L, index));
}

static int cmsgpack_unpack(lua_State *L) {
    return unpack_some(L, 0, 0);
}

static int cmsgpack_unpack_one(lua_State *L) {
    int64_t offset = lua_isnoneornil(L, 2) ? 0 : integer_argument(L, 2);
    if (lua_gettop(L) > 1) lua_settop(L, 1); /* only text; the offset is inserted behind it */
    return unpack_some(L, 1, offset);
}

static int cmsgpack_unpack_limit(lua_State *L) {
    int64_t limit = integer_argument(L, 2), offset = lua_isnoneornil(L, 3) ? 0 : integer_argument(L, 3);
    lua_settop(L, 1);
    return unpack_some(L, limit, offset);
}

static const luaL_Reg functions[] = {
    {"pack", cmsgpack_pack},
    {"unpack", cmsgpack_unpack},
    {"unpack_one", cmsgpack_unpack_one},
    {"unpack_limit", cmsgpack_unpack_limit},
    {NULL, NULL},
};

int luaopen_cmsgpack(lua_State *L) {
    luaL_register(L, "cmsgpack", functions);
    lua_pushliteral(L, "cmsgpack");
    lua_setfield(L, -2, "_NAME");
    lua_pushliteral(L, "lua-cmsgpack 0.4.0");
    lua_setfield(L, -2, "_VERSION");
    lua_pushliteral(L, "Copyright (C) 2012, Salvatore Sanfilippo");
    lua_setfield(L, -2, "_COPYRIGHT");
    lua_pushliteral(L, "MessagePack C implementation for Lua");
    lua_setfield(L, -2, "_DESCRIPTION");
    return 1;
}
