/* Memory of a device. Requests are placed first without allocating, so that the total is known. Then all is allocated
 * together, in buffers within the device's limit, of which each request is a part.
 * Threads: one at a time. */
#ifndef INFCGI_OPENCL_VRAM_H
#define INFCGI_OPENCL_VRAM_H

#include "opencl/device.h"

enum vram_purpose { VRAM_WEIGHTS, VRAM_KV, VRAM_STATES, VRAM_ACTIVATIONS, VRAM_PURPOSES };

struct vram; /* opaque */

MUST_CHECK enum err vram_new(const struct device_caps *caps, struct vram **out, struct err_info *info);
void vram_free(struct vram **v); /* and all memory that it allocated */

/* Places `bytes` (0 counts as 1) and sets *id, which is above 0. ERR_NOMEM: the request exceeds the largest buffer of the device; the
 * message has `what`. */
MUST_CHECK enum err vram_place(struct vram *v, enum vram_purpose purpose, uint64_t bytes, const char *what, int32_t *id,
                               struct err_info *info);

/* Returns the bytes placed for a purpose. */
uint64_t vram_bytes(const struct vram *v, enum vram_purpose purpose);

/* Allocates all that was placed, filled with zeros. ERR_NOMEM. */
MUST_CHECK enum err vram_take(struct vram *v, const struct device *d, struct err_info *info);

/* Returns placed memory, after vram_take; borrowed. NULL for id 0. */
cl_mem vram_at(const struct vram *v, int32_t id);

#endif
