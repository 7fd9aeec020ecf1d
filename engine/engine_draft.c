/* The draft model: a small model that guesses the tokens of a larger one. Its plan is joined with the larger one's
 * (plan_join.h), so that everything else treats it as a prediction head. Or the file has a prediction head for the
 * model, whose own file lacks it. */
#include "engine/engine_internal.h"

#include "engine/base/names.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 24 };

/* llama-server's names come last: infcgi's lookup replaces all its kinds of n-grams. */
static const struct {
    const char *word;
    unsigned sources;
} words[] = {{"auto", ENGINE_LOOKUP | ENGINE_HEAD | ENGINE_DRAFT},
             {"no-head", ENGINE_LOOKUP | ENGINE_DRAFT},
             {"off", 0},
             {"lookup", ENGINE_LOOKUP},
             {"head", ENGINE_HEAD},
             {"model", ENGINE_DRAFT},
             {"none", 0},
             {"draft-mtp", ENGINE_HEAD},
             {"draft-eagle3", ENGINE_HEAD},
             {"draft-simple", ENGINE_DRAFT},
             {"ngram-simple", ENGINE_LOOKUP},
             {"ngram-map-k", ENGINE_LOOKUP},
             {"ngram-map-k4v", ENGINE_LOOKUP},
             {"ngram-mod", ENGINE_LOOKUP},
             {"ngram-cache", ENGINE_LOOKUP}};

const char *engine_draft_word(int i) { return i >= 0 && i < (int)ARRAY_LEN(words) ? words[i].word : NULL; }

enum err engine_draft_parse(const char *text, const char *what, unsigned *sources, struct err_info *info)
{
    unsigned found = 0;
    for (const char *at = text; at != NULL;) {
        const char *comma = strchr(at, ',');
        size_t n = comma != NULL ? (size_t)(comma - at) : strlen(at), i = 0;
        while (i < ARRAY_LEN(words) && (strlen(words[i].word) != n || memcmp(words[i].word, at, n) != 0)) {
            i++;
        }
        if (i == ARRAY_LEN(words)) {
            char wrong[64];
            snprintf(wrong, sizeof wrong, "%.*s", (int)MIN_OF(n, sizeof wrong - 1), at);
            return names_refuse(engine_draft_word, what, wrong, info);
        }
        found |= words[i].sources;
        at = comma != NULL ? comma + 1 : NULL;
    }
    if (sources != NULL) {
        *sources = found;
    }
    return ERR_OK;
}

/* Says that the error is one of the draft's file. */
static enum err tell_file(enum err err, const char *path, struct err_info *info)
{
    if (err != ERR_OK) {
        err_name_file(info, path);
        err_name_file(info, "draft-model");
    }
    return err;
}

enum err engine_draft_open(struct engine *e, const struct engine_config *cfg, struct err_info *info)
{
    TRY(tell_file(model_open(cfg->draft_path, &e->draft_file, info), cfg->draft_path, info));
    unsigned source = model_has_head_of(e->draft_file, e->gguf) ? ENGINE_HEAD : ENGINE_DRAFT;
    if ((e->sources & source) == 0) {
        gguf_close(&e->draft_file);
        return ERR_OK;
    }
    return model_build_drafting(e->gguf, e->draft_file, cfg->n_ctx, &e->plan, &e->draft_plan, info);
}

/* Returns whether text consists of this token: control tokens and fillers never do. */
static bool is_text(const struct tokenizer *t, int32_t id)
{
    enum token_kind kind = tokenizer_kind(t, id);
    return kind == TOKEN_NORMAL || kind == TOKEN_BYTE;
}

static enum err compare(const struct tokenizer *own, const struct tokenizer *draft, struct err_info *info)
{
    int32_t n_own = tokenizer_n_vocab(own), n_draft = tokenizer_n_vocab(draft);
    for (int32_t id = 0; id < MIN_OF(n_own, n_draft); id++) {
        struct gguf_str a = tokenizer_token_text(own, id), b = tokenizer_token_text(draft, id);
        bool is_same = a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
        if (!is_same && (is_text(own, id) || is_text(draft, id))) {
            return err_set(info, ERR_CONFIG, "draft-model",
                           "draft-model: expected the model's vocabulary, found another: token %" PRId32
                           " is '%.*s' in the model and '%.*s' in the draft",
                           id, (int)MIN_OF(a.len, (size_t)SHOWN_BYTES), a.data, (int)MIN_OF(b.len, (size_t)SHOWN_BYTES),
                           b.data);
        }
    }
    return ERR_OK;
}

enum err engine_draft_check(const struct engine *e, const char *path, struct err_info *info)
{
    struct tokenizer *draft;
    if (e->draft_file == NULL) {
        return ERR_OK;
    }
    TRY(tell_file(tokenizer_new(e->draft_file, &draft, info), path, info));
    enum err err = compare(e->tokenizer, draft, info);
    tokenizer_free(&draft);
    return err;
}

void engine_drop_pages(void *engine, const void *data, uint64_t n)
{
    const struct engine *e = engine;
    gguf_drop(e->gguf, data, n);
    if (e->draft_file != NULL) {
        gguf_drop(e->draft_file, data, n);
    }
}

void engine_draft_close(struct engine *e)
{
    plan_free(&e->draft_plan);
    gguf_close(&e->draft_file);
}
