/* Prometheus exposition [text format 0.0.4]. Buckets are those of vLLM's histograms, so that its dashboards fit. */
#include "fcgi/watch/metrics.h"

#include "engine/base/mem.h"
#include "engine/base/mem_account.h"
#include "fcgi/ground/log.h"
#include "fcgi/tenant/journal.h"
#include "fcgi/tenant/tenant.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/gate.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>

static const double bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75,
                                1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640};
enum { N_BOUNDS = ARRAY_LEN(bounds), STATUS_CLASSES = 6 };

static struct {
    atomic_ullong buckets[N_BOUNDS + 1];
    atomic_ullong sum_us;
} histograms[METRIC_HISTOGRAM_COUNT];

static atomic_ullong requests[METRICS_MAX_ROUTES][STATUS_CLASSES]; /* by status class */

void metrics_observe(enum metric_histogram h, double seconds)
{
    int i = 0;
    seconds = seconds > 0 ? seconds : 0; /* also for NaN, which would spoil the sum permanently */
    while (i < N_BOUNDS && seconds > bounds[i]) {
        i++;
    }
    atomic_fetch_add_explicit(&histograms[h].buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histograms[h].sum_us, (unsigned long long)(seconds * 1e6), memory_order_relaxed);
}

static atomic_ullong errors[ERR_COUNT], failed_batches[ERR_COUNT];

void metrics_count_failed_batch(enum err why)
{
    atomic_fetch_add_explicit(&failed_batches[why], 1, memory_order_relaxed);
}

void metrics_count_request(int route, int http_status, enum err err)
{
    atomic_fetch_add_explicit(&errors[err], err != ERR_OK, memory_order_relaxed);
    int hundreds = http_status / 100;
    if (route >= 0 && route < METRICS_MAX_ROUTES && hundreds > 0 && hundreds < STATUS_CLASSES) {
        atomic_fetch_add_explicit(&requests[route][hundreds], 1, memory_order_relaxed);
    }
}

unsigned long long metrics_errors(void)
{
    unsigned long long sum = 0;
    for (int e = 0; e < ERR_COUNT; e++) {
        sum += atomic_load_explicit(&errors[e], memory_order_relaxed);
    }
    return sum;
}

static atomic_ullong n_slow;

void metrics_count_slow(void) { atomic_fetch_add_explicit(&n_slow, 1, memory_order_relaxed); }

unsigned long long metrics_slow(void) { return atomic_load_explicit(&n_slow, memory_order_relaxed); }

static void write_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes a metric without labels. */
static void write_number(struct buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
    write_head(out, name, type, help);
    buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_histogram(struct buf *out, enum metric_histogram h, const char *name, const char *help)
{
    unsigned long long total = 0;
    write_head(out, name, "histogram", help);
    for (int i = 0; i <= N_BOUNDS; i++) {
        total += atomic_load_explicit(&histograms[h].buckets[i], memory_order_relaxed);
        if (i < N_BOUNDS) {
            buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], total);
        }
    }
    double sum = (double)atomic_load_explicit(&histograms[h].sum_us, memory_order_relaxed) / 1e6;
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name, total, name, sum, name, total);
}

static void write_requests(struct buf *out, const char *const *route_names, int n_routes)
{
    write_head(out, "infcgi_requests_total", "counter", "Requests answered, by endpoint and class of status.");
    for (int r = 0; r < n_routes; r++) {
        for (int c = 1; c < STATUS_CLASSES; c++) {
            unsigned long long n = atomic_load_explicit(&requests[r][c], memory_order_relaxed);
            if (n != 0) {
                buf_printf(out, "infcgi_requests_total{endpoint=\"%s\",status=\"%dxx\"} %llu\n", route_names[r], c, n);
            }
        }
    }
}

static void write_codes(struct buf *out, const char *name, const char *help, atomic_ullong counts[ERR_COUNT])
{
    write_head(out, name, "counter", help);
    for (int e = 0; e < ERR_COUNT; e++) {
        unsigned long long n = atomic_load_explicit(&counts[e], memory_order_relaxed);
        if (n != 0) {
            buf_printf(out, "%s{code=\"%s\"} %llu\n", name, err_code((enum err)e), n);
        }
    }
}

/* One row per engine statistic. */
static const struct {
    const char *name, *type, *help;
    size_t offset;
} engine_rows[] = {
#define ROW(field, name, type, help)                                                                                   \
    {                                                                                                                  \
        name, type, help, offsetof(struct sched_stats, field)                                                          \
    }
    ROW(n_running, "infcgi_requests_running", "gauge", "Sequences being computed."),
    ROW(n_waiting, "infcgi_requests_waiting", "gauge", "Sequences in the queue."),
    ROW(pages_held, "infcgi_kv_pages_used", "gauge", "KV cache pages held by sequences."),
    ROW(pages_kept, "infcgi_kv_pages_cached", "gauge", "KV cache pages kept for reuse only."),
    ROW(pages_total, "infcgi_kv_pages", "gauge", "KV cache pages."),
    ROW(windows_held, "infcgi_kv_window_pages_used", "gauge",
        "Window pages, of layers that see a window, held by sequences."),
    ROW(windows_kept, "infcgi_kv_window_pages_cached", "gauge", "Window pages kept for reuse only."),
    ROW(windows_total, "infcgi_kv_window_pages", "gauge", "Window pages; 0 unless only some layers have a window."),
    ROW(prompt_tokens, "infcgi_prompt_tokens_total", "counter", "Prompt tokens of admitted requests."),
    ROW(cached_tokens, "infcgi_cached_tokens_total", "counter", "Prompt tokens found in the KV cache."),
    ROW(generated_tokens, "infcgi_generated_tokens_total", "counter", "Tokens generated."),
    ROW(drafted_tokens, "infcgi_drafted_tokens_total", "counter", "Tokens guessed ahead and computed."),
    ROW(accepted_tokens, "infcgi_accepted_tokens_total", "counter", "Tokens guessed ahead that came true."),
    ROW(masks, "infcgi_masks_total", "counter", "Masks of grammars that were sampled with."),
    ROW(masks_beside, "infcgi_masks_beside_total", "counter",
        "Masks of grammars that were made while a batch was computed."),
    ROW(steps, "infcgi_steps_total", "counter", "Batches computed."),
    ROW(step_rows, "infcgi_step_rows_total", "counter", "Token rows computed."),
    ROW(overtaking, "infcgi_overtaking_steps_total", "counter",
        "Batches of short prompts that were computed within another."),
    ROW(preempted, "infcgi_preemptions_total", "counter", "Sequences that lost their pages and were computed again."),
    ROW(disk.restored_tokens, "infcgi_snapshot_tokens_total", "counter",
        "Prompt tokens read from the disk instead of computed."),
    ROW(disk.files, "infcgi_snapshot_files", "gauge", "Snapshots in the folder, as far as is known."),
    ROW(disk.bytes, "infcgi_snapshot_bytes", "gauge", "Bytes of the snapshots in the folder."),
    ROW(disk.limit_bytes, "infcgi_snapshot_limit_bytes", "gauge", "What they may take; 0 without --cache-dir."),
    ROW(disk.n_read, "infcgi_snapshot_reads_total", "counter", "Snapshots read and used."),
    ROW(disk.bytes_read, "infcgi_snapshot_read_bytes_total", "counter", "Bytes of snapshots read and used."),
    ROW(disk.n_written, "infcgi_snapshot_writes_total", "counter", "Snapshots written."),
    ROW(disk.bytes_written, "infcgi_snapshot_written_bytes_total", "counter", "Bytes of snapshots written."),
    ROW(disk.pending, "infcgi_snapshot_pending", "gauge", "Pages and states that are still to be written."),
    ROW(disk.n_evicted, "infcgi_snapshot_evictions_total", "counter", "Snapshots removed to make room."),
    ROW(disk.n_dropped, "infcgi_snapshot_drops_total", "counter", "Pages that were gone before they were written."),
    ROW(disk.n_refused, "infcgi_snapshot_refused_total", "counter",
        "Files that were cut, changed or of something else."),
    ROW(disk.n_read_errors, "infcgi_snapshot_read_errors_total", "counter", "Files that could not be read."),
    ROW(disk.n_write_errors, "infcgi_snapshot_write_errors_total", "counter", "Files that could not be written."),
    ROW(disk.n_late, "infcgi_snapshot_late_total", "counter", "Prompts that did not wait for the disk any longer."),
    ROW(estimated_wait_ms, "infcgi_estimated_wait_milliseconds", "gauge", "Until what runs and waits would be done."),
#undef ROW
};

/* offset: of the member of struct draft_count. */
static void write_draft_counts(struct buf *out, const char *name, const char *help, const struct draft_counts *c,
                               size_t offset)
{
    write_head(out, name, "counter", help);
    for (int s = 0; s < DRAFT_SOURCES; s++) {
        for (int i = 0; i < DRAFT_POSITIONS; i++) {
            uint64_t v = *(const uint64_t *)(const void *)((const char *)&c->at[s][i] + offset);
            buf_printf(out, "%s{source=\"%s\",position=\"%s\"} %" PRIu64 "\n", name,
                       draft_source_name((enum draft_source)s), draft_position_name(i), v);
        }
    }
}

static void write_engine(struct buf *out, const struct engine *e)
{
    struct sched_stats s;
    engine_get_stats(e, &s);
    for (size_t i = 0; i < ARRAY_LEN(engine_rows); i++) {
        uint64_t v = *(const uint64_t *)(const void *)((const char *)&s + engine_rows[i].offset);
        write_number(out, engine_rows[i].name, engine_rows[i].type, engine_rows[i].help, v);
    }
    write_draft_counts(out, "infcgi_draft_tokens_total", "Tokens guessed ahead, by source and position in the step.",
                       &s.draft_counts, offsetof(struct draft_count, drafted));
    write_draft_counts(out, "infcgi_draft_accepted_tokens_total",
                       "Tokens guessed ahead that came true, by source and position in the step.", &s.draft_counts,
                       offsetof(struct draft_count, accepted));
    write_head(out, "infcgi_cancelled_total", "counter", "Sequences dropped before their end, by where they were.");
    buf_printf(out, "infcgi_cancelled_total{where=\"queue\"} %" PRIu64 "\n", s.cancelled_queue);
    buf_printf(out, "infcgi_cancelled_total{where=\"prefill\"} %" PRIu64 "\n", s.cancelled_prefill);
    buf_printf(out, "infcgi_cancelled_total{where=\"decode\"} %" PRIu64 "\n", s.cancelled_decode);
    write_head(out, "infcgi_sequences_waiting", "gauge", "Sequences that are not computed now, by what they wait for.");
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        buf_printf(out, "infcgi_sequences_waiting{reason=\"%s\"} %" PRIu64 "\n", sched_wait_name((enum sched_wait)i),
                   s.n_waiting_for[i]);
    }
    write_head(out, "infcgi_wait_seconds_total", "counter", "Time sequences waited, by what for.");
    for (int i = 0; i < SCHED_WAIT_COUNT; i++) {
        buf_printf(out, "infcgi_wait_seconds_total{reason=\"%s\"} %.6f\n", sched_wait_name((enum sched_wait)i),
                   (double)s.waits.ns[i] / 1e9);
    }
    write_head(out, "infcgi_step_seconds_total", "counter", "Time spent computing.");
    buf_printf(out, "infcgi_step_seconds_total %.6f\n", (double)s.step_ns / 1e9);
}

static void write_grammars(struct buf *out, const struct engine *e)
{
    struct engine_grammar_stats s;
    engine_get_grammar_stats(e, &s);
    write_number(out, "infcgi_grammars_made_total", "counter", "Schemas and other grammars that were read.", s.n_made);
    write_number(out, "infcgi_grammars_reused_total", "counter", "Requests whose grammar was kept from one before.",
                 s.n_reused);
    write_number(out, "infcgi_grammars_kept", "gauge", "Grammars that are kept.", s.n_kept);
}

/* Writes a device's memory; a device without a name has no label. */
static void write_device(struct buf *out, const struct engine_device *d)
{
    const struct {
        const char *purpose;
        uint64_t bytes;
    } rows[] = {{"weights", d->weights}, {"kv", d->kv}, {"states", d->states}, {"activations", d->activations}};
    char label[64] = "";
    if (d->id != NULL && d->id[0] != '\0') {
        snprintf(label, sizeof label, "device=\"%s\",", d->id);
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_printf(out, "infcgi_device_memory_bytes{%spurpose=\"%s\"} %" PRIu64 "\n", label, rows[i].purpose,
                   rows[i].bytes);
    }
}

static void write_devices(struct buf *out, const struct engine_model_info *m)
{
    const struct engine_device none = {0};
    write_head(out, "infcgi_device_memory_bytes", "gauge",
               "Memory of devices' own that the model has, by device and purpose.");
    for (int i = 0; i < m->n_devices; i++) {
        write_device(out, &m->devices[i]);
    }
    if (m->n_devices == 0) {
        write_device(out, &none);
    }
}

/* --- llama-server's names --------------------------------------------------------------------------------------------- */

static struct {
    atomic_ullong prefill_ns, decode_ns, prompt_tokens, decoded_tokens; /* for finished sequences */
    atomic_int longest;                                                 /* tokens of one */
} sequences;

void metrics_note_sequence(const struct sched_usage *u)
{
    int n = u->prompt_tokens + u->completion_tokens, longest = atomic_load(&sequences.longest);
    atomic_fetch_add_explicit(&sequences.prefill_ns, u->prefill_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&sequences.decode_ns, u->decode_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&sequences.prompt_tokens, (unsigned long long)(u->prompt_tokens - u->cached_tokens),
                              memory_order_relaxed);
    if (u->completion_tokens > 1) { /* the first token needs no decode step */
        atomic_fetch_add_explicit(&sequences.decoded_tokens, (unsigned long long)u->completion_tokens - 1,
                                  memory_order_relaxed);
    }
    while (n > longest && !atomic_compare_exchange_weak(&sequences.longest, &longest, n)) {
    }
}

void metrics_write_llama(struct buf *out, const struct engine *e)
{
    struct sched_stats s = {0};
    if (e != NULL) {
        engine_get_stats(e, &s);
    }
    double prompt_s = (double)atomic_load(&sequences.prefill_ns) / 1e9;
    double decode_s = (double)atomic_load(&sequences.decode_ns) / 1e9;
    double n_prompt = (double)atomic_load(&sequences.prompt_tokens),
           n_decoded = (double)atomic_load(&sequences.decoded_tokens);
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"prompt_tokens_total", "counter", "Prompt tokens processed.", (double)(s.prompt_tokens - s.cached_tokens)},
        {"prompt_tokens_cached_total", "counter", "Prompt tokens found in the cache.", (double)s.cached_tokens},
        {"prompt_seconds_total", "counter", "Time prompts took.", prompt_s},
        {"tokens_predicted_total", "counter", "Tokens generated.", (double)s.generated_tokens},
        {"tokens_predicted_seconds_total", "counter", "Time generation took.", decode_s},
        {"n_decode_total", "counter", "Batches computed.", (double)s.steps},
        {"n_tokens_max", "counter", "Most tokens of one sequence.", (double)atomic_load(&sequences.longest)},
        {"spec_decode_num_draft_tokens_total", "counter", "Tokens guessed ahead.", (double)s.drafted_tokens},
        {"spec_decode_num_accepted_tokens_total", "counter", "Tokens guessed ahead that came true.",
         (double)s.accepted_tokens},
        {"spec_decode_num_drafts_total", "counter", "Times that tokens were guessed.", (double)s.drafts},
        {"prompt_tokens_seconds", "gauge", "Prompt tokens a second.", prompt_s > 0 ? n_prompt / prompt_s : 0},
        {"predicted_tokens_seconds", "gauge", "Generated tokens a second.", decode_s > 0 ? n_decoded / decode_s : 0},
        {"requests_processing", "gauge", "Sequences being computed.", (double)s.n_running},
        {"requests_deferred", "gauge", "Sequences in the queue.", (double)s.n_waiting},
        {"n_busy_slots_per_decode", "gauge", "Token rows of a batch.",
         s.steps > 0 ? (double)s.step_rows / (double)s.steps : 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char name[64];
        snprintf(name, sizeof name, "llamacpp:%s", rows[i].name);
        write_head(out, name, rows[i].type, rows[i].help);
        buf_printf(out, "%s %.15g\n", name, rows[i].value);
    }
}

/* Writes at most MAX_TENANTS; "other" is the sum of evicted ones. */
static void write_tenants(struct buf *out, const struct engine *e)
{
    enum { MAX_TENANTS = 256 };
    static const struct {
        const char *name, *type, *help;
        size_t offset;
    } rows[] = {
#define ROW(field, name, type, help) {name, type, help, offsetof(struct tenant_report, field)}
        ROW(counts.requests, "infcgi_tenant_requests_total", "counter", "Requests that began."),
        ROW(counts.refused, "infcgi_tenant_refused_total", "counter", "Requests that the tenant's limits kept out."),
        ROW(counts.prompt_tokens, "infcgi_tenant_prompt_tokens_total", "counter", "Prompt tokens."),
        ROW(counts.cached_tokens, "infcgi_tenant_cached_tokens_total", "counter",
            "Prompt tokens found in the KV cache."),
        ROW(counts.completion_tokens, "infcgi_tenant_completion_tokens_total", "counter", "Tokens generated."),
        ROW(n_running, "infcgi_tenant_requests_running", "gauge", "Sequences being computed."),
        ROW(n_waiting, "infcgi_tenant_requests_waiting", "gauge", "Sequences in the queue."),
#undef ROW
    };
    struct tenant_report *all = mem_zalloc_array(MAX_TENANTS, sizeof *all, MEM_GENERAL);
    size_t n = all != NULL ? tenant_snapshot(e, all, MAX_TENANTS) : 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        write_head(out, rows[i].name, rows[i].type, rows[i].help);
        for (size_t k = 0; k < n; k++) {
            uint64_t v = *(const uint64_t *)(const void *)((const char *)&all[k] + rows[i].offset);
            buf_printf(out, "%s{tenant=\"%s\"} %" PRIu64 "\n", rows[i].name, all[k].rules.name, v);
        }
    }
    mem_free(all);
}

void metrics_write(struct buf *out, const struct engine *e, const char *const *route_names, int n_routes)
{
    write_number(out, "infcgi_up", "gauge", "1 once the model is loaded, until its back end is lost.",
                 e != NULL && !engine_is_lost(e, NULL));
    write_requests(out, route_names, n_routes);
    write_codes(out, "infcgi_errors_total", "Requests that ended with an error, by code.", errors);
    write_codes(out, "infcgi_failed_batches_total", "Batches that could not be computed, by code.", failed_batches);
    if (e != NULL) {
        write_engine(out, e);
        write_grammars(out, e);
        write_devices(out, engine_model(e));
    }
#define METRIC_WRITE(id, name, help) write_histogram(out, id, name, help);
    METRIC_HISTOGRAM_LIST(METRIC_WRITE)
#undef METRIC_WRITE
    write_head(out, "infcgi_memory_bytes", "gauge", "Memory held, by purpose.");
    for (int i = 0; i < MEM_PURPOSE_COUNT; i++) {
        buf_printf(out, "infcgi_memory_bytes{purpose=\"%s\"} %zu\n", mem_purpose_name((enum mem_purpose)i),
                   mem_live_of((enum mem_purpose)i));
    }
    write_number(out, "infcgi_request_memory_bytes", "gauge", "Memory that requests hold, of what they may.",
                 mem_account_held());
    write_number(out, "infcgi_request_memory_limit_bytes", "gauge", "What all requests together may hold.",
                 mem_account_budget());
    write_number(out, "infcgi_slow_requests_total", "counter", "Requests that took longer than --slow-log says.",
                 metrics_slow());
    int n_inside, n_waiting;
    gate_count(&n_inside, &n_waiting);
    write_number(out, "infcgi_preparing", "gauge", "Requests being parsed, rendered or tokenized.", n_inside);
    write_number(out, "infcgi_waiting_to_prepare", "gauge",
                 "Requests that wait for a CPU to be parsed, rendered or tokenized.", n_waiting);
    write_number(out, "infcgi_connections", "gauge", "FastCGI requests being handled.", fastcgi_n_active());
    write_tenants(out, e);
    write_number(out, "infcgi_usage_log_dropped_total", "counter", "Lines of the journal that could not be written.",
                 journal_lost());
    write_number(out, "infcgi_log_dropped_total", "counter", "Log lines lost because stderr was blocked or failed.",
                 log_dropped());
}
