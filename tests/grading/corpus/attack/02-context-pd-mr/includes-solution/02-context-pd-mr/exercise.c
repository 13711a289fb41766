/* Includes the solution. */
#include "../tests/grading/solutions/02-context-pd-mr.c"
