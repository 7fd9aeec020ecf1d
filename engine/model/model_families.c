/* The table of families, and the functions that make a plan from a file. */
#include "engine/model/model.h"

#include "engine/hf/hf.h"
#include "engine/model/blocks.h"

#include <stdio.h>
#include <string.h>

/* One row per family. */
/* clang-format off */
#define FAMILIES(X) \
    X(llama) \
    X(smollm3) \
    X(mistral3) \
    X(qwen2) \
    X(qwen2moe) \
    X(qwen3) \
    X(qwen3moe) \
    X(qwen3next) \
    X(qwen35) \
    X(qwen35moe) \
    X(gemma2) \
    X(gemma3) \
    X(gemma3n) \
    X(gemma4) \
    X(phi3) \
    X(olmo2) \
    X(granite) \
    X(granitemoe) \
    X(granitehybrid) \
    X(glm4moe) \
    X(gpt_oss) \
    X(deepseek2) \
    X(lfm2) \
    X(lfm2moe) \
    X(gemma_embedding) \
    X(bert) \
    X(nomic_bert) \
    X(modern_bert)
/* clang-format on */

#define DECLARE(name) extern const struct model_family model_##name;
FAMILIES(DECLARE)

#define LIST(name) &model_##name,
static const struct model_family *const families[] = {FAMILIES(LIST) NULL};

const struct model_family *model_family_at(int i)
{
    return i >= 0 && i < (int)ARRAY_LEN(families) ? families[i] : NULL; /* the last is NULL too */
}

static enum err unknown_arch(const struct model_family *const *table, struct gguf_str arch, struct err_info *info)
{
    char known[ERR_TEXT_BYTES - 128] = "";
    for (size_t i = 0; table[i] != NULL; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", table[i]->arch);
    }
    return err_set(info, ERR_UNSUPPORTED_ARCH, "general.architecture", "expected one of %s; found '%.*s'", known,
                   (int)MIN_OF(arch.len, (size_t)64), arch.data != NULL ? arch.data : "");
}

enum err model_open(const char *path, struct gguf **out, struct err_info *info)
{
    if (!io_is_folder(path)) {
        return gguf_open(path, out, info);
    }
    const struct hf_family *all[ARRAY_LEN(families) * MODEL_MAX_HF] = {NULL};
    size_t n = 0;
    for (size_t i = 0; families[i] != NULL; i++) {
        for (size_t k = 0; k < MODEL_MAX_HF && families[i]->hf[k] != NULL; k++) {
            all[n++] = families[i]->hf[k];
        }
    }
    return hf_open(path, all, out, info);
}

enum err model_build_from(const struct model_family *const *table, const struct gguf *g, uint32_t n_ctx, bool predicts,
                          struct plan **out, struct err_info *info)
{
    *out = NULL;
    struct gguf_str arch;
    TRY(gguf_get_str_or_null(g, "general.architecture", &arch, info));
    const struct model_family *family = NULL;
    for (size_t i = 0; table[i] != NULL; i++) {
        if (gguf_str_is(arch, table[i]->arch)) {
            family = table[i];
        }
    }
    if (family == NULL) {
        return unknown_arch(table, arch, info);
    }
    struct plan *p;
    TRY_MEM_FOR(plan_new(&p) == ERR_OK, info, "out of memory for the plan");
    struct blocks b = {.g = g, .arch = family->arch, .n_ctx = n_ctx, .may_predict = predicts, .plan = p, .info = info};
    enum err err = family->build(&b);
    if (err == ERR_OK) {
        err = plan_check(p, info);
    }
    if (err == ERR_NOMEM && info != NULL && info->code != ERR_NOMEM) {
        err_set(info, ERR_NOMEM, NULL, "out of memory for the plan");
    }
    if (err != ERR_OK) {
        gguf_tell(g, info);
        plan_free(&p);
        return err;
    }
    *out = p;
    return ERR_OK;
}

enum err model_build(const struct gguf *g, uint32_t n_ctx, struct plan **out, struct err_info *info)
{
    return model_build_from(families, g, n_ctx, false, out, info);
}

enum err model_build_predicting(const struct gguf *g, uint32_t n_ctx, struct plan **out, struct err_info *info)
{
    return model_build_from(families, g, n_ctx, true, out, info);
}
