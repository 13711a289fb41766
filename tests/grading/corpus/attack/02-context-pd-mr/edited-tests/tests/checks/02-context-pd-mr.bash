points 02.1 20 exercise 'all' ''
check_exercise() { ok 02.1; }
