/* Which experts a row goes to: against numbers that can be worked out by hand, and logits that no router should give.
 */
#include "engine/backend/moe_route.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *moe_route_suite(void);

enum { MOST = 8, USED = 3 };

/* A row of logits and what comes of it; weights and ids in the order they are picked. */
struct route_case {
    struct plan_moe moe;
    float logits[MOST], bias[MOST]; /* a bias of NaN in front: none */
    uint32_t ids[USED];
    double weights[USED];
};

static const float LN2 = 0.693147181f, LN3 = 1.098612289f, LN4 = 1.386294361f;
#define NO_BIAS                                                                                                        \
    {                                                                                                                  \
        NAN                                                                                                            \
    }
#define ALL .n_groups = 1, .n_groups_used = 1, .weights_scale = 1

static void check_route(const struct route_case *c, int number)
{
    float route[2 * USED];
    moe_route(&c->moe, c->logits, isnan(c->bias[0]) ? NULL : c->bias, NULL, route);
    for (uint32_t i = 0; i < c->moe.n_used; i++) {
        ck_assert_msg(route[c->moe.n_used + i] == (float)c->ids[i], "case %d: pick %u: expected %u, found %g", number,
                      i, c->ids[i], (double)route[c->moe.n_used + i]);
        ck_assert_msg(fabs((double)route[i] - c->weights[i]) < 1e-6, "case %d: weight %u: expected %g, found %g",
                      number, i, c->weights[i], (double)route[i]);
    }
}

START_TEST(experts_are_picked_and_weighted_as_the_gating_says)
{
    const struct route_case cases[] = {
        /* softmax: 1, 2, 4, 1 eighths */
        {{.n_experts = 4, .n_used = 2, .gating = PLAN_SOFTMAX, ALL}, {0, LN2, LN4, 0}, NO_BIAS, {2, 1}, {0.5, 0.25}},
        {{.n_experts = 4, .n_used = 2, .gating = PLAN_SOFTMAX, .norms_weights = true, ALL},
         {0, LN2, LN4, 0},
         NO_BIAS,
         {2, 1},
         {2 / 3.0, 1 / 3.0}},
        {{.n_experts = 4,
          .n_used = 2,
          .gating = PLAN_SOFTMAX,
          .n_groups = 1,
          .n_groups_used = 1,
          .weights_scale = 2.5f},
         {0, LN2, LN4, 0},
         NO_BIAS,
         {2, 1},
         {1.25, 0.625}},
        /* among the picked alone: 4 and 2 of 6 */
        {{.n_experts = 4, .n_used = 2, .gating = PLAN_SOFTMAX_PICKED, ALL},
         {0, LN2, LN4, 0},
         NO_BIAS,
         {2, 1},
         {2 / 3.0, 1 / 3.0}},
        /* each by itself: 3/4, 1/2; a bias moves the pick and not the weight */
        {{.n_experts = 4, .n_used = 2, .gating = PLAN_SIGMOID, ALL}, {-9, 0, LN3, -9}, NO_BIAS, {2, 1}, {0.75, 0.5}},
        {{.n_experts = 4, .n_used = 2, .gating = PLAN_SIGMOID, ALL},
         {-9, 0, LN3, -LN3},
         {0, 0, 0, 1},
         {3, 2},
         {0.25, 0.75}},
        /* equal ones: the lower id first */
        {{.n_experts = 4, .n_used = 3, .gating = PLAN_SOFTMAX, ALL},
         {1, 1, 1, 1},
         NO_BIAS,
         {0, 1, 2},
         {0.25, 0.25, 0.25}},
        /* 5 is best, but its group's two best together are less than either of the other groups' */
        {{.n_experts = 6,
          .n_used = 2,
          .gating = PLAN_SIGMOID,
          .n_groups = 3,
          .n_groups_used = 2,
          .by_two = true,
          .weights_scale = 1},
         {LN2, LN2, LN2, LN2, -30, LN3},
         NO_BIAS,
         {0, 1},
         {2 / 3.0, 2 / 3.0}},
        {{.n_experts = 6, .n_used = 2, .gating = PLAN_SIGMOID, .n_groups = 3, .n_groups_used = 2, .weights_scale = 1},
         {LN2, LN2, LN2, LN2, -30, LN3},
         NO_BIAS,
         {5, 0},
         {0.75, 2 / 3.0}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_route(&cases[i], (int)i);
    }
}
END_TEST

/* Whatever the logits are: ids are experts, and no two are the same. */
START_TEST(every_row_gets_experts_that_exist)
{
    static const float values[] = {0, 1, -INFINITY, INFINITY, NAN, 3e38f, -3e38f};
    for (int gating = PLAN_SOFTMAX; gating <= PLAN_SOFTMAX_PICKED; gating++) {
        for (int n = 0; n < 7 * 7 * 7 * 7; n++) {
            const struct plan_moe moe = {.n_experts = 4,
                                         .n_used = 2,
                                         .n_groups = 2,
                                         .n_groups_used = 1 + (uint32_t)n % 2,
                                         .by_two = n % 3 == 0,
                                         .gating = (enum plan_gating)gating,
                                         .weights_scale = 1};
            const float logits[4] = {values[n % 7], values[n / 7 % 7], values[n / 49 % 7], values[n / 343]};
            float route[4] = {0};
            moe_route(&moe, logits, NULL, NULL, route);
            for (int i = 2; i < 4; i++) {
                ck_assert(route[i] >= 0 && route[i] < 4 && route[i] == floorf(route[i]));
            }
            ck_assert(route[2] != route[3]);
        }
    }
    const struct plan_moe moe = {.n_experts = 4, .n_used = 2, .gating = PLAN_SIGMOID, ALL};
    const float logits[4] = {NAN, 0, NAN, -2};
    float route[4];
    moe_route(&moe, logits, NULL, NULL, route);
    ck_assert(route[2] == 1 && route[3] == 3); /* NaNs last */
}
END_TEST

Suite *moe_route_suite(void)
{
    Suite *s = suite_create("moe_route");
    TCase *c = tcase_create("moe_route");
    tcase_add_test(c, experts_are_picked_and_weighted_as_the_gating_says);
    tcase_add_test(c, every_row_gets_experts_that_exist);
    suite_add_tcase(s, c);
    return s;
}
