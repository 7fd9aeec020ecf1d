/* The admin socket: an operator on this machine asks what the process is doing, and tells it what to do. docs/internals/admin.md has
 * the protocol: a line of words in, an answer out, and the connection ends.
 *
 * One thread serves it, which waits for nobody: each client has a place, a time limit and a bounded answer. Commands are rows of the
 * table in admin_table.c; what they say is JSON, and text is made of that (admin_text.h).
 * Threads: admin_start and admin_stop from main's; commands run in the admin thread. */
#ifndef INFCGI_FCGI_ADMIN_H
#define INFCGI_FCGI_ADMIN_H

#include "fcgi/wire/server.h"

#include <jansson.h>

enum {
    ADMIN_CLIENTS = 16,           /* at once; a further one is told so */
    ADMIN_LINE_BYTES = 1024,      /* of a request, with its newline */
    ADMIN_WORDS = 8,              /* of a request */
    ADMIN_ANSWER_BYTES = 4 << 20, /* of an answer; of a live one, what its reader has not taken yet */
    ADMIN_REQUEST_MS = 5000,      /* that a client may take to say what it wants, */
    ADMIN_STALLED_MS = 10000,     /* and to take some of its answer */
    ADMIN_TICK_MS = 50,           /* between two looks at what goes on */
};

/* How a command went; the answer's first word says so (admin_verdict_name). */
enum admin_verdict {
    ADMIN_OK,
    ADMIN_USAGE,   /* there is no such command, or its words are wrong */
    ADMIN_REFUSED, /* not now, or not this */
    ADMIN_DENIED,  /* not for this user */
    ADMIN_VERDICT_COUNT
};
const char *admin_verdict_name(int i); /* NULL beyond the last */

/* A command being run. */
struct admin_call {
    struct server *server;
    struct engine *engine; /* NULL while the model loads */
    bool is_json;
    int n_words;
    const char *words[ADMIN_WORDS]; /* [0] is the command's name */
    struct buf *out;                /* what is said beside the JSON that is returned: lines of a log */
    enum admin_verdict verdict;
    char why[256]; /* of admin_refuse */
    /* For a command that goes on: called about every ADMIN_TICK_MS, appends to out what there is to say and returns whether it
     * goes on; *last becomes JSON to be said at the end, or stays NULL. is_live: lines are sent as they come, without an end. */
    bool (*go_on)(struct admin_call *c, json_t **last);
    void (*end)(struct admin_call *c); /* OPTIONAL: frees `state`; also of a client that has left */
    void *state;
    bool is_live;
    uint64_t at; /* the command's own */
};

struct admin_command {
    const char *name;
    const char *words;                    /* what may stand behind it, "ID" */
    int least, most;                      /* how many */
    const char *help;                     /* one sentence */
    bool changes;                         /* it is logged */
    bool needs_engine;                    /* else it answers while the model loads, too */
    json_t *(*run)(struct admin_call *c); /* what to say; NULL: `out`, admin_refuse's, or go_on's to say */
};

/* The i-th row, in the order of help; NULL beyond the last. admin_name_at: its name. */
const struct admin_command *admin_at(int i);
const char *admin_name_at(int i);

/* The row of that name, or NULL. */
const struct admin_command *admin_find(const char *name);

/* Runs the command of c->words; what it returns is the caller's. Checks the words first. Sets the verdict. */
json_t *admin_run(struct admin_call *c);

/* Sets the verdict and why. Returns NULL, so that `return admin_refuse(...)` reads well. */
json_t *admin_refuse(struct admin_call *c, enum admin_verdict v, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Takes a line apart, which is changed: words stand between blanks; a first word `--json` asks for JSON. False: it holds no word, or
 * too many. */
bool admin_parse(char *line, struct admin_call *c);

/* Listens at path, mode 0600. A stale socket there is replaced. ERR_CONFIG, ERR_ADDRESS_IN_USE, ERR_IO, ERR_INTERNAL. */
MUST_CHECK enum err admin_start(const char *path, struct server *server, struct err_info *info);

/* Ends the thread, closes what is open and removes the socket. Before the engine is closed. Nothing when not started. */
void admin_stop(void);

/* The functions of the table. */
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
