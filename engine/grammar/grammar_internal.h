/* Declarations shared by the files of grammar. */
#ifndef INFCGI_GRAMMAR_GRAMMAR_INTERNAL_H
#define INFCGI_GRAMMAR_GRAMMAR_INTERNAL_H

#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "engine/base/table.h"
#include "engine/grammar/grammar_build.h"

#include <pthread.h>
#include <stdatomic.h>

/* A symbol's kind, or the end of a rule, in the two top bits; its number in the others. */
#define SYMBOL_LEXEME    0u
#define SYMBOL_TOKEN     (1u << 30)
#define SYMBOL_RULE      (2u << 30)
#define SYMBOL_END       (3u << 30)
#define SYMBOL_KIND(s)   ((s) & (3u << 30))
#define SYMBOL_NUMBER(s) ((s) & ~(3u << 30))

/* A rule: alternatives, stored consecutively in grammar.slots, each with an end; or a repeat of `of`; or the members of
 * a set, their separator and an end. */
struct grammar_rule {
    bool is_repeat, is_set, is_nullable, is_productive;
    uint32_t min, max; /* of a repeat and of a set */
    uint32_t n_must;   /* of a set: number of required members */
    uint32_t first,
        n; /* its alternatives, in grammar.alternatives; of a repeat the slot, of a set the members, in grammar.slots */
    uint32_t last_added; /* while it is built: its newest alternative plus 1; each alternative names the previous one */
};

enum { MEMBER_MUST_BE = 1, MEMBER_MAY_REPEAT = 2, MEMBER_CAN_BE = 4 /* it derives a string */ };

struct grammar_alternative {
    uint32_t first, n; /* symbols in grammar.slots, without the end */
    uint32_t before;   /* while it is built */
};

/* The rest of the expression `index`, one of several that are followed in parallel. */
struct lexer_part {
    uint32_t index;
    regex_id left;
};

/* A lexer state: the rests of the expressions that continue, by index. */
struct lexer_state {
    uint32_t first, n; /* of lexer.parts */
    uint32_t next;     /* its row of lexer.next, plus 1; 0: none yet */
    bool accepts;      /* a rest is nullable */
    bool has_ends;     /* all nullable rests have indexes below 64, and `ends` has their bits */
    uint64_t ends;
    struct regex_hash near; /* equal for states that no token distinguishes */
};
enum { LEXER_DEAD = 0 };

/* Plain text: complete UTF-8 characters that a JSON string can contain unescaped, so without control characters, quotes
 * and backslashes. Its automaton is in PLAIN_WHOLE between characters and in the other states within one.
 * (grammar_plain.c) */
enum { PLAIN_WHOLE = 0, PLAIN_STATES = 8, PLAIN_NOT = 8 };
unsigned plain_step(unsigned state, unsigned char byte);

/* A byte that represents all bytes of its class that lead to the same state. */
struct plain_byte {
    unsigned char byte, next;
};

/* Within `alive` bytes of any plain text an expression continues, and within `quiet` bytes it does not end. */
struct plain_reach {
    regex_id of;
    unsigned char alive, quiet;
    bool is_whole; /* the search is complete: the expression ends after `quiet`, or needs too many states */
};

struct lexer {
    struct regex_set *set;
    const unsigned char *byte_class;
    int n_classes;
    struct lexer_state *states; /* 0: no rest is left */
    uint32_t n_states, cap_states;
    struct lexer_part *parts;
    uint32_t n_parts, cap_parts;
    unsigned char byte_of[256]; /* of a class */
    uint32_t *next;             /* rows of n_classes: state plus 1, 0: not computed yet */
    unsigned char *like;        /* rows: the first class that leads to the same state */
    uint32_t n_rows, cap_rows, cap_likes;
    struct table table; /* of states by their parts */
    uint32_t near_bytes;
    struct plain_byte *plain; /* bytes of all plain states, stored consecutively */
    uint32_t plain_first[PLAIN_STATES + 1];
    struct plain_reach *reaches;
    uint32_t n_reaches, cap_reaches;
    struct table reach_table; /* of reaches by expression */
};

struct grammar {
    atomic_int refs;
    pthread_mutex_t lock; /* guards the lexer, which grows while it is walked */
    struct lexer lexer;
    regex_id *lexemes;
    uint32_t n_lexemes, cap_lexemes;
    struct grammar_rule *rules;
    uint32_t n_rules, cap_rules;
    struct grammar_alternative *alternatives;
    uint32_t n_alternatives, cap_alternatives;
    uint32_t *slots;
    uint32_t n_slots, cap_slots, cap_slot_is;
    uint32_t *slot_rule;         /* [n_slots] the slot's rule */
    unsigned char *slot_is;      /* [n_slots] of members of sets: MEMBER_* */
    uint32_t start;              /* a rule with one alternative: the grammar's start */
    enum err err;                /* while it is built */
    struct mem_account *account; /* OPTIONAL: account for the grammar's memory; owned */
};

/* Makes room for `more` elements of `size` bytes after n; false: no memory. */
static inline bool grammar_reserve(void **array, uint32_t n, uint32_t more, uint32_t *cap, size_t size,
                                   enum mem_purpose purpose)
{
    if (*array != NULL && n + more <= *cap) {
        return true;
    }
    if (*cap > UINT32_MAX / 2 || more > UINT32_MAX - 16 - n) {
        return false;
    }
    uint32_t wanted = MAX_OF(2 * *cap, n + more + 16);
    void *p = mem_realloc(*array, wanted * size, purpose);
    if (p == NULL) {
        return false;
    }
    *array = p;
    *cap = wanted;
    return true;
}

/* Returns the bytes that the grammar uses. */
size_t grammar_bytes(const struct grammar *g);

/* grammar_lexer.c. Errors: regex_ok's. */
MUST_CHECK enum err lexer_init(struct lexer *l, struct regex_set *set);
void lexer_fini(struct lexer *l);
size_t lexer_bytes(const struct lexer *l);
/* Finds the state of these parts; none is REGEX_NONE. */
MUST_CHECK enum err lexer_state_of(struct lexer *l, const struct lexer_part *parts, uint32_t n, uint32_t *out);
/* Finds the state after a byte; LEXER_DEAD: no expression continues. */
MUST_CHECK enum err lexer_step_anew(struct lexer *l, uint32_t state, unsigned char byte, uint32_t *out);
static inline enum err lexer_step(struct lexer *l, uint32_t state, unsigned char byte, uint32_t *out)
{
    uint32_t row = l->states[state].next;
    uint32_t next = row != 0 ? l->next[(size_t)(row - 1) * (size_t)l->n_classes + l->byte_class[byte]] : 0;
    *out = next - 1;
    return next != 0 ? ERR_OK : lexer_step_anew(l, state, byte, out);
}

/* grammar_plain.c. *out: length in bytes, 0 .. PLAIN_MAX_DEPTH, up to which for any plain text no expression ends and
 * not all die. It is smaller if finding out needs too many states. lexer_init_plain: ERR_NOMEM. */
enum { PLAIN_MIN_DEPTH = 4, PLAIN_MAX_DEPTH = 32 }; /* lengths below the minimum become 0 */
MUST_CHECK enum err lexer_init_plain(struct lexer *l);
MUST_CHECK enum err lexer_plain_depth(struct lexer *l, uint32_t state, uint32_t *out);

/* A node of the trie, in depth-first order. */
struct vocab_node {
    uint32_t end;              /* the node after its subtree */
    uint32_t first;            /* index in trie.order of the subtree's first token */
    uint16_t n;                /* tokens that end here */
    unsigned char byte, depth; /* depth of the first level: 1 */
};

/* A trie of the tokens that are not plain text of at most `depth` bytes. */
struct vocab_trie {
    uint32_t depth; /* 0: trie of all tokens */
    struct vocab_node *nodes;
    uint32_t n_nodes;
    int32_t *order; /* [n_order] tokens sorted by their bytes */
    uint32_t n_order;
    uint64_t *plain; /* a bit per token that is such plain text */
};
enum { VOCAB_TRIES = 5 };

/* Tokens that a lexer state alone allows, because it continues within them, and nodes of a trie at which an expression
 * can end. */
struct vocab_walk {
    struct regex_hash key;
    uint64_t *bits;
    uint32_t *nodes;
    uint32_t n_nodes, n_visited;
    uint32_t trie;
    uint64_t worth; /* of a cached walk: the lowest of its group is evicted */
};

struct grammar_vocab {
    const struct tokenizer *tokenizer;
    int32_t n_vocab;
    struct vocab_trie tries[VOCAB_TRIES]; /* by depth */
    uint32_t n_tokens;                    /* in the first trie */
    char *bytes;                          /* of all tokens */
    uint32_t *starts;                     /* [n_vocab + 1] */
    unsigned char *is_end;                /* [n_vocab] 1: ends a sequence; 2: has no bytes */
    int32_t *ends;                        /* [n_ends] ids that end a sequence */
    int32_t n_ends;
    pthread_mutex_t lock;     /* guards the following fields */
    struct vocab_walk *walks; /* [VOCAB_MAX_WALKS]: groups of VOCAB_WAYS, by the key */
    uint64_t clock;           /* the highest worth of an evicted walk */
};
enum { VOCAB_MAX_WALKS = 1024, VOCAB_WAYS = 16 };

#endif
