/* Checks published token ids: for every `ggml-vocab-*.gguf` of a folder (tokenizer_vectors.sh fetches it) the texts of
 * its .inp file must give the ids of its .out file, which Hugging Face tokenizers wrote, and the ids must give the
 * text.
 *
 *   tokenizer_vectors FOLDER
 *
 * Format, from llama.cpp's tests/test-tokenizer-0.cpp: texts separated by a separate line, ids of one text per line.
 * Prints one line per vocabulary and then `N passed, N failed`; exits with 1 if one failed or none passed. */
#include "engine/base/io.h"
#include "engine/format/gguf.h"
#include "engine/tokenizer/tokenizer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 16, MAX_VECTOR_FILE = 16 << 20 };

static const char separator[] = "\n__ggml_vocab_test__\n";

/* The rest of an input. */
struct cursor {
    const char *at, *end;
};

static struct cursor next_text(struct cursor *in)
{
    const char *sep = memmem(in->at, (size_t)(in->end - in->at), separator, sizeof separator - 1);
    struct cursor text = {in->at, sep != NULL ? sep : in->end};
    in->at = sep != NULL ? sep + sizeof separator - 1 : in->end;
    return text;
}

/* Reads the next line as ids into `want`; false at the end of the file. */
static bool next_ids(struct cursor *out, struct token_list *want)
{
    want->n = 0;
    if (out->at == out->end) {
        return false;
    }
    const char *eol = memchr(out->at, '\n', (size_t)(out->end - out->at));
    eol = eol != NULL ? eol : out->end;
    for (const char *p = out->at; p < eol;) {
        int32_t id = 0;
        const char *digits = p;
        for (; p < eol && *p >= '0' && *p <= '9'; p++) {
            id = id * 10 + (*p - '0');
        }
        if (p == digits) {
            p++; /* a space */
        } else if (token_list_push(want, id) != ERR_OK) {
            return false;
        }
    }
    out->at = eol < out->end ? eol + 1 : eol;
    return true;
}

static void print_ids(const char *label, const struct token_list *l)
{
    printf("    %s", label);
    for (size_t i = 0; i < l->n && i < 40; i++) {
        printf(" %d", l->ids[i]);
    }
    printf("%s\n", l->n > 40 ? " ..." : "");
}

/* Returns whether `text` encodes to `want` and back. */
static bool check_text(const struct tokenizer *t, struct cursor text, const struct token_list *want)
{
    size_t n = (size_t)(text.end - text.at);
    struct token_list got = {0};
    struct buf back;
    buf_init(&back, 0, MEM_GENERAL);
    enum err err =
        tokenizer_encode(t, &(struct tokenizer_text){.s = text.at, .n = n, .max_tokens = MAX_TOKENS}, &got, NULL);
    bool same =
        err == ERR_OK && got.n == want->n && (got.n == 0 || memcmp(got.ids, want->ids, got.n * sizeof *got.ids) == 0);
    struct detokenizer d = {0};
    for (size_t i = 0; i < got.n; i++) {
        detokenizer_push(&d, t, got.ids[i], true, &back);
    }
    detokenizer_finish(&d, &back);
    bool is_lossy = strcmp(tokenizer_model_name(t), "bert") == 0; /* lower-cases */
    bool returns = is_lossy || (back.len == n && (n == 0 || memcmp(back.data, text.at, n) == 0));
    if (!same || !returns) {
        printf("  text '%.*s' (%s)\n", (int)MIN_OF(n, (size_t)200), text.at, err_code(err));
        print_ids("expected", want);
        print_ids("found   ", &got);
        if (!returns) {
            printf("    comes back as '%.*s'\n", (int)MIN_OF(back.len, (size_t)200), back.len > 0 ? back.data : "");
        }
    }
    buf_fini(&back);
    token_list_fini(&got);
    return same && returns;
}

/* Runs all texts; fills the counts. */
static bool run_vectors(const struct tokenizer *t, const char *path, int *n_texts, int *n_bad)
{
    char name[1100];
    struct buf inp, out;
    struct err_info info = {0};
    struct token_list want = {0};
    buf_init(&inp, 0, MEM_GENERAL);
    buf_init(&out, 0, MEM_GENERAL);
    snprintf(name, sizeof name, "%s.inp", path);
    bool there = io_read_file(name, MAX_VECTOR_FILE, &inp, &info) == ERR_OK;
    snprintf(name, sizeof name, "%s.out", path);
    there = there && io_read_file(name, MAX_VECTOR_FILE, &out, &info) == ERR_OK;
    struct cursor texts = {inp.data, inp.data + inp.len}, lines = {out.data, out.data + out.len};
    while (there && texts.at < texts.end) {
        struct cursor text = next_text(&texts);
        bool has_line = next_ids(&lines, &want);
        *n_texts += 1;
        *n_bad += !has_line || !check_text(t, text, &want);
    }
    *n_bad += there && lines.at != lines.end; /* lines without a text */
    token_list_fini(&want);
    buf_fini(&inp);
    buf_fini(&out);
    return there;
}

static int n_passed, n_failed;

static void check_vocabulary(const char *path, const char *name)
{
    struct gguf *g;
    struct tokenizer *t = NULL;
    struct err_info info = {0};
    enum err err = gguf_open(path, &g, &info);
    if (err == ERR_OK) {
        err = tokenizer_new(g, &t, &info);
    }
    int n_texts = 0, n_bad = 0;
    if (err == ERR_UNSUPPORTED_TOKENIZER || err == ERR_UNSUPPORTED_PRETOKENIZER) {
        printf("unsupported  %-32s %.*s\n", name, (int)strcspn(info.text, ","), info.text);
    } else if (err != ERR_OK) {
        n_failed++;
        printf("FAILED       %-32s %s: %s\n", name, err_code(err), info.text);
    } else if (!run_vectors(t, path, &n_texts, &n_bad)) {
        printf("no vectors   %-32s %s, %d tokens, loads\n", name, tokenizer_model_name(t), tokenizer_n_vocab(t));
    } else {
        n_passed += n_bad == 0;
        n_failed += n_bad != 0;
        printf("%-12s %-32s %s %s, %d texts, %d wrong\n", n_bad == 0 ? "passed" : "FAILED", name,
               tokenizer_model_name(t), tokenizer_pre_name(t), n_texts, n_bad);
    }
    tokenizer_free(&t);
    gguf_close(&g);
}

static int is_vocabulary(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return strncmp(e->d_name, "ggml-vocab-", 11) == 0 && n > 5 && strcmp(e->d_name + n - 5, ".gguf") == 0;
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int n = argc == 2 ? scandir(argv[1], &entries, is_vocabulary, alphasort) : -1;
    if (n < 0) {
        fprintf(stderr, "usage: tokenizer_vectors FOLDER (with ggml-vocab-*.gguf)\n");
        return 2;
    }
    for (int i = 0; i < n; i++) {
        char path[1024];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name) >= sizeof path) {
            fprintf(stderr, "tokenizer_vectors: the path of %s is too long\n", entries[i]->d_name);
            return 2;
        }
        check_vocabulary(path, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 && n_passed > 0 ? 0 : 1;
}
