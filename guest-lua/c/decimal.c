#include "decimal.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POWERS 22 /* 10^22 is the last power of ten that a double holds exactly */
static const double power[POWERS + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                         1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static const char pairs[] = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
                            "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/* Digits of n into the bytes that end at `end`; returns where they begin. */
static char *digits_before(char *end, uint64_t n) {
    while (n > UINT32_MAX) {
        end -= 2;
        memcpy(end, pairs + n % 100 * 2, 2);
        n /= 100;
    }
    uint32_t small = (uint32_t)n; /* cheaper to divide */
    while (small >= 100) {
        end -= 2;
        memcpy(end, pairs + small % 100 * 2, 2);
        small /= 100;
    }
    if (small < 10) {
        *--end = (char)('0' + small);
    } else {
        end -= 2;
        memcpy(end, pairs + small * 2, 2);
    }
    return end;
}

/* a * b == high + low exactly (Dekker's product; no overflow for the numbers used here). */
static double product(double a, double b, double *low) {
    const double splitter = 134217729.0; /* 2^27 + 1 */
    double t = splitter * a, ah = t - (t - a), al = a - ah;
    t = splitter * b;
    double bh = t - (t - b), bl = b - bh, high = a * b;
    *low = ((ah * bh - high) + ah * bl + al * bh) + al * bl;
    return high;
}

/* The `precision` leading digits of d > 0, correctly rounded, as an integer; *exponent is the power of ten of the first one.
   0 if d is too large or too small for this method. */
static uint64_t leading_digits(double d, int precision, int *exponent) {
    if (!(d >= 1e-7 && d < 1e15)) return 0;
    int e = 0;
    if (d >= 1) {
        while (d >= power[e + 1]) e++;
    } else {
        do e--;
        while (d * power[-e] < 1);
        /* the product above is rounded, so e may be one too high; seen below */
    }
    for (;; e--) {
        int scale = precision - 1 - e;
        double high, low = 0;
        if (scale < 0) return 0; /* needs a division */
        if (scale > POWERS) return 0;
        high = product(d, power[scale], &low);
        double limit = power[precision - 1];
        if (high < limit || (high == limit && low < 0)) continue; /* one digit less than wanted */
        /* high < 10^precision <= 10^15, so its fraction is exact and 0.5 is one of the values it can have: |low| decides only there */
        uint64_t n = (uint64_t)high;
        double rest = high - (double)n;
        if (rest > 0.5 || (rest == 0.5 && (low > 0 || (low == 0 && (n & 1))))) n++;
        if ((double)n >= power[precision]) {
            n /= 10;
            e++;
        }
        *exponent = e;
        return n;
    }
}

static char *write_slow(char *out, double d, int precision) {
    int n = snprintf(out, DECIMAL_SIZE, "%.*g", precision, d);
    return out + n;
}

/* A whole number with more than `precision` digits, below 2^63: divides, with exact ties to even as printf has them. */
static uint64_t leading_digits_of_whole(uint64_t whole, int precision, int *exponent) {
    uint64_t divisor = 1, limit = (uint64_t)power[precision];
    int e = precision - 1;
    while (whole / divisor >= limit) {
        divisor *= 10;
        e++;
    }
    uint64_t n = whole / divisor, rest = whole % divisor, half = divisor / 2;
    if (rest > half || (rest == half && (n & 1))) n++;
    if (n >= limit) {
        n /= 10;
        e++;
    }
    *exponent = e;
    return n;
}

char *decimal_write(char *out, double d, int precision) {
    uint64_t n;
    int e;
    if (d > -9e18 && d < 9e18) {
        int64_t whole = (int64_t)d;
        int negative = signbit(d) != 0;
        uint64_t size = negative ? 0 - (uint64_t)whole : (uint64_t)whole;
        if ((double)whole == d) {
            if (negative) *out++ = '-'; /* also for -0 */
            if (size < (uint64_t)power[precision]) {
                char text[32], *end = text + 16, *begin = digits_before(end, size);
                memcpy(out, begin, 16); /* more than needed: a fixed size costs no call */
                return out + (end - begin);
            }
            n = leading_digits_of_whole(size, precision, &e);
        } else {
            n = leading_digits(fabs(d), precision, &e);
            if (n == 0) return write_slow(out, d, precision);
            if (negative) *out++ = '-';
        }
    } else {
        return write_slow(out, d, precision);
    }

    char text[20], *end = text + sizeof text, *begin = digits_before(end, n);
    while (end[-1] == '0') end--; /* n > 0 */
    int count = (int)(end - begin);
    if (e < -4 || e >= precision) {
        *out++ = *begin++;
        if (--count > 0) {
            *out++ = '.';
            memcpy(out, begin, (size_t)count);
            out += count;
        }
        *out++ = 'e';
        *out++ = e < 0 ? '-' : '+';
        memcpy(out, pairs + 2 * (e < 0 ? -e : e), 2); /* |e| < 100 here */
        return out + 2;
    }
    if (e < 0) {
        memcpy(out, "0.0000", 6);
        out += 1 - e; /* "0." and -e - 1 zeros */
        memcpy(out, begin, (size_t)count);
        return out + count;
    }
    int before = e + 1; /* digits before the point; more than that exist, or n would have been whole */
    if (count <= before) {
        memcpy(out, begin, (size_t)count);
        memset(out + count, '0', (size_t)(before - count)); /* a fraction that was rounded away */
        return out + before;
    }
    memcpy(out, begin, (size_t)before);
    out[before] = '.';
    memcpy(out + before + 1, begin + before, (size_t)(count - before));
    return out + count + 1;
}

/* Length of `word` (lower case) if the text begins with it in any case, else 0. */
static size_t starts_with(const char *text, const char *word) {
    size_t n = 0;
    for (; word[n]; n++)
        if ((text[n] | 32) != word[n]) return 0;
    return n;
}

static const char *read_slow(const char *text, double *value) {
    const char *p = text + (*text == '-' || *text == '+');
    size_t n = starts_with(p, "inf");
    if (n) {
        p += n;
        p += starts_with(p, "inity");
        *value = *text == '-' ? -(double)INFINITY : (double)INFINITY;
        return p;
    }
    n = starts_with(p, "nan"); /* here, because C libraries disagree on the sign */
    if (n) {
        const char *q = p += n;
        if (*q == '(') {
            do q++;
            while ((unsigned)(*q - '0') < 10 || (unsigned)((*q | 32) - 'a') < 26 || *q == '_');
            if (*q == ')') p = q + 1;
        }
        *value = copysign((double)NAN, *text == '-' ? -1.0 : 1.0);
        return p;
    }
    char *end;
    *value = strtod(text, &end);
    return end;
}

const char *decimal_read(const char *text, double *value) {
    const char *p = text + (*text == '-'), *digits = p;
    uint64_t mantissa = 0;
    unsigned c;
    while ((c = (unsigned)(unsigned char)*p - '0') < 10) {
        mantissa = mantissa * 10 + c;
        p++;
    }
    ptrdiff_t count = p - digits;
    int scale = 0;
    if (count == 0 || (*digits == '0' && (*p | 32) == 'x')) return read_slow(text, value);
    if (*p == '.') {
        const char *fraction = ++p;
        while ((c = (unsigned)(unsigned char)*p - '0') < 10) {
            mantissa = mantissa * 10 + c;
            p++;
        }
        if (p - fraction > 19) return read_slow(text, value);
        scale = -(int)(p - fraction);
        count -= scale;
    }
    if (count > 19) return read_slow(text, value); /* the mantissa may have wrapped */
    if ((*p | 32) == 'e') {
        const char *q = p + 1;
        int minus = *q == '-', e = 0;
        if (minus || *q == '+') q++;
        const char *first = q;
        while ((c = (unsigned)(unsigned char)*q - '0') < 10) {
            if (q - first >= 4) return read_slow(text, value);
            e = e * 10 + (int)c;
            q++;
        }
        if (q > first) { /* else the number ends before the e */
            scale += minus ? -e : e;
            p = q;
        }
    }
    double d = (double)mantissa;
    /* exact operands, hence one correct rounding (Clinger) */
    if (scale != 0) {
        if (mantissa > (UINT64_C(1) << 53) || scale > POWERS || scale < -POWERS) return read_slow(text, value);
        d = scale > 0 ? d * power[scale] : d / power[-scale];
    }
    *value = *text == '-' ? -d : d;
    return p;
}
