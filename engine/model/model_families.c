/* The table of families, and the one function that goes from a file to a plan. */
#include "engine/model/model.h"

#include "engine/hf/hf.h"

#include <stdio.h>
#include <string.h>

enum { MAX_HF_FAMILIES = 64 };

extern const struct model_family model_bert;
extern const struct model_family model_deepseek2;
extern const struct model_family model_gemma2;
extern const struct model_family model_gemma3;
extern const struct model_family model_gemma3n;
extern const struct model_family model_gemma4;
extern const struct model_family model_glm4moe;
extern const struct model_family model_gpt_oss;
extern const struct model_family model_granite;
extern const struct model_family model_granitehybrid;
extern const struct model_family model_granitemoe;
extern const struct model_family model_lfm2;
extern const struct model_family model_lfm2moe;
extern const struct model_family model_llama;
extern const struct model_family model_mistral3;
extern const struct model_family model_nomic_bert;
extern const struct model_family model_olmo2;
extern const struct model_family model_phi3;
extern const struct model_family model_qwen2;
extern const struct model_family model_qwen2moe;
extern const struct model_family model_qwen3;
extern const struct model_family model_qwen35;
extern const struct model_family model_qwen35moe;
extern const struct model_family model_qwen3moe;
extern const struct model_family model_qwen3next;
extern const struct model_family model_smollm3;

/* A row each. */
/* clang-format off */
static const struct model_family *const families[] = {
    &model_llama,
    &model_smollm3,
    &model_mistral3,
    &model_qwen2,
    &model_qwen2moe,
    &model_qwen3,
    &model_qwen3moe,
    &model_qwen3next,
    &model_qwen35,
    &model_qwen35moe,
    &model_gemma2,
    &model_gemma3,
    &model_gemma3n,
    &model_gemma4,
    &model_phi3,
    &model_olmo2,
    &model_granite,
    &model_granitemoe,
    &model_granitehybrid,
    &model_glm4moe,
    &model_gpt_oss,
    &model_deepseek2,
    &model_lfm2,
    &model_lfm2moe,
    &model_bert,
    &model_nomic_bert,
    NULL,
};
/* clang-format on */

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
    const struct hf_family *all[MAX_HF_FAMILIES + 1] = {NULL};
    size_t n = 0;
    for (size_t i = 0; families[i] != NULL; i++) {
        for (const struct hf_family *const *f = families[i]->hf; f != NULL && *f != NULL && n < MAX_HF_FAMILIES; f++) {
            all[n++] = *f;
        }
    }
    return hf_open(path, all, out, info);
}

enum err model_build_from(const struct model_family *const *table, const struct gguf *g, uint32_t n_ctx,
                          struct plan **out, struct err_info *info)
{
    *out = NULL;
    struct gguf_str arch;
    TRY(gguf_get_str_or_null(g, "general.architecture", &arch, info));
    const struct model_family *family = NULL;
    for (size_t i = 0; table[i] != NULL; i++) {
        if (arch.len == strlen(table[i]->arch) && memcmp(arch.data, table[i]->arch, arch.len) == 0) {
            family = table[i];
        }
    }
    if (family == NULL) {
        return unknown_arch(table, arch, info);
    }
    struct plan *p;
    if (plan_new(&p) != ERR_OK) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the plan");
    }
    enum err err = family->build(g, n_ctx, p, info);
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
    return model_build_from(families, g, n_ctx, out, info);
}
