/* See store_fixture.h. */
#include "store_fixture.h"

#include "base/file.h"

static void open_store(struct fixture *f)
{
    const struct store_options options = {.path = f->path, .exclusive = true};
    ok(store_open(&options, &f->store, e));
}

int fixture_setup(void **state)
{
    struct fixture *f = NEW(struct fixture);
    struct store_project *one = NULL, *two = NULL;
    snprintf(f->folder, sizeof(f->folder), "/tmp/space-store-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/space.db", f->folder);
    open_store(f);
    ok(store_project_make(f->store, "one", NOW, &one, e));
    ok(store_project_make(f->store, "two", NOW + 1, &two, e));
    memcpy(f->project, one->id, ID_SIZE);
    memcpy(f->other, two->id, ID_SIZE);
    store_project_free(one);
    store_project_free(two);
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    store_close(f->store);
    dir_remove_tree(f->folder, NULL);
    free(f);
    return 0;
}

void fixture_reopen(struct fixture *f)
{
    store_close(f->store);
    f->store = NULL;
    open_store(f);
}

void fixture_sandbox(struct fixture *f, const char *project, int64_t at_ms, const char *metadata, char ret_id[ID_SIZE])
{
    struct store_sandbox sb = {
        .template_digest = (char *)(uintptr_t)"0123abcd",
        .template_tag = (char *)(uintptr_t)"base",
        .vcpus = 1,
        .memory_mib = 256,
        .disk_mib = 2048,
        .metadata_json = (char *)(uintptr_t)metadata,
        .timeout_ms = 300000,
        .created_at_ms = at_ms,
        .expires_at_ms = at_ms + 300000,
        .slot = -1,
    };
    id_new(ID_SANDBOX, sb.id);
    memcpy(sb.project_id, project, ID_SIZE);
    ok(store_sandbox_insert(f->store, &sb, e));
    memcpy(ret_id, sb.id, ID_SIZE);
}
