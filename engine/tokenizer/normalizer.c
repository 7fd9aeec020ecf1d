/* Mostly NFC. Most text is already normalized, and a table lists the characters that might not be. Only text between
 * two characters that are not in the table is decomposed, sorted and composed again. Marks are sorted by counting:
 * utf8proc's own sort is quadratic and would take minutes for a megabyte of accents. */
#include "engine/tokenizer/normalizer.h"

#include "engine/tokenizer/tokenizer_internal.h"

#include <utf8proc.h>

enum { N_CLASSES = 256, SHORT_RUN = 16 };

static size_t decompose(uint32_t cp, utf8proc_option_t options, int32_t *out)
{
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)cp, out, NORMALIZER_MAX_DECOMPOSED, options, &boundary);
    if (n < 1 || n > NORMALIZER_MAX_DECOMPOSED) {
        out[0] = (int32_t)cp;
        n = 1;
    }
    return (size_t)n;
}

size_t normalizer_decompose(uint32_t cp, int32_t *out) { return decompose(cp, UTF8PROC_DECOMPOSE, out); }

static unsigned class_of(int32_t cp) { return (unsigned)utf8proc_get_property(cp)->combining_class & 0xFF; }

/* Sorts marks by combining class, stably; scratch has room for n. */
static void sort_marks(int32_t *marks, size_t n, int32_t *scratch)
{
    if (n <= SHORT_RUN) {
        for (size_t i = 1; i < n; i++) {
            int32_t mark = marks[i];
            size_t k = i;
            for (; k > 0 && class_of(marks[k - 1]) > class_of(mark); k--) {
                marks[k] = marks[k - 1];
            }
            marks[k] = mark;
        }
        return;
    }
    size_t first[N_CLASSES + 1] = {0};
    for (size_t i = 0; i < n; i++) {
        first[class_of(marks[i]) + 1]++;
    }
    for (size_t i = 0; i < N_CLASSES; i++) {
        first[i + 1] += first[i];
    }
    memcpy(scratch, marks, n * sizeof *marks);
    for (size_t i = 0; i < n; i++) {
        marks[first[class_of(scratch[i])]++] = scratch[i];
    }
}

/* The result so far. */
struct run {
    enum normalizer_form form;
    const char *s;
    struct buf *out;
    size_t copied; /* of s */
    bool changed;
};

/* Returns whether the form can change cp, alone or because of the characters before it. An invalid byte (len 1) does
 * not change. */
static bool may_change(enum normalizer_form form, uint32_t cp, size_t len)
{
    return form == NORMALIZER_NFC ? unicode_nfc_may_change(cp) : cp >= 0x80 && len > 1;
}

/* Normalizes s[0..n) into code points; both arrays must have room for as many as n bytes become, and NORMALIZER_MAX_DECOMPOSED. */
static size_t normalize(enum normalizer_form form, const char *s, size_t n, int32_t *cps, int32_t *scratch)
{
    bool is_compatible = form == NORMALIZER_NFKC || form == NORMALIZER_NFKD;
    utf8proc_option_t options = UTF8PROC_DECOMPOSE | (is_compatible ? UTF8PROC_COMPAT : 0);
    size_t n_cps = 0;
    uint32_t cp;
    for (size_t at = 0; at < n;) {
        at += tokenizer_chr(s + at, n - at, &cp);
        n_cps += decompose(cp, options, cps + n_cps);
    }
    for (size_t from = 0, to; from < n_cps; from = to) {
        for (to = from; to < n_cps && class_of(cps[to]) != 0; to++) {
        }
        sort_marks(cps + from, to - from, scratch);
        to += to == from;
    }
    if (form == NORMALIZER_NFD || form == NORMALIZER_NFKD) {
        return n_cps;
    }
    utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(cps, (utf8proc_ssize_t)n_cps, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return composed < 0 ? n_cps : (size_t)composed;
}

/* Normalizes s[from..to), whose ends are boundaries: no character joins across them. */
static enum err add_segment(struct run *r, size_t from, size_t to)
{
    /* code points that a byte of text decomposes into [U+1F82 in NFD, U+FDFA in NFKD] */
    size_t growth = r->form == NORMALIZER_NFC || r->form == NORMALIZER_NFD ? 2 : 6;
    size_t room = growth * (to - from) + NORMALIZER_MAX_DECOMPOSED;
    int32_t on_stack[256];
    int32_t *cps = 2 * room <= ARRAY_LEN(on_stack) ? on_stack : mem_alloc(2 * room * sizeof *cps, MEM_REQUEST);
    TRY_MEM(cps != NULL);
    size_t n = normalize(r->form, r->s + from, to - from, cps, cps + room), at = from;
    bool same = true;
    char bytes[4];
    for (size_t i = 0; i < n && same; i++) {
        size_t len = utf8_encode((uint32_t)cps[i], bytes);
        same = to - at >= len && memcmp(r->s + at, bytes, len) == 0;
        at += len;
    }
    if (!same || at != to) {
        r->changed = true;
        buf_append(r->out, r->s + r->copied, from - r->copied);
        for (size_t i = 0; i < n; i++) {
            buf_append(r->out, bytes, utf8_encode((uint32_t)cps[i], bytes));
        }
        r->copied = to;
    }
    if (cps != on_stack) {
        mem_free(cps);
    }
    return ERR_OK;
}

enum err normalizer_run(enum normalizer_form form, const char *s, size_t n, struct buf *out, bool *changed)
{
    struct run r = {.form = form, .s = s, .out = out};
    buf_reset(out);
    uint32_t cp;
    for (size_t at = 0, before = 0, len; at < n; at += len) {
        while (n - at >= 8 && (tokenizer_load(s + at, 8) & 0x8080808080808080u) == 0) {
            at += 8;
            before = at - 1;
        }
        if (at == n) {
            break;
        }
        len = tokenizer_chr(s + at, n - at, &cp);
        if (!may_change(form, cp, len)) {
            bool is_invalid = cp == UTF8_REPLACEMENT && len == 1;
            before = is_invalid ? at + 1 : at;
            continue;
        }
        size_t end = at + len;
        for (size_t next; end < n; end += next) {
            next = tokenizer_chr(s + end, n - end, &cp);
            if (!may_change(form, cp, next)) {
                break;
            }
        }
        TRY(add_segment(&r, before, end));
        before = end;
        len = end - at;
    }
    *changed = r.changed;
    if (r.changed) {
        buf_append(out, s + r.copied, n - r.copied);
    }
    return buf_ok(out);
}

size_t normalizer_lower(uint32_t cp, uint32_t *out)
{
    out[0] = cp == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((int32_t)cp);
    out[1] = 0x307;
    return cp == 0x130 ? 2 : 1; /* the only letter whose lower case is two code points */
}

enum err normalizer_lower_all(const char *s, size_t n, struct buf *out)
{
    buf_reset(out);
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t cp, lowered[NORMALIZER_MAX_LOWERED];
        bool valid;
        char bytes[4];
        len = utf8_decode(s + at, n - at, &cp, &valid);
        if (!valid) {
            buf_append(out, s + at, len);
            continue;
        }
        size_t n_lowered = normalizer_lower(cp, lowered);
        for (size_t i = 0; i < n_lowered; i++) {
            buf_append(out, bytes, utf8_encode(lowered[i], bytes));
        }
    }
    return buf_ok(out);
}
