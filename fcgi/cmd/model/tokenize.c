/* `infcgi tokenize`: prints the token ids of a text as the model sees it. Reads only the model file's directory, never
 * the weights. Pieces are escaped, because a token can be part of a character or act on a terminal. */
#include "engine/base/utf8.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "fcgi/cmd/cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 256 << 20 };

/* Returns whether cp acts on a terminal instead of being shown: a control character, a line separator, or a change of
 * writing direction. */
static bool acts_on_terminal(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x200E || cp == 0x200F || (cp >= 0x2028 && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

static void print_escaped(FILE *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t used = utf8_decode(s + i, n - i, &cp, &valid);
        if (!valid) {
            fprintf(out, "\\x%02x", (unsigned char)s[i]);
        } else if (cp == '\n' || cp == '\t' || cp == '\r' || cp == '\\') {
            fputs(cp == '\n' ? "\\n" : cp == '\t' ? "\\t" : cp == '\r' ? "\\r" : "\\\\", out);
        } else if (acts_on_terminal(cp)) {
            fprintf(out, "\\u%04" PRIx32, cp);
        } else {
            fwrite(s + i, 1, used, out);
        }
        i += used;
    }
}

static int data_error(const char *path, enum err code, const struct err_info *info)
{
    fputs("error: ", stderr);
    print_escaped(stderr, path, strlen(path));
    fprintf(stderr, ": %s", err_code(code));
    if (info->offset != ERR_NO_OFFSET) {
        fprintf(stderr, " at byte %" PRIu64, info->offset);
    }
    fputs(": ", stderr);
    print_escaped(stderr, info->text, strlen(info->text));
    fputc('\n', stderr);
    return CMD_BAD_DATA;
}

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
        print_escaped(stdout, piece.len > 0 ? piece.data : "", piece.len);
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
    const char *text = !is_input ? o->text : in.len > 0 ? in.data : "";
    size_t n = !is_input ? strlen(o->text) : in.len;
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

static int tokenize(const struct conf *o)
{
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err_info info = {.offset = ERR_NO_OFFSET};
    enum err err = model_open(o->model, &g, &info);
    err = err != ERR_OK ? err : tokenizer_new(g, &t, &info);
    int rc = err == ERR_OK ? print_ids(t, o) : data_error(o->model, err, &info);
    tokenizer_free(&t);
    gguf_close(&g);
    return rc;
}

int cmd_tokenize(const struct program *p, int argc, char **argv)
{
    struct conf conf;
    int rc = cmd_read_conf(p, &conf, CONF_TOKENIZE, argc, argv);
    rc = rc != CMD_OK ? rc : tokenize(&conf);
    conf_fini(&conf);
    return cmd_end("tokenize", rc);
}
