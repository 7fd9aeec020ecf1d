/* The classes of code points that pre-tokenizers distinguish, and the code points that normalizers can change. The
 * table is built once from utf8proc, because text is looked up per character. Threads: unicode_table_init from any; the
 * other functions are pure after it. */
#ifndef INFCGI_TOKENIZER_UNICODE_TABLE_H
#define INFCGI_TOKENIZER_UNICODE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER, /* \p{L} */
    UNICODE_NUMBER, /* \p{N} */
    UNICODE_SPACE,  /* \s: property White_Space */
};

/* Fills the table; later calls do nothing. tokenizer_new calls it. */
void unicode_table_init(void);

/* For each code point of planes 0 to 2, its class, and whether NFC can change it. */
enum { UNICODE_TABLE_END = 0x30000 };
extern unsigned char unicode_table_class[UNICODE_TABLE_END];
extern bool unicode_table_nfc[UNICODE_TABLE_END];

/* Like unicode_class_of(), but without the table. */
enum unicode_class unicode_class_find(uint32_t cp);

/* Returns whether a word can contain cp: \w of Rust's regex without joiners, \w of Oniguruma without Latin 1's numbers.
 * Letters, marks, decimal digits, connectors, and circled letters. [Unicode Technical Standard 18, annex C] */
bool unicode_is_word(uint32_t cp);

/* Returns the class of cp [Unicode Character Database]; unassigned and out of range: UNICODE_OTHER. */
static inline enum unicode_class unicode_class_of(uint32_t cp)
{
    return cp < UNICODE_TABLE_END ? (enum unicode_class)unicode_table_class[cp] : unicode_class_find(cp);
}

/* Returns whether NFC can change cp, alone or because of the characters before it. Planes above the table's have no
 * such characters. */
static inline bool unicode_nfc_may_change(uint32_t cp) { return cp < UNICODE_TABLE_END && unicode_table_nfc[cp]; }

#endif
