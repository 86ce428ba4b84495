/* Number conversions shared by Lua (through luaconf.h) and our C. */
#ifndef NUMBER_H
#define NUMBER_H

#include "abi.h"

/* Out of range and NaN give the smallest integer, as cvttsd2si does on x86; C leaves it open and Wasm would trap or saturate. */
static inline long long guest_d2ll(double d) {
    return d >= -9223372036854775808.0 && d < 9223372036854775808.0 ? (long long)d : -9223372036854775807LL - 1;
}

static inline int guest_d2i(double d) {
    return d > -2147483649.0 && d < 2147483648.0 ? (int)d : -2147483647 - 1;
}

/* The integer that equals the number, if one does. Adding this constant leaves it in the lowest bits. */
static inline int guest_same_int(double d) {
    double sum = d + 6755399441055744.0;
    long long bits;
    __builtin_memcpy(&bits, &sum, sizeof bits);
    return (int)bits;
}

/* Negative numbers wrap, as compilers for x86-64 have it. */
static inline unsigned long long guest_d2ull(double d) {
    if (!(d >= 9223372036854775808.0)) return (unsigned long long)guest_d2ll(d);
    return d < 18446744073709551616.0 ? (unsigned long long)d : 0;
}

/* Text of a number as printf's "%.<precision>g" gives it, with a fast way for integers. Ends with NUL; `buffer` has 32 bytes. */
int guest_any_number_text(char *buffer, double d, int precision);

/* The same, faster for what most numbers in calls are. */
static inline int guest_number_text(char *buffer, double d, int precision) {
    int small = guest_d2i(d);
    if (small < 0 || small >= 100 || small != d || (small == 0 && __builtin_signbit(d))) return guest_any_number_text(buffer, d, precision);
    int length = 0;
    if (small >= 10) buffer[length++] = (char)('0' + small / 10);
    buffer[length++] = (char)('0' + small % 10);
    buffer[length] = '\0';
    return length;
}

/* Decimal digits of an integer; returns their number. No NUL. */
int guest_integer_text(char *buffer, long long value);

/* strtod, fast for short decimals. */
double guest_strtod(const char *text, char **end);

/* strtoul as 64-bit systems have it: digits beyond the range are read, and the largest number is returned. */
unsigned long long guest_strtoull(const char *text, char **end, int base);

/* The C stack grows down from STACK_SIZE to 0, so that an overflow traps instead of touching data. printf of a double alone takes 8 KB
   of it. Below LOW, deeper calls are errors; error handlers may still use what lies between LOW and RESERVE. */
#define GUEST_STACK_LOW 20480u
#define GUEST_STACK_RESERVE 12288u

/* Nested tries of one pattern; Redis 7.0 has no limit and overflows its stack. */
#define GUEST_MATCH_DEPTH 1200

static inline unsigned guest_stack_pointer(void) {
    unsigned sp;
    __asm__("global.get __stack_pointer\n\tlocal.set %0" : "=r"(sp));
    return sp;
}

#endif
