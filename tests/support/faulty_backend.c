/* backend_find as the linker gives it to others, and the back end that it then finds. */
#include "tests/support/faulty_backend.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool is_armed;
static atomic_long n_before; /* batches that do well before the one that fails */
static atomic_int code;
static atomic_bool hangs, spoils;  /* in place of failing */
static struct backend_batch begun; /* the one that is waited for next */
static const struct backend *real;

void faulty_backend_arm(long n, enum err with)
{
    atomic_store(&code, with);
    atomic_store(&n_before, n);
    atomic_store(&is_armed, true);
}

static atomic_size_t host_bytes, device_bytes;

void faulty_backend_shrink(size_t host, size_t device)
{
    atomic_store(&host_bytes, host);
    atomic_store(&device_bytes, device);
}

static atomic_bool is_shared;

void faulty_backend_share(bool is) { atomic_store(&is_shared, is); }

static enum err probe_faulty(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info)
{
    if (i == 0) {
        return err_set(info, ERR_UNSUPPORTED_CPU, NULL, "the first device is broken");
    }
    TRY(real->probe(cfg, i - 1, out, info));
    snprintf(out->id, sizeof out->id, "7");
    out->bytes[BACKEND_HOST] = host_bytes;
    out->bytes[BACKEND_DEVICE] = device_bytes;
    out->is_shared[BACKEND_DEVICE] = is_shared;
    return host_bytes > 1 ? ERR_OK : ERR_NONE;
}

/* Weights, pages and states are the device's where there is one. */
static enum err measure_faulty(const struct plan *plan, const struct backend_config *cfg, struct backend_measure *out,
                               struct err_info *info)
{
    TRY(real->measure(plan, cfg, out, info));
    if (device_bytes != 0) {
        out->bytes[BACKEND_DEVICE] = out->bytes[BACKEND_HOST];
        out->bytes[BACKEND_DEVICE].activations = 0;
        out->bytes[BACKEND_HOST] = (struct backend_bytes){.activations = out->bytes[BACKEND_HOST].activations};
    }
    return ERR_OK;
}

static void read_environment(void)
{
    const char *fault = getenv("INFCGI_FAULT"), *at = fault != NULL ? strchr(fault, '@') : NULL;
    if (at != NULL && strncmp(fault, "hang@", 5) == 0) {
        faulty_backend_arm(strtol(at + 1, NULL, 10), ERR_OK);
        atomic_store(&hangs, true);
    }
    if (at != NULL && strncmp(fault, "nan@", 4) == 0) {
        faulty_backend_arm(strtol(at + 1, NULL, 10), ERR_OK);
        atomic_store(&spoils, true);
    }
    for (int e = 0; at != NULL && e < ERR_COUNT; e++) {
        const char *name = err_code((enum err)e);
        if (strlen(name) == (size_t)(at - fault) && strncmp(name, fault, strlen(name)) == 0) {
            faulty_backend_arm(strtol(at + 1, NULL, 10), (enum err)e);
        }
    }
}

/* One that another overtakes is begun when that one has been waited for. */
static enum err begin_faulty(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    TRY(real->begin(m, batch, info));
    begun = *batch;
    return ERR_OK;
}

static enum err wait_faulty(struct backend_model *m, struct err_info *info)
{
    TRY(real->wait(m, info));
    if (atomic_load(&spoils)) {
        if (begun.n_logits > 1 && atomic_fetch_sub(&n_before, 1) == 0) {
            begun.stats[0].logsumexp = NAN;
        }
        return ERR_OK;
    }
    bool is_now = atomic_fetch_sub(&n_before, 1) == 0;
    while (is_now && atomic_load(&hangs)) {
        (void)pause();
    }
    return is_now ? err_set(info, (enum err)atomic_load(&code), NULL, "%s", FAULTY_BACKEND_WHY) : ERR_OK;
}

const struct backend *__real_backend_find(const char *name);
const struct backend *__wrap_backend_find(const char *name);

const struct backend *__wrap_backend_find(const char *name)
{
    static struct backend faulty;
    const struct backend *found = __real_backend_find(name);
    read_environment();
    bool is_small = host_bytes != 0;
    if (found == NULL || (!atomic_load(&is_armed) && !is_small)) {
        return found;
    }
    real = found;
    faulty = *found;
    faulty.begin = atomic_load(&is_armed) ? begin_faulty : found->begin;
    faulty.wait = atomic_load(&is_armed) ? wait_faulty : found->wait;
    faulty.probe = is_small ? probe_faulty : found->probe;
    faulty.measure = is_small ? measure_faulty : found->measure;
    return &faulty;
}
