/* What a request asks of calls: when it binds the answer, and what is refused, with the place. */
#include "engine/base/mem.h"
#include "fcgi/api/tool_choice.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <string.h>

Suite *tool_choice_suite(void);

#define PLAIN        "{\"tools\":[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"b\"}}]"
#define STRICT       "{\"tools\":[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"b\",\"strict\":true}}]"
#define NAMED        "{\"type\":\"function\",\"function\":{\"name\":\"b\"}}"
#define ALLOWED(how) "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" how "\",\"tools\":[" NAMED "]}}"

START_TEST(some_requests_bind)
{
    static const struct {
        const char *text;
        bool binds, is_forced;
    } cases[] = {
        {"{}", false, false},
        {PLAIN "}", false, false},
        {PLAIN ",\"tool_choice\":\"auto\",\"parallel_tool_calls\":true}", false, false},
        {PLAIN ",\"parallel_tool_calls\":false}", true, false},
        {STRICT "}", true, false},
        {STRICT ",\"tool_choice\":\"none\"}", false, false},
        {PLAIN ",\"tool_choice\":\"required\"}", true, true},
        {PLAIN ",\"tool_choice\":" NAMED "}", true, true},
        {PLAIN ",\"tool_choice\":" ALLOWED("auto") "}", true, false},
        {PLAIN ",\"tool_choice\":" ALLOWED("required") "}", true, true},
        {"{\"tools\":[],\"parallel_tool_calls\":false}", false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool is_forced;
        json_t *root = json_loads(cases[i].text, 0, NULL);
        ck_assert_msg(root != NULL, "%s", cases[i].text);
        struct tools t = {.list = NULL};
        struct err_info info = {0};
        ck_assert_int_eq(tools_read(root, &t, &info), ERR_OK);
        ck_assert_msg(tool_choice_binds(&t, &is_forced) == cases[i].binds, "%s", cases[i].text);
        ck_assert_msg(is_forced == cases[i].is_forced, "%s", cases[i].text);
        tools_fini(&t);
        json_decref(root);
    }
}
END_TEST

static struct engine *engine;

static void setup(void) { engine = rig_engine(); }

static void teardown(void)
{
    engine_close(&engine);
    folder_remove();
}

static enum err make(const char *text, const char *gbnf, struct err_info *info, bool *made)
{
    json_t *root = json_loads(text, 0, NULL);
    ck_assert_msg(root != NULL, "%s", text);
    struct params p = {.n = 1};
    p.constraint = gbnf != NULL ? (struct constraint){.kind = CONSTRAINT_GBNF, .where = gbnf} : p.constraint;
    *info = (struct err_info){0};
    ck_assert_int_eq(tools_read(root, &p.tools, info), ERR_OK);
    enum err err = tool_choice_grammar(&p, engine, info);
    *made = p.gen.grammar != NULL;
    params_fini(&p);
    json_decref(root);
    return err;
}

START_TEST(grammars_are_made_where_they_bind)
{
    static const char bad[] =
        "{\"tools\":[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"b\",\"parameters\":"
        "{\"type\":\"object\",\"properties\":{\"x\":{\"pattern\":\"(?<=a)b\"}}}}}],\"tool_choice\":";
    struct err_info info;
    char text[512];
    bool made;
    ck_assert_int_eq(make(PLAIN "}", NULL, &info, &made), ERR_OK);
    ck_assert(!made);
    ck_assert_int_eq(make(PLAIN ",\"tool_choice\":\"required\"}", NULL, &info, &made), ERR_OK);
    ck_assert(made);
    ck_assert_int_eq(make(PLAIN ",\"tool_choice\":\"required\"}", "root ::= \"a\"", &info, &made), ERR_INVALID_VALUE);
    ck_assert_str_eq(info.where, "tool_choice");
    strcat(strcpy(text, bad), "\"required\"}");
    ck_assert_int_eq(make(text, NULL, &info, &made), ERR_INVALID_SCHEMA);
    ck_assert_str_eq(info.where, "tools[1].function.parameters/properties/x/pattern");
    strcat(strcpy(text, bad), NAMED "}");
    ck_assert_int_eq(make(text, NULL, &info, &made), ERR_INVALID_SCHEMA);
    strcat(strcpy(text, bad), "{\"type\":\"function\",\"function\":{\"name\":\"a\"}}}");
    ck_assert_int_eq(make(text, NULL, &info, &made), ERR_OK); /* the other one cannot be called */
    ck_assert(made);
}
END_TEST

Suite *tool_choice_suite(void)
{
    Suite *s = suite_create("tool_choice");
    TCase *t = tcase_create("binds"), *made = tcase_create("made");
    tcase_set_tags(made, "fork");
    tcase_add_checked_fixture(made, setup, teardown);
    tcase_add_test(t, some_requests_bind);
    tcase_add_test(made, grammars_are_made_where_they_bind);
    suite_add_tcase(s, t);
    suite_add_tcase(s, made);
    return s;
}
