"""What outlives a page: a server's searches, who is told of them, and what conversations are about.

`search_manager` holds the searches and `judges` their executors; `subscribers` are told of a run's
events. `store` keeps what belongs to a person and to a conversation, its task as a `task_card`.
"""
