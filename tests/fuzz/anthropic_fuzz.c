/* A request of Anthropic's API: what is read from it, the checks of every chat then know. */
#include "tests/fuzz/fuzz.h"

#include "fcgi/api/anthropic/anthropic_input.h"
#include "fcgi/api/messages.h"

#include <string.h>

void anthropic_fuzz(const unsigned char *data, size_t n);

/* Of its messages only their number may be wrong, as all else has a place in the body; of the rest, tools. */
static void check(struct params *p)
{
    struct err_info info = {0};
    assert(fuzz_is_ok(messages_check(p->messages, &info), &info) || strcmp(info.where, "messages") == 0);
    info = (struct err_info){0};
    assert(fuzz_is_ok(tools_check(&p->tools, false, &info), &info) || strncmp(info.where, "tool", 4) == 0);
    assert(strstr(info.where, "].function") == NULL);
}

void anthropic_fuzz(const unsigned char *data, size_t n)
{
    static struct conf conf;
    static struct server server = {.conf = &conf};
    for (int is_answered = 0; is_answered < 2; is_answered++) {
        struct err_info info = {0};
        struct call call = {.server = &server, .engine = fuzz_engine()};
        struct params p;
        params_init(&p, &call);
        arena_init(&call.arena, 0, 0, MEM_REQUEST);
        if (fuzz_is_ok(json_in_parse((const char *)data, n, &call.json, &info), &info) &&
            fuzz_is_ok(anthropic_read(&call, is_answered == 1, &p, &info), &info)) {
            assert(is_answered == 0 || p.gen.max_tokens >= 0);
            check(&p);
        }
        params_fini(&p);
        arena_fini(&call.arena);
        call_drop_json(&call);
    }
}
