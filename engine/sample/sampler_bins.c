/* Picks a token from a row so flat that top-p, min-p or typical-p keep thousands, without sorting them. One pass sums
 * the mass of each bin of logits (kern.h). Only the bins that contain a boundary or the drawn number are collected and
 * sorted, a few hundred logits each. The masses are accurate to a few 1e-9, and the result equals sampler.c's by
 * sorting: if a boundary is within the error, no result is returned, and the caller sorts. That is rare: less than a
 * hundredth of draws even if each of 262,144 tokens has the same share. */
#include "engine/sample/sampler_internal.h"

#include "engine/base/compiler.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    LAST_BIN = KERN_BINS - 1, /* all below: masses unknown, each less than 1e-19 */
    MAX_OPENED = 16,          /* 3 on either side for typical-p, one each for top-p, min-p and the draw */
    FEW = 4096,               /* candidates that are weighed individually */
    PLAIN = 0,                /* masses at temperature 1 */
    DRAW = 1,                 /* masses at the temperature of the draw */
};

#define MAX_LOGIT       4096.0f /* beyond it, bins are hardly wider than the steps of a float */
#define MIN_TEMPERATURE 0.2     /* the polynomials of kern.h converge too slowly below it */

/* A bin with its candidates, best first. */
struct opened {
    int32_t bin, n;
    const struct candidate *c;
};

/* A position in the order of candidates: before the i-th of a bin. */
struct place {
    int32_t bin, i;
};

struct bins {
    const struct sampler_params *p;
    const struct sampler_view *v;
    struct sampler_scratch *s;
    double max;                  /* largest logit */
    float top;                   /* its k */
    double inverse[2];           /* 1 / temperature, of PLAIN and DRAW */
    double before[2][KERN_BINS]; /* mass of the bins before this one, relative to the best candidate's */
    double error;                /* of any such mass, and of a share of it: times before[][LAST_BIN] */
    double rest;                 /* of kern.h */
    double mean;                 /* of logit - max, by PLAIN mass: the logarithm of the mass less the entropy */
    struct opened opened[MAX_OPENED];
    uint64_t sums[KERN_BINS];  /* of the last pass, kern.h */
    int32_t n_opened, n_taken; /* bins, and candidates of s->cands that they take */
};

/* --- bins ------------------------------------------------------------------------------------------------------- */

static float k_of(float logit) { return nearbyintf(logit * KERN_BINS_PER_ONE); }

/* Returns the least float that belongs to k. */
static float least_of(float k)
{
    float x = (float)(((double)k - 0.5) * KERN_BIN_WIDTH);
    while (k_of(x) >= k) {
        x = nextafterf(x, -INFINITY);
    }
    while (k_of(x) < k) {
        x = nextafterf(x, INFINITY);
    }
    return x;
}

/* Fills sums for the whole row; returns its rest. */
static double add_row(const struct sampler_view *v, const struct kern_bins *k, uint64_t (*sums)[KERN_BINS])
{
    double rest = 0;
    memset(sums, 0, (size_t)k->n_sums * sizeof *sums);
    for (int32_t b = 0, to; b < v->n_blocks; b = to) { /* unchanged blocks are read together */
        for (to = b + 1; to < v->n_blocks && v->touched[to] == 0 && v->touched[b] == 0; to++) {
        }
        int32_t len, from = b * v->block, end = MIN_OF(to * v->block, v->n);
        rest += v->kern->bin_sums(sampler_view_block(v, b, &len), end - from, k, sums);
    }
    return rest;
}

/* Computes coefficients of exp(r * inverse). */
static void exp_terms(double inverse, float *c)
{
    double term = 1;
    for (int j = 0; j < KERN_BIN_TERMS; j++) {
        term *= inverse / (j + 1);
        c[j] = (float)term;
    }
}

static void add_up(struct bins *b, int which, const uint64_t *sums)
{
    double centre = (double)b->top * KERN_BIN_WIDTH - b->max, step = exp(-KERN_BIN_WIDTH * b->inverse[which]);
    double factor = exp(centre * b->inverse[which]) / KERN_BIN_ONE, mass = 0;
    for (int32_t i = 0; i < LAST_BIN; i++) {
        b->before[which][i] = mass;
        mass += (double)sums[i] * factor;
        factor *= step;
    }
    b->before[which][LAST_BIN] = mass;
}

/* Sums bin centres, and the logits' differences from their bins' centres. */
static void find_mean(struct bins *b)
{
    double centre = (double)b->top * KERN_BIN_WIDTH - b->max, sum = b->rest;
    for (int32_t i = 0; i < LAST_BIN; i++) {
        sum += (b->before[PLAIN][i + 1] - b->before[PLAIN][i]) * (centre - i * KERN_BIN_WIDTH);
    }
    b->mean = sum / b->before[PLAIN][LAST_BIN];
}

/* One pass: computes the masses that truncation needs or, without truncation, those of the draw. */
static void read_row(struct bins *b, int which)
{
    struct kern_bins k = {
        .top = b->top, .n_sums = 1, .has_rest = which == PLAIN && b->p->typical_p < 1, .max = (float)b->max};
    exp_terms(b->inverse[which], k.c[0]);
    b->rest = add_row(b->v, &k, &b->sums);
    add_up(b, which, b->sums);
    if (k.has_rest) {
        find_mean(b);
    }
}

/* --- candidates of a bin ---------------------------------------------------------------------------------------- */

static int32_t bin_of(const struct bins *b, float logit)
{
    return (int32_t)fmaxf(0, fminf(b->top - k_of(logit), LAST_BIN));
}

static const struct opened *find_opened(const struct bins *b, int32_t bin)
{
    for (int32_t i = 0; i < b->n_opened; i++) {
        if (b->opened[i].bin == bin) {
            return &b->opened[i];
        }
    }
    return NULL;
}

/* Collects bins first .. last, none of them open, into consecutive candidates, *n in all. */
static const struct candidate *open_range(struct bins *b, int32_t first, int32_t last, int32_t *n)
{
    struct candidate *c = b->s->cands + b->n_taken;
    float least = least_of(b->top - (float)last), most = nextafterf(least_of(b->top - (float)first + 1), -INFINITY);
    *n = sampler_view_collect(b->v, least, most, c);
    sampler_sort(c, *n, b->s->spare);
    b->n_taken += *n;
    return c;
}

/* Like open_range, and records where each bin begins. */
static const struct candidate *open_bins(struct bins *b, int32_t first, int32_t last, int32_t *n)
{
    const struct candidate *c = open_range(b, first, last, n);
    int32_t at = 0;
    for (int32_t bin = first; bin <= last; bin++) {
        int32_t from = at;
        while (at < *n && (bin == last || bin_of(b, c[at].logit) == bin)) {
            at++;
        }
        b->opened[b->n_opened++] = (struct opened){.bin = bin, .n = at - from, .c = c + from};
    }
    return c;
}

static const struct opened *open_bin(struct bins *b, int32_t bin)
{
    const struct opened *o = find_opened(b, bin);
    if (o == NULL) {
        int32_t n;
        open_bins(b, bin, bin, &n);
        o = &b->opened[b->n_opened - 1];
    }
    return o;
}

static bool is_before(struct place a, struct place b) { return a.bin < b.bin || (a.bin == b.bin && a.i < b.i); }

/* --- masses ----------------------------------------------------------------------------------------------------- */

static double weight(const struct bins *b, int which, float logit)
{
    return exp(((double)logit - b->max) * b->inverse[which]);
}

static double mass_before(struct bins *b, int which, struct place at)
{
    double sum = b->before[which][at.bin], w = 0;
    const struct opened *o = at.i > 0 ? open_bin(b, at.bin) : NULL;
    for (int32_t i = 0; i < at.i; i++) {
        w = i > 0 && o->c[i].logit == o->c[i - 1].logit ? w : weight(b, which, o->c[i].logit);
        sum += w;
    }
    return sum;
}

/* Finds the candidate from `first` on with which the mass of all up to it reaches `wanted`. Returns false if it could
 * also be its neighbour. */
static bool locate(struct bins *b, int which, struct place first, double wanted, struct place *at)
{
    const double *before = b->before[which];
    double margin = b->error * before[LAST_BIN], sum, w = 0;
    int32_t low = first.bin, high = LAST_BIN; /* the last bin with before[] < wanted */
    if (!(wanted + margin < before[LAST_BIN])) {
        return false;
    }
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (before[middle] < wanted) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const struct opened *o = open_bin(b, low);
    sum = before[low];
    for (int32_t i = 0; i < o->n; i++) {
        w = i > 0 && o->c[i].logit == o->c[i - 1].logit ? w : weight(b, which, o->c[i].logit);
        bool is_first = low == first.bin && i <= first.i;
        if (sum + w > wanted - margin && !(low == first.bin && i < first.i)) {
            *at = (struct place){low, i};
            return sum + w > wanted + margin && (is_first || sum < wanted - margin);
        }
        sum += w;
    }
    return false;
}

/* --- the stages ------------------------------------------------------------------------------------------------- */

/* typical-p grows from the candidates nearest to b->mean to both sides: `left` are better ones, taken from their end,
 * `right` are worse. */
struct growth {
    const struct candidate *left, *right;
    int32_t n_left, n_right; /* available */
    int32_t left_taken, right_taken;
    double sum; /* of everything taken, including what is between the two sides */
};

static double distance(const struct bins *b, float logit) { return fabs((double)logit - b->max - b->mean); }

static double next_left(const struct bins *b, const struct growth *g)
{
    return g->left_taken < g->n_left ? distance(b, g->left[g->n_left - 1 - g->left_taken].logit) : INFINITY;
}
static double next_right(const struct bins *b, const struct growth *g)
{
    return g->right_taken < g->n_right ? distance(b, g->right[g->right_taken].logit) : INFINITY;
}

/* Takes candidates until `wanted` is reached. Returns false if rounding decides which comes last. */
static bool grow(const struct bins *b, double wanted, struct growth *g)
{
    double margin = b->error * b->before[PLAIN][LAST_BIN], sum = g->sum;
    while (g->sum <= wanted) {
        double left = next_left(b, g), right = next_right(b, g);
        if (left == INFINITY && right == INFINITY) {
            return false;
        }
        sum = g->sum;
        float logit = left <= right ? g->left[g->n_left - ++g->left_taken].logit : g->right[g->right_taken++].logit;
        g->sum += weight(b, PLAIN, logit);
    }
    double blur = 3e-8 * (1 - b->mean); /* error of the difference of two distances to the mean */
    double left = g->left_taken > 0 ? distance(b, g->left[g->n_left - g->left_taken].logit) : 0;
    double right = g->right_taken > 0 ? distance(b, g->right[g->right_taken - 1].logit) : 0;
    return sum < wanted - margin && g->sum > wanted + margin && left + blur < next_right(b, g) &&
           right + blur < next_left(b, g);
}

/* Splits candidates near the mean at the nearest one, the first of equals. */
static void split(const struct bins *b, const struct candidate *c, int32_t n, struct growth *g)
{
    int32_t nearest = 0;
    for (int32_t i = 1; i < n; i++) {
        nearest = distance(b, c[i].logit) < distance(b, c[nearest].logit) ? i : nearest;
    }
    *g = (struct growth){.left = c, .n_left = nearest, .right = c + nearest, .n_right = n - nearest};
}

/* Returns the position of c, which is in an opened bin. */
static struct place place_of(const struct bins *b, const struct candidate *c)
{
    const struct opened *o = find_opened(b, bin_of(b, c->logit));
    return (struct place){o->bin, (int32_t)(c - o->c)};
}

/* Bins up to `near` away from the mean's hold too little mass, those up to near + 1 enough. A candidate of a bin j away
 * is more than j - 1 and less than j + 1 widths from the mean. So the boundary is in bins near .. near + 2, and all
 * candidates at a smaller distance are kept. */
static bool keep_typical(struct bins *b, struct place *from, struct place *to)
{
    double wanted = (double)b->p->typical_p * b->before[PLAIN][LAST_BIN];
    double margin = b->error * b->before[PLAIN][LAST_BIN];
    int32_t mean = bin_of(b, (float)(b->mean + b->max)), near = -1, low, high, n;
    do {
        near++;
        low = MAX_OF(mean - near, 0);
        high = MIN_OF(mean + near + 1, (int32_t)LAST_BIN);
        if (low == 0 && high == LAST_BIN) {
            return false;
        }
    } while (b->before[PLAIN][high] - b->before[PLAIN][low] < wanted + margin);
    near--;
    struct growth g = {0};
    if (near < 1) {
        const struct candidate *c = open_bins(b, MAX_OF(mean - near - 2, 0), MIN_OF(mean + near + 2, LAST_BIN - 1), &n);
        split(b, c, n, &g);
    } else {
        low = MAX_OF(mean - near + 1, 0); /* of the bins kept whole */
        high = MIN_OF(mean + near - 1, LAST_BIN - 1);
        g.sum = b->before[PLAIN][high + 1] - b->before[PLAIN][low];
        if (low > 0) {
            g.left = open_bins(b, MAX_OF(mean - near - 2, 0), low - 1, &g.n_left);
        }
        if (high < LAST_BIN - 1) {
            g.right = open_bins(b, high + 1, MIN_OF(mean + near + 2, LAST_BIN - 1), &g.n_right);
        }
    }
    if (!grow(b, wanted, &g)) {
        return false;
    }
    if (near < 1) { /* at least one was taken */
        const struct candidate *first = g.left_taken > 0 ? g.left + g.n_left - g.left_taken : g.right;
        const struct candidate *last = g.right_taken > 0 ? g.right + g.right_taken - 1 : g.right - 1;
        *from = place_of(b, first);
        *to = place_of(b, last);
        to->i++;
        return true;
    }
    *from = g.left_taken > 0 ? place_of(b, g.left + g.n_left - g.left_taken) : (struct place){low, 0};
    *to = (struct place){high + 1, 0};
    if (g.right_taken > 0) {
        *to = place_of(b, g.right + g.right_taken - 1);
        to->i++;
    }
    return true;
}

static bool keep_top_p(struct bins *b, struct place from, struct place *to)
{
    double skipped = mass_before(b, PLAIN, from), kept = mass_before(b, PLAIN, *to) - skipped;
    bool is_found = locate(b, PLAIN, from, skipped + (double)b->p->top_p * kept, to);
    to->i++;
    return is_found;
}

static void keep_min_p(struct bins *b, struct place from, struct place *to)
{
    float best = (float)b->max;
    if (b->p->typical_p < 1) {
        while (b->before[PLAIN][from.bin + 1] <= b->before[PLAIN][from.bin]) { /* empty */
            from.bin++;
        }
        best = open_bin(b, from.bin)->c[from.i].logit;
    }
    double least = best + log((double)b->p->min_p);
    int32_t bin = bin_of(b, (float)fmax(least, -FLT_MAX));
    if (bin > to->bin || bin == LAST_BIN) {
        return;
    }
    const struct opened *o = open_bin(b, bin);
    struct place end = {bin, 0};
    while (end.i < o->n && o->c[end.i].logit >= least) {
        end.i++;
    }
    struct place first = {from.bin, from.i + 1};
    end = is_before(end, first) ? first : end;
    *to = is_before(end, *to) ? end : *to;
}

/* --- the draw --------------------------------------------------------------------------------------------------- */

/* Draws from the kept candidates by their weights, summed best first. Returns false if they are many. */
static bool draw_from_few(struct bins *b, struct place from, struct place to, double u, int32_t *id)
{
    int32_t last = to.i > 0 ? to.bin : to.bin - 1, beyond = to.i > 0 ? open_bin(b, to.bin)->n - to.i : 0, n;
    uint64_t count = 0;
    for (int32_t bin = from.bin; bin <= last; bin++) {
        count += b->sums[bin] / KERN_BIN_ONE; /* a weight is about 1 */
    }
    if (count > FEW) {
        return false;
    }
    b->n_opened = b->n_taken = 0;
    const struct candidate *c = open_range(b, from.bin, last, &n) + from.i;
    n -= from.i + beyond;
    double total = 0, sum = 0, *weights = b->s->weights;
    for (int32_t i = 0; i < n; i++) {
        weights[i] = exp(((double)c[i].logit - c[0].logit) * b->inverse[DRAW]);
        total += weights[i];
    }
    int32_t at = 0;
    while (at + 1 < n && (sum += weights[at]) <= u * total) {
        at++;
    }
    *id = c[at].id;
    return true;
}

static bool draw_from_many(struct bins *b, struct place from, struct place to, double u, int32_t *id)
{
    struct place at;
    double skipped = mass_before(b, DRAW, from), kept = mass_before(b, DRAW, to) - skipped;
    if (!locate(b, DRAW, from, skipped + u * kept, &at) || !is_before(at, to)) {
        return false;
    }
    *id = open_bin(b, at.bin)->c[at.i].id;
    return true;
}

bool sampler_bins_pick(const struct sampler_chain *c, double u, int32_t *id)
{
    const struct sampler_params *p = c->p;
    double inverse = 1.0 / p->temperature;
    if (c->view->n < SAMPLER_BINS_LEAST || fabsf(c->max) > MAX_LOGIT || p->temperature < MIN_TEMPERATURE) {
        return false;
    }
    struct bins b = {.p = p, .v = c->view, .s = c->s, .max = c->max, .top = k_of(c->max), .inverse = {1, inverse}};
    b.error = 4e-9 * (1 + inverse) + 3e-16 * b.v->n; /* kern.h, twice; the second term is for summing in double */
    bool is_cut_by_mass = p->top_p < 1 || p->typical_p < 1;
    read_row(&b, is_cut_by_mass ? PLAIN : DRAW);
    struct place from = {0, 0}, to = {LAST_BIN, 0};
    if (p->typical_p < 1 && !keep_typical(&b, &from, &to)) {
        return false;
    }
    if (p->top_p < 1 && !keep_top_p(&b, from, &to)) {
        return false;
    }
    if (p->min_p > 0) {
        keep_min_p(&b, from, &to);
    }
    if (to.bin == LAST_BIN) {
        return false;
    }
    if (is_cut_by_mass && inverse == 1) {
        memcpy(b.before[DRAW], b.before[PLAIN], sizeof b.before[DRAW]);
    } else if (is_cut_by_mass) {
        if (draw_from_few(&b, from, to, u, id)) {
            return true;
        }
        read_row(&b, DRAW);
    }
    return draw_from_many(&b, from, to, u, id);
}

float sampler_bins_floor(const struct sampler_view *v, float max, int32_t k)
{
    uint64_t counts[KERN_BINS], sum = 0;
    if (v->n < SAMPLER_BINS_LEAST || fabsf(max) > MAX_LOGIT) {
        return -FLT_MAX;
    }
    struct kern_bins one = {.top = k_of(max), .n_sums = 1};
    add_row(v, &one, &counts);
    for (int32_t i = 0; i < LAST_BIN; i++) {
        sum += counts[i] / KERN_BIN_ONE;
        if (sum >= (uint64_t)k) {
            return least_of(one.top - (float)i);
        }
    }
    return -FLT_MAX;
}
