/* Table fields read and written without metamethods: what nearly every access is; and the steps of ipairs. Included by Lua's
   lvm.c alone, whose functions remain for all other cases. */
#ifndef GUEST_FIELD_H
#define GUEST_FIELD_H

#include "ltable.h"

/* Where the value under `key` is in the hash part, or the nil that is nowhere. */
static const TValue *hashed_number(const Table *h, lua_Number key) {
    const Node *n = hashnum(h, key);
    do {
        if (ttisnumber(gkey(n)) && nvalue(gkey(n)) == key) return gval(n);
        n = gnext(n);
    } while (n);
    return luaO_nilobject;
}

/* The value under `key`, or nil if it must be looked for in earnest. */
static inline const TValue *present_field(const TValue *t, const TValue *key) {
    if (!ttistable(t)) return luaO_nilobject;
    Table *h = hvalue(t);
    if (ttisstring(key)) {
        TString *name = rawtsvalue(key);
        Node *n = gnode(h, lmod(name->tsv.hash, sizenode(h)));
        do {
            if (ttisstring(gkey(n)) && rawtsvalue(gkey(n)) == name) return gval(n);
            n = gnext(n);
        } while (n);
    } else if (ttisnumber(key)) {
        lua_Number wanted = nvalue(key);
        int at = guest_same_int(wanted);
        if (at == wanted) {
            if ((unsigned)at - 1 < (unsigned)h->sizearray) return &h->array[at - 1];
            return hashed_number(h, wanted);
        }
    }
    return luaO_nilobject;
}

/* A new place for the value under `key`, where `found` was found instead: for a text or an integer in a table without a metatable. */
static TValue *new_field(lua_State *L, const TValue *t, const TValue *key, const TValue *found) {
    if (!ttistable(t) || hvalue(t)->metatable || isreadonly(hvalue(t))) return NULL;
    if (!ttisstring(key) && !(ttisnumber(key) && guest_same_int(nvalue(key)) == nvalue(key))) return NULL;
    hvalue(t)->flags = 0;
    return found == luaO_nilobject ? newkey(L, hvalue(t), key) : (TValue *)found;
}

#define GETFIELD(t, key, val)                                  \
    {                                                          \
        const TValue *in = (t), *name = (key);                 \
        const TValue *found = present_field(in, name);         \
        if (!ttisnil(found)) {                                 \
            setobj2s(L, val, found);                           \
        } else {                                               \
            Protect(luaV_gettable(L, in, (TValue *)name, val)); \
        }                                                      \
    }

#define SETFIELD(t, key, val)                                       \
    {                                                               \
        TValue *in = (t), *name = (key), *new = (val);              \
        TValue *found = (TValue *)present_field(in, name);          \
        if (!ttisnil(found) && !isreadonly(hvalue(in))) {           \
            setobj2t(L, found, new);                                \
            luaC_barriert(L, hvalue(in), new);                      \
        } else {                                                    \
            L->savedpc = pc;                                        \
            found = new_field(L, in, name, found);                  \
            if (found) {                                            \
                setobj2t(L, found, new);                            \
                luaC_barriert(L, hvalue(in), new);                  \
            } else {                                                \
                Protect(luaV_settable(L, in, name, new));           \
            }                                                       \
        }                                                           \
    }

/* lbaselib.c's, whose work this does. */
static int ipairsaux(lua_State *L);

/* Whether the loop at `ra` is one of ipairs over a table: then its next step is done, and the first of its `results` is nil at the end. */
static inline int ipairs_step(StkId ra, int results) {
    if (!ttisfunction(ra) || !clvalue(ra)->c.isC || clvalue(ra)->c.f != ipairsaux) return 0;
    if (!ttistable(ra + 1) || !ttisnumber(ra + 2)) return 0;
    lua_Number before = nvalue(ra + 2);
    if (!(before >= 0 && before < MAX_INT)) return 0;
    Table *t = hvalue(ra + 1);
    int at = (int)before + 1;
    const TValue *value = at <= t->sizearray ? &t->array[at - 1] : luaH_getnum(t, at);
    StkId first = ra + 3;
    if (ttisnil(value)) {
        setnilvalue(first);
        return 1;
    }
    setnvalue(first, at);
    for (int extra = 2; extra < results; extra++) setnilvalue(first + extra);
    if (results > 1) setobj2s(L, first + 1, value);
    return 1;
}

#endif
