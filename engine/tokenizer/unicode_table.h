/* The classes of code points that pre-tokenizers tell apart. Threads: pure function. */
#ifndef INFCGI_TOKENIZER_UNICODE_TABLE_H
#define INFCGI_TOKENIZER_UNICODE_TABLE_H

#include <stdint.h>

enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER, /* \p{L} */
    UNICODE_NUMBER, /* \p{N} */
    UNICODE_SPACE,  /* \s: property White_Space */
};

/* Class of cp [Unicode Character Database]; unassigned and out of range: UNICODE_OTHER. */
enum unicode_class unicode_class_of(uint32_t cp);

#endif
