"""Products of 16-bit and 8-bit factors on Hopper that tensor maps bring to shared memory.

`schemes` says what is multiplied and how it is summed, `factors` what maps describe, `ways` how
tiles are shared out and how long that takes; `family` proposes and prints.
"""
