/* Admin commands about requests: requests, cancel, tenants. */
#include "engine/base/mem.h"
#include "fcgi/ground/number.h"
#include "fcgi/tenant/tenant.h"
#include "fcgi/watch/admin.h"
#include "fcgi/watch/status.h"
#include "fcgi/wire/live.h"

#include <inttypes.h>
#include <string.h>

json_t *admin_requests(struct admin_call *c)
{
    (void)c;
    return status_requests();
}

json_t *admin_cancel(struct admin_call *c)
{
    int64_t number;
    if (!number_parse(c->words[1], &number) || number < 1) {
        return admin_refuse(c, ADMIN_USAGE, "cancel: expected the number of a request, found '%.40s'", c->words[1]);
    }
    if (!live_cancel((uint64_t)number)) {
        return admin_refuse(c, ADMIN_REFUSED, "no request %" PRId64 " is being handled", number);
    }
    return json_pack("{s:I}", "cancelled", (json_int_t)number);
}

/* A tenant's limits and usage; limit 0: none. */
static json_t *tenant_row(const struct tenant_report *t)
{
    const struct tenant_rules *r = &t->rules;
    return json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tenant", r->name,
                     "named", t->has_section, "weight", (json_int_t)r->weight, "priority", (json_int_t)r->priority,
                     "requests_per_minute", (json_int_t)r->requests_per_minute, "tokens_per_minute",
                     (json_int_t)r->tokens_per_minute, "concurrent", (json_int_t)r->concurrent, "requests_now",
                     (json_int_t)t->n_active, "running", (json_int_t)t->n_running, "waiting", (json_int_t)t->n_waiting,
                     "requests", (json_int_t)t->counts.requests, "refused", (json_int_t)t->counts.refused,
                     "prompt_tokens", (json_int_t)t->counts.prompt_tokens, "cached_tokens",
                     (json_int_t)t->counts.cached_tokens, "completion_tokens", (json_int_t)t->counts.completion_tokens);
}

json_t *admin_tenants(struct admin_call *c)
{
    enum { MOST = TENANT_MAX_UNNAMED + TENANT_FILE_MAX + 1 };
    struct tenant_report *all = mem_zalloc_array(MOST, sizeof *all, MEM_GENERAL);
    if (all == NULL) {
        return admin_refuse(c, ADMIN_REFUSED, "out of memory");
    }
    size_t n = tenant_snapshot(c->engine, all, MOST);
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(rows, tenant_row(&all[i]));
    }
    mem_free(all);
    return rows;
}
