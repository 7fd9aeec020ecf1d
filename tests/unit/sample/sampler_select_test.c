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
static struct sampler_candidate sorted[LARGE], got[LARGE], spare[LARGE];
static int32_t n_sorted; /* candidates that are not banned */

static int by_quality(const void *a, const void *b)
{
    const struct sampler_candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

static void sort_all(const float *row, int32_t n)
{
    n_sorted = 0;
    for (int32_t i = 0; i < n; i++) {
        if (row[i] != -INFINITY) {
            sorted[n_sorted++] = (struct sampler_candidate){i, row[i]};
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

static bool same(const struct sampler_candidate *a, const struct sampler_candidate *b, int32_t n)
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
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
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
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
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

/* How many of the sorted candidates top-k, top-p and min-p keep; top-p's mass is added by id where no top-k came first.
 */
static int32_t plain_kept(const struct sampler_params *p, int32_t n)
{
    int32_t kept = p->top_k > 0 ? MIN_OF(p->top_k, n_sorted) : n_sorted;
    double total = 0, sum = 0;
    for (int32_t i = 0; i < (p->top_k > 0 ? kept : n); i++) {
        total += p->top_k > 0 ? weight(i) : exp((double)logits[i] - sorted[0].logit);
    }
    for (int32_t i = 0; i < kept && p->top_p < 1; i++) {
        sum += weight(i);
        if (sum >= p->top_p * total) {
            kept = i + 1;
        }
    }
    double least = sorted[0].logit + log((double)p->min_p);
    while (p->min_p > 0 && kept > 1 && sorted[kept - 1].logit < least) {
        kept--;
    }
    return kept;
}

static int32_t plain_pick(const struct sampler_params *p, int32_t n, double u)
{
    int32_t kept = plain_kept(p, n);
    double total = 0, sum = 0, inverse = 1.0 / p->temperature;
    for (int32_t i = 0; i < kept; i++) {
        total += exp(((double)sorted[i].logit - sorted[0].logit) * inverse);
    }
    for (int32_t i = 0; i < kept; i++) {
        sum += exp(((double)sorted[i].logit - sorted[0].logit) * inverse);
        if (sum > u * total) {
            return sorted[i].id;
        }
    }
    return sorted[kept - 1].id;
}

START_TEST(truncating_chains_pick_what_a_full_sort_picks)
{
    static const struct {
        int32_t top_k;
        float top_p, min_p, temperature;
    } chains[] = {
        {0, 0.95f, 0, 1},     {0, 0.5f, 0, 0.7f},       {0, 0.999999f, 0, 1.3f}, {0, 0, 0, 1},
        {0, 1, 0.05f, 1},     {0, 1, 1e-4f, 0.8f},      {0, 1, 1e-30f, 2},       {0, 0.9f, 0.02f, 1},
        {0, 0.99f, 1e-6f, 1}, {40, 0.95f, 0.05f, 0.8f}, {64, 0.95f, 0, 1},       {3000, 0.9f, 0, 1},
    };
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    for (size_t i = 5; i < ARRAY_LEN(sizes); i += 2) {
        fill((enum shape)_i, sizes[i]);
        struct sampler_row row = row_of(sizes[i]);
        for (size_t k = 0; k < ARRAY_LEN(chains); k++) {
            struct sampler_params p = {.temperature = chains[k].temperature,
                                       .top_k = chains[k].top_k,
                                       .top_p = chains[k].top_p,
                                       .min_p = chains[k].min_p,
                                       .typical_p = 1,
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

/* In the order of ids, within the error of the kernel's sums. */
START_TEST(temperature_alone_picks_what_adding_up_by_id_picks)
{
    struct sampler_scratch s;
    ck_assert_int_eq(sampler_scratch_init(&s, LARGE), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
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
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, the_k_best_are_those_of_a_full_sort, 0, SHAPES);
    tcase_add_loop_test(c, changed_logits_are_seen_and_the_row_is_left_alone, 0, SHAPES);
    tcase_add_loop_test(c, truncating_chains_pick_what_a_full_sort_picks, 0, SHAPES);
    tcase_add_loop_test(c, temperature_alone_picks_what_adding_up_by_id_picks, 0, SHAPES);
    suite_add_tcase(s, c);
    return s;
}
