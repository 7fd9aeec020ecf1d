/* SHA256SUMS, the list that sha256sum writes: one line "HEX  NAME" a file. Threads: pure functions. */
#ifndef INFCGI_FCGI_CMD_SUMS_H
#define INFCGI_FCGI_CMD_SUMS_H

#include "engine/base/err.h"

/* Compares the files of a model with the SHA256SUMS in its folder: for a folder all that the list names, for a GGUF
 * file it and the other parts of a split one. ERR_OK without such a list. ERR_CHECKSUM names a file with another sum,
 * or a line that is none; ERR_FILE, ERR_IO, ERR_NOMEM. info must be there. */
MUST_CHECK enum err sums_check(const char *model, struct err_info *info);

#endif
