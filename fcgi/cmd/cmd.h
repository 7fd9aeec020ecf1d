/* The subcommands of `infcgi`, one file each in this folder; fcgi/main.c has the table that names them.
 *
 * argv[0] is the subcommand's name, argv[1..argc-1] its arguments. Each returns the process's exit status, prints
 * results on stdout and one line per failure on stderr. Threads: called once, from main's thread. */
#ifndef INFCGI_CMD_CMD_H
#define INFCGI_CMD_CMD_H

#include "engine/chat/chat_template.h"
#include "engine/base/names.h"
#include "engine/engine.h"
#include "fcgi/server.h"

#define CMD_VERSION SERVER_VERSION

/* Exit statuses [BSD sysexits]. */
enum {
    CMD_OK = 0,
    CMD_REFUSED = 1,     /* ctl: the server said no */
    CMD_USAGE = 64,      /* unknown option, missing argument */
    CMD_BAD_DATA = 65,   /* the model file is missing or wrong */
    CMD_LOST = 69,       /* the back end was lost while it computed: start again; ctl: no server answers */
    CMD_NO_SYSTEM = 71,  /* the system gives no threads */
    CMD_BAD_OUTPUT = 74, /* stdout, or the file to be made, could not be written */
    CMD_DENIED = 77,     /* ctl: not for this user */
    CMD_BAD_CONFIG = 78  /* what an option names, other than the model, cannot be used: key file, socket */
};

/* A subcommand. To add one: its file here, its declaration below, a bit in conf.h, a row in cmd.c; then `make docs`. */
struct cmd {
    const char *name;
    enum conf_command bit;
    int (*run)(int argc, char **argv);
    const char *summary; /* one line */
    const char *notes;   /* what its options do not say; "" = nothing */
    const char *operands; /* OPTIONAL: what it takes behind its options, that is no option's value: "[COMMAND ...]" */
    names_fn words;       /* OPTIONAL: what of these can be named */
};

const struct cmd *cmd_at(int i);                       /* NULL beyond the last */
const struct cmd *cmd_find(enum conf_command command); /* never NULL */

/* Writes the names of the commands whose bits are set, "serve, generate", to to[cap], and returns it. */
const char *cmd_names(unsigned commands, char *to, size_t cap);

int cmd_serve(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_help(int argc, char **argv);

const char *cmd_ctl_word(int i); /* the i-th command of ctl; NULL beyond the last */

/* infcgi --version: version and kernels. */
int cmd_version(void);

/* --- shared by the subcommands --------------------------------------------------------------------------------- */

/* Reads the command's options into *conf, which the caller ends with conf_fini. CMD_OK; -1 when --help or --version was
 * answered; else the exit status, with the reason on stderr. */
int cmd_read_conf(struct conf *conf, enum conf_command command, int argc, char **argv);

/* The engine options of *c, which must outlive them. */
struct engine_config cmd_engine_config(const struct conf *c);

/* rc, or CMD_BAD_OUTPUT, with a line on stderr, when stdout could not be written; CMD_OK for -1. */
int cmd_end(const char *command, int rc);

/* Prints `error: <file>: <code> at byte <offset>: <sentence>` and returns the exit status. */
int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info);

#endif
