/* GPM: activity averaged between two samples, of a whole GPU or of one GPU instance. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

struct gpm_sample {
	int64_t t;		/* 0: not filled yet */
	int gpu, gi, slices;
	__int128 sum[KEYS];
};

API nvmlGpmQueryDeviceSupport(struct device *dev, struct gpm_support *support)
{
	ENTER(dev);
	if (support->version != 1)
		LEAVE(dev, ARGUMENT_VERSION_MISMATCH);
	support->supported = dev->slot < 0 && dev->gpm && (!dev->mig || dev->mig_gpm);
	LEAVE(dev, OK);
}

API nvmlGpmSampleAlloc(struct gpm_sample **sample)
{
	ENTER_SYSTEM();
	*sample = calloc(1, sizeof(**sample));
	LEAVE(NULL, *sample ? OK : UNKNOWN_ERROR);
}

API nvmlGpmSampleFree(struct gpm_sample *sample)
{
	ENTER_SYSTEM();
	free(sample);
	LEAVE(NULL, OK);
}

static int fill(struct device *dev, int gi, int slices, struct gpm_sample *sample)
{
	struct moment m;
	int rc = moment_of_instance(dev, gi, &m);

	sample->t = m.t;
	sample->gpu = dev->gpu;
	sample->gi = gi;
	sample->slices = slices;
	memcpy(sample->sum, m.sum, sizeof(sample->sum));
	return rc;
}

API nvmlGpmSampleGet(struct device *dev, struct gpm_sample *sample)
{
	ENTER_GPU(dev);
	if (!dev->gpm || dev->mig)
		LEAVE(dev, NOT_SUPPORTED);
	LEAVE(dev, fill(dev, -1, dev->slices, sample));
}

API nvmlGpmMigSampleGet(struct device *dev, unsigned gi, struct gpm_sample *sample)
{
	ENTER_GPU(dev);
	if (!dev->gpm || !dev->mig || !dev->mig_gpm)
		LEAVE(dev, NOT_SUPPORTED);
	for (int s = 0; s < SLOTS; s++)
		if (same_gi(dev, s, (int)gi))
			LEAVE(dev, fill(dev, (int)gi, instances[dev->gpu][s].slices, sample));
	LEAVE(dev, INVALID_ARGUMENT);
}

/* What a metric is made of, and in which unit: percent of a share in ppm, percent, or MiB/s of bytes. */
static int metric(struct gpm_metric *g, const struct gpm_sample *a, const struct gpm_sample *b)
{
	static const struct {
		unsigned id;
		int key;
		double scale;
		const char *name, *unit;
	} METRICS[] = {
		{1, UTIL, 1, "Graphics Util", "%"},
		{2, SM_PPM, 1e-4, "SM Util", "%"},
		{5, TENSOR_PPM, 1e-4, "Any Tensor Util", "%"},
		{10, DRAM_PPM, 1e-4, "DRAM BW Util", "%"},
		{20, PCIE_TX, 1.0 / (1 << 20), "PCIe TX", "MiB/s"},
		{21, PCIE_RX, 1.0 / (1 << 20), "PCIe RX", "MiB/s"},
		{60, NVLINK_RX, 1.0 / (1 << 20), "NVLink RX", "MiB/s"},
		{61, NVLINK_TX, 1.0 / (1 << 20), "NVLink TX", "MiB/s"},
	};

	for (size_t i = 0; i < sizeof(METRICS) / sizeof(METRICS[0]); i++) {
		if (METRICS[i].id != g->id)
			continue;
		double mean = (double)(b->sum[METRICS[i].key] - a->sum[METRICS[i].key]) / (double)(b->t - a->t);
		g->value = mean * METRICS[i].scale;
		if (METRICS[i].key >= SM_PPM && METRICS[i].key <= DRAM_PPM)	/* played as a share of the card */
			g->value *= 7.0 / a->slices;
		g->short_name = g->long_name = METRICS[i].name;
		g->unit = METRICS[i].unit;
		return OK;
	}
	return NOT_SUPPORTED;
}

API nvmlGpmMetricsGet(struct gpm_metrics *get)
{
	ENTER_SYSTEM();
	if (get->version != 1)
		LEAVE(NULL, ARGUMENT_VERSION_MISMATCH);
	if (!get->first || !get->second || get->first->gpu != get->second->gpu ||
	    get->first->gi != get->second->gi || get->first->t == 0 ||
	    get->second->t <= get->first->t)
		LEAVE(NULL, INVALID_ARGUMENT);
	for (unsigned i = 0; i < get->count; i++)
		get->metric[i].result = metric(&get->metric[i], get->first, get->second);
	LEAVE(NULL, OK);
}
