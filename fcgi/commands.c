#include "fcgi/tables.h"

#include "fcgi/ground/words.h"

const struct cmd commands_table[] = {
    {"serve", CONF_SERVE, cmd_serve, "serve a model over FastCGI", "", .prepare = cmd_serve_prepare},
    {"generate", CONF_GENERATE, cmd_generate, "continue one prompt", "", .words = NULL},
    {"chat", CONF_CHAT, cmd_chat, "chat with a model at the terminal",
     "Lines that begin with / are commands; /help lists them. If standard input is no terminal, each line is a "
     "question.",
     .words = NULL},
    {"perplexity", CONF_PERPLEXITY, cmd_perplexity, "measure the perplexity of a text",
     "Uses llama-perplexity's definition: windows of --ctx-size tokens, computed separately, the second half scored.",
     .words = NULL},
    {"bench", CONF_BENCH, cmd_bench, "measure prefill and decode speed",
     "Prints llama-bench's rows. Options with several integers, as 512,1024 or repeated, make one row per combination.",
     .words = NULL},
    {"inspect", CONF_INSPECT, cmd_inspect, "show or check a model file",
     "Prints a summary without options. Runs no kernel; --cpu selects one to plan for.", .words = NULL},
    {"convert", CONF_CONVERT, cmd_convert, "write a GGUF file, optionally with another type", "", .words = NULL},
    {"tokenize", CONF_TOKENIZE, cmd_tokenize, "show the token ids of a text",
     "Prints one line per token: id, tab, escaped text.", .words = NULL},
    {"devices", CONF_DEVICES, cmd_devices, "list the GPUs and OpenCL devices of this machine",
     "Notes below the table name unusable cards, causes of slowness, and the device that --device selects.",
     .words = NULL},
    {"ctl", CONF_CTL, cmd_ctl, "query or control a running server",
     "`infcgi ctl help` lists the COMMANDs; without one, reads commands from a prompt or standard input, one per "
     "line. Exit status: 0, 1 if the server rejects it, 64 for a wrong command, 69 if no server answers, 77 without "
     "permission.",
     .operands = "[COMMAND ...]", .words = cmd_ctl_word},
    {"help", CONF_HELP, cmd_help, "list the commands, or print the manual", "", .words = NULL},
};

const int commands_n = ARRAY_LEN(commands_table);

const char *commands_names(unsigned bits, char *to, size_t cap)
{
    to[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(commands_table); i++) {
        if ((bits & commands_table[i].bit) != 0) {
            words_append(to, cap, commands_table[i].name);
        }
    }
    return to;
}
