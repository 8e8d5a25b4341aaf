/* What the callers and this library agree on: the part of NVML's ABI that is played here.
 *
 * Own definitions, after the documentation and the ctypes declarations of nvidia-ml-py; the sizes are
 * those of drivers R535 to R580 on x86-64. Names follow NVML where a caller knows them. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdint.h>

enum {
	OK = 0,
	UNINITIALIZED = 1,
	INVALID_ARGUMENT = 2,
	NOT_SUPPORTED = 3,
	NO_PERMISSION = 4,
	NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9,
	TIMEOUT = 10,
	GPU_IS_LOST = 15,
	ARGUMENT_VERSION_MISMATCH = 25,
	UNKNOWN_ERROR = 999,
};

#define NOT_AN_INSTANCE 0xFFFFFFFFu	/* gpuInstanceId of a process on a whole GPU */
#define EVENT_XID 0x8ull

struct pci_info {
	char bus_id_legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};
_Static_assert(sizeof(struct pci_info) == 68, "nvmlPciInfo_t");

struct utilization {
	unsigned gpu, memory;
};
_Static_assert(sizeof(struct utilization) == 8, "nvmlUtilization_t");

struct memory {
	unsigned long long total, free, used;
};
_Static_assert(sizeof(struct memory) == 24, "nvmlMemory_t");

#define MEMORY_V2 0x02000028u
struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};
_Static_assert(sizeof(struct memory_v2) == 40, "nvmlMemory_v2_t");

#define TEMPERATURE_V1 0x0100000cu
struct temperature {
	unsigned version, sensor;
	int celsius;
};
_Static_assert(sizeof(struct temperature) == 12, "nvmlTemperature_v1_t");

enum { VALUE_DOUBLE = 0, VALUE_UINT = 1, VALUE_ULONGLONG = 3 };
struct field_value {
	unsigned id, scope;
	long long timestamp_us, latency_us;
	unsigned type;
	int result;
	union {
		double d;
		unsigned ui;
		unsigned long long ull;
	} value;
};
_Static_assert(sizeof(struct field_value) == 40, "nvmlFieldValue_t");

#define FABRIC_V2 0x02000024u
#define FABRIC_V3 0x03000028u	/* one more byte at its end */
struct fabric_info {
	unsigned version;
	unsigned char cluster[16];
	unsigned status, clique, state, health;
};
_Static_assert(sizeof(struct fabric_info) == 36, "nvmlGpuFabricInfo_v2_t");

struct process_info {
	unsigned pid;
	unsigned long long used_bytes;
	unsigned gi, ci;
};
_Static_assert(sizeof(struct process_info) == 24, "nvmlProcessInfo_t (v2, v3)");

struct process_sample {
	unsigned pid;
	unsigned long long timestamp_us;
	unsigned sm, mem, enc, dec;
};
_Static_assert(sizeof(struct process_sample) == 32, "nvmlProcessUtilizationSample_t");

struct attributes {
	unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
	unsigned long long memory_mib;
};
_Static_assert(sizeof(struct attributes) == 40, "nvmlDeviceAttributes_t");

struct device;
struct event_data {
	struct device *device;
	unsigned long long type, data;
	unsigned gi, ci;
};
_Static_assert(sizeof(struct event_data) == 32, "nvmlEventData_t");

struct gpm_support {
	unsigned version, supported;
};
_Static_assert(sizeof(struct gpm_support) == 8, "nvmlGpmSupport_t");

struct gpm_metric {
	unsigned id;
	int result;
	double value;
	const char *short_name, *long_name, *unit;
};
_Static_assert(sizeof(struct gpm_metric) == 40, "nvmlGpmMetric_t");

struct gpm_sample;
/* The array has 98, 210 or 477 entries, depending on the binding's age: only `count` may be touched. */
struct gpm_metrics {
	unsigned version, count;
	struct gpm_sample *first, *second;
	struct gpm_metric metric[];
};
_Static_assert(sizeof(struct gpm_metrics) == 24, "nvmlGpmMetricsGet_t");

#endif
