/* A temporary folder for the files of one test, created on first use. Check forks for each test, so there is one folder
 * per process. Failures fail the running test. Threads: one at a time. */
#ifndef INFCGI_TESTS_FOLDER_H
#define INFCGI_TESTS_FOLDER_H

#include <stddef.h>

/* Returns its path, in a static buffer. */
const char *folder_path(void);

/* Returns the path of a file in it, "x" or "sub/x", whether the file exists or not, in a static buffer that stays valid
 * for three more calls. */
const char *folder_file(const char *name);

/* Write a file of n bytes, replacing an existing one; return its path like folder_file. */
const char *folder_write(const char *name, const void *data, size_t n);
const char *folder_write_text(const char *name, const char *text);

/* Reads a file with any path: up to cap - 1 bytes and a NUL. Returns the bytes read. */
size_t folder_read(const char *path, char *text, size_t cap);

int folder_n_files(void); /* files of any kind, including hidden ones */

void folder_clear(void);  /* removes its contents, including folders */
void folder_remove(void); /* removes the folder too; does nothing if there is none */

#endif
