# Tests of whole programs, which meet the host's scheduler. Sourced, never run.

# One failure is told and tried again, two are a failure.
twice() { "$@" || { say "FAILED ONCE, trying again: $*"; "$@"; }; }

# suite ARGUMENTS: cargo test of what is built already. One that hangs is a failure, and the test says its name after
# a minute.
suite() { timeout --verbose ${TEST_FOREGROUND:-} --kill-after=10 15m cargo test --locked "$@"; }
