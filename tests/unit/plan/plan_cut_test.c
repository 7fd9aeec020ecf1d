/* Plans of golden models cut between layers: of every step that computes there is one in one of the parts, with its
 * weights, and what the parts hold is what the whole holds. That they compute the same is golden.c's. */
#include "engine/plan/plan_cut.h"

#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan_ops.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *plan_cut_suite(void);

static const struct {
    const char *name;
    int32_t n_ok;   /* places where it can be cut */
    uint32_t width; /* of the rows at the first: the stream, or all of them, and embeddings of each layer */
} models[] = {
    {"llama-quants.gguf", 1, 256},
    {"bert-cls.gguf", 1, 48},
    {"gemma3n-sparse.gguf", 1, 4 * 32 + 6 * 8},
    {"gemma4-per-layer.gguf", 1, 48 + 6 * 12},
    {"qwen3next-delta.gguf", 4, 48},
    {"granitehybrid-dense.gguf", 3, 48},
    {"deepseek2-v2-lite.gguf", 1, 64},
};

static struct gguf *g;
static struct plan *whole;
static int32_t n_layers;

static void open_model(int i)
{
    char path[128];
    struct err_info info = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s", models[i].name);
    ck_assert_msg(gguf_open(path, &g, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(g, 0, &whole, &info) == ERR_OK, "%s", info.text);
    n_layers = (int32_t)whole->n_layers;
}

static void close_model(void)
{
    plan_free(&whole);
    gguf_close(&g);
}

/* --- steps know their layers -------------------------------------------------------------------------------------- */

START_TEST(layers_stand_in_order)
{
    int32_t last = PLAN_NONE;
    open_model(_i);
    for (int32_t i = 0; i < whole->n_steps; i++) {
        int32_t layer = whole->steps[i].layer;
        ck_assert_msg(layer == last || layer == last + 1 || (layer == PLAN_NONE && last == n_layers - 1),
                      "step %d is of layer %d, behind %d", (int)i, (int)layer, (int)last);
        last = layer;
    }
    ck_assert_int_eq(last, PLAN_NONE);
    close_model();
}
END_TEST

/* --- parts -------------------------------------------------------------------------------------------------------- */

/* Step s of `part` is step t of the whole, on the same buffers and with weights of the same names. */
static void check_step(const struct plan *part, const struct plan_step *s, const struct plan_step *t)
{
    const struct plan_operand *o, *wanted;
    int32_t id, wanted_id;
    ck_assert(s->op == t->op && s->layer == t->layer && s->rows == t->rows);
    for (int i = 0, k = 0; (wanted = plan_next_operand(t, &k, &wanted_id)) != NULL;) {
        o = plan_next_operand(s, &i, &id);
        ck_assert_ptr_eq(o, wanted);
        if (plan_is_buf(o)) {
            ck_assert_int_eq(id, wanted_id);
        } else {
            ck_assert_str_eq(part->weights[id].name, whole->weights[wanted_id].name);
            ck_assert_ptr_eq(part->weights[id].source, whole->weights[wanted_id].source);
        }
    }
}

/* Steps of `part`, without those at its edges, are those of the whole from *at on, which goes after them. */
static void check_part(const struct plan *part, int32_t first, int32_t last, int32_t *at)
{
    uint32_t widths[2] = {0};
    for (int32_t i = 0; i < part->n_steps; i++) {
        const struct plan_step *s = &part->steps[i];
        bool is_input = s->op == PLAN_INPUT;
        if (!is_input && s->op != PLAN_OUTPUT) {
            check_step(part, s, &whole->steps[(*at)++]);
            continue;
        }
        ck_assert_uint_eq(s->edge.first, widths[is_input]); /* one after the other */
        widths[is_input] += part->bufs[is_input ? s->dst : s->src].width;
    }
    ck_assert_uint_eq(part->input_width, widths[1]);
    ck_assert_uint_eq(part->output_width, widths[0]);
    ck_assert((part->input_width != 0) == (first != 0) && (part->output_width != 0) == (last + 1 != n_layers));
    for (int32_t i = 0; i < n_layers; i++) {
        bool is_here = i >= first && i <= last;
        ck_assert_int_eq(plan_kv_of(part, i).layer, is_here ? plan_kv_of(whole, i).layer : PLAN_NONE);
    }
    ck_assert(!part->has_logits || last + 1 == n_layers);
    ck_assert(!part->has_hidden || last + 1 == n_layers);
}

/* Does a layer from `cut` on read keys and values of one in front? */
static bool is_shared_across(int32_t cut)
{
    for (int32_t i = cut; i < n_layers; i++) {
        int32_t kv = plan_kv_of(whole, i).layer;
        if (kv != PLAN_NONE && kv < cut) {
            return true;
        }
    }
    return false;
}

START_TEST(parts_are_the_whole)
{
    int32_t n_ok = 0;
    uint32_t width = 0;
    open_model(_i);
    for (int32_t cut = 1; cut < n_layers; cut++) {
        struct plan *parts[2];
        struct err_info info = {0};
        int32_t at = 0;
        ck_assert_msg(plan_cut(whole, 0, cut - 1, &parts[0], &info) == ERR_OK, "%s", info.text);
        check_part(parts[0], 0, cut - 1, &at);
        enum err err = plan_cut(whole, cut, n_layers - 1, &parts[1], &info);
        ck_assert_int_eq(err, is_shared_across(cut) ? ERR_CONFIG : ERR_OK);
        if (err == ERR_OK) {
            check_part(parts[1], cut, n_layers - 1, &at);
            ck_assert_int_eq(at, whole->n_steps);
            ck_assert_uint_eq(parts[0]->output_width, parts[1]->input_width);
            ck_assert_uint_eq(parts[0]->recurrent_floats + parts[1]->recurrent_floats, whole->recurrent_floats);
            ck_assert(parts[1]->has_logits == whole->has_logits && parts[1]->has_hidden == whole->has_hidden);
            width = n_ok++ == 0 ? parts[0]->output_width : width;
        }
        plan_free(&parts[0]);
        plan_free(&parts[1]);
    }
    ck_assert_int_eq(n_ok, models[_i].n_ok);
    ck_assert_uint_eq(width, models[_i].width);
    close_model();
}
END_TEST

/* The second of three parts begins and ends with rows of others, also those that it only passes on. */
START_TEST(a_part_in_the_middle_passes_on)
{
    struct plan *part;
    struct err_info info = {0};
    open_model(3);
    ck_assert_msg(plan_cut(whole, 1, 1, &part, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(part->input_width, part->output_width);
    ck_assert_int_eq(part->steps[0].op, PLAN_INPUT);
    ck_assert_int_eq(part->steps[part->n_steps - 1].op, PLAN_OUTPUT);
    plan_free(&part);
    close_model();
}
END_TEST

START_TEST(layers_that_share_keys_and_values_stay_together)
{
    struct plan *part;
    struct err_info info = {0};
    open_model(2);
    ck_assert_int_eq(plan_cut(whole, n_layers - 1, n_layers - 1, &part, &info), ERR_CONFIG);
    ck_assert_ptr_null(part);
    ck_assert_str_eq(info.text,
                     "backend: expected layer 1 in one part with layer 5, which reads its keys and values; found "
                     "a part of layers 5-5");
    close_model();
}
END_TEST

START_TEST(memory_that_ends_is_told)
{
    open_model(0);
    size_t live = mem_live();
    enum err err = ERR_NOMEM;
    for (long n = 0; err == ERR_NOMEM; n++) {
        struct plan *part;
        struct err_info info = {0};
        mem_fail_at(n);
        err = plan_cut(whole, 0, 0, &part, &info);
        mem_fail_at(-1);
        ck_assert(err == ERR_OK || (err == ERR_NOMEM && part == NULL && info.code == ERR_NOMEM));
        plan_free(&part);
        ck_assert_uint_eq(mem_live(), live);
    }
    close_model();
}
END_TEST

Suite *plan_cut_suite(void)
{
    Suite *s = suite_create("plan_cut");
    TCase *t = tcase_create("plan_cut");
    tcase_add_loop_test(t, layers_stand_in_order, 0, (int)ARRAY_LEN(models));
    tcase_add_loop_test(t, parts_are_the_whole, 0, (int)ARRAY_LEN(models));
    tcase_add_test(t, a_part_in_the_middle_passes_on);
    tcase_add_test(t, layers_that_share_keys_and_values_stay_together);
    tcase_add_test(t, memory_that_ends_is_told);
    suite_add_tcase(s, t);
    return s;
}
