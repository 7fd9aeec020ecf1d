/* The file of --tenants: who may ask, and how much. A section `[name]` is a tenant, `[default]` what holds for all others
 * and what sections leave open; docs/ops/tenants.md lists the lines. Threads: pure functions; a file that was read is
 * not written to. */
#ifndef INFCGI_FCGI_TENANT_FILE_H
#define INFCGI_FCGI_TENANT_FILE_H

#include "fcgi/tenant/apikey.h"

enum { TENANT_NAME_BYTES = 65, TENANT_MODELS_BYTES = 512, TENANT_FILE_MAX = 1024 };

/* What holds for a tenant; of limits 0 = none. */
struct tenant_rules {
    char name[TENANT_NAME_BYTES];
    struct apikey_id id;
    int64_t weight;   /* 1 .. 1000: its part of the engine's time */
    int64_t priority; /* -100 .. 100; a higher class goes first */
    int64_t requests_per_minute, tokens_per_minute, concurrent;
    int64_t max_tokens;               /* of an answer */
    char models[TENANT_MODELS_BYTES]; /* ids with a space between them, "" = any */
};

struct tenant_file {
    struct tenant_rules fallback; /* [default]; its name is "" */
    struct tenant_rules *at;      /* [n] */
    size_t n;
    struct buf keys; /* of apikey_add */
};

/* The id of the tenant of that name. ERR_INTERNAL. */
MUST_CHECK enum err tenant_file_id(const char *name, struct apikey_id *out);

/* What holds where no file says anything. */
void tenant_file_init(struct tenant_file *f);

/* Reads it into *f. ERR_CONFIG: it cannot be read, or a line is wrong, which info names without its text; ERR_NOMEM,
 * ERR_INTERNAL. tenant_file_fini frees, also what tenant_file_init made. */
MUST_CHECK enum err tenant_file_read(const char *path, struct tenant_file *f, struct err_info *info);
void tenant_file_fini(struct tenant_file *f);

/* The tenant of that id, or NULL. */
const struct tenant_rules *tenant_file_find(const struct tenant_file *f, const struct apikey_id *id);

/* The word for a priority that has one, or NULL. */
const char *tenant_file_priority_name(int64_t priority);

#endif
