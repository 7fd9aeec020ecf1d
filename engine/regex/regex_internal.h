/* The storage of a set's expressions; shared by the files of regex. */
#ifndef INFCGI_REGEX_REGEX_INTERNAL_H
#define INFCGI_REGEX_REGEX_INTERNAL_H

#include "engine/base/table.h"
#include "engine/regex/regex.h"

enum { LAST_CODE_POINT = 0x10FFFF, FIRST_SURROGATE = 0xD800, LAST_SURROGATE = 0xDFFF };

enum regex_kind {
    REGEX_K_NONE,
    REGEX_K_EMPTY,
    REGEX_K_CLASS,    /* a: index in set->classes */
    REGEX_K_CONCAT,   /* a b; a is not a CONCAT */
    REGEX_K_OR,       /* a | b: a is not an OR, b can be one; sorted by id, without duplicates */
    REGEX_K_AND,      /* likewise */
    REGEX_K_NOT,      /* a */
    REGEX_K_REPEAT,   /* a, min .. max times */
    REGEX_K_MULTIPLE, /* digits of a multiple: a, b, min and max as packed in regex_multiple.c */
    REGEX_K_LOOP,     /* the definition of set->loops[a], which can contain this node again after a first byte */
};

struct regex_node {
    unsigned char kind;
    bool is_nullable;
    bool is_plain : 1;   /* without AND, NOT and LOOP: then it matches a string, unless it is REGEX_NONE */
    bool is_whole : 1;   /* of characters: consists of classes, except for strings of complements; see regex_is_whole */
    bool has_loop : 1;   /* a LOOP, or a union or intersection with one: stored as a union of intersections */
    unsigned char known; /* of others: 1 matches a string, 2 matches none, 0 unknown yet */
    uint32_t a, b, min, max;
    uint32_t seen;               /* number of the regex_split_groups call that visited it */
    struct regex_hash hash, sum; /* sum: of OR and AND, of the parts' hashes */
};

struct regex_class {
    uint64_t bits[4];
    uint64_t members[4]; /* its byte classes, if n_members equals the set's */
    uint32_t n_members;
    uint32_t seen; /* number of the regex_split_groups call that visited it */
};

/* An expression that is defined in terms of itself. */
struct regex_loop {
    struct regex_hash name;
    regex_id is; /* REGEX_NONE until it is defined */
};

/* The expression of a class with many ranges. */
enum { N_REGEX_WIDES = 16 };
struct regex_wide {
    struct regex_hash ranges;
    regex_id id;
};

/* A cached derivative. */
struct regex_memo {
    uint64_t key; /* node << 8 | byte class */
    regex_id is;
};

/* Growing list of ids. */
struct regex_list {
    regex_id *ids;
    size_t n, cap;
};

struct regex_set {
    enum err err;
    size_t max_nodes;
    struct regex_node *nodes;
    size_t n_nodes, cap_nodes;
    struct regex_class *classes;
    size_t n_classes, cap_classes;
    struct regex_loop *loops;
    size_t n_loops, cap_loops;
    struct table class_table; /* of classes by their bits */
    struct table table;       /* of nodes by their form, except NONE */
    struct regex_memo *memo;  /* [n_memo] cached derivatives */
    size_t n_memo, cap_memo;
    struct table memo_table; /* of derivatives by key */
    size_t n_work, max_work; /* of regex_spend */
    uint32_t n_splits;       /* calls of regex_split_groups */
    bool has_byte_classes;
    uint32_t n_members; /* number of changes to the byte classes */
    int n_byte_classes;
    unsigned char byte_class[256], byte_of_class[256]; /* the first byte of each class */
    struct regex_list work, parts;                     /* scratch of regex_next; scratch of unions */
    struct regex_wide wides[N_REGEX_WIDES];            /* the newest large classes; a ring */
    uint32_t n_wides;
    regex_id singles[256], any_character; /* one byte, one character; REGEX_NONE: not created yet */
    regex_id *escaped;                    /* [n_escaped] results of regex_json_escaped, plus 1; 0: none yet */
    size_t n_escaped;
};

/* Returns the node, created if missing. NONE on failure. */
regex_id regex_node(struct regex_set *s, struct regex_node node);

/* Returns the derivative of a MULTIPLE. (regex_multiple.c) */
regex_id regex_multiple_next(struct regex_set *s, const struct regex_node *n, unsigned char byte);

/* Returns the loop of this name (regex_loop.c); the caller derives the name from all inputs of the definition. *is_new:
 * the caller must define it with regex_loop_is before any derivative is computed. is_nullable, is_whole: the properties
 * of the later definition. */
regex_id regex_loop(struct regex_set *s, struct regex_hash name, bool is_nullable, bool is_whole, bool *is_new);

/* Defines the loop. The definition must reach the loop itself only after a byte, and must be nullable as declared. */
void regex_loop_is(struct regex_set *s, regex_id loop, regex_id is);

/* Returns a union or an intersection with loops in a canonical form: an intersection of unions becomes a union of
 * intersections, without those that another one contains. Otherwise the continuation of a loop would grow with each
 * byte. */
regex_id regex_loop_order(struct regex_set *s, regex_id r);

/* Hashes `words` with the process's random numbers. */
struct regex_hash regex_hash_words(const uint64_t *words, size_t n);

/* Returns the union or intersection of ids[0..n), which are changed. */
regex_id regex_join(struct regex_set *s, enum regex_kind kind, regex_id *ids, size_t n);

/* Appends r to s->parts, or its parts if it is itself such a union or intersection; false: s has failed. */
bool regex_push_parts(struct regex_set *s, enum regex_kind kind, regex_id r);

/* Like regex_join(), but of the parts from `from` on in s->parts, which are removed. */
regex_id regex_join_parts(struct regex_set *s, enum regex_kind kind, size_t from);

/* Adds a new class of bytes. If it splits a byte class, cached derivatives are dropped. (regex_derive.c) */
void regex_split_classes(struct regex_set *s, const uint64_t bits[4]);

/* Returns the same as regex_code_points, for many ranges: characters with common first bytes share an expression.
 * (regex_characters.c) */
regex_id regex_characters(struct regex_set *s, const struct regex_range *list, size_t n);

/* Makes room for one more element, as mem_grow; false: s has failed. */
bool regex_grow(struct regex_set *s, void *array, size_t n, size_t *cap, size_t size);

bool regex_list_push(struct regex_set *s, struct regex_list *l, regex_id id);

/* Returns the next part of a union or an intersection of this kind; *r becomes the rest, REGEX_NONE after the last
 * one. */
static inline regex_id regex_take_part(const struct regex_set *s, enum regex_kind kind, regex_id *r)
{
    const struct regex_node *n = &s->nodes[*r];
    regex_id part = n->kind == kind ? n->a : *r;
    *r = n->kind == kind ? n->b : REGEX_NONE;
    return part;
}

#endif
