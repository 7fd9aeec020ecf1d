/* A SafeTensors file: header and data. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/utf8.h"
#include "engine/format/safetensors.h"

#include <string.h>

void safetensors_fuzz(const unsigned char *data, size_t n);

void safetensors_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct safetensors *s = NULL;
    if (fuzz_is_ok(safetensors_open_memory(data, n, &s, &info), &info)) {
        const unsigned char *end = data + n;
        uint64_t all = 0;
        for (size_t i = 0; i < safetensors_n_tensors(s); i++) {
            const struct st_tensor *t = safetensors_at(s, i);
            const unsigned char *at = t->data;
            assert(utf8_valid(t->name, strlen(t->name), NULL));
            assert(t->bytes == 0 || (at >= data && at <= end && t->bytes <= (uint64_t)(end - at)));
            all += t->bytes;
        }
        assert(all <= n); /* none lies over another */
    }
    safetensors_close(&s);
}
