/* Judges the FastCGI records of a connection as they come, before libfcgi keeps what they hold: it takes parameters of any
 * number and length, and ends the process when it gets no memory for them. Also writes records, for what is refused.
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
};

enum records_verdict {
    RECORDS_FINE,
    RECORDS_TOO_LONG,    /* more bytes of parameters than are taken, or lengths that say so */
    RECORDS_TOO_MANY,    /* more parameters */
    RECORDS_OTHER_ROLE,  /* authorizer or filter */
    RECORDS_BAD_LENGTHS, /* of a management record, beyond its end */
};

/* Names and values that are being read. */
struct records_pairs {
    unsigned char lengths[8];
    size_t n_lengths;
    size_t left; /* bytes of a name and value to come */
};

/* Of one connection. Zero-initialise; fields but the last four are private. */
struct records {
    unsigned char head[8]; /* of the record being read */
    size_t n_head;
    size_t content, padding; /* of it, to come */
    struct records_pairs params, managed;
    bool has_begun;
    enum records_verdict verdict;
    size_t params_bytes, n_params; /* found so far */
    uint16_t request;              /* id, of the BEGIN record */
};

/* Takes the next n bytes that came, and cuts padding out of them: libfcgi 2.4.2 takes that of a BEGIN record for
 * parameters. Returns how many bytes are left in data. Once r->verdict is not RECORDS_FINE it stays. */
size_t records_judge(struct records *r, void *data, size_t n);

/* Append STDOUT records that hold text[0..n), which ends the stream; and END_REQUEST. */
void records_write_stdout(struct buf *out, uint16_t request, const void *text, size_t n);
enum records_status { RECORDS_COMPLETE = 0, RECORDS_UNKNOWN_ROLE = 3 };
void records_write_end(struct buf *out, uint16_t request, enum records_status status);

#endif
