/* The directory: inventory, lock, clock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

struct device gpus[GPUS];
struct device instances[GPUS][SLOTS];
int gpu_count;
bool pcie_counters_wrap;

static char directory[2048];
#define USUAL_DRIVER "570.172.08"
static char driver[80] = USUAL_DRIVER, library[88] = "12." USUAL_DRIVER;
static int lock_fd = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t now_us(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

int64_t unix_us(int64_t t)
{
	return t - now_us() + read_clock(CLOCK_REALTIME);
}

/* "DIRECTORY/name"; -1 if it does not fit. */
int state_path(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(buf, size, "%s/", directory);

	if (n < 0 || (size_t)n >= size)
		return -1;
	va_start(ap, fmt);
	int rest = vsnprintf(buf + n, size - (size_t)n, fmt, ap);
	va_end(ap);
	return rest < 0 || (size_t)rest >= size - (size_t)n ? -1 : 0;
}

const char *driver_version(void)
{
	return driver;
}

const char *library_version(void)
{
	return library;
}

/* flock belongs to the open file, which threads share: the mutex stands between them. */
void state_lock(int how)
{
	if (how != LOCK_UN)
		pthread_mutex_lock(&mutex);
	while (flock(lock_fd, how) < 0 && errno == EINTR)
		;
	if (how == LOCK_UN)
		pthread_mutex_unlock(&mutex);
}

/* gpu INDEX UUID DOMAIN:BUS:DEV minor=N mem_mib=N limit_mw=N idle_mw=N mig=0|1 gpm=0|1 mig_gpm=0|1 name=TEXT */
static int add_gpu(const char *line)
{
	int i;
	unsigned domain, bus, dev;
	char uuid[96];

	if (sscanf(line, "gpu %d %95s %x:%x:%x", &i, uuid, &domain, &bus, &dev) != 5)
		return -1;
	if (i != gpu_count || i >= GPUS)
		return -1;
	struct device *d = &gpus[gpu_count++];
	const char *name = strstr(line, "name=");
	*d = (struct device){
		.gpu = i, .slot = -1, .present = true, .domain = domain, .bus = bus, .dev = dev,
		.minor = (int)read_number(line, "minor", i), .mem_mib = read_number(line, "mem_mib", 81559),
		.limit_mw = read_number(line, "limit_mw", 700000), .idle_mw = read_number(line, "idle_mw", 70000),
		.mig = read_number(line, "mig", 0), .gpm = read_number(line, "gpm", 1),
		.mig_gpm = read_number(line, "mig_gpm", 0),
		.sms = 132, .slices = 7,
	};
	snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
	snprintf(d->name, sizeof(d->name), "%s", name ? name + strlen("name=") : "NVIDIA H100 80GB HBM3");
	return 0;
}

/* mig GPU SLOT UUID gi=N ci=N slices=N compute=N sms=N mem_mib=N profile=TEXT */
static int add_instance(const char *line)
{
	int g, slot;
	char uuid[96], profile[32] = "";

	if (sscanf(line, "mig %d %d %95s", &g, &slot, uuid) != 3)
		return -1;
	if (g < 0 || g >= gpu_count || slot < 0 || slot >= SLOTS)
		return -1;
	const char *p = strstr(line, "profile=");
	if (!p || sscanf(p, "profile=%31s", profile) != 1)
		return -1;
	struct device *d = &instances[g][slot];
	*d = (struct device){
		.gpu = g, .slot = slot, .present = true, .parent = &gpus[g], .minor = gpus[g].minor,
		.domain = gpus[g].domain, .bus = gpus[g].bus, .dev = gpus[g].dev, .mig = true,
		.gi = (int)read_number(line, "gi", slot + 1), .ci = (int)read_number(line, "ci", 0),
		.slices = (int)read_number(line, "slices", 1), .sms = (int)read_number(line, "sms", 16),
		.compute_slices = (int)read_number(line, "compute", read_number(line, "slices", 1)),
		.mem_mib = read_number(line, "mem_mib", 9856),
	};
	snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
	snprintf(d->profile, sizeof(d->profile), "%s", profile);
	snprintf(d->name, sizeof(d->name), "%.50s MIG %s", gpus[g].name, profile);
	return 0;
}

/* Each line of the inventory through `take`. */
static int read_inventory(int (*take)(const char *line))
{
	char path[2200], line[512];
	FILE *f = state_path(path, sizeof(path), "inventory") == 0 ? fopen(path, "re") : NULL;
	int bad = 0;

	if (!f)
		return DRIVER_NOT_LOADED;
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		bad |= take(line);
	}
	fclose(f);
	if (bad)
		fprintf(stderr, "fake nvml: %s: bad line\n", path);
	return bad ? UNKNOWN_ERROR : OK;
}

static int take_all(const char *line)
{
	if (strncmp(line, "gpu ", 4) == 0)
		return add_gpu(line);
	if (strncmp(line, "mig ", 4) == 0)
		return add_instance(line);
	if (strncmp(line, "driver ", 7) == 0)
		snprintf(driver, sizeof(driver), "%.79s", line + 7);
	else if (strncmp(line, "library ", 8) == 0)
		snprintf(library, sizeof(library), "%.87s", line + 8);
	else if (strncmp(line, "pcie_counters_wrap", 18) == 0)
		pcie_counters_wrap = true;
	return 0;
}

static int take_carving(const char *line)
{
	int i;

	if (sscanf(line, "gpu %d ", &i) == 1 && i >= 0 && i < gpu_count)
		gpus[i].mig = read_number(line, "mig", 0);
	return strncmp(line, "mig ", 4) == 0 ? add_instance(line) : 0;
}

/* The instances anew, and which cards are in MIG mode. A handle of one that was destroyed is refused, or speaks
 * for what is in its place now: what a real driver does with it is not known, and a reader must bear both. */
void state_carve(void)
{
	for (int g = 0; g < gpu_count; g++)
		for (int s = 0; s < SLOTS; s++)
			instances[g][s].present = false;
	read_inventory(take_carving);
}

/* The environment is read here and not when the library is loaded, so that os.environ works. */
int state_open(void)
{
	const char *dir = getenv("LADON_FAKE_NVML");
	char path[2200];

	if (!dir || !*dir || strlen(dir) >= sizeof(directory))
		return DRIVER_NOT_LOADED;
	strcpy(directory, dir);
	if (state_path(path, sizeof(path), "lock") < 0)
		return DRIVER_NOT_LOADED;
	lock_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (lock_fd < 0)
		return DRIVER_NOT_LOADED;
	snprintf(driver, sizeof(driver), USUAL_DRIVER);
	snprintf(library, sizeof(library), "12." USUAL_DRIVER);
	pcie_counters_wrap = false;
	gpu_count = 0;
	int rc = read_inventory(take_all);
	if (rc != OK)
		state_close();
	return rc;
}

void state_close(void)
{
	for (int i = 0; i < gpu_count; i++)
		timeline_drop(&gpus[i].timeline);
	holders_forget();
	memset(gpus, 0, sizeof(gpus));
	memset(instances, 0, sizeof(instances));
	gpu_count = 0;
	if (lock_fd >= 0)
		close(lock_fd);
	lock_fd = -1;
}
