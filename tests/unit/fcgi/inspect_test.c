/* `infcgi inspect` as its user meets it: exit status, one error line, no control byte on the terminal. */
#include "fcgi/tables.h"
#include "tests/support/folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *inspect_suite(void);

static char model[64], out_path[64], err_path[64];
static char out[65536], errors[4096]; /* what the last run printed */

static void setup(void)
{
    snprintf(model, sizeof model, "%s", folder_file("m.gguf"));
    snprintf(out_path, sizeof out_path, "%s", folder_file("out"));
    snprintf(err_path, sizeof err_path, "%s", folder_file("err"));
}

/* Runs inspect with up to three arguments; Check has forked, so the streams are ours to redirect. */
static int run(const char *a, const char *b, const char *c, size_t *n_out)
{
    char name[] = "inspect";
    char *argv[] = {name, (char *)a, (char *)b, (char *)c, NULL};
    int argc = 1;
    while (argc < 4 && argv[argc] != NULL) {
        argc++;
    }
    ck_assert_ptr_nonnull(freopen(out_path, "wb", stdout));
    ck_assert_ptr_nonnull(freopen(err_path, "wb", stderr));
    const struct program program = tables_all();
    int rc = cmd_run(&program, CONF_INSPECT, argc, argv);
    fflush(stdout);
    fflush(stderr);
    size_t n = folder_read(out_path, out, sizeof out);
    folder_read(err_path, errors, sizeof errors);
    if (n_out != NULL) {
        *n_out = n;
    }
    return rc;
}

/* A model with text that would drive a terminal. `cut` bytes are left off its end. */
static void save_model(size_t cut)
{
    struct gguf_writer w;
    struct buf file;
    gguf_writer_init(&w);
    buf_init(&file, 0, MEM_GENERAL);
    gguf_writer_str(&w, "general.architecture", "llama");
    gguf_writer_str(&w, "general.name", "red \x1B[31m \x07 \xC2\x9B bad \xFF \xE2\x80\xAE end");
    gguf_writer_u32(&w, "llama.block_count", 7);
    gguf_writer_array(&w, "llama.attention.head_count", GGUF_I32, 2, (int32_t[]){4, 8});
    gguf_writer_str(&w, "key\x1B[2J", "x");
    gguf_writer_u64(&w, "big", UINT64_MAX);
    gguf_writer_array(&w, "nine", GGUF_U8, 9, "\1\2\3\4\5\6\7\10\11");
    gguf_writer_str_array(&w, "tokenizer.ggml.tokens", 3, (const char *const[]){"<s>", "\n", "a\"b"});
    gguf_writer_str(&w, "tokenizer.chat_template", "{{ x }}\x1B\n");
    gguf_writer_tensor(&w, "w\x1B", DTYPE_Q8_0, 2, (uint64_t[]){64, 3}, NULL);
    gguf_writer_finish(&w, &file);
    file.len -= cut;
    ck_assert(buf_ok(&file) == ERR_OK && gguf_writer_save(&file, model));
    buf_fini(&file);
    gguf_writer_fini(&w);
}

static bool holds_control(const char *s)
{
    for (; *s != '\0'; s++) {
        if (((unsigned char)*s < 0x20 && *s != '\n') || *s == 0x7F || strncmp(s, "\xC2\x9B", 2) == 0) {
            return true;
        }
    }
    return false;
}

START_TEST(the_summary_names_what_matters)
{
    save_model(0);
    ck_assert_int_eq(run(model, NULL, NULL, NULL), CMD_OK);
    static const char *const lines[] = {"architecture    \"llama\"\n",
                                        "red \\u001b[31m \\u0007 \\u009b bad \\xff \\u202e end",
                                        "layers          7\n",
                                        "heads           2 values, one a layer\n",
                                        "parameters      192 (0.0 M)",
                                        "vocabulary      3\n",
                                        "chat template   yes, 9 bytes: \"{{ x }}\\u001b\" ...\n",
                                        "  Q8_0          1        204            100.0 %   u8\n",
                                        "context length  -\n",
                                        "family          llama: Llama 2, ",
                                        "cannot be run   missing_tensor: token_embd.weight: ",
                                        "memory          -\n",
                                        "kernels         -\n"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        ck_assert_msg(strstr(out, lines[i]) != NULL, "no '%s' in:\n%s", lines[i], out);
    }
    ck_assert(!holds_control(out));
    ck_assert_str_eq(errors, "");
}
END_TEST

START_TEST(a_folder_without_a_name_has_its_own)
{
    static const char *const paths[] = {"tests/golden/models/lfm2-conv.hf", "tests/golden/models/lfm2-conv.hf//"};
    ck_assert_int_eq(run(paths[_i], NULL, NULL, NULL), CMD_OK);
    ck_assert_msg(strstr(out, "name            \"lfm2-conv.hf\"\n") != NULL, "%s", out);
}
END_TEST

START_TEST(a_file_without_a_template_says_what_chat_will_do)
{
    static const char *const rows[][2] = {{"gemma3", "chat template   no; its family has one format: gemma\n"},
                                          {"llama", "chat template   no; chat needs --chat-template\n"},
                                          {NULL, "chat template   no; chat needs --chat-template\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gguf_writer w;
        struct buf file;
        gguf_writer_init(&w);
        buf_init(&file, 0, MEM_GENERAL);
        gguf_writer_str(&w, rows[i][0] != NULL ? "general.architecture" : "general.name",
                        rows[i][0] != NULL ? rows[i][0] : "x");
        gguf_writer_finish(&w, &file);
        ck_assert(buf_ok(&file) == ERR_OK && gguf_writer_save(&file, model));
        buf_fini(&file);
        gguf_writer_fini(&w);
        ck_assert_int_eq(run(model, NULL, NULL, NULL), CMD_OK);
        ck_assert_msg(strstr(out, rows[i][1]) != NULL, "no '%s' in:\n%s", rows[i][1], out);
    }
}
END_TEST

START_TEST(a_model_that_runs_has_a_memory_plan)
{
    const char *path = rig_model(DTYPE_F32);
    struct engine_config cfg = {.model_path = path, .cpu = "ref"};
    struct engine_memory m;
    struct engine *e;
    struct err_info info = {0};
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(engine_open(&cfg, &e, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.weight_bytes, engine_model(e)->weight_bytes);
    ck_assert_uint_eq(m.kv_bytes, engine_model(e)->kv_bytes);
    ck_assert_uint_eq(m.n_ctx, engine_model(e)->n_ctx);
    ck_assert_int_eq(m.n_threads, engine_model(e)->n_threads);
    ck_assert(m.activation_bytes > 0 && m.kv_tokens == 32768);
    engine_close(&e);
    ck_assert_int_eq(run("--cpu", "ref", path, NULL), CMD_OK);
    char memory[160];
    snprintf(memory, sizeof memory,
             "memory          %.1f MB: %.1f packed weights, %.1f KV cache of 32768 tokens, %.1f activations\n",
             (double)(m.weight_bytes + m.kv_bytes + m.activation_bytes) / 1e6, (double)m.weight_bytes / 1e6,
             (double)m.kv_bytes / 1e6, (double)m.activation_bytes / 1e6);
    const char *const lines[] = {memory, "head size       16\n", "kernels         cpu ref, as asked for\n",
                                 "rope            16 of 16 components, interleaved pairs, base 10000\n",
                                 "packed as\n  F32           11       "};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        ck_assert_msg(strstr(out, lines[i]) != NULL, "no '%s' in:\n%s", lines[i], out);
    }
    ck_assert_ptr_null(strstr(out, "cannot be run"));
    ck_assert_str_eq(errors, "");
}
END_TEST

START_TEST(a_model_without_attention_has_no_heads)
{
    ck_assert_int_eq(run("tests/golden/models/mamba-tied.gguf", NULL, NULL, NULL), CMD_OK);
    ck_assert_ptr_nonnull(strstr(out, "\nkv cache        -\n"));
    ck_assert_ptr_nonnull(strstr(out, "\nrope            -\n"));
    ck_assert_ptr_null(strstr(out, "head size"));
    ck_assert_str_eq(errors, "");
}
END_TEST

START_TEST(attention_without_rope_has_no_table_of_it)
{
    static const char *const models[] = {"t5encoder-relu-mean", "jamba-dense", "jina-bert-v2-mean"};
    char path[128];
    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", models[_i]);
    ck_assert_int_eq(run(path, NULL, NULL, NULL), CMD_OK);
    ck_assert_ptr_nonnull(strstr(out, "\nrope            -\n"));
}
END_TEST

/* .. and pages for all sequences, of which one more is for short requests: they have no bytes. */
START_TEST(a_model_without_attention_has_pages_enough)
{
    struct engine_config cfg = {.model_path = "tests/golden/models/mamba-tied.gguf", .max_seqs = 3};
    struct engine_memory m;
    struct err_info info = {0};
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.kv_tokens, 4 * 32768);
    cfg.n_ctx = 1 << 20;
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.kv_tokens, 1 << 20);
    cfg.n_ctx = 64;
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.kv_tokens, 32768);
}
END_TEST

/* A golden model with windows of 21 positions, of which the file now says that it was trained on more than these and a batch. */
START_TEST(a_model_of_windows_has_a_memory_plan_that_follows)
{
    static const char key[] = "phi3.context_length",
                      line[] = " threads; a sequence holds the 608 of its windows and a batch\n";
    static char file[512 << 10];
    size_t n = folder_read("tests/golden/models/phi3-window.gguf", file, sizeof file);
    char *at = memmem(file, n, key, strlen(key));
    ck_assert(at != NULL && n + 1 < sizeof file);
    uint32_t longer = 4096;
    memcpy(at + strlen(key) + sizeof(uint32_t), &longer, sizeof longer); /* after the type */
    ck_assert_int_eq(run(folder_write("m.gguf", file, n), NULL, NULL, NULL), CMD_OK);
    ck_assert_msg(strstr(out, "serves          4096 tokens, ") != NULL && strstr(out, line) != NULL, "no '%s' in:\n%s",
                  line, out);
}
END_TEST

START_TEST(the_plan_is_printed_step_by_step)
{
    const char *path = rig_model(DTYPE_F32);
    ck_assert_int_eq(run("--plan", path, NULL, NULL), CMD_OK);
    const char *const parts[] = {"   0  layer -    embed        by rows      dst -> x[",
                                 "  layer 0    qkv          by heads     src <- norm[",
                                 "  w[0] blk.0.ffn_down.weight F32 [",
                                 "  dst <> x[",
                                 "  layer -    logits       by columns   src <- last[",
                                 "\na token: ",
                                 " a sequence: 0 floats of state\n"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        ck_assert_msg(strstr(out, parts[i]) != NULL, "no '%s' in:\n%s", parts[i], out);
    }
    ck_assert_str_eq(errors, "");
    save_model(0);
    ck_assert_int_eq(run("--plan", model, NULL, NULL), CMD_BAD_DATA); /* of which none can be made */
    ck_assert_str_eq(out, "");
    ck_assert_str_ne(errors, "");
}
END_TEST

START_TEST(lists_escape_what_the_file_says)
{
    save_model(0);
    ck_assert_int_eq(run("--kv", "--tensors", model, NULL), CMD_OK);
    static const char *const lines[] = {"key\\u001b[2J  string = \"x\"\n", "big  u64 = 18446744073709551615\n",
                                        "nine  u8[9] = [1, 2, 3, 4, 5, 6, 7, 8, ...]\n",
                                        "tokens  string[3] = [\"<s>\", \"\\n\", \"a\\\"b\"]\n",
                                        "w\\u001b  Q8_0  [64, 3]  offset "};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        ck_assert_msg(strstr(out, lines[i]) != NULL, "no '%s' in:\n%s", lines[i], out);
    }
    ck_assert(!holds_control(out));
}
END_TEST

START_TEST(the_template_is_printed_byte_for_byte)
{
    size_t n;
    save_model(0);
    ck_assert_int_eq(run(model, "--template", NULL, &n), CMD_OK);
    ck_assert_uint_eq(n, 9);
    ck_assert_str_eq(out, "{{ x }}\x1B\n");
}
END_TEST

START_TEST(check_says_one_line)
{
    size_t n;
    ck_assert_int_eq(run("--check", rig_model(DTYPE_F32), NULL, &n), CMD_OK);
    ck_assert_uint_eq(n, 0);
    ck_assert_str_eq(errors, "");
    ck_assert_int_eq(run("--check", "-m", rig_model(DTYPE_F32), NULL), CMD_OK);
    ck_assert_int_eq(run("--check", rig_model(DTYPE_Q8_1), NULL, &n), CMD_BAD_DATA); /* no kernel executes it */
    ck_assert_msg(strstr(errors, ": unsupported_type: blk.0.ffn_down.weight: ") != NULL, "%s", errors);
    ck_assert_int_eq(run("--cpu=ref", "--check", rig_model(DTYPE_F32), NULL), CMD_OK);
    ck_assert_int_eq(run("--cpu", "z80", rig_model(DTYPE_F32), NULL), CMD_USAGE);
    ck_assert_msg(strstr(errors, "z80") != NULL, "%s", errors);
    save_model(0); /* whole, but of no family that can be served */
    ck_assert_int_eq(run("--check", model, NULL, &n), CMD_BAD_DATA);
    ck_assert_msg(strstr(errors, ": missing_tensor: ") != NULL, "%s", errors);
    save_model(1);
    ck_assert_int_eq(run("--check", model, NULL, &n), CMD_BAD_DATA);
    ck_assert_uint_eq(n, 0);
    char start[128];
    snprintf(start, sizeof start, "error: %s: truncated at byte ", model);
    ck_assert_msg(strncmp(errors, start, strlen(start)) == 0, "%s", errors);
    ck_assert_ptr_eq(strchr(errors, '\n'), errors + strlen(errors) - 1);
    ck_assert(!holds_control(errors));
    unlink(model);
    ck_assert_int_eq(run("--check", model, NULL, NULL), CMD_BAD_DATA);
    snprintf(start, sizeof start, "error: %s: not_a_regular_file: ", model); /* no offset to tell */
    ck_assert_msg(strncmp(errors, start, strlen(start)) == 0, "%s", errors);
}
END_TEST

/* Row G27: one weight of a file that is whole. */
START_TEST(verify_names_the_weight_that_is_no_number)
{
    static char bytes[1 << 20];
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const char *path = rig_model(DTYPE_F32);
    ck_assert_int_eq(run("--verify", path, NULL, NULL), CMD_OK);
    ck_assert_str_eq(errors, "");
    size_t n = folder_read(path, bytes, sizeof bytes);
    struct gguf *g;
    ck_assert_int_eq(gguf_open_memory(bytes, n, &g, NULL), ERR_OK);
    const struct gguf_tensor *t = gguf_find_tensor(g, "blk.0.ffn_up.weight");
    uint64_t at = t->offset + (2 * t->dims[0] + 3) * sizeof *bad;
    gguf_close(&g);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        memcpy(bytes + at, &bad[i], sizeof *bad);
        path = folder_write("bad.gguf", bytes, n);
        ck_assert_int_eq(run("--check", path, NULL, NULL), CMD_OK);
        ck_assert_int_eq(run("--verify", path, NULL, NULL), CMD_BAD_DATA);
        ck_assert_msg(strstr(errors, ": numerical_error: blk.0.ffn_up.weight: expected finite numbers, found ") !=
                              NULL &&
                          strstr(errors, " in row 2, column 3\n") != NULL,
                      "%s", errors);
    }
}
END_TEST

/* Row G28: one bit of a file that is whole; sums as sha256sum writes them. */
START_TEST(verify_compares_the_sums)
{
    static const char zero[] = "0000000000000000000000000000000000000000000000000000000000000000";
    static char bytes[1 << 20];
    char list[512], name[64], said[512];
    char path[128];
    snprintf(path, sizeof path, "%s", rig_model(DTYPE_F32));
    snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    snprintf(list, sizeof list, "%s  %s\n", zero, name);
    folder_write_text("SHA256SUMS", list);
    ck_assert_int_eq(run("--check", path, NULL, NULL), CMD_OK);
    ck_assert_int_eq(run("--verify", path, NULL, NULL), CMD_BAD_DATA);
    snprintf(said, sizeof said, ": checksum_mismatch: %s: expected SHA-256 %s, as SHA256SUMS says, found ", name, zero);
    const char *found = strstr(errors, said);
    ck_assert_msg(found != NULL, "%s", errors);
    snprintf(list, sizeof list, "%s  other\n%.64s *%s\n", zero, found + strlen(said), name);
    folder_write_text("SHA256SUMS", list); /* what it found is right */
    ck_assert_int_eq(run("--verify", path, NULL, NULL), CMD_OK);
    ck_assert_str_eq(errors, "");
    size_t n = folder_read(path, bytes, sizeof bytes);
    bytes[n - 1] ^= 1;
    folder_write(name, bytes, n);
    ck_assert_int_eq(run("--verify", path, NULL, NULL), CMD_BAD_DATA);
    ck_assert_msg(strstr(errors, ": checksum_mismatch: ") != NULL, "%s", errors);
    static const char *const lines[] = {"", "x", "0123  model", "\n", "z"};
    for (size_t i = 1; i < ARRAY_LEN(lines); i++) {
        folder_write_text("SHA256SUMS", lines[i]);
        ck_assert_int_eq(run("--verify", path, NULL, NULL), CMD_BAD_DATA);
        ck_assert_msg(strstr(errors, "SHA256SUMS, line 1: expected 64 hex") != NULL, "%s", errors);
    }
    folder_write_text("SHA256SUMS", lines[0]);
    ck_assert_int_eq(run("--verify", path, NULL, NULL), CMD_OK);
}
END_TEST

START_TEST(wrong_usage_is_named)
{
    static const struct {
        const char *args[3];
        const char *hint;
    } runs[] = {{{NULL}, "expected --model FILE"},     {{"--chek", "m"}, "unknown option '--chek'"},
                {{"-x", "m"}, "unknown option '-x'"},  {{"a", "b"}, "unknown option 'b'"},
                {{"a", "-m", "b"}, "found another"},   {{"--kv", "-m"}, "--model: expected a value"},
                {{"--check", "--kv", "m"}, "--check"}, {{"--verify", "--kv", "m"}, "--verify"}};
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        ck_assert_int_eq(run(runs[i].args[0], runs[i].args[1], runs[i].args[2], NULL), CMD_USAGE);
        ck_assert_msg(strstr(errors, runs[i].hint) != NULL, "%s", errors);
        ck_assert_str_eq(out, "");
    }
    ck_assert_int_eq(run("--help", NULL, NULL, NULL), CMD_OK);
    ck_assert_ptr_nonnull(strstr(out, "--template"));
    ck_assert_int_eq(run("--", "--kv", NULL, NULL), CMD_BAD_DATA); /* a file of that name */
}
END_TEST

Suite *inspect_suite(void)
{
    Suite *s = suite_create("inspect");
    TCase *c = tcase_create("inspect");
    tcase_add_checked_fixture(c, setup, folder_remove);
    tcase_add_test(c, the_summary_names_what_matters);
    tcase_add_loop_test(c, a_folder_without_a_name_has_its_own, 0, 2);
    tcase_add_test(c, a_file_without_a_template_says_what_chat_will_do);
    tcase_add_test(c, a_model_that_runs_has_a_memory_plan);
    tcase_add_test(c, a_model_without_attention_has_no_heads);
    tcase_add_test(c, a_model_without_attention_has_pages_enough);
    tcase_add_loop_test(c, attention_without_rope_has_no_table_of_it, 0, 3);
    tcase_add_test(c, a_model_of_windows_has_a_memory_plan_that_follows);
    tcase_add_test(c, the_plan_is_printed_step_by_step);
    tcase_add_test(c, lists_escape_what_the_file_says);
    tcase_add_test(c, the_template_is_printed_byte_for_byte);
    tcase_add_test(c, check_says_one_line);
    tcase_add_test(c, verify_names_the_weight_that_is_no_number);
    tcase_add_test(c, verify_compares_the_sums);
    tcase_add_test(c, wrong_usage_is_named);
    suite_add_tcase(s, c);
    return s;
}
