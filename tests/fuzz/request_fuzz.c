/* The body of a request as chat and text completions read its fields, lenient and strict. */
#include "tests/fuzz/fuzz.h"

#include "fcgi/api/params.h"
#include <math.h>

void request_fuzz(const unsigned char *data, size_t n);

static void look_at(const struct params *p)
{
    assert(p->n >= 1 && p->n <= PARAMS_MAX_N && p->gen.max_tokens >= -1);
    assert(isfinite(p->gen.sampling.temperature) && p->gen.sampling.temperature >= 0);
    for (size_t i = 0; i < p->gen.sampling.n_bias; i++) {
        assert(p->gen.sampling.bias[i].id >= 0 &&
               (uint32_t)p->gen.sampling.bias[i].id < engine_model(fuzz_engine())->n_vocab &&
               !isnan(p->gen.sampling.bias[i].bias));
    }
}

void request_fuzz(const unsigned char *data, size_t n)
{
    for (int i = 0; i < 4; i++) {
        struct err_info info = {0};
        struct conf conf = {.strict_api = (i & 2) != 0};
        struct server server = {.conf = &conf};
        struct call call = {.server = &server, .engine = fuzz_engine()};
        const struct field_table *table = (i & 1) != 0 ? &fields_of_chat : &fields_of_completions;
        struct params p;
        params_init(&p, &call);
        arena_init(&call.arena, 0, 0, MEM_REQUEST);
        if (fuzz_is_ok(json_in_parse((const char *)data, n, &call.json, &info), &info) &&
            fuzz_is_ok(params_read(&p, &call, table, call.json, &info), &info)) {
            look_at(&p);
        }
        params_fini(&p);
        arena_fini(&call.arena);
        call_drop_json(&call);
    }
}
