/* GET /health and /metrics, answered without waiting for the scheduler. */
#include "engine/base/json_write.h"
#include "fcgi/watch/metrics.h"
#include "fcgi/watch/status.h"
#include "fcgi/watch/watch.h"

#include <inttypes.h>
#include <string.h>

static void put_bytes(struct buf *out, const struct engine_device *d)
{
    buf_printf(out, "\"weights\":%" PRIu64 ",\"kv\":%" PRIu64 ",\"states\":%" PRIu64 ",\"activations\":%" PRIu64 "}",
               d->weights, d->kv, d->states, d->activations);
}

/* Writes the values of all devices together and of each. */
static void put_devices(struct buf *out, const struct engine_model_info *m)
{
    struct engine_device all = {0};
    buf_puts(out, "\"devices\":[");
    for (int i = 0; i < m->n_devices; i++) {
        const struct engine_device *d = &m->devices[i];
        buf_puts(out, i > 0 ? ",{\"device\":" : "{\"device\":");
        json_write_cstr(out, d->id);
        buf_puts(out, ",\"name\":");
        json_write_cstr(out, d->name);
        buf_putc(out, ',');
        put_bytes(out, d);
        all.weights += d->weights;
        all.kv += d->kv;
        all.states += d->states;
        all.activations += d->activations;
    }
    buf_puts(out, "],\"device_memory\":{");
    put_bytes(out, &all);
}

void api_health(struct call *c)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    int status = 200;
    if (c->engine == NULL && atomic_load(&c->server->has_failed)) {
        status = 503;
        c->reply.retry_after_s = 1;
        buf_puts(
            &out,
            "{\"status\":\"failed\",\"error\":{\"message\":\"The model cannot be loaded\",\"type\":\"unavailable_error\","
            "\"param\":null,\"code\":\"model_unavailable\"}}");
    } else if (c->engine == NULL) {
        status = 503;
        c->reply.retry_after_s = 1;
        int progress = atomic_load(&c->server->progress);
        buf_printf(&out,
                   "{\"status\":\"loading\",\"progress\":%.3f,\"error\":{\"message\":\"Loading "
                   "model\",\"type\":\"unavailable_error\","
                   "\"param\":null,\"code\":\"model_loading\"}}",
                   progress / 1000.0);
    } else {
        const struct engine_model_info *m = engine_model(c->engine);
        struct status s;
        status_get(c->server, c->engine, &s);
        status = strcmp(s.state, "ok") == 0 ? 200 : 503;
        buf_printf(&out, "{\"status\":\"%s\",", s.state);
        if (strcmp(s.state, "lost") == 0) {
            buf_puts(&out, "\"reason\":");
            json_write_cstr(&out, s.lost.text);
            buf_putc(&out, ',');
        }
        buf_puts(&out, "\"model\":");
        json_write_cstr(&out, c->server->model_id);
        buf_printf(&out,
                   ",\"backend\":\"%s\",\"kernels\":\"%s\",\"kernels_why\":\"%s\",\"pack_cache\":\"%s\",\"threads\":%d,"
                   "\"running\":%" PRIu64 ",\"waiting\":%" PRIu64 ",\"stuck_requests\":%d,\"weight_bytes\":%" PRIu64
                   ",\"kv_bytes\":%" PRIu64 ",\"cache_type_k\":\"%s\",\"cache_type_v\":\"%s\",",
                   m->backend, m->kernels, m->kernels_why, m->pack_cache, m->n_threads, s.sched.n_running,
                   s.sched.n_waiting, atomic_load(&c->server->n_stuck_requests), m->weight_bytes, m->kv_bytes,
                   m->cache_type_k, m->cache_type_v);
        put_devices(&out, m);
        buf_putc(&out, '}');
    }
    reply_send(&c->reply, status, "application/json", &out);
    buf_fini(&out);
}

void api_metrics(struct call *c)
{
    const char *names[METRICS_MAX_ROUTES];
    int n = 0;
    while (n < METRICS_MAX_ROUTES && n < c->server->n_routes) {
        names[n] = c->server->routes[n].path;
        n++;
    }
    if (c->server->conf->no_metrics) {
        struct err_info info = {0};
        reply_error(&c->reply, err_set(&info, ERR_NOT_SUPPORTED, NULL, "the server was started with --no-metrics"),
                    &info);
        return;
    }
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    metrics_write(&out, c->engine, names, n);
    if (c->server->conf->metrics) {
        metrics_write_llama(&out, c->engine);
        c->reply.process_started = c->server->started;
    }
    reply_send(&c->reply, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
    buf_fini(&out);
}
