/* What the tables of commands and options say in each form. */
#include "fcgi/cmd/manual.h"
#include "fcgi/tables.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *manual_suite(void);

static struct buf text;

static void setup(void) { buf_init(&text, 0, MEM_GENERAL); }

static void teardown(void)
{
    buf_fini(&text);
    folder_remove();
}

static void print(const char *format)
{
    buf_reset(&text);
    const struct program program = tables_all();
    manual_print(&program, format, &text);
    ck_assert_int_eq(buf_ok(&text), ERR_OK);
}

static void expect(const char *part)
{
    ck_assert_msg(strstr(text.data, part) != NULL, "no '%s' in %s", part, text.data);
}

START_TEST(help_is_wrapped_and_shows_operands_names_and_defaults)
{
    const struct program program = tables_all();
    manual_of(&program, cmd_find(&program, CONF_CONVERT), &text);
    expect("usage: infcgi convert SOURCE TARGET [OPTIONS]\n");
    expect("type of weights; copy: unchanged (copy, f32, ");
    expect("  -t, --threads N                worker threads; 0: as many as CPUs [0]\n");
    buf_reset(&text);
    manual_of(&program, cmd_find(&program, CONF_TOKENIZE), &text);
    expect("usage: infcgi tokenize MODEL [TEXT] [OPTIONS]\n");
    buf_reset(&text);
    manual_of(&program, cmd_find(&program, CONF_SERVE), &text);
    for (const char *line = text.data; *line != '\0'; line += strcspn(line, "\n") + 1) {
        ck_assert_msg(strcspn(line, "\n") <= 101, "%.*s", (int)strcspn(line, "\n"), line);
    }
}
END_TEST

START_TEST(routes_and_fields_are_lines)
{
    print("api");
    expect("path\tGET\t/v1/models/\tprefix\tkey\tmodels\n");
    expect("path\tGET\t/health\twhole\topen\thealth\n");
    expect("field\tchat\ttemperature\tnumber\t0\t2\n");
    expect("field\tchat\tmax_tokens\tinteger\t-1\t2147483647\n");
    expect("field\tresponses\tprompt\trefused\t0\t0\n");
    for (int i = 0; i < field_tables_n; i++) {
        const struct field_table *t = field_tables[i];
        char line[128];
        ck_assert_uint_gt(t->n, 0);
        snprintf(line, sizeof line, "field\t%s\t%s\t", t->name, t->rows[t->n - 1].name);
        expect(line);
        for (int k = 0; k < i; k++) {
            ck_assert_str_ne(field_tables[k]->name, t->name);
        }
    }
}
END_TEST

START_TEST(every_command_and_option_is_in_every_form)
{
    const struct option *o;
    for (int f = 1; manual_format_name(f) != NULL; f++) {
        if (strcmp(manual_format_name(f), "api") == 0) {
            continue; /* it tells of requests */
        }
        print(manual_format_name(f));
        bool is_man = strcmp(manual_format_name(f), "man") == 0;
        for (int i = 0; (o = option_at(&options_table, i)) != NULL; i++) {
            char name[96], *to = name;
            for (const char *p = o->name; *p != '\0'; p++) { /* man(7) escapes it */
                to += sprintf(to, is_man && *p == '-' ? "\\-" : "%c", *p);
            }
            expect(name);
        }
        for (const struct cmd *c = commands_table; c < commands_table + commands_n; c++) {
            expect(c->name);
        }
    }
    print("text");
    for (const struct cmd *c = commands_table; c < commands_table + commands_n; c++) {
        expect(c->summary);
        char name[16];
        ck_assert_str_eq(commands_names(c->bit, name, sizeof name), c->name);
    }
    print("md");
    expect("| `--threads` | `-t` | bench | integers, 0 to 256 | 0 | worker threads; 0: as many as CPUs |\n");
}
END_TEST

/* What bash offers for the last of these words. */
static void complete(const char *words, const char *expected)
{
    char command[512], found[512] = "";
    snprintf(command, sizeof command,
             "cd %s && bash -c '. ./c.bash; COMP_WORDS=(infcgi %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
             "_infcgi; echo \"${COMPREPLY[*]}\"'",
             folder_path(), words);
    FILE *p = popen(command, "r");
    ck_assert_ptr_nonnull(p);
    ck_assert_ptr_nonnull(fgets(found, sizeof found, p));
    pclose(p);
    found[strcspn(found, "\n")] = '\0';
    ck_assert_msg(strcmp(found, expected) == 0, "%s: expected '%s', found '%s'", words, expected, found);
}

START_TEST(bash_completes_commands_options_names_and_files)
{
    print("bash");
    folder_write("c.bash", text.data, text.len);
    complete("i", "inspect");
    complete("serve --dra", "--draft-model --draft-p-min --draft-max --drain-timeout --drain-close");
    complete("serve --backend \"\"", "cpu ref opencl");
    complete("bench -ctk q", "q8_0 q4_0");
    complete("bench -o = js", "json"); /* as bash splits --output=js */
    complete("convert --type q5_k", "q5_k_m q5_k");
    complete("serve -m c.b", "c.bash");
    complete("inspect c.b", "c.bash");
    complete("serve c.b", ""); /* takes no argument without a name */
    complete("serve --threads c.b", "");
    complete("tokenize --id", "--ids");
}
END_TEST

Suite *manual_suite(void)
{
    Suite *s = suite_create("manual");
    TCase *t = tcase_create("manual");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, help_is_wrapped_and_shows_operands_names_and_defaults);
    tcase_add_test(t, routes_and_fields_are_lines);
    tcase_add_test(t, every_command_and_option_is_in_every_form);
    tcase_add_test(t, bash_completes_commands_options_names_and_files);
    suite_add_tcase(s, t);
    return s;
}
