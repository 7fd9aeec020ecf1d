/* Added tokens that are found in normalized text ("normalized" in a tokenizer.json), and those that must be separate
 * words ("single_word"). [tokenizers 0.23, tokenizer/added_vocabulary.rs] */
#include "engine/tokenizer/tokenizer_internal.h"
#include "engine/tokenizer/unicode_table.h"

#include <utf8proc.h>

static const char spm_space[] = "\xE2\x96\x81"; /* U+2581 */
enum { SPM_SPACE_BYTES = sizeof spm_space - 1 };

/* --- normalization ---------------------------------------------------------------------------------------------- */

size_t added_spell(const struct tokenizer *t, const char *s, size_t n, bool adds_space, char *out)
{
    const char *start = out;
    if (adds_space) {
        memcpy(out, spm_space, SPM_SPACE_BYTES);
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
            memcpy(out + before, spm_space, SPM_SPACE_BYTES);
            out += before + SPM_SPACE_BYTES;
            at += before + 1;
        }
        if (at == n) {
            break;
        }
        if (s[at] == ' ') {
            memcpy(out, spm_space, SPM_SPACE_BYTES);
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
static enum err spell(const struct tokenizer *t, const char *s, size_t n, bool begins, struct buf *out)
{
    bool adds_space = begins && n > 0 && t->adds_space_prefix && tokenizer_rules_wants_space(t, s, n, true);
    char *room = buf_extend(out, ADDED_SPELT_BYTES * n + ADDED_SPELT_BYTES);
    if (room != NULL) {
        buf_cut(out, added_spell(t, s, n, adds_space, room));
    }
    return buf_ok(out);
}

enum err added_normalize(const struct tokenizer *t, const char *s, size_t n, bool begins, struct buf *out,
                         bool *changed)
{
    buf_reset(out);
    *changed = true;
    if (t->method == METHOD_UNIGRAM) {
        return unigram_normalize(t, s, n, out);
    }
    if (t->method == METHOD_WORDPIECE) {
        return wordpiece_normalize(t, s, n, out);
    }
    if (t->normalizes_spaces) {
        return spell(t, s, n, begins, out);
    }
    if (t->form != NORMALIZER_NONE) {
        return normalizer_run(t->form, s, n, out, changed);
    }
    *changed = t->lowers;
    return t->lowers ? normalizer_lower_all(s, n, out) : ERR_OK;
}

/* Appends the normalized text of token id to *texts. */
static enum err add_normal(struct tokenizer *t, int32_t id, struct buf *normal, struct buf *texts)
{
    struct gguf_str raw = tokenizer_text(t, id);
    bool changed;
    TRY(added_normalize(t, raw.data, raw.len, true, normal, &changed));
    size_t at = texts->len;
    buf_append(texts, changed ? normal->data : raw.data, changed ? normal->len : raw.len);
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
        err =
            (t->rules[id] & TOKEN_NORMALIZED) != 0 && t->text[id].len > 0 ? add_normal(t, id, &normal, &texts) : ERR_OK;
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

/* Normalizes the part [from, to) of the text separately and checks that text[*at..) has the result. Moves *at. */
static enum err follow(const struct tokenizer *t, const char *s, size_t n, bool begins, struct buf *scratch,
                       const char *text, size_t len, size_t *at, bool *same)
{
    bool changed;
    TRY(added_normalize(t, s, n, begins, scratch, &changed));
    const char *part = changed ? scratch->data : s;
    size_t n_part = changed ? scratch->len : n;
    *same = n_part <= len - *at && (n_part == 0 || memcmp(part, text + *at, n_part) == 0);
    *at += *same ? n_part : 0;
    return ERR_OK;
}

enum err added_map_spans(const struct tokenizer *t, const char *s, size_t n, size_t offset, const struct span *plain,
                         size_t n_plain, const char *text, size_t len, struct span **out, size_t *n_out, bool *exact)
{
    struct buf scratch;
    size_t from = 0, at = 0;
    enum err err = ERR_OK;
    *n_out = 0;
    *exact = true;
    *out = mem_alloc((n_plain + 1) * sizeof **out, MEM_REQUEST);
    TRY_MEM(*out != NULL);
    buf_init(&scratch, 0, MEM_REQUEST);
    for (size_t i = 0; i < n_plain && err == ERR_OK && *exact; i++) {
        size_t begin = MAX_OF(plain[i].from, offset) - offset, end = MIN_OF(plain[i].to, offset + n);
        if (plain[i].to <= offset || plain[i].from >= offset + n) {
            continue;
        }
        end -= offset;
        err = follow(t, s + from, begin - from, from == 0, &scratch, text, len, &at, exact);
        size_t first = at;
        if (err == ERR_OK && *exact) {
            err = follow(t, s + begin, end - begin, begin == 0, &scratch, text, len, &at, exact);
        }
        if (err == ERR_OK && *exact && at > first) {
            (*out)[(*n_out)++] = (struct span){first, at};
        }
        from = end;
    }
    if (err == ERR_OK && *exact) {
        err = follow(t, s + from, n - from, from == 0, &scratch, text, len, &at, exact);
        *exact = *exact && at == len;
    }
    buf_fini(&scratch);
    return err;
}

/* --- separate words ----------------------------------------------------------------------------------------------- */

/* \w of Rust's regex: letters, marks, decimal digits, connectors, joiners. [Unicode Technical Standard 18, annex C] */
static bool is_word(uint32_t cp)
{
    if (cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
        (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189)) {
        return true;
    }
    switch (utf8proc_category((int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

bool added_may_stand(const struct tokenizer *t, int32_t id, const char *s, size_t n, size_t from, size_t to)
{
    if (t->rules == NULL || (t->rules[id] & TOKEN_SINGLE_WORD) == 0) {
        return true;
    }
    uint32_t cp;
    bool valid;
    if (to < n && (utf8_decode(s + to, n - to, &cp, &valid), valid && is_word(cp))) {
        return false;
    }
    size_t at = from;
    while (at > 0 && from - at < 4 && (at == from || ((unsigned char)s[at] & 0xC0) == 0x80)) {
        at--;
    }
    return at == from || utf8_decode(s + at, from - at, &cp, &valid) != from - at || !valid || !is_word(cp);
}
