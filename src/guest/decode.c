/* Table-driven decoding of the guest's messages (see decode.h). */
#include "guest/decode.h"

#include "base/str.h"
#include "wire/wire.h"

#define COUNT_MAX ((uint64_t)INT64_MAX / 2)
#define RULES_MAX 24

enum form {
    FORM_U64,  /* 0..max */
    FORM_U32,  /* 0..max */
    FORM_TIME, /* milliseconds, brought into range */
    FORM_FLAG,
    FORM_TOKEN, /* printable ASCII in a char array of `max` bytes */
    FORM_BYTES, /* opaque text in the arena; const char *, at most `max` bytes */
    FORM_SHOWN, /* as FORM_BYTES, but NULL when it is no UTF-8 or has control characters */
};

struct rule {
    uint16_t tag;
    enum form form;
    bool required;
    uint64_t max;
    size_t offset; /* in the struct that is filled */
};

#define RULE(type, member, tag_, form_, required_, max_)                                                               \
    {                                                                                                                  \
        .tag = (tag_), .form = (form_), .required = (required_), .max = (max_), .offset = offsetof(type, member)       \
    }

/* Strings of one message: with their terminators no longer in all than the message, whose fields have longer headers.
 */
struct arena {
    char *mem;
    size_t used, size;
};

static char *arena_text(struct arena *a, const struct wire_field *f)
{
    if (!a || a->size - a->used < (size_t)f->len + 1)
        return NULL;
    char *text = a->mem + a->used;
    memcpy(text, f->data, f->len);
    text[f->len] = '\0';
    a->used += (size_t)f->len + 1;
    return text;
}

static bool text_shown(const char *text, size_t len)
{
    if (!utf8_valid(text, len))
        return false;
    _cleanup_buf_ struct buf escaped = BUF_MAX(4096);
    text_escape(&escaped, text, len);
    return !escaped.overflow && escaped.len == len;
}

static bool text_token(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text >= 0x7f)
            return false;
    return true;
}

static bool field_text(const struct rule *rule, const struct wire_field *f, void *at, struct arena *arena)
{
    if (f->len > rule->max || memchr(f->data, '\0', f->len))
        return false;
    const char *text = arena_text(arena, f);
    if (!text)
        return false;
    if (rule->form == FORM_SHOWN && !text_shown(text, f->len))
        text = NULL;
    *(const char **)at = text;
    return true;
}

static bool field_take(const struct rule *rule, const struct wire_field *f, void *at, struct arena *arena)
{
    uint64_t u;
    int64_t i;
    switch (rule->form) {
    case FORM_U64:
        if (!wire_field_u64(f, &u) || u > rule->max)
            return false;
        *(uint64_t *)at = u;
        return true;
    case FORM_U32:
        if (!wire_field_u64(f, &u) || u > rule->max)
            return false;
        *(uint32_t *)at = (uint32_t)u;
        return true;
    case FORM_TIME:
        if (!wire_field_i64(f, &i))
            return false;
        *(int64_t *)at = i < 0 ? 0 : MIN(i, (int64_t)DECODE_TIME_MAX_MS);
        return true;
    case FORM_FLAG:
        return wire_field_bool(f, at);
    case FORM_TOKEN:
        return wire_field_text(f, at, rule->max) && text_token(at);
    case FORM_BYTES:
    case FORM_SHOWN:
        return field_text(rule, f, at, arena);
    }
    return false;
}

static int broken(struct err *e, const char *what)
{
    return err_set(e, ERR_PROTOCOL, "the agent's answer about %s is not valid", what);
}

/* Fill `out` by the rules; a bit of ret_seen for each rule whose field was there. */
static int decode(const struct rule *rules, size_t count, const void *data, size_t len, void *out, struct arena *arena,
                  uint32_t *ret_seen, const char *what, struct err *e)
{
    struct wire_reader reader;
    struct wire_field f;
    uint32_t seen = 0;
    wire_reader_init(&reader, data, len);
    while (wire_next(&reader, &f)) {
        for (size_t i = 0; i < count; i++) {
            if (rules[i].tag != f.tag)
                continue;
            if ((seen & 1u << i) || !field_take(&rules[i], &f, (char *)out + rules[i].offset, arena))
                return broken(e, what);
            seen |= 1u << i;
        }
    }
    if (!wire_done(&reader))
        return broken(e, what);
    for (size_t i = 0; i < count; i++)
        if (rules[i].required && !(seen & 1u << i))
            return broken(e, what);
    if (ret_seen)
        *ret_seen = seen;
    return 0;
}

/* --- the agent itself --------------------------------------------------------------------------------------------- */

int decode_hello(const void *data, size_t len, struct guest_hello *ret_hello, struct err *e)
{
    static const struct rule rules[] = {
        RULE(struct guest_hello, protocol, AGENT_TAG_HELLO_PROTOCOL, FORM_U64, true, UINT32_MAX),
        RULE(struct guest_hello, uptime_ms, AGENT_TAG_HELLO_UPTIME_MS, FORM_U64, true, COUNT_MAX),
        RULE(struct guest_hello, version, AGENT_TAG_HELLO_VERSION, FORM_TOKEN, true, sizeof(ret_hello->version)),
        RULE(struct guest_hello, boot_id, AGENT_TAG_HELLO_BOOT_ID, FORM_TOKEN, true, sizeof(ret_hello->boot_id)),
        RULE(struct guest_hello, sandbox_id, AGENT_TAG_HELLO_SANDBOX_ID, FORM_TOKEN, true,
             sizeof(ret_hello->sandbox_id)),
    };
    struct guest_hello hello = {0};
    int r = decode(rules, ARRAY_LEN(rules), data, len, &hello, NULL, NULL, "itself", e);
    if (r < 0)
        return r;
    if (hello.protocol != AGENT_PROTOCOL_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "the agent speaks version %u of its protocol, not %d",
                       (unsigned)hello.protocol, AGENT_PROTOCOL_VERSION);
    *ret_hello = hello;
    return 0;
}

struct confirm_fields {
    uint64_t realtime_ns;
    bool ok;
    char sandbox_id[AGENT_EXEC_ID_MAX + 1];
};

int decode_confirm(const void *data, size_t len, const char *sandbox_id, struct guest_confirm *ret_confirm,
                   struct err *e)
{
    static const struct rule rules[] = {
        RULE(struct confirm_fields, realtime_ns, AGENT_TAG_CONFIRM_REALTIME_NS, FORM_U64, true, UINT64_MAX),
        RULE(struct confirm_fields, ok, AGENT_TAG_CONFIRM_OK, FORM_FLAG, true, 0),
        RULE(struct confirm_fields, sandbox_id, AGENT_TAG_CONFIRM_SANDBOX_ID, FORM_TOKEN, true,
             sizeof(((struct confirm_fields *)NULL)->sandbox_id)),
    };
    struct confirm_fields fields = {0};
    int r = decode(rules, ARRAY_LEN(rules), data, len, &fields, NULL, NULL, "its identity", e);
    if (r < 0)
        return r;
    if (!fields.ok || strcmp(fields.sandbox_id, sandbox_id) != 0)
        return err_set(e, ERR_PROTOCOL, "the agent did not confirm its identity");
    ret_confirm->realtime_ns = fields.realtime_ns;
    return 0;
}

int decode_metrics(const void *data, size_t len, struct guest_metrics *ret_metrics, struct err *e)
{
#define METRIC(member, tag) RULE(struct guest_metrics, member, AGENT_TAG_METRICS_##tag, FORM_U64, false, COUNT_MAX)
    static const struct rule rules[] = {
        METRIC(cpus, CPUS),
        METRIC(cpu_total_us, CPU_TOTAL_US),
        METRIC(cpu_idle_us, CPU_IDLE_US),
        METRIC(load_1_milli, LOAD_1_MILLI),
        METRIC(load_5_milli, LOAD_5_MILLI),
        METRIC(load_15_milli, LOAD_15_MILLI),
        METRIC(memory_total, MEMORY_TOTAL),
        METRIC(memory_available, MEMORY_AVAILABLE),
        METRIC(memory_used, MEMORY_USED),
        METRIC(disk_total, DISK_TOTAL),
        METRIC(disk_used, DISK_USED),
        METRIC(processes, PROCESSES),
        METRIC(execs_running, EXECS_RUNNING),
        METRIC(agent_rss, AGENT_RSS),
    };
#undef METRIC
    *ret_metrics = (struct guest_metrics){0};
    return decode(rules, ARRAY_LEN(rules), data, len, ret_metrics, NULL, NULL, "its metrics", e);
}

int decode_bench_spawn(const void *data, size_t len, uint64_t *ret_mean_ns, uint64_t **ret_each, size_t *ret_count,
                       struct err *e)
{
    int r = decode_count(data, len, AGENT_TAG_BENCH_MEAN_NS, ret_mean_ns, e);
    if (r < 0)
        return r;
    _cleanup_free_ uint64_t *each = xcalloc(AGENT_BENCH_SPAWN_MAX, sizeof(*each));
    size_t count = 0;
    struct wire_reader reader;
    struct wire_field f;
    wire_reader_init(&reader, data, len);
    while (wire_next(&reader, &f))
        if (f.tag == AGENT_TAG_BENCH_EACH_NS && (count == AGENT_BENCH_SPAWN_MAX || !wire_field_u64(&f, &each[count++])))
            return broken(e, "the measurement");
    *ret_count = count;
    *ret_each = steal(each);
    return 0;
}

int decode_count(const void *data, size_t len, uint16_t tag, uint64_t *ret_count, struct err *e)
{
    const struct rule rule = {.tag = tag, .form = FORM_U64, .required = true, .max = COUNT_MAX};
    return decode(&rule, 1, data, len, ret_count, NULL, NULL, "how much it took", e);
}

/* --- execs -------------------------------------------------------------------------------------------------------- */

int decode_exec_started(const void *data, size_t len, struct guest_exec_started *ret_started, struct err *e)
{
    static const struct rule rules[] = {
        RULE(struct guest_exec_started, pid, AGENT_TAG_STARTED_PID, FORM_U32, true, INT32_MAX),
        RULE(struct guest_exec_started, started_ms, AGENT_TAG_STARTED_AT_MS, FORM_TIME, true, 0),
    };
    return decode(rules, ARRAY_LEN(rules), data, len, ret_started, NULL, NULL, "a started command", e);
}

struct exit_fields {
    struct guest_exit x;
    uint32_t code, signal;
};

int decode_exit(const void *data, size_t len, struct guest_exit *ret_exit, struct err *e)
{
    static const struct rule rules[] = {
        RULE(struct exit_fields, code, AGENT_TAG_EXIT_CODE, FORM_U32, false, 255),
        RULE(struct exit_fields, signal, AGENT_TAG_EXIT_SIGNAL, FORM_U32, false, 64),
        RULE(struct exit_fields, x.started_ms, AGENT_TAG_EXIT_STARTED_MS, FORM_TIME, false, 0),
        RULE(struct exit_fields, x.ended_ms, AGENT_TAG_EXIT_ENDED_MS, FORM_TIME, false, 0),
        RULE(struct exit_fields, x.user_us, AGENT_TAG_EXIT_USER_US, FORM_U64, false, COUNT_MAX),
        RULE(struct exit_fields, x.system_us, AGENT_TAG_EXIT_SYSTEM_US, FORM_U64, false, COUNT_MAX),
        RULE(struct exit_fields, x.max_rss_kib, AGENT_TAG_EXIT_MAX_RSS_KIB, FORM_U64, false, COUNT_MAX),
        RULE(struct exit_fields, x.total_bytes, AGENT_TAG_EXIT_TOTAL_BYTES, FORM_U64, false, COUNT_MAX),
        RULE(struct exit_fields, x.dropped_bytes, AGENT_TAG_EXIT_DROPPED_BYTES, FORM_U64, false, COUNT_MAX),
        RULE(struct exit_fields, x.oom, AGENT_TAG_EXIT_OOM, FORM_FLAG, false, 0),
        RULE(struct exit_fields, x.timed_out, AGENT_TAG_EXIT_TIMED_OUT, FORM_FLAG, false, 0),
    };
    struct exit_fields fields = {0};
    uint32_t seen;
    int r = decode(rules, ARRAY_LEN(rules), data, len, &fields, NULL, &seen, "the end of a command", e);
    if (r < 0)
        return r;
    bool has_code = seen & 1, has_signal = seen & 2;
    if (has_code == has_signal || (has_signal && fields.signal == 0))
        return broken(e, "the end of a command");
    fields.x.signalled = has_signal;
    fields.x.code = (int)fields.code;
    fields.x.signal = (int)fields.signal;
    *ret_exit = fields.x;
    return 0;
}

static bool exec_id_valid(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n > 0 && n <= AGENT_EXEC_ID_MAX && id[n] == '\0';
}

/* The value of the one field with this tag. */
static bool find_field(const void *data, size_t len, uint16_t tag, struct wire_field *ret_field)
{
    struct wire_reader reader;
    wire_reader_init(&reader, data, len);
    while (wire_next(&reader, ret_field))
        if (ret_field->tag == tag)
            return true;
    return false;
}

int decode_exec_state(const void *data, size_t len, struct guest_exec_state *ret_state, struct err *e)
{
    static const struct rule rules[] = {
        RULE(struct guest_exec_state, id, AGENT_TAG_STATE_ID, FORM_TOKEN, true, sizeof(ret_state->id)),
        RULE(struct guest_exec_state, running, AGENT_TAG_STATE_RUNNING, FORM_FLAG, true, 0),
        RULE(struct guest_exec_state, terminal, AGENT_TAG_STATE_TTY, FORM_FLAG, false, 0),
        RULE(struct guest_exec_state, pid, AGENT_TAG_STATE_PID, FORM_U32, true, INT32_MAX),
        RULE(struct guest_exec_state, started_ms, AGENT_TAG_STATE_STARTED_MS, FORM_TIME, true, 0),
        RULE(struct guest_exec_state, oldest, AGENT_TAG_STATE_OLDEST, FORM_U64, true, COUNT_MAX),
        RULE(struct guest_exec_state, end, AGENT_TAG_STATE_END, FORM_U64, true, COUNT_MAX),
    };
    struct guest_exec_state state = {0};
    struct wire_field f;
    int r = decode(rules, ARRAY_LEN(rules), data, len, &state, NULL, NULL, "a command", e);
    if (r < 0)
        return r;
    if (!exec_id_valid(state.id) || state.oldest > state.end)
        return broken(e, "a command");
    if (!state.running) {
        if (!find_field(data, len, AGENT_TAG_STATE_EXIT, &f))
            return broken(e, "a command");
        r = decode_exit(f.data, f.len, &state.exit, e);
        if (r < 0)
            return r;
    }
    *ret_state = state;
    return 0;
}

int decode_exec_list(const void *data, size_t len, struct guest_exec_state **ret_states, size_t *ret_count,
                     struct err *e)
{
    struct wire_reader reader;
    struct wire_field f;
    size_t count = 0;
    wire_reader_init(&reader, data, len);
    while (wire_next(&reader, &f))
        count += f.tag == AGENT_TAG_EXEC_STATE;
    if (!wire_done(&reader) || count > AGENT_EXECS_MAX)
        return broken(e, "its commands");
    _cleanup_free_ struct guest_exec_state *states = xcalloc(count + 1, sizeof(*states));
    count = 0;
    wire_reader_init(&reader, data, len);
    while (wire_next(&reader, &f)) {
        if (f.tag != AGENT_TAG_EXEC_STATE)
            continue;
        int r = decode_exec_state(f.data, f.len, &states[count++], e);
        if (r < 0)
            return r;
    }
    *ret_count = count;
    *ret_states = steal(states);
    return 0;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static bool name_valid(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int entry_decode(const void *data, size_t len, struct guest_entry *ret_entry, struct arena *arena, struct err *e)
{
    static const struct rule rules[] = {
        RULE(struct guest_entry, name, AGENT_TAG_ENTRY_NAME, FORM_BYTES, true, 255),
        RULE(struct guest_entry, type, AGENT_TAG_ENTRY_TYPE, FORM_U32, true, AGENT_FILE_BLOCK),
        RULE(struct guest_entry, mode, AGENT_TAG_ENTRY_MODE, FORM_U32, true, 07777),
        RULE(struct guest_entry, uid, AGENT_TAG_ENTRY_UID, FORM_U32, true, UINT32_MAX),
        RULE(struct guest_entry, gid, AGENT_TAG_ENTRY_GID, FORM_U32, true, UINT32_MAX),
        RULE(struct guest_entry, size, AGENT_TAG_ENTRY_SIZE, FORM_U64, true, INT64_MAX),
        RULE(struct guest_entry, mtime_ms, AGENT_TAG_ENTRY_MTIME_MS, FORM_TIME, true, 0),
        RULE(struct guest_entry, target, AGENT_TAG_ENTRY_TARGET, FORM_BYTES, false, AGENT_PATH_MAX),
        RULE(struct guest_entry, owner, AGENT_TAG_ENTRY_OWNER, FORM_SHOWN, false, 255),
        RULE(struct guest_entry, group, AGENT_TAG_ENTRY_GROUP, FORM_SHOWN, false, 255),
    };
    _Static_assert(sizeof(enum agent_file_type) == sizeof(uint32_t), "the type is filled as a u32");
    *ret_entry = (struct guest_entry){0};
    int r = decode(rules, ARRAY_LEN(rules), data, len, ret_entry, arena, NULL, "a file", e);
    if (r < 0)
        return r;
    if (ret_entry->type < AGENT_FILE_REGULAR)
        return broken(e, "a file");
    return 0;
}

int decode_dir(const void *data, size_t len, const char *after, uint32_t limit, struct guest_entry **ret_entries,
               size_t *ret_count, bool *ret_more, char **ret_arena, struct err *e)
{
    struct wire_reader reader;
    struct wire_field f;
    size_t count = 0;
    bool more = false, more_seen = false;
    wire_reader_init(&reader, data, len);
    while (wire_next(&reader, &f)) {
        count += f.tag == AGENT_TAG_DIR_ENTRY;
        if (f.tag == AGENT_TAG_DIR_MORE && (more_seen || !wire_field_bool(&f, &more)))
            return broken(e, "a folder");
        more_seen |= f.tag == AGENT_TAG_DIR_MORE;
    }
    /* A page that says "more" has something to go on from. */
    if (!wire_done(&reader) || count > limit || (more && count == 0))
        return broken(e, "a folder");
    _cleanup_free_ struct guest_entry *entries = xcalloc(count + 1, sizeof(*entries));
    _cleanup_free_ char *mem = xmalloc(len + 1);
    struct arena arena = {.mem = mem, .size = len + 1};
    count = 0;
    wire_reader_init(&reader, data, len);
    while (wire_next(&reader, &f)) {
        if (f.tag != AGENT_TAG_DIR_ENTRY)
            continue;
        struct guest_entry *entry = &entries[count++];
        int r = entry_decode(f.data, f.len, entry, &arena, e);
        if (r < 0)
            return r;
        if (!name_valid(entry->name) || (after && strcmp(entry->name, after) <= 0))
            return broken(e, "a folder");
        after = entry->name;
    }
    *ret_entries = steal(entries);
    *ret_arena = steal(mem);
    *ret_count = count;
    *ret_more = more;
    return 0;
}

int decode_stat(const void *data, size_t len, struct guest_entry *ret_entry, char **ret_arena, struct err *e)
{
    _cleanup_free_ char *mem = xmalloc(len + 1);
    struct arena arena = {.mem = mem, .size = len + 1};
    struct guest_entry entry;
    int r = entry_decode(data, len, &entry, &arena, e);
    if (r < 0)
        return r;
    *ret_entry = entry;
    *ret_arena = steal(mem);
    return 0;
}

int decode_watch(const void *data, size_t len, struct guest_watch_event *ret_event, char **ret_arena, struct err *e)
{
    static const struct rule rules[] = {
        RULE(struct guest_watch_event, type, AGENT_TAG_WATCH_EVENT, FORM_U32, true, AGENT_WATCH_READY),
        RULE(struct guest_watch_event, is_dir, AGENT_TAG_WATCH_IS_DIR, FORM_FLAG, false, 0),
        RULE(struct guest_watch_event, path, AGENT_TAG_WATCH_PATH, FORM_BYTES, false, AGENT_PATH_MAX),
        RULE(struct guest_watch_event, to, AGENT_TAG_WATCH_TO, FORM_BYTES, false, AGENT_PATH_MAX),
    };
    _Static_assert(sizeof(enum agent_watch_event) == sizeof(uint32_t), "the type is filled as a u32");
    _cleanup_free_ char *mem = xmalloc(len + 1);
    struct arena arena = {.mem = mem, .size = len + 1};
    struct guest_watch_event event = {.path = ""};
    int r = decode(rules, ARRAY_LEN(rules), data, len, &event, &arena, NULL, "a change of a file", e);
    if (r < 0)
        return r;
    if (event.type < AGENT_WATCH_CREATE || (event.type == AGENT_WATCH_MOVE) != (event.to != NULL))
        return broken(e, "a change of a file");
    *ret_event = event;
    *ret_arena = steal(mem);
    return 0;
}
