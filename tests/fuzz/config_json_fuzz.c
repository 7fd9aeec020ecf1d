/* config.json of a SafeTensors folder, up to the plan. The input's first line is the name of a golden folder, whose
 * tensors the model then has; another name stands for the first one. */
#include "tests/fuzz/fuzz.h"

#include "engine/model/model.h"
#include "tests/fuzz/fuzz_folder.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void config_json_fuzz(const unsigned char *data, size_t n);

/* Puts the tensors of tests/golden/models/NAME.hf into the folder. */
static void link_tensors(struct gguf_str name)
{
    static glob_t found;
    static size_t linked = SIZE_MAX;
    size_t chosen = 0;
    if (found.gl_pathc == 0) {
        int status = glob("tests/golden/models/*.hf", 0, NULL, &found);
        assert(status == 0);
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *its = strrchr(found.gl_pathv[i], '/') + 1;
        chosen = strlen(its) == name.len + 3 && memcmp(its, name.data, name.len) == 0 ? i : chosen;
    }
    if (chosen != linked) {
        char *models = realpath(found.gl_pathv[chosen], NULL), path[512];
        int n = snprintf(path, sizeof path, "%s/model.safetensors", models);
        assert(models != NULL && n > 0 && (size_t)n < sizeof path);
        unlink(fuzz_folder_path("model.safetensors"));
        n = symlink(path, fuzz_folder_path("model.safetensors"));
        assert(n == 0);
        free(models);
        linked = chosen;
    }
}

void config_json_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct gguf *g = NULL;
    struct plan *p = NULL;
    struct gguf_str name = {(const char *)data, 0};
    const unsigned char *end = n > 0 ? memchr(data, '\n', n) : NULL;
    name.len = end != NULL ? (size_t)(end - data) : 0;
    fuzz_folder_write("config.json", (struct gguf_str){name.data + name.len, n - name.len});
    link_tensors(name);
    if (fuzz_is_ok(model_open(fuzz_folder_path("."), &g, &info), &info) &&
        fuzz_is_ok(model_build(g, 0, &p, &info), &info)) {
        plan_free(&p);
    }
    gguf_close(&g);
}
