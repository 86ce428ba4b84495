/* Table fields that are there, read and overwritten without metamethods: what nearly every access is; and the steps
   of ipairs. Included by Lua's lvm.c alone, whose functions remain for all other cases. */
#ifndef GUEST_FIELD_H
#define GUEST_FIELD_H

#include "ltable.h"

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
        if (wanted >= 1 && wanted <= h->sizearray) {
            int at = (int)wanted;
            if (at == wanted) return &h->array[at - 1];
        }
    }
    return luaO_nilobject;
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

#define SETFIELD(t, key, val)                                   \
    {                                                           \
        TValue *in = (t), *name = (key), *new = (val);          \
        TValue *found = (TValue *)present_field(in, name);      \
        if (!ttisnil(found) && !isreadonly(hvalue(in))) {       \
            setobj2t(L, found, new);                            \
            luaC_barriert(L, hvalue(in), new);                  \
        } else {                                                \
            Protect(luaV_settable(L, in, name, new));           \
        }                                                       \
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
