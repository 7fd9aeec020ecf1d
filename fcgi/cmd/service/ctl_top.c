/* Draws one picture per second from two answers of the admin socket. Speeds are differences between two pictures. Uses
 * plain ANSI codes. */
#include "fcgi/cmd/service/ctl.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/prompt.h"
#include "fcgi/watch/admin_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PICTURE_MS = 1000 };

/* Values of the last picture. */
struct last {
    uint64_t at_ns;
    json_int_t prompt, generated;
};

static json_t *ask(const char *socket, const char *word, int *rc)
{
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    *rc = ctl_ask(&(struct ctl_question){.socket = socket, .as_json = true, .words = &word, .n_words = 1}, &out);
    json_t *o = *rc == CMD_OK ? json_loadb(out.data, out.len, 0, NULL) : NULL;
    if (o == NULL) {
        *rc = *rc == CMD_OK ? CMD_LOST : *rc;
        fprintf(stderr, "error: %s\n", out.data != NULL ? out.data : "nothing was answered");
    }
    buf_fini(&out);
    return o;
}

static json_int_t number(const json_t *o, const char *name) { return json_integer_value(json_object_get(o, name)); }

static void put_speeds(const json_t *status, struct last *last, struct buf *out)
{
    uint64_t now = clock_now_ns();
    struct last is = {
        .at_ns = now, .prompt = number(status, "prompt_tokens"), .generated = number(status, "generated_tokens")};
    double s = (double)(now - last->at_ns) / 1e9;
    if (last->at_ns != 0 && s > 0) {
        buf_printf(out, "tokens a second: %.1f of prompts, %.1f of answers\n", (double)(is.prompt - last->prompt) / s,
                   (double)(is.generated - last->generated) / s);
    }
    *last = is;
}

static int make_picture(const char *socket, struct last *last, struct buf *out)
{
    int rc;
    json_t *status = ask(socket, "status", &rc), *requests = rc == CMD_OK ? ask(socket, "requests", &rc) : NULL;
    if (rc == CMD_OK) {
        const char *state = json_string_value(json_object_get(status, "state"));
        const char *model = json_string_value(json_object_get(status, "model"));
        buf_printf(out, "infcgi %s  %s  up %" JSON_INTEGER_FORMAT " s\n", state != NULL ? state : "?",
                   model != NULL ? model : "", number(status, "up_s"));
        buf_printf(out,
                   "running %" JSON_INTEGER_FORMAT ", waiting %" JSON_INTEGER_FORMAT
                   ", connections %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT ", errors %" JSON_INTEGER_FORMAT
                   "\n",
                   number(status, "running"), number(status, "waiting"), number(status, "connections"),
                   number(status, "max_connections"), number(status, "errors"));
        put_speeds(status, last, out);
        buf_putc(out, '\n');
        admin_text(requests, out);
    }
    json_decref(status);
    json_decref(requests);
    return rc;
}

/* Draws as much of the picture as fits the terminal. */
static void draw(const struct buf *picture)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    }
    fputs("\033[H", stdout);
    const char *p = picture->data;
    for (int row = 0; row + 1 < size.ws_row && *p != '\0'; row++) {
        size_t n = strcspn(p, "\n");
        printf("%.*s\033[K\n", (int)MIN_OF(n, (size_t)size.ws_col), p);
        p += n + (p[n] != '\0');
    }
    fputs("\033[J", stdout);
    (void)fflush(stdout);
}

int ctl_top(const char *socket)
{
    bool is_looked_at = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct last last = {0};
    struct buf picture;
    int rc, key = 0;
    buf_init(&picture, 0, MEM_GENERAL);
    if (is_looked_at) {
        fputs("\033[2J", stdout);
    }
    do {
        buf_reset(&picture);
        rc = make_picture(socket, &last, &picture);
        if (rc == CMD_OK && buf_ok(&picture) == ERR_OK && is_looked_at) {
            draw(&picture);
            key = prompt_key(PICTURE_MS);
        } else if (rc == CMD_OK) {
            fputs(picture.data != NULL ? picture.data : "", stdout);
        }
    } while (rc == CMD_OK && is_looked_at && key != 'q' && key != 3 && key >= 0); /* 3: Ctrl-C */
    buf_fini(&picture);
    return rc;
}
