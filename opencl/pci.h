/* Lists the display cards on the PCI bus, from libpciaccess and Linux's sysfs. It needs no driver and no privilege, so
 * it also finds cards that OpenCL does not show. Threads: one at a time, because the library keeps its state in the
 * process. */
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

/* Reads such a text, or "03:00.0" with domain 0. For any other text returns false and leaves *out unchanged. */
MUST_CHECK bool pci_address_parse(const char *text, struct pci_address *out);

bool pci_address_is(const struct pci_address *a, const struct pci_address *b);

struct pci_card {
    struct pci_address at;
    uint16_t vendor, device, sub_vendor, sub_device;
    uint64_t bar_bytes[PCI_BARS]; /* of memory; 0: none, or I/O ports */
    uint64_t vram_bytes;          /* according to the kernel's driver; 0: unknown */
    char driver[32];              /* kernel driver bound to it: "amdgpu"; "": none */
    char node[32];                /* device in /dev/dri that programs open: "renderD128"; "": none */
    char link_speed[32];          /* current speed of the link: "16.0 GT/s PCIe"; "": unknown */
    uint32_t link_width;          /* lanes; 0: unknown */
};

/* Returns the size of the largest BAR, through which the host writes to the card's memory. */
uint64_t pci_window_bytes(const struct pci_card *card);

/* Returns whether the host reaches all `vram_bytes` of a card's memory (resizable BAR). Without it decoding was
 * measured at half the speed, 86 against 173 tokens per second [RX 7900 XTX, llama.cpp,
 * github.com/1337hero/rx7900xtx-llama-bench-vulcan; the slot differed too]. Unknown if either size is unknown. */
enum pci_rebar { PCI_REBAR_UNKNOWN, PCI_REBAR_ON, PCI_REBAR_OFF };
enum pci_rebar pci_rebar(const struct pci_card *card, uint64_t vram_bytes);

struct pci_device;
struct pci_device_iterator;
struct pci_id_match;

/* The functions used of libpciaccess, and the sysfs folder of the devices; tests replace them. */
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

/* Lists the devices of class 0x03 in out[0..*n), ordered by address, up to PCI_MAX_CARDS. ERR_IO: the system has no PCI
 * bus, as in some containers. */
MUST_CHECK enum err pci_list(const struct pci_calls *calls, struct pci_card out[PCI_MAX_CARDS], int *n,
                             struct err_info *info);

#endif
