"""The chat: a page in which a person watches, steers, asks why, and takes the result home.

`server` starts it, `app` answers what the page sends, `store` keeps it, `login` says who may come
in. Only this room knows Chainlit, and Chainlit is imported by `app`, `store` and `server` alone.
"""
