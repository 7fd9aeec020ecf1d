/* Memory of a device: what is wanted is placed first, without taking any, so that the bytes are known; then all is taken
 * at once, in buffers no larger than the device allows, of which each thing is a part.
 * Threads: one at a time. */
#ifndef INFCGI_OPENCL_VRAM_H
#define INFCGI_OPENCL_VRAM_H

#include "opencl/device.h"

enum vram_purpose { VRAM_WEIGHTS, VRAM_KV, VRAM_STATES, VRAM_ACTIVATIONS, VRAM_PURPOSES };

struct vram; /* opaque */

MUST_CHECK enum err vram_new(const struct device_caps *caps, struct vram **out, struct err_info *info);
void vram_free(struct vram **v); /* and all that it took */

/* Places `bytes`, 0 as 1; *id names them. ERR_NOMEM: no buffer of the device holds so much, and `what` is named. */
MUST_CHECK enum err vram_place(struct vram *v, enum vram_purpose purpose, uint64_t bytes, const char *what, int32_t *id,
                               struct err_info *info);

/* Bytes that were placed for a purpose. */
uint64_t vram_bytes(const struct vram *v, enum vram_purpose purpose);

/* Takes all that was placed, as zeros. ERR_NOMEM. */
MUST_CHECK enum err vram_take(struct vram *v, const struct device *d, struct err_info *info);

/* What was placed, behind vram_take; borrowed. */
cl_mem vram_at(const struct vram *v, int32_t id);

#endif
