/* POST /v1/embeddings over an encoder of the golden models, whose embeddings transformers computed, and over the tiny
 * decoder. */
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "fcgi/api/vectors.h"
#include "fcgi/wire/call.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *embeddings_suite(void);

enum { WIDTH = 48, N_CTX = 128, VOCAB = 288, MAX_WIDTH = 64 };

#define URL     "/v1/embeddings"
#define ENCODER "tests/golden/models/bert-cls.gguf"
#define EXPECT  "tests/golden/models/bert-cls.expect.gguf"

static void setup_encoder(void) { rig_serve_model(ENCODER, NULL); }
static void setup_decoder(void) { rig_serve(false, false); }

static json_t *data_at(size_t i) { return json_array_get(json_object_get(rig_answer, "data"), i); }

/* Vector i of the answer; returns how long it is. */
static size_t numbers_at(size_t i, float *out)
{
    const json_t *v = json_object_get(data_at(i), "embedding");
    size_t n = json_array_size(v);
    ck_assert_msg(json_is_array(v) && n <= MAX_WIDTH, "%.300s", rig_got.body);
    ck_assert_int_eq(json_integer_value(json_object_get(data_at(i), "index")), (json_int_t)i);
    for (size_t k = 0; k < n; k++) {
        out[k] = (float)json_number_value(json_array_get(v, k));
    }
    return n;
}

static double length_of(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    return sqrt(sum);
}

static json_int_t usage(const char *what)
{
    return json_integer_value(json_object_get(json_object_get(rig_answer, "usage"), what));
}

/* The four prompts of a golden set in one request, as token ids, and the vectors that are expected. */
static void check_references(const char *expect, size_t width)
{
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_msg(gguf_open(expect, &g, &info) == ERR_OK, "%s", info.text);
    struct buf body;
    buf_init(&body, 0, MEM_GENERAL);
    buf_puts(&body, "{\"model\":\"tiny\",\"input\":[");
    const float *expected[4];
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "prompt.%d.ids", i);
        const struct gguf_tensor *ids = gguf_find_tensor(g, name);
        snprintf(name, sizeof name, "prompt.%d.embedding", i);
        expected[i] = gguf_find_tensor(g, name)->data;
        for (uint64_t k = 0; k < ids->dims[0]; k++) {
            buf_printf(&body, "%s%d", k == 0 ? i == 0 ? "[" : ",[" : ",", ((const int32_t *)ids->data)[k]);
        }
        buf_putc(&body, ']');
    }
    buf_puts(&body, "]}");
    buf_putc(&body, '\0');
    ck_assert_msg(rig_post(URL, body.data) == 200, "%s", rig_got.body);
    ck_assert_uint_eq(json_array_size(json_object_get(rig_answer, "data")), 4);
    for (size_t i = 0; i < 4; i++) {
        float x[MAX_WIDTH];
        double worst = 0;
        ck_assert_uint_eq(numbers_at(i, x), width);
        for (size_t k = 0; k < width; k++) {
            worst = fmax(worst, fabs((double)x[k] - expected[i][k]));
        }
        ck_assert_msg(worst < 1e-5, "text %zu: off by %g", i, worst);
        ck_assert(fabs(length_of(x, width) - 1) < 1e-6);
    }
    buf_fini(&body);
    gguf_close(&g);
}

START_TEST(an_encoder_gives_the_references_embeddings)
{
    check_references(EXPECT, WIDTH);
    ck_assert_str_eq(json_string_value(json_object_get(rig_answer, "object")), "list");
    ck_assert_str_eq(json_string_value(json_object_get(rig_answer, "model")), "tiny");
    ck_assert_str_eq(json_string_value(json_object_get(data_at(0), "object")), "embedding");
    ck_assert(usage("prompt_tokens") == 1 + 7 + 33 + 70 && usage("total_tokens") == 1 + 7 + 33 + 70);
}
END_TEST

static const unsigned char *from_base64(const char *text, size_t *n)
{
    static unsigned char bytes[MAX_WIDTH * 4 + 3];
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t v = 0;
    int bits = 0;
    ck_assert_uint_eq(strlen(text) % 4, 0);
    for (*n = 0; *text != '\0' && *text != '='; text++) {
        ck_assert(strchr(digits, *text) != NULL && *n < sizeof bytes);
        v = v << 6 | (uint32_t)(strchr(digits, *text) - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            bytes[(*n)++] = (unsigned char)(v >> bits);
        }
    }
    return bytes;
}

START_TEST(formats_and_dimensions_hold_the_same_numbers)
{
    for (int dimensions = 46; dimensions <= WIDTH; dimensions++) { /* with each number of '=' */
        char body[128];
        float x[MAX_WIDTH], all[MAX_WIDTH], y[MAX_WIDTH];
        ck_assert_int_eq(rig_post(URL, "{\"input\":\"some words\",\"encoding_format\":\"float\"}"), 200);
        ck_assert_uint_eq(numbers_at(0, all), WIDTH);
        snprintf(body, sizeof body, "{\"input\":\"some words\",\"dimensions\":%d}", dimensions);
        ck_assert_int_eq(rig_post(URL, body), 200);
        size_t n = numbers_at(0, x), n_bytes;
        ck_assert_uint_eq(n, (size_t)dimensions);
        double part = length_of(all, n);
        for (size_t k = 0; k < n; k++) {
            ck_assert(fabs(x[k] - all[k] / part) < 1e-6);
        }
        snprintf(body, sizeof body, "{\"input\":\"some words\",\"dimensions\":%d,\"encoding_format\":\"base64\"}",
                 dimensions);
        ck_assert_int_eq(rig_post(URL, body), 200);
        const unsigned char *bytes = from_base64(json_string_value(json_object_get(data_at(0), "embedding")), &n_bytes);
        ck_assert_uint_eq(n_bytes, n * 4);
        for (size_t k = 0; k < n; k++) {
            uint32_t v = (uint32_t)bytes[4 * k] | (uint32_t)bytes[4 * k + 1] << 8 | (uint32_t)bytes[4 * k + 2] << 16 |
                         (uint32_t)bytes[4 * k + 3] << 24;
            memcpy(&y[k], &v, sizeof v);
        }
        ck_assert_msg(memcmp(x, y, n * sizeof *x) == 0, "%d numbers: the formats differ", dimensions);
    }
}
END_TEST

/* More texts than the engine takes of a request at a time, and than the queue holds: each as if it were alone. */
START_TEST(many_texts_are_answered_in_order)
{
    enum { N = 300 };
    struct buf body;
    buf_init(&body, 0, MEM_GENERAL);
    buf_puts(&body, "{\"input\":[");
    for (int i = 0; i < N; i++) {
        buf_printf(&body, "%s\"%.*s\"", i == 0 ? "" : ",", 1 + i % 5, i % 2 == 0 ? "abcdef" : "uvwxyz");
    }
    buf_puts(&body, "]}");
    buf_putc(&body, '\0');
    ck_assert_int_eq(rig_post(URL, body.data), 200);
    buf_fini(&body);
    ck_assert_uint_eq(json_array_size(json_object_get(rig_answer, "data")), N);
    static float all[N][MAX_WIDTH];
    for (size_t i = 0; i < N; i++) {
        ck_assert_uint_eq(numbers_at(i, all[i]), WIDTH);
    }
    for (int i = 0; i < 10; i++) {
        char one[64];
        float x[MAX_WIDTH];
        snprintf(one, sizeof one, "{\"input\":\"%.*s\"}", 1 + i % 5, i % 2 == 0 ? "abcdef" : "uvwxyz");
        ck_assert_int_eq(rig_post(URL, one), 200);
        numbers_at(0, x);
        for (int k = i; k < N; k += 10) {
            ck_assert_msg(memcmp(all[k], x, WIDTH * sizeof *x) == 0, "text %d differs from what it gives alone", k);
        }
    }
}
END_TEST

START_TEST(bad_requests)
{
    static const struct {
        const char *fields, *code, *param;
    } cases[] = {
        {"\"model\":\"tiny\"", "missing_required_parameter", "input"},
        {"\"input\":null", "missing_required_parameter", "input"},
        {"\"input\":5", "invalid_type", "input"},
        {"\"input\":{}", "invalid_type", "input.content"},
        {"\"input\":\"\"", "invalid_value", "input"},
        {"\"input\":[]", "invalid_value", "input"},
        {"\"input\":[\"a\",\"\"]", "invalid_value", "input"},
        {"\"input\":[[]]", "invalid_value", "input"},
        {"\"input\":[[1],[]]", "invalid_value", "input"},
        {"\"input\":[\"a\",5.5]", "invalid_type", "input"},
        {"\"input\":[1,[2]]", "invalid_type", "input[1]"},
        {"\"input\":[{\"content\":[{\"type\":\"image_url\"}]}]", "invalid_value", "input.content"},
        {"\"input\":[1,288]", "invalid_value", "input[1]"},
        {"\"input\":[-1]", "invalid_value", "input[0]"},
        {"\"input\":[1.5]", "invalid_type", "input"},
        {"\"input\":\"a\",\"encoding_format\":\"hex\"", "invalid_value", "encoding_format"},
        {"\"input\":\"a\",\"encoding_format\":5", "invalid_type", "encoding_format"},
        {"\"input\":\"a\",\"dimensions\":0", "invalid_value", "dimensions"},
        {"\"input\":\"a\",\"dimensions\":49", "invalid_value", "dimensions"},
        {"\"input\":\"a\",\"dimensions\":\"8\"", "invalid_type", "dimensions"},
        {"\"input\":\"a\",\"normalize\":1", "invalid_type", "normalize"},
        {"\"input\":\"a\",\"embd_normalize\":-2", "invalid_value", "embd_normalize"},
        {"\"input\":\"a\",\"truncate_prompt_tokens\":-2", "invalid_value", "truncate_prompt_tokens"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[160];
        snprintf(body, sizeof body, "{%s}", cases[i].fields);
        rig_refuse(URL, body, 400, cases[i].code, cases[i].param);
    }
    struct buf many;
    buf_init(&many, 0, MEM_GENERAL);
    for (int i = 0; i < 2049; i++) {
        buf_puts(&many, i == 0 ? "{\"input\":[\"a\"" : ",\"a\"");
    }
    buf_puts(&many, "]}");
    buf_putc(&many, '\0');
    rig_refuse(URL, many.data, 400, "invalid_value", "input");
    buf_fini(&many);
    char text[N_CTX + 32];
    snprintf(text, sizeof text, "{\"input\":\"%0*d\"}", N_CTX + 1, 0);
    rig_refuse(URL, text, 400, "context_length_exceeded", "input");
    ck_assert_msg(strstr(rig_got.body, "128") != NULL && strstr(rig_got.body, "129") != NULL, "%s", rig_got.body);
    ck_assert_msg(strstr(rig_got.body, "too large") != NULL, "%s",
                  rig_got.body); /* by which llama-server's clients know it */
    snprintf(text, sizeof text, "{\"input\":\"%0*d\"}", N_CTX, 0);
    ck_assert_int_eq(rig_post(URL, text), 200);
    ck_assert_int_eq(rig_post(URL, "{\"model\":\"other\",\"input\":\"a\"}"), 404);
}
END_TEST

START_TEST(long_texts_are_truncated_where_that_is_asked_for)
{
    char text[N_CTX + 96];
    float whole[MAX_WIDTH], cut[MAX_WIDTH];
    snprintf(text, sizeof text, "{\"input\":\"%0*d\",\"truncate_prompt_tokens\":-1}", N_CTX + 1, 0);
    ck_assert_int_eq(rig_post(URL, text), 200);
    ck_assert_int_eq(usage("prompt_tokens"), N_CTX);
    ck_assert_int_eq(rig_post(URL, "{\"input\":\"010101\",\"truncate_prompt_tokens\":3}"), 200);
    ck_assert_int_eq(usage("prompt_tokens"), 3);
    numbers_at(0, cut);
    ck_assert_int_eq(rig_post(URL, "{\"input\":\"010\",\"truncate_prompt_tokens\":200}"),
                     200); /* the beginning stays */
    numbers_at(0, whole);
    ck_assert(memcmp(cut, whole, WIDTH * sizeof *cut) == 0);
    ck_assert_int_eq(rig_post(URL, "{\"input\":[[5,6,7],[8]],\"truncate_prompt_tokens\":2}"), 200);
    ck_assert_int_eq(usage("prompt_tokens"), 3);
}
END_TEST

START_TEST(the_end_token_stays_when_a_text_is_cut)
{
    struct call c = {.engine = atomic_load(&server_state.engine)};
    int32_t text[] = {1, 2, 3, 4, 99}, ids[] = {1, 2, 3, 4, 99}, *all[] = {text, ids};
    size_t n_ids[] = {5, 5};
    bool has_end[] = {true, false};
    struct prompts p = {.ids = all, .n_ids = n_ids, .has_end = has_end, .n = 2};
    vectors_truncate(&c, &p, 6);
    ck_assert(n_ids[0] == 5 && text[4] == 99);
    vectors_truncate(&c, &p, 3);
    ck_assert(n_ids[0] == 3 && text[0] == 1 && text[1] == 2 && text[2] == 99);
    ck_assert(n_ids[1] == 3 && ids[2] == 3);
    vectors_truncate(&c, &p, 1);
    ck_assert(n_ids[0] == 1 && text[0] == 1);
}
END_TEST

/* Asks for "some words" with more fields. */
static void ask_words(const char *more, float *out)
{
    char body[128];
    snprintf(body, sizeof body, "{\"input\":\"some words\"%s}", more);
    ck_assert_msg(rig_post(URL, body) == 200, "%s", rig_got.body);
    numbers_at(0, out);
}

START_TEST(vectors_have_the_norm_that_is_asked_for)
{
    float unit[MAX_WIDTH], raw[MAX_WIDTH], x[MAX_WIDTH];
    double sum = 0, largest = 0, cubes = 0;
    ask_words("", unit);
    ask_words(",\"normalize\":false", raw);
    double length = length_of(raw, WIDTH);
    ck_assert(fabs(length - 1) > 1e-3);
    for (size_t i = 0; i < WIDTH; i++) {
        ck_assert(fabs(raw[i] / length - unit[i]) < 1e-6);
        sum += fabs((double)raw[i]);
        largest = fmax(largest, fabs((double)raw[i]));
        cubes += pow(fabs((double)raw[i]), 3);
    }
    ask_words(",\"normalize\":true", x);
    ck_assert(memcmp(x, unit, WIDTH * sizeof *x) == 0);
    const struct {
        const char *field;
        double norm;
    } rows[] = {{",\"embd_normalize\":-1", 1},
                {",\"embd_normalize\":0", largest / 32760},
                {",\"embd_normalize\":1", sum},
                {",\"embd_normalize\":2", length},
                {",\"embd_normalize\":3.0", cbrt(cubes)}};
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        ask_words(rows[k].field, x);
        for (size_t i = 0; i < WIDTH; i++) {
            ck_assert_msg(fabs(x[i] - raw[i] / rows[k].norm) <= 1e-4 * fabs(x[i]) + 1e-6, "%s", rows[k].field);
        }
    }
    ask_words(",\"normalize\":false,\"dimensions\":7", x);
    ck_assert(memcmp(x, raw, 7 * sizeof *x) == 0);
}
END_TEST

START_TEST(llama_servers_shape_is_an_array)
{
    ck_assert_int_eq(rig_post("/embedding", "{\"content\":[\"a\",\"b\"]}"), 200);
    ck_assert_uint_eq(json_array_size(rig_answer), 2);
    ck_assert_int_eq(rig_number_at("1.index"), 1);
    ck_assert_uint_eq(json_array_size(rig_at("1.embedding")), 1);
    ck_assert_uint_eq(json_array_size(rig_at("1.embedding.0")), WIDTH);
    ck_assert_int_eq(rig_post("/embeddings", "{\"content\":\"a\"}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("0.embedding.0")), WIDTH);
    ck_assert_int_eq(rig_post("/embeddings", "{\"input\":\"a\"}"), 200);
    ck_assert_uint_eq(json_array_size(data_at(0)) + json_array_size(rig_at("data")), 1);
    ck_assert_int_eq(rig_post(URL, "{\"content\":\"a\"}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("data")), 1);
    rig_refuse("/embedding", "{\"content\":\"\"}", 400, "invalid_value", "content");
}
END_TEST

START_TEST(an_encoder_does_not_generate)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    rig_refuse("/v1/chat/completions", chat, 400, "unsupported_endpoint", "model");
    ck_assert_msg(strstr(rig_got.body, URL) != NULL, "%s", rig_got.body);
    rig_refuse("/v1/completions", "{\"prompt\":\"a\"}", 400, "unsupported_endpoint", "model");
}
END_TEST

/* Serves another engine from now on; returns the one before. */
static struct engine *swap_engine(const struct engine_config *cfg)
{
    struct engine *e;
    struct err_info info = {0};
    ck_assert_msg(engine_open(cfg, &e, &info) == ERR_OK, "%s", info.text);
    return atomic_exchange(&server_state.engine, e);
}

static void swap_back(struct engine *before)
{
    for (int i = 0; i < 500 && fastcgi_n_active() > 0; i++) {
        usleep(10000);
    }
    struct engine *e = atomic_exchange(&server_state.engine, before);
    engine_close(&e);
}

START_TEST(a_queue_shorter_than_the_request_is_waited_for)
{
    struct engine_config cfg = {
        .model_path = ENCODER, .backend = "ref", .n_threads = 1, .max_seqs = 1, .queue_max_requests = 2};
    struct engine *before = swap_engine(&cfg);
    struct buf body;
    buf_init(&body, 0, MEM_GENERAL);
    for (int i = 0; i < 40; i++) {
        buf_puts(&body, i == 0 ? "{\"input\":[[1]" : ",[1]");
    }
    buf_puts(&body, "]}");
    buf_putc(&body, '\0');
    ck_assert_msg(rig_post(URL, body.data) == 200, "%s", rig_got.body);
    ck_assert_uint_eq(json_array_size(json_object_get(rig_answer, "data")), 40);
    buf_fini(&body);
    swap_back(before);
}
END_TEST

START_TEST(a_decoder_embeds_when_told_how)
{
    rig_refuse(URL, "{\"input\":\"a\"}", 400, "unsupported_endpoint", "model");
    ck_assert_msg(strstr(rig_got.body, "--pooling") != NULL, "%s", rig_got.body);
    char path[256];
    snprintf(path, sizeof path, "%s", engine_model(atomic_load(&server_state.engine))->file);
    struct engine_config cfg = {.model_path = path, .backend = "ref", .n_threads = 1, .pooling = "mean"};
    struct engine *before = swap_engine(&cfg);
    ck_assert_int_eq(rig_post(URL, "{\"input\":[\"a\",\"ab\"]}"), 200);
    float x[MAX_WIDTH], y[MAX_WIDTH];
    ck_assert(numbers_at(0, x) == 32 && numbers_at(1, y) == 32);
    ck_assert(memcmp(x, y, sizeof(float) * 32) != 0 && fabs(length_of(x, 32) - 1) < 1e-6);
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}"), 200);
    swap_back(before);
    cfg.pooling = "none"; /* a vector for each token, of which the mean is that of before */
    before = swap_engine(&cfg);
    rig_refuse(URL, "{\"input\":\"ab\"}", 400, "unsupported_endpoint", "model");
    ck_assert_int_eq(rig_post("/embeddings", "{\"input\":[\"a\",\"ab\"]}"), 200);
    const json_t *vectors = rig_at("1.embedding");
    ck_assert_uint_eq(json_array_size(vectors), json_array_size(rig_at("0.embedding")) + 1);
    double mean[32] = {0}, square = 0;
    for (size_t i = 0; i < json_array_size(vectors); i++) {
        ck_assert_uint_eq(json_array_size(json_array_get(vectors, i)), 32);
        for (size_t k = 0; k < 32; k++) {
            mean[k] += json_number_value(json_array_get(json_array_get(vectors, i), k));
        }
    }
    for (size_t k = 0; k < 32; k++) {
        square += mean[k] * mean[k];
    }
    for (size_t k = 0; k < 32; k++) {
        ck_assert(fabs(mean[k] / sqrt(square) - y[k]) < 1e-5);
    }
    ck_assert_int_eq(rig_post("/api/embed", "{\"input\":\"a\"}"), 400);
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}"), 200);
    swap_back(before);
    struct engine *e;
    struct err_info info = {0};
    cfg.pooling = "max";
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "found 'max'") != NULL, "%s", info.text);
}
END_TEST

/* The golden folder with layers after the pooling, and a vocabulary of its size. */
static const char *dense_folder(void)
{
    static const char *const files[] = {
        "models/bert-dense-mean.hf/config.json",  "models/bert-dense-mean.hf/model.safetensors",
        "models/bert-dense-mean.hf/modules.json", "models/bert-dense-mean.hf/1_Pooling",
        "models/bert-dense-mean.hf/2_Dense",      "models/bert-dense-mean.hf/3_Dense",
        "rank/bert-pair.hf/tokenizer.json"};
    char target[4096], link[64], *root = realpath("tests/golden", NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq(mkdir(folder_file("dense"), 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(target, sizeof target, "%s/%s", root, files[i]);
        snprintf(link, sizeof link, "dense%s", strrchr(files[i], '/'));
        ck_assert_int_eq(symlink(target, folder_file(link)), 0);
    }
    free(root);
    return folder_file("dense");
}

START_TEST(layers_after_the_pooling_make_vectors_of_their_width)
{
    enum { DENSE_WIDTH = 44, SHORT = 20 }; /* of a model of 60 */
    float all[MAX_WIDTH], some[MAX_WIDTH];
    struct engine_config cfg = {.model_path = dense_folder(), .backend = "ref", .n_threads = 1};
    struct engine *before = swap_engine(&cfg);
    check_references("tests/golden/models/bert-dense-mean.expect.gguf", DENSE_WIDTH);
    rig_refuse(URL, "{\"input\":\"a\",\"dimensions\":45}", 400, "invalid_value", "dimensions");
    ck_assert_int_eq(rig_post(URL, "{\"input\":\"a\"}"), 200);
    ck_assert_uint_eq(numbers_at(0, all), DENSE_WIDTH);
    ck_assert_int_eq(rig_post(URL, "{\"input\":\"a\",\"dimensions\":20}"), 200);
    ck_assert_uint_eq(numbers_at(0, some), SHORT);
    double part = length_of(all, SHORT);
    for (size_t k = 0; k < SHORT; k++) {
        ck_assert(fabs(some[k] - all[k] / part) < 1e-6);
    }
    swap_back(before);
}
END_TEST

START_TEST(a_batch_must_hold_the_longest_text)
{
    struct engine_config cfg = {.model_path = ENCODER, .backend = "ref", .n_threads = 1, .max_batch_rows = 127};
    struct engine *e;
    struct err_info info = {0};
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_CONFIG);
    ck_assert_msg(strcmp(info.where, "batch-size") == 0 && strstr(info.text, "ctx-size 128") != NULL, "%s", info.text);
    cfg.n_ctx = 127;
    ck_assert_msg(engine_open(&cfg, &e, &info) == ERR_OK, "%s", info.text);
    engine_close(&e);
}
END_TEST

/* A client that leaves: its texts are dropped, their pages and memory are free. */
START_TEST(a_client_that_leaves_costs_nothing)
{
    struct buf body;
    buf_init(&body, 0, MEM_GENERAL);
    for (int i = 0; i < 200; i++) {
        buf_printf(&body, "%s\"%0*d\"", i == 0 ? "{\"input\":[" : ",", N_CTX, 0);
    }
    buf_puts(&body, "]}");
    size_t before = mem_live_of(MEM_REQUEST);
    for (int i = 0; i < 3; i++) {
        close(rig_send("POST", URL, NULL, body.data, body.len));
    }
    struct sched_stats s = {.n_running = 1};
    for (int i = 0; i < 2000 && (s.n_running + s.n_waiting + s.pages_held > 0 || fastcgi_n_active() > 0 ||
                                 mem_live_of(MEM_REQUEST) > before);
         i++) {
        usleep(10000);
        engine_get_stats(atomic_load(&server_state.engine), &s);
    }
    ck_assert(s.n_running == 0 && s.n_waiting == 0 && s.pages_held == 0 && mem_live_of(MEM_REQUEST) <= before);
    buf_fini(&body);
    ck_assert_int_eq(rig_post(URL, "{\"input\":\"a\"}"), 200);
}
END_TEST

Suite *embeddings_suite(void)
{
    Suite *s = suite_create("embeddings");
    TCase *encoder = tcase_create("encoder"), *decoder = tcase_create("decoder"), *limits = tcase_create("limits");
    tcase_set_tags(encoder, "fork");
    tcase_add_checked_fixture(encoder, setup_encoder, rig_unserve);
    tcase_add_test(encoder, an_encoder_gives_the_references_embeddings);
    tcase_add_test(encoder, formats_and_dimensions_hold_the_same_numbers);
    tcase_add_test(encoder, many_texts_are_answered_in_order);
    tcase_add_test(encoder, bad_requests);
    tcase_add_test(encoder, long_texts_are_truncated_where_that_is_asked_for);
    tcase_add_test(encoder, the_end_token_stays_when_a_text_is_cut);
    tcase_add_test(encoder, vectors_have_the_norm_that_is_asked_for);
    tcase_add_test(encoder, llama_servers_shape_is_an_array);
    tcase_add_test(encoder, a_queue_shorter_than_the_request_is_waited_for);
    tcase_add_test(encoder, an_encoder_does_not_generate);
    tcase_add_test(encoder, a_client_that_leaves_costs_nothing);
    tcase_add_test(encoder, layers_after_the_pooling_make_vectors_of_their_width);
    tcase_add_checked_fixture(decoder, setup_decoder, rig_unserve);
    tcase_add_test(decoder, a_decoder_embeds_when_told_how);
    tcase_add_test(limits, a_batch_must_hold_the_longest_text);
    suite_add_tcase(s, encoder);
    suite_add_tcase(s, decoder);
    suite_add_tcase(s, limits);
    return s;
}
