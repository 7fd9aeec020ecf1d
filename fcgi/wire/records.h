/* Filters the FastCGI records of a connection before libfcgi reads them. libfcgi takes parameters of any number and
 * length, and exits the process if it gets no memory for them. It sees only records of the request it serves: libfcgi
 * 2.4.2 writes answers to management records beyond their buffer, and after an empty record of another request skips
 * the contents of the next one. Also writes records for rejected requests and management records. [FastCGI 1.0
 * specification, sections 3 to 5]. Threads: a struct records belongs to one thread. */
#ifndef INFCGI_FCGI_RECORDS_H
#define INFCGI_FCGI_RECORDS_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RECORDS_MAX_PARAMS_BYTES = 64 << 10, /* nginx accepts request headers of 32 KiB by default */
    RECORDS_MAX_PARAMS = 256,
    RECORDS_MANAGED = 16, /* answered management records per connection */
    RECORDS_AHEAD = 7,    /* bytes held back until the header of a record is complete */
};

enum records_verdict {
    RECORDS_FINE,
    RECORDS_TOO_LONG,   /* too many bytes of parameters, or lengths that announce them */
    RECORDS_TOO_MANY,   /* too many parameters */
    RECORDS_OTHER_ROLE, /* authorizer or filter */
    RECORDS_ABORTED,    /* ABORT_REQUEST arrived for the request */
};

/* The state of parsing names and values. */
struct records_pairs {
    unsigned char lengths[8];
    size_t n_lengths;
    size_t left; /* remaining bytes of a name and value */
};

/* The state of one connection. Zero-initialise; all fields except the last six are private. */
struct records {
    unsigned char head[8]; /* header of the current record */
    size_t n_head;
    size_t content, padding; /* remaining bytes of it */
    struct records_pairs params;
    bool has_begun, is_kept;
    unsigned char managed[RECORDS_MANAGED]; /* types of the first management records, in order */
    size_t n_managed;
    enum records_verdict verdict;
    size_t params_bytes, n_params; /* so far */
    uint16_t request;              /* id in the BEGIN record */
};

/* Takes the next n received bytes and copies to out those for libfcgi: the records of the first request, and records
 * that would begin other requests, which libfcgi rejects. Removes padding, because libfcgi 2.4.2 takes that of a BEGIN
 * record for parameters. out has room for n + RECORDS_AHEAD bytes; in can overlap it, starting RECORDS_AHEAD bytes
 * after its start. Returns the number of bytes copied. Once r->verdict is not RECORDS_FINE it does not change. */
size_t records_judge(struct records *r, void *out, const void *in, size_t n);

/* Appends the answer to a management record of that type: to FCGI_GET_VALUES that no name is known, else
 * FCGI_UNKNOWN_TYPE. */
void records_write_managed(struct buf *out, unsigned char type);

/* Append STDOUT records with text[0..n) and the end of the stream, and END_REQUEST. */
void records_write_stdout(struct buf *out, uint16_t request, const void *text, size_t n);
enum records_status { RECORDS_COMPLETE = 0, RECORDS_UNKNOWN_ROLE = 3 };
void records_write_end(struct buf *out, uint16_t request, enum records_status status);

#endif
