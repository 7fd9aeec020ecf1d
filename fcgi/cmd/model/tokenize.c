/* `infcgi tokenize`: prints the token ids of a text as the model sees it. Reads only the model file's directory, never
 * the weights. Pieces are escaped, because a token can be part of a character or act on a terminal. */
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/escape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 256 << 20 };

/* Reads all standard input into `in`. */
static enum err read_input(struct buf *in)
{
    static char chunk[64 << 10];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, stdin)) > 0;) {
        buf_append(in, chunk, n);
        TRY(buf_ok(in));
    }
    return ferror(stdin) ? ERR_IO : ERR_OK;
}

static void print_tokens(const struct tokenizer *t, const struct token_list *ids, bool ids_only)
{
    struct buf piece;
    buf_init(&piece, 0, MEM_GENERAL);
    for (size_t i = 0; i < ids->n; i++) {
        if (ids_only) {
            printf("%s%" PRId32, i == 0 ? "" : ", ", ids->ids[i]);
            continue;
        }
        buf_reset(&piece);
        tokenizer_piece(t, ids->ids[i], true, &piece);
        printf("%" PRId32 "\t", ids->ids[i]);
        escape_print_plain(stdout, piece.len > 0 ? piece.data : "", piece.len);
        putchar('\n');
    }
    buf_fini(&piece);
}

/* Encodes and prints o->text or standard input. */
static int print_ids(const struct tokenizer *t, const struct conf *o)
{
    bool is_input = strcmp(o->text, "-") == 0;
    struct buf in;
    struct token_list ids = {0};
    buf_init(&in, MAX_TEXT_BYTES, MEM_GENERAL);
    enum err err = is_input ? read_input(&in) : ERR_OK;
    const char *text = o->text;
    size_t n = strlen(text);
    if (is_input) {
        text = in.len > 0 ? in.data : "";
        n = in.len;
    }
    unsigned flags = (o->no_bos ? 0u : TOKENIZE_ADD_SPECIAL) | (o->parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    if (err == ERR_OK) {
        err = tokenizer_encode(t, &(struct tokenizer_text){.s = text, .n = n, .flags = flags, .max_tokens = INT32_MAX},
                               &ids, NULL);
    }
    int rc = CMD_OK;
    if (err == ERR_OK) {
        fputs(o->ids ? "[" : "", stdout);
        print_tokens(t, &ids, o->ids);
        fputs(o->ids ? "]\n" : "", stdout);
    } else {
        fprintf(stderr, "error: tokenize: %s: %s\n", err_code(err), err_text(err));
        rc = CMD_BAD_DATA;
    }
    token_list_fini(&ids);
    buf_fini(&in);
    return rc;
}

int cmd_tokenize(const struct program *p, struct conf *conf)
{
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err_info info = {.offset = ERR_NO_OFFSET};
    int rc = CMD_BAD_DATA;
    (void)p;
    enum err err = model_open(conf->model, &g, &info);
    err = err != ERR_OK ? err : tokenizer_new(g, &t, &info);
    if (err == ERR_OK) {
        rc = print_ids(t, conf);
    } else {
        info.code = err; /* not set by a failed allocation */
        escape_print_error(conf->model, &info);
    }
    tokenizer_free(&t);
    gguf_close(&g);
    return rc;
}
