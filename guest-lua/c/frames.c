/* Tells the host before a call which Lua functions lead to it, in which line each of them is, and what its local variables hold.
   All of it is read where it lies. Nothing is allocated, called or raised, so the script runs as it does without that. */
#include <string.h>

#include "guest.h"
#include "ldebug.h"
#include "lobject.h"
#include "lstate.h"
#include "ltable.h"
#include "number.h"

int frames_wanted;

/* Replies come to the same place later. Room is left for the ends of nested tables and for the end of all. */
#define END_SIZE (1 + sizeof(uint32_t))
#define MOST (REPLY_STATIC - (FRAMES_MAX_DEPTH + 1) * END_SIZE - 1)

typedef struct {
    char *data;
    uint32_t len;
    int full; /* something did not fit: nothing is added but ends */
} Description;

static void put(Description *out, const void *bytes, size_t len) {
    if (out->len + len > MOST) out->full = 1;
    if (out->full) return;
    memcpy(out->data + out->len, bytes, len);
    out->len += (uint32_t)len;
}

static void put_tag(Description *out, char tag) { put(out, &tag, 1); }

static void put_word(Description *out, uint32_t word) { put(out, &word, sizeof word); }

/* The first bytes of a text. */
static void put_text(Description *out, const char *text, size_t len) {
    if (len > FRAMES_MAX_TEXT) len = FRAMES_MAX_TEXT;
    put_word(out, (uint32_t)len);
    put(out, text, len);
}

static int put_value(Description *out, const TValue *value, unsigned depth);

/* The end has its room whatever came before it. */
static void put_end(Description *out, uint32_t count) {
    out->data[out->len] = FRAMES_END;
    memcpy(out->data + out->len + 1, &count, sizeof count);
    out->len += END_SIZE;
}

/* The first entries, and how many there are. Tables with much room are not looked through. */
static int put_table(Description *out, const Table *t, unsigned depth) {
    put_tag(out, FRAMES_TABLE);
    if (out->full) return 0;
    unsigned array = (unsigned)t->sizearray, slots = array + (unsigned)sizenode(t), count = 0;
    for (unsigned slot = 0; slot < slots && slot < FRAMES_MAX_SLOTS; slot++) {
        const Node *node = slot < array ? NULL : gnode(t, slot - array);
        const TValue *value = node ? gval(node) : &t->array[slot];
        if (ttisnil(value) || ++count > FRAMES_MAX_ENTRIES || depth == 0 || out->full) continue;
        uint32_t before = out->len;
        TValue index;
        setnvalue(&index, slot + 1);
        if (!put_value(out, node ? key2tval(node) : &index, 0) || !put_value(out, value, depth - 1)) out->len = before;
    }
    put_end(out, slots > FRAMES_MAX_SLOTS ? FRAMES_UNCOUNTED : count);
    return 1;
}

/* Whether it fits; a table does if its beginning fits. Tables have entries down to this depth. */
static int put_value(Description *out, const TValue *value, unsigned depth) {
    char number[32];
    switch (ttype(value)) {
        case LUA_TNIL: put_tag(out, FRAMES_NIL); break;
        case LUA_TBOOLEAN: put_tag(out, bvalue(value) ? FRAMES_TRUE : FRAMES_FALSE); break;
        case LUA_TNUMBER:
            put_tag(out, FRAMES_NUMBER);
            put_text(out, number, (size_t)guest_number_text(number, nvalue(value), 14));
            break;
        case LUA_TSTRING:
            put_tag(out, FRAMES_STRING);
            put_word(out, (uint32_t)tsvalue(value)->len);
            put_text(out, svalue(value), tsvalue(value)->len);
            break;
        case LUA_TTABLE: return put_table(out, hvalue(value), depth);
        case LUA_TFUNCTION: put_tag(out, FRAMES_FUNCTION); break;
        case LUA_TTHREAD: put_tag(out, FRAMES_THREAD); break;
        default: put_tag(out, FRAMES_USERDATA);
    }
    return !out->full;
}

/* The newest of the variables that are in scope, without those that a later one of the same name hides. */
static void put_variables(Description *out, const Proto *function, int pc, const TValue *base, int *omitted) {
    const TString *names[LUAI_MAXVARS];
    int count = 0;
    for (int i = 0; i < function->sizelocvars && function->locvars[i].startpc <= pc && count < LUAI_MAXVARS; i++) {
        if (pc < function->locvars[i].endpc) names[count++] = function->locvars[i].varname;
    }
    int first = count > FRAMES_MAX_VARIABLES ? count - FRAMES_MAX_VARIABLES : 0;
    if (first) *omitted = 1;
    for (int i = first; i < count && !out->full; i++) {
        int hidden = *getstr(names[i]) == '(';
        for (int later = i + 1; later < count && !hidden; later++) hidden = names[later] == names[i];
        if (hidden) continue;
        uint32_t before = out->len;
        put_tag(out, FRAMES_VARIABLE);
        put_text(out, getstr(names[i]), names[i]->tsv.len);
        if (!put_value(out, base + i, FRAMES_MAX_DEPTH)) out->len = before;
    }
}

void frames_tell(lua_State *L) {
    /* The number of a double takes much of the stack. */
    if (guest_stack_pointer() < GUEST_STACK_LOW) return;
    Description out = {reply_static, 0, 0};
    int told = 0, omitted = 0;
    for (const CallInfo *ci = L->ci; ci > L->base_ci && !out.full; ci--) {
        if (!isLua(ci)) continue;
        if (told++ == FRAMES_MAX_FUNCTIONS) {
            omitted = 1;
            break;
        }
        const Proto *function = ci_func(ci)->l.p;
        int pc = pcRel(ci->savedpc, function);
        int is_own = strcmp(getstr(function->source), "@user_script") == 0;
        lua_Debug about = {.i_ci = (int)(ci - L->base_ci)};
        lua_getinfo(L, "n", &about);
        uint32_t before = out.len;
        put_tag(&out, FRAMES_FRAME);
        put_word(&out, is_own ? (uint32_t)getline(function, pc) : 0);
        put_word(&out, (uint32_t)function->linedefined);
        put_text(&out, about.name ? about.name : "", about.name ? strlen(about.name) : 0);
        if (out.full) out.len = before;
        else put_variables(&out, function, pc, ci->base, &omitted);
    }
    if (out.full || omitted) out.data[out.len++] = FRAMES_OMITTED;
    frames_wanted = host_frames(out.data, out.len);
}
