/* Tables built before any text is encoded: which words are tokens, and where text can be split because no token
 * crosses. Merging runs only within the remaining pieces. */
#include "engine/tokenizer/tokenizer_internal.h"

enum {
    PAIR_BITS_PER_TOKEN =
        8,           /* of the table of neighbors [half of Gemma's tokens add one: 1 of 10 pairs is a false positive] */
    LONG_TEXT = 512, /* longer tokens are found only by text */
    AHEAD = 8,       /* words whose slots are being prefetched */
};

void words_fini(struct words *w)
{
    mem_free(w->slots);
    mem_free(w->pool);
    mem_free(w->pairs);
    table_fini(&w->odd);
    *w = (struct words){0};
}

/* --- the bytes of BPE's tokens ---------------------------------------------------------------------------------- */

/* Decodes the byte alphabet into out, which has room for text.len bytes; other characters are kept. Returns the number
 * of bytes written; *is_pure: all characters were of the alphabet. */
static size_t undo_alphabet(struct gguf_str text, const int16_t *byte_of, char *out, bool *is_pure)
{
    size_t n = 0;
    *is_pure = true;
    for (size_t at = 0, len; at < text.len; at += len) {
        uint32_t cp;
        len = tokenizer_chr(text.data + at, text.len - at, &cp);
        if (cp < BYTE_ALPHABET_END && byte_of[cp] >= 0) {
            out[n++] = (char)byte_of[cp];
        } else {
            memcpy(out + n, text.data + at, len);
            n += len;
            *is_pure = false;
        }
    }
    return n;
}

/* Converts a float to an integer of reverse order: high scores first. */
static uint32_t score_key(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are the same score */
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    return ~ascending - 1; /* never NO_KEY; scores are finite */
}

/* --- neighbours ------------------------------------------------------------------------------------------------- */

static void join(struct words *w, uint32_t a, uint32_t b)
{
    if ((a | b) < 0x80) {
        w->ascii[a][b >> 5] |= 1u << (b & 31);
        return;
    }
    uint64_t h = (((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u) >> w->pairs_shift;
    w->pairs[h >> 6] |= (uint64_t)1 << (h & 63);
}

static void join_spm(struct words *w, struct gguf_str s)
{
    uint32_t before = 0, cp;
    for (size_t at = 0, len; at < s.len; at += len) {
        len = tokenizer_chr(s.data + at, s.len - at, &cp);
        if (at > 0) {
            join(w, before, cp);
        }
        before = cp;
    }
}

/* Text is split only between two multi-byte characters. A token that crosses contains all of both, and then the pair is
 * recorded, or only part of one, and then the two bytes at the boundary are. */
static void join_bpe(struct words *w, const char *s, size_t n)
{
    for (size_t at = 1; at < n; at++) {
        if ((unsigned char)s[at] < 0xC0 || (unsigned char)s[at - 1] < 0x80) {
            continue;
        }
        uint32_t a, b;
        size_t from = tokenizer_chr_start(s, at);
        size_t len_a = tokenizer_chr(s + from, at - from, &a), len_b = tokenizer_chr(s + at, n - at, &b);
        if (len_a == at - from && len_a > 1 && len_b > 1) {
            join(w, a, b);
        } else {
            unsigned char last = (unsigned char)s[at - 1], first = (unsigned char)s[at];
            w->cut_bytes[last][first >> 5] |= 1u << (first & 31);
        }
    }
}

size_t words_cut(const struct tokenizer *t, const char *s, size_t n)
{
    const struct words *w = &t->words;
    uint32_t a, b;
    size_t at = 0, len_a = tokenizer_chr(s, n, &a), len_b;
    for (at = len_a; at < n; at += len_b, a = b, len_a = len_b) {
        len_b = tokenizer_chr(s + at, n - at, &b);
        if (len_a == 1 || len_b == 1) {
            continue;
        }
        unsigned char last = (unsigned char)s[at - 1], first = (unsigned char)s[at];
        bool is_held = (w->cut_bytes[last][first >> 5] >> (first & 31) & 1) != 0 || words_may_join(w, a, b);
        if (!is_held && t->byte_ids[last] >= 0 && t->byte_ids[first] >= 0) { /* bytes without a token are dropped */
            return at;
        }
    }
    return n;
}

/* --- building --------------------------------------------------------------------------------------------------- */

static size_t word_units(size_t len) { return (sizeof(struct word) + len + WORD_ALIGN - 1) / WORD_ALIGN; }

static ALWAYS_INLINE bool is_empty(const void *slots, size_t at)
{
    return ((const struct word_slot *)slots)[at].at == 0;
}

/* Enters the word at `at` of the pool, unless one with the same bytes is present: the first id of duplicates counts. */
static void enter(struct words *w, uint32_t at, uint64_t hash)
{
    const struct word *word = words_at(w, at);
    if (words_find(w, word->bytes, word->len, hash) != NULL) {
        w->has_twins = true;
        return;
    }
    w->slots[table_probe(w->mask, hash, is_empty, w->slots)] =
        (struct word_slot){.tag = (uint32_t)(hash >> 32), .at = at};
}

/* Writes a token's word at `at`; returns false if it has none. */
static bool write_word(struct tokenizer *t, uint32_t at, int32_t id)
{
    struct gguf_str text = tokenizer_text(t, id);
    struct word *word = words_at(&t->words, at);
    bool is_text = tokenizer_is_text(t, id), is_pure = true;
    word->id = id;
    word->key = t->scores != NULL ? score_key(t->scores[id]) : 0;
    word->key = is_text ? word->key : NO_KEY;
    if (t->is_spm) {
        memcpy(word->bytes, text.data, text.len);
        word->len = (uint32_t)text.len;
    } else {
        word->len = (uint32_t)undo_alphabet(text, t->words.byte_of, word->bytes, &is_pure);
    }
    if (t->is_spm && is_text) {
        join_spm(&t->words, text);
    } else if (!t->is_spm && is_pure) {
        join_bpe(&t->words, word->bytes, word->len);
    }
    return is_pure;
}

static bool is_odd(struct gguf_str text, bool is_pure) { return !is_pure || text.len > LONG_TEXT; }

/* Writes all words, and enters each some steps later, after its slot was prefetched. Returns the number of odd
 * tokens. */
static uint32_t add_words(struct tokenizer *t)
{
    struct words *w = &t->words;
    uint32_t at = 1 /* 0 is an empty slot */, n_odd = 0, n = 0, places[AHEAD];
    uint64_t hashes[AHEAD];
    for (int32_t id = 0; id < t->n_vocab; id++) {
        bool is_pure = write_word(t, at, id);
        n_odd += is_odd(tokenizer_text(t, id), is_pure);
        if (!is_pure) {
            continue;
        }
        const struct word *word = words_at(w, at);
        uint32_t i = n++ % AHEAD;
        if (n > AHEAD) {
            enter(w, places[i], hashes[i]);
        }
        places[i] = at;
        hashes[i] = tokenizer_hash(word->bytes, word->len);
        __builtin_prefetch(&w->slots[(uint32_t)hashes[i] & w->mask]);
        at += (uint32_t)word_units(word->len);
    }
    for (uint32_t i = n > AHEAD ? n - AHEAD : 0; i < n; i++) {
        enter(w, places[i % AHEAD], hashes[i % AHEAD]);
    }
    return n_odd;
}

/* --- finding by text -------------------------------------------------------------------------------------------- */

struct odd_key {
    const struct tokenizer *t;
    const char *s;
    size_t n;
};

static ALWAYS_INLINE bool is_token(const void *key, uint32_t id)
{
    const struct odd_key *k = key;
    struct gguf_str text = tokenizer_text(k->t, (int32_t)id);
    return text.len == k->n && tokenizer_same(text.data, k->s, k->n);
}

/* Returns the odd token of this text, or TOKENIZER_NO_TOKEN. */
static int32_t find_odd(const struct tokenizer *t, const char *s, size_t n)
{
    struct odd_key key = {t, s, n};
    uint32_t id = table_find(&t->words.odd, tokenizer_hash(s, n), is_token, &key);
    return id != TABLE_NONE ? (int32_t)id : TOKENIZER_NO_TOKEN;
}

static enum err add_odd(struct tokenizer *t, uint32_t n_odd)
{
    struct words *w = &t->words;
    TRY(table_reserve(&w->odd, n_odd, NULL, NULL, MEM_MODEL));
    for (int32_t id = 0; id < t->n_vocab && n_odd > 0; id++) {
        char bytes[LONG_TEXT];
        struct gguf_str text = tokenizer_text(t, id);
        bool is_pure = true;
        if (text.len <= LONG_TEXT) {
            (void)undo_alphabet(text, w->byte_of, bytes, &is_pure);
        }
        if (is_odd(text, is_pure) && find_odd(t, text.data, text.len) < 0) { /* the first id of duplicates counts */
            table_add(&w->odd, tokenizer_hash(text.data, text.len), (uint32_t)id);
        }
    }
    return ERR_OK;
}

static struct word *find_bytes(const struct tokenizer *t, const char *s, size_t n)
{
    return words_find(&t->words, s, n, tokenizer_hash(s, n));
}

static int32_t id_of(const struct word *word) { return word != NULL ? word->id : TOKENIZER_NO_TOKEN; }

/* Returns the word of a text in the vocabulary's spelling, of at most LONG_TEXT bytes; *is_odd_text: it can have
 * none. */
static struct word *find_text(const struct tokenizer *t, struct gguf_str text, bool *is_odd_text)
{
    char bytes[LONG_TEXT];
    bool is_pure;
    *is_odd_text = false;
    if (t->is_spm) {
        return find_bytes(t, text.data, text.len);
    }
    if (text.len <= LONG_TEXT) {
        size_t n = undo_alphabet(text, t->words.byte_of, bytes, &is_pure);
        if (is_pure) {
            return find_bytes(t, bytes, n);
        }
    }
    *is_odd_text = true;
    return NULL;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t n)
{
    bool is_odd_text;
    const struct word *word = find_text(t, (struct gguf_str){s, n}, &is_odd_text);
    return is_odd_text ? find_odd(t, s, n) : id_of(word);
}

int32_t words_find_merge(const struct tokenizer *t, struct gguf_str a, struct gguf_str b, struct words_merge *m)
{
    const struct words *w = &t->words;
    bool a_pure = false, b_pure = false;
    size_t n_a = 0, n = 0;
    if (!t->is_spm) {
        n_a = undo_alphabet(a, w->byte_of, m->scratch, &a_pure);
        n = n_a + undo_alphabet(b, w->byte_of, m->scratch + n_a, &b_pure);
    }
    if (!a_pure || !b_pure) {
        m->left = tokenizer_find(t, a.data, a.len);
        m->right = tokenizer_find(t, b.data, b.len);
        memcpy(m->scratch, a.data, a.len);
        memcpy(m->scratch + a.len, b.data, b.len);
        return tokenizer_find(t, m->scratch, a.len + b.len);
    }
    m->left = id_of(find_bytes(t, m->scratch, n_a));
    m->right = id_of(find_bytes(t, m->scratch + n_a, n - n_a));
    if (m->last != NULL && !w->has_twins) { /* tokens are usually in merge order: the next word is often the result */
        const struct word *next =
            (const void *)((const unsigned char *)m->last + word_units(m->last->len) * WORD_ALIGN);
        if (next->len == n && memcmp(next->bytes, m->scratch, n) == 0) {
            m->last = next;
            return next->id;
        }
    }
    m->last = find_bytes(t, m->scratch, n);
    return id_of(m->last);
}

void words_ban(struct tokenizer *t, int32_t id)
{
    bool is_odd_text;
    struct word *word = find_text(t, tokenizer_text(t, id), &is_odd_text);
    if (word != NULL && word->id == id) {
        word->key = NO_KEY;
    }
}

/* --- all tables --------------------------------------------------------------------------------------------------- */

enum err words_build(struct tokenizer *t)
{
    struct words *w = &t->words;
    size_t n_bytes = 0, n_units = 1 + word_units(0); /* nothing, the words, and an empty one */
    for (int32_t id = 0; id < t->n_vocab; id++) {
        n_bytes += t->text[id].len;
        n_units += word_units(t->text[id].len);
        if (n_bytes > TOKENIZER_MAX_BYTES) {
            return ERR_BAD_VOCAB;
        }
    }
    uint32_t slots = 16;
    while (slots < 2 * (uint32_t)t->n_vocab) {
        slots *= 2;
    }
    int log2_bits = 6;
    while ((uint64_t)1 << log2_bits < (uint64_t)t->n_vocab * PAIR_BITS_PER_TOKEN) {
        log2_bits++;
    }
    w->mask = slots - 1;
    w->pairs_shift = 64 - log2_bits;
    w->slots = mem_zalloc_array(slots, sizeof *w->slots, MEM_MODEL);
    w->pairs = mem_zalloc_array((size_t)1 << (log2_bits - 6), sizeof *w->pairs, MEM_MODEL);
    w->pool = mem_zalloc_array(n_units, WORD_ALIGN, MEM_MODEL);
    TRY_MEM(w->slots != NULL && w->pairs != NULL && w->pool != NULL);
    for (uint32_t cp = 0; cp < BYTE_ALPHABET_END; cp++) {
        w->byte_of[cp] = (int16_t)byte_alphabet_byte(cp);
    }
    uint32_t n_odd = add_words(t);
    if (t->method != METHOD_UNIGRAM) {
        mem_free(t->scores); /* the words have the merge order */
        t->scores = NULL;
    }
    return t->is_spm ? ERR_OK : add_odd(t, n_odd);
}
