/* The route table, and every endpoint through FastCGI over a tiny model: status, shape, and who is refused before what.
 */
#include "fcgi/api/dispatch.h"
#include "fcgi/tables.h"
#include "fcgi/tenant/apikey.h"
#include "tests/support/folder.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *dispatch_suite(void);

static const struct route *find(const char *method, const char *path, const char **allow)
{
    struct server s = {.routes = routes_table, .n_routes = routes_n};
    return dispatch_find(&s, method, path, NULL, allow);
}

/* --- the table -------------------------------------------------------------------------------------------------- */

START_TEST(methods_and_paths)
{
    static const struct {
        const char *method, *path, *found, *allow; /* found NULL: none; allow "" = 404 */
    } cases[] = {
        {"POST", "/v1/chat/completions", "/v1/chat/completions", ""},
        {"POST", "/chat/completions", "/chat/completions", ""},
        {"POST", "/v1/completions", "/v1/completions", ""},
        {"POST", "/v1/responses", "/v1/responses", ""},
        {"POST", "/responses", "/responses", ""},
        {"POST", "/v1/responses/input_tokens", "/v1/responses/input_tokens", ""},
        {"GET", "/v1/responses/resp_1", "/v1/responses/", ""},
        {"DELETE", "/v1/responses/resp_1", "/v1/responses/", ""},
        {"POST", "/v1/responses/resp_1/cancel", "/v1/responses/", ""},
        {"GET", "/v1/responses", NULL, "POST"},
        {"PUT", "/v1/responses/resp_1", NULL, "GET, HEAD, POST, DELETE"},
        {"POST", "/v1/embeddings", "/v1/embeddings", ""},
        {"POST", "/embeddings", "/embeddings", ""},
        {"POST", "/tokenize", "/tokenize", ""},
        {"POST", "/detokenize", "/detokenize", ""},
        {"GET", "/v1/models", "/v1/models", ""},
        {"HEAD", "/v1/models", "/v1/models", ""},
        {"GET", "/v1/models/a", "/v1/models/", ""},
        {"GET", "/v1/models/a/b", "/v1/models/", ""},
        {"GET", "/health", "/health", ""},
        {"GET", "/metrics", "/metrics", ""},
        {"GET", "/v1/chat/completions", NULL, "POST"},
        {"HEAD", "/v1/chat/completions", NULL, "POST"},
        {"POST", "/v1/models", NULL, "GET, HEAD"},
        {"DELETE", "/v1/models/a", NULL, "GET, HEAD"},
        {"get", "/health", NULL, "GET, HEAD"}, /* methods have case */
        {"", "/health", NULL, "GET, HEAD"},
        {"GET", "/v1/models/", NULL, ""},
        {"GET", "/v1/modelsx", NULL, ""},
        {"GET", "/V1/models", NULL, ""},
        {"GET", "/v1//models", NULL, ""},
        {"POST", "/v1/chat/completions/", NULL, ""},
        {"POST", "v1/chat/completions", NULL, ""},
        {"GET", "/", NULL, ""},
        {"GET", "", NULL, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *allow;
        const struct route *r = find(cases[i].method, cases[i].path, &allow);
        ck_assert_msg((r != NULL) == (cases[i].found != NULL), "%s %s", cases[i].method, cases[i].path);
        if (r != NULL) {
            ck_assert_str_eq(r->path, cases[i].found);
        } else {
            ck_assert_msg(strcmp(allow, cases[i].allow) == 0, "%s %s: allow %s", cases[i].method, cases[i].path, allow);
        }
    }
}
END_TEST

START_TEST(rows)
{
    for (const struct route *r = routes_table; r < routes_table + routes_n; r++) {
        const char *allow;
        ck_assert(strcmp(r->method, "GET") == 0 || strcmp(r->method, "POST") == 0 || strcmp(r->method, "DELETE") == 0);
        ck_assert(r->path[0] == '/' && r->handle != NULL && r->dialect != NULL && r->doc != NULL);
        ck_assert_msg(r->is_prefix || r->header != NULL || find(r->method, r->path, &allow) == r,
                      "%s is hidden by a row before", r->path);
        /* what costs or tells something of the model needs a key; what only watches, or stands in docs, does not */
        bool is_open = strstr(r->path, "health") != NULL || strcmp(r->path, "/metrics") == 0 ||
                       strcmp(r->path, "/status") == 0 || strcmp(r->path, "/openapi.json") == 0;
        ck_assert_msg(r->needs_key == !is_open, "%s", r->path);
    }
    ck_assert_int_gt(routes_n, 8);
    ck_assert_int_le(routes_n, 64);
}
END_TEST

START_TEST(paths_are_decoded_once)
{
    static const struct {
        const char *uri, *path; /* NULL: refused */
    } cases[] = {
        {"/health", "/health"},
        {"/health?a=b", "/health"},
        {"/health?", "/health"},
        {"/a%20b%2Fc%2fd", "/a b/c/d"},
        {"/%2541", "/%41"},
        {"/a+b", "/a+b"},
        {"/%C3%A9", "/\xC3\xA9"},
        {"/a%3Fb?c", "/a?b"},
        {"/%", NULL},
        {"/%4", NULL},
        {"/%4g", NULL},
        {"/%g4", NULL},
        {"/a%00b", NULL},
        {"", NULL},
        {"?a", NULL},
        {"/%?1", NULL},
    };
    char out[16];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool ok = dispatch_decode_path(cases[i].uri, out, sizeof out);
        ck_assert_msg(ok == (cases[i].path != NULL), "%s", cases[i].uri);
        ck_assert_msg(!ok || strcmp(out, cases[i].path) == 0, "%s gave %s", cases[i].uri, out);
    }
    ck_assert(dispatch_decode_path("/23456789012345", out, sizeof out)); /* 15 and the NUL */
    ck_assert(!dispatch_decode_path("/234567890123456", out, sizeof out));
}
END_TEST

/* --- calls ------------------------------------------------------------------------------------------------------ */

static void setup(void) { rig_serve(false, false); }
static void setup_strict(void) { rig_serve(true, false); }
static void setup_loading(void) { rig_serve(false, true); }

#define CHAT "/v1/chat/completions"
#define HI   "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

START_TEST(wrong_urls_methods_and_sizes)
{
    ck_assert_int_eq(rig_get("/nothing"), 404);
    ck_assert_str_eq(rig_text_at("error.code"), "unknown_url");
    ck_assert_msg(strstr(rig_text_at("error.message"), "/nothing") != NULL, "%s", rig_got.body);
    ck_assert_int_eq(rig_get("/%00"), 404);
    ck_assert_int_eq(rig_get("/%1b[2J"), 404);
    ck_assert_int_eq(rig_get(CHAT), 405);
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nAllow: POST\r\n") != NULL, "%s", rig_got.raw.data);
    ck_assert_int_eq(rig_post("/health", "{}"), 405);
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nAllow: GET, HEAD\r\n") != NULL, "%s", rig_got.raw.data);
    static char big[256 * 1024 + 2];
    memset(big, ' ', sizeof big - 1);
    ck_assert_int_eq(rig_post("/tokenize", big), 413);
    ck_assert_str_eq(rig_text_at("error.code"), "request_too_large");
}
END_TEST

/* The status of a POST with these parameters. */
static int status_of(const char *uri, const char *const *extra)
{
    static const char body[] = "{\"content\":\"x\",\"prompt\":\"x\",\"max_tokens\":1,\"stream\":false}";
    return rig_ask("POST", uri, extra, body, sizeof body - 1);
}

/* A page of another origin cannot post JSON without being asked about first, but a form; so nothing else is JSON for it. */
START_TEST(content_types)
{
    static const struct {
        const char *header;
        int own, openai; /* status on a path of llama-server's or Ollama's, and of OpenAI's */
        const char *found;
    } cases[] = {
        {"CONTENT_TYPE=application/json", 200, 200, NULL},
        {"CONTENT_TYPE=Application/JSON; charset=utf-8", 200, 200, NULL},
        {"CONTENT_TYPE=application/json;charset=utf-8", 200, 200, NULL},
        {"CONTENT_TYPE=", 200, 415, "Content-Type: expected application/json, found no such header"},
        {"CONTENT_TYPE=application/x-www-form-urlencoded", 200, 415,
         "Content-Type: expected application/json, found 'application/x-www-form-urlencoded'"},
        {"CONTENT_TYPE=Application/X-WWW-Form-Urlencoded; charset=utf-8", 200, 415, NULL},
        {"CONTENT_TYPE=text/plain", 415, 415, "Content-Type: expected application/json, found 'text/plain'"},
        {"CONTENT_TYPE=application/jsonl", 415, 415, NULL},
        {"CONTENT_TYPE=multipart/form-data; boundary=b", 415, 415, NULL},
        {"HTTP_CONTENT_ENCODING=gzip", 415, 415, "Content-Encoding: expected none, found 'gzip'"},
        {"HTTP_CONTENT_ENCODING=identity", 200, 200, NULL},
    };
    static const char *const own[] = {"/tokenize", "/completion", "/api/generate"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const extra[] = {cases[i].header, NULL};
        for (size_t k = 0; k < ARRAY_LEN(own); k++) {
            ck_assert_msg(status_of(own[k], extra) == cases[i].own, "%s %s: %d", own[k], cases[i].header,
                          rig_got.status);
        }
        ck_assert_msg(status_of("/v1/completions", extra) == cases[i].openai, "%s: %d", cases[i].header,
                      rig_got.status);
        if (cases[i].found != NULL) {
            ck_assert_str_eq(rig_text_at("error.message"), cases[i].found);
        }
        /* of a page that is allowed, JSON alone is taken */
        const char *const page[] = {cases[i].header, "HTTP_HOST=here:80", "HTTP_ORIGIN=http://here", NULL};
        ck_assert_msg(status_of("/tokenize", page) == cases[i].openai, "%s: %d", cases[i].header, rig_got.status);
    }
}
END_TEST

START_TEST(pages_of_other_origins_compute_nothing)
{
    static const char *const paths[] = {
        CHAT, "/tokenize", "/api/generate", "/v1/messages", "/v1/messages/count_tokens", "/slots/0"};
    static const char *const elsewhere[] = {"HTTP_HOST=localhost:8080", "HTTP_ORIGIN=https://elsewhere.example", NULL},
                             *const typed[] = {"CONTENT_TYPE=", "HTTP_ORIGIN=null", NULL},
                             *const silent[] = {"CONTENT_TYPE=", "HTTP_SEC_FETCH_SITE=cross-site", NULL},
                             *const listed[] = {"HTTP_ORIGIN=https://elsewhere.example",
                                                "INFCGI_ORIGIN=https://elsewhere.example", NULL};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        ck_assert_int_eq(status_of(paths[i], elsewhere), 403);
        ck_assert_int_eq(status_of(paths[i], typed), 403);
        ck_assert_int_eq(status_of(paths[i], silent), 403);
    }
    ck_assert_int_eq(status_of("/tokenize", elsewhere), 403);
    ck_assert_str_eq(rig_text_at("error.code"), "origin_not_allowed");
    ck_assert_str_eq(rig_text_at("error.type"), "permission_error");
    ck_assert_str_eq(rig_text_at("error.param"), "Origin");
    ck_assert_ptr_nonnull(strstr(rig_text_at("error.message"), "found 'https://elsewhere.example'"));
    ck_assert_int_eq(status_of("/v1/messages", elsewhere), 403);
    ck_assert_str_eq(rig_text_at("error.type"), "permission_error");
    ck_assert_int_eq(rig_ask("DELETE", "/v1/responses/resp_none", elsewhere, "", 0), 403);
    ck_assert_int_eq(status_of("/tokenize", listed), 200);
    ck_assert_int_eq(rig_ask("GET", "/v1/models", elsewhere, "", 0), 200); /* the browser lets no such page read it */
    ck_assert_int_eq(rig_ask("GET", "/health", elsewhere, "", 0), 200);
}
END_TEST

START_TEST(keys)
{
    struct err_info info = {0};
    static const char *const good[] = {"HTTP_AUTHORIZATION=Bearer sk-one", NULL},
                             *const x[] = {"HTTP_X_API_KEY=sk-one", NULL},
                             *const bad[] = {"HTTP_AUTHORIZATION=Bearer sk-two", NULL};
    ck_assert_int_eq(apikey_load(folder_write("keys", "sk-one\n", 7), &info), ERR_OK);
    ck_assert_int_eq(rig_get("/v1/models"), 401);
    ck_assert_str_eq(rig_text_at("error.code"), "invalid_api_key");
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nWWW-Authenticate: Bearer\r\n") != NULL, "%s", rig_got.raw.data);
    ck_assert_int_eq(rig_ask("GET", "/v1/models", bad, "", 0), 401);
    ck_assert_int_eq(rig_ask("GET", "/v1/models", good, "", 0), 200);
    ck_assert_int_eq(rig_ask("GET", "/v1/models", x, "", 0), 200);
    ck_assert_int_eq(rig_ask("POST", CHAT, bad, "{", 1), 401); /* before the body is looked at */
    ck_assert_int_eq(rig_get("/health"), 200);
    ck_assert_int_eq(rig_get("/metrics"), 200);
}
END_TEST

START_TEST(while_the_model_loads)
{
    ck_assert_int_eq(rig_post(CHAT, "{" HI "}"), 503);
    ck_assert_str_eq(rig_text_at("error.code"), "model_loading");
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nRetry-After: 1\r\n") != NULL, "%s", rig_got.raw.data);
    ck_assert_int_eq(rig_get("/v1/models"), 503);
    ck_assert_int_eq(rig_get("/health"), 503);
    ck_assert_str_eq(rig_text_at("status"), "loading");
    ck_assert_int_eq(rig_get("/metrics"), 200);
    ck_assert_msg(strstr(rig_got.body, "\ninfcgi_up 0\n") != NULL, "%s", rig_got.body);
}
END_TEST

START_TEST(where_the_model_cannot_be_loaded)
{
    atomic_store(&server_state.has_failed, true);
    ck_assert_int_eq(rig_post(CHAT, "{" HI "}"), 503);
    ck_assert_str_eq(rig_text_at("error.code"), "model_unavailable");
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nRetry-After: 1\r\n") != NULL, "%s", rig_got.raw.data);
    ck_assert_int_eq(rig_get("/health"), 503);
    ck_assert_str_eq(rig_text_at("status"), "failed");
    ck_assert_int_eq(rig_get("/metrics"), 200);
}
END_TEST

START_TEST(while_the_server_shuts_down)
{
    atomic_store(&server_state.is_draining, true);
    ck_assert_int_eq(rig_get("/v1/models"), 200); /* came before it was said that nothing more is taken */
    atomic_store(&server_state.is_refusing, true);
    ck_assert_int_eq(rig_post(CHAT, "{" HI "}"), 503);
    ck_assert_str_eq(rig_text_at("error.code"), "draining");
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nRetry-After: 1\r\n") != NULL, "%s", rig_got.raw.data);
    ck_assert_int_eq(rig_get("/v1/models"), 503);
    ck_assert_int_eq(rig_get("/health"), 503);
    ck_assert_str_eq(rig_text_at("status"), "draining");
    ck_assert_int_eq(rig_get("/metrics"), 200);
    ck_assert_int_eq(atomic_load(&server_state.n_working), 0);
    ck_assert(fastcgi_is_alone());
}
END_TEST

START_TEST(health_models_and_metrics)
{
    ck_assert_int_eq(rig_get("/health"), 200);
    ck_assert_str_eq(rig_text_at("status"), "ok");
    ck_assert_str_eq(rig_text_at("model"), "tiny");
    ck_assert_int_eq(rig_get("/v1/models"), 200);
    ck_assert_str_eq(rig_text_at("object"), "list");
    ck_assert_str_eq(rig_text_at("data.0.id"), "tiny");
    ck_assert_int_eq(rig_number_at("data.0.max_model_len"), RIG_CTX);
    ck_assert_int_eq(rig_number_at("data.0.meta.n_vocab"), RIG_VOCAB);
    ck_assert_int_eq(rig_get("/v1/models/tiny?x=1"), 200);
    ck_assert_str_eq(rig_text_at("object"), "model");
    ck_assert_int_eq(rig_get("/v1/models/tin%79"), 200);
    ck_assert_int_eq(rig_get("/v1/models/other"), 404);
    ck_assert_str_eq(rig_text_at("error.code"), "model_not_found");
    ck_assert_int_eq(rig_get("/metrics"), 200);
    ck_assert_msg(strstr(rig_got.body, "infcgi_requests_total{endpoint=\"/v1/models/\",status=\"2xx\"} 2\n") != NULL,
                  "%s", rig_got.body);
    server_state.is_draining = true;
    ck_assert_int_eq(rig_get("/health"), 503);
    ck_assert_str_eq(rig_text_at("status"), "draining");
}
END_TEST

START_TEST(tokens_there_and_back)
{
    ck_assert_int_eq(rig_post("/tokenize", "{\"content\":\"a\xC3\xA9<|im_end|>\",\"with_pieces\":true}"), 200);
    ck_assert_int_eq(rig_number_at("count"), 4);
    ck_assert_int_eq(rig_number_at("tokens.3.id"), RIG_EOS);
    ck_assert_str_eq(rig_text_at("tokens.3.piece"), "<|im_end|>");
    ck_assert_int_eq(rig_post("/tokenize", "{\"prompt\":\"a<|im_end|>\",\"parse_special\":false}"), 200);
    ck_assert_int_eq(rig_number_at("count"), 11);
    ck_assert_int_eq(rig_post("/tokenize", "{\"content\":\"\"}"), 200);
    ck_assert_int_eq(rig_number_at("count"), 0);
    ck_assert_int_eq(rig_post("/detokenize", "{\"tokens\":[97,195,169,257,195]}"), 200);
    ck_assert_str_eq(rig_text_at("content"), "a\xC3\xA9<|im_end|>\xEF\xBF\xBD");
    ck_assert_str_eq(rig_text_at("prompt"), rig_text_at("content"));
    ck_assert_int_eq(rig_post("/detokenize", "{\"tokens\":[]}"), 200);
    rig_refuse("/tokenize", "{}", 400, "missing_required_parameter", "content");
    rig_refuse("/tokenize", "{\"content\":null}", 400, "missing_required_parameter", "content");
    rig_refuse("/tokenize", "{\"content\":5}", 400, "invalid_type", "content");
    rig_refuse("/tokenize", "{\"prompt\":[\"x\"]}", 400, "invalid_type", "prompt");
    rig_refuse("/tokenize", "{\"content\":\"a\",\"prompt\":{}}", 400, "invalid_type", "prompt");
    rig_refuse("/tokenize", "{\"content\":\"x\",\"add_special\":1}", 400, "invalid_type", "add_special");
    rig_refuse("/tokenize", "{\"content\":\"x\",\"model\":\"other\"}", 404, "model_not_found", "model");
    rig_refuse("/detokenize", "{}", 400, "missing_required_parameter", "tokens");
    rig_refuse("/detokenize", "{\"tokens\":\"x\"}", 400, "invalid_type", "tokens");
    rig_refuse("/detokenize", "{\"tokens\":[1,258]}", 400, "invalid_value", "tokens[1]");
    ck_assert_str_eq(rig_text_at("error.message"), "tokens[1]: expected a token id of this model, 0 to 257, found 258");
    rig_refuse("/detokenize", "{\"tokens\":[-1]}", 400, "invalid_value", "tokens[0]");
    rig_refuse("/detokenize", "{\"tokens\":[1,2,2147483648]}", 400, "invalid_value", "tokens[2]");
    rig_refuse("/detokenize", "{\"tokens\":[\"1\"]}", 400, "invalid_type", "tokens[0]");
}
END_TEST

START_TEST(a_path_of_several_methods_is_one_sample)
{
    static const char sample[] = "endpoint=\"/v1/responses/\",status=\"4xx\"";
    ck_assert_int_eq(rig_get("/v1/responses/resp_none"), 404);
    ck_assert_int_eq(rig_ask("DELETE", "/v1/responses/resp_none", NULL, "", 0), 404);
    ck_assert_int_eq(rig_get("/metrics"), 200);
    const char *first = strstr(rig_got.body, sample);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, sample));
}
END_TEST

/* `open` n times, and never closed. */
static void refuse_deep(const char *head, const char *open, size_t n)
{
    struct buf body;
    buf_init(&body, 0, MEM_GENERAL);
    buf_puts(&body, head);
    for (size_t i = 0; i < n; i++) {
        buf_puts(&body, open);
    }
    rig_refuse(CHAT, body.data, 400, "json_too_deep", NULL);
    buf_fini(&body);
}

/* Rows C09, C10 and C11 of the catalogue of bad inputs. */
START_TEST(bad_messages)
{
    static const struct {
        const char *messages, *code, *param;
    } cases[] = {
        {"null", "missing_required_parameter", "messages"},
        {"\"Hi\"", "invalid_type", "messages"},
        {"{}", "invalid_type", "messages"},
        {"[]", "invalid_value", "messages"},
        {"[5]", "invalid_type", "messages[0]"},
        {"[null]", "invalid_type", "messages[0]"},
        {"[{}]", "missing_required_parameter", "messages[0].role"},
        {"[{\"role\":5,\"content\":\"x\"}]", "invalid_type", "messages[0].role"},
        {"[{\"role\":\"king\",\"content\":\"x\"}]", "invalid_value", "messages[0].role"},
        {"[{\"role\":\"user\"}]", "missing_required_parameter", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":null}]", "missing_required_parameter", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":5}]", "invalid_type", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":{}}]", "invalid_type", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":true}]", "invalid_type",
         "messages[1].content"},
        {"[{\"role\":\"user\",\"content\":[5]}]", "invalid_value", "messages[0].content[0]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "invalid_value", "messages[0].content[0].text"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"text\":\"x\"}]}]", "invalid_value",
         "messages[0].content[0].refusal"},
        {"[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]", "invalid_value", "messages[0].content[0].type"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"image_url\",\"image_url\":{"
         "\"url\":\"x\"}}]}]",
         "invalid_value", "messages[0].content[1].type"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}]", "invalid_value",
         "messages[0].content[0].type"},
        {"[{\"role\":\"tool\",\"content\":\"x\"}]", "invalid_value", "messages[0].role"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"tool\",\"content\":\"x\"}]", "invalid_value",
         "messages[1].role"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"function\",\"content\":\"x\"}]", "invalid_value",
         "messages[1].role"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"messages\":%s}", cases[i].messages);
        rig_refuse(CHAT, body, 400, cases[i].code, cases[i].param);
        ck_assert_msg(strstr(rig_text_at("error.message"), "expected") != NULL &&
                          strstr(rig_text_at("error.message"), ", found ") != NULL,
                      "%s", rig_got.body);
    }
    rig_refuse(CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", 400, "invalid_value",
               "messages[0].role");
    ck_assert_str_eq(rig_text_at("error.message"),
                     "messages[0].role: expected one of system, developer, user, assistant, tool, found 'king'");
    rig_refuse(CHAT, "{}", 400, "missing_required_parameter", "messages");
    rig_refuse(CHAT, "{" HI ",\"chat_template_kwargs\":5}", 400, "invalid_type", "chat_template_kwargs");
    rig_refuse(CHAT, "{" HI ",\"chat_template_kwargs\":{\"messages\":5}}", 400, "unsupported_parameter",
               "chat_template_kwargs");
    rig_refuse(CHAT, "{" HI ",\"chat_template_kwargs\":{\"tools\":[]}}", 400, "unsupported_parameter",
               "chat_template_kwargs");
    rig_refuse(CHAT, "{" HI ",\"chat_template_kwargs\":{\"add_generation_prompt\":false}}", 400,
               "unsupported_parameter", "chat_template_kwargs");
    rig_refuse(CHAT, "{" HI ",\"chat_template\":\"{{ messages }}\"}", 400, "unsupported_parameter", "chat_template");
    rig_refuse("/v1/completions", "{\"prompt\":\"a\",\"chat_template\":\"x\"}", 400, "unsupported_parameter",
               "chat_template");
    rig_refuse(CHAT, "{" HI ",\"continue_final_message\":true}", 400, "invalid_value", "messages");
    rig_refuse(CHAT, "{" HI ",\"continue_final_message\":1}", 400, "invalid_type", "continue_final_message");
    rig_refuse(CHAT, "{" HI ",\"add_generation_prompt\":1}", 400, "invalid_type", "add_generation_prompt");
    refuse_deep("{" HI ",\"chat_template_kwargs\":", "{\"a\":", 1000);
    refuse_deep("{\"messages\":", "[", 100000);
    rig_refuse(CHAT, "{" HI ",\"temperature\":3}", 400, "invalid_value", "temperature");
    rig_refuse(CHAT, "{" HI ",\"temperature\":1e400}", 400, "invalid_value", "temperature");
    rig_refuse(CHAT, "{" HI ",\"model\":\"gpt-9\"}", 404, "model_not_found", "model");
    rig_refuse(CHAT, "", 400, "invalid_json", NULL);
    rig_refuse(CHAT, "{\"n\":1,\"n\":1}", 400, "duplicate_key", NULL);
    rig_refuse(CHAT, "{\"a\":\"\xFF\"}", 400, "invalid_utf8", NULL);
}
END_TEST

/* A name with a NUL and more after it is not that name, and the message shows all of it. */
START_TEST(names_do_not_end_at_a_nul)
{
    static const struct {
        const char *fields, *code, *param;
    } cases[] = {
        {"\"messages\":[{\"role\":\"user\\u0000x\",\"content\":\"x\"}]", "invalid_value", "messages[0].role"},
        {"\"messages\":[{\"role\":\"developer\\u0000x\",\"content\":\"x\"}]", "invalid_value", "messages[0].role"},
        {"\"messages\":[{\"role\":\"assistant\\u0000x\"}]", "invalid_value", "messages[0].role"},
        {"\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"tool\\u0000x\",\"content\":\"x\"}]",
         "invalid_value", "messages[1].role"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000x\",\"text\":\"x\"}]}]", "invalid_value",
         "messages[0].content[0].type"},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"refusal\\u0000x\",\"refusal\":\"x\"}]}]",
         "invalid_value", "messages[0].content[0].type"},
        {HI ",\"tool_choice\":\"none\\u0000x\"", "invalid_value", "tool_choice"},
        {HI ",\"tool_choice\":\"auto\\u0000x\"", "invalid_value", "tool_choice"},
        {HI ",\"tool_choice\":\"required\\u0000x\"", "invalid_value", "tool_choice"},
        {HI ",\"response_format\":{\"type\":\"text\\u0000x\"}", "unsupported_parameter", "response_format"},
        {HI ",\"model\":\"tiny\\u0000x\"", "invalid_value", "model"},
        {HI ",\"cache_salt\":\"a\\u0000x\"", "invalid_value", "cache_salt"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[512];
        snprintf(body, sizeof body, "{%s}", cases[i].fields);
        rig_refuse(CHAT, body, 400, cases[i].code, cases[i].param);
    }
    rig_refuse(CHAT, "{\"messages\":[{\"role\":\"user\\u0000x\",\"content\":\"x\"}]}", 400, "invalid_value",
               "messages[0].role");
    ck_assert_str_eq(rig_text_at("error.message"), "messages[0].role: expected one of system, developer, user, "
                                                   "assistant, tool, found 'user\\u0000x'");
    rig_refuse(CHAT, "{\"messages\\u0000x\":[]," HI "}", 400, "invalid_json", NULL);
    rig_refuse("/v1/embeddings", "{\"input\":\"x\",\"model\":\"tiny\\u0000x\"}", 400, "invalid_value", "model");
    rig_refuse("/tokenize", "{\"content\":\"x\",\"model\":\"tiny\\u0000x\"}", 400, "invalid_value", "model");
}
END_TEST

/* Row T12 among others. */
START_TEST(bad_prompts)
{
    static const struct {
        const char *prompt, *code, *param;
    } cases[] = {
        {"null", "missing_required_parameter", "prompt"},
        {"5", "invalid_type", "prompt"},
        {"{}", "invalid_type", "prompt"},
        {"[]", "invalid_value", "prompt"},
        {"\"\"", "invalid_value", "prompt"},
        {"[\"\"]", "invalid_value", "prompt"},
        {"[[]]", "invalid_value", "prompt"},
        {"[null]", "invalid_type", "prompt"},
        {"[\"a\",5]", "invalid_type", "prompt"},
        {"[5,\"a\"]", "invalid_type", "prompt[1]"},
        {"[5,1.5]", "invalid_type", "prompt[1]"},
        {"[5,258]", "invalid_value", "prompt[1]"},
        {"[-1]", "invalid_value", "prompt[0]"},
        {"[1,2,3,258]", "invalid_value", "prompt[3]"},
        {"[1,2,3,2147483648]", "invalid_value", "prompt[3]"},
        {"[1,4294967297]", "invalid_value", "prompt[1]"},
        {"[1,9223372036854775807]", "invalid_value", "prompt[1]"},
        {"[1,9223372036854775808]", "invalid_value", "prompt[1]"},
        {"[[5],[\"a\"]]", "invalid_type", "prompt[0]"},
        {"[[5],[[5]]]", "invalid_type", "prompt[0]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":%s}", cases[i].prompt);
        rig_refuse("/v1/completions", body, 400, cases[i].code, cases[i].param);
    }
    struct buf many;
    buf_init(&many, 0, MEM_GENERAL);
    for (int i = 0; i < 257; i++) {
        buf_puts(&many, i == 0 ? "{\"prompt\":[\"a\"" : ",\"a\"");
    }
    buf_puts(&many, "]}");
    rig_refuse("/v1/completions", many.data, 400, "invalid_value", "prompt");
    buf_fini(&many);
    rig_refuse("/v1/completions", "{\"prompt\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"],\"n\":128}", 400,
               "invalid_value", "n");
    char text[RIG_CTX * 2 + 32];
    memset(text, 'a', sizeof text);
    memcpy(text, "{\"prompt\":\"", 11);
    memcpy(text + sizeof text - 3, "\"}", 3);
    rig_refuse("/v1/completions", text, 400, "context_length_exceeded", "prompt");
    ck_assert_msg(strstr(rig_text_at("error.message"), "128") != NULL, "%s", rig_got.body);
    char chat[RIG_CTX * 2 + 64];
    snprintf(chat, sizeof chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"%.*s\"}]}", RIG_CTX, text + 11);
    rig_refuse(CHAT, chat, 400, "context_length_exceeded", "messages");
}
END_TEST

START_TEST(unknown_fields_when_strict)
{
    rig_refuse(CHAT, "{" HI ",\"temperatur\":1}", 400, "unknown_parameter", "temperatur");
    rig_refuse("/v1/completions", "{\"prompt\":\"a\",\"x\":null}", 400, "unknown_parameter", "x");
    rig_refuse("/tokenize", "{\"content\":\"a\",\"x\":1}", 400, "unknown_parameter", "x");
    ck_assert_int_eq(rig_post(CHAT, "{" HI ",\"max_tokens\":1,\"user\":\"u\",\"store\":true,\"model\":\"tiny\"}"), 200);
}
END_TEST

/* OpenAI's API wants the name; llama-server's knows none. */
START_TEST(models_are_named_when_strict)
{
    rig_refuse(CHAT, "{" HI ",\"max_tokens\":1}", 400, "missing_required_parameter", "model");
    rig_refuse(CHAT, "{" HI ",\"max_tokens\":1,\"model\":\"\"}", 400, "missing_required_parameter", "model");
    rig_refuse("/v1/completions", "{\"prompt\":\"a\"}", 400, "missing_required_parameter", "model");
    rig_refuse("/v1/embeddings", "{\"input\":\"a\"}", 400, "missing_required_parameter", "model");
    ck_assert_int_eq(rig_post("/tokenize", "{\"content\":\"a\"}"), 200);
    ck_assert_int_eq(rig_post("/completion", "{\"prompt\":\"a\",\"n_predict\":1}"), 200);
}
END_TEST

/* --- answers ---------------------------------------------------------------------------------------------------- */

/* With row C01: what has no template serves all but chat. */
START_TEST(chat_without_a_template_is_refused)
{
    rig_use_template(NULL);
    rig_refuse(CHAT, "{" HI "}", 400, "no_chat_template", NULL);
    ck_assert_msg(strstr(rig_text_at("error.message"), "--chat-template NAME|FILE") != NULL, "%s", rig_got.body);
    rig_refuse(CHAT, "{" HI ",\"stream\":true}", 400, "no_chat_template", NULL);
    rig_refuse(CHAT, "{\"messages\":5}", 400, "invalid_type",
               "messages"); /* what is wrong with the request comes first */
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}"), 200);
    ck_assert_int_gt(rig_number_at("usage.completion_tokens"), 0);
}
END_TEST

/* A template that cannot be rendered spoils chat alone, and what it says is JSON of one short line. */
START_TEST(a_template_that_fails_says_where)
{
    static const struct {
        const char *source, *says;
    } cases[] = {
        {"{{ messages[0].text.x }}", "1:21: 'dict object' has no attribute 'text'"},
        {"a\n{{ raise_exception('roles must alternate, not \\\"' ~ messages[0].role ~ '\\\"') }}",
         "roles must alternate, not \"user\""},
        {"{{ raise_exception(messages[0].content * 1000) }}", "HiHiHi"},
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 1000000 steps"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        rig_use_template(cases[i].source);
        rig_refuse(CHAT, "{" HI "}", 400, "template_error", NULL);
        ck_assert_msg(strstr(rig_text_at("error.message"), cases[i].says) != NULL, "%s", rig_got.body);
        ck_assert_msg(strlen(rig_text_at("error.message")) < 300, "%s", rig_got.body);
        ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}"), 200);
    }
}
END_TEST

/* Row G30: what is left of the file is not what was loaded. */
START_TEST(a_model_file_that_is_cut_is_noticed)
{
    const char *path = folder_file("tiny.gguf");
    struct stat st;
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":[97],\"max_tokens\":1}"), 200);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(truncate(path, st.st_size - 1), 0);
    static const char *const bodies[] = {"{\"prompt\":[97],\"max_tokens\":1}",
                                         "{\"prompt\":[97],\"max_tokens\":1,\"stream\":true}"};
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        ck_assert_int_eq(rig_post("/v1/completions", bodies[i]), 500);
        ck_assert_str_eq(rig_text_at("error.code"), "io_error");
        ck_assert_msg(strstr(rig_text_at("error.message"), "expected ") != NULL, "%s", rig_got.body);
    }
    ck_assert_int_eq(rig_get("/health"), 503);
    ck_assert_str_eq(rig_text_at("status"), "file_cut");
}
END_TEST

START_TEST(a_whole_chat_answer)
{
    ck_assert_int_eq(rig_post(CHAT, "{" HI
                                    ",\"max_tokens\":4,\"temperature\":0,\"ignore_eos\":true,\"n\":2,\"logprobs\":true,"
                                    "\"top_logprobs\":2,\"return_token_ids\":true,\"unknown\":1}"),
                     200);
    ck_assert_msg(strncmp(rig_text_at("id"), "chatcmpl-", 9) == 0, "%s", rig_got.body);
    ck_assert_str_eq(rig_text_at("object"), "chat.completion");
    ck_assert_str_eq(rig_text_at("model"), "tiny");
    ck_assert_msg(strncmp(rig_text_at("system_fingerprint"), "b0.", 3) == 0, "%s", rig_got.body);
    ck_assert_uint_eq(json_array_size(rig_at("choices")), 2);
    ck_assert_int_eq(rig_number_at("choices.1.index"), 1);
    ck_assert_str_eq(rig_text_at("choices.0.message.role"), "assistant");
    ck_assert_str_eq(rig_text_at("choices.0.message.content"), rig_text_at("choices.1.message.content")); /* greedy */
    ck_assert(json_is_null(rig_at("choices.0.message.refusal")));
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "length");
    ck_assert_uint_eq(json_array_size(rig_at("choices.0.logprobs.content")), 4);
    ck_assert_uint_eq(json_array_size(rig_at("choices.0.logprobs.content.0.top_logprobs")), 2);
    ck_assert(json_equal(rig_at("choices.0.logprobs.content.0.bytes"),
                         rig_at("choices.0.logprobs.content.0.top_logprobs.0.bytes")));
    ck_assert(json_real_value(rig_at("choices.0.logprobs.content.0.logprob")) < 0);
    ck_assert_uint_eq(json_array_size(rig_at("choices.0.token_ids")), 4);
    /* <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n */
    ck_assert_int_eq(rig_number_at("usage.prompt_tokens"), 1 + 5 + 2 + 1 + 1 + 1 + 10);
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 8);
    ck_assert_int_eq(rig_number_at("usage.total_tokens"), 29);
    ck_assert(json_is_integer(rig_at("usage.prompt_tokens_details.cached_tokens")));
}
END_TEST

START_TEST(content_parts_equal_their_text)
{
    static const char *const same[] = {
        "{\"messages\":[{\"role\":\"system\",\"content\":\"ab\"}],\"max_tokens\":0}",
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"ab\"}],\"max_tokens\":0}",
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
        "\"text\":\"b\"}]}],"
        "\"max_tokens\":0}",
    };
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        ck_assert_int_eq(rig_post(CHAT, same[i]), 200);
        ck_assert_msg(rig_number_at("usage.prompt_tokens") == 1 + 7 + 2 + 1 + 1 + 1 + 10, "%s: %s", same[i],
                      rig_got.body);
    }
    /* what users write is never a special token */
    ck_assert_int_eq(rig_post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}],\"max_tokens\":0}"),
                     200);
    ck_assert_int_eq(rig_number_at("usage.prompt_tokens"), 1 + 5 + 10 + 1 + 1 + 1 + 10);
    ck_assert_int_eq(
        rig_post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[]},{\"role\":\"assistant\",\"content\":null}],"
                       "\"max_tokens\":0}"),
        200);
    ck_assert_int_eq(
        rig_post(CHAT,
                 "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"tool\",\"content\":\"1\"},"
                 "{\"role\":\"tool\",\"content\":\"2\"},{\"role\":\"system\",\"content\":\"3\"}],\"max_tokens\":0}"),
        200);
}
END_TEST

START_TEST(a_whole_completion)
{
    ck_assert_int_eq(rig_post("/v1/completions",
                              "{\"prompt\":[\"ab\",\"cde\"],\"max_tokens\":3,\"temperature\":0,\"ignore_eos\":true,"
                              "\"echo\":true,\"logprobs\":1,\"return_token_ids\":true}"),
                     200);
    ck_assert_msg(strncmp(rig_text_at("id"), "cmpl-", 5) == 0, "%s", rig_got.body);
    ck_assert_str_eq(rig_text_at("object"), "text_completion");
    ck_assert_uint_eq(json_array_size(rig_at("choices")), 2);
    ck_assert_msg(strncmp(rig_text_at("choices.1.text"), "cde", 3) == 0, "%s", rig_got.body);
    ck_assert_uint_eq(json_array_size(rig_at("choices.0.logprobs.tokens")), 5);
    ck_assert_str_eq(rig_text_at("choices.0.logprobs.tokens.1"), "b");
    ck_assert(json_is_null(rig_at("choices.0.logprobs.token_logprobs.0")) &&
              json_is_real(rig_at("choices.0.logprobs.token_logprobs.1")));
    ck_assert(json_is_null(rig_at("choices.0.logprobs.top_logprobs.0")));
    ck_assert_int_eq(rig_number_at("choices.0.logprobs.text_offset.2"), 2);
    ck_assert_uint_eq(json_array_size(rig_at("choices.1.prompt_token_ids")), 3);
    ck_assert_int_eq(rig_number_at("choices.1.prompt_token_ids.0"), 'c');
    ck_assert_int_eq(rig_number_at("usage.prompt_tokens"), 5);
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 6);
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":[97,98],\"max_tokens\":0,\"echo\":true}"), 200);
    ck_assert_str_eq(rig_text_at("choices.0.text"), "ab");
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 0);
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":[[97],[98]],\"max_tokens\":1}"), 200);
    ck_assert_uint_eq(json_array_size(rig_at("choices")), 2);
}
END_TEST

/* Each event is one `data:` line and a blank one; all but the last hold JSON. Returns how many. */
static int check_events(json_t **last)
{
    int n = 0;
    *last = NULL;
    const char *p = rig_got.body, *end;
    for (; strcmp(p, "data: [DONE]\n\n") != 0; p = end + 2) {
        end = strstr(p, "\n\n");
        ck_assert_msg(end != NULL && strncmp(p, "data: {", 7) == 0, "no event: %.200s", p);
        json_decref(*last);
        *last = json_loadb(p + 6, (size_t)(end - p) - 6, JSON_ALLOW_NUL, NULL);
        ck_assert_msg(*last != NULL, "no JSON: %.*s", (int)(end - p), p);
        n++;
    }
    return n;
}

START_TEST(a_streamed_chat_answer)
{
    json_t *last;
    ck_assert_int_eq(
        rig_post(CHAT,
                 "{" HI
                 ",\"max_tokens\":6,\"temperature\":0,\"logit_bias\":{\"120\":100},\"logprobs\":true,\"stream\":true,"
                 "\"stream_options\":{\"include_usage\":true}}"),
        200);
    ck_assert_msg(strstr(rig_got.raw.data, "\r\nContent-Type: text/event-stream; charset=utf-8\r\n") != NULL, "%s",
                  rig_got.raw.data);
    ck_assert_int_eq(check_events(&last), 1 + 6 + 1 + 1); /* role, tokens, finish, usage */
    ck_assert_uint_eq(json_array_size(json_object_get(last, "choices")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(last, "usage"), "completion_tokens")), 6);
    json_decref(last);
    static const char first[] = "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},";
    ck_assert_msg(strstr(rig_got.body, first) != NULL, "%s", rig_got.body);
    ck_assert_int_eq(rig_post(CHAT, "{" HI ",\"max_tokens\":2,\"ignore_eos\":true,\"stream\":true,\"n\":3}"), 200);
    check_events(&last);
    json_decref(last);
    ck_assert_msg(strstr(rig_got.body, "\"usage\"") == NULL, "%s", rig_got.body);
    int finished = 0;
    for (const char *p = rig_got.body; (p = strstr(p, "\"finish_reason\":\"length\"")) != NULL; p++) {
        finished++;
    }
    ck_assert_int_eq(finished, 3);
}
END_TEST

START_TEST(a_streamed_answer_says_what_a_whole_one_says)
{
    static const char rest[] = ",\"max_tokens\":24,\"temperature\":1,\"seed\":7,\"ignore_eos\":true";
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\":\"ab\"%s}", rest);
    ck_assert_int_eq(rig_post("/v1/completions", body), 200);
    struct buf whole, joined;
    buf_init(&whole, 0, MEM_GENERAL);
    buf_init(&joined, 0, MEM_GENERAL);
    buf_append(&whole, json_string_value(rig_at("choices.0.text")), json_string_length(rig_at("choices.0.text")));
    ck_assert_uint_ge(whole.len, 24);
    snprintf(body, sizeof body, "{\"prompt\":\"ab\"%s,\"stream\":true}", rest);
    ck_assert_int_eq(rig_post("/v1/completions", body), 200);
    ck_assert_msg(strncmp(rig_got.body, ": ok\n\n", 6) == 0, "%s",
                  rig_got.body); /* the head is pushed before the first token */
    for (const char *p = rig_got.body + 6, *end; strncmp(p, "data: {", 7) == 0; p = end + 2) {
        end = strstr(p, "\n\n");
        json_t *event = json_loadb(p + 6, (size_t)(end - p) - 6, JSON_ALLOW_NUL, NULL);
        json_t *text = json_object_get(json_array_get(json_object_get(event, "choices"), 0), "text");
        buf_append(&joined, json_string_value(text), json_string_length(text));
        json_decref(event);
    }
    ck_assert(joined.len == whole.len && memcmp(joined.data, whole.data, whole.len) == 0);
    buf_fini(&joined);
    buf_fini(&whole);
}
END_TEST

START_TEST(stop_strings_and_ids_end_a_generation)
{
    ck_assert_int_eq(rig_post("/v1/completions",
                              "{\"prompt\":\"ab\",\"max_tokens\":8,\"temperature\":0,\"logit_bias\":{\"120\":100}}"),
                     200);
    ck_assert_str_eq(rig_text_at("choices.0.text"), "xxxxxxxx");
    ck_assert_int_eq(
        rig_post(
            "/v1/completions",
            "{\"prompt\":\"ab\",\"max_tokens\":8,\"temperature\":0,\"logit_bias\":{\"120\":100},\"stop\":\"xxx\"}"),
        200);
    ck_assert_str_eq(rig_text_at("choices.0.text"), "");
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "stop");
    ck_assert_int_eq(rig_post("/v1/completions",
                              "{\"prompt\":\"ab\",\"max_tokens\":8,\"temperature\":0,\"logit_bias\":[["
                              "120,100]],\"stop_token_ids\":[120]}"),
                     200);
    ck_assert_str_eq(rig_text_at("choices.0.finish_reason"), "stop");
    ck_assert_int_eq(rig_number_at("usage.completion_tokens"), 1);
}
END_TEST

/* A client that leaves in the middle: the sequence is dropped, its pages are free, the next one is served. */
START_TEST(a_client_that_leaves_costs_no_pages)
{
    static const char body[] = "{\"prompt\":\"ab\",\"n\":8,\"n_predict\":-1,\"ignore_eos\":true,\"logit_bias\":{"
                               "\"257\":-100},\"stream\":true}";
    for (int i = 0; i < 4; i++) {
        close(rig_send("POST", "/v1/completions", NULL, body, sizeof body - 1));
    }
    struct sched_stats s = {.n_running = 1};
    for (int i = 0; i < 500 && (s.n_running + s.n_waiting + s.pages_held > 0 || fastcgi_n_active() > 0); i++) {
        usleep(10000);
        engine_get_stats(atomic_load(&server_state.engine), &s);
    }
    ck_assert(s.n_running == 0 && s.n_waiting == 0 && s.pages_held == 0);
    ck_assert_int_eq(rig_post("/v1/completions", "{\"prompt\":\"ab\",\"max_tokens\":1}"), 200);
}
END_TEST

START_TEST(requests_leave_no_memory_behind)
{
    static const char *const bodies[] = {
        "{" HI ",\"max_tokens\":4,\"logprobs\":true,\"top_logprobs\":3,\"n\":3,\"stop\":[\"q\"]}",
        "{" HI ",\"max_tokens\":4,\"stream\":true,\"logit_bias\":{\"1\":2}}",
        "{" HI ",\"top_p\":7}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[5]}]}",
        "{",
        "{" HI ",\"stop_token_ids\":[1,-1]}"};
    size_t live_before = mem_live_of(MEM_REQUEST);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
            rig_post(CHAT, bodies[i]);
        }
        rig_post("/v1/completions", "{\"prompt\":[\"a\",5]}");
        rig_post("/v1/completions", "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":2,\"logprobs\":2,\"echo\":true}");
        /* The scheduler frees a sequence after its stream is closed. */
        for (int i = 0; i < 300 && (fastcgi_n_active() > 0 || mem_live_of(MEM_REQUEST) > live_before); i++) {
            usleep(10000);
        }
        size_t live = mem_live_of(MEM_REQUEST);
        ck_assert_msg(live <= live_before, "%zu bytes of requests, %zu before", live, live_before);
    }
}
END_TEST

Suite *dispatch_suite(void)
{
    Suite *s = suite_create("dispatch");
    TCase *table = tcase_create("table"), *api = tcase_create("api"), *strict = tcase_create("strict"),
          *loading = tcase_create("loading");
    TCase *all[] = {table, api, strict, loading};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        tcase_set_tags(all[i], "fork");
    }
    tcase_add_test(table, methods_and_paths);
    tcase_add_test(table, rows);
    tcase_add_test(table, paths_are_decoded_once);
    tcase_add_checked_fixture(api, setup, rig_unserve);
    tcase_add_test(api, wrong_urls_methods_and_sizes);
    tcase_add_test(api, content_types);
    tcase_add_test(api, pages_of_other_origins_compute_nothing);
    tcase_add_test(api, keys);
    tcase_add_test(api, health_models_and_metrics);
    tcase_add_test(api, while_the_server_shuts_down);
    tcase_add_test(api, tokens_there_and_back);
    tcase_add_test(api, a_path_of_several_methods_is_one_sample);
    tcase_add_test(api, bad_messages);
    tcase_add_test(api, names_do_not_end_at_a_nul);
    tcase_add_test(api, bad_prompts);
    tcase_add_test(api, chat_without_a_template_is_refused);
    tcase_add_test(api, a_template_that_fails_says_where);
    tcase_add_test(api, a_model_file_that_is_cut_is_noticed);
    tcase_add_test(api, a_whole_chat_answer);
    tcase_add_test(api, content_parts_equal_their_text);
    tcase_add_test(api, a_whole_completion);
    tcase_add_test(api, a_streamed_chat_answer);
    tcase_add_test(api, a_streamed_answer_says_what_a_whole_one_says);
    tcase_add_test(api, stop_strings_and_ids_end_a_generation);
    tcase_add_test(api, a_client_that_leaves_costs_no_pages);
    tcase_add_test(api, requests_leave_no_memory_behind);
    tcase_add_checked_fixture(strict, setup_strict, rig_unserve);
    tcase_add_test(strict, unknown_fields_when_strict);
    tcase_add_test(strict, models_are_named_when_strict);
    tcase_add_checked_fixture(loading, setup_loading, rig_unserve);
    tcase_add_test(loading, while_the_model_loads);
    tcase_add_test(loading, where_the_model_cannot_be_loaded);
    suite_add_tcase(s, table);
    suite_add_tcase(s, api);
    suite_add_tcase(s, strict);
    suite_add_tcase(s, loading);
    return s;
}
