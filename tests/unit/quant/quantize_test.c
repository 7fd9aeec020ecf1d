/* The quantisers: what a type can hold comes back exactly, what it cannot comes back as near as a search over all
 * scales finds, and nearer than llama.cpp's quantisers; the bytes are the same everywhere. */
#include "engine/quant/quantize.h"

#include "engine/quant/quant.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *quantize_suite(void);

enum { ROW = 512, N_ROWS = 48, MAX_ROW_BYTES = ROW * 4 };

static const enum dtype blocks[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
                                    DTYPE_Q5_1, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};

/* --- values ------------------------------------------------------------------------------------------------------- */

static uint32_t state;

static uint32_t next_bits(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static float uniform(void) { return (float)next_bits() / 16777216.0f; }

/* Nearly Gaussian, of variance 1: exact sums, so that it is the same everywhere. */
static float gauss(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += uniform();
    }
    return sum;
}

static float x[N_ROWS][ROW], importance[ROW];

static void make_values(void)
{
    state = 12345;
    for (int i = 0; i < ROW; i++) {
        float g = gauss();
        importance[i] = g * g * (i % 7 == 0 ? 20.0f : 1.0f);
    }
    for (int r = 0; r < N_ROWS; r++) {
        for (int i = 0; i < ROW; i++) {
            float g = gauss();
            x[r][i] = 0.02f * (r % 3 == 0 ? g : r % 3 == 1 ? g * fabsf(g) : g + 0.7f);
        }
    }
}

/* Root of the mean of squared errors, by importance, over that of the values. */
static double loss_of(enum dtype type, const float *w, bool is_weighted)
{
    double lost = 0, all = 0;
    for (int r = 0; r < N_ROWS; r++) {
        unsigned char bytes[MAX_ROW_BYTES];
        float back[ROW];
        ck_assert(quantize_row(type, x[r], ROW, w, bytes));
        quant_ops(type)->dequantize(bytes, ROW, back);
        for (int i = 0; i < ROW; i++) {
            double weight = is_weighted ? (double)importance[i] : 1, off = (double)back[i] - (double)x[r][i];
            lost += weight * off * off;
            all += weight * (double)x[r][i] * (double)x[r][i];
        }
    }
    return sqrt(lost / all);
}

START_TEST(errors_are_below_those_of_llama_cpp)
{
    /* ggml_quantize_chunk of llama.cpp b11434 on the same values: without importance, and with it. */
    static const struct {
        enum dtype type;
        double plain, weighted;
    } theirs[] = {
        {DTYPE_Q8_0, 0.006611, 0.006676}, {DTYPE_Q4_0, 0.099763, 0.078515}, {DTYPE_Q4_1, 0.087725, 0.051987},
        {DTYPE_Q5_0, 0.050434, 0.041772}, {DTYPE_Q5_1, 0.042391, 0.025951}, {DTYPE_Q4_K, 0.079484, 0.054084},
        {DTYPE_Q5_K, 0.040810, 0.031422}, {DTYPE_Q6_K, 0.020778, 0.016300},
    };
    make_values();
    for (size_t i = 0; i < ARRAY_LEN(theirs); i++) {
        double plain = loss_of(theirs[i].type, NULL, false), weighted = loss_of(theirs[i].type, importance, true);
        ck_assert_msg(plain <= theirs[i].plain, "%s: %g, theirs %g", dtype_info(theirs[i].type)->name, plain,
                      theirs[i].plain);
        ck_assert_msg(weighted <= theirs[i].weighted, "%s with importance: %g, theirs %g",
                      dtype_info(theirs[i].type)->name, weighted, theirs[i].weighted);
        ck_assert(plain > 0 && weighted < loss_of(theirs[i].type, NULL, true));
    }
}
END_TEST

/* --- what the types hold ------------------------------------------------------------------------------------------ */

static void put_half(unsigned char *at, float v)
{
    uint16_t h = dtype_f32_to_f16(v);
    memcpy(at, &h, sizeof h);
}

/* A block whose values use the whole range of codes and scales, as a good quantiser's do. The layouts' own knowledge is
 * in quant_test; here random bytes do, with the ends of the ranges put in. */
static void make_block(enum dtype type, unsigned char *b)
{
    const struct dtype_info *info = dtype_info(type);
    for (uint32_t i = 0; i < info->block_bytes; i++) {
        b[i] = (unsigned char)next_bits();
    }
    size_t d = type == DTYPE_Q6_K ? 208 : 0;
    put_half(b + d, 0.003f + 0.01f * uniform());
    bool is_k = type == DTYPE_Q4_K || type == DTYPE_Q5_K;
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || is_k) {
        put_half(b + 2, is_k ? 0.02f : -0.5f * uniform());
    }
    switch (type) {
    case DTYPE_Q8_0:
        b[2] = 127;
        for (int i = 3; i < 34; i++) {
            b[i] = b[i] == 128 ? 0 : b[i];
        }
        break;
    case DTYPE_Q4_0:
        b[2] &= 0xF0; /* code 0 is -8 */
        break;
    case DTYPE_Q5_0:
        b[2] &= 0xFE;
        b[6] &= 0xF0;
        break;
    case DTYPE_Q4_1:
        b[4] = 0xF0;
        break;
    case DTYPE_Q5_1:
        b[4] &= 0xFE; /* value 0: code 0; value 16: code 31 */
        b[6] |= 1;
        b[8] = 0xF0;
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: {
        static const unsigned char scales[12] = {63, 40, 50, 33, 63, 20, 31, 47, 0x5A, 0x6C, 0x77, 0x93};
        memcpy(b + 4, scales, sizeof scales);
        b[4] |= 0x80; /* the upper bits of parts 4 to 7 */
        b[5] |= 0x80;
        b[6] |= 0xC0;
        b[7] |= 0x80;
        for (int part = 0; part < 4; part++) { /* each part gets its lowest and its highest code */
            unsigned char *q = b + (type == DTYPE_Q4_K ? 16 : 48) + 32 * part;
            q[0] = 0x00;
            q[1] = 0xFF;
        }
        if (type == DTYPE_Q5_K) {
            b[16] = 0x00;
            b[17] = 0xFF;
        }
        break;
    }
    default: /* Q6_K: scales of either sign, the largest -128; a code of -32 in each part */
        for (int part = 0; part < 16; part++) {
            b[192 + part] = (unsigned char)(60 + 4 * part);
        }
        b[192 + 5] = 0x80;
        for (int i = 0; i < 64; i += 16) {
            b[i] = b[64 + i] = 0;
        }
        for (int i = 0; i < 32; i += 16) {
            b[128 + i] = b[160 + i] = 0;
        }
    }
}

START_TEST(what_a_type_holds_comes_back_exactly)
{
    state = 99;
    for (size_t t = 0; t < ARRAY_LEN(blocks); t++) {
        enum dtype type = blocks[t];
        size_t n = dtype_info(type)->block_elems;
        for (int round = 0; round < 50; round++) {
            unsigned char block[256], made[256];
            float values[256], back[256];
            make_block(type, block);
            quant_ops(type)->dequantize(block, n, values);
            ck_assert(quantize_row(type, values, n, NULL, made));
            quant_ops(type)->dequantize(made, n, back);
            for (size_t i = 0; i < n; i++) {
                if (back[i] != values[i]) {
                    ck_abort_msg("%s, round %d: value %zu is %g, was %g", dtype_info(type)->name, round, i,
                                 (double)back[i], (double)values[i]);
                }
            }
        }
    }
}
END_TEST

/* --- against a search over everything ----------------------------------------------------------------------------- */

static double loss_with(const float *v, int n, int low, int high, double d, double m)
{
    double lost = 0;
    for (int i = 0; i < n; i++) {
        double q = d != 0 ? nearbyint(((double)v[i] - m) / d) : 0;
        q = q < low ? low : q > high ? high : q;
        double off = d * q + m - (double)v[i];
        lost += off * off;
    }
    return lost;
}

/* The least that is lost with any scale that is a half, and codes low..high. */
static double least_with_scale(const float *v, int n, int low, int high)
{
    double peak = 0, least = INFINITY;
    for (int i = 0; i < n; i++) {
        peak = fmax(peak, fabs((double)v[i]));
    }
    for (int sign = -1; sign <= 1; sign += 2) {
        uint16_t from = dtype_f32_to_f16((float)(peak / high / 2)), to = dtype_f32_to_f16((float)(peak / high * 1.3));
        for (uint32_t h = from; h <= to; h++) {
            least = fmin(least, loss_with(v, n, low, high, sign * (double)dtype_f16_to_f32((uint16_t)h), 0));
        }
    }
    return least;
}

START_TEST(scales_are_near_the_best_there_are)
{
    static const struct {
        enum dtype type;
        int low, high;
        double most; /* of all blocks' loss over the least possible */
    } rows[] = {{DTYPE_Q4_0, -8, 7, 1.02}, {DTYPE_Q5_0, -16, 15, 1.03}, {DTYPE_Q8_0, -127, 127, 1.12}};
    make_values();
    for (size_t t = 0; t < ARRAY_LEN(rows); t++) {
        double lost = 0, least = 0;
        for (int i = 0; i < 40; i++) {
            unsigned char block[64];
            float back[32];
            const float *v = x[i];
            ck_assert(quantize_row(rows[t].type, v, 32, NULL, block));
            quant_ops(rows[t].type)->dequantize(block, 32, back);
            double own = 0;
            for (int k = 0; k < 32; k++) {
                own += ((double)back[k] - (double)v[k]) * ((double)back[k] - (double)v[k]);
            }
            double best = least_with_scale(v, 32, rows[t].low, rows[t].high);
            ck_assert_msg(own >= best * 0.999, "the search over everything is wrong: %g < %g", own, best);
            lost += own;
            least += best;
        }
        ck_assert_msg(lost <= least * rows[t].most, "%s: %g of the least possible", dtype_info(rows[t].type)->name,
                      lost / least);
    }
}
END_TEST

START_TEST(minimums_are_near_the_best_there_are)
{
    make_values();
    double lost = 0, least = 0;
    for (int i = 0; i < 12; i++) {
        unsigned char block[32];
        float back[32], low = INFINITY, high = -INFINITY;
        const float *v = x[i];
        ck_assert(quantize_row(DTYPE_Q4_1, v, 32, NULL, block));
        quant_ops(DTYPE_Q4_1)->dequantize(block, 32, back);
        for (int k = 0; k < 32; k++) {
            lost += ((double)back[k] - (double)v[k]) * ((double)back[k] - (double)v[k]);
            low = fminf(low, v[k]);
            high = fmaxf(high, v[k]);
        }
        double best = INFINITY, code = (double)(high - low) / 15;
        for (int a = -10; a <= 30; a++) { /* the range begins and ends in steps of a sixteenth of a code */
            for (int b = -10; b <= 30; b++) {
                double from = (double)low + a * code / 16, to = (double)high - b * code / 16;
                best = fmin(best, loss_with(v, 32, 0, 15, (to - from) / 15, from));
            }
        }
        least += best;
    }
    ck_assert_msg(lost <= least * 1.02, "%g of the least possible", lost / least);
}
END_TEST

/* --- the same bytes everywhere ------------------------------------------------------------------------------------ */

START_TEST(bytes_are_the_same_everywhere)
{
    static const struct {
        enum dtype type;
        uint64_t hash[2]; /* FNV-1a of all rows: without and with importance */
    } rows[] = {
        {DTYPE_Q8_0, {0x908CFABF439A9F44u, 0x53EB8644CBF5821Fu}},
        {DTYPE_Q4_0, {0xF8BB7AEC2E921E72u, 0x215690434E9FC556u}},
        {DTYPE_Q4_1, {0xFE93F2673D07F050u, 0x2DFE157710A852B1u}},
        {DTYPE_Q5_0, {0x23D7A69C3A5E049Au, 0x7254F0A1CF2408E9u}},
        {DTYPE_Q5_1, {0x7BA712CC22905E6Cu, 0xAE177068D51A2210u}},
        {DTYPE_Q4_K, {0x48B5D323A60E5124u, 0x6402E07D6461FA46u}},
        {DTYPE_Q5_K, {0xA5D4F9C848B8BADCu, 0xFD8FE0E70FC17B1Fu}},
        {DTYPE_Q6_K, {0xD456E7198CF330E5u, 0x9CE331E02EB8456Bu}},
    };
    make_values();
    for (size_t t = 0; t < ARRAY_LEN(rows); t++) {
        for (int with = 0; with < 2; with++) {
            uint64_t h = 0xCBF29CE484222325u, bytes;
            ck_assert(dtype_row_bytes(rows[t].type, ROW, &bytes));
            for (int r = 0; r < N_ROWS; r++) {
                unsigned char row[MAX_ROW_BYTES];
                ck_assert(quantize_row(rows[t].type, x[r], ROW, with ? importance : NULL, row));
                for (uint64_t i = 0; i < bytes; i++) {
                    h = (h ^ row[i]) * 0x100000001B3u;
                }
            }
            ck_assert_msg(h == rows[t].hash[with], "%s, importance %d: 0x%016llX", dtype_info(rows[t].type)->name, with,
                          (unsigned long long)h);
        }
    }
}
END_TEST

/* --- edges -------------------------------------------------------------------------------------------------------- */

START_TEST(strange_values_are_refused_or_held)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 65505.0f, -1e30f};
    unsigned char bytes[MAX_ROW_BYTES];
    float v[256], back[256];
    for (size_t t = 0; t < ARRAY_LEN(blocks); t++) {
        size_t n = dtype_info(blocks[t])->block_elems;
        for (size_t b = 0; b < ARRAY_LEN(bad); b++) {
            memset(v, 0, sizeof v);
            v[n - 1] = bad[b];
            ck_assert(!quantize_row(blocks[t], v, n, NULL, bytes));
        }
        static const float fine[] = {0, 1, -1, 65504.0f, -65504.0f, 1e-6f, 1e-37f, 1e-45f};
        for (size_t f = 0; f < ARRAY_LEN(fine); f++) {
            for (size_t i = 0; i < n; i++) {
                v[i] = fine[f];
            }
            ck_assert(quantize_row(blocks[t], v, n, NULL, bytes));
            quant_ops(blocks[t])->dequantize(bytes, n, back);
            for (size_t i = 0; i < n; i++) { /* half of the smallest half, times the largest code, is lost at most */
                double off = fabs((double)back[i] - (double)fine[f]);
                ck_assert_msg(off <= 4e-3 * fabs((double)fine[f]) + 4e-6, "%s: %g became %g",
                              dtype_info(blocks[t])->name, (double)fine[f], (double)back[i]);
            }
        }
    }
    float large[2] = {1e38f, -3e38f};
    ck_assert(quantize_row(DTYPE_F32, large, 2, NULL, bytes) && memcmp(bytes, large, sizeof large) == 0);
    ck_assert(quantize_row(DTYPE_BF16, large, 2, NULL, bytes));
    ck_assert(!quantize_row(DTYPE_F16, large, 2, NULL, bytes));
    large[0] = NAN;
    ck_assert(!quantize_row(DTYPE_F32, large, 2, NULL, bytes));
    ck_assert(quantize_can(DTYPE_Q6_K) && !quantize_can(DTYPE_Q2_K) && !quantize_can(DTYPE_IQ4_NL));
}
END_TEST

START_TEST(importance_of_zero_is_none)
{
    static const float zeros[ROW];
    unsigned char with[MAX_ROW_BYTES], without[MAX_ROW_BYTES];
    make_values();
    for (size_t t = 0; t < ARRAY_LEN(blocks); t++) {
        uint64_t bytes;
        ck_assert(dtype_row_bytes(blocks[t], ROW, &bytes));
        ck_assert(quantize_row(blocks[t], x[1], ROW, zeros, with) && quantize_row(blocks[t], x[1], ROW, NULL, without));
        ck_assert_mem_eq(with, without, bytes);
    }
}
END_TEST

Suite *quantize_suite(void)
{
    Suite *s = suite_create("quantize");
    TCase *c = tcase_create("quantize");
    tcase_add_test(c, errors_are_below_those_of_llama_cpp);
    tcase_add_test(c, what_a_type_holds_comes_back_exactly);
    tcase_add_test(c, scales_are_near_the_best_there_are);
    tcase_add_test(c, minimums_are_near_the_best_there_are);
    tcase_add_test(c, bytes_are_the_same_everywhere);
    tcase_add_test(c, strange_values_are_refused_or_held);
    tcase_add_test(c, importance_of_zero_is_none);
    suite_add_tcase(s, c);
    return s;
}
