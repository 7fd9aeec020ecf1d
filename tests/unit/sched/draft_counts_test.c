/* Counts of drafts by source and position, and the weights of recent ones. */
#include "engine/sched/draft_counts.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>

Suite *draft_counts_suite(void);

/* Five tokens that a grammar forces, then five of repeated text. */
static const uint8_t mixed[] = {DRAFT_FORCED, DRAFT_FORCED, DRAFT_FORCED, DRAFT_FORCED, DRAFT_FORCED,
                                DRAFT_LOOKUP, DRAFT_LOOKUP, DRAFT_LOOKUP, DRAFT_LOOKUP, DRAFT_LOOKUP};

static void expect(struct draft_count got, uint64_t drafted, uint64_t accepted)
{
    ck_assert_uint_eq(got.drafted, drafted);
    ck_assert_uint_eq(got.accepted, accepted);
}

START_TEST(a_draft_counts_at_its_source_and_position)
{
    struct draft_counts c = {0}, sum = {0};
    draft_counts_add(&c, mixed, 10, 7);
    draft_counts_add(&c, mixed, 1, 0);
    draft_counts_add(&c, mixed, 0, 0);
    expect(c.at[DRAFT_FORCED][0], 2, 1);
    expect(c.at[DRAFT_FORCED][4], 1, 1);
    expect(c.at[DRAFT_FORCED][5], 0, 0);
    expect(c.at[DRAFT_LOOKUP][4], 0, 0);
    expect(c.at[DRAFT_LOOKUP][5], 1, 1);
    expect(c.at[DRAFT_LOOKUP][6], 1, 1);
    expect(c.at[DRAFT_LOOKUP][7], 3, 0); /* the 8th to the 10th */
    expect(draft_counts_of(&c, DRAFT_FORCED), 6, 5);
    expect(draft_counts_of(&c, DRAFT_LOOKUP), 5, 2);
    expect(draft_counts_of(&c, DRAFT_HEAD), 0, 0);
    draft_counts_merge(&sum, &c);
    draft_counts_merge(&sum, &c);
    expect(sum.at[DRAFT_LOOKUP][7], 6, 0);
    expect(draft_counts_of(&sum, DRAFT_FORCED), 12, 10);
}
END_TEST

START_TEST(sources_and_positions_have_names)
{
    static const char *const names[DRAFT_SOURCES] = {"forced", "lookup", "head", "model"};
    for (int s = 0; s < DRAFT_SOURCES; s++) {
        ck_assert_str_eq(draft_source_name((enum draft_source)s), names[s]);
    }
    ck_assert_str_eq(draft_position_name(0), "1");
    ck_assert_str_eq(draft_position_name(DRAFT_POSITIONS - 2), "7");
    ck_assert_str_eq(draft_position_name(DRAFT_POSITIONS - 1), "8+");
}
END_TEST

/* Adds n steps, each with one draft of the head, true or not. */
static void add_steps(struct draft_recent *r, int n, bool is_true)
{
    static const uint8_t head = DRAFT_HEAD;
    struct draft_counts step = {0};
    draft_counts_add(&step, &head, 1, is_true);
    for (int i = 0; i < n; i++) {
        draft_recent_add(r, &step);
    }
}

START_TEST(recent_drafts_have_more_weight)
{
    struct draft_recent r = {0};
    struct draft_counts step = {0};
    ck_assert(isnan(draft_recent_share(&r, DRAFT_HEAD, 0)) && isnan(draft_recent_share(&r, DRAFT_HEAD, 8)));
    draft_counts_add(&step, mixed, 10, 7);
    draft_recent_add(&r, &step);
    ck_assert_double_eq(draft_recent_share(&r, DRAFT_FORCED, DRAFT_POSITIONS), 1);
    ck_assert_double_eq(draft_recent_share(&r, DRAFT_LOOKUP, DRAFT_POSITIONS), .4);
    ck_assert_double_eq(draft_recent_share(&r, DRAFT_LOOKUP, 5), 1);
    ck_assert_double_eq(draft_recent_share(&r, DRAFT_LOOKUP, 7), 0);
    add_steps(&r, 2 * DRAFT_HALF, true);
    ck_assert_double_eq(draft_recent_share(&r, DRAFT_HEAD, 0), 1);
    add_steps(&r, DRAFT_HALF, false); /* the drafts before have half their weight now */
    ck_assert_double_eq(draft_recent_share(&r, DRAFT_HEAD, 0), .5);
    add_steps(&r, DRAFT_HALF, false);
    ck_assert_double_eq(draft_recent_share(&r, DRAFT_HEAD, 0), .25);
    add_steps(&r, 20 * DRAFT_HALF, false);
    ck_assert_double_lt(draft_recent_share(&r, DRAFT_HEAD, DRAFT_POSITIONS), 1e-6);
    ck_assert_double_le(r.at[DRAFT_HEAD][0].drafted, 2 * DRAFT_HALF);
    ck_assert_double_eq(r.at[DRAFT_FORCED][0].drafted, 1); /* other sources age by their own drafts */
}
END_TEST

Suite *draft_counts_suite(void)
{
    Suite *s = suite_create("draft_counts");
    TCase *t = tcase_create("draft_counts");
    tcase_add_test(t, a_draft_counts_at_its_source_and_position);
    tcase_add_test(t, sources_and_positions_have_names);
    tcase_add_test(t, recent_drafts_have_more_weight);
    suite_add_tcase(s, t);
    return s;
}
