/* Decides whether a web page can make this server compute, from the browser's headers about the page. A browser sends
 * any page's POST without a preflight request if the body looks like a form, so the content type keeps no page out.
 * Programs other than browsers send neither Origin nor Sec-Fetch-Site, and pass. Threads: pure functions.
 * [Fetch Standard, "Origin header"; Fetch Metadata Request Headers] */
#ifndef INFCGI_FCGI_ORIGIN_H
#define INFCGI_FCGI_ORIGIN_H

#include <stdbool.h>

/* The headers and parameters of a request that concern its page. All texts are OPTIONAL, and "" equals NULL. */
struct origin_facts {
    const char *origin;      /* header Origin: scheme://host[:port], or "null" */
    const char *fetch_site;  /* header Sec-Fetch-Site; browsers send it over TLS and to localhost only */
    const char *host;        /* header Host: the server's name as the client knows it */
    const char *allowed;     /* the origin, if the web server's list has it: parameter INFCGI_ORIGIN */
    const char *server_addr; /* the address that the client reached: parameter SERVER_ADDR */
    bool is_keyless;         /* neither a key nor the web server identifies the client */
};

/* Returns true if a browser sent the request, possibly on behalf of any page. */
bool origin_is_browser(const struct origin_facts *f);

/* Returns true if the page may send requests that compute or change something: the request is not a browser's, the web
 * server's list has the origin, or the page is the server's own. A page is the server's own if the browser says so
 * (Sec-Fetch-Site), or if Origin and Host name the same host and port. Equal names are not sufficient if no key is
 * required, the client reached a loopback address, and the name is not local: any page can map such a name to this
 * machine (DNS rebinding). */
bool origin_is_allowed(const struct origin_facts *f);

#endif
