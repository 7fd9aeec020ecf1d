/* Reads and checks a vocabulary. Every array's type and length is checked, every id must be in range, and table sizes
 * come from counts that were checked against the file. */
#include "engine/tokenizer/tokenizer_internal.h"

#include <inttypes.h>

/* State while a vocabulary is loaded, for messages. */
struct loader {
    const struct gguf *g;
    struct tokenizer *t;
    struct err_info *info;
};

/* --- tables ----------------------------------------------------------------------------------------------------- */

static enum err read_tokens(struct loader *l)
{
    struct tokenizer *t = l->t;
    const struct gguf_kv *kv;
    TRY(gguf_get_array(l->g, "tokenizer.ggml.tokens", GGUF_STRING, &kv, l->info));
    if (kv->n == 0 || kv->n > TOKENIZER_MAX_VOCAB) {
        return err_set_at(l->info, ERR_BAD_VOCAB, kv->offset,
                          "tokenizer.ggml.tokens: expected 1 to %d tokens, found %" PRIu64, TOKENIZER_MAX_VOCAB, kv->n);
    }
    t->n_vocab = (int32_t)kv->n;
    t->text = mem_zalloc_array(kv->n, sizeof *t->text, MEM_MODEL);
    t->kinds = mem_zalloc_array(kv->n, 1, MEM_MODEL);
    t->is_eog = mem_zalloc_array(kv->n, 1, MEM_MODEL);
    TRY_MEM_FOR(t->text != NULL && t->kinds != NULL && t->is_eog != NULL, l->info, "out of memory for the tokenizer");
    const unsigned char *cursor = kv->data;
    t->texts = (const char *)cursor;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        struct gguf_str s = gguf_next_str(&cursor);
        size_t at = (size_t)(s.data - t->texts);
        if (s.len > TOKENIZER_MAX_TOKEN_BYTES) {
            return err_set_at(l->info, ERR_BAD_VOCAB, kv->offset,
                              "tokenizer.ggml.tokens[%d]: expected at most %d bytes, found %zu", id,
                              TOKENIZER_MAX_TOKEN_BYTES, s.len);
        }
        if (at > UINT32_MAX) {
            return err_set_at(l->info, ERR_BAD_VOCAB, kv->offset,
                              "tokenizer.ggml.tokens: expected tokens of at most %d bytes in all", TOKENIZER_MAX_BYTES);
        }
        t->text[id] = (struct token_text){.at = (uint32_t)at, .len = (uint32_t)s.len};
        t->longest = MAX_OF(t->longest, s.len);
    }
    return ERR_OK;
}

/* Reads an array with one element per token. */
static enum err get_per_token(const struct loader *l, const char *key, enum gguf_type type, const struct gguf_kv **out)
{
    TRY(gguf_get_array(l->g, key, type, out, l->info));
    if ((*out)->n != (uint64_t)l->t->n_vocab) {
        return err_set_at(l->info, ERR_BAD_TYPE, (*out)->offset, "%s: expected %d elements, found %" PRIu64, key,
                          l->t->n_vocab, (*out)->n);
    }
    return ERR_OK;
}

static enum err read_kinds(struct loader *l)
{
    struct tokenizer *t = l->t;
    const struct gguf_kv *kv;
    memset(t->kinds, TOKEN_NORMAL, (size_t)t->n_vocab);
    if (gguf_find(l->g, "tokenizer.ggml.token_type") == NULL) {
        return ERR_OK;
    }
    TRY(get_per_token(l, "tokenizer.ggml.token_type", GGUF_I32, &kv));
    for (int32_t id = 0; id < t->n_vocab; id++) {
        int64_t kind = gguf_elem_i64(kv, (uint64_t)id);
        if (kind < TOKEN_NORMAL || kind > TOKEN_BYTE) {
            return err_set_at(l->info, ERR_BAD_VOCAB, kv->offset,
                              "tokenizer.ggml.token_type[%d]: expected 1 to 6, found %" PRId64, id, kind);
        }
        t->kinds[id] = (unsigned char)kind;
    }
    return ERR_OK;
}

/* A token without text matches nothing and could loop forever, so only filler tokens can be empty. */
static enum err check_texts(struct loader *l)
{
    const struct tokenizer *t = l->t;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        if (t->text[id].len == 0 && t->kinds[id] != TOKEN_UNUSED && t->kinds[id] != TOKEN_CONTROL) {
            return err_set(l->info, ERR_BAD_VOCAB, "tokenizer.ggml.tokens",
                           "tokenizer.ggml.tokens[%d]: expected a text, found none", id);
        }
    }
    return ERR_OK;
}

/* The embedding must have one row per token; otherwise logits without a token result. */
static enum err check_embedding(struct loader *l)
{
    const struct gguf_tensor *e = gguf_find_tensor(l->g, "token_embd.weight");
    if (e != NULL && e->dims[1] != (uint64_t)l->t->n_vocab) {
        return err_set(l->info, ERR_BAD_VOCAB, "tokenizer.ggml.tokens",
                       "tokenizer.ggml.tokens: expected %" PRIu64 " tokens, the rows of token_embd.weight, found %d",
                       e->dims[1], l->t->n_vocab);
    }
    return ERR_OK;
}

/* A vocabulary that needs no scores can have some, one per token. */
static enum err read_scores(struct loader *l)
{
    struct tokenizer *t = l->t;
    const struct gguf_kv *kv;
    bool is_needed = t->is_spm && !t->merges_by_rank && t->method != METHOD_WORDPIECE;
    if (!is_needed && gguf_find(l->g, "tokenizer.ggml.scores") == NULL) {
        return ERR_OK;
    }
    TRY(get_per_token(l, "tokenizer.ggml.scores", GGUF_F32, &kv));
    if (!is_needed) {
        return ERR_OK;
    }
    t->scores = mem_alloc((size_t)t->n_vocab * sizeof *t->scores, MEM_MODEL);
    TRY_MEM_FOR(t->scores != NULL, l->info, "out of memory for the tokenizer");
    for (int32_t id = 0; id < t->n_vocab; id++) {
        t->scores[id] = (float)gguf_elem_f64(kv, (uint64_t)id);
        if (!(t->scores[id] > -1e30f && t->scores[id] < 1e30f)) {
            return err_set_at(l->info, ERR_BAD_VOCAB, kv->offset,
                              "tokenizer.ggml.scores[%d]: expected a number of less than 1e30, found %g", id,
                              (double)t->scores[id]);
        }
    }
    return ERR_OK;
}

static enum err build_words(struct loader *l)
{
    enum err err = words_build(l->t);
    TRY_MEM_FOR(err != ERR_NOMEM, l->info, "out of memory for the tokenizer");
    return err == ERR_OK ? ERR_OK
                         : err_set(l->info, err, "tokenizer.ggml.tokens", "expected tokens of at most %d bytes in all",
                                   TOKENIZER_MAX_BYTES);
}

enum { MERGES_AHEAD = 8 }; /* merges whose slots are being prefetched */

/* State that the merges share. */
struct merge_reader {
    struct merge waiting[MERGES_AHEAD];
    uint32_t n_waiting;
    struct words_merge words;
    uint64_t offset; /* in the file, for messages */
};

static enum err add_merge(struct loader *l, struct gguf_str s, int32_t rank, struct merge_reader *r)
{
    struct tokenizer *t = l->t;
    const char *space = s.len > 1 ? memchr(s.data + 1, ' ', s.len - 1) : NULL; /* each part has at least one byte */
    struct words_merge *m = &r->words;
    int32_t result = TOKENIZER_NO_TOKEN;
    m->left = m->right = TOKENIZER_NO_TOKEN;
    if (space != NULL && space + 1 < s.data + s.len) {
        struct gguf_str a = {s.data, (size_t)(space - s.data)};
        struct gguf_str b = {space + 1, s.len - a.len - 1};
        if (a.len <= t->longest && b.len <= t->longest) {
            result = words_find_merge(t, a, b, m);
        }
    }
    if (m->left < 0 || m->right < 0 || result < 0 ||
        t->kinds[result] == TOKEN_CONTROL) { /* plain text never yields control tokens */
        return err_set_at(
            l->info, ERR_BAD_MERGE, r->offset,
            "tokenizer.ggml.merges[%d]: expected two tokens and a space between whose union is a token of "
            "text, found '%.*s'",
            rank, (int)MIN_OF(s.len, (size_t)64), s.data);
    }
    uint64_t hash = tokenizer_pair_hash(m->left, m->right), bit;
    __builtin_prefetch(&t->merges[(uint32_t)hash & t->merge_mask]);
    *tokenizer_merge_bit(t, hash, &bit) |= bit;
    struct merge *place = &r->waiting[r->n_waiting++ % MERGES_AHEAD];
    if (r->n_waiting > MERGES_AHEAD) {
        tokenizer_enter_merge(t, place);
    }
    *place = (struct merge){.left = m->left, .right = m->right, .key = (uint32_t)rank, .result = result};
    return ERR_OK;
}

static enum err read_merges(struct loader *l)
{
    struct tokenizer *t = l->t;
    const struct gguf_kv *kv;
    TRY(gguf_get_array(l->g, "tokenizer.ggml.merges", GGUF_STRING, &kv, l->info));
    if (kv->n > TOKENIZER_MAX_MERGES) {
        return err_set_at(l->info, ERR_BAD_MERGE, kv->offset,
                          "tokenizer.ggml.merges: expected at most %d, found %" PRIu64, TOKENIZER_MAX_MERGES, kv->n);
    }
    TRY_MEM_FOR(tokenizer_reserve_merges(t, kv->n) == ERR_OK, l->info, "out of memory for the tokenizer");
    const unsigned char *cursor = kv->data;
    struct merge_reader r = {.offset = kv->offset};
    r.words.scratch = mem_alloc(2 * t->longest, MEM_MODEL);
    TRY_MEM_FOR(r.words.scratch != NULL, l->info, "out of memory for the tokenizer");
    enum err err = ERR_OK;
    for (uint64_t i = 0; i < kv->n && err == ERR_OK; i++) {
        err = add_merge(l, gguf_next_str(&cursor), (int32_t)i, &r);
    }
    for (uint32_t i = r.n_waiting > MERGES_AHEAD ? r.n_waiting - MERGES_AHEAD : 0; i < r.n_waiting; i++) {
        tokenizer_enter_merge(t, &r.waiting[i % MERGES_AHEAD]);
    }
    mem_free(r.words.scratch);
    return err;
}

/* --- single bytes ----------------------------------------------------------------------------------------------- */

static void find_alphabet(struct tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char s[4];
        size_t n = utf8_encode(byte_alphabet_cp((unsigned char)b), s);
        t->byte_ids[b] = tokenizer_find(t, s, n); /* some vocabularies lack bytes that UTF-8 text never contains */
        t->lacks_high_bytes = t->lacks_high_bytes || (b >= 0x80 && t->byte_ids[b] < 0);
    }
}

/* Byte tokens of both models are exactly <0xNN>; SPM has one per byte, or none. */
static enum err read_byte_tokens(struct loader *l)
{
    struct tokenizer *t = l->t;
    int32_t ids[256], found = 0, ascii[128];
    memset(ids, 0xFF, sizeof ids);
    memset(ascii, 0xFF, sizeof ascii);
    for (int32_t id = 0; id < t->n_vocab; id++) {
        struct gguf_str s = tokenizer_text(t, id);
        if (t->kinds[id] != TOKEN_BYTE) {
            bool is_ascii = s.len == 1 && (unsigned char)s.data[0] < 0x80 && tokenizer_is_text(t, id);
            ascii[is_ascii ? s.data[0] : 0] = is_ascii ? id : ascii[0];
            continue;
        }
        int byte = tokenizer_byte_of(s);
        if (byte < 0 || ids[byte] >= 0) {
            return err_set(l->info, ERR_BAD_BYTE_TOKEN, "tokenizer.ggml.tokens",
                           "token %d: expected a byte token <0xNN> that is not duplicate, found '%.*s'", id,
                           (int)MIN_OF(s.len, (size_t)32), s.data);
        }
        ids[byte] = id;
        found++;
    }
    if (!t->is_spm) {
        return ERR_OK;
    }
    for (int b = 0; b < 128 && found > 0; b++) { /* Gemma has a tab instead of <0x09> */
        found += ids[b] < 0 && ascii[b] >= 0;
        ids[b] = ids[b] < 0 ? ascii[b] : ids[b];
    }
    memcpy(t->byte_ids, ids, sizeof ids);
    t->lacks_high_bytes = found == 0;
    if (found != 0 && found != 256) {
        return err_set(l->info, ERR_BAD_BYTE_TOKEN, "tokenizer.ggml.tokens",
                       "expected byte tokens for all 256 bytes or none, found %d", found);
    }
    return ERR_OK;
}

/* --- special tokens --------------------------------------------------------------------------------------------- */

/* Reads "tokenizer.ggml.<name>_token_id": an id of the vocabulary; TOKENIZER_NO_TOKEN if it is absent or -1. */
static enum err read_special(struct loader *l, const char *key, int32_t *out)
{
    uint64_t id;
    *out = TOKENIZER_NO_TOKEN;
    const struct gguf_kv *kv = gguf_find(l->g, key);
    bool is_number = kv != NULL && (kv->type == GGUF_I32 || kv->type == GGUF_U32 || kv->type == GGUF_I64);
    int64_t v = is_number ? gguf_elem_i64(kv, 0) : 0;
    if (kv == NULL || v == -1 || v == UINT32_MAX) { /* converters write -1 for a token that the model lacks */
        return ERR_OK;
    }
    enum err err = gguf_get_u64(l->g, key, &id, l->info);
    if (err == ERR_BAD_TYPE) {
        return err;
    }
    if (err != ERR_OK || id >= (uint64_t)l->t->n_vocab) {
        return err_set_at(l->info, ERR_BAD_SPECIAL_TOKEN, kv->offset, "%s: expected an id of 0 to %d, found %" PRId64,
                          key, l->t->n_vocab - 1, gguf_elem_i64(kv, 0));
    }
    *out = (int32_t)id;
    return ERR_OK;
}

/* If an answer consists of messages in several channels, <|end|> ends a message, and <|call|> the answer. */
static void mark_ends_of_channels(struct tokenizer *t)
{
    int32_t call = tokenizer_find(t, "<|call|>", 8), end = tokenizer_find(t, "<|end|>", 7);
    if (call >= 0 && end >= 0 && tokenizer_find(t, "<|return|>", 10) >= 0 && t->kinds[call] == TOKEN_CONTROL) {
        t->is_eog[end] = 0;
        t->is_eog[call] = 1;
    }
}

/* Finds tokens that end a generation by their text. Tokens of the first list end a turn in known families, whatever
 * else the file says, and are never text. Words of the second list can also be text, so they count only if the file
 * declares them control tokens [the names: llama.cpp b11434, src/llama-vocab.cpp]. */
static void mark_known_ends(struct tokenizer *t)
{
    static const char *const always[] = {
        "<|eot_id|>",    "<|im_end|>", "<|end|>",         "<|return|>",         "<end_of_turn>",
        "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_utterance>",
    };
    static const char *const if_control[] = {
        "</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<turn|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
    };
    for (size_t i = 0; i < ARRAY_LEN(always); i++) {
        int32_t id = tokenizer_find(t, always[i], strlen(always[i]));
        if (id >= 0) {
            t->is_eog[id] = 1;
            t->kinds[id] = TOKEN_CONTROL;
            words_ban(t, id);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(if_control); i++) {
        int32_t id = tokenizer_find(t, if_control[i], strlen(if_control[i]));
        if (id >= 0 && t->kinds[id] == TOKEN_CONTROL) {
            t->is_eog[id] = 1;
        }
    }
    mark_ends_of_channels(t);
}

/* Reads the special tokens of WordPiece and unigram vocabularies. BERT calls its two [CLS] and [SEP] and always adds
 * them; a unigram model requires an unknown token. */
static enum err read_method_specials(struct loader *l, bool *adds_bos, bool *adds_eos)
{
    struct tokenizer *t = l->t;
    int32_t cls, sep;
    if (t->method == METHOD_WORDPIECE) {
        TRY(read_special(l, "tokenizer.ggml.cls_token_id", &cls));
        TRY(read_special(l, "tokenizer.ggml.seperator_token_id", &sep)); /* the files' spelling */
        t->bos = cls >= 0 ? cls : t->bos;
        t->eos = sep >= 0 ? sep : t->eos;
        *adds_bos = t->bos >= 0;
        *adds_eos = t->eos >= 0;
    } else if (t->method == METHOD_UNIGRAM) {
        *adds_bos = false;
        *adds_eos = t->eos >= 0;
    }
    for (int32_t id = 0; id < t->n_vocab && t->unk < 0 && t->method != METHOD_MERGES; id++) {
        t->unk = t->kinds[id] == TOKEN_UNKNOWN ? id : t->unk;
    }
    if (t->unk < 0 && t->method != METHOD_MERGES) {
        return err_set(
            l->info, ERR_BAD_SPECIAL_TOKEN, "tokenizer.ggml.unknown_token_id",
            "tokenizer.ggml.unknown_token_id: expected an id, since %s tokenizers need an unknown token, found "
            "none",
            t->model);
    }
    return ERR_OK;
}

static enum err read_specials(struct loader *l)
{
    struct tokenizer *t = l->t;
    int32_t eot, eom, ignored;
    const struct {
        const char *key;
        int32_t *id;
    } keys[] = {
        {"tokenizer.ggml.bos_token_id", &t->bos},     {"tokenizer.ggml.eos_token_id", &t->eos},
        {"tokenizer.ggml.unknown_token_id", &t->unk}, {"tokenizer.ggml.eot_token_id", &eot},
        {"tokenizer.ggml.eom_token_id", &eom},        {"tokenizer.ggml.padding_token_id", &ignored},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        TRY(read_special(l, keys[i].key, keys[i].id));
    }
    const int32_t ends[] = {t->eos, eot, eom};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (ends[i] >= 0) {
            t->is_eog[ends[i]] = 1;
        }
    }
    mark_known_ends(t);
    bool bos_by_default = t->bos >= 0 && (t->pre == NULL || (t->pre->flags & PRE_ADDS_BOS) != 0);
    bool eos_by_default = false;
    TRY(read_method_specials(l, &bos_by_default, &eos_by_default));
    TRY(gguf_get_bool_or(l->g, "tokenizer.ggml.add_bos_token", bos_by_default, &t->adds_bos, l->info));
    TRY(gguf_get_bool_or(l->g, "tokenizer.ggml.add_eos_token", eos_by_default, &t->adds_eos, l->info));
    if (t->method == METHOD_WORDPIECE) {
        TRY(gguf_get_bool_or(l->g, "tokenizer.ggml.add_sep_token", t->adds_eos, &t->adds_eos, l->info));
    }
    TRY(gguf_get_bool_or(l->g, "tokenizer.ggml.add_space_prefix", t->is_spm && t->pre == NULL, &t->adds_space_prefix,
                         l->info));
    t->adds_space_prefix = t->adds_space_prefix || t->cuts_spaces || t->method == METHOD_WORDPIECE;
    bool lacks_bos = t->adds_bos && t->bos < 0;
    if (lacks_bos || (t->adds_eos && t->eos < 0)) {
        const char *key = lacks_bos ? "tokenizer.ggml.bos_token_id" : "tokenizer.ggml.eos_token_id";
        return err_set(l->info, ERR_BAD_SPECIAL_TOKEN, key,
                       "%s: expected an id, since the vocabulary asks for that token to be added, found none", key);
    }
    return ERR_OK;
}

static enum err build_sets(struct loader *l)
{
    struct gguf_str source;
    TRY(gguf_get_str_or_null(l->g, "tokenizer.chat_template", &source, l->info));
    enum err err = marks_build(l->t);
    if (err == ERR_OK && source.data != NULL) {
        err = tokenizer_add_marks(l->t, source.data, source.len);
    }
    if (err == ERR_BAD_VOCAB) {
        return err_set(l->info, err, "tokenizer.ggml.tokens", "expected special tokens of at most %d bytes in all",
                       TOKENIZER_MAX_SPECIAL_BYTES);
    }
    TRY_MEM_FOR(err != ERR_NOMEM, l->info, "out of memory for the tokenizer");
    return err;
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum err load(struct loader *l)
{
    TRY(tokenizer_read_model(l->g, l->t, l->info));
    TRY(read_tokens(l));
    TRY(check_embedding(l));
    TRY(read_kinds(l));
    TRY(check_texts(l));
    TRY(read_byte_tokens(l));
    TRY(read_scores(l));
    TRY(build_words(l));
    if (!l->t->is_spm || l->t->merges_by_rank) {
        TRY(read_merges(l));
    }
    if (!l->t->is_spm) {
        find_alphabet(l->t);
    }
    TRY(read_specials(l));
    TRY(tokenizer_rules_read(l->t, l->g, l->info));
    return build_sets(l);
}

/* For a folder, begins the message with the file that the vocabulary came from. */
static void name_file(const struct gguf *g, struct err_info *info)
{
    struct gguf_str file;
    if (info == NULL || gguf_get_str_or_null(g, "infcgi.tokenizer.file", &file, NULL) != ERR_OK || file.len == 0) {
        return;
    }
    struct err_info said = *info;
    err_set(info, said.code, said.where, "%.*s: %s", (int)file.len, file.data, said.text);
}

enum err tokenizer_new(const struct gguf *g, struct tokenizer **out, struct err_info *info)
{
    *out = NULL;
    unicode_table_init();
    struct tokenizer *t = mem_zalloc(sizeof *t, MEM_MODEL);
    TRY_MEM_FOR(t != NULL, info, "out of memory for the tokenizer");
    struct loader l = {.g = g, .t = t, .info = info};
    enum err err = load(&l);
    if (err != ERR_OK) {
        name_file(g, info);
        tokenizer_free(&t);
    }
    *out = t;
    return err;
}

void tokenizer_free(struct tokenizer **tokenizer)
{
    struct tokenizer *t = *tokenizer;
    if (t == NULL) {
        return;
    }
    mem_free(t->text);
    mem_free(t->scores);
    mem_free(t->kinds);
    mem_free(t->is_eog);
    mem_free(t->merges);
    mem_free(t->merge_bits);
    mem_free(t->trie);
    mem_free(t->own_pattern);
    splitter_free(&t->splitter);
    added_fini(t);
    words_fini(&t->words);
    mem_free(t->roles);
    special_fini(&t->marks);
    special_fini(&t->user_defined);
    mem_free(t);
    *tokenizer = NULL;
}
