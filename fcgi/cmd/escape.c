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

void escape_print(FILE *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool valid;
        size_t used = utf8_decode(s + i, n - i, &cp, &valid);
        if (!valid) {
            fprintf(out, "\\x%02x", (unsigned char)s[i]);
        } else if (cp == '\n' || cp == '\t' || cp == '\r') {
            fputs(cp == '\n' ? "\\n" : cp == '\t' ? "\\t" : "\\r", out);
        } else if (cp == '"' || cp == '\\') {
            fprintf(out, "\\%c", (int)cp);
        } else if (acts_on_terminal(cp)) {
            fprintf(out, "\\u%04" PRIx32, cp);
        } else {
            fwrite(s + i, 1, used, out);
        }
        i += used;
    }
}

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
    fprintf(stderr, ": %s\n", info->text);
}
