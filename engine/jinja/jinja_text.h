/* A growing text that remembers which of its bytes came from the user, and the ways values are written into one.
 * Failures stick; jtext_ok or jtext_take reports them. Threads: a text belongs to one thread. */
#ifndef INFCGI_JINJA_JINJA_TEXT_H
#define INFCGI_JINJA_JINJA_TEXT_H

#include "engine/base/buf.h"
#include "engine/base/json_number.h"
#include "engine/jinja/jinja_value.h"

struct jtext {
    struct buf text;
    struct span *user; /* sorted, not overlapping, not touching */
    size_t n_user, cap_user;
    enum err err; /* first failure of `user` */
};

void jtext_init(struct jtext *r);
void jtext_fini(struct jtext *r);

void jtext_put(struct jtext *r, const char *p, size_t n, bool user);
void jtext_puts(struct jtext *r, const char *s); /* constant text, not user */
void jtext_cp(struct jtext *r, uint32_t cp, bool user);
void jtext_str(struct jtext *r, const struct jstr *s);
void jtext_sub(struct jtext *r, const struct jstr *s, size_t from, size_t to);
void jtext_fill(struct jtext *r, char c, size_t n);
/* Forgets everything behind byte `len`. */
void jtext_cut(struct jtext *r, size_t len);
MUST_CHECK enum err jtext_ok(struct jvm *vm, const struct jtext *r);

/* Bytes [from, end) of the text as a string of the arena; the text is cut to `from`. */
MUST_CHECK enum err jtext_take(struct jvm *vm, struct jtext *r, size_t from, struct jv *out);

/* Index of the first range of s that ends behind byte `at`. */
uint32_t jstr_span_at(const struct jstr *s, size_t at);

/* True when byte `at` of s is user text; *from_span is a hint carried between calls with rising `at` (start with 0). */
bool jstr_user_at(const struct jstr *s, size_t at, uint32_t *from_span);

/* --- values as text (jinja_print.c) ----------------------------------------------------------------------------- */

/* str(v). ERR_TEMPLATE: nested too deeply. */
MUST_CHECK enum err jv_write_str(struct jvm *vm, struct jtext *r, struct jv v);
/* repr(v). */
MUST_CHECK enum err jv_write_repr(struct jvm *vm, struct jtext *r, struct jv v);
/* v itself when it is a string, else str(v). */
MUST_CHECK enum err jv_to_str(struct jvm *vm, struct jv v, struct jv *out);

enum { JV_FLOAT_BYTES = JSON_NUMBER_BYTES };
/* repr of a float: the shortest digits that read back as the same number. */
void jv_float_text(double f, char out[JV_FLOAT_BYTES]);
/* s[0..n) as a Python float or int literal text with optional sign and surrounding white space. False: malformed (or,
 * for ints, *overflow is set when it does not fit). */
bool jv_parse_float(const char *s, size_t n, double *out);
bool jv_parse_int(const char *s, size_t n, int base, int64_t *out, bool *overflow);

struct jjson_style {
    bool ensure_ascii, sort_keys, has_indent;
    const struct jstr *indent, *item_sep, *key_sep; /* indent: one level, when has_indent */
};
/* json.dumps (jinja_json.c). ERR_TEMPLATE: not serialisable, nested too deeply. */
MUST_CHECK enum err jv_write_json(struct jvm *vm, struct jtext *r, struct jv v, const struct jjson_style *style);

#endif
