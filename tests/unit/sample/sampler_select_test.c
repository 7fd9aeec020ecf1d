/* Selection from large rows: whatever is found without sorting must be what sorting all would give, element by element
 * and, for the chains that truncate, token by token. The plain chain here sorts everything and adds in double in the
 * order that docs/internals/sampling.md states, so results must be equal, not near. */
#include "engine/sample/sampler_internal.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *sampler_select_suite(void);

enum { LARGE = 262144 };

static const int32_t sizes[] = {1, 2, 15, 16, 17, 1000, 16384, 16385, 49152, 152064, LARGE};

/* Returns how many sizes a shape is tested with. Most time is for the two largest: each fourth shape has both, another one
 * the smaller. */
static size_t n_sizes(int shape) { return ARRAY_LEN(sizes) - (size_t)(shape % 4 == 0 ? 0 : shape % 2 == 0 ? 1 : 2); }

static uint64_t draws;
static double uniform(double from, double to) { return from + (to - from) * rng_uniform(271828, 0, draws++); }

/* --- rows ------------------------------------------------------------------------------------------------------- */

enum shape {
    PEAKED,
    FLAT,
    ALL_EQUAL,
    TWO_VALUES,
    ASCENDING,
    DESCENDING,
    MOSTLY_BANNED,
    FEW_VALUES,
    HUGE_VALUES,
    TINY_VALUES,
    ONE_BLOCK,
    SHAPES
};

static float element(enum shape shape, int32_t i, int32_t n)
{
    switch (shape) {
    case PEAKED:
        return (float)(uniform(-9, -3) + uniform(-3, 3) + (uniform(0, 1) < 60.0 / n ? uniform(5, 14) : 0));
    case FLAT:
        return (float)(2 * (uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1)));
    case ALL_EQUAL:
        return -3.25f;
    case TWO_VALUES:
        return i % 3 == 0 ? 1.0f : 0.5f;
    case ASCENDING:
        return (float)i * 1e-4f;
    case DESCENDING:
        return (float)i * -1e-4f;
    case MOSTLY_BANNED:
        return i % 997 == 3 || i == 0 ? (float)uniform(-2, 2) : -INFINITY;
    case FEW_VALUES: /* ties at every border; both zeros among them */
        return (float)(int)uniform(-6, 6) * (i % 2 == 0 ? 0.5f : -0.5f);
    case HUGE_VALUES:
        return uniform(0, 1) < 0.01 ? (float)uniform(-3e38, 3e38) : (float)uniform(-1, 1);
    case TINY_VALUES:
        return (float)uniform(-1, 1) * 1e-42f;
    default: /* the best ones stand together */
        return i >= n / 2 && i < n / 2 + 300 ? (float)uniform(4, 6) : (float)uniform(-6, -4);
    }
}

static float logits[LARGE];
static struct candidate sorted[LARGE], got[LARGE], spare[LARGE];
static int32_t n_sorted; /* candidates that are not banned */

static int by_quality(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

static void sort_all(const float *row, int32_t n)
{
    n_sorted = 0;
    for (int32_t i = 0; i < n; i++) {
        if (row[i] != -INFINITY) {
            sorted[n_sorted++] = (struct candidate){i, row[i]};
        }
    }
    qsort(sorted, (size_t)n_sorted, sizeof *sorted, by_quality);
}

static struct sampler_row row_of(int32_t n)
{
    struct sampler_row row = {.logits = logits, .n_vocab = n, .max = sorted[0].logit, .argmax = sorted[0].id};
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - row.max);
    }
    row.logsumexp = (float)(log(sum) + row.max);
    return row;
}

static void fill(enum shape shape, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        logits[i] = element(shape, i, n);
    }
    sort_all(logits, n);
}

static bool same(const struct candidate *a, const struct candidate *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (a[i].id != b[i].id || a[i].logit != b[i].logit) {
            return false;
        }
    }
    return true;
}

/* --- selection -------------------------------------------------------------------------------------------------- */

START_TEST(the_k_best_are_those_of_a_full_sort)
{
    static const int32_t counts[] = {1, 2, 5, 20, 40, 64, 100, 700, 1000, 1024, 1025, 5000, LARGE};
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    for (size_t i = 0; i < n_sizes(_i); i++) {
        fill((enum shape)_i, sizes[i]);
        struct sampler_row row = row_of(sizes[i]);
        struct sampler_view v;
        sampler_view_init(&v, &row, &s);
        sampler_view_find_max(&v);
        for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
            int32_t n = sampler_view_best(&v, counts[k], got, spare), want = MIN_OF(counts[k], n_sorted);
            if (n != want || !same(got, sorted, n)) {
                ck_abort_msg("shape %d, %d logits: the %d best differ, %d found", _i, sizes[i], counts[k], n);
            }
        }
        ck_assert_int_eq(sampler_view_argmax(&v), sorted[0].id);
    }
    sampler_scratch_fini(&s);
}
END_TEST

START_TEST(changed_logits_are_seen_and_the_row_is_left_alone)
{
    static float before[LARGE], changed[LARGE];
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    for (size_t i = 0; i < n_sizes(_i); i++) {
        int32_t n = sizes[i];
        fill((enum shape)_i, n);
        memcpy(before, logits, (size_t)n * sizeof *before);
        memcpy(changed, logits, (size_t)n * sizeof *changed);
        struct sampler_row row = row_of(n);
        struct sampler_view v;
        sampler_view_init(&v, &row, &s);
        sampler_view_find_max(&v);
        for (int k = 0; k < 40; k++) {
            int32_t id = k < 5 ? sorted[MIN_OF(k, n_sorted - 1)].id : (int32_t)uniform(0, n);
            float to = k % 4 == 0 ? -INFINITY : (float)uniform(-8, 8);
            *sampler_view_change(&v, id) = to;
            changed[id] = to;
        }
        sampler_view_settle(&v);
        sort_all(changed, n);
        ck_assert_int_eq(sampler_view_best(&v, 50, got, spare), MIN_OF(50, n_sorted));
        ck_assert_msg(same(got, sorted, MIN_OF(50, n_sorted)), "shape %d, %d logits", _i, n);
        ck_assert(n_sorted == 0 || sampler_view_argmax(&v) == sorted[0].id);
        ck_assert_int_eq(memcmp(before, logits, (size_t)n * sizeof *before), 0);
    }
    sampler_scratch_fini(&s);
}
END_TEST

/* --- whole chains ----------------------------------------------------------------------------------------------- */

static double weight(int32_t i) { return exp((double)sorted[i].logit - sorted[0].logit); }

/* Candidates from .. to - 1 of the sorted ones. */
struct window {
    int32_t from, to;
};

/* What top-k and typical-p keep: the nearest to the entropy, of equals the likelier one, grown to both sides. */
static struct window plain_typical(const struct sampler_params *p)
{
    static double distance[LARGE];
    int32_t n = p->top_k > 0 ? MIN_OF(p->top_k, n_sorted) : n_sorted, nearest = 0;
    double total = 0, entropy = 0;
    for (int32_t i = 0; i < n; i++) {
        total += weight(i);
    }
    double log_total = log(total) + sorted[0].logit;
    for (int32_t i = 0; i < n; i++) {
        double lp = sorted[i].logit - log_total;
        entropy -= exp(lp) * lp;
    }
    for (int32_t i = 0; i < n; i++) {
        distance[i] = fabs(log_total - sorted[i].logit - entropy);
        nearest = distance[i] < distance[nearest] ? i : nearest;
    }
    struct window w = {nearest, nearest + 1};
    double sum = exp(sorted[nearest].logit - log_total);
    while (sum < p->typical_p && (w.from > 0 || w.to < n)) {
        bool is_left = w.to == n || (w.from > 0 && distance[w.from - 1] <= distance[w.to]);
        sum += exp(sorted[is_left ? --w.from : w.to++].logit - log_total);
    }
    return w;
}

/* What all truncating stages keep; top-p's mass is added by id where neither top-k nor typical-p came first. */
static struct window plain_kept(const struct sampler_params *p, int32_t n)
{
    struct window w = {0, p->top_k > 0 ? MIN_OF(p->top_k, n_sorted) : n_sorted};
    if (p->typical_p < 1) {
        w = plain_typical(p);
    }
    double total = 0, sum = 0;
    bool is_whole = p->top_k <= 0 && p->typical_p >= 1;
    for (int32_t i = is_whole ? 0 : w.from; i < (is_whole ? n : w.to); i++) {
        total += is_whole ? exp((double)logits[i] - sorted[0].logit) : weight(i);
    }
    for (int32_t i = w.from; i < w.to && p->top_p < 1; i++) {
        sum += weight(i);
        if (sum >= p->top_p * total) {
            w.to = i + 1;
        }
    }
    double least = sorted[w.from].logit + log((double)p->min_p);
    while (p->min_p > 0 && w.to > w.from + 1 && sorted[w.to - 1].logit < least) {
        w.to--;
    }
    return w;
}

static int32_t plain_pick(const struct sampler_params *p, int32_t n, double u)
{
    struct window w = plain_kept(p, n);
    double total = 0, sum = 0, inverse = 1.0 / p->temperature;
    for (int32_t i = w.from; i < w.to; i++) {
        total += exp(((double)sorted[i].logit - sorted[w.from].logit) * inverse);
    }
    for (int32_t i = w.from; i < w.to; i++) {
        sum += exp(((double)sorted[i].logit - sorted[w.from].logit) * inverse);
        if (sum > u * total) {
            return sorted[i].id;
        }
    }
    return sorted[w.to - 1].id;
}

START_TEST(truncating_chains_pick_what_a_full_sort_picks)
{
    static const struct {
        int32_t top_k;
        float top_p, min_p, temperature, typical_p; /* typical_p 0: off */
    } chains[] = {
        {0, 0.95f, 0, 1, 0},        {0, 0.5f, 0, 0.7f, 0},       {0, 0.999999f, 0, 1.3f, 0}, {0, 0, 0, 1, 0},
        {0, 1, 0.05f, 1, 0},        {0, 1, 1e-4f, 0.8f, 0},      {0, 1, 1e-30f, 2, 0},       {0, 0.9f, 0.02f, 1, 0},
        {0, 0.99f, 1e-6f, 1, 0},    {40, 0.95f, 0.05f, 0.8f, 0}, {64, 0.95f, 0, 1, 0},       {3000, 0.9f, 0, 1, 0},
        {0, 1, 0, 1, 0.95f},        {0, 1, 0, 0.8f, 0.3f},       {0, 0.9f, 0, 1.4f, 0.7f},   {0, 1, 0.2f, 1, 0.999f},
        {0, 0.8f, 0.01f, 1, 0.02f}, {0, 0.7f, 0, 0.15f, 0},      {0, 0.95f, 0, 0.3f, 0},     {2000, 1, 0, 1, 0.5f},
    };
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    for (size_t i = 5; i < n_sizes(_i); i += 2) {
        fill((enum shape)_i, sizes[i]);
        struct sampler_row row = row_of(sizes[i]);
        for (size_t k = 0; k < ARRAY_LEN(chains); k++) {
            struct sampler_params p = {.temperature = chains[k].temperature,
                                       .top_k = chains[k].top_k,
                                       .top_p = chains[k].top_p,
                                       .min_p = chains[k].min_p,
                                       .typical_p = chains[k].typical_p > 0 ? chains[k].typical_p : 1,
                                       .repeat_penalty = 1,
                                       .n_top = -1,
                                       .seed = k};
            for (int32_t at = 0; at < 3; at++) {
                struct sampler_history h = {.n_prompt = at, .n_tokens = at};
                struct sampler_result r;
                ck_assert_int_eq(sampler_pick(&p, &row, &h, &s, &r), ERR_OK);
                int32_t want = plain_pick(&p, sizes[i], rng_uniform(p.seed, 0, (uint64_t)at));
                if (r.id != want) {
                    ck_abort_msg("shape %d, %d logits, chain %zu: got %d, expected %d", _i, sizes[i], k, r.id, want);
                }
            }
        }
    }
    sampler_scratch_fini(&s);
}
END_TEST

/* Flat rows are not sorted: what the bins tell is the token, and they tell it nearly always. */
START_TEST(bins_tell_the_token_of_flat_rows)
{
    static const float chains[][4] = {/* top-p, min-p, typical-p, temperature */
                                      {0.9f, 0, 1, 1},
                                      {0.6f, 0, 1, 0.7f},
                                      {1, 0.01f, 1, 1.5f},
                                      {1, 0, 0.8f, 1},
                                      {0.9f, 0.001f, 0.5f, 1.2f}};
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    fill(FLAT, 49152);
    struct sampler_row row = row_of(49152);
    int n_told = 0;
    for (uint64_t i = 0; i < 60; i++) {
        const float *chain = chains[i % ARRAY_LEN(chains)];
        struct sampler_params p = {
            .top_p = chain[0], .min_p = chain[1], .typical_p = chain[2], .temperature = chain[3]};
        struct sampler_view v;
        int32_t id;
        double u = rng_uniform(i, 0, 0);
        sampler_view_init(&v, &row, &s);
        sampler_view_find_max(&v);
        const struct sampler_chain c = {.p = &p, .row = &row, .view = &v, .s = &s, .max = row.max};
        if (sampler_bins_pick(&c, u, &id)) {
            n_told++;
            ck_assert_int_eq(id, plain_pick(&p, 49152, u));
        }
    }
    ck_assert_int_ge(n_told, 58);
    sampler_scratch_fini(&s);
}
END_TEST

/* Above the floor there are k, and in the next bin below there would be more than need be. */
START_TEST(a_floor_by_bins_leaves_the_k_best)
{
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    fill(FLAT, 152064);
    struct sampler_row row = row_of(152064);
    struct sampler_view v;
    sampler_view_init(&v, &row, &s);
    for (int32_t k = 1; k < 152064; k = 3 * k + 1) {
        float floor = sampler_bins_floor(&v, row.max, k);
        ck_assert(sorted[k - 1].logit >= floor);
        ck_assert(sorted[k - 1].logit < floor + 1.1f * (float)KERN_BIN_WIDTH);
    }
    sampler_scratch_fini(&s);
}
END_TEST

/* In the order of ids, within the error of the kernel's sums. */
START_TEST(temperature_alone_picks_what_adding_up_by_id_picks)
{
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    for (size_t i = 0; i < n_sizes(_i); i++) {
        fill((enum shape)_i, sizes[i]);
        struct sampler_row row = row_of(sizes[i]);
        struct sampler_params p = {.temperature = 0.5f + (float)i / 8,
                                   .top_p = 1,
                                   .typical_p = 1,
                                   .repeat_penalty = 1,
                                   .n_top = -1,
                                   .seed = i};
        double total = 0, inverse = 1.0 / p.temperature;
        for (int32_t id = 0; id < sizes[i]; id++) {
            total += exp(((double)logits[id] - row.max) * inverse);
        }
        for (int32_t at = 0; at < 20; at++) {
            struct sampler_history h = {.n_prompt = at, .n_tokens = at};
            struct sampler_result r;
            ck_assert_int_eq(sampler_pick(&p, &row, &h, &s, &r), ERR_OK);
            ck_assert_msg(r.id >= 0 && r.id < sizes[i] && logits[r.id] != -INFINITY, "shape %d: %d", _i, r.id);
            double wanted = rng_uniform(p.seed, 0, (uint64_t)at), before = 0, after;
            for (int32_t id = 0; id < r.id; id++) {
                before += exp(((double)logits[id] - row.max) * inverse) / total;
            }
            after = before + exp(((double)logits[r.id] - row.max) * inverse) / total;
            if (wanted < before - 2e-5 || wanted > after + 2e-5) {
                ck_abort_msg("shape %d, %d logits: %d holds %.9g to %.9g, not %.9g", _i, sizes[i], r.id, before, after,
                             wanted);
            }
        }
    }
    sampler_scratch_fini(&s);
}
END_TEST

Suite *sampler_select_suite(void)
{
    Suite *s = suite_create("sampler_select");
    TCase *c = tcase_create("sampler_select");
    tcase_add_loop_test(c, the_k_best_are_those_of_a_full_sort, 0, SHAPES);
    tcase_add_loop_test(c, changed_logits_are_seen_and_the_row_is_left_alone, 0, SHAPES);
    tcase_add_loop_test(c, truncating_chains_pick_what_a_full_sort_picks, 0, SHAPES);
    tcase_add_test(c, bins_tell_the_token_of_flat_rows);
    tcase_add_test(c, a_floor_by_bins_leaves_the_k_best);
    tcase_add_loop_test(c, temperature_alone_picks_what_adding_up_by_id_picks, 0, SHAPES);
    suite_add_tcase(s, c);
    return s;
}
