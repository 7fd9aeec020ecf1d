/* `infcgi serve`: loads the model while /health already answers, serves until a signal, drains and exits. serve_wait.c
 * handles periodic work and signals. With --master, master.c runs instead and this code runs in its workers. */
#include "engine/base/clock.h"
#include "engine/base/io.h"
#include "engine/base/mem_account.h"
#include "fcgi/api/model_names.h"
#include "fcgi/api/openai/responses_store.h"
#include "fcgi/cmd/bar.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/service/master.h"
#include "fcgi/cmd/service/serve_wait.h"
#include "fcgi/conf/conf.h"
#include "fcgi/ground/log.h"
#include "fcgi/tenant/apikey.h"
#include "fcgi/tenant/journal.h"
#include "fcgi/watch/admin.h"
#include "fcgi/watch/metrics.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/memory.h"
#include "fcgi/wire/notify.h"
#include "fcgi/wire/server.h"
#include "fcgi/wire/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    MAX_ARENAS = 4,   /* heap arenas: threads share them, so that free memory is not bound to one thread */
    LOST_DRAIN_S = 5, /* for clients that do not read the end of an answer */
    END_S = 10,       /* from the end of draining to the exit */
    SERVE_MS = 60000,
    ADMIN_MS = 50, /* between two attempts to take over a socket */
};

struct server server_state;
static const struct program *program;

#define LOADING_LOG_NS  5000000000u /* between two log lines about loading */
#define LOADING_TELL_NS 200000000u /* between two messages to the service manager, whose queue can hold as few as ten */
#define HOLD_NS         10000000000u /* wait of clients at a worker that replaces a dead one, before 503 */
#define FAILED_NS       30000000000u /* time for which a worker that cannot load the model answers so */

/* Loads the files of keys and tenants. */
static enum err load_keys(const struct conf *conf, struct err_info *info)
{
    TRY(conf->api_key_file != NULL ? apikey_load(conf->api_key_file, info) : ERR_OK);
    return conf->tenants != NULL ? tenant_load(conf->tenants, info) : ERR_OK;
}

/* State while the model loads. */
struct loading {
    struct bar bar;
    uint64_t start_ns, last_ns; /* last: time of the last progress line */
    uint64_t told_ns;           /* time of the last message to the service manager; 0: none */
    int percent;                /* last reported */
};

/* Reports progress to /health, the terminal, the log and the parent process. */
static bool on_progress(void *arg, float fraction)
{
    struct loading *l = arg;
    uint64_t now = clock_now_ns();
    int percent = (int)(fraction * 100);
    atomic_store(&server_state.progress, (int)(fraction * 1000));
    bar_set(&l->bar, (double)fraction);
    if (!l->bar.is_shown && now - l->last_ns >= LOADING_LOG_NS) {
        log_line("info", "loading percent=%d", percent);
        l->last_ns = now;
    }
    if (percent != l->percent && (l->told_ns == 0 || now - l->told_ns >= LOADING_TELL_NS)) {
        l->told_ns = now;
        notify_say("EXTEND_TIMEOUT_USEC=120000000", "loading %s: %d %%", server_state.conf->model, percent);
        l->percent = percent;
    }
    if (worker_role() == WORKER_AGAIN && now - l->start_ns >= HOLD_NS) {
        fastcgi_hold(false);
    }
    return serve_wait(0) == 0;
}

static void on_notice(void *unused, const char *text)
{
    (void)unused;
    log_line("info", "loading note=\"%s\"", text);
}

static void on_snapshots(void *unused, const char *text)
{
    (void)unused;
    log_line("warn", "snapshots note=\"%s\"", text);
}

/* Logs facts that an operator should know about the loaded model. */
static void log_model(const struct engine_model_info *m)
{
    if (m->chat_failed != NULL) {
        log_line("warn", "chat_template_unusable reason=\"%s\"", m->chat_failed->text);
    } else if (m->chat_format != NULL) {
        log_line("info", "chat_template format=%s reason=\"the model file has none; its family has one format\"",
                 m->chat_format);
    }
    if (m->predictor != NULL) {
        log_line("info", "drafts predictor=\"%s\"", m->predictor);
    }
    for (const struct engine_device *d = m->devices; d < m->devices + m->n_devices; d++) {
        log_line(d->note[0] != '\0' ? "warn" : "info", "device choice=\"%s\" note=\"%s\"", d->choice, d->note);
    }
    if (m->pack_note[0] != '\0') {
        log_line("warn", "pack_cache reason=\"%s\"", m->pack_note);
    }
}

/* Assigns to requests the memory that the model leaves or, before loading, will not need. */
static enum err share_memory(const struct conf *conf, bool is_loaded, struct err_info *info)
{
    struct memory_found found = memory_look();
    struct memory_plan plan;
    TRY(memory_plan(conf, &found, is_loaded, &plan, info));
    mem_account_limit(plan.budget_bytes, plan.share_bytes);
    fastcgi_limit(plan.n_connections);
    responses_store_limit((size_t)conf->response_memory_mib << 20);
    if (is_loaded) {
        log_line("info", "memory requests_mib=%zu request_mib=%zu connections=%d", plan.budget_bytes >> 20,
                 plan.share_bytes >> 20, plan.n_connections);
    }
    return ERR_OK;
}

/* Logs a failed batch once, whatever the number of affected requests. */
static void on_failed(void *unused, const struct err_info *why)
{
    (void)unused;
    metrics_count_failed_batch(why->code);
    log_line("error", "batch_failed code=%s reason=\"%s\"", err_code(why->code), why->text);
    if (why->code == ERR_LOST) {
        (void)kill(getpid(), SIGTERM); /* main exits as after SIGTERM, with another status */
    }
}

/* Checks that a second model fits next to the serving one. Both share the pages of a pack cache. */
static enum err check_room(const struct engine_config *cfg, struct err_info *info)
{
    struct engine_memory m;
    if (worker_role() != WORKER_NEXT || strncmp(cfg->backend, "cpu", 3) != 0) {
        return ERR_OK;
    }
    TRY(engine_measure(cfg, &m, info));
    return memory_check_second((cfg->pack_cache == NULL ? m.weight_bytes : 0) + m.kv_bytes + m.activation_bytes,
                               memory_available(), info);
}

/* Chooses the first name of --alias, else the file's; kept until the process exits. */
static enum err choose_id(const struct conf *conf, const struct engine_model_info *m, struct err_info *info)
{
    static struct buf id;
    buf_init(&id, 0, MEM_GENERAL);
    model_names_first(conf->alias, &id);
    bool is_none = id.len == 0;
    buf_putc(&id, '\0');
    server_state.model_id = is_none ? m->id : id.data;
    return buf_ok(&id) == ERR_OK ? ERR_OK : err_set(info, ERR_NOMEM, NULL, "out of memory for the model's name");
}

/* Tests the model, unless no-warmup is set. A worker that takes over must pass; for others a log line names what requests
 * will meet. */
static enum err test(struct engine *e, struct err_info *info)
{
    enum err err = server_state.conf->no_warmup ? ERR_OK : engine_warm(e, info);
    if (err != ERR_OK && err != ERR_LOST && worker_role() != WORKER_NEXT) {
        log_line("warn", "self_test_failed code=%s reason=\"%s\"", err_code(err), info->text);
        err = ERR_OK;
    }
    return engine_is_lost(e, info) ? ERR_LOST : err;
}

/* Loads the model and publishes it. ERR_CANCELLED: a signal to exit arrived first. */
static enum err load(struct err_info *info)
{
    const struct conf *conf = server_state.conf;
    struct engine_config cfg = cmd_engine_config(conf);
    struct engine *e;
    uint64_t start = clock_now_ns();
    struct loading loading = {.start_ns = start, .last_ns = start, .percent = -1};
    cfg.progress = on_progress;
    cfg.progress_arg = &loading;
    cfg.tell = on_notice;
    cfg.failed = on_failed;
    cfg.snapshots = on_snapshots;
    TRY(check_room(&cfg, info));
    bar_begin(&loading.bar);
    enum err err = engine_open(&cfg, &e, info);
    bar_end(&loading.bar);
    TRY(err);
    const struct engine_model_info *m = engine_model(e);
    log_model(m);
    err = choose_id(conf, m, info);
    err = err != ERR_OK ? err : test(e, info);
    err = err != ERR_OK ? err : share_memory(conf, true, info);
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

/* Waits until count() is 0 or until_ns has passed. Returns false if a signal demands an immediate exit. */
static bool wait_for_none(int (*count)(void), uint64_t until_ns)
{
    while (count() > 0 && clock_now_ns() < until_ns) {
        if (serve_wait(10) != 0) {
            log_line("warn", "drain_cut_short active=%d", fastcgi_n_active());
            return false;
        }
    }
    return true;
}

static int n_working(void) { return atomic_load(&server_state.n_working); }

/* Stops accepting and waits until all requests have ended, up to the operator's limit or a second signal. If the back
 * end is lost, all requests have ended and only their errors remain to be written. If no other process holds the
 * socket, new clients get an error; else they wait in the backlog for the next process. is_replaced: another worker
 * already serves. */
static void drain(bool is_lost, bool is_replaced)
{
    bool is_followed = is_replaced || (is_lost && worker_role() != WORKER_NONE);
    const struct conf *conf = server_state.conf;
    uint64_t seconds = is_lost ? MIN_OF((uint64_t)conf->drain_s, (uint64_t)LOST_DRAIN_S) : (uint64_t)conf->drain_s;
    uint64_t until = clock_now_ns() + seconds * 1000000000u;
    bool refuses = !is_followed && !conf->drain_close && fastcgi_is_alone();
    char stopping[96];
    snprintf(stopping, sizeof stopping, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64, (seconds + END_S) * 1000000u);
    notify_say(stopping, "draining, %d active", fastcgi_n_active());
    if (is_replaced) {
        admin_stop(); /* the next worker waits for it */
    }
    atomic_store(&server_state.is_draining,
                 !is_replaced); /* a client that asks for /health is told about the serving worker */
    atomic_store(&server_state.is_refusing, refuses);
    if (!refuses) {
        fastcgi_stop();
    }
    log_line("info", "draining active=%d new=%s", fastcgi_n_active(), refuses ? "refused" : "left");
    bool is_patient = wait_for_none(n_working, until);
    fastcgi_stop();
    if (is_patient) {
        (void)wait_for_none(fastcgi_n_active, until);
    }
}

/* Takes over the admin socket from the previous worker. Returns false while that worker still has it. */
static bool take_admin(const struct conf *conf)
{
    struct err_info info = {0};
    enum err err = admin_start(conf->admin_socket, &server_state, &info);
    if (err != ERR_OK && err != ERR_ADDRESS_IN_USE) {
        log_line("error", "no_admin_socket code=%s reason=\"%s\"", err_code(err), info.text);
    }
    return err != ERR_ADDRESS_IN_USE;
}

/* Serves until a signal to exit and returns it. */
static int wait_for_end(const struct conf *conf)
{
    int signal = 0;
    bool has_admin = conf->admin_socket == NULL || worker_role() != WORKER_NEXT;
    while (signal == 0) {
        signal = serve_wait(has_admin ? SERVE_MS : ADMIN_MS);
        has_admin = has_admin || take_admin(conf);
    }
    return signal;
}

/* A needed part of the model file is gone: the process cannot continue, but can report why it exits. */
static void on_bus_error(int number)
{
    static const char said[] = "error: SIGBUS: the model file was truncated or is no longer readable\n";
    (void)number;
    const char *priority = log_priority("error");
    (void)!write(STDERR_FILENO, priority, strlen(priority));
    (void)!write(STDERR_FILENO, said, sizeof said - 1);
}

static void prepare_process(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    struct sigaction bus = {.sa_handler = on_bus_error,
                            .sa_flags = SA_RESETHAND}; /* the repeated signal then kills the process */
    (void)sigaction(SIGBUS, &bus, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN}; /* a file size limit then acts like a full disk */
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    bool is_narrow = memory_look().room_bytes != SIZE_MAX; /* each further arena reserves 64 MiB or more */
    mem_account_tune(is_narrow ? 1 : MAX_ARENAS);
    (void)prctl(PR_SET_DUMPABLE, 0); /* keeps prompts out of core files */
}

/* Performs all steps before loading the model. Returns CMD_OK or the exit status. */
static int start(const struct conf *conf)
{
    struct err_info info = {0};
    int fd;
    enum err err = load_keys(conf, &info);
    err = err == ERR_OK && conf->usage_log != NULL ? journal_open(conf->usage_log, &info) : err;
    err = err == ERR_OK && conf->slot_save_path != NULL ? io_private_folder(conf->slot_save_path, &info) : err;
    if (err != ERR_OK) {
        return cmd_fail_setup(CMD_BAD_CONFIG, err, &info);
    }
    err = fastcgi_listen(worker_role() == WORKER_NONE ? conf->socket : NULL, &fd, &info);
    if (err != ERR_OK) {
        return cmd_fail_setup(err == ERR_CONFIG ? CMD_USAGE : CMD_BAD_CONFIG, err, &info);
    }
    err = log_start(&info);
    serve_wait_log_overrides(conf);
    if (err == ERR_OK && conf->admin_socket != NULL &&
        worker_role() != WORKER_NEXT) { /* the serving worker still has it */
        err = admin_start(conf->admin_socket, &server_state, &info);
        if (err != ERR_OK) {
            return cmd_fail_setup(err == ERR_CONFIG ? CMD_USAGE : CMD_BAD_CONFIG, err, &info);
        }
    }
    err = err != ERR_OK ? err : share_memory(conf, false, &info);
    fastcgi_hold(worker_role() == WORKER_AGAIN || worker_role() == WORKER_NEXT);
    err = err != ERR_OK ? err : fastcgi_start(fd, (int)conf->max_connections, program->handle, &server_state, &info);
    return err != ERR_OK ? cmd_fail_setup(CMD_NO_SYSTEM, err, &info) : CMD_OK;
}

static int end(const struct conf *conf)
{
    admin_stop();
    journal_close();
    log_stop();
    if (conf->socket != NULL && worker_role() == WORKER_NONE) {
        unlink(conf->socket);
    }
    return CMD_OK;
}

/* Answers clients for a while; they would otherwise wait in the backlog for a worker with a model. */
static void answer_failed(void)
{
    uint64_t until = clock_now_ns() + FAILED_NS;
    if (worker_role() != WORKER_ANEW) {
        return;
    }
    atomic_store(&server_state.has_failed, true);
    while (clock_now_ns() < until && serve_wait(1000) == 0) {
    }
    fastcgi_stop();
    (void)wait_for_none(fastcgi_n_active, clock_now_ns() + 1000000000u);
}

static int serve(const struct conf *conf)
{
    struct err_info info = {0};
    int rc = start(conf);
    if (rc != CMD_OK) {
        admin_stop();
        log_stop();
        return rc;
    }
    enum err err = load(&info);
    if (err == ERR_CANCELLED) {
        log_line("info", "stopped while loading");
        return end(conf);
    }
    if (err != ERR_OK) {
        notify_say("", "cannot serve %s: %s", conf->model, info.text);
        rc = cmd_fail(conf, err, &info);
        answer_failed();
        (void)end(conf);
        return rc;
    }
    struct engine *e = atomic_load(&server_state.engine);
    serve_wait_watch(e);
    notify_say("READY=1", "serving %s", server_state.model_id);
    fastcgi_hold(false); /* after the report, so that the master knows before a client gets an answer */
    int signal = wait_for_end(conf);
    drain(engine_is_lost(e, NULL), signal == SIGUSR2);
    engine_drain(e);
    int left = fastcgi_n_active();
    bool is_lost = engine_is_lost(e, NULL);
    log_line("info", "stopped unfinished=%d", left);
    admin_stop(); /* before the state that it reads is freed */
    serve_wait_watch(NULL);
    if (left == 0) {
        engine_close(&e);
    }
    (void)end(conf);
    return is_lost ? CMD_LOST : CMD_OK;
}

/* Checks that this process can read the file. If only the service can, reports that it was not checked. */
static bool is_readable(const char *option, const char *path)
{
    bool is_denied = access(path, R_OK) != 0 && errno == EACCES;
    if (is_denied) {
        printf("not checked: %s %s: this user may not read it\n", option, path);
    }
    return !is_denied;
}

/* Checks everything that serve would read. Does not create, write or take anything that a running server can hold. */
static int check_config(struct conf *conf)
{
    struct err_info info = {0};
    struct engine_config cfg = cmd_engine_config(conf);
    if (conf->overrides[0] != '\0') {
        printf("the environment overrides %s: %s\n", conf->config, conf->overrides);
    }
    bool has_keys = conf->api_key_file == NULL || is_readable("api-key-file", conf->api_key_file);
    bool has_tenants = conf->tenants == NULL || is_readable("tenants", conf->tenants);
    conf->api_key_file = has_keys ? conf->api_key_file : NULL;
    conf->tenants = has_tenants ? conf->tenants : NULL;
    enum err err = load_keys(conf, &info);
    if (err != ERR_OK) {
        return cmd_fail_setup(CMD_BAD_CONFIG, err, &info);
    }
    err = is_readable("model", conf->model) ? engine_check_config(&cfg, &info) : ERR_OK;
    if (err != ERR_OK) {
        return cmd_fail(conf, err, &info);
    }
    printf("configuration ok: %s\n", conf->model);
    return CMD_OK;
}

/* Chooses the log before the first line: the journal, stderr or a file. */
static int choose_log(const struct conf *conf)
{
    struct err_info info = {0};
    log_set_level(names_find(log_level_name, conf->log_level));
    enum err err = conf->log_file != NULL && !conf->check_config ? log_to_file(conf->log_file, &info) : ERR_OK;
    return err == ERR_OK ? CMD_OK : cmd_fail_setup(CMD_BAD_CONFIG, err, &info);
}

int cmd_serve_prepare(void)
{
    struct err_info info = {0};
    log_find_journal(conf_variable("JOURNAL_STREAM"));
    enum err err = worker_find(&info);
    return err == ERR_OK ? CMD_OK : cmd_fail_setup(CMD_USAGE, err, &info);
}

int cmd_serve(const struct program *p, struct conf *conf)
{
    int rc = choose_log(conf);
    if (rc != CMD_OK) {
        return rc;
    }
    if (conf->check_config) {
        return check_config(conf);
    }
    if (conf->master && worker_role() == WORKER_NONE) {
        return master_run(conf);
    }
    program = p;
    server_state.routes = p->routes;
    server_state.n_routes = p->n_routes;
    server_state.dialects = p->dialects;
    (void)prctl(PR_SET_NAME, "infcgi"); /* workers are started as "exe" */
    server_state.conf = conf;
    server_state.started = clock_unix_seconds();
    server_state.started_ns = clock_now_ns();
    notify_open(worker_role() != WORKER_NONE ? (int)WORKER_STATUS_FD : -1);
    serve_wait_init(&server_state);
    prepare_process();
    return serve(conf);
}
