/* Prints the programs that the OpenCL back end requests from a compiler, for models and for each pair of types of keys
 * and values: lines of `file options`, one per request. It compiles nothing: measure converts all steps. The linker puts
 * __wrap_program_want between the steps and program_want.
 *   device_programs MODEL... */
#include "engine/backend/backend_parts.h"
#include "engine/model/model.h"
#include "opencl/program.h"

#include <stdio.h>

extern const struct backend backend_opencl;
enum err __real_program_want(struct program_set *s, const char *file, const char *options, struct err_info *info);
enum err __wrap_program_want(struct program_set *s, const char *file, const char *options, struct err_info *info);

enum err __wrap_program_want(struct program_set *s, const char *file, const char *options, struct err_info *info)
{
    printf("%s %s\n", file, options);
    return __real_program_want(s, file, options, info);
}

/* Converts steps for any number of rows. */
static enum err ask(const struct plan *plan, const char *k_type, const char *v_type, struct err_info *info)
{
    struct backend_config cfg = {.k_type = k_type,
                                 .v_type = v_type,
                                 .n_threads = 1,
                                 .n_pages = 16,
                                 .n_states = 2,
                                 .max_rows = 64,
                                 .max_logits = 64};
    struct backend_measure m;
    return backend_opencl.measure(plan, &cfg, &m, info);
}

int main(int argc, char **argv)
{
    static const char *const types[] = {"f16", "q8_0"};
    for (int i = 1; i < argc; i++) {
        struct gguf *g = NULL;
        struct plan *plan = NULL;
        struct err_info info = {0};
        enum err err = model_open(argv[i], &g, &info);
        err = err != ERR_OK ? err : model_build(g, 0, &plan, &info);
        for (int how = 0; how < 4 && err == ERR_OK; how++) {
            err = ask(plan, types[how / 2], types[how % 2], &info);
        }
        plan_free(&plan);
        gguf_close(&g);
        if (err != ERR_OK) {
            fprintf(stderr, "%s: %s: %s\n", argv[i], err_code(err), info.text);
            return 1;
        }
    }
    return 0;
}
