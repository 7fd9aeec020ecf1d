/* The sampler chain. It reads the row once or twice, whatever the stages; sampler_select.c finds the candidates that
 * the truncating stages can keep, and only these are sorted. */
#include "engine/sample/sampler_internal.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { FIRST_CANDIDATES = 64 }; /* minimum, if only top-p or min-p truncate */

enum err sampler_scratch_init(struct sampler_scratch *s, int32_t n_vocab)
{
    size_t n = (size_t)n_vocab;
    if (n_vocab > SAMPLER_MAX_VOCAB) {
        return ERR_INVALID_VALUE;
    }
    s->kern = mem_zalloc(sizeof *s->kern, MEM_SCRATCH);
    s->logits = mem_zalloc_array(n, sizeof *s->logits, MEM_SCRATCH);
    s->cands = mem_zalloc_array(n, sizeof *s->cands, MEM_SCRATCH);
    s->spare = mem_zalloc_array(n, sizeof *s->spare, MEM_SCRATCH);
    s->weights = mem_zalloc_array(n, sizeof *s->weights, MEM_SCRATCH);
    s->seen = mem_zalloc(n, MEM_SCRATCH);
    if (s->kern == NULL || s->logits == NULL || s->cands == NULL || s->spare == NULL || s->weights == NULL ||
        s->seen == NULL) {
        sampler_scratch_fini(s);
        return ERR_NOMEM;
    }
    struct err_info info;
    return kern_select(NULL, s->kern, &info);
}

void sampler_scratch_fini(struct sampler_scratch *s)
{
    mem_free(s->kern);
    mem_free(s->logits);
    mem_free(s->cands);
    mem_free(s->spare);
    mem_free(s->weights);
    mem_free(s->seen);
    *s = (struct sampler_scratch){0};
}

/* --- penalties -------------------------------------------------------------------------------------------------- */

/* Changes other than a mask's. */
static bool changes_more(const struct sampler_params *p, bool ban_ends)
{
    return p->n_bias > 0 || (ban_ends && p->n_ends > 0) || p->repeat_penalty != 1.0f || p->presence_penalty != 0 ||
           p->frequency_penalty != 0;
}

static bool changes_logits(const struct sampler_params *p, bool ban_ends)
{
    return p->is_guided || changes_more(p, ban_ends);
}

static void penalise_repeats(const struct sampler_params *p, const struct sampler_history *h, struct sampler_view *v,
                             unsigned char *seen)
{
    int32_t from = p->repeat_last_n < 0 || p->repeat_last_n > h->n_tokens ? 0 : h->n_tokens - p->repeat_last_n;
    for (int32_t i = from; i < h->n_tokens; i++) {
        int32_t id = h->tokens[i];
        if (seen[id] == 0) {
            seen[id] = 1;
            float *logit = sampler_view_change(v, id);
            *logit = *logit > 0 ? *logit / p->repeat_penalty : *logit * p->repeat_penalty;
        }
    }
    for (int32_t i = from; i < h->n_tokens; i++) {
        seen[h->tokens[i]] = 0;
    }
}

static void penalise_generated(const struct sampler_params *p, const struct sampler_history *h, struct sampler_view *v,
                               unsigned char *seen)
{
    for (int32_t i = h->n_prompt; i < h->n_tokens; i++) {
        int32_t id = h->tokens[i];
        *sampler_view_change(v, id) -= p->frequency_penalty + (seen[id] == 0 ? p->presence_penalty : 0);
        seen[id] = 1;
    }
    for (int32_t i = h->n_prompt; i < h->n_tokens; i++) {
        seen[h->tokens[i]] = 0;
    }
}

static void change_logits(const struct sampler_params *p, const struct sampler_history *h, struct sampler_view *v,
                          unsigned char *seen)
{
    sampler_view_find_max(v);
    if (h->allowed != NULL) {
        sampler_view_keep(v, h->allowed);
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        float *logit = sampler_view_change(v, p->bias[i].id);
        *logit = p->bias[i].bias <= SAMPLER_BAN ? -INFINITY : *logit + p->bias[i].bias;
    }
    for (size_t i = 0; h->ban_ends && i < p->n_ends; i++) {
        *sampler_view_change(v, p->ends[i]) = -INFINITY;
    }
    if (p->repeat_penalty != 1.0f) {
        penalise_repeats(p, h, v, seen);
    }
    if (p->presence_penalty != 0 || p->frequency_penalty != 0) {
        penalise_generated(p, h, v, seen);
    }
    sampler_view_settle(v);
}

/* --- truncation: each keeps the first of n candidates, which are sorted best first ------------------------------ */

static double mass(const struct candidate *c, int32_t n, float max)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)c[i].logit - max);
    }
    return sum;
}

/* Returns how many of the first candidates hold top_p of the mass of these n. */
static int32_t keep_top_p(const struct candidate *c, int32_t n, float top_p)
{
    double sum = 0, wanted = top_p * mass(c, n, c[0].logit);
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)c[i].logit - c[0].logit);
        if (sum >= wanted) {
            return i + 1;
        }
    }
    return n; /* rounding */
}

static int32_t keep_min_p(const struct candidate *c, int32_t n, float min_p)
{
    double least = c[0].logit + log((double)min_p);
    int32_t kept = 1;
    while (kept < n && c[kept].logit >= least) {
        kept++;
    }
    return kept;
}

/* Keeps the tokens whose surprise is nearest to the entropy until they hold typical_p of the mass, and sorts them by
 * logit again for later stages. */
static int32_t keep_typical(struct candidate *c, int32_t n, float typical_p)
{
    double total = mass(c, n, c[0].logit), log_total = log(total) + c[0].logit, entropy = 0;
    for (int32_t i = 0; i < n; i++) {
        double lp = c[i].logit - log_total;
        entropy -= exp(lp) * lp;
    }
    /* The distance falls, then rises along the sorted list: grow a window from the token nearest to the entropy, the
     * first of equals. */
    int32_t from = 0;
    double least = fabs(log_total - c[0].logit - entropy);
    for (int32_t i = 1; i < n && fabs(log_total - c[i].logit - entropy) <= least; i++) {
        double distance = fabs(log_total - c[i].logit - entropy);
        from = distance < least ? i : from;
        least = distance;
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

/* --- top-p and min-p of the whole vocabulary -------------------------------------------------------------------- */

/* Mass of all candidates, relative to the best one's. Fast results are inexact; the error is relative. */
struct mass {
    double total, error;
    enum { MASS_NONE, MASS_OF_ROW, MASS_WITH_TAIL, MASS_EXACT } from;
};

static double exact_mass(const struct sampler_chain *c)
{
    double sum = 0;
    for (int32_t b = 0; b < c->view->n_blocks; b++) {
        int32_t len;
        const float *logits = sampler_view_block(c->view, b, &len);
        for (int32_t i = 0; i < len; i++) {
            sum += exp((double)logits[i] - c->max);
        }
    }
    return sum;
}

/* Sums exp((logit - max) * scale) over the logits of each block below `limit`; returns the total. */
static double block_masses(const struct sampler_chain *c, float scale, float limit, double *sums)
{
    const struct sampler_view *v = c->view;
    v->kern->block_expsum(v->logits, v->n, v->block, c->max, scale, limit, sums);
    double total = 0;
    for (int32_t b = 0; b < v->n_blocks; b++) {
        if (v->touched[b] != 0) {
            int32_t len;
            const float *block = sampler_view_block(v, b, &len);
            v->kern->block_expsum(block, len, v->block, c->max, scale, limit, &sums[b]);
        }
        total += sums[b];
    }
    return total;
}

/* Returns the mass of the i-th best candidate. */
static double weight_of(struct sampler_chain *c, int32_t i)
{
    while (c->n_weights <= i) {
        c->s->weights[c->n_weights] = exp((double)c->s->cands[c->n_weights].logit - c->max);
        c->n_weights++;
    }
    return c->s->weights[i];
}

/* Refines the mass by one step. The n candidates are all of at least `floor`. Errors: kern.h; the mean argument of
 * exponentials of at most 1 is below the logarithm of their number. */
static void learn_mass(struct sampler_chain *c, int32_t n, float floor, struct mass *m)
{
    double sums[SAMPLER_BLOCKS];
    if (m->from == MASS_NONE && !isnan(c->logsumexp)) {
        m->from = MASS_OF_ROW;
        m->total = exp((double)c->logsumexp - c->max);
        m->error = 4e-6 * (1 + fabs((double)c->logsumexp));
    } else if (m->from < MASS_WITH_TAIL) {
        double tail = block_masses(c, 1, floor, sums);
        m->from = MASS_WITH_TAIL;
        m->total = tail;
        for (int32_t i = 0; i < n; i++) {
            m->total += weight_of(c, i);
        }
        m->error = 5e-6 * tail / m->total + 1e-12;
    } else {
        m->from = MASS_EXACT;
        m->total = exact_mass(c);
        m->error = 0;
    }
}

/* Returns how many of the n_min_p first of n candidates hold top_p of the whole mass: exactly as many as by the exact
 * mass. n_min_p + 1: these do not hold it. */
static int32_t keep_share(struct sampler_chain *c, int32_t n_min_p, int32_t n, float floor, struct mass *m)
{
    for (;; learn_mass(c, n, floor, m)) {
        double share = c->p->top_p * m->total, least = share * (1 - m->error), most = share * (1 + m->error), sum = 0;
        int32_t kept = 0;
        do {
            sum += weight_of(c, kept++);
        } while (kept < n_min_p && sum < least);
        if (sum < least) {
            return n_min_p + 1;
        }
        if (sum >= most) {
            return kept;
        }
    }
}

/* Returns a bound below which no candidate is kept: min-p cuts there, and all candidates with less than half of (1 -
 * top_p) / n of the mass hold less than 1 - top_p together. */
static float lowest_kept(const struct sampler_chain *c, const struct mass *m)
{
    double lowest = -FLT_MAX;
    if (c->p->min_p > 0) {
        lowest = c->max + log((double)c->p->min_p);
    }
    if (m->from != MASS_NONE && m->error < 0.5) {
        double share = (1 - (double)c->p->top_p) * m->total * (1 - m->error) / (2 * (double)c->view->n);
        lowest = fmax(lowest, c->max + log(share));
    }
    return nextafterf((float)fmax(lowest, -FLT_MAX), -FLT_MAX);
}

/* Do n candidates hold less than half of what top-p keeps? Then many more are needed. */
static bool is_far(struct sampler_chain *c, int32_t n, const struct mass *m)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += weight_of(c, i);
    }
    return sum < c->p->top_p * m->total / 2;
}

/* Finds the candidates of the whole vocabulary that top-p and min-p keep, best first; returns how many. They are
 * usually few, so it examines more and more of the best ones until the stages end within them. If they are many,
 * returns 0 and usually the token that u draws. */
static int32_t select_head(struct sampler_chain *c, double u, int32_t *id)
{
    const struct sampler_view *v = c->view;
    const int32_t counts[] = {MIN_OF(FIRST_CANDIDATES, v->n_blocks), (v->n_blocks + 1) / 2, v->n_blocks};
    struct mass m = {0};
    float floor = c->max, step = 1;
    bool is_flat = false, is_tried = v->n_blocks < FIRST_CANDIDATES;
    for (size_t try = 0;; try++) {
        float lowest = lowest_kept(c, &m);
        if (try < ARRAY_LEN(counts)) {
            floor = sampler_view_floor(v, counts[try]);
        } else {
            floor -= step;
            step *= 2;
        }
        floor = fmaxf(floor, lowest);
        if (!is_tried && (try == 2 || is_flat || floor == c->max)) {
            is_tried = true;
            if (sampler_bins_pick(c, u, id)) {
                return 0;
            }
        }
        int32_t n = sampler_view_collect(v, floor, INFINITY, c->s->cands);
        sampler_sort(c->s->cands, n, c->s->spare);
        if (m.from == MASS_NONE && c->p->top_p < 1) {
            learn_mass(c, n, floor, &m);
        }
        int32_t n_min_p = c->p->min_p > 0 ? keep_min_p(c->s->cands, n, c->p->min_p) : n;
        int32_t kept = c->p->top_p < 1 ? keep_share(c, n_min_p, n, floor, &m) : n_min_p + 1;
        if (kept <= n_min_p || n_min_p < n || floor <= lowest) {
            return MIN_OF(kept, n_min_p);
        }
        is_flat = c->p->top_p >= 1 || is_far(c, n, &m);
        if (m.from == MASS_WITH_TAIL) {
            m.from = MASS_OF_ROW; /* with more candidates the tail and its error are smaller */
        }
    }
}

/* --- the draw --------------------------------------------------------------------------------------------------- */

/* Draws from n candidates, best first, for u in [0, 1). */
static int32_t draw(struct sampler_chain *c, int32_t n, double u)
{
    const struct candidate *cands = c->s->cands;
    double total = 0, sum = 0, inverse = 1.0 / c->p->temperature, *weights = c->s->weights;
    for (int32_t i = c->p->temperature == 1 ? c->n_weights : 0; i < n; i++) {
        weights[i] = exp(((double)cands[i].logit - cands[0].logit) * inverse);
    }
    for (int32_t i = 0; i < n; i++) {
        total += weights[i];
    }
    double wanted = u * total;
    for (int32_t i = 0; i < n; i++) {
        sum += weights[i];
        if (sum > wanted) {
            return cands[i].id;
        }
    }
    return cands[n - 1].id; /* rounding: u is below 1 */
}

/* Draws from the whole vocabulary in the order of ids: the sums of the blocks give the block, a second sum the
 * token. */
static int32_t draw_untruncated(const struct sampler_chain *c, double u)
{
    double sums[SAMPLER_BLOCKS], inverse = 1.0 / c->p->temperature;
    double wanted = u * block_masses(c, (float)fmin(inverse, FLT_MAX), INFINITY, sums), sum = 0, before = 0;
    int32_t at = 0, len;
    for (int32_t b = 0; b < c->view->n_blocks && sum <= wanted; b++) {
        if (sums[b] > 0) {
            at = b;
            before = sum;
            sum += sums[b];
        }
    }
    const float *logits = sampler_view_block(c->view, at, &len);
    int32_t last = -1;
    for (int32_t i = 0; i < len; i++) {
        double weight = exp(((double)logits[i] - c->max) * inverse);
        last = weight > 0 ? i : last;
        before += weight;
        if (before > wanted) {
            break;
        }
    }
    return at * c->view->block + last; /* the last possible one, if rounding ate the sum */
}

static bool truncates(const struct sampler_params *p)
{
    return p->top_k > 0 || p->typical_p < 1 || p->top_p < 1 || p->min_p > 0;
}

/* Writes the k best of a row, best first, into s->cands; returns how many exist. */
static int32_t best_of_row(const struct sampler_row *row, const struct sampler_view *v, int32_t k,
                           struct sampler_scratch *s)
{
    if (row->logits != NULL) {
        return sampler_view_best(v, k, s->cands, s->spare);
    }
    int32_t n = 0;
    while (n < k && n < row->n_best && row->best[n].logit != -INFINITY) {
        s->cands[n] = row->best[n];
        n++;
    }
    return n;
}

/* Applies the stages after top-k to n candidates; returns how many they keep. */
static int32_t truncate(const struct sampler_params *p, struct candidate *cands, int32_t n)
{
    n = p->typical_p < 1 ? keep_typical(cands, n, p->typical_p) : n;
    n = p->top_p < 1 ? keep_top_p(cands, n, p->top_p) : n;
    return p->min_p > 0 ? keep_min_p(cands, n, p->min_p) : n;
}

static int32_t sample(struct sampler_chain *c, double u)
{
    const struct sampler_params *p = c->p;
    struct candidate *cands = c->s->cands;
    if (!truncates(p)) {
        return draw_untruncated(c, u);
    }
    int32_t id, n, k = p->top_k > 0 && p->top_k < c->view->n ? p->top_k : c->view->n;
    if (p->top_k <= 0 && p->typical_p >= 1) {
        n = select_head(c, u, &id);
        return n == 0 ? id : draw(c, n, u);
    }
    if (k == c->view->n && sampler_bins_pick(c, u, &id)) {
        return id;
    }
    n = truncate(p, cands, best_of_row(c->row, c->view, k, c->s));
    return draw(c, n, u);
}

/* Reports the probabilities that r->id was drawn with. Sorts the whole row, but only for requests that ask for it. */
static void tell_drawn(struct sampler_chain *c, struct sampler_view *v, struct sampler_result *r)
{
    const struct sampler_params *p = c->p;
    const struct candidate *cands = c->s->cands;
    int32_t k = p->top_k > 0 && p->top_k < v->n ? p->top_k : v->n;
    if (!isnan(c->logsumexp)) { /* else the maxima already include the changes */
        sampler_view_find_max(v);
    }
    int32_t n = truncate(p, c->s->cands, sampler_view_best(v, k, c->s->cands, c->s->spare));
    n = p->temperature > 0 ? n : MIN_OF(n, 1);
    double total = 0, inverse = p->temperature > 0 ? 1.0 / (double)p->temperature : 1;
    for (int32_t i = 0; i < n; i++) {
        total += exp(((double)cands[i].logit - cands[0].logit) * inverse);
    }
    r->n_top = 0;
    r->logprob = 0;
    for (int32_t i = 0; i < n; i++) {
        float share = (float)(exp(((double)cands[i].logit - cands[0].logit) * inverse) / total);
        r->logprob = cands[i].id == r->id ? share : r->logprob;
        if (share > 0 && r->n_top < p->n_top) {
            r->top[r->n_top++] = (struct sampler_top){cands[i].id, share};
        }
    }
}

/* --- the chain -------------------------------------------------------------------------------------------------- */

/* Finds the n_top best of the model's unchanged row. */
static void find_top(struct sampler_view *v, const struct sampler_row *row, int32_t n_top, struct sampler_scratch *s,
                     struct sampler_result *out)
{
    if (n_top <= 0) {
        return;
    }
    if (row->logits != NULL) {
        sampler_view_find_max(v);
    }
    out->n_top = best_of_row(row, v, n_top, s);
    for (int32_t i = 0; i < out->n_top; i++) {
        out->top[i] = (struct sampler_top){s->cands[i].id, s->cands[i].logit - row->logsumexp};
    }
}

void sampler_logprobs(const struct sampler_row *row, int32_t id, int32_t n_top, struct sampler_scratch *scratch,
                      struct sampler_result *out)
{
    struct sampler_view v;
    sampler_view_init(&v, row, scratch);
    out->id = id;
    out->logprob = row->logits[id] - row->logsumexp;
    out->n_top = 0;
    find_top(&v, row, n_top, scratch, out);
}

/* Finds the best allowed token. That is nearly always the best of all; otherwise reads only the allowed logits. */
static enum err best_allowed(const struct sampler_row *row, const uint64_t *allowed, const struct kern_table *kern,
                             int32_t *best)
{
    float max = -INFINITY;
    if ((allowed[row->argmax / 64] >> row->argmax % 64 & 1) != 0) {
        *best = row->argmax;
        return ERR_OK;
    }
    for (int32_t from = 0, n; from < row->n_vocab; from += n) {
        uint64_t bits = allowed[from / 64];
        n = 64;
        if (bits == UINT64_MAX) { /* skip a run of such words */
            while (from + n < row->n_vocab && allowed[(from + n) / 64] == UINT64_MAX) {
                n += 64;
            }
            int32_t id = from + kern->argmax(row->logits + from, MIN_OF(n, row->n_vocab - from));
            *best = row->logits[id] > max ? id : *best;
            max = MAX_OF(max, row->logits[id]);
            continue;
        }
        for (int32_t id = from; bits != 0; id++, bits >>= 1) {
            if ((bits & 1) != 0 && row->logits[id] > max) {
                max = row->logits[id];
                *best = id;
            }
        }
    }
    return max > -INFINITY ? ERR_OK : ERR_INVALID_VALUE;
}

/* Reads what the stages need, and applies bias and penalties. */
static enum err prepare(struct sampler_chain *c, const struct sampler_row *row, const struct sampler_history *h,
                        struct sampler_view *v, int32_t *best)
{
    *best = row->argmax;
    if (h->allowed != NULL && c->p->temperature <= 0 && !c->p->tells_drawn && !changes_more(c->p, h->ban_ends)) {
        return best_allowed(row, h->allowed, c->s->kern, best);
    }
    if (changes_logits(c->p, h->ban_ends)) {
        change_logits(c->p, h, v, c->s->seen);
        *best = sampler_view_argmax(v);
        int32_t len, b = *best / v->block;
        c->max = sampler_view_block(v, b, &len)[*best % v->block];
        c->logsumexp = NAN;
        if (c->max == -INFINITY) {
            return ERR_INVALID_VALUE;
        }
        if (c->max == INFINITY) {
            return ERR_NUMERICAL;
        }
    } else if (c->p->temperature > 0 && truncates(c->p) && row->logits != NULL) {
        sampler_view_find_max(v);
    }
    return ERR_OK;
}

int32_t sampler_wants(const struct sampler_params *p, int32_t n_vocab, bool ban_ends)
{
    /* the log-probability of the best follows from its logit */
    int32_t n_top = MAX_OF(p->n_top, p->n_top == 0 ? 1 : 0);
    if (changes_logits(p, ban_ends) || p->tells_drawn) {
        return SAMPLER_ALL_LOGITS;
    }
    if (p->temperature > 0) {
        /* The stages after top-k only see its candidates; without it they need the mass of all tokens. */
        return p->top_k > 0 && p->top_k < n_vocab ? MAX_OF(p->top_k, n_top) : SAMPLER_ALL_LOGITS;
    }
    return n_top;
}

/* Returns the logit of a picked token. */
static float logit_of(const struct sampler_row *row, int32_t id)
{
    int32_t i = 0;
    while (row->logits == NULL && i + 1 < row->n_best && row->best[i].id != id) {
        i++;
    }
    return row->logits != NULL ? row->logits[id] : row->best[i].logit;
}

enum err sampler_pick(const struct sampler_params *p, const struct sampler_row *row, const struct sampler_history *h,
                      struct sampler_scratch *scratch, struct sampler_result *out)
{
    if (!isfinite(row->logsumexp)) {
        return ERR_NUMERICAL;
    }
    struct sampler_view view;
    struct sampler_result r = {.logprob = NAN};
    struct sampler_chain c = {
        .p = p, .row = row, .view = &view, .s = scratch, .max = row->max, .logsumexp = row->logsumexp};
    sampler_view_init(&view, row, scratch);
    find_top(&view, row, p->n_top, scratch, &r); /* before any change */
    TRY(prepare(&c, row, h, &view, &r.id));
    if (p->temperature > 0) {
        r.id = sample(&c, rng_uniform(p->seed, p->choice, (uint64_t)h->n_tokens));
    }
    if (p->n_top >= 0) {
        r.logprob = logit_of(row, r.id) - row->logsumexp;
    }
    if (p->tells_drawn && p->n_top >= 0) {
        tell_drawn(&c, &view, &r);
    }
    *out = r;
    return ERR_OK;
}
