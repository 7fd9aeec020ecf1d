/* `infcgi chat`: a conversation at a terminal, with the model in this process. Lines that begin with / are commands.
 * Ctrl-C stops an answer and keeps the text so far. */
#include "engine/base/mem.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/prompt.h"

#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct chat {
    const struct conf *conf;
    struct engine *engine;
    json_t *messages; /* conversation so far */
    bool is_over;
};

static atomic_bool is_interrupted;

static void on_interrupt(int number)
{
    (void)number;
    atomic_store(&is_interrupted, true);
}

/* --- answers ------------------------------------------------------------------------------------------------------- */

static bool add_message(struct chat *c, const char *role, const char *text, size_t n)
{
    json_t *content = json_stringn(text, n); /* NULL: invalid UTF-8 */
    return content != NULL &&
           json_array_append_new(c->messages, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0;
}

static void drop_last(struct chat *c)
{
    size_t n = json_array_size(c->messages);
    if (n > 0) {
        (void)json_array_remove(c->messages, n - 1);
    }
}

static const char *last_role(const struct chat *c)
{
    size_t n = json_array_size(c->messages);
    const char *role = n > 0 ? json_string_value(json_object_get(json_array_get(c->messages, n - 1), "role")) : NULL;
    return role != NULL ? role : "";
}

/* Prints and keeps the generated text. */
static enum err take_answer(struct engine_stream *s, struct buf *said, struct err_info *info)
{
    struct engine_event ev = {0};
    enum err err = ERR_OK;
    bool is_cancelled = false;
    while (err == ERR_OK && ev.kind != SCHED_END) {
        if (atomic_load(&is_interrupted) && !is_cancelled) {
            engine_cancel(s);
            is_cancelled = true;
        }
        err = engine_next(s, 50, &ev);
        if (err == ERR_OK && ev.text_len > 0) {
            fwrite(ev.text, 1, ev.text_len, stdout);
            (void)fflush(stdout);
            buf_append(said, ev.text, ev.text_len);
        }
        err = err == ERR_AGAIN ? ERR_OK : err;
    }
    if (err == ERR_OK && ev.err != ERR_OK && !is_cancelled) {
        err = ev.err;
        *info = ev.why != NULL ? *ev.why : *info;
    }
    puts("");
    return err != ERR_OK ? err : buf_ok(said);
}

/* Generates an answer to the conversation. */
static enum err answer(struct chat *c, struct err_info *info)
{
    struct arena arena;
    struct engine_params p;
    struct engine_stream *s = NULL;
    struct buf said;
    int32_t *ids;
    size_t n;
    json_t *context = engine_chat_context(c->engine, c->messages, true);
    engine_params_init(c->engine, &p);
    p.max_tokens = (int32_t)c->conf->answer_tokens;
    p.sampling.seed = c->conf->seed != 0 ? (uint64_t)c->conf->seed : p.sampling.seed;
    arena_init(&arena, 0, 0, MEM_REQUEST);
    buf_init(&said, 0, MEM_REQUEST);
    atomic_store(&is_interrupted, false);
    enum err err = context == NULL ? ERR_NOMEM : engine_chat(c->engine, context, &arena, &ids, &n, info);
    err = err != ERR_OK ? err : engine_submit(c->engine, ids, n, &p, &s, info);
    err = err != ERR_OK ? err : take_answer(s, &said, info);
    if (err == ERR_OK && !add_message(c, "assistant", said.data != NULL ? said.data : "", said.len)) {
        err = ERR_NOMEM;
    }
    engine_stream_close(&s);
    buf_fini(&said);
    arena_fini(&arena);
    json_decref(context);
    return err;
}

/* Like answer, but reports errors and then drops the question. Returns false if no further answer is possible. */
static bool try_answer(struct chat *c)
{
    struct err_info info = {0};
    enum err err = answer(c, &info);
    if (err != ERR_OK) {
        fprintf(stderr, "error: %s: %s\n", err_code(err), info.text[0] != '\0' ? info.text : err_text(err));
        drop_last(c);
    }
    return err == ERR_OK;
}

/* --- commands --------------------------------------------------------------------------------------------------------- */

static bool on_reset(struct chat *c, const char *arg)
{
    (void)arg;
    json_array_clear(c->messages);
    if (c->conf->system != NULL) {
        (void)add_message(c, "system", c->conf->system, strlen(c->conf->system));
    }
    return true;
}

static bool on_save(struct chat *c, const char *arg)
{
    if (json_dump_file(c->messages, arg, JSON_INDENT(1)) != 0) {
        fprintf(stderr, "error: %s cannot be written\n", arg);
        return false;
    }
    return true;
}

/* Returns whether v is an array of messages with text roles and contents. */
static bool is_conversation(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *m = json_array_get(v, i);
        if (!json_is_string(json_object_get(m, "role")) || !json_is_string(json_object_get(m, "content"))) {
            return false;
        }
    }
    return json_is_array(v);
}

static bool on_load(struct chat *c, const char *arg)
{
    json_error_t why;
    json_t *v = json_load_file(arg, JSON_REJECT_DUPLICATES, &why);
    if (!is_conversation(v)) {
        fprintf(stderr,
                "error: %s: expected a JSON array of messages with role and content, as /save writes, found %s\n", arg,
                v != NULL ? "another" : why.text);
        json_decref(v);
        return false;
    }
    json_decref(c->messages);
    c->messages = v;
    printf("%zu messages\n", json_array_size(v));
    return true;
}

static bool on_regen(struct chat *c, const char *arg)
{
    (void)arg;
    if (strcmp(last_role(c), "assistant") != 0) {
        fprintf(stderr, "error: there is no answer to make again\n");
        return false;
    }
    drop_last(c);
    return try_answer(c);
}

static bool on_quit(struct chat *c, const char *arg)
{
    (void)arg;
    c->is_over = true;
    return true;
}

static bool on_help(struct chat *c, const char *arg);

static const struct {
    const char *name, *arg, *help;
    bool (*run)(struct chat *c, const char *arg);
} commands[] = {
    {"/reset", "", "forget the conversation, except --system", on_reset},
    {"/regen", "", "answer the last question again", on_regen},
    {"/save", "FILE", "write the conversation as JSON", on_save},
    {"/load", "FILE", "continue a saved conversation", on_load},
    {"/help", "", "this list", on_help},
    {"/quit", "", "leave, as Ctrl-D does", on_quit},
};

static bool on_help(struct chat *c, const char *arg)
{
    (void)c;
    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        printf("%-6s %-4s  %s\n", commands[i].name, commands[i].arg, commands[i].help);
    }
    puts("Ctrl-C ends an answer.");
    return true;
}

static bool run_command(struct chat *c, const char *line)
{
    size_t n = strcspn(line, " ");
    const char *arg = line + n + strspn(line + n, " ");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strlen(commands[i].name) == n && memcmp(commands[i].name, line, n) == 0) {
            if ((commands[i].arg[0] != '\0') != (arg[0] != '\0')) {
                fprintf(stderr, "error: expected %s%s%s\n", commands[i].name, commands[i].arg[0] != '\0' ? " " : "",
                        commands[i].arg);
                return false;
            }
            return commands[i].run(c, arg);
        }
    }
    fprintf(stderr, "error: no such command: %.*s; /help lists them\n", (int)MIN_OF(n, (size_t)40), line);
    return false;
}

static bool run_line(struct chat *c, const char *line)
{
    if (line[0] == '\0') {
        return true;
    }
    if (line[0] == '/') {
        return run_command(c, line);
    }
    if (!add_message(c, "user", line, strlen(line))) {
        fprintf(stderr, "error: expected UTF-8\n");
        return false;
    }
    return try_answer(c);
}

/* --- the command ------------------------------------------------------------------------------------------------------- */

/* Reads lines until the end. Without a terminal, a failed line sets the status for bad data. */
static int converse(struct chat *c, struct err_info *info)
{
    struct prompt *p;
    enum err err = prompt_open(c->conf->history, &p, info);
    if (err != ERR_OK) {
        return cmd_fail(c->conf, err, info);
    }
    bool is_fine = true, is_typed = prompt_is_typed(p);
    if (is_typed) {
        printf("%s; /help lists commands, Ctrl-C ends an answer, Ctrl-D leaves\n", engine_model(c->engine)->name);
    }
    for (const char *line; !c->is_over && (line = prompt_line(p, "> ")) != NULL;) {
        is_fine = run_line(c, line) && is_fine;
        (void)fflush(stdout);
    }
    prompt_close(&p);
    return is_fine || is_typed ? CMD_OK : CMD_BAD_DATA;
}

int cmd_chat(const struct program *p, struct conf *conf)
{
    struct err_info info = {0};
    struct engine_config cfg = cmd_engine_config(conf);
    struct chat chat = {.conf = conf, .messages = json_array()};
    struct sigaction action = {.sa_handler = on_interrupt};
    int rc;
    (void)p;
    cfg.max_seqs = 1;
    enum err err = cmd_open_engine(&cfg, &chat.engine, &info);
    err = err != ERR_OK ? err : engine_check_generates(chat.engine, &info);
    if (err == ERR_OK) {
        (void)sigaction(SIGINT, &action, NULL);
        (void)on_reset(&chat, "");
        rc = converse(&chat, &info);
    } else {
        rc = cmd_fail(conf, err, &info);
    }
    engine_close(&chat.engine);
    json_decref(chat.messages);
    return rc;
}
