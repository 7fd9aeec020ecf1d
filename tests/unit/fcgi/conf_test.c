/* Options from the command line, the environment and a file: every row of the table at its bounds and beyond. */
#include "fcgi/conf.h"

#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *conf_suite(void);

static struct conf c;
static struct err_info info;

static void teardown(void) { folder_remove(); }

/* The command that takes the option a: generate for the few that are its alone. */
static enum conf_command command_of(const char *a)
{
    static const char *const of_generate[] = {"--prompt", "--n-predict", "--seed", "--chat"};
    for (size_t i = 0; a != NULL && i < ARRAY_LEN(of_generate); i++) {
        size_t n = strlen(of_generate[i]);
        if (strncmp(a, of_generate[i], n) == 0 && (a[n] == '\0' || a[n] == '=')) {
            return CONF_GENERATE;
        }
    }
    return CONF_SERVE;
}

/* Loads up to three arguments; the strings of c point into them. */
static enum err load(const char *a, const char *b, const char *d)
{
    static char copies[3][256];
    const char *given[3] = {a, b, d};
    char name[] = "infcgi", *argv[5] = {name};
    int argc = 1;
    for (int i = 0; i < 3 && given[i] != NULL; i++) {
        snprintf(copies[i], sizeof copies[i], "%s", given[i]);
        argv[argc++] = copies[i];
    }
    conf_fini(&c);
    info = (struct err_info){0};
    return conf_load(&c, command_of(a), argc, argv, &info);
}

static void accept(const char *a, const char *b)
{
    enum err err = load(a, b, NULL);
    ck_assert_msg(err == ERR_OK, "%s %s: %s", a, b != NULL ? b : "", info.text);
}

static void refuse(const char *a, const char *b, const char *says)
{
    enum err err = load(a, b, NULL);
    ck_assert_msg(err == ERR_CONFIG, "%s %s: expected bad_config, found %s", a, b != NULL ? b : "", err_code(err));
    ck_assert_msg(strstr(info.text, says) != NULL, "%s %s: '%s' lacks '%s'", a, b != NULL ? b : "", info.text, says);
}

/* The numbers, spelt here a second time, so that a bound changed by accident shows. */
static const struct {
    const char *name;
    size_t offset;
    int64_t min, max, fallback;
} integers[] = {
    {"threads", offsetof(struct conf, threads), 0, 256, 0},
    {"ctx-size", offsetof(struct conf, ctx_size), 0, 1 << 30, 0},
    {"kv-tokens", offsetof(struct conf, kv_tokens), 0, 1 << 30, 0},
    {"parallel", offsetof(struct conf, parallel), 0, 1024, 0},
    {"batch-size", offsetof(struct conf, batch_size), 0, 8192, 0},
    {"queue-max", offsetof(struct conf, queue_max), 0, 100000, 0},
    {"memory-limit", offsetof(struct conf, memory_limit_mib), 0, 1 << 30, 0},
    {"draft-max", offsetof(struct conf, draft_max), 0, 31, 0},
    {"max-connections", offsetof(struct conf, max_connections), 2, 65536, 1024},
    {"request-memory", offsetof(struct conf, request_memory_mib), 0, 1 << 20, 0},
    {"body-limit", offsetof(struct conf, body_limit_kib), 1, 1 << 20, 4096},
    {"drain-timeout", offsetof(struct conf, drain_s), 0, 86400, 30},
    {"sse-ping-interval", offsetof(struct conf, ping_s), 1, 3600, 10},
    {"timeout", offsetof(struct conf, timeout_s), 0, 86400, 0},
    {"top-k", offsetof(struct conf, top_k), -1, INT32_MAX, -1},
    {"n-predict", offsetof(struct conf, n_predict), -1, 1 << 30, 128},
    {"seed", offsetof(struct conf, seed), 0, 9000000000000000, 0},
};

static int64_t integer(size_t i) { return *(const int64_t *)(const void *)((const char *)&c + integers[i].offset); }

START_TEST(integers_keep_their_bounds)
{
    static const char *const no_integers[] = {"",
                                              " ",
                                              "x",
                                              "1x",
                                              "1.0",
                                              "1e3",
                                              "0x10",
                                              "+1",
                                              " 1",
                                              "1 ",
                                              "--1",
                                              "-",
                                              "1,000",
                                              "nan",
                                              "99999999999999999999",
                                              "-99999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(integers); i++) {
        char option[64], value[64];
        snprintf(option, sizeof option, "--%s", integers[i].name);
        ck_assert_int_eq(load(NULL, NULL, NULL), ERR_OK);
        ck_assert_msg(integer(i) == integers[i].fallback, "%s: default %lld", option, (long long)integer(i));
        const int64_t good[] = {integers[i].min, integers[i].min + 1, integers[i].max};
        for (size_t k = 0; k < ARRAY_LEN(good); k++) {
            snprintf(value, sizeof value, "%lld", (long long)good[k]);
            accept(option, value);
            ck_assert_msg(integer(i) == good[k], "%s %s gave %lld", option, value, (long long)integer(i));
        }
        const int64_t bad[] = {integers[i].min - 1, integers[i].max + 1, INT64_MAX, -INT64_MAX};
        for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
            snprintf(value, sizeof value, "%lld", (long long)bad[k]);
            refuse(option, value, integers[i].name);
        }
        for (size_t k = 0; k < ARRAY_LEN(no_integers); k++) {
            refuse(option, no_integers[k], "expected an integer");
        }
    }
}
END_TEST

START_TEST(real_numbers_keep_their_bounds)
{
    static const struct {
        const char *name;
        size_t offset;
        double max;
    } reals[] = {{"temp", offsetof(struct conf, temperature), 2},
                 {"top-p", offsetof(struct conf, top_p), 1},
                 {"min-p", offsetof(struct conf, min_p), 1}};
    static const char *const good[] = {"0.75", "0", "-1", "1", "1e-3", "+.5", "5E-1"};
    static const char *const bad[] = {"-1.1", "2.01", "nan", "inf", "-inf", "1e400", "warm",
                                      "1 ",   " 1",   "",    "1,5", "0x1",  "1e",    "."};
    for (size_t i = 0; i < ARRAY_LEN(reals); i++) {
        const double *v = (const double *)(const void *)((const char *)&c + reals[i].offset);
        char option[32];
        ck_assert_int_eq(load(NULL, NULL, NULL), ERR_OK);
        ck_assert_double_eq(*v, -1); /* not set */
        snprintf(option, sizeof option, "--%s", reals[i].name);
        for (size_t k = 0; k < ARRAY_LEN(good); k++) {
            accept(option, good[k]);
            ck_assert_double_eq(*v, strtod(good[k], NULL));
        }
        for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
            refuse(option, bad[k], "expected a number of -1 to ");
        }
        char text[32];
        snprintf(text, sizeof text, "%.3f", reals[i].max + 0.001);
        refuse(option, text, "expected a number");
    }
}
END_TEST

START_TEST(flags_are_on_or_off)
{
    static const struct {
        const char *name;
        size_t offset;
    } flags[] = {{"strict-api", offsetof(struct conf, strict_api)},
                 {"chat", offsetof(struct conf, chat)},
                 {"check-config", offsetof(struct conf, check_config)},
                 {"help", offsetof(struct conf, help)},
                 {"version", offsetof(struct conf, version)}};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const bool *is_on = (const bool *)(const void *)((const char *)&c + flags[i].offset);
        char arg[64];
        ck_assert_int_eq(load(NULL, NULL, NULL), ERR_OK);
        ck_assert(!*is_on);
        snprintf(arg, sizeof arg, "--%s", flags[i].name);
        accept(arg, NULL);
        ck_assert(*is_on);
        snprintf(arg, sizeof arg, "--%s=on", flags[i].name);
        accept(arg, NULL);
        ck_assert(*is_on);
        snprintf(arg, sizeof arg, "--%s=off", flags[i].name);
        accept(arg, NULL);
        ck_assert(!*is_on);
        snprintf(arg, sizeof arg, "--%s=yes", flags[i].name);
        refuse(arg, NULL, "expected on or off, found 'yes'");
    }
}
END_TEST

START_TEST(texts_are_taken_as_they_are)
{
    static const struct {
        const char *name;
        size_t offset;
    } texts[] = {{"model", offsetof(struct conf, model)},
                 {"alias", offsetof(struct conf, alias)},
                 {"socket", offsetof(struct conf, socket)},
                 {"api-key-file", offsetof(struct conf, api_key_file)},
                 {"chat-template", offsetof(struct conf, chat_template)},
                 {"cpu", offsetof(struct conf, cpu)},
                 {"backend", offsetof(struct conf, backend)},
                 {"pack-cache", offsetof(struct conf, pack_cache)},
                 {"pooling", offsetof(struct conf, pooling)},
                 {"quantize", offsetof(struct conf, quantize)},
                 {"speculate", offsetof(struct conf, speculate)},
                 {"prompt", offsetof(struct conf, prompt)}};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *const *text = (const char *const *)(const void *)((const char *)&c + texts[i].offset);
        char arg[64];
        ck_assert_int_eq(load(NULL, NULL, NULL), ERR_OK);
        ck_assert_ptr_null(*text);
        snprintf(arg, sizeof arg, "--%s", texts[i].name);
        accept(arg, "a b=c --d");
        ck_assert_str_eq(*text, "a b=c --d");
        refuse(arg, NULL, "expected a value, found none");
        snprintf(arg, sizeof arg, "--%s=x=y", texts[i].name);
        accept(arg, NULL);
        ck_assert_str_eq(*text, "x=y");
        snprintf(arg, sizeof arg, "--%s=", texts[i].name);
        if (strcmp(texts[i].name, "prompt") == 0) {
            accept(arg, NULL);
        } else {
            refuse(arg, NULL, "expected a text");
        }
    }
}
END_TEST

START_TEST(short_names_are_the_long_ones)
{
    accept("-m", "x.gguf");
    ck_assert_str_eq(c.model, "x.gguf");
    accept("-np", "7");
    ck_assert_int_eq(c.parallel, 7);
    accept("-t", "3");
    ck_assert_int_eq(c.threads, 3);
    accept("-V", NULL);
    ck_assert(c.version);
    refuse("-m=x", NULL, "unknown option '-m=x'");
    refuse("-x", NULL, "unknown option");
    refuse("x.gguf", NULL, "unknown option");
    refuse("--mode", "x", "unknown option");
    refuse("--modell", "x", "unknown option");
    refuse("--", NULL, "unknown option");
    refuse("-", NULL, "unknown option");
    refuse("", NULL, "unknown option");
    refuse("--=x", NULL, "unknown option");
    refuse("--MODEL", "x", "unknown option");
}
END_TEST

START_TEST(every_option_is_in_help_and_in_the_environment)
{
    struct buf help;
    buf_init(&help, 0, MEM_GENERAL);
    conf_help(CONF_SERVE, &help);
    conf_help(CONF_GENERATE, &help);
    int n = 0;
    for (const char *name; (name = conf_option_name(n)) != NULL; n++) {
        char text[96];
        snprintf(text, sizeof text, "--%s ", name);
        ck_assert_msg(strstr(help.data, text) != NULL, "%s is not in --help", name);
        snprintf(text, sizeof text, "INFCGI_%s", name);
        for (char *p = text; *p != '\0'; p++) {
            *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        }
        setenv(text, "\x01", 1); /* no number, no flag, no file */
        enum err err = load(NULL, NULL, NULL);
        char padded[64];
        snprintf(padded, sizeof padded, " %s ", name);
        bool is_text =
            strstr(" model alias socket api-key-file chat-template cpu backend cache-type-k cache-type-v pack-cache "
                   "pooling quantize speculate prompt ",
                   padded) != NULL;
        ck_assert_msg(is_text ? err == ERR_OK : err != ERR_OK, "%s: %s", text, err_code(err));
        unsetenv(text);
    }
    ck_assert_int_eq(n, 44);
    ck_assert_ptr_null(conf_option_name(-1));
    ck_assert_ptr_null(conf_option_name(n));
    buf_fini(&help);
}
END_TEST

/* Does the command's --help list the option, and its command line take it? */
static bool is_listed(enum conf_command command, const char *name)
{
    struct buf help;
    char text[96];
    buf_init(&help, 0, MEM_GENERAL);
    conf_help(command, &help);
    snprintf(text, sizeof text, "--%s ", name);
    bool is_there = strstr(help.data, text) != NULL;
    buf_fini(&help);
    return is_there;
}

static bool is_taken(enum conf_command command, const char *name)
{
    char program[] = "infcgi", option[64], value[] = "on", *argv[] = {program, option, value};
    static const char flags[] =
        " drain-close share-cache high-precision pin strict-api chat check-config help version ";
    bool is_flag = strstr(flags, name) != NULL;
    snprintf(option, sizeof option, "--%s", name);
    conf_fini(&c);
    info = (struct err_info){0};
    enum err err = conf_load(&c, command, is_flag ? 2 : 3, argv, &info);
    bool is_refused = strstr(info.text, "expected an option of ") != NULL;
    ck_assert_msg(!is_refused || err == ERR_CONFIG, "%s: %s", option, info.text);
    return !is_refused;
}

START_TEST(a_command_lists_and_takes_its_own_options)
{
    static const char serves[] = " alias socket api-key-file share-cache parallel queue-max pooling max-connections "
                                 "body-limit request-memory drain-timeout drain-close sse-ping-interval timeout "
                                 "strict-api check-config ",
                      generates[] = " prompt n-predict seed chat ";
    const char *name;
    for (int i = 0; (name = conf_option_name(i)) != NULL; i++) {
        char padded[64];
        snprintf(padded, sizeof padded, " %s ", name);
        bool by_serve = strstr(generates, padded) == NULL, by_generate = strstr(serves, padded) == NULL;
        ck_assert_msg(is_listed(CONF_SERVE, name) == by_serve, "serve --help and %s", name);
        ck_assert_msg(is_listed(CONF_GENERATE, name) == by_generate, "generate --help and %s", name);
        ck_assert_msg(is_taken(CONF_SERVE, name) == by_serve, "serve --%s", name);
        ck_assert_msg(is_taken(CONF_GENERATE, name) == by_generate, "generate --%s", name);
    }
    refuse("-p", "a text", "--prompt: expected an option of serve, found one of generate");
    setenv("INFCGI_SEED", "7", 1);
    accept("--config", folder_write("both.conf", "n-predict = 5\nthreads = 2\n", 26)); /* one file for all */
    ck_assert_int_eq(c.n_predict, 5);
    ck_assert_int_eq(c.seed, 7);
}
END_TEST

static const char *config(const char *text) { return folder_write("infcgi.conf", text, strlen(text)); }

START_TEST(a_file_holds_names_and_values)
{
    accept("--config", config("# comment\n; comment\r\n\r\n  model =  /x/a b.gguf \r\n\talias=q=r\nthreads = 5\n"
                              "strict-api = on\ntemp=0.5\nthreads = 6"));
    ck_assert_str_eq(c.model, "/x/a b.gguf");
    ck_assert_str_eq(c.alias, "q=r");
    ck_assert_int_eq(c.threads, 6); /* the last one counts */
    ck_assert(c.strict_api);
    ck_assert_double_eq(c.temperature, 0.5);
    accept("--config", config(""));
    accept("--config", config("\n\n"));
}
END_TEST

START_TEST(a_bad_file_is_refused_with_its_line)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"threads = 5\nno equals sign\n", "line 2"},     {"\n\nthreads = many\n", "line 3"},
        {"thread = 5", "unknown option 'thread'"},       {"config = other.conf", "unknown option 'config'"},
        {"--threads = 5", "unknown option '--threads'"}, {"= 5", "unknown option ''"},
        {"strict-api = yes", "expected on or off"},      {"strict-api", "expected `name = value`"},
        {"threads = 5 # five", "expected an integer"},   {"alias =", "expected a text"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        refuse("--config", config(bad[i].text), bad[i].says);
    }
    refuse("--config", folder_write("nul.conf", "threads = 5\n\0parallel = 0\n", 26), "NUL");
    ck_assert_int_ne(load("--config", folder_file("absent.conf"), NULL), ERR_OK);
    ck_assert_int_ne(load("--config", folder_path(), NULL), ERR_OK);
    static char big[70000];
    memset(big, '#', sizeof big);
    ck_assert_int_ne(load("--config", folder_write("big.conf", big, sizeof big), NULL), ERR_OK);
}
END_TEST

START_TEST(the_command_line_wins_over_the_environment_and_that_over_the_file)
{
    const char *path = config("threads = 2\nparallel = 2\nbatch-size = 2\n");
    setenv("INFCGI_THREADS", "3", 1);
    setenv("INFCGI_PARALLEL", "3", 1);
    setenv("INFCGI_CONFIG", path, 1);
    accept("--threads", "4");
    ck_assert_int_eq(c.threads, 4);
    ck_assert_int_eq(c.parallel, 3);
    ck_assert_int_eq(c.batch_size, 2);
    setenv("INFCGI_PARALLEL", "-3", 1);
    refuse("--threads", "4", "INFCGI_PARALLEL");
    unsetenv("INFCGI_PARALLEL");
    setenv("INFCGI_CONFIG", "/nonexistent", 1);
    accept("--config", path); /* the environment's file is not even looked at */
}
END_TEST

START_TEST(a_long_value_is_cut_in_the_message)
{
    char value[200];
    memset(value, 'z', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    refuse("--threads", value, "found 'zzz");
    ck_assert(strlen(info.text) < 200);
    refuse("--threads", "\x1b[2J\n", "expected an integer");
    ck_assert_msg(strpbrk(info.text, "\x1b\n") == NULL, "a control character is passed on");
}
END_TEST

START_TEST(integers_of_64_bits)
{
    int64_t v = 5;
    ck_assert(conf_parse_integer("9223372036854775807", &v) && v == INT64_MAX);
    ck_assert(conf_parse_integer("-9223372036854775807", &v) && v == -INT64_MAX);
    ck_assert(conf_parse_integer("-0", &v) && v == 0);
    ck_assert(conf_parse_integer("007", &v) && v == 7);
    v = 5;
    ck_assert(!conf_parse_integer("9223372036854775808", &v) && v == 5);
    ck_assert(!conf_parse_integer("", &v) && v == 5);
    ck_assert(!conf_parse_integer("-", &v) && v == 5);
}
END_TEST

Suite *conf_suite(void)
{
    Suite *s = suite_create("conf");
    TCase *t = tcase_create("conf");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, integers_keep_their_bounds);
    tcase_add_test(t, real_numbers_keep_their_bounds);
    tcase_add_test(t, flags_are_on_or_off);
    tcase_add_test(t, texts_are_taken_as_they_are);
    tcase_add_test(t, short_names_are_the_long_ones);
    tcase_add_test(t, every_option_is_in_help_and_in_the_environment);
    tcase_add_test(t, a_command_lists_and_takes_its_own_options);
    tcase_add_test(t, a_file_holds_names_and_values);
    tcase_add_test(t, a_bad_file_is_refused_with_its_line);
    tcase_add_test(t, the_command_line_wins_over_the_environment_and_that_over_the_file);
    tcase_add_test(t, a_long_value_is_cut_in_the_message);
    tcase_add_test(t, integers_of_64_bits);
    suite_add_tcase(s, t);
    return s;
}
