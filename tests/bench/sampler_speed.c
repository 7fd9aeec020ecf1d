/* The time of one token's sampling, for each sampler and kind of row; tests/bench/sampler.sh builds and runs it.
 *
 *   sampler_speed [ENTRIES]
 *
 * A cell is the mean over 16 draws of the least time of several runs each, in milliseconds of one thread. */
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/sample/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DRAWS = 16, RUNS = 12, HISTORY = 512 };

/* --- rows ------------------------------------------------------------------------------------------------------- */

static uint64_t n_random;
static double between(double from, double to) { return from + (to - from) * rng_uniform(1618, 0, n_random++); }
static double bell(void) { return between(-1, 1) + between(-1, 1) + between(-1, 1); } /* deviation 1 */

static float peaked(int32_t i) { return (float)(i == 4711 ? 18 : 2 * bell()); }
/* Falls with the logarithm of the rank, as words do [Zipf 1949], the ranks in no order. */
static float natural(int32_t i)
{
    return (float)(12 - 1.6 * log(1 + (double)((uint32_t)i * 2654435761u % 262147u)) + 0.3 * bell());
}
static float flat(int32_t i) { return (float)(2 * bell() + 0 * i); }
static float flatter(int32_t i) { return (float)(0.2 * bell() + 0 * i); }
static float equal(int32_t i) { return -3.25f + 0.0f * (float)i; }

static const struct {
    const char *name;
    float (*logit)(int32_t i);
} kinds[] = {{"peaked", peaked}, {"natural", natural}, {"flat", flat}, {"flatter", flatter}, {"equal", equal}};

static struct sampler_row make_row(int kind, float *logits, int32_t n)
{
    struct sampler_row row = {.logits = logits, .n_vocab = n, .max = -INFINITY};
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        logits[i] = kinds[kind].logit(i);
        if (logits[i] > row.max) {
            row.max = logits[i];
            row.argmax = i;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - row.max);
    }
    row.logsumexp = (float)(log(sum) + row.max);
    return row;
}

/* --- chains ----------------------------------------------------------------------------------------------------- */

#define NEUTRAL .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .repeat_last_n = 64, .n_top = -1
static const struct sampler_bias bias[] = {{3, 2.5f}, {77777, -1}, {131072, -100}};
static const struct {
    const char *name;
    struct sampler_params p;
} chains[] = {
    {"greedy", {.temperature = 0, NEUTRAL}},
    {"temperature 1", {.temperature = 1, NEUTRAL}},
    {"temperature 0.8", {.temperature = 0.8f, NEUTRAL}},
    {"top-k 40", {.temperature = 1, NEUTRAL, .top_k = 40}},
    {"top-k 1000", {.temperature = 1, NEUTRAL, .top_k = 1000}},
    {"top-k 5000", {.temperature = 1, NEUTRAL, .top_k = 5000}},
    {"top-p 0.5", {.temperature = 1, NEUTRAL, .top_p = 0.5f}},
    {"top-p 0.95", {.temperature = 1, NEUTRAL, .top_p = 0.95f}},
    {"top-p 0.95, temperature 0.8", {.temperature = 0.8f, NEUTRAL, .top_p = 0.95f}},
    {"min-p 0.05", {.temperature = 1, NEUTRAL, .min_p = 0.05f}},
    {"min-p 0.05, temperature 1.5", {.temperature = 1.5f, NEUTRAL, .min_p = 0.05f}},
    {"typical-p 0.2", {.temperature = 1, NEUTRAL, .typical_p = 0.2f}},
    {"typical-p 0.95", {.temperature = 1, NEUTRAL, .typical_p = 0.95f}},
    {"typical-p 0.95, temperature 0.8", {.temperature = 0.8f, NEUTRAL, .typical_p = 0.95f}},
    {"top-k 40, top-p 0.95, min-p 0.05", {.temperature = 1, NEUTRAL, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}},
    {"top-p 0.95, min-p 0.05", {.temperature = 1, NEUTRAL, .top_p = 0.95f, .min_p = 0.05f}},
    {"logit bias, greedy", {.temperature = 0, NEUTRAL, .bias = bias, .n_bias = 3}},
    {"logit bias, temperature 1", {.temperature = 1, NEUTRAL, .bias = bias, .n_bias = 3}},
    {"three penalties, greedy",
     {.temperature = 0,
      .top_p = 1,
      .typical_p = 1,
      .repeat_penalty = 1.1f,
      .repeat_last_n = -1,
      .n_top = -1,
      .presence_penalty = 0.5f,
      .frequency_penalty = 0.1f}},
    {"three penalties, top-k 40, top-p 0.95",
     {.temperature = 1,
      .top_k = 40,
      .top_p = 0.95f,
      .typical_p = 1,
      .repeat_penalty = 1.1f,
      .repeat_last_n = -1,
      .n_top = -1,
      .presence_penalty = 0.5f,
      .frequency_penalty = 0.1f}},
    {"three penalties, top-p 0.95",
     {.temperature = 1,
      .top_p = 0.95f,
      .typical_p = 1,
      .repeat_penalty = 1.1f,
      .repeat_last_n = -1,
      .n_top = -1,
      .presence_penalty = 0.5f,
      .frequency_penalty = 0.1f}},
    {"greedy, 20 top log-probabilities",
     {.temperature = 0, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .repeat_last_n = 64, .n_top = 20}},
};

static double milliseconds(const struct sampler_params *neutral, const struct sampler_row *row, const int32_t *tokens,
                           struct sampler_scratch *s)
{
    double sum = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        struct sampler_params p = *neutral;
        struct sampler_history h = {.tokens = tokens, .n_prompt = HISTORY / 2, .n_tokens = HISTORY};
        struct sampler_result r;
        double best = 1e9;
        p.seed = (uint64_t)draw;
        for (int run = 0; run < RUNS; run++) {
            uint64_t from = clock_now_ns();
            enum err err = sampler_pick(&p, row, &h, s, &r);
            double ms = (double)(clock_now_ns() - from) * 1e-6;
            best = ms < best ? ms : best;
            if (err != ERR_OK) {
                fprintf(stderr, "error: %s\n", err_code(err));
                exit(1);
            }
        }
        sum += best;
    }
    return sum / DRAWS;
}

int main(int argc, char **argv)
{
    int32_t n = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 262144, tokens[HISTORY];
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct sampler_scratch s;
    float *logits = malloc((size_t)(n > 0 ? n : 1) * KINDS * sizeof *logits);
    if (n < 262144 / 2 + 1 || logits == NULL || sampler_scratch_init(&s, n) != ERR_OK) {
        fputs("usage: sampler_speed [ENTRIES], 131073 or more\n", stderr);
        return 64;
    }
    struct sampler_row rows[KINDS];
    printf("| %d entries, ms |", n);
    for (int k = 0; k < KINDS; k++) {
        rows[k] = make_row(k, logits + (size_t)k * (size_t)n, n);
        printf(" %s |", kinds[k].name);
    }
    printf("\n|---|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < HISTORY; i++) {
        tokens[i] = (int32_t)between(0, n);
    }
    for (size_t c = 0; c < sizeof chains / sizeof *chains; c++) {
        printf("| %s |", chains[c].name);
        for (int k = 0; k < KINDS; k++) {
            printf(" %.3f |", milliseconds(&chains[c].p, &rows[k], tokens, &s));
        }
        printf("\n");
        fflush(stdout);
    }
    sampler_scratch_fini(&s);
    free(logits);
    return 0;
}
