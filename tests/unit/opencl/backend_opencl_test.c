/* Calls of OpenCL that fail while a model is opened or computes: a clear error, nothing left behind, nothing that still
 * writes where nobody expects it; and answers as before where the device is still there. */
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/plan/plan_ops.h"
#include "engine/plan/plan_quantize.h"
#include "opencl/opencl_internal.h"
#include "tests/support/fake_opencl.h"
#include "tests/unit/opencl/opencl_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *backend_opencl_suite(void);

static struct opencl_rig r;

static void set_up(void) { opencl_rig_init(&r, "llama-biases"); }
static void tear_down(void) { opencl_rig_fini(&r); }

/* --- opening -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *call, *code;
    enum err err;
} openings[] = {
    {"clGetPlatformIDs", "CL_OUT_OF_HOST_MEMORY", ERR_NOMEM},
    {"clGetDeviceIDs", "CL_DEVICE_NOT_FOUND", ERR_LOST},
    {"clCreateContext", "CL_DEVICE_NOT_AVAILABLE", ERR_LOST},
    {"clCreateCommandQueue", "CL_OUT_OF_HOST_MEMORY", ERR_NOMEM},
    {"clCreateBuffer", "CL_MEM_OBJECT_ALLOCATION_FAILURE", ERR_NOMEM},
    {"clCreateSubBuffer", "CL_MEM_OBJECT_ALLOCATION_FAILURE", ERR_NOMEM},
    {"clEnqueueFillBuffer", "CL_MEM_OBJECT_ALLOCATION_FAILURE", ERR_NOMEM},
    {"clCreateProgramWithSource", "CL_OUT_OF_HOST_MEMORY", ERR_NOMEM},
    {"clBuildProgram", "CL_OUT_OF_RESOURCES", ERR_LOST},
    {"clCreateKernel", "CL_OUT_OF_HOST_MEMORY", ERR_NOMEM},
    {"clSetKernelArg", "CL_OUT_OF_RESOURCES", ERR_LOST},
    {"clEnqueueWriteBuffer", "CL_OUT_OF_RESOURCES", ERR_LOST},
};

/* The first call of each fails; with _i > 0 the first, the tenth, the hundredth .., as far as there are so many. */
START_TEST(each_call_of_open_fails)
{
    char rule[128];
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK); /* finds the devices, which is done once a process */
    opencl_rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(openings); i++) {
        enum err err = ERR_INTERNAL;
        for (long n = 1; err != ERR_OK && (n == 1 || _i > 0); n *= 10) {
            snprintf(rule, sizeof rule, "%s:%ld:%s", openings[i].call, n, openings[i].code);
            fake_opencl_arm(rule);
            err = opencl_rig_open(&r);
            ck_assert_msg(err == openings[i].err || (err == ERR_OK && n > 1), "%s: %s", rule, err_code(err));
            ck_assert_msg(err == ERR_OK || strstr(r.info.text, openings[i].code) != NULL, "%s", r.info.text);
            opencl_rig_close(&r);
        }
    }
}
END_TEST

/* What brings weights to the device fails while others are on their way: the first call of a kind, after which nothing
 * works, and the last. */
START_TEST(each_call_of_loading_fails)
{
    static const struct {
        const char *call, *code;
        enum err err;
    } calls[] = {
        {"clEnqueueMapBuffer", "CL_OUT_OF_HOST_MEMORY", ERR_NOMEM},
        {"clEnqueueWriteBuffer", "CL_OUT_OF_RESOURCES", ERR_LOST},
        {"clFlush", "CL_OUT_OF_HOST_MEMORY", ERR_NOMEM},
        {"clWaitForEvents", "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", ERR_LOST},
        {"clFinish", "CL_OUT_OF_RESOURCES", ERR_LOST},
    };
    char rule[128];
    long n_calls[ARRAY_LEN(calls)];
    r.cfg.n_threads = 3;
    fake_opencl_arm("");
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        n_calls[i] = fake_opencl_calls(calls[i].call);
        ck_assert_int_ge(n_calls[i], 2);
    }
    opencl_rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        const struct {
            long n;
            const char *mark;
        } at[] = {{1, "!"}, {n_calls[i], ""}};
        for (size_t k = 0; k < ARRAY_LEN(at); k++) {
            snprintf(rule, sizeof rule, "%s:%ld%s:%s", calls[i].call, at[k].n, at[k].mark, calls[i].code);
            fake_opencl_arm(rule);
            ck_assert_msg(opencl_rig_open(&r) == calls[i].err, "%s", rule);
            ck_assert_msg(strstr(r.info.text, calls[i].code) != NULL, "%s: %s", rule, r.info.text);
        }
    }
}
END_TEST

/* All that the device has as weights, in `all`; returns how much. */
static size_t read_weights(unsigned char *all, size_t cap)
{
    size_t used = 0, bytes = 0;
    for (int32_t i = 0; i < r.plan->n_weights; i++) {
        cl_mem mem = vram_at(r.model->vram, r.model->weights[i].place);
        if (mem != NULL && !r.model->weights[i].follows_other) {
            ck_assert_int_eq(clGetMemObjectInfo(mem, CL_MEM_SIZE, sizeof bytes, &bytes, NULL), CL_SUCCESS);
            ck_assert_uint_le(used + bytes, cap);
            ck_assert_int_eq(
                clEnqueueReadBuffer(r.model->device.queue, mem, CL_TRUE, 0, bytes, all + used, 0, NULL, NULL),
                CL_SUCCESS);
            used += bytes;
        }
    }
    return used;
}

START_TEST(threads_make_the_same_weights)
{
    static const char *const models[] = {"llama-quants", "deepseek2-v2"};
    static unsigned char one[4 << 20], more[sizeof one];
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        opencl_rig_fini(&r);
        opencl_rig_init(&r, models[i]);
        ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
        size_t n = read_weights(one, sizeof one);
        opencl_rig_close(&r);
        r.cfg.n_threads = 5;
        ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
        ck_assert_uint_eq(read_weights(more, sizeof more), n);
        ck_assert_msg(n != 0 && memcmp(one, more, n) == 0, "%s", models[i]);
    }
}
END_TEST

static unsigned char is_done[4 << 20]; /* a byte of the file */

static void on_done(void *unused, const void *data, uint64_t n)
{
    const struct io_map *map = gguf_map(r.file);
    size_t at = (size_t)((const unsigned char *)data - (const unsigned char *)map->data);
    (void)unused;
    ck_assert(at <= map->bytes && n <= map->bytes - at && map->bytes <= sizeof is_done);
    memset(is_done + at, 1, (size_t)n);
}

/* Vectors, too. */
START_TEST(the_file_is_done_with)
{
    uint64_t stride;
    r.cfg.weight_done = on_done;
    memset(is_done, 0, sizeof is_done);
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    for (int32_t i = 0; i < r.plan->n_weights; i++) {
        const struct plan_weight *w = &r.plan->weights[i];
        const struct row_part all = {0, w->n_out, 0, w->n_in};
        const unsigned char *from = w->source->ops->at(w->source, &all, &stride);
        size_t at = (size_t)(from - (const unsigned char *)gguf_map(r.file)->data);
        ck_assert_msg(memchr(is_done + at, 0, (size_t)(w->n_out * w->row_bytes)) == NULL, "%s", w->name);
    }
}
END_TEST

/* What the device can do is known from the probe. */
START_TEST(measuring_opens_nothing)
{
    struct backend_measure m;
    struct backend_device d;
    ck_assert_int_eq(backend_device_of(&backend_opencl, &r.cfg, &d, &r.info), ERR_OK);
    fake_opencl_arm("clGetPlatformIDs:1+:CL_OUT_OF_HOST_MEMORY,clCreateContext:1+:CL_DEVICE_NOT_AVAILABLE");
    ck_assert_msg(backend_opencl.measure(r.plan, &r.cfg, &m, &r.info) == ERR_OK, "%s", r.info.text);
    ck_assert_int_eq(fake_opencl_calls("clCreateContext") + fake_opencl_calls("clGetPlatformIDs"), 0);
    ck_assert_uint_gt(m.bytes[BACKEND_DEVICE].weights, 0);
    size_t staged = m.bytes[BACKEND_HOST].activations;
    ck_assert(staged > 0 && staged < m.bytes[BACKEND_DEVICE].weights);
}
END_TEST

START_TEST(host_memory_runs_out_while_it_is_opened)
{
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    opencl_rig_close(&r);
    enum err err = ERR_INTERNAL;
    for (long n = 0; err != ERR_OK; n += _i > 0 ? 1 : 1 + n / 4) {
        mem_fail_at(n);
        err = opencl_rig_open(&r);
        ck_assert_msg(err == ERR_OK || err == ERR_NOMEM, "%ld: %s", n, err_code(err));
    }
    mem_fail_at(-1);
}
END_TEST

/* --- programs ------------------------------------------------------------------------------------------------------- */

static int n_told;
static char told[1024];
static float fraction;
static long n_asked, ends_at;

static void on_told(void *unused, const char *text)
{
    (void)unused;
    n_told++;
    snprintf(told, sizeof told, "%s", text);
}

static bool on_progress(void *unused, float x)
{
    (void)unused;
    ck_assert(x >= fraction && x <= 1);
    fraction = x;
    return ++n_asked != ends_at;
}

START_TEST(a_program_that_is_refused)
{
    r.cfg.tell = on_told;
    fake_opencl_arm("clBuildProgram@matmul.cl:2:CL_BUILD_PROGRAM_FAILURE");
    ck_assert_int_eq(opencl_rig_open(&r), ERR_UNSUPPORTED_DEVICE);
    ck_assert_msg(strncmp(r.info.text, "matmul.cl: the OpenCL compiler of ", 34) == 0, "%s", r.info.text);
    ck_assert_int_eq(n_told, 1);
    ck_assert_msg(strncmp(told, "compiling ", 10) == 0, "%s", told);
}
END_TEST

START_TEST(compiling_is_progress_and_can_be_given_up)
{
    enum err err = ERR_INTERNAL;
    r.cfg.progress = on_progress;
    for (ends_at = 1; err != ERR_OK; ends_at *= 3) {
        n_asked = 0;
        fraction = 0;
        err = opencl_rig_open(&r);
        ck_assert_msg(err == ERR_CANCELLED || (err == ERR_OK && n_asked < ends_at), "%s", err_code(err));
        ck_assert(err == ERR_OK || n_asked == ends_at);
    }
    ck_assert(fraction == 1);
}
END_TEST

/* --- computing ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *call;
    long n;
} steps[] = {
    {"clEnqueueWriteBuffer", 1},        {"clEnqueueNDRangeKernel", 1},
    {"clEnqueueNDRangeKernel", 2},      {"clEnqueueNDRangeKernel", 17},
    {"clEnqueueReadBuffer", 1},         {"clEnqueueReadBuffer", 2},
    {"clEnqueueMarkerWithWaitList", 1}, {"clFlush", 1},
};

/* A batch that fails, alone or after another, and three that do well. */
static void fail_one(const char *rule, bool is_after_another, const float *good)
{
    if (is_after_another) {
        ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
    }
    fake_opencl_arm(rule);
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_NOMEM);
    for (int i = 0; i < 3; i++) {
        if (!is_after_another || i > 0) {
            ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
        }
        ck_assert_int_eq(opencl_rig_wait(&r), ERR_OK);
        ck_assert(memcmp(good, r.logits, r.plan->n_vocab * sizeof *good) == 0);
    }
}

START_TEST(a_batch_without_memory_harms_no_other)
{
    char rule[128];
    float good[OPENCL_RIG_MAX_LOGITS];
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
    ck_assert_int_eq(opencl_rig_wait(&r), ERR_OK);
    memcpy(good, r.logits, sizeof good);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        snprintf(rule, sizeof rule, "%s:%ld:CL_MEM_OBJECT_ALLOCATION_FAILURE", steps[i].call, steps[i].n);
        fail_one(rule, false, good);
        fail_one(rule, true, good);
    }
}
END_TEST

START_TEST(a_device_is_gone_between_two_steps)
{
    char rule[128];
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        fake_opencl_arm("");
        ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
        ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
        snprintf(rule, sizeof rule, "%s:%ld!:CL_OUT_OF_RESOURCES", steps[i].call, steps[i].n);
        fake_opencl_arm(rule);
        ck_assert_int_eq(opencl_rig_begin(&r), ERR_LOST);
        ck_assert_msg(strstr(r.info.text, "CL_OUT_OF_RESOURCES") != NULL, "%s", r.info.text);
        ck_assert_int_eq(opencl_rig_wait(&r), ERR_LOST);
        long n = fake_opencl_calls("clEnqueueWriteBuffer");
        ck_assert_int_eq(opencl_rig_begin(&r), ERR_LOST);
        ck_assert_int_eq(fake_opencl_calls("clEnqueueWriteBuffer"), n);
        opencl_rig_close(&r);
    }
}
END_TEST

START_TEST(a_device_is_gone_while_a_batch_is_waited_for)
{
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
    fake_opencl_arm("clWaitForEvents:1:CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST");
    ck_assert_int_eq(opencl_rig_wait(&r), ERR_LOST);
    (void)opencl_rig_wait(&r); /* as it may be; nothing is left of it */
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_LOST);
}
END_TEST

/* When it is not known whether what was begun has ended, nothing can be begun again. */
START_TEST(a_queue_that_cannot_be_emptied_is_lost)
{
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    fake_opencl_arm("clEnqueueNDRangeKernel:3:CL_OUT_OF_HOST_MEMORY,clFinish:1:CL_OUT_OF_RESOURCES");
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_LOST);
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_LOST);
}
END_TEST

/* --- pages ---------------------------------------------------------------------------------------------------------- */

START_TEST(a_page_of_a_device_that_is_gone)
{
    static float page[1 << 16];
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    ck_assert_uint_le(backend_page_floats(r.plan) * sizeof(float), sizeof page);
    for (int is_write = 0; is_write < 2; is_write++) {
        fake_opencl_arm(is_write ? "clEnqueueWriteBuffer:2:CL_MEM_OBJECT_ALLOCATION_FAILURE"
                                 : "clEnqueueReadBuffer:2:CL_MEM_OBJECT_ALLOCATION_FAILURE");
        for (int i = 0; i < 2; i++) {
            enum err err =
                is_write
                    ? backend_opencl.page_copy(r.model, (struct backend_page){0}, BACKEND_FLOATS, page, true, &r.info)
                    : backend_opencl.page_copy(r.model, (struct backend_page){0}, BACKEND_FLOATS, page, false, &r.info);
            ck_assert_int_eq(err, i == 0 ? ERR_NOMEM : ERR_OK);
        }
    }
    fake_opencl_arm("clEnqueueReadBuffer:1!:CL_OUT_OF_RESOURCES");
    ck_assert_int_eq(backend_opencl.page_copy(r.model, (struct backend_page){0}, BACKEND_OWN, page, false, &r.info),
                     ERR_LOST);
    ck_assert_int_eq(opencl_rig_begin(&r), ERR_LOST);
}
END_TEST

/* They have no values, for which there is no call. */
START_TEST(a_page_of_latents)
{
    static float page[1 << 16];
    opencl_rig_fini(&r);
    opencl_rig_init(&r, "deepseek2-v2");
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    ck_assert_uint_le(backend_page_floats(r.plan) * sizeof(float), sizeof page);
    fake_opencl_arm("");
    ck_assert_int_eq(backend_opencl.page_copy(r.model, (struct backend_page){0}, BACKEND_FLOATS, page, true, &r.info),
                     ERR_OK);
    ck_assert_int_eq(backend_opencl.page_copy(r.model, (struct backend_page){0}, BACKEND_OWN, page, false, &r.info),
                     ERR_OK);
    ck_assert_int_eq(fake_opencl_calls("clEnqueueWriteBuffer"), r.plan->n_layers);
    ck_assert_int_eq(fake_opencl_calls("clEnqueueReadBuffer"), r.plan->n_layers);
}
END_TEST

/* --- what a token costs --------------------------------------------------------------------------------------------- */

/* A step of one row after OPENCL_RIG_ROWS others that have been computed. */
static struct backend_counts count_token(int32_t pos)
{
    static const int32_t token = 7, zero = 0, pages[2] = {1, 0};
    static const int32_t *const tables = pages;
    const struct backend_batch b = {.n_rows = 1,
                                    .tokens = &token,
                                    .pos = &pos,
                                    .seq = &zero,
                                    .n_seqs = 1,
                                    .page_tables = &tables,
                                    .n_logits = 1,
                                    .logit_rows = &zero,
                                    .logits = r.logits,
                                    .stats = &r.stats};
    struct backend_info info;
    ck_assert_int_eq(backend_compute(&backend_opencl, r.model, &b, &r.info), ERR_OK);
    backend_opencl.info(r.model, &info);
    return info.counts;
}

/* In the file, of all that a token is multiplied by, with rows to whole panels of 32, of which these models have few; they
 * have no experts. */
static double weights_of(const struct plan *p)
{
    const struct plan_operand *o;
    double bytes = 0;
    int32_t id;
    for (int32_t i = 0; i < p->n_steps; i++) {
        for (int k = 0; (o = plan_next_operand(&p->steps[i], &k, &id)) != NULL;) {
            bytes += !plan_is_buf(o) && (o->flags & PLAN_MULTIPLIES) != 0
                         ? (double)p->weights[id].row_bytes * ((p->weights[id].n_out + 31) / 32 * 32)
                         : 0;
        }
    }
    return bytes;
}

/* A layer is 9 launches, and all else 4 (e2e/bench_test.py). More where heads are narrower than a block, as here, whose
 * values become codes by a launch of their own, where queries, keys and values are of three kinds, which are three products,
 * and gate and up of two; fewer where products take floats as they are. */
START_TEST(launches_and_bytes_of_a_token)
{
    static const struct {
        const char *model, *quantize;
        uint32_t per_layer;
        double most; /* bytes, as a share of the weights': rows of 160 inputs become 192, and Q3_K takes more */
    } models[] = {
        {"llama-gqa-tied", "q8_0", 10, 1.05}, {"llama-gqa-tied", "off", 9, 1.03}, {"llama-quants", "off", 14, 1.05}};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        opencl_rig_fini(&r);
        opencl_rig_init(&r, models[i].model);
        ck_assert_int_eq(plan_quantize(r.plan, models[i].quantize, &r.info), ERR_OK);
        ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
        ck_assert_int_eq(opencl_rig_begin(&r), ERR_OK);
        ck_assert_int_eq(opencl_rig_wait(&r), ERR_OK);
        struct backend_counts c = count_token(OPENCL_RIG_ROWS);
        ck_assert_msg(c.launches == models[i].per_layer * r.plan->n_layers + 4, "%s: %llu launches in %u layers",
                      models[i].model, (unsigned long long)c.launches, r.plan->n_layers);
        double share = (double)c.weight_bytes / weights_of(r.plan);
        ck_assert_msg(share >= 1 && share <= models[i].most, "%s: %.3f of the weights' bytes", models[i].model, share);
        double cache = (double)backend_page_floats(r.plan) / KV_PAGE_TOKENS * 2 * (OPENCL_RIG_ROWS + 1);
        ck_assert_msg((double)c.cache_bytes >= cache && (double)c.cache_bytes <= 1.03 * cache,
                      "%s: %.3f of the cache's bytes", models[i].model, (double)c.cache_bytes / cache);
    }
}
END_TEST

START_TEST(a_device_is_measured)
{
    struct backend_rates rates;
    ck_assert_int_eq(opencl_rig_open(&r), ERR_OK);
    ck_assert_int_eq(backend_opencl.rate(r.model, &rates, &r.info), ERR_OK);
    ck_assert(rates.launch_s > 0 && rates.queued_launch_s > 0 && rates.copy_bytes_s > 0);
    fake_opencl_arm("clSetKernelArg:1:CL_OUT_OF_RESOURCES");
    ck_assert_int_eq(backend_opencl.rate(r.model, &rates, &r.info), ERR_LOST);
}
END_TEST

Suite *backend_opencl_suite(void)
{
    Suite *s = suite_create("backend_opencl");
    TCase *t = tcase_create("faults");
    tcase_set_tags(t, "fork");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, each_call_of_open_fails, 0, 1);
    tcase_add_test(t, each_call_of_loading_fails);
    tcase_add_test(t, threads_make_the_same_weights);
    tcase_add_test(t, the_file_is_done_with);
    tcase_add_test(t, measuring_opens_nothing);
    tcase_add_loop_test(t, host_memory_runs_out_while_it_is_opened, 0, 1);
    tcase_add_test(t, a_program_that_is_refused);
    tcase_add_test(t, compiling_is_progress_and_can_be_given_up);
    tcase_add_test(t, a_batch_without_memory_harms_no_other);
    tcase_add_test(t, a_device_is_gone_between_two_steps);
    tcase_add_test(t, a_device_is_gone_while_a_batch_is_waited_for);
    tcase_add_test(t, a_queue_that_cannot_be_emptied_is_lost);
    tcase_add_test(t, a_page_of_a_device_that_is_gone);
    tcase_add_test(t, a_page_of_latents);
    tcase_add_test(t, a_device_is_measured);
    suite_add_tcase(s, t);
    TCase *counts = tcase_create("counts");
    tcase_set_tags(counts, "long"); /* tests/run.sh; models that PoCL compiles and computes, opened as in others */
    tcase_set_timeout(counts, 120);
    tcase_add_checked_fixture(counts, set_up, tear_down);
    tcase_add_test(counts, launches_and_bytes_of_a_token);
    tcase_add_loop_test(counts, each_call_of_open_fails, 1, 2); /* more of the same kind */
    tcase_add_loop_test(counts, host_memory_runs_out_while_it_is_opened, 1, 2);
    suite_add_tcase(s, counts);
    return s;
}
