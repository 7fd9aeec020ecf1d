/* Devices and cards of machines that are made up: which belongs to which, which is taken and why, what is said of them. */
#include "opencl/inventory.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *inventory_suite(void);

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)

static struct inventory v;

static void set_up(void) { memset(&v, 0, sizeof v); }

static int add_card(uint8_t bus, uint16_t device, uint64_t vram, uint64_t window)
{
    v.cards[v.n_cards] = (struct pci_card){.at = {0, bus, 0, 0},
                                           .vendor = 0x1002,
                                           .device = device,
                                           .vram_bytes = vram,
                                           .bar_bytes = {window, 0, 2 * MIB},
                                           .driver = "amdgpu"};
    return v.n_cards++;
}

/* bus: 0 for one that does not say. */
static struct device_caps *add_device(const char *platform, const char *name, uint8_t bus, bool is_gpu)
{
    struct device_caps *c = &v.probe.devices[v.probe.n_devices++];
    *c = (struct device_caps){.is_gpu = is_gpu,
                              .is_integrated = !is_gpu,
                              .is_available = true,
                              .has_compiler = true,
                              .is_little_endian = true,
                              .version = 300,
                              .local_bytes = 65536,
                              .max_group = 1024,
                              .has_pci = bus != 0,
                              .pci = {0, bus, 0, 0}};
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->platform, sizeof c->platform, "%s", platform);
    const struct chip *chip = chip_of_name(name);
    snprintf(c->gfx, sizeof c->gfx, "%s", chip != NULL ? chip->gfx : "");
    inventory_match(&v);
    return c;
}

static void add_platform(const char *name)
{
    snprintf(v.probe.platforms[v.probe.n_platforms++].name, sizeof v.probe.platforms[0].name, "%s", name);
}

static void takes(const char *which, int device, const char *why)
{
    char found[DEVICE_TEXT_BYTES];
    struct err_info info = {0};
    int i = -1;
    inventory_match(&v);
    ck_assert_msg(inventory_choose(&v, which, 0, &i, found, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(i, device);
    ck_assert_str_eq(found, why);
}

static void is_named(int device, const char *id)
{
    char room[BACKEND_ID_BYTES], why[DEVICE_TEXT_BYTES];
    struct err_info info = {0};
    int i = -1;
    ck_assert_str_eq(inventory_id(&v, device, room), id);
    ck_assert_msg(inventory_choose(&v, id, 0, &i, why, &info) == ERR_OK && i == device, "%s", info.text);
}

/* Entry n of a list is refused, and those before it are not. */
static void refuses_entry(const char *which, int n, const char *why)
{
    char room[DEVICE_TEXT_BYTES];
    struct err_info info = {0};
    int device = -1;
    for (int i = 0; i < n; i++) {
        ck_assert_msg(inventory_choose(&v, which, i, &device, room, &info) == ERR_OK, "%s", info.text);
    }
    ck_assert_int_eq(inventory_choose(&v, which, n, &device, room, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, why);
    ck_assert_str_eq(info.where, "device");
}

static void refuses(const char *which, const char *why) { refuses_entry(which, 0, why); }

/* --- which ---------------------------------------------------------------------------------------------------------- */

START_TEST(the_best_is_taken)
{
    char room[DEVICE_WHY_BYTES];
    add_device("Portable Computing Language", "pthread", 0, false);
    takes(NULL, 0, "device 0 (pthread): no GPU");
    add_device("rusticl", "AMD Radeon 780M (radeonsi, phoenix, ACO)", 0xc1, true)->is_integrated = true;
    takes("auto", 1, "device 1 (AMD Radeon 780M (radeonsi, phoenix, ACO) at 0000:c1:00.0): an integrated RDNA3 GPU");
    add_device("NVIDIA CUDA", "NVIDIA H100", 4, true);
    takes("auto", 2, "device 2 (NVIDIA H100 at 0000:04:00.0): a discrete GPU");
    add_device("rusticl", "AMD Radeon RX 9070 XT (radeonsi, navi48)", 5, true);
    takes("auto", 3, "device 3 (AMD Radeon RX 9070 XT (radeonsi, navi48) at 0000:05:00.0): an RDNA4 GPU");
    snprintf(add_device("AMD Accelerated Parallel Processing", "gfx1100", 3, true)->board, 32,
             "AMD Radeon RX 7900 XTX");
    takes("auto", 4, "device 4 (AMD Radeon RX 7900 XTX at 0000:03:00.0): a discrete RDNA3 GPU");
    add_device("rusticl", "AMD Radeon RX 7900 XTX (radeonsi, navi31)", 3, true);
    takes("auto", 5, "device 5 (AMD Radeon RX 7900 XTX (radeonsi, navi31) at 0000:03:00.0): a discrete RDNA3 GPU");
    takes("03:00.0", 5, "device 5 (AMD Radeon RX 7900 XTX (radeonsi, navi31) at 0000:03:00.0): a discrete RDNA3 GPU");
    is_named(0, "0");
    is_named(2, "0000:04:00.0");
    is_named(4, "4"); /* the address is the other driver's */
    is_named(5, "0000:03:00.0");
    v.probe.devices[5].version = 110; /* which the other driver makes up for */
    takes("0000:03:00.0", 4, "device 4 (AMD Radeon RX 7900 XTX at 0000:03:00.0): a discrete RDNA3 GPU");
    takes("0", 0, "device 0 (pthread): no GPU");
    ck_assert_ptr_nonnull(device_why_not(&v.probe.devices[5], room));
    refuses("5", "device 5 (AMD Radeon RX 7900 XTX (radeonsi, navi31) at 0000:03:00.0) cannot be used: OpenCL "
                 "1.1, 1.2 or later is needed");
}
END_TEST

START_TEST(what_cannot_be_had)
{
    struct err_info info = {0};
    char why[DEVICE_TEXT_BYTES];
    int device;
    refuses("auto", "device: expected an OpenCL device, and there is none; found 'auto'; see `infcgi devices`");
    ck_assert_int_eq(inventory_choose(&v, "auto", 1, &device, why, &info),
                     ERR_NONE); /* so that who asks comes to an end */
    ck_assert_int_eq(inventory_choose(&v, "gpu", 1, &device, why, &info), ERR_NONE);
    add_platform("good");
    add_platform("rusticl");
    snprintf(v.probe.platforms[1].fault, PROBE_FAULT_BYTES, "crashed (Segmentation fault)");
    snprintf(v.probe.fault, PROBE_FAULT_BYTES, "gave no answer within 20 s");
    refuses("0",
            "device: expected an OpenCL device, and there is none; rusticl crashed (Segmentation fault); one of the "
            "OpenCL drivers gave no answer within 20 s while they were loaded; "
            "OCL_ICD_VENDORS=/etc/OpenCL/vendors/NAME.icd loads one alone; found '0'; see `infcgi devices`");
    v.probe.fault[0] = v.probe.platforms[1].fault[0] = '\0';
    add_device("good", "a", 0, false);
    add_device("good", "b", 7, true);
    refuses("2", "device: expected the number or PCI address of one of 0 (a), 1 (b at 0000:07:00.0); found '2'; see "
                 "`infcgi devices`");
    refuses("0000:08:00.0", "device: expected the number or PCI address of one of 0 (a), 1 (b at 0000:07:00.0); found "
                            "'0000:08:00.0'; see `infcgi devices`");
}
END_TEST

START_TEST(a_list_has_each_card_once)
{
    static const int taken[] = {1, 0, 3};
    char why[DEVICE_TEXT_BYTES];
    struct err_info info = {0};
    int device = -1;
    add_device("Portable Computing Language", "pthread", 0, false);
    add_device("rusticl", "one (navi31)", 3, true);
    add_device("AMD Accelerated Parallel Processing", "gfx1100", 3, true);
    add_device("rusticl", "other (navi31)", 0xe3, true);
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(inventory_choose(&v, "auto,0,0000:e3:00.0", i, &device, why, &info) == ERR_OK, "%s", info.text);
        ck_assert_int_eq(device, taken[i]);
    }
    ck_assert_str_eq(why, "device 3 (other (navi31) at 0000:e3:00.0): a discrete RDNA3 GPU");
    ck_assert_int_eq(inventory_choose(&v, "auto,0,0000:e3:00.0", 3, &device, why, &info), ERR_NONE);
    ck_assert_int_eq(inventory_choose(&v, NULL, 1, &device, why, &info), ERR_NONE);
    refuses_entry("0,3,0", 2,
                  "device: expected each card once; found '0', device 0 (pthread), after device 0 (pthread)");
    refuses_entry("1,03:00.0", 1,
                  "device: expected each card once; found '03:00.0', device 1 (one (navi31) at 0000:03:00.0), after "
                  "device 1 (one (navi31) at 0000:03:00.0)");
    refuses_entry("1,2", 1,
                  "device: expected each card once; found '2', device 2 (gfx1100 at 0000:03:00.0), after device 1 (one "
                  "(navi31) at 0000:03:00.0)");
    refuses_entry("3,auto,1", 2,
                  "device: expected each card once; found '1', device 1 (one (navi31) at 0000:03:00.0), after device 1 "
                  "(one (navi31) at 0000:03:00.0)");
    refuses_entry(
        "0,7", 1,
        "device: expected the number or PCI address of one of 0 (pthread), 1 (one (navi31) at 0000:03:00.0), 2 "
        "(gfx1100 at 0000:03:00.0), 3 (other (navi31) at 0000:e3:00.0); found '7'; see `infcgi devices`");
    refuses("0, 1",
            "device: expected auto, a number or a PCI address like 0000:03:00.0, or several with commas between "
            "them; found ' 1'");
    v.probe.devices[3].version = 110;
    refuses_entry("0,3", 1,
                  "device 3 (other (navi31) at 0000:e3:00.0) cannot be used: OpenCL 1.1, 1.2 or later is needed");
}
END_TEST

START_TEST(texts_that_may_name_devices)
{
    static const char *const good[] = {"auto", "0", "31", "0,1", "03:00.0,0000:0b:00.0,2"};
    static const char *const bad[] = {"",   ",",  "0,",  ",0",           "gpu", "-1",
                                      "+1", "0 ", "0;1", "999999999999", "3:",  "auto,x"};
    struct err_info info;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ck_assert_msg(inventory_check_name(good[i], "x", &info) == ERR_OK, "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(inventory_check_name(bad[i], "x", &info) == ERR_CONFIG, "%s", bad[i]);
        ck_assert_msg(strncmp(info.text, "x: expected auto, ", 18) == 0, "%s", info.text);
    }
}
END_TEST

/* --- cards ---------------------------------------------------------------------------------------------------------- */

static void says(const char *found, const char *part)
{
    ck_assert_msg(part[0] != '\0' ? strstr(found, part) != NULL : found[0] == '\0', "%s", found);
}

START_TEST(two_cards_and_their_devices)
{
    char room[DEVICE_TEXT_BYTES];
    int first = add_card(3, 0x744c, 24 * GIB, 24 * GIB), second = add_card(0xe3, 0x744c, 24 * GIB, 256 * MIB);
    add_device("rusticl", "one (navi31)", 0xe3, true);
    add_device("rusticl", "other (navi31)", 3, true);
    ck_assert_int_eq(v.card_of[0], second);
    ck_assert_int_eq(inventory_device_of(&v, first), 1);
    ck_assert_int_eq(inventory_rebar(&v, first), PCI_REBAR_ON);
    ck_assert_int_eq(inventory_rebar(&v, second), PCI_REBAR_OFF);
    says(inventory_card_note(&v, first, room), "");
    says(inventory_device_note(&v, 0, room),
         "resizable BAR is off: the host reaches 256 of 24576 MiB, which was measured "
         "to halve decoding");
    v.cards[second].vram_bytes = 0; /* the kernel does not say: the driver does */
    v.probe.devices[0].memory_bytes = 16 * GIB;
    says(inventory_card_note(&v, second, room), "the host reaches 256 of 16384 MiB");
}
END_TEST

START_TEST(a_small_window_of_a_processor_s_gpu_costs_nothing)
{
    char room[DEVICE_TEXT_BYTES];
    int card = add_card(0xc1, 0x15bf, 4 * GIB, 256 * MIB);
    ck_assert_int_eq(inventory_rebar(&v, card), PCI_REBAR_UNKNOWN);
    add_device("rusticl", "AMD Radeon 780M (radeonsi, phoenix, ACO)", 0xc1, true);
    ck_assert_int_eq(inventory_rebar(&v, card), PCI_REBAR_UNKNOWN);
    ck_assert(inventory_is_integrated(&v, 0));
    says(inventory_card_note(&v, card, room), "");
}
END_TEST

START_TEST(a_card_without_a_device)
{
    char room[DEVICE_TEXT_BYTES];
    int card = add_card(3, 0x744c, 24 * GIB, 256 * MIB);
    inventory_match(&v);
    ck_assert_int_eq(inventory_device_of(&v, card), -1);
    says(inventory_card_note(&v, card, room),
         "install mesa-opencl-icd and set RUSTICL_ENABLE=radeonsi, or install ROCm");
    add_platform("rusticl");
    says(inventory_card_note(&v, card, room), "rusticl does not show it: set RUSTICL_ENABLE=radeonsi");
    snprintf(v.cards[card].node, sizeof v.cards[card].node, "renderD128");
    v.is_closed[card] = true;
    says(inventory_card_note(&v, card, room), "this user may not open /dev/dri/renderD128: group render");
    v.is_closed[card] = false;
    snprintf(v.cards[card].driver, sizeof v.cards[card].driver, "vfio-pci");
    says(inventory_card_note(&v, card, room), "the kernel has bound vfio-pci to it, and not amdgpu");
    v.cards[card].driver[0] = '\0';
    says(inventory_card_note(&v, card, room), "bound no driver");
    snprintf(v.cards[card].driver, sizeof v.cards[card].driver, "nvidia");
    v.cards[card].vendor = 0x10de;
    says(inventory_card_note(&v, card, room), "install the one of its maker");
}
END_TEST

START_TEST(the_chip_is_that_of_the_name_else_of_the_card)
{
    add_card(3, 0x747e, 16 * GIB, 16 * GIB);
    add_device("some driver", "Radeon", 3, true);
    add_device("ROCm", "gfx1201", 3, true);
    snprintf(add_device("ROCm", "gfx1030", 3, true)->gfx, 16, "gfx1030");
    ck_assert_str_eq(inventory_chip(&v, 0, -1)->gfx, "gfx1101");
    ck_assert_str_eq(inventory_chip(&v, 1, -1)->gfx, "gfx1201");
    ck_assert_ptr_null(inventory_chip(&v, 2, -1)); /* it says that it is another */
    ck_assert_str_eq(inventory_chip(&v, -1, 0)->gfx, "gfx1101");
}
END_TEST

START_TEST(the_machine_s_own_is_looked_at_once)
{
    const struct inventory *found = inventory_get();
    ck_assert_ptr_eq(found, inventory_get());
    ck_assert_int_ge(found->probe.n_devices, 1);
}
END_TEST

Suite *inventory_suite(void)
{
    Suite *s = suite_create("inventory");
    TCase *t = tcase_create("inventory");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, the_best_is_taken);
    tcase_add_test(t, what_cannot_be_had);
    tcase_add_test(t, a_list_has_each_card_once);
    tcase_add_test(t, texts_that_may_name_devices);
    tcase_add_test(t, two_cards_and_their_devices);
    tcase_add_test(t, a_small_window_of_a_processor_s_gpu_costs_nothing);
    tcase_add_test(t, a_card_without_a_device);
    tcase_add_test(t, the_chip_is_that_of_the_name_else_of_the_card);
    tcase_add_test(t, the_machine_s_own_is_looked_at_once);
    suite_add_tcase(s, t);
    return s;
}
