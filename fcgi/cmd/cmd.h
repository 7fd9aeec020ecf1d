/* The subcommands of `infcgi`, each in a file: in model/ if it uses a model, in service/ if it concerns the server, else
 * in this folder. The table is in fcgi/commands.c.
 *
 * Each returns the exit status of the process, prints results on stdout and one line per failure on stderr. Threads:
 * called once, from main's thread. */
#ifndef INFCGI_CMD_CMD_H
#define INFCGI_CMD_CMD_H

#include "engine/base/names.h"
#include "engine/engine.h"
#include "fcgi/conf/option.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/server.h"

#include <jansson.h>

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
    int (*run)(const struct program *p, struct conf *conf);
    const char *summary;  /* one line */
    const char *notes;    /* facts beyond its options; "": none */
    const char *operands; /* OPTIONAL: operands after the options that are no option's value: "[COMMAND ...]" */
    names_fn words;       /* OPTIONAL: the words that these can be */
    int (*prepare)(
        void); /* OPTIONAL: called before the options are read; another status than CMD_OK ends the command */
};

int cmd_serve(const struct program *p, struct conf *conf);
int cmd_generate(const struct program *p, struct conf *conf);
int cmd_bench(const struct program *p, struct conf *conf);
int cmd_inspect(const struct program *p, struct conf *conf);
int cmd_convert(const struct program *p, struct conf *conf);
int cmd_tokenize(const struct program *p, struct conf *conf);
int cmd_devices(const struct program *p, struct conf *conf);
int cmd_perplexity(const struct program *p, struct conf *conf);
int cmd_chat(const struct program *p, struct conf *conf);
int cmd_ctl(const struct program *p, struct conf *conf); /* the operands follow the arguments of conf->given */
int cmd_help(const struct program *p, struct conf *conf);

int cmd_serve_prepare(void);     /* struct cmd.prepare of serve */
const char *cmd_ctl_word(int i); /* returns the i-th command of ctl; NULL beyond the last */

/* Prints version and kernels for infcgi --version. */
int cmd_version(void);

/* Reads the command's options, runs it and returns the exit status. argv[0]: the command's name; argv[argc] is NULL. */
int cmd_run(const struct program *p, enum conf_command command, int argc, char **argv);

/* --- shared by the subcommands --------------------------------------------------------------------------------- */

/* Reads the options of a command into *conf. Returns CMD_OK; -1 after answering --help or --version; else the exit
 * status, with the reason on stderr. */
int cmd_read_conf(const struct program *p, const struct cmd *c, struct conf *conf, int argc, char **argv);

/* Returns the row of a command. */
const struct cmd *cmd_find(const struct program *p, enum conf_command command);

/* Returns the engine options of *c, which must outlive them. */
struct engine_config cmd_engine_config(const struct conf *c);

/* Opens the engine of *cfg, with a progress bar on a terminal. */
MUST_CHECK enum err cmd_open_engine(struct engine_config *cfg, struct engine **out, struct err_info *info);

/* Prints a value and a line end, and releases the value. Returns false without a value. flags: of jansson. */
bool cmd_print_json(json_t *value, size_t flags);

/* Prints `note: <text>` on stderr. */
void cmd_note(void *unused, const char *text);

/* Prints `error: <file>: <code> at byte <offset>: <sentence>` and returns the exit status. CMD_OK without an error. */
int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info);

/* Prints `error: <code>: <sentence>`, for a failure that does not concern the model, and returns `status`. */
int cmd_fail_setup(int status, enum err err, const struct err_info *info);

#endif
