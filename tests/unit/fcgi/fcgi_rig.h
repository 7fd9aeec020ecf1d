/* Shared by the tests of fcgi/: a tiny model, a server on its own socket, and a FastCGI client that implements the
 * protocol itself [FastCGI 1.0 specification, sections 3 to 5].
 * Threads: one test at a time; Check forks, so each test has its own server. */
#ifndef INFCGI_TESTS_FCGI_RIG_H
#define INFCGI_TESTS_FCGI_RIG_H

#include "engine/engine.h"
#include "fcgi/api/params.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/server.h"

#include <jansson.h>

/* The model: 256 byte tokens, then <|im_start|> and <|im_end|> (the end token); no BOS. */
enum { RIG_VOCAB = 258, RIG_CTX = 128, RIG_EOS = 257 };

/* Writes it with one matrix of another type (enum dtype), whose values are then meaningless; returns the path like
 * folder_file. */
const char *rig_model(uint32_t type);

/* Opens it; a failure fails the running test. Close with engine_close. */
struct engine *rig_engine(void);

/* Start a server that answers with `handler`; stop it. */
void rig_listen(fastcgi_handler handler, void *arg);
void rig_stop(void);

/* Starts the whole API: dispatch_request over rig_engine, with a ChatML template. is_loading: no engine yet. Stop it
 * with rig_unserve. */
struct server *rig_serve(bool is_strict, bool is_loading);
/* Likewise for another model, on the ref back end; pooling: as in engine_config. */
struct server *rig_serve_model(const char *path, const char *pooling);
void rig_unserve(void);

/* Reopens the server's engine with this chat template, while no request runs; NULL: with none. */
void rig_use_template(const char *source);

/* Reopens it permanently with more control tokens, NULL-terminated, at most 16; "<s>" among them is a BOS that prompts
 * get. */
void rig_use_marks(const char *const *marks);

/* A reply. */
struct rig_reply {
    struct buf raw;   /* head and body, NUL-terminated */
    int status;       /* of the Status line; 0: none */
    const char *body; /* in raw; NULL: the head has no end */
    size_t n_body;
    bool has_end; /* the server ended the request */
};

/* Returns a socket connected to the server; the caller closes it. */
int rig_connect(void);

/* Connects and sends a request. extra: "NAME=value" parameters, NULL-terminated, can be NULL; they precede
 * CONTENT_LENGTH and the other parameters, so they override these. Returns the socket. */
int rig_send(const char *method, const char *uri, const char *const *extra, const void *body, size_t n_body);
/* Reads to the end and closes the socket. */
void rig_receive(int fd, struct rig_reply *out);
void rig_reply_fini(struct rig_reply *r);

/* Sends a request and receives the reply. */
void rig_call(const char *method, const char *uri, const char *const *extra, const void *body, size_t n_body,
              struct rig_reply *out);

/* Likewise, with the body parsed as JSON; the reply is kept until the next call or rig_unserve. Returns the status. */
extern struct rig_reply rig_got;
extern json_t *rig_answer; /* NULL: the body is not JSON */
int rig_ask(const char *method, const char *uri, const char *const *extra, const char *body, size_t n);
int rig_post(const char *uri, const char *body);
int rig_get(const char *uri);

/* Return the member of the answer at a path like "choices.0.message": NULL if missing; or a text or an integer, which
 * fail the running test if missing. */
json_t *rig_at(const char *path);
const char *rig_text_at(const char *path);
json_int_t rig_number_at(const char *path);

/* Begin a call without a connection, for readers of bodies: with rig_engine. rig_end frees its JSON and arena. */
void rig_begin(struct call *c, bool is_strict);
void rig_end(struct call *c);

/* Returns a chat's parts and the settings that differ from the defaults as a body of /v1/chat/completions. */
json_t *rig_show(const struct call *c, const struct params *p);

/* Writes JSON that is given with single quotation marks to room; returns room. */
const char *rig_quotes(const char *text, char *room);

/* Checks that the request is rejected with this status, code and param (NULL: null). */
void rig_refuse(const char *uri, const char *body, int status, const char *code, const char *param);

#endif
