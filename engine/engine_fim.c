/* Fill in the middle: the tokens around the text before and after a gap. */
#include "engine/engine_internal.h"

#include <string.h>

enum { N_KEYS = 2, N_TEXTS = 8 };

/* Searched as llama.cpp does: by the file's key, a newer and an older one, else by text. */
static const struct {
    size_t offset;
    const char *keys[N_KEYS], *texts[N_TEXTS];
} marks[] = {
#define AT(member) offsetof(struct engine_fim, member)
    {AT(prefix),
     {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
      "<|prefix|>"}},
    {AT(suffix),
     {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
      "<|suffix|>"}},
    {AT(middle),
     {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
      "<|middle|>"}},
    {AT(repo),
     {"tokenizer.ggml.fim_rep_token_id", NULL},
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", NULL, NULL, NULL}},
    {AT(file), {"tokenizer.ggml.fim_sep_token_id", NULL}, {"<|file_sep|>", NULL, NULL, NULL, NULL, NULL, NULL, NULL}},
#undef AT
};

void engine_get_fim(const struct engine *e, struct engine_fim *out)
{
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        int32_t id = -1;
        for (int k = 0; k < N_KEYS && id < 0 && marks[i].keys[k] != NULL; k++) {
            const struct gguf_kv *kv = gguf_find(e->gguf, marks[i].keys[k]);
            bool is_id = kv != NULL && (kv->type == GGUF_U32 || kv->type == GGUF_I32);
            int64_t v = is_id ? gguf_elem_i64(kv, 0) : -1;
            id = v >= 0 && v < tokenizer_n_vocab(e->tokenizer) ? (int32_t)v : -1;
        }
        for (int k = 0; k < N_TEXTS && id < 0 && marks[i].texts[k] != NULL; k++) {
            id = tokenizer_find(e->tokenizer, marks[i].texts[k], strlen(marks[i].texts[k]));
        }
        *(int32_t *)((char *)out + marks[i].offset) = id >= 0 ? id : -1;
    }
    out->bos = tokenizer_adds_bos(e->tokenizer) ? tokenizer_bos(e->tokenizer) : -1;
}
