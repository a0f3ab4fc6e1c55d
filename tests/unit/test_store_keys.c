/* Unit tests of src/store: projects, API keys and the table of keys found valid. */
#include "store_fixture.h"

#include "base/str.h"
#include "store/api_key.h"
#include "store/internal.h"

static void projects_have_names_of_their_own(void **state)
{
    struct fixture *f = *state;
    struct store_project *p = NULL;
    refused(ERR_CONFLICT, store_project_make(f->store, "one", NOW, &p, e));
    refused(ERR_INVALID, store_project_make(f->store, "", NOW, &p, e));
    refused(ERR_INVALID, store_project_make(f->store, "a\x1b[2J", NOW, &p, e));
    refused(ERR_NOT_FOUND, store_project_get(f->store, "pxxx", &p, e));
    ok(store_project_get(f->store, f->other, &p, e));
    assert_string_equal(p->name, "two");
    assert_int_equal(p->created_at_ms, NOW + 1);
    store_project_free(p);
    _cleanup_store_project_list_ struct store_project_list list = {0};
    const struct store_page first = {.limit = 1};
    ok(store_project_list(f->store, &first, &list, e));
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0]->id, f->other);
    char cursor[STORE_CURSOR_SIZE];
    memcpy(cursor, list.next_cursor, sizeof(cursor));
    store_project_list_done(&list);
    const struct store_page second = {.limit = 1, .cursor = cursor};
    ok(store_project_list(f->store, &second, &list, e));
    assert_string_equal(list.items[0]->id, f->project);
    assert_string_equal(list.next_cursor, "");
}

static void keys_are_valid_until_revoked_or_expired(void **state)
{
    struct fixture *f = *state;
    char secret[STORE_SECRET_SIZE], short_lived[STORE_SECRET_SIZE];
    struct store_caller caller = {0};
    _cleanup_store_api_key_ struct store_api_key *key = NULL, *other = NULL;
    const uint32_t scopes = STORE_SCOPE_EXECS | STORE_SCOPE_FILES;
    ok(store_api_key_make(f->store, f->project, "ci", scopes, 0, NOW, secret, &key, e));
    ok(store_api_key_make(f->store, f->project, "short", scopes, NOW + 10, NOW, short_lived, NULL, e));
    assert_int_equal(strlen(secret), STORE_SECRET_SIZE - 1);
    assert_true(str_starts(secret, STORE_SECRET_PREFIX));
    assert_int_equal(strlen(key->prefix), strlen(STORE_SECRET_PREFIX) + 4);
    assert_true(str_starts(secret, key->prefix));
    for (int twice = 0; twice < 2; twice++) { /* from the file, then from memory */
        ok(store_api_key_verify(f->store, secret, NOW, &caller, e));
        assert_string_equal(caller.key_id, key->id);
        assert_string_equal(caller.project_id, f->project);
        assert_int_equal(caller.scopes, scopes);
    }
    ok(store_api_key_verify(f->store, short_lived, NOW + 9, &caller, e));
    refused(ERR_UNAUTHENTICATED, store_api_key_verify(f->store, short_lived, NOW + 10, &caller, e));
    fixture_reopen(f);
    refused(ERR_UNAUTHENTICATED, store_api_key_verify(f->store, short_lived, NOW + 10, &caller, e));
    ok(store_api_key_verify(f->store, secret, NOW, &caller, e));

    refused(ERR_NOT_FOUND, store_api_key_revoke(f->store, f->other, key->id, NOW + 1, e));
    ok(store_api_key_verify(f->store, secret, NOW, &caller, e));
    ok(store_api_key_revoke(f->store, f->project, key->id, NOW + 1, e));
    ok(store_api_key_revoke(f->store, f->project, key->id, NOW + 2, e));
    refused(ERR_UNAUTHENTICATED, store_api_key_verify(f->store, secret, NOW, &caller, e));
    refused(ERR_NOT_FOUND, store_api_key_get(f->store, f->other, key->id, &other, e));
    ok(store_api_key_get(f->store, f->project, key->id, &other, e));
    assert_int_equal(other->revoked_at_ms, NOW + 1);
    _cleanup_store_api_key_list_ struct store_api_key_list list = {0};
    ok(store_api_key_list(f->store, f->project, NULL, &list, e));
    assert_int_equal(list.count, 2);

    refused(ERR_INVALID, store_api_key_make(f->store, f->project, "x", 0, 0, NOW, secret, NULL, e));
    refused(ERR_INVALID, store_api_key_make(f->store, f->project, "x", 1 << 20, 0, NOW, secret, NULL, e));
    refused(ERR_INVALID, store_api_key_make(f->store, f->project, "x", scopes, NOW, NOW, secret, NULL, e));
    refused(ERR_INVALID, store_api_key_make(f->store, f->project, "", scopes, 0, NOW, secret, NULL, e));
    refused(ERR_NOT_FOUND, store_api_key_make(f->store, "pnone", "x", scopes, 0, NOW, secret, NULL, e));
}

static void wrong_secrets_are_all_alike(void **state)
{
    struct fixture *f = *state;
    char secret[STORE_SECRET_SIZE];
    struct store_caller caller;
    ok(store_api_key_make(f->store, f->project, "ci", STORE_SCOPE_EXECS, 0, NOW, secret, NULL, e));
    char changed[STORE_SECRET_SIZE], upper[STORE_SECRET_SIZE], longer[STORE_SECRET_SIZE + 1];
    memcpy(changed, secret, sizeof(changed));
    changed[STORE_SECRET_SIZE - 2] = changed[STORE_SECRET_SIZE - 2] == '0' ? '1' : '0';
    memcpy(upper, secret, sizeof(upper));
    memcpy(upper, "SK_", 3);
    snprintf(longer, sizeof(longer), "%s0", secret);
    const char *const wrong[] = {NULL, "", "sk_space_", "sk_space_zz", changed, upper, longer,
                                 "sk_space_0000000000000000000000000000000000000000", "' OR 1=1 --"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct err e = {0};
        assert_int_equal(store_api_key_verify(f->store, wrong[i], NOW, &caller, &e), ERR_UNAUTHENTICATED);
        assert_string_equal(e.text, "the API key is not valid");
    }
}

static void secrets_are_not_in_the_file(void **state)
{
    struct fixture *f = *state;
    char secret[STORE_SECRET_SIZE];
    ok(store_api_key_make(f->store, f->project, "ci", STORE_SCOPE_EXECS, 0, NOW, secret, NULL, e));
    ok(store_api_key_flush_used(f->store, e));
    for (int i = 0; i < 2; i++) {
        _cleanup_free_ char *path = xasprintf("%s%s", f->path, i ? "-wal" : "");
        _cleanup_fclose_ FILE *file = fopen(path, "re");
        static char content[4 * MIB];
        assert_non_null(file);
        size_t len = fread(content, 1, sizeof(content), file);
        assert_null(memmem(content, len, secret + strlen(STORE_SECRET_PREFIX), 40));
    }
}

static void two_keys_with_the_same_start_of_hash_are_told_apart(void **state)
{
    struct fixture *f = *state;
    char first[STORE_SECRET_SIZE], second[STORE_SECRET_SIZE];
    struct store_caller caller;
    _cleanup_store_api_key_ struct store_api_key *a = NULL, *b = NULL;
    ok(store_api_key_make(f->store, f->project, "a", STORE_SCOPE_EXECS, 0, NOW, first, &a, e));
    ok(store_api_key_make(f->store, f->project, "b", STORE_SCOPE_EXECS, 0, NOW, second, &b, e));
    ok(statement_run(f->store, "UPDATE api_keys SET hash_start = (SELECT hash_start FROM api_keys WHERE id = ?)",
                     BINDS(B_TEXT(b->id)), e));
    ok(store_api_key_verify(f->store, second, NOW, &caller, e));
    assert_string_equal(caller.key_id, b->id);
    refused(ERR_UNAUTHENTICATED, store_api_key_verify(f->store, first, NOW, &caller, e)); /* not reachable by its own */
}

static void last_use_is_kept_to_a_minute(void **state)
{
    struct fixture *f = *state;
    char secret[STORE_SECRET_SIZE];
    struct store_caller caller;
    struct store_stats before, after;
    struct store_api_key *key = NULL;
    ok(store_api_key_make(f->store, f->project, "a", STORE_SCOPE_EXECS, 0, NOW, secret, &key, e));
    ok(store_api_key_verify(f->store, secret, NOW, &caller, e));
    ok(store_api_key_flush_used(f->store, e));
    store_stats_get(f->store, &before);
    for (int i = 0; i < 1000; i++) /* no request writes */
        ok(store_api_key_verify(f->store, secret, NOW + 59999, &caller, e));
    ok(store_api_key_flush_used(f->store, e));
    store_stats_get(f->store, &after);
    assert_int_equal(before.commits, after.commits);
    ok(store_api_key_verify(f->store, secret, NOW + 60000, &caller, e));
    ok(store_api_key_flush_used(f->store, e));
    char id[ID_SIZE];
    memcpy(id, key->id, ID_SIZE);
    store_api_key_free(steal(key));
    ok(store_api_key_get(f->store, NULL, id, &key, e));
    assert_int_equal(key->last_used_at_ms, NOW + 60000);
    store_api_key_free(key);
}

static void a_key_that_was_rolled_back_is_not_remembered(void **state)
{
    struct fixture *f = *state;
    char secret[STORE_SECRET_SIZE];
    struct store_caller caller;
    struct store_tx tx = {0};
    ok(store_begin(f->store, &tx, e));
    ok(store_api_key_make(f->store, f->project, "a", STORE_SCOPE_EXECS, 0, NOW, secret, NULL, e));
    ok(store_api_key_verify(f->store, secret, NOW, &caller, e));
    store_rollback(&tx);
    refused(ERR_UNAUTHENTICATED, store_api_key_verify(f->store, secret, NOW, &caller, e));

    struct store_api_key *key = NULL;
    ok(store_api_key_make(f->store, f->project, "a", STORE_SCOPE_EXECS, 0, NOW, secret, &key, e));
    ok(store_begin(f->store, &tx, e));
    ok(store_api_key_revoke(f->store, f->project, key->id, NOW, e));
    refused(ERR_UNAUTHENTICATED, store_api_key_verify(f->store, secret, NOW, &caller, e));
    store_rollback(&tx);
    ok(store_api_key_verify(f->store, secret, NOW, &caller, e));
    store_api_key_free(key);
}

/* Thousands of calls in a random order on more keys than the table in memory holds, against a plain model. */
static void many_keys_at_random(void **state)
{
    struct fixture *f = *state;
    enum { KEYS = 1400, CALLS = 12000 };
    struct model_key {
        char secret[STORE_SECRET_SIZE], id[ID_SIZE];
        int64_t expires;
        bool revoked;
    } *keys = xcalloc(KEYS, sizeof(*keys));
    struct store_caller caller;
    struct store_stats stats;
    struct store_tx tx = {0};
    int64_t now = NOW;
    srand(7);
    ok(store_begin(f->store, &tx, e));
    for (int i = 0; i < KEYS; i++) {
        struct store_api_key *key = NULL;
        keys[i].expires = i % 3 ? 0 : NOW + 1 + rand() % CALLS;
        ok(store_api_key_make(f->store, i % 2 ? f->project : f->other, "k", STORE_SCOPE_PORTS, keys[i].expires, NOW,
                              keys[i].secret, &key, e));
        memcpy(keys[i].id, key->id, ID_SIZE);
        store_api_key_free(key);
    }
    ok(store_commit(&tx, e));
    for (int i = 0; i < CALLS; i++) {
        struct model_key *k = &keys[rand() % KEYS];
        now++;
        if (rand() % 40 == 0) {
            ok(store_api_key_revoke(f->store, NULL, k->id, now, e));
            k->revoked = true;
        }
        bool valid = !k->revoked && (k->expires == 0 || k->expires > now);
        int r = store_api_key_verify(f->store, k->secret, now, &caller, NULL);
        assert_int_equal(r, valid ? 0 : ERR_UNAUTHENTICATED);
        if (valid)
            assert_string_equal(caller.key_id, k->id);
    }
    store_stats_get(f->store, &stats);
    assert_in_range(stats.cached_keys, 500, 1024);
    free(keys);
}

static void keys_of_a_project_are_bounded(void **state)
{
    struct fixture *f = *state;
    char secret[STORE_SECRET_SIZE];
    struct store_tx tx = {0};
    ok(store_begin(f->store, &tx, e));
    for (int i = 0; i < STORE_KEYS_PER_PROJECT_MAX; i++)
        ok(store_api_key_make(f->store, f->project, "k", STORE_SCOPE_PORTS, NOW + 10, NOW, secret, NULL, e));
    refused(ERR_LIMIT, store_api_key_make(f->store, f->project, "k", STORE_SCOPE_PORTS, 0, NOW, secret, NULL, e));
    ok(store_api_key_make(f->store, f->other, "k", STORE_SCOPE_PORTS, 0, NOW, secret, NULL, e));
    ok(store_api_key_make(f->store, f->project, "k", STORE_SCOPE_PORTS, 0, NOW + 10, secret, NULL, e));
    ok(store_commit(&tx, e));
}

static void the_first_key_is_made_once(void **state)
{
    struct fixture *f = *state;
    char secret[STORE_SECRET_SIZE], again[STORE_SECRET_SIZE], plain[STORE_SECRET_SIZE];
    struct store_caller caller;
    assert_int_equal(ok(store_api_key_ensure_admin(f->store, NULL, NOW, secret, e)), 1);
    ok(store_api_key_verify(f->store, secret, NOW, &caller, e));
    assert_int_equal(caller.scopes, STORE_SCOPE_ALL);
    assert_int_equal(ok(store_api_key_ensure_admin(f->store, secret, NOW, again, e)), 0);
    fixture_reopen(f);
    assert_int_equal(ok(store_api_key_ensure_admin(f->store, secret, NOW, again, e)), 0);
    /* The file was lost: a new key takes the place of the old one. */
    assert_int_equal(ok(store_api_key_ensure_admin(f->store, NULL, NOW, again, e)), 1);
    refused(ERR_UNAUTHENTICATED, store_api_key_verify(f->store, secret, NOW, &caller, e));
    ok(store_api_key_verify(f->store, again, NOW, &caller, e));
    /* The file holds something else. */
    ok(store_api_key_make(f->store, f->project, "k", STORE_SCOPE_PORTS, 0, NOW, plain, NULL, e));
    assert_int_equal(ok(store_api_key_ensure_admin(f->store, plain, NOW, secret, e)), 1);
    assert_int_equal(ok(store_api_key_ensure_admin(f->store, "rubbish", NOW, secret, e)), 1);
}

static void scopes_have_names(void **state)
{
    (void)state;
    for (uint32_t scope = 1; scope < STORE_SCOPE_ALL; scope <<= 1)
        assert_int_equal(store_scope_by_name(store_scope_name(scope)), scope);
    assert_null(store_scope_name(STORE_SCOPE_ALL));
    assert_null(store_scope_name(0));
    assert_int_equal(store_scope_by_name("sandboxes"), 0);
    assert_int_equal(store_scope_by_name("admin"), STORE_SCOPE_ADMIN);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(projects_have_names_of_their_own),
        CASE(keys_are_valid_until_revoked_or_expired),
        CASE(wrong_secrets_are_all_alike),
        CASE(secrets_are_not_in_the_file),
        CASE(two_keys_with_the_same_start_of_hash_are_told_apart),
        CASE(last_use_is_kept_to_a_minute),
        CASE(a_key_that_was_rolled_back_is_not_remembered),
        CASE(many_keys_at_random),
        CASE(keys_of_a_project_are_bounded),
        CASE(the_first_key_is_made_once),
        cmocka_unit_test(scopes_have_names),
    };
    return cmocka_run_group_tests_name("store_keys", tests, NULL, NULL);
}
