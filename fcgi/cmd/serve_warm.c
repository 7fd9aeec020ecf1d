/* Before a server says it is ready: what a request would touch first is touched. Only what is slow once is worth a line
 * here; docs/internals/scheduler.md has the figures. */
#include "fcgi/cmd/serve_warm.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <jansson.h>
#include <string.h>

/* A conversation becomes ids, and these are thrown away. */
static void warm_chat(struct engine *e, const struct chat_template *t)
{
    const struct engine_model_info *m = engine_model(e);
    struct chat_output text = {0};
    struct err_info info;
    int32_t *ids = NULL;
    size_t n;
    json_t *context =
        json_pack("{s:[{s:s,s:s}],s:b,s:s,s:s}", "messages", "role", "user", "content", "What is 1 + 1, I'd ask?",
                  "add_generation_prompt", 1, "bos_token", m->bos_text, "eos_token", m->eos_text);
    if (context != NULL &&
        chat_template_render(t, context, clock_unix_seconds(), &text, &info) == ERR_OK &&
        engine_tokenize(e, text.text, text.len, true, true, NULL, 0, NULL, &ids, &n, &info) == ERR_OK) {
        mem_free(ids);
    }
    chat_output_fini(&text);
    json_decref(context);
}

void serve_warm(struct engine *e, const struct chat_template *t)
{
    if (t != NULL) {
        warm_chat(e, t);
    }
    engine_warm(e);
}
