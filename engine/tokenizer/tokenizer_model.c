/* Reads a file's tokenizer settings and text preparation: model, pre-tokenizer, patterns, normalizers. */
#include "engine/tokenizer/tokenizer_internal.h"

#include <stdio.h>

/* --- model ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum tokenizer_method method;
    bool is_spm;
    bool merges_by_rank;
} models[] = {
    {"gpt2", METHOD_MERGES, false, false},   {"llama", METHOD_MERGES, true, false},
    {"gemma4", METHOD_MERGES, true, true},   {"t5", METHOD_UNIGRAM, true, false},
    {"bert", METHOD_WORDPIECE, true, false}, {"whitespace", METHOD_MERGES, false, false},
};

static enum err read_name(const struct gguf *g, struct tokenizer *t, struct err_info *info)
{
    struct gguf_str model;
    TRY(gguf_get_str_or_null(g, "tokenizer.ggml.model", &model, info));
    if (model.data == NULL) {
        return err_set(
            info, ERR_BAD_HPARAM, "tokenizer.ggml.model",
            "no vocabulary: expected tokenizer.ggml.model in a GGUF file, tokenizer.json or tokenizer.model in "
            "a SafeTensors folder; found none");
    }
    char known[128] = "";
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (gguf_str_is(model, models[i].name)) {
            t->model = models[i].name;
            t->method = models[i].method;
            t->is_spm = models[i].is_spm;
            t->merges_by_rank = models[i].merges_by_rank;
            return ERR_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", models[i].name);
    }
    return err_set(info, ERR_UNSUPPORTED_TOKENIZER, "tokenizer.ggml.model",
                   "tokenizer.ggml.model: found '%.*s', expected one of %s", (int)MIN_OF(model.len, (size_t)32),
                   model.data, known);
}

/* --- pre-tokenizer ----------------------------------------------------------------------------------------------- */

static enum err unknown_pre(struct gguf_str pre, struct err_info *info)
{
    char known[2048] = "";
    for (size_t i = 0; pretokenizer_at(i) != NULL; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", pretokenizer_at(i)->name);
    }
    return err_set(info, ERR_UNSUPPORTED_PRETOKENIZER, "tokenizer.ggml.pre",
                   "tokenizer.ggml.pre: found '%.*s', expected one of %s", (int)MIN_OF(pre.len, (size_t)32),
                   pre.data != NULL ? pre.data : "", known);
}

static enum err bad_pattern(struct err_info *info, const char *found)
{
    static const char key[] = "infcgi.tokenizer.pattern";
    return err_set(info, ERR_UNSUPPORTED_PRETOKENIZER, key,
                   "%s: expected a string or at most %d strings, of 1 to %d bytes without NUL, found %s", key,
                   PRETOKENIZER_MAX_PATTERNS, SPLITTER_MAX_PATTERN, found);
}

/* Reads the file's own patterns, a string or an array of them, into t->own_pre. Without patterns the text is one
 * word. */
static enum err read_patterns(const struct gguf *g, struct tokenizer *t, const struct gguf_kv *kv,
                              struct err_info *info)
{
    struct gguf_str all[PRETOKENIZER_MAX_PATTERNS];
    size_t n = 1, bytes = 0;
    if (kv->type == GGUF_ARRAY) {
        TRY(gguf_get_array(g, "infcgi.tokenizer.pattern", GGUF_STRING, &kv, info));
        const unsigned char *cursor = kv->data;
        if (kv->n > ARRAY_LEN(all)) {
            return bad_pattern(info, "more");
        }
        n = kv->n;
        for (size_t i = 0; i < n; i++) {
            all[i] = gguf_next_str(&cursor);
        }
    } else {
        TRY(gguf_get_str(g, "infcgi.tokenizer.pattern", &all[0], info));
    }
    for (size_t i = 0; i < n; i++) {
        if (all[i].len == 0 || all[i].len > SPLITTER_MAX_PATTERN || memchr(all[i].data, 0, all[i].len) != NULL) {
            return bad_pattern(info, all[i].len == 0 ? "an empty one" : "a longer one, or a NUL");
        }
        bytes += all[i].len + 1;
    }
    char *texts = t->own_pattern = mem_zalloc(bytes + 1, MEM_MODEL);
    TRY_MEM_FOR(texts != NULL, info, "out of memory for the tokenizer");
    t->own_pre = (struct pretokenizer){.name = t->pre != NULL ? t->pre->name : "pattern",
                                       .flags = t->pre != NULL ? t->pre->flags & ~(unsigned)PRE_SPELT : 0};
    for (size_t i = 0; i < n; i++) {
        t->own_pre.patterns[i] = memcpy(texts, all[i].data, all[i].len);
        texts += all[i].len + 1;
    }
    const struct pretokenizer *known = pretokenizer_of_patterns(t->own_pre.patterns);
    t->own_pre.next = known != NULL ? known->next : NULL;
    t->pre = &t->own_pre;
    return ERR_OK;
}

static enum err read_pre(const struct gguf *g, struct tokenizer *t, struct err_info *info)
{
    struct gguf_str pre;
    TRY(gguf_get_str_or_null(g, "tokenizer.ggml.pre", &pre, info));
    const struct gguf_kv *pattern = gguf_find(g, "infcgi.tokenizer.pattern");
    t->pre = pre.data == NULL ? NULL : pretokenizer_find(pre.data, pre.len);
    if (pattern != NULL) {
        TRY(read_patterns(g, t, pattern, info));
    }
    if (t->pre == NULL) {
        return unknown_pre(pre, info);
    }
    if (strcmp(t->model, "whitespace") == 0 && (t->pre->flags & PRE_DROPS_SPACES) == 0) {
        return err_set(info, ERR_UNSUPPORTED_PRETOKENIZER, "tokenizer.ggml.pre",
                       "tokenizer.ggml.pre: expected 'whitespace' with tokenizer.ggml.model 'whitespace', found '%s'",
                       t->pre->name);
    }
    bool takes_whole = (t->pre->flags & PRE_IGNORES_MERGES) != 0;
    TRY(gguf_get_bool_or(g, "infcgi.tokenizer.ignore_merges", takes_whole, &t->ignores_merges, info));
    if ((t->pre->flags & PRE_SPELT) != 0) {
        t->is_spm = t->merges_by_rank = true;
        t->cuts_spaces = (t->pre->flags & PRE_CUTS_SPACES) != 0;
        t->drops_spaces = (t->pre->flags & PRE_DROPS_SPACES) != 0;
    }
    if (t->pre->next != NULL || (t->is_spm && !t->drops_spaces)) {
        return ERR_OK;
    }
    size_t n = 0;
    while (t->pre->patterns[n] != NULL) {
        n++;
    }
    const char *key = pattern != NULL ? "infcgi.tokenizer.pattern" : "tokenizer.ggml.pre";
    enum err err = splitter_new(t->pre->patterns, n, key, &t->splitter, info);
    return err == ERR_NOMEM ? err_set(info, err, NULL, "out of memory for the tokenizer") : err;
}

/* --- normalizers ------------------------------------------------------------------------------------------------- */

static enum err read_charsmap(const struct gguf *g, struct tokenizer *t, struct err_info *info)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) {
        return ERR_OK;
    }
    TRY(gguf_get_array(g, key, kv->elem_type == GGUF_I8 ? GGUF_I8 : GGUF_U8, &kv, info));
    return charsmap_init(&t->charsmap, kv->data, kv->n, info);
}

/* Uses the file's setting, otherwise the pre-tokenizer's. A file with ignore_merges was converted from a
 * tokenizer.json, and the converter would have set the form. */
static enum err read_form(const struct gguf *g, struct tokenizer *t, struct err_info *info)
{
    static const char key[] = "infcgi.tokenizer.normal_form";
    static const char *const names[] = {
        [NORMALIZER_NFC] = "NFC", [NORMALIZER_NFD] = "NFD", [NORMALIZER_NFKC] = "NFKC", [NORMALIZER_NFKD] = "NFKD"};
    struct gguf_str name;
    TRY(gguf_get_str_or_null(g, key, &name, info));
    bool is_bytes = t->method == METHOD_MERGES && !t->is_spm;
    bool is_stated = gguf_find(g, "infcgi.tokenizer.ignore_merges") != NULL;
    if (name.data == NULL) {
        bool is_nfc = is_bytes && !is_stated && (t->pre->flags & PRE_NFC) != 0;
        t->form = is_nfc ? NORMALIZER_NFC : NORMALIZER_NONE;
        return ERR_OK;
    }
    for (size_t i = NORMALIZER_NFC; i < ARRAY_LEN(names) && is_bytes; i++) {
        if (gguf_str_is(name, names[i])) {
            t->form = (enum normalizer_form)i;
            return ERR_OK;
        }
    }
    return err_set(info, ERR_UNSUPPORTED_TOKENIZER, key,
                   "%s: expected NFC, NFD, NFKC or NFKD, with byte-level BPE, found '%.*s' with %s", key,
                   (int)MIN_OF(name.len, (size_t)32), name.data, t->model);
}

static enum err read_normalizer(const struct gguf *g, struct tokenizer *t, struct err_info *info)
{
    TRY(read_form(g, t, info));
    if (t->method == METHOD_UNIGRAM) {
        TRY(read_charsmap(g, t, info));
        return gguf_get_bool_or(g, "tokenizer.ggml.remove_extra_whitespaces", false, &t->drops_spaces, info);
    }
    if (t->method == METHOD_MERGES && t->drops_spaces) {
        return gguf_get_bool_or(g, "tokenizer.ggml.normalizer.lowercase", false, &t->lowers, info);
    }
    if (t->method == METHOD_WORDPIECE) {
        TRY(gguf_get_bool_or(g, "tokenizer.ggml.normalizer.lowercase", true, &t->lowers, info));
        return gguf_get_bool_or(g, "tokenizer.ggml.normalizer.strip_accents", t->lowers, &t->strips_marks, info);
    }
    return ERR_OK;
}

enum err tokenizer_read_model(const struct gguf *g, struct tokenizer *t, struct err_info *info)
{
    TRY(read_name(g, t, info));
    if (t->method == METHOD_MERGES && !t->is_spm) {
        TRY(read_pre(g, t, info));
    }
    return read_normalizer(g, t, info);
}
