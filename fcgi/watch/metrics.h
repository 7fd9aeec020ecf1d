/* Counters and histograms of the server, and their Prometheus text. One list defines name, type and help of each.
 * Engine counters are read from the engine at scrape time. Threads: safe anywhere. */
#ifndef INFCGI_FCGI_METRICS_H
#define INFCGI_FCGI_METRICS_H

#include "engine/base/buf.h"
#include "engine/engine.h"

/* X(enum, name, help): histograms in seconds. */
#define METRIC_HISTOGRAM_LIST(X)                                                                                       \
    X(METRIC_TTFT, "infcgi_time_to_first_token_seconds", "From the request's arrival to its first token.")             \
    X(METRIC_ITL, "infcgi_inter_token_latency_seconds", "Between two tokens of one stream.")                           \
    X(METRIC_E2E, "infcgi_request_duration_seconds", "From the request's arrival to its last byte.")                   \
    X(METRIC_QUEUE_TIME, "infcgi_queue_time_seconds", "From the request's arrival to its first step.")

enum metric_histogram {
#define METRIC_ENUM(name, text, help) name,
    METRIC_HISTOGRAM_LIST(METRIC_ENUM)
#undef METRIC_ENUM
        METRIC_HISTOGRAM_COUNT
};

/* Counts a value, in seconds. */
void metrics_observe(enum metric_histogram h, double seconds);

/* Counts an answered request and its error. route: index of its row in the route table, below METRICS_MAX_ROUTES. */
enum { METRICS_MAX_ROUTES = 64 };
void metrics_count_request(int route, int http_status, enum err err);

/* Returns the number of requests that ended with an error. */
unsigned long long metrics_errors(void);

/* Counts a request that --slow-log logs; metrics_slow returns their number. */
void metrics_count_slow(void);
unsigned long long metrics_slow(void);

/* Counts a batch whose computation failed. */
void metrics_count_failed_batch(enum err why);

/* Counts a finished sequence, for llama-server's sums. */
void metrics_note_sequence(const struct sched_usage *u);

/* Appends llama-server's metrics as "llamacpp:...", counted from the start of the process. */
void metrics_write_llama(struct buf *out, const struct engine *e);

/* Appends the Prometheus text, format 0.0.4. e OPTIONAL: NULL while the model loads. */
void metrics_write(struct buf *out, const struct engine *e, const char *const *route_names, int n_routes);

#endif
