/* Encoding. Text is first split at special tokens (never inside user text), then into units that no merge crosses: the
 * pre-tokenizer's words, split further where no token can cross. A unit is looked up among the units already seen in
 * this text, then among the tokens. It is merged only if both lookups fail. */
#include "engine/tokenizer/tokenizer_internal.h"

#include <inttypes.h>
#include <stdatomic.h>

enum {
    WORD_LOOKUP_BYTES = 128,      /* longer words are always merged */
    TOKENIZER_MAX_TEXT = 1 << 28, /* keeps all offsets in 32 bits; no context holds more */
    SEEN_WHOLE = 1 << 30,         /* such a word and an equal piece of another word can differ */
    SEEN_MAX_BYTES = 255,         /* longer units are not cached */
    SEEN_IDS = 2,
    SEEN_SLOTS_MIN = 64,
    SEEN_SLOTS_MAX = 8192,  /* 256 KiB, a quarter of a level-2 cache */
    SEEN_TEXT_PER_SLOT = 8, /* bytes */
    ENDS_AT_ONCE = 64,
};

/* A unit seen earlier in this text, and its ids. */
struct seen {
    uint64_t a, b; /* up to 16 bytes: the bytes (tokenizer_short); longer: the hash, and the offset from encoder.base */
    uint32_t len;  /* bytes; 0: empty. Includes SEEN_WHOLE if a token could match the whole unit */
    uint32_t n;    /* ids */
    int32_t ids[SEEN_IDS]; /* up to this number; more are in the output: ids[0] is the index after encoder.first */
};

/* State of one call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    const struct tokenizer_text *in; /* borrowed */
    struct encoding to;
    size_t first; /* ids in to.out before the call */
    struct merger merger;
    struct special_matches specials;
    const char *base; /* units are after it; NULL: do not cache units */
    struct seen *seen;
    uint32_t seen_mask;
    char *spelt; /* SPM: the text in the vocabulary's spelling, the parts between special tokens in sequence */
    size_t n_spelt;
    struct buf repaired;   /* BPE: text without invalid bytes, if the vocabulary has no tokens for these */
    struct buf normalized; /* BPE: text in NFC or in lower case, if it was not */
    size_t i_plain;        /* the first plain span that ends after the encoded text */
};

/* Emits a byte that no token holds: its byte token, or nothing if the vocabulary has none, as other tokenizers do. */
static enum err emit_byte(struct encoder *e, unsigned char byte)
{
    int32_t id = e->t->byte_ids[byte];
    if (id < 0 && e->t->is_spm) {
        id = e->t->unk;
    }
    return id < 0 ? ERR_OK : encoding_emit(&e->to, id);
}

static enum err emit_symbols(struct encoder *e)
{
    const struct merger *m = &e->merger;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct symbol *s = &m->symbols[i];
        if (s->id >= 0) {
            TRY(encoding_emit(&e->to, s->id));
            continue;
        }
        if (e->t->is_spm && e->t->byte_ids[0] < 0) { /* no byte tokens: one unknown token per character */
            TRY(emit_byte(e, 0));
            continue;
        }
        for (uint32_t k = 0; k < s->len; k++) {
            TRY(emit_byte(e, (unsigned char)m->word[s->from + k]));
        }
    }
    return ERR_OK;
}

/* --- units ------------------------------------------------------------------------------------------------------ */

/* Splits s[0..n) into symbols, bytes or characters, and merges them. */
static enum err merge_unit(struct encoder *e, const char *s, size_t n)
{
    const struct tokenizer *t = e->t;
    struct merger *m = &e->merger;
    TRY(budget_take(&e->to.budget, n));
    TRY(merger_reserve(m, n));
    m->word = s;
    m->n = 0;
    uint32_t cp, before = UINT32_MAX;
    int32_t id = TOKENIZER_NO_TOKEN;
    for (size_t at = 0, len = 1; at < n; at += len) {
        if (t->is_spm) {
            len = tokenizer_chr(s + at, n - at, &cp);
            if (cp != before || cp == UTF8_REPLACEMENT) { /* which represents any invalid byte */
                const struct word *word = words_find_text(t, s + at, len);
                id = word != NULL ? word->id : TOKENIZER_NO_TOKEN;
            }
            before = cp;
        } else if ((id = t->byte_ids[(unsigned char)s[at]]) < 0) {
            continue;
        }
        m->symbols[m->n++] = (struct symbol){.id = id, .from = (uint32_t)at, .len = (uint32_t)len};
    }
    TRY(merger_run(m));
    return emit_symbols(e);
}

/* A unit being encoded. */
struct unit {
    const char *s;
    size_t n;
    uint64_t a, b;     /* as in struct seen */
    uint32_t len;      /* as in struct seen */
    size_t from;       /* ids in out before it */
    struct seen *slot; /* the slot for its cached ids */
    struct word *word; /* OPTIONAL token with the same bytes */
};

/* Caches the unit's ids, the last ones of out. */
static void remember(struct encoder *e, const struct unit *u)
{
    if (e->base == NULL || u->n > SEEN_MAX_BYTES) {
        return;
    }
    size_t n = e->to.out->n - u->from;
    *u->slot = (struct seen){.a = u->a, .b = u->b, .len = u->len, .n = (uint32_t)n};
    if (n > SEEN_IDS) {
        u->slot->ids[0] = (int32_t)(u->from - e->first);
    }
    for (size_t i = 0; i < n && n <= SEEN_IDS; i++) {
        u->slot->ids[i] = e->to.out->ids[u->from + i];
    }
}

/* Like remember(), but after merging. Also records whether a token's text becomes that token, which all threads find
 * alike. */
static void learn(struct encoder *e, const struct unit *u)
{
    if (u->word != NULL) {
        bool is_alone = e->to.out->n == u->from + 1 && e->to.out->ids[u->from] == u->word->id;
        atomic_store_explicit(&u->word->stands, is_alone ? STANDS_ALONE : STANDS_NOT, memory_order_relaxed);
    }
    remember(e, u);
}

static enum err emit_seen(struct encoder *e, const struct seen *seen)
{
    for (uint32_t i = 0; i < seen->n; i++) {
        TRY(encoding_emit(&e->to,
                          seen->n <= SEEN_IDS ? seen->ids[i] : e->to.out->ids[e->first + (size_t)seen->ids[0] + i]));
    }
    return ERR_OK;
}

/* Begins a unit. *is_done: it was cached, or it is a token whose text is known to become that token; with takes_whole
 * any text token counts. */
static ALWAYS_INLINE enum err begin_unit(struct encoder *e, const char *s, size_t n, bool takes_whole, struct unit *u,
                                         bool *is_done)
{
    uint64_t hash, a, b;
    if (n <= 16) {
        tokenizer_short(s, n, &a, &b);
        hash = tokenizer_hash(s, n);
    } else {
        hash = tokenizer_hash(s, n);
        a = hash;
        b = e->base != NULL ? (uint64_t)(s - e->base) : 0;
    }
    struct seen *slot = &e->seen[hash & e->seen_mask];
    *is_done = true;
    uint32_t len = (uint32_t)n | (takes_whole ? SEEN_WHOLE : 0u);
    if (slot->len == len && slot->a == a && e->base != NULL &&
        (n <= 16 ? slot->b == b : memcmp(e->base + slot->b, s, n) == 0)) {
        return slot->n == 1 ? encoding_emit(&e->to, slot->ids[0]) : emit_seen(e, slot);
    }
    *u = (struct unit){.s = s, .n = n, .a = a, .b = b, .len = len, .from = e->to.out->n, .slot = slot};
    u->word = words_find(&e->t->words, s, n, hash);
    if (u->word != NULL) {
        uint32_t stands = atomic_load_explicit(&u->word->stands, memory_order_relaxed);
        bool is_taken = takes_whole && n <= WORD_LOOKUP_BYTES && u->word->key != NO_KEY;
        if (stands == STANDS_ALONE || is_taken) {
            TRY(encoding_emit(&e->to, u->word->id));
            remember(e, u);
            return ERR_OK;
        }
    }
    *is_done = false;
    return ERR_OK;
}

static ALWAYS_INLINE enum err encode_unit(struct encoder *e, const char *s, size_t n)
{
    struct unit u;
    bool is_done;
    TRY(begin_unit(e, s, n, false, &u, &is_done));
    if (!is_done) {
        TRY(merge_unit(e, s, n));
        learn(e, &u);
    }
    return ERR_OK;
}

/* Encodes a word of the pre-tokenizer. */
static ALWAYS_INLINE enum err encode_bpe_word(struct encoder *e, const char *s, size_t n)
{
    const struct tokenizer *t = e->t;
    struct unit u;
    bool is_done;
    if (n == 1) {
        return emit_byte(e, (unsigned char)s[0]);
    }
    TRY(begin_unit(e, s, n, t->ignores_merges, &u, &is_done));
    if (is_done) {
        return ERR_OK;
    }
    size_t cut = words_cut(t, s, n);
    if (cut == n) {
        TRY(merge_unit(e, s, n));
    } else {
        for (size_t at = 0; at < n; at += cut) {
            cut = words_cut(t, s + at, n - at);
            TRY(encode_unit(e, s + at, cut));
        }
    }
    learn(e, &u);
    return ERR_OK;
}

/* s is in the vocabulary's spelling. A unit continues as long as a token could contain both its last character and the
 * next one. The ends of several units are found before the first one is encoded. Whether a unit ends is unpredictable,
 * so no branch depends on it. */
static enum err encode_spm(struct encoder *e, const char *s, size_t n)
{
    const struct words *w = &e->t->words;
    uint32_t before = 0, cp, ends[ENDS_AT_ONCE + 1];
    size_t from = 0, at = n > 0 ? tokenizer_chr(s, n, &before) : 0;
    while (from < n) {
        uint32_t n_ends = 0;
        for (size_t len; at < n && n_ends < ENDS_AT_ONCE; at += len, before = cp) {
            len = tokenizer_chr(s + at, n - at, &cp);
            ends[n_ends] = (uint32_t)at; /* counts only if it is an end */
            n_ends += !words_may_join(w, before, cp);
        }
        if (at == n && n_ends < ENDS_AT_ONCE) {
            ends[n_ends++] = (uint32_t)n;
        }
        for (uint32_t i = 0; i < n_ends; i++) {
            TRY(encode_unit(e, s + from, ends[i] - from));
            from = ends[i];
        }
    }
    return ERR_OK;
}

/* Like encode_spm(), but splits before each U+2581 first. */
static enum err encode_spm_words(struct encoder *e, const char *s, size_t n)
{
    while (n > 0) {
        const char *next = memmem(s + 1, n - 1, SPM_SPACE, SPM_SPACE_BYTES);
        size_t len = next != NULL ? (size_t)(next - s) : n;
        TRY(encode_spm(e, s, len));
        s += len;
        n -= len;
    }
    return ERR_OK;
}

/* --- spelling --------------------------------------------------------------------------------------------------- */

/* Returns whether text uses SentencePiece's spelling. */
static bool is_spelt(const struct tokenizer *t)
{
    return t->method == METHOD_MERGES && t->is_spm && t->splitter == NULL;
}

/* Makes room for all parts of the text in SPM's spelling. A space becomes three bytes, each part can get a space before
 * it, and an invalid UTF-8 byte becomes U+FFFD if there are no byte tokens. */
static enum err reserve_spelling(struct encoder *e)
{
    size_t n_spaces = 0;
    for (const char *s = e->in->s, *end = s + e->in->n; s < end && (s = memchr(s, ' ', (size_t)(end - s))) != NULL;
         s++) {
        n_spaces++;
    }
    size_t n_grows = e->t->lacks_high_bytes ? e->in->n : n_spaces;
    bool is_cut_again = e->t->n_normalized > 0 && !e->t->normalizes_spaces; /* each part, before it is respelled */
    size_t n_parts = e->specials.n + 1 + (is_cut_again ? e->in->n : 0);
    e->spelt = mem_alloc(e->in->n + 2 * n_grows + SPM_SPACE_BYTES * n_parts, MEM_REQUEST);
    e->base = e->spelt;
    return e->spelt != NULL ? ERR_OK : ERR_NOMEM;
}

/* Appends s[0..n) in SPM's spelling; returns its start. */
static const char *spell(struct encoder *e, const char *s, size_t n, size_t *len)
{
    const struct tokenizer *t = e->t;
    char *start = e->spelt + e->n_spelt;
    *len = added_spell(t, s, n, t->adds_space_prefix && tokenizer_rules_wants_space(t, s, n, s == e->in->s), start);
    e->n_spelt += *len;
    return start;
}

/* Replaces invalid UTF-8 bytes of s[0..n) that have no token by U+FFFD. */
static enum err repair(struct encoder *e, const char *s, size_t n)
{
    buf_reset(&e->repaired);
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t cp;
        bool valid;
        len = utf8_decode(s + at, n - at, &cp, &valid);
        if (!valid && e->t->byte_ids[(unsigned char)s[at]] < 0) {
            buf_append(&e->repaired, "\xEF\xBF\xBD", 3);
        } else {
            buf_append(&e->repaired, s + at, len);
        }
    }
    return buf_ok(&e->repaired);
}

/* Returns whether s[0..n) is valid UTF-8. */
static bool is_valid(const char *s, size_t n)
{
    for (size_t at = 0; at < n;) {
        while (n - at >= 8 && (tokenizer_load(s + at, 8) & 0x8080808080808080u) == 0) {
            at += 8;
        }
        uint32_t cp;
        size_t len = at < n ? tokenizer_chr(s + at, n - at, &cp) : 1;
        if (len == 1 && at < n && (unsigned char)s[at] >= 0x80) {
            return false;
        }
        at += len;
    }
    return true;
}

/* Encodes a word of a splitter. */
static enum err encode_word(struct encoder *e, const char *s, size_t n)
{
    uint32_t cp;
    if (!e->t->is_spm) {
        return encode_bpe_word(e, s, n);
    }
    tokenizer_chr(s, n, &cp);
    return unicode_class_of(cp) == UNICODE_SPACE ? ERR_OK : encode_spm(e, s, n);
}

/* Splits s[0..n) into words; splitters require UTF-8. */
static NOINLINE enum err encode_split(struct encoder *e, const char *s, size_t n)
{
    struct splitting c;
    struct buf masked;
    const char *text = s;
    buf_init(&masked, 0, MEM_REQUEST);
    if (!is_valid(s, n)) { /* an invalid byte counts as a character of no class */
        for (size_t at = 0, len; at < n; at += len) {
            bool valid;
            uint32_t cp;
            len = utf8_decode(s + at, n - at, &cp, &valid);
            buf_append(&masked, valid ? s + at : "\x01", len);
        }
        text = masked.data;
    }
    enum err err = buf_ok(&masked);
    err = err != ERR_OK ? err : splitting_begin(&c, e->t->splitter, text, n, &e->to.budget);
    if (err == ERR_OK) {
        for (size_t from = 0, to; from < n && err == ERR_OK; from = to) {
            err = splitting_next(&c, &to);
            err = err != ERR_OK ? err : encode_word(e, s + from, to - from);
        }
        splitting_end(&c);
    }
    buf_fini(&masked);
    return err;
}

/* --- texts ------------------------------------------------------------------------------------------------------ */

/* Text that is searched for added tokens, and the handling of the parts between them. */
struct added_text {
    const char *s;
    size_t n;
    bool is_normalized;
    const char *base; /* of the text; NULL: do not cache units */
};

/* Encodes s[0..n) of a, which has no added tokens and is a part to which SPM adds its leading space. */
static enum err encode_plain(struct encoder *e, const struct added_text *a, const char *s, size_t n)
{
    const struct tokenizer *t = e->t;
    if (t->method != METHOD_MERGES) {
        return (t->method == METHOD_UNIGRAM ? unigram_encode : wordpiece_encode)(t, &e->to, s, n, a->is_normalized);
    }
    if (is_spelt(t)) {
        s = a->is_normalized && t->normalizes_spaces ? s : spell(e, s, n, &n);
        return (t->cuts_spaces ? encode_spm_words : encode_spm)(e, s, n);
    }
    e->base = a->base;
    bool changed = false;
    if (!a->is_normalized) {
        TRY(added_normalize(t, (struct gguf_str){s, n}, true, &e->normalized, &changed));
    }
    if (changed) {
        s = e->normalized.data != NULL ? e->normalized.data : "";
        n = e->normalized.len;
        e->base = NULL;
    }
    if (t->lacks_high_bytes && !is_valid(s, n)) {
        TRY(repair(e, s, n));
        s = e->repaired.data;
        n = e->repaired.len;
        e->base = NULL;
    }
    if (t->pre->next == NULL) {
        return encode_split(e, s, n);
    }
    size_t (*const next)(const char *s, size_t n) = t->pre->next;
    while (n > 0) {
        size_t len = next(s, n);
        TRY(encode_bpe_word(e, s, len));
        s += len;
        n -= len;
    }
    return ERR_OK;
}

/* Defined below; it calls encode_part once, with normalized text. */
static enum err encode_normalized(struct encoder *e, const char *s, size_t n);

/* Encodes a part between two added tokens, or TOKENIZER_NO_TOKEN. */
static enum err encode_part(struct encoder *e, const struct added_text *a, struct span part, int32_t before,
                            int32_t after)
{
    size_t n = part.to - part.from;
    const char *s = tokenizer_rules_strip(e->t, a->s + part.from, &n, before, after);
    if (n == 0) {
        return ERR_OK;
    }
    TRY(budget_take(&e->to.budget, n));
    return e->t->n_normalized > 0 && !a->is_normalized ? encode_normalized(e, s, n) : encode_plain(e, a, s, n);
}

/* Emits the leftmost tokens of those found and encodes the text between them. */
static enum err encode_around(struct encoder *e, const struct added_text *a, const struct special_matches *found)
{
    const struct tokenizer *t = e->t;
    const struct token_text *texts = a->is_normalized ? t->normal : t->text;
    size_t from = 0, end = 0;
    int32_t before = TOKENIZER_NO_TOKEN;
    for (size_t i = found->n; i-- > 0;) {
        struct special_match m = found->at[i];
        if (m.from < end) {
            continue; /* inside the previous token */
        }
        end = m.from + texts[m.id].len;
        if (!added_may_stand(t, m.id, (struct gguf_str){a->s, a->n}, (struct span){m.from, end})) {
            continue;
        }
        TRY(encode_part(e, a, (struct span){from, m.from}, before, m.id));
        TRY(encoding_emit(&e->to, m.id));
        before = m.id;
        from = end;
    }
    return encode_part(e, a, (struct span){from, a->n}, before, TOKENIZER_NO_TOKEN);
}

/* Returns the plain spans that overlap the text[from..to), *n of them. Calls must be in text order. */
static const struct span *spans_in(struct encoder *e, size_t from, size_t to, size_t *n)
{
    const struct span *plain = e->in->plain;
    while (e->i_plain < e->in->n_plain && plain[e->i_plain].to <= from) {
        e->i_plain++;
    }
    for (*n = 0; e->i_plain + *n < e->in->n_plain && plain[e->i_plain + *n].from < to; ++*n) {
    }
    return *n > 0 ? plain + e->i_plain : NULL;
}

static bool parses_marks(const struct encoder *e) { return (e->in->flags & TOKENIZE_PARSE_SPECIAL) != 0; }

/* Finds tokens in a, which is s[0..n) of the text after normalization, and encodes it. */
static enum err encode_found(struct encoder *e, const char *s, size_t n, const struct added_text *a)
{
    struct special_matches found = {0};
    struct added_map map = {.s = {s, n}, .text = {a->s, a->n}, .offset = (size_t)(s - e->in->s), .is_exact = true};
    enum err err = ERR_OK;
    map.plain = spans_in(e, map.offset, map.offset + n, &map.n_plain);
    if (parses_marks(e) && map.n_plain > 0) {
        err = added_map_spans(e->t, &map);
    }
    struct special_search search = {.text = a->s,
                                    .n = a->n,
                                    .is_normalized = true,
                                    .parses_marks = parses_marks(e) && map.is_exact,
                                    .plain = map.out,
                                    .n_plain = map.n_out};
    err = err != ERR_OK ? err : special_find(e->t, &search, &found);
    err = err != ERR_OK ? err : encode_around(e, a, &found);
    mem_free(map.out);
    mem_free(found.at);
    return err;
}

/* Encodes text between tokens that are found in unnormalized text; tokens of normalized text are found next. */
static enum err encode_normalized(struct encoder *e, const char *s, size_t n)
{
    struct added_text a = {.s = s, .n = n, .is_normalized = true, .base = e->in->s};
    struct buf text;
    bool changed = false;
    enum err err = ERR_OK;
    buf_init(&text, 0, MEM_REQUEST);
    if (e->t->normalizes_spaces) {
        a.s = spell(e, s, n, &a.n);
    } else {
        err = added_normalize(e->t, (struct gguf_str){s, n}, true, &text, &changed);
        if (changed) {
            a = (struct added_text){.s = text.data != NULL ? text.data : "", .n = text.len, .is_normalized = true};
        }
    }
    err = err != ERR_OK ? err : encode_found(e, s, n, &a);
    buf_fini(&text);
    return err;
}

static enum err encode_all(struct encoder *e)
{
    const struct tokenizer *t = e->t;
    const struct added_text all = {.s = e->in->s, .n = e->in->n, .base = e->in->s};
    bool adds = (e->in->flags & TOKENIZE_ADD_SPECIAL) != 0;
    if (adds && t->adds_bos) {
        TRY(encoding_emit(&e->to, t->bos));
    }
    TRY(encode_around(e, &all, &e->specials));
    return adds && t->adds_eos ? encoding_emit(&e->to, t->eos) : ERR_OK;
}

static enum err make_tables(struct encoder *e)
{
    size_t slots = SEEN_SLOTS_MIN;
    if (e->in->n > TOKENIZER_MAX_TEXT) {
        return ERR_CONTEXT_LENGTH;
    }
    while (slots < SEEN_SLOTS_MAX && slots * SEEN_TEXT_PER_SLOT < e->in->n) {
        slots *= 2;
    }
    e->seen_mask = (uint32_t)slots - 1;
    e->seen = mem_zalloc_array(slots, sizeof *e->seen, MEM_REQUEST);
    TRY_MEM(e->seen != NULL);
    struct special_search search = {.text = e->in->s,
                                    .n = e->in->n,
                                    .parses_marks = parses_marks(e),
                                    .plain = e->in->plain,
                                    .n_plain = e->in->n_plain};
    TRY(special_find(e->t, &search, &e->specials));
    return is_spelt(e->t) ? reserve_spelling(e) : ERR_OK;
}

/* Reports that the text needed more steps than its budget. */
static enum err say_limit(const struct encoder *e, size_t n_ids, struct err_info *info)
{
    return err_set(info, ERR_PATTERN_LIMIT, NULL,
                   "a text of %zu bytes: expected at most %" PRIu64
                   " steps of the model's tokenizer (%d, and %d a byte), "
                   "found that it wants more; it had given %zu tokens",
                   e->in->n, e->to.budget.given, BUDGET_MIN, BUDGET_PER_BYTE, n_ids);
}

enum err tokenizer_encode(const struct tokenizer *t, const struct tokenizer_text *text, struct token_list *out,
                          struct err_info *info)
{
    size_t before = out->n;
    bool is_limited = text->max_tokens != 0 && text->max_tokens <= SIZE_MAX - before;
    struct encoder e = {.t = t,
                        .in = text,
                        .to = {.out = out,
                               .max_tokens = is_limited ? before + text->max_tokens : SIZE_MAX,
                               .budget = budget_of(text->n)},
                        .first = before,
                        .merger = {.t = t}};
    e.merger.budget = &e.to.budget;
    buf_init(&e.repaired, 0, MEM_REQUEST);
    buf_init(&e.normalized, 0, MEM_REQUEST);
    enum err err = make_tables(&e);
    err = err != ERR_OK ? err : encode_all(&e);
    err = err != ERR_PATTERN_LIMIT ? err : say_limit(&e, out->n - before, info);
    out->n = err != ERR_OK ? before : out->n;
    merger_fini(&e.merger);
    mem_free(e.specials.at);
    mem_free(e.seen);
    mem_free(e.spelt);
    buf_fini(&e.repaired);
    buf_fini(&e.normalized);
    return err;
}
