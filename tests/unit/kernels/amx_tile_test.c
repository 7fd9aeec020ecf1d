/* The emulated tile instructions, by which checkkern judges amx's kernels: results worked out by hand, and each misuse
 * that the manual names is noticed. Intel SDM vol. 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBSSD. */
#include "tests/kernels/amx_emulated.h"

#include <check.h>

Suite *amx_tile_suite(void);

/* C 2 x 12 bytes, A 2 x 8 bytes, B 2 x 12 bytes; tile 3 is not there, tile 4 has rows of 6 bytes. */
static struct amx_config small(void)
{
    struct amx_config c = {.palette = 1};
    c.rows[0] = 2, c.row_bytes[0] = 12;
    c.rows[1] = 2, c.row_bytes[1] = 8;
    c.rows[2] = 2, c.row_bytes[2] = 12;
    c.rows[4] = 2, c.row_bytes[4] = 6;
    return c;
}

static void begin(const struct amx_config *c)
{
    amx_release();
    amx_cpu.fault[0] = '\0';
    amx_configure(c);
}

START_TEST(product_is_that_of_the_manual)
{
    static const int8_t a[2][8] = {{1, 2, 3, 4, -1, 0, 0, 0}, {-128, -128, -128, -128, 0, 0, 0, 127}};
    static const uint8_t b[2][12] = {{1, 1, 1, 1, 10, 0, 0, 0, 255, 255, 255, 255},
                                     {200, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 128}};
    static const int32_t is_signed[2][3] = {{10 + 56, 10, -10}, {-512, -1280 + 127, 512 - 128 * 127}};
    static const int32_t is_unsigned[2][3] = {{10 - 200, 10, 2550}, {-512, -1280 + 127, -128 * 1020 + 128 * 127}};
    for (int i = 0; i < 2; i++) {
        struct amx_config c = small();
        int32_t got[2][4] = {{7, 7, 7, 7}, {7, 7, 7, 7}};
        begin(&c);
        AMX_ZERO(0);
        AMX_LOAD(1, a, sizeof a[0]);
        AMX_LOAD(2, b, sizeof b[0]);
        if (i == 0) {
            AMX_DOT_SIGNED(0, 1, 2);
        } else {
            AMX_DOT_UNSIGNED(0, 1, 2);
        }
        AMX_STORE(0, got, sizeof got[0]);
        ck_assert_str_eq(amx_cpu.fault, "");
        for (int m = 0; m < 2; m++) {
            ck_assert_mem_eq(got[m], i == 0 ? is_signed[m] : is_unsigned[m], 12);
            ck_assert_int_eq(got[m][3], 7); /* after the tile's row */
        }
        AMX_DOT_UNSIGNED(0, 1, 2); /* adds to what is there */
        AMX_STORE(0, got, sizeof got[0]);
        ck_assert_int_eq(got[0][1], 20);
        AMX_RELEASE();
    }
}
END_TEST

START_TEST(configuration_clears_the_tiles)
{
    struct amx_config c = small();
    int32_t ones[2][3] = {{1, 1, 1}, {1, 1, 1}};
    begin(&c);
    AMX_LOAD(0, ones, sizeof ones[0]);
    begin(&c);
    AMX_STORE(0, ones, sizeof ones[0]);
    ck_assert_int_eq(ones[1][2], 0);
}
END_TEST

/* --- faults ----------------------------------------------------------------------------------------------------- */

static void palette_2(struct amx_config *c) { c->palette = 2; }
static void reserved_byte(struct amx_config *c) { c->reserved[13] = 1; }
static void ninth_tile_bytes(struct amx_config *c) { c->row_bytes[8] = 64; }
static void ninth_tile_rows(struct amx_config *c) { c->rows[8] = 1; }
static void wide(struct amx_config *c) { c->row_bytes[7] = 65, c->rows[7] = 1; }
static void high(struct amx_config *c) { c->row_bytes[7] = 4, c->rows[7] = 17; }
static void no_rows(struct amx_config *c) { c->row_bytes[7] = 4; }
static void no_bytes(struct amx_config *c) { c->rows[7] = 4; }
static void restart(struct amx_config *c) { c->start_row = 1; }

static const struct {
    void (*spoil)(struct amx_config *c);
    const char *fault;
} bad_configs[] = {
    {palette_2, "palette"},        {reserved_byte, "reserved"}, {ninth_tile_bytes, "reserved"},
    {ninth_tile_rows, "reserved"}, {wide, "64 bytes"},          {high, "16 rows"},
    {no_rows, "without"},          {no_bytes, "without"},       {restart, "start_row"},
};

START_TEST(bad_configurations_are_faults)
{
    struct amx_config c = small();
    bad_configs[_i].spoil(&c);
    begin(&c);
    ck_assert_msg(strstr(amx_cpu.fault, bad_configs[_i].fault) != NULL, "%s", amx_cpu.fault);
    ck_assert(!amx_cpu.is_configured);
}
END_TEST

static unsigned char memory[1024];

static void load_absent(void) { AMX_LOAD(3, memory, 64); }
static void store_absent(void) { AMX_STORE(3, memory, 64); }
static void zero_absent(void) { AMX_ZERO(3); }
static void zero_released(void)
{
    AMX_RELEASE();
    AMX_ZERO(0);
}
static void configure_twice(void)
{
    struct amx_config c = small();
    AMX_CONFIGURE(&c);
}
static void same_tile(void) { AMX_DOT_SIGNED(0, 1, 1); }
static void same_result(void) { AMX_DOT_SIGNED(2, 1, 2); }
static void odd_bytes(void) { AMX_DOT_SIGNED(0, 4, 2); }
static void wrong_columns(void) { AMX_DOT_UNSIGNED(1, 0, 2); }
static void wrong_depth(void) { AMX_DOT_UNSIGNED(0, 2, 5); }
static void wrong_rows(void) { AMX_DOT_UNSIGNED(6, 1, 2); }

static const struct {
    void (*misuse)(void);
    const char *fault;
} misuses[] = {
    {load_absent, "TILELOADD: #UD, a tile that is not"},
    {store_absent, "TILESTORED: #UD"},
    {zero_absent, "TILEZERO: #UD"},
    {zero_released, "TILEZERO: #UD, tiles are not configured"},
    {configure_twice, "not released"},
    {same_tile, "TDPBSSD: #UD, a tile named twice"},
    {same_result, "TDPBSSD: #UD, a tile named twice"},
    {odd_bytes, "whole dwords"},
    {wrong_columns, "TDPBSUD: #UD, C and B differ"},
    {wrong_depth, "dword in a row for each row of B"},
    {wrong_rows, "C and A differ in rows"},
};

START_TEST(misuse_is_a_fault_and_poisons_what_is_stored)
{
    struct amx_config c = small();
    c.rows[5] = 4, c.row_bytes[5] = 12;
    c.rows[6] = 1, c.row_bytes[6] = 12;
    int32_t stored;
    begin(&c);
    ck_assert_str_eq(amx_cpu.fault, "");
    misuses[_i].misuse();
    ck_assert_msg(strstr(amx_cpu.fault, misuses[_i].fault) != NULL, "%s", amx_cpu.fault);
    AMX_STORE(0, memory, 64);
    memcpy(&stored, memory, sizeof stored);
    ck_assert_int_eq(stored, AMX_POISON);
    begin(&c);
    AMX_STORE(0, memory, 64);
    memcpy(&stored, memory, sizeof stored);
    ck_assert_int_eq(stored, 0);
}
END_TEST

Suite *amx_tile_suite(void)
{
    Suite *s = suite_create("amx_tile");
    TCase *c = tcase_create("amx_tile");
    tcase_add_test(c, product_is_that_of_the_manual);
    tcase_add_test(c, configuration_clears_the_tiles);
    tcase_add_loop_test(c, bad_configurations_are_faults, 0, (int)ARRAY_LEN(bad_configs));
    tcase_add_loop_test(c, misuse_is_a_fault_and_poisons_what_is_stored, 0, (int)ARRAY_LEN(misuses));
    suite_add_tcase(s, c);
    return s;
}
