/* Includes the solution. */
#include "../tests/solutions/02-context-pd-mr.c"
