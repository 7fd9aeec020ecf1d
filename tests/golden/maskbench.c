/* Runs schemas with valid and invalid instances, in the form of MaskBench's files (guidance-ai/jsonschemabench),
 * through the engine token by token: checks what each schema allows, and times masks.
 *
 *   maskbench MODEL.gguf FOLDER [MASKS]
 *   maskbench --tokens MODEL.gguf FOLDER      input for other programs (maskbench_llguidance.py)
 *
 * Each *.json of the folder is {"schema": .., "tests": [{"valid": .., "data": ..}]}. An instance is written as Python's
 * json.dumps does; "text" instead of data is its text.
 * MASKS: number of instances per file whose masks are made and timed [1]; 0: none. A schema passes if all of its
 * instances are accepted or rejected as expected. Prints a line for each that does not pass, with -v for each mask that
 * takes 10 ms, and the totals.
 *
 * --tokens prints the size of the vocabulary; for each token a line: t and its bytes in hexadecimal, s for a token
 * without text, e for one that ends a text; then for each file a line "file NAME", and for each of its instances
 * "valid" or "invalid" and its ids. */
#include "engine/base/clock.h"
#include "engine/base/io.h"
#include "engine/base/json_read.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/schema/schema.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TIMES = 1 << 22, MAX_FILES = 1 << 16, SLOW_US = 10000 };

static struct tokenizer *tokenizer;
static struct grammar_vocab *vocab;
static uint64_t *bits;
static double *all_us, first_us[MAX_FILES], made_us[MAX_FILES];
static size_t n_all, n_first, n_made;
static bool is_verbose, prints_tokens;
static struct {
    int files, passing, refused, wrong_accepts, wrong_rejects, broken;
} sums;

static void die(const char *what, const struct err_info *info)
{
    fprintf(stderr, "maskbench: %s: %s\n", what, info->text);
    exit(1);
}

static void tell(const char *file, const char *what, const char *text)
{
    if (is_verbose) {
        printf("%s %s: %.300s\n", what, file, text);
    }
}

/* Makes the mask before a token, and checks that it agrees with accepting the token. */
static void time_mask(struct grammar_matcher *m, bool is_first, const char *file, int32_t id, bool *is_allowed)
{
    uint64_t begin = clock_thread_ns();
    enum err err = grammar_matcher_mask(m, bits);
    double us = (double)(clock_thread_ns() - begin) / 1e3;
    if (err != ERR_OK && err != ERR_GRAMMAR_DEAD_END) {
        tell(file, "mask", err_code(err));
        sums.broken++;
    }
    if (us > SLOW_US) {
        char text[64];
        snprintf(text, sizeof text, "%.0f us in front of token %d", us, (int)id);
        tell(file, "slow", text);
    }
    *is_allowed = (bits[id / 64] >> id % 64 & 1) != 0;
    if (is_first) {
        first_us[n_first++] = us;
    }
    if (n_all < MAX_TIMES) {
        all_us[n_all++] = us;
    }
}

/* Returns whether the grammar derives the text. */
static bool takes(struct grammar *g, const char *text, bool times, bool is_first, const char *file)
{
    struct token_list ids = {0};
    struct grammar_matcher *m;
    bool taken = true;
    enum err err = tokenizer_encode(tokenizer, &(struct tokenizer_text){.s = text, .n = strlen(text)}, &ids, NULL);
    err = err == ERR_OK ? grammar_matcher_new(g, vocab, &m) : err;
    if (err != ERR_OK) {
        tell(file, "broken", err_code(err));
        sums.broken++;
        token_list_fini(&ids);
        return false;
    }
    for (size_t i = 0; i < ids.n && taken; i++) {
        bool is_allowed = false;
        if (times) {
            time_mask(m, is_first && i == 0, file, ids.ids[i], &is_allowed);
        }
        err = grammar_matcher_accept(m, ids.ids[i], &taken);
        if (err != ERR_OK || (times && is_allowed != taken)) {
            tell(file, "broken", err != ERR_OK ? err_code(err) : "the mask says otherwise");
            sums.broken++;
            taken = false;
        }
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    token_list_fini(&ids);
    return is;
}

/* Returns the instance of a test, as Python writes it; the caller frees it. NULL: out of memory. */
static char *write_instance(const json_t *test)
{
    const json_t *data = json_object_get(test, "data"), *written = json_object_get(test, "text");
    struct buf text;
    if (json_is_string(written)) {
        return mem_dup(json_string_value(written), json_string_length(written), MEM_GENERAL);
    }
    buf_init(&text, 0, MEM_GENERAL);
    json_write_value(&text, data, true);
    char *copy = buf_ok(&text) == ERR_OK ? mem_dup(text.data, text.len, MEM_GENERAL) : NULL;
    buf_fini(&text);
    return copy;
}

/* --- input for other programs ------------------------------------------------------------------------------------- */

static void print_vocabulary(void)
{
    struct buf piece;
    buf_init(&piece, 0, MEM_GENERAL);
    printf("%d\n", (int)tokenizer_n_vocab(tokenizer));
    for (int32_t id = 0; id < (int32_t)tokenizer_n_vocab(tokenizer); id++) {
        enum token_kind kind = tokenizer_kind(tokenizer, id);
        bool is_text = kind == TOKEN_NORMAL || kind == TOKEN_BYTE || kind == TOKEN_USER_DEFINED;
        bool ends = tokenizer_is_eog(tokenizer, id);
        buf_reset(&piece);
        tokenizer_piece(tokenizer, id, true, &piece);
        printf("%c ", ends ? 'e' : is_text && piece.len > 0 ? 't' : 's');
        for (size_t i = 0; i < piece.len; i++) {
            printf("%02x", (unsigned char)piece.data[i]);
        }
        printf("\n");
    }
    buf_fini(&piece);
}

static void print_tests(const json_t *tests, const char *file)
{
    printf("file %s\n", file);
    for (size_t i = 0; i < json_array_size(tests); i++) {
        const json_t *test = json_array_get(tests, i);
        char *text = write_instance(test);
        struct token_list ids = {0};
        if (text == NULL ||
            tokenizer_encode(tokenizer, &(struct tokenizer_text){.s = text, .n = strlen(text)}, &ids, NULL) != ERR_OK) {
            fprintf(stderr, "maskbench: %s: out of memory\n", file);
            exit(1);
        }
        printf("%s ", json_is_true(json_object_get(test, "valid")) ? "valid" : "invalid");
        for (size_t k = 0; k < ids.n; k++) {
            printf("%d ", (int)ids.ids[k]);
        }
        printf("\n");
        token_list_fini(&ids);
        mem_free(text);
    }
}

/* --- files --------------------------------------------------------------------------------------------------------- */

static bool check_tests(struct grammar *g, const json_t *tests, size_t n_masks, const char *file)
{
    bool is_right = true;
    for (size_t i = 0; i < json_array_size(tests); i++) {
        const json_t *test = json_array_get(tests, i);
        char *text = write_instance(test);
        bool valid = json_is_true(json_object_get(test, "valid"));
        bool taken = text != NULL && takes(g, text, i < n_masks, i == 0, file);
        if (taken != valid) {
            tell(file, taken ? "wrong accept" : "wrong reject", text != NULL ? text : "");
            sums.wrong_accepts += taken;
            sums.wrong_rejects += !taken;
            is_right = false;
        }
        mem_free(text);
    }
    return is_right;
}

/* Returns NULL if the file cannot be read. */
static json_t *read_json(const char *path, struct err_info *info)
{
    struct buf text;
    json_t *root = NULL;
    buf_init(&text, 0, MEM_GENERAL);
    enum err err = io_read_file(path, 64 << 20, &text, info);
    err = err == ERR_OK ? json_read_lenient(text.data, text.len, JSON_WRITE_DEPTH, path, &root, info) : err;
    buf_fini(&text);
    return err == ERR_OK ? root : NULL;
}

static void check_file(const char *folder, const char *file, size_t n_masks)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    struct err_info info = {0};
    json_t *root = read_json(path, &info);
    const json_t *schema = json_object_get(root, "schema");
    struct grammar_builder *b;
    struct grammar *g = NULL;
    symbol_id start = 0;
    if (schema != NULL && prints_tokens) {
        sums.files++;
        print_tests(json_object_get(root, "tests"), file);
        json_decref(root);
        return;
    }
    if (schema == NULL || grammar_builder_new(&b) != ERR_OK) {
        tell(file, "not read", "no object with a schema");
        json_decref(root);
        return;
    }
    sums.files++;
    uint64_t begin = clock_thread_ns();
    enum err err = schema_add(b, schema, &start, &info);
    if (err == ERR_OK) {
        err = grammar_finish(&b, start, &g, &info);
    } else {
        grammar_builder_free(&b);
    }
    made_us[n_made++] = (double)(clock_thread_ns() - begin) / 1e3;
    if (err != ERR_OK) {
        tell(file, "refused", info.text);
        sums.refused++;
    } else {
        sums.passing += check_tests(g, json_object_get(root, "tests"), n_masks, file);
    }
    grammar_unref(&g);
    json_decref(root);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *what, double *us, size_t n)
{
    double sum = 0;
    if (n == 0) {
        return;
    }
    qsort(us, n, sizeof *us, by_size);
    for (size_t i = 0; i < n; i++) {
        sum += us[i];
    }
    printf("%s: %zu, mean %.1f us, p50 %.1f, p99 %.1f, max %.0f\n", what, n, sum / (double)n, us[n / 2],
           us[n * 99 / 100], us[n - 1]);
}

int main(int argc, char **argv)
{
    struct err_info info = {0};
    struct gguf *gguf;
    is_verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    prints_tokens = argc > 1 && strcmp(argv[1], "--tokens") == 0;
    argv += is_verbose || prints_tokens;
    argc -= is_verbose || prints_tokens;
    DIR *dir = argc > 2 ? opendir(argv[2]) : NULL;
    if (dir == NULL) {
        fprintf(stderr, "maskbench: expected [-v | --tokens] MODEL.gguf FOLDER [MASKS], found %s\n",
                argc > 2 ? "a folder that cannot be read" : "fewer");
        return 64;
    }
    json_number_use_mem();
    if (gguf_open(argv[1], &gguf, &info) != ERR_OK || tokenizer_new(gguf, &tokenizer, &info) != ERR_OK) {
        die(argv[1], &info);
    }
    all_us = mem_zalloc_array(MAX_TIMES, sizeof *all_us, MEM_GENERAL);
    bits = mem_zalloc_array(((size_t)tokenizer_n_vocab(tokenizer) + 63) / 64, sizeof *bits, MEM_GENERAL);
    if (all_us == NULL || bits == NULL || grammar_vocab_new(tokenizer, &vocab) != ERR_OK) {
        die("memory", &info);
    }
    if (prints_tokens) {
        print_vocabulary();
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL && sums.files < MAX_FILES;) {
        size_t n = strlen(e->d_name);
        if (n > 5 && strcmp(e->d_name + n - 5, ".json") == 0) {
            check_file(argv[2], e->d_name, argc > 3 ? (size_t)strtoul(argv[3], NULL, 10) : 1);
        }
    }
    closedir(dir);
    if (prints_tokens) {
        return sums.files > 0 ? 0 : 1;
    }
    printf("schemas: %d, passing %d (%.1f %%), refused %d; instances: %d wrong accepts, %d wrong rejects; broken: %d\n",
           sums.files, sums.passing, 100.0 * sums.passing / (sums.files != 0 ? sums.files : 1), sums.refused,
           sums.wrong_accepts, sums.wrong_rejects, sums.broken);
    print_times("schemas read", made_us, n_made);
    print_times("masks", all_us, n_all);
    print_times("first masks", first_us, n_first);
    return sums.files > 0 && sums.wrong_accepts == 0 ? 0 : 1;
}
