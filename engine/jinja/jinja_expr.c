/* The expression parser: operator precedence with an explicit stack, emitting instructions directly.
 *
 * An inline `a if c else b` is recognized after a was emitted. So every operand of a bracket begins with a jump to the
 * next instruction. When an `if` follows, the jump is redirected to c:
 *     JUMP c; A: a; JUMP end; c; JUMP_TRUE A; b; end:
 * Source: jinja2 3.1 parser.py (grammar and precedence). */
#include "engine/jinja/jinja_parser_internal.h"

#include "engine/jinja/jinja_vm.h"

#include <string.h>

enum { P_OR = 1, P_AND, P_NOT, P_COMPARE, P_ADD, P_CONCAT, P_MUL, P_POW, P_UNARY };
enum { MAX_CONCAT = 32 };

static struct jent *top(struct jparser *p) { return &p->ents[p->n_ents - 1]; }

/* Entries that count for the depth: brackets and prefix operators. */
static const bool counts[] = {
    [JE_PAREN] = true, [JE_LIST] = true,   [JE_DICT_KEY] = true, [JE_DICT_VALUE] = true,
    [JE_CALL] = true,  [JE_FILTER] = true, [JE_TEST] = true,     [JE_SUB] = true,
    [JE_ELSE] = true,  [JE_NOT] = true,    [JE_NEG] = true,      [JE_POS] = true,
};

static struct jent *push(struct jparser *p, enum jent_kind kind, int prec)
{
    uint32_t pos = jp_tok(p)->from;
    if (counts[kind] && ++p->depth > JINJA_MAX_DEPTH) {
        jp_fail(p, pos, "the expression is nested more than %d levels deep", JINJA_MAX_DEPTH);
    } else if (p->n_ents == JPARSER_MAX_ENTS) {
        jp_fail(p, pos, "the expression is too complex");
    }
    struct jent *e = &p->ents[p->n_ents];
    *e = (struct jent){.kind = (uint8_t)kind, .prec = (uint8_t)prec, .pos = pos, .patch = -1};
    p->n_ents += p->err == ERR_OK;
    return e;
}

static struct jent pop(struct jparser *p)
{
    struct jent e = p->ents[--p->n_ents];
    p->depth -= counts[e.kind];
    return e;
}

static void start_expr(struct jparser *p, bool inline_if)
{
    int32_t slot = jp_emit(p, (struct jins){.op = JI_JUMP, .pos = jp_tok(p)->from});
    p->p->code[slot].a = slot + 1;
    struct jent *e = push(p, JE_EXPR, 0);
    e->patch = slot;
    e->flag = inline_if;
    p->state = OPERAND;
}

/* Emits the operators on top of the stack whose precedence is at least prec. */
static void reduce(struct jparser *p, int prec)
{
    while (p->err == ERR_OK && top(p)->prec >= prec) {
        struct jent e = pop(p);
        switch (e.kind) {
        case JE_BINARY:
            jp_emit(p, (struct jins){.op = JI_BINARY, .n = e.op, .pos = e.pos});
            break;
        case JE_COMPARE:
            jp_emit(p, (struct jins){.op = JI_COMPARE, .n = e.op, .pos = e.pos});
            jp_patch_chain(p, e.patch);
            break;
        case JE_CONCAT:
            jp_emit(p, (struct jins){.op = JI_CONCAT, .n = (uint16_t)(e.n + 1), .pos = e.pos});
            break;
        case JE_AND:
        case JE_OR:
            jp_patch(p, e.patch);
            break;
        default: /* JE_NOT, JE_NEG, JE_POS */
            jp_emit(p, (struct jins){.op = (uint8_t)(JI_NOT + (e.kind - JE_NOT)), .pos = e.pos});
        }
    }
}

/* --- operands --------------------------------------------------------------------------------------------------- */

static void literal_string(struct jparser *p)
{
    const char *s;
    size_t n;
    uint32_t pos = jp_tok(p)->from;
    if (!jp_unquote(p, jp_tok(p), &s, &n)) {
        return;
    }
    p->i++;
    while (jp_tok(p)->kind == JT_STRING && p->err == ERR_OK) { /* 'a' 'b' is 'ab' */
        const char *more;
        size_t n_more;
        if (!jp_unquote(p, jp_tok(p), &more, &n_more)) {
            return;
        }
        char *both = arena_alloc(&p->p->arena, n + n_more + 1);
        if (both == NULL) {
            p->err = err_set(p->info, ERR_NOMEM, NULL, "no memory for the chat template");
            return;
        }
        memcpy(both, s, n);
        memcpy(both + n, more, n_more);
        s = both;
        n += n_more;
        p->i++;
    }
    jp_emit(p, (struct jins){.op = JI_CONST, .a = jp_const_str(p, s, n), .pos = pos});
}

static void literal_number(struct jparser *p)
{
    const struct jtok *t = jp_tok(p);
    const char *s = p->p->source + t->from;
    struct jv v;
    bool overflow = false;
    bool ok;
    if (t->kind == JT_INT) {
        v = jv_int(0);
        ok = jv_parse_int(s, t->to - t->from, 0, &v.i, &overflow);
    } else {
        v = jv_float(0);
        ok = jv_parse_float(s, t->to - t->from, &v.f);
    }
    if (!ok) {
        jp_fail(p, t->from, overflow ? "the number does not fit in 64 bits" : "malformed number");
        return;
    }
    jp_emit(p, (struct jins){.op = JI_CONST, .a = jp_const(p, v), .pos = t->from});
    p->i++;
}

static void operand_name(struct jparser *p)
{
    const struct jtok *t = jp_tok(p);
    if (jp_is_name(p, "not") && top(p)->kind != JE_TEST_ARG) {
        if (top(p)->prec > P_NOT) {
            jp_expected(p, "an operand");
            return;
        }
        push(p, JE_NOT, P_NOT);
        p->i++;
        return;
    }
    p->state = POSTFIX;
    bool is_true = jp_is_name(p, "true") || jp_is_name(p, "True");
    if (is_true || jp_is_name(p, "false") || jp_is_name(p, "False")) {
        jp_emit(p, (struct jins){.op = JI_CONST, .a = jp_const(p, jv_bool(is_true)), .pos = t->from});
    } else if (jp_is_name(p, "none") || jp_is_name(p, "None")) {
        jp_emit(p, (struct jins){.op = JI_CONST, .a = JPARSER_NONE_CONST, .pos = t->from});
    } else {
        int32_t name = jp_name(p, t);
        jp_emit(p, (struct jins){.op = JI_LOAD, .n = p->in_sift && name == JNAME_LOOP, .a = name, .pos = t->from});
    }
    p->i++;
}

/* Opens a bracket, or reads an empty pair. */
static void open_bracket(struct jparser *p, enum jent_kind kind, unsigned close)
{
    uint32_t pos = jp_tok(p)->from;
    push(p, kind, 0);
    p->i++;
    bool empty = jp_is_op(p, close);
    if (kind == JE_DICT_KEY) {
        jp_emit(p, (struct jins){.op = JI_DICT_NEW, .pos = pos});
    } else if (kind == JE_LIST || empty) {
        jp_emit(p, (struct jins){.op = JI_SEQ_NEW, .n = kind == JE_LIST ? JV_LIST : JV_TUPLE, .pos = pos});
    }
    if (empty && p->err == ERR_OK) {
        p->i++;
        pop(p);
        p->state = POSTFIX;
        return;
    }
    start_expr(p, true);
}

static void prefix(struct jparser *p)
{
    switch (jp_tok(p)->op) {
    case '(':
        open_bracket(p, JE_PAREN, ')');
        return;
    case '[':
        open_bracket(p, JE_LIST, ']');
        return;
    case '{':
        open_bracket(p, JE_DICT_KEY, '}');
        return;
    case '-':
    case '+':
        push(p, jp_is_op(p, '-') ? JE_NEG : JE_POS, P_UNARY);
        p->i++;
        return;
    default:
        jp_expected(p, "an expression");
    }
}

static void operand(struct jparser *p)
{
    switch (jp_tok(p)->kind) {
    case JT_NAME:
        operand_name(p);
        return;
    case JT_STRING:
        literal_string(p);
        p->state = POSTFIX;
        return;
    case JT_INT:
    case JT_FLOAT:
        literal_number(p);
        p->state = POSTFIX;
        return;
    case JT_OP:
        prefix(p);
        return;
    default:
        jp_expected(p, "an expression");
    }
}

/* --- arguments -------------------------------------------------------------------------------------------------- */

static void emit_call(struct jparser *p, const struct jent *e)
{
    int32_t names = -1;
    if (e->n_kw > 0) {
        struct jv_list *l = arena_alloc(&p->p->arena, sizeof *l);
        struct jv *at = arena_alloc(&p->p->arena, e->n_kw * sizeof *at);
        if (l == NULL || at == NULL) {
            p->err = err_set(p->info, ERR_NOMEM, NULL, "no memory for the chat template");
            return;
        }
        memcpy(at, p->keywords + e->kw_from, e->n_kw * sizeof *at);
        *l = (struct jv_list){.at = at, .n = e->n_kw, .cap = e->n_kw};
        names = jp_const(p, (struct jv){.kind = JV_TUPLE, .list = l});
        p->n_keywords = e->kw_from;
    }
    enum jop op = e->kind == JE_CALL ? JI_CALL : e->kind == JE_FILTER ? JI_FILTER : JI_TEST;
    jp_emit(
        p, (struct jins){.op = (uint8_t)op, .n = (uint16_t)e->n, .a = e->row, .b = names, .c = e->name, .pos = e->pos});
    if (op == JI_TEST && e->flag) {
        jp_emit(p, (struct jins){.op = JI_NOT, .pos = e->pos});
    }
}

static void close_call(struct jparser *p)
{
    struct jent e = pop(p);
    p->i++;
    emit_call(p, &e);
    p->state = e.kind == JE_CALL && !e.flag ? POSTFIX : OPERATOR;
}

/* Parses the beginning of an argument, or the closing parenthesis. */
static void start_arg(struct jparser *p)
{
    if (jp_is_op(p, ')')) {
        close_call(p);
        return;
    }
    const struct jtok *t = jp_tok(p);
    if (jp_is_op(p, '*') || jp_is_op(p, JO_POW)) {
        jp_fail(p, t->from, "arguments by * and ** are not supported");
        return;
    }
    struct jent *e = top(p);
    bool is_kw = t->kind == JT_NAME && t[1].kind == JT_OP && t[1].op == '=';
    if (e->n + e->n_kw == JCALL_MAX_ARGS || p->n_keywords == JPARSER_MAX_KEYWORDS) {
        jp_fail(p, t->from, "more than %d arguments", JCALL_MAX_ARGS);
        return;
    }
    if (is_kw) {
        const struct jstr *name = jp_str(p, p->p->source + t->from, t->to - t->from);
        for (uint32_t i = e->kw_from; i < p->n_keywords && name != NULL; i++) {
            if (jstr_cmp(name, p->keywords[i].str) == 0) {
                jp_fail(p, t->from, "duplicate argument");
            }
        }
        p->keywords[p->n_keywords++] = (struct jv){.kind = JV_STR, .str = name};
        e->n_kw++;
        p->i += 2;
    } else {
        if (e->n_kw > 0) {
            jp_expected(p, "a named argument");
        }
        e->n++;
    }
    start_expr(p, true);
}

/* Opens the parenthesis of a call, filter or test. */
static void open_call(struct jparser *p, struct jent e)
{
    e.kw_from = p->n_keywords;
    *push(p, e.kind, 0) = e;
    p->i++;
    start_arg(p);
}

/* An unknown name fails when a render reaches it: a condition can prevent that. */
static struct jent find_builtin(struct jparser *p, const struct jbuiltin *table, enum jent_kind kind, const char *what)
{
    const struct jtok *t = jp_tok(p);
    struct jent e = {.kind = (uint8_t)kind, .pos = t->from, .row = -1, .name = -1};
    if (t->kind != JT_NAME) {
        jp_expected(p, what);
        return e;
    }
    const char *name = p->p->source + t->from;
    size_t n = t->to - t->from;
    e.row = jbuiltin_find(table, name, n);
    if (e.row < 0) {
        e.name = jp_const_str(p, name, n);
    }
    p->i++;
    return e;
}

static void filter(struct jparser *p)
{
    struct jent e = find_builtin(p, jinja_filters, JE_FILTER, "the name of a filter");
    p->state = OPERATOR;
    if (p->err == ERR_OK && jp_is_op(p, '(')) {
        open_call(p, e);
    } else if (p->err == ERR_OK) {
        emit_call(p, &e);
    }
}

static void test(struct jparser *p)
{
    bool negated = jp_is_name(p, "not");
    p->i += negated;
    struct jent e = find_builtin(p, jinja_tests, JE_TEST, "the name of a test");
    e.flag = negated;
    if (p->err != ERR_OK) {
        return;
    }
    const struct jtok *t = jp_tok(p);
    bool has_arg =
        t->kind == JT_STRING || t->kind == JT_INT || t->kind == JT_FLOAT || jp_is_op(p, '[') || jp_is_op(p, '{');
    has_arg =
        has_arg || (t->kind == JT_NAME && !jp_is_name(p, "else") && !jp_is_name(p, "or") && !jp_is_name(p, "and"));
    p->state = OPERATOR;
    if (jp_is_op(p, '(')) {
        open_call(p, e);
    } else if (jp_is_name(p, "is")) {
        jp_fail(p, t->from, "tests cannot be chained");
    } else if (has_arg) {
        e.kind = JE_TEST_ARG;
        e.n = 1;
        *push(p, e.kind, 0) = e;
        p->state = OPERAND;
    } else {
        emit_call(p, &e);
    }
}

/* --- subscripts ------------------------------------------------------------------------------------------------- */

static void close_sub(struct jparser *p)
{
    struct jent e = pop(p);
    p->i++;
    if (!e.flag) {
        jp_emit(p, (struct jins){.op = JI_ITEM, .pos = e.pos});
    } else {
        for (; e.n < 3; e.n++) {
            jp_emit(p, (struct jins){.op = JI_CONST, .a = JPARSER_NONE_CONST, .pos = e.pos});
        }
        jp_emit(p, (struct jins){.op = JI_SLICE, .pos = e.pos});
    }
    p->state = POSTFIX;
}

/* Parses the beginning of a part of [a:b:c], or the token that ends it. */
static void start_part(struct jparser *p)
{
    for (;;) {
        struct jent *e = top(p);
        bool colon = jp_is_op(p, ':');
        if (!colon && !jp_is_op(p, ']')) {
            start_expr(p, true);
            return;
        }
        if (!colon) {
            if (e->n == 0 && !e->flag) {
                jp_expected(p, "an expression");
                return;
            }
            close_sub(p);
            return;
        }
        jp_emit(p, (struct jins){.op = JI_CONST, .a = JPARSER_NONE_CONST, .pos = e->pos});
        e->n++;
        e->flag = true;
        if (e->n > 2) {
            jp_expected(p, "']'");
            return;
        }
        p->i++;
    }
}

static void postfix(struct jparser *p)
{
    if (jp_is_op(p, '.')) {
        const struct jtok *t = &p->toks.at[p->i + 1];
        p->i++;
        if (t->kind == JT_NAME) {
            int32_t name = jp_const_str(p, p->p->source + t->from, t->to - t->from);
            jp_emit(p, (struct jins){.op = JI_ATTR, .a = name, .pos = t->from});
            p->i++;
        } else if (t->kind == JT_INT) {
            literal_number(p);
            jp_emit(p, (struct jins){.op = JI_ITEM, .pos = t->from});
        } else {
            jp_expected(p, "the name of an attribute");
        }
    } else if (jp_is_op(p, '[')) {
        push(p, JE_SUB, 0);
        p->i++;
        start_part(p);
    } else if (jp_is_op(p, '(')) {
        open_call(p, (struct jent){.kind = JE_CALL, .pos = jp_tok(p)->from});
    } else if (top(p)->kind == JE_TEST_ARG) {
        struct jent e = pop(p);
        e.kind = JE_TEST;
        emit_call(p, &e);
        p->state = OPERATOR;
    } else {
        p->state = OPERATOR;
    }
}

/* --- ends ------------------------------------------------------------------------------------------------------- */

/* Completes the condition of an inline if. */
static void finish_cond(struct jparser *p)
{
    struct jent cond = pop(p);
    struct jent *expr = top(p);
    int32_t *slot = &p->p->code[expr->patch].a;
    int32_t value = *slot;
    *slot = (int32_t)cond.n;
    jp_emit(p, (struct jins){.op = JI_JUMP_TRUE, .a = value, .pos = cond.pos});
    if (jp_is_name(p, "else")) {
        struct jent *e = push(p, JE_ELSE, 0);
        e->patch = cond.patch;
        return;
    }
    jp_emit(p, (struct jins){.op = JI_UNDEF, .pos = cond.pos});
    jp_patch(p, cond.patch);
}

/* Pops the finished operand, so that the enclosing bracket is on top. */
static void finish_expr(struct jparser *p)
{
    pop(p);
    while (top(p)->kind == JE_ELSE) {
        jp_patch(p, pop(p).patch);
        pop(p); /* the operand with this condition */
    }
}

static bool tuple_ends(const struct jparser *p)
{
    unsigned kind = jp_tok(p)->kind;
    return kind == JT_PRINT_END || kind == JT_BLOCK_END || kind == JT_EOF || jp_is_op(p, ')') ||
           jp_is_name(p, "recursive");
}

static void tuple_item(struct jparser *p, struct jent *e)
{
    jp_emit(p, (struct jins){.op = e->n == 0 ? JI_SEQ_START : JI_SEQ_ADD, .n = JV_TUPLE, .pos = jp_tok(p)->from});
    e->n++;
}

static void after_item(struct jparser *p, struct jent *e)
{
    bool is_base = e->kind == JE_BASE;
    if (jp_is_op(p, ',') && (!is_base || e->flag)) {
        tuple_item(p, e);
        p->i++;
        if (!tuple_ends(p)) {
            start_expr(p, true);
            return;
        }
        e->patch = 0; /* the comma was the last token */
    }
    if (!is_base && !jp_is_op(p, ')')) {
        jp_expected(p, "')'");
        return;
    }
    if (e->n > 0 && e->patch < 0) {
        tuple_item(p, e);
    }
    p->i += !is_base;
    pop(p);
    p->state = is_base ? DONE : POSTFIX;
}

/* After an item of a list or a dict: adds it, and reads the comma or the closing bracket. */
static void after_element(struct jparser *p, struct jent *e)
{
    bool is_list = e->kind == JE_LIST;
    unsigned close = is_list ? ']' : '}';
    bool comma = jp_is_op(p, ',');
    if (!comma && !jp_is_op(p, close)) {
        jp_expected(p, is_list ? "',' or ']'" : "',' or '}'");
        return;
    }
    jp_emit(p, (struct jins){.op = is_list ? JI_SEQ_ADD : JI_DICT_PUT, .pos = jp_tok(p)->from});
    p->i++;
    if (comma && !jp_is_op(p, close)) {
        e->kind = is_list ? JE_LIST : JE_DICT_KEY;
        start_expr(p, true);
        return;
    }
    p->i += comma;
    pop(p);
    p->state = POSTFIX;
}

static void after_key(struct jparser *p, struct jent *e)
{
    if (!jp_is_op(p, ':')) {
        jp_expected(p, "':'");
        return;
    }
    p->i++;
    e->kind = JE_DICT_VALUE;
    start_expr(p, true);
}

/* The current token continues no expression: it must continue or close the bracket on top. */
static void end_of_operand(struct jparser *p)
{
    reduce(p, P_OR);
    if (p->err != ERR_OK) {
        return;
    }
    bool is_else = jp_is_name(p, "else");
    if (top(p)->kind == JE_COND) {
        finish_cond(p);
        if (is_else) {
            p->i++;
            start_expr(p, true);
            return;
        }
    }
    if (jp_is_name(p, "if") && top(p)->kind == JE_EXPR && top(p)->flag) {
        int32_t jump = jp_emit(p, (struct jins){.op = JI_JUMP, .pos = jp_tok(p)->from});
        struct jent *e = push(p, JE_COND, 0);
        e->patch = jump;
        e->n = (uint32_t)jump + 1;
        p->i++;
        p->state = OPERAND;
        return;
    }
    finish_expr(p);
    struct jent *e = top(p);
    switch (e->kind) {
    case JE_BASE:
    case JE_PAREN:
        after_item(p, e);
        return;
    case JE_DICT_KEY:
        after_key(p, e);
        return;
    case JE_LIST:
    case JE_DICT_VALUE:
        after_element(p, e);
        return;
    case JE_SUB:
        e->n++;
        if (jp_is_op(p, ':') && e->n < 3) {
            e->flag = true;
            p->i++;
            if (jp_is_op(p, ']')) {
                close_sub(p);
            } else {
                start_part(p);
            }
        } else if (jp_is_op(p, ']')) {
            close_sub(p);
        } else {
            jp_expected(p, "']'");
        }
        return;
    default:
        if (jp_is_op(p, ',')) {
            p->i++;
            start_arg(p);
        } else if (jp_is_op(p, ')')) {
            close_call(p);
        } else {
            jp_expected(p, "',' or ')'");
        }
    }
}

/* --- operators -------------------------------------------------------------------------------------------------- */

static void compare(struct jparser *p, enum jcmp op, int n_tokens)
{
    reduce(p, P_COMPARE + 1);
    struct jent *e = top(p);
    if (e->kind == JE_COMPARE) { /* a < b < c */
        e->patch = jp_emit(p, (struct jins){.op = JI_COMPARE_NEXT, .n = e->op, .a = e->patch, .pos = e->pos});
    } else {
        e = push(p, JE_COMPARE, P_COMPARE);
    }
    e->op = (uint8_t)op;
    p->i += (size_t)n_tokens;
    p->state = OPERAND;
}

static void concat(struct jparser *p)
{
    reduce(p, P_CONCAT + 1);
    struct jent *e = top(p);
    if (e->kind != JE_CONCAT) {
        e = push(p, JE_CONCAT, P_CONCAT);
    } else if (e->n + 1 == MAX_CONCAT) {
        jp_emit(p, (struct jins){.op = JI_CONCAT, .n = MAX_CONCAT, .pos = e->pos});
        e->n = 0;
    }
    e->n++;
    p->i++;
    p->state = OPERAND;
}

static void logic(struct jparser *p, bool is_and)
{
    reduce(p, is_and ? P_AND : P_OR);
    int32_t at = jp_emit(p, (struct jins){.op = is_and ? JI_AND : JI_OR, .pos = jp_tok(p)->from});
    push(p, is_and ? JE_AND : JE_OR, is_and ? P_AND : P_OR)->patch = at;
    p->i++;
    p->state = OPERAND;
}

static bool symbol(struct jparser *p, unsigned op)
{
    static const struct {
        unsigned op, of; /* of: jbin or jcmp */
        int prec;
    } rows[] = {
        {'+', JB_ADD, P_ADD},      {'-', JB_SUB, P_ADD},      {'*', JB_MUL, P_MUL},
        {'/', JB_DIV, P_MUL},      {'%', JB_MOD, P_MUL},      {JO_FLOORDIV, JB_FLOORDIV, P_MUL},
        {JO_POW, JB_POW, P_POW},   {JO_EQ, JC_EQ, P_COMPARE}, {JO_NE, JC_NE, P_COMPARE},
        {'<', JC_LT, P_COMPARE},   {JO_LE, JC_LE, P_COMPARE}, {'>', JC_GT, P_COMPARE},
        {JO_GE, JC_GE, P_COMPARE},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].op == op && rows[i].prec == P_COMPARE) {
            compare(p, (enum jcmp)rows[i].of, 1);
            return true;
        }
        if (rows[i].op == op) {
            reduce(p, rows[i].prec);
            push(p, JE_BINARY, rows[i].prec)->op = (uint8_t)rows[i].of;
            p->i++;
            p->state = OPERAND;
            return true;
        }
    }
    if (op == '~') {
        concat(p);
        return true;
    }
    if (op == '|') {
        reduce(p, P_UNARY);
        p->i++;
        filter(p);
        return true;
    }
    if (op == '(') { /* calls the result of a filter */
        reduce(p, P_UNARY);
        open_call(p, (struct jent){.kind = JE_CALL, .flag = true, .pos = jp_tok(p)->from});
        return true;
    }
    return false;
}

static void operator_(struct jparser *p)
{
    const struct jtok *t = jp_tok(p);
    if (t->kind == JT_OP && symbol(p, t->op)) {
        return;
    }
    if (jp_is_name(p, "and") || jp_is_name(p, "or")) {
        logic(p, jp_is_name(p, "and"));
    } else if (jp_is_name(p, "in")) {
        compare(p, JC_IN, 1);
    } else if (jp_is_name(p, "not") && jp_tok_is(p, t + 1, "in")) {
        compare(p, JC_NOT_IN, 2);
    } else if (jp_is_name(p, "is")) {
        reduce(p, P_UNARY);
        p->i++;
        test(p);
    } else {
        end_of_operand(p);
    }
}

static void run(struct jparser *p)
{
    static void (*const steps[])(struct jparser *
                                 p) = {[OPERAND] = operand, [POSTFIX] = postfix, [OPERATOR] = operator_};
    while (p->err == ERR_OK && p->state != DONE) {
        steps[p->state](p);
    }
}

static void begin(struct jparser *p, bool tuple, bool inline_if)
{
    p->n_ents = 0;
    p->depth = 0;
    p->n_keywords = 0;
    push(p, JE_BASE, 0)->flag = tuple;
    start_expr(p, inline_if);
}

void jp_expression(struct jparser *p, bool tuple, bool inline_if)
{
    begin(p, tuple, inline_if);
    run(p);
}

void jp_filters(struct jparser *p, bool first_without_bar)
{
    begin(p, false, false);
    p->state = OPERATOR;
    if (first_without_bar) {
        filter(p);
    }
    run(p);
}
