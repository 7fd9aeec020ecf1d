/* A back end around a real one that fails on request, to test what happens to requests. Programs that link it with
 * -Wl,--wrap=backend_find (unittests, infcgi_faulty) get it instead of the back end they look up once it is armed, or
 * if the environment has INFCGI_FAULT. CODE@N, such as backend_lost@20: batch N fails; hang@N: it never ends; nan@N: in
 * batch N of those with two rows of logits or more, the first row is NaN. Threads: arm from one thread at a time. */
#ifndef INFCGI_TEST_FAULTY_BACKEND_H
#define INFCGI_TEST_FAULTY_BACKEND_H

#include "engine/backend/backend.h"

#define FAULTY_BACKEND_WHY "told to fail by a test" /* the cause */

/* Makes the n-th batch from now on (0 = the next) fail with `code`; n < 0: none. Applies to engines opened
 * afterwards. */
void faulty_backend_arm(long n, enum err code);

/* Engines opened from now on find a first, unusable device. If the host's memory is more than one byte, they find a
 * second device with this much host memory and this much of its own for weights, pages and states. 0, 0: no change. */
void faulty_backend_shrink(size_t host, size_t device);

/* From now on, the device's own memory is the host's. */
void faulty_backend_share(bool is_shared);

#endif
