/* Options from the command line, the environment and a file: every row of the table at its bounds and beyond. */
#include "engine/backend/backend.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/manual.h"
#include "fcgi/conf/conf.h"
#include "fcgi/ground/number.h"
#include "fcgi/ground/words.h"
#include "fcgi/tables.h"
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

static enum conf_command command = CONF_SERVE; /* whose options load reads */

/* Loads the options of serve. */
static enum err load_serve(struct conf *to, int argc, char **argv)
{
    return conf_load(to, &(struct conf_given){&options_table, CONF_SERVE, argc, argv}, &info);
}

static const char *command_name(void)
{
    static char name[16];
    return commands_names(command, name, sizeof name);
}

/* Reads from now on as the first command that takes the option. */
static void be_who_takes(const char *name)
{
    unsigned bits = option_find(&options_table, name, strlen(name), CONF_SERVE)->commands;
    command = (enum conf_command)(bits & -bits);
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
    return conf_load(&c, &(struct conf_given){&options_table, command, argc, argv}, &info);
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
    {"response-memory", offsetof(struct conf, response_memory_mib), 0, 1 << 20, 64},
    {"drain-timeout", offsetof(struct conf, drain_s), 0, 86400, 30},
    {"sse-ping-interval", offsetof(struct conf, ping_s), 1, 3600, 10},
    {"timeout", offsetof(struct conf, timeout_s), 0, 86400, 0},
    {"top-k", offsetof(struct conf, sampling.top_k), -1, INT32_MAX, -1},
    {"n-predict", offsetof(struct conf, limit_predict), -1, 1 << 30, -1},
    {"seed", offsetof(struct conf, sampling.seed), 0, 9000000000000000, 0},
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
        be_who_takes(integers[i].name);
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
    } reals[] = {{"temp", offsetof(struct conf, sampling.temperature), 2},
                 {"top-p", offsetof(struct conf, sampling.top_p), 1},
                 {"min-p", offsetof(struct conf, sampling.min_p), 1}};
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
                 {"any-model", offsetof(struct conf, any_model)},
                 {"chat", offsetof(struct conf, chat)},
                 {"check-config", offsetof(struct conf, check_config)},
                 {"help", offsetof(struct conf, help)},
                 {"version", offsetof(struct conf, version)}};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const bool *is_on = (const bool *)(const void *)((const char *)&c + flags[i].offset);
        char arg[64];
        be_who_takes(flags[i].name);
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
                 {"pack-cache", offsetof(struct conf, pack_cache)},
                 {"imatrix", offsetof(struct conf, imatrix)},
                 {"text", offsetof(struct conf, text)},
                 {"prompt", offsetof(struct conf, prompt)}};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *const *text = (const char *const *)(const void *)((const char *)&c + texts[i].offset);
        char arg[64];
        be_who_takes(texts[i].name);
        ck_assert_int_eq(load(NULL, NULL, NULL), ERR_OK);
        const char *fallback = option_find(&options_table, texts[i].name, strlen(texts[i].name), command)->fallback;
        ck_assert(fallback == NULL ? *text == NULL : strcmp(*text, fallback) == 0);
        snprintf(arg, sizeof arg, "--%s", texts[i].name);
        accept(arg, "a b=c --d");
        ck_assert_str_eq(*text, "a b=c --d");
        refuse(arg, NULL, "expected a value, found none");
        snprintf(arg, sizeof arg, "--%s=x=y", texts[i].name);
        accept(arg, NULL);
        ck_assert_str_eq(*text, "x=y");
        snprintf(arg, sizeof arg, "--%s=", texts[i].name);
        if (strcmp(texts[i].name, "prompt") == 0 || strcmp(texts[i].name, "text") == 0) {
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

/* What llama-server calls otherwise, what has no effect with or without a value, and what is refused with a hint. */
START_TEST(names_of_llama_server)
{
    accept("--predict", "7");
    ck_assert_int_eq(c.limit_predict, 7);
    accept("--chat-template-file=chatml", NULL);
    ck_assert_str_eq(c.chat_template, "chatml");
    static const char *const nothing[][2] = {
        {"-fa", "on"},        {"-fa", NULL}, {"--jinja", NULL}, {"-ub", "64"}, {"--ubatch-size=32", NULL},
        {"--no-webui", "-cb"}};
    for (size_t i = 0; i < ARRAY_LEN(nothing); i++) {
        accept(nothing[i][0], nothing[i][1]);
        ck_assert(load(nothing[i][0], nothing[i][1] != NULL ? nothing[i][1] : "-m",
                       nothing[i][1] != NULL ? "--jinja" : "a") == ERR_OK);
    }
    refuse("--port", "1", "nginx");
    refuse("--host=::1", NULL, "nginx");
    refuse("-hf", "a/b", "--model");
    refuse("--api-key", "a", "--api-key-file");
    refuse("--predict", NULL, "expected a value");
    accept("--typical", "0.25");
    ck_assert_double_eq(c.sampling.typical_p, 0.25);
    accept("--presence-penalty", "-1.5");
    ck_assert(c.sampling.presence_penalty == -1.5 && c.sampling.repeat_penalty == -1 && c.sampling.repeat_last_n == -2);
    refuse("--frequency-penalty", "2.1", "a number of -2 to 2");
    refuse("--repeat-penalty", "10.5", "a number of -1 to 10");
    accept("-rea", "off");
    ck_assert_str_eq(c.reasoning, "off");
    ck_assert_str_eq(c.reasoning_format, "auto");
    accept("--chat-template-kwargs", "{\"a\": 1, \"b\": false}");
    accept("--chat-template-kwargs", "{\"a\": [1], \"b\": {\"c\": null}}");
    refuse("--chat-template-kwargs", "{'a': 1}", "expected an object in JSON");
    refuse("--chat-template-kwargs", "[1]", "expected an object in JSON");
    refuse("--predict", "x", "an integer");
    command = CONF_GENERATE;
    refuse("--jinja", NULL, "unknown option");
    command = CONF_SERVE;
}
END_TEST

/* None hides an option of our own, nor another of these. */
START_TEST(each_name_of_llama_server_is_known_once)
{
    for (const struct option_other *other = options_llama; other->names != NULL; other++) {
        ck_assert(other->same_as == NULL ||
                  option_find(&options_table, other->same_as, strlen(other->same_as), CONF_SERVE) != NULL);
        for (const char *at = other->names; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
            ck_assert_ptr_eq(option_other_find(&options_table, name), other);
            ck_assert_msg(!words_have(at + strcspn(at, " "), ' ', name, strlen(name)), "%s", name);
            if (other->hint != NULL) {
                refuse(name, NULL, other->hint);
                ck_assert_msg(strncmp(info.text, name, strlen(name)) == 0, "%s", info.text);
            } else if (other->same_as == NULL) {
                accept(name, other->takes == OPTION_OTHER_VALUE    ? "x"
                             : other->takes == OPTION_OTHER_SWITCH ? "off"
                                                                   : NULL);
            }
            const struct option *own = option_find(&options_table, name + 2, strlen(name + 2), CONF_SERVE);
            ck_assert_msg(own == NULL || (own->commands & CONF_SERVE) == 0, "%s", name);
        }
    }
}
END_TEST

START_TEST(names_are_those_of_their_tables)
{
    const struct option *o;
    int n = 0;
    for (int i = 0; (o = option_at(&options_table, i)) != NULL; i++) {
        if (o->words == NULL || o->kind == OPTION_FILE) {
            continue;
        }
        char arg[64];
        be_who_takes(o->name);
        snprintf(arg, sizeof arg, "--%s", o->name);
        for (int k = 0; o->words(k) != NULL; k++) {
            accept(arg, o->words(k));
            refuse(arg, "no-such-name", o->words(k));
        }
        ck_assert_msg(o->fallback == NULL || names_find(o->words, o->fallback) >= 0, "%s by default", arg);
        ck_assert_ptr_null(o->words(-1));
        n++;
    }
    ck_assert_int_ge(n, 10);
    command = CONF_SERVE;
    refuse("--backend", "gpu", "backend (command line): expected one of cpu, ref, opencl; found 'gpu'");
    refuse("--backend", "ref,cpu", "backend (command line): expected NAME:FIRST-LAST");
    accept("--backend", "ref:0-3,cpu"); /* of a model that is not looked at yet */
    ck_assert_str_eq(c.backend, "ref:0-3,cpu");
    setenv("INFCGI_CACHE_TYPE_V", "q8", 1);
    refuse(NULL, NULL,
           "cache-type-v (INFCGI_CACHE_TYPE_V): expected one of i16, f16, bf16, q8_0, q4_0, f32; found 'q8'");
}
END_TEST

START_TEST(a_list_holds_what_commas_and_options_separate)
{
    command = CONF_BENCH;
    accept(NULL, NULL);
    ck_assert(c.n_prompt.n == 1 && c.n_prompt.at[0] == 512);
    setenv("INFCGI_N_PROMPT", "9", 1);
    accept(NULL, NULL);
    ck_assert(c.n_prompt.n == 1 && c.n_prompt.at[0] == 9);
    ck_assert_int_eq(load("-p", "1,2", "--n-prompt=3"), ERR_OK);
    ck_assert(c.n_prompt.n == 3 && c.n_prompt.at[0] == 1 && c.n_prompt.at[1] == 2 && c.n_prompt.at[2] == 3);
    static const char *const bad[] = {
        "", "1,", ",1", "1,,2", "x", "1 ,2", "-1", "1048577", "99999999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        refuse("-p", bad[i], "n-prompt (command line): expected an integer of 0 to 1048576");
    }
    accept("-p", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16");
    refuse("-p", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "16 integers at most");
    accept("-t", "1,0");
    ck_assert(c.thread_counts.n == 2 && c.thread_counts.at[1] == 0);
}
END_TEST

START_TEST(operands_stand_without_a_name)
{
    command = CONF_TOKENIZE;
    ck_assert_int_eq(load("a.gguf", "--ids", "-"), ERR_OK);
    ck_assert(strcmp(c.model, "a.gguf") == 0 && strcmp(c.text, "-") == 0 && c.ids);
    ck_assert_int_eq(load("--model=a.gguf", "", NULL), ERR_OK);
    ck_assert_str_eq(c.text, "");
    ck_assert_int_eq(load("--", "-m", "--ids"), ERR_OK);
    ck_assert(strcmp(c.model, "-m") == 0 && strcmp(c.text, "--ids") == 0 && !c.ids);
    ck_assert_int_eq(conf_check(&c, &info), ERR_OK);
    ck_assert_int_eq(load("a", "b", "c"), ERR_CONFIG);
    ck_assert_int_eq(load("a", "--model", "b"), ERR_CONFIG);
    accept("--ids", NULL);
    ck_assert_int_eq(conf_check(&c, &info), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(info.text, "expected --model FILE"));
    setenv("INFCGI_MODEL", "of-environment.gguf", 1);
    accept("a.gguf", NULL); /* the argument is the model still */
    ck_assert(strcmp(c.model, "a.gguf") == 0 && strcmp(c.text, "-") == 0);
}
END_TEST

/* Every name that a back end gives is a row of the table, too. */
START_TEST(an_option_that_the_back_end_lacks_is_refused)
{
    static const char *const of_cpu[] = {"--cpu=avx2", "--high-precision", "--pin", "--pack-cache=/tmp"};
    for (int i = 0; backend_cpu.option_name(i) != NULL; i++) {
        ck_assert_ptr_nonnull(
            option_find(&options_table, backend_cpu.option_name(i), strlen(backend_cpu.option_name(i)), command));
    }
    for (size_t i = 0; i < sizeof of_cpu / sizeof *of_cpu; i++) {
        ck_assert_int_eq(load("--model=m.gguf", of_cpu[i], "--backend=ref:0-3,cpu"), ERR_OK);
        ck_assert_int_eq(conf_check(&c, &info), ERR_OK); /* one of them has it */
        for (int is_ref = 0; is_ref < 2; is_ref++) {
            ck_assert_int_eq(load("--model=m.gguf", of_cpu[i], is_ref ? "--backend=ref" : NULL), ERR_OK);
            ck_assert_int_eq(conf_check(&c, &info), is_ref ? ERR_CONFIG : ERR_OK);
            ck_assert(!is_ref || strstr(info.text, "the back end ref has no such option; add --backend cpu") != NULL);
        }
    }
    ck_assert_int_eq(load("--model=m.gguf", "--device=0", NULL), ERR_OK);
    ck_assert_int_eq(conf_check(&c, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "device: the back end cpu has no such option; add --backend opencl");
    ck_assert_int_eq(load("--model=m.gguf", "--device=0", "--backend=opencl"), ERR_OK);
    ck_assert_int_eq(conf_check(&c, &info), ERR_OK);
    ck_assert_str_eq(c.device, "0");
    for (size_t i = 0; backend_at((int)i) != NULL; i++) {
        ck_assert_int_eq(load("--model=m.gguf", "--backend", backend_name((int)i)), ERR_OK);
        c.gpu_layers = "0"; /* which all of them do */
        ck_assert_int_eq(conf_check(&c, &info), ERR_OK);
        c.gpu_layers = "1";
        ck_assert_int_eq(conf_check(&c, &info), backend_at((int)i) == &backend_opencl ? ERR_OK : ERR_CONFIG);
    }
    command = CONF_DEVICES; /* which computes on none */
    ck_assert_int_eq(load("--device=0000:03:00.0", NULL, NULL), ERR_OK);
    ck_assert_int_eq(conf_check(&c, &info), ERR_OK);
    command = CONF_SERVE;
    ck_assert_int_eq(load("--model=m.gguf", "--device=gpu", NULL), ERR_CONFIG);
    ck_assert(strstr(info.text, "expected auto, a number or a PCI address like 0000:03:00.0") != NULL);
    ck_assert_int_eq(load("--model=m.gguf", "--backend=ref", "--pack-cache=off"), ERR_OK);
    ck_assert_int_eq(conf_check(&c, &info), ERR_OK);
}
END_TEST

/* What --help of the command says. */
static bool is_listed(enum conf_command of, const char *name)
{
    struct buf help;
    char text[96];
    buf_init(&help, 0, MEM_GENERAL);
    const struct program program = tables_all();
    manual_of(&program, cmd_find(&program, of), &help);
    snprintf(text, sizeof text, "--%s ", name);
    bool is_there = strstr(help.data, text) != NULL;
    buf_fini(&help);
    return is_there;
}

START_TEST(every_option_is_read_from_the_environment)
{
    const struct option *o;
    for (int i = 0; (o = option_at(&options_table, i)) != NULL; i++) {
        char text[96];
        snprintf(text, sizeof text, "INFCGI_%s", o->name);
        for (char *p = text; *p != '\0'; p++) {
            *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        }
        setenv(text, "\x01", 1); /* no number, no flag, no name, no file there */
        bool is_text = (o->kind == OPTION_TEXT && o->words == NULL && o->check == NULL) ||
                       (o->kind == OPTION_FILE && strcmp(o->name, "config") != 0);
        for (unsigned bit = CONF_SERVE; bit <= CONF_HELP; bit <<= 1) {
            command = (enum conf_command)bit;
            const struct option *own = option_find(&options_table, o->name, strlen(o->name), command);
            bool is_own = (own->commands & bit) != 0; /* what others take is nothing to it */
            enum err err = load(NULL, NULL, NULL);
            ck_assert_msg(is_text || !is_own ? err == ERR_OK : err == ERR_CONFIG || err == ERR_FILE, "%s: %s", text,
                          err_code(err));
        }
        unsetenv(text);
    }
    ck_assert_ptr_null(option_at(&options_table, -1));
}
END_TEST

START_TEST(a_command_lists_and_takes_its_own_options)
{
    const struct option *o;
    for (int i = 0; (o = option_at(&options_table, i)) != NULL; i++) {
        bool is_flag = o->kind == OPTION_FLAG;
        unsigned taken = 0;
        for (unsigned bit = CONF_SERVE; bit <= CONF_HELP; bit <<= 1) {
            const struct option *own = option_find(&options_table, o->name, strlen(o->name), (enum conf_command)bit);
            char option[64];
            snprintf(option, sizeof option, "--%s", o->name);
            command = (enum conf_command)bit;
            (void)load(option, is_flag ? NULL : "1", NULL);
            bool is_taken = strstr(info.text, "expected an option of ") == NULL;
            ck_assert_msg(is_taken == ((own->commands & bit) != 0), "%s %s", command_name(), option);
            ck_assert_msg(is_listed(command, o->name) == is_taken, "%s --help and %s", command_name(), option);
            taken |= own->commands & bit;
        }
        ck_assert_msg((taken & o->commands) == o->commands && o->commands != 0, "--%s: two rows of a command", o->name);
        ck_assert_msg((o->required_by & ~o->commands) == 0 && (o->operand_of & ~o->commands) == 0, "--%s", o->name);
    }
    command = CONF_SERVE;
    refuse("-p", "a text", "--prompt: expected an option of serve, found one of generate");
    accept("--config",
           folder_write("both.conf", "repetitions = 5\nthreads = 2\nn-prompt = 1,2\n", 43)); /* one for all */
    ck_assert_int_eq(c.repetitions, 5);
    ck_assert_int_eq(c.threads, 2);
    ck_assert_int_eq(c.n_prompt.n, 2);
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
    ck_assert_double_eq(c.sampling.temperature, 0.5);
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
    ck_assert_int_eq(load("--config", folder_file("absent.conf"), NULL), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "/absent.conf: ") != NULL, "%s", info.text);
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

START_TEST(variables_that_override_the_file_are_listed)
{
    char name[] = "serve", with[] = "--config", path[512], threads[] = "--threads=9",
         *argv[] = {name, with, path, threads, NULL};
    snprintf(path, sizeof path, "%s", config("timeout = 5\nparallel = 3\nthreads = 2\nmodel = /m\n"));
    setenv("INFCGI_MODEL", "/other", 1);
    setenv("INFCGI_TIMEOUT", "6", 1);
    setenv("INFCGI_PARALLEL", "3", 1); /* the same */
    setenv("INFCGI_THREADS", "8", 1);  /* the command line overrides both */
    setenv("INFCGI_ALIAS", "a", 1);    /* the file has none */
    ck_assert_int_eq(load_serve(&c, 4, argv), ERR_OK);
    ck_assert_str_eq(c.overrides, "INFCGI_MODEL, INFCGI_TIMEOUT");
    conf_fini(&c);
    unsetenv("INFCGI_MODEL");
    unsetenv("INFCGI_TIMEOUT");
    ck_assert_int_eq(load_serve(&c, 4, argv), ERR_OK);
    ck_assert_str_eq(c.overrides, "");
    conf_fini(&c);
    unsetenv("INFCGI_PARALLEL");
    unsetenv("INFCGI_THREADS");
    unsetenv("INFCGI_ALIAS");
}
END_TEST

START_TEST(some_options_are_read_anew)
{
    char name[] = "serve", with[] = "--config", path[512], names[64], *argv[] = {name, with, path, NULL};
    struct conf now, next;
    struct conf_changes changes;
    snprintf(path, sizeof path, "%s", config("timeout = 5\nthreads = 2\nlog-level = warn\n"));
    ck_assert_int_eq(load_serve(&now, 3, argv), ERR_OK);
    ck_assert_int_eq(conf_reread(&now, &next, &changes, &info), ERR_OK);
    ck_assert(changes.n_live == 0 && changes.waiting[0] == '\0');
    (void)config("timeout = 7\nthreads = 3\nlog-level = error\nstrict-api = on\nalias = a\n");
    ck_assert_int_eq(conf_reread(&now, &next, &changes, &info), ERR_OK);
    ck_assert_int_eq(changes.n_live, 3);
    ck_assert_str_eq(changes.waiting, "alias, threads");
    ck_assert(next.timeout_s == 7 && next.threads == 2 && next.strict_api && strcmp(next.log_level, "error") == 0 &&
              next.alias == NULL);
    ck_assert(now.timeout_s == 5 && strcmp(now.log_level, "warn") == 0);
    ck_assert_ptr_nonnull(
        strstr(next.from[option_find(&options_table, "timeout", 7, CONF_SERVE) - options_table.rows], "line 1"));
    (void)config("timeout = 7\nthreads = many\n");
    ck_assert_int_eq(conf_reread(&now, &next, &changes, &info), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(info.text, "line 2"));
    (void)config("");
    ck_assert_int_eq(conf_reread(&now, &next, &changes, &info), ERR_OK);
    ck_assert(next.timeout_s == 0 && strcmp(changes.waiting, "threads") == 0); /* back to the default */
    conf_differences(&now, &next, names, sizeof names);
    ck_assert_str_eq(names, "log-level, timeout");
    conf_differences(&now, &next, names, 3);
    ck_assert_str_eq(names, "lo");
    conf_differences(&now, &now, names, sizeof names);
    ck_assert_str_eq(names, "");
    conf_fini(&now);
    const struct option *o;
    for (int i = 0; (o = option_at(&options_table, i)) != NULL;
         i++) { /* nothing that points into the file is taken from it */
        bool may_be = o->kind == OPTION_FLAG || o->kind == OPTION_INTEGER || o->kind == OPTION_REAL ||
                      (o->kind == OPTION_TEXT && o->words != NULL && o->check == NULL && o->fallback != NULL);
        ck_assert_msg(!o->is_live || (may_be && o->commands == CONF_SERVE), "%s", o->name);
    }
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
    ck_assert(number_parse("9223372036854775807", &v) && v == INT64_MAX);
    ck_assert(number_parse("-9223372036854775807", &v) && v == -INT64_MAX);
    ck_assert(number_parse("-0", &v) && v == 0);
    ck_assert(number_parse("007", &v) && v == 7);
    v = 5;
    ck_assert(!number_parse("9223372036854775808", &v) && v == 5);
    ck_assert(!number_parse("", &v) && v == 5);
    ck_assert(!number_parse("-", &v) && v == 5);
    ck_assert(!number_parse("7 ", &v) && v == 5);
    static const char more[] = "12:30";
    ck_assert_ptr_null(number_parse_digits("-1", &v));
    ck_assert_ptr_null(number_parse_digits(":", &v));
    ck_assert_ptr_null(number_parse_digits("9223372036854775808 kB", &v));
    ck_assert_int_eq(v, 5);
    ck_assert_ptr_eq(number_parse_digits(more, &v), more + 2);
    ck_assert_int_eq(v, 12);
}
END_TEST

Suite *conf_suite(void)
{
    Suite *s = suite_create("conf");
    TCase *t = tcase_create("conf");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, integers_keep_their_bounds);
    tcase_add_test(t, real_numbers_keep_their_bounds);
    tcase_add_test(t, flags_are_on_or_off);
    tcase_add_test(t, texts_are_taken_as_they_are);
    tcase_add_test(t, short_names_are_the_long_ones);
    tcase_add_test(t, names_of_llama_server);
    tcase_add_test(t, each_name_of_llama_server_is_known_once);
    tcase_add_test(t, names_are_those_of_their_tables);
    tcase_add_test(t, a_list_holds_what_commas_and_options_separate);
    tcase_add_test(t, operands_stand_without_a_name);
    tcase_add_test(t, every_option_is_read_from_the_environment);
    tcase_add_test(t, a_command_lists_and_takes_its_own_options);
    tcase_add_test(t, a_file_holds_names_and_values);
    tcase_add_test(t, a_bad_file_is_refused_with_its_line);
    tcase_add_test(t, the_command_line_wins_over_the_environment_and_that_over_the_file);
    tcase_add_test(t, variables_that_override_the_file_are_listed);
    tcase_add_test(t, some_options_are_read_anew);
    tcase_add_test(t, a_long_value_is_cut_in_the_message);
    tcase_add_test(t, integers_of_64_bits);
    tcase_add_test(t, an_option_that_the_back_end_lacks_is_refused);
    suite_add_tcase(s, t);
    return s;
}
