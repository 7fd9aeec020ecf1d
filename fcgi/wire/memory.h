/* Decides how much memory requests can take, from the options, the machine, its control group and an address-space
 * limit (RLIMIT_AS), such that libfcgi and the thread of every accepted connection have the memory they need.
 * Threads: memory_plan before serving, and again in the thread that loads the model; memory_has_room in any. */
#ifndef INFCGI_FCGI_MEMORY_H
#define INFCGI_FCGI_MEMORY_H

#include "engine/base/err.h"
#include "fcgi/conf/conf.h"

#include <stdbool.h>
#include <stddef.h>

/* Available memory. */
struct memory_found {
    size_t machine_bytes; /* physical memory, or the control group's limit */
    size_t room_bytes;    /* free address space; SIZE_MAX: no limit */
};

struct memory_plan {
    size_t budget_bytes; /* for all requests: bodies, trees, prompts, answers */
    size_t share_bytes;  /* for one request */
    int n_connections;   /* accepted at the same time: --max-connections, or fewer under an address-space limit */
};

struct memory_found memory_look(void);

/* Computes the plan. is_loaded: the model is in memory;
 * before that the budget is small under an address-space limit, because the model needs the remaining space.
 * ERR_MEMORY_LIMIT: too little is left, or less than --request-memory demands. */
MUST_CHECK enum err memory_plan(const struct conf *conf, const struct memory_found *found, bool is_loaded,
                                struct memory_plan *out, struct err_info *info);

/* Returns the memory in bytes that is available in the machine and in the control group. SIZE_MAX: not known. */
size_t memory_available(void);

/* Checks that a second model of need_bytes fits next to the serving one. ERR_MEMORY_LIMIT: it does not. */
MUST_CHECK enum err memory_check_second(uint64_t need_bytes, size_t available_bytes, struct err_info *info);

/* Returns false if the address space is nearly used up, whatever the plan: accept no connection then. */
bool memory_has_room(void);

#endif
