/* A candidate for the next token: back ends find them in a row of logits, and the sampler draws from them. */
#ifndef INFCGI_BASE_CANDIDATE_H
#define INFCGI_BASE_CANDIDATE_H

#include <stdint.h>

/* The better of two has the higher logit or, if they are equal, the lower id. */
struct candidate {
    int32_t id;
    float logit;
};

#endif
