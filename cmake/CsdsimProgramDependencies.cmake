# Third-party libraries that only the program csdsim uses; users of the libraries do not need them.
find_package(CLI11 2 REQUIRED)
