/* The tiny model is a Llama of one layer with weights from a fixed formula: what it says means nothing and never
 * changes. */
#include "tests/unit/fcgi/fcgi_rig.h"

#include "engine/base/utf8.h"
#include "fcgi/api/dispatch.h"
#include "fcgi/tables.h"
#include "tests/support/folder.h"
#include "tests/support/gguf_writer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WIDTH = 32, HEADS = 2, FF = 64, CONNECTIONS = 8, MOST_TOKENS = RIG_VOCAB + 16 };

static int listener = -1;
static struct conf conf;
static struct engine *served;

/* --- the model -------------------------------------------------------------------------------------------------- */

static void add_weight(struct gguf_writer *w, const char *name, uint64_t n_in, uint64_t n_out, uint32_t type)
{
    static float values[WIDTH * MOST_TOKENS];
    uint64_t n = n_in * (n_out > 0 ? n_out : 1), dims[2] = {n_in, n_out};
    uint32_t x = (uint32_t)strlen(name) * 2654435761u;
    ck_assert(n <= ARRAY_LEN(values));
    for (uint64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        values[i] = n_out == 0 ? 1.0f : ((float)(x >> 8) / 8388608.0f - 1.0f) * 0.5f;
    }
    gguf_writer_tensor(w, name, type, n_out == 0 ? 1 : 2, dims, values);
}

/* marks: NULL-terminated. */
static uint32_t n_tokens(const char *const *marks)
{
    uint32_t n = RIG_VOCAB;
    while (*marks++ != NULL) {
        n++;
    }
    ck_assert_uint_le(n, MOST_TOKENS);
    return n;
}

static void add_vocab(struct gguf_writer *w, const char *const *marks)
{
    static char texts[RIG_VOCAB][16];
    const char *tokens[MOST_TOKENS];
    int32_t kinds[MOST_TOKENS], bos = -1;
    uint32_t next = 256, n = n_tokens(marks);
    for (uint32_t b = 0; b < RIG_VOCAB; b++) { /* the alphabet of GPT-2's bytes_to_unicode */
        bool shown = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        texts[b][utf8_encode(shown ? b : next++, texts[b])] = '\0';
        tokens[b] = texts[b];
        kinds[b] = b < 256 ? 1 : 3; /* normal, control */
    }
    tokens[256] = "<|im_start|>";
    tokens[RIG_EOS] = "<|im_end|>";
    for (uint32_t i = RIG_VOCAB; i < n; i++) {
        tokens[i] = marks[i - RIG_VOCAB];
        kinds[i] = 3;
        bos = strcmp(tokens[i], "<s>") == 0 ? (int32_t)i : bos;
    }
    gguf_writer_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_str(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_writer_str_array(w, "tokenizer.ggml.tokens", n, tokens);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, n, kinds);
    gguf_writer_str_array(w, "tokenizer.ggml.merges", 0, NULL);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", RIG_EOS);
    if (bos >= 0) {
        gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    }
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", bos >= 0);
}

/* type: that of blk.0.ffn_down.weight; bytes of other types than F32 mean nothing. */
static void write_model(const char *path, uint32_t type, const char *const *marks)
{
    const struct {
        const char *name;
        uint64_t n_in, n_out; /* n_out 0: a vector */
    } weights[] = {
        {"token_embd.weight", WIDTH, n_tokens(marks)}, {"output_norm.weight", WIDTH, 0},
        {"blk.0.attn_norm.weight", WIDTH, 0},          {"blk.0.attn_q.weight", WIDTH, WIDTH},
        {"blk.0.attn_k.weight", WIDTH, WIDTH},         {"blk.0.attn_v.weight", WIDTH, WIDTH},
        {"blk.0.attn_output.weight", WIDTH, WIDTH},    {"blk.0.ffn_norm.weight", WIDTH, 0},
        {"blk.0.ffn_gate.weight", WIDTH, FF},          {"blk.0.ffn_up.weight", WIDTH, FF},
        {"blk.0.ffn_down.weight", FF, WIDTH},
    };
    struct gguf_writer w;
    struct buf bytes;
    gguf_writer_init(&w);
    buf_init(&bytes, 0, MEM_GENERAL);
    gguf_writer_str(&w, "general.architecture", "llama");
    gguf_writer_str(&w, "general.name", "Tiny");
    gguf_writer_u32(&w, "llama.embedding_length", WIDTH);
    gguf_writer_u32(&w, "llama.block_count", 1);
    gguf_writer_u32(&w, "llama.context_length", RIG_CTX);
    gguf_writer_u32(&w, "llama.feed_forward_length", FF);
    gguf_writer_u32(&w, "llama.attention.head_count", HEADS);
    gguf_writer_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    add_vocab(&w, marks);
    for (size_t i = 0; i < ARRAY_LEN(weights); i++) {
        add_weight(&w, weights[i].name, weights[i].n_in, weights[i].n_out,
                   i + 1 < ARRAY_LEN(weights) ? DTYPE_F32 : type);
    }
    gguf_writer_finish(&w, &bytes);
    ck_assert(gguf_writer_save(&bytes, path));
    gguf_writer_fini(&w);
    buf_fini(&bytes);
}

static const char *const no_marks[] = {NULL};

const char *rig_model(uint32_t type)
{
    const char *path = folder_file("model.gguf");
    write_model(path, type, no_marks);
    return path;
}

/* It shows no tools, and has the word: else they would be told in messages, for which the context has no room. */
static const char chatml[] = "{# no tools #}"
                             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* source: of the chat template, NULL = none. */
static struct engine *open_engine(const char *path, const char *pooling, const char *source)
{
    struct engine *e;
    struct err_info info = {0};
    struct engine_config cfg = {.model_path = path,
                                .backend = "ref",
                                .n_threads = 1,
                                .kv_tokens = 4096,
                                .pooling = pooling,
                                .chat_template = source != NULL ? folder_write_text("chat.jinja", source) : NULL};
    enum err err = engine_open(&cfg, &e, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", err_code(err), info.text);
    return e;
}

struct engine *rig_engine(void)
{
    const char *path = folder_file("tiny.gguf");
    write_model(path, DTYPE_F32, no_marks);
    return open_engine(path, NULL, chatml);
}

/* --- the server ------------------------------------------------------------------------------------------------- */

void rig_listen(fastcgi_handler handler, void *arg)
{
    struct err_info info = {0};
    ck_assert_msg(fastcgi_listen(folder_file("socket"), &listener, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(fastcgi_start(listener, CONNECTIONS, handler, arg, &info) == ERR_OK, "%s", info.text);
}

void rig_stop(void)
{
    fastcgi_stop();
    for (int i = 0; i < 500 && fastcgi_n_active() > 0; i++) {
        usleep(10000);
    }
    ck_assert_int_eq(fastcgi_n_active(), 0);
    close(listener);
    folder_remove();
}

static struct server *serve(struct engine *engine, bool is_strict, bool is_loading)
{
    conf = (struct conf){.body_limit_kib = 256, .ping_s = 1, .strict_api = is_strict, .reasoning_budget = -1};
    server_state = (struct server){.routes = routes_table,
                                   .n_routes = routes_n,
                                   .dialects = routes_dialects,
                                   .conf = &conf,
                                   .model_id = "tiny",
                                   .started = 1};
    served = engine;
    atomic_store(&server_state.engine, is_loading ? NULL : served);
    rig_listen(dispatch_request, &server_state);
    return &server_state;
}

struct server *rig_serve(bool is_strict, bool is_loading) { return serve(rig_engine(), is_strict, is_loading); }

struct server *rig_serve_model(const char *path, const char *pooling)
{
    return serve(open_engine(path, pooling, chatml), false, false);
}

struct rig_reply rig_got;
json_t *rig_answer;

static void forget(void)
{
    rig_reply_fini(&rig_got);
    json_decref(rig_answer);
    rig_got = (struct rig_reply){0};
    rig_answer = NULL;
}

void rig_unserve(void)
{
    forget();
    rig_stop();
    engine_close(&served);
}

void rig_use_template(const char *source)
{
    atomic_store(&server_state.engine, NULL);
    engine_close(&served);
    served = open_engine(folder_file("tiny.gguf"), NULL, source);
    atomic_store(&server_state.engine, served);
}

void rig_use_marks(const char *const *marks)
{
    atomic_store(&server_state.engine, NULL);
    engine_close(&served); /* which maps the file */
    write_model(folder_file("tiny.gguf"), DTYPE_F32, marks);
    rig_use_template(chatml);
}

/* --- the client ------------------------------------------------------------------------------------------------- */

enum { BEGIN = 1, END = 3, PARAMS = 4, STDIN = 5, STDOUT = 6, PART = 32768 };

static void put_record(struct buf *out, int type, const void *data, size_t n)
{
    const unsigned char head[8] = {1, (unsigned char)type, 0, 1, (unsigned char)(n >> 8), (unsigned char)n, 0, 0};
    buf_append(out, head, sizeof head);
    buf_append(out, data, n);
}

static void put_length(struct buf *out, size_t n)
{
    const unsigned char four[4] = {(unsigned char)(n >> 24 | 0x80), (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                   (unsigned char)n};
    buf_append(out, n < 128 ? &four[3] : four, n < 128 ? 1 : 4);
}

static void put_param(struct buf *out, const char *name, size_t n_name, const char *value)
{
    put_length(out, n_name);
    put_length(out, strlen(value));
    buf_append(out, name, n_name);
    buf_puts(out, value);
}

static void put_request(struct buf *out, const char *method, const char *uri, const char *const *extra,
                        const void *body, size_t n)
{
    static const unsigned char responder[8] = {0, 1, 0};
    struct buf params;
    char length[32];
    buf_init(&params, 0, MEM_GENERAL);
    snprintf(length, sizeof length, "%zu", n);
    for (; extra != NULL && *extra != NULL; extra++) {
        size_t n_name = strcspn(*extra, "=");
        put_param(&params, *extra, n_name, *extra + n_name + 1);
    }
    put_param(&params, "REQUEST_METHOD", 14, method);
    put_param(&params, "REQUEST_URI", 11, uri);
    put_param(&params, "CONTENT_TYPE", 12, "application/json");
    const char *query = strchr(uri, '?');
    if (query != NULL) {
        put_param(&params, "QUERY_STRING", 12, query + 1);
    }
    put_param(&params, "CONTENT_LENGTH", 14, length);
    put_record(out, BEGIN, responder, sizeof responder);
    put_record(out, PARAMS, params.data, params.len);
    put_record(out, PARAMS, "", 0);
    for (size_t at = 0; at < n; at += PART) {
        put_record(out, STDIN, (const char *)body + at, MIN_OF(n - at, (size_t)PART));
    }
    put_record(out, STDIN, "", 0);
    buf_fini(&params);
}

int rig_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", folder_file("socket"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

int rig_send(const char *method, const char *uri, const char *const *extra, const void *body, size_t n_body)
{
    int fd = rig_connect();
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    put_request(&out, method, uri, extra, body, n_body);
    for (size_t at = 0; at < out.len;) { /* a server that has read enough may close before all is sent */
        ssize_t n = send(fd, out.data + at, out.len - at, MSG_NOSIGNAL);
        if (n <= 0) {
            break;
        }
        at += (size_t)n;
    }
    buf_fini(&out);
    return fd;
}

static bool read_exactly(int fd, void *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = recv(fd, (char *)to + at, n - at, 0);
        if (k <= 0) {
            return false;
        }
        at += (size_t)k;
    }
    return true;
}

void rig_receive(int fd, struct rig_reply *out)
{
    static unsigned char data[65536 + 256];
    unsigned char head[8];
    *out = (struct rig_reply){0};
    buf_init(&out->raw, 0, MEM_GENERAL);
    while (!out->has_end && read_exactly(fd, head, sizeof head)) {
        size_t n = (size_t)head[4] << 8 | head[5];
        if (!read_exactly(fd, data, n + head[6])) {
            break;
        }
        if (head[1] == STDOUT) {
            buf_append(&out->raw, data, n);
        }
        out->has_end = head[1] == END;
    }
    close(fd);
    buf_putc(&out->raw, '\0');
    out->raw.len--;
    if (strncmp(out->raw.data, "Status: ", 8) == 0) {
        out->status = (int)strtol(out->raw.data + 8, NULL, 10);
    }
    const char *end = strstr(out->raw.data, "\r\n\r\n");
    if (end != NULL) {
        out->body = end + 4;
        out->n_body = out->raw.len - (size_t)(out->body - out->raw.data);
    }
}

void rig_reply_fini(struct rig_reply *r) { buf_fini(&r->raw); }

void rig_call(const char *method, const char *uri, const char *const *extra, const void *body, size_t n_body,
              struct rig_reply *out)
{
    rig_receive(rig_send(method, uri, extra, body, n_body), out);
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

int rig_ask(const char *method, const char *uri, const char *const *extra, const char *body, size_t n)
{
    forget();
    rig_call(method, uri, extra, body, n, &rig_got);
    ck_assert_msg(rig_got.has_end && rig_got.body != NULL, "%s %s: cut off", method, uri);
    rig_answer = json_loadb(rig_got.body, rig_got.n_body, JSON_ALLOW_NUL, NULL);
    return rig_got.status;
}

int rig_post(const char *uri, const char *body) { return rig_ask("POST", uri, NULL, body, strlen(body)); }
int rig_get(const char *uri) { return rig_ask("GET", uri, NULL, "", 0); }

json_t *rig_at(const char *path)
{
    json_t *v = rig_answer;
    char part[64];
    for (const char *p = path; v != NULL && *p != '\0';) {
        size_t n = strcspn(p, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, p);
        v = json_is_array(v) ? json_array_get(v, strtoul(part, NULL, 10)) : json_object_get(v, part);
        p += n + (p[n] == '.');
    }
    return v;
}

const char *rig_text_at(const char *path)
{
    const char *s = json_string_value(rig_at(path));
    ck_assert_msg(s != NULL, "no text at %s in %s", path, rig_got.body);
    return s;
}

json_int_t rig_number_at(const char *path)
{
    ck_assert_msg(json_is_integer(rig_at(path)), "no integer at %s in %s", path, rig_got.body);
    return json_integer_value(rig_at(path));
}

const char *rig_quotes(const char *text, char *room)
{
    char *at = room;
    for (; *text != '\0'; text++) {
        *at++ = *text == '\'' ? '"' : *text;
    }
    *at = '\0';
    return room;
}

void rig_refuse(const char *uri, const char *body, int status, const char *code, const char *param)
{
    int found = rig_post(uri, body);
    ck_assert_msg(found == status && rig_answer != NULL, "%s %.200s: expected %d, found %d %s", uri, body, status,
                  found, rig_got.body);
    ck_assert_msg(strcmp(rig_text_at("error.code"), code) == 0, "%s %.200s: %s", uri, body, rig_got.body);
    if (param == NULL) {
        ck_assert_msg(json_is_null(rig_at("error.param")), "%s %.200s: %s", uri, body, rig_got.body);
    } else {
        ck_assert_msg(strcmp(rig_text_at("error.param"), param) == 0, "%s %.200s: %s", uri, body, rig_got.body);
    }
    bool is_llama = strncmp(uri, "/v1/", 4) != 0 && strncmp(uri, "/v2/", 4) != 0; /* whose types are others */
    const char *type = is_llama && status == 404                                  ? "not_found_error"
                       : is_llama && strcmp(code, "context_length_exceeded") == 0 ? "exceed_context_size_error"
                                                                                  : "invalid_request_error";
    ck_assert_str_eq(rig_text_at("error.type"), type);
    ck_assert_msg(strlen(rig_text_at("error.message")) > 10, "%s", rig_got.body);
}

/* --- readers of bodies ------------------------------------------------------------------------------------------ */

void rig_begin(struct call *c, bool is_strict)
{
    static struct conf own;
    static struct server server = {.conf = &own, .model_id = "tiny"};
    own.strict_api = is_strict;
    *c = (struct call){.server = &server, .engine = rig_engine()};
    arena_init(&c->arena, 0, 0, MEM_REQUEST);
}

void rig_end(struct call *c)
{
    call_drop_json(c);
    arena_fini(&c->arena);
    engine_close(&c->engine);
}

static void show_tools(const struct tools *t, json_t *out)
{
    json_t *name = json_array_get(t->allowed, 0);
    if (t->list != NULL) {
        json_object_set(out, "tools", t->list);
    }
    if (t->is_named) {
        ck_assert(t->mode == TOOLS_REQUIRED && json_array_size(t->allowed) == 1);
        json_object_set_new(out, "tool_choice",
                            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    } else if (t->mode != TOOLS_AUTO) {
        json_object_set_new(out, "tool_choice", json_string(t->mode == TOOLS_NONE ? "none" : "required"));
    }
    if (t->is_parallel || t->is_separate) {
        json_object_set_new(out, "parallel_tool_calls", json_boolean(t->is_parallel));
    }
}

static void show_form(const struct constraint *c, json_t *out)
{
    if (c->kind == CONSTRAINT_OBJECT) {
        json_object_set_new(out, "response_format", json_pack("{s:s}", "type", "json_object"));
    } else if (c->kind == CONSTRAINT_SCHEMA) {
        json_object_set_new(
            out, "response_format",
            json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", (json_t *)c->value));
    }
}

static void show_settings(const struct call *c, const struct params *p, json_t *out)
{
    struct params absent;
    params_init(&absent, c);
    const struct sampler_params *s = &p->gen.sampling, *no = &absent.gen.sampling;
    const struct {
        const char *name;
        double is, was;
    } rows[] = {{"temperature", s->temperature, no->temperature},
                {"top_p", s->top_p, no->top_p},
                {"top_k", s->top_k, no->top_k},
                {"seed", s->seed < 1000 ? (double)s->seed : -1, -1}, /* the default is drawn */
                {"max_tokens", p->gen.max_tokens, -1},
                {"thinking_token_budget", (double)p->think_budget, -1}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].is != rows[i].was) {
            bool is_whole = rows[i].is == (double)(int)rows[i].is;
            json_object_set_new(out, rows[i].name,
                                is_whole ? json_integer((json_int_t)rows[i].is) : json_real(rows[i].is));
        }
    }
    if (p->stream) {
        json_object_set_new(out, "stream", json_true());
    }
    for (size_t i = 0; i < p->gen.n_stop; i++) {
        if (i == 0) {
            json_object_set_new(out, "stop", json_array());
        }
        json_array_append_new(json_object_get(out, "stop"), json_stringn(p->gen.stop[i], p->gen.stop_len[i]));
    }
}

json_t *rig_show(const struct call *c, const struct params *p)
{
    json_t *out = json_pack("{s:O*, s:O*, s:s*, s:s*}", "messages", p->messages, "chat_template_kwargs", p->kwargs,
                            "reasoning_effort", p->effort, "model", p->model);
    ck_assert_ptr_nonnull(out);
    show_tools(&p->tools, out);
    show_form(&p->constraint, out);
    show_settings(c, p, out);
    return out;
}
