/* Table fields that are there, read and overwritten without metamethods: what nearly every access is. Included
   by Lua's lvm.c alone, whose functions remain for all other cases. */
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

#endif
