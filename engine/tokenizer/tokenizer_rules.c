/* Settings of tokenizer.json that GGUF's keys lack: merges by rank over characters, the position of the leading space,
 * special tokens that include white space, ids that end a generation. tokenizer_json.h defines the keys. */
#include "engine/tokenizer/tokenizer_internal.h"

#include <inttypes.h>

/* Reads the array `key` of ids; NULL if it is absent. */
static enum err read_ids(const struct tokenizer *t, const struct gguf *g, const char *key, const struct gguf_kv **out,
                         struct err_info *info)
{
    *out = NULL;
    if (gguf_find(g, key) == NULL) {
        return ERR_OK;
    }
    TRY(gguf_get_array(g, key, GGUF_U32, out, info));
    for (uint64_t i = 0; i < (*out)->n; i++) {
        int64_t id = gguf_elem_i64(*out, i);
        if (id >= t->n_vocab) {
            return err_set(info, ERR_BAD_SPECIAL_TOKEN, key,
                           "%s[%" PRIu64 "]: expected an id of 0 to %d, found %" PRId64, key, i, t->n_vocab - 1, id);
        }
    }
    return ERR_OK;
}

static enum err read_added_rules(struct tokenizer *t, const struct gguf *g, struct err_info *info)
{
    static const struct {
        const char *key;
        unsigned char rule;
    } rows[] = {{"infcgi.tokenizer.lstrip_ids", TOKEN_STRIPS_LEFT},
                {"infcgi.tokenizer.rstrip_ids", TOKEN_STRIPS_RIGHT},
                {"infcgi.tokenizer.normalized_ids", TOKEN_NORMALIZED},
                {"infcgi.tokenizer.single_word_ids", TOKEN_SINGLE_WORD},
                {"infcgi.tokenizer.apart_ids", TOKEN_APART}};
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        const struct gguf_kv *kv;
        TRY(read_ids(t, g, rows[k].key, &kv, info));
        if (kv != NULL && t->rules == NULL) {
            t->rules = mem_zalloc((size_t)t->n_vocab, MEM_MODEL);
            TRY_MEM_FOR(t->rules != NULL, info, "out of memory for the tokenizer");
        }
        for (uint64_t i = 0; kv != NULL && i < kv->n; i++) {
            t->rules[gguf_elem_i64(kv, i)] |= rows[k].rule;
        }
        t->n_normalized += kv != NULL && rows[k].rule == TOKEN_NORMALIZED ? (size_t)kv->n : 0;
    }
    TRY(gguf_get_bool_or(g, "infcgi.tokenizer.normalizes_spaces", false, &t->normalizes_spaces, info));
    t->normalizes_spaces = t->normalizes_spaces && t->method == METHOD_MERGES && t->is_spm && t->splitter == NULL;
    return ERR_OK;
}

static enum err read_space_prefix(struct tokenizer *t, const struct gguf *g, struct err_info *info)
{
    static const char key[] = "infcgi.tokenizer.space_prefix";
    struct gguf_str s;
    TRY(gguf_get_str_or_null(g, key, &s, info));
    bool is_first = gguf_str_is(s, "first");
    if (s.data != NULL && !is_first && !gguf_str_is(s, "missing")) {
        return err_set(info, ERR_BAD_VOCAB, key, "%s: expected first or missing, found '%.*s'", key,
                       (int)MIN_OF(s.len, (size_t)32), s.data);
    }
    t->space_prefix = t->cuts_spaces ? SPACE_PREFIX_MISSING : SPACE_PREFIX_ALWAYS;
    if (s.data != NULL) {
        t->space_prefix = is_first ? SPACE_PREFIX_FIRST : SPACE_PREFIX_MISSING;
    }
    return ERR_OK;
}

/* Reads rules as triples of ids, highest priority first. */
static enum err read_merge_ids(struct tokenizer *t, const struct gguf *g, struct err_info *info)
{
    static const char key[] = "infcgi.tokenizer.merge_ids";
    const struct gguf_kv *kv;
    TRY(read_ids(t, g, key, &kv, info));
    if (kv == NULL || t->method != METHOD_MERGES || !t->is_spm || t->merges_by_rank) {
        return ERR_OK;
    }
    if (kv->n % 3 != 0 || kv->n / 3 > TOKENIZER_MAX_MERGES) {
        return err_set(info, ERR_BAD_MERGE, key, "%s: expected triples, at most %d, found %" PRIu64 " ids", key,
                       TOKENIZER_MAX_MERGES, kv->n);
    }
    TRY_MEM_FOR(tokenizer_reserve_merges(t, kv->n / 3) == ERR_OK, info, "out of memory for the tokenizer");
    t->merges_by_rank = true;
    for (uint64_t i = 0; i < kv->n / 3; i++) {
        int32_t left = (int32_t)gguf_elem_i64(kv, 3 * i), right = (int32_t)gguf_elem_i64(kv, 3 * i + 1);
        int32_t result = (int32_t)gguf_elem_i64(kv, 3 * i + 2);
        if (t->text[left].len + t->text[right].len != t->text[result].len || !tokenizer_is_text(t, result)) {
            return err_set(info, ERR_BAD_MERGE, key,
                           "%s[%" PRIu64 "]: expected two tokens whose union is a token of text", key, 3 * i);
        }
        uint64_t hash = tokenizer_pair_hash(left, right), bit;
        *tokenizer_merge_bit(t, hash, &bit) |= bit;
        tokenizer_enter_merge(t, &(struct merge){.left = left, .right = right, .key = (uint32_t)i, .result = result});
    }
    return ERR_OK;
}

enum err tokenizer_rules_read(struct tokenizer *t, const struct gguf *g, struct err_info *info)
{
    const struct gguf_kv *ends;
    TRY(read_ids(t, g, "infcgi.tokenizer.eog_ids", &ends, info));
    for (uint64_t i = 0; ends != NULL && i < ends->n; i++) {
        t->is_eog[gguf_elem_i64(ends, i)] = 1;
    }
    TRY(gguf_get_bool_or(g, "infcgi.tokenizer.cuts_spaces", t->cuts_spaces, &t->cuts_spaces, info));
    TRY(read_space_prefix(t, g, info));
    TRY(read_added_rules(t, g, info));
    return read_merge_ids(t, g, info);
}

bool tokenizer_rules_wants_space(const struct tokenizer *t, const char *s, size_t n, bool is_first)
{
    if (t->space_prefix == SPACE_PREFIX_ALWAYS) {
        return true;
    }
    bool has_space = s[0] == ' ' || (n >= 3 && memcmp(s, SPM_SPACE, SPM_SPACE_BYTES) == 0);
    return !has_space && (is_first || t->space_prefix == SPACE_PREFIX_MISSING);
}

/* Returns the length of the white space at the start of s[0..n), in bytes. */
static size_t spaces_at_start(const char *s, size_t n)
{
    size_t at = 0;
    for (size_t len; at < n; at += len) {
        uint32_t cp;
        len = tokenizer_chr(s + at, n - at, &cp);
        if (unicode_class_of(cp) != UNICODE_SPACE) {
            break;
        }
    }
    return at;
}

/* Likewise at the end. */
static size_t spaces_at_end(const char *s, size_t n)
{
    size_t end = n;
    while (end > 0) {
        uint32_t cp;
        size_t from = tokenizer_chr_start(s, end);
        size_t len = tokenizer_chr(s + from, end - from, &cp);
        if (len != end - from || unicode_class_of(cp) != UNICODE_SPACE) {
            break;
        }
        end = from;
    }
    return n - end;
}

const char *tokenizer_rules_strip(const struct tokenizer *t, const char *s, size_t *n, int32_t before, int32_t after)
{
    if (t->rules == NULL) {
        return s;
    }
    if (before >= 0 && (t->rules[before] & TOKEN_STRIPS_RIGHT) != 0) {
        size_t taken = spaces_at_start(s, *n);
        s += taken;
        *n -= taken;
    }
    if (after >= 0 && (t->rules[after] & TOKEN_STRIPS_LEFT) != 0) {
        *n -= spaces_at_end(s, *n);
    }
    return s;
}
