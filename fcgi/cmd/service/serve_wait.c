#include "fcgi/cmd/service/serve_wait.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/names.h"
#include "engine/base/thread.h"
#include "fcgi/ground/log.h"
#include "fcgi/ground/pulse.h"
#include "fcgi/tenant/apikey.h"
#include "fcgi/tenant/journal.h"
#include "fcgi/tenant/tenant.h"
#include "fcgi/wire/live.h"
#include "fcgi/wire/notify.h"
#include "fcgi/wire/worker.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define LOOK_NS   1000000000u /* between two scheduler checks, or less if the watchdog requires it */
#define STATUS_NS 5000000000u /* between two lines of `systemctl status` */
#define TWICE_NS  1000000000u

enum { STUCK_LOG_MS = 200 /* time to write the reason before exiting */ };

static const int signals[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};

static struct {
    struct server *server;
    struct engine *engine;
    sigset_t set;
    struct pulse pulse;
    uint64_t every_ns, looked_ns, status_ns, asked_ns;
    char said[64];
} w;

/* --- files that are read, and logs that are opened, anew ------------------------------------------------------------------ */

static void read_again(const char *what, const char *path, enum err (*load)(const char *path, struct err_info *info))
{
    struct err_info info = {0};
    if (path != NULL && load(path, &info) != ERR_OK) {
        log_line("error", "%s_kept reason=\"%s\"", what, info.text);
    } else if (path != NULL) {
        log_line("info", "%s_reloaded", what);
    }
}

void serve_wait_log_overrides(const struct conf *conf)
{
    if (conf->overrides[0] != '\0') {
        log_line("warn", "environment_overrides variables=\"%s\" file=\"%s\"", conf->overrides, conf->config);
    }
}

/* Options that SIGHUP has changed. Handlers can still use old ones, so all are kept. */
struct changed {
    struct conf conf;
    struct changed *before;
};
static struct changed *changed;

static void reread_options(void)
{
    struct conf_changes changes;
    struct err_info info = {0};
    struct changed *c = mem_alloc(sizeof *c, MEM_GENERAL);
    enum err err = c == NULL ? ERR_NOMEM : conf_reread(w.server->conf, &c->conf, &changes, &info);
    if (err != ERR_OK) {
        log_line("error", "options_kept reason=\"%s\"", err == ERR_NOMEM ? err_text(err) : info.text);
    } else if (changes.waiting[0] != '\0') {
        log_line("warn",
                 "options_wait names=\"%s\" reason=\"a reload (SIGUSR2, with --master) or a restart brings them\"",
                 changes.waiting);
    }
    if (err == ERR_OK) {
        serve_wait_log_overrides(&c->conf);
    }
    if (err == ERR_OK && changes.n_live == 0 && changes.waiting[0] == '\0') {
        log_line("info", "options_unchanged");
    }
    if (err != ERR_OK || changes.n_live == 0) {
        mem_free(c);
        return;
    }
    c->before = changed;
    changed = c;
    atomic_store(&w.server->conf, &c->conf);
    log_set_level(names_find(log_level_name, c->conf.log_level));
    w.pulse.least_ms = (uint64_t)c->conf.step_limit_s * 1000u;
    log_line("info", "options_reloaded changed=%d", changes.n_live);
}

static void reread_keys(void) { read_again("api_keys", w.server->conf->api_key_file, apikey_load); }
static void reread_tenants(void) { read_again("tenants", w.server->conf->tenants, tenant_load); }

typedef void (*again_fn)(void);

/* To reread a file at SIGHUP, add a function here. It must keep the old state if the file is unusable. */
static const again_fn reread[] = {reread_options, reread_keys, reread_tenants, NULL};

/* To reopen a log at SIGUSR1, after it was moved, add a function here. */
static const again_fn reopen[] = {journal_reopen, log_reopen, NULL};

static void do_all(const again_fn *list)
{
    for (; *list != NULL; list++) {
        (*list)();
    }
}

/* Rereads options and keys. */
static void reread_all(void)
{
    bool is_mine = worker_role() == WORKER_NONE; /* else the master tells the service manager */
    if (is_mine) {
        notify_reloading();
    }
    do_all(reread);
    if (is_mine) {
        notify_say(w.engine != NULL ? "READY=1" : "", NULL);
    }
}

/* --- the watch ------------------------------------------------------------------------------------------------------------ */

static void say_status(const struct sched_stats *s, uint64_t now)
{
    char text[sizeof w.said];
    snprintf(text, sizeof text, "%" PRIu64 " running, %" PRIu64 " waiting", s->n_running, s->n_waiting);
    if (now - w.status_ns >= STATUS_NS && strcmp(text, w.said) != 0 && !atomic_load(&w.server->is_draining)) {
        notify_say("", "serving %s: %s", w.server->model_id, text);
        memcpy(w.said, text, sizeof text);
        w.status_ns = now;
    }
}

/* Stops requests that compute for too long. Returns whether one of them does not end. */
static bool look_at_requests(void)
{
    uint64_t limit_s = (uint64_t)w.server->conf->compute_limit_s;
    struct live_pulse p;
    live_check(limit_s * 1000000000u, &p);
    for (int i = 0; i < p.n_news; i++) {
        const struct live_report *r = &p.news[i];
        bool is_lost = r->verdict == PULSE_LOST;
        const char *why =
            is_lost ? "it cannot be stopped; the process has to end" : "it computes for too long and is stopped";
        log_line("error",
                 "request_%s id=%s request=%" PRIu64 " route=%s tenant=%s phase=%s cpu_ms=%" PRIu64 " limit_ms=%" PRIu64
                 " reason=\"%s\"",
                 is_lost ? "lost" : "stuck", r->id, r->number, r->path[0] != '\0' ? r->path : "-",
                 r->owner[0] != '\0' ? r->owner : "-", r->phase, r->cpu_ms, limit_s * 1000u, why);
        if (is_lost) {
            log_flush(STUCK_LOG_MS);
            notify_say(worker_role() != WORKER_NONE ? "WATCHDOG=trigger" : "", "stuck in a request (%s)", r->phase);
        }
    }
    atomic_store(&w.server->n_stuck_requests, p.n_long);
    atomic_store(&w.server->has_lost_request, p.n_lost > 0);
    return p.n_lost > 0;
}

static void look(void)
{
    uint64_t now = clock_now_ns();
    struct sched_stats s;
    if (w.engine == NULL || now - w.looked_ns < w.every_ns) {
        return;
    }
    w.looked_ns = now;
    engine_get_stats(w.engine, &s);
    bool is_stuck = pulse_is_stuck(&w.pulse, &s, now), was_stuck = atomic_exchange(&w.server->is_stuck, is_stuck);
    if (is_stuck && !was_stuck) {
        log_line("error",
                 "step_stuck at=%s age_ms=%" PRIu64 " limit_ms=%" PRIu64 " usual_ms=%" PRIu64 " steps=%" PRIu64
                 " running=%" PRIu64 " waiting=%" PRIu64 " backend=%s",
                 sched_place_name(s.at), s.last_step_age_ms, w.pulse.limit_ms, s.usual_step_ms, s.steps, s.n_running,
                 s.n_waiting, engine_model(w.engine)->backend);
        log_flush(STUCK_LOG_MS);
        notify_say(worker_role() != WORKER_NONE ? "WATCHDOG=trigger" : "", "stuck in a step (%s)",
                   sched_place_name(s.at));
    } else if (!is_stuck && was_stuck) {
        log_line("warn", "step_goes_on steps=%" PRIu64, s.steps);
        w.said[0] = '\0';
    }
    if (!look_at_requests() && !is_stuck) {
        notify_say("WATCHDOG=1", NULL);
        say_status(&s, now);
    }
}

void serve_wait_watch(struct engine *e)
{
    w.engine = e;
    w.pulse = (struct pulse){.least_ms = (uint64_t)w.server->conf->step_limit_s * 1000u, .last_ns = clock_now_ns()};
    w.looked_ns = w.status_ns = clock_now_ns();
    snprintf(w.said, sizeof w.said, "0 running, 0 waiting");
}

/* --- signals -------------------------------------------------------------------------------------------------------------- */

void serve_wait_init(struct server *server)
{
    uint64_t watchdog = notify_watchdog_ns();
    w.server = server;
    w.every_ns = watchdog != 0 ? MIN_OF(LOOK_NS, watchdog / 3) : LOOK_NS;
    sigemptyset(&w.set);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        sigaddset(&w.set, signals[i]);
    }
    pthread_sigmask(SIG_BLOCK, &w.set, NULL);
}

/* Handles a signal. Returns whether it is a first request to exit. */
static bool is_end(int signal)
{
    uint64_t now = clock_now_ns();
    switch (signal) {
    case SIGHUP:
        reread_all();
        return false;
    case SIGUSR1:
        do_all(reopen);
        return false;
    case SIGUSR2:
        if (worker_role() == WORKER_NONE) {
            log_line(
                "warn",
                "reload_refused reason=\"only `infcgi serve --master` can start another process in this one's place\"");
            return false;
        }
        break;
    }
    if (w.asked_ns != 0 && now - w.asked_ns < TWICE_NS) {
        return false;
    }
    w.asked_ns = now;
    return true;
}

int serve_wait(int ms)
{
    uint64_t until = clock_now_ns() + (uint64_t)ms * 1000000u;
    for (;;) {
        look();
        uint64_t now = clock_now_ns(), left = MIN_OF(until > now ? until - now : 0, w.every_ns);
        const struct timespec at_most = thread_until(left);
        int signal = sigtimedwait(&w.set, NULL, &at_most);
        if (signal > 0 && is_end(signal)) {
            return signal;
        }
        if (signal <= 0 && now >= until) {
            return 0;
        }
    }
}
