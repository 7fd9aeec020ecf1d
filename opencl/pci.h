/* The display cards on the PCI bus: what libpciaccess tells of them, and what Linux adds in sysfs. No driver is asked
 * and no privilege is needed, so that a card is seen that OpenCL does not show. Threads: one at a time, as the library
 * keeps its state in the process. */
#ifndef INFCGI_OPENCL_PCI_H
#define INFCGI_OPENCL_PCI_H

#include "engine/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct pci_address {
    uint32_t domain;
    uint8_t bus, device, function;
};

enum { PCI_ADDRESS_BYTES = 20, PCI_BARS = 6, PCI_MAX_CARDS = 32 };

/* Writes "0000:03:00.0" to room, and returns it. */
const char *pci_address_text(const struct pci_address *a, char room[PCI_ADDRESS_BYTES]);

/* Reads that, or "03:00.0" of domain 0; false, and *out unchanged, for anything else. */
MUST_CHECK bool pci_address_parse(const char *text, struct pci_address *out);

bool pci_address_is(const struct pci_address *a, const struct pci_address *b);

struct pci_card {
    struct pci_address at;
    uint16_t vendor, device, sub_vendor, sub_device;
    uint64_t bar_bytes[PCI_BARS]; /* of memory; 0: none there, or I/O ports */
    uint64_t vram_bytes;          /* as the kernel's driver counts it; 0: it does not say */
    char driver[32];              /* of the kernel, which is bound to it: "amdgpu"; "": none */
    char node[32];                /* through which programs reach it, in /dev/dri: "renderD128"; "": none */
    char link_speed[32];          /* as the link runs now: "16.0 GT/s PCIe"; "": unknown */
    uint32_t link_width;          /* lanes; 0: unknown */
};

/* The largest BAR: through it the host writes to the card's memory. */
uint64_t pci_window_bytes(const struct pci_card *card);

/* Can the host reach all `vram_bytes` of a card's memory (resizable BAR)? Without it decoding was measured at half the
 * speed, 86 against 173 tokens a second [RX 7900 XTX, llama.cpp, github.com/1337hero/rx7900xtx-llama-bench-vulcan; the
 * slot differed too]. Unknown where one of both is. */
enum pci_rebar { PCI_REBAR_UNKNOWN, PCI_REBAR_ON, PCI_REBAR_OFF };
enum pci_rebar pci_rebar(const struct pci_card *card, uint64_t vram_bytes);

struct pci_device;
struct pci_device_iterator;
struct pci_id_match;

/* What is called of libpciaccess, and where sysfs has the devices: tests bring their own. */
struct pci_calls {
    int (*init)(void); /* 0, or an errno */
    struct pci_device_iterator *(*begin)(const struct pci_id_match *match);
    struct pci_device *(*next)(struct pci_device_iterator *it);
    int (*probe)(struct pci_device *d); /* fills in the BARs; 0, or an errno */
    void (*end)(struct pci_device_iterator *it);
    void (*cleanup)(void);
    const char *sysfs;
};
extern const struct pci_calls pci_library;

/* Fills out[0..*n) with the devices of class 0x03, in the order of their addresses, as many as fit. ERR_IO: the system
 * shows no PCI bus, as in some containers. */
MUST_CHECK enum err pci_list(const struct pci_calls *calls, struct pci_card out[PCI_MAX_CARDS], int *n,
                             struct err_info *info);

#endif
