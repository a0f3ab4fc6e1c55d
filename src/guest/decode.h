/* Messages of the guest, decoded strictly: each known field at most once, in its form and inside its bounds; fields
 * that are not known are passed over. Every function returns 0 or ERR_PROTOCOL with a text, touches no clock and does
 * no I/O. Times are brought into the years 1970 to 9999, so that they can be shown whatever they are. */
#ifndef SPACE_GUEST_DECODE_H
#define SPACE_GUEST_DECODE_H

#include "guest/guest.h"

#define DECODE_TIME_MAX_MS 253402300799999LL /* the last millisecond of the year 9999 */

int decode_hello(const void *data, size_t len, struct guest_hello *ret_hello, struct err *e);
/* Also ERR_PROTOCOL when it confirms another sandbox than `sandbox_id`, or does not confirm. */
int decode_confirm(const void *data, size_t len, const char *sandbox_id, struct guest_confirm *ret_confirm,
                   struct err *e);
int decode_metrics(const void *data, size_t len, struct guest_metrics *ret_metrics, struct err *e);
/* ret_each is on the heap. */
int decode_bench_spawn(const void *data, size_t len, uint64_t *ret_mean_ns, uint64_t **ret_each, size_t *ret_count,
                       struct err *e);

int decode_exec_started(const void *data, size_t len, struct guest_exec_started *ret_started, struct err *e);
int decode_exit(const void *data, size_t len, struct guest_exit *ret_exit, struct err *e);
int decode_exec_state(const void *data, size_t len, struct guest_exec_state *ret_state, struct err *e);
/* ret_states is on the heap. */
int decode_exec_list(const void *data, size_t len, struct guest_exec_state **ret_states, size_t *ret_count,
                     struct err *e);
/* The one number of an answer that has one. */
int decode_count(const void *data, size_t len, uint16_t tag, uint64_t *ret_count, struct err *e);

/* The strings of the entries lie in ret_arena, on the heap. `after` (may be NULL): each name sorts after it and after
 * the one before. */
int decode_dir(const void *data, size_t len, const char *after, uint32_t limit, struct guest_entry **ret_entries,
               size_t *ret_count, bool *ret_more, char **ret_arena, struct err *e);
int decode_stat(const void *data, size_t len, struct guest_entry *ret_entry, char **ret_arena, struct err *e);
int decode_watch(const void *data, size_t len, struct guest_watch_event *ret_event, char **ret_arena, struct err *e);

#endif
