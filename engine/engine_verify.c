/* Reading every weight of a model file, which opening it never does: bytes that were lost or changed on the way show as
 * numbers that no training leaves behind. */
#include "engine/engine_internal.h"

#include "engine/base/mem.h"
#include "engine/quant/quant.h"

#include <inttypes.h>
#include <math.h>

/* One weight, row by row as the file has it. */
struct reader {
    const struct plan_weight *w;
    uint32_t n_rows, n; /* of n elements each */
    float *row;         /* [n] */
};

static void read_row(const struct reader *r, uint32_t row)
{
    const struct plan_weight *w = r->w;
    if (w->source != NULL) {
        w->source->ops->read(w->source, w->source_row + row, 0, r->n, r->row);
        return;
    }
    /* A transposed piece has n_in rows, one behind the other. */
    const char *data = plan_weight_row(w, w->is_transposed ? row / w->n_in * plan_weight_part(w) : row);
    data += w->is_transposed ? row % w->n_in * w->row_bytes : 0;
    quant_ops(w->type)->dequantize(data, r->n, r->row);
}

static enum err check_rows(const struct reader *r, struct err_info *info)
{
    for (uint32_t row = 0; row < r->n_rows; row++) {
        read_row(r, row);
        for (uint32_t i = 0; i < r->n; i++) {
            if (!isfinite(r->row[i])) {
                return err_set(info, ERR_NUMERICAL, r->w->name,
                               "%s: expected finite numbers, found %g in row %" PRIu32 ", column %" PRIu32, r->w->name,
                               (double)r->row[i], row, i);
            }
        }
    }
    return ERR_OK;
}

enum err engine_verify_weight(const struct plan_weight *w, struct err_info *info)
{
    uint32_t part = plan_weight_part(w);
    struct reader r = {.w = w,
                       .n_rows = w->is_transposed ? w->n_out / part * w->n_in : w->n_out,
                       .n = w->is_transposed ? part : w->n_in};
    r.row = mem_alloc(((size_t)r.n + 1) * sizeof *r.row, MEM_MODEL);
    if (r.row == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for a row of %" PRIu32 " weights", r.n);
    }
    enum err err = check_rows(&r, info);
    mem_free(r.row);
    return err;
}
