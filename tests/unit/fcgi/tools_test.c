/* The forms of tools and of earlier calls: what is refused, with its place, and what is not. */
#include "engine/base/json_write.h"
#include "fcgi/api/tools.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *tools_suite(void);

#define NAME_64 "0123456789012345678901234567890123456789012345678901234567890_-A"
#define TOOL    "{\"type\":\"function\",\"function\":{\"name\":\"" NAME_64 "\"}}"

static bool as_openai; /* tools_check is to keep OpenAI's limits */

static enum err check(const char *text, bool is_request, bool *shown, struct err_info *info)
{
    json_t *v = json_loads(text, JSON_ALLOW_NUL, NULL);
    ck_assert_msg(v != NULL, "%s", text);
    *shown = false;
    *info = (struct err_info){0};
    struct tools t = {.list = NULL};
    enum err err = is_request ? tools_read(v, &t, info) : tools_check_message(v, "messages[3]", info);
    err = err == ERR_OK && is_request ? tools_check(&t, as_openai, info) : err;
    *shown = t.is_shown;
    tools_fini(&t);
    json_decref(v);
    return err;
}

static void expect(const char *text, bool is_request, enum err code, const char *where)
{
    bool shown;
    struct err_info info;
    enum err err = check(text, is_request, &shown, &info);
    ck_assert_msg(err == code, "%s: expected %s, found %s: %s", text, err_code(code), err_code(err), info.text);
    if (code != ERR_OK) {
        ck_assert_msg(strcmp(info.where, where) == 0, "%s: expected %s, found %s", text, where, info.where);
        ck_assert_msg(strncmp(info.text, where, strlen(where)) == 0 && strstr(info.text, "expected ") != NULL &&
                          strstr(info.text, ", found ") != NULL,
                      "%s", info.text);
    }
}

#define CHOICE(choice)   "{\"tools\":[" TOOL "],\"tool_choice\":" choice "}"
#define ALLOWED(allowed) CHOICE("{\"type\":\"allowed_tools\",\"allowed_tools\":" allowed "}")

struct expected {
    const char *text;
    enum err code;
    const char *where; /* of a refusal */
};

#define FUNCTION(members) "{\"tools\":[" TOOL ",{\"type\":\"function\",\"function\":" members "}]}"

static const struct expected requests[] = {
    {"{}", ERR_OK, ""},
    {"{\"tools\":null,\"tool_choice\":null}", ERR_OK, ""},
    {"{\"tools\":[]}", ERR_OK, ""},
    {"{\"tools\":[" TOOL "],\"tool_choice\":\"auto\"}", ERR_OK, ""},
    {FUNCTION("{\"name\":\"a\",\"description\":\"\",\"parameters\":{},\"strict\":true}"), ERR_OK, ""},
    {FUNCTION("{\"name\":\"a\",\"description\":null,\"parameters\":null,\"strict\":null,\"x\":1}"), ERR_OK, ""},
    {"{\"tools\":{}}", ERR_INVALID_TYPE, "tools"},
    {"{\"tools\":\"x\"}", ERR_INVALID_TYPE, "tools"},
    {"{\"tools\":[5]}", ERR_INVALID_TYPE, "tools[0]"},
    {"{\"tools\":[" TOOL ",null]}", ERR_MISSING_PARAMETER, "tools[1]"},
    {"{\"tools\":[{}]}", ERR_MISSING_PARAMETER, "tools[0].type"},
    {"{\"tools\":[{\"type\":5}]}", ERR_INVALID_TYPE, "tools[0].type"},
    {"{\"tools\":[{\"type\":\"retrieval\"}]}", ERR_INVALID_VALUE, "tools[0].type"},
    {"{\"tools\":[{\"type\":\"function\\u0000x\"}]}", ERR_INVALID_VALUE, "tools[0].type"},
    {"{\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"a\"}}]}", ERR_INVALID_VALUE, "tools[0].type"},
    {"{\"tools\":[{\"type\":\"function\"}]}", ERR_MISSING_PARAMETER, "tools[0].function"},
    {"{\"tools\":[{\"type\":\"function\",\"name\":\"a\"}]}", ERR_MISSING_PARAMETER, "tools[0].function"},
    {FUNCTION("5"), ERR_INVALID_TYPE, "tools[1].function"},
    {FUNCTION("{}"), ERR_MISSING_PARAMETER, "tools[1].function.name"},
    {FUNCTION("{\"name\":null}"), ERR_MISSING_PARAMETER, "tools[1].function.name"},
    {FUNCTION("{\"name\":5}"), ERR_INVALID_TYPE, "tools[1].function.name"},
    {FUNCTION("{\"name\":\"\"}"), ERR_INVALID_VALUE, "tools[1].function.name"},
    {FUNCTION("{\"name\":\"a b\"}"), ERR_INVALID_VALUE, "tools[1].function.name"},
    {FUNCTION("{\"name\":\"a.b\"}"), ERR_OK, ""},
    {FUNCTION("{\"name\":\"a/b\"}"), ERR_INVALID_VALUE, "tools[1].function.name"},
    {FUNCTION("{\"name\":\"" NAME_64 NAME_64 "\"}"), ERR_OK, ""},
    {FUNCTION("{\"name\":\"\xC3\xA9\"}"), ERR_INVALID_VALUE, "tools[1].function.name"},
    {FUNCTION("{\"name\":\"a\\u0000\"}"), ERR_INVALID_VALUE, "tools[1].function.name"},
    {FUNCTION("{\"name\":\"" NAME_64 NAME_64 "x\"}"), ERR_INVALID_VALUE, "tools[1].function.name"},
    {FUNCTION("{\"name\":\"a\",\"description\":5}"), ERR_INVALID_TYPE, "tools[1].function.description"},
    {FUNCTION("{\"name\":\"a\",\"parameters\":\"{}\"}"), ERR_INVALID_TYPE, "tools[1].function.parameters"},
    {FUNCTION("{\"name\":\"a\",\"parameters\":[]}"), ERR_INVALID_TYPE, "tools[1].function.parameters"},
    {FUNCTION("{\"name\":\"a\",\"parameters\":{\"type\":\"something\"}}"), ERR_INVALID_SCHEMA,
     "tools[1].function.parameters/type"},
    {"{\"tool_choice\":\"none\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":"
     "{\"properties\":{\"b\":{\"anyOf\":[{},{\"enum\":5}]}}}}}]}",
     ERR_INVALID_SCHEMA, "tools[0].function.parameters/properties/b/anyOf/1/enum"},
    {FUNCTION("{\"name\":\"a\",\"strict\":\"yes\"}"), ERR_INVALID_TYPE, "tools[1].function.strict"},
    {"{\"tools\":[" TOOL "," TOOL "]}", ERR_INVALID_VALUE, "tools[1].function.name"},
    {"{\"parallel_tool_calls\":false}", ERR_OK, ""},
    {"{\"parallel_tool_calls\":0}", ERR_INVALID_TYPE, "parallel_tool_calls"},
    {CHOICE("\"required\""), ERR_OK, ""},
    {CHOICE("{\"type\":\"function\",\"function\":{\"name\":\"" NAME_64 "\"}}"), ERR_OK, ""},
    {CHOICE("{\"type\":\"function\",\"function\":{\"name\":\"b\"}}"), ERR_INVALID_VALUE, "tool_choice.function.name"},
    {CHOICE("{\"type\":\"function\"}"), ERR_MISSING_PARAMETER, "tool_choice.function"},
    {CHOICE("{\"type\":\"custom\"}"), ERR_INVALID_VALUE, "tool_choice.type"},
    {CHOICE("{}"), ERR_MISSING_PARAMETER, "tool_choice.type"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[" TOOL "]}"), ERR_OK, ""},
    {ALLOWED("5"), ERR_INVALID_TYPE, "tool_choice.allowed_tools"},
    {ALLOWED("{\"tools\":[" TOOL "]}"), ERR_MISSING_PARAMETER, "tool_choice.allowed_tools.mode"},
    {ALLOWED("{\"mode\":\"any\",\"tools\":[" TOOL "]}"), ERR_INVALID_VALUE, "tool_choice.allowed_tools.mode"},
    {ALLOWED("{\"mode\":\"auto\"}"), ERR_MISSING_PARAMETER, "tool_choice.allowed_tools.tools"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[]}"), ERR_INVALID_VALUE, "tool_choice.allowed_tools.tools"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[5]}"), ERR_INVALID_TYPE, "tool_choice.allowed_tools.tools[0]"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"b\"}}]}"),
     ERR_INVALID_VALUE, "tool_choice.allowed_tools.tools[0].function.name"},
    {"{\"tool_choice\":\"required\"}", ERR_INVALID_VALUE, "tool_choice"},
    {"{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"a\"}}}", ERR_INVALID_VALUE,
     "tool_choice.function.name"},
    {"{\"tool_choice\":\"any\"}", ERR_INVALID_VALUE, "tool_choice"},
    {"{\"tool_choice\":\"\"}", ERR_INVALID_VALUE, "tool_choice"},
    {"{\"tool_choice\":true}", ERR_INVALID_TYPE, "tool_choice"},
    {"{\"tool_choice\":[]}", ERR_INVALID_TYPE, "tool_choice"},
};

START_TEST(forms_of_tools) { expect(requests[_i].text, true, requests[_i].code, requests[_i].where); }
END_TEST

#define CALL(members) "{\"tool_calls\":[{\"function\":" members "}]}"

static const struct expected messages[] = {
    {"{}", ERR_OK, ""},
    {"{\"tool_calls\":null,\"function_call\":null,\"tool_call_id\":null}", ERR_OK, ""},
    {"{\"tool_calls\":[],\"tool_call_id\":\"call_1\"}", ERR_OK, ""},
    {"{\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"a\",\"arguments\":\"\"}}]}", ERR_OK,
     ""},
    {CALL("{\"name\":\"a\",\"arguments\":\"no JSON\"}"), ERR_OK, ""}, /* models write such */
    {CALL("{\"name\":\"a\",\"arguments\":{\"x\":1}}"), ERR_OK, ""},   /* as transformers' */
    {CALL("{\"name\":\"a\",\"arguments\":null}"), ERR_OK, ""},
    {"{\"function_call\":{\"name\":\"a\",\"arguments\":\"{}\"}}", ERR_OK, ""},
    {"{\"tool_call_id\":5}", ERR_INVALID_TYPE, "messages[3].tool_call_id"},
    {"{\"tool_calls\":{}}", ERR_INVALID_TYPE, "messages[3].tool_calls"},
    {"{\"tool_calls\":[\"a\"]}", ERR_INVALID_TYPE, "messages[3].tool_calls[0]"},
    {"{\"tool_calls\":[{\"id\":5}]}", ERR_INVALID_TYPE, "messages[3].tool_calls[0].id"},
    {"{\"tool_calls\":[{\"type\":\"x\"}]}", ERR_INVALID_VALUE, "messages[3].tool_calls[0].type"},
    {"{\"tool_calls\":[{\"type\":\"function\\u0000\"}]}", ERR_INVALID_VALUE, "messages[3].tool_calls[0].type"},
    {"{\"tool_calls\":[{}]}", ERR_MISSING_PARAMETER, "messages[3].tool_calls[0].function"},
    {CALL("{}"), ERR_MISSING_PARAMETER, "messages[3].tool_calls[0].function.name"},
    {CALL("{\"name\":\"a b\",\"arguments\":\"\"}"), ERR_INVALID_VALUE, "messages[3].tool_calls[0].function.name"},
    {CALL("{\"name\":\"a\"}"), ERR_MISSING_PARAMETER, "messages[3].tool_calls[0].function.arguments"},
    {CALL("{\"name\":\"a\",\"arguments\":[]}"), ERR_INVALID_TYPE, "messages[3].tool_calls[0].function.arguments"},
    {"{\"function_call\":\"a\"}", ERR_INVALID_TYPE, "messages[3].function_call"},
    {"{\"function_call\":{\"arguments\":\"\"}}", ERR_MISSING_PARAMETER, "messages[3].function_call.name"},
    {"{\"function_call\":{\"name\":\"a\",\"arguments\":1}}", ERR_INVALID_TYPE, "messages[3].function_call.arguments"},
};

/* What a template sees of arguments: objects, as Python reads them, else the text. */
START_TEST(arguments_of_earlier_calls)
{
    static const char *const cases[][2] = {
        /* the arguments, and what they become */
        {"\"\"", "{}"},
        {"\" \\n\"", "{}"},
        {"null", "{}"},
        {"\" null \"", "{}"},
        {"\"{\\\"a\\\": 18446735277616529408}\"", "{\"a\":18446735277616529408}"},
        {"\"{\\\"a\\\": -0.1234567890123456789}\"", "{\"a\":-0.1234567890123456789}"},
        {"\"{\\\"a\\\": 1, \\\"b\\\": 3, \\\"a\\\": 2}\"", "{\"a\":2,\"b\":3}"},
        {"\"{\\\"a\\\": \\\"\\\\ud83d\\\"}\"", "{\"a\":\"\xEF\xBF\xBD\"}"},
        {"\"{\\\"a\\\": NaN}\"", "{\"a\":NaN}"},
        {"{\"a\":1e400}", "{\"a\":1e400}"},
        {"\"no JSON\"", "\"no JSON\""},
        {"\"{\\\"a\\\":\"", "\"{\\\"a\\\":\""},
        {"\"[1]\"", "\"[1]\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf text;
        struct err_info info = {0};
        json_t *message, *undo = json_array(), *all = json_array();
        buf_init(&text, 0, MEM_GENERAL);
        buf_printf(&text, "{\"tool_calls\":[{\"function\":{\"name\":\"a\",\"arguments\":%s}}]}", cases[i][0]);
        ck_assert_int_eq(json_in_parse(text.data, text.len, &message, &info), ERR_OK);
        ck_assert_int_eq(tools_check_message(message, "m", &info), ERR_OK);
        json_array_append_new(all, message);
        ck_assert_int_eq(tools_open_arguments(all, undo), ERR_OK);
        json_t *f = json_object_get(json_array_get(json_object_get(message, "tool_calls"), 0), "function");
        buf_reset(&text);
        json_write_value(&text, json_object_get(f, "arguments"), false);
        ck_assert_str_eq(text.data, cases[i][1]);
        buf_fini(&text);
        json_decref(undo);
        json_decref(all);
    }
}
END_TEST

START_TEST(forms_of_calls) { expect(messages[_i].text, false, messages[_i].code, messages[_i].where); }
END_TEST

START_TEST(tools_are_shown_unless_none_are_wanted)
{
    static const struct {
        const char *text;
        bool shown;
    } cases[] = {{"{}", false},
                 {"{\"tools\":[]}", false},
                 {"{\"tools\":[" TOOL "]}", true},
                 {"{\"tools\":[" TOOL "],\"tool_choice\":\"auto\"}", true},
                 {"{\"tools\":[" TOOL "],\"tool_choice\":\"none\"}", false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool shown;
        struct err_info info;
        ck_assert_int_eq(check(cases[i].text, true, &shown, &info), ERR_OK);
        ck_assert_msg(shown == cases[i].shown, "%s", cases[i].text);
    }
}
END_TEST

START_TEST(tools_are_counted)
{
    char text[32768];
    static const int most[] = {TOOLS_MAX, TOOLS_OPENAI_MAX};
    for (int k = 0; k < 4; k++) {
        bool shown;
        struct err_info info;
        as_openai = k >= 2;
        strcpy(text, "{\"tools\":[" TOOL);
        for (int i = 1; i < most[k / 2] + k % 2; i++) {
            sprintf(text + strlen(text), ",{\"type\":\"function\",\"function\":{\"name\":\"f%d\"}}", i);
        }
        ck_assert_uint_lt(strlen(text), sizeof text - 3);
        strcat(text, "]}");
        ck_assert_int_eq(check(text, true, &shown, &info), k % 2 == 0 ? ERR_OK : ERR_INVALID_VALUE);
        ck_assert_str_eq(info.where, k % 2 == 0 ? "" : "tools");
    }
    as_openai = false;
}
END_TEST

START_TEST(names_keep_openais_limits_where_asked_for)
{
    as_openai = true;
    expect(FUNCTION("{\"name\":\"a-b_c\"}"), true, ERR_OK, "");
    expect(FUNCTION("{\"name\":\"a.b\"}"), true, ERR_INVALID_VALUE, "tools[1].function.name");
    expect(FUNCTION("{\"name\":\"" NAME_64 "x\"}"), true, ERR_INVALID_VALUE, "tools[1].function.name");
    as_openai = false;
}
END_TEST

#define CHAT "/v1/chat/completions"
#define HI   "\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}"

static void setup(void) { rig_serve(false, false); }

START_TEST(the_endpoint_names_the_place)
{
    rig_refuse(CHAT,
               "{" HI "],"
               "\"tools\":[" TOOL ",{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]}",
               400, "invalid_value", "tools[1].function.name");
    ck_assert_str_eq(rig_text_at("error.message"),
                     "tools[1].function.name: expected 1 to 128 letters, digits, '_', '-' and '.', found 'a b'");
    rig_refuse(CHAT, "{" HI ",{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"\"}}]}]}", 400,
               "invalid_value", "messages[1].tool_calls[0].function.name");
    rig_refuse(CHAT,
               "{" HI
               ",{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":5}]}",
               400, "invalid_type", "messages[2].tool_call_id");
    rig_use_template(NULL); /* what is wrong with the request comes first */
    rig_refuse(CHAT, "{" HI "],\"tools\":[5]}", 400, "invalid_type", "tools[0]");
}
END_TEST

/* tools and what becomes of them; NULL: nothing. */
static void expect_filled(const char *tools, const char *expected)
{
    json_t *in = json_loads(tools, 0, NULL), *kept = json_deep_copy(in), *out;
    json_t *want = expected != NULL ? json_loads(expected, 0, NULL) : NULL;
    ck_assert_int_eq(tools_fill(in, &out), ERR_OK);
    ck_assert_msg(expected == NULL ? out == NULL : json_equal(out, want), "%s", tools);
    ck_assert(json_equal(in, kept)); /* they are the request's */
    json_decref(in);
    json_decref(kept);
    json_decref(want);
    json_decref(out);
}

#define FILLED(members) "{\"type\":\"function\",\"function\":{\"name\":\"a\"" members "}}"

START_TEST(what_tools_lack_is_filled)
{
#define WHOLE FILLED(",\"description\":\"\",\"parameters\":{\"type\":\"object\",\"properties\":{}}")
    expect_filled("[]", NULL);
    expect_filled("[" WHOLE "]", NULL);
    expect_filled("[" FILLED("") "," WHOLE "]", "[" WHOLE "," WHOLE "]");
    expect_filled("[" FILLED(",\"description\":null,\"parameters\":null") "]", "[" WHOLE "]");
    expect_filled("[" FILLED(",\"parameters\":{\"$defs\":{}}") "]",
                  "[" FILLED(",\"description\":\"\",\"parameters\":{\"$defs\":{},\"type\":\"object\","
                             "\"properties\":{}}") "]");
    expect_filled("[" FILLED(",\"description\":\"d\",\"strict\":true,\"parameters\":{\"type\":\"object\"}") "]",
                  "[" FILLED(",\"description\":\"d\",\"strict\":true,\"parameters\":{\"type\":\"object\","
                             "\"properties\":{}}") "]");
}
END_TEST

/* Numbers beyond 64 bits in schemas and in arguments of earlier calls, by every door; the template shows their digits. */
START_TEST(numbers_of_any_size_pass)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"bytes\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":"
        "18446744073709551615}}}";
    char body[1024];
    rig_use_template(
        "{% for t in tools %}{{ t.function.parameters.properties.bytes.maximum }}{% endfor %}{% for m in messages %}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments.addr }},{{ c.function.arguments|tojson }}"
        "{% endfor %}{% endfor %}");
    snprintf(body, sizeof body,
             "{" HI "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":%s}}]}", schema);
    ck_assert_msg(rig_post("/apply-template", body) == 200, "%s", rig_got.body);
    ck_assert_str_eq(rig_text_at("prompt"), "18446744073709551615");
    ck_assert_msg(rig_post(CHAT, body) == 200, "%s", rig_got.body);
    static const char *const arguments[] = {"{\"addr\":18446735277616529408}",
                                            "\"{\\\"addr\\\": 18446735277616529408}\""};
    for (size_t i = 0; i < ARRAY_LEN(arguments); i++) {
        snprintf(body, sizeof body,
                 "{" HI ",{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":%s}}]},"
                 "{\"role\":\"tool\",\"content\":\"x\"}]}",
                 arguments[i]);
        ck_assert_msg(rig_post("/apply-template", body) == 200, "%s", rig_got.body);
        ck_assert_str_eq(rig_text_at("prompt"), "18446735277616529408,{\"addr\": 18446735277616529408}");
    }
    const int n_tokens = 51; /* of that prompt */
    ck_assert_int_eq(rig_post("/v1/messages",
                              "{\"model\":\"tiny\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":"
                              "\"q\"},{\"role\":\"assistant\","
                              "\"content\":[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{\"addr\":"
                              "18446735277616529408}}]},"
                              "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\","
                              "\"content\":\"x\"}]}]}"),
                     200);
    ck_assert_int_eq(rig_number_at("usage.input_tokens"), n_tokens);
    ck_assert_int_eq(rig_post("/api/chat",
                              "{\"stream\":false,\"options\":{\"num_predict\":1},\"messages\":[{\"role\":\"user\","
                              "\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\","
                              "\"tool_calls\":[{\"function\":{\"name\":"
                              "\"f\",\"arguments\":{\"addr\":18446735277616529408}}}]},{\"role\":"
                              "\"tool\",\"content\":\"x\"}],"
                              "\"model\":\"tiny\"}"),
                     200);
    ck_assert_int_eq(rig_number_at("prompt_eval_count"), n_tokens);
    ck_assert_int_eq(rig_post("/v1/responses",
                              "{\"max_output_tokens\":1,\"input\":[{\"role\":\"user\",\"content\":\"q\"},"
                              "{\"type\":\"function_call\",\"call_id\":\"c\","
                              "\"name\":\"f\",\"arguments\":\"{\\\"addr\\\":18446735277616529408}\"},{\"type\":"
                              "\"function_call_output\","
                              "\"call_id\":\"c\",\"output\":\"x\"}]}"),
                     200);
    ck_assert_int_eq(rig_number_at("usage.input_tokens"), n_tokens);
}
END_TEST

Suite *tools_suite(void)
{
    Suite *s = suite_create("tools");
    TCase *forms = tcase_create("forms"), *api = tcase_create("api");
    tcase_add_loop_test(forms, forms_of_tools, 0, ARRAY_LEN(requests));
    tcase_add_loop_test(forms, forms_of_calls, 0, ARRAY_LEN(messages));
    tcase_add_test(forms, arguments_of_earlier_calls);
    tcase_add_test(forms, tools_are_shown_unless_none_are_wanted);
    tcase_add_test(forms, tools_are_counted);
    tcase_add_test(forms, names_keep_openais_limits_where_asked_for);
    tcase_add_test(forms, what_tools_lack_is_filled);
    tcase_set_tags(api, "fork");
    tcase_add_checked_fixture(api, setup, rig_unserve);
    tcase_add_test(api, the_endpoint_names_the_place);
    tcase_add_test(api, numbers_of_any_size_pass);
    suite_add_tcase(s, forms);
    suite_add_tcase(s, api);
    return s;
}
