/* Quantised SafeTensors folders: each scheme's packing, written here from its description, is read back to the bit;
 * what is wrong in a folder is named. */
#include "engine/base/mem.h"
#include "engine/quant/quant.h"
#include "engine/hf/hf.h"
#include "engine/hf/hf_quant_rows.h"
#include "tests/support/folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *hf_quant_suite(void);

enum { N = 24, K = 128, GROUP = 32, GROUPS = K / GROUP, MAX_TENSORS = 8, WORDS = 4096 };

/* --- a folder of one weight --------------------------------------------------------------------------------------- */

struct tensor {
    const char *end, *dtype; /* after "model.layers.0.self_attn.q_proj"; end NULL: there is none */
    int n_dims;
    uint64_t dims[3];
    size_t bytes;
    uint32_t data[WORDS];
};

static struct {
    char quantisation[1024];
    bool is_unpacked;
    int n;
    struct tensor t[MAX_TENSORS];
} folder;

static struct tensor *add(const char *end, const char *dtype, uint64_t rows, uint64_t columns, size_t element_bytes)
{
    struct tensor *t = &folder.t[folder.n++];
    *t = (struct tensor){.end = end, .dtype = dtype, .n_dims = columns == 0 ? 1 : 2, .dims = {rows, columns}};
    t->bytes = rows * (columns == 0 ? 1 : columns) * element_bytes;
    ck_assert_uint_le(t->bytes, sizeof t->data);
    return t;
}

static struct tensor *find(const char *end)
{
    for (int i = 0; i < folder.n; i++) {
        if (strcmp(folder.t[i].end, end) == 0) {
            return &folder.t[i];
        }
    }
    ck_abort_msg("no tensor %s", end);
    return NULL;
}

static void write_tensors(FILE *f)
{
    char head[4096] = "{";
    size_t at = 0;
    for (int i = 0; i < folder.n; i++) {
        const struct tensor *t = &folder.t[i];
        char shape[64] = "";
        for (int k = 0; k < t->n_dims; k++) {
            size_t n = strlen(shape);
            snprintf(shape + n, sizeof shape - n, "%s%llu", k == 0 ? "" : ",", (unsigned long long)t->dims[k]);
        }
        size_t n = strlen(head);
        snprintf(head + n, sizeof head - n,
                 "%s\"model.layers.0.self_attn.q_proj%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                 i == 0 ? "" : ",", t->end, t->dtype, shape, at, at + t->bytes);
        at += t->bytes;
    }
    strcat(head, "}");
    uint64_t length = strlen(head);
    fwrite(&length, sizeof length, 1, f);
    fwrite(head, 1, length, f);
    for (int i = 0; i < folder.n; i++) {
        fwrite(folder.t[i].data, 1, folder.t[i].bytes, f);
    }
}

static enum err open_folder(struct gguf **out, struct err_info *info)
{
    static const struct hf_name unpacked[] = {
        {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", HF_UNPACKED}, {NULL, NULL, HF_SAME}};
    const struct hf_family toy = {
        .architectures = {"ToyForCausalLM"}, .arch = "toy", .names = folder.is_unpacked ? unpacked : NULL};
    const struct hf_family *const families[] = {&toy, NULL};
    char config[sizeof folder.quantisation + 256];
    snprintf(config, sizeof config,
             "{\"architectures\":[\"ToyForCausalLM\"],\"hidden_size\":128,\"num_hidden_layers\":1,"
             "\"num_attention_heads\":1,\"max_position_embeddings\":32,\"quantization_config\":%s}",
             folder.quantisation);
    folder_write_text("config.json", config);
    FILE *f = fopen(folder_file("model.safetensors"), "wb");
    ck_assert_ptr_nonnull(f);
    write_tensors(f);
    fclose(f);
    enum err err = hf_open(folder_path(), families, out, info);
    folder_remove();
    return err;
}

/* --- what the weight is ------------------------------------------------------------------------------------------- */

static int bits;
static bool is_centred, is_ordered;

static int code_of(int n, int k) { return (n * 7 + k * 5 + n * k) & ((1 << bits) - 1); }
static int group_of(int k) { return is_ordered ? k * 5 % GROUPS : k / GROUP; }
static int zero_of(int n, int g) { return is_centred ? 1 << (bits - 1) : (n * 3 + g * 11) & ((1 << bits) - 1); }
static float scale_of(int n, int g)
{
    return 0.0078125f * (float)(1 + (n * 4 + g) % 61);
} /* exact in halves of all kinds */
static float value_of(int n, int k)
{
    return scale_of(n, group_of(k)) * (float)(code_of(n, k) - zero_of(n, group_of(k)));
}

/* Puts `bits` of a code into place `at` of a word. */
static void put(struct tensor *t, size_t word, int at, int code) { t->data[word] |= (uint32_t)code << at * bits; }

static void put_half(struct tensor *t, size_t i, float f, bool is_bf16)
{
    uint16_t h = is_bf16 ? dtype_f32_to_bf16(f) : dtype_f32_to_f16(f);
    memcpy((unsigned char *)t->data + 2 * i, &h, sizeof h);
}

static void make(int n_bits, bool centred, bool ordered, const char *quantisation)
{
    folder.n = 0;
    bits = n_bits;
    is_centred = centred;
    is_ordered = ordered;
    snprintf(folder.quantisation, sizeof folder.quantisation, "%s", quantisation);
}

static void make_gptq(int n_bits, bool centred, bool ordered, bool less_one)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"quant_method\":\"gptq\",\"bits\":%d,\"group_size\":%d,\"desc_act\":%s,\"checkpoint_format\":\"%s\"}",
             n_bits, GROUP, ordered ? "true" : "false", less_one ? "gptq" : "gptq_v2");
    make(n_bits, centred, ordered, text);
    int per = 32 / bits;
    struct tensor *w = add(".qweight", "I32", (uint64_t)(K / per), N, 4);
    struct tensor *s = add(".scales", "F16", GROUPS, N, 2);
    struct tensor *z = add(".qzeros", "I32", GROUPS, (uint64_t)(N / per), 4);
    struct tensor *g = add(".g_idx", "I32", K, 0, 4);
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < K; k++) {
            put(w, (size_t)(k / per * N + n), k % per, code_of(n, k));
            g->data[k] = (uint32_t)group_of(k);
        }
        for (int j = 0; j < GROUPS; j++) {
            put_half(s, (size_t)(j * N + n), scale_of(n, j), false);
            put(z, (size_t)(j * (N / per) + n / per), n % per, zero_of(n, j));
        }
    }
    for (int i = 0; less_one && i < GROUPS * N / per; i++) {
        z->data[i] -= bits == 4 ? 0x11111111u : 0x01010101u;
    }
}

static void make_awq(void)
{
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* where a word keeps row 0, 1, .. of eight */
    make(4, false, false, "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemm\"}");
    struct tensor *w = add(".qweight", "I32", K, N / 8, 4);
    struct tensor *s = add(".scales", "F16", GROUPS, N, 2);
    struct tensor *z = add(".qzeros", "I32", GROUPS, N / 8, 4);
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < K; k++) {
            put(w, (size_t)(k * (N / 8) + n / 8), place[n % 8], code_of(n, k));
        }
        for (int j = 0; j < GROUPS; j++) {
            put_half(s, (size_t)(j * N + n), scale_of(n, j), false);
            put(z, (size_t)(j * (N / 8) + n / 8), place[n % 8], zero_of(n, j));
        }
    }
}

static void make_packed(int n_bits, bool centred, bool ordered)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"group_0\":{"
             "\"weights\":{\"num_bits\":%d,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":%d}}}}",
             n_bits, GROUP);
    make(n_bits, centred, ordered, text);
    int per = 32 / bits;
    struct tensor *w = add(".weight_packed", "I32", N, (uint64_t)(K / per), 4);
    struct tensor *s = add(".weight_scale", "BF16", N, GROUPS, 2);
    struct tensor *shape = add(".weight_shape", "I64", 2, 0, 8);
    struct tensor *z = centred ? NULL : add(".weight_zero_point", "I32", (uint64_t)(N / per), GROUPS, 4);
    struct tensor *g = ordered ? add(".weight_g_idx", "I32", K, 0, 4) : NULL;
    shape->data[0] = N;
    shape->data[2] = K;
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < K; k++) {
            put(w, (size_t)(n * (K / per) + k / per), k % per, code_of(n, k));
            if (g != NULL) {
                g->data[k] = (uint32_t)group_of(k);
            }
        }
        for (int j = 0; j < GROUPS; j++) {
            put_half(s, (size_t)(n * GROUPS + j), scale_of(n, j), true);
            if (z != NULL) {
                put(z, (size_t)(n / per * GROUPS + j), n % per, zero_of(n, j));
            }
        }
    }
}

static void make_fp8(uint64_t scale_rows, uint64_t scale_columns, const char *end)
{
    make(8, false, false, "{\"quant_method\":\"fp8\",\"weight_block_size\":[16,64]}");
    struct tensor *w = add(".weight", "F8_E4M3", N, K, 1);
    struct tensor *s = add(end, "F32", scale_rows, scale_columns, 4);
    for (int i = 0; i < N * K; i++) {
        ((unsigned char *)w->data)[i] = (unsigned char)(i % 127 + (i / 127 % 2) * 128); /* no NaN */
    }
    for (uint64_t i = 0; i < scale_rows * (scale_columns == 0 ? 1 : scale_columns); i++) {
        float f = 0.001f * (float)(i + 1);
        memcpy(&s->data[i], &f, sizeof f);
    }
}

/* Floats of 4 or 8 bits with scales per group: NVFP4 of compressed-tensors or ModelOpt, MXFP4, MXFP8. */
static void make_groups(const char *config, int n_bits, int group, const char *factor, float value)
{
    make(n_bits, false, false, config);
    bool is_modelopt = strstr(config, "modelopt") != NULL, is_nvfp4 = factor != NULL;
    struct tensor *w = n_bits == 8 ? add(".weight", "F8_E4M3", N, K, 1)
                                   : add(is_modelopt ? ".weight" : ".weight_packed", "U8", N, K / 2, 1);
    struct tensor *s = add(".weight_scale", is_nvfp4 ? "F8_E4M3" : "U8", N, (uint64_t)(K / group), 1);
    for (size_t i = 0; i < w->bytes; i++) {
        ((unsigned char *)w->data)[i] = (unsigned char)(n_bits == 8 ? i % 127 + i / 127 % 2 * 128 : i * 73 % 251);
    }
    for (size_t i = 0; i < s->bytes; i++) {
        ((unsigned char *)s->data)[i] = (unsigned char)(is_nvfp4 ? i % 127 : 120 + i % 15);
    }
    if (is_nvfp4) {
        memcpy(add(factor, "F32", 1, 0, 4)->data, &value, sizeof value);
    }
}

static const char nvfp4_config[] =
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\",\"config_groups\":{\"g\":{"
    "\"weights\":{\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16}}}}";
static const char mxfp4_config[] =
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp4-pack-quantized\",\"config_groups\":{\"g\":{"
    "\"weights\":{\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32}}}}";
static const char mxfp8_config[] =
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp8-quantized\",\"config_groups\":{\"g\":{"
    "\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32}}}}";
static const char modelopt_config[] = "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}";

/* --- reading it --------------------------------------------------------------------------------------------------- */

static struct gguf *open_good(enum dtype type)
{
    struct gguf *g;
    struct err_info info = {0};
    enum err err = open_folder(&g, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", err_code(err), info.text);
    const struct gguf_tensor *t = gguf_find_tensor(g, "blk.0.attn_q.weight");
    ck_assert_ptr_nonnull(t);
    ck_assert_str_eq(dtype_info(t->type)->name, dtype_info(type)->name);
    ck_assert_uint_eq(t->dims[0], K);
    ck_assert_uint_eq(t->dims[1], N);
    ck_assert_ptr_nonnull(t->source);
    return g;
}

/* The weight is what `value` says, in read to the bit and in encode to `rounding` of each (of halves below
 * 2^-14, of that). */
static void check_values(enum dtype type, float (*value)(int n, int k), float rounding)
{
    static unsigned char rows[N * K * 4];
    float row[K], back[K];
    uint64_t row_bytes;
    struct gguf *g = open_good(type);
    const struct row_source *s = gguf_find_tensor(g, "blk.0.attn_q.weight")->source;
    ck_assert(dtype_row_bytes(type, K, &row_bytes));
    row_source_encode(s, 0, 5, rows); /* in two calls that begin and end anywhere */
    row_source_encode(s, 5, N - 5, rows + 5 * row_bytes);
    for (int n = 0; n < N; n++) {
        s->ops->read(s, (uint32_t)n, 0, 32, row);
        s->ops->read(s, (uint32_t)n, 32, K - 32, row + 32);
        quant_ops(type)->dequantize(rows + (size_t)n * row_bytes, K, back);
        for (int k = 0; k < K; k++) {
            float want = value(n, k);
            if (row[k] != want || !(fabsf(back[k] - want) <= rounding * (fabsf(want) + 0x1p-14f))) {
                ck_abort_msg("row %d, input %d: %g, packed %g, expected %g", n, k, (double)row[k], (double)back[k],
                             (double)want);
            }
        }
    }
    gguf_close(&g);
}

START_TEST(integers_are_exact)
{
    for (int less_one = 0; less_one < 2; less_one++) {
        make_gptq(4, true, false, less_one);
        check_values(DTYPE_Q4_0, value_of, 0);
        make_gptq(4, false, false, less_one);
        check_values(DTYPE_Q5_0, value_of, 0);
        make_gptq(8, true, false, less_one);
        check_values(DTYPE_Q8_0, value_of, 0);
    }
    make_awq();
    check_values(DTYPE_Q5_0, value_of, 0);
    make_packed(4, true, false);
    check_values(DTYPE_Q4_0, value_of, 0);
    make_packed(4, false, false);
    check_values(DTYPE_Q5_0, value_of, 0);
    make_packed(8, true, false);
    check_values(DTYPE_Q8_0, value_of, 0);
}
END_TEST

START_TEST(what_no_block_type_holds_is_a_half)
{
    make_gptq(4, false, true, true); /* inputs of a group stand anywhere */
    check_values(DTYPE_F16, value_of, 0x1p-11f);
    make_packed(4, true, true);
    check_values(DTYPE_F16, value_of, 0x1p-11f);
    make_gptq(8, false, false, false); /* nine bits */
    check_values(DTYPE_F16, value_of, 0x1p-11f);
    make_packed(4, true, false); /* scales that no half is near to */
    for (int i = 0; i < N * GROUPS; i++) {
        put_half(find(".weight_scale"), (size_t)i, 1e-7f, true);
    }
    struct gguf *g = open_good(DTYPE_F32);
    gguf_close(&g);
}
END_TEST

START_TEST(what_is_taken_apart_is_unpacked)
{
    struct gguf *g;
    struct err_info info = {0};
    make_awq();
    folder.is_unpacked = true;
    enum err err = open_folder(&g, &info);
    folder.is_unpacked = false;
    ck_assert_msg(err == ERR_OK, "%s: %s", err_code(err), info.text);
    const struct gguf_tensor *t = gguf_find_tensor(g, "blk.0.attn_q.weight");
    ck_assert_ptr_nonnull(t);
    ck_assert(t->data != NULL && t->type == DTYPE_F32 && t->dims[0] == K && t->dims[1] == N);
    ck_assert_uint_eq(t->bytes, N * K * sizeof(float));
    for (int i = 0; i < N * K; i++) {
        if (((const float *)t->data)[i] != value_of(i / K, i % K)) {
            ck_abort_msg("element %d", i);
        }
    }
    gguf_close(&g);
}
END_TEST

static float fp8_value(int n, int k)
{
    const unsigned char *codes = (const unsigned char *)find(".weight")->data;
    const struct tensor *s = &folder.t[1];
    float scale;
    uint64_t at = s->dims[0] == 1 ? 0 : s->dims[0] == N ? (uint64_t)n : (uint64_t)(n / 16 * 2 + k / 64);
    memcpy(&scale, &s->data[at], sizeof scale);
    return hf_e4m3(codes[n * K + k]) * scale;
}

START_TEST(floats_of_8_bits_have_scales_of_blocks_rows_or_one)
{
    make_fp8(2, 2, ".weight_scale_inv");
    check_values(DTYPE_F16, fp8_value, 0x1p-11f);
    make_fp8(N, 1, ".weight_scale");
    check_values(DTYPE_F16, fp8_value, 0x1p-11f);
    make_fp8(N, 0, ".weight_scale");
    check_values(DTYPE_F16, fp8_value, 0x1p-11f);
    make_fp8(1, 0, ".weight_scale");
    check_values(DTYPE_F16, fp8_value, 0x1p-11f);
    strcpy(folder.quantisation, "{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}");
    check_values(DTYPE_F16, fp8_value, 0x1p-11f);
}
END_TEST

/* The value of input k of row n, before scales. */
static float element(int n, int k)
{
    static const float fp4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const unsigned char *codes = (const unsigned char *)folder.t[0].data;
    if (bits == 8) {
        return hf_e4m3(codes[n * K + k]);
    }
    int code = codes[(n * K + k) / 2] >> k % 2 * 4 & 15;
    return code < 8 ? fp4[code] : -fp4[code - 8];
}

static float nvfp4_value(int n, int k)
{
    float factor;
    memcpy(&factor, folder.t[2].data, sizeof factor);
    factor = strcmp(folder.t[2].end, ".weight_scale_2") == 0 ? factor : 1 / factor;
    return hf_e4m3(((const unsigned char *)folder.t[1].data)[n * (K / 16) + k / 16]) * factor * element(n, k);
}

static float mx_value(int n, int k)
{
    return ldexpf(element(n, k), ((const unsigned char *)folder.t[1].data)[n * (K / 32) + k / 32] - 127);
}

START_TEST(floats_have_scales_per_group)
{
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", 300);
    check_values(DTYPE_NVFP4_SCALED, nvfp4_value, 0);
    make_groups(modelopt_config, 4, 16, ".weight_scale_2", 0.0123f);
    check_values(DTYPE_NVFP4_SCALED, nvfp4_value, 0);
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", 1e9f); /* halves of scales would be 0 */
    check_values(DTYPE_F32, nvfp4_value, 0);
    make_groups(mxfp4_config, 4, 32, NULL, 0);
    check_values(DTYPE_MXFP4, mx_value, 0);
    make_groups(mxfp8_config, 8, 32, NULL, 0);
    check_values(DTYPE_BF16, mx_value, 0);
}
END_TEST

START_TEST(e4m3_is_what_its_fields_say)
{
    for (int code = 0; code < 256; code++) {
        int e = code >> 3 & 15, m = code & 7;
        double want = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
        want = code >= 128 ? -want : want;
        float found = hf_e4m3((uint8_t)code);
        ck_assert_msg((code & 127) == 127 ? isnan(found) : (double)found == want, "code %d: %g", code, (double)found);
    }
}
END_TEST

/* Bytes that may be dropped are the weight's own, each tensor as a whole, or rows of it once. */
static uint64_t dropped;
static void count(void *arg, const void *data, uint64_t n)
{
    (void)arg;
    (void)data;
    dropped += n;
}

START_TEST(pages_are_given_back_with_the_last_row)
{
    make_gptq(4, false, false, true);
    struct gguf *g = open_good(DTYPE_Q5_0);
    const struct row_source *s = gguf_find_tensor(g, "blk.0.attn_q.weight")->source;
    dropped = 0;
    s->ops->done(s, 0, 16, count, NULL);
    ck_assert_uint_eq(dropped, 0);
    s->ops->done(s, 16, N - 16, count, NULL);
    ck_assert_uint_eq(dropped, find(".qweight")->bytes + find(".scales")->bytes + find(".qzeros")->bytes);
    gguf_close(&g);
}
END_TEST

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

static void refuse(enum err want, const char *a, const char *b)
{
    struct gguf *g;
    struct err_info info = {0};
    enum err err = open_folder(&g, &info);
    ck_assert_msg(err == want && strstr(info.text, a) != NULL && strstr(info.text, b) != NULL,
                  "expected %s with '%s' and '%s', found %s: %s", err_code(want), a, b, err_code(err), info.text);
    ck_assert_ptr_null(g);
}

static void remove_tensor(const char *end)
{
    struct tensor *t = find(end);
    memmove(t, t + 1, (size_t)(folder.t + folder.n - (t + 1)) * sizeof *t);
    folder.n--;
}

START_TEST(configs_that_are_not_known_are_refused)
{
    static const struct {
        const char *config;
        enum err err;
        const char *a, *b;
    } rows[] = {
        {"{\"quant_method\":\"bitsandbytes\"}", ERR_UNSUPPORTED_TYPE, "'bitsandbytes'",
         "known are fp8, fbgemm_fp8, gptq"},
        {"{\"quant_method\":\"hqq\"}", ERR_UNSUPPORTED_TYPE, "'hqq'", "compressed-tensors"},
        {"{\"load_in_8bit\":true}", ERR_BAD_CONFIG, "quant_method", "found none"},
        {"{\"quant_method\":7}", ERR_BAD_CONFIG, "quant_method", "found 7"},
        {"{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":32}", ERR_UNSUPPORTED_TYPE, "bits: expected 4 or 8",
         "found 3"},
        {"{\"quant_method\":\"gptq\",\"bits\":4}", ERR_BAD_CONFIG, "group_size: expected -1 or 1 to", "found none"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}", ERR_BAD_CONFIG, "group_size", "found 0"},
        {"{\"quant_method\":\"gptq\",\"bits\":\"4\",\"group_size\":32}", ERR_BAD_CONFIG, "bits", "found '4'"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"checkpoint_format\":\"marlin\"}",
         ERR_UNSUPPORTED_TYPE, "checkpoint_format: expected gptq, gptq_v2", "'marlin'"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"is_marlin_format\":true}", ERR_UNSUPPORTED_TYPE,
         "is_marlin_format", "true"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemv\"}", ERR_UNSUPPORTED_TYPE,
         "version: expected gemm", "'gemv'"},
        {"{\"quant_method\":\"awq\",\"bits\":8,\"group_size\":32}", ERR_UNSUPPORTED_TYPE, "bits: expected 4",
         "found 8"},
        {"{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", ERR_UNSUPPORTED_TYPE, "fmt: expected e4m3", "'e5m2'"},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", ERR_BAD_CONFIG, "weight_block_size", "two numbers"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}", ERR_UNSUPPORTED_TYPE,
         "format: expected pack-quantized", "'marlin-24'"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8_AWQ\"}", ERR_UNSUPPORTED_TYPE,
         "quant_algo: expected NVFP4, FP8", "'W4A8_AWQ'"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}", ERR_BAD_CONFIG, "config_groups",
         "found none"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":4,\"type\":"
         "\"float\",\"strategy\":\"group\"}}}}",
         ERR_BAD_CONFIG, "g.weights.group_size: expected -1 or 1 to", "found none"},
        {"{\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}}",
         ERR_UNSUPPORTED_TYPE, "sparsity_config.format: expected dense", "'sparse-24-bitmask'"},
        {"{\"quant_method\":\"compressed-tensors\",\"transform_config\":{\"config_groups\":{\"u\":{}}}}",
         ERR_UNSUPPORTED_TYPE, "transform_config", "rotations"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        make(4, true, false, rows[i].config);
        add(".bias", "F32", 4, 0, 4);
        refuse(rows[i].err, rows[i].a, rows[i].b);
    }
}
END_TEST

START_TEST(a_method_without_its_tensors_is_refused)
{
    static const char *const configs[] = {
        "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}",
        "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32}", "{\"quant_method\":\"fp8\"}",
        "{\"quant_method\":\"mxfp4\"}",
        "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":8,"
        "\"type\":\"int\",\"strategy\":\"channel\"}}}}"};
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        make(4, true, false, configs[i]);
        add(".weight", "BF16", N, K, 2);
        refuse(ERR_BAD_CONFIG, "quantization_config.quant_method: expected tensors *", "found none");
    }
}
END_TEST

START_TEST(tensors_that_are_missing_are_named)
{
    make_gptq(4, false, false, true);
    remove_tensor(".scales");
    refuse(ERR_MISSING_TENSOR, "q_proj.scales'", "q_proj.qweight'");
    make_gptq(4, false, false, true);
    remove_tensor(".qzeros");
    refuse(ERR_MISSING_TENSOR, "q_proj.qzeros'", "found none");
    make_packed(4, true, false);
    remove_tensor(".weight_shape");
    refuse(ERR_MISSING_TENSOR, "q_proj.weight_shape'", "found none");
    make_fp8(2, 2, ".weight_scale_inv");
    remove_tensor(".weight_scale_inv");
    refuse(ERR_MISSING_TENSOR, "q_proj.weight_scale'", "found none");
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", 300);
    remove_tensor(".weight_global_scale");
    refuse(ERR_MISSING_TENSOR, "q_proj.weight_global_scale'", "found none");
    make_groups(modelopt_config, 4, 16, ".weight_global_scale", 300);
    refuse(ERR_MISSING_TENSOR, "q_proj.weight_scale_2'", "found none");
}
END_TEST

static void set_shape(const char *end, uint64_t rows, uint64_t columns)
{
    struct tensor *t = find(end);
    size_t element = t->bytes / (t->dims[0] * (t->n_dims == 2 ? t->dims[1] : 1));
    t->n_dims = columns == 0 ? 1 : 2;
    t->dims[0] = rows;
    t->dims[1] = columns;
    t->bytes = rows * (columns == 0 ? 1 : columns) * element;
}

START_TEST(shapes_that_do_not_fit_are_named)
{
    make_gptq(4, false, false, true);
    set_shape(".scales", GROUPS, N - 8);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.scales': expected [4, 24]", "found [4, 16]");
    make_gptq(4, false, false, true);
    set_shape(".qzeros", GROUPS / 2, N / 8);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.qzeros': expected [4, 3]", "found [2, 3]");
    make_gptq(4, false, false, true);
    set_shape(".g_idx", K / 2, 0);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.g_idx'", "found [64]");
    make_gptq(4, false, false, true);
    set_shape(".qweight", 64, 0);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.qweight': expected a matrix", "found [64]");
    make_packed(4, true, false);
    set_shape(".weight_packed", N, K / 8 - 1);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_packed': expected [24, 16]", "found [24, 15]");
    make_packed(4, true, false);
    set_shape(".weight_scale", N, 3);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_scale'", "found [24, 3]");
    make_fp8(3, 2, ".weight_scale_inv");
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_scale_inv': expected [2, 2]", "found [3, 2]");
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", 300);
    set_shape(".weight_scale", N, K / 32);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_scale': expected [24, 8]", "found [24, 4]");
    make_groups(mxfp4_config, 4, 32, NULL, 0);
    set_shape(".weight_packed", N, K / 2 - 1);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_packed': expected inputs in groups of 32", "found 126");
    make_groups(mxfp8_config, 8, 32, NULL, 0);
    set_shape(".weight_scale", N - 1, K / 32);
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_scale': expected [24, 4]", "found [23, 4]");
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", 300);
    set_shape(".weight_global_scale", 1, 1);
    find(".weight_global_scale")->dims[0] = 2;
    find(".weight_global_scale")->bytes = 8;
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_global_scale': expected [1]", "found [2, 1]");
}
END_TEST

START_TEST(contents_that_contradict_are_named)
{
    make_gptq(4, false, true, true);
    find(".g_idx")->data[7] = GROUPS;
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.g_idx': expected groups from 0 to 3", "found 4 for input 7");
    make_gptq(4, false, false, true);
    find(".qweight")->dtype = "F32";
    refuse(ERR_UNSUPPORTED_TYPE, "q_proj.qweight': expected I32", "found F32");
    make_gptq(4, false, false, true);
    find(".scales")->dtype = "I16";
    refuse(ERR_UNSUPPORTED_TYPE, "q_proj.scales': expected F32, F16 or BF16", "found I16");
    make_gptq(4, false, false, true);
    strcpy(strstr(folder.quantisation, "\"group_size\":32"), "\"group_size\":64}"); /* tensors have groups of 32 */
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.scales': expected [2, 24]", "found [4, 24]");
    make_packed(4, true, false);
    memcpy(strstr(folder.quantisation, "\"group_size\":32"), "\"group_size\":64", 15);
    refuse(ERR_BAD_CONFIG, "expected integers of 4 bits in groups of 32", "found integers of 4 bits in groups of 64");
    make_packed(4, true, false);
    memcpy(strstr(folder.quantisation, "\"num_bits\":4"), "\"num_bits\":8", 12);
    refuse(ERR_BAD_CONFIG, "expected integers of 4 bits", "found integers of 8 bits");
    make_packed(4, true, false);
    find(".weight_shape")->data[0] = N + 1;
    refuse(ERR_BAD_TENSOR_SHAPE, "q_proj.weight_packed': expected [25, 16]", "found [24, 16]");
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", -1);
    refuse(ERR_BAD_CONFIG, "q_proj.weight_global_scale': expected a positive number", "found -1");
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", 300);
    ((unsigned char *)find(".weight_scale")->data)[9] = 0x7F;
    refuse(ERR_UNSUPPORTED_TYPE, "q_proj.weight_scale': expected numbers without sign", "found nan in element 9");
    make_groups(nvfp4_config, 4, 16, ".weight_global_scale", 300);
    ((unsigned char *)find(".weight_scale")->data)[7] = 0xB8;
    refuse(ERR_UNSUPPORTED_TYPE, "q_proj.weight_scale': expected numbers without sign", "found -1 in element 7");
    make_groups(mxfp4_config, 4, 32, NULL, 0);
    memcpy(strstr(folder.quantisation, "\"group_size\":32"), "\"group_size\":16", 15);
    refuse(ERR_BAD_CONFIG, "expected floats of 4 bits in groups of 32", "found floats of 4 bits in groups of 16");
    make_groups(modelopt_config, 4, 16, ".weight_scale_2", 1);
    find(".weight_scale")->dtype = "I8";
    refuse(ERR_UNSUPPORTED_TYPE, "q_proj.weight_scale': expected F8_E4M3", "found I8");
}
END_TEST

Suite *hf_quant_suite(void)
{
    Suite *s = suite_create("hf_quant");
    TCase *t = tcase_create("hf_quant");
    tcase_add_test(t, integers_are_exact);
    tcase_add_test(t, what_no_block_type_holds_is_a_half);
    tcase_add_test(t, what_is_taken_apart_is_unpacked);
    tcase_add_test(t, floats_of_8_bits_have_scales_of_blocks_rows_or_one);
    tcase_add_test(t, floats_have_scales_per_group);
    tcase_add_test(t, e4m3_is_what_its_fields_say);
    tcase_add_test(t, pages_are_given_back_with_the_last_row);
    tcase_add_test(t, configs_that_are_not_known_are_refused);
    tcase_add_test(t, tensors_that_are_missing_are_named);
    tcase_add_test(t, a_method_without_its_tensors_is_refused);
    tcase_add_test(t, shapes_that_do_not_fit_are_named);
    tcase_add_test(t, contents_that_contradict_are_named);
    suite_add_tcase(s, t);
    return s;
}
