/* Errors in the form of llama-server. */
#include "fcgi/api/llama/llama.h"
#include "fcgi/wire/http_status.h"

/* Returns llama-server's type of an error, which depends on the status only [llama.cpp
 * tools/server/server-common.cpp]. */
static const char *type_of(const struct reply *r, enum err code)
{
    static const struct {
        int status;
        const char *type;
    } rows[] = {{401, "authentication_error"}, {403, "permission_error"},    {404, "not_found_error"},
                {500, "server_error"},         {501, "not_supported_error"}, {503, "unavailable_error"}};
    if (code == ERR_CONTEXT_LENGTH) {
        return "exceed_context_size_error";
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].status == reply_status_of(r, code)) {
            return rows[i].type;
        }
    }
    return http_status_type(code);
}

static void write_error(const struct reply *r, enum err code, const struct err_info *info, const char *message,
                        struct buf *out)
{
    dialect_write_openai(type_of(r, code), code, info, message, out);
    if (code == ERR_CONTEXT_LENGTH && r->n_ctx != 0) {
        buf_printf(out, ",\"n_prompt_tokens\":%zu,\"n_ctx\":%zu", r->n_prompt_tokens, r->n_ctx);
    }
    buf_puts(out, "}}");
}

static const char *const paths[] = {"/", NULL};

const struct dialect dialect_llama = {.paths = paths,
                                      .write_error = write_error,
                                      .limits = &tenant_headers_openai,
                                      .out_of_memory = DIALECT_OUT_OF_MEMORY,
                                      .before_error = "data: ",
                                      .after_error = "\n\n",
                                      .checks_as_openai = true,
                                      .thinks_if_possible = true};
