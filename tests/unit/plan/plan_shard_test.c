/* Which rows and columns each rank has, what stays whole, and what is refused; what ranks compute together is the golden
 * test's (tests/golden/golden.c). Weights hold 1000 * row + column, so that a share says where it comes from. */
#include "engine/plan/plan_shard.h"

#include "engine/backend/backend.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *plan_shard_suite(void);

enum { D = 24, H = 6, HEAD = 8, F = 20, E = 3, N_USED = 2, V = 5, CASES = 8 };

/* --- a decoder layer of attention, one of experts ------------------------------------------------------------------ */

static uint32_t grain; /* of the rows of matrices, whose source would then be a quantised tensor */

static plan_weight_id weight(struct plan *p, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id = PLAN_NONE;
    float *data = arena_alloc(&p->arena, (size_t)n_out * n_in * sizeof *data);
    ck_assert_ptr_nonnull(data);
    for (uint32_t i = 0; i < n_out * n_in; i++) {
        data[i] = (float)(1000 * (i / n_in) + i % n_in);
    }
    struct row_mapped *m = arena_alloc(&p->arena, sizeof *m);
    ck_assert_ptr_nonnull(m);
    *m = row_mapped_of(DTYPE_F32, data, n_out, n_in);
    m->base.grain = n_out > 1 ? grain : 1;
    ck_assert_int_eq(plan_add_weight(p, "w", &m->base, &id), ERR_OK);
    return id;
}

static plan_buf_id buffer(struct plan *p, uint32_t width)
{
    plan_buf_id id = PLAN_NONE;
    ck_assert_int_eq(plan_add_buf(p, "b", width, &id), ERR_OK);
    return id;
}

static struct plan_step *step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(op, PLAN_NONE, PLAN_NONE);
    s.src = src;
    s.dst = dst;
    s.layer = 0;
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
    return &p->steps[p->n_steps - 1];
}

/* Steps and buffers, by number; shards have the same steps. */
enum { EMBED, QKV, ATTENTION, OUT, MEET_1, COPY, GLU, DOWN, ROUTER, ROUTE, EXPERTS, MEET_2, HIDDEN, N_STEPS };
enum { NONE = PLAN_NONE, X, Y, Q, ATT, FF, LOGITS, PICKED, N_BUFS };

static const struct {
    enum plan_op op;
    plan_buf_id src, dst;
    bool adds;
} steps[N_STEPS] = {
    [EMBED] = {PLAN_EMBED, NONE, X, false},
    [QKV] = {PLAN_QKV, X, Q, false},
    [ATTENTION] = {PLAN_ATTENTION, Q, ATT, false},
    [OUT] = {PLAN_MATMUL, ATT, X, true},
    [MEET_1] = {PLAN_REDUCE, NONE, X, true},
    [COPY] = {PLAN_SUM, X, Y, false},
    [GLU] = {PLAN_GLU, Y, FF, false},
    [DOWN] = {PLAN_MATMUL, FF, X, true},
    [ROUTER] = {PLAN_MATMUL, Y, LOGITS, false},
    [ROUTE] = {PLAN_ROUTE, LOGITS, PICKED, false},
    [EXPERTS] = {PLAN_EXPERTS, Y, X, true},
    [MEET_2] = {PLAN_REDUCE, NONE, X, true},
    [HIDDEN] = {PLAN_HIDDEN, X, NONE, false},
};

/* Weights of each step. */
static void add_weights(struct plan *p, struct plan_step *s)
{
    uint32_t n_kv = p->n_kv_heads;
    s[EMBED].w[0] = weight(p, V, D);
    s[QKV].w[0] = weight(p, H * HEAD, D);
    s[QKV].bias[0] = weight(p, 1, H * HEAD);
    s[QKV].w[1] = s[QKV].w[2] = weight(p, n_kv * HEAD, D);
    s[ATTENTION].w[0] = weight(p, 1, H);
    s[OUT].w[0] = weight(p, D, H * HEAD);
    s[OUT].bias[0] = weight(p, 1, D);
    s[GLU].w[0] = weight(p, F, D);
    s[GLU].bias[0] = weight(p, 1, F);
    s[DOWN].w[0] = weight(p, D, F);
    s[ROUTER].w[0] = weight(p, E, D);
    s[EXPERTS].w[0] = s[EXPERTS].w[1] = weight(p, E * F, D);
    s[EXPERTS].w[2] = weight(p, E * D, F);
    s[EXPERTS].bias[0] = weight(p, 1, E * F);
    s[EXPERTS].bias[2] = weight(p, 1, E * D);
}

static struct plan *make_plan(uint32_t n_kv)
{
    static const uint32_t widths[N_BUFS] = {D, D, H * HEAD, H * HEAD, F, E, 2 * N_USED};
    struct plan *p = NULL;
    struct err_info info = {0};
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_embd = D;
    p->n_layers = 1;
    p->n_heads = H;
    p->n_kv_heads = n_kv;
    p->head_dim = HEAD;
    p->moe = (struct plan_moe){.n_experts = E, .n_used = N_USED, .n_groups = 1, .n_groups_used = 1};
    int32_t rope;
    ck_assert_int_eq(plan_add_rope(p, &(struct plan_rope){.mscale = 1}, &rope), ERR_OK);
    for (int i = 0; i < N_BUFS; i++) {
        ck_assert_int_eq(buffer(p, widths[i]), i);
    }
    for (int i = 0; i < N_STEPS; i++) {
        step(p, steps[i].op, steps[i].src, steps[i].dst)->adds = steps[i].adds;
    }
    p->steps[QKV].heads.rope = rope;
    p->steps[EXPERTS].experts.route = PICKED;
    p->steps[OUT].scale = 0.5f;
    add_weights(p, p->steps);
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    return p;
}

static struct plan *shard(const struct plan *p, uint32_t rank, uint32_t n)
{
    struct plan *s = NULL;
    struct err_info info = {0};
    ck_assert_msg(plan_shard(p, rank, n, &s, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(s->n_steps, p->n_steps);
    return s;
}

/* Element [row][column] of a shard's weight is that of [first_row + row][first_column + column]. */
static void check_part(const struct plan *s, plan_weight_id id, uint32_t first_row, uint32_t n_rows,
                       uint32_t first_column, uint32_t n_columns)
{
    float row[128];
    ck_assert_int_ge(id, 0);
    const struct plan_weight *w = &s->weights[id];
    ck_assert_uint_eq(w->n_out, n_rows);
    ck_assert_uint_eq(w->n_in, n_columns);
    ck_assert_uint_le(n_columns, ARRAY_LEN(row));
    for (uint32_t i = 0; i < n_rows; i++) {
        w->source->ops->read(w->source, i, 0, n_columns, row);
        for (uint32_t k = 0; k < n_columns; k++) {
            ck_assert_float_eq(row[k], (float)(1000 * (first_row + i) + first_column + k));
        }
    }
}

/* --- heads and columns -------------------------------------------------------------------------------------------- */

static const struct {
    uint32_t n_kv, n, grain;
    uint32_t heads[5], kv[5][2]; /* borders; [from, to) of each rank */
    uint32_t columns[5];
} shares[CASES] = {
    {2, 2, 1, {0, 3, 6}, {{0, 1}, {1, 2}}, {0, 10, 20}},
    {6, 2, 1, {0, 3, 6}, {{0, 3}, {3, 6}}, {0, 10, 20}},
    {2, 3, 1, {0, 1, 3, 6}, {{0, 1}, {0, 1}, {1, 2}}, {0, 6, 13, 20}}, /* two ranks have one head's keys */
    {1, 4, 1, {0, 1, 3, 4, 6}, {{0, 1}, {0, 1}, {0, 1}, {0, 1}}, {0, 5, 10, 15, 20}},
    {3, 4, 1, {0, 1, 2, 4, 6}, {{0, 1}, {0, 1}, {1, 2}, {2, 3}}, {0, 5, 10, 15, 20}},
    {6, 4, 1, {0, 1, 3, 4, 6}, {{0, 1}, {1, 3}, {3, 4}, {4, 6}}, {0, 5, 10, 15, 20}},
    {1, 2, 16, {0, 2, 6}, {{0, 1}, {0, 1}}, {0, 16, 20}}, /* blocks of two heads; the last of 4 columns */
    {3, 3, 4, {0, 2, 4, 6}, {{0, 1}, {1, 2}, {2, 3}}, {0, 4, 12, 20}},
};

START_TEST(a_rank_has_its_heads_and_columns)
{
    grain = shares[_i].grain;
    struct plan *p = make_plan(shares[_i].n_kv);
    for (uint32_t r = 0; r < shares[_i].n; r++) {
        struct plan *s = shard(p, r, shares[_i].n);
        uint32_t h = shares[_i].heads[r], n_heads = shares[_i].heads[r + 1] - h;
        uint32_t k = shares[_i].kv[r][0], n_kv = shares[_i].kv[r][1] - k;
        uint32_t c = shares[_i].columns[r], n = shares[_i].columns[r + 1] - c;
        ck_assert(s->rank == r && s->n_ranks == shares[_i].n && s->n_heads == n_heads);
        ck_assert_uint_eq(s->n_kv_heads, n_kv);
        const struct plan_step *qkv = &s->steps[QKV], *glu = &s->steps[GLU], *experts = &s->steps[EXPERTS];
        check_part(s, qkv->w[0], h * HEAD, n_heads * HEAD, 0, D);
        check_part(s, qkv->bias[0], 0, 1, h * HEAD, n_heads * HEAD);
        check_part(s, qkv->w[1], k * HEAD, n_kv * HEAD, 0, D);
        ck_assert_int_eq(qkv->w[1], qkv->w[2]);
        check_part(s, s->steps[ATTENTION].w[0], 0, 1, h, n_heads);
        check_part(s, s->steps[OUT].w[0], 0, D, h * HEAD, n_heads * HEAD);
        check_part(s, glu->w[0], c, n, 0, D);
        check_part(s, glu->bias[0], 0, 1, c, n);
        check_part(s, s->steps[DOWN].w[0], 0, D, c, n);
        check_part(s, s->steps[ROUTER].w[0], 0, E, 0, D);
        check_part(s, experts->w[2], 0, E * D, c, n);
        const struct plan_weight *w = &s->weights[experts->w[0]], *b = &s->weights[experts->bias[0]];
        float row[E * F];
        ck_assert(w->n_out == E * n && w->n_in == D && b->n_in == E * n);
        b->source->ops->read(b->source, 0, 0, E * n, row);
        for (uint32_t i = 0; i < E * n; i++) { /* columns of each expert */
            uint32_t from = i / n * F + c + i % n;
            ck_assert_float_eq(row[i], (float)from);
            w->source->ops->read(w->source, i, 0, 1, &row[i]);
            ck_assert_float_eq(row[i], (float)(1000 * from));
        }
        plan_free(&s);
    }
    plan_free(&p);
}
END_TEST

START_TEST(what_ranks_add_up_has_its_bias_and_scale_once)
{
    grain = 1;
    struct plan *p = make_plan(2);
    for (uint32_t r = 0; r < 2; r++) {
        struct plan *s = shard(p, r, 2);
        const struct plan_step *out = &s->steps[OUT], *meet = &s->steps[MEET_1], *down = &s->steps[DOWN];
        const struct plan_step *experts = &s->steps[EXPERTS];
        ck_assert(s->is_shard && !p->is_shard);
        ck_assert((out->bias[0] == PLAN_NONE) == (r != 0) && (experts->bias[2] == PLAN_NONE) == (r != 0));
        ck_assert(!out->adds && out->scale == 1 && out->dst == meet->src && meet->dst == s->steps[EMBED].dst);
        ck_assert(meet->adds && meet->scale == 0.5f);
        /* both blocks of a layer meet as one */
        ck_assert(!down->adds && experts->adds && experts->dst == down->dst);
        ck_assert(s->steps[MEET_2].src == down->dst && s->steps[MEET_2].adds && s->steps[MEET_2].scale == 1);
        plan_free(&s);
    }
    plan_free(&p);
}
END_TEST

/* --- what stays whole --------------------------------------------------------------------------------------------- */

enum {
    ALONE,         /* one rank */
    COARSE_HEADS,  /* one block of 48 columns */
    TOO_FEW_HEADS, /* 6 for 7 ranks */
    READ_EARLY,    /* what ranks add up is read before they meet */
    READ_LATER,    /* a block's columns are read after the meeting */
    SCALES_DIFFER, /* of the two that add to the stream: the first stays */
    N_WHOLE
};

START_TEST(what_cannot_be_cut_is_whole_in_all_ranks)
{
    static const struct {
        uint32_t n;
        bool attention, dense, experts; /* cut */
    } rows[N_WHOLE] = {
        [ALONE] = {1, false, false, false},       [COARSE_HEADS] = {2, false, false, false},
        [TOO_FEW_HEADS] = {7, false, true, true}, [READ_EARLY] = {2, false, true, true},
        [READ_LATER] = {2, true, false, true},    [SCALES_DIFFER] = {2, true, false, true},
    };
    grain = _i == COARSE_HEADS ? 48 : 1;
    struct plan *p = make_plan(2);
    if (_i == READ_EARLY) { /* the stream, between the matrix and the meeting */
        struct plan_step copy = p->steps[COPY];
        p->steps[COPY] = p->steps[MEET_1];
        p->steps[MEET_1] = copy;
    } else if (_i == READ_LATER) {
        step(p, PLAN_SUM, FF, buffer(p, F));
    } else if (_i == SCALES_DIFFER) {
        p->steps[DOWN].scale = 3;
    }
    ck_assert_int_eq(plan_check(p, NULL), ERR_OK);
    for (uint32_t r = 0; r < rows[_i].n; r++) {
        struct plan *s = shard(p, r, rows[_i].n);
        ck_assert_int_eq(s->n_heads < H, rows[_i].attention);
        ck_assert_int_eq(s->weights[s->steps[OUT].w[0]].n_in < H * HEAD, rows[_i].attention);
        ck_assert_int_eq(s->weights[s->steps[DOWN].w[0]].n_in < F, rows[_i].dense);
        ck_assert_int_eq(s->weights[s->steps[EXPERTS].w[2]].n_in < F, rows[_i].experts);
        ck_assert_int_eq(s->steps[MEET_2].src != PLAN_NONE, rows[_i].dense || rows[_i].experts);
        ck_assert(rows[_i].attention || (s->steps[OUT].adds && s->steps[OUT].bias[0] != PLAN_NONE));
        ck_assert_uint_eq(s->n_ranks, rows[_i].n > 1 ? rows[_i].n : 0);
        ck_assert_int_eq(s->is_shard, rows[_i].attention || rows[_i].dense || rows[_i].experts);
        plan_free(&s);
    }
    plan_free(&p);
}
END_TEST

/* --- families ------------------------------------------------------------------------------------------------------- */

static struct plan *open_plan(const char *name, struct gguf **g)
{
    char path[128];
    struct plan *p = NULL;
    struct err_info info = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    ck_assert_msg(gguf_open(path, g, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(*g, 0, &p, &info) == ERR_OK, "%s", info.text);
    return p;
}

/* Models whose places to meet are all used, and some where they are not. */
static const struct {
    const char *name, *meets; /* of each place, whether there is something to add */
} families[] = {
    {"llama-gqa-tied.gguf", "++++"},
    {"bert-cls.gguf", "++++"},
    {"gemma2-caps.gguf", "++++++++"},
    {"deepseek2-v2.gguf", "++++"},
    {"deepseek32-sparse.gguf", "++++"},
    {"glm-dsa-shared.gguf", "++++++"},
    {"qwen2moe-shared.gguf", "++++"},
    {"lfm2-conv.gguf", "++++++++++"},
    {"qwen35-delta.gguf", "++++++++++"},
    {"kimi-linear-experts.gguf", "++++++++"},
    {"granitehybrid-dense.gguf", "++++++++"},
    {"falcon-h1-norm.gguf", "++++++"},
    {"nemotron_h-dense.gguf", "+++++"},
    {"nemotron_h_moe-latent.gguf", "-+-+-++-+"}, /* experts meet in their own space */
    {"jamba-experts.gguf", "-+++-+-+++"},        /* scans are whole */
    {"mamba-tied.gguf", "---"},                  /* there is nothing else */
    {"gemma4-experts.gguf", "++++++++++++"},
    {"gemma3n-sparse.gguf", "+-+-+++-++++"},  /* sparse gates look at all columns */
    {"granitehybrid-experts.gguf", "-+++-+"}, /* all heads of the state spaces are normed together */
    {"mimo2-values.gguf", "++++++"},
    {"olmo2-wide.gguf", "-+-+"}, /* so are those of attention */
};

static void check_meets(const struct plan *p, const char *wanted)
{
    for (uint32_t r = 0; r < 2; r++) {
        struct plan *s = shard(p, r, 2);
        char meets[32] = "";
        for (int32_t i = 0; i < s->n_steps; i++) {
            if (plan_ops[s->steps[i].op].over_ranks) {
                strcat(meets, plan_is_idle(&s->steps[i]) ? "-" : "+");
            }
        }
        ck_assert_str_eq(meets, wanted);
        plan_free(&s);
    }
}

START_TEST(families_meet_where_their_blocks_end)
{
    struct gguf *g;
    struct plan *p = open_plan(families[_i].name, &g);
    check_meets(p, families[_i].meets);
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

/* OLMo 2's plan with each head normed by itself: queries could be cut, but the step that stores keys has all of them. */
START_TEST(heads_are_whole_where_keys_are)
{
    struct gguf *g;
    struct plan *p = open_plan("olmo2-wide.gguf", &g);
    grain = 1;
    plan_weight_id norm = weight(p, 1, p->head_dim);
    for (int32_t i = 0; i < p->n_steps; i++) {
        struct plan_step *s = &p->steps[i];
        if (s->op == PLAN_NORM && s->src == s->dst && strlen(p->bufs[s->dst].name) == 1) { /* q and k */
            s->w[0] = norm;
        }
    }
    ck_assert_int_eq(plan_check(p, NULL), ERR_OK);
    check_meets(p, "-+-+");
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

/* --- back ends ------------------------------------------------------------------------------------------------------ */

static enum err rank_is_gone(void *arg, float *rows, int32_t n_rows, uint32_t width, size_t stride)
{
    (void)rows;
    (void)n_rows;
    (void)width;
    (void)stride;
    ++*(int *)arg;
    return ERR_LOST;
}

START_TEST(ranks_that_cannot_meet_are_told)
{
    static const int32_t tokens[2] = {1, 2}, pos[2] = {0, 1}, seq[2] = {0}, page = 0;
    const int32_t *table = &page;
    int n_called = 0;
    const struct backend *b = backend_at(_i);
    struct gguf *g;
    struct plan *p = open_plan("llama-gqa-tied.gguf", &g), *s = shard(p, 1, 2);
    struct backend_model *m = NULL;
    struct err_info info = {0};
    struct backend_config cfg = {.n_threads = 2, .n_pages = 1, .max_rows = 2, .max_logits = 1};
    ck_assert_int_eq(b->open(s, &cfg, &m, &info), ERR_INTERNAL);
    ck_assert_msg(m == NULL && strstr(info.text, "no reduce function") != NULL, "%s", info.text);
    cfg.reduce = rank_is_gone;
    cfg.reduce_arg = &n_called;
    ck_assert_int_eq(b->open(s, &cfg, &m, &info), ERR_OK);
    struct backend_batch batch = {
        .n_rows = 2, .tokens = tokens, .pos = pos, .seq = seq, .n_seqs = 1, .page_tables = &table};
    ck_assert_int_eq(backend_compute(b, m, &batch, &info), ERR_LOST);
    ck_assert_msg(strstr(info.text, "sum over the ranks") != NULL, "%s", info.text);
    ck_assert_int_eq(n_called, 1);
    b->close(&m);
    plan_free(&s);
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

/* --- refused -------------------------------------------------------------------------------------------------------- */

START_TEST(there_is_no_such_rank)
{
    grain = 1;
    struct plan *p = make_plan(2), *s = p;
    struct err_info info = {0};
    static const uint32_t rows[][2] = {{0, 0}, {2, 2}, {5, 4}, {0, PLAN_MAX_RANKS + 1}, {UINT32_MAX, 2}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_int_eq(plan_shard(p, rows[i][0], rows[i][1], &s, &info), ERR_CONFIG);
        ck_assert_ptr_null(s);
    }
    struct plan *once = shard(p, 0, 2);
    ck_assert_int_eq(plan_shard(once, 0, 2, &s, &info), ERR_CONFIG); /* not twice */
    plan_free(&once);
    plan_free(&p);
}
END_TEST

START_TEST(out_of_memory_leaves_nothing)
{
    struct gguf *g;
    struct plan *p = open_plan("qwen35-delta.gguf", &g), *s = NULL;
    size_t live = mem_live();
    enum err err = ERR_NOMEM;
    for (int n = 0; err == ERR_NOMEM; n++) {
        struct err_info info = {0};
        mem_fail_at(n);
        err = plan_shard(p, 1, 2, &s, &info);
        mem_fail_at(-1);
        ck_assert((err == ERR_NOMEM && s == NULL && info.code == ERR_NOMEM && mem_live() == live) || err == ERR_OK);
        ck_assert_int_lt(n, 1000);
    }
    plan_free(&s);
    ck_assert_uint_eq(mem_live(), live);
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

START_TEST(a_row_reads_the_experts_that_it_picks)
{
    struct plan *p = make_plan(2);
    double dense = (H + 2 * 2) * HEAD * D + D * H * HEAD + F * D + D * F + E * D, experts = 3 * E * F * D;
    double read = experts * N_USED / E;
    ck_assert_double_eq_tol(plan_expert_part(p), read / (dense + read), 1e-12);
    p->moe.n_used = E; /* then experts are as other weights */
    ck_assert_double_eq(plan_expert_part(p), 0);
    plan_free(&p);
}
END_TEST

Suite *plan_shard_suite(void)
{
    Suite *s = suite_create("plan_shard");
    TCase *c = tcase_create("plan_shard");
    tcase_add_loop_test(c, a_rank_has_its_heads_and_columns, 0, CASES);
    tcase_add_test(c, what_ranks_add_up_has_its_bias_and_scale_once);
    tcase_add_loop_test(c, what_cannot_be_cut_is_whole_in_all_ranks, 0, N_WHOLE);
    tcase_add_loop_test(c, families_meet_where_their_blocks_end, 0, ARRAY_LEN(families));
    tcase_add_test(c, heads_are_whole_where_keys_are);
    tcase_add_loop_test(c, ranks_that_cannot_meet_are_told, 0, 2);
    tcase_add_test(c, there_is_no_such_rank);
    tcase_add_test(c, a_row_reads_the_experts_that_it_picks);
    tcase_add_test(c, out_of_memory_leaves_nothing);
    suite_add_tcase(s, c);
    return s;
}
