"""A user's file, alive: executed, its module and inputs made, called with flat ones, and looked at.

What a file holds is found in `user_file`, made in `modules`, tried out in `probe`. All of it runs
the user's code, so it is called inside workers only. Where the file comes from is `sources`.
"""
