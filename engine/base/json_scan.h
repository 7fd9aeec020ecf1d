/* JSON that comes in pieces: tells, byte by byte, whether what came so far begins an object [RFC 8259]. It keeps no text and
 * makes no values. Keys may stand twice, and numbers may be any: json_read.h is stricter. Threads: pure functions. */
#ifndef INFCGI_BASE_JSON_SCAN_H
#define INFCGI_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH = 64 };

/* All zero: nothing has come. Read depth, is_key and the state; the others are private. */
struct json_scan {
    enum json_scan_state {
        JSON_SCAN_NOTHING,
        JSON_SCAN_WHOLE,  /* the object is closed */
        JSON_SCAN_KEY,    /* a key comes next, or the object's end */
        JSON_SCAN_COLON,  /* comes next */
        JSON_SCAN_VALUE,  /* comes next */
        JSON_SCAN_BEHIND, /* a value: a comma or an end comes next */
        JSON_SCAN_STRING, /* within a string, as in the next four */
        JSON_SCAN_ESCAPE,
        JSON_SCAN_HEX,
        JSON_SCAN_LOW,   /* the backslash of a second surrogate comes next */
        JSON_SCAN_LOW_U, /* its u */
        JSON_SCAN_MINUS, /* within a number: what came last of it */
        JSON_SCAN_ZERO,
        JSON_SCAN_DIGIT,
        JSON_SCAN_POINT,
        JSON_SCAN_FRACTION,
        JSON_SCAN_E,
        JSON_SCAN_SIGN,
        JSON_SCAN_EXPONENT,
        JSON_SCAN_WORD,
    } state;
    unsigned depth;             /* of objects and arrays that are open */
    bool is_key;                /* STRING: it is one */
    bool is_first;              /* KEY, VALUE: nothing stands before it, so that an end may come */
    uint64_t is_array;          /* bit d: the one at depth d + 1 is one */
    const char *word;           /* WORD: what must follow */
    unsigned n_hex, code, high; /* HEX: digits so far; their value; the first surrogate or 0 */
    unsigned n_more;            /* STRING: bytes of a character that must follow .. */
    unsigned char least, most;  /* .. and what the next may be */
};

/* Takes bytes as long as they go on with the object; how many. Fewer than n: the next stands behind the object, where the
 * state is WHOLE, or is wrong, and nothing may be fed any more. */
size_t json_scan_feed(struct json_scan *s, const char *text, size_t n);

#endif
