#include "tests/fuzz/fuzz_grammar.h"

#include "engine/base/hash.h"
#include "engine/grammar/grammar.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdlib.h>

enum {
    MAX_STEPS = 64, /* at random, after the text */
    MAX_TEXT = 256,
    MAX_VOCAB = 4096,
    ALL_TOKENS_STEPS = 3, /* places of which every token is tried */
    MAX_FORCED = 16,
};

static struct gguf *file;
static struct tokenizer *tokenizer;
static int32_t byte_token[256];

static void close_model(void)
{
    tokenizer_free(&tokenizer);
    gguf_close(&file);
}

void fuzz_grammar_start(void)
{
    if (tokenizer != NULL) {
        return;
    }
    struct err_info info = {0};
    struct buf piece;
    int n_bytes = 0;
    enum err err = gguf_open("tests/golden/models/llama-biases.gguf", &file, &info);
    err = err == ERR_OK ? tokenizer_new(file, &tokenizer, &info) : err;
    assert(err == ERR_OK && tokenizer_n_vocab(tokenizer) <= MAX_VOCAB);
    buf_init(&piece, 0, MEM_GENERAL);
    for (int32_t id = 0; id < tokenizer_n_vocab(tokenizer); id++) {
        buf_reset(&piece);
        tokenizer_piece(tokenizer, id, false, &piece);
        if (piece.len == 1) {
            byte_token[(unsigned char)piece.data[0]] = id;
            n_bytes++;
        }
    }
    buf_fini(&piece);
    assert(n_bytes == 256);
    atexit(close_model);
}

struct walk {
    struct grammar_matcher *m;
    int32_t n_vocab;
    uint64_t bits[MAX_VOCAB / 64];
};

static bool is_set(const struct walk *w, int32_t id) { return (w->bits[id / 64] >> id % 64 & 1) != 0; }

/* Did it go well? Else it took too much; nothing else may happen, as bytes lead on from everywhere. */
static bool went_well(enum err err)
{
    assert(err == ERR_OK || err == ERR_GRAMMAR_LIMIT || err == ERR_NOMEM);
    return err == ERR_OK;
}

/* The mask of this place says what is taken, and what is rolled back leaves nothing. */
static bool try_all_tokens(struct walk *w)
{
    bool may_end = grammar_matcher_may_end(w->m), taken;
    for (int32_t id = 0; id < w->n_vocab; id++) {
        if (tokenizer_is_eog(tokenizer, id)) {
            assert(is_set(w, id) == may_end);
            continue;
        }
        if (!went_well(grammar_matcher_accept(w->m, id, &taken))) {
            return false;
        }
        assert(taken == is_set(w, id));
        if (taken) {
            grammar_matcher_rollback(w->m, 1);
        }
    }
    assert(grammar_matcher_may_end(w->m) == may_end);
    return true;
}

/* What is said to be forced can be taken, and leaves nothing. */
static bool try_forced(struct walk *w)
{
    int32_t ids[MAX_FORCED], n, n_taken = 0;
    bool taken = true, may_end = grammar_matcher_may_end(w->m);
    bool goes_on = went_well(grammar_matcher_forced(w->m, ids, MAX_FORCED, &n));
    assert(n == 0 || (!may_end && is_set(w, ids[0])));
    while (goes_on && n_taken < n) {
        goes_on = went_well(grammar_matcher_accept(w->m, ids[n_taken], &taken));
        assert(taken || !goes_on);
        n_taken += goes_on;
    }
    grammar_matcher_rollback(w->m, n_taken);
    assert(grammar_matcher_may_end(w->m) == may_end);
    return goes_on;
}

/* The n-th token of the mask that does not end the sequence, in a circle; -1: there is none. */
static int32_t pick(const struct walk *w, uint64_t n)
{
    for (int32_t i = 0; i < w->n_vocab; i++) {
        int32_t id = (int32_t)((n + (uint64_t)i) % (uint64_t)w->n_vocab);
        if (is_set(w, id) && !tokenizer_is_eog(tokenizer, id)) {
            return id;
        }
    }
    return -1;
}

/* One token: the text's next byte, or any. */
static bool step(struct walk *w, int i, const char *next, uint64_t random, struct buf *whole)
{
    bool taken = false;
    if (!went_well(grammar_matcher_mask(w->m, w->bits)) || (i < ALL_TOKENS_STEPS && !try_all_tokens(w)) ||
        !try_forced(w)) {
        return false;
    }
    int32_t id = next != NULL ? byte_token[(unsigned char)*next] : pick(w, random);
    if (id < 0 || (next != NULL && !is_set(w, id))) {
        assert(next != NULL || grammar_matcher_may_end(w->m));
        return false;
    }
    if (!went_well(grammar_matcher_accept(w->m, id, &taken))) {
        return false;
    }
    assert(taken);
    tokenizer_piece(tokenizer, id, true, whole);
    return true;
}

bool fuzz_grammar_walk(struct grammar_builder **b, symbol_id start, struct gguf_str text, struct buf *whole)
{
    struct err_info info = {0};
    struct grammar *g = NULL;
    struct grammar_vocab *v = NULL;
    struct walk w = {0};
    bool may_end = false;
    w.n_vocab = tokenizer_n_vocab(tokenizer);
    buf_reset(whole);
    if (fuzz_is_ok(grammar_finish(b, start, &g, &info), &info) && grammar_vocab_new(tokenizer, &v) == ERR_OK &&
        went_well(grammar_matcher_new(g, v, &w.m))) {
        size_t n = text.len < MAX_TEXT ? text.len : MAX_TEXT, i = 0;
        uint64_t seed = hash64(text.data, text.len, 0);
        while (i < n + MAX_STEPS && step(&w, (int)i, i < n ? text.data + i : NULL, hash64(&i, sizeof i, seed), whole)) {
            i++;
        }
        may_end = grammar_matcher_may_end(w.m);
    }
    grammar_matcher_free(&w.m);
    grammar_vocab_free(&v);
    grammar_unref(&g);
    return may_end;
}
