/* Assigns layers of a model to back ends, as --backend says. Threads: pure. */
#ifndef INFCGI_BACKEND_BACKEND_PARTS_H
#define INFCGI_BACKEND_BACKEND_PARTS_H

#include "engine/backend/backend.h"
#include "engine/base/buf.h"

struct backend_part {
    const struct backend *backend;
    int32_t first, last;           /* layers */
    char device[BACKEND_ID_BYTES]; /* backend_config.device of this part; "": the common one */
};

struct backend_parts {
    int n;
    struct backend_part at[BACKEND_MAX_PARTS]; /* in order, without gaps */
};

/* Parses NAME[:FIRST-LAST] of each part, separated by commas: "cpu", "ref:0-3,cpu". Layers are in order from 0, without
 * gaps; the last part can omit its range and then gets the rest. n_layers: of the model; 0 = unknown, and an open end
 * has last -1. `what`: the option's name for messages. ERR_CONFIG says what was expected. */
MUST_CHECK enum err backend_parts_parse(const char *text, const char *what, uint32_t n_layers,
                                        struct backend_parts *out, struct err_info *info);

/* Appends "ref:0-3,cpu:4-29"; for one part only its name. Check with buf_ok. */
void backend_parts_name(const struct backend_parts *p, struct buf *out);

/* Returns the configuration of a part's back end, derived from the common one. The text is owned by the part. */
struct backend_config backend_part_config(const struct backend_part *p, const struct backend_config *cfg);

/* Returns the device of a part. Errors: as backend_device_of. */
MUST_CHECK enum err backend_part_device(const struct backend_part *p, const struct backend_config *cfg,
                                        struct backend_device *out, struct err_info *info);

/* Returns the index of part i's device memory in the backend_device and backend_measure of all parts. Parts on one
 * device share one memory. */
int backend_parts_memory(const struct backend_parts *p, int i);

/* Returns the back end to open with backend_config.parts: the part's own if there is one part, on the configured
 * device; else backend_composite (composite/backend_composite.c). There each part has its own pages and states with
 * common ids, and computes from the rows of the previous part. A page or a state consists of the parts' pages or states
 * in sequence. The last part determines how many batches can be unfinished. */
const struct backend *backend_of_parts(const struct backend_parts *p);
extern const struct backend backend_composite;

#endif
