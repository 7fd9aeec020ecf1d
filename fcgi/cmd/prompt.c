/* The only file that calls libedit (docs/adr/0010-libedit.md). Ctrl-C is a key while a line is edited, and a signal otherwise. */
#include "fcgi/cmd/prompt.h"

#include "engine/base/buf.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { KEPT_LINES = 500, LINE_BYTES = 1 << 20, CHUNK_BYTES = 4096 };

struct prompt {
    EditLine *edit; /* NULL: no terminal */
    History *history;
    const char *file;
    const char *text; /* shown before the line */
    bool was_interrupted;
    struct buf line;
};

static char *shown(EditLine *e)
{
    struct prompt *p;
    (void)el_get(e, EL_CLIENTDATA, (void **)&p);
    return (char *)p->text;
}

static unsigned char on_interrupt(EditLine *e, int key)
{
    struct prompt *p;
    (void)key;
    (void)el_get(e, EL_CLIENTDATA, (void **)&p);
    p->was_interrupted = true;
    fputs("^C\n", stdout);
    return CC_NEWLINE;
}

static enum err open_editor(struct prompt *p, struct err_info *info)
{
    HistEvent ev;
    p->edit = el_init("infcgi", stdin, stdout, stderr);
    p->history = history_init();
    if (p->edit == NULL || p->history == NULL) {
        return err_set(info, ERR_IO, NULL, "libedit cannot use this terminal");
    }
    (void)history(p->history, &ev, H_SETSIZE, KEPT_LINES);
    (void)history(p->history, &ev, H_SETUNIQUE, 1);
    if (p->file != NULL) {
        (void)history(p->history, &ev, H_LOAD, p->file); /* no file exists the first time */
    }
    (void)el_set(p->edit, EL_CLIENTDATA, p);
    (void)el_set(p->edit, EL_PROMPT, shown);
    (void)el_set(p->edit, EL_EDITOR, "emacs");
    (void)el_set(p->edit, EL_HIST, history, p->history);
    (void)el_set(p->edit, EL_ADDFN, "interrupt", "gives up the line", on_interrupt);
    (void)el_set(p->edit, EL_SETTY, "-d", "-isig", NULL);
    (void)el_set(p->edit, EL_BIND, "^C", "interrupt", NULL);
    (void)el_set(p->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    (void)el_set(p->edit, EL_BIND, "\033[1~", "ed-move-to-beg", NULL);
    (void)el_set(p->edit, EL_BIND, "\033[4~", "ed-move-to-end", NULL);
    return ERR_OK;
}

enum err prompt_open(const char *history_file, struct prompt **out, struct err_info *info)
{
    struct prompt *p = mem_zalloc(sizeof *p, MEM_GENERAL);
    *out = p;
    if (p == NULL) {
        return ERR_NOMEM;
    }
    buf_init(&p->line, LINE_BYTES, MEM_GENERAL);
    p->file = history_file;
    enum err err = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? open_editor(p, info) : ERR_OK;
    if (err != ERR_OK) {
        prompt_close(out);
    }
    return err;
}

void prompt_close(struct prompt **prompt)
{
    struct prompt *p = *prompt;
    HistEvent ev;
    if (p == NULL) {
        return;
    }
    if (p->history != NULL) {
        if (p->file != NULL && history(p->history, &ev, H_SAVE, p->file) < 0) {
            fprintf(stderr, "warning: the history cannot be kept in %s\n", p->file);
        }
        history_end(p->history);
    }
    if (p->edit != NULL) {
        el_end(p->edit);
    }
    buf_fini(&p->line);
    mem_free(p);
    *prompt = NULL;
}

bool prompt_is_typed(const struct prompt *p) { return p->edit != NULL; }

/* Reads a line of a file. */
static const char *read_line(struct prompt *p)
{
    char chunk[CHUNK_BYTES];
    buf_reset(&p->line);
    while (fgets(chunk, sizeof chunk, stdin) != NULL) {
        size_t n = strlen(chunk);
        bool is_end = n > 0 && chunk[n - 1] == '\n';
        buf_append(&p->line, chunk, n - is_end);
        if (is_end) {
            break;
        }
    }
    if (buf_ok(&p->line) != ERR_OK || (p->line.len == 0 && (feof(stdin) || ferror(stdin)))) {
        return NULL;
    }
    return p->line.data != NULL ? p->line.data : "";
}

const char *prompt_line(struct prompt *p, const char *text)
{
    HistEvent ev;
    int n = 0;
    if (p->edit == NULL) {
        return read_line(p);
    }
    p->text = text;
    p->was_interrupted = false;
    (void)el_set(p->edit, EL_PREP_TERM, 1); /* before the prompt is shown, because libedit does it only afterwards */
    const char *line = el_gets(p->edit, &n);
    if (p->was_interrupted) {
        return "";
    }
    if (line == NULL || n <= 0) {
        fputs("\n", stdout);
        return NULL;
    }
    buf_reset(&p->line);
    buf_append(&p->line, line, (size_t)n - (line[n - 1] == '\n'));
    if (p->line.len > 0 && buf_ok(&p->line) == ERR_OK) {
        (void)history(p->history, &ev, H_ENTER, line);
    }
    return p->line.data != NULL ? p->line.data : "";
}

int prompt_key(int timeout_ms)
{
    struct termios before, now;
    struct pollfd key = {.fd = STDIN_FILENO, .events = POLLIN};
    char c = 0;
    if (tcgetattr(STDIN_FILENO, &before) != 0) {
        return -1;
    }
    now = before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &now);
    int n = poll(&key, 1, timeout_ms);
    bool is_gone = (n < 0 && errno != EINTR) || (n > 0 && read(STDIN_FILENO, &c, 1) <= 0);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return is_gone ? -1 : (unsigned char)c;
}
