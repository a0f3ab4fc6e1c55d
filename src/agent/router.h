/* From method and path to the handler. */
#ifndef SPACE_AGENT_ROUTER_H
#define SPACE_AGENT_ROUTER_H

#include "agent/agent.h"
#include "agent/query.h"

/* For session_init; `arg` is not used. Every request gets its answer from here or from its handler. */
void router_handle(void *arg, struct request *r);

/* The handlers: one answers, collects or streams (session.h). The query's texts live as long as the request. */
void hello_get(struct request *r, const struct query *q);
void identity_post(struct request *r, const struct query *q);
void execs_get(struct request *r, const struct query *q);
void metrics_get(struct request *r, const struct query *q);
void sync_post(struct request *r, const struct query *q);
void freeze_post(struct request *r, const struct query *q);
void thaw_post(struct request *r, const struct query *q);
void file_get(struct request *r, const struct query *q);
void file_put(struct request *r, const struct query *q);
void file_delete(struct request *r, const struct query *q);
void stat_get(struct request *r, const struct query *q);
void dir_get(struct request *r, const struct query *q);
void mkdir_post(struct request *r, const struct query *q);
void move_post(struct request *r, const struct query *q);
void attr_post(struct request *r, const struct query *q);
void tar_get(struct request *r, const struct query *q);
void tar_put(struct request *r, const struct query *q);
void watch_get(struct request *r, const struct query *q);
void bench_spawn_post(struct request *r, const struct query *q);
void bench_source_get(struct request *r, const struct query *q);
void bench_sink_put(struct request *r, const struct query *q);
void tcp_connect(struct request *r);
/* What lies below /v1/execs/: `id` and `sub` ("" for the exec itself). */
void exec_route(struct request *r, const char *id, const char *sub, const struct query *q);

#endif
