/* The machine's compute devices: cards on the bus and OpenCL devices, matched to each other, and the choice among them.
 * Built once per process. Threads: safe anywhere; the inventory is constant. */
#ifndef INFCGI_OPENCL_INVENTORY_H
#define INFCGI_OPENCL_INVENTORY_H

#include "opencl/chip.h"
#include "opencl/pci.h"
#include "opencl/probe.h"

struct inventory {
    struct probe_result probe;
    int n_cards;
    struct pci_card cards[PCI_MAX_CARDS];
    bool is_closed[PCI_MAX_CARDS];  /* this user cannot open the card's node */
    char no_bus[DEVICE_TEXT_BYTES]; /* why no cards are visible; "": the bus is readable */
    int card_of[PROBE_MAX_DEVICES]; /* index into cards; -1: the device is on no card, or does not report one */
};

/* Returns the machine's inventory. The first call takes as long as the drivers do (probe.h). */
const struct inventory *inventory_get(void);

/* Matches devices to cards. */
void inventory_match(struct inventory *v);

/* Returns the device on a card, preferably a usable one; -1: none. */
int inventory_device_of(const struct inventory *v, int card);

/* Returns the chip of a device (-1: none), by its name, or of its card (-1: none); NULL: unknown chip. */
const struct chip *inventory_chip(const struct inventory *v, int device, int card);

/* Returns whether the device is part of a processor and uses the host's memory: by its chip, else by the driver's
 * answer. */
bool inventory_is_integrated(const struct inventory *v, int device);

/* Returns the text that names only this device: its card's address, or its number if the address selects another
 * driver's device. Writes it to room. */
const char *inventory_id(const struct inventory *v, int device, char room[BACKEND_ID_BYTES]);

/* Returns the product name of a device. Borrowed. */
const char *inventory_name(const struct device_caps *c);

/* Chooses the i-th device that `which` names: NULL or "auto", its number, its card's PCI address, or a list of these
 * with commas; ERR_NONE after the last. Writes a description to `why`, which is also the reason for the choice of
 * "auto": "device 0 (gfx1100 at 0000:03:00.0): a discrete RDNA3 GPU". ERR_CONFIG lists the devices, says why this one
 * is unusable, or names the earlier entry for the same card. */
MUST_CHECK enum err inventory_choose(const struct inventory *v, const char *which, int i, int *device,
                                     char why[DEVICE_TEXT_BYTES], struct err_info *info);

/* Writes the i-th fault of a driver during probing to room: "rusticl crashed (Segmentation fault)". Returns false after
 * the last. */
bool inventory_fault(const struct inventory *v, int i, char room[DEVICE_TEXT_BYTES]);

/* Checks whether `which` can name one or several devices; they need not exist. ERR_CONFIG, with a message that begins
 * with `what`. */
MUST_CHECK enum err inventory_check_name(const char *which, const char *what, struct err_info *info);

/* Returns whether the host reaches all of a card's memory (pci.h). Unknown for a card in a processor, because its
 * memory is the host's. */
enum pci_rebar inventory_rebar(const struct inventory *v, int card);

/* Returns advice on a card, written to room: that no driver shows it and what to do, or that the host reaches only a
 * part of its memory and what that costs. "": none. */
const char *inventory_card_note(const struct inventory *v, int card, char room[DEVICE_TEXT_BYTES]);

/* Returns advice on a device, written to room: that on its card, or that the device is the CPU. */
const char *inventory_device_note(const struct inventory *v, int device, char room[DEVICE_TEXT_BYTES]);

#endif
