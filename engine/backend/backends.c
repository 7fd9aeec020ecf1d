/* The table of back ends, and what they have in common. */
#include "engine/backend/backend.h"

#include "engine/base/names.h"

static const struct backend *const backends[] = {
    &backend_cpu,
    &backend_ref,
};

const struct backend *backend_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(backends) ? backends[i] : NULL; }

const char *backend_name(int i) { return backend_at(i) != NULL ? backend_at(i)->name : NULL; }

const struct backend *backend_find(const char *name)
{
    return backend_at(names_find(backend_name, name));
}

enum err backend_compute(const struct backend *b, struct backend_model *m, const struct backend_batch *batch,
                         struct err_info *info)
{
    TRY(b->begin(m, batch, info));
    return b->wait(m, info);
}

uint64_t backend_kv_page_bytes(const struct plan *plan, enum kv_type k_type, enum kv_type v_type)
{
    uint64_t all = 0; /* of at most PLAN_MAX_LAYERS * PLAN_MAX_HEADS heads */
    for (int32_t i = 0; i < (int32_t)plan->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(plan, i);
        if (kv.layer == i) {
            struct kv_layout l = kv_layout_for(k_type, v_type, (int)kv.head_dim, (int)kv.latent_dim);
            all += (uint64_t)l.bytes * kv.n_kv_heads;
        }
    }
    return all;
}
