/* Writes the few records of a GGUF version 3 file that a tokenizer reads. */
#include "tests/unit/tokenizer/vocab_file.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static void put(struct buf *b, uint64_t value, size_t bytes) { buf_append(b, &value, bytes); } /* little-endian hosts */

static void put_string(struct buf *b, const char *s, size_t n)
{
    put(b, n, 8);
    buf_append(b, s, n);
}

int32_t vocab_add(struct vocab *v, const char *text, size_t n, int kind, float score)
{
    put_string(&v->tokens, text, n);
    put(&v->kinds, (uint32_t)kind, 4);
    buf_append(&v->scores, &score, 4);
    v->n_kinds++;
    v->n_scores++;
    return (int32_t)v->n_tokens++;
}

void vocab_add_merge(struct vocab *v, const char *merge, size_t n)
{
    put_string(&v->merges, merge, n);
    v->n_merges++;
}

static void start(struct vocab *v)
{
    struct buf *bufs[] = {&v->tokens, &v->kinds, &v->scores, &v->merges, &v->charsmap, &v->file};
    *v = (struct vocab){.drops_spaces = -1,
                        .lowers = -1,
                        .bos = VOCAB_NO_ID,
                        .eos = VOCAB_NO_ID,
                        .unk = VOCAB_NO_ID,
                        .pad = VOCAB_NO_ID,
                        .add_bos = -1,
                        .add_eos = -1,
                        .add_space_prefix = -1,
                        .tokens_type = GGUF_STRING,
                        .kinds_type = GGUF_I32,
                        .scores_type = GGUF_F32,
                        .merges_type = GGUF_STRING};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) {
        buf_init(bufs[i], 0, MEM_GENERAL);
    }
}

void vocab_bpe(struct vocab *v, const char *pre)
{
    start(v);
    v->model = "gpt2";
    v->pre = pre;
    v->scores_type = GGUF_ARRAY;
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) { /* the alphabet of GPT-2's bytes_to_unicode */
        bool shown = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char s[4];
        size_t n = utf8_encode(shown ? b : next++, s);
        vocab_add(v, s, n, TOKEN_NORMAL, 0);
    }
}

void vocab_spm(struct vocab *v)
{
    start(v);
    v->model = "llama";
    v->merges_type = GGUF_ARRAY;
    v->unk = vocab_add(v, "<unk>", 5, TOKEN_UNKNOWN, 0);
    v->bos = vocab_add(v, "<s>", 3, TOKEN_CONTROL, 0);
    v->eos = vocab_add(v, "</s>", 4, TOKEN_CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        char s[8];
        vocab_add(v, s, (size_t)snprintf(s, sizeof s, "<0x%02X>", b), TOKEN_BYTE, 0);
    }
}

void vocab_plain(struct vocab *v, const char *model)
{
    start(v);
    v->model = model;
    v->merges_type = GGUF_ARRAY;
    v->unk = vocab_add(v, "<unk>", 5, TOKEN_UNKNOWN, 0);
    v->bos = vocab_add(v, "<s>", 3, TOKEN_CONTROL, 0);
    v->eos = vocab_add(v, "</s>", 4, TOKEN_CONTROL, 0);
    if (strcmp(model, "bert") == 0) {
        v->scores_type = GGUF_ARRAY;
    }
}

void vocab_fini(struct vocab *v)
{
    tokenizer_free(&v->t);
    gguf_close(&v->g);
    struct buf *bufs[] = {&v->tokens, &v->kinds, &v->scores, &v->merges, &v->charsmap, &v->file};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) {
        buf_fini(bufs[i]);
    }
}

static void put_key(struct buf *b, uint64_t *n, const char *key, enum gguf_type type)
{
    put_string(b, key, strlen(key));
    put(b, type, 4);
    *n += 1;
}

static void put_text(struct buf *b, uint64_t *n, const char *key, const char *value)
{
    if (value != NULL) {
        put_key(b, n, key, GGUF_STRING);
        put_string(b, value, strlen(value));
    }
}

static void put_array(struct buf *b, uint64_t *n, const char *key, enum gguf_type type, uint64_t count,
                      const struct buf *data)
{
    if (type != GGUF_ARRAY) {
        put_key(b, n, key, GGUF_ARRAY);
        put(b, type, 4);
        put(b, count, 8);
        buf_append(b, data->data, data->len);
    }
}

static void put_patterns(struct buf *b, uint64_t *n, const struct vocab *v)
{
    size_t count = 0;
    while (v->patterns[count] != NULL) {
        count++;
    }
    if (count == 1) {
        put_text(b, n, "infcgi.tokenizer.pattern", v->patterns[0]);
    } else if (count > 1) {
        put_key(b, n, "infcgi.tokenizer.pattern", GGUF_ARRAY);
        put(b, GGUF_STRING, 4);
        put(b, count, 8);
        for (size_t i = 0; i < count; i++) {
            put_string(b, v->patterns[i], strlen(v->patterns[i]));
        }
    }
}

static void put_id(struct buf *b, uint64_t *n, const char *key, int64_t id)
{
    if (id != VOCAB_NO_ID) {
        put_key(b, n, key, id < 0 ? GGUF_I32 : GGUF_U32);
        put(b, (uint64_t)id, 4);
    }
}

static void put_flag(struct buf *b, uint64_t *n, const char *key, int value)
{
    if (value >= 0) {
        put_key(b, n, key, GGUF_BOOL);
        put(b, (uint64_t)value, 1);
    }
}

/* token_embd.weight [rows][32] of f32 zeros: directory entry and data. */
static void put_embedding(struct buf *b, uint64_t rows)
{
    put_string(b, "token_embd.weight", 17);
    put(b, 2, 4);
    put(b, 32, 8);
    put(b, rows, 8);
    put(b, 0, 4);
    put(b, 0, 8);
    while (b->len % 32 != 0) {
        put(b, 0, 1);
    }
    for (uint64_t i = 0; i < rows * 32; i++) {
        put(b, 0, 4);
    }
}

enum err vocab_load(struct vocab *v, struct err_info *info)
{
    struct buf kv;
    uint64_t n = 0;
    buf_init(&kv, 0, MEM_GENERAL);
    put_text(&kv, &n, "general.architecture", "llama");
    put_text(&kv, &n, "tokenizer.ggml.model", v->model);
    put_text(&kv, &n, "tokenizer.ggml.pre", v->pre);
    put_text(&kv, &n, "tokenizer.chat_template", v->chat_template);
    put_array(&kv, &n, "tokenizer.ggml.tokens", v->tokens_type, v->n_tokens, &v->tokens);
    put_array(&kv, &n, "tokenizer.ggml.token_type", v->kinds_type, v->n_kinds, &v->kinds);
    put_array(&kv, &n, "tokenizer.ggml.scores", v->scores_type, v->n_scores, &v->scores);
    put_array(&kv, &n, "tokenizer.ggml.merges", v->merges_type, v->n_merges, &v->merges);
    put_patterns(&kv, &n, v);
    put_text(&kv, &n, "infcgi.tokenizer.normal_form", v->normal_form);
    if (v->charsmap.len > 0) {
        put_array(&kv, &n, "tokenizer.ggml.precompiled_charsmap", GGUF_I8, v->charsmap.len, &v->charsmap);
    }
    put_flag(&kv, &n, "tokenizer.ggml.remove_extra_whitespaces", v->drops_spaces);
    put_flag(&kv, &n, "tokenizer.ggml.normalizer.lowercase", v->lowers);
    put_id(&kv, &n, "tokenizer.ggml.bos_token_id", v->bos);
    put_id(&kv, &n, "tokenizer.ggml.eos_token_id", v->eos);
    put_id(&kv, &n, "tokenizer.ggml.unknown_token_id", v->unk);
    put_id(&kv, &n, "tokenizer.ggml.padding_token_id", v->pad);
    if (v->normalized != 0) {
        put_key(&kv, &n, "infcgi.tokenizer.normalized_ids", GGUF_ARRAY);
        put(&kv, GGUF_U32, 4);
        put(&kv, 1, 8);
        put(&kv, (uint64_t)v->normalized, 4);
    }
    put_flag(&kv, &n, "tokenizer.ggml.add_bos_token", v->add_bos);
    put_flag(&kv, &n, "tokenizer.ggml.add_eos_token", v->add_eos);
    put_flag(&kv, &n, "tokenizer.ggml.add_space_prefix", v->add_space_prefix);

    buf_reset(&v->file);
    buf_puts(&v->file, "GGUF");
    put(&v->file, 3, 4);
    put(&v->file, v->embedding_rows > 0, 8);
    put(&v->file, n, 8);
    buf_append(&v->file, kv.data, kv.len);
    buf_fini(&kv);
    if (v->embedding_rows > 0) {
        put_embedding(&v->file, v->embedding_rows);
    }
    ck_assert_int_eq(buf_ok(&v->file), ERR_OK);
    enum err err = gguf_open_memory(v->file.data, v->file.len, &v->g, info);
    ck_assert_msg(err == ERR_OK, "the test's file is refused: %s", info != NULL ? info->text : err_code(err));
    return tokenizer_new(v->g, &v->t, info);
}

void vocab_byte_ids(const struct vocab *v, int32_t id_of[static 256])
{
    for (int32_t i = 0; i < 256; i++) {
        struct buf b;
        buf_init(&b, 0, MEM_GENERAL);
        tokenizer_piece(v->t, i, true, &b);
        ck_assert_uint_eq(b.len, 1);
        id_of[(unsigned char)b.data[0]] = i;
        buf_fini(&b);
    }
}

uint64_t vocab_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
