/* The table of families, and the one function that goes from a file to a plan. */
#include "engine/model/model.h"

#include <stdio.h>
#include <string.h>

extern const struct model_family model_gemma3;
extern const struct model_family model_llama;
extern const struct model_family model_qwen2;

static const struct model_family *const families[] = {
    &model_llama,
    &model_qwen2,
    &model_gemma3,
};

const struct model_family *model_family_at(int i)
{
    return i >= 0 && i < (int)ARRAY_LEN(families) ? families[i] : NULL;
}

static enum err unknown_arch(struct gguf_str arch, struct err_info *info)
{
    char known[256] = "";
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", families[i]->arch);
    }
    return err_set(info, ERR_UNSUPPORTED_ARCH, "general.architecture", "expected one of %s; found '%.*s'", known,
                   (int)MIN_OF(arch.len, (size_t)64), arch.data != NULL ? arch.data : "");
}

enum err model_build(const struct gguf *g, struct plan **out, struct err_info *info)
{
    *out = NULL;
    struct gguf_str arch;
    TRY(gguf_get_str_or_null(g, "general.architecture", &arch, info));
    const struct model_family *family = NULL;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        if (arch.len == strlen(families[i]->arch) && memcmp(arch.data, families[i]->arch, arch.len) == 0) {
            family = families[i];
        }
    }
    if (family == NULL) {
        return unknown_arch(arch, info);
    }
    struct plan *p;
    if (plan_new(&p) != ERR_OK) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the plan");
    }
    enum err err = family->build(g, p, info);
    if (err == ERR_OK) {
        err = plan_check(p, info);
    }
    if (err == ERR_NOMEM && info != NULL && info->code != ERR_NOMEM) {
        err_set(info, ERR_NOMEM, NULL, "out of memory for the plan");
    }
    if (err != ERR_OK) {
        plan_free(&p);
        return err;
    }
    *out = p;
    return ERR_OK;
}
