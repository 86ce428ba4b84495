/* Number <-> text. musl's printf and strtod work in 128-bit software floats: exact, but slow; most numbers are small integers. */
#include "number.h"

#include <stdio.h>
#include <stdlib.h>

int guest_integer_text(char *buffer, long long value) {
    char digits[20];
    int n = 0, length = 0;
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    if (value < 0) buffer[length++] = '-';
    while (rest >> 32) {
        digits[n++] = (char)('0' + rest % 10);
        rest /= 10;
    }
    unsigned small = (unsigned)rest; /* 32-bit division is much cheaper */
    do {
        digits[n++] = (char)('0' + small % 10);
        small /= 10;
    } while (small);
    while (n) buffer[length++] = digits[--n];
    return length;
}

int guest_any_number_text(char *buffer, double d, int precision) {
    double limit = precision == 14 ? 1e14 : 1e17; /* from here on %g writes an exponent */
    if (d > -limit && d < limit) {
        long long whole = (long long)d;
        /* -0 has no integer twin */
        if ((double)whole == d && (whole != 0 || !__builtin_signbit(d))) {
            int length = guest_integer_text(buffer, whole);
            buffer[length] = '\0';
            return length;
        }
    }
    return snprintf(buffer, 32, "%.*g", precision, d);
}

/* Exact when the digits fit in 53 bits and the power of ten is exact in a double (Clinger's fast path). */
double guest_strtod(const char *text, char **end) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *p = text;
    unsigned long long mantissa = 0;
    int digits = 0, fraction = 0, negative = 0;
    if (*p == '-') {
        negative = 1;
        p++;
    }
    if (*p == '0' && (p[1] | 32) == 'x') return strtod(text, end);
    for (; *p >= '0' && *p <= '9'; p++, digits++) mantissa = mantissa * 10 + (unsigned)(*p - '0');
    if (*p == '.' && digits > 0) {
        p++;
        for (; *p >= '0' && *p <= '9'; p++, digits++, fraction++) mantissa = mantissa * 10 + (unsigned)(*p - '0');
    }
    if (digits == 0 || digits > 15 || (*p | 32) == 'e') return strtod(text, end);
    *end = (char *)p;
    double value = (double)mantissa / powers[fraction];
    return negative ? -value : value;
}

unsigned long long guest_strtoull(const char *text, char **end, int base) {
    const char *p = text;
    while (*p == ' ' || (*p >= '\t' && *p <= '\r')) p++;
    int negative = *p == '-', any = 0, over = 0;
    if (*p == '-' || *p == '+') p++;
    if (base == 16 && *p == '0' && (p[1] | 32) == 'x') {
        unsigned next = (unsigned char)p[2];
        if (next - '0' < 10 || (next | 32) - 'a' < 6) p += 2;
    }
    unsigned long long value = 0;
    for (;; p++) {
        unsigned c = (unsigned char)*p, digit = c - '0' < 10 ? c - '0' : (c | 32) - 'a' < 26 ? (c | 32) - 'a' + 10 : 99;
        if (digit >= (unsigned)base) break;
        any = 1;
        over |= __builtin_mul_overflow(value, (unsigned)base, &value);
        over |= __builtin_add_overflow(value, digit, &value);
    }
    *end = (char *)(any ? p : text);
    if (over) return ~0ULL;
    return negative ? 0 - value : value;
}
