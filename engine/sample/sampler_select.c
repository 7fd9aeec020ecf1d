/* Finds the best of a quarter of a million logits without sorting them. One pass takes the largest of each block. The
 * k-th largest of those is a lower bound of the k best, and only blocks that reach it are read again: for the 40 best
 * of 262,144 about 40 blocks of 256. */
#include "engine/sample/sampler_internal.h"

#include "engine/base/compiler.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    BLOCK_STEP = 16,   /* logits that kernels read at a time */
    LEAST_BLOCK = 256, /* reading fewer logits costs less than ranking one more block [measured at 49,152] */
    RADIX_BITS = 11,   /* of a digit; three digits hold 32 bits and more */
    RADIX_BITS_OF_FEW = 8,
    RADIX_COUNTS = 3 << RADIX_BITS,
    HEAP_SORTED = 32,                                            /* more candidates than this are sorted by radix */
    FEW_SORTED = 768,                                            /* from here on by larger digits */
    MAX_BLOCK = SAMPLER_MAX_VOCAB / SAMPLER_BLOCKS + BLOCK_STEP, /* logits collected at a time */
};

void sampler_view_init(struct sampler_view *v, const struct sampler_row *row, struct sampler_scratch *s)
{
    int32_t per_block = MAX_OF((row->n_vocab + SAMPLER_BLOCKS - 1) / SAMPLER_BLOCKS, (int32_t)LEAST_BLOCK);
    v->kern = s->kern;
    v->logits = row->logits;
    v->changed = s->logits;
    v->n = row->n_vocab;
    v->block = (per_block + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
    v->n_blocks = (v->n + v->block - 1) / v->block;
    v->has_max = false;
    memset(v->touched, 0, (size_t)v->n_blocks);
}

void sampler_view_find_max(struct sampler_view *v)
{
    if (!v->has_max) {
        v->kern->block_max(v->logits, v->n, v->block, v->max);
        v->has_max = true;
    }
}

const float *sampler_view_block(const struct sampler_view *v, int32_t b, int32_t *len)
{
    int32_t from = b * v->block;
    *len = MIN_OF(v->block, v->n - from);
    return (v->touched[b] != 0 ? v->changed : v->logits) + from;
}

float *sampler_view_change(struct sampler_view *v, int32_t id)
{
    int32_t b = id / v->block, len;
    if (v->touched[b] == 0) {
        const float *block = sampler_view_block(v, b, &len);
        memcpy(v->changed + (size_t)b * (size_t)v->block, block, (size_t)len * sizeof *block);
        v->touched[b] = 1;
    }
    return v->changed + id;
}

/* Copies sixteen logits, those without a bit as -inf. Works on four at a time, by bits, which every compiler
 * vectorizes. */
static void keep_16(const float *in, unsigned bits, float *out)
{
    static const uint32_t all[16][4] = {
#define BIT(n, i) ((n) >> (i)&1 ? UINT32_MAX : 0)
#define ROW(n)    {BIT(n, 0), BIT(n, 1), BIT(n, 2), BIT(n, 3)}
#define ROWS(n)   ROW(n), ROW((n) + 1), ROW((n) + 2), ROW((n) + 3)
        ROWS(0), ROWS(4), ROWS(8), ROWS(12)};
#undef ROWS
#undef ROW
#undef BIT
    const uint32_t minus_infinity = 0xff800000u;
    for (int k = 0; k < 4; k++) {
        const uint32_t *mask = all[bits >> 4 * k & 15];
        uint32_t four[4];
        memcpy(four, in + 4 * k, sizeof four);
        for (int i = 0; i < 4; i++) {
            four[i] = (four[i] & mask[i]) | (minus_infinity & ~mask[i]);
        }
        memcpy(out + 4 * k, four, sizeof four);
    }
}

void sampler_view_keep(struct sampler_view *v, const uint64_t *allowed)
{
    for (int32_t b = 0; b < v->n_blocks; b++) {
        int32_t first = b * v->block, last = MIN_OF(first + v->block, v->n);
        uint64_t all = UINT64_MAX;
        for (int32_t id = first; id < last; id += BLOCK_STEP) { /* blocks also begin only at such ids */
            all &= allowed[id / 64] >> id % 64 | ~(uint64_t)0xffff;
        }
        if (all == UINT64_MAX) {
            continue;
        }
        v->touched[b] = 1;
        for (int32_t id = first; id < last; id += BLOCK_STEP) {
            unsigned bits = allowed[id / 64] >> id % 64 & 0xffff;
            if (id + BLOCK_STEP <= last) {
                keep_16(v->logits + id, bits, v->changed + id);
            }
            for (int32_t i = id; id + BLOCK_STEP > last && i < last; i++) {
                v->changed[i] = (bits >> (i - id) & 1) != 0 ? v->logits[i] : -INFINITY;
            }
        }
    }
}

void sampler_view_settle(struct sampler_view *v)
{
    for (int32_t b = 0; b < v->n_blocks; b++) {
        if (v->touched[b] != 0) {
            int32_t len;
            const float *block = sampler_view_block(v, b, &len);
            v->kern->block_max(block, len, v->block, &v->max[b]);
        }
    }
}

int32_t sampler_view_argmax(const struct sampler_view *v)
{
    int32_t best = 0, len;
    for (int32_t b = 1; b < v->n_blocks; b++) {
        best = v->max[b] > v->max[best] ? b : best;
    }
    const float *block = sampler_view_block(v, best, &len);
    return best * v->block + v->kern->argmax(block, len);
}

int32_t sampler_view_collect(const struct sampler_view *v, float floor, float most, struct candidate *c)
{
    int32_t ids[MAX_BLOCK], n = 0;
    for (int32_t b = 0; b < v->n_blocks; b++) {
        if (v->max[b] < floor) {
            continue;
        }
        int32_t len;
        const float *block = sampler_view_block(v, b, &len);
        int32_t found = v->kern->collect(block, len, floor, most, ids);
        for (int32_t i = 0; i < found; i++) {
            c[n++] = (struct candidate){.id = b * v->block + ids[i], .logit = block[ids[i]]};
        }
    }
    return n;
}

/* --- heap ------------------------------------------------------------------------------------------------------- */

/* Better first: higher logit, then lower id. */
static bool is_better(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Sinks heap[at] of a heap of n whose worst is on top. */
static void sink(struct candidate *heap, int32_t n, int32_t at)
{
    struct candidate c = heap[at];
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_better(heap[child], heap[child + 1])) {
            child++;
        }
        if (is_better(heap[child], c)) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = c;
}

/* Sorts c[n] best first. */
static void heap_sort(struct candidate *c, int32_t n)
{
    for (int32_t at = n / 2; at-- > 0;) {
        sink(c, n, at);
    }
    for (int32_t end = n; end > 1;) { /* the worst goes last */
        end--;
        struct candidate worst = c[0];
        c[0] = c[end];
        c[end] = worst;
        sink(c, end, 0);
    }
}

/* Leaves the k best of c[n], which is ascending by id, in c[0..k), in any order; k < n. */
static void keep_best(struct candidate *c, int32_t n, int32_t k)
{
    for (int32_t at = k / 2; at-- > 0;) {
        sink(c, k, at);
    }
    for (int32_t i = k; i < n; i++) {
        if (c[i].logit > c[0].logit) { /* an equal logit has a higher id, so it is never better */
            c[0] = c[i];
            sink(c, k, 0);
        }
    }
}

/* --- radix ------------------------------------------------------------------------------------------------------ */

/* Returns the logit as an integer, ascending from the best to the worst; both zeros are equal. */
static uint32_t rank_of(float logit)
{
    uint32_t bits;
    logit += 0.0f;
    memcpy(&bits, &logit, sizeof bits);
    return bits >> 31 != 0 ? bits : ~(bits | 0x80000000u);
}

/* Stable, so ids stay ascending among equal logits. Sorts only by bits in which ranks differ, in the fewest digits of
 * `bits` that hold them: candidates of one bin take two. */
static void radix_sort(struct candidate *c, int32_t n, int bits, struct candidate *spare)
{
    uint32_t counts[RADIX_COUNTS], least = UINT32_MAX, most = 0, mask = (1u << bits) - 1;
    for (int32_t i = 0; i < n; i++) {
        uint32_t rank = rank_of(c[i].logit);
        least = MIN_OF(least, rank);
        most = MAX_OF(most, rank);
    }
    int n_digits = 1;
    while (n_digits * bits < 32 && (most - least) >> (n_digits * bits) != 0) {
        n_digits++;
    }
    memset(counts, 0, ((size_t)n_digits << bits) * sizeof *counts);
    for (int32_t i = 0; i < n; i++) {
        uint32_t rank = rank_of(c[i].logit) - least;
        for (int d = 0; d < n_digits; d++) {
            counts[((uint32_t)d << bits) + (rank >> (d * bits) & mask)]++;
        }
    }
    struct candidate *in = c, *out = spare;
    for (int d = 0; d < n_digits; d++) {
        uint32_t *from = counts + ((size_t)d << bits), sum = 0;
        for (uint32_t k = 0; k <= mask; k++) {
            uint32_t count = from[k];
            from[k] = sum;
            sum += count;
        }
        for (int32_t i = 0; i < n; i++) {
            out[from[(rank_of(in[i].logit) - least) >> (d * bits) & mask]++] = in[i];
        }
        struct candidate *other = in;
        in = out;
        out = other;
    }
    if (in != c) {
        memcpy(c, in, (size_t)n * sizeof *c);
    }
}

/* True if, for example, all are equal. */
static bool is_sorted(const struct candidate *c, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        if (c[i].logit > c[i - 1].logit) {
            return false;
        }
    }
    return true;
}

void sampler_sort(struct candidate *c, int32_t n, struct candidate *spare)
{
    if (is_sorted(c, n)) {
        return;
    }
    if (n <= HEAP_SORTED) {
        heap_sort(c, n);
    } else {
        radix_sort(c, n, n <= FEW_SORTED ? RADIX_BITS_OF_FEW : RADIX_BITS, spare);
    }
}

/* --- the k best ------------------------------------------------------------------------------------------------- */

/* Returns the k-th largest of x[n], 1 <= k <= n; reorders x. Hoare's selection with the middle element as pivot; at
 * most 1,024 blocks bound the cost of an unlucky order. */
static float kth_largest(float *x, int32_t n, int32_t k)
{
    int32_t low = 0, high = n - 1, at = k - 1;
    while (low < high) {
        float pivot = x[low + (high - low) / 2];
        int32_t i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot) {
                i++;
            }
            while (x[j] < pivot) {
                j--;
            }
            if (i <= j) {
                float swapped = x[i];
                x[i++] = x[j];
                x[j--] = swapped;
            }
        }
        if (at <= j) {
            high = j;
        } else if (at >= i) {
            low = i;
        } else {
            break;
        }
    }
    return x[at];
}

float sampler_view_floor(const struct sampler_view *v, int32_t k)
{
    float max[SAMPLER_BLOCKS];
    memcpy(max, v->max, (size_t)v->n_blocks * sizeof *max);
    return MAX_OF(kth_largest(max, v->n_blocks, k), -FLT_MAX);
}

int32_t sampler_view_best(const struct sampler_view *v, int32_t k, struct candidate *c, struct candidate *spare)
{
    int32_t n = 0;
    if (k < v->n || k <= v->n_blocks) {
        n = sampler_view_collect(v, sampler_view_floor(v, MIN_OF(k, v->n_blocks)), INFINITY, c);
    }
    if (n < k && k > v->n_blocks) { /* one of each block was not enough */
        float floor = k < v->n ? sampler_bins_floor(v, sampler_view_floor(v, 1), k) : -FLT_MAX;
        n = sampler_view_collect(v, floor, INFINITY, c);
    }
    if (k > HEAP_SORTED) { /* a large heap costs more than sorting all */
        sampler_sort(c, n, spare);
        return MIN_OF(k, n);
    }
    if (k < n) {
        keep_best(c, n, k);
        n = k;
    }
    heap_sort(c, n);
    return n;
}
