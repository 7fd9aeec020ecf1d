/* The table of back ends. */
#include "engine/backend/backend.h"

static const struct backend *const backends[] = {
    &backend_cpu,
    &backend_ref,
    &backend_opencl,
};

const struct backend *backend_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(backends) ? backends[i] : NULL; }

const char *backend_name(int i) { return backend_at(i) != NULL ? backend_at(i)->name : NULL; }

const struct backend *backend_find(const char *name) { return backend_at(names_find(backend_name, name)); }

static bool names_option(const struct backend *b, const char *option)
{
    return b->option_name != NULL && names_find(b->option_name, option) >= 0;
}

bool backend_has_option(const struct backend *b, const char *option)
{
    bool is_theirs = false;
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        is_theirs |= names_option(backends[i], option);
    }
    return !is_theirs || names_option(b, option);
}

const char *backend_kv_type_name(int i)
{
    for (size_t b = 0; b < ARRAY_LEN(backends); b++) {
        const char *name;
        for (int k = 0; (name = backends[b]->kv_type_name(k)) != NULL; k++) {
            bool is_named = false; /* an earlier back end has the name */
            for (size_t other = 0; other < b; other++) {
                is_named |= names_find(backends[other]->kv_type_name, name) >= 0;
            }
            if (!is_named && i-- == 0) {
                return name;
            }
        }
    }
    return NULL;
}
