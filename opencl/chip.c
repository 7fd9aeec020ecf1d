#include "opencl/chip.h"

#include "engine/base/compiler.h"

#include <stddef.h>
#include <string.h>

static const struct chip chips[] = {
    {"gfx1100", "navi31", CHIP_RDNA3, false}, {"gfx1101", "navi32", CHIP_RDNA3, false},
    {"gfx1102", "navi33", CHIP_RDNA3, false}, {"gfx1103", "phoenix", CHIP_RDNA3, true},
    {"gfx1150", "strix1", CHIP_RDNA3, true},  {"gfx1151", "strix_halo", CHIP_RDNA3, true},
    {"gfx1200", "navi44", CHIP_RDNA4, false}, {"gfx1201", "navi48", CHIP_RDNA4, false},
};

/* [pci.ids of pciutils; data/amdgpu.ids of libdrm] */
static const struct {
    uint16_t device;
    const char *gfx;
} ids[] = {
    {0x744c, "gfx1100"}, /* RX 7900 XTX, XT, GRE, M */
    {0x7448, "gfx1100"}, /* Pro W7900 */
    {0x7449, "gfx1100"}, /* Pro W7800 48GB */
    {0x744a, "gfx1100"}, /* Pro W7900 Dual Slot */
    {0x745e, "gfx1100"}, /* Pro W7800 */
    {0x7470, "gfx1101"}, /* Pro W7700 */
    {0x747e, "gfx1101"}, /* RX 7800 XT, 7700 XT */
    {0x7480, "gfx1102"}, /* RX 7600, 7600 XT, 7700S; Pro W7600 */
    {0x7483, "gfx1102"}, /* RX 7600M */
    {0x15bf, "gfx1103"}, /* Radeon 780M, 760M */
    {0x15c8, "gfx1103"}, /* Radeon 740M */
    {0x150e, "gfx1150"}, /* Radeon 890M, 880M */
    {0x1586, "gfx1151"}, /* Radeon 8060S, 8050S */
    {0x7550, "gfx1201"}, /* RX 9070 XT, 9070 */
    {0x7590, "gfx1200"}, /* RX 9060 XT */
};

const struct chip *chip_of_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(chips); i++) {
        if (strstr(name, chips[i].gfx) != NULL || strstr(name, chips[i].word) != NULL) {
            return &chips[i];
        }
    }
    return NULL;
}

const struct chip *chip_of_pci(uint16_t vendor, uint16_t device)
{
    for (size_t i = 0; vendor == CHIP_VENDOR_AMD && i < ARRAY_LEN(ids); i++) {
        if (ids[i].device == device) {
            return chip_of_name(ids[i].gfx);
        }
    }
    return NULL;
}

const char *chip_family_name(enum chip_family family) { return family == CHIP_RDNA3 ? "RDNA3" : "RDNA4"; }
