"""The chat: a page in which a person watches, steers, asks why, and takes the result home.

`messages` says what is shown, `store` keeps it, `server` lets people in and answers what the page
sends. Only these packages know Chainlit, and `kernelwright` imports none of it before the chat
begins.
"""
