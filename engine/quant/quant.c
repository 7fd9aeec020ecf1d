/* The table of executable weight types, built from the list in quant_types.h. */
#include "engine/quant/quant.h"

#include "engine/quant/quant_types.h"

#define QUANT_ROW(type, ops) [type] = &ops,
static const struct quant_ops *const quant_rows[DTYPE_COUNT] = {QUANT_TYPES(QUANT_ROW)};
#undef QUANT_ROW

const struct quant_ops *quant_ops(enum dtype type) { return (unsigned)type < DTYPE_COUNT ? quant_rows[type] : NULL; }
