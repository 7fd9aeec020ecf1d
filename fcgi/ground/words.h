/* Lists of words in one text. Threads: pure functions. */
#ifndef INFCGI_FCGI_WORDS_H
#define INFCGI_FCGI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether word[0..n) is one of the words in `list`, which are separated by `separator`. */
bool words_have(const char *list, char separator, const char *word, size_t n);

/* Appends a word to the list "a, b" in to[0..cap), which is cut at its end. to[0] is NUL for an empty list. */
void words_append(char *to, size_t cap, const char *word);

/* Replaces control characters with spaces, so that the text stays one line and cannot act on a terminal. */
void words_flatten(char *text);

#endif
