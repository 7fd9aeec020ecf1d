/* Values of the template language: what they are, how they compare, how they print. They follow Python's types, since
 * templates are written against Python.
 *
 * All lists, tuples and dicts are immutable once built (jinja2's ImmutableSandboxedEnvironment forbids their methods
 * that change them), so data never forms a cycle, except through a namespace; walks use explicit stacks of JV_MAX_NEST.
 * Memory: everything lies in the arena of the render (or, for literals, of the template) and is never freed singly.
 * Threads: values of a template are read-only; those of a render belong to its thread. */
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

/* JV_ABSENT stands for an argument that was not given and never reaches a template. */
enum jv_kind {
    JV_ABSENT,
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_BIGINT,  /* an int beyond 64 bits, of the context */
    JV_DECIMAL, /* a float of the context that prints as it was written, since no double has its value */
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_VIEW, /* dict.keys(), .values(), .items(); sub: enum jv_view */
    JV_GEN,  /* a one-pass iterator, what map and select give */
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

/* Why a value is undefined; jv.sub of JV_UNDEF. Says what the error text will be. */
enum jv_undef {
    JU_NAME,  /* name: the variable */
    JU_ATTR,  /* name: the attribute; aux: kind of the object */
    JU_ELEM,  /* i: the index; aux: kind of the object */
    JU_PARAM, /* name: the macro's parameter */
    JU_OTHER, /* hint */
};

/* A string; the bytes belong to an arena, the source or the context. */
struct jstr {
    const char *p;           /* len bytes of UTF-8, no NUL behind them */
    const struct span *user; /* n_user ranges that came from user text; sorted, not overlapping */
    uint32_t len, chars;     /* bytes, code points */
    uint32_t n_user;
    bool safe; /* made by |safe or |escape: `+` escapes what it adds */
};

/* A number with the text that it prints as. */
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
    struct table index; /* of entries, in memory of the interpreter; empty while the dict is small */
};

struct jv_gen {
    struct jv_list *items;
    uint32_t pos;
};

struct jv_range {
    int64_t start, stop, step; /* stop only shows when the range is printed */
    uint32_t n;
};

/* Item i of the range, i < n. The product may pass 64 bits where the item does not, so it wraps. */
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
/* An int of 64 bits. */
static inline bool jv_is_int(struct jv v) { return v.kind == JV_BOOL || v.kind == JV_INT; }
static inline int64_t jv_as_int(struct jv v) { return v.kind == JV_BOOL ? v.b : v.i; } /* jv_is_int only */
double jv_as_float(struct jv v);                                                       /* jv_is_number only */

/* Memory of the render. ERR_TEMPLATE at JINJA_MAX_ARENA_BYTES, ERR_NOMEM. */
MUST_CHECK enum err jv_alloc(struct jvm *vm, size_t bytes, void *out);

/* A string over p[0..n), which must outlive the render. user: all of it is user text. */
MUST_CHECK enum err jv_borrow(struct jvm *vm, const char *p, size_t n, bool user, struct jv *out);
/* Bytes [from, to) of s, sharing them; from and to lie on code point borders. */
MUST_CHECK enum err jv_substr(struct jvm *vm, const struct jstr *s, size_t from, size_t to, struct jv *out);
/* a + b. Grows a in place when nothing was allocated behind it, so that building a text piece by piece stays linear. */
MUST_CHECK enum err jv_concat(struct jvm *vm, const struct jstr *a, const struct jstr *b, struct jv *out);
uint32_t jstr_count(const char *p, size_t n); /* code points */

/* An empty list (JV_LIST or JV_TUPLE) with room for cap; appending is for the builder only. */
MUST_CHECK enum err jv_list_new(struct jvm *vm, enum jv_kind kind, size_t cap, struct jv *out);
MUST_CHECK enum err jv_list_add(struct jvm *vm, struct jv_list *l, struct jv item);
MUST_CHECK enum err jv_pair(struct jvm *vm, struct jv a, struct jv b, struct jv *out); /* a tuple of two */
MUST_CHECK enum err jv_gen_new(struct jvm *vm, struct jv_list *items, struct jv *out);

MUST_CHECK enum err jv_dict_new(struct jvm *vm, enum jv_kind kind, size_t cap, struct jv *out);
/* Replaces or adds. ERR_TEMPLATE: unhashable key. */
MUST_CHECK enum err jv_dict_put(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv value);
/* Adds a key that is known to be new. */
MUST_CHECK enum err jv_dict_add(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv value);
/* *out = the value, or NULL. ERR_TEMPLATE: unhashable key. */
MUST_CHECK enum err jv_dict_find(struct jvm *vm, struct jv_dict *d, struct jv key, struct jv **out);
/* The same by bytes. */
struct jv *jv_dict_get(const struct jv_dict *d, const char *key, size_t n);

/* --- looking at values ------------------------------------------------------------------------------------------ */

const char *jv_type_name(struct jv v); /* Python's: "str", "dict", "NoneType" */
bool jv_truth(struct jv v);
/* Number of items or -1 when it has no length. */
int64_t jv_len(struct jv v);

/* Python's ==. ERR_TEMPLATE: nested too deeply. */
MUST_CHECK enum err jv_equal(struct jvm *vm, struct jv a, struct jv b, bool *out);
/* Sign of a - b in *out, -2 when unordered (NaN). ERR_TEMPLATE: these types have no order. */
MUST_CHECK enum err jv_order(struct jvm *vm, struct jv a, struct jv b, const char *op, int *out);
int jstr_cmp(const struct jstr *a, const struct jstr *b);
bool jstr_is(const struct jstr *s, const char *word);

/* One pass over anything iterable: strings give characters, dicts keys, generators what is left of them. */
struct jv_iter {
    struct jv of;
    uint32_t pos;
};
/* ERR_TEMPLATE: not iterable. */
MUST_CHECK enum err jv_iter_init(struct jvm *vm, struct jv of, struct jv_iter *it);
/* *more = false at the end. */
MUST_CHECK enum err jv_iter_next(struct jvm *vm, struct jv_iter *it, struct jv *item, bool *more);
/* All items as a fresh list, or v's own when it is a list or tuple already. */
MUST_CHECK enum err jv_to_list(struct jvm *vm, struct jv v, struct jv_list **out);

#endif
