/* A folder of files that a fuzzer's bytes become, made on first use; it goes when the process ends. Threads: one. */
#ifndef INFCGI_TESTS_FUZZ_FOLDER_H
#define INFCGI_TESTS_FUZZ_FOLDER_H

#include "tests/fuzz/fuzz.h"

/* The path of a file in it, or of the folder itself ("."), in a static buffer that lives until the next call. */
const char *fuzz_folder_path(const char *name);

/* Writes a file; an empty one is removed. */
void fuzz_folder_write(const char *name, struct gguf_str text);

/* Reads the folder's tokenizer as a model of a config.json without members has it, and encodes `text` by it. */
void fuzz_folder_tokenizer(struct gguf_str text);

#endif
