#include "opencl/inventory.h"

#include "engine/base/buf.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- probing ------------------------------------------------------------------------------------------------------ */

void inventory_match(struct inventory *v)
{
    for (int i = 0; i < v->probe.n_devices; i++) {
        const struct device_caps *c = &v->probe.devices[i];
        v->card_of[i] = -1;
        for (int k = 0; c->has_pci && k < v->n_cards && v->card_of[i] < 0; k++) {
            v->card_of[i] = pci_address_is(&v->cards[k].at, &c->pci) ? k : -1;
        }
    }
}

static struct inventory machine;

static void look(void)
{
    struct err_info info = {0};
    if (pci_list(&pci_library, machine.cards, &machine.n_cards, &info) != ERR_OK) {
        snprintf(machine.no_bus, sizeof machine.no_bus, "%.*s", (int)sizeof machine.no_bus - 1, info.text);
    }
    for (int i = 0; i < machine.n_cards; i++) {
        char path[64];
        snprintf(path, sizeof path, "/dev/dri/%s", machine.cards[i].node);
        machine.is_closed[i] = machine.cards[i].node[0] != '\0' && access(path, R_OK | W_OK) != 0;
    }
    probe_run(&machine.probe);
    inventory_match(&machine);
}

const struct inventory *inventory_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, look);
    return &machine;
}

/* --- properties --------------------------------------------------------------------------------------------------- */

static bool is_usable(const struct inventory *v, int device)
{
    char room[DEVICE_WHY_BYTES];
    return device_why_not(&v->probe.devices[device], room) == NULL;
}

int inventory_device_of(const struct inventory *v, int card)
{
    int found = -1;
    for (int i = 0; i < v->probe.n_devices; i++) {
        if (v->card_of[i] == card && (found < 0 || (!is_usable(v, found) && is_usable(v, i)))) {
            found = i;
        }
    }
    return found;
}

const struct chip *inventory_chip(const struct inventory *v, int device, int card)
{
    const struct chip *chip = device >= 0 ? chip_of_name(v->probe.devices[device].gfx) : NULL;
    card = card < 0 && device >= 0 ? v->card_of[device] : card;
    bool is_named = device >= 0 && v->probe.devices[device].gfx[0] != '\0'; /* its own name overrides the card's id */
    return is_named || card < 0 ? chip : chip_of_pci(v->cards[card].vendor, v->cards[card].device);
}

bool inventory_is_integrated(const struct inventory *v, int device)
{
    const struct chip *chip = inventory_chip(v, device, -1);
    return chip != NULL ? chip->is_integrated : v->probe.devices[device].is_integrated;
}

const char *inventory_name(const struct device_caps *c) { return c->board[0] != '\0' ? c->board : c->name; }

bool inventory_fault(const struct inventory *v, int i, char room[DEVICE_TEXT_BYTES])
{
    const struct probe_result *r = &v->probe;
    for (int k = 0; k < r->n_platforms; k++) {
        if (r->platforms[k].fault[0] != '\0' && i-- == 0) {
            snprintf(room, DEVICE_TEXT_BYTES, "%s %s", r->platforms[k].name, r->platforms[k].fault);
            return true;
        }
    }
    snprintf(
        room, DEVICE_TEXT_BYTES,
        "one of the OpenCL drivers %s while they were loaded; OCL_ICD_VENDORS=/etc/OpenCL/vendors/NAME.icd loads one "
        "alone",
        r->fault);
    return r->fault[0] != '\0' && i == 0;
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

/* Returns for example "a discrete RDNA3 GPU". */
static const char *kind_of(const struct inventory *v, int device)
{
    const struct chip *chip = inventory_chip(v, device, -1);
    bool is_integrated = inventory_is_integrated(v, device);
    if (!v->probe.devices[device].is_gpu) {
        return "no GPU";
    }
    if (chip == NULL) {
        return is_integrated ? "an integrated GPU" : "a discrete GPU";
    }
    if (chip->family != CHIP_RDNA3) {
        return "an RDNA4 GPU";
    }
    return is_integrated ? "an integrated RDNA3 GPU" : "a discrete RDNA3 GPU";
}

/* Returns the rank of a device, higher is better; 0: not usable. Of two drivers of one card Mesa's ranks first: it does
 * not need KFD, in which ROCm hangs on consumer cards. */
static int rank_of(const struct inventory *v, int device)
{
    const struct device_caps *c = &v->probe.devices[device];
    const struct chip *chip = inventory_chip(v, device, -1);
    if (!is_usable(v, device) || !c->is_gpu) {
        return is_usable(v, device) ? 1 : 0;
    }
    bool is_discrete = !inventory_is_integrated(v, device);
    bool is_best = is_discrete && chip != NULL && chip->family == CHIP_RDNA3;
    return 2 + 4 * is_discrete + 2 * is_best + (strcmp(c->platform, "rusticl") == 0);
}

/* Writes "0 (gfx1100 at 0000:03:00.0)". */
static const char *describe(const struct inventory *v, int device, char room[DEVICE_TEXT_BYTES])
{
    const struct device_caps *c = &v->probe.devices[device];
    char address[PCI_ADDRESS_BYTES];
    snprintf(room, DEVICE_TEXT_BYTES, "%d (%s%s%s)", device, inventory_name(c), c->has_pci ? " at " : "",
             c->has_pci ? pci_address_text(&c->pci, address) : "");
    return room;
}

/* Returns ERR_CONFIG with a list of all devices. */
static enum err refuse(const struct inventory *v, const char *found, struct err_info *info)
{
    struct buf all;
    char room[DEVICE_TEXT_BYTES];
    buf_init(&all, 0, MEM_GENERAL);
    for (int i = 0; i < v->probe.n_devices; i++) {
        buf_printf(&all, "%s%s", i > 0 ? ", " : "the number or PCI address of one of ", describe(v, i, room));
    }
    buf_puts(&all, v->probe.n_devices == 0 ? "an OpenCL device, and there is none" : "");
    for (int i = 0; inventory_fault(v, i, room); i++) {
        buf_printf(&all, "; %s", room);
    }
    enum err err = err_set(info, ERR_CONFIG, "device", "device: expected %s; found '%.64s'; see `infcgi devices`",
                           buf_ok(&all) == ERR_OK ? all.data : "another", found);
    buf_fini(&all);
    return err;
}

/* Returns a possible device number; -1: not a number. */
static int number_of(const char *text)
{
    int n = text[0] != '\0' ? 0 : -1;
    for (const char *p = text; *p != '\0' && n >= 0; p++) {
        n = *p >= '0' && *p <= '9' && n < PROBE_MAX_DEVICES ? n * 10 + (*p - '0') : -1;
    }
    return n;
}

/* Copies entry i of a list to room; NULL after the last. */
static const char *entry_of(const char *list, int i, char room[DEVICE_TEXT_BYTES])
{
    while (i > 0 && list != NULL) {
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
        i--;
    }
    if (list != NULL) {
        snprintf(room, DEVICE_TEXT_BYTES, "%.*s", (int)MIN_OF(strcspn(list, ","), DEVICE_TEXT_BYTES - 1u), list);
    }
    return list != NULL ? room : NULL;
}

enum err inventory_check_name(const char *which, const char *what, struct err_info *info)
{
    char room[DEVICE_TEXT_BYTES];
    struct pci_address ignored;
    const char *one;
    for (int i = 0; (one = entry_of(which, i, room)) != NULL; i++) {
        if (strcmp(one, "auto") != 0 && number_of(one) < 0 && !pci_address_parse(one, &ignored)) {
            return err_set(info, ERR_CONFIG, "device",
                           "%s: expected auto, a number or a PCI address like 0000:03:00.0, or several with commas "
                           "between them; found '%.64s'",
                           what, one);
        }
    }
    return ERR_OK;
}

/* Returns the device of the name; -1: none. */
static int find(const struct inventory *v, const char *which)
{
    struct pci_address at;
    int best = -1, number = number_of(which);
    if (number >= 0) {
        return number < v->probe.n_devices ? number : -1;
    }
    bool is_address = pci_address_parse(which, &at);
    for (int i = 0; i < v->probe.n_devices; i++) {
        const struct device_caps *c = &v->probe.devices[i];
        bool is_it = !is_address || (c->has_pci && pci_address_is(&c->pci, &at));
        best = is_it && (best < 0 || rank_of(v, i) > rank_of(v, best)) ? i : best;
    }
    return best;
}

const char *inventory_id(const struct inventory *v, int device, char room[BACKEND_ID_BYTES])
{
    const struct device_caps *c = &v->probe.devices[device];
    char address[PCI_ADDRESS_BYTES];
    if (c->has_pci && find(v, pci_address_text(&c->pci, address)) == device) {
        snprintf(room, BACKEND_ID_BYTES, "%s", address);
    } else {
        snprintf(room, BACKEND_ID_BYTES, "%d", device);
    }
    return room;
}

static enum err choose_one(const struct inventory *v, const char *which, int *device, struct err_info *info)
{
    char room[DEVICE_WHY_BYTES], name[DEVICE_TEXT_BYTES];
    int i = find(v, which);
    if (i < 0) {
        return refuse(v, which, info);
    }
    const char *why_not = device_why_not(&v->probe.devices[i], room);
    if (why_not != NULL) {
        return err_set(info, ERR_CONFIG, "device", "device %s cannot be used: %s", describe(v, i, name), why_not);
    }
    *device = i;
    return ERR_OK;
}

/* Returns whether they are the same device, or two drivers' devices of one card. */
static bool is_same_card(const struct inventory *v, int a, int b)
{
    const struct device_caps *c = &v->probe.devices[a], *d = &v->probe.devices[b];
    return a == b || (c->has_pci && d->has_pci && pci_address_is(&c->pci, &d->pci));
}

enum err inventory_choose(const struct inventory *v, const char *which, int i, int *device, char why[DEVICE_TEXT_BYTES],
                          struct err_info *info)
{
    char room[DEVICE_TEXT_BYTES], names[2][DEVICE_TEXT_BYTES];
    int of[PROBE_MAX_DEVICES + 1]; /* of the entries up to i; a repeated device is an error before this overflows */
    which = which != NULL ? which : "auto";
    why[0] = '\0';
    if (entry_of(which, i, room) == NULL) {
        return ERR_NONE;
    }
    TRY(inventory_check_name(which, "device", info));
    for (int k = 0; k <= i; k++) {
        const char *entry = entry_of(which, k, room);
        TRY(choose_one(v, entry, &of[k], info));
        for (int before = 0; before < k; before++) {
            if (is_same_card(v, of[before], of[k])) {
                return err_set(info, ERR_CONFIG, "device",
                               "device: expected each card once; found '%.64s', device %s, after device %s", entry,
                               describe(v, of[k], names[0]), describe(v, of[before], names[1]));
            }
        }
    }
    *device = of[i];
    snprintf(why, DEVICE_TEXT_BYTES, "device %.*s: %s", DEVICE_TEXT_BYTES / 2, describe(v, of[i], names[0]),
             kind_of(v, of[i]));
    return ERR_OK;
}

/* --- advice ------------------------------------------------------------------------------------------------------- */

static bool has_platform(const struct inventory *v, const char *name)
{
    for (int i = 0; i < v->probe.n_platforms; i++) {
        if (strcmp(v->probe.platforms[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Writes advice for a card that no OpenCL device shows. */
static void put_what_to_do(const struct inventory *v, int card, char *room)
{
    const struct pci_card *c = &v->cards[card];
    if (c->driver[0] == '\0') {
        snprintf(room, DEVICE_TEXT_BYTES, "the kernel has bound no driver to it");
    } else if (v->is_closed[card]) {
        snprintf(room, DEVICE_TEXT_BYTES,
                 "this user may not open /dev/dri/%s: group render, and in a container the device itself", c->node);
    } else if (c->vendor != CHIP_VENDOR_AMD) {
        snprintf(room, DEVICE_TEXT_BYTES, "no OpenCL driver shows it: install the one of its maker");
    } else if (strcmp(c->driver, "amdgpu") != 0) {
        snprintf(room, DEVICE_TEXT_BYTES, "the kernel has bound %s to it, and not amdgpu", c->driver);
    } else if (has_platform(v, "rusticl")) {
        snprintf(room, DEVICE_TEXT_BYTES, "rusticl does not show it: set RUSTICL_ENABLE=radeonsi");
    } else {
        snprintf(room, DEVICE_TEXT_BYTES,
                 "no OpenCL driver shows it: install mesa-opencl-icd and set RUSTICL_ENABLE=radeonsi, or install ROCm");
    }
}

/* Returns the card's own memory; 0: unknown, or it uses the host's. */
static uint64_t own_memory(const struct inventory *v, int card)
{
    int device = inventory_device_of(v, card);
    const struct chip *chip = inventory_chip(v, device, card);
    bool is_integrated = device >= 0 ? inventory_is_integrated(v, device) : chip != NULL && chip->is_integrated;
    uint64_t vram = v->cards[card].vram_bytes;
    return is_integrated ? 0 : vram != 0 || device < 0 ? vram : v->probe.devices[device].memory_bytes;
}

enum pci_rebar inventory_rebar(const struct inventory *v, int card)
{
    return pci_rebar(&v->cards[card], own_memory(v, card));
}

const char *inventory_card_note(const struct inventory *v, int card, char room[DEVICE_TEXT_BYTES])
{
    const struct pci_card *c = &v->cards[card];
    room[0] = '\0';
    if (inventory_device_of(v, card) < 0) {
        put_what_to_do(v, card, room);
    } else if (inventory_rebar(v, card) == PCI_REBAR_OFF) {
        snprintf(room, DEVICE_TEXT_BYTES,
                 "resizable BAR is off: the host reaches %" PRIu64 " of %" PRIu64
                 " MiB, which was measured to halve decoding; the firmware's setup has it as Resizable BAR or Smart "
                 "Access Memory, and Above 4G Decoding",
                 pci_window_bytes(c) >> 20, own_memory(v, card) >> 20);
    }
    return room;
}

const char *inventory_device_note(const struct inventory *v, int device, char room[DEVICE_TEXT_BYTES])
{
    if (v->card_of[device] >= 0) {
        return inventory_card_note(v, v->card_of[device], room);
    }
    snprintf(room, DEVICE_TEXT_BYTES, "%s",
             v->probe.devices[device].is_gpu ? ""
                                             : "this is the CPU, on which --backend cpu is faster; it serves tests");
    return room;
}
