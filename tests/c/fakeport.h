/* A played Slurm behind spank/port.h: what it answers is set, what it was told is kept. */
#ifndef LADON_FAKEPORT_H
#define LADON_FAKEPORT_H

#include "port.h"

struct fake {
	enum port_place place;
	bool has[PORT_GLOBAL_TASK + 1];
	uint32_t number[PORT_GLOBAL_TASK + 1];
	bool has_task;
	struct ladon_task task;
	const char *env[40];		/* "NAME=value", NULL at the end: the job's environment */
	char beat[1024];		/* LADON_BEAT as the tasks get it; empty: unset */
	int registered;
	port_option_fn take;
	int flushed;
	char told[8192], refused[8192], debug[8192];	/* lines, each with its newline */
};
extern struct fake fake;

/* An ordinary step 42.0 of uid 1000 with one task of this process's pid, in slurmstepd. */
void fake_step(void);

#endif
