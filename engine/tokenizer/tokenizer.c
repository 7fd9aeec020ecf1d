/* Decoding, lists of ids, and lookups in a vocabulary. */
#include "engine/base/hex.h"
#include "engine/tokenizer/tokenizer_internal.h"

void token_list_fini(struct token_list *l)
{
    mem_free(l->ids);
    *l = (struct token_list){0};
}

enum err token_list_push(struct token_list *l, int32_t id)
{
    TRY(mem_grow(&l->ids, l->n, &l->cap, sizeof *l->ids, MEM_REQUEST));
    l->ids[l->n++] = id;
    return ERR_OK;
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
        if (text.len - at >= SPM_SPACE_BYTES && memcmp(text.data + at, SPM_SPACE, SPM_SPACE_BYTES) == 0) {
            buf_putc(out, ' ');
            at += SPM_SPACE_BYTES;
        } else {
            buf_putc(out, text.data[at++]);
        }
    }
}

int tokenizer_byte_of(struct gguf_str s)
{
    bool is_shaped = s.len == 6 && memcmp(s.data, "<0x", 3) == 0 && s.data[5] == '>';
    int high = is_shaped ? hex_value(s.data[3]) : -1, low = is_shaped ? hex_value(s.data[4]) : -1;
    return high >= 0 && low >= 0 ? high * 16 + low : -1;
}

void tokenizer_piece(const struct tokenizer *t, int32_t id, bool show_special, struct buf *out)
{
    struct gguf_str text = tokenizer_text(t, id);
    switch ((enum token_kind)t->kinds[id]) {
    case TOKEN_USER_DEFINED:
        if (t->merges_by_rank) { /* its key is the vocabulary's spelling, not the text to find */
            spm_piece(text, out);
        } else {
            buf_append(out, text.data, text.len);
        }
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

/* Appends bytes as valid UTF-8: a byte that cannot become valid becomes U+FFFD. */
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
        buf_puts(out, "\xEF\xBF\xBD"); /* one U+FFFD */
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
const char *tokenizer_model_name(const struct tokenizer *t) { return t->model; }
const char *tokenizer_pre_name(const struct tokenizer *t) { return t->pre == NULL ? "" : t->pre->name; }
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id) { return (enum token_kind)t->kinds[id]; }
struct gguf_str tokenizer_token_text(const struct tokenizer *t, int32_t id) { return tokenizer_text(t, id); }
