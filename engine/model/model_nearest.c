#include "engine/model/model_nearest.h"

#include "engine/model/blocks.h"

#include <stdio.h>
#include <string.h>

/* Different names, of which a number after "blk." is *. Further ones than MAX_NAMES are not noted. */
enum { MAX_NAMES = 64, NAME_BYTES = 72, SHOWN_NAMES = 3, ARCH_BYTES = 64 };
struct names {
    char name[MAX_NAMES][NAME_BYTES];
    int n;
};

struct model_probe {
    const struct gguf *g;
    struct arena *arena; /* of the plan that is built */
    bool *has_key;       /* [keys]: asked for */
    bool *has_tensor;    /* [tensors]: found */
    struct names lacks;
};

/* What the file lacks for a family, and what the family leaves unread. */
struct distance {
    bool fits; /* it takes the file's values, and reads most of its tensors */
    struct names lacks, tensors, keys;
};

static void add_name(struct names *to, const char *name, size_t len)
{
    char *out = to->name[to->n];
    static const char layer[] = "blk.";
    size_t n = 0, at = 0;
    if (to->n == MAX_NAMES) {
        return;
    }
    if (len > sizeof layer && memcmp(name, layer, sizeof layer - 1) == 0) {
        for (at = sizeof layer - 1; at < len && name[at] >= '0' && name[at] <= '9';) {
            at++;
        }
        n = (size_t)snprintf(out, NAME_BYTES, "%s*", layer);
    }
    snprintf(out + n, NAME_BYTES - n, "%.*s", (int)MIN_OF(len - at, (size_t)NAME_BYTES), name + at);
    for (int i = 0; i < to->n; i++) {
        if (strcmp(to->name[i], out) == 0) {
            return;
        }
    }
    to->n++;
}

void model_probe_key(struct model_probe *probe, const char *key)
{
    const struct gguf_kv *kv = gguf_find(probe->g, key);
    if (kv != NULL) {
        probe->has_key[kv - gguf_kv_at(probe->g, 0)] = true;
    }
}

void model_probe_tensor(struct model_probe *probe, const struct gguf_tensor *t)
{
    probe->has_tensor[t - gguf_tensor_at(probe->g, 0)] = true;
}

static void read_zeros(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    (void)s, (void)row, (void)from;
    memset(out, 0, n * sizeof *out);
}

static void encode_zeros(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    for (uint32_t i = 0; i < part->n_rows; i++) {
        memset((char *)out + i * stride, 0, row_source_bytes(s, part->n_in));
    }
}

static void done_with_zeros(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    (void)s, (void)row, (void)n, (void)drop, (void)arg;
}

const struct row_source *model_probe_lack(struct model_probe *probe, const char *name, uint64_t n_in, uint64_t n_rows)
{
    static const struct row_source_ops zeros = {.read = read_zeros, .encode = encode_zeros, .done = done_with_zeros};
    struct row_source *s = n_in <= UINT32_MAX && n_rows <= UINT32_MAX ? arena_alloc(probe->arena, sizeof *s) : NULL;
    add_name(&probe->lacks, name, strlen(name));
    if (s != NULL) {
        *s = row_source_of(&zeros, DTYPE_F32, (uint32_t)n_rows, (uint32_t)n_in, 1);
    }
    return s;
}

static bool begins_with(struct gguf_str s, const char *text, size_t n)
{
    return s.len > n && memcmp(s.data, text, n) == 0 && s.data[n] == '.';
}

/* Notes what the family left unread: tensors, and keys that begin with the file's prefix. */
static void add_unread(const struct model_probe *probe, const char *prefix, struct distance *d)
{
    size_t n_read = 0;
    for (size_t i = 0; i < gguf_n_tensors(probe->g); i++) {
        struct gguf_str name = gguf_tensor_at(probe->g, i)->name;
        n_read += probe->has_tensor[i];
        if (!probe->has_tensor[i]) {
            add_name(&d->tensors, name.data, name.len);
        }
    }
    d->fits = n_read > gguf_n_tensors(probe->g) / 2;
    for (size_t i = 0; i < gguf_n_kv(probe->g); i++) {
        struct gguf_str key = gguf_kv_at(probe->g, i)->key;
        if (!probe->has_key[i] && begins_with(key, prefix, strlen(prefix))) {
            add_name(&d->keys, key.data, key.len);
        }
    }
}

/* Measures the distance of one family. Returns false if memory is out. */
static bool measure(const struct model_family *f, struct model_probe *probe, const char *prefix, struct distance *d)
{
    struct err_info info = {.offset = ERR_NO_OFFSET};
    struct blocks b = {.g = probe->g, .arch = prefix, .may_predict = true, .probe = probe, .info = &info};
    if (plan_new(&b.plan) != ERR_OK) {
        return false;
    }
    memset(probe->has_key, 0, gguf_n_kv(probe->g));
    memset(probe->has_tensor, 0, gguf_n_tensors(probe->g));
    probe->lacks.n = 0;
    probe->arena = &b.plan->arena;
    enum err err = f->build(&b);
    plan_free(&b.plan);
    *d = (struct distance){.lacks = probe->lacks};
    if (err == ERR_OK) {
        add_unread(probe, prefix, d);
    }
    return err != ERR_NOMEM;
}

static int count(const struct distance *d) { return d->lacks.n + d->tensors.n + d->keys.n; }

static void append(char out[MODEL_NEAREST_BYTES], const char *text)
{
    size_t n = strlen(out);
    snprintf(out + n, MODEL_NEAREST_BYTES - n, "%s", text);
}

static void append_names(char out[MODEL_NEAREST_BYTES], const char *what, const struct names *names)
{
    char more[32] = "";
    if (names->n == 0) {
        return;
    }
    append(out, what);
    for (int i = 0; i < MIN_OF(names->n, (int)SHOWN_NAMES); i++) {
        append(out, i == 0 ? " " : ", ");
        append(out, names->name[i]);
    }
    if (names->n > SHOWN_NAMES) {
        snprintf(more, sizeof more, " and %d more", names->n - SHOWN_NAMES);
    }
    append(out, more);
}

static void write_text(const struct model_family *f, const struct distance *d, char out[MODEL_NEAREST_BYTES])
{
    append(out, "'");
    append(out, f->arch);
    append(out, "'");
    append_names(out, "; it does not read", &d->tensors);
    append_names(out, "; it ignores", &d->keys);
    append_names(out, "; the file lacks", &d->lacks);
}

void model_nearest_from(const struct model_family *const *table, const struct gguf *g, char out[MODEL_NEAREST_BYTES])
{
    struct gguf_str arch;
    char prefix[ARCH_BYTES];
    const struct model_family *nearest = NULL;
    struct distance *d = mem_zalloc_array(2, sizeof *d, MEM_GENERAL); /* the nearest, and the next */
    struct model_probe probe = {.g = g,
                                .has_key = mem_zalloc_array(gguf_n_kv(g) + 1, 1, MEM_GENERAL),
                                .has_tensor = mem_zalloc_array(gguf_n_tensors(g) + 1, 1, MEM_GENERAL)};
    out[0] = '\0';
    bool goes_on = d != NULL && probe.has_key != NULL && probe.has_tensor != NULL &&
                   gguf_get_str_or_null(g, "general.architecture", &arch, NULL) == ERR_OK && arch.data != NULL &&
                   arch.len < sizeof prefix;
    if (goes_on) {
        snprintf(prefix, sizeof prefix, "%.*s", (int)arch.len, arch.data);
    }
    for (; goes_on && *table != NULL; table++) {
        goes_on = measure(*table, &probe, prefix, &d[1]);
        if (goes_on && d[1].fits && (nearest == NULL || count(&d[1]) < count(&d[0]))) {
            nearest = *table;
            d[0] = d[1];
        }
    }
    if (goes_on && nearest != NULL) {
        write_text(nearest, &d[0], out);
    }
    mem_free(d);
    mem_free(probe.has_key);
    mem_free(probe.has_tensor);
}
