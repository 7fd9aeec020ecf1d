/* Not tests/support/folder.h: that one's assertions are Check's, which work in its tests alone. */
#include "tests/fuzz/fuzz_folder.h"

#include "engine/format/tokenizer_json.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* In memory where that is at hand: a disk takes a millisecond for a file that is written over. */
static char in_memory[] = "/dev/shm/infcgi-fuzz-XXXXXX", on_disk[] = "/tmp/infcgi-fuzz-XXXXXX";
static const char *folder;

static void remove_all(void)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        unlink(fuzz_folder_path(e->d_name)); /* fails for "." and ".." */
    }
    if (d != NULL) {
        closedir(d);
    }
    rmdir(folder);
}

const char *fuzz_folder_path(const char *name)
{
    static char path[512];
    if (folder == NULL) {
        folder = mkdtemp(in_memory);
        folder = folder != NULL ? folder : mkdtemp(on_disk);
        assert(folder != NULL);
        atexit(remove_all);
    }
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    assert(n > 0 && (size_t)n < sizeof path);
    return path;
}

void fuzz_folder_write(const char *name, struct gguf_str text)
{
    const char *path = fuzz_folder_path(name);
    if (text.len == 0) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "wb");
    assert(f != NULL);
    size_t n = fwrite(text.data, 1, text.len, f);
    int status = fclose(f);
    assert(n == text.len && status == 0);
}

void fuzz_folder_tokenizer(struct gguf_str text)
{
    struct err_info info = {0};
    struct gguf_build b;
    struct gguf *g = NULL;
    json_t *config = json_object();
    assert(config != NULL);
    gguf_build_init(&b);
    if (fuzz_is_ok(tokenizer_json_add(fuzz_folder_path("."), config, 0, &b, &info), &info) &&
        fuzz_is_ok(gguf_build_finish(&b, NULL, &g, &info), &info)) {
        fuzz_use_model(g, text);
    }
    gguf_close(&g);
    gguf_build_fini(&b);
    json_decref(config);
}
