/* The index against a search of the whole text, the record of guesses, and what a plan makes of costs and chances. */
#include "engine/sched/draft.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *draft_suite(void);

enum { N = 4000 };

static struct arena arena; /* of all drafts of a test */

static void setup(void) { arena_init(&arena, 0, 0, MEM_REQUEST); }
static void teardown(void) { arena_fini(&arena); }

static struct draft fresh(int32_t n_max)
{
    struct draft d;
    ck_assert_int_eq(draft_init(&d, n_max, &arena), ERR_OK);
    return d;
}

/* Random tokens below n_vocab, every third stretch copied from before. */
static void fill(int32_t *tokens, int32_t n, int32_t n_vocab, uint64_t seed)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t stretch = i / 20;
        bool is_copy = i > 100 && stretch % 3 == 0;
        int32_t from = (int32_t)(rng_uniform(seed, 1, (uint64_t)stretch) * 80);
        tokens[i] = is_copy ? tokens[i - 20 - from] : (int32_t)(rng_uniform(seed, 0, (uint64_t)i) * n_vocab);
    }
}

static int32_t match_at(const int32_t *tokens, int32_t at, int32_t n)
{
    int32_t length = 0;
    while (length < DRAFT_MAX_MATCH && length <= at && tokens[at - length] == tokens[n - 1 - length]) {
        length++;
    }
    return length;
}

/* Where a token after tokens[0..n) is best looked up among the newest places where the last two stand. */
static int32_t search(const int32_t *tokens, int32_t n, int32_t *length)
{
    int32_t source = 0, n_places = 0;
    *length = 1;
    for (int32_t at = n - 2; at > 0 && n_places < DRAFT_CANDIDATES; at--) {
        int32_t here = match_at(tokens, at, n);
        n_places += here >= 2;
        if (here > *length) {
            *length = here;
            source = at + 1;
        }
    }
    return source;
}

START_TEST(the_longest_and_newest_match_is_found)
{
    static const int32_t vocabularies[] = {2, 5, 40, 50000};
    static int32_t tokens[N];
    int n_found = 0;
    for (size_t v = 0; v < ARRAY_LEN(vocabularies); v++) {
        struct draft d = fresh(1 << 16); /* many heads: a shared one would make it look at fewer places */
        fill(tokens, N, vocabularies[v], v);
        for (int32_t n = 1; n <= N; n += n > 1000 ? 7 : 1) {
            int32_t length, source = search(tokens, n, &length);
            d.source = 0;
            draft_look(&d, tokens, n);
            if (d.source != source || (source != 0 && d.n_match != length)) {
                ck_abort_msg("%d ids, %d tokens: match of %d before %d, expected %d before %d", vocabularies[v], n,
                             d.n_match, d.source, length, source);
            }
            n_found += source != 0;
        }
    }
    ck_assert_int_gt(n_found, 2000);
}
END_TEST

START_TEST(the_index_is_the_same_in_one_go_and_in_pieces)
{
    static int32_t tokens[N];
    fill(tokens, N, 30, 9);
    struct draft a = fresh(N), b = fresh(N);
    draft_index(&a, tokens, N);
    for (int32_t n = 1; n <= N; n += 1 + n % 5) {
        draft_index(&b, tokens, n);
    }
    draft_index(&b, tokens, N);
    ck_assert_mem_eq(a.heads, b.heads, (a.mask + 1) * sizeof *a.heads);
    ck_assert_mem_eq(a.prevs + 1, b.prevs + 1, (N - 1) * sizeof *a.prevs);
}
END_TEST

/* Texts that make every chain long, and a small table. */
START_TEST(long_texts_take_linear_time)
{
    enum { LONG = 200000 };
    int32_t *tokens = mem_alloc(LONG * sizeof *tokens, MEM_GENERAL);
    for (int32_t i = 0; i < LONG; i++) {
        tokens[i] = _i == 0 ? 7 : _i == 1 ? i % 2 : i % 1000 < 500 ? 3 : (int32_t)(rng_uniform(1, 0, (uint64_t)i) * 3);
    }
    struct draft d = fresh(LONG);
    uint64_t start = clock_thread_ns();
    for (int32_t n = 1; n <= LONG; n++) {
        d.source = 0;
        draft_look(&d, tokens, n);
    }
    ck_assert_uint_lt(clock_thread_ns() - start, 5000000000u); /* a tenth of it here; each against each takes minutes */
    mem_free(tokens);
}
END_TEST

START_TEST(short_texts_and_no_index_give_no_guess)
{
    static const int32_t tokens[] = {4, 4, 4, 4};
    struct draft d = fresh(4), none = {0};
    for (int32_t n = 0; n <= 4; n++) {
        d.source = 0;
        draft_look(&d, tokens, n);
        draft_look(&none, tokens, n);
        ck_assert_int_eq(none.source, 0);
        ck_assert_int_eq(d.source, n < 3 ? 0 : n - 1);
        ck_assert_double_eq(draft_rate(&none, 0), 0);
    }
    draft_learn(&none, tokens, 4);
}
END_TEST

START_TEST(no_memory_is_an_error_that_leaves_nothing)
{
    size_t live = mem_live();
    for (int i = 0; i < 2; i++) {
        struct draft d;
        mem_fail_at(i);
        ck_assert_int_eq(draft_init(&d, 1000, &arena), ERR_NOMEM);
        mem_fail_at(-1);
        arena_fini(&arena);
        ck_assert_uint_eq(mem_live(), live);
        ck_assert_ptr_null(d.heads);
    }
}
END_TEST

/* Tokens of a text come one by one, `is_copy` of what stood there or always something else. */
static void live_through(struct draft *d, int32_t *tokens, int32_t from, int32_t to, bool is_copy)
{
    for (int32_t n = from; n < to; n++) {
        draft_look(d, tokens, n);
        tokens[n] = is_copy ? (d->source != 0 ? tokens[d->source] : n % 10)
                            : (d->source != 0 ? 10 + (tokens[d->source] + 1 + n % 3) % 10 : 10 + n % 10);
        draft_learn(d, tokens, n + 1);
    }
}

START_TEST(guesses_are_judged_although_nothing_is_drafted)
{
    static int32_t tokens[3000];
    struct draft d = fresh(3000);
    fill(tokens, 10, 10, 3);
    live_through(&d, tokens, 10, 200, true);
    ck_assert_double_gt(draft_rate(&d, 0), 0.9); /* it repeats itself for good */
    ck_assert_int_eq(d.n_match, DRAFT_MAX_MATCH);
    live_through(&d, tokens, 200, 2000, false);
    for (int32_t n = 2; n < 4; n++) { /* matches of that length were met, and never held */
        d.source = 1;
        d.n_match = n;
        ck_assert_double_lt(draft_rate(&d, 0), 0.15);
    }
    d.source = 0;
    live_through(&d, tokens, 2000, 2400, true);
    ck_assert_double_gt(draft_rate(&d, 0), 0.9); /* noticed again */
}
END_TEST

/* --- costs and plans -------------------------------------------------------------------------------------------- */

/* Those that somebody knows come first; what is found in the text goes on after them where it begins with them. */
START_TEST(forced_guesses_come_first)
{
    static const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 1, 2}; /* after 1 2 stood 3 4 5 6 7 1 2 */
    int32_t tokens[32], n = ARRAY_LEN(text);
    struct draft d = fresh(32);
    memcpy(tokens, text, sizeof text);
    draft_look(&d, tokens, n);
    ck_assert_int_eq(d.source, 2);
    ck_assert(draft_agrees(&d, tokens, n) && draft_n_forced(&d) == 0);
    double found = draft_rate(&d, 0);
    for (d.n_forced = 0; d.n_forced < 9; d.n_forced++) { /* beyond the end of the text, where it repeats itself */
        d.forced[d.n_forced] = text[2 + d.n_forced % 7];
    }
    ck_assert(draft_agrees(&d, tokens, n));
    ck_assert_double_gt(draft_rate(&d, 8), found);
    d.forced[8] = 9;
    ck_assert(!draft_agrees(&d, tokens, n));
    ck_assert(draft_token(&d, tokens, 0) == 3 && draft_token(&d, tokens, 8) == 9);
    d.n_forced = 2;
    ck_assert(draft_agrees(&d, tokens, n) && draft_token(&d, tokens, 2) == 5);
    ck_assert(draft_source_of(&d, 1) == DRAFT_FORCED && draft_source_of(&d, 2) == DRAFT_LOOKUP);
    ck_assert(draft_rate(&d, 1) > draft_rate(&d, 2));
    tokens[n++] = 3;
    draft_learn(&d, tokens, n);
    ck_assert(draft_n_forced(&d) == 1 && draft_token(&d, tokens, 0) == 4 && d.source == 3);
    double before = draft_rate(&d, 0);
    tokens[n++] = 8; /* then none is left */
    draft_learn(&d, tokens, n);
    ck_assert(draft_n_forced(&d) == 0 && d.source == 0 && !draft_agrees(&d, tokens, n));
    d.i_forced = 0;
    d.n_forced = 1;
    ck_assert_double_lt(draft_rate(&d, 0), before);
}
END_TEST

START_TEST(guesses_of_a_source_continue_those_of_another)
{
    static const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 1, 2}; /* after 1 2 stood 3 4 5 6 7 */
    int32_t tokens[32], n = ARRAY_LEN(text);
    struct draft d = fresh(32);
    memcpy(tokens, text, sizeof text);
    draft_look(&d, tokens, n);
    d.guesser = DRAFT_MODEL;
    memcpy(d.forced, (int32_t[]){3, 4}, 2 * sizeof *d.forced);
    memcpy(d.guesses, (int32_t[]){5, 6}, 2 * sizeof *d.guesses);
    d.n_forced = d.n_guesses = 2;
    ck_assert(draft_n_first(&d) == 2 &&
              draft_source_of(&d, 2) == DRAFT_LOOKUP); /* the guesses are for other positions */
    d.n_before = 2;
    ck_assert(draft_n_first(&d) == 4 && draft_agrees(&d, tokens, n));
    for (int32_t i = 0; i < 6; i++) {
        static const enum draft_source sources[] = {DRAFT_FORCED, DRAFT_FORCED, DRAFT_MODEL,
                                                    DRAFT_MODEL,  DRAFT_LOOKUP, DRAFT_LOOKUP};
        ck_assert_int_eq(draft_source_of(&d, i), sources[i]);
        tokens[n + i] = draft_token(&d, tokens, i);
    }
    ck_assert(memcmp(tokens + n, (int32_t[]){3, 4, 5, 6, 7, 1}, 6 * sizeof *tokens) == 0);
    ck_assert(draft_rate(&d, 1) == (double)d.forced_rate && draft_rate(&d, 3) == (double)d.guess_rates[1]);
    float first = d.guess_rates[0];
    draft_learn(&d, tokens, ++n);
    draft_learn(&d, tokens, ++n);
    ck_assert(draft_n_forced(&d) == 0 && draft_n_guesses(&d) == 2 && d.n_before == 0 && d.guess_rates[0] == first);
    draft_learn(&d, tokens, ++n);
    ck_assert(draft_n_guesses(&d) == 1 && d.guess_rates[0] > first && d.source == 5);
    d.guesses[1] = 9;
    ck_assert(draft_n_first(&d) == 1 && !draft_agrees(&d, tokens, n));
    d.i_forced = 0;
    d.n_forced = 2;
    d.n_before = 2;
    tokens[n++] = 8; /* not the forced token: what follows it falls */
    draft_learn(&d, tokens, n);
    ck_assert(draft_n_forced(&d) == 0 && draft_n_guesses(&d) == 0);
}
END_TEST

START_TEST(the_head_guesses_where_it_knows_better)
{
    static const int32_t text[] = {1, 2, 3, 4, 1, 2}; /* after 1 2 stood 3 4 */
    int32_t tokens[32], n = ARRAY_LEN(text);
    struct draft d = fresh(32);
    memcpy(tokens, text, sizeof text);
    ck_assert(!draft_prefers_head(&d, false) && draft_prefers_head(&d, true)); /* nothing is known */
    draft_look(&d, tokens, n);
    ck_assert(draft_prefers_head(&d, true)); /* a match of 2 comes true less often than the head's first guess */
    memcpy(d.guesses, (int32_t[]){7, 8, 9}, 3 * sizeof *d.guesses);
    d.n_guesses = 3;
    ck_assert(draft_prefers_head(&d, false) && draft_token(&d, tokens, 2) == 9);
    ck_assert(draft_n_first(&d) == 3 && !draft_agrees(&d, tokens, n));
    ck_assert(draft_source_of(&d, 0) == DRAFT_HEAD && draft_source_of(&d, 2) == DRAFT_HEAD);
    float first = d.guess_rates[0], second = d.guess_rates[1];
    tokens[n++] = 7;
    draft_learn(&d, tokens, n);
    ck_assert(d.guess_rates[0] > first && d.guess_rates[1] == second && draft_n_guesses(&d) == 2);
    tokens[n++] = 5; /* then none is left */
    draft_learn(&d, tokens, n);
    ck_assert(d.guess_rates[1] < second && draft_n_guesses(&d) == 0 && !draft_prefers_head(&d, false));
    d.i_guess = 0;
    d.forced[0] = 4;
    d.n_forced = 1;
    ck_assert(!draft_prefers_head(&d, false) && draft_token(&d, tokens, 0) == 4);
    d.n_forced = 0;
    d.source = 1;
    d.n_match = DRAFT_MAX_MATCH; /* a long match */
    ck_assert(!draft_prefers_head(&d, true) && draft_source_of(&d, 0) == DRAFT_LOOKUP);
    for (int i = 0; i < 64; i++) {
        draft_relearn(&d, .5f);
    }
    ck_assert(fabsf(d.guess_rates[0] - first) < 1e-6f && fabsf(d.guess_rates[1] - second) < 1e-6f);
}
END_TEST

START_TEST(costs_of_rows_not_seen_lie_between_those_seen)
{
    struct draft_costs c = {0};
    double ns[DRAFT_MAX + 2];
    draft_costs_get(&c, ns);
    for (int32_t n = 1; n <= DRAFT_MAX + 1; n++) {
        ck_assert_double_eq(ns[n], 0);
    }
    draft_costs_note(&c, 4, 1000);
    draft_costs_note(&c, 12, 3000);
    draft_costs_note(&c, DRAFT_MAX + 2, 1);
    draft_costs_get(&c, ns);
    ck_assert_double_eq(ns[4], 1000);
    ck_assert_double_eq(ns[8], 2000);
    ck_assert_double_eq(ns[12], 3000);
    ck_assert(ns[1] > 500 && ns[1] < 1000 && ns[16] > 3000 && ns[16] < 4000);
    for (int32_t n = 2; n <= DRAFT_MAX + 1; n++) {
        ck_assert_double_ge(ns[n], ns[n - 1]);
    }
    draft_costs_note(&c, 8, 900000); /* the machine did something else */
    draft_costs_get(&c, ns);
    ck_assert_double_le(ns[8], 3000);
    for (int i = 0; i < 600; i++) {
        draft_costs_note(&c, 4, 5000);
    }
    draft_costs_get(&c, ns); /* 12 rows were seen too long ago to believe that they take less */
    ck_assert(fabs(ns[4] - 5000) < 100 && ns[12] > 5000);
}
END_TEST

START_TEST(rows_that_pick_other_experts_cost_more)
{
    struct draft_costs c = {.experts = {.part = .5, .n_used = 8, .n_all = 128}};
    double ns[DRAFT_MAX + 2];
    draft_costs_note(&c, 1, 9000);
    draft_costs_get(&c, ns);
    /* 2 rows: 2 units and 8 of weights, half of which is read (1 - (120/128)^2) / (8/128) = 1.9375 times */
    ck_assert(fabs(ns[2] - (2 + 4 + 4 * 1.9375) * 1000) < 1e-6);
    c.experts.n_all = 8; /* all rows pick all */
    draft_costs_get(&c, ns);
    ck_assert(fabs(ns[2] - 10000) < 1e-6);
    draft_costs_note(&c, 2, 17000); /* what is measured counts */
    draft_costs_get(&c, ns);
    ck_assert_double_eq(ns[2], 17000);
}
END_TEST

static struct draft_costs costs_of(double one, double each)
{
    struct draft_costs c = {0};
    for (int32_t n = 1; n <= DRAFT_MAX + 1; n++) {
        draft_costs_note(&c, n, (uint64_t)(one + each * (n - 1)));
    }
    return c;
}

/* A draft whose guesses come true at a rate. */
static struct draft at_rate(float rate)
{
    struct draft d = {.source = 1, .n_match = 2};
    for (int i = 0; i < DRAFT_LEVELS; i++) {
        d.rates[i] = rate;
    }
    return d;
}

static int32_t plan_one(const struct draft_costs *c, float rate, int32_t n_max, int32_t max_rows, uint64_t max_ns)
{
    struct draft d = at_rate(rate);
    struct draft_offer o = {.draft = &d, .n_max = n_max};
    draft_plan(c, &o, 1, max_rows, max_ns);
    return o.n;
}

START_TEST(drafts_are_as_long_as_pays)
{
    struct draft_costs flat = costs_of(1e6, 0), bound = costs_of(1e6, 1e6), mixed = costs_of(1e6, 1e5), unknown = {0};
    ck_assert_int_eq(plan_one(&flat, .9f, 15, 16, 0), 15);
    ck_assert_int_eq(plan_one(&flat, .01f, 15, 16, 0), 0); /* below the least gain */
    ck_assert_int_eq(plan_one(&flat, 0, 15, 16, 0), 0);
    ck_assert_int_eq(plan_one(&bound, .95f, 15, 16, 0), 0); /* a row costs a step, and is wasted sometimes */
    ck_assert_int_eq(plan_one(&unknown, .95f, 15, 16, 0), 0);
    int32_t before = 0;
    for (int i = 1; i <= 19; i++) {
        int32_t n = plan_one(&mixed, .05f * (float)i, DRAFT_MAX, DRAFT_MAX + 1, 0);
        ck_assert_int_ge(n, before);
        before = n;
    }
    ck_assert_int_ge(before, 8);
    ck_assert_int_eq(plan_one(&mixed, .1f, 15, 16, 0), 0);
    /* By hand: (1 + .8 + .64 + ...) / (1 + .1 k) is most for k = 6: 2.470; 5 gives 2.459, 7 2.448. */
    ck_assert_int_eq(plan_one(&mixed, .8f, 15, 16, 0), 6);
}
END_TEST

static int32_t guesses_at(const struct draft_costs *c, const struct draft_costs *head, int32_t n, float rate)
{
    float rates[DRAFT_GUESSES];
    for (int i = 0; i < DRAFT_GUESSES; i++) {
        rates[i] = rate;
    }
    return draft_plan_guesses(c, head, n, rates);
}

START_TEST(runs_of_the_head_are_as_many_as_pay)
{
    struct draft_costs flat = costs_of(1e6, 0), mixed = costs_of(1e6, 1e5), free_head = costs_of(1, 0),
                       head = costs_of(1e5, 0), slow = costs_of(1e6, 0), unknown = {0};
    ck_assert_int_eq(guesses_at(&flat, &free_head, 1, .9f), DRAFT_GUESSES);
    ck_assert_int_eq(guesses_at(&flat, &free_head, 1, 0), 0);
    ck_assert_int_eq(guesses_at(&flat, &slow, 1, .9f), 0); /* a run costs a step */
    ck_assert_int_eq(guesses_at(&unknown, &head, 1, .9f), 0);
    ck_assert_int_eq(guesses_at(&flat, &head, 0, .9f), 0);
    /* By hand: (1 + .8 + .64 + ...) / (1 + .1 k + .1 k) is most for k = 4: 1.868; 3 gives 1.845, 5 1.845. */
    ck_assert_int_eq(guesses_at(&mixed, &head, 1, .8f), 4);
    ck_assert_int_eq(guesses_at(&mixed, &unknown, 1, .8f), 4);  /* taken to be a tenth of a step */
    ck_assert_int_eq(guesses_at(&flat, &free_head, 8, .9f), 3); /* 32 rows */
    ck_assert_int_eq(guesses_at(&flat, &free_head, 16, .9f), 1);
    ck_assert_int_eq(guesses_at(&flat, &free_head, 17, .9f), 0);
    ck_assert_int_eq(guesses_at(&flat, &free_head, 100, .9f), 0);
}
END_TEST

START_TEST(limits_are_kept)
{
    struct draft_costs flat = costs_of(1e6, 0), mixed = costs_of(1e6, 1e5);
    ck_assert_int_eq(plan_one(&flat, .9f, 0, 16, 0), 0);
    ck_assert_int_eq(plan_one(&flat, .9f, 3, 16, 0), 3);
    ck_assert_int_eq(plan_one(&flat, .9f, 99, 6, 0), 5);
    ck_assert_int_eq(plan_one(&flat, .9f, 99, 1, 0), 0);
    ck_assert_int_eq(plan_one(&flat, .99f, 99, 99, 0), DRAFT_MAX);
    ck_assert_int_eq(plan_one(&mixed, .99f, 15, 16, 1310000), 3); /* four rows take 1.3 ms */
    ck_assert_int_eq(plan_one(&mixed, .99f, 15, 16, 900000), 0);
}
END_TEST

START_TEST(rows_go_where_they_are_likeliest_of_use)
{
    struct draft_costs flat = costs_of(1e6, 0);
    struct draft good = at_rate(.9f), poor = at_rate(.3f), none = {0};
    struct draft_offer o[3] = {{.draft = &poor, .n_max = 9}, {.draft = &good, .n_max = 9}, {.draft = &none}};
    draft_plan(&flat, o, 3, 8, 0);
    ck_assert_int_eq(o[0].n + o[1].n, 5);
    ck_assert_int_eq(o[1].n, 5); /* 0.9^5 = 0.59 before 0.3 */
    ck_assert_int_eq(o[2].n, 0);
    draft_plan(&flat, o, 3, 16, 0);
    ck_assert_int_eq(o[0].n, 4);
    ck_assert_int_eq(o[1].n, 9);
    draft_plan(&flat, o, 3, 3, 0); /* full */
    ck_assert_int_eq(o[0].n + o[1].n + o[2].n, 0);
}
END_TEST

Suite *draft_suite(void)
{
    Suite *s = suite_create("draft");
    TCase *t = tcase_create("draft");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_longest_and_newest_match_is_found);
    tcase_add_test(t, the_index_is_the_same_in_one_go_and_in_pieces);
    tcase_add_loop_test(t, long_texts_take_linear_time, 0, 3);
    tcase_add_test(t, short_texts_and_no_index_give_no_guess);
    tcase_add_test(t, no_memory_is_an_error_that_leaves_nothing);
    tcase_add_test(t, guesses_are_judged_although_nothing_is_drafted);
    tcase_add_test(t, forced_guesses_come_first);
    tcase_add_test(t, guesses_of_a_source_continue_those_of_another);
    tcase_add_test(t, the_head_guesses_where_it_knows_better);
    tcase_add_test(t, runs_of_the_head_are_as_many_as_pay);
    tcase_add_test(t, costs_of_rows_not_seen_lie_between_those_seen);
    tcase_add_test(t, rows_that_pick_other_experts_cost_more);
    tcase_add_test(t, drafts_are_as_long_as_pays);
    tcase_add_test(t, limits_are_kept);
    tcase_add_test(t, rows_go_where_they_are_likeliest_of_use);
    suite_add_tcase(s, t);
    return s;
}
