/* Templates and contexts with far more names, values, constants and entries than the first size of any table, and integers
 * beyond int64. */
#include "engine/base/buf.h"
#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "engine/chat/chat_template.h"

#include <check.h>
#include <string.h>

Suite *chat_template_wide_suite(void);

enum { MANY = 3000 };

/* Renders source with context; both are JSON or text of any length. */
static void expect(const char *source, const char *context, const char *want)
{
    struct err_info info = {0};
    struct chat_template *t;
    struct chat_output out;
    json_t *v;
    enum err err = json_read(context, strlen(context), 8, "the context", &v, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    err = chat_template_new(source, strlen(source), &t, &info);
    ck_assert_msg(err == ERR_OK, "%.80s: %s", source, info.text);
    err = chat_template_render(t, v, 0, &out, &info);
    ck_assert_msg(err == ERR_OK, "%.80s: %s", source, info.text);
    ck_assert_msg(strcmp(out.text, want) == 0, "%.80s: expected '%.80s', found '%.80s'", source, want, out.text);
    chat_output_fini(&out);
    chat_template_free(&t);
    json_decref(v);
}

/* begin, then unit with each number below MANY for each '#', `between` between them, then end; free with mem_free. */
static char *many(const char *begin, const char *unit, const char *between, const char *end)
{
    struct buf b;
    size_t n;
    buf_init(&b, 0, MEM_GENERAL);
    buf_puts(&b, begin);
    for (int i = 0; i < MANY; i++) {
        buf_puts(&b, i == 0 ? "" : between);
        for (const char *c = unit; *c != '\0'; c++) {
            if (*c == '#') {
                buf_printf(&b, "%d", i);
            } else {
                buf_putc(&b, *c);
            }
        }
    }
    buf_puts(&b, end);
    char *text = buf_take(&b, &n);
    ck_assert_ptr_nonnull(text);
    return text;
}

static void expect_many(const char *begin, const char *unit, const char *between, const char *end, const char *want)
{
    char *source = many(begin, unit, between, end);
    expect(source, "{}", want);
    mem_free(source);
}

START_TEST(sources_can_have_many_parts)
{
    expect_many("", "{% set v# = # %}", "", "{{ v0 }} {{ v2999 }}", "0 2999");
    expect_many("{{ [", "#", ", ", "]|sum }}", "4498500");
    expect_many("{{ (", "'k#'", ", ", ")[2999] }}", "k2999");
    expect_many("{% set d = {", "'k#': #", ", ", "} %}{{ d|length }} {{ d.k0 }} {{ d['k2999'] }} {{ 'k3000' in d }}",
                "3000 0 2999 False");
    expect_many("{% set d = {", "#: 'v#'", ", ", "} %}{{ d[0] }} {{ d[2999.0] }}", "v0 v2999");
    expect_many("", "{% macro m#(x) %}{{ x + # }}{% endmacro %}", "", "{{ m0(1) }} {{ m2999(1) }}", "1 3000");
    expect_many("{% if x == 0 %}", "{% elif x == # %}#", "", "{% else %}else{% endif %}", "else");
    expect_many("", "{% if false %}#{% endif %}", "", "end", "end");
    expect_many("{% set ns = namespace() %}", "{% set ns.a# = # %}", "",
                "{% set ns.a5 = 7 %}{{ ns.a5 }} {{ ns.a2999 }}", "7 2999");
    expect_many("{% for i in [1] %}", "{% set w# = i + # %}", "", "{{ w0 }} {{ w2999 }}{% endfor %}{{ w0 is defined }}",
                "1 3000False");
}
END_TEST

START_TEST(contexts_can_have_many_values)
{
    char *list = many("{\"v\":[", "{\"n\":#}", ",", "]}");
    char *dict = many("{\"v\":{", "\"k#\":#", ",", "}}");
    char *vars = many("{", "\"k#\":#", ",", "}");
    char *names = many("", "{{ k# if # == 2999 }}", "", "");
    expect("{{ v|length }} {{ v[2999].n }} {{ v|map(attribute='n')|sum }} {{ v[::-1][0].n }}", list,
           "3000 2999 4498500 2999");
    expect("{{ v|length }} {{ v.k0 }} {{ v.k2999 }} {{ v|dictsort|length }} {{ v.items()|list|length }}", dict,
           "3000 0 2999 3000 3000");
    expect(
        "{% set ns = namespace(l=[], d={}) %}{% for k, n in v.items() %}{% if n % 10 == 0 %}{% set ns.l = ns.l + [n] %}"
        "{% endif %}{% endfor %}{{ ns.l|length }} {{ ns.l[299] }}",
        dict, "300 2990");
    expect("{{ v|tojson|length }} {{ v|string|length }} {{ v == v }}", dict, "42780 42780 True");
    expect(names, vars, "2999");
    mem_free(list);
    mem_free(dict);
    mem_free(vars);
    mem_free(names);
}
END_TEST

/* Integers of a context that no int64 holds are in order with those that one does. */
START_TEST(wider_integers_are_in_order)
{
    static const char context[] =
        "{\"a\":-9223372036854775809,\"b\":-9223372036854775808,\"c\":9223372036854775807,\"d\":9223372036854775808}";
    expect("{{ a == b }}{{ b == a }}{{ c == d }} {{ a < b }}{{ b > a }}{{ c < d }}{{ d > c }}{{ a < true }} "
           "{{ [d, b, c, a]|sort == [a, b, c, d] }} {{ {a: 1, b: 2, c: 3, d: 4}|length }} {{ a == a }}",
           context, "FalseFalseFalse TrueTrueTrueTrueTrue True 4 True");
}
END_TEST

Suite *chat_template_wide_suite(void)
{
    Suite *s = suite_create("chat_template_wide");
    TCase *t = tcase_create("chat_template_wide");
    tcase_add_test(t, sources_can_have_many_parts);
    tcase_add_test(t, contexts_can_have_many_values);
    tcase_add_test(t, wider_integers_are_in_order);
    suite_add_tcase(s, t);
    return s;
}
