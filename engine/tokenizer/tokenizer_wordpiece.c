/* WordPiece as in BERT. The text is cleaned, lower-cased and stripped of accents, and split at white space and around
 * punctuation and Chinese characters. Each word becomes the longest pieces from the left, or the unknown token. [Devlin
 * 2018; google-research/bert, tokenization.py; tokenizers: BertNormalizer, BertPreTokenizer, WordPiece] In the
 * vocabulary, U+2581 precedes a piece that starts a word; other pieces have no prefix [llama.cpp's converter]. */
#include "engine/tokenizer/tokenizer_internal.h"

#include <utf8proc.h>

enum {
    MAX_WORD_CHARACTERS = 100, /* longer words are unknown [tokenizers: max_input_chars_per_word] */
    MAX_WORD_BYTES = 4 * MAX_WORD_CHARACTERS,
};

/* The current word. */
struct wordpiece {
    const struct tokenizer *t;
    struct encoding *to;
    size_t n_characters; /* can exceed the room in `word` */
    size_t n;
    char word[SPM_SPACE_BYTES + MAX_WORD_BYTES]; /* U+2581, then n bytes */
};

/* Returns the length of the longest piece at s[0..n), or 0; *id is its token. Pieces end at character boundaries. */
static size_t longest_piece(const struct tokenizer *t, const char *s, size_t n, int32_t *id)
{
    for (size_t len = MIN_OF(n, t->longest); len > 0; len--) {
        if (len < n && ((unsigned char)s[len] & 0xC0) == 0x80) {
            continue;
        }
        const struct word *word = words_find_text(t, s, len);
        if (word != NULL) {
            *id = word->id;
            return len;
        }
    }
    return 0;
}

static enum err end_word(struct wordpiece *w)
{
    int32_t ids[MAX_WORD_CHARACTERS + 1];
    size_t n = SPM_SPACE_BYTES + w->n, n_ids = 0;
    bool is_known = w->n_characters <= MAX_WORD_CHARACTERS;
    if (w->n_characters == 0) {
        return ERR_OK;
    }
    for (size_t at = 0; at < n && is_known;) {
        size_t most = MIN_OF(n - at, w->t->longest), len = longest_piece(w->t, w->word + at, n - at, &ids[n_ids]);
        TRY(budget_take(&w->to->budget, 1 + most - len)); /* lengths looked up */
        is_known = len > (at == 0 ? SPM_SPACE_BYTES : 0); /* the mark without text is not a piece */
        at += len;
        n_ids++;
    }
    w->n = w->n_characters = 0;
    if (!is_known) {
        return encoding_emit(w->to, w->t->unk);
    }
    for (size_t i = 0; i < n_ids; i++) {
        TRY(encoding_emit(w->to, ids[i]));
    }
    return ERR_OK;
}

static void add_character(struct wordpiece *w, uint32_t cp)
{
    if (w->n_characters++ < MAX_WORD_CHARACTERS) {
        w->n += utf8_encode(cp, w->word + SPM_SPACE_BYTES + w->n);
    }
}

/* The blocks that BERT splits around; 2B920 is an error of tokenizers, with which its models were trained. */
static bool is_chinese(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x20000 && cp <= 0x2A6DF) ||
           (cp >= 0x2A700 && cp <= 0x2B73F) || (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static bool is_punctuation(uint32_t cp)
{
    if (cp < 0x80) {
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    }
    utf8proc_category_t c = utf8proc_category((int32_t)cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

static bool is_dropped(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((int32_t)cp);
    return cp == 0 || cp == UTF8_REPLACEMENT || c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_CO;
}

/* Adds a character after normalization. */
static enum err add_normal(struct wordpiece *w, uint32_t cp)
{
    if (cp <= 0x10FFFF && unicode_class_of(cp) == UNICODE_SPACE) {
        return end_word(w);
    }
    if (is_punctuation(cp)) {
        TRY(end_word(w));
        add_character(w, cp);
        return end_word(w);
    }
    add_character(w, cp);
    return ERR_OK;
}

enum { MAX_NORMAL = 2 + NORMALIZER_MAX_DECOMPOSED * NORMALIZER_MAX_LOWERED };

/* Normalizes a character to code points, white space to ' '. Returns their number. */
static size_t normal_of(const struct tokenizer *t, uint32_t cp, uint32_t out[MAX_NORMAL])
{
    size_t n = 0;
    if (is_dropped(cp) && cp != '\t' && cp != '\n' && cp != '\r') { /* a vertical tab joins its neighbors */
        return 0;
    }
    if (unicode_class_of(cp) == UNICODE_SPACE) {
        out[0] = ' ';
        return 1;
    }
    bool is_alone = is_chinese(cp);
    if (is_alone) {
        out[n++] = ' ';
    }
    int32_t parts[NORMALIZER_MAX_DECOMPOSED] = {(int32_t)cp};
    size_t n_parts = t->strips_marks ? normalizer_decompose(cp, parts) : 1;
    for (size_t i = 0; i < n_parts; i++) {
        if (t->strips_marks && utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN) {
            continue;
        }
        uint32_t lowered[NORMALIZER_MAX_LOWERED] = {(uint32_t)parts[i]};
        size_t n_lowered = t->lowers ? normalizer_lower(lowered[0], lowered) : 1;
        for (size_t k = 0; k < n_lowered; k++) {
            out[n++] = lowered[k];
        }
    }
    if (is_alone) {
        out[n++] = ' ';
    }
    return n;
}

enum err wordpiece_encode(const struct tokenizer *t, struct encoding *to, const char *s, size_t n, bool is_normalized)
{
    struct wordpiece w = {.t = t, .to = to, .word = SPM_SPACE};
    for (size_t at = 0; at < n;) {
        unsigned char c = (unsigned char)s[at];
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) { /* the most frequent case */
            add_character(&w, c);
            at++;
            continue;
        }
        uint32_t cp, normal[MAX_NORMAL];
        at += tokenizer_chr(s + at, n - at, &cp);
        normal[0] = cp;
        size_t n_normal = is_normalized ? 1 : normal_of(t, cp, normal);
        for (size_t i = 0; i < n_normal; i++) {
            TRY(add_normal(&w, normal[i]));
        }
    }
    return end_word(&w);
}

enum err wordpiece_normalize(const struct tokenizer *t, const char *s, size_t n, struct buf *out)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp, normal[MAX_NORMAL];
        at += tokenizer_chr(s + at, n - at, &cp);
        size_t n_normal = normal_of(t, cp, normal);
        for (size_t i = 0; i < n_normal; i++) {
            char bytes[4];
            buf_append(out, bytes, utf8_encode(normal[i], bytes));
        }
    }
    return buf_ok(out);
}
