/* The table of src/control/lifecycle.c, and a simulator that lives many short lives of one sandbox with requests, losses
 * and crashes at random moments, from a seed that a failure prints (SPACE_SEED=N runs that one again). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"
#include "control/lifecycle.h"

static void every_state_has_a_name(void **state)
{
    (void)state;
    for (int s = 0; s < LIFE_STATES; s++) {
        enum life_state back;
        assert_true(life_state_parse(life_state_name((enum life_state)s), &back));
        assert_int_equal(back, s);
    }
    for (int i = 0; i < LIFE_EVENTS; i++)
        assert_non_null(life_event_name((enum life_event)i));
    enum life_state unused;
    assert_false(life_state_parse("Running", &unused));
}

/* The rules that the header states, checked over the whole table. */
static void the_table_keeps_the_rules(void **state)
{
    (void)state;
    for (int s = 0; s < LIFE_STATES; s++)
        for (int ev = 0; ev < LIFE_EVENTS; ev++) {
            struct life_step step = life_step((enum life_state)s, (enum life_event)ev);
            bool request = ev <= LIFE_DELETE;
            if (step.verdict != LIFE_MOVE) {
                assert_int_equal(step.next, s);
                assert_int_equal(step.actions, 0);
            }
            if (request)
                assert_int_not_equal(step.verdict, LIFE_IGNORE);
            else
                assert_true(step.verdict == LIFE_MOVE || step.verdict == LIFE_IGNORE);
            if (step.verdict == LIFE_JOIN)
                assert_true(life_busy((enum life_state)s));
            if (step.verdict != LIFE_MOVE)
                continue;
            bool ends = step.actions & (LIFE_DO_OP_SUCCEED | LIFE_DO_OP_FAIL | LIFE_DO_OP_CANCEL);
            if (ends)
                assert_true(life_busy((enum life_state)s));
            /* Leaving a busy state ends its operation. */
            if (life_busy((enum life_state)s) && step.next != (enum life_state)s)
                assert_true(ends);
            if (request && ev != LIFE_DELETE)
                assert_true(life_busy(step.next));
            if (step.next == LIFE_FAILED || step.next == LIFE_DELETING)
                assert_true(step.actions & LIFE_DO_REMOVE);
        }
}

static void delete_always_wins(void **state)
{
    (void)state;
    for (int s = 0; s < LIFE_STATES; s++) {
        struct life_step step = life_step((enum life_state)s, LIFE_DELETE);
        if (s == LIFE_DELETING)
            assert_int_equal(step.verdict, LIFE_JOIN);
        else if (s == LIFE_DELETED)
            assert_int_equal(step.verdict, LIFE_ALREADY);
        else {
            assert_int_equal(step.verdict, LIFE_MOVE);
            assert_int_equal(step.next, LIFE_DELETING);
        }
    }
}

/* ---- the simulator ---- */

enum machine { NONE, RUNS, STANDS };

struct world {
    uint64_t rng;
    /* survives a crash: what the store holds, and the node's machine */
    enum life_state state;
    bool op_open;
    unsigned ops_made, ops_ended;
    enum machine machine;
    bool machine_confirmed;
    /* lost in a crash */
    enum life_event pending[8]; /* answers of the node on their way, by generation */
    unsigned pending_generation[8], pending_count, generation;
    bool claiming;
};

static uint32_t roll(struct world *w, uint32_t below)
{
    w->rng = w->rng * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(w->rng >> 33) % below;
}

static void answer_later(struct world *w, enum life_event event)
{
    assert_true(w->pending_count < ARRAY_LEN(w->pending));
    w->pending[w->pending_count] = event;
    w->pending_generation[w->pending_count++] = w->generation;
}

static void end_op(struct world *w)
{
    assert_true(w->op_open);
    w->op_open = false;
    w->ops_ended++;
}

/* Perform the step of an event as control/sandbox.c does; returns false when the daemon died before the actions. */
static bool happen(struct world *w, enum life_event event)
{
    struct life_step step = life_step(w->state, event);
    if (step.verdict != LIFE_MOVE)
        return true;
    /* one transaction */
    if (step.actions & (LIFE_DO_OP_SUCCEED | LIFE_DO_OP_FAIL | LIFE_DO_OP_CANCEL))
        end_op(w);
    bool was_busy_same = w->state == step.next;
    w->state = step.next;
    if (life_busy(w->state) && !was_busy_same) {
        assert_false(w->op_open);
        w->op_open = true;
        w->ops_made++;
    }
    assert_int_equal(w->op_open, life_busy(w->state));
    if (roll(w, 12) == 0)
        return false;

    if (step.actions & (LIFE_DO_CLAIM | LIFE_DO_PAUSE | LIFE_DO_RESUME | LIFE_DO_REMOVE))
        w->generation++;
    if (step.actions & LIFE_DO_UNCLAIM)
        w->claiming = false;
    if (step.actions & LIFE_DO_CLAIM) {
        assert_false(w->claiming);
        w->machine = NONE;
        w->claiming = true;
        answer_later(w, roll(w, 4) ? LIFE_CLAIMED : LIFE_CLAIM_FAILED);
    }
    if (step.actions & LIFE_DO_PAUSE)
        answer_later(w, roll(w, 5) ? LIFE_PAUSE_DONE : LIFE_PAUSE_FAILED);
    if (step.actions & LIFE_DO_RESUME)
        answer_later(w, roll(w, 5) ? LIFE_RESUME_DONE : LIFE_RESUME_FAILED);
    if (step.actions & LIFE_DO_REMOVE) {
        w->machine = NONE;
        answer_later(w, LIFE_REMOVED);
    }
    return true;
}

/* The oldest answer arrives; a pause that failed leaves the machine running, a resume that failed leaves it standing.
 * The node has done the thing by then, whether or not the daemon lives to hear of it. */
static bool deliver(struct world *w)
{
    enum life_event event = w->pending[0];
    unsigned generation = w->pending_generation[0];
    memmove(w->pending, w->pending + 1, sizeof(w->pending[0]) * --w->pending_count);
    memmove(w->pending_generation, w->pending_generation + 1, sizeof(w->pending_generation[0]) * w->pending_count);
    if (generation != w->generation)
        return true; /* the answer to something that a later action has overtaken */
    if (event == LIFE_CLAIMED)
        w->machine = RUNS, w->claiming = false;
    if (event == LIFE_CLAIM_FAILED)
        w->claiming = false;
    if (event == LIFE_PAUSE_DONE)
        w->machine = STANDS;
    if (event == LIFE_RESUME_DONE)
        w->machine = RUNS;
    if (event == LIFE_PAUSE_FAILED && w->machine != NONE)
        w->machine = RUNS;
    if (event == LIFE_RESUME_FAILED && w->machine != NONE)
        w->machine = STANDS;
    if (roll(w, 12) == 0)
        return false;
    return happen(w, event);
}

static bool restart(struct world *w)
{
    w->pending_count = 0;
    w->claiming = false;
    return happen(w, w->machine == NONE ? LIFE_GONE : w->machine == RUNS ? LIFE_FOUND : LIFE_FOUND_PAUSED);
}

static void live(uint64_t seed)
{
    struct world w = {.rng = seed * 0x9e3779b97f4a7c15ULL + 1, .state = LIFE_CREATING, .op_open = true, .ops_made = 1};
    /* The daemon may die before the claim is even asked for: a restart tells it to. */
    bool alive = restart(&w);
    for (unsigned turn = 0; turn < 60; turn++) {
        while (!alive)
            alive = restart(&w);
        uint32_t what = roll(&w, 100);
        if (what < 45 && w.pending_count)
            alive = deliver(&w);
        else if (what < 60)
            alive = happen(&w, LIFE_PAUSE);
        else if (what < 75)
            alive = happen(&w, LIFE_RESUME);
        else if (what < 78)
            alive = happen(&w, LIFE_DELETE);
        else if (what < 79)
            alive = happen(&w, LIFE_DEADLINE);
        else if (what < 82 && w.machine != NONE) {
            w.machine = NONE;
            /* what was asked of that machine fails as well, before or after the loss is told */
            for (unsigned i = 0; i < w.pending_count; i++)
                if (w.pending[i] == LIFE_PAUSE_DONE)
                    w.pending[i] = LIFE_PAUSE_FAILED;
                else if (w.pending[i] == LIFE_RESUME_DONE)
                    w.pending[i] = LIFE_RESUME_FAILED;
            alive = happen(&w, LIFE_LOST);
        } else if (what < 86)
            alive = false;
        assert_int_equal(w.op_open, life_busy(w.state));
        assert_int_equal(w.ops_made, w.ops_ended + (w.op_open ? 1u : 0u));
    }
    /* Left alone it comes to rest, and what rests is what the state says. */
    for (unsigned turn = 0; turn < 1000 && (!alive || w.pending_count); turn++)
        alive = alive ? deliver(&w) : restart(&w);
    assert_true(alive);
    assert_false(w.op_open);
    assert_false(w.claiming);
    switch (w.state) {
    case LIFE_RUNNING:
        assert_int_equal(w.machine, RUNS);
        break;
    case LIFE_PAUSED:
        assert_int_equal(w.machine, STANDS);
        break;
    case LIFE_DELETED:
    case LIFE_FAILED:
        assert_int_equal(w.machine, NONE);
        break;
    default:
        fail_msg("seed %llu rests in %s", (unsigned long long)seed, life_state_name(w.state));
    }
}

static uint64_t seed_under_way;
static bool lived_all;

static void many_lives(void **state)
{
    (void)state;
    const char *one = getenv("SPACE_SEED");
    lived_all = false;
    if (one && str_to_u64(one, 0, UINT64_MAX, &seed_under_way))
        live(seed_under_way);
    else
        for (seed_under_way = 0; seed_under_way < 20000; seed_under_way++)
            live(seed_under_way);
    lived_all = true;
}

static int name_the_seed(void **state)
{
    (void)state;
    if (!lived_all)
        print_message("this was the life of SPACE_SEED=%llu\n", (unsigned long long)seed_under_way);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_a_name),
        cmocka_unit_test(the_table_keeps_the_rules),
        cmocka_unit_test(delete_always_wins),
        cmocka_unit_test_teardown(many_lives, name_the_seed),
    };
    return cmocka_run_group_tests_name("lifecycle", tests, NULL, NULL);
}
