/* What /proc says about a process and this boot. */
#ifndef LADON_PROC_H
#define LADON_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Field 22 of /proc/PID/stat: clock ticks between boot and the start of `pid`. With the pid
 * and the boot id it tells runs apart, which a pid alone does not (C09). `proc` is an open
 * /proc, so that a later change of namespace does not matter (S24). */
bool proc_start(int proc, pid_t pid, unsigned long long *start);

/* The kernel's boot id, 36 characters. */
bool proc_boot(int proc, char *buf, size_t size);

#endif
