/* Every request field against wrong types and values beyond its range; then the fields that have code of their own. */
#include "fcgi/api/params.h"
#include "fcgi/wire/http_status.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *params_suite(void);

static struct call call;
static struct err_info info;
static struct params p;

static void setup(void) { rig_begin(&call, true); }

static void teardown(void)
{
    params_fini(&p);
    rig_end(&call);
    folder_remove();
}

static const struct field_table *table_of(bool is_chat) { return is_chat ? &fields_of_chat : &fields_of_completions; }

/* Returns row i; NULL after the last. */
static const struct field *params_field(bool is_chat, size_t i)
{
    return i < table_of(is_chat)->n ? &table_of(is_chat)->rows[i] : NULL;
}

static enum err read_n(const char *text, size_t n, bool is_chat)
{
    params_fini(&p);
    arena_reset(&call.arena);
    call_drop_json(&call);
    info = (struct err_info){0};
    params_init(&p, &call);
    enum err err = json_in_parse(text, n, &call.json, &info);
    return err != ERR_OK ? err : params_read(&p, &call, table_of(is_chat), call.json, &info);
}

static void accept(const char *text, bool is_chat)
{
    enum err err = read_n(text, strlen(text), is_chat);
    ck_assert_msg(err == ERR_OK, "%s (%s): %s: %s", text, is_chat ? "chat" : "completion", err_code(err), info.text);
}

static void refuse(const char *text, bool is_chat, enum err code, const char *param)
{
    enum err err = read_n(text, strlen(text), is_chat);
    ck_assert_msg(err == code, "%s (%s): expected %s, found %s", text, is_chat ? "chat" : "completion", err_code(code),
                  err_code(err));
    ck_assert_int_eq(http_status(err), 400);
    ck_assert_msg(strcmp(info.where, param) == 0, "%s: expected param %s, found '%s'", text, param, info.where);
    ck_assert_msg(strstr(info.text, param) != NULL, "%s: the message does not name it: %s", text, info.text);
}

static void refuse_value(const char *name, const char *value, bool is_chat, enum err code)
{
    char text[512];
    snprintf(text, sizeof text, "{\"%s\":%s}", name, value);
    refuse(text, is_chat, code, name);
}

/* --- the tables ------------------------------------------------------------------------------------------------- */

static bool takes(enum field_kind kind, char type)
{
    switch (kind) {
    case FIELD_BOOL:
        return type == 'b';
    case FIELD_INT:
    case FIELD_INT32:
    case FIELD_UINT64:
        return type == 'i';
    case FIELD_FLOAT:
        return type == 'i' || type == 'r';
    case FIELD_STRING:
        return type == 's';
    default:
        return true;
    }
}

START_TEST(every_field_refuses_other_types)
{
    static const struct {
        char type;
        const char *text;
    } values[] = {{'b', "true"}, {'b', "false"}, {'i', "1"},   {'r', "1.5"}, {'s', "\"1\""},
                  {'s', "\"\""}, {'a', "[]"},    {'a', "[1]"}, {'o', "{}"},  {'o', "{\"a\":1}"}};
    for (int is_chat = 0; is_chat <= 1; is_chat++) {
        const struct field *f;
        for (size_t i = 0; (f = params_field(is_chat, i)) != NULL; i++) {
            for (size_t k = 0; k < ARRAY_LEN(values); k++) {
                if (!takes(f->kind, values[k].type)) {
                    refuse_value(f->name, values[k].text, is_chat, ERR_INVALID_TYPE);
                }
            }
        }
    }
}
END_TEST

START_TEST(every_number_refuses_what_is_out_of_range)
{
    int n_checked = 0;
    for (int is_chat = 0; is_chat <= 1; is_chat++) {
        const struct field *f;
        for (size_t i = 0; (f = params_field(is_chat, i)) != NULL; i++) {
            char text[64];
            bool is_integer = f->kind == FIELD_INT || f->kind == FIELD_INT32;
            if (!is_integer && f->kind != FIELD_FLOAT) {
                continue;
            }
            ck_assert_msg(f->min < f->max && f->max <= INT32_MAX, "%s: %g to %g", f->name, f->min, f->max);
            const double step = is_integer ? 1 : 0.001;
            snprintf(text, sizeof text, "%.*f", is_integer ? 0 : 4, f->min - step);
            refuse_value(f->name, text, is_chat, ERR_INVALID_VALUE);
            snprintf(text, sizeof text, "%.*f", is_integer ? 0 : 4, f->max + step);
            refuse_value(f->name, text, is_chat, ERR_INVALID_VALUE);
            refuse_value(f->name, "1e400", is_chat, ERR_INVALID_VALUE);
            refuse_value(f->name, "-1e400", is_chat, ERR_INVALID_VALUE);
            refuse_value(f->name, "99999999999999999999", is_chat, ERR_INVALID_VALUE);
            refuse_value(f->name, "9223372036854775807", is_chat, ERR_INVALID_VALUE);
            refuse_value(f->name, "-9223372036854775808", is_chat, ERR_INVALID_VALUE);
            refuse_value(f->name, "1e308", is_chat, is_integer ? ERR_INVALID_TYPE : ERR_INVALID_VALUE);
            n_checked++;
        }
    }
    ck_assert_int_gt(n_checked, 24);
    refuse_value("seed", "18446744073709551615", true, ERR_INVALID_VALUE); /* 63 bits and a sign */
}
END_TEST

START_TEST(every_field_takes_null_as_absent)
{
    for (int is_chat = 0; is_chat <= 1; is_chat++) {
        struct buf text;
        const struct field *f;
        buf_init(&text, 0, MEM_GENERAL);
        for (size_t i = 0; (f = params_field(is_chat, i)) != NULL; i++) {
            buf_printf(&text, "%c\"%s\":null", i == 0 ? '{' : ',', f->name);
        }
        buf_putc(&text, '}');
        accept("{}", is_chat);
        struct params absent = p;
        accept(text.data, is_chat);
        ck_assert(p.n == 1 && p.gen.max_tokens == absent.gen.max_tokens && p.logprobs == -1 && p.top_logprobs == -1 &&
                  !p.stream);
        ck_assert(absent.gen.sampling.temperature == 0.8f && p.gen.sampling.temperature == 0.8f &&
                  p.gen.sampling.top_k == 40 && p.gen.sampling.top_p == 0.95f && p.gen.sampling.min_p == 0.05f &&
                  p.gen.sampling.repeat_penalty == 1);
        ck_assert(p.gen.n_stop == 0 && p.gen.sampling.n_ends == 0 && p.gen.sampling.n_bias == 0 &&
                  p.gen.sampling.n_top == -1);
        ck_assert(p.model == NULL && p.gen.cache_salt == NULL && !p.gen.ignore_eos &&
                  p.gen.sampling.repeat_last_n == 64);
        ck_assert_int_eq(p.gen.max_tokens, -1);
        buf_fini(&text);
    }
}
END_TEST

START_TEST(field_names_stand_once)
{
    for (int is_chat = 0; is_chat <= 1; is_chat++) {
        const struct field *a, *b;
        for (size_t i = 0; (a = params_field(is_chat, i)) != NULL; i++) {
            for (size_t k = i + 1; (b = params_field(is_chat, k)) != NULL; k++) {
                ck_assert_str_ne(a->name, b->name);
            }
        }
    }
}
END_TEST

START_TEST(refused_fields_may_be_off)
{
    static const char *const off[] = {"null", "false", "[]"}, *const on[] = {"true", "\"x\"", "{}", "[1]", "0"};
    int n = 0;
    for (int is_chat = 0; is_chat <= 1; is_chat++) {
        const struct field *f;
        for (size_t i = 0; (f = params_field(is_chat, i)) != NULL; i++) {
            for (size_t k = 0; f->kind == FIELD_REFUSED && k < ARRAY_LEN(on); k++) {
                refuse_value(f->name, on[k], is_chat, ERR_UNSUPPORTED_PARAMETER);
            }
            for (size_t k = 0; f->kind == FIELD_REFUSED && k < ARRAY_LEN(off); k++, n++) {
                char text[64];
                snprintf(text, sizeof text, "{\"%s\":%s}", f->name, off[k]);
                accept(text, is_chat);
            }
        }
    }
    ck_assert_int_ge(n, 3 * 9);
}
END_TEST

START_TEST(values_arrive)
{
    accept("{\"model\":\"m\",\"temperature\":0.25,\"top_p\":0.5,\"top_k\":40,\"min_p\":0.125,\"typical_p\":0.75,"
           "\"repeat_penalty\":1.5,"
           "\"repeat_last_n\":-1,\"presence_penalty\":-2,\"frequency_penalty\":2,\"seed\":-1,\"n\":128,\"max_"
           "completion_tokens\":7,"
           "\"min_tokens\":3,\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"cache_"
           "salt\":\"t\","
           "\"return_token_ids\":true,\"logprobs\":true,\"top_logprobs\":20,\"add_generation_prompt\":false}",
           true);
    ck_assert_str_eq(p.model, "m");
    ck_assert_str_eq(p.gen.cache_salt, "t");
    ck_assert(p.gen.sampling.temperature == 0.25f && p.gen.sampling.top_p == 0.5f && p.gen.sampling.top_k == 40 &&
              p.gen.sampling.min_p == 0.125f);
    ck_assert(p.gen.sampling.typical_p == 0.75f && p.gen.sampling.repeat_penalty == 1.5f &&
              p.gen.sampling.repeat_last_n == -1);
    ck_assert(p.gen.sampling.presence_penalty == -2 && p.gen.sampling.frequency_penalty == 2 &&
              p.gen.sampling.seed == UINT64_MAX && p.n == 128);
    ck_assert(p.gen.max_tokens == 7 && p.gen.min_tokens == 3 && p.gen.ignore_eos && p.stream && p.include_usage);
    ck_assert(p.return_token_ids && p.gen.sampling.n_top == 20 && !p.gen.prompt_logprobs && !p.add_generation_prompt);
    accept("{\"echo\":true,\"logprobs\":5,\"max_tokens\":0,\"best_of\":2,\"n\":2}", false);
    ck_assert(p.echo && p.gen.prompt_logprobs && p.gen.sampling.n_top == 5 && p.gen.max_tokens == 0);
    accept("{\"echo\":true,\"logprobs\":0}", false);
    ck_assert(p.gen.prompt_logprobs && p.gen.sampling.n_top == 0);
    accept("{\"echo\":true}", false);
    ck_assert(!p.gen.prompt_logprobs && p.gen.sampling.n_top == -1);
    accept("{\"n_predict\":-1,\"top_k\":-1,\"repetition_penalty\":0.5}", false);
    ck_assert(p.gen.max_tokens == -1 && p.gen.sampling.top_k == 0 && p.gen.sampling.repeat_penalty == 0.5f);
    for (int is_chat = 0; is_chat <= 1; is_chat++) { /* no limit, as LM Studio and llama-server have it */
        accept("{\"max_tokens\":-1}", is_chat);
        ck_assert_int_eq(p.gen.max_tokens, -1);
        accept(
            "{\"max_tokens\":2.0,\"top_k\":40.0,\"seed\":1.0,\"n\":2.0,\"stop_token_ids\":[3.0],\"logit_bias\":[[5.0,1]]}",
            is_chat);
        ck_assert(p.gen.max_tokens == 2 && p.gen.sampling.top_k == 40 && p.gen.sampling.seed == 1 && p.n == 2);
        ck_assert(p.gen.sampling.ends[0] == 3 && p.gen.sampling.bias[0].id == 5);
    }
    accept("{\"max_completion_tokens\":-1}", true);
    ck_assert_int_eq(p.gen.max_tokens, -1);
    accept("{\"temperature\":-0.0,\"top_p\":-0,\"presence_penalty\":-0.0}", true);
    ck_assert(p.gen.sampling.temperature == 0 && p.gen.sampling.top_p == 0);
    accept("{\"logprobs\":true}", true);
    ck_assert_int_eq(p.gen.sampling.n_top, 0);
    accept("{\"logprobs\":false}", true);
    ck_assert_int_eq(p.gen.sampling.n_top, -1);
}
END_TEST

/* Without a seed two requests differ, with one they do not. */
START_TEST(seeds)
{
    accept("{}", true);
    uint64_t first = p.gen.sampling.seed;
    accept("{}", true);
    ck_assert(p.gen.sampling.seed != first);
    accept("{\"seed\":0}", true);
    ck_assert(p.gen.sampling.seed == 0);
}
END_TEST

/* --- fields with code of their own ------------------------------------------------------------------------------ */

/* prefix, n times part with commas between, suffix. */
static const char *repeated(const char *prefix, const char *part, int n, const char *suffix)
{
    static char text[65536];
    size_t at = (size_t)snprintf(text, sizeof text, "%s", prefix);
    for (int i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i == 0 ? "" : ",", part);
    }
    snprintf(text + at, sizeof text - at, "%s", suffix);
    return text;
}

START_TEST(stop)
{
    char longest[ENGINE_MAX_STOP_BYTES + 2], text[ENGINE_MAX_STOP_BYTES + 32];
    memset(longest, 's', sizeof longest);
    longest[ENGINE_MAX_STOP_BYTES] = '\0';
    snprintf(text, sizeof text, "{\"stop\":\"%s\"}", longest);
    accept(text, true);
    ck_assert(p.gen.n_stop == 1 && p.gen.stop_len[0] == ENGINE_MAX_STOP_BYTES);
    longest[ENGINE_MAX_STOP_BYTES] = 's';
    longest[ENGINE_MAX_STOP_BYTES + 1] = '\0';
    snprintf(text, sizeof text, "{\"stop\":\"%s\"}", longest);
    refuse(text, true, ERR_INVALID_VALUE, "stop");
    accept("{\"stop\":[]}", true);
    accept("{\"stop\":[\"a\",\"\\u0000b\",\"\xE2\x82\xAC\"]}", false);
    ck_assert(p.gen.n_stop == 3 && p.gen.stop_len[1] == 2 && p.gen.stop[1][1] == 'b' && p.gen.stop_len[2] == 3);
    accept(repeated("{\"stop\":[", "\"x\"", ENGINE_MAX_STOPS, "]}"), true);
    refuse(repeated("{\"stop\":[", "\"x\"", ENGINE_MAX_STOPS + 1, "]}"), true, ERR_INVALID_VALUE, "stop");
    static const char *const wrong_types[] = {"5", "true", "{}", "[5]", "[\"a\",null]", "[[\"a\"]]", "1.5"};
    for (size_t i = 0; i < ARRAY_LEN(wrong_types); i++) {
        refuse_value("stop", wrong_types[i], true, ERR_INVALID_TYPE);
    }
    refuse_value("stop", "\"\"", true, ERR_INVALID_VALUE);
    refuse_value("stop", "[\"a\",\"\"]", true, ERR_INVALID_VALUE);
}
END_TEST

START_TEST(stop_token_ids)
{
    accept("{\"stop_token_ids\":[0,257]}", true);
    ck_assert(p.gen.sampling.n_ends == 2 && p.gen.sampling.ends[0] == 0 && p.gen.sampling.ends[1] == 257);
    accept("{\"stop_token_ids\":[]}", true);
    accept(repeated("{\"stop_token_ids\":[", "1", PARAMS_MAX_STOP_IDS, "]}"), true);
    refuse(repeated("{\"stop_token_ids\":[", "1", PARAMS_MAX_STOP_IDS + 1, "]}"), true, ERR_INVALID_VALUE,
           "stop_token_ids");
    static const char *const bad[] = {"[258]", "[-1]", "[4294967296]", "[1e400]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        refuse_value("stop_token_ids", bad[i], false, ERR_INVALID_VALUE);
    }
    static const char *const wrong_types[] = {"5", "\"5\"", "{}", "true", "[\"5\"]", "[1.5]", "[null]", "[[1]]"};
    for (size_t i = 0; i < ARRAY_LEN(wrong_types); i++) {
        refuse_value("stop_token_ids", wrong_types[i], false, ERR_INVALID_TYPE);
    }
}
END_TEST

START_TEST(logit_bias)
{
    accept("{\"logit_bias\":{\"0\":-100,\"257\":100.0,\"7\":-0.5,\"8\":false}}", true);
    ck_assert_uint_eq(p.gen.sampling.n_bias, 4);
    ck_assert(p.gen.sampling.bias[1].id == 257 && p.gen.sampling.bias[1].bias == 100 &&
              p.gen.sampling.bias[2].bias == -0.5f);
    ck_assert(p.gen.sampling.bias[3].id == 8 && p.gen.sampling.bias[3].bias == -100);
    accept("{\"logit_bias\":[[5,1],[6,false]]}", true);
    ck_assert(p.gen.sampling.n_bias == 2 && p.gen.sampling.bias[0].id == 5 && p.gen.sampling.bias[1].bias == -100);
    accept("{\"logit_bias\":{}}", true);
    accept("{\"logit_bias\":[]}", true);
    accept(repeated("{\"logit_bias\":[", "[1,1]", ENGINE_MAX_BIAS, "]}"), true);
    refuse(repeated("{\"logit_bias\":[", "[1,1]", ENGINE_MAX_BIAS + 1, "]}"), true, ERR_INVALID_VALUE, "logit_bias");
    static const char *const values[] = {"{\"258\":1}",    "{\"-1\":1}",    "{\"5\":101}",
                                         "{\"5\":-100.5}", "{\"5\":1e400}", "{\"99999999999999999999\":1}",
                                         "[[258,1]]",      "[[5,100.1]]",   "{\"AI\":101}"};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        refuse_value("logit_bias", values[i], true, ERR_INVALID_VALUE);
    }
    static const char *const wrong_types[] = {
        "5",     "\"5\"", "true",      "{\"5\":\"1\"}",  "{\"5\":true}", "{\"5\":null}", "{\"5\":[1]}",
        "[5,1]", "[[5]]", "[[5,1,1]]", "[[\"5\",true]]", "[[5.5,1]]",    "[{}]",         "[[5,\"1\"]]"};
    for (size_t i = 0; i < ARRAY_LEN(wrong_types); i++) {
        refuse_value("logit_bias", wrong_types[i], true, ERR_INVALID_TYPE);
    }
}
END_TEST

START_TEST(stream_options)
{
    accept("{\"stream\":true,\"stream_options\":{}}", true);
    ck_assert(!p.include_usage);
    accept("{\"stream\":true,\"stream_options\":{\"include_usage\":null}}", true);
    accept("{\"stream\":true,\"stream_options\":{\"include_usage\":false}}", false);
    accept("{\"stream\":false,\"stream_options\":null}", false);
    refuse("{\"stream_options\":{\"include_usage\":true}}", true, ERR_INVALID_VALUE, "stream_options");
    static const char *const bad[] = {
        "5", "true", "[]", "\"x\"", "{\"include_usage\":1}", "{\"include_usage\":\"true\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"stream\":true,\"stream_options\":%s}", bad[i]);
        refuse(text, true, ERR_INVALID_TYPE, "stream_options");
    }
}
END_TEST

START_TEST(what_belongs_together)
{
    refuse("{\"top_logprobs\":5}", true, ERR_INVALID_VALUE, "top_logprobs");
    refuse("{\"logprobs\":false,\"top_logprobs\":0}", true, ERR_INVALID_VALUE, "top_logprobs");
    refuse("{\"best_of\":3,\"n\":2}", false, ERR_UNSUPPORTED_PARAMETER, "best_of");
    refuse("{\"best_of\":2}", false, ERR_UNSUPPORTED_PARAMETER, "best_of");
    accept("{\"best_of\":1}", false);
    accept("{\"response_format\":{\"type\":\"text\"}}", true);
    accept("{\"response_format\":{\"type\":\"json_object\"}}", true);
    accept("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{}}}}", true);
    accept("{\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"boolean\"}}}",
           true); /* llama-server's */
    ck_assert(p.constraint.kind == CONSTRAINT_SCHEMA && p.constraint.is_of_response);
    ck_assert_str_eq(p.constraint.where, "response_format.schema");
    accept("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}},\"schema\":5}}", true);
    ck_assert_str_eq(p.constraint.where, "response_format.json_schema.schema");
    refuse("{\"response_format\":{\"type\":\"json_schema\",\"schema\":[]}}", true, ERR_INVALID_TYPE,
           "response_format.schema");
    refuse("{\"response_format\":{\"type\":\"json_schema\"}}", true, ERR_MISSING_PARAMETER,
           "response_format.json_schema");
    refuse("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":5}}", true, ERR_INVALID_TYPE,
           "response_format.json_schema");
    refuse("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}}", true, ERR_MISSING_PARAMETER,
           "response_format.json_schema.schema");
    refuse("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[]}}}", true, ERR_INVALID_TYPE,
           "response_format.json_schema.schema");
    refuse("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":1,\"schema\":{}}}}", true,
           ERR_INVALID_TYPE, "response_format.json_schema.name");
    refuse_value("response_format", "{\"type\":\"xml\"}", true, ERR_UNSUPPORTED_PARAMETER);
    accept("{\"grammar\":\"root ::= [a-z]+\",\"guided_regex\":\"\"}", true);
    accept("{\"guided_regex\":\"a+\"}", false);
    refuse("{\"grammar\":5}", false, ERR_INVALID_TYPE, "grammar");
    refuse("{\"guided_regex\":[1]}", true, ERR_INVALID_TYPE, "guided_regex");
    refuse("{\"response_format\":{\"type\":\"json_object\",\"schema\":5}}", false, ERR_INVALID_TYPE,
           "response_format.schema");
    static const char *const no_formats[] = {"\"text\"", "5", "[]", "true", "{}", "{\"type\":5}"};
    for (size_t i = 0; i < ARRAY_LEN(no_formats); i++) {
        refuse_value("response_format", no_formats[i], true, ERR_INVALID_TYPE);
    }
    refuse_value("tool_call", "5", true, ERR_UNKNOWN_PARAMETER); /* strict */
    refuse_value("prompt", "\"x\"", true, ERR_UNKNOWN_PARAMETER);
    refuse_value("messages", "[]", false, ERR_UNKNOWN_PARAMETER);
}
END_TEST

/* Fields that say the answer's form: of each, what it takes and what it does not. */
START_TEST(forms_of_answers)
{
    static const struct {
        const char *text;
        enum constraint_kind kind;
        const char *where;
    } good[] = {
        {"{}", CONSTRAINT_NONE, NULL},
        {"{'grammar':'root ::= [a]'}", CONSTRAINT_GBNF, "grammar"},
        {"{'grammar':'','guided_json':null,'structured_outputs':{'json_object':false}}", CONSTRAINT_NONE, NULL},
        {"{'json_schema':{'type':'string'}}", CONSTRAINT_SCHEMA, "json_schema"},
        {"{'guided_json':'{}','guided_decoding_backend':'x'}", CONSTRAINT_SCHEMA, "guided_json"},
        {"{'guided_json':{}}", CONSTRAINT_SCHEMA, "guided_json"},
        {"{'guided_regex':'a'}", CONSTRAINT_REGEX, "guided_regex"},
        {"{'guided_choice':['a','']}", CONSTRAINT_CHOICE, "guided_choice"},
        {"{'guided_grammar':'root ::= [a]'}", CONSTRAINT_GRAMMAR, "guided_grammar"},
        {"{'guided_grammar':'start: /a/'}", CONSTRAINT_GRAMMAR, "guided_grammar"},
        {"{'grammar':'%llguidance {}\\nstart: /a/'}", CONSTRAINT_GBNF, "grammar"},
        {"{'structured_outputs':{'json':{},'regex':null,'disable_fallback':true,'whitespace_pattern':null}}",
         CONSTRAINT_SCHEMA, "structured_outputs.json"},
        {"{'structured_outputs':{'regex':'a','disable_any_whitespace':false}}", CONSTRAINT_REGEX,
         "structured_outputs.regex"},
        {"{'structured_outputs':{'choice':['a']}}", CONSTRAINT_CHOICE, "structured_outputs.choice"},
        {"{'structured_outputs':{'grammar':'root ::= [a]'}}", CONSTRAINT_GRAMMAR, "structured_outputs.grammar"},
        {"{'structured_outputs':{'json_object':true}}", CONSTRAINT_OBJECT, "structured_outputs.json_object"},
        {"{'response_format':{'type':'json_object'}}", CONSTRAINT_OBJECT, "response_format"},
        {"{'response_format':{'type':'json_object','schema':{'type':'string'}}}", CONSTRAINT_SCHEMA,
         "response_format.schema"},
    };
    static const struct {
        const char *text;
        enum err code;
        const char *where;
    } bad[] = {
        {"{'json_schema':5}", ERR_INVALID_TYPE, "json_schema"},
        {"{'guided_json':[]}", ERR_INVALID_TYPE, "guided_json"},
        {"{'guided_choice':'a'}", ERR_INVALID_TYPE, "guided_choice"},
        {"{'guided_choice':['a',1]}", ERR_INVALID_TYPE, "guided_choice"},
        {"{'guided_choice':[]}", ERR_INVALID_VALUE, "guided_choice"},
        {"{'guided_grammar':{}}", ERR_INVALID_TYPE, "guided_grammar"},
        {"{'guided_whitespace_pattern':' '}", ERR_UNSUPPORTED_PARAMETER, "guided_whitespace_pattern"},
        {"{'structured_outputs':'a'}", ERR_INVALID_TYPE, "structured_outputs"},
        {"{'structured_outputs':{'json':true}}", ERR_INVALID_TYPE, "structured_outputs.json"},
        {"{'structured_outputs':{'json_object':'x'}}", ERR_INVALID_TYPE, "structured_outputs.json_object"},
        {"{'structured_outputs':{'regexp':'x'}}", ERR_UNKNOWN_PARAMETER, "structured_outputs.regexp"},
        {"{'structured_outputs':{'whitespace_pattern':' '}}", ERR_UNSUPPORTED_PARAMETER,
         "structured_outputs.whitespace_pattern"},
        {"{'structured_outputs':{'json':{},'structural_tag':'{}'}}", ERR_UNSUPPORTED_PARAMETER,
         "structured_outputs.structural_tag"},
        {"{'structured_outputs':{'json':{},'regex':'a'}}", ERR_INVALID_VALUE, "structured_outputs.regex"},
        {"{'grammar':'root ::= [a]','guided_regex':'a'}", ERR_INVALID_VALUE, "guided_regex"},
        {"{'response_format':{'type':'json_object'},'guided_choice':['a']}", ERR_INVALID_VALUE, "guided_choice"},
        {"{'json_schema':{},'guided_json':{}}", ERR_INVALID_VALUE, "guided_json"},
    };
    char text[512];
    for (size_t i = 0; i < 2 * ARRAY_LEN(good); i++) {
        accept(rig_quotes(good[i / 2].text, text), i % 2 == 0);
        ck_assert_int_eq(p.constraint.kind, good[i / 2].kind);
        ck_assert(good[i / 2].where == NULL || strcmp(p.constraint.where, good[i / 2].where) == 0);
        ck_assert(params_has_grammar(&p) == (good[i / 2].where != NULL));
        ck_assert_int_eq(params_grammar(&p, call.engine, &info), ERR_OK);
        ck_assert((p.gen.grammar != NULL) == (good[i / 2].where != NULL));
        engine_grammar_free(&p.gen.grammar);
    }
    for (size_t i = 0; i < 2 * ARRAY_LEN(bad); i++) {
        refuse(rig_quotes(bad[i / 2].text, text), i % 2 == 0, bad[i / 2].code, bad[i / 2].where);
    }
}
END_TEST

/* What is found only when the grammar is made names the field and the place in it. */
START_TEST(forms_that_cannot_be_made)
{
    static const struct {
        const char *text;
        enum err code;
        const char *where;
    } rows[] = {
        {"{'json_schema':{'items':{'type':'x'}}}", ERR_INVALID_SCHEMA, "json_schema/items/type"},
        {"{'structured_outputs':{'json':{'type':'x'}}}", ERR_INVALID_SCHEMA, "structured_outputs.json/type"},
        {"{'guided_json':'{'}", ERR_INVALID_JSON, "guided_json"},
        {"{'guided_json':'[]'}", ERR_INVALID_JSON, "guided_json"},
        {"{'structured_outputs':{'regex':'('}}", ERR_INVALID_GRAMMAR, "structured_outputs.regex"},
        {"{'guided_grammar':'root ::= x'}", ERR_INVALID_GRAMMAR, "guided_grammar"},
        {"{'structured_outputs':{'grammar':'start: x'}}", ERR_INVALID_GRAMMAR, "structured_outputs.grammar"},
        {"{'grammar':'start: /a/'}", ERR_INVALID_GRAMMAR, "grammar"},
        {"{'response_format':{'type':'json_schema','schema':{'items':{'type':'x'}}}}", ERR_INVALID_SCHEMA,
         "response_format.schema/items/type"},
        {"{'response_format':{'type':'json_object','schema':{'not':{}}}}", ERR_INVALID_GRAMMAR,
         "response_format.schema"},
    };
    char text[512];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        accept(rig_quotes(rows[i].text, text), true);
        enum err err = params_grammar(&p, call.engine, &info);
        ck_assert_msg(err == rows[i].code, "%s: %s: %s", rows[i].text, err_code(err), info.text);
        ck_assert_str_eq(info.where, rows[i].where);
        ck_assert_ptr_null(p.gen.grammar);
    }
}
END_TEST

Suite *params_suite(void)
{
    Suite *s = suite_create("params");
    TCase *t = tcase_create("params");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_field_refuses_other_types);
    tcase_add_test(t, every_number_refuses_what_is_out_of_range);
    tcase_add_test(t, every_field_takes_null_as_absent);
    tcase_add_test(t, field_names_stand_once);
    tcase_add_test(t, refused_fields_may_be_off);
    tcase_add_test(t, values_arrive);
    tcase_add_test(t, seeds);
    tcase_add_test(t, stop);
    tcase_add_test(t, stop_token_ids);
    tcase_add_test(t, logit_bias);
    tcase_add_test(t, stream_options);
    tcase_add_test(t, what_belongs_together);
    tcase_add_test(t, forms_of_answers);
    tcase_add_test(t, forms_that_cannot_be_made);
    suite_add_tcase(s, t);
    return s;
}
