/* Faults, lost GPUs and the call log: what stands between a caller and the answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

#define FAULTS 64

struct fault {
	int gpu, slot;		/* -1: any; slot -1: the whole GPU and its instances */
	char function[64];	/* "*": all; "field:83": one field of nvmlDeviceGetFieldValues */
	int code;
	int64_t delay_us;
	bool hang, deaf;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int refs;		/* nvmlInit less nvmlShutdown */
static struct fault faults[FAULTS];
static int fault_count;
static bool logging;
static struct stat seen;	/* the control file that was read last */

void sleep_us(int64_t us)
{
	struct timespec ts = {us / 1000000, us % 1000000 * 1000};

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)	/* an ioctl does not end at a signal either */
		;
}

void control_lock(bool lock)
{
	if (lock)
		pthread_mutex_lock(&mutex);
	else
		pthread_mutex_unlock(&mutex);
}

/* fault GPU|* SLOT|* FUNCTION|* code=N delay_ms=N hang=0|1 deaf=0|1; lost GPU TIME; log; carved; and settings.c's */
static void parse_control(const char *line)
{
	struct fault f = {.gpu = -1, .slot = -1};
	char gpu[16], slot[16];
	long long t;

	if (sscanf(line, "fault %15s %15s %63s", gpu, slot, f.function) == 3 && fault_count < FAULTS) {
		if (strcmp(gpu, "*") != 0)
			f.gpu = atoi(gpu);
		if (strcmp(slot, "*") != 0)
			f.slot = atoi(slot);
		f.code = (int)read_number(line, "code", 0);
		f.delay_us = read_number(line, "delay_ms", 0) * 1000;
		f.hang = read_number(line, "hang", 0);
		f.deaf = read_number(line, "deaf", 0);
		faults[fault_count++] = f;
	} else if (sscanf(line, "lost %15s %lld", gpu, &t) == 2 && (unsigned)atoi(gpu) < GPUS) {
		gpus[atoi(gpu)].lost_at = t;
	} else if (strncmp(line, "log", 3) == 0) {
		logging = true;
	} else if (strncmp(line, "carved", 6) == 0) {
		state_carve();
	} else {
		settings_line(line);
	}
}

/* Reads the control file if it is not the one read last. False if the whole directory is gone. */
static bool reload(void)
{
	char path[2200], line[256];
	struct stat st;

	if (state_path(path, sizeof(path), "control") < 0 || stat(path, &st) < 0)
		return false;
	if (st.st_ino == seen.st_ino && st.st_size == seen.st_size &&
	    memcmp(&st.st_mtim, &seen.st_mtim, sizeof(st.st_mtim)) == 0)
		return true;
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	seen = st;
	fault_count = 0;
	logging = false;
	settings_forget();
	for (int i = 0; i < gpu_count; i++)
		gpus[i].lost_at = 0;
	while (fgets(line, sizeof(line), f))
		parse_control(line);
	fclose(f);
	return true;
}

/* The fault for this call, all zero if there is none. False if the directory is gone. */
static bool find_fault(const char *function, const struct device *dev, struct fault *found)
{
	pthread_mutex_lock(&mutex);
	bool there = reload();
	*found = (struct fault){0};
	for (int i = 0; there && i < fault_count; i++) {
		const struct fault *f = &faults[i];
		if (f->gpu >= 0 && (!dev || dev->gpu != f->gpu))
			continue;
		if (f->slot >= 0 && (!dev || dev->slot != f->slot))
			continue;
		if (strcmp(f->function, "*") == 0 || strcmp(f->function, function) == 0) {
			*found = *f;
			break;
		}
	}
	pthread_mutex_unlock(&mutex);
	return there;
}

/* As a driver that does not come back: until the fault is healed or the test's directory is removed.
 * `deaf`: signals wait too, as in state D; SIGKILL alone ends the process. */
static void hang(const char *function, const struct device *dev, struct fault f)
{
	sigset_t all, before;

	sigfillset(&all);
	if (f.deaf)
		pthread_sigmask(SIG_SETMASK, &all, &before);
	bool deaf = f.deaf;
	do
		sleep_us(20000);
	while (find_fault(function, dev, &f) && f.hang);
	if (deaf)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool ours(const struct device *dev)
{
	for (int g = 0; g < gpu_count; g++) {
		if (dev == &gpus[g])
			return true;
		for (int s = 0; s < SLOTS; s++)
			if (dev == &instances[g][s])
				return dev->present;
	}
	return false;
}

/* The faults that are played; dev is NULL for a call that is about no device. */
static int go_wrong(const char *function, const struct device *dev)
{
	struct fault f;

	find_fault(function, dev, &f);
	if (f.hang)
		hang(function, dev, f);
	if (f.delay_us)
		sleep_us(f.delay_us);
	return f.code;
}

static bool ready(void)
{
	pthread_mutex_lock(&mutex);
	bool yes = refs > 0;
	pthread_mutex_unlock(&mutex);
	return yes;
}

int enter_system(const char *function)
{
	return ready() ? go_wrong(function, NULL) : UNINITIALIZED;
}

int enter(const char *function, const struct device *dev)
{
	if (!ready())
		return UNINITIALIZED;
	if (!ours(dev))
		return INVALID_ARGUMENT;
	int rc = go_wrong(function, dev);
	if (rc != OK)
		return rc;
	int64_t lost_at = gpus[dev->gpu].lost_at;
	return lost_at && now_us() >= lost_at ? GPU_IS_LOST : OK;
}

/* TIME PID FUNCTION GPU SLOT RESULT */
int leave(const char *function, const struct device *dev, int result)
{
	char path[2200], line[160];

	pthread_mutex_lock(&mutex);
	bool wanted = logging;
	pthread_mutex_unlock(&mutex);
	if (!wanted || state_path(path, sizeof(path), "calls") < 0)
		return result;
	bool known = ours(dev);
	int n = snprintf(line, sizeof(line), "%lld %d %s %d %d %d\n", (long long)now_us(), getpid(), function,
			 known ? dev->gpu : -1, known ? dev->slot : -1, result);
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return result;
	if (write(fd, line, (size_t)n) != n)
		fprintf(stderr, "fake nvml: %s: short write\n", path);
	close(fd);
	return result;
}

int field_fault(const struct device *dev, unsigned field)
{
	char name[24];
	struct fault f;

	snprintf(name, sizeof(name), "field:%u", field);
	find_fault(name, dev, &f);
	return strcmp(f.function, name) == 0 ? f.code : OK;
}

static int init(const char *function)
{
	pthread_mutex_lock(&mutex);
	int rc = refs > 0 ? OK : state_open();
	if (rc == OK && refs++ == 0) {
		seen = (struct stat){0};
		reload();
	}
	pthread_mutex_unlock(&mutex);
	if (rc != OK)
		return rc;
	rc = go_wrong(function, NULL);
	if (rc != OK) {
		pthread_mutex_lock(&mutex);
		if (--refs == 0)
			state_close();
		pthread_mutex_unlock(&mutex);
	}
	return leave(function, NULL, rc);
}

API nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	return init(__func__);
}

API nvmlInit_v2(void)
{
	return init(__func__);
}

API nvmlShutdown(void)
{
	ENTER_SYSTEM();
	leave(__func__, NULL, OK);
	pthread_mutex_lock(&mutex);
	if (refs > 0 && --refs == 0)
		state_close();
	pthread_mutex_unlock(&mutex);
	return OK;
}
