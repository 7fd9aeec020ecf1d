/* Selects experts [Shazeer 2017; DeepSeek-V2, 2.1.2; DeepSeek-V3, 2.1.2] in double, with a few thousand operations per
 * row. */
#include "engine/backend/moe_route.h"

#include <math.h>

/* Computes score[E], by which experts are selected and weighted. */
static void score_experts(const struct plan_moe *m, const float *logits, double *score)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t e = 0; e < m->n_experts; e++) {
        max = logits[e] > max ? logits[e] : max;
    }
    for (uint32_t e = 0; e < m->n_experts; e++) {
        score[e] = m->gating == PLAN_SIGMOID   ? 1.0 / (1.0 + exp(-(double)logits[e]))
                   : m->gating == PLAN_SOFTMAX ? exp(logits[e] - max)
                                               : logits[e];
        sum += score[e];
    }
    for (uint32_t e = 0; e < m->n_experts && m->gating == PLAN_SOFTMAX; e++) {
        score[e] /= sum;
    }
}

/* Returns the index of the largest of x[n], the lowest among equals. Skips taken ones; NaNs come last. */
static uint32_t best_of(const double *x, const bool *is_taken, uint32_t n)
{
    uint32_t best = 0;
    while (is_taken[best]) { /* at least one is left */
        best++;
    }
    for (uint32_t i = best + 1; i < n; i++) {
        best = !is_taken[i] && (x[i] > x[best] || isnan(x[best])) ? i : best;
    }
    return best;
}

/* Returns the sum of a group's best score, or best two. */
static double score_group(const struct plan_moe *m, const double *score, uint32_t n)
{
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (score[i] > first) {
            second = first;
            first = score[i];
        } else if (score[i] > second) {
            second = score[i];
        }
    }
    return m->by_two && n > 1 ? first + second : first;
}

/* Marks the experts outside the best groups as taken. */
static void leave_groups(const struct plan_moe *m, const double *score, bool *is_taken)
{
    double groups[PLAN_MAX_EXPERTS];
    bool is_kept[PLAN_MAX_EXPERTS] = {false};
    uint32_t n = m->n_experts / m->n_groups;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        groups[g] = score_group(m, score + (size_t)g * n, n);
    }
    for (uint32_t i = 0; i < m->n_groups_used; i++) {
        is_kept[best_of(groups, is_kept, m->n_groups)] = true;
    }
    for (uint32_t e = 0; e < m->n_experts; e++) {
        is_taken[e] = !is_kept[e / n];
    }
}

void moe_route(const struct plan_moe *m, const float *logits, const float *bias, const float *factors, float *route)
{
    double score[PLAN_MAX_EXPERTS], picking[PLAN_MAX_EXPERTS], weights[PLAN_MAX_EXPERTS_USED], sum = 0;
    bool is_taken[PLAN_MAX_EXPERTS] = {false};
    score_experts(m, logits, score);
    for (uint32_t e = 0; e < m->n_experts; e++) {
        picking[e] = score[e] + (bias != NULL ? (double)bias[e] : 0);
    }
    if (m->n_groups_used < m->n_groups) {
        leave_groups(m, picking, is_taken);
    }
    double first = 0;
    for (uint32_t i = 0; i < m->n_used; i++) {
        uint32_t e = best_of(picking, is_taken, m->n_experts);
        is_taken[e] = true;
        first = i == 0 ? score[e] : first;
        weights[i] = m->gating == PLAN_SOFTMAX_PICKED ? exp(score[e] - first) : score[e];
        sum += weights[i];
        route[m->n_used + i] = (float)e;
    }
    bool is_divided = m->norms_weights || m->gating == PLAN_SOFTMAX_PICKED;
    for (uint32_t i = 0; i < m->n_used; i++) {
        double factor = factors != NULL ? (double)factors[(uint32_t)route[m->n_used + i]] : 1.0;
        route[i] = (float)(weights[i] / (is_divided ? sum + 1e-20 : 1.0) * (double)m->weights_scale * factor);
    }
}
