/* Latent attention at the widths of DeepSeek-V3 (latents of 512, RoPE parts of 64), where the golden models are narrow:
 * the CPU back end on every instruction set against the reference, with the matrix into the latent space as it is and
 * turned, from F32, Q8_0 and Q4_K; and the same bits row by row and with two threads. */
#include "engine/backend/backend.h"
#include "engine/kernels/kern.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_turned.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *cpu_attention_latent_suite(void);

enum { V = 16, D = 64, H = 32, LATENT = 512, ROPE = 64, NOPE = 64, VALUE = 64, ROWS = 40 };

static float embd[V * D], to_queries[H * (NOPE + ROPE) * D], to_key[(LATENT + ROPE) * D], norm[LATENT];
static float into[H * LATENT * NOPE], out_of[H * VALUE * LATENT], output[D * H * VALUE];
static const void *heads; /* [H] matrices that lie transposed */
static float inv_freq[ROPE / 2];

static void fill(float *x, size_t n, float size, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
        x[i] = size * ((float)(seed >> 8) / (float)(1 << 23) - 1);
    }
}

static void fill_all(void)
{
    fill(embd, V * D, 1, 1);
    fill(to_queries, H * (NOPE + ROPE) * D, 0.3f, 2);
    fill(to_key, (LATENT + ROPE) * D, 0.3f, 3);
    fill(into, H * LATENT * NOPE, 0.05f, 4);
    fill(out_of, H * VALUE * LATENT, 0.05f, 5);
    fill(output, D * H * VALUE, 0.05f, 6);
    fill(norm, LATENT, 0.5f, 7);
    for (int i = 0; i < LATENT; i++) {
        norm[i] += 1;
    }
    for (int i = 0; i < ROPE / 2; i++) {
        inv_freq[i] = (float)pow(10000, -2.0 * i / ROPE);
    }
}

static plan_weight_id add_weight(struct plan *p, const char *name, const float *data, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id = PLAN_NONE;
    const struct row_source *rows = row_mapped_new(&p->arena, DTYPE_F32, data, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, name, rows, &id), ERR_OK);
    return id;
}

static plan_buf_id add_buf(struct plan *p, const char *name, uint32_t width)
{
    plan_buf_id id = PLAN_NONE;
    ck_assert_int_eq(plan_add_buf(p, name, width, &id), ERR_OK);
    return id;
}

static struct plan_step *add_step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst, plan_weight_id w)
{
    struct plan_step s = plan_step_of(op, PLAN_NONE, PLAN_NONE);
    s.src = src;
    s.dst = dst;
    s.w[0] = w;
    s.layer = 0;
    s.eps = 1e-6f;
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
    return &p->steps[p->n_steps - 1];
}

/* The matrix into the latent space: F32 as it is, or transposed and of any type. */
static plan_weight_id add_into(struct plan *p, bool is_turned, enum dtype type)
{
    plan_weight_id id = add_weight(p, "into", into, H * LATENT, NOPE);
    if (is_turned) {
        const struct row_source *lies = row_mapped_new(&p->arena, type, heads, H * NOPE, LATENT);
        enum dtype turned = type == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16;
        ck_assert_int_eq(plan_set_source(p, id, row_turned_new(&p->arena, lies, NOPE, turned)), ERR_OK);
    }
    return id;
}

static struct plan *make_plan(bool is_turned, enum dtype type)
{
    struct plan *p = NULL;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_embd = D;
    p->n_layers = p->n_kv_heads = 1;
    p->n_heads = H;
    p->head_dim = LATENT + ROPE;
    p->latent_dim = LATENT;
    struct plan_rope r = {.n_rot = ROPE, .first = LATENT, .mscale = 1, .inv_freq = inv_freq};
    int32_t rope = 0;
    ck_assert_int_eq(plan_add_rope(p, &r, &rope), ERR_OK);
    plan_buf_id x = add_buf(p, "x", D), last = add_buf(p, "last", D), key = add_buf(p, "k", LATENT + ROPE);
    plan_buf_id queries = add_buf(p, "queries", H * (NOPE + ROPE)), q = add_buf(p, "q", H * (LATENT + ROPE));
    plan_buf_id att = add_buf(p, "att", H * LATENT), values = add_buf(p, "values", H * VALUE);
    plan_weight_id e = add_weight(p, "embd", embd, V, D);
    add_step(p, PLAN_EMBED, PLAN_NONE, x, e);
    add_step(p, PLAN_MATMUL, x, queries, add_weight(p, "q", to_queries, H * (NOPE + ROPE), D));
    add_step(p, PLAN_MATMUL, x, key, add_weight(p, "k", to_key, LATENT + ROPE, D));
    add_step(p, PLAN_HEAD_MATMUL, queries, q, add_into(p, is_turned, type));
    struct plan_step *s = add_step(p, PLAN_HEADS, q, q, PLAN_NONE);
    s->heads.keys = key;
    s->heads.rope = rope;
    s->heads.k_norm = add_weight(p, "norm", norm, 1, LATENT);
    add_step(p, PLAN_ATTENTION, q, att, PLAN_NONE)->scale = 0.05f;
    add_step(p, PLAN_HEAD_MATMUL, att, values, add_weight(p, "out_of", out_of, H * VALUE, LATENT));
    add_step(p, PLAN_MATMUL, values, x, add_weight(p, "output", output, D, H * VALUE));
    add_step(p, PLAN_GATHER, x, last, PLAN_NONE);
    add_step(p, PLAN_LOGITS, last, PLAN_NONE, e);
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

static struct backend_model *open_model(const struct backend *backend, const struct plan *p, const char *cpu,
                                        int n_threads)
{
    struct backend_config cfg = {
        .cpu = cpu, .high_precision = true, .n_threads = n_threads, .n_pages = 2, .max_rows = ROWS, .max_logits = ROWS};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    ck_assert_msg(backend->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    return m;
}

/* Logits of all rows, `step` rows at a time. */
static void compute(const struct backend *backend, struct backend_model *m, int step, float *logits)
{
    static const int32_t pages[2] = {1, 0};
    const int32_t *table = pages;
    struct err_info info = {0};
    for (int from = 0; from < ROWS; from += step) {
        int32_t tokens[ROWS], pos[ROWS], seq[ROWS] = {0}, rows[ROWS], n = MIN_OF(step, ROWS - from);
        struct backend_row_stats stats[ROWS];
        for (int32_t i = 0; i < n; i++) {
            tokens[i] = (from + i) * 7 % V;
            pos[i] = from + i;
            rows[i] = i;
        }
        struct backend_batch b = {.n_rows = n,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = 1,
                                  .page_tables = &table,
                                  .n_logits = n,
                                  .logit_rows = rows,
                                  .logits = logits + (size_t)from * V,
                                  .stats = stats};
        ck_assert_msg(backend_compute(backend, m, &b, &info) == ERR_OK, "%s", info.text);
    }
}

static const struct {
    bool is_turned;
    enum dtype type;
} cases[] = {{false, DTYPE_F32}, {true, DTYPE_F32}, {true, DTYPE_Q8_0}, {true, DTYPE_Q4_K}};

/* Bytes of a quantised matrix [NOPE][LATENT] of each head: any codes, scales of a size that fits. */
static unsigned char quantised[H * NOPE * LATENT * 2];

static void make_heads(enum dtype type)
{
    const struct dtype_info *t = dtype_info(type);
    size_t head = (size_t)NOPE * LATENT / t->block_elems * t->block_bytes;
    uint32_t seed = 9;
    for (size_t i = 0; type != DTYPE_F32 && i < H * head; i++) {
        seed = seed * 1664525u + 1013904223u;
        quantised[i] = (unsigned char)(seed >> 24);
    }
    for (size_t i = 0; type != DTYPE_F32 && i < H * head; i += t->block_bytes) {
        uint16_t scale = dtype_f32_to_f16(type == DTYPE_Q8_0 ? 4e-4f : 1e-4f);
        memcpy(quantised + i, &scale, sizeof scale);
        if (type == DTYPE_Q4_K) {
            scale = dtype_f32_to_f16(8e-4f);
            memcpy(quantised + i + sizeof scale, &scale, sizeof scale);
        }
    }
    heads = type == DTYPE_F32 ? (const void *)into : quantised;
}

START_TEST(wide_latents_agree_with_the_reference)
{
    static float want[ROWS * V], whole[ROWS * V], got[ROWS * V];
    fill_all();
    make_heads(cases[_i].type);
    struct plan *p = make_plan(cases[_i].is_turned, cases[_i].type);
    struct backend_model *m = open_model(&backend_ref, p, NULL, 2);
    compute(&backend_ref, m, ROWS, want);
    backend_ref.close(&m);
    double spread = 0, mean = 0;
    for (int i = 0; i < ROWS * V; i++) {
        mean += (double)want[i] / (ROWS * V);
    }
    for (int i = 0; i < ROWS * V; i++) {
        spread += ((double)want[i] - mean) * ((double)want[i] - mean) / (ROWS * V);
    }
    ck_assert(sqrt(spread) > 1e-3);
    for (int isa = 0; kern_isa_name(isa) != NULL; isa++) {
        if (!kern_isa_is_there(isa) || strcmp(kern_isa_name(isa), "ref") == 0) {
            continue;
        }
        m = open_model(&backend_cpu, p, kern_isa_name(isa), 1);
        compute(&backend_cpu, m, ROWS, whole);
        for (int i = 0; i < ROWS * V; i++) {
            double off = fabs((double)whole[i] - (double)want[i]) / sqrt(spread);
            ck_assert_msg(off < 5e-3, "%s: logit %d is off by %g", kern_isa_name(isa), i, off);
        }
        static const int splits[][2] = {{1, 7}, {2, ROWS}, {2, 1}}; /* threads, rows at a time */
        for (size_t k = 0; k < ARRAY_LEN(splits); k++) {
            if (k > 0 && splits[k][0] != splits[k - 1][0]) { /* opening takes most of the time */
                backend_cpu.close(&m);
                m = open_model(&backend_cpu, p, kern_isa_name(isa), splits[k][0]);
            }
            memset(got, 0, sizeof got);
            compute(&backend_cpu, m, splits[k][1], got);
            ck_assert_msg(memcmp(got, whole, sizeof got) == 0, "%s: other bits with %d threads, %d rows at a time",
                          kern_isa_name(isa), splits[k][0], splits[k][1]);
        }
        backend_cpu.close(&m);
    }
    plan_free(&p);
}
END_TEST

Suite *cpu_attention_latent_suite(void)
{
    Suite *s = suite_create("cpu_attention_latent");
    TCase *c = tcase_create("cpu_attention_latent");
    tcase_add_loop_test(c, wide_latents_agree_with_the_reference, 0, (int)ARRAY_LEN(cases));
    suite_add_tcase(s, c);
    return s;
}
