/* A token that may come next: what back ends find in a row of logits, and the sampler draws from. */
#ifndef INFCGI_BASE_CANDIDATE_H
#define INFCGI_BASE_CANDIDATE_H

#include <stdint.h>

/* The better of two has the higher logit; of equals, the lower id. */
struct candidate {
    int32_t id;
    float logit;
};

#endif
