#include "fakeport.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct fake fake;

void fake_step(void)
{
	fake = (struct fake){
		.place = PORT_STEPD,
		.has = { true, true, true, true, true },
		.number = { [PORT_JOB] = 42, [PORT_STEP] = 0, [PORT_UID] = 1000, [PORT_LOCAL_TASKS] = 1 },
		.has_task = true,
		.task = { .id = 0, .pid = getpid() },
		.beat = "/inherited/from/the/batch/step",
		.env = { "SLURM_JOB_ID=42", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_GPUS=0,1" },
	};
}

static void keep(char *log, const char *line)
{
	size_t n = strlen(log);

	snprintf(log + n, sizeof fake.told - n, "%s\n", line);
}

enum port_place port_place(void)
{
	return fake.place;
}

void port_register(spank_t sp, port_option_fn take)
{
	(void)sp;
	fake.registered++;
	fake.take = take;
}

bool port_number(spank_t sp, enum port_number what, uint32_t *out)
{
	(void)sp;
	if (fake.has[what])
		*out = fake.number[what];
	return fake.has[what];
}

bool port_task(spank_t sp, struct ladon_task *out)
{
	(void)sp;
	if (fake.has_task)
		*out = fake.task;
	return fake.has_task;
}

bool port_env(spank_t sp, const char *name, char *buf, size_t size)
{
	size_t n = strlen(name);

	(void)sp;
	for (int i = 0; fake.env[i]; i++)
		if (strncmp(fake.env[i], name, n) == 0 && fake.env[i][n] == '=')
			return (size_t)snprintf(buf, size, "%s", fake.env[i] + n + 1) < size;
	return false;
}

void port_set_env(spank_t sp, const char *name, const char *value)
{
	(void)sp;
	if (strcmp(name, "LADON_BEAT") == 0)
		snprintf(fake.beat, sizeof fake.beat, "%s", value ? value : "");
}

void port_tell(const char *line)
{
	keep(fake.told, line);
}

void port_refuse(const char *line)
{
	keep(fake.refused, line);
}

void port_debug(const char *line)
{
	keep(fake.debug, line);
}

void port_flush(void)
{
	fake.flushed++;
}
