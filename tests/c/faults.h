/* System calls of the plugin that fail on demand (linked with --wrap). */
#ifndef LADON_FAULTS_H
#define LADON_FAULTS_H

/* The n-th call from now on fails with `error`; 0: none does. */
void faults_arm(int n, int error);

/* Calls made since then. */
int faults_seen(void);

#endif
