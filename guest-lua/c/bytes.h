/* Growing scratch memory of cjson, cmsgpack and struct.
 *
 * Each Scratch is a static variable that keeps its block from call to call, so nothing is lost when a Lua error leaves the C function in
 * the middle. That is safe because (1) an instance has one lua_State, and its whole memory is rewound after a run, statics included, and
 * (2) no user of a Scratch lets Lua code or the collector run before it is done with it: they reach into tables directly and make objects
 * with the luaS_/luaH_ functions, which never collect. The block comes from luaM_, so it counts as memory of the script. */
#ifndef BYTES_H
#define BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lua.h"

#include "lmem.h"
#include "lobject.h"

#define BYTES_FIRST 512
#define BYTES_MOST 0x7fffff00u /* a size that 32 bits hold and that does not wrap when a header is added */

typedef struct {
    char *data;
    size_t len, cap;
} Scratch;

/* Out of line: makes room for more than `more` bytes behind `len`. */
static __attribute__((noinline, unused)) void scratch_grow(lua_State *L, Scratch *s, size_t more) {
    if (more >= BYTES_MOST - s->len) luaM_toobig(L);
    size_t need = s->len + more + 1, cap = s->cap < BYTES_FIRST ? BYTES_FIRST : s->cap;
    while (cap < need) cap = cap > BYTES_MOST / 2 ? BYTES_MOST : cap * 2;
    s->data = luaM_realloc_(L, s->data, s->cap, cap); /* throws before anything is changed */
    s->cap = cap;
}

/* Room for `more` bytes, never NULL; the caller advances `len` by what it used. */
static inline char *scratch_room(lua_State *L, Scratch *s, size_t more) {
    if (s->cap - s->len <= more) scratch_grow(L, s, more);
    return s->data + s->len;
}

static inline void scratch_byte(lua_State *L, Scratch *s, int byte) {
    *scratch_room(L, s, 1) = (char)byte;
    s->len++;
}

static inline void scratch_add(lua_State *L, Scratch *s, const void *data, size_t n) {
    memcpy(scratch_room(L, s, n), data, n);
    s->len += n;
}

/* Stacks of records and values inside a Scratch; `type` must need no more than 8-byte alignment. */
#define scratch_push(L, s, type) ((type *)scratch_push_(L, s, sizeof(type)))
#define scratch_top(s, type) ((type *)((s)->data + (s)->len) - 1)
#define scratch_pop(s, type) ((s)->len -= sizeof(type))

static inline void *scratch_push_(lua_State *L, Scratch *s, size_t size) {
    char *place = scratch_room(L, s, size);
    s->len += size;
    return place;
}

/* Eight bytes at once. The tests are nonzero if some byte is zero, equals `byte`, or is below `limit` (at most 128). */
static inline uint64_t load8(const void *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

#define EVERY_BYTE UINT64_C(0x0101010101010101)

static inline uint64_t has_below(uint64_t x, unsigned limit) {
    return (x - EVERY_BYTE * limit) & ~x & EVERY_BYTE * 128;
}

static inline uint64_t has_zero(uint64_t x) {
    return has_below(x, 1);
}

static inline uint64_t has_byte(uint64_t x, unsigned byte) {
    return has_zero(x ^ EVERY_BYTE * byte);
}

/* The size that an array part has after n assignments 1, 2, ... n; it decides what `#` says once there are holes. */
static inline int array_part_size(int n) {
    int size = 1;
    if (n == 0) return 0;
    while (size < n) size *= 2;
    return size;
}

#endif
