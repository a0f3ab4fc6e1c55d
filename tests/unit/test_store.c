/* Unit tests of src/store: sandboxes, machines, operations, execs, templates, idempotency keys, events. */
#include "store_fixture.h"

#include "store/event.h"
#include "store/exec.h"
#include "store/idempotency.h"
#include "store/internal.h"
#include "store/machine.h"
#include "store/operation.h"
#include "store/template.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

/* ---- sandboxes ---- */

static void sandbox_keeps_every_field(void **state)
{
    struct fixture *f = *state;
    struct store_sandbox sb = {
        .name = TEXT("müsli"),
        .reason = TEXT("because"),
        .template_digest = TEXT("sha256:abc"),
        .vcpus = 2,
        .memory_mib = 512,
        .disk_mib = 4096,
        .accelerator = STORE_ACCELERATOR_KVM,
        .jail_missing = 1ULL << 63 | 5,
        .env_json = TEXT("{\"A\":\"1\"}"),
        .metadata_json = TEXT("{\"k\":\"v\"}"),
        .timeout_ms = 1,
        .created_at_ms = NOW,
        .expires_at_ms = NOW + 1,
    };
    _cleanup_store_sandbox_ struct store_sandbox *got = NULL;
    id_new(ID_SANDBOX, sb.id);
    memcpy(sb.project_id, f->project, ID_SIZE);
    ok(store_sandbox_insert(f->store, &sb, e));
    fixture_reopen(f);
    ok(store_sandbox_get(f->store, f->project, sb.id, &got, e));
    assert_string_equal(got->id, sb.id);
    assert_string_equal(got->project_id, f->project);
    assert_string_equal(got->name, "müsli");
    assert_string_equal(got->reason, "because");
    assert_int_equal(got->state, STORE_SANDBOX_CREATING);
    assert_string_equal(got->template_digest, "sha256:abc");
    assert_null(got->template_tag);
    assert_int_equal(got->vcpus, 2);
    assert_int_equal(got->memory_mib, 512);
    assert_int_equal(got->disk_mib, 4096);
    assert_int_equal(got->accelerator, STORE_ACCELERATOR_KVM);
    assert_true(got->jail_missing == (1ULL << 63 | 5));
    assert_string_equal(got->env_json, "{\"A\":\"1\"}");
    assert_string_equal(got->metadata_json, "{\"k\":\"v\"}");
    assert_int_equal(got->timeout_ms, 1);
    assert_int_equal(got->created_at_ms, NOW);
    assert_int_equal(got->expires_at_ms, NOW + 1);
    assert_int_equal(got->state_changed_at_ms, NOW);
    assert_int_equal(got->ready_at_ms, 0);
    assert_int_equal(got->ended_at_ms, 0);
    assert_string_equal(got->machine_id, "");
    assert_int_equal(got->slot, -1);
    assert_int_equal(got->generation, 0);
    refused(ERR_CONFLICT, store_sandbox_insert(f->store, &sb, e));
    id_new(ID_SANDBOX, sb.id);
    id_new(ID_PROJECT, sb.project_id);
    refused(ERR_NOT_FOUND, store_sandbox_insert(f->store, &sb, e));
}

static void what_belongs_to_another_project_is_not_found(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];
    struct store_sandbox *got = NULL;
    struct store_sandbox_change change = {.name = "new"};
    fixture_sandbox(f, f->project, NOW, NULL, id);
    refused(ERR_NOT_FOUND, store_sandbox_get(f->store, f->other, id, &got, e));
    refused(ERR_NOT_FOUND, store_sandbox_update(f->store, f->other, id, &change, NOW, e));
    _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
    ok(store_sandbox_list(f->store, f->other, NULL, NULL, &list, e));
    assert_int_equal(list.count, 0);
    ok(store_sandbox_get(f->store, NULL, id, &got, e));
    store_sandbox_free(got);
}

static void sandbox_bounds(void **state)
{
    struct fixture *f = *state;
    _cleanup_free_ char *long_text = xmalloc(70001);
    memset(long_text, 'x', 70000);
    long_text[70000] = '\0';
    struct store_sandbox sb = {.template_digest = TEXT("d"), .vcpus = 1, .memory_mib = 1, .disk_mib = 1,
                               .created_at_ms = NOW};
    memcpy(sb.project_id, f->project, ID_SIZE);
    refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e)); /* no id */
    id_new(ID_SANDBOX, sb.id);
    sb.name = long_text;
    refused(ERR_TOO_LARGE, store_sandbox_insert(f->store, &sb, e));
    sb.name = TEXT("a\nb");
    refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e));
    sb.name = TEXT("\xff");
    refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e));
    sb.name = TEXT("");
    refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e));
    sb.name = NULL;
    sb.template_digest = TEXT("UPPER");
    refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e));
    sb.template_digest = NULL;
    refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e));
    sb.template_digest = TEXT("d");
    sb.vcpus = 0;
    refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e));
    sb.vcpus = 1;
    static const char *const wrong[] = {"[]", "{", "{\"a\":1}", "{\"\":\"x\"}", "{\"a\":\"1\",\"a\":\"2\"}", "", "{\"a\":null}"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        refused(ERR_INVALID, store_metadata_check(wrong[i], e));
        refused(ERR_INVALID, store_env_check(wrong[i], e));
        sb.metadata_json = TEXT(wrong[i]);
        refused(ERR_INVALID, store_sandbox_insert(f->store, &sb, e));
    }
    refused(ERR_INVALID, store_env_check("{\"A=B\":\"x\"}", e));
    ok(store_metadata_check("{\"A=B\":\"x\"}", e));
    _cleanup_buf_ struct buf many = {0};
    buf_put_str(&many, "{");
    for (int i = 0; i <= STORE_METADATA_PAIRS_MAX; i++)
        buf_printf(&many, "%s\"k%d\":\"\"", i ? "," : "", i);
    buf_put_str(&many, "}");
    refused(ERR_TOO_LARGE, store_metadata_check(buf_cstr(&many), e));
    _cleanup_free_ char *long_value = xasprintf("{\"k\":\"%.1025s\"}", long_text);
    refused(ERR_TOO_LARGE, store_metadata_check(long_value, e));
    refused(ERR_TOO_LARGE, store_env_check(long_text, e));
    sb.metadata_json = NULL;
    sb.reason = long_text; /* a reason is cut: it never stands in the way of a change */
    ok(store_sandbox_insert(f->store, &sb, e));
    _cleanup_store_sandbox_ struct store_sandbox *got = NULL;
    ok(store_sandbox_get(f->store, NULL, sb.id, &got, e));
    assert_int_equal(strlen(got->reason), STORE_REASON_MAX);
}

static void reasons_are_cut_between_characters(void **state)
{
    (void)state;
    _cleanup_free_ char *a = reason_clean("aaä", 3), *b = reason_clean("aä", 3), *c = reason_clean("a\xff" "b", 9);
    assert_string_equal(a, "aa");
    assert_string_equal(b, "aä");
    assert_string_equal(c, "a?b");
    assert_null(reason_clean(NULL, 9));
}

static void state_changes_are_compare_and_set(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE], missing[ID_SIZE];
    _cleanup_store_sandbox_ struct store_sandbox *got = NULL;
    fixture_sandbox(f, f->project, NOW, NULL, id);
    id_new(ID_SANDBOX, missing);
    refused(ERR_NOT_FOUND, store_sandbox_set_state(f->store, missing, STORE_SANDBOX_ANY, STORE_SANDBOX_FAILED, NULL, NOW, e));
    refused(ERR_CONFLICT, store_sandbox_set_state(f->store, id, STORE_MASK(STORE_SANDBOX_RUNNING), STORE_SANDBOX_PAUSING,
                                                  NULL, NOW, e));
    ok(store_sandbox_set_state(f->store, id, STORE_MASK(STORE_SANDBOX_CREATING), STORE_SANDBOX_RUNNING, NULL, NOW + 5, e));
    refused(ERR_STATE, store_sandbox_set_state(f->store, id, STORE_MASK(STORE_SANDBOX_PAUSED), STORE_SANDBOX_RESUMING, NULL,
                                               NOW, e));
    ok(store_sandbox_set_state(f->store, id, STORE_SANDBOX_LIVE, STORE_SANDBOX_PAUSING, "asked for", NOW + 6, e));
    ok(store_sandbox_set_state(f->store, id, STORE_SANDBOX_LIVE, STORE_SANDBOX_PAUSED, NULL, NOW + 7, e));
    ok(store_sandbox_set_state(f->store, id, STORE_SANDBOX_LIVE, STORE_SANDBOX_RUNNING, NULL, NOW + 8, e));
    ok(store_sandbox_set_state(f->store, id, STORE_SANDBOX_LIVE, STORE_SANDBOX_DELETED, "\"done\"", NOW + 9, e));
    refused(ERR_STATE, store_sandbox_set_state(f->store, id, STORE_SANDBOX_LIVE, STORE_SANDBOX_FAILED, NULL, NOW, e));
    ok(store_sandbox_get(f->store, f->project, id, &got, e));
    assert_int_equal(got->state, STORE_SANDBOX_DELETED);
    assert_int_equal(got->ready_at_ms, NOW + 5); /* of the first time */
    assert_int_equal(got->state_changed_at_ms, NOW + 9);
    assert_int_equal(got->ended_at_ms, NOW + 9);

    _cleanup_store_event_list_ struct store_event_list events = {0};
    ok(store_event_list(f->store, f->project, id, 0, 100, &events, e));
    assert_int_equal(events.count, 6); /* refused changes leave none */
    assert_string_equal(events.items[0].data_json, "{\"from\":null,\"to\":\"creating\",\"reason\":null}");
    assert_string_equal(events.items[5].data_json, "{\"from\":\"running\",\"to\":\"deleted\",\"reason\":\"\\\"done\\\"\"}");
    assert_string_equal(events.items[5].kind, "sandbox.state");
    assert_int_equal(events.items[5].at_ms, NOW + 9);
    int64_t after = events.items[4].id;
    store_event_list_done(&events);
    ok(store_event_list(f->store, f->project, NULL, after, 100, &events, e));
    assert_int_equal(events.count, 1);
    store_event_list_done(&events);
    ok(store_event_list(f->store, f->other, NULL, 0, 100, &events, e));
    assert_int_equal(events.count, 0);
    enum store_sandbox_state s;
    assert_true(store_sandbox_state_by_name("resuming", &s) && s == STORE_SANDBOX_RESUMING);
    assert_false(store_sandbox_state_by_name("dead", &s));
}

static void sandbox_can_be_changed_until_it_ends(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];
    _cleanup_store_sandbox_ struct store_sandbox *got = NULL;
    fixture_sandbox(f, f->project, NOW, "{\"a\":\"1\",\"b\":\"2\"}", id);
    struct store_sandbox_change change = {.set_timeout = true, .timeout_ms = 7, .expires_at_ms = NOW + 7};
    ok(store_sandbox_update(f->store, f->project, id, &change, NOW, e));
    change = (struct store_sandbox_change){.metadata_json = "{\"a\":\"3\"}"};
    ok(store_sandbox_update(f->store, f->project, id, &change, NOW, e));
    ok(store_sandbox_get(f->store, f->project, id, &got, e));
    assert_int_equal(got->timeout_ms, 7);
    assert_int_equal(got->expires_at_ms, NOW + 7);
    assert_string_equal(got->metadata_json, "{\"a\":\"3\"}");
    struct store_sandbox_filter filter = {.metadata = {{"b", "2"}}, .metadata_count = 1};
    _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
    ok(store_sandbox_list(f->store, f->project, &filter, NULL, &list, e));
    assert_int_equal(list.count, 0);
    filter.metadata[0].key = "a";
    filter.metadata[0].value = "3";
    ok(store_sandbox_list(f->store, f->project, &filter, NULL, &list, e));
    assert_int_equal(list.count, 1);
    store_sandbox_list_done(&list);
    change = (struct store_sandbox_change){.name = "called"};
    ok(store_sandbox_update(f->store, f->project, id, &change, NOW, e));
    filter = (struct store_sandbox_filter){.name = "called"};
    ok(store_sandbox_list(f->store, f->project, &filter, NULL, &list, e));
    assert_int_equal(list.count, 1);
    store_sandbox_list_done(&list);
    change.name = "";
    ok(store_sandbox_update(f->store, f->project, id, &change, NOW, e));
    ok(store_sandbox_list(f->store, f->project, &filter, NULL, &list, e));
    assert_int_equal(list.count, 0);
    store_sandbox_free(steal(got));
    ok(store_sandbox_get(f->store, f->project, id, &got, e));
    assert_null(got->name);
    change.name = NULL;
    change.metadata_json = "{\"a\":4}";
    refused(ERR_INVALID, store_sandbox_update(f->store, f->project, id, &change, NOW, e));
    ok(store_sandbox_set_state(f->store, id, STORE_SANDBOX_LIVE, STORE_SANDBOX_FAILED, NULL, NOW, e));
    change.metadata_json = NULL;
    refused(ERR_STATE, store_sandbox_update(f->store, f->project, id, &change, NOW, e));
}

static void pages_hold_still_while_rows_are_added(void **state)
{
    struct fixture *f = *state;
    char ids[25][ID_SIZE], seen[25][ID_SIZE], extra[ID_SIZE];
    size_t seen_count = 0;
    for (int i = 0; i < 25; i++) /* five of each time: the id decides among them */
        fixture_sandbox(f, f->project, NOW + i / 5, NULL, ids[i]);
    struct store_page page = {.limit = 4};
    char cursor[STORE_CURSOR_SIZE];
    for (int turn = 0;; turn++) {
        _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
        ok(store_sandbox_list(f->store, f->project, NULL, &page, &list, e));
        for (size_t i = 0; i < list.count; i++)
            memcpy(seen[seen_count++], list.items[i]->id, ID_SIZE);
        fixture_sandbox(f, f->project, NOW + 100 + turn, NULL, extra); /* newer than the start: never shown */
        if (!list.next_cursor[0])
            break;
        assert_true(seen_count + 4 <= 28);
        memcpy(cursor, list.next_cursor, sizeof(cursor));
        page.cursor = cursor;
    }
    assert_int_equal(seen_count, 25);
    for (int i = 0; i < 25; i++) {
        int found = 0;
        for (size_t k = 0; k < seen_count; k++)
            found += strcmp(ids[i], seen[k]) == 0;
        assert_int_equal(found, 1);
    }
    page.limit = STORE_PAGE_MAX + 1;
    _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
    refused(ERR_INVALID, store_sandbox_list(f->store, f->project, NULL, &page, &list, e));
    page = (struct store_page){.cursor = "rubbish"};
    refused(ERR_INVALID, store_sandbox_list(f->store, f->project, NULL, &page, &list, e));
    page = (struct store_page){.limit = 32};
    ok(store_sandbox_list(f->store, f->project, NULL, &page, &list, e));
    assert_int_equal(list.count, 32); /* exactly all of them: no next page */
    assert_string_equal(list.next_cursor, "");
}

static void cursors_are_strict(void **state)
{
    (void)state;
    char id[ID_SIZE], text[STORE_CURSOR_SIZE], got_id[ID_SIZE];
    int64_t at;
    id_new(ID_SANDBOX, id);
    store_cursor_encode(NOW, id, text);
    assert_null(strpbrk(text, "+/= \"&"));
    ok(store_cursor_decode(text, &at, got_id, e));
    assert_int_equal(at, NOW);
    assert_string_equal(got_id, id);
    for (size_t i = 0; text[i]; i++) { /* any change gives another place or a refusal, never more */
        char changed[STORE_CURSOR_SIZE];
        memcpy(changed, text, sizeof(changed));
        changed[i] = '!';
        refused(ERR_INVALID, store_cursor_decode(changed, &at, got_id, e));
        changed[i] = '\0';
        if (store_cursor_decode(changed, &at, got_id, NULL) == 0)
            assert_true(strlen(got_id) < ID_LEN);
    }
    static const char *const wrong[] = {"", "AAAA", "====", "AQAAAAAAAAAAYQ==", "AgAAAAAAAAAAYQ", "Af__________YQ",
                                        "AQAAAAAAAAAAJw"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        refused(ERR_INVALID, store_cursor_decode(wrong[i], &at, got_id, e));
    char long_text[400];
    memset(long_text, 'A', sizeof(long_text));
    long_text[399] = '\0';
    refused(ERR_INVALID, store_cursor_decode(long_text, &at, got_id, e));
}

static void lists_filter_by_state_and_metadata(void **state)
{
    struct fixture *f = *state;
    char id[ID_SIZE];
    for (int i = 0; i < 30; i++) {
        _cleanup_free_ char *metadata = xasprintf("{\"team\":\"%c\",\"n\":\"%d\"}", 'a' + i % 3, i);
        fixture_sandbox(f, i % 2 ? f->project : f->other, NOW + i, metadata, id);
        if (i >= 20)
            ok(store_sandbox_set_state(f->store, id, STORE_SANDBOX_ANY, STORE_SANDBOX_RUNNING, NULL, NOW, e));
        if (i >= 25)
            ok(store_sandbox_set_state(f->store, id, STORE_SANDBOX_ANY, STORE_SANDBOX_DELETED, NULL, NOW, e));
    }
    static const struct {
        bool scoped;
        struct store_sandbox_filter filter;
        size_t count;
    } cases[] = {
        {false, {0}, 30},
        {true, {0}, 15},
        {false, {.state_mask = STORE_MASK(STORE_SANDBOX_RUNNING)}, 5},
        {false, {.state_mask = STORE_SANDBOX_LIVE}, 25},
        {true, {.state_mask = STORE_SANDBOX_ENDED}, 3},
        {false, {.metadata = {{"team", "a"}}, .metadata_count = 1}, 10},
        {true, {.metadata = {{"team", "a"}}, .metadata_count = 1}, 5},
        {false, {.metadata = {{"team", "b"}, {"n", "4"}}, .metadata_count = 2}, 1},
        {true, {.metadata = {{"team", "b"}, {"n", "4"}}, .metadata_count = 2}, 0},
        {false, {.metadata = {{"team", "x' OR 1=1 --"}}, .metadata_count = 1}, 0},
        {false, {.state_mask = STORE_SANDBOX_ENDED, .metadata = {{"team", "b"}}, .metadata_count = 1}, 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
        ok(store_sandbox_list(f->store, cases[i].scoped ? f->project : NULL, &cases[i].filter, NULL, &list, e));
        if (list.count != cases[i].count)
            fail_msg("case %zu: %zu rows, not %zu", i, list.count, cases[i].count);
    }
    struct store_sandbox_filter too_many = {.metadata_count = STORE_SANDBOX_FILTERS_MAX + 1};
    _cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
    refused(ERR_TOO_LARGE, store_sandbox_list(f->store, NULL, &too_many, NULL, &list, e));
    uint64_t count;
    ok(store_sandbox_count_live(f->store, NULL, &count, e));
    assert_int_equal(count, 25);
    ok(store_sandbox_count_live(f->store, f->project, &count, e));
    assert_int_equal(count, 12);
}

/* ---- machines ---- */

static void machines_are_claimed_once(void **state)
{
    struct fixture *f = *state;
    char first[ID_SIZE], second[ID_SIZE];
    fixture_sandbox(f, f->project, NOW, NULL, first);
    fixture_sandbox(f, f->project, NOW, NULL, second);
    struct store_machine m = {.kind = STORE_MACHINE_BLANK, .slot = 3, .template_digest = TEXT("d"), .vcpus = 1,
                              .memory_mib = 2, .disk_mib = 3, .jail_missing = 6, .created_at_ms = NOW};
    id_new(ID_MACHINE, m.id);
    ok(store_machine_insert(f->store, &m, e));
    char id[ID_SIZE];
    memcpy(id, m.id, ID_SIZE);
    id_new(ID_MACHINE, m.id);
    refused(ERR_CONFLICT, store_machine_insert(f->store, &m, e)); /* the slot */
    m.slot = 1;
    ok(store_machine_insert(f->store, &m, e));
    ok(store_machine_set_process(f->store, id, 4711, UINT64_MAX / 2, 5, e));
    ok(store_machine_set_kind(f->store, id, STORE_MACHINE_HOT, e));
    ok(store_machine_claim(f->store, id, first, e));
    refused(ERR_STATE, store_machine_claim(f->store, id, second, e));
    refused(ERR_STATE, store_machine_set_kind(f->store, id, STORE_MACHINE_BLANK, e));
    _cleanup_store_sandbox_ struct store_sandbox *sb = NULL;
    ok(store_sandbox_get(f->store, NULL, first, &sb, e));
    assert_string_equal(sb->machine_id, id);
    assert_int_equal(sb->slot, 3);
    assert_int_equal(sb->pid, 4711);
    assert_true(sb->pid_start_time == UINT64_MAX / 2);
    assert_int_equal(sb->jail_missing, 5);
    assert_int_equal(sb->generation, 1);
    ok(store_machine_set_process(f->store, id, 4712, 9, 7, e)); /* claimed before it was started */
    store_sandbox_free(steal(sb));
    ok(store_sandbox_get(f->store, NULL, first, &sb, e));
    assert_int_equal(sb->pid, 4712);
    assert_int_equal(sb->jail_missing, 7);
    refused(ERR_NOT_FOUND, store_machine_set_process(f->store, second, 1, 1, 0, e));
    _cleanup_store_machine_list_ struct store_machine_list list = {0};
    ok(store_machine_list(f->store, &list, e));
    assert_int_equal(list.count, 2);
    assert_int_equal(list.items[0]->slot, 1);
    assert_string_equal(list.items[1]->sandbox_id, first);
    id_new(ID_SANDBOX, second);
    refused(ERR_NOT_FOUND, store_machine_claim(f->store, m.id, second, e)); /* no such sandbox: nothing changes */
    _cleanup_store_machine_ struct store_machine *other = NULL;
    ok(store_machine_get(f->store, m.id, &other, e));
    assert_int_equal(other->kind, STORE_MACHINE_BLANK);
    ok(store_machine_delete(f->store, id, e));
    ok(store_machine_delete(f->store, id, e));
    store_sandbox_free(steal(sb));
    ok(store_sandbox_get(f->store, NULL, first, &sb, e));
    assert_string_equal(sb->machine_id, "");
    assert_int_equal(sb->slot, -1);
}

/* ---- operations ---- */

static void operations_go_forward_alone(void **state)
{
    struct fixture *f = *state;
    struct store_operation op = {.kind = TEXT("sandbox.create"), .target_type = TEXT("sandbox"), .target_id = TEXT("s1"),
                                 .request_id = TEXT("r1"), .created_at_ms = NOW};
    _cleanup_store_operation_ struct store_operation *got = NULL;
    id_new(ID_OPERATION, op.id);
    memcpy(op.project_id, f->project, ID_SIZE);
    ok(store_operation_insert(f->store, &op, e));
    refused(ERR_NOT_FOUND, store_operation_get(f->store, f->other, op.id, &got, e));
    ok(store_operation_start(f->store, op.id, NOW + 1, e));
    refused(ERR_STATE, store_operation_start(f->store, op.id, NOW + 1, e));
    ok(store_operation_progress(f->store, op.id, 3, 10, "copy", e));
    ok(store_operation_set_target(f->store, op.id, "s2", e));
    ok(store_operation_finish(f->store, op.id, ERR_NO_SPACE, "no space left", NOW + 2, e));
    refused(ERR_STATE, store_operation_finish(f->store, op.id, 0, NULL, NOW + 3, e));
    refused(ERR_STATE, store_operation_set_target(f->store, op.id, "s3", e));
    ok(store_operation_progress(f->store, op.id, 9, 10, "late", e)); /* without effect */
    fixture_reopen(f);
    ok(store_operation_get(f->store, f->project, op.id, &got, e));
    assert_int_equal(got->state, STORE_OPERATION_FAILED);
    assert_int_equal(got->error_code, ERR_NO_SPACE);
    assert_string_equal(got->error_text, "no space left");
    assert_int_equal(got->progress_done, 3);
    assert_string_equal(got->progress_step, "copy");
    assert_string_equal(got->target_id, "s2");
    assert_string_equal(got->request_id, "r1");
    assert_int_equal(got->started_at_ms, NOW + 1);
    assert_int_equal(got->ended_at_ms, NOW + 2);

    for (int i = 0; i < 6; i++) {
        id_new(ID_OPERATION, op.id);
        op.created_at_ms = NOW + 10 + i;
        op.target_id = TEXT(i % 2 ? "s5" : "s6");
        ok(store_operation_insert(f->store, &op, e));
    }
    ok(store_operation_finish(f->store, op.id, 0, NULL, NOW + 50, e)); /* from pending at once */
    struct store_operation_filter filter = {.target_id = "s5"};
    _cleanup_store_operation_list_ struct store_operation_list list = {0};
    ok(store_operation_list(f->store, f->project, &filter, NULL, &list, e));
    assert_int_equal(list.count, 3);
    assert_int_equal(list.items[0]->state, STORE_OPERATION_SUCCEEDED);
    assert_int_equal(list.items[0]->started_at_ms, NOW + 50);
    store_operation_list_done(&list);
    filter = (struct store_operation_filter){.kind = "sandbox.create"};
    ok(store_operation_list(f->store, f->project, &filter, NULL, &list, e));
    assert_int_equal(list.count, 7);
    store_operation_list_done(&list);
    filter.kind = "sandbox";
    ok(store_operation_list(f->store, f->project, &filter, NULL, &list, e));
    assert_int_equal(list.count, 0);
    filter = (struct store_operation_filter){.state_mask = STORE_OPERATION_OPEN};
    ok(store_operation_list(f->store, NULL, &filter, NULL, &list, e));
    assert_int_equal(list.count, 5);
    store_operation_list_done(&list);
    ok(store_operation_list(f->store, f->other, &filter, NULL, &list, e));
    assert_int_equal(list.count, 0);
}

/* ---- execs ---- */

static void exec_insert(struct fixture *f, const char *sandbox, int64_t at_ms, char ret_id[ID_SIZE],
                        char ret_token[STORE_TOKEN_SIZE])
{
    struct store_exec x = {.spec_json = TEXT("{\"command\":[\"true\"]}"), .created_at_ms = at_ms,
                           .token_expires_at_ms = at_ms + 60000};
    id_new(ID_EXEC, x.id);
    memcpy(x.sandbox_id, sandbox, ID_SIZE);
    memcpy(x.project_id, f->project, ID_SIZE);
    ok(store_exec_insert(f->store, &x, ret_token, e));
    memcpy(ret_id, x.id, ID_SIZE);
}

static void attach_tokens_open_one_exec_for_a_time(void **state)
{
    struct fixture *f = *state;
    char sandbox[ID_SIZE], other[ID_SIZE], id[ID_SIZE], id2[ID_SIZE], token[STORE_TOKEN_SIZE], token2[STORE_TOKEN_SIZE];
    struct store_exec *x = NULL;
    fixture_sandbox(f, f->project, NOW, NULL, sandbox);
    fixture_sandbox(f, f->project, NOW, NULL, other);
    exec_insert(f, sandbox, NOW, id, token);
    exec_insert(f, sandbox, NOW, id2, token2);
    assert_int_equal(strlen(token), STORE_TOKEN_SIZE - 1);
    assert_true(strncmp(token, STORE_TOKEN_PREFIX, 3) == 0);
    ok(store_exec_verify_token(f->store, sandbox, id, token, NOW + 59999, &x, e));
    assert_string_equal(x->id, id);
    store_exec_free(x);
    refused(ERR_UNAUTHENTICATED, store_exec_verify_token(f->store, sandbox, id, token, NOW + 60000, &x, e));
    refused(ERR_UNAUTHENTICATED, store_exec_verify_token(f->store, sandbox, id, token2, NOW, &x, e));
    refused(ERR_UNAUTHENTICATED, store_exec_verify_token(f->store, sandbox, id2, token, NOW, &x, e));
    refused(ERR_UNAUTHENTICATED, store_exec_verify_token(f->store, other, id, token, NOW, &x, e));
    refused(ERR_UNAUTHENTICATED, store_exec_verify_token(f->store, sandbox, id, NULL, NOW, &x, e));
    refused(ERR_UNAUTHENTICATED, store_exec_verify_token(f->store, sandbox, id, "at_", NOW, &x, e));
    ok(store_exec_extend_token(f->store, id, NOW + 100000, e));
    ok(store_exec_verify_token(f->store, sandbox, id, token, NOW + 60000, &x, e));
    store_exec_free(x);
    char renewed[STORE_TOKEN_SIZE];
    ok(store_exec_renew_token(f->store, id, NOW + 200000, renewed, e));
    refused(ERR_UNAUTHENTICATED, store_exec_verify_token(f->store, sandbox, id, token, NOW, &x, e));
    ok(store_exec_verify_token(f->store, sandbox, id, renewed, NOW + 100000, &x, e));
    store_exec_free(x);
    ok(store_exec_start(f->store, id, 1, NOW, e));
    refused(ERR_STATE, store_exec_renew_token(f->store, id, NOW + 200000, renewed, e));
}

static void execs_end_once(void **state)
{
    struct fixture *f = *state;
    char sandbox[ID_SIZE], ids[6][ID_SIZE], token[STORE_TOKEN_SIZE];
    _cleanup_store_exec_ struct store_exec *x = NULL;
    fixture_sandbox(f, f->project, NOW, NULL, sandbox);
    for (int i = 0; i < 6; i++)
        exec_insert(f, sandbox, NOW + i, ids[i], token);
    const struct store_exec_exit ended = {.exit_code = -1, .exit_signal = 9, .output_bytes = 1ULL << 40, .dropped_bytes = 2,
                                          .cpu_user_us = 3, .cpu_system_us = 4, .max_rss_bytes = 5, .oom = true, .timed_out = true,
                                          .started_at_ms = NOW + 1, .ended_at_ms = NOW + 2};
    ok(store_exec_start(f->store, ids[0], 17, NOW + 10, e));
    refused(ERR_STATE, store_exec_start(f->store, ids[0], 17, NOW + 10, e));
    ok(store_exec_finish(f->store, ids[0], &ended, NOW + 11, e));
    refused(ERR_STATE, store_exec_finish(f->store, ids[0], &ended, NOW + 11, e));
    refused(ERR_STATE, store_exec_fail(f->store, ids[0], STORE_EXEC_LOST, "x", NOW, e));
    refused(ERR_INVALID, store_exec_fail(f->store, ids[1], STORE_EXEC_EXITED, "x", NOW, e));
    ok(store_exec_fail(f->store, ids[1], STORE_EXEC_FAILED, "no such program", NOW + 12, e));
    fixture_reopen(f);
    refused(ERR_NOT_FOUND, store_exec_get(f->store, f->other, sandbox, ids[0], &x, e));
    ok(store_exec_get(f->store, f->project, sandbox, ids[0], &x, e));
    assert_int_equal(x->state, STORE_EXEC_EXITED);
    assert_int_equal(x->guest_pid, 17);
    assert_memory_equal(&x->exit, &ended, sizeof(ended));
    assert_int_equal(x->started_at_ms, NOW + 10);
    assert_int_equal(x->ended_at_ms, NOW + 11);
    assert_string_equal(x->spec_json, "{\"command\":[\"true\"]}");
    assert_int_equal(ok(store_exec_lose_all(f->store, sandbox, "the sandbox ended", NOW + 20, e)), 4);
    assert_int_equal(ok(store_exec_lose_all(f->store, sandbox, "the sandbox ended", NOW + 20, e)), 0);
    _cleanup_store_exec_list_ struct store_exec_list list = {0};
    ok(store_exec_list(f->store, f->project, sandbox, STORE_MASK(STORE_EXEC_LOST), NULL, &list, e));
    assert_int_equal(list.count, 4);
    assert_string_equal(list.items[0]->id, ids[5]);
    assert_string_equal(list.items[0]->reason, "the sandbox ended");
    store_exec_list_done(&list);
    assert_int_equal(ok(store_exec_trim(f->store, sandbox, 4, e)), 2);
    assert_int_equal(ok(store_exec_trim(f->store, sandbox, 4, e)), 0);
    ok(store_exec_list(f->store, f->project, NULL, 0, NULL, &list, e));
    assert_int_equal(list.count, 4);
    assert_string_equal(list.items[3]->id, ids[2]); /* the oldest went */
    refused(ERR_NOT_FOUND, store_exec_delete(f->store, f->other, sandbox, ids[5], e));
    ok(store_exec_delete(f->store, f->project, sandbox, ids[5], e));
    refused(ERR_NOT_FOUND, store_exec_delete(f->store, f->project, sandbox, ids[5], e));
    struct store_exec wrong = {.spec_json = TEXT("{"), .created_at_ms = NOW};
    id_new(ID_EXEC, wrong.id);
    memcpy(wrong.sandbox_id, sandbox, ID_SIZE);
    memcpy(wrong.project_id, f->project, ID_SIZE);
    refused(ERR_INVALID, store_exec_insert(f->store, &wrong, token, e));
    wrong.spec_json = NULL;
    id_new(ID_SANDBOX, wrong.sandbox_id);
    refused(ERR_NOT_FOUND, store_exec_insert(f->store, &wrong, token, e));
}

/* started_at and ended_at are as far apart as the guest says that it ran, within what the host knows. */
static void times_of_an_exec_agree(void **state)
{
    struct fixture *f = *state;
    char sandbox[ID_SIZE], id[ID_SIZE], token[STORE_TOKEN_SIZE];
    static const struct {
        int64_t started, guest_started, guest_ended, seen, want_started, want_ended;
    } cases[] = {
        {10, 50000, 50005, 2000, 10, 15},         /* seen late */
        {10, 50000, 50005, 12, 7, 12},            /* the start was heard of late */
        {0, 50000, 50005, 12, 7, 12},             /* … or not at all */
        {10, 50000, 99999999, 2000, 0, 2000},     /* longer than it can have been */
        {10, 50000, 1, 2000, 10, 10},             /* the guest's clock went back */
        {10, 0, 0, 2000, 10, 2000},               /* the guest does not say */
        {0, 0, 0, 2000, 2000, 2000},
    };
    fixture_sandbox(f, f->project, NOW, NULL, sandbox);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_store_exec_ struct store_exec *x = NULL;
        const struct store_exec_exit end = {.started_at_ms = cases[i].guest_started, .ended_at_ms = cases[i].guest_ended};
        exec_insert(f, sandbox, NOW, id, token);
        if (cases[i].started)
            ok(store_exec_start(f->store, id, 1, NOW + cases[i].started, e));
        ok(store_exec_finish(f->store, id, &end, NOW + cases[i].seen, e));
        ok(store_exec_get(f->store, NULL, NULL, id, &x, e));
        assert_int_equal(x->started_at_ms - NOW, cases[i].want_started);
        assert_int_equal(x->ended_at_ms - NOW, cases[i].want_ended);
    }
}

/* ---- templates ---- */

static void templates_are_found_by_digest_and_tag(void **state)
{
    struct fixture *f = *state;
    struct store_template t = {.digest = TEXT("aaaa"), .kind = TEXT("base"), .state = STORE_TEMPLATE_IMPORTING,
                               .manifest_json = TEXT("{\"x\":1}"), .size_bytes = 5, .created_at_ms = NOW};
    struct store_template *got = NULL;
    ok(store_template_insert(f->store, &t, e));
    refused(ERR_CONFLICT, store_template_insert(f->store, &t, e));
    refused(ERR_STATE, store_template_resolve(f->store, f->project, "aaaa", &got, e));
    ok(store_template_set_state(f->store, "aaaa", STORE_TEMPLATE_READY, NULL, e));
    t.digest = TEXT("bbbb");
    t.state = STORE_TEMPLATE_READY;
    ok(store_template_insert(f->store, &t, e));
    ok(store_template_tag_set(f->store, NULL, "base", "aaaa", NOW, e));
    ok(store_template_resolve(f->store, f->project, "base", &got, e));
    assert_string_equal(got->digest, "aaaa");
    assert_string_equal(got->manifest_json, "{\"x\":1}");
    store_template_free(got);
    ok(store_template_tag_set(f->store, f->project, "base", "bbbb", NOW, e)); /* the project's own stands before it */
    ok(store_template_resolve(f->store, f->project, "base", &got, e));
    assert_string_equal(got->digest, "bbbb");
    store_template_free(got);
    ok(store_template_resolve(f->store, f->other, "base", &got, e));
    assert_string_equal(got->digest, "aaaa");
    store_template_free(got);
    ok(store_template_tag_set(f->store, NULL, "base", "bbbb", NOW + 1, e)); /* tags move */
    ok(store_template_resolve(f->store, f->other, "base", &got, e));
    assert_string_equal(got->digest, "bbbb");
    store_template_free(got);
    refused(ERR_NOT_FOUND, store_template_resolve(f->store, f->other, "none", &got, e));
    refused(ERR_NOT_FOUND, store_template_tag_set(f->store, NULL, "x", "cccc", NOW, e));
    static const char *const wrong[] = {"", ".x", "A", "a b", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        refused(ERR_INVALID, store_template_tag_set(f->store, NULL, wrong[i], "aaaa", NOW, e));
    _cleanup_free_ struct store_template_tag *tags = NULL;
    size_t count;
    ok(store_template_tag_list(f->store, f->project, NULL, &tags, &count, e));
    assert_int_equal(count, 2);
    free(steal(tags));
    ok(store_template_tag_list(f->store, f->other, "bbbb", &tags, &count, e));
    assert_int_equal(count, 1);
    assert_string_equal(tags[0].project_id, "");
    ok(store_template_tag_delete(f->store, f->project, "base", e));
    refused(ERR_NOT_FOUND, store_template_tag_delete(f->store, f->project, "base", e));

    struct store_sandbox sb = {.template_digest = TEXT("bbbb"), .vcpus = 1, .memory_mib = 1, .disk_mib = 1,
                               .created_at_ms = NOW};
    id_new(ID_SANDBOX, sb.id);
    memcpy(sb.project_id, f->project, ID_SIZE);
    ok(store_sandbox_insert(f->store, &sb, e));
    refused(ERR_STATE, store_template_delete(f->store, "bbbb", e));
    ok(store_sandbox_set_state(f->store, sb.id, STORE_SANDBOX_ANY, STORE_SANDBOX_DELETED, NULL, NOW, e));
    ok(store_template_delete(f->store, "bbbb", e));
    refused(ERR_NOT_FOUND, store_template_delete(f->store, "bbbb", e));
    _cleanup_store_template_list_ struct store_template_list list = {0};
    const struct store_page page = {.limit = 1};
    ok(store_template_list(f->store, &page, &list, e));
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0]->digest, "aaaa");
}

static void template_pages_follow_long_digests(void **state)
{
    struct fixture *f = *state;
    char digest[STORE_DIGEST_MAX + 1] = "";
    memset(digest, 'f', STORE_DIGEST_MAX);
    for (int i = 0; i < 3; i++) {
        digest[STORE_DIGEST_MAX - 1] = (char)('a' + i);
        const struct store_template t = {.digest = digest, .kind = TEXT("base"), .created_at_ms = NOW};
        ok(store_template_insert(f->store, &t, e));
    }
    struct store_page page = {.limit = 1};
    char cursor[sizeof(((struct store_template_list *)0)->next_cursor)];
    for (int i = 2; i >= 0; i--) {
        _cleanup_store_template_list_ struct store_template_list list = {0};
        ok(store_template_list(f->store, &page, &list, e));
        assert_int_equal(list.items[0]->digest[STORE_DIGEST_MAX - 1], 'a' + i);
        assert_int_equal(list.next_cursor[0] != '\0', i > 0);
        memcpy(cursor, list.next_cursor, sizeof(cursor));
        page.cursor = cursor;
    }
}

/* ---- idempotency keys ---- */

static void idempotency_keys_give_the_same_answer(void **state)
{
    struct fixture *f = *state;
    const uint64_t day = 86400000;
    uint8_t hash[STORE_HASH_LEN], other_hash[STORE_HASH_LEN];
    _cleanup_store_idempotency_answer_ struct store_idempotency_answer answer = {0};
    store_request_hash("POST", "/v1/sandboxes", "{}", 2, hash);
    store_request_hash("POST", "/v1/sandboxes{", "}", 1, other_hash); /* the parts do not run together */
    assert_memory_not_equal(hash, other_hash, STORE_HASH_LEN);
#define BEGIN(key, h, at) store_idempotency_begin(f->store, f->project, key, h, day, at, &answer, e)
    assert_int_equal(ok(BEGIN("k", hash, NOW)), STORE_IDEMPOTENCY_NEW);
    assert_int_equal(ok(BEGIN("k", hash, NOW)), STORE_IDEMPOTENCY_RUNNING);
    refused(ERR_CONFLICT, BEGIN("k", other_hash, NOW));
    const struct store_idempotency_answer given = {.status = 202, .location = TEXT("/v1/x"), .body = TEXT("a\0b"),
                                                   .body_len = 3, .target_id = TEXT("s1")};
    ok(store_idempotency_finish(f->store, f->project, "k", &given, e));
    assert_int_equal(ok(BEGIN("k", hash, NOW + (int64_t)day - 1)), STORE_IDEMPOTENCY_REPLAY);
    assert_int_equal(answer.status, 202);
    assert_string_equal(answer.location, "/v1/x");
    assert_int_equal(answer.body_len, 3);
    assert_memory_equal(answer.body, "a\0b", 4);
    assert_string_equal(answer.target_id, "s1");
    store_idempotency_answer_done(&answer);
    refused(ERR_CONFLICT, BEGIN("k", other_hash, NOW));
    assert_int_equal(ok(store_idempotency_begin(f->store, f->other, "k", other_hash, day, NOW, &answer, e)),
                     STORE_IDEMPOTENCY_NEW); /* another project's */
    assert_int_equal(ok(BEGIN("k", other_hash, NOW + (int64_t)day)), STORE_IDEMPOTENCY_NEW); /* its time is over */
    ok(store_idempotency_forget(f->store, f->project, "k", e));
    assert_int_equal(ok(BEGIN("k", hash, NOW)), STORE_IDEMPOTENCY_NEW);
    fixture_reopen(f); /* the process ended before it answered */
    assert_int_equal(ok(BEGIN("k", hash, NOW)), STORE_IDEMPOTENCY_NEW);
    refused(ERR_INVALID, BEGIN("", hash, NOW));
    refused(ERR_INVALID, BEGIN("a b", hash, NOW));
    refused(ERR_INVALID, BEGIN("\xc3\xa4", hash, NOW));
    char long_key[300];
    memset(long_key, 'k', sizeof(long_key));
    long_key[299] = '\0';
    refused(ERR_TOO_LARGE, BEGIN(long_key, hash, NOW));
    refused(ERR_NOT_FOUND, store_idempotency_finish(f->store, f->project, "none", &given, e));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(sandbox_keeps_every_field),
        CASE(what_belongs_to_another_project_is_not_found),
        CASE(sandbox_bounds),
        cmocka_unit_test(reasons_are_cut_between_characters),
        CASE(state_changes_are_compare_and_set),
        CASE(sandbox_can_be_changed_until_it_ends),
        CASE(pages_hold_still_while_rows_are_added),
        cmocka_unit_test(cursors_are_strict),
        CASE(lists_filter_by_state_and_metadata),
        CASE(machines_are_claimed_once),
        CASE(operations_go_forward_alone),
        CASE(attach_tokens_open_one_exec_for_a_time),
        CASE(execs_end_once),
        CASE(times_of_an_exec_agree),
        CASE(templates_are_found_by_digest_and_tag),
        CASE(template_pages_follow_long_digests),
        CASE(idempotency_keys_give_the_same_answer),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
