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
    mem_free(w->bytes);
    mem_free(w->at);
    mem_free(w->by_bytes);
    mem_free((void *)w->stands);
    mem_free(w->pairs);
    *w = (struct words){0};
}

int32_t words_find(const struct tokenizer *t, const char *s, size_t n, uint64_t hash)
{
    const struct words *w = &t->words;
    const struct text_slot *slots = t->is_spm ? t->by_text : w->by_bytes;
    uint32_t mask = t->is_spm ? t->text_mask : w->by_bytes_mask;
    for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
        struct text_slot slot = slots[at];
        if (slot.id < 0) {
            return TOKENIZER_NO_TOKEN;
        }
        if (slot.tag != hash >> 32) {
            continue;
        }
        size_t len = t->is_spm ? t->text[slot.id].len : w->at[slot.id + 1] - w->at[slot.id];
        const char *bytes = t->is_spm ? t->text[slot.id].data : w->bytes + w->at[slot.id];
        if (len == n && tokenizer_same(bytes, s, n)) {
            return slot.id;
        }
    }
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

static void add_bytes(struct tokenizer *t, int32_t id)
{
    struct words *w = &t->words;
    const char *s = w->bytes + w->at[id];
    size_t n = w->at[id + 1] - w->at[id];
    uint64_t h = tokenizer_hash(s, n);
    uint32_t at = (uint32_t)h & w->by_bytes_mask;
    for (; w->by_bytes[at].id >= 0; at = (at + 1) & w->by_bytes_mask) {
        int32_t other = w->by_bytes[at].id;
        if (w->by_bytes[at].tag == h >> 32 && w->at[other + 1] - w->at[other] == n &&
            memcmp(w->bytes + w->at[other], s, n) == 0) {
            return; /* of duplicates the first id counts */
        }
    }
    w->by_bytes[at] = (struct text_slot){.tag = (uint32_t)(h >> 32), .id = id};
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

static enum err build_bpe(struct tokenizer *t, size_t n_bytes)
{
    struct words *w = &t->words;
    uint32_t slots = 16;
    while (slots < 2 * (uint32_t)t->n_vocab) {
        slots *= 2;
    }
    w->by_bytes_mask = slots - 1;
    w->bytes = mem_alloc(n_bytes, MEM_MODEL);
    w->at = mem_alloc(((size_t)t->n_vocab + 1) * sizeof *w->at, MEM_MODEL);
    w->by_bytes = mem_alloc(slots * sizeof *w->by_bytes, MEM_MODEL);
    if (w->bytes == NULL || w->at == NULL || w->by_bytes == NULL) {
        return ERR_NOMEM;
    }
    memset(w->by_bytes, 0xFF, slots * sizeof *w->by_bytes);
    int16_t byte_of[ALPHABET_END];
    for (uint32_t cp = 0; cp < ALPHABET_END; cp++) {
        byte_of[cp] = (int16_t)byte_alphabet_byte(cp);
    }
    w->at[0] = 0;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        bool is_pure;
        char *bytes = w->bytes + w->at[id];
        size_t n = undo_alphabet(t->text[id], byte_of, bytes, &is_pure);
        w->at[id + 1] = w->at[id] + (uint32_t)n;
        if (is_pure) {
            add_bytes(t, id);
            join_bpe(w, bytes, n);
        }
    }
    return ERR_OK;
}

enum err words_build(struct tokenizer *t)
{
    struct words *w = &t->words;
    size_t n_bytes = 0;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        n_bytes += t->text[id].len;
    }
    if (n_bytes > TOKENIZER_MAX_BYTES) {
        return ERR_BAD_VOCAB;
    }
    int log2_bits = 6;
    while (log2_bits < 40 && (uint64_t)1 << log2_bits < (uint64_t)t->n_vocab * PAIR_BITS_PER_TOKEN) {
        log2_bits++;
    }
    w->pairs_shift = 64 - log2_bits;
    w->pairs = mem_zalloc_array((size_t)1 << (log2_bits - 6), sizeof *w->pairs, MEM_MODEL);
    w->stands = mem_zalloc((size_t)t->n_vocab, MEM_MODEL);
    if (w->pairs == NULL || w->stands == NULL) {
        return ERR_NOMEM;
    }
    if (!t->is_spm) {
        return build_bpe(t, n_bytes);
    }
    for (int32_t id = 0; id < t->n_vocab; id++) {
        if (tokenizer_is_text(t, id)) {
            join_spm(w, t->text[id]);
        }
    }
    return ERR_OK;
}
