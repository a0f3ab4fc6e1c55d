/* Claims: which machine a waiting create gets, and what happens when that machine fails.
 *
 * A claim takes, in this order: a hot machine, a blank one, one that is on its way to a pool, a machine started for it.
 * A machine that ends before it is ready costs the claim time, not its success: it takes another, twice at most. */
#include "base/clock.h"
#include "node/node_internal.h"

#define ATTEMPTS_MAX 3

static struct claim *claim_find(struct node *n, uint64_t number)
{
    struct claim *c;
    TAILQ_FOREACH (c, &n->claims, link)
        if (c->number == number)
            return c;
    return NULL;
}

static void claim_free(struct claim *c)
{
    TAILQ_REMOVE(&c->node->claims, c, link);
    for (char **v = c->env; v && *v; v++)
        free(*v);
    free(c->env);
    free(c->sandbox_id);
    free(c->hostname);
    free(c);
}

void claim_finish(struct claim *c, struct node_entry *m, const struct err *e)
{
    struct node *n = c->node;
    if (m) {
        uint64_t *counters[] = {&n->stats.claims_cold, &n->stats.claims_blank, &n->stats.claims_hot};
        (*counters[c->source])++;
        m->pub.source = c->source;
        m->pub.claim_us = (clock_mono_ns() - c->start_ns) / 1000;
        m->claim = NULL;
    } else {
        n->stats.claims_failed++;
    }
    node_claim_cb cb = c->cb;
    void *arg = c->arg;
    claim_free(c);
    cb(arg, m ? &m->pub : NULL, e);
    pool_refill_soon(n);
}

/* The best machine there is for this shape. */
static struct node_entry *machine_choose(struct node *n, struct shape_entry *s, enum claim_source *ret_source)
{
    static const int rank[] = {
        [STAGE_HOT] = 6, [STAGE_WARMING] = 5, [STAGE_IDENTIFYING] = 4, [STAGE_BLANK] = 3, [STAGE_RESTORING] = 2, [STAGE_STARTING] = 1,
        [STAGE_REMOVING] = 0,
    };
    struct node_entry *m, *next, *best = NULL;
    HASH_ITER (hh, n->machines, m, next) {
        if (m->shape != s || m->claim || rank[m->stage] == 0)
            continue;
        if (!best || rank[m->stage] > rank[best->stage])
            best = m;
    }
    if (best)
        *ret_source = best->stage == STAGE_HOT || best->stage == STAGE_WARMING ? CLAIM_HOT : best->stage == STAGE_STARTING ? CLAIM_COLD : CLAIM_BLANK;
    return best;
}

static int claim_serve(struct claim *c, struct err *e)
{
    struct node *n = c->node;
    c->waiting_for_shape = false;
    struct shape_entry *s = shape_find(n, c->digest, &c->shape, e);
    if (!s)
        return e->code;
    s->used_ms = clock_mono_ms();
    s->pooled = true;
    c->attempts++;
    c->source = CLAIM_COLD;
    struct node_entry *m = machine_choose(n, s, &c->source);
    if (!m)
        m = entry_start(s, false, e);
    if (!m)
        return e->code;
    entry_prepare_for(m, c);
    return 0;
}

struct shape_wait {
    struct node *node;
    uint64_t number;
};

static void on_shape(void *arg, const struct err *e)
{
    _cleanup_free_ struct shape_wait *wait = arg;
    struct claim *c = claim_find(wait->node, wait->number);
    if (!c)
        return;
    struct err serve_error = {0};
    if (e)
        claim_finish(c, NULL, e);
    else if (claim_serve(c, &serve_error) < 0)
        claim_finish(c, NULL, &serve_error);
}

void claim_machine_failed(struct claim *c, const struct err *e)
{
    c->machine_id[0] = '\0';
    struct err serve_error = {0};
    if (c->attempts >= ATTEMPTS_MAX || c->node->stopping || e->code == ERR_NO_SPACE)
        claim_finish(c, NULL, e);
    else if (claim_serve(c, &serve_error) < 0)
        claim_finish(c, NULL, &serve_error);
}

struct refusal {
    node_claim_cb cb;
    void *arg;
    struct err e;
};

static void on_refusal(void *arg)
{
    _cleanup_free_ struct refusal *r = arg;
    r->cb(r->arg, NULL, &r->e);
}

/* Callbacks come from the loop, never from within the call. */
static uint64_t refuse(struct node *n, const struct err *e, node_claim_cb cb, void *arg)
{
    struct refusal *r = NEW(struct refusal);
    *r = (struct refusal){.cb = cb, .arg = arg, .e = *e};
    n->stats.claims_failed++;
    node_defer(n, on_refusal, r);
    return 0;
}

uint64_t node_claim(struct node *n, const char *template_digest, const struct shape *shape,
                    const struct node_identity *identity, node_claim_cb cb, void *arg)
{
    struct err e = {0};
    struct shape_entry *s = NULL;
    if (n->gone.code)
        e = n->gone;
    else if (n->stopping || !n->ready)
        err_set(&e, ERR_UNAVAILABLE, "the node is %s", n->stopping ? "stopping" : "not ready yet");
    else
        s = shape_find(n, template_digest, shape, &e);
    if (!s)
        return refuse(n, &e, cb, arg);
    struct claim *c = NEW(struct claim);
    c->node = n;
    c->number = ++n->claim_next;
    snprintf(c->digest, sizeof(c->digest), "%s", template_digest);
    c->shape = *shape;
    c->sandbox_id = xstrdup(identity->sandbox_id);
    c->hostname = xstrdup(identity->hostname);
    size_t count = 0;
    while (identity->env && identity->env[count])
        count++;
    c->env = xcalloc(count + 1, sizeof(*c->env));
    for (size_t i = 0; i < count; i++)
        c->env[i] = xstrdup(identity->env[i]);
    c->cb = cb;
    c->arg = arg;
    c->start_ns = clock_mono_ns();
    TAILQ_INSERT_TAIL(&n->claims, c, link);
    uint64_t number = c->number;
    if (s->state == SHAPE_READY) {
        if (claim_serve(c, &e) == 0)
            return number;
        claim_free(c);
        return refuse(n, &e, cb, arg);
    }
    struct shape_wait *wait = NEW(struct shape_wait);
    *wait = (struct shape_wait){.node = n, .number = number};
    c->waiting_for_shape = true;
    shape_ensure(s, NULL, on_shape, wait);
    return number;
}

void node_claim_cancel(struct node *n, uint64_t number)
{
    struct claim *c = claim_find(n, number);
    if (!c)
        return;
    struct node_entry *m = NULL;
    if (c->machine_id[0])
        HASH_FIND_STR(n->machines, c->machine_id, m);
    if (m)
        m->claim = NULL;
    claim_free(c);
    if (m)
        entry_remove(m, NULL, NULL);
    pool_refill_soon(n);
}
