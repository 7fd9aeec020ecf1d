#include "engine/format/tokenizer_vocab.h"

#include "engine/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAD_BYTES = 24 };

void tokenizer_vocab_fini(struct tokenizer_vocab *v)
{
    mem_free(v->tokens);
    mem_free(v->slots);
    *v = (struct tokenizer_vocab){0};
}

static enum err no_memory(struct err_info *info)
{
    return err_set(info, ERR_NOMEM, NULL, "out of memory for the vocabulary");
}

enum err tokenizer_vocab_grow(struct tokenizer_vocab *v, uint32_t n, struct err_info *info)
{
    if (n > v->cap) {
        uint32_t cap = MAX_OF(n, v->cap + v->cap / 2);
        struct vocab_token *p = mem_realloc(v->tokens, (size_t)cap * sizeof *p, MEM_GENERAL);
        if (p == NULL) {
            return no_memory(info);
        }
        v->tokens = p;
        v->cap = cap;
    }
    if (n > v->n) {
        memset(v->tokens + v->n, 0, (size_t)(n - v->n) * sizeof *v->tokens);
        v->n = n;
    }
    return ERR_OK;
}

/* Returns the slot of the text, or the empty one where it belongs. */
static uint32_t *slot_of(const struct tokenizer_vocab *v, const char *s, size_t n)
{
    uint32_t at = (uint32_t)hash64(s, n, n) & v->mask;
    for (;; at = (at + 1) & v->mask) {
        uint32_t *slot = &v->slots[at];
        if (*slot == 0) {
            return slot;
        }
        const struct vocab_token *t = &v->tokens[*slot - 1];
        if (t->len == n && memcmp(t->text, s, n) == 0) {
            return slot;
        }
    }
}

enum err tokenizer_vocab_index(struct tokenizer_vocab *v, struct err_info *info)
{
    uint32_t n = 16;
    while (n < 2 * v->n) {
        n *= 2;
    }
    mem_free(v->slots);
    v->mask = n - 1;
    v->slots = mem_zalloc_array(n, sizeof *v->slots, MEM_GENERAL);
    if (v->slots == NULL) {
        return no_memory(info);
    }
    for (uint32_t id = 0; id < v->n; id++) {
        const struct vocab_token *t = &v->tokens[id];
        if (t->kind != VOCAB_HOLE) {
            uint32_t *slot = slot_of(v, t->text, t->len);
            *slot = *slot == 0 ? id + 1 : *slot;
        }
    }
    return ERR_OK;
}

uint32_t tokenizer_vocab_find(const struct tokenizer_vocab *v, const char *s, size_t n)
{
    return v->slots == NULL ? TOKENIZER_VOCAB_NONE : *slot_of(v, s, n) - 1; /* 0 - 1 is TOKENIZER_VOCAB_NONE */
}

static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); }

void tokenizer_vocab_mark_bytes(struct tokenizer_vocab *v)
{
    for (uint32_t id = 0; id < v->n; id++) {
        struct vocab_token *t = &v->tokens[id];
        bool is_byte = t->kind == VOCAB_NORMAL && t->len == 6 && memcmp(t->text, "<0x", 3) == 0 && is_hex(t->text[3]) &&
                       is_hex(t->text[4]) && t->text[5] == '>';
        t->kind = is_byte ? VOCAB_BYTE : t->kind;
    }
}

void tokenizer_vocab_write(const struct tokenizer_vocab *v, uint32_t n_rows, bool has_scores, struct gguf_build *b)
{
    char pad[PAD_BYTES];
    uint32_t n = MAX_OF(v->n, n_rows);
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < n; id++) {
        bool is_hole = id >= v->n || v->tokens[id].kind == VOCAB_HOLE;
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
        bool is_hole = id >= v->n || v->tokens[id].kind == VOCAB_HOLE;
        if (is_hole) {
            int len = snprintf(pad, sizeof pad, "[PAD%" PRIu32 "]", id);
            gguf_build_put_str(&cursor, pad, (size_t)len);
        } else {
            gguf_build_put_str(&cursor, v->tokens[id].text, v->tokens[id].len);
        }
        kinds[id] = is_hole ? VOCAB_UNUSED : (int32_t)v->tokens[id].kind;
        scores[id] = is_hole ? -1e6f : v->tokens[id].score;
    }
    gguf_build_array(b, "tokenizer.ggml.token_type", GGUF_I32, n, kinds);
    if (has_scores) {
        gguf_build_array(b, "tokenizer.ggml.scores", GGUF_F32, n, scores);
    }
    mem_free(kinds);
    mem_free(scores);
}
