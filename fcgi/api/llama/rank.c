/* POST /v1/rerank as Jina, Cohere and vLLM define it: documents ranked by relevance to a query. POST /v1/score as vLLM
 * defines it: the score of each pair. A ranking model returns an unbounded number; the logistic function maps it to a
 * score from 0 to 1. */
#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "fcgi/api/fields.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/llama/llama.h"
#include "fcgi/api/turn.h"
#include "fcgi/api/vectors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank_fields {
    const char *model, *cache_salt;
    int64_t top_n;
    bool returns_documents;
    bool activates; /* apply the logistic function to scores */
    bool is_raw;    /* the opposite, TEI's name */
};

#define COMMON                                                                                                         \
    {"model", FIELD_STRING, offsetof(struct rank_fields, model), 0, 4096},                                             \
        {"cache_salt", FIELD_STRING, offsetof(struct rank_fields, cache_salt), 0, APIKEY_CLIENT_SALT_BYTES},           \
        {"use_activation", FIELD_BOOL, offsetof(struct rank_fields, activates), 0, 0},                                 \
        {"activation", FIELD_BOOL, offsetof(struct rank_fields, activates), 0, 0},                                     \
        {"user", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS}, {"priority", FIELD_IGNORED, 0, 0, 0},                        \
    {                                                                                                                  \
        "truncate_prompt_tokens", FIELD_REFUSED, 0, 0, 0                                                               \
    }

static const struct field rerank_fields[] = {
    COMMON,
    {"query", FIELD_CUSTOM, 0, 0, 0},
    {"documents", FIELD_CUSTOM, 0, 0, 0},
    {"texts", FIELD_CUSTOM, 0, 0, 0}, /* TEI's, as are the next two; they select its answer format */
    {"return_text", FIELD_BOOL, offsetof(struct rank_fields, returns_documents), 0, 0},
    {"raw_scores", FIELD_BOOL, offsetof(struct rank_fields, is_raw), 0, 0},
    {"top_n", FIELD_INT, offsetof(struct rank_fields, top_n), 0, 1 << 30},
    {"return_documents", FIELD_BOOL, offsetof(struct rank_fields, returns_documents), 0, 0},
    {"rank_fields", FIELD_REFUSED, 0, 0, 0},
    {"max_chunks_per_doc", FIELD_REFUSED, 0, 0, 0},
    {"max_tokens_per_doc", FIELD_REFUSED, 0, 0, 0},
};
const struct field_table fields_of_rerank = {"rerank", rerank_fields, ARRAY_LEN(rerank_fields)};

static const struct field score_fields[] = {
    COMMON,
    {"text_1", FIELD_CUSTOM, 0, 0, 0},
    {"text_2", FIELD_CUSTOM, 0, 0, 0},
    {"queries", FIELD_CUSTOM, 0, 0, 0},
    {"documents", FIELD_CUSTOM, 0, 0, 0},
};
const struct field_table fields_of_score = {"score", score_fields, ARRAY_LEN(score_fields)};

struct result {
    size_t index;
    double score;
};

/* State of a request. */
struct job {
    struct call *call;
    struct rank_fields fields;
    struct prompts prompts;                 /* the pairs */
    struct engine_query *first;             /* [n_first] */
    struct engine_text *second;             /* [prompts.n] */
    size_t n_first;                         /* 1 or prompts.n */
    const char *first_field, *second_field; /* names of the request's fields */
    struct engine_embed_params params;
    char salt[APIKEY_SALT_BYTES]; /* params.cache_salt can point here */
    struct result *results;       /* [prompts.n] */
    bool is_tei;                  /* the answer has Text Embeddings Inference's format */
    size_t n_tokens;
};

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Reads a text, or {"text": ...}. */
static enum err read_text(const char *where, const json_t *v, struct engine_text *out, struct err_info *info)
{
    const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
    if (!json_is_string(text)) {
        return json_in_refuse(ERR_INVALID_TYPE, where, "a string, or an object with a string under text", v, info);
    }
    *out = (struct engine_text){json_string_value(text), json_string_length(text)};
    return ERR_OK;
}

/* Reads a list of texts, or one text if is_one_fine. */
static enum err read_texts(struct job *j, const char *field, bool is_one_fine, struct engine_text **out, size_t *n,
                           struct err_info *info)
{
    static const char *const expected[] = {"an array of 1 to 2048 texts", "a text or an array of 1 to 2048 texts"};
    const json_t *v = json_read_get(j->call->json, field);
    bool is_array = json_is_array(v);
    *n = is_array ? json_array_size(v) : 1;
    if (v == NULL || (!is_array && !is_one_fine) || *n == 0 || *n > VECTORS_MAX_TEXTS) {
        return turn_refuse(v, JSON_ARRAY, field, expected[is_one_fine], info);
    }
    *out = arena_zalloc_array(&j->call->arena, *n, sizeof **out);
    TRY(arena_ok(&j->call->arena));
    for (size_t i = 0; i < *n; i++) {
        char where[ERR_WHERE_BYTES];
        snprintf(where, sizeof where, is_array ? "%s[%zu]" : "%s", field, i);
        TRY(read_text(where, is_array ? json_array_get(v, i) : v, &(*out)[i], info));
    }
    return ERR_OK;
}

/* Reads the first texts of a score's pairs. */
static enum err read_queries(struct job *j, struct err_info *info)
{
    struct engine_text *texts;
    TRY(read_texts(j, j->first_field, true, &texts, &j->n_first, info));
    j->first = arena_zalloc_array(&j->call->arena, j->n_first, sizeof *j->first);
    TRY(arena_ok(&j->call->arena));
    for (size_t i = 0; i < j->n_first; i++) {
        j->first[i].text = texts[i];
    }
    return ERR_OK;
}

static enum err tokenize(struct job *j, struct err_info *info)
{
    struct prompts *p = &j->prompts;
    struct arena *a = &j->call->arena;
    TRY(prompts_room(p, j->call, p->n));
    j->results = arena_zalloc_array(a, p->n, sizeof *j->results);
    TRY(arena_ok(a));
    for (size_t i = 0; i < p->n; i++) {
        TRY(engine_tokenize_pair(j->call->engine, &j->first[j->n_first == 1 ? 0 : i], &j->second[i], a, &p->ids[i],
                                 &p->n_ids[i], info));
        if (p->n_ids[i] == 0) {
            return err_set(info, ERR_INVALID_VALUE, j->second_field, "%s: expected at least one token, found none",
                           j->second_field);
        }
        TRY(vectors_check_length(j->call, p, i, j->second_field, info));
    }
    return ERR_OK;
}

/* Reads the fields that both endpoints share; the field names must be set. */
static enum err read_common(struct job *j, const struct field_table *table, struct err_info *info)
{
    struct call *c = j->call;
    j->fields.activates = true;
    TRY(fields_read(c, table, c->json, &j->fields, info));
    TRY(generation_check_model(c, j->fields.model, info));
    TRY(engine_check_ranks(c->engine, info));
    return vectors_params(c, j->fields.cache_salt, j->salt, &j->params);
}

static enum err read_rerank(struct job *j, struct err_info *info)
{
    struct call *c = j->call;
    j->first_field = "query";
    j->is_tei = json_read_get(c->json, "documents") == NULL && json_read_get(c->json, "texts") != NULL;
    j->second_field = j->is_tei ? "texts" : "documents";
    TRY(read_common(j, &fields_of_rerank, info));
    j->fields.activates = j->fields.activates && !j->fields.is_raw;
    const json_t *query = json_read_get(c->json, "query");
    if (query == NULL) {
        return json_in_refuse(ERR_MISSING_PARAMETER, "query", "a text", NULL, info);
    }
    j->first = arena_zalloc(&c->arena, sizeof *j->first);
    j->n_first = 1;
    TRY(arena_ok(&c->arena));
    TRY(read_text("query", query, &j->first->text, info));
    TRY(read_texts(j, j->second_field, false, &j->second, &j->prompts.n, info));
    return tokenize(j, info);
}

static enum err read_score(struct job *j, struct err_info *info)
{
    bool is_new = json_read_get(j->call->json, "queries") != NULL || json_read_get(j->call->json, "documents") != NULL;
    j->first_field = is_new ? "queries" : "text_1";
    j->second_field = is_new ? "documents" : "text_2";
    TRY(read_common(j, &fields_of_score, info));
    TRY(read_queries(j, info));
    TRY(read_texts(j, j->second_field, true, &j->second, &j->prompts.n, info));
    if (j->n_first != 1 && j->n_first != j->prompts.n) {
        return err_set(info, ERR_INVALID_VALUE, j->second_field,
                       "%s: expected %zu texts, as many as %s, or one in %s, found %zu", j->second_field, j->n_first,
                       j->first_field, j->first_field, j->prompts.n);
    }
    return tokenize(j, info);
}

/* --- answering ---------------------------------------------------------------------------------------------------- */

static enum err keep_score(void *arg, size_t i, const float *number)
{
    struct job *j = arg;
    double x = number[0];
    j->results[i] = (struct result){i, j->fields.activates ? 1 / (1 + exp(-x)) : x};
    return ERR_OK;
}

/* Sorts by score, best first, then by index. */
static int compare(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                : (x->index > y->index) - (x->index < y->index);
}

static void write_head(const struct job *j, const char *prefix, struct buf *out)
{
    buf_printf(out, "{\"id\":\"%s-%s\",\"object\":\"list\",\"created\":%" PRId64 ",\"model\":", prefix,
               j->call->reply.id, clock_unix_seconds());
    json_write_cstr(out, j->call->server->model_id);
}

static void write_usage(const struct job *j, struct buf *out)
{
    buf_printf(out, "],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", j->n_tokens, j->n_tokens);
}

static void write_result(const struct job *j, const struct result *r, struct buf *out)
{
    buf_printf(out, "{\"index\":%zu,\"%s\":", r->index, j->is_tei ? "score" : "relevance_score");
    json_write_float(out, (float)r->score);
    if (j->fields.returns_documents) {
        buf_puts(out, j->is_tei ? ",\"text\":" : ",\"document\":{\"text\":");
        json_write_string(out, j->second[r->index].text, j->second[r->index].n);
        buf_puts(out, j->is_tei ? "" : "}");
    }
    buf_putc(out, '}');
}

static void write_rerank(struct job *j, struct buf *out)
{
    size_t n = j->prompts.n;
    qsort(j->results, n, sizeof *j->results, compare);
    n = j->fields.top_n > 0 ? MIN_OF(n, (size_t)j->fields.top_n) : n;
    if (!j->is_tei) {
        write_head(j, "rerank", out);
    }
    buf_puts(out, j->is_tei ? "[" : ",\"results\":[");
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        write_result(j, &j->results[i], out);
    }
    if (j->is_tei) { /* a bare array */
        buf_putc(out, ']');
        return;
    }
    write_usage(j, out);
}

static void write_score(struct job *j, struct buf *out)
{
    write_head(j, "score", out);
    buf_puts(out, ",\"data\":[");
    for (size_t i = 0; i < j->prompts.n; i++) {
        buf_printf(out, "%s{\"index\":%zu,\"object\":\"score\",\"score\":", i == 0 ? "" : ",", i);
        json_write_float(out, (float)j->results[i].score);
        buf_putc(out, '}');
    }
    write_usage(j, out);
}

/* Keeps the JSON: the texts point into it. */
static void answer(struct call *c, enum err (*read)(struct job *j, struct err_info *info),
                   void (*write)(struct job *j, struct buf *out), const char *name)
{
    struct err_info info = {0};
    struct job j = {.call = c};
    struct vectors v = {.prompts = &j.prompts, .start = engine_rank, .each = keep_score, .arg = &j};
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = call_read_json(c, &info);
    err = err != ERR_OK ? err : read(&j, &info);
    err = err != ERR_OK ? err : vectors_run(&v, c, &j.params, name, &info);
    if (err == ERR_OK) {
        j.n_tokens = v.n_tokens;
        write(&j, &out);
    }
    reply_json(&c->reply, err, &info, &out);
}

void api_rerank(struct call *c) { answer(c, read_rerank, write_rerank, "rerank"); }

void api_score(struct call *c) { answer(c, read_score, write_score, "score"); }
