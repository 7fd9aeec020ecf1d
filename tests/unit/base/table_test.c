/* Tables against what they should hold: growth, collisions, removal and lack of memory. */
#include "engine/base/table.h"

#include <check.h>
#include <string.h>

Suite *table_suite(void);

enum { MANY = 100000 };

/* Keys are numbers; hashes are their low bits, or the same for all, so that all collide. */
struct keys {
    uint32_t at[MANY];
    uint64_t hash_mask;
};
static struct keys keys;

static uint64_t hash_key(uint64_t mask, uint32_t key) { return key * 0x9e3779b97f4a7c15u >> 20 & mask; }
static uint64_t hash_of(const void *all, uint32_t i)
{
    const struct keys *k = all;
    return hash_key(k->hash_mask, k->at[i]);
}
static bool is_key(const void *key, uint32_t i) { return keys.at[i] == *(const uint32_t *)key; }

static uint32_t find(const struct table *t, uint32_t key)
{
    return table_find(t, hash_key(keys.hash_mask, key), is_key, &key);
}

static void add(struct table *t, uint32_t i, uint32_t key)
{
    keys.at[i] = key;
    ck_assert_int_eq(table_reserve(t, t->n + 1, hash_of, &keys, MEM_GENERAL), ERR_OK);
    table_add(t, hash_of(&keys, i), i);
}

START_TEST(growth_keeps_all)
{
    struct table t = {0};
    keys.hash_mask = UINT64_MAX;
    ck_assert_uint_eq(find(&t, 7), TABLE_NONE);
    ck_assert_uint_eq(table_bytes(&t), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        add(&t, i, 3 * i);
        ck_assert_uint_ge(table_bytes(&t), 2 * t.n * sizeof(uint32_t));
    }
    ck_assert_uint_eq(t.n, MANY);
    for (uint32_t key = 0; key < 3 * MANY; key++) {
        ck_assert_uint_eq(find(&t, key), key % 3 == 0 ? key / 3 : TABLE_NONE);
    }
    table_clear(&t);
    ck_assert_uint_eq(find(&t, 0), TABLE_NONE);
    add(&t, 5, 0);
    ck_assert_uint_eq(find(&t, 0), 5);
    table_fini(&t);
    ck_assert_uint_eq(find(&t, 0), TABLE_NONE);
}
END_TEST

START_TEST(reserved_room_is_enough)
{
    struct table t = {0};
    keys.hash_mask = UINT64_MAX;
    ck_assert_int_eq(table_reserve(&t, 1000, hash_of, &keys, MEM_GENERAL), ERR_OK);
    size_t bytes = table_bytes(&t);
    for (uint32_t i = 0; i < 1000; i++) {
        add(&t, i, i);
    }
    ck_assert_uint_eq(table_bytes(&t), bytes);
    ck_assert_uint_eq(find(&t, 999), 999);
    table_fini(&t);
}
END_TEST

START_TEST(keys_of_one_hash_are_told_apart)
{
    struct table t = {0};
    keys.hash_mask = 0;
    for (uint32_t i = 0; i < 500; i++) {
        add(&t, i, 2 * i);
    }
    for (uint32_t key = 0; key < 1000; key++) {
        ck_assert_uint_eq(find(&t, key), key % 2 == 0 ? key / 2 : TABLE_NONE);
    }
    table_fini(&t);
}
END_TEST

/* Hashes with few bits collide and wrap around the end. The last index takes the number of each one that goes. */
START_TEST(removal_leaves_the_others)
{
    enum { KEYS = 300 };
    struct table t = {0};
    uint32_t n = 0, rest = 1, hits;
    keys.hash_mask = _i == 0 ? UINT64_MAX : (1u << 3 * _i) - 1;
    for (int turn = 0; turn < 5000; turn++) {
        rest = rest * 1664525u + 1013904223u;
        uint32_t key = (rest >> 8) % KEYS, i = find(&t, key);
        if (i == TABLE_NONE) {
            add(&t, n++, key);
        } else {
            table_remove(&t, hash_of(&keys, i), i, hash_of, &keys);
            if (i != --n) {
                table_renumber(&t, hash_of(&keys, n), n, i);
                keys.at[i] = keys.at[n];
            }
        }
        if (turn % 50 == 0) {
            hits = 0;
            for (uint32_t k = 0; k < KEYS; k++) {
                i = find(&t, k);
                ck_assert(i == TABLE_NONE || (i < n && keys.at[i] == k));
                hits += i != TABLE_NONE;
            }
            ck_assert_uint_eq(hits, n);
            ck_assert_uint_eq(t.n, n);
        }
    }
    table_fini(&t);
}
END_TEST

START_TEST(memory_of_the_caller_is_used)
{
    uint32_t slots[64] = {0};
    struct table t;
    keys.hash_mask = 7;
    table_use(&t, slots, 64);
    size_t before = mem_live();
    for (uint32_t i = 0; i < 32; i++) {
        add(&t, i, i);
    }
    ck_assert_uint_eq(mem_live(), before);
    for (uint32_t i = 0; i < 33; i++) {
        ck_assert_uint_eq(find(&t, i), i < 32 ? i : TABLE_NONE);
    }
}
END_TEST

START_TEST(without_memory_it_stays_as_it_was)
{
    struct table t = {0};
    size_t before = mem_live_of(MEM_REQUEST);
    uint32_t n = 0, n_failed = 0;
    keys.hash_mask = UINT64_MAX;
    while (n < 5000) {
        size_t bytes = table_bytes(&t);
        mem_fail_at(0);
        enum err err = table_reserve(&t, n + 1, hash_of, &keys, MEM_REQUEST);
        bool has_fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_int_eq(err, has_fired ? ERR_NOMEM : ERR_OK);
        ck_assert_uint_eq(table_bytes(&t), bytes);
        ck_assert_uint_eq(t.n, n);
        n_failed += has_fired;
        for (uint32_t i = 0; i < n; i += 1 + n / 8) {
            ck_assert_uint_eq(find(&t, i), i);
        }
        keys.at[n] = n;
        ck_assert_int_eq(table_reserve(&t, n + 1, hash_of, &keys, MEM_REQUEST), ERR_OK);
        table_add(&t, hash_of(&keys, n), n);
        n++;
    }
    ck_assert_uint_ge(n_failed, 9); /* each time that it grew */
    ck_assert_uint_eq(mem_live_of(MEM_REQUEST), before + table_bytes(&t));
    ck_assert_int_eq(table_reserve(&t, SIZE_MAX, hash_of, &keys, MEM_REQUEST), ERR_NOMEM);
    ck_assert_int_eq(table_reserve(&t, SIZE_MAX / 2, hash_of, &keys, MEM_REQUEST), ERR_NOMEM);
    ck_assert_uint_eq(find(&t, 17), 17);
    table_fini(&t);
    ck_assert_uint_eq(mem_live_of(MEM_REQUEST), before);
}
END_TEST

Suite *table_suite(void)
{
    Suite *s = suite_create("table");
    TCase *c = tcase_create("table");
    tcase_add_test(c, growth_keeps_all);
    tcase_add_test(c, reserved_room_is_enough);
    tcase_add_test(c, keys_of_one_hash_are_told_apart);
    tcase_add_loop_test(c, removal_leaves_the_others, 0, 4);
    tcase_add_test(c, memory_of_the_caller_is_used);
    tcase_add_test(c, without_memory_it_stays_as_it_was);
    suite_add_tcase(s, c);
    return s;
}
