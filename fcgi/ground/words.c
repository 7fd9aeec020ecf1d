#include "fcgi/ground/words.h"

#include <stdio.h>
#include <string.h>

bool words_have(const char *list, char separator, const char *word, size_t n)
{
    const char separators[] = {separator, '\0'};
    for (size_t length; *list != '\0'; list += length + (list[length] != '\0')) {
        length = strcspn(list, separators);
        if (length == n && memcmp(list, word, n) == 0) {
            return true;
        }
    }
    return false;
}

void words_append(char *to, size_t cap, const char *word)
{
    size_t n = strlen(to);
    snprintf(to + n, cap - n, "%s%s", n > 0 ? ", " : "", word);
}

void words_flatten(char *text)
{
    for (char *p = text; *p != '\0'; p++) {
        *p = (unsigned char)*p < 0x20 || *p == 0x7F ? ' ' : *p;
    }
}
