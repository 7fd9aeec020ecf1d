/* `infcgi perplexity`: measures the perplexity of a text by llama-perplexity's definition, so that figures are
 * comparable. The text is cut into windows of n tokens, computed separately. The first token of a window is BOS if the
 * vocabulary requires one. Only the second half is scored, which has a context of at least half a window. A text needs
 * at least two windows. [llama.cpp tools/perplexity] */
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "fcgi/cmd/cmd.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

enum { MOST_BYTES = 256 << 20 };

/* Sums over the tokens scored so far. */
struct score {
    double nll, nll2; /* sums of -log p and of its square */
    int64_t n;
};

static double ppl_of(const struct score *s) { return exp(s->nll / (double)s->n); }

/* Returns one standard error of the mean of -log p, as a factor of the perplexity. */
static double error_of(const struct score *s)
{
    double mean = s->nll / (double)s->n, variance = s->nll2 / (double)s->n - mean * mean;
    return s->n > 1 && variance > 0 ? sqrt(variance / (double)(s->n - 1)) * ppl_of(s) : 0;
}

/* Computes a window and scores its second half. */
static enum err run_window(struct engine *e, const int32_t *ids, size_t n, struct score *score, struct err_info *info)
{
    struct engine_params p;
    struct engine_stream *s;
    struct engine_event ev = {0};
    engine_params_init(e, &p);
    p.max_tokens = 0;
    p.prompt_logprobs = true;
    p.sampling.temperature = 0;
    TRY(engine_submit(e, ids, n, &p, &s, info));
    enum err err = ERR_OK;
    for (size_t at = 0; ev.kind != SCHED_END && err == ERR_OK;) {
        err = engine_next(s, 1000, &ev);
        if (err == ERR_OK && ev.kind == SCHED_PROMPT_TOKEN && at++ > n / 2) {
            double nll = -(double)ev.token.logprob;
            score->nll += nll;
            score->nll2 += nll * nll;
            score->n++;
        }
        err = err == ERR_AGAIN ? ERR_OK : err;
    }
    if (err == ERR_OK && ev.err != ERR_OK) {
        err = ev.err;
        *info = ev.why != NULL ? *ev.why : *info;
    }
    engine_stream_close(&s);
    return err;
}

static enum err report(const struct conf *conf, const struct score *score, size_t n_windows, json_t *windows)
{
    if (!conf->json) {
        printf("\nFinal estimate: PPL = %.4f +/- %.5f\n%" PRId64 " tokens scored in %zu windows of %" PRId64 "\n",
               ppl_of(score), error_of(score), score->n, n_windows, conf->window);
        return ERR_OK;
    }
    json_t *o = json_pack("{s:f, s:f, s:I, s:I, s:I, s:O}", "ppl", ppl_of(score), "error", error_of(score), "tokens",
                          (json_int_t)score->n, "windows", (json_int_t)n_windows, "ctx", (json_int_t)conf->window,
                          "ppl_after_window", windows);
    return cmd_print_json(o, JSON_COMPACT) ? ERR_OK : ERR_NOMEM;
}

static enum err run_all(const struct conf *conf, struct engine *e, int32_t *ids, size_t n_ids, struct err_info *info)
{
    const struct engine_model_info *m = engine_model(e);
    size_t n = (size_t)conf->window, n_windows = n_ids / n;
    struct score score = {0};
    if (n_ids < 2 * n) {
        return err_set(info, ERR_CONFIG, "file",
                       "expected a text of at least %zu tokens, two windows of --ctx-size %zu, found %zu", 2 * n, n,
                       n_ids);
    }
    n_windows = conf->chunks > 0 ? MIN_OF(n_windows, (size_t)conf->chunks) : n_windows;
    json_t *windows = json_array();
    enum err err = ERR_OK;
    for (size_t w = 0; w < n_windows && err == ERR_OK; w++) {
        int32_t *from = ids + w * n;
        if (m->adds_bos) {
            from[0] = m->bos; /* replaces the first token */
        }
        err = run_window(e, from, n, &score, info);
        if (err == ERR_OK && !conf->json) {
            printf("[%zu]%.4f,", w + 1, ppl_of(&score));
            (void)fflush(stdout);
        }
        (void)json_array_append_new(windows, err == ERR_OK ? json_real(ppl_of(&score)) : json_null());
    }
    err = err != ERR_OK ? err : report(conf, &score, n_windows, windows);
    json_decref(windows);
    return err;
}

static enum err run(const struct conf *conf, struct engine *e, const struct buf *text, struct err_info *info)
{
    struct arena arena;
    int32_t *ids;
    size_t n;
    size_t len = text->len -
                 (text->len > 0 && text->data[text->len - 1] == '\n'); /* the file's last, as llama-perplexity does */
    arena_init(&arena, 0, 0, MEM_GENERAL);
    enum err err =
        engine_tokenize(e, text->data != NULL ? text->data : "", len, true, false, NULL, 0, &arena, &ids, &n, info);
    err = err != ERR_OK ? err : run_all(conf, e, ids, n, info);
    arena_fini(&arena);
    return err;
}

int cmd_perplexity(const struct program *p, struct conf *conf)
{
    struct err_info info = {0};
    struct engine_config cfg = cmd_engine_config(conf);
    struct engine *e = NULL;
    struct buf text;
    (void)p;
    buf_init(&text, MOST_BYTES, MEM_GENERAL);
    cfg.max_seqs = 1;
    cfg.n_ctx = (uint32_t)conf->window + 1; /* a prompt must leave room for one token */
    cfg.kv_tokens = 0;
    enum err err = io_read_file(conf->text_file, MOST_BYTES, &text, &info);
    if (err != ERR_OK) {
        fprintf(stderr, "error: %s: %s: %s\n", conf->text_file, err_code(err), info.text);
        buf_fini(&text);
        return CMD_BAD_CONFIG;
    }
    err = cmd_open_engine(&cfg, &e, &info);
    err = err != ERR_OK ? err : run(conf, e, &text, &info);
    engine_close(&e);
    buf_fini(&text);
    return cmd_fail(conf, err, &info);
}
