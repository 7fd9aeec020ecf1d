/* Walks rows and panels for kernels of float panels. Include after `tile(args, kind, bytes, r, p, n, m)`, which
 * computes rows r .. r+n-1 against panels p .. p+m-1, `bytes` long each, and after these enumerators:
 *   TILE_ROWS (4 or 8), TILE_PANELS   rows and panels of a tile,
 *   ROW_PANELS                        panels of a tile of one row,
 *   ROWS_IN_CACHE_BYTES               bytes of rows that stay in the cache while all panels pass. */
#ifndef INFCGI_KERNELS_VEC_MATMUL_FLOAT_VEC_H
#define INFCGI_KERNELS_VEC_MATMUL_FLOAT_VEC_H

/* Computes rows r .. end-1 against m panels from p on. */
static ALWAYS_INLINE void panel_rows(const struct kern_matmul_args *a, enum panel_kind kind, size_t bytes, int r,
                                     int end, int p, int m)
{
    for (; r + TILE_ROWS <= end; r += TILE_ROWS) {
        tile(a, kind, bytes, r, p, TILE_ROWS, m);
    }
    if (TILE_ROWS > 4 && end - r >= 4) {
        tile(a, kind, bytes, r, p, 4, m);
        r += 4;
    }
    if (end - r >= 2) {
        tile(a, kind, bytes, r, p, 2, m);
        r += 2;
    }
    if (end - r >= 1) {
        tile(a, kind, bytes, r, p, 1, m);
    }
}

static ALWAYS_INLINE void matmul(const struct kern_matmul_args *a, enum panel_kind kind)
{
    size_t bytes = panel_bytes(kind, a->k);
    if (a->n_rows == 1) {
        int p = 0;
        for (; p + ROW_PANELS <= a->n_panels; p += ROW_PANELS) {
            tile(a, kind, bytes, 0, p, 1, ROW_PANELS);
        }
        for (; p < a->n_panels; p++) {
            tile(a, kind, bytes, 0, p, 1, 1);
        }
        return;
    }
    int step = MAX_OF((int)(ROWS_IN_CACHE_BYTES / (a->row_bytes + 1) / TILE_ROWS * TILE_ROWS), (int)TILE_ROWS);
    for (int r = 0; r < a->n_rows; r += step) {
        int end = MIN_OF(r + step, a->n_rows), p = 0;
        for (; TILE_PANELS > 1 && p + TILE_PANELS <= a->n_panels; p += TILE_PANELS) {
            panel_rows(a, kind, bytes, r, end, p, TILE_PANELS);
        }
        for (; p < a->n_panels; p++) {
            panel_rows(a, kind, bytes, r, end, p, 1);
        }
    }
}

static void matmul_f32(const struct kern_matmul_args *a) { matmul(a, PANEL_F32); }
static void matmul_f16(const struct kern_matmul_args *a) { matmul(a, PANEL_F16); }
static void matmul_bf16(const struct kern_matmul_args *a) { matmul(a, PANEL_BF16); }

static inline void matmul_float_vec_init(struct kern_table *t)
{
    t->matmul[PANEL_F32] = matmul_f32;
    t->matmul[PANEL_F16] = matmul_f16;
    t->matmul[PANEL_BF16] = matmul_bf16;
}

#endif
