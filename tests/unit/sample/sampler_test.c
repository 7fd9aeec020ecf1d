/* The sampler against a straightforward one in double precision that sorts everything, then edges, ties, errors,
 * repeatability and the distribution of what is drawn. */
#include "engine/sample/sampler.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *sampler_suite(void);

enum { MAX_VOCAB = 6000, MAX_HISTORY = 64 };

static struct sampler_params neutral(void)
{
    return (struct sampler_params){
        .temperature = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .repeat_last_n = 64, .n_top = -1};
}

/* What a back end tells of a row. */
static struct sampler_row row_of(const float *logits, int32_t n)
{
    struct sampler_row row = {.logits = logits, .n_vocab = n, .max = -INFINITY};
    bool is_bad = false;
    for (int32_t i = 0; i < n; i++) {
        is_bad = is_bad || isnan(logits[i]) || logits[i] == INFINITY;
        if (logits[i] > row.max) {
            row.max = logits[i];
            row.argmax = i;
        }
    }
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - row.max);
    }
    row.logsumexp = is_bad ? NAN : (float)(log(sum) + row.max);
    return row;
}

static int by_rank(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : (x->id > y->id) - (x->id < y->id);
}

static int n_without_logits; /* picks that needed no more than a row's best */

/* The same pick from no more than is asked for gives the same bits. */
static void check_wants(const struct sampler_params *p, const struct sampler_row *all, const struct sampler_history *h,
                        struct sampler_scratch *s, enum err err, const struct sampler_result *expected)
{
    static struct candidate best[MAX_VOCAB];
    int32_t n = sampler_wants(p, all->n_vocab, h->ban_ends);
    if (n == SAMPLER_ALL_LOGITS) {
        return;
    }
    ck_assert_int_le(n, all->n_vocab);
    for (int32_t i = 0; i < all->n_vocab; i++) {
        best[i] = (struct candidate){.id = i, .logit = all->logits[i]};
    }
    if (isfinite(all->logsumexp)) {
        qsort(best, (size_t)all->n_vocab, sizeof *best, by_rank);
    }
    struct sampler_row row = *all;
    struct sampler_result got;
    row.logits = NULL;
    row.best = best;
    row.n_best = n;
    ck_assert_int_eq(sampler_pick(p, &row, h, s, &got), err);
    if (err == ERR_OK) {
        ck_assert_int_eq(got.id, expected->id);
        ck_assert(memcmp(&got.logprob, &expected->logprob, sizeof got.logprob) == 0);
        ck_assert_int_eq(got.n_top, expected->n_top);
        ck_assert(memcmp(got.top, expected->top, (size_t)got.n_top * sizeof *got.top) == 0);
        n_without_logits++;
    }
}

/* One pick with fresh scratch, which must be left as it should be. */
static enum err pick_with(const struct sampler_params *p, const float *logits, int32_t n,
                          const struct sampler_history *h, struct sampler_result *out)
{
    struct sampler_scratch s;
    struct sampler_row row = row_of(logits, n);
    ck_assert_int_eq(sampler_scratch_init(&s, n), ERR_OK);
    enum err err = sampler_pick(p, &row, h, &s, out);
    check_wants(p, &row, h, &s, err, out);
    for (int32_t i = 0; i < n; i++) {
        if (s.seen[i] != 0) {
            ck_abort_msg("seen[%d] is not zero after the call", i);
        }
    }
    sampler_scratch_fini(&s);
    return err;
}

/* The id picked at position `position` without history. */
static int32_t pick_id(const struct sampler_params *p, const float *logits, int32_t n, int32_t position)
{
    struct sampler_history h = {.n_prompt = position, .n_tokens = position};
    struct sampler_result r;
    ck_assert_int_eq(pick_with(p, logits, n, &h, &r), ERR_OK);
    return r.id;
}

/* --- the plain sampler ------------------------------------------------------------------------------------------ */

struct plain {
    int32_t id;
    double logit, key;
};

static int by_logit(const void *a, const void *b)
{
    const struct plain *x = a, *y = b;
    return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

static int by_key(const void *a, const void *b)
{
    const struct plain *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int by_id(const void *a, const void *b)
{
    const struct plain *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Bias, bans and penalties. */
static void plain_change(const struct sampler_params *p, const struct sampler_history *h, struct plain *c, int32_t n)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        c[p->bias[i].id].logit += p->bias[i].bias <= -100 ? -INFINITY : p->bias[i].bias;
    }
    for (size_t i = 0; i < p->n_ends && h->ban_ends; i++) {
        c[p->ends[i]].logit = -INFINITY;
    }
    for (int32_t id = 0; id < n; id++) {
        bool is_recent = false;
        int n_generated = 0;
        for (int32_t i = 0; i < h->n_tokens; i++) {
            bool in_range = p->repeat_last_n < 0 || i >= h->n_tokens - p->repeat_last_n;
            is_recent = is_recent || (h->tokens[i] == id && in_range);
            n_generated += h->tokens[i] == id && i >= h->n_prompt;
        }
        if (is_recent) {
            c[id].logit = c[id].logit > 0 ? c[id].logit / p->repeat_penalty : c[id].logit * p->repeat_penalty;
        }
        c[id].logit -= n_generated * (double)p->frequency_penalty + (n_generated > 0) * (double)p->presence_penalty;
    }
}

static double plain_mass(const struct plain *c, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp(c[i].logit - c[0].logit);
    }
    return sum;
}

enum { TOO_NEAR = -1 }; /* to a border: rounding decides */

/* The first candidates that hold `wanted` of the mass; c in the order of taking, `total` their sum. */
static int32_t plain_until(const struct plain *c, int32_t n, double best, double total, double wanted)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp(c[i].logit - best) / total;
        if (fabs(sum - wanted) < 1e-6) {
            return TOO_NEAR;
        }
        if (sum > wanted) {
            return i + 1;
        }
    }
    return n;
}

static int32_t plain_typical(struct plain *c, int32_t n, double typical_p)
{
    double best = c[0].logit, total = plain_mass(c, n), entropy = 0;
    for (int32_t i = 0; i < n; i++) {
        double share = exp(c[i].logit - best) / total;
        entropy -= share > 0 ? share * log(share) : 0;
    }
    for (int32_t i = 0; i < n; i++) {
        c[i].key = fabs(-(c[i].logit - best - log(total)) - entropy);
    }
    qsort(c, (size_t)n, sizeof *c, by_key);
    int32_t kept = plain_until(c, n, best, total, typical_p);
    for (int32_t i = 0; i + 1 < n && i <= kept; i++) {
        kept = c[i + 1].key - c[i].key < 1e-5 ? TOO_NEAR : kept;
    }
    if (kept > 0) {
        qsort(c, (size_t)kept, sizeof *c, by_logit);
    }
    return kept;
}

/* The candidates that are left, best first. TOO_NEAR when a border cannot be decided. */
static int32_t plain_truncate(const struct sampler_params *p, struct plain *c, int32_t n)
{
    qsort(c, (size_t)n, sizeof *c, by_logit);
    while (n > 1 && c[n - 1].logit == -INFINITY) {
        n--;
    }
    if (p->top_k > 0 && p->top_k < n) {
        if (c[p->top_k - 1].logit - c[p->top_k].logit < 1e-5) {
            return TOO_NEAR;
        }
        n = p->top_k;
    }
    if (p->typical_p < 1) {
        n = plain_typical(c, n, p->typical_p);
    }
    if (n > 0 && p->top_p < 1) {
        n = plain_until(c, n, c[0].logit, plain_mass(c, n), p->top_p);
    }
    if (n > 0 && p->min_p > 0) {
        int32_t kept = 0;
        for (int32_t i = 0; i < n; i++) {
            double over = exp(c[i].logit - c[0].logit) / p->min_p - 1;
            if (fabs(over) < 1e-5) {
                return TOO_NEAR;
            }
            kept += over > 0;
        }
        n = kept;
    }
    return n;
}

/* The id that the number u in [0, 1) picks, or TOO_NEAR. */
static int32_t plain_pick(const struct sampler_params *p, const float *logits, int32_t n,
                          const struct sampler_history *h, double u)
{
    static struct plain c[MAX_VOCAB];
    for (int32_t i = 0; i < n; i++) {
        c[i] = (struct plain){.id = i, .logit = logits[i]};
    }
    plain_change(p, h, c, n);
    if (p->temperature == 0) { /* greedy, whatever the other stages say */
        qsort(c, (size_t)n, sizeof *c, by_logit);
        return c[0].logit - c[1].logit < 1e-5 ? TOO_NEAR : c[0].id;
    }
    int32_t kept = plain_truncate(p, c, n);
    if (kept <= 0) {
        return TOO_NEAR;
    }
    double best = c[0].logit, total = 0, sum = 0;
    if (p->top_k <= 0 && p->typical_p >= 1 && p->top_p >= 1 && p->min_p <= 0) {
        qsort(c, (size_t)kept, sizeof *c, by_id); /* nothing is truncated: drawn in the order of ids */
    }
    for (int32_t i = 0; i < kept; i++) {
        total += exp((c[i].logit - best) / p->temperature);
    }
    for (int32_t i = 0; i < kept; i++) {
        sum += exp((c[i].logit - best) / p->temperature) / total;
        if (fabs(sum - u) < 1e-5) {
            return i + 1 == kept && sum > u ? c[i].id : TOO_NEAR;
        }
        if (sum > u) {
            return c[i].id;
        }
    }
    return c[kept - 1].id;
}

/* --- at random -------------------------------------------------------------------------------------------------- */

static uint64_t draws;
static double uniform(double from, double to) { return from + (to - from) * rng_uniform(161803, 0, draws++); }
static int32_t integer(int32_t n) { return (int32_t)uniform(0, n); }

struct random_case {
    float logits[MAX_VOCAB];
    int32_t n, tokens[MAX_HISTORY], ends[2];
    struct sampler_bias bias[3];
    struct sampler_params p;
    struct sampler_history h;
};

static void make_case(struct random_case *c, int32_t max_vocab)
{
    c->n = 2 + integer(max_vocab - 2);
    double spread = integer(4) == 0 ? uniform(0, 0.5) : uniform(0.5, 6);
    for (int32_t i = 0; i < c->n; i++) {
        c->logits[i] = (float)(spread * (uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1)));
        c->logits[i] = integer(50) == 0 ? -INFINITY : c->logits[i];
    }
    c->logits[integer(c->n)] = (float)spread;
    c->p = neutral();
    c->p.seed = (uint64_t)integer(1 << 30) << 20 | 1;
    c->p.choice = (uint32_t)integer(3);
    c->p.temperature = integer(6) == 0 ? 0 : (float)uniform(0.1, 2.5);
    c->p.top_k = integer(3) == 0 ? 1 + integer(c->n + 10) : 0;
    c->p.top_p = integer(2) == 0 ? (float)uniform(0, 1) : 1;
    c->p.min_p = integer(3) == 0 ? (float)uniform(0, 0.5) : 0;
    c->p.typical_p = integer(4) == 0 ? (float)uniform(0, 1) : 1;
    c->h = (struct sampler_history){.tokens = c->tokens, .n_tokens = 1 + integer(MAX_HISTORY - 1)};
    c->h.n_prompt = integer(c->h.n_tokens + 1);
    for (int32_t i = 0; i < c->h.n_tokens; i++) {
        c->tokens[i] = integer(c->n < 12 ? c->n : 12);
    }
    if (integer(3) == 0) {
        c->p.repeat_penalty = (float)uniform(0.7, 1.8);
        c->p.repeat_last_n = integer(4) == 0 ? -1 : integer(MAX_HISTORY);
    }
    c->p.frequency_penalty = integer(3) == 0 ? (float)uniform(-2, 2) : 0;
    c->p.presence_penalty = integer(3) == 0 ? (float)uniform(-2, 2) : 0;
    for (int i = 0; i < 3; i++) {
        c->bias[i] =
            (struct sampler_bias){(integer(c->n) / 3) * 3 % c->n, integer(3) == 0 ? -100 : (float)uniform(-5, 5)};
    }
    c->ends[0] = 0;
    c->ends[1] = c->n - 1;
    c->p.bias = c->bias;
    c->p.n_bias = integer(3) == 0 ? 1 : 0;
    c->p.ends = c->ends;
    c->p.n_ends = 2;
    c->h.ban_ends = c->n > 8 && integer(4) == 0;
}

START_TEST(every_mix_of_stages_agrees_with_the_plain_sampler)
{
    static struct random_case c;
    int n_near = 0, n_cases = _i == 0 ? 6000 : 150;
    for (int i = 0; i < n_cases; i++) {
        make_case(&c, _i == 0 ? 300 : MAX_VOCAB);
        double u = rng_uniform(c.p.seed, c.p.choice, (uint64_t)c.h.n_tokens);
        int32_t expected = plain_pick(&c.p, c.logits, c.n, &c.h, u);
        struct sampler_result r;
        enum err err = pick_with(&c.p, c.logits, c.n, &c.h, &r);
        if (expected == TOO_NEAR) {
            n_near++;
            continue;
        }
        if (err != ERR_OK || r.id != expected) {
            ck_abort_msg("case %d: %s, got %d, expected %d (n %d T %g k %d p %g min %g typ %g)", i, err_code(err), r.id,
                         expected, c.n, (double)c.p.temperature, c.p.top_k, (double)c.p.top_p, (double)c.p.min_p,
                         (double)c.p.typical_p);
        }
        ck_assert(isnan(r.logprob));
    }
    ck_assert_int_gt(n_without_logits, n_cases / 100);
    ck_assert_msg(n_near < n_cases / 5, "%d of %d cases could not be decided", n_near, n_cases);
}
END_TEST

/* --- edges ------------------------------------------------------------------------------------------------------ */

START_TEST(greedy_takes_the_lowest_of_equals)
{
    float logits[40];
    struct sampler_params p = neutral();
    p.temperature = 0;
    for (int i = 0; i < 40; i++) {
        logits[i] = i == 13 || i == 29 || i == 30 ? 2.5f : -(float)i;
    }
    ck_assert_int_eq(pick_id(&p, logits, 40, 5), 13);
    static const struct sampler_bias bias[] = {{13, -0.5f}, {2, 0.25f}};
    p.bias = bias; /* the same through changed logits */
    p.n_bias = 2;
    ck_assert_int_eq(pick_id(&p, logits, 40, 5), 29);
    p.n_bias = 0;
    p.temperature = 1e-6f; /* as good as greedy; equals share */
    for (int i = 0; i < 50; i++) {
        int32_t id = pick_id(&p, logits, 40, i);
        ck_assert(id == 13 || id == 29 || id == 30);
    }
    p.temperature = 1e-45f;
    int32_t id = pick_id(&p, logits, 40, 0);
    ck_assert(id == 13 || id == 29 || id == 30);
}
END_TEST

/* Which ids come up in `n_draws` draws, as a bit mask; n <= 32. */
static uint32_t ids_drawn(const struct sampler_params *p, const float *logits, int32_t n, int n_draws)
{
    uint32_t mask = 0;
    for (int i = 0; i < n_draws; i++) {
        mask |= 1u << pick_id(p, logits, n, i);
    }
    return mask;
}

START_TEST(edges_of_each_stage)
{
    static const float equal[8] = {1, 1, 1, 1, 1, 1, 1, 1}, falling[4] = {0, -1, -2, -3}, single[1] = {-7};
    static const struct {
        const float *logits;
        int32_t n, top_k;
        float top_p, min_p, typical_p;
        uint32_t expected; /* ids that come up, and no others */
    } cases[] = {
        {equal, 8, 0, 1, 0, 1, 0xFF},      {equal, 8, 1, 1, 0, 1, 0x01},     {equal, 8, 3, 1, 0, 1, 0x07},
        {equal, 8, 8, 1, 0, 1, 0xFF},      {equal, 8, 9, 1, 0, 1, 0xFF},     {equal, 8, 1 << 30, 1, 0, 1, 0xFF},
        {equal, 8, 0, 0, 0, 1, 0x01},      {equal, 8, 0, 0.5f, 0, 1, 0x0F},  {equal, 8, 0, 1, 1, 1, 0xFF},
        {equal, 8, 0, 0.25f, 1, 1, 0x03},  {equal, 8, 0, 1, 0, 0, 0x01},     {equal, 8, 4, 0.5f, 0, 1, 0x03},
        {falling, 4, 1, 1, 0, 1, 0x1},     {falling, 4, 0, 0, 0, 1, 0x1},    {falling, 4, 0, 1, 1, 1, 0x1},
        {falling, 4, 0, 1, 0.3f, 1, 0x3},  {falling, 4, 0, 1, 0.1f, 1, 0x7}, {falling, 4, 0, 0.64f, 0, 1, 0x1},
        {falling, 4, 0, 0.65f, 0, 1, 0x3}, {falling, 4, 4, 1, 0, 1, 0xF},    {falling, 4, 2, 0.74f, 0, 1, 0x3},
        {falling, 4, 2, 0.73f, 0, 1, 0x1}, /* top-p of what top-k left: 0.731 of the mass is the first one's */
        {falling, 4, 0, 1, 0, 0.1f, 0x2}, /* surprises 0.44 1.44 2.44 3.44, entropy 0.95: the second is the most typical
                                           */
        {falling, 4, 0, 1, 0, 0.3f, 0x3},  {single, 1, 0, 1, 0, 1, 0x1},     {single, 1, 1, 0, 1, 0, 0x1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sampler_params p = neutral();
        p.seed = i;
        p.top_k = cases[i].top_k;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        p.typical_p = cases[i].typical_p;
        uint32_t mask = ids_drawn(&p, cases[i].logits, cases[i].n, 400);
        ck_assert_msg(mask == cases[i].expected, "case %zu: ids %x came up, expected %x", i, mask, cases[i].expected);
    }
}
END_TEST

START_TEST(minus_infinity_never_comes_up)
{
    float logits[32];
    for (int i = 0; i < 32; i++) {
        logits[i] = i % 3 == 1 ? 0.5f : -INFINITY;
    }
    static const struct sampler_bias bias = {3, 50}; /* more does not help a token that cannot be */
    struct sampler_params p;
    for (int mode = 0; mode < 6; mode++) {
        p = neutral();
        p.top_k = mode == 1 ? 30 : 0;
        p.top_p = mode == 2 ? 0.9999f : 1;
        p.min_p = mode == 3 ? 1e-30f : 0;
        p.typical_p = mode == 4 ? 0.999f : 1;
        p.bias = &bias;
        p.n_bias = mode == 5;
        ck_assert_uint_eq(ids_drawn(&p, logits, 32, 600) & ~0x92492492u, 0);
    }
}
END_TEST

START_TEST(rows_that_are_not_finite_are_errors)
{
    static const float bad[] = {NAN, INFINITY};
    struct sampler_history h = {0};
    struct sampler_result r;
    for (size_t i = 0; i < 2; i++) {
        for (int32_t at = 0; at < 5; at++) {
            float logits[5] = {1, 2, 3, 4, 5};
            logits[at] = bad[i];
            struct sampler_params p = neutral();
            ck_assert_int_eq(pick_with(&p, logits, 5, &h, &r), ERR_NUMERICAL);
            p.temperature = 0;
            ck_assert_int_eq(pick_with(&p, logits, 5, &h, &r), ERR_NUMERICAL);
        }
    }
    float none[3] = {-INFINITY, -INFINITY, -INFINITY};
    struct sampler_params p = neutral();
    ck_assert_int_eq(pick_with(&p, none, 3, &h, &r), ERR_NUMERICAL);
}
END_TEST

/* --- bias, bans, penalties -------------------------------------------------------------------------------------- */

START_TEST(bias_of_100_forces_and_of_minus_100_bans)
{
    float logits[20];
    for (int i = 0; i < 20; i++) {
        logits[i] = 12 - (float)i;
    }
    struct sampler_params p = neutral();
    struct sampler_bias bias[20] = {{19, 100}};
    p.bias = bias;
    p.n_bias = 1;
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(pick_id(&p, logits, 20, i), 19);
    }
    bias[0] = (struct sampler_bias){0, -100};
    ck_assert_uint_eq(ids_drawn(&p, logits, 20, 500) & 1, 0);
    p.temperature = 0;
    ck_assert_int_eq(pick_id(&p, logits, 20, 0), 1);
    bias[0] = (struct sampler_bias){0, -99}; /* no ban: it is the only one with a chance */
    bias[1] = (struct sampler_bias){1, -1000};
    p.n_bias = 20;
    for (int i = 1; i < 20; i++) {
        bias[i] = (struct sampler_bias){i, i % 2 == 0 ? -100.0f : -1000.0f};
    }
    ck_assert_int_eq(pick_id(&p, logits, 20, 0), 0);
    bias[0].bias = -100;
    struct sampler_history h = {0};
    struct sampler_result r;
    ck_assert_int_eq(pick_with(&p, logits, 20, &h, &r), ERR_INVALID_VALUE);
    p.temperature = 1;
    ck_assert_int_eq(pick_with(&p, logits, 20, &h, &r), ERR_INVALID_VALUE);
}
END_TEST

START_TEST(ends_are_banned_when_asked)
{
    static const float logits[4] = {5, 4, 3, 2};
    static const int32_t ends[] = {0, 2};
    struct sampler_params p = neutral();
    struct sampler_result r;
    p.ends = ends;
    p.n_ends = 2;
    p.temperature = 0;
    struct sampler_history h = {0};
    ck_assert_int_eq(pick_with(&p, logits, 4, &h, &r), ERR_OK);
    ck_assert_int_eq(r.id, 0);
    h.ban_ends = true;
    ck_assert_int_eq(pick_with(&p, logits, 4, &h, &r), ERR_OK);
    ck_assert_int_eq(r.id, 1);
    p.temperature = 3;
    for (int32_t i = 0; i < 300; i++) {
        h.n_tokens = h.n_prompt = i;
        ck_assert_int_eq(pick_with(&p, logits, 4, &h, &r), ERR_OK);
        ck_assert(r.id == 1 || r.id == 3);
    }
}
END_TEST

START_TEST(penalties_by_hand)
{
    /* tokens: prompt 0 0 1, generated 2 2 3 */
    static const int32_t tokens[] = {0, 0, 1, 2, 2, 3};
    struct sampler_history h = {.tokens = tokens, .n_prompt = 3, .n_tokens = 6};
    static const struct {
        float logits[5], repeat;
        int32_t last_n;
        float presence, frequency;
        int32_t expected;
    } cases[] = {
        {{4, 3, 2, 1, 0}, 1, 64, 0, 0, 0},          {{4, 3, 2, 1, 1.5f}, 3, 64, 0, 0, 4}, /* 1.33 1 0.67 0.33 1.5 */
        {{4, 3, 2, 1, 1.5f}, 3, 4, 0, 0, 0},        /* the last four are 1 2 2 3 */
        {{4, 3, 2, 1, 1.5f}, 3, 0, 0, 0, 0},        /* none */
        {{4, 3, 2, 1, 1.5f}, 3, -1, 0, 0, 4},       /* all */
        {{-1, -1, -1, -1, -2}, 2.5f, -1, 0, 0, 4},  /* negative logits go down, too: -2.5 against -2 */
        {{0, 0, 3, 3.5f, 1.8f}, 1, 64, 1.5f, 0, 3}, /* presence: 1.5 2 1.8 */
        {{0, 0, 3, 3.5f, 1.8f}, 1, 64, 0, 1, 3},    /* frequency: 1 2.5 1.8 */
        {{0, 0, 5, 3, 2.9f}, 1, 64, 0, 1.1f, 4},    /* 2.8 1.9 2.9 */
        {{9, 9.5f, 0, 0, 0}, 1, 64, 2, 2, 1},       /* the prompt is not penalised */
        {{0, 0, 1, 1, 1.5f}, 1, 64, -1, 0, 2},      /* negative penalties reward: 2 2, the lower id wins */
        {{0, 0, 1, 1, 2.5f}, 1, 64, 0, -1, 2},      /* 3 2 2.5 */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sampler_params p = neutral();
        struct sampler_result r;
        p.temperature = 0;
        p.repeat_penalty = cases[i].repeat;
        p.repeat_last_n = cases[i].last_n;
        p.presence_penalty = cases[i].presence;
        p.frequency_penalty = cases[i].frequency;
        ck_assert_int_eq(pick_with(&p, cases[i].logits, 5, &h, &r), ERR_OK);
        ck_assert_msg(r.id == cases[i].expected, "case %zu: got %d, expected %d", i, r.id, cases[i].expected);
    }
}
END_TEST

/* --- what is drawn ---------------------------------------------------------------------------------------------- */

START_TEST(a_draw_depends_on_seed_choice_and_position_alone)
{
    enum { N = 500 };
    static float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = (float)uniform(-1, 1);
    }
    struct sampler_params p = neutral();
    struct sampler_scratch s;
    struct sampler_row row = row_of(logits, N);
    ck_assert_int_eq(sampler_scratch_init(&s, N), ERR_OK);
    int n_same[3] = {0};
    for (int32_t i = 0; i < 300; i++) {
        struct sampler_history h = {.n_prompt = 0, .n_tokens = i}, later = {.n_prompt = 0, .n_tokens = i + 1};
        struct sampler_result a, b;
        p.seed = 77;
        p.choice = 1;
        p.top_k = i % 2 == 0 ? 0 : 400;
        ck_assert_int_eq(sampler_pick(&p, &row, &h, &s, &a), ERR_OK);
        ck_assert_int_eq(sampler_pick(&p, &row, &h, &s, &b), ERR_OK); /* used scratch */
        ck_assert_int_eq(a.id, b.id);
        ck_assert_int_eq(pick_with(&p, logits, N, &h, &b), ERR_OK); /* fresh scratch */
        ck_assert_int_eq(a.id, b.id);
        ck_assert_int_eq(sampler_pick(&p, &row, &later, &s, &b), ERR_OK);
        n_same[0] += a.id == b.id;
        p.choice = 2;
        ck_assert_int_eq(sampler_pick(&p, &row, &h, &s, &b), ERR_OK);
        n_same[1] += a.id == b.id;
        p.choice = 1;
        p.seed = 78;
        ck_assert_int_eq(sampler_pick(&p, &row, &h, &s, &b), ERR_OK);
        n_same[2] += a.id == b.id;
    }
    sampler_scratch_fini(&s);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_lt(n_same[i], 15); /* about 1 of 500 by chance */
    }
}
END_TEST

/* Chi-square of 40000 draws against the distribution worked out by hand. */
START_TEST(tokens_come_up_as_often_as_they_should)
{
    enum { N = 30, N_DRAWS = 40000 };
    static const struct {
        float temperature, top_p, min_p, typical_p;
        int32_t top_k;
        double limit; /* of chi-square: p below 1e-6 beyond it for the degrees left */
    } cases[] = {{1, 1, 0, 1, 0, 90},
                 {0.6f, 1, 0, 1, 0, 90},
                 {1.7f, 1, 0, 1, 12, 60},
                 {1, 0.9f, 0, 1, 0, 90},
                 {0.8f, 1, 0.05f, 1, 0, 90}};
    float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = (float)(((i * 7) % N) * -0.12);
    }
    struct sampler_params p = neutral();
    p.seed = 20261121;
    p.temperature = cases[_i].temperature;
    p.top_p = cases[_i].top_p;
    p.min_p = cases[_i].min_p;
    p.top_k = cases[_i].top_k;
    struct plain c[N];
    int count[N] = {0}, n_kept;
    for (int i = 0; i < N; i++) {
        c[i] = (struct plain){.id = i, .logit = logits[i]};
    }
    n_kept = plain_truncate(&p, c, N);
    ck_assert_int_gt(n_kept, 5);
    struct sampler_scratch s;
    struct sampler_row row = row_of(logits, N);
    ck_assert_int_eq(sampler_scratch_init(&s, N), ERR_OK);
    for (int32_t i = 0; i < N_DRAWS; i++) {
        struct sampler_history h = {.n_tokens = i};
        struct sampler_result r;
        if (sampler_pick(&p, &row, &h, &s, &r) != ERR_OK) {
            ck_abort_msg("draw %d failed", i);
        }
        count[r.id]++;
    }
    sampler_scratch_fini(&s);
    double total = 0, chi2 = 0;
    int n_seen = 0;
    for (int i = 0; i < n_kept; i++) {
        total += exp(c[i].logit / p.temperature);
    }
    for (int i = 0; i < n_kept; i++) {
        double expected = N_DRAWS * exp(c[i].logit / p.temperature) / total;
        chi2 += (count[c[i].id] - expected) * (count[c[i].id] - expected) / expected;
        n_seen += count[c[i].id];
    }
    ck_assert_int_eq(n_seen, N_DRAWS);
    ck_assert_msg(chi2 < cases[_i].limit && chi2 > 1, "chi-square %g of %d tokens", chi2, n_kept);
}
END_TEST

/* --- log-probabilities
 * ------------------------------------------------------------------------------------------------ */

START_TEST(log_probabilities_are_the_models_own)
{
    enum { N = 1000 };
    static float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = (float)uniform(-12, 12);
    }
    logits[400] = logits[401] = logits[99] = 20; /* ties: lower ids first */
    logits[7] = -INFINITY;
    long double sum = 0;
    for (int i = 0; i < N; i++) {
        sum += expl((long double)logits[i]);
    }
    static const int32_t tokens[] = {400, 401, 99};
    struct sampler_history h = {.tokens = tokens, .n_prompt = 1, .n_tokens = 3};
    struct sampler_params p = neutral();
    p.temperature = 3; /* neither temperature nor penalties nor truncation show in log-probabilities */
    p.repeat_penalty = 2;
    p.top_k = 50;
    p.n_top = SAMPLER_MAX_TOP;
    struct sampler_result r;
    ck_assert_int_eq(pick_with(&p, logits, N, &h, &r), ERR_OK);
    ck_assert(fabsl(r.logprob - (logits[r.id] - logl(sum))) < 1e-5L);
    ck_assert_int_eq(r.n_top, SAMPLER_MAX_TOP);
    ck_assert(r.top[0].id == 99 && r.top[1].id == 400 && r.top[2].id == 401);
    bool is_used[N] = {false};
    for (int i = 0; i < r.n_top; i++) {
        ck_assert(fabsl(r.top[i].logprob - (logits[r.top[i].id] - logl(sum))) < 1e-5L);
        ck_assert(i == 0 || r.top[i].logprob <= r.top[i - 1].logprob);
        ck_assert(!is_used[r.top[i].id]);
        is_used[r.top[i].id] = true;
    }
    for (int i = 0; i < N; i++) {
        ck_assert(is_used[i] || logits[i] <= logits[r.top[SAMPLER_MAX_TOP - 1].id]);
    }
    p.n_top = 0;
    ck_assert_int_eq(pick_with(&p, logits, N, &h, &r), ERR_OK);
    ck_assert(r.n_top == 0 && isfinite(r.logprob));
    struct sampler_row row = row_of(logits, N);
    struct sampler_scratch scratch;
    ck_assert_int_eq(sampler_scratch_init(&scratch, N), ERR_OK);
    sampler_logprobs(&row, 7, 2, &scratch, &r);
    ck_assert(r.id == 7 && r.logprob == -INFINITY && r.n_top == 2 && r.top[0].id == 99);
    row = row_of(logits, 9); /* fewer tokens than alternatives wanted, and one that cannot be */
    sampler_logprobs(&row, 0, SAMPLER_MAX_TOP, &scratch, &r);
    ck_assert_int_eq(r.n_top, 8);
    sampler_scratch_fini(&scratch);
}
END_TEST

START_TEST(failed_allocations_leave_nothing)
{
    size_t live = mem_live();
    struct sampler_scratch s = {0};
    for (long n = 0; n < 6; n++) {
        mem_fail_at(n);
        ck_assert_int_eq(sampler_scratch_init(&s, 100), ERR_NOMEM);
        mem_fail_at(-1);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_ptr_null(s.logits);
    }
}
END_TEST

/* With a mask the pick is that of a row in which all other tokens are -inf, whatever else is asked for. */
START_TEST(masks_are_rows_without_the_others)
{
    enum { N = 3000 };
    static float logits[N], masked[N];
    static uint64_t allowed[(N + 63) / 64];
    struct sampler_scratch scratch;
    uint64_t state = 11;
    ck_assert_int_eq(sampler_scratch_init(&scratch, N), ERR_OK);
    for (int turn = 0; turn < 400; turn++) {
        static const uint64_t share[] = {1, 2, 50, 99, 100};
        int32_t tokens[4] = {1, 2, 3, (int32_t)(turn % N)};
        struct sampler_history h = {.tokens = tokens, .n_prompt = 2, .n_tokens = 4, .allowed = allowed};
        struct sampler_params p = neutral();
        p.temperature = turn % 4 == 0 ? 0 : 0.7f;
        p.top_k = turn % 3 == 0 ? 20 : 0;
        p.top_p = turn % 5 == 0 ? 0.9f : 1;
        p.min_p = turn % 7 == 0 ? 0.05f : 0;
        p.repeat_penalty = turn % 2 == 0 ? 1 : 1.2f;
        p.seed = (uint64_t)turn;
        memset(allowed, 0, sizeof allowed);
        for (int32_t i = 0; i < N; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            logits[i] = (float)((state >> 40) % 2000) / 100 - 10;
            bool is = (state >> 20) % 100 < share[turn % 5] || i == 77;
            allowed[i / 64] |= (uint64_t)is << i % 64;
        }
        struct sampler_row row = row_of(logits, N);
        if (turn % 5 == 3) { /* all but the best and those beside it */
            memset(allowed, 0xff, sizeof allowed);
            allowed[N / 64] = ((uint64_t)1 << N % 64) - 1;
            allowed[row.argmax / 64] = row.argmax / 64 == 77 / 64 ? (uint64_t)1 << 77 % 64 : 0;
        }
        for (int32_t i = 0; i < N; i++) {
            masked[i] = (allowed[i / 64] >> i % 64 & 1) != 0 ? logits[i] : -INFINITY;
        }
        struct sampler_row other = row_of(masked, N);
        struct sampler_result found, expected;
        p.is_guided = true;
        ck_assert_int_eq(sampler_wants(&p, N, false), SAMPLER_ALL_LOGITS);
        ck_assert_int_eq(sampler_pick(&p, &row, &h, &scratch, &found), ERR_OK);
        ck_assert((allowed[found.id / 64] >> found.id % 64 & 1) != 0);
        p.is_guided = false;
        h.allowed = NULL;
        ck_assert_int_eq(sampler_pick(&p, &other, &h, &scratch, &expected), ERR_OK);
        ck_assert_msg(found.id == expected.id, "turn %d: %d, not %d", turn, found.id, expected.id);
    }
    struct sampler_params p = neutral();
    struct sampler_row row = row_of(logits, N);
    struct sampler_result r;
    struct sampler_history h = {.allowed = allowed};
    memset(allowed, 0, sizeof allowed);
    p.is_guided = true;
    ck_assert_int_eq(sampler_pick(&p, &row, &h, &scratch, &r), ERR_INVALID_VALUE);
    sampler_scratch_fini(&scratch);
}
END_TEST

/* Logits, which tokens may come, and what share each of these then has: that of the model among them alone. */
enum { MASK_VOCAB = 90, MASK_DRAWS = 40000 };

static void masked_row(float *logits, uint64_t *allowed, double *shares)
{
    double total = 0;
    for (int i = 0; i < MASK_VOCAB; i++) {
        bool may_come = i % 7 == 3; /* 13 of them, the best among all is not one */
        logits[i] = (float)(((i * 37) % MASK_VOCAB) * -0.05);
        allowed[i / 64] |= (uint64_t)may_come << i % 64;
        shares[i] = may_come ? exp((double)logits[i]) : 0;
        total += shares[i];
    }
    for (int i = 0; i < MASK_VOCAB; i++) {
        shares[i] /= total;
    }
}

/* A mask is the same distribution among what it leaves, and log-probabilities are the model's, as if there were none. */
START_TEST(a_mask_changes_what_is_drawn_and_no_log_probability)
{
    float logits[MASK_VOCAB];
    uint64_t allowed[2] = {0};
    double shares[MASK_VOCAB], chi2 = 0;
    int count[MASK_VOCAB] = {0};
    struct sampler_scratch s;
    masked_row(logits, allowed, shares);
    struct sampler_row row = row_of(logits, MASK_VOCAB);
    struct sampler_params p = neutral();
    struct sampler_result free_one, r;
    p.n_top = 20;
    ck_assert_int_eq(sampler_scratch_init(&s, MASK_VOCAB), ERR_OK);
    ck_assert_int_eq(sampler_pick(&p, &row, &(struct sampler_history){0}, &s, &free_one), ERR_OK);
    ck_assert(shares[free_one.top[0].id] == 0);
    p.is_guided = true;
    for (int32_t i = 0; i < MASK_DRAWS; i++) {
        struct sampler_history h = {.n_tokens = i, .allowed = allowed};
        enum err err = sampler_pick(&p, &row, &h, &s, &r);
        float expected = logits[r.id] - row.logsumexp;
        if (err != ERR_OK || memcmp(&r.logprob, &expected, sizeof expected) != 0 || r.n_top != free_one.n_top ||
            memcmp(r.top, free_one.top, sizeof r.top) != 0) {
            ck_abort_msg("draw %d: %s, token %d has %g, expected %g", i, err_code(err), r.id, (double)r.logprob,
                         (double)expected);
        }
        count[r.id]++;
    }
    for (int i = 0; i < MASK_VOCAB; i++) {
        double expected = MASK_DRAWS * shares[i];
        ck_assert(count[i] == 0 || expected > 0);
        chi2 += expected > 0 ? (count[i] - expected) * (count[i] - expected) / expected : 0;
    }
    ck_assert_msg(chi2 < 60 && chi2 > 1, "chi-square %g of 13 tokens", chi2); /* p below 1e-6 beyond it */
    p.tells_drawn = true; /* who asks for them has the masked ones */
    ck_assert_int_eq(sampler_pick(&p, &row, &(struct sampler_history){.allowed = allowed}, &s, &r), ERR_OK);
    ck_assert_int_eq(r.n_top, 13);
    ck_assert(fabs((double)r.logprob - shares[r.id]) < 1e-6);
    for (int32_t i = 0; i < r.n_top; i++) {
        ck_assert(fabs((double)r.top[i].logprob - shares[r.top[i].id]) < 1e-6);
    }
    sampler_scratch_fini(&s);
}
END_TEST

Suite *sampler_suite(void)
{
    Suite *s = suite_create("sampler");
    TCase *c = tcase_create("sampler");
    tcase_add_loop_test(c, every_mix_of_stages_agrees_with_the_plain_sampler, 0, 2);
    tcase_add_test(c, greedy_takes_the_lowest_of_equals);
    tcase_add_test(c, edges_of_each_stage);
    tcase_add_test(c, minus_infinity_never_comes_up);
    tcase_add_test(c, rows_that_are_not_finite_are_errors);
    tcase_add_test(c, bias_of_100_forces_and_of_minus_100_bans);
    tcase_add_test(c, ends_are_banned_when_asked);
    tcase_add_test(c, penalties_by_hand);
    tcase_add_test(c, a_draw_depends_on_seed_choice_and_position_alone);
    tcase_add_loop_test(c, tokens_come_up_as_often_as_they_should, 0, 5);
    tcase_add_test(c, log_probabilities_are_the_models_own);
    tcase_add_test(c, failed_allocations_leave_nothing);
    tcase_add_test(c, masks_are_rows_without_the_others);
    tcase_add_test(c, a_mask_changes_what_is_drawn_and_no_log_probability);
    suite_add_tcase(s, c);
    return s;
}
