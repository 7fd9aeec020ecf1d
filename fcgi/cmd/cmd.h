/* The subcommands of `infcgi`, one file each in this folder; fcgi/commands.c has the table that names them.
 *
 * argv[0] is the subcommand's name, argv[1..argc-1] its arguments. Each returns the process's exit status, prints
 * results on stdout and one line per failure on stderr. Threads: called once, from main's thread. */
#ifndef INFCGI_CMD_CMD_H
#define INFCGI_CMD_CMD_H

#include "engine/chat/chat_template.h"
#include "engine/base/names.h"
#include "engine/engine.h"
#include "fcgi/conf/option.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/server.h"

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

/* The tables of the program, which main passes to each command. All are constant. */
struct program {
    const struct option_table *options;
    const struct cmd *commands;
    int n_commands;
    const struct route *routes;
    int n_routes;
    const struct dialect *const *dialects;   /* NULL-terminated */
    const struct field_table *const *fields; /* of request bodies */
    int n_fields;
    fastcgi_handler handle; /* a request; its argument is the struct server */
};

/* A subcommand. To add one: its file here, its declaration below, a bit in conf.h, a row in fcgi/commands.c; then `make docs`. */
struct cmd {
    const char *name;
    enum conf_command bit;
    int (*run)(const struct program *p, int argc, char **argv);
    const char *summary;  /* one line */
    const char *notes;    /* what its options do not say; "" = nothing */
    const char *operands; /* OPTIONAL: what it takes behind its options, that is no option's value: "[COMMAND ...]" */
    names_fn words;       /* OPTIONAL: what of these can be named */
};

int cmd_serve(const struct program *p, int argc, char **argv);
int cmd_generate(const struct program *p, int argc, char **argv);
int cmd_bench(const struct program *p, int argc, char **argv);
int cmd_inspect(const struct program *p, int argc, char **argv);
int cmd_convert(const struct program *p, int argc, char **argv);
int cmd_tokenize(const struct program *p, int argc, char **argv);
int cmd_devices(const struct program *p, int argc, char **argv);
int cmd_perplexity(const struct program *p, int argc, char **argv);
int cmd_chat(const struct program *p, int argc, char **argv);
int cmd_ctl(const struct program *p, int argc, char **argv);
int cmd_help(const struct program *p, int argc, char **argv);

const char *cmd_ctl_word(int i); /* the i-th command of ctl; NULL beyond the last */

/* infcgi --version: version and kernels. */
int cmd_version(void);

/* --- shared by the subcommands --------------------------------------------------------------------------------- */

/* Reads the command's options into *conf, which the caller ends with conf_fini. CMD_OK; -1 when --help or --version was
 * answered; else the exit status, with the reason on stderr. */
int cmd_read_conf(const struct program *p, struct conf *conf, enum conf_command command, int argc, char **argv);

/* The engine options of *c, which must outlive them. */
struct engine_config cmd_engine_config(const struct conf *c);

/* rc, or CMD_BAD_OUTPUT, with a line on stderr, when stdout could not be written; CMD_OK for -1. */
int cmd_end(const char *command, int rc);

/* Prints `error: <file>: <code> at byte <offset>: <sentence>` and returns the exit status. */
int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info);

#endif
