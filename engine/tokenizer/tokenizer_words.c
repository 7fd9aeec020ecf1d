/* What is known of words before any text comes: which are tokens, and where a text can be cut since no token lies
 * across. Merging runs only inside what is left. */
#include "engine/tokenizer/tokenizer_internal.h"

enum {
    PAIR_BITS_PER_TOKEN =
        8, /* of the table of neighbours [half of Gemma's tokens add one: 1 pair of 10 is found wrongly] */
    ALPHABET_END = 256 + 68, /* code points of the byte alphabet lie below */
};

void words_fini(struct words *w)
{
    mem_free(w->slots);
    mem_free(w->pool);
    mem_free(w->pairs);
    *w = (struct words){0};
}

/* --- the bytes of BPE's tokens ---------------------------------------------------------------------------------- */

/* Undoes the byte alphabet into out, which has room for text.len bytes; what is not of the alphabet stays. Returns the
 * bytes written; *is_pure tells whether all was of the alphabet. */
static size_t undo_alphabet(struct gguf_str text, const int16_t *byte_of, char *out, bool *is_pure)
{
    size_t n = 0;
    *is_pure = true;
    for (size_t at = 0, len; at < text.len; at += len) {
        uint32_t cp;
        len = tokenizer_chr(text.data + at, text.len - at, &cp);
        if (cp < ALPHABET_END && byte_of[cp] >= 0) {
            out[n++] = (char)byte_of[cp];
        } else {
            memcpy(out + n, text.data + at, len);
            n += len;
            *is_pure = false;
        }
    }
    return n;
}

/* A float as an integer with the same order, high scores first. */
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

static bool is_continuation(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

/* Text is cut only between two characters of more than one byte. A token that lies across holds all of both, and then
 * the pair is noted, or part of one: then the two bytes at the border are. */
static void join_bpe(struct words *w, const char *s, size_t n)
{
    for (size_t at = 1; at < n; at++) {
        if ((unsigned char)s[at] < 0xC0 || (unsigned char)s[at - 1] < 0x80) {
            continue;
        }
        size_t from = at - 1, len_a, len_b;
        while (from > 0 && is_continuation(s[from]) && at - from < 4) {
            from--;
        }
        uint32_t a, b;
        len_a = tokenizer_chr(s + from, at - from, &a);
        len_b = tokenizer_chr(s + at, n - at, &b);
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

/* Enters the word at `at` of the pool, unless one of the same bytes is there: of duplicates the first id counts. True
 * when it was entered. */
static bool enter(struct words *w, uint32_t at)
{
    const struct word *word = (const struct word *)(const void *)(w->pool + (size_t)at * WORD_ALIGN);
    uint64_t h = tokenizer_hash(word->bytes, word->len);
    if (words_find(w, word->bytes, word->len, h) != NULL) {
        return false;
    }
    uint32_t i = (uint32_t)h & w->mask;
    while (w->slots[i].at != 0) {
        i = (i + 1) & w->mask;
    }
    w->slots[i] = (struct word_slot){.tag = (uint32_t)(h >> 32), .at = at};
    return true;
}

static void add_words(struct tokenizer *t)
{
    struct words *w = &t->words;
    int16_t byte_of[ALPHABET_END];
    for (uint32_t cp = 0; cp < ALPHABET_END; cp++) {
        byte_of[cp] = (int16_t)byte_alphabet_byte(cp);
    }
    uint32_t at = 1; /* 0 means an empty slot */
    for (int32_t id = 0; id < t->n_vocab; id++) {
        struct gguf_str text = t->text[id];
        struct word *word = (struct word *)(void *)(w->pool + (size_t)at * WORD_ALIGN);
        bool is_text = tokenizer_is_text(t, id), is_pure = true;
        word->id = id;
        word->key = !is_text ? NO_KEY : t->is_spm ? score_key(t->scores[id]) : 0;
        if (t->is_spm) {
            memcpy(word->bytes, text.data, text.len);
            word->len = (uint32_t)text.len;
        } else {
            word->len = (uint32_t)undo_alphabet(text, byte_of, word->bytes, &is_pure);
        }
        if (is_pure && enter(w, at)) {
            at += (uint32_t)word_units(word->len);
        }
        if (t->is_spm && is_text) {
            join_spm(w, text);
        } else if (!t->is_spm && is_pure) {
            join_bpe(w, word->bytes, word->len);
        }
    }
}

enum err words_build(struct tokenizer *t)
{
    struct words *w = &t->words;
    size_t n_bytes = 0, n_units = 1;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        n_bytes += t->text[id].len;
        n_units += word_units(t->text[id].len);
    }
    if (n_bytes > TOKENIZER_MAX_BYTES) {
        return ERR_BAD_VOCAB;
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
    if (w->slots == NULL || w->pairs == NULL || w->pool == NULL) {
        return ERR_NOMEM;
    }
    add_words(t);
    if (t->is_spm) { /* the words have all texts, and the order of merges */
        mem_free(t->by_text);
        mem_free(t->scores);
        t->by_text = NULL;
        t->scores = NULL;
    }
    return ERR_OK;
}
