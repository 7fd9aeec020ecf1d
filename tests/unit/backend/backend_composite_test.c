/* Layers on several back ends: what the parts hold is summed up and told, and a part that fails, is lost or cannot be
 * opened is that of the whole. That they compute what one does is golden.c's, that pages and states go on elsewhere
 * backends_test.c's. */
#include "engine/backend/backend_parts.h"
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "tests/support/folder.h"
#include "tests/support/remote_backend.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *backend_composite_suite(void);

enum { N_PAGES = 2, N_ROWS = 5 };

static struct gguf *g;
static struct plan *plan; /* of five layers, most of which have recurrent state alone */
static int32_t n_layers;

static void open_model(void)
{
    struct err_info info = {0};
    ck_assert_int_eq(gguf_open("tests/golden/models/qwen3next-delta.gguf", &g, &info), ERR_OK);
    ck_assert_int_eq(model_build(g, 0, &plan, &info), ERR_OK);
    n_layers = (int32_t)plan->n_layers;
}

static void close_model(void)
{
    plan_free(&plan);
    gguf_close(&g);
}

static struct backend_parts parts_of(const struct backend *a, const struct backend *b, int32_t cut)
{
    return (struct backend_parts){.n = 2, .at = {{a, 0, cut - 1, ""}, {b, cut, n_layers - 1, ""}}};
}

static struct backend_config config_of(const struct backend_parts *parts, const char *cpu)
{
    return (struct backend_config){.parts = parts,
                                   .cpu = cpu,
                                   .n_threads = 1,
                                   .n_pages = N_PAGES,
                                   .n_states = 1,
                                   .max_rows = N_ROWS,
                                   .max_logits = 1};
}

/* N_ROWS rows from position 0 on, with the logits of the last. */
static enum err compute(struct backend_model *m, struct err_info *info)
{
    static const int32_t tokens[N_ROWS] = {1, 2, 3, 4, 5}, pos[N_ROWS] = {0, 1, 2, 3, 4}, seq[N_ROWS] = {0};
    static const int32_t page = 1, row = N_ROWS - 1, *table = &page;
    static float logits[1024];
    static struct backend_row_stats stats;
    ck_assert_uint_le(plan->n_vocab, ARRAY_LEN(logits));
    const struct backend_batch b = {.n_rows = N_ROWS,
                                    .tokens = tokens,
                                    .pos = pos,
                                    .seq = seq,
                                    .n_seqs = 1,
                                    .page_tables = &table,
                                    .n_logits = 1,
                                    .logit_rows = &row,
                                    .logits = logits,
                                    .stats = &stats};
    return backend_compute(&backend_composite, m, &b, info);
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

/* What the parts take for pages and states is what one would, and so are weights, of which no two have the same. */
START_TEST(figures_are_those_of_the_parts)
{
    struct backend_model *m;
    struct err_info info = {0};
    struct backend_measure measure;
    struct backend_info told;
    open_model();
    struct backend_parts parts = parts_of(&backend_ref, &backend_ref, 2);
    struct backend_config cfg = config_of(&parts, "ref");
    ck_assert_int_eq(backend_ref.measure(plan, &cfg, &measure, &info), ERR_OK);
    struct backend_bytes whole = backend_bytes_all(&measure);
    ck_assert_int_eq(backend_composite.measure(plan, &cfg, &measure, &info), ERR_OK);
    struct backend_bytes all = backend_bytes_all(&measure);
    ck_assert(all.page == whole.page && all.state == whole.state && all.weights == whole.weights);
    ck_assert_uint_gt(all.activations, whole.activations);
    ck_assert_str_eq(measure.kernels, "ref");
    parts = parts_of(&backend_ref, remote_backend_of(&backend_cpu), 2);
    char kernels[2 * BACKEND_NAME_BYTES];
    cfg.cpu = NULL;
    ck_assert_int_eq(backend_cpu.measure(plan, &cfg, &measure, &info), ERR_OK);
    snprintf(kernels, sizeof kernels, "ref+%s", measure.kernels); /* of a CPU that has more than ref */
    ck_assert_int_eq(backend_composite.measure(plan, &cfg, &measure, &info), ERR_OK);
    ck_assert_str_eq(measure.kernels, strcmp(kernels, "ref+ref") == 0 ? "ref" : kernels);
    ck_assert_str_eq(measure.k_type, "f32+i16");
    ck_assert_str_eq(measure.v_type, "f32+i16");
    cfg.k_type = "q8_0"; /* of the part that has it; the other has its own */
    cfg.v_type = "f32";
    ck_assert_int_eq(backend_composite.measure(plan, &cfg, &measure, &info), ERR_OK);
    ck_assert_str_eq(measure.k_type, "f32+q8_0");
    ck_assert_str_eq(measure.v_type, "f32+i16");
    cfg.k_type = "q9";
    ck_assert_int_eq(backend_composite.measure(plan, &cfg, &measure, &info), ERR_CONFIG);
    cfg.k_type = cfg.v_type = NULL;
    ck_assert_int_eq(backend_composite.open(plan, &cfg, &m, &info), ERR_OK);
    backend_composite.info(m, &told);
    ck_assert_int_eq(told.max_begun, REMOTE_MAX_BEGUN); /* as the last part says */
    ck_assert_int_eq(told.max_best, REMOTE_MAX_BEST);
    ck_assert_str_eq(told.pack_note, "");
    ck_assert_int_eq(told.pack_state, BACKEND_PACK_OFF);
    backend_composite.close(&m);
    ck_assert_ptr_null(m);
    close_model();
}
END_TEST

static enum err probe_device(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info)
{
    bool is_other = cfg->device != NULL && strcmp(cfg->device, "other") == 0;
    *out =
        (struct backend_device){.name = "a card", .bytes = {1000, is_other ? 70 : 50}, .is_shared = {false, !is_other}};
    return i == 0 ? ERR_OK : i == 1 ? err_set(info, ERR_UNSUPPORTED_CPU, NULL, "it is old") : ERR_NONE;
}

static enum err probe_none(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info)
{
    return i == 0 ? probe_device(cfg, 1, out, info) : ERR_NONE;
}

START_TEST(devices_are_told_as_one)
{
    struct backend card = backend_ref, host = backend_ref;
    struct err_info info = {0};
    struct backend_device d;
    card.probe = probe_device;
    host.probe = backend_probe_host;
    open_model();
    struct backend_parts parts = {.n = 3, .at = {{&card, 0, 0, ""}, {&card, 1, 1, ""}, {&host, 2, n_layers - 1, ""}}};
    struct backend_config cfg = config_of(&parts, NULL);
    ck_assert_int_eq(backend_device_of(&host, &cfg, &d, &info), ERR_OK);
    size_t host_bytes = d.bytes[BACKEND_HOST];
    ck_assert_uint_gt(host_bytes, 1000);
    ck_assert_int_eq(backend_composite.probe(&cfg, 0, &d, &info), ERR_OK);
    ck_assert(strncmp(d.name, "a card", 6) == 0 && strstr(d.name + 1, "a card") == NULL);
    ck_assert(d.bytes[BACKEND_HOST] == host_bytes && d.bytes[BACKEND_DEVICE] == 50 && d.is_shared[BACKEND_DEVICE]);
    for (int i = BACKEND_DEVICE + 1; i < BACKEND_MEMORIES; i++) { /* the card has one memory for both its parts */
        ck_assert(d.bytes[i] == 0 && !d.is_shared[i]);
    }
    snprintf(parts.at[1].device, sizeof parts.at[1].device, "other");
    ck_assert_int_eq(backend_composite.probe(&cfg, 0, &d, &info), ERR_OK);
    ck_assert(backend_parts_memory(&parts, 0) == BACKEND_DEVICE &&
              backend_parts_memory(&parts, 1) == BACKEND_DEVICE + 1);
    ck_assert(d.bytes[BACKEND_DEVICE] == 50 && d.is_shared[BACKEND_DEVICE]);
    ck_assert(d.bytes[BACKEND_DEVICE + 1] == 70 && !d.is_shared[BACKEND_DEVICE + 1]);
    ck_assert_int_eq(backend_composite.probe(&cfg, 1, &d, &info), ERR_NONE);
    host.probe = probe_none;
    ck_assert_int_eq(backend_device_of(&backend_composite, &cfg, &d, &info), ERR_UNSUPPORTED_CPU);
    ck_assert_str_eq(info.text, "it is old");
    close_model();
}
END_TEST

/* Two parts, two files, which a start of the whole leaves alone, as they leave its. */
START_TEST(each_part_keeps_its_packed_weights)
{
    open_model();
    struct backend_parts parts = parts_of(&backend_cpu, &backend_cpu, 2);
    const struct backend_parts one = {.n = 1, .at = {{&backend_cpu, 0, n_layers - 1, ""}}};
    for (int i = 0; i < 4; i++) {
        struct backend_model *m;
        struct err_info info = {0};
        struct backend_info told;
        struct backend_config cfg = config_of(i % 2 == 0 ? &parts : &one, "ref");
        cfg.pack_cache = folder_path();
        cfg.source.bytes = 1000;
        const struct backend *b = backend_of_parts(cfg.parts);
        ck_assert_int_eq(b->open(plan, &cfg, &m, &info), ERR_OK);
        b->info(m, &told);
        ck_assert_msg(told.pack_state == (i < 2 ? BACKEND_PACK_WRITTEN : BACKEND_PACK_MAPPED), "%s", told.pack_note);
        ck_assert_str_eq(told.pack_note, "");
        ck_assert_int_eq(folder_n_files(), i == 0 ? 2 : 3);
        b->close(&m);
    }
    folder_clear();
    folder_remove();
    close_model();
}
END_TEST

struct told {
    float last, most; /* what was told; where it is enough */
    int n;
};

static bool tell(void *arg, float fraction)
{
    struct told *t = arg;
    ck_assert(fraction >= t->last && fraction <= 1.0001f);
    t->last = fraction;
    t->n++;
    return fraction <= t->most;
}

START_TEST(progress_goes_from_part_to_part)
{
    struct backend_model *m;
    struct err_info info = {0};
    struct told t = {.most = 2};
    open_model();
    struct backend_parts parts = parts_of(&backend_cpu, &backend_cpu, 2);
    struct backend_config cfg = config_of(&parts, "ref");
    cfg.progress = tell;
    cfg.progress_arg = &t;
    ck_assert_int_eq(backend_composite.open(plan, &cfg, &m, &info), ERR_OK);
    ck_assert(t.n >= 2 && t.last > 0.999f);
    backend_composite.close(&m);
    size_t live = mem_live();
    t = (struct told){.most = 0.9f}; /* in the second part */
    ck_assert_int_eq(backend_composite.open(plan, &cfg, &m, &info), ERR_CANCELLED);
    ck_assert_ptr_null(m);
    ck_assert(t.n >= 2);
    ck_assert_uint_eq(mem_live(), live);
    close_model();
}
END_TEST

/* --- what goes wrong ---------------------------------------------------------------------------------------------- */

START_TEST(memory_that_ends_leaves_nothing_behind)
{
    struct backend_model *m;
    enum err err = ERR_NOMEM;
    open_model();
    struct backend_parts parts = parts_of(&backend_ref, &backend_cpu, 2);
    struct backend_config cfg = config_of(&parts, "ref");
    size_t live = mem_live();
    for (long n = 0; err == ERR_NOMEM; n++) {
        struct err_info info = {0};
        mem_fail_at(n);
        err = backend_composite.open(plan, &cfg, &m, &info);
        mem_fail_at(-1);
        ck_assert_msg(err == ERR_OK || (err == ERR_NOMEM && info.code == ERR_NOMEM && m == NULL), "%s", info.text);
        if (err != ERR_OK) {
            ck_assert_uint_eq(mem_live(), live);
        }
    }
    backend_composite.close(&m);
    ck_assert_uint_eq(mem_live(), live);
    close_model();
}
END_TEST

static const struct backend *real;
static enum err fails_with;
static int n_begun;

static enum err begin_failing(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    n_begun++;
    return fails_with != ERR_OK ? err_set(info, fails_with, NULL, "told to fail") : real->begin(m, batch, info);
}

static enum err wait_failing(struct backend_model *m, struct err_info *info)
{
    TRY(real->wait(m, info));
    return fails_with != ERR_OK ? err_set(info, fails_with, NULL, "told to fail") : ERR_OK;
}

static enum err begin_counted(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    n_begun++;
    return real->begin(m, batch, info);
}

/* In begin or wait of the first part, or of the last; what stands after is not begun. */
START_TEST(one_that_fails_is_the_whole)
{
    struct backend_model *m;
    struct err_info info = {0};
    bool is_first = _i % 2 == 0, in_wait = _i / 2 == 1;
    open_model();
    real = &backend_ref;
    struct backend failing = *real, counted = *real;
    failing.begin = in_wait ? real->begin : begin_failing;
    failing.wait = in_wait ? wait_failing : real->wait;
    counted.begin = begin_counted;
    struct backend_parts parts = parts_of(is_first ? &failing : &counted, is_first ? &counted : &failing, 2);
    struct backend_config cfg = config_of(&parts, "ref");
    ck_assert_int_eq(backend_composite.open(plan, &cfg, &m, &info), ERR_OK);
    fails_with = ERR_LOST;
    n_begun = 0;
    ck_assert_int_eq(compute(m, &info), ERR_LOST);
    ck_assert_str_eq(info.text, "told to fail");
    ck_assert_int_eq(n_begun, (is_first ? 0 : 1) + !in_wait);
    fails_with = ERR_OK;
    ck_assert_int_eq(compute(m, &info), ERR_OK);
    backend_composite.close(&m);
    close_model();
}
END_TEST

Suite *backend_composite_suite(void)
{
    Suite *s = suite_create("backend_composite");
    TCase *t = tcase_create("backend_composite");
    tcase_add_test(t, figures_are_those_of_the_parts);
    tcase_add_test(t, devices_are_told_as_one);
    tcase_add_test(t, each_part_keeps_its_packed_weights);
    tcase_add_test(t, progress_goes_from_part_to_part);
    tcase_add_test(t, memory_that_ends_leaves_nothing_behind);
    tcase_add_loop_test(t, one_that_fails_is_the_whole, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
