/* Factors of xIELU: from the keys of GGUF files, one number per layer or one for all, and from the tensors of folders. */
#include "engine/model/model.h"
#include "tests/support/folder.h"
#include "tests/support/golden_folder.h"

#include <check.h>
#include <math.h>

Suite *apertus_suite(void);

static struct plan *open_folder(const char *members, struct gguf **g)
{
    struct plan *p;
    struct err_info info = {0};
    ck_assert_msg(model_open(golden_folder("apertus-xielu", NULL, members), g, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(*g, 0, &p, &info) == ERR_OK, "%s", info.text);
    return p;
}

/* Each layer has its own, made by a softplus, and beta is part of the negative one. */
START_TEST(factors_are_those_of_the_layer)
{
    struct gguf *g;
    struct plan *p = open_folder("{}", &g);
    const struct gguf_kv *alpha_p, *alpha_n;
    int32_t layer = 0;
    ck_assert_int_eq(gguf_get_array(g, "xielu.alpha_p", GGUF_F32, &alpha_p, NULL), ERR_OK);
    ck_assert_int_eq(gguf_get_array(g, "xielu.alpha_n", GGUF_F32, &alpha_n, NULL), ERR_OK);
    ck_assert(alpha_p->n == p->n_layers && gguf_elem_f64(alpha_p, 0) != gguf_elem_f64(alpha_p, 1));
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->op != PLAN_XIELU) {
            continue;
        }
        double wanted_p = log1p(exp(gguf_elem_f64(alpha_p, (uint64_t)layer)));
        double wanted_n = 0.5 + log1p(exp(gguf_elem_f64(alpha_n, (uint64_t)layer)));
        ck_assert(s->layer == layer && fabs((double)s->xielu.alpha_p - wanted_p) < 1e-6);
        ck_assert(fabs((double)s->xielu.alpha_n - wanted_n) < 1e-6 && s->xielu.beta == 0.5f);
        ck_assert(fabs((double)s->xielu.eps + 1e-6) < 1e-8);
        layer++;
    }
    ck_assert_int_eq(layer, 3);
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

Suite *apertus_suite(void)
{
    Suite *s = suite_create("apertus");
    TCase *c = tcase_create("factors");
    tcase_add_test(c, factors_are_those_of_the_layer);
    suite_add_tcase(s, c);
    return s;
}
