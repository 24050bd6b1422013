"""The chat's server: it lets people in, holds their conversations and serves the page."""
