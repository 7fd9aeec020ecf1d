/* Prints rows of `infcgi bench` as Markdown, CSV and JSON. fill() writes the fields once; each format prints that
 * list. */
#include "fcgi/cmd/model/bench_report.h"

#include "engine/base/clock.h"
#include "fcgi/cmd/cmd.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { MAX_FIELDS = 48, VALUE_BYTES = 48, ACCEPTED_BYTES = 256 };
enum kind { TEXT, NUMBER, BOOLEAN }; /* JSON type of the value */

const char *bench_format_name(int i)
{
    static const char *const names[] = {[BENCH_MD] = "md", [BENCH_CSV] = "csv", [BENCH_JSON] = "json"};
    return i >= 0 && i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

struct field {
    const char *name, *text; /* text: NULL if the value is in `value` */
    enum kind kind;
    char value[VALUE_BYTES];
};

struct fields {
    int n;
    struct field at[MAX_FIELDS];
};

static void add_text(struct fields *f, const char *name, const char *text)
{
    f->at[f->n++] = (struct field){.name = name, .text = text, .kind = TEXT};
}

static void add_bool(struct fields *f, const char *name, bool value)
{
    f->at[f->n++] = (struct field){.name = name, .text = value ? "1" : "0", .kind = BOOLEAN};
}

static void add_int(struct fields *f, const char *name, uint64_t value)
{
    struct field *to = &f->at[f->n++];
    *to = (struct field){.name = name, .kind = NUMBER};
    snprintf(to->value, sizeof to->value, "%" PRIu64, value);
}

static void add_real(struct fields *f, const char *name, double value)
{
    struct field *to = &f->at[f->n++];
    *to = (struct field){.name = name, .kind = NUMBER};
    snprintf(to->value, sizeof to->value, "%.6f", value);
}

/* --- numbers of a row ------------------------------------------------------------------------------------------- */

static double sample_ts(const struct bench_row *row, int i)
{
    return (row->n_prompt + (double)row->n_gen * row->n_seqs) * 1e9 / (double)row->samples_ns[i];
}

struct spread {
    double mean, deviation; /* of the sample, n - 1 */
};

static struct spread spread_of(const struct bench_row *row, bool is_ts)
{
    struct spread s = {0, 0};
    for (int i = 0; i < row->n_samples; i++) {
        s.mean += (is_ts ? sample_ts(row, i) : (double)row->samples_ns[i]) / row->n_samples;
    }
    for (int i = 0; i < row->n_samples; i++) {
        double off = (is_ts ? sample_ts(row, i) : (double)row->samples_ns[i]) - s.mean;
        s.deviation += off * off;
    }
    s.deviation = row->n_samples > 1 ? sqrt(s.deviation / (row->n_samples - 1)) : 0;
    return s;
}

/* Fills in llama-bench's fields in its order. Fields for options that infcgi lacks have the value that means "off".
 * `when` is test_time's buffer and must outlive *f. */
static void fill(struct fields *f, const struct bench_report *r, const struct bench_row *row, const char *when)
{
    struct spread ns = spread_of(row, false), ts = spread_of(row, true);
    f->n = 0;
    add_text(f, "build_commit", CMD_VERSION);
    add_int(f, "build_number", 0);
    add_text(f, "cpu_info", r->cpu_info);
    add_text(f, "gpu_info", "");
    add_text(f, "backends", r->kernels);
    add_text(f, "model_filename", r->model_path);
    add_text(f, "model_type", r->model_type);
    add_int(f, "model_size", r->model_bytes);
    add_int(f, "model_n_params", r->n_params);
    add_int(f, "n_batch", (uint64_t)row->n_batch);
    add_int(f, "n_ubatch", (uint64_t)row->n_batch);
    add_int(f, "n_threads", (uint64_t)row->n_threads);
    add_text(f, "cpu_mask", "0x0");
    add_bool(f, "cpu_strict", false);
    add_int(f, "poll", 0);
    add_text(f, "type_k", r->k_type);
    add_text(f, "type_v", r->v_type);
    add_int(f, "n_gpu_layers", (uint64_t)row->n_gpu_layers);
    add_int(f, "n_cpu_moe", 0);
    add_text(f, "split_mode", "none");
    add_int(f, "main_gpu", 0);
    add_bool(f, "no_kv_offload", false);
    add_int(f, "flash_attn", 1);
    add_text(f, "devices", "none");
    add_text(f, "tensor_split", "0.00");
    add_text(f, "tensor_buft_overrides", "none");
    add_text(f, "load_mode", "mmap");
    add_text(f, "lazy_mode", "off");
    add_bool(f, "embeddings", false);
    add_int(f, "no_op_offload", 0);
    add_bool(f, "no_host", false);
    add_bool(f, "repack", true);
    add_int(f, "fit_target", 0);
    add_int(f, "fit_min_ctx", 0);
    add_int(f, "n_prompt", (uint64_t)row->n_prompt);
    add_int(f, "n_gen", (uint64_t)row->n_gen);
    add_int(f, "n_depth", (uint64_t)row->n_depth);
    add_text(f, "test_time", when);
    add_int(f, "avg_ns", (uint64_t)ns.mean);
    add_int(f, "stddev_ns", (uint64_t)ns.deviation);
    add_real(f, "avg_ts", ts.mean);
    add_real(f, "stddev_ts", ts.deviation);
    if (r->has_seqs) {
        add_int(f, "n_seqs", (uint64_t)row->n_seqs);
    }
    if (row->n_draft > 0) {
        add_int(f, "n_draft", (uint64_t)row->n_draft);
        add_real(f, "accept", row->accept);
    }
}

/* --- formats ---------------------------------------------------------------------------------------------------- */

static void csv_text(FILE *out, const char *s)
{
    putc('"', out);
    for (; *s != '\0'; s++) {
        fputs(*s == '"' ? "\"\"" : (char[]){*s, '\0'}, out);
    }
    putc('"', out);
}

static void json_text(FILE *out, const char *s)
{
    putc('"', out);
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\') {
            fprintf(out, "\\%c", *s);
        } else if ((unsigned char)*s < 0x20) {
            fprintf(out, "\\u%04x", (unsigned char)*s);
        } else {
            putc(*s, out);
        }
    }
    putc('"', out);
}

static void print_csv(const struct bench_report *r, const struct fields *f)
{
    for (int i = 0; r->n_rows == 0 && i < f->n; i++) {
        fprintf(r->out, "%s%s", f->at[i].name, i + 1 < f->n ? "," : "\n");
    }
    for (int i = 0; i < f->n; i++) {
        csv_text(r->out, f->at[i].text != NULL ? f->at[i].text : f->at[i].value);
        putc(i + 1 < f->n ? ',' : '\n', r->out);
    }
}

/* Writes the share of drafts that came true at each position. */
static void put_accepted(char *out, size_t room, const struct bench_row *row, const char *between)
{
    size_t n = 0;
    for (int i = 0; i < row->n_draft && n < room; i++) {
        double share = row->n_drafted > 0 ? (double)row->accepted[i] / (double)row->n_drafted : 0;
        n += (size_t)snprintf(out + n, room - n, "%s%.3f", i > 0 ? between : "", share);
    }
}

static void print_json(const struct bench_report *r, const struct fields *f, const struct bench_row *row)
{
    fputs(r->n_rows == 0 ? "  {\n" : ",\n  {\n", r->out);
    for (int i = 0; i < f->n; i++) {
        const struct field *at = &f->at[i];
        fprintf(r->out, "    \"%s\": ", at->name);
        if (at->kind == TEXT) {
            json_text(r->out, at->text);
        } else {
            fputs(at->kind == NUMBER ? at->value : *at->text == '1' ? "true" : "false", r->out);
        }
        fputs(",\n", r->out);
    }
    fputs("    \"samples_ns\": [ ", r->out);
    for (int i = 0; i < row->n_samples; i++) {
        fprintf(r->out, "%s%" PRIu64, i > 0 ? ", " : "", row->samples_ns[i]);
    }
    fputs(" ],\n    \"samples_ts\": [ ", r->out);
    for (int i = 0; i < row->n_samples; i++) {
        fprintf(r->out, "%s%g", i > 0 ? ", " : "", sample_ts(row, i));
    }
    if (row->n_draft > 0) {
        char shares[ACCEPTED_BYTES];
        put_accepted(shares, sizeof shares, row, ", ");
        fprintf(r->out, " ],\n    \"accepted_by_position\": [ %s", shares);
    }
    fprintf(r->out, " ],\n    \"read_bytes\": %.0f,\n    \"matmul_ops\": %.0f", row->read_bytes, row->matmul_ops);
    if (row->counts.launches != 0) {
        fprintf(r->out,
                ",\n    \"launches\": %" PRIu64 ",\n    \"weight_bytes\": %" PRIu64 ",\n    \"cache_bytes\": %" PRIu64,
                row->counts.launches, row->counts.weight_bytes, row->counts.cache_bytes);
    }
    if (r->rates != NULL) {
        fprintf(r->out, ",\n    \"launch_us\": %.3f,\n    \"queued_launch_us\": %.3f,\n    \"copy_bytes_s\": %.0f",
                r->rates->launch_s * 1e6, r->rates->queued_launch_s * 1e6, r->rates->copy_bytes_s);
    }
    fputs("\n  }", r->out);
}

/* Adds a line to the footer if there is room for it. */
static void PRINTF_LIKE(2, 3) note_line(struct bench_report *r, const char *fmt, ...)
{
    size_t n = strlen(r->counted), room = sizeof r->counted - n;
    va_list args;
    va_start(args, fmt);
    int all = vsnprintf(r->counted + n, room, fmt, args);
    va_end(args);
    if (all < 0 || (size_t)all >= room) {
        r->counted[n] = '\0'; /* no partial lines */
    }
}

static void note_drafts(struct bench_report *r, const struct bench_row *row, const char *test)
{
    char shares[ACCEPTED_BYTES];
    if (row->n_draft > 0) {
        put_accepted(shares, sizeof shares, row, " ");
        note_line(r, "%s: came true by position: %s\n", test, shares);
    }
}

/* Notes the device's counts of a generation for the footer. */
static void note_counts(struct bench_report *r, const struct bench_row *row, const char *test)
{
    const struct backend_counts *c = &row->counts;
    double steps = row->n_gen, seconds = spread_of(row, false).mean / 1e9;
    double bytes_s = (double)(c->weight_bytes + c->cache_bytes) / seconds;
    char share[48] = "";
    if (c->launches == 0) {
        return;
    }
    if (r->rates != NULL) {
        snprintf(share, sizeof share, ", %.0f %% of copying", 100 * bytes_s / r->rates->copy_bytes_s);
    }
    note_line(r,
              "%s: a step is %.0f launches and reads %.2f MB of weights, %.2f MB of keys and values: "
              "%.2f GB/s%s\n",
              test, (double)c->launches / steps, (double)c->weight_bytes / steps / 1e6,
              (double)c->cache_bytes / steps / 1e6, bytes_s / 1e9, share);
}

static void print_md(struct bench_report *r, const struct bench_row *row)
{
    static const double kib = 1024.0, mib = kib * kib, gib = mib * kib;
    char size[32], params[32], batch[16] = "", seqs[16] = "", depth[24] = "", drafts[48] = "", test[112], speed[64];
    bool is_gib = (double)r->model_bytes >= gib, is_billion = r->n_params >= 1000000000;
    snprintf(size, sizeof size, "%.2f %s", (double)r->model_bytes / (is_gib ? gib : mib), is_gib ? "GiB" : "MiB");
    snprintf(params, sizeof params, "%.2f %c", (double)r->n_params / (is_billion ? 1e9 : 1e6), is_billion ? 'B' : 'M');
    if (r->has_batches) {
        snprintf(batch, sizeof batch, " %7d |", row->n_batch);
    }
    if (row->n_seqs > 1) {
        snprintf(seqs, sizeof seqs, " x %d", row->n_seqs);
    }
    if (row->n_depth > 0) {
        snprintf(depth, sizeof depth, " @ d%d", row->n_depth);
    }
    if (row->n_draft > 0) {
        snprintf(drafts, sizeof drafts, " %d drafts, accept %.2f drawn", row->n_draft, row->accept);
    }
    snprintf(test, sizeof test, "%s%d%s%s%s", row->n_prompt > 0 ? "pp" : "tg", row->n_prompt + row->n_gen, seqs, depth,
             drafts);
    struct spread ts = spread_of(row, true);
    snprintf(speed, sizeof speed, "%.2f ± %.2f", ts.mean, ts.deviation);
    char types[32] = "";
    if (r->has_types) {
        snprintf(types, sizeof types, " %6s | %6s |", r->k_type, r->v_type);
    }
    note_counts(r, row, test);
    note_drafts(r, row, test);
    fprintf(r->out, "| %-30s | %10s | %10s | %-10s | %7d |%s%s %15s | %21s |\n", r->model_type, size, params,
            r->kernels, row->n_threads, batch, types, test,
            speed); /* 21: the plus-minus sign is two bytes and one column wide */
}

void bench_report_head(struct bench_report *r)
{
    if (r->format == BENCH_MD) {
        fprintf(r->out, "| %-30s | %10s | %10s | %-10s | %7s |%s%s %15s | %20s |\n", "model", "size", "params",
                "backend", "threads", r->has_batches ? " n_batch |" : "", r->has_types ? " type_k | type_v |" : "",
                "test", "t/s");
        fprintf(
            r->out,
            "| ------------------------------ | ---------: | ---------: | ---------- | ------: |%s%s --------------: | "
            "-------------------: |\n",
            r->has_batches ? " ------: |" : "", r->has_types ? " -----: | -----: |" : "");
    } else if (r->format == BENCH_JSON) {
        fputs("[\n", r->out);
    }
}

void bench_report_row(struct bench_report *r, const struct bench_row *row)
{
    char when[CLOCK_UTC_BYTES];
    struct fields f;
    fill(&f, r, row, clock_utc(clock_unix_seconds(), when));
    if (r->format == BENCH_MD) {
        print_md(r, row);
    } else if (r->format == BENCH_CSV) {
        print_csv(r, &f);
    } else {
        print_json(r, &f, row);
    }
    r->n_rows++;
    fflush(r->out);
}

void bench_report_foot(struct bench_report *r)
{
    if (r->format == BENCH_MD) {
        if (r->counted[0] != '\0' || r->rates != NULL) {
            fprintf(r->out, "\n%s\n%s", r->cpu_info, r->counted);
        }
        if (r->rates != NULL) {
            fprintf(r->out, "a launch: %.1f us alone, %.1f us of many; copying: %.1f GB/s\n", r->rates->launch_s * 1e6,
                    r->rates->queued_launch_s * 1e6, r->rates->copy_bytes_s / 1e9);
        }
        fprintf(r->out, "\nbuild: infcgi %s\n", CMD_VERSION);
    } else if (r->format == BENCH_JSON) {
        fputs("\n]\n", r->out);
    }
}
