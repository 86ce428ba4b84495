/* Equality of byte strings of one length. Strings that share a hash often differ only near their end, where Lua's
   hash skips most bytes: so the end is looked at first. Included by Lua's lstring.c. */
#ifndef GUEST_EQUAL_H
#define GUEST_EQUAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t eight_bytes(const char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline int same_bytes(const char *a, const char *b, size_t length) {
    if (length < 8) {
        while (length && *a == *b) a++, b++, length--;
        return length == 0;
    }
    if (eight_bytes(a + length - 8) != eight_bytes(b + length - 8)) return 0;
    for (size_t at = 0; at + 8 < length; at += 8) {
        if (eight_bytes(a + at) != eight_bytes(b + at)) return 0;
    }
    return 1;
}

#endif
