/* The table of subcommands, and what they all begin and end with. */
#include "fcgi/cmd/cmd.h"

#include "fcgi/cmd/manual.h"
#include "fcgi/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct cmd commands[] = {
    {"serve", CONF_SERVE, cmd_serve, "serve a model over FastCGI", "", NULL, NULL},
    {"generate", CONF_GENERATE, cmd_generate, "continue one prompt", "", NULL, NULL},
    {"chat", CONF_CHAT, cmd_chat, "talk with a model at the terminal",
     "Lines that begin with / are commands, which /help lists. Where standard input is no terminal, each line of it is a "
     "question.",
     NULL, NULL},
    {"perplexity", CONF_PERPLEXITY, cmd_perplexity, "measure how well a model foresees a text",
     "By llama-perplexity's definition: windows of --ctx-size tokens, each computed alone, of which the second half is scored.",
     NULL, NULL},
    {"bench", CONF_BENCH, cmd_bench, "measure prefill and decode speed",
     "Rows are llama-bench's. Options that take several integers, as 512,1024 or given again, make one row for each "
     "combination.", NULL, NULL},
    {"inspect", CONF_INSPECT, cmd_inspect, "show or check what is in a model file",
     "Without an option: a summary. No kernel runs here; --cpu says which to plan for.", NULL, NULL},
    {"convert", CONF_CONVERT, cmd_convert, "make a GGUF file, with weights of another type if wanted", "", NULL, NULL},
    {"tokenize", CONF_TOKENIZE, cmd_tokenize, "show the token ids of a text",
     "One line a token: its id, a tab, its text with everything escaped that is not plain text.", NULL, NULL},
    {"devices", CONF_DEVICES, cmd_devices, "list the GPUs and OpenCL devices of this machine",
     "Below the table: what stands in the way of a card, what makes it slow, and which device --device takes.", NULL, NULL},
    {"ctl", CONF_CTL, cmd_ctl, "ask a running server, or tell it what to do",
     "COMMAND is one of a table that `infcgi ctl help` prints; without one, commands are read from a prompt or from standard input, one a "
     "line. Exit status: 0, 1 when the server refuses, 64 for a wrong command, 69 when none answers, 77 when this user may not ask.",
     "[COMMAND ...]", cmd_ctl_word},
    {"help", CONF_HELP, cmd_help, "list the commands, or print the manual", "", NULL, NULL},
};

const struct cmd *cmd_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(commands) ? &commands[i] : NULL; }

const struct cmd *cmd_find(enum conf_command command)
{
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(commands) && commands[i].bit != command) {
        i++;
    }
    return &commands[i];
}

const char *cmd_names(unsigned bits, char *to, size_t cap)
{
    size_t n = 0;
    to[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(commands) && n < cap; i++) {
        if ((bits & commands[i].bit) != 0) {
            n += (size_t)snprintf(to + n, cap - n, "%s%s", n > 0 ? ", " : "", commands[i].name);
        }
    }
    return to;
}

int cmd_read_conf(struct conf *conf, enum conf_command command, int argc, char **argv)
{
    struct err_info info = {0};
    enum err err = conf_load(conf, command, argc, argv, &info);
    if (err == ERR_OK && conf->version) {
        return cmd_version() == CMD_OK ? -1 : CMD_BAD_OUTPUT;
    }
    if (err == ERR_OK && conf->help) {
        struct buf help;
        buf_init(&help, 0, MEM_GENERAL);
        manual_of(command, &help);
        fputs(buf_ok(&help) == ERR_OK ? help.data : "", stdout);
        buf_fini(&help);
        return -1;
    }
    err = err != ERR_OK ? err : conf_check(conf, command, &info);
    return err == ERR_OK ? CMD_OK : cmd_fail(conf, ERR_CONFIG, &info);
}

int cmd_end(const char *command, int rc)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "error: %s: cannot write the output\n", command);
        return CMD_BAD_OUTPUT;
    }
    return rc < 0 ? CMD_OK : rc;
}

int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info)
{
    bool is_config =
        err == ERR_CONFIG || err == ERR_UNSUPPORTED_CPU || err == ERR_UNSUPPORTED_DEVICE || err == ERR_ADDRESS_IN_USE;
    fprintf(stderr, "%serror: ", log_priority("error"));
    if (!is_config && conf->model != NULL) {
        fprintf(stderr, "%s: ", conf->model);
    }
    fprintf(stderr, "%s", err_code(err));
    if (info->offset != ERR_NO_OFFSET && info->code != ERR_OK && !is_config) {
        fprintf(stderr, " at byte %" PRIu64, info->offset);
    }
    fprintf(stderr, ": %s\n", info->text[0] != '\0' ? info->text : err_text(err));
    return is_config ? CMD_USAGE : err == ERR_LOST ? CMD_LOST : CMD_BAD_DATA;
}

int cmd_help(int argc, char **argv)
{
    struct conf conf;
    int rc = cmd_read_conf(&conf, CONF_HELP, argc, argv);
    if (rc == CMD_OK) {
        struct buf text;
        buf_init(&text, 0, MEM_GENERAL);
        manual_print(conf.format, &text);
        rc = buf_ok(&text) == ERR_OK ? CMD_OK : CMD_NO_SYSTEM;
        fputs(rc == CMD_OK ? text.data : "", stdout);
        buf_fini(&text);
    }
    conf_fini(&conf);
    return cmd_end("help", rc);
}
