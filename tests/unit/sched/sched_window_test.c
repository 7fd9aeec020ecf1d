/* Sequences of models that see a window alone: what lies in front of it is let go and written over, and what they give is the same.
 * The fake back end reads a window back through its pages and says so when one of them is not the sequence's. */
#include "engine/base/mem.h"
#include "engine/kv/pool/kv_cache.h"
#include "tests/support/folder.h"
#include "tests/support/remote_backend.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <string.h>
#include <time.h>

Suite *sched_window_suite(void);

enum { WINDOW = 50, ROWS = 40, N_CTX = 1000, LEAST = 4 }; /* (50 + 40) / 32 + 2 */

static struct rig_limits limits(int32_t n_pages, int32_t max_seqs)
{
    return (struct rig_limits){
        .n_pages = n_pages, .n_ctx = N_CTX, .max_rows = ROWS, .max_seqs = max_seqs, .window = WINDOW};
}

/* _i: windows below a page, at its edges and beyond, in the smallest pool there may be. */
START_TEST(a_long_sequence_takes_the_pages_of_a_window)
{
    static const int32_t windows[] = {2, 31, 32, 33, 34, 50, 64, 65, 200};
    static const int32_t rows[] = {1, 7, 32, 64};
    static struct rig_output got;
    int32_t tokens[N_CTX];
    rig_prompt(tokens, 700, 1);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct sched_config cfg = {.n_ctx = N_CTX, .window = windows[_i], .max_rows = rows[k]};
        int32_t least = sched_least_pages(&cfg), window = windows[_i] > 33 ? windows[_i] : 33;
        ck_assert_int_eq(least, (window + rows[k]) / 32 + 2);
        struct rig r = rig_open((struct rig_limits){.n_pages = least,
                                                    .n_ctx = N_CTX,
                                                    .max_rows = rows[k],
                                                    .max_seqs = 1,
                                                    .window = windows[_i],
                                                    .draft_max = k == 3 ? 15 : 0});
        rig_run(&r, tokens, 700, 250, &got);
        ck_assert_int_eq(got.n, 250);
        ck_assert_uint_eq(rig_stats(&r).preempted, 0);
        rig_close(&r);
    }
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

START_TEST(a_pool_without_room_for_a_window_is_refused)
{
    struct sched *s;
    struct err_info info = {0};
    struct sched_config cfg = {
        .n_ctx = N_CTX, .window = WINDOW, .max_rows = ROWS, .n_pages = LEAST - 1, .max_seqs = 1, .max_logits = 1};
    ck_assert_int_eq(sched_least_pages(&cfg), LEAST);
    ck_assert_int_eq(sched_new(&cfg, &s, &info), ERR_CONFIG);
    cfg.n_ctx = 40;
    ck_assert_int_eq(sched_least_pages(&cfg), 2); /* no more than the longest sequence */
    cfg.window = 0;
    cfg.n_ctx = N_CTX;
    ck_assert_int_eq(sched_least_pages(&cfg), 32);
}
END_TEST

/* Many at once, some with the same prompts, in pools from the smallest on: pages change hands all the time. */
START_TEST(sequences_side_by_side_give_what_each_gives_alone)
{
    enum { N = 24 };
    static const int32_t pools[] = {LEAST, LEAST + 1, 9, 20, 64};
    static int32_t tokens[N][600];
    static struct rig_output got, expected;
    struct sched_seq *seqs[N];
    struct sched_request q[N];
    struct rig r = rig_open(limits(pools[_i], 6));
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < N; i++) {
            int32_t n = 20 + 97 * i % 580;
            rig_prompt(tokens[i], n, (uint64_t)(i % 5));
            q[i] = rig_request(tokens[i], n, 1 + i * 31 % 90);
            q[i].prompt_logprobs = i % 7 == 3;
            q[i].sampling.n_top = i % 7 == 3 ? 0 : -1;
            q[i].salt = i % 4 == 0 ? "other" : NULL;
            seqs[i] = rig_submit(&r, &q[i]);
        }
        for (int i = 0; i < N; i++) {
            if (i % 11 == 5) {
                sched_cancel(seqs[i]);
                sched_release(&seqs[i]);
                continue;
            }
            rig_collect(&seqs[i], &got);
            rig_expect(&q[i], N_CTX, &expected);
            rig_compare(&got, &expected, "side by side");
        }
        rig_wait_idle(&r);
    }
    ck_assert(pools[_i] < 64 || rig_stats(&r).cached_tokens > 0);
    rig_close(&r);
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* In front of the window nothing is lost while there is room: the next turn, and one that parts early, go on from there. */
START_TEST(what_was_let_go_is_found_while_there_is_room)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    struct rig r = rig_open(limits(40, 2));
    rig_prompt(tokens, 400, 1);
    ck_assert_int_eq(rig_run(&r, tokens, 400, 100, &got), 0);
    memcpy(tokens + 400, got.ids, 100 * sizeof *tokens);
    rig_prompt(tokens + 500, 60, 2);
    ck_assert_int_eq(rig_run(&r, tokens, 560, 5, &got), 480);
    ck_assert_int_eq(r.model->n_rows, 499 + 560 - 480 + 4);
    rig_prompt(tokens + 130, 60, 3); /* an edit, far in front of the window of the end */
    ck_assert_int_eq(rig_run(&r, tokens, 300, 5, &got), 128);
    rig_close(&r);
}
END_TEST

/* What was written over is not found: the beginning is, as far as it goes. */
START_TEST(what_was_written_over_is_computed_again)
{
    static struct rig_output got;
    int32_t tokens[N_CTX], other[200];
    struct rig r = rig_open(limits(10, 2));
    rig_prompt(tokens, 600, 1);
    ck_assert_int_eq(rig_run(&r, tokens, 600, 5, &got), 0);
    int32_t known = rig_run(&r, tokens, 600, 5, &got);
    ck_assert_int_gt(known, 0);
    ck_assert_int_le(known, 10 * KV_PAGE_TOKENS);
    ck_assert_int_eq(known % KV_PAGE_TOKENS, 0);
    rig_prompt(other, 200, 2);
    rig_run(&r, other, 200, 5, &got);
    ck_assert_int_eq(rig_run(&r, other, 200, 5, &got), 192);
    rig_close(&r);
}
END_TEST

static void wait_saved(struct rig *r)
{
    struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && rig_stats(r).disk.pending != 0; i++) {
        nanosleep(&ms, NULL);
    }
    ck_assert_uint_eq(rig_stats(r).disk.pending, 0);
}

/* Read in pieces that fit a window and a batch, into a pool that the prompt does not fit. */
START_TEST(a_prompt_comes_from_the_disk_through_its_window)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    rig_prompt(tokens, 600, 1);
    struct rig_limits l = limits(64, 2);
    for (int again = 0; again < 2; again++) {
        struct err_info info = {0};
        struct kv_disk_config cfg = {.path = folder_file("cache"), .limit_bytes = 64 << 20, .bytes = {FAKE_PAGE_BYTES}};
        ck_assert_msg(kv_disk_open(&cfg, &l.disk, &info) == ERR_OK, "%s", info.text);
        struct rig r = rig_open(l);
        ck_assert_int_eq(rig_run(&r, tokens, 600, 5, &got), again ? 576 : 0);
        ck_assert_uint_eq(rig_stats(&r).disk.restored_tokens, again ? 576 : 0);
        wait_saved(&r);
        rig_close(&r);
        kv_disk_close(&l.disk);
        l.n_pages = LEAST;
    }
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* Of a sequence that went wrong nothing is found again, nor what lay in front of its window. */
START_TEST(what_went_wrong_is_forgotten_in_front_of_the_window_too)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    struct rig r = rig_open(limits(64, 1));
    rig_prompt(tokens, 500, 1);
    for (int i = 0; i < 500; i++) {
        tokens[i] = tokens[i] % 60;
    }
    tokens[499] = 62;
    atomic_store(&r.model->nan_token, 62);
    struct sched_request q = rig_request(tokens, 500, 5);
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    ck_assert_int_eq(got.err, ERR_NUMERICAL);
    rig_wait_idle(&r);
    tokens[499] = 1;
    ck_assert_int_eq(rig_run(&r, tokens, 500, 3, &got), 0);
    rig_close(&r);
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_long_sequence_takes_the_pages_of_a_window, 0, 9);
    tcase_add_loop_test(t, sequences_side_by_side_give_what_each_gives_alone, 0, 5);
    tcase_add_test(t, what_was_let_go_is_found_while_there_is_room);
    tcase_add_test(t, what_was_written_over_is_computed_again);
    tcase_add_test(t, a_prompt_comes_from_the_disk_through_its_window);
    tcase_add_test(t, what_went_wrong_is_forgotten_in_front_of_the_window_too);
}

Suite *sched_window_suite(void)
{
    Suite *s = suite_create("sched_window");
    TCase *t = tcase_create("sched_window"), *remote = tcase_create("sched_window_remote");
    add_tests(t);
    tcase_add_test(t, a_pool_without_room_for_a_window_is_refused);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    add_tests(remote);
    suite_add_tcase(s, remote);
    return s;
}
