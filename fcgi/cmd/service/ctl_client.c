#include "fcgi/cmd/service/ctl.h"

#include "fcgi/cmd/cmd.h"
#include "fcgi/ground/number.h"
#include "fcgi/ground/unix_socket.h"
#include "fcgi/watch/admin.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { PART_BYTES = 16384, PATIENCE_S = 60 /* maximum silence of the server */ };

/* The first line of an answer. */
struct head {
    bool is_known, is_live;
    enum admin_verdict verdict;
    size_t n_body; /* of "ok N" */
};

static bool send_all(int fd, const struct buf *text)
{
    size_t at = 0;
    while (at < text->len) {
        ssize_t n = send(fd, text->data + at, text->len - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Parses the first line and removes it from `got`; a rejection's reason stays. */
static void read_head(struct buf *got, struct head *h)
{
    char *end = memchr(got->data, '\n', got->len);
    *end = '\0';
    char *rest = strchr(got->data, ' ');
    size_t n_word = rest != NULL ? (size_t)(rest - got->data) : (size_t)(end - got->data);
    rest = rest != NULL ? rest + 1 : end;
    int64_t n = 0;
    h->is_live = n_word == strlen("live") && memcmp(got->data, "live", n_word) == 0;
    h->is_known = h->is_live;
    const char *name;
    for (int i = 0; (name = admin_verdict_name(i)) != NULL; i++) {
        if (strlen(name) == n_word && memcmp(name, got->data, n_word) == 0) {
            h->verdict = (enum admin_verdict)i;
            h->is_known = i != ADMIN_OK || (number_parse(rest, &n) && n >= 0);
        }
    }
    h->n_body = (size_t)n;
    char *keep = h->verdict == ADMIN_OK ? end + 1 : rest;
    size_t left = (size_t)(got->data + got->len - keep);
    left -= h->verdict != ADMIN_OK && left > 0; /* its newline, now a NUL */
    memmove(got->data, keep, left);
    got->len = left;
    got->data[left] = '\0';
}

static int fail(struct buf *out, int status, const char *why, const char *of)
{
    buf_reset(out);
    buf_printf(out, "%s%s%s", why, of[0] != '\0' ? ": " : "", of);
    return status;
}

/* Reads the answer. */
static int receive(int fd, bool (*live)(const char *text, size_t n), struct buf *out)
{
    static const int statuses[ADMIN_VERDICT_COUNT] = {CMD_OK, CMD_USAGE, CMD_REFUSED, CMD_DENIED};
    struct head h = {0};
    char part[PART_BYTES];
    ssize_t n;
    while ((n = recv(fd, part, sizeof part, 0)) > 0 || (n < 0 && errno == EINTR)) {
        if (h.is_live) {
            if (!live(part, n > 0 ? (size_t)n : 0)) { /* called also after a signal */
                return CMD_OK;
            }
            continue;
        }
        buf_append(out, part, n > 0 ? (size_t)n : 0);
        if (buf_ok(out) != ERR_OK) {
            return fail(out, CMD_NO_SYSTEM, "out of memory", "");
        }
        if (!h.is_known && out->len > 0 && memchr(out->data, '\n', out->len) != NULL) {
            read_head(out, &h);
            if (!h.is_known) {
                return fail(out, CMD_LOST, "expected the answer of an admin socket, found another", "");
            }
            if (h.is_live && (live == NULL || (out->len > 0 && !live(out->data, out->len)))) {
                return CMD_OK;
            }
        }
    }
    if (!h.is_known || (h.verdict == ADMIN_OK && !h.is_live && out->len != h.n_body)) {
        return fail(out, CMD_LOST, "the server ended before its answer", n < 0 ? strerror(errno) : "");
    }
    return statuses[h.verdict];
}

int ctl_ask(const struct ctl_question *q, struct buf *out)
{
    struct buf line;
    int fd = unix_socket_connect(q->socket);
    if (fd < 0) {
        buf_printf(out, "cannot connect to %s: %s%s", q->socket, strerror(errno),
                   errno == ENOENT || errno == ECONNREFUSED ? "; does a server run with --admin-socket?" : "");
        return errno == EACCES || errno == EPERM ? CMD_DENIED : CMD_LOST;
    }
    struct timeval limit = {.tv_sec = q->live != NULL ? 0 : PATIENCE_S};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    buf_init(&line, 0, MEM_GENERAL);
    buf_puts(&line, q->as_json ? "--json" : "");
    for (int i = 0; i < q->n_words; i++) {
        buf_printf(&line, "%s%s", line.len > 0 ? " " : "", q->words[i]);
    }
    buf_putc(&line, '\n');
    /* The server can reject the client before the line is sent; its answer has the reason. */
    int rc = buf_ok(&line) == ERR_OK && (send_all(fd, &line) || errno == EPIPE) ? receive(fd, q->live, out) : CMD_LOST;
    buf_fini(&line);
    close(fd);
    return rc;
}
