/* Scans JSON that arrives in pieces: checks, byte by byte, whether the text so far begins an object [RFC 8259]. Keeps
 * no text and makes no values. Duplicate keys and numbers of any size pass; json_read.h is stricter. Threads: pure
 * functions. */
#ifndef INFCGI_BASE_JSON_SCAN_H
#define INFCGI_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH = 64 };

/* All zero: no text yet. Callers read depth, is_key and the state; other fields are private. */
struct json_scan {
    enum json_scan_state {
        JSON_SCAN_NOTHING,
        JSON_SCAN_WHOLE,  /* the object is complete */
        JSON_SCAN_KEY,    /* a key or the object's end must follow */
        JSON_SCAN_COLON,  /* a colon must follow */
        JSON_SCAN_VALUE,  /* a value must follow */
        JSON_SCAN_AFTER,  /* after a value: a comma or an end must follow */
        JSON_SCAN_STRING, /* in a string, as in the next four */
        JSON_SCAN_ESCAPE,
        JSON_SCAN_HEX,
        JSON_SCAN_LOW,   /* the backslash of a second surrogate must follow */
        JSON_SCAN_LOW_U, /* its u must follow */
        JSON_SCAN_MINUS, /* in a number, as in the next seven: the last part read */
        JSON_SCAN_ZERO,
        JSON_SCAN_DIGIT,
        JSON_SCAN_POINT,
        JSON_SCAN_FRACTION,
        JSON_SCAN_E,
        JSON_SCAN_SIGN,
        JSON_SCAN_EXPONENT,
        JSON_SCAN_WORD,
    } state;
    unsigned depth;             /* of open objects and arrays */
    bool is_key;                /* STRING: the string is a key */
    bool is_first;              /* KEY, VALUE: no member came before, so an end can follow */
    uint64_t is_array;          /* bit d: the container at depth d + 1 is an array */
    const char *word;           /* WORD: what must follow */
    unsigned n_hex, code, high; /* HEX: digits so far; their value; the first surrogate or 0 */
    unsigned n_more;            /* STRING: bytes of a character that must follow ... */
    unsigned char least, most;  /* ... and the range of the next one */
};

/* Consumes bytes while they continue the object; returns how many. If fewer than n, the next byte follows the complete
 * object (state WHOLE) or is wrong, and the caller must feed no more. */
size_t json_scan_feed(struct json_scan *s, const char *text, size_t n);

#endif
