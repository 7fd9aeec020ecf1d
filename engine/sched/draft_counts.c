#include "engine/sched/draft_counts.h"

#include "engine/base/compiler.h"

#include <math.h>

const char *draft_source_name(enum draft_source source)
{
    static const char *const names[DRAFT_SOURCES] = {
        [DRAFT_FORCED] = "forced", [DRAFT_LOOKUP] = "lookup", [DRAFT_HEAD] = "head", [DRAFT_MODEL] = "model"};
    return names[source];
}

const char *draft_position_name(int i)
{
    static const char *const names[DRAFT_POSITIONS] = {"1", "2", "3", "4", "5", "6", "7", "8+"};
    return names[i];
}

void draft_counts_add(struct draft_counts *c, const uint8_t *sources, int32_t n, int32_t n_true)
{
    for (int32_t i = 0; i < n; i++) {
        struct draft_count *at = &c->at[sources[i]][MIN_OF(i, (int32_t)DRAFT_POSITIONS - 1)];
        at->drafted++;
        at->accepted += i < n_true;
    }
}

void draft_counts_merge(struct draft_counts *c, const struct draft_counts *more)
{
    for (int s = 0; s < DRAFT_SOURCES; s++) {
        for (int i = 0; i < DRAFT_POSITIONS; i++) {
            c->at[s][i].drafted += more->at[s][i].drafted;
            c->at[s][i].accepted += more->at[s][i].accepted;
        }
    }
}

struct draft_count draft_counts_of(const struct draft_counts *c, enum draft_source source)
{
    struct draft_count sum = {0};
    for (int i = 0; i < DRAFT_POSITIONS; i++) {
        sum.drafted += c->at[source][i].drafted;
        sum.accepted += c->at[source][i].accepted;
    }
    return sum;
}

static struct draft_weight weight_of(const struct draft_recent *r, enum draft_source source)
{
    struct draft_weight sum = {0};
    for (int i = 0; i < DRAFT_POSITIONS; i++) {
        sum.drafted += r->at[source][i].drafted;
        sum.accepted += r->at[source][i].accepted;
    }
    return sum;
}

void draft_recent_add(struct draft_recent *r, const struct draft_counts *step)
{
    for (int s = 0; s < DRAFT_SOURCES; s++) {
        double factor = weight_of(r, (enum draft_source)s).drafted >= 2 * DRAFT_HALF ? 0.5 : 1;
        for (int i = 0; i < DRAFT_POSITIONS; i++) {
            struct draft_weight *at = &r->at[s][i];
            at->drafted = factor * at->drafted + (double)step->at[s][i].drafted;
            at->accepted = factor * at->accepted + (double)step->at[s][i].accepted;
        }
    }
}

double draft_recent_share(const struct draft_recent *r, enum draft_source source, int i)
{
    struct draft_weight w = i < DRAFT_POSITIONS ? r->at[source][i] : weight_of(r, source);
    return w.drafted > 0 ? w.accepted / w.drafted : (double)NAN;
}
