/* AMD's chips that matter here: RDNA3, which the back end is made for, and RDNA4, which must not be taken for it.
 *
 * A chip is known by what drivers call it, else by its PCI device id: never by the vendor alone, which says nothing of
 * what a card can do, and is AMD's for its bridges too. Ids and names that no source told are not in the table; cards
 * of such are judged by their driver's name for them. Threads: constant. */
#ifndef INFCGI_OPENCL_CHIP_H
#define INFCGI_OPENCL_CHIP_H

#include <stdbool.h>
#include <stdint.h>

enum chip_family { CHIP_RDNA3 = 3, CHIP_RDNA4 = 4 };

enum { CHIP_VENDOR_AMD = 0x1002 };

struct chip {
    const char *gfx;  /* "gfx1100", as compilers call it [LLVM AMDGPUUsage] */
    const char *word; /* "navi31", as Mesa calls it */
    enum chip_family family;
    bool is_integrated; /* in a processor: its memory is the host's */
};

/* The chip of a PCI device; NULL when it is not one of the table. */
const struct chip *chip_of_pci(uint16_t vendor, uint16_t device);

/* The chip that a driver's name for a device tells of: "gfx1100" of ROCm, "AMD Radeon RX 7900 XTX (radeonsi, navi31,
 * LLVM 19.1.7, DRM 3.59)" of Mesa. NULL when there is none of the table in it. */
const struct chip *chip_of_name(const char *name);

/* "RDNA3" */
const char *chip_family_name(enum chip_family family);

#endif
