/* A temporary folder for the files of one test, made on first use. Check forks for each test, so there is one a
 * process. What cannot be done fails the running test. Threads: one at a time. */
#ifndef INFCGI_TESTS_FOLDER_H
#define INFCGI_TESTS_FOLDER_H

#include <stddef.h>

/* Its path, in a static buffer. */
const char *folder_path(void);

/* The path of a file in it, "x" or "sub/x", whether that is there or not; in a static buffer that lives until the next
 * call but three. */
const char *folder_file(const char *name);

/* Writes a file of n bytes, replacing one of that name; its path, as folder_file's. */
const char *folder_write(const char *name, const void *data, size_t n);
const char *folder_write_text(const char *name, const char *text);

/* The text of a file anywhere, up to cap - 1 bytes and a NUL; how many. */
size_t folder_read(const char *path, char *text, size_t cap);

int folder_n_files(void); /* of any kind, those whose names begin with a dot too */

void folder_clear(void);  /* removes what is in it, and in folders in it */
void folder_remove(void); /* the folder too; does nothing where there is none */

#endif
