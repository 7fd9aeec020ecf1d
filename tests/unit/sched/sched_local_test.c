/* Sequences of models in which some layers have a window and others see everything: what lies in front of the window is let go in window
 * pages alone. The fake back end writes what a row knows to both kinds of pages, and counts each position of a window whose window page
 * has something else. */
#include "engine/base/mem.h"
#include "engine/kv/pool/kv_cache.h"
#include "tests/support/folder.h"
#include "tests/support/remote_backend.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

Suite *sched_local_suite(void);

/* LEAST: two pages of the window in front of a border, and those of 31 + 40 positions after it. */
enum { WINDOW = 50, ROWS = 40, N_CTX = 1000, ALL = 32, LEAST = 5 };

static struct rig_limits limits(int32_t n_pages, int32_t n_windows, int32_t max_seqs)
{
    return (struct rig_limits){.n_pages = n_pages,
                               .n_windows = n_windows,
                               .n_ctx = N_CTX,
                               .max_rows = ROWS,
                               .max_seqs = max_seqs,
                               .local_window = WINDOW};
}

/* _i: windows below a page, at its edges and beyond, with the fewest window pages there may be. */
START_TEST(a_long_sequence_takes_the_window_pages_of_a_window)
{
    static const int32_t windows[] = {2, 31, 32, 33, 34, 50, 64, 65, 200};
    static const int32_t rows[] = {1, 7, 32, 64};
    static struct rig_output got;
    int32_t tokens[N_CTX];
    rig_prompt(tokens, 700, 1);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct sched_config cfg = {.n_ctx = N_CTX, .local_window = windows[_i], .max_rows = rows[k]};
        int32_t least = sched_least_windows(&cfg);
        ck_assert_int_eq(least, (windows[_i] - 1 + 31) / 32 + 1 + (rows[k] - 1 + 31) / 32);
        struct rig r = rig_open((struct rig_limits){.n_pages = ALL,
                                                    .n_windows = least,
                                                    .n_ctx = N_CTX,
                                                    .max_rows = rows[k],
                                                    .max_seqs = 1,
                                                    .local_window = windows[_i],
                                                    .draft_max = k == 3 ? 15 : 0});
        rig_run(&r, tokens, 700, 250, &got);
        ck_assert_int_eq(got.n, 250);
        ck_assert_uint_eq(rig_stats(&r).preempted, 0);
        ck_assert_uint_le(rig_stats(&r).windows_kept, least);
        sched_clear_stats(r.sched); /* pages are no total */
        ck_assert_uint_eq(rig_stats(&r).windows_total, least);
        rig_close(&r);
    }
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

START_TEST(too_few_window_pages_are_refused)
{
    struct sched *s;
    struct err_info info = {0};
    struct sched_config cfg = {.n_ctx = N_CTX,
                               .local_window = WINDOW,
                               .max_rows = ROWS,
                               .n_pages = ALL,
                               .n_windows = LEAST - 1,
                               .max_seqs = 1,
                               .max_logits = 1};
    ck_assert_int_eq(sched_least_windows(&cfg), LEAST);
    ck_assert_int_eq(sched_new(&cfg, &s, &info), ERR_CONFIG);
    ck_assert_int_eq(sched_useful_windows(&cfg), 2 * (2 + 1) + 2 * (40 / 32 + 1));
    cfg.n_ctx = 40;
    ck_assert_int_eq(sched_least_windows(&cfg), 2); /* no more than the longest sequence */
}
END_TEST

/* Many at once, some with the same prompts, in pools from the smallest on: pages of both kinds change hands all the time. */
START_TEST(sequences_side_by_side_give_what_each_gives_alone)
{
    enum { N = 24 };
    static const int32_t pools[][2] = {{ALL, LEAST}, {ALL + 8, LEAST + 1}, {64, 9}, {200, 6}, {200, 20}, {200, 200}};
    static int32_t tokens[N][600];
    static struct rig_output got, expected;
    struct sched_seq *seqs[N];
    struct sched_request q[N];
    struct rig r = rig_open(limits(pools[_i][0], pools[_i][1], 6));
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
            ck_assert_int_ge(got.usage.cached_tokens, 0);
            ck_assert_int_lt(got.usage.cached_tokens, got.usage.prompt_tokens);
        }
        rig_wait_idle(&r);
    }
    ck_assert(pools[_i][1] < 200 || rig_stats(&r).cached_tokens > 0);
    rig_close(&r);
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* Sixteen with the same cold prompt wait for the first, which computes it, and go on after it from its window pages. */
START_TEST(who_waits_for_a_page_gets_its_window_page)
{
    enum { N = 16 };
    static struct rig_output got, expected;
    int32_t tokens[N_CTX];
    struct sched_seq *seqs[N];
    struct rig r = rig_open(limits(ALL + 3 * N, 3 * N + 2, N));
    rig_prompt(tokens, 600, 1);
    rig_hold(&r);
    struct sched_request q = rig_request(tokens, 600, 20);
    for (int i = 0; i < N; i++) {
        seqs[i] = rig_submit(&r, &q);
    }
    rig_go_on(&r);
    rig_expect(&q, N_CTX, &expected);
    for (int i = 0; i < N; i++) {
        rig_collect(&seqs[i], &got);
        rig_compare(&got, &expected, "of sixteen");
    }
    rig_wait_idle(&r);
    ck_assert_int_eq(r.model->n_rows, 600 + (N - 1) * (600 - 576) + N * 19);
    rig_close(&r);
}
END_TEST

/* The next turn goes on from the end of the one before, though other prompts have passed; an edit far in front of that from where a
 * window is complete still, and then from there, too. */
START_TEST(a_turn_goes_on_from_the_end_of_the_last)
{
    static struct rig_output got;
    int32_t tokens[N_CTX], other[N_CTX];
    struct rig r = rig_open(limits(100, 12, 2));
    rig_prompt(tokens, 400, 1);
    ck_assert_int_eq(rig_run(&r, tokens, 400, 100, &got), 0);
    rig_prompt(other, 700, 9);
    ck_assert_int_eq(rig_run(&r, other, 700, 3, &got), 0);
    rig_expect(
        &(struct sched_request){
            .tokens = tokens, .n_tokens = 400, .max_tokens = 100, .sampling = rig_request(tokens, 1, 1).sampling},
        N_CTX, &got);
    memcpy(tokens + 400, got.ids, 100 * sizeof *tokens);
    rig_prompt(tokens + 500, 60, 2);
    long before = r.model->n_rows;
    ck_assert_int_eq(rig_run(&r, tokens, 560, 5, &got), 480);
    ck_assert_int_eq(r.model->n_rows - before, 560 - 480 + 4);
    rig_prompt(tokens + 130, 60, 3);
    ck_assert_int_eq(rig_run(&r, tokens, 300, 5, &got), 0);
    ck_assert_int_eq(rig_run(&r, tokens, 300, 5, &got), 288);
    rig_prompt(tokens + 298, 60, 4);
    ck_assert_int_eq(rig_run(&r, tokens, 358, 5, &got), 288);
    rig_close(&r);
}
END_TEST

/* A prefix that several share is computed once more when its window pages are gone, and has them again then. */
START_TEST(a_page_gets_its_window_page_back)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    struct rig r = rig_open(limits(100, 11, 2));
    rig_prompt(tokens, 320, 1);
    for (int i = 0; i < 4; i++) {
        rig_prompt(tokens + 320, 380, (uint64_t)(10 + i)); /* passes all the window pages there are */
        int32_t known = rig_run(&r, tokens, 700, 3, &got);
        ck_assert_msg(known == (i < 2 ? 0 : 320), "turn %d: %d", i, known); /* found twice, they are preferred */
        ck_assert_uint_le(rig_stats(&r).pages_kept, 10 + (uint64_t)(i + 1) * 11 + 1);
    }
    rig_close(&r);
}
END_TEST

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

static void wait_saved(struct rig *r)
{
    struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && rig_stats(r).disk.pending != 0; i++) {
        nanosleep(&ms, NULL);
    }
    ck_assert_uint_eq(rig_stats(r).disk.pending, 0);
}

static struct rig open_on_disk(struct rig_limits l, struct kv_disk **disk)
{
    struct err_info info = {0};
    struct kv_disk_config cfg = {.path = folder_file("cache"), .limit_bytes = 64 << 20, .bytes = {2 * FAKE_PAGE_BYTES}};
    ck_assert_msg(kv_disk_open(&cfg, disk, &info) == ERR_OK, "%s", info.text);
    l.disk = *disk;
    return rig_open(l);
}

static void close_on_disk(struct rig *r, struct kv_disk **disk)
{
    wait_saved(r);
    rig_close(r);
    kv_disk_close(disk);
}

/* After a restart, into the fewest window pages, whose files hold both parts; and for an edit whose pages are there but not their window
 * pages. */
START_TEST(a_window_comes_from_the_disk)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    struct kv_disk *disk;
    rig_prompt(tokens, 600, 1);
    struct rig r = open_on_disk(limits(64, 64, 2), &disk);
    ck_assert_int_eq(rig_run(&r, tokens, 600, 5, &got), 0);
    close_on_disk(&r, &disk);
    r = open_on_disk(limits(64, LEAST, 2), &disk);
    ck_assert_int_eq(rig_run(&r, tokens, 600, 5, &got), 576);
    ck_assert_uint_eq(rig_stats(&r).disk.restored_tokens, 576);
    ck_assert_int_eq(r.model->n_rows, 600 - 576 + 4);
    rig_prompt(tokens + 330, 60, 3); /* ten of its pages are there: two files have their window pages */
    ck_assert_int_eq(rig_run(&r, tokens, 390, 5, &got), 320);
    ck_assert_uint_eq(rig_stats(&r).disk.restored_tokens, 576 + 64);
    close_on_disk(&r, &disk);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* Three start together after a restart. The first reads the prefix that all share, and the others wait for its pages.
 * Then they need the window page before their next page, which the first does not read. One of them must read the files
 * although the other holds the next page too. */
START_TEST(a_window_is_read_for_one_of_two)
{
    enum { N = 3, SHARED = 192, LENGTH = 400 };
    static struct rig_output got, expected;
    static int32_t tokens[N][N_CTX];
    struct sched_request q[N];
    struct sched_seq *seqs[N];
    struct kv_disk *disk;
    struct rig r = open_on_disk(limits(200, 200, N + 1), &disk);
    for (int i = 0; i < N; i++) {
        rig_prompt(tokens[i], SHARED, 1);
        rig_prompt(tokens[i] + SHARED, LENGTH - SHARED, i == 0 ? 2 : 3);
        rig_run(&r, tokens[i], LENGTH, 5, &got);
        q[i] = rig_request(tokens[i], LENGTH, 20);
    }
    close_on_disk(&r, &disk);
    r = open_on_disk(limits(200, 200, N + 1), &disk);
    rig_hold(&r);
    struct sched_request one = rig_request(tokens[0] + SHARED, 1, 1);
    struct sched_seq *first = rig_submit(&r, &one);
    rig_wait_held(&r);
    for (int i = 0; i < N; i++) {
        seqs[i] = rig_submit(&r, &q[i]);
    }
    rig_go_on(&r);
    rig_collect(&first, &got);
    for (int i = 0; i < N; i++) {
        rig_collect(&seqs[i], &got);
        rig_expect(&q[i], N_CTX, &expected);
        rig_compare(&got, &expected, "of three");
        ck_assert_int_eq(got.usage.cached_tokens, 384);
    }
    ck_assert_uint_eq(rig_stats(&r).disk.restored_tokens, 384 + 384 - SHARED);
    ck_assert_uint_le(rig_stats(&r).preempted, 1);
    close_on_disk(&r, &disk);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

static struct sched_seq *submit_of(struct rig *r, uint64_t key, const struct sched_request *q)
{
    struct sched_group *g;
    struct sched_seq *seq;
    struct err_info info = {0};
    ck_assert_int_eq(sched_group_new(r->sched, &(struct sched_share){.key = key}, 1, &g), ERR_OK);
    ck_assert_int_eq(sched_submit_all(r->sched, g, q, 1, &seq, &info), ERR_OK);
    sched_group_release(&g);
    return seq;
}

/* Pages of a prefix are there, but not their window pages. A sequence begins to read the next page, a second one waits
 * for it and is to fill the pages after that, and the first one is cancelled. Then a third one with the same prompt, of
 * another key, is considered first. It must leave the page to the second one, since it cannot read those after it. */
START_TEST(who_cannot_go_on_leaves_the_page_to_others)
{
    enum { SHARED = 192, LENGTH = 400, SHORT = 230 };
    static struct rig_output got, expected;
    int32_t tokens[2][N_CTX];
    struct kv_disk *disk;
    struct rig r = open_on_disk(limits(200, 200, 5), &disk);
    for (int i = 0; i < 2; i++) {
        rig_prompt(tokens[i], SHARED, 1);
        rig_prompt(tokens[i] + SHARED, LENGTH - SHARED, 2 + (uint64_t)i);
        rig_run(&r, tokens[i], LENGTH, 5, &got);
    }
    close_on_disk(&r, &disk);
    r = open_on_disk(limits(200, 200, 5), &disk);
    ck_assert_int_eq(rig_run(&r, tokens[0], LENGTH, 5, &got), 384);
    struct sched_request running = rig_request(tokens[0] + SHARED, 1, 500), part = rig_request(tokens[1], SHORT, 20),
                         whole = rig_request(tokens[1], LENGTH, 20);
    struct sched_seq *other = submit_of(&r, 1, &running);
    rig_hold(&r);
    rig_wait_held(&r);
    struct sched_seq *first = submit_of(&r, 1, &part), *seqs[2] = {submit_of(&r, 1, &whole)};
    rig_pass(&r, 1);
    sched_cancel(first);
    seqs[1] = submit_of(&r, 2, &whole);
    rig_go_on(&r);
    rig_expect(&whole, N_CTX, &expected);
    for (int i = 0; i < 2; i++) {
        rig_collect(&seqs[i], &got);
        rig_compare(&got, &expected, "the same prompt");
    }
    sched_release(&first);
    sched_release(&other);
    close_on_disk(&r, &disk);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* A page whose window page was wanted for others before it was copied has no file: nothing is gone on from half of one. */
START_TEST(what_lost_its_window_page_is_not_written)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    struct kv_disk *disk;
    rig_prompt(tokens, 600, 1);
    struct rig r = open_on_disk(limits(64, LEAST, 2), &disk);
    atomic_store(&r.model->read_us, 4000); /* of the time that copying may take */
    ck_assert_int_eq(rig_run(&r, tokens, 600, 5, &got), 0);
    wait_saved(&r);
    ck_assert_uint_gt(rig_stats(&r).disk.n_dropped, 0);
    close_on_disk(&r, &disk);
    r = open_on_disk(limits(64, LEAST, 2), &disk);
    rig_prompt(tokens + 330, 60, 3);
    ck_assert_int_lt(rig_run(&r, tokens, 390, 5, &got), 320);
    close_on_disk(&r, &disk);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* A file that is not what it should be in the middle of a prompt, or of its window: the pages in front of it are used, with the window
 * pages that they need then. */
START_TEST(a_broken_file_costs_what_is_after_it)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    struct kv_disk *disk;
    rig_prompt(tokens, 600, 1);
    struct rig r = open_on_disk(limits(64, 64, 2), &disk);
    ck_assert_int_eq(rig_run(&r, tokens, 600, 5, &got), 0);
    close_on_disk(&r, &disk);
    int n = 0;
    char path[512];
    DIR *d = opendir(folder_file("cache"));
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strstr(e->d_name, ".page") != NULL && n++ == _i * 5) {
            snprintf(path, sizeof path, "%s/%s", folder_file("cache"), e->d_name);
            FILE *f = fopen(path, "r+");
            ck_assert_ptr_nonnull(f);
            fseek(f, 300, SEEK_SET);
            fputc(0x5A, f);
            fputc(0xA5, f);
            fclose(f);
        }
    }
    closedir(d);
    r = open_on_disk(limits(64, LEAST, 2), &disk);
    int32_t known = rig_run(&r, tokens, 600, 5, &got);
    ck_assert_int_lt(known, 576);
    ck_assert_int_eq(known % KV_PAGE_TOKENS, 0);
    ck_assert_int_eq(r.model->n_rows, 600 - known + 4);
    ck_assert_int_eq(rig_run(&r, tokens, 600, 5, &got), 576);
    close_on_disk(&r, &disk);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

/* Of a sequence that went wrong nothing is found again. */
START_TEST(what_went_wrong_is_forgotten)
{
    static struct rig_output got;
    int32_t tokens[N_CTX];
    struct rig r = rig_open(limits(64, 20, 1));
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
    ck_assert_uint_eq(rig_stats(&r).windows_kept, 0);
    tokens[499] = 1;
    ck_assert_int_eq(rig_run(&r, tokens, 500, 3, &got), 0);
    rig_close(&r);
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_long_sequence_takes_the_window_pages_of_a_window, 0, 9);
    tcase_add_loop_test(t, sequences_side_by_side_give_what_each_gives_alone, 0, 6);
    tcase_add_test(t, who_waits_for_a_page_gets_its_window_page);
    tcase_add_test(t, a_turn_goes_on_from_the_end_of_the_last);
    tcase_add_test(t, a_page_gets_its_window_page_back);
    tcase_add_test(t, a_window_comes_from_the_disk);
    tcase_add_test(t, a_window_is_read_for_one_of_two);
    tcase_add_test(t, who_cannot_go_on_leaves_the_page_to_others);
    tcase_add_test(t, what_lost_its_window_page_is_not_written);
    tcase_add_loop_test(t, a_broken_file_costs_what_is_after_it, 0, 3);
    tcase_add_test(t, what_went_wrong_is_forgotten);
}

Suite *sched_local_suite(void)
{
    Suite *s = suite_create("sched_local");
    TCase *t = tcase_create("sched_local"), *remote = tcase_create("sched_local_remote");
    add_tests(t);
    tcase_add_test(t, too_few_window_pages_are_refused);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(remote, rig_go_remote, NULL);
    add_tests(remote);
    suite_add_tcase(s, remote);
    return s;
}
