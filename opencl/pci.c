#include "opencl/pci.h"

#include "engine/base/hex.h"
#include "engine/base/io.h"
#include "engine/base/machine.h"

#include <dirent.h>
#include <inttypes.h>
#include <pciaccess.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DISPLAY_CLASS = 0x030000, BASE_CLASS_MASK = 0xff0000, PATH_BYTES = 128 };

/* --- addresses ---------------------------------------------------------------------------------------------------- */

const char *pci_address_text(const struct pci_address *a, char room[PCI_ADDRESS_BYTES])
{
    snprintf(room, PCI_ADDRESS_BYTES, "%04" PRIx32 ":%02x:%02x.%x", a->domain, a->bus, a->device, a->function & 7u);
    return room;
}

/* Reads a number of 1 to `most` hexadecimal digits followed by `end`; moves *s after `end`. */
static bool read_hex(const char **s, int most, char end, uint32_t *out)
{
    const char *p = *s;
    uint32_t v = 0;
    for (; *p != '\0' && *p != end && p - *s < most; p++) {
        int digit = hex_value(*p);
        if (digit < 0) {
            return false;
        }
        v = v << 4 | (uint32_t)digit;
    }
    bool is_read = p > *s && *p == end;
    *s = p + (*p != '\0');
    *out = v;
    return is_read;
}

bool pci_address_parse(const char *text, struct pci_address *out)
{
    const char *colon = strchr(text, ':'), *s = text;
    uint32_t domain = 0, bus, device, function;
    bool has_domain = colon != NULL && strchr(colon + 1, ':') != NULL;
    if ((has_domain && !read_hex(&s, 8, ':', &domain)) || !read_hex(&s, 2, ':', &bus) ||
        !read_hex(&s, 2, '.', &device) || !read_hex(&s, 1, '\0', &function) || device > 31 || function > 7) {
        return false;
    }
    *out = (struct pci_address){domain, (uint8_t)bus, (uint8_t)device, (uint8_t)function};
    return true;
}

bool pci_address_is(const struct pci_address *a, const struct pci_address *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->device == b->device && a->function == b->function;
}

/* --- cards -------------------------------------------------------------------------------------------------------- */

uint64_t pci_window_bytes(const struct pci_card *card)
{
    uint64_t most = 0;
    for (int i = 0; i < PCI_BARS; i++) {
        most = MAX_OF(most, card->bar_bytes[i]);
    }
    return most;
}

enum pci_rebar pci_rebar(const struct pci_card *card, uint64_t vram_bytes)
{
    uint64_t window = pci_window_bytes(card);
    return window == 0 || vram_bytes == 0 ? PCI_REBAR_UNKNOWN : window >= vram_bytes ? PCI_REBAR_ON : PCI_REBAR_OFF;
}

const struct pci_calls pci_library = {
    pci_system_init,      pci_id_match_iterator_create, pci_device_next,        pci_device_probe,
    pci_iterator_destroy, pci_system_cleanup,           "/sys/bus/pci/devices",
};

static const char *path_of(const struct pci_calls *calls, const struct pci_card *c, const char *file,
                           char room[PATH_BYTES])
{
    char address[PCI_ADDRESS_BYTES];
    snprintf(room, PATH_BYTES, "%s/%s/%s", calls->sysfs, pci_address_text(&c->at, address), file);
    return room;
}

/* Finds DRM's node for programs that compute. */
static void find_node(const struct pci_calls *calls, struct pci_card *c)
{
    char room[PATH_BYTES];
    DIR *d = opendir(path_of(calls, c, "drm", room));
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "renderD", 7) == 0) {
            snprintf(c->node, sizeof c->node, "%.31s", e->d_name);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* Reads what libpciaccess does not provide. Values of missing files remain unknown. */
static void read_sysfs(const struct pci_calls *calls, struct pci_card *c)
{
    char room[PATH_BYTES], target[PATH_BYTES];
    ssize_t n = readlink(path_of(calls, c, "driver", room), target, sizeof target - 1);
    if (n > 0) {
        target[n] = '\0';
        const char *slash = strrchr(target, '/');
        snprintf(c->driver, sizeof c->driver, "%.31s", slash != NULL ? slash + 1 : target);
    }
    find_node(calls, c);
    io_read_start(path_of(calls, c, "current_link_speed", room), c->link_speed, sizeof c->link_speed);
    c->link_speed[strcspn(c->link_speed, "\n")] = '\0';
    size_t width = machine_number_in(path_of(calls, c, "current_link_width", room));
    c->link_width = width <= 32 ? (uint32_t)width : 0; /* 63 or 255: no link */
    size_t vram = machine_number_in(path_of(calls, c, "mem_info_vram_total", room));
    c->vram_bytes = vram != SIZE_MAX ? vram : 0;
}

static struct pci_card card_of(const struct pci_calls *calls, struct pci_device *d)
{
    struct pci_card c = {.at = {d->domain, d->bus, d->dev, d->func},
                         .vendor = d->vendor_id,
                         .device = d->device_id,
                         .sub_vendor = d->subvendor_id,
                         .sub_device = d->subdevice_id};
    bool is_probed = calls->probe(d) == 0;
    for (int i = 0; is_probed && i < PCI_BARS; i++) {
        c.bar_bytes[i] = d->regions[i].is_IO ? 0 : d->regions[i].size;
    }
    read_sysfs(calls, &c);
    return c;
}

enum err pci_list(const struct pci_calls *calls, struct pci_card out[PCI_MAX_CARDS], int *n, struct err_info *info)
{
    static const struct pci_id_match displays = {
        PCI_MATCH_ANY, PCI_MATCH_ANY, PCI_MATCH_ANY, PCI_MATCH_ANY, DISPLAY_CLASS, BASE_CLASS_MASK, 0};
    *n = 0;
    int failed = calls->init();
    if (failed != 0) {
        return err_set(info, ERR_IO, "pci", "the PCI bus cannot be read: %s", strerror(failed));
    }
    struct pci_device_iterator *it = calls->begin(&displays);
    for (struct pci_device *d; it != NULL && *n < PCI_MAX_CARDS && (d = calls->next(it)) != NULL;) {
        out[(*n)++] = card_of(calls, d);
    }
    calls->end(it);
    calls->cleanup();
    return ERR_OK;
}
