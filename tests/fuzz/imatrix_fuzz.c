/* An importance matrix, in either form. */
#include "tests/fuzz/fuzz.h"

#include "engine/convert/imatrix.h"
#include "tests/fuzz/fuzz_folder.h"

#include <math.h>

void imatrix_fuzz(const unsigned char *data, size_t n);

void imatrix_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct imatrix *m = NULL;
    fuzz_folder_write("imatrix", (struct gguf_str){(const char *)data, n});
    if (fuzz_is_ok(imatrix_open(fuzz_folder_path("imatrix"), &m, &info), &info)) {
        uint64_t n_values = 0;
        const float *values = imatrix_find(m, "blk.0.attn_q.weight", &n_values);
        for (uint64_t i = 0; values != NULL && i < n_values; i++) {
            assert(values[i] >= 0 && isfinite(values[i]));
        }
    }
    imatrix_close(&m);
}
