/* llama-server's own completions, POST /completion and /completions: its clients only need to change an address.
 * [llama.cpp tools/server/README.md] */
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "fcgi/api/infill.h"
#include "fcgi/api/llama/llama.h"
#include "fcgi/api/llama_output.h"
#include "fcgi/api/prompts.h"
#include "fcgi/api/turn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPTS = 256, MAX_FIELDS = 64, MAX_FIELD_BYTES = 128 };

/* A request, with the fields that only these endpoints have. */
struct completion {
    struct params params;
    struct prompts prompts;
    const char *fields[MAX_FIELDS]; /* members of the answer to return; none: all */
    size_t n_fields;
};

/* --- answers of /completion --------------------------------------------------------------------------------------- */

/* Begins {"index":..,"content":..,"tokens":[..],"stop":false, the members of a stream's event before the end; the
 * caller closes the object. */
static void open_part(const struct generation *g, const struct choice *c, const struct engine_event *ev,
                      struct buf *out)
{
    bool is_token = ev != NULL && ev->kind == SCHED_TOKEN;
    buf_printf(out, "data: {\"index\":%d,\"content\":", c->index);
    json_write_string(out, ev != NULL ? ev->text : "", ev != NULL ? ev->text_len : 0);
    buf_puts(out, ",\"tokens\":[");
    if (is_token) {
        json_write_int(out, ev->token.id);
    }
    buf_printf(out, "],\"stop\":false,\"id_slot\":%" PRId64 ",\"tokens_predicted\":%zu,\"tokens_evaluated\":%zu",
               g->params->id_slot, c->n_calls, c->n_prompt);
}

static void stream_token(struct generation *g, struct choice *c, const struct engine_event *ev, struct buf *out)
{
    bool is_token = ev->kind == SCHED_TOKEN;
    c->n_calls += is_token; /* counts tokens: there are no calls here */
    if (ev->text_len == 0 && !is_token) {
        return;
    }
    open_part(g, c, ev, out);
    if (g->timed != NULL) {
        buf_putc(out, ',');
        llama_write_timings(g->timed, out);
    }
    if (is_token && g->params->tells_probs) {
        buf_puts(out, ",\"completion_probabilities\":[");
        llama_write_probabilities(g, ev, out);
        buf_putc(out, ']');
    }
    buf_puts(out, "}\n\n");
}

static void stream_progress(struct generation *g, struct choice *c, struct buf *out)
{
    open_part(g, c, NULL, out);
    buf_putc(out, ',');
    llama_write_progress(g, c, out);
    buf_puts(out, "}\n\n");
}

/* Returns the members of the object that `fields` names, as "a/b" for nested ones. Missing members are omitted. */
static json_t *pick_fields(const json_t *object, const char *const *fields, size_t n_fields)
{
    json_t *picked = json_object();
    for (size_t i = 0; picked != NULL && i < n_fields; i++) {
        const json_t *at = object;
        for (const char *s = fields[i]; at != NULL && *s != '\0'; s += strcspn(s, "/"), s += *s == '/') {
            char name[MAX_FIELD_BYTES + 1];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(s, "/"), s);
            at = json_object_get(at, name);
        }
        if (at != NULL && json_object_set(picked, fields[i], (json_t *)at) != 0) {
            json_decref(picked);
            picked = NULL;
        }
    }
    return picked;
}

static void write_end(struct generation *g, const struct choice *c, struct buf *out)
{
    const struct completion *own = g->arg;
    if (own->n_fields == 0) {
        llama_write_result(g, c, out);
        return;
    }
    struct buf all;
    buf_init(&all, 0, MEM_REQUEST);
    llama_write_result(g, c, &all);
    json_t *object = buf_ok(&all) == ERR_OK ? json_loadb(all.data, all.len, JSON_ALLOW_NUL, NULL) : NULL;
    json_t *picked = object != NULL ? pick_fields(object, own->fields, own->n_fields) : NULL;
    char *text = picked != NULL ? json_dumps(picked, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    out->err = text == NULL && out->err == ERR_OK ? ERR_NOMEM : out->err;
    buf_puts(out, text != NULL ? text : "");
    mem_free(text);
    json_decref(picked);
    json_decref(object);
    buf_fini(&all);
}

/* The text was already sent. No [DONE], which is OpenAI's, follows. */
static void stream_finish(struct generation *g, struct choice *c, struct buf *out)
{
    buf_puts(out, "data: ");
    write_end(g, c, out);
    buf_puts(out, "\n\n");
}

static void gather(struct generation *g, struct choice *c, const struct engine_event *ev)
{
    buf_append(&c->text, ev->text, ev->text_len);
    if (g->params->tells_probs && ev->kind == SCHED_TOKEN) {
        buf_puts(&c->parts[0], c->parts[0].len == 0 ? "" : ",");
        llama_write_probabilities(g, ev, &c->parts[0]);
    }
}

/* Writes one object, or an array of objects for several prompts. */
static void write_whole(struct generation *g, struct buf *out)
{
    buf_puts(out, g->n_choices > 1 ? "[" : "");
    for (size_t i = 0; i < g->n_choices; i++) {
        buf_puts(out, i > 0 ? "," : "");
        write_end(g, &g->choices[i], out);
    }
    buf_puts(out, g->n_choices > 1 ? "]" : "");
}

static const struct shape completion_shape = {
    .id_prefix = "llama-",
    .prompt_field = "prompt",
    .token = stream_token,
    .finish = stream_finish,
    .gather = gather,
    .whole = write_whole,
    .progress = stream_progress,
};

/* --- POST /completion ----------------------------------------------------------------------------------------------- */

/* Sets a field and removes the field that it replaces. */
static bool rename_field(json_t *root, const char *from, const char *to, json_t *value)
{
    bool ok = json_object_set(root, to, value) == 0;
    json_object_del(root, from);
    return ok;
}

/* Translates the body to that of /v1/completions: n_probs becomes logprobs. */
static enum err translate(json_t *root, struct err_info *info)
{
    json_t *n_probs = json_object_get(root, "n_probs");
    bool ok = true;
    if (n_probs != NULL && !json_is_null(n_probs)) {
        int64_t n;
        bool is_whole = json_in_integer(n_probs, &n);
        if (!is_whole || n < 0 || n > SAMPLER_MAX_TOP) {
            return json_in_refuse(json_in_integer_code(n_probs), "n_probs", "a whole number of 0 to 20", n_probs, info);
        }
        if (n == 0) {
            json_object_del(root, "n_probs");
        } else {
            ok = rename_field(root, "n_probs", "logprobs", n_probs);
        }
    }
    json_t *tokens = json_object_get(root, "return_tokens");
    if (tokens != NULL && !json_is_null(tokens)) {
        ok = ok && rename_field(root, "return_tokens", "return_token_ids", tokens);
    }
    return ok ? ERR_OK : ERR_NOMEM;
}

/* Probabilities can be those after all samplers. */
static enum err read_post_sampling(struct params *p, const json_t *root, struct err_info *info)
{
    const json_t *post = json_read_get(root, "post_sampling_probs");
    if (post != NULL && !json_is_boolean(post)) {
        return json_in_refuse(ERR_INVALID_TYPE, "post_sampling_probs", "a boolean", post, info);
    }
    p->gen.sampling.tells_drawn = json_is_true(post);
    return ERR_OK;
}

static enum err read_response_fields(struct completion *q, const json_t *root, struct arena *arena,
                                     struct err_info *info)
{
    const json_t *fields = json_read_get(root, "response_fields"), *field;
    size_t i;
    if (fields == NULL) {
        return ERR_OK;
    }
    if (!json_is_array(fields) || json_array_size(fields) > MAX_FIELDS) {
        return turn_refuse(fields, JSON_ARRAY, "response_fields", "an array of at most 64 strings", info);
    }
    json_array_foreach((json_t *)fields, i, field)
    {
        size_t n = json_string_length(field);
        if (!json_is_string(field) || n > MAX_FIELD_BYTES || strlen(json_string_value(field)) != n) {
            return json_in_refuse(json_is_string(field) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE, "response_fields",
                                  "strings of at most 128 bytes", field, info);
        }
        q->fields[q->n_fields++] = arena_dup(arena, json_string_value(field), n);
    }
    return arena_ok(arena);
}

/* --- samplers ------------------------------------------------------------------------------------------------------- */

/* In the order in which the stages run. Lists name samplers in full, strings by a letter. */
enum sampler { PENALTIES, TOP_K, TYPICAL, TOP_P, MIN_P, TEMPERATURE, N_SAMPLERS };
static const struct {
    const char *names[2];
    char letter;
} known_samplers[N_SAMPLERS] = {
    [PENALTIES] = {{"penalties", NULL}, 'e'},  [TOP_K] = {{"top_k", "top-k"}, 'k'},
    [TYPICAL] = {{"typ_p", "typical_p"}, 'y'}, [TOP_P] = {{"top_p", "top-p"}, 'p'},
    [MIN_P] = {{"min_p", "min-p"}, 'm'},       [TEMPERATURE] = {{"temperature", "temp"}, 't'},
};

/* Samplers of llama.cpp that infcgi lacks, with the value that turns each off, which is its default. Naming one without
 * its field has no effect. */
static const struct {
    const char *name, *field;
    char letter;
    double off; /* this value and lower ones */
} other_samplers[] = {
    {"dry", "dry_multiplier", 'd', 0}, {"top_n_sigma", "top_n_sigma", 's', 0},     {"xtc", "xtc_probability", 'x', 0},
    {"infill", NULL, 'i', 0},          {"adaptive_p", "adaptive_target", 'a', -1}, {"", "mirostat", '\0', 0},
    {"", "dynatemp_range", '\0', 0},
};

static int find_sampler(const char *name, char letter)
{
    for (int i = 0; i < N_SAMPLERS; i++) {
        bool is_named =
            name != NULL && (strcmp(name, known_samplers[i].names[0]) == 0 ||
                             (known_samplers[i].names[1] != NULL && strcmp(name, known_samplers[i].names[1]) == 0));
        if (is_named || (name == NULL && letter == known_samplers[i].letter)) {
            return i;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(other_samplers); i++) {
        bool is_named = name != NULL && name[0] != '\0' && strcmp(name, other_samplers[i].name) == 0;
        if (is_named || (name == NULL && letter != '\0' && letter == other_samplers[i].letter)) {
            return N_SAMPLERS;
        }
    }
    return -1;
}

/* Rejects fields that need a sampler that infcgi lacks. */
static enum err refuse_others(const json_t *root, struct err_info *info)
{
    for (size_t i = 0; i < ARRAY_LEN(other_samplers); i++) {
        const char *field = other_samplers[i].field;
        const json_t *v = field != NULL ? json_read_get(root, field) : NULL;
        if (json_is_number(v) && json_number_value(v) > other_samplers[i].off) {
            return err_set(info, ERR_UNSUPPORTED_PARAMETER, field,
                           "%s: expected %g, which is off, as the server has no such sampler", field,
                           other_samplers[i].off);
        }
    }
    return ERR_OK;
}

/* Turns off the samplers that the list omits. infcgi's order is fixed, so a list in another order is rejected. */
static enum err read_samplers(struct sampler_params *s, const json_t *list, struct err_info *info)
{
    static const char expected[] =
        "names of samplers (penalties, top_k, typ_p, top_p, min_p, temperature) in this order, or a "
        "string of their letters";
    bool is_string = json_is_string(list), is_there[N_SAMPLERS + 1] = {false};
    size_t n = is_string ? json_string_length(list) : json_array_size(list);
    int last = -1;
    if (list == NULL || json_is_null(list)) {
        return ERR_OK;
    }
    if (!is_string && !json_is_array(list)) {
        return json_in_refuse(ERR_INVALID_TYPE, "samplers", expected, list, info);
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int found = is_string      ? find_sampler(NULL, json_string_value(list)[i])
                    : name != NULL ? find_sampler(name, '\0')
                                   : -1;
        if (found < 0) {
            return json_in_refuse(ERR_INVALID_VALUE, "samplers", expected, is_string ? list : json_array_get(list, i),
                                  info);
        }
        if (found < N_SAMPLERS && found < last) {
            return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, "samplers", expected, list, info);
        }
        last = found < N_SAMPLERS ? found : last;
        is_there[found] = true;
    }
    s->top_k = is_there[TOP_K] ? s->top_k : 0;
    s->typical_p = is_there[TYPICAL] ? s->typical_p : 1;
    s->top_p = is_there[TOP_P] ? s->top_p : 1;
    s->min_p = is_there[MIN_P] ? s->min_p : 0;
    s->temperature = is_there[TEMPERATURE] || s->temperature == 0 ? s->temperature : 1;
    if (!is_there[PENALTIES]) {
        s->repeat_penalty = 1;
        s->presence_penalty = s->frequency_penalty = 0;
    }
    return ERR_OK;
}

/* --- the request ------------------------------------------------------------------------------------------------------ */

/* Removes the fields that /v1/completions does not know, after they were read. */
static void drop_own_fields(json_t *root)
{
    static const char *const own[] = {"post_sampling_probs",
                                      "response_fields",
                                      "samplers",
                                      "input_prefix",
                                      "input_suffix",
                                      "input_extra",
                                      "lora",
                                      "min_keep",
                                      "n_keep",
                                      "n_discard",
                                      "dynatemp_exponent",
                                      "xtc_threshold",
                                      "dry_base",
                                      "dry_allowed_length",
                                      "dry_penalty_last_n",
                                      "dry_sequence_breakers",
                                      "mirostat_tau",
                                      "mirostat_eta",
                                      "adaptive_decay"};
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        json_object_del(root, own[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(other_samplers); i++) {
        if (other_samplers[i].field != NULL) {
            json_object_del(root, other_samplers[i].field);
        }
    }
}

/* Reads the prompts; /infill has one. Must run before drop_own_fields. */
static enum err read_prompts(struct prompts *p, struct call *c, bool is_infill, struct err_info *info)
{
    static const struct prompts_rule rule = {
        .field = "prompt", .check = prompts_check_length, .max = MAX_PROMPTS, .takes_mixed = true};
    if (!is_infill) {
        return prompts_read(p, c, c->json, &rule, info);
    }
    int64_t n_predict;
    bool is_given = json_in_integer(json_read_get(c->json, "n_predict"), &n_predict);
    struct infill f = {.prefix = json_read_get(c->json, "input_prefix"),
                       .suffix = json_read_get(c->json, "input_suffix"),
                       .prompt = json_read_get(c->json, "prompt"),
                       .extra = json_read_get(c->json, "input_extra"),
                       .is_cut = true,
                       .n_predict = is_given ? n_predict : -1};
    f.n_predict = MIN_OF(f.n_predict, (int64_t)INT32_MAX);
    return infill_prompt(p, c, &f, info);
}

static enum err check_lora(const json_t *root, struct err_info *info)
{
    const json_t *lora = json_read_get(root, "lora");
    return lora == NULL || (json_is_array(lora) && json_array_size(lora) == 0)
               ? ERR_OK
               : json_in_refuse(ERR_UNSUPPORTED_PARAMETER, "lora", "an empty array, as there are no adapters", lora,
                                info);
}

/* Reads all fields of the body and changes the body. */
static enum err read_body(struct call *c, bool is_infill, struct completion *q, struct err_info *info)
{
    struct params *p = &q->params;
    TRY(call_read_json(c, info));
    TRY(engine_check_generates(c->engine, info));
    TRY(translate(c->json, info));
    TRY(read_post_sampling(p, c->json, info));
    TRY(read_response_fields(q, c->json, &c->arena, info));
    TRY(check_lora(c->json, info));
    TRY(refuse_others(c->json, info));
    TRY(read_prompts(&q->prompts, c, is_infill, info));
    json_t *samplers = json_incref(json_object_get(c->json, "samplers"));
    drop_own_fields(c->json);
    enum err err = params_read(p, c, &fields_of_completions, c->json, info);
    err = err != ERR_OK ? err : read_samplers(&p->gen.sampling, samplers, info);
    json_decref(samplers);
    TRY(err);
    TRY(generation_check_model(c, p->model, info));
    p->tells_probs = p->logprobs > 0;
    return params_grammar(p, c->engine, info);
}

static void complete(struct call *c, bool is_infill)
{
    struct err_info info = {0};
    struct completion q = {.n_fields = 0};
    params_init(&q.params, c);
    enum err err = read_body(c, is_infill, &q, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        call_drop_json(c); /* before the answer, which can take minutes */
        generation_run(c, &q.params, &completion_shape, &q, &q.prompts);
    }
    params_fini(&q.params);
}

void api_llama_completion(struct call *c) { complete(c, false); }
void api_llama_infill(struct call *c) { complete(c, true); }
