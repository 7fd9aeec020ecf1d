/* Files whose queries, keys and values stand in one tensor (attn_qkv), as converters write them on demand: every golden
 * model whose family takes them gives the same bits so. Biases may stand by themselves all the same. */
#include "engine/backend/backend.h"
#include "engine/format/gguf_build.h"
#include "engine/model/model.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *blocks_fused_qkv_suite(void);

#define MODELS "tests/golden/models/"

enum { ROWS = 9, MAX_NAME = 128, MAX_MODELS = 128 };

static char names[MAX_MODELS][MAX_NAME];
static int n_names;

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

static void list_models(void)
{
    DIR *dir = opendir(MODELS);
    ck_assert_ptr_nonnull(dir);
    n_names = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL && n_names < MAX_MODELS;) {
        const char *dot = strchr(e->d_name, '.');
        size_t length = strlen(e->d_name);
        if (dot != NULL && strcmp(dot, ".gguf") == 0 && length < MAX_NAME) {
            memcpy(names[n_names++], e->d_name, length + 1);
        }
    }
    closedir(dir);
    qsort(names, (size_t)n_names, MAX_NAME, by_name);
}

static bool is_arch(const struct gguf *g, const char *arch)
{
    struct gguf_str s;
    ck_assert_int_eq(gguf_get_str(g, "general.architecture", &s, NULL), ERR_OK);
    return s.len == strlen(arch) && memcmp(s.data, arch, s.len) == 0;
}

/* Which of blk.N.attn_{q,k,v}.WHAT a name is: 0 to 2, and N; -1 for others. */
static int part_of(struct gguf_str name, const char *what, int *layer)
{
    char s[MAX_NAME], tail[MAX_NAME];
    snprintf(s, sizeof s, "%.*s", (int)name.len, name.data);
    for (int k = 0; k < 3; k++) {
        char part;
        if (sscanf(s, "blk.%d.attn_%c.%127s", layer, &part, tail) == 3 && part == "qkv"[k] && strcmp(tail, what) == 0) {
            return k;
        }
    }
    return -1;
}

/* The three of a layer, if they are there and alike. */
static bool find_three(const struct gguf *g, int layer, const char *what, const struct gguf_tensor *three[3])
{
    for (int k = 0; k < 3; k++) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, "blk.%d.attn_%c.%s", layer, "qkv"[k], what);
        three[k] = gguf_find_tensor(g, name);
        bool is_stored = three[k] != NULL && three[k]->data != NULL; /* NVFP4 with factors is computed */
        bool is_alike = is_stored && three[k]->type == three[0]->type && three[k]->n_dims == three[0]->n_dims;
        if (!is_alike || (three[0]->n_dims == 2 && three[k]->dims[0] != three[0]->dims[0])) {
            return false;
        }
    }
    return true;
}

static void add_fused(struct gguf_build *b, int layer, const char *what, const struct gguf_tensor *const three[3])
{
    char name[MAX_NAME];
    struct gguf_tensor all = *three[0];
    char *data = arena_alloc(&b->arena, (size_t)(three[0]->bytes + three[1]->bytes + three[2]->bytes));
    ck_assert_ptr_nonnull(data);
    all.data = data;
    all.source = NULL;
    all.bytes = all.dims[all.n_dims - 1] = 0;
    for (int k = 0; k < 3; k++) {
        memcpy(data + all.bytes, three[k]->data, (size_t)three[k]->bytes);
        all.bytes += three[k]->bytes;
        all.dims[all.n_dims - 1] += three[k]->dims[all.n_dims - 1];
    }
    snprintf(name, sizeof name, "blk.%d.attn_qkv.%s", layer, what);
    gguf_build_tensor(b, name, &all);
}

/* The file with weights, and biases too or not, in one tensor a layer; *n tells how many layers that are. g must live
 * on. */
static struct gguf *fuse(const struct gguf *g, bool with_biases, int *n)
{
    struct gguf_build b;
    struct gguf *out;
    struct err_info info = {0};
    char name[GGUF_MAX_KEY_BYTES + 1];
    gguf_build_init(&b);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        snprintf(name, sizeof name, "%.*s", (int)kv->key.len, kv->key.data);
        gguf_build_copy(&b, kv);
    }
    *n = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i), *three[3];
        int layer = 0, weight = part_of(t->name, "weight", &layer);
        int bias = with_biases && weight < 0 ? part_of(t->name, "bias", &layer) : -1;
        const char *what = weight >= 0 ? "weight" : "bias";
        if ((weight < 0 && bias < 0) || !find_three(g, layer, what, three)) {
            snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
            gguf_build_tensor(&b, name, t);
        } else if (t == three[0]) {
            add_fused(&b, layer, what, three);
            *n += weight >= 0;
        }
    }
    enum err err = gguf_build_finish(&b, NULL, &out, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    return out;
}

/* Logits of the last row, or its state where there are none. */
static float *compute(const struct gguf *g, const char *what, size_t *n)
{
    static const int32_t page[] = {0};
    const int32_t *table = page;
    struct backend_config cfg = {.n_threads = 1, .n_pages = 1, .n_states = 1, .max_rows = ROWS, .max_logits = 1};
    struct backend_model *m;
    struct plan *p;
    struct err_info info = {0};
    int32_t tokens[ROWS], pos[ROWS], seq[ROWS] = {0}, last = ROWS - 1;
    ck_assert_msg(model_build(g, 0, &p, &info) == ERR_OK, "%s: %s", what, info.text);
    ck_assert_msg(backend_ref.open(p, &cfg, &m, &info) == ERR_OK, "%s: %s", what, info.text);
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = 7 + 11 * i;
        pos[i] = i;
    }
    *n = p->has_logits ? p->n_vocab : p->n_embd;
    float *out = calloc(*n, sizeof *out);
    struct backend_row_stats stats;
    struct backend_batch b = {.n_rows = ROWS,
                              .tokens = tokens,
                              .pos = pos,
                              .seq = seq,
                              .n_seqs = 1,
                              .page_tables = &table,
                              .n_logits = p->has_logits,
                              .logit_rows = &last,
                              .logits = out,
                              .stats = &stats,
                              .n_hidden = !p->has_logits,
                              .hidden_rows = &last,
                              .hidden = out};
    ck_assert_msg(out != NULL && backend_compute(&backend_ref, m, &b, &info) == ERR_OK, "%s: %s", what, info.text);
    backend_ref.close(&m);
    plan_free(&p);
    return out;
}

START_TEST(one_tensor_gives_the_same_bits)
{
    int n_fused = 0;
    list_models();
    for (int i = 0; i < n_names; i++) {
        struct gguf *g;
        struct err_info info = {0};
        char path[MAX_NAME + sizeof MODELS];
        size_t n, n_again;
        snprintf(path, sizeof path, MODELS "%s", names[i]);
        ck_assert_msg(gguf_open(path, &g, &info) == ERR_OK, "%s: %s", path, info.text);
        if (is_arch(g, "gemma4")) { /* no reader takes such a file of it */
            gguf_close(&g);
            continue;
        }
        float *apart = compute(g, names[i], &n);
        for (int with_biases = 0; with_biases < 2; with_biases++) {
            int n_layers;
            struct gguf *fused = fuse(g, with_biases != 0, &n_layers);
            float *together = compute(fused, names[i], &n_again);
            ck_assert_msg(n == n_again && memcmp(apart, together, n * sizeof *apart) == 0, "%s differs", names[i]);
            n_fused += n_layers > 0;
            free(together);
            gguf_close(&fused);
        }
        free(apart);
        gguf_close(&g);
    }
    ck_assert_msg(n_names >= 47 && n_fused >= 70, "%d models, %d of them fused twice", n_names, n_fused / 2);
}
END_TEST

Suite *blocks_fused_qkv_suite(void)
{
    Suite *s = suite_create("blocks_fused_qkv");
    TCase *c = tcase_create("files");
    tcase_add_test(c, one_tensor_gives_the_same_bits);
    suite_add_tcase(s, c);
    return s;
}
