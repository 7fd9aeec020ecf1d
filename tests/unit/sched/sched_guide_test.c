/* Sequences with a guide: what must come comes, the rest is as it was, alone and among others, with drafts and without, sent back
 * and come again; a grammar goes before it. */
#include "engine/base/mem.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <math.h>
#include <stdatomic.h>

Suite *sched_guide_suite(void);

enum { MOST = 12, MAX_NEW = 120, EVERY = 7, FORCED = 3 };

/* After every EVERY tokens FORCED that say where they are. */
struct counter {
    int32_t n, first;
};

static int32_t next(const void *state)
{
    const struct counter *c = state;
    return c->n % (EVERY + FORCED) >= EVERY ? c->first + c->n % FORCED : -1;
}

static void take(void *state, int32_t id)
{
    struct counter *c = state;
    int32_t must = next(state);
    ck_assert(must == -1 || must == id);
    c->n++;
}

static atomic_int n_ended;

static void end(void *state)
{
    const struct counter *c = state;
    ck_assert_int_eq(c->n, MAX_NEW);
    atomic_fetch_add(&n_ended, 1);
}

static void run(struct rig_limits limits, bool at_once, struct rig_output *out)
{
    atomic_store(&n_ended, 0);
    static int32_t tokens[MOST][256];
    struct rig r = rig_open(limits);
    struct sched_seq *seqs[MOST];
    for (int32_t i = 0; i < MOST; i++) {
        struct counter c = {.first = i}; /* which need not outlive the call */
        const struct sched_guide guide = {.next = next, .take = take, .fini = end, .state = &c, .n_bytes = sizeof c};
        rig_prompt(tokens[i], 40 + i, (uint64_t)i % 3);
        struct sched_request q = rig_request(tokens[i], 40 + i, MAX_NEW);
        q.guide = &guide;
        q.sampling.temperature = i % 3 == 0 ? 0 : 0.9f;
        q.sampling.top_k = i % 5 == 0 ? 4 : 0;
        q.sampling.seed = (uint64_t)i;
        q.sampling.n_top = i % 4 == 0 ? 2 : -1;
        seqs[i] = rig_submit(&r, &q);
        if (!at_once) {
            rig_collect(&seqs[i], &out[i]);
        }
    }
    for (int32_t i = 0; i < MOST; i++) {
        if (at_once) {
            rig_collect(&seqs[i], &out[i]);
        }
        ck_assert_int_eq(out[i].n, MAX_NEW);
        for (int32_t k = 0; k < MAX_NEW; k++) {
            ck_assert(k % (EVERY + FORCED) < EVERY || out[i].ids[k] == i + k % FORCED);
            ck_assert(i % 4 != 0 || isfinite(out[i].logprobs[k])); /* of forced tokens, too */
        }
    }
    rig_close(&r);
    ck_assert_int_eq(atomic_load(&n_ended), MOST); /* one for each copy of the state */
}

START_TEST(what_must_come_comes)
{
    static struct rig_output alone[MOST], other[MOST];
    run((struct rig_limits){.max_seqs = 16}, false, alone);
    const struct rig_limits all[] = {{.max_seqs = 16},
                                     {.max_seqs = 16, .draft_max = 15, .n_remembered = 1},
                                     {.max_seqs = 3, .n_pages = 20, .max_rows = 24}};
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        for (int at_once = 0; at_once < 2 && all[k].n_remembered == 0; at_once++) {
            run(all[k], at_once != 0, other);
            for (int i = 0; i < MOST; i++) {
                rig_compare(&other[i], &alone[i], "with a guide");
            }
        }
    }
    run(all[1], false, alone); /* the fake back end repeats itself there: another model */
    run((struct rig_limits){.max_seqs = 16, .n_remembered = 1}, false, other);
    for (int i = 0; i < MOST; i++) {
        rig_compare(&other[i], &alone[i], "with a guide and drafts");
    }
}
END_TEST

Suite *sched_guide_suite(void)
{
    Suite *s = suite_create("sched_guide");
    TCase *t = tcase_create("sched_guide");
    tcase_add_test(t, what_must_come_comes);
    suite_add_tcase(s, t);
    return s;
}
