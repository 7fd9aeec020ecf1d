/* How a set keeps its expressions; shared by the files of regex. */
#ifndef INFCGI_GRAMMAR_REGEX_INTERNAL_H
#define INFCGI_GRAMMAR_REGEX_INTERNAL_H

#include "engine/grammar/regex.h"

enum regex_kind {
    REGEX_K_NONE,
    REGEX_K_EMPTY,
    REGEX_K_CLASS,    /* a: of set->classes */
    REGEX_K_CONCAT,   /* a b; a is no CONCAT */
    REGEX_K_OR,       /* a | b: a is no OR, b may be one; in order of ids, of which no two are equal */
    REGEX_K_AND,      /* the same */
    REGEX_K_NOT,      /* a */
    REGEX_K_REPEAT,   /* a, min .. max times */
    REGEX_K_MULTIPLE, /* digits that make a multiple: a, b, min and max as regex_multiple.c packs them */
};

struct regex_node {
    unsigned char kind;
    bool is_nullable;
    bool is_plain;       /* without AND and NOT: then it matches something, unless it is REGEX_NONE */
    unsigned char known; /* of others: 1 it matches something, 2 nothing, 0 not known yet */
    uint32_t a, b, min, max;
    struct regex_hash hash, sum; /* sum: of OR and AND, of the parts' hashes */
};

struct regex_class {
    uint64_t bits[4];
    uint64_t members[4];  /* the classes of bytes it is made of, where n_members is that of the set */
    uint32_t n_members;
    uint32_t seen; /* by the call of regex_split_groups of this number */
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
    uint32_t *class_table;   /* [n_class_table] by bits: a class plus 1; 0 = free */
    size_t n_class_table;
    uint32_t *table;         /* [n_table] of nodes by hash, 0 = free: NONE is not in it */
    size_t n_table;
    uint64_t *memo_keys; /* [n_memo] node << 8 | class of bytes, plus 1; 0 = free */
    regex_id *memo_values;
    size_t n_memo, n_memoed;
    size_t n_work, max_work; /* regex_spend's */
    uint32_t n_splits; /* calls of regex_split_groups */
    bool has_byte_classes;
    uint32_t n_members; /* times that the classes of bytes were found */
    int n_byte_classes;
    unsigned char byte_class[256], byte_of_class[256]; /* its first byte */
    struct regex_list work, parts;                     /* scratch of regex_next; of unions */
    regex_id singles[256], any_character;              /* one byte, one character; REGEX_NONE: not made yet */
    regex_id *escaped;                                 /* [n_escaped] what regex_json_escaped made, plus 1; 0 = nothing yet */
    size_t n_escaped;
};

/* The node, made if it is not there. NONE on failure. */
regex_id regex_node(struct regex_set *s, struct regex_node node);

/* The derivative of a MULTIPLE. (regex_multiple.c) */
regex_id regex_multiple_next(struct regex_set *s, const struct regex_node *n, unsigned char byte);

/* Union or intersection of ids[0..n), which are changed. */
regex_id regex_join(struct regex_set *s, enum regex_kind kind, regex_id *ids, size_t n);

/* Puts r behind s->parts, or its parts, where it is such a union or intersection itself; false: s has failed. */
bool regex_push_parts(struct regex_set *s, enum regex_kind kind, regex_id r);

/* The same of what is behind `from` in s->parts, which is taken from there. */
regex_id regex_join_parts(struct regex_set *s, enum regex_kind kind, size_t from);

/* A class of bytes is new: where it takes apart bytes that had one class, derivatives are to be found anew. (regex_derive.c) */
void regex_split_classes(struct regex_set *s, const uint64_t bits[4]);

bool regex_list_push(struct regex_set *s, struct regex_list *l, regex_id id);

#endif
