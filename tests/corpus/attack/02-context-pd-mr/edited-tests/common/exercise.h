#define main other
