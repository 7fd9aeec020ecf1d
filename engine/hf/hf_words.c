/* Splits a message into words and replaces keys and tensors of GGUF by the folder's names. So builders need not know
 * what they read, and every error is covered. */
#include "engine/hf/hf_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WORDS = 96, WORD_BYTES = 256 };

struct hf_words {
    struct gguf_words base;
    const struct hf_family *family;
    const struct safetensors_folder *tensors;
    size_t n;
    struct {
        const char *gguf, *json;
    } rows[MAX_WORDS];
};

enum err hf_bad(const struct hf *h, const char *key, const char *fmt, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(h->info, ERR_BAD_CONFIG, key, "config.json: %s: %s", key, text);
}

enum err hf_bad_value(const struct hf *h, const char *key, const char *expected, const json_t *found)
{
    char shown[JSON_READ_SHOWN];
    return hf_bad(h, key, "expected %s, found %s", expected, json_read_show(found, shown));
}

enum err hf_bad_tensor(const struct hf *h, enum err code, const char *name, const char *fmt, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(h->info, code, name, "tensor '%.255s': %s", name, text);
}

void hf_words_init(struct hf *h)
{
    h->words = arena_zalloc(&h->b.arena, sizeof *h->words);
    if (h->words == NULL) {
        h->b.err = ERR_NOMEM;
    }
}

void hf_words_add(struct hf *h, const char *gguf, const char *json)
{
    struct hf_words *w = h->words;
    char *copy = w == NULL || w->n == MAX_WORDS ? NULL : arena_dup(&h->b.arena, json, strlen(json));
    if (copy != NULL) { /* else the message keeps GGUF's word */
        w->rows[w->n].gguf = gguf;
        w->rows[w->n++].json = copy;
    }
}

/* Returns the last entry, because a family's follows the common one. */
static const char *find_key(const struct hf_words *w, const char *gguf)
{
    for (size_t i = w != NULL ? w->n : 0; i-- > 0;) {
        if (strcmp(w->rows[i].gguf, gguf) == 0) {
            return w->rows[i].json;
        }
    }
    return NULL;
}

const char *hf_words_find(const struct hf *h, const char *gguf) { return find_key(h->words, gguf); }

/* Finds a tensor's actual or expected name in the folder. */
static bool find_tensor(const struct hf_words *w, const char *name, char out[WORD_BYTES])
{
    for (size_t i = 0; i < safetensors_folder_n_tensors(w->tensors); i++) {
        char here[HF_NAME_BYTES];
        uint32_t number[2] = {0, 0};
        const struct st_tensor *t = safetensors_folder_at(w->tensors, i);
        const struct hf_name *n = hf_names_find(w->family, t->name, number);
        if (n != NULL && n->gguf != NULL) {
            hf_names_write(n->gguf, number[0], here);
            if (strcmp(here, name) == 0) {
                snprintf(out, WORD_BYTES, "%.*s", WORD_BYTES - 1, t->name);
                return true;
            }
        }
    }
    char back[HF_NAME_BYTES];
    bool is_known = hf_names_back(w->family, name, back);
    snprintf(out, WORD_BYTES, "%s", is_known ? back : "");
    return is_known;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-'; /* as in "falcon-h1." */
}

/* Translates a key, with or without the architecture, or a tensor; otherwise out is the word itself. *is_key: it was a
 * key. */
static void translate(const struct hf_words *w, const char *word, char out[WORD_BYTES], bool *is_key)
{
    size_t n = strlen(w->family->arch);
    bool has_arch = strncmp(word, w->family->arch, n) == 0 && word[n] == '.';
    const char *json = find_key(w, has_arch ? word + n + 1 : word);
    *is_key = json != NULL;
    if (json != NULL) {
        snprintf(out, WORD_BYTES, "%s", json);
    } else if (strchr(word, '.') == NULL || !find_tensor(w, word, out)) {
        snprintf(out, WORD_BYTES, "%s", word);
    }
}

/* Returns the length of a shape of two or more numbers, "[48, 32, 1, 1]", or 0. */
static size_t read_shape(const char *text, uint64_t dims[4], int *n)
{
    const char *at = text + 1; /* after the bracket */
    for (*n = 0; *n < 4; at += 2) {
        const char *digits = at;
        for (dims[*n] = 0; *at >= '0' && *at <= '9' && at - digits < 18; at++) {
            dims[*n] = dims[*n] * 10 + (uint64_t)(*at - '0');
        }
        *n += at != digits;
        if (at == digits || strncmp(at, ", ", 2) != 0) {
            return at != digits && *at == ']' && *n > 1 ? (size_t)(at + 1 - text) : 0;
        }
    }
    return 0;
}

/* Reverses shapes, because folders write columns last: "[32, 48]". */
static void turn_shapes(char *text)
{
    char *out = text;
    while (*text != '\0') {
        char shape[96];
        uint64_t dims[4];
        int n = 0;
        size_t len = *text == '[' ? read_shape(text, dims, &n) : 0, used = 1;
        if (len == 0) {
            *out++ = *text++;
            continue;
        }
        while (n > 1 && dims[n - 1] == 1) {
            n--;
        }
        shape[0] = '[';
        while (n-- > 0) {
            used += (size_t)snprintf(shape + used, sizeof shape - used, "%" PRIu64 "%s", dims[n], n > 0 ? ", " : "]");
        }
        memcpy(out, shape, used); /* not longer than the original */
        out += used;
        text += len;
    }
    *out = '\0';
}

/* Returns the length of the word at `at`; a point after it ends a sentence. */
static size_t word_length(const char *at)
{
    size_t n = 0;
    while (is_letter(at[n]) && n < WORD_BYTES - 1) {
        n++;
    }
    while (n > 0 && at[n - 1] == '.') {
        n--;
    }
    return n;
}

/* Translates the text word by word, except quotes from the file between apostrophes. */
static void tell(const struct gguf_words *words, struct err_info *info)
{
    const struct hf_words *w = (const struct hf_words *)words;
    char text[2 * ERR_TEXT_BYTES] = "", word[WORD_BYTES], other[WORD_BYTES];
    bool is_quoted = false, is_key = false, is_of_key = false, is_of_tensor = false;
    size_t n = 0;
    for (const char *at = info->text; *at != '\0' && n < ERR_TEXT_BYTES;) {
        size_t len = word_length(at);
        if (len == 0 || is_quoted) {
            /* not an apostrophe within a word */
            is_quoted ^= *at == '\'' && (is_quoted || at == info->text || !is_letter(at[-1]));
            text[n++] = *at++;
            continue;
        }
        snprintf(word, sizeof word, "%.*s", (int)len, at);
        translate(w, word, other, &is_key);
        if (at == info->text) {
            is_of_key = is_key;
            is_of_tensor = !is_key && strcmp(word, other) != 0;
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", other);
        at += len;
    }
    text[n] = '\0';
    if (is_of_tensor) {
        turn_shapes(text);
    }
    translate(w, info->where, other, &is_key);
    snprintf(info->where, sizeof info->where, "%.*s", ERR_WHERE_BYTES - 1, other);
    snprintf(info->text, sizeof info->text, "%s%.*s", is_of_key ? "config.json: " : "", ERR_TEXT_BYTES - 16, text);
}

void hf_words_done(struct hf *h)
{
    if (h->words != NULL) {
        h->words->base.tell = tell;
        h->words->family = h->family;
        h->words->tensors = h->tensors;
        h->b.words = &h->words->base;
    }
}
