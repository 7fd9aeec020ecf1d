/* The published examples [FIPS 180-4's, NIST CSRC "SHA256.pdf"; a million a's], in pieces of every size. */
#include "engine/base/sha256.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *sha256_suite(void);

static const char *sum_of(const char *text, size_t n, size_t piece)
{
    static char hex[2 * SHA256_BYTES + 1];
    unsigned char sum[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    for (size_t at = 0; at < n; at += piece) {
        sha256_update(&s, text + at, n - at < piece ? n - at : piece);
    }
    sha256_final(&s, sum);
    for (int i = 0; i < SHA256_BYTES; i++) {
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    }
    return hex;
}

START_TEST(published_examples)
{
    static const struct {
        const char *text, *sum;
    } rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqr"
         "stu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t piece = 1; piece < 130; piece++) {
            ck_assert_str_eq(sum_of(rows[i].text, strlen(rows[i].text), piece), rows[i].sum);
        }
    }
    static char a[1000000];
    memset(a, 'a', sizeof a);
    ck_assert_str_eq(sum_of(a, sizeof a, 4099), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

Suite *sha256_suite(void)
{
    Suite *s = suite_create("sha256");
    TCase *c = tcase_create("sha256");
    tcase_add_test(c, published_examples);
    suite_add_tcase(s, c);
    return s;
}
