/* Judges the FastCGI records of a connection as they come, before libfcgi keeps what they hold: it takes parameters of any
 * number and length, and ends the process when it gets no memory for them. What is not of the request that it serves it
 * does not see: libfcgi 2.4.2 writes answers to questions about the process beyond their buffer, and behind an empty
 * record of another request skips what the next one holds. Also writes records, for what is refused and for those.
 * [FastCGI 1.0 specification, sections 3 to 5]. Threads: a struct records belongs to one. */
#ifndef INFCGI_FCGI_RECORDS_H
#define INFCGI_FCGI_RECORDS_H

#include "engine/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RECORDS_MAX_PARAMS_BYTES = 64 << 10, /* nginx takes heads of 32 KiB as it is shipped */
    RECORDS_MAX_PARAMS = 256,
    RECORDS_MANAGED = 16, /* management records of a connection that are answered */
    RECORDS_AHEAD = 7,    /* bytes that may be held back until the head of a record is whole */
};

enum records_verdict {
    RECORDS_FINE,
    RECORDS_TOO_LONG,   /* more bytes of parameters than are taken, or lengths that say so */
    RECORDS_TOO_MANY,   /* more parameters */
    RECORDS_OTHER_ROLE, /* authorizer or filter */
    RECORDS_ABORTED,    /* ABORT_REQUEST came for the request */
};

/* Names and values that are being read. */
struct records_pairs {
    unsigned char lengths[8];
    size_t n_lengths;
    size_t left; /* bytes of a name and value to come */
};

/* Of one connection. Zero-initialise; fields but the last six are private. */
struct records {
    unsigned char head[8]; /* of the record being read */
    size_t n_head;
    size_t content, padding; /* of it, to come */
    struct records_pairs params;
    bool has_begun, is_kept;
    unsigned char managed[RECORDS_MANAGED]; /* types of the first management records, in their order */
    size_t n_managed;
    enum records_verdict verdict;
    size_t params_bytes, n_params; /* found so far */
    uint16_t request;              /* id, of the BEGIN record */
};

/* Takes the next n bytes that came, and copies to out those that libfcgi shall see: the records of the first request, and what
 * would begin others, which libfcgi refuses. Padding is cut out: libfcgi 2.4.2 takes that of a BEGIN record for parameters. Out has
 * room for n + RECORDS_AHEAD bytes; in may lie in it, RECORDS_AHEAD bytes behind its beginning. Returns how many were copied. Once
 * r->verdict is not RECORDS_FINE it stays. */
size_t records_judge(struct records *r, void *out, const void *in, size_t n);

/* Appends the answer to a management record of that type: to FCGI_GET_VALUES that no name is known, else FCGI_UNKNOWN_TYPE. */
void records_write_managed(struct buf *out, unsigned char type);

/* Append STDOUT records that hold text[0..n), which ends the stream; and END_REQUEST. */
void records_write_stdout(struct buf *out, uint16_t request, const void *text, size_t n);
enum records_status { RECORDS_COMPLETE = 0, RECORDS_UNKNOWN_ROLE = 3 };
void records_write_end(struct buf *out, uint16_t request, enum records_status status);

#endif
