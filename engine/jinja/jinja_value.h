/* Values of the template language: types, comparison, printing. They follow Python's types, because templates are
 * written for Python.
 *
 * Lists, tuples and dicts are immutable once built (jinja2's ImmutableSandboxedEnvironment forbids the methods that
 * change them), so data never forms a cycle, except through a namespace. Traversals use explicit stacks of JV_MAX_NEST.
 * Memory: all values are in the arena of the render (literals: of the template) and are not freed separately. Threads:
 * values of a template are read-only; those of a render belong to its thread. */
#ifndef INFCGI_JINJA_JINJA_VALUE_H
#define INFCGI_JINJA_JINJA_VALUE_H

#include "engine/base/err.h"
#include "engine/base/span.h"
#include "engine/base/mem.h"
#include "engine/base/table.h"
#include "engine/jinja/jinja.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jvm;
struct jbuiltin;

enum { JV_MAX_NEST = 128 /* nesting of lists and dicts in data */ };

/* JV_ABSENT represents a missing argument and never reaches a template. */
enum jv_kind {
    JV_ABSENT,
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_BIGINT,  /* an int beyond 64 bits, of the context */
    JV_DECIMAL, /* a float of the context that prints as it was written, because no double has its value */
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_VIEW, /* dict.keys(), .values(), .items(); sub: enum jv_view */
    JV_GEN,  /* a one-pass iterator, the result of map and select */
    JV_RANGE,
    JV_NAMESPACE,
    JV_MACRO,
    JV_LOOP,
    JV_FUNC,   /* a global function */
    JV_METHOD, /* a method together with its object */
    JV_CYCLER,
    JV_JOINER,
    JV_KINDS
};

enum jv_view { JV_KEYS, JV_VALUES, JV_ITEMS };

/* Why a value is undefined; jv.sub of JV_UNDEF. Determines the error text. */
enum jv_undef {
    JU_NAME,  /* name: the variable */
    JU_ATTR,  /* name: the attribute; aux: kind of the object */
    JU_ELEM,  /* i: the index; aux: kind of the object */
    JU_PARAM, /* name: the macro's parameter */
    JU_OTHER, /* hint */
};

/* A string; the bytes belong to an arena, the source or the context. */
struct jstr {
    const char *p;           /* len bytes of UTF-8, not NUL-terminated */
    const struct span *user; /* n_user ranges of user text; sorted, not overlapping */
    uint32_t len, chars;     /* bytes, code points */
    uint32_t n_user;
    bool safe; /* result of |safe or |escape: `+` escapes what it adds */
};

/* A number with its printed form. */
struct jv_digits {
    const char *p; /* NUL-terminated; of the context */
    double f;      /* the nearest finite one */
};

struct jv {
    uint8_t kind; /* enum jv_kind */
    uint8_t sub;
    uint32_t aux;
    union {
        bool b;
        int64_t i;
        double f;
        const struct jv_digits *digits; /* JV_BIGINT, JV_DECIMAL */
        const struct jstr *str;
        struct jv_list *list; /* JV_LIST, JV_TUPLE, JV_VIEW */
        struct jv_dict *dict; /* JV_DICT, JV_NAMESPACE */
        struct jv_gen *gen;   /* JV_GEN, JV_CYCLER (pos: next), JV_JOINER (pos: used) */
        struct jv_range *range;
        struct jv_macro *macro;
        struct jv_loop *loop;
        struct jv_method *method;
        const struct jbuiltin *func;
        const struct jstr *name; /* JV_UNDEF */
        const char *hint;        /* JV_UNDEF */
    };
};

struct jv_list {
    struct jv *at;
    uint32_t n, cap;
};

struct jv_entry {
    struct jv key, value;
    uint64_t hash;
};

struct jv_dict {
    struct jv_entry *at; /* in order of insertion */
    uint32_t n, cap;
    struct table index; /* of entries, in the interpreter's memory; empty as long as the dict is small */
};

struct jv_gen {
    struct jv_list *items;
    uint32_t pos;
};

struct jv_range {
    int64_t start, stop, step; /* stop is used only when the range is printed */
    uint32_t n;
};

/* Returns item i of the range, i < n. The product wraps, because it can exceed 64 bits if the item does not. */
static inline int64_t jv_range_at(const struct jv_range *r, uint32_t i)
{
    return (int64_t)((uint64_t)r->start + i * (uint64_t)r->step);
}

struct jv_method {
    struct jv self;
    const struct jbuiltin *fn;
};

/* --- making values ---------------------------------------------------------------------------------------------- */

static inline struct jv jv_none(void) { return (struct jv){.kind = JV_NONE}; }
static inline struct jv jv_bool(bool b) { return (struct jv){.kind = JV_BOOL, .b = b}; }
static inline struct jv jv_int(int64_t i) { return (struct jv){.kind = JV_INT, .i = i}; }
static inline struct jv jv_float(double f) { return (struct jv){.kind = JV_FLOAT, .f = f}; }
static inline struct jv jv_hint(const char *hint)
{
    return (struct jv){.kind = JV_UNDEF, .sub = JU_OTHER, .hint = hint};
}
static inline bool jv_is_str(struct jv v) { return v.kind == JV_STR; }
static inline bool jv_is_seq(struct jv v) { return v.kind == JV_LIST || v.kind == JV_TUPLE; }
static inline bool jv_has_digits(struct jv v) { return v.kind == JV_BIGINT || v.kind == JV_DECIMAL; }
static inline bool jv_is_float(struct jv v) { return v.kind == JV_FLOAT || v.kind == JV_DECIMAL; }
static inline bool jv_is_number(struct jv v)
{
    return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_FLOAT || jv_has_digits(v);
}
/* Returns whether v is an int of 64 bits. */
static inline bool jv_is_int(struct jv v) { return v.kind == JV_BOOL || v.kind == JV_INT; }
static inline int64_t jv_as_int(struct jv v) { return v.kind == JV_BOOL ? v.b : v.i; } /* requires jv_is_int */
double jv_as_float(struct jv v);                                                       /* requires jv_is_number */

/* Allocates memory of the render. ERR_TEMPLATE at JINJA_MAX_ARENA_BYTES, ERR_NOMEM. */
MUST_CHECK enum err jv_alloc(struct jvm *vm, size_t bytes, void *out);

/* Doubles *array, all of whose *cap elements of `size` bytes are used; an empty one gets room for `first`. */
MUST_CHECK enum err jv_grow(struct jvm *vm, void *array, uint32_t *cap, size_t size, uint32_t first);

/* Returns s, whose bytes and ranges must outlive the render. */
MUST_CHECK enum err jv_str_new(struct jvm *vm, struct jstr s, struct jv *out);
/* Returns a string over p[0..n), which must outlive the render. user: all of it is user text. */
MUST_CHECK enum err jv_borrow(struct jvm *vm, const char *p, size_t n, bool user, struct jv *out);
/* Returns bytes [from, to) of s, sharing them; from and to must be code point boundaries. */
MUST_CHECK enum err jv_substr(struct jvm *vm, const struct jstr *s, size_t from, size_t to, struct jv *out);
/* Returns a + b. Extends a in place if nothing was allocated after it, so building a text piece by piece is linear. */
MUST_CHECK enum err jv_concat(struct jvm *vm, const struct jstr *a, const struct jstr *b, struct jv *out);
uint32_t jstr_count(const char *p, size_t n); /* returns the number of code points */

/* Returns an empty list (JV_LIST or JV_TUPLE) with room for cap items; only its builder may append. */
MUST_CHECK enum err jv_list_new(struct jvm *vm, enum jv_kind kind, size_t cap, struct jv *out);
MUST_CHECK enum err jv_list_add(struct jvm *vm, struct jv_list *l, struct jv item);
/* Appends items[0..n), for which the list has room. */
void jv_list_append(struct jv_list *l, const struct jv *items, uint32_t n);
/* Returns a list or tuple of items[0..n). */
MUST_CHECK enum err jv_list_of(struct jvm *vm, enum jv_kind kind, const struct jv *items, uint32_t n, struct jv *out);
MUST_CHECK enum err jv_range_new(struct jvm *vm, struct jv_range range, struct jv *out);
MUST_CHECK enum err jv_gen_new(struct jvm *vm, struct jv_list *items, struct jv *out);

MUST_CHECK enum err jv_dict_new(struct jvm *vm, enum jv_kind kind, size_t cap, struct jv *out);
/* Replaces or adds an entry. ERR_TEMPLATE: unhashable key. */
MUST_CHECK enum err jv_dict_put(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv value);
/* Adds a key that must be new. */
MUST_CHECK enum err jv_dict_add(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv value);
/* *out: the value, or JV_ABSENT. ERR_TEMPLATE: unhashable key. */
MUST_CHECK enum err jv_dict_find(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv *out);

/* --- looking at values ------------------------------------------------------------------------------------------ */

const char *jv_type_name(struct jv v); /* Python's: "str", "dict", "NoneType" */
bool jv_truth(struct jv v);
/* Returns the number of items, or -1 if v has no length. */
int64_t jv_len(struct jv v);
/* Returns item i of a list, tuple, view or range, or key i of a dict; i < jv_len(v). */
struct jv jv_at(struct jv v, uint32_t i);

/* Python's ==. ERR_TEMPLATE: nested too deeply. */
MUST_CHECK enum err jv_equal(struct jvm *vm, struct jv a, struct jv b, bool *out);
/* *out: the sign of a - b, or -2 if unordered (NaN). ERR_TEMPLATE: these types have no order. */
MUST_CHECK enum err jv_order(struct jvm *vm, struct jv a, struct jv b, const char *op, int *out);
int jstr_cmp(const struct jstr *a, const struct jstr *b);
bool jstr_is(const struct jstr *s, const char *word);
/* Returns whether p[0..n) is an index, which has 1 to 9 digits; *out: its value. */
bool jstr_index(const char *p, size_t n, int64_t *out);

/* One pass over any iterable: strings yield characters, dicts keys, generators their remaining items. */
struct jv_iter {
    struct jv of;
    uint32_t pos;
    enum err err; /* checked after the pass. ERR_TEMPLATE: not iterable */
};
/* Returns false at the end, or after a failure. */
MUST_CHECK bool jv_iter_next(struct jvm *vm, struct jv_iter *it, struct jv *item);
/* Returns all items as a new list, or v's own list if it is a list or tuple. */
MUST_CHECK enum err jv_to_list(struct jvm *vm, struct jv v, struct jv_list **out);

#endif
