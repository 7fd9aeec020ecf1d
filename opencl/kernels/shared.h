/* What host and kernels agree on; C and OpenCL C. */

/* Words of the buffer that says what a batch is: a header, and arrays that it gives the places of. */
enum {
    BATCH_ROWS,            /* T, .. */
    BATCH_LOGIT_ROWS,      /* .. S .. */
    BATCH_HIDDEN_ROWS,     /* .. and E: by enum plan_rows */
    BATCH_SEQS,            /* sequences */
    BATCH_SPLITS,          /* parts of ATTENTION_SPLIT that the row with most has */
    BATCH_RESULTS,         /* words of results */
    BATCH_SINGLES,         /* rows that no block has */
    BATCH_BLOCKS,          /* of at most ATTENTION_BLOCK rows of a sequence */
    BATCH_AT_TOKENS,       /* word where they begin: [T] ids, .. */
    BATCH_AT_POS,          /* .. [T] positions, .. */
    BATCH_AT_LAST,         /* .. [T] last position that a row sees, .. */
    BATCH_AT_TABLE,        /* .. [T] word where the pages of the row's sequence are listed, .. */
    BATCH_AT_WINDOW_TABLE, /* .. [T] and its window pages, .. */
    BATCH_AT_PICKED,       /* .. two words, by enum plan_rows - 1: [S] and [E] rows of T */
    BATCH_AT_PICKED_HIDDEN,
    BATCH_AT_SEQS,   /* [sequences][SEQ_WORDS] */
    BATCH_AT_COPIES, /* [copies][2]: row, state */
    BATCH_AT_ORDER,  /* [T] rows, those that no block has first */
    BATCH_AT_BLOCKS, /* [blocks][2]: first row, rows */
    BATCH_AT_WANTS,  /* [S][2]: how many of its best tokens a row wants, and word of the results where they go */
    BATCH_AT_ROPES,  /* words, one of each RoPE table: f32 [T][n_rot/2][2] cosines and sines */
    BATCH_AT_QUERY_SCALES = BATCH_AT_ROPES + 8, /* .. f32 [T], or 0 */
    BATCH_WORDS = BATCH_AT_QUERY_SCALES + 8
};

/* Of a sequence that is part of a batch. */
enum {
    SEQ_FIRST,      /* its rows: from this one .. */
    SEQ_END,        /* .. to in front of this one */
    SEQ_STATE,      /* its recurrent state */
    SEQ_FROM,       /* that it goes on from; -1: zeros */
    SEQ_COPY,       /* its first copy in the list .. */
    SEQ_COPIES_END, /* .. and in front of which it ends */
    SEQ_WORDS
};

/* Activations in bytes: blocks of 32 as a first term, code * factor, and a second, which is zero in most. Rows in tiles
 * of ACT_ROWS, [tile][term][block][row of the tile][words]; the factor of a first term is negative where there is a
 * second, and means its magnitude. */
enum {
    ACT_FACTOR = 8, /* behind the codes, four a word .. */
    ACT_LOW,        /* .. and sums of the first 16 codes, .. */
    ACT_HIGH,       /* .. the last 16 .. */
    ACT_TOTAL,      /* .. and of all, times the factor */
    ACT_WORDS,
    ACT_ROWS = 8
};

/* What becomes of a result; flags of matmul and others. */
enum {
    FLAG_ADDS = 1, /* dst += */
    FLAG_BIAS = 2,
    FLAG_CAP = 4,     /* cap * tanh(y / cap) */
    FLAG_CODES = 8,   /* written as activations in bytes .. */
    FLAG_FLOATS = 16, /* .. or as floats, or both */
    FLAG_CENTERS = 32,
    FLAG_PICKS = 64, /* rows are those of the list */
    FLAG_WEIGHT = 128,
    FLAG_FINE = 256, /* of FLAG_CODES: all blocks have a second term */
};

enum {
    KV_SLOTS = 32,
    ATTENTION_SPLIT = 128, /* positions that are summed up by themselves */
    ATTENTION_BLOCK = 8    /* rows for which keys and values are read together, at most */
};

/* Results that a batch is read for: [S][pieces of a row][PIECE_WORDS], then the best of rows that want some, two words
 * each. */
enum { PIECE_WORDS = 4, MAX_BEST = 128 };

/* Keys and values of d components as bytes (q8_0), a head's part of a page: codes, and behind them the scales, halves. A
 * work-item loads 16 codes. Keys: [unit of 16 components][slot][16], scales [block of 32][slot]. Values: 16 codes are
 * VALUE_VEC components, those that attention gives a work-item, of slots one behind the other: [slots][component /
 * VALUE_VEC][16], scales [slot]. */
#define VALUE_STRIDE(d)  (((d) + 7) / 8 * 8)
#define VALUE_VEC(d)     ((d) % 128 == 0 ? 4 : (d) % 64 == 0 ? 2 : 1)
#define VALUE_SLOTS(d)   (16 / VALUE_VEC(d))
#define KEY8_CODES(d)    (((d) + 15) / 16 * 16 * KV_SLOTS)
#define VALUE8_CODES(d)  (VALUE_STRIDE(d) * KV_SLOTS)
#define KEY8_BYTES(d)    (KEY8_CODES(d) + ((d) + 31) / 32 * 2 * KV_SLOTS)
#define VALUE8_BYTES(d)  (VALUE8_CODES(d) + 2 * KV_SLOTS)
#define KEY8_AT(slot, j) ((j) / 16 * 16 * KV_SLOTS + (slot)*16 + (j) % 16)
#define VALUE8_AT(d, slot, j)                                                                                          \
    (((slot) / VALUE_SLOTS(d) * (VALUE_STRIDE(d) / VALUE_VEC(d)) + (j) / VALUE_VEC(d)) * 16 +                          \
     (slot) % VALUE_SLOTS(d) * VALUE_VEC(d) + (j) % VALUE_VEC(d))
