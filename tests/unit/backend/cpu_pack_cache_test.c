/* The packed cache: a second start maps what the first one packed, bit for bit; whatever is not exactly that file is
 * packed anew and replaced; and no trouble with the folder keeps a model from being opened. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan_shard.h"
#include "tests/support/folder.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *cpu_pack_cache_suite(void);

static const char *const models[] = {"tests/golden/models/llama-quants.gguf", "tests/golden/models/qwen2-bias.gguf",
                                     "tests/golden/models/llama-linear-odd.gguf"};
enum { HEADER_BYTES = 4096 }; /* of a cache file */

static char model_path[96], cache_path[160];

/* --- files ------------------------------------------------------------------------------------------------------ */

static size_t read_all(const char *path, unsigned char **out)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    ck_assert_msg(f != NULL && fstat(fileno(f), &st) == 0, "%s: %s", path, strerror(errno));
    *out = malloc((size_t)st.st_size + 1);
    ck_assert(*out != NULL && fread(*out, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
    fclose(f);
    return (size_t)st.st_size;
}

static void write_all(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0, "%s: %s", path, strerror(errno));
}

static void set_mtime(const char *path, time_t seconds)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = seconds}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void copy_model(const char *from)
{
    unsigned char *bytes;
    size_t n = read_all(from, &bytes);
    write_all(model_path, bytes, n);
    free(bytes);
    set_mtime(model_path, 1000000);
}

static int n_files(void)
{
    char pattern[80];
    glob_t g = {0};
    snprintf(pattern, sizeof pattern, "%s/*.infcgi-pack*", folder_path());
    int n = glob(pattern, 0, NULL, &g) == 0 ? (int)g.gl_pathc : 0;
    snprintf(cache_path, sizeof cache_path, "%s", n > 0 ? g.gl_pathv[0] : "");
    globfree(&g);
    return n;
}

static void setup(void)
{
    snprintf(model_path, sizeof model_path, "%s", folder_file("model"));
    copy_model(models[0]);
}

static void teardown(void)
{
    while (n_files() > 0) {
        ck_assert_int_eq(unlink(cache_path), 0);
    }
    unlink(model_path);
    ck_assert_int_eq(folder_n_files(), 0);
    folder_remove();
}

/* --- starts ----------------------------------------------------------------------------------------------------- */

struct start {
    struct gguf *gguf;
    struct plan *whole, *plan;
    struct backend_model *m;
};

static uint32_t rank, n_ranks = 1; /* of which only a shard is opened */

static enum err no_meeting(void *arg, float *rows, int32_t n_rows, uint32_t width, size_t stride)
{
    (void)arg;
    (void)rows;
    (void)n_rows;
    (void)width;
    (void)stride;
    return ERR_LOST;
}

static int n_told, give_up_at = -1; /* calls of progress; the one that is answered false */

static bool on_progress(void *arg, float fraction)
{
    ck_assert(arg == NULL && fraction >= 0 && fraction <= 1);
    ck_assert(give_up_at < 0 || n_told <= give_up_at); /* it is not asked again */
    return n_told++ != give_up_at;
}

/* Opens model_path with a cache in `cache`, or none. */
static enum err open_start(struct start *s, const char *cache, int n_threads)
{
    struct err_info info = {0};
    *s = (struct start){0};
    TRY(gguf_open(model_path, &s->gguf, &info));
    TRY(model_build(s->gguf, 0, &s->whole, &info));
    TRY(plan_shard(s->whole, rank, n_ranks, &s->plan, &info));
    struct backend_config cfg = {.n_threads = n_threads,
                                 .n_pages = 1,
                                 .max_rows = 1,
                                 .max_logits = 1,
                                 .pack_cache = cache,
                                 .progress = on_progress,
                                 .reduce = no_meeting,
                                 .source = {.head = gguf_map(s->gguf)->data,
                                            .head_bytes = (size_t)gguf_data_offset(s->gguf),
                                            .bytes = gguf_file_bytes(s->gguf),
                                            .mtime_ns = gguf_mtime_ns(s->gguf)}};
    return backend_cpu.open(s->plan, &cfg, &s->m, &info);
}

static void close_start(struct start *s)
{
    backend_cpu.close(&s->m);
    plan_free(&s->plan);
    plan_free(&s->whole);
    gguf_close(&s->gguf);
}

static struct backend_info info_of(const struct start *s)
{
    struct backend_info bi;
    backend_cpu.info(s->m, &bi);
    return bi;
}

/* Whether two starts hold the same weights. */
static bool same_weights(const struct start *a, const struct start *b)
{
    for (int32_t i = 0; i < a->plan->n_weights; i++) {
        const struct cpu_weight *x = &a->m->weights[i], *y = &b->m->weights[i];
        if ((x->vector == NULL) != (y->vector == NULL) || x->n_panels != y->n_panels || x->kind != y->kind) {
            return false;
        }
        const void *p = x->vector != NULL ? (const void *)x->vector : x->panels;
        const void *q = y->vector != NULL ? (const void *)y->vector : y->panels;
        if (memcmp(p, q, x->vector != NULL ? x->n_in * sizeof(float) : x->panel_bytes * x->n_panels) != 0) {
            return false;
        }
    }
    return true;
}

/* A start that must end in `state`, holding what a start without a cache holds. The note holds `why`, or is "". */
static void expect_start(enum backend_pack_state state, const char *why)
{
    struct start plain, s;
    ck_assert_int_eq(open_start(&plain, NULL, 1), ERR_OK);
    ck_assert_int_eq(info_of(&plain).pack_state, BACKEND_PACK_OFF);
    ck_assert_int_eq(open_start(&s, folder_path(), 1), ERR_OK);
    ck_assert_msg(info_of(&s).pack_state == state, "expected state %d, found %d: %s", (int)state,
                  (int)info_of(&s).pack_state, info_of(&s).pack_note);
    const char *note = info_of(&s).pack_note;
    ck_assert_msg(why == NULL ? note[0] == '\0' : strstr(note, why) != NULL, "expected '%s', found '%s'",
                  why != NULL ? why : "", note);
    ck_assert(same_weights(&plain, &s));
    ck_assert((s.m->packed == NULL) == (state == BACKEND_PACK_MAPPED)); /* never twice */
    close_start(&plain);
    close_start(&s);
}

/* --- tests ------------------------------------------------------------------------------------------------------ */

START_TEST(the_second_start_maps_what_the_first_packed)
{
    copy_model(models[_i]);
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 1);
    unsigned char *first, *second;
    size_t n = read_all(cache_path, &first);
    expect_start(BACKEND_PACK_MAPPED, NULL);
    ck_assert_int_eq(unlink(cache_path), 0);
    struct start s;
    ck_assert_int_eq(open_start(&s, folder_path(), 3), ERR_OK); /* three threads write the same file */
    ck_assert_int_eq(info_of(&s).pack_state, BACKEND_PACK_WRITTEN);
    ck_assert_int_eq(unlink(cache_path), 0);
    close_start(&s);
    ck_assert_int_eq(open_start(&s, folder_path(), 2), ERR_OK);
    close_start(&s);
    ck_assert_uint_eq(read_all(cache_path, &second), n);
    ck_assert(memcmp(first, second, n) == 0);
    free(first);
    free(second);
}
END_TEST

/* Damages the cache file, sees it refused and replaced, and used again. */
static void expect_rebuilt(const unsigned char *bytes, size_t n, const char *why)
{
    write_all(cache_path, bytes, n);
    expect_start(BACKEND_PACK_WRITTEN, why);
    expect_start(BACKEND_PACK_MAPPED, NULL);
}

START_TEST(any_changed_byte_is_noticed)
{
    struct start s;
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 1);
    unsigned char *bytes;
    size_t n = read_all(cache_path, &bytes);
    ck_assert_uint_gt(n, HEADER_BYTES + 1000);
    for (size_t i = 0; i < n; i += i < 80 ? 1 : i < HEADER_BYTES ? HEADER_BYTES - 80 : 997) {
        bytes[i] ^= (unsigned char)(1u << i % 8);
        write_all(cache_path, bytes, n);
        ck_assert_int_eq(open_start(&s, folder_path(), 1), ERR_OK);
        bool is_used = info_of(&s).pack_state == BACKEND_PACK_MAPPED;
        close_start(&s);
        bytes[i] ^= (unsigned char)(1u << i % 8);
        bool is_header = i < 72; /* what stands in the rest of the page says nothing */
        ck_assert_msg(is_used == (i >= 72 && i < HEADER_BYTES), "byte %zu (%s): %s", i,
                      is_header ? "header" : "payload", is_used ? "used" : "not used");
    }
    bytes[n - 1] ^= 1;
    expect_rebuilt(bytes, n, "its contents are damaged");
    free(bytes);
}
END_TEST

START_TEST(other_lengths_are_noticed)
{
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 1);
    unsigned char *bytes;
    size_t n = read_all(cache_path, &bytes);
    expect_rebuilt(bytes, 0, "truncated");
    expect_rebuilt(bytes, 10, "truncated");
    expect_rebuilt(bytes, HEADER_BYTES - 1, "truncated");
    expect_rebuilt(bytes, HEADER_BYTES, "truncated");
    expect_rebuilt(bytes, n - 1, "truncated");
    bytes[n] = 0;
    expect_rebuilt(bytes, n + 1, "truncated");
    memcpy(bytes, "GGUF", 4);
    expect_rebuilt(bytes, n, "another version, or is no packed cache");
    memcpy(bytes, "INFC", 4);
    bytes[8]++;
    expect_rebuilt(bytes, n, "another version, or is no packed cache");
    bytes[8]--;
    bytes[16]++;
    expect_rebuilt(bytes, n, "its header is damaged");
    free(bytes);
}
END_TEST

START_TEST(another_model_file_is_noticed)
{
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    set_mtime(model_path, 1000001);
    expect_start(BACKEND_PACK_WRITTEN, "another model file");
    expect_start(BACKEND_PACK_MAPPED, NULL);
    unsigned char *bytes;
    size_t n = read_all(model_path, &bytes);
    bytes[n - 100] ^= 1; /* of the last weight; the time is set back */
    write_all(model_path, bytes, n);
    set_mtime(model_path, 1000001);
    expect_start(BACKEND_PACK_WRITTEN, "another model file");
    expect_start(BACKEND_PACK_MAPPED, NULL);
    free(bytes);
    ck_assert_int_eq(n_files(), 1);
    copy_model(models[1]); /* another model has a file of its own, even under the same name */
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 2);
}
END_TEST

/* A cache of another model under this one's name. */
START_TEST(another_models_cache_is_noticed)
{
    unsigned char *bytes;
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 1);
    size_t n = read_all(cache_path, &bytes);
    ck_assert_int_eq(unlink(cache_path), 0);
    copy_model(models[1]);
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 1);
    expect_rebuilt(bytes, n, "another model file");
    free(bytes);
}
END_TEST

START_TEST(shards_have_files_of_their_own)
{
    for (int pass = 0; pass < 2; pass++) {
        for (rank = 0, n_ranks = 2; rank < n_ranks; rank++) {
            expect_start(pass == 0 ? BACKEND_PACK_WRITTEN : BACKEND_PACK_MAPPED, NULL);
            ck_assert_int_eq(n_files(), pass == 0 ? (int)rank + 1 : 2);
        }
    }
    rank = 0;
    n_ranks = 1;
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 3);
}
END_TEST

START_TEST(no_trouble_with_the_folder_keeps_a_model_from_opening)
{
    struct start s;
    static const char *const places[] = {"/nowhere/at/all", "/dev/null", "/proc"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        ck_assert_int_eq(open_start(&s, places[i], 1), ERR_OK);
        ck_assert_int_eq(info_of(&s).pack_state, BACKEND_PACK_FAILED);
        ck_assert_ptr_nonnull(strstr(info_of(&s).pack_note, "not kept for the next start: cannot create"));
        close_start(&s);
    }
    expect_start(BACKEND_PACK_WRITTEN, NULL);
    ck_assert_int_eq(n_files(), 1);
    ck_assert(unlink(cache_path) == 0 && mkdir(cache_path, 0700) == 0); /* a folder in its place */
    expect_start(BACKEND_PACK_FAILED, "cannot rename");
    ck_assert_int_eq(rmdir(cache_path), 0);
}
END_TEST

/* ENOSPC and the like at each system call: the model opens all the same, and no half file stays. */
START_TEST(faults_at_any_step_leave_a_good_file_or_none)
{
    static const int errnos[] = {EIO, ENOSPC, ENOMEM};
    for (size_t k = 0; k < ARRAY_LEN(errnos); k++) {
        int n_faults = 0;
        bool fired = true;
        for (long n = 3; fired; n++) { /* 0, 1, 2: open, fstat and mmap of the model */
            struct start s;
            if (n_files() > 0 && n % 2 == 0) { /* by turns with a file to map and without */
                ck_assert_int_eq(unlink(cache_path), 0);
            }
            io_fail_at(n, errnos[k]);
            enum err err = open_start(&s, folder_path(), 1);
            fired = io_fault_fired();
            io_fail_at(-1, 0);
            ck_assert_int_eq(err, ERR_OK);
            enum backend_pack_state state = info_of(&s).pack_state;
            ck_assert(state == BACKEND_PACK_MAPPED || state == BACKEND_PACK_WRITTEN || state == BACKEND_PACK_FAILED);
            ck_assert(state != BACKEND_PACK_FAILED || strstr(info_of(&s).pack_note, strerror(errnos[k])) != NULL);
            close_start(&s);
            n_faults += fired;
            expect_start(n_files() > 0 ? BACKEND_PACK_MAPPED : BACKEND_PACK_WRITTEN, NULL);
        }
        ck_assert_int_ge(n_faults, 3);
    }
}
END_TEST

START_TEST(memory_that_ends_at_any_step_is_reported)
{
    size_t live = mem_live();
    for (int mapped = 0; mapped < 2; mapped++) {
        int n_faults = 0;
        bool fired = true;
        for (long n = 0; fired; n++) {
            struct start s;
            if (mapped == 0 && n_files() > 0) {
                ck_assert_int_eq(unlink(cache_path), 0);
            }
            mem_fail_at(n);
            enum err err = open_start(&s, folder_path(), 1);
            fired = mem_fault_fired();
            mem_fail_at(-1);
            ck_assert_int_eq(err, fired ? ERR_NOMEM : ERR_OK);
            n_faults += fired;
            close_start(&s);
            ck_assert_uint_eq(mem_live(), live);
        }
        ck_assert_int_ge(n_faults, 5);
    }
}
END_TEST

/* While it packs, hashes and writes; and, once there is a file, while that is looked at. */
START_TEST(an_opening_that_is_given_up_leaves_nothing)
{
    for (int is_there = 0; is_there < 2; is_there++) {
        size_t live = mem_live();
        int n = 0;
        enum err err = ERR_CANCELLED;
        for (; err == ERR_CANCELLED; n++) {
            struct start s;
            n_told = 0;
            give_up_at = n;
            err = open_start(&s, folder_path(), 1);
            ck_assert(err == ERR_OK || err == ERR_CANCELLED);
            ck_assert(err == ERR_OK || n_files() == is_there);
            close_start(&s);
            ck_assert_uint_eq(mem_live(), live);
        }
        give_up_at = -1;
        ck_assert_int_ge(n, is_there ? 2 : 4);
        expect_start(BACKEND_PACK_MAPPED, NULL);
    }
}
END_TEST

Suite *cpu_pack_cache_suite(void)
{
    Suite *s = suite_create("cpu_pack_cache");
    TCase *c = tcase_create("cache");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, the_second_start_maps_what_the_first_packed, 0, ARRAY_LEN(models));
    tcase_add_test(c, any_changed_byte_is_noticed);
    tcase_add_test(c, other_lengths_are_noticed);
    tcase_add_test(c, another_model_file_is_noticed);
    tcase_add_test(c, another_models_cache_is_noticed);
    tcase_add_test(c, shards_have_files_of_their_own);
    tcase_add_test(c, no_trouble_with_the_folder_keeps_a_model_from_opening);
    tcase_add_test(c, faults_at_any_step_leave_a_good_file_or_none);
    tcase_add_test(c, an_opening_that_is_given_up_leaves_nothing);
    tcase_add_test(c, memory_that_ends_at_any_step_is_reported);
    suite_add_tcase(s, c);
    return s;
}
