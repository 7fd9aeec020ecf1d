/* A GGUF file, as `infcgi inspect` and `infcgi serve` take it before weights are packed: directory, tokenizer, chat
 * template, plan. */
#include "tests/fuzz/fuzz.h"

#include "engine/model/model.h"

void gguf_fuzz(const unsigned char *data, size_t n);

void gguf_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct gguf *g = NULL;
    struct plan *p = NULL;
    if (fuzz_is_ok(gguf_open_memory(data, n, &g, &info), &info)) {
        static const char text[] = "Hello, w\xC3\xB6rld!\n\n  12345 <s>\xFF\xE4\xB8\xAD";
        fuzz_use_model(g, (struct gguf_str){text, sizeof text - 1});
        if (fuzz_is_ok(model_build(g, 0, &p, &info), &info)) {
            plan_free(&p);
        }
    }
    gguf_close(&g);
}
