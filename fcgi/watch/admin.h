/* The admin socket, through which an operator on this machine queries and controls the process. docs/internals/admin.md
 * describes the protocol: a client sends a line of words, gets an answer, and the connection closes.
 *
 * One nonblocking thread serves it: each client has a slot, a time limit and a bounded answer. Commands are rows of the
 * table in admin_table.c. They return JSON, from which text is generated (admin_text.h).
 * Threads: admin_start and admin_stop from main's; commands run in the admin thread. */
#ifndef INFCGI_FCGI_ADMIN_H
#define INFCGI_FCGI_ADMIN_H

#include "fcgi/wire/server.h"

#include <jansson.h>

enum {
    ADMIN_CLIENTS = 16,           /* at the same time; further clients get an error */
    ADMIN_LINE_BYTES = 1024,      /* per request, with its newline */
    ADMIN_WORDS = 8,              /* per request */
    ADMIN_ANSWER_BYTES = 4 << 20, /* per answer; of a live one, the unread part */
    ADMIN_REQUEST_MS = 5000,      /* for a client to send its request */
    ADMIN_STALLED_MS = 10000,     /* for a client to read some of its answer */
    ADMIN_TICK_MS = 50,           /* between two checks for changes */
};

/* The result of a command; the answer's first word names it (admin_verdict_name). */
enum admin_verdict {
    ADMIN_OK,
    ADMIN_USAGE,   /* unknown command or wrong words */
    ADMIN_REFUSED, /* not possible, or not now */
    ADMIN_DENIED,  /* this user has no permission */
    ADMIN_VERDICT_COUNT
};
const char *admin_verdict_name(int i); /* NULL beyond the last */

/* A running command. */
struct admin_call {
    struct server *server;
    struct engine *engine; /* NULL while the model loads */
    bool is_json;
    int n_words;
    const char *words[ADMIN_WORDS]; /* [0]: name of the command */
    struct buf *out;                /* text output next to the returned JSON: log lines */
    enum admin_verdict verdict;
    char why[256]; /* of admin_refuse */
    /* For a command that continues: called about every ADMIN_TICK_MS. Appends new output to out and returns whether the
     * command continues. *last becomes JSON to print at the end, or stays NULL. is_live: lines are sent immediately, as
     * an answer of unknown length. */
    bool (*go_on)(struct admin_call *c, json_t **last);
    void (*end)(struct admin_call *c); /* OPTIONAL: frees `state`; also called after the client has left */
    void *state;
    bool is_live;
    uint64_t at; /* private to the command */
};

struct admin_command {
    const char *name;
    const char *words;                    /* arguments, "ID" */
    int least, most;                      /* number of arguments */
    const char *help;                     /* one sentence */
    bool changes;                         /* changes the server: logged */
    bool needs_engine;                    /* else it also answers while the model loads */
    json_t *(*run)(struct admin_call *c); /* returns the answer; NULL: `out`, admin_refuse or go_on provides it */
};

/* Returns the i-th row in help order; NULL beyond the last. admin_name_at returns its name. */
const struct admin_command *admin_at(int i);
const char *admin_name_at(int i);

/* Returns the row of that name, or NULL. */
const struct admin_command *admin_find(const char *name);

/* Checks the arguments of c->words, runs the command and sets the verdict. The caller owns the result. */
json_t *admin_run(struct admin_call *c);

/* Sets the verdict and its reason. Returns NULL, so that `return admin_refuse(...)` works. */
json_t *admin_refuse(struct admin_call *c, enum admin_verdict v, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Splits a line in place into words separated by blanks. A first word `--json` selects JSON. Returns false if the line
 * has no word or too many. */
bool admin_parse(char *line, struct admin_call *c);

/* Listens at path, mode 0600, and starts the thread. Replaces a stale socket. ERR_CONFIG, ERR_ADDRESS_IN_USE, ERR_IO,
 * ERR_INTERNAL. */
MUST_CHECK enum err admin_start(const char *path, struct server *server, struct err_info *info);

/* Stops the thread, closes connections and removes the socket. Call before the engine is closed. Does nothing if not
 * started. */
void admin_stop(void);

/* Functions of the command table. */
json_t *admin_status(struct admin_call *c);
json_t *admin_requests(struct admin_call *c);
json_t *admin_cancel(struct admin_call *c);
json_t *admin_tenants(struct admin_call *c);
json_t *admin_kv(struct admin_call *c);
json_t *admin_cache(struct admin_call *c);
json_t *admin_model(struct admin_call *c);
json_t *admin_drain(struct admin_call *c);
json_t *admin_loglevel(struct admin_call *c);
json_t *admin_log(struct admin_call *c);
json_t *admin_config(struct admin_call *c);
json_t *admin_devices(struct admin_call *c);
json_t *admin_memory(struct admin_call *c);
json_t *admin_threads(struct admin_call *c);
json_t *admin_kernels(struct admin_call *c);
json_t *admin_bench(struct admin_call *c);
json_t *admin_reload(struct admin_call *c);
json_t *admin_version(struct admin_call *c);
json_t *admin_help(struct admin_call *c);

#endif
