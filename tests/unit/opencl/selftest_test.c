/* A device that says it has an instruction for dot products which is wrong: it is found, told of and replaced, and the
 * answers are those of right ones. One whose plain products are wrong is not used, nor one with any kernel that is. */
#include "opencl/selftest.h"

#include "engine/base/buf.h"
#include "engine/format/gguf.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quant.h"
#include "engine/quant/quantize.h"
#include "engine/quant/row_mapped.h"
#include "tests/support/fake_opencl.h"
#include "tests/support/folder.h"
#include "tests/unit/opencl/opencl_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *selftest_suite(void);

enum { N = 64, ROWS = 3 };

static struct plan *plan;
static struct backend_config cfg;
static struct err_info info;
static unsigned char encoded[N * N * 4];
static float x[N * N], found[ROWS * N];
static char told[8][1024];
static int n_told;

static void on_told(void *unused, const char *text)
{
    (void)unused;
    snprintf(told[n_told++ % 8], sizeof told[0], "%s", text);
}

/* The caller's rows times a matrix of Q8_0. */
static void set_up(void)
{
    uint64_t row_bytes;
    plan_buf_id in, out;
    plan_weight_id w;
    cfg = (struct backend_config){
        .n_threads = 1, .n_pages = 1, .max_rows = ROWS, .max_logits = 1, .tell = on_told, .pack_cache = folder_path()};
    ck_assert(dtype_row_bytes(DTYPE_Q8_0, N, &row_bytes));
    for (size_t i = 0; i < ARRAY_LEN(x); i++) {
        x[i] = (float)(i * i % 37) - 18;
    }
    for (size_t i = 0; i < N; i++) {
        ck_assert(quantize_row(DTYPE_Q8_0, x + i * N, N, NULL, encoded + i * row_bytes));
    }
    ck_assert_int_eq(plan_new(&plan), ERR_OK);
    plan->n_vocab = plan->n_layers = plan->n_heads = plan->n_kv_heads = 1;
    plan->head_dim = 2;
    plan->n_ctx_train = ROWS;
    plan->n_embd = plan->input_width = plan->output_width = N;
    ck_assert_int_eq(plan_add_buf(plan, "in", N, &in), ERR_OK);
    ck_assert_int_eq(plan_add_buf(plan, "out", N, &out), ERR_OK);
    ck_assert_int_eq(plan_add_weight(plan, "w", row_mapped_new(&plan->arena, DTYPE_Q8_0, encoded, N, N), &w), ERR_OK);
    struct plan_step steps[] = {plan_edge_of(false, in, 0), plan_step_of(PLAN_MATMUL, in, out),
                                plan_edge_of(true, out, 0)};
    steps[1].w[0] = w;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        ck_assert_int_eq(plan_add_step(plan, &steps[i]), ERR_OK);
    }
    ck_assert_msg(plan_check(plan, &info) == ERR_OK, "%s", info.text);
}

static void tear_down(void)
{
    plan_free(&plan);
    ck_assert_int_eq(fake_opencl_live(), 0);
    folder_remove();
}

/* Opens the plan with the rules, and computes. */
static const float *answer(const char *rules)
{
    static const int32_t zeros[ROWS] = {0}, pos[ROWS] = {0, 1, 2};
    static const int32_t *const tables = zeros;
    const struct backend_batch b = {.n_rows = ROWS,
                                    .tokens = zeros,
                                    .pos = pos,
                                    .seq = zeros,
                                    .n_seqs = 1,
                                    .page_tables = &tables,
                                    .input = x,
                                    .output = found};
    struct backend_model *m;
    n_told = 0;
    fake_opencl_arm(rules);
    ck_assert_msg(backend_opencl.open(plan, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(backend_compute(&backend_opencl, m, &b, &info) == ERR_OK, "%s", info.text);
    backend_opencl.close(&m);
    return found;
}

START_TEST(dot_products_are_tested_once)
{
    float right[ROWS * N];
    memcpy(right, answer("dot:right"), sizeof right);
    ck_assert_int_eq(n_told, 1);
    long n = fake_opencl_calls("clEnqueueNDRangeKernel");
    ck_assert(memcmp(right, answer("dot:right"), sizeof right) == 0);
    ck_assert_int_eq(n_told, 0);
    ck_assert_int_lt(fake_opencl_calls("clEnqueueNDRangeKernel"), n); /* what was right is remembered */

    folder_clear();
    ck_assert(memcmp(right, answer("dot:wrong"), sizeof right) == 0);
    ck_assert_int_eq(n_told, 2);
    ck_assert_msg(strstr(told[1], "computes products with Q8_0 weights wrongly: dot products of kind khr are replaced "
                                  "by plain ones") != NULL,
                  "%s", told[1]);
    ck_assert(memcmp(right, answer("dot:wrong"), sizeof right) == 0);
    ck_assert_int_eq(n_told, 0);
    ck_assert_int_eq(fake_opencl_calls("clCreateProgramWithSource"), 0);
}
END_TEST

START_TEST(plain_ones_are_wrong)
{
    struct backend_model *m;
    bool unfit[1] = {false};
    selftest_always(true);
    fake_opencl_arm("dot:broken");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_UNSUPPORTED_DEVICE);
    plan->steps[1].layer = 0;
    cfg.unfit = unfit;
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_UNSUPPORTED_DEVICE);
    ck_assert(unfit[0]);
    ck_assert_ptr_null(m);
    ck_assert_msg(strstr(info.text, "wrongly, with plain dot products, too") != NULL, "%s", info.text);
}
END_TEST

/* A batch of the test that fails is no word against the device's products. */
START_TEST(the_device_fails_meanwhile)
{
    struct backend_model *m;
    selftest_always(true);
    fake_opencl_arm("clEnqueueNDRangeKernel:2:CL_MEM_OBJECT_ALLOCATION_FAILURE");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_NOMEM);
    ck_assert_ptr_null(m);
    ck_assert_int_eq(fake_opencl_live(), 0);
    fake_opencl_arm("clEnqueueNDRangeKernel:4!:CL_OUT_OF_RESOURCES");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_LOST);
    fake_opencl_arm("");
    ck_assert_int_eq(backend_opencl.open(plan, &cfg, &m, &info), ERR_OK);
    backend_opencl.close(&m);
}
END_TEST

/* --- every kernel --------------------------------------------------------------------------------------------------- */

/* A kernel that does nothing, in one of its forms, and the kind of step that is then found wrong. */
static const struct {
    const char *model, *word, *step;
} faults[] = {
    {"gemma3n-sparse", "copy -", "embed"},
    {"gemma3n-sparse", "embed -", "embed"},
    {"gemma3n-sparse", "norm -", "norm"},
    {"gemma3n-sparse", "matmul -", "matmul"},
    {"gemma3n-sparse", "-DPAIR=1", "glu"},
    {"gemma3n-sparse", "heads -", "qkv"},
    {"gemma3n-sparse", "attention -", "attention"},
    {"gemma3n-sparse", "-DROWS=1 -DSPLIT=0", "attention"},
    {"gemma3n-sparse", "-DROWS=4 -DSPLIT=0", "attention"},
    {"gemma3n-sparse", "merge -", "attention"},
    {"gemma3n-sparse", "sum -", "sum"},
    {"gemma3n-sparse", "level -", "sum"},
    {"gemma3n-sparse", "multiply -", "multiply"},
    {"gemma3n-sparse", "sparse -", "multiply"},
    {"gemma3n-sparse", "predict -", "predict"},
    {"gemma3n-sparse", "correct -", "correct"},
    {"gemma3n-sparse", "piece -", "logits"},
    {"gemma3n-sparse", "best -", "logits"},
    {"deepseek2-v3", "heads_matmul -", "head matmul"},
    {"deepseek2-v3", "-DLATENT=1", "attention"},
    {"jina-bert-v2-mean", "-DALIBI=1", "attention"},
    {"t5encoder-gated-mean", "-DREACH=128", "attention"},
    {"deepseek32-sparse", "index_heads -", "index"},
    {"deepseek32-sparse", "choose -", "choose"},
    {"deepseek32-sparse", "-DCHOSEN=24", "attention"},
    {"deepseek2-v3", "route -", "route"},
    {"deepseek2-v3", "sort -", "experts"},
    {"deepseek2-v3", "-DPICKED=1", "experts"},
    {"deepseek2-v3", "combine -", "experts"},
    {"qwen35moe-delta", "short_conv -", "short conv"},
    {"qwen35moe-delta", "scan -", "delta"},
    {"qwen35moe-delta", "keep_drafts -", "delta"},
    {"qwen35moe-delta", "gate -", "gate"},
    {"kimi-linear-experts", "scan -", "delta"},
    {"kimi-linear-experts", "keep_drafts -", "delta"},
    {"granitehybrid-experts", "scan -", "ssm"},
    {"granitehybrid-experts", "keep_drafts -", "ssm"},
    {"jamba-experts", "scan -", "scan"},
    {"jamba-experts", "keep_drafts -", "scan"},
    {"mamba-tied", "scan -", "scan"},
    {"apertus-xielu", "xielu -", "xielu"},
    {"llama4-experts", "weigh_gated -", "experts"},
    {"bert-cls", "gated -", "glu"},
    {"llama-mixtral-q8", "encode -", "embed"},
};

static void check_fault(struct opencl_rig *r, const char *word, const char *step)
{
    char rule[128], wanted[64];
    snprintf(rule, sizeof rule, "clEnqueueNDRangeKernel@%s:1+:skip", word);
    snprintf(wanted, sizeof wanted, "computes steps of kind '%s' wrongly", step);
    fake_opencl_arm(rule);
    ck_assert_msg(selftest_steps(r->model, &info) == ERR_UNSUPPORTED_DEVICE, "%s is not found", word);
    ck_assert_msg(strstr(info.text, wanted) != NULL, "%s: %s", word, info.text);
}

/* Each kernel of a model is found when it does nothing, and none when all are right. */
START_TEST(kernels_are_wrong)
{
    struct opencl_rig r = {.model = NULL};
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        if (i == 0 || strcmp(faults[i].model, faults[i - 1].model) != 0) {
            fake_opencl_arm("");
            opencl_rig_init(&r, faults[i].model);
            r.cfg.max_rows = 20;
            r.cfg.max_drafts = 2;
            ck_assert_msg(opencl_rig_open(&r) == ERR_OK, "%s", r.info.text);
            ck_assert_msg(selftest_steps(r.model, &info) == ERR_OK, "%s", info.text);
        }
        check_fault(&r, faults[i].word, faults[i].step);
        if (i + 1 == ARRAY_LEN(faults) || strcmp(faults[i].model, faults[i + 1].model) != 0) {
            opencl_rig_fini(&r);
        }
    }
}
END_TEST

/* .. and then the model is not opened. */
START_TEST(a_step_is_wrong)
{
    struct opencl_rig r;
    selftest_always(true);
    opencl_rig_init(&r, "llama-gqa-tied");
    fake_opencl_arm("clEnqueueNDRangeKernel@attention -:1+:skip");
    ck_assert_int_eq(opencl_rig_open(&r), ERR_UNSUPPORTED_DEVICE);
    ck_assert_msg(strstr(r.info.text, "computes steps of kind 'attention' wrongly") != NULL, "%s", r.info.text);
    fake_opencl_arm("");
    ck_assert_msg(opencl_rig_open(&r) == ERR_OK, "%s", r.info.text);
    opencl_rig_fini(&r);
}
END_TEST

/* Layers that have wrong steps are told, all of them at once; others are not. */
START_TEST(wrong_layers_are_told)
{
    static const struct {
        const char *rules;
        bool wrong[5]; /* of layers 0, 1 and 3 with the delta rule, 2 and 4 with attention */
    } cases[] = {
        {"clEnqueueNDRangeKernel@scan -:1+:skip", {true, true, false, true, false}},
        {"clEnqueueNDRangeKernel@attention -:1+:skip", {false, false, true, false, true}},
        {"clEnqueueNDRangeKernel@embed -:1+:skip", {true}},
        {"clEnqueueNDRangeKernel@piece -:1+:skip,clEnqueueNDRangeKernel@embed -:1+:skip",
         {true, false, false, false, true}},
    };
    struct opencl_rig r;
    bool unfit[5];
    fake_opencl_arm("");
    opencl_rig_init(&r, "qwen35-delta");
    ck_assert_int_eq(r.plan->n_layers, ARRAY_LEN(unfit));
    r.cfg.unfit = unfit;
    ck_assert_msg(opencl_rig_open(&r) == ERR_OK, "%s", r.info.text);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        memset(unfit, 0, sizeof unfit);
        fake_opencl_arm(cases[i].rules);
        ck_assert_int_eq(selftest_steps(r.model, &info), ERR_UNSUPPORTED_DEVICE);
        for (size_t k = 0; k < ARRAY_LEN(unfit); k++) {
            ck_assert_msg(unfit[k] == cases[i].wrong[k], "%s: layer %zu", cases[i].rules, k);
        }
    }
    memset(unfit, 0, sizeof unfit);
    fake_opencl_arm("");
    ck_assert_int_eq(selftest_steps(r.model, &info), ERR_OK);
    ck_assert(memchr(unfit, true, sizeof unfit) == NULL);
    opencl_rig_fini(&r);
}
END_TEST

/* There is no kernel without a fault above. */
START_TEST(all_kernels_have_faults)
{
    int n = 0;
    for (const struct program_source *s = program_sources; s->name != NULL; s++) {
        for (const char *at = s->text; (at = strstr(at, "__kernel ")) != NULL; at++, n++) {
            char name[48] = "", word[64];
            bool is_there = false;
            const char *of = strstr(at, " void ");
            ck_assert(of != NULL && sscanf(of, " void %47[a-z_0-9](", name) == 1);
            snprintf(word, sizeof word, "%s -", name);
            for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
                is_there |= strcmp(faults[i].word, word) == 0;
            }
            ck_assert_msg(is_there, "%s has no fault", name);
        }
    }
    ck_assert_int_gt(n, 20);
}
END_TEST

static void answer_of(struct opencl_rig *r)
{
    ck_assert_msg(opencl_rig_open(r) == ERR_OK, "%s", r->info.text);
    ck_assert_msg(opencl_rig_begin(r) == ERR_OK && opencl_rig_wait(r) == ERR_OK, "%s", r->info.text);
    opencl_rig_close(r);
}

/* What the kinds' products do not show: experts' picked rows are wrong with the device's dot products. */
START_TEST(experts_are_wrong)
{
    struct opencl_rig r, right;
    char rules[160];
    fake_opencl_arm("");
    opencl_rig_init(&right, "llama-mixtral-q8");
    answer_of(&right);
    opencl_rig_init(&r, "llama-mixtral-q8");
    r.cfg.tell = on_told;
    n_told = 0;
    snprintf(rules, sizeof rules,
             "dot:right,clEnqueueNDRangeKernel@-DDOT_ARM=1 -DKIND=%d -DTOKENS=4 -DSPLIT=1 -DPAIR=0:1+:skip",
             (int)quant_ops(DTYPE_Q8_0)->panel);
    fake_opencl_arm(rules);
    answer_of(&r);
    ck_assert_int_eq(n_told, 2);
    ck_assert_msg(strstr(told[1], "computes steps of kind 'experts' wrongly") != NULL &&
                      strstr(told[1], "its programs are replaced by plain ones") != NULL,
                  "%s", told[1]);
    ck_assert(memcmp(r.logits, right.logits, sizeof r.logits) == 0);
    opencl_rig_fini(&r);
    plan_free(&right.plan);
    gguf_close(&right.file);
}
END_TEST

/* Right products are not found wrong, whatever the kind of weight; nor with second bytes of activations. */
START_TEST(right_products_of_all_kinds)
{
    static const struct {
        const char *model;
        bool is_fine;
    } all[] = {{"llama-quants", false}, {"llama-quants-few", true}, {"llama-quants-grid", false}};
    selftest_always(true);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct opencl_rig r;
        fake_opencl_arm("");
        opencl_rig_init(&r, all[i].model);
        r.cfg.high_precision = all[i].is_fine;
        ck_assert_msg(opencl_rig_open(&r) == ERR_OK, "%s: %s", all[i].model, r.info.text);
        opencl_rig_fini(&r);
    }
}
END_TEST

/* What was right of one model says nothing of another's steps. */
START_TEST(other_steps_are_tested)
{
    struct buf names[2];
    for (int i = 0; i < 2; i++) {
        struct opencl_rig r;
        buf_init(&names[i], 0, MEM_SCRATCH);
        fake_opencl_arm("");
        opencl_rig_init(&r, i == 0 ? "llama-gqa-tied" : "llama-biases");
        ck_assert_msg(opencl_rig_open(&r) == ERR_OK, "%s", r.info.text);
        ck_assert_int_eq(selftest_steps_name(r.model, &names[i], &info), ERR_OK);
        opencl_rig_close(&r);
        plan_free(&r.plan);
        gguf_close(&r.file);
    }
    ck_assert_ptr_nonnull(strstr(names[0].data, "\nattention "));
    ck_assert_str_ne(names[0].data, names[1].data);
    buf_fini(&names[0]);
    buf_fini(&names[1]);
}
END_TEST

Suite *selftest_suite(void)
{
    Suite *s = suite_create("selftest");
    TCase *t = tcase_create("selftest");
    tcase_set_tags(t, "fork");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, dot_products_are_tested_once);
    tcase_add_test(t, plain_ones_are_wrong);
    tcase_add_test(t, the_device_fails_meanwhile);
    tcase_add_test(t, kernels_are_wrong);
    tcase_add_test(t, a_step_is_wrong);
    tcase_add_test(t, wrong_layers_are_told);
    tcase_add_test(t, all_kernels_have_faults);
    tcase_add_test(t, other_steps_are_tested);
    suite_add_tcase(s, t);
    t = tcase_create("all kinds"); /* many programs, and nothing that ASan does not see in the others */
    tcase_set_tags(t, "long");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, experts_are_wrong);
    tcase_add_test(t, right_products_of_all_kinds);
    suite_add_tcase(s, t);
    return s;
}
