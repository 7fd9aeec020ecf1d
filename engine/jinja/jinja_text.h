/* A growing text that records which of its bytes are user text, and functions that write values into it. The first
 * failure is kept; jtext_ok or jtext_take returns it. Threads: a text belongs to one thread. */
#ifndef INFCGI_JINJA_JINJA_TEXT_H
#define INFCGI_JINJA_JINJA_TEXT_H

#include "engine/base/buf.h"
#include "engine/base/json_number.h"
#include "engine/jinja/jinja_value.h"

struct jtext {
    struct buf text;
    struct span *user; /* sorted, neither overlapping nor adjacent */
    size_t n_user, cap_user;
    enum err err; /* first failure of `user` */
};

void jtext_init(struct jtext *r);
void jtext_fini(struct jtext *r);

void jtext_put(struct jtext *r, const char *p, size_t n, bool user);
void jtext_puts(struct jtext *r, const char *s); /* constant text, not user text */
void jtext_cp(struct jtext *r, uint32_t cp, bool user);
void jtext_str(struct jtext *r, const struct jstr *s);
void jtext_sub(struct jtext *r, const struct jstr *s, size_t from, size_t to);
void jtext_fill(struct jtext *r, char c, size_t n);
/* Removes all bytes from `len` on. */
void jtext_cut(struct jtext *r, size_t len);
MUST_CHECK enum err jtext_ok(struct jvm *vm, const struct jtext *r);

/* Returns bytes [from, end) of the text as a string of the arena and truncates the text to `from`. */
MUST_CHECK enum err jtext_take(struct jvm *vm, struct jtext *r, size_t from, struct jv *out);

/* Returns the index of the first range of s that ends after byte `at`. */
uint32_t jstr_span_at(const struct jstr *s, size_t at);

/* Returns true if byte `at` of s is user text. *from_span is a hint that is kept between calls with ascending `at`
 * (start with 0). */
bool jstr_user_at(const struct jstr *s, size_t at, uint32_t *from_span);

/* --- values as text (jinja_print.c) ----------------------------------------------------------------------------- */

/* Writes str(v). ERR_TEMPLATE: nested too deeply. */
MUST_CHECK enum err jv_write_str(struct jvm *vm, struct jtext *r, struct jv v);
/* Writes repr(v). */
MUST_CHECK enum err jv_write_repr(struct jvm *vm, struct jtext *r, struct jv v);
/* Returns v itself if it is a string, else str(v). */
MUST_CHECK enum err jv_to_str(struct jvm *vm, struct jv v, struct jv *out);

enum { JV_FLOAT_BYTES = JSON_NUMBER_BYTES };
/* Writes repr of a float: the shortest digits that read back as the same number. */
void jv_float_text(double f, char out[JV_FLOAT_BYTES]);
/* Parse s[0..n) as a Python float or int literal with optional sign and surrounding white space. False: malformed, or
 * an int that does not fit: then *overflow is set. */
bool jv_parse_float(const char *s, size_t n, double *out);
bool jv_parse_int(const char *s, size_t n, int base, int64_t *out, bool *overflow);

struct jjson_style {
    bool ensure_ascii, sort_keys, has_indent;
    const struct jstr *indent, *item_sep, *key_sep; /* indent: one level, when has_indent */
};
/* Writes json.dumps(v) (jinja_json.c). ERR_TEMPLATE: not serializable, nested too deeply. */
MUST_CHECK enum err jv_write_json(struct jvm *vm, struct jtext *r, struct jv v, const struct jjson_style *style);

#endif
