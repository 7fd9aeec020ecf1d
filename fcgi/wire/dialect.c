#include "fcgi/wire/dialect.h"
#include "fcgi/wire/http_status.h"

#include "engine/base/json_write.h"

#include <string.h>

void dialect_write_openai(const char *type, enum err code, const struct err_info *info, const char *message,
                          struct buf *out)
{
    buf_puts(out, "{\"error\":{\"message\":");
    json_write_cstr(out, message);
    buf_printf(out, ",\"type\":\"%s\",\"param\":", type);
    json_write_cstr(out, info != NULL && info->where[0] != '\0' ? info->where : NULL);
    buf_printf(out, ",\"code\":\"%s\"", err_code(code));
}

static void write_error(const struct reply *r, enum err code, const struct err_info *info, const char *message,
                        struct buf *out)
{
    (void)r;
    dialect_write_openai(http_status_type(code), code, info, message, out);
    buf_puts(out, "}}");
}

static const char *const paths[] = {"/v1/", "/v2/", NULL};

const struct dialect dialect_openai = {.paths = paths,
                                       .write_error = write_error,
                                       .limits = &tenant_headers_openai,
                                       .out_of_memory = DIALECT_OUT_OF_MEMORY,
                                       .before_error = "data: ",
                                       .after_error = "\n\n",
                                       .requires_model = true,
                                       .checks_as_openai = true};

bool dialect_has(const struct dialect *d, const char *path)
{
    for (const char *const *p = d->paths; *p != NULL; p++) {
        size_t n = strlen(*p);
        if (strncmp(path, *p, n) == 0 && ((*p)[n - 1] == '/' || path[n] == '\0' || path[n] == '/')) {
            return true;
        }
    }
    return false;
}
