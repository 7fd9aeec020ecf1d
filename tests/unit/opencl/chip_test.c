/* Chips by the names that drivers give them and by PCI ids; what is not AMD's, or not of the table, is none. */
#include "opencl/chip.h"

#include <check.h>

Suite *chip_suite(void);

static const struct {
    const char *name, *gfx;
    enum chip_family family;
} named[] = {
    {"gfx1100", "gfx1100", CHIP_RDNA3},
    {"AMD Radeon RX 7900 XTX (radeonsi, navi31, LLVM 19.1.7, DRM 3.59, 6.12)", "gfx1100", CHIP_RDNA3},
    {"AMD Radeon RX 7900 XTX (gfx1100, LLVM 15.0.7, DRM 3.49, 6.1)", "gfx1100", CHIP_RDNA3},
    {"AMD Radeon RX 7800 XT (radeonsi, navi32, ACO, DRM 3.57)", "gfx1101", CHIP_RDNA3},
    {"AMD Radeon RX 7600 (radeonsi, navi33, ACO, DRM 3.57)", "gfx1102", CHIP_RDNA3},
    {"AMD Radeon 780M (radeonsi, gfx1103_r1, LLVM 16, DRM 3.54)", "gfx1103", CHIP_RDNA3},
    {"AMD Radeon 890M (radeonsi, strix1, ACO)", "gfx1150", CHIP_RDNA3},
    {"AMD Radeon 8060S Graphics (radeonsi, strix_halo, ACO, DRM 3.64)", "gfx1151", CHIP_RDNA3},
    {"AMD Radeon RX 9070 XT (radeonsi, navi48, ACO)", "gfx1201", CHIP_RDNA4},
    {"gfx1200", "gfx1200", CHIP_RDNA4},
};

START_TEST(a_driver_s_name_tells_the_chip)
{
    const struct chip *c = chip_of_name(named[_i].name);
    ck_assert_ptr_nonnull(c);
    ck_assert_str_eq(c->gfx, named[_i].gfx);
    ck_assert_int_eq(c->family, named[_i].family);
}
END_TEST

START_TEST(other_names_tell_none)
{
    static const char *const others[] = {"",
                                         "gfx1030",
                                         "gfx90a:sramecc+:xnack-",
                                         "NVIDIA H100 PCIe",
                                         "AMD Radeon RX 6800 (radeonsi, navi21, ACO)",
                                         "pthread-skylake-AMD EPYC"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ck_assert_msg(chip_of_name(others[i]) == NULL, "%s", others[i]);
    }
}
END_TEST

START_TEST(an_id_is_amd_s_alone)
{
    ck_assert_str_eq(chip_of_pci(0x1002, 0x744c)->gfx, "gfx1100");
    ck_assert_int_eq(chip_of_pci(0x1002, 0x7550)->family, CHIP_RDNA4);
    ck_assert(chip_of_pci(0x1002, 0x1586)->is_integrated && !chip_of_pci(0x1002, 0x747e)->is_integrated);
    ck_assert_ptr_null(chip_of_pci(0x10de, 0x744c));
    ck_assert_ptr_null(chip_of_pci(0x1002, 0x73bf)); /* RDNA2 */
    ck_assert_str_eq(chip_family_name(CHIP_RDNA3), "RDNA3");
    ck_assert_str_eq(chip_family_name(CHIP_RDNA4), "RDNA4");
}
END_TEST

Suite *chip_suite(void)
{
    Suite *s = suite_create("chip");
    TCase *t = tcase_create("chip");
    tcase_add_loop_test(t, a_driver_s_name_tells_the_chip, 0, (int)(sizeof named / sizeof named[0]));
    tcase_add_test(t, other_names_tell_none);
    tcase_add_test(t, an_id_is_amd_s_alone);
    suite_add_tcase(s, t);
    return s;
}
