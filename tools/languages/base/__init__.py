"""What all languages share: the Protocol, compiler processes, the cache, parsing of C."""
