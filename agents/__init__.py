"""Who thinks: planner, coder, profiler and critic, each with a playbook behind it."""
