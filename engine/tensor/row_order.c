#include "engine/tensor/row_order.h"

#include "engine/base/compiler.h"

#include <string.h>

enum { SWAP_BYTES = 256 };

uint32_t row_order_run(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool row_order_is_valid(const struct row_order *o)
{
    bool is_float = o->type == DTYPE_F32 || o->type == DTYPE_F16 || o->type == DTYPE_BF16;
    if (o->source == NULL && !is_float) {
        return false;
    }
    if (o->columns == NULL) {
        return true;
    }
    uint32_t block = dtype_info(o->type)->block_elems;
    return o->column_run != 0 && o->n_in % o->column_run == 0 && o->column_run % block == 0 &&
           (o->source == NULL || o->column_run % ROW_SOURCE_RUN == 0);
}

static const struct row_order *order_of(const struct row_source *s)
{
    return (const struct row_order *)(const void *)s;
}

static uint32_t file_row(const struct row_order *o, uint32_t row)
{
    return o->rows != NULL ? o->rows[row / o->row_run] + row % o->row_run : row;
}

/* How many of rows [row, row + n) lie one behind the other, from the first on. */
static uint32_t count_together(const struct row_order *o, uint32_t row, uint32_t n)
{
    uint32_t count = 1;
    while (count < n && file_row(o, row + count) == file_row(o, row) + count) {
        count++;
    }
    return count;
}

static const unsigned char *row_at(const struct row_order *o, uint32_t in_file)
{
    return (const unsigned char *)o->data + in_file * o->row_bytes;
}

/* Inputs [from, from + n) as the file has them. */
static void read_run(const struct row_order *o, uint32_t in_file, uint32_t from, uint32_t n, float *out)
{
    if (o->source != NULL) {
        o->source->ops->read(o->source, in_file, from, n, out);
        return;
    }
    const unsigned char *row = row_at(o, in_file);
    for (uint32_t i = 0; i < n; i++) {
        uint16_t half;
        if (o->type == DTYPE_F32) {
            memcpy(&out[i], row + (from + i) * sizeof *out, sizeof *out);
            continue;
        }
        memcpy(&half, row + (from + i) * sizeof half, sizeof half);
        out[i] = o->type == DTYPE_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
    }
}

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct row_order *o = order_of(s);
    uint32_t in_file = file_row(o, row), run = o->columns != NULL ? o->column_run : o->n_in, here;
    for (uint32_t end = from + n; from < end; from += here, out += here) {
        uint32_t at = from % run, first = o->columns != NULL ? o->columns[from / run] * run : 0;
        here = MIN_OF(run - at, end - from);
        read_run(o, in_file, first + at, here, out);
    }
}

static void swap(unsigned char *a, unsigned char *b, size_t n)
{
    unsigned char room[SWAP_BYTES];
    for (size_t here; n != 0; n -= here, a += here, b += here) {
        here = MIN_OF(n, (size_t)SWAP_BYTES);
        memcpy(room, a, here);
        memcpy(a, b, here);
        memcpy(b, room, here);
    }
}

/* Runs of a row from their order in the file to ours, in place: what belongs to run c lies where the swaps before have
 * brought it, from columns[c] on. */
static void order_runs(const struct row_order *o, unsigned char *row)
{
    const struct dtype_info *info = dtype_info(o->type);
    size_t bytes = (size_t)(o->column_run / info->block_elems) * info->block_bytes;
    for (uint32_t c = 0; c < o->n_in / o->column_run; c++) {
        uint32_t from = o->columns[c];
        while (from < c) {
            from = o->columns[from];
        }
        if (from != c) {
            swap(row + c * bytes, row + from * bytes, bytes);
        }
    }
}

static void encode_rows(const struct row_source *s, uint32_t row, uint32_t n, void *out)
{
    const struct row_order *o = order_of(s);
    unsigned char *to = out;
    for (uint32_t end = row + n, here; row < end; row += here) {
        here = count_together(o, row, end - row);
        if (o->source != NULL) {
            o->source->ops->encode(o->source, file_row(o, row), here, to);
        } else {
            memcpy(to, row_at(o, file_row(o, row)), (size_t)(here * o->row_bytes));
        }
        for (uint32_t i = 0; i < here; i++, to += o->row_bytes) {
            if (o->columns != NULL) {
                order_runs(o, to);
            }
        }
    }
}

static void rows_done(const struct row_source *s, uint32_t row, uint32_t n,
                      void (*drop)(void *arg, const void *data, uint64_t bytes), void *arg)
{
    const struct row_order *o = order_of(s);
    for (uint32_t end = row + n, here; row < end; row += here) {
        here = count_together(o, row, end - row);
        if (o->source != NULL) {
            o->source->ops->done(o->source, file_row(o, row), here, drop, arg);
        } else {
            drop(arg, row_at(o, file_row(o, row)), here * o->row_bytes);
        }
    }
}

const struct row_source_ops row_order_ops = {.read = read_row, .encode = encode_rows, .done = rows_done};
