/* Who holds a GPU and what that makes of its values: an append-only list of segments, replayed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

#define PPM 1000000

/* How the holders of one GPU add up, and to how much at most (POWER_MW: above idle, up to its limit). */
static const struct {
	const char *name;
	bool sum;
	int64_t most;
} LEVEL_KEYS[KEYS] = {
	[UTIL] = {"util", false, 100},
	[MEM_UTIL] = {"mem_util", false, 100},
	[POWER_MW] = {"power_mw", true, INT64_MAX},
	[SM_PPM] = {"sm_ppm", true, PPM},
	[TENSOR_PPM] = {"tensor_ppm", true, PPM},
	[DRAM_PPM] = {"dram_ppm", true, PPM},
	[NVLINK_RX] = {"nvlink_rx", true, INT64_MAX},
	[NVLINK_TX] = {"nvlink_tx", true, INT64_MAX},
	[PCIE_RX] = {"pcie_rx", true, INT64_MAX},
	[PCIE_TX] = {"pcie_tx", true, INT64_MAX},
	[MEM_MIB] = {"mem_mib", true, INT64_MAX},
	[CLOCK_MHZ] = {"clock_mhz", false, 1980},
	[NOISE] = {"noise", false, 1},
	[LIST] = {"list", false, 2},	/* which list of processes it is in: compute, graphics, MPS */
};

/* The number after " key=" in a line, or `otherwise`. */
int64_t read_number(const char *text, const char *key, int64_t otherwise)
{
	size_t n = strlen(key);

	for (const char *p = strstr(text, key); p; p = strstr(p + 1, key))
		if (p > text && p[-1] == ' ' && p[n] == '=')
			return strtoll(p + n + 1, NULL, 10);
	return otherwise;
}

static bool same_owner(const struct owner *a, const struct owner *b)
{
	return a->pid == b->pid && a->start == b->start && a->slot == b->slot;
}

static void add_segment(struct timeline *tl, const struct segment *s)
{
	if (tl->n == tl->room) {
		tl->room = tl->room ? tl->room * 2 : 64;
		tl->seg = realloc(tl->seg, tl->room * sizeof(*tl->seg));
		if (!tl->seg)
			abort();
	}
	size_t i = tl->n++;
	/* A script may write the past after a process wrote the present. */
	for (; i > 0 && tl->seg[i - 1].t > s->t; i--)
		tl->seg[i] = tl->seg[i - 1];
	tl->seg[i] = *s;
}

static void parse_line(struct timeline *tl, const char *line)
{
	struct segment s = {0};
	long long t;
	char rest[8] = "";

	if (sscanf(line, "%lld %d:%llu %d %7s", &t, &s.owner.pid, &s.owner.start, &s.owner.slot, rest) < 4)
		return;
	s.t = t;
	s.end = strcmp(rest, "end") == 0;
	for (int k = 0; k < KEYS; k++)
		s.level[k] = read_number(line, LEVEL_KEYS[k].name, 0);
	add_segment(tl, &s);
}

void timeline_drop(struct timeline *tl)
{
	free(tl->seg);
	*tl = (struct timeline){0};
}

/* Takes in what was appended since. Under the lock; writers append whole lines. */
static int refresh(struct device *gpu)
{
	struct timeline *tl = &gpu->timeline;
	char path[2200], line[512];
	struct stat st;

	if (state_path(path, sizeof(path), "gpu%d", gpu->gpu) < 0 || stat(path, &st) < 0)
		return UNKNOWN_ERROR;
	if (st.st_ino != tl->inode || st.st_size < tl->read)
		timeline_drop(tl);
	tl->inode = st.st_ino;
	if (st.st_size == tl->read)
		return OK;
	FILE *f = fopen(path, "re");
	if (!f)
		return UNKNOWN_ERROR;
	fseeko(f, tl->read, SEEK_SET);
	while (fgets(line, sizeof(line), f))
		parse_line(tl, line);
	tl->read = ftello(f);
	fclose(f);
	return OK;
}

/* What all live holders together make of the GPU. */
static void combine(const struct device *gpu, struct moment *m)
{
	memset(m->now, 0, sizeof(m->now));
	m->now[POWER_MW] = gpu->idle_mw;
	m->now[CLOCK_MHZ] = 345;
	for (int i = 0; i < m->tracks; i++) {
		const int64_t *level = m->track[i].level;
		for (int k = 0; k < KEYS; k++) {
			if (LEVEL_KEYS[k].sum)
				m->now[k] += level[k] - (k == POWER_MW ? gpu->idle_mw : 0);
			else if (level[k] > m->now[k])
				m->now[k] = level[k];
		}
	}
	for (int k = 0; k < KEYS; k++) {
		int64_t most = k == POWER_MW ? gpu->limit_mw : LEVEL_KEYS[k].most;
		if (m->now[k] > most)
			m->now[k] = most;
		if (m->now[k] < 0)
			m->now[k] = 0;
	}
}

static void follow(struct moment *m, const struct segment *s)
{
	int i = 0;

	while (i < m->tracks && !same_owner(&m->track[i].owner, &s->owner))
		i++;
	if (s->end) {
		if (i < m->tracks)
			m->track[i] = m->track[--m->tracks];
	} else if (i < TRACKS) {
		m->track[i] = *s;
		if (i == m->tracks)
			m->tracks++;
	}
}

/* Whether the instance at `slot` lies in GPU instance `gi`; two compute instances may share one. */
bool same_gi(const struct device *gpu, int slot, int gi)
{
	return slot >= 0 && slot < SLOTS && instances[gpu->gpu][slot].present && instances[gpu->gpu][slot].gi == gi;
}

/* The GPU at time t, from the start of its timeline; of one GPU instance alone where `gi` is not -1. */
static void replay(const struct device *gpu, int64_t t, int gi, struct moment *m)
{
	const struct timeline *tl = &gpu->timeline;

	*m = (struct moment){.t = tl->n ? tl->seg[0].t : t};
	combine(gpu, m);
	for (size_t i = 0; i <= tl->n; i++) {
		bool last = i == tl->n || tl->seg[i].t > t;
		int64_t until = last ? t : tl->seg[i].t;
		if (until > m->t) {
			for (int k = 0; k < KEYS; k++)
				m->sum[k] += (__int128)m->now[k] * (until - m->t);
			m->t = until;
		}
		if (last)
			return;
		if (gi >= 0 && !same_gi(gpu, tl->seg[i].owner.slot, gi))
			continue;
		follow(m, &tl->seg[i]);
		combine(gpu, m);
	}
}

static bool anyone_dead(const struct moment *m)
{
	for (int i = 0; i < m->tracks; i++)
		if (!holder_alive(&m->track[i].owner))
			return true;
	return false;
}

/* Ends the dead holders' tracks at m->t. Under the exclusive lock, so that nobody was told more. */
static int bury(struct device *gpu, const struct moment *m)
{
	char path[2200], line[128];

	if (state_path(path, sizeof(path), "gpu%d", gpu->gpu) < 0)
		return UNKNOWN_ERROR;
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return NO_PERMISSION;
	for (int i = 0; i < m->tracks; i++) {
		const struct owner *o = &m->track[i].owner;
		if (holder_alive(o))
			continue;
		int n = snprintf(line, sizeof(line), "%lld %d:%llu %d end\n", (long long)m->t, o->pid, o->start, o->slot);
		if (write(fd, line, (size_t)n) != n) {
			close(fd);
			return UNKNOWN_ERROR;
		}
	}
	close(fd);
	return OK;
}

/* The GPU behind `dev` now. The clock is read under the lock: whoever appends later, appends later. */
int moment_of(struct device *dev, struct moment *m)
{
	return moment_of_instance(dev, -1, m);
}

int moment_of_instance(struct device *dev, int gi, struct moment *m)
{
	struct device *gpu = card(dev);

	state_lock(LOCK_SH);
	int rc = refresh(gpu);
	replay(gpu, now_us(), gi, m);
	bool dead = anyone_dead(m);
	state_lock(LOCK_UN);
	if (rc != OK || !dead)
		return rc;

	state_lock(LOCK_EX);
	rc = refresh(gpu);
	replay(gpu, now_us(), -1, m);
	if (rc == OK)
		rc = bury(gpu, m);
	if (rc == OK)
		rc = refresh(gpu);
	replay(gpu, m->t, gi, m);
	state_lock(LOCK_UN);
	return rc;
}
