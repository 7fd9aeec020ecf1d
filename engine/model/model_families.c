/* The table of families, and the functions that make a plan from a file. */
#include "engine/model/model.h"

#include "engine/hf/hf.h"
#include "engine/model/blocks.h"
#include "engine/model/model_nearest.h"
#include "engine/plan/plan_join.h"

#include <stdio.h>
#include <string.h>

/* One row per family. */
/* clang-format off */
#define FAMILIES(X) \
    X(llama) \
    X(llama4) \
    X(smallthinker) \
    X(smollm3) \
    X(arcee) \
    X(mistral3) \
    X(mistral4) \
    X(qwen2) \
    X(qwen2vl) \
    X(qwen2moe) \
    X(qwen3) \
    X(qwen3vl) \
    X(qwen3moe) \
    X(qwen3vlmoe) \
    X(mellum) \
    X(mimo2) \
    X(qwen3next) \
    X(qwen35) \
    X(qwen35moe) \
    X(gemma) \
    X(gemma2) \
    X(gemma3) \
    X(gemma3n) \
    X(gemma4) \
    X(phi2) \
    X(phi3) \
    X(olmo2) \
    X(olmoe) \
    X(granite) \
    X(granitemoe) \
    X(granitehybrid) \
    X(glm4) \
    X(glm4moe) \
    X(dots1) \
    X(bailingmoe2) \
    X(laguna) \
    X(step35) \
    X(gpt_oss) \
    X(falcon_h1) \
    X(nemotron_h) \
    X(nemotron_h_moe) \
    X(jamba) \
    X(mamba) \
    X(deepseek2) \
    X(deepseek32) \
    X(glm_dsa) \
    X(kimi_linear) \
    X(lfm2) \
    X(lfm2moe) \
    X(minimax_m2) \
    X(hunyuan_dense) \
    X(hunyuan_moe) \
    X(ernie4_5) \
    X(ernie4_5_moe) \
    X(seed_oss) \
    X(apertus) \
    X(exaone4) \
    X(starcoder2) \
    X(command_r) \
    X(cohere2) \
    X(cohere2moe) \
    X(gemma_embedding) \
    X(bert) \
    X(nomic_bert) \
    X(nomic_bert_moe) \
    X(jina_bert_v2) \
    X(jina_bert_v3) \
    X(modern_bert) \
    X(eurobert) \
    X(neo_bert) \
    X(t5encoder)

/* Prediction heads in files of their own, which are no models. */
#define HEADS(X) \
    X(eagle3) \
    X(gemma4_assistant)
/* clang-format on */

#define DECLARE(name) extern const struct model_family model_##name;
FAMILIES(DECLARE)
HEADS(DECLARE)

#define LIST(name) &model_##name,
static const struct model_family *const families[] = {FAMILIES(LIST) NULL}, *const heads[] = {HEADS(LIST) NULL};

const struct model_family *model_family_at(int i)
{
    return i >= 0 && i < (int)ARRAY_LEN(families) ? families[i] : NULL; /* the last is NULL too */
}

static enum err unknown_arch(const struct model_family *const *table, const struct gguf *g, struct gguf_str arch,
                             struct err_info *info)
{
    char nearest[MODEL_NEAREST_BYTES], known[ERR_TEXT_BYTES - MODEL_NEAREST_BYTES - 128] = "";
    for (size_t i = 0; table[i] != NULL; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", table[i]->arch);
    }
    model_nearest_from(table, g, nearest);
    return err_set(info, ERR_UNSUPPORTED_ARCH, "general.architecture", "expected one of %s; found '%.*s'%s%s", known,
                   (int)MIN_OF(arch.len, (size_t)64), arch.data != NULL ? arch.data : "",
                   nearest[0] != '\0' ? ". The nearest is " : "", nearest);
}

void model_nearest(const struct gguf *g, char out[MODEL_NEAREST_BYTES]) { model_nearest_from(families, g, out); }

/* Returns the row of the table for the file's architecture; NULL: none. */
static const struct model_family *find(const struct model_family *const *table, const struct gguf *g)
{
    struct gguf_str arch;
    struct err_info ignored;
    if (gguf_get_str_or_null(g, "general.architecture", &arch, &ignored) != ERR_OK) {
        return NULL;
    }
    while (*table != NULL && !gguf_str_is(arch, (*table)->arch)) {
        table++;
    }
    return *table;
}

const struct model_family *model_head_of(const struct gguf *g) { return find(heads, g); }

/* Lists the kinds of folders of a table at all[n ..]; returns the end of the list. */
static size_t list_folders(const struct model_family *const *table, const struct hf_family **all, size_t n)
{
    for (; *table != NULL; table++) {
        for (size_t k = 0; k < MODEL_MAX_HF && (*table)->hf[k] != NULL; k++) {
            all[n++] = (*table)->hf[k];
        }
    }
    return n;
}

enum err model_open(const char *path, struct gguf **out, struct err_info *info)
{
    if (!io_is_folder(path)) {
        return gguf_open(path, out, info);
    }
    const struct hf_family *all[(ARRAY_LEN(families) + ARRAY_LEN(heads)) * MODEL_MAX_HF] = {NULL};
    list_folders(heads, all, list_folders(families, all, 0));
    return hf_open(path, all, out, info);
}

static enum err build(const struct model_family *const *table, struct blocks *b, struct plan **out)
{
    *out = NULL;
    struct gguf_str arch;
    TRY(gguf_get_str_or_null(b->g, "general.architecture", &arch, b->info));
    const struct model_family *family = find(table, b->g), *head = model_head_of(b->g);
    if (family == NULL && head != NULL) {
        return err_set(b->info, ERR_UNSUPPORTED_ARCH, "general.architecture",
                       "expected a model, found '%s', a model's prediction head; use it with --draft-model",
                       head->arch);
    }
    if (family == NULL) {
        return unknown_arch(table, b->g, arch, b->info);
    }
    TRY_MEM_FOR(plan_new(&b->plan) == ERR_OK, b->info, "out of memory for the plan");
    b->arch = family->arch;
    enum err err = family->build(b);
    if (err == ERR_OK) {
        err = plan_check(b->plan, b->info);
    }
    if (err == ERR_NOMEM && b->info != NULL && b->info->code != ERR_NOMEM) {
        err_set(b->info, ERR_NOMEM, NULL, "out of memory for the plan");
    }
    if (err != ERR_OK) {
        gguf_tell(b->g, b->info);
        plan_free(&b->plan);
        return err;
    }
    *out = b->plan;
    return ERR_OK;
}

enum err model_build_from(const struct model_family *const *table, const struct gguf *g, uint32_t n_ctx, bool predicts,
                          struct plan **out, struct err_info *info)
{
    return build(table, &(struct blocks){.g = g, .n_ctx = n_ctx, .may_predict = predicts, .info = info}, out);
}

enum err model_build(const struct gguf *g, uint32_t n_ctx, struct plan **out, struct err_info *info)
{
    return model_build_from(families, g, n_ctx, false, out, info);
}

enum err model_build_predicting(const struct gguf *g, uint32_t n_ctx, struct plan **out, struct err_info *info)
{
    return model_build_from(families, g, n_ctx, true, out, info);
}

enum err model_build_head(const struct gguf *g, const struct gguf *of_file, const struct plan *of, uint32_t n_ctx,
                          struct plan **out, struct err_info *info)
{
    return build(heads, &(struct blocks){.g = g, .of = of, .of_file = of_file, .n_ctx = n_ctx, .info = info}, out);
}

/* Returns a hyper-parameter, or 0. */
static uint64_t hparam(const struct gguf *g, struct gguf_str arch, const char *name)
{
    char key[128];
    uint64_t n;
    struct err_info ignored;
    snprintf(key, sizeof key, "%.*s.%s", (int)MIN_OF(arch.len, (size_t)64), arch.data, name);
    return gguf_get_u64_or(g, key, 0, &n, &ignored) == ERR_OK ? n : 0;
}

bool model_has_head_of(const struct gguf *head, const struct gguf *g)
{
    struct gguf_str own, arch;
    struct err_info ignored;
    if (model_head_of(head) != NULL) {
        return true;
    }
    if (gguf_get_str_or_null(g, "general.architecture", &own, &ignored) != ERR_OK ||
        gguf_get_str_or_null(head, "general.architecture", &arch, &ignored) != ERR_OK || own.data == NULL ||
        arch.data == NULL || own.len != arch.len || memcmp(own.data, arch.data, own.len) != 0) {
        return false;
    }
    uint64_t n = hparam(head, arch, "nextn_predict_layers");
    return n != 0 &&
           hparam(head, arch, "block_count") - n ==
               hparam(g, arch, "block_count") - hparam(g, arch, "nextn_predict_layers") &&
           hparam(head, arch, "embedding_length") == hparam(g, arch, "embedding_length");
}

/* Says that an error is the draft's. */
static enum err of_draft(enum err err, struct err_info *info)
{
    if (err != ERR_OK) {
        err_name_file(info, "draft-model");
    }
    return err;
}

enum err model_build_drafting(const struct gguf *g, const struct gguf *draft, uint32_t n_ctx, struct plan **out,
                              struct plan **draft_plan, struct err_info *info)
{
    *draft_plan = NULL;
    TRY(model_build(g, n_ctx, out, info));
    bool is_head = model_head_of(draft) != NULL;
    if (!is_head && model_has_head_of(draft, g)) {
        struct blocks b = {.g = g, .head = draft, .n_ctx = n_ctx, .may_predict = true, .info = info};
        plan_free(out);
        return of_draft(build(families, &b, out), info);
    }
    enum err err = is_head ? model_build_head(draft, g, *out, n_ctx, draft_plan, info)
                           : model_build(draft, n_ctx, draft_plan, info);
    err = of_draft(err, info);
    err = err == ERR_OK ? plan_join(*out, *draft_plan, info) : err;
    if (err != ERR_OK) {
        plan_free(out);
        plan_free(draft_plan);
    }
    return err;
}
