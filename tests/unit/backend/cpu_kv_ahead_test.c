/* Memory of the KV cache is there before it is written, and no step waits for much of it. */
#include "engine/backend/cpu/cpu_internal.h"
#include "engine/base/mem.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

Suite *cpu_kv_ahead_suite(void);

enum { PAGES = 256, WINDOWS = 128, HUGE_PAGE = 2 << 20, AHEAD = 8, SYSTEM_PAGE = 4096 };

/* Bytes of a page and of a window page: less than what is asked for at a time, and more. */
static const size_t page_bytes[][2] = {{192 << 10, 64 << 10}, {(768 << 10) + 64, 0}, {(3 << 20) + 192, (1 << 20) + 64}};

struct rig {
    struct plan plan;
    struct backend_model m;
};

static void open_rig(struct rig *r, const size_t bytes[2])
{
    memset(r, 0, sizeof *r);
    r->m.plan = &r->plan;
    r->m.kv_pools[false] = (struct cpu_kv_pool){.page_bytes = bytes[false], .n_pages = PAGES, .highest = -1};
    r->m.kv_pools[true] =
        (struct cpu_kv_pool){.at = bytes[false] * PAGES, .page_bytes = bytes[true], .n_pages = WINDOWS, .highest = -1};
    r->m.pool_bytes = bytes[false] * PAGES + bytes[true] * WINDOWS;
    r->m.kv = mem_map(r->m.pool_bytes, MEM_KV);
    ck_assert_ptr_nonnull(r->m.kv);
}

static void close_rig(struct rig *r) { mem_unmap(r->m.kv, r->m.pool_bytes, MEM_KV); }

/* System pages of the bytes that are there. */
static size_t n_there(unsigned char *at, size_t bytes)
{
    static unsigned char is_there[((size_t)PAGES * (4 << 20)) / SYSTEM_PAGE];
    unsigned char *from = at - (uintptr_t)at % SYSTEM_PAGE;
    size_t n = ((size_t)(at + bytes - from) + SYSTEM_PAGE - 1) / SYSTEM_PAGE, sum = 0;
    ck_assert_int_eq(mincore(from, n * SYSTEM_PAGE, is_there), 0);
    for (size_t i = 0; i < n; i++) {
        sum += is_there[i] & 1;
    }
    return sum;
}

static unsigned char *page_of(struct rig *r, bool is_local, int32_t page)
{
    const struct cpu_kv_pool *p = &r->m.kv_pools[is_local];
    return r->m.kv + p->at + (size_t)page * p->page_bytes;
}

/* A step of a row in `page` and `window`; true if all of them was there when they were written. */
static bool step(struct rig *r, int32_t page, int32_t window)
{
    int32_t token = 0, pos = 0, seq = 0;
    const int32_t *table = &page, *windows = &window, ids[] = {page, window};
    struct backend_batch batch = {.n_rows = 1,
                                  .tokens = &token,
                                  .pos = &pos,
                                  .seq = &seq,
                                  .n_seqs = 1,
                                  .page_tables = &table,
                                  .window_tables = &windows};
    size_t before = n_there(r->m.kv, r->m.pool_bytes);
    cpu_kv_ahead(&r->m, &batch);
    size_t got = n_there(r->m.kv, r->m.pool_bytes) - before;
    ck_assert_msg(got <= 2 * 2 * HUGE_PAGE / SYSTEM_PAGE, "one step asked for %zu pages", got); /* huge ones round up */
    bool is_there = true;
    for (int is_local = false; is_local <= true; is_local++) {
        size_t n = r->m.kv_pools[is_local].page_bytes;
        unsigned char *at = page_of(r, is_local, ids[is_local]);
        is_there = is_there && (n == 0 || n_there(at, n) >= n / SYSTEM_PAGE);
        memset(at, page + is_local, n);
    }
    return is_there;
}

static bool can_populate(void)
{
#ifdef MADV_POPULATE_WRITE
    unsigned char *p = mem_map(SYSTEM_PAGE, MEM_KV);
    bool can = p != NULL && madvise(p, SYSTEM_PAGE, MADV_POPULATE_WRITE) == 0;
    mem_unmap(p, SYSTEM_PAGE, MEM_KV);
    return can && sysconf(_SC_PAGESIZE) == SYSTEM_PAGE;
#else
    return false;
#endif
}

/* A page is begun each fourth step, as rows fill it; window pages as far as there are any. */
START_TEST(memory_is_there_first)
{
    static struct rig r;
    int n_late = 0;
    if (!can_populate()) {
        printf("skip memory_is_there_first: this kernel knows no MADV_POPULATE_WRITE\n");
        return;
    }
    open_rig(&r, page_bytes[_i]);
    for (int32_t i = 0; i < 4 * PAGES; i++) {
        int late = !step(&r, i / 4, MIN_OF(i / 4, WINDOWS - 1));
        n_late += i >= 4 * AHEAD ? late : 0; /* after what the first steps themselves took */
    }
    ck_assert_int_eq(n_late, 0);
    ck_assert_int_eq(*page_of(&r, false, 1), 1); /* what stands there stays */
    ck_assert_int_eq(*page_of(&r, false, PAGES - 1), PAGES - 1);
    close_rig(&r);
}
END_TEST

/* Half of the memory is not asked for when a quarter is used. */
START_TEST(no_more_than_a_few_pages)
{
    static struct rig r;
    open_rig(&r, page_bytes[_i]);
    for (int32_t page = 0; page < PAGES / 4; page++) {
        for (int i = 0; i < 8; i++) {
            (void)step(&r, page, 0);
        }
    }
    size_t most =
        (PAGES / 4 + AHEAD) * page_bytes[_i][false] + (1 + AHEAD) * page_bytes[_i][true] + 4 * (size_t)HUGE_PAGE;
    size_t n = n_there(r.m.kv, r.m.pool_bytes);
    ck_assert_msg(n <= most / SYSTEM_PAGE, "%zu pages, at most %zu", n, most / SYSTEM_PAGE);
    close_rig(&r);
}
END_TEST

Suite *cpu_kv_ahead_suite(void)
{
    Suite *s = suite_create("cpu_kv_ahead");
    TCase *t = tcase_create("cpu_kv_ahead");
    tcase_add_loop_test(t, memory_is_there_first, 0, 3);
    tcase_add_loop_test(t, no_more_than_a_few_pages, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
