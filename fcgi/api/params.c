/* The tables of OpenAI's chat and text completions, and fields that need their own code. */
#include "fcgi/api/params.h"

#include "engine/base/mem.h"
#include "fcgi/api/reasoning.h"
#include "fcgi/api/turn.h"

#include <math.h>
#include <string.h>

#define AT        PARAMS_AT
#define INT32_TOP PARAMS_INT32_TOP

/* Rows of both endpoints, with OpenAI's, llama.cpp's and vLLM's names. */
#define SHARED_FIELDS                                                                                                  \
    PARAMS_SAMPLING, {"model", FIELD_STRING, AT(model), 0, 4096},                                                      \
        {"typical_p", FIELD_FLOAT, AT(gen.sampling.typical_p), 0, 1},                                                  \
        {"repetition_penalty", FIELD_FLOAT, AT(gen.sampling.repeat_penalty), 0.01, 10},                                \
        {"repeat_last_n", FIELD_INT32, AT(gen.sampling.repeat_last_n), -1, INT32_TOP},                                 \
        {"n", FIELD_INT, AT(n), 1, PARAMS_MAX_N}, {"max_tokens", FIELD_INT32, AT(gen.max_tokens), -1, INT32_TOP},      \
        {"n_predict", FIELD_INT32, AT(gen.max_tokens), -1, INT32_TOP},                                                 \
        {"min_tokens", FIELD_INT32, AT(gen.min_tokens), 0, INT32_TOP},                                                 \
        {"ignore_eos", FIELD_BOOL, AT(gen.ignore_eos), 0, 0}, {"stream", FIELD_BOOL, AT(stream), 0, 0},                \
        {"cache_salt", FIELD_STRING, AT(gen.cache_salt), 0, APIKEY_CLIENT_SALT_BYTES},                                 \
        {"return_token_ids", FIELD_BOOL, AT(return_token_ids), 0, 0}, {"stop", FIELD_CUSTOM, 0, 0, 0},                 \
        {"stop_token_ids", FIELD_CUSTOM, 0, 0, 0}, {"logit_bias", FIELD_CUSTOM, 0, 0, 0},                              \
        {"stream_options", FIELD_CUSTOM, 0, 0, 0}, {"user", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},                   \
        {"grammar", FIELD_CUSTOM, 0, 0, 0}, {"json_schema", FIELD_CUSTOM, 0, 0, 0},                                    \
        {"guided_json", FIELD_CUSTOM, 0, 0, 0}, {"guided_regex", FIELD_CUSTOM, 0, 0, 0},                               \
        {"guided_choice", FIELD_CUSTOM, 0, 0, 0}, {"guided_grammar", FIELD_CUSTOM, 0, 0, 0},                           \
        {"guided_decoding_backend", FIELD_IGNORED, 0, 0, 0}, {"guided_whitespace_pattern", FIELD_REFUSED, 0, 0, 0},    \
        {"structured_outputs", FIELD_CUSTOM, 0, 0, 0}, {"response_format", FIELD_CUSTOM, 0, 0, 0},                     \
        {"metadata", FIELD_IGNORED, 0, 0, 0}, {"cache_prompt", FIELD_BOOL, AT(cache_prompt), 0, 0},                    \
        {"timings_per_token", FIELD_BOOL, AT(timings_per_token), 0, 0},                                                \
        {"return_progress", FIELD_BOOL, AT(return_progress), 0, 0}, {"verbose", FIELD_BOOL, AT(verbose), 0, 0},        \
        {"id_slot", FIELD_INT, AT(id_slot), -1, 1023}, {"t_max_predict_ms", FIELD_INT, AT(t_max_ms), -1, INT32_TOP},   \
    {                                                                                                                  \
        "chat_template", FIELD_REFUSED, 0, 0, 0                                                                        \
    }

static const struct field chat_fields[] = {
    SHARED_FIELDS,
    {"messages", FIELD_CUSTOM, 0, 0, 0},
    {"max_completion_tokens", FIELD_INT32, AT(gen.max_tokens), -1, INT32_TOP},
    {"logprobs", FIELD_BOOL, AT(want_logprobs), 0, 0},
    {"top_logprobs", FIELD_INT, AT(top_logprobs), 0, SAMPLER_MAX_TOP},
    {"add_generation_prompt", FIELD_BOOL, AT(add_generation_prompt), 0, 0},
    {"continue_final_message", FIELD_BOOL, AT(continues), 0, 0},
    {"tools", FIELD_CUSTOM, 0, 0, 0},
    {"tool_choice", FIELD_CUSTOM, 0, 0, 0},
    {"chat_template_kwargs", FIELD_CUSTOM, 0, 0, 0},
    {"parallel_tool_calls", FIELD_CUSTOM, 0, 0, 0},
    {"reasoning_effort", FIELD_CUSTOM, 0, 0, 0},
    {"reasoning_format", FIELD_CUSTOM, 0, 0, 0},
    PARAMS_THINKING,
    {"modalities", FIELD_CUSTOM, 0, 0, 0},
    {"store", FIELD_IGNORED, 0, 0, 0},
    {"service_tier", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"safety_identifier", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"prompt_cache_key", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"verbosity", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
    {"reasoning", FIELD_IGNORED, 0, 0, 0}, /* OpenRouter's and that of /v1/responses */
    {"prediction", FIELD_IGNORED, 0, 0, 0},
    {"audio", FIELD_REFUSED, 0, 0, 0},
    {"functions", FIELD_REFUSED, 0, 0, 0},
    {"function_call", FIELD_REFUSED, 0, 0, 0},
    {"web_search_options", FIELD_REFUSED, 0, 0, 0},
};
const struct field_table fields_of_chat = {"chat", chat_fields, ARRAY_LEN(chat_fields)};

static const struct field completion_fields[] = {
    SHARED_FIELDS,
    {"prompt", FIELD_CUSTOM, 0, 0, 0},
    {"echo", FIELD_BOOL, AT(echo), 0, 0},
    {"logprobs", FIELD_INT, AT(logprobs), 0, SAMPLER_MAX_TOP},
    {"best_of", FIELD_INT, AT(best_of), 1, PARAMS_MAX_N},
    {"suffix", FIELD_STRING, AT(suffix), 0, INT32_TOP},
    {"image_data", FIELD_REFUSED, 0, 0, 0},
};
const struct field_table fields_of_completions = {"completions", completion_fields, ARRAY_LEN(completion_fields)};

bool params_has_grammar(const struct params *p) { return p->constraint.kind != CONSTRAINT_NONE; }

bool params_has_text_grammar(const struct params *p) { return params_has_grammar(p) && !p->constraint.is_of_response; }

enum err params_grammar(struct params *p, struct engine *e, struct err_info *info)
{
    return constraint_grammar(&p->constraint, e, p->thinking, &p->gen.grammar, info);
}

/* --- fields with special code ------------------------------------------------------------------------------------- */

/* A request while it is read. */
struct reader {
    struct params *p;
    struct call *call;
    const struct field_table *table;
    const json_t *object;
    struct err_info *info;
};

/* Returns the value of a field; NULL if it is absent, null, ignored, or not of the table. */
static const json_t *given(const struct reader *r, const char *name)
{
    const json_t *v = json_read_get(r->object, name);
    for (size_t i = 0; v != NULL && i < r->table->n; i++) {
        if (strcmp(r->table->rows[i].name, name) == 0) {
            return r->table->rows[i].kind != FIELD_IGNORED ? v : NULL;
        }
    }
    return NULL;
}

enum err params_add_stop(struct params *p, struct call *c, const json_t *v, struct err_info *info)
{
    size_t n = json_is_string(v) ? json_string_length(v) : 0;
    if (n == 0 || n > ENGINE_MAX_STOP_BYTES || p->gen.n_stop == ENGINE_MAX_STOPS) {
        return err_set(info, json_is_string(v) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE, "stop",
                       "stop: expected at most %d strings of 1 to %d bytes, found %s%s", ENGINE_MAX_STOPS,
                       ENGINE_MAX_STOP_BYTES, json_read_type_name(v), json_is_string(v) ? " beyond that" : "");
    }
    p->gen.stop[p->gen.n_stop] = arena_dup(&c->arena, json_string_value(v), n);
    p->gen.stop_len[p->gen.n_stop++] = n;
    return arena_ok(&c->arena);
}

static enum err read_stop(const struct reader *r)
{
    const json_t *stop = given(r, "stop");
    if (stop == NULL || !json_is_array(stop)) {
        return stop == NULL ? ERR_OK : params_add_stop(r->p, r->call, stop, r->info);
    }
    for (size_t i = 0; i < json_array_size(stop); i++) {
        TRY(params_add_stop(r->p, r->call, json_array_get(stop, i), r->info));
    }
    return ERR_OK;
}

static enum err read_stop_ids(const struct reader *r)
{
    const json_t *ids = given(r, "stop_token_ids");
    int64_t n_vocab = engine_model(r->call->engine)->n_vocab;
    if (ids == NULL) {
        return ERR_OK;
    }
    if (!json_is_array(ids) || json_array_size(ids) > PARAMS_MAX_STOP_IDS) {
        return err_set(r->info, json_is_array(ids) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE, "stop_token_ids",
                       "stop_token_ids: expected an array of at most %d token ids", PARAMS_MAX_STOP_IDS);
    }
    struct sampler_params *sampling = &r->p->gen.sampling;
    int32_t *ends = arena_zalloc_array(&r->call->arena, json_array_size(ids) + 1, sizeof *ends);
    TRY_MEM(ends != NULL);
    sampling->ends = ends;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        int64_t id;
        if (!json_in_integer(v, &id) || id < 0 || id >= n_vocab) {
            return err_set(r->info, json_in_integer_code(v), "stop_token_ids",
                           "stop_token_ids[%zu]: expected a token id of 0 to %lld", i, (long long)n_vocab - 1);
        }
        ends[sampling->n_ends++] = (int32_t)id;
    }
    return ERR_OK;
}

/* State while logit_bias is read. */
struct bias_reader {
    struct sampler_bias *out; /* [ENGINE_MAX_BIAS] */
    size_t n;
    int64_t n_vocab;
    struct call *call;
    struct err_info *info;
};

static enum err add_bias(struct bias_reader *r, int64_t id, const json_t *value)
{
    bool is_ban = json_is_false(value);
    if (id < 0 || id >= r->n_vocab) {
        return err_set(r->info, ERR_INVALID_VALUE, "logit_bias",
                       "logit_bias: expected token ids of 0 to %lld as keys, found another", (long long)r->n_vocab - 1);
    }
    double bias = is_ban ? -100 : json_number_value(value);
    if ((!is_ban && !json_is_number(value)) || !(bias >= -100 && bias <= 100)) {
        return err_set(r->info, json_is_number(value) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE, "logit_bias",
                       "logit_bias: expected numbers of -100 to 100 as values, found %s", json_read_type_name(value));
    }
    if (r->n == ENGINE_MAX_BIAS) {
        return err_set(r->info, ERR_INVALID_VALUE, "logit_bias", "logit_bias: expected at most %d tokens, found more",
                       ENGINE_MAX_BIAS);
    }
    r->out[r->n++] = (struct sampler_bias){.id = (int32_t)id, .bias = (float)bias};
    return ERR_OK;
}

/* Biases each token of a text, as llama.cpp does. */
static enum err add_text_bias(struct bias_reader *r, const char *text, size_t n, const json_t *value)
{
    int32_t *ids;
    size_t n_ids;
    TRY(engine_tokenize(r->call->engine, text, n, false, false, NULL, 0, &r->call->arena, &ids, &n_ids, r->info));
    for (size_t i = 0; i < n_ids; i++) {
        TRY(add_bias(r, ids[i], value));
    }
    return ERR_OK;
}

/* Parses decimal digits only: "1e3", "+5" and " 5" are not token ids. */
static int64_t parse_id(const char *s)
{
    int64_t id = 0;
    if (*s == '\0') {
        return -1;
    }
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || id > 100000000) {
            return -1;
        }
        id = id * 10 + (*s - '0');
    }
    return id;
}

/* Adds an object's key: an id if it is a whole number, else a text. */
static enum err add_key_bias(struct bias_reader *r, const char *key, const json_t *value)
{
    size_t n = strlen(key), n_digits = strspn(key, "0123456789");
    bool is_number = n > 0 && (n_digits == n || (key[0] == '-' && n > 1 && strspn(key + 1, "0123456789") == n - 1));
    return is_number ? add_bias(r, parse_id(key), value) : add_text_bias(r, key, n, value);
}

/* Reads OpenAI's map from id strings, or llama.cpp's array of [id, bias] pairs (bias false = ban). Texts can replace
 * ids. */
static enum err read_bias(const struct reader *reader)
{
    const json_t *bias = given(reader, "logit_bias");
    struct err_info *info = reader->info;
    if (bias == NULL) {
        return ERR_OK;
    }
    size_t n = json_is_array(bias) ? json_array_size(bias) : json_object_size(bias);
    if ((!json_is_object(bias) && !json_is_array(bias)) || n > ENGINE_MAX_BIAS) {
        return err_set(info, json_is_object(bias) || json_is_array(bias) ? ERR_INVALID_VALUE : ERR_INVALID_TYPE,
                       "logit_bias", "logit_bias: expected an object with at most %d entries", ENGINE_MAX_BIAS);
    }
    struct bias_reader r = {.n_vocab = engine_model(reader->call->engine)->n_vocab, .call = reader->call, .info = info};
    r.out = arena_zalloc_array(&r.call->arena, n > 0 ? ENGINE_MAX_BIAS : 1, sizeof *r.out);
    TRY_MEM(r.out != NULL);
    for (size_t i = 0; json_is_array(bias) && i < n; i++) {
        const json_t *pair = json_array_get(bias, i), *id = json_array_get(pair, 0), *value = json_array_get(pair, 1);
        int64_t number;
        if ((!json_in_integer(id, &number) && !json_is_string(id)) || json_array_size(pair) != 2) {
            return err_set(info, ERR_INVALID_TYPE, "logit_bias",
                           "logit_bias[%zu]: expected a pair [token id or text, number]", i);
        }
        TRY(json_is_string(id) ? add_text_bias(&r, json_string_value(id), json_string_length(id), value)
                               : add_bias(&r, number, value));
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)bias, key, value) { TRY(add_key_bias(&r, key, value)); }
    reader->p->gen.sampling.bias = r.out;
    reader->p->gen.sampling.n_bias = r.n;
    return ERR_OK;
}

static enum err read_stream_options(const struct reader *r)
{
    const json_t *options = given(r, "stream_options");
    if (options == NULL) {
        return ERR_OK;
    }
    const json_t *usage = json_read_get(options, "include_usage");
    if (!json_is_object(options) || (usage != NULL && !json_is_boolean(usage))) {
        return err_set(r->info, ERR_INVALID_TYPE, "stream_options",
                       "stream_options: expected an object with a boolean include_usage");
    }
    if (!r->p->stream) {
        return err_set(r->info, ERR_INVALID_VALUE, "stream_options",
                       "stream_options: expected only with \"stream\": true");
    }
    r->p->include_usage = json_is_true(usage);
    return ERR_OK;
}

const char *params_reasoning_format_name(int i)
{
    static const char *const names[] = {"auto", "deepseek", "none"};
    return i >= 0 && i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

static enum err read_reasoning_format(const struct reader *r)
{
    const json_t *format = given(r, "reasoning_format");
    const char *name;
    for (int i = 0; (name = params_reasoning_format_name(i)) != NULL; i++) {
        r->p->reasoning_format = json_read_is(format, name) ? name : r->p->reasoning_format;
    }
    return format == NULL || r->p->reasoning_format != NULL
               ? ERR_OK
               : turn_refuse(format, JSON_STRING, "reasoning_format", "one of auto, deepseek, none", r->info);
}

/* Checks the modalities of an answer; infcgi supports only text. */
static enum err read_modalities(const struct reader *r)
{
    static const char expected[] = "an array with only \"text\", because the model writes text";
    const json_t *kinds = given(r, "modalities");
    if (kinds != NULL && !json_is_array(kinds)) {
        return json_in_refuse(ERR_INVALID_TYPE, "modalities", expected, kinds, r->info);
    }
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const json_t *kind = json_array_get(kinds, i);
        if (!json_read_is(kind, "text")) {
            return json_in_refuse(ERR_UNSUPPORTED_PARAMETER, "modalities", expected, kind, r->info);
        }
    }
    return ERR_OK;
}

static enum err check_logprobs(const struct reader *r)
{
    struct params *p = r->p;
    if (r->table == &fields_of_completions) {
        p->gen.sampling.n_top = (int32_t)p->logprobs;
        p->gen.prompt_logprobs = p->echo && p->logprobs >= 0;
        return p->best_of == 0 || p->best_of == p->n ? ERR_OK
                                                     : err_set(r->info, ERR_UNSUPPORTED_PARAMETER, "best_of",
                                                               "best_of: only the value of n is supported");
    }
    if (p->want_logprobs) {
        p->gen.sampling.n_top = (int32_t)MAX_OF(p->top_logprobs, 0);
    }
    return p->top_logprobs < 0 || p->want_logprobs || r->table != &fields_of_chat
               ? ERR_OK
               : err_set(r->info, ERR_INVALID_VALUE, "top_logprobs",
                         "top_logprobs: expected only with \"logprobs\": true");
}

void params_init(struct params *p, const struct call *c)
{
    *p = (struct params){.n = 1,
                         .logprobs = -1,
                         .top_logprobs = -1,
                         .add_generation_prompt = true,
                         .cache_prompt = true,
                         .think_budget = -1,
                         .id_slot = -1};
    engine_params_init(c->engine, &p->gen);
}

void params_fini(struct params *p)
{
    json_decref(p->messages);
    json_decref(p->kwargs);
    tools_fini(&p->tools);
    engine_grammar_free(&p->gen.grammar);
    p->messages = p->kwargs = NULL;
}

enum err params_read(struct params *p, struct call *c, const struct field_table *table, const json_t *object,
                     struct err_info *info)
{
    const struct reader r = {p, c, table, object, info};
    TRY(fields_read(c, table, object, p, info));
    TRY(read_stop(&r));
    TRY(read_stop_ids(&r));
    TRY(read_bias(&r));
    TRY(read_stream_options(&r));
    TRY(check_logprobs(&r));
    if (table == &fields_of_chat || table == &fields_of_completions) {
        TRY(constraint_read(object, &p->constraint, info));
    }
    TRY(read_reasoning_format(&r));
    TRY(read_modalities(&r));
    TRY(reasoning_read_effort(given(&r, "reasoning_effort"), "reasoning_effort", &p->effort, info));
    const json_t *kwargs = given(&r, "chat_template_kwargs");
    p->kwargs = kwargs != NULL ? json_incref((json_t *)kwargs) : p->kwargs;
    p->has_begin = given(&r, "add_generation_prompt") != NULL;
    p->has_continue = given(&r, "continue_final_message") != NULL;
    p->gen.sampling.top_k = MAX_OF(p->gen.sampling.top_k, 0);
    /* The JSON is freed before the answer is generated. */
    const char *salt = p->gen.cache_salt;
    p->gen.cache_salt = salt != NULL ? arena_dup(&c->arena, salt, strlen(salt)) : NULL;
    return arena_ok(&c->arena);
}
