/* Steps that carry a state from row to row: short convolutions, the gated delta rule, state spaces, selective scans.
 * A state is loaded once for all rows of a sequence in the batch, and stored once, and for each copy that the batch
 * requests. */

/* Returns what is at `first` of a state: the step's part, or its drafts (backend_set_state_bytes). */
static inline __global float *state_at(__global float *states, ulong state_floats, ulong first, int id)
{
    return states + (size_t)id * state_floats + first;
}

#ifdef TAPS
/* A work-item has a channel, and a part of a sequence's rows. All parts but the first read only rows of the batch; only
 * the first part's work-item reads or writes the state, [TAPS - 1][width].
 *   -DTAPS= */
#define WG     64
#define PIECES 16
#define AHEAD  8 /* rows loaded together */

__kernel GROUP(WG, 1) void short_conv(__global const int *restrict batch, __global const float *restrict src,
                                      uint src_stride, uint width, __global const float *restrict w,
                                      __global const float *restrict bias, int has_bias, int how,
                                      __global float *states, ulong state_floats, ulong state_first,
                                      ulong drafts_first, __global float *restrict dst, uint dst_stride)
{
    __global const int *seq = batch + batch[BATCH_AT_SEQS] + get_group_id(2) * SEQ_WORDS;
    const int n_groups = get_num_groups(0) / PIECES, piece = get_group_id(0) / n_groups;
    const uint n = get_group_id(0) % n_groups * WG + get_local_id(0);
    const int first = seq[SEQ_FIRST], end = seq[SEQ_END];
    const int per = max((end - first + PIECES - 1) / PIECES, TAPS - 1);
    const int from = min(first + piece * per, end), to = min(from + per, end);
    if (n >= width || from == to) {
        return;
    }
    float taps[TAPS], x[TAPS]; /* the rows in the window, the latest last */
    float begin[TAPS - 1];     /* the rows before the sequence's first: of the state, then drafts that came true */
    __global float *drafts = state_at(states, state_floats, drafts_first, seq[SEQ_STATE]) + n;
    for (int j = 0; j < TAPS; j++) {
        taps[j] = w[(size_t)n * TAPS + j];
    }
    for (int j = 0; j < TAPS - 1; j++) {
        const int at = j + seq[SEQ_TRUE];
        begin[j] = 0.0f;
        if (piece == 0 && at >= TAPS - 1) {
            begin[j] = drafts[(size_t)(at - (TAPS - 1)) * width];
        } else if (piece == 0 && seq[SEQ_FROM] >= 0) {
            begin[j] = state_at(states, state_floats, state_first, seq[SEQ_FROM])[(size_t)at * width + n];
        }
        x[j + 1] = piece == 0 ? begin[j] : src[(size_t)(from - TAPS + 1 + j) * src_stride + n];
    }
    const float added = has_bias ? bias[n] : 0.0f;
    for (int i = from; i < to; i += AHEAD) {
        float ahead[AHEAD];
        for (int k = 0; k < AHEAD; k++) {
            ahead[k] = src[(size_t)min(i + k, to - 1) * src_stride + n];
        }
        for (int k = 0; k < AHEAD && i + k < to; k++) {
            float sum = 0.0f;
            for (int j = 0; j < TAPS; j++) {
                x[j] = j < TAPS - 1 ? x[j + 1] : ahead[k];
                sum = fma(taps[j], x[j], sum);
            }
            dst[(size_t)(i + k) * dst_stride + n] = map(how, sum + added);
        }
    }
    __global const int *copies = batch + batch[BATCH_AT_COPIES];
    for (int c = seq[SEQ_COPY]; c <= seq[SEQ_COPIES_END] && piece == 0; c++) { /* the sequence's own state is last */
        const bool is_own = c == seq[SEQ_COPIES_END];
        const int after = is_own ? seq[SEQ_CERTAIN] : copies[2 * c] + 1;
        __global float *state =
            state_at(states, state_floats, state_first, is_own ? seq[SEQ_STATE] : copies[2 * c + 1]);
        for (int j = 0; j < TAPS - 1; j++) {
            const int row = after - (TAPS - 1) + j;
            float v = row >= first ? src[(size_t)row * src_stride + n] : 0.0f;
            for (int k = j + 1; k < TAPS - 1; k++) { /* indexes must be compile-time constants */
                v = row - first + TAPS - 1 == k ? begin[k] : v;
            }
            state[(size_t)j * width + n] = v;
        }
    }
    for (int i = seq[SEQ_CERTAIN]; i < end && piece == 0; i++) {
        drafts[(size_t)(i - seq[SEQ_CERTAIN]) * width] = src[(size_t)i * src_stride + n];
    }
}
#endif

#ifdef DK
/* A work-group has a head of a sequence, and LANES columns of its state [DK][dv]; a wave has a part of each column in
 * registers. All work-items load the values that all columns of a row share, one row ahead. A row needs one sum over
 * the waves: for the delta rule of S_(t-1) with k and q, then y = S_t^T q is decay S_(t-1)^T q + change (k.q); for
 * state spaces of S_t with C. First the state is advanced by the drafts of the last batch that came true. A state is
 * stored between loops over rows: a store inside of one, to a fixed place, keeps its addresses in registers.
 *   -DDK=     rows of the state: dk of the delta rule, n of state spaces
 *   -DPARTS=  waves
 *   -DDELTA=  1: the delta rule (k, q, v, alpha, beta), 0: state spaces (B, C, x, dt)
 *   -DCHANNELS= 1: selective scans: a state space with a dt for each column, and an A for each element of the state
 *   -DDECAYS= 0: a head has one decay; 1: each row of the state has its own, and the state decays before the sums */
#define WG    (LANES * PARTS)
#define PER   ((DK + PARTS - 1) / PARTS)
#define LOADS ((DK + WG - 1) / WG)
#define SUMS  (DELTA ? 5 : 1) /* with k; with q; k.q, k.k and q.q */

/* Floats of a draft that advance a head: k, v, alphas and beta, or B, x and dt. */
#define RATES(dv)            (CHANNELS ? (dv) : DECAYS ? DK : 1)
#define DRAFT_FLOATS(dk, dv) ((dk) + (dv) + RATES(dv) + DELTA)
#define EACH                 (DECAYS ? LOADS : 1) /* rates that a work-item loads */

/* A row being loaded: values of the work-item, and values that all share. */
struct scan_row {
    float k[LOADS], q[LOADS], v, rate[EACH], beta;
};

/* Where rows of the head begin: k, q, the work-item's v, and the numbers of a row, or of its column of that row. */
struct scan_rows {
    __global const float *k, *q, *v, *rate, *beta;
    uint k_stride, q_stride, v_stride, rate_stride, beta_stride;
};

static inline struct scan_row load_row(struct scan_rows of, size_t row, bool has_v, uint lid)
{
    struct scan_row r;
    for (uint i = 0; i < LOADS; i++) {
        const uint j = i * WG + lid;
        r.k[i] = j < DK ? of.k[row * of.k_stride + j] : 0.0f;
        r.q[i] = j < DK ? of.q[row * of.q_stride + j] : 0.0f;
#if DECAYS
        r.rate[i] = j < DK ? of.rate[row * of.rate_stride + j] : 0.0f;
#endif
    }
    r.v = has_v ? of.v[row * of.v_stride] : 0.0f;
#if !DECAYS
    r.rate[0] = !CHANNELS || has_v ? of.rate[row * of.rate_stride] : 0.0f;
#endif
    r.beta = of.beta[row * of.beta_stride];
    return r;
}

static inline void store_row(const struct scan_row *r, uint lid, __local float *k, __local float *q)
{
    for (uint i = 0; i < LOADS; i++) {
        const uint j = i * WG + lid;
        if (j < PER * PARTS) {
            k[j] = r->k[i];
            q[j] = r->q[i];
        }
    }
}

#if DECAYS
/* Stores the decays of the rows of the state. */
static inline void store_decays(const struct scan_row *r, uint lid, float w, __global const float *bias,
                                __local float *decays)
{
    for (uint i = 0; i < LOADS; i++) {
        const uint j = i * WG + lid;
        if (j < PER * PARTS) {
            decays[j] = j < DK ? exp(softplus(r->rate[i] + bias[j]) * w) : 0.0f;
        }
    }
}
#endif

/* Stores a part of a column, from row `begin` of the state on. */
static inline void store_part(const float s[PER], uint begin, uint dv, __global float *to)
{
#pragma unroll
    for (uint j = 0; j < PER; j++) {
        if (begin + j < DK) {
            to[(size_t)j * dv] = s[j];
        }
    }
}

/* per_k: adjacent heads that share k and q, or 0: heads use the n_k keys in rotation. q_begin, k_begin, v_begin: where
 * q, k and v begin in a row of q_src, k_src and v_src. rates: dt, or alpha, of a row; w: A of the heads, or in the order
 * of the state; skip: D. */
__kernel GROUP(WG, 1) void scan(__global const int *restrict batch, __global const float *restrict q_src,
                                uint q_stride, uint q_begin, __global const float *restrict k_src, uint k_stride,
                                uint k_begin, __global const float *restrict v_src, uint v_stride, uint v_begin,
                                uint per_k, uint n_k, uint dv,
                                __global const float *restrict rates, uint rates_stride,
                                __global const float *restrict betas, uint betas_stride,
                                __global const float *restrict w, __global const float *restrict bias,
                                __global const float *restrict skip, __global float *states, ulong state_floats,
                                ulong state_first, ulong drafts_first, int max_drafts,
                                __global float *restrict dst, uint dst_stride)
{
    __local float keys[2][PER * PARTS], queries[2][PER * PARTS];
#if DECAYS
    __local float decays[2][PER * PARTS];
#endif
    __local float parts[2][PARTS][SUMS][LANES];
    const uint lid = get_local_id(0), lane = lid % LANES, part = UNIFORM(lid / LANES);
    const uint slices = (dv + LANES - 1) / LANES, h = get_group_id(0) / slices;
    const uint n = get_group_id(0) % slices * LANES + lane, begin = part * PER;
    const bool is_there = n < dv;
    __global const int *seq = batch + batch[BATCH_AT_SEQS] + get_group_id(2) * SEQ_WORDS;
    __global const int *copies = batch + batch[BATCH_AT_COPIES];
    const int first = seq[SEQ_FIRST], start = first - seq[SEQ_TRUE], end = seq[SEQ_END], from = seq[SEQ_FROM];
    const uint head = per_k != 0 ? h / per_k : h % n_k;
    const uint k_first = k_begin + head * DK, q_first = q_begin + head * DK, v_first = v_begin + h * dv + n;
    const size_t at = ((size_t)h * DK + begin) * dv + n;
    const uint c_first = h * RATES(dv) + (CHANNELS && is_there ? n : 0); /* of rates, bias and skip */
    float s[PER], k[PER];
#if CHANNELS
    float a[PER];
    for (uint j = 0; j < PER; j++) {
        a[j] = is_there && begin + j < DK ? w[at + (size_t)j * dv] : 0.0f;
    }
#endif
    for (uint j = 0; j < PER; j++) {
        s[j] = from >= 0 && is_there && begin + j < DK
                   ? state_at(states, state_floats, state_first, max(from, 0))[at + (size_t)j * dv]
                   : 0.0f;
    }
    __global const float *kept = state_at(states, state_floats, drafts_first, seq[SEQ_STATE]) +
                                 (size_t)h * max_drafts * DRAFT_FLOATS(DK, dv);
    const uint step = DRAFT_FLOATS(DK, dv);
    const struct scan_rows drafts = {kept, kept, kept + DK + n, kept + DK + dv + (CHANNELS ? n : 0), kept + step - 1,
                                     step, step, step, step, step};
    const struct scan_rows rows = {k_src + k_first, q_src + q_first, v_src + v_first, rates + c_first, betas + h,
                                   k_stride, q_stride, v_stride, rates_stride, betas_stride};
    struct scan_row row = load_row(start < first ? drafts : rows, start < first ? 0 : first, is_there, lid);
    store_row(&row, lid, keys[start & 1], queries[start & 1]);
#if DECAYS
    store_decays(&row, lid, w[h], bias + c_first, decays[start & 1]);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    const int own = seq[SEQ_COPIES_END]; /* the sequence's own state is stored after the copies; drafts follow */
    for (int copy = seq[SEQ_COPY], i = start; copy <= own + 1; copy++) {
        const int stop = copy < own ? copies[2 * copy] + 1 : copy == own ? seq[SEQ_CERTAIN] : end;
        for (; i < stop; i++) {
            const uint here = i & 1;
            const float beta = sigmoid(row.beta), v = row.v;
#if DECAYS
            const float decay = 1.0f;
#else
            const float rate = softplus(row.rate[0] + bias[c_first]);
#endif
#if !CHANNELS && !DECAYS
            const float decay = exp(rate * w[h]);
#endif
            const int next = min(i + 1, end - 1);
            row = load_row(next < first ? drafts : rows, next < first ? next - start : next, is_there, lid);
            float sum[SUMS];
            for (uint c = 0; c < SUMS; c++) {
                sum[c] = 0.0f;
            }
#pragma unroll
            for (uint j = 0; j < PER; j++) {
                const float q = queries[here][begin + j];
                k[j] = keys[here][begin + j];
#if DECAYS
                s[j] *= decays[here][begin + j];
#endif
#if DELTA
                sum[0] = fma(s[j], k[j], sum[0]);
                sum[1] = fma(s[j], q, sum[1]);
                sum[2] = fma(k[j], q, sum[2]);
                sum[3] = fma(k[j], k[j], sum[3]);
                sum[4] = fma(q, q, sum[4]);
#else
#if CHANNELS
                const float decay = exp(rate * a[j]);
#endif
                s[j] = fma(decay, s[j], k[j] * (rate * v));
                sum[0] = fma(s[j], q, sum[0]);
#endif
            }
            for (uint c = 0; c < SUMS; c++) {
                parts[here][part][c][lane] = sum[c];
            }
            store_row(&row, lid, keys[1 - here], queries[1 - here]);
#if DECAYS
            store_decays(&row, lid, w[h], bias + c_first, decays[1 - here]);
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint c = 0; c < SUMS; c++) {
                sum[c] = parts[here][0][c][lane];
                for (uint p = 1; p < PARTS; p++) {
                    sum[c] += parts[here][p][c][lane];
                }
            }
#if DELTA
            /* normalize k and q; the floor is the reference's */
            const float by_k = 1.0f / sqrt(sum[3] + 1e-6f), by_q = 1.0f / (sqrt(sum[4] + 1e-6f) * sqrt((float)DK));
            const float change = beta * (v - decay * by_k * sum[0]) * by_k;
            const float y = by_q * fma(change, sum[2], decay * sum[1]);
            for (uint j = 0; j < PER; j++) {
                s[j] = fma(decay, s[j], k[j] * change);
            }
#else
            const float y = fma(skip[c_first], v, sum[0]);
#endif
            if (part == 0 && is_there && i >= first) {
                dst[(size_t)i * dst_stride + h * dv + n] = y;
            }
        }
        if (copy <= own && is_there) {
            const int id = copy < own ? copies[2 * copy + 1] : seq[SEQ_STATE];
            store_part(s, begin, dv, state_at(states, state_floats, state_first, id) + at);
        }
    }
}

/* Keeps what advances a head by the drafts of the batch. A work-item has a float of a draft; the scan of this batch has
 * read those of the last. */
__kernel GROUP(WG, 1) void keep_drafts(__global const int *restrict batch, __global const float *restrict k_src,
                                       uint k_stride, uint k_begin, __global const float *restrict v_src,
                                       uint v_stride, uint v_begin, uint per_k, uint n_k, uint dv,
                                       __global const float *restrict rates, uint rates_stride,
                                       __global const float *restrict betas, uint betas_stride,
                                       __global float *states, ulong state_floats, ulong drafts_first, int max_drafts)
{
    __global const int *seq = batch + batch[BATCH_AT_SEQS] + get_group_id(2) * SEQ_WORDS;
    const uint h = get_group_id(0), head = per_k != 0 ? h / per_k : h % n_k;
    __global float *drafts = state_at(states, state_floats, drafts_first, seq[SEQ_STATE]) +
                             (size_t)h * max_drafts * DRAFT_FLOATS(DK, dv);
    for (int i = seq[SEQ_CERTAIN]; i < seq[SEQ_END]; i++, drafts += DRAFT_FLOATS(DK, dv)) {
        for (uint j = get_local_id(0); j < DRAFT_FLOATS(DK, dv); j += WG) {
            float x = betas[(size_t)i * betas_stride + h];
            if (j < DK) {
                x = k_src[(size_t)i * k_stride + k_begin + head * DK + j];
            } else if (j < DK + dv) {
                x = v_src[(size_t)i * v_stride + v_begin + h * dv + j - DK];
            } else if (j < DK + dv + RATES(dv)) {
                x = rates[(size_t)i * rates_stride + h * RATES(dv) + j - DK - dv];
            }
            drafts[j] = x;
        }
    }
}
#endif
