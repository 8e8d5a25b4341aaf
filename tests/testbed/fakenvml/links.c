/* NVLink, link by link, and the fabric the card was put into. */
#include <stdio.h>
#include <string.h>

#include "state.h"

static int give(const struct device *dev, unsigned link, int key, unsigned *value)
{
	int64_t found;
	int rc = link_fact(dev, link, key, &found);

	if (rc == OK)
		*value = (unsigned)found;
	return rc;
}

API nvmlDeviceGetNvLinkState(struct device *dev, unsigned link, unsigned *active)
{
	ENTER_GPU(dev);
	LEAVE(dev, give(dev, link, LINK_ACTIVE, active));
}

/* 0 GPU, 1 IBM's, 2 switch, 255 not known; of a link that is down it is not known. */
API nvmlDeviceGetNvLinkRemoteDeviceType(struct device *dev, unsigned link, unsigned *type)
{
	unsigned active = 0;

	ENTER_GPU(dev);
	int rc = give(dev, link, LINK_ACTIVE, &active);
	if (rc == OK)
		rc = give(dev, link, LINK_REMOTE, type);
	if (rc == OK && !active)
		*type = 255;
	LEAVE(dev, rc);
}

/* 0 replays, 1 recoveries, 2 CRC of flits */
API nvmlDeviceGetNvLinkErrorCounter(struct device *dev, unsigned link, unsigned counter, unsigned long long *n)
{
	static const int KEYS_OF[] = {LINK_REPLAYS, LINK_RECOVERIES, LINK_CRC};
	int64_t found = 0;

	ENTER_GPU(dev);
	if (counter > 2)
		LEAVE(dev, NOT_SUPPORTED);
	int rc = link_fact(dev, link, KEYS_OF[counter], &found);
	*n = (unsigned long long)found;
	LEAVE(dev, rc);
}

static int hex(char c)
{
	const char *digits = "0123456789abcdef", *at = strchr(digits, c);

	return c && at ? (int)(at - digits) : 0;
}

/* Its place in an NVSwitch system; NOT_SUPPORTED on a card that has no fabric. */
static int fabric(const struct device *dev, unsigned char uuid[16], unsigned *status, unsigned *clique,
		  unsigned *state, unsigned *health)
{
	unsigned *const to[] = {state, status, clique, health};
	char text[40];
	int64_t found;

	for (int i = 0; i < 4; i++) {
		int rc = fact(dev, FABRIC_STATE + i, 0, &found);
		if (rc != OK)
			return rc;
		*to[i] = (unsigned)found;
	}
	int rc = text_fact(dev, FABRIC_CLUSTER, "00000000000000000000000000000000", text, sizeof(text));
	for (int i = 0; i < 16; i++)
		uuid[i] = (unsigned char)(hex(text[2 * i]) * 16 + hex(text[2 * i + 1]));
	return rc;
}

API nvmlDeviceGetGpuFabricInfoV(struct device *dev, struct fabric_info *info)
{
	ENTER_GPU(dev);
	if (info->version != FABRIC_V2 && info->version != FABRIC_V3)
		LEAVE(dev, ARGUMENT_VERSION_MISMATCH);
	LEAVE(dev, fabric(dev, info->cluster, &info->status, &info->clique, &info->state, &info->health));
}
