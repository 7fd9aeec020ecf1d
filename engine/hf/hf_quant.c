/* Binds the tensors of a quantised weight to rows: checks shapes against each other and against config.json, and picks
 * the type that loses nothing. */
#include "engine/hf/hf_quant.h"

#include "engine/hf/hf_quant_rows.h"
#include "engine/quant/row_factored.h"
#include "engine/tensor/row_stack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RUN = HF_ROWS_GRAIN, SHAPE_BYTES = 96 };

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Replaces the end `from` of `name`; returns false if it does not end so or the result does not fit. */
static bool replace_end(const char *name, const char *from, const char *to, char out[SAFETENSORS_MAX_NAME_BYTES + 1])
{
    size_t n = strlen(name), m = strlen(from);
    if (n < m || strcmp(name + n - m, from) != 0 || n - m + strlen(to) > SAFETENSORS_MAX_NAME_BYTES) {
        return false;
    }
    snprintf(out, SAFETENSORS_MAX_NAME_BYTES + 1, "%.*s%s", (int)(n - m), name, to);
    return true;
}

/* Returns the suffix of the main tensor's name. */
static const char *main_end(const struct hf *h, const struct st_tensor *t)
{
    bool is_byte = t->dtype == ST_F8_E4M3 || (t->dtype == ST_I8 && h->quant.scheme == HF_COMPRESSED);
    switch (h->quant.scheme) {
    case HF_GPTQ:
    case HF_AWQ:
        return ".qweight";
    case HF_FP8:
        return is_byte ? ".weight" : NULL;
    case HF_MODELOPT:
        return is_byte || t->dtype == ST_U8 ? ".weight" : NULL;
    case HF_COMPRESSED:
        return is_byte ? ".weight" : ".weight_packed";
    default:
        return NULL;
    }
}

bool hf_quant_is_weight(const struct hf *h, const struct st_tensor *t, const char *name,
                        char plain[SAFETENSORS_MAX_NAME_BYTES + 1])
{
    const char *end = main_end(h, t);
    return end != NULL && replace_end(name, end, ".weight", plain);
}

/* --- tensors next to the main one --------------------------------------------------------------------------------- */

/* A weight being assembled. */
struct bind {
    struct hf *h;
    const struct st_tensor *t; /* the main tensor */
    struct hf_rows *rows;
    int n_parts;
};

static const struct st_tensor *sibling(const struct bind *b, const char *end)
{
    char name[SAFETENSORS_MAX_NAME_BYTES + 1];
    const char *own = main_end(b->h, b->t);
    return own != NULL && replace_end(b->t->name, own, end, name) ? safetensors_folder_find(b->h->tensors, name) : NULL;
}

static void write_shape(const uint64_t *dims, int n, char out[SHAPE_BYTES])
{
    size_t at = (size_t)snprintf(out, SHAPE_BYTES, "[");
    for (int i = 0; i < n && at < SHAPE_BYTES; i++) {
        at += (size_t)snprintf(out + at, SHAPE_BYTES - at, "%s%" PRIu64, i == 0 ? "" : ", ", dims[i]);
    }
    if (at < SHAPE_BYTES) {
        snprintf(out + at, SHAPE_BYTES - at, "]");
    }
}

static enum err bad_shape(const struct bind *b, const struct st_tensor *t, const uint64_t *want, int n)
{
    char wanted[SHAPE_BYTES], found[SHAPE_BYTES];
    write_shape(want, n, wanted);
    write_shape(t->dims, t->n_dims, found);
    return hf_bad_tensor(b->h, ERR_BAD_TENSOR_SHAPE, t->name, "expected %s, found %s", wanted, found);
}

static enum err need_matrix(const struct bind *b)
{
    char found[SHAPE_BYTES];
    write_shape(b->t->dims, b->t->n_dims, found);
    return b->t->n_dims == 2
               ? ERR_OK
               : hf_bad_tensor(b->h, ERR_BAD_TENSOR_SHAPE, b->t->name, "expected a matrix, found %s", found);
}

/* Checks that t is [rows][columns]; one row or column can also be a vector. */
static enum err check_shape(const struct bind *b, const struct st_tensor *t, uint64_t rows, uint64_t columns)
{
    const uint64_t want[] = {rows, columns};
    bool is_vector = t->n_dims == 1 && t->dims[0] == rows * columns && (rows == 1 || columns == 1);
    bool is_matrix = t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == columns;
    return is_vector || is_matrix ? ERR_OK : bad_shape(b, t, want, 2);
}

static enum err check_type(const struct bind *b, const struct st_tensor *t, enum st_dtype a, enum st_dtype or_b)
{
    if (t->dtype == a || t->dtype == or_b) {
        return ERR_OK;
    }
    return hf_bad_tensor(b->h, ERR_UNSUPPORTED_TYPE, t->name, "expected %s, found %s", st_dtype_name(a),
                         st_dtype_name(t->dtype));
}

/* Returns the tensor next to the main one, which must exist. */
static enum err need(const struct bind *b, const char *end, const struct st_tensor **out)
{
    *out = sibling(b, end);
    if (*out != NULL) {
        return ERR_OK;
    }
    char name[SAFETENSORS_MAX_NAME_BYTES + 1];
    if (!replace_end(b->t->name, main_end(b->h, b->t), end, name)) {
        name[0] = '\0';
    }
    return hf_bad_tensor(b->h, ERR_MISSING_TENSOR, name, "expected beside '%.255s', found none", b->t->name);
}

static void add_part(struct bind *b, const struct st_tensor *t, uint64_t row_bytes)
{
    b->rows->parts[b->n_parts++] = (struct hf_part){.data = t->data, .bytes = t->bytes, .row_bytes = row_bytes};
}

static enum err use_scales(struct bind *b, const struct st_tensor *t)
{
    TRY(hf_float_type(b->h, t, &b->rows->scale_type));
    b->rows->scales = t->data;
    add_part(b, t, 0);
    return ERR_OK;
}

/* Sets rows and columns of the weight. */
static enum err set_size(struct bind *b, uint64_t n_out, uint64_t n_in)
{
    if (n_out < 1 || n_in < 1 || n_out > INT32_MAX || n_in > INT32_MAX) {
        return hf_bad_tensor(b->h, ERR_BAD_TENSOR_SHAPE, b->t->name,
                             "expected a matrix of 1 to 2^31 - 1 rows and columns, found another shape");
    }
    b->rows->base.n_rows = b->rows->file_rows = (uint32_t)n_out;
    b->rows->base.n_in = (uint32_t)n_in;
    return ERR_OK;
}

/* Sets the group of each input if groups are not consecutive. */
static enum err use_groups(struct bind *b, const struct st_tensor *t, uint32_t n_groups)
{
    struct hf_rows *r = b->rows;
    bool is_plain = true;
    TRY(check_type(b, t, ST_I32, ST_I32));
    TRY(check_shape(b, t, 1, r->base.n_in));
    for (uint32_t i = 0; i < r->base.n_in; i++) {
        int32_t group;
        memcpy(&group, (const char *)t->data + i * sizeof group, sizeof group);
        if (group == -1 && b->h->quant.scheme == HF_COMPRESSED) {
            return ERR_OK; /* present but unused */
        }
        if (group < 0 || (uint32_t)group >= n_groups) {
            return hf_bad_tensor(b->h, ERR_BAD_TENSOR_SHAPE, t->name,
                                 "expected groups from 0 to %" PRIu32 ", found %" PRId32 " for input %" PRIu32,
                                 n_groups - 1, group, i);
        }
        is_plain = is_plain && (uint32_t)group == i / r->group;
    }
    r->groups = is_plain ? NULL : t->data;
    return ERR_OK;
}

/* --- types -------------------------------------------------------------------------------------------------------- */

/* Is each of n scales a half, or close to one? */
static bool are_halves(const struct hf_rows *r, uint64_t n)
{
    for (uint64_t i = 0; r->scale_type != DTYPE_F16 && i < n; i++) {
        float s = hf_rows_scale(r, i);
        if (!(fabsf(dtype_f16_to_f32(dtype_f32_to_f16(s)) - s) <= 0x1p-11f * fabsf(s))) {
            return false;
        }
    }
    return true;
}

/* Are a weight's floats halves, to 2^-11 of each or 2^-15 of the largest? They are if each scale times `most`, the
 * largest code, is between `least` and the largest half. */
static bool fit_halves(const struct hf_rows *r, uint64_t n, float most, float least)
{
    for (uint64_t i = 0; i < n; i++) {
        float top = fabsf(hf_rows_scale(r, i)) * most;
        if (!(top == 0 || (top >= least && top <= 65504.0f))) {
            return false;
        }
    }
    return true;
}

/* Is every zero point the middle of the codes? */
static bool are_centred(const struct hf_rows *r, uint64_t n_words)
{
    uint32_t middle = r->bits == 4 ? 0x88888888u : 0x80808080u, word;
    bool centred = true;
    for (uint64_t i = 0; r->zeros != NULL && i < n_words && centred; i++) {
        if (r->zeros_are_bytes) {
            centred = r->zeros[i] == 0;
        } else {
            memcpy(&word, r->zeros + 4 * i, sizeof word);
            centred = word + r->zero_plus == middle;
        }
    }
    return centred;
}

/* Picks the type of integer codes; centred: from are_centred. */
static void pick_type(struct hf_rows *r, uint64_t n_scales, bool centred)
{
    bool in_runs = r->base.n_in % RUN == 0 && r->groups == NULL && (r->group % RUN == 0 || r->group == r->base.n_in);
    if (in_runs && (r->bits == 4 || centred) && are_halves(r, n_scales)) {
        r->base.type = centred ? DTYPE_Q4_0 : DTYPE_Q5_0;
        r->base.type = r->bits == 8 ? DTYPE_Q8_0 : r->base.type;
    } else {
        r->base.type = fit_halves(r, n_scales, r->bits == 8 ? 255 : 15, 0x1p-10f) ? DTYPE_F16 : DTYPE_F32;
    }
}

static enum err bad_groups(const struct bind *b, uint32_t group)
{
    return hf_bad_tensor(b->h, ERR_BAD_TENSOR_SHAPE, b->t->name,
                         "expected inputs in groups of %" PRIu32 ", found %" PRIu32, group, b->rows->base.n_in);
}

/* Finds config.json's entry for this kind; ERR_BAD_CONFIG if config.json contradicts the tensors. Floats of 8 bits have
 * scales of many shapes, so their group is not compared. */
static enum err check_kind(const struct bind *b, bool is_float, uint32_t bits, uint32_t group)
{
    static const char *const kinds[] = {"integers", "floats"};
    const struct hf_quant *q = &b->h->quant;
    char found[160] = "";
    for (int i = 0; i < q->n_kinds; i++) {
        const struct hf_quant_kind *k = &q->kinds[i];
        uint32_t said = k->group == 0 ? b->rows->base.n_in : k->group;
        if (k->is_float == is_float && k->bits == bits && ((is_float && bits == 8) || said == group)) {
            return ERR_OK;
        }
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s of %" PRIu32 " bits in groups of %" PRIu32, n == 0 ? "" : "; ",
                 kinds[k->is_float], k->bits, said);
    }
    return hf_bad(b->h, "quantization_config",
                  "expected %s of %" PRIu32 " bits in groups of %" PRIu32 ", as '%.255s' has; found %s",
                  kinds[is_float], bits, group, b->t->name, found[0] != '\0' ? found : "none");
}

/* --- schemes ------------------------------------------------------------------------------------------------------ */

/* GPTQ: qweight [K * bits / 32][N], qzeros [G][N * bits / 32], scales [G][N], g_idx [K]. AWQ: qweight [K][N / 8], the
 * others as in GPTQ without g_idx. */
static enum err bind_columns(struct bind *b)
{
    struct hf_rows *r = b->rows;
    const struct hf_quant *q = &b->h->quant;
    const struct hf_quant_kind *k = &q->kinds[0];
    const struct st_tensor *scales, *zeros, *groups;
    bool is_awq = q->scheme == HF_AWQ;
    uint32_t per_word = 32 / k->bits;
    TRY(check_type(b, b->t, ST_I32, ST_U32));
    TRY(need_matrix(b));
    TRY(set_size(b, b->t->dims[1] * (is_awq ? per_word : 1), b->t->dims[0] * (is_awq ? 1 : per_word)));
    r->group = k->group == 0 ? r->base.n_in : k->group;
    uint32_t n_groups = (r->base.n_in + r->group - 1) / r->group;
    TRY(need(b, ".scales", &scales));
    TRY(check_shape(b, scales, n_groups, r->base.n_rows));
    TRY(need(b, ".qzeros", &zeros));
    TRY(check_type(b, zeros, ST_I32, ST_U32));
    TRY(check_shape(b, zeros, n_groups, r->base.n_rows / per_word));
    groups = is_awq ? NULL : sibling(b, ".g_idx");
    if (r->base.n_rows % per_word != 0) {
        return bad_shape(b, b->t, (const uint64_t[]){b->t->dims[0], (r->base.n_rows / per_word + 1) * per_word}, 2);
    }
    add_part(b, b->t, 0);
    TRY(use_scales(b, scales));
    add_part(b, zeros, 0);
    r->layout = is_awq ? HF_CODES_AWQ : HF_CODES_GPTQ;
    r->bits = (int)k->bits;
    r->scale_rows = 1;
    r->scale_row = 1;
    r->scale_group = r->base.n_rows;
    r->zeros = zeros->data;
    if (q->zeros_are_less_one) {
        r->zero_plus = k->bits == 4 ? 0x11111111u : 0x01010101u;
    }
    r->zero_row = 1;
    r->zero_group = r->base.n_rows / per_word;
    if (groups != NULL) {
        TRY(use_groups(b, groups, n_groups));
    }
    pick_type(r, (uint64_t)n_groups * r->base.n_rows, are_centred(r, (uint64_t)n_groups * (r->base.n_rows / per_word)));
    return ERR_OK;
}

/* Groups of 32 inputs whose scales are exponents, U8 [N][K / 32]. */
static enum err bind_mx(struct bind *b, const struct st_tensor *scales, enum hf_codes layout, enum dtype type)
{
    struct hf_rows *r = b->rows;
    if (r->base.n_in % RUN != 0) {
        return bad_groups(b, RUN);
    }
    TRY(check_shape(b, scales, r->base.n_rows, r->base.n_in / RUN));
    r->layout = layout;
    r->base.type = type;
    r->scales = scales->data;
    add_part(b, b->t, b->t->dims[1]);
    add_part(b, scales, r->base.n_in / RUN);
    return ERR_OK;
}

/* Reads the factor of an NVFP4 weight: one F32, by which the scales are multiplied in ModelOpt, else divided. */
static enum err read_factor(struct bind *b)
{
    bool is_modelopt = b->h->quant.scheme == HF_MODELOPT;
    const struct st_tensor *t;
    float f;
    TRY(need(b, is_modelopt ? ".weight_scale_2" : ".weight_global_scale", &t));
    TRY(check_type(b, t, ST_F32, ST_F32));
    if (t->bytes != sizeof f) {
        return bad_shape(b, t, (const uint64_t[]){1}, 1);
    }
    memcpy(&f, t->data, sizeof f);
    b->rows->factor = is_modelopt ? f : 1 / f;
    return f >= 0 && isfinite(b->rows->factor)
               ? ERR_OK
               : hf_bad_tensor(b->h, ERR_BAD_CONFIG, t->name, "expected a positive number, found %g", (double)f);
}

/* Rejects scales with a sign, and NaNs. There are a ninth of the model's bytes of them, so the loop has no branch. */
static enum err check_unsigned(const struct bind *b, const struct st_tensor *scales)
{
    enum { SIGN = 0x80, NAN_CODE = 0x7F };
    unsigned seen = 0;
    for (uint64_t i = 0; i < scales->bytes; i++) {
        seen |= b->rows->scales[i] | (b->rows->scales[i] + 1u); /* a NaN becomes the sign */
    }
    for (uint64_t i = 0; (seen & SIGN) != 0 && i < scales->bytes; i++) {
        if (b->rows->scales[i] >= NAN_CODE) {
            return hf_bad_tensor(b->h, ERR_UNSUPPORTED_TYPE, scales->name,
                                 "expected numbers without sign, found %g in element %" PRIu64,
                                 (double)hf_e4m3(b->rows->scales[i]), i);
        }
    }
    return ERR_OK;
}

/* Floats of 4 bits, U8 [N][K / 2]: NVFP4 with scales F8_E4M3 [N][K / 16], MXFP4 with exponents. */
static enum err bind_fp4(struct bind *b)
{
    enum { GROUP = 16, BLOCK = 64 };
    struct hf_rows *r = b->rows;
    const struct st_tensor *scales;
    TRY(need_matrix(b));
    TRY(set_size(b, b->t->dims[0], MIN_OF(b->t->dims[1], (uint64_t)INT32_MAX) * 2));
    TRY(need(b, ".weight_scale", &scales));
    TRY(check_type(b, scales, ST_F8_E4M3, ST_U8));
    TRY(check_kind(b, true, 4, scales->dtype == ST_U8 ? RUN : GROUP));
    if (scales->dtype == ST_U8) {
        return bind_mx(b, scales, HF_CODES_MXFP4, DTYPE_MXFP4);
    }
    if (r->base.n_in % GROUP != 0) {
        return bad_groups(b, GROUP);
    }
    TRY(check_shape(b, scales, r->base.n_rows, r->base.n_in / GROUP));
    TRY(read_factor(b));
    r->layout = HF_CODES_NVFP4;
    r->scales = scales->data;
    TRY(check_unsigned(b, scales));
    bool fits = r->factor == 0 || (r->factor >= ROW_FACTORED_LEAST && r->factor <= ROW_FACTORED_MOST);
    r->base.type = fits && r->base.n_in % BLOCK == 0 ? DTYPE_NVFP4_SCALED : DTYPE_F32;
    add_part(b, b->t, b->t->dims[1]);
    add_part(b, scales, r->base.n_in / GROUP);
    return ERR_OK;
}

/* Scales of F8_E4M3: one, one per row, or one per block of rows and inputs; exponents, one per 32 inputs. */
static enum err bind_e4m3(struct bind *b)
{
    struct hf_rows *r = b->rows;
    const struct st_tensor *scales = sibling(b, ".weight_scale_inv");
    uint32_t block[2] = {0, 0};
    for (int i = 0; i < b->h->quant.n_kinds; i++) {
        const struct hf_quant_kind *k = &b->h->quant.kinds[i];
        if (k->is_float && k->block[0] != 0) {
            memcpy(block, k->block, sizeof block);
        }
    }
    TRY(need_matrix(b));
    TRY(set_size(b, b->t->dims[0], b->t->dims[1]));
    if (scales == NULL) {
        TRY(need(b, ".weight_scale", &scales));
    }
    TRY(check_kind(b, true, 8, r->base.n_in));
    if (scales->dtype == ST_U8) {
        return bind_mx(b, scales, HF_CODES_MXFP8, DTYPE_BF16); /* which holds 4 bits times a power of two */
    }
    add_part(b, b->t, r->base.n_in);
    TRY(use_scales(b, scales));
    uint64_t n = scales->bytes / (st_dtype_bits(scales->dtype) / 8);
    r->group = r->base.n_in;
    r->scale_rows = 1;
    if (block[0] != 0 && scales->n_dims == 2 && n != r->base.n_rows) {
        r->group = block[1];
        r->scale_rows = block[0];
        r->scale_row = (r->base.n_in + block[1] - 1) / block[1];
        r->scale_group = 1;
        TRY(check_shape(b, scales, (r->base.n_rows + block[0] - 1) / block[0], r->scale_row));
    } else if (n != 1) {
        r->scale_row = 1;
        TRY(check_shape(b, scales, r->base.n_rows, 1));
    }
    r->layout = HF_CODES_E4M3;
    r->base.type = fit_halves(r, n, 448, 0x1p-10f) ? DTYPE_F16 : DTYPE_F32;
    return ERR_OK;
}

/* Zero points exist if config.json says that codes are not symmetric; otherwise they can exist if all are the
 * middle. */
static enum err check_symmetry(const struct bind *b, uint32_t bits, bool has_zeros, bool centred)
{
    const struct hf_quant *q = &b->h->quant;
    bool fits = false, is_symmetric = false;
    for (int i = 0; i < q->n_kinds; i++) {
        const struct hf_quant_kind *k = &q->kinds[i];
        if (!k->is_float && k->bits == bits) {
            fits |= k->symmetry == HF_ANY || (k->symmetry == HF_SYMMETRIC ? centred : has_zeros);
            is_symmetric = k->symmetry == HF_SYMMETRIC;
        }
    }
    return fits ? ERR_OK
                : hf_bad(b->h, "quantization_config",
                         "weights.symmetric: expected %s, as '%.255s' has %s zero points, found %s",
                         is_symmetric ? "false" : "true", b->t->name, has_zeros ? "its own" : "no",
                         is_symmetric ? "true" : "false");
}

/* Scales [N][G] or one for the weight, and zero points for codes stored row by row. */
static enum err bind_row_scales(struct bind *b, uint32_t bits, const struct st_tensor *zeros)
{
    struct hf_rows *r = b->rows;
    const struct st_tensor *scales, *groups = sibling(b, ".weight_g_idx");
    TRY(need(b, ".weight_scale", &scales));
    uint64_t n = scales->dtype < ST_DTYPE_COUNT ? scales->bytes / (st_dtype_bits(scales->dtype) / 8) : 0;
    uint64_t n_groups = scales->n_dims == 2 ? scales->dims[1] : 1;
    if (n_groups < 1 || n_groups > r->base.n_in || r->base.n_in % n_groups != 0) {
        return bad_shape(b, scales, (const uint64_t[]){r->base.n_rows, 1}, 2);
    }
    TRY(use_scales(b, scales));
    r->group = (uint32_t)(r->base.n_in / n_groups);
    TRY(check_kind(b, false, bits, r->group));
    r->bits = (int)bits;
    r->scale_rows = 1;
    if (n != 1) {
        TRY(check_shape(b, scales, r->base.n_rows, n_groups));
        r->scale_row = n_groups;
        r->scale_group = 1;
    }
    if (zeros != NULL) {
        uint64_t per_word = r->zeros_are_bytes ? 1 : 32 / bits;
        TRY(check_shape(b, zeros, n == 1 ? 1 : (r->base.n_rows + per_word - 1) / per_word, n_groups));
        r->zeros = zeros->data;
        r->zero_row = n == 1 ? 0 : n_groups;
        r->zero_group = 1;
        add_part(b, zeros, 0);
    }
    if (groups != NULL) {
        TRY(use_groups(b, groups, (uint32_t)n_groups));
    }
    bool centred = are_centred(r, zeros == NULL ? 0 : zeros->bytes / (r->zeros_are_bytes ? 1 : 4));
    pick_type(r, n, centred);
    return check_symmetry(b, bits, zeros != NULL, centred);
}

/* weight_packed [N][K * bits / 32], weight_shape [2] = N, K. */
static enum err bind_packed(struct bind *b)
{
    const struct st_tensor *shape, *zeros = sibling(b, ".weight_zero_point");
    TRY(check_type(b, b->t, ST_I32, ST_U32));
    TRY(need(b, ".weight_shape", &shape));
    TRY(check_type(b, shape, ST_I64, ST_I32));
    TRY(check_shape(b, shape, 1, 2));
    int64_t size[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        int32_t narrow;
        if (shape->dtype == ST_I64) {
            memcpy(&size[i], (const char *)shape->data + 8 * i, sizeof size[i]);
        } else {
            memcpy(&narrow, (const char *)shape->data + 4 * i, sizeof narrow);
            size[i] = narrow;
        }
    }
    TRY(set_size(b, size[0] < 0 ? 0 : (uint64_t)size[0], size[1] < 0 ? 0 : (uint64_t)size[1]));
    uint64_t n_in = b->rows->base.n_in, words = b->t->n_dims == 2 ? b->t->dims[1] : 0;
    uint32_t bits = words == (n_in + 3) / 4 ? 8 : 4;
    if (words != (n_in * bits + 31) / 32 || b->t->dims[0] != b->rows->base.n_rows) {
        return bad_shape(b, b->t, (const uint64_t[]){b->rows->base.n_rows, (n_in * 4 + 31) / 32}, 2);
    }
    if (zeros != NULL) {
        TRY(check_type(b, zeros, ST_I32, ST_U32));
    }
    b->rows->layout = HF_CODES_WORDS;
    b->rows->zero = 1 << (bits - 1);
    add_part(b, b->t, words * 4);
    return bind_row_scales(b, bits, zeros);
}

/* weight: [N][K] signed bytes. */
static enum err bind_bytes(struct bind *b)
{
    const struct st_tensor *zeros = sibling(b, ".weight_zero_point");
    TRY(need_matrix(b));
    TRY(set_size(b, b->t->dims[0], b->t->dims[1]));
    if (zeros != NULL) {
        TRY(check_type(b, zeros, ST_I8, ST_I8));
        b->rows->zeros_are_bytes = true;
    }
    b->rows->layout = HF_CODES_I8;
    add_part(b, b->t, b->rows->base.n_in);
    return bind_row_scales(b, 8, zeros);
}

static enum err new_rows(struct hf *h, struct hf_rows **out)
{
    *out = arena_zalloc(&h->b.arena, sizeof **out);
    TRY_MEM_FOR(*out != NULL, h->info, "out of memory for the directory of the model");
    (*out)->step = 1;
    (*out)->bits = 8;
    return ERR_OK;
}

enum err hf_quant_bind(struct hf *h, const struct st_tensor *t, struct hf_rows **out)
{
    struct bind b = {.h = h, .t = t};
    TRY(new_rows(h, out));
    b.rows = *out;
    b.rows->codes = t->data;
    if (t->dtype == ST_F8_E4M3) {
        return bind_e4m3(&b);
    }
    if (t->dtype == ST_U8 && (h->quant.scheme == HF_COMPRESSED || h->quant.scheme == HF_MODELOPT)) {
        return bind_fp4(&b);
    }
    if (h->quant.scheme != HF_COMPRESSED) {
        return bind_columns(&b);
    }
    return t->dtype == ST_I8 ? bind_bytes(&b) : bind_packed(&b);
}

/* --- as tensors --------------------------------------------------------------------------------------------------- */

/* Returns the narrowest type that holds all; integer types differ in their number of codes. Floats of 4 bits and others
 * share only types of floats. */
static enum dtype type_of_all(struct hf_rows *const *rows, size_t n)
{
    static const enum dtype order[] = {DTYPE_MXFP4, DTYPE_NVFP4_SCALED, DTYPE_Q4_0, DTYPE_Q5_0,
                                       DTYPE_Q8_0,  DTYPE_BF16,         DTYPE_F16,  DTYPE_F32};
    enum { FIRST_INTEGER = 2, F16_AT = 6 };
    size_t most = 0, least = ARRAY_LEN(order);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (rows[i]->base.type != order[k] && k + 1 < ARRAY_LEN(order)) {
            k++;
        }
        most = MAX_OF(most, k);
        least = MIN_OF(least, k);
    }
    return order[least < FIRST_INTEGER && most != least ? MAX_OF(most, (size_t)F16_AT) : most];
}

enum err hf_quant_tensor(struct hf *h, const char *name, struct hf_rows *const *rows, size_t n, struct gguf_tensor *out)
{
    const struct hf_rows *first = rows[0];
    enum dtype type = type_of_all(rows, n);
    uint64_t bytes;
    for (size_t i = 0; i < n; i++) {
        if (rows[i]->base.n_rows != first->base.n_rows || rows[i]->base.n_in != first->base.n_in) {
            return err_set(h->info, ERR_BAD_TENSOR_SHAPE, name,
                           "%s: expected experts of [%" PRIu32 ", %" PRIu32 "], found one of [%" PRIu32 ", %" PRIu32
                           "]",
                           name, first->base.n_rows, first->base.n_in, rows[i]->base.n_rows, rows[i]->base.n_in);
        }
        rows[i]->base = row_source_of(&hf_rows_ops, type, first->base.n_rows, first->base.n_in, RUN);
    }
    if (!dtype_tensor_bytes(type, first->base.n_in, (uint64_t)first->base.n_rows * n, &bytes)) {
        return err_set(h->info, ERR_BAD_TENSOR_SHAPE, name,
                       "%s: %zu matrices of [%" PRIu32 ", %" PRIu32 "] are too many", name, n, first->base.n_rows,
                       first->base.n_in);
    }
    const struct row_source **parts = arena_alloc(&h->b.arena, n * sizeof *parts);
    TRY_MEM_FOR(parts != NULL, h->info, "out of memory for the directory of the model");
    for (size_t i = 0; i < n; i++) {
        parts[i] = &rows[i]->base;
    }
    *out = (struct gguf_tensor){.type = type};
    gguf_build_rows(&h->b, out, n == 1 ? parts[0] : row_stack_new(&h->b.arena, parts, (uint32_t)n), n);
    return ERR_OK;
}

/* --- fused experts ------------------------------------------------------------------------------------------------ */

/* Finds the tensor `name`, which must have want's type and shape. */
static enum err find_fused(const struct bind *b, const char *name, const struct st_tensor *want,
                           const struct st_tensor **out)
{
    const struct st_tensor *t = *out = safetensors_folder_find(b->h->tensors, name);
    if (t == NULL) {
        return hf_bad_tensor(b->h, ERR_MISSING_TENSOR, name, "expected, found none");
    }
    TRY(check_type(b, t, want->dtype, want->dtype));
    bool is_right = t->n_dims == want->n_dims && memcmp(t->dims, want->dims, sizeof t->dims) == 0;
    return is_right ? ERR_OK : bad_shape(b, t, want->dims, want->n_dims);
}

enum err hf_quant_add_fused(struct hf *h, const struct hf_fused *f, const char *name)
{
    struct bind b = {.h = h};
    char name_of_blocks[SAFETENSORS_MAX_NAME_BYTES + 1], name_of_scales[SAFETENSORS_MAX_NAME_BYTES + 1];
    struct hf_rows *r;
    const struct st_tensor *codes, *scales;
    TRY(new_rows(h, &r));
    b.rows = r;
    snprintf(name_of_blocks, sizeof name_of_blocks, "%s_blocks", f->prefix);
    snprintf(name_of_scales, sizeof name_of_scales, "%s_scales", f->prefix);
    bool is_mxfp4 = safetensors_folder_find(h->tensors, name_of_blocks) != NULL;
    const struct st_tensor plain = {.dtype = ST_BF16, .n_dims = 3, .dims = {f->n_experts, f->n_in, f->n_out}},
                           blocks = {.dtype = ST_U8,
                                     .n_dims = 4,
                                     .dims = {f->n_experts, f->n_out, f->n_in / RUN, RUN / 2}},
                           block_scales = {
                               .dtype = ST_U8, .n_dims = 3, .dims = {f->n_experts, f->n_out, f->n_in / RUN}};
    if (is_mxfp4) {
        h->quant.n_found++;
        TRY(find_fused(&b, name_of_blocks, &blocks, &codes));
        TRY(find_fused(&b, name_of_scales, &block_scales, &scales));
        add_part(&b, scales, 0);
        r->scales = scales->data;
    } else {
        TRY(find_fused(&b, f->prefix, &plain, &codes));
    }
    add_part(&b, codes, 0);
    if (is_mxfp4 && f->n_in % RUN != 0) {
        return hf_bad_tensor(h, ERR_BAD_TENSOR_SHAPE, codes->name, "expected inputs in blocks of %d, found %" PRIu32,
                             RUN, f->n_in);
    }
    r->layout = is_mxfp4 ? HF_CODES_MXFP4 : HF_CODES_TRANSPOSED;
    r->base.type = is_mxfp4 ? DTYPE_MXFP4 : DTYPE_BF16;
    r->codes = codes->data;
    r->base.n_in = f->n_in;
    r->matrix_rows = f->n_out;
    r->file_rows = f->n_experts * f->n_out; /* bounded by the file's size */
    r->first = f->first;
    r->step = f->step;
    r->base.n_rows = r->file_rows / f->step;
    struct gguf_tensor out;
    TRY(hf_quant_tensor(h, name, &r, 1, &out));
    out.n_dims = 3;
    out.dims[1] = f->n_out / f->step;
    out.dims[2] = f->n_experts;
    gguf_build_tensor(&h->b, name, &out);
    return ERR_OK;
}
