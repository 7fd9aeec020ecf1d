/* A golden model on the OpenCL device that is here, for tests of what becomes of it when calls fail
 * (tests/support/fake_opencl.h). What must work and does not fails the running test. Threads: one at a time. */
#ifndef INFCGI_TEST_OPENCL_RIG_H
#define INFCGI_TEST_OPENCL_RIG_H

#include "engine/backend/backend.h"

enum { OPENCL_RIG_ROWS = 6, OPENCL_RIG_MAX_LOGITS = 1024 };

struct opencl_rig {
    struct gguf *file;
    struct plan *plan;
    struct backend_config cfg; /* for opencl_rig_open, which may be changed */
    struct backend_model *model;
    size_t live;                         /* bytes before it */
    struct err_info info;                /* of the last failure */
    float logits[OPENCL_RIG_MAX_LOGITS]; /* of opencl_rig_begin */
    struct backend_row_stats stats;
};

/* tests/golden/models/NAME.gguf, not opened yet; and its end, when nothing of OpenCL may be left. */
void opencl_rig_init(struct opencl_rig *r, const char *name);
void opencl_rig_fini(struct opencl_rig *r);

/* Errors: those of the back end. When open fails nothing of OpenCL is left. */
enum err opencl_rig_open(struct opencl_rig *r);
void opencl_rig_close(struct opencl_rig *r);

/* Begins OPENCL_RIG_ROWS rows of a new sequence, with the logits of the last. */
enum err opencl_rig_begin(struct opencl_rig *r);
enum err opencl_rig_wait(struct opencl_rig *r);

#endif
