/* Decides whether a web page may make this server compute, from what a browser tells of the page. Browsers send any page's
 * POST without asking first if its body looks like a form's, so the content type alone keeps no page out. Programs that are
 * no browsers send neither Origin nor Sec-Fetch-Site, and pass. Threads: pure functions.
 * [Fetch Standard, "Origin header"; Fetch Metadata Request Headers] */
#ifndef INFCGI_FCGI_ORIGIN_H
#define INFCGI_FCGI_ORIGIN_H

#include <stdbool.h>

/* What is known of a request's page. All texts are OPTIONAL, and "" equals NULL. */
struct origin_facts {
    const char *origin;      /* header Origin: scheme://host[:port], or "null" */
    const char *fetch_site;  /* header Sec-Fetch-Site; browsers send it over TLS and to localhost only */
    const char *host;        /* header Host: what the client thinks the server is called */
    const char *allowed;     /* the origin, if the web server's list has it: parameter INFCGI_ORIGIN */
    const char *server_addr; /* the address that the client reached: parameter SERVER_ADDR */
    bool is_keyless;         /* neither a key nor the web server says who asks */
};

/* True if a browser sent the request: any page's program may be behind it. */
bool origin_is_browser(const struct origin_facts *f);

/* True if the page may send requests that compute or change something: it is no browser's request, the web server's list has
 * the origin, or the page is this server's own. A page is the server's own if the browser says so (Sec-Fetch-Site), or if
 * Origin and Host name the same host and port. The names alone do not do if nobody needs a key, the client reached a
 * loopback address, and the name is no local one: any page can give this machine such a name (DNS rebinding). */
bool origin_is_allowed(const struct origin_facts *f);

#endif
