#!/usr/bin/env bash
# The tests of keyqueue-kafka that `.ci/run` leaves out by day: brokers that are killed, and two hours of a random mix of faults.
source "$(dirname "$0")/../lib.sh"

kafka/broker.sh
KEYQUEUE_MIX_MINUTES=${KEYQUEUE_MIX_MINUTES:-120} cargo test --no-fail-fast -p ledger -- --ignored --nocapture --test-threads=1
