/* Which pages may make the server compute, by the headers of their browsers. */
#include "engine/base/compiler.h"
#include "fcgi/wire/origin.h"

#include <check.h>
#include <stddef.h>

Suite *origin_suite(void);

START_TEST(pages)
{
    static const struct {
        struct origin_facts f;
        bool is_allowed;
    } cases[] = {
        /* programs */
        {{.host = "h:80"}, true},
        {{.origin = "", .fetch_site = "", .host = ""}, true},
        /* the server's own pages, by name */
        {{.origin = "http://localhost:8080", .host = "localhost:8080"}, true},
        {{.origin = "http://LocalHost:8080", .host = "localhost:8080"}, true},
        {{.origin = "https://llm.example", .host = "llm.example"}, true},
        {{.origin = "https://llm.example", .host = "llm.example:443"}, true},
        {{.origin = "http://llm.example:80", .host = "llm.example"}, true},
        {{.origin = "http://[::1]:8080", .host = "[::1]:8080"}, true},
        {{.origin = "http://llm.example", .host = "llm.example:443"}, false},
        {{.origin = "http://localhost:8081", .host = "localhost:8080"}, false},
        {{.origin = "http://localhost", .host = "localhost:8080"}, false},
        {{.origin = "http://localhost.evil.example", .host = "localhost"}, false},
        {{.origin = "http://evil.example", .host = "localhost:8080"}, false},
        {{.origin = "http://", .host = ""}, false},
        {{.origin = "http://:80", .host = ":80"}, false},
        {{.origin = "http://localhost", .host = NULL}, false},
        {{.origin = "localhost:8080", .host = "localhost:8080"}, false},
        {{.origin = "null", .host = "null"}, false},
        {{.origin = "null", .allowed = ""}, false},
        /* what the browser says of the page */
        {{.origin = "https://front.example", .host = "behind:8080", .fetch_site = "same-origin"}, true},
        {{.host = "h", .fetch_site = "none"}, true},
        {{.host = "h", .fetch_site = "cross-site"}, false},
        {{.host = "h", .fetch_site = "same-site"}, false},
        {{.origin = "https://a.example", .host = "b.example", .fetch_site = "same-site"}, false},
        /* nginx's list */
        {{.origin = "https://a.example",
          .host = "b.example",
          .allowed = "https://a.example",
          .fetch_site = "cross-site"},
         true},
        {{.origin = "https://a.example", .host = "b.example", .allowed = "https://c.example"}, false},
        /* a foreign name for this machine */
        {{.origin = "http://evil.example:8080",
          .host = "evil.example:8080",
          .server_addr = "127.0.0.1",
          .is_keyless = true},
         false},
        {{.origin = "http://evil.example", .host = "evil.example", .server_addr = "::1", .is_keyless = true}, false},
        {{.origin = "http://evil.example",
          .host = "evil.example",
          .server_addr = "::ffff:127.0.0.1",
          .is_keyless = true},
         false},
        {{.origin = "http://llm.example", .host = "llm.example", .server_addr = "::ffff:192.0.2.1", .is_keyless = true},
         true},
        {{.origin = "http://127.0.0.1.evil.example",
          .host = "127.0.0.1.evil.example",
          .server_addr = "127.0.0.1",
          .is_keyless = true},
         false},
        {{.origin = "http://evil.example",
          .host = "evil.example",
          .server_addr = "127.0.0.1",
          .is_keyless = true,
          .allowed = "http://evil.example"},
         true},
        {{.origin = "http://llm.example", .host = "llm.example", .server_addr = "127.0.0.1"}, true},
        {{.origin = "http://llm.example", .host = "llm.example", .server_addr = "192.0.2.1", .is_keyless = true}, true},
        {{.origin = "http://127.0.0.1:8080", .host = "127.0.0.1:8080", .server_addr = "127.0.0.1", .is_keyless = true},
         true},
        {{.origin = "http://[::1]:8080", .host = "[::1]:8080", .server_addr = "::1", .is_keyless = true}, true},
        {{.origin = "http://localhost:8080", .host = "localhost:8080", .server_addr = "127.0.0.1", .is_keyless = true},
         true},
        {{.origin = "http://chat.localhost:8080",
          .host = "chat.localhost:8080",
          .server_addr = "127.0.0.1",
          .is_keyless = true},
         true},
        {{.origin = "http://box:8080", .host = "box:8080", .server_addr = "127.0.0.1", .is_keyless = true}, true},
        {{.origin = "http://box.local", .host = "box.local", .server_addr = "127.0.0.1", .is_keyless = true}, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct origin_facts *f = &cases[i].f;
        ck_assert_msg(origin_is_allowed(f) == cases[i].is_allowed, "case %zu: origin %s, host %s", i,
                      f->origin != NULL ? f->origin : "-", f->host != NULL ? f->host : "-");
    }
    ck_assert(!origin_is_browser(&cases[0].f));
    ck_assert(origin_is_browser(&(struct origin_facts){.origin = "null"}));
    ck_assert(origin_is_browser(&(struct origin_facts){.fetch_site = "none"}));
}
END_TEST

Suite *origin_suite(void)
{
    Suite *s = suite_create("origin");
    TCase *c = tcase_create("origin");
    tcase_add_test(c, pages);
    suite_add_tcase(s, c);
    return s;
}
