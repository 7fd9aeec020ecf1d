/* The index is that of an LZ77 compressor (RFC 1951, section 4): chains of positions by a hash of two tokens, newest
 * first; a bounded number of them is compared. */
#include "engine/sched/draft.h"

enum {
    MAX_HEADS = 1 << 20,
    FIRST_WEIGHT = 4,  /* weight of a rate's start value, in guesses */
    LAST_WEIGHT = 16,  /* guesses that the rate remembers later */
    STALE_STEPS = 256, /* contexts grow and other work changes, so older measurements mean nothing */
    BASE_ROWS = 8, /* estimate for the weights of one row, in units of a row: 16 rows take 2.7 times as long as one */
};
#define FORCED_RATE 0.9f
#define GUESS_RATE  0.6f /* start value of guess_rates */
#define HEAD_PART   0.1  /* estimate of the head's part of a step's time */
#define LEAST_GAIN  1.05 /* least promised gain over a plain step, because costs are measured with noise */

/* Shortest match of each level, and the measured rate of true guesses after such a match, similar in code and prose. */
static const struct {
    int32_t n_match;
    float rate;
} levels[DRAFT_LEVELS] = {{2, .25f}, {3, .35f}, {4, .45f}, {5, .55f}, {7, .65f}, {10, .75f}, {16, .85f}, {32, .9f}};

static int level_of(int32_t n_match)
{
    int level = DRAFT_LEVELS - 1;
    while (level > 0 && n_match < levels[level].n_match) {
        level--;
    }
    return level;
}

/* --- the index -------------------------------------------------------------------------------------------------- */

enum err draft_init(struct draft *d, int32_t n_max, struct arena *a)
{
    *d = (struct draft){.n_indexed = 1, .forced_rate = FORCED_RATE, .guesser = DRAFT_HEAD};
    for (int i = 0; i < DRAFT_LEVELS; i++) {
        d->rates[i] = levels[i].rate;
    }
    for (int i = 0; i < DRAFT_GUESSES; i++) {
        d->guess_rates[i] = GUESS_RATE;
    }
    if (n_max == 0) {
        return ERR_OK;
    }
    uint32_t n_heads = 16;
    while (n_heads < (uint32_t)n_max / 2 && n_heads < MAX_HEADS) {
        n_heads *= 2;
    }
    d->mask = n_heads - 1;
    d->heads = arena_zalloc_array(a, n_heads, sizeof *d->heads);
    d->prevs = arena_alloc(a, (size_t)n_max * sizeof *d->prevs);
    if (d->heads == NULL || d->prevs == NULL) {
        *d = (struct draft){0};
        return ERR_NOMEM;
    }
    return ERR_OK;
}

/* Returns the head of the chain of the pair that ends at tokens[at]. */
static int32_t *head_of(const struct draft *d, const int32_t *tokens, int32_t at)
{
    uint64_t pair = (uint64_t)(uint32_t)tokens[at - 1] << 32 | (uint32_t)tokens[at];
    return &d->heads[pair * 0x9E3779B97F4A7C15u >> 40 & d->mask];
}

void draft_index(struct draft *d, const int32_t *tokens, int32_t n)
{
    for (; d->heads != NULL && d->n_indexed < n; d->n_indexed++) {
        int32_t *head = head_of(d, tokens, d->n_indexed);
        d->prevs[d->n_indexed] = *head;
        *head = d->n_indexed;
    }
}

/* Returns how many tokens up to tokens[a] and tokens[b], a < b, are equal. */
static int32_t match_length(const int32_t *tokens, int32_t a, int32_t b)
{
    int32_t n = 0;
    while (n < DRAFT_MAX_MATCH && n <= a && tokens[a - n] == tokens[b - n]) {
        n++;
    }
    return n;
}

void draft_look(struct draft *d, const int32_t *tokens, int32_t n)
{
    if (d->heads == NULL || d->source != 0 || n < 3) {
        return;
    }
    draft_index(d, tokens, n - 1); /* the last pair is the one searched for */
    int32_t best = 1, at = *head_of(d, tokens, n - 1);
    for (int i = 0; at != 0 && i < DRAFT_CANDIDATES && best < DRAFT_MAX_MATCH; i++, at = d->prevs[at]) {
        int32_t length = match_length(tokens, at, n - 1);
        if (length > best) { /* of equal lengths the newest */
            best = length;
            d->source = at + 1;
        }
    }
    d->n_match = best;
}

static void note(float *rate, int32_t *n_seen, bool is_hit)
{
    *n_seen += *n_seen < LAST_WEIGHT - FIRST_WEIGHT;
    *rate += ((is_hit ? 1.0f : 0.0f) - *rate) / (float)(FIRST_WEIGHT + *n_seen);
}

void draft_learn(struct draft *d, const int32_t *tokens, int32_t n)
{
    bool was_forced = d->i_forced < d->n_forced;
    if (was_forced) {
        bool is_hit = d->forced[d->i_forced++] == tokens[n - 1];
        note(&d->forced_rate, &d->n_forced_seen, is_hit);
        d->n_forced = is_hit ? d->n_forced : d->i_forced;
        d->n_guesses = is_hit || d->n_before == 0 ? d->n_guesses : d->i_guess;
    }
    if (d->n_before > 0) {
        d->n_before--;
    } else if (d->i_guess < d->n_guesses) {
        int32_t i = d->i_guess++;
        bool is_hit = d->guesses[i] == tokens[n - 1];
        note(&d->guess_rates[i], &d->n_guess_seen[i], is_hit);
        d->n_guesses = is_hit ? d->n_guesses : d->i_guess;
    }
    if (d->source == 0) {
        return;
    }
    bool is_hit = tokens[d->source] == tokens[n - 1];
    if (!was_forced) { /* else the index is not asked */
        int level = level_of(d->n_match);
        note(&d->rates[level], &d->n_seen[level], is_hit);
    }
    d->source = is_hit ? d->source + 1 : 0;
    d->n_match += d->n_match < DRAFT_MAX_MATCH;
}

void draft_relearn(struct draft *d, float part)
{
    for (int i = 0; i < DRAFT_GUESSES; i++) {
        d->guess_rates[i] += (GUESS_RATE - d->guess_rates[i]) * part;
    }
}

/* Returns how many guesses of the head follow the forced ones, or are the first if none is forced. */
static int32_t n_of_head(const struct draft *d) { return draft_prefers_head(d, false) ? draft_n_guesses(d) : 0; }

int32_t draft_n_first(const struct draft *d) { return draft_n_forced(d) + n_of_head(d); }

double draft_rate(const struct draft *d, int32_t i)
{
    switch (draft_source_of(d, i)) {
    case DRAFT_FORCED:
        return (double)d->forced_rate;
    case DRAFT_LOOKUP:
        return d->source == 0 ? 0 : (double)d->rates[level_of(d->n_match + i)];
    default:
        return (double)d->guess_rates[d->i_guess + i - draft_n_forced(d)];
    }
}

bool draft_prefers_head(const struct draft *d, bool is_ahead)
{
    int32_t n_forced = draft_n_forced(d), i = is_ahead ? 0 : d->i_guess;
    bool is_there = is_ahead || (draft_n_guesses(d) > 0 && d->n_before == n_forced);
    return is_there && (d->source == 0 || d->rates[level_of(d->n_match + n_forced)] < d->guess_rates[i]);
}

/* Returns the i-th guess that comes first. */
static int32_t first_token(const struct draft *d, int32_t i)
{
    int32_t n_forced = draft_n_forced(d);
    return i < n_forced ? d->forced[d->i_forced + i] : d->guesses[d->i_guess + i - n_forced];
}

bool draft_agrees(const struct draft *d, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0, n_first = draft_n_first(d); d->source != 0 && i < n_first; i++) {
        int32_t at = d->source + i;
        if ((at < n ? tokens[at] : first_token(d, at - n)) != first_token(d, i)) {
            return false;
        }
    }
    return d->source != 0;
}

int32_t draft_token(const struct draft *d, const int32_t *tokens, int32_t i)
{
    return i < draft_n_first(d) ? first_token(d, i) : tokens[d->source + i];
}

enum draft_source draft_source_of(const struct draft *d, int32_t i)
{
    return i < draft_n_forced(d) ? DRAFT_FORCED : i < draft_n_first(d) ? d->guesser : DRAFT_LOOKUP;
}

/* --- costs and plan --------------------------------------------------------------------------------------------- */

void draft_costs_note(struct draft_costs *c, int32_t n_rows, uint64_t ns)
{
    c->n_steps++;
    if (n_rows > DRAFT_MAX + 1) {
        return;
    }
    double *at = &c->ns[n_rows], now = (double)ns;
    if (*at == 0) {
        *at = now;
    } else if (now < *at) {
        *at += (now - *at) / 4;
    } else { /* the machine can have been busy with something else */
        *at += (MIN_OF(now, 2 * *at) - *at) / 8;
    }
    c->seen_at[n_rows] = c->n_steps;
}

void draft_costs_fade(struct draft_costs *c, float part)
{
    for (int32_t n = 1; n <= DRAFT_MAX + 1; n++) {
        c->ns[n] *= 1 - (double)part;
    }
}

/* Returns how many times the weights of one row a step of n rows reads, if rows pick experts independently: of E experts,
 * of which each row picks k, E * (1 - (1 - k/E)^n) differ. */
static double weights_read(const struct draft_experts *e, int32_t n)
{
    double left = 1, picked = e->part > 0 ? (double)e->n_used / e->n_all : 1;
    for (int32_t i = 0; i < n && e->part > 0; i++) {
        left *= 1 - picked;
    }
    return e->part > 0 ? 1 - e->part + e->part * (1 - left) / picked : 1;
}

/* Returns the estimated time of a step of n rows, in units. */
static double units_of(const struct draft_costs *c, int32_t n) { return n + BASE_ROWS * weights_read(&c->experts, n); }

void draft_costs_get(const struct draft_costs *c, double *ns)
{
    int32_t last = 0; /* last smaller row count seen */
    for (int32_t n = 1; n <= DRAFT_MAX + 1; n++) {
        bool is_known = c->ns[n] > 0 && c->n_steps - c->seen_at[n] <= STALE_STEPS;
        if (!is_known) {
            ns[n] = last == 0 ? 0 : ns[last] * units_of(c, n) / units_of(c, last);
            continue;
        }
        ns[n] = c->ns[n];
        for (int32_t i = last + 1; i < n; i++) {
            ns[i] = last == 0 ? ns[n] * units_of(c, i) / units_of(c, n)
                              : ns[last] + (ns[n] - ns[last]) * (i - last) / (n - last);
        }
        last = n;
    }
    for (int32_t n = DRAFT_MAX; n >= 1; n--) {
        /* fewer rows never take longer, so one slow sample must not claim that */
        ns[n] = MIN_OF(ns[n], ns[n + 1]);
    }
}

/* Returns the offer whose next token is likeliest to be accepted, or -1. chances[i]: that all tokens taken from offer i
 * are. */
static int32_t best_offer(const struct draft_offer *offers, int32_t n_offers, const double *chances)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t i = 0; i < n_offers; i++) {
        double chance = offers[i].n < offers[i].n_max ? chances[i] * draft_rate(offers[i].draft, offers[i].n) : 0;
        if (chance > most) {
            most = chance;
            best = i;
        }
    }
    return best;
}

void draft_plan(const struct draft_costs *c, struct draft_offer *offers, int32_t n_offers, int32_t max_rows,
                uint64_t max_ns)
{
    double ns[DRAFT_MAX + 2], chances[DRAFT_MAX + 1];
    int32_t picks[DRAFT_MAX + 2], most = MIN_OF(max_rows, DRAFT_MAX + 1), n_best = n_offers;
    for (int32_t i = 0; i < n_offers; i++) {
        offers[i].n = 0;
    }
    if (n_offers >= most) {
        return;
    }
    draft_costs_get(c, ns);
    if (ns[n_offers] <= 0) {
        return;
    }
    for (int32_t i = 0; i < n_offers; i++) {
        chances[i] = 1;
    }
    /* Each further row goes to the likeliest token; then the most profitable number of rows is chosen. */
    double expected = n_offers, best = LEAST_GAIN * expected / ns[n_offers];
    for (int32_t n = n_offers + 1; n <= most && (max_ns == 0 || ns[n] <= (double)max_ns); n++) {
        int32_t i = best_offer(offers, n_offers, chances);
        if (i < 0) {
            break;
        }
        chances[i] *= draft_rate(offers[i].draft, offers[i].n++);
        expected += chances[i];
        picks[n] = i;
        if (expected / ns[n] > best) {
            best = expected / ns[n];
            n_best = n;
        }
    }
    for (int32_t i = 0; i < n_offers; i++) {
        offers[i].n = 0;
    }
    for (int32_t n = n_offers + 1; n <= n_best; n++) {
        offers[picks[n]].n++;
    }
}

int32_t draft_plan_guesses(const struct draft_costs *c, const struct draft_costs *head, int32_t n, const float *rates)
{
    double ns[DRAFT_MAX + 2], head_ns[DRAFT_MAX + 2], chance = 1, expected = 1;
    int32_t n_best = 0;
    if (n == 0 || n > DRAFT_MAX) {
        return 0;
    }
    draft_costs_get(c, ns);
    draft_costs_get(head, head_ns);
    double run = head_ns[n] > 0 ? head_ns[n] : HEAD_PART * ns[n], best = LEAST_GAIN / ns[n];
    for (int32_t i = 1; ns[n] > 0 && i <= DRAFT_GUESSES && n * (1 + i) <= DRAFT_MAX + 1; i++) {
        chance *= (double)rates[i - 1];
        expected += chance;
        double now = expected / (ns[n * (1 + i)] + i * run);
        if (now > best) {
            best = now;
            n_best = i;
        }
    }
    return n_best;
}
