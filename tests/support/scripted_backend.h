/* A back end that computes nothing and answers from a script, to test clients independently of a model's abilities.
 * Programs that link it with -Wl,--wrap=backend_find -Wl,--wrap=engine_open (infcgi_scripted) get it instead of any
 * other if the environment has INFCGI_SCRIPT=FILE: JSON, an array of {"if": [TEXT, ...], "say": TEXT}. The first entry
 * whose texts are all in the rendered prompt is the answer; an entry without "if" always matches. "say" can contain
 * special tokens. The model's end token follows it, also if a token was sampled that the script does not have, unless a
 * rule continues: {"behind": TEXT, "say": TEXT}, the first whose text is the end of the text so far.
 * INFCGI_SCRIPT_LOG=FILE records each prompt and answer. A script or log that cannot be read or written ends the
 * process. Threads: as for any back end; one engine per process. */
#ifndef INFCGI_TEST_SCRIPTED_BACKEND_H
#define INFCGI_TEST_SCRIPTED_BACKEND_H

#include "engine/backend/backend.h"

#endif
