/* The outer loop is over blocks, the inner over lanes. So the panel is written once in order while 16 rows are read in
 * parallel, which hardware prefetchers follow. */
#include "engine/quant/panel_pack.h"

#include "engine/base/compiler.h"
#include "engine/quant/quant_types.h"

#include <string.h>

enum { TABLE_ENTRIES = 16 };

/* Transposes [n_rows][k] elements of `bytes` to [k][16]; missing lanes are zero. */
static ALWAYS_INLINE void pack_floats(const struct quant_rows *from, size_t k, size_t bytes, unsigned char *dst)
{
    for (size_t i = 0; i < k; i++) {
        for (size_t lane = 0; lane < (size_t)from->n; lane++) {
            memcpy(dst + (i * PANEL_ROWS + lane) * bytes,
                   (const unsigned char *)from->rows + lane * from->row_bytes + i * bytes, bytes);
        }
    }
}

void panel_pack(enum dtype type, const void *src, size_t row_bytes, int n_rows, size_t k, void *dst)
{
    const struct quant_ops *ops = quant_ops(type);
    enum panel_kind kind = ops->panel;
    const struct panel_info *info = panel_info(kind);
    struct quant_rows rows = {src, row_bytes, n_rows, 0};
    unsigned char *out = dst;
    size_t bytes = panel_bytes(kind, k);
    if (n_rows < PANEL_ROWS) {
        memset(out, 0, bytes); /* missing lanes: zero weights or zero scales */
    }
    if (info->is_float) {
        memset(out + bytes - 64, 0, 64); /* padding at the end */
        if (info->bits == 32) {
            pack_floats(&rows, k, sizeof(uint32_t), dst);
        } else {
            pack_floats(&rows, k, sizeof(uint16_t), dst);
        }
        return;
    }
    size_t table_at = panel_table_offset(kind, k);
    for (size_t group = 0; group * PANEL_GROUP * PANEL_BLOCK < k; group++) {
        struct panel_group g = panel_group_at(kind, k, group);
        size_t end = MIN_OF(g.codes + panel_group_bytes(kind), table_at);
        memset(out + end - 64, 0, 64); /* padding */
        rows.i_block = group * PANEL_GROUP;
        if (ops->pack != NULL) {
            ops->pack(&rows, &g, out);
        } else {
            quant_pack(ops->unpack, info, false, &rows, &g, out);
        }
    }
    for (size_t at = table_at; at < bytes; at += TABLE_ENTRIES) {
        memcpy(out + at, ops->table, TABLE_ENTRIES);
    }
}
