"""NumPy as a framework of tftune: functions of arrays, and the threads of its BLAS library."""
