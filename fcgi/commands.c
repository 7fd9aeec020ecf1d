#include "fcgi/commands.h"

#include <stdio.h>

const struct cmd commands_table[] = {
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
     "combination.",
     NULL, NULL},
    {"inspect", CONF_INSPECT, cmd_inspect, "show or check what is in a model file",
     "Without an option: a summary. No kernel runs here; --cpu says which to plan for.", NULL, NULL},
    {"convert", CONF_CONVERT, cmd_convert, "make a GGUF file, with weights of another type if wanted", "", NULL, NULL},
    {"tokenize", CONF_TOKENIZE, cmd_tokenize, "show the token ids of a text",
     "One line a token: its id, a tab, its text with everything escaped that is not plain text.", NULL, NULL},
    {"devices", CONF_DEVICES, cmd_devices, "list the GPUs and OpenCL devices of this machine",
     "Below the table: what stands in the way of a card, what makes it slow, and which device --device takes.", NULL,
     NULL},
    {"ctl", CONF_CTL, cmd_ctl, "ask a running server, or tell it what to do",
     "COMMAND is one of a table that `infcgi ctl help` prints; without one, commands are read from a prompt or from standard input, one a "
     "line. Exit status: 0, 1 when the server refuses, 64 for a wrong command, 69 when none answers, 77 when this user may not ask.",
     "[COMMAND ...]", cmd_ctl_word},
    {"help", CONF_HELP, cmd_help, "list the commands, or print the manual", "", NULL, NULL},
};

const int commands_n = ARRAY_LEN(commands_table);

const char *commands_names(unsigned bits, char *to, size_t cap)
{
    size_t n = 0;
    to[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(commands_table) && n < cap; i++) {
        if ((bits & commands_table[i].bit) != 0) {
            n += (size_t)snprintf(to + n, cap - n, "%s%s", n > 0 ? ", " : "", commands_table[i].name);
        }
    }
    return to;
}
