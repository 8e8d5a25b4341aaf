/* MIG instances, and the processes on a card or an instance. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "state.h"

API nvmlDeviceGetMigMode(struct device *dev, unsigned *now, unsigned *pending)
{
	ENTER_GPU(dev);
	int64_t found;
	int rc = fact(dev, MIG_PENDING, dev->mig, &found);
	*now = dev->mig;
	*pending = (unsigned)found;
	LEAVE(dev, rc);
}

API nvmlDeviceIsMigDeviceHandle(struct device *dev, unsigned *is)
{
	ENTER(dev);
	*is = dev->slot >= 0;
	LEAVE(dev, OK);
}

API nvmlDeviceGetMaxMigDeviceCount(struct device *dev, unsigned *count)
{
	ENTER_GPU(dev);
	*count = SLOTS;
	LEAVE(dev, OK);
}

/* Indices may have gaps: NOT_FOUND there, and a handle behind it. */
API nvmlDeviceGetMigDeviceHandleByIndex(struct device *dev, unsigned index, struct device **instance)
{
	ENTER_GPU(dev);
	if (index >= SLOTS)
		LEAVE(dev, INVALID_ARGUMENT);
	if (!instances[dev->gpu][index].present)
		LEAVE(dev, NOT_FOUND);
	*instance = &instances[dev->gpu][index];
	LEAVE(dev, OK);
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device *dev, struct device **parent)
{
	ENTER(dev);
	*parent = dev->parent;
	LEAVE(dev, dev->slot >= 0 ? OK : INVALID_ARGUMENT);
}

API nvmlDeviceGetGpuInstanceId(struct device *dev, unsigned *id)
{
	ENTER(dev);
	*id = (unsigned)dev->gi;
	LEAVE(dev, dev->slot >= 0 ? OK : NOT_SUPPORTED);
}

API nvmlDeviceGetComputeInstanceId(struct device *dev, unsigned *id)
{
	ENTER(dev);
	*id = (unsigned)dev->ci;
	LEAVE(dev, dev->slot >= 0 ? OK : NOT_SUPPORTED);
}

API nvmlDeviceGetAttributes_v2(struct device *dev, struct attributes *a)
{
	unsigned slices = (unsigned)dev->slices;

	ENTER(dev);
	if (dev->slot < 0)
		LEAVE(dev, NOT_SUPPORTED);
	*a = (struct attributes){
		.multiprocessors = (unsigned)dev->sms, .copy_engines = slices, .decoders = slices, .jpegs = slices,
		.ofas = slices / 3, .gi_slices = slices,
		.ci_slices = (unsigned)dev->compute_slices,
		.memory_mib = (unsigned long long)dev->mem_mib,
	};
	LEAVE(dev, OK);
}

/* --- processes ---------------------------------------------------------------------------------- */

static bool runs_on(const struct segment *track, const struct device *dev)
{
	return track->owner.pid > 0 && (dev->slot < 0 || track->owner.slot == dev->slot);
}

static void describe(const struct segment *track, const struct device *gpu, struct process_info *info)
{
	int slot = track->owner.slot;
	const struct device *instance = slot >= 0 && slot < SLOTS ? &instances[gpu->gpu][slot] : NULL;

	*info = (struct process_info){
		.pid = (unsigned)track->owner.pid,
		.used_bytes = (unsigned long long)track->level[MEM_MIB] << 20,
		.gi = instance ? (unsigned)instance->gi : NOT_AN_INSTANCE,
		.ci = instance ? (unsigned)instance->ci : NOT_AN_INSTANCE,
	};
}

/* The two-call protocol: INSUFFICIENT_SIZE and the count, also where `infos` is NULL; SUCCESS means that
 * all of them were written. nvidia-ml-py takes SUCCESS on its NULL probe for "none". */
static int processes(struct device *dev, int list, unsigned *count, struct process_info *infos)
{
	struct moment m;
	unsigned room = infos ? *count : 0, n = 0;
	int64_t garbage = 0;
	int rc = moment_of(dev, &m);

	if (rc == OK)
		rc = fact(dev, GARBAGE_PIDS, 0, &garbage);
	if (rc != OK)
		return rc;
	for (int i = 0; i < m.tracks; i++) {
		if (m.track[i].level[LIST] != list || !runs_on(&m.track[i], dev))
			continue;
		if (n < room)
			describe(&m.track[i], card(dev), &infos[n]);
		if (n < room && garbage > 0 && n + 1 >= (unsigned)garbage) {	/* as between a 535.43 driver and a later binding */
			unsigned pid = infos[n].pid;
			infos[n].pid = (unsigned)infos[n].used_bytes;
			infos[n].used_bytes = pid;
		}
		n++;
	}
	*count = n;
	return n > room ? INSUFFICIENT_SIZE : OK;
}

#define PROCESSES(function, list) \
	API function(struct device *dev, unsigned *count, struct process_info *infos) \
	{ \
		ENTER(dev); \
		LEAVE(dev, processes(dev, list, count, infos)); \
	}
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 0)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 0)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, 2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2)

/* Samples newer than `since`: one per busy process, taken now. None: NOT_FOUND, not an empty success. */
API nvmlDeviceGetProcessUtilization(struct device *dev, struct process_sample *samples, unsigned *count,
				    unsigned long long since)
{
	struct moment m;
	unsigned room = samples ? *count : 0, n = 0;

	ENTER_NOW(dev, &m);
	if (dev->mig)
		LEAVE(dev, NOT_SUPPORTED);
	unsigned long long at = (unsigned long long)unix_us(m.t);
	for (int i = 0; i < m.tracks && at > since; i++) {
		const int64_t *level = m.track[i].level;
		if (!runs_on(&m.track[i], dev) || level[UTIL] == 0)
			continue;
		if (n < room)
			samples[n] = (struct process_sample){
				.pid = (unsigned)m.track[i].owner.pid, .timestamp_us = at,
				.sm = (unsigned)level[UTIL], .mem = (unsigned)level[MEM_UTIL],
			};
		n++;
	}
	*count = n;
	LEAVE(dev, n == 0 ? NOT_FOUND : n > room ? INSUFFICIENT_SIZE : OK);
}

API nvmlSystemGetProcessName(unsigned pid, char *buf, unsigned size)
{
	char path[64];

	ENTER_SYSTEM();
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		LEAVE(NULL, NOT_FOUND);
	size_t n = size ? fread(buf, 1, size - 1, f) : 0;
	fclose(f);
	if (!size)
		LEAVE(NULL, INVALID_ARGUMENT);
	buf[n] = '\0';
	LEAVE(NULL, OK);
}
