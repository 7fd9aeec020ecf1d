/* A golden model on the installed OpenCL device, to test the effects of failing calls (tests/support/fake_opencl.h). A
 * call that must succeed and fails, fails the running test. Threads: one at a time. */
#ifndef INFCGI_TEST_OPENCL_RIG_H
#define INFCGI_TEST_OPENCL_RIG_H

#include "engine/backend/backend.h"

enum { OPENCL_RIG_ROWS = 6, OPENCL_RIG_MAX_LOGITS = 1024 };

struct opencl_rig {
    struct gguf *file;
    struct plan *plan;
    struct backend_config cfg; /* for opencl_rig_open; can be changed before */
    struct backend_model *model;
    size_t live;                         /* bytes allocated before it */
    struct err_info info;                /* of the last failure */
    float logits[OPENCL_RIG_MAX_LOGITS]; /* of opencl_rig_begin */
    struct backend_row_stats stats;
};

/* Prepare tests/golden/models/NAME.gguf without opening it; free it, checking that no OpenCL object is left. */
void opencl_rig_init(struct opencl_rig *r, const char *name);
void opencl_rig_fini(struct opencl_rig *r);

/* Opens the model. Errors: those of the back end; after an error no OpenCL object is left. */
enum err opencl_rig_open(struct opencl_rig *r);
void opencl_rig_close(struct opencl_rig *r);

/* Begins OPENCL_RIG_ROWS rows of a new sequence, with the logits of the last. */
enum err opencl_rig_begin(struct opencl_rig *r);
enum err opencl_rig_wait(struct opencl_rig *r);

#endif
