/* The tile instructions of AMX in plain C, to replace those of engine/kernels/x86/amx_tile.h: compute the results of
 * the manual's pseudo-code and detect conditions that raise #GP or #UD. Include it instead of amx_tile.h, in one file
 * per thread, because the tiles are static. After a fault, instructions up to the next AMX_CONFIGURE do nothing, except
 * that AMX_STORE writes AMX_POISON; amx_cpu.fault has the first fault until it is cleared. AMX_CONFIGURE without
 * AMX_RELEASE before it, which the CPU allows, is a fault here: a thread would keep its tiles. Source: Intel SDM vol.
 * 2, LDTILECFG, TILELOADD, TILESTORED, TDPBSSD; exception classes AMX-E1 to AMX-E6 in section 2.10. */
#ifndef INFCGI_TESTS_KERNELS_AMX_EMULATED_H
#define INFCGI_TESTS_KERNELS_AMX_EMULATED_H

#define AMX_TILE_EMULATED
#include "engine/kernels/x86/amx_tile.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_POISON = -1999999999 }; /* palette 1 */

static struct amx_cpu {
    bool is_configured, has_fault;
    unsigned rows[AMX_TILES], row_bytes[AMX_TILES]; /* 0: tile not configured */
    uint8_t data[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES];
    char fault[120];
    long n_dots;
} amx_cpu;

static inline void amx_fault(const char *instruction, const char *what)
{
    if (amx_cpu.fault[0] == '\0') {
        snprintf(amx_cpu.fault, sizeof amx_cpu.fault, "%s: %s", instruction, what);
    }
    amx_cpu.has_fault = true;
}

static inline bool amx_is_zero(const void *p, size_t n)
{
    const unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Returns the fault that LDTILECFG finds in its operand, or NULL. */
static inline const char *amx_config_fault(const struct amx_config *c)
{
    if (c->palette > 1) {
        return "#GP, a palette above 1";
    }
    if (c->palette == 0) {
        return NULL;
    }
    if (!amx_is_zero(c->reserved, sizeof c->reserved) || !amx_is_zero(c->row_bytes + AMX_TILES, 16) ||
        !amx_is_zero(c->rows + AMX_TILES, 8)) {
        return "#GP, a reserved byte that is not 0";
    }
    for (int t = 0; t < AMX_TILES; t++) {
        if (c->row_bytes[t] > AMX_ROW_BYTES) {
            return "#GP, a row of more than 64 bytes";
        }
        if (c->rows[t] > AMX_ROWS) {
            return "#GP, more than 16 rows";
        }
        if ((c->rows[t] == 0) != (c->row_bytes[t] == 0)) {
            return "#GP, rows without bytes or bytes without rows";
        }
    }
    return NULL;
}

static inline void amx_configure(const struct amx_config *c)
{
    amx_cpu.has_fault = false;
    const char *what = amx_config_fault(c);
    what = what == NULL && amx_cpu.is_configured && c->palette != 0 ? "tiles were not released" : what;
    what = what == NULL && c->start_row != 0 ? "a start_row, which is for restarts only" : what;
    amx_cpu.is_configured = what == NULL && c->palette != 0;
    memset(amx_cpu.data, 0, sizeof amx_cpu.data);
    for (int t = 0; t < AMX_TILES; t++) {
        amx_cpu.rows[t] = amx_cpu.is_configured ? c->rows[t] : 0;
        amx_cpu.row_bytes[t] = amx_cpu.is_configured ? c->row_bytes[t] : 0;
    }
    if (what != NULL) {
        amx_fault("LDTILECFG", what);
    }
}

static inline void amx_release(void)
{
    amx_cpu.is_configured = false;
    memset(amx_cpu.data, 0, sizeof amx_cpu.data);
}

/* Returns whether tile t is configured; if not, records #UD. */
static inline bool amx_has(const char *instruction, int t)
{
    if (!amx_cpu.has_fault && !amx_cpu.is_configured) {
        amx_fault(instruction, "#UD, tiles are not configured");
    } else if (!amx_cpu.has_fault && (t < 0 || t >= AMX_TILES || amx_cpu.rows[t] == 0)) {
        amx_fault(instruction, "#UD, a tile that is not configured");
    }
    return !amx_cpu.has_fault;
}

static inline void amx_zero(int t)
{
    if (amx_has("TILEZERO", t)) {
        memset(amx_cpu.data[t], 0, sizeof amx_cpu.data[t]);
    }
}

static inline void amx_load(int t, const void *p, size_t stride)
{
    if (amx_has("TILELOADD", t)) {
        memset(amx_cpu.data[t], 0, sizeof amx_cpu.data[t]);
        for (unsigned i = 0; i < amx_cpu.rows[t]; i++) {
            memcpy(amx_cpu.data[t][i], (const unsigned char *)p + i * stride, amx_cpu.row_bytes[t]);
        }
    }
}

static inline void amx_store(int t, void *p, size_t stride)
{
    bool is_right = amx_has("TILESTORED", t);
    for (unsigned i = 0; is_right && i < amx_cpu.rows[t]; i++) {
        memcpy((unsigned char *)p + i * stride, amx_cpu.data[t][i], amx_cpu.row_bytes[t]);
    }
    for (size_t i = 0; !is_right && i < AMX_ROWS * 16; i++) {
        int32_t poison = AMX_POISON;
        memcpy((unsigned char *)p + i / 16 * stride + i % 16 * 4, &poison, 4);
    }
}

/* Returns whether the shapes of the three tiles match; if not, records #UD. */
static inline bool amx_fits(const char *name, int c, int a, int b)
{
    if (!amx_has(name, c) || !amx_has(name, a) || !amx_has(name, b)) {
        return false;
    }
    if (c == a || a == b || c == b) {
        amx_fault(name, "#UD, a tile named twice");
    } else if (amx_cpu.row_bytes[c] % 4 != 0 || amx_cpu.row_bytes[a] % 4 != 0 || amx_cpu.row_bytes[b] % 4 != 0) {
        amx_fault(name, "#UD, rows that are no whole dwords");
    } else if (amx_cpu.row_bytes[c] != amx_cpu.row_bytes[b]) {
        amx_fault(name, "#UD, C and B differ in bytes of a row");
    } else if (amx_cpu.rows[c] != amx_cpu.rows[a]) {
        amx_fault(name, "#UD, C and A differ in rows");
    } else if (amx_cpu.row_bytes[a] / 4 != amx_cpu.rows[b]) {
        amx_fault(name, "#UD, A has not a dword in a row for each row of B");
    }
    return !amx_cpu.has_fault;
}

static inline void amx_dot(const char *name, int c, int a, int b, bool is_b_signed)
{
    if (!amx_fits(name, c, a, b)) {
        return;
    }
    amx_cpu.n_dots++;
    for (unsigned m = 0; m < amx_cpu.rows[c]; m++) {
        int32_t row[AMX_ROW_BYTES / 4];
        memcpy(row, amx_cpu.data[c][m], sizeof row);
        for (unsigned i = 0; i < amx_cpu.row_bytes[a]; i++) {
            const uint8_t *line = amx_cpu.data[b][i / 4];
            int left = (int8_t)amx_cpu.data[a][m][i];
            for (unsigned n = 0; n < amx_cpu.row_bytes[c] / 4; n++) {
                uint8_t byte = line[4 * n + i % 4];
                int32_t product = left * (is_b_signed ? (int8_t)byte : byte);
                row[n] = (int32_t)((uint32_t)row[n] + (uint32_t)product); /* wraps like the instruction */
            }
        }
        memcpy(amx_cpu.data[c][m], row, sizeof row);
    }
}

#define AMX_CONFIGURE(config)     amx_configure(config)
#define AMX_RELEASE()             amx_release()
#define AMX_ZERO(t)               amx_zero(t)
#define AMX_LOAD(t, p, stride)    amx_load(t, p, stride)
#define AMX_STORE(t, p, stride)   amx_store(t, p, stride)
#define AMX_DOT_SIGNED(c, a, b)   amx_dot("TDPBSSD", c, a, b, true)
#define AMX_DOT_UNSIGNED(c, a, b) amx_dot("TDPBSUD", c, a, b, false)

#endif
