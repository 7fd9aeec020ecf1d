/* `infcgi convert` as its user meets it: the golden models in every type, a SafeTensors folder whose rows must be
 * turned, importance matrices, and what is refused. */
#include "engine/backend/backend.h"
#include "engine/convert/convert_factors.h"
#include "engine/convert/convert_write.h"
#include "engine/convert/imatrix.h"
#include "engine/format/gguf.h"
#include "engine/format/gguf_build.h"
#include "engine/format/gguf_write.h"
#include "engine/model/model.h"
#include "engine/quant/quant.h"
#include "engine/quant/row_factored.h"
#include "engine/quant/row_mapped.h"
#include "fcgi/tables.h"
#include "tests/support/folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *convert_suite(void);

enum { N_PROMPT = 33, MAX_VOCAB = 1024 };

static const char golden[] = "tests/golden/models/llama-gqa-tied.gguf";

static char hf[64], target[64], matrix[64], out_path[64], err_path[64];
static char out[8192], errors[4096];

static void setup(void)
{
    snprintf(hf, sizeof hf, "%s", folder_file("model.hf"));
    snprintf(target, sizeof target, "%s", folder_file("new.gguf"));
    snprintf(matrix, sizeof matrix, "%s", folder_file("imatrix"));
    snprintf(out_path, sizeof out_path, "%s", folder_file("out"));
    snprintf(err_path, sizeof err_path, "%s", folder_file("err"));
}

static void teardown(void)
{
    static const char *const names[] = {"new.gguf",
                                        "imatrix",
                                        "out",
                                        "err",
                                        "model.hf/config.json",
                                        "model.hf/model.safetensors",
                                        "model.hf/tokenizer.json"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        unlink(folder_file(names[i]));
    }
    rmdir(hf);
    ck_assert_int_eq(folder_n_files(), 0); /* no .tmp is left */
    folder_remove();
}

/* Runs `convert` with the arguments up to NULL. */
static int run(const char *const *args)
{
    static char name[] = "convert";
    char *argv[12] = {name};
    int argc = 1;
    for (; args[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)args[argc - 1];
    }
    ck_assert_ptr_nonnull(freopen(out_path, "wb", stdout));
    ck_assert_ptr_nonnull(freopen(err_path, "wb", stderr));
    const struct program program = tables_all();
    int rc = cmd_run(&program, CONF_CONVERT, argc, argv);
    fflush(stdout);
    fflush(stderr);
    folder_read(out_path, out, sizeof out);
    folder_read(err_path, errors, sizeof errors);
    return rc;
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

static struct gguf *open_model(const char *path)
{
    struct gguf *g = NULL;
    struct err_info info = {0};
    enum err err = model_open(path, &g, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", path, info.text);
    return g;
}

static uint64_t u64_of(const struct gguf *g, const char *key)
{
    uint64_t v = 0;
    struct err_info info = {0};
    ck_assert_msg(gguf_get_u64(g, key, &v, &info) == ERR_OK, "%s", info.text);
    return v;
}

static double f64_of(const struct gguf *g, const char *key)
{
    double v = 0;
    struct err_info info = {0};
    ck_assert_msg(gguf_get_f64(g, key, &v, &info) == ERR_OK, "%s", info.text);
    return v;
}

/* Logits after the last token of a prompt, on ref. */
static int logits_of(const char *path, float *logits)
{
    static const int32_t pages[] = {0, 1, 2, 3};
    const int32_t *tables[] = {pages};
    int32_t tokens[N_PROMPT], pos[N_PROMPT], seq[N_PROMPT] = {0}, last[] = {N_PROMPT - 1};
    struct backend_row_stats stats;
    struct plan *plan;
    struct backend_model *m;
    struct err_info info = {0};
    struct gguf *g = open_model(path);
    ck_assert_msg(model_build(g, 0, &plan, &info) == ERR_OK, "%s", info.text);
    struct backend_config cfg = {.n_threads = 1, .n_pages = 4, .max_rows = N_PROMPT, .max_logits = 1};
    ck_assert_msg(backend_ref.open(plan, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    for (int i = 0; i < N_PROMPT; i++) {
        tokens[i] = (i * 31 + 7) % 250;
        pos[i] = i;
    }
    int n = (int)plan->n_vocab;
    ck_assert_int_le(n, MAX_VOCAB);
    struct backend_batch b = {.n_rows = N_PROMPT,
                              .tokens = tokens,
                              .pos = pos,
                              .seq = seq,
                              .n_seqs = 1,
                              .page_tables = tables,
                              .n_logits = 1,
                              .logit_rows = last,
                              .logits = logits,
                              .stats = &stats};
    ck_assert_msg(backend_compute(&backend_ref, m, &b, &info) == ERR_OK, "%s", info.text);
    backend_ref.close(&m);
    plan_free(&plan);
    gguf_close(&g);
    return n;
}

/* The largest difference of logits, as a share of their spread. */
static double distance(const char *a, const char *b)
{
    static float x[MAX_VOCAB], y[MAX_VOCAB];
    int n = logits_of(a, x);
    ck_assert_int_eq(logits_of(b, y), n);
    double mean = 0, var = 0, most = 0;
    for (int i = 0; i < n; i++) {
        mean += (double)x[i] / n;
    }
    for (int i = 0; i < n; i++) {
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
    }
    return most / sqrt(var);
}

static void check_same_tensors(const struct gguf *a, const struct gguf *b)
{
    ck_assert_uint_eq(gguf_n_tensors(a), gguf_n_tensors(b));
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(a, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        const struct gguf_tensor *u = gguf_find_tensor(b, name);
        ck_assert_msg(u != NULL, "%s is missing", name);
        ck_assert_msg(t->type == u->type && memcmp(t->dims, u->dims, sizeof t->dims) == 0,
                      "%s has another type or shape", name);
        ck_assert_msg(memcmp(t->data, u->data, (size_t)t->bytes) == 0, "%s has other data", name);
    }
}

static void save_matrix(const struct buf *bytes) { ck_assert(gguf_writer_save(bytes, matrix)); }

/* --- GGUF to GGUF ------------------------------------------------------------------------------------------------- */

START_TEST(a_copy_is_the_same_model)
{
    ck_assert_int_eq(RUN(golden, target), CMD_OK);
    ck_assert_str_eq(errors, "");
    ck_assert_ptr_nonnull(strstr(out, "/new.gguf: "));
    struct gguf *a = open_model(golden), *b = open_model(target);
    check_same_tensors(a, b);
    ck_assert_uint_eq(gguf_n_kv(a), gguf_n_kv(b));
    for (size_t i = 0; i < gguf_n_kv(a); i++) {
        const struct gguf_kv *x = gguf_kv_at(a, i), *y = gguf_kv_at(b, i);
        ck_assert(x->key.len == y->key.len && memcmp(x->key.data, y->key.data, x->key.len) == 0);
        ck_assert_uint_eq(gguf_value_bytes(x), gguf_value_bytes(y));
        ck_assert_int_eq(memcmp(x->data, y->data, (size_t)gguf_value_bytes(x)), 0);
    }
    gguf_close(&a);
    gguf_close(&b);
}
END_TEST

/* Weights with factors in tensors of their own, from files and folders, one matrix or several. */
START_TEST(a_copy_keeps_the_types_that_files_share)
{
    static const struct {
        const char *model;
        enum dtype type;
    } rows[] = {
        {"tests/golden/models/llama-nvfp4.gguf", DTYPE_NVFP4_SCALED},
        {"tests/golden/models/quant-nvfp4.hf", DTYPE_NVFP4_SCALED},
        {"tests/golden/models/quant-nvfp4-experts.hf", DTYPE_NVFP4_SCALED},
        {"tests/golden/models/llama-bits.gguf", DTYPE_Q2_0},
        {"tests/golden/models/llama-bits-128.gguf", DTYPE_Q2_0_128},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(RUN(rows[i].model, target, "--force") == CMD_OK, "%s: %s", rows[i].model, errors);
        struct gguf *g = open_model(target);
        ck_assert_int_eq(gguf_find_tensor(g, "blk.0.attn_q.weight")->type, rows[i].type);
        gguf_close(&g);
        double off = distance(rows[i].model, target);
        ck_assert_msg(off <= 1e-5, "%s: %g", rows[i].model, off);
    }
}
END_TEST

START_TEST(factors_that_differ_in_a_matrix_are_refused)
{
    static const float factors[] = {0.5f, 2};
    static const unsigned char rows[4 * 36];
    struct gguf_build b;
    struct gguf_tensor t = {.n_dims = 2};
    struct gguf *g, *split;
    struct err_info info = {0};
    gguf_build_init(&b);
    const struct row_source *plain = row_mapped_new(&b.arena, DTYPE_NVFP4, rows, 4, 64);
    gguf_build_rows(&b, &t, row_factored_new(&b.arena, plain, factors, 2), 1);
    gguf_build_tensor(&b, "x.weight", &t);
    ck_assert_int_eq(gguf_build_finish(&b, NULL, &g, &info), ERR_OK);
    ck_assert_int_eq(convert_factors_split(g, &split, &info), ERR_UNSUPPORTED_TYPE);
    ck_assert_ptr_nonnull(strstr(info.text, "tensor 'x.weight': expected one factor per matrix to copy NVFP4"));
    gguf_close(&g);
}
END_TEST

static const struct {
    const char *type;
    uint64_t file_type;
    double logits;  /* most that logits of the tiny model are off, as a share of their spread */
    double weights; /* most that is lost of a matrix: root of the mean square, as a share of the values' */
} kinds[] = {
    {"f32", 0, 1e-9, 1e-9},     {"f16", 1, 2e-3, 1e-3},    {"bf16", 32, 2e-2, 4e-3}, {"q8_0", 7, 4e-2, 1.2e-2},
    {"q6_k", 18, 4e-2, 2.5e-2}, {"q5_k_m", 17, 0.2, 0.06}, {"q5_k", 16, 0.2, 0.06},  {"q5_1", 9, 0.2, 0.06},
    {"q5_0", 8, 0.2, 0.07},     {"q4_k_m", 15, 0.4, 0.11}, {"q4_k", 14, 0.4, 0.11},  {"q4_1", 3, 0.4, 0.12},
    {"q4_0", 2, 0.4, 0.13},
};

START_TEST(every_type_gives_nearly_the_same_logits)
{
    const char *tiny = rig_model(DTYPE_F32);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        ck_assert_int_eq(RUN(tiny, target, "--type", kinds[i].type, "--force"), CMD_OK);
        double off = distance(tiny, target);
        ck_assert_msg(off <= kinds[i].logits, "%s: %g", kinds[i].type, off);
        struct gguf *g = open_model(target);
        ck_assert_uint_eq(u64_of(g, "general.file_type"), kinds[i].file_type);
        ck_assert_uint_eq(u64_of(g, "general.quantization_version"), 2);
        ck_assert_int_eq(gguf_find_tensor(g, "blk.0.attn_norm.weight")->type, DTYPE_F32);
        gguf_close(&g);
    }
    folder_remove();
}
END_TEST

static double loss_of(const struct gguf_tensor *a, const struct gguf_tensor *b)
{
    static float x[8192], y[8192];
    uint64_t n = a->dims[0], a_bytes, b_bytes;
    double lost = 0, all = 1e-30;
    ck_assert(n <= ARRAY_LEN(x) && dtype_row_bytes(a->type, n, &a_bytes) && dtype_row_bytes(b->type, n, &b_bytes));
    for (uint64_t r = 0; r < a->dims[1]; r++) {
        quant_ops(a->type)->dequantize((const char *)a->data + r * a_bytes, (size_t)n, x);
        quant_ops(b->type)->dequantize((const char *)b->data + r * b_bytes, (size_t)n, y);
        for (uint64_t i = 0; i < n; i++) {
            lost += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            all += (double)x[i] * (double)x[i];
        }
    }
    return sqrt(lost / all);
}

/* Models with rows of 256 and more, in nearly every type there is. */
START_TEST(every_type_is_near_the_weights)
{
    static const char *const models[] = {"tests/golden/models/llama-quants.gguf",
                                         "tests/golden/models/llama-quants-few.gguf"};
    for (size_t k = 0; k < ARRAY_LEN(kinds) * ARRAY_LEN(models); k++) {
        const char *model = models[k % ARRAY_LEN(models)];
        size_t i = k / ARRAY_LEN(models), n_of_type = 0;
        ck_assert_msg(RUN(model, target, "--type", kinds[i].type, "--force") == CMD_OK, "%s", errors);
        struct gguf *a = open_model(model), *b = open_model(target);
        for (size_t t = 0; t < gguf_n_tensors(a); t++) {
            const struct gguf_tensor *x = gguf_tensor_at(a, t), *y = gguf_tensor_at(b, t);
            double lost = loss_of(x, y);
            n_of_type += y->type == convert_type_find(kinds[i].type)->type;
            ck_assert_msg(lost <= kinds[i].weights, "%s, %.*s: %g", kinds[i].type, (int)x->name.len, x->name.data,
                          lost);
        }
        ck_assert_uint_gt(n_of_type, 0);
        gguf_close(&a);
        gguf_close(&b);
    }
}
END_TEST

START_TEST(bytes_do_not_depend_on_threads)
{
    static char one[1 << 20], three[1 << 20];
    ck_assert_int_eq(RUN(golden, target, "--type=q4_1", "--threads=1"), CMD_OK);
    struct stat st;
    ck_assert(stat(target, &st) == 0 && st.st_size < (off_t)sizeof one);
    folder_read(target, one, sizeof one);
    ck_assert_int_eq(RUN(golden, target, "--type=q4_1", "-t", "3", "--force"), CMD_OK);
    folder_read(target, three, sizeof three);
    ck_assert_mem_eq(one, three, (size_t)st.st_size);
}
END_TEST

START_TEST(types_follow_name_and_shape)
{
    static const struct {
        const char *type, *name;
        uint64_t dims[4];
        int n_dims;
        bool is_tied;
        enum dtype wanted;
    } rows[] = {
        {"q4_k", "blk.9.ffn_up.weight", {512, 8, 1, 1}, 2, false, DTYPE_Q4_K},
        {"q4_k", "blk.9.ffn_up_exps.weight", {512, 8, 4, 1}, 3, false, DTYPE_Q4_K},
        {"q4_k", "blk.9.ffn_up.weight", {576, 8, 1, 1}, 2, false, DTYPE_Q5_0},
        {"q5_k", "blk.9.ffn_up.weight", {576, 8, 1, 1}, 2, false, DTYPE_Q5_1},
        {"q6_k", "blk.9.ffn_up.weight", {576, 8, 1, 1}, 2, false, DTYPE_Q8_0},
        {"q4_0", "blk.9.ffn_up.weight", {80, 8, 1, 1}, 2, false, DTYPE_F16},
        {"q4_k", "output.weight", {512, 8, 1, 1}, 2, false, DTYPE_Q6_K},
        {"q4_0", "token_embd.weight", {512, 8, 1, 1}, 2, false, DTYPE_Q4_0},
        {"q4_0", "token_embd.weight", {512, 8, 1, 1}, 2, true, DTYPE_Q6_K},
        {"q4_0", "token_embd.weight", {576, 8, 1, 1}, 2, true, DTYPE_Q8_0},
        {"q8_0", "token_embd.weight", {512, 8, 1, 1}, 2, true, DTYPE_Q8_0},
        {"q8_0", "blk.0.ffn_gate_inp.weight", {512, 8, 1, 1}, 2, false, DTYPE_F32},
        {"q8_0", "blk.0.attn_q.bias", {512, 1, 1, 1}, 1, false, DTYPE_F32},
        {"q8_0", "blk.0.ffn_down_exps.bias", {512, 8, 1, 1}, 2, false, DTYPE_BF16},
        {"q4_k_m", "blk.0.attn_v.weight", {512, 8, 1, 1}, 2, false, DTYPE_Q6_K},
        {"q4_k_m", "blk.3.attn_v.weight", {512, 8, 1, 1}, 2, false, DTYPE_Q4_K},
        {"q4_k_m", "blk.15.ffn_down.weight", {512, 8, 1, 1}, 2, false, DTYPE_Q6_K},
        {"q4_k_m", "blk.3.attn_qkv.weight", {512, 8, 1, 1}, 2, false, DTYPE_Q5_K},
        {"copy", "blk.3.attn_v.weight", {512, 8, 1, 1}, 2, false, DTYPE_BF16},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct gguf_tensor t = {
            .name = {rows[i].name, strlen(rows[i].name)}, .type = DTYPE_BF16, .n_dims = rows[i].n_dims};
        struct convert_type_model m = {.is_folder = true, .is_tied = rows[i].is_tied, .n_layers = 16};
        memcpy(t.dims, rows[i].dims, sizeof t.dims);
        enum dtype found = convert_type_of(convert_type_find(rows[i].type), &m, &t);
        ck_assert_msg(found == rows[i].wanted, "%s in %s: %s", rows[i].name, rows[i].type, dtype_info(found)->name);
    }
}
END_TEST

/* --- a folder ----------------------------------------------------------------------------------------------------- */

/* The golden model as Hugging Face would keep it: heads of Q and K with half-split pairs. */
struct hf_name {
    const char *gguf, *hf;
};

static const struct hf_name hf_names[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"blk.%d.attn_norm.weight", "model.layers.%d.input_layernorm.weight"},
    {"blk.%d.ffn_norm.weight", "model.layers.%d.post_attention_layernorm.weight"},
    {"blk.%d.attn_q.weight", "model.layers.%d.self_attn.q_proj.weight"},
    {"blk.%d.attn_k.weight", "model.layers.%d.self_attn.k_proj.weight"},
    {"blk.%d.attn_v.weight", "model.layers.%d.self_attn.v_proj.weight"},
    {"blk.%d.attn_output.weight", "model.layers.%d.self_attn.o_proj.weight"},
    {"blk.%d.ffn_gate.weight", "model.layers.%d.mlp.gate_proj.weight"},
    {"blk.%d.ffn_up.weight", "model.layers.%d.mlp.up_proj.weight"},
    {"blk.%d.ffn_down.weight", "model.layers.%d.mlp.down_proj.weight"},
};

static void put_tensor(const struct gguf_tensor *t, const char *name, uint64_t head_dim, struct buf *header,
                       struct buf *data)
{
    uint64_t row_bytes, from = data->len;
    ck_assert(t->type == DTYPE_F32 || t->type == DTYPE_F16);
    ck_assert(dtype_row_bytes(t->type, t->dims[0], &row_bytes));
    for (uint64_t r = 0; r < t->dims[1]; r++) { /* row h*d + p*d/2 + i here is h*d + 2i + p there */
        uint64_t in = head_dim != 0 ? r % head_dim : 0, half = head_dim / 2;
        uint64_t source = head_dim != 0 ? r - in + in % half * 2 + in / half : r;
        buf_append(data, (const char *)t->data + source * row_bytes, (size_t)row_bytes);
    }
    buf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->len > 1 ? "," : "", name,
               dtype_info(t->type)->name);
    if (t->n_dims == 2) {
        buf_printf(header, "%llu,", (unsigned long long)t->dims[1]);
    }
    buf_printf(header, "%llu],\"data_offsets\":[%llu,%zu]}", (unsigned long long)t->dims[0], (unsigned long long)from,
               data->len);
}

static void put_tensors(const struct gguf *g, int n_layers, uint64_t head_dim, struct buf *header, struct buf *data)
{
    for (size_t i = 0; i < ARRAY_LEN(hf_names); i++) {
        bool is_layer = strchr(hf_names[i].gguf, '%') != NULL;
        bool is_qk = strstr(hf_names[i].gguf, "attn_q.") != NULL || strstr(hf_names[i].gguf, "attn_k.") != NULL;
        for (int layer = 0; layer < (is_layer ? n_layers : 1); layer++) {
            char name[64], there[96];
            const char *percent = strchr(hf_names[i].gguf, '%'), *hf_percent = strchr(hf_names[i].hf, '%');
            if (is_layer) {
                snprintf(name, sizeof name, "%.*s%d%s", (int)(percent - hf_names[i].gguf), hf_names[i].gguf, layer,
                         percent + 2);
                snprintf(there, sizeof there, "%.*s%d%s", (int)(hf_percent - hf_names[i].hf), hf_names[i].hf, layer,
                         hf_percent + 2);
            }
            const struct gguf_tensor *t = gguf_find_tensor(g, is_layer ? name : hf_names[i].gguf);
            ck_assert_msg(t != NULL, "%s", is_layer ? name : hf_names[i].gguf);
            put_tensor(t, is_layer ? there : hf_names[i].hf, is_qk ? head_dim : 0, header, data);
        }
    }
}

static void save(const char *name, const struct buf *bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", hf, name);
    ck_assert(buf_ok(bytes) == ERR_OK && gguf_writer_save(bytes, path));
}

static void write_folder(const struct gguf *g)
{
    struct buf header, data, file;
    uint64_t heads = u64_of(g, "llama.attention.head_count"), embd = u64_of(g, "llama.embedding_length");
    const struct gguf_tensor *q = gguf_find_tensor(g, "blk.0.attn_q.weight");
    buf_init(&header, 0, MEM_GENERAL);
    buf_init(&data, 0, MEM_GENERAL);
    buf_init(&file, 0, MEM_GENERAL);
    ck_assert_int_eq(mkdir(hf, 0700), 0);
    buf_printf(&file,
               "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":%llu,\"num_hidden_layers\":%llu,"
               "\"num_attention_heads\":%llu,\"num_key_value_heads\":%llu,\"head_dim\":%llu,\"intermediate_size\":%llu,"
               "\"max_position_embeddings\":%llu,\"rms_norm_eps\":%.9g,\"rope_theta\":%.9g,"
               "\"tie_word_embeddings\":true}",
               (unsigned long long)embd, (unsigned long long)u64_of(g, "llama.block_count"), (unsigned long long)heads,
               (unsigned long long)u64_of(g, "llama.attention.head_count_kv"), (unsigned long long)(q->dims[1] / heads),
               (unsigned long long)u64_of(g, "llama.feed_forward_length"),
               (unsigned long long)u64_of(g, "llama.context_length"),
               f64_of(g, "llama.attention.layer_norm_rms_epsilon"), f64_of(g, "llama.rope.freq_base"));
    save("config.json", &file);
    buf_putc(&header, '{');
    put_tensors(g, (int)u64_of(g, "llama.block_count"), q->dims[1] / heads, &header, &data);
    buf_putc(&header, '}');
    while (header.len % 8 != 0) {
        buf_putc(&header, ' ');
    }
    buf_reset(&file);
    gguf_writer_append_u64(&file, header.len);
    buf_append(&file, header.data, header.len);
    buf_append(&file, data.data, data.len);
    save("model.safetensors", &file);
    buf_fini(&header);
    buf_fini(&data);
    buf_fini(&file);
}

START_TEST(a_folder_becomes_the_file_that_readers_expect)
{
    struct gguf *g = open_model(golden);
    write_folder(g);
    struct gguf *folder_model = open_model(hf);
    const char *qk = "blk.1.attn_k.weight";
    ck_assert(memcmp(gguf_find_tensor(g, qk)->data, gguf_find_tensor(folder_model, qk)->data,
                     gguf_find_tensor(g, qk)->bytes) != 0); /* or nothing would be shown */
    gguf_close(&folder_model);
    ck_assert_int_eq(RUN(hf, target), CMD_OK);
    struct gguf *made = open_model(target);
    check_same_tensors(g, made);
    ck_assert_ptr_null(gguf_find(made, "infcgi.rope_is_neox"));
    ck_assert_uint_eq(u64_of(made, "llama.vocab_size"), gguf_find_tensor(g, "token_embd.weight")->dims[1]);
    struct gguf_str name;
    struct err_info info = {0};
    ck_assert_int_eq(gguf_get_str(made, "general.name", &name, &info), ERR_OK);
    ck_assert(name.len == 8 && memcmp(name.data, "model.hf", 8) == 0);
    gguf_close(&made);
    ck_assert(distance(golden, target) == 0);
    ck_assert_int_eq(RUN(hf, target, "--type", "q8_0", "--force"), CMD_OK); /* turned and quantised */
    struct gguf *q = open_model(target);
    ck_assert(loss_of(gguf_find_tensor(g, qk), gguf_find_tensor(q, qk)) < 1.2e-2);
    gguf_close(&q);
    gguf_close(&g);
}
END_TEST

/* DeepSeek: one tensor of folders is two of GGUF files, the first transposed by head. */
START_TEST(keys_and_values_of_a_latent_are_split)
{
    enum { LATENT = 40, HEADS = 3, NOPE = 8, VALUE = 5, ROWS = HEADS * (NOPE + VALUE) };
    static float both[ROWS][LATENT];
    static const char *const types[] = {"copy", "f16"};
    struct gguf_writer w;
    struct buf bytes;
    for (int i = 0; i < ROWS * LATENT; i++) {
        both[i / LATENT][i % LATENT] = (float)(i - 700); /* halves hold them */
    }
    gguf_writer_init(&w);
    buf_init(&bytes, 0, MEM_GENERAL);
    gguf_writer_str(&w, "general.architecture", "deepseek2");
    gguf_writer_u32(&w, "deepseek2.attention.head_count_kv", HEADS);
    gguf_writer_u32(&w, "deepseek2.attention.key_length_mla", NOPE + 4);
    gguf_writer_u32(&w, "deepseek2.attention.value_length_mla", VALUE);
    gguf_writer_u32(&w, "deepseek2.rope.dimension_count", 4);
    gguf_writer_tensor(&w, "blk.0.attn_kv_b.weight", DTYPE_F32, 2, (uint64_t[]){LATENT, ROWS}, both);
    gguf_writer_finish(&w, &bytes);
    save_matrix(&bytes);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        ck_assert_msg(RUN(matrix, target, "--type", types[i], "--force") == CMD_OK, "%s", errors);
        struct gguf *g = open_model(target);
        const struct gguf_tensor *k = gguf_find_tensor(g, "blk.0.attn_k_b.weight");
        const struct gguf_tensor *v = gguf_find_tensor(g, "blk.0.attn_v_b.weight");
        ck_assert(gguf_n_tensors(g) == 2 && k != NULL && v != NULL && k->n_dims == 3 && v->n_dims == 3);
        ck_assert(k->dims[0] == NOPE && k->dims[1] == LATENT && k->dims[2] == HEADS);
        ck_assert(v->dims[0] == LATENT && v->dims[1] == VALUE && v->dims[2] == HEADS);
        float row[LATENT];
        for (int r = 0; r < HEADS * LATENT; r++) {
            quant_ops(k->type)->dequantize((const char *)k->data + (size_t)r * (k->bytes / (HEADS * LATENT)), NOPE,
                                           row);
            for (int c = 0; c < NOPE; c++) {
                ck_assert(row[c] == both[r / LATENT * (NOPE + VALUE) + c][r % LATENT]);
            }
        }
        for (int r = 0; r < HEADS * VALUE; r++) {
            quant_ops(v->type)->dequantize((const char *)v->data + (size_t)r * (v->bytes / (HEADS * VALUE)), LATENT,
                                           row);
            ck_assert_mem_eq(row, both[r / VALUE * (NOPE + VALUE) + NOPE + r % VALUE], sizeof row);
        }
        ck_assert_uint_eq(u64_of(g, "deepseek2.attention.head_count_kv"), 1);
        ck_assert_uint_eq(u64_of(g, "deepseek2.attention.key_length"), LATENT + 4);
        ck_assert_uint_eq(u64_of(g, "deepseek2.attention.value_length"), LATENT);
        gguf_close(&g);
    }
    buf_fini(&bytes);
    gguf_writer_fini(&w);
}
END_TEST

/* --- golden folders ----------------------------------------------------------------------------------------------- */

/* A golden folder as model.hf, with `from` in its config.json replaced by `to`. */
static void write_variant(const char *golden_folder, const char *from, const char *to)
{
    static char config[1 << 14], weights[1 << 20];
    char path[128];
    struct buf file;
    struct stat st;
    snprintf(path, sizeof path, "%s/config.json", golden_folder);
    folder_read(path, config, sizeof config);
    const char *at = strstr(config, from);
    ck_assert_msg(at != NULL, "%s: no %s", path, from);
    mkdir(hf, 0700);
    buf_init(&file, 0, MEM_GENERAL);
    buf_printf(&file, "%.*s%s%s", (int)(at - config), config, to, at + strlen(from));
    save("config.json", &file);
    snprintf(path, sizeof path, "%s/model.safetensors", golden_folder);
    ck_assert(stat(path, &st) == 0 && st.st_size < (off_t)sizeof weights);
    folder_read(path, weights, sizeof weights);
    buf_reset(&file);
    buf_append(&file, weights, (size_t)st.st_size);
    save("model.safetensors", &file);
    buf_fini(&file);
}

/* DeepSeek with RoPE on halves: its heads' last rows, and those of the key that all heads share, are turned. */
START_TEST(a_latent_with_halves_is_turned)
{
    static const struct {
        const char *folder, *from, *to;
    } rows[] = {
        {"tests/golden/models/deepseek2-v3.hf", "\"rope_interleave\": true", "\"rope_interleave\": false"},
        {"tests/golden/models/deepseek2-v2-lite.hf", "{", "{\"rope_interleave\": false, "},
    };
    static const char *const types[] = {"copy", "f32"};
    for (size_t i = 0; i < ARRAY_LEN(rows) * ARRAY_LEN(types); i++) {
        const char *folder = rows[i / 2].folder;
        write_variant(folder, rows[i / 2].from, rows[i / 2].to);
        ck_assert_msg(RUN(hf, target, "--type", types[i % 2], "--force") == CMD_OK, "%s", errors);
        ck_assert(distance(folder, hf) > 0.01); /* or nothing would be shown */
        double off = distance(hf, target);
        ck_assert_msg(off < 1e-5, "%s: %g", folder, off);
    }
}
END_TEST

/* llama.cpp knows no such type: it would not load. */
START_TEST(dynamic_rope_becomes_plain)
{
    write_variant("tests/golden/models/llama-biases.hf", "\"rope_type\": \"default\"",
                  "\"rope_type\": \"dynamic\", \"factor\": 4.0");
    ck_assert_int_eq(RUN(hf, target), CMD_OK);
    ck_assert_msg(strstr(errors, "note: GGUF has no RoPE of type dynamic") != NULL, "%s", errors);
    struct gguf *g = open_model(target);
    ck_assert_ptr_null(gguf_find(g, "llama.rope.scaling.type"));
    ck_assert_ptr_null(gguf_find(g, "llama.rope.scaling.factor"));
    gguf_close(&g);
    ck_assert(distance(hf, target) == 0);
}
END_TEST

/* Other readers of the file would split texts by another pattern. */
START_TEST(a_pattern_without_a_name_is_told)
{
    static const char tokenizer[] =
        "{\"added_tokens\":[],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
    static const char qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
                                "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+";
    const char *const patterns[] = {"[a-m]|[n-z]", qwen2};
    write_variant("tests/golden/models/llama-biases.hf", "{", "{");
    for (int is_known = 0; is_known < 2; is_known++) {
        struct buf file;
        buf_init(&file, 0, MEM_GENERAL);
        buf_printf(&file, tokenizer, patterns[is_known]);
        save("tokenizer.json", &file);
        buf_fini(&file);
        ck_assert_msg(RUN(hf, target, "--force") == CMD_OK, "%s", errors);
        ck_assert_msg((strstr(errors, "by a pattern that has no name in GGUF") == NULL) == is_known, "%s", errors);
        struct gguf *g = open_model(target);
        ck_assert((gguf_find(g, "tokenizer.ggml.pre") != NULL) == is_known);
        gguf_close(&g);
    }
}
END_TEST

/* --- importance --------------------------------------------------------------------------------------------------- */

/* An importance matrix of one tensor with n values, of which every eighth counts. */
static void write_matrix(const char *tensor, int32_t n, bool is_dat, float first)
{
    static float values[4096];
    struct buf bytes;
    ck_assert_int_le(n, (int)ARRAY_LEN(values));
    for (int32_t i = 0; i < n; i++) {
        values[i] = i == 0 ? first : i % 8 == 0 ? 100.0f : 0.01f;
    }
    buf_init(&bytes, 0, MEM_GENERAL);
    if (is_dat) {
        gguf_writer_append_u32(&bytes, 1);
        gguf_writer_append_u32(&bytes, (uint32_t)strlen(tensor));
        buf_puts(&bytes, tensor);
        gguf_writer_append_u32(&bytes, 5); /* calls */
        gguf_writer_append_u32(&bytes, (uint32_t)n);
        buf_append(&bytes, values, (size_t)n * sizeof *values);
    } else {
        struct gguf_writer w;
        char name[64];
        float count = 5;
        gguf_writer_init(&w);
        gguf_writer_str(&w, "general.type", "imatrix");
        snprintf(name, sizeof name, "%s.in_sum2", tensor);
        gguf_writer_tensor(&w, name, DTYPE_F32, 2, (uint64_t[]){(uint64_t)n, 1}, values);
        snprintf(name, sizeof name, "%s.counts", tensor);
        gguf_writer_tensor(&w, name, DTYPE_F32, 2, (uint64_t[]){1, 1}, &count);
        gguf_writer_finish(&w, &bytes);
        gguf_writer_fini(&w);
    }
    save_matrix(&bytes);
    buf_fini(&bytes);
}

START_TEST(importance_is_read_in_both_forms_and_used)
{
    static char forms[2][1 << 20];
    struct gguf *g = open_model(golden);
    const char *name = "blk.0.ffn_gate.weight";
    int32_t n = (int32_t)gguf_find_tensor(g, name)->dims[0];
    gguf_close(&g);
    for (int is_dat = 0; is_dat < 2; is_dat++) {
        write_matrix(name, n, is_dat, 100.0f);
        ck_assert_msg(RUN(golden, target, "--type", "q4_0", "--imatrix", matrix, "--force") == CMD_OK, "%s", errors);
        ck_assert_msg(strstr(errors, "1 entries, used for 1 tensors") != NULL, "%s", errors);
        g = open_model(target);
        memcpy(forms[is_dat], gguf_find_tensor(g, name)->data, gguf_find_tensor(g, name)->bytes);
        ck_assert_uint_eq(u64_of(g, "quantize.imatrix.entries_count"), 1);
        gguf_close(&g);
    }
    ck_assert_int_eq(RUN(golden, target, "--type", "q4_0", "--force"), CMD_OK);
    g = open_model(target);
    size_t bytes = (size_t)gguf_find_tensor(g, name)->bytes;
    ck_assert_mem_eq(forms[0], forms[1], bytes);
    ck_assert_mem_ne(forms[0], gguf_find_tensor(g, name)->data, bytes);
    gguf_close(&g);
}
END_TEST

START_TEST(wrong_importance_is_refused)
{
    struct gguf *g = open_model(golden);
    int32_t n = (int32_t)gguf_find_tensor(g, "blk.0.ffn_gate.weight")->dims[0];
    gguf_close(&g);
    static const struct {
        const char *tensor;
        int more;
        float first;
        const char *hint;
    } rows[] = {{"blk.0.ffn_gate.weight", 32, 1, NULL},
                {"blk.0.ffn_gate.weight", 0, -1, "found -1 at 0"},
                {"blk.0.ffn_gate.weight", 0, NAN, "found nan at 0"},
                {"blk.0.other.weight", 0, 1, "no common tensor"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int is_dat = 0; is_dat < 2; is_dat++) {
            char hint[64];
            snprintf(hint, sizeof hint, "expected %d values", n);
            write_matrix(rows[i].tensor, n + rows[i].more, is_dat, rows[i].first);
            ck_assert_int_eq(RUN(golden, target, "--type", "q4_0", "--imatrix", matrix), CMD_BAD_DATA);
            ck_assert_msg(strstr(errors, rows[i].hint != NULL ? rows[i].hint : hint) != NULL, "%s", errors);
            ck_assert(!io_exists(target));
        }
    }
    char whole[1 << 14];
    struct stat st;
    write_matrix("blk.0.ffn_gate.weight", n, true, 1);
    ck_assert_int_eq(stat(matrix, &st), 0);
    folder_read(matrix, whole, sizeof whole);
    for (off_t cut = 0; cut < st.st_size; cut += cut < 60 ? 1 : 37) { /* .dat ends too early, wherever */
        struct imatrix *m;
        struct err_info info = {0};
        struct buf part = {.data = whole, .len = (size_t)cut};
        save_matrix(&part);
        ck_assert_int_eq(imatrix_open(matrix, &m, &info), ERR_BAD_HEADER);
    }
    ck_assert_int_eq(RUN(golden, target, "--type", "q4_0", "--imatrix", golden), CMD_BAD_DATA); /* a model */
    ck_assert_msg(strstr(errors, "without tensors NAME.in_sum2") != NULL, "%s", errors);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------------------------- */

START_TEST(bad_weights_are_named)
{
    struct gguf_writer w;
    struct buf bytes;
    float values[64] = {1, 2, 3};
    static const struct {
        float bad;
        const char *type;
    } rows[] = {{NAN, "q8_0"}, {INFINITY, "bf16"}, {1e6f, "f16"}, {1e6f, "q4_0"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        values[40] = rows[i].bad;
        gguf_writer_init(&w);
        buf_init(&bytes, 0, MEM_GENERAL);
        gguf_writer_str(&w, "general.architecture", "anything");
        gguf_writer_tensor(&w, "blk.0.w.weight", DTYPE_F32, 2, (uint64_t[]){32, 2}, values);
        gguf_writer_finish(&w, &bytes);
        save_matrix(&bytes);
        ck_assert_int_eq(RUN(matrix, target, "--type", rows[i].type), CMD_BAD_DATA);
        ck_assert_msg(strstr(errors, ": numerical_error: tensor 'blk.0.w.weight', row 1: ") != NULL, "%s", errors);
        ck_assert(!io_exists(target));
        buf_fini(&bytes);
        gguf_writer_fini(&w);
    }
}
END_TEST

START_TEST(targets_are_kept_and_disks_fill)
{
    ck_assert_int_eq(RUN(golden, target), CMD_OK);
    ck_assert_int_eq(RUN(golden, target), CMD_BAD_OUTPUT);
    ck_assert_msg(strstr(errors, "found a file of that name") != NULL, "%s", errors);
    ck_assert_int_eq(RUN(golden, target, "--force"), CMD_OK);
    ck_assert_int_eq(RUN(golden, folder_path(), "--force"), CMD_BAD_OUTPUT);
    ck_assert_int_eq(RUN("/no/such/model", target, "--force"), CMD_BAD_DATA);
    unlink(target);
    struct rlimit small = {.rlim_cur = 20000, .rlim_max = RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = RUN(golden, target, "--type", "q8_0");
    small.rlim_cur = RLIM_INFINITY;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    ck_assert_int_eq(rc, CMD_BAD_OUTPUT);
    ck_assert_msg(strstr(errors, ": io_error: ") != NULL, "%s", errors);
    ck_assert(!io_exists(target));
}
END_TEST

static bool stop_at_once(void *arg, double fraction)
{
    (void)arg;
    return fraction < 0.5;
}

START_TEST(a_stopped_conversion_leaves_nothing)
{
    struct convert_options o = {.source = golden,
                                .target = target,
                                .type = convert_type_find("q8_0"),
                                .n_threads = 1,
                                .progress = stop_at_once};
    struct convert_report report;
    struct err_info info = {0};
    ck_assert_int_eq(convert_write(&o, &report, &info), ERR_CANCELLED);
    ck_assert(!io_exists(target));
}
END_TEST

START_TEST(memory_that_is_not_there_is_an_error)
{
    struct convert_options o = {
        .source = golden, .target = target, .type = convert_type_find("q8_0"), .n_threads = 2, .may_replace = true};
    struct convert_report report;
    struct err_info info = {0};
    for (long n = 0;; n++) {
        mem_fail_at(n);
        enum err err = convert_write(&o, &report, &info);
        if (!mem_fault_fired()) {
            ck_assert_int_eq(err, ERR_OK);
            break;
        }
        ck_assert_msg(err == ERR_NOMEM, "allocation %ld: %s", n, err_code(err));
    }
    mem_fail_at(-1);
}
END_TEST

START_TEST(wrong_usage_is_named)
{
    static const struct {
        const char *args[5];
        const char *hint;
    } rows[] = {{{NULL}, "expected --source FILE"},
                {{"a", NULL}, "expected --target FILE"},
                {{"a", "b", "c", NULL}, "unknown option 'c'"},
                {{"a", "b", "--type", "q3", NULL}, "expected one of copy, f32, f16, bf16, q8_0"},
                {{"a", "b", "--type", NULL}, "--type: expected a value, found none"},
                {{"a", "b", "--threads", "-1", NULL}, "integer of 0 to 256, found '-1'"},
                {{"a", "b", "--imatrix", "m", NULL}, "expected a --type"},
                {{"a", "b", "--fast", NULL}, "unknown option '--fast'"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_int_eq(run(rows[i].args), CMD_USAGE);
        ck_assert_msg(strstr(errors, rows[i].hint) != NULL, "%s", errors);
        ck_assert_str_eq(out, "");
    }
    ck_assert_int_eq(RUN("--help"), CMD_OK);
    for (int i = 0; convert_type_at(i) != NULL; i++) {
        ck_assert_msg(strstr(out, convert_type_at(i)->name) != NULL, "--help does not name %s",
                      convert_type_at(i)->name);
    }
    ck_assert_int_eq(RUN("--", "--type", target), CMD_BAD_DATA); /* a file of that name */
}
END_TEST

Suite *convert_suite(void)
{
    Suite *s = suite_create("convert");
    TCase *c = tcase_create("convert");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_copy_is_the_same_model);
    tcase_add_test(c, a_copy_keeps_the_types_that_files_share);
    tcase_add_test(c, factors_that_differ_in_a_matrix_are_refused);
    tcase_add_test(c, every_type_gives_nearly_the_same_logits);
    tcase_add_test(c, every_type_is_near_the_weights);
    tcase_add_test(c, bytes_do_not_depend_on_threads);
    tcase_add_test(c, types_follow_name_and_shape);
    tcase_add_test(c, a_folder_becomes_the_file_that_readers_expect);
    tcase_add_test(c, keys_and_values_of_a_latent_are_split);
    tcase_add_test(c, a_latent_with_halves_is_turned);
    tcase_add_test(c, dynamic_rope_becomes_plain);
    tcase_add_test(c, a_pattern_without_a_name_is_told);
    tcase_add_test(c, importance_is_read_in_both_forms_and_used);
    tcase_add_test(c, wrong_importance_is_refused);
    tcase_add_test(c, bad_weights_are_named);
    tcase_add_test(c, targets_are_kept_and_disks_fill);
    tcase_add_test(c, a_stopped_conversion_leaves_nothing);
    tcase_add_test(c, memory_that_is_not_there_is_an_error);
    tcase_add_test(c, wrong_usage_is_named);
    suite_add_tcase(s, c);
    return s;
}
