/* Reads every weight of a model file, which opening does not: lost or changed bytes show as numbers that no training
 * produces. */
#include "engine/engine_internal.h"

#include "engine/base/mem.h"

#include <inttypes.h>
#include <math.h>

static enum err check_rows(const struct plan_weight *w, float *row, struct err_info *info)
{
    for (uint32_t r = 0; r < w->n_out; r++) {
        w->source->ops->read(w->source, r, 0, w->n_in, row);
        for (uint32_t i = 0; i < w->n_in; i++) {
            if (!isfinite(row[i])) {
                return err_set(info, ERR_NUMERICAL, w->name,
                               "%s: expected finite numbers, found %g in row %" PRIu32 ", column %" PRIu32, w->name,
                               (double)row[i], r, i);
            }
        }
    }
    return ERR_OK;
}

enum err engine_verify_weight(const struct plan_weight *w, struct err_info *info)
{
    float *row = mem_alloc(((size_t)w->n_in + 1) * sizeof *row, MEM_MODEL);
    TRY_MEM_FOR(row != NULL, info, "out of memory for a row of %" PRIu32 " weights", w->n_in);
    enum err err = check_rows(w, row, info);
    mem_free(row);
    return err;
}
