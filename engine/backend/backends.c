/* The table of back ends. */
#include "engine/backend/backend.h"

#include <string.h>

static const struct backend *const backends[] = {
    &backend_cpu,
    &backend_ref,
};

const struct backend *backend_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(backends) ? backends[i] : NULL; }

const struct backend *backend_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        if (strcmp(backends[i]->name, name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}
