"""The command line: `app` says what can be asked, every other module does one of the things."""
