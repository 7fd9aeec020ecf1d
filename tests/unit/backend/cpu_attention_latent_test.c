/* Latent attention at the widths of DeepSeek-V3 (latents of 512, RoPE parts of 64), where the golden models are narrow:
 * the CPU back end on every instruction set against the reference, with the matrix into the latent space as it is and
 * turned, from F32, Q8_0 and Q4_K; and the same bits row by row and with two threads. */
#include "engine/backend/backend.h"
#include "engine/kernels/kern.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_turned.h"
#include "tests/support/plan_rig.h"

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

/* The matrix into the latent space: F32 as it is, or transposed and of any type. */
static plan_weight_id add_into(struct plan *p, bool is_turned, enum dtype type)
{
    plan_weight_id id = plan_rig_weight(p, into, H * LATENT, NOPE);
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
    plan_buf_id x = plan_rig_buffer(p, D), last = plan_rig_buffer(p, D), key = plan_rig_buffer(p, LATENT + ROPE);
    plan_buf_id queries = plan_rig_buffer(p, H * (NOPE + ROPE)), q = plan_rig_buffer(p, H * (LATENT + ROPE));
    plan_buf_id att = plan_rig_buffer(p, H * LATENT), values = plan_rig_buffer(p, H * VALUE);
    plan_weight_id e = plan_rig_weight(p, embd, V, D);
    plan_rig_step(p, PLAN_EMBED, PLAN_NONE, x, e);
    plan_rig_step(p, PLAN_MATMUL, x, queries, plan_rig_weight(p, to_queries, H * (NOPE + ROPE), D));
    plan_rig_step(p, PLAN_MATMUL, x, key, plan_rig_weight(p, to_key, LATENT + ROPE, D));
    plan_rig_step(p, PLAN_HEAD_MATMUL, queries, q, add_into(p, is_turned, type));
    struct plan_step *s = plan_rig_step(p, PLAN_HEADS, q, q, PLAN_NONE);
    s->heads.keys = key;
    s->heads.rope = rope;
    s->heads.k_norm = plan_rig_weight(p, norm, 1, LATENT);
    s->eps = 1e-6f;
    plan_rig_step(p, PLAN_ATTENTION, q, att, PLAN_NONE)->scale = 0.05f;
    plan_rig_step(p, PLAN_HEAD_MATMUL, att, values, plan_rig_weight(p, out_of, H * VALUE, LATENT));
    plan_rig_step(p, PLAN_MATMUL, values, x, plan_rig_weight(p, output, D, H * VALUE));
    plan_rig_step(p, PLAN_GATHER, x, last, PLAN_NONE);
    plan_rig_step(p, PLAN_LOGITS, last, PLAN_NONE, e);
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

static void compute(const struct backend *backend, struct backend_model *m, int step, float *logits)
{
    int32_t tokens[ROWS];
    for (int32_t i = 0; i < ROWS; i++) {
        tokens[i] = i * 7 % V;
    }
    plan_rig_compute(backend, m, tokens, 0, ROWS, step, V, logits);
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
    struct backend_model *m = plan_rig_open(&backend_ref, p, NULL, NULL, 2, ROWS);
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
        m = plan_rig_open(&backend_cpu, p, kern_isa_name(isa), NULL, 1, ROWS);
        compute(&backend_cpu, m, ROWS, whole);
        for (int i = 0; i < ROWS * V; i++) {
            double off = fabs((double)whole[i] - (double)want[i]) / sqrt(spread);
            ck_assert_msg(off < 5e-3, "%s: logit %d is off by %g", kern_isa_name(isa), i, off);
        }
        static const int splits[][2] = {{1, 7}, {2, ROWS}, {2, 1}}; /* threads, rows at a time */
        for (size_t k = 0; k < ARRAY_LEN(splits); k++) {
            if (k > 0 && splits[k][0] != splits[k - 1][0]) { /* opening takes most of the time */
                backend_cpu.close(&m);
                m = plan_rig_open(&backend_cpu, p, kern_isa_name(isa), NULL, splits[k][0], ROWS);
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
