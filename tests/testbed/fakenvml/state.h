/* What the library knows, all of it read from the directory named by LADON_FAKE_NVML.
 *
 *   inventory   the GPUs and instances; read at nvmlInit, instances again where control says "carved"
 *   control     faults, lost GPUs, what cards say of themselves, the call log; read again whenever replaced
 *   events      Xids, appended: "TIME GPU XID [SLOT]"
 *   gpuN        the timeline of GPU N, appended: "TIME PID:START SLOT key=value ..." or "... end"
 *   calls       the call log, if control asks for it
 *   lock        flock: shared to read a timeline, exclusive to append to one
 *
 * Times are CLOCK_BOOTTIME in microseconds, so that all processes agree. Nothing is summed up in memory:
 * every value is computed from the timeline's start, so that it does not depend on who asks or when. */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nvml.h"

#define API __attribute__((visibility("default"))) int
#define GPUS 16
#define SLOTS 7
#define TRACKS 128
#define NVLINKS 18

/* A level is what one holder does to the GPU; the order is that of LEVEL_KEYS in timeline.c. */
enum {
	UTIL, MEM_UTIL, POWER_MW, SM_PPM, TENSOR_PPM, DRAM_PPM, NVLINK_RX, NVLINK_TX, PCIE_RX, PCIE_TX,
	MEM_MIB, CLOCK_MHZ, NOISE, LIST, KEYS
};

/* What a card says of itself; the order is that of FACT_KEYS in settings.c. */
enum {
	TEMPERATURE_C, MEMORY_TEMPERATURE_C, SLOWDOWN_C, SHUTDOWN_C, FAN_PERCENT, POWER_LIMIT_MW, POWER_DEFAULT_MW,
	POWER_MOST_MW, SM_CLOCK_MHZ, SM_CLOCK_MOST_MHZ, MEMORY_CLOCK_MHZ, MEMORY_CLOCK_MOST_MHZ, PERFORMANCE_STATE,
	THROTTLE, ENCODER_PERCENT, DECODER_PERCENT, BAR1_USED_MIB, BAR1_MIB, ECC, ECC_PENDING, ECC_CORRECTED,
	ECC_UNCORRECTED, ECC_CORRECTED_LIFE, ECC_UNCORRECTED_LIFE, REMAPPED_CORRECTED, REMAPPED_UNCORRECTED,
	REMAP_PENDING, REMAP_FAILED, RETIRED_CORRECTED, RETIRED_UNCORRECTED, RETIRE_PENDING, RECOVERY,
	PCIE_GENERATION, PCIE_GENERATION_MOST, PCIE_WIDTH, PCIE_WIDTH_MOST, PCIE_REPLAYS, PERSISTENCE, COMPUTE_MODE,
	MIG_PENDING, FABRIC_STATE, FABRIC_STATUS, FABRIC_CLIQUE, FABRIC_HEALTH, LINKS, GARBAGE_PIDS, FACTS
};
enum { LINK_ACTIVE, LINK_CRC, LINK_REPLAYS, LINK_RECOVERIES, LINK_REMOTE, LINK_FACTS };
enum { SERIAL, VBIOS, FABRIC_CLUSTER };
#define FOLLOWS (INT64_MIN + 1)	/* not set: follows from something else */

struct owner {
	int pid;			/* 0: a script, no process */
	unsigned long long start;	/* field 22 of /proc/PID/stat */
	int slot;			/* the instance it runs on, -1 for the whole GPU */
};

struct segment {
	int64_t t;
	struct owner owner;
	bool end;
	int64_t level[KEYS];
};

struct timeline {
	struct segment *seg;
	size_t n, room;
	ino_t inode;
	off_t read;		/* bytes of the file already parsed */
};

/* One GPU at one moment. */
struct moment {
	int64_t t;
	int64_t now[KEYS];		/* all holders together */
	__int128 sum[KEYS];		/* its integral since the driver was loaded, unit x microseconds */
	struct segment track[TRACKS];	/* the live holders */
	int tracks;
};

struct device {
	int gpu;
	int slot;			/* -1: a whole GPU */
	bool present;
	struct device *parent;		/* of an instance */
	char uuid[96], name[96], profile[32];
	unsigned domain, bus, dev;
	int minor, gi, ci, slices, compute_slices, sms;
	int64_t mem_mib, limit_mw, idle_mw;
	bool mig, gpm, mig_gpm;
	int64_t lost_at;		/* 0: never */
	struct timeline timeline;
};

extern struct device gpus[GPUS];
extern struct device instances[GPUS][SLOTS];
extern int gpu_count;
extern bool pcie_counters_wrap;

/* state.c */
int64_t now_us(void);
int64_t unix_us(int64_t t);	/* the same moment since 1970, as NVML's own timestamps are */
int state_path(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *driver_version(void);
const char *library_version(void);
int state_open(void);
void state_close(void);
void state_carve(void);
void state_lock(int how);	/* LOCK_SH, LOCK_EX or LOCK_UN: among threads and among processes */

/* control.c */
int enter(const char *function, const struct device *dev);
int enter_system(const char *function);
int leave(const char *function, const struct device *dev, int result);
int field_fault(const struct device *dev, unsigned field);
void sleep_us(int64_t us);

void control_lock(bool lock);

/* settings.c */
void settings_forget(void);
void settings_line(const char *line);
int fact(const struct device *dev, int key, int64_t follows, int64_t *value);
int link_fact(const struct device *dev, unsigned link, int key, int64_t *value);
int text_fact(const struct device *dev, int key, const char *usual, char *buf, size_t size);

/* holders.c, under the lock */
bool holder_alive(const struct owner *o);
void holders_forget(void);

/* timeline.c */
int moment_of(struct device *dev, struct moment *m);
int moment_of_instance(struct device *dev, int gi, struct moment *m);
bool same_gi(const struct device *gpu, int slot, int gi);
void timeline_drop(struct timeline *tl);
int64_t read_number(const char *text, const char *key, int64_t otherwise);

/* Every entry point begins with an ENTER and returns through LEAVE: initialised? a handle of ours? lost? a
 * fault, a delay, a hang? and the call log. No lock is held while it waits. */
#define ENTER_IF(entered, dev) \
	do { \
		int entered_ = entered; \
		if (entered_ != OK) \
			return leave(__func__, dev, entered_); \
	} while (0)
#define ENTER(dev) ENTER_IF(enter(__func__, dev), dev)
#define ENTER_SYSTEM() ENTER_IF(enter_system(__func__), NULL)
#define LEAVE(dev, result) return leave(__func__, dev, result)

/* The same for what only whole GPUs answer. */
#define ENTER_GPU(dev) \
	do { \
		ENTER(dev); \
		if ((dev)->slot >= 0) \
			LEAVE(dev, NOT_SUPPORTED); \
	} while (0)

/* And the state of this moment. */
#define ENTER_NOW(dev, m) \
	do { \
		ENTER(dev); \
		int known = moment_of(dev, m); \
		if (known != OK) \
			LEAVE(dev, known); \
	} while (0)

static inline struct device *card(struct device *dev)
{
	return dev->parent ? dev->parent : dev;
}

#endif
