/* Tokenising with infcgi and with llama.cpp side by side: the same vocabulary, the same texts, in turns, in one
 * process. tests/bench/tokenizer.sh builds and runs it.
 *
 *   tokenizer_speed MODEL.gguf ENGLISH-FILE CODE-FILE
 *
 * A row is one text: bytes, tokens, the best of several runs of each in MB of text a second of CPU time (other work on
 * the machine counts less so), the ratio, and whether the ids are the same. Exit 1 when a text could not be encoded. */
#include "engine/base/utf8.h"
#include "engine/format/gguf.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TEXT = 1 << 22, WORDS_BYTES = 1 << 20, RUNS_BYTES = 1 << 17, PROMPT_BYTES = 4096, CHUNK_BYTES = 3000 };
enum { RUNS = 9 };

struct text {
    const char *name;
    char *s;
    size_t n;
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t state = 1;
static uint64_t random_below(uint64_t n) /* SplitMix64 [Steele et al. 2014] */
{
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
}

/* --- texts ------------------------------------------------------------------------------------------------------ */

static struct text read_text(const char *name, const char *path)
{
    struct text t = {.name = name, .s = malloc(MAX_TEXT)};
    FILE *f = fopen(path, "rb");
    if (f == NULL || t.s == NULL) {
        fprintf(stderr, "error: cannot read %s\n", path);
        exit(66);
    }
    t.n = fread(t.s, 1, MAX_TEXT, f);
    fclose(f);
    return t;
}

/* Random words of the vocabulary that are not ASCII: Chinese, Cyrillic, Arabic, emoji, as many as it has of each. */
static struct text vocabulary_words(const struct tokenizer *t)
{
    struct text out = {.name = "words of other scripts", .s = malloc(WORDS_BYTES + 256)};
    struct buf piece;
    buf_init(&piece, 0, MEM_GENERAL);
    for (int tries = 0; out.n < WORDS_BYTES && tries < 1 << 24; tries++) {
        int32_t id = (int32_t)random_below((uint64_t)tokenizer_n_vocab(t));
        buf_reset(&piece);
        if (tokenizer_kind(t, id) == TOKEN_NORMAL) {
            tokenizer_piece(t, id, false, &piece);
        }
        bool is_foreign = piece.len > 1 && piece.len < 128 && utf8_valid(piece.data, piece.len, NULL);
        for (size_t i = piece.len > 0 && piece.data[0] == ' '; is_foreign && i < piece.len; i++) {
            is_foreign = (unsigned char)piece.data[i] >= 0x80;
        }
        if (is_foreign) {
            memcpy(out.s + out.n, piece.data, piece.len);
            out.n += piece.len;
            if (random_below(12) == 0) {
                out.s[out.n++] = "\n ,."[random_below(4)];
            }
        }
    }
    buf_fini(&piece);
    return out;
}

static struct text runs_of_one_character(void)
{
    struct text out = {.name = "runs of one character", .s = malloc(RUNS_BYTES + 256)};
    while (out.n < RUNS_BYTES) {
        size_t n = 2 + random_below(200);
        memset(out.s + out.n, " \n\t=-a1.#x"[random_below(10)], n);
        out.n += n;
    }
    return out;
}

static void add_code_point(struct text *t, uint32_t cp) { t->n += utf8_encode(cp, t->s + t->n); }

/* Emoji as people write them: faces and things, some with a skin tone, a variation selector or joined into one, a word
 * or a space in between. */
static struct text emoji(void)
{
    static const uint32_t blocks[][2] = {{0x1F600, 80}, {0x1F300, 464}, {0x1F680, 64}, {0x1F900, 240}, {0x2600, 400}};
    static const char *const words[] = {" so happy ", " love this! ", "lol", "\n", " ", " great job "};
    struct text out = {.name = "emoji", .s = malloc(RUNS_BYTES + 256)};
    while (out.n < RUNS_BYTES) {
        uint64_t i = random_below(10);
        i = i < 5 ? 0 : i - 5;
        add_code_point(&out, blocks[i][0] + (uint32_t)random_below(blocks[i][1]));
        uint64_t what = random_below(12);
        if (what == 0) {
            add_code_point(&out, 0x1F3FB + (uint32_t)random_below(5)); /* skin tone */
        } else if (what == 1 || i == 4) {
            add_code_point(&out, 0xFE0F);
        } else if (what == 2) {
            add_code_point(&out, 0x200D); /* joins the next */
        } else if (what < 6) {
            const char *word = words[random_below(6)];
            memcpy(out.s + out.n, word, strlen(word));
            out.n += strlen(word);
        }
    }
    return out;
}

/* All texts in random order of chunks. */
static struct text mix(const struct text *texts, size_t n_texts)
{
    struct text out = {.name = "all of these, mixed", .s = malloc(n_texts * MAX_TEXT)};
    size_t at[8] = {0}, left = n_texts;
    while (left > 0) {
        size_t i = random_below(n_texts), n = texts[i].n - at[i];
        n = n < CHUNK_BYTES ? n : CHUNK_BYTES;
        while (at[i] + n < texts[i].n && ((unsigned char)texts[i].s[at[i] + n] & 0xC0) == 0x80) {
            n++;
        }
        memcpy(out.s + out.n, texts[i].s + at[i], n);
        left -= n > 0 && at[i] + n == texts[i].n;
        at[i] += n;
        out.n += n;
    }
    return out;
}

/* --- measuring -------------------------------------------------------------------------------------------------- */

static void write_file(const char *folder, size_t i, const char *suffix, const void *data, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%zu.%s", folder, i, suffix);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        fprintf(stderr, "error: cannot write %s\n", path);
        exit(73);
    }
}

static void measure(const struct tokenizer *t, const struct text *x, const char *folder, size_t i)
{
    struct token_list ids = {0};
    double best = 1e9;
    for (int run = 0; run < RUNS; run++) {
        ids.n = 0;
        double from = cpu_seconds();
        enum err err = tokenizer_encode(t, &(struct tokenizer_text){.s = x->s, .n = x->n}, &ids, NULL);
        double seconds = cpu_seconds() - from;
        best = seconds < best ? seconds : best;
        if (err != ERR_OK) {
            fprintf(stderr, "error: %s: %s\n", x->name, err_code(err));
            exit(1);
        }
    }
    printf("%s\t%zu\t%zu\t%.2f\n", x->name, x->n, ids.n, (double)x->n * 1e-6 / best);
    write_file(folder, i, "txt", x->s, x->n);
    write_file(folder, i, "ids", ids.ids, ids.n * sizeof *ids.ids);
    token_list_fini(&ids);
}

int main(int argc, char **argv)
{
    struct gguf *g;
    struct tokenizer *t;
    struct err_info info;
    if (argc != 5) {
        fputs("usage: tokenizer_speed MODEL.gguf ENGLISH-FILE CODE-FILE FOLDER\n", stderr);
        return 64;
    }
    if (gguf_open(argv[1], &g, &info) != ERR_OK || tokenizer_new(g, &t, &info) != ERR_OK) {
        fprintf(stderr, "error: %s: %s\n", argv[1], info.text);
        return 65;
    }
    struct text texts[7] = {read_text("English", argv[2]), read_text("C", argv[3]), vocabulary_words(t),
                            runs_of_one_character()};
    texts[4] = mix(texts, 4);
    texts[5] = (struct text){.name = "4 KiB of English", .s = texts[0].s, .n = PROMPT_BYTES};
    texts[6] = emoji();
    for (size_t i = 0; i < 7; i++) {
        measure(t, &texts[i], argv[4], i);
    }
    for (size_t i = 0; i < 7; i++) {
        if (i != 5) {
            free(texts[i].s);
        }
    }
    tokenizer_free(&t);
    gguf_close(&g);
    return 0;
}
