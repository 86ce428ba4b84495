/* RESP -> Lua for redis.call, Lua -> RESP for the result of a script. Both use Lua's tables directly: raw access, no metamethods,
   nothing pushed that is not kept. */
#include <stdio.h>
#include <string.h>

#include "guest.h"
#include "lauxlib.h"
#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "lstring.h"
#include "ltable.h"

char *reply_static; /* on the heap, behind what every run writes */

/* The field names of typed replies, interned once and never collected. */
enum { ERR, OK, DOUBLE, MAP, SET, BIG_NUMBER, VERBATIM, FORMAT, STRING, NAMES };
static TString *names[NAMES];

void reply_init(lua_State *L) {
    static const char *const texts[NAMES] = {"err", "ok", "double", "map", "set", "big_number", "verbatim_string", "format", "string"};
    reply_static = guest_realloc(NULL, 0, REPLY_STATIC);
    if (!reply_static) __builtin_trap();
    for (int i = 0; i < NAMES; i++) {
        names[i] = luaS_new(L, texts[i]);
        luaS_fix(names[i]);
    }
}

/* ---- RESP -> Lua ---- */

static const char *read_integer(const char *p, long long *value) {
    int negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    unsigned long long n = 0;
    while (*p != '\r') n = n * 10 + (unsigned)(*p++ - '0');
    *value = (long long)(negative ? 0 - n : n);
    return p + 2;
}

/* The end of a line, at its CR. */
static const char *line_end(const char *p) {
    while (*p != '\r') p++;
    return p;
}

/* Replaces the value on top of the stack by a table that holds it under one name. */
static void wrap(lua_State *L, int name) {
    lua_createtable(L, 0, 1);
    Table *t = hvalue(L->top - 1);
    setobj2t(L, luaH_setstr(L, t, names[name]), L->top - 2);
    luaC_barriert(L, t, L->top - 2);
    setobjs2s(L, L->top - 2, L->top - 1);
    L->top--;
}

static const char *skip(const char *p) {
    long long n;
    char kind = *p++;
    if (kind != '$' && kind != '=' && kind != '*' && kind != '%' && kind != '~' && kind != '>' && kind != '|') return line_end(p) + 2;
    p = read_integer(p, &n);
    if (n < 0) return p;
    if (kind == '$' || kind == '=') return p + n + 2;
    for (long long i = kind == '%' || kind == '|' ? 2 * n : n; i > 0; i--) p = skip(p);
    return kind == '|' ? skip(p) : p;
}

static const char *push_error(lua_State *L, const char *p) {
    const char *end = line_end(p);
    redis_push_error(L, p, (size_t)(end - p));
    lua_pushboolean(L, 1); /* the command's error is already counted */
    lua_setfield(L, -2, "ignore_error_stats_update");
    return end + 2;
}

static const char *push_aggregate(lua_State *L, char kind, const char *p, long long n, int resp3) {
    lua_checkstack(L, 6);
    if (kind == '*') {
        lua_createtable(L, (int)n, 0);
        for (int i = 1; i <= n; i++) {
            p = reply_push(L, p, resp3);
            lua_rawseti(L, -2, i);
        }
        return p;
    }
    lua_createtable(L, 0, (int)n);
    for (long long i = 0; i < n; i++) {
        p = reply_push(L, p, resp3);
        if (kind == '%') p = reply_push(L, p, resp3);
        else lua_pushboolean(L, 1);
        if (lua_isnil(L, -2)) lua_pop(L, 2); /* nil cannot be a key */
        else lua_rawset(L, -3);
    }
    wrap(L, kind == '%' ? MAP : SET);
    return p;
}

const char *reply_push(lua_State *L, const char *p, int resp3) {
    long long n;
    const char *end;
    char kind = *p;
    switch (kind) {
    case ':':
        p = read_integer(p + 1, &n);
        lua_pushnumber(L, (lua_Number)n);
        return p;
    case '$':
        p = read_integer(p + 1, &n);
        if (n < 0) {
            lua_pushboolean(L, 0);
            return p;
        }
        lua_pushlstring(L, p, (size_t)n);
        return p + n + 2;
    case '+':
        end = line_end(p + 1);
        lua_pushlstring(L, p + 1, (size_t)(end - p - 1));
        wrap(L, OK);
        return end + 2;
    case '-':
        return push_error(L, p);
    case '*':
    case '%':
    case '~':
        p = read_integer(p + 1, &n);
        if (n < 0) {
            lua_pushboolean(L, 0);
            return p;
        }
        return push_aggregate(L, kind, p, n, resp3);
    case '_':
        lua_pushnil(L);
        return p + 3;
    case '#':
        lua_pushboolean(L, p[1] == 't');
        return p + 4;
    case ',':
        lua_pushnumber(L, guest_strtod(p + 1, (char **)&end));
        wrap(L, DOUBLE);
        return line_end(p) + 2;
    case '(':
        end = line_end(p + 1);
        lua_pushlstring(L, p + 1, (size_t)(end - p - 1));
        wrap(L, BIG_NUMBER);
        return end + 2;
    case '=':
        p = read_integer(p + 1, &n);
        lua_createtable(L, 0, 2);
        lua_pushlstring(L, p + 4, (size_t)n - 4);
        lua_setfield(L, -2, "string");
        lua_pushlstring(L, p, 3);
        lua_setfield(L, -2, "format");
        wrap(L, VERBATIM);
        return p + n + 2;
    case '|': /* attributes are dropped, as Redis does */
        p++;
        p = read_integer(p, &n);
        for (n *= 2; n > 0; n--) p = skip(p);
        return reply_push(L, p, resp3);
    default:
        __builtin_trap();
    }
}

/* ---- Lua -> RESP ---- */

static void grow(Buffer *out, size_t more) {
    size_t cap = out->cap;
    while (cap - out->len < more) {
        if (cap > 0x40000000u) __builtin_trap();
        cap *= 2;
    }
    char *data;
    if (out->data == reply_static) {
        data = guest_realloc(NULL, 0, cap);
        if (data) memcpy(data, out->data, out->len);
    } else {
        data = guest_realloc(out->data, out->cap, cap);
    }
    if (!data) __builtin_trap();
    out->data = data;
    out->cap = (uint32_t)cap;
}

void buffer_add(Buffer *out, const char *data, size_t len) {
    if (out->cap - out->len < len) grow(out, len);
    memcpy(out->data + out->len, data, len);
    out->len += (uint32_t)len;
}

void buffer_add_line(Buffer *out, const char *text, int trim) {
    size_t len = strlen(text);
    if (trim) {
        while (len && (text[len - 1] == '\r' || text[len - 1] == '\n')) len--;
    }
    buffer_add(out, text, len);
    for (char *p = out->data + out->len - len; p < out->data + out->len; p++) {
        if (*p == '\r' || *p == '\n') *p = ' ';
    }
}

#define ADD(out, literal) buffer_add(out, literal, sizeof(literal) - 1)

/* A kind, a number and CRLF: ":5\r\n", "$3\r\n", "*2\r\n". */
static void add_head(Buffer *out, char kind, long long n) {
    if (out->cap - out->len < 24) grow(out, 24);
    char *p = out->data + out->len;
    *p = kind;
    int len = guest_integer_text(p + 1, n) + 1;
    p[len] = '\r';
    p[len + 1] = '\n';
    out->len += (uint32_t)len + 2;
}

static void add_bulk(Buffer *out, const char *data, size_t len) {
    add_head(out, '$', (long long)len);
    buffer_add(out, data, len);
    ADD(out, "\r\n");
}

static int add_value(Buffer *out, const TValue *v, int resp3, int depth);

/* 1 if the table has a typed form and it was written, 0 if not, -1 if it nests too deeply. */
static int add_typed(Buffer *out, Table *t, int resp3, int depth) {
    char number[32];
    const TValue *v = luaH_getstr(t, names[ERR]);
    if (ttisstring(v)) {
        ADD(out, "-");
        buffer_add_line(out, svalue(v), 1);
        ADD(out, "\r\n");
        return 1;
    }
    v = luaH_getstr(t, names[OK]);
    if (ttisstring(v)) {
        ADD(out, "+");
        buffer_add_line(out, svalue(v), 0);
        ADD(out, "\r\n");
        return 1;
    }
    v = luaH_getstr(t, names[DOUBLE]);
    if (ttisnumber(v)) {
        ADD(out, ",");
        buffer_add(out, number, (size_t)guest_number_text(number, nvalue(v), 17));
        ADD(out, "\r\n");
        return 1;
    }
    v = luaH_getstr(t, names[BIG_NUMBER]);
    if (ttisstring(v)) {
        ADD(out, "(");
        buffer_add_line(out, svalue(v), 0);
        ADD(out, "\r\n");
        return 1;
    }
    v = luaH_getstr(t, names[VERBATIM]);
    if (ttistable(v)) {
        const TValue *format = luaH_getstr(hvalue(v), names[FORMAT]), *text = luaH_getstr(hvalue(v), names[STRING]);
        if (ttisstring(format) && ttisstring(text)) {
            char type[4] = "   ";
            memcpy(type, svalue(format), strnlen(svalue(format), 3));
            type[3] = ':';
            add_head(out, '=', (long long)tsvalue(text)->len + 4);
            buffer_add(out, type, 4);
            buffer_add(out, svalue(text), tsvalue(text)->len);
            ADD(out, "\r\n");
            return 1;
        }
    }
    v = luaH_getstr(t, names[MAP]);
    int map = ttistable(v);
    if (!map) v = luaH_getstr(t, names[SET]);
    if (ttistable(v)) {
        Table *inner = hvalue(v);
        long long n = 0;
        int slots = inner->sizearray + sizenode(inner);
        /* two walks, in the order of next(): count, then write */
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < slots; i++) {
                TValue index;
                const TValue *key, *value;
                if (i < inner->sizearray) {
                    setnvalue(&index, i + 1);
                    key = &index;
                    value = &inner->array[i];
                } else {
                    Node *node = gnode(inner, i - inner->sizearray);
                    key = key2tval(node);
                    value = gval(node);
                }
                if (ttisnil(value)) continue;
                if (pass == 0) n++;
                else if (!add_value(out, key, resp3, depth) || (map && !add_value(out, value, resp3, depth))) return -1;
            }
            if (pass == 0) add_head(out, map ? '%' : '~', n);
        }
        return 1;
    }
    return 0;
}

/* 0 if the value nests too deeply. */
static int add_value(Buffer *out, const TValue *v, int resp3, int depth) {
    switch (ttype(v)) {
    case LUA_TSTRING:
        add_bulk(out, svalue(v), tsvalue(v)->len);
        return 1;
    case LUA_TNUMBER:
        add_head(out, ':', guest_d2ll(nvalue(v)));
        return 1;
    case LUA_TBOOLEAN:
        if (resp3) buffer_add(out, bvalue(v) ? "#t\r\n" : "#f\r\n", 4);
        else if (bvalue(v)) ADD(out, ":1\r\n");
        else ADD(out, "_\r\n");
        return 1;
    case LUA_TTABLE: {
        if (depth >= MAX_REPLY_DEPTH) return 0;
        Table *t = hvalue(v);
        int typed = add_typed(out, t, resp3, depth + 1);
        if (typed) return typed > 0;
        int n = 0; /* an array ends at its first nil */
        while (!ttisnil(luaH_getnum(t, n + 1))) n++;
        add_head(out, '*', n);
        for (int i = 1; i <= n; i++) {
            if (!add_value(out, luaH_getnum(t, i), resp3, depth + 1)) return 0;
        }
        return 1;
    }
    default:
        ADD(out, "_\r\n");
        return 1;
    }
}

void reply_write(Buffer *out, lua_State *L, int resp3) {
    uint32_t start = out->len;
    if (!add_value(out, L->top - 1, resp3, 0)) {
        out->len = start;
        ADD(out, "-ERR reached lua stack limit\r\n");
    }
}
