/* Splits text by untrusted regular expressions. A backtracking matcher can take quadratic time or worse, and both text
 * and expression come from outside. Therefore:
 * - Every attempt is anchored. This file advances the position and skips ASCII characters that begin no match.
 * - An attempt sees only a window of the text. PCRE2 reports when it reached the window's end (a "hard partial match");
 *   then the window grows fourfold.
 * - An expression is compiled twice. The fast code handles the first window and a few backtracks, which is enough for
 *   most attempts. The metered code calls this file before each item (PCRE2's automatic callouts). Each call takes the
 *   characters passed since the previous call from the text's budget. It runs after the window has grown, after the
 *   fast code gave up, and for large expressions.
 * - PCRE2 does not report the work of the fast code. A clock finds the expressions for which it is slow; their next
 *   attempts are metered, so uncounted time stays short.
 * Words of any length are split as the expression requires: a word of n bytes costs about 10 n steps. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/splitter.h"

#include "engine/base/clock.h"
#include "engine/tokenizer/oniguruma.h"
#include "engine/tokenizer/tokenizer_internal.h"

#include <pcre2.h>
#include <utf8proc.h>

enum {
    WINDOW_BYTES = 128,
    WINDOW_GROWTH = 4,
    FAST_MAX_BYTES = 8 << 10, /* larger compiled expressions are metered; published ones take up to 3,000 */
    FAST_MATCH_LIMIT = 256,   /* backtracks; most attempts take less than 20 */
    TIMED_ATTEMPTS = 8,       /* attempts per reading of the clock */
    ATTEMPT_NS = 4000,        /* average time that fast attempts can take; published expressions take 100 */
    SLOW_NS = 1000000,        /* ... and this much in addition */
    METERED_ATTEMPTS = 256,   /* after slow ones; doubles each time */
    METERED_DOUBLINGS = 16,
    BYTES_PER_STEP = 1024, /* of a compiled expression: a character can be compared with all of a large class */
    SKIPS_STEPS = 1 << 20,
    METERED_MATCH_LIMIT = INT32_MAX, /* the budget stops these */
    HEAP_LIMIT_KIB = 128 << 10,
};
#define NOWHERE SIZE_MAX /* no match */

/* Expressions that look to the end of a run of digits from each digit; scanners replace them. */
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
    pcre2_code *fast;    /* OPTIONAL */
    pcre2_code *metered; /* NULL: replaced by a scanner */
    uint32_t weight;     /* steps that a character costs */
    bool has_references; /* back references: each can compare the whole window */
    enum threes threes;
    bool skips[128]; /* no match begins with this character */
};

struct splitter {
    pcre2_general_context *general;
    pcre2_compile_context *compile;
    pcre2_match_context *limits; /* of the fast code */
    size_t pattern_bytes;        /* of all stages */
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

/* Counts the steps of one run of metered code. */
struct meter {
    struct budget *budget;
    PCRE2_SIZE at; /* position of the previous call */
    uint64_t weight;
    uint64_t each; /* additional steps per call */
    enum err err;
};

static int count_steps(pcre2_callout_block *block, void *arg)
{
    struct meter *m = arg;
    PCRE2_SIZE at = block->current_position;
    uint64_t moved = at > m->at ? at - m->at : m->at - at;
    m->at = at;
    m->err = budget_take(m->budget, (1 + moved) * m->weight + m->each);
    return m->err == ERR_OK ? 0 : PCRE2_ERROR_CALLOUT;
}

/* An attempt to match at s[start..end). */
struct attempt {
    const char *s;
    size_t end, start;
    uint32_t options;
    pcre2_match_data *match;
};

static int run(const pcre2_code *code, const struct attempt *a, pcre2_match_context *limits)
{
    return pcre2_match(code, (PCRE2_SPTR)a->s, a->end, a->start, a->options, a->match, limits);
}

/* Like run(), but with a stage's metered code; `limits` is not shared. ERR_PATTERN_LIMIT, ERR_CANCELLED, ERR_NOMEM. */
static enum err match_metered(const struct stage *stage, struct budget *budget, pcre2_match_context *limits,
                              const struct attempt *a, int *rc)
{
    struct meter m = {.budget = budget, .at = a->start, .weight = stage->weight};
    m.each = stage->has_references ? a->end - a->start : 0;
    TRY(budget_take(budget, a->end - a->start)); /* PCRE2 can search for a letter that each match contains */
    pcre2_set_callout(limits, count_steps, &m);
    *rc = run(stage->metered, a, limits);
    bool is_result = *rc >= 0 || *rc == PCRE2_ERROR_NOMATCH || *rc == PCRE2_ERROR_PARTIAL;
    if (m.err != ERR_OK || is_result) {
        return m.err;
    }
    return *rc == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_PATTERN_LIMIT;
}

static pcre2_match_context *metered_limits(pcre2_general_context *general)
{
    pcre2_match_context *limits = pcre2_match_context_create(general);
    if (limits != NULL) {
        pcre2_set_match_limit(limits, METERED_MATCH_LIMIT);
        pcre2_set_depth_limit(limits, METERED_MATCH_LIMIT);
        pcre2_set_heap_limit(limits, HEAP_LIMIT_KIB);
    }
    return limits;
}

/* Finds the ASCII characters that begin no match: alone they neither match nor start a match. Skips nothing if the
 * expression has a look-behind, which could depend on the text before, or if finding out takes too much work. */
static enum err find_skips(struct stage *stage, pcre2_general_context *general)
{
    uint32_t after = 1;
    pcre2_pattern_info(stage->metered, PCRE2_INFO_MAXLOOKBEHIND, &after);
    pcre2_match_data *match = pcre2_match_data_create(1, general);
    pcre2_match_context *limits = metered_limits(general);
    struct budget budget = {.left = SKIPS_STEPS};
    enum err err = match != NULL && limits != NULL ? ERR_OK : ERR_NOMEM;
    for (int c = 0; c < 128 && after == 0 && err == ERR_OK; c++) {
        char s = (char)c;
        int rc = 0;
        struct attempt a = {.s = &s, .end = 1, .options = PCRE2_PARTIAL_HARD | PCRE2_NO_UTF_CHECK, .match = match};
        err = match_metered(stage, &budget, limits, &a, &rc);
        stage->skips[c] = err == ERR_OK && rc == PCRE2_ERROR_NOMATCH;
    }
    pcre2_match_data_free(match);
    pcre2_match_context_free(limits);
    return err == ERR_PATTERN_LIMIT ? ERR_OK : err;
}

/* Compiles text, which is `pattern` in PCRE2's syntax, to both codes of the last stage. */
static enum err compile_text(struct splitter *p, const struct buf *text, const char *pattern, const char *key,
                             struct err_info *info)
{
    struct stage *stage = &p->stages[p->n_stages - 1];
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int code;
    PCRE2_SIZE at = 0, bytes = 0;
    uint32_t last_reference = 0;
    p->pattern_bytes += text->len;
    if (p->pattern_bytes > SPLITTER_MAX_PATTERN) {
        return err_set(info, ERR_UNSUPPORTED_PRETOKENIZER, key, "%s: expected patterns of at most %d bytes, found %zu",
                       key, SPLITTER_MAX_PATTERN, p->pattern_bytes);
    }
    stage->metered =
        pcre2_compile((PCRE2_SPTR)text->data, text->len, options | PCRE2_AUTO_CALLOUT, &code, &at, p->compile);
    if (stage->metered == NULL && code == PCRE2_ERROR_HEAP_FAILED) {
        return ERR_NOMEM;
    }
    if (stage->metered == NULL) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(info, ERR_UNSUPPORTED_PRETOKENIZER, key,
                       "%s: expected a pattern that can be compiled, found '%.*s' (%s)", key,
                       (int)MIN_OF(strlen(pattern), (size_t)200), pattern, why);
    }
    pcre2_pattern_info(stage->metered, PCRE2_INFO_SIZE, &bytes);
    pcre2_pattern_info(stage->metered, PCRE2_INFO_BACKREFMAX, &last_reference);
    stage->weight = 1 + (uint32_t)(bytes / BYTES_PER_STEP);
    stage->has_references = last_reference > 0;
    if (bytes <= FAST_MAX_BYTES && !stage->has_references) {
        stage->fast = pcre2_compile((PCRE2_SPTR)text->data, text->len, options, &code, &at, p->compile);
        TRY_MEM(stage->fast != NULL);
        /* Fails if the system forbids it (MemoryDenyWriteExecute=); then PCRE2 interprets, with the same result. */
        pcre2_jit_compile(stage->fast, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    }
    return find_skips(stage, p->general);
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
    buf_init(&text, 0, MEM_MODEL);
    enum err err = oniguruma_to_pcre2(pattern, strlen(pattern), &text, info);
    err = err != ERR_OK ? err : compile_text(p, &text, pattern, key, info);
    buf_fini(&text);
    return err;
}

enum err splitter_new(const char *const *patterns, size_t n_patterns, const char *key, struct splitter **out,
                      struct err_info *info)
{
    *out = NULL;
    struct splitter *p = mem_zalloc(sizeof *p, MEM_MODEL);
    TRY_MEM(p != NULL);
    p->general = pcre2_general_context_create(allocate, release, NULL);
    p->compile = p->general == NULL ? NULL : pcre2_compile_context_create(p->general);
    p->limits = p->general == NULL ? NULL : pcre2_match_context_create(p->general);
    enum err err = p->compile != NULL && p->limits != NULL ? ERR_OK : ERR_NOMEM;
    if (err == ERR_OK) {
        pcre2_set_newline(p->compile, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(p->compile, SPLITTER_MAX_PATTERN);
        pcre2_set_match_limit(p->limits, FAST_MATCH_LIMIT);
        pcre2_set_depth_limit(p->limits, FAST_MATCH_LIMIT);
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
        pcre2_code_free(p->stages[i].fast);
        pcre2_code_free(p->stages[i].metered);
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

/* Oniguruma's \w, which includes numbers of Latin 1. */
static bool is_word_character(uint32_t cp)
{
    return unicode_is_word(cp) || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || (cp >= 0xBC && cp <= 0xBE);
}

/* Counts the digits of the run that begins at `at`, once per run. */
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

/* Returns the length of the match at `at`, or NOWHERE. */
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

/* Returns the start of the character that contains byte `at` of s. */
static size_t character_start(const char *s, size_t at)
{
    while (((unsigned char)s[at] & 0xC0) == 0x80) {
        at--;
    }
    return at;
}

static void read_clocks(struct splitting *c)
{
    c->used_ns = clock_thread_ns();
    c->since_ns = clock_now_ns();
    c->n_timed = 0;
}

/* Returns whether to run the fast code next. The wall clock, which is read occasionally, also runs while the thread
 * does not. So the thread's clock, which is slower to read, decides. */
static bool is_fast(struct splitting *c, const struct stage *stage)
{
    if (stage->fast == NULL) {
        return false;
    }
    if (c->metering > 0) {
        if (--c->metering == 0) {
            read_clocks(c);
        }
        return false;
    }
    if (++c->n_timed % TIMED_ATTEMPTS != 0) {
        return true;
    }
    uint64_t now = clock_now_ns();
    bool looks_slow = now - c->since_ns > TIMED_ATTEMPTS * ATTEMPT_NS;
    c->since_ns = now;
    if (looks_slow) {
        uint64_t used = clock_thread_ns();
        if (used - c->used_ns > SLOW_NS + (uint64_t)c->n_timed * ATTEMPT_NS) {
            c->metering = METERED_ATTEMPTS << c->n_slow;
            c->n_slow += c->n_slow < METERED_DOUBLINGS;
        }
        c->used_ns = used;
        c->n_timed = 0;
    }
    return c->metering == 0;
}

/* *len: length of the stage's match at `at` of its piece (0: an empty match), or NOWHERE. */
static enum err match_at(struct splitting *c, size_t depth, size_t at, size_t *len)
{
    struct splitter_level *l = &c->level[depth];
    const struct stage *stage = &c->p->stages[depth];
    TRY(budget_take(c->budget, 1));
    if (stage->threes != THREES_NONE) {
        *len = match_threes(c, l, stage->threes, at);
        return ERR_OK;
    }
    const size_t n = l->to - l->from;
    struct attempt a = {.s = c->s + l->from, .start = at - l->from, .match = c->match};
    bool fast = is_fast(c, stage);
    for (size_t window = WINDOW_BYTES;; window *= WINDOW_GROWTH, fast = false) {
        bool is_cut = n - a.start > window;
        a.end = is_cut ? character_start(a.s, a.start + window) : n;
        a.options = PCRE2_NO_UTF_CHECK | (is_cut ? PCRE2_PARTIAL_HARD : 0);
        int rc = PCRE2_ERROR_MATCHLIMIT; /* also the fast code's result where the metered code must run */
        if (fast) {
            rc = run(stage->fast, &a, c->p->limits);
        }
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH && rc != PCRE2_ERROR_PARTIAL) {
            TRY(match_metered(stage, c->budget, c->limits, &a, &rc));
        }
        if (rc == PCRE2_ERROR_PARTIAL) {
            continue;
        }
        *len = NOWHERE;
        if (rc >= 0) {
            size_t to = pcre2_get_ovector_pointer(c->match)[1];
            *len = to > a.start ? to - a.start : 0;
        }
        return ERR_OK;
    }
}

/* *end: the end of the next piece within the level's piece. */
static enum err next_piece(struct splitting *c, size_t depth, size_t *end)
{
    struct splitter_level *l = &c->level[depth];
    const struct stage *stage = &c->p->stages[depth];
    if (l->match_to > l->at) { /* found after the preceding text */
        *end = l->match_to;
        l->search = l->match_to;
        return ERR_OK;
    }
    for (size_t at = l->search, len = NOWHERE; at < l->to;) {
        unsigned char lead = (unsigned char)c->s[at];
        if (lead < 0x80 && stage->skips[lead]) {
            at++;
            continue;
        }
        TRY(match_at(c, depth, at, &len));
        uint32_t cp;
        size_t step = tokenizer_chr(c->s + at, l->to - at, &cp);
        l->search = len == NOWHERE || len == 0 ? at + step : at + len;
        if (len != NOWHERE && at + len > l->at) { /* an empty match at the piece's start does not split */
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

enum err splitting_begin(struct splitting *c, const struct splitter *p, const char *s, size_t n, struct budget *budget)
{
    *c = (struct splitting){.p = p, .s = s, .budget = budget};
    c->level[0] = (struct splitter_level){.to = n};
    read_clocks(c);
    c->match = pcre2_match_data_create(1, p->general);
    c->limits = metered_limits(p->general);
    if (c->match == NULL || c->limits == NULL) {
        splitting_end(c);
        return ERR_NOMEM;
    }
    return ERR_OK;
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
    pcre2_match_context_free(c->limits);
    c->match = c->limits = NULL;
}
