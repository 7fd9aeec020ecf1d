/* Rows of weights that SafeTensors folders store in other forms than a float matrix: codes with separate scales, packed
 * along rows or columns, and transposed matrices. `read` is exact. `encode` is exact for the integer types: a code
 * minus its zero point fits the signed codes of Q4_0, Q5_0 or Q8_0, and the scale fits a half (hf_quant.c checks that
 * to 2^-11 before it picks such a type). Other types round each weight: F16 to 2^-11 of it (2^-25 if it is below
 * 2^-14), BF16 to 2^-8, F32 not at all. Threads: as row_source.h. */
#ifndef INFCGI_HF_HF_QUANT_ROWS_H
#define INFCGI_HF_HF_QUANT_ROWS_H

#include "engine/tensor/dtype.h"
#include "engine/tensor/row_source.h"

#include <stdbool.h>
#include <stdint.h>

/* How a file stores codes. N rows out, K columns in; words have 32 bits, the first code in the low bits. */
enum hf_codes {
    HF_CODES_GPTQ,       /* words [K * bits / 32][N] of consecutive codes in a column of the file */
    HF_CODES_AWQ,        /* words [K][N / 8] of rows 0, 2, 4, 6, 1, 3, 5, 7 of eight */
    HF_CODES_WORDS,      /* words [N][K * bits / 32] */
    HF_CODES_I8,         /* [N][K] signed bytes */
    HF_CODES_E4M3,       /* [N][K] floats of 8 bits */
    HF_CODES_MXFP4,      /* [N][K / 2] bytes, the even input in the low nibble; scales are exponents of a byte */
    HF_CODES_NVFP4,      /* codes as in MXFP4; scales are floats of 8 bits, without sign, times `factor` */
    HF_CODES_MXFP8,      /* codes as in E4M3; scales as in MXFP4 */
    HF_CODES_TRANSPOSED, /* BF16 [N / matrix_rows][K][matrix_rows] */
};

enum {
    HF_CODES_PARTS = 4, /* tensors of the file that make up a weight */
    HF_ROWS_GRAIN = 32,
};

struct hf_rows {
    struct row_source base;
    enum hf_codes layout;
    uint32_t first, step; /* row r is row first + r * step of the file's file_rows */
    uint32_t file_rows;
    uint32_t matrix_rows;            /* HF_CODES_TRANSPOSED */
    int bits;                        /* of a code */
    const uint8_t *codes, *scales;   /* unaligned */
    float factor;                    /* HF_CODES_NVFP4 */
    enum dtype scale_type;           /* F16, BF16 or F32 */
    uint32_t scale_rows;             /* rows that share their scales */
    uint64_t scale_row, scale_group; /* elements between the scales of consecutive rows, and of consecutive groups */
    uint32_t group;                  /* inputs of a group; n_in if all share one scale */
    const uint8_t *groups;           /* OPTIONAL int32 [n_in]: each input's group, instead of `group` */
    const uint8_t *zeros;            /* OPTIONAL words of zero points */
    bool zeros_are_bytes;            /* signed bytes, one per zero point */
    uint32_t zero_plus;              /* added to a word of zeros, for formats that store them less one */
    uint64_t zero_row, zero_group;   /* words between consecutive words of rows, and of groups */
    int zero;                        /* for all, if `zeros` is NULL */
    struct hf_part {
        const void *data;
        uint64_t bytes;
        uint64_t row_bytes; /* 0: shared by all rows */
    } parts[HF_CODES_PARTS];
};
extern const struct row_source_ops hf_rows_ops;

/* Returns the i-th scale of the file. */
float hf_rows_scale(const struct hf_rows *s, uint64_t i);

/* Returns the value of an 8-bit float with 4 bits of exponent and 3 of mantissa, without infinities [Micikevicius 2022,
 * "FP8 Formats for Deep Learning", table 1]. */
float hf_e4m3(uint8_t code);

#endif
