/* A template as JSON: the store's row, what its manifest says, and the shapes that the node can clone at once. */
#include "api/render.h"

#define SHAPES_MAX 256

/* A string of the manifest, or null: it was made by a build script, ours or somebody's. */
static json_t *text_or_null(const json_t *value)
{
    return json_string_length(value) ? json_string(json_string_value(value)) : json_null();
}

static uint32_t number_at(const json_t *object, const char *name, uint32_t otherwise)
{
    json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) > 0 ? (uint32_t)json_integer_value(value) : otherwise;
}

/* "kernel": {"release": "6.1.0-32-cloud-amd64", …} or the release alone. */
static json_t *kernel_of(const json_t *manifest)
{
    const json_t *kernel = json_object_get(manifest, "kernel");
    return text_or_null(json_is_object(kernel) ? json_object_get(kernel, "release") : kernel);
}

static json_t *tags_of(struct api *api, const char *project_id, const char *digest)
{
    _cleanup_free_ struct store_template_tag *rows = NULL;
    size_t count = 0;
    json_t *tags = json_array();
    store_template_tag_list(api->store, project_id, digest, &rows, &count, NULL);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(tags, json_string(rows[i].tag));
    return tags;
}

static json_t *checkpoints_of(struct api *api, const char *digest)
{
    _cleanup_free_ struct node_template_shape *shapes = xcalloc(SHAPES_MAX, sizeof(*shapes));
    json_t *list = json_array();
    size_t count = node_template_shapes(control_node(api->control), digest, shapes, SHAPES_MAX);
    for (size_t i = 0; i < MIN(count, (size_t)SHAPES_MAX); i++)
        json_array_append_new(
            list, json_pack("{s:o, s:s, s:s}", "shape",
                            render_shape(shapes[i].shape.vcpus, shapes[i].shape.mem_mib, shapes[i].shape.disk_mib),
                            "accelerator", shapes[i].accelerator == ACCELERATOR_KVM ? "kvm" : "tcg", "qemu_version",
                            shapes[i].qemu_version));
    return list;
}

static json_t *packages_of(const json_t *manifest)
{
    json_t *list = json_array(), *item;
    size_t i;
    json_array_foreach(json_object_get(manifest, "packages"), i, item) {
        const json_t *name = json_object_get(item, "name"), *version = json_object_get(item, "version");
        if (json_is_string(name) && json_is_string(version))
            json_array_append_new(list, json_pack("{s:s, s:s}", "name", json_string_value(name), "version",
                                                  json_string_value(version)));
    }
    return list;
}

json_t *render_template(struct api *api, const char *project_id, const struct store_template *t, bool whole)
{
    json_t *manifest = t->manifest_json ? json_loads(t->manifest_json, 0, NULL) : NULL;
    const json_t *shape = json_object_get(manifest, "default_shape");
    const char *architecture = json_string_value(json_object_get(manifest, "architecture"));
    uint32_t least_disk = node_template_disk_mib(control_node(api->control), t->digest);
    json_t *out = json_pack(
        "{s:s, s:o, s:s, s:o, s:o, s:o, s:I, s:o, s:o}", "digest", t->digest, "tags",
        tags_of(api, project_id, t->digest), "architecture", architecture ? architecture : "x86_64", "kernel",
        kernel_of(manifest), "agent_sha256", text_or_null(json_object_get(manifest, "agent_sha256")), "default_shape",
        render_shape(number_at(shape, "vcpus", api->config->default_vcpus),
                     number_at(shape, "memory_mib", api->config->default_memory_mib),
                     number_at(shape, "disk_mib", MAX(api->config->default_disk_mib, least_disk))),
        "size_bytes", (json_int_t)t->size_bytes, "created_at", render_time(t->created_at_ms), "checkpoints",
        checkpoints_of(api, t->digest));
    if (whole)
        json_object_set_new(out, "packages", packages_of(manifest));
    json_decref(manifest);
    return out;
}
