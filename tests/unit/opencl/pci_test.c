/* Cards of a machine that is made up: a table of calls in the place of libpciaccess, a folder in the place of sysfs. The
 * library itself reads such folders in tests/e2e/devices_test.py. */
#include "opencl/pci.h"

#include <check.h>
#include <errno.h>
#include <pciaccess.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *pci_suite(void);

enum { MIB = 1 << 20, MAX_FAKES = 40 };
#define GIB ((uint64_t)1 << 30)

/* --- the machine ---------------------------------------------------------------------------------------------------- */

static struct pci_device fakes[MAX_FAKES];
static int n_fakes, at, n_init, n_cleanup, init_fails, probe_fails;
static char folder[] = "/tmp/infcgi_pci_XXXXXX";

static int fake_init(void)
{
    n_init++;
    return init_fails;
}
static void fake_cleanup(void) { n_cleanup++; }
static struct pci_device_iterator *fake_begin(const struct pci_id_match *m)
{
    ck_assert_uint_eq(m->device_class, 0x030000);
    ck_assert_uint_eq(m->device_class_mask, 0xff0000);
    at = 0;
    return (struct pci_device_iterator *)&at;
}
static struct pci_device *fake_next(struct pci_device_iterator *it)
{
    (void)it;
    return at < n_fakes ? &fakes[at++] : NULL;
}
static int fake_probe(struct pci_device *d)
{
    (void)d;
    return probe_fails;
}
static void fake_end(struct pci_device_iterator *it) { (void)it; }
static const struct pci_calls fake = {fake_init, fake_begin, fake_next, fake_probe, fake_end, fake_cleanup, folder};

static struct pci_device *add(uint8_t bus, uint16_t device, uint64_t bar0)
{
    struct pci_device *d = &fakes[n_fakes++];
    *d = (struct pci_device){.bus = bus, .vendor_id = 0x1002, .device_id = device, .device_class = 0x030000};
    d->regions[0].size = bar0;
    d->regions[2].size = 2 * MIB;
    d->regions[4] = (struct pci_mem_region){.size = 256, .is_IO = 1};
    d->regions[5].size = MIB;
    return d;
}

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/0000:03:00.0/%s", folder, name);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void set_up(void)
{
    char path[128];
    n_fakes = n_init = n_cleanup = init_fails = probe_fails = 0;
    strcpy(folder, "/tmp/infcgi_pci_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/0000:03:00.0", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/0000:03:00.0/driver", folder);
    ck_assert_int_eq(symlink("../../../bus/pci/drivers/amdgpu", path), 0);
    snprintf(path, sizeof path, "%s/0000:03:00.0/drm", folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    write_file("drm/card0", "");
    write_file("drm/renderD128", "");
    write_file("current_link_speed", "16.0 GT/s PCIe\n");
    write_file("current_link_width", "16\n");
    write_file("mem_info_vram_total", "25753026560\n");
}

static void tear_down(void)
{
    static const char *const names[] = {
        "drm/card0",          "drm/renderD128",      "drm", "driver", "current_link_speed",
        "current_link_width", "mem_info_vram_total", ""};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/0000:03:00.0/%s", folder, names[i]);
        (void)remove(path);
    }
    (void)rmdir(folder);
}

/* --- cards ---------------------------------------------------------------------------------------------------------- */

static struct pci_card cards[PCI_MAX_CARDS];

static int list(void)
{
    int n = -1;
    struct err_info info = {0};
    ck_assert_msg(pci_list(&fake, cards, &n, &info) == ERR_OK, "%s", info.text);
    return n;
}

START_TEST(a_card_is_read_from_both)
{
    struct pci_device *d = add(3, 0x744c, 24 * GIB);
    d->subvendor_id = 0x1eae;
    d->subdevice_id = 0x7901;
    ck_assert_int_eq(list(), 1);
    const struct pci_card *c = &cards[0];
    ck_assert(pci_address_is(&c->at, &(struct pci_address){0, 3, 0, 0}));
    ck_assert_uint_eq(c->vendor, 0x1002);
    ck_assert_uint_eq(c->device, 0x744c);
    ck_assert_uint_eq(c->sub_vendor, 0x1eae);
    ck_assert_uint_eq(c->sub_device, 0x7901);
    ck_assert_uint_eq(c->bar_bytes[0], 24 * GIB);
    ck_assert_uint_eq(c->bar_bytes[4], 0); /* I/O ports are no memory */
    ck_assert_uint_eq(c->bar_bytes[5], MIB);
    ck_assert_uint_eq(pci_window_bytes(c), 24 * GIB);
    ck_assert_str_eq(c->driver, "amdgpu");
    ck_assert_str_eq(c->node, "renderD128");
    ck_assert_str_eq(c->link_speed, "16.0 GT/s PCIe");
    ck_assert_uint_eq(c->link_width, 16);
    ck_assert_uint_eq(c->vram_bytes, 25753026560u);
    ck_assert_int_eq(pci_rebar(c, c->vram_bytes), PCI_REBAR_ON);
    ck_assert_int_eq(n_cleanup, 1);
}
END_TEST

START_TEST(a_small_window_is_no_resizable_bar)
{
    add(3, 0x744c, 256 * MIB);
    ck_assert_int_eq(list(), 1);
    ck_assert_int_eq(pci_rebar(&cards[0], cards[0].vram_bytes), PCI_REBAR_OFF);
    ck_assert_int_eq(pci_rebar(&cards[0], 0), PCI_REBAR_UNKNOWN);
    ck_assert_int_eq(pci_rebar(&(struct pci_card){0}, GIB), PCI_REBAR_UNKNOWN);
}
END_TEST

START_TEST(what_sysfs_lacks_is_unknown)
{
    add(7, 0x1586, 0);
    add(3, 0x744c, GIB);
    write_file("current_link_width", "255\n");
    write_file("mem_info_vram_total", "many\n");
    probe_fails = EPERM;
    ck_assert_int_eq(list(), 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(pci_window_bytes(&cards[i]), 0);
        ck_assert_uint_eq(cards[i].link_width, 0);
        ck_assert_uint_eq(cards[i].vram_bytes, 0);
    }
    ck_assert_str_eq(cards[0].driver, "");
    ck_assert_str_eq(cards[0].node, "");
    ck_assert_str_eq(cards[0].link_speed, "");
}
END_TEST

START_TEST(more_cards_than_there_is_room_for)
{
    ck_assert_int_eq(list(), 0);
    for (int i = 0; i < MAX_FAKES; i++) {
        add((uint8_t)i, 0x744c, GIB);
    }
    ck_assert_int_eq(list(), PCI_MAX_CARDS);
    ck_assert_uint_eq(cards[PCI_MAX_CARDS - 1].at.bus, PCI_MAX_CARDS - 1);
}
END_TEST

START_TEST(a_machine_without_a_bus)
{
    struct err_info info = {0};
    int n = -1;
    init_fails = ENOENT;
    ck_assert_int_eq(pci_list(&fake, cards, &n, &info), ERR_IO);
    ck_assert_int_eq(n, 0);
    ck_assert_str_eq(info.text, "the PCI bus cannot be read: No such file or directory");
}
END_TEST

/* --- addresses ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *text, *found; /* NULL: none */
} addresses[] = {
    {"0000:03:00.0", "0000:03:00.0"},
    {"03:00.0", "0000:03:00.0"},
    {"10000:E1:1f.7", "10000:e1:1f.7"},
    {"3:0.0", "0000:03:00.0"},
    {"ffffffff:ff:1f.7", "ffffffff:ff:1f.7"},
    {"", NULL},
    {"0", NULL},
    {"03:00", NULL},
    {"03:00.8", NULL},
    {"03:20.0", NULL},
    {"03:00.0x", NULL},
    {"003:00.0", NULL},
    {"0:0:03:00.0", NULL},
    {"03:00.", NULL},
    {":00.0", NULL},
    {"g3:00.0", NULL},
    {"03: 0.0", NULL},
    {"100000000:03:00.0", NULL},
    {"-3:00.0", NULL},
    {"03.00:0", NULL},
};

START_TEST(addresses_in_text)
{
    char room[PCI_ADDRESS_BYTES];
    struct pci_address a = {9, 9, 9, 1};
    bool is_one = pci_address_parse(addresses[_i].text, &a);
    ck_assert_msg(is_one == (addresses[_i].found != NULL), "%s", addresses[_i].text);
    ck_assert_str_eq(pci_address_text(&a, room), is_one ? addresses[_i].found : "0009:09:09.1");
}
END_TEST

Suite *pci_suite(void)
{
    Suite *s = suite_create("pci");
    TCase *t = tcase_create("pci");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_card_is_read_from_both);
    tcase_add_test(t, a_small_window_is_no_resizable_bar);
    tcase_add_test(t, what_sysfs_lacks_is_unknown);
    tcase_add_test(t, more_cards_than_there_is_room_for);
    tcase_add_test(t, a_machine_without_a_bus);
    tcase_add_loop_test(t, addresses_in_text, 0, (int)(sizeof addresses / sizeof addresses[0]));
    suite_add_tcase(s, t);
    return s;
}
