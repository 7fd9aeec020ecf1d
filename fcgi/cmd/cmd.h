/* The subcommands of `infcgi`, each in a file: in model/ if it uses a model, in service/ if it concerns the server, else
 * in this folder. The table is in fcgi/commands.c.
 *
 * argv[0] is the subcommand's name, argv[1..argc-1] its arguments. Each returns the exit status of the process, prints
 * results on stdout and one line per failure on stderr. Threads: called once, from main's thread. */
#ifndef INFCGI_CMD_CMD_H
#define INFCGI_CMD_CMD_H

#include "engine/base/names.h"
#include "engine/engine.h"
#include "fcgi/conf/option.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/server.h"

#define CMD_VERSION SERVER_VERSION

/* Exit statuses [BSD sysexits]. */
enum {
    CMD_OK = 0,
    CMD_REFUSED = 1,     /* ctl: the server rejected the command */
    CMD_USAGE = 64,      /* unknown option, missing argument */
    CMD_BAD_DATA = 65,   /* the model file is missing or invalid */
    CMD_LOST = 69,       /* the back end was lost while computing: restart; ctl: no server answers */
    CMD_NO_SYSTEM = 71,  /* the system provides no threads */
    CMD_BAD_OUTPUT = 74, /* stdout or the output file could not be written */
    CMD_DENIED = 77,     /* ctl: this user has no permission */
    CMD_BAD_CONFIG = 78  /* a file other than the model is unusable: key file, socket */
};

/* The tables of the program, which main passes to each command. All are constant. */
struct program {
    const struct option_table *options;
    const struct cmd *commands;
    int n_commands;
    const struct route *routes;
    int n_routes;
    const struct dialect *const *dialects;   /* NULL-terminated */
    const struct field_table *const *fields; /* fields of request bodies */
    int n_fields;
    fastcgi_handler handle; /* handles a request; its argument is the struct server */
};

/* A subcommand. To add one: add its file, its declaration below, a bit in conf.h and a row in fcgi/commands.c;
 * then run `make docs`. */
struct cmd {
    const char *name;
    enum conf_command bit;
    int (*run)(const struct program *p, int argc, char **argv);
    const char *summary;  /* one line */
    const char *notes;    /* facts beyond its options; "": none */
    const char *operands; /* OPTIONAL: operands after the options that are no option's value: "[COMMAND ...]" */
    names_fn words;       /* OPTIONAL: the words that these can be */
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

const char *cmd_ctl_word(int i); /* returns the i-th command of ctl; NULL beyond the last */

/* Prints version and kernels for infcgi --version. */
int cmd_version(void);

/* --- shared by the subcommands --------------------------------------------------------------------------------- */

/* Reads the command's options into *conf; the caller frees it with conf_fini. Returns CMD_OK; -1 after answering --help
 * or --version; else the exit status, with the reason on stderr. */
int cmd_read_conf(const struct program *p, struct conf *conf, enum conf_command command, int argc, char **argv);

/* Returns the engine options of *c, which must outlive them. */
struct engine_config cmd_engine_config(const struct conf *c);

/* Returns rc, or CMD_BAD_OUTPUT with a line on stderr if stdout could not be written. Returns CMD_OK for -1. */
int cmd_end(const char *command, int rc);

/* Prints `error: <file>: <code> at byte <offset>: <sentence>` and returns the exit status. */
int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info);

#endif
