/* The system, the handles and the plain values of a GPU. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "state.h"

#define MIB (1ull << 20)
#define RESERVED_MIB 551	/* what the driver keeps; part of `used` in v1 since R510, apart in v2 */

static int put(char *buf, unsigned size, const char *text)
{
	if (strlen(text) >= size)
		return INSUFFICIENT_SIZE;
	strcpy(buf, text);
	return OK;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int result)
{
	switch (result) {
	case OK: return "The operation was successful";
	case UNINITIALIZED: return "Uninitialized";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case NO_PERMISSION: return "Insufficient Permissions";
	case NOT_FOUND: return "Not Found";
	case INSUFFICIENT_SIZE: return "Insufficient Size";
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case TIMEOUT: return "Timeout";
	case GPU_IS_LOST: return "GPU is lost";
	default: return "Unknown Error";
	}
}

API nvmlSystemGetDriverVersion(char *buf, unsigned size)
{
	ENTER_SYSTEM();
	LEAVE(NULL, put(buf, size, driver_version()));
}

API nvmlSystemGetNVMLVersion(char *buf, unsigned size)
{
	/* Also before nvmlInit, and where that fails. */
	return leave(__func__, NULL, put(buf, size, library_version()));
}

API nvmlSystemGetCudaDriverVersion(int *version)
{
	ENTER_SYSTEM();
	*version = 12080;
	LEAVE(NULL, OK);
}

API nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	ENTER_SYSTEM();
	*version = 12080;
	LEAVE(NULL, OK);
}

/* --- handles ------------------------------------------------------------------------------------ */

API nvmlDeviceGetCount_v2(unsigned *count)
{
	ENTER_SYSTEM();
	*count = (unsigned)gpu_count;	/* lost ones too */
	LEAVE(NULL, OK);
}

/* A lost GPU does not even give its handle. */
static int hand_out(const char *function, struct device *found, int otherwise, struct device **dev)
{
	int rc = found ? enter(function, found) : enter_system(function);

	if (rc == OK && found)
		*dev = found;
	return leave(function, found, rc == OK && !found ? otherwise : rc);
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **dev)
{
	struct device *found = index < (unsigned)gpu_count ? &gpus[index] : NULL;

	return hand_out(__func__, found, INVALID_ARGUMENT, dev);
}

static struct device *by_uuid(const char *uuid)
{
	for (int g = 0; g < gpu_count; g++) {
		if (strcmp(gpus[g].uuid, uuid) == 0)
			return &gpus[g];
		for (int s = 0; s < SLOTS; s++)
			if (instances[g][s].present && strcmp(instances[g][s].uuid, uuid) == 0)
				return &instances[g][s];
	}
	return NULL;
}

API nvmlDeviceGetHandleByUUID(const char *uuid, struct device **dev)
{
	return hand_out(__func__, by_uuid(uuid), NOT_FOUND, dev);
}

/* "0000:1B:00.0" and "00000000:1b:00.0" are the same card. */
API nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct device **dev)
{
	struct device *found = NULL;
	unsigned domain, bus, slot;

	if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) == 3)
		for (int g = 0; g < gpu_count; g++)
			if (gpus[g].domain == domain && gpus[g].bus == bus && gpus[g].dev == slot)
				found = &gpus[g];
	return hand_out(__func__, found, NOT_FOUND, dev);
}

/* --- what it is --------------------------------------------------------------------------------- */

API nvmlDeviceGetName(struct device *dev, char *buf, unsigned size)
{
	ENTER(dev);
	LEAVE(dev, put(buf, size, dev->name));
}

API nvmlDeviceGetUUID(struct device *dev, char *buf, unsigned size)
{
	ENTER(dev);
	LEAVE(dev, put(buf, size, dev->uuid));
}

/* Of an instance: its place on its card, as nvmlDeviceGetMigDeviceHandleByIndex takes it. */
API nvmlDeviceGetIndex(struct device *dev, unsigned *index)
{
	ENTER(dev);
	*index = (unsigned)(dev->slot >= 0 ? dev->slot : dev->gpu);
	LEAVE(dev, OK);
}

API nvmlDeviceGetMinorNumber(struct device *dev, unsigned *minor)
{
	ENTER_GPU(dev);
	*minor = (unsigned)dev->minor;
	LEAVE(dev, OK);
}

API nvmlDeviceGetSerial(struct device *dev, char *buf, unsigned size)
{
	char text[32];

	ENTER_GPU(dev);
	snprintf(text, sizeof(text), "16523220%05u", dev->bus);
	LEAVE(dev, text_fact(dev, SERIAL, text, buf, size));
}

API nvmlDeviceGetVbiosVersion(struct device *dev, char *buf, unsigned size)
{
	ENTER_GPU(dev);
	LEAVE(dev, text_fact(dev, VBIOS, "96.00.74.00.01", buf, size));
}

API nvmlDeviceGetPciInfo_v3(struct device *dev, struct pci_info *pci)
{
	ENTER(dev);
	*pci = (struct pci_info){.domain = dev->domain, .bus = dev->bus, .device = dev->dev,
				 .device_id = 0x233010DE, .subsystem_id = 0x16C110DE};
	snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "%04X:%02X:%02X.0", dev->domain & 0xFFFF,
		 dev->bus & 0xFF, dev->dev & 0xFF);
	snprintf(pci->bus_id, sizeof(pci->bus_id), "%08X:%02X:%02X.0", dev->domain, dev->bus, dev->dev);
	LEAVE(dev, OK);
}

API nvmlDeviceGetCudaComputeCapability(struct device *dev, int *major, int *minor)
{
	ENTER(dev);
	*major = 9;
	*minor = 0;
	LEAVE(dev, OK);
}

/* Constants of a healthy data-centre card: NAME(dev, one unsigned). */
#define CONSTANT(function, number) \
	API function(struct device *dev, unsigned *value) \
	{ \
		ENTER_GPU(dev); \
		*value = (unsigned)(number); \
		LEAVE(dev, OK); \
	}
CONSTANT(nvmlDeviceGetDisplayMode, 0)
CONSTANT(nvmlDeviceGetDisplayActive, 0)
CONSTANT(nvmlDeviceGetNumGpuCores, dev->sms * 128)

/* One unsigned that can be set: NAME(dev, what it is otherwise). */
static int give(const struct device *dev, int key, int64_t follows, unsigned *value)
{
	int64_t found;
	int rc = fact(dev, key, follows, &found);

	if (rc == OK)
		*value = (unsigned)found;
	return rc;
}

#define FACT(function, key, follows) \
	API function(struct device *dev, unsigned *value) \
	{ \
		ENTER_GPU(dev); \
		LEAVE(dev, give(dev, key, follows, value)); \
	}
FACT(nvmlDeviceGetPersistenceMode, PERSISTENCE, 1)
FACT(nvmlDeviceGetComputeMode, COMPUTE_MODE, 0)
FACT(nvmlDeviceGetPerformanceState, PERFORMANCE_STATE, 0)
FACT(nvmlDeviceGetPowerState, PERFORMANCE_STATE, 0)
FACT(nvmlDeviceGetPowerManagementLimit, POWER_LIMIT_MW, dev->limit_mw)
FACT(nvmlDeviceGetPowerManagementDefaultLimit, POWER_DEFAULT_MW, dev->limit_mw)
FACT(nvmlDeviceGetEnforcedPowerLimit, POWER_LIMIT_MW, dev->limit_mw)
FACT(nvmlDeviceGetCurrPcieLinkGeneration, PCIE_GENERATION, 5)
FACT(nvmlDeviceGetMaxPcieLinkGeneration, PCIE_GENERATION_MOST, 5)
FACT(nvmlDeviceGetCurrPcieLinkWidth, PCIE_WIDTH, 16)
FACT(nvmlDeviceGetMaxPcieLinkWidth, PCIE_WIDTH_MOST, 16)
FACT(nvmlDeviceGetPcieReplayCounter, PCIE_REPLAYS, 0)
FACT(nvmlDeviceGetFanSpeed, FAN_PERCENT, 0)
FACT(nvmlDeviceGetRetiredPagesPendingStatus, RETIRE_PENDING, 0)

API nvmlDeviceGetNumFans(struct device *dev, unsigned *fans)
{
	unsigned percent;

	ENTER_GPU(dev);
	*fans = give(dev, FAN_PERCENT, 0, &percent) == OK;
	LEAVE(dev, OK);
}

API nvmlDeviceGetFanSpeed_v2(struct device *dev, unsigned fan, unsigned *percent)
{
	ENTER_GPU(dev);
	LEAVE(dev, fan > 0 ? INVALID_ARGUMENT : give(dev, FAN_PERCENT, 0, percent));
}

API nvmlDeviceGetPowerManagementLimitConstraints(struct device *dev, unsigned *least, unsigned *most)
{
	ENTER_GPU(dev);
	*least = 200000;
	LEAVE(dev, give(dev, POWER_MOST_MW, dev->limit_mw, most));
}

API nvmlDeviceGetTemperatureThreshold(struct device *dev, unsigned which, unsigned *celsius)
{
	ENTER_GPU(dev);
	if (which > 1)		/* 0 shutdown, 1 slowdown */
		LEAVE(dev, NOT_SUPPORTED);
	LEAVE(dev, give(dev, which == 0 ? SHUTDOWN_C : SLOWDOWN_C, 0, celsius));
}

API nvmlDeviceGetEccMode(struct device *dev, unsigned *now, unsigned *pending)
{
	ENTER_GPU(dev);
	int rc = give(dev, ECC, 1, now);
	LEAVE(dev, rc == OK ? give(dev, ECC_PENDING, *now, pending) : rc);
}

API nvmlDeviceGetTotalEccErrors(struct device *dev, unsigned kind, unsigned counter, unsigned long long *n)
{
	int64_t found;

	ENTER_GPU(dev);
	if (kind > 1 || counter > 1)
		LEAVE(dev, INVALID_ARGUMENT);
	int rc = fact(dev, ECC_CORRECTED + (int)kind + 2 * (int)counter, 0, &found);
	*n = (unsigned long long)found;
	LEAVE(dev, rc);
}

API nvmlDeviceGetMemoryErrorCounter(struct device *dev, unsigned kind, unsigned counter, unsigned place,
				    unsigned long long *n)
{
	ENTER_GPU(dev);
	*n = 0;
	LEAVE(dev, kind > 1 || counter > 1 ? INVALID_ARGUMENT : place > 8 ? NOT_SUPPORTED : OK);
}

API nvmlDeviceGetRemappedRows(struct device *dev, unsigned *corrected, unsigned *uncorrected,
			      unsigned *pending, unsigned *failed)
{
	unsigned *const to[] = {corrected, uncorrected, pending, failed};
	int rc = OK;

	ENTER_GPU(dev);
	for (int i = 0; i < 4 && rc == OK; i++)
		rc = give(dev, REMAPPED_CORRECTED + i, 0, to[i]);
	LEAVE(dev, rc);
}

/* --- memory ------------------------------------------------------------------------------------- */

static int64_t used_mib(const struct device *dev, const struct moment *m)
{
	int64_t used = 0;

	for (int i = 0; i < m->tracks; i++)	/* compute instances share their GPU instance's memory */
		if (dev->slot < 0 || same_gi(card((struct device *)dev), m->track[i].owner.slot, dev->gi))
			used += m->track[i].level[MEM_MIB];
	int64_t most = dev->mem_mib - RESERVED_MIB;
	return used < most ? used : most;
}

API nvmlDeviceGetMemoryInfo(struct device *dev, struct memory *mem)
{
	struct moment m;

	ENTER_NOW(dev, &m);
	mem->total = (unsigned long long)dev->mem_mib * MIB;
	mem->used = (unsigned long long)(used_mib(dev, &m) + RESERVED_MIB) * MIB;
	mem->free = mem->total - mem->used;
	LEAVE(dev, OK);
}

API nvmlDeviceGetMemoryInfo_v2(struct device *dev, struct memory_v2 *mem)
{
	struct moment m;

	ENTER_NOW(dev, &m);
	if (mem->version != MEMORY_V2)
		LEAVE(dev, ARGUMENT_VERSION_MISMATCH);
	mem->total = (unsigned long long)dev->mem_mib * MIB;
	mem->reserved = RESERVED_MIB * MIB;
	mem->used = (unsigned long long)used_mib(dev, &m) * MIB;
	mem->free = mem->total - mem->reserved - mem->used;
	LEAVE(dev, OK);
}

/* Total, free, used as well; instances answer too (nvitop counts on it). */
API nvmlDeviceGetBAR1MemoryInfo(struct device *dev, struct memory *bar)
{
	int64_t total, used = 0;

	ENTER(dev);
	int rc = fact(dev, BAR1_MIB, 0, &total);
	if (rc == OK)
		rc = fact(dev, BAR1_USED_MIB, 0, &used);
	if (rc == OK)
		*bar = (struct memory){(unsigned long long)total * MIB, (unsigned long long)(total - used) * MIB,
				       (unsigned long long)used * MIB};
	LEAVE(dev, rc);
}
