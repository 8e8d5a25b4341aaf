/* The step's beat page: a file of 64-byte slots that its tasks write their progress into and the
 * daemon reads (docs/beats.md). The plugin makes it and never looks at it again. */
#ifndef LADON_BEAT_H
#define LADON_BEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "spool.h"

#define BEAT_SLOT 64		/* bytes */
#define BEAT_SLOTS_LEAST 64	/* one page of memory, which the file takes anyway */
#define BEAT_TASKS_MOST 4096	/* more local tasks than this get no page: 256 KiB */
#define BEAT_PATH_MAX 1024

/* Makes beat/JOB.STEP.STEPDPID for `tasks` local tasks, full of zeros, and gives it to `user`:
 * temporary name, then rename. False leaves nothing behind: no beats, and nothing else is lost. */
bool beat_make(const struct spool *spool, uint32_t tasks, uid_t user, uid_t owner);

#endif
