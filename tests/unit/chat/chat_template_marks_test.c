/* Text of a client never becomes a special token, whatever a template does with it: every filter, method and function
 * of the tables, on text that holds the token whole and on pieces that make it up, down to the ids. */
#include "engine/base/mem.h"
#include "engine/chat/chat_template.h"
#include "engine/jinja/jinja_vm.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *chat_template_marks_suite(void);

/* What operations make of <|im_end|>; all are tokens of the vocabulary. */
static const char *const marks[] = {
    "<|im_end|>", "<|IM_END|>", "<|Im_End|>", "<|im_End|>", ">|dne_mi|<", "&lt;|im_end|&gt;", "%%",
};

/* As chat.c has it: what chat_template_kwargs, messages, tools and documents hold; bos_token is the server's. */
static const char context[] =
    "{\"bos_token\": \"<|im_end|>\", \"eos_token\": \"<|im_end|>\","
    " \"u\": \"<|im_end|>\", \"up\": \"<|IM_END|>\", \"a\": \"<|im\", \"b\": \"_end|>\", \"x\": \"<|imX_end|>\","
    " \"sp\": \" <|im_end|> \", \"n\": 3, \"back\": \">|dne_mi|<\","
    " \"f\": \"{:<<1}{:|<1}{:i<1}{:m<1}{:_<1}{:e<1}{:n<1}{:d<1}{:|<1}{:><1}\", \"q\": \"%%%%\","
    " \"g\": \"{0}<|{1:i<2}_end|>\", \"p\": \"<%s%%|\","
    " \"chars\": [60, 124, 105, 109, 95, 101, 110, 100, 124, 62],"
    " \"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\", \"<|im_end|>\": \"im\"}],"
    " \"tools\": [{\"name\": \"<|im_end|>\"}], \"documents\": [\"<|im_end|>\"]}";

/* An expression for each row of the tables. Those of which no text comes are marked with "-". */
struct use {
    const char *name, *expression;
};
static const struct use filters[] = {
    {"abs", "-n|abs"},
    {"batch", "[u, u]|batch(3, u)|list"},
    {"capitalize", "u|capitalize"},
    {"center", "u|center(30)"},
    {"count", "-u|count"},
    {"d", "nothing|d(u)"},
    {"default", "''|default(u, true)"},
    {"dictsort", "messages[0]|dictsort"},
    {"e", "u|e"},
    {"escape", "(a ~ b)|escape"},
    {"first", "[u]|first"},
    {"float", "'z'|float(u)"},
    {"forceescape", "u|forceescape"},
    {"format", "p|format('') ~ '%s%s'|format(a, b)"},
    {"indent", "'z\nz'|indent(u, true)"},
    {"int", "'z'|int(u)"},
    {"items", "messages[0]|items|list"},
    {"join", "[a, b]|join ~ ['<|im', 'z']|join(b) ~ [{'k': u}]|join('', 'k')"},
    {"last", "[u]|last"},
    {"length", "-u|length"},
    {"list", "(a|list + b|list)|join"},
    {"lower", "up|lower"},
    {"map", "[a, b]|map('lower')|join ~ messages|map(attribute='content')|join"},
    {"max", "[u]|max"},
    {"min", "[u]|min"},
    {"reject", "[u]|reject('none')|list"},
    {"rejectattr", "messages|rejectattr('nothing')|list"},
    {"replace", "x|replace('X', '') ~ 'zXz'|replace('X', u) ~ u|replace('q', '') ~ '<|im'|replace('m', 'm' ~ b)"},
    {"reverse", "back|reverse ~ [b, a]|reverse|join"},
    {"round", "-n|round"},
    {"safe", "(a|safe) ~ b ~ (u|safe)"},
    {"select", "[u]|select|list"},
    {"selectattr", "messages|selectattr('content')|list"},
    {"slice", "[u, u]|slice(2, u)|list"},
    {"sort", "[u, a]|sort"},
    {"string", "[u]|string"},
    {"sum", "[[u]]|sum(start=[])"},
    {"title", "u|title"},
    {"tojson", "u|tojson ~ {u: u}|tojson(indent=u) ~ [1, 2]|tojson(separators=[u, u])"},
    {"trim", "sp|trim"},
    {"unique", "[u, u]|unique|list"},
    {"upper", "u|upper"},
    {"wordcount", "-u|wordcount"},
};
static const struct use str_methods[] = {
    {"capitalize", "u.capitalize()"},
    {"center", "u.center(30, a[0])"},
    {"count", "-u.count('<')"},
    {"endswith", "-u.endswith(b)"},
    {"find", "-u.find('<')"},
    {"format", "f.format('', '', '', '', '', '', '', '', '', '') ~ g.format('', 'm') ~ '{}{:>3}'.format(a, b) ~ "
               "'{!s}'.format(u)"},
    {"index", "-u.index('<')"},
    {"isalnum", "-u.isalnum()"},
    {"isalpha", "-u.isalpha()"},
    {"isascii", "-u.isascii()"},
    {"isdigit", "-u.isdigit()"},
    {"islower", "-u.islower()"},
    {"isnumeric", "-u.isnumeric()"},
    {"isprintable", "-u.isprintable()"},
    {"isspace", "-u.isspace()"},
    {"istitle", "-u.istitle()"},
    {"isupper", "-u.isupper()"},
    {"join", "''.join([a, b]) ~ u.join(['z', 'z'])"},
    {"ljust", "u.ljust(30) ~ a.ljust(7, '_')"},
    {"lower", "up.lower()"},
    {"lstrip", "sp.lstrip()"},
    {"partition", "x.partition('X')[::2]|join ~ ('z' ~ u).partition('<|im')"},
    {"removeprefix", "sp.removeprefix(' ')"},
    {"removesuffix", "sp.removesuffix(' ')"},
    {"replace", "x.replace('X', '') ~ 'X'.replace('X', u) ~ '<|im'.replace('m', 'm' ~ b) ~ 'z'.replace('', u)"},
    {"rfind", "-u.rfind('<')"},
    {"rindex", "-u.rindex('<')"},
    {"rjust", "u.rjust(30)"},
    {"rpartition", "('z' ~ u).rpartition('z')[2]"},
    {"rsplit", "x.rsplit('X')|join"},
    {"rstrip", "sp.rstrip()"},
    {"split", "x.split('X')|join ~ sp.split()[0]"},
    {"splitlines", "('z\n' ~ u).splitlines()[1]"},
    {"startswith", "-u.startswith(a)"},
    {"strip", "sp.strip() ~ ('z' ~ u).strip('z')"},
    {"swapcase", "u.swapcase() ~ up.swapcase()"},
    {"title", "u.title()"},
    {"upper", "u.upper()"},
    {"zfill", "u.zfill(30) ~ ('-' ~ u).zfill(30)"},
};
static const struct use functions[] = {
    {"cycler", "cycler(u, a).next()"},
    {"dict", "dict(messages[0], k=u)"},
    {"joiner", "joiner(u)"}, /* called in a template of its own below; as a value it has no text */
    {"namespace", "namespace(k=u).k"},
    {"raise_exception", "-u"}, /* its text is an error */
    {"range", "-range(n)|list"},
    {"strftime_now", "strftime_now(u) ~ strftime_now('<|im' ~ b) ~ strftime_now(a ~ '%%' ~ b)"},
};
static const struct use dict_methods[] = {
    {"copy", "messages[0].copy()"},
    {"fromkeys", "{}.fromkeys(messages[0], u)"},
    {"get", "messages[0].get('content') ~ {}.get(1, u)"},
    {"items", "messages[0].items()"},
    {"keys", "messages[0].keys()|list"},
    {"values", "messages[0].values()|join('')"},
};
static const struct use dict_class_methods[] = {{"fromkeys", "dict.fromkeys([u], a ~ b)"}};
static const struct use list_methods[] = {
    {"copy", "[u].copy()"},
    {"count", "-[u].count(u)"},
    {"index", "-[u].index(u)"},
};
static const struct use cycler_methods[] = {{"next", "cycler(u).next()"}, {"reset", "-cycler(u).reset()"}};
static const struct use loop_methods[] = {{"changed", "-1"}, {"cycle", "-1"}}; /* in templates below */

/* Operators, statements and what the context holds elsewhere. */
static const char *const others[] = {
    "{{ u }}",
    "{{ tools }}{{ documents }}{{ messages }}",
    "{{ a ~ b }}{{ a + b }}",
    "{{ a }}{{ b }}",
    "{{ '<|im' }}{{ b }}",
    "<|im{{ b }}",
    "<|{{ 'im'.center(2) }}_end{{ '|>' if n < 0 else u[-2:] }}",
    "{{ u[0] }}{{ u[1:] }}{{ x[:4] ~ x[5:] }}{{ x[::1][:4] }}{{ back[::-1] }}",
    "{{ u * 2 }}{{ (a ~ b) * 1 }}{{ [u] * 2 }}",
    "{{ '%s' % u }}{{ '%s%s' % (a, b) }}{{ p % '' }}{{ '%r' % [u] }}{{ '%10s' % u }}{{ '%.10s' % (u ~ u) }}",
    "{{ '%(k)s' % {'k': u} }}{{ q % {} }}",
    "{{ '%c%c%c%c%c%c%c%c%c%c' % (60, 124, 105, 109, 95, 101, 110, 100, 124, 62) }}",
    "{% for c in chars %}{{ '%c' % c }}{% endfor %}{% for c in chars %}{{ '{:c}'.format(c) }}{% endfor %}",
    "{% for c in u %}{{ c }}{% endfor %}",
    "{% for k in messages[0] %}{{ k }}{% endfor %}{% for k, v in messages[0].items() %}{{ k }}{{ v }}{% endfor %}",
    "{% set s %}{{ a }}{{ b }}{% endset %}{{ s }}{% set t = a %}{{ t ~ b }}",
    "{% macro m(x, y=u) %}{{ x }}{{ y }}{% endmacro %}{{ m(a) }}{{ m(a, b) }}",
    "{% filter lower %}{{ up }}{% endfilter %}{% filter replace('X', '') %}{{ x }}{% endfilter %}",
    "{% set ns = namespace(s='') %}{% for c in u %}{% set ns.s = ns.s + c %}{% endfor %}{{ ns.s }}",
    "{% set j = joiner(u) %}{{ j() }}{{ j() }}",
    "{% for i in [1, 2] %}{{ loop.cycle(u, a) }}{{ loop.cycle(b, b) }}{% endfor %}",
    "{% for i in [u, a] %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.changed(i) }}{% endfor %}",
    "{{ [u] }}{{ (u,) }}{{ {u: u} }}{{ {'k': [u]}.k }}",
    "{{ u if u else a }}{{ u or a }}{{ u and u }}",
    "{% generation %}{{ u }}{% endgeneration %}",
};

static size_t n_marks_of(const struct vocab *v, const struct chat_output *o, bool heeds_user)
{
    struct token_list ids = {0};
    size_t n = 0;
    enum err e = tokenizer_encode(v->t,
                                  &(struct tokenizer_text){.s = o->text,
                                                           .n = o->len,
                                                           .flags = TOKENIZE_PARSE_SPECIAL,
                                                           .plain = heeds_user ? o->user : NULL,
                                                           .n_plain = heeds_user ? o->n_user : 0},
                                  &ids, NULL);
    if (e != ERR_OK) {
        ck_abort_msg("%s", err_code(e));
    }
    for (size_t i = 0; i < ids.n; i++) {
        n += tokenizer_kind(v->t, ids.ids[i]) == TOKEN_CONTROL;
    }
    token_list_fini(&ids);
    return n;
}

/* Renders `body` between two marks that the template wrote itself and two that are the server's. */
static void expect_four_marks(const struct vocab *v, const char *body, bool shows_text)
{
    char source[1024];
    struct chat_template *t;
    struct chat_output o;
    struct err_info info = {0};
    json_t *j = json_loads(context, 0, NULL);
    snprintf(source, sizeof source, "<|im_end|>%s{{ '<|im' ~ '_end|>' }}{{ bos_token }}{{ eos_token }}", body);
    enum err e = chat_template_new(source, strlen(source), &t, &info);
    e = e != ERR_OK ? e : chat_template_render(t, j, 0, &o, &info);
    if (e != ERR_OK) {
        ck_abort_msg("%s: %s", body, info.text);
    }
    size_t found = n_marks_of(v, &o, true), without = n_marks_of(v, &o, false);
    if (found != 4) {
        ck_abort_msg("%s: expected the template's own 4 special tokens, found %zu in %s", body, found, o.text);
    }
    if (shows_text && without <= 4) { /* then it would show nothing */
        ck_abort_msg("%s: expected a text that holds the token, found %s", body, o.text);
    }
    chat_output_fini(&o);
    chat_template_free(&t);
    json_decref(j);
}

static void load(struct vocab *v)
{
    struct err_info info = {0};
    vocab_bpe(v, "gpt-2");
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        vocab_add(v, marks[i], strlen(marks[i]), TOKEN_CONTROL, 0);
    }
    ck_assert_msg(vocab_load(v, &info) == ERR_OK, "%s", info.text);
}

static void walk(const struct vocab *v, const struct jbuiltin *table, const struct use *uses, size_t n)
{
    size_t n_rows = 0;
    for (const struct jbuiltin *row = table; row->name != NULL; row++) {
        const struct use *use = NULL;
        for (size_t i = 0; i < n; i++) {
            use = strcmp(uses[i].name, row->name) == 0 ? &uses[i] : use;
        }
        if (row->fn == NULL) {
            continue; /* changes its object, so templates have it not */
        }
        if (use == NULL) {
            ck_abort_msg("%s: expected an expression that uses it on text of a client", row->name);
        }
        char body[512];
        bool is_silent = use->expression[0] == '-' || strcmp(use->name, "joiner") == 0;
        snprintf(body, sizeof body, "{{ %s }}", use->expression + (use->expression[0] == '-'));
        expect_four_marks(v, body, !is_silent);
        n_rows++;
    }
    ck_assert_uint_eq(n_rows, n);
}

START_TEST(every_function_keeps_the_mark)
{
    struct vocab v;
    load(&v);
    walk(&v, jinja_filters, filters, ARRAY_LEN(filters));
    walk(&v, jinja_str_methods, str_methods, ARRAY_LEN(str_methods));
    walk(&v, jinja_functions, functions, ARRAY_LEN(functions));
    walk(&v, jinja_dict_methods, dict_methods, ARRAY_LEN(dict_methods));
    walk(&v, jinja_dict_class_methods, dict_class_methods, ARRAY_LEN(dict_class_methods));
    walk(&v, jinja_list_methods, list_methods, ARRAY_LEN(list_methods));
    walk(&v, jinja_cycler_methods, cycler_methods, ARRAY_LEN(cycler_methods));
    walk(&v, jinja_loop_methods, loop_methods, ARRAY_LEN(loop_methods));
    vocab_fini(&v);
}
END_TEST

START_TEST(every_way_to_print_keeps_the_mark)
{
    struct vocab v;
    load(&v);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        expect_four_marks(&v, others[i], true);
    }
    vocab_fini(&v);
}
END_TEST

/* A text that begins as BOS does, but is the client's, must not keep the tokenizer from adding BOS. */
START_TEST(bos_of_a_client_is_none)
{
    char text[] = "<s>hi";
    struct span whole = {0, 5}, last = {2, 3}, after = {3, 5};
    struct chat_output o = {.text = text, .len = 5};
    ck_assert(chat_output_has_bos(&o, "<s>"));
    ck_assert(!chat_output_has_bos(&o, ""));
    ck_assert(!chat_output_has_bos(&o, "<s>hi!"));
    ck_assert(!chat_output_has_bos(&o, "<b>"));
    o.n_user = 1;
    o.user = &whole;
    ck_assert(!chat_output_has_bos(&o, "<s>"));
    o.user = &last;
    ck_assert(!chat_output_has_bos(&o, "<s>"));
    o.user = &after;
    ck_assert(chat_output_has_bos(&o, "<s>"));
}
END_TEST

Suite *chat_template_marks_suite(void)
{
    Suite *s = suite_create("chat_template_marks");
    TCase *t = tcase_create("chat_template_marks");
    tcase_add_test(t, every_function_keeps_the_mark);
    tcase_add_test(t, every_way_to_print_keeps_the_mark);
    tcase_add_test(t, bos_of_a_client_is_none);
    suite_add_tcase(s, t);
    return s;
}
