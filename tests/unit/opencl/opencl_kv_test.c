/* Keys and values on the OpenCL device as halves and as bytes: attention of heads of several widths against ref's, the
 * same bits in pieces of any size, and pages that go elsewhere and come back. */
#include "engine/backend/backend.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *opencl_kv_suite(void);

enum { N_VOCAB = 211, ROWS = 200, N_PAGES = 16, HEADS = 5, MAX_D = 128, MAX_WIDTH = HEADS * MAX_D };

static float table[3][N_VOCAB * MAX_WIDTH];

static void fill(float *x, size_t n, uint32_t seed, float size)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u; /* the generator of Numerical Recipes */
        x[i] = ((float)(seed >> 8) / (float)(1 << 24) * 2 - 1) * size;
    }
}

/* Tokens' queries, keys and values, and the attention of these: HEADS heads, and as many of keys or one.
 * The first of several layers alone has the window. */
static struct plan *make_layers(int32_t n_layers, uint32_t d, uint32_t n_kv_heads, int32_t window)
{
    static const char *const names[] = {"q", "k", "v"};
    struct plan *p;
    plan_buf_id bufs[4];
    plan_weight_id w;
    struct err_info info = {0};
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = N_VOCAB;
    p->n_layers = (uint32_t)n_layers;
    p->n_heads = HEADS;
    p->n_kv_heads = n_kv_heads;
    p->head_dim = d;
    p->n_ctx_train = ROWS;
    p->n_embd = HEADS * d;
    p->n_ropes = 1;
    for (int i = 0; i < 3; i++) {
        uint32_t n = (i == 0 ? HEADS : n_kv_heads) * d;
        fill(table[i], (size_t)N_VOCAB * n, 5 + (uint32_t)i, i == 0 ? 2.0f : 1.0f);
        ck_assert_int_eq(plan_add_buf(p, names[i], n, &bufs[i]), ERR_OK);
        ck_assert_int_eq(plan_add_weight(p, names[i], row_mapped_new(&p->arena, DTYPE_F32, table[i], N_VOCAB, n), &w),
                         ERR_OK);
        struct plan_step embed = plan_step_of(PLAN_EMBED, PLAN_NONE, bufs[i]);
        embed.w[0] = w;
        ck_assert_int_eq(plan_add_step(p, &embed), ERR_OK);
    }
    ck_assert_int_eq(plan_add_buf(p, "y", HEADS * d, &bufs[3]), ERR_OK);
    for (int32_t layer = 0; layer < n_layers; layer++) {
        struct plan_step steps[] = {plan_step_of(PLAN_HEADS, bufs[0], bufs[0]),
                                    plan_step_of(PLAN_ATTENTION, bufs[0], bufs[3])};
        steps[0].layer = steps[1].layer = layer;
        steps[0].heads.rope = 0;
        steps[0].heads.keys = bufs[1];
        steps[0].heads.values = bufs[2];
        steps[0].heads.q_norm = steps[0].heads.k_norm = PLAN_NONE;
        steps[1].scale = 1.0f / sqrtf((float)d);
        steps[1].attention.window = layer == 0 ? window : 0;
        steps[1].attention.softcap = window != 0 ? 3.0f : 0.0f;
        ck_assert_int_eq(plan_add_step(p, &steps[0]), ERR_OK);
        ck_assert_int_eq(plan_add_step(p, &steps[1]), ERR_OK);
        plan_buf_id made = bufs[3]; /* the queries of the next */
        bufs[3] = bufs[0];
        bufs[0] = made;
    }
    struct plan_step last = plan_step_of(PLAN_HIDDEN, bufs[0], PLAN_NONE);
    ck_assert_int_eq(plan_add_step(p, &last), ERR_OK);
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

static struct plan *make_plan(uint32_t d, uint32_t n_kv_heads, int32_t window)
{
    return make_layers(1, d, n_kv_heads, window);
}

static int32_t n_windows; /* window pages of what is opened */

static struct backend_model *open_on(const struct backend *b, const struct plan *p, const char *k, const char *v)
{
    struct backend_config cfg = {
        .n_threads = 1, .n_pages = N_PAGES, .n_windows = n_windows, .max_rows = ROWS, .k_type = k, .v_type = v};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    return m;
}

/* out[n][D] = rows [from, from + n) of a sequence in these pages, and window pages: OPTIONAL. */
static void compute_in(const struct backend *b, struct backend_model *m, const int32_t *pages, const int32_t *windows,
                       int from, int n, float *out)
{
    int32_t tokens[ROWS], pos[ROWS], seq[ROWS] = {0}, rows[ROWS];
    for (int i = 0; i < n; i++) {
        tokens[i] = (from + i) * 7 % N_VOCAB;
        pos[i] = from + i;
        rows[i] = i;
    }
    struct backend_batch batch = {.n_rows = n,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = 1,
                                  .page_tables = &pages,
                                  .window_tables = &windows,
                                  .n_hidden = n,
                                  .hidden_rows = rows,
                                  .hidden = out};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
}

static void compute(const struct backend *b, struct backend_model *m, const int32_t *pages, int from, int n, float *out)
{
    compute_in(b, m, pages, NULL, from, n, out);
}

/* All pages of the sequence to another model; each page read twice is the same. */
static void move(enum backend_form form, size_t bytes, const struct backend *a, struct backend_model *from,
                 const int32_t *from_pages, const struct backend *b, struct backend_model *to, const int32_t *to_pages)
{
    struct err_info info = {0};
    unsigned char *page = malloc(bytes), *again = malloc(bytes);
    for (int i = 0; i <= (ROWS - 1) / KV_PAGE_TOKENS; i++) {
        ck_assert_int_eq(a->page_copy(from, (struct backend_page){.page = from_pages[i]}, form, page, false, &info),
                         ERR_OK);
        ck_assert_int_eq(b->page_copy(to, (struct backend_page){.page = to_pages[i]}, form, page, true, &info), ERR_OK);
        ck_assert_int_eq(b->page_copy(to, (struct backend_page){.page = to_pages[i]}, form, again, false, &info),
                         ERR_OK);
        ck_assert(a != b || memcmp(page, again, bytes) == 0);
    }
    free(page);
    free(again);
}

static const struct {
    uint32_t d, n_kv_heads;
    const char *k, *v;
    int32_t window; /* and the scores have a cap */
} cases[] = {{128, 1, "q8_0", "q8_0", 0}, {64, 5, "q8_0", "q8_0", 21}, {40, 1, "f16", "q8_0", 3},
             {18, 1, "q8_0", "f16", 0},   {128, 5, "f16", "f16", 0},   {32, 5, "f16", "f16", 150}};

static const int32_t pages[] = {3, 1, 4, 15, 9, 2, 6}, others[] = {5, 8, 7, 0, 10, 12, 11};

static double distance(const float *a, const float *b, uint32_t n)
{
    double worst = 0;
    for (size_t i = 0; i < (size_t)ROWS * n; i++) {
        worst = fmax(worst, fabs((double)a[i] - b[i]));
    }
    return worst;
}

/* Blocks of rows of several sequences, short ones and single rows, are each what they were alone. */
static void check_together(struct backend_model *m, const float *wanted, uint32_t n)
{
    static float found[ROWS * MAX_WIDTH];
    static const struct {
        int from, n;
    } parts[] = {{100, 21}, {40, 10}, {150, 1}, {120, 8}, {199, 1}, {27, 7}};
    const int32_t *tables[ARRAY_LEN(parts)];
    int32_t tokens[ROWS], pos[ROWS], seq[ROWS], rows[ROWS], n_rows = 0;
    for (size_t s = 0; s < ARRAY_LEN(parts); s++) {
        tables[s] = s % 2 != 0 ? others : pages;
        for (int i = 0; i < parts[s].n; i++, n_rows++) {
            pos[n_rows] = parts[s].from + i;
            tokens[n_rows] = pos[n_rows] * 7 % N_VOCAB;
            seq[n_rows] = (int32_t)s;
            rows[n_rows] = n_rows;
        }
    }
    struct backend_batch batch = {.n_rows = n_rows,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = ARRAY_LEN(parts),
                                  .page_tables = tables,
                                  .n_hidden = n_rows,
                                  .hidden_rows = rows,
                                  .hidden = found};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(&backend_opencl, m, &batch, &info) == ERR_OK, "%s", info.text);
    for (int32_t i = 0; i < n_rows; i++) {
        ck_assert_msg(memcmp(found + (size_t)i * n, wanted + (size_t)pos[i] * n, n * sizeof *found) == 0,
                      "row %d, of position %d, in a batch of several sequences", i, pos[i]);
    }
}

/* As far from float32 as the CPU with the same types, and the same bits in pieces, which are computed in parts (1, 7) or
 * blocks (33), and beside other sequences. */
START_TEST(attention_of_each_type)
{
    static float wanted[ROWS * MAX_WIDTH], found[ROWS * MAX_WIDTH], piece[ROWS * MAX_WIDTH];
    static const int pieces[] = {1, 7, 33};
    uint32_t n = HEADS * cases[_i].d;
    struct plan *p = make_plan(cases[_i].d, cases[_i].n_kv_heads, cases[_i].window);
    struct backend_model *ref = open_on(&backend_ref, p, NULL, NULL);
    struct backend_model *cpu = open_on(&backend_cpu, p, cases[_i].k, cases[_i].v);
    struct backend_model *m = open_on(&backend_opencl, p, cases[_i].k, cases[_i].v);
    compute(&backend_ref, ref, pages, 0, ROWS, wanted);
    compute(&backend_opencl, m, pages, 0, ROWS, found);
    compute(&backend_cpu, cpu, pages, 0, ROWS, piece);
    double worst = distance(found, wanted, n), allowed = distance(piece, wanted, n);
    ck_assert_msg(worst > 0 && worst <= 1.05 * allowed, "%u %s %s: error %g, of the CPU %g", cases[_i].d, cases[_i].k,
                  cases[_i].v, worst, allowed);
    for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
        for (int from = 0; from < ROWS; from += pieces[k]) {
            int n_rows = MIN_OF(pieces[k], ROWS - from);
            compute(&backend_opencl, m, others, from, n_rows, piece);
            ck_assert_msg(memcmp(piece, found + (size_t)from * n, (size_t)n_rows * n * sizeof *piece) == 0,
                          "%u %s %s: rows from %d in pieces of %d", cases[_i].d, cases[_i].k, cases[_i].v, from,
                          pieces[k]);
        }
    }
    check_together(m, found, n);
    backend_ref.close(&ref);
    backend_cpu.close(&cpu);
    backend_opencl.close(&m);
    plan_free(&p);
}
END_TEST

START_TEST(pages_go_elsewhere_and_come_back)
{
    static float wanted[MAX_WIDTH], found[MAX_WIDTH], all[ROWS * MAX_WIDTH];
    const int32_t back[] = {0, 2, 4, 6, 8, 10, 12};
    uint32_t n = HEADS * cases[_i].d;
    struct plan *p = make_plan(cases[_i].d, cases[_i].n_kv_heads, cases[_i].window);
    struct backend_config cfg = {.n_threads = 1, .n_pages = N_PAGES, .max_rows = ROWS};
    struct backend_measure measure;
    struct err_info info = {0};
    size_t floats = backend_page_floats(p) * sizeof(float);
    cfg.k_type = cases[_i].k;
    cfg.v_type = cases[_i].v;
    ck_assert_int_eq(backend_opencl.measure(p, &cfg, &measure, &info), ERR_OK);
    ck_assert_str_eq(measure.k_type, cases[_i].k);
    ck_assert_str_eq(measure.v_type, cases[_i].v);
    struct backend_model *m = open_on(&backend_opencl, p, cases[_i].k, cases[_i].v);
    struct backend_model *second = open_on(&backend_opencl, p, cases[_i].k, cases[_i].v);
    struct backend_model *cpu = open_on(&backend_cpu, p, cases[_i].k, cases[_i].v);
    compute(&backend_opencl, m, pages, 0, ROWS, all);
    compute(&backend_opencl, m, pages, ROWS - 1, 1, wanted);
    move(BACKEND_OWN, measure.bytes[BACKEND_DEVICE].page, &backend_opencl, m, pages, &backend_opencl, second, others);
    compute(&backend_opencl, second, others, ROWS - 1, 1, found);
    ck_assert(memcmp(found, wanted, n * sizeof *wanted) == 0);
    move(BACKEND_FLOATS, floats, &backend_opencl, m, pages, &backend_opencl, second, back);
    compute(&backend_opencl, second, back, ROWS - 1, 1, found);
    ck_assert(memcmp(found, wanted, n * sizeof *wanted) == 0);
    /* Types of one name hold the same numbers on the CPU. */
    move(BACKEND_FLOATS, floats, &backend_opencl, m, pages, &backend_cpu, cpu, others);
    move(BACKEND_FLOATS, floats, &backend_cpu, cpu, others, &backend_opencl, second, others);
    compute(&backend_opencl, second, others, ROWS - 1, 1, found);
    ck_assert(memcmp(found, wanted, n * sizeof *wanted) == 0);
    backend_opencl.close(&m);
    backend_opencl.close(&second);
    backend_cpu.close(&cpu);
    plan_free(&p);
}
END_TEST

START_TEST(bytes_take_half_the_room)
{
    size_t page[2];
    struct plan *p = make_plan(128, 1, 0);
    for (int i = 0; i < 2; i++) {
        const char *type = i == 0 ? "f16" : "q8_0";
        struct backend_config cfg = {.n_threads = 1, .n_pages = 1, .max_rows = 1, .k_type = type, .v_type = type};
        struct backend_measure measure;
        struct err_info info = {0};
        ck_assert_int_eq(backend_opencl.measure(p, &cfg, &measure, &info), ERR_OK);
        page[i] = measure.bytes[BACKEND_DEVICE].page;
    }
    ck_assert_uint_eq(page[0], (size_t)2 * 128 * KV_PAGE_TOKENS * 2);
    ck_assert_uint_eq(page[1], page[0] / 2 + (size_t)(128 / 32 + 1) * KV_PAGE_TOKENS * 2);
    plan_free(&p);
}
END_TEST

/* A layer with a window has pages of its own, of which those in front of it are written over: the same bits, also where they were moved,
 * one half after the other. */
START_TEST(a_local_layer_has_the_pages_of_its_window_alone)
{
    enum { D = 64, WINDOW = 21, N = 33, RING = 3, LAST = (ROWS - 1) / KV_PAGE_TOKENS };
    static float wanted[ROWS * MAX_WIDTH], found[N * MAX_WIDTH];
    struct plan *p = make_layers(2, D, HEADS, WINDOW);
    struct err_info info = {0};
    int32_t windows[LAST + 1], moved[LAST + 1];
    for (int32_t i = 0; i <= LAST; i++) {
        windows[i] = i % RING;
        moved[i] = (i + 1) % RING;
    }
    struct backend_model *plain = open_on(&backend_opencl, p, NULL, NULL);
    n_windows = RING;
    struct backend_model *m = open_on(&backend_opencl, p, NULL, NULL),
                         *second = open_on(&backend_opencl, p, NULL, NULL);
    n_windows = 0;
    for (int from = 0, n; from < ROWS; from += n) {
        n = MIN_OF((int)N, ROWS - from);
        compute(&backend_opencl, plain, pages, from, n, wanted);
        compute_in(&backend_opencl, m, pages, windows, from, n, found);
        ck_assert_msg(memcmp(found, wanted, (size_t)n * HEADS * D * sizeof *found) == 0, "rows from %d", from);
    }
    size_t bytes = backend_page_floats(p) * sizeof(float);
    for (enum backend_form form = BACKEND_OWN; form <= BACKEND_FLOATS; form++) {
        unsigned char *page = calloc(bytes, 1), *all = calloc(bytes, 1);
        for (int32_t i = 0; i <= LAST; i++) {
            int32_t from = i > LAST - 2 ? windows[i] : BACKEND_NO_PAGE, to = i > LAST - 2 ? moved[i] : BACKEND_NO_PAGE;
            memset(page, 0, bytes);
            ck_assert_int_eq(
                backend_opencl.page_copy(m, (struct backend_page){pages[i], from}, form, all, false, &info), ERR_OK);
            ck_assert_int_eq(
                backend_opencl.page_copy(m, (struct backend_page){BACKEND_NO_PAGE, from}, form, page, false, &info),
                ERR_OK);
            ck_assert_int_eq(
                backend_opencl.page_copy(second, (struct backend_page){BACKEND_NO_PAGE, to}, form, page, true, &info),
                ERR_OK);
            ck_assert_int_eq(backend_opencl.page_copy(second, (struct backend_page){others[i], BACKEND_NO_PAGE}, form,
                                                      all, true, &info),
                             ERR_OK);
        }
        free(page);
        free(all);
        compute(&backend_opencl, plain, pages, ROWS - 1, 1, wanted);
        compute_in(&backend_opencl, second, others, moved, ROWS - 1, 1, found);
        ck_assert_msg(memcmp(found, wanted, HEADS * D * sizeof *found) == 0, "moved in form %d", (int)form);
    }
    backend_opencl.close(&plain);
    backend_opencl.close(&m);
    backend_opencl.close(&second);
    plan_free(&p);
}
END_TEST

Suite *opencl_kv_suite(void)
{
    Suite *s = suite_create("opencl_kv");
    TCase *t = tcase_create("kv");
    tcase_set_tags(t, "fork");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, attention_of_each_type, 0, (int)ARRAY_LEN(cases));
    tcase_add_loop_test(t, pages_go_elsewhere_and_come_back, 0, (int)ARRAY_LEN(cases));
    tcase_add_test(t, a_local_layer_has_the_pages_of_its_window_alone);
    tcase_add_test(t, bytes_take_half_the_room);
    suite_add_tcase(s, t);
    return s;
}
