"""A real Slurm on loopback with played GPUs. Plain Python, standard library only; no pytest in here."""
