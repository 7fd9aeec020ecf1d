/* The tensors are linked to, not copied. */
#include "tests/support/golden_folder.h"

#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "tests/support/folder.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODELS "tests/golden/models/"

static void write_config(const json_t *config)
{
    static const char mark[] = "\"INFINITY\"", bare[] = "Infinity";
    char *text = json_dumps(config, 0), *at;
    ck_assert_ptr_nonnull(text);
    at = strstr(text, mark);
    if (at != NULL) {
        memmove(at + sizeof bare - 1, at + sizeof mark - 1, strlen(at + sizeof mark - 1) + 1);
        memcpy(at, bare, sizeof bare - 1);
    }
    folder_write_text("config.json", text);
    mem_free(text); /* jansson's memory is mem.h's */
}

const char *golden_folder(const char *name, const char *key, const char *value)
{
    char path[512], *models = realpath(MODELS, NULL);
    ck_assert_ptr_nonnull(models);
    snprintf(path, sizeof path, "%s/%s.hf/config.json", models, name);
    json_t *config = json_load_file(path, 0, NULL);
    ck_assert_msg(config != NULL, "%s", path);
    json_t *v = value == NULL ? NULL : json_loads(value, JSON_DECODE_ANY, NULL);
    ck_assert_msg((key == NULL     ? json_object_update_recursive(config, v)
                   : value == NULL ? json_object_del(config, key)
                                   : json_object_set(config, key, v)) == 0,
                  "%s: %s: %s", name, key != NULL ? key : "all", value != NULL ? value : "is not there");
    json_decref(v);
    write_config(config);
    json_decref(config);
    snprintf(path, sizeof path, "%s/%s.hf/model.safetensors", models, name);
    ck_assert_int_eq(symlink(path, folder_file("model.safetensors")), 0);
    free(models);
    return folder_path();
}

void golden_memory_runs_out(const char *path)
{
    size_t live = mem_live();
    bool fired = true;
    for (long n = 0; fired; n++) {
        struct gguf *g = NULL;
        struct plan *p = NULL;
        struct err_info info = {0};
        ck_assert_int_lt(n, 100000);
        mem_fail_at(n);
        enum err err = model_open(path, &g, &info);
        err = err != ERR_OK ? err : model_build(g, 0, &p, &info);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == (fired ? ERR_NOMEM : ERR_OK), "allocation %ld: %s: %s", n, err_code(err), info.text);
        plan_free(&p);
        gguf_close(&g);
        ck_assert_uint_eq(mem_live(), live);
    }
}
