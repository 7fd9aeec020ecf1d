/* How much memory requests may take: decided once from the options, the machine, its control group and an address-space
 * limit (RLIMIT_AS), such that every connection that is taken has what libfcgi and its thread need.
 * Threads: memory_plan before serving and again by the thread that loads the model; memory_has_room from any. */
#ifndef INFCGI_FCGI_MEMORY_H
#define INFCGI_FCGI_MEMORY_H

#include "engine/base/err.h"
#include "fcgi/conf/conf.h"

#include <stdbool.h>
#include <stddef.h>

/* What the machine leaves. */
struct memory_found {
    size_t machine_bytes; /* physical, or what the control group may have */
    size_t room_bytes;    /* of address space beside what is in use now; SIZE_MAX: no limit */
};

struct memory_plan {
    size_t budget_bytes; /* all requests: bodies, trees, prompts, answers */
    size_t share_bytes;  /* one request */
    int n_connections;   /* taken at once; --max-connections, or fewer under an address-space limit */
};

struct memory_found memory_look(void);

/* connection_bytes: what a connection takes beside the budget. is_loaded: the model is in memory; until then little is
 * given under an address-space limit, as the model needs what is left. ERR_MEMORY_LIMIT: too little is left, or less
 * than --request-memory asks for. */
MUST_CHECK enum err memory_plan(const struct conf *conf, const struct memory_found *found, size_t connection_bytes,
                                bool is_loaded, struct memory_plan *out, struct err_info *info);

/* What can still be had without taking it from anyone: of the machine, and of the control group. SIZE_MAX: not known. */
size_t memory_available(void);

/* ERR_MEMORY_LIMIT: a model that needs so many bytes has no room beside the one that serves. */
MUST_CHECK enum err memory_check_second(uint64_t need_bytes, size_t available_bytes, struct err_info *info);

/* False when the address space is nearly used up, whatever the plan was: then no connection should be taken. */
bool memory_has_room(void);

#endif
