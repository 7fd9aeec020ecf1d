/* AMD chips that need special treatment: RDNA3, which the back end is tuned for, and RDNA4, which must not be mistaken
 * for it.
 *
 * A chip is identified by the driver's name for it, else by its PCI device id. The vendor is not enough: it does not
 * show what a card can do, and AMD's bridges have it too. The table has only ids and names that a source documents;
 * other cards are identified by their driver's name for them. Threads: constant. */
#ifndef INFCGI_OPENCL_CHIP_H
#define INFCGI_OPENCL_CHIP_H

#include <stdbool.h>
#include <stdint.h>

enum chip_family { CHIP_RDNA3 = 3, CHIP_RDNA4 = 4 };

enum { CHIP_VENDOR_AMD = 0x1002 };

struct chip {
    const char *gfx;  /* name in compilers: "gfx1100" [LLVM AMDGPUUsage] */
    const char *word; /* name in Mesa: "navi31" */
    enum chip_family family;
    bool is_integrated; /* part of a processor: uses the host's memory */
};

/* Returns the chip of a PCI device; NULL if the table does not have it. */
const struct chip *chip_of_pci(uint16_t vendor, uint16_t device);

/* Returns the chip that a driver's name for a device contains: "gfx1100" of ROCm, "AMD Radeon RX 7900 XTX (radeonsi,
 * navi31, LLVM 19.1.7, DRM 3.59)" of Mesa. NULL if the name has no chip of the table. */
const struct chip *chip_of_name(const char *name);

/* Returns "RDNA3" or "RDNA4". */
const char *chip_family_name(enum chip_family family);

#endif
