/* A back end that computes nothing and says what a script has for a prompt, so that clients can be tried with no model's
 * wit. Programs that link it with -Wl,--wrap=backend_find -Wl,--wrap=engine_open (infcgi_scripted) have it in place of any
 * other where the environment says INFCGI_SCRIPT=FILE: JSON, an array of {"if": [TEXT, ...], "say": TEXT}. The first whose
 * texts are all in the prompt, as it was rendered, is the answer; one without "if" always is. Special tokens in "say" are
 * read as such, and the model's end token comes behind it, or where something else was sampled than it says; then a rule may go on:
 * {"behind": TEXT, "say": TEXT}, the first whose text is the last that stands there.
 * INFCGI_SCRIPT_LOG=FILE gets each prompt and what was said. A script or log that cannot be read or written ends the
 * process. Threads: as a back end's; one engine a process. */
#ifndef INFCGI_TEST_SCRIPTED_BACKEND_H
#define INFCGI_TEST_SCRIPTED_BACKEND_H

#include "engine/backend/backend.h"

#endif
