/* Doubles to short decimal text and back, exact and without printf and strtod (128-bit software floats in Wasm) for usual numbers. */
#ifndef DECIMAL_H
#define DECIMAL_H

#define DECIMAL_SIZE 32 /* bytes that decimal_write may use */

/* Writes what "%.<precision>g" gives, precision 1 to 15; returns its end. No NUL. */
char *decimal_write(char *out, double d, int precision);

/* Reads what strtod reads (but no leading blanks) from text that ends with NUL. Returns its end, or `text` if there is no number. */
const char *decimal_read(const char *text, double *value);

#endif
