/* The pools: how many machines are kept ready for each template shape in use.
 *
 * Two kinds: blank (QEMU started, nothing loaded) and hot (restored, reseeded, running). They are filled when no claim
 * is under way, a few at a time, the most recently used shape first, within the memory budget and the slots. */
#include "base/clock.h"
#include "node/node_internal.h"

#define REFILL_DELAY_MS 40 /* after the last claim: a burst of claims is served before the pools */
#define REFILL_DOUBLINGS 9 /* up to 20 s where one machine after the other ends before it is ready */

static bool is_hot_to_be(const struct node_entry *m)
{
    return m->counted_hot && !m->claim && m->stage != STAGE_CLAIMED && m->stage != STAGE_REMOVING;
}

static bool is_blank_to_be(const struct node_entry *m)
{
    return m->shape && !m->counted_hot && !m->claim && (m->stage == STAGE_STARTING || m->stage == STAGE_BLANK);
}

static uint64_t pool_cost(const struct shape_entry *s, bool hot)
{
    return NODE_MACHINE_OVERHEAD_BYTES + (hot ? s->shape.mem_mib * MIB : 0);
}

void pool_count(struct node *n, struct node_stats *st)
{
    struct node_entry *m, *next;
    HASH_ITER (hh, n->machines, m, next) {
        st->machines++;
        st->slots_used++;
        switch (m->stage) {
        case STAGE_CLAIMED:
            st->claimed++;
            st->paused += m->pub.paused;
            break;
        case STAGE_HOT:
            st->hot++;
            break;
        case STAGE_BLANK:
            st->blank++;
            break;
        default:
            st->starting++;
        }
        if (is_hot_to_be(m) || is_blank_to_be(m))
            st->pool_memory_bytes += pool_cost(m->shape, is_hot_to_be(m));
    }
}

static unsigned in_preparation(struct node *n)
{
    unsigned count = 0;
    struct node_entry *m, *next;
    HASH_ITER (hh, n->machines, m, next)
        count += !m->claim && (m->stage == STAGE_STARTING || m->stage == STAGE_RESTORING || m->stage == STAGE_IDENTIFYING ||
                              m->stage == STAGE_WARMING);
    return count;
}

/* One machine more for this shape, if it lacks one and the budget allows. True when something was started. */
static bool shape_refill(struct shape_entry *s, uint64_t *memory_used)
{
    struct node *n = s->node;
    unsigned hot = 0, blank = 0;
    struct node_entry *m, *next, *blank_ready = NULL;
    HASH_ITER (hh, n->machines, m, next) {
        if (m->shape != s)
            continue;
        hot += is_hot_to_be(m);
        blank += is_blank_to_be(m);
        if (is_blank_to_be(m) && m->stage == STAGE_BLANK)
            blank_ready = m;
    }
    bool want_hot = hot < n->config->pool_hot;
    if (!want_hot && blank >= n->config->pool_blank)
        return false;
    uint64_t cost = pool_cost(s, want_hot);
    if (want_hot && blank_ready)
        cost -= pool_cost(s, false);
    if (*memory_used + cost > n->config->pool_memory_mib * MIB)
        return false;
    *memory_used += cost;
    if (want_hot && blank_ready) {
        blank_ready->counted_hot = true;
        entry_prepare_for(blank_ready, NULL);
        return true;
    }
    return entry_start(s, want_hot, NULL) != NULL;
}

static void on_refill(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (n->stopping || !n->ready)
        return;
    struct claim *c;
    TAILQ_FOREACH (c, &n->claims, link)
        if (!c->waiting_for_shape)
            return; /* refilled when it has ended */
    struct node_stats st = {0};
    pool_count(n, &st);
    unsigned running = in_preparation(n), limit = MAX(1u, uv_available_parallelism());
    for (bool started = true; started && running < limit;) {
        struct shape_entry *s, *newest = NULL;
        started = false;
        /* The most recently used shape that lacks something. */
        uint64_t before = UINT64_MAX;
        for (;;) {
            newest = NULL;
            TAILQ_FOREACH (s, &n->shapes, link)
                if (s->pooled && !s->removing && s->state == SHAPE_READY && s->used_ms < before &&
                    (!newest || s->used_ms > newest->used_ms))
                    newest = s;
            if (!newest)
                break;
            if (shape_refill(newest, &st.pool_memory_bytes)) {
                running++;
                started = true;
                break;
            }
            before = newest->used_ms;
        }
    }
}

void pool_refill_soon(struct node *n)
{
    if (!n->stopping && n->pool_timer_open)
        uv_timer_start(&n->pool_timer, on_refill, (uint64_t)REFILL_DELAY_MS << MIN(n->spares_lost, REFILL_DOUBLINGS), 0);
}

void pool_forget_shape(struct shape_entry *s)
{
    struct node_entry *m, *next;
    s->pooled = false;
    HASH_ITER (hh, s->node->machines, m, next)
        if (m->shape == s && !m->claim && m->stage != STAGE_CLAIMED && m->stage != STAGE_REMOVING)
            entry_remove(m, NULL, NULL);
}

size_t node_pools_get(struct node *n, struct node_pool *ret_pools, size_t max)
{
    size_t count = 0;
    struct shape_entry *s;
    TAILQ_FOREACH (s, &n->shapes, link) {
        if (!s->pooled || s->state != SHAPE_READY)
            continue;
        if (count++ >= max)
            continue;
        struct node_pool *p = &ret_pools[count - 1];
        *p = (struct node_pool){.shape = s->shape, .hot_target = n->config->pool_hot, .blank_target = n->config->pool_blank};
        memcpy(p->template_digest, s->template->digest, DIGEST_SIZE);
        struct node_entry *m, *next;
        HASH_ITER (hh, n->machines, m, next) {
            if (m->shape != s || m->claim)
                continue;
            if (is_hot_to_be(m))
                *(m->stage == STAGE_HOT ? &p->hot : &p->hot_starting) += 1;
            else if (is_blank_to_be(m))
                *(m->stage == STAGE_BLANK ? &p->blank : &p->blank_starting) += 1;
        }
    }
    return count;
}
