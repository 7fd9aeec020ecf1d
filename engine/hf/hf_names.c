/* Looks up rows of the tables by a tensor's name, in both directions. */
#include "engine/hf/hf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct hf_name common_names[] = {
    {"model.embed_tokens.weight", "token_embd.weight", HF_SAME},
    {"model.norm.weight", "output_norm.weight", HF_SAME},
    {"lm_head.weight", "output.weight", HF_SAME},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", HF_SAME},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", HF_SAME},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", HF_SAME},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", HF_SAME},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", HF_SAME},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", HF_SAME},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", HF_SAME},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", HF_SAME},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", HF_SAME},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", HF_SAME},
    {"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", HF_SAME},
    {"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", HF_SAME},
    {"model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight", HF_SAME},
    {"model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight", HF_SAME},
    {"model.layers.{}.eh_proj.weight", "blk.{}.nextn.eh_proj.weight", HF_SAME},
    {"model.layers.{}.enorm.weight", "blk.{}.nextn.enorm.weight", HF_SAME},
    {"model.layers.{}.hnorm.weight", "blk.{}.nextn.hnorm.weight", HF_SAME},
    {"model.layers.{}.shared_head.norm.weight", "blk.{}.nextn.shared_head_norm.weight", HF_SAME},
    {"model.layers.{}.shared_head.head.weight", "blk.{}.nextn.shared_head_head.weight", HF_SAME},
    {"model.layers.{}.embed_tokens.weight", "blk.{}.nextn.embed_tokens.weight", HF_SAME},
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", NULL, HF_DROP}, /* old Llama folders */
    {NULL, NULL, HF_SAME},
};

/* Returns whether `name` matches the pattern; number[2] gets the numbers that {} stands for. */
static bool fits(const char *pattern, const char *name, uint32_t number[2])
{
    int n = 0;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '{') {
            if (*pattern != *name++) {
                return false;
            }
            continue;
        }
        const char *from = name;
        number[n] = 0;
        while (*name >= '0' && *name <= '9' && name - from < 6) {
            number[n] = number[n] * 10 + (uint32_t)(*name++ - '0');
        }
        if (name == from || (*from == '0' && name - from > 1)) { /* a number has one spelling */
            return false;
        }
        n++;
        pattern++; /* the } */
    }
    return *name == '\0';
}

static const struct hf_name *find_name(const struct hf_name *table, const char *name, uint32_t number[2])
{
    for (; table != NULL && table->hf != NULL; table++) {
        if (fits(table->hf, name, number)) {
            return table;
        }
    }
    return NULL;
}

const char *hf_names_in_text(const char *name, char room[SAFETENSORS_MAX_NAME_BYTES + 1])
{
    static const char new_one[] = "model.language_model.", old_one[] = "language_model.";
    if (strncmp(name, old_one, sizeof old_one - 1) == 0) {
        return name + sizeof old_one - 1;
    }
    if (strncmp(name, new_one, sizeof new_one - 1) != 0) {
        return name;
    }
    snprintf(room, SAFETENSORS_MAX_NAME_BYTES + 1, "model.%s", name + sizeof new_one - 1);
    return room;
}

/* sentence-transformers saves decoders without "model.". */
const struct hf_name *hf_names_find(const struct hf_family *family, const char *name, uint32_t number[2])
{
    char room[SAFETENSORS_MAX_NAME_BYTES + 1], bare[SAFETENSORS_MAX_NAME_BYTES + 8];
    const char *text_name = hf_names_in_text(name, room), *prefix = family->prefix;
    size_t n_prefix = prefix != NULL && strncmp(text_name, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
    const struct hf_name *n = find_name(family->names, text_name + n_prefix, number);
    snprintf(bare, sizeof bare, "model.%s", text_name);
    n = n != NULL ? n : find_name(family->names, bare, number);
    n = n != NULL ? n : find_name(common_names, text_name, number);
    return n != NULL ? n : find_name(common_names, bare, number);
}

void hf_names_write(const char *pattern, uint32_t layer, char out[HF_NAME_BYTES])
{
    const char *at = strchr(pattern, '{');
    if (at == NULL) {
        snprintf(out, HF_NAME_BYTES, "%s", pattern);
    } else {
        snprintf(out, HF_NAME_BYTES, "%.*s%" PRIu32 "%s", (int)(at - pattern), pattern, layer, at + 2);
    }
}

/* Searches one table; expert numbers become *. */
static bool find_back(const struct hf_name *table, const char *name, char out[HF_NAME_BYTES])
{
    uint32_t number[2];
    for (; table != NULL && table->hf != NULL; table++) {
        if (table->gguf == NULL || !fits(table->gguf, name, number)) {
            continue;
        }
        char layer[HF_NAME_BYTES];
        bool has_layer = strchr(table->gguf, '{') != NULL;
        snprintf(layer, sizeof layer, "%s", table->hf);
        if (has_layer) {
            hf_names_write(table->hf, number[0], layer);
        }
        const char *at = strchr(layer, '{');
        if (at != NULL) {
            snprintf(out, HF_NAME_BYTES, "%.*s*%s", (int)(at - layer), layer, at + 2);
        } else {
            snprintf(out, HF_NAME_BYTES, "%s", layer);
        }
        return true;
    }
    return false;
}

bool hf_names_back(const struct hf_family *family, const char *name, char out[HF_NAME_BYTES])
{
    return find_back(family->names, name, out) || find_back(common_names, name, out);
}
