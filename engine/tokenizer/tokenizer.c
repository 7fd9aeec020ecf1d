/* Encoding and decoding. Text is first cut at special tokens (never inside user text), then into words, then merged. */
#include "engine/tokenizer/tokenizer_internal.h"

#include "engine/base/utf8.h"

#include <string.h>

static const char spm_space[] = "\xE2\x96\x81"; /* U+2581, which stands for a space in SentencePiece vocabularies */
enum { SPM_SPACE_BYTES = 3, WORD_LOOKUP_BYTES = 128 };

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

/* --- encoding ------------------------------------------------------------------------------------------------------ */

/* One call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    const char *text;
    size_t n;
    unsigned flags;
    const struct tokenizer_span *plain;
    size_t n_plain, i_plain;
    size_t max_tokens;
    struct token_list *out;
    struct merger merger;
    struct buf escaped; /* SPM: the text with spaces as U+2581 */
};

static enum err emit(struct encoder *e, int32_t id)
{
    return e->out->n >= e->max_tokens ? ERR_CONTEXT_LENGTH : token_list_push(e->out, id);
}

/* A single byte that no token holds: its byte token, or nothing where the vocabulary has none (as other tokenizers do). */
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
        if (id >= 0) {
            return emit(e, id);
        }
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

static enum err encode_spm(struct encoder *e, const char *s, size_t n, bool is_prefixed)
{
    const struct tokenizer *t = e->t;
    buf_reset(&e->escaped);
    if (is_prefixed) {
        buf_append(&e->escaped, spm_space, SPM_SPACE_BYTES);
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ') {
            buf_append(&e->escaped, spm_space, SPM_SPACE_BYTES);
        } else {
            buf_putc(&e->escaped, s[i]);
        }
    }
    TRY(buf_ok(&e->escaped));
    TRY(merger_reserve(&e->merger, e->escaped.len));
    struct merger *m = &e->merger;
    m->word = e->escaped.data;
    m->n = 0;
    for (size_t at = 0; at < e->escaped.len;) {
        uint32_t cp;
        size_t len = utf8_decode(m->word + at, e->escaped.len - at, &cp, NULL);
        int32_t id = tokenizer_find(t, m->word + at, len);
        id = id >= 0 && t->kinds[id] != TOKEN_NORMAL && t->kinds[id] != TOKEN_USER_DEFINED ? TOKENIZER_NO_TOKEN : id;
        m->symbols[m->n++] = (struct symbol){.id = id, .from = (uint32_t)at, .len = (uint32_t)len};
        at += len;
    }
    merger_run(m);
    return emit_symbols(e);
}

/* Text between special tokens. */
static enum err encode_text(struct encoder *e, size_t from, size_t to, bool after_special)
{
    const char *s = e->text + from;
    size_t n = to - from;
    if (n == 0) {
        return ERR_OK;
    }
    if (e->t->is_spm) {
        return encode_spm(e, s, n, e->t->adds_space_prefix && after_special);
    }
    while (n > 0) {
        size_t len = pretokenizer_next(e->t->pre, s, n);
        TRY(encode_bpe_word(e, s, len));
        s += len;
        n -= len;
    }
    return ERR_OK;
}

/* Does [from, to) touch text in which no special token may be found? Spans are walked along with the text. */
static bool touches_plain(struct encoder *e, size_t from, size_t to)
{
    while (e->i_plain < e->n_plain && e->plain[e->i_plain].to <= from) {
        e->i_plain++;
    }
    for (size_t i = e->i_plain; i < e->n_plain && e->plain[i].from < to; i++) {
        if (e->plain[i].from < e->plain[i].to) {
            return true;
        }
    }
    return false;
}

/* The longest special token that starts at `at` and may be found there; 0 bytes when none. */
static size_t match_special(struct encoder *e, size_t at, int32_t *id)
{
    const struct tokenizer *t = e->t;
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = at; i < e->n; i++) {
        uint64_t key = ((uint64_t)node << 8 | (unsigned char)e->text[i]) + 1;
        uint64_t h = key * 0x9E3779B97F4A7C15u;
        uint32_t slot = (uint32_t)(h ^ h >> 32) & t->edge_mask;
        while (t->edges[slot].key != 0 && t->edges[slot].key != key) {
            slot = (slot + 1) & t->edge_mask;
        }
        if (t->edges[slot].key == 0) {
            break;
        }
        node = t->edges[slot].node;
        int32_t found = t->node_ids[node];
        bool is_text = found >= 0 && t->kinds[found] == TOKEN_USER_DEFINED;
        bool is_wanted = is_text || (found >= 0 && (e->flags & TOKENIZE_PARSE_SPECIAL) != 0 && !touches_plain(e, at, i + 1));
        if (is_wanted) {
            longest = i + 1 - at;
            *id = found;
        }
    }
    return longest;
}

static enum err encode_all(struct encoder *e)
{
    const struct tokenizer *t = e->t;
    bool adds = (e->flags & TOKENIZE_ADD_SPECIAL) != 0;
    if (adds && t->adds_bos) {
        TRY(emit(e, t->bos));
    }
    bool after_special = true;
    size_t from = 0;
    for (size_t at = 0; at < e->n;) {
        int32_t id = TOKENIZER_NO_TOKEN;
        size_t len = t->n_nodes > 1 ? match_special(e, at, &id) : 0;
        if (len == 0) {
            at++;
            continue;
        }
        TRY(encode_text(e, from, at, after_special));
        TRY(emit(e, id));
        after_special = true;
        at += len;
        from = at;
    }
    TRY(encode_text(e, from, e->n, after_special));
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
                        .plain = plain,
                        .n_plain = n_plain,
                        .max_tokens = max_tokens > SIZE_MAX - before ? SIZE_MAX : before + max_tokens,
                        .out = out,
                        .merger = {.t = t}};
    buf_init(&e.escaped, 0, MEM_REQUEST);
    enum err err = n > UINT32_MAX / 8 ? ERR_CONTEXT_LENGTH : encode_all(&e);
    if (err != ERR_OK) {
        out->n = before;
    }
    merger_fini(&e.merger);
    buf_fini(&e.escaped);
    return err;
}

/* --- decoding ------------------------------------------------------------------------------------------------------ */

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
        for (int b = 0; b < 256; b++) {
            if (t->byte_ids[b] == id) {
                buf_putc(out, (char)b);
            }
        }
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

/* --- facts --------------------------------------------------------------------------------------------------------- */

int32_t tokenizer_n_vocab(const struct tokenizer *t) { return t->n_vocab; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->adds_bos; }
bool tokenizer_adds_eos(const struct tokenizer *t) { return t->adds_eos; }
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id) { return id >= 0 && id < t->n_vocab && t->is_eog[id] != 0; }
const char *tokenizer_model_name(const struct tokenizer *t) { return t->is_spm ? "llama" : "gpt2"; }
const char *tokenizer_pre_name(const struct tokenizer *t) { return t->is_spm ? "" : t->pre->name; }
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id) { return (enum token_kind)t->kinds[id]; }
struct gguf_str tokenizer_token_text(const struct tokenizer *t, int32_t id) { return t->text[id]; }
