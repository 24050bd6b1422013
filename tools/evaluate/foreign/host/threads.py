"""How threads of OpenMP wait in a judge of foreign code and in its guests: asleep.

By default they spin for some milliseconds (libgomp) once they have nothing to do, which is right
for a program that has the processors to itself. Here three processes take turns on them, and each
starts a round from sleep: its threads are then often woken on one processor, where one spins in
wait for another that needs that very processor. Seen on two processors, quiet, in a single process:
tanh of 0.25 MB took 7.9 ms after a pause of 20 ms, and 0.10 ms back to back.
Threads that sleep at once take 0.3 and 0.2 ms. So both sides pay for waking up, at every operator
that runs in parallel.
"""

from collections.abc import Mapping
from types import MappingProxyType

ASLEEP: Mapping[str, str] = MappingProxyType({"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"})
