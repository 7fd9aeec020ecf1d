/* Shared by the statement and the expression parser. Instructions are emitted while tokens are read. Nothing is
 * recursive: open brackets and operators are on the stack `ents`, open blocks on `blocks`. `err` keeps the first
 * failure; later emits are harmless, and the loops stop. Threads: belongs to one thread. */
#ifndef INFCGI_JINJA_JINJA_PARSER_INTERNAL_H
#define INFCGI_JINJA_JINJA_PARSER_INTERNAL_H

#include "engine/jinja/jinja_code.h"
#include "engine/jinja/jinja_lexer.h"

enum { JPARSER_MAX_ENTS = 1024, JPARSER_MAX_KEYWORDS = 1024, JPARSER_MAX_NAMES = 4096, JPARSER_NONE_CONST = 0 };

/* Entries of the expression stack. */
enum jent_kind {
    JE_BASE, /* the whole expression; n: items of a tuple so far */
    JE_EXPR, /* one operand of a bracket or the base; patch: its first instruction, a jump to the next */
    JE_PAREN,
    JE_LIST,
    JE_DICT_KEY,
    JE_DICT_VALUE,
    JE_CALL,
    JE_FILTER,
    JE_TEST,
    JE_TEST_ARG, /* the one argument of a test without parentheses */
    JE_SUB,
    JE_COND, /* after `if`; patch: jump to the end, n: first instruction of the condition */
    JE_ELSE, /* after its `else`; patch: jump to the end */
    JE_BINARY,
    JE_COMPARE,
    JE_CONCAT,
    JE_AND,
    JE_OR,
    JE_NOT,
    JE_NEG,
    JE_POS,
};

struct jent {
    uint8_t kind, prec; /* prec 0: not an operator */
    uint8_t op;         /* jbin or jcmp */
    bool flag; /* JE_TEST*: negated; JE_EXPR: can have an inline if; JE_BASE: can be a tuple; JE_SUB: has a colon;
                 * JE_CALL: follows a filter */
    int32_t patch;
    uint32_t n, n_kw, kw_from;
    int32_t row, name; /* of a filter or test; name: literal when unknown */
    uint32_t pos;
};

enum jblock_kind { JB_IF, JB_FOR, JB_FOR_ELSE, JB_SET, JB_FILTER, JB_MACRO, JB_GENERATION };

struct jblock {
    enum jblock_kind kind;
    uint32_t pos;
    int32_t next, end; /* if: pending jump, chain of jumps to the end; for: FOR_NEXT, chain of breaks */
    size_t tok;        /* set, filter: token of the target or the filters */
    bool had_else;
};

struct jparser {
    struct jprogram *p;
    struct jtoks toks;
    size_t i;
    struct err_info *info;
    enum err err;
    enum { OPERAND, POSTFIX, OPERATOR, DONE } state; /* expressions: what can follow */
    struct jent ents[JPARSER_MAX_ENTS + 1];          /* one more, to write to after a failure */
    uint32_t n_ents;
    int depth;    /* of brackets and prefix operators */
    bool in_sift; /* in the condition of a for block, where `loop` is the enclosing loop */
    struct jv keywords[JPARSER_MAX_KEYWORDS];
    uint32_t n_keywords;
    struct jblock blocks[JINJA_MAX_DEPTH];
    uint32_t n_blocks;
};

/* Emits an instruction; returns its index. */
int32_t jp_emit(struct jparser *p, struct jins in);
/* Makes instruction `at` jump to the next emitted one. */
void jp_patch(struct jparser *p, int32_t at);
/* The same for each jump of a chain: a jump holds the index of the next one, the last one -1. */
void jp_patch_chain(struct jparser *p, int32_t at);
/* Adds a literal; returns its index. */
int32_t jp_const(struct jparser *p, struct jv v);
int32_t jp_const_str(struct jparser *p, const char *s, size_t n);
const struct jstr *jp_str(struct jparser *p, const char *s, size_t n);
/* Returns the index of the variable name. */
int32_t jp_name(struct jparser *p, const struct jtok *t);

const struct jtok *jp_tok(const struct jparser *p);
bool jp_is_op(const struct jparser *p, unsigned op);
bool jp_is_name(const struct jparser *p, const char *name);
bool jp_tok_is(const struct jparser *p, const struct jtok *t, const char *name);
/* Records "expected X, found the current token". */
void jp_expected(struct jparser *p, const char *what);
void jp_fail(struct jparser *p, uint32_t pos, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Parses an expression at p->i and emits it. tuple: `a, b` is allowed; inline_if: `a if b else c` is allowed. */
void jp_expression(struct jparser *p, bool tuple, bool inline_if);
/* Parses filters for the value on top of the stack: `| a | b`, or `a | b` if the first bar is missing. */
void jp_filters(struct jparser *p, bool first_without_bar);
/* Decodes a string token, without quotes and escapes, into the program's arena. */
bool jp_unquote(struct jparser *p, const struct jtok *t, const char **out, size_t *n);

#endif
