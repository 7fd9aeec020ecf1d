/* Prediction heads of folders. GLM-4.5 and DeepSeek-V3 have them as layers after the last; Qwen3-Next and Qwen3.5 apart
 * from the layers, under mtp. Only the first head is read. Names: llama.cpp b11434, conversion/qwen.py and glm.py. */
#include "engine/hf/hf_internal.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *mtp, *layer;
} names[] = {{"fc.", "eh_proj."},
             {"pre_fc_norm_embedding.", "enorm."},
             {"pre_fc_norm_hidden.", "hnorm."},
             {"norm.", "shared_head.norm."},
             {"layers.0.", ""}};

/* 0 if config.json does not say so: another function refuses that. */
static json_int_t n_layers(const struct hf *h)
{
    return json_integer_value(json_read_get(h->config, "num_hidden_layers"));
}

/* Returns the rest of a name after mtp. or model.mtp., or NULL. */
static const char *after_mtp(const char *name)
{
    static const char mtp[] = "mtp.", model[] = "model.";
    name += strncmp(name, model, sizeof model - 1) == 0 ? sizeof model - 1 : 0;
    return strncmp(name, mtp, sizeof mtp - 1) == 0 ? name + sizeof mtp - 1 : NULL;
}

const char *hf_head_name(const struct hf *h, const char *name, char room[SAFETENSORS_MAX_NAME_BYTES + 1])
{
    const char *rest = h->has_head ? after_mtp(name) : NULL;
    for (size_t i = 0; rest != NULL && i < ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i].mtp);
        if (strncmp(rest, names[i].mtp, n) == 0) {
            int all = snprintf(room, SAFETENSORS_MAX_NAME_BYTES + 1, "model.layers.%" JSON_INTEGER_FORMAT ".%s%s",
                               n_layers(h), names[i].layer, rest + n);
            return all > 0 && all <= SAFETENSORS_MAX_NAME_BYTES ? room : name;
        }
    }
    return name;
}

void hf_head_find(struct hf *h)
{
    char wanted[64], room[SAFETENSORS_MAX_NAME_BYTES + 1], text[SAFETENSORS_MAX_NAME_BYTES + 1];
    bool is_there = false;
    snprintf(wanted, sizeof wanted, "model.layers.%" JSON_INTEGER_FORMAT ".eh_proj.weight", n_layers(h));
    h->has_head = h->family->predicts;
    for (size_t i = 0; h->has_head && !is_there && i < safetensors_folder_n_tensors(h->tensors); i++) {
        const char *name = hf_head_name(h, safetensors_folder_at(h->tensors, i)->name, room);
        is_there = strcmp(hf_names_in_text(name, text), wanted) == 0;
    }
    h->has_head = is_there;
}
