/* Hexadecimal digits. Threads: pure functions. */
#ifndef INFCGI_BASE_HEX_H
#define INFCGI_BASE_HEX_H

/* Returns the value of a digit in either case, or -1. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    int lower = c | 0x20;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Returns the lower-case digit of the four low bits. */
static inline char hex_digit(unsigned value) { return "0123456789abcdef"[value & 15]; }

#endif
