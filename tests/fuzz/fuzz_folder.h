/* A folder with files made of the fuzzer's bytes, created on first use and removed when the process ends. Threads:
 * one. */
#ifndef INFCGI_TESTS_FUZZ_FOLDER_H
#define INFCGI_TESTS_FUZZ_FOLDER_H

#include "tests/fuzz/fuzz.h"

/* Returns the path of a file in it, or of the folder itself ("."), in a static buffer that the next call overwrites. */
const char *fuzz_folder_path(const char *name);

/* Writes a file; an empty text removes it. */
void fuzz_folder_write(const char *name, struct gguf_str text);

/* Reads the folder's tokenizer as for a model whose config.json has no members, and encodes `text` with it. */
void fuzz_folder_tokenizer(struct gguf_str text);

#endif
