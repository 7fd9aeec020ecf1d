/* `infcgi ctl`: sends commands to a running server's admin socket. The server interprets the words
 * (fcgi/watch/admin_table.c), except for a few local commands. */
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/prompt.h"
#include "fcgi/cmd/service/ctl.h"
#include "fcgi/watch/admin.h"
#include "fcgi/watch/admin_text.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static int run_pci(const struct program *p, const struct conf *conf)
{
    char name[] = "devices", json[] = "--json", *argv[] = {name, conf->json ? json : NULL, NULL};
    struct conf mine;
    int rc = cmd_read_conf(p, cmd_find(p, CONF_DEVICES), &mine, conf->json ? 2 : 1, argv);
    rc = rc == CMD_OK ? cmd_devices(p, &mine) : rc;
    conf_fini(&mine);
    return rc;
}

static int run_top(const struct program *p, const struct conf *conf)
{
    (void)p;
    return ctl_top(conf->ctl_socket);
}

/* Local commands of ctl. */
static const struct {
    const char *name, *help;
    int (*run)(const struct program *p, const struct conf *conf);
} own[] = {
    {"top", "status and requests, refreshed every second; q: quit", run_top},
    {"pci", "the cards of this machine, as `infcgi devices` lists them", run_pci},
    {"quit", "leave the prompt, as Ctrl-D does", NULL},
};

const char *cmd_ctl_word(int i)
{
    int n = 0;
    while (admin_name_at(n) != NULL) {
        n++;
    }
    if (i < n) {
        return admin_name_at(i);
    }
    return i - n < (int)ARRAY_LEN(own) ? own[i - n].name : NULL;
}

static atomic_bool is_interrupted;

static void on_interrupt(int number)
{
    (void)number;
    atomic_store(&is_interrupted, true);
}

static bool put_live(const char *text, size_t n)
{
    fwrite(text, 1, n, stdout);
    return fflush(stdout) == 0 && !atomic_load(&is_interrupted);
}

/* Reports a failed command; scripts find the reason as JSON on stdout. */
static void put_failure(const struct conf *conf, int status, const char *why)
{
    fprintf(stderr, "error: %s\n", why);
    if (conf->json) {
        (void)cmd_print_json(json_pack("{s:{s:i, s:s}}", "error", "status", status, "message", why), JSON_COMPACT);
    }
}

/* Prints help if no server answers: the commands of this version. */
static int help_alone(const struct conf *conf, const char *const *words, int n, struct buf *out)
{
    struct admin_call c = {.is_json = conf->json, .n_words = MIN_OF(n, ADMIN_WORDS)};
    memcpy(c.words, words, (size_t)c.n_words * sizeof *words);
    json_t *said = admin_run(&c);
    buf_reset(out);
    if (said == NULL) {
        buf_puts(out, c.why);
    } else if (conf->json) {
        (void)cmd_print_json(said, JSON_COMPACT);
    } else {
        admin_text(said, out);
        json_decref(said);
    }
    return c.verdict == ADMIN_OK ? CMD_OK : CMD_USAGE;
}

static int run_words(const struct program *p, const struct conf *conf, const char *const *words, int n)
{
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (own[i].run != NULL && strcmp(words[0], own[i].name) == 0) {
            if (n == 1) {
                return own[i].run(p, conf);
            }
            put_failure(conf, CMD_USAGE, "expected no further word");
            return CMD_USAGE;
        }
    }
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    bool is_live = strcmp(words[0], "log") == 0;
    const struct ctl_question q = {conf->ctl_socket, conf->json, words, n, is_live ? put_live : NULL};
    int rc = ctl_ask(&q, &out);
    if (rc == CMD_LOST && strcmp(words[0], "help") == 0) {
        rc = help_alone(conf, words, n, &out);
    }
    if (rc != CMD_OK) {
        put_failure(conf, rc, out.data != NULL ? out.data : "nothing was answered");
    } else if (out.len > 0) {
        fwrite(out.data, 1, out.len, stdout);
    }
    if (rc == CMD_OK && strcmp(words[0], "help") == 0 && n == 1 && !conf->json) {
        puts("\nanswered by `infcgi ctl` itself:");
        for (size_t i = 0; i < ARRAY_LEN(own); i++) {
            printf("%-18s %s\n", own[i].name, own[i].help);
        }
    }
    buf_fini(&out);
    return rc;
}

/* Runs a line of the prompt; *is_over: it was the last. */
static int run_line(const struct program *p, const struct conf *conf, const char *line, bool *is_over)
{
    char copy[ADMIN_LINE_BYTES];
    struct admin_call parsed = {0};
    size_t n = strlen(line);
    if (n >= sizeof copy) {
        put_failure(conf, CMD_USAGE, "expected a line of at most 1023 bytes, found a longer one");
        return CMD_USAGE;
    }
    memcpy(copy, line, n + 1);
    if (copy[strspn(copy, " \t\r")] == '\0' || copy[strspn(copy, " \t\r")] == '#') {
        return CMD_OK;
    }
    if (!admin_parse(copy, &parsed)) {
        put_failure(conf, CMD_USAGE, "expected at most 8 words");
        return CMD_USAGE;
    }
    *is_over = parsed.n_words == 1 && (strcmp(parsed.words[0], "quit") == 0 || strcmp(parsed.words[0], "exit") == 0);
    struct conf mine = *conf;
    mine.json = conf->json || parsed.is_json;
    return *is_over ? CMD_OK : run_words(p, &mine, parsed.words, parsed.n_words);
}

/* Runs lines until the end. For a file, returns the status of the last failed line; a user at the terminal has already
 * seen it. */
static int run_prompt(const struct program *p, const struct conf *conf)
{
    struct err_info info = {0};
    struct prompt *prompt;
    enum err err = prompt_open(conf->history, &prompt, &info);
    if (err != ERR_OK) {
        return cmd_fail(conf, err, &info);
    }
    int failed = CMD_OK;
    bool is_over = false;
    for (const char *line; !is_over && (line = prompt_line(prompt, "infcgi> ")) != NULL;) {
        atomic_store(&is_interrupted, false);
        int rc = run_line(p, conf, line, &is_over);
        (void)fflush(stdout);
        failed = rc != CMD_OK && !prompt_is_typed(prompt) ? rc : failed;
    }
    prompt_close(&prompt);
    return failed;
}

int cmd_ctl(const struct program *p, struct conf *conf)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* stops following a log, not the prompt */
    const char *const *words = (const char *const *)conf->given.argv + conf->given.argc;
    int n = 0;
    while (words[n] != NULL) {
        n++;
    }
    (void)sigaction(SIGINT, &action, NULL);
    return n > 0 ? run_words(p, conf, words, n) : run_prompt(p, conf);
}
