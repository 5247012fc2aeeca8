"""Reports: resources of kernels, occupancy, loops in machine code, and the seconds of a build's phases."""
