/* Memory of the KV cache is there before it is written, and no step waits for much of it. */
#include "engine/backend/cpu/cpu_internal.h"
#include "engine/base/mem.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

Suite *cpu_kv_ahead_suite(void);

enum { HEADS = 2, SIDES = 2 * HEADS, PAGE = 4096, PAGES = 4096, STRETCH_PAGES = (2 << 20) / PAGE };

struct rig {
    struct plan plan;
    struct cpu_kv kv;
    struct backend_model m;
};

static void open_rig(struct rig *r)
{
    struct err_info info = {0};
    memset(r, 0, sizeof *r);
    r->plan.n_layers = 1;
    r->kv = (struct cpu_kv){.heads = {.layer = 0, .n_kv_heads = HEADS}, .head_bytes = (size_t)2 * PAGE * PAGES, .n_pages = PAGES};
    r->kv.layout.k.bytes = r->kv.layout.v.bytes = PAGE;
    r->kv.layout.bytes = 2 * PAGE;
    r->m.plan = &r->plan;
    r->m.kvs = &r->kv;
    r->m.pool_bytes = (size_t)SIDES * PAGE * PAGES;
    r->m.kv = mem_map(r->m.pool_bytes, MEM_KV);
    ck_assert_ptr_nonnull(r->m.kv);
    ck_assert_int_eq(cpu_kv_ahead_open(&r->m, &info), ERR_OK);
    ck_assert_int_eq(r->m.n_sides, SIDES);
}

static void close_rig(struct rig *r)
{
    mem_free(r->m.sides);
    mem_unmap(r->m.kv, r->m.pool_bytes, MEM_KV);
}

static size_t system_pages(void) { return (size_t)(PAGE / sysconf(_SC_PAGESIZE)); }

static int n_there(unsigned char *at, size_t bytes)
{
    static unsigned char is_there[SIDES * PAGES];
    size_t n = bytes / (PAGE / system_pages());
    int sum = 0;
    ck_assert_int_eq(mincore(at, bytes, is_there), 0);
    for (size_t i = 0; i < n; i++) {
        sum += is_there[i] & 1;
    }
    return sum;
}

static unsigned char *side(struct rig *r, int i) { return r->m.kv + (size_t)i * PAGE * PAGES; }

/* A step of a row in `page`; returns the sides that had no memory for it when they were written. */
static int step(struct rig *r, int32_t page)
{
    int32_t token = 0, pos = 0, seq = 0;
    const int32_t *table = &page;
    struct backend_batch batch = {.n_rows = 1, .tokens = &token, .pos = &pos, .seq = &seq, .n_seqs = 1, .page_tables = &table};
    int n_before = n_there(r->m.kv, r->m.pool_bytes), n_late = 0;
    cpu_kv_ahead(&r->m, &batch);
    int n_got = n_there(r->m.kv, r->m.pool_bytes) - n_before;
    ck_assert_msg(n_got <= 2 * STRETCH_PAGES * (int)system_pages(), "one step asked for %d pages", n_got); /* huge ones round up */
    for (int i = 0; i < SIDES; i++) {
        unsigned char *at = side(r, i) + (size_t)page * PAGE;
        n_late += n_there(at, PAGE) == 0;
        *at = (unsigned char)(page + i);
    }
    return n_late;
}

static bool can_populate(void)
{
#ifdef MADV_POPULATE_WRITE
    unsigned char *p = mem_map(PAGE, MEM_KV);
    bool can = p != NULL && madvise(p, PAGE, MADV_POPULATE_WRITE) == 0;
    mem_unmap(p, PAGE, MEM_KV);
    return can && sysconf(_SC_PAGESIZE) <= PAGE;
#else
    return false;
#endif
}

/* _i: pages from one step to the next, as when a prompt has taken those between. */
START_TEST(memory_is_there_first)
{
    static struct rig r;
    int n_late = 0;
    if (!can_populate()) {
        printf("skip memory_is_there_first: this kernel knows no MADV_POPULATE_WRITE\n");
        return;
    }
    open_rig(&r);
    for (int32_t page = 0; page < PAGES; page += _i) {
        int late = step(&r, page);
        n_late += page >= 2 * STRETCH_PAGES ? late : 0; /* behind what the first steps themselves took */
    }
    ck_assert_int_eq(n_late, 0);
    for (int i = 0; i < SIDES; i++) { /* what stands there stays */
        ck_assert_int_eq(side(&r, i)[0], i);
        ck_assert_int_eq(side(&r, i)[(size_t)PAGE * _i], (unsigned char)(_i + i));
    }
    close_rig(&r);
}
END_TEST

/* Half of the memory is not asked for when a quarter is used. */
START_TEST(no_more_than_the_next_stretch)
{
    static struct rig r;
    open_rig(&r);
    for (int32_t page = 0; page < PAGES / 4; page++) {
        (void)step(&r, page);
    }
    int n = n_there(r.m.kv, r.m.pool_bytes), most = SIDES * (PAGES / 4 + 2 * STRETCH_PAGES) * (int)system_pages();
    ck_assert_msg(n <= most, "%d pages, at most %d", n, most);
    close_rig(&r);
}
END_TEST

Suite *cpu_kv_ahead_suite(void)
{
    Suite *s = suite_create("cpu_kv_ahead");
    TCase *t = tcase_create("cpu_kv_ahead");
    tcase_add_loop_test(t, memory_is_there_first, 1, 3);
    tcase_add_test(t, no_more_than_the_next_stretch);
    suite_add_tcase(s, t);
    return s;
}
