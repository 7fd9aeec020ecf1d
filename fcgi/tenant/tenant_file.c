/* Each line is read into its section, where missing values are UNSAID. At the end of the file these become the values
 * of [default], which can be anywhere in the file. */
#include "fcgi/tenant/tenant_file.h"

#include "fcgi/ground/ini.h"
#include "fcgi/ground/number.h"

#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 1 << 20, MAX_KEYS = 4096 };
#define UNSAID INT64_MIN

static const struct {
    const char *name;
    int64_t value;
} priorities[] = {{"high", 10}, {"normal", 0}, {"low", -10}};

/* Keys with a numeric value. */
static const struct number {
    const char *name;
    size_t offset;
    int64_t min, max, fallback;
} numbers[] = {
    {"weight", offsetof(struct tenant_rules, weight), 1, 1000, 1},
    {"priority", offsetof(struct tenant_rules, priority), -100, 100, 0},
    {"requests-per-minute", offsetof(struct tenant_rules, requests_per_minute), 0, 1000000000, 0},
    {"tokens-per-minute", offsetof(struct tenant_rules, tokens_per_minute), 0, 1000000000000, 0},
    {"concurrent", offsetof(struct tenant_rules, concurrent), 0, 1000000, 0},
    {"max-tokens", offsetof(struct tenant_rules, max_tokens), 0, 1 << 30, 0},
};

static int64_t *number_of(struct tenant_rules *r, size_t i)
{
    return (int64_t *)(void *)((char *)r + numbers[i].offset);
}

enum err tenant_file_id(const char *name, struct apikey_id *out)
{
    char text[512]; /* the line feed keeps this digest apart from every key's */
    int n = snprintf(text, sizeof text, "tenant\n%s", name);
    out->is_set = true;
    return apikey_digest(text, (size_t)MIN_OF(n, (int)sizeof text - 1), out->bytes);
}

/* State while a file is read. */
struct reader {
    struct tenant_file *file;
    const char *path;
    int line;
    struct tenant_rules *section; /* OPTIONAL: NULL before the first section */
    bool has_default, has_models; /* for [default] */
    bool *says_models;            /* [TENANT_FILE_MAX] */
};

/* Reports an unexpected line. Its text is not shown, because it can be a key. */
static enum err refuse(const struct reader *r, const char *expected, struct err_info *info)
{
    return err_set(info, ERR_CONFIG, "tenants", "tenants: %.300s line %d: expected %s", r->path, r->line, expected);
}

static bool is_name(const char *s)
{
    size_t n = strlen(s);
    bool ok = n > 0 && n < TENANT_NAME_BYTES;
    for (size_t i = 0; i < n; i++) {
        ok = ok && s[i] > ' ' && s[i] <= '~' && strchr("\"\\[]", s[i]) == NULL;
    }
    return ok;
}

static enum err begin_section(struct reader *r, const char *name, struct err_info *info)
{
    struct tenant_file *f = r->file;
    if (strcmp(name, "default") == 0) {
        if (r->has_default) {
            return refuse(r, "[default] once, found it again", info);
        }
        r->has_default = true;
        r->section = &f->fallback;
        return ERR_OK;
    }
    if (!is_name(name)) {
        return refuse(r, "a name of 1 to 64 visible ASCII characters without \", \\, [ and ]", info);
    }
    if (f->n == TENANT_FILE_MAX) {
        return refuse(r, "at most 1024 tenants, found another", info);
    }
    struct tenant_rules fresh = {0};
    snprintf(fresh.name, sizeof fresh.name, "%s", name);
    TRY(tenant_file_id(name, &fresh.id));
    if (tenant_file_find(f, &fresh.id) != NULL) {
        return refuse(r, "each tenant once, found one again", info);
    }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        *number_of(&fresh, i) = UNSAID;
    }
    f->at[f->n] = fresh;
    r->section = &f->at[f->n++];
    return ERR_OK;
}

static enum err take_key(struct reader *r, const char *key, struct err_info *info)
{
    struct buf *keys = &r->file->keys;
    if (r->section == &r->file->fallback) {
        return refuse(r, "no key in [default], found one", info);
    }
    if (apikey_has(keys, key, strlen(key))) {
        return refuse(r, "each key once, found a duplicate", info);
    }
    size_t before = keys->len;
    enum err err = apikey_add(keys, key, strlen(key), &r->section->id);
    if (err == ERR_OK && keys->len / (keys->len - before) > MAX_KEYS) {
        return refuse(r, "at most 4096 keys, found another", info);
    }
    return err == ERR_INVALID_VALUE ? refuse(r, APIKEY_EXPECTED, info) : err;
}

/* Reads names separated by commas or white space; a single `*`: any. */
static enum err take_models(struct reader *r, const char *value, struct err_info *info)
{
    char *out = r->section->models;
    size_t n = 0;
    for (const char *at = value + strspn(value, ", \t"); *at != '\0'; at += strspn(at, ", \t")) {
        size_t len = strcspn(at, ", \t");
        if (n + len + 2 > TENANT_MODELS_BYTES) {
            return refuse(r, "models of 510 characters in all", info);
        }
        out[n] = ' ';
        memcpy(out + n + (n > 0), at, len);
        n += len + (n > 0);
        at += len;
    }
    out[n] = '\0';
    if (n == 0) {
        return refuse(r, "names of models, or *", info);
    }
    if (strcmp(out, "*") == 0) {
        out[0] = '\0';
    }
    if (r->section == &r->file->fallback) {
        r->has_models = true;
    } else {
        r->says_models[r->section - r->file->at] = true;
    }
    return ERR_OK;
}

static enum err take_number(struct reader *r, size_t i, const char *value, struct err_info *info)
{
    char expected[160];
    int64_t v = 0;
    bool ok = number_parse(value, &v) && v >= numbers[i].min && v <= numbers[i].max;
    for (size_t k = 0; k < ARRAY_LEN(priorities) && strcmp(numbers[i].name, "priority") == 0; k++) {
        if (strcmp(value, priorities[k].name) == 0) {
            v = priorities[k].value;
            ok = true;
        }
    }
    if (!ok) {
        snprintf(expected, sizeof expected, "%s of %lld to %lld%s", numbers[i].name, (long long)numbers[i].min,
                 (long long)numbers[i].max, strcmp(numbers[i].name, "priority") == 0 ? ", or high, normal or low" : "");
        return refuse(r, expected, info);
    }
    *number_of(r->section, i) = v;
    return ERR_OK;
}

static enum err take_line(void *arg, const struct ini_line *line, struct err_info *info)
{
    struct reader *r = arg;
    r->line = line->number;
    if (line->section != NULL) {
        return begin_section(r, line->section, info);
    }
    if (r->section == NULL) {
        return refuse(r, "[name] before the first `name = value`", info);
    }
    if (strcmp(line->name, "key") == 0) {
        return take_key(r, line->value, info);
    }
    if (strcmp(line->name, "models") == 0) {
        return take_models(r, line->value, info);
    }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (strcmp(line->name, numbers[i].name) == 0) {
            return take_number(r, i, line->value, info);
        }
    }
    return refuse(r, "key, weight, priority, requests-per-minute, tokens-per-minute, concurrent, max-tokens or models",
                  info);
}

/* Replaces missing values with those of [default]. */
static void settle(struct reader *r)
{
    struct tenant_file *f = r->file;
    for (size_t k = 0; k < f->n; k++) {
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
            int64_t *v = number_of(&f->at[k], i);
            *v = *v != UNSAID ? *v : *number_of(&f->fallback, i);
        }
        if (!r->says_models[k] && r->has_models) {
            memcpy(f->at[k].models, f->fallback.models, sizeof f->at[k].models);
        }
    }
}

void tenant_file_init(struct tenant_file *f)
{
    *f = (struct tenant_file){0};
    buf_init(&f->keys, 0, MEM_GENERAL);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        *number_of(&f->fallback, i) = numbers[i].fallback;
    }
}

enum err tenant_file_read(const char *path, struct tenant_file *f, struct err_info *info)
{
    struct buf text;
    const struct ini_file file = {"tenants", path, FILE_LIMIT_BYTES, &text};
    struct reader r = {.file = f, .path = path};
    tenant_file_init(f);
    buf_init(&text, FILE_LIMIT_BYTES, MEM_GENERAL);
    f->at = mem_zalloc_array(TENANT_FILE_MAX, sizeof *f->at, MEM_GENERAL);
    r.says_models = mem_zalloc_array(TENANT_FILE_MAX, sizeof *r.says_models, MEM_GENERAL);
    enum err err = f->at != NULL && r.says_models != NULL ? ini_load(&file, info) : ERR_NOMEM;
    err = err != ERR_OK ? err : ini_read(&file, take_line, &r, info);
    if (err == ERR_OK) {
        settle(&r);
    }
    mem_free(r.says_models);
    buf_fini(&text);
    return err;
}

void tenant_file_fini(struct tenant_file *f)
{
    mem_free(f->at);
    buf_fini(&f->keys);
    *f = (struct tenant_file){0};
}

const struct tenant_rules *tenant_file_find(const struct tenant_file *f, const struct apikey_id *id)
{
    for (size_t i = 0; i < f->n && id->is_set; i++) {
        if (memcmp(f->at[i].id.bytes, id->bytes, sizeof id->bytes) == 0) {
            return &f->at[i];
        }
    }
    return NULL;
}
