/* space doctor: what this host can give, and what the server says of itself. */
#include "base/str.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/doctor_checks.h"
#include "cli/out.h"

struct doctor_args {
    bool strict;
};

static const char *const status_names[] = {"good", "note", "warning", "bad"};

static void check_server(struct cli *cli, struct findings *f, bool kvm)
{
    struct api *api;
    struct err e = {0};
    _cleanup_json_ json_t *node = NULL, *template = NULL;
    int r = cli_api(cli, &api, &e);
    if (r >= 0)
        r = api_call(api, "GET", "/v1/node", NULL, &node, NULL, &e);
    if (r < 0) {
        finding_add(f, "server", e.code == ERR_UNAVAILABLE ? FINDING_WARNING : FINDING_BAD, NULL, "%s", e.text);
        doctor_check_qemu(f, NULL, kvm);
        return;
    }
    const char *version = json_text(node, "version"), *accelerator = json_text(node, "accelerator");
    const char *qemu = json_text(node, "qemu_version"), *jail = json_text(node, "isolation.jail");
    bool full = jail && str_eq(jail, "full");
    finding_add(f, "server", FINDING_GOOD, NULL, "%.100s, spaced %.20s, %.8s, QEMU %.20s", api_url(api),
                version ? version : "?", accelerator ? accelerator : "?", qemu ? qemu : "?");
    doctor_check_qemu(f, qemu, accelerator && str_eq(accelerator, "kvm"));
    finding_add(f, "jail", full ? FINDING_GOOD : FINDING_WARNING,
                full ? NULL : "each sandbox's answer names what is missing; require_jail refuses to start like this",
                "%.20s", jail ? jail : "?");
    size_t i;
    json_t *m;
    json_array_foreach(json_at(node, "isolation.missing"), i, m)
    {
        const char *name = json_text(m, "name"), *reason = json_text(m, "reason");
        finding_add(f, "missing", FINDING_WARNING, NULL, "%.60s: %.160s", name ? name : "?", reason ? reason : "?");
    }
    r = api_call(api, "GET", "/v1/templates/base", NULL, &template, NULL, &e);
    if (r == ERR_NOT_FOUND)
        finding_add(f, "template", FINDING_WARNING, "make it with: space template build base",
                    "there is no template \"base\"");
    else if (r < 0)
        finding_add(f, "template", FINDING_BAD, NULL, "%s", e.text);
    else
        finding_add(f, "template", FINDING_GOOD, NULL, "base is there");
}

static void print_findings(const struct cli *cli, const struct findings *f)
{
    static const char *const marks[] = {"✓", "·", "!", "✗"};
    static const enum color colors[] = {COLOR_GOOD, COLOR_DIM, COLOR_WARN, COLOR_BAD};
    for (size_t i = 0; i < f->len; i++) {
        const struct finding *item = &f->items[i];
        _cleanup_free_ char *detail = escaped(item->detail);
        printf("%s%s%s %-15s %s\n", color_on(colors[item->status], cli->color_out), marks[item->status],
               color_off(cli->color_out), item->name, detail);
        if (item->hint[0])
            printf("  %-15s %s%s%s\n", "", color_on(COLOR_DIM, cli->color_out), item->hint, color_off(cli->color_out));
    }
}

static void print_findings_json(const struct findings *f)
{
    _cleanup_json_ json_t *list = json_array();
    for (size_t i = 0; i < f->len; i++) {
        const struct finding *item = &f->items[i];
        _cleanup_free_ char *detail = escaped(item->detail);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s*}", "name", item->name, "status",
                                              status_names[item->status], "detail", detail, "hint",
                                              item->hint[0] ? item->hint : NULL));
    }
    print_json(list);
}

static int run(struct cli *cli, void *args, int argc ATTR_UNUSED, char **argv ATTR_UNUSED, struct err *e ATTR_UNUSED)
{
    const struct doctor_args *a = args;
    struct findings *f = NEW(struct findings);
    bool kvm = doctor_check_host(f);
    doctor_check_state(f, cli_state_folder(cli));
    check_server(cli, f, kvm);
    if (cli->json)
        print_findings_json(f);
    else
        print_findings(cli, f);
    int status = 0;
    for (size_t i = 0; i < f->len; i++)
        if (f->items[i].status == FINDING_BAD || (a->strict && f->items[i].status == FINDING_WARNING))
            status = 1;
    free(f);
    return status;
}

static const struct opt options[] = {
    {.name = "strict",
     .kind = OPT_FLAG,
     .offset = offsetof(struct doctor_args, strict),
     .help = "exit with 1 for warnings too"},
};

const struct command command_doctor = {
    .name = "doctor",
    .summary = "check what this host can isolate and run",
    .synopsis = "",
    .text =
        "Accelerator, QEMU, cgroups, namespaces, seccomp, memory, disk, the state folder, and what the server says of\n"
        "itself: what is missing, and what that means. Exits with 1 when something cannot work.",
    .options = options,
    .option_count = ARRAY_LEN(options),
    .args_size = sizeof(struct doctor_args),
    .max_args = 0,
    .examples = "space doctor\nspace doctor --json | jq '.[] | select(.status != \"good\")'",
    .run = run,
};
