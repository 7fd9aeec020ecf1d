#include "fcgi/tenant/bucket.h"

#include "engine/base/compiler.h"

#define MINUTE_NS 6e10

void bucket_set(struct bucket *b, double per_minute, uint64_t now_ns)
{
    double taken = b->capacity > 0 ? b->capacity - bucket_level(b, now_ns) : 0;
    *b = (struct bucket){.capacity = per_minute, .level = per_minute - taken, .at_ns = now_ns};
}

double bucket_level(const struct bucket *b, uint64_t now_ns)
{
    double passed = now_ns > b->at_ns ? (double)(now_ns - b->at_ns) : 0;
    return MIN_OF(b->capacity, b->level + b->capacity * passed / MINUTE_NS);
}

uint64_t bucket_wait_ns(const struct bucket *b, double n, uint64_t now_ns)
{
    double missing = n - bucket_level(b, now_ns);
    if (b->capacity <= 0 || missing <= 0) {
        return 0;
    }
    return n > b->capacity ? UINT64_MAX : (uint64_t)(missing / b->capacity * MINUTE_NS) + 1;
}

void bucket_take(struct bucket *b, double n, uint64_t now_ns)
{
    b->level = MIN_OF(b->capacity, bucket_level(b, now_ns) - n);
    b->at_ns = now_ns;
}
