# Loaded by every test file: `load helpers`.

bats_load_library bats-support
bats_load_library bats-assert
bats_require_minimum_version 1.5.0

project=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd -P)

# The folder of the programs under test; `make test` also runs with build/san.
: "${BUILD:=$project/build}"

# What the program prints by the sample in the header comment of its source $1.
sample_of() { sed -n '/^ \*\t\$ /,/^ \*$/{/^ \*\t\$ /d; s/^ \*\t//p}' "$1"; }

# No program may outlast its test: Bats itself does not end what `run` started.
# Standard descriptor 3 is Bats' own and no business of a program under test.
limited() { timeout -k 1 "${LIMIT:-30}" "$@" 3>&-; }
