/* The rows of `infcgi bench` against llama-bench's: the same fields in the same order, valid JSON and CSV. */
#include "fcgi/cmd/model/bench_report.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

Suite *bench_report_suite(void);

/* What llama-bench of llama.cpp b11434 prints as the head of its CSV. */
static const char peer_head[] =
    "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,model_n_params,n_batch,"
    "n_ubatch,n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,n_cpu_moe,split_mode,main_gpu,no_kv_"
    "offload,"
    "flash_attn,devices,tensor_split,tensor_buft_overrides,load_mode,lazy_mode,embeddings,no_op_offload,no_host,repack,"
    "fit_target,fit_min_ctx,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts";

static const uint64_t samples_ns[] = {1000000000, 2000000000};
static const struct bench_row prefill = {.n_prompt = 512,
                                         .n_seqs = 1,
                                         .n_batch = 512,
                                         .n_threads = 2,
                                         .matmul_ops = 3e12,
                                         .n_samples = 2,
                                         .samples_ns = samples_ns};
static const struct bench_row decode = {.n_gen = 64,
                                        .n_depth = 16,
                                        .n_seqs = 16,
                                        .n_batch = 256,
                                        .n_threads = 2,
                                        .n_gpu_layers = 17,
                                        .read_bytes = 5e9,
                                        .n_samples = 1,
                                        .samples_ns = samples_ns};

static const struct backend_rates rates = {.launch_s = 20e-6, .queued_launch_s = 3e-6, .copy_bytes_s = 4e9};
static bool is_counted, has_rates;
static const uint64_t *draws; /* NULL: no drafts */

/* Two rows in one format; the caller frees the text. */
static char *print(enum bench_format format, bool has_seqs, bool has_batches)
{
    struct bench_row counted = decode;
    if (is_counted) {
        counted.counts =
            (struct backend_counts){.launches = 64 * 274, .weight_bytes = 640000000, .cache_bytes = 64000000};
    }
    if (draws != NULL) {
        counted.n_draft = 3;
        counted.accept = .75;
        counted.n_drafted = 200;
        counted.accepted = draws;
    }
    char *text = NULL;
    size_t n = 0;
    struct bench_report r = {.format = format,
                             .model_path = "a\"b\\c\n.gguf",
                             .kernels = "avx2",
                             .k_type = "i16",
                             .v_type = "f16",
                             .cpu_info = "A CPU",
                             .model_type = "llama 135M Q4_1",
                             .model_bytes = 96576768,
                             .n_params = 134515008,
                             .rates = has_rates ? &rates : NULL,
                             .has_batches = has_batches,
                             .has_seqs = has_seqs};
    r.out = open_memstream(&text, &n);
    ck_assert_ptr_nonnull(r.out);
    bench_report_head(&r);
    bench_report_row(&r, &prefill);
    bench_report_row(&r, &counted);
    bench_report_foot(&r);
    fclose(r.out);
    return text;
}

START_TEST(csv_has_the_peers_fields)
{
    char *text = print(BENCH_CSV, false, false);
    char *eol = strchr(text, '\n');
    ck_assert_ptr_nonnull(eol);
    *eol = '\0';
    ck_assert_str_eq(text, peer_head);
    ck_assert_ptr_nonnull(strstr(eol + 1, "\"a\"\"b\\c\n.gguf\",\"llama 135M Q4_1\",\"96576768\",\"134515008\""));
    ck_assert_ptr_nonnull(strstr(eol + 1, "\"512\",\"0\",\"0\","));
    ck_assert_ptr_nonnull(strstr(eol + 1, "\"i16\",\"f16\",\"0\",\"0\",\"none\","));
    ck_assert_ptr_nonnull(strstr(eol + 1, "\"i16\",\"f16\",\"17\",\"0\",\"none\","));
    free(text);
    text = print(BENCH_CSV, true, false);
    ck_assert_ptr_nonnull(strstr(text, "stddev_ts,n_seqs\n"));
    ck_assert_ptr_nonnull(strstr(text, "\"1024.000000\",\"0.000000\",\"16\"\n"));
    free(text);
}
END_TEST

/* Three drafts in each of 200 steps. */
START_TEST(drafts_come_true_by_position)
{
    static const uint64_t accepted[] = {151, 113, 80};
    draws = accepted;
    char *text = print(BENCH_MD, true, false);
    ck_assert_ptr_nonnull(strstr(text,
                                 "\ntg64 x 16 @ d16 3 drafts, accept 0.75 drawn: came true by position: 0.755 0.565 "
                                 "0.400\n\nbuild"));
    free(text);
    text = print(BENCH_JSON, true, false);
    json_t *all = json_loads(text, 0, NULL), *row = json_array_get(all, 1);
    json_t *shares = json_object_get(row, "accepted_by_position");
    ck_assert_uint_eq(json_array_size(shares), 3);
    ck_assert_double_eq_tol(json_number_value(json_array_get(shares, 1)), .565, 1e-6);
    ck_assert_uint_eq(json_array_size(json_object_get(row, "samples_ts")), 1);
    ck_assert_ptr_null(json_object_get(json_array_get(all, 0), "accepted_by_position"));
    json_decref(all);
    free(text);
    draws = NULL;
}
END_TEST

START_TEST(json_has_the_peers_fields)
{
    char *text = print(BENCH_JSON, false, false), head[2048] = "";
    json_error_t why;
    json_t *all = json_loads(text, 0, &why);
    ck_assert_msg(all != NULL, "%s", why.text);
    ck_assert_uint_eq(json_array_size(all), 2);
    json_t *row = json_array_get(all, 0), *value;
    const char *key;
    size_t n = 0;
    json_object_foreach(row, key, value)
    {
        n += (size_t)snprintf(head + n, sizeof head - n, "%s%s", n > 0 ? "," : "", key);
    }
    char want[2048];
    snprintf(want, sizeof want, "%s,samples_ns,samples_ts,read_bytes,matmul_ops", peer_head);
    ck_assert_str_eq(head, want);
    ck_assert_str_eq(json_string_value(json_object_get(row, "model_filename")), "a\"b\\c\n.gguf");
    ck_assert(json_is_true(json_object_get(row, "repack")) && json_is_integer(json_object_get(row, "n_batch")));
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "avg_ts")), 384, 1e-6);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "stddev_ts")), 181.019336, 1e-6);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "avg_ns")), 1500000000);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(row, "samples_ns"), 1)), 2000000000);
    ck_assert_double_eq_tol(json_number_value(json_array_get(json_object_get(row, "samples_ts"), 1)), 256, 1e-6);
    ck_assert_double_eq(json_number_value(json_object_get(row, "matmul_ops")), 3e12);
    row = json_array_get(all, 1);
    ck_assert_double_eq(json_number_value(json_object_get(row, "read_bytes")), 5e9);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "n_batch")), 256);
    json_decref(all);
    free(text);
}
END_TEST

START_TEST(markdown_has_the_peers_columns)
{
    char *text = print(BENCH_MD, true, false);
    ck_assert_ptr_nonnull(strstr(text,
                                 "| model                          |       size |     params | backend    | threads |"
                                 "            test |                  t/s |\n"
                                 "| ------------------------------ | ---------: | ---------: | ---------- | ------: |"
                                 " --------------: | -------------------: |\n"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "| llama 135M Q4_1                |  92.10 MiB |   134.52 M | avx2       |       2 |"
                                 "           pp512 |      384.00 ± 181.02 |\n"));
    ck_assert_ptr_nonnull(strstr(text, "| tg64 x 16 @ d16 |       1024.00 ± 0.00 |\n"));
    free(text);
    text = print(BENCH_MD, true, true);
    ck_assert_ptr_nonnull(strstr(text, "| threads | n_batch |            test |"));
    ck_assert_ptr_nonnull(strstr(text, "|       2 |     256 | tg64 x 16 @ d16 |"));
    free(text);
}
END_TEST

/* What a device counts stands in the foot, as a step's, and with its own rates as a share of what it copies. */
START_TEST(a_device_that_counts)
{
    is_counted = true;
    char *text = print(BENCH_MD, true, false);
    ck_assert_ptr_nonnull(
        strstr(text, "\nA CPU\ntg64 x 16 @ d16: a step is 274 launches and reads 10.00 MB of weights, 1.00 MB "
                     "of keys and values: 0.70 GB/s\n\nbuild"));
    free(text);
    has_rates = true;
    text = print(BENCH_MD, true, false);
    ck_assert_ptr_nonnull(
        strstr(text, "0.70 GB/s, 18 % of copying\na launch: 20.0 us alone, 3.0 us of many; copying: 4.0 GB/s\n"));
    free(text);
    text = print(BENCH_JSON, true, false);
    json_t *all = json_loads(text, 0, NULL), *row = json_array_get(all, 1);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "launches")), 64 * 274);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "weight_bytes")), 640000000);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "copy_bytes_s")), 4000000000);
    ck_assert_ptr_null(json_object_get(json_array_get(all, 0), "launches"));
    json_decref(all);
    free(text);
    is_counted = has_rates = false;
}
END_TEST

Suite *bench_report_suite(void)
{
    Suite *s = suite_create("bench_report");
    TCase *t = tcase_create("rows");
    tcase_add_test(t, csv_has_the_peers_fields);
    tcase_add_test(t, json_has_the_peers_fields);
    tcase_add_test(t, markdown_has_the_peers_columns);
    tcase_add_test(t, a_device_that_counts);
    tcase_add_test(t, drafts_come_true_by_position);
    suite_add_tcase(s, t);
    return s;
}
