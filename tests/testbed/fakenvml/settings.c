/* What a card says of itself beside its timeline: health, limits, links. Set by lines in the control file. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

/* Names as in the control file; what a healthy H100 says. NONE: not supported; FOLLOWS: from something else. */
#define NONE INT64_MIN
static const struct {
	const char *name;
	int64_t usual;
} FACT_KEYS[FACTS] = {
	[TEMPERATURE_C] = {"temperature_c", FOLLOWS},	/* from power, as are the next */
	[MEMORY_TEMPERATURE_C] = {"memory_temperature_c", FOLLOWS},
	[SLOWDOWN_C] = {"slowdown_c", 87},
	[SHUTDOWN_C] = {"shutdown_c", 92},
	[FAN_PERCENT] = {"fan_percent", NONE},
	[POWER_LIMIT_MW] = {"power_limit_mw", FOLLOWS},	/* what the inventory says */
	[POWER_DEFAULT_MW] = {"power_default_mw", FOLLOWS},
	[POWER_MOST_MW] = {"power_most_mw", FOLLOWS},
	[SM_CLOCK_MHZ] = {"sm_clock_mhz", FOLLOWS},	/* the timeline */
	[SM_CLOCK_MOST_MHZ] = {"sm_clock_most_mhz", 1980},
	[MEMORY_CLOCK_MHZ] = {"memory_clock_mhz", 2619},
	[MEMORY_CLOCK_MOST_MHZ] = {"memory_clock_most_mhz", 2619},
	[PERFORMANCE_STATE] = {"performance_state", 0},
	[THROTTLE] = {"throttle", FOLLOWS},		/* idle, or the power cap */
	[ENCODER_PERCENT] = {"encoder_percent", 0},
	[DECODER_PERCENT] = {"decoder_percent", 0},
	[BAR1_USED_MIB] = {"bar1_used_mib", 1},
	[BAR1_MIB] = {"bar1_mib", 131072},
	[ECC] = {"ecc", 1},
	[ECC_PENDING] = {"ecc_pending", FOLLOWS},	/* ecc */
	[ECC_CORRECTED] = {"ecc_corrected", 0},
	[ECC_UNCORRECTED] = {"ecc_uncorrected", 0},
	[ECC_CORRECTED_LIFE] = {"ecc_corrected_life", 0},
	[ECC_UNCORRECTED_LIFE] = {"ecc_uncorrected_life", 0},
	[REMAPPED_CORRECTED] = {"remapped_corrected", 0},
	[REMAPPED_UNCORRECTED] = {"remapped_uncorrected", 0},
	[REMAP_PENDING] = {"remap_pending", 0},
	[REMAP_FAILED] = {"remap_failed", 0},
	[RETIRED_CORRECTED] = {"retired_corrected", NONE},
	[RETIRED_UNCORRECTED] = {"retired_uncorrected", NONE},
	[RETIRE_PENDING] = {"retire_pending", NONE},
	[RECOVERY] = {"recovery", 0},
	[PCIE_GENERATION] = {"pcie_generation", 5},
	[PCIE_GENERATION_MOST] = {"pcie_generation_most", 5},
	[PCIE_WIDTH] = {"pcie_width", 16},
	[PCIE_WIDTH_MOST] = {"pcie_width_most", 16},
	[PCIE_REPLAYS] = {"pcie_replays", 0},
	[PERSISTENCE] = {"persistence", 1},
	[COMPUTE_MODE] = {"compute_mode", 0},
	[MIG_PENDING] = {"mig_pending", FOLLOWS},	/* the mode */
	[FABRIC_STATE] = {"fabric_state", 3},
	[FABRIC_STATUS] = {"fabric_status", 0},
	[FABRIC_CLIQUE] = {"fabric_clique", 0},
	[FABRIC_HEALTH] = {"fabric_health", 0},
	[LINKS] = {"links", NVLINKS},
	[GARBAGE_PIDS] = {"garbage_pids", 0},
};

struct link {
	int64_t value[LINK_FACTS];
};
static const char *const LINK_KEYS[LINK_FACTS] = {
	[LINK_ACTIVE] = "active", [LINK_CRC] = "crc", [LINK_REPLAYS] = "replays", [LINK_RECOVERIES] = "recoveries",
	[LINK_REMOTE] = "remote",
};

static struct {
	int64_t value[FACTS];
	struct link link[NVLINKS];
	char serial[32], vbios[32], cluster[33];
} set[GPUS];

/* Under the mutex of control.c, as all that follows. */
void settings_forget(void)
{
	memset(set, 0, sizeof(set));
	for (int g = 0; g < GPUS; g++) {
		for (int k = 0; k < FACTS; k++)
			set[g].value[k] = FACT_KEYS[k].usual;
		for (int l = 0; l < NVLINKS; l++) {
			set[g].link[l].value[LINK_ACTIVE] = FOLLOWS;
			set[g].link[l].value[LINK_REMOTE] = 2;	/* a switch */
		}
	}
}

static int64_t number_of(const char *text)
{
	return strcmp(text, "-") == 0 ? NONE : strtoll(text, NULL, 10);
}

/* set GPU KEY VALUE; link GPU LINK KEY VALUE */
void settings_line(const char *line)
{
	char key[32], value[64];
	int gpu, link;

	if (sscanf(line, "link %d %d %31s %63s", &gpu, &link, key, value) == 4) {
		for (int k = 0; k < LINK_FACTS && (unsigned)gpu < GPUS && (unsigned)link < NVLINKS; k++)
			if (strcmp(key, LINK_KEYS[k]) == 0)
				set[gpu].link[link].value[k] = number_of(value);
		return;
	}
	if (sscanf(line, "set %d %31s %63s", &gpu, key, value) != 3 || (unsigned)gpu >= GPUS)
		return;
	if (strcmp(key, "serial") == 0)
		snprintf(set[gpu].serial, sizeof(set[gpu].serial), "%.31s", value);
	else if (strcmp(key, "vbios") == 0)
		snprintf(set[gpu].vbios, sizeof(set[gpu].vbios), "%.31s", value);
	else if (strcmp(key, "fabric_cluster") == 0)
		snprintf(set[gpu].cluster, sizeof(set[gpu].cluster), "%.32s", value);
	else
		for (int k = 0; k < FACTS; k++)
			if (strcmp(key, FACT_KEYS[k].name) == 0)
				set[gpu].value[k] = number_of(value);
}

/* A counter of errors is there where ECC is on. */
static bool counts_ecc(int key)
{
	return key >= ECC_CORRECTED && key <= ECC_UNCORRECTED_LIFE;
}

/* NOT_SUPPORTED where the card does not have it; `follows` where nothing was set. */
int fact(const struct device *dev, int key, int64_t follows, int64_t *value)
{
	control_lock(true);
	*value = set[dev->gpu].value[key];
	if (counts_ecc(key) && set[dev->gpu].value[ECC] != 1)
		*value = NONE;
	control_lock(false);
	if (*value == FOLLOWS)
		*value = follows;
	return *value == NONE ? NOT_SUPPORTED : OK;
}

int link_fact(const struct device *dev, unsigned link, int key, int64_t *value)
{
	int64_t links;
	int rc = fact(dev, LINKS, 0, &links);

	if (rc != OK || links == 0)
		return NOT_SUPPORTED;
	if (link >= NVLINKS || link >= links)
		return INVALID_ARGUMENT;
	control_lock(true);
	*value = set[dev->gpu].link[link].value[key];
	control_lock(false);
	if (*value == FOLLOWS)
		*value = !dev->mig;
	return *value == NONE ? NOT_SUPPORTED : OK;
}

/* The text as set, or `usual`; NOT_SUPPORTED for "-". */
int text_fact(const struct device *dev, int key, const char *usual, char *buf, size_t size)
{
	control_lock(true);
	const char *text = key == SERIAL ? set[dev->gpu].serial : key == VBIOS ? set[dev->gpu].vbios
										: set[dev->gpu].cluster;
	int n = snprintf(buf, size, "%s", *text ? text : usual);
	control_lock(false);
	return strcmp(buf, "-") == 0 ? NOT_SUPPORTED : n < 0 || (size_t)n >= size ? INSUFFICIENT_SIZE : OK;
}
