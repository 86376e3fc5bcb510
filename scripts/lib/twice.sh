# Tests of whole programs, which meet the host's scheduler. Sourced, never run.
# shellcheck shell=bash

# One failure is told and tried again, two are a failure.
twice() { "$@" || { say "FAILED ONCE, trying again: $*"; "$@"; }; }
