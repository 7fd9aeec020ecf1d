/* What stays in the cache: a conversation that goes on outlives requests that come once, of which there are many more than room. */
#include "engine/base/mem.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <string.h>

Suite *sched_admit_suite(void);

/* Requests for titles and probes: other prompts each time. */
static void run_side_requests(struct rig *r, int n, uint64_t which)
{
    int32_t tokens[70];
    static struct rig_output got;
    for (int i = 0; i < n; i++) {
        rig_prompt(tokens, 70, which + (uint64_t)i);
        ck_assert_int_eq(rig_run(r, tokens, 70, 3, &got), 0);
    }
}

/* _i: 0 plain, 1 with states, of which six are for prefixes. */
START_TEST(side_requests_take_nothing_from_a_conversation)
{
    enum { TURNS = 6, NEW = 25, ANSWER = 12 };
    int32_t tokens[400], n = 100, known = 0;
    static struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.n_pages = 24, .is_recurrent = _i, .max_seqs = 2, .n_kept_states = 6});
    rig_prompt(tokens, n, 1);
    for (int turn = 0; turn < TURNS; turn++) {
        ck_assert_msg(rig_run(&r, tokens, n, ANSWER, &got) == known, "turn %d: %d tokens found, expected %d", turn,
                      got.usage.cached_tokens, known);
        memcpy(tokens + n, got.ids, ANSWER * sizeof *tokens);
        known = (n + ANSWER - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        rig_prompt(tokens + n + ANSWER, NEW, 10 + (uint64_t)turn);
        n += ANSWER + NEW;
        if (turn > 0) { /* of its first turn nobody can tell */
            run_side_requests(&r, 40, 1000 * ((uint64_t)turn + 1));
        }
    }
    rig_close(&r);
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

START_TEST(conversations_that_ended_make_room_for_new_ones)
{
    int32_t tokens[200];
    static struct rig_output got;
    struct rig r = rig_open((struct rig_limits){.n_pages = 24, .is_recurrent = _i, .max_seqs = 2, .n_kept_states = 6});
    for (uint64_t old = 0; old < 6; old++) { /* all that is kept came again */
        rig_prompt(tokens, 200, 100 + old);
        rig_run(&r, tokens, 200, 3, &got);
        ck_assert_int_eq(rig_run(&r, tokens, 200, 3, &got), 192);
        ck_assert_int_eq(rig_run(&r, tokens, 200, 3, &got), 192);
    }
    rig_close(&r);
}
END_TEST

Suite *sched_admit_suite(void)
{
    Suite *s = suite_create("sched_admit");
    TCase *t = tcase_create("sched_admit");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, side_requests_take_nothing_from_a_conversation, 0, 2);
    tcase_add_loop_test(t, conversations_that_ended_make_room_for_new_ones, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
