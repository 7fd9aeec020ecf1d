/* task_enter and task_note as the linker gives them to others (-Wl,--wrap): with INFCGI_FAULT=spin@PHASE a thread of a task that
 * comes to this phase computes without end; with turn@PHASE it computes until task_check() says to end. */
#include "engine/base/task.h"

#include <stdlib.h>
#include <string.h>

void __real_task_enter(struct task *t, const char *phase);
void __wrap_task_enter(struct task *t, const char *phase);
void __real_task_note(const char *phase);
void __wrap_task_note(const char *phase);

static _Thread_local bool has_task; /* since it had the first one, as a thread of requests has nearly always */

void __wrap_task_enter(struct task *t, const char *phase)
{
    __real_task_enter(t, phase);
    has_task = true;
}

void __wrap_task_note(const char *phase)
{
    const char *fault = getenv("INFCGI_FAULT"), *at = fault != NULL ? strchr(fault, '@') : NULL;
    __real_task_note(phase);
    if (!has_task || at == NULL || strcmp(at + 1, phase) != 0) {
        return;
    }
    bool spins = strncmp(fault, "spin@", 5) == 0, turns = strncmp(fault, "turn@", 5) == 0;
    while (spins || (turns && task_check() == ERR_OK)) {
        atomic_signal_fence(memory_order_seq_cst);
    }
}
