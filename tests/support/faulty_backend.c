/* backend_find as the linker gives it to others, and the back end that it then finds. */
#include "tests/support/faulty_backend.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool is_armed;
static atomic_long n_before; /* batches that do well before the one that fails */
static atomic_int code;
static const struct backend *real;

void faulty_backend_arm(long n, enum err with)
{
    atomic_store(&code, with);
    atomic_store(&n_before, n);
    atomic_store(&is_armed, true);
}

static void read_environment(void)
{
    const char *fault = getenv("INFCGI_FAULT"), *at = fault != NULL ? strchr(fault, '@') : NULL;
    for (int e = 0; at != NULL && e < ERR_COUNT; e++) {
        const char *name = err_code((enum err)e);
        if (strlen(name) == (size_t)(at - fault) && strncmp(name, fault, strlen(name)) == 0) {
            faulty_backend_arm(strtol(at + 1, NULL, 10), (enum err)e);
        }
    }
}

static enum err wait_faulty(struct backend_model *m, struct err_info *info)
{
    TRY(real->wait(m, info));
    return atomic_fetch_sub(&n_before, 1) == 0
               ? err_set(info, (enum err)atomic_load(&code), NULL, "%s", FAULTY_BACKEND_WHY)
               : ERR_OK;
}

const struct backend *__real_backend_find(const char *name);
const struct backend *__wrap_backend_find(const char *name);

const struct backend *__wrap_backend_find(const char *name)
{
    static struct backend faulty;
    const struct backend *found = __real_backend_find(name);
    read_environment();
    if (found == NULL || !atomic_load(&is_armed)) {
        return found;
    }
    real = found;
    faulty = *found;
    faulty.wait = wait_faulty;
    return &faulty;
}
