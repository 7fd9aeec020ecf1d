/* Errors in the form of Ollama's API: a text only. */
#include "engine/base/json_write.h"
#include "fcgi/api/ollama/ollama.h"

static void write_error(const struct reply *r, enum err code, const struct err_info *info, const char *message,
                        struct buf *out)
{
    (void)r, (void)code, (void)info;
    buf_puts(out, "{\"error\":");
    json_write_cstr(out, message);
    buf_putc(out, '}');
}

static const char *const paths[] = {"/api/", NULL};

const struct dialect dialect_ollama = {.paths = paths,
                                       .write_error = write_error,
                                       .limits = &tenant_headers_openai,
                                       .out_of_memory = "{\"error\":\"out of memory\"}",
                                       .before_error = "",
                                       .after_error = "\n"};
