/* What regex_parse and other readers of grammars share: where the reader stands, and sets of code points. */
#ifndef INFCGI_REGEX_REGEX_PARSE_INTERNAL_H
#define INFCGI_REGEX_REGEX_PARSE_INTERNAL_H

#include "engine/regex/regex_parse.h"

/* Growing list of ranges in any order. */
struct regex_ranges {
    struct regex_range *list;
    size_t n, cap;
};

/* What a pattern is made of, in postfix order: children before their parent, the last one next to it. */
enum regex_tree_kind {
    REGEX_T_ATOM,     /* id: strings of characters, whatever is around them */
    REGEX_T_BEGIN,    /* ^ */
    REGEX_T_END,      /* $ */
    REGEX_T_EDGE,     /* \b; min = 1: \B */
    REGEX_T_SEQUENCE, /* its n children */
    REGEX_T_EITHER,   /* one of its n children */
    REGEX_T_REPEAT,   /* its child, min .. max times, max > 0 */
    REGEX_T_AHEAD     /* what follows begins with its child; min = 1: it does not */
};

struct regex_tree_node {
    unsigned char kind;
    bool is_plain; /* only ATOM, SEQUENCE, EITHER and REPEAT are in it */
    bool has_edge;
    uint32_t first; /* node of its subtree */
    uint32_t n, min, max;
    regex_id id; /* of ATOM; of other plain ones once regex_look has found it */
};

struct regex_tree {
    struct regex_tree_node *nodes; /* the last is the root */
    size_t n, cap;
    bool looks; /* has EDGE, AHEAD, or ^ or $ that may come twice: regex_look reads it, and regex_fold cannot */
};

/* The strings that the tree matches, anywhere or as a whole. flags: REGEX_SEARCH, REGEX_OPEN; others are ignored. regex_fold gives
 * smaller expressions. (regex_fold.c, regex_look.c) ERR_NOMEM, ERR_GRAMMAR_LIMIT. */
MUST_CHECK enum err regex_fold(struct regex_set *s, const struct regex_tree *tree, unsigned flags, regex_id *out);
MUST_CHECK enum err regex_look(struct regex_set *s, struct regex_tree *tree, unsigned flags, regex_id *out);

/* Returns what may follow the match of a pattern with these flags: nothing, any characters, or any bytes. */
regex_id regex_follows(struct regex_set *s, unsigned flags);

/* Returns `any` characters and then r; REGEX_ALL is itself after any. */
regex_id regex_after_any(struct regex_set *s, regex_id any, regex_id r);

/* Where any text may precede r, or follow it, a repeat there comes its least times, as that text says the others. */
regex_id regex_cut_begin(struct regex_set *s, regex_id r);
regex_id regex_cut_end(struct regex_set *s, regex_id r);

struct regex_reader {
    struct regex_set *set;
    const char *pattern;
    size_t n, at;
    struct err_info *info;
    struct regex_ranges ranges; /* scratch of one class */
    size_t n_wide;              /* ranges beyond ASCII so far: each takes microseconds */
    size_t n_properties;        /* \p{..} and the like so far */
    unsigned flags;             /* of regex_parse_with */
    regex_id dot;               /* what `.` is, once it is known; else REGEX_NONE */
};

/* ERR_INVALID_GRAMMAR: this, at that offset. */
MUST_CHECK enum err regex_reader_bad(struct regex_reader *r, size_t at, const char *what);

/* Takes c if it is next. */
bool regex_reader_takes(struct regex_reader *r, char c);

/* The character at r->at, which is not the end; r->at goes behind it. The pattern is valid UTF-8. */
uint32_t regex_reader_character(struct regex_reader *r);

/* `n` hexadecimal digits; false, with nothing taken, where they are not. */
bool regex_reader_takes_hex(struct regex_reader *r, size_t n, uint32_t *value);

/* n}, n,} or n,m} behind a brace; false, with nothing taken, where none is. max: or REGEX_UNBOUNDED. */
bool regex_reader_takes_counts(struct regex_reader *r, uint32_t *min, uint32_t *max);

MUST_CHECK enum err regex_ranges_add(struct regex_ranges *to, uint32_t first, uint32_t last);

/* One character of r->ranges, which are empty behind that, or of all others. */
MUST_CHECK enum err regex_reader_class(struct regex_reader *r, bool others, regex_id *out);

/* The two below begin behind what told them apart, a backslash or a [, and give one character's expression. */
MUST_CHECK enum err regex_read_escape(struct regex_reader *r, regex_id *out);
MUST_CHECK enum err regex_read_class(struct regex_reader *r, regex_id *out);

/* What `.` matches: all but ends of lines. */
regex_id regex_any_but_line_ends(struct regex_set *s);
regex_id regex_any_but_newline(struct regex_set *s);
regex_id regex_any_character(struct regex_set *s);

#endif
