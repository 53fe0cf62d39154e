"""Whether a program was compiled with AddressSanitizer."""
import pathlib


def reserves_address_space(program):
    """AddressSanitizer reserves address space by the terabyte: such a program does not start where that is limited."""
    return b"__asan_init" in pathlib.Path(program).read_bytes()
