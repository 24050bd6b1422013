"""How threads of OpenMP wait in a judge of foreign code and in its guests: asleep.

By default they spin for some milliseconds (libgomp) once they have nothing to do, which is right
for a program that has the processors to itself. Here three processes take turns on them, and each
starts a round from sleep: its threads are then often woken on one processor, where one spins in
wait for another that needs that very processor. Seen on two processors in a single process
(`benchmarks/waking.py`): tanh of 0.25 MB took 7.8 ms after a pause of 20 ms, and 0.11 back to back;
with threads that sleep at once 0.41 and 0.22. So both sides pay for waking up, at every operator
that runs in parallel. Threads are not bound to processors, as what a file starts would be, too.
"""

from collections.abc import Mapping
from types import MappingProxyType

ASLEEP: Mapping[str, str] = MappingProxyType({"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"})
