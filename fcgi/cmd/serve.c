/* `infcgi serve`: loads the model while /health already answers, serves until SIGTERM or SIGINT, drains, and goes.
 * SIGHUP reads the API keys again. */
#include "fcgi/cmd/cmd.h"

#include "engine/base/clock.h"
#include "engine/base/mem_account.h"
#include "engine/chat/chat_named.h"
#include "fcgi/api/responses_store.h"
#include "fcgi/apikey.h"
#include "fcgi/cmd/bar.h"
#include "fcgi/fastcgi.h"
#include "fcgi/log.h"
#include "fcgi/memory.h"
#include "fcgi/metrics.h"
#include "fcgi/route.h"
#include "fcgi/server.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_ARENAS = 4,   /* of the heap: threads share them, and free memory in them is no thread's own */
    LOST_DRAIN_S = 5, /* for who does not take the end of an answer */
};

struct server server_state;

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

struct engine_config cmd_engine_config(const struct conf *c)
{
    return (struct engine_config){
        .sampling = &c->sampling,
        .model_path = c->model,
        .backend = c->backend,
        .device = c->device,
        .gpu_layers = c->gpu_layers,
        .cpu = c->cpu,
        .pack_cache = strcmp(c->pack_cache, "off") != 0 ? c->pack_cache : NULL,
        .quantize = c->quantize,
        .high_precision = c->high_precision,
        .pin = c->pin,
        .chat_template = c->chat_template,
        .cache_type_k = c->cache_type_k,
        .cache_type_v = c->cache_type_v,
        .n_threads = (int)c->threads,
        .n_ctx = (uint32_t)c->ctx_size,
        .kv_tokens = (uint64_t)c->kv_tokens,
        .max_seqs = (int)c->parallel,
        .max_batch_rows = (int)c->batch_size,
        .queue_max_requests = (int)c->queue_max,
        .pooling = c->pooling,
        .tool_format = c->tool_format,
        .draft_max = strcmp(c->speculate, "off") == 0 ? -1 : (int)c->draft_max,
        .memory_limit_bytes = (uint64_t)c->memory_limit_mib << 20,
    };
}

#define LOADING_LOG_NS 5000000000u /* between two lines of the log about it */

static void reload_keys(void)
{
    struct err_info info = {0};
    const char *path = server_state.conf->api_key_file;
    if (path != NULL && apikey_load(path, &info) != ERR_OK) {
        log_line("error", "api_keys_kept reason=\"%s\"", info.text);
    } else if (path != NULL) {
        log_line("info", "api_keys_reloaded");
    }
}

/* While the model is prepared. */
struct loading {
    struct bar bar;
    const sigset_t *set; /* signals that end it, and SIGHUP */
    uint64_t last_ns;    /* when the log said how far it was */
};

/* Has a signal come that ends the process? */
static bool is_end_wanted(const sigset_t *set)
{
    const struct timespec at_once = {0};
    for (int signal; (signal = sigtimedwait(set, NULL, &at_once)) > 0;) {
        if (signal != SIGHUP) {
            return true;
        }
        reload_keys();
    }
    return false;
}

/* For /health, for who looks at the terminal, and for who reads the log. */
static bool on_progress(void *arg, float fraction)
{
    struct loading *l = arg;
    uint64_t now = clock_now_ns();
    atomic_store(&server_state.progress, (int)(fraction * 1000));
    bar_set(&l->bar, (double)fraction);
    if (!l->bar.is_shown && now - l->last_ns >= LOADING_LOG_NS) {
        log_line("info", "loading percent=%d", (int)(fraction * 100));
        l->last_ns = now;
    }
    return !is_end_wanted(l->set);
}

static void on_told(void *unused, const char *text)
{
    (void)unused;
    log_line("info", "loading note=\"%s\"", text);
}

/* What an operator should know of a model that was loaded. */
static void log_model(const struct engine_model_info *m)
{
    if (m->chat_failed != NULL) {
        log_line("warn", "chat_template_unusable reason=\"%s\"", m->chat_failed->text);
    } else if (m->chat_format != NULL) {
        log_line("info", "chat_template format=%s reason=\"the model file has none; its family has one format\"",
                 m->chat_format);
    }
    for (const struct engine_device *d = m->devices; d < m->devices + m->n_devices; d++) {
        log_line(d->note[0] != '\0' ? "warn" : "info", "device choice=\"%s\" note=\"%s\"", d->choice, d->note);
    }
    if (m->pack_note[0] != '\0') {
        log_line("warn", "pack_cache reason=\"%s\"", m->pack_note);
    }
}

/* Gives requests what the model leaves, or, before it is loaded, what it will not need. */
static enum err share_memory(const struct conf *conf, bool is_loaded, struct err_info *info)
{
    struct memory_found found = memory_look();
    struct memory_plan plan;
    TRY(memory_plan(conf, &found, FASTCGI_CONNECTION_BYTES, is_loaded, &plan, info));
    mem_account_limit(plan.budget_bytes, plan.share_bytes);
    fastcgi_limit(plan.n_connections);
    responses_store_limit((size_t)conf->response_memory_mib << 20);
    if (is_loaded) {
        log_line("info", "memory requests_mib=%zu request_mib=%zu connections=%d", plan.budget_bytes >> 20,
                 plan.share_bytes >> 20, plan.n_connections);
    }
    return ERR_OK;
}

/* A batch could not be computed. Told once, whatever number of requests end by it. */
static void on_failed(void *unused, const struct err_info *why)
{
    (void)unused;
    metrics_count_failed_batch(why->code);
    log_line("error", "batch_failed code=%s reason=\"%s\"", err_code(why->code), why->text);
    if (why->code == ERR_LOST) {
        (void)kill(getpid(), SIGTERM); /* main ends as if it were told to, and with another status */
    }
}

/* Loads the model and publishes it. ERR_CANCELLED: a signal of the set came first. */
static enum err load(const sigset_t *set, struct err_info *info)
{
    const struct conf *conf = server_state.conf;
    struct engine_config cfg = cmd_engine_config(conf);
    struct engine *e;
    uint64_t start = clock_now_ns();
    struct loading loading = {.set = set, .last_ns = start};
    cfg.progress = on_progress;
    cfg.progress_arg = &loading;
    cfg.tell = on_told;
    cfg.failed = on_failed;
    bar_begin(&loading.bar);
    enum err err = engine_open(&cfg, &e, info);
    bar_end(&loading.bar);
    TRY(err);
    const struct engine_model_info *m = engine_model(e);
    server_state.model_id = conf->alias != NULL ? conf->alias : m->id;
    log_model(m);
    engine_warm(e);
    err = engine_is_lost(e, info) ? ERR_LOST : share_memory(conf, true, info);
    if (err != ERR_OK) {
        engine_close(&e);
        return err;
    }
    atomic_store_explicit(&server_state.engine, e, memory_order_release);
    log_line("info",
             "ready model=\"%s\" backend=%s kernels=%s threads=%d ctx=%u weights_mib=%" PRIu64 " kv_mib=%" PRIu64
             " cache_type_k=%s cache_type_v=%s pack_cache=%s load_ms=%" PRIu64,
             server_state.model_id, m->backend, m->kernels, m->n_threads, m->n_ctx, m->weight_bytes >> 20,
             m->kv_bytes >> 20, m->cache_type_k, m->cache_type_v, m->pack_cache, (clock_now_ns() - start) / 1000000u);
    return ERR_OK;
}

/* Waits until count() is 0, at most until then. */
static void wait_for_none(int (*count)(void), uint64_t until_ns)
{
    while (count() > 0 && clock_now_ns() < until_ns) {
        struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
    }
}

static int n_working(void) { return atomic_load(&server_state.n_working); }

/* Ends accepting, and waits until no request is left or for as long as the operator allows; once the back end is lost,
 * all are at their end, and only what was said of it is still to be written. Where nobody else holds the
 * socket, who comes meanwhile is told; else it waits in the backlog for the next process. */
static void drain(bool is_lost)
{
    const struct conf *conf = server_state.conf;
    uint64_t seconds = is_lost ? MIN_OF((uint64_t)conf->drain_s, (uint64_t)LOST_DRAIN_S) : (uint64_t)conf->drain_s;
    uint64_t until = clock_now_ns() + seconds * 1000000000u;
    bool is_told = !conf->drain_close && fastcgi_is_alone();
    atomic_store(&server_state.is_draining, true);
    atomic_store(&server_state.is_refusing, is_told);
    if (!is_told) {
        fastcgi_stop();
    }
    log_line("info", "draining active=%d new=%s", fastcgi_n_active(), is_told ? "refused" : "left");
    wait_for_none(n_working, until);
    fastcgi_stop();
    wait_for_none(fastcgi_n_active, until);
}

/* Serves until told to end. */
static void wait_for_end(const sigset_t *set)
{
    for (int signal; sigwait(set, &signal) == 0 && signal == SIGHUP;) {
        reload_keys();
    }
}

/* A part of the model's file that is needed is gone: the process cannot go on, but can say why it ends. */
static void on_bus_error(int number)
{
    static const char said[] = "error: SIGBUS: the model's file was cut or cannot be read any more\n";
    (void)number;
    (void)!write(STDERR_FILENO, said, sizeof said - 1);
}

static void prepare_process(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    struct sigaction bus = {.sa_handler = on_bus_error, .sa_flags = SA_RESETHAND}; /* then it ends by the signal */
    (void)sigaction(SIGBUS, &bus, NULL);
    bool is_narrow = memory_look().room_bytes != SIZE_MAX; /* an arena beside the first reserves 64 MiB and more */
    mem_account_tune(is_narrow ? 1 : MAX_ARENAS);
    (void)prctl(PR_SET_DUMPABLE, 0); /* prompts do not belong in core files */
}

/* What is not the model's fault, and does not name it. */
static int fail_setup(int status, enum err err, const struct err_info *info)
{
    fprintf(stderr, "error: %s: %s\n", err_code(err), info->text[0] != '\0' ? info->text : err_text(err));
    return status;
}

/* Everything that comes before the model; CMD_OK or the exit status. */
static int start(const struct conf *conf)
{
    struct err_info info = {0};
    int fd;
    enum err err = conf->api_key_file != NULL ? apikey_load(conf->api_key_file, &info) : ERR_OK;
    if (err != ERR_OK) {
        return fail_setup(CMD_BAD_CONFIG, err, &info);
    }
    err = fastcgi_listen(conf->socket, &fd, &info);
    if (err != ERR_OK) {
        return fail_setup(err == ERR_CONFIG ? CMD_USAGE : CMD_BAD_CONFIG, err, &info);
    }
    err = log_start();
    err = err != ERR_OK ? err : share_memory(conf, false, &info);
    err = err != ERR_OK ? err : fastcgi_start(fd, (int)conf->max_connections, route_request, &server_state, &info);
    return err != ERR_OK ? fail_setup(CMD_NO_SYSTEM, err, &info) : CMD_OK;
}

static int end(const struct conf *conf)
{
    log_stop();
    if (conf->socket != NULL) {
        unlink(conf->socket);
    }
    return CMD_OK;
}

static int serve(const struct conf *conf, const sigset_t *set)
{
    struct err_info info = {0};
    int rc = start(conf);
    if (rc != CMD_OK) {
        log_stop();
        return rc;
    }
    enum err err = load(set, &info);
    if (err == ERR_CANCELLED) {
        log_line("info", "stopped while loading");
        return end(conf);
    }
    if (err != ERR_OK) {
        (void)end(conf);
        return cmd_fail(conf, err, &info);
    }
    wait_for_end(set);
    struct engine *e = atomic_load(&server_state.engine);
    drain(engine_is_lost(e, NULL));
    engine_drain(e);
    int left = fastcgi_n_active();
    bool is_lost = engine_is_lost(e, NULL);
    log_line("info", "stopped unfinished=%d", left);
    if (left == 0) {
        engine_close(&e);
    }
    (void)end(conf);
    return is_lost ? CMD_LOST : CMD_OK;
}

/* Everything serve would need, without serving. */
static int check_config(const struct conf *conf)
{
    struct err_info info = {0};
    struct engine_config cfg = cmd_engine_config(conf);
    struct engine *e = NULL;
    enum err err = conf->api_key_file != NULL ? apikey_load(conf->api_key_file, &info) : ERR_OK;
    if (err != ERR_OK) {
        return fail_setup(CMD_BAD_CONFIG, err, &info);
    }
    err = engine_open(&cfg, &e, &info);
    engine_close(&e);
    if (err != ERR_OK) {
        return cmd_fail(conf, err, &info);
    }
    printf("configuration ok: %s\n", conf->model);
    return CMD_OK;
}

int cmd_serve(int argc, char **argv)
{
    static struct conf conf; /* outlives detached threads at exit */
    int rc = cmd_read_conf(&conf, CONF_SERVE, argc, argv);
    if (rc == CMD_OK && conf.check_config) {
        rc = check_config(&conf);
    } else if (rc == CMD_OK) {
        sigset_t set;
        sigemptyset(&set);
        for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
            sigaddset(&set, signals[i]);
        }
        pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread starts, so that all inherit it */
        prepare_process();
        server_state.conf = &conf;
        server_state.started = clock_unix_seconds();
        rc = serve(&conf, &set);
    }
    return cmd_end("serve", rc);
}
