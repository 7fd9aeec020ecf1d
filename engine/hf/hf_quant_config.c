/* Reads quantization_config of config.json. Keys: transformers 5 (utils/quantization_config.py), AutoGPTQ, GPTQModel,
 * AutoAWQ and compressed-tensors, whose files the schemes read. */
#include "engine/hf/hf_quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The object being read, and its position. */
struct place {
    const struct hf *h;
    const json_t *o;
    const char *name; /* "quantization_config" */
};

static enum err bad(const struct place *p, const char *key, const char *expected, const json_t *found)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", p->name, key);
    return hf_bad_value(p->h, full, expected, found);
}

/* Reads the inputs of a group; -1, a whole row, yields 0, and so does absence unless must_be is set. */
static enum err get_group(const struct place *p, bool must_be, const char *key, uint32_t *out)
{
    const json_t *v = json_read_get(p->o, key);
    json_int_t i = json_integer_value(v);
    *out = i > 0 ? (uint32_t)i : 0;
    bool is_good = v == NULL ? !must_be : json_is_integer(v) && i >= -1 && i != 0 && i <= 1 << 20;
    return is_good ? ERR_OK : bad(p, key, "-1 or 1 to 1048576", v);
}

/* Reads one of `known`, "a, b, c", as its index; absent: 0. */
static enum err get_choice(const struct place *p, const char *key, const char *const *known, size_t n, size_t *out)
{
    char list[160] = "";
    const json_t *v = json_read_get(p->o, key);
    const char *s = json_string_value(v);
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i == 0 ? "" : ", ", known[i]);
        if (v == NULL || (s != NULL && strcmp(s, known[i]) == 0)) {
            *out = i;
            return ERR_OK;
        }
    }
    if (!json_is_string(v)) {
        return bad(p, key, list, v);
    }
    char full[128];
    snprintf(full, sizeof full, "%s.%s", p->name, key);
    return err_set(p->h->info, ERR_UNSUPPORTED_TYPE, full, "config.json: %s: expected %s, found '%.64s'", full, list,
                   s);
}

static enum err get_bits(const struct place *p, const char *key, bool also_8, uint32_t *out)
{
    const json_t *v = json_read_get(p->o, key);
    json_int_t i = json_integer_value(v); /* 0 if it is not an integer */
    if (i < 1 || i > 32) {
        return bad(p, key, "1 to 32", v);
    }
    *out = (uint32_t)i;
    if (i == 4 || (also_8 && i == 8)) {
        return ERR_OK;
    }
    return err_set(p->h->info, ERR_UNSUPPORTED_TYPE, key, "config.json: %s.%s: expected %s, found %" PRIu32, p->name,
                   key, also_8 ? "4 or 8" : "4", *out);
}

static enum err get_block(const struct place *p, const char *key, uint32_t block[2])
{
    const json_t *v = json_read_get(p->o, key);
    for (size_t i = 0; v != NULL && i < 2; i++) {
        json_int_t n = json_integer_value(json_array_get(v, i)); /* 0 if it is not an integer */
        if (json_array_size(v) != 2 || n < 1 || n > 1 << 20) {
            return bad(p, key, "two numbers from 1 to 1048576", v);
        }
        block[i] = (uint32_t)n;
    }
    return ERR_OK;
}

static enum err read_fp8(const struct place *p, struct hf_quant *q)
{
    static const char *const formats[] = {"e4m3", "float8_e4m3fn"};
    size_t ignored;
    struct hf_quant_kind *k = &q->kinds[q->n_kinds++];
    *k = (struct hf_quant_kind){.is_float = true, .bits = 8};
    TRY(get_choice(p, "fmt", formats, ARRAY_LEN(formats), &ignored));
    return get_block(p, "weight_block_size", k->block);
}

static enum err read_gptq(const struct place *p, struct hf_quant *q)
{
    static const char *const formats[] = {"gptq", "gptq_v2"};
    size_t format, other;
    struct hf_quant_kind *k = &q->kinds[q->n_kinds++];
    TRY(get_bits(p, "bits", true, &k->bits));
    TRY(get_group(p, true, "group_size", &k->group));
    TRY(get_choice(p, "checkpoint_format", formats, ARRAY_LEN(formats), &format));
    TRY(get_choice(p, "format", formats, ARRAY_LEN(formats), &other)); /* GPTQModel's name for it */
    if (json_is_true(json_read_get(p->o, "is_marlin_format"))) {
        return err_set(p->h->info, ERR_UNSUPPORTED_TYPE, "is_marlin_format",
                       "config.json: %s.is_marlin_format: expected false, found true", p->name);
    }
    q->zeros_are_less_one = format == 0 && other == 0;
    return ERR_OK;
}

static enum err read_awq(const struct place *p, struct hf_quant *q)
{
    static const char *const versions[] = {"gemm", "GEMM"};
    size_t ignored;
    struct hf_quant_kind *k = &q->kinds[q->n_kinds++];
    bool is_old = json_read_get(p->o, "bits") == NULL && json_read_get(p->o, "w_bit") != NULL;
    TRY(get_bits(p, is_old ? "w_bit" : "bits", false, &k->bits));
    TRY(get_group(p, true, is_old ? "q_group_size" : "group_size", &k->group));
    return get_choice(p, "version", versions, ARRAY_LEN(versions), &ignored);
}

/* Reads one entry of config_groups. */
static enum err read_group(const struct place *p, struct hf_quant *q)
{
    static const char *const types[] = {"int", "float"};
    static const char *const strategies[] = {"tensor", "channel", "group", "block", "tensor_group"};
    enum { GROUP = 2, TENSOR_GROUP = 4, FP4_BITS = 4 };
    size_t type, strategy;
    if (q->n_kinds == HF_QUANT_KINDS) {
        return hf_bad(p->h, p->name, "expected at most %d groups, found more", HF_QUANT_KINDS);
    }
    struct hf_quant_kind *k = &q->kinds[q->n_kinds];
    TRY(get_choice(p, "type", types, ARRAY_LEN(types), &type));
    TRY(get_choice(p, "strategy", strategies, ARRAY_LEN(strategies), &strategy));
    TRY(get_bits(p, "num_bits", true, &k->bits));
    k->is_float = type == 1;
    const json_t *symmetric = json_read_get(p->o, "symmetric");
    if (symmetric != NULL) {
        k->symmetry = json_is_true(symmetric) ? HF_SYMMETRIC : HF_WITH_ZEROS;
    }
    bool is_named = json_is_string(json_read_get(p->o, "strategy"));
    bool has_groups = is_named && (strategy == GROUP || strategy == TENSOR_GROUP);
    has_groups |= k->is_float && k->bits == FP4_BITS;
    TRY(get_group(p, has_groups, "group_size", &k->group));
    TRY(get_block(p, "block_structure", k->block));
    q->n_kinds++;
    return ERR_OK;
}

static enum err read_compressed(const struct place *p, struct hf_quant *q)
{
    static const char *const formats[] = {"pack-quantized",       "float-quantized", "int-quantized",
                                          "naive-quantized",      "mixed-precision", "nvfp4-pack-quantized",
                                          "mxfp4-pack-quantized", "mxfp8-quantized", "dense"};
    static const char *const sparsities[] = {"dense"};
    size_t ignored;
    const json_t *groups = json_read_get(p->o, "config_groups"), *group;
    const char *name;
    TRY(get_choice(p, "format", formats, ARRAY_LEN(formats), &ignored));
    struct place sparsity = {p->h, json_read_get(p->o, "sparsity_config"), "quantization_config.sparsity_config"};
    TRY(get_choice(&sparsity, "format", sparsities, ARRAY_LEN(sparsities), &ignored));
    if (json_object_size(json_object_get(json_read_get(p->o, "transform_config"), "config_groups")) != 0) {
        return err_set(p->h->info, ERR_UNSUPPORTED_TYPE, "transform_config",
                       "config.json: %s.transform_config: expected none, found rotations of activations", p->name);
    }
    if (!json_is_object(groups)) {
        return bad(p, "config_groups", "an object", groups);
    }
    json_object_foreach((json_t *)groups, name, group)
    {
        char full[96];
        snprintf(full, sizeof full, "%s.config_groups.%.32s.weights", p->name, name);
        struct place in_group = {p->h, json_read_get(group, "weights"), full};
        if (in_group.o != NULL) {
            struct place outer = {p->h, group, full};
            TRY(get_choice(&outer, "format", formats, ARRAY_LEN(formats), &ignored));
            TRY(read_group(&in_group, q));
        }
    }
    return ERR_OK;
}

/* ModelOpt names an algorithm; the tensors follow from it. */
static enum err read_modelopt(const struct place *p, struct hf_quant *q)
{
    static const char *const algorithms[] = {"NVFP4", "FP8"};
    size_t algorithm;
    TRY(get_choice(p, "quant_algo", algorithms, ARRAY_LEN(algorithms), &algorithm));
    q->kinds[q->n_kinds++] = algorithm == 0 ? (struct hf_quant_kind){.is_float = true, .bits = 4, .group = 16}
                                            : (struct hf_quant_kind){.is_float = true, .bits = 8};
    return ERR_OK;
}

static const struct {
    const char *name;
    enum hf_scheme scheme;
    enum err (*read)(const struct place *p, struct hf_quant *q); /* NULL: nothing to read */
} methods[] = {
    {"fp8", HF_FP8, read_fp8},
    {"fbgemm_fp8", HF_FP8, read_fp8},
    {"gptq", HF_GPTQ, read_gptq},
    {"awq", HF_AWQ, read_awq},
    {"compressed-tensors", HF_COMPRESSED, read_compressed},
    {"modelopt", HF_MODELOPT, read_modelopt},
    {"mxfp4", HF_MXFP4, NULL},
};

enum err hf_quant_read(const struct hf *h, struct hf_quant *out)
{
    *out = (struct hf_quant){.scheme = HF_PLAIN};
    struct place p = {h, json_read_get(h->root, "quantization_config"), "quantization_config"};
    p.o = p.o != NULL ? p.o : json_read_get(h->config, "quantization_config");
    if (p.o == NULL) {
        return ERR_OK;
    }
    if (!json_is_object(p.o)) {
        return hf_bad_value(h, p.name, "an object", p.o);
    }
    const char *method = json_string_value(json_read_get(p.o, "quant_method"));
    char known[128] = "";
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (method != NULL && strcmp(method, methods[i].name) == 0) {
            out->scheme = methods[i].scheme;
            out->method = methods[i].name;
            return methods[i].read != NULL ? methods[i].read(&p, out) : ERR_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ", methods[i].name);
    }
    if (method == NULL) {
        return bad(&p, "quant_method", known, json_read_get(p.o, "quant_method"));
    }
    return err_set(h->info, ERR_UNSUPPORTED_TYPE, "quantization_config.quant_method",
                   "config.json: quantization_config.quant_method: found '%.64s'; known are %s", method, known);
}

enum err hf_quant_check(const struct hf *h)
{
    static const char *const forms[] = {[HF_FP8] = "*.weight of type F8_E4M3",
                                        [HF_GPTQ] = "*.qweight",
                                        [HF_AWQ] = "*.qweight",
                                        [HF_COMPRESSED] = "*.weight_packed, or *.weight of type F8_E4M3 or I8",
                                        [HF_MODELOPT] = "*.weight of type U8 or F8_E4M3",
                                        [HF_MXFP4] = "*_blocks"};
    const struct hf_quant *q = &h->quant;
    bool names_none = q->scheme == HF_PLAIN || (q->scheme == HF_COMPRESSED && q->n_kinds == 0);
    return names_none || q->n_found > 0
               ? ERR_OK
               : hf_bad(h, "quantization_config.quant_method",
                        "expected tensors %s in the folder, as it is %s, found none", forms[q->scheme], q->method);
}
