/* The file of --tenants: access and limits. A section `[name]` is a tenant; `[default]` holds for all other tenants and
 * for keys that a section omits. docs/ops/tenants.md lists the keys. Threads: pure functions; a loaded file is
 * read-only. */
#ifndef INFCGI_FCGI_TENANT_FILE_H
#define INFCGI_FCGI_TENANT_FILE_H

#include "fcgi/tenant/apikey.h"

enum { TENANT_NAME_BYTES = 65, TENANT_MODELS_BYTES = 512, TENANT_FILE_MAX = 1024 };

/* The rules of a tenant. Limits: 0 = none. */
struct tenant_rules {
    char name[TENANT_NAME_BYTES];
    struct apikey_id id;
    int64_t weight;   /* 1 .. 1000: share of the engine's time */
    int64_t priority; /* -100 .. 100; higher classes run first */
    int64_t requests_per_minute, tokens_per_minute, concurrent;
    int64_t max_tokens;               /* per answer */
    char models[TENANT_MODELS_BYTES]; /* ids separated by a space; "": any */
};

struct tenant_file {
    struct tenant_rules fallback; /* [default]; its name is "" */
    struct tenant_rules *at;      /* [n] */
    size_t n;
    struct buf keys; /* of apikey_add */
};

/* Computes the id of the tenant with that name. ERR_INTERNAL. */
MUST_CHECK enum err tenant_file_id(const char *name, struct apikey_id *out);

/* Sets the rules that apply without a file. */
void tenant_file_init(struct tenant_file *f);

/* Reads the file into *f. ERR_CONFIG: the file is unreadable or a line is wrong; info names the line without its text.
 * ERR_NOMEM, ERR_INTERNAL. tenant_file_fini frees *f, also after tenant_file_init. */
MUST_CHECK enum err tenant_file_read(const char *path, struct tenant_file *f, struct err_info *info);
void tenant_file_fini(struct tenant_file *f);

/* Returns the tenant with that id, or NULL. */
const struct tenant_rules *tenant_file_find(const struct tenant_file *f, const struct apikey_id *id);

#endif
