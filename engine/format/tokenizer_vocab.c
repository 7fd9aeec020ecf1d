#include "engine/format/tokenizer_vocab.h"

#include "engine/base/hash.h"
#include "engine/base/hex.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAD_BYTES = 24 };

void tokenizer_vocab_fini(struct tokenizer_vocab *v)
{
    mem_free(v->tokens);
    table_fini(&v->table);
    *v = (struct tokenizer_vocab){0};
}

enum err tokenizer_vocab_grow(struct tokenizer_vocab *v, uint32_t n, struct err_info *info)
{
    if (n > v->cap) {
        uint32_t cap = MAX_OF(n, v->cap + v->cap / 2);
        struct vocab_token *p = mem_realloc(v->tokens, (size_t)cap * sizeof *p, MEM_GENERAL);
        TRY_MEM_FOR(p != NULL, info, "out of memory for the vocabulary");
        v->tokens = p;
        v->cap = cap;
    }
    if (n > v->n) {
        memset(v->tokens + v->n, 0, (size_t)(n - v->n) * sizeof *v->tokens);
        v->n = n;
    }
    return ERR_OK;
}

struct text_key {
    const struct vocab_token *tokens;
    const char *s;
    size_t n;
};

static ALWAYS_INLINE bool is_text(const void *key, uint32_t id)
{
    const struct text_key *k = key;
    return k->tokens[id].len == k->n && memcmp(k->tokens[id].text, k->s, k->n) == 0;
}

uint32_t tokenizer_vocab_find(const struct tokenizer_vocab *v, const char *s, size_t n)
{
    struct text_key key = {v->tokens, s, n};
    return table_find(&v->table, hash64(s, n, n), is_text, &key); /* TABLE_NONE is TOKENIZER_VOCAB_NONE */
}

enum err tokenizer_vocab_index(struct tokenizer_vocab *v, struct err_info *info)
{
    table_clear(&v->table);
    TRY_MEM_FOR(table_reserve(&v->table, v->n, NULL, NULL, MEM_GENERAL) == ERR_OK, info,
                "out of memory for the vocabulary");
    for (uint32_t id = 0; id < v->n; id++) {
        const struct vocab_token *t = &v->tokens[id];
        if (t->kind != TOKEN_HOLE && tokenizer_vocab_find(v, t->text, t->len) == TOKENIZER_VOCAB_NONE) {
            table_add(&v->table, hash64(t->text, t->len, t->len), id);
        }
    }
    return ERR_OK;
}

static bool is_hex(char c) { return hex_value(c) >= 0 && c <= 'F'; } /* upper case only */

void tokenizer_vocab_mark_bytes(struct tokenizer_vocab *v)
{
    for (uint32_t id = 0; id < v->n; id++) {
        struct vocab_token *t = &v->tokens[id];
        bool is_byte = t->kind == TOKEN_NORMAL && t->len == 6 && memcmp(t->text, "<0x", 3) == 0 && is_hex(t->text[3]) &&
                       is_hex(t->text[4]) && t->text[5] == '>';
        t->kind = is_byte ? TOKEN_BYTE : t->kind;
    }
}

void tokenizer_vocab_write(const struct tokenizer_vocab *v, uint32_t n_rows, bool has_scores, struct gguf_build *b)
{
    char pad[PAD_BYTES];
    uint32_t n = MAX_OF(v->n, n_rows);
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < n; id++) {
        bool is_hole = id >= v->n || v->tokens[id].kind == TOKEN_HOLE;
        bytes += is_hole ? (uint64_t)snprintf(pad, sizeof pad, "[PAD%" PRIu32 "]", id) : v->tokens[id].len;
    }
    int32_t *kinds = mem_alloc((size_t)n * sizeof *kinds, MEM_GENERAL);
    float *scores = mem_alloc((size_t)n * sizeof *scores, MEM_GENERAL);
    if (kinds == NULL || scores == NULL) {
        mem_free(kinds);
        mem_free(scores);
        b->err = ERR_NOMEM;
        return;
    }
    unsigned char *cursor = gguf_build_strs(b, "tokenizer.ggml.tokens", n, bytes);
    for (uint32_t id = 0; id < n; id++) {
        bool is_hole = id >= v->n || v->tokens[id].kind == TOKEN_HOLE;
        if (is_hole) {
            int len = snprintf(pad, sizeof pad, "[PAD%" PRIu32 "]", id);
            gguf_build_put_str(&cursor, pad, (size_t)len);
        } else {
            gguf_build_put_str(&cursor, v->tokens[id].text, v->tokens[id].len);
        }
        kinds[id] = is_hole ? TOKEN_UNUSED : (int32_t)v->tokens[id].kind;
        scores[id] = is_hole ? -1e6f : v->tokens[id].score;
    }
    gguf_build_array(b, "tokenizer.ggml.token_type", GGUF_I32, n, kinds);
    if (has_scores) {
        gguf_build_array(b, "tokenizer.ggml.scores", GGUF_F32, n, scores);
    }
    mem_free(kinds);
    mem_free(scores);
}
