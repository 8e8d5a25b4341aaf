/* Values that move: power, energy, utilisation, clocks, links. */
#include <limits.h>

#include "state.h"

/* -1000..1000, the same for all who ask within the same 100 ms: fair weather for instantaneous values,
 * where the level asks for it. The counters are the exact integral of the level without it. */
static int64_t noise(const struct device *dev, const struct moment *m)
{
	if (!m->now[NOISE])
		return 0;
	uint64_t x = (uint64_t)(m->t / 100000) * 0x9E3779B97F4A7C15ull + dev->bus;
	x ^= x >> 29;
	x *= 0xBF58476D1CE4E5B9ull;
	x ^= x >> 32;
	return (int64_t)(x % 2001) - 1000;
}

static unsigned power_mw(const struct device *dev, const struct moment *m)
{
	int64_t level = m->now[POWER_MW];
	int64_t mw = level + level * noise(dev, m) / 100000;	/* 1 % */

	return (unsigned)(mw < dev->limit_mw ? mw : dev->limit_mw);
}

static unsigned percent(const struct device *dev, const struct moment *m, int64_t level)
{
	return (unsigned)(level > 1 && level < 99 ? level + noise(dev, m) / 700 : level);
}

API nvmlDeviceGetPowerUsage(struct device *dev, unsigned *mw)
{
	struct moment m;

	ENTER_GPU(dev);
	int rc = moment_of(dev, &m);
	*mw = power_mw(dev, &m);
	LEAVE(dev, rc);
}

API nvmlDeviceGetTotalEnergyConsumption(struct device *dev, unsigned long long *mj)
{
	struct moment m;

	ENTER_GPU(dev);
	int rc = moment_of(dev, &m);
	*mj = (unsigned long long)(m.sum[POWER_MW] / 1000000);
	LEAVE(dev, rc);
}

/* Not supported in MIG mode, neither on the card nor on an instance. */
API nvmlDeviceGetUtilizationRates(struct device *dev, struct utilization *u)
{
	struct moment m;

	ENTER_GPU(dev);
	if (dev->mig)
		LEAVE(dev, NOT_SUPPORTED);
	int rc = moment_of(dev, &m);
	u->gpu = percent(dev, &m, m.now[UTIL]);
	u->memory = percent(dev, &m, m.now[MEM_UTIL]);
	LEAVE(dev, rc);
}

#define ENGINE(function, key) \
	API function(struct device *dev, unsigned *util, unsigned *period_us) \
	{ \
		int64_t percent; \
		ENTER_GPU(dev); \
		int rc = fact(dev, key, 0, &percent); \
		*util = (unsigned)percent; \
		*period_us = 167000; \
		LEAVE(dev, dev->mig ? NOT_SUPPORTED : rc); \
	}
ENGINE(nvmlDeviceGetEncoderUtilization, ENCODER_PERCENT)
ENGINE(nvmlDeviceGetDecoderUtilization, DECODER_PERCENT)

static int64_t celsius(const struct moment *m)
{
	return 30 + m->now[POWER_MW] / 20000;
}

API nvmlDeviceGetTemperature(struct device *dev, unsigned sensor, unsigned *value)
{
	struct moment m;

	ENTER_GPU(dev);
	int64_t found;
	int rc = moment_of(dev, &m);
	if (rc == OK)
		rc = fact(dev, TEMPERATURE_C, celsius(&m), &found);
	*value = (unsigned)found;
	LEAVE(dev, sensor != 0 ? INVALID_ARGUMENT : rc);
}

API nvmlDeviceGetTemperatureV(struct device *dev, struct temperature *value)
{
	struct moment m;

	ENTER_GPU(dev);
	if (value->version != TEMPERATURE_V1)
		LEAVE(dev, ARGUMENT_VERSION_MISMATCH);
	int64_t found;
	int rc = moment_of(dev, &m);
	if (rc == OK)
		rc = fact(dev, TEMPERATURE_C, celsius(&m), &found);
	value->celsius = (int)found;
	LEAVE(dev, value->sensor != 0 ? INVALID_ARGUMENT : rc);
}

/* 0 graphics, 1 SM, 2 memory, 3 video */
API nvmlDeviceGetClockInfo(struct device *dev, unsigned kind, unsigned *mhz)
{
	struct moment m;

	ENTER_GPU(dev);
	int64_t found = 0;
	int rc = moment_of(dev, &m);
	if (rc == OK)
		rc = fact(dev, kind == 2 ? MEMORY_CLOCK_MHZ : SM_CLOCK_MHZ, m.now[CLOCK_MHZ], &found);
	*mhz = (unsigned)found;
	LEAVE(dev, kind > 3 ? INVALID_ARGUMENT : rc);
}

API nvmlDeviceGetMaxClockInfo(struct device *dev, unsigned kind, unsigned *mhz)
{
	int64_t found;

	ENTER_GPU(dev);
	int rc = fact(dev, kind == 2 ? MEMORY_CLOCK_MOST_MHZ : SM_CLOCK_MOST_MHZ, 0, &found);
	*mhz = (unsigned)found;
	LEAVE(dev, kind > 3 ? INVALID_ARGUMENT : rc);
}

static int clock_reasons(struct device *dev, unsigned long long *reasons)
{
	struct moment m;
	int64_t found = 0;
	int rc = moment_of(dev, &m);

	if (rc == OK)	/* idle, power cap */
		rc = fact(dev, THROTTLE, m.now[UTIL] == 0 ? 1 : m.now[POWER_MW] >= dev->limit_mw ? 4 : 0, &found);
	*reasons = (unsigned long long)found;
	return rc;
}

API nvmlDeviceGetCurrentClocksThrottleReasons(struct device *dev, unsigned long long *reasons)
{
	ENTER_GPU(dev);
	LEAVE(dev, clock_reasons(dev, reasons));
}

API nvmlDeviceGetCurrentClocksEventReasons(struct device *dev, unsigned long long *reasons)
{
	ENTER_GPU(dev);
	LEAVE(dev, clock_reasons(dev, reasons));
}

/* KB/s, 0 sent, 1 received; the real one samples 20 ms per call too. */
API nvmlDeviceGetPcieThroughput(struct device *dev, unsigned counter, unsigned *kb)
{
	struct moment m;

	ENTER_GPU(dev);
	sleep_us(20000);
	int rc = moment_of(dev, &m);
	*kb = (unsigned)(m.now[counter == 0 ? PCIE_TX : PCIE_RX] / 1000);
	LEAVE(dev, counter > 1 ? INVALID_ARGUMENT : rc);
}

/* --- nvmlDeviceGetFieldValues: each field with its own result --------------------------------------- */

static int give_uint(struct field_value *f, int64_t value)
{
	f->type = VALUE_UINT;
	f->value.ui = (unsigned)value;
	return OK;
}

static int give_ull(struct field_value *f, __int128 value)
{
	f->type = VALUE_ULONGLONG;
	f->value.ull = (unsigned long long)value;
	return OK;
}

/* KiB of all links (scope UINT_MAX) or of one; no NVLink in MIG mode. */
static int nvlink(const struct device *dev, struct field_value *f, __int128 byte_us, bool raw)
{
	__int128 kib = byte_us / 1000000 / 1024;

	if (dev->mig)
		return NOT_SUPPORTED;
	if (f->scope != UINT_MAX && f->scope >= NVLINKS)
		return INVALID_ARGUMENT;
	if (raw)
		kib += kib / 8;		/* protocol overhead */
	return give_ull(f, f->scope == UINT_MAX ? kib : kib / NVLINKS);
}

static int pcie(struct field_value *f, __int128 byte_us)
{
	__int128 bytes = byte_us / 1000000;

	return pcie_counters_wrap ? give_uint(f, (int64_t)(bytes & UINT_MAX)) : give_ull(f, bytes);
}

/* What is a fact of the card, by its field id; of ECC, remapping and PCIe, too. */
static const struct {
	unsigned id;
	int key;
} FACT_FIELDS[] = {
	{1, ECC}, {2, ECC_PENDING}, {3, ECC_CORRECTED}, {4, ECC_UNCORRECTED}, {5, ECC_CORRECTED_LIFE},
	{6, ECC_UNCORRECTED_LIFE}, {29, RETIRED_CORRECTED}, {30, RETIRED_UNCORRECTED}, {31, RETIRE_PENDING},
	{82, MEMORY_TEMPERATURE_C}, {91, LINKS}, {94, PCIE_REPLAYS}, {142, REMAPPED_CORRECTED},
	{143, REMAPPED_UNCORRECTED}, {144, REMAP_PENDING}, {145, REMAP_FAILED}, {188, POWER_MOST_MW},
	{189, POWER_DEFAULT_MW}, {190, POWER_LIMIT_MW}, {192, POWER_LIMIT_MW}, {230, RECOVERY},
};

static int64_t otherwise(const struct device *dev, const struct moment *m, int key)
{
	switch (key) {
	case MEMORY_TEMPERATURE_C: return celsius(m) + 6;
	case POWER_MOST_MW: case POWER_DEFAULT_MW: case POWER_LIMIT_MW: return dev->limit_mw;
	case ECC_PENDING: {
		int64_t ecc;
		return fact(dev, ECC, 1, &ecc) == OK ? ecc : 0;
	}
	default: return 0;
	}
}

/* Errors and state of one link, by its number in the scope. */
static int link_field(const struct device *dev, struct field_value *f, int key)
{
	int64_t found;
	int rc = link_fact(dev, f->scope, key, &found);

	return rc != OK ? rc : key == LINK_ACTIVE ? give_uint(f, found) : give_ull(f, found);
}

static int fact_field(const struct device *dev, const struct moment *m, struct field_value *f)
{
	for (size_t i = 0; i < sizeof(FACT_FIELDS) / sizeof(FACT_FIELDS[0]); i++) {
		int64_t found;
		int key = FACT_FIELDS[i].key;
		if (FACT_FIELDS[i].id != f->id)
			continue;
		int rc = fact(dev, key, otherwise(dev, m, key), &found);
		if (rc != OK)
			return rc;
		return key >= ECC_CORRECTED && key <= ECC_UNCORRECTED_LIFE ? give_ull(f, found) : give_uint(f, found);
	}
	return NOT_SUPPORTED;
}

static int field(struct device *dev, const struct moment *m, struct field_value *f)
{
	int fault = field_fault(dev, f->id);

	if (fault != OK)
		return fault;
	switch (f->id) {
	case 83: return give_ull(f, m->sum[POWER_MW] / 1000000);
	case 138: return nvlink(dev, f, m->sum[NVLINK_TX], false);
	case 139: return nvlink(dev, f, m->sum[NVLINK_RX], false);
	case 140: return nvlink(dev, f, m->sum[NVLINK_TX], true);
	case 141: return nvlink(dev, f, m->sum[NVLINK_RX], true);
	case 185: return give_uint(f, m->now[POWER_MW]);	/* average */
	case 186: return give_uint(f, power_mw(dev, m));	/* instant */
	case 161: return link_field(dev, f, LINK_REPLAYS);
	case 162: return link_field(dev, f, LINK_RECOVERIES);
	case 163: return link_field(dev, f, LINK_CRC);
	case 165: return link_field(dev, f, LINK_ACTIVE);
	case 187: return give_uint(f, 200000);
	case 197: return pcie(f, m->sum[PCIE_TX]);
	case 198: return pcie(f, m->sum[PCIE_RX]);
	default: return fact_field(dev, m, f);
	}
}

API nvmlDeviceGetFieldValues(struct device *dev, int count, struct field_value *values)
{
	struct moment m;

	ENTER_NOW(dev, &m);
	for (int i = 0; i < count; i++) {
		values[i].timestamp_us = unix_us(m.t);
		values[i].latency_us = 0;
		values[i].result = dev->slot >= 0 ? NOT_SUPPORTED : field(dev, &m, &values[i]);
	}
	LEAVE(dev, OK);
}
