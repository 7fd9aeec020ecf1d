/* Formats: GPTQ and AWQ as written by AutoGPTQ 0.7, GPTQModel 2 and AutoAWQ 0.2, compressed-tensors 0.9, fp8 of
 * DeepSeek-V3's inference/kernel.py, MXFP4 of transformers' integrations/mxfp4.py, NVFP4 and MXFP8 of
 * compressed-tensors (nvfp4-pack-quantized, mxfp8-quantized), NVFP4 of ModelOpt's exports. */
#include "engine/hf/hf_quant_rows.h"

#include <math.h>
#include <string.h>

enum { RUN = HF_ROWS_GRAIN };

float hf_e4m3(uint8_t code)
{
    uint32_t exponent = code >> 3 & 15u, fraction = code & 7u;
    float f = (float)fraction * 0x1p-9f;
    if (exponent != 0) {
        f = exponent == 15 && fraction == 7 ? NAN : dtype_f32_of_bits((exponent + 120) << 23 | fraction << 20);
    }
    return (code & 0x80) != 0 ? -f : f;
}

static uint32_t word_at(const uint8_t *words, uint64_t i)
{
    uint32_t w;
    memcpy(&w, words + i * sizeof w, sizeof w);
    return w;
}

/* Returns the bit at which AWQ keeps row r of eight. */
static int awq_shift(uint32_t r) { return (int)(4 * (r % 2 * 4 + r % 8 / 2)); }

float hf_rows_scale(const struct hf_rows *s, uint64_t i)
{
    if (s->scale_type == DTYPE_F32) {
        return dtype_f32_of_bits(word_at(s->scales, i));
    }
    uint16_t h;
    memcpy(&h, s->scales + 2 * i, sizeof h);
    return s->scale_type == DTYPE_F16 ? dtype_f16_to_f32(h) : dtype_bf16_to_f32(h);
}

static float scale_at(const struct hf_rows *s, uint32_t file_row, uint32_t group)
{
    return hf_rows_scale(s, file_row / s->scale_rows * s->scale_row + group * s->scale_group);
}

/* Returns the zero point of a row in a group. */
static int zero_at(const struct hf_rows *s, uint32_t file_row, uint32_t group)
{
    if (s->zeros == NULL) {
        return s->zero;
    }
    if (s->zeros_are_bytes) {
        return (int8_t)s->zeros[file_row * s->zero_row + group * s->zero_group];
    }
    uint32_t per_word = 32 / (uint32_t)s->bits;
    uint32_t word = word_at(s->zeros, file_row / per_word * s->zero_row + group * s->zero_group) + s->zero_plus;
    int shift = s->layout == HF_CODES_AWQ ? awq_shift(file_row) : (int)(file_row % per_word) * s->bits;
    return (int)(word >> shift & ((1u << s->bits) - 1));
}

/* Reads the file's codes[n] of inputs [from, from + n) of a row; n <= RUN. */
static void read_codes(const struct hf_rows *s, uint32_t file_row, uint32_t from, uint32_t n, int16_t *codes)
{
    const uint32_t per_word = 32 / (uint32_t)s->bits, mask = (1u << s->bits) - 1;
    uint64_t row_words = (s->base.n_in + per_word - 1) / per_word, at;
    switch (s->layout) {
    case HF_CODES_AWQ:
        at = (uint64_t)from * (s->file_rows / per_word) + file_row / per_word;
        for (uint32_t i = 0; i < n; i++, at += s->file_rows / per_word) {
            codes[i] = (int16_t)(word_at(s->codes, at) >> awq_shift(file_row) & mask);
        }
        break;
    case HF_CODES_I8:
        for (uint32_t i = 0; i < n; i++) {
            codes[i] = (int8_t)s->codes[(uint64_t)file_row * s->base.n_in + from + i];
        }
        break;
    default: { /* words along the inputs */
        bool is_gptq = s->layout == HF_CODES_GPTQ;
        uint64_t step = is_gptq ? s->file_rows : 1;
        at = is_gptq ? from / per_word * step + file_row : file_row * row_words + from / per_word;
        for (uint32_t i = 0; i < n; i += per_word, at += step) {
            uint32_t word = word_at(s->codes, at);
            for (uint32_t k = i; k < n && k < i + per_word; k++, word >>= s->bits) {
                codes[k] = (int16_t)(word & mask);
            }
        }
    }
    }
}

/* --- as floats ---------------------------------------------------------------------------------------------------- */

static void read_integers(const struct hf_rows *s, uint32_t file_row, uint32_t from, uint32_t n, float *out)
{
    int16_t codes[RUN];
    read_codes(s, file_row, from, n, codes);
    uint32_t group = UINT32_MAX;
    float scale = 0;
    int zero = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t g = s->groups != NULL ? word_at(s->groups, from + i) : (from + i) / s->group;
        if (g != group) {
            group = g;
            scale = scale_at(s, file_row, g);
            zero = zero_at(s, file_row, g);
        }
        out[i] = scale * (float)(codes[i] - zero);
    }
}

/* Returns element i of the file, a float of 4 bits. */
static float fp4_at(const struct hf_rows *s, uint64_t i)
{
    static const float fp4[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6}; /* E2M1 [OCP Microscaling Formats v1.0, 5.3.3] */
    unsigned code = s->codes[i / 2] >> 4 * (i % 2) & 15u;
    return (code & 8) != 0 ? -fp4[code & 7] : fp4[code & 7];
}

static void read_floats(const struct hf_rows *s, uint32_t file_row, uint32_t from, uint32_t n, float *out)
{
    uint64_t at = (uint64_t)file_row * s->base.n_in + from;
    float scale = 0;
    switch (s->layout) {
    case HF_CODES_E4M3:
        for (uint32_t i = 0; i < n; i++) {
            scale = i == 0 || (from + i) % s->group == 0 ? scale_at(s, file_row, (from + i) / s->group) : scale;
            out[i] = hf_e4m3(s->codes[at + i]) * scale;
        }
        break;
    case HF_CODES_MXFP4:
        for (uint32_t i = 0; i < n; i++) {
            out[i] = ldexpf(fp4_at(s, at + i), s->scales[(at + i) / 32] - 127);
        }
        break;
    case HF_CODES_NVFP4:
        for (uint32_t i = 0; i < n; i++) {
            out[i] = hf_e4m3(s->scales[(at + i) / 16]) * s->factor * fp4_at(s, at + i);
        }
        break;
    case HF_CODES_MXFP8:
        for (uint32_t i = 0; i < n; i++) {
            out[i] = ldexpf(hf_e4m3(s->codes[at + i]), s->scales[(at + i) / 32] - 127);
        }
        break;
    default: /* HF_CODES_TRANSPOSED */
        at = (uint64_t)(file_row / s->matrix_rows) * s->matrix_rows * s->base.n_in + (uint64_t)from * s->matrix_rows +
             file_row % s->matrix_rows;
        for (uint32_t i = 0; i < n; i++, at += s->matrix_rows) {
            uint16_t h;
            memcpy(&h, s->codes + 2 * at, sizeof h);
            out[i] = dtype_bf16_to_f32(h);
        }
    }
}

static void read_run(const struct hf_rows *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    bool is_integer = s->layout <= HF_CODES_I8;
    (is_integer ? read_integers : read_floats)(s, s->first + row * s->step, from, n, out);
}

static void read_row(const struct row_source *source, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct hf_rows *s = (const struct hf_rows *)(const void *)source;
    for (uint32_t i = 0; i < n; i += RUN) {
        read_run(s, row, from + i, n - i < RUN ? n - i : RUN, out + i);
    }
}

/* --- in the type of the weight ------------------------------------------------------------------------------------ */

/* Writes a block of Q4_0, Q5_0 or Q8_0: a half, the fifth bits, and codes whose low nibbles are the first half
 * [ggml-common.h, llama.cpp b11434]. codes: signed, [RUN]. */
static void put_block(enum dtype type, float scale, const int16_t *codes, uint8_t *to)
{
    uint16_t half = dtype_f32_to_f16(scale);
    memcpy(to, &half, sizeof half);
    to += sizeof half;
    if (type == DTYPE_Q8_0) {
        for (int i = 0; i < RUN; i++) {
            to[i] = (uint8_t)(int8_t)codes[i];
        }
        return;
    }
    if (type == DTYPE_Q5_0) {
        uint32_t fifth = 0;
        for (int i = 0; i < RUN; i++) {
            fifth |= ((uint32_t)(codes[i] + 16) >> 4 & 1u) << i;
        }
        memcpy(to, &fifth, sizeof fifth);
        to += sizeof fifth;
    }
    int plus = type == DTYPE_Q5_0 ? 16 : 8;
    for (int i = 0; i < RUN / 2; i++) {
        to[i] = (uint8_t)(((codes[i] + plus) & 15) | ((codes[i + RUN / 2] + plus) & 15) << 4);
    }
}

static void encode_integers(const struct hf_rows *s, uint32_t file_row, uint32_t from, uint8_t *to)
{
    int16_t codes[RUN];
    uint32_t group = from / s->group;
    read_codes(s, file_row, from, RUN, codes);
    int16_t zero = (int16_t)zero_at(s, file_row, group);
    for (int i = 0; i < RUN; i++) {
        codes[i] = (int16_t)(codes[i] - zero);
    }
    put_block(s->base.type, scale_at(s, file_row, group), codes, to);
}

/* Writes MXFP4 in GGUF's form: the exponent, then low nibbles for the first 16 inputs. */
static void encode_mxfp4(const struct hf_rows *s, uint32_t file_row, uint32_t from, uint8_t *to)
{
    uint64_t block = ((uint64_t)file_row * s->base.n_in + from) / RUN;
    const uint8_t *codes = s->codes + block * RUN / 2;
    *to++ = s->scales[block];
    for (int i = 0; i < RUN / 2; i++) {
        int low = codes[i / 2] >> 4 * (i % 2) & 15, high = codes[(i + RUN / 2) / 2] >> 4 * (i % 2) & 15;
        to[i] = (uint8_t)(low | high << 4);
    }
}

/* Writes blocks of NVFP4 in GGUF's form, each after the factor: scales, then per 16 inputs 8 bytes, whose low nibbles are
 * the first 8. */
static void encode_nvfp4(const struct hf_rows *s, const struct row_part *p, uint8_t *out, uint64_t stride)
{
    enum { BLOCK = 64, GROUP = 16, SCALES = BLOCK / GROUP };
    for (uint32_t r = 0; r < p->n_rows; r++) {
        uint64_t at = (uint64_t)(s->first + (p->row + r) * s->step) * s->base.n_in + p->from;
        uint8_t *to = out + r * stride;
        for (uint64_t end = at + p->n_in; at < end; at += BLOCK) {
            memcpy(to, &s->factor, sizeof s->factor);
            to += sizeof s->factor;
            memcpy(to, s->scales + at / GROUP, SCALES);
            to += SCALES;
            for (int i = 0; i < BLOCK / 2; i++) {
                const uint8_t *codes = s->codes + at / 2 + i / 8 * 8 + i % 8 / 2; /* i % 8 of the first half of 16 */
                *to++ = (uint8_t)((codes[0] >> 4 * (i % 2) & 15) | (codes[4] >> 4 * (i % 2) & 15) << 4);
            }
        }
    }
}

static void encode_run(const struct hf_rows *s, uint32_t row, uint32_t from, uint32_t n, uint8_t *to)
{
    uint32_t file_row = s->first + row * s->step;
    float x[RUN];
    if (s->base.type == DTYPE_Q4_0 || s->base.type == DTYPE_Q5_0 || s->base.type == DTYPE_Q8_0) {
        encode_integers(s, file_row, from, to);
        return;
    }
    if (s->base.type == DTYPE_MXFP4) {
        encode_mxfp4(s, file_row, from, to);
        return;
    }
    read_run(s, row, from, n, x);
    if (s->base.type == DTYPE_F32) {
        memcpy(to, x, n * sizeof *x);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h = s->base.type == DTYPE_F16 ? dtype_f32_to_f16(x[i]) : dtype_f32_to_bf16(x[i]);
        memcpy(to + 2 * i, &h, sizeof h);
    }
}

/* Writes F8_E4M3 as halves. Consecutive rows and inputs share a scale, and with it a table of converted codes. */
static void encode_e4m3(const struct hf_rows *s, const struct row_part *p, uint8_t *out, uint64_t stride)
{
    uint16_t table[256];
    float scale = NAN;
    for (uint32_t from = p->from, last = p->from + p->n_in, end; from < last; from = end) {
        end = MIN_OF(last, from + s->group - from % s->group);
        for (uint32_t r = 0; r < p->n_rows; r++) {
            const uint8_t *codes = s->codes + (uint64_t)(p->row + r) * s->base.n_in;
            float next = scale_at(s, p->row + r, from / s->group);
            for (unsigned code = 0; next != scale && code < ARRAY_LEN(table); code++) {
                table[code] = dtype_f32_to_f16(hf_e4m3((uint8_t)code) * next);
            }
            scale = next;
            for (uint32_t i = from; i < end; i++) {
                memcpy(out + r * stride + 2 * (size_t)(i - p->from), &table[codes[i]], sizeof *table);
            }
        }
    }
}

/* Inputs in the outer loop, rows in the inner one: if the file keeps columns together, rows share cache lines. */
static void encode_part(const struct row_source *source, const struct row_part *p, void *out, uint64_t stride)
{
    const struct hf_rows *s = (const struct hf_rows *)(const void *)source;
    if (s->layout == HF_CODES_E4M3 && s->base.type == DTYPE_F16) {
        encode_e4m3(s, p, out, stride);
        return;
    }
    if (s->base.type == DTYPE_NVFP4_SCALED) {
        encode_nvfp4(s, p, out, stride);
        return;
    }
    for (uint32_t at = 0; at < p->n_in; at += RUN) {
        uint8_t *to = (uint8_t *)out + row_source_bytes(source, at);
        for (uint32_t r = 0; r < p->n_rows; r++, to += stride) {
            encode_run(s, p->row + r, p->from + at, MIN_OF(p->n_in - at, (uint32_t)RUN), to);
        }
    }
}

static void rows_done(const struct row_source *source, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    const struct hf_rows *s = (const struct hf_rows *)(const void *)source;
    bool is_last = row + n == s->base.n_rows;
    for (int i = 0; i < HF_CODES_PARTS; i++) {
        const struct hf_part *p = &s->parts[i];
        if (p->data != NULL && p->row_bytes != 0) {
            drop(arg, (const uint8_t *)p->data + row * p->row_bytes, n * p->row_bytes);
        } else if (p->data != NULL && is_last) {
            drop(arg, p->data, p->bytes);
        }
    }
}

const struct row_source_ops hf_rows_ops = {.read = read_row, .encode = encode_part, .done = rows_done};
