/* Library `cjson`: its table, its settings, and encode. cjson_decode.c has decode. */
#include <limits.h>
#include <math.h>
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
#include "cjson.h"
#include "decimal.h"
#include "number.h"

/* A table that is being written. */
typedef struct {
    Table *t;
    int next;   /* array: elements done; object: entries looked at */
    int length; /* of an array; 0: an object */
    int empty;  /* object: no comma yet */
} Open;

static Scratch text, open_tables; /* the output; what is still to be closed in it */

/* Per byte: 0 = itself; 'u' = as \u00XX; else the letter behind the backslash. */
static const char escapes[256] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u', /* 00 */
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', /* 10 */
    ['"'] = '"', ['/'] = '/', ['\\'] = '\\', [127] = 'u',
};

/* ---- encode ---- */

static void refuse(lua_State *L, int type, const char *reason) {
    luaL_error(L, "Cannot serialise %s: %s", lua_typename(L, type), reason);
}

static char *put_escape(char *p, unsigned char c) {
    static const char digits[] = "0123456789abcdef";
    char letter = escapes[c];
    *p++ = '\\';
    *p++ = letter;
    if (letter == 'u') {
        *p++ = '0';
        *p++ = '0';
        *p++ = digits[c >> 4];
        *p++ = digits[c & 15];
    }
    return p;
}

/* Escapes at most this many bytes at a time: every byte may take six, and that is reserved. */
#define STRETCH 256

static void put_string(lua_State *L, const TString *string) {
    const unsigned char *s = (const unsigned char *)getstr(string), *end = s + string->tsv.len;
    scratch_byte(L, &text, '"');
    while (s < end) {
        const unsigned char *stop = end - s < STRETCH ? end : s + STRETCH;
        char *p = scratch_room(L, &text, (size_t)(stop - s) * 6), *start = p;
        while (s < stop) {
            while (stop - s >= 8) {
                uint64_t x = load8(s);
                if (has_below(x, 32) | has_byte(x, '"') | has_byte(x, '/') | has_byte(x, '\\') | has_byte(x, 127)) break;
                memcpy(p, &x, 8);
                s += 8;
                p += 8;
            }
            /* up to and with the byte that needs an escape */
            for (int special = 0; s < stop && !special;) {
                unsigned char c = *s++;
                special = escapes[c];
                if (special) p = put_escape(p, c);
                else *p++ = (char)c;
            }
        }
        text.len += (size_t)(p - start);
    }
    scratch_byte(L, &text, '"');
}

static void put_number(lua_State *L, const Settings *settings, double d) {
    if (d - d != 0) { /* NaN or infinite */
        if (settings->encode_invalid == INVALID_OFF) refuse(L, LUA_TNUMBER, "must not be NaN or Inf");
        if (settings->encode_invalid == INVALID_NULL) scratch_add(L, &text, "null", 4);
        else if (d != d) scratch_add(L, &text, "nan", 3);
        else if (d < 0) scratch_add(L, &text, "-inf", 4);
        else scratch_add(L, &text, "inf", 3);
        return;
    }
    char *p = scratch_room(L, &text, DECIMAL_SIZE);
    text.len += (size_t)(decimal_write(p, d, settings->precision) - p);
}

/* One key for array_length: whether it is a positive integer. Keys beyond int wrap, as in the original on x86. */
static int count_key(double k, int *largest, int *items) {
    if (!(k >= 1) || floor(k) != k) return 0;
    if (k > *largest) *largest = guest_d2i(k);
    ++*items;
    return 1;
}

/* Length if the table is to be an array; otherwise 0 or less. */
static int array_length(lua_State *L, const Settings *settings, const Table *t) {
    int largest = 0, items = 0;
    for (int i = 0; i < t->sizearray; i++) {
        if (ttisnil(&t->array[i])) continue;
        largest = i + 1;
        items++;
    }
    for (int i = 0; i < sizenode(t); i++) {
        const Node *node = gnode(t, i);
        if (ttisnil(gval(node))) continue;
        const TValue *key = key2tval(node);
        if (!ttisnumber(key) || !count_key(nvalue(key), &largest, &items)) return 0;
    }
    if (settings->sparse_ratio > 0 && largest > settings->sparse_safe) {
        int most = (int)((unsigned)items * (unsigned)settings->sparse_ratio); /* wraps, as in the original */
        if (largest > most) {
            if (!settings->sparse_convert) refuse(L, LUA_TTABLE, "excessively sparse array");
            return 0;
        }
    }
    return largest;
}

/* Writes the start of a table and remembers it. `slots`: what the recursive original uses of Lua's stack, which limits its depth, too. */
static void open_table(lua_State *L, const Settings *settings, Table *t, int slots) {
    size_t depth = open_tables.len / sizeof(Open) + 1;
    if (depth > (size_t)settings->encode_depth || slots + 3 > LUAI_MAXCSTACK)
        luaL_error(L, "Cannot serialise, excessive nesting (%d)", (int)depth);
    int length = array_length(L, settings, t);
    Open *o = scratch_push(L, &open_tables, Open);
    o->t = t;
    o->next = 0;
    o->length = length > 0 ? length : 0;
    o->empty = 1;
    scratch_byte(L, &text, length > 0 ? '[' : '{');
}

/* The next element of an array; NULL after the last one. */
static const TValue *next_element(lua_State *L, Open *o) {
    if (o->next == o->length) return NULL;
    if (o->next > 0) scratch_byte(L, &text, ',');
    int i = o->next++;
    return i < o->t->sizearray ? &o->t->array[i] : luaH_getnum(o->t, i + 1);
}

static void put_key(lua_State *L, const Settings *settings, Open *o, double number, const TString *string) {
    if (!o->empty) scratch_byte(L, &text, ',');
    o->empty = 0;
    if (string) {
        put_string(L, string);
    } else {
        scratch_byte(L, &text, '"');
        put_number(L, settings, number);
        scratch_byte(L, &text, '"');
    }
    scratch_byte(L, &text, ':');
}

/* Writes the next key of an object and returns its value; NULL after the last one. The order is that of `next`. */
static const TValue *next_entry(lua_State *L, const Settings *settings, Open *o) {
    Table *t = o->t;
    while (o->next < t->sizearray) {
        int i = o->next++;
        if (ttisnil(&t->array[i])) continue;
        put_key(L, settings, o, i + 1, NULL);
        return &t->array[i];
    }
    while (o->next - t->sizearray < sizenode(t)) {
        Node *node = gnode(t, o->next++ - t->sizearray);
        if (ttisnil(gval(node))) continue;
        const TValue *key = key2tval(node);
        if (ttisstring(key)) put_key(L, settings, o, 0, rawtsvalue(key));
        else if (ttisnumber(key)) put_key(L, settings, o, nvalue(key), NULL);
        else refuse(L, ttype(key), "table key must be a number or string");
        return gval(node);
    }
    return NULL;
}

static void put_scalar(lua_State *L, const Settings *settings, const TValue *v) {
    switch (ttype(v)) {
        case LUA_TSTRING: put_string(L, rawtsvalue(v)); break;
        case LUA_TNUMBER: put_number(L, settings, nvalue(v)); break;
        case LUA_TBOOLEAN:
            if (bvalue(v)) scratch_add(L, &text, "true", 4);
            else scratch_add(L, &text, "false", 5);
            break;
        case LUA_TLIGHTUSERDATA:
            if (pvalue(v) != NULL) refuse(L, LUA_TLIGHTUSERDATA, "type not supported"); /* else cjson.null */
            /* fall through */
        case LUA_TNIL: scratch_add(L, &text, "null", 4); break;
        default: refuse(L, ttype(v), "type not supported");
    }
}

int cjson_encode(lua_State *L) {
    const Settings *settings = cjson_settings(L);
    luaL_argcheck(L, lua_gettop(L) == 1, 1, "expected 1 argument");
    text.len = open_tables.len = 0;
    int slots = 1; /* the argument */
    const TValue *v = L->base;
    for (;;) {
        if (ttistable(v)) open_table(L, settings, hvalue(v), slots);
        else put_scalar(L, settings, v);
        if (open_tables.len == 0) break;
        /* v was the last value of the innermost tables when these have nothing more; then they close */
        Open *o = scratch_top(&open_tables, Open);
        if (ttistable(v)) slots += o->length ? 1 : 2;
        for (;;) {
            v = o->length ? next_element(L, o) : next_entry(L, settings, o);
            if (v) break;
            scratch_byte(L, &text, o->length ? ']' : '}');
            slots -= o->length ? 1 : 2;
            scratch_pop(&open_tables, Open);
            if (open_tables.len == 0) break;
            o = scratch_top(&open_tables, Open);
        }
        if (!v) break;
    }
    setsvalue2s(L, L->top, luaS_newlstr(L, text.data, text.len));
    L->top++;
    luaC_checkGC(L);
    return 1;
}

/* ---- settings ---- */

/* Missing arguments become nil, which means: tell, do not change. */
static void settings_arguments(lua_State *L, int most) {
    luaL_argcheck(L, lua_gettop(L) <= most, most + 1, "found too many arguments");
    lua_settop(L, most);
}

static int integer_setting(lua_State *L, int index, int *setting, int least, int most) {
    if (!lua_isnil(L, index)) {
        int value = (int)guest_d2ll(luaL_checknumber(L, index));
        if (value < least || value > most)
            luaL_argerror(L, 1, lua_pushfstring(L, "expected integer between %d and %d", least, most));
        *setting = value;
    }
    lua_pushinteger(L, *setting);
    return 1;
}

/* The first two options are off and on, for which booleans stand, too. */
static int option_setting(lua_State *L, int index, int *setting, const char *const options[]) {
    if (lua_isboolean(L, index)) *setting = lua_toboolean(L, index);
    else if (!lua_isnil(L, index)) *setting = luaL_checkoption(L, index, NULL, options);
    if (*setting <= INVALID_ON) lua_pushboolean(L, *setting);
    else lua_pushstring(L, options[*setting]);
    return 1;
}

static const char *const off_on[] = {"off", "on", NULL};
static const char *const off_on_null[] = {"off", "on", "null", NULL};

static int encode_sparse_array(lua_State *L) {
    Settings *settings = cjson_settings(L);
    settings_arguments(L, 3);
    option_setting(L, 1, &settings->sparse_convert, off_on);
    integer_setting(L, 2, &settings->sparse_ratio, 0, INT_MAX);
    integer_setting(L, 3, &settings->sparse_safe, 0, INT_MAX);
    return 3;
}

static int encode_max_depth(lua_State *L) {
    settings_arguments(L, 1);
    return integer_setting(L, 1, &cjson_settings(L)->encode_depth, 1, INT_MAX);
}

static int decode_max_depth(lua_State *L) {
    settings_arguments(L, 1);
    return integer_setting(L, 1, &cjson_settings(L)->decode_depth, 1, INT_MAX);
}

static int encode_number_precision(lua_State *L) {
    settings_arguments(L, 1);
    return integer_setting(L, 1, &cjson_settings(L)->precision, 1, MOST_DIGITS);
}

static int encode_keep_buffer(lua_State *L) {
    settings_arguments(L, 1);
    return option_setting(L, 1, &cjson_settings(L)->keep_buffer, off_on);
}

static int encode_invalid_numbers(lua_State *L) {
    settings_arguments(L, 1);
    return option_setting(L, 1, &cjson_settings(L)->encode_invalid, off_on_null);
}

static int decode_invalid_numbers(lua_State *L) {
    settings_arguments(L, 1);
    return option_setting(L, 1, &cjson_settings(L)->decode_invalid, off_on);
}

static int cjson_new(lua_State *L);

static const luaL_Reg functions[] = {
    {"encode", cjson_encode},
    {"decode", cjson_decode},
    {"encode_sparse_array", encode_sparse_array},
    {"encode_max_depth", encode_max_depth},
    {"decode_max_depth", decode_max_depth},
    {"encode_number_precision", encode_number_precision},
    {"encode_keep_buffer", encode_keep_buffer},
    {"encode_invalid_numbers", encode_invalid_numbers},
    {"decode_invalid_numbers", decode_invalid_numbers},
    {"new", cjson_new},
    {NULL, NULL},
};

/* A table like `cjson`, with settings of its own. */
static int cjson_new(lua_State *L) {
    static const Settings defaults = {
        .sparse_ratio = 2, .sparse_safe = 10, .encode_depth = 1000, .decode_depth = 1000,
        .decode_invalid = 1, .precision = MOST_DIGITS, .keep_buffer = 1,
    };
    lua_newtable(L);
    Settings *settings = lua_newuserdata(L, sizeof *settings);
    *settings = defaults;
    for (const luaL_Reg *f = functions; f->name; f++) {
        lua_pushvalue(L, -1);
        lua_pushcclosure(L, f->func, 1);
        lua_setfield(L, -3, f->name);
    }
    lua_pop(L, 1);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    lua_pushliteral(L, "cjson");
    lua_setfield(L, -2, "_NAME");
    lua_pushliteral(L, "2.1.0");
    lua_setfield(L, -2, "_VERSION");
    return 1;
}

int luaopen_cjson(lua_State *L) {
    cjson_new(L);
    lua_pushvalue(L, -1);
    lua_setglobal(L, "cjson");
    return 1;
}
