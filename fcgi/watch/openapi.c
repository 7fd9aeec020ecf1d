/* GET /openapi.json: docs/openapi.json, which the build embeds in the program. */
#include "fcgi/watch/watch.h"

extern const char openapi_json[]; /* made by the Makefile */

void api_openapi(struct call *c)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    buf_puts(&out, openapi_json);
    if (buf_ok(&out) != ERR_OK) {
        reply_error(&c->reply, ERR_NOMEM, NULL);
    } else {
        reply_send(&c->reply, 200, "application/json", &out);
    }
    buf_fini(&out);
}
