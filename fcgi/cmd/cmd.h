/* The subcommands of `infcgi`, one file each in this folder; fcgi/main.c has the table that names them.
 *
 * argv[0] is the subcommand's name, argv[1..argc-1] its arguments. Each returns the process's exit status, prints
 * results on stdout and one line per failure on stderr. Threads: called once, from main's thread. */
#ifndef INFCGI_CMD_CMD_H
#define INFCGI_CMD_CMD_H

#include "engine/chat/chat_template.h"
#include "engine/engine.h"
#include "fcgi/conf.h"

#define CMD_VERSION "0.1.0"

/* Exit statuses [BSD sysexits]. */
enum {
    CMD_OK = 0,
    CMD_USAGE = 64,      /* unknown option, missing argument */
    CMD_BAD_DATA = 65,   /* the model file is missing or wrong */
    CMD_LOST = 69,       /* the back end was lost while it computed: start again */
    CMD_NO_SYSTEM = 71,  /* the system gives no threads */
    CMD_BAD_OUTPUT = 74, /* stdout, or the file to be made, could not be written */
    CMD_BAD_CONFIG = 78  /* what an option names, other than the model, cannot be used: key file, socket */
};

/* infcgi inspect [--check | --kv | --tensors | --template] MODEL: what is in a model file. */
int cmd_inspect(int argc, char **argv);

/* infcgi convert SOURCE TARGET [--type TYPE] [--imatrix FILE] [--threads N] [--force]: a new model file. */
int cmd_convert(int argc, char **argv);

/* infcgi tokenize MODEL [--ids] [--no-bos] [--parse-special] [TEXT|-]: the token ids of a text. */
int cmd_tokenize(int argc, char **argv);

/* infcgi serve -m MODEL [OPTIONS]: the FastCGI process. */
int cmd_serve(int argc, char **argv);

/* infcgi generate -m MODEL -p TEXT [OPTIONS]: one continuation on stdout. */
int cmd_generate(int argc, char **argv);

/* infcgi bench -m MODEL [-p N] [-n N] [-t N] [-r N] [-o md|csv|json]: prefill and decode speed, as llama-bench's rows.
 */
int cmd_bench(int argc, char **argv);

/* infcgi --version: version and kernels. */
int cmd_version(void);

/* For commands that run no kernels: checks `--cpu NAME` and takes it out of argv. CMD_OK, or CMD_USAGE with the reason
 * on stderr when this CPU has no such kernels. */
int cmd_take_cpu(int *argc, char **argv);

/* --- shared by the subcommands that open a model ---------------------------------------------------------------- */

/* Reads the command's options into *conf, which the caller ends with conf_fini. CMD_OK; -1 when --help was answered;
 * else the exit status, with the reason on stderr. */
int cmd_read_conf(struct conf *conf, enum conf_command command, int argc, char **argv);

/* The engine options of *c; *sampling must outlive the result. */
struct engine_config cmd_engine_config(const struct conf *c, struct engine_sampling *sampling);

/* Prints `error: <file>: <code> at byte <offset>: <sentence>` and returns the exit status. */
int cmd_fail(const struct conf *conf, enum err err, const struct err_info *info);

/* The template of --chat-template, else the model's, else its family's. m: NULL to look at the option only; *out is
 * NULL then where it is not given. Free with chat_template_free. ERR_CONFIG: the option names no format and no file
 * that can be read and parsed; ERR_NO_TEMPLATE: there is none; ERR_TEMPLATE: the model's cannot be used; ERR_NOMEM. */
MUST_CHECK enum err cmd_load_template(const struct conf *conf, const struct engine_model_info *m,
                                      struct chat_template **out, struct err_info *info);

#endif
