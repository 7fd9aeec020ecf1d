/* What there is to compute on: the cards on the bus and the devices of OpenCL, matched to each other, and which of them
 * is taken. Looked for once a process. Threads: safe anywhere; the inventory is constant. */
#ifndef INFCGI_OPENCL_INVENTORY_H
#define INFCGI_OPENCL_INVENTORY_H

#include "opencl/chip.h"
#include "opencl/pci.h"
#include "opencl/probe.h"

struct inventory {
    struct probe_result probe;
    int n_cards;
    struct pci_card cards[PCI_MAX_CARDS];
    bool is_closed[PCI_MAX_CARDS];  /* this user may not open the card's node */
    char no_bus[DEVICE_TEXT_BYTES]; /* why there are no cards to see; "" where the bus can be read */
    int card_of[PROBE_MAX_DEVICES]; /* index into cards; -1: the device is on none, or does not say */
};

/* The machine's. Takes as long as its drivers do, the first time (probe.h). */
const struct inventory *inventory_get(void);

/* Matches devices to cards. */
void inventory_match(struct inventory *v);

/* The device that shows a card, which is usable if any is; -1: none does. */
int inventory_device_of(const struct inventory *v, int card);

/* The chip of a device (-1: none), by its name, or of its card (-1: none); NULL: not one that we know. */
const struct chip *inventory_chip(const struct inventory *v, int device, int card);

/* Is it in a processor, with memory of the host? By its chip, else by what the driver says. */
bool inventory_is_integrated(const struct inventory *v, int device);

/* The text that names this device and no other: its card's address, or its number where another driver shows the card and
 * is taken for it. Writes to room, and returns it. */
const char *inventory_id(const struct inventory *v, int device, char room[BACKEND_ID_BYTES]);

/* What to call a device: as people do. Borrowed. */
const char *inventory_name(const struct device_caps *c);

/* The i-th device that `which` names: NULL or "auto", its number, or its card's PCI address, or a list of these with commas;
 * ERR_NONE beyond the last. `why` says what it is, which is why "auto" takes it: "device 0 (gfx1100 at 0000:03:00.0): a
 * discrete RDNA3 GPU". ERR_CONFIG names what there is, says why it cannot be used, or which stands in the list before. */
MUST_CHECK enum err inventory_choose(const struct inventory *v, const char *which, int i, int *device,
                                     char why[DEVICE_TEXT_BYTES], struct err_info *info);

/* What drivers did when they were asked, the i-th that did wrong: "rusticl crashed (Segmentation fault)". Writes to room;
 * false: that is all. */
bool inventory_fault(const struct inventory *v, int i, char room[DEVICE_TEXT_BYTES]);

/* Is it a text that may name devices, one or several, whether they are there or not? ERR_CONFIG; `what` begins the message. */
MUST_CHECK enum err inventory_check_name(const char *which, const char *what, struct err_info *info);

/* Does the host reach all of a card's memory (pci.h)? Of one in a processor it is not known: its memory is the host's. */
enum pci_rebar inventory_rebar(const struct inventory *v, int card);

/* What an operator should know of a card: that no driver shows it, and what to do; that the host reaches little of its
 * memory, and what that costs. "": nothing. Writes to room, and returns it. */
const char *inventory_card_note(const struct inventory *v, int card, char room[DEVICE_TEXT_BYTES]);

/* The same of a device: of its card, or that it is the CPU. */
const char *inventory_device_note(const struct inventory *v, int device, char room[DEVICE_TEXT_BYTES]);

#endif
