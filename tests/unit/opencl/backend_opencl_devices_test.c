/* A model on two devices, which PoCL makes of one CPU: the bits of either alone, in whatever order, and pages and states
 * that go from one to several and back. */
#include "engine/backend/backend_layers.h"
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *backend_opencl_devices_suite(void);

enum { ROWS = 6, N_PAGES = 2, MAX_VOCAB = 1024, MAX_LEFT = 1 << 20 };

static struct gguf *g;
static struct plan *plan; /* layers with short convolutions, and with attention */

static void set_up(void)
{
    struct err_info info = {0};
    setenv("POCL_DEVICES", "pthread pthread",
           1); /* devices are looked for once a process, which a test has to itself */
    ck_assert_int_eq(gguf_open("tests/golden/models/lfm2-conv.gguf", &g, &info), ERR_OK);
    ck_assert_int_eq(model_build(g, 0, &plan, &info), ERR_OK);
    ck_assert_uint_le(plan->n_vocab, MAX_VOCAB);
}

static void tear_down(void)
{
    plan_free(&plan);
    gguf_close(&g);
}

/* The model on the devices of a list. */
struct side {
    struct backend_parts parts;
    struct backend_config cfg;
    const struct backend *backend;
    struct backend_model *m;
};

static void place_on(struct side *s, const char *list)
{
    struct err_info info = {0};
    s->parts = (struct backend_parts){.n = 1, .at = {{&backend_opencl, 0, (int32_t)plan->n_layers - 1, ""}}};
    s->cfg = (struct backend_config){.device = list,
                                     .parts = &s->parts,
                                     .n_threads = 1,
                                     .n_pages = N_PAGES,
                                     .n_states = 1,
                                     .max_rows = ROWS,
                                     .max_logits = 1};
    ck_assert_msg(backend_layers_place(NULL, plan, &s->cfg, &s->parts, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(s->parts.n, strchr(list, ',') != NULL ? 2 : 1);
    s->backend = backend_of_parts(&s->parts);
}

static void open_on(struct side *s, const char *list)
{
    struct err_info info = {0};
    place_on(s, list);
    ck_assert_msg(s->backend->open(plan, &s->cfg, &s->m, &info) == ERR_OK, "%s", info.text);
}

/* Logits of the last of n rows from position `from` on. */
static void compute(struct side *s, int32_t from, int32_t n, float *logits)
{
    static const int32_t tokens[2 * ROWS] = {5, 3, 8, 2, 9, 4, 7, 1, 6}, seq[ROWS] = {0}, pages[1] = {1};
    static const int32_t *const table = pages;
    int32_t pos[ROWS], last = n - 1;
    struct backend_row_stats stats;
    struct err_info info = {0};
    for (int32_t i = 0; i < n; i++) {
        pos[i] = from + i;
    }
    const struct backend_batch b = {.n_rows = n,
                                    .tokens = tokens + from,
                                    .pos = pos,
                                    .seq = seq,
                                    .n_seqs = 1,
                                    .page_tables = &table,
                                    .n_logits = 1,
                                    .logit_rows = &last,
                                    .logits = logits,
                                    .stats = &stats};
    ck_assert_msg(backend_compute(s->backend, s->m, &b, &info) == ERR_OK, "%s", info.text);
}

/* What the sequence left, to `bytes` or from there: floats of its page, and its state. */
static void move(struct side *s, bool writes, char *bytes)
{
    char *state = bytes + backend_page_floats(plan) * sizeof(float);
    struct err_info info = {0};
    enum err err =
        writes ? s->backend->page_copy(s->m, (struct backend_page){.page = 1}, BACKEND_FLOATS, bytes, true, &info)
               : s->backend->page_copy(s->m, (struct backend_page){.page = 1}, BACKEND_FLOATS, bytes, false, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    err = writes ? s->backend->state_copy(s->m, 0, state, true, &info)
                 : s->backend->state_copy(s->m, 0, state, false, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
}

START_TEST(two_devices_compute_what_one_does)
{
    static const char *const lists[] = {"0", "0,1", "1,0"};
    static float logits[2][2][MAX_VOCAB];
    static char left[2][MAX_LEFT];
    struct backend_info told[2];
    size_t bytes = plan->n_vocab * sizeof(float), live = mem_live();
    size_t n_left = (backend_page_floats(plan) + (size_t)plan->recurrent_floats) * sizeof(float);
    ck_assert_uint_le(n_left, sizeof left[0]);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        struct side s;
        int at = i > 0;
        open_on(&s, lists[i]);
        compute(&s, 0, ROWS, logits[at][0]);
        move(&s, false, left[at]);
        compute(&s, ROWS, 3, logits[at][1]);
        s.backend->info(s.m, &told[at]);
        if (i > 0) {
            ck_assert_msg(memcmp(logits[0], logits[1], sizeof logits[0]) == 0, "--device %s: other logits", lists[i]);
            ck_assert_msg(memcmp(left[0], left[1], n_left) == 0, "--device %s: other keys, values, states", lists[i]);
            ck_assert(told[0].counts.launches != 0 && told[0].counts.launches <= told[1].counts.launches);
            ck_assert_uint_eq(told[0].counts.weight_bytes, told[1].counts.weight_bytes);
            move(&s, true, left[0]); /* of one device */
            compute(&s, ROWS, 3, logits[1][1]);
            ck_assert_msg(memcmp(logits[0][1], logits[1][1], bytes) == 0, "--device %s: goes on elsewhere", lists[i]);
        }
        s.backend->close(&s.m);
        ck_assert_uint_eq(mem_live(), live);
    }
}
END_TEST

/* What each device takes stands in a memory of its own. */
START_TEST(each_device_has_its_share)
{
    struct err_info info = {0};
    struct backend_measure m, whole;
    struct backend_device d;
    struct side s;
    place_on(&s, "0,1");
    ck_assert_int_eq(s.backend->measure(plan, &s.cfg, &m, &info), ERR_OK);
    ck_assert_int_eq(s.backend->probe(&s.cfg, 0, &d, &info), ERR_OK);
    s.cfg.device = "0";
    ck_assert_int_eq(backend_opencl.measure(plan, &s.cfg, &whole, &info), ERR_OK);
    const struct backend_bytes *first = &m.bytes[BACKEND_DEVICE], *second = first + 1,
                               *all = &whole.bytes[BACKEND_DEVICE];
    ck_assert(first->weights != 0 && second->weights != 0 && first->weights + second->weights >= all->weights);
    ck_assert(first->state + second->state == all->state && first->page + second->page == all->page);
    for (int i = BACKEND_DEVICE; i < BACKEND_DEVICE + 2; i++) {
        ck_assert(d.bytes[i] != 0 && d.is_shared[i]);
    }
    ck_assert(d.bytes[BACKEND_DEVICE + 2] == 0);
}
END_TEST

Suite *backend_opencl_devices_suite(void)
{
    Suite *s = suite_create("backend_opencl_devices");
    TCase *t = tcase_create("backend_opencl_devices");
    tcase_set_tags(t, "fork");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, two_devices_compute_what_one_does);
    tcase_add_test(t, each_device_has_its_share);
    suite_add_tcase(s, t);
    return s;
}
