/* Paths are short: the folder's and a name. */
#include "tests/support/folder.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 192, N_PATHS = 4 };

static char folder[32];

const char *folder_path(void)
{
    if (folder[0] == '\0') {
        snprintf(folder, sizeof folder, "/tmp/infcgi-unit-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(folder));
    }
    return folder;
}

const char *folder_file(const char *name)
{
    static char paths[N_PATHS][PATH_BYTES];
    static int turn;
    char *path = paths[turn = (turn + 1) % N_PATHS];
    ck_assert_int_lt(snprintf(path, PATH_BYTES, "%s/%s", folder_path(), name), PATH_BYTES);
    return path;
}

const char *folder_write(const char *name, const void *data, size_t n)
{
    const char *path = folder_file(name);
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    ck_assert(fwrite(data, 1, n, f) == n && fclose(f) == 0);
    return path;
}

const char *folder_write_text(const char *name, const char *text) { return folder_write(name, text, strlen(text)); }

size_t folder_read(const char *path, char *text, size_t cap)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
    size_t n = fread(text, 1, cap - 1, f);
    text[n] = '\0';
    fclose(f);
    return n;
}

static bool is_entry(const char *name) { return strcmp(name, ".") != 0 && strcmp(name, "..") != 0; }

int folder_n_files(void)
{
    int n = 0;
    DIR *d = opendir(folder_path());
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        n += is_entry(e->d_name);
    }
    closedir(d);
    return n;
}

/* Removes the files in a folder. */
static void remove_files(const char *path)
{
    DIR *d = opendir(path);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char file[1024];
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        unlink(file); /* not what is a folder itself */
    }
    if (d != NULL) {
        closedir(d);
    }
}

void folder_clear(void)
{
    DIR *d = opendir(folder_path());
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (is_entry(e->d_name) && unlink(path) != 0) {
            remove_files(path);
            rmdir(path);
        }
    }
    closedir(d);
}

void folder_remove(void)
{
    if (folder[0] != '\0') {
        folder_clear();
        rmdir(folder);
        folder[0] = '\0';
    }
}
