/* How a set keeps its expressions; shared by the files of regex. */
#ifndef INFCGI_REGEX_REGEX_INTERNAL_H
#define INFCGI_REGEX_REGEX_INTERNAL_H

#include "engine/base/table.h"
#include "engine/regex/regex.h"

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
    REGEX_K_LOOP,     /* what set->loops[a] is defined as, which may contain this node again after a first byte */
};

struct regex_node {
    unsigned char kind;
    bool is_nullable;
    bool is_plain : 1;   /* without AND, NOT and LOOP: then it matches something, unless it is REGEX_NONE */
    bool is_whole : 1;   /* of characters: made of classes without what only a complement gives; see regex_is_whole */
    bool has_loop : 1;   /* a LOOP, or a union or an intersection with one: kept as a union of intersections */
    unsigned char known; /* of others: 1 it matches something, 2 nothing, 0 not known yet */
    uint32_t a, b, min, max;
    uint32_t seen;               /* by the call of regex_split_groups of this number */
    struct regex_hash hash, sum; /* sum: of OR and AND, of the parts' hashes */
};

struct regex_class {
    uint64_t bits[4];
    uint64_t members[4]; /* the classes of bytes it is made of, where n_members is that of the set */
    uint32_t n_members;
    uint32_t seen; /* by the call of regex_split_groups of this number */
};

/* An expression that is defined in terms of itself. */
struct regex_loop {
    struct regex_hash name;
    regex_id is; /* REGEX_NONE until it is defined */
};

/* What a class of many ranges became. */
enum { N_REGEX_WIDES = 16 };
struct regex_wide {
    struct regex_hash ranges;
    regex_id id;
};

/* A derivative that was found. */
struct regex_memo {
    uint64_t key; /* node << 8 | class of bytes */
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
    struct table table;       /* of nodes by their form, without NONE */
    struct regex_memo *memo;  /* [n_memo] derivatives that were found */
    size_t n_memo, cap_memo;
    struct table memo_table; /* of these by their key */
    size_t n_work, max_work; /* regex_spend's */
    uint32_t n_splits;       /* calls of regex_split_groups */
    bool has_byte_classes;
    uint32_t n_members; /* times that the classes of bytes were found */
    int n_byte_classes;
    unsigned char byte_class[256], byte_of_class[256]; /* its first byte */
    struct regex_list work, parts;                     /* scratch of regex_next; of unions */
    struct regex_wide wides[N_REGEX_WIDES]; /* large classes that were made, the one that was made last anywhere */
    uint32_t n_wides;
    regex_id singles[256], any_character; /* one byte, one character; REGEX_NONE: not made yet */
    regex_id *escaped;                    /* [n_escaped] what regex_json_escaped made, plus 1; 0 = nothing yet */
    size_t n_escaped;
};

/* The node, made if it is not there. NONE on failure. */
regex_id regex_node(struct regex_set *s, struct regex_node node);

/* The derivative of a MULTIPLE. (regex_multiple.c) */
regex_id regex_multiple_next(struct regex_set *s, const struct regex_node *n, unsigned char byte);

/* Returns the loop of this name (regex_loop.c), which the caller derives from all that the definition depends on. *is_new: the caller must
 * define it with regex_loop_is before a derivative is asked for. is_nullable, is_whole: whether the definition will be. */
regex_id regex_loop(struct regex_set *s, struct regex_hash name, bool is_nullable, bool is_whole, bool *is_new);

/* Defines the loop. The definition reaches the loop itself only after a byte, and is nullable as regex_loop was told. */
void regex_loop_is(struct regex_set *s, regex_id loop, regex_id is);

/* Returns a union or an intersection with loops in the form in which few differ: an intersection of unions becomes a union of
 * intersections, and one of these that another contains is left out. Else what follows a loop would grow with each byte. */
regex_id regex_loop_order(struct regex_set *s, regex_id r);

/* Hash of `words` with the numbers that this process drew. */
struct regex_hash regex_hash_words(const uint64_t *words, size_t n);

/* Union or intersection of ids[0..n), which are changed. */
regex_id regex_join(struct regex_set *s, enum regex_kind kind, regex_id *ids, size_t n);

/* Puts r behind s->parts, or its parts, where it is such a union or intersection itself; false: s has failed. */
bool regex_push_parts(struct regex_set *s, enum regex_kind kind, regex_id r);

/* The same of what is behind `from` in s->parts, which is taken from there. */
regex_id regex_join_parts(struct regex_set *s, enum regex_kind kind, size_t from);

/* A class of bytes is new: where it takes apart bytes that had one class, derivatives are to be found anew. (regex_derive.c) */
void regex_split_classes(struct regex_set *s, const uint64_t bits[4]);

/* Returns what regex_code_points does, of many ranges: characters that begin alike are one expression. (regex_characters.c) */
regex_id regex_characters(struct regex_set *s, const struct regex_range *ranges, size_t n);

bool regex_list_push(struct regex_set *s, struct regex_list *l, regex_id id);

#endif
