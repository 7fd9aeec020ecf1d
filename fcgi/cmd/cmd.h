/* The subcommands of `infcgi`, one file each in this folder; fcgi/main.c has the table that names them.
 *
 * argv[0] is the subcommand's name, argv[1..argc-1] its arguments. Each returns the process's exit status, prints
 * results on stdout and one line per failure on stderr. Threads: called once, from main's thread. */
#ifndef INFCGI_CMD_CMD_H
#define INFCGI_CMD_CMD_H

/* Exit statuses [BSD sysexits]. */
enum {
    CMD_OK = 0,
    CMD_USAGE = 64,     /* unknown option, missing argument */
    CMD_BAD_DATA = 65,  /* the model file is missing or wrong */
    CMD_BAD_OUTPUT = 74 /* stdout could not be written */
};

/* infcgi inspect [--check | --kv | --tensors | --template] MODEL: what is in a model file. */
int cmd_inspect(int argc, char **argv);

/* infcgi tokenize MODEL [--ids] [--no-bos] [--parse-special] [TEXT|-]: the token ids of a text. */
int cmd_tokenize(int argc, char **argv);

#endif
