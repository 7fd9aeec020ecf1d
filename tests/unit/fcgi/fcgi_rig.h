/* What the tests of fcgi/ share: a tiny model, a server on a socket of its own, and a FastCGI client
 * that speaks the protocol itself [FastCGI 1.0 specification, sections 3 to 5].
 * Threads: one test at a time; Check forks, so each test has its own server. */
#ifndef INFCGI_TESTS_FCGI_RIG_H
#define INFCGI_TESTS_FCGI_RIG_H

#include "engine/engine.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/server.h"

#include <jansson.h>

/* The model: 256 byte tokens, then <|im_start|> and <|im_end|> (the end token); no BOS. */
enum { RIG_VOCAB = 258, RIG_CTX = 128, RIG_EOS = 257 };

/* Writes it with one matrix of another type (enum dtype), whose values then mean nothing; the path, as folder_file's.
 */
const char *rig_model(uint32_t type);

/* Opens it; fails the running test when that fails. Close with engine_close. */
struct engine *rig_engine(void);

/* A server that answers with `handler`, and its end. */
void rig_listen(fastcgi_handler handler, void *arg);
void rig_stop(void);

/* The whole API: dispatch_request over rig_engine, with a ChatML template. is_loading: no engine yet. Ends with
 * rig_unserve. */
struct server *rig_serve(bool is_strict, bool is_loading);
/* The same over another model, on the ref back end; pooling: engine_config's. */
struct server *rig_serve_model(const char *path, const char *pooling);
void rig_unserve(void);

/* While no request runs: the server's engine is opened anew, with this chat template; NULL: with none. */
void rig_use_template(const char *source);

/* The same, once and for all: opened anew with more control tokens, NULL-terminated, 16 at most; "<s>" among them is a BOS that
 * prompts get. */
void rig_use_marks(const char *const *marks);

/* What came back. */
struct rig_reply {
    struct buf raw;   /* head and body, NUL-terminated */
    int status;       /* of the Status line; 0 = none */
    const char *body; /* in raw; NULL when the head has no end */
    size_t n_body;
    bool has_end; /* the server ended the request */
};

/* A socket connected to the server; the caller's. */
int rig_connect(void);

/* Connects and sends a request; extra: "NAME=value" parameters, NULL-terminated, may be NULL;
 * they go before CONTENT_LENGTH and the rest, so they win. Returns the socket. */
int rig_send(const char *method, const char *uri, const char *const *extra, const void *body, size_t n_body);
/* Reads to the end and closes the socket. */
void rig_receive(int fd, struct rig_reply *out);
void rig_reply_fini(struct rig_reply *r);

/* Both. */
void rig_call(const char *method, const char *uri, const char *const *extra, const void *body, size_t n_body,
              struct rig_reply *out);

/* The same, the body as JSON; what came back is kept until the next one, or rig_unserve. Returns the status. */
extern struct rig_reply rig_got;
extern json_t *rig_answer; /* NULL: the body is no JSON */
int rig_ask(const char *method, const char *uri, const char *const *extra, const char *body, size_t n);
int rig_post(const char *uri, const char *body);
int rig_get(const char *uri);

/* The member of the answer at a path like "choices.0.message", NULL when there is none; and, failing the running test
 * when there is none, a text or an integer. */
json_t *rig_at(const char *path);
const char *rig_text_at(const char *path);
json_int_t rig_number_at(const char *path);

/* JSON that is written with single quotation marks, into room for it; returns room. */
const char *rig_quotes(const char *text, char *room);

/* The request is the client's error: with this status, code and param (NULL: null). */
void rig_refuse(const char *uri, const char *body, int status, const char *code, const char *param);

#endif
