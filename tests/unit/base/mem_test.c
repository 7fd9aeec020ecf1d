/* Counted memory, its faults, and arenas. */
#include "engine/base/mem.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

Suite *mem_suite(void);

START_TEST(live_bytes_are_counted_by_purpose)
{
    size_t all = mem_live(), model = mem_live_of(MEM_MODEL), request = mem_live_of(MEM_REQUEST);
    char *a = mem_alloc(100, MEM_MODEL);
    char *b = mem_zalloc(50, MEM_REQUEST);
    char *m = mem_map(1 << 20, MEM_MODEL);
    ck_assert(a != NULL && b != NULL && m != NULL);
    ck_assert_uint_eq(mem_live_of(MEM_MODEL), model + 100 + (1 << 20));
    ck_assert_uint_eq(mem_live_of(MEM_REQUEST), request + 50);
    ck_assert_uint_eq(mem_live(), all + 150 + (1 << 20));
    a = mem_realloc(a, 3000, MEM_REQUEST); /* keeps the purpose it was born with */
    ck_assert_uint_eq(mem_live_of(MEM_MODEL), model + 3000 + (1 << 20));
    a = mem_realloc(a, 10, MEM_REQUEST);
    ck_assert_uint_eq(mem_live_of(MEM_MODEL), model + 10 + (1 << 20));
    mem_unmap(m, 1 << 20, MEM_MODEL);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
    ck_assert_uint_eq(mem_live(), all);
    ck_assert_str_eq(mem_purpose_name(MEM_KV), "kv");
}
END_TEST

START_TEST(blocks_are_aligned_zeroed_and_copied)
{
    for (size_t n = 0; n < 70; n++) {
        unsigned char *p = mem_zalloc(n, MEM_GENERAL);
        ck_assert_ptr_nonnull(p);
        ck_assert_uint_eq((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) {
            ck_assert_uint_eq(p[i], 0);
        }
        mem_free(p);
    }
    char *s = mem_dup("a\0b", 3, MEM_GENERAL);
    ck_assert_mem_eq(s, "a\0b\0", 4);
    s = mem_realloc(s, 200, MEM_GENERAL);
    ck_assert_mem_eq(s, "a\0b\0", 4);
    mem_free(s);
    s = mem_dup(NULL, 0, MEM_GENERAL);
    ck_assert_str_eq(s, "");
    mem_free(s);
    char *m = mem_map(5000, MEM_SCRATCH);
    ck_assert_uint_eq((uintptr_t)m % 64, 0);
    ck_assert_int_eq(m[4999], 0);
    mem_unmap(m, 5000, MEM_SCRATCH);
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
    size_t all = mem_live();
    ck_assert_ptr_null(mem_alloc(SIZE_MAX, MEM_GENERAL));
    ck_assert_ptr_null(mem_zalloc(SIZE_MAX - 8, MEM_GENERAL));
    ck_assert_ptr_null(mem_zalloc_array(SIZE_MAX / 4 + 1, 8, MEM_GENERAL)); /* wraps to 32 - 24 = 8 bytes */
    ck_assert_ptr_null(mem_zalloc_array(1ull << 33, 1ull << 33, MEM_GENERAL));
    ck_assert_ptr_null(mem_dup("x", SIZE_MAX, MEM_GENERAL));
    ck_assert_ptr_null(mem_map(0, MEM_GENERAL));
    ck_assert_ptr_null(mem_map(SIZE_MAX / 2, MEM_GENERAL));
    char *p = mem_alloc(4, MEM_GENERAL);
    memcpy(p, "abc", 4);
    ck_assert_ptr_null(mem_realloc(p, SIZE_MAX, MEM_GENERAL));
    ck_assert_str_eq(p, "abc"); /* stays the caller's */
    mem_free(p);
    ck_assert_uint_eq(mem_live(), all);
}
END_TEST

START_TEST(arrays_grow_when_full)
{
    size_t cap = 0;
    uint32_t *a = NULL;
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t *before = a;
        ck_assert_int_eq(mem_grow(&a, i, &cap, sizeof *a, MEM_GENERAL), ERR_OK);
        ck_assert(i % 64 == 0 || a == before);
        a[i] = i;
    }
    ck_assert_uint_eq(cap, 256);
    ck_assert_uint_eq(a[0], 0);
    ck_assert_uint_eq(a[199], 199);
    mem_fail_at(0);
    ck_assert_int_eq(mem_grow(&a, cap, &cap, sizeof *a, MEM_GENERAL), ERR_NOMEM);
    ck_assert_uint_eq(cap, 256);
    cap = SIZE_MAX / 8;
    ck_assert_int_eq(mem_grow(&a, cap, &cap, sizeof *a, MEM_GENERAL), ERR_NOMEM);
    ck_assert_uint_eq(a[199], 199);
    mem_free(a);
}
END_TEST

START_TEST(the_chosen_allocation_fails_once)
{
    size_t all = mem_live();
    for (long n = 0; n < 5; n++) {
        void *p[6] = {0};
        mem_fail_at(n);
        p[0] = mem_alloc(8, MEM_GENERAL);
        p[1] = mem_zalloc(8, MEM_GENERAL);
        p[2] = mem_dup("x", 1, MEM_GENERAL);
        p[3] = mem_zalloc_array(2, 4, MEM_GENERAL);
        p[4] = mem_map(64, MEM_GENERAL);
        p[5] = mem_alloc(8, MEM_GENERAL);
        for (long i = 0; i < 6; i++) {
            ck_assert_msg((p[i] == NULL) == (i == n), "allocation %ld with the fault at %ld", i, n);
        }
        ck_assert(mem_fault_fired());
        mem_unmap(p[4], 64, MEM_GENERAL);
        p[4] = NULL;
        for (int i = 0; i < 6; i++) {
            mem_free(p[i]);
        }
    }
    mem_fail_at(3);
    ck_assert(!mem_fault_fired());
    mem_fail_at(-1);
    mem_free(mem_alloc(1, MEM_GENERAL));
    ck_assert(!mem_fault_fired());
    ck_assert_uint_eq(mem_live(), all);
}
END_TEST

START_TEST(arena_blocks_are_aligned_and_apart)
{
    size_t all = mem_live();
    struct arena a;
    arena_init(&a, 256, 0, MEM_REQUEST);
    unsigned char *blocks[64];
    for (size_t i = 0; i < 64; i++) {
        size_t n = i * 7 % 100; /* some larger than what is left of a chunk */
        blocks[i] = arena_alloc(&a, n);
        ck_assert_ptr_nonnull(blocks[i]);
        ck_assert_uint_eq((uintptr_t)blocks[i] % 16, 0);
        memset(blocks[i], (int)i, n);
    }
    unsigned char *large = arena_zalloc(&a, 10000); /* larger than a chunk */
    ck_assert_ptr_nonnull(large);
    memset(large, 0xEE, 10000);
    for (size_t i = 0; i < 64; i++) {
        for (size_t k = 0; k < i * 7 % 100; k++) {
            if (blocks[i][k] != i) {
                ck_abort_msg("block %zu was overwritten", i);
            }
        }
    }
    ck_assert_str_eq(arena_dup(&a, "hello", 4), "hell");
    ck_assert_uint_gt(mem_live_of(MEM_REQUEST), 10000);
    arena_reset(&a);
    ck_assert_uint_eq(a.used_bytes, 0);
    unsigned char *again = arena_zalloc(&a, 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_uint_eq(again[i], 0); /* zeroed though the chunk was used before */
    }
    arena_fini(&a);
    ck_assert_uint_eq(mem_live(), all);
    arena_fini(&a); /* twice does no harm */
}
END_TEST

START_TEST(arena_keeps_to_its_limit_and_survives_faults)
{
    size_t all = mem_live();
    struct arena a;
    arena_init(&a, 64, 160, MEM_REQUEST);
    ck_assert_ptr_nonnull(arena_alloc(&a, 100)); /* counts as 112 */
    ck_assert_ptr_null(arena_alloc(&a, 49));
    ck_assert_ptr_nonnull(arena_alloc(&a, 48));
    ck_assert_ptr_null(arena_alloc(&a, 1));
    ck_assert_ptr_null(arena_alloc(&a, SIZE_MAX));
    ck_assert_ptr_null(arena_dup(&a, "x", SIZE_MAX));
    ck_assert_ptr_null(arena_zalloc_array(&a, SIZE_MAX / 4 + 1, 8)); /* wraps */
    ck_assert_int_eq(arena_ok(&a), ERR_NOMEM);                       /* until it is reset */
    arena_reset(&a);
    ck_assert_int_eq(arena_ok(&a), ERR_OK);
    ck_assert_ptr_nonnull(arena_zalloc_array(&a, 5, 8));
    ck_assert_int_eq(arena_ok(&a), ERR_OK);
    arena_reset(&a);
    ck_assert_ptr_nonnull(arena_alloc(&a, 160));
    arena_reset(&a);
    mem_fail_at(0);
    void *p = arena_alloc(&a, 150); /* the kept chunk may be too small: then memory is asked for and refused */
    bool fired = mem_fault_fired();
    mem_fail_at(-1);
    ck_assert((p == NULL) == fired);
    ck_assert_ptr_nonnull(arena_alloc(&a, p == NULL ? 150 : 1));
    arena_fini(&a);
    ck_assert_uint_eq(mem_live(), all);
}
END_TEST

Suite *mem_suite(void)
{
    Suite *s = suite_create("mem");
    TCase *c = tcase_create("mem");
    tcase_add_test(c, live_bytes_are_counted_by_purpose);
    tcase_add_test(c, blocks_are_aligned_zeroed_and_copied);
    tcase_add_test(c, impossible_sizes_are_refused);
    tcase_add_test(c, arrays_grow_when_full);
    tcase_add_test(c, the_chosen_allocation_fails_once);
    tcase_add_test(c, arena_blocks_are_aligned_and_apart);
    tcase_add_test(c, arena_keeps_to_its_limit_and_survives_faults);
    suite_add_tcase(s, c);
    return s;
}
