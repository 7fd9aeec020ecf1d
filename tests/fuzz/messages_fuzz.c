/* The messages and tools of a chat request: checked, and what passes rendered by every template that has a name. */
#include "tests/fuzz/fuzz.h"

#include "engine/chat/chat_named.h"
#include "fcgi/api/messages.h"
#include "fcgi/api/tools.h"

void messages_fuzz(const unsigned char *data, size_t n);

enum { MAX_TEMPLATES = 128 };

static struct chat_template *templates[MAX_TEMPLATES];
static size_t n_templates;

static void parse_templates(void)
{
    struct err_info info = {0};
    for (const struct chat_named *row; (row = chat_named_at((int)n_templates)) != NULL;) {
        assert(n_templates < MAX_TEMPLATES);
        enum err err = chat_named_new(row, &templates[n_templates++], &info);
        assert(err == ERR_OK);
    }
}

/* Every message has a role that templates know, and a content that is a string or null. */
static void look_at(const json_t *messages)
{
    assert(json_array_size(messages) > 0);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content");
        assert(json_is_string(json_object_get(m, "role")) && !json_read_is(json_object_get(m, "role"), "developer"));
        assert(json_is_string(content) || json_is_null(content));
    }
}

static void render(json_t *root)
{
    int is_bad = json_object_set_new(root, "bos_token", json_string("<s>"));
    is_bad |= json_object_set_new(root, "eos_token", json_string("</s>"));
    assert(is_bad == 0);
    for (size_t i = 0; i < n_templates; i++) {
        struct err_info info = {0};
        struct chat_output out = {0};
        (void)fuzz_is_ok(chat_template_render(templates[i], root, 1700000000, &out, &info), &info);
        chat_output_fini(&out);
    }
}

void messages_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    json_t *root = NULL;
    struct tools tools = {.list = NULL};
    if (n_templates == 0) {
        parse_templates();
    }
    if (fuzz_is_ok(json_in_parse((const char *)data, n, &root, &info), &info) &&
        fuzz_is_ok(messages_check(json_object_get(root, "messages"), &info), &info) &&
        fuzz_is_ok(tools_read(root, &tools, &info), &info) && fuzz_is_ok(tools_check(&tools, false, &info), &info)) {
        look_at(json_object_get(root, "messages"));
        render(root);
    }
    tools_fini(&tools);
    json_decref(root);
}
