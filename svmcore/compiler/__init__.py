"""The compiler: the one decorator, its fast way, machine code on disk and in bundles, compiling ahead."""
