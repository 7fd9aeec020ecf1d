/* SHA256SUMS, the list that sha256sum writes: one line "HEX  NAME" per file. Threads: pure functions. */
#ifndef INFCGI_CMD_MODEL_SUMS_H
#define INFCGI_CMD_MODEL_SUMS_H

#include "engine/base/err.h"

/* Compares the files of a model with the SHA256SUMS file in its folder: for a folder all listed files, for a GGUF file
 * the file and its other parts if it is split. Returns ERR_OK without such a list. ERR_CHECKSUM names a file with
 * another sum, or an invalid line; ERR_FILE, ERR_IO, ERR_NOMEM. info must not be NULL. */
MUST_CHECK enum err sums_check(const char *model, struct err_info *info);

#endif
