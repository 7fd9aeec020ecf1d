/* Definitions that host and kernels share; C and OpenCL C. */

/* Words of a batch's buffer: a header, and arrays whose offsets the header has. */
enum {
    BATCH_ROWS,            /* T */
    BATCH_LOGIT_ROWS,      /* S */
    BATCH_HIDDEN_ROWS,     /* E; in the order of enum plan_rows */
    BATCH_SEQS,            /* sequences */
    BATCH_SPLITS,          /* the most parts of ATTENTION_SPLIT positions of any row */
    BATCH_RESULTS,         /* words of results */
    BATCH_SINGLES,         /* rows outside of blocks */
    BATCH_BLOCKS,          /* of at most ATTENTION_BLOCK rows of a sequence */
    BATCH_AT_TOKENS,       /* offset in words of [T] ids */
    BATCH_AT_POS,          /* [T] positions */
    BATCH_AT_LAST,         /* [T] the last position that a row sees */
    BATCH_AT_TABLE,        /* [T] offset in words of the page table of the row's sequence */
    BATCH_AT_WINDOW_TABLE, /* [T] the same for window pages */
    BATCH_AT_PICKED,       /* two words, indexed by enum plan_rows - 1: [S] and [E] rows of T */
    BATCH_AT_PICKED_HIDDEN,
    BATCH_AT_SEQS,   /* [sequences][SEQ_WORDS] */
    BATCH_AT_COPIES, /* [copies][2]: row, state */
    BATCH_AT_ORDER,  /* [T] rows, those outside of blocks first */
    BATCH_AT_BLOCKS, /* [blocks][2]: first row, rows */
    BATCH_AT_WANTS,  /* [S][2]: number of best tokens requested, offset of them in the words of results */
    BATCH_AT_ROPES,  /* a word for each RoPE table: f32 [T][n_rot/2][2] cosines and sines */
    BATCH_AT_QUERY_SCALES = BATCH_AT_ROPES + 8, /* likewise f32 [T], or 0 */
    BATCH_WORDS = BATCH_AT_QUERY_SCALES + 8
};

/* Words of a sequence in a batch. */
enum {
    SEQ_FIRST,      /* its first row */
    SEQ_END,        /* the row after its last */
    SEQ_STATE,      /* its recurrent state */
    SEQ_FROM,       /* the state it continues from; -1: zeros */
    SEQ_COPY,       /* its first copy in the list */
    SEQ_COPIES_END, /* the copy after its last */
    SEQ_CERTAIN,    /* the row after its last that is not a draft */
    SEQ_TRUE,       /* drafts of its last batch that came true */
    SEQ_WORDS
};

/* Activations in bytes: each block of 32 has a first term, code * factor, and a second term, which is zero in most
 * blocks. Rows are in tiles of ACT_ROWS, [tile][term][block][row of the tile][words]. The factor of a first term is
 * negative if the block has a second term; its magnitude counts. */
enum {
    ACT_FACTOR = 8, /* after the codes, four per word */
    ACT_LOW,        /* sum of the first 16 codes */
    ACT_HIGH,       /* sum of the last 16 codes */
    ACT_TOTAL,      /* sum of all codes, times the factor */
    ACT_WORDS,
    ACT_ROWS = 8
};

/* How a result is stored; flags of matmul and others. */
enum {
    FLAG_ADDS = 1, /* dst += */
    FLAG_BIAS = 2,
    FLAG_CAP = 4,     /* cap * tanh(y / cap) */
    FLAG_CODES = 8,   /* write activations in bytes .. */
    FLAG_FLOATS = 16, /* .. or floats, or both */
    FLAG_CENTERS = 32,
    FLAG_PICKS = 64, /* rows are those of the list */
    FLAG_WEIGHT = 128,
    FLAG_FINE = 256, /* with FLAG_CODES: all blocks have a second term */
};

enum {
    KV_SLOTS = 32,
    ATTENTION_SPLIT = 128, /* positions that are summed separately */
    ATTENTION_BLOCK = 8    /* maximum rows that read keys and values together */
};

/* Results that the host reads: [S][pieces of a row][PIECE_WORDS], then the best tokens of rows that request some, two
 * words each. */
enum { PIECE_WORDS = 4, MAX_BEST = 128 };

/* Keys and values of d components as bytes (q8_0), a head's part of a page: codes, then scales as halves. A work-item
 * loads 16 codes. Keys: [unit of 16 components][slot][16], scales [block of 32][slot]. Values: 16 codes are VALUE_VEC
 * components, those of one work-item of attention, for VALUE_SLOTS consecutive slots: [slots][component /
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
