/* The sampler chain. Candidates are never fully sorted: a heap gives the best ones for as long as a stage asks. */
#include "engine/sample/sampler.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <math.h>
#include <string.h>

enum {
    FIRST_CANDIDATES = 256
}; /* selected at first when only top-p or min-p truncate; 8 times more at each further try */

enum err sampler_scratch_init(struct sampler_scratch *s, int32_t n_vocab)
{
    size_t n = (size_t)n_vocab;
    s->logits = mem_zalloc_array(n, sizeof *s->logits, MEM_SCRATCH);
    s->cands = mem_zalloc_array(n, sizeof *s->cands, MEM_SCRATCH);
    s->seen = mem_zalloc(n, MEM_SCRATCH);
    if (s->logits == NULL || s->cands == NULL || s->seen == NULL) {
        sampler_scratch_fini(s);
        return ERR_NOMEM;
    }
    return ERR_OK;
}

void sampler_scratch_fini(struct sampler_scratch *s)
{
    mem_free(s->logits);
    mem_free(s->cands);
    mem_free(s->seen);
    *s = (struct sampler_scratch){0};
}

/* --- order and heap --------------------------------------------------------------------------------------------- */

/* Better first: higher logit, then lower id. */
static bool is_better(struct sampler_candidate a, struct sampler_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Sinks heap[at] of a heap of n whose best (or, with `worst_first`, worst) element is on top. */
static void sink(struct sampler_candidate *heap, int32_t n, int32_t at, bool worst_first)
{
    struct sampler_candidate c = heap[at];
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_better(heap[child + 1], heap[child]) != worst_first) {
            child++;
        }
        if (is_better(heap[child], c) == worst_first) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = c;
}

/* The k best of logits[n], best first, into cands[k]; returns how many there are (banned ones are -inf and left out).
 */
static int32_t select_best(const float *logits, int32_t n, int32_t k, struct sampler_candidate *cands)
{
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        struct sampler_candidate c = {i, logits[i]};
        if (c.logit == -INFINITY) {
            continue;
        }
        if (m < k) {
            cands[m++] = c;
            if (m == k) {
                for (int32_t at = m / 2; at-- > 0;) {
                    sink(cands, m, at, true);
                }
            }
        } else if (c.logit > cands[0].logit) { /* an equal logit has a higher id: never better */
            cands[0] = c;
            sink(cands, m, 0, true);
        }
    }
    if (m < k) {
        for (int32_t at = m / 2; at-- > 0;) {
            sink(cands, m, at, true);
        }
    }
    for (int32_t end = m; end > 1;) { /* heap sort: the worst goes to the back */
        end--;
        struct sampler_candidate worst = cands[0];
        cands[0] = cands[end];
        cands[end] = worst;
        sink(cands, end, 0, true);
    }
    return m;
}

/* --- penalties -------------------------------------------------------------------------------------------------- */

static bool changes_logits(const struct sampler_params *p, const struct sampler_history *h)
{
    return p->n_bias > 0 || (h->ban_ends && p->n_ends > 0) || p->repeat_penalty != 1.0f || p->presence_penalty != 0 ||
           p->frequency_penalty != 0;
}

static void penalise_repeats(const struct sampler_params *p, const struct sampler_history *h, struct sampler_scratch *s)
{
    int32_t from = p->repeat_last_n < 0 || p->repeat_last_n > h->n_tokens ? 0 : h->n_tokens - p->repeat_last_n;
    for (int32_t i = from; i < h->n_tokens; i++) {
        int32_t id = h->tokens[i];
        if (s->seen[id] == 0) {
            s->seen[id] = 1;
            s->logits[id] = s->logits[id] > 0 ? s->logits[id] / p->repeat_penalty : s->logits[id] * p->repeat_penalty;
        }
    }
    for (int32_t i = from; i < h->n_tokens; i++) {
        s->seen[h->tokens[i]] = 0;
    }
}

static void penalise_generated(const struct sampler_params *p, const struct sampler_history *h,
                               struct sampler_scratch *s)
{
    for (int32_t i = h->n_prompt; i < h->n_tokens; i++) {
        int32_t id = h->tokens[i];
        s->logits[id] -= p->frequency_penalty + (s->seen[id] == 0 ? p->presence_penalty : 0);
        s->seen[id] = 1;
    }
    for (int32_t i = h->n_prompt; i < h->n_tokens; i++) {
        s->seen[h->tokens[i]] = 0;
    }
}

/* Leaves the changed logits in the scratch. */
static void change_logits(const struct sampler_params *p, const struct sampler_row *row,
                          const struct sampler_history *h, struct sampler_scratch *s)
{
    memcpy(s->logits, row->logits, (size_t)row->n_vocab * sizeof *s->logits);
    for (size_t i = 0; i < p->n_bias; i++) {
        s->logits[p->bias[i].id] =
            p->bias[i].bias <= SAMPLER_BAN ? -INFINITY : s->logits[p->bias[i].id] + p->bias[i].bias;
    }
    for (size_t i = 0; h->ban_ends && i < p->n_ends; i++) {
        s->logits[p->ends[i]] = -INFINITY;
    }
    if (p->repeat_penalty != 1.0f) {
        penalise_repeats(p, h, s);
    }
    if (p->presence_penalty != 0 || p->frequency_penalty != 0) {
        penalise_generated(p, h, s);
    }
}

/* --- truncation: each keeps the first of n candidates, which are sorted best first ------------------------------ */

static double mass(const struct sampler_candidate *c, int32_t n, float max)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)c[i].logit - max);
    }
    return sum;
}

/* total: the mass of all candidates, these n and maybe others behind them. n + 1: these n do not reach top_p. */
static int32_t keep_top_p(const struct sampler_candidate *c, int32_t n, float top_p, double total)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)c[i].logit - c[0].logit);
        if (sum >= top_p * total) {
            return i + 1;
        }
    }
    return n + 1;
}

static int32_t keep_min_p(const struct sampler_candidate *c, int32_t n, float min_p)
{
    double least = c[0].logit + log((double)min_p);
    int32_t kept = 1;
    while (kept < n && c[kept].logit >= least) {
        kept++;
    }
    return kept;
}

/* Keeps the tokens whose surprise is nearest to the entropy until they hold typical_p of the mass. The candidates'
 * logits are put back in order afterwards, so that later stages see them sorted. */
static int32_t keep_typical(struct sampler_candidate *c, int32_t n, float typical_p)
{
    double total = mass(c, n, c[0].logit), log_total = log(total) + c[0].logit, entropy = 0;
    for (int32_t i = 0; i < n; i++) {
        double lp = c[i].logit - log_total;
        entropy -= exp(lp) * lp;
    }
    /* Nearness falls, then rises along the sorted list: grow a window from the token nearest to the entropy. */
    int32_t from = 0;
    while (from + 1 < n && fabs(log_total - c[from + 1].logit - entropy) < fabs(log_total - c[from].logit - entropy)) {
        from++;
    }
    int32_t to = from + 1;
    double sum = exp(c[from].logit - log_total);
    while (sum < typical_p && (from > 0 || to < n)) {
        double before = from > 0 ? fabs(log_total - c[from - 1].logit - entropy) : INFINITY;
        double after = to < n ? fabs(log_total - c[to].logit - entropy) : INFINITY;
        int32_t taken = before <= after ? --from : to++;
        sum += exp(c[taken].logit - log_total);
    }
    memmove(c, c + from, (size_t)(to - from) * sizeof *c);
    return to - from;
}

/* --- the draw --------------------------------------------------------------------------------------------------- */

static int32_t draw(const struct sampler_params *p, const struct sampler_candidate *c, int32_t n, float max, double u)
{
    double total = 0, sum = 0, inverse = 1.0 / p->temperature;
    for (int32_t i = 0; i < n; i++) {
        total += exp(((double)c[i].logit - max) * inverse);
    }
    double wanted = u * total;
    for (int32_t i = 0; i < n; i++) {
        sum += exp(((double)c[i].logit - max) * inverse);
        if (sum > wanted) {
            return c[i].id;
        }
    }
    return c[n - 1].id; /* rounding: u is below 1 */
}

/* Draws from the whole vocabulary in id order, without candidates. */
static int32_t draw_untruncated(const struct sampler_params *p, const float *logits, int32_t n, double u)
{
    float max = -INFINITY;
    int32_t last = -1;
    for (int32_t i = 0; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    double total = 0, sum = 0, inverse = 1.0 / p->temperature;
    for (int32_t i = 0; i < n; i++) {
        total += exp(((double)logits[i] - max) * inverse);
    }
    double wanted = u * total;
    for (int32_t i = 0; i < n; i++) {
        double weight = exp(((double)logits[i] - max) * inverse);
        sum += weight;
        last = weight > 0 ? i : last;
        if (sum > wanted) {
            return i;
        }
    }
    return last;
}

/* The candidates that top-p and min-p keep of the whole vocabulary, best first. They are few as a rule, so ever more of
 * the best ones are selected until the stages end within them. */
static int32_t select_head(const struct sampler_params *p, const float *logits, int32_t n_vocab,
                           struct sampler_candidate *c)
{
    double total = 0;
    float max = -INFINITY;
    for (int32_t i = 0; i < n_vocab; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    for (int32_t i = 0; i < n_vocab && p->top_p < 1; i++) {
        total += exp((double)logits[i] - max);
    }
    for (int64_t k = FIRST_CANDIDATES;; k *= 8) {
        int32_t wanted = k < n_vocab ? (int32_t)k : n_vocab;
        int32_t n = select_best(logits, n_vocab, wanted, c), kept = n;
        bool is_all = n < wanted || wanted == n_vocab;
        if (p->top_p < 1) {
            kept = keep_top_p(c, n, p->top_p, total);
        }
        bool is_cut = kept < n || (p->top_p < 1 && kept == n);
        kept = kept > n ? n : kept;
        if (p->min_p > 0) {
            int32_t by_min_p = keep_min_p(c, kept, p->min_p);
            is_cut = is_cut || by_min_p < kept;
            kept = by_min_p;
        }
        if (is_cut || is_all) {
            return kept;
        }
    }
}

static int32_t sample(const struct sampler_params *p, const float *logits, int32_t n_vocab, double u,
                      struct sampler_scratch *s)
{
    if (p->top_k <= 0 && p->typical_p >= 1) {
        if (p->top_p >= 1 && p->min_p <= 0) {
            return draw_untruncated(p, logits, n_vocab, u);
        }
        int32_t n = select_head(p, logits, n_vocab, s->cands);
        return draw(p, s->cands, n, s->cands[0].logit, u);
    }
    int32_t k = p->top_k > 0 && p->top_k < n_vocab ? p->top_k : n_vocab;
    int32_t n = select_best(logits, n_vocab, k, s->cands);
    if (p->typical_p < 1) {
        n = keep_typical(s->cands, n, p->typical_p);
    }
    if (p->top_p < 1) {
        int32_t kept = keep_top_p(s->cands, n, p->top_p, mass(s->cands, n, s->cands[0].logit));
        n = kept < n ? kept : n;
    }
    if (p->min_p > 0) {
        n = keep_min_p(s->cands, n, p->min_p);
    }
    return draw(p, s->cands, n, s->cands[0].logit, u);
}

static int32_t best_of(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

void sampler_logprobs(const struct sampler_row *row, int32_t id, int32_t n_top, struct sampler_result *out)
{
    struct sampler_candidate best[SAMPLER_MAX_TOP];
    out->id = id;
    out->logprob = row->logits[id] - row->logsumexp;
    out->n_top = n_top > 0 ? select_best(row->logits, row->n_vocab, n_top, best) : 0;
    for (int32_t i = 0; i < out->n_top; i++) {
        out->top[i] = (struct sampler_top){best[i].id, best[i].logit - row->logsumexp};
    }
}

enum err sampler_pick(const struct sampler_params *p, const struct sampler_row *row, const struct sampler_history *h,
                      struct sampler_scratch *scratch, struct sampler_result *out)
{
    if (!isfinite(row->logsumexp)) {
        return ERR_NUMERICAL;
    }
    const float *logits = row->logits;
    int32_t best = row->argmax;
    if (changes_logits(p, h)) {
        change_logits(p, row, h, scratch);
        logits = scratch->logits;
        best = best_of(logits, row->n_vocab);
        if (logits[best] == -INFINITY) {
            return ERR_INVALID_VALUE;
        }
    }
    int32_t id = best;
    if (p->temperature > 0) {
        id = sample(p, logits, row->n_vocab, rng_uniform(p->seed, p->choice, (uint64_t)h->n_tokens), scratch);
    }
    *out = (struct sampler_result){.id = id, .logprob = NAN};
    if (p->n_top >= 0) {
        sampler_logprobs(row, id, p->n_top, out);
    }
    return ERR_OK;
}
