/* plan_check on plans made by hand: a good one of every kind of step, then one wrong thing at a time; and plans that
 * grow past their first size or run out of memory. */
#include "engine/plan/plan_ops.h"
#include "engine/quant/row_mapped.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *plan_suite(void);

/* Widths all differ, so that a mix-up shows. */
enum { V = 40, D = 24, H = 6, K = 2, HEAD = 8, F = 20 };

/* Ids in the order in which make_plan adds them. */
enum weight_id {
    W_EMBD,
    W_NORM,
    W_Q,
    W_K,
    W_V,
    W_OUT,
    W_GATE,
    W_UP,
    W_DOWN,
    W_HEAD_NORM,
    B_Q,
    B_K,
    B_OUT,
    B_GATE,
    N_WEIGHTS
};
enum buf_id { X, NORMED, Q, ATT, FF, LAST, N_BUFS };
enum step_id { S_EMBED, S_NORM, S_QKV, S_ATTENTION, S_OUT, S_GLU, S_DOWN, S_GATHER, S_LOGITS, N_STEPS };

static void add_weight(struct plan *p, const char *name, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id;
    char local[32];
    snprintf(local, sizeof local, "%s", name); /* the plan must copy it */
    const struct row_source *rows = row_mapped_new(&p->arena, DTYPE_F32, NULL, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, local, rows, &id), ERR_OK);
    ck_assert_int_eq(id, p->n_weights - 1);
    memset(local, 0, sizeof local);
}

static void add_step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst, plan_weight_id w0,
                     plan_weight_id w1, plan_weight_id w2)
{
    struct plan_step s = plan_step_of(op, PLAN_NONE, PLAN_NONE);
    s.src = src;
    s.dst = dst;
    s.w[0] = w0;
    s.w[1] = w1;
    s.w[2] = w2;
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
}

static struct plan *make_plan(void)
{
    static const struct {
        const char *name;
        uint32_t n_out, n_in;
    } weights[N_WEIGHTS] = {
        {"embd", V, D},     {"norm", 1, D},         {"q", H * HEAD, D},      {"k", K * HEAD, D},
        {"v", K * HEAD, D}, {"out", D, H * HEAD},   {"gate", F, D},          {"up", F, D},
        {"down", D, F},     {"head_norm", 1, HEAD}, {"q_bias", 1, H * HEAD}, {"k_bias", 1, K * HEAD},
        {"out_bias", 1, D}, {"gate_bias", 1, F},
    };
    static const uint32_t widths[N_BUFS] = {D, D, H * HEAD, H * HEAD, F, D};
    static const float inv_freq[HEAD / 2] = {1, 0.1f, 0.01f, 0.001f};
    struct plan *p;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_vocab = V;
    p->n_embd = D;
    p->n_layers = 1;
    p->n_heads = H;
    p->n_kv_heads = K;
    p->head_dim = HEAD;
    for (int i = 0; i < N_WEIGHTS; i++) {
        add_weight(p, weights[i].name, weights[i].n_out, weights[i].n_in);
    }
    for (int i = 0; i < N_BUFS; i++) {
        plan_buf_id id;
        ck_assert_int_eq(plan_add_buf(p, "buffer", widths[i], &id), ERR_OK);
        ck_assert_int_eq(id, i);
    }
    int32_t rope;
    struct plan_rope r = {.n_rot = HEAD, .mscale = 1, .inv_freq = inv_freq};
    ck_assert_int_eq(plan_add_rope(p, &r, &rope), ERR_OK);
    ck_assert(p->ropes[rope].inv_freq != inv_freq && memcmp(p->ropes[rope].inv_freq, inv_freq, sizeof inv_freq) == 0);
    add_step(p, PLAN_EMBED, PLAN_NONE, X, W_EMBD, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_NORM, X, NORMED, W_NORM, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_QKV, NORMED, Q, W_Q, W_K, W_V);
    add_step(p, PLAN_ATTENTION, Q, ATT, PLAN_NONE, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_MATMUL, ATT, X, W_OUT, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_GLU, X, FF, W_GATE, W_UP, PLAN_NONE);
    add_step(p, PLAN_MATMUL, FF, X, W_DOWN, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_GATHER, X, LAST, PLAN_NONE, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_LOGITS, LAST, PLAN_NONE, W_EMBD, PLAN_NONE, PLAN_NONE);
    struct plan_step *s = p->steps;
    s[S_OUT].adds = true;
    s[S_QKV].layer = s[S_ATTENTION].layer = 0;
    s[S_QKV].heads.rope = rope;
    s[S_QKV].heads.q_norm = s[S_QKV].heads.k_norm = W_HEAD_NORM;
    s[S_QKV].bias[0] = B_Q;
    s[S_QKV].bias[1] = s[S_QKV].bias[2] = B_K;
    s[S_OUT].bias[0] = B_OUT;
    s[S_GLU].bias[0] = s[S_GLU].bias[1] = B_GATE;
    return p;
}

START_TEST(a_plan_that_fits_together_passes)
{
    struct plan *p = make_plan();
    struct err_info info = {0};
    enum err err = plan_check(p, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    for (int i = 0; i < PLAN_OP_COUNT; i++) {
        ck_assert(strlen(plan_op_name((enum plan_op)i)) > 0);
    }
    plan_free(&p);
    ck_assert_ptr_null(p);
    plan_free(&p);
}
END_TEST

/* --- one wrong thing -------------------------------------------------------------------------------------------- */

static void check_fails(struct plan *p, enum err expected, const char *word)
{
    struct err_info info = {0};
    enum err err = plan_check(p, &info);
    ck_assert_msg(err == expected, "%s: %s (%s), expected %s", word, err_code(err), info.text, err_code(expected));
    ck_assert_msg(info.code == expected && strstr(info.text, word) != NULL, "'%s' does not name '%s'", info.text, word);
    plan_free(&p);
}

START_TEST(a_weight_of_another_shape_is_named)
{
    for (int i = 0; i < N_WEIGHTS; i++) {
        for (int which = 0; which < 2; which++) {
            struct plan *p = make_plan();
            struct plan_weight *w = &p->weights[i];
            *(which == 0 ? &w->n_out : &w->n_in) += 1;
            char words[32];
            snprintf(words, sizeof words, "%s: expected", w->name);
            check_fails(p, ERR_BAD_TENSOR_SHAPE, words);
        }
    }
}
END_TEST

START_TEST(norms_and_biases_are_f32)
{
    static const int vectors[] = {W_NORM, W_HEAD_NORM, B_Q, B_K, B_OUT, B_GATE};
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        struct plan *p = make_plan();
        p->weights[vectors[i]].type = DTYPE_F16;
        check_fails(p, ERR_UNSUPPORTED_TYPE, "expected F32, found F16");
    }
    struct plan *p = make_plan(); /* a matrix may be anything */
    struct err_info info;
    p->weights[W_Q].type = DTYPE_Q4_K;
    ck_assert_int_eq(plan_check(p, &info), ERR_OK);
    plan_free(&p);
}
END_TEST

START_TEST(a_step_that_lacks_something_is_the_builders_mistake)
{
    for (int i = 0; i < 26; i++) {
        struct plan *p = make_plan();
        struct plan_step *s = p->steps;
        static const struct {
            int step, w;
        } needed[] = {{S_EMBED, 0}, {S_NORM, 0}, {S_QKV, 0}, {S_QKV, 1},  {S_QKV, 2},
                      {S_OUT, 0},   {S_GLU, 0},  {S_GLU, 1}, {S_DOWN, 0}, {S_LOGITS, 0}};
        if (i < 20) {
            bool is_wanted = needed[i / 2].step != S_GLU || needed[i / 2].w == 0; /* else act() alone is made */
            s[needed[i / 2].step].w[needed[i / 2].w] = i % 2 == 0 && is_wanted ? PLAN_NONE : N_WEIGHTS;
            check_fails(p, ERR_INTERNAL, plan_op_name(s[needed[i / 2].step].op));
            continue;
        }
        s[S_QKV].heads.rope = i == 20 ? PLAN_NONE : i == 21 ? 1 : 0;
        s[S_QKV].layer = i == 22 ? -1 : i == 23 ? 1 : 0;
        s[S_GLU].op = i == 24 ? PLAN_OP_COUNT : PLAN_GLU;
        s[S_OUT].bias[0] = i == 25 ? N_WEIGHTS : PLAN_NONE;
        check_fails(p, ERR_INTERNAL, "plan");
    }
}
END_TEST

START_TEST(a_buffer_of_another_width_is_the_builders_mistake)
{
    for (int i = 0; i < 7; i++) {
        struct plan *p = make_plan();
        struct plan_step *s = p->steps;
        switch (i) {
        case 0:
            s[S_NORM].dst = Q;
            break;
        case 1:
            s[S_QKV].dst = NORMED;
            break;
        case 2:
            s[S_ATTENTION].src = X;
            break;
        case 3:
            s[S_ATTENTION].dst = X;
            break;
        case 4:
            s[S_GATHER].dst = FF;
            break;
        case 5:
            s[S_ATTENTION].dst = N_BUFS;
            break;
        default:
            s[S_GATHER].dst = -7;
            break;
        }
        check_fails(p, ERR_INTERNAL, "buffer of width");
    }
    struct plan *p = make_plan();
    p->steps[S_NORM].adds = true; /* a sum would read what it has just written */
    p->steps[S_NORM].dst = X;
    check_fails(p, ERR_INTERNAL, "adds to the buffer it reads");
    p = make_plan();
    p->steps[S_NORM].adds = p->steps[S_NORM].norm.centers = true;
    check_fails(p, ERR_INTERNAL, "cannot add");
    p = make_plan();
    p->steps[S_ATTENTION].attention.skips = -1;
    check_fails(p, ERR_INTERNAL, "skips positions");
    p = make_plan();
    p->steps[S_ATTENTION].attention.in_chunks = true; /* of no size */
    check_fails(p, ERR_INTERNAL, "has chunks without a size");
    p = make_plan();
    add_weight(p, "slopes", 1, p->n_heads);
    p->steps[S_ATTENTION].w[1] = p->n_weights - 1;
    p->steps[S_ATTENTION].attention.softcap = 30;
    check_fails(p, ERR_INTERNAL, "has slopes or biases, and sinks or a soft-cap");
    p = make_plan();
    p->steps[S_ATTENTION].attention.reach = 1;
    check_fails(p, ERR_INTERNAL, "reaches farther than its biases");
    p = make_plan();
    add_weight(p, "biases", 1, p->n_heads);
    p->steps[S_ATTENTION].w[1] = p->n_weights - 1;
    p->steps[S_ATTENTION].attention.reach = PLAN_MAX_REACH + 1;
    check_fails(p, ERR_INTERNAL, "reaches farther than its biases, or than it can");
    p = make_plan();
    add_weight(p, "biases", 1, p->n_heads);
    p->steps[S_ATTENTION].w[1] = p->n_weights - 1;
    p->steps[S_ATTENTION].attention.reach = 1;
    check_fails(p, ERR_BAD_TENSOR_SHAPE, "biases: expected");
    p = make_plan();
    p->steps[S_NORM].w[0] = W_HEAD_NORM;
    p->steps[S_NORM].bias[0] = B_OUT;
    check_fails(p, ERR_INTERNAL, "has a bias and groups");
    p = make_plan();
    p->steps[S_ATTENTION].attention.window = 4;
    p->steps[S_ATTENTION].attention.ahead = 3; /* in a plan that looks back alone */
    check_fails(p, ERR_INTERNAL, "looks ahead");
    p = make_plan(); /* a matrix cannot tell whose fault it is: the file's is likelier */
    p->steps[S_DOWN].dst = Q;
    check_fails(p, ERR_BAD_TENSOR_SHAPE, "down");
}
END_TEST

START_TEST(what_a_plan_gives_is_found)
{
    struct err_info info = {0};
    struct plan *p = make_plan();
    ck_assert_int_eq(plan_check(p, &info), ERR_OK);
    ck_assert(p->has_logits && !p->has_hidden);
    plan_free(&p);
    p = make_plan();
    p->steps[S_LOGITS] = plan_step_of(PLAN_HIDDEN, PLAN_NONE, PLAN_NONE); /* an encoder's end */
    p->steps[S_LOGITS].src = LAST;
    ck_assert_int_eq(plan_check(p, &info), ERR_OK);
    ck_assert(!p->has_logits && p->has_hidden);
    plan_free(&p);
    p = make_plan();
    p->steps[S_LOGITS] = plan_step_of(PLAN_HIDDEN, PLAN_NONE, PLAN_NONE);
    p->steps[S_LOGITS].src = Q; /* states have the model's width */
    check_fails(p, ERR_INTERNAL, "buffer of width");
}
END_TEST

START_TEST(rows_added_to_the_embedding_have_its_width)
{
    for (int i = 1; i < 3; i++) {
        struct plan *p = make_plan();
        p->n_ctx_train = V;
        p->steps[S_EMBED].w[i] = W_EMBD;
        struct err_info info = {0};
        ck_assert_int_eq(plan_check(p, &info), ERR_OK);
        p->n_ctx_train = V + (i == 1);
        p->steps[S_EMBED].w[i] = i == 1 ? W_EMBD : W_DOWN;
        check_fails(p, ERR_BAD_TENSOR_SHAPE, i == 1 ? "embd" : "down");
    }
}
END_TEST

START_TEST(limits_are_of_gates)
{
    for (int i = 0; i < 4; i++) {
        struct err_info info = {0};
        struct plan *p = make_plan();
        struct plan_step *glu = &p->steps[S_GLU];
        glu->gate_limit = i == 1 ? -1 : 7;
        glu->up_limit = i == 2 ? -1 : 7;
        if (i == 0) {
            ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
            plan_free(&p);
            continue;
        }
        glu->w[1] = i == 3 ? PLAN_NONE : glu->w[1];
        glu->bias[1] = i == 3 ? PLAN_NONE : glu->bias[1];
        check_fails(p, ERR_INTERNAL, "plan");
    }
}
END_TEST

START_TEST(values_can_be_narrower_than_keys)
{
    struct err_info info = {0};
    struct plan *p = make_plan();
    p->value_dim = HEAD / 2;
    check_fails(p, ERR_BAD_TENSOR_SHAPE, "v"); /* its rows are those of keys */
    p = make_plan();
    p->value_dim = HEAD / 2;
    p->weights[W_V].n_out = K * HEAD / 2;
    p->steps[S_QKV].bias[2] = PLAN_NONE;
    check_fails(p, ERR_INTERNAL, "plan"); /* attention writes rows as wide as queries */
    p = make_plan();
    p->value_dim = HEAD;
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    struct plan_kv kv = plan_kv_of(p, 0);
    ck_assert_uint_eq(plan_kv_floats(&kv), 2 * K * HEAD);
    kv.value_dim = HEAD / 2;
    ck_assert_uint_eq(plan_kv_floats(&kv), K * (HEAD + HEAD / 2));
    plan_free(&p);
}
END_TEST

/* --- layers with heads of their own --------------------------------------------------------------------------- */

/* Two layers of one width, of which the second reads the cache of the first: its step has queries alone. */
static struct plan *make_shared_plan(struct plan_kv kvs[2])
{
    struct plan *p = make_plan();
    p->n_layers = 2;
    kvs[0] = kvs[1] = (struct plan_kv){.n_kv_heads = K, .head_dim = HEAD, .layer = 0};
    p->kvs = kvs;
    struct plan_step qkv = p->steps[S_QKV], att = p->steps[S_ATTENTION];
    qkv.w[1] = qkv.w[2] = qkv.bias[1] = qkv.bias[2] = qkv.heads.k_norm = PLAN_NONE;
    qkv.layer = att.layer = 1;
    ck_assert_int_eq(plan_add_step(p, &qkv), ERR_OK);
    ck_assert_int_eq(plan_add_step(p, &att), ERR_OK);
    return p;
}

START_TEST(a_cache_is_shared_by_layers_of_the_same_heads)
{
    struct plan_kv kvs[2];
    struct plan *p = make_shared_plan(kvs);
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    ck_assert(plan_kv_of(p, 1).layer == 0 && plan_kv_of(p, 1).head_dim == HEAD);
    plan_free(&p);
    for (int i = 0; i < 12; i++) {
        p = make_shared_plan(kvs);
        int32_t last = p->n_steps - 1;
        kvs[1].layer = i == 0 ? 2 : i == 1 ? 1 : i == 2 ? PLAN_NONE : 0;
        kvs[1].n_kv_heads = i == 3 ? 2 * K : K;
        kvs[1].head_dim = i == 4 ? HEAD / 2 : HEAD;
        kvs[1].latent_dim = i == 5 ? HEAD : 0;
        kvs[1].value_dim = i == 9 ? HEAD / 2 : 0; /* of the cache of other values */
        kvs[0].value_dim = i == 10 ? HEAD / 2 : 0;
        p->value_dim = i == 11 ? HEAD + 4 : 0;
        kvs[0].layer = i == 6 ? 1 : 0;
        p->steps[last - 1].w[1] = p->steps[last - 1].w[2] = i == 7 ? W_K : PLAN_NONE; /* stores all the same */
        p->steps[last].layer = i == 8 ? 2 : 1;
        check_fails(p, ERR_INTERNAL, "plan");
    }
}
END_TEST

START_TEST(each_kv_head_is_read_by_as_many_heads)
{
    struct plan *p = make_plan();
    p->n_kv_heads = p->n_heads + 1;
    check_fails(p, ERR_INTERNAL, "do not divide evenly");
}
END_TEST

START_TEST(a_multiplication_fits_its_buffers)
{
    for (int i = 0; i < 9; i++) {
        struct plan *p = make_plan();
        struct plan_step s = plan_step_of(PLAN_MULTIPLY, PLAN_NONE, PLAN_NONE);
        uint32_t more = p->bufs[Q].width - p->bufs[X].width;
        s.dst = i == 2 ? PLAN_NONE : i == 3 ? Q : X;
        s.src = i == 0 ? PLAN_NONE : i == 3 ? X : i == 4 ? N_BUFS : Q;
        s.multiply.first = i == 5 ? more + 1 : i == 1 ? more : 0;
        s.multiply.repeats = i < 6 ? 1 : i == 6 ? p->bufs[X].width - 1 : 2; /* not a divisor */
        s.multiply.map = i == 7 ? PLAN_MAP_GELU_TANH : i == 8 ? PLAN_MAP_COUNT : PLAN_MAP_NONE;
        ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
        struct err_info info = {0};
        if (i < 2) {
            ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
            plan_free(&p);
        } else {
            check_fails(p, ERR_INTERNAL, "multiply");
        }
    }
}
END_TEST

START_TEST(an_edge_lies_in_the_rows_of_the_caller)
{
    for (int i = 0; i < 6; i++) {
        struct plan *p = make_plan();
        bool reads = i % 2 == 0;
        struct plan_step s = plan_step_of(reads ? PLAN_INPUT : PLAN_OUTPUT, PLAN_NONE, PLAN_NONE);
        *(reads ? &s.dst : &s.src) = X;
        s.edge.first = i < 2 ? 3 : i < 4 ? 4 : UINT32_MAX;
        *(reads ? &p->input_width : &p->output_width) = D + 3;
        ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
        struct err_info info = {0};
        if (i < 2) {
            ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
            plan_free(&p);
        } else {
            check_fails(p, ERR_INTERNAL, reads ? "input" : "output");
        }
    }
}
END_TEST

/* --- sums and streams ------------------------------------------------------------------------------------------ */

START_TEST(a_sum_writes_nothing_that_it_reads_otherwise)
{
    for (int i = 0; i < 8; i++) {
        struct plan *p = make_plan();
        struct plan_step s = plan_step_of(PLAN_SUM, PLAN_NONE, PLAN_NONE);
        s.dst = i == 2 ? PLAN_NONE : X;
        s.src = i == 0 || i == 3 ? X : i == 4 ? Q : NORMED;
        s.adds = i == 1 || i == 3;
        s.sum.level = i == 0 || i == 5 ? LAST : i == 6 ? X : i == 7 ? FF : PLAN_NONE;
        s.eps = i == 5 ? 0 : 1e-5f;
        s.w[0] = i == 1 ? W_NORM : PLAN_NONE;
        ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
        struct err_info info = {0};
        if (i < 2) {
            ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
            p->steps[p->n_steps - 1].w[0] = W_HEAD_NORM;
            check_fails(p, ERR_BAD_TENSOR_SHAPE, "head_norm");
        } else {
            check_fails(p, ERR_INTERNAL, "sum");
        }
    }
}
END_TEST

/* X and NORMED are the stream, corrected by LAST, or predicted. */
START_TEST(ranks_meet_over_a_buffer_of_the_same_width)
{
    static const struct {
        plan_buf_id src, dst;
        bool adds;
        const char *word; /* NULL: nothing is wrong */
    } rows[] = {
        {PLAN_NONE, X, true, NULL},       {NORMED, X, true, NULL}, {NORMED, X, false, NULL},
        {PLAN_NONE, X, false, "nothing"}, {FF, X, true, "width"},  {X, X, true, "adds to the buffer"},
        {X, PLAN_NONE, false, "width"},
    };
    struct plan *p = make_plan();
    add_step(p, PLAN_REDUCE, rows[_i].src, rows[_i].dst, PLAN_NONE, PLAN_NONE, PLAN_NONE);
    p->steps[p->n_steps - 1].adds = rows[_i].adds;
    if (rows[_i].word != NULL) {
        check_fails(p, ERR_INTERNAL, rows[_i].word);
        return;
    }
    ck_assert_int_eq(plan_check(p, NULL), ERR_OK);
    ck_assert(p->is_shard == (rows[_i].src != PLAN_NONE));
    plan_free(&p);
}
END_TEST

START_TEST(streams_fit_their_coefficients)
{
    for (int i = 0; i < 14; i++) {
        struct plan *p = make_plan();
        plan_buf_id routes;
        bool corrects = i % 2 == 1;
        ck_assert_int_eq(plan_add_buf(p, "routes", 2, &routes), ERR_OK);
        add_weight(p, "coefs", 1, corrects ? 2 * 2 : 2 * 2 * 2);
        struct plan_step s = plan_step_of(corrects ? PLAN_CORRECT : PLAN_PREDICT, PLAN_NONE, PLAN_NONE);
        s.streams.n = i == 2 ? 1 : i == 3 ? PLAN_MAX_STREAMS + 1 : i == 4 ? 3 : 2; /* Q has another width */
        s.dst = i == 5 ? routes : X;
        s.src = i == 6 ? LAST : i == 7 ? NORMED : corrects ? LAST : routes;
        s.streams.routes = corrects && i != 9 ? routes : PLAN_NONE;
        s.streams.first = i == 11 ? 2 : corrects;
        s.w[0] = i == 8 ? PLAN_NONE : p->n_weights - 1;
        p->weights[p->n_weights - 1].n_in += i == 10 || i == 13;
        p->weights[p->n_weights - 1].type = i == 12 ? DTYPE_F16 : DTYPE_F32;
        ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
        struct err_info info = {0};
        if (i < 2) {
            ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
            ck_assert((plan_uses(&s, X) & PLAN_STREAMS) != 0 && (plan_uses(&s, NORMED) & PLAN_STREAMS) != 0 &&
                      plan_uses(&s, Q) == 0);
            plan_free(&p);
        } else {
            check_fails(p,
                        i == 10 || i == 13 ? ERR_BAD_TENSOR_SHAPE
                        : i == 12          ? ERR_UNSUPPORTED_TYPE
                                           : ERR_INTERNAL,
                        i == 10 || i == 12 || i == 13 ? "coefs"
                        : corrects                    ? "correct"
                                                      : "predict");
        }
    }
}
END_TEST

/* --- latent attention ------------------------------------------------------------------------------------------- */

/* Heads of NOPE + ROPE components, through matrices to LATENT + ROPE, and of LATENT, to VALUE. */
enum { NOPE = 12, ROPE = 4, LATENT = 20, VALUE = 16 };
enum { L_INTO, L_OUT_OF, L_NORM, N_LATENT_WEIGHTS };
enum { L_QUERIES, L_Q, L_KEY, L_ATT, L_VALUES, N_LATENT_BUFS };
enum { LS_INTO, LS_HEADS, LS_ATTENTION, LS_OUT_OF };

static struct plan *make_latent_plan(void)
{
    static const uint32_t widths[N_LATENT_BUFS] = {H * (NOPE + ROPE), H * (LATENT + ROPE), LATENT + ROPE, H * LATENT,
                                                   H * VALUE};
    static const float inv_freq[ROPE / 2] = {1, 0.1f};
    struct plan *p;
    plan_buf_id buf;
    int32_t rope;
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    p->n_layers = p->n_kv_heads = 1;
    p->n_heads = H;
    p->head_dim = LATENT + ROPE;
    p->latent_dim = LATENT;
    add_weight(p, "into", H * LATENT, NOPE);
    add_weight(p, "out_of", H * VALUE, LATENT);
    add_weight(p, "norm", 1, LATENT);
    for (int i = 0; i < N_LATENT_BUFS; i++) {
        ck_assert_int_eq(plan_add_buf(p, "buffer", widths[i], &buf), ERR_OK);
    }
    struct plan_rope r = {.n_rot = ROPE, .first = LATENT, .mscale = 1, .inv_freq = inv_freq};
    ck_assert_int_eq(plan_add_rope(p, &r, &rope), ERR_OK);
    add_step(p, PLAN_HEAD_MATMUL, L_QUERIES, L_Q, L_INTO, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_HEADS, L_Q, L_Q, PLAN_NONE, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_ATTENTION, L_Q, L_ATT, PLAN_NONE, PLAN_NONE, PLAN_NONE);
    add_step(p, PLAN_HEAD_MATMUL, L_ATT, L_VALUES, L_OUT_OF, PLAN_NONE, PLAN_NONE);
    struct plan_step *heads = &p->steps[LS_HEADS];
    heads->heads.keys = L_KEY;
    heads->heads.k_norm = L_NORM;
    heads->heads.rope = rope;
    heads->layer = p->steps[LS_ATTENTION].layer = 0;
    return p;
}

START_TEST(latent_attention_is_checked)
{
    struct plan *p = make_latent_plan();
    struct err_info info = {0};
    ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
    plan_free(&p);
    for (int i = 0; i < 11; i++) {
        p = make_latent_plan();
        struct plan_step *s = p->steps;
        p->n_kv_heads = i == 0 ? 2 : 1;
        p->latent_dim = i == 1 ? LATENT + ROPE + 4 : i == 2 ? 0 : LATENT;
        s[LS_HEADS].heads.values = i == 3 ? L_KEY : PLAN_NONE; /* values beside latents */
        s[LS_HEADS].heads.keys = i == 4 ? L_Q : L_KEY;
        s[LS_HEADS].dst = i == 5 ? L_QUERIES : L_Q;
        s[LS_ATTENTION].dst = i == 6 ? L_Q : L_ATT;
        p->ropes[0].first = i == 7 ? LATENT + 2 : LATENT; /* beyond the head */
        s[LS_INTO].w[0] = i == 8 ? PLAN_NONE : L_INTO;
        s[LS_INTO].dst = i == 9 ? L_KEY : L_Q; /* narrower than what stays as it is */
        s[LS_OUT_OF].src = i == 10 ? L_VALUES : L_ATT;
        check_fails(p, ERR_INTERNAL, "plan");
    }
    for (int i = 0; i < 3; i++) {
        p = make_latent_plan();
        p->weights[L_INTO].n_out += i == 0;
        p->weights[L_OUT_OF].n_out += i == 1 ? H : 0;
        p->weights[L_NORM].n_in += i == 2;
        check_fails(p, ERR_BAD_TENSOR_SHAPE, i == 0 ? "into" : i == 1 ? "out_of" : "norm");
    }
}
END_TEST

START_TEST(an_index_is_checked)
{
    enum { DI = 16, HEADS = 3, CHOSEN = 5, Q_INDEX = N_LATENT_BUFS, K_INDEX, WEIGHTS, POSITIONS };
    static const uint32_t widths[] = {HEADS * DI, DI, HEADS, CHOSEN};
    for (int i = 0; i < 13; i++) {
        struct plan *p = make_latent_plan();
        struct err_info info = {0};
        p->index_dim = i == 1 ? 0 : i == 2 ? DI - 4 : DI;
        for (size_t k = 0; k < ARRAY_LEN(widths); k++) {
            plan_buf_id id;
            ck_assert_int_eq(plan_add_buf(p, "buffer", widths[k] + (i == 3 + (int)k && k < 3), &id), ERR_OK);
        }
        struct plan_step s = plan_step_of(PLAN_INDEX, Q_INDEX, i == 6 ? L_Q : Q_INDEX);
        struct plan_rope rope = p->ropes[0];
        rope.first = i == 7 ? DI - 2 : 0; /* beyond the head */
        s.layer = 0;
        s.heads.keys = i == 8 ? PLAN_NONE : K_INDEX;
        ck_assert_int_eq(plan_add_rope(p, &rope, &s.heads.rope), ERR_OK);
        ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
        s = plan_step_of(PLAN_CHOOSE, Q_INDEX, i == 9 ? PLAN_NONE : POSITIONS);
        s.layer = 0;
        s.choose.weights = WEIGHTS;
        ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
        struct plan_step *attention = &p->steps[LS_ATTENTION];
        attention->attention.chosen = POSITIONS;
        attention->attention.window = i == 10 ? 7 : 0;
        p->bufs[POSITIONS].width = i == 11 ? PLAN_MAX_CHOSEN + 1 : CHOSEN;
        p->latent_dim = i == 12 ? 0 : LATENT;
        if (i == 0) {
            ck_assert_msg(plan_check(p, &info) == ERR_OK, "%s", info.text);
            ck_assert_uint_eq(plan_kv_floats(&(struct plan_kv){.latent_dim = 1, .head_dim = 3, .index_dim = 8}), 11);
            ck_assert_double_eq(plan_cache_read(p, &p->steps[p->n_steps - 1], 9), 10 * DI);
            ck_assert_double_eq(plan_cache_read(p, attention, 9), CHOSEN * (LATENT + ROPE));
            ck_assert_double_eq(plan_cache_read(p, attention, 2), 3 * (LATENT + ROPE));
            plan_free(&p);
        } else {
            check_fails(p, ERR_INTERNAL, "plan");
        }
    }
}
END_TEST

/* --- growth
 * ------------------------------------------------------------------------------------------------------------ */

START_TEST(plans_grow_and_say_when_they_cannot)
{
    size_t live = mem_live();
    struct plan *p = NULL;
    mem_fail_at(0);
    ck_assert_int_eq(plan_new(&p), ERR_NOMEM);
    mem_fail_at(-1);
    ck_assert_ptr_null(p);
    ck_assert_int_eq(plan_new(&p), ERR_OK);
    for (int i = 0; i < 500; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        add_weight(p, name, 1, (uint32_t)i + 1);
        p->layer = i - 1;
        add_step(p, PLAN_NORM, 0, 0, i, PLAN_NONE, PLAN_NONE);
        ck_assert_int_eq(p->steps[i].layer, i - 1);
    }
    for (int i = 0; i < 500; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        ck_assert_str_eq(p->weights[i].name, name);
        ck_assert(p->weights[i].n_in == (uint32_t)i + 1 && p->steps[i].w[0] == i);
    }
    plan_buf_id buf;
    for (int i = 0; i < PLAN_MAX_BUFS; i++) {
        ck_assert_int_eq(plan_add_buf(p, "b", 4, &buf), ERR_OK);
    }
    ck_assert_int_eq(plan_add_buf(p, "b", 4, &buf), ERR_INTERNAL);
    int32_t rope;
    struct plan_rope none = {.n_rot = 0, .mscale = 1};
    for (int i = 0; i < PLAN_MAX_ROPES; i++) {
        ck_assert_int_eq(plan_add_rope(p, &none, &rope), ERR_OK);
    }
    ck_assert_int_eq(plan_add_rope(p, &none, &rope), ERR_INTERNAL);
    plan_free(&p);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

Suite *plan_suite(void)
{
    Suite *s = suite_create("plan");
    TCase *c = tcase_create("plan");
    tcase_add_test(c, a_plan_that_fits_together_passes);
    tcase_add_test(c, a_weight_of_another_shape_is_named);
    tcase_add_test(c, norms_and_biases_are_f32);
    tcase_add_test(c, a_step_that_lacks_something_is_the_builders_mistake);
    tcase_add_test(c, a_buffer_of_another_width_is_the_builders_mistake);
    tcase_add_test(c, what_a_plan_gives_is_found);
    tcase_add_test(c, rows_added_to_the_embedding_have_its_width);
    tcase_add_test(c, limits_are_of_gates);
    tcase_add_test(c, values_can_be_narrower_than_keys);
    tcase_add_test(c, a_cache_is_shared_by_layers_of_the_same_heads);
    tcase_add_test(c, each_kv_head_is_read_by_as_many_heads);
    tcase_add_test(c, a_multiplication_fits_its_buffers);
    tcase_add_test(c, an_edge_lies_in_the_rows_of_the_caller);
    tcase_add_test(c, a_sum_writes_nothing_that_it_reads_otherwise);
    tcase_add_loop_test(c, ranks_meet_over_a_buffer_of_the_same_width, 0, 7);
    tcase_add_test(c, streams_fit_their_coefficients);
    tcase_add_test(c, latent_attention_is_checked);
    tcase_add_test(c, an_index_is_checked);
    tcase_add_test(c, plans_grow_and_say_when_they_cannot);
    suite_add_tcase(s, c);
    return s;
}
