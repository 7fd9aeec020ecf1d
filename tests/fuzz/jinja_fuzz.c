/* A chat template and what it is rendered with. Parts of the input: the template, a JSON object of variables; without
 * one a conversation with a tool. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/json_read.h"
#include "engine/base/utf8.h"
#include "engine/chat/chat_template.h"
#include "engine/jinja/jinja.h"

void jinja_fuzz(const unsigned char *data, size_t n);

enum { MAX_DEPTH = 32 };

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi "
    "<b>\\u00e4</b>\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{"
    "\"name\":"
    "\"f\",\"arguments\":{\"x\":[1,2.5,true,null]}}}]},{\"role\":\"tool\",\"content\":\"7\",\"tool_call_id\":\"c1\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

/* Spans of users' text are sorted, apart and within it. */
static void look_at(const struct chat_output *out)
{
    size_t from = 0;
    assert(out->len <= JINJA_MAX_OUTPUT_BYTES && out->text[out->len] == '\0');
    for (size_t i = 0; i < out->n_user; i++) {
        assert(out->user[i].from >= from && out->user[i].from < out->user[i].to && out->user[i].to <= out->len);
        from = out->user[i].to;
    }
}

void jinja_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct chat_template *t = NULL;
    struct chat_output out = {0};
    json_t *context = NULL;
    struct gguf_str source = fuzz_part(&data, &n), variables = fuzz_part(&data, &n);
    if (variables.len == 0) {
        variables = (struct gguf_str){conversation, sizeof conversation - 1};
    }
    if (fuzz_is_ok(chat_template_new(source.data, source.len, &t, &info), &info) &&
        fuzz_is_ok(json_read(variables.data, variables.len, MAX_DEPTH, "variables", &context, &info), &info) &&
        fuzz_is_ok(chat_template_render(t, context, 1700000000, &out, &info), &info)) {
        look_at(&out);
    }
    chat_output_fini(&out);
    json_decref(context);
    chat_template_free(&t);
}
