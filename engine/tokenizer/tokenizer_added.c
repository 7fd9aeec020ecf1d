/* Added tokens that are found in normalized text ("normalized" in a tokenizer.json), and those that must be separate
 * words ("single_word"). [tokenizers 0.23, tokenizer/added_vocabulary.rs] */
#include "engine/tokenizer/tokenizer_internal.h"

/* --- normalization ---------------------------------------------------------------------------------------------- */

size_t added_spell(const struct tokenizer *t, const char *s, size_t n, bool adds_space, char *out)
{
    const char *start = out;
    if (adds_space) {
        memcpy(out, SPM_SPACE, SPM_SPACE_BYTES);
        out += SPM_SPACE_BYTES;
    }
    for (size_t at = 0; at < n;) {
        while (n - at >= 8) { /* up to a space, eight bytes at a time: bytes copied beyond it are overwritten */
            uint64_t v = tokenizer_load(s + at, 8), spaces = v ^ 0x2020202020202020u;
            if (t->lacks_high_bytes && (v & 0x8080808080808080u) != 0) {
                break;
            }
            spaces = (spaces - 0x0101010101010101u) & ~spaces & 0x8080808080808080u;
            memcpy(out, &v, 8);
            if (spaces == 0) {
                out += 8;
                at += 8;
                continue;
            }
            size_t before = (size_t)__builtin_ctzll(spaces) / 8; /* the lowest bit marks a space */
            memcpy(out + before, SPM_SPACE, SPM_SPACE_BYTES);
            out += before + SPM_SPACE_BYTES;
            at += before + 1;
        }
        if (at == n) {
            break;
        }
        if (s[at] == ' ') {
            memcpy(out, SPM_SPACE, SPM_SPACE_BYTES);
            out += SPM_SPACE_BYTES;
            at++;
        } else if ((unsigned char)s[at] < 0x80 || !t->lacks_high_bytes) {
            *out++ = s[at++];
        } else {
            uint32_t cp;
            bool valid;
            size_t used = utf8_decode(s + at, n - at, &cp, &valid);
            memcpy(out, valid ? s + at : "\xEF\xBF\xBD", valid ? used : 3);
            out += valid ? used : 3;
            at += used;
        }
    }
    return (size_t)(out - start);
}

/* Like the function above, but appends to *out. begins: a space can be added before the text. */
static enum err spell(const struct tokenizer *t, struct gguf_str s, bool begins, struct buf *out)
{
    bool adds_space =
        begins && s.len > 0 && t->adds_space_prefix && tokenizer_rules_wants_space(t, s.data, s.len, true);
    char *room = buf_extend(out, ADDED_SPELT_BYTES * s.len + ADDED_SPELT_BYTES);
    if (room != NULL) {
        buf_cut(out, added_spell(t, s.data, s.len, adds_space, room));
    }
    return buf_ok(out);
}

enum err added_normalize(const struct tokenizer *t, struct gguf_str s, bool begins, struct buf *out, bool *changed)
{
    buf_reset(out);
    *changed = true;
    if (t->method == METHOD_UNIGRAM) {
        return unigram_normalize(t, s.data, s.len, out);
    }
    if (t->method == METHOD_WORDPIECE) {
        return wordpiece_normalize(t, s.data, s.len, out);
    }
    if (t->normalizes_spaces) {
        return spell(t, s, begins, out);
    }
    if (t->form != NORMALIZER_NONE) {
        return normalizer_run(t->form, s.data, s.len, out, changed);
    }
    *changed = t->lowers;
    return t->lowers ? normalizer_lower_all(s.data, s.len, out) : ERR_OK;
}

/* Appends the normalized text of token id to *texts. */
static enum err add_normal(struct tokenizer *t, int32_t id, struct buf *normal, struct buf *texts)
{
    struct gguf_str s = tokenizer_text(t, id);
    bool changed;
    TRY(added_normalize(t, s, true, normal, &changed));
    s = changed ? (struct gguf_str){normal->data, normal->len} : s;
    size_t at = texts->len;
    buf_append(texts, s.data, s.len);
    t->normal[id] = (struct token_text){(uint32_t)at, (uint32_t)(texts->len - at)};
    return texts->len <= TOKENIZER_MAX_SPECIAL_BYTES ? buf_ok(texts) : ERR_BAD_VOCAB;
}

enum err added_build(struct tokenizer *t)
{
    struct buf normal, texts;
    size_t n;
    enum err err = ERR_OK;
    if (t->rules == NULL || t->n_normalized == 0) {
        return ERR_OK;
    }
    t->normal = mem_zalloc_array((size_t)t->n_vocab, sizeof *t->normal, MEM_MODEL);
    TRY_MEM(t->normal != NULL);
    buf_init(&normal, 0, MEM_MODEL);
    buf_init(&texts, 0, MEM_MODEL);
    for (int32_t id = 0; id < t->n_vocab && err == ERR_OK; id++) {
        if ((t->rules[id] & TOKEN_NORMALIZED) != 0 && t->text[id].len > 0) {
            err = add_normal(t, id, &normal, &texts);
        }
    }
    if (err == ERR_OK && texts.len > 0) {
        t->normal_texts = buf_take(&texts, &n);
        err = t->normal_texts != NULL ? ERR_OK : ERR_NOMEM;
    }
    buf_fini(&normal);
    buf_fini(&texts);
    return err;
}

void added_fini(struct tokenizer *t)
{
    mem_free(t->rules);
    mem_free(t->normal);
    mem_free(t->normal_texts);
    special_fini(&t->normal_marks);
    special_fini(&t->normal_user);
}

/* --- the client's part of normalized text ----------------------------------------------------------------------- */

/* Where the text is that was normalized so far. */
struct follower {
    const struct tokenizer *t;
    struct added_map *m;
    struct buf scratch;
    size_t at; /* in m->text */
};

/* Normalizes the part [from, to) separately and checks that m->text[at..) has the result. Moves `at`. */
static enum err follow(struct follower *f, size_t from, size_t to)
{
    struct added_map *m = f->m;
    struct gguf_str part = {m->s.data + from, to - from};
    bool changed;
    TRY(added_normalize(f->t, part, from == 0, &f->scratch, &changed));
    part = changed ? (struct gguf_str){f->scratch.data, f->scratch.len} : part;
    m->is_exact =
        part.len <= m->text.len - f->at && (part.len == 0 || memcmp(part.data, m->text.data + f->at, part.len) == 0);
    f->at += m->is_exact ? part.len : 0;
    return ERR_OK;
}

enum err added_map_spans(const struct tokenizer *t, struct added_map *m)
{
    struct follower f = {.t = t, .m = m};
    size_t from = 0;
    enum err err = ERR_OK;
    m->n_out = 0;
    m->is_exact = true;
    m->out = mem_alloc((m->n_plain + 1) * sizeof *m->out, MEM_REQUEST);
    TRY_MEM(m->out != NULL);
    buf_init(&f.scratch, 0, MEM_REQUEST);
    for (size_t i = 0; i < m->n_plain && err == ERR_OK && m->is_exact; i++) {
        const struct span *p = &m->plain[i];
        if (p->to <= m->offset || p->from >= m->offset + m->s.len) {
            continue;
        }
        size_t begin = MAX_OF(p->from, m->offset) - m->offset, end = MIN_OF(p->to - m->offset, m->s.len);
        err = follow(&f, from, begin);
        size_t first = f.at;
        if (err == ERR_OK && m->is_exact) {
            err = follow(&f, begin, end);
        }
        if (err == ERR_OK && m->is_exact && f.at > first) {
            m->out[m->n_out++] = (struct span){first, f.at};
        }
        from = end;
    }
    if (err == ERR_OK && m->is_exact) {
        err = follow(&f, from, m->s.len);
        m->is_exact = m->is_exact && f.at == m->text.len;
    }
    buf_fini(&f.scratch);
    return err;
}

/* --- separate words ----------------------------------------------------------------------------------------------- */

static bool is_word(uint32_t cp) { return unicode_is_word(cp) || cp == 0x200C || cp == 0x200D; } /* or a joiner */

bool added_may_stand(const struct tokenizer *t, int32_t id, struct gguf_str s, struct span at)
{
    if (t->rules == NULL || (t->rules[id] & TOKEN_SINGLE_WORD) == 0) {
        return true;
    }
    uint32_t cp;
    bool valid;
    if (at.to < s.len && (utf8_decode(s.data + at.to, s.len - at.to, &cp, &valid), valid && is_word(cp))) {
        return false;
    }
    size_t from = at.from > 0 ? tokenizer_chr_start(s.data, at.from) : 0, n = at.from - from;
    return n == 0 || utf8_decode(s.data + from, n, &cp, &valid) != n || !valid || !is_word(cp);
}
