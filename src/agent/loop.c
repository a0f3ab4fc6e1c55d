/* The event loop (see loop.h). Workers are started when a job finds none idle and end after a while without work, so
 * that a guest at rest has one thread. */
#include "agent/loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/clock.h"

static void jobs_finished(struct loop_source *source, uint32_t events ATTR_UNUSED)
{
    struct loop *loop = source->loop;
    uint64_t count;
    if (read(source->fd, &count, sizeof(count)) < 0)
        return;
    for (;;) {
        pthread_mutex_lock(&loop->lock);
        struct loop_job *job = STAILQ_FIRST(&loop->finished);
        if (job)
            STAILQ_REMOVE_HEAD(&loop->finished, entry);
        pthread_mutex_unlock(&loop->lock);
        if (!job)
            return;
        job->done(job);
    }
}

int loop_init(struct loop *loop, struct err *e)
{
    *loop = (struct loop){.epoll_fd = -1};
    TAILQ_INIT(&loop->timers);
    STAILQ_INIT(&loop->waiting);
    STAILQ_INIT(&loop->finished);
    pthread_mutex_init(&loop->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&loop->work, &attr);
    pthread_condattr_destroy(&attr);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll_fd < 0 || fd < 0)
        return err_errno(e, ERR_SYSTEM, errno, "make the event loop");
    return loop_add(loop, &loop->finished_source, fd, EPOLLIN, jobs_finished);
}

void loop_done(struct loop *loop)
{
    int fd = loop->finished_source.fd;
    loop_remove(&loop->finished_source);
    close(fd);
    close(loop->epoll_fd);
}

int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events,
             void (*ready)(struct loop_source *source, uint32_t events))
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    *source = (struct loop_source){.loop = loop, .fd = fd, .ready = ready};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        source->loop = NULL;
        return ERR_SYSTEM;
    }
    return 0;
}

void loop_change(struct loop_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (source->loop)
        epoll_ctl(source->loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
}

void loop_remove(struct loop_source *source)
{
    struct loop *loop = source->loop;
    if (!loop)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->loop = NULL;
    for (int i = loop->batch_at; i < loop->batch_len; i++)
        if (loop->batch[i].data.ptr == source)
            loop->batch[i].data.ptr = NULL;
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t delay_ms,
                    void (*fire)(struct loop_timer *timer))
{
    loop_timer_cancel(timer);
    timer->loop = loop;
    timer->fire = fire;
    timer->at_ms = clock_mono_ms() + delay_ms;
    struct loop_timer *before = TAILQ_LAST(&loop->timers, loop_timer_list);
    while (before && before->at_ms > timer->at_ms)
        before = TAILQ_PREV(before, loop_timer_list, entry);
    if (before)
        TAILQ_INSERT_AFTER(&loop->timers, before, timer, entry);
    else
        TAILQ_INSERT_HEAD(&loop->timers, timer, entry);
}

void loop_timer_cancel(struct loop_timer *timer)
{
    if (!timer->loop)
        return;
    TAILQ_REMOVE(&timer->loop->timers, timer, entry);
    timer->loop = NULL;
}

static void timers_fire(struct loop *loop)
{
    struct loop_timer *timer = TAILQ_FIRST(&loop->timers);
    if (!timer)
        return;
    for (uint64_t now = clock_mono_ms(); timer && timer->at_ms <= now; timer = TAILQ_FIRST(&loop->timers)) {
        loop_timer_cancel(timer);
        timer->fire(timer);
    }
}

static int sleep_ms(const struct loop *loop)
{
    const struct loop_timer *timer = TAILQ_FIRST(&loop->timers);
    if (loop->again)
        return 0;
    if (!timer)
        return -1;
    uint64_t now = clock_mono_ms();
    return timer->at_ms <= now ? 0 : (int)MIN(timer->at_ms - now, 3600000u);
}

void loop_run(struct loop *loop)
{
    while (!loop->stop) {
        int n = epoll_wait(loop->epoll_fd, loop->batch, LOOP_BATCH, sleep_ms(loop));
        loop->again = false;
        loop->batch_len = n < 0 ? 0 : n;
        for (loop->batch_at = 0; loop->batch_at < loop->batch_len;) {
            const struct epoll_event *event = &loop->batch[loop->batch_at++];
            struct loop_source *source = event->data.ptr;
            if (source)
                source->ready(source, event->events);
        }
        loop->batch_at = loop->batch_len = 0;
        timers_fire(loop);
        if (loop->after)
            loop->after(loop->after_arg);
    }
}

static void *worker_main(void *arg)
{
    struct loop *loop = arg;
    static const uint64_t one = 1;
    pthread_mutex_lock(&loop->lock);
    for (;;) {
        struct loop_job *job = STAILQ_FIRST(&loop->waiting);
        if (!job) {
            struct timespec until;
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += LIMIT_WORKER_IDLE_MS / 1000;
            loop->idle_workers++;
            int r = pthread_cond_timedwait(&loop->work, &loop->lock, &until);
            loop->idle_workers--;
            if (r == ETIMEDOUT && STAILQ_EMPTY(&loop->waiting))
                break;
            continue;
        }
        STAILQ_REMOVE_HEAD(&loop->waiting, entry);
        loop->waiting_count--;
        pthread_mutex_unlock(&loop->lock);
        job->run(job);
        pthread_mutex_lock(&loop->lock);
        STAILQ_INSERT_TAIL(&loop->finished, job, entry);
        if (write(loop->finished_source.fd, &one, sizeof(one)) < 0)
            continue; /* only full counters refuse: the loop is awake already */
    }
    loop->workers--;
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

int loop_job_submit(struct loop *loop, struct loop_job *job, struct err *e)
{
    int r = 0;
    pthread_mutex_lock(&loop->lock);
    if (loop->waiting_count >= LIMIT_JOBS) {
        r = err_set(e, ERR_LIMIT, "too many file operations under way");
    } else if (loop->waiting_count >= loop->idle_workers && loop->workers < LIMIT_WORKERS) {
        pthread_attr_t attr;
        pthread_t thread;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, LIMIT_WORKER_STACK);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attr, worker_main, loop) == 0)
            loop->workers++;
        else if (loop->workers == 0)
            r = err_set(e, ERR_UNAVAILABLE, "start a worker thread");
        pthread_attr_destroy(&attr);
    }
    if (r == 0) {
        STAILQ_INSERT_TAIL(&loop->waiting, job, entry);
        loop->waiting_count++;
        pthread_cond_signal(&loop->work);
    }
    pthread_mutex_unlock(&loop->lock);
    return r;
}
