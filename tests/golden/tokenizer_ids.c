/* Prints ids of many texts, for comparison by tokenizer_agreement.py.
 *
 *   tokenizer_ids MODEL.gguf < TEXTS > IDS     ids from tokenizer_encode, without special tokens such as BOS
 *   tokenizer_ids --words NAME < TEXTS > ENDS  ends, in bytes, of the words of pre-tokenizer NAME
 *   tokenizer_ids --patterns NAME              the expressions of NAME, one per line
 *   tokenizer_ids --names                      the names of all pre-tokenizers
 *
 * TEXTS: for each text its bytes as u32, then the text. IDS: for each text the number of ids as u32, then each as u32.
 * All in the machine's byte order. */
#include "engine/format/gguf.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/splitter.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TEXT = 64 << 20 };

static bool read_text(struct buf *text)
{
    uint32_t n;
    if (fread(&n, sizeof n, 1, stdin) != 1 || n > MAX_TEXT) {
        return false;
    }
    char *s = mem_alloc((size_t)n + 1, MEM_GENERAL);
    bool ok = s != NULL && fread(s, 1, n, stdin) == n;
    buf_reset(text);
    if (ok) {
        buf_append(text, s, n);
    }
    mem_free(s);
    return ok && buf_ok(text) == ERR_OK;
}

static void write_ids(const struct token_list *ids)
{
    uint32_t n = (uint32_t)ids->n;
    fwrite(&n, sizeof n, 1, stdout);
    fwrite(ids->ids, sizeof *ids->ids, ids->n, stdout);
    fflush(stdout); /* a caller with a pipe waits for it */
}

static enum err cut(const struct pretokenizer *pre, const struct splitter *p, const struct buf *text,
                    struct token_list *ends)
{
    struct splitting c;
    struct budget budget = budget_of(text->len);
    enum err err = ERR_OK;
    if (pre->next == NULL && (err = splitting_begin(&c, p, text->data, text->len, &budget)) != ERR_OK) {
        return err;
    }
    for (size_t at = 0; at < text->len && err == ERR_OK;) {
        if (pre->next != NULL) {
            at += pre->next(text->data + at, text->len - at);
        } else {
            err = splitting_next(&c, &at);
        }
        err = err == ERR_OK ? token_list_push(ends, (int32_t)at) : err;
    }
    if (pre->next == NULL) {
        splitting_end(&c);
    }
    return err;
}

static int fail(const char *what, enum err err, const struct err_info *info)
{
    fprintf(stderr, "tokenizer_ids: %s: %s: %s\n", what, err_code(err), info->text);
    return 1;
}

static int run(const struct tokenizer *t, const struct pretokenizer *pre, const struct splitter *p)
{
    struct buf text;
    struct token_list ids = {0};
    enum err err = ERR_OK;
    buf_init(&text, 0, MEM_GENERAL);
    while (err == ERR_OK && read_text(&text)) {
        ids.n = 0;
        err = t != NULL ? tokenizer_encode(t, &(struct tokenizer_text){.s = text.data, .n = text.len}, &ids, NULL)
                        : cut(pre, p, &text, &ids);
        if (err == ERR_OK) {
            write_ids(&ids);
        }
    }
    buf_fini(&text);
    token_list_fini(&ids);
    return err == ERR_OK ? 0 : fail("a text", err, &(struct err_info){.text = ""});
}

static int words(const char *option, const char *name)
{
    const struct pretokenizer *pre = pretokenizer_find(name, strlen(name));
    struct splitter *p = NULL;
    struct err_info info = {0};
    size_t n = 0;
    if (pre == NULL) {
        fprintf(stderr, "tokenizer_ids: no pre-tokenizer '%s'\n", name);
        return 2;
    }
    while (pre->patterns[n] != NULL) {
        n++;
    }
    if (strcmp(option, "--patterns") == 0) {
        for (size_t i = 0; i < n; i++) {
            puts(pre->patterns[i]);
        }
        return 0;
    }
    enum err err = pre->next != NULL ? ERR_OK : splitter_new(pre->patterns, n, name, &p, &info);
    int rc = err != ERR_OK ? fail(name, err, &info) : run(NULL, pre, p);
    splitter_free(&p);
    return rc;
}

int main(int argc, char **argv)
{
    struct gguf *g;
    struct tokenizer *t = NULL;
    struct err_info info = {0};
    if (argc == 2 && strcmp(argv[1], "--names") == 0) {
        for (size_t i = 0; pretokenizer_at(i) != NULL; i++) {
            puts(pretokenizer_at(i)->name);
        }
        return 0;
    }
    if (argc == 3) {
        return words(argv[1], argv[2]);
    }
    if (argc != 2) {
        fprintf(stderr, "usage: tokenizer_ids MODEL.gguf | --words NAME | --patterns NAME | --names\n");
        return 2;
    }
    enum err err = gguf_open(argv[1], &g, &info);
    if (err == ERR_OK) {
        err = tokenizer_new(g, &t, &info);
    }
    int rc = err != ERR_OK ? fail(argv[1], err, &info) : run(t, NULL, NULL);
    tokenizer_free(&t);
    gguf_close(&g);
    return rc;
}
