/* The tree of a pattern; shared by the files of regex_parse. */
#ifndef INFCGI_REGEX_REGEX_PARSE_INTERNAL_H
#define INFCGI_REGEX_REGEX_PARSE_INTERNAL_H

#include "engine/regex/regex_parse.h"
#include "engine/regex/regex_reader.h"

/* The nodes of a pattern's tree, in postfix order: children before their parent, the last one next to it. */
enum regex_tree_kind {
    REGEX_T_ATOM,     /* id: strings of characters, independent of the context */
    REGEX_T_BEGIN,    /* ^ */
    REGEX_T_END,      /* $ */
    REGEX_T_EDGE,     /* \b; min = 1: \B */
    REGEX_T_SEQUENCE, /* its n children */
    REGEX_T_EITHER,   /* one of its n children */
    REGEX_T_REPEAT,   /* its child, min .. max times, max > 0 */
    REGEX_T_AHEAD     /* the following text begins with its child; min = 1: it does not */
};

struct regex_tree_node {
    unsigned char kind;
    bool is_plain; /* contains only ATOM, SEQUENCE, EITHER and REPEAT */
    bool has_edge;
    uint32_t first; /* first node of its subtree */
    uint32_t n, min, max;
    regex_id id; /* of ATOM; of other plain nodes after regex_look computed it */
};

struct regex_tree {
    struct regex_tree_node *nodes; /* the last is the root */
    size_t n, cap;
    bool looks; /* has EDGE, AHEAD, or ^ or $ that can repeat: regex_look handles it, regex_fold cannot */
};

/* Convert the tree to the strings that it matches, anywhere or as a whole. flags: REGEX_SEARCH, REGEX_OPEN; others are
 * ignored. regex_fold returns smaller expressions. (regex_fold.c, regex_look.c) ERR_NOMEM, ERR_GRAMMAR_LIMIT. */
MUST_CHECK enum err regex_fold(struct regex_set *s, const struct regex_tree *tree, unsigned flags, regex_id *out);
MUST_CHECK enum err regex_look(struct regex_set *s, struct regex_tree *tree, unsigned flags, regex_id *out);

/* Returns the text that can follow the match of a pattern with these flags: nothing, any characters, or any bytes. */
regex_id regex_follows(struct regex_set *s, unsigned flags);

/* Returns `any` characters and then r; if r is REGEX_ALL, returns r. */
regex_id regex_after_any(struct regex_set *s, regex_id any, regex_id r);

/* Simplifies a repeat at the begin or end of r that any text precedes or follows: its minimum suffices, because that
 * text includes further iterations. */
regex_id regex_cut_begin(struct regex_set *s, regex_id r);
regex_id regex_cut_end(struct regex_set *s, regex_id r);

/* Returns ERR_INVALID_GRAMMAR with this text and offset. */
MUST_CHECK enum err regex_reader_bad(struct regex_reader *r, size_t at, const char *what);

/* Adds the ranges of list[0..n), which are sorted, or all other characters. */
MUST_CHECK enum err regex_ranges_add_all(struct regex_ranges *to, const struct regex_range *list, size_t n,
                                         bool others);

/* Read an escape after the backslash, or a class after the [, and return an expression for one character.
 * (regex_parse_class.c) */
MUST_CHECK enum err regex_read_escape(struct regex_reader *r, regex_id *out);
MUST_CHECK enum err regex_read_class(struct regex_reader *r, regex_id *out);

#endif
