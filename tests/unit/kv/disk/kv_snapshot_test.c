/* Names of prefixes, and what a file must be to be used: every bit of it. */
#include "engine/kv/disk/kv_snapshot.h"

#include <check.h>
#include <string.h>

Suite *kv_snapshot_suite(void);

enum { PAYLOAD = 96 };

static struct kv_snapshot page_of(uint8_t which)
{
    struct kv_snapshot s = {.kind = KV_SNAPSHOT_PAGE};
    memset(s.name.bytes, which, sizeof s.name.bytes);
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        s.tokens[i] = which + i;
    }
    return s;
}

START_TEST(a_name_is_of_key_model_salt_and_every_token)
{
    const struct kv_name key = {{1}}, other_key = {{2}}, model = {{3}}, other_model = {{4}};
    struct kv_name roots[6];
    ck_assert_int_eq(kv_name_root(&key, &model, NULL, &roots[0]), ERR_OK);
    ck_assert_int_eq(kv_name_root(&other_key, &model, NULL, &roots[1]), ERR_OK);
    ck_assert_int_eq(kv_name_root(&key, &other_model, NULL, &roots[2]), ERR_OK);
    ck_assert_int_eq(kv_name_root(&key, &model, "", &roots[3]), ERR_OK);
    ck_assert_int_eq(kv_name_root(&key, &model, "a", &roots[4]), ERR_OK);
    ck_assert_int_eq(kv_name_root(&key, &model, "b", &roots[5]), ERR_OK);
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < i; k++) {
            ck_assert_mem_ne(&roots[i], &roots[k], sizeof roots[0]);
        }
    }
    int32_t tokens[KV_PAGE_TOKENS] = {0};
    struct kv_name first, again, other;
    ck_assert_int_eq(kv_name_child(&roots[0], tokens, &first), ERR_OK);
    ck_assert_int_eq(kv_name_child(&roots[0], tokens, &again), ERR_OK);
    ck_assert_mem_eq(&first, &again, sizeof first);
    ck_assert_int_eq(kv_name_child(&first, tokens, &other), ERR_OK);
    ck_assert_mem_ne(&first, &other, sizeof first);
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        tokens[i] = 1;
        ck_assert_int_eq(kv_name_child(&roots[0], tokens, &other), ERR_OK);
        ck_assert_mem_ne(&first, &other, sizeof first);
        tokens[i] = 0;
    }
    ck_assert_int_eq(kv_name_of("abc", 3, &other), ERR_OK); /* FIPS 180-2, B.1 */
    ck_assert_mem_eq(other.bytes, "\xba\x78\x16\xbf\x8f\x01\xcf\xea", 8);
}
END_TEST

START_TEST(a_file_is_what_it_was_or_not_used)
{
    unsigned char file[KV_SNAPSHOT_HEAD_BYTES + PAYLOAD], copy[sizeof file];
    const struct kv_snapshot s = page_of(7);
    const struct kv_name model = {{9}}, other_model = {{8}};
    memset(file, 0x5A, sizeof file);
    kv_snapshot_seal(&s, &model, file, PAYLOAD);
    ck_assert_ptr_null(kv_snapshot_fault(&s, &model, file, PAYLOAD));
    for (size_t bit = 0; bit < sizeof file * 8; bit++) {
        memcpy(copy, file, sizeof file);
        copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
        ck_assert_msg(kv_snapshot_fault(&s, &model, copy, PAYLOAD) != NULL, "bit %zu", bit);
    }
    ck_assert_ptr_nonnull(kv_snapshot_fault(&s, &other_model, file, PAYLOAD));
    ck_assert_ptr_nonnull(kv_snapshot_fault(&s, &model, file, PAYLOAD - 1));
    struct kv_snapshot other = s;
    other.kind = KV_SNAPSHOT_STATE;
    ck_assert_ptr_nonnull(kv_snapshot_fault(&other, &model, file, PAYLOAD));
    other = s;
    other.name.bytes[31] ^= 1;
    ck_assert_ptr_nonnull(kv_snapshot_fault(&other, &model, file, PAYLOAD));
    for (int i = 0; i < KV_PAGE_TOKENS; i++) { /* also when two prefixes had the same name */
        other = s;
        other.tokens[i]++;
        ck_assert_str_eq(kv_snapshot_fault(&other, &model, file, PAYLOAD), "it is of other tokens");
    }
}
END_TEST

START_TEST(a_file_is_called_after_its_name)
{
    char file[KV_SNAPSHOT_FILE_BYTES];
    struct kv_snapshot s = page_of(0xA0);
    for (int k = 0; k < KV_SNAPSHOT_KINDS; k++) {
        enum kv_snapshot_kind kind;
        struct kv_name name;
        kv_snapshot_file((enum kv_snapshot_kind)k, &s.name, file);
        ck_assert(kv_snapshot_of_file(file, &kind, &name));
        ck_assert_int_eq(kind, k);
        ck_assert_mem_eq(&name, &s.name, sizeof name);
        for (size_t i = 0; i < strlen(file); i++) { /* cut, or with another letter */
            char bad[KV_SNAPSHOT_FILE_BYTES];
            memcpy(bad, file, i);
            bad[i] = '\0';
            ck_assert(!kv_snapshot_of_file(bad, &kind, &name));
            memcpy(bad, file, sizeof bad);
            bad[i] = 'X';
            ck_assert(!kv_snapshot_of_file(bad, &kind, &name));
        }
    }
    enum kv_snapshot_kind kind;
    struct kv_name name;
    ck_assert(!kv_snapshot_of_file("key", &kind, &name) && !kv_snapshot_of_file("", &kind, &name));
}
END_TEST

Suite *kv_snapshot_suite(void)
{
    Suite *s = suite_create("kv_snapshot");
    TCase *c = tcase_create("kv_snapshot");
    tcase_add_test(c, a_name_is_of_key_model_salt_and_every_token);
    tcase_add_test(c, a_file_is_what_it_was_or_not_used);
    tcase_add_test(c, a_file_is_called_after_its_name);
    suite_add_tcase(s, c);
    return s;
}
