#include "fcgi/wire/call.h"

#include "engine/base/clock.h"
#include "fcgi/tenant/client_address.h"

struct sched_share call_share(const struct call *c)
{
    struct sched_share share = tenant_share(c->tenant, &c->caller);
    if (!c->caller.is_set) {
        share.key = client_address_key(fastcgi_param(c->reply.request, "REMOTE_ADDR"));
        share.is_guest = share.key != 0;
    }
    return share;
}

enum err call_reserve(struct call *c, int64_t n_tokens, struct err_info *info)
{
    return tenant_reserve(c->tenant, &c->counted, n_tokens, clock_now_ns(), &c->reply.retry_after_s, info);
}

void call_set_retry_after(struct call *c)
{
    struct sched_stats s;
    engine_get_stats(c->engine, &s);
    c->reply.retry_after_s = (int)MIN_OF(s.estimated_wait_ms / 1000 + 1, (uint64_t)60);
}

enum err call_read_json(struct call *c, struct err_info *info)
{
    enum err err = json_in_parse(c->body.data, c->body.len, &c->json, info);
    buf_fini(&c->body);
    return err;
}

void call_drop_json(struct call *c)
{
    json_decref(c->json);
    c->json = NULL;
}

const char *call_tenant(const struct call *c) { return c->live.owner[0] != '\0' ? c->live.owner : "-"; }
