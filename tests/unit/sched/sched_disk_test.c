/* Sequences that begin with what an earlier scheduler left on the disk: on the fake back end, whose pages and states hold a hash of
 * everything before, so that a byte in the wrong place is a wrong token. A scheduler that was closed stands for a process that ended. */
#include "engine/base/mem.h"
#include "tests/support/folder.h"
#include "tests/support/remote_backend.h"
#include "tests/support/sched_rig.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

Suite *sched_disk_suite(void);

enum { PROMPT = 200, WHOLE = 192 }; /* tokens of a prompt, and those in whole pages */

static struct kv_disk *open_disk(bool is_recurrent)
{
    struct kv_disk *d;
    struct err_info info = {0};
    struct kv_disk_config cfg = {.path = folder_file("cache"),
                                 .limit_bytes = 64 << 20,
                                 .bytes = {FAKE_PAGE_BYTES, is_recurrent ? FAKE_STATE_BYTES : 0}};
    ck_assert_msg(kv_disk_open(&cfg, &d, &info) == ERR_OK, "%s", info.text);
    return d;
}

static void wait_saved(struct rig *r)
{
    struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && rig_stats(r).disk.pending != 0; i++) {
        nanosleep(&ms, NULL);
    }
    ck_assert_uint_eq(rig_stats(r).disk.pending, 0);
}

static int32_t run_salted(struct rig *r, const int32_t *tokens, int32_t n, int32_t max_tokens, const char *salt,
                          struct rig_output *got)
{
    static struct rig_output expected;
    struct sched_request q = rig_request(tokens, n, max_tokens);
    q.salt = salt;
    struct sched_seq *seq = rig_submit(r, &q);
    rig_collect(&seq, got);
    rig_expect(&q, 320, &expected);
    rig_compare(got, &expected, "restored");
    rig_wait_idle(r);
    return got->usage.cached_tokens;
}

static int32_t run(struct rig *r, const int32_t *tokens, int32_t n, int32_t max_tokens)
{
    static struct rig_output got;
    return run_salted(r, tokens, n, max_tokens, NULL, &got);
}

static void close_all(struct rig *r, struct kv_disk **d)
{
    rig_close(r);
    kv_disk_close(d);
}

/* Removes or spoils the file of the i-th page of a prompt, or of the state after it. */
static void touch_file(bool is_recurrent, const int32_t *tokens, int32_t i, enum kv_snapshot_kind kind, bool spoils)
{
    struct kv_name name;
    char file[KV_SNAPSHOT_FILE_BYTES], path[4096];
    struct kv_disk *d = open_disk(is_recurrent);
    ck_assert_int_eq(kv_disk_root(d, NULL, &name), ERR_OK);
    kv_disk_close(&d);
    for (int32_t k = 0; k <= i; k++) {
        ck_assert_int_eq(kv_name_child(&name, tokens + k * KV_PAGE_TOKENS, &name), ERR_OK);
    }
    kv_snapshot_file(kind, &name, file);
    snprintf(path, sizeof path, "%s/%s", folder_file("cache"), file);
    FILE *f = spoils ? fopen(path, "r+b") : NULL;
    ck_assert(spoils ? f != NULL && fseek(f, KV_SNAPSHOT_HEAD_BYTES + 3, SEEK_SET) == 0 && fputc(0x77, f) != EOF &&
                           fclose(f) == 0
                     : unlink(path) == 0);
}

static int count_files(void)
{
    int n = 0;
    DIR *dir = opendir(folder_file("cache"));
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        n += strlen(e->d_name) > KV_NAME_BYTES;
    }
    closedir(dir);
    return n;
}

/* _i: 0 plain, 1 with states. */
START_TEST(a_prompt_goes_on_after_a_restart)
{
    int32_t tokens[320];
    static struct rig_output got;
    rig_prompt(tokens, PROMPT, 1);
    struct kv_disk *d = open_disk(_i);
    struct rig r = rig_open((struct rig_limits){.is_recurrent = _i, .disk = d});
    ck_assert_int_eq(run(&r, tokens, PROMPT, 0), 0);
    ck_assert_int_eq(run_salted(&r, tokens, PROMPT, 70, NULL, &got), WHOLE);
    memcpy(tokens + PROMPT, got.ids, 70 * sizeof *tokens);
    rig_prompt(tokens + PROMPT + 70, 20, 2);
    wait_saved(&r);
    close_all(&r, &d);

    d = open_disk(_i);
    r = rig_open((struct rig_limits){.is_recurrent = _i, .disk = d});
    ck_assert_int_eq(run(&r, tokens, PROMPT, 5), WHOLE);
    ck_assert_int_eq(r.model->n_rows, PROMPT - WHOLE + 4);
    ck_assert_int_eq(run(&r, tokens, PROMPT, 5), WHOLE); /* from memory */
    ck_assert_uint_eq(rig_stats(&r).disk.restored_tokens, WHOLE);
    ck_assert_int_eq(run(&r, tokens, PROMPT + 90, 5), 256); /* the next turn: up to the last page that was filled */
    ck_assert_uint_eq(rig_stats(&r).disk.n_refused, 0);
    close_all(&r, &d);
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

START_TEST(a_salt_finds_its_own)
{
    int32_t tokens[PROMPT];
    static struct rig_output got;
    rig_prompt(tokens, PROMPT, 1);
    struct kv_disk *d = open_disk(false);
    struct rig r = rig_open((struct rig_limits){.disk = d});
    ck_assert_int_eq(run_salted(&r, tokens, PROMPT, 3, "one", &got), 0);
    wait_saved(&r);
    close_all(&r, &d);
    d = open_disk(false);
    r = rig_open((struct rig_limits){.disk = d});
    ck_assert_int_eq(run_salted(&r, tokens, PROMPT, 3, "two", &got), 0);
    ck_assert_int_eq(run_salted(&r, tokens, PROMPT, 3, NULL, &got), 0);
    ck_assert_int_eq(run_salted(&r, tokens, PROMPT, 3, "one", &got), WHOLE);
    close_all(&r, &d);
    folder_remove();
}
END_TEST

/* Each file in turn is gone, or damaged: what is computed is right, and no more than what could not be had. */
START_TEST(what_is_missing_is_computed)
{
    bool is_recurrent = _i % 2 == 1, spoils = _i >= 2;
    int32_t tokens[PROMPT];
    rig_prompt(tokens, PROMPT, 1);
    for (int32_t which = 0; which < WHOLE / KV_PAGE_TOKENS; which++) {
        folder_clear();
        struct kv_disk *d = open_disk(is_recurrent);
        struct rig r = rig_open((struct rig_limits){.is_recurrent = is_recurrent, .disk = d});
        ck_assert_int_eq(run(&r, tokens, PROMPT, 0), 0);
        wait_saved(&r);
        close_all(&r, &d);
        touch_file(is_recurrent, tokens, which, KV_SNAPSHOT_PAGE, spoils);
        d = open_disk(is_recurrent);
        r = rig_open((struct rig_limits){.is_recurrent = is_recurrent, .disk = d});
        int32_t cached = run(&r, tokens, PROMPT, 5);
        ck_assert_int_eq(cached, is_recurrent ? 0 : which * KV_PAGE_TOKENS);
        ck_assert_int_eq(r.model->n_rows, PROMPT - cached + 4);
        ck_assert_uint_eq(rig_stats(&r).disk.n_refused, spoils);
        wait_saved(&r);
        close_all(&r, &d);
        d = open_disk(is_recurrent); /* what was computed is there again */
        r = rig_open((struct rig_limits){.is_recurrent = is_recurrent, .disk = d});
        ck_assert_int_eq(run(&r, tokens, PROMPT, 5), WHOLE);
        close_all(&r, &d);
    }
    folder_remove();
}
END_TEST

START_TEST(a_state_that_is_damaged_is_computed)
{
    int32_t tokens[PROMPT];
    rig_prompt(tokens, PROMPT, 1);
    struct kv_disk *d = open_disk(true);
    struct rig r = rig_open((struct rig_limits){.is_recurrent = true, .disk = d});
    ck_assert_int_eq(run(&r, tokens, PROMPT, 0), 0);
    wait_saved(&r);
    close_all(&r, &d);
    touch_file(true, tokens, WHOLE / KV_PAGE_TOKENS - 1, KV_SNAPSHOT_STATE, true);
    d = open_disk(true);
    r = rig_open((struct rig_limits){.is_recurrent = true, .disk = d});
    ck_assert_int_eq(run(&r, tokens, PROMPT, 5), 0);
    ck_assert_uint_eq(rig_stats(&r).disk.n_refused, 1);
    ck_assert_uint_eq(rig_stats(&r).disk.restored_tokens, 0);
    close_all(&r, &d);
    folder_remove();
}
END_TEST

START_TEST(a_disk_that_is_too_slow_is_not_waited_for)
{
    int32_t tokens[PROMPT];
    rig_prompt(tokens, PROMPT, 1);
    struct kv_disk *d = open_disk(_i);
    struct rig r = rig_open((struct rig_limits){.is_recurrent = _i, .disk = d});
    ck_assert_int_eq(run(&r, tokens, PROMPT, 0), 0);
    wait_saved(&r);
    close_all(&r, &d);
    uint64_t n_late = 0;
    for (int i = 0; i < 50 && n_late == 0; i++) { /* it may be there at once */
        d = open_disk(_i);
        r = rig_open((struct rig_limits){.is_recurrent = _i, .disk = d, .disk_wait_ns = 1});
        int32_t cached = run(&r, tokens, PROMPT, 5);
        n_late = rig_stats(&r).disk.n_late;
        ck_assert_int_eq(cached<WHOLE, n_late> 0);
        close_all(&r, &d);
    }
    ck_assert_uint_ge(n_late, 1);
    folder_remove();
}
END_TEST

/* Many at once, of a few prompts, some of which leave early, in a pool that is too small for all. */
START_TEST(many_restore_at_once)
{
    enum { N = 24, PROMPTS = 4 };
    int32_t tokens[PROMPTS][PROMPT];
    struct sched_seq *seqs[N];
    static struct rig_output got, expected;
    for (int round = 0; round < 4; round++) {
        struct kv_disk *d = open_disk(_i);
        struct rig r = rig_open((struct rig_limits){.is_recurrent = _i, .disk = d, .n_pages = 40, .max_rows = 48});
        for (int i = 0; i < N; i++) {
            int32_t n = PROMPT - i % 3 * 40;
            rig_prompt(tokens[i % PROMPTS], PROMPT, 60 + (uint64_t)(i % PROMPTS));
            struct sched_request q = rig_request(tokens[i % PROMPTS], n, 40);
            seqs[i] = rig_submit(&r, &q);
            if (i % 5 == 4) {
                sched_release(&seqs[i - 2]);
            }
        }
        for (int i = 0; i < N; i++) {
            if (seqs[i] != NULL) {
                struct sched_request q = rig_request(tokens[i % PROMPTS], PROMPT - i % 3 * 40, 40);
                rig_collect(&seqs[i], &got);
                rig_expect(&q, 320, &expected);
                rig_compare(&got, &expected, "many");
            }
        }
        ck_assert(round == 0 || rig_stats(&r).disk.restored_tokens > 0);
        rig_wait_idle(&r);
        wait_saved(&r);
        close_all(&r, &d);
    }
    folder_remove();
    ck_assert_uint_eq(mem_live(), 0);
}
END_TEST

START_TEST(who_shares_nothing_leaves_nothing)
{
    int32_t tokens[PROMPT];
    static struct rig_output got;
    rig_prompt(tokens, PROMPT, 1);
    struct kv_disk *d = open_disk(false);
    struct rig r = rig_open((struct rig_limits){.disk = d});
    struct sched_request q = rig_request(tokens, PROMPT, 3);
    q.keeps_no_snapshots = true;
    struct sched_seq *seq = rig_submit(&r, &q);
    rig_collect(&seq, &got);
    close_all(&r, &d);
    ck_assert_int_eq(count_files(), 0);
    folder_remove();
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_prompt_goes_on_after_a_restart, 0, 2);
    tcase_add_test(t, a_salt_finds_its_own);
    tcase_add_loop_test(t, what_is_missing_is_computed, 0, 4);
    tcase_add_test(t, a_state_that_is_damaged_is_computed);
    tcase_add_loop_test(t, a_disk_that_is_too_slow_is_not_waited_for, 0, 2);
    tcase_add_loop_test(t, many_restore_at_once, 0, 2);
    tcase_add_test(t, who_shares_nothing_leaves_nothing);
}

Suite *sched_disk_suite(void)
{
    Suite *s = suite_create("sched_disk");
    TCase *plain = tcase_create("plain"), *remote = tcase_create("remote");
    add_tests(plain);
    suite_add_tcase(s, plain);
    tcase_add_checked_fixture(remote, rig_go_remote, NULL); /* a device that computes by itself */
    add_tests(remote);
    suite_add_tcase(s, remote);
    return s;
}
