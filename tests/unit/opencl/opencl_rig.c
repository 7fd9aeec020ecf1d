/* Opening a golden model, and one batch of it. */
#include "tests/unit/opencl/opencl_rig.h"

#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "tests/support/fake_opencl.h"

#include <check.h>
#include <stdio.h>

void opencl_rig_init(struct opencl_rig *r, const char *name)
{
    char path[256];
    *r = (struct opencl_rig){.cfg = {.n_threads = 1, .n_pages = 2, .n_states = 1, .max_rows = 8, .max_logits = 2}};
    r->live = mem_live();
    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", name);
    ck_assert_msg(model_open(path, &r->file, &r->info) == ERR_OK, "%s", r->info.text);
    ck_assert_msg(model_build(r->file, 0, &r->plan, &r->info) == ERR_OK, "%s", r->info.text);
    ck_assert_uint_le(r->plan->n_vocab, OPENCL_RIG_MAX_LOGITS);
}

void opencl_rig_fini(struct opencl_rig *r)
{
    opencl_rig_close(r);
    plan_free(&r->plan);
    gguf_close(&r->file);
    ck_assert_uint_eq(mem_live(), r->live);
}

enum err opencl_rig_open(struct opencl_rig *r)
{
    size_t live = mem_live();
    enum err err = backend_opencl.open(r->plan, &r->cfg, &r->model, &r->info);
    if (err != ERR_OK) {
        ck_assert_ptr_null(r->model);
        ck_assert_int_eq(fake_opencl_live(), 0);
        ck_assert_uint_eq(mem_live(), live);
    }
    return err;
}

void opencl_rig_close(struct opencl_rig *r)
{
    backend_opencl.close(&r->model);
    ck_assert_int_eq(fake_opencl_live(), 0);
}

enum err opencl_rig_begin(struct opencl_rig *r)
{
    static const int32_t tokens[OPENCL_RIG_ROWS] = {5, 3, 8, 2, 9, 4}, pos[OPENCL_RIG_ROWS] = {0, 1, 2, 3, 4, 5};
    static const int32_t seq[OPENCL_RIG_ROWS] = {0}, last = OPENCL_RIG_ROWS - 1, pages[2] = {1, 0};
    static const int32_t *const tables = pages;
    const struct backend_batch b = {.n_rows = OPENCL_RIG_ROWS,
                                    .tokens = tokens,
                                    .pos = pos,
                                    .seq = seq,
                                    .n_seqs = 1,
                                    .page_tables = &tables,
                                    .n_logits = 1,
                                    .logit_rows = &last,
                                    .logits = r->logits,
                                    .stats = &r->stats};
    return backend_opencl.begin(r->model, &b, &r->info);
}

enum err opencl_rig_wait(struct opencl_rig *r) { return backend_opencl.wait(r->model, &r->info); }
