#include "fcgi/wire/origin.h"

#include "engine/base/compiler.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

static bool is_given(const char *text) { return text != NULL && text[0] != '\0'; }

bool origin_is_browser(const struct origin_facts *f) { return is_given(f->origin) || is_given(f->fetch_site); }

/* Returns the length of host[:port] without the scheme's default port. */
static size_t authority_length(const char *authority, bool is_tls)
{
    const char *port = is_tls ? ":443" : ":80";
    size_t n = strlen(authority), n_port = strlen(port);
    return n > n_port && strcmp(authority + n - n_port, port) == 0 ? n - n_port : n;
}

/* Returns the length of the host in host[:port]; an IPv6 address keeps its brackets. */
static size_t host_length(const char *authority)
{
    const char *end = authority[0] == '[' ? strchr(authority, ']') : NULL;
    return end != NULL ? (size_t)(end - authority) + 1 : strcspn(authority, ":");
}

static bool ends_with(const char *host, size_t n, const char *end)
{
    size_t n_end = strlen(end);
    return n > n_end && strncasecmp(host + n - n_end, end, n_end) == 0;
}

/* Returns whether no foreign name server can answer for this host: addresses, single labels and local domains. */
static bool is_local_name(const char *authority)
{
    static const char *const domains[] = {".localhost", ".local", ".internal"};
    size_t n = host_length(authority);
    bool is_address = authority[0] == '[' || strspn(authority, "0123456789.") == n;
    bool is_label = memchr(authority, '.', n) == NULL;
    bool is_local = false;
    for (size_t i = 0; i < ARRAY_LEN(domains); i++) {
        is_local = is_local || ends_with(authority, n, domains[i]);
    }
    return is_address || is_label || is_local;
}

/* An IPv6 socket that also accepts IPv4 shows addresses such as ::ffff:127.0.0.1. */
static bool is_loopback(const char *address)
{
    static const char mapped[] = "::ffff:";
    size_t n = sizeof mapped - 1;
    address += strncasecmp(address, mapped, n) == 0 ? n : 0;
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* Returns whether the page is this server's own, by the names of both. */
static bool is_own(const struct origin_facts *f)
{
    const char *authority = strstr(f->origin, "://");
    if (authority == NULL || !is_given(f->host)) {
        return false; /* "null": a page without an origin, such as a local file */
    }
    bool is_tls = strncasecmp(f->origin, "https:", 6) == 0;
    authority += 3;
    size_t n = authority_length(authority, is_tls);
    if (host_length(authority) == 0 || n != authority_length(f->host, is_tls) ||
        strncasecmp(authority, f->host, n) != 0) {
        return false;
    }
    bool can_be_rebound = f->is_keyless && is_given(f->server_addr) && is_loopback(f->server_addr);
    return !can_be_rebound || is_local_name(authority);
}

bool origin_is_allowed(const struct origin_facts *f)
{
    bool is_named = is_given(f->fetch_site);
    if (is_named && (strcmp(f->fetch_site, "same-origin") == 0 || strcmp(f->fetch_site, "none") == 0)) {
        return true;
    }
    if (!is_given(f->origin)) {
        return !is_named;
    }
    return (is_given(f->allowed) && strcmp(f->allowed, f->origin) == 0) || is_own(f);
}
