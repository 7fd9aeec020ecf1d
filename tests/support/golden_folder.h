/* Golden SafeTensors folders that are changed, in the folder of folder.h, and models whose memory runs out. What cannot
 * be done fails the running test. Threads: one at a time. */
#ifndef INFCGI_TESTS_GOLDEN_FOLDER_H
#define INFCGI_TESTS_GOLDEN_FOLDER_H

/* A copy of tests/golden/models/NAME.hf in which the member `key` of config.json is `value`, JSON; NULL: it is taken
 * out. key NULL: `value` is an object whose members, and theirs, take the place of config.json's. The text "INFINITY" in
 * it becomes the bare Infinity that Python writes. Its path, as folder_path's; folder_remove ends it. */
const char *golden_folder(const char *name, const char *key, const char *value);

/* Opens a model and builds its plan, with one allocation after the other failing: ERR_NOMEM, and nothing is lost. */
void golden_memory_runs_out(const char *path);

#endif
