/* The statement parser: text, prints and blocks, emitting instructions directly. Open blocks are on an explicit stack.
 * If code in the template must run before text that precedes it (assignment targets, filters of a block), the tokens
 * are skipped and read again later. Source: jinja2 3.1 parser.py and compiler.py (grammar and scopes). */
#include "engine/base/hex.h"
#include "engine/jinja/jinja_parser_internal.h"

#include "engine/base/utf8.h"

#include <stdarg.h>
#include <string.h>

/* --- tokens and messages ---------------------------------------------------------------------------------------- */

const struct jtok *jp_tok(const struct jparser *p) { return &p->toks.at[p->i]; }

bool jp_is_op(const struct jparser *p, unsigned op) { return jp_tok(p)->kind == JT_OP && jp_tok(p)->op == op; }

bool jp_tok_is(const struct jparser *p, const struct jtok *t, const char *name)
{
    size_t n = strlen(name);
    return t->kind == JT_NAME && t->to - t->from == n && memcmp(p->p->source + t->from, name, n) == 0;
}

bool jp_is_name(const struct jparser *p, const char *name) { return jp_tok_is(p, jp_tok(p), name); }

void jp_fail(struct jparser *p, uint32_t pos, const char *fmt, ...)
{
    if (p->err != ERR_OK) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    p->err = jinja_vfail_at(p->p->source, pos, p->info, fmt, args);
    va_end(args);
}

void jp_expected(struct jparser *p, const char *what)
{
    const struct jtok *t = jp_tok(p);
    if (t->kind == JT_EOF) {
        jp_fail(p, t->from, "expected %s, found the end of the template", what);
        return;
    }
    char found[40];
    size_t n = 0;
    for (size_t i = t->from; i < t->to && n + 4 < sizeof found; i++) {
        unsigned char c = (unsigned char)p->p->source[i];
        found[n++] = c < 0x20 || c == 0x7F ? '?' : (char)c;
    }
    n -= utf8_incomplete_tail(found, n);
    jp_fail(p, t->from, "expected %s, found '%.*s'", what, (int)n, found);
}

static void no_memory(struct jparser *p)
{
    if (p->err == ERR_OK) {
        p->err = err_set(p->info, ERR_NOMEM, NULL, "no memory for the chat template");
    }
}

static void expect_op(struct jparser *p, unsigned op, const char *what)
{
    if (jp_is_op(p, op)) {
        p->i++;
    } else {
        jp_expected(p, what);
    }
}

static void expect_end(struct jparser *p, enum jtok_kind end)
{
    if (jp_tok(p)->kind == end) {
        p->i++;
    } else {
        jp_expected(p, end == JT_PRINT_END ? "'}}'" : "'%}'");
    }
}

/* --- emitting --------------------------------------------------------------------------------------------------- */

/* Makes room for one more element; returns false, with the error recorded, if there is none. */
static bool grow(struct jparser *p, void *array, size_t n, size_t *cap, size_t size)
{
    enum err err = mem_grow(array, n, cap, size, MEM_GENERAL);
    if (err != ERR_OK) {
        no_memory(p);
    }
    return err == ERR_OK;
}

int32_t jp_emit(struct jparser *p, struct jins in)
{
    struct jprogram *g = p->p;
    if (p->err != ERR_OK || !grow(p, &g->code, g->n_code, &g->cap_code, sizeof *g->code)) {
        return 0; /* the first instruction always exists, so patching it is harmless */
    }
    g->code[g->n_code] = in;
    return (int32_t)g->n_code++;
}

void jp_patch(struct jparser *p, int32_t at) { p->p->code[at].a = (int32_t)p->p->n_code; }

void jp_patch_chain(struct jparser *p, int32_t at)
{
    while (at >= 0) {
        int32_t next = p->p->code[at].a;
        jp_patch(p, at);
        at = next;
    }
}

int32_t jp_const(struct jparser *p, struct jv v)
{
    struct jprogram *g = p->p;
    if (p->err != ERR_OK || !grow(p, &g->consts, g->n_consts, &g->cap_consts, sizeof *g->consts)) {
        return 0;
    }
    g->consts[g->n_consts] = v;
    return (int32_t)g->n_consts++;
}

const struct jstr *jp_str(struct jparser *p, const char *s, size_t n)
{
    struct jstr *str = arena_alloc(&p->p->arena, sizeof *str);
    if (str == NULL) {
        no_memory(p);
        return NULL;
    }
    *str = (struct jstr){.p = s, .len = (uint32_t)n, .chars = jstr_count(s, n)};
    return str;
}

int32_t jp_const_str(struct jparser *p, const char *s, size_t n)
{
    const struct jstr *str = jp_str(p, s, n);
    return str == NULL ? 0 : jp_const(p, (struct jv){.kind = JV_STR, .str = str});
}

static int32_t name_of(struct jparser *p, const char *s, size_t n)
{
    struct jprogram *g = p->p;
    for (size_t i = 0; i < g->n_names; i++) {
        if (g->names[i]->len == n && memcmp(g->names[i]->p, s, n) == 0) {
            return (int32_t)i;
        }
    }
    const struct jstr *name = jp_str(p, s, n);
    if (g->n_names == JPARSER_MAX_NAMES) {
        jp_fail(p, jp_tok(p)->from, "the template has more than %d names", JPARSER_MAX_NAMES);
    }
    if (p->err != ERR_OK || name == NULL || !grow(p, &g->names, g->n_names, &g->cap_names, sizeof *g->names)) {
        return 0;
    }
    g->names[g->n_names] = name;
    return (int32_t)g->n_names++;
}

int32_t jp_name(struct jparser *p, const struct jtok *t) { return name_of(p, p->p->source + t->from, t->to - t->from); }

/* --- string literals -------------------------------------------------------------------------------------------- */

/* Decodes the escape at s[0] == '\\', n >= 2, to out (at most 4 bytes). Returns the number of bytes read; 0:
 * malformed. */
static size_t escape(const char *s, size_t n, char *out, size_t *n_out)
{
    static const char from[] = "ntrabfv\\'\"";
    static const char to[] = "\n\t\r\a\b\f\v\\'\"";
    const char *simple = s[1] == '\0' ? NULL : strchr(from, s[1]);
    *n_out = 1;
    if (simple != NULL) {
        out[0] = to[simple - from];
        return 2;
    }
    if (s[1] == '\n') {
        *n_out = 0;
        return 2;
    }
    uint32_t cp = 0;
    size_t used = 1;
    if (s[1] >= '0' && s[1] <= '7') {
        for (; used < 4 && used < n && s[used] >= '0' && s[used] <= '7'; used++) {
            cp = cp * 8 + (uint32_t)(s[used] - '0');
        }
        *n_out = utf8_encode(cp, out);
        return used;
    }
    if (s[1] == 'N') { /* by name: requires the names of all characters */
        return 0;
    }
    size_t digits = s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0;
    if (digits == 0) {
        out[0] = '\\'; /* an unknown escape is literal */
        return 1;
    }
    for (used = 2; used < 2 + digits; used++) {
        if (used >= n || hex_value(s[used]) < 0) {
            return 0;
        }
        cp = cp << 4 | (uint32_t)hex_value(s[used]);
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) {
        return 0;
    }
    *n_out = utf8_encode(cp, out);
    return used;
}

bool jp_unquote(struct jparser *p, const struct jtok *t, const char **out, size_t *n)
{
    const char *s = p->p->source + t->from + 1;
    size_t left = t->to - t->from - 2;
    if (memchr(s, '\\', left) == NULL) {
        *out = s;
        *n = left;
        return true;
    }
    char *text = arena_alloc(&p->p->arena, left + 4);
    if (text == NULL) {
        no_memory(p);
        return false;
    }
    size_t k = 0;
    while (left > 0) {
        size_t used = 1;
        size_t made = 1;
        if (*s == '\\' && left > 1) {
            used = escape(s, left, text + k, &made);
            if (used == 0) {
                jp_fail(p, t->from, "malformed escape in a string");
                return false;
            }
        } else {
            text[k] = *s;
        }
        k += made;
        s += used;
        left -= used;
    }
    *out = text;
    *n = k;
    return true;
}

/* --- assignment targets ----------------------------------------------------------------------------------------- */

/* Skips a target; stops at the first token that does not belong to one. */
static void skip_target(struct jparser *p)
{
    while (jp_is_op(p, ',') || jp_is_op(p, '(') || jp_is_op(p, ')') || jp_is_op(p, '.') ||
           (jp_tok(p)->kind == JT_NAME && !jp_is_name(p, "in"))) {
        p->i++;
    }
}

static void target_name(struct jparser *p, bool attributes)
{
    const struct jtok *t = jp_tok(p);
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < ARRAY_LEN(constants); i++) {
        if (jp_is_name(p, constants[i])) {
            jp_expected(p, "a name to assign to");
        }
    }
    if (!attributes && jp_is_name(p, "loop")) {
        jp_fail(p, t->from, "expected a name to assign to, found 'loop', which the for block sets itself");
    }
    int32_t name = jp_name(p, t);
    p->i++;
    if (!attributes || !jp_is_op(p, '.')) {
        jp_emit(p, (struct jins){.op = JI_STORE, .a = name, .pos = t->from});
        return;
    }
    p->i++;
    t = jp_tok(p);
    if (t->kind != JT_NAME) {
        jp_expected(p, "the name of an attribute");
        return;
    }
    int32_t attr = jp_const_str(p, p->p->source + t->from, t->to - t->from);
    jp_emit(p, (struct jins){.op = JI_STORE_ATTR, .a = name, .b = attr, .pos = t->from});
    p->i++;
}

/* Emits stores for the target in tokens [p->i, end): a name, an attribute of a namespace, or a tuple of targets. */
static void target(struct jparser *p, size_t end, bool attributes)
{
    enum { MAX_TUPLES = 16 };
    struct tuple {
        int32_t unpack;
        uint16_t n;
        bool comma;
    } open[MAX_TUPLES];
    int n = 1;
    open[0] = (struct tuple){.unpack = jp_emit(p, (struct jins){.op = JI_UNPACK, .pos = jp_tok(p)->from})};
    bool want_item = true;
    while (p->err == ERR_OK && p->i < end) {
        if (want_item && jp_tok(p)->kind == JT_NAME) {
            target_name(p, attributes);
            open[n - 1].n++;
            want_item = false;
        } else if (want_item && jp_is_op(p, '(') && n < MAX_TUPLES) {
            open[n - 1].n++;
            open[n++] = (struct tuple){.unpack = jp_emit(p, (struct jins){.op = JI_UNPACK, .pos = jp_tok(p)->from})};
            p->i++;
        } else if (jp_is_op(p, ')') && n > 1 && open[n - 1].n > 0) {
            n--;
            p->p->code[open[n].unpack].n = open[n].comma ? open[n].n : 0;
            want_item = false;
            p->i++;
        } else if (!want_item && jp_is_op(p, ',')) {
            open[n - 1].comma = true;
            want_item = true;
            p->i++;
        } else {
            jp_expected(p, "a name to assign to");
        }
    }
    if (n > 1 || open[0].n == 0) {
        jp_expected(p, "a name to assign to");
    }
    p->p->code[open[0].unpack].n = open[0].comma ? open[0].n : 0; /* 0: not a tuple, nothing to unpack */
}

/* --- blocks ----------------------------------------------------------------------------------------------------- */

static struct jblock *top(struct jparser *p) { return &p->blocks[p->n_blocks - 1]; }

static struct jblock *push(struct jparser *p, enum jblock_kind kind, uint32_t pos)
{
    if (p->n_blocks == JINJA_MAX_DEPTH) {
        jp_fail(p, pos, "blocks are nested more than %d levels deep", JINJA_MAX_DEPTH);
        return top(p);
    }
    p->blocks[p->n_blocks] = (struct jblock){.kind = kind, .pos = pos, .next = -1, .end = -1};
    return &p->blocks[p->n_blocks++];
}

/* Returns true if the open block is of this kind; otherwise the tag is misplaced. */
static bool inside(struct jparser *p, enum jblock_kind kind)
{
    if (p->n_blocks > 0 && top(p)->kind == kind) {
        return true;
    }
    p->i--;
    jp_expected(p, p->n_blocks == 0 ? "a tag that opens a block" : "the end of the open block");
    return false;
}

static void tag_if(struct jparser *p, uint32_t pos)
{
    push(p, JB_IF, pos);
    jp_expression(p, true, false);
    int32_t next = jp_emit(p, (struct jins){.op = JI_JUMP_FALSE, .pos = pos});
    if (p->err == ERR_OK) {
        top(p)->next = next;
    }
}

/* Ends a branch of an if, so that another can follow; returns false if none can. */
static bool end_branch(struct jparser *p, uint32_t pos)
{
    if (!inside(p, JB_IF) || top(p)->had_else) {
        jp_expected(p, "the end of the if");
        return false;
    }
    top(p)->end = jp_emit(p, (struct jins){.op = JI_JUMP, .a = top(p)->end, .pos = pos});
    jp_patch(p, top(p)->next);
    return true;
}

static void tag_elif(struct jparser *p, uint32_t pos)
{
    if (end_branch(p, pos)) {
        jp_expression(p, true, false);
        top(p)->next = jp_emit(p, (struct jins){.op = JI_JUMP_FALSE, .pos = pos});
    }
}

/* Ends the loop body: jumps back to FOR_NEXT, and ends the loop. */
static void end_body(struct jparser *p, uint32_t pos, bool has_else)
{
    struct jblock *b = top(p);
    if (has_else) {
        jp_emit(p, (struct jins){.op = JI_FOR_RAN, .pos = pos});
    }
    jp_emit(p, (struct jins){.op = JI_JUMP, .a = b->next, .pos = pos});
    jp_patch(p, b->next);
    jp_patch_chain(p, b->end);
    b->end = jp_emit(p, (struct jins){.op = JI_FOR_END, .pos = pos});
    jp_patch(p, b->end);
}

static void tag_else(struct jparser *p, uint32_t pos)
{
    if (p->n_blocks > 0 && top(p)->kind == JB_FOR) {
        end_body(p, pos, true);
        top(p)->kind = JB_FOR_ELSE;
        jp_emit(p, (struct jins){.op = JI_SCOPE, .pos = pos});
    } else if (end_branch(p, pos)) {
        top(p)->next = -1;
        top(p)->had_else = true;
    }
}

static void tag_endif(struct jparser *p, uint32_t pos)
{
    (void)pos;
    if (inside(p, JB_IF)) {
        jp_patch_chain(p, top(p)->end);
        if (top(p)->next >= 0) {
            jp_patch(p, top(p)->next);
        }
        p->n_blocks--;
    }
}

/* Returns true if the body that begins after p->i uses `loop`. jinja2 can then look ahead in the sequence, so the
 * loop's filter runs before the body; otherwise it runs per item. */
static bool body_uses_loop(const struct jparser *p)
{
    int nest = 1;
    for (size_t i = p->i; nest > 0 && p->toks.at[i].kind != JT_EOF; i++) {
        const struct jtok *t = &p->toks.at[i];
        if (t->kind == JT_BLOCK_BEGIN) {
            nest += jp_tok_is(p, t + 1, "for");
            nest -= jp_tok_is(p, t + 1, "endfor");
        } else if (jp_tok_is(p, t, "loop")) {
            return true;
        }
    }
    return false;
}

/* Parses for TARGET in SEQ if COND: one loop that filters the sequence before the body's loop, or a test in the
 * body. */
static void tag_for(struct jparser *p, uint32_t pos)
{
    size_t at_target = p->i;
    skip_target(p);
    size_t end_target = p->i;
    if (!jp_is_name(p, "in")) {
        jp_expected(p, "'in'");
        return;
    }
    p->i++;
    jp_expression(p, true, false);
    bool filtered = p->err == ERR_OK && jp_is_name(p, "if");
    bool sift = filtered && body_uses_loop(p);
    p->i += filtered;
    size_t at_cond = p->i;
    size_t end = p->i;
    int32_t next = 0;
    for (int pass = sift ? 0 : 1; pass < 2 && p->err == ERR_OK; pass++) {
        jp_emit(p, (struct jins){.op = JI_FOR, .n = pass == 0, .pos = pos});
        next = jp_emit(p, (struct jins){.op = JI_FOR_NEXT, .pos = pos});
        p->i = at_target;
        target(p, end_target, false);
        p->i = end;
        if (pass == 0 || (filtered && !sift)) {
            p->i = at_cond;
            p->in_sift = true;
            jp_expression(p, false, true);
            p->in_sift = false;
            end = p->i;
            jp_emit(p, (struct jins){.op = pass == 0 ? JI_SIFT_KEEP : JI_JUMP_FALSE, .a = next, .pos = pos});
        }
        if (pass == 0) {
            jp_emit(p, (struct jins){.op = JI_JUMP, .a = next, .pos = pos});
            jp_patch(p, next);
            jp_emit(p, (struct jins){.op = JI_SIFT_END, .pos = pos});
        }
    }
    if (p->err == ERR_OK && jp_is_name(p, "recursive")) {
        jp_fail(p, jp_tok(p)->from, "recursive loops are not supported");
    }
    struct jblock *b = push(p, JB_FOR, pos);
    if (p->err == ERR_OK) {
        b->next = next;
    }
}

static void tag_endfor(struct jparser *p, uint32_t pos)
{
    if (p->n_blocks > 0 && top(p)->kind == JB_FOR_ELSE) {
        jp_emit(p, (struct jins){.op = JI_SCOPE_END, .pos = pos});
        jp_patch(p, top(p)->end);
    } else if (inside(p, JB_FOR)) {
        end_body(p, pos, false);
    } else {
        return;
    }
    p->n_blocks--;
}

/* Leaves the blocks within the loop; returns the loop, or NULL. */
static struct jblock *unwind(struct jparser *p, uint32_t pos)
{
    for (uint32_t i = p->n_blocks; i > 0; i--) {
        struct jblock *b = &p->blocks[i - 1];
        if (b->kind == JB_FOR) {
            return b;
        }
        if (b->kind == JB_MACRO) {
            break;
        }
        if (b->kind == JB_SET || b->kind == JB_FILTER) {
            jp_emit(p, (struct jins){.op = JI_CAPTURE_DROP, .pos = pos});
        }
        if (b->kind != JB_IF) {
            jp_emit(p, (struct jins){.op = JI_SCOPE_END, .pos = pos});
        }
    }
    jp_fail(p, pos, "expected a loop around this, found none");
    return NULL;
}

static void tag_break(struct jparser *p, uint32_t pos)
{
    struct jblock *loop = unwind(p, pos);
    if (loop != NULL) {
        loop->end = jp_emit(p, (struct jins){.op = JI_JUMP, .a = loop->end, .pos = pos});
    }
}

static void tag_continue(struct jparser *p, uint32_t pos)
{
    struct jblock *loop = unwind(p, pos);
    if (loop != NULL) {
        jp_emit(p, (struct jins){.op = JI_JUMP, .a = loop->next, .pos = pos});
    }
}

/* Stores the value on top of the stack in the target in tokens [from, to), and goes on at token `next`. */
static void assign(struct jparser *p, size_t from, size_t to, size_t next)
{
    if (p->err == ERR_OK) {
        p->i = from;
        target(p, to, true);
        p->i = next;
    }
}

/* Begins a block whose text is captured. Its filters are read at its end. */
static void open_capture(struct jparser *p, uint32_t pos)
{
    while (jp_tok(p)->kind != JT_BLOCK_END && jp_tok(p)->kind != JT_EOF) {
        p->i++;
    }
    jp_emit(p, (struct jins){.op = JI_SCOPE, .pos = pos});
    jp_emit(p, (struct jins){.op = JI_CAPTURE, .pos = pos});
}

static void tag_set(struct jparser *p, uint32_t pos)
{
    size_t at_target = p->i;
    skip_target(p);
    size_t end_target = p->i;
    if (jp_is_op(p, '=')) {
        p->i++;
        jp_expression(p, true, true);
        assign(p, at_target, end_target, p->i);
        return;
    }
    push(p, JB_SET, pos)->tok = at_target;
    open_capture(p, pos);
}

static void tag_endset(struct jparser *p, uint32_t pos)
{
    if (!inside(p, JB_SET)) {
        return;
    }
    jp_emit(p, (struct jins){.op = JI_CAPTURE_END, .pos = pos});
    size_t end = p->i;
    size_t at_target = top(p)->tok;
    p->i = at_target;
    skip_target(p);
    size_t end_target = p->i;
    if (jp_is_op(p, '|')) {
        jp_filters(p, false);
    }
    expect_end(p, JT_BLOCK_END);
    jp_emit(p, (struct jins){.op = JI_SCOPE_END, .pos = pos});
    assign(p, at_target, end_target, end);
    p->n_blocks--;
}

static void tag_filter(struct jparser *p, uint32_t pos)
{
    push(p, JB_FILTER, pos)->tok = p->i;
    open_capture(p, pos);
}

static void tag_endfilter(struct jparser *p, uint32_t pos)
{
    if (!inside(p, JB_FILTER)) {
        return;
    }
    size_t end = p->i;
    jp_emit(p, (struct jins){.op = JI_CAPTURE_END, .pos = pos});
    p->i = top(p)->tok;
    jp_filters(p, true);
    expect_end(p, JT_BLOCK_END);
    jp_emit(p, (struct jins){.op = JI_PRINT, .n = 1, .pos = pos});
    jp_emit(p, (struct jins){.op = JI_SCOPE_END, .pos = pos});
    p->i = end;
    p->n_blocks--;
}

static void tag_generation(struct jparser *p, uint32_t pos)
{
    push(p, JB_GENERATION, pos);
    jp_emit(p, (struct jins){.op = JI_SCOPE, .pos = pos});
}

static void tag_endgeneration(struct jparser *p, uint32_t pos)
{
    if (inside(p, JB_GENERATION)) {
        jp_emit(p, (struct jins){.op = JI_SCOPE_END, .pos = pos});
        p->n_blocks--;
    }
}

/* Parses the parameters of a macro and emits the code for missing arguments. */
static void parameters(struct jparser *p, uint32_t *names, uint32_t *n)
{
    bool had_default = false;
    expect_op(p, '(', "'('");
    while (p->err == ERR_OK && !jp_is_op(p, ')')) {
        const struct jtok *t = jp_tok(p);
        if (t->kind != JT_NAME || *n == JCALL_MAX_ARGS) {
            jp_expected(p, t->kind != JT_NAME ? "the name of a parameter" : "at most 64 parameters");
            return;
        }
        int32_t name = jp_name(p, t);
        for (uint32_t i = 0; i < *n; i++) {
            if (names[i] == (uint32_t)name) {
                jp_fail(p, t->from, "duplicate parameter");
            }
        }
        names[(*n)++] = (uint32_t)name;
        p->i++;
        if (jp_is_op(p, '=')) {
            p->i++;
            had_default = true;
            int32_t skip = jp_emit(p, (struct jins){.op = JI_DEFAULT, .b = name, .pos = t->from});
            jp_expression(p, false, true);
            jp_emit(p, (struct jins){.op = JI_STORE, .a = name, .pos = t->from});
            jp_patch(p, skip);
        } else if (had_default) {
            jp_expected(p, "a default, as the parameter before has one");
        }
        if (!jp_is_op(p, ')')) {
            expect_op(p, ',', "',' or ')'");
        }
    }
    expect_op(p, ')', "')'");
}

static void tag_macro(struct jparser *p, uint32_t pos)
{
    struct jprogram *g = p->p;
    if (jp_tok(p)->kind != JT_NAME) {
        jp_expected(p, "the name of the macro");
        return;
    }
    uint32_t name = (uint32_t)jp_name(p, jp_tok(p));
    p->i++;
    struct jblock *b = push(p, JB_MACRO, pos);
    if (!grow(p, &g->macros, g->n_macros, &g->cap_macros, sizeof *g->macros)) {
        return;
    }
    size_t id = g->n_macros++;
    jp_emit(p, (struct jins){.op = JI_MACRO, .a = (int32_t)id, .pos = pos});
    b->next = jp_emit(p, (struct jins){.op = JI_JUMP, .pos = pos});
    g->macros[id] = (struct jmacro_code){.name = name, .entry = (uint32_t)g->n_code};
    uint32_t names[JCALL_MAX_ARGS];
    uint32_t n = 0;
    parameters(p, names, &n);
    uint32_t *params = arena_alloc(&g->arena, (n + 1) * sizeof *params);
    if (params == NULL) {
        no_memory(p);
        return;
    }
    memcpy(params, names, n * sizeof *params);
    g->macros[id].params = params;
    g->macros[id].n_params = n;
}

static void tag_endmacro(struct jparser *p, uint32_t pos)
{
    if (inside(p, JB_MACRO)) {
        jp_emit(p, (struct jins){.op = JI_RETURN, .pos = pos});
        jp_patch(p, top(p)->next);
        p->n_blocks--;
    }
}

/* --- the template
 * ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*fn)(struct jparser *p, uint32_t pos);
} tags[] = {
    {"if", tag_if},
    {"elif", tag_elif},
    {"else", tag_else},
    {"endif", tag_endif},
    {"for", tag_for},
    {"endfor", tag_endfor},
    {"break", tag_break},
    {"continue", tag_continue},
    {"set", tag_set},
    {"endset", tag_endset},
    {"macro", tag_macro},
    {"endmacro", tag_endmacro},
    {"filter", tag_filter},
    {"endfilter", tag_endfilter},
    {"generation", tag_generation},
    {"endgeneration", tag_endgeneration},
};

static void statement(struct jparser *p)
{
    p->i++;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        if (jp_is_name(p, tags[i].name)) {
            uint32_t pos = jp_tok(p)->from;
            p->i++;
            tags[i].fn(p, pos);
            expect_end(p, JT_BLOCK_END);
            return;
        }
    }
    jp_expected(p, "a known tag");
}

static void template(struct jparser *p)
{
    while (p->err == ERR_OK) {
        const struct jtok *t = jp_tok(p);
        switch (t->kind) {
        case JT_TEXT:
            jp_emit(p, (struct jins){.op = JI_TEXT,
                                     .a = jp_const_str(p, p->p->source + t->from, t->to - t->from),
                                     .pos = t->from});
            p->i++;
            break;
        case JT_PRINT_BEGIN:
            p->i++;
            jp_expression(p, true, true);
            expect_end(p, JT_PRINT_END);
            jp_emit(p, (struct jins){.op = JI_PRINT, .pos = t->from});
            break;
        case JT_BLOCK_BEGIN:
            statement(p);
            break;
        default: /* JT_EOF: no other token occurs outside of code */
            if (p->n_blocks > 0) {
                jp_fail(p, top(p)->pos, "expected the end of this block, found the end of the template");
            }
            jp_emit(p, (struct jins){.op = JI_END, .pos = t->from});
            return;
        }
    }
}

enum err jprogram_parse(struct jprogram *g, struct err_info *info)
{
    arena_init(&g->arena, 8 << 10, 0, MEM_GENERAL);
    struct jparser *p = mem_zalloc(sizeof *p, MEM_GENERAL);
    TRY_MEM_FOR(p != NULL, info, "no memory for the chat template");
    p->p = g;
    p->info = info;
    p->err = jinja_lex(g->source, g->n_source, &p->toks, info);
    if (p->err == ERR_OK) {
        jp_emit(p, (struct jins){.op = JI_JUMP, .a = 1, .pos = 0}); /* instruction 0, see jp_emit */
        jp_const(p, jv_none());                                     /* literal JPARSER_NONE_CONST */
        name_of(p, "loop", 4);                                      /* name JNAME_LOOP */
    }
    if (p->err == ERR_OK) {
        template(p);
    }
    enum err e = p->err;
    mem_free(p->toks.at);
    mem_free(p);
    return e;
}

void jprogram_fini(struct jprogram *p)
{
    mem_free(p->source);
    mem_free(p->code);
    mem_free(p->consts);
    mem_free(p->names);
    mem_free(p->macros);
    arena_fini(&p->arena);
    *p = (struct jprogram){0};
}
