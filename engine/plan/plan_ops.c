/* The table of operations, and the checks of a step. */
#include "engine/plan/plan_ops.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* The arguments of a check. */
struct plan_check {
    const struct plan *plan;
    const struct plan_step *step;
    struct err_info *info;
};

/* --- dimensions --------------------------------------------------------------------------------------------------- */

/* Sizes that a plan or one of its steps defines: X(name, axis, value), where value is an expression of size_of.
 * OUT: the components of a head after the first n_in are unchanged. */
/* clang-format off */
#define DIMS(X) \
    X(ANY, NONE, 0) \
    X(WIDTH, NONE, p->n_embd)                                     /* D */ \
    X(VOCAB, NONE, p->n_vocab)                                    /* V */ \
    X(LOGITS, NONE, n_logits)                                     /* of a row */ \
    X(CONTEXT, NONE, p->n_ctx_train)                              /* longest position */ \
    X(HEADS, HEADS, n_heads)                                      /* H */ \
    X(BIASES, HEADS, n_heads * (2 * (uint64_t)s->attention.reach + 1)) /* by distance; slopes are one for each head */ \
    X(EXPERTS, NONE, n_experts)                                   /* E */ \
    X(ROUTE, NONE, 2 * (uint64_t)p->moe.n_used)                   /* 2k */ \
    X(KV_HEADS, KV_HEADS, n_kv_heads)                             /* K; this and the next are the step's layer's */ \
    X(HEAD, NONE, kv.head_dim)                                    /* d */ \
    X(Q, HEADS, n_heads * kv.head_dim)                            /* H*d */ \
    X(KV, KV_HEADS, n_kv_heads * kv.head_dim)                     /* K*d */ \
    X(KV_VALUES, KV_HEADS, n_kv_heads * plan_kv_value_dim(&kv))   /* K times a value */ \
    X(INDEX_KEY, NONE, kv.index_dim)                              /* di */ \
    X(INDEX_HEADS, NONE, divided(src, kv.index_dim))              /* Hi */ \
    X(KEY_NORM, NONE, kv.latent_dim != 0 ? kv.latent_dim : kv.head_dim) /* components of a key that a norm covers */ \
    X(ATT, HEADS, n_heads * plan_kv_value_dim(&kv))               /* H times a value */ \
    X(MADE, HEADS, n_heads + (stores(s) ? 2 * n_kv_heads : 0))    /* that a step computes; with 2K if it stores */ \
    X(SRC, SRC, src)                                              /* width of src */ \
    X(DST, DST, dst)                                              /* width of dst */ \
    X(GROUP, GROUP, is_grouped ? n_in : src)                      /* of a norm */ \
    X(IN, NONE, n_in)                                             /* input of a head's matrix */ \
    X(OUT, HEADS, dst - src + n_heads * n_in)                     /* rows of all heads' matrices */ \
    X(INNER, FF, divided(n_out, n_experts) * n_experts)           /* rows of the first matrix, of all experts */ \
    X(FF, FF, divided(n_out, n_experts))                          /* rows of one expert */ \
    X(OUTER, DST, n_experts * dst)                                /* E times dst */ \
    X(OUTPUTS, NONE, n_out)                                       /* rows of w[0] */ \
    X(TAPS, SRC, s->conv.taps * src)                              /* taps of a convolution */ \
    X(KEPT, NONE, s->conv.taps - UINT64_C(1))                     /* rows before its first that it sees */ \
    X(ONE, NONE, 1) \
    X(DELTA_IN, DELTA, s->delta.keys != PLAN_NONE ? delta_keys : 2 * delta_keys + delta_out) /* q, or q, k and v */ \
    X(DELTA_KEYS, DELTA, delta_keys) \
    X(DELTA_OUT, DELTA, delta_out) \
    X(DELTA_HEADS, DELTA, delta->n_v_heads) \
    X(DELTA_RATES, DELTA, (uint64_t)delta->n_v_heads * plan_delta_decays(delta)) /* alphas */ \
    X(DELTA_RATE, NONE, plan_delta_decays(delta))                 /* of a head */ \
    X(DELTA_KEY, NONE, delta->key_dim) \
    X(DELTA_VALUE, NONE, delta->value_dim) \
    X(SSM_IN, SSM, ssm_out + 2 * (uint64_t)ssm->n_groups * ssm->state_dim) \
    X(SSM_OUT, SSM, ssm_out) \
    X(SSM_HEADS, SSM, ssm->n_heads) \
    X(SSM_HEAD, NONE, ssm->head_dim) \
    X(SSM_STATE, NONE, ssm->state_dim) \
    X(SSM_RATES, SSM, ssm_out * ssm->state_dim) \
    X(STREAMS, NONE, n_streams) \
    X(STREAMS_2, NONE, n_streams * n_streams) \
    X(STREAMS_3, NONE, n_streams * n_streams * n_streams)
/* clang-format on */

#define DIM_NAME(name, axis, value) name,
enum dim { DIMS(DIM_NAME) };

enum plan_axis plan_axis_of(uint8_t dim)
{
#define DIM_AXIS(name, axis, value) PLAN_AXIS_##axis,
    static const uint8_t axes[] = {DIMS(DIM_AXIS)};
    return (enum plan_axis)axes[dim];
}

static uint64_t width_of(const struct plan *p, plan_buf_id id)
{
    return id >= 0 && id < p->n_bufs ? p->bufs[id].width : 0;
}

/* Returns the first weight, or one without elements. */
static struct plan_weight first_weight(const struct plan *p, const struct plan_step *s)
{
    return s->w[0] >= 0 && s->w[0] < p->n_weights ? p->weights[s->w[0]] : (struct plan_weight){.n_out = 0};
}

static struct plan_kv kv_of(const struct plan *p, const struct plan_step *s)
{
    bool has_layer = s->layer >= 0 && (uint32_t)s->layer < p->n_layers;
    return has_layer ? plan_kv_of(p, s->layer) : (struct plan_kv){.n_heads = p->n_heads, .layer = PLAN_NONE};
}

/* Does the step store keys and values, or only make queries for another layer's cache? */
static bool stores(const struct plan_step *s)
{
    return s->op == PLAN_QKV ? s->w[1] != PLAN_NONE : s->heads.keys != PLAN_NONE;
}

static uint64_t divided(uint64_t n, uint64_t by) { return by != 0 ? n / by : 0; }

/* Works for any step, also unchecked ones: 0 if it lacks something. */
static uint64_t size_of(const struct plan *p, const struct plan_step *s, enum dim d)
{
    const struct plan_delta *delta = &p->delta;
    const struct plan_ssm *ssm = &p->ssm;
    struct plan_kv kv = kv_of(p, s);
    uint64_t n_heads = kv.n_heads, n_kv_heads = kv.n_kv_heads, n_experts = p->moe.n_experts, n_streams = s->streams.n;
    uint64_t src = width_of(p, s->src), dst = width_of(p, s->dst), n_in = first_weight(p, s).n_in;
    uint64_t n_out = first_weight(p, s).n_out, delta_out = (uint64_t)delta->n_v_heads * delta->value_dim;
    uint64_t delta_keys = (uint64_t)delta->n_k_heads * delta->key_dim;
    uint64_t ssm_out = (uint64_t)ssm->n_heads * ssm->head_dim;
    bool is_grouped = n_in != 0 && src % n_in == 0;
    uint64_t n_logits = s->op == PLAN_LOGITS && s->logits.is_reduced ? p->n_guess_ids : p->n_vocab;
#define DIM_VALUE(name, axis, value) (value),
    const uint64_t sizes[] = {DIMS(DIM_VALUE)};
    return sizes[d];
}

/* --- checks beyond the operands ----------------------------------------------------------------------------------- */

static enum err fails(const struct plan_check *c, const char *why)
{
    return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step %s", plan_op_name(c->step->op), why);
}

/* A step stores keys and values exactly if the cache has room for them. */
static enum err check_stores(const struct plan_check *c)
{
    struct plan_kv kv = kv_of(c->plan, c->step);
    return stores(c->step) == (kv.layer == c->step->layer)
               ? ERR_OK
               : fails(c, "and its layer disagree on whether it stores keys and values");
}

static enum err check_norm(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    if (s->bias[0] != PLAN_NONE && first_weight(c->plan, s).n_in != width_of(c->plan, s->src)) {
        return fails(c, "has a bias and groups");
    }
    return s->adds && s->norm.centers ? fails(c, "cannot add") : ERR_OK;
}

static enum err check_qkv(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    if ((s->w[1] == PLAN_NONE) != (s->w[2] == PLAN_NONE)) {
        return fails(c, "lacks a weight");
    }
    return kv_of(c->plan, s).latent_dim != 0 ? fails(c, "stores values next to latent keys") : check_stores(c);
}

static enum err check_heads(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    bool has_values = stores(s) && kv_of(c->plan, s).latent_dim == 0;
    return s->src != s->dst || has_values != (s->heads.values != PLAN_NONE)
               ? fails(c, "does not work in place, or has no values")
               : check_stores(c);
}

/* The queries must be whole heads of the layer's index. */
static enum err check_index_heads(const struct plan_check *c)
{
    uint64_t width = width_of(c->plan, c->step->src), d = kv_of(c->plan, c->step).index_dim;
    bool fits = d != 0 && width != 0 && width % d == 0 && width / d <= PLAN_MAX_HEADS;
    return fits ? ERR_OK : fails(c, "has no heads that fit");
}

static enum err check_index(const struct plan_check *c)
{
    TRY(check_index_heads(c));
    return c->step->src != c->step->dst ? fails(c, "does not work in place") : check_stores(c);
}

static enum err check_choose(const struct plan_check *c)
{
    TRY(check_index_heads(c));
    return c->plan->is_bidirectional || width_of(c->plan, c->step->dst) > PLAN_MAX_CHOSEN
               ? fails(c, "chooses too many positions, or later ones")
               : ERR_OK;
}

static enum err check_head_matmul(const struct plan_check *c)
{
    const struct plan *p = c->plan;
    uint64_t src = width_of(p, c->step->src), dst = width_of(p, c->step->dst), n_heads = kv_of(p, c->step).n_heads;
    uint64_t in = divided(src, n_heads), out = divided(dst, n_heads), n = first_weight(p, c->step).n_in;
    return n == 0 || n > in || in - n >= out || in > PLAN_MAX_HEAD || out > PLAN_MAX_HEAD || src != n_heads * in ||
                   dst != n_heads * out
               ? fails(c, "does not fit its buffers")
               : ERR_OK;
}

static enum err check_attention(const struct plan_check *c)
{
    int32_t window = c->step->attention.window, ahead = c->step->attention.ahead, skips = c->step->attention.skips;
    bool may_look_ahead = c->plan->is_bidirectional && window > 0;
    if (skips < 0 || (skips > 0 && c->plan->is_bidirectional)) {
        return fails(c, "skips positions that it must see");
    }
    if (c->step->attention.in_chunks && (window <= 0 || c->plan->is_bidirectional)) {
        return fails(c, "has chunks without a size, or looks ahead in them");
    }
    if (c->step->w[1] != PLAN_NONE && (c->step->w[0] != PLAN_NONE || c->step->attention.softcap != 0)) {
        return fails(c, "has slopes or biases, and sinks or a soft-cap");
    }
    if (c->step->attention.reach > (c->step->w[1] != PLAN_NONE ? (uint32_t)PLAN_MAX_REACH : 0)) {
        return fails(c, "reaches farther than its biases, or than it can");
    }
    bool has_other = window != 0 || skips != 0 || c->step->w[1] != PLAN_NONE || c->plan->is_bidirectional;
    if (c->step->attention.chosen != PLAN_NONE && (has_other || kv_of(c->plan, c->step).latent_dim == 0)) {
        return fails(c, "reads chosen positions, and has a window, slopes or no latents");
    }
    return window < 0 || ahead < 0 || (ahead > 0 && !may_look_ahead) ? fails(c, "looks ahead without a window to do so")
                                                                     : ERR_OK;
}

static enum err check_limits(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    bool has_any = s->gate_limit != 0 || s->up_limit != 0, fits = s->gate_limit >= 0 && s->up_limit >= 0;
    return has_any && (!fits || s->w[1] == PLAN_NONE) ? fails(c, "has a negative limit, or no gate to limit") : ERR_OK;
}

static enum err check_experts(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    bool is_other = s->bias[0] != PLAN_NONE || s->bias[1] != PLAN_NONE || s->w[1] == PLAN_NONE || s->gate_limit != 0 ||
                    s->up_limit != 0;
    return s->experts.weighs_input && is_other ? fails(c, "weighs its input and has a bias, a limit or no gate")
                                               : check_limits(c);
}

static enum err check_multiply(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    uint64_t n = width_of(c->plan, s->dst), width = width_of(c->plan, s->src),
             repeats = MAX_OF(s->multiply.repeats, 1u);
    uint64_t n_factors = n / repeats;
    bool is_gelu = s->multiply.map == PLAN_MAP_GELU_TANH;
    return n == 0 || s->src == s->dst || s->multiply.map >= PLAN_MAP_COUNT || (s->multiply.is_sparse && !is_gelu) ||
                   n % repeats != 0 || (repeats > 1 && is_gelu) ||
                   (s->src != PLAN_NONE && (width < n_factors || s->multiply.first > width - n_factors))
               ? fails(c, "does not fit its buffers")
               : ERR_OK;
}

/* A step with a state looks back, and reads rows that it must not write. */
static enum err check_recurrent(const struct plan_check *c, bool fits)
{
    if (c->plan->is_bidirectional) {
        return fails(c, "looks back in a plan that looks ahead");
    }
    return !fits || c->step->src == c->step->dst ? fails(c, "has nothing that fits, or works in place") : ERR_OK;
}

static enum err check_short_conv(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    return check_recurrent(c, (s->conv.map == PLAN_MAP_NONE || s->conv.map == PLAN_MAP_SILU) && s->conv.taps >= 2 &&
                                  s->conv.taps <= PLAN_MAX_TAPS);
}

static enum err check_delta(const struct plan_check *c)
{
    const struct plan_delta *d = &c->plan->delta;
    bool is_apart = c->step->delta.keys != PLAN_NONE;
    if (is_apart != (c->step->delta.values != PLAN_NONE)) {
        return fails(c, "lacks keys or values");
    }
    if ((is_apart || d->decays_keys) && d->n_k_heads != d->n_v_heads) {
        return fails(c, "has key heads that value heads share");
    }
    return check_recurrent(c, d->n_k_heads != 0 && d->n_v_heads != 0 && d->n_v_heads % d->n_k_heads == 0 &&
                                  d->n_v_heads <= PLAN_MAX_HEADS && d->key_dim != 0 && d->key_dim <= PLAN_MAX_HEAD &&
                                  d->value_dim != 0 && d->value_dim <= PLAN_MAX_HEAD);
}

static enum err check_ssm(const struct plan_check *c)
{
    const struct plan_ssm *m = &c->plan->ssm;
    return check_recurrent(c, m->n_groups != 0 && m->n_heads != 0 && m->n_heads % m->n_groups == 0 &&
                                  m->n_heads <= PLAN_MAX_HEADS && m->head_dim != 0 && m->head_dim <= PLAN_MAX_HEAD &&
                                  m->state_dim != 0 && m->state_dim <= PLAN_MAX_STATE);
}

static enum err check_scan(const struct plan_check *c)
{
    return c->plan->ssm.n_groups == 1 ? check_ssm(c) : fails(c, "has several groups");
}

static enum err check_sum(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    return s->dst == PLAN_NONE || s->sum.level == s->dst || (s->sum.level != PLAN_NONE && s->eps <= 0)
               ? fails(c, "writes what it reads, or nothing")
               : ERR_OK;
}

/* A step that writes nothing must add. */
static enum err check_reduce(const struct plan_check *c)
{
    return c->step->src == PLAN_NONE && !c->step->adds ? fails(c, "writes nothing") : ERR_OK;
}

static enum err check_streams(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    const struct plan_operand *o;
    int32_t id;
    bool fits = s->streams.n >= 2 && s->streams.n <= PLAN_MAX_STREAMS && s->streams.first < s->streams.n;
    for (int i = 0; (o = plan_next_operand(s, &i, &id)) != NULL;) { /* other operands must differ from them */
        fits &= !plan_is_buf(o) || (o->flags & PLAN_STREAMS) != 0 || (plan_uses(s, id) & PLAN_STREAMS) == 0;
    }
    return fits ? ERR_OK : fails(c, "has no streams that fit");
}

/* The caller's rows must contain what the step reads or writes. */
static enum err check_edge(const struct plan_check *c)
{
    const struct plan_step *s = c->step;
    bool reads = s->op == PLAN_INPUT;
    uint64_t all = reads ? c->plan->input_width : c->plan->output_width;
    uint64_t end = (uint64_t)s->edge.first + width_of(c->plan, reads ? s->dst : s->src);
    return end <= all ? ERR_OK : fails(c, "reaches beyond the rows of the caller");
}

/* --- ops that no rank can split by columns ------------------------------------------------------------------------ */

static bool is_joint_product(const struct plan *p, const struct plan_step *s)
{
    bool is_part = s->src != PLAN_NONE && (s->multiply.first != 0 || p->bufs[s->src].width != p->bufs[s->dst].width);
    return s->multiply.is_sparse || is_part;
}

static bool is_levelled(const struct plan *p, const struct plan_step *s)
{
    (void)p;
    return s->sum.level != PLAN_NONE;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define BUF(field, flags, width)                                                                                       \
    {                                                                                                                  \
#field, offsetof(struct plan_step, field), (flags), (width), 0, 0                                              \
    }
#define WEIGHT(field, flags, rows, width, groups)                                                                      \
    {                                                                                                                  \
#field, offsetof(struct plan_step, field), (flags), (width), (rows), (groups)                                  \
    }
#define VECTOR(field, width)               WEIGHT(field, PLAN_VECTOR, ONE, width, 0)
#define MAY_VECTOR(field, width)           WEIGHT(field, PLAN_VECTOR | PLAN_OPTIONAL, ONE, width, 0)
#define MATRIX(field, rows, width, groups) WEIGHT(field, PLAN_MULTIPLIES | PLAN_ROUNDS, rows, width, groups)

const struct plan_op_info plan_ops[PLAN_OP_COUNT] = {
    [PLAN_EMBED] = {.name = "embed",
                    .operands = {BUF(dst, PLAN_WRITES, ANY), WEIGHT(w[0], PLAN_ROUNDS_Q8, VOCAB, DST, 0),
                                 WEIGHT(w[1], PLAN_OPTIONAL, CONTEXT, DST, 0),
                                 WEIGHT(w[2], PLAN_OPTIONAL, ANY, DST, 0)}},
    [PLAN_NORM] = {.name = "norm",
                   .check = check_norm,
                   .operands = {BUF(src, PLAN_PARTS | PLAN_READS, ANY),
                                BUF(dst, PLAN_PARTS | PLAN_WRITES | PLAN_MAY_ADD, SRC), VECTOR(w[0], GROUP),
                                MAY_VECTOR(bias[0], SRC)}},
    [PLAN_MATMUL] = {.name = "matmul",
                     .split = PLAN_BY_COLUMNS,
                     .n_items = OUTPUTS,
                     .operands = {BUF(src, PLAN_SUMMED | PLAN_READS, ANY),
                                  BUF(dst, PLAN_PARTS | PLAN_WRITES | PLAN_MAY_ADD, ANY), MATRIX(w[0], DST, SRC, 0),
                                  MAY_VECTOR(bias[0], DST)}},
    [PLAN_GLU] = {.name = "glu",
                  .check = check_limits,
                  .split = PLAN_BY_COLUMNS,
                  .n_items = OUTPUTS,
                  .operands = {BUF(src, PLAN_READS, ANY), BUF(dst, PLAN_PARTS | PLAN_WRITES, ANY),
                               MATRIX(w[0], DST, SRC, 0),
                               WEIGHT(w[1], PLAN_MULTIPLIES | PLAN_ROUNDS | PLAN_OPTIONAL, DST, SRC, 0),
                               MAY_VECTOR(bias[0], DST), MAY_VECTOR(bias[1], DST)}},
    [PLAN_QKV] = {.name = "qkv",
                  .check = check_qkv,
                  .split = PLAN_BY_HEADS,
                  .n_items = MADE,
                  .cache = PLAN_WRITES,
                  .rope = offsetof(struct plan_step, heads.rope),
                  .operands = {BUF(src, PLAN_READS, ANY), BUF(dst, PLAN_PARTS | PLAN_WRITES, Q),
                               MATRIX(w[0], Q, SRC, HEADS),
                               WEIGHT(w[1], PLAN_MULTIPLIES | PLAN_ROUNDS | PLAN_OPTIONAL, KV, SRC, KV_HEADS),
                               WEIGHT(w[2], PLAN_MULTIPLIES | PLAN_ROUNDS | PLAN_OPTIONAL, KV_VALUES, SRC, KV_HEADS),
                               MAY_VECTOR(bias[0], Q), MAY_VECTOR(bias[1], KV), MAY_VECTOR(bias[2], KV_VALUES),
                               MAY_VECTOR(heads.q_norm, HEAD), MAY_VECTOR(heads.k_norm, KEY_NORM)}},
    [PLAN_HEADS] = {.name = "heads",
                    .check = check_heads,
                    .split = PLAN_BY_HEADS,
                    .n_items = MADE,
                    .cache = PLAN_WRITES,
                    .rope = offsetof(struct plan_step, heads.rope),
                    .operands = {BUF(src, PLAN_PARTS | PLAN_READS, Q),
                                 BUF(dst, PLAN_PARTS | PLAN_READS | PLAN_WRITES, Q),
                                 BUF(heads.keys, PLAN_READS | PLAN_OPTIONAL, KV),
                                 BUF(heads.values, PLAN_READS | PLAN_OPTIONAL, KV_VALUES),
                                 MAY_VECTOR(heads.q_norm, HEAD), MAY_VECTOR(heads.k_norm, KEY_NORM)}},
    [PLAN_INDEX] = {.name = "index",
                    .check = check_index,
                    .cache = PLAN_WRITES,
                    .rope = offsetof(struct plan_step, heads.rope),
                    .operands = {BUF(src, PLAN_READS | PLAN_DECIDES, ANY), BUF(dst, PLAN_READS | PLAN_WRITES, ANY),
                                 BUF(heads.keys, PLAN_READS, INDEX_KEY)}},
    [PLAN_CHOOSE] = {.name = "choose",
                     .check = check_choose,
                     .crosses_rows = true,
                     .cache = PLAN_READS,
                     .operands = {BUF(src, PLAN_READS, ANY),
                                  BUF(choose.weights, PLAN_READS | PLAN_DECIDES, INDEX_HEADS),
                                  BUF(dst, PLAN_WRITES, ANY)}},
    [PLAN_HEAD_MATMUL] = {.name = "head matmul",
                          .check = check_head_matmul,
                          .split = PLAN_BY_HEADS,
                          .n_items = HEADS,
                          .inner = IN,
                          .operands = {BUF(src, PLAN_PARTS | PLAN_READS, ANY), BUF(dst, PLAN_PARTS | PLAN_WRITES, ANY),
                                       WEIGHT(w[0], PLAN_MULTIPLIES, OUT, IN, HEADS)}},
    [PLAN_ATTENTION] = {.name = "attention",
                        .check = check_attention,
                        .split = PLAN_BY_HEADS,
                        .n_items = HEADS,
                        .crosses_rows = true,
                        .cache = PLAN_READS,
                        .operands = {BUF(src, PLAN_PARTS | PLAN_READS, Q), BUF(dst, PLAN_PARTS | PLAN_WRITES, ATT),
                                     BUF(attention.chosen, PLAN_READS | PLAN_OPTIONAL, ANY), MAY_VECTOR(w[0], HEADS),
                                     MAY_VECTOR(w[1], BIASES)}},
    [PLAN_ROUTE] = {.name = "route",
                    .operands = {BUF(src, PLAN_READS | PLAN_DECIDES, EXPERTS), BUF(dst, PLAN_WRITES, ROUTE),
                                 MAY_VECTOR(w[0], EXPERTS), MAY_VECTOR(w[1], EXPERTS)}},
    [PLAN_EXPERTS] = {.name = "experts",
                      .check = check_experts,
                      .split = PLAN_BY_EXPERTS,
                      .n_items = EXPERTS,
                      .inner = FF,
                      .operands = {BUF(src, PLAN_READS, ANY), BUF(experts.route, PLAN_READS, ROUTE),
                                   BUF(dst, PLAN_WRITES | PLAN_MAY_ADD, ANY), MATRIX(w[0], INNER, SRC, EXPERTS),
                                   WEIGHT(w[1], PLAN_MULTIPLIES | PLAN_ROUNDS | PLAN_OPTIONAL, INNER, SRC, EXPERTS),
                                   MATRIX(w[2], OUTER, FF, EXPERTS), MAY_VECTOR(bias[0], INNER),
                                   MAY_VECTOR(bias[1], INNER), MAY_VECTOR(bias[2], OUTER)}},
    [PLAN_GATE] = {.name = "gate",
                   .operands = {BUF(src, PLAN_READS, ANY), BUF(dst, PLAN_PARTS | PLAN_READS | PLAN_WRITES, ANY),
                                VECTOR(w[0], SRC)}},
    [PLAN_MULTIPLY] = {.name = "multiply",
                       .check = check_multiply,
                       .is_whole = is_joint_product,
                       .operands = {BUF(src, PLAN_PARTS | PLAN_READS | PLAN_OPTIONAL, ANY),
                                    BUF(dst, PLAN_PARTS | PLAN_READS | PLAN_WRITES, ANY)}},
    [PLAN_XIELU] = {.name = "xielu", .operands = {BUF(dst, PLAN_PARTS | PLAN_READS | PLAN_WRITES, ANY)}},
    [PLAN_SHORT_CONV] = {.name = "short conv",
                         .check = check_short_conv,
                         .split = PLAN_BY_CHANNELS,
                         .n_items = SRC,
                         .state = {KEPT, SRC, ONE},
                         .drafted = {ONE},
                         .crosses_rows = true,
                         .operands = {BUF(src, PLAN_PARTS | PLAN_READS, ANY), BUF(dst, PLAN_PARTS | PLAN_WRITES, SRC),
                                      VECTOR(w[0], TAPS), MAY_VECTOR(bias[0], SRC)}},
    [PLAN_DELTA] = {.name = "delta",
                    .check = check_delta,
                    .split = PLAN_BY_HEADS,
                    .n_items = DELTA_HEADS,
                    .state = {DELTA_HEADS, DELTA_KEY, DELTA_VALUE},
                    .drafted = {DELTA_KEY, DELTA_VALUE, DELTA_RATE, ONE},
                    .crosses_rows = true,
                    .operands = {BUF(src, PLAN_PARTS | PLAN_READS, DELTA_IN),
                                 BUF(delta.beta, PLAN_PARTS | PLAN_READS, DELTA_HEADS),
                                 BUF(delta.alpha, PLAN_PARTS | PLAN_READS, DELTA_RATES),
                                 BUF(delta.keys, PLAN_PARTS | PLAN_READS | PLAN_OPTIONAL, DELTA_KEYS),
                                 BUF(delta.values, PLAN_PARTS | PLAN_READS | PLAN_OPTIONAL, DELTA_OUT),
                                 BUF(dst, PLAN_PARTS | PLAN_WRITES, DELTA_OUT), VECTOR(w[0], DELTA_HEADS),
                                 VECTOR(bias[0], DELTA_RATES), MAY_VECTOR(w[1], DELTA_VALUE)}},
    [PLAN_SSM] = {.name = "ssm",
                  .check = check_ssm,
                  .split = PLAN_BY_HEADS,
                  .n_items = SSM_HEADS,
                  .state = {SSM_HEADS, SSM_STATE, SSM_HEAD},
                  .drafted = {SSM_STATE, SSM_HEAD, ONE},
                  .crosses_rows = true,
                  .operands = {BUF(src, PLAN_PARTS | PLAN_READS, SSM_IN),
                               BUF(ssm.dt, PLAN_PARTS | PLAN_READS, SSM_HEADS),
                               BUF(dst, PLAN_PARTS | PLAN_WRITES, SSM_OUT), VECTOR(w[0], SSM_HEADS),
                               VECTOR(w[1], SSM_HEADS), VECTOR(bias[0], SSM_HEADS)}},
    [PLAN_SCAN] = {.name = "scan",
                   .check = check_scan,
                   .split = PLAN_BY_HEADS,
                   .n_items = SSM_HEADS,
                   .state = {SSM_HEADS, SSM_STATE, SSM_HEAD},
                   .drafted = {SSM_STATE, SSM_HEAD, SSM_HEAD},
                   .crosses_rows = true,
                   .operands = {BUF(src, PLAN_READS, SSM_OUT), BUF(scan.dt, PLAN_READS, SSM_OUT),
                                BUF(scan.b, PLAN_READS, SSM_STATE), BUF(scan.c, PLAN_READS, SSM_STATE),
                                BUF(dst, PLAN_WRITES, SSM_OUT), VECTOR(w[0], SSM_RATES), VECTOR(w[1], SSM_OUT),
                                VECTOR(bias[0], SSM_OUT)}},
    [PLAN_SUM] = {.name = "sum",
                  .check = check_sum,
                  .is_whole = is_levelled,
                  .operands = {BUF(src, PLAN_PARTS | PLAN_READS, DST), BUF(sum.level, PLAN_READS | PLAN_OPTIONAL, DST),
                               BUF(dst, PLAN_PARTS | PLAN_WRITES | PLAN_MAY_ADD, ANY), MAY_VECTOR(w[0], DST)}},
    [PLAN_PREDICT] = {.name = "predict",
                      .check = check_streams,
                      .operands = {BUF(src, PLAN_READS | PLAN_DECIDES, STREAMS),
                                   BUF(dst, PLAN_READS | PLAN_WRITES | PLAN_STREAMS, DST), VECTOR(w[0], STREAMS_3)}},
    [PLAN_CORRECT] = {.name = "correct",
                      .check = check_streams,
                      .operands = {BUF(src, PLAN_READS, DST), BUF(streams.routes, PLAN_READS | PLAN_DECIDES, STREAMS),
                                   BUF(dst, PLAN_READS | PLAN_WRITES | PLAN_STREAMS, DST), VECTOR(w[0], STREAMS_2)}},
    [PLAN_REDUCE] = {.name = "reduce",
                     .check = check_reduce,
                     .over_ranks = true,
                     .operands = {BUF(src, PLAN_READS | PLAN_OPTIONAL, DST),
                                  BUF(dst, PLAN_WRITES | PLAN_MAY_ADD, ANY)}},
    [PLAN_HIDDEN] = {.name = "hidden",
                     .rows = PLAN_HIDDEN_ROWS,
                     .crosses_rows = true,
                     .operands = {BUF(src, PLAN_READS, WIDTH), MAY_VECTOR(w[0], SRC), MAY_VECTOR(bias[0], SRC)}},
    [PLAN_GATHER] = {.name = "gather",
                     .rows = PLAN_LOGIT_ROWS,
                     .crosses_rows = true,
                     .operands = {BUF(src, PLAN_READS, ANY), BUF(dst, PLAN_WRITES, SRC)}},
    [PLAN_LOGITS] = {.name = "logits",
                     .rows = PLAN_LOGIT_ROWS,
                     .split = PLAN_BY_COLUMNS,
                     .n_items = LOGITS,
                     .operands = {BUF(src, PLAN_READS, ANY),
                                  WEIGHT(w[0], PLAN_MULTIPLIES | PLAN_ROUNDS_Q8, LOGITS, SRC, 0),
                                  MAY_VECTOR(bias[0], LOGITS)}},
    [PLAN_INPUT] = {.name = "input", .check = check_edge, .operands = {BUF(dst, PLAN_WRITES, ANY)}},
    [PLAN_OUTPUT] = {.name = "output", .check = check_edge, .operands = {BUF(src, PLAN_READS, ANY)}},
};

const char *plan_op_name(enum plan_op op) { return plan_ops[op].name; }

/* --- walking ------------------------------------------------------------------------------------------------------ */

static int32_t *id_at(struct plan_step *s, size_t at) { return (int32_t *)(void *)((char *)s + at); }
static int32_t id_of(const struct plan_step *s, size_t at)
{
    int32_t id;
    memcpy(&id, (const char *)s + at, sizeof id);
    return id;
}

int32_t *plan_operand_id(struct plan_step *s, const struct plan_operand *o) { return id_at(s, o->at); }

struct plan_step plan_step_of(enum plan_op op, plan_buf_id src, plan_buf_id dst)
{
    struct plan_step s = {.op = op,
                          .layer = PLAN_NONE,
                          .w = {PLAN_NONE, PLAN_NONE, PLAN_NONE},
                          .bias = {PLAN_NONE, PLAN_NONE, PLAN_NONE},
                          .scale = 1.0f};
    for (const struct plan_operand *o = plan_ops[op].operands; o->name != NULL; o++) {
        *id_at(&s, o->at) = PLAN_NONE;
    }
    if (plan_ops[op].rope != 0) {
        *id_at(&s, plan_ops[op].rope) = PLAN_NONE;
    }
    s.src = src;
    s.dst = dst;
    return s;
}

struct plan_step plan_edge_of(bool is_output, plan_buf_id buf, uint32_t first)
{
    struct plan_step s =
        is_output ? plan_step_of(PLAN_OUTPUT, buf, PLAN_NONE) : plan_step_of(PLAN_INPUT, PLAN_NONE, buf);
    s.edge.first = first;
    return s;
}

const struct plan_operand *plan_next_operand(const struct plan_step *s, int *i, int32_t *id)
{
    for (const struct plan_operand *o; *i < PLAN_MAX_OPERANDS;) {
        o = &plan_ops[s->op].operands[(*i)++];
        if (o->name == NULL) {
            break;
        }
        *id = id_of(s, o->at);
        if (*id != PLAN_NONE) {
            return o;
        }
    }
    return NULL;
}

void plan_rename(struct plan_step *s, const plan_buf_id *names)
{
    for (const struct plan_operand *o = plan_ops[s->op].operands; o->name != NULL; o++) {
        int32_t *id = id_at(s, o->at);
        if (plan_is_buf(o) && *id != PLAN_NONE) {
            *id = names[*id];
        }
    }
}

int plan_uses(const struct plan_step *s, plan_buf_id buf)
{
    int uses = 0;
    int32_t id = PLAN_NONE;
    const struct plan_operand *o;
    for (int i = 0; (o = plan_next_operand(s, &i, &id)) != NULL;) {
        int32_t n = (o->flags & PLAN_STREAMS) != 0 ? (int32_t)s->streams.n : 1;
        if (plan_is_buf(o) && buf >= id && buf - id < n) {
            uses |= o->flags | ((o->flags & PLAN_MAY_ADD) != 0 && s->adds ? PLAN_READS : 0);
        }
    }
    return uses;
}

bool plan_is_read(const struct plan *p, int32_t step, plan_buf_id buf)
{
    for (int32_t i = step; i < p->n_steps; i++) {
        int uses = plan_uses(&p->steps[i], buf);
        if (uses != 0) {
            return (uses & PLAN_READS) != 0;
        }
    }
    return false;
}

uint32_t plan_group_rows(const struct plan *p, const struct plan_step *s, const struct plan_operand *o)
{
    uint64_t n_out = p->weights[id_of(s, o->at)].n_out;
    return (uint32_t)(o->groups != 0 ? n_out / size_of(p, s, o->groups) : n_out);
}

uint32_t plan_n_items(const struct plan *p, const struct plan_step *s)
{
    return (uint32_t)size_of(p, s, plan_ops[s->op].n_items);
}

uint32_t plan_inner_floats(const struct plan *p, const struct plan_step *s)
{
    return (uint32_t)size_of(p, s, plan_ops[s->op].inner);
}

uint64_t plan_state_floats(const struct plan *p, const struct plan_step *s)
{
    const uint8_t *d = plan_ops[s->op].state;
    return size_of(p, s, d[0]) * size_of(p, s, d[1]) * size_of(p, s, d[2]);
}

bool plan_stores(const struct plan *p, const struct plan_step *s)
{
    return ((plan_ops[s->op].cache & PLAN_WRITES) != 0 && stores(s)) || plan_state_floats(p, s) != 0;
}

uint64_t plan_drafted_floats(const struct plan *p, const struct plan_step *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(plan_ops[s->op].drafted); i++) {
        n += size_of(p, s, plan_ops[s->op].drafted[i]);
    }
    return n;
}

double plan_weight_share(const struct plan *p, const struct plan_operand *o)
{
    return o->groups == EXPERTS ? (double)p->moe.n_used / p->moe.n_experts : 1;
}

double plan_expert_part(const struct plan *p)
{
    double all = 0, experts = 0;
    for (int32_t i = 0; i < plan_main_steps(p); i++) {
        const struct plan_operand *o;
        plan_weight_id id;
        for (int k = 0; (o = plan_next_operand(&p->steps[i], &k, &id)) != NULL;) {
            const struct plan_weight *w = &p->weights[id];
            double share = plan_weight_share(p, o), bytes = share * w->n_out * (double)w->row_bytes;
            bool is_read = (o->flags & PLAN_MULTIPLIES) != 0;
            all += is_read ? bytes : 0;
            experts += is_read && share < 1 ? bytes : 0;
        }
    }
    return all > 0 ? experts / all : 0;
}

double plan_cache_read(const struct plan *p, const struct plan_step *s, int32_t pos)
{
    if (plan_ops[s->op].cache != PLAN_READS) {
        return 0;
    }
    if (s->op == PLAN_CHOOSE) {
        return (double)size_of(p, s, INDEX_KEY) * (pos + 1);
    }
    int32_t n = s->attention.window > 0 ? MIN_OF(s->attention.window, pos + 1) : pos + 1;
    uint64_t chosen = width_of(p, s->attention.chosen);
    return (double)size_of(p, s, KV) * (chosen != 0 ? MIN_OF(chosen, (uint64_t)n) : (uint64_t)n);
}

/* --- checking ----------------------------------------------------------------------------------------------------- */

static enum err check_buf(const struct plan_check *c, const struct plan_operand *o, plan_buf_id first)
{
    uint64_t want = size_of(c->plan, c->step, o->width);
    int32_t n = (o->flags & PLAN_STREAMS) != 0 ? (int32_t)c->step->streams.n : 1;
    for (int32_t i = 0; i < n; i++) {
        uint64_t width = width_of(c->plan, first + i);
        if (width == 0 || (o->width != ANY && width != want)) {
            return err_set(c->info, ERR_INTERNAL, NULL,
                           "the plan's %s step expects a buffer of width %" PRIu64 " as %s, found %" PRIu64,
                           plan_op_name(c->step->op), want, o->name, width);
        }
    }
    return ERR_OK;
}

static enum err check_weight(const struct plan_check *c, const struct plan_operand *o, plan_weight_id id)
{
    const struct plan_weight *w = id >= 0 && id < c->plan->n_weights ? &c->plan->weights[id] : NULL;
    if (w == NULL) {
        return fails(c, "lacks a weight");
    }
    uint64_t rows = o->rows != ANY ? size_of(c->plan, c->step, o->rows) : w->n_out;
    uint64_t columns = size_of(c->plan, c->step, o->width);
    if (w->n_out != rows || w->n_in != columns) {
        return err_set(c->info, ERR_BAD_TENSOR_SHAPE, w->name,
                       "%s: expected [%" PRIu64 ", %" PRIu64 "] (columns, rows), found [%u, %u]", w->name, columns,
                       rows, w->n_in, w->n_out);
    }
    if ((o->flags & PLAN_VECTOR) != 0 && w->type != DTYPE_F32) {
        return err_set(c->info, ERR_UNSUPPORTED_TYPE, w->name, "%s: expected F32, found %s", w->name,
                       dtype_info(w->type)->name);
    }
    return ERR_OK;
}

/* Checks the layer of a step that uses the cache, and its RoPE table. */
static enum err check_cache(const struct plan_check *c)
{
    const struct plan *p = c->plan;
    const struct plan_op_info *op = &plan_ops[c->step->op];
    struct plan_kv kv = kv_of(p, c->step);
    if (op->cache != 0 && kv.layer == PLAN_NONE) {
        return fails(c, "lacks a layer with attention");
    }
    if (op->rope != 0) {
        int32_t rope = id_of(c->step, op->rope);
        uint32_t width = c->step->op == PLAN_INDEX ? kv.index_dim : kv.head_dim;
        bool fits = rope >= 0 && rope < p->n_ropes && p->ropes[rope].first + p->ropes[rope].n_rot <= width;
        return fits ? ERR_OK : fails(c, "lacks a RoPE table that fits");
    }
    return ERR_OK;
}

enum err plan_ops_check(const struct plan *p, const struct plan_step *s, struct err_info *info)
{
    if (s->op < 0 || s->op >= PLAN_OP_COUNT) {
        return err_set(info, ERR_INTERNAL, NULL, "the plan holds an unknown step");
    }
    const struct plan_check c = {.plan = p, .step = s, .info = info};
    const struct plan_op_info *op = &plan_ops[s->op];
    TRY(check_cache(&c));
    if (op->check != NULL) {
        TRY(op->check(&c));
    }
    bool may_add = false;
    for (const struct plan_operand *o = op->operands; o->name != NULL; o++) {
        may_add |= (o->flags & PLAN_MAY_ADD) != 0;
    }
    if (s->adds && (!may_add || s->src == s->dst)) {
        return fails(&c, may_add ? "adds to the buffer it reads" : "cannot add");
    }
    for (const struct plan_operand *o = op->operands; o->name != NULL; o++) {
        int32_t id = id_of(s, o->at);
        if (id != PLAN_NONE || (o->flags & PLAN_OPTIONAL) == 0) {
            TRY((plan_is_buf(o) ? check_buf : check_weight)(&c, o, id));
        }
    }
    return ERR_OK;
}
