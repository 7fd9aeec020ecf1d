/* What a sequence said is read back from the tokens that its pages were given; so a prefix that comes from the cache is
 * known, too. An answer that goes on is found by all that stands before it. */
#include "tests/support/scripted_backend.h"

#include "engine/base/buf.h"
#include "engine/base/mem.h"
#include "engine/engine.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    struct answer *next;
    int32_t *prompt, *say;
    size_t n_prompt, n_say;
};

static const struct backend *real;
static struct engine *engine;
static json_t *script;
static FILE *record;      /* or NULL */
static int32_t *page_ids; /* [n_pages][KV_PAGE_TOKENS] */
static uint32_t n_vocab;
static struct answer *answers; /* the newest first; they live as long as the process */

static void give_up(const char *why)
{
    fprintf(stderr, "scripted_backend: %s\n", why);
    exit(70);
}

static void *must(void *memory)
{
    if (memory == NULL) {
        give_up("out of memory");
    }
    return memory;
}

/* --- what to say ------------------------------------------------------------------------------------------------ */

static bool fits(const json_t *rule, const char *prompt, bool is_off_script)
{
    const json_t *needles = json_object_get(rule, "if"), *after = json_object_get(rule, "behind");
    size_t n = strlen(prompt), n_after = json_string_length(after);
    if (is_off_script || after != NULL) {
        return is_off_script && after != NULL && n >= n_after &&
               memcmp(prompt + n - n_after, json_string_value(after), n_after) == 0;
    }
    for (size_t i = 0; i < json_array_size(needles); i++) {
        if (strstr(prompt, json_string_value(json_array_get(needles, i))) == NULL) {
            return false;
        }
    }
    return true;
}

static const char *choose(const char *prompt, bool is_off_script)
{
    for (size_t i = 0; i < json_array_size(script); i++) {
        const json_t *rule = json_array_get(script, i);
        if (fits(rule, prompt, is_off_script)) {
            return json_string_value(json_object_get(rule, "say"));
        }
    }
    return "";
}

static struct answer *new_answer(const int32_t *ids, size_t n, const int32_t *say, size_t n_say)
{
    struct answer *a = must(mem_zalloc(sizeof *a, MEM_GENERAL));
    a->say = must(mem_zalloc_array(n_say + 1, sizeof *say, MEM_GENERAL));
    if (n_say > 0) {
        memcpy(a->say, say, n_say * sizeof *say);
    }
    a->say[n_say] = engine_model(engine)->eos;
    a->n_say = n_say + 1;
    a->prompt = must(mem_zalloc_array(n + 1, sizeof *ids, MEM_GENERAL));
    memcpy(a->prompt, ids, n * sizeof *ids);
    a->n_prompt = n;
    a->next = answers;
    answers = a;
    return a;
}

static struct answer *make_answer(const int32_t *ids, size_t n, bool is_off_script)
{
    struct err_info info = {0};
    struct arena arena;
    struct buf text;
    int32_t *say;
    size_t n_say;
    buf_init(&text, 0, MEM_GENERAL);
    arena_init(&arena, 4096, 0, MEM_GENERAL);
    if (engine_detokenize(engine, ids, n, &text) != ERR_OK) {
        give_up("the prompt is no text");
    }
    buf_putc(&text, '\0');
    const char *words = choose(text.data, is_off_script);
    if (engine_tokenize(engine, words, strlen(words), false, true, NULL, 0, &arena, &say, &n_say, &info) != ERR_OK) {
        give_up(info.text);
    }
    if (record != NULL && !is_off_script) {
        fprintf(record, "--- prompt\n%s\n--- says\n%s\n", text.data, words);
        fflush(record);
    }
    struct answer *a = new_answer(ids, n, say, n_say);
    arena_fini(&arena);
    buf_fini(&text);
    return a;
}

/* What comes after ids[0..n). Where a token of an answer was not sampled, as a grammar forbade it, the script is at its end, or goes
 * on as a rule says. */
static int32_t next_token(const int32_t *ids, size_t n)
{
    bool is_off_script = false;
    for (const struct answer *a = answers; a != NULL; a = a->next) {
        size_t said = n - a->n_prompt;
        if (n < a->n_prompt || said > a->n_say || memcmp(ids, a->prompt, a->n_prompt * sizeof *ids) != 0 ||
            (said > 0 && memcmp(ids + a->n_prompt, a->say, (said - 1) * sizeof *ids) != 0)) {
            continue;
        }
        if (said < a->n_say && (said == 0 || ids[n - 1] == a->say[said - 1])) {
            return a->say[said];
        }
        is_off_script = is_off_script || ids[n - 1] != a->say[said - 1];
    }
    return make_answer(ids, n, is_off_script)->say[0];
}

/* --- the back end ----------------------------------------------------------------------------------------------- */

static void write_row(const struct backend_batch *b, int32_t i, int32_t id)
{
    float *row = b->logits + (size_t)i * n_vocab;
    memset(row, 0, n_vocab * sizeof *row);
    row[id] = 60;
    b->stats[i] = (struct backend_row_stats){.argmax = id, .max = 60, .logsumexp = 60};
}

static enum err begin_scripted(struct backend_model *m, const struct backend_batch *b, struct err_info *info)
{
    (void)m;
    (void)info;
    for (int32_t i = 0; i < b->n_rows; i++) {
        int32_t page = b->page_tables[b->seq[i]][b->pos[i] / KV_PAGE_TOKENS];
        page_ids[(size_t)page * KV_PAGE_TOKENS + (size_t)b->pos[i] % KV_PAGE_TOKENS] = b->tokens[i];
    }
    for (int32_t i = 0; i < b->n_logits; i++) {
        int32_t row = b->logit_rows[i], n = b->pos[row] + 1;
        int32_t *ids = must(mem_zalloc_array((size_t)n, sizeof *ids, MEM_GENERAL));
        for (int32_t p = 0; p < n; p++) {
            int32_t page = b->page_tables[b->seq[row]][p / KV_PAGE_TOKENS];
            ids[p] = page_ids[(size_t)page * KV_PAGE_TOKENS + (size_t)p % KV_PAGE_TOKENS];
        }
        write_row(b, i, engine != NULL ? next_token(ids, (size_t)n) : 0);
        mem_free(ids);
    }
    return ERR_OK;
}

static enum err wait_scripted(struct backend_model *m, struct err_info *info)
{
    (void)m;
    (void)info;
    return ERR_OK;
}

static enum err copy_page(struct backend_model *m, struct backend_page page, enum backend_form form, void *bytes,
                          bool writes, struct err_info *info)
{
    int32_t *ids = page_ids + (size_t)page.page * KV_PAGE_TOKENS;
    TRY(writes ? ERR_OK : real->page_copy(m, page, form, bytes, false, info));
    if (!writes || page.page != BACKEND_NO_PAGE) {
        memcpy(writes ? (void *)ids : bytes, writes ? bytes : (void *)ids, KV_PAGE_TOKENS * sizeof *ids);
    }
    return ERR_OK;
}

static enum err open_scripted(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                              struct err_info *info)
{
    page_ids = must(mem_zalloc_array((size_t)cfg->n_pages * KV_PAGE_TOKENS, sizeof *page_ids, MEM_GENERAL));
    n_vocab = plan->n_vocab;
    return real->open(plan, cfg, out, info);
}

/* Logits always: what a row's best are is not kept. */
static void info_scripted(const struct backend_model *m, struct backend_info *out)
{
    real->info(m, out);
    out->max_best = 0;
    out->max_begun = 1;
}

/* --- the links -------------------------------------------------------------------------------------------------- */

static bool read_script(void)
{
    const char *path = getenv("INFCGI_SCRIPT"), *log = getenv("INFCGI_SCRIPT_LOG");
    json_error_t e;
    if (path == NULL) {
        return false;
    }
    script = script != NULL ? script : json_load_file(path, 0, &e);
    if (!json_is_array(script)) {
        give_up("INFCGI_SCRIPT names no JSON array");
    }
    if (log != NULL && record == NULL && (record = fopen(log, "a")) == NULL) {
        give_up("INFCGI_SCRIPT_LOG cannot be written");
    }
    return true;
}

const struct backend *__real_backend_find(const char *name);
const struct backend *__wrap_backend_find(const char *name);

const struct backend *__wrap_backend_find(const char *name)
{
    static struct backend scripted;
    const struct backend *found = __real_backend_find(name);
    if (found == NULL || !read_script()) {
        return found;
    }
    real = found;
    scripted = *found;
    scripted.open = open_scripted;
    scripted.begin = begin_scripted;
    scripted.wait = wait_scripted;
    scripted.page_copy = copy_page;
    scripted.info = info_scripted;
    return &scripted;
}

enum err __real_engine_open(const struct engine_config *cfg, struct engine **out, struct err_info *info);
enum err __wrap_engine_open(const struct engine_config *cfg, struct engine **out, struct err_info *info);

enum err __wrap_engine_open(const struct engine_config *cfg, struct engine **out, struct err_info *info)
{
    enum err err = __real_engine_open(cfg, out, info);
    engine = err == ERR_OK ? *out : NULL;
    return err;
}
