/* The chat template interpreter where the oracle (tests/golden/chat_oracle.py) cannot look: limits at their edge, marks
 * of user text, messages with positions, memory that fails, threads. C numbers are rows of the catalogue of bad inputs.
 */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/task.h"
#include "engine/chat/chat_template.h"

#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *chat_template_suite(void);

/* Fields that hold what the last render gave. */
struct result {
    enum err err;
    struct err_info info;
    struct chat_output out;
};

static struct result render_tree(const char *source, size_t n, const json_t *context)
{
    struct result r = {0};
    struct chat_template *t = NULL;
    r.err = chat_template_new(source, n, &t, &r.info);
    if (r.err == ERR_OK) {
        r.err = chat_template_render(t, context, 0, &r.out, &r.info);
    }
    if (r.err != ERR_OK && (r.out.text != NULL || r.out.user != NULL || r.info.text[0] == '\0')) {
        ck_abort_msg("a failure left an output or gave no message");
    }
    chat_template_free(&t);
    return r;
}

static json_t *parse(const char *context)
{
    json_t *j = json_loads(context, 0, NULL);
    if (j == NULL) {
        ck_abort_msg("the context is not JSON: %s", context);
    }
    return j;
}

static struct result render_n(const char *source, size_t n, const char *context)
{
    json_t *j = parse(context);
    struct result r = render_tree(source, n, j);
    json_decref(j);
    return r;
}

static struct result render(const char *source, const char *context)
{
    return render_n(source, strlen(source), context);
}

static void expect(const char *source, const char *context, const char *want)
{
    struct result r = render(source, context);
    if (r.err != ERR_OK || strcmp(r.out.text, want) != 0 || r.out.len != strlen(want)) {
        ck_abort_msg("%s: expected '%s', found '%s'", source, want, r.err == ERR_OK ? r.out.text : r.info.text);
    }
    chat_output_fini(&r.out);
}

static void expect_failure(const char *source, const char *context, const char *want)
{
    struct result r = render(source, context);
    if (r.err != ERR_TEMPLATE || strstr(r.info.text, want) == NULL) {
        ck_abort_msg("%s: expected a failure with '%s', found '%s'", source, want,
                     r.err == ERR_OK ? r.out.text : r.info.text);
    }
    chat_output_fini(&r.out);
}

/* `unit` n times between head and tail; free with mem_free. */
static char *repeated(const char *head, const char *unit, size_t n, const char *tail)
{
    struct buf b;
    size_t len;
    buf_init(&b, 0, MEM_GENERAL);
    buf_puts(&b, head);
    for (size_t i = 0; i < n; i++) {
        buf_puts(&b, unit);
    }
    buf_puts(&b, tail);
    char *s = buf_take(&b, &len);
    if (s == NULL) {
        ck_abort_msg("no memory for the test");
    }
    return s;
}

/* --- limits ----------------------------------------------------------------------------------------------------- */

static void expect_fits(char *source, const char *context, bool fits, const char *message)
{
    struct result r = render(source, context);
    if (fits ? r.err != ERR_OK : r.err != ERR_TEMPLATE || strstr(r.info.text, message) == NULL) {
        ck_abort_msg("%.60s...: expected %s, found %s", source, fits ? "no error" : message, r.info.text);
    }
    chat_output_fini(&r.out);
    mem_free(source);
}

/* Rows C02: of source, and further down of nesting. */
START_TEST(source_bytes)
{
    expect_fits(repeated("", "0123456789", 1 << 20, ""), "{}", false, "has 10485760 bytes; the limit is 262144");
    expect_fits(repeated("", "{% if 1 %}", 100000, ""), "{}", false, "has 1000000 bytes");
    expect_fits(repeated("", "x", JINJA_MAX_SOURCE_BYTES, ""), "{}", true, "");
    expect_fits(repeated("", "x", JINJA_MAX_SOURCE_BYTES + 1, ""), "{}", false, "the limit is");
}
END_TEST

/* Nests `open` n times around "x" and closes it again. */
static char *nested(const char *head, const char *open, const char *close, size_t n, const char *tail)
{
    char *inner = repeated(head, open, n, "1");
    char *outer = repeated(inner, close, n, tail);
    mem_free(inner);
    return outer;
}

/* Rows C02. */
START_TEST(depth_of_blocks_and_expressions)
{
    static const struct {
        const char *head, *open, *close, *tail;
        int reserve; /* levels that head takes */
    } rows[] = {
        {"", "{% if 1 %}", "{% endif %}", "", 0},
        {"", "{% for i in [1] %}", "{% endfor %}", "", 0},
        {"", "{% set x %}", "{% endset %}", "", 0},
        {"", "{% filter upper %}", "{% endfilter %}", "", 0},
        {"", "{% generation %}", "{% endgeneration %}", "", 0},
        {"", "{% macro m() %}", "{% endmacro %}", "", 0},
        {"{{ ", "(", ")", " }}", 0},
        {"{{ ", "[", "]", " }}", 0},
        {"{{ ", "{1: ", "}", " }}", 0},
        {"{{ ", "range(", ")", " }}", 0},
        {"{{ ", "-", "", " }}", 0},
        {"{{ ", "not ", "", " }}", 0},
        {"{% set x = [] %}{{ ", "x[", "]", " }}", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = (size_t)(JINJA_MAX_DEPTH - rows[i].reserve);
        struct result r = {0};
        char *s = nested(rows[i].head, rows[i].open, rows[i].close, n, rows[i].tail);
        struct chat_template *t = NULL;
        if (chat_template_new(s, strlen(s), &t, &r.info) != ERR_OK) {
            ck_abort_msg("%s, %zu deep: %s", rows[i].open, n, r.info.text);
        }
        chat_template_free(&t);
        mem_free(s);
        expect_fits(nested(rows[i].head, rows[i].open, rows[i].close, n + 1, rows[i].tail), "{}", false, "levels deep");
    }
}
END_TEST

/* Rows C03. */
START_TEST(depth_of_macro_calls)
{
    char context[64];
    const char *source = "{% macro m(n) %}{% if n > 1 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(depth) }}";
    snprintf(context, sizeof context, "{\"depth\": %d}", JINJA_MAX_DEPTH);
    expect(source, context, "");
    snprintf(context, sizeof context, "{\"depth\": %d}", JINJA_MAX_DEPTH + 1);
    expect_failure(source, context, "nested more than");
    expect_failure("{% macro x() %}{{ x() }}{% endmacro %}{{ x() }}", "{}", "nested more than");
    expect_failure("{% macro x() %}{{ y() }}{% endmacro %}{% macro y() %}{{ x() }}{% endmacro %}{{ x() }}", "{}",
                   "nested more than");
    expect_failure("{% macro x(f) %}{{ f(f) }}{% endmacro %}{{ x(x) }}", "{}", "nested more than");
    expect_failure("{% macro x() %}{% call x() %}{{ caller() }}{% endcall %}{% endmacro %}{{ x() }}", "{}", "");
}
END_TEST

/* Deep input that the limits refuse must not use stack: run with a small one. */
static void *refuse_deep(void *unused)
{
    static const char *const open[] = {"(",  "[",      "{1:",    "-",         "not ",   "m(",
                                       "x[", "a if (", "a|map(", "a is in (", "1 ** (", "a ~ ("};
    (void)unused;
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        expect_fits(repeated("{{ ", open[i], 20000, ""), "{}", false, ":");
    }
    expect_fits(repeated("{{ ", "(", 100000, ""), "{}", false, "levels deep");
    expect_fits(repeated("", "{% if 1 %}", 20000, ""), "{}", false, "levels deep");
    expect_fits(repeated("", "{% for a in b %}", 15000, ""), "{}", false, "levels deep");
    expect_fits(repeated("{% for ", "(", 20000, " in x %}"), "{}", false, ":");
    expect_fits(repeated("{{ 1", " if 1 else 1", 20000, " }}"), "{}", false, ":");
    return NULL;
}

START_TEST(deep_nesting_uses_no_stack)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    ck_assert_int_eq(pthread_create(&thread, &attr, refuse_deep, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}
END_TEST

START_TEST(long_chains_are_no_nesting)
{
    char *s = repeated("{{ 1", " + 1", 10000, " }}");
    expect(s, "{}", "10001");
    mem_free(s);
    s = repeated("{{ 'a'", " ~ 'a'", 1000, "|length }}");
    struct result r = render(s, "{}");
    ck_assert_int_eq(r.err, ERR_OK);
    chat_output_fini(&r.out);
    mem_free(s);
    s = repeated("{{ 'a'", "|upper", 5000, " }}");
    expect(s, "{}", "A");
    mem_free(s);
    s = repeated("{% if 0 %}", "{% elif 0 %}x", 5000, "{% else %}y{% endif %}");
    expect(s, "{}", "y");
    mem_free(s);
}
END_TEST

/* Rows C04. The steps that `n` rounds of a loop take rise with n, so a search finds the edge: n runs, n + 1 does not.
 */
START_TEST(steps)
{
    size_t low = 1, high = 100000;
    char context[64];
    const char *source = "{% for i in range(n) %}{% set x = i * i + i * i + i * i + i * i + i * i %}{% endfor %}done";
    expect(source, "{\"n\": 1}", "done");
    expect_failure(source, "{\"n\": 100000}", "more than 1000000 steps");
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        snprintf(context, sizeof context, "{\"n\": %zu}", mid);
        struct result r = render(source, context);
        if (r.err == ERR_OK) {
            low = mid;
        } else {
            high = mid;
        }
        chat_output_fini(&r.out);
    }
    ck_assert_uint_ge(low, 1000000 / 30); /* at most 30 steps a round */
    expect_failure("{% macro m() %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% "
                   "endmacro %}{{ m() }}",
                   "{}", "more than 1000000 steps");
    expect_failure("{{ range(100001) }}", "{}", "range too big");
    expect_failure("{{ range(10**9)|length }}", "{}", "range too big");
}
END_TEST

/* Rows C04: what a step may cost is bounded: loops to the end of the budget take well under a second, whatever they do.
 */
START_TEST(a_budget_is_soon_spent)
{
    static const char *const endless[] = {
        "{% for i in range(25000) %}{% for j in range(25000) %}{{ i }}{% endfor %}{% endfor %}",
        "{% set n = namespace(i=0) %}{% for a in range(99999) %}{% for b in range(99999) %}{% if n.i < 0 %}{% break %}"
        "{% endif %}{% set n.i = n.i + 1 %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = range(99999)|list %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = range(99999)|map('string')|join|length %}{% endfor %}",
    };
    static const char *const slow[] = {
        "s in d",
        "{s: 1}|length",
        "s.isascii()",
        "s.isprintable()",
        "s is lower",
        "s.splitlines()|length",
        "s.swapcase()",
        "s.strip('abcd')",
        "s.rpartition('zz')|length",

        "s.startswith((s, s, s, s, s, s, s, s))",
    };
    for (size_t i = 0; i < ARRAY_LEN(endless) + ARRAY_LEN(slow); i++) {
        char source[512];
        if (i < ARRAY_LEN(endless)) {
            snprintf(source, sizeof source, "%s", endless[i]);
        } else { /* a text of 256 KiB */
            snprintf(source, sizeof source,
                     "{%% set n = namespace(s='ab') %%}{%% for i in range(17) %%}{%% set n.s = n.s ~ n.s %%}{%% endfor "
                     "%%}{%% set s = n.s %%}{%% for i in range(99999) %%}{%% set x = %s %%}{%% endfor %%}",
                     slow[i - ARRAY_LEN(endless)]);
        }
        uint64_t start = clock_thread_ns();
        expect_failure(source, "{\"d\": {\"a\": 1}}", "the template ");
        double seconds = (double)(clock_thread_ns() - start) * 1e-9;
        ck_assert_msg(seconds < 10, "%s: %.1f s", source, seconds); /* ASan makes it ten times as long */
    }
}
END_TEST

/* Rows C05. */
START_TEST(a_client_that_leaves_ends_it)
{
    const atomic_bool has_left = true;
    struct task task = {.has_left = &has_left};
    task_enter(&task, "template");
    ck_assert_int_eq(render("{% for i in range(n) %}{{ i }}{% endfor %}", "{\"n\": 20000}").err, ERR_CANCELLED);
    task_leave();
}
END_TEST

START_TEST(bytes_of_output)
{
    /* 64 KiB a line: 64 of them are the limit. */
    const char *source = "{% for i in range(n) %}{{ s }}{% endfor %}{{ more }}";
    char *line = repeated("", "x", JINJA_MAX_OUTPUT_BYTES / 64, "");
    char *context = mem_alloc(JINJA_MAX_OUTPUT_BYTES / 64 + 100, MEM_GENERAL);
    ck_assert_ptr_nonnull(context);
    for (int more = 0; more < 2; more++) {
        snprintf(context, JINJA_MAX_OUTPUT_BYTES / 64 + 100, "{\"n\": 64, \"s\": \"%s\", \"more\": \"%s\"}", line,
                 more ? "y" : "");
        struct result r = render(source, context);
        ck_assert_int_eq(r.err, more ? ERR_TEMPLATE : ERR_OK);
        if (more) {
            ck_assert_ptr_nonnull(strstr(r.info.text, "longer than 4194304 bytes"));
        } else {
            ck_assert_uint_eq(r.out.len, JINJA_MAX_OUTPUT_BYTES);
        }
        chat_output_fini(&r.out);
    }
    mem_free(context);
    mem_free(line);
    expect_failure("{{ 'xx' * 2097153 }}", "{}", "longer than");
    expect_failure("{{ 'x' * 9223372036854775807 }}", "{}", "longer than");
    expect_failure("{{ '%9999999d' % 1 }}", "{}", "larger than");
    expect_failure("{{ 'x'.center(99999999) }}", "{}", "longer than");
    expect_failure("{{ 'x'|indent(99999999) }}", "{}", "longer than");
    expect_failure("{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(30) %}{% set ns.s = ns.s + ns.s "
                   "%}{% endfor %}",
                   "{}", "longer than");
    expect_failure(
        "{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(30) %}{% set ns.s = ns.s|replace('0', ns.s) "
        "%}{% endfor %}",
        "{}", "longer than");
    expect_failure("{{ 'a' * 10**9 }}", "{}", "longer than");
    expect_failure("{{ '%1000000000d' % 1 }}", "{}", "larger than");
    expect_failure("{{ '%.1000000000f' % 1.5 }}", "{}", "larger than");
    expect_failure("{{ '{:1000000000}'.format(1) }}", "{}", "");
    expect_failure("{{ 'x'.ljust(10**9) }}", "{}", "longer than");
    expect_failure("{{ 'x'.rjust(10**9) }}", "{}", "longer than");
    expect_failure("{{ 'x'.zfill(10**9) }}", "{}", "longer than");
    expect_failure("{{ [1]|tojson(indent=10**9) }}", "{}", "");
    expect_failure("{{ 'a\\nb'|indent(10**9) }}", "{}", "longer than");
    expect_failure("{{ (['x'] * 100000)|join('y' * 1000) }}", "{}", "longer than");
    expect_failure("{{ 10 ** 10 ** 10 }}", "{}", "");
}
END_TEST

START_TEST(bytes_of_memory)
{
    expect_failure("{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
                   "{}", "bytes of memory");
    expect_failure(
        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, '%500s' % i] %}{% endfor %}",
        "{}", "bytes of memory");
    expect_failure("{{ [1] * 9999999 }}", "{}", "longer than");
    char *list = repeated("{\"l\": [1", ", 1", 1045000, "]}");
    expect_failure("{{ l|length }}", list, "bytes of memory");
    expect("{{ other }}", list, ""); /* what the template does not name costs nothing */
    mem_free(list);
}
END_TEST

START_TEST(nesting_of_data)
{
    char *deep = nested("{\"d\": ", "[", "]", 128, "}");
    expect("{{ d|tojson|length }}", deep, "257");
    expect("{{ d|string|length }}", deep, "257");
    expect("{{ d == d }}", deep, "True");
    mem_free(deep);
    deep = nested("{\"d\": ", "[", "]", 129, "}");
    expect_failure("{{ d|tojson|length }}", deep, "nested more than 128 levels");
    mem_free(deep);
    expect_failure(
        "{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "{}",
        "nested more than 128 levels");
    expect_failure(
        "{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
        "{}", "nested more than 128 levels");
    expect_failure("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "{}", "nested more than 128 levels");
}
END_TEST

/* --- user text -------------------------------------------------------------------------------------------------- */

/* Expects each '#' of `want` under a user byte and each '.' under another. */
static void expect_marks_of(const char *context, const char *source, const char *text, const char *want)
{
    struct result r = render(source, context);
    char marks[200];
    if (r.err != ERR_OK || r.out.len >= sizeof marks) {
        ck_abort_msg("%s: %s", source, r.info.text);
    }
    memset(marks, '.', r.out.len);
    marks[r.out.len] = '\0';
    size_t before = 0;
    for (size_t i = 0; i < r.out.n_user; i++) {
        struct span s = r.out.user[i];
        if (s.from >= s.to || s.to > r.out.len || (i > 0 && s.from < before)) {
            ck_abort_msg("%s: range %zu to %zu is empty, out of order or outside", source, s.from, s.to);
        }
        memset(marks + s.from, '#', s.to - s.from);
        before = s.to;
    }
    if (strcmp(r.out.text, text) != 0 || strcmp(marks, want) != 0) {
        ck_abort_msg("%s:\nexpected %s\n         %s\nfound    %s\n         %s", source, text, want, r.out.text, marks);
    }
    chat_output_fini(&r.out);
}

/* The user's strings are u, v (in messages). */
static void expect_marks(const char *source, const char *text, const char *want)
{
    expect_marks_of(
        "{\"messages\": [{\"role\": \"user\", \"content\": \" User \", \"n\": 5}, {\"content\": \"<\xC3\xA9>\"}], "
        "\"tools\": [{\"name\": \"tool\"}], \"documents\": [\"doc\"], \"date\": \"now\", \"bos_token\": \"own\"}",
        source, text, want);
}

START_TEST(user_marks)
{
#define U "{% set u = messages[0].content %}{% set v = messages[1].content %}"
    static const struct {
        const char *source, *text, *marks;
    } rows[] = {
        {"{{ messages[0].content }}", " User ", "######"},
        {"<{{ messages[0].content }}>", "< User >", ".######."},
        {"{{ bos_token }}{{ tools[0].name }}{{ documents[0] }}{{ date }}", "owntooldocnow", "...##########"},
        {"{{ strftime_now('%Y') }}{{ strftime_now(date) }}{{ strftime_now('%Y' ~ date) }}", "1970now1970now",
         "....##########"},
        {U "{{ '%c%c' % (65, 'B') }}{{ '%s%%' % 'a' }}{{ ('%s%%' ~ u) % 'a' }}", "ABa%a% User ", "#.....######"},
        {U "{{ ('{:.>3}' ~ u).format(1) }}", "..1 User ", "...######"},
        {"<|{{ messages[0].role }}|>{{ messages[0].n }}", "<|user|>5", "........."},
        {U "{{ u|trim }}", "User", "####"},
        {U "{{ '[' + u.strip() + ']' }}", "[User]", ".####."},
        {U "{{ 'a' ~ u[1:3] ~ 'b' }}", "aUsb", ".##."},
        {U "{{ ('ab' ~ u ~ 'cd')[1:-1] }}", "b User c", ".######."},
        {U "{{ ('a' ~ v)[::-1] }}", ">\xC3\xA9<a", "####."},
        {U "{{ ('a' ~ v)[2] }}", "\xC3\xA9", "##"},
        {U "{{ ('a' + u.strip() + 'b')|upper }}", "AUSERB", ".####."},
        {U "{{ ('a' + v)|title }}", "A<\xC3\x89>", ".####"},
        {U "{{ u|tojson }}", "\" User \"", ".######."},
        {U "{{ v|tojson(ensure_ascii=true) }}", "\"<\\u00e9>\"", ".########."},
        {U "{{ {'k': u.strip()}|tojson }}", "{\"k\": \"User\"}", ".......####.."},
        {U "{{ messages[1]|tojson }}", "{\"content\": \"<\xC3\xA9>\"}", "..#######....####.."},
        {U "{{ [u.strip()] }}", "['User']", "..####.."},
        {U "{{ [u, v]|join('|') }}", " User |<\xC3\xA9>", "######.####"},
        {U "{{ '-'.join([u.strip(), 'x']) }}", "User-x", "####.."},
        {U "{{ 'x-y'|replace('-', u.strip()) }}", "xUsery", ".####."},
        {U "{{ u.strip()|replace('s', '-') }}", "U-er", "#.##"},
        {U "{{ '%s|%6s' % (u.strip(), v) }}", "User|   <\xC3\xA9>", "####....####"},
        {U "{{ '{}|{:>5}'.format(u.strip(), v) }}", "User|  <\xC3\xA9>", "####...####"},
        {U "{{ u.strip() * 2 }}", "UserUser", "########"},
        {U "{{ v|escape }}", "&lt;\xC3\xA9&gt;", "##########"},
        {U "{{ 'a' ~ (u|safe) }}", "a User ", ".######"},
        {U "{{ u.split()[0] }}{{ ('a b' + u).split()[1] }}", "Userb", "####."},
        {U "{{ ('a,b' + u.strip()).partition(',')[2] }}", "bUser", ".####"},
        {U "{{ u.strip().center(6, '*') }}", "*User*", ".####."},
        {U "{{ u.strip()|indent(2, true) }}", "  User", "..####"},
        {U "{{ u.strip().ljust(5) }}|", "User |", "####.."},
        {U "{% set x %}[{{ u.strip() }}]{% endset %}{{ x }}", "[User]", ".####."},
        {U "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(u.strip()) }}", "[User]", ".####."},
        {U "{% filter upper %}a{{ u.strip() }}{% endfilter %}", "AUSER", ".####"},
        {U "{% for c in u.strip() %}{{ c }}.{% endfor %}", "U.s.e.r.", "#.#.#.#."},
        {U "{{ u.strip()|list|last }}{{ u.strip()|first }}", "rU", "##"},
        {"{% for m in messages[:1] %}{% for k, x in m.items() %}{{ k }}={% endfor %}{% endfor %}",
         "role=content=n=", "####.#######.#."},
        {U "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + '<' + m.content %}{% endfor %}{{ "
           "ns.s }}",
         "< User <<\xC3\xA9>", ".######.####"},
        {U "{{ u|length }}{{ u == ' User ' }}", "6True", "....."},
        {U "{{ messages|map(attribute='content')|map('trim')|join }}", "User<\xC3\xA9>", "########"},
    };
#undef U
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_marks(rows[i].source, rows[i].text, rows[i].marks);
    }
}
END_TEST

/* Templates build special tokens of roles; only words that they know, and only where a message's role stands. */
START_TEST(roles_are_not_user_text)
{
    static const char context[] =
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"user\", \"deep\": {\"role\": \"tool\"}},"
        "{\"role\": \"a|><|b\"}, {\"role\": \"users\"}, {\"role\": [\"user\"]}],"
        "\"tools\": [[{\"role\": \"user\"}]]}";
    expect_marks_of(context, "<|{{ messages[0].role }}|>{{ messages[0].content }}", "<|assistant|>user",
                    ".............####");
    expect_marks_of(context, "<|{{ messages[0].role|upper }}|>{{ messages[0].deep.role }}", "<|ASSISTANT|>tool",
                    ".............####");
    expect_marks_of(context, "<|{{ messages[1].role }}|>", "<|a|><|b|>", "..######..");
    expect_marks_of(context, "{{ messages[2].role[:4] }}{{ messages[3].role[0] }}{{ tools[0][0].role }}",
                    "useruseruser", "############");
}
END_TEST

START_TEST(marks_of_alternating_text_are_limited)
{
    /* 300,000 changes between user and template text: more ranges than are kept */
    char *list = repeated("{\"messages\": [\"", "x", 100, "\"]}");
    expect_failure("{% set s = messages[0]|replace('', '.') %}{% for i in range(4000) %}{{ s }}{% endfor %}", list,
                   "more than");
    mem_free(list);
}
END_TEST

/* --- messages
 * --------------------------------------------------------------------------------------------------------- */

/* Rows C01. */
START_TEST(messages_name_the_place)
{
    static const struct {
        const char *source, *want;
    } rows[] = {
        {"{{ ", "1:4: expected an expression, found the end of the template"},
        {"a\nb {% foo %}", "2:6: expected a known tag, found 'foo'"},
        {"\xC3\xA9\xC3\xA9{{ x.y }}", "1:8: 'x' is undefined"},
        {"{{ d.e.f }}", "'dict object' has no attribute 'e'"},
        {"{{ 1 + 'a' }}", "1:6: unsupported operand type(s) for +: 'int' and 'str'"},
        {"{{ raise_exception('no \\'x\\'') }}", "no 'x'"},
        {"{% if x %}", "1:4: expected the end of this block, found the end of the template"},
        {"{% for x in y %}{% endif %}", "expected the end of the open block, found 'endif'"},
        {"{{ 'abc }}", "1:4: expected the closing quote of a string"},
        {"{# x", "1:1: expected the end of the comment"},
        {"{% raw %}x", "1:1: expected {% endraw %}"},
        {"{{ x|nope }}", "1:6: no filter named 'nope'"},
        {"{{ x is nope }}", "1:9: no test named 'nope'"},
        {"{{ 'x'|center('y') }}", "center expects an integer, not 'str'"},
        {"{{ 'x'|upper(1) }}", "upper takes at most 0 argument(s), 1 were given"},
        {"{{ 'x'|replace('y') }}", "replace needs at least 2 argument(s)"},
        {"{{ 'x'|trim(y=1) }}", "unexpected argument 'y'"},
        {"{% macro m(a) %}{{ a }}{{ a.b }}{% endmacro %}{{ m() }}", "parameter 'a' was not provided"},
        {"{% set a, b = [1] %}", "not enough values to unpack (expected 2, got 1)"},
        {"{{ 1/0 }}", "1:5: division by zero"},
        {"{{ [].append(1) }}", "this method changes its object"},
        {"{% break %}", "expected a loop around this"},
        {"{% for i in [1] recursive %}{% endfor %}", "recursive loops are not supported"},
        {"{{ f(*a) }}", "arguments by * and ** are not supported"},
        {"{{ 99999999999999999999 }}", "does not fit in 64 bits"},
        {"{{ `x` }}", "1:4: unexpected character '`'"},
        {"{{ (1] }}", ""},
        {"{{ 1 ) }}", "unexpected ')'"},
        {"{% set x = '\\x1' %}", "malformed escape"},
        {"{{ 1 if }}", "expected an expression"},
        {"{{ x[ }}", "expected"},
        {"{% macro %}", "expected the name of the macro"},
        {"{% macro m(a=1, b) %}{% endmacro %}", "expected a default"},
        {"{% macro m(a, a) %}{% endmacro %}", "duplicate"},
        {"{{ f(a=1, a=2) }}", "duplicate"},
        {"{{ f(a=1, 2) }}", "expected a named argument"},
        {"{% for loop in x %}{% endfor %}", "'loop'"},
        {"{% for 1 in x %}{% endfor %}", "expected"},
        {"{% set true = 1 %}", "expected a name to assign to, found 'true'"},
        {"{% set x.y = 1 %}", "cannot assign attribute on non-namespace object"},
        {"{% else %}", "expected"},
        {"{% endif", "expected"},
        {"{% if x y %}{% endif %}", "expected '%}', found 'y'"},
        {"{{ x y }}", "1:6: expected '}}', found 'y'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_failure(rows[i].source, "{\"d\": {}}", rows[i].want);
    }
}
END_TEST

/* A name that no table has is an error of the render that reaches it, and only then. */
START_TEST(unknown_names_fail_when_they_are_reached)
{
    static const struct {
        const char *before, *name, *after, *ok; /* condition false; ok: what the whole gives */
        const char *fails;                      /* condition true; fails: with this */
    } rows[] = {
        {"{{ ((1|", "nope", ") if c else 2) }}", "2", "no filter named 'nope'"},
        {"{% set a = 1|", "nope", " if c else 2 %}{{ a }}", "2", "no filter named 'nope'"},
        {"{% set a %}1{% endset %}{{ (a|", "nope(1, b=2)", "|upper) if c else 2 }}", "2", "no filter named 'nope'"},
        {"{{ 2 if not c else (1 is ", "nope", ") }}", "2", "no test named 'nope'"},
        {"{{ 2 if not c else (1 is not ", "nope(3)", ") }}", "2", "no test named 'nope'"},
        {"{% if c %}{{ 1|", "nope", " }}{% else %}2{% endif %}", "2", "no filter named 'nope'"},
        {"{% if c %}{% for i in [1] %}{{ i|", "nope", " }}{% endfor %}{% else %}2{% endif %}", "2", "no filter named"},
        {"{% if c %}{% filter ", "nope", " %}1{% endfilter %}{% else %}2{% endif %}", "2", "no filter named 'nope'"},
        {"{% if c %}{% set a | ", "nope", " %}1{% endset %}{% else %}2{% endif %}", "2", "no filter named 'nope'"},
        {"{% for i in [1] if c %}{{ i|", "nope", " }}{% else %}2{% endfor %}", "2", "no filter named 'nope'"},
        {"{{ (c and 1|", "nope", ") or 2 }}", "2", "no filter named 'nope'"},
        {"{{ 2 if not c or 1 is ", "nope", " else 3 }}", "2", "no test named 'nope'"},
        {"{% macro m(a=1|", "nope", ") %}{{ a }}{% endmacro %}{{ m() if c else m(2) }}", "2", "no filter named 'nope'"},
        {"{{ ", "nope(1)", " if c else 2 }}", "2", "'nope' is undefined"},
        {"{{ [2]|map('nope')|first if c else ", "2", " }}", "2", "no filter named 'nope'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char source[256];
        snprintf(source, sizeof source, "%s%s%s", rows[i].before, rows[i].name, rows[i].after);
        expect(source, "{\"c\": false}", rows[i].ok);
        expect_failure(source, "{\"c\": true}", rows[i].fails);
    }
}
END_TEST

/* From now on looking for a file, a process or the network ends the process by SIGSYS. */
static void forbid_files(void)
{
    static const uint32_t forbidden[] = {
#ifdef __NR_open /* those that newer machines left out */
        __NR_open,    __NR_creat,  __NR_stat,      __NR_lstat,      __NR_access,   __NR_readlink,
        __NR_unlink,  __NR_rename, __NR_mkdir,     __NR_fork,       __NR_vfork,
#endif
        __NR_openat,  __NR_statx,  __NR_faccessat, __NR_readlinkat, __NR_unlinkat, __NR_renameat2,
        __NR_mkdirat, __NR_execve, __NR_execveat,  __NR_socket,     __NR_connect,  __NR_chdir,
    };
    struct sock_filter filter[2 * ARRAY_LEN(forbidden) + 2];
    unsigned short n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < ARRAY_LEN(forbidden); i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        ck_abort_msg("no filter of system calls: %s", strerror(errno));
    }
}

/* The status of a process that may look for nothing and runs this. */
static int run_shut_in(void (*run)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        forbid_files();
        run();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

static void look_for_a_file(void) { _exit(access("/", F_OK) == 0); }

static void try_the_ways_out(void)
{
    static const struct {
        const char *source, *want;
    } rows[] = {
        {"{{ ''.__class__.__mro__ }}", "'str object' has no attribute '__class__'"},
        {"{{ ''['__class__'].x }}", "has no attribute '__class__'"},
        {"{{ d.__init__.__globals__ }}", "'dict object' has no attribute '__init__'"},
        {"{{ cycler.__init__.__globals__.os }}", "no attribute '__init__'"},
        {"{{ namespace.__class__() }}", "no attribute '__class__'"},
        {"{{ raise_exception.__globals__.x }}", "no attribute '__globals__'"},
        {"{{ range.__self__.x }}", "no attribute '__self__'"},
        {"{% macro m() %}{% endmacro %}{{ m.__code__.x }}", "no attribute '__code__'"},
        {"{% for i in [1] %}{{ loop.__class__.x }}{% endfor %}", "no attribute '__class__'"},
        {"{{ self.__init__ }}", "'self' is undefined"},
        {"{{ ''|attr('__class__') }}", "no filter named 'attr'"},
        {"{{ [d]|map(attribute='__class__.__mro__')|list }}", "__class__"},
        {"{{ '{0.__class__.__mro__}'.format('') }}", ""},
        {"{% import 'os' as os %}", "expected a known tag, found 'import'"},
        {"{% from 'os' import system %}", "expected a known tag, found 'from'"},
        {"{% include '/etc/passwd' %}", "expected a known tag, found 'include'"},
        {"{% extends '/etc/passwd' %}", "expected a known tag, found 'extends'"},
        {"{% block x %}{% endblock %}", "expected a known tag, found 'block'"},
        {"{{ open('/etc/passwd').read() }}", "'open' is undefined"},
        {"{{ lipsum() }}", "'lipsum' is undefined"},
        {"{{ url_for.x }}", "'url_for' is undefined"},
        {"{{ config.x }}", "'config' is undefined"},
        {"{{ __import__('os') }}", "'__import__' is undefined"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_failure(rows[i].source, "{\"d\": {}}", rows[i].want);
    }
    expect("{{ '{0[__class__]}{x.__class__}'.format(d, x='') }}{{ ''.__class__ }}", "{\"d\": {}}", ""); /* undefined */
}

/* Rows C06: there is nothing after a value but its methods, and no way to a file. */
START_TEST(no_way_out_of_the_template)
{
    int status = run_shut_in(look_for_a_file);
    try_the_ways_out(); /* glibc has then read what it wants to know of the machine's memory */
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    ck_assert_int_eq(run_shut_in(try_the_ways_out), 0);
}
END_TEST

/* Rows C07. */
START_TEST(values_that_cannot_be)
{
    static const struct {
        const char *source, *want;
    } rows[] = {
        {"{{ x.y.z }}", "'x' is undefined"},
        {"{{ 1 // 0 }}", "by zero"},
        {"{{ 1 % 0 }}", "by zero"},
        {"{{ 1.0 / 0 }}", "by zero"},
        {"{{ 0 ** -1 }}", "not a finite number"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ -9223372036854775807 - 2 }}", "64 bits"},
        {"{{ 9223372036854775807 * 2 }}", "64 bits"},
        {"{{ 2 ** 63 }}", "64 bits"},
        {"{{ -(-9223372036854775807 - 1) }}", "64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
        {"{{ (-9223372036854775807 - 1)|abs }}", "64 bits"},
        {"{{ [1][-9223372036854775807 - 1].x }}", ""},
        {"{{ 'abc'[-9223372036854775807 - 1].x }}", ""},
        {"{{ 'abc'[::0] }}", "slice step cannot be zero"},
        {"{{ [1][::0] }}", "slice step cannot be zero"},
        {"{{ range(1, 2, 0) }}", "must not be zero"},
        {"{{ strftime_now(7) }}", "strftime_now"},
        {"{{ '%d' % 'x' }}", "%d"},
        {"{{ '%s %s' % 'x' }}", "not enough arguments"},
        {"{{ '%q' % 1 }}", ""},
        {"{{ '{' .format(1) }}", ""},
        {"{{ '{5}'.format(1) }}", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_failure(rows[i].source, "{}", rows[i].want);
    }
    expect("{{ (-9223372036854775807 - 1) % -1 }}", "{}", "0");
    expect("{{ 'abc'[-9223372036854775807 - 1:9223372036854775807] }}", "{}", "abc");
    expect("{{ 'abc'[::-9223372036854775807 - 1] }}", "{}", "c");
}
END_TEST

/* Whole numbers where 64 bits end: what Python computes, or a refusal; under UBSan also that nothing wraps unseen. */
START_TEST(integers_at_the_edge)
{
#define LOW  "(-9223372036854775807 - 1)"
#define HIGH "9223372036854775807"
#define WIDE "range(" LOW ", " HIGH ", 2 ** 62)" /* four items; 3 * 2 ** 62 is no int64 */
    static const struct {
        const char *source, *want;
    } rows[] = {
        {"{{ " WIDE "|list }}", "[-9223372036854775808, -4611686018427387904, 0, 4611686018427387904]"},
        {"{{ " WIDE "[3] }} {{ " WIDE "[-1] }}", "4611686018427387904 4611686018427387904"},
        {"{% for i in " WIDE " %}{{ i }} {{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
         "-9223372036854775808 -4611686018427387904 -4611686018427387904 -92233720368547758080 "
         "0 -46116860184273879044611686018427387904 4611686018427387904 0 "},
        {"{{ range(" HIGH ", " LOW ", -(2 ** 62))|list|last }}", "-4611686018427387905"},
        {"{{ range(" LOW ", " HIGH ", " HIGH ")|list }}", "[-9223372036854775808, -1, 9223372036854775806]"},
        {"{{ range(" HIGH ", " LOW ", " LOW ")|list }}", "[9223372036854775807, -1]"},
        {"{{ range(" LOW ", " LOW ")|list }}{{ range(" HIGH ", " LOW ")|list }}", "[][]"},
        {"{{ range(" HIGH " - 2, " HIGH ")|list }}", "[9223372036854775805, 9223372036854775806]"},
        {"{{ " WIDE "[2:]|list }}", "!64 bits"}, /* it would end at 2 ** 63 */
        {"{{ " WIDE "[1:3] }}", "range(-4611686018427387904, 4611686018427387904, 4611686018427387904)"},
        {"{{ " WIDE "[::4] }}", "!64 bits"},
        {"{{ " WIDE "[::-1] }}", "!64 bits"},
        {"{{ range(5)[::2 ** 40] }} {{ range(5)[::-(2 ** 40)] }}",
         "range(0, 5, 1099511627776) range(4, -1, -1099511627776)"},
        {"{{ range(5)[" LOW ":" HIGH "] }}{{ range(5)[" HIGH ":" LOW ":" LOW "] }}",
         "range(0, 5)range(4, -1, -9223372036854775808)"},
        {"{{ [1, 2][" LOW ":" HIGH ":" HIGH "] }}{{ 'ab'[::" LOW "] }}", "[1]b"},
        {"{{ '-7'.zfill(" LOW ") }}{{ '7'.zfill(" LOW ") }}{{ '-7'.zfill(4) }}", "-77-007"},
        {"{{ 'a'.center(" LOW ") }}{{ 'a'|center(" LOW ") }}{{ 'a'|indent(" LOW ") }}{{ 'a'.ljust(" LOW ") }}", "aaaa"},
        {"{{ 'a'.center(" HIGH ") }}", "!longer than"},
        {"{{ 'a'|indent(" HIGH ") }}", "!longer than"},
        {"{{ 'a' * " HIGH " }}", "!longer than"},
        {"{{ [1] * " HIGH " }}", "!longer than"},
        {"{{ '' * " HIGH " }}{{ 'a' * " LOW " }}{{ [1] * " LOW " }}", "[]"},
        {"{{ [1, 2]|batch(" HIGH ")|list }}{{ [1, 2]|batch(" LOW ")|list }}", "[[1, 2]][[1, 2]]"},
        {"{{ [1]|batch(" HIGH ", 0)|list }}", "!needs more than"},
        {"{{ [1]|slice(" HIGH ")|list }}", "!steps"},
        {"{{ [1]|slice(" LOW ")|list }}", "!positive"},
        {"{{ 'aXbXc'.split('X', " LOW ") }}{{ 'aX'|replace('X', '', " LOW ") }}", "['a', 'b', 'c']a"},
        {"{{ 'abc'.find('c', " LOW ", " HIGH ") }}{{ 'abc'.find('', " HIGH ") }}{{ 'abc'.count('a', " LOW ") }}",
         "2-11"},
        {"{{ '%c' % " HIGH " }}", "!code point"},
        {"{{ '%d %x' % (" LOW ", " LOW ") }}", "-9223372036854775808 -8000000000000000"},
        {"{{ '%*d' % (" LOW ", 1) }}", "!width"},
        {"{{ 15|round(-1) }} {{ 25|round(-1) }} {{ -15|round(-1) }} {{ 5|round(2) }}", "20 20 -20 5"},
        {"{{ 123456789012345678|round(-3) }}", "123456789012346000"},
        {"{{ " HIGH "|round(-1) }}", "!64 bits"},
        {"{{ " LOW "|round(-1) }}", "!64 bits"},
        {"{{ " HIGH "|round(-19) }}", "!64 bits"},
        {"{{ (5 * 10 ** 18)|round(-19) }} {{ " HIGH "|round(-20) }} {{ " LOW "|round(" LOW ") }}", "0 0 0"},
        {"{{ [" HIGH ", 1]|sum }}", "!64 bits"},
        {"{{ '9223372036854775808'|int }}", "!64 bits"},
        {"{{ '-9223372036854775808'|int == " LOW " }}{{ 1e300|int }}", "!64 bits"},
    };
#undef LOW
#undef HIGH
#undef WIDE
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].want[0] == '!') {
            expect_failure(rows[i].source, "{}", rows[i].want + 1);
        } else {
            expect(rows[i].source, "{}", rows[i].want);
        }
    }
}
END_TEST

/* Rows C08: what a template raises is told, but not at any length, and on one line. */
START_TEST(raised_texts_are_cut_and_escaped)
{
    struct result r = render("{{ raise_exception('a\\n\\x1b[2J\\x9b' + 'x' * 1000) }}", "{}");
    ck_assert_int_eq(r.err, ERR_TEMPLATE);
    const char *text = strstr(r.info.text, "a??[2J\xC2\xBFxxx");
    ck_assert_msg(text != NULL, "%s", r.info.text);
    ck_assert_uint_eq(strlen(text), 256 + 3);
    ck_assert_str_eq(text + 256 - 1, "x...");
    r = render("{{ raise_exception('\xC3\xA9' * 1000) }}", "{}"); /* cut between characters */
    ck_assert_str_eq(r.info.text + strlen(r.info.text) - 5, "\xC3\xA9...");
    r = render("{{ raise_exception('x' + '\xC3\xA9' * 1000) }}", "{}");
    ck_assert_str_eq(r.info.text + strlen(r.info.text) - 5, "\xC3\xA9...");
    r = render("{{ raise_exception(7) }}", "{}");
    ck_assert_ptr_nonnull(strstr(r.info.text, "7"));
}
END_TEST

START_TEST(every_prefix_of_a_template_is_safe)
{
    static const char source[] = "{#- c -#}{%- macro m(a, b=[1, {'k': (2,)}]) -%}{% for x, (y, z) in a|items if x is "
                                 "not none and y[1:-1:2] == 'q' %}"
                                 "{{ loop.index ~ (x if y else z)|tojson(indent=2) }}{% break %}{% else %}{% set ns.v "
                                 "= -1 ** 2 %}{% endfor %}{% endmacro %}"
                                 "{% raw %}{{ }}{% endraw %}{% set q | upper %}\xC3\xA9{% endset %}{{ m({'a': "
                                 "'b\\u00e9\\n'}, b=not q.x is eq 5) }}";
    for (size_t n = 0; n < sizeof source; n++) {
        char *copy = mem_dup(source, n, MEM_GENERAL);
        ck_assert_ptr_nonnull(copy);
        struct result r = render_n(copy, n, "{}");
        if (r.err != ERR_OK && r.err != ERR_TEMPLATE) {
            ck_abort_msg("%zu bytes: %s", n, r.info.text);
        }
        chat_output_fini(&r.out);
        mem_free(copy);
    }
}
END_TEST

START_TEST(bytes_that_are_not_text)
{
    struct result r = render_n("a\xFF", 2, "{}");
    ck_assert_int_eq(r.err, ERR_TEMPLATE);
    ck_assert_ptr_nonnull(strstr(r.info.text, "not UTF-8 at byte 1"));
    r = render_n("a\0b{{ 'c\0d' }}", 14, "{}");
    ck_assert_int_eq(r.err, ERR_OK);
    ck_assert_uint_eq(r.out.len, 6);
    ck_assert_mem_eq(r.out.text, "a\0bc\0d", 7);
    chat_output_fini(&r.out);
    r = render_n("", 0, "{}");
    ck_assert_int_eq(r.err, ERR_OK);
    ck_assert_uint_eq(r.out.len, 0);
    ck_assert_str_eq(r.out.text, "");
    chat_output_fini(&r.out);
}
END_TEST

/* --- memory and threads
 * --------------------------------------------------------------------------------------------------- */

static const char busy[] = "{% macro m(x) %}{{ x|upper }}{% endmacro %}{% set ns = namespace(s='') %}{% for i in "
                           "messages %}{% set ns.s = ns.s + m(i.content) + "
                           "i|tojson(indent=1) %}{{ loop.index }}{{ i.content|replace('a', 'bb')|title }}{{ '%5s' % "
                           "i.content }}{% endfor %}{{ ns.s }}"
                           "{{ messages|map(attribute='content')|sort|join(',') }}{{ {'k': [1, 2.5]}|tojson }}";
static const char busy_context[] =
    "{\"messages\": [{\"content\": \"alpha\"}, {\"content\": \"beta \xC3\xA9\"}, {\"content\": \"gamma\"}]}";

START_TEST(memory_fails_anywhere)
{
    json_t *context = parse(busy_context); /* before memory fails: reading it is not the template's affair */
    struct result good = render_tree(busy, strlen(busy), context);
    ck_assert_int_eq(good.err, ERR_OK);
    size_t live = mem_live();
    long n = 0;
    for (;; n++) {
        mem_fail_at(n);
        struct result r = render_tree(busy, strlen(busy), context);
        bool fired = mem_fault_fired();
        mem_fail_at(-1);
        if (fired ? r.err != ERR_NOMEM : r.err != ERR_OK) {
            ck_abort_msg("allocation %ld fails: found %s, %s", n, err_code(r.err), r.info.text);
        }
        chat_output_fini(&r.out);
        if (mem_live() != live) {
            ck_abort_msg("allocation %ld fails: %zu bytes stay", n, mem_live() - live);
        }
        if (!fired) {
            break;
        }
    }
    ck_assert_int_ge(n, 10);
    chat_output_fini(&good.out);
    json_decref(context);
}
END_TEST

enum { N_THREADS = 4, N_RENDERS = 200 };

struct shared {
    const struct chat_template *t;
    const json_t *context;
    const struct chat_output *want;
    int n_wrong; /* of one thread */
};

static void *render_often(void *p)
{
    struct shared *s = p;
    for (int i = 0; i < N_RENDERS; i++) {
        struct chat_output out;
        struct err_info info = {0};
        enum err e = chat_template_render(s->t, s->context, 0, &out, &info);
        s->n_wrong += e != ERR_OK || out.len != s->want->len || memcmp(out.text, s->want->text, out.len) != 0 ||
                      out.n_user != s->want->n_user;
        chat_output_fini(&out);
    }
    return NULL;
}

START_TEST(threads_share_a_template)
{
    struct chat_template *t;
    struct err_info info = {0};
    struct chat_output want;
    json_t *context = json_loads(busy_context, 0, NULL);
    ck_assert_int_eq(chat_template_new(busy, strlen(busy), &t, &info), ERR_OK);
    ck_assert_int_eq(chat_template_render(t, context, 0, &want, &info), ERR_OK);
    ck_assert_uint_gt(want.n_user, 0);
    pthread_t threads[N_THREADS];
    struct shared shared[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        shared[i] = (struct shared){t, context, &want, 0};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, render_often, &shared[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(shared[i].n_wrong, 0);
    }
    chat_output_fini(&want);
    chat_template_free(&t);
    json_decref(context);
}
END_TEST

/* --- the clock
 * ------------------------------------------------------------------------------------------------------------- */

START_TEST(the_time_is_the_callers)
{
    expect("{{ strftime_now('%Y-%m-%d %H:%M') }}", "{}", "1970-01-01 00:00");
    expect_failure("{% set ns = namespace(f='%c') %}{% for i in range(9) %}{% set ns.f = ns.f + ns.f %}{% endfor %}{{ "
                   "strftime_now(ns.f) }}",
                   "{}", "strftime_now");
}
END_TEST

Suite *chat_template_suite(void)
{
    Suite *s = suite_create("chat_template");
    TCase *t = tcase_create("chat_template");
    tcase_add_test(t, source_bytes);
    tcase_add_test(t, depth_of_blocks_and_expressions);
    tcase_add_test(t, depth_of_macro_calls);
    tcase_add_test(t, deep_nesting_uses_no_stack);
    tcase_add_test(t, long_chains_are_no_nesting);
    tcase_add_test(t, steps);
    tcase_add_test(t, a_budget_is_soon_spent);
    tcase_add_test(t, a_client_that_leaves_ends_it);
    tcase_add_test(t, bytes_of_output);
    tcase_add_test(t, bytes_of_memory);
    tcase_add_test(t, nesting_of_data);
    tcase_add_test(t, user_marks);
    tcase_add_test(t, roles_are_not_user_text);
    tcase_add_test(t, marks_of_alternating_text_are_limited);
    tcase_add_test(t, messages_name_the_place);
    tcase_add_test(t, unknown_names_fail_when_they_are_reached);
    tcase_add_test(t, no_way_out_of_the_template);
    tcase_add_test(t, values_that_cannot_be);
    tcase_add_test(t, integers_at_the_edge);
    tcase_add_test(t, raised_texts_are_cut_and_escaped);
    tcase_add_test(t, every_prefix_of_a_template_is_safe);
    tcase_add_test(t, bytes_that_are_not_text);
    tcase_add_test(t, memory_fails_anywhere);
    tcase_add_test(t, threads_share_a_template);
    tcase_add_test(t, the_time_is_the_callers);
    suite_add_tcase(s, t);
    return s;
}
