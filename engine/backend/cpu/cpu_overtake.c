/* Lets a batch overtake another. All threads leave the old batch between two steps. The rows that the new batch
 * overwrites are saved: as many first rows of every buffer as the new batch has. The old batch has no other state
 * between steps: angles and tasks of attention are recomputed, and logits come last. */
#include "engine/backend/cpu/cpu_internal.h"

#include <string.h>

static int32_t rows_of(const struct backend_model *m, int32_t buf, int32_t n) { return MIN_OF(n, m->buf_rows[buf]); }

void cpu_overtake_lay_out(struct backend_model *m, size_t *at)
{
    size_t floats = 0;
    for (int32_t i = 0; i < CPU_MAX_BUFS; i++) {
        floats += (size_t)rows_of(m, i, cpu_overtaking_rows(m)) * m->strides[i];
    }
    m->aside = cpu_take(m, at, floats * sizeof *m->aside);
}

static void move(struct backend_model *m, int32_t n, bool is_back)
{
    float *aside = m->aside;
    for (int32_t i = 0; i < CPU_MAX_BUFS; i++) {
        size_t floats = (size_t)rows_of(m, i, n) * m->strides[i];
        if (floats != 0) {
            memcpy(is_back ? m->bufs[i] : aside, is_back ? aside : m->bufs[i], floats * sizeof *aside);
        }
        aside += floats;
    }
}

void cpu_overtake_set_aside(struct backend_model *m, int32_t n) { move(m, n, false); }
void cpu_overtake_put_back(struct backend_model *m, int32_t n) { move(m, n, true); }
