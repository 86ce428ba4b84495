/* cjson.decode: one pass over the text, no recursion (texts may nest as deep as Lua's stack allows), no work for tokens except on errors.
 *
 * The grammar is that of lua-cjson 2.1: JSON, plus numbers as strtod reads them (hex, inf, nan, leading zeros) where
 * decode_invalid_numbers allows it, plus raw control characters in strings. A NUL ends the text. */
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

typedef enum {
    T_OBJ_BEGIN, T_OBJ_END, T_ARR_BEGIN, T_ARR_END, T_COLON, T_COMMA, T_STRING, T_NUMBER, T_BOOLEAN, T_NULL, T_END, T_ERROR
} Token;

static const char *const token_names[] = {
    "T_OBJ_BEGIN", "T_OBJ_END", "T_ARR_BEGIN", "T_ARR_END", "T_COLON", "T_COMMA", "T_STRING", "T_NUMBER", "T_BOOLEAN", "T_NULL", "T_END",
};

/* A table that is being read. An array's elements wait in `values`, an object's entries are in the table. */
typedef struct {
    Table *object; /* NULL: an array */
    TString *key;
    size_t first; /* where its elements begin in `values` */
} Open;

typedef struct {
    lua_State *L;
    const Settings *settings;
    const char *begin, *end;
    const char *bad;     /* where a token went wrong */
    const char *problem; /* and what it was */
} Decoder;

static Scratch unescaped, open_tables, values;

/* Bytes that end a plain stretch of a string. */
static const char string_stops[256] = {[0] = 1, ['"'] = 1, ['\\'] = 1};

static const char *skip_blanks(const char *p) {
    while (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r') p++;
    return p;
}

static const char *bad_token(Decoder *d, const char *where, const char *problem) {
    d->bad = where;
    d->problem = problem;
    return NULL;
}

/* ---- strings ---- */

/* The end of the plain stretch at p. */
static const char *plain_end(const Decoder *d, const char *p) {
    while (d->end - p >= 8) {
        uint64_t x = load8(p);
        if (has_zero(x) | has_byte(x, '"') | has_byte(x, '\\')) break;
        p += 8;
    }
    while (!string_stops[(unsigned char)*p]) p++;
    return p;
}

/* Four hex digits, or -1. Never looks beyond a NUL. */
static int hex4(const char *p) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)p[i], lower = c | 32;
        if (c >= '0' && c <= '9') value = value * 16 + c - '0';
        else if (lower >= 'a' && lower <= 'f') value = value * 16 + lower - 'a' + 10;
        else return -1;
    }
    return value;
}

static size_t put_utf8(char *out, int c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* Reads \uhhhh, or two of them for a surrogate pair; p is at the backslash. NULL if it is wrong. */
static const char *unicode_escape(lua_State *L, const char *p) {
    int c = hex4(p + 2);
    if (c < 0) return NULL;
    p += 6;
    if ((c & 0xf800) == 0xd800) {
        if (c & 0x400) return NULL; /* the second half first */
        if (p[0] != '\\' || p[1] != 'u') return NULL;
        int low = hex4(p + 2);
        if (low < 0 || (low & 0xfc00) != 0xdc00) return NULL;
        c = 0x10000 + ((c & 0x3ff) << 10 | (low & 0x3ff));
        p += 6;
    }
    char *out = scratch_room(L, &unescaped, 4);
    unescaped.len += put_utf8(out, c);
    return p;
}

static int simple_escape(int letter) {
    switch (letter) {
        case '"': case '\\': case '/': return letter;
        case 'b': return '\b';
        case 'f': return '\f';
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        default: return 0;
    }
}

/* Reads a string; p is behind its opening quote. Returns its end, or NULL after bad_token. */
static const char *read_string(Decoder *d, const char *p, TString **out) {
    lua_State *L = d->L;
    const char *start = p;
    p = plain_end(d, p);
    if (*p == '"') {
        *out = luaS_newlstr(L, start, (size_t)(p - start));
        return p + 1;
    }
    unescaped.len = 0;
    for (;;) {
        scratch_add(L, &unescaped, start, (size_t)(p - start));
        if (*p == '"') break;
        if (*p == '\0') return bad_token(d, p, "unexpected end of string");
        if (p[1] == 'u') {
            start = unicode_escape(L, p);
            if (!start) return bad_token(d, p, "invalid unicode escape code");
        } else {
            int c = simple_escape((unsigned char)p[1]);
            if (!c) return bad_token(d, p, "invalid escape code");
            scratch_byte(L, &unescaped, c);
            start = p + 2;
        }
        p = plain_end(d, start);
    }
    *out = luaS_newlstr(L, unescaped.data, unescaped.len);
    return p + 1;
}

/* ---- numbers ---- */

/* Whether the text looks like a number that JSON does not have. What is no number at all is left to decimal_read. */
static int is_extended_number(const char *p) {
    if (*p == '+') return 1;
    if (*p == '-') p++;
    if (*p == '0') return (p[1] | 32) == 'x' || (p[1] >= '0' && p[1] <= '9');
    if ((signed char)*p <= '9') return 0;
    int a = p[0] | 32, b, c;
    if (a != 'i' && a != 'n') return 0;
    b = p[1] | 32;
    c = b == 32 ? 0 : p[2] | 32; /* not beyond a NUL */
    return (a == 'i' && b == 'n' && c == 'f') || (a == 'n' && b == 'a' && c == 'n');
}

/* p is at a digit, a sign or a letter of inf or nan. */
static const char *read_number(Decoder *d, const char *p, double *value) {
    if (!d->settings->decode_invalid && is_extended_number(p)) return bad_token(d, p, "invalid number");
    const char *end = decimal_read(p, value);
    if (end == p) return bad_token(d, p, "invalid number");
    return end;
}

/* ---- errors ---- */

/* What the token at p is (blanks are skipped); only for messages. `bad` tells where it is, or where it is wrong. */
static Token classify(Decoder *d, const char *p) {
    double number;
    TString *string;
    d->bad = p = skip_blanks(p);
    switch (*p) {
        case '{': return T_OBJ_BEGIN;
        case '}': return T_OBJ_END;
        case '[': return T_ARR_BEGIN;
        case ']': return T_ARR_END;
        case ':': return T_COLON;
        case ',': return T_COMMA;
        case '\0': return T_END;
        case '"': return read_string(d, p + 1, &string) ? T_STRING : T_ERROR;
        case 't':
            if (strncmp(p, "true", 4) == 0) return T_BOOLEAN;
            break;
        case 'f':
            if (strncmp(p, "false", 5) == 0) return T_BOOLEAN;
            break;
        case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
            return read_number(d, p, &number) ? T_NUMBER : T_ERROR;
        case 'n':
            if (strncmp(p, "null", 4) == 0) return T_NULL;
            /* fall through */
        case '+': case 'i': case 'I': case 'N':
            if (d->settings->decode_invalid && is_extended_number(p)) return read_number(d, p, &number) ? T_NUMBER : T_ERROR;
            break;
        default: break;
    }
    d->problem = "invalid token";
    return T_ERROR;
}

static void unexpected(Decoder *d, const char *p, const char *expected) {
    Token token = classify(d, p);
    const char *found = token == T_ERROR ? d->problem : token_names[token];
    luaL_error(d->L, "Expected %s but found %s at character %d", expected, found, (int)(d->bad - d->begin) + 1);
}

/* ---- decode ---- */

/* The waiting elements as a table. */
static Table *make_array(lua_State *L, size_t first) {
    size_t n = (values.len - first) / sizeof(TValue);
    Table *t = luaH_new(L, array_part_size((int)n), 0);
    if (n) memcpy(t->array, values.data + first, n * sizeof(TValue));
    values.len = first;
    return t;
}

/* Reads a word or one of the numbers that are words; NULL if it is none. */
static const char *read_word(Decoder *d, const char *p, TValue *out) {
    double number;
    switch (classify(d, p)) {
        case T_BOOLEAN:
            setbvalue(out, *p == 't');
            return p + (*p == 't' ? 4 : 5);
        case T_NULL:
            setpvalue(out, NULL);
            return p + 4;
        case T_NUMBER:
            p = read_number(d, p, &number);
            setnvalue(out, number);
            return p;
        default: return NULL;
    }
}

/* p is behind the bracket. `slots` is what the recursive original has on Lua's stack, which limits its depth, too. */
static void open_table(Decoder *d, const char *p, int is_object, int slots) {
    lua_State *L = d->L;
    size_t depth = open_tables.len / sizeof(Open) + 1;
    if (depth > (size_t)d->settings->decode_depth || slots + (is_object ? 3 : 2) > LUAI_MAXCSTACK)
        luaL_error(L, "Found too many nested data structures (%d) at character %d", (int)depth, (int)(p - d->begin));
    Open *o = scratch_push(L, &open_tables, Open);
    o->first = values.len;
    o->key = NULL;
    o->object = NULL;
    if (is_object) o->object = luaH_new(L, 0, 0);
}

/* Reads `"key":`; returns where the value begins. */
static const char *read_key(Decoder *d, const char *p, Open *o) {
    p = skip_blanks(p);
    const char *end = *p == '"' ? read_string(d, p + 1, &o->key) : NULL;
    if (!end) unexpected(d, p, "object key string");
    p = skip_blanks(end);
    if (*p != ':') unexpected(d, p, "colon");
    return p + 1;
}

/* Reads the value at p with all that is in it. */
static const char *read_value(Decoder *d, const char *p, TValue *out) {
    lua_State *L = d->L;
    int slots = 1; /* the argument */
    Open *o;
    for (;;) {
        TString *string;
        const char *end = NULL;
        double number = 0;
        p = skip_blanks(p);
        switch (*p) {
            case '"':
                end = read_string(d, p + 1, &string);
                if (end) setsvalue(L, out, string);
                break;
            case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
                end = read_number(d, p, &number);
                setnvalue(out, number);
                break;
            case '{':
                open_table(d, p + 1, 1, slots);
                slots += 2;
                p = skip_blanks(p + 1);
                if (*p == '}') goto close;
                p = read_key(d, p, scratch_top(&open_tables, Open));
                continue;
            case '[':
                open_table(d, p + 1, 0, slots);
                slots += 1;
                p = skip_blanks(p + 1);
                if (*p == ']') goto close;
                continue;
            default: end = read_word(d, p, out); break;
        }
        if (!end) unexpected(d, p, "value");
        p = end;

    store: /* the value goes into the innermost table, or is the result */
        if (open_tables.len == 0) return p;
        o = scratch_top(&open_tables, Open);
        p = skip_blanks(p);
        if (o->object) {
            TValue *place = luaH_setstr(L, o->object, o->key);
            setobj2t(L, place, out);
            if (*p == ',') {
                p = read_key(d, p + 1, o);
                continue;
            }
            if (*p != '}') unexpected(d, p, "comma or object end");
        } else {
            *scratch_push(L, &values, TValue) = *out;
            if (*p == ',') {
                p++;
                continue;
            }
            if (*p != ']') unexpected(d, p, "comma or array end");
        }

    close: /* p is at the closing bracket */
        o = scratch_top(&open_tables, Open);
        slots -= o->object ? 2 : 1;
        sethvalue(L, out, o->object ? o->object : make_array(L, o->first));
        scratch_pop(&open_tables, Open);
        p++;
        goto store;
    }
}

int cjson_decode(lua_State *L) {
    size_t length;
    TValue value;
    luaL_argcheck(L, lua_gettop(L) == 1, 1, "expected 1 argument");
    const char *text = luaL_checklstring(L, 1, &length);
    Decoder d = {L, cjson_settings(L), text, text + length, NULL, NULL};
    if (length >= 2 && (d.begin[0] == '\0' || d.begin[1] == '\0'))
        luaL_error(L, "JSON parser does not support UTF-16 or UTF-32");
    open_tables.len = values.len = 0;
    const char *p = skip_blanks(read_value(&d, d.begin, &value));
    if (*p != '\0') unexpected(&d, p, "the end");
    setobj2s(L, L->top, &value);
    L->top++;
    luaC_checkGC(L);
    return 1;
}
