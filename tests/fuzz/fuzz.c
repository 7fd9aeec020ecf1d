/* What the targets share. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/chat/chat_template.h"
#include "engine/engine.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 16 };

const struct fuzz_target *fuzz_start(const char *name)
{
    json_number_use_mem();
    for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++) {
        if (strcmp(t->name, name) == 0) {
            t->run((const unsigned char *)"", 0);
            return t;
        }
    }
    return NULL;
}

void fuzz_run(const struct fuzz_target *t, const unsigned char *data, size_t n)
{
    size_t before = mem_live();
    t->run(data, n);
    if (mem_live() != before) {
        fprintf(stderr, "ERROR: %s: %zu bytes held before, %zu after\n", t->name, before, mem_live());
        abort();
    }
}

bool fuzz_is_ok(enum err err, const struct err_info *info)
{
    if (err != ERR_OK && err != ERR_NOMEM) {
        assert(info->code == err && info->text[0] != '\0');
        assert(strchr(info->text, '\n') == NULL && utf8_valid(info->text, strlen(info->text), NULL));
        assert(utf8_valid(info->where, strlen(info->where), NULL));
    }
    return err == ERR_OK;
}

struct gguf_str fuzz_part(const unsigned char **data, size_t *n)
{
    struct gguf_str s = {(const char *)*data, *n};
    const unsigned char *end = *n > 0 ? memchr(*data, 0, *n) : NULL;
    size_t used = *n;
    if (end != NULL) {
        s.len = (size_t)(end - *data);
        used = s.len + 1;
    }
    *data += used;
    *n -= used;
    return s;
}

/* --- models ------------------------------------------------------------------------------------------------------- */

/* Where bytes are read to, so that a sanitizer sees it. */
static volatile unsigned char sink;

static void look_at(const void *data, uint64_t n)
{
    if (n > 0) {
        sink = ((const unsigned char *)data)[0];
        sink = ((const unsigned char *)data)[n - 1];
    }
}

static void look_at_key(const struct gguf_kv *kv)
{
    const unsigned char *cursor = kv->data;
    look_at(kv->key.data, kv->key.len);
    for (uint64_t i = 0; i < kv->n && kv->elem_type == GGUF_STRING; i++) {
        struct gguf_str s = gguf_next_str(&cursor);
        look_at(s.data, s.len);
    }
    for (uint64_t i = 0; i < kv->n && kv->elem_type != GGUF_STRING; i++) {
        (void)gguf_elem_i64(kv, i);
        (void)gguf_elem_f64(kv, i);
    }
}

/* What was encoded decodes to whole UTF-8 sequences. */
static void encode(const struct tokenizer *t, struct gguf_str text, unsigned flags)
{
    struct token_list ids = {0};
    struct detokenizer d = {0};
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    enum err err = tokenizer_encode(
        t, &(struct tokenizer_text){.s = text.data, .n = text.len, .flags = flags, .max_tokens = MAX_TOKENS}, &ids,
        NULL);
    assert(err == ERR_OK || (ids.n == 0 && (err == ERR_PATTERN_LIMIT || err == ERR_CONTEXT_LENGTH)));
    for (size_t i = 0; i < ids.n; i++) {
        assert(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_vocab(t));
        detokenizer_push(&d, t, ids.ids[i], true, &out);
        assert(out.len == 0 || utf8_valid(out.data, out.len, NULL));
        buf_reset(&out);
    }
    detokenizer_finish(&d, &out);
    assert(out.len == 0 || utf8_valid(out.data, out.len, NULL));
    buf_fini(&out);
    token_list_fini(&ids);
}

void fuzz_use_model(const struct gguf *g, struct gguf_str text)
{
    struct err_info info = {0};
    struct tokenizer *t;
    struct chat_template *c;
    struct gguf_str source;
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        look_at_key(gguf_kv_at(g, i));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *w = gguf_tensor_at(g, i);
        look_at(w->name.data, w->name.len);
        if (w->data != NULL) {
            look_at(w->data, w->bytes);
        }
    }
    if (fuzz_is_ok(tokenizer_new(g, &t, &info), &info)) {
        encode(t, text, TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL);
        encode(t, text, 0);
        tokenizer_free(&t);
    }
    info = (struct err_info){0};
    if (fuzz_is_ok(gguf_get_str_or_null(g, "tokenizer.chat_template", &source, &info), &info) && source.data != NULL &&
        fuzz_is_ok(chat_template_new(source.data, source.len, &c, &info), &info)) {
        chat_template_free(&c);
    }
}

static struct engine *engine;

static void close_engine(void) { engine_close(&engine); }

struct engine *fuzz_engine(void)
{
    if (engine == NULL) {
        struct err_info info = {0};
        const struct engine_config cfg = {
            .model_path = "tests/golden/models/llama-biases.gguf", .backend = "ref", .n_threads = 1, .kv_tokens = 1024};
        enum err err = engine_open(&cfg, &engine, &info);
        assert(err == ERR_OK);
        atexit(close_engine);
    }
    return engine;
}
