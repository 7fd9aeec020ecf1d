/* A back end that fails when it is told to, around a real one: for tests of what becomes of requests then. Programs that
 * link it with -Wl,--wrap=backend_find (unittests, infcgi_faulty) get it in place of the one they ask for once it is
 * armed, or where the environment says INFCGI_FAULT=CODE@N, as backend_lost@20, or hang@N: that batch never
 * ends, or nan@N: of the batches with two rows of logits or more, in that one the first row is NaN. Threads: arm from one at a time. */
#ifndef INFCGI_TEST_FAULTY_BACKEND_H
#define INFCGI_TEST_FAULTY_BACKEND_H

#include "engine/backend/backend.h"

#define FAULTY_BACKEND_WHY "told to fail by a test" /* the cause */

/* The n-th batch from now on (0 = the next) fails with `code`; n < 0: none does. Engines opened afterwards have it. */
void faulty_backend_arm(long n, enum err code);

/* Engines opened from now on find a first device that cannot be used and, with more than a byte of the host's memory, a
 * second with so much, and with so much of its own for weights, pages and states; 0, 0: as it is. */
void faulty_backend_shrink(size_t host, size_t device);

/* From now on, what it has of its own is the host's. */
void faulty_backend_share(bool is_shared);

#endif
