/* Encoding and decoding. Text is first cut at special tokens (never inside user text), then into words, then merged.
 * What cannot be merged across is cut early, since short words merge fastest. */
#include "engine/tokenizer/tokenizer_internal.h"

#include "engine/base/utf8.h"

#include <string.h>

static const char spm_space[] = "\xE2\x96\x81"; /* U+2581, which stands for a space in SentencePiece vocabularies */
enum {
    SPM_SPACE_BYTES = 3,
    WORD_LOOKUP_BYTES = 128,
    TOKENIZER_MAX_TEXT = 1 << 28, /* keeps all offsets in 32 bits; no context holds as much */
};

void token_list_fini(struct token_list *l)
{
    mem_free(l->ids);
    *l = (struct token_list){0};
}

enum err token_list_push(struct token_list *l, int32_t id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 64 : l->cap * 2;
        int32_t *ids = mem_realloc(l->ids, cap * sizeof *ids, MEM_REQUEST);
        if (ids == NULL) {
            return ERR_NOMEM;
        }
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return ERR_OK;
}

/* --- encoding --------------------------------------------------------------------------------------------------- */

/* One call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    const char *text;
    size_t n;
    unsigned flags;
    size_t max_tokens;
    struct token_list *out;
    struct merger merger;
    struct special_matches specials;
    struct buf rewritten; /* the text as the vocabulary spells it, where that differs */
};

static enum err emit(struct encoder *e, int32_t id)
{
    return e->out->n >= e->max_tokens ? ERR_CONTEXT_LENGTH : token_list_push(e->out, id);
}

/* A single byte that no token holds: its byte token, or nothing where the vocabulary has none (as other tokenizers do).
 */
static enum err emit_byte(struct encoder *e, unsigned char byte)
{
    int32_t id = e->t->byte_ids[byte];
    if (id < 0 && e->t->is_spm) {
        id = e->t->unk;
    }
    return id < 0 ? ERR_OK : emit(e, id);
}

static enum err emit_symbols(struct encoder *e)
{
    const struct merger *m = &e->merger;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct symbol *s = &m->symbols[i];
        if (s->id >= 0) {
            TRY(emit(e, s->id));
            continue;
        }
        if (e->t->is_spm && e->t->byte_ids[0] < 0) { /* no byte tokens: one unknown token a character */
            TRY(emit_byte(e, 0));
            continue;
        }
        for (uint32_t k = 0; k < s->len; k++) {
            TRY(emit_byte(e, (unsigned char)m->word[s->from + k]));
        }
    }
    return ERR_OK;
}

/* The token that is the whole word, spelt in the byte alphabet. */
static int32_t whole_word(const struct tokenizer *t, const char *word, size_t n)
{
    char spelt[2 * WORD_LOOKUP_BYTES];
    size_t len = 0;
    if (n > WORD_LOOKUP_BYTES) {
        return TOKENIZER_NO_TOKEN;
    }
    for (size_t i = 0; i < n; i++) {
        len += utf8_encode(byte_alphabet_cp((unsigned char)word[i]), spelt + len);
    }
    return tokenizer_find(t, spelt, len);
}

static enum err encode_bpe_word(struct encoder *e, const char *word, size_t n)
{
    const struct tokenizer *t = e->t;
    if (t->pre->ignores_merges) {
        int32_t id = whole_word(t, word, n);
        if (id >= 0 && tokenizer_is_text(t, id)) {
            return emit(e, id);
        }
    }
    if (n == 1) {
        return emit_byte(e, (unsigned char)word[0]);
    }
    TRY(merger_reserve(&e->merger, n));
    e->merger.word = word;
    e->merger.n = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t id = t->byte_ids[(unsigned char)word[i]];
        if (id >= 0) {
            e->merger.symbols[e->merger.n++] = (struct symbol){.id = id, .from = (uint32_t)i, .len = 1};
        }
    }
    merger_run(&e->merger);
    return emit_symbols(e);
}

/* Ends the word of m->n symbols. */
static enum err end_spm_word(struct encoder *e)
{
    merger_run(&e->merger);
    TRY(emit_symbols(e));
    e->merger.n = 0;
    return ERR_OK;
}

/* s is spelt as the vocabulary spells it. A word goes on while a token could hold both its last character and the next.
 */
static enum err encode_spm(struct encoder *e, const char *s, size_t n)
{
    const struct tokenizer *t = e->t;
    struct merger *m = &e->merger;
    TRY(merger_reserve(m, n));
    m->word = s;
    m->n = 0;
    int before = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t len = (unsigned char)s[at] < 0x80 ? 1 : utf8_decode(s + at, n - at, &cp, NULL);
        if (m->n > 0 && t->joins[before][spm_side_after(s + at, len)] == 0) {
            TRY(end_spm_word(e));
        }
        int32_t id = tokenizer_find(t, s + at, len);
        id = id >= 0 && !tokenizer_is_text(t, id) ? TOKENIZER_NO_TOKEN : id;
        m->symbols[m->n++] = (struct symbol){.id = id, .from = (uint32_t)at, .len = (uint32_t)len};
        before = spm_side_before(s + at, len);
        at += len;
    }
    return end_spm_word(e);
}

/* Rewrites s[0..n) into e->rewritten: SPM's spaces (one in front when is_prefixed), and U+FFFD for bytes that are not
 * valid UTF-8 and have no token. */
static enum err rewrite(struct encoder *e, const char *s, size_t n, bool is_prefixed)
{
    const struct tokenizer *t = e->t;
    struct buf *out = &e->rewritten;
    buf_reset(out);
    if (is_prefixed) {
        buf_append(out, spm_space, SPM_SPACE_BYTES);
    }
    for (size_t at = 0, len; at < n; at += len) {
        size_t ascii = at;
        while (ascii < n && (unsigned char)s[ascii] < 0x80 && s[ascii] != ' ') {
            ascii++;
        }
        len = ascii - at;
        if (len > 0) {
            buf_append(out, s + at, len);
            continue;
        }
        uint32_t cp;
        bool valid;
        len = utf8_decode(s + at, n - at, &cp, &valid);
        if (s[at] == ' ' && t->is_spm) {
            buf_append(out, spm_space, SPM_SPACE_BYTES);
        } else if (!valid && t->byte_ids[(unsigned char)s[at]] < 0) {
            buf_append(out, "\xEF\xBF\xBD", 3);
        } else {
            buf_append(out, s + at, len);
        }
    }
    return buf_ok(out);
}

/* Text between special tokens, where SPM puts its leading space. */
static enum err encode_text(struct encoder *e, size_t from, size_t to)
{
    const struct tokenizer *t = e->t;
    const char *s = e->text + from;
    size_t n = to - from;
    if (n == 0) {
        return ERR_OK;
    }
    if (t->is_spm || (t->lacks_high_bytes && !utf8_valid(s, n, NULL))) {
        TRY(rewrite(e, s, n, t->is_spm && t->adds_space_prefix));
        s = e->rewritten.data;
        n = e->rewritten.len;
    }
    if (t->is_spm) {
        return encode_spm(e, s, n);
    }
    while (n > 0) {
        size_t len = pretokenizer_next(t->pre, s, n);
        TRY(encode_bpe_word(e, s, len));
        s += len;
        n -= len;
    }
    return ERR_OK;
}

static enum err encode_all(struct encoder *e)
{
    const struct tokenizer *t = e->t;
    bool adds = (e->flags & TOKENIZE_ADD_SPECIAL) != 0;
    if (adds && t->adds_bos) {
        TRY(emit(e, t->bos));
    }
    size_t from = 0;
    for (size_t i = e->specials.n; i-- > 0;) {
        struct special_match m = e->specials.at[i];
        if (m.from < from) {
            continue; /* inside the token before */
        }
        TRY(encode_text(e, from, m.from));
        TRY(emit(e, m.id));
        from = m.from + t->text[m.id].len;
    }
    TRY(encode_text(e, from, e->n));
    return adds && t->adds_eos ? emit(e, t->eos) : ERR_OK;
}

enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                          const struct tokenizer_span *plain, size_t n_plain, size_t max_tokens, struct token_list *out)
{
    size_t before = out->n;
    struct encoder e = {.t = t,
                        .text = text,
                        .n = n,
                        .flags = flags,
                        .max_tokens = max_tokens > SIZE_MAX - before ? SIZE_MAX : before + max_tokens,
                        .out = out,
                        .merger = {.t = t}};
    buf_init(&e.rewritten, 0, MEM_REQUEST);
    bool parses = (flags & TOKENIZE_PARSE_SPECIAL) != 0;
    enum err err =
        n > TOKENIZER_MAX_TEXT ? ERR_CONTEXT_LENGTH : special_find(t, text, n, parses, plain, n_plain, &e.specials);
    if (err == ERR_OK) {
        err = encode_all(&e);
    }
    if (err != ERR_OK) {
        out->n = before;
    }
    merger_fini(&e.merger);
    mem_free(e.specials.at);
    buf_fini(&e.rewritten);
    return err;
}

/* --- decoding --------------------------------------------------------------------------------------------------- */

static void bpe_piece(struct gguf_str text, struct buf *out)
{
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;
        size_t len = utf8_decode(text.data + at, text.len - at, &cp, NULL);
        int byte = byte_alphabet_byte(cp);
        if (byte >= 0) {
            buf_putc(out, (char)byte);
        } else {
            buf_append(out, text.data + at, len);
        }
        at += len;
    }
}

static void spm_piece(struct gguf_str text, struct buf *out)
{
    for (size_t at = 0; at < text.len;) {
        if (text.len - at >= SPM_SPACE_BYTES && memcmp(text.data + at, spm_space, SPM_SPACE_BYTES) == 0) {
            buf_putc(out, ' ');
            at += SPM_SPACE_BYTES;
        } else {
            buf_putc(out, text.data[at++]);
        }
    }
}

void tokenizer_piece(const struct tokenizer *t, int32_t id, bool show_special, struct buf *out)
{
    struct gguf_str text = t->text[id];
    switch ((enum token_kind)t->kinds[id]) {
    case TOKEN_USER_DEFINED:
        buf_append(out, text.data, text.len);
        break;
    case TOKEN_BYTE:
        buf_putc(out, (char)tokenizer_byte_of(text));
        break;
    case TOKEN_NORMAL:
        (t->is_spm ? spm_piece : bpe_piece)(text, out);
        break;
    default:
        if (show_special) {
            buf_append(out, text.data, text.len);
        }
        break;
    }
}

/* Appends bytes as whole UTF-8: a byte that can never become valid comes out as U+FFFD. */
static void append_valid(const char *s, size_t n, struct buf *out)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        char bytes[4];
        at += utf8_decode(s + at, n - at, &cp, NULL);
        buf_append(out, bytes, utf8_encode(cp, bytes));
    }
}

void detokenizer_push(struct detokenizer *d, const struct tokenizer *t, int32_t id, bool show_special, struct buf *out)
{
    struct buf piece;
    buf_init(&piece, 0, MEM_REQUEST);
    buf_append(&piece, d->held, d->n_held);
    tokenizer_piece(t, id, show_special, &piece);
    bool drops_space = t->is_spm && t->adds_space_prefix && !d->started && piece.len > 0 && piece.data[0] == ' ';
    size_t from = drops_space ? 1 : 0;
    d->started = d->started || piece.len > 0;
    if (buf_ok(&piece) != ERR_OK) {
        out->err = ERR_NOMEM;
    } else if (piece.len > 0) {
        size_t tail = utf8_incomplete_tail(piece.data + from, piece.len - from);
        append_valid(piece.data + from, piece.len - from - tail, out);
        memcpy(d->held, piece.data + piece.len - tail, tail);
        d->n_held = tail;
    }
    buf_fini(&piece);
}

void detokenizer_finish(struct detokenizer *d, struct buf *out)
{
    if (d->n_held > 0) {
        buf_puts(out, "\xEF\xBF\xBD"); /* U+FFFD, once */
    }
    d->n_held = 0;
}

/* --- facts ------------------------------------------------------------------------------------------------------ */

int32_t tokenizer_n_vocab(const struct tokenizer *t) { return t->n_vocab; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->adds_bos; }
bool tokenizer_adds_eos(const struct tokenizer *t) { return t->adds_eos; }
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_vocab && t->is_eog[id] != 0;
}
const char *tokenizer_model_name(const struct tokenizer *t) { return t->is_spm ? "llama" : "gpt2"; }
const char *tokenizer_pre_name(const struct tokenizer *t) { return t->is_spm ? "" : t->pre->name; }
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id) { return (enum token_kind)t->kinds[id]; }
struct gguf_str tokenizer_token_text(const struct tokenizer *t, int32_t id) { return t->text[id]; }
