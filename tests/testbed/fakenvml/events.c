/* Xid events: each once per set, those after the registration, in the order of the file. */
#include <stdio.h>
#include <stdlib.h>

#include "state.h"

#define EVENTS 256
#define LOOK_EVERY_US 20000

struct xid {
	int64_t t;
	int gpu, code, slot;
};

struct event_set {
	bool registered[GPUS];
	int from[GPUS];		/* how many the file held when the GPU was registered */
	int64_t at[GPUS];	/* and when that was */
	bool delivered[EVENTS];
};

/* The number of events in the file, those still to come included. */
static int read_events(struct xid *xids)
{
	char path[2200], line[96];
	int n = 0;
	FILE *f = state_path(path, sizeof(path), "events") == 0 ? fopen(path, "re") : NULL;

	if (!f)
		return 0;
	while (n < EVENTS && fgets(line, sizeof(line), f)) {
		long long t;
		xids[n].slot = -1;
		if (sscanf(line, "%lld %d %d %d", &t, &xids[n].gpu, &xids[n].code, &xids[n].slot) < 3)
			continue;
		xids[n++].t = t;
	}
	fclose(f);
	return n;
}

static bool due(const struct event_set *set, const struct xid *x, int i, int64_t now)
{
	if (x->gpu < 0 || x->gpu >= gpu_count || !set->registered[x->gpu])
		return false;
	if (set->delivered[i] || x->t > now)
		return false;
	return i >= set->from[x->gpu] || x->t > set->at[x->gpu];
}

API nvmlEventSetCreate(struct event_set **set)
{
	ENTER_SYSTEM();
	*set = calloc(1, sizeof(**set));
	LEAVE(NULL, *set ? OK : UNKNOWN_ERROR);
}

API nvmlEventSetFree(struct event_set *set)
{
	ENTER_SYSTEM();
	free(set);
	LEAVE(NULL, OK);
}

API nvmlDeviceGetSupportedEventTypes(struct device *dev, unsigned long long *types)
{
	ENTER_GPU(dev);
	*types = EVENT_XID;
	LEAVE(dev, OK);
}

API nvmlDeviceRegisterEvents(struct device *dev, unsigned long long types, struct event_set *set)
{
	struct xid xids[EVENTS];

	ENTER_GPU(dev);
	if (!set || (types & ~EVENT_XID))
		LEAVE(dev, set ? NOT_SUPPORTED : INVALID_ARGUMENT);
	if (!set->registered[dev->gpu]) {
		set->from[dev->gpu] = read_events(xids);
		set->at[dev->gpu] = now_us();
		set->registered[dev->gpu] = types & EVENT_XID;
	}
	LEAVE(dev, OK);
}

/* Blocks for up to its timeout, as the real one does: TIMEOUT if nothing came. */
API nvmlEventSetWait_v2(struct event_set *set, struct event_data *data, unsigned timeout_ms)
{
	struct xid xids[EVENTS];
	int64_t end = now_us() + (int64_t)timeout_ms * 1000;

	ENTER_SYSTEM();
	for (;;) {
		int64_t now = now_us();
		int n = read_events(xids);
		for (int i = 0; i < n; i++) {
			if (!due(set, &xids[i], i, now))
				continue;
			set->delivered[i] = true;
			/* The card's handle, also where an instance is named (G08). */
			const struct device *on = (unsigned)xids[i].slot < SLOTS ?
				&instances[xids[i].gpu][xids[i].slot] : NULL;
			*data = (struct event_data){
				.device = &gpus[xids[i].gpu], .type = EVENT_XID, .data = (unsigned long long)xids[i].code,
				.gi = on ? (unsigned)on->gi : NOT_AN_INSTANCE, .ci = on ? (unsigned)on->ci : NOT_AN_INSTANCE,
			};
			LEAVE(NULL, OK);
		}
		if (now >= end)
			LEAVE(NULL, TIMEOUT);
		sleep_us(end - now < LOOK_EVERY_US ? end - now : LOOK_EVERY_US);
	}
}
