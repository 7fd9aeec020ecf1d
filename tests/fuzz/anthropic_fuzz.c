/* A request of Anthropic's API: turned into one of chat, which the checks behind it then know. */
#include "tests/fuzz/fuzz.h"

#include "fcgi/api/anthropic/anthropic_input.h"
#include "fcgi/api/messages.h"
#include "fcgi/api/tools.h"

#include <string.h>

void anthropic_fuzz(const unsigned char *data, size_t n);

/* Of its messages only their number may be wrong, as all else has a place in the body; of the rest, tools. */
static void check(json_t *chat)
{
    struct err_info info = {0};
    bool shown;
    assert(fuzz_is_ok(messages_check(chat, &info), &info) || strcmp(info.where, "messages") == 0);
    info = (struct err_info){0};
    assert(fuzz_is_ok(tools_check(chat, false, &shown, &info), &info) || strncmp(info.where, "tool", 4) == 0);
    anthropic_name_place(NULL, &info);
    assert(strstr(info.where, "].function") == NULL);
}

void anthropic_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    json_t *body = NULL, *chat = NULL;
    if (fuzz_is_ok(json_in_parse((const char *)data, n, &body, &info), &info) &&
        fuzz_is_ok(anthropic_to_chat(body, &chat, &info), &info)) {
        if (fuzz_is_ok(anthropic_add_answer(body, chat, &info), &info)) {
            assert(json_is_integer(json_object_get(chat, "max_tokens")));
        }
        check(chat);
    }
    json_decref(chat);
    json_decref(body);
}
