/* Splitting by regular expressions without trusting them. A backtracking matcher can take time quadratic in the text or
 * worse, and the text comes from strangers. So:
 *   - every attempt is anchored: we move on ourselves, and skip ASCII characters that no match can begin with;
 *   - an attempt sees a window of the text only. PCRE2 tells when it looked at the window's end (a "hard partial
 *     match"); then the window grows by four. Within a window of 128 bytes the cost of an attempt is bounded;
 *   - what grown windows show is paid for out of a budget linear in the text; and PCRE2's own limits bound
 * backtracking. Words of any length come out as the expression wants them: a word of n bytes costs less than 2 n of the
 * budget. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/splitter.h"

#include "engine/tokenizer/oniguruma.h"
#include "engine/tokenizer/tokenizer_internal.h"

#include <pcre2.h>
#include <utf8proc.h>

enum {
    WINDOW_BYTES = 128,
    WINDOW_GROWTH = 4,
    BUDGET_PER_BYTE = 64,
    BUDGET_MIN = 1 << 20,
    MATCH_LIMIT = 10000000,
    HEAP_LIMIT_KIB = 128 << 10,
};
#define NOWHERE SIZE_MAX /* no match */

/* Expressions that look to the end of a run of digits from each of them, so a scanner stands in for them. */
enum threes {
    THREES_NONE,
    THREES_WORD,  /* \d{1,3}(?=(?:\d{3})*\b) */
    THREES_DIGIT, /* (?=(\d{3})+(?!\d)) */
    THREES_NUMBER,
};
static const struct {
    const char *pattern;
    enum threes threes;
} scanned[] = {
    {"\\d{1,3}(?=(?:\\d{3})*\\b)", THREES_WORD},
    {"(?=(\\d{3})+(?!\\d))", THREES_DIGIT},
    {"(?=(\\p{N}{3})+(?!\\p{N}))", THREES_NUMBER},
};

struct stage {
    pcre2_code *code; /* NULL: a scanner's */
    enum threes threes;
    bool skips[128]; /* no match begins with this character */
};

struct splitter {
    pcre2_general_context *general;
    pcre2_compile_context *compile;
    pcre2_match_context *limits;
    size_t n_stages;
    struct stage stages[SPLITTER_MAX_STAGES];
};

static void *allocate(PCRE2_SIZE n, void *data)
{
    (void)data;
    return mem_alloc(n, MEM_MODEL);
}

static void release(void *p, void *data)
{
    (void)data;
    mem_free(p);
}

/* --- compiling -------------------------------------------------------------------------------------------------- */

/* Which ASCII characters no match begins with: those which, alone, are neither a match nor the start of one. An
 * expression that looks behind itself could depend on what was before, so nothing is skipped then. */
static enum err find_skips(struct stage *stage, pcre2_general_context *general)
{
    uint32_t behind = 1;
    pcre2_pattern_info(stage->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    pcre2_match_data *match = pcre2_match_data_create(1, general);
    if (match == NULL) {
        return ERR_NOMEM;
    }
    for (int c = 0; c < 128 && behind == 0; c++) {
        unsigned char s = (unsigned char)c;
        int rc = pcre2_match(stage->code, &s, 1, 0, PCRE2_PARTIAL_HARD | PCRE2_NO_UTF_CHECK, match, NULL);
        stage->skips[c] = rc == PCRE2_ERROR_NOMATCH;
    }
    pcre2_match_data_free(match);
    return ERR_OK;
}

static enum err compile(struct splitter *p, const char *pattern, const char *key, struct err_info *info)
{
    struct stage *stage = &p->stages[p->n_stages++];
    for (size_t i = 0; i < ARRAY_LEN(scanned); i++) {
        if (strcmp(scanned[i].pattern, pattern) == 0) {
            stage->threes = scanned[i].threes;
            return ERR_OK;
        }
    }
    struct buf text;
    int code;
    PCRE2_SIZE at = 0;
    buf_init(&text, 0, MEM_MODEL);
    enum err err = oniguruma_to_pcre2(pattern, strlen(pattern), &text, info);
    if (err == ERR_OK) {
        const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        stage->code = pcre2_compile((PCRE2_SPTR)text.data, text.len, options, &code, &at, p->compile);
        if (stage->code == NULL && code == PCRE2_ERROR_HEAP_FAILED) {
            err = ERR_NOMEM;
        } else if (stage->code == NULL) {
            char why[128] = "";
            pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            err = err_set(info, ERR_UNSUPPORTED_PRETOKENIZER, key,
                          "%s: expected a pattern that can be compiled, found '%.*s' (%s)", key,
                          (int)MIN_OF(strlen(pattern), (size_t)200), pattern, why);
        } else {
            /* Not where the system forbids it (MemoryDenyWriteExecute=); then PCRE2 interprets, to the same effect. */
            pcre2_jit_compile(stage->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
            err = find_skips(stage, p->general);
        }
    }
    buf_fini(&text);
    return err;
}

enum err splitter_new(const char *const *patterns, size_t n_patterns, const char *key, struct splitter **out,
                      struct err_info *info)
{
    *out = NULL;
    struct splitter *p = mem_zalloc(sizeof *p, MEM_MODEL);
    if (p == NULL) {
        return ERR_NOMEM;
    }
    p->general = pcre2_general_context_create(allocate, release, NULL);
    p->compile = p->general == NULL ? NULL : pcre2_compile_context_create(p->general);
    p->limits = p->general == NULL ? NULL : pcre2_match_context_create(p->general);
    enum err err = p->compile != NULL && p->limits != NULL ? ERR_OK : ERR_NOMEM;
    if (err == ERR_OK) {
        pcre2_set_newline(p->compile, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(p->compile, SPLITTER_MAX_PATTERN);
        pcre2_set_match_limit(p->limits, MATCH_LIMIT);
        pcre2_set_depth_limit(p->limits, MATCH_LIMIT);
        pcre2_set_heap_limit(p->limits, HEAP_LIMIT_KIB);
    }
    for (size_t i = 0; i < n_patterns && err == ERR_OK; i++) {
        err = compile(p, patterns[i], key, info);
    }
    if (err != ERR_OK) {
        splitter_free(&p);
    }
    *out = p;
    return err;
}

void splitter_free(struct splitter **splitter)
{
    struct splitter *p = *splitter;
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->n_stages; i++) {
        pcre2_code_free(p->stages[i].code);
    }
    pcre2_match_context_free(p->limits);
    pcre2_compile_context_free(p->compile);
    pcre2_general_context_free(p->general);
    mem_free(p);
    *splitter = NULL;
}

/* --- digits in threes from the right ----------------------------------------------------------------------------- */

static bool is_digit(enum threes threes, uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((int32_t)cp);
    return category == UTF8PROC_CATEGORY_ND ||
           (threes == THREES_NUMBER && (category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO));
}

/* \w of Oniguruma: letters, marks, digits, connectors, and what is Alphabetic or in Latin 1 besides. */
static bool is_word_character(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((int32_t)cp);
    bool is_circled = (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
                      (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
    bool is_latin1 = cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || (cp >= 0xBC && cp <= 0xBE);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC ||
           is_circled || is_latin1;
}

/* Counts the digits of the run that begins at `at`, once for the run. */
static void count_run(const struct splitting *c, struct splitter_level *l, enum threes threes, size_t at)
{
    uint32_t cp = 0;
    l->run_from = l->run_to = at;
    l->run_left = 0;
    for (size_t len; l->run_to < l->to; l->run_to += len, l->run_left++) {
        len = tokenizer_chr(c->s + l->run_to, l->to - l->run_to, &cp);
        if (!is_digit(threes, cp)) {
            break;
        }
    }
    l->run_ends_word = l->run_to == l->to || !is_word_character(cp);
}

/* Length of the match at `at`, or NOWHERE. */
static size_t match_threes(const struct splitting *c, struct splitter_level *l, enum threes threes, size_t at)
{
    uint32_t cp;
    if (at >= l->run_to || l->run_to == 0) {
        count_run(c, l, threes, at);
    }
    for (; l->run_from < at; l->run_left--) { /* `at` only moves forward */
        l->run_from += tokenizer_chr(c->s + l->run_from, l->to - l->run_from, &cp);
    }
    if (l->run_left == 0) {
        return NOWHERE;
    }
    if (threes != THREES_WORD) {
        return l->run_left % 3 == 0 ? 0 : NOWHERE;
    }
    if (!l->run_ends_word) {
        return NOWHERE;
    }
    size_t len = 0;
    for (size_t i = l->run_left % 3 == 0 ? 3 : l->run_left % 3; i > 0; i--) {
        len += tokenizer_chr(c->s + at + len, l->to - at - len, &cp);
    }
    return len;
}

/* --- matching --------------------------------------------------------------------------------------------------- */

/* Where the character that holds byte `at` of s begins. */
static size_t character_start(const char *s, size_t at)
{
    while (((unsigned char)s[at] & 0xC0) == 0x80) {
        at--;
    }
    return at;
}

/* *len: bytes that the stage matches at `at` of its piece (0: an empty match), or NOWHERE. */
static enum err match_at(struct splitting *c, size_t depth, size_t at, size_t *len)
{
    struct splitter_level *l = &c->level[depth];
    const struct stage *stage = &c->p->stages[depth];
    if (stage->threes != THREES_NONE) {
        *len = match_threes(c, l, stage->threes, at);
        return ERR_OK;
    }
    const char *s = c->s + l->from;
    const size_t n = l->to - l->from, start = at - l->from;
    for (size_t window = WINDOW_BYTES;; window *= WINDOW_GROWTH) {
        bool is_cut = n - start > window;
        size_t end = is_cut ? character_start(s, start + window) : n;
        uint32_t options = PCRE2_NO_UTF_CHECK | (is_cut ? PCRE2_PARTIAL_HARD : 0);
        if (window > WINDOW_BYTES) {
            if (c->budget < end - start) {
                return ERR_PATTERN_LIMIT;
            }
            c->budget -= end - start;
        }
        int rc = pcre2_match(stage->code, (PCRE2_SPTR)s, end, start, options, c->match, c->p->limits);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) { /* the interpreter has a heap */
            rc = pcre2_match(stage->code, (PCRE2_SPTR)s, end, start, options | PCRE2_NO_JIT, c->match, c->p->limits);
        }
        if (rc == PCRE2_ERROR_PARTIAL) {
            continue;
        }
        if (rc >= 0) {
            size_t to = pcre2_get_ovector_pointer(c->match)[1];
            *len = to > start ? to - start : 0;
            return ERR_OK;
        }
        *len = NOWHERE;
        return rc == PCRE2_ERROR_NOMATCH ? ERR_OK : rc == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_PATTERN_LIMIT;
    }
}

/* *end: where the next piece of the level's piece ends. */
static enum err next_piece(struct splitting *c, size_t depth, size_t *end)
{
    struct splitter_level *l = &c->level[depth];
    const struct stage *stage = &c->p->stages[depth];
    if (l->match_to > l->at) { /* found behind the text that came before */
        *end = l->match_to;
        l->search = l->match_to;
        return ERR_OK;
    }
    for (size_t at = l->search, len; at < l->to;) {
        unsigned char lead = (unsigned char)c->s[at];
        if (lead < 0x80 && stage->skips[lead]) {
            at++;
            continue;
        }
        TRY(match_at(c, depth, at, &len));
        uint32_t cp;
        size_t step = tokenizer_chr(c->s + at, l->to - at, &cp);
        l->search = len == NOWHERE || len == 0 ? at + step : at + len;
        if (len != NOWHERE && at + len > l->at) { /* an empty match at the piece's start cuts nothing off */
            l->match_from = at;
            l->match_to = at + len;
            *end = at > l->at ? at : at + len;
            return ERR_OK;
        }
        at = l->search;
    }
    *end = l->to;
    return ERR_OK;
}

enum err splitting_begin(struct splitting *c, const struct splitter *p, const char *s, size_t n)
{
    *c = (struct splitting){.p = p, .s = s, .budget = BUDGET_MIN + BUDGET_PER_BYTE * n};
    c->level[0] = (struct splitter_level){.to = n};
    c->match = pcre2_match_data_create(1, p->general);
    return c->match != NULL ? ERR_OK : ERR_NOMEM;
}

enum err splitting_next(struct splitting *c, size_t *end)
{
    if (c->p->n_stages == 0) {
        *end = c->level[0].to;
        return ERR_OK;
    }
    while (c->depth > 0 && c->level[c->depth].at == c->level[c->depth].to) {
        c->depth--;
    }
    for (;; c->depth++) {
        struct splitter_level *l = &c->level[c->depth];
        size_t from = l->at;
        TRY(next_piece(c, c->depth, end));
        l->at = *end;
        if (c->depth + 1 == c->p->n_stages) {
            return ERR_OK;
        }
        c->level[c->depth + 1] = (struct splitter_level){.from = from, .to = *end, .at = from, .search = from};
    }
}

void splitting_end(struct splitting *c)
{
    pcre2_match_data_free(c->match);
    c->match = NULL;
}
