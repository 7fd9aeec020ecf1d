/* The prompt, in llama.cpp's order [tools/server, format_prompt_infill; arXiv:2409.12186]:
 *
 *     REPO myproject FILE name text FILE name text .. FILE filename BOS PREFIX before begun SUFFIX after MIDDLE */
#include "fcgi/api/infill.h"

#include "fcgi/api/turn.h"

#include <stdio.h>
#include <string.h>

enum { BATCH_TOKENS = 2048, MAX_EXTRA = 1024, MAX_PROMPTS = 256 };

/* Growing list of ids in the arena. */
struct ids {
    struct call *call;
    struct err_info *info;
    int32_t *at;
    size_t n, cap;
};

static enum err add(struct ids *to, const int32_t *ids, size_t n)
{
    if (n > to->cap - to->n) {
        size_t cap = to->cap * 2 + n + 64;
        int32_t *grown = arena_zalloc_array(&to->call->arena, cap, sizeof *grown);
        TRY_MEM(grown != NULL);
        if (to->n > 0) {
            memcpy(grown, to->at, to->n * sizeof *grown);
        }
        to->at = grown;
        to->cap = cap;
    }
    if (n > 0) {
        memcpy(to->at + to->n, ids, n * sizeof *ids);
    }
    to->n += n;
    return ERR_OK;
}

/* Adds a mark if the model has it. */
static enum err add_mark(struct ids *to, int32_t id) { return id < 0 ? ERR_OK : add(to, &id, 1); }

static enum err add_text(struct ids *to, const char *text, size_t len)
{
    int32_t *ids;
    size_t n;
    TRY(engine_tokenize(to->call->engine, text, len, false, false, NULL, 0, &to->call->arena, &ids, &n, to->info));
    return add(to, ids, n);
}

static enum err add_string(struct ids *to, const json_t *v)
{
    return v == NULL ? ERR_OK : add_text(to, json_string_value(v), json_string_length(v));
}

/* Adds a file's name, which precedes its text. */
static enum err add_file(struct ids *to, const struct engine_fim *fim, const json_t *name, const char *otherwise)
{
    TRY(add_mark(to, fim->file));
    TRY(name != NULL ? add_string(to, name) : add_text(to, otherwise, strlen(otherwise)));
    return add_text(to, "\n", 1);
}

/* Adds the text of another file. */
static enum err add_extra(struct ids *to, const struct engine_fim *fim, const json_t *extra)
{
    static const char project[] = "myproject\n", snippet[] = "\n\n--- snippet ---\n\n";
    const json_t *chunk;
    size_t i;
    if (fim->repo >= 0) {
        TRY(add_mark(to, fim->repo));
        TRY(add_text(to, project, sizeof project - 1));
    }
    json_array_foreach((json_t *)extra, i, chunk)
    {
        TRY(fim->file >= 0 ? add_file(to, fim, json_read_get(chunk, "filename"), "tmp")
                           : add_text(to, snippet, sizeof snippet - 1));
        TRY(add_string(to, json_read_get(chunk, "text")));
    }
    return fim->file >= 0 ? add_file(to, fim, NULL, "filename") : ERR_OK;
}

/* --- checks ------------------------------------------------------------------------------------------------------------ */

static enum err check_marks(const struct engine_fim *fim, struct err_info *info)
{
    if (fim->prefix >= 0 && fim->suffix >= 0 && fim->middle >= 0) {
        return ERR_OK;
    }
    return err_set(
        info, ERR_NOT_SUPPORTED, NULL, "Infill is not supported by this model: its vocabulary has no%s%s%s token",
        fim->prefix < 0 ? " prefix" : "", fim->suffix < 0 ? " suffix" : "", fim->middle < 0 ? " middle" : "");
}

static enum err check_string(const char *where, const json_t *v, bool is_required, struct err_info *info)
{
    return v == NULL && !is_required ? ERR_OK : turn_expect(v, JSON_STRING, where, "a string", info);
}

static enum err check_extra(const json_t *extra, struct err_info *info)
{
    char where[ERR_WHERE_BYTES];
    if (extra != NULL && (!json_is_array(extra) || json_array_size(extra) > MAX_EXTRA)) {
        return turn_refuse(extra, JSON_ARRAY, "input_extra", "an array of at most 1024 objects with text and filename",
                           info);
    }
    for (size_t i = 0; i < json_array_size(extra); i++) {
        const json_t *chunk = json_array_get(extra, i);
        snprintf(where, sizeof where, "input_extra[%zu].text", i);
        TRY(check_string(where, json_read_get(chunk, "text"), true, info));
        snprintf(where, sizeof where, "input_extra[%zu].filename", i);
        TRY(check_string(where, json_read_get(chunk, "filename"), false, info));
    }
    return ERR_OK;
}

/* --- the prompt -------------------------------------------------------------------------------------------------------- */

/* Truncates to the available room: three quarters of a batch for the text before, one quarter for the text after. Other
 * files get the rest of the context less twice the answer. */
static void cut(const struct infill *f, struct ids *before, struct ids *after, size_t n_begun, struct ids *others)
{
    const struct call *c = before->call;
    int64_t given = c->server->conf->batch_size;
    size_t n_ctx = engine_model(c->engine)->n_ctx,
           n_batch = MIN_OF(given > 0 ? (size_t)given : BATCH_TOKENS, n_ctx / 2);
    size_t quarter = n_batch / 4, n_before = MIN_OF(before->n, 3 * quarter);
    size_t n_after = MIN_OF(after->n, quarter > 2 + n_begun ? quarter - 2 - n_begun : 0);
    size_t n_answer = f->n_predict > 0 ? 2 * (size_t)f->n_predict : 0;
    size_t n_others = MIN_OF(others->n, n_ctx > n_batch + n_answer ? n_ctx - n_batch - n_answer : 0);
    before->at += before->n - n_before;
    before->n = n_before;
    after->n = n_after;
    others->at += others->n - n_others;
    others->n = n_others;
}

/* Appends the prompt to p, which has room. after: the suffix's tokens. */
static enum err make_prompt(const struct infill *f, const struct engine_fim *fim, struct ids after, struct prompts *p)
{
    const struct ids none = {.call = after.call, .info = after.info};
    struct ids before = none, begun = none, others = none, all = none;
    TRY(add_string(&before, f->prefix));
    TRY(add_string(&begun, f->prompt));
    if (f->is_cut) {
        TRY(add_extra(&others, fim, f->extra));
        cut(f, &before, &after, begun.n, &others);
    }
    TRY(add(&all, others.at, others.n));
    TRY(add_mark(&all, fim->bos));
    TRY(add_mark(&all, fim->prefix));
    TRY(add(&all, before.at, before.n));
    TRY(add(&all, begun.at, begun.n));
    TRY(add_mark(&all, fim->suffix));
    TRY(add(&all, after.at, after.n));
    TRY(add_mark(&all, fim->middle));
    p->ids[p->n] = all.at;
    p->n_ids[p->n++] = all.n;
    return ERR_OK;
}

enum err infill_prompt(struct prompts *p, struct call *c, const struct infill *f, struct err_info *info)
{
    struct engine_fim fim;
    struct ids after = {.call = c, .info = info};
    engine_get_fim(c->engine, &fim);
    TRY(check_marks(&fim, info));
    TRY(check_string("prompt", f->prompt, false, info));
    TRY(check_string("input_prefix", f->prefix, true, info));
    TRY(check_string("input_suffix", f->suffix, true, info));
    TRY(check_extra(f->extra, info));
    TRY(add_string(&after, f->suffix));
    TRY(prompts_room(p, c, 1));
    return make_prompt(f, &fim, after, p);
}

static enum err read_prefix(const json_t *prompt, size_t i, struct infill *f, struct err_info *info)
{
    f->prefix = json_is_array(prompt) ? json_array_get(prompt, i) : prompt;
    return json_is_string(f->prefix)
               ? ERR_OK
               : json_in_refuse(f->prefix == NULL ? ERR_MISSING_PARAMETER : ERR_INVALID_TYPE, "prompt",
                                "a string, or an array of strings, where there is a suffix", f->prefix, info);
}

enum err infill_prompts(struct prompts *p, struct call *c, const json_t *root, struct err_info *info)
{
    const json_t *prompt = json_read_get(root, "prompt");
    size_t n = json_is_array(prompt) ? json_array_size(prompt) : 1;
    struct infill f = {.suffix = json_read_get(root, "suffix")};
    struct ids after = {.call = c, .info = info};
    struct engine_fim fim;
    if (n == 0 || n > MAX_PROMPTS) {
        return json_in_refuse(ERR_INVALID_VALUE, "prompt", "a string, or an array of at most 256 of them", prompt,
                              info);
    }
    engine_get_fim(c->engine, &fim);
    TRY(prompts_room(p, c, n));
    TRY(read_prefix(prompt, 0, &f, info));
    TRY(check_marks(&fim, info));
    TRY(add_string(&after, f.suffix)); /* once for all prompts */
    const struct prompts suffix = {.ids = &after.at, .n_ids = &after.n, .n = 1};
    TRY(prompts_check_length(c, &suffix, 0, "suffix", info));
    for (size_t i = 0; i < n; i++) {
        TRY(read_prefix(prompt, i, &f, info));
        TRY(make_prompt(&f, &fim, after, p));
        TRY(prompts_check_length(c, p, i, "prompt", info));
    }
    return ERR_OK;
}
