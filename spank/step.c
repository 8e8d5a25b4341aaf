#include "step.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HET_MAX 128		/* components looked at: far above any real job's */

struct text {
	char *buf;
	size_t len;
	bool full;
};

__attribute__((format(printf, 2, 3)))
static void add(struct text *t, const char *format, ...)
{
	size_t room = STEP_TEXT_MAX - t->len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->buf + t->len, room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= room)
		t->full = true;
	else
		t->len += (size_t)n;
}

/* A variable of the job's environment; left out where it is unset, or anything but printable
 * ASCII. The job's owner can set it to anything: a reader takes it as a hint (S41), and must
 * not be brought to refuse the whole file because of it. */
static bool add_env(struct text *t, spank_t sp, const char *key, const char *name)
{
	char value[STEP_VALUE_MAX + 1];

	if (!port_env(sp, name, value, sizeof value) || *value == '\0')
		return false;
	for (const char *c = value; *c; c++)
		if (*c < ' ' || *c > '~')
			return false;
	add(t, "%s %s\n", key, value);
	return true;
}

/* The same for an id. */
static void add_env_id(struct text *t, spank_t sp, const char *key, const char *name)
{
	char value[16], *end;
	unsigned long long id;

	if (!port_env(sp, name, value, sizeof value))
		return;
	id = strtoull(value, &end, 10);
	if (*value >= '1' && *value <= '9' && *end == '\0' && id <= UINT32_MAX)
		add(t, "%s %llu\n", key, id);
}

static void add_number(struct text *t, spank_t sp, const char *key, enum port_number what)
{
	uint32_t value;

	if (port_number(sp, what, &value))
		add(t, "%s %" PRIu32 "\n", key, value);
}

/* There is no item for it. Every component's id is in the environment, and SPANK's id is this
 * component's own: where they meet is the offset (seen on 22.05). */
static void add_het_offset(struct text *t, spank_t sp, uint32_t job)
{
	char name[40], value[16];
	long size;

	if (!port_env(sp, "SLURM_HET_SIZE", value, sizeof value))
		return;
	size = strtol(value, NULL, 10);
	for (int i = 0; i < size && i < HET_MAX; i++) {
		snprintf(name, sizeof name, "SLURM_JOB_ID_HET_GROUP_%d", i);
		if (port_env(sp, name, value, sizeof value) && strtoul(value, NULL, 10) == job) {
			add(t, "het_offset %d\n", i);
			return;
		}
	}
}

static void add_option(struct text *t, spank_t sp, const struct ladon_step *step)
{
	char normal[LADON_OPTION_MAX];

	if (!step->asked->asked)
		return;
	option_normal(&step->asked->value, normal, sizeof normal);
	add(t, "option %s\n", normal);
	add(t, "option_from %s\n", step_option_from(sp, step->step, step->asked->said));
}

const char *step_option_from(spank_t sp, uint32_t step, const char *said)
{
	char inherited[LADON_SAID_MAX];

	if (step == LADON_STEP_BATCH)
		return "sbatch";
	if (port_env(sp, STEP_OPTION_ENV, inherited, sizeof inherited) &&
	    strcmp(option_argument(inherited), said) == 0)
		return "inherited";
	return "srun";
}

size_t step_text(spank_t sp, const struct ladon_step *step, char *buf)
{
	struct text t = { .buf = buf };

	add(&t, "ladon-step 1\njob %" PRIu32 "\nstep %" PRIu32 "\n", step->job, step->step);
	add_number(&t, sp, "uid", PORT_UID);
	add(&t, "pid %d\nstart %llu\nboot %s\n", (int)step->pid, step->start, step->boot);
	add_env(&t, sp, "nodelist", "SLURM_STEP_NODELIST");
	add_env_id(&t, sp, "env_job", "SLURM_JOB_ID");
	add_env_id(&t, sp, "job_nodes", "SLURM_JOB_NUM_NODES");
	add_het_offset(&t, sp, step->job);
	/* Slurm sets it for numbered steps alone: in a batch script it is what the user wrote there (S41). */
	if (step->step != LADON_STEP_BATCH && add_env(&t, sp, "gpus", "SLURM_STEP_GPUS"))
		add(&t, "gpus_from step\n");
	else if (add_env(&t, sp, "gpus", "SLURM_JOB_GPUS"))
		add(&t, "gpus_from job\n");
	add_number(&t, sp, "ntasks", PORT_LOCAL_TASKS);
	add_option(&t, sp, step);
	add_env(&t, sp, "sluid", "SLURM_JOB_SLUID");
	return t.full ? 0 : t.len;
}
