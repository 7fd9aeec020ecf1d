/* Modified copies of golden SafeTensors folders, in the folder of folder.h, and a test of models that run out of
 * memory. Failures fail the running test. Threads: one at a time. */
#ifndef INFCGI_TESTS_GOLDEN_FOLDER_H
#define INFCGI_TESTS_GOLDEN_FOLDER_H

/* Copies tests/golden/models/NAME.hf with the member `key` of config.json set to `value`, JSON; NULL: removed. key
 * NULL: the members of the object `value`, recursively, replace those of config.json. The text "INFINITY" in it becomes
 * the bare Infinity that Python writes. Returns the path, like folder_path; folder_remove removes it. */
const char *golden_folder(const char *name, const char *key, const char *value);

/* Opens a model and builds its plan, repeatedly, with each allocation in turn failing: expects ERR_NOMEM and no
 * leak. */
void golden_memory_runs_out(const char *path);

#endif
