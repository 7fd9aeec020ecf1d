#include "fcgi/cmd/escape.h"

#include "engine/base/utf8.h"

#include <inttypes.h>
#include <string.h>

enum { SHOWN_BYTES = 200 }; /* longer values are cut */

/* Returns whether cp acts on a terminal instead of being shown: a control character, a line separator, or a change of
 * writing direction. */
static bool acts_on_terminal(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x200E || cp == 0x200F || (cp >= 0x2028 && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

/* Escapes also the printable characters `also`. */
static void print(FILE *out, const char *s, size_t n, const char *also)
{
    static const char controls[] = "\n\t\r", letters[] = "ntr";
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t used = utf8_decode(s + i, n - i, &cp, &valid);
        const char *control = memchr(controls, s[i], sizeof controls - 1);
        if (!valid) {
            fprintf(out, "\\x%02x", (unsigned char)s[i]);
        } else if (control != NULL) {
            fprintf(out, "\\%c", letters[control - controls]);
        } else if (memchr(also, s[i], strlen(also)) != NULL) {
            fprintf(out, "\\%c", s[i]);
        } else if (acts_on_terminal(cp)) {
            fprintf(out, "\\u%04" PRIx32, cp);
        } else {
            fwrite(s + i, 1, used, out);
        }
        i += used;
    }
}

void escape_print(FILE *out, const char *s, size_t n) { print(out, s, n, "\"\\"); }

void escape_print_plain(FILE *out, const char *s, size_t n) { print(out, s, n, "\\"); }

void escape_print_quoted(const char *s, size_t n)
{
    size_t shown = MIN_OF(n, (size_t)SHOWN_BYTES);
    if (shown < n) {
        shown -= utf8_incomplete_tail(s, shown); /* cut at a character boundary */
    }
    putchar('"');
    escape_print(stdout, s, shown);
    putchar('"');
    if (shown < n) {
        printf("... (%zu bytes)", n);
    }
}

void escape_print_error(const char *path, const struct err_info *info)
{
    fputs("error: ", stderr);
    escape_print(stderr, path, strlen(path));
    fprintf(stderr, ": %s", err_code(info->code));
    if (info->offset != ERR_NO_OFFSET) {
        fprintf(stderr, " at byte %" PRIu64, info->offset);
    }
    fputs(": ", stderr);
    print(stderr, info->text, strlen(info->text), "");
    fputc('\n', stderr);
}
