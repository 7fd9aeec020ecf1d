/* Heads of the reference back end's recurrent steps, in double (plan.h: PLAN_DELTA, PLAN_SSM). A state is stored in
 * float, as keys are. Threads: pure functions. */
#ifndef INFCGI_BACKEND_REF_RECURRENT_H
#define INFCGI_BACKEND_REF_RECURRENT_H

#include "engine/plan/plan.h"

/* log(1 + exp(x)). */
double ref_recurrent_softplus(double x);

/* One row of a head: state [dk][dv] as it was to as it is, and out[dv]. q[dk], k[dk] of any length, v[dv]. */
void ref_recurrent_delta(const struct plan_delta *d, const float *q, const float *k, const float *v, double decay,
                         double beta, float *state, float *out);

/* What a head of a state space reads of a row. */
struct ref_recurrent_ssm {
    const float *x;        /* [p] */
    const float *in, *out; /* [n] each: B, C */
    double dt, rate, skip; /* the step, of its head A (negative) and D */
};

/* One row of a head: state [n][p] as it was to as it is, and out[p]. */
void ref_recurrent_ssm(const struct plan_ssm *m, const struct ref_recurrent_ssm *head, float *state, float *out);

#endif
