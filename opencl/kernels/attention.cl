/* Attention over the pages of the cache, in the layout of heads.cl [Vaswani 2017, 3.2.1; paging: Kwon 2023, 4.1;
 * softmax in pieces: Milakov & Gimelshein 2018].
 *
 * A work-group is LANES work-items and computes HEADS query heads of a KV head, for ROWS rows of a sequence, so it
 * reads each page once for all of them. It iterates over the pages: a lane computes a slot's score, and then components
 * of the values. Each ATTENTION_SPLIT positions, starting at a multiple of it, are summed separately, and then these
 * parts in order. With SPLIT a work-group computes one part, and merge sums the parts. Positions that a row does not
 * see do not change its sums, so it has the bits of ROWS=1.
 *   -DD= -DDV=  width of a key, of a value   -DLATENT=  values are the first DV components of keys
 *   -DHEADS=    query heads of a work-group  -DROWS=    1, or a divisor of ATTENTION_BLOCK
 *   -DSPLIT=    0, or 1 with ROWS=1
 *   -DK8= -DV8= keys, values as bytes: 0 or 1
 *   -DSKIPS=N  the first N positions are seen only by their own rows (OPTIONAL)
 *   -DCHUNKS=1  a row sees the positions of its own chunk of `window`
 *   -DCHOSEN=K  latents of rows with ROWS=1: a row sees only the first K, or fewer, positions of its list in `chosen`, and
 *               pages below are of this list
 *   -DBOTH=1    the window extends to both sides of a row, so its own position is not the last that it sees
 *   -DALIBI=1   `sinks` are no sinks but each head's slope, by which scores fall with the distance of positions
 *   -DREACH=N   ... but each head's 2 N + 1 biases of scores, for distances -N .. N of positions from the row's own */
#define UNITS    ((D + 7) / 8)
/* Components of a value per lane: N, VEC of them adjacent. */
#define VEC (LATENT ? 8 : VALUE_VEC(DV))
#define N ((DV + LANES * VEC - 1) / (LANES * VEC) * VEC)

static inline uint component(uint lane, uint c) { return c / VEC * (LANES * VEC) + lane * VEC + c % VEC; }

/* All queries are kept in registers, so every index must be a compile-time constant. KEYS_LOADED limits the pending
 * loads, because they take registers too. */
#define QUERIES       (ROWS * HEADS) /* [row][head] */
#define EACH_ROW(r)   UNROLL for (uint r = 0; r < ROWS; r++)
#define EACH_OF(n, h)  UNROLL for (uint h = 0; h < n; h++)
#define EACH_QUERY(h)  EACH_OF(QUERIES, h)
#define EACH_VALUE(c) UNROLL for (uint c = 0; c < N; c++)
#define KEYS_LOADED   (LATENT || (K8 && (D <= 32 || (D + 15) / 16 % 2 != 0)) ? 1 : 2)

/* A part of a softmax: largest score, sum of weights and of weighted values. */
struct part {
    float max, sum, values[N];
};

/* Adds the sums of the next part to the sums of a query head. */
static inline void join(struct part *all, const struct part *next)
{
    const float max = fmax(all->max, next->max), a = exp(all->max - max), b = exp(next->max - max);
    all->sum = fma(next->sum, b, all->sum * a);
    EACH_VALUE(c) { all->values[c] = fma(next->values[c], b, all->values[c] * a); }
    all->max = max;
}

/* Numbers of a head in `sinks`. */
#ifdef REACH
#define PER_HEAD (2 * REACH + 1)
#else
#define PER_HEAD 1
#endif
#if defined(ALIBI) || defined(REACH)
#define BY_DISTANCE 1
#define SINK(head, max) 0.0f
#else
#define SINK(head, max) (has_sinks ? exp(sinks[head] - (max)) : 0.0f)
#endif

static inline float score_cap(float score, float cap) { return cap != 0.0f ? cap * tanh(score / cap) : score; }

/* Elements of a head's part of a page; components of a query, padded with zeros to those of a key. */
#if K8
#define KEY_T    char
#define KEY_PART KEY8_BYTES(D)
#define KEY_UNITS ((D + 15) / 16)
#define Q_WIDTH  (KEY_UNITS * 16)
#else
#define KEY_T    half
#define KEY_PART (UNITS * KV_SLOTS * 8)
#define Q_WIDTH  (UNITS * 8)
#endif
#if V8
#define VALUE_T    char
#define VALUE_PART VALUE8_BYTES(DV)
#else
#define VALUE_T    half
#define VALUE_PART (KV_SLOTS * VALUE_STRIDE(DV))
#endif

/* Loads 8 components of a slot's latent. */
#ifdef CHOSEN
#define LATENT_AT(unit, slot) vload_half8((unit) * KV_SLOTS, keys + places[slot])
#else
#define LATENT_AT(unit, slot) vload_half8((unit) * KV_SLOTS + (slot), keys)
#endif

/* Loads 16 codes at once. */
static inline char16 codes_at(__global const char *codes, uint i)
{
    return as_char16(((__global const int4 *)codes)[i]);
}

/* Multiplies queries by the key of a lane's slot. */
#if K8
static inline void add_keys(__global const char *keys, __local const float *q, uint lane, float *scores)
{
#pragma unroll KEYS_LOADED
    for (uint u = 0; u < KEY_UNITS; u++) {
        const char16 codes = codes_at(keys, u * KV_SLOTS + lane);
        const float scale = vload_half(u / 2 * KV_SLOTS + lane, (__global const half *)(keys + KEY8_CODES(D)));
        const float8 low = convert_float8(codes.lo), high = convert_float8(codes.hi);
        EACH_QUERY(h)
        {
            __local const float *of = q + h * Q_WIDTH + 16 * u;
            const float sum = add_8(low, vload8(0, of), 0.0f);
            SCHEDULE();
            scores[h] = fma(add_8(high, vload8(1, of), sum), scale, scores[h]);
            SCHEDULE();
        }
    }
}
#else
static inline void add_keys(__global const half *keys, __local const float *q, uint lane, float *scores)
{
#pragma unroll KEYS_LOADED
    for (uint u = 0; u < UNITS; u++) {
        const float8 k = vload_half8(u * KV_SLOTS + lane, keys);
        EACH_QUERY(h)
        {
            scores[h] = add_8(k, vload8(h * UNITS + u, q), scores[h]);
            SCHEDULE();
        }
    }
}
#endif

/* Adds the values of slots first .. last to the parts of n queries. For bytes: scaled, of QUERIES, has weights times
 * scales, and zeros for unseen slots. */
#if V8
static inline void add_values(__global const KEY_T *keys, __global const char *values, __local const float *weights,
                              __local const float *scaled, uint lane, uint n, int first, int last, struct part *parts,
                              __local const ulong *places)
{
#pragma unroll 1
    for (int slot = first; slot <= last; slot++) {
        EACH_OF(n, h) { parts[h].sum += weights[h * KV_SLOTS + slot]; }
    }
    UNROLL
    for (uint from = 0; from < N; from += 2 * VEC) {
#pragma unroll 1
        for (int g = first / VALUE_SLOTS(DV); g <= last / VALUE_SLOTS(DV); g++) {
            char codes[32];
            UNROLL
            for (uint i = 0; i < 2; i++) {
                const uint j = component(lane, from + i * VEC), at = g * (VALUE_STRIDE(DV) / VEC) + j / VEC;
                vstore16(j < DV ? codes_at(values, at) : (char16)0, i, codes);
            }
            UNROLL
            for (uint slot = 0; slot < VALUE_SLOTS(DV); slot++) {
                EACH_OF(n, h)
                {
                    const float weight = scaled[(g * VALUE_SLOTS(DV) + slot) * QUERIES + h];
                    UNROLL
                    for (uint c = 0; c < 2 * VEC; c++) {
                        if (from + c < N) {
                            const float code = (float)codes[c / VEC * 16 + slot * VEC + c % VEC];
                            parts[h].values[from + c] = fma(weight, code, parts[h].values[from + c]);
                        }
                    }
                }
                SCHEDULE();
            }
        }
    }
}
#else
static inline void add_values(__global const KEY_T *keys, __global const half *values, __local const float *weights,
                              __local const float *scaled, uint lane, uint n, int first, int last, struct part *parts,
                              __local const ulong *places)
{
#pragma unroll 1
    for (int slot = first; slot <= last; slot++) {
        EACH_OF(n, h) { parts[h].sum += weights[h * KV_SLOTS + slot]; }
        UNROLL
        for (uint c = 0; c < N; c += VEC) {
            float v[VEC];
            const uint j = component(lane, c);
#if LATENT
            vstore8(j < DV ? LATENT_AT(j / 8, slot) : (float8)0.0f, 0, v);
#elif VEC == 4
            vstore4(vload_half4(0, values + slot * VALUE_STRIDE(DV) + j), 0, v);
#elif VEC == 2
            vstore2(vload_half2(0, values + slot * VALUE_STRIDE(DV) + j), 0, v);
#else
            v[0] = j < DV ? vload_half(slot * VALUE_STRIDE(DV) + j, values) : 0.0f;
#endif
            EACH_OF(n, h)
            {
                const float weight = weights[h * KV_SLOTS + slot];
                UNROLL
                for (uint i = 0; i < VEC; i++) {
                    parts[h].values[c + i] = fma(weight, v[i], parts[h].values[c + i]);
                }
                if (LATENT) {
                    SCHEDULE();
                }
            }
        }
    }
}
#endif

/* Positions that a row sees. */
struct span {
    int first, last;
#ifdef BY_DISTANCE
    int own; /* the row's position */
#endif
};

/* Adds the positions of a page that starts at `begin` to the parts of all queries whose rows see them. places: offsets of
 * the slots' keys, with CHOSEN. */
static inline void add_page(__global const KEY_T *keys, __global const VALUE_T *values, __local const float *q,
                            __local float *weights, uint lane, int begin, const struct span *seen, float scale, float cap,
                            __global const float *by_head, uint n_own, struct part *parts,
                            __local const ulong *places)
{
    float scores[QUERIES], less[QUERIES];
    struct span slots[ROWS];
    EACH_ROW(r)
    {
        slots[r].first = max(seen[r].first - begin, 0);
        slots[r].last = min(seen[r].last - begin, KV_SLOTS - 1);
    }
    bool is_same = slots[0].first <= slots[0].last;
    EACH_ROW(r)
    {
        is_same = is_same && slots[r].first == slots[0].first && slots[r].last == slots[0].last;
    }
    EACH_QUERY(h) { scores[h] = 0.0f; }
#ifdef CHOSEN
    add_keys(keys + places[lane], q, 0, scores);
#else
    add_keys(keys, q, lane, scores);
#endif
#if V8
    const float value_scale = vload_half(lane, (__global const half *)(values + VALUE8_CODES(DV)));
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    EACH_QUERY(h)
    {
        const bool is_seen = (int)lane >= slots[h / HEADS].first && (int)lane <= slots[h / HEADS].last;
#if defined(ALIBI)
        const float distance = (float)abs(begin + (int)lane - seen[h / HEADS].own);
        const float score = fma(-by_head[min(h % HEADS, n_own - 1)], distance, scores[h] * scale);
#elif defined(REACH)
        const int distance = clamp(begin + (int)lane - seen[h / HEADS].own, -REACH, REACH);
        const float bias = by_head[(int)min(h % HEADS, n_own - 1) * PER_HEAD + REACH + distance];
        const float score = fma(scores[h], scale, bias);
#else
        const float score = score_cap(scores[h] * scale, cap);
#endif
        scores[h] = is_seen ? score : -INFINITY;
        weights[h * KV_SLOTS + lane] = scores[h];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    EACH_QUERY(h)
    {
        float4 max4 = parts[h].max;
#pragma unroll 2
        for (uint i = 0; i < KV_SLOTS / 4; i++) {
            max4 = fmax(max4, vload4(i, weights + h * KV_SLOTS));
        }
        const float max = fmax(fmax(max4.x, max4.y), fmax(max4.z, max4.w));
        const bool is_any = ROWS == 1 || slots[h / HEADS].first <= slots[h / HEADS].last;
        less[h] = is_any ? exp(parts[h].max - max) : 1.0f;
        parts[h].max = max;
        SCHEDULE();
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    EACH_QUERY(h)
    {
        const float weight = exp(scores[h] - parts[h].max);
        weights[h * KV_SLOTS + lane] = weight;
#if V8
        const bool is_seen = (int)lane >= slots[h / HEADS].first && (int)lane <= slots[h / HEADS].last;
        weights[(KV_SLOTS + lane) * QUERIES + h] = is_seen ? weight * value_scale : 0.0f; /* unwritten memory can be NaN */
#endif
        parts[h].sum *= less[h];
        EACH_VALUE(c) { parts[h].values[c] *= less[h]; }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const float *scaled = weights + QUERIES * KV_SLOTS;
    if (is_same) {
        add_values(keys, values, weights, scaled, lane, QUERIES, slots[0].first, slots[0].last, parts, places);
    }
#if ROWS > 1
    EACH_ROW(r)
    {
        if (!is_same && slots[r].first <= slots[r].last) {
            add_values(keys, values, weights + r * HEADS * KV_SLOTS, scaled + r * HEADS, lane, HEADS, slots[r].first,
                       slots[r].last, parts + r * HEADS, places);
        }
    }
#endif
}

static inline void finish(struct part *p, uint lane, __global float *out)
{
    EACH_VALUE(c)
    {
        const uint j = component(lane, c);
        if (j < DV) {
            out[j] = p->values[c] / p->sum;
        }
    }
}

/* Returns the positions that a row sees: with a window this many up to its own and `ahead` after it, within the
 * sequence. Two numbers per row exceed the scalar registers for eight rows, so the first is computed from the last if
 * possible. */
static inline struct span seen_of(__global const int *batch, int row, int window, int ahead)
{
    struct span seen;
    seen.last = batch[batch[BATCH_AT_LAST] + row];
#ifdef BOTH
    const int own = batch[batch[BATCH_AT_POS] + row];
    seen.last = min(own + ahead, seen.last);
#else
    const int own = seen.last;
#endif
#ifdef CHOSEN
    seen.last = min(seen.last, CHOSEN - 1);
#endif
#ifdef CHUNKS
    seen.first = (int)((uint)own / (uint)window * (uint)window);
#else
    seen.first = window > 0 ? max(own - window + 1, 0) : 0;
#endif
#ifdef SKIPS
    seen.first = max(seen.first, min(SKIPS, own));
#endif
#ifdef BY_DISTANCE
    seen.own = batch[batch[BATCH_AT_POS] + row];
#endif
    return seen;
}

/* group_id(0): KV head and tile of its query heads; (1): part, up to the most of any row; (2): row, or block of rows.
 * partial: [row][query head][n_splits][DV + 2]: values, largest score, sum. */
__kernel GROUP(LANES, 1) void attention(__global const int *restrict batch, __global const float *restrict q,
                                        uint q_stride, __global const KEY_T *restrict keys,
                                        __global const VALUE_T *restrict values, uint n_heads, uint n_kv_heads, float scale,
                                        float cap, int at_table, int window, int ahead,
                                        __global const float *restrict sinks, int has_sinks,
                                        __global float *restrict out, uint out_stride
#ifdef CHOSEN
                                        , __global const float *restrict chosen, uint chosen_stride
#endif
)
{
#ifdef CHOSEN
    __local ulong places[KV_SLOTS];
#else
    __local const ulong *places = 0;
#endif
    __local float query[QUERIES * Q_WIDTH];
    __local float weights[(1 + V8) * QUERIES * KV_SLOTS];
    const uint lane = get_local_id(0), group = get_group_id(2);
    const uint per_kv = n_heads / n_kv_heads, tiles = (per_kv + HEADS - 1) / HEADS;
    const uint kv_head = get_group_id(0) / tiles, tile = get_group_id(0) % tiles;
    const uint first_head = kv_head * per_kv + tile * HEADS, n_own = min((uint)HEADS, per_kv - tile * HEADS);
#if ROWS > 1
    __global const int *block = batch + batch[BATCH_AT_BLOCKS] + group / (ATTENTION_BLOCK / ROWS) * 2;
    const int skipped = group % (ATTENTION_BLOCK / ROWS) * ROWS, row = block[0] + skipped;
    const int n_rows = min(block[1] - skipped, ROWS); /* a short block repeats its last row */
    if (n_rows <= 0) {
        return;
    }
#else
    const int row = SPLIT ? group : batch[batch[BATCH_AT_ORDER] + group], n_rows = 1;
#endif
    __global const int *table = batch + batch[batch[at_table] + row];
    struct span seen[ROWS], all;
    EACH_ROW(r)
    {
        seen[r] = seen_of(batch, row + min((int)r, n_rows - 1), window, ahead);
        all.first = r == 0 ? seen[r].first : min(all.first, seen[r].first);
        all.last = r == 0 ? seen[r].last : max(all.last, seen[r].last);
    }
#if SPLIT
    const uint n_splits = get_num_groups(1);
    const int split = all.first / ATTENTION_SPLIT + get_group_id(1), split_end = split + 1;
    if (split > all.last / ATTENTION_SPLIT) {
        return;
    }
#else
    int split = all.first / ATTENTION_SPLIT;
    const int split_end = all.last / ATTENTION_SPLIT + 1;
#endif
    for (uint i = lane; i < QUERIES * Q_WIDTH; i += LANES) {
        const uint h = i / Q_WIDTH % HEADS, j = i % Q_WIDTH;
        const size_t at = row + min((int)(i / (HEADS * Q_WIDTH)), n_rows - 1);
        query[i] = h < n_own && j < D ? q[at * q_stride + (size_t)(first_head + h) * D + j] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    struct part parts[QUERIES];
#if !SPLIT
    __local struct part sums[QUERIES][LANES]; /* each lane has its own, in local memory to save registers */
    for (; split < split_end; split++)
#endif
    {
        EACH_QUERY(h)
        {
            parts[h].max = -INFINITY;
            parts[h].sum = 0.0f;
            EACH_VALUE(c) { parts[h].values[c] = 0.0f; }
        }
        const int from = max(all.first, split * ATTENTION_SPLIT);
        const int to = min(all.last, split * ATTENTION_SPLIT + ATTENTION_SPLIT - 1);
        for (int p = from / KV_SLOTS; p <= to / KV_SLOTS; p++) {
#ifdef CHOSEN
            const size_t at = 0;
            const int of = (int)chosen[(size_t)row * chosen_stride + min(p * KV_SLOTS + (int)lane, seen[0].last)];
            places[lane] = (size_t)table[of / KV_SLOTS] * KEY_PART + of % KV_SLOTS * 8;
            barrier(CLK_LOCAL_MEM_FENCE);
#else
            const size_t at = (size_t)table[p] * n_kv_heads + kv_head;
#endif
            add_page(keys + at * KEY_PART, values + at * VALUE_PART, query, weights, lane, p * KV_SLOTS, seen, scale,
                     cap, sinks + first_head * PER_HEAD, n_own, parts, places);
#ifdef CHOSEN
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
        }
#if !SPLIT
        EACH_QUERY(h)
        {
            const int begin = seen[h / HEADS].first / ATTENTION_SPLIT, end = seen[h / HEADS].last / ATTENTION_SPLIT;
            if (split > begin && split <= end) {
                struct part before = sums[h][lane];
                join(&before, &parts[h]);
                parts[h] = before;
            }
            if (split >= begin && split <= end) {
                sums[h][lane] = parts[h];
            }
        }
#endif
    }
    EACH_QUERY(h)
    {
        const uint r = h / HEADS, head = first_head + h % HEADS;
        if (r < n_rows && h % HEADS < n_own) {
#if SPLIT
            __global float *to = out + (((size_t)row * n_heads + head) * n_splits + get_group_id(1)) * (DV + 2);
            EACH_VALUE(c)
            {
                const uint j = component(lane, c);
                if (j < DV) {
                    to[j] = parts[h].values[c];
                }
            }
            if (lane == 0) {
                to[DV] = parts[h].max;
                to[DV + 1] = parts[h].sum;
            }
#else
            struct part p = sums[h][lane];
            p.sum += SINK(head, p.max);
            finish(&p, lane, out + (size_t)(row + r) * out_stride + (size_t)head * DV);
#endif
        }
    }
}

/* A work-group computes a query head of a row. n_splits: of partial. Codes require that DV is a multiple of 32. */
__kernel GROUP(LANES, 1) void merge(__global const int *restrict batch, __global const float *restrict partial,
                                    uint n_heads, int window, int ahead, __global const float *restrict sinks,
                                    int has_sinks, __global float *restrict out, uint out_stride, int flags,
                                    __global int *restrict codes, uint codes_blocks)
{
    __local float values[N * LANES];
    __local float room[LANES];
    __local int rooms[LANES];
    const uint lane = get_local_id(0), h = get_group_id(0), row = get_group_id(2);
    const struct span seen = seen_of(batch, row, window, ahead);
    const int n_splits = batch[BATCH_SPLITS], n = seen.last / ATTENTION_SPLIT - seen.first / ATTENTION_SPLIT + 1;
    __global const float *from = partial + ((size_t)row * n_heads + h) * n_splits * (DV + 2);
    struct part all;
    for (int s = 0; s < n; s++, from += DV + 2) {
        struct part next;
        next.max = from[DV];
        next.sum = from[DV + 1];
        EACH_VALUE(c)
        {
            const uint j = component(lane, c);
            next.values[c] = j < DV ? from[j] : 0.0f;
        }
        if (s == 0) {
            all = next;
        } else {
            join(&all, &next);
        }
    }
    all.sum += SINK(h, all.max);
    if ((flags & FLAG_FLOATS) != 0) {
        finish(&all, lane, out + (size_t)row * out_stride + (size_t)h * DV);
    }
    EACH_VALUE(c) { values[component(lane, c)] = all.values[c] / all.sum; }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint begin = 0; begin < DV; begin += 4 * LANES) {
        const uint j = begin + 4 * lane;
        const float4 v = j < DV ? vload4(0, values + j) : (float4)0.0f;
        act_store(v, j < DV, flags, lane, room, rooms, codes, row, codes_blocks, (h * DV + j) / 32);
    }
}
