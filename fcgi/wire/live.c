#include "fcgi/wire/live.h"

#include <pthread.h>
#include <stdio.h>

static struct {
    pthread_mutex_t lock;
    struct live *first, **end; /* in the order of arrival */
    uint64_t n_begun;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &list.first};

const char *live_state_name(enum live_state s)
{
    static const char *const names[] = {"reading", "queued", "prefill", "decode"};
    return names[s];
}

void live_begin(struct live *l, struct fastcgi_request *r, const char *id, uint64_t arrived_ns)
{
    *l = (struct live){.request = r, .id = id, .path = "", .arrived_ns = arrived_ns};
    task_enter(&l->task, "reading");
    pthread_mutex_lock(&list.lock);
    l->number = ++list.n_begun;
    l->at = list.end;
    *list.end = l;
    list.end = &l->next;
    pthread_mutex_unlock(&list.lock);
}

void live_end(struct live *l)
{
    pthread_mutex_lock(&list.lock);
    *l->at = l->next;
    if (l->next != NULL) {
        l->next->at = l->at;
    } else {
        list.end = l->at;
    }
    pthread_mutex_unlock(&list.lock);
    task_leave();
}

void live_name(struct live *l, const char *path, const char *owner)
{
    pthread_mutex_lock(&list.lock);
    l->path = path;
    snprintf(l->owner, sizeof l->owner, "%s", owner);
    pthread_mutex_unlock(&list.lock);
}

void live_watch(struct live *l, void (*look)(const void *arg, struct live_look *out), const void *arg)
{
    pthread_mutex_lock(&list.lock);
    l->look = look;
    l->look_arg = arg;
    pthread_mutex_unlock(&list.lock);
}

bool live_cancel(uint64_t number)
{
    pthread_mutex_lock(&list.lock);
    struct live *l = list.first;
    while (l != NULL && l->number != number) {
        l = l->next;
    }
    if (l != NULL) {
        fastcgi_abandon(l->request);
    }
    pthread_mutex_unlock(&list.lock);
    return l != NULL;
}

int live_each(void (*each)(void *arg, const struct live *l, const struct live_look *look), void *arg)
{
    int n = 0;
    pthread_mutex_lock(&list.lock);
    for (const struct live *l = list.first; l != NULL; l = l->next, n++) {
        struct live_look look = {.state = LIVE_READING};
        if (l->look != NULL) {
            l->look(l->look_arg, &look);
        }
        each(arg, l, &look);
    }
    pthread_mutex_unlock(&list.lock);
    return n;
}

static void report(const struct live *l, struct live_report *out)
{
    *out = (struct live_report){.number = l->number,
                                .path = l->path,
                                .phase = atomic_load_explicit(&l->task.phase, memory_order_relaxed),
                                .cpu_ms = l->pulse.since_ns / 1000000u,
                                .verdict = l->pulse.verdict};
    snprintf(out->id, sizeof out->id, "%s", l->id);
    snprintf(out->owner, sizeof out->owner, "%s", l->owner);
}

void live_check(uint64_t limit_ns, struct live_pulse *out)
{
    out->n_long = out->n_lost = out->n_news = 0;
    pthread_mutex_lock(&list.lock);
    for (struct live *l = list.first; l != NULL; l = l->next) {
        enum pulse_verdict before = l->pulse.verdict;
        unsigned n_notes = atomic_load_explicit(&l->task.n_notes, memory_order_relaxed);
        enum pulse_verdict now = pulse_of_task(&l->pulse, n_notes, task_cpu_ns(&l->task), limit_ns);
        out->n_long += now >= PULSE_LONG;
        out->n_lost += now >= PULSE_LOST;
        if (now > before) {
            task_stop(&l->task);
        }
        if (now > before && out->n_news < LIVE_MOST_NEWS) {
            report(l, &out->news[out->n_news++]);
        }
    }
    pthread_mutex_unlock(&list.lock);
}
